//! The disks of all pools: those that are present, and the search for those that are not.
//!
//! Promises: an absent disk is searched for again. A store that failed is closed and opened anew,
//! which verifies it (I9). Decides only: [`crate::disk_opening`] begins openings.

use crate::damage::DamageBook;
use crate::disk_slot::{Condition, DiskSlot};
use crate::peers::Peers;
use crate::pools::Pools;
use records::{DiskRecord, DiskState, FaultDomain};
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use store::Store;
use types::{DiskId, Monotonic, PoolId, VolumeId};

/// Pause between two checks of the disks.
const SUPERVISION: Duration = Duration::from_secs(1);

/// Fill, in percent, above which a pool has no space to spare for a larger reserve.
const ROOM_PERCENT: u64 = 70;
/// Pause before a disk gets another request for the slabs of a deleted volume.
const FREE_AGAIN: Duration = Duration::from_secs(1);

/// Times at which each disk may get another request for the slabs of one deleted volume.
#[derive(Debug, Default)]
pub(crate) struct Asked(BTreeMap<DiskId, Monotonic>);

/// Whether the disks have nothing left of a deleted volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Freed {
    Everywhere,
    /// Not on the present disks; absent ones may have something.
    WherePresent,
    No,
}

/// The recorded disks.
///
/// Invariant: a disk's store is held both here and in its pool's space, or in neither, except while
/// `supervise` passes it on.
pub struct Disks {
    slots: RefCell<BTreeMap<DiskId, DiskSlot>>,
    /// Number of times that a disk came or came back.
    arrivals: Cell<u64>,
    /// Time after which a disk without an answer is reported.
    timeout: Duration,
    supervise_at: Cell<Monotonic>,
    peers: Rc<Peers>,
}

impl Disks {
    /// Makes an empty set; `timeout` is the time after which a silent disk is reported.
    pub fn new(peers: Rc<Peers>, timeout: Duration, now: Monotonic) -> Self {
        let supervise_at = Cell::new(now);
        Self { slots: RefCell::default(), arrivals: Cell::default(), timeout, supervise_at, peers }
    }

