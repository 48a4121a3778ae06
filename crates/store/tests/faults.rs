//! Rot, lost and misdirected writes, I/O errors, hangs, a full file under the disk.

mod common;

use common::{
    DISK, EPOCH, POOL, Rig, VOLUME, crash_disk, new_rig, pattern, sealed, small, small_options, write_request,
};
use disk::DiskError;
use disk::crash::{CrashChoice, CrashDisk, CrashOptions, Fault, FaultAction, FaultTarget};
use store::api::{StoreError, StoreReply, StoreRequest, WriteClass};
use store::{Features, Layout, OpenError, Store, StoreOptions, format, inspect, parse_label};
use types::{BLOCK_BYTES, ChunkIndex, Epoch, Lba};

fn layout() -> Layout {
    Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap()
}

/// Returns the place of a block of the first slab.
fn place_of(block: u64) -> u64 {
    layout().slabs + block * BLOCK_BYTES as u64
}

/// Makes a store with one chunk, whole and in place, and its disk.
fn filled() -> (Rig<CrashDisk>, CrashDisk) {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    (rig, disk)
}

fn corrupt(lbas: &[u64]) -> StoreError {
    StoreError::Corrupt { lbas: lbas.iter().map(|lba| Lba(*lba)).collect() }
}

fn scrub(rig: &mut Rig<CrashDisk>) -> Vec<u64> {
    match rig.run(StoreRequest::Scrub { bytes: u64::MAX }) {
        Ok(StoreReply::Scrubbed(progress)) => {
            assert!(progress.finished);
            progress
                .corrupt
                .into_iter()
                .map(|(volume, lba)| (volume == VOLUME).then_some(lba.0).unwrap())
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rotten_blocks_are_named_never_returned_and_healed_by_an_overwrite() {
    let (mut rig, disk) = filled();
    disk.rot(place_of(7), 1);
    disk.rot(place_of(9), BLOCK_BYTES as u64);
    assert_eq!(rig.read(0, 256), Err(corrupt(&[7, 9])));
    assert_eq!(rig.read(8, 1), Ok(pattern(1, 256)[8 * BLOCK_BYTES..9 * BLOCK_BYTES].to_vec()));
    assert_eq!(scrub(&mut rig), [7, 9]);
    // Found by the read and again by the scrub, and still counted as two blocks.
    assert_eq!(rig.store.health().corrupt_blocks, 2);
    for block in [7, 9] {
        let bytes = &pattern(1, 256)[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
        rig.write(WriteClass::Overwrite, block as u64, bytes).unwrap();
    }
    assert_eq!(rig.read(0, 256), Ok(pattern(1, 256)));
    rig.checkpoint();
    let mut rig = rig.reopen();
    assert_eq!(rig.read(0, 256), Ok(pattern(1, 256)));
    assert!(scrub(&mut rig).is_empty());
}

#[test]
fn zeroed_data_and_zeroed_metadata_are_corrupt_not_zeroes() {
    let (mut rig, disk) = filled();
    disk.poke(place_of(20), &[0; BLOCK_BYTES]);
    assert_eq!(rig.read(20, 1), Err(corrupt(&[20])));
    disk.poke(layout().metadata, &[0; 4096]);
    let mut rig = rig.reopen();
    assert!(matches!(rig.read(0, 1), Err(StoreError::Corrupt { .. })));
    let health = rig.store.health();
    assert_eq!((health.damaged_metadata_leaves, health.corrupt_blocks, health.medium_errors), (8, 1, 0));
}

#[test]
fn an_unreadable_metadata_page_is_one_bad_block_of_the_disk() {
    let (rig, disk) = filled();
    let sector = FaultTarget::ReadRange { offset: layout().metadata, len_bytes: 512 };
    disk.inject(Fault::every(sector, FaultAction::Fail(DiskError::Medium(5))));
    let mut rig = rig.reopen();
    assert!(matches!(rig.read(0, 256), Err(StoreError::Corrupt { lbas }) if lbas.len() == 256));
    assert_eq!(scrub(&mut rig).len(), 256);
    let health = rig.store.health();
    assert_eq!((health.medium_errors, health.corrupt_blocks), (1, 1));
}

#[test]
fn a_rotten_metadata_leaf_loses_its_own_blocks_only_and_heals_block_by_block() {
    let (rig, disk) = filled();
    disk.rot(layout().metadata + 512, 1);
    let mut rig = rig.reopen();
    assert_eq!(rig.read(0, 62), Ok(pattern(1, 62)));
    assert_eq!(rig.read(124, 132).unwrap(), pattern(1, 256)[124 * BLOCK_BYTES..]);
    let lost: Vec<u64> = (62..124).collect();
    assert_eq!(rig.read(0, 256), Err(corrupt(&lost)));
    assert_eq!(scrub(&mut rig), lost);
    for first in (62..124).step_by(2) {
        let bytes = &pattern(1, 256)[first * BLOCK_BYTES..(first + 2) * BLOCK_BYTES];
        rig.write(WriteClass::Overwrite, first as u64, bytes).unwrap();
    }
    rig.checkpoint();
    assert_eq!(rig.reopen().read(0, 256), Ok(pattern(1, 256)));
}

#[test]
fn lost_and_misdirected_writes_are_found() {
    let (mut rig, disk) = filled();
    rig.discard(0, 64).unwrap();
    rig.run_until_idle();
    disk.inject(Fault::nth(
        FaultTarget::Range { offset: place_of(0), len_bytes: 1 },
        0,
        FaultAction::LoseWrite,
    ));
    rig.write(WriteClass::Fresh, 0, &pattern(2, 2)).unwrap();
    rig.checkpoint();
    assert_eq!(rig.read(0, 2), Err(corrupt(&[0, 1])));
    let action = FaultAction::MisdirectWrite { to_offset: place_of(100) };
    disk.inject(Fault::nth(FaultTarget::Range { offset: place_of(10), len_bytes: 1 }, 0, action));
    rig.write(WriteClass::Fresh, 10, &pattern(3, 1)).unwrap();
    rig.checkpoint();
    assert_eq!(rig.read(10, 1), Err(corrupt(&[10])));
    assert_eq!(rig.read(100, 1), Err(corrupt(&[100])));
}

#[test]
fn a_journaled_block_that_rots_before_it_is_applied_is_corrupt_alone() {
    let (mut rig, disk) = filled();
    for block in 0..6 {
        rig.write(WriteClass::Overwrite, block, &pattern(10 + block, 1)).unwrap();
    }
    // Batches of a header and one block each; the data of the third.
    let journal = (0..64).map(|at| layout().journal + at * 4096);
    let third = journal.filter(|at| disk.peek(*at, 4096) == pattern(12, 1)).collect::<Vec<_>>();
    assert_eq!(third.len(), 1);
    disk.rot(third[0], 1);
    let mut rig = rig.reopen();
    assert_eq!(rig.read(2, 1), Err(corrupt(&[2])));
    for block in [0, 1, 3, 4, 5] {
        assert_eq!(rig.read(block, 1), Ok(pattern(10 + block, 1)), "block {block}");
    }
    rig.checkpoint();
    assert_eq!(rig.reopen().read(2, 1), Err(corrupt(&[2])));
}

#[test]
fn a_journal_that_lost_acknowledged_records_is_refused() {
    let (mut rig, disk) = filled();
    for block in 0..6 {
        rig.write(WriteClass::Overwrite, block, &pattern(10 + block, 1)).unwrap();
    }
    let first =
        (0..64).map(|at| layout().journal + at * 4096).find(|at| disk.peek(*at, 4096) == pattern(11, 1));
    disk.rot(first.unwrap() - 4096, 1);
    let before = disk.peek(0, 1 << 20);
    assert!(matches!(Store::open(disk.clone()), Err(OpenError::JournalDamaged { .. })));
    assert_eq!(disk.peek(0, 1 << 20), before, "a refused disk is not changed");
    let inspection = inspect(disk).unwrap();
    assert!(inspection.problems.iter().any(|problem| problem.contains("journal")), "{inspection}");
}

#[test]
fn labels_anchors_and_tables_survive_the_loss_of_a_copy() {
    let (rig, disk) = filled();
    let end = (16 << 20) - (1 << 20);
    let layout = layout();
    for (offset, len) in [(0, 16 << 10), (layout.tables[0], layout.journal - layout.tables[0])] {
        disk.rot(offset, len);
    }
    let inspection = inspect(disk.clone()).unwrap();
    assert!(inspection.problems.len() >= 4, "{inspection}");
    let mut rig = rig.reopen();
    assert_eq!(rig.read(0, 256), Ok(pattern(1, 256)));
    rig.checkpoint();
    // The front label was healed by opening; anchor and tables by the checkpoint.
    disk.rot(end, 8 << 10);
    disk.rot(layout.tables[1], 4096);
    assert!(parse_label(&disk.peek(0, 4096)).is_ok());
    drop(rig);
    // On a copy: a running store rewrites the damage that its opening found.
    assert_eq!(Rig::open(disk.fork()).read(0, 256), Ok(pattern(1, 256)));
    disk.rot(layout.tables[0], 4096);
    assert_eq!(Store::open(disk.clone()).err(), Some(OpenError::Damaged { what: "the slab table" }));
    disk.rot(end, 8 << 10);
    disk.rot(0, 8 << 10);
    assert_eq!(Store::open(disk).err(), Some(OpenError::Damaged { what: "the label" }));
}

/// Writes `bytes` at `at` into the first copy of the label, and seals it.
fn relabel(disk: &CrashDisk, at: usize, bytes: &[u8]) {
    let mut label = disk.peek(0, 4096);
    label[at..at + bytes.len()].copy_from_slice(bytes);
    label[8..16].fill(0);
    let crc = codes::crc64(&label);
    label[8..16].copy_from_slice(&crc.to_le_bytes());
    disk.poke(0, &label);
}

#[test]
fn other_formats_unknown_features_and_a_shrunken_disk_are_refused_untouched() {
    let (_, disk) = filled();
    let small_disk = CrashDisk::new(CrashOptions::new(12 << 20));
    small_disk.poke(0, &disk.peek(0, 12 << 20));
    assert_eq!(
        Store::open(small_disk).err(),
        Some(OpenError::Shrunk { label_bytes: 16 << 20, size_bytes: 12 << 20 })
    );
    let features =
        |ro_compat, incompat| OpenError::UnknownFeatures(Features { compat: 0, ro_compat, incompat });
    for (at, bytes, refused) in [
        (16, 3u64, OpenError::NewerFormat { found: 3, supported: 2 }),
        (16, 1, OpenError::OlderFormat { found: 1, supported: 2 }),
        (32, 4, features(4, 0)),
        (40, 1 << 63, features(0, 1 << 63)),
    ] {
        let disk = disk.fork();
        let bytes = if at == 16 { &bytes.to_le_bytes()[..4] } else { &bytes.to_le_bytes()[..] };
        relabel(&disk, at, bytes);
        let before = disk.peek(0, 16 << 20);
        assert_eq!(Store::open(disk.clone()).err(), Some(refused.clone()));
        assert!(format(disk.clone(), small()).is_err(), "{refused}");
        assert!(inspect(disk.clone()).unwrap().problems.contains(&refused.to_string()));
        assert_eq!(disk.peek(0, 16 << 20), before, "{refused}");
    }
}

#[test]
fn a_feature_that_any_program_may_ignore_is_ignored_and_kept() {
    let (_, disk) = filled();
    relabel(&disk, 24, &6u64.to_le_bytes());
    let copy = disk.peek(0, 4096);
    for at in [4096, 15 << 20, (15 << 20) + 4096] {
        disk.poke(at, &copy);
    }
    assert_eq!(Rig::open(disk.clone()).read(0, 256), Ok(pattern(1, 256)));
    assert_eq!(parse_label(&disk.peek(0, 4096)).unwrap().features.compat, 6);
}

#[test]
fn a_grown_disk_opens_at_its_old_size() {
    let (_, disk) = filled();
    let grown = CrashDisk::new(CrashOptions::new(32 << 20));
    grown.poke(0, &disk.peek(0, 16 << 20));
    assert_eq!(Rig::open(grown).read(0, 256), Ok(pattern(1, 256)));
}

/// Every kind of write that fails poisons the store. Reads continue, and acknowledged data are
/// present after verification.
#[test]
fn a_failed_write_or_flush_poisons_until_the_disk_is_verified() {
    let targets = [FaultTarget::Write, FaultTarget::Flush];
    for (target, error) in targets.into_iter().flat_map(|target| {
        [DiskError::Medium(5), DiskError::TimedOut, DiskError::Gone].map(|error| (target, error))
    }) {
        let (mut rig, disk) = filled();
        rig.write(WriteClass::Overwrite, 5, &pattern(5, 1)).unwrap();
        disk.inject(Fault::nth(target, 0, FaultAction::Fail(error.clone())));
        // Two at a time, which share a flush.
        let beside = rig.submit(write_request(WriteClass::Fresh, 210, &pattern(6, 30)));
        let failed = rig.write(WriteClass::Fresh, 100, &pattern(6, 100));
        assert!(matches!(failed, Err(StoreError::Poisoned)), "{failed:?}");
        assert!(matches!(rig.wait(beside), Err(StoreError::Poisoned)));
        assert!(rig.store.is_poisoned());
        assert_eq!(rig.store.health().poisoned_by, Some(error));
        let refused = [
            write_request(WriteClass::Overwrite, 0, &pattern(1, 1)),
            StoreRequest::AllocateChunk { volume: VOLUME, epoch: EPOCH, chunk: ChunkIndex(4), append: false },
            StoreRequest::Discard { volume: VOLUME, stamp: EPOCH.into(), lba: Lba(0), blocks: 1 },
            StoreRequest::Promise { volume: VOLUME, epoch: Epoch(99) },
            StoreRequest::SetRecords { records: vec![1] },
        ];
        for request in refused {
            assert_eq!(rig.run(request).unwrap_err(), StoreError::Poisoned);
        }
        assert_eq!(rig.read(5, 1), Ok(pattern(5, 1)));
        let mut opening = rig.store.reverify();
        let store = std::iter::from_fn(|| Some(opening.poll())).take(100_000).flatten().next();
        let mut rig = Rig::new(store.unwrap().unwrap());
        assert!(!rig.store.is_poisoned());
        assert_eq!(rig.read(5, 1), Ok(pattern(5, 1)));
        rig.write(WriteClass::Overwrite, 6, &pattern(7, 1)).unwrap();
    }
}

#[test]
fn a_hanging_disk_answers_what_it_can_and_the_rest_when_its_time_is_up() {
    let (mut rig, disk) = filled();
    rig.write(WriteClass::Overwrite, 5, &pattern(5, 1)).unwrap();
    disk.inject(Fault::every(FaultTarget::Any, FaultAction::Hang));
    let write = rig.submit(write_request(WriteClass::Overwrite, 8, &pattern(8, 1)));
    let read = rig.submit(StoreRequest::Read { volume: VOLUME, lba: Lba(40), blocks: 1 });
    assert_eq!(rig.read(5, 1), Ok(pattern(5, 1)), "what is in RAM needs no disk");
    (0..100).for_each(|_| rig.poll());
    assert!(rig.answers.is_empty());
    disk.clear_faults();
    disk.time_out_hanging();
    assert!(matches!(rig.wait(write), Err(StoreError::Poisoned)));
    assert!(matches!(rig.wait(read), Err(StoreError::Disk(DiskError::TimedOut))));
}

/// The disk answers operations of the abandoned store when they time out or are done after all.
#[test]
fn late_answers_to_a_poisoned_store_do_not_count_for_its_successor() {
    let (mut rig, disk) = filled();
    disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::Hang));
    disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::Fail(DiskError::Medium(5))));
    for lba in [10, 100] {
        rig.submit(write_request(WriteClass::Overwrite, lba, &pattern(8, 4)));
        rig.poll();
    }
    (0..20).for_each(|_| rig.poll());
    assert!(rig.store.is_poisoned());
    let mut opening = rig.store.reverify();
    let store = std::iter::from_fn(|| Some(opening.poll())).take(100_000).flatten().next();
    let mut rig = Rig::new(store.unwrap().unwrap());
    disk.clear_faults();
    disk.inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
    let writes: Vec<u64> = (0..4)
        .map(|at| rig.submit(write_request(WriteClass::Overwrite, 200 + at, &pattern(at, 1))))
        .collect();
    rig.poll();
    disk.clear_faults();
    disk.time_out_hanging();
    (0..20).for_each(|_| rig.poll());
    for token in writes {
        assert!(matches!(rig.answers.remove(&token), None | Some(Err(_))), "nothing was written durably");
    }
}

