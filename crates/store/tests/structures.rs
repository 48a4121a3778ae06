//! Damage of the store's own structures: counted once, and rewritten from the intact copies, at
//! opening and by scrubs. A state that a crash alone leaves is no damage.

mod common;

use common::oracle::{Change, request_of};
use common::{EPOCH, Rig, VOLUME, new_rig, pattern, small, small_options, write_request};
use disk::DiskError;
use disk::crash::{CrashChoice, CrashDisk, CrashOptions, Fault, FaultAction, FaultTarget, Limits};
use store::api::{StoreReply, StoreRequest, WriteClass};
use store::{Layout, Store, StoreOptions, format};
use types::{BLOCK_BYTES, Epoch, Lba};

const PAGE: u64 = 4096;
const END: u64 = (16 << 20) - (1 << 20);
const RECORDS: [u64; 2] = [64 << 10, 324 << 10];

fn layout() -> Layout {
    Layout::compute(16 << 20, 1 << 20, 256 << 10).unwrap()
}

/// Returns a page of each structure, and the same page of its twin if there is one.
fn pages() -> Vec<(&'static str, u64, Option<u64>)> {
    let Layout { tables: [first, second], versions, .. } = layout();
    vec![
        ("the first label", 0, Some(END)),
        ("the last label", END + PAGE, Some(0)),
        ("an anchor", 2 * PAGE, Some(END + 2 * PAGE)),
        ("the other anchor", END + 3 * PAGE, Some(3 * PAGE)),
        ("records", RECORDS[0], Some(END + RECORDS[0])),
        ("other records", END + RECORDS[1], Some(RECORDS[1])),
        ("the slab table", first, Some(second)),
        ("the promise table", first + PAGE, Some(second + PAGE)),
        ("the second slab table", second, Some(first)),
        ("the end of the second promise table", second + 64 * PAGE, Some(first + 64 * PAGE)),
        ("page versions", versions, None),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    Rot,
    Unreadable,
}

impl Damage {
    fn strike(self, disk: &CrashDisk, offset: u64) {
        match self {
            Self::Rot => disk.rot(offset, PAGE),
            Self::Unreadable => disk.make_unreadable(offset, PAGE),
        }
    }

    /// Expected counters for this many pages: structures, blocks, medium errors.
    fn counted(self, pages: u64) -> (u64, u64, u64) {
        (pages, pages, if self == Self::Rot { 0 } else { pages })
    }
}

fn counted(rig: &Rig<CrashDisk>) -> (u64, u64, u64) {
    let health = rig.store.health();
    (health.damaged_structures, health.corrupt_blocks, health.medium_errors)
}

/// Makes a store with data in all its structures, and its disk.
fn filled() -> (Rig<CrashDisk>, CrashDisk) {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: EPOCH }).unwrap();
    for version in 0..3 {
        rig.run(StoreRequest::SetRecords { records: pattern(version, 3) }).unwrap();
        rig.checkpoint();
    }
    let disk = rig.store.disk_mut().clone();
    (rig, disk)
}

fn is_whole(rig: &mut Rig<CrashDisk>) {
    assert_eq!(rig.read(0, 256), Ok(pattern(1, 256)));
    assert_eq!(rig.store.promised(VOLUME), EPOCH);
    assert_eq!(rig.store.records(), pattern(2, 3));
}

/// As [`is_whole`], except for the first blocks, which [`journaled`] has overwritten.
fn is_whole_but(rig: &mut Rig<CrashDisk>, overwritten: u64) {
    for block in 0..overwritten {
        assert_eq!(rig.read(block, 1), Ok(pattern(10 + block, 1)), "block {block}");
    }
    let rest = 256 - overwritten as u32;
    assert_eq!(rig.read(overwritten, rest).unwrap(), pattern(1, 256)[overwritten as usize * BLOCK_BYTES..]);
}

