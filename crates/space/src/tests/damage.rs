//! Damage of single blocks: unreadable, rotten, or older than the disk acknowledged.

use super::{Bench, CHUNK, VOLUME, disk, filled, sealed};
use crate::api::{SpaceError, SpaceReply, SpaceRequest};
use crate::coordinator::Event;
use crate::fake_store::FakeFault;
use crate::local::LocalEvent;
use records::{FaultDomain, JobKind, Resiliency};
use std::time::Duration;
use store::api::WriteClass;
use types::Lba;

const MINUTE: Duration = Duration::from_secs(60);

fn events(bench: &Bench) -> Vec<Event> {
    std::iter::from_fn(|| bench.space.poll_event())
        .filter_map(|event| match event {
            LocalEvent::Volume(_, event) => Some(event),
            _ => None,
        })
        .collect()
}

fn lost_writes(events: &[Event], of: u8) -> u64 {
    let blocks = events.iter().map(|event| match event {
        Event::LostWrite { disk: found, blocks, .. } if *found == disk(of) => *blocks,
        _ => 0,
    });
    blocks.sum()
}

#[test]
pub(super) fn a_read_is_answered_from_the_other_copy_although_the_corrupt_one_cannot_be_repaired() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[0].corrupt_for_good(VOLUME, Lba(3));
    for _ in 0..4 {
        assert_eq!(bench.read(0, 8), [5; 8]);
    }
}

#[test]
fn blocks_that_are_corrupt_on_one_copy_and_blocks_that_are_on_the_other_are_read_together() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[0].corrupt_for_good(VOLUME, Lba(3));
    bench.stores[1].corrupt_for_good(VOLUME, Lba(4));
    assert_eq!(bench.read(0, 8), [5; 8]);
}

#[test]
fn a_disk_that_does_not_keep_what_is_written_to_it_leaves_and_the_volume_serves_on() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[0].corrupt_for_good(VOLUME, Lba(3));
    for _ in 0..4 {
        assert_eq!(bench.read(3, 1), [5]);
        bench.run_briefly();
    }
    assert!(!bench.record().in_sync.contains(&disk(1)), "{:?}", bench.record().in_sync);
    bench.overwrite(3, 6);
    assert_eq!(bench.read(0, 8), [5, 5, 5, 6, 5, 5, 5, 5]);
}

#[test]
pub(super) fn a_disk_with_an_unreadable_block_stays_in_sync_and_the_block_is_counted_and_written_again() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    for store in 0..2 {
        events(&bench);
        bench.stores[store].corrupt(VOLUME, Lba(3));
        (0..2).for_each(|_| assert_eq!(bench.read(3, 1), [5]));
        bench.space.with_volume(VOLUME, |coordinator| {
            coordinator.repair(types::Monotonic(0), disk(store as u8 + 1), Lba(3));
        });
        bench.run_briefly();
        let corrupt = events(&bench);
        assert!(
            corrupt.iter().any(|event| matches!(event, Event::CorruptRead { disk: found, blocks: 1, lbas, .. } if *found == disk(store as u8 + 1) && lbas[..] == [Lba(3)])),
            "{corrupt:?}"
        );
        assert!(!bench.stores[store].is_corrupt(VOLUME, Lba(3)));
    }
    assert_eq!(bench.record().in_sync.len(), 2);
}

#[test]
pub(super) fn a_rebuild_goes_on_over_an_unreadable_block_of_the_last_copy_and_clients_write_meanwhile() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    for chunk in 0..6 {
        bench.write(u64::from(chunk * CHUNK), WriteClass::Fresh, 16, 5).unwrap();
    }
    let (gone, left) = (bench.holders(0)[0], bench.holders(0)[1]);
    bench.space.detach_disk(disk(gone as u8 + 1));
    bench.stores[left].corrupt_for_good(VOLUME, Lba(3));
    bench.space.suspend_job(VOLUME, JobKind::Resync);
    for minute in 0..3 {
        bench.pass(MINUTE);
        bench.overwrite(8 + minute, 7);
    }
    let holders = bench.holders(0);
    let built = *holders.iter().find(|holder| **holder != gone && **holder != left).expect("no new copy");
    assert!(bench.stores[built].is_lost(VOLUME, Lba(3)));
    let few = bench.space.with_volume(VOLUME, |coordinator| coordinator.chunk_counts()).unwrap().1;
    assert_eq!(few, 0, "chunks without redundancy");
    let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 8, copy: None });
    assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(3)]));
    assert_eq!(bench.read(4, 4), [5; 4]);
    assert!(
        events(&bench)
            .iter()
            .any(|event| matches!(event, Event::Unrepairable { lbas, .. } if *lbas == [Lba(3)]))
    );
}

