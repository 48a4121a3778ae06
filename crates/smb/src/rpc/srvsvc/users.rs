//! Sessions, their tree connects and their open files (MS-SRVS 3.1.4.1 to 3.1.4.6), for administrators.

use super::super::enumeration::{Enumeration, answer_of_level};
use super::super::ndr::{BadStub, Reader, Writer};
use super::super::{
    Answer, ConnectionEntry, Directory, FileEntry, Files, RpcCaller, RpcChange, SessionEntry, Win32,
};

/// SESS_GUEST
const SESSION_GUEST: u32 = 1;

/// Whether a name that the client may have given is the one of an entry.
fn is_wanted(filter: Option<&String>, value: &str) -> bool {
    filter.is_none_or(|name| name.trim_start_matches('\\').eq_ignore_ascii_case(value))
}

/// NetrSessionEnum (MS-SRVS 3.1.4.5), levels 0, 1, 2, 10 and 502, for administrators.
pub(super) fn session_enum(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let client = reader.optional_string()?.filter(|name| !name.is_empty());
    let user = reader.optional_string()?.filter(|name| !name.is_empty());
    let wanted = Enumeration::read(reader)?;
    let level = wanted.level;
    if !matches!(level, 0 | 1 | 2 | 10 | 502) {
        return Ok(wanted.refuse(Win32::INVALID_LEVEL));
    }
    if !caller.is_administrator {
        return Ok(wanted.refuse(Win32::ACCESS_DENIED));
    }
    let sessions: Vec<SessionEntry> = directory
        .sessions()
        .into_iter()
        .filter(|session| {
            is_wanted(client.as_ref(), &session.client) && is_wanted(user.as_ref(), &session.user)
        })
        .collect();
    Ok(wanted.answer(
        &sessions,
        |out, session| session_fixed(out, level, session),
        |out, session| session_targets(out, level, session),
    ))
}

/// Writes the fixed part of SESSION_INFO_level (MS-SRVS 2.2.4.10 to 2.2.4.14).
fn session_fixed(out: &mut Writer, level: u32, session: &SessionEntry) {
    out.pointer();
    if level == 0 {
        return;
    }
    out.pointer();
    if level != 10 {
        out.u32(session.open_files);
    }
    out.u32(session.active_s);
    out.u32(session.idle_s);
    if level != 10 {
        out.u32(if session.is_guest { SESSION_GUEST } else { 0 });
    }
    if matches!(level, 2 | 502) {
        // The client's kind of system, which SMB2 does not carry.
        out.pointer();
    }
    if level == 502 {
        // The transport's name.
        out.pointer();
    }
}

/// Writes what the pointers of [`session_fixed`] point to.
fn session_targets(out: &mut Writer, level: u32, session: &SessionEntry) {
    out.string(&session.client);
    if level != 0 {
        out.string(&session.user);
    }
    if matches!(level, 2 | 502) {
        out.string("");
    }
    if level == 502 {
        out.string("");
    }
}

