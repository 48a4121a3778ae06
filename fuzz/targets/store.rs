//! On-disk structures of a store: each parser alone, and a formatted disk with bytes changed, inspected and opened.
//!
//! Checksums are zero in this build, so that changed bytes get past them.
#![no_main]

use disk::memory::MemoryDisk;
use disk::{Disk, DiskOperation};
use libfuzzer_sys::fuzz_target;
use store::{FormatParameters, Store, format, inspect};
use sys::BufMut;
use types::{DiskId, PoolId};

const DISK_BYTES: u64 = 1 << 30;
const OPENINGS_MAX: usize = 100_000;

fn parsers(which: u8, bytes: &[u8]) {
    let disk = DiskId::from_bytes([1; 16]);
    // A label has space for more bytes than the fuzzer gives.
    let mut block = bytes.to_vec();
    block.resize(block.len().max(4096), 0);
    match which % 7 {
        0 => drop(store::parse_label(&block)),
        1 => drop(store::parse_anchor(disk, &block)),
        2 => drop(store::parse_records(disk, &block)),
        3 => drop(store::parse_batch_header(&block)),
        4 => drop(store::parse_batch(disk, &block)),
        5 => drop(store::parse_slab_leaf(disk, 0, &block)),
        _ => drop(store::parse_promise_leaf(disk, 0, &block)),
    }
}

/// Changes bytes of the disk by the input: (4 KiB block, offset, up to 32 bytes), again and again.
fn change(disk: &mut MemoryDisk, mut input: &[u8]) {
    let mut answers = Vec::new();
    let mut token = 0;
    while let [low, high, at_low, at_high, len, rest @ ..] = input {
        // Structures lie at the front; the last bit chooses the copies at the end.
        let index = u64::from(u16::from_le_bytes([*low, *high & 0x3F]));
        let blocks = DISK_BYTES / 4096;
        let block = if high & 0x80 == 0 { index } else { blocks - 1 - index };
        let offset = block.min(blocks - 1) * 4096;
        let at = usize::from(u16::from_le_bytes([*at_low, *at_high])) % 4096;
        let (bytes, rest) = rest.split_at(usize::from(*len % 32).min(rest.len()));
        token += 1;
        disk.submit(token, DiskOperation::Read { offset, into: BufMut::zeroed(4096) });
        disk.poll(&mut answers);
        let Some(Ok(Some(mut content))) = answers.pop().map(|answer| answer.result) else { return };
        for (target, byte) in content[at..].iter_mut().zip(bytes) {
            *target = *byte;
        }
        let data = content.freeze().into();
        disk.submit(token, DiskOperation::Write { offset, data, durable: true });
        disk.poll(&mut answers);
        answers.clear();
        input = rest;
    }
}

fn formatted() -> MemoryDisk {
    let parameters = FormatParameters::new(DiskId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
    format(MemoryDisk::new(DISK_BYTES), parameters).expect("an empty disk can be formatted")
}

fuzz_target!(|input: &[u8]| {
    let Some((&which, bytes)) = input.split_first() else { return };
    if which < 0x80 {
        parsers(which, bytes);
        return;
    }
    let mut disk = formatted();
    change(&mut disk, bytes);
    if which & 1 == 0 {
        let _ = inspect(disk);
        return;
    }
    let mut opening = store::StoreOpening::new(disk, Default::default());
    for _ in 0..OPENINGS_MAX {
        if let Some(result) = opening.poll() {
            if let Ok(opened) = result {
                let _ = (opened.chunks().len(), opened.free_slabs(), opened.health());
                let _: MemoryDisk = Store::into_disk(opened);
            }
            return;
        }
    }
    panic!("opening does not end");
});
