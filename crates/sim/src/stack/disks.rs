//! Disks in virtual time, and their stores for replicas.

use crate::random::Random;
use disk::crash::{CrashDisk, CrashOptions};
use disk::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation};
use space::block_store::BlockStore;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;
use store::api::{StoreCompletion, StoreRequest};
use store::{FormatParameters, Layout, Store};
use types::{DiskId, Epoch, Monotonic, PoolId, VolumeId};

pub(crate) const POOL: PoolId = PoolId::from_bytes([1; 16]);
/// Timeout of an operation: the daemon's default for a disk.
pub(crate) const DISK_TIMEOUT: Duration = Duration::from_secs(5);
/// Journal of each disk: the smallest that stores accept, so that checkpoints are frequent.
const JOURNAL_BYTES: u64 = 256 << 10;

/// Faults that the world gives a disk, and the world's observations of the disk.
#[derive(Debug)]
pub(crate) struct Control {
    pub now: Cell<Monotonic>,
    /// Whether the disk answers nothing.
    pub hangs: Cell<bool>,
    /// Whether every operation fails at once.
    pub gone: Cell<bool>,
    /// Time between answers.
    pub latency: Cell<Duration>,
    /// Whether the disk timed out, or was gone: it must be opened anew, as by the daemon.
    pub lost: Cell<bool>,
    /// Time at which the disk has answers.
    pub due: Cell<Option<Monotonic>>,
    /// The process that has the disk open.
    opener: RefCell<Weak<()>>,
    /// Reads that the disk failed with an error of the medium.
    pub medium_errors: Cell<u64>,
}

/// A disk for the whole run.
pub(crate) struct SimDisk {
    pub id: DiskId,
    pub node: usize,
    pub medium: CrashDisk,
    pub layout: Layout,
    pub control: Rc<Control>,
}

impl SimDisk {
    /// Formats a disk with `slabs` slabs.
    pub fn format(number: u8, slab_bytes: u64, slabs: u64, seed: u64) -> Self {
        let id = DiskId::from_bytes([number; 16]);
        let size_bytes = (slabs + 1) * (slab_bytes + (16 << 10)) + (4 << 20);
        let blank = CrashDisk::new(CrashOptions { seed, shuffle: true, ..CrashOptions::new(size_bytes) });
        let parameters = FormatParameters {
            slab_bytes: Some(slab_bytes),
            journal_bytes: Some(JOURNAL_BYTES),
            ..FormatParameters::new(id, POOL)
        };
        let medium = store::format(blank, parameters).expect("a blank disk that is large enough");
        let layout = Layout::compute(size_bytes, slab_bytes, JOURNAL_BYTES).expect("sizes within bounds");
        let control = Rc::new(Control {
            now: Cell::default(),
            hangs: Cell::default(),
            gone: Cell::default(),
            latency: Cell::new(Duration::from_micros(80)),
            lost: Cell::default(),
            due: Cell::default(),
            opener: RefCell::default(),
            medium_errors: Cell::default(),
        });
        Self { id, node: 0, medium, layout, control }
    }

    /// Begins a process that may open the disk.
    pub fn begin(&self, now: Monotonic) {
        self.control.now.set(now);
        self.control.due.set(None);
    }

    /// Ends the process that had the disk open, and the power too if that is cut.
    pub fn lose_process(&self, power: bool, random: &mut Random) {
        if power {
            let choice = self.medium.random_choice(random.below(u64::MAX));
            self.medium.crash(&choice);
        } else {
            self.medium.abandon();
        }
        self.control.due.set(None);
    }

    /// Returns the time of answers for the process that has the disk open. Without one nothing
    /// would take them, and the run would advance in the shortest of steps.
    pub fn due(&self) -> Option<Monotonic> {
        self.control.due.get().filter(|_| self.control.opener.borrow().strong_count() > 0)
    }

    /// Returns the disk for a process that opens it.
    pub fn open(&self) -> TimedDisk {
        self.medium.abandon();
        self.control.lost.set(false);
        self.control.due.set(None);
        let opener = Rc::new(());
        self.control.opener.replace(Rc::downgrade(&opener));
        TimedDisk {
            _opener: opener,
            disk: self.medium.clone(),
            control: self.control.clone(),
            waiting: BTreeMap::new(),
            answers: Vec::new(),
        }
    }
}

