//! The pools of this server. Each has one space with its volumes' virtual disks.

use crate::damage::DamageBook;
use crate::disk_store::DiskStore;
use crate::error::{Done, Error, ErrorKind};
use crate::lease_gate::LeaseGate;
use crate::peers::Peers;
use crate::persisted::{PersistedClient, PersistedState};
use crate::tasks::Tasks;
use records::{PoolRecord, Resiliency, StateError};
use space::coordinator::{Config, JobStatus};
use space::local::{LocalEvent, LocalSpace, VolumeHandle};
use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{BLOCK_BYTES, DiskId, Monotonic, PoolId, VolumeId};

/// Pause between two comparisons of regions in which blocks were lost.
const LOST_RECHECK: Duration = Duration::from_secs(60);

/// A pool's virtual disks.
pub type PoolSpace = LocalSpace<DiskStore, PersistedClient>;
/// A virtual disk of a pool.
pub(crate) type PoolVolume = VolumeHandle<DiskStore, PersistedClient>;

/// A pool.
pub struct PoolEntry {
    /// Record of the pool, as last read or changed here.
    pub record: PoolRecord,
    /// Bytes of a slab on each of the pool's disks.
    pub slab_bytes: u64,
    /// Virtual disks of the pool; clones share them.
    pub space: PoolSpace,
}

/// The recorded pools.
///
/// Invariant: a superseded pool has no disk attached, and no volume of it is served.
pub struct Pools {
    entries: RefCell<BTreeMap<PoolId, PoolEntry>>,
    /// Pools whose records in the state are older than a disk's copy, with the reason why they are
    /// not used.
    superseded: RefCell<BTreeMap<PoolId, String>>,
    kept: Rc<PersistedState>,
    peers: Rc<Peers>,
    lease_gate: Rc<LeaseGate>,
    /// Configuration of pools added later.
    space_config: RefCell<Config>,
    recheck_lost_at: Cell<Monotonic>,
}

impl Pools {
    pub(crate) fn new(
        kept: Rc<PersistedState>,
        peers: Rc<Peers>,
        lease_gate: Rc<LeaseGate>,
        space_config: Config,
        now: Monotonic,
    ) -> Self {
        Self {
            entries: RefCell::default(),
            superseded: RefCell::default(),
            kept,
            peers,
            lease_gate,
            space_config: RefCell::new(space_config),
            recheck_lost_at: Cell::new(now),
        }
    }