#[test]
fn a_scrub_tells_a_corrupt_block_of_the_last_copy() {
    let mut bench = Bench::new(2, 8, Resiliency::Simple);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    let holder = bench.holders(0)[0];
    bench.stores[holder].corrupt(VOLUME, Lba(3));
    bench.space.scrub(disk(holder as u8 + 1), 1 << 20);
    bench.run_briefly();
    assert!(
        events(&bench)
            .iter()
            .any(|event| matches!(event, Event::Unrepairable { lbas, .. } if *lbas == [Lba(3)]))
    );
}

#[test]
pub(super) fn of_blocks_that_prove_themselves_the_newest_is_read_and_written_to_the_copy_that_lost_it() {
    for older in [0, 1] {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.append(0, 4, 1, 1);
        bench.append(0, 4, 2, 2);
        bench.stores[older].put(VOLUME, Lba(1), &sealed(1, 1, 1, 1).contiguous());
        for _ in 0..2 {
            assert_eq!(bench.read(0, 4), [2; 4], "disk {older} lost a write");
        }
        assert!(bench.copies_agree(1));
        assert_eq!(lost_writes(&events(&bench), older as u8 + 1), 1);
    }
}

#[test]
fn no_repair_writes_garbage_or_an_older_block_over_an_intact_one_that_proves_itself() {
    type Repair = fn(&mut Bench);
    let repairs: [(&str, Repair); 4] = [
        ("a check", |bench| bench.space.equalize(VOLUME, Lba(0))),
        ("a crash", |bench| {
            bench.start(SpaceRequest::Write {
                lba: Lba(9),
                class: WriteClass::Append,
                data: sealed(9, 1, 3, 3),
            });
            bench.crash(|| false);
        }),
        ("a disk that returns", |bench| {
            let store = bench.space.detach_disk(disk(3)).unwrap();
            bench.append(20, 1, 3, 3);
            bench.space.attach_disk(disk(3), store, FaultDomain::default()).unwrap();
            bench.pass(Duration::from_secs(10));
        }),
        ("a rebuild", |bench| {
            bench.space.set_retired(disk(3), true);
            bench.pass(MINUTE);
        }),
    ];
    for (what, repair) in repairs {
        for bad in 0..3 {
            for garbage in [true, false] {
                let mut bench = Bench::new(4, 8, Resiliency::ThreeWay);
                bench.append(0, 4, 1, 1);
                bench.append(0, 4, 2, 2);
                if bench.holders(0) != [0, 1, 2] {
                    bench.space.rebalance();
                }
                let holders = bench.holders(0);
                let rotten = if garbage { filled(1, 0xEE) } else { sealed(1, 1, 1, 1) };
                bench.stores[holders[bad]].put(VOLUME, Lba(1), &rotten.contiguous());
                repair(&mut bench);
                bench.run_briefly();
                assert_eq!(bench.read(0, 4), [2; 4], "{what}, garbage {garbage} on {bad}");
                let record = bench.record();
                for holder in
                    bench.holders(0).into_iter().filter(|at| record.in_sync.contains(&disk(*at as u8 + 1)))
                {
                    let found = bench.stores[holder].peek(VOLUME, Lba(1)).unwrap();
                    assert_eq!(found[0], 2, "{what}, garbage {garbage} on {bad}: disk {holder}");
                }
            }
        }
    }
}

#[test]
pub(super) fn a_move_takes_what_the_copy_that_stays_has_lost_from_the_one_that_is_given_up() {
    for lost in 0..2 {
        let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
        bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
        let holders = bench.holders(0);
        // The disk says that the block was never written.
        bench.stores[holders[lost]].forget_block(VOLUME, Lba(3));
        let gives_up = disk(holders[1 - lost] as u8 + 1);
        bench.space.set_retired(gives_up, true);
        bench.pass(MINUTE);
        assert!(!bench.holders(0).contains(&holders[1 - lost]), "the copy was not moved");
        for _ in 0..4 {
            assert_eq!(bench.read(0, 8), [5; 8]);
        }
        assert_eq!(lost_writes(&events(&bench), holders[lost] as u8 + 1), 1);
        assert!(bench.copies_agree(3));
    }
}