fn scrub(rig: &mut Rig<CrashDisk>) -> Vec<u64> {
    match rig.run(StoreRequest::Scrub { bytes: u64::MAX }) {
        Ok(StoreReply::Scrubbed(progress)) => {
            assert!(progress.finished);
            progress.corrupt.into_iter().map(|(_, lba)| lba.0).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn each(mut judge: impl FnMut(&str, Damage, u64, Option<u64>)) {
    for (what, offset, twin) in pages() {
        for damage in [Damage::Rot, Damage::Unreadable] {
            println!("{damage:?} of {what}");
            judge(what, damage, offset, twin);
        }
    }
}

#[test]
fn an_opening_counts_a_damaged_page_and_writes_it_again() {
    each(|what, damage, offset, twin| {
        let (rig, disk) = filled();
        damage.strike(&disk, offset);
        let mut rig = rig.reopen();
        assert_eq!(counted(&rig), damage.counted(1), "{damage:?} of {what}");
        is_whole(&mut rig);
        rig.run_until_idle();
        assert_eq!((disk.unreadable_blocks(), counted(&rig)), (0, damage.counted(1)), "{damage:?} of {what}");
        let mut rig = rig.reopen();
        rig.run_until_idle();
        assert_eq!(counted(&rig), (0, 0, 0), "{damage:?} of {what} was not written again");
        if let Some(twin) = twin {
            damage.strike(&disk, twin);
            let mut rig = rig.reopen();
            is_whole(&mut rig);
            assert_eq!(counted(&rig), damage.counted(1), "{damage:?} of {what}'s twin");
        }
    });
}

#[test]
fn a_scrub_counts_a_damaged_page_once_and_has_it_written_again() {
    each(|what, damage, offset, twin| {
        let (rig, disk) = filled();
        let mut rig = rig.reopen();
        rig.checkpoint();
        assert!(scrub(&mut rig).is_empty());
        assert_eq!(counted(&rig), (0, 0, 0), "before {damage:?} of {what}");
        for round in 1..=2 {
            damage.strike(&disk, offset);
            assert!(scrub(&mut rig).is_empty());
            assert_eq!(counted(&rig), damage.counted(round), "{damage:?} of {what}");
            rig.run_until_idle();
            assert!(scrub(&mut rig).is_empty());
            assert_eq!(counted(&rig), damage.counted(round), "{damage:?} of {what} counts twice");
            assert_eq!(disk.unreadable_blocks(), 0);
        }
        let mut rig = rig.reopen();
        assert_eq!(counted(&rig), (0, 0, 0), "{damage:?} of {what} was not written again");
        if let Some(twin) = twin {
            damage.strike(&disk, twin);
            rig = rig.reopen();
            assert_eq!(counted(&rig), damage.counted(1), "{damage:?} of {what}'s twin");
        }
        is_whole(&mut rig);
    });
}

#[test]
fn a_scrub_finds_what_is_intact_and_not_what_was_written_last() {
    for offset in [2 * PAGE, 3 * PAGE, layout().tables[1], layout().versions] {
        let (mut rig, disk) = filled();
        let range = FaultTarget::WriteRange { offset, len_bytes: PAGE };
        disk.inject(Fault::nth(range, 0, FaultAction::LoseWrite));
        for version in 0..2 {
            rig.discard(version, 1).unwrap();
            rig.allocate(3 + version as u32, false);
            rig.checkpoint();
        }
        // Both writes of the page were lost, or the only one was.
        if disk.waiting_faults() > 0 {
            continue;
        }
        disk.clear_faults();
        scrub(&mut rig);
        rig.run_until_idle();
        scrub(&mut rig);
        assert!(counted(&rig).0 <= 1);
        disk.rot(if offset == layout().tables[1] { layout().tables[0] } else { END }, PAGE);
        assert_eq!(rig.reopen().store.chunks().len(), 3);
    }
}

#[test]
fn a_scrub_finds_rotten_records_behind_an_intact_header() {
    for offset in RECORDS.into_iter().flat_map(|slot| [slot, END + slot]) {
        let (mut rig, disk) = filled();
        disk.rot(offset + 2 * PAGE, 512);
        scrub(&mut rig);
        assert_eq!(counted(&rig), (1, 1, 0));
        rig.run_until_idle();
        let slot = offset % END;
        assert!(disk.peek(slot, 16 << 10) == disk.peek(END + slot, 16 << 10), "they are written again");
        let mut rig = rig.reopen();
        assert_eq!(counted(&rig), (0, 0, 0));
        scrub(&mut rig);
        assert_eq!(counted(&rig), (0, 0, 0));
        is_whole(&mut rig);
    }
}

/// Makes a store with six batches of a header and a block each in its journal, and their places.
fn journaled(options: StoreOptions) -> (Rig<CrashDisk>, CrashDisk, Vec<u64>) {
    let (rig, disk) = filled();
    let mut rig = Rig::new(Store::open_with(rig.store.into_disk(), options).unwrap());
    for block in 0..6 {
        rig.write(WriteClass::Overwrite, block, &pattern(10 + block, 1)).unwrap();
    }
    let data = |block: u64| {
        let mut journal = (0..64).map(|at| layout().journal + at * PAGE);
        journal.find(|at| disk.peek(*at, BLOCK_BYTES) == pattern(10 + block, 1)).unwrap()
    };
    let headers = (0..6).map(|block| data(block) - PAGE).collect();
    (rig, disk, headers)
}

#[test]
fn a_scrub_finds_damaged_batches_while_all_of_it_is_in_ram() {
    for damage in [Damage::Rot, Damage::Unreadable] {
        let (mut rig, disk, headers) = journaled(small_options());
        damage.strike(&disk, headers[2]);
        damage.strike(&disk, headers[4] + PAGE);
        assert!(scrub(&mut rig).is_empty());
        assert_eq!(counted(&rig), damage.counted(2));
        rig.run_until_idle();
        assert_eq!(rig.store.health().journal_used_bytes, 0, "a checkpoint passes them");
        scrub(&mut rig);
        assert_eq!((counted(&rig), disk.unreadable_blocks()), (damage.counted(2), 0));
        let mut rig = rig.reopen();
        assert_eq!(counted(&rig), (0, 0, 0));
        for block in 0..6 {
            assert_eq!(rig.read(block, 1), Ok(pattern(10 + block, 1)), "block {block}");
        }
    }
}

#[test]
fn a_journaled_block_that_is_nowhere_else_is_a_corrupt_block() {
    for damage in [Damage::Rot, Damage::Unreadable] {
        let (mut rig, disk, headers) = journaled(StoreOptions { overlay_bytes: 0, ..small_options() });
        damage.strike(&disk, headers[4] + PAGE);
        assert_eq!(scrub(&mut rig), [4]);
        assert_eq!(counted(&rig), (0, 1, damage.counted(1).2));
        rig.run_until_idle();
        assert!(rig.read(4, 1).is_err());
        rig.write(WriteClass::Overwrite, 4, &pattern(17, 1)).unwrap();
        rig.checkpoint();
        assert!(scrub(&mut rig).is_empty());
        assert_eq!(rig.reopen().read(4, 1), Ok(pattern(17, 1)));
    }
}

#[test]
fn an_opening_counts_journaled_blocks_that_are_damaged() {
    for damage in [Damage::Rot, Damage::Unreadable] {
        let (rig, disk, headers) = journaled(small_options());
        damage.strike(&disk, headers[4] + PAGE);
        let mut rig = rig.reopen();
        assert_eq!(counted(&rig), damage.counted(1));
        assert!(rig.read(4, 1).is_err());
        rig.run_until_idle();
        assert_eq!(disk.unreadable_blocks(), 0, "a checkpoint has passed it, and had it written again");
        assert_eq!(counted(&rig.reopen()), (0, 0, 0));
    }
}

#[test]
fn a_block_of_the_journal_that_no_batch_needs_counts_once_and_is_written_again() {
    let (mut rig, disk, headers) = journaled(small_options());
    rig.checkpoint();
    // The place of the next batch but one.
    disk.make_unreadable(headers[5] + 4 * PAGE, PAGE);
    let mut rig = rig.reopen();
    assert_eq!((counted(&rig), disk.unreadable_blocks()), ((1, 1, 1), 0));
    rig.run_until_idle();
    let mut rig = rig.reopen();
    rig.run_until_idle();
    assert_eq!(counted(&rig), (0, 0, 0));
    is_whole_but(&mut rig, 6);
}

#[test]
fn a_disk_with_a_block_of_the_journal_that_takes_no_writes_opens_all_the_same() {
    let (mut rig, disk, headers) = journaled(small_options());
    rig.checkpoint();
    let offset = headers[5] + 4 * PAGE;
    disk.make_unreadable(offset, PAGE);
    let write = FaultTarget::WriteRange { offset, len_bytes: PAGE };
    disk.inject(Fault::every(write, FaultAction::Fail(DiskError::Medium(5))));
    let mut rig = rig.reopen();
    assert_eq!(counted(&rig), (1, 1, 1));
    is_whole_but(&mut rig, 6);
}

#[test]
fn a_journaled_block_that_is_not_what_its_record_says_is_not_applied() {
    for damage in [Damage::Rot, Damage::Unreadable] {
        let (mut rig, disk, headers) = journaled(StoreOptions { overlay_bytes: 0, ..small_options() });
        let before = pattern(1, 256)[4 * BLOCK_BYTES..5 * BLOCK_BYTES].to_vec();
        let places = (0..16 << 20).step_by(BLOCK_BYTES).filter(|at| disk.peek(*at, BLOCK_BYTES) == before);
        let place = places.collect::<Vec<_>>()[0];
        damage.strike(&disk, headers[4] + PAGE);
        rig.checkpoint();
        assert!(disk.peek(place, BLOCK_BYTES) == before, "{damage:?}");
        assert_eq!((counted(&rig), disk.unreadable_blocks()), ((0, 1, damage.counted(1).2), 0));
        // The damage is known, and does not count again.
        assert!(rig.read(4, 1).is_err());
        assert_eq!(scrub(&mut rig), [4]);
        assert_eq!(counted(&rig), (0, 1, damage.counted(1).2));
        rig.write(WriteClass::Overwrite, 4, &pattern(14, 1)).unwrap();
        rig.checkpoint();
        is_whole_but(&mut rig.reopen(), 6);
    }
}

#[test]
fn what_passes_is_not_counted_and_a_disk_that_fails_ends_no_scrub() {
    for (what, offset, _) in pages() {
        let (mut rig, disk) = filled();
        let page = FaultTarget::ReadRange { offset, len_bytes: PAGE };
        disk.inject(Fault::nth(page, 0, FaultAction::Fail(DiskError::Medium(5))));
        scrub(&mut rig);
        disk.inject(Fault::nth(page, 0, FaultAction::Fail(DiskError::Host(12))));
        scrub(&mut rig);
        assert_eq!((disk.waiting_faults(), counted(&rig)), (0, (0, 0, 0)), "{what}");
        assert!(!rig.store.is_poisoned());
    }
}

#[test]
fn a_poisoned_store_is_left_alone() {
    let (mut rig, disk) = filled();
    disk.rot(END, PAGE);
    disk.inject(Fault::nth(FaultTarget::Write, 0, FaultAction::Fail(DiskError::TimedOut)));
    // The write that heals the label poisons it.
    scrub(&mut rig);
    assert!(rig.store.is_poisoned());
    let before = disk.peek(0, 16 << 20);
    disk.rot(0, PAGE);
    scrub(&mut rig);
    rig.run_until_idle();
    assert_eq!(counted(&rig).0, 1);
    assert_eq!(disk.peek(1 << 20, 15 << 20), before[1 << 20..]);
}

/// Opens the disk after a crash, and scrubs it.
fn nothing_is_counted(disk: CrashDisk, choice: &CrashChoice) {
    let mut rig = Rig::new(Store::open_with(disk, small_options()).unwrap());
    assert_eq!(counted(&rig), (0, 0, 0), "after {choice:?}");
    scrub(&mut rig);
    assert_eq!(counted(&rig), (0, 0, 0), "by a scrub after {choice:?}");
}

#[test]
fn nothing_that_a_crash_leaves_is_counted() {
    for (block_bytes, shuffle, seed) in [(512, false, 1), (4096, true, 2)] {
        let options = CrashOptions { seed, block_bytes, shuffle, ..CrashOptions::new(8 << 20) };
        let disk = format(CrashDisk::new(options), small()).unwrap();
        let mut rig = Rig::new(Store::open_with(disk.clone(), small_options()).unwrap());
        let limits = Limits { exhaustive_candidates: 2, subset_size: 1, choices: 4 };
        let write = |class, lba, blocks, version| Change::Write { class, lba, blocks, version };
        let script = [
            vec![Change::Allocate { chunk: 0 }, Change::Allocate { chunk: 3 }],
            vec![write(WriteClass::Overwrite, 0, 4, 1), write(WriteClass::Fresh, 20, 12, 2)],
            vec![Change::Promise { epoch: 4 }, write(WriteClass::Overwrite, 770, 4, 3)],
            vec![Change::Free { chunk: 3 }, write(WriteClass::Overwrite, 1, 2, 6)],
        ];
        for (round, changes) in script.into_iter().enumerate() {
            for change in changes {
                rig.submit(request_of(&change, Epoch(4)));
            }
            rig.submit(StoreRequest::SetRecords { records: pattern(round as u64, 2 + round) });
            rig.submit(StoreRequest::Scrub { bytes: u64::MAX });
            rig.store.request_checkpoint();
            let mut polls = 0;
            while !rig.store.is_idle() {
                let by_chance = disk.random_choice(polls);
                for choice in disk.choices(limits).into_iter().chain([by_chance]) {
                    nothing_is_counted(disk.after_crash(&choice), &choice);
                }
                rig.poll();
                polls += 1;
            }
            assert_eq!(counted(&rig), (0, 0, 0));
            assert!(rig.answers.drain().all(|(_, answer)| answer.is_ok()));
        }
    }
}

#[test]
fn nothing_is_counted_after_formatting_or_the_first_openings_were_cut_off() {
    let disk = CrashDisk::new(CrashOptions::new(12 << 20));
    let formatted = format(disk.fork(), small()).unwrap();
    let mut opened = 0;
    for operation in 0..formatted.submitted_operations() {
        let disk = disk.fork();
        disk.stop_at(operation);
        let mut parameters = small();
        parameters.force = true;
        let stopped = disk.clone();
        // The last operation is never answered, so formatting runs in a thread of its own.
        let runs = std::thread::spawn(move || drop(format(stopped, parameters)));
        while !disk.is_stopped() && !runs.is_finished() {
            std::thread::yield_now();
        }
        for choice in disk.choices(Limits { exhaustive_candidates: 2, subset_size: 1, choices: 4 }) {
            let after = disk.after_crash(&choice);
            if Store::open_with(after.fork(), small_options()).is_ok() {
                opened += 1;
                nothing_is_counted(after, &choice);
            }
        }
    }
    assert!(opened > 0, "a label was written before the end");
}

#[test]
fn a_busy_store_is_scrubbed_without_a_false_alarm() {
    for seed in 0..8 {
        let options = CrashOptions { seed, shuffle: true, ..CrashOptions::new(16 << 20) };
        let disk = format(CrashDisk::new(options), small()).unwrap();
        let mut rig = Rig::new(Store::open_with(disk, small_options()).unwrap());
        rig.allocate(0, false);
        for round in 0..60 {
            rig.submit(write_request(WriteClass::Overwrite, round % 200, &pattern(round, 8)));
            rig.submit(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(EPOCH.0) });
            if round % 5 == 0 {
                rig.submit(StoreRequest::SetRecords { records: pattern(round, 4) });
                rig.submit(StoreRequest::Scrub { bytes: u64::MAX });
            }
            if round % 3 == 0 {
                rig.store.request_checkpoint();
            }
            (0..seed + 1).for_each(|_| rig.poll());
        }
        rig.run_until_idle();
        assert_eq!(counted(&rig), (0, 0, 0), "seed {seed}");
        assert_eq!(rig.read(0, 1).map(|bytes| bytes.len()), Ok(BLOCK_BYTES));
        let read = StoreRequest::Read { volume: VOLUME, lba: Lba(0), blocks: 1 };
        assert!(rig.run(read).is_ok());
    }
}

/// A write of a structure takes long, and a scrub reads the former content.
#[test]
fn what_is_being_written_is_not_judged() {
    let Layout { tables, versions, .. } = layout();
    for offset in [2 * PAGE, END + 3 * PAGE, RECORDS[0], END + RECORDS[1], tables[0], tables[1], versions] {
        let (mut rig, disk) = filled();
        let write = FaultTarget::WriteRange { offset, len_bytes: PAGE };
        disk.inject(Fault::nth(write, 0, FaultAction::Hang));
        let mut scrubs = Vec::new();
        for round in 0..3 {
            rig.submit(StoreRequest::SetRecords { records: pattern(9 + round, 2) });
            rig.submit(write_request(WriteClass::Overwrite, round, &pattern(2, 1)));
            let (volume, chunk) = (VOLUME, types::ChunkIndex(3 + round as u32));
            rig.submit(StoreRequest::AllocateChunk { volume, epoch: EPOCH, chunk, append: false });
            (0..20).for_each(|_| rig.poll());
            rig.store.request_checkpoint();
            (0..20).for_each(|_| rig.poll());
            scrubs.push(rig.submit(StoreRequest::Scrub { bytes: u64::MAX }));
            (0..300).for_each(|_| rig.poll());
            assert_eq!(counted(&rig), (0, 0, 0), "at {offset}");
        }
        assert_eq!((disk.waiting_faults(), disk.hanging_operations()), (0, 1), "at {offset}");
        disk.release_hanging();
        for scrub in scrubs {
            assert!(rig.wait(scrub).is_ok());
        }
        rig.run_until_idle();
        assert_eq!(counted(&rig), (0, 0, 0), "at {offset}");
        assert!(scrub(&mut rig).is_empty());
        assert_eq!(counted(&rig), (0, 0, 0), "at {offset}");
    }
}

#[test]
fn a_checkpoint_that_begins_while_a_scrub_reads_is_waited_for() {
    let Layout { tables, versions, .. } = layout();
    for (offset, polls) in
        [tables[0], tables[1], versions].into_iter().flat_map(|at| (0..24).map(move |n| (at, n)))
    {
        let (mut rig, disk) = filled();
        rig.allocate(3, false);
        rig.write(WriteClass::Overwrite, 0, &pattern(2, 1)).unwrap();
        let write = FaultTarget::WriteRange { offset, len_bytes: PAGE };
        disk.inject(Fault::nth(write, 0, FaultAction::Hang));
        let running = rig.submit(StoreRequest::Scrub { bytes: u64::MAX });
        (0..polls).for_each(|_| rig.poll());
        rig.store.request_checkpoint();
        (0..100).for_each(|_| rig.poll());
        assert_eq!(
            (disk.hanging_operations(), counted(&rig)),
            (1, (0, 0, 0)),
            "at {offset}, after {polls} polls"
        );
        disk.release_hanging();
        assert!(rig.wait(running).is_ok());
        assert_eq!(counted(&rig), (0, 0, 0), "at {offset}, after {polls} polls");
    }
}