#[test]
fn an_unreadable_sector_fails_its_read_alone_and_shows_in_the_scrub() {
    let (mut rig, disk) = filled();
    let sector = FaultTarget::Range { offset: place_of(30), len_bytes: 512 };
    disk.inject(Fault::every(sector, FaultAction::Fail(DiskError::Medium(5))));
    for (first, count) in [(30, 1), (0, 256), (29, 3)] {
        assert_eq!(rig.read(first, count), Err(StoreError::Corrupt { lbas: vec![Lba(30)] }), "from {first}");
    }
    assert!(rig.read(31, 10).is_ok());
    assert!(!rig.store.is_poisoned());
    assert!(scrub(&mut rig).contains(&30));
    let health = rig.store.health();
    assert_eq!((health.medium_errors, health.corrupt_blocks), (1, 1), "counted once");
    // A sector that is written again can be read again.
    disk.clear_faults();
    rig.write(WriteClass::Overwrite, 30, &pattern(7, 1)).unwrap();
    assert_eq!(rig.read(30, 1), Ok(pattern(7, 1)));
}

#[test]
fn an_error_of_the_medium_that_passes_costs_nothing() {
    let (rig, disk) = filled();
    let once = |offset| {
        let sector = FaultTarget::Range { offset, len_bytes: 512 };
        disk.inject(Fault::nth(sector, 0, FaultAction::Fail(DiskError::Medium(5))));
    };
    // A metadata page that is read at opening or at the first request, and a block.
    let mut rig = rig.reopen();
    once(layout().metadata);
    once(place_of(30));
    assert_eq!(rig.read(0, 256), Ok(pattern(1, 256)));
    let health = rig.store.health();
    assert_eq!((health.medium_errors, health.corrupt_blocks, health.damaged_metadata_leaves), (0, 0, 0));
}

