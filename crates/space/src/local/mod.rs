//! One server's space in one process: its stores, replicas and coordinators, and a [`VirtualDisk`]
//! for each volume.
//!
//! Owns the disks' stores and one coordinator for each volume that is open here. Promises to drive
//! all of them whenever one is polled. In a cluster it also reaches other nodes' disks and serves
//! them its own ([`nodes`]). Never reads a clock: its caller passes the time.

mod bus;
pub mod epochs;
pub mod nodes;

use crate::api::{SpaceCompletion, SpaceError, SpaceRequest, SpaceSize, VirtualDisk};
use crate::block_store::BlockStore;
use crate::coordinator::{Config, Coordinator, Counters, Event, JobStatus, Phase, StateToken};
use crate::message::{BusError, PeerId, RequestId, Response, Waiting};
use crate::replica::Replica;
use bus::Bus;
use epochs::{Decisions, Epochs};
use pool::{Disk, PoolView, Route};
use records::{ClusterState, FaultDomain, JobKind, Record, StateCompletion, VolumeRecord};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;
use store::api::{ScrubProgress, StoreCompletion, StoreReply, StoreRequest};
use types::{BlockCount, DiskId, Epoch, Lba, Monotonic, NodeId, VolumeId};

/// Tokens of the space's own requests to stores.
const RECORDS_TOKEN: u64 = 1;
const SCRUB_TOKEN: u64 = 2;
/// Interval below which coordinators that get the time check only work that is due.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

struct Volume {
    coordinator: Coordinator,
    completions: Vec<SpaceCompletion>,
    /// Dead once the volume's handle is dropped: nothing takes the completions any more.
    handle: Weak<()>,
}

/// State of a disk of the space, for its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskStatus {
    pub disk: DiskId,
    /// Whether the disk's store is open, or the disk is on another node.
    pub attached: bool,
    pub total_slabs: u64,
    pub free_slabs: u64,
    pub retired: bool,
}

/// An event of a volume or of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalEvent {
    Volume(VolumeId, Event),
    /// A scrub of the disk made progress.
    Scrubbed {
        disk: DiskId,
        checked_bytes: u64,
        total_bytes: u64,
        corrupt: u64,
        finished: bool,
    },
    /// Another node named an epoch that the volume's record, at `recorded`, never gave it. The
    /// request was refused.
    EpochRefused {
        volume: VolumeId,
        disk: DiskId,
        node: NodeId,
        epoch: Epoch,
        recorded: Option<Epoch>,
    },
    /// The disk's copy of the records could not be written.
    RecordsNotKept {
        disk: DiskId,
        why: String,
    },
}

struct Inner<S, C> {
    bus: Bus<S>,
    volumes: BTreeMap<VolumeId, Volume>,
    state: C,
    /// Requests in flight to the cluster state: its token, with volume and coordinator's token.
    asked: BTreeMap<u64, (VolumeId, StateToken)>,
    next_token: u64,
    /// The table of disks, which coordinators read.
    pool: Rc<RefCell<PoolView>>,
    /// End of the time for which this node may answer for its volumes.
    lease_until: Monotonic,
    epochs: Epochs,
    /// Requests passed to their disks that begin sessions.
    begun: Vec<(PeerId, RequestId)>,
    config: Config,
    chunk_blocks: u32,
    now: Monotonic,
    events: VecDeque<LocalEvent>,
    /// Whether no request has come since the last pump ran out of work.
    quiet: bool,
    /// Whether a volume has a request that no pump has carried yet.
    unsent: bool,
    /// Whether coordinators were changed from outside, so that they check everything at the next
    /// time they get.
    changed: bool,
    /// Time of the last such check.
    looked_at: Monotonic,
    responses: Vec<Response>,
    waiting: Vec<Waiting>,
    answers: Vec<StateCompletion>,
    owner_answers: Vec<StoreCompletion>,
}

/// The disks and volumes of one server. A clone is another handle to the same space.
pub struct LocalSpace<S, C> {
    inner: Rc<RefCell<Inner<S, C>>>,
}