    /// Returns every recorded pool. None can be added or removed while the borrow lasts.
    pub fn entries(&self) -> Ref<'_, BTreeMap<PoolId, PoolEntry>> {
        self.entries.borrow()
    }

    /// Adds a pool whose disks have slabs of this size.
    ///
    /// # Errors
    /// If the cluster state cannot be used from here.
    pub(crate) fn add(&self, record: PoolRecord, slab_bytes: u64, tasks: &Tasks) -> Result<(), StateError> {
        if self.entries.borrow().contains_key(&record.id) {
            // Both the making of a pool and the reader of the records may add it.
            return Ok(());
        }
        let waker = tasks.waker();
        let client = self.kept.client(move || waker.wake())?;
        let slab_blocks = u32::try_from(slab_bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let config = self.space_config.borrow().clone();
        let space = LocalSpace::new(client, config, slab_blocks, record.reserve_disks, tasks.now());
        if let Some(transport) = self.peers.transport(record.id) {
            space.set_remote(transport);
            space.set_node_lease(self.lease_gate.until());
        }
        self.entries.borrow_mut().insert(record.id, PoolEntry { record, slab_bytes, space });
        Ok(())
    }

    /// Applies another node's record of a pool that is here.
    pub(crate) fn note_record(&self, record: &PoolRecord) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&record.id)
            && entry.record != *record
        {
            entry.record.clone_from(record);
            entry.space.set_reserve_disks(record.reserve_disks);
        }
    }

    /// Removes a pool. Its volumes must be closed.
    pub(crate) fn remove(&self, pool: PoolId) {
        let entry = self.entries.borrow_mut().remove(&pool);
        // This drops the pool's stores, and with them the files and their locks.
        drop(entry);
        self.superseded.borrow_mut().remove(&pool);
    }

    /// Finds a pool's virtual disks; `None`: the pool is not known.
    pub fn space(&self, pool: PoolId) -> Option<PoolSpace> {
        self.entries.borrow().get(&pool).map(|entry| entry.space.clone())
    }

    /// Finds a pool's space for a command.
    pub(crate) fn space_for(&self, pool: PoolId) -> Done<PoolSpace> {
        self.space(pool).ok_or_else(|| Error::not_found("pool", pool))
    }

    /// Makes the pools of a single server those of a node.
    pub(crate) fn join(&self) {
        let Some(own) = self.peers.own() else { return };
        self.space_config.borrow_mut().node = Some(own);
        for (id, entry) in self.entries.borrow().iter() {
            if let Some(transport) = self.peers.transport(*id) {
                entry.space.set_remote(transport);
            }
            entry.space.set_node(own, |domain| self.peers.name_domain(domain));
        }
    }

    /// Passes the end of the lease to the spaces.
    pub(crate) fn tell_lease(&self) {
        for entry in self.entries.borrow().values() {
            entry.space.set_node_lease(self.lease_gate.until());
        }
    }

    /// Makes the spaces answer only by the lease from now on.
    pub(crate) fn bind(&self) {
        let Some(lease) = self.peers.lease() else { return };
        self.tell_lease();
        self.space_config.borrow_mut().lease = Some(lease);
        self.entries.borrow().values().for_each(|entry| entry.space.set_leased(lease));
    }

    /// Whether the records of all served volumes name this node.
    pub(crate) fn are_named(&self) -> bool {
        let Some(own) = self.peers.own() else { return false };
        self.entries.borrow().values().all(|entry| entry.space.are_named(own))
    }

    /// Lets openings serve once no other node answers for their volumes any more. Returns whether
    /// there were any.
    pub(crate) fn permit(&self) -> bool {
        self.lease_gate.permit(self.entries.borrow().values().map(|entry| entry.space.clone()))
    }

    /// Returns the bytes of a slab on each of the pool's disks; `None`: the pool is not known.
    pub fn slab_bytes(&self, pool: PoolId) -> Option<u64> {
        self.entries.borrow().get(&pool).map(|entry| entry.slab_bytes)
    }

    /// Returns the slabs, in all and free, of the pool's disks on other nodes.
    pub(crate) fn remote_slabs(&self, pool: PoolId) -> Vec<(u64, u64)> {
        let Some(space) = self.space(pool) else { return Vec::new() };
        let remote = space.disks().into_iter().filter(|disk| space.is_remote(disk.disk));
        remote.map(|disk| (disk.total_slabs, disk.free_slabs)).collect()
    }

    /// Returns the pool's name, or its id if the name is not known.
    pub fn name(&self, pool: PoolId) -> String {
        let entries = self.entries.borrow();
        entries.get(&pool).map_or_else(|| pool.to_string(), |entry| entry.record.name.clone())
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.entries.borrow().values().any(|entry| entry.record.name == name)
    }

    pub(crate) fn ids(&self) -> Vec<PoolId> {
        self.entries.borrow().keys().copied().collect()
    }

    pub(crate) fn spaces(&self) -> Vec<PoolSpace> {
        self.entries.borrow().values().map(|entry| entry.space.clone()).collect()
    }

    pub(crate) fn jobs(&self) -> Vec<(VolumeId, JobStatus)> {
        self.entries.borrow().values().flat_map(|entry| entry.space.jobs()).collect()
    }

    /// Returns the reason why the pool is not used, if its records in the state are older than a
    /// copy on one of its disks.
    pub fn why_superseded(&self, pool: PoolId) -> Option<String> {
        self.superseded.borrow().get(&pool).cloned()
    }

    /// Notes that the pool must not be used. The first reason stays.
    pub(crate) fn supersede(&self, pool: PoolId, why: &str) {
        self.superseded.borrow_mut().entry(pool).or_insert_with(|| why.to_owned());
    }

    /// Takes a disk's store out of its pool's space.
    pub(crate) fn detach(&self, pool: PoolId, disk: DiskId) {
        if let Some(space) = self.space(pool) {
            drop(space.detach_disk(disk));
        }
    }

    /// Sets the number of disks' worth of space reserved for repair; `is_set`: an administrator
    /// chose it.
    pub(crate) fn set_reserve(&self, pool: PoolId, reserve_disks: u32, is_set: bool) -> Done<()> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(&pool).ok_or_else(|| Error::io("the pool is gone"))?;
        (entry.record.reserve_disks, entry.record.reserve_is_set) = (reserve_disks, Some(is_set));
        Ok(())
    }

    /// Updates the free slabs of the pool's disks.
    pub(crate) fn refresh(&self, pool: PoolId) {
        if let Some(space) = self.space(pool) {
            space.refresh();
        }
    }

    /// Reserves space for repair. The reserve is there for lost disks, so `gone` disks need it no
    /// more.
    pub(crate) fn keep_reserves(&self, gone: impl Fn(PoolId) -> u32) {
        for (id, entry) in self.entries.borrow().iter() {
            // More disks may be gone than the reserve covers.
            entry.space.set_reserve_disks(entry.record.reserve_disks.saturating_sub(gone(*id)));
            entry.space.keep_promises(0);
        }
    }

    /// Reserves the slabs of a fixed volume.
    ///
    /// # Errors
    /// `NoSpace` if the pool does not have them.
    pub(crate) fn promise(&self, pool: PoolId, chunks: u64, resiliency: Resiliency) -> Done<()> {
        let space = self.space_for(pool)?;
        let copies = resiliency.copies();
        let available = space.available_chunks(copies);
        if available < chunks {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "a fixed volume is given all its space at once: {chunks} slabs in {copies} copies are wanted, the pool has room \
                     for {available}; make it smaller or thin, or add disks"
                ),
            ));
        }
        space.keep_promises(chunks * u64::from(copies));
        Ok(())
    }

    /// Passes the time to all spaces, and at intervals compares lost blocks again.
    pub(crate) fn handle_timeout(&self, now: Monotonic, damage: &DamageBook) {
        for entry in self.entries.borrow().values() {
            entry.space.handle_timeout(now);
        }
        if now >= self.recheck_lost_at.get() {
            self.recheck_lost_at.set(now.after(LOST_RECHECK));
            self.recheck_lost(damage);
        }
    }

    /// Begins comparisons of regions with lost blocks, and forgets regions that were given back.
    fn recheck_lost(&self, damage: &DamageBook) {
        let entries = self.entries.borrow();
        for (volume, lba) in damage.lost_regions() {
            let mapped =
                |entry: &PoolEntry| entry.space.with_volume(volume, |coordinator| coordinator.is_mapped(lba));
            match entries.values().find_map(|entry| Some((entry, mapped(entry)?))) {
                Some((entry, true)) => entry.space.compare(volume, lba),
                Some((_, false)) => damage.forget_lost(volume, lba),
                None => {}
            }
        }
    }

    /// Runs all spaces. `true`: there was work.
    pub(crate) fn poll(&self, mut note: impl FnMut(LocalEvent)) -> bool {
        let mut moved = false;
        for entry in self.entries.borrow().values() {
            moved |= entry.space.poll();
            while let Some(event) = entry.space.poll_event() {
                note(event);
                // A task may wait for this event.
                moved = true;
            }
        }
        moved
    }

    /// Whether requests wait that only the next poll sends to the disks.
    pub(crate) fn has_unsent(&self) -> bool {
        self.entries.borrow().values().any(|entry| entry.space.has_unsent())
    }

    /// Returns the time when [`Pools::handle_timeout`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Monotonic> {
        self.entries.borrow().values().filter_map(|entry| entry.space.next_timeout()).min()
    }
}