#[test]
fn a_crash_does_not_turn_what_one_disk_forgot_into_zeroes_on_all() {
    for lost in 0..2 {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
        bench.stores[lost].forget_block(VOLUME, Lba(3));
        bench.crash(|| false);
        for _ in 0..4 {
            assert_eq!(bench.read(0, 8), [5; 8]);
        }
        assert!(bench.copies_agree(3));
    }
}

#[test]
fn a_block_that_proves_itself_on_no_copy_is_named_and_reads_again_once_it_is_written() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.append(0, 4, 1, 1);
    bench.stores.iter().for_each(|store| store.put(VOLUME, Lba(1), &filled(1, 9).contiguous()));
    for copy in [None, Some(0), Some(1)] {
        let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 4, copy });
        assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(1)]));
    }
    bench.append(1, 1, 2, 2);
    assert_eq!(bench.read(0, 4), [1, 2, 1, 1]);
}

#[test]
fn a_corrupt_block_of_one_copy_asked_for_by_itself_is_answered_from_the_other() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.append(0, 4, 1, 1);
    bench.stores[1].put(VOLUME, Lba(1), &filled(1, 9).contiguous());
    let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 4, copy: Some(1) });
    assert!(matches!(result, Ok(SpaceReply::Data(data)) if data.contiguous()[4096] == 1));
    assert!(bench.copies_agree(1));
}

#[test]
fn a_comparison_says_which_disk_has_the_older_block() {
    for older in [0, 1] {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.append(0, 4, 1, 1);
        bench.append(0, 4, 2, 2);
        bench.stores[older].put(VOLUME, Lba(1), &sealed(1, 1, 1, 1).contiguous());
        bench.stores[older].put(VOLUME, Lba(2), &filled(1, 7).contiguous());
        events(&bench);
        bench.space.compare(VOLUME, Lba(0));
        bench.run_briefly();
        let seen = events(&bench).into_iter().find_map(|event| match event {
            Event::Compared { found, wrong, .. } => Some((found, wrong)),
            _ => None,
        });
        let (found, wrong) = seen.unwrap();
        assert_eq!((found.copies, found.differing, found.corrupt, found.lost), (2, 1, 1, 0));
        assert_eq!(wrong, [(disk(older as u8 + 1), 2)]);
        assert!(!bench.copies_agree(1), "a comparison writes nothing");
    }
}

#[test]
fn a_survey_finds_writes_that_a_disk_lost_without_a_word() {
    for bad in [0, 1] {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.append(0, 4, 1, 1);
        bench.append(0, 4, 2, 2);
        bench.write(u64::from(CHUNK), WriteClass::Fresh, 8, 5).unwrap();
        let image = bench.stores[bad].image();
        bench.write(u64::from(CHUNK) + 300, WriteClass::Fresh, 8, 6).unwrap();
        bench.stores[bad].go_back_to(&image);
        bench.stores[bad].put(VOLUME, Lba(1), &sealed(1, 1, 1, 1).contiguous());
        bench.space.verify(disk(2));
        bench.pass(Duration::from_secs(5));
        assert!(bench.copies_agree(1) && bench.copies_agree(u64::from(CHUNK) + 303), "disk {bad}");
        assert_eq!(lost_writes(&events(&bench), bad as u8 + 1), 9);
        assert!(bench.space.with_volume(VOLUME, |coordinator| coordinator.is_surveyed()).unwrap());
        assert_eq!((bench.read(0, 4), bench.read(u64::from(CHUNK) + 300, 8)), (vec![2; 4], vec![6; 8]));
    }
}

#[test]
fn a_survey_of_copies_that_are_equal_compares_only_what_proves_itself() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.append(0, 4, 1, 1);
    bench.write(u64::from(CHUNK), WriteClass::Fresh, 600, 5).unwrap();
    bench.space.verify(disk(1));
    bench.pass(Duration::from_secs(5));
    assert!(
        events(&bench).iter().all(|event| !matches!(event, Event::LostWrite { .. } | Event::Repaired { .. }))
    );
    assert!(bench.space.with_volume(VOLUME, |coordinator| coordinator.is_surveyed()).unwrap());
}

#[test]
fn a_comparison_names_the_blocks_that_are_lost() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    for store in &bench.stores {
        (3..5).for_each(|lba| store.corrupt(VOLUME, Lba(lba)));
    }
    let compare = |bench: &mut Bench| {
        events(bench);
        bench.space.compare(VOLUME, Lba(0));
        bench.run_briefly();
        events(bench).into_iter().find_map(|event| match event {
            Event::Compared { lost, .. } => Some(lost),
            _ => None,
        })
    };
    assert_eq!(compare(&mut bench), Some(vec![Lba(3), Lba(4)]));
    bench.overwrite(3, 6);
    assert_eq!(compare(&mut bench), Some(vec![Lba(4)]));
}