#[test]
fn a_journaled_block_that_cannot_be_read_is_corrupt_and_the_checkpoint_goes_on() {
    let (rig, disk) = filled();
    let options = StoreOptions { overlay_bytes: 0, ..small_options() };
    let mut rig = Rig::new(Store::open_with(rig.store.into_disk(), options).unwrap());
    rig.write(WriteClass::Overwrite, 5, &pattern(9, 1)).unwrap();
    rig.run_until_idle();
    let journal = FaultTarget::ReadRange { offset: layout().journal, len_bytes: 256 << 10 };
    disk.inject(Fault::every(journal, FaultAction::Fail(DiskError::Medium(5))));
    rig.checkpoint();
    assert!(!rig.store.is_poisoned());
    disk.clear_faults();
    assert_eq!(rig.read(0, 10), Err(corrupt(&[5])));
    rig.write(WriteClass::Overwrite, 5, &pattern(9, 1)).unwrap();
    assert_eq!(rig.read(5, 1), Ok(pattern(9, 1)));
}

#[test]
fn no_room_under_a_fresh_write_is_said_and_changes_nothing() {
    let (mut rig, disk) = filled();
    rig.discard(0, 100).unwrap();
    disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::Fail(DiskError::NoSpace)));
    // The discard's own punch is not a write; the first write is the data.
    rig.run_until_idle();
    assert_eq!(rig.write(WriteClass::Fresh, 0, &pattern(2, 50)), Err(StoreError::NoSpace));
    assert_eq!(rig.read(0, 100), Ok(vec![0; 100 * BLOCK_BYTES]));
    assert!(!rig.store.is_poisoned());
    rig.write(WriteClass::Fresh, 0, &pattern(2, 50)).unwrap();
    assert_eq!(rig.read(0, 50), Ok(pattern(2, 50)));
}

