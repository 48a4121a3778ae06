//! A store over a disk in memory: nanoseconds and bytes per operation, time to open, RAM per terabyte.
//!
//! `cargo bench -p cenote-store` prints the table. `--count KIND N` runs N operations of a kind after the preparation and nothing else:
//! the difference between two counts under callgrind is the instructions of an operation.

use disk::memory::MemoryDisk;
use disk::{Disk, DiskCompletion, DiskInfo, DiskOperation};
use std::hint::black_box;
use std::time::Instant;
use store::api::{StoreCompletion, StoreRequest, WriteClass};
use store::{FormatParameters, Layout, Store, format};
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Epoch, Lba, PoolId, VolumeId};

const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);
const EPOCH: Epoch = Epoch(1);
const DEPTH: usize = 32;

fn parameters() -> FormatParameters {
    FormatParameters::new(DiskId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]))
}

struct Rig<D: Disk> {
    store: Store<D>,
    out: Vec<StoreCompletion>,
}

impl<D: Disk> Rig<D> {
    fn new(store: Store<D>) -> Self {
        Self { store, out: Vec::new() }
    }

    /// Polls until all of `expected` requests are answered.
    fn wait(&mut self, mut expected: usize) {
        while expected > 0 {
            self.store.poll(&mut self.out);
            expected -= self.out.len();
            for completion in self.out.drain(..) {
                black_box(completion.result.expect("the disk is sound"));
            }
        }
    }

    fn allocate(&mut self, chunk: u32) {
        let request = StoreRequest::AllocateChunk {
            volume: VOLUME,
            epoch: EPOCH,
            chunk: ChunkIndex(chunk),
            append: false,
        };
        self.store.submit(0, request);
        self.wait(1);
    }

    fn write(&mut self, class: WriteClass, lba: u64, data: &Payload, checksums: &[u64]) {
        let (data, checksums) = (data.clone(), checksums.to_vec());
        self.store.submit(
            0,
            StoreRequest::Write {
                volume: VOLUME,
                stamp: EPOCH.into(),
                lba: Lba(lba),
                class,
                data,
                checksums,
            },
        );
    }
}

/// 64 MiB of one chunk, with payload and checksums prepared in advance.
struct Prepared {
    rig: Rig<MemoryDisk>,
    data: Payload,
    checksums: Vec<Vec<u64>>,
    blocks: u64,
}

const SPAN_BLOCKS: u64 = 16384;

fn prepare(blocks: u64) -> Prepared {
    let disk = format(MemoryDisk::new(1 << 30), parameters()).expect("a new disk");
    let mut rig = Rig::new(Store::open(disk).expect("a formatted disk"));
    rig.allocate(0);
    let data = Payload::from(Buf::from(&vec![0x5A; blocks as usize * BLOCK_BYTES][..]));
    let checksums = (0..SPAN_BLOCKS / blocks)
        .map(|at| codes::payload_checksums(VOLUME, Lba(at * blocks), &data))
        .collect();
    Prepared { rig, data, checksums, blocks }
}

impl Prepared {
    fn fill(&mut self) {
        for at in 0..SPAN_BLOCKS / self.blocks {
            self.rig.write(WriteClass::Fresh, at * self.blocks, &self.data, &self.checksums[at as usize]);
            self.rig.wait(1);
        }
    }

    fn place(&self, at: u64) -> u64 {
        at.wrapping_mul(7919) % (SPAN_BLOCKS / self.blocks)
    }

    fn reads(&mut self, count: u64) {
        for first in (0..count).step_by(DEPTH) {
            let batch = (count - first).min(DEPTH as u64);
            for at in first..first + batch {
                let lba = Lba(self.place(at) * self.blocks);
                self.rig
                    .store
                    .submit(0, StoreRequest::Read { volume: VOLUME, lba, blocks: self.blocks as u32 });
            }
            self.rig.wait(batch as usize);
        }
    }

    fn writes(&mut self, class: WriteClass, count: u64) {
        for first in (0..count).step_by(DEPTH) {
            let batch = (count - first).min(DEPTH as u64);
            for at in first..first + batch {
                let place = if class == WriteClass::Fresh { at } else { self.place(at) };
                self.rig.write(class, place * self.blocks, &self.data, &self.checksums[place as usize]);
            }
            self.rig.wait(batch as usize);
        }
    }
}

fn run(kind: &str, count: u64) -> Prepared {
    let blocks = if kind.ends_with("1m") { 256 } else { 1 };
    let mut prepared = prepare(blocks);
    if !kind.starts_with("fresh") {
        prepared.fill();
    }
    operate(kind, &mut prepared, count);
    prepared
}

