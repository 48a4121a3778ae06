//! wkssvc (MS-WKST): the kind of computer that this is.

use super::enumeration::{Enumeration, answer_of_level};
use super::ndr::{BadStub, Reader, Writer};
use super::{Directory, RpcCaller, Win32};

/// PLATFORM_ID_NT
const PLATFORM_NT: u32 = 500;
/// Most bytes of one list of users, even if the client asks for more.
const USERS_BYTES_MAX: usize = 128 << 10;
/// Bytes of one user in a list at most: names of accounts have 20 characters, of servers 15.
const USER_BYTES_MAX: usize = 256;

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Option<Result<Vec<u8>, BadStub>> {
    match operation {
        0 => Some(get_info(reader, directory)),
        2 => Some(user_enum(reader, caller, directory)),
        _ => None,
    }
}

/// NetrWkstaGetInfo (MS-WKST 3.2.4.1), levels 100 to 102.
fn get_info(reader: &mut Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let level = reader.u32()?;
    let found = if (100..=102).contains(&level) { Ok(directory.server()) } else { Err(Win32::INVALID_LEVEL) };
    Ok(answer_of_level(level, found, |out, server| {
        out.u32(PLATFORM_NT);
        out.pointer();
        out.pointer();
        out.u32(server.version_major);
        out.u32(server.version_minor);
        if level >= 101 {
            out.pointer();
        }
        if level == 102 {
            out.count(directory.sessions().len());
        }
        out.string(&server.name);
        out.string(&server.domain);
        if level >= 101 {
            out.string("");
        }
    }))
}

/// NetrWkstaUserEnum (MS-WKST 3.2.4.3), levels 0 and 1, for administrators: who is logged on. Each user is named once.
fn user_enum(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let wanted = Enumeration::read(reader)?;
    let level = wanted.level;
    match level {
        0 | 1 if caller.is_administrator => {}
        0 | 1 => return Ok(wanted.refuse(Win32::ACCESS_DENIED)),
        _ => return Ok(wanted.refuse(Win32::INVALID_LEVEL)),
    }
    let mut users: Vec<String> = directory.sessions().into_iter().map(|session| session.user).collect();
    users.sort();
    users.dedup();
    let from = wanted.resume.unwrap_or(0) as usize;
    let rest = users.get(from.min(users.len())..).unwrap_or_default();
    let server = directory.server().name;
    // Pointers and strings of one entry, with the server's name twice.
    let shown = (wanted.bytes_max.min(USERS_BYTES_MAX) / USER_BYTES_MAX).max(1).min(rest.len());
    let is_all = shown == rest.len();
    let mut out = Writer::default();
    out.u32(level);
    out.u32(level);
    out.pointer();
    out.count(shown);
    out.pointer_if(shown > 0);
    if shown > 0 {
        out.count(shown);
    }
    let pointers = if level == 0 { 1 } else { 4 };
    (0..shown * pointers).for_each(|_| out.pointer());
    for user in rest.iter().take(shown) {
        out.string(user);
        if level == 1 {
            // The domain of the logon, others that the user reads, and the server that knew the password.
            out.string(&server);
            out.string("");
            out.string(&server);
        }
    }
    let next = (!is_all).then(|| (from + shown) as u32);
    wanted.finish(&mut out, rest.len(), next, if is_all { Win32::SUCCESS } else { Win32::MORE_DATA });
    Ok(out.into_stub())
}