#[test]
fn no_room_to_apply_the_journal_refuses_writes_loses_nothing_and_passes() {
    let (mut rig, disk) = filled();
    let layout = layout();
    let slabs = FaultTarget::Range { offset: layout.slabs, len_bytes: 8 << 20 };
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    let mut last = [0u64; 64];
    let mut refused = 0;
    for round in 1..400u64 {
        let block = round % 64;
        match rig.write(WriteClass::Overwrite, block, &pattern(round, 1)) {
            Ok(()) => last[block as usize] = round,
            Err(StoreError::NoSpace) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 100 && !rig.store.is_poisoned());
    assert!(last.iter().filter(|version| **version > 0).count() > 10);
    let check = |rig: &mut Rig<_>| {
        for (block, version) in last.iter().enumerate().filter(|(_, version)| **version > 0) {
            assert_eq!(rig.read(block as u64, 1), Ok(pattern(*version, 1)), "block {block}");
        }
    };
    disk.clear_faults();
    check(&mut rig);
    rig.write(WriteClass::Overwrite, 200, &pattern(9, 1)).unwrap();
    rig.checkpoint();
    check(&mut rig);
    check(&mut rig.reopen());
}

/// Neither the chunk nor the slab reserved for it is forgotten.
#[test]
fn an_allocation_that_a_full_journal_refuses_can_be_asked_for_again() {
    let (mut rig, disk) = filled();
    let slabs = FaultTarget::Range { offset: layout().slabs, len_bytes: 8 << 20 };
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    let allocate = |chunk| StoreRequest::AllocateChunk {
        volume: VOLUME,
        epoch: EPOCH,
        chunk: ChunkIndex(chunk),
        append: false,
    };
    let refused = (1..400).filter(|round| rig.write(WriteClass::Overwrite, 5, &pattern(*round, 1)).is_err());
    assert!(refused.count() > 100);
    // This allocation may find the last block of the journal.
    let _ = rig.run(allocate(1));
    let free = rig.store.free_slabs();
    for _ in 0..3 {
        let both = [rig.submit(allocate(2)), rig.submit(allocate(2))];
        for token in both {
            assert!(matches!(rig.wait(token), Err(StoreError::NoSpace)));
        }
        assert_eq!(rig.store.free_slabs(), free);
    }
    disk.clear_faults();
    rig.allocate(2, false);
    assert_eq!(rig.store.free_slabs(), free - 1);
}

fn free_and_allocate(rig: &mut Rig<CrashDisk>) -> u64 {
    rig.run(StoreRequest::FreeChunk { volume: VOLUME, epoch: EPOCH, chunk: ChunkIndex(0) }).unwrap();
    let next = rig.store.slab_count();
    let allocate = rig.submit(StoreRequest::AllocateChunk {
        volume: VOLUME,
        epoch: EPOCH,
        chunk: ChunkIndex(next),
        append: false,
    });
    (0..200).for_each(|_| rig.poll());
    assert!(rig.answers.is_empty(), "the only free slab cannot be used yet");
    allocate
}

/// A slab is not reused while the device may still drop data written to it.
#[test]
fn a_freed_slab_waits_for_its_space_to_be_given_back() {
    let (mut rig, disk) = filled();
    (1..rig.store.slab_count()).for_each(|chunk| rig.allocate(chunk, false));
    disk.inject(Fault::every(FaultTarget::Discard, FaultAction::Hang));
    let allocate = free_and_allocate(&mut rig);
    disk.clear_faults();
    disk.release_hanging();
    rig.wait(allocate).unwrap();
    let first = u64::from(rig.store.slab_count()) * 256;
    rig.write(WriteClass::Fresh, first, &pattern(2, 256)).unwrap();
    assert_eq!(rig.reopen().read(first, 256), Ok(pattern(2, 256)));
}

/// Nor while metadata of its former owner is being written.
#[test]
fn a_freed_slab_waits_for_the_checkpoint_that_may_still_write_to_it() {
    let (mut rig, disk) = filled();
    (1..rig.store.slab_count()).for_each(|chunk| rig.allocate(chunk, false));
    rig.write(WriteClass::Overwrite, 5, &pattern(5, 1)).unwrap();
    rig.run_until_idle();
    let pages = FaultTarget::Range { offset: layout().metadata, len_bytes: 4096 };
    disk.inject(Fault::nth(pages, 0, FaultAction::Hang));
    rig.store.request_checkpoint();
    (0..50).for_each(|_| rig.poll());
    assert_eq!(disk.hanging_operations(), 1);
    let allocate = free_and_allocate(&mut rig);
    disk.release_hanging();
    rig.wait(allocate).unwrap();
    let first = u64::from(rig.store.slab_count()) * 256;
    rig.write(WriteClass::Fresh, first, &pattern(2, 256)).unwrap();
    rig.checkpoint();
    assert_eq!(rig.reopen().read(first, 256), Ok(pattern(2, 256)));
}

#[test]
fn structures_on_unreadable_sectors_are_read_from_their_copies() {
    let (rig, disk) = filled();
    let layout = layout();
    for offset in [0, 8192, 12288, layout.tables[0], layout.tables[0] + 4096] {
        let sector = FaultTarget::Range { offset, len_bytes: 512 };
        disk.inject(Fault::every(sector, FaultAction::Fail(DiskError::Medium(5))));
    }
    let inspection = inspect(disk.clone()).unwrap();
    assert!(inspection.label.is_some() && inspection.problems.len() >= 3, "{inspection}");
    disk.clear_faults();
    let unreadable = FaultTarget::Range { offset: layout.metadata, len_bytes: 512 };
    disk.inject(Fault::every(unreadable, FaultAction::Fail(DiskError::Medium(5))));
    let mut rig = rig.reopen();
    assert!(matches!(rig.read(0, 1), Err(StoreError::Corrupt { .. })));
    rig.write(WriteClass::Overwrite, 0, &pattern(1, 1)).unwrap();
    disk.clear_faults();
    rig.checkpoint();
    assert_eq!(rig.reopen().read(0, 1), Ok(pattern(1, 1)));
}

#[test]
fn a_promise_waits_for_writes_that_are_on_their_way_into_place() {
    let (mut rig, disk) = filled();
    rig.allocate(1, true);
    rig.write(WriteClass::Append, 256, &pattern(1, 1)).unwrap();
    disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::Hang));
    let write = rig.submit(write_request(WriteClass::Append, 256, &pattern(2, 1)));
    let promise = rig.submit(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(9) });
    (0..100).for_each(|_| rig.poll());
    assert!(rig.answers.is_empty(), "the old write may still land");
    assert_eq!(
        rig.write(WriteClass::Append, 256, &pattern(3, 1)),
        Err(StoreError::Fenced { promised: Epoch(9) })
    );
    disk.release_hanging();
    rig.wait(promise).unwrap();
    rig.wait(write).unwrap();
    assert_eq!(rig.read(256, 1), Ok(sealed(256, &pattern(2, 1))));
}

