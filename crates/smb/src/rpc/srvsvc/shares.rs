//! Shares (MS-SRVS 3.1.4.7 to 3.1.4.15): listed, described, and for administrators made, changed and
//! deleted.

use super::super::enumeration::{Enumeration, answer_of_level};
use super::super::ndr::{BadStub, Reader, Writer};
use super::super::{Answer, Directory, RpcCaller, RpcChange, ShareEntry, ShareKind, ShareSettings, Win32};

const STYPE_DISK: u32 = 0;
const STYPE_IPC: u32 = 3;
const STYPE_SPECIAL: u32 = 0x8000_0000;
/// SHI_USES_UNLIMITED
const USES_UNLIMITED: u32 = u32::MAX;
/// Longest security descriptor of a share in bytes: more than a list of all grants takes.
const DESCRIPTOR_BYTES_MAX: usize = 64 << 10;

fn share_type(share: &ShareEntry) -> u32 {
    let kind = match share.kind {
        ShareKind::Disk => STYPE_DISK,
        ShareKind::Pipe => STYPE_IPC,
    };
    if share.is_special { kind | STYPE_SPECIAL } else { kind }
}

/// Checks who may ask for a level, in a list or of one share (MS-SRVS 3.1.4.8, 3.1.4.10).
fn check_level(level: u32, is_list: bool, caller: &RpcCaller) -> Result<(), Win32> {
    match level {
        0 | 1 | 501 => Ok(()),
        1004..=1007 if !is_list => Ok(()),
        2 | 502 | 503 if caller.is_administrator => Ok(()),
        1501 if caller.is_administrator && !is_list => Ok(()),
        2 | 502 | 503 => Err(Win32::ACCESS_DENIED),
        1501 if !is_list => Err(Win32::ACCESS_DENIED),
        _ => Err(Win32::INVALID_LEVEL),
    }
}

fn descriptor_fixed(out: &mut Writer, share: &ShareEntry) {
    out.count(share.security_descriptor.as_ref().map_or(0, Vec::len));
    out.pointer_if(share.security_descriptor.is_some());
}

fn descriptor_target(out: &mut Writer, share: &ShareEntry) {
    if let Some(descriptor) = &share.security_descriptor {
        out.byte_array(descriptor);
    }
}

/// Writes the fixed part of SHARE_INFO_level (MS-SRVS 2.2.4.22 to 2.2.4.33).
fn share_fixed(out: &mut Writer, level: u32, share: &ShareEntry) {
    match level {
        1004 => return out.pointer(),
        1005 => return out.u32(share.flags),
        1006 => return out.u32(USES_UNLIMITED),
        1007 => {
            // Flags, and a directory to fall back to, which is never there.
            out.u32(share.flags);
            return out.null();
        }
        1501 => return descriptor_fixed(out, share),
        _ => {}
    }
    out.pointer();
    if level == 0 {
        return;
    }
    out.u32(share_type(share));
    out.pointer();
    match level {
        501 => out.u32(share.flags),
        2 | 502 | 503 => {
            // Permissions matter to share-level security only, which is long gone.
            out.u32(0);
            out.u32(USES_UNLIMITED);
            out.u32(share.current_uses);
            out.pointer();
            out.null();
            if level == 503 {
                // The name of the server that the share belongs to: all of them belong to any.
                out.pointer();
            }
            if level != 2 {
                descriptor_fixed(out, share);
            }
        }
        _ => {}
    }
}

/// Writes what the pointers of [`share_fixed`] point to.
fn share_targets(out: &mut Writer, level: u32, share: &ShareEntry) {
    match level {
        1004 => return out.string(&share.comment),
        1005..=1007 => return,
        1501 => return descriptor_target(out, share),
        _ => {}
    }
    out.string(&share.name);
    if level == 0 {
        return;
    }
    out.string(&share.comment);
    if matches!(level, 2 | 502 | 503) {
        out.string(&share.path);
    }
    if level == 503 {
        out.string("*");
    }
    if matches!(level, 502 | 503) {
        descriptor_target(out, share);
    }
}

/// NetrShareEnum and NetrShareEnumSticky (MS-SRVS 3.1.4.8, 3.1.4.9): there are no sticky shares apart from all shares.
pub(super) fn share_enum(
    reader: &mut Reader<'_>,
    is_sticky: bool,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let wanted = Enumeration::read(reader)?;
    let level = wanted.level;
    // Sticky shares have no flags to report (MS-SRVS 3.1.4.9).
    let allowed =
        if is_sticky && level == 501 { Err(Win32::INVALID_LEVEL) } else { check_level(level, true, caller) };
    if let Err(status) = allowed {
        return Ok(wanted.refuse(status));
    }
    let shares = directory.shares();
    Ok(wanted.answer(
        &shares,
        |out, share| share_fixed(out, level, share),
        |out, share| share_targets(out, level, share),
    ))
}

fn find(name: &str, directory: &dyn Directory) -> Option<ShareEntry> {
    let wanted = name.to_lowercase();
    directory.shares().into_iter().find(|share| share.name.to_lowercase() == wanted)
}

