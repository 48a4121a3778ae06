//! srvsvc (MS-SRVS): shares, the server, its sessions and its clock.

use super::ndr::{BadStub, Reader, Writer};
use super::{Directory, RpcCaller, ServerEntry, SessionEntry, ShareEntry, ShareKind, Win32};
use types::{FileTime, civil_date};

/// PLATFORM_ID_NT
const PLATFORM_NT: u32 = 500;
/// SV_TYPE_WORKSTATION | SV_TYPE_SERVER | SV_TYPE_NT | SV_TYPE_SERVER_NT
const SERVER_TYPE: u32 = 0x0000_9003;
const STYPE_IPC: u32 = 3;
const STYPE_SPECIAL: u32 = 0x8000_0000;
/// SHI_USES_UNLIMITED
const USES_UNLIMITED: u32 = u32::MAX;
/// SESS_GUEST
const SESSION_GUEST: u32 = 1;
/// Bytes of one answer at most, whatever the client prefers.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    stub: &[u8],
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Option<Result<Vec<u8>, BadStub>> {
    let reader = Reader::new(stub);
    match operation {
        12 => Some(session_enum(reader, caller, directory)),
        // NetrShareEnum and NetrShareEnumSticky: there are no sticky shares apart from all shares.
        15 | 36 => Some(share_enum(reader, caller, directory)),
        16 => Some(share_get_info(reader, caller, directory)),
        21 => Some(server_get_info(reader, directory)),
        28 => Some(remote_time(reader, directory)),
        33 => Some(name_validate(reader)),
        _ => None,
    }
}

fn share_type(share: &ShareEntry) -> u32 {
    let kind = match share.kind {
        ShareKind::Disk => 0,
        ShareKind::Pipe => STYPE_IPC,
    };
    if share.is_special { kind | STYPE_SPECIAL } else { kind }
}

/// MS-SRVS 3.1.4.8, 3.1.4.10: who may ask for a level.
fn check_share_level(level: u32, caller: &RpcCaller) -> Result<(), Win32> {
    match level {
        0 | 1 | 501 | 1005 => Ok(()),
        2 | 502 if caller.is_administrator => Ok(()),
        2 | 502 => Err(Win32::ACCESS_DENIED),
        _ => Err(Win32::INVALID_LEVEL),
    }
}

/// The fixed part of SHARE_INFO_level (MS-SRVS 2.2.4.22 to 2.2.4.29).
fn share_fixed(out: &mut Writer, level: u32, share: &ShareEntry) {
    if level == 1005 {
        out.u32(share.flags);
        return;
    }
    out.pointer();
    if level == 0 {
        return;
    }
    out.u32(share_type(share));
    out.pointer();
    match level {
        501 => out.u32(share.flags),
        2 | 502 => {
            // Permissions matter to share-level security only, which is long gone.
            out.u32(0);
            out.u32(USES_UNLIMITED);
            out.u32(share.current_uses);
            out.pointer();
            out.null();
            if level == 502 {
                out.count(share.security_descriptor.as_ref().map_or(0, Vec::len));
                out.pointer_if(share.security_descriptor.is_some());
            }
        }
        _ => {}
    }
}

/// What the pointers of [`share_fixed`] point to.
fn share_targets(out: &mut Writer, level: u32, share: &ShareEntry) {
    if level == 1005 {
        return;
    }
    out.string(&share.name);
    if level == 0 {
        return;
    }
    out.string(&share.comment);
    if matches!(level, 2 | 502) {
        out.string(&share.path);
        if let (502, Some(descriptor)) = (level, &share.security_descriptor) {
            out.count(descriptor.len());
            out.bytes(descriptor);
        }
    }
}

/// A level and a container that the client leaves empty; then what it prefers and where it stopped.
struct Enumeration {
    level: u32,
    bytes_max: usize,
    resume: Option<u32>,
}

impl Enumeration {
    fn read(reader: &mut Reader<'_>) -> Result<Self, BadStub> {
        let level = reader.u32()?;
        if reader.u32()? != level {
            return Err(BadStub);
        }
        if reader.pointer()? {
            // Entries read, and the buffer that is for the server to fill.
            reader.u32()?;
            if reader.pointer()? {
                return Err(BadStub);
            }
        }
        let preferred = reader.u32()? as usize;
        let resume = if reader.pointer()? { Some(reader.u32()?) } else { None };
        Ok(Self { level, bytes_max: preferred.min(ANSWER_BYTES_MAX), resume })
    }

