//! Breaks and grants of caching: which holders to break, and which caching opens get (MS-FSA 2.1.4.12,
//! 2.1.5.17; MS-SMB2 3.3.5.9.8, 3.3.5.22).

mod acknowledgments;
mod persisted;

use super::agenda::Agenda;
use super::cache_state::{Break, CacheState, level_of, state_of};
use super::open::{CacheHolder, LeaseName, Open, ParentLease};
use super::opens::Opens;
use super::suspend::Suspend;
use super::timers::Timer;
use crate::backend::{
    CacheGrant, CacheRequest, Event, Guid, LeaseRequest, LeaseState, LeaseVersion2, OpenId, OplockLevel,
};
use crate::fs::{FileId, StreamId};
use crate::security::rights;
use smallvec::SmallVec;
use std::collections::HashMap;
use types::{Monotonic, NtStatus, Sid};

/// The rights of opens that do not disturb oplocks.
const OPLOCK_STAT: u32 = rights::SYNCHRONIZE | rights::READ_ATTRIBUTES | rights::WRITE_ATTRIBUTES;
/// The rights of opens that do not disturb leases.
const LEASE_STAT: u32 = OPLOCK_STAT | rights::READ_CONTROL;

/// Limit of opens of one file that cache; further ones are granted nothing. One write ends the caching
/// of them all: their notifications take some twenty milliseconds.
pub const CACHING_MAX: usize = 4096;

/// Whether an open of these rights leaves oplocks alone.
pub const fn is_oplock_stat(access: u32) -> bool {
    access & !OPLOCK_STAT == 0
}

/// Whether an open of these rights leaves leases alone.
pub const fn is_lease_stat(access: u32) -> bool {
    access & !LEASE_STAT == 0
}

/// Returns whether an open of these rights disturbs the oplocks, and whether it disturbs the leases, that others have on the file.
pub const fn disturbs(access: u32) -> (bool, bool) {
    (!is_oplock_stat(access), !is_lease_stat(access))
}

/// Demand of an operation on the holders of a stream.
#[derive(Debug, Clone, Copy)]
pub struct BreakRequest {
    pub stream: StreamId,
    /// The requester's lease, which it does not break.
    pub by_lease: Option<LeaseName>,
    /// The requesting open, if its own oplock stays.
    pub by_open: Option<OpenId>,
    /// The state that holders may keep.
    pub keep: LeaseState,
    /// The states whose holders the operation has to wait for.
    pub wait_for: LeaseState,
    pub oplocks: bool,
    pub leases: bool,
    /// Whether the operation waits for any break in progress, as one does that has waited before.
    pub wait_for_breaking: bool,
}

impl BreakRequest {
    /// Requests that leases release handles without an open of an application.
    pub fn of_handles(stream: StreamId) -> Self {
        Self {
            stream,
            by_lease: None,
            by_open: None,
            keep: !LeaseState::HANDLE,
            wait_for: LeaseState::HANDLE,
            oplocks: false,
            leases: true,
            wait_for_breaking: true,
        }
    }
}

/// Caching requested by a new open.
#[derive(Debug, Clone, Copy)]
pub struct CacheAsked<'a> {
    pub stream: StreamId,
    pub directory: bool,
    /// Whether somebody has byte-range locks on the stream.
    pub locked: bool,
    pub client: Guid,
    pub user: &'a Sid,
    pub request: CacheRequest,
    /// The most that the share grants.
    pub most: LeaseState,
}

#[derive(Debug)]
struct Lease {
    stream: StreamId,
    /// The user of all its opens; none between the lease's recovery and that of its first open.
    user: Option<Sid>,
    caching: CacheState,
    /// Counts changes of state (version 2).
    epoch: u16,
    version_2: Option<LeaseVersion2>,
    opens: u32,
    /// Those of them that outlive the server, as the lease then does.
    persistent_opens: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Oplock(OpenId),
    Lease(LeaseName),
}

/// One holder on a stream.
struct Held {
    holder: Holder,
    /// Opens of the holder on the stream.
    opens: SmallVec<[OpenId; 1]>,
    /// Whether all of their clients are disconnected, or all are being closed.
    away: bool,
    /// Whether the volume keeps one of the opens for its client to return.
    kept: bool,
}

