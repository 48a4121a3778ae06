//! Durable handles, their reconnection, replayed creates, application instances (MS-SMB2 3.3.5.9.6 to 3.3.5.9.13).

use super::cache_state::{level_of, state_of};
use super::grant::{Grant, Needs};
use super::information::describe;
use super::open::{CacheHolder, Durable};
use super::open_record::TokenDigest;
use super::parts::{DurableTimeouts, Parts};
use super::path;
use super::roots::seen_path;
use super::short_names::ShortNames;
use super::suspend::Suspend;
use super::tasks::Attempt;
use super::walk::walk;
use crate::backend::{
    CacheGrant, CacheRequest, Caller, Create, CreateAction, DurableRequest, Guid, OpenId, OplockLevel,
    Reconnect, Reply,
};
use crate::fs::{Attributes, FileSystem, names_equal};
use crate::security::{self, rights};
use smallvec::SmallVec;
use types::NtStatus;

/// Answers the replay of a completed create; any other create holds its GUID from here on.
///
/// # Errors
/// DUPLICATE_OBJECTID if the GUID is taken and this is no replay; FILE_NOT_AVAILABLE for a replay of a
/// create still in progress; ACCESS_DENIED if the open is another caller's.
pub fn replayed(
    parts: &mut Parts<'_>,
    create: &Create,
    attempt: &mut Attempt,
) -> Result<Option<Reply>, Suspend> {
    let Some(id) = parts.replays.find(create, attempt, parts.opens)? else { return Ok(None) };
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
    // The client of an open that outlives the server may have lost its session with it.
    let other_session = open.session != create.caller.session;
    if other_session && !open.persistent
        || open.token.user != create.caller.token.user
        || open.root != create.caller.root
    {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    Grant::of(&create.caller).check(Needs::All(open.access))?;
    if other_session && !may_take_up(parts, id, &create.caller)? {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
    let same_lease = match (&open.holder, &create.cache) {
        (CacheHolder::Lease(held), CacheRequest::Lease(asked)) => held.1 == asked.key,
        (CacheHolder::Lease(_), _) | (CacheHolder::Oplock(_), CacheRequest::Lease(_)) => false,
        _ => true,
    };
    if !same_lease {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    let path = seen_path(parts.fs, open)?;
    // An open whose client still has its session may wait as well: its earlier answer was lost.
    if other_session || open.disconnected.is_some() {
        take_up(parts, id, &create.caller);
    }
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
    let mut grant = parts.caching.current_grant(&open.holder);
    let mut durable = true;
    if let (CacheGrant::Oplock(held), CacheRequest::Oplock(asked)) = (&mut grant, create.cache) {
        // The answer is no better than the request of this time.
        *held = level_of(state_of(*held) & state_of(asked));
        durable = asked == OplockLevel::Batch;
    }
    durable |= open.persistent;
    let mut created = describe(parts.fs, parts.opens, id, grant, path);
    created.durable = created.durable.filter(|_| durable);
    Ok(Some(Reply::Created(Box::new(created))))
}

/// Whether an open is to outlive the server: its client requests it, through a share that offers it
/// (MS-SMB2 3.3.5.9.10).
pub fn is_persistent(create: &Create) -> bool {
    create.caller.share.continuously_available
        && matches!(create.durable, Some(DurableRequest::Version2 { persistent: true, .. }))
}

/// Returns how a new open outlives its connection, if it asked to and `may`.
pub fn durable_for(timeouts: DurableTimeouts, create: &Create, may: bool) -> Option<Durable> {
    let request = create.durable.filter(|_| may)?;
    let asked = match request {
        DurableRequest::Version1 => None,
        DurableRequest::Version2 { timeout, .. } => timeout.filter(|timeout| !timeout.is_zero()),
    };
    Some(Durable { request, timeout: asked.unwrap_or(timeouts.usual).min(timeouts.max) })
}

/// Closes opens of an application instance that moved here from another client. Only opens of the same
/// user, of the same file and through the same share are closed (MS-SMB2 3.3.5.9.13). Call this when
/// the create has passed its access check.
///
/// # Errors
/// FILE_FORCED_CLOSED if this create's version does not exceed that of an open.
pub fn replace_instance(parts: &mut Parts<'_>, create: &Create, file: &Attributes) -> Result<(), Suspend> {
    let Some(asked) = create.app_instance else { return Ok(()) };
    let caller = &create.caller;
    let mut replaced = SmallVec::<[OpenId; 2]>::new();
    for (id, open) in parts.opens.of_file(file.file) {
        let Some(held) = open.app_instance.filter(|held| held.id == asked.id) else { continue };
        // The identifier is no secret: it selects among a user's own opens, and gives no right over
        // another's.
        if open.client == caller.client
            || open.token.user != caller.token.user
            || open.standing.share() != caller.standing.share()
        {
            continue;
        }
        if held.version.is_some() && asked.version <= held.version {
            return Err(NtStatus::FILE_FORCED_CLOSED.into());
        }
        replaced.push(id);
    }
    if replaced.is_empty() {
        return Ok(());
    }
    let descriptor = parts.descriptor(file)?;
    let maximal = security::maximal_access(&descriptor, &caller.token) & caller.share_access;
    if maximal & rights::FILE_GENERIC_READ != rights::FILE_GENERIC_READ {
        return Ok(());
    }
    for id in replaced {
        parts.opens.revoke(id, parts.agenda);
    }
    Err(Suspend::Closing(file.file))
}

/// Reconnects a durable open.
///
/// # Errors
/// OBJECT_NAME_NOT_FOUND if none fits; ACCESS_DENIED if it is another user's; INVALID_PARAMETER if it
/// is another file's. A name that no file has any more may have been the open's.
pub fn reconnect(parts: &mut Parts<'_>, request: &Reconnect) -> Result<Reply, Suspend> {
    let missing = NtStatus::OBJECT_NAME_NOT_FOUND;
    let open = parts.opens.get(request.open).ok_or(missing)?;
    let path = seen_path(parts.fs, open)?;
    let durable = open.durable.filter(|_| !open.closing).ok_or(missing)?;
    if open.disconnected.is_none() {
        return Err(missing.into());
    }
    let guid_fits = match durable.request {
        // An open without a GUID has one of zeroes.
        DurableRequest::Version1 => request.create_guid.is_none_or(|guid| guid == Guid::default()),
        // Version 1's reconnect has no GUID and fits either version.
        DurableRequest::Version2 { create_guid, .. } => {
            request.create_guid.is_none_or(|guid| guid == create_guid)
        }
    };
    // A lease or a persistent open belongs to its client; an oplock to any client of the user that knows
    // the handle.
    let bound = open.persistent || matches!(open.holder, CacheHolder::Lease(_));
    let elsewhere = open.root != request.caller.root;
    if !guid_fits
        || bound && open.client != request.caller.client
        || elsewhere
        || request.persistent != open.persistent
    {
        return Err(missing.into());
    }
    match (&open.holder, &request.lease) {
        (CacheHolder::Lease(held), Some(lease)) => {
            let same_version = |has_version_2: bool| has_version_2 == lease.version_2.is_some();
            if held.1 != lease.key || !parts.caching.has_version_2(held).is_none_or(same_version) {
                return Err(missing.into());
            }
            let fits = names_equal(&path, &request.path)
                || open.renamed && has_no_file(parts.fs, parts.names, request)?;
            if !fits {
                return Err(NtStatus::INVALID_PARAMETER.into());
            }
        }
        (CacheHolder::Lease(_), None) | (_, Some(_)) => return Err(missing.into()),
        _ => {}
    }
    if open.token.user != request.caller.token.user {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    if !may_take_up(parts, request.open, &request.caller)? {
        return Err(missing.into());
    }
    take_up(parts, request.open, &request.caller);
    let open = parts.opens.get(request.open).ok_or(missing)?;
    let grant = parts.caching.current_grant(&open.holder);
    let mut created = describe(parts.fs, parts.opens, request.open, grant, path);
    created.action = CreateAction::Opened;
    Ok(Reply::Created(Box::new(created)))
}

/// Whether no file has the name in a client's reconnect: the file was renamed, and the client does not
/// know.
fn has_no_file(fs: &mut FileSystem, names: &ShortNames, request: &Reconnect) -> Result<bool, Suspend> {
    let Ok(parsed) = path::parse(&request.path) else { return Ok(false) };
    match walk(fs, names, request.caller.root, &parsed) {
        Ok(target) => Ok(target.file.is_none()),
        Err(Suspend::Status(NtStatus::OBJECT_PATH_NOT_FOUND)) => Ok(true),
        Err(suspend) => Err(suspend),
    }
}

/// Gives an open to the session of its client.
fn take_up(parts: &mut Parts<'_>, id: OpenId, caller: &Caller) {
    let Some(open) = parts.opens.reconnect(id, caller.session, parts.agenda) else { return };
    let stream = open.stream;
    parts.locks.hand_over(id, stream, open.session, caller.session);
    parts.locks.release_writes(id, stream);
    open.session = caller.session;
    open.client = caller.client;
    open.token = caller.token.clone();
    open.token_digest = None;
    open.share = caller.share;
    open.standing = caller.standing.clone();
    open.granted_by_share = caller.share_access;
    let most = caller.share.most_cached(open.directory);
    // The open's record still has the former token.
    if open.persistent {
        parts.agenda.records.open(id);
    }
    // The share may allow its clients less caching since the server was down: caching beyond that ends.
    parts.caching.limit(parts.opens, parts.agenda, id, most);
    parts.agenda.tasks.wake(stream.file);
}

/// Whether the present tree connect of the same user allows the open's granted access: it uses the same
/// share, which grants as much, and its token has lost nothing. Of an open that outlived the server
/// only a digest of the token is known: if that changed, the file has to grant the open's access anew.
fn may_take_up(parts: &mut Parts<'_>, id: OpenId, caller: &Caller) -> Result<bool, Suspend> {
    let open = parts.opens.get(id).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    if open.standing.share() != caller.standing.share()
        || Grant::of(caller).check(Needs::All(open.access)).is_err()
    {
        return Ok(false);
    }
    let Some(digest) = open.token_digest else { return Ok(caller.token.has_all_of(&open.token)) };
    if digest == TokenDigest::of(&caller.token) {
        return Ok(true);
    }
    let (access, file) = (open.access, open.stream.file);
    let attributes = parts.fs.attributes(file)?;
    let descriptor = parts.descriptor(&attributes)?;
    Ok(access & !security::maximal_access(&descriptor, &caller.token) == 0)
}
