//! Fresh data and the record that publishes them, written concurrently: which of them a crash
//! leaves, and their fate afterwards.

mod common;

use common::{EPOCH, Rig, VOLUME, new_rig, pattern, small, write_request};
use disk::DiskError;
use disk::crash::{CrashChoice, CrashDisk, CrashOptions, Fate, Fault, FaultAction, FaultTarget};
use store::api::{Regions, StoreError, StoreReply, StoreRequest, WriteClass};
use store::{Features, Layout, format, parse_label};
use types::{BLOCK_BYTES, ChunkIndex, Epoch};

fn layout() -> Layout {
    Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap()
}

fn zeroes(blocks: usize) -> Vec<u8> {
    vec![0; blocks * BLOCK_BYTES]
}

/// Makes a chunk of a slab, with an empty journal.
fn empty() -> (Rig<CrashDisk>, CrashDisk) {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    (rig, disk)
}

fn polls<D: disk::Disk>(rig: &mut Rig<D>) {
    (0..20).for_each(|_| rig.poll());
}

/// Makes a write of 16 blocks alone, with no part of it answered: its data and its batch, in this
/// order.
fn with_both_in_flight() -> CrashDisk {
    let (mut rig, disk) = empty();
    disk.inject(Fault::every(FaultTarget::Write, FaultAction::Hang));
    rig.submit(write_request(WriteClass::Fresh, 32, &pattern(1, 16)));
    polls(&mut rig);
    assert_eq!(disk.candidates(), [16 * 8, 8], "one step: data and record at once");
    disk
}

fn after(disk: &CrashDisk, data: Fate, record: Fate) -> Rig<CrashDisk> {
    Rig::open(disk.after_crash(&CrashChoice(vec![data, record])))
}

fn regions(rig: &mut Rig<CrashDisk>) -> Regions {
    match rig.run(StoreRequest::Regions { volume: VOLUME, chunk: ChunkIndex(0) }) {
        Ok(StoreReply::Regions(regions)) => regions,
        other => panic!("regions answers with regions, not {other:?}"),
    }
}

/// Returns the number of disk round trips before a lone write is answered, and the number of its
/// durable writes and flushes.
fn steps(rig: &mut Rig<CrashDisk>, class: WriteClass, lba: u64, blocks: usize) -> (usize, u64) {
    rig.checkpoint();
    let disk = rig.store.disk_mut().clone();
    for target in [FaultTarget::Write, FaultTarget::Flush] {
        disk.inject(Fault::every(target, FaultAction::Hang));
    }
    let before = disk.submitted_operations();
    let token = rig.submit(write_request(class, lba, &pattern(7, blocks)));
    for steps in 0..20 {
        polls(rig);
        if let Some(answer) = rig.answers.remove(&token) {
            answer.unwrap();
            disk.clear_faults();
            return (steps, disk.submitted_operations() - before);
        }
        // The disk answers all that is in flight.
        disk.release_hanging();
    }
    panic!("the write is not answered");
}

#[test]
fn a_large_write_waits_once_for_the_disk_and_over_other_data_twice() {
    let (mut rig, _) = empty();
    rig.allocate(1, true);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 128)).unwrap();
    rig.write(WriteClass::Append, 256, &pattern(1, 1)).unwrap();
    rig.discard(0, 16).unwrap();
    assert_eq!(steps(&mut rig, WriteClass::Fresh, 0, 16), (1, 2), "discarded before");
    assert_eq!(steps(&mut rig, WriteClass::Fresh, 128, 128), (1, 2), "never written");
    assert_eq!(steps(&mut rig, WriteClass::Fresh, 64, 64), (2, 3), "over other data");
    assert_eq!(steps(&mut rig, WriteClass::Overwrite, 3, 4), (1, 1));
    assert_eq!(steps(&mut rig, WriteClass::Append, 257, 1), (1, 1), "a volume's journal");
}

#[test]
fn only_data_and_record_together_are_published() {
    let disk = with_both_in_flight();
    let torn = Fate::Without(77);
    for (data, record, published) in [
        (Fate::Lost, Fate::Lost, false),
        (Fate::Kept, Fate::Lost, false),
        (Fate::Lost, Fate::Kept, false),
        (torn, Fate::Kept, false),
        (Fate::Kept, Fate::Kept, true),
    ] {
        let case = format!("{data:?}, {record:?}");
        let mut rig = after(&disk, data, record);
        let expected = if published { pattern(1, 16) } else { zeroes(16) };
        assert_eq!(rig.read(32, 16), Ok(expected.clone()), "{case}");
        // Nor does it change after other writes and repeated openings.
        for round in 0..3 {
            rig.write(WriteClass::Overwrite, 200 + round, &pattern(9, 1)).unwrap();
            rig = rig.reopen();
            assert_eq!(rig.read(32, 16), Ok(expected.clone()), "{case}, round {round}");
        }
        rig.checkpoint();
        assert_eq!(rig.reopen().read(32, 16), Ok(expected), "{case}");
    }
}