impl<S, C> Clone for LocalSpace<S, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<S: BlockStore, C: ClusterState> LocalSpace<S, C> {
    /// Returns the whole for a change: the next pump, and the next call with a time, check
    /// everything.
    fn change(&self) -> RefMut<'_, Inner<S, C>> {
        let mut inner = self.inner.borrow_mut();
        inner.quiet = false;
        inner.changed = true;
        inner
    }

    /// Makes a space without disks or volumes. All disks will have slabs of `chunk_blocks`.
    pub fn new(state: C, config: Config, chunk_blocks: u32, reserve_disks: u32, now: Monotonic) -> Self {
        let pool = Rc::new(RefCell::new(PoolView::new(Vec::new(), reserve_disks)));
        let inner = Inner {
            bus: Bus::new(pool.clone()),
            volumes: BTreeMap::new(),
            state,
            asked: BTreeMap::new(),
            next_token: 0,
            pool,
            lease_until: Monotonic::default(),
            epochs: Epochs::default(),
            begun: Vec::new(),
            config,
            chunk_blocks,
            now,
            events: VecDeque::new(),
            quiet: false,
            unsent: false,
            changed: true,
            looked_at: now,
            responses: Vec::new(),
            waiting: Vec::new(),
            answers: Vec::new(),
            owner_answers: Vec::new(),
        };
        Self { inner: Rc::new(RefCell::new(inner)) }
    }

    /// Attaches a disk: at the start, when it is added to the pool, or when it is back. Unless it
    /// is retired, all volumes may have slabs of it, also those whose record does not name it yet
    /// because of a crash in between.
    ///
    /// # Errors
    /// [`SpaceError::Invalid`] if its slabs have another size than the pool's.
    pub fn attach_disk(&self, disk: DiskId, store: S, domain: FaultDomain) -> Result<(), SpaceError> {
        let mut inner = self.change();
        if store.slab_blocks() != inner.chunk_blocks {
            return Err(SpaceError::Invalid("the disk's slabs have another size than the pool's"));
        }
        let (was_given_up, is_retired) = inner.pool.borrow_mut().change(disk, |known| {
            (known.domain, known.route) = (domain, Route::Local);
            (std::mem::take(&mut known.is_given_up), known.is_retired)
        });
        inner.bus.attach(disk, Replica::new(disk, store));
        inner.refresh_pool();
        for volume in inner.volumes.values_mut() {
            if was_given_up {
                volume.coordinator.plan_soon();
            }
            if !is_retired {
                volume.coordinator.add_disk(disk);
            }
        }
        Ok(())
    }

    /// Makes a disk unreachable, as if it was pulled, and returns its store.
    pub fn detach_disk(&self, disk: DiskId) -> Option<S> {
        let mut inner = self.change();
        let replica = inner.bus.detach(disk)?;
        inner.pool.borrow_mut().change(disk, |known| known.route = Route::Away);
        inner.refresh_pool();
        Some(replica.into_store())
    }

    /// Forgets a disk that no volume depends on any more, and returns its store.
    pub fn remove_disk(&self, disk: DiskId) -> Option<S> {
        let mut inner = self.change();
        let replica = inner.bus.remove(disk);
        let removed = inner.pool.borrow_mut().remove(disk);
        if removed.is_some_and(|known| known.is_given_up) {
            inner.volumes.values_mut().for_each(|volume| volume.coordinator.plan_soon());
        }
        inner.refresh_pool();
        replica.map(Replica::into_store)
    }

    /// Reserves this many disks' worth of space for repair from now on.
    pub fn set_reserve_disks(&self, reserve_disks: u32) {
        let mut inner = self.change();
        inner.pool.borrow_mut().set_reserve_disks(reserve_disks);
        inner.refresh_pool();
    }

    /// Updates the disks' free slabs.
    pub fn refresh(&self) {
        self.change().refresh_pool();
    }

    /// Returns the pool's fill for thin volumes: slabs allocated or promised on its usable disks,
    /// and all that may be, without the reserve.
    pub fn fill(&self) -> (u64, u64) {
        let inner = self.inner.borrow();
        let pool = inner.pool.borrow();
        let usable = || pool.disks().filter(|disk| disk.is_usable());
        let used: u64 = usable().map(Disk::used_slabs).sum();
        let total: u64 = usable().map(|disk| disk.total_slabs).sum();
        (used + pool.promised_slabs, total.saturating_sub(pool.reserve_slabs))
    }

    /// Returns the number of chunks, of this many copies, that thin volumes can still get.
    pub fn available_chunks(&self, copies: u8) -> u64 {
        self.inner.borrow().pool.borrow().available_chunks(copies)
    }

    /// Reserves the slabs that fixed volumes do not have yet, with `more` beyond those of the open
    /// ones.
    pub fn keep_promises(&self, more: u64) {
        let inner = self.inner.borrow();
        let promised: u64 = inner.volumes.values().map(|volume| volume.coordinator.promised_slabs()).sum();
        inner.pool.borrow_mut().promised_slabs = promised + more;
    }

    /// Lets all volumes have slabs of the disk from now on.
    pub fn add_disk(&self, disk: DiskId) {
        let mut inner = self.change();
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.add_disk(disk));
        inner.pump();
    }

    /// Moves the disk's chunks to other disks ([`LocalSpace::is_free`] tells when none is left);
    /// `false` cancels that.
    pub fn set_retired(&self, disk: DiskId, retired: bool) {
        let mut inner = self.change();
        let was_retired =
            inner.pool.borrow_mut().change(disk, |known| std::mem::replace(&mut known.is_retired, retired));
        inner.refresh_pool();
        for volume in inner.volumes.values_mut() {
            if was_retired && !retired {
                volume.coordinator.add_disk(disk);
            }
            volume.coordinator.plan_soon();
        }
        inner.pump();
    }

    /// Notes that the disk will not come back with its data. Its chunks are rebuilt on others
    /// without the delay for an absent disk, until it is attached again.
    pub fn give_up_disk(&self, disk: DiskId) {
        let mut inner = self.change();
        let was_given_up =
            inner.pool.borrow_mut().change(disk, |known| std::mem::replace(&mut known.is_given_up, true));
        if !was_given_up {
            inner.volumes.values_mut().for_each(|volume| volume.coordinator.plan_soon());
        }
    }

    /// Whether the copies of all volumes that are open here, or being opened, agree again after a
    /// crash. Before that, a scrub would report as damage the writes that the crash tore.
    pub fn is_reconciled(&self) -> bool {
        self.inner.borrow().volumes.values().all(|volume| volume.coordinator.is_reconciled())
    }

    /// Whether no open volume depends on the disk.
    pub fn is_free(&self, disk: DiskId) -> bool {
        self.inner.borrow().volumes.values().all(|volume| volume.coordinator.is_free_of(disk))
    }

    pub fn disks(&self) -> Vec<DiskStatus> {
        let inner = self.inner.borrow();
        let pool = inner.pool.borrow();
        pool.disks()
            .map(|disk| DiskStatus {
                disk: disk.id,
                attached: disk.is_attached(),
                total_slabs: disk.total_slabs,
                free_slabs: disk.free_slabs,
                retired: disk.is_retired,
            })
            .collect()
    }

    /// Begins to open a volume whose record is in the cluster state. `incarnation` is random and not 0.
    pub fn open_volume(&self, volume: VolumeId, incarnation: u128) -> VolumeHandle<S, C> {
        self.open_with(volume, incarnation, |_| {})
    }

    fn open_with(
        &self,
        volume: VolumeId,
        incarnation: u128,
        prepare: impl FnOnce(&mut Coordinator),
    ) -> VolumeHandle<S, C> {
        let mut inner = self.change();
        let (config, pool) = (inner.config.clone(), inner.pool.clone());
        let mut coordinator =
            Coordinator::new(volume, incarnation, config, inner.chunk_blocks, pool, inner.now);
        let down: Vec<DiskId> = {
            let pool = inner.pool.borrow();
            let usable = pool.disks().filter(|disk| disk.is_attached() && !disk.is_retired);
            usable.for_each(|disk| coordinator.add_disk(disk.id));
            pool.disks().filter(|disk| disk.is_down()).map(|disk| disk.id).collect()
        };
        coordinator.set_lease(inner.lease_until);
        coordinator.disks_down(inner.now, &down);
        prepare(&mut coordinator);
        let alive = Rc::new(());
        let handle = Rc::downgrade(&alive);
        inner.volumes.insert(volume, Volume { coordinator, completions: Vec::new(), handle });
        inner.pump();
        VolumeHandle { inner: self.inner.clone(), volume, _alive: alive }
    }

    /// Closes a volume and leaves its record settled; its phase is then [`Phase::Closed`].
    pub fn close_volume(&self, volume: VolumeId) {
        let mut inner = self.change();
        let now = inner.now;
        if let Some(volume) = inner.volumes.get_mut(&volume) {
            volume.coordinator.close(now);
        }
        inner.pump();
    }

    /// Forgets a volume that is closed, stopped or deleted. Its events that were not polled yet are kept.
    pub fn forget_volume(&self, volume: VolumeId) {
        self.inner.borrow_mut().forget(volume);
    }

    /// Forgets all volumes, unless one of them is served. Returns whether it did.
    pub fn forget_unserved(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let is_served =
            |volume: &Volume| matches!(volume.coordinator.phase(), Phase::Serving | Phase::Closing);
        if inner.volumes.values().any(is_served) {
            return false;
        }
        let unserved: Vec<VolumeId> = inner.volumes.keys().copied().collect();
        unserved.into_iter().for_each(|volume| inner.forget(volume));
        true
    }

    /// Reads or changes a volume's coordinator.
    pub fn with_volume<R>(&self, volume: VolumeId, look: impl FnOnce(&mut Coordinator) -> R) -> Option<R> {
        let mut inner = self.change();
        let found = inner.volumes.get_mut(&volume).map(|volume| look(&mut volume.coordinator));
        inner.pump();
        found
    }

    pub fn phase(&self, volume: VolumeId) -> Option<Phase> {
        self.with_volume(volume, |coordinator| coordinator.phase().clone())
    }

    pub fn record(&self, volume: VolumeId) -> Option<VolumeRecord> {
        self.with_volume(volume, |coordinator| coordinator.record().clone())
    }

    pub fn counters(&self, volume: VolumeId) -> Option<Counters> {
        self.with_volume(volume, |coordinator| coordinator.counters())
    }

    pub fn jobs(&self) -> Vec<(VolumeId, JobStatus)> {
        let inner = self.inner.borrow();
        let volumes = inner.volumes.iter();
        volumes
            .flat_map(|(&id, volume)| volume.coordinator.jobs().into_iter().map(move |job| (id, job)))
            .collect()
    }

    /// Stops jobs of a kind on a volume at once.
    pub fn suspend_job(&self, volume: VolumeId, kind: JobKind) {
        self.with_volume(volume, |coordinator| coordinator.suspend(kind));
    }

    pub fn resume_job(&self, volume: VolumeId, kind: JobKind) {
        self.with_volume(volume, |coordinator| coordinator.resume(kind));
    }

    /// Moves chunks until the disks are evenly full. Returns the number of planned moves.
    pub fn rebalance(&self) -> usize {
        let mut inner = self.change();
        let chunks: Vec<_> =
            inner.volumes.values().flat_map(|volume| volume.coordinator.chunk_copies()).collect();
        let plan = pool::rebalance_plan(&inner.pool.borrow(), &chunks, chunks.len() * 3);
        let count = plan.len();
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.rebalance(plan.clone()));
        inner.pump();
        count
    }

    /// Returns the space that the other disks lack for all data of the disk and of those being
    /// retired. Chunks of volumes that are not open here count only by their number.
    pub fn shortage_without(&self, disk: DiskId) -> pool::Shortage {
        let inner = self.inner.borrow();
        let volumes = inner.volumes.values();
        let chunks: Vec<_> = volumes.flat_map(|volume| volume.coordinator.chunk_copies()).collect();
        let pool = inner.pool.borrow();
        let attached = pool.disks().filter(|disk| disk.is_attached());
        let emptying: Vec<DiskId> = attached.filter(|disk| disk.is_retired).map(|disk| disk.id).collect();
        pool::shortage_without(&pool, &chunks, disk, &emptying)
    }

    /// Verifies the next `bytes` of a disk. Corrupt blocks are read from other copies and repaired.
    /// An event has the result.
    pub fn scrub(&self, disk: DiskId, bytes: u64) {
        if let Some(replica) = self.change().bus.replica_mut(disk) {
            replica.submit_owner(SCRUB_TOKEN, StoreRequest::Scrub { bytes });
        }
    }

    /// Makes all volumes verify the disk, in the background, for silently lost writes.
    pub fn verify(&self, disk: DiskId) {
        let mut inner = self.change();
        let now = inner.now;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.verify(now, disk));
        inner.pump();
    }

    /// Compares the copies of a region. An event has the result.
    pub fn compare(&self, volume: VolumeId, lba: Lba) {
        let now = self.inner.borrow().now;
        self.with_volume(volume, |coordinator| coordinator.compare(now, lba));
    }

    /// Makes the copies of a region equal.
    pub fn equalize(&self, volume: VolumeId, lba: Lba) {
        let now = self.inner.borrow().now;
        self.with_volume(volume, |coordinator| coordinator.equalize(now, lba));
    }

    /// Gives every attached disk this copy of the cluster's records (D8): at most 256 KiB.
    pub fn keep_records(&self, records: &[u8]) {
        for (_, replica) in self.change().bus.replicas_mut() {
            replica.submit_owner(RECORDS_TOKEN, StoreRequest::SetRecords { records: records.to_vec() });
        }
    }

    /// Runs ready work, as [`VirtualDisk::poll`] of any volume does. `true`: there was some, or
    /// answers wait to be polled, so the caller must call again before it sleeps.
    pub fn poll(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        // A volume that is closed after its handle is dropped still answers its requests: waiting
        // for a poll of these would never end. Nor would it for a stopped volume, whose holder may
        // know that and poll no more.
        let is_over =
            |volume: &Volume| matches!(volume.coordinator.phase(), Phase::Stopped(_) | Phase::Closed);
        let is_awaited = |volume: &Volume| {
            !volume.completions.is_empty() && volume.handle.strong_count() > 0 && !is_over(volume)
        };
        inner.pump() || inner.bus.has_peer_answers() || inner.volumes.values().any(is_awaited)
    }

    /// Whether a volume got requests since the last poll. Only the next poll sends them to the
    /// disks.
    pub fn has_unsent(&self) -> bool {
        self.inner.borrow().unsent
    }

    pub fn poll_event(&self) -> Option<LocalEvent> {
        let mut inner = self.inner.borrow_mut();
        let mut found = Vec::new();
        for (&id, volume) in &mut inner.volumes {
            while let Some(event) = volume.coordinator.poll_event() {
                found.push(LocalEvent::Volume(id, event));
            }
        }
        inner.events.extend(found);
        inner.events.pop_front()
    }

    /// Advances the time. Call at [`LocalSpace::next_timeout`] at the latest, and before requests
    /// of a new time.
    pub fn handle_timeout(&self, now: Monotonic) {
        let mut inner = self.inner.borrow_mut();
        inner.now = inner.now.max(now);
        let now = inner.now;
        let look = std::mem::take(&mut inner.changed) || now >= inner.looked_at.after(LOOK_INTERVAL);
        if look {
            inner.looked_at = now;
        }
        let mut due = look;
        for volume in inner.volumes.values_mut() {
            if look {
                volume.coordinator.handle_timeout(now);
            } else {
                due |= volume.coordinator.tell_time(now);
            }
        }
        inner.quiet &= !due;
        inner.pump();
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.inner.borrow().volumes.values().filter_map(|volume| volume.coordinator.next_timeout()).min()
    }
}

