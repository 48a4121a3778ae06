//! The storage side of the data plane: the disks of all pools with their stores, and one space for each pool.
//!
//! Owns what opens disks and looks after them: a disk that cannot be reached is looked for again, a store that failed is closed
//! and opened anew, which verifies it (I9). Promises: nothing here blocks; what does runs on helper threads.

use super::backoff::Backoff;
use super::disks::{CountedDisk, Counters, on_loop};
use super::records::{Keeper, KeptClient};
use super::tasks::{Tasks, blocking, until};
use cluster::image::PoolImage;
use cluster::{DiskDamage, DiskRecord, DiskState, LostBlocks, PoolRecord, RedbState, StateError};
use disk::partition::{TableState, look_after_table};
use disk::{FileDiskOptions, OpenedFile};
use space::coordinator::{Config, Event, REGION_BLOCKS};
use space::local::{LocalEvent, LocalSpace};
use space::seam::BlockStore;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use store::api::{StoreCompletion, StoreRequest};
use store::{Opening, Store, StoreOptions};
use sys::driver::Driver;
use types::{BLOCK_BYTES, DiskId, Epoch, Lba, Monotonic, PoolId, VolumeId};

/// A disk that could not be opened, or failed within the third figure, is tried again after so long; twice as long each time, up to the
/// second figure.
const OPENINGS: Backoff =
    Backoff::new(Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(10));
/// The same of writing down what state it is in.
const RECORDINGS: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(60));
/// How often disks are looked after.
const SUPERVISION: Duration = Duration::from_secs(1);
/// Token of requests whose answer nobody needs; replicas use others (those of their owner have the highest bit).
const FREE_TOKEN: u64 = u64::MAX;
/// Slabs of a deleted volume are asked for again after so long.
const FREE_AGAIN: Duration = Duration::from_secs(1);
/// Events kept for whoever asks.
const EVENTS_MAX: usize = 1024;
/// Blocks without an intact copy that are remembered of one volume.
pub const LOST_MAX: usize = 4096;
/// Damaged blocks of one disk and volume that are remembered, to name their files: the first ones.
const MET_MAX: usize = 256;
/// How often, and how many of its regions at once, it is looked whether they are intact again.
const LOST_RECHECK: Duration = Duration::from_secs(60);
const LOST_REGIONS: usize = 16;

/// A disk's store, as a replica needs it; shared with whoever looks after the disk.
#[derive(Clone)]
pub struct PlaneStore(Rc<RefCell<Store<CountedDisk>>>);

impl PlaneStore {
    pub fn with<T>(&self, look: impl FnOnce(&Store<CountedDisk>) -> T) -> T {
        look(&self.0.borrow())
    }

    /// See [`Store::retry`].
    fn retry(&self) {
        self.0.borrow_mut().retry();
    }

    /// Applies everything in the journal soon.
    pub fn request_checkpoint(&self) {
        self.0.borrow_mut().request_checkpoint();
    }
}

impl BlockStore for PlaneStore {
    fn submit(&mut self, token: u64, request: StoreRequest) {
        self.0.borrow_mut().submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<StoreCompletion>) {
        self.0.borrow_mut().poll(out);
    }
    fn has_news(&self) -> bool {
        self.0.borrow().has_news()
    }
    fn promised(&self, volume: VolumeId) -> Epoch {
        self.0.borrow().promised(volume)
    }
    fn slabs(&self) -> (u64, u64) {
        let store = self.0.borrow();
        (u64::from(store.slab_count()), u64::from(store.free_slabs()))
    }
    fn slab_blocks(&self) -> u32 {
        self.0.borrow().slab_blocks()
    }
}

/// Whether a recorded disk can be used.
pub enum Condition {
    Present(PlaneStore),
    /// A task opens it.
    Opening {
        /// Since when it has not answered at all; none once its file is open, since everything then has its time bound.
        unanswered_since: Option<Monotonic>,
    },
    Absent {
        retry_at: Monotonic,
    },
}

