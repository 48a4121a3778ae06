//! Parsers and opening on bytes that nobody sane wrote: an answer, never a panic.

mod common;

use common::{DISK, EPOCH, Rig, VOLUME, new_rig, pattern, small_options};
use disk::crash::CrashDisk;
use proptest::prelude::*;
use std::sync::OnceLock;
use store::api::{StoreRequest, WriteClass};
use store::{
    Layout, PageIdentity, Store, inspect, parse_anchor, parse_batch, parse_batch_header, parse_label,
    parse_page, parse_promise_leaf, parse_records, parse_slab_leaf,
};
use types::{Epoch, Lba, SlabIndex};

fn parse_all(bytes: &[u8]) {
    let _ = parse_label(bytes);
    let _ = parse_anchor(DISK, bytes);
    let _ = parse_records(DISK, bytes);
    let _ = parse_slab_leaf(DISK, 0, bytes);
    let _ = parse_promise_leaf(DISK, 0, bytes);
    let _ = parse_batch_header(bytes);
    let _ = parse_batch(DISK, bytes);
    let _ = parse_page(PageIdentity { disk: DISK, slab: SlabIndex(0), generation: 1, page: 0 }, bytes);
}

/// A disk with something of everything.
fn used_disk() -> CrashDisk {
    static DISK: OnceLock<CrashDisk> = OnceLock::new();
    DISK.get_or_init(make_used_disk).fork()
}

fn make_used_disk() -> CrashDisk {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.allocate(1, true);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(5) }).unwrap();
    rig.run(StoreRequest::SetRecords { records: vec![7; 5000] }).unwrap();
    rig.checkpoint();
    for block in 0..10 {
        rig.run(common::write_request_at(Epoch(5), WriteClass::Overwrite, block * 3, &pattern(block, 2)))
            .unwrap();
    }
    rig.run(StoreRequest::Discard { volume: VOLUME, epoch: Epoch(5), lba: Lba(90), blocks: 9 }).unwrap();
    rig.store.into_disk()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn random_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        parse_all(&bytes);
    }

    #[test]
    fn random_bytes_behind_each_magic_are_answered(
        kind in prop::sample::select(&b"LARB"[..]),
        mut bytes in prop::collection::vec(any::<u8>(), 4096..=4096),
        sealed: bool,
    ) {
        bytes[..8].copy_from_slice(b"CENOTE\x01L");
        bytes[7] = kind;
        if sealed {
            // A right CRC lets the fields be read.
            bytes[8..16].fill(0);
            let identity: &[u8] = if kind == b'L' { &[] } else { &[0xD1; 16] };
            if kind == b'B' {
                bytes[48..52].copy_from_slice(&1u32.to_le_bytes());
            }
            let crc = codes::crc64(&[identity, &bytes].concat());
            bytes[8..16].copy_from_slice(&crc.to_le_bytes());
        }
        parse_all(&bytes);
    }

    #[test]
    fn cut_and_flipped_structures_are_answered(offset in 0u64..12, cut in 0usize..4096, at in 0usize..4096, flip in any::<u8>()) {
        let disk = used_disk();
        let layout = Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap();
        let places = [0, 4096, 8192, 12288, 64 << 10, layout.tables[0], layout.tables[1] + 4096, layout.journal,
            layout.journal + 4096, layout.metadata, layout.journal + 8192, layout.journal + 20480];
        let mut bytes = disk.peek(places[offset as usize], 4096);
        bytes[at] ^= flip;
        parse_all(&bytes);
        parse_all(&bytes[..cut]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Damage anywhere: the disk opens or is refused with a reason; what it then reads is right or refused.
    #[test]
    fn a_damaged_disk_opens_or_is_refused_and_never_lies(
        damage in prop::collection::vec((0u64..1 << 20, 1u64..3000, any::<bool>()), 1..6),
    ) {
        let disk = used_disk();
        let before = pattern(1, 256);
        let pristine = Rig::open(disk.fork()).read(0, 256).unwrap();
        for (at, len, zero) in damage {
            // The structures lie in the first 2 MiB.
            let offset = at * 2;
            if zero {
                disk.poke(offset, &vec![0; len as usize]);
            } else {
                disk.rot(offset, len);
            }
        }
        prop_assert!(inspect(disk.fork()).is_ok());
        let Ok(store) = Store::open_with(disk, small_options()) else { return Ok(()) };
        let mut rig = Rig::new(store);
        if rig.store.chunks().is_empty() {
            return Ok(());
        }
        for block in 0..256u64 {
            if let Ok(bytes) = rig.read(block, 1) {
                let range = block as usize * 4096..(block as usize + 1) * 4096;
                // Where the end of the journal is lost, nothing proves that it was there.
                let journaled = (block < 29 && block % 3 < 2) || (90..99).contains(&block);
                let older = journaled && bytes == before[range.clone()];
                prop_assert!(bytes == pristine[range] || older, "block {block}");
            }
        }
        let _ = rig.run(common::write_request_at(EPOCH, WriteClass::Overwrite, 0, &pattern(1, 1)));
    }
}