    fn refuse(&self, status: Win32) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.level);
        out.u32(self.level);
        out.null();
        self.finish(&mut out, 0, None, status);
        out.into_stub()
    }

    /// Writes as many of `entries` as fit, from where the client stopped.
    fn answer<T>(
        &self,
        entries: &[T],
        fixed: impl Fn(&mut Writer, &T),
        targets: impl Fn(&mut Writer, &T),
    ) -> Vec<u8> {
        let from = (self.resume.unwrap_or(0) as usize).min(entries.len());
        let rest = entries.get(from..).unwrap_or_default();
        let mut used = 0;
        let fitting = rest
            .iter()
            .take_while(|entry| {
                let mut alone = Writer::default();
                fixed(&mut alone, entry);
                targets(&mut alone, entry);
                used += alone.len();
                used <= self.bytes_max
            })
            .count();
        // One entry always goes, or the client would ask for ever.
        let shown = rest.get(..fitting.max(1).min(rest.len())).unwrap_or_default();
        let is_all = shown.len() == rest.len();

        let mut out = Writer::default();
        out.u32(self.level);
        out.u32(self.level);
        out.pointer();
        out.count(shown.len());
        out.pointer();
        out.count(shown.len());
        shown.iter().for_each(|entry| fixed(&mut out, entry));
        shown.iter().for_each(|entry| targets(&mut out, entry));
        let next = (!is_all).then_some(from + shown.len());
        let status = if is_all { Win32::SUCCESS } else { Win32::MORE_DATA };
        self.finish(&mut out, rest.len(), next, status);
        out.into_stub()
    }

    fn finish(&self, out: &mut Writer, total: usize, next: Option<usize>, status: Win32) {
        out.count(total);
        out.pointer_if(self.resume.is_some());
        if self.resume.is_some() {
            out.count(next.unwrap_or(0));
        }
        out.u32(status.0);
    }
}

/// NetrShareEnum (MS-SRVS 3.1.4.8).
fn share_enum(
    mut reader: Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let wanted = Enumeration::read(&mut reader)?;
    let level = wanted.level;
    if level == 1005 {
        return Ok(wanted.refuse(Win32::INVALID_LEVEL));
    }
    if let Err(status) = check_share_level(level, caller) {
        return Ok(wanted.refuse(status));
    }
    let shares = directory.shares();
    Ok(wanted.answer(
        &shares,
        |out, share| share_fixed(out, level, share),
        |out, share| share_targets(out, level, share),
    ))
}

/// NetrShareGetInfo (MS-SRVS 3.1.4.10).
fn share_get_info(
    mut reader: Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let name = reader.string()?;
    let level = reader.u32()?;
    let found = check_share_level(level, caller).and_then(|()| {
        let wanted = name.to_lowercase();
        let same = |share: &ShareEntry| share.name.to_lowercase() == wanted;
        directory.shares().into_iter().find(same).ok_or(Win32::NET_NAME_NOT_FOUND)
    });
    let mut out = Writer::default();
    out.u32(level);
    match found {
        Ok(share) => {
            out.pointer();
            share_fixed(&mut out, level, &share);
            share_targets(&mut out, level, &share);
            out.u32(Win32::SUCCESS.0);
        }
        Err(status) => {
            out.null();
            out.u32(status.0);
        }
    }
    Ok(out.into_stub())
}

/// NetrServerGetInfo (MS-SRVS 3.1.4.17), levels 100 to 102.
fn server_get_info(mut reader: Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let level = reader.u32()?;
    let mut out = Writer::default();
    out.u32(level);
    if !(100..=102).contains(&level) {
        out.null();
        out.u32(Win32::INVALID_LEVEL.0);
        return Ok(out.into_stub());
    }
    let ServerEntry { name, comment, version_major, version_minor, .. } = directory.server();
    out.pointer();
    out.u32(PLATFORM_NT);
    out.pointer();
    if level >= 101 {
        out.u32(version_major);
        out.u32(version_minor);
        out.u32(SERVER_TYPE);
        out.pointer();
    }
    if level == 102 {
        // Unlimited users, no automatic disconnection, not hidden, announced every 240 s with 3 s of jitter.
        for value in [u32::MAX, u32::MAX, 0, 240, 3, 0] {
            out.u32(value);
        }
        out.pointer();
    }
    out.string(&name);
    if level >= 101 {
        out.string(&comment);
    }
    if level == 102 {
        out.string("C:\\");
    }
    out.u32(Win32::SUCCESS.0);
    Ok(out.into_stub())
}

