//! Durable handles, their reconnection, replayed creates, application instances (MS-SMB2 3.3.5.9.6 to 3.3.5.9.13).

use super::caching::{level_of, state_of};
use super::grant::{Grant, Needs};
use super::opens::{CacheHolder, Durable, Open};
use super::tasks::{Attempt, Work};
use super::{Halt, Service, Timer};
use crate::backend::{
    CacheGrant, CacheRequest, Caller, Create, CreateAction, DurableRequest, Guid, OpenId, OplockLevel,
    Reconnect, Reply,
};
use crate::fs::{Attributes, names_equal};
use crate::security::{self, rights};
use smallvec::SmallVec;
use types::NtStatus;

/// What a create GUID stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateState {
    /// A create that has not been answered.
    Pending,
    Open(OpenId),
}

/// The GUID by which a create can be replayed.
pub(super) fn create_guid(create: &Create) -> Option<Guid> {
    match create.durable {
        Some(DurableRequest::Version2 { create_guid, .. }) => Some(create_guid),
        _ => None,
    }
}

impl Service {
    /// Looks whether this create happened already, and holds its GUID from here on.
    ///
    /// # Errors
    /// DUPLICATE_OBJECTID where the GUID is taken and this is no replay; FILE_NOT_AVAILABLE for a replay of what is still going on;
    /// ACCESS_DENIED where it is another's.
    pub(super) fn replayed(&mut self, create: &Create, attempt: &mut Attempt) -> Result<Option<Reply>, Halt> {
        let Some(guid) = create_guid(create).filter(|_| !attempt.guid_held) else { return Ok(None) };
        let name = (create.caller.client, guid);
        // An open that was used since is no replay's business any more: its GUID is free.
        let found = self.creates.get(&name).copied().filter(|found| match found {
            CreateState::Pending => true,
            CreateState::Open(id) => self.opens.get(*id).is_some_and(|open| !open.used),
        });
        let Some(found) = found else {
            self.creates.insert(name, CreateState::Pending);
            attempt.guid_held = true;
            return Ok(None);
        };
        if !create.replay {
            return Err(NtStatus::DUPLICATE_OBJECTID.into());
        }
        let CreateState::Open(id) = found else { return Err(NtStatus::FILE_NOT_AVAILABLE.into()) };
        let open = self.opens.get(id).ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
        if open.session != create.caller.session
            || open.token.user != create.caller.token.user
            || open.root != create.caller.root
        {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        Grant::of(&create.caller).check(Needs::All(open.access))?;
        let same_lease = match (&open.holder, &create.cache) {
            (CacheHolder::Lease(held), CacheRequest::Lease(asked)) => held.1 == asked.key,
            (CacheHolder::Lease(_), _) | (CacheHolder::Oplock(_), CacheRequest::Lease(_)) => false,
            _ => true,
        };
        if !same_lease {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        let mut grant = self.current_grant(id);
        let mut durable = true;
        if let (CacheGrant::Oplock(held), CacheRequest::Oplock(asked)) = (&mut grant, create.cache) {
            // The answer is no better than what is asked for this time.
            *held = level_of(state_of(*held) & state_of(asked));
            durable = asked == OplockLevel::Batch;
        }
        let path = self.seen_path(id)?;
        let mut created = self.describe(id, grant, path);
        created.durable = created.durable.filter(|_| durable);
        Ok(Some(Reply::Created(Box::new(created))))
    }

    /// A create ended without an open: its GUID is free again.
    pub(super) fn release_guid(&mut self, work: &Work) {
        if let Work::Create(create, attempt) = work
            && attempt.guid_held
            && let Some(guid) = create_guid(create)
        {
            let name = (create.caller.client, guid);
            if self.creates.get(&name) == Some(&CreateState::Pending) {
                self.creates.remove(&name);
            }
        }
    }

    /// Notes a new open under the names by which it can be found again.
    pub(super) fn register(&mut self, id: OpenId, create: &Create) {
        if let Some(guid) = create_guid(create) {
            self.creates.insert((create.caller.client, guid), CreateState::Open(id));
        }
    }

    /// How a new open outlives its connection, if it asked to and caches handles.
    pub(super) fn durable_for(&self, create: &Create, handle_cached: bool) -> Option<Durable> {
        let request = create.durable.filter(|_| handle_cached)?;
        let asked = match request {
            DurableRequest::Version1 => None,
            DurableRequest::Version2 { timeout, .. } => timeout.filter(|timeout| !timeout.is_zero()),
        };
        let timeout = asked.unwrap_or(self.config.durable_timeout).min(self.config.durable_timeout_max);
        Some(Durable { request, timeout })
    }

    /// The application went to another client: what the same user has open there of the same file, through the same share, is
    /// closed first (MS-SMB2 3.3.5.9.13). Call when the create has passed its access check.
    ///
    /// # Errors
    /// FILE_FORCED_CLOSED if what is open has a version that this create's does not exceed.
    pub(super) fn replace_instance(&mut self, create: &Create, file: &Attributes) -> Result<(), Halt> {
        let Some(asked) = create.app_instance else { return Ok(()) };
        let caller = &create.caller;
        let Some(node) = self.files.get(&file.file) else { return Ok(()) };
        let mut replaced = SmallVec::<[OpenId; 2]>::new();
        for id in node.opens.iter() {
            let Some(open) = self.opens.get(id) else { continue };
            let Some(held) = open.app_instance.filter(|held| held.id == asked.id) else { continue };
            // The identifier is no secret: it says which of a user's own opens are meant, and gives no right over another's.
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
        let descriptor = self.descriptor(file)?;
        let maximal = security::maximal_access(&descriptor, &caller.token) & caller.share_access;
        if maximal & rights::FILE_GENERIC_READ != rights::FILE_GENERIC_READ {
            return Ok(());
        }
        for id in replaced {
            self.revoke(id);
        }
        Err(Halt::Closing(file.file))
    }

    /// Takes up a durable open again.
    ///
    /// # Errors
    /// OBJECT_NAME_NOT_FOUND where there is none that fits; ACCESS_DENIED where it is another user's; INVALID_PARAMETER where it is of
    /// another file.
    pub(super) fn reconnect(&mut self, request: &Reconnect) -> Result<Reply, Halt> {
        let missing = NtStatus::OBJECT_NAME_NOT_FOUND;
        self.opens.get(request.open).ok_or(missing)?;
        let path = self.seen_path(request.open)?;
        let open = self.opens.get(request.open).ok_or(missing)?;
        let durable = open.durable.filter(|_| !open.closing).ok_or(missing)?;
        let Some(at) = open.disconnected else { return Err(missing.into()) };
        let guid_fits = match durable.request {
            // An open without a GUID has one of zeroes.
            DurableRequest::Version1 => request.create_guid.is_none_or(|guid| guid == Guid::default()),
            // Version 1's way to reconnect knows no GUID, and takes up either.
            DurableRequest::Version2 { create_guid, .. } => {
                request.create_guid.is_none_or(|guid| guid == create_guid)
            }
        };
        // A lease belongs to its client, an oplock to whoever knows the handle.
        let leased = matches!(open.holder, CacheHolder::Lease(_));
        let elsewhere = open.root != request.caller.root;
        if !guid_fits || leased && open.client != request.caller.client || elsewhere || request.persistent {
            return Err(missing.into());
        }
        match (&open.holder, &request.lease) {
            (CacheHolder::Lease(held), Some(lease)) => {
                if held.1 != lease.key {
                    return Err(missing.into());
                }
                if self
                    .leases
                    .get(held)
                    .is_some_and(|held| held.version_2.is_some() != lease.version_2.is_some())
                {
                    return Err(missing.into());
                }
                if !names_equal(&path, &request.path) {
                    return Err(NtStatus::INVALID_PARAMETER.into());
                }
            }
            (CacheHolder::Lease(_), None) | (_, Some(_)) => return Err(missing.into()),
            _ => {}
        }
        if open.token.user != request.caller.token.user {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        if !may_take_up(open, &request.caller) {
            return Err(missing.into());
        }
        self.timers.remove(&(at, Timer::Disconnected(request.open)));
        let node = self.files.get(&open.stream.file).and_then(|node| node.streams.get(&open.stream.index));
        let locks = node.map_or(0, |node| node.locks.count(request.open));
        self.locks_taken.hand_over(open.session, request.caller.session, locks);
        if let Some(open) = self.opens.get_mut(request.open) {
            self.owners.reconnecting(request.open, open, request.caller.session);
            open.disconnected = None;
            open.session = request.caller.session;
            open.client = request.caller.client;
            open.token = request.caller.token.clone();
            open.share = request.caller.share;
            open.standing = request.caller.standing.clone();
            open.granted_by_share = request.caller.share_access;
        }
        let grant: CacheGrant = self.current_grant(request.open);
        let mut created = self.describe(request.open, grant, path);
        created.action = CreateAction::Opened;
        Ok(Reply::Created(Box::new(created)))
    }
}

/// Whether today's tree connect of the same user allows what the open was granted: it comes through the same share, which gives as
/// much, to a token that has lost nothing.
fn may_take_up(open: &Open, caller: &Caller) -> bool {
    open.standing.share() == caller.standing.share()
        && Grant::of(caller).check(Needs::All(open.access)).is_ok()
        && caller.token.has_all_of(&open.token)
}