/// A disk that belongs to a pool.
pub struct DiskSlot {
    pub record: DiskRecord,
    pub counters: Rc<Counters>,
    pub condition: Condition,
    /// Why it is not there; empty if it is, or while nothing is known yet of the first try.
    pub why: String,
    /// Since when the condition holds, in Unix seconds.
    pub since_unix_s: u64,
    /// What failed it last.
    pub fault: DiskState,
    /// State and path as the cluster state has them.
    pub recorded: (DiskState, String),
    /// A task works on its record.
    pub busy: bool,
    /// It was in use since this process began: its records are this server's.
    was_here: bool,
    /// Writes that it was asked for so far, and for how many seconds there were no others.
    pub idle: (u64, u32),
    /// What was wrong with the partition table that it lies in, when it was opened last.
    pub table: TableState,
    /// Why its state cannot be written down, and since when (Unix seconds).
    pub unrecorded: Option<(String, u64)>,
    pub recordings: Backoff,
    openings: Backoff,
    free_again_at: Cell<Monotonic>,
}

impl DiskSlot {
    pub(super) fn new(record: DiskRecord) -> Self {
        let condition = Condition::Absent { retry_at: Monotonic(0) };
        let since_unix_s = super::unix_seconds();
        let (counters, why) = (Rc::default(), String::new());
        let recorded = (record.state, record.path.clone());
        Self {
            record,
            fault: DiskState::Missing,
            recorded,
            busy: false,
            was_here: false,
            idle: (0, 0),
            counters,
            condition,
            why,
            since_unix_s,
            table: TableState::default(),
            unrecorded: None,
            recordings: RECORDINGS,
            openings: OPENINGS,
            free_again_at: Cell::default(),
        }
    }

    fn may_free(&self, now: Monotonic) -> bool {
        let may = now >= self.free_again_at.get();
        if may {
            self.free_again_at.set(now.after(FREE_AGAIN));
        }
        may
    }

    pub fn store(&self) -> Option<&PlaneStore> {
        match &self.condition {
            Condition::Present(store) => Some(store),
            _ => None,
        }
    }

    /// Its state was written down, or why not: that is told once, then by health.
    pub fn note_recorded(&mut self, written: Result<(DiskState, String), String>) {
        match written {
            Ok(recorded) => {
                self.recorded = recorded;
                self.unrecorded = None;
                self.recordings = RECORDINGS;
            }
            Err(why) => {
                if self.unrecorded.is_none() {
                    tracing::warn!(disk = %self.record.id, why, "a disk's state cannot be recorded");
                }
                let since_unix_s = self
                    .unrecorded
                    .as_ref()
                    .map_or_else(super::unix_seconds, |(_, since_unix_s)| *since_unix_s);
                self.unrecorded = Some((why, since_unix_s));
            }
        }
    }

    fn change(&mut self, condition: Condition) {
        self.condition = condition;
        self.since_unix_s = super::unix_seconds();
    }
}

/// A pool's virtual disks.
pub type PoolSpace = LocalSpace<PlaneStore, KeptClient>;

pub struct PoolEntry {
    pub record: PoolRecord,
    pub slab_bytes: u64,
    pub space: PoolSpace,
}

