//! The volumes of this server: the served ones, and the reasons why others are not.
//!
//! Decides only: [`crate::volume_opening`] opens volumes.

use crate::backoff::Backoff;
use crate::error::{Done, Error, ErrorKind};
use crate::served::ServedVolume;
use records::VolumeRecord;
use space::takeover::LetGo;
use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ChunkIndex, Epoch, FileTime, Monotonic, PoolId, VolumeId};
use volume::fs::Config;
use volume::service::{LastingOpens, ServiceConfig};

/// Share of the cache for data not yet written: a third, and at most 2 GiB. The volume keeps to an
/// amount that it can write soon.
const DIRTY_DIVISOR: usize = 3;
const DIRTY_BYTES_MAX: usize = 2 << 30;
/// Share of the cache for metadata pages: a quarter, and at most a gigabyte.
const PAGES_DIVISOR: usize = 4;
const PAGES_BYTES_MAX: usize = 1 << 30;

/// Pauses before a failed volume is opened again: the first, the longest, and the time of service
/// that resets them.
const OPENINGS: Backoff =
    Backoff::new(Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30));

/// The same if a disk's promise locks out every owner: each attempt uses up an epoch, and none
/// helps before an administrator acts.
const REFUSALS: Backoff =
    Backoff::new(Duration::from_secs(2), Duration::from_secs(60), Duration::from_secs(30));

/// The server through which clients reach volumes.
pub trait Front {
    /// Serves the volume to clients from now on.
    fn add_volume(&self, volume: VolumeId, served: ServedVolume);

    /// Ends all opens of the volume, and releases it.
    fn remove_volume(&self, volume: VolumeId, now: Monotonic);
}

/// A volume that is served, or the reason why it is not.
pub struct VolumeEntry {
    /// Pool that the volume's slabs are in.
    pub pool: PoolId,
    /// The record at the time when the volume was opened.
    pub record: VolumeRecord,
    /// The volume for clients; `None`: it is not served here.
    pub served: Option<ServedVolume>,
    /// Whether the volume is being opened or made, or commands on it end.
    pub opening: bool,
    /// Whether the volume is being made or deleted, and therefore hidden.
    pub is_hidden: bool,
    /// Whether another node has it, or should have it.
    pub is_elsewhere: bool,
    /// Reason why the volume is not served; `None`: it is served, or no attempt has failed.
    pub failure: Option<String>,
    /// Whether the volume is being deleted.
    leaving: bool,
    /// Number of disk arrivals at its last opening ([`crate::disks::Disks::arrivals`]).
    arrivals: u64,
    /// Time at which this server first began to open it; `None`: it opens the volume again.
    first_opening: Option<Monotonic>,
    /// Pauses until it is opened again, after a failure or a stop.
    openings: Backoff,
    /// Promise of a disk, out of every owner's reach, that ended the last opening.
    refused_by: Option<Epoch>,
}

impl VolumeEntry {
    /// Returns the duration so far of this server's first opening of the volume; `None`: it has
    /// ended.
    pub fn first_opening(&self, now: Monotonic) -> Option<Duration> {
        self.first_opening.filter(|_| self.opening).map(|since| now.since(since))
    }
}

/// The recorded volumes.
///
/// Invariant: the front has a volume exactly while its entry is served; a volume with a failure is
/// not served.
pub struct Volumes {
    entries: RefCell<BTreeMap<VolumeId, VolumeEntry>>,
    front: Box<dyn Front>,
    /// Whether this node has released some volume since the last call.
    let_go: LetGo,
    /// RAM for all volumes.
    cache_bytes: u64,
    service: ServiceConfig,
}

/// Returns one volume's part of a cache that `volumes` share.
fn cache_share(cache_bytes: u64, volumes: usize) -> Config {
    let share = usize::try_from(cache_bytes).unwrap_or(usize::MAX) / volumes.max(1);
    let page_cache_bytes = (share / PAGES_DIVISOR).min(PAGES_BYTES_MAX);
    Config {
        cache_bytes: share - page_cache_bytes,
        dirty_bytes: (share / DIRTY_DIVISOR).min(DIRTY_BYTES_MAX),
        page_cache_bytes,
    }
}