#[test]
fn an_inspection_tells_what_a_disk_is_and_changes_nothing() {
    let (mut rig, disk) = filled();
    rig.allocate(1, true);
    rig.write(WriteClass::Overwrite, 5, &pattern(5, 1)).unwrap();
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(9) }).unwrap();
    let before = disk.peek(0, 16 << 20);
    let inspection = inspect(disk.clone()).unwrap();
    assert_eq!(disk.peek(0, 16 << 20), before);
    assert!(inspection.problems.is_empty(), "{inspection}");
    let label = inspection.label.as_ref().unwrap();
    assert_eq!((label.disk, label.pool), (DISK, POOL));
    let volume = inspection.volumes[&VOLUME];
    assert_eq!((volume.chunks, volume.append_chunks, volume.promised), (2, 1, Epoch(9)));
    assert_eq!(inspection.journal.unwrap().blocks, 1);
    assert!(inspection.to_string().contains("nothing is damaged"));
    assert_eq!(inspect(crash_disk(16 << 20)).unwrap().problems, [OpenError::Blank.to_string()]);
    assert!(inspect(crash_disk(4096)).unwrap().label.is_none());
    let options = StoreOptions { pool: None, ..small_options() };
    assert!(Store::open_with(disk, options).is_ok());
}

/// Overwrites block 5, lets a checkpoint write the store's structures while the next write to
/// `target` is lost, and drops the state in RAM.
fn checkpoint_that_loses(offset: u64, len_bytes: u64) -> (Rig<CrashDisk>, CrashDisk) {
    let (mut rig, disk) = filled();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    rig.discard(9, 1).unwrap();
    disk.inject(Fault::nth(FaultTarget::WriteRange { offset, len_bytes }, 0, FaultAction::LoseWrite));
    rig.checkpoint();
    disk.clear_faults();
    (rig.reopen(), disk)
}