/// A [`CrashDisk`] that takes time, hangs, and goes away.
pub(crate) struct TimedDisk {
    _opener: Rc<()>,
    disk: CrashDisk,
    control: Rc<Control>,
    /// Operations without an answer, and the times of their submission.
    waiting: BTreeMap<u64, Monotonic>,
    answers: Vec<DiskCompletion>,
}

impl TimedDisk {
    /// Notes the time of answers, unless there are earlier ones.
    fn note_due(&self) {
        let now = self.control.now.get();
        let due = match self.control.hangs.get() {
            _ if !self.answers.is_empty() => Some(now),
            true => self.waiting.values().min().map(|asked| asked.after(DISK_TIMEOUT)),
            false if self.waiting.is_empty() => None,
            false => Some(now.after(self.control.latency.get())),
        };
        self.control.due.set(due);
    }

    fn fail_all(&mut self, error: &DiskError) {
        for token in std::mem::take(&mut self.waiting).into_keys() {
            self.answers.push(DiskCompletion { token, result: Err(error.clone()) });
        }
    }
}

impl Disk for TimedDisk {
    fn info(&self) -> &DiskInfo {
        self.disk.info()
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        if self.control.gone.get() {
            self.answers.push(DiskCompletion { token, result: Err(DiskError::Gone) });
        } else {
            self.waiting.insert(token, self.control.now.get());
            self.disk.submit(token, operation);
        }
        if self.control.due.get().is_none() || !self.answers.is_empty() {
            self.note_due();
        }
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        let now = self.control.now.get();
        if self.control.gone.get() {
            self.fail_all(&DiskError::Gone);
        }
        if self.control.due.get().is_some_and(|due| due <= now) {
            if self.control.hangs.get() {
                let late = self.waiting.values().any(|asked| asked.after(DISK_TIMEOUT) <= now);
                if late {
                    self.fail_all(&DiskError::TimedOut);
                }
            } else {
                let mut arrived = Vec::new();
                self.disk.poll(&mut arrived);
                arrived.retain(|completion| self.waiting.remove(&completion.token).is_some());
                self.answers.append(&mut arrived);
            }
        }
        let lost = |completion: &DiskCompletion| {
            matches!(completion.result, Err(DiskError::TimedOut | DiskError::Gone))
        };
        let failed = |completion: &&DiskCompletion| matches!(completion.result, Err(DiskError::Medium(_)));
        let failed = self.answers.iter().filter(failed).count() as u64;
        self.control.medium_errors.update(|errors| errors + failed);
        if self.answers.iter().any(lost) {
            self.control.lost.set(true);
        }
        out.append(&mut self.answers);
        if self.control.due.get().is_some_and(|due| due <= now) || self.control.gone.get() {
            self.note_due();
        }
    }

    fn has_news(&self) -> bool {
        let due = self.control.due.get().is_some_and(|due| due <= self.control.now.get());
        due || !self.answers.is_empty() || (self.control.gone.get() && !self.waiting.is_empty())
    }
}

/// A disk's store, shared with the node that supervises it.
#[derive(Clone)]
pub(crate) struct SimStore(Rc<RefCell<Store<TimedDisk>>>);

impl SimStore {
    pub fn new(store: Store<TimedDisk>) -> Self {
        Self(Rc::new(RefCell::new(store)))
    }

    pub fn with<T>(&self, look: impl FnOnce(&Store<TimedDisk>) -> T) -> T {
        look(&self.0.borrow())
    }

    pub fn request_checkpoint(&self) {
        self.0.borrow_mut().request_checkpoint();
    }

    /// Calls [`Store::retry`].
    pub fn retry(&self) {
        self.0.borrow_mut().retry();
    }
}

impl BlockStore for SimStore {
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
    fn settle(&mut self, volume: VolumeId, settled: Epoch) {
        self.0.borrow_mut().settle(volume, settled);
    }
    fn is_doubtful(&self, volume: VolumeId) -> bool {
        self.0.borrow().is_doubtful(volume)
    }
    fn slabs(&self) -> (u64, u64) {
        let store = self.0.borrow();
        (u64::from(store.slab_count()), u64::from(store.free_slabs()))
    }
    fn slab_blocks(&self) -> u32 {
        self.0.borrow().slab_blocks()
    }
}