    /// Returns every recorded disk of this server. None can change while the borrow lasts.
    pub fn slots(&self) -> Ref<'_, BTreeMap<DiskId, DiskSlot>> {
        self.slots.borrow()
    }

    pub(crate) fn slots_mut(&self) -> RefMut<'_, BTreeMap<DiskId, DiskSlot>> {
        self.slots.borrow_mut()
    }

    /// Returns the timeout of a disk's operation.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Adds a recorded disk. The search for it begins with the next turn.
    pub(crate) fn add(&self, record: DiskRecord, now: Monotonic, unix_s: u64) {
        self.slots.borrow_mut().entry(record.id).or_insert_with(|| DiskSlot::new(record, unix_s));
        self.supervise_at.set(now);
    }

    pub(crate) fn remove(&self, disk: DiskId) -> Option<DiskSlot> {
        self.slots.borrow_mut().remove(&disk)
    }

    /// Removes the disks of a pool.
    pub(crate) fn remove_of(&self, pool: PoolId) {
        self.slots.borrow_mut().retain(|_, slot| slot.record.pool != pool);
    }

    /// Finds the pool of a disk.
    pub(crate) fn pool_of(&self, disk: DiskId) -> Option<PoolId> {
        self.slots.borrow().get(&disk).map(|slot| slot.record.pool)
    }

    /// Lists the pool's disks of this server.
    pub(crate) fn of_pool(&self, pool: PoolId) -> Vec<DiskId> {
        let slots = self.slots.borrow();
        slots.values().filter(|slot| slot.record.pool == pool).map(|slot| slot.record.id).collect()
    }

    /// Returns the number of times that a disk came or came back.
    pub fn arrivals(&self) -> u64 {
        self.arrivals.get()
    }

    pub(crate) fn note_arrival(&self) {
        self.arrivals.set(self.arrivals.get() + 1);
    }

    /// Whether every recorded disk has been tried.
    pub fn were_all_tried(&self) -> bool {
        self.slots.borrow().values().all(DiskSlot::was_tried)
    }

    /// Counts the disks of a pool that are away or about to leave it.
    pub(crate) fn gone(&self, pool: PoolId) -> u32 {
        let slots = self.slots.borrow();
        let own = slots.values().filter(|slot| slot.record.pool == pool && !slot.is_usable()).count();
        let others = self.peers.disks();
        let is_gone = |disk: &&DiskRecord| {
            disk.pool == pool && (disk.state != DiskState::Healthy || self.peers.is_down(disk.id))
        };
        (own + others.values().filter(is_gone).count()) as u32
    }

    /// Returns the number of disks' worth of the pool's space reserved for repair by the usual
    /// rule. Disks that are about to leave do not count.
    pub fn usual_reserve(&self, pool: PoolId) -> u32 {
        let slots = self.slots.borrow();
        let staying =
            slots.values().filter(|slot| slot.record.pool == pool && slot.record.state != DiskState::Retired);
        let others = self.peers.disks();
        let others = others.values().filter(|disk| disk.pool == pool && disk.state != DiskState::Retired);
        let domains = staying.map(|slot| &slot.record).chain(others).map(|disk| disk.fault_domain.clone());
        let domains: Vec<FaultDomain> = domains.collect();
        pool::default_reserve_disks(&domains)
    }

    /// Whether all disks of the pool are present, and data have space left beside a reserve of this
    /// many of them; `others` has the slabs, in all and free, of those of other nodes.
    pub(crate) fn have_room_beside(
        &self,
        pool: PoolId,
        reserve_disks: u32,
        others: impl IntoIterator<Item = (u64, u64)>,
    ) -> bool {
        let slots = self.slots.borrow();
        let own: Vec<&DiskSlot> = slots.values().filter(|slot| slot.record.pool == pool).collect();
        let slabs = |slot: &&DiskSlot| {
            let counts = |store: &Store<_>| (u64::from(store.slab_count()), u64::from(store.free_slabs()));
            slot.store().map(|store| store.with(counts))
        };
        let Some(mut counts) = own.iter().map(slabs).collect::<Option<Vec<_>>>() else { return false };
        counts.extend(others);
        let used: u64 = counts.iter().map(|(all, free)| all - free).sum();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let left: u64 = counts.iter().skip(reserve_disks as usize).map(|(all, _)| all).sum();
        used * 100 <= left * ROOM_PERCENT
    }

    /// Returns the time when [`Disks::supervise`] is due.
    pub(crate) fn next_timeout(&self) -> Monotonic {
        self.supervise_at.get()
    }

    /// Closes stores that failed. Returns the disks to be opened now.
    pub(crate) fn supervise(
        &self,
        pools: &Pools,
        damage: &DamageBook,
        now: Monotonic,
        unix_s: u64,
    ) -> Vec<DiskRecord> {
        debug_assert!(now >= self.supervise_at.get(), "the disks are looked after too early");
        self.supervise_at.set(now.after(SUPERVISION));
        let (mut failed, mut due) = (Vec::new(), Vec::new());
        for (&id, slot) in self.slots.borrow_mut().iter_mut() {
            match &slot.condition {
                Condition::Present(store) => {
                    let is_unreadable = slot.counters.probes.is_unreadable();
                    let is_lost = slot.counters.lost.get() || is_unreadable;
                    if !is_lost && !store.with(Store::is_poisoned) {
                        store.retry();
                        continue;
                    }
                    let why = match (is_unreadable, is_lost) {
                        (true, _) => "it cannot be read",
                        (false, true) => "it does not answer",
                        (false, false) => "a write failed",
                    };
                    slot.why = why.to_owned();
                    slot.fault = if is_lost { DiskState::Missing } else { DiskState::Failed };
                    tracing::error!(disk = %id, path = slot.record.path, why = slot.why, "a disk is taken out");
                    damage.close(id, store);
                    let retry_at = slot.openings.broke(now);
                    slot.change(Condition::Absent { retry_at }, unix_s);
                    failed.push((id, slot.record.pool));
                }
                Condition::Absent { retry_at } if *retry_at <= now => {
                    due.push(slot.record.clone());
                    slot.condition = Condition::Opening { since: now, has_answered: false };
                    slot.openings.tried(now);
                }
                Condition::Opening { since, has_answered: false }
                    if slot.why.is_empty() && now.since(*since) >= self.timeout =>
                {
                    // The kernel gives up when the device does; meanwhile volumes are opened
                    // without it.
                    slot.why = "it does not answer".to_owned();
                    tracing::error!(disk = %id, path = slot.record.path, why = slot.why, "a disk cannot be opened");
                }
                _ => {}
            }
        }
        // This drops the stores' memory and files; the kernel's work for them ends by itself.
        failed.into_iter().for_each(|(disk, pool)| pools.detach(pool, disk));
        due
    }

    /// Closes the stores of all disks of the pool.
    pub(crate) fn close_all_of(&self, pool: PoolId, why: &str, pools: &Pools, now: Monotonic) {
        let mut present = Vec::new();
        for (&id, slot) in self.slots.borrow_mut().iter_mut().filter(|(_, slot)| slot.record.pool == pool) {
            if slot.store().is_some() {
                (slot.why, slot.is_ahead) = (why.to_owned(), true);
                slot.condition = Condition::Absent { retry_at: slot.openings.broke(now) };
                present.push(id);
            }
        }
        present.into_iter().for_each(|disk| pools.detach(pool, disk));
    }

    /// Requests that every disk of the pool give back its chunks of a volume that no longer exists,
    /// except disks that `asked` lists as asked within the last [`FREE_AGAIN`]. Call again until no
    /// chunk is left.
    pub(crate) fn free_chunks(
        &self,
        volume: VolumeId,
        pool: PoolId,
        asked: &mut Asked,
        now: Monotonic,
    ) -> Freed {
        let slots = self.slots.borrow();
        let mut freed = Freed::Everywhere;
        for slot in slots.values().filter(|slot| slot.record.pool == pool) {
            let may_ask = || {
                let at = asked.0.entry(slot.record.id).or_default();
                let may = now >= *at;
                if may {
                    *at = now.after(FREE_AGAIN);
                }
                may
            };
            freed = freed.max(match slot.store() {
                Some(store) if store.free_volume(volume, may_ask) => Freed::Everywhere,
                Some(_) => Freed::No,
                None => Freed::WherePresent,
            });
        }
        freed
    }

    /// Lists volumes that some disk has promised an epoch without having a chunk of them.
    pub(crate) fn promised_in_vain(&self) -> BTreeSet<VolumeId> {
        let slots = self.slots.borrow();
        slots.values().filter_map(DiskSlot::store).flat_map(|store| store.promised_in_vain()).collect()
    }

    /// Makes every disk forget its promises to these deleted volumes, if it has no chunk of them.
    pub(crate) fn forget_promises(&self, volumes: &BTreeSet<VolumeId>) {
        for store in self.slots.borrow().values().filter_map(DiskSlot::store) {
            store.promised_in_vain().intersection(volumes).for_each(|volume| store.forget(*volume));
        }
    }

    /// Lists the reachable disks of a pool that carry other records than these.
    pub(crate) fn lacking(&self, pool: PoolId, records: &[u8]) -> BTreeSet<DiskId> {
        let slots = self.slots.borrow();
        let own = slots.values().filter(|slot| slot.record.pool == pool);
        own.filter(|slot| slot.store().is_some_and(|store| store.with(|store| store.records() != records)))
            .map(|slot| slot.record.id)
            .collect()
    }

    /// Makes idle disks read a block, since a pulled disk sends no notice.
    pub(crate) fn probe_quiet(&self) {
        self.slots.borrow_mut().values_mut().for_each(DiskSlot::probe_if_quiet);
    }

    /// Applies journals that have not grown for a while, so that the next opening has nothing to
    /// replay.
    pub(crate) fn checkpoint_idle(&self) {
        self.slots.borrow_mut().values_mut().for_each(DiskSlot::checkpoint_if_idle);
    }

    /// Adds up the bytes that all disks have read and written on request.
    pub fn transferred_bytes(&self) -> (u64, u64) {
        let slots = self.slots.borrow();
        slots.values().fold((0, 0), |(read, written), slot| {
            (read + slot.counters.read_bytes.get(), written + slot.counters.write_bytes.get())
        })
    }
}