/// NetrShareGetInfo (MS-SRVS 3.1.4.10).
pub(super) fn share_get_info(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let name = reader.string()?;
    let level = reader.u32()?;
    let found = check_level(level, false, caller)
        .and_then(|()| find(&name, directory).ok_or(Win32::NET_NAME_NOT_FOUND));
    Ok(answer_of_level(level, found, |out, share| {
        share_fixed(out, level, &share);
        share_targets(out, level, &share);
    }))
}

/// NetrShareCheck (MS-SRVS 3.1.4.14): whether a directory is shared.
pub(super) fn share_check(reader: &mut Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let path = reader.string()?;
    // Clients name the directory, and some the share.
    let of_path = |share: &ShareEntry| {
        !path.is_empty()
            && [&share.path, &share.name].into_iter().any(|known| known.eq_ignore_ascii_case(&path))
    };
    let found = directory.shares().into_iter().find(of_path);
    let mut out = Writer::default();
    out.u32(found.as_ref().map_or(STYPE_DISK, share_type));
    let status = if found.is_some() { Win32::SUCCESS } else { Win32::DEVICE_NOT_SHARED };
    out.u32(status.0);
    Ok(out.into_stub())
}

/// SHARE_INFO of a level that changes something, as a client fills it.
#[derive(Default)]
struct Filled {
    name: Option<String>,
    kind: Option<u32>,
    path: Option<String>,
    settings: ShareSettings,
    /// Most tree connects at a time.
    uses_max: Option<u32>,
}

impl Filled {
    /// Reads a SHARE_INFO union (MS-SRVS 2.2.3.6); the outer error is a level that is not known.
    fn read(reader: &mut Reader<'_>) -> Result<Result<Self, Win32>, BadStub> {
        let level = reader.u32()?;
        if reader.u32()? != level {
            return Err(BadStub);
        }
        if !matches!(level, 1 | 2 | 502 | 503 | 1004..=1006 | 1501) {
            return Ok(Err(Win32::INVALID_LEVEL));
        }
        if !reader.pointer()? {
            return Ok(Err(Win32::INVALID_PARAMETER));
        }
        let mut filled = Self::default();
        match level {
            1004 => filled.settings.comment = reader.optional_string()?,
            1005 => filled.settings.flags = Some(reader.u32()?),
            1006 => filled.uses_max = Some(reader.u32()?),
            1501 => {
                let len = reader.u32()? as usize;
                let is_there = reader.pointer()?;
                filled.read_descriptor(reader, len, is_there)?;
            }
            _ => filled.read_whole(reader, level)?,
        }
        Ok(Ok(filled))
    }

    fn read_whole(&mut self, reader: &mut Reader<'_>, level: u32) -> Result<(), BadStub> {
        let has_name = reader.pointer()?;
        self.kind = Some(reader.u32()?);
        let has_comment = reader.pointer()?;
        let (mut has_path, mut has_password, mut has_server) = (false, false, false);
        let mut descriptor = (0, false);
        if level != 1 {
            // Permissions, and how many use it now.
            reader.u32()?;
            self.uses_max = Some(reader.u32()?);
            reader.u32()?;
            (has_path, has_password) = (reader.pointer()?, reader.pointer()?);
        }
        if level == 503 {
            has_server = reader.pointer()?;
        }
        if matches!(level, 502 | 503) {
            descriptor = (reader.u32()? as usize, reader.pointer()?);
        }
        let mut next = |is_there| if is_there { reader.string().map(Some) } else { Ok(None) };
        self.name = next(has_name)?;
        self.settings.comment = next(has_comment)?;
        self.path = next(has_path)?;
        next(has_password)?;
        next(has_server)?;
        self.read_descriptor(reader, descriptor.0, descriptor.1)
    }

    /// Whether it limits how many use the share at a time. A share without a limit is the only one there is; clients write 0 as well if they
    /// mean none.
    fn limits_uses(&self) -> bool {
        !matches!(self.uses_max, None | Some(0 | USES_UNLIMITED))
    }

    fn read_descriptor(
        &mut self,
        reader: &mut Reader<'_>,
        len: usize,
        is_there: bool,
    ) -> Result<(), BadStub> {
        if !is_there {
            return Ok(());
        }
        if len > DESCRIPTOR_BYTES_MAX || reader.u32()? as usize != len {
            return Err(BadStub);
        }
        self.settings.security_descriptor = Some(reader.bytes(len)?.to_vec());
        Ok(())
    }
}

/// The answer of an operation that has a pointer to the place of a wrong parameter, which is never
/// filled.
fn with_parameter(is_asked: bool, status: Option<Win32>) -> Vec<u8> {
    let mut out = Writer::default();
    out.pointer_if(is_asked);
    if is_asked {
        out.u32(0);
    }
    if let Some(status) = status {
        out.u32(status.0);
    }
    out.into_stub()
}

/// A request to make or change a share.
struct Request {
    filled: Filled,
    /// The client asks for the place of a wrong parameter.
    is_asked: bool,
}

