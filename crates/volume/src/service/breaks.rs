//! Who has to give up what they cache, and who gets to cache what (MS-FSA 2.1.4.12, 2.1.5.17; MS-SMB2 3.3.5.9.8, 3.3.5.22).

use super::caching::{Break, Caching, level_of, state_of};
use super::opens::{CacheHolder, FileNode, Lease, LeaseName};
use super::{Halt, Service, Timer};
use crate::backend::{
    CacheGrant, CacheRequest, Event, Guid, LeaseRequest, LeaseState, LeaseVersion2, OpenId, OplockLevel,
    Reply,
};
use crate::fs::{FileId, StreamId};
use crate::security::rights;
use smallvec::SmallVec;
use std::collections::HashMap;
use types::{Monotonic, NtStatus};

/// Opens with these rights at most do not disturb oplocks.
const OPLOCK_STAT: u32 = rights::SYNCHRONIZE | rights::READ_ATTRIBUTES | rights::WRITE_ATTRIBUTES;
/// And with these, leases.
const LEASE_STAT: u32 = OPLOCK_STAT | rights::READ_CONTROL;

/// Opens of one file that may cache at once; others are granted nothing. One write tells all of them that it is over: so many
/// notifications take some twenty milliseconds.
pub const CACHING_MAX: usize = 4096;

/// Whether an open of these rights leaves oplocks alone.
pub const fn is_oplock_stat(access: u32) -> bool {
    access & !OPLOCK_STAT == 0
}

/// Whether an open of these rights leaves leases alone.
pub const fn is_lease_stat(access: u32) -> bool {
    access & !LEASE_STAT == 0
}

/// What is asked of the holders of a stream.
#[derive(Debug, Clone, Copy)]
pub struct BreakRequest {
    pub stream: StreamId,
    /// The lease of whoever asks: it is not broken by itself.
    pub by_lease: Option<LeaseName>,
    /// The open of whoever asks, where its own oplock stays.
    pub by_open: Option<OpenId>,
    /// What holders may keep.
    pub keep: LeaseState,
    /// Whoever asks has to wait for holders of any of these.
    pub wait_for: LeaseState,
    pub oplocks: bool,
    pub leases: bool,
    /// Whoever asks has waited before, or waits for any break in progress.
    pub wait_for_breaking: bool,
}

impl BreakRequest {
    /// Handles that leases keep open for nobody are to be given up.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Oplock(OpenId),
    Lease(LeaseName),
}

/// One holder on a stream.
struct Held {
    holder: Holder,
    /// Its opens on the stream.
    opens: SmallVec<[OpenId; 1]>,
    /// The clients of all of them are away, or they are being closed.
    away: bool,
}

impl Service {
    /// Who caches something of the stream, in the order of their oldest opens.
    fn holders(&self, stream: StreamId) -> Vec<Held> {
        let mut holders: Vec<Held> = Vec::new();
        let mut by_lease: HashMap<LeaseName, usize> = HashMap::new();
        let Some(node) = self.files.get(&stream.file) else { return holders };
        for id in node.opens.caching() {
            let Some(open) = self.opens.get(id).filter(|open| open.stream == stream) else { continue };
            let away = open.disconnected.is_some() || open.closing;
            let holder = match open.holder {
                CacheHolder::None => continue,
                CacheHolder::Oplock(_) => Holder::Oplock(id),
                CacheHolder::Lease(name) => {
                    if let Some(at) = by_lease.get(&name) {
                        holders[*at].opens.push(id);
                        holders[*at].away &= away;
                        continue;
                    }
                    by_lease.insert(name, holders.len());
                    Holder::Lease(name)
                }
            };
            holders.push(Held { holder, opens: SmallVec::from_iter([id]), away });
        }
        holders
    }

    fn caching(&mut self, holder: Holder) -> Option<&mut Caching> {
        match holder {
            Holder::Oplock(id) => match &mut self.opens.get_mut(id)?.holder {
                CacheHolder::Oplock(caching) => Some(caching),
                _ => None,
            },
            Holder::Lease(name) => self.leases.get_mut(&name).map(|lease| &mut lease.caching),
        }
    }