#[test]
fn a_metadata_page_whose_write_was_lost_is_damaged_and_never_served() {
    let (mut rig, disk) = checkpoint_that_loses(layout().metadata, 4096);
    assert!(matches!(rig.read(9, 1), Err(StoreError::Corrupt { .. })), "it reads as it did before");
    let inspection = inspect(disk.fork()).unwrap();
    assert!(
        inspection.problems.iter().any(|problem| problem.contains("the disk lost writes")),
        "{inspection}"
    );
    let all: Vec<u64> = (0..256).collect();
    assert_eq!(rig.read(0, 256), Err(corrupt(&all)));
    assert_eq!(scrub(&mut rig), all);
    let health = rig.store.health();
    assert_eq!((health.lost_writes, health.damaged_metadata_leaves, health.corrupt_blocks), (1, 0, 0));
    for first in (0..256).step_by(16) {
        rig.write(WriteClass::Overwrite, first, &pattern(3, 16)).unwrap();
    }
    rig.checkpoint();
    let mut rig = Rig::open(disk.fork());
    assert!(rig.read(0, 256).is_ok());
    assert_eq!(rig.store.health().lost_writes, 0);
}

/// An old page shows the first write of a region as never written: zeroes, on a disk that reports
/// no error.
#[test]
fn blocks_whose_only_record_was_lost_with_a_page_do_not_read_as_zeroes() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    let page = FaultTarget::WriteRange { offset: layout().metadata, len_bytes: 4096 };
    disk.inject(Fault::nth(page, 0, FaultAction::LoseWrite));
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.checkpoint();
    assert!(matches!(rig.reopen().read(0, 1), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_scrub_writes_a_page_again_that_the_disk_lost_while_it_is_in_memory() {
    let (mut rig, disk) = filled();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    let page = FaultTarget::WriteRange { offset: layout().metadata, len_bytes: 4096 };
    disk.inject(Fault::nth(page, 0, FaultAction::LoseWrite));
    rig.checkpoint();
    assert!(scrub(&mut rig).is_empty());
    rig.run_until_idle();
    assert_eq!(rig.store.health().lost_writes, 1);
    rig.checkpoint();
    assert_eq!(rig.reopen().read(5, 1), Ok(pattern(2, 1)));
}

#[test]
fn any_other_single_lost_write_of_a_checkpoint_costs_nothing() {
    let layout = layout();
    let end = (16 << 20) - (1 << 20);
    for (what, offset, len_bytes) in [
        ("the page versions", layout.versions, 4096),
        ("the slab table", layout.tables[0], layout.journal - layout.tables[0]),
        ("the other slab table", layout.tables[1], end - layout.tables[1]),
        ("the anchor in front", 8192, 8192),
        ("the anchor at the end", end + 8192, 8192),
    ] {
        let (mut rig, _) = checkpoint_that_loses(offset, len_bytes);
        assert_eq!(rig.read(5, 1), Ok(pattern(2, 1)), "{what}");
        assert_eq!(rig.read(9, 1), Ok(vec![0; BLOCK_BYTES]), "{what}");
        assert!(scrub(&mut rig).is_empty(), "{what}");
        let health = rig.store.health();
        assert_eq!((health.lost_writes, health.damaged_metadata_leaves), (0, 0), "{what}");
    }
}

#[test]
fn a_lost_write_of_the_slab_table_does_not_wait_for_its_other_copy_to_fail() {
    let layout = layout();
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 1)).unwrap();
    let disk = rig.store.disk_mut().clone();
    let table = FaultTarget::WriteRange { offset: layout.tables[1], len_bytes: 4096 };
    disk.inject(Fault::nth(table, 0, FaultAction::LoseWrite));
    rig.checkpoint();
    let mut rig = rig.reopen();
    rig.checkpoint();
    disk.rot(layout.tables[0], 4096);
    assert_eq!(rig.reopen().read(0, 1), Ok(pattern(1, 1)));
}