impl<S: BlockStore, C: ClusterState> Inner<S, C> {
    fn forget(&mut self, id: VolumeId) {
        let Some(mut volume) = self.volumes.remove(&id) else { return };
        while let Some(event) = volume.coordinator.poll_event() {
            // The caller knows that the coordinator stopped, and may have reopened the volume
            // before it polls this event.
            if !matches!(event, Event::Stopped { .. }) {
                self.events.push_back(LocalEvent::Volume(id, event));
            }
        }
    }

    /// Updates the slabs of this node's disks.
    fn refresh_pool(&mut self) {
        let slabs = self.bus.replicas().map(|(disk, replica)| (disk, replica.store().slabs()));
        self.pool.borrow_mut().set_slabs(slabs);
    }

    /// Carries messages between coordinators, replicas and the state until none is left. `true`:
    /// there was one.
    fn pump(&mut self) -> bool {
        let mut moved_any = false;
        self.unsent = false;
        if self.quiet && self.asked.is_empty() && !self.epochs.is_reading() && !self.bus.has_news() {
            return false;
        }
        self.quiet = true;
        loop {
            let mut moved = false;
            for (&id, volume) in &mut self.volumes {
                while let Some((disk, request)) = volume.coordinator.poll_send() {
                    self.bus.send(disk, request);
                    moved = true;
                }
                while let Some((token, request)) = volume.coordinator.poll_state() {
                    self.next_token += 1;
                    self.asked.insert(self.next_token, (id, token));
                    self.state.submit(self.next_token, request);
                    moved = true;
                }
            }
            self.bus.poll_waiting(&mut self.waiting);
            for waiting in self.waiting.drain(..) {
                if let Some(volume) = self.volumes.get_mut(&waiting.volume) {
                    volume.coordinator.note_waiting(self.now, waiting);
                }
            }
            self.bus.poll(&mut self.responses);
            for response in self.responses.drain(..) {
                if let Some(volume) = self.volumes.get_mut(&response.volume) {
                    volume.coordinator.handle_response(self.now, response);
                    moved = true;
                }
            }
            self.state.poll(&mut self.answers);
            for StateCompletion { token, answer } in std::mem::take(&mut self.answers) {
                if let Some(decisions) = self.epochs.answered(token, &answer) {
                    self.apply_decisions(decisions);
                    moved = true;
                    continue;
                }
                let Some((id, token)) = self.asked.remove(&token) else { continue };
                if let Some(volume) = self.volumes.get_mut(&id) {
                    volume.coordinator.handle_state(self.now, token, answer);
                    moved = true;
                }
            }
            moved |= self.poll_owners();
            for volume in self.volumes.values_mut() {
                volume.coordinator.poll(&mut volume.completions);
            }
            if !moved {
                return moved_any;
            }
            moved_any = true;
        }
    }