    /// Asks holders to give up caching. Returns whether whoever asks has to wait.
    ///
    /// # Errors
    /// [`Halt::Closing`] where a holder's client was away: its opens are being closed.
    pub(super) fn ask(&mut self, request: &BreakRequest) -> Result<bool, Halt> {
        let mut wait = false;
        let mut removed = false;
        let caching = self.files.get(&request.stream.file).map_or(0, |node| node.opens.caching_len());
        self.turn.spend(u32::try_from(caching).unwrap_or(u32::MAX));
        for Held { holder, opens, away } in self.holders(request.stream) {
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
            let Some(caching) = self.caching(holder) else { continue };
            let (state, breaking) = (caching.state(), caching.is_breaking());
            let untouched = request.keep.contains(state);
            if untouched {
                wait |= breaking;
                continue;
            }
            if away {
                removed = true;
                for id in opens {
                    self.revoke(id);
                }
                continue;
            }
            self.break_holder(holder, keep);
            wait |= state.intersects(request.wait_for);
            wait |= breaking && request.wait_for_breaking;
        }
        if removed && !wait {
            return Err(Halt::Closing(request.stream.file));
        }
        Ok(wait)
    }

    fn break_holder(&mut self, holder: Holder, keep: LeaseState) {
        let now = self.now;
        let Some(caching) = self.caching(holder) else { return };
        let Some(step) = caching.break_to(keep, now) else { return };
        let deadline = caching.deadline();
        if let Holder::Oplock(id) = holder {
            self.note_caching(id);
        }
        if let Holder::Lease(name) = holder
            && let Some(lease) = self.leases.get_mut(&name)
        {
            // The steps of one break share an epoch.
            lease.epoch = lease.epoch.wrapping_add(1);
        }
        self.tell(holder, step, deadline);
    }

    fn tell(&mut self, holder: Holder, step: Break, deadline: Option<Monotonic>) {
        match holder {
            Holder::Oplock(open) => {
                let Some(session) = self.opens.get(open).map(|open| open.session) else { return };
                self.events.push(Event::BreakOplock { open, session, to: level_of(step.to) });
                if let Some(at) = deadline {
                    self.timers.insert((at, Timer::Oplock(open)));
                }
            }
            Holder::Lease(name) => {
                let Some(lease) = self.leases.get(&name) else { return };
                let epoch = if lease.version_2.is_some() { lease.epoch } else { 0 };
                let (from, to, acknowledge) = (step.from, step.to, step.acknowledge);
                let (client, key) = name;
                self.events.push(Event::BreakLease { client, key, from, to, acknowledge, epoch });
                if let Some(at) = deadline {
                    self.timers.insert((at, Timer::Lease(name)));
                }
            }
        }
    }

    /// Data of the stream changed by an open: nobody else's copy is good any more. Nothing waits for it.
    pub(super) fn contend(&mut self, by: OpenId) {
        let Some(open) = self.opens.get(by) else { return };
        let stream = open.stream;
        let (by_lease, by_open) = match &open.holder {
            CacheHolder::Lease(name) => (Some(*name), None),
            // A level II oplock is broken by its own holder's writes as well.
            CacheHolder::Oplock(caching) if caching.state().contains(LeaseState::WRITE) => return,
            _ => (None, None),
        };
        let alone = self.files.get(&stream.file).is_none_or(|node| node.opens.len() <= 1);
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
        let _ = self.ask(&request);
    }

    /// What is in a directory changed: copies of its listing are no longer good, but for that of `by`'s own lease on it.
    pub(super) fn directory_changed(&mut self, directory: FileId, by: Option<LeaseName>) {
        if !self.files.contains_key(&directory) {
            return;
        }
        let request = BreakRequest {
            stream: StreamId::unnamed(directory),
            by_lease: by,
            by_open: None,
            keep: LeaseState::empty(),
            wait_for: LeaseState::empty(),
            oplocks: false,
            leases: true,
            wait_for_breaking: false,
        };
        let _ = self.ask(&request);
    }

    /// An open whose oplock is gone is not looked at any more when others' caching is asked for.
    fn note_caching(&mut self, id: OpenId) {
        let Some(open) = self.opens.get(id) else { return };
        let is_gone = match &open.holder {
            CacheHolder::None => true,
            CacheHolder::Oplock(caching) => caching.state().is_empty() && !caching.is_breaking(),
            CacheHolder::Lease(_) => false,
        };
        if is_gone && let Some(node) = self.files.get_mut(&open.stream.file) {
            node.opens.stop_caching(open.place);
        }
    }

    /// A lease that had nothing has something: its opens are looked at from here on.
    fn start_caching(&mut self, file: FileId, name: LeaseName) {
        let Some(node) = self.files.get_mut(&file) else { return };
        for id in node.opens.iter().collect::<Vec<_>>() {
            if let Some(open) = self.opens.get(id)
                && matches!(open.holder, CacheHolder::Lease(held) if held == name)
            {
                node.opens.start_caching(open.place, id);
            }
        }
    }

