//! Parsers and opening on arbitrary bytes: an answer, never a panic.

mod common;

use common::{DISK, EPOCH, Rig, VOLUME, new_rig, pattern, small_options};
use disk::crash::CrashDisk;
use proptest::prelude::*;
use std::sync::OnceLock;
use store::api::{StoreRequest, WriteClass};
use store::{
    Layout, PageIdentity, PageVersion, Store, inspect, parse_anchor, parse_batch, parse_batch_header,
    parse_label, parse_page, parse_promise_leaf, parse_records, parse_slab_leaf, parse_version_leaf,
};
use types::{ChunkIndex, Epoch, Lba, SlabIndex};

fn parse_all(bytes: &[u8]) {
    let _ = parse_label(bytes);
    let _ = parse_anchor(DISK, bytes);
    let _ = parse_records(DISK, bytes);
    let _ = parse_slab_leaf(DISK, 0, bytes);
    let _ = parse_promise_leaf(DISK, 0, bytes);
    let _ = parse_batch_header(bytes);
    let _ = parse_batch(DISK, bytes);
    let identity = PageIdentity { disk: DISK, slab: SlabIndex(0), generation: 1, page: 0 };
    let _ = parse_page(identity, PageVersion(1), bytes);
    let _ = parse_version_leaf(DISK, 0, bytes);
}

/// Makes a disk with data in every structure.
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
    rig.run(StoreRequest::Discard { volume: VOLUME, stamp: Epoch(5).into(), lba: Lba(90), blocks: 9 })
        .unwrap();
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

    /// Damage anywhere: the disk opens or is refused with a reason; reads then are right or
    /// refused.
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
                // If the end of the journal is lost, nothing proves that it was there.
                let journaled = (block < 29 && block % 3 < 2) || (90..99).contains(&block);
                let older = journaled && bytes == before[range.clone()];
                prop_assert!(bytes == pristine[range] || older, "block {block}");
            }
        }
        let _ = rig.run(common::write_request_at(EPOCH, WriteClass::Overwrite, 0, &pattern(1, 1)));
    }
}

/// Puts a number into all copies of a structure, under a right checksum.
fn reseal(disk: &CrashDisk, kind: u8, at: u64, number: u64) {
    let layout = Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap();
    let end = (16 << 20) - (1 << 20);
    let promises = (layout.slab_count as u64).div_ceil(80) * 4096;
    let (places, len, crc_at) = match kind {
        b'A' => (vec![8192, 12288, end + 8192, end + 12288], 4096, 8),
        b'S' => (layout.tables.to_vec(), 512, 0),
        b'P' => (layout.tables.map(|copy| copy + promises).to_vec(), 512, 0),
        b'V' => (vec![layout.versions], 512, 0),
        _ => (vec![layout.journal], 4096, 8),
    };
    for place in places {
        let mut bytes = disk.peek(place, len);
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let at = (16 + at % (len as u64 - 24)) as usize / 4 * 4;
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        bytes[crc_at..crc_at + 8].fill(0);
        let mut identity = DISK.to_bytes().to_vec();
        if len == 512 {
            identity.push(kind);
            identity.extend_from_slice(&[0; 4]);
        }
        let crc = codes::crc64(&[&identity[..], &bytes].concat());
        bytes[crc_at..crc_at + 8].copy_from_slice(&crc.to_le_bytes());
        disk.poke(place, &bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// A disk that rotted and was sealed again, or that was crafted, is refused, or answers its
    /// requests.
    #[test]
    fn a_disk_with_any_numbers_under_right_checksums_is_refused_or_answers(
        kind in prop::sample::select(&b"ASPVB"[..]),
        at in prop_oneof![0u64..64, 0u64..4096],
        number in prop_oneof![
            Just(0), Just(u64::MAX), Just(u64::MAX - 1), Just(u64::from(u32::MAX)), Just(1 << 62), any::<u64>(), 0u64..300
        ],
    ) {
        let disk = used_disk();
        reseal(&disk, kind, at, number);
        let _ = inspect(disk.fork());
        let Ok(store) = Store::open_with(disk, small_options()) else { return Ok(()) };
        let mut rig = Rig::new(store);
        let epoch = Epoch(1 << 61);
        let allocate = StoreRequest::AllocateChunk { volume: VOLUME, epoch, chunk: ChunkIndex(3), append: false };
        let _ = rig.run(allocate);
        for lba in [0, 40, 300, 800] {
            for class in [WriteClass::Overwrite, WriteClass::Fresh, WriteClass::Append] {
                let _ = rig.run(common::write_request_at(epoch, class, lba, &pattern(9, 3)));
            }
            let _ = rig.read(lba, 20);
        }
        for chunk in 0..4 {
            let _ = rig.run(StoreRequest::Regions { volume: VOLUME, chunk: ChunkIndex(chunk) });
        }
        let _ = rig.run(StoreRequest::Scrub { bytes: u64::MAX });
        let _ = rig.run(StoreRequest::Promise { volume: VOLUME, epoch });
        let _ = rig.run(StoreRequest::SetRecords { records: vec![1; 100] });
        rig.checkpoint();
        for chunk in 0..4 {
            let _ = rig.run(StoreRequest::FreeChunk { volume: VOLUME, epoch, chunk: ChunkIndex(chunk) });
        }
        rig.checkpoint();
        let disk = rig.store.into_disk();
        let _ = Store::open_with(disk, small_options()).map(Rig::new);
    }
}