#[test]
fn blocks_of_a_void_record_can_be_written_whatever_lies_there() {
    let disk = with_both_in_flight();
    let mut rig = after(&disk, Fate::Lost, Fate::Kept);
    rig.write(WriteClass::Fresh, 30, &pattern(3, 20)).unwrap();
    let after = rig.store.disk_mut().after_crash(&CrashChoice::lose_all());
    assert_eq!(Rig::open(after).read(30, 20), Ok(pattern(3, 20)));
}

#[test]
fn what_a_void_record_may_have_lost_is_doubted_without_making_the_copy_worse() {
    let disk = with_both_in_flight();
    let mut rig = after(&disk, Fate::Lost, Fate::Kept);
    for _ in 0..2 {
        assert!(rig.store.is_doubtful(VOLUME));
        assert_eq!(regions(&mut rig).doubtful, Vec::<u32>::new());
        rig = rig.reopen();
    }
    rig.store.settle(VOLUME, Epoch(EPOCH.0 + 1));
    assert!(!rig.store.is_doubtful(VOLUME));
    assert!(!after(&disk, Fate::Kept, Fate::Kept).store.is_doubtful(VOLUME));
}

#[test]
fn a_void_record_takes_nothing_else_of_its_batch_with_it() {
    let (mut rig, disk) = empty();
    // The data hang; the record waits for space in flight and shares a batch with an overwrite.
    let place = FaultTarget::WriteRange { offset: layout().slabs + (32 << 12), len_bytes: 16 << 12 };
    disk.inject(Fault::every(place, FaultAction::Hang));
    rig.submit(write_request(WriteClass::Fresh, 32, &pattern(1, 16)));
    let other = rig.submit(write_request(WriteClass::Overwrite, 100, &pattern(2, 1)));
    polls(&mut rig);
    assert!(!rig.answers.contains_key(&other), "answered before what is before it in the journal");
    let mut rig = Rig::open(disk.after_crash(&CrashChoice::lose_all()));
    assert_eq!(rig.read(32, 16), Ok(zeroes(16)));
    assert_eq!(rig.read(100, 1), Ok(pattern(2, 1)));
}

#[test]
fn a_torn_batch_that_was_to_withdraw_a_record_does_not_make_it_count() {
    let mut rig = common::with_torn_withdrawal();
    assert_eq!(rig.read(32, 16), Ok(zeroes(16)));
    assert_eq!(rig.read(100, 2), Ok([pattern(2, 1), zeroes(1)].concat()));
}

#[test]
fn data_that_were_acknowledged_and_have_rotted_are_corrupt() {
    let (mut rig, disk) = empty();
    rig.write(WriteClass::Fresh, 32, &pattern(1, 16)).unwrap();
    rig.write(WriteClass::Overwrite, 100, &pattern(2, 1)).unwrap();
    disk.rot(layout().slabs + (40 << 12), 8);
    let mut rig = Rig::open(disk.after_crash(&CrashChoice::lose_all()));
    assert!(matches!(rig.read(32, 16), Err(StoreError::Corrupt { lbas }) if lbas.len() == 1));
}

#[test]
fn data_changed_since_by_a_batch_that_says_so_are_not_looked_at() {
    let (mut rig, _) = empty();
    rig.write(WriteClass::Fresh, 32, &pattern(1, 16)).unwrap();
    rig.write(WriteClass::Overwrite, 35, &pattern(2, 1)).unwrap();
    rig.discard(40, 8).unwrap();
    rig.write(WriteClass::Fresh, 40, &pattern(3, 8)).unwrap();
    let mut expected = pattern(1, 16);
    expected[3 * BLOCK_BYTES..4 * BLOCK_BYTES].copy_from_slice(&pattern(2, 1));
    expected[8 * BLOCK_BYTES..].copy_from_slice(&pattern(3, 8));
    let mut rig = rig.reopen();
    assert_eq!(rig.read(32, 16), Ok(expected.clone()));
    rig.checkpoint();
    assert_eq!(rig.reopen().read(32, 16), Ok(expected));
}

