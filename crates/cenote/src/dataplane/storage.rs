//! The storage side of the data plane: the disks of all pools with their stores, and one space for each pool.
//!
//! Owns what opens disks and looks after them: a disk that cannot be reached is looked for again, a store that failed is closed
//! and opened anew, which verifies it (I9). Promises: nothing here blocks; what does runs on helper threads.

use super::backoff::Backoff;
use super::disks::{CountedDisk, Counters, on_loop};
use super::records::{Keeper, KeptClient};
use super::tasks::{Tasks, blocking, until};
use cluster::{DiskRecord, DiskState, PoolRecord, RedbState, StateError};
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
const LOST_MAX: usize = 4096;

/// A disk's store, as a replica needs it; shared with whoever looks after the disk.
#[derive(Clone)]
pub struct PlaneStore(Rc<RefCell<Store<CountedDisk>>>);

impl PlaneStore {
    pub fn with<T>(&self, look: impl FnOnce(&Store<CountedDisk>) -> T) -> T {
        look(&self.0.borrow())
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
    Opening,
    Absent {
        retry_at: Monotonic,
    },
}

/// A disk that belongs to a pool.
pub struct DiskSlot {
    pub record: DiskRecord,
    pub counters: Rc<Counters>,
    pub condition: Condition,
    /// Why it is not there; empty where it is, or was not tried yet.
    pub why: String,
    /// Since when the condition holds, in Unix seconds.
    pub since_unix_s: u64,
    /// What failed it last.
    pub fault: DiskState,
    /// State and path as the cluster state has them.
    pub recorded: (DiskState, String),
    /// A task works on its record.
    pub busy: bool,
    /// Writes that it was asked for so far, and for how many seconds there were no others.
    pub idle: (u64, u32),
    /// Why its state cannot be written down, and since when (Unix seconds).
    pub unrecorded: Option<(String, u64)>,
    pub recordings: Backoff,
    openings: Backoff,
    free_again_at: Cell<Monotonic>,
}

impl DiskSlot {
    fn new(record: DiskRecord) -> Self {
        let condition = Condition::Absent { retry_at: Monotonic(0) };
        let since_unix_s = super::unix_seconds();
        let (counters, why) = (Rc::default(), String::new());
        let recorded = (record.state, record.path.clone());
        Self {
            record,
            fault: DiskState::Missing,
            recorded,
            busy: false,
            idle: (0, 0),
            counters,
            condition,
            why,
            since_unix_s,
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
    repaired: RefCell<BTreeMap<DiskId, u64>>,
    /// Blocks without an intact copy, by volume, and since when (Unix seconds) there are any.
    lost: RefCell<BTreeMap<VolumeId, (u64, BTreeSet<Lba>)>>,
    /// Disks that were brought up to date since the list of jobs was last brought up to date.
    pub joined: RefCell<Vec<(VolumeId, DiskId)>>,
    space_config: Config,
    supervise_at: Cell<Monotonic>,
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
            repaired: RefCell::default(),
            lost: RefCell::default(),
            joined: RefCell::default(),
            space_config,
            supervise_at: Cell::new(now),
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
        if self.keeper.begin() {
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

    /// Blocks of the disk that were written again from another copy, as far as events tell.
    pub fn repaired_blocks(&self, disk: DiskId) -> u64 {
        self.repaired.borrow().get(&disk).copied().unwrap_or(0)
    }

    /// When [`Storage::tell_time`] is due at the latest.
    pub fn next_timeout(&self) -> Monotonic {
        let pools = self.pools.borrow();
        let spaces = pools.values().filter_map(|entry| entry.space.next_timeout());
        spaces.fold(self.supervise_at.get(), Monotonic::min)
    }

    fn note(&self, event: LocalEvent) {
        tracing::debug!(?event);
        if let LocalEvent::Volume(_, Event::Repaired { disk, blocks, .. }) = &event {
            *self.repaired.borrow_mut().entry(*disk).or_default() += blocks;
        }
        match &event {
            LocalEvent::Volume(volume, Event::Unrepairable { lbas, .. }) => self.note_lost(*volume, lbas),
            LocalEvent::Volume(volume, Event::Compared { lba, found })
                if found.copies > 0 && found.lost == 0 =>
            {
                self.forget_lost(*volume, *lba);
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

    /// Blocks of the volume without an intact copy, as far as they were met, the first of them, and since when.
    pub fn lost_blocks(&self, volume: VolumeId) -> Option<(usize, Lba, u64)> {
        let lost = self.lost.borrow();
        let (since_unix_s, known) = lost.get(&volume)?;
        known.first().map(|first| (known.len(), *first, *since_unix_s))
    }

    /// Closes what failed, and tries again to open what is not there.
    fn supervise(self: &Rc<Self>) {
        let now = self.now.get();
        self.supervise_at.set(now.after(SUPERVISION));
        let mut failed = Vec::new();
        let mut due = Vec::new();
        for (&id, slot) in self.disks.borrow_mut().iter_mut() {
            match &slot.condition {
                Condition::Present(store) => {
                    let lost = slot.counters.lost.get();
                    if !lost && !store.with(Store::is_poisoned) {
                        continue;
                    }
                    slot.why = if lost { "it does not answer" } else { "a write failed" }.to_owned();
                    slot.fault = if lost { DiskState::Missing } else { DiskState::Failed };
                    tracing::error!(disk = %id, path = slot.record.path, why = slot.why, "a disk is taken out");
                    let retry_at = slot.openings.broke(now);
                    slot.change(Condition::Absent { retry_at });
                    failed.push((id, slot.record.pool));
                }
                Condition::Absent { retry_at } if *retry_at <= now => {
                    due.push((slot.record.clone(), slot.counters.clone()));
                    slot.condition = Condition::Opening;
                    slot.openings.tried(now);
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
    ) -> Result<Store<CountedDisk>, String> {
        let (path, time_bound) = (record.path.clone(), self.disk_timeout);
        let opened = blocking(self.driver.waker(), move || {
            OpenedFile::open(&path, FileDiskOptions { time_bound, ..FileDiskOptions::default() })
        })
        .await
        .ok_or("no thread to open it on")?
        .map_err(|error| error.to_string())?;
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
        Ok(store)
    }

    fn opened(&self, record: &DiskRecord, result: Result<Store<CountedDisk>, String>) {
        let attached = result.and_then(|store| {
            self.refuse_newer_records(record, store.records())?;
            let store = PlaneStore(Rc::new(RefCell::new(store)));
            let space = self.space(record.pool).ok_or("its pool is not recorded")?;
            let domain = record.fault_domain.clone();
            if record.state == DiskState::Retired {
                space.set_retired(record.id, true);
            }
            space.attach_disk(record.id, store.clone(), domain).map_err(|error| error.to_string())?;
            Ok(store)
        });
        let mut disks = self.disks.borrow_mut();
        let Some(slot) = disks.get_mut(&record.id) else { return };
        match attached {
            Ok(store) => {
                tracing::info!(disk = %record.id, path = record.path, "disk opened");
                slot.why.clear();
                slot.record.path.clone_from(&record.path);
                slot.fault = DiskState::Missing;
                self.arrivals.set(self.arrivals.get() + 1);
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
    /// meanwhile: what it says of the copies in sync is no longer true.
    fn refuse_newer_records(&self, record: &DiskRecord, carried: &[u8]) -> Result<(), String> {
        let Ok(header) = cluster::image::parse_header(carried) else { return Ok(()) };
        let pools = self.pools.borrow();
        let pool = &pools.get(&record.pool).ok_or("its pool is not recorded")?.record;
        let own = (pool.generation, self.keeper.revision());
        let other = (header.version.generation, header.version.revision);
        if header.pool != pool.id || (other <= own && (other.0 < own.0 || header.history == pool.history)) {
            return Ok(());
        }
        Err(format!(
            "it carries newer records of pool '{}' (by server {}) than this server's state: the state was restored from an \
             old copy, or the pool was imported elsewhere. Stop the server, move state.redb away, start it and import the \
             pool (`cenote pool import`)",
            pool.name, header.host
        ))
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
            Condition::Opening => true,
            Condition::Absent { .. } => slot.why.is_empty(),
            Condition::Present(_) => false,
        })
    }
}