#[test]
fn damaged_page_versions_cost_nothing_and_are_written_again() {
    let (mut rig, disk) = filled();
    disk.rot(layout().versions, 4096);
    assert!(inspect(disk.fork()).unwrap().problems.iter().any(|problem| problem.contains("page versions")));
    rig = rig.reopen();
    assert_eq!(rig.read(0, 256), Ok(pattern(1, 256)));
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    let page = FaultTarget::WriteRange { offset: layout().metadata, len_bytes: 4096 };
    disk.inject(Fault::nth(page, 0, FaultAction::LoseWrite));
    rig.checkpoint();
    let mut rig = rig.reopen();
    assert!(matches!(rig.read(5, 1), Err(StoreError::Corrupt { .. })), "the table holds again");
}

/// Process crash, then power cut: a batch that the first opening found in a cache is still present
/// after the second.
#[test]
fn what_an_opening_found_in_the_journal_survives_a_power_cut() {
    let mut kept = 0;
    for seed in 0..16 {
        let options = CrashOptions { seed, ..CrashOptions::new(16 << 20) };
        let disk = format(CrashDisk::new(options), small()).unwrap();
        let mut rig = Rig::open(disk.clone());
        rig.allocate(0, false);
        rig.checkpoint();
        disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::Hang));
        rig.submit(write_request(WriteClass::Overwrite, 5, &pattern(5, 1)));
        (0..20).for_each(|_| rig.poll());
        disk.time_out_hanging();
        (0..20).for_each(|_| rig.poll());
        assert!(rig.store.is_poisoned());
        let found = rig.reopen().read(5, 1);
        kept += u32::from(found == Ok(pattern(5, 1)));
        let mut after = Rig::open(disk.after_crash(&CrashChoice::lose_all()));
        assert_eq!(after.read(5, 1), found, "seed {seed}");
    }
    assert!((1..16).contains(&kept));
}

/// A session with the disk begins with a promise, and there may be no other request to the disk.
#[test]
fn each_promise_that_a_full_journal_has_no_room_for_is_answered() {
    let (mut rig, disk) = filled();
    let slabs = FaultTarget::Range { offset: layout().slabs, len_bytes: 8 << 20 };
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    while rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).is_ok() {}
    let promise = || StoreRequest::Promise { volume: VOLUME, epoch: EPOCH.next() };
    // The first ones may find the last blocks of the journal.
    while rig.run(promise()).is_ok() {}
    for _ in 0..3 {
        let token = rig.submit(promise());
        // A store without operations on its disk is not polled before its next request.
        rig.poll();
        assert_eq!(rig.answers.remove(&token).and_then(Result::err), Some(StoreError::NoSpace));
    }
    disk.clear_faults();
    rig.store.retry();
    rig.run_until_idle();
    assert!(rig.run(promise()).is_ok());
}

/// Another record withdraws the record of data that found no space, and the journal must have a
/// block for it: until then no task writes there.
#[test]
fn each_write_to_blocks_without_room_is_answered_while_the_journal_fills_up() {
    let place =
        |block, count: u64| FaultTarget::WriteRange { offset: place_of(block), len_bytes: count << 12 };
    for records in 0..2 {
        let (mut rig, disk) = filled();
        rig.discard(100, 16).unwrap();
        disk.inject(Fault::every(place(5, 1), FaultAction::Fail(DiskError::NoSpace)));
        rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
        (0..records).for_each(|_| rig.discard(200, 1).unwrap());
        for _ in 0..100 {
            disk.inject(Fault::nth(place(100, 16), 0, FaultAction::Hang));
            let token = rig.submit(write_request(WriteClass::Fresh, 100, &pattern(3, 16)));
            // The record is durable before the data, if there is space for it.
            (0..20).for_each(|_| rig.poll());
            disk.limit_allocation(Some(disk.allocated_bytes() + (16 << 10)));
            disk.release_hanging();
            assert_eq!(rig.wait(token).err(), Some(StoreError::NoSpace));
            disk.limit_allocation(None);
        }
        assert!(rig.store.health().journal_used_bytes > 240 << 10);
        disk.clear_faults();
        rig.write(WriteClass::Fresh, 100, &pattern(4, 16)).unwrap();
        rig.checkpoint();
        let mut rig = rig.reopen();
        assert_eq!(rig.read(100, 16), Ok(pattern(4, 16)));
        assert_eq!(rig.read(5, 1), Ok(pattern(2, 1)));
    }
}

#[test]
fn a_checkpoint_that_found_no_room_is_made_by_itself_when_there_is_room() {
    let (mut rig, disk) = filled();
    let slabs = FaultTarget::Range { offset: layout().slabs, len_bytes: 8 << 20 };
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    rig.store.request_checkpoint();
    rig.run_until_idle();
    let held = rig.store.health();
    assert!(held.no_space > 0 && held.overlay_blocks == 1);
    // The checkpoint is retried in vain, and then stops.
    rig.store.retry();
    rig.run_until_idle();
    assert_eq!(rig.store.health().overlay_blocks, 1);
    disk.clear_faults();
    rig.store.retry();
    rig.run_until_idle();
    assert_eq!(rig.store.health().overlay_blocks, 0);
    assert_eq!(rig.reopen().read(5, 1), Ok(pattern(2, 1)));
}

#[test]
fn who_waits_for_a_slab_that_no_checkpoint_can_release_is_answered() {
    let (mut rig, disk) = filled();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    let allocate = |chunk| StoreRequest::AllocateChunk {
        volume: VOLUME,
        epoch: EPOCH,
        chunk: ChunkIndex(chunk),
        append: false,
    };
    (1..rig.store.slab_count()).for_each(|chunk| drop(rig.run(allocate(chunk)).unwrap()));
    rig.run(StoreRequest::FreeChunk { volume: VOLUME, epoch: EPOCH, chunk: ChunkIndex(1) }).unwrap();
    let slabs = FaultTarget::Range { offset: layout().slabs, len_bytes: 8 << 20 };
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    assert_eq!(rig.run(allocate(99)).err(), Some(StoreError::NoSpace));
    disk.clear_faults();
    assert!(rig.run(allocate(99)).is_ok());
}