/// Lists the holders that cache something of the stream, in the order of their oldest opens.
fn holders(opens: &Opens, stream: StreamId) -> Vec<Held> {
    let mut holders: Vec<Held> = Vec::new();
    let mut by_lease: HashMap<LeaseName, usize> = HashMap::new();
    for (id, open) in caching_opens(opens, stream) {
        let away = open.disconnected.is_some() || open.closing;
        let kept = open.awaits_client();
        let holder = match open.holder {
            CacheHolder::None => continue,
            CacheHolder::Oplock(_) => Holder::Oplock(id),
            CacheHolder::Lease(name) => {
                if let Some(at) = by_lease.get(&name) {
                    holders[*at].opens.push(id);
                    holders[*at].away &= away;
                    holders[*at].kept |= kept;
                    continue;
                }
                by_lease.insert(name, holders.len());
                Holder::Lease(name)
            }
        };
        holders.push(Held { holder, opens: SmallVec::from_iter([id]), away, kept });
    }
    holders
}

/// Lists the opens of a stream that may cache something.
fn caching_opens(opens: &Opens, stream: StreamId) -> impl Iterator<Item = (OpenId, &Open)> {
    let ids = opens.file(stream.file).into_iter().flat_map(|node| node.opens.caching());
    ids.filter_map(move |id| Some((id, opens.get(id).filter(|open| open.stream == stream)?)))
}

/// Stops examining an open for others' breaks once its oplock is gone.
fn note_caching(opens: &mut Opens, id: OpenId) {
    let Some(open) = opens.get(id) else { return };
    let is_gone = match &open.holder {
        CacheHolder::None => true,
        CacheHolder::Oplock(caching) => caching.state().is_empty() && !caching.is_breaking(),
        CacheHolder::Lease(_) => false,
    };
    let (file, place) = (open.stream.file, open.place);
    if is_gone && let Some(node) = opens.file_mut(file) {
        node.opens.stop_caching(place);
    }
}

/// The leases; the opens hold the oplocks.
///
/// Invariant: a lease exists exactly while an open has it, and counts its opens. Each open that caches
/// something is listed as such with its file. A holder whose break takes more than READ keeps its state
/// until it acknowledges or times out; operations waiting for that are woken then, and when the
/// holder's opens are closed.
#[derive(Debug, Default)]
pub struct Caching {
    leases: HashMap<LeaseName, Lease>,
}

impl Caching {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    fn state_mut<'a>(&'a mut self, opens: &'a mut Opens, holder: Holder) -> Option<&'a mut CacheState> {
        match holder {
            Holder::Oplock(id) => match &mut opens.get_mut(id)?.holder {
                CacheHolder::Oplock(caching) => Some(caching),
                _ => None,
            },
            Holder::Lease(name) => self.leases.get_mut(&name).map(|lease| &mut lease.caching),
        }
    }

