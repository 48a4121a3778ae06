//! CREATE: options, the way to the file, dispositions (MS-FSA 2.1.5.1, MS-SMB2 3.3.5.9).

use super::durable::{is_persistent, replayed};
use super::establish::{establish, lease_name};
use super::make_file::Making;
use super::open::places_of;
use super::open_existing::Existing;
use super::options;
use super::parts::Parts;
use super::path;
use super::suspend::{Outcome, Suspend};
use super::tasks::Attempt;
use super::walk::{meet_reparse_point, walk};
use crate::backend::{CacheRequest, Create, Disposition, OplockLevel, Reply, ShareRoot};
use crate::security::rights;
use types::NtStatus;

/// Attributes that a create may name; the rest is the file system's own, or nothing.
const VALID_ATTRIBUTES: u32 = 0x7FB7;

/// Opens or makes a file, directory or stream.
pub fn create(parts: &mut Parts<'_>, create: &mut Create, attempt: &mut Attempt) -> Result<Outcome, Suspend> {
    if lease_name(create).is_some_and(|name| parts.caching.is_anothers(name, &create.caller.token.user)) {
        // The lease belongs to another user: this open caches nothing, and breaks that lease as any other
        // open does.
        create.cache = CacheRequest::Oplock(OplockLevel::None);
    }
    let create = &*create;
    let result = open_or_make(parts, create, attempt);
    match &result {
        Ok(_) => parts.replays.finish(attempt, parts.agenda),
        Err(Suspend::Status(_) | Suspend::Symlink { .. }) => {}
        Err(_) => parts.replays.interrupt(attempt, parts.agenda),
    }
    result
}

fn open_or_make(parts: &mut Parts<'_>, create: &Create, attempt: &mut Attempt) -> Result<Outcome, Suspend> {
    if let Some(reply) = replayed(parts, create, attempt)? {
        return Ok(Outcome::Reply(reply));
    }
    check_request(create)?;
    if parts.agenda.tasks.is_full() {
        return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
    }
    if create.time_warp.is_some() {
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND.into());
    }
    let wide = path::with_backslashes(&create.path);
    let parsed = match path::parse(&wide) {
        Ok(parsed) => parsed,
        Err(status) => return Err(refusal_of_path(parts, create.caller.root, &wide, status)?.into()),
    };
    if parsed.stream.is_some() && create.options & options::DIRECTORY_FILE != 0 {
        return Err(NtStatus::NOT_A_DIRECTORY.into());
    }
    if parsed.directory_type && create.options & options::NON_DIRECTORY_FILE != 0 {
        return Err(NtStatus::OBJECT_NAME_INVALID.into());
    }
    let through = create.options & options::OPEN_REPARSE_POINT == 0;
    let target = walk(parts.fs, parts.names, create.caller.root, &parsed)?;
    let found = target.file.map(|file| file.file);
    if is_persistent(create) {
        parts.fs.ready_to_keep_opens()?;
    } else if parts.fs.takes_changes()
        && lease_name(create).is_some_and(|name| parts.caching.record_of(name).is_some())
    {
        // The lease may be granted more than is recorded.
        parts.fs.ready_to_change_opens()?;
    }
    let places = places_of(target.path_units(parsed.stream));
    parts.opens.make_room(&create.caller.token.user, places, parts.agenda)?;
    if through
        && let Some(file) = &target.file
        && file.reparse_tag != 0
    {
        let last = parsed.names().len().saturating_sub(1);
        return Err(meet_reparse_point(parts.fs, file, parsed.bytes_behind(last)));
    }
    // A try that was interrupted after it made the file continues there.
    parts.replays.give_up_made(attempt, found, parts.agenda);
    let others = found.filter(|file| attempt.made.is_none() && parts.replays.is_interrupted(*file));
    if others.is_some() {
        parts.fs.ready_to_change_opens()?;
    }
    let opening = match (target.file, attempt.made) {
        (Some(file), None) => {
            Existing { create, parsed: &parsed, target: &target, file }.run(parts, attempt)?
        }
        _ => Making::new(create, &parsed, target)?.run(parts, attempt)?,
    };
    if let Some(file) = others {
        parts.replays.spare(file, parts.agenda);
    }
    let created = establish(parts, create, opening);
    Ok(Outcome::Reply(Reply::Created(Box::new(created))))
}

fn check_request(create: &Create) -> Result<(), NtStatus> {
    let options = create.options;
    if options & options::INVALID != 0 || create.share_access & !7 != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if options & options::NOT_SUPPORTED != 0 {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    if options & options::DIRECTORY_FILE != 0 {
        let overwrites = matches!(
            create.disposition,
            Disposition::Supersede | Disposition::Overwrite | Disposition::OverwriteIf
        );
        if options & options::NON_DIRECTORY_FILE != 0 || overwrites {
            return Err(NtStatus::INVALID_PARAMETER);
        }
    }
    if create.desired_access & !rights::VALID != 0 || create.desired_access == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if create.attributes & !VALID_ATTRIBUTES != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let may_delete = rights::DELETE | rights::GENERIC_ALL | rights::MAXIMUM_ALLOWED;
    if options & options::DELETE_ON_CLOSE != 0 && create.desired_access & may_delete == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(())
}

/// Says why a path that cannot be is refused: if a name in it is empty, and the directory before that is not there, for the latter. Names
/// are examined from the root on (MS-FSA 2.1.5.1).
fn refusal_of_path(
    parts: &mut Parts<'_>,
    root: ShareRoot,
    path: &[u16],
    status: NtStatus,
) -> Result<NtStatus, Suspend> {
    let Some(parsed) = path::before_empty_name(path).and_then(|before| path::parse(before).ok()) else {
        return Ok(status);
    };
    match walk(parts.fs, parts.names, root, &parsed) {
        Ok(target) if target.file.is_some_and(|file| file.directory) => Ok(status),
        Ok(_) => Ok(NtStatus::OBJECT_PATH_NOT_FOUND),
        Err(Suspend::Status(found)) => Ok(found),
        Err(suspend) => Err(suspend),
    }
}