#[test]
pub(super) fn a_chunk_is_given_slabs_when_disks_that_were_away_for_a_while_are_back() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::Hang));
    bench.start(SpaceRequest::Write { lba: Lba(1), class: WriteClass::Overwrite, data: filled(1, 2) });
    bench.pass(Duration::from_secs(6));
    let lba = u64::from(CHUNK);
    let token =
        bench.start(SpaceRequest::Write { lba: Lba(lba), class: WriteClass::Overwrite, data: filled(1, 3) });
    bench.pass(Duration::from_secs(6));
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::None));
    bench.pass(Duration::from_secs(6));
    let answers = bench.answers();
    let found = answers.iter().find(|answer| answer.token == token);
    assert!(found.is_some_and(|answer| answer.result.is_ok()), "{answers:?}");
    assert_eq!(bench.read(lba, 1), [3]);
}

#[test]
pub(super) fn a_disk_whose_machine_is_short_of_memory_stays_and_is_asked_again() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    for faulty in [&[0_usize][..], &[0, 1]] {
        for store in faulty {
            bench.stores[*store].set_fault(FakeFault::HostErrors);
        }
        let write = |bench: &mut Bench| {
            bench.start(SpaceRequest::Write { lba: Lba(3), class: WriteClass::Overwrite, data: filled(1, 6) })
        };
        let token = write(&mut bench);
        if faulty.len() == 1 {
            (4..8).for_each(|lba| assert_eq!(bench.read(lba, 1), [5]));
        }
        bench.pass(Duration::from_secs(20));
        assert_eq!(bench.record().in_sync.len(), 2);
        assert!(bench.answers().iter().all(|answer| answer.token != token), "before both copies had it");
        bench.stores.iter().for_each(|store| store.set_fault(FakeFault::None));
        bench.pass(Duration::from_secs(3));
        assert!(bench.answers().iter().any(|answer| answer.token == token && answer.result.is_ok()));
        assert_eq!(bench.read(3, 1), [6]);
        assert!(bench.copies_agree(3));
    }
}

#[test]
pub(super) fn a_repair_that_a_disk_away_made_fail_is_done_when_that_is_back() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[0].corrupt(VOLUME, Lba(3));
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.space.scrub(disk(1), 1 << 20);
    bench.pass(Duration::from_secs(10));
    assert!(bench.stores[0].is_corrupt(VOLUME, Lba(3)));
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.record().in_sync.len(), 2);
    assert!(!bench.stores[0].is_corrupt(VOLUME, Lba(3)), "nobody repaired it");
}

#[test]
fn a_block_is_not_lost_while_a_disk_that_counts_cannot_be_asked_for_it() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[0].corrupt(VOLUME, Lba(3));
    bench.stores[1].set_fault(FakeFault::HostErrors);
    bench.start(SpaceRequest::Read { lba: Lba(2), blocks: 4, copy: None });
    bench.pass(Duration::from_secs(3));
    assert!(bench.answers().is_empty());
    assert_eq!(bench.read(4, 1), [5]);
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(6));
    let answers = bench.answers();
    assert!(
        matches!(&answers[0].result, Ok(SpaceReply::Data(data)) if data.contiguous().iter().all(|byte| *byte == 5))
    );
    assert!(!events(&bench).iter().any(|event| matches!(event, Event::Unrepairable { .. })));
}

#[test]
fn a_block_is_lost_once_the_disk_that_has_it_is_out() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[0].corrupt(VOLUME, Lba(3));
    bench.stores[1].set_fault(FakeFault::Errors);
    let read = bench.call(SpaceRequest::Read { lba: Lba(2), blocks: 4, copy: None });
    assert!(matches!(read, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(3)]));
    assert_eq!(bench.record().in_sync, [disk(1)]);
}