    /// Breaks holders' caching. Returns whether the requesting operation has to wait.
    ///
    /// # Errors
    /// [`Suspend::Closing`] if a holder's client was disconnected: its opens are being closed.
    /// FILE_NOT_AVAILABLE if the client may return for them, and may have written its cached data.
    pub fn ask(
        &mut self,
        opens: &mut Opens,
        agenda: &mut Agenda,
        request: &BreakRequest,
    ) -> Result<bool, Suspend> {
        let mut wait = false;
        let mut removed = false;
        let looked_at = opens.file(request.stream.file).map_or(0, |node| node.opens.caching_len());
        agenda.turn.spend(u32::try_from(looked_at).unwrap_or(u32::MAX));
        for Held { holder, opens: held, away, kept } in holders(opens, request.stream) {
            match holder {
                Holder::Oplock(id) if !request.oplocks || request.by_open == Some(id) => continue,
                Holder::Lease(name) if !request.leases || request.by_lease == Some(name) => continue,
                _ => {}
            }
            let keep = match holder {
                // Oplocks go down to level II or nothing.
                Holder::Oplock(_) => request.keep & LeaseState::READ,
                Holder::Lease(_) => request.keep,
            };
            let Some(caching) = self.state_mut(opens, holder) else { continue };
            let (state, breaking) = (caching.state(), caching.is_breaking());
            let untouched = request.keep.contains(state);
            if untouched {
                wait |= breaking;
                continue;
            }
            if away && kept {
                if state.intersects(request.wait_for) {
                    return Err(NtStatus::FILE_NOT_AVAILABLE.into());
                }
                self.strip(opens, agenda, holder, keep);
                continue;
            }
            if away {
                removed = true;
                for id in held {
                    opens.revoke(id, agenda);
                }
                continue;
            }
            if let Holder::Oplock(id) = holder
                && opens.get(id).is_some_and(|open| !open.told)
            {
                // The client has cached nothing yet, and could not match such a break to an open: the answer
                // will have the rest.
                self.strip(opens, agenda, holder, keep);
                continue;
            }
            self.break_holder(opens, agenda, holder, keep);
            wait |= state.intersects(request.wait_for);
            wait |= breaking && request.wait_for_breaking;
        }
        if removed && !wait {
            return Err(Suspend::Closing(request.stream.file));
        }
        Ok(wait)
    }

    /// Lowers the state of a disconnected holder: its client learns of that when it returns.
    fn strip(&mut self, opens: &mut Opens, agenda: &mut Agenda, holder: Holder, keep: LeaseState) {
        let Some(caching) = self.state_mut(opens, holder) else { return };
        *caching = CacheState::new(normal(caching.state() & keep));
        self.changed(opens, agenda, holder);
    }

    /// Counts a change of a holder's caching, and records it if it outlives the server.
    fn changed(&mut self, opens: &mut Opens, agenda: &mut Agenda, holder: Holder) {
        match holder {
            Holder::Oplock(id) => {
                note_caching(opens, id);
                if opens.get(id).is_some_and(|open| open.persistent) {
                    agenda.records.open(id);
                }
            }
            Holder::Lease(name) => {
                if let Some(lease) = self.leases.get_mut(&name) {
                    lease.epoch = lease.epoch.wrapping_add(1);
                }
                self.note_lease(agenda, name);
            }
        }
    }

    /// Has a lease recorded, if it outlives the server.
    pub fn note_lease(&self, agenda: &mut Agenda, name: LeaseName) {
        if self.leases.get(&name).is_some_and(|lease| lease.persistent_opens > 0) {
            agenda.records.lease(name);
        }
    }

    fn break_holder(&mut self, opens: &mut Opens, agenda: &mut Agenda, holder: Holder, keep: LeaseState) {
        let Some(caching) = self.state_mut(opens, holder) else { return };
        let Some(step) = caching.break_to(keep, agenda.clock.now()) else { return };
        let deadline = caching.deadline();
        // The steps of one break share an epoch.
        self.changed(opens, agenda, holder);
        self.tell(opens, agenda, holder, step, deadline);
    }

    fn tell(
        &self,
        opens: &Opens,
        agenda: &mut Agenda,
        holder: Holder,
        step: Break,
        deadline: Option<Monotonic>,
    ) {
        match holder {
            Holder::Oplock(open) => {
                let Some(session) = opens.get(open).map(|open| open.session) else { return };
                agenda.events.push(Event::BreakOplock { open, session, to: level_of(step.to) });
                if let Some(at) = deadline {
                    agenda.timers.set(at, Timer::Oplock(open));
                }
            }
            Holder::Lease(name) => {
                let Some(lease) = self.leases.get(&name) else { return };
                let epoch = if lease.version_2.is_some() { lease.epoch } else { 0 };
                let (from, to, acknowledge) = (step.from, step.to, step.acknowledge);
                let (client, key) = name;
                agenda.events.push(Event::BreakLease { client, key, from, to, acknowledge, epoch });
                if let Some(at) = deadline {
                    agenda.timers.set(at, Timer::Lease(name));
                }
            }
        }
    }

