//! The last step of a CREATE: the open is made.

use super::access;
use super::caching::CacheAsked;
use super::durable::{durable_for, is_persistent};
use super::information::describe;
use super::open::{FixedTimes, LeaseName, LinkName, Open, WriteTime, places_of};
use super::options;
use super::parts::Parts;
use super::path::StoredPath;
use super::replays::create_guid;
use crate::backend::{CacheRequest, Create, CreateAction, Created, LeaseState, OpenId, ShareOptions};
use crate::fs::StreamId;
use std::sync::Arc;
use types::{NtStatus, attribute};

/// Opens of one file that outlive the server; others are durable at best. A rename records all of them at once, which has to fit a batch of
/// the journal.
const PERSISTENT_MAX: usize = 1024;

/// What a create has come to, before it becomes an open.
pub struct Opening {
    pub stream: StreamId,
    pub directory: bool,
    pub path: StoredPath,
    pub link: Option<LinkName>,
    pub access: u32,
    pub action: CreateAction,
}

/// Makes the open. Cannot fail: everything was checked and done.
pub fn establish(parts: &mut Parts<'_>, create: &Create, opening: Opening) -> Created {
    let Opening { stream, directory, path, link, access, action } = opening;
    let caller = &create.caller;
    let asked = CacheAsked {
        stream,
        directory,
        locked: parts.locks.is_locked(stream),
        client: caller.client,
        request: create.cache,
        most: most_of(caller.share, directory),
    };
    let (holder, cache) = parts.caching.grant(parts.opens, &asked);
    let handle_cached = parts.caching.state_of(&holder).contains(LeaseState::HANDLE);
    let caches = parts.caching.caches(&holder);
    let persistent = is_persistent(create)
        && parts.opens.file(stream.file).is_none_or(|node| node.opens.persistent_len() < PERSISTENT_MAX);
    let open = Open {
        stream,
        place: 0,
        places: places_of(path.whole().len()),
        directory,
        path: path.whole().into(),
        link,
        root: caller.root,
        session: caller.session,
        client: caller.client,
        token: Arc::clone(&caller.token),
        share: caller.share,
        standing: caller.standing.clone(),
        granted_by_share: caller.share_access,
        access,
        share_access: create.share_access,
        options: create.options,
        holder,
        parent_key: parent_lease(create).map(|name| name.1),
        delete_on_close: create.options & options::DELETE_ON_CLOSE != 0,
        renamed: false,
        durable: durable_for(parts.durable_timeouts, create, persistent || handle_cached && !directory),
        persistent,
        token_digest: None,
        create_guid: create_guid(create),
        app_instance: create.app_instance,
        disconnected: None,
        closing: false,
        used: false,
        fixed_times: FixedTimes::empty(),
        sequences: None,
        write_time: WriteTime::default(),
        dirty: action != CreateAction::Opened,
        flushes: 0,
        modified: false,
        listing: None,
        create_action: action,
    };
    let id = parts.opens.insert(open, caches);
    parts.replays.register(create, id);
    note_kept(parts, create, id, persistent);
    let mut created = describe(parts.fs, parts.opens, id, cache, path.below_root().into());
    if create.query_maximal_access {
        created.maximal_access = Some(access::maximal(parts, id));
    }
    created
}

/// Has a new open recorded, and its lease, if they outlive the server.
fn note_kept(parts: &mut Parts<'_>, create: &Create, id: OpenId, persistent: bool) {
    if persistent {
        parts.agenda.records.open(id);
    }
    if let Some(name) = lease_name(create) {
        match persistent {
            true => parts.caching.keep(parts.agenda, name),
            // It may have more than before.
            false => parts.caching.note_lease(parts.agenda, name),
        }
    }
}

/// Returns the most that a share's opens may cache (MS-SMB2 3.3.5.9).
fn most_of(share: ShareOptions, directory: bool) -> LeaseState {
    match share {
        ShareOptions { no_caching: true, .. } => LeaseState::empty(),
        ShareOptions { scale_out: true, .. } if directory => LeaseState::empty(),
        ShareOptions { scale_out: true, .. } => LeaseState::READ,
        _ => LeaseState::all(),
    }
}

/// Returns the name of the lease that a create asks for.
pub fn lease_name(create: &Create) -> Option<LeaseName> {
    match &create.cache {
        CacheRequest::Lease(lease) => Some((create.caller.client, lease.key)),
        CacheRequest::Oplock(_) => None,
    }
}

/// Returns the name of its client's lease on the directory.
pub fn parent_lease(create: &Create) -> Option<LeaseName> {
    match &create.cache {
        CacheRequest::Lease(lease) => Some((create.caller.client, lease.version_2?.parent_key?)),
        CacheRequest::Oplock(_) => None,
    }
}

/// Returns the attributes that a file gets of those a client names.
///
/// # Errors
/// INVALID_PARAMETER for a temporary directory.
pub fn settable(named: u32, directory: bool) -> Result<u32, NtStatus> {
    if directory && named & attribute::TEMPORARY != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(named & !(attribute::NORMAL | attribute::DIRECTORY))
}