/// NetrSessionEnum (MS-SRVS 3.1.4.5), levels 0, 1 and 10, for administrators.
fn session_enum(
    mut reader: Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let client = reader.optional_string()?.filter(|name| !name.is_empty());
    let user = reader.optional_string()?.filter(|name| !name.is_empty());
    let wanted = Enumeration::read(&mut reader)?;
    let level = wanted.level;
    if !matches!(level, 0 | 1 | 10) {
        return Ok(wanted.refuse(Win32::INVALID_LEVEL));
    }
    if !caller.is_administrator {
        return Ok(wanted.refuse(Win32::ACCESS_DENIED));
    }
    let is_wanted = |filter: &Option<String>, value: &str| {
        filter.as_ref().is_none_or(|name| name.trim_start_matches('\\').eq_ignore_ascii_case(value))
    };
    let sessions: Vec<SessionEntry> = directory
        .sessions()
        .into_iter()
        .filter(|session| is_wanted(&client, &session.client) && is_wanted(&user, &session.user))
        .collect();
    Ok(wanted.answer(
        &sessions,
        |out, session| {
            out.pointer();
            if level != 0 {
                out.pointer();
            }
            if level == 1 {
                out.u32(session.open_files);
            }
            if level != 0 {
                out.u32(session.active_s);
                out.u32(session.idle_s);
            }
            if level == 1 {
                out.u32(if session.is_guest { SESSION_GUEST } else { 0 });
            }
        },
        |out, session| {
            out.string(&session.client);
            if level != 0 {
                out.string(&session.user);
            }
        },
    ))
}

/// NetrRemoteTOD (MS-SRVS 3.1.4.21): TIME_OF_DAY_INFO in UTC.
fn remote_time(mut reader: Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let ticks = directory.now().0;
    let unix_s = ticks.saturating_sub(FileTime::UNIX_EPOCH.0) / 10_000_000;
    let hundredths = ticks / 100_000 % 100;
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Ticks of 64 bits are some 10^8 days at most.
    let (year, month, day) = civil_date(days as i64);
    let mut out = Writer::default();
    out.pointer();
    let fields = [
        unix_s,
        ticks / 10_000,
        second / 3600,
        second / 60 % 60,
        second % 60,
        hundredths,
        // The time zone in minutes west of Greenwich, and the clock's resolution in units of 100 µs.
        0,
        310,
        day as u64,
        month as u64,
        year as u64,
        // 1970-01-01 was a Thursday.
        (days + 4) % 7,
    ];
    fields.iter().for_each(|&value| out.u32(value as u32));
    out.u32(Win32::SUCCESS.0);
    Ok(out.into_stub())
}

/// NetprNameValidate (MS-SRVS 3.1.4.33): share names and the like.
fn name_validate(mut reader: Reader<'_>) -> Result<Vec<u8>, BadStub> {
    const NAME_TYPE_SHARE: u32 = 9;
    reader.optional_string()?;
    let name = reader.string()?;
    let name_type = reader.u32()?;
    let flags = reader.u32()?;
    let status = if flags & 0x7FFF_FFFF != 0 || !(1..=14).contains(&name_type) {
        Win32::INVALID_PARAMETER
    } else {
        let longest = if name_type == NAME_TYPE_SHARE { 80 } else { 256 };
        let is_valid = (1..=longest).contains(&name.encode_utf16().count())
            && !name.chars().any(|c| c < ' ' || "\"/\\[]:|<>+=;,*?".contains(c));
        if is_valid { Win32::SUCCESS } else { Win32::INVALID_NAME }
    };
    let mut out = Writer::default();
    out.u32(status.0);
    Ok(out.into_stub())
}