    /// Breaks others' caching after an open has changed data of its stream: their copies are not good any more. Nothing waits for it.
    pub fn contend(&mut self, opens: &mut Opens, agenda: &mut Agenda, by: OpenId) {
        let Some(open) = opens.get(by) else { return };
        let stream = open.stream;
        let (by_lease, by_open) = match &open.holder {
            CacheHolder::Lease(name) => (Some(*name), None),
            // A level II oplock is broken by its own holder's writes as well.
            CacheHolder::Oplock(caching) if caching.state().contains(LeaseState::WRITE) => return,
            _ => (None, None),
        };
        let alone = opens.file(stream.file).is_none_or(|node| node.opens.len() <= 1);
        if alone && !matches!(open.holder, CacheHolder::Oplock(_)) {
            return;
        }
        let request = BreakRequest {
            stream,
            by_lease,
            by_open,
            keep: LeaseState::empty(),
            wait_for: LeaseState::empty(),
            oplocks: true,
            leases: true,
            wait_for_breaking: false,
        };
        // Opens that were away are closed by themselves.
        let _ = self.ask(opens, agenda, &request);
    }

    /// Breaks caching of a directory whose entries changed: copies of its listing are stale, except under
    /// `by`, the lease on it of the client that changed them.
    pub fn directory_changed(
        &mut self,
        opens: &mut Opens,
        agenda: &mut Agenda,
        directory: FileId,
        by: Option<ParentLease>,
    ) {
        if opens.file(directory).is_none() {
            return;
        }
        let request = BreakRequest {
            stream: StreamId::unnamed(directory),
            by_lease: by.filter(|by| !self.is_anothers(by.name, &by.user)).map(|by| by.name),
            by_open: None,
            keep: LeaseState::empty(),
            wait_for: LeaseState::empty(),
            oplocks: false,
            leases: true,
            wait_for_breaking: false,
        };
        let _ = self.ask(opens, agenda, &request);
    }

    /// Breaks the handle caching of others on an open's file. Returns whether to wait for that.
    pub fn break_handles(
        &mut self,
        opens: &mut Opens,
        agenda: &mut Agenda,
        id: OpenId,
    ) -> Result<bool, Suspend> {
        let open = opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let by_lease = match open.holder {
            CacheHolder::Lease(name) => Some(name),
            _ => None,
        };
        let request = BreakRequest { by_lease, by_open: Some(id), ..BreakRequest::of_handles(open.stream) };
        self.ask(opens, agenda, &request)
    }

    /// Whether an open with this holder has to be examined when others' caching breaks.
    pub fn caches(&self, holder: &CacheHolder) -> bool {
        match holder {
            CacheHolder::None => false,
            CacheHolder::Oplock(_) => true,
            CacheHolder::Lease(name) => !self.lease_state(name).is_empty(),
        }
    }

    fn lease_state(&self, name: &LeaseName) -> LeaseState {
        self.leases.get(name).map_or(LeaseState::empty(), |lease| lease.caching.state())
    }

    /// Returns the holder's caching.
    pub fn state_of(&self, holder: &CacheHolder) -> LeaseState {
        match holder {
            CacheHolder::None => LeaseState::empty(),
            CacheHolder::Oplock(caching) => caching.state(),
            CacheHolder::Lease(name) => self.lease_state(name),
        }
    }

    /// Returns the part of `wanted` that a new open may cache. Changes nothing.
    fn grantable(
        &self,
        opens: &Opens,
        asked: &CacheAsked<'_>,
        wanted: LeaseState,
        own: Option<LeaseName>,
    ) -> LeaseState {
        let (stream, mut granted) = (asked.stream, wanted);
        let Some(node) = opens.file(stream.file) else { return normal(granted) };
        if asked.locked {
            granted.remove(LeaseState::READ);
        }
        let has_some = own.is_some_and(|own| !self.lease_state(&own).is_empty());
        if !has_some && node.opens.caching_len() >= CACHING_MAX {
            return LeaseState::empty();
        }
        let (mut handle_lease, mut oplock) = (false, false);
        for (_, open) in caching_opens(opens, stream) {
            let state = self.state_of(&open.holder);
            match &open.holder {
                CacheHolder::None => {}
                CacheHolder::Oplock(_) => oplock |= !state.is_empty(),
                CacheHolder::Lease(name) if Some(*name) == own => continue,
                CacheHolder::Lease(_) => handle_lease |= state.contains(LeaseState::HANDLE),
            }
            if !state.is_empty() {
                granted.remove(LeaseState::WRITE);
            }
            if state.contains(LeaseState::WRITE) {
                return LeaseState::empty();
            }
        }
        if granted.contains(LeaseState::WRITE) && is_used_by_others(opens, stream, own) {
            granted.remove(LeaseState::WRITE);
        }
        if own.is_some() && oplock {
            granted.remove(LeaseState::HANDLE);
        }
        if own.is_none() && handle_lease {
            return LeaseState::empty();
        }
        normal(granted)
    }

