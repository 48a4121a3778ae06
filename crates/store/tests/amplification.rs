//! Bytes written to the disk per acknowledged byte, counted.

mod common;

use common::{DISK, POOL, Rig, pattern, write_request};
use disk::memory::MemoryDisk;
use store::api::WriteClass;
use store::{FormatParameters, Store, WrittenBytes, format};
use types::BLOCK_BYTES;

/// Makes a disk of 1 GiB with default formatting: slabs of 64 MiB, a journal of 16 MiB.
fn rig() -> Rig<MemoryDisk> {
    let disk = format(MemoryDisk::new(1 << 30), FormatParameters::new(DISK, POOL)).unwrap();
    let mut rig = Rig::new(Store::open(disk).unwrap());
    rig.allocate(0, false);
    rig
}

/// Writes 32 at a time, and puts everything in place at the end. Returns bytes written per
/// acknowledged byte.
fn amplification(
    rig: &mut Rig<MemoryDisk>,
    class: WriteClass,
    blocks: usize,
    lbas: impl Iterator<Item = u64>,
) -> f64 {
    let bytes = pattern(1, blocks);
    let before = rig.store.health();
    let mut in_flight = Vec::new();
    for lba in lbas {
        in_flight.push(rig.submit(write_request(class, lba, &bytes)));
        if in_flight.len() == 32 {
            in_flight.drain(..).for_each(|token| assert!(rig.wait(token).is_ok()));
        }
    }
    rig.checkpoint();
    let after = rig.store.health();
    let written = |total: WrittenBytes| total.total() as f64;
    (written(after.written) - written(before.written))
        / (after.acknowledged_bytes - before.acknowledged_bytes) as f64
}

#[test]
fn small_overwrites_cost_at_most_2_3_bytes_per_byte() {
    let mut rig = rig();
    let scattered = (0..4096u64).map(|at| at * 7919 % 16384);
    let factor = amplification(&mut rig, WriteClass::Overwrite, 1, scattered);
    assert!(factor <= 2.3, "{factor}");
    let deep = amplification(&mut rig, WriteClass::Overwrite, 16, (0..512).map(|at| at * 31 % 1024 * 16));
    assert!(deep <= 2.1, "{deep}");
}

#[test]
fn fresh_writes_cost_at_most_1_1_bytes_per_byte() {
    for (blocks, count) in [(1, 4096u64), (16, 512), (256, 64)] {
        let mut rig = rig();
        let factor =
            amplification(&mut rig, WriteClass::Fresh, blocks, (0..count).map(|at| at * blocks as u64));
        assert!(factor <= 1.1, "{blocks} blocks of {BLOCK_BYTES} bytes: {factor}");
    }
}

#[test]
fn fresh_writes_over_blocks_that_hold_something_cost_at_most_1_1_bytes_per_byte_from_32_kib_on() {
    for (blocks, count) in [(8, 1024u64), (16, 512), (256, 32)] {
        let mut rig = rig();
        let scattered = |at: u64| at * 31 % count * blocks as u64;
        for _ in 0..2 {
            let factor = amplification(&mut rig, WriteClass::Fresh, blocks, (0..count).map(scattered));
            assert!(factor <= 1.1, "{blocks} blocks of {BLOCK_BYTES} bytes: {factor}");
        }
    }
}

#[test]
fn blocks_written_again_and_again_are_applied_once() {
    let mut rig = rig();
    let factor = amplification(&mut rig, WriteClass::Overwrite, 1, (0..2048).map(|at| at % 32));
    assert!(factor <= 1.2, "{factor}");
}
