//! The file layer over virtual disks in memory, power cuts included.

mod background_trim;
pub mod checkpoints;
pub mod crash;
pub mod damage;
mod data;
pub mod descriptors;
mod growing;
mod names;
pub mod outage;
mod overlapping;
mod owners;
pub mod pieces;
pub mod quotas;
pub mod renames;
pub mod reserve;
pub mod room;
mod small_caches;
pub mod withheld;
mod writeback;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::data::extents::extents_from;
use super::*;
use ::types::{BlockCount, FileTime, Lba, VolumeId};
use space::api::{SpaceCompletion, SpaceRequest, SpaceSize, WriteClass};
use space::memory::MemoryVirtualDisk;
use sys::{Buf, Payload};

/// A disk that outlives the file system on it; with a seed it answers some requests at a time, out of
/// order. It checks the volume's duties to the layers below: only blocks of chunk 0 are written with
/// class `Append`, sealed, in growing order; tree pages are written to unwritten blocks.
#[derive(Clone)]
pub struct SharedDisk(pub Rc<RefCell<MemoryVirtualDisk>>, pub Rc<Cell<Option<u64>>>, pub Rc<RefCell<Held>>);

/// Contents of a disk's blocks.
#[derive(Default)]
pub struct Held {
    /// Order and contents of each block as it was written last with class `Append`.
    orders: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Blocks that hold something of another class; their contents if they belong to a tree page.
    written: BTreeMap<u64, Vec<u8>>,
    /// How many requests are answered yet, if that is limited.
    pub answers_left: Option<u64>,
    /// Number of reads.
    pub reads: u64,
    /// Discards under way, by token.
    discards: BTreeMap<u64, std::ops::Range<u64>>,
}

impl SharedDisk {
    pub fn new(chunks: u64, chunk_blocks: u32) -> Self {
        let blocks = BlockCount(chunks * u64::from(chunk_blocks));
        let disk = MemoryVirtualDisk::new(blocks, chunk_blocks, blocks);
        Self(Rc::new(RefCell::new(disk)), Rc::default(), Rc::default())
    }

    fn check(&self, token: u64, request: &SpaceRequest) {
        let chunk_blocks = u64::from(self.size().chunk_blocks);
        let mut held = self.2.borrow_mut();
        match request {
            SpaceRequest::Write { lba, class, data } => {
                assert_eq!(*class == WriteClass::Append, lba.0 < chunk_blocks, "{class:?} at {lba}");
                if *class != WriteClass::Append {
                    let bytes = data.contiguous();
                    let is_page = bytes.starts_with(b"CTP2");
                    for (block, bytes) in (lba.0..).zip(bytes.chunks(::types::BLOCK_BYTES)) {
                        let page = if is_page { bytes.to_vec() } else { Vec::new() };
                        // A failed write may be repeated.
                        let is_new = held.written.get(&block).is_none_or(|before| *before == page);
                        assert!(is_new || !is_page, "block {block} holds something");
                        held.written.insert(block, page);
                    }
                    return;
                }
                for (index, block) in data.contiguous().chunks(::types::BLOCK_BYTES).enumerate() {
                    let at = lba.offset(index as u64);
                    let order = codes::sealed_order(VolumeId::from_bytes([7; 16]), at, block);
                    let order = order.unwrap_or_else(|| panic!("block {at} is not sealed"));
                    if let Some((last, bytes)) = held.orders.get(&at.0) {
                        assert!(
                            *last < order || (*last == order && bytes == block),
                            "block {at} of order {order} after one of order {last}"
                        );
                    }
                    held.orders.insert(at.0, (order, block.to_vec()));
                }
            }
            SpaceRequest::Discard { lba, blocks } => {
                held.orders.retain(|at, _| !(lba.0..lba.0 + blocks).contains(at));
                held.discards.insert(token, lba.0..lba.0 + blocks);
            }
            SpaceRequest::Read { .. } => held.reads += 1,
        }
    }

    /// Notes discarded blocks.
    pub fn note(&self, completions: &[SpaceCompletion]) {
        let mut held = self.2.borrow_mut();
        for completion in completions {
            if let Some(range) = held.discards.remove(&completion.token)
                && completion.result.is_ok()
            {
                held.written.retain(|block, _| !range.contains(block));
            }
        }
    }

    fn poll_disk(&self, out: &mut Vec<SpaceCompletion>) {
        let mut disk = self.0.borrow_mut();
        let Some(seed) = self.1.get() else { return disk.poll(out) };
        let mut random = crash::Random(seed);
        disk.hold(true);
        for _ in 0..random.below(4) {
            let pending = disk.pending() as u64;
            if let Some(left) = &mut self.2.borrow_mut().answers_left {
                if *left == 0 {
                    break;
                }
                *left -= u64::from(pending > 0);
            }
            disk.complete(random.below(pending) as usize, out);
        }
        self.1.set(Some(random.0));
    }
}

impl VirtualDisk for SharedDisk {
    fn size(&self) -> SpaceSize {
        self.0.borrow().size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        self.check(token, &request);
        self.0.borrow_mut().submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        let before = out.len();
        self.poll_disk(out);
        self.note(&out[before..]);
    }
}

pub struct Bench {
    pub disk: SharedDisk,
    pub fs: FileSystem,
    pub now: Monotonic,
    pub events: Vec<FsEvent>,
    next: u64,
}

pub fn wide(name: &str) -> Vec<u16> {
    name.encode_utf16().collect()
}

pub fn file(now: u64) -> NewFile<'static> {
    NewFile { directory: false, attributes: 0x20, now: FileTime(now), security: b"descriptor" }
}

pub fn directory(now: u64) -> NewFile<'static> {
    NewFile { directory: true, ..file(now) }
}