    /// Whether a lease is another user's: its client and key are no secret, and give others no part in it.
    pub fn is_anothers(&self, name: LeaseName, user: &Sid) -> bool {
        self.leases.get(&name).and_then(|lease| lease.user.as_ref()).is_some_and(|owner| owner != user)
    }

    /// Checks the key of a requested lease.
    ///
    /// # Errors
    /// INVALID_PARAMETER if another file has a lease with that key.
    pub fn check_lease_key(&self, name: LeaseName, stream: Option<StreamId>) -> Result<(), NtStatus> {
        match self.leases.get(&name) {
            Some(lease) if Some(lease.stream) != stream => Err(NtStatus::INVALID_PARAMETER),
            _ => Ok(()),
        }
    }

    /// Grants a new open as much of the caching that it asked for as it may have.
    pub fn grant(&mut self, opens: &mut Opens, asked: &CacheAsked<'_>) -> (CacheHolder, CacheGrant) {
        match asked.request {
            CacheRequest::Oplock(level) => {
                let wanted = if asked.directory { LeaseState::empty() } else { state_of(level) & asked.most };
                let granted = level_of(self.grantable(opens, asked, wanted, None));
                let holder = match granted {
                    OplockLevel::None => CacheHolder::None,
                    level => CacheHolder::Oplock(CacheState::new(state_of(level))),
                };
                (holder, CacheGrant::Oplock(granted))
            }
            CacheRequest::Lease(lease) => self.grant_lease(opens, asked, lease),
        }
    }

    fn grant_lease(
        &mut self,
        opens: &mut Opens,
        asked: &CacheAsked<'_>,
        request: LeaseRequest,
    ) -> (CacheHolder, CacheGrant) {
        let CacheAsked { stream, directory, client, most, .. } = *asked;
        let name = (client, request.key);
        let mut wanted = request.state & most;
        if directory {
            wanted.remove(LeaseState::WRITE);
        }
        if directory && request.version_2.is_none() {
            wanted = LeaseState::empty();
        }
        let granted = self.grantable(opens, asked, wanted, Some(name));
        let wanted = normal(wanted);
        let lease = self.leases.entry(name).or_insert_with(|| Lease {
            stream,
            user: Some(asked.user.clone()),
            caching: CacheState::default(),
            epoch: request.version_2.map_or(0, |version| version.epoch),
            version_2: request.version_2,
            opens: 0,
            persistent_opens: 0,
        });
        let held = lease.caching.state();
        let upgrade = if lease.opens == 0 {
            lease.epoch = lease.epoch.wrapping_add(1);
            lease.caching = CacheState::new(granted);
            false
        } else {
            // Only to more than it has, only if all of the request is granted, and not during a break.
            wanted.contains(held) && granted == wanted && granted != held && !lease.caching.is_breaking()
        };
        if upgrade {
            lease.caching.upgrade(granted);
            lease.epoch = lease.epoch.wrapping_add(1);
        }
        lease.opens += 1;
        if upgrade && held.is_empty() {
            start_caching(opens, stream.file, name);
        }
        (CacheHolder::Lease(name), self.lease_grant(name))
    }

