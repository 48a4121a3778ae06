//! Leases that outlive the server: their records, and their recovery.

use super::{CacheHolder, CacheState, Caching, Holder, Lease, LeaseName, normal};
use crate::backend::{LeaseState, OpenId};
use crate::fs::StreamId;
use crate::service::agenda::Agenda;
use crate::service::open_record::LeaseRecord;
use crate::service::opens::Opens;
use types::Sid;

impl Caching {
    /// Notes that an open which has the lease outlives the server.
    pub fn keep(&mut self, agenda: &mut Agenda, name: LeaseName) {
        let lease = self.leases.get_mut(&name).expect("a lease that an open has is there");
        lease.persistent_opens += 1;
        agenda.records.lease(name);
    }

    /// Returns the record of a lease, if it outlives the server.
    pub fn record_of(&self, name: LeaseName) -> Option<LeaseRecord> {
        let lease = self.leases.get(&name).filter(|lease| lease.persistent_opens > 0)?;
        let Lease { stream, epoch, version_2, .. } = *lease;
        Some(LeaseRecord { stream, state: lease.caching.state(), epoch, version_2 })
    }

    /// Takes a lease back that outlived a start of the server; its opens follow.
    pub fn restore(&mut self, name: LeaseName, record: &LeaseRecord) {
        let LeaseRecord { stream, state, epoch, version_2 } = *record;
        let caching = CacheState::new(normal(state));
        let lease = Lease { stream, user: None, caching, epoch, version_2, opens: 0, persistent_opens: 0 };
        self.leases.insert(name, lease);
    }

    /// Whether the lease has version 2; none if there is no such lease.
    pub fn has_version_2(&self, name: &LeaseName) -> Option<bool> {
        self.leases.get(name).map(|lease| lease.version_2.is_some())
    }

    /// Gives one more open of this stream and user its lease again. False: no such lease.
    pub fn rejoin(&mut self, name: LeaseName, stream: StreamId, user: &Sid) -> bool {
        if self.is_anothers(name, user) {
            return false;
        }
        let lease = self.leases.get_mut(&name).filter(|lease| lease.stream == stream);
        lease.is_some_and(|lease| {
            lease.user.get_or_insert_with(|| user.clone());
            lease.opens += 1;
            lease.persistent_opens += 1;
            true
        })
    }

    /// Forgets a recovered lease without an open.
    pub fn drop_unused(&mut self, agenda: &mut Agenda, name: LeaseName) {
        if self.leases.get(&name).is_some_and(|lease| lease.opens == 0) {
            self.leases.remove(&name);
            agenda.records.lease(name);
        }
    }

    /// Lowers an open's caching to `most` without a break: its client learns of that when it reconnects.
    pub fn limit(&mut self, opens: &mut Opens, agenda: &mut Agenda, id: OpenId, most: LeaseState) {
        let holder = match opens.get(id).map(|open| &open.holder) {
            Some(CacheHolder::Oplock(_)) => Holder::Oplock(id),
            Some(CacheHolder::Lease(name)) => Holder::Lease(*name),
            Some(CacheHolder::None) | None => return,
        };
        if self.state_mut(opens, holder).is_some_and(|caching| !most.contains(caching.state())) {
            self.strip(opens, agenda, holder, most);
        }
    }

    /// Takes an open's caching when it is being closed, and its lease's if that has no other opens: waiting
    /// operations continue.
    pub fn give_up(&mut self, opens: &mut Opens, agenda: &mut Agenda, id: OpenId) {
        let Some(open) = opens.get(id) else { return };
        let file = open.stream.file;
        let is_used = match open.holder {
            CacheHolder::Lease(name) => opens.of_file(file).any(|(_, other)| {
                !other.closing && matches!(other.holder, CacheHolder::Lease(held) if held == name)
            }),
            _ => false,
        };
        if !is_used {
            self.limit(opens, agenda, id, LeaseState::empty());
        }
        agenda.tasks.wake(file);
    }
}