    /// Reads a volume's record, for the decision on requests of other nodes.
    fn read_for_epochs(&mut self, volume: VolumeId) {
        self.next_token += 1;
        self.epochs.begin_reading(self.next_token, volume);
        let key = VolumeRecord::key_of(&volume.to_string());
        self.state.submit(self.next_token, records::Request::Get { key });
    }

    fn apply_decisions(&mut self, decisions: Decisions) {
        let Decisions { admitted, refused, recorded, again } = decisions;
        for asked in admitted {
            self.admit(asked);
        }
        for (asked, error) in refused {
            let (disk, volume) = (asked.disk, asked.request.volume);
            if error != BusError::NoSession {
                let (node, epoch) = (asked.from, asked.request.epoch);
                self.events.push_back(LocalEvent::EpochRefused { volume, disk, node, epoch, recorded });
            }
            self.bus.refuse_peer(asked.peer, disk, &asked.request, error);
        }
        if let Some(volume) = again {
            self.read_for_epochs(volume);
        }
    }

    fn poll_owners(&mut self) -> bool {
        let mut found = Vec::new();
        for (disk, replica) in self.bus.replicas_mut() {
            replica.poll_owner(&mut self.owner_answers);
            found.extend(self.owner_answers.drain(..).map(|answer| (disk, answer)));
        }
        let moved = !found.is_empty();
        found.into_iter().for_each(|(disk, answer)| self.owner_answered(disk, answer));
        moved
    }

