//! Nodes and their disks.

use pool::PoolView;
use space::block_store::BlockStore;
use space::coordinator::{Coordinator, StateToken};
use space::fake_store::{FakeImage, FakeStore};
use space::message::{RequestId, SessionId};
use space::replica::Replica;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use store::api::{StoreCompletion, StoreRequest};
use store::{FormatParameters, Store};
use types::{DiskId, Epoch, PoolId, VolumeId};

use disk::crash::{CrashDisk, CrashOptions};

/// A store of the simulation: in memory, or the real one on a disk that loses power.
pub(crate) enum AnyStore {
    Fake(FakeStore),
    Real(Box<Store<CrashDisk>>),
}

/// Violations that [`WatchedStore`] found.
pub(crate) type Findings = Rc<RefCell<Vec<String>>>;

/// A store whose answers are checked against its promises (I3).
pub(crate) struct WatchedStore {
    store: AnyStore,
    /// Requests that a promise forbids: token to (epoch, promised).
    forbidden: BTreeMap<u64, (Epoch, Epoch)>,
    findings: Findings,
}

impl WatchedStore {
    pub fn new(store: AnyStore, findings: Findings) -> Self {
        Self { store, forbidden: BTreeMap::new(), findings }
    }

    /// Whether another poll would do more.
    pub fn is_busy(&self) -> bool {
        match &self.store {
            AnyStore::Fake(_) => false,
            AnyStore::Real(store) => !store.is_idle(),
        }
    }
}

impl BlockStore for WatchedStore {
    fn submit(&mut self, token: u64, request: StoreRequest) {
        let stamped = match &request {
            StoreRequest::Write { volume, stamp, .. } | StoreRequest::Discard { volume, stamp, .. } => {
                Some((*volume, stamp.epoch()))
            }
            StoreRequest::AllocateChunk { volume, epoch, .. }
            | StoreRequest::FreeChunk { volume, epoch, .. } => Some((*volume, *epoch)),
            _ => None,
        };
        if let Some((volume, epoch)) = stamped {
            let promised = self.promised(volume);
            if epoch < promised {
                self.forbidden.insert(token, (epoch, promised));
            }
        }
        match &mut self.store {
            AnyStore::Fake(store) => store.submit(token, request),
            AnyStore::Real(store) => BlockStore::submit(&mut **store, token, request),
        }
    }

    fn poll(&mut self, out: &mut Vec<StoreCompletion>) {
        let before = out.len();
        match &mut self.store {
            AnyStore::Fake(store) => store.poll(out),
            AnyStore::Real(store) => BlockStore::poll(&mut **store, out),
        }
        for completion in &out[before..] {
            if let Some((epoch, promised)) = self.forbidden.remove(&completion.token)
                && completion.result.is_ok()
            {
                let finding = format!("a change under epoch {epoch} was done after {promised} was promised");
                self.findings.borrow_mut().push(finding);
            }
        }
    }

    fn settle(&mut self, volume: VolumeId, settled: Epoch) {
        match &mut self.store {
            AnyStore::Fake(store) => store.settle(volume, settled),
            AnyStore::Real(store) => BlockStore::settle(&mut **store, volume, settled),
        }
    }

    fn is_doubtful(&self, volume: VolumeId) -> bool {
        match &self.store {
            AnyStore::Fake(store) => store.is_doubtful(volume),
            AnyStore::Real(store) => BlockStore::is_doubtful(&**store, volume),
        }
    }

    fn promised(&self, volume: VolumeId) -> Epoch {
        match &self.store {
            AnyStore::Fake(store) => store.promised(volume),
            AnyStore::Real(store) => BlockStore::promised(&**store, volume),
        }
    }

    fn slabs(&self) -> (u64, u64) {
        match &self.store {
            AnyStore::Fake(store) => store.slabs(),
            AnyStore::Real(store) => BlockStore::slabs(&**store),
        }
    }

    fn slab_blocks(&self) -> u32 {
        match &self.store {
            AnyStore::Fake(store) => store.slab_blocks(),
            AnyStore::Real(store) => BlockStore::slab_blocks(&**store),
        }
    }
}