impl Request {
    /// Reads the part behind the names; the inner error is the answer if the request is refused for any
    /// share.
    fn read(reader: &mut Reader<'_>, caller: &RpcCaller) -> Result<Result<Self, Answer>, BadStub> {
        let filled = match Filled::read(reader)? {
            Ok(filled) => filled,
            Err(status) => return Ok(Err(with_parameter(false, Some(status)).into())),
        };
        let request = Self { filled, is_asked: reader.pointer()? };
        Ok(if caller.is_administrator { Ok(request) } else { Err(request.refuse(Win32::ACCESS_DENIED)) })
    }

    fn refuse(&self, status: Win32) -> Answer {
        with_parameter(self.is_asked, Some(status)).into()
    }

    fn later(&self, change: RpcChange, not_found: Win32) -> Answer {
        Answer::Later { change, before_status: with_parameter(self.is_asked, None), not_found }
    }
}

/// NetrShareAdd (MS-SRVS 3.1.4.7): `C:\VOLUME\DIRECTORY` is a directory of a volume.
pub(super) fn share_add(reader: &mut Reader<'_>, caller: &RpcCaller) -> Result<Answer, BadStub> {
    reader.optional_string()?;
    let request = match Request::read(reader, caller)? {
        Ok(request) => request,
        Err(answer) => return Ok(answer),
    };
    let Filled { name: Some(name), kind: Some(STYPE_DISK), path: Some(path), settings, .. } = &request.filled
    else {
        return Ok(request.refuse(Win32::INVALID_PARAMETER));
    };
    if request.filled.limits_uses() {
        return Ok(request.refuse(Win32::NOT_SUPPORTED));
    }
    let (name, path, settings) = (name.clone(), path.clone(), settings.clone());
    Ok(request.later(RpcChange::CreateShare { name, path, settings }, Win32::UNKNOWN_DIRECTORY))
}

/// NetrShareSetInfo (MS-SRVS 3.1.4.11).
pub(super) fn share_set_info(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Answer, BadStub> {
    reader.optional_string()?;
    let name = reader.string()?;
    let request = match Request::read(reader, caller)? {
        Ok(request) => request,
        Err(answer) => return Ok(answer),
    };
    let Some(share) = find(&name, directory) else { return Ok(request.refuse(Win32::NET_NAME_NOT_FOUND)) };
    let Filled { kind, path, settings, .. } = &request.filled;
    let moves = path.as_ref().is_some_and(|path| !path.eq_ignore_ascii_case(&share.path));
    if share.is_special || kind.is_some_and(|kind| kind != share_type(&share)) || moves {
        return Ok(request.refuse(Win32::INVALID_PARAMETER));
    }
    if request.filled.limits_uses() {
        return Ok(request.refuse(Win32::NOT_SUPPORTED));
    }
    if *settings == ShareSettings::default() {
        return Ok(request.refuse(Win32::SUCCESS));
    }
    let settings = settings.clone();
    Ok(request.later(RpcChange::SetShare { name: share.name, settings }, Win32::NET_NAME_NOT_FOUND))
}

/// NetrShareDel and NetrShareDelSticky (MS-SRVS 3.1.4.12, 3.1.4.13).
pub(super) fn share_delete(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Answer, BadStub> {
    reader.optional_string()?;
    let name = reader.string()?;
    // Reserved.
    reader.u32()?;
    let refuse = |status| Ok(Answer::status(status));
    if !caller.is_administrator {
        return refuse(Win32::ACCESS_DENIED);
    }
    match find(&name, directory) {
        None => refuse(Win32::NET_NAME_NOT_FOUND),
        Some(share) if share.is_special => refuse(Win32::INVALID_PARAMETER),
        Some(share) => Ok(Answer::Later {
            change: RpcChange::DeleteShare { name: share.name },
            before_status: Vec::new(),
            not_found: Win32::NET_NAME_NOT_FOUND,
        }),
    }
}

/// NetrpGetFileSecurity (MS-SRVS 3.1.4.15): the descriptor of a file below a share.
pub(super) fn file_security(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Answer, BadStub> {
    reader.optional_string()?;
    let share = reader.optional_string()?.unwrap_or_default();
    let path = reader.string()?;
    // SECURITY_INFORMATION: the answer always has everything.
    reader.u32()?;
    let refuse = |status: Win32| {
        let mut out = Writer::default();
        out.null();
        out.u32(status.0);
        Ok(out.into_stub().into())
    };
    if !caller.is_administrator {
        return refuse(Win32::ACCESS_DENIED);
    }
    let Some(share) = find(&share, directory) else { return refuse(Win32::NET_NAME_NOT_FOUND) };
    Ok(Answer::Later {
        change: RpcChange::FileSecurity { share: share.name, path },
        // No descriptor.
        before_status: vec![0; 4],
        not_found: Win32::FILE_NOT_FOUND,
    })
}

/// The answer of [`file_security`] with a descriptor, without its status: ADT_SECURITY_DESCRIPTOR (MS-SRVS 2.2.4.98).
pub(in crate::rpc) fn write_file_security(descriptor: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.pointer();
    out.count(descriptor.len());
    out.pointer();
    out.byte_array(descriptor);
    out.u32(Win32::SUCCESS.0);
    out.into_stub()
}