/// See the module.
pub struct Storage {
    pub driver: Driver,
    pub tasks: Tasks,
    pub now: Cell<Monotonic>,
    pub disk_timeout: Duration,
    pub disks: RefCell<BTreeMap<DiskId, DiskSlot>>,
    pub pools: RefCell<BTreeMap<PoolId, PoolEntry>>,
    /// What happened lately, each with its time in Unix seconds.
    pub events: RefCell<VecDeque<(u64, LocalEvent)>>,
    /// The disks' copies of the records.
    pub keeper: Keeper,
    /// Where disks are looked for that are not where they were.
    search: Vec<PathBuf>,
    /// How often a disk came or came back.
    pub arrivals: Cell<u64>,
    /// By disk, without what its present store counts.
    damage: RefCell<BTreeMap<DiskId, Damage>>,
    /// Pools whose records in the state are older than what a disk carries, and why nothing of them is used.
    superseded: RefCell<BTreeMap<PoolId, String>>,
    /// Every recorded disk was tried once: before, no disk is given records, which may turn out to be too old.
    settled_once: Cell<bool>,
    /// Where a fault of a disk was met last before this process began, in words.
    last_faults: RefCell<BTreeMap<DiskId, String>>,
    /// Blocks of which a disk's copy was corrupt or older than it should be, as far as they were met.
    met: RefCell<BTreeMap<(VolumeId, DiskId), BTreeSet<Lba>>>,
    /// Blocks without an intact copy, by volume, and since when (Unix seconds) there are any.
    lost: RefCell<BTreeMap<VolumeId, (u64, BTreeSet<Lba>)>>,
    /// Disks that were brought up to date since the list of jobs was last brought up to date.
    pub joined: RefCell<Vec<(VolumeId, DiskId)>>,
    space_config: Config,
    supervise_at: Cell<Monotonic>,
    recheck_lost_at: Cell<Monotonic>,
}

/// What was found wrong with a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Damage {
    /// Blocks that could not be read.
    pub medium_errors: u64,
    /// Blocks, and pages of metadata, that are older than what the disk acknowledged.
    pub lost_writes: u64,
    /// Blocks that could not be read, or whose checksum failed.
    pub corrupt_blocks: u64,
    /// Blocks written again from another copy.
    pub repaired_blocks: u64,
}

impl Damage {
    fn add_store(&mut self, store: &PlaneStore) {
        let health = store.with(Store::health);
        self.medium_errors += health.medium_errors;
        self.lost_writes += health.lost_writes;
        self.corrupt_blocks += health.corrupt_blocks;
    }
}

impl Storage {
    pub fn new(
        driver: Driver,
        disk_timeout: Duration,
        space_config: Config,
        search: Vec<PathBuf>,
        state: RedbState,
        now: Monotonic,
    ) -> Rc<Self> {
        Rc::new(Self {
            driver,
            tasks: Tasks::default(),
            now: Cell::new(now),
            disk_timeout,
            disks: RefCell::default(),
            pools: RefCell::default(),
            events: RefCell::default(),
            keeper: Keeper::new(state),
            search,
            arrivals: Cell::default(),
            damage: RefCell::default(),
            superseded: RefCell::default(),
            settled_once: Cell::default(),
            last_faults: RefCell::default(),
            met: RefCell::default(),
            lost: RefCell::default(),
            joined: RefCell::default(),
            space_config,
            supervise_at: Cell::new(now),
            recheck_lost_at: Cell::new(now),
        })
    }