/// Each checkpoint that is given up has a number of its own: a page that it wrote does not pass for a later one.
#[test]
fn a_lost_write_is_told_from_what_a_checkpoint_wrote_before_it_was_given_up() {
    let (mut rig, disk) = filled();
    rig.discard(9, 1).unwrap();
    rig.write(WriteClass::Overwrite, 5, &pattern(2, 1)).unwrap();
    let slabs = FaultTarget::Range { offset: layout().slabs, len_bytes: 8 << 20 };
    disk.inject(Fault::every(slabs, FaultAction::Fail(DiskError::NoSpace)));
    rig.store.request_checkpoint();
    rig.run_until_idle();
    rig.store.retry();
    rig.run_until_idle();
    disk.clear_faults();
    let mut rig = rig.reopen();
    rig.discard(10, 1).unwrap();
    let page = FaultTarget::WriteRange { offset: layout().metadata, len_bytes: 4096 };
    disk.inject(Fault::nth(page, 0, FaultAction::LoseWrite));
    rig.checkpoint();
    assert!(matches!(rig.reopen().read(10, 1), Err(StoreError::Corrupt { .. })));
}

/// Makes a chunk of sealed blocks in place, and returns the place of one.
fn filled_append() -> (Rig<CrashDisk>, CrashDisk) {
    let mut rig = new_rig();
    rig.allocate(0, true);
    rig.write(WriteClass::Append, 0, &pattern(1, 200)).unwrap();
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    (rig, disk)
}

#[test]
fn append_blocks_that_do_not_prove_themselves_are_corrupt_and_named_by_scrubs() {
    let (mut rig, disk) = filled_append();
    disk.rot(place_of(7), 1);
    let elsewhere = disk.peek(place_of(8), BLOCK_BYTES);
    disk.poke(place_of(9), &elsewhere);
    assert_eq!(rig.read(0, 256), Err(corrupt(&[7, 9])));
    assert_eq!(rig.read(8, 1), Ok(sealed(0, &pattern(1, 9))[8 * BLOCK_BYTES..].to_vec()));
    assert_eq!(rig.read(200, 56), Ok(vec![0; 56 * BLOCK_BYTES]));
    assert_eq!(rig.store.health().corrupt_blocks, 0, "a crash may have torn them");
    assert_eq!(scrub(&mut rig), [7, 9]);
    assert_eq!(rig.store.health().corrupt_blocks, 2);
    for lba in [7, 9] {
        rig.write(WriteClass::Append, lba, &pattern(2, 1)).unwrap();
        assert_eq!(rig.read(lba, 1), Ok(sealed(lba, &pattern(2, 1))));
    }
    assert!(scrub(&mut rig).is_empty());
}

#[test]
fn append_blocks_of_a_damaged_metadata_leaf_go_on_proving_themselves() {
    let (rig, disk) = filled_append();
    disk.rot(layout().metadata, 512);
    let mut rig = rig.reopen();
    assert_eq!(rig.read(0, 62), Ok(sealed(0, &pattern(1, 200))[..62 * BLOCK_BYTES].to_vec()));
}

#[test]
fn unsealed_append_blocks_are_refused() {
    let (mut rig, _) = filled_append();
    let mut bytes = sealed(3, &pattern(2, 2));
    bytes[BLOCK_BYTES + 100] ^= 1;
    let data = sys::Payload::from(sys::Buf::from(&bytes[..]));
    let class = WriteClass::Append;
    let write = |lba, data| StoreRequest::Write {
        volume: VOLUME,
        stamp: EPOCH.into(),
        lba,
        class,
        data,
        checksums: Vec::new(),
    };
    assert!(matches!(rig.run(write(Lba(3), data.clone())), Err(StoreError::Invalid(_))));
    let first = data.slice(0, BLOCK_BYTES);
    assert!(matches!(rig.run(write(Lba(4), first.clone())), Err(StoreError::Invalid(_))), "of another place");
    assert!(rig.run(write(Lba(3), first)).is_ok());
    let zeroes = sys::Payload::from(sys::BufMut::zeroed(BLOCK_BYTES).freeze());
    assert!(rig.run(write(Lba(4), zeroes)).is_ok());
}

/// A scrub reads blocks that are being written: the bytes may be half old and half new.
#[test]
fn a_block_that_is_being_written_is_read_until_it_is_whole() {
    let (mut rig, disk) = filled_append();
    let old = disk.peek(place_of(7), BLOCK_BYTES);
    let new = sealed(7, &pattern(2, 1));
    let place = FaultTarget::WriteRange { offset: place_of(7), len_bytes: 1 };
    disk.inject(Fault::nth(place, 0, FaultAction::Hang));
    let write = rig.submit(write_request(WriteClass::Append, 7, &pattern(2, 1)));
    (0..20).for_each(|_| rig.poll());
    disk.poke(place_of(7), &[&new[..512], &old[512..]].concat());
    let scrub = rig.submit(StoreRequest::Scrub { bytes: u64::MAX });
    (0..200).for_each(|_| rig.poll());
    assert!(rig.answers.is_empty());
    disk.release_hanging();
    rig.wait(write).unwrap();
    match rig.wait(scrub) {
        Ok(StoreReply::Scrubbed(progress)) => assert!(progress.corrupt.is_empty()),
        other => panic!("{other:?}"),
    }
}