#[test]
pub(super) fn a_disk_whose_file_cannot_grow_stays_and_a_fresh_write_is_undone_on_the_other_copy() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[1].set_fault(FakeFault::NoRoom);
    let write = bench.write(16, WriteClass::Fresh, 8, 6);
    assert!(matches!(write, Err(SpaceError::NoSpace)), "{write:?}");
    assert!(bench.copies_agree(16), "one copy had it, and one had no room for it");
    assert_eq!(bench.read(16, 8), [0; 8]);
    bench.stores[1].set_fault(FakeFault::None);
    bench.write(16, WriteClass::Fresh, 8, 7).unwrap();
    assert_eq!(bench.read(16, 8), [7; 8]);
    assert!(bench.copies_agree(16));
}

/// A resync to it would hold up every write, or make them fail.
#[test]
fn a_write_does_not_wait_for_a_disk_without_room_that_is_only_being_brought_up_to_date() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(3, 6);
    bench.stores[1].set_fault(FakeFault::NoRoom);
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    for pass in 0..20 {
        bench.pass(Duration::from_millis(300));
        bench.write(16, WriteClass::Fresh, 8, pass).unwrap();
        bench.overwrite(3, pass);
    }
    assert_eq!(bench.record().in_sync, [disk(1)]);
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    assert!((0..24).all(|lba| bench.copies_agree(lba)));
}

/// An overwrite has no earlier contents to go back to.
#[test]
fn a_disk_whose_file_cannot_grow_stays_and_an_overwrite_waits_for_room_on_its_machine() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 32, 5).unwrap();
    bench.stores[1].set_fault(FakeFault::NoRoom);
    let write = SpaceRequest::Write { lba: Lba(16), class: WriteClass::Overwrite, data: filled(8, 6) };
    let token = bench.start(write);
    bench.pass(Duration::from_secs(20));
    assert!(bench.answers().is_empty(), "one copy has it, and one has no room for it");
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)], "nobody is put out for that");
    assert_eq!(bench.read(0, 8), [5; 8]);
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(3));
    let answers = bench.answers();
    assert!(answers.iter().any(|done| done.token == token && done.result.is_ok()), "{answers:?}");
    assert!(bench.copies_agree(16));
}

/// The disk refuses sessions too, since each begins with a promise.
#[test]
fn a_disk_whose_journal_is_full_for_lack_of_room_on_its_machine_stays_and_is_asked_again() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[1].set_fault(FakeFault::FullJournal);
    let write = SpaceRequest::Write { lba: Lba(3), class: WriteClass::Overwrite, data: filled(1, 6) };
    let token = bench.start(write);
    bench.pass(Duration::from_secs(20));
    assert!(bench.answers().is_empty(), "one copy has it, and one has no room for it");
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)], "nobody is put out for that");
    assert_eq!(bench.read(4, 4), [5; 4]);
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(3));
    let answers = bench.answers();
    assert!(answers.iter().any(|done| done.token == token && done.result.is_ok()), "{answers:?}");
    assert!(bench.copies_agree(3));
}

/// Calls to the failed disk end when the remaining ones have promised the epoch without it.
#[test]
fn a_promise_that_found_no_room_is_asked_for_again() {
    let mut bench = Bench::new(3, 8, Resiliency::ThreeWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[1].set_fault(FakeFault::FullJournal);
    bench.stores[2].set_fault(FakeFault::Errors);
    let write = SpaceRequest::Write { lba: Lba(3), class: WriteClass::Overwrite, data: filled(1, 6) };
    let token = bench.start(write);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(3));
    let answers = bench.answers();
    assert!(answers.iter().any(|done| done.token == token && done.result.is_ok()), "{answers:?}");
    assert_eq!(bench.read(3, 1), [6]);
}

#[test]
fn a_copy_that_has_no_room_to_be_made_equal_stays_and_its_region_waits_for_room() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::Hang));
    bench.start(SpaceRequest::Write { lba: Lba(3), class: WriteClass::Overwrite, data: filled(1, 6) });
    bench.pass(Duration::from_millis(100));
    bench.stores[0].crash(|| true);
    bench.restart_with(&[FakeFault::None, FakeFault::NoRoom], Duration::from_millis(300));
    let token = bench.start(SpaceRequest::Read { lba: Lba(0), blocks: 8, copy: None });
    bench.pass(Duration::from_secs(20));
    assert!(bench.answers().is_empty(), "the region is not equal yet");
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)], "nobody is put out for that");
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(3));
    let answers = bench.answers();
    assert!(answers.iter().any(|done| done.token == token && done.result.is_ok()), "{answers:?}");
    assert_eq!(bench.read(0, 8), [5, 5, 5, 6, 5, 5, 5, 5]);
    assert_eq!(bench.record().in_sync.len(), 2);
    assert!(bench.copies_agree(3));
}