    /// A pool whose disks have slabs of this size.
    ///
    /// # Errors
    /// Where the cluster state cannot be used from here.
    pub fn add_pool(&self, record: PoolRecord, slab_bytes: u64) -> Result<(), StateError> {
        let waker = self.driver.waker();
        let client = self.keeper.client(move || waker.wake())?;
        let slab_blocks = u32::try_from(slab_bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let config = self.space_config.clone();
        let space = LocalSpace::new(client, config, slab_blocks, record.reserve_disks, self.now.get());
        self.pools.borrow_mut().insert(record.id, PoolEntry { record, slab_bytes, space });
        Ok(())
    }

    /// Lets go of a pool and its disks. Its volumes must be closed.
    pub fn remove_pool(&self, pool: PoolId) {
        self.disks.borrow_mut().retain(|_, slot| slot.record.pool != pool);
        let entry = self.pools.borrow_mut().remove(&pool);
        // Its stores, and with them the files and their locks, go here.
        drop(entry);
        self.keeper.forget(pool);
        self.superseded.borrow_mut().remove(&pool);
    }

    /// Why nothing of the pool is used, if its records in the state are older than what one of its disks carries.
    pub fn why_superseded(&self, pool: PoolId) -> Option<String> {
        self.superseded.borrow().get(&pool).cloned()
    }

    /// A recorded disk: it is looked for from the next turn on.
    pub fn add_disk(&self, record: DiskRecord) {
        self.disks.borrow_mut().entry(record.id).or_insert_with(|| DiskSlot::new(record));
        self.supervise_at.set(self.now.get());
    }

    pub fn space(&self, pool: PoolId) -> Option<PoolSpace> {
        self.pools.borrow().get(&pool).map(|entry| entry.space.clone())
    }

    /// Brings the time to everything that waits for it.
    pub fn tell_time(self: &Rc<Self>, now: Monotonic) {
        self.now.set(now);
        for entry in self.pools.borrow().values() {
            entry.space.handle_timeout(now);
        }
        if now >= self.supervise_at.get() {
            self.supervise();
        }
    }

    /// Runs what is ready. `true`: something moved.
    pub fn poll(self: &Rc<Self>) -> bool {
        if !self.settled_once.get() && self.disks_settled() {
            self.settled_once.set(true);
        }
        if self.settled_once.get() && self.keeper.begin() {
            self.tasks.spawn(self.clone().keep_records());
        }
        let mut moved = self.tasks.poll();
        for entry in self.pools.borrow().values() {
            moved |= entry.space.poll();
            while let Some(event) = entry.space.poll_event() {
                self.note(event);
                // A task may wait for it.
                moved = true;
            }
        }
        moved
    }

    /// Something was asked for that is not on its way to the disks before the next poll.
    pub fn has_unsent(&self) -> bool {
        self.pools.borrow().values().any(|entry| entry.space.has_unsent())
    }

    /// Has the loop take a turn at this time.
    pub fn wake_at(&self, at: Monotonic) {
        self.supervise_at.set(self.supervise_at.get().min(at));
    }

    /// What was found wrong with the disk since this server has it.
    pub fn damage(&self, disk: DiskId) -> Damage {
        let mut damage = self.damage.borrow().get(&disk).copied().unwrap_or_default();
        if let Some(store) = self.disks.borrow().get(&disk).and_then(DiskSlot::store) {
            damage.add_store(store);
        }
        damage
    }

    /// What was known of damage before this process began.
    pub fn remember_damage(&self, disks: Vec<DiskDamage>, lost: Vec<LostBlocks>) {
        for known in disks {
            let DiskDamage { disk, medium_errors, lost_writes, corrupt_blocks, repaired_blocks, last } =
                known;
            let damage = Damage { medium_errors, lost_writes, corrupt_blocks, repaired_blocks };
            self.damage.borrow_mut().insert(disk, damage);
            if !last.is_empty() {
                self.last_faults.borrow_mut().insert(disk, last);
            }
        }
        for LostBlocks { volume, since_unix_s, ranges } in lost {
            let blocks = ranges
                .into_iter()
                .flat_map(|(first, blocks)| (first..).take(blocks.min(LOST_MAX as u64) as usize));
            let known = blocks.map(Lba).take(LOST_MAX).collect();
            self.lost.borrow_mut().insert(volume, (since_unix_s, known));
        }
    }

    /// Where a fault of the disk was met last before this process began.
    pub fn last_fault_before(&self, disk: DiskId) -> Option<String> {
        self.last_faults.borrow().get(&disk).cloned()
    }

    /// Blocks of which a disk's copy was found damaged, by volume and disk: at most the first 256 of each.
    pub fn met_blocks(&self) -> Vec<((VolumeId, DiskId), BTreeSet<Lba>)> {
        self.met.borrow().iter().map(|(key, blocks)| (*key, blocks.clone())).collect()
    }

    fn note_met(&self, volume: VolumeId, disk: DiskId, lbas: &[Lba]) {
        let mut met = self.met.borrow_mut();
        let known = met.entry((volume, disk)).or_default();
        for lba in lbas {
            if known.len() < MET_MAX {
                known.insert(*lba);
            }
        }
    }

    /// When [`Storage::tell_time`] is due at the latest.
    pub fn next_timeout(&self) -> Monotonic {
        let pools = self.pools.borrow();
        let spaces = pools.values().filter_map(|entry| entry.space.next_timeout());
        spaces.fold(self.supervise_at.get(), Monotonic::min)
    }

    fn note(&self, event: LocalEvent) {
        tracing::debug!(?event);
        match &event {
            LocalEvent::Volume(_, Event::Repaired { disk, blocks, .. }) => {
                self.damage.borrow_mut().entry(*disk).or_default().repaired_blocks += blocks;
            }
            LocalEvent::Volume(volume, Event::CorruptRead { disk, lbas, .. }) => {
                self.note_met(*volume, *disk, lbas);
            }
            LocalEvent::Volume(volume, Event::LostWrite { disk, chunk, blocks, lbas }) => {
                self.note_met(*volume, *disk, lbas);
                tracing::error!(%disk, %volume, ?chunk, blocks, "a disk lost writes that it had acknowledged");
                self.damage.borrow_mut().entry(*disk).or_default().lost_writes += blocks;
            }
            LocalEvent::Volume(volume, Event::WentBack { disk, promised, expected }) => {
                let why = "an older image of a disk was put back";
                tracing::error!(%disk, %volume, %promised, %expected, why);
            }
            LocalEvent::Volume(volume, Event::Unrepairable { lbas, .. }) => self.note_lost(*volume, lbas),
            LocalEvent::Volume(volume, Event::Compared { lba, found, lost, .. }) if found.copies > 0 => {
                self.forget_lost(*volume, *lba);
                self.note_lost(*volume, lost);
            }
            _ => {}
        }
        if let LocalEvent::Volume(volume, Event::DiskJoined { disk }) = &event {
            self.joined.borrow_mut().push((*volume, *disk));
        }
        let mut events = self.events.borrow_mut();
        if events.len() >= EVENTS_MAX {
            events.pop_front();
        }
        events.push_back((super::unix_seconds(), event));
    }

    /// Blocks that have no intact copy, by volume, and since when.
    fn note_lost(&self, volume: VolumeId, lbas: &[Lba]) {
        if lbas.is_empty() {
            return;
        }
        let mut lost = self.lost.borrow_mut();
        let (since_unix_s, known) = lost.entry(volume).or_insert_with(|| (0, BTreeSet::new()));
        if known.is_empty() {
            *since_unix_s = super::unix_seconds();
        }
        known.extend(lbas.iter().copied());
        while known.len() > LOST_MAX {
            known.pop_last();
        }
    }

    /// All blocks of this region have an intact copy.
    fn forget_lost(&self, volume: VolumeId, first: Lba) {
        if let Some((_, known)) = self.lost.borrow_mut().get_mut(&volume) {
            let end = Lba(first.0.saturating_add(REGION_BLOCKS));
            known.retain(|lba| *lba < first || *lba >= end);
        }
    }

    /// Blocks of the volume without an intact copy, as far as they were met (at most 4,096), as (first, count) in order. Known until they
    /// are found intact, or given back, by a comparison, which is made every minute.
    pub fn lost_ranges(&self, volume: VolumeId) -> Vec<(Lba, u64)> {
        let lost = self.lost.borrow();
        let known = lost.get(&volume).map(|(_, known)| known.iter()).into_iter().flatten();
        let mut ranges: Vec<(Lba, u64)> = Vec::new();
        for &lba in known {
            match ranges.last_mut() {
                Some((first, blocks)) if first.0 + *blocks == lba.0 => *blocks += 1,
                _ => ranges.push((lba, 1)),
            }
        }
        ranges
    }

    /// Blocks of the volume without an intact copy, as far as they were met, the first of them, and since when.
    pub fn lost_blocks(&self, volume: VolumeId) -> Option<(usize, Lba, u64)> {
        let lost = self.lost.borrow();
        let (since_unix_s, known) = lost.get(&volume)?;
        known.first().map(|first| (known.len(), *first, *since_unix_s))
    }

    /// Whether it is known that the block has no intact copy.
    pub fn is_lost(&self, volume: VolumeId, lba: Lba) -> bool {
        self.lost.borrow().get(&volume).is_some_and(|(_, known)| known.contains(&lba))
    }

    /// Has regions compared in which blocks were lost: their files may have been written again, or deleted.
    fn recheck_lost(&self) {
        let regions: Vec<(VolumeId, Lba)> = {
            let lost = self.lost.borrow();
            let region = |lba: &Lba| Lba(lba.0 / REGION_BLOCKS * REGION_BLOCKS);
            let of = |(id, (_, known)): (&VolumeId, &(u64, BTreeSet<Lba>))| {
                let regions: BTreeSet<Lba> = known.iter().map(region).collect();
                regions.into_iter().take(LOST_REGIONS).map(|lba| (*id, lba)).collect::<Vec<_>>()
            };
            lost.iter().flat_map(of).collect()
        };
        for (volume, lba) in regions {
            let pools = self.pools.borrow();
            let mapped =
                |entry: &PoolEntry| entry.space.with_volume(volume, |coordinator| coordinator.is_mapped(lba));
            match pools.values().find_map(|entry| Some((entry, mapped(entry)?))) {
                Some((entry, true)) => entry.space.compare(volume, lba),
                Some((_, false)) => self.forget_lost(volume, lba),
                None => {}
            }
        }
    }

    /// Closes what failed, and tries again to open what is not there.
    fn supervise(self: &Rc<Self>) {
        let now = self.now.get();
        if now >= self.recheck_lost_at.get() {
            self.recheck_lost_at.set(now.after(LOST_RECHECK));
            self.recheck_lost();
        }
        self.supervise_at.set(now.after(SUPERVISION));
        let mut failed = Vec::new();
        let mut due = Vec::new();
        for (&id, slot) in self.disks.borrow_mut().iter_mut() {
            match &slot.condition {
                Condition::Present(store) => {
                    let lost = slot.counters.lost.get();
                    if !lost && !store.with(Store::is_poisoned) {
                        store.retry();
                        continue;
                    }
                    slot.why = if lost { "it does not answer" } else { "a write failed" }.to_owned();
                    slot.fault = if lost { DiskState::Missing } else { DiskState::Failed };
                    tracing::error!(disk = %id, path = slot.record.path, why = slot.why, "a disk is taken out");
                    self.damage.borrow_mut().entry(id).or_default().add_store(store);
                    let retry_at = slot.openings.broke(now);
                    slot.change(Condition::Absent { retry_at });
                    failed.push((id, slot.record.pool));
                }
                Condition::Absent { retry_at } if *retry_at <= now => {
                    due.push((slot.record.clone(), slot.counters.clone()));
                    slot.condition = Condition::Opening { unanswered_since: Some(now) };
                    slot.openings.tried(now);
                }
                Condition::Opening { unanswered_since: Some(since) }
                    if slot.why.is_empty() && now.since(*since) >= self.disk_timeout =>
                {
                    // The kernel gives up when the device does; volumes are opened without it meanwhile.
                    slot.why = "it does not answer".to_owned();
                    tracing::error!(disk = %id, path = slot.record.path, why = slot.why, "a disk cannot be opened");
                }
                _ => {}
            }
        }
        for (id, pool) in failed {
            if let Some(space) = self.space(pool) {
                // The store's memory and file go here; what the kernel still does for it ends by itself.
                drop(space.detach_disk(id));
            }
        }
        for (record, counters) in due {
            let storage = self.clone();
            self.tasks.spawn(async move {
                let mut record = record;
                let mut result = storage.open_store(&record, counters.clone()).await;
                if result.is_err()
                    && let Some(path) = storage.find_disk(&record).await
                    && path != record.path
                {
                    tracing::warn!(disk = %record.id, from = record.path, to = path, "a disk has another path");
                    record.path = path;
                    result = storage.open_store(&record, counters).await;
                }
                let result = match result {
                    Ok(opened) => {
                        storage.refuse_newer_records(&record, opened.0.records()).await.map(|()| opened)
                    }
                    failed => failed,
                };
                storage.opened(&record, result);
            });
        }
    }

    /// Where else a disk is, by its label.
    async fn find_disk(&self, record: &DiskRecord) -> Option<String> {
        let (id, path, search) = (record.id, PathBuf::from(&record.path), self.search.clone());
        blocking(self.driver.waker(), move || crate::discovery::find(id, &path, &search)).await?
    }

    async fn open_store(
        &self,
        record: &DiskRecord,
        counters: Rc<Counters>,
    ) -> Result<(Store<CountedDisk>, TableState), String> {
        let (path, time_bound) = (record.path.clone(), self.disk_timeout);
        let opened = blocking(self.driver.waker(), move || {
            OpenedFile::open(&path, FileDiskOptions { time_bound, ..FileDiskOptions::default() })
        })
        .await
        .ok_or("no thread to open it on")?
        .map_err(|error| error.to_string())?;
        if let Some(slot) = self.disks.borrow_mut().get_mut(&record.id) {
            slot.condition = Condition::Opening { unanswered_since: None };
        }
        counters.lost.set(false);
        let disk = on_loop(&self.driver, opened, time_bound).map_err(|error| error.to_string())?;
        // The space, which computes the checksums, is in this process.
        let options =
            StoreOptions { pool: Some(record.pool), verify_writes: false, ..StoreOptions::default() };
        let mut opening = Opening::new(CountedDisk::new(disk, counters), options);
        let store = until(|| opening.poll()).await.map_err(|error| error.to_string())?;
        if store.label().disk != record.id {
            return Err(format!("another disk of the pool is there: {}", store.label().disk));
        }
        // The label is there, and the disk is ours alone: nothing else lies where the table does.
        let path = PathBuf::from(&record.path);
        let table =
            blocking(self.driver.waker(), move || look_after_table(&path, true)).await.unwrap_or_default();
        match &table {
            TableState::Whole => {}
            TableState::Repaired(what) => {
                tracing::warn!(path = record.path, "{what} was damaged, and was written again")
            }
            TableState::Damaged(what, why) => tracing::error!(path = record.path, "{what} is damaged: {why}"),
        }
        Ok((store, table))
    }

    fn opened(&self, record: &DiskRecord, result: Result<(Store<CountedDisk>, TableState), String>) {
        let attached = result.and_then(|(store, table)| {
            let store = PlaneStore(Rc::new(RefCell::new(store)));
            let space = self.space(record.pool).ok_or("its pool is not recorded")?;
            let domain = record.fault_domain.clone();
            if record.state == DiskState::Retired {
                space.set_retired(record.id, true);
            }
            space.attach_disk(record.id, store.clone(), domain).map_err(|error| error.to_string())?;
            Ok((store, table))
        });
        let mut disks = self.disks.borrow_mut();
        let Some(slot) = disks.get_mut(&record.id) else { return };
        match attached {
            Ok((store, table)) => {
                // What was repaired is told until the server starts anew.
                if !matches!((&slot.table, &table), (TableState::Repaired(_), TableState::Whole)) {
                    slot.table = table;
                }
                tracing::info!(disk = %record.id, path = record.path, "disk opened");
                slot.why.clear();
                slot.record.path.clone_from(&record.path);
                slot.fault = DiskState::Missing;
                self.arrivals.set(self.arrivals.get() + 1);
                slot.was_here = true;
                slot.change(Condition::Present(store));
                self.keeper.disk_came();
            }
            Err(why) => {
                if slot.why != why {
                    tracing::error!(disk = %record.id, path = record.path, why, "a disk cannot be opened");
                }
                slot.why = why;
                slot.condition = Condition::Absent { retry_at: slot.openings.ended(self.now.get()) };
            }
        }
    }

    /// A cluster state that is older than what a disk carries was restored from a copy, or the pool was imported elsewhere
    /// meanwhile: what it says of the copies in sync is no longer true, of the pool's other disks neither. Unless a volume is served already,
    /// nothing of the pool is used from then on: a disk with old data could be served as the newest, and the newest be written over.
    async fn refuse_newer_records(&self, record: &DiskRecord, carried: &[u8]) -> Result<(), String> {
        let (disk, pool) = (record.id, record.pool);
        let Ok(carried) = PoolImage::parse(carried) else { return Ok(()) };
        let was_here = self.disks.borrow().get(&disk).is_some_and(|slot| slot.was_here);
        let own = blocking(self.driver.waker(), self.keeper.own(pool, was_here)).await.flatten();
        let own = own.ok_or("what the state says of its pool cannot be read")?;
        if !carried.is_ahead_of(&own) {
            return self.why_superseded(pool).map_or(Ok(()), Err);
        }
        let name = own.records::<PoolRecord>().ok().and_then(|records| Some(records.first()?.name.clone()));
        let why = format!(
            "{} carries newer records of pool '{}' (by server {}) than this server's state: the state was restored from an \
             old copy, or the pool was imported elsewhere. Stop the server, move state.redb away, start it and import the \
             pool (`cenote pool import`)",
            record.path,
            name.unwrap_or_default(),
            carried.header.host
        );
        if self.space(pool).is_some_and(|space| space.forget_unserved()) {
            self.supersede(pool, &why);
        }
        Err(why)
    }

    /// Lets go of all disks of the pool, and of what else it has.
    fn supersede(&self, pool: PoolId, why: &str) {
        self.superseded.borrow_mut().entry(pool).or_insert_with(|| why.to_owned());
        let now = self.now.get();
        let mut present = Vec::new();
        for (&id, slot) in self.disks.borrow_mut().iter_mut().filter(|(_, slot)| slot.record.pool == pool) {
            if slot.store().is_some() {
                slot.why = why.to_owned();
                slot.condition = Condition::Absent { retry_at: slot.openings.broke(now) };
                present.push(id);
            }
        }
        if let Some(space) = self.space(pool) {
            present.into_iter().for_each(|disk| drop(space.detach_disk(disk)));
        }
    }

    /// Asks every disk of the pool to give back what it has of a volume that no longer exists. `true`: all are there, and none
    /// has anything of it. To be called again until then.
    pub fn free_chunks(&self, volume: VolumeId, pool: PoolId) -> bool {
        let disks = self.disks.borrow();
        let mut free = true;
        for slot in disks.values().filter(|slot| slot.record.pool == pool) {
            let Some(store) = slot.store() else {
                free = false;
                continue;
            };
            let mut store = store.0.borrow_mut();
            let epoch = store.promised(volume);
            let chunks: Vec<_> = store.chunks().into_iter().filter(|chunk| chunk.volume == volume).collect();
            free &= chunks.is_empty();
            if store.is_poisoned() || !slot.may_free(self.now.get()) {
                continue;
            }
            for chunk in chunks {
                // Whether it was done shows in the list of chunks the next time: the answer is nobody's.
                store.submit(FREE_TOKEN, StoreRequest::FreeChunk { volume, epoch, chunk: chunk.chunk });
            }
        }
        free
    }

    /// Every recorded disk has been tried.
    pub fn disks_settled(&self) -> bool {
        !self.disks.borrow().values().any(|slot| match &slot.condition {
            Condition::Opening { .. } | Condition::Absent { .. } => slot.why.is_empty(),
            Condition::Present(_) => false,
        })
    }
}