/// A disk's medium, which outlives the process that uses it.
pub(crate) enum Medium {
    Fake(FakeStore),
    Real(CrashDisk),
}

/// Contents of a medium at one time.
pub(crate) enum Image {
    Fake(FakeImage),
    Real(CrashDisk),
}

impl Medium {
    /// Returns an image of the present contents.
    pub fn image(&self) -> Image {
        match self {
            Self::Fake(store) => Image::Fake(store.image()),
            Self::Real(disk) => {
                let image = disk.fork();
                image.abandon();
                Image::Real(image)
            }
        }
    }

    /// Restores the contents of an image.
    pub fn put(&self, image: &Image) {
        match (self, image) {
            (Self::Fake(store), Image::Fake(image)) => store.go_back_to(image),
            (Self::Real(disk), Image::Real(image)) => disk.roll_back(image),
            _ => debug_assert!(false, "an image of another kind"),
        }
    }

    /// Formats a disk; `None`: that failed.
    pub fn real(id: DiskId, slab_bytes: u64, slabs: u64, seed: u64) -> Option<Self> {
        let size = (slabs + 3) * slab_bytes + (4 << 20);
        let blank = CrashDisk::new(CrashOptions { seed, shuffle: true, ..CrashOptions::new(size) });
        let parameters = FormatParameters {
            slab_bytes: Some(slab_bytes),
            journal_bytes: Some(1 << 20),
            ..FormatParameters::new(id, PoolId::from_bytes([1; 16]))
        };
        store::format(blank, parameters).ok().map(Self::Real)
    }

    /// Opens the disk's store, like a starting process; `None`: that failed.
    pub fn open(&self) -> Option<AnyStore> {
        match self {
            Self::Fake(store) => Some(AnyStore::Fake(store.clone())),
            Self::Real(disk) => Store::open(disk.clone()).ok().map(|store| AnyStore::Real(Box::new(store))),
        }
    }

    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }

    pub fn fake(&self) -> Option<&FakeStore> {
        match self {
            Self::Fake(store) => Some(store),
            Self::Real(_) => None,
        }
    }
}

pub(crate) struct SimDisk {
    pub id: DiskId,
    pub node: usize,
    pub medium: Medium,
    pub replica: Option<Replica<WatchedStore>>,
    /// Highest promise known to be durable.
    pub promised: Epoch,
    /// Whether a poll of the store is scheduled.
    pub poll_scheduled: bool,
    /// Whether it answers nothing until healed.
    pub hangs: bool,
    /// Whether it answers late until healed.
    pub slow: bool,
    /// Whether it is part of the pool.
    pub added: bool,
    /// Epochs that the replica was asked to promise, by session and request.
    pub asked_promises: BTreeMap<(SessionId, RequestId), Epoch>,
}

pub(crate) struct Node {
    pub up: bool,
    /// Number that grows with each start of the process; messages of an older one are dropped.
    pub incarnation: u64,
    pub coordinator: Option<Coordinator>,
    /// Whether the file layer on it is open, so that clients are admitted.
    pub serves: bool,
    /// End of a stop of the process, as by SIGSTOP: nothing is lost, and nothing continues before
    /// then.
    pub frozen_until: u64,
    /// The coordinator's table of disks.
    pub pool: Rc<RefCell<PoolView>>,
    /// Time of the scheduled wake-up.
    pub timer_at: Option<u64>,
    /// Unanswered requests to the cluster state: the network's number to the coordinator's.
    pub asked: BTreeMap<u64, StateToken>,
    /// Clients' operations in flight: token to client.
    pub tokens: BTreeMap<u64, usize>,
}

impl Node {
    /// Whether its process runs at this time.
    pub fn is_awake(&self, now: u64) -> bool {
        self.up && self.frozen_until <= now
    }

    pub fn new() -> Self {
        Self {
            up: true,
            incarnation: 1,
            coordinator: None,
            serves: false,
            frozen_until: 0,
            pool: Rc::default(),
            timer_at: None,
            asked: BTreeMap::new(),
            tokens: BTreeMap::new(),
        }
    }
}