/// Returns clients' limits on a volume, from an administrator's settings.
fn service_config(opens: usize, locks_per_open: usize) -> ServiceConfig {
    let config = ServiceConfig::default();
    ServiceConfig {
        opens_max: opens,
        locks_per_open,
        locks_per_session: config.locks_per_session.max(locks_per_open),
        locks_max: config.locks_max.max(locks_per_open),
        lasting: LastingOpens::new(opens),
        ..config
    }
}

impl Volumes {
    /// `opens` and `locks_per_open`: the most that clients may hold of one volume.
    pub fn new(front: Box<dyn Front>, cache_bytes: u64, opens: usize, locks_per_open: usize) -> Self {
        let service = service_config(opens, locks_per_open);
        Self { entries: RefCell::default(), front, let_go: LetGo::default(), cache_bytes, service }
    }

    /// Returns every recorded volume. None can be added or removed while the borrow lasts.
    pub fn entries(&self) -> Ref<'_, BTreeMap<VolumeId, VolumeEntry>> {
        self.entries.borrow()
    }

    /// Lists the recorded volumes by rising id.
    pub fn ids(&self) -> Vec<VolumeId> {
        self.entries.borrow().keys().copied().collect()
    }

    /// Lists the volumes of a pool.
    pub(crate) fn of_pool(&self, pool: PoolId) -> Vec<VolumeId> {
        let entries = self.entries.borrow();
        entries.iter().filter(|(_, entry)| entry.pool == pool).map(|(id, _)| *id).collect()
    }

    /// Returns the volume's name, or its id if the name is not known.
    pub fn name(&self, volume: VolumeId) -> String {
        let entries = self.entries.borrow();
        entries.get(&volume).map_or_else(|| volume.to_string(), |entry| entry.record.name.clone())
    }

    /// Finds the pool of a volume.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn pool_of(&self, volume: VolumeId) -> Done<PoolId> {
        let pool = self.entries.borrow().get(&volume).map(|entry| entry.pool);
        pool.ok_or_else(|| Error::not_found("volume", volume))
    }

    /// Returns the volume, if it is served.
    pub fn served(&self, volume: VolumeId) -> Option<ServedVolume> {
        self.entries.borrow().get(&volume).and_then(|entry| entry.served.clone())
    }

    /// Finds a volume for a command that needs it served.
    ///
    /// # Errors
    /// `NotFound`, or `Unavailable`.
    pub(crate) fn served_for(&self, volume: VolumeId) -> Done<ServedVolume> {
        self.pool_of(volume)?;
        self.served(volume).ok_or_else(|| self.not_served(volume))
    }

    /// Makes the error for a command whose volume is not served.
    pub(crate) fn not_served(&self, volume: VolumeId) -> Error {
        let why = format!("volume {} is not served: see `cenote health`", self.name(volume));
        Error::new(ErrorKind::Unavailable, why)
    }

    /// Whether clients of this server reach the volume.
    pub fn is_served(&self, volume: VolumeId) -> bool {
        self.entries.borrow().get(&volume).is_some_and(|entry| entry.served.is_some())
    }

    /// Lists the volumes that are served here.
    pub fn served_ids(&self) -> Vec<VolumeId> {
        let entries = self.entries.borrow();
        entries.iter().filter(|(_, entry)| entry.served.is_some()).map(|(volume, _)| *volume).collect()
    }

    /// Whether another node has the volume, or should have it.
    pub fn is_elsewhere(&self, volume: VolumeId) -> bool {
        self.entries.borrow().get(&volume).is_some_and(|entry| entry.is_elsewhere)
    }

    /// Notes the record of a volume that is not open here, since another node has it or should have
    /// it.
    pub(crate) fn note_elsewhere(&self, record: &VolumeRecord) {
        let mut entries = self.entries.borrow_mut();
        match entries.get_mut(&record.id) {
            Some(entry) if entry.is_elsewhere => entry.record = record.clone(),
            Some(_) => {}
            None => {
                let entry = VolumeEntry {
                    pool: record.pool,
                    record: record.clone(),
                    served: None,
                    opening: false,
                    is_hidden: false,
                    is_elsewhere: true,
                    failure: None,
                    leaving: false,
                    arrivals: 0,
                    first_opening: None,
                    openings: OPENINGS,
                    refused_by: None,
                };
                entries.insert(record.id, entry);
            }
        }
    }

    /// Notes that another node has claimed the volume, which is not open here any more.
    pub(crate) fn note_claimed_elsewhere(&self, volume: VolumeId) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&volume) {
            debug_assert!(entry.served.is_none(), "a volume that is served here is elsewhere");
            (entry.opening, entry.failure, entry.is_elsewhere) = (false, None, true);
            self.let_go.note();
        }
        self.share_cache();
    }

    /// Whether this node has released some volume since the last call, and must check again which
    /// node should have it.
    pub(crate) fn take_let_go(&self) -> bool {
        self.let_go.take()
    }

    /// Whether some volume is being opened.
    pub(crate) fn is_any_opening(&self) -> bool {
        self.entries.borrow().values().any(|entry| entry.opening)
    }

    /// Whether some volume of the pool is being opened.
    pub(crate) fn is_any_opening_of(&self, pool: PoolId) -> bool {
        self.entries.borrow().values().any(|entry| entry.pool == pool && entry.opening)
    }

    /// Whether every volume of the pool is served, here or by another node.
    pub(crate) fn are_served_of(&self, pool: PoolId) -> bool {
        let entries = self.entries.borrow();
        let own = entries.values().filter(|entry| entry.pool == pool);
        own.into_iter().all(|entry| entry.served.is_some() || entry.is_elsewhere)
    }

    /// Describes the range and the volume of a chunk.
    pub(crate) fn place_in_words(
        &self,
        volume: VolumeId,
        chunk: ChunkIndex,
        slab_bytes: impl FnOnce(PoolId) -> Option<u64>,
    ) -> Option<String> {
        let entries = self.entries.borrow();
        let entry = entries.get(&volume)?;
        let slab_bytes = slab_bytes(entry.pool)?;
        let begin = u64::from(chunk.0) * slab_bytes;
        let show = types::size::show_size;
        Some(format!("volume {}, {} to {}", entry.record.name, show(begin), show(begin + slab_bytes)))
    }

    pub(crate) fn service_config(&self) -> ServiceConfig {
        self.service.clone()
    }

    /// Returns the cache for a volume that is being opened.
    pub(crate) fn cache_share(&self) -> Config {
        cache_share(self.cache_bytes, self.entries.borrow().len())
    }

    /// Divides the cache among the served volumes.
    pub(crate) fn share_cache(&self) {
        let entries = self.entries.borrow();
        let served: Vec<_> = entries.values().filter_map(|entry| entry.served.as_ref()).collect();
        let share = cache_share(self.cache_bytes, served.len());
        for volume in served {
            volume.with_mut(|service| service.file_system_mut().set_cache(share));
        }
    }

    /// Passes the time of day to all volumes.
    pub(crate) fn set_wall_clock(&self, now: Monotonic, wall_clock: FileTime) {
        for entry in self.entries.borrow().values() {
            if let Some(served) = &entry.served {
                served.with_mut(|service| service.set_wall_clock(now, wall_clock));
            }
        }
    }

    /// Notes that an opening of the volume begins. A volume that is being made is hidden until it is served.
    pub(crate) fn begin_opening(&self, record: VolumeRecord, arrivals: u64, now: Monotonic) {
        let mut entries = self.entries.borrow_mut();
        let known = entries.get(&record.id).map(|entry| (entry.openings.clone(), entry.refused_by));
        let first_opening = known.is_none().then_some(now);
        let (mut openings, refused_by) = known.unwrap_or((OPENINGS, None));
        openings.tried(now);
        let (id, pool) = (record.id, record.pool);
        let entry = VolumeEntry {
            pool,
            is_hidden: record.is_unfinished,
            is_elsewhere: false,
            record,
            served: None,
            opening: true,
            failure: None,
            leaving: false,
            arrivals,
            first_opening,
            openings,
            refused_by,
        };
        entries.insert(id, entry);
    }

    /// Serves an opened volume to clients, unless it has been deleted meanwhile.
    pub(crate) fn serve(&self, volume: VolumeId, served: ServedVolume) {
        let is_wanted = match self.entries.borrow_mut().get_mut(&volume) {
            Some(entry) => {
                entry.opening = false;
                if entry.refused_by.take().is_some() {
                    entry.openings = OPENINGS;
                }
                if !entry.leaving {
                    entry.is_hidden = false;
                    entry.served = Some(served.clone());
                }
                !entry.leaving
            }
            None => false,
        };
        match is_wanted {
            true => self.front.add_volume(volume, served),
            false => served.dismount(),
        }
        self.share_cache();
    }

    /// Notes the reason why an opening failed.
    pub(crate) fn note_failure(&self, volume: VolumeId, why: String, now: Monotonic) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&volume) {
            entry.opening = false;
            entry.openings.ended(now);
            entry.failure = Some(why);
        }
        self.share_cache();
    }

    /// Notes that this promise of a disk locks out every owner of the volume. Returns whether that
    /// is new. Pauses between attempts grow over all of them.
    pub(crate) fn note_refused(
        &self,
        volume: VolumeId,
        promised: Epoch,
        why: String,
        now: Monotonic,
    ) -> bool {
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(&volume) else { return false };
        let known = entry.refused_by.replace(promised);
        if known.is_none() {
            entry.openings = REFUSALS;
            entry.openings.tried(now);
        }
        (entry.opening, entry.failure) = (false, Some(why));
        entry.openings.ended(now);
        known != Some(promised)
    }

    /// Takes the volume away from clients. Commands in progress may still have it.
    pub(crate) fn withdraw(&self, volume: VolumeId, now: Monotonic) -> Option<ServedVolume> {
        self.front.remove_volume(volume, now);
        let served = self.entries.borrow_mut().get_mut(&volume).and_then(|entry| entry.served.take());
        self.share_cache();
        served
    }

    /// Notes that a volume stopped; it is opened again later. Until commands on it have ended, it
    /// counts as being opened.
    pub(crate) fn note_stopped(&self, volume: VolumeId, now: Monotonic) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&volume) {
            entry.openings.broke(now);
            (entry.opening, entry.first_opening) = (true, None);
        }
    }

    /// Notes that nothing uses the stopped volume any more.
    pub(crate) fn note_ended(&self, volume: VolumeId, why: String) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&volume) {
            entry.opening = false;
            entry.failure = Some(why);
        }
    }

    /// Takes the volume away from clients and commands, for its deletion: commands get the answer
    /// that it is gone. `false`: it is being made, or deleted already.
    pub(crate) fn begin_deletion(&self, volume: VolumeId, now: Monotonic) -> bool {
        match self.entries.borrow_mut().get_mut(&volume) {
            Some(entry) if !entry.is_hidden => (entry.is_hidden, entry.leaving) = (true, true),
            _ => return false,
        }
        self.dismount(volume, now);
        true
    }

    /// Takes the volume away from clients and commands.
    pub(crate) fn dismount(&self, volume: VolumeId, now: Monotonic) {
        if let Some(served) = self.withdraw(volume, now) {
            served.dismount();
        }
    }

    /// Notes the reason why the volume could not be deleted: it is opened anew.
    pub(crate) fn deletion_failed(&self, volume: VolumeId, why: String) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&volume) {
            (entry.is_hidden, entry.leaving) = (false, false);
            entry.failure = Some(why);
        }
    }

    pub(crate) fn forget(&self, volume: VolumeId) {
        self.entries.borrow_mut().remove(&volume);
    }

    pub(crate) fn forget_of(&self, pool: PoolId) {
        self.entries.borrow_mut().retain(|_, entry| entry.pool != pool);
    }

    /// Lists served volumes that stopped after a failed write, with the reasons.
    pub(crate) fn stopped(&self) -> Vec<(VolumeRecord, String)> {
        let entries = self.entries.borrow();
        let stopped = entries.values().filter_map(|entry| {
            let why = entry.served.as_ref()?.with(|service| service.failure().map(ToString::to_string))?;
            Some((entry.record.clone(), why))
        });
        stopped.collect()
    }

    /// Lists volumes that could not be opened, or stopped, and are due for another attempt, because
    /// a disk has come or a pause is over.
    pub(crate) fn due(&self, arrivals: u64, now: Monotonic) -> Vec<VolumeRecord> {
        let entries = self.entries.borrow();
        let due = entries.values().filter(|entry| {
            entry.failure.is_some()
                && !entry.opening
                && !entry.is_hidden
                && !entry.leaving
                && !entry.is_elsewhere
                && entry.served.is_none()
                && (entry.arrivals < arrivals || entry.openings.is_due(now))
        });
        due.map(|entry| entry.record.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::tests::unpolled;
    use records::{Provisioning, Resiliency};
    use std::rc::Rc;
    use uuid::Uuid;

    /// Volumes that clients see.
    #[derive(Default, Clone)]
    struct Seen(Rc<RefCell<Vec<VolumeId>>>);

    impl Front for Seen {
        fn add_volume(&self, volume: VolumeId, _: ServedVolume) {
            self.0.borrow_mut().push(volume);
        }
        fn remove_volume(&self, volume: VolumeId, _: Monotonic) {
            self.0.borrow_mut().retain(|seen| *seen != volume);
        }
    }

    fn opening() -> (Volumes, Seen, VolumeId) {
        let (volume, pool) = (VolumeId(Uuid::from_u128(1)), PoolId(Uuid::from_u128(2)));
        let (resiliency, thin) = (Resiliency::Simple, Provisioning::Thin);
        let record = VolumeRecord::new(volume, pool, "demo", resiliency, 1 << 30, thin, Vec::new(), 0);
        let seen = Seen::default();
        let volumes = Volumes::new(Box::new(seen.clone()), 64 << 20, 100, 100);
        volumes.begin_opening(record, 0, Monotonic(1));
        (volumes, seen, volume)
    }

    #[test]
    fn only_an_opening_by_a_server_that_did_not_have_the_volume_is_the_first() {
        let (volumes, _, volume) = opening();
        let lasts = |now| volumes.entries()[&volume].first_opening(Monotonic(now));
        assert_eq!(lasts(4), Some(Duration::from_nanos(3)));
        volumes.note_failure(volume, "no disk".to_owned(), Monotonic(5));
        assert_eq!(lasts(6), None);
        let record = volumes.entries()[&volume].record.clone();
        volumes.begin_opening(record, 0, Monotonic(7));
        assert_eq!(lasts(8), None, "it was away before");
        let (volumes, _, volume) = opening();
        volumes.note_stopped(volume, Monotonic(2));
        assert_eq!(volumes.entries()[&volume].first_opening(Monotonic(3)), None);
    }

    #[test]
    fn a_volume_that_is_being_deleted_is_neither_served_nor_opened_anew() {
        let (volumes, seen, volume) = opening();
        volumes.begin_deletion(volume, Monotonic(2));
        // The volume's opening ends, in success or failure.
        volumes.serve(volume, unpolled());
        assert!(!volumes.is_served(volume) && seen.0.borrow().is_empty());
        volumes.note_failure(volume, "it was closed".to_owned(), Monotonic(2));
        assert!(volumes.due(1, Monotonic(1 << 50)).is_empty());
        volumes.forget(volume);
        volumes.serve(volume, unpolled());
        assert!(seen.0.borrow().is_empty(), "clients see a volume that is not there");
    }

    #[test]
    fn a_volume_that_could_not_be_deleted_is_opened_anew() {
        let (volumes, seen, volume) = opening();
        volumes.serve(volume, unpolled());
        assert_eq!(*seen.0.borrow(), [volume]);
        volumes.begin_deletion(volume, Monotonic(2));
        assert!(!volumes.is_served(volume) && seen.0.borrow().is_empty());
        volumes.deletion_failed(volume, "no room for the state".to_owned());
        assert_eq!(volumes.due(1, Monotonic(1 << 50)).len(), 1);
    }
}