    /// Handles a disk's answer to a request of the space itself.
    fn owner_answered(&mut self, disk: DiskId, StoreCompletion { token, result }: StoreCompletion) {
        match (token, result) {
            (SCRUB_TOKEN, Ok(StoreReply::Scrubbed(progress))) => {
                let ScrubProgress { checked_bytes, total_bytes, corrupt, finished } = progress;
                let count = corrupt.len() as u64;
                for (volume, lba) in corrupt {
                    self.found_corrupt(disk, volume, lba);
                }
                let event =
                    LocalEvent::Scrubbed { disk, checked_bytes, total_bytes, corrupt: count, finished };
                self.events.push_back(event);
            }
            (RECORDS_TOKEN, Err(error)) => {
                self.events.push_back(LocalEvent::RecordsNotKept { disk, why: error.to_string() });
            }
            _ => {}
        }
    }
}

/// One volume's virtual disk.
pub struct VolumeHandle<S, C> {
    inner: Rc<RefCell<Inner<S, C>>>,
    volume: VolumeId,
    /// Alive while the volume's completions are polled.
    _alive: Rc<()>,
}

impl<S: BlockStore, C: ClusterState> VirtualDisk for VolumeHandle<S, C> {
    fn size(&self) -> SpaceSize {
        let inner = self.inner.borrow();
        let chunk_blocks = inner.chunk_blocks;
        let nothing = SpaceSize { blocks: BlockCount(0), available: BlockCount(0), chunk_blocks };
        inner.volumes.get(&self.volume).map_or(nothing, |volume| volume.coordinator.size())
    }

    fn submit(&mut self, token: u64, request: SpaceRequest) {
        let mut inner = self.inner.borrow_mut();
        let now = inner.now;
        (inner.quiet, inner.unsent) = (false, true);
        if let Some(volume) = inner.volumes.get_mut(&self.volume) {
            volume.coordinator.submit(now, token, request);
        }
    }

    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        let mut inner = self.inner.borrow_mut();
        inner.pump();
        if let Some(volume) = inner.volumes.get_mut(&self.volume) {
            out.append(&mut volume.completions);
        }
    }
}