#[test]
fn a_write_that_finds_no_room_beside_its_record_is_refused_alone() {
    let (mut rig, disk) = empty();
    let place = FaultTarget::WriteRange { offset: layout().slabs + (32 << 12), len_bytes: 16 << 12 };
    let batch = FaultTarget::WriteRange { offset: layout().journal, len_bytes: 256 << 10 };
    for late in [false, true] {
        // Before its record is durable, and after.
        disk.inject(Fault::nth(place, 0, FaultAction::Fail(DiskError::NoSpace)));
        if !late {
            disk.inject(Fault::nth(batch, 0, FaultAction::Hang));
        }
        let full = rig.submit(write_request(WriteClass::Fresh, 32, &pattern(1, 16)));
        let other = rig.submit(write_request(WriteClass::Overwrite, 100, &pattern(2, 1)));
        polls(&mut rig);
        disk.release_hanging();
        assert_eq!(rig.wait(full).err(), Some(StoreError::NoSpace));
        assert!(rig.wait(other).is_ok());
        assert!(!rig.store.is_poisoned());
        rig.run_until_idle();
        for _ in 0..2 {
            let mut after = Rig::open(disk.after_crash(&CrashChoice::lose_all()));
            assert_eq!(after.read(32, 16), Ok(zeroes(16)));
            assert_eq!(after.read(100, 1), Ok(pattern(2, 1)));
            rig.write(WriteClass::Overwrite, 101, &pattern(4, 1)).unwrap();
        }
    }
    rig.write(WriteClass::Fresh, 32, &pattern(5, 16)).unwrap();
    assert_eq!(rig.reopen().read(32, 16), Ok(pattern(5, 16)));
}

#[test]
fn writes_that_share_a_flush_have_their_records_beside_it() {
    let (mut rig, disk) = empty();
    disk.inject(Fault::every(FaultTarget::Flush, FaultAction::Hang));
    let before = rig.store.health().batches;
    let tokens = [32, 64].map(|lba| rig.submit(write_request(WriteClass::Fresh, lba, &pattern(lba, 16))));
    polls(&mut rig);
    assert_eq!(rig.store.health().batches, before + 1, "the batch does not wait for the flush");
    assert!(tokens.iter().all(|token| !rig.answers.contains_key(token)), "answered before the flush");
    let mut after = Rig::open(disk.after_crash(&CrashChoice::lose_all()));
    // The first write was alone when it came: its data were durable by themselves.
    assert!(after.read(64, 16) == Ok(zeroes(16)));
    disk.clear_faults();
    disk.release_hanging();
    tokens.into_iter().for_each(|token| assert!(rig.wait(token).is_ok()));
    let mut after = Rig::open(disk.after_crash(&CrashChoice::lose_all()));
    assert!(after.read(64, 16) == Ok(pattern(64, 16)));
}

/// Features of a disk that this program writes to.
const FEATURES: u64 = Features::PLACED | Features::STAMPS;

#[test]
fn a_disk_from_before_the_features_takes_them_up_when_it_is_opened() {
    let disk = format(CrashDisk::new(CrashOptions::new(16 << 20)), small()).unwrap();
    let mut label = disk.peek(0, 4096);
    assert_eq!(parse_label(&label).unwrap().features.incompat, FEATURES);
    label[40..48].fill(0);
    label[8..16].fill(0);
    let crc = codes::crc64(&label);
    label[8..16].copy_from_slice(&crc.to_le_bytes());
    let copies = [0, 4096, 15 << 20, (15 << 20) + 4096];
    copies.into_iter().for_each(|at| disk.poke(at, &label));
    let sequence = parse_label(&label).unwrap().sequence;
    // Interrupted by a crash after each of its writes.
    let before = disk.submitted_operations();
    for operations in 1.. {
        let cut = disk.fork();
        cut.stop_at(before + operations);
        let mut opening = store::StoreOpening::new(cut.clone(), common::small_options());
        let opened = (0..10_000).find_map(|_| opening.poll());
        let after = cut.after_crash(&CrashChoice::lose_all());
        let mut rig = Rig::open(after.clone());
        assert_eq!(rig.store.health().damaged_structures, 0, "after {operations} operations");
        rig.allocate(0, false);
        for at in copies {
            let label = parse_label(&after.peek(at, 4096)).unwrap();
            assert_eq!((label.features.incompat, label.sequence), (FEATURES, sequence + 1));
        }
        if opened.is_some() {
            assert!(operations > 4);
            return;
        }
    }
}
