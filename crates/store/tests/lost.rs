//! One write that the disk acknowledges and loses, of every structure in turn, and power cuts after
//! it: a read returns the acknowledged data, or fails as corrupt. Never older data, never zeroes.

mod common;

use common::{EPOCH, Rig, VOLUME, crash_disk, pattern, sealed, small, small_options};
use disk::crash::{CrashChoice, CrashDisk, Fate, Fault, FaultAction, FaultTarget};
use std::collections::BTreeMap;
use store::api::{StoreError, StoreRequest, WriteClass};
use store::{Layout, Store, format};
use types::{BLOCK_BYTES, ChunkIndex, Lba};

const SIZE: u64 = 12 << 20;
const CHUNK_BLOCKS: u64 = 256;
const APPEND_CHUNK: u64 = 2;

fn layout() -> Layout {
    Layout::compute(SIZE, 1 << 20, 256 << 10).unwrap()
}

/// The acknowledged content.
#[derive(Default)]
struct Expected {
    mapped: Vec<u64>,
    blocks: BTreeMap<u64, Vec<u8>>,
}

struct Run {
    rig: Rig<CrashDisk>,
    disk: CrashDisk,
    expected: Expected,
    /// Corrupt blocks found.
    corrupt: u64,
}

impl Run {
    fn allocate(&mut self, chunk: u64) {
        self.rig.allocate(chunk as u32, chunk == APPEND_CHUNK);
        self.expected.mapped.push(chunk);
    }

    fn free(&mut self, chunk: u64) {
        let chunk_index = ChunkIndex(chunk as u32);
        self.rig.run(StoreRequest::FreeChunk { volume: VOLUME, epoch: EPOCH, chunk: chunk_index }).unwrap();
        self.expected.mapped.retain(|mapped| *mapped != chunk);
        self.expected.blocks.retain(|lba, _| lba / CHUNK_BLOCKS != chunk);
    }

    fn write(&mut self, class: WriteClass, lba: u64, version: u64, blocks: usize) {
        let bytes = pattern(version, blocks);
        self.rig.write(class, lba, &bytes).unwrap();
        let bytes = if class == WriteClass::Append { sealed(lba, &bytes) } else { bytes };
        for (lba, block) in (lba..).zip(bytes.chunks(BLOCK_BYTES)) {
            self.expected.blocks.insert(lba, block.to_vec());
        }
    }

    fn discard(&mut self, lba: u64, blocks: u64) {
        self.rig.discard(lba, blocks as u32).unwrap();
        (lba..lba + blocks).for_each(|lba| drop(self.expected.blocks.remove(&lba)));
    }

    fn checkpoint(&mut self) {
        self.rig.store.request_checkpoint();
        let mut polls = 0;
        while !self.rig.store.is_idle() {
            if polls % 4 == 1 {
                self.cut();
            }
            polls += 1;
            self.rig.poll();
        }
        self.cut();
    }

    /// Checks the disk after a power cut now that loses, or keeps, all that is not durable. Before
    /// the fault there is nothing new to see.
    fn cut(&mut self) {
        if self.disk.waiting_faults() > 0 {
            return;
        }
        let at_risk = self.disk.candidates().len();
        let kept = (at_risk > 0).then(|| CrashChoice(vec![Fate::Kept; at_risk]));
        for choice in [CrashChoice::lose_all()].into_iter().chain(kept) {
            let store = Store::open_with(self.disk.after_crash(&choice), small_options());
            self.corrupt += judge(&self.expected, Rig::new(store.expect("no batch is lost")));
        }
    }
}