/// NetrSessionDel (MS-SRVS 3.1.4.6): ends the sessions of a client, of a user, or of a user at a client.
pub(super) fn session_delete(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Answer, BadStub> {
    reader.optional_string()?;
    let client = reader.optional_string()?.filter(|name| !name.is_empty());
    let user = reader.optional_string()?.filter(|name| !name.is_empty());
    if !caller.is_administrator {
        return Ok(Answer::status(Win32::ACCESS_DENIED));
    }
    if client.is_none() && user.is_none() {
        return Ok(Answer::status(Win32::INVALID_PARAMETER));
    }
    let sessions = directory.sessions().into_iter();
    let meant = sessions.filter(|session| {
        is_wanted(client.as_ref(), &session.client) && is_wanted(user.as_ref(), &session.user)
    });
    let sessions: Vec<u64> = meant.map(|session| session.id).collect();
    if sessions.is_empty() {
        let is_client = client.is_some();
        return Ok(Answer::status(if is_client { Win32::CLIENT_NOT_FOUND } else { Win32::USER_NOT_FOUND }));
    }
    Ok(Answer::Later {
        change: RpcChange::CloseSessions { sessions },
        before_status: Vec::new(),
        not_found: Win32::CLIENT_NOT_FOUND,
    })
}

/// NetrConnectionEnum (MS-SRVS 3.1.4.1), levels 0 and 1: tree connects to a share, or of a client.
pub(super) fn connection_enum(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let qualifier = reader.optional_string()?.filter(|name| !name.is_empty());
    let wanted = Enumeration::read(reader)?;
    let level = wanted.level;
    if level > 1 {
        return Ok(wanted.refuse(Win32::INVALID_LEVEL));
    }
    if !caller.is_administrator {
        return Ok(wanted.refuse(Win32::ACCESS_DENIED));
    }
    let Some(qualifier) = qualifier else { return Ok(wanted.refuse(Win32::INVALID_PARAMETER)) };
    let is_share = directory.shares().iter().any(|share| share.name.eq_ignore_ascii_case(&qualifier));
    if !is_share && !qualifier.starts_with("\\\\") {
        return Ok(wanted.refuse(Win32::NET_NAME_NOT_FOUND));
    }
    let connections: Vec<ConnectionEntry> = directory
        .connections()
        .into_iter()
        .filter(|connection| {
            let value = if is_share { &connection.share } else { &connection.client };
            is_wanted(Some(&qualifier), value)
        })
        .collect();
    Ok(wanted.answer(
        &connections,
        |out, connection| {
            out.u32(connection.id);
            if level == 1 {
                out.u32(if connection.is_pipe { 3 } else { 0 });
                out.u32(connection.open_files);
                out.u32(1);
                out.u32(connection.active_s);
                out.pointer();
                out.pointer();
            }
        },
        |out, connection| {
            if level == 1 {
                out.string(&connection.user);
                // The other side of the question: clients of a share, or shares of a client.
                out.string(if is_share { &connection.client } else { &connection.share });
            }
        },
    ))
}

/// Writes the fixed part of FILE_INFO_level (MS-SRVS 2.2.4.6, 2.2.4.7).
fn file_fixed(out: &mut Writer, level: u32, file: &FileEntry) {
    out.u32(file.id);
    if level == 3 {
        out.u32(file.permissions);
        out.u32(file.locks);
        out.pointer();
        out.pointer();
    }
}

fn file_targets(out: &mut Writer, level: u32, file: &FileEntry) {
    if level == 3 {
        out.string(&file.path);
        out.string(&file.user);
    }
}

/// NetrFileEnum (MS-SRVS 3.1.4.2), levels 2 and 3: files below a path, or of a user.
pub(super) fn file_enum(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let base = reader.optional_string()?.filter(|path| !path.is_empty()).map(|path| path.to_lowercase());
    let user = reader.optional_string()?.filter(|name| !name.is_empty());
    let wanted = Enumeration::read(reader)?;
    let level = wanted.level;
    if !matches!(level, 2 | 3) {
        return Ok(wanted.refuse(Win32::INVALID_LEVEL));
    }
    if !caller.is_administrator {
        return Ok(wanted.refuse(Win32::ACCESS_DENIED));
    }
    let from = wanted.resume.unwrap_or(0);
    let Files { list, more_at } = directory.files(from);
    let meant: Vec<FileEntry> = list
        .into_iter()
        .filter(|file| {
            let is_below = base.as_ref().is_none_or(|base| file.path.to_lowercase().starts_with(base));
            is_below && is_wanted(user.as_ref(), &file.user)
        })
        .collect();
    let resume_at = |shown: usize| meant.get(shown).map_or(from, |file| file.place);
    Ok(wanted.answer_part(
        &meant,
        meant.len(),
        more_at,
        resume_at,
        |out, file| file_fixed(out, level, file),
        |out, file| file_targets(out, level, file),
    ))
}

/// NetrFileGetInfo (MS-SRVS 3.1.4.3), levels 2 and 3.
pub(super) fn file_get_info(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Vec<u8>, BadStub> {
    reader.optional_string()?;
    let id = reader.u32()?;
    let level = reader.u32()?;
    let found = if !matches!(level, 2 | 3) {
        Err(Win32::INVALID_LEVEL)
    } else if !caller.is_administrator {
        Err(Win32::ACCESS_DENIED)
    } else {
        directory.file(id).ok_or(Win32::FILE_ID_NOT_FOUND)
    };
    Ok(answer_of_level(level, found, |out, file| {
        file_fixed(out, level, &file);
        file_targets(out, level, &file);
    }))
}

/// NetrFileClose (MS-SRVS 3.1.4.4).
pub(super) fn file_close(
    reader: &mut Reader<'_>,
    caller: &RpcCaller,
    directory: &dyn Directory,
) -> Result<Answer, BadStub> {
    reader.optional_string()?;
    let id = reader.u32()?;
    if !caller.is_administrator {
        return Ok(Answer::status(Win32::ACCESS_DENIED));
    }
    Ok(match directory.file(id) {
        None => Answer::status(Win32::FILE_ID_NOT_FOUND),
        Some(file) => Answer::Later {
            change: RpcChange::CloseFile { open: file.open },
            before_status: Vec::new(),
            not_found: Win32::FILE_ID_NOT_FOUND,
        },
    })
}