fn operate(kind: &str, prepared: &mut Prepared, count: u64) {
    match kind {
        "read4k" | "read1m" => prepared.reads(count),
        "overwrite4k" => prepared.writes(WriteClass::Overwrite, count),
        "fresh4k" | "fresh1m" => prepared.writes(WriteClass::Fresh, count),
        other => panic!("unknown kind {other}: read4k, read1m, overwrite4k, fresh4k, fresh1m"),
    }
}

fn measure(kind: &str, count: u64) {
    let mut prepared = run(kind, 0);
    let before = prepared.rig.store.health();
    let start = Instant::now();
    operate(kind, &mut prepared, count);
    let elapsed = start.elapsed();
    let after = prepared.rig.store.health();
    let written = after.written.total() - before.written.total();
    let acknowledged = after.acknowledged_bytes - before.acknowledged_bytes;
    let factor = if acknowledged == 0 { 0.0 } else { written as f64 / acknowledged as f64 };
    println!(
        "{kind:12} {:>9.0} ns/op   {factor:.3} bytes written per byte",
        elapsed.as_nanos() as f64 / count as f64
    );
}

/// A disk that holds its first bytes only: a measurement of memory does not need the metadata and
/// slabs of a large disk.
struct FrontDisk {
    inner: MemoryDisk,
    info: DiskInfo,
    kept_bytes: u64,
    tail_bytes: u64,
    answers: Vec<DiskCompletion>,
}

impl Disk for FrontDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }
    fn submit(&mut self, token: u64, operation: DiskOperation) {
        let forgotten = |offset: &u64| *offset >= self.kept_bytes && *offset < self.tail_bytes;
        match operation {
            DiskOperation::Write { offset, .. } if forgotten(&offset) => {
                self.answers.push(DiskCompletion { token, result: Ok(None) });
            }
            other => self.inner.submit(token, other),
        }
    }
    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        out.append(&mut self.answers);
        self.inner.poll(out);
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Opens a disk of 1 TB all of whose slabs are mapped.
fn memory() {
    let size_bytes = 1_000_000_000_000 / 4096 * 4096;
    let (slab_bytes, journal_bytes) = Layout::default_sizes(size_bytes);
    let layout = Layout::compute(size_bytes, slab_bytes, journal_bytes).expect("a large disk");
    let inner = MemoryDisk::new(size_bytes);
    let info = inner.info().clone();
    let (kept_bytes, tail_bytes) = (layout.metadata, layout.tables[1]);
    let disk = FrontDisk { inner, info, kept_bytes, tail_bytes, answers: Vec::new() };
    let mut rig =
        Rig::new(Store::open(format(disk, parameters()).expect("a new disk")).expect("a formatted disk"));
    for chunk in 0..layout.slab_count {
        rig.allocate(chunk);
    }
    rig.store.request_checkpoint();
    while !rig.store.is_idle() {
        rig.wait(0);
        rig.store.poll(&mut rig.out);
    }
    let disk = rig.store.into_disk();
    let before = resident_bytes();
    let start = Instant::now();
    let store = Store::open(disk).expect("a formatted disk");
    let elapsed = start.elapsed();
    let grown = resident_bytes().saturating_sub(before);
    println!(
        "1 TB, {} of {} slabs mapped: opened in {:.1} ms, {} KiB more resident, {} KiB of slab metadata cached",
        store.chunks().len(),
        layout.slab_count,
        elapsed.as_secs_f64() * 1e3,
        grown >> 10,
        store.health().cached_pages * 4
    );
    println!("slab table and page versions {} bytes in RAM", store.table_bytes());
}

/// Opens a disk whose journal is as full as it gets.
fn opening() {
    let mut prepared = run("overwrite4k", 2000);
    while prepared.rig.store.health().journal_used_bytes
        < prepared.rig.store.health().journal_bytes * 45 / 100
    {
        operate("overwrite4k", &mut prepared, 32);
    }
    let used = prepared.rig.store.health().journal_used_bytes;
    let disk = prepared.rig.store.into_disk();
    let start = Instant::now();
    let store = Store::open(disk).expect("a formatted disk");
    println!(
        "opening with {} KiB in the journal, {} blocks to apply: {:.1} ms",
        used >> 10,
        store.health().overlay_blocks,
        start.elapsed().as_secs_f64() * 1e3
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, kind, count] = &arguments[..]
        && flag == "--count"
    {
        black_box(run(kind, count.parse().expect("a number of operations")));
        return;
    }
    for (kind, count) in [
        ("read4k", 200_000),
        ("read1m", 2_000),
        ("overwrite4k", 200_000),
        ("fresh4k", 16_000),
        ("fresh1m", 64),
    ] {
        measure(kind, count);
    }
    opening();
    memory();
}