    /// Whether whoever asks for caching to be given up has to look at an open with this holder.
    pub(super) fn caches(&self, holder: &CacheHolder) -> bool {
        match holder {
            CacheHolder::None => false,
            CacheHolder::Oplock(_) => true,
            CacheHolder::Lease(name) => {
                self.leases.get(name).is_some_and(|lease| !lease.caching.state().is_empty())
            }
        }
    }

    /// What an open about to be made may cache. Changes nothing.
    fn grantable(&self, stream: StreamId, wanted: LeaseState, own: Option<LeaseName>) -> LeaseState {
        let mut granted = wanted;
        let Some(node) = self.files.get(&stream.file) else { return normal(granted) };
        if node.has_locks(stream.index) {
            granted.remove(LeaseState::READ);
        }
        let has_some =
            own.and_then(|own| self.leases.get(&own)).is_some_and(|lease| !lease.caching.state().is_empty());
        if !has_some && node.opens.caching_len() >= CACHING_MAX {
            return LeaseState::empty();
        }
        let (mut handle_lease, mut oplock) = (false, false);
        for id in node.opens.caching() {
            let Some(open) = self.opens.get(id).filter(|open| open.stream == stream) else { continue };
            let state = match &open.holder {
                CacheHolder::None => LeaseState::empty(),
                CacheHolder::Oplock(caching) => {
                    oplock |= caching.state() != LeaseState::empty();
                    caching.state()
                }
                CacheHolder::Lease(name) if Some(*name) == own => continue,
                CacheHolder::Lease(name) => {
                    let state =
                        self.leases.get(name).map_or(LeaseState::empty(), |lease| lease.caching.state());
                    handle_lease |= state.contains(LeaseState::HANDLE);
                    state
                }
            };
            if !state.is_empty() {
                granted.remove(LeaseState::WRITE);
            }
            if state.contains(LeaseState::WRITE) {
                return LeaseState::empty();
            }
        }
        if granted.contains(LeaseState::WRITE) && self.is_used_by_others(node, stream, own) {
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

    /// Whether the stream is open, but by this lease, for more than leases leave alone.
    fn is_used_by_others(&self, node: &FileNode, stream: StreamId, own: Option<LeaseName>) -> bool {
        let opens =
            node.opens.iter().filter_map(|id| self.opens.get(id)).filter(|open| open.stream == stream);
        let mut others = opens.filter(|open| match &open.holder {
            CacheHolder::Lease(name) => Some(*name) != own,
            CacheHolder::None | CacheHolder::Oplock(_) => true,
        });
        others.any(|open| !is_lease_stat(open.access))
    }

    /// # Errors
    /// INVALID_PARAMETER where the lease's key is already that of another file.
    pub(super) fn check_lease_key(&self, name: LeaseName, stream: Option<StreamId>) -> Result<(), NtStatus> {
        match self.leases.get(&name) {
            Some(lease) if Some(lease.stream) != stream => Err(NtStatus::INVALID_PARAMETER),
            _ => Ok(()),
        }
    }

    /// Gives a new open what it may cache of what it asked for.
    pub(super) fn grant(
        &mut self,
        stream: StreamId,
        directory: bool,
        client: Guid,
        request: CacheRequest,
        refuse: bool,
    ) -> (CacheHolder, CacheGrant) {
        match request {
            CacheRequest::Oplock(level) => {
                let wanted = if directory || refuse { LeaseState::empty() } else { state_of(level) };
                let granted = level_of(self.grantable(stream, wanted, None));
                let holder = match granted {
                    OplockLevel::None => CacheHolder::None,
                    level => CacheHolder::Oplock(Caching::new(state_of(level))),
                };
                (holder, CacheGrant::Oplock(granted))
            }
            CacheRequest::Lease(lease) => self.grant_lease(stream, directory, client, lease, refuse),
        }
    }

    fn grant_lease(
        &mut self,
        stream: StreamId,
        directory: bool,
        client: Guid,
        request: LeaseRequest,
        refuse: bool,
    ) -> (CacheHolder, CacheGrant) {
        let name = (client, request.key);
        let mut wanted = request.state;
        if directory {
            wanted.remove(LeaseState::WRITE);
        }
        if refuse || directory && request.version_2.is_none() {
            wanted = LeaseState::empty();
        }
        let granted = self.grantable(stream, wanted, Some(name));
        let wanted = normal(wanted);
        let lease = self.leases.entry(name).or_insert_with(|| Lease {
            stream,
            caching: Caching::default(),
            epoch: request.version_2.map_or(0, |version| version.epoch),
            version_2: request.version_2,
            opens: 0,
        });
        let held = lease.caching.state();
        let upgrade = if lease.opens == 0 {
            lease.epoch = lease.epoch.wrapping_add(1);
            lease.caching = Caching::new(granted);
            false
        } else {
            // Only to more than it has, only to all that was asked for, and not while it is being taken back.
            wanted.contains(held) && granted == wanted && granted != held && !lease.caching.is_breaking()
        };
        if upgrade {
            lease.caching.upgrade(granted);
            lease.epoch = lease.epoch.wrapping_add(1);
        }
        lease.opens += 1;
        if upgrade && held.is_empty() {
            self.start_caching(stream.file, name);
        }
        (CacheHolder::Lease(name), self.lease_grant(name))
    }

    /// A lease as it is told to its client.
    pub(super) fn lease_grant(&self, name: LeaseName) -> CacheGrant {
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

    /// What an open caches at the moment, as it is told to its client.
    pub(super) fn current_grant(&self, id: OpenId) -> CacheGrant {
        match self.opens.get(id).map(|open| &open.holder) {
            Some(CacheHolder::Oplock(caching)) => CacheGrant::Oplock(level_of(caching.state())),
            Some(CacheHolder::Lease(name)) => self.lease_grant(*name),
            _ => CacheGrant::Oplock(OplockLevel::None),
        }
    }

    /// The state that an open caches with.
    pub(super) fn cached_state(&self, id: OpenId) -> LeaseState {
        match self.opens.get(id).map(|open| &open.holder) {
            Some(CacheHolder::Oplock(caching)) => caching.state(),
            Some(CacheHolder::Lease(name)) => {
                self.leases.get(name).map_or(LeaseState::empty(), |lease| lease.caching.state())
            }
            _ => LeaseState::empty(),
        }
    }

    /// MS-SMB2 3.3.5.22.1.
    pub(super) fn acknowledge_oplock(&mut self, id: OpenId, level: OplockLevel) -> Result<Reply, Halt> {
        let now = self.now;
        let open = self.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
        let file = open.stream.file;
        let CacheHolder::Oplock(caching) = &mut open.holder else {
            return Err(NtStatus::INVALID_OPLOCK_PROTOCOL.into());
        };
        if matches!(level, OplockLevel::Exclusive | OplockLevel::Batch) {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        if !caching.is_breaking() {
            return Err(NtStatus::INVALID_OPLOCK_PROTOCOL.into());
        }
        let next = match caching.acknowledge(state_of(level), now) {
            Ok(next) => next,
            Err(status) => {
                // More than was offered: nothing is left.
                caching.give_up();
                open.holder = CacheHolder::None;
                self.note_caching(id);
                self.wake(file);
                return Err(status.into());
            }
        };
        let (left, deadline) = (caching.state(), caching.deadline());
        self.note_caching(id);
        if let Some(step) = next {
            self.tell(Holder::Oplock(id), step, deadline);
        }
        self.wake(file);
        Ok(Reply::Oplock(level_of(left)))
    }

    /// MS-SMB2 3.3.5.22.2.
    pub(super) fn acknowledge_lease(&mut self, name: LeaseName, state: LeaseState) -> Result<Reply, Halt> {
        let now = self.now;
        let lease = self.leases.get_mut(&name).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let file = lease.stream.file;
        let next = lease.caching.acknowledge(state, now)?;
        let deadline = lease.caching.deadline();
        if let Some(step) = next {
            self.tell(Holder::Lease(name), step, deadline);
        }
        self.wake(file);
        Ok(Reply::Lease { key: name.1, state })
    }

    pub(super) fn lease_timed_out(&mut self, name: LeaseName, at: Monotonic) {
        let Some(lease) = self.leases.get_mut(&name) else { return };
        if lease.caching.deadline() == Some(at) {
            lease.caching.give_up();
            let file = lease.stream.file;
            self.wake(file);
        }
    }

    pub(super) fn oplock_timed_out(&mut self, id: OpenId, at: Monotonic) {
        let Some(open) = self.opens.get_mut(id) else { return };
        if let CacheHolder::Oplock(caching) = &open.holder
            && caching.deadline() == Some(at)
        {
            open.holder = CacheHolder::None;
            let file = open.stream.file;
            self.note_caching(id);
            self.wake(file);
        }
    }

    /// An open gives up its part in caching.
    pub(super) fn release_holder(&mut self, holder: &CacheHolder) {
        if let CacheHolder::Lease(name) = holder
            && let Some(lease) = self.leases.get_mut(name)
        {
            lease.opens = lease.opens.saturating_sub(1);
            if lease.opens == 0 {
                self.leases.remove(name);
            }
        }
    }
}

/// States that exist: nothing without READ.
fn normal(state: LeaseState) -> LeaseState {
    if state.contains(LeaseState::READ) { state } else { LeaseState::empty() }
}