/// Returns the number of corrupt blocks, after checking all others.
fn judge(expected: &Expected, mut rig: Rig<CrashDisk>) -> u64 {
    let mut mapped: Vec<u64> = rig.store.chunks().iter().map(|chunk| u64::from(chunk.chunk.0)).collect();
    let mut wanted = expected.mapped.clone();
    mapped.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(mapped, wanted);
    let (zeroes, mut corrupt) = (vec![0; BLOCK_BYTES], 0);
    for first in mapped.into_iter().map(|chunk| chunk * CHUNK_BLOCKS) {
        let whole = rig.read(first, CHUNK_BLOCKS as u32);
        for lba in first..first + CHUNK_BLOCKS {
            let right = expected.blocks.get(&lba).unwrap_or(&zeroes);
            let at = (lba - first) as usize * BLOCK_BYTES;
            let found = match &whole {
                Ok(bytes) => Ok(bytes[at..at + BLOCK_BYTES].to_vec()),
                Err(StoreError::Corrupt { lbas }) if lbas.contains(&Lba(lba)) => Err(()),
                Err(_) => rig.read(lba, 1).map_err(|error| panic!("{error}")),
            };
            // An older append block proves itself too: its order tells it from the other copies.
            let older = first == APPEND_CHUNK * CHUNK_BLOCKS
                && found.as_ref().is_ok_and(|found| {
                    *found == zeroes
                        || (0..9).any(|at| {
                            *found == sealed(lba, &pattern(6, 9)[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES])
                        })
                });
            match found {
                Ok(found) => assert!(found == *right || older, "block {lba} is wrong"),
                Err(()) => corrupt += 1,
            }
        }
    }
    corrupt
}

/// Runs a store with a write of every kind. Returns whether the fault struck, and the number of
/// corrupt blocks found.
fn live(target: FaultTarget, nth: u64) -> (bool, u64) {
    let disk = format(crash_disk(SIZE), small()).unwrap();
    let mut rig = Rig::new(Store::open_with(disk.clone(), small_options()).unwrap());
    rig.checkpoint();
    disk.inject(Fault::nth(target, nth, FaultAction::LoseWrite));
    let mut run = Run { rig, disk: disk.clone(), expected: Expected::default(), corrupt: 0 };
    for chunk in [0, APPEND_CHUNK, 3] {
        run.allocate(chunk);
    }
    run.write(WriteClass::Fresh, 0, 1, 60);
    run.write(WriteClass::Overwrite, 70, 2, 4);
    run.write(WriteClass::Append, 512, 6, 9);
    run.write(WriteClass::Fresh, 768, 3, 40);
    run.checkpoint();
    run.discard(10, 20);
    run.write(WriteClass::Fresh, 12, 4, 12);
    run.write(WriteClass::Overwrite, 71, 5, 1);
    run.write(WriteClass::Append, 514, 7, 2);
    run.free(3);
    run.checkpoint();
    run.allocate(1);
    run.write(WriteClass::Fresh, 256, 8, 30);
    run.discard(0, 5);
    run.checkpoint();
    run.allocate(3);
    run.write(WriteClass::Overwrite, 770, 9, 3);
    run.checkpoint();
    (run.disk.waiting_faults() == 0, run.corrupt)
}

#[test]
fn one_lost_write_of_any_structure_never_makes_old_bytes_or_zeroes_of_what_was_acknowledged() {
    let layout = layout();
    let range = |offset, end: u64| FaultTarget::WriteRange { offset, len_bytes: end - offset };
    for (what, target) in [
        ("tables", range(layout.tables[0], layout.journal)),
        ("metadata", range(layout.metadata, layout.slabs)),
        ("slabs", range(layout.slabs, layout.versions)),
        ("page versions", range(layout.versions, layout.tables[1])),
        ("end", range(SIZE - (1 << 20), SIZE)),
    ] {
        let costs_blocks = matches!(what, "metadata" | "slabs");
        let mut nth = 0;
        loop {
            let (struck, corrupt) = live(target, nth);
            if !struck {
                break;
            }
            assert!(costs_blocks || corrupt == 0, "write {nth} to {what}: {corrupt} blocks");
            // Blocks are written often, and a lost write loses only that block.
            nth += if what == "slabs" { 7 } else { 1 };
        }
        assert!(nth >= 3, "{what} was written {nth} times");
    }
}