pub fn small() -> Config {
    Config { cache_bytes: 1 << 20, dirty_bytes: 512 << 10, page_cache_bytes: 1 << 20 }
}

pub fn format() -> Format {
    Format {
        id: [7; 16],
        label: "test".into(),
        serial: 1,
        now: FileTime(1000),
        root_security: b"root".to_vec(),
    }
}

impl Bench {
    /// A volume of `chunks` chunks of 1 MiB.
    pub fn new(chunks: u64) -> Self {
        Self::with(chunks, 256, Config::default())
    }

    pub fn with(chunks: u64, chunk_blocks: u32, config: Config) -> Self {
        let disk = SharedDisk::new(chunks, chunk_blocks);
        Self::over(disk.clone(), Box::new(disk), config)
    }

    /// A volume on a device that leads to `disk`.
    pub fn over(disk: SharedDisk, device: Box<dyn VirtualDisk>, config: Config) -> Self {
        let fs = FileSystem::format(device, &format(), config);
        let mut bench = Self { disk, fs, now: Monotonic(1), events: Vec::new(), next: 1 };
        bench.wait_opened();
        bench
    }

    fn wait_opened(&mut self) {
        for _ in 0..1000 {
            self.poll();
            let opened = self.events.iter().position(|event| matches!(event, FsEvent::Opened));
            if let Some(at) = opened {
                self.events.remove(at);
                return;
            }
            assert!(
                !self.events.iter().any(|event| matches!(event, FsEvent::Failed(_))),
                "{:?}",
                self.events
            );
        }
        panic!("the volume does not open");
    }

    pub fn poll(&mut self) {
        self.fs.poll(self.now, &mut self.events);
        self.events.retain(|event| !matches!(event, FsEvent::Retry));
    }

    /// Lets time pass.
    pub fn sleep(&mut self, duration: Duration) {
        for _ in 0..10 {
            self.now = self.now.after(duration / 10);
            for _ in 0..5 {
                self.poll();
            }
        }
    }

    /// Cuts the power and opens the result.
    pub fn crash(&mut self, choose: impl FnMut(u64) -> u64) {
        self.disk.0.borrow_mut().crash(choose);
        self.reopen();
    }

    pub fn reopen(&mut self) {
        let config = *self.fs.config();
        self.events.clear();
        self.fs = FileSystem::open(Box::new(self.disk.clone()), config);
        self.wait_opened();
    }

    /// Runs a metadata operation as often as it misses.
    pub fn run<T>(
        &mut self,
        mut operation: impl FnMut(&mut FileSystem) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        for _ in 0..10_000 {
            match operation(&mut self.fs) {
                Err(FsError::Miss) => self.poll(),
                result => return result,
            }
        }
        panic!("the operation misses for ever");
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn wait(&mut self, token: u64) -> Result<Payload, FsError> {
        for round in 0..10_000 {
            self.poll();
            let found = self.events.iter().position(|event| match event {
                FsEvent::Read { token: other, .. }
                | FsEvent::Written { token: other, .. }
                | FsEvent::Flushed { token: other, .. } => *other == token,
                _ => false,
            });
            if let Some(at) = found {
                return match self.events.remove(at) {
                    FsEvent::Read { result, .. } => result,
                    FsEvent::Written { result, .. } | FsEvent::Flushed { result, .. } => {
                        result.map(|()| Payload::new())
                    }
                    _ => Ok(Payload::new()),
                };
            }
            if round > 100 {
                self.now = self.now.after(Duration::from_millis(10));
            }
        }
        panic!("no answer");
    }

    pub fn write(&mut self, stream: StreamId, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let token = self.token();
        match self.fs.write(token, stream, offset, Payload::from(Buf::from(bytes)), false) {
            Poll::Ready(result) => result,
            Poll::Pending => self.wait(token).map(drop),
        }
    }

    pub fn write_durably(&mut self, stream: StreamId, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let token = self.token();
        match self.fs.write(token, stream, offset, Payload::from(Buf::from(bytes)), true) {
            Poll::Ready(result) => result,
            Poll::Pending => self.wait(token).map(drop),
        }
    }

    pub fn read(&mut self, stream: StreamId, offset: u64, len: u32) -> Result<Vec<u8>, FsError> {
        let token = self.token();
        let data = match self.fs.read(token, stream, offset, len) {
            Poll::Ready(result) => result,
            Poll::Pending => self.wait(token),
        };
        data.map(|data| data.contiguous().to_vec())
    }

    pub fn flush(&mut self, file: FileId) -> Result<(), FsError> {
        let token = self.token();
        match self.fs.flush(token, file) {
            Poll::Ready(result) => result,
            Poll::Pending => self.wait(token).map(drop),
        }
    }

    pub fn flush_all(&mut self) -> Result<(), FsError> {
        let token = self.token();
        match self.fs.flush_all(token) {
            Poll::Ready(result) => result,
            Poll::Pending => self.wait(token).map(drop),
        }
    }

    /// Checks the volume, with nothing under way.
    pub fn check(&mut self) -> CheckReport {
        self.flush_all().expect("a flush");
        for _ in 0..200 {
            self.poll();
        }
        let mut check = Check::new(&self.fs);
        while !self.run(|fs| check.step(fs, 100)).expect("a check") {}
        check.report().clone()
    }

    /// Checks the volume and finds nothing wrong.
    pub fn check_clean(&mut self) {
        let report = self.check();
        assert!(
            report.problems.is_empty() && report.allocation_compared && report.references_compared,
            "{report:#?}"
        );
        self.check_references();
    }

    pub fn create(&mut self, name: &str) -> FileId {
        let name = wide(name);
        self.run(|fs| fs.create(FileId::ROOT, &name, &file(5))).expect("a new file")
    }
}
