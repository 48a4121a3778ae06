//! The last step of a CREATE: the open is made.

use super::access;
use super::caching::CacheAsked;
use super::durable::{durable_for, is_persistent};
use super::information::describe;
use super::open::{LeaseName, LinkName, Open, ParentLease, WriteTime, places_of};
use super::open_record::{FixedTimes, LeaseRecord};
use super::options;
use super::parts::Parts;
use super::path::StoredPath;
use super::replays::create_guid;
use crate::backend::{CacheRequest, Create, CreateAction, Created, LeaseState, OpenId};
use crate::fs::StreamId;
use std::sync::Arc;
use types::{NtStatus, attribute};

/// Result of a create, before it becomes an open.
pub struct PreparedOpen {
    pub stream: StreamId,
    pub directory: bool,
    pub path: StoredPath,
    pub link: Option<LinkName>,
    pub access: u32,
    pub action: CreateAction,
}

/// Makes the open. Cannot fail: everything was checked and done.
pub fn establish(parts: &mut Parts<'_>, create: &Create, opening: PreparedOpen) -> Created {
    let PreparedOpen { stream, directory, path, link, access, action } = opening;
    let caller = &create.caller;
    let kept_before = lease_name(create).and_then(|name| parts.caching.record_of(name));
    let asked = CacheAsked {
        stream,
        directory,
        locked: parts.locks.is_locked(stream),
        client: caller.client,
        user: &caller.token.user,
        request: create.cache,
        most: match kept_before {
            // The lease gets no more than can be recorded.
            Some(kept) if !parts.fs.takes_changes() => kept.state & caller.share.most_cached(directory),
            _ => caller.share.most_cached(directory),
        },
    };
    let (holder, cache) = parts.caching.grant(parts.opens, &asked);
    let handle_cached = parts.caching.state_of(&holder).contains(LeaseState::HANDLE);
    let caches = parts.caching.caches(&holder);
    let persistent = is_persistent(create) && parts.opens.may_persist(stream.file, &caller.token.user);
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
        told: false,
        parent_key: parent_lease(create).map(|lease| lease.name.1),
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
    note_kept(parts, create, id, kept_before);
    let mut created = describe(parts.fs, parts.opens, id, cache, path.below_root().into());
    if create.query_maximal_access {
        created.maximal_access = Some(access::maximal(parts, id));
    }
    created
}

/// Has a new open recorded, and its lease, if they outlive the server. `kept_before`: the former record
/// of the lease.
fn note_kept(parts: &mut Parts<'_>, create: &Create, id: OpenId, kept_before: Option<LeaseRecord>) {
    let persistent = parts.opens.get(id).is_some_and(|open| open.persistent);
    if persistent {
        parts.agenda.records.open(id);
    }
    if let Some(name) = lease_name(create) {
        if persistent {
            parts.caching.keep(parts.agenda, name);
        } else if parts.caching.record_of(name) != kept_before {
            parts.agenda.records.lease(name);
        }
    }
}

/// Returns the name of a create's lease.
pub fn lease_name(create: &Create) -> Option<LeaseName> {
    match &create.cache {
        CacheRequest::Lease(lease) => Some((create.caller.client, lease.key)),
        CacheRequest::Oplock(_) => None,
    }
}

/// Returns its client's lease on the directory.
pub fn parent_lease(create: &Create) -> Option<ParentLease> {
    let CacheRequest::Lease(lease) = &create.cache else { return None };
    let name = (create.caller.client, lease.version_2?.parent_key?);
    Some(ParentLease { name, user: create.caller.token.user.clone() })
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
