//! srvsvc (MS-SRVS): shares, the server, its sessions and its clock.

mod shares;
mod users;

use super::enumeration::answer_of_level;
use super::ndr::{BadStub, Reader, Writer};
use super::{Answer, Directory, RpcCaller, ServerEntry, Win32};
pub(super) use shares::write_file_security;
use types::{FileTime, civil_date};

/// PLATFORM_ID_NT
const PLATFORM_NT: u32 = 500;
/// SV_TYPE_WORKSTATION | SV_TYPE_SERVER | SV_TYPE_NT | SV_TYPE_SERVER_NT
const SERVER_TYPE: u32 = 0x0000_9003;

/// Answers one operation; `None` if it is not known.
pub(super) fn call(
    operation: u16,
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Option<Result<Answer, BadStub>> {
    let answer = match operation {
        8 => users::connection_enum(reader, caller, directory),
        9 => users::file_enum(reader, caller, directory),
        10 => users::file_get_info(reader, caller, directory),
        11 => return Some(users::file_close(reader, caller, directory)),
        12 => users::session_enum(reader, caller, directory),
        13 => return Some(users::session_delete(reader, caller, directory)),
        14 => return Some(shares::share_add(reader, caller)),
        15 | 36 => shares::share_enum(reader, operation == 36, caller, directory),
        16 => shares::share_get_info(reader, caller, directory),
        17 => return Some(shares::share_set_info(reader, caller, directory)),
        18 | 19 => return Some(shares::share_delete(reader, caller, directory)),
        20 => shares::share_check(reader, directory),
        21 => server_get_info(reader, directory),
        22 => return Some(server_set_info(reader, caller)),
        23 => disk_enum(reader, caller),
        28 => remote_time(reader, directory),
        33 => name_validate(reader),
        39 => return Some(shares::file_security(reader, caller, directory)),
        _ => return None,
    };
    Some(answer.map(Answer::from))
}

/// NetrServerSetInfo (MS-SRVS 3.1.4.18): its fields belong to the configuration.
fn server_set_info(reader: &mut Reader<'_>, caller: &RpcCaller) -> Result<Answer, BadStub> {
    reader.optional_string()?;
    reader.u32()?;
    Ok(Answer::status(if caller.is_administrator { Win32::NOT_SUPPORTED } else { Win32::ACCESS_DENIED }))
}

/// NetrServerDiskEnum (MS-SRVS 3.1.4.19): volumes appear below one drive, as in the paths of shares.
fn disk_enum(reader: &mut Reader<'_>, caller: &RpcCaller) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let level = reader.u32()?;
    // The container, which the server fills: entries read, and their buffer.
    reader.u32()?;
    if reader.pointer()? {
        return Err(BadStub);
    }
    reader.u32()?;
    let has_resume = reader.pointer()?;
    let is_over = has_resume && reader.u32()? != 0;
    let status = match level {
        0 if caller.is_administrator => Win32::SUCCESS,
        0 => Win32::ACCESS_DENIED,
        _ => Win32::INVALID_LEVEL,
    };
    let count = u32::from(status == Win32::SUCCESS && !is_over);
    let mut out = Writer::default();
    out.u32(count);
    out.pointer_if(count > 0);
    if count > 0 {
        // A conformant and varying array, of strings that are fixed arrays of three units.
        for value in [count, 0, count, 0, 3] {
            out.u32(value);
        }
        "C:\0".encode_utf16().for_each(|unit| out.u16(unit));
    }
    out.u32(count);
    out.pointer_if(has_resume);
    if has_resume {
        out.u32(0);
    }
    out.u32(status.0);
    Ok(out.into_stub())
}

/// NetrServerGetInfo (MS-SRVS 3.1.4.17), levels 100 to 102.
fn server_get_info(reader: &mut Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let level = reader.u32()?;
    let found = if (100..=102).contains(&level) { Ok(directory.server()) } else { Err(Win32::INVALID_LEVEL) };
    Ok(answer_of_level(level, found, |out, server| put_server(out, level, &server)))
}

/// Writes SERVER_INFO_level (MS-SRVS 2.2.4.40 to 2.2.4.42).
fn put_server(out: &mut Writer, level: u32, server: &ServerEntry) {
    let ServerEntry { name, comment, version_major, version_minor, .. } = server;
    out.u32(PLATFORM_NT);
    out.pointer();
    if level >= 101 {
        out.u32(*version_major);
        out.u32(*version_minor);
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
    out.string(name);
    if level >= 101 {
        out.string(comment);
    }
    if level == 102 {
        out.string("C:\\");
    }
}

/// NetrRemoteTOD (MS-SRVS 3.1.4.21): TIME_OF_DAY_INFO in UTC.
fn remote_time(reader: &mut Reader<'_>, directory: &dyn Directory) -> Result<Vec<u8>, BadStub> {
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
fn name_validate(reader: &mut Reader<'_>) -> Result<Vec<u8>, BadStub> {
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