    /// Returns a lease as its client sees it.
    pub fn lease_grant(&self, name: LeaseName) -> CacheGrant {
        match self.leases.get(&name) {
            Some(lease) => CacheGrant::Lease {
                key: name.1,
                state: lease.caching.state(),
                breaking: lease.caching.is_breaking(),
                version_2: lease.version_2.map(|version| LeaseVersion2 { epoch: lease.epoch, ..version }),
            },
            None => CacheGrant::Oplock(OplockLevel::None),
        }
    }

    /// Returns a holder's present caching, as its client sees it.
    pub fn current_grant(&self, holder: &CacheHolder) -> CacheGrant {
        match holder {
            CacheHolder::None => CacheGrant::Oplock(OplockLevel::None),
            CacheHolder::Oplock(caching) => CacheGrant::Oplock(level_of(caching.state())),
            CacheHolder::Lease(name) => self.lease_grant(*name),
        }
    }

    /// Whether a holder's break is in progress.
    pub fn is_breaking(&self, holder: &CacheHolder) -> bool {
        match holder {
            CacheHolder::None => false,
            CacheHolder::Oplock(caching) => caching.is_breaking(),
            CacheHolder::Lease(name) => {
                self.leases.get(name).is_some_and(|lease| lease.caching.is_breaking())
            }
        }
    }

    /// Takes everything from the holder of a lease that has not acknowledged a break by `at`.
    pub fn lease_timed_out(&mut self, agenda: &mut Agenda, name: LeaseName, at: Monotonic) {
        let Some(lease) = self.leases.get_mut(&name) else { return };
        if lease.caching.deadline() == Some(at) {
            lease.caching.give_up();
            agenda.tasks.wake(lease.stream.file);
            self.note_lease(agenda, name);
        }
    }

    /// Releases the caching of a closed open.
    pub fn release(&mut self, holder: &CacheHolder, is_persistent: bool, agenda: &mut Agenda) {
        if let CacheHolder::Lease(name) = holder {
            let lease = self.leases.get_mut(name).expect("a lease that an open has is there");
            lease.opens -= 1;
            if is_persistent {
                lease.persistent_opens -= 1;
                agenda.records.lease(*name);
            }
            if lease.opens == 0 {
                self.leases.remove(name);
            }
        }
    }
}

/// Takes everything from the holder of an oplock that has not acknowledged a break by `at`.
pub fn oplock_timed_out(opens: &mut Opens, agenda: &mut Agenda, id: OpenId, at: Monotonic) {
    let Some(open) = opens.get_mut(id) else { return };
    if let CacheHolder::Oplock(caching) = &open.holder
        && caching.deadline() == Some(at)
    {
        open.holder = CacheHolder::None;
        let file = open.stream.file;
        if open.persistent {
            agenda.records.open(id);
        }
        note_caching(opens, id);
        agenda.tasks.wake(file);
    }
}

/// Lists the opens of a lease that had nothing and now caches something: from here on breaks consider
/// them.
fn start_caching(opens: &mut Opens, file: FileId, name: LeaseName) {
    let has_lease = |open: &Open| matches!(open.holder, CacheHolder::Lease(held) if held == name);
    let held: Vec<(OpenId, u64)> =
        opens.of_file(file).filter(|(_, open)| has_lease(open)).map(|(id, open)| (id, open.place)).collect();
    let Some(node) = opens.file_mut(file) else { return };
    for (id, place) in held {
        node.opens.start_caching(place, id);
    }
}

/// Whether the stream is open, but by this lease, for more than leases leave alone.
fn is_used_by_others(opens: &Opens, stream: StreamId, own: Option<LeaseName>) -> bool {
    let others = opens.of_file(stream.file).map(|(_, open)| open).filter(|open| open.stream == stream);
    let mut others = others.filter(|open| match &open.holder {
        CacheHolder::Lease(name) => Some(*name) != own,
        CacheHolder::None | CacheHolder::Oplock(_) => true,
    });
    others.any(|open| !is_lease_stat(open.access))
}

/// Returns the state that exists within `state`: nothing without READ.
fn normal(state: LeaseState) -> LeaseState {
    if state.contains(LeaseState::READ) { state } else { LeaseState::empty() }
}
