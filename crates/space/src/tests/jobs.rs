use super::*;
use crate::fake_store::FakeFault;
use records::JobKind;
use types::ChunkIndex;

#[test]
fn a_disk_that_stays_away_has_its_chunks_rebuilt_onto_others() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    for chunk in 0..6 {
        bench.overwrite(chunk * u64::from(CHUNK) + 300, chunk as u8 + 1);
    }
    bench.space.detach_disk(disk(1)).unwrap();
    for chunk in 0..6 {
        bench.overwrite(chunk * u64::from(CHUNK) + 600, chunk as u8 + 1);
    }
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.record().min_holders, 1);
    bench.pass(Duration::from_secs(30 * 60));
    assert_eq!(bench.record().min_holders, 2);
    for chunk in 0..6 {
        assert_eq!(&bench.holders(chunk)[bench.holders(chunk).len() - 2..], [1, 2]);
        assert!(bench.copies_agree(u64::from(chunk * CHUNK) + 300));
        assert!(bench.copies_agree(u64::from(chunk * CHUNK) + 600));
    }
    assert!(bench.record().building.is_empty());
}

#[test]
fn a_disk_that_is_given_up_is_not_waited_for_and_one_that_is_back_after_all_is_resynced() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    (0..6).for_each(|chunk| bench.overwrite(chunk * u64::from(CHUNK), chunk as u8 + 1));
    let store = bench.space.detach_disk(disk(1)).unwrap();
    bench.space.give_up_disk(disk(1));
    bench.overwrite(0, 9);
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.record().min_holders, 2);
    assert!(bench.copies_agree(0));
    bench.space.attach_disk(disk(1), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2), disk(3)]);
    // From now on the disk may return again.
    bench.space.detach_disk(disk(1)).unwrap();
    bench.overwrite(0, 10);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.record().stale.len(), 1);
}

#[test]
fn a_retired_disk_is_emptied_and_leaves_the_record() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    for chunk in 0..6 {
        bench.overwrite(chunk * u64::from(CHUNK), chunk as u8 + 1);
    }
    bench.space.set_retired(disk(2), true);
    bench.pass(Duration::from_secs(60));
    assert!(bench.space.is_free(disk(2)));
    assert_eq!(bench.record().in_sync, [disk(1), disk(3)]);
    for chunk in 0..6 {
        assert_eq!(bench.holders(chunk), [0, 2]);
        assert_eq!(bench.read(u64::from(chunk * CHUNK), 1), [chunk as u8 + 1]);
    }
}

#[test]
fn an_added_disk_is_filled_by_a_rebalance() {
    let mut bench = Bench::new(2, 12, Resiliency::TwoWay);
    for chunk in 0..9 {
        bench.overwrite(chunk * u64::from(CHUNK), chunk as u8 + 1);
    }
    let added = FakeStore::new(CHUNK, 12);
    bench.stores.push(added.clone());
    bench.space.attach_disk(disk(3), added, FaultDomain::default()).unwrap();
    bench.space.add_disk(disk(3));
    bench.pass(Duration::from_secs(3));
    assert!(bench.space.rebalance() > 0);
    bench.pass(Duration::from_secs(60));
    let held = (0..9).filter(|chunk| bench.holders(*chunk).contains(&2)).count();
    assert!((5..=7).contains(&held), "{held} chunks");
    for chunk in 0..9 {
        assert_eq!(bench.holders(chunk).len(), 2);
        assert_eq!(bench.read(u64::from(chunk * CHUNK), 1), [chunk as u8 + 1]);
    }
}

#[test]
fn a_disk_that_came_to_the_pool_just_before_a_crash_is_given_to_its_volumes_by_the_next_start() {
    let mut bench = Bench::new(2, 12, Resiliency::TwoWay);
    (0..6).for_each(|chunk| bench.overwrite(chunk * u64::from(CHUNK), 1));
    bench.stores.push(FakeStore::new(CHUNK, 12));
    bench.crash(|| true);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2), disk(3)]);
    assert!(bench.space.rebalance() > 0);
}

#[test]
fn a_move_cut_off_by_a_crash_leaves_no_copy_that_misses_writes() {
    for polls in 0..14 {
        let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
        for chunk in 0..4 {
            bench.write(chunk * u64::from(CHUNK), WriteClass::Fresh, 700, 1).unwrap();
        }
        bench.space.set_retired(disk(2), true);
        bench.pass(Duration::from_millis(100 * polls));
        for chunk in 0..4 {
            bench.overwrite(chunk * u64::from(CHUNK) + polls, 2);
        }
        bench.crash(|| polls % 2 == 0);
        bench.pass(Duration::from_secs(30));
        for chunk in 0..4 {
            let first = u64::from(chunk * CHUNK);
            assert_eq!(bench.holders(chunk).len(), 2, "after {polls} steps");
            assert!((0..700).all(|at| bench.copies_agree(first + at)), "after {polls} steps");
            assert_eq!(bench.read(first + polls, 1), [2]);
        }
        assert!(bench.record().building.is_empty());
    }
}

#[test]
fn a_retired_disk_that_dies_while_it_is_emptied_leaves_no_chunk_short_of_copies() {
    for steps in (0..24).step_by(3) {
        let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
        for chunk in 0..4 {
            bench.write(chunk * u64::from(CHUNK), WriteClass::Fresh, 700, 1).unwrap();
        }
        bench.space.set_retired(disk(2), true);
        for _ in 0..steps {
            bench.now = bench.now.after(Duration::from_millis(7));
            bench.space.handle_timeout(bench.now);
        }
        bench.space.detach_disk(disk(2)).unwrap();
        for chunk in 0..4 {
            bench.overwrite(chunk * u64::from(CHUNK) + steps, 2);
        }
        bench.pass(Duration::from_secs(60));
        let counts = bench.space.with_volume(VOLUME, |coordinator| coordinator.chunk_counts());
        assert_eq!(counts, Some((4, 0)), "after {steps} steps");
        assert_eq!(bench.record().min_holders, 2);
        for chunk in 0..4 {
            let first = u64::from(chunk * CHUNK);
            assert!((0..700).step_by(7).all(|at| bench.copies_agree(first + at)), "after {steps} steps");
            assert_eq!(bench.read(first + steps, 1), [2]);
        }
    }
}

#[test]
fn a_copy_that_is_complete_counts_although_the_disk_it_was_to_replace_left_before_the_record_said_so() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.overwrite(u64::from(CHUNK), 1);
    let chunk = (0..2).find(|chunk| bench.holders(*chunk) != [0, 2]).unwrap();
    let leaving = disk(2);
    let target = bench.stores[if bench.holders(chunk).contains(&0) { 2 } else { 0 }].clone();
    bench.space.detach_disk(leaving).unwrap();
    for _ in 0..4 {
        bench.start(SpaceRequest::Read { lba: Lba(u64::from(chunk * CHUNK)), blocks: 1, copy: None });
    }
    bench.pass(Duration::from_secs(2));
    target.set_fault(FakeFault::Hang);
    bench.space.set_retired(leaving, true);
    bench.pass(Duration::from_millis(1_500));
    assert!(!bench.record().building.is_empty(), "its copy is being made elsewhere");
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.pass(Duration::from_millis(1_500));
    target.set_fault(FakeFault::None);
    bench.pass(Duration::from_millis(500));
    bench.state.set_fault_hook(None);
    assert!(bench.record().in_sync.contains(&leaving), "the record could not change yet");
    bench.pass(Duration::from_secs(10));
    assert!(!bench.record().in_sync.contains(&leaving));
    bench.pass(Duration::from_secs(30));
    let counts = bench.space.with_volume(VOLUME, |coordinator| coordinator.chunk_counts());
    assert_eq!(counts, Some((2, 0)));
    assert_eq!(bench.record().min_holders, 2);
}

#[test]
fn new_chunks_are_not_given_to_a_disk_that_the_next_record_is_without() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    let empty = disk((0..3).find(|at| !bench.holders(0).contains(at)).unwrap() as u8 + 1);
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.space.set_retired(empty, true);
    bench.pass(Duration::from_secs(2));
    bench.space.set_retired(empty, false);
    // The disk is the emptiest, and a slab from it would not count before the state says whether it
    // leaves.
    bench.overwrite(u64::from(CHUNK), 2);
    assert_eq!(bench.read(u64::from(CHUNK), 1), [2]);
    bench.state.set_fault_hook(None);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.record().min_holders, 2);
}

#[test]
fn the_record_says_at_once_that_a_disk_is_back_which_an_opening_may_then_miss() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(0, 2);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.record().min_holders, 1);
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    while bench.record().in_sync.len() < 2 {
        bench.pass(Duration::from_millis(100));
    }
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.record().min_holders, 2);
}

#[test]
fn copies_may_differ_until_the_volume_is_open_and_they_were_compared() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.restart_for(Duration::from_secs(2));
    assert!(!bench.space.is_reconciled(), "nobody knows what a crash left");
    bench.state.set_fault_hook(None);
    bench.pass(Duration::from_secs(5));
    assert!(bench.space.is_reconciled());
}

#[test]
fn chunks_that_no_disk_has_room_for_are_counted_until_one_has() {
    let mut bench = Bench::new(3, 3, Resiliency::TwoWay);
    for chunk in 0..4 {
        bench.overwrite(chunk * u64::from(CHUNK), 1);
    }
    bench.space.set_retired(disk(2), true);
    bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(u64::from(CHUNK), 2);
    for chunk in 0..4 {
        bench.overwrite(chunk * u64::from(CHUNK), 2);
    }
    bench.pass(Duration::from_secs(60));
    let short = |bench: &Bench| {
        bench
            .space
            .with_volume(VOLUME, |coordinator| {
                (coordinator.chunk_counts().1, coordinator.chunks_without_room())
            })
            .unwrap()
    };
    let (few, without_room) = short(&bench);
    assert!(few > 0);
    assert_eq!(few, without_room);
    let added = FakeStore::new(CHUNK, 12);
    bench.stores.push(added.clone());
    bench.space.attach_disk(disk(4), added, FaultDomain::default()).unwrap();
    bench.space.add_disk(disk(4));
    bench.pass(Duration::from_secs(60));
    assert_eq!(short(&bench), (0, 0));
}

#[test]
pub(super) fn no_chunk_begins_with_fewer_copies_since_a_disk_is_being_retired() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    (0..4).for_each(|chunk| bench.overwrite(chunk * u64::from(CHUNK), 1));
    let small = FakeStore::new(CHUNK, 1);
    bench.stores.push(small.clone());
    bench.space.attach_disk(disk(3), small, FaultDomain::default()).unwrap();
    bench.space.add_disk(disk(3));
    bench.pass(Duration::from_secs(3));
    bench.space.set_retired(disk(2), true);
    bench.pass(Duration::from_secs(10));
    assert!(bench.record().in_sync.contains(&disk(2)), "three of its slabs find no room");
    assert_eq!(bench.handle.size().available.0, 0);
    for chunk in 4..6 {
        let written = bench.write(chunk * u64::from(CHUNK), WriteClass::Overwrite, 1, 2);
        assert_eq!(written, Err(SpaceError::NoSpace), "disk 1 alone has room");
    }
    assert_eq!(bench.record().min_holders, 2);
    // An administrator cancels the retirement.
    bench.space.set_retired(disk(2), false);
    bench.pass(Duration::from_secs(1));
    bench.overwrite(4 * u64::from(CHUNK), 2);
    assert_eq!(bench.holders(4), [0, 1]);
}

#[test]
fn a_disk_that_turns_out_to_be_full_leaves_no_chunk_with_fewer_copies() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    // Another server's volume took its last slabs, which is not known here yet.
    bench.stores[1].set_fault(FakeFault::NoSlabs);
    let written = bench.write(u64::from(CHUNK), WriteClass::Overwrite, 1, 2);
    assert_eq!(written, Err(SpaceError::NoSpace));
    assert_eq!((bench.record().min_holders, bench.record().stale.len()), (2, 0));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.holders(1), [] as [usize; 0], "the slab that the other disk gave is given back");
    bench.stores[1].set_fault(FakeFault::None);
    bench.space.refresh();
    bench.overwrite(u64::from(CHUNK), 2);
    assert_eq!(bench.holders(1), [0, 1]);
}

#[test]
pub(super) fn a_retiring_disk_that_was_away_for_a_moment_is_brought_up_to_date_until_it_is_empty() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    (0..4).for_each(|chunk| bench.overwrite(chunk * u64::from(CHUNK), 1));
    let attach = |bench: &mut Bench, number: u8, slabs: u64| {
        let store = FakeStore::new(CHUNK, slabs);
        bench.stores.push(store.clone());
        bench.space.attach_disk(disk(number), store, FaultDomain::default()).unwrap();
        bench.space.add_disk(disk(number));
        bench.pass(Duration::from_secs(3));
    };
    attach(&mut bench, 3, 1);
    bench.space.set_retired(disk(2), true);
    bench.pass(Duration::from_secs(10));
    let store = bench.space.detach_disk(disk(2)).unwrap();
    (0..4).for_each(|chunk| bench.overwrite(chunk * u64::from(CHUNK), 2));
    assert_eq!(bench.record().stale.len(), 1, "three of its slabs find no room");
    let written = bench.write(4 * u64::from(CHUNK), WriteClass::Overwrite, 1, 2);
    assert_eq!(written, Err(SpaceError::NoSpace), "the disk would give no slab if it were there");
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(10));
    assert_eq!((bench.record().stale.len(), bench.record().min_holders), (0, 2));
    for chunk in 0..4 {
        assert_eq!(bench.holders(chunk).len(), 2);
        assert!(bench.copies_agree(u64::from(chunk * CHUNK)));
    }
    attach(&mut bench, 4, 8);
    bench.pass(Duration::from_secs(30));
    assert!(bench.space.is_free(disk(2)));
    assert_eq!(bench.record().in_sync, [disk(1), disk(3), disk(4)]);
}

#[test]
fn a_lost_disk_that_is_retired_leaves_the_last_disk_writable() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(0, 2);
    bench.space.set_retired(disk(2), true);
    bench.pass(Duration::from_secs(3));
    bench.overwrite(u64::from(CHUNK), 2);
    assert_eq!(bench.record().min_holders, 1);
}

#[test]
pub(super) fn a_write_waits_for_slabs_of_disks_that_are_being_brought_up_to_date() {
    let mut bench = Bench::new(2, 2, Resiliency::TwoWay);
    (0..2).for_each(|chunk| bench.overwrite(chunk * u64::from(CHUNK), 1));
    let lba = Lba(2 * u64::from(CHUNK));
    let write = || SpaceRequest::Write { lba, class: WriteClass::Overwrite, data: filled(1, 2) };
    bench.start(write());
    let answers = bench.answers();
    let is_refused = matches!(answers[..], [SpaceCompletion { result: Err(SpaceError::NoSpace), .. }]);
    assert!(is_refused, "the pool is full, and nothing will change that by itself: {answers:?}");
    for number in [3, 4] {
        let store = FakeStore::new(CHUNK, 8);
        bench.stores.push(store.clone());
        bench.space.attach_disk(disk(number), store, FaultDomain::default()).unwrap();
        bench.space.add_disk(disk(number));
    }
    while bench.record().stale.len() < 2 {
        bench.pass(Duration::from_millis(10));
    }
    // These copies are complete, and the record cannot say so yet.
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.pass(Duration::from_secs(3));
    let token = bench.start(write());
    bench.run_briefly();
    assert!(bench.answers().is_empty(), "the write waits");
    bench.state.set_fault_hook(None);
    bench.pass(Duration::from_secs(3));
    let answers = bench.answers();
    assert!(answers.iter().any(|answer| answer.token == token && answer.result.is_ok()), "{answers:?}");
    assert_eq!(bench.holders(2), [2, 3]);
}

#[test]
fn a_resync_can_be_stopped_and_goes_on_when_resumed() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 1024, 1).unwrap();
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.write(0, WriteClass::Fresh, 1024, 2).unwrap();
    bench.space.suspend_job(VOLUME, JobKind::Resync);
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.record().in_sync, [disk(1)]);
    bench.space.resume_job(VOLUME, JobKind::Resync);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    assert!((0..1024).all(|lba| bench.copies_agree(lba)));
}

#[test]
fn a_scrub_repairs_what_nobody_read() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 1).unwrap();
    bench.stores[1].corrupt(VOLUME, Lba(6));
    bench.space.scrub(disk(2), 1 << 30);
    bench.run_briefly();
    assert_eq!(bench.space.counters(VOLUME).unwrap().repaired_blocks, 1);
}

#[test]
fn a_volume_can_grow() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    let blocks = bench.handle.size().blocks.0;
    let bytes = (blocks + 1024) * BLOCK_BYTES as u64;
    bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(bytes));
    bench.run_briefly();
    assert_eq!(bench.handle.size().blocks.0, blocks + 1024);
    bench.overwrite(blocks + 1023, 1);
}

/// Ten milliseconds.
fn tick(bench: &mut Bench) {
    bench.now = bench.now.after(Duration::from_millis(10));
    bench.space.handle_timeout(bench.now);
}

/// Copies of the chunk that count by the record in the cluster state.
fn copies_by_record(bench: &Bench, chunk: u32) -> usize {
    let record = bench.record();
    let counts = |at: &usize| {
        let holder = disk(*at as u8 + 1);
        record.in_sync.contains(&holder) && !record.building.contains(&(holder, ChunkIndex(chunk)))
    };
    bench.holders(chunk).iter().filter(|at| counts(at)).count()
}

/// Makes a chunk whose copy is being made on a disk that hangs, in place of one on a retired disk.
/// Returns that disk and its store.
fn with_a_copy_in_the_making() -> (Bench, DiskId, FakeStore) {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 700, 1).unwrap();
    let holders = bench.holders(0);
    let at = (0..3).find(|at| !holders.contains(at)).unwrap();
    let target = bench.stores[at].clone();
    target.set_fault(FakeFault::Hang);
    bench.space.set_retired(disk(holders[0] as u8 + 1), true);
    bench.pass(Duration::from_millis(1_500));
    assert!(!bench.record().building.is_empty(), "its copy is being made");
    (bench, disk(at as u8 + 1), target)
}

/// Asserts that the chunk never has fewer than two copies, and that the retired disk is empty in
/// the end.
fn two_copies_always_count(bench: &mut Bench, target: DiskId, store: &FakeStore) {
    let mut left = false;
    for _ in 0..300 {
        tick(bench);
        left |= !bench.record().in_sync.contains(&target);
        assert!(copies_by_record(bench, 0) >= 2, "{:?}", bench.record());
    }
    assert!(left, "it left at least for a moment");
    store.set_fault(FakeFault::None);
    for _ in 0..300 {
        bench.pass(Duration::from_millis(100));
        assert!(copies_by_record(bench, 0) >= 2, "{:?}", bench.record());
    }
    assert_eq!(bench.holders(0).len(), 2);
    assert!(bench.holders(0).contains(&(usize::from(target.to_bytes()[0]) - 1)), "the copy was made");
    assert!(bench.record().building.is_empty());
}

#[test]
fn no_copy_is_given_up_for_one_that_is_completed_on_a_disk_that_is_about_to_be_put_out() {
    let (mut bench, target, store) = with_a_copy_in_the_making();
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.pass(Duration::from_secs(5));
    // A record without the disk was proposed; meanwhile the disk is back, and the copy becomes complete.
    store.set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(5));
    bench.state.set_fault_hook(None);
    assert!(bench.record().in_sync.contains(&target), "the record could not change yet");
    two_copies_always_count(&mut bench, target, &store);
}

#[test]
fn no_copy_is_given_up_by_the_record_that_puts_the_disk_of_the_new_one_out() {
    let (mut bench, target, store) = with_a_copy_in_the_making();
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    let grown = u64::from(CHUNK) * 65 * BLOCK_BYTES as u64;
    bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(grown));
    bench.pass(Duration::from_millis(100));
    // The copy becomes complete while another change waits for its answer; then the disk fails.
    store.set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(1));
    store.set_fault(FakeFault::Errors);
    bench.start(SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data: filled(1, 2) });
    bench.pass(Duration::from_secs(1));
    bench.state.set_fault_hook(None);
    assert!(bench.record().in_sync.contains(&target), "the record could not change yet");
    two_copies_always_count(&mut bench, target, &store);
    assert_eq!(bench.read(0, 1), [2]);
}

#[test]
fn no_copy_is_given_up_for_one_that_was_completed_on_a_disk_that_is_out_while_the_record_cannot_change() {
    let (mut bench, target, store) = with_a_copy_in_the_making();
    let kept = bench.holders(0)[1];
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.pass(Duration::from_secs(5));
    // The record expels the disk; a remaining one cannot promise that yet, and another change waits
    // for its answer.
    bench.stores[kept].set_fault(FakeFault::Hang);
    bench.state.set_fault_hook(None);
    for _ in 0..200 {
        if !bench.record().in_sync.contains(&target) {
            break;
        }
        tick(&mut bench);
    }
    assert!(!bench.record().in_sync.contains(&target));
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    let grown = u64::from(CHUNK) * 65 * BLOCK_BYTES as u64;
    bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(grown));
    store.set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(1));
    bench.stores[kept].set_fault(FakeFault::None);
    bench.pass(Duration::from_millis(200));
    bench.state.set_fault_hook(None);
    two_copies_always_count(&mut bench, target, &store);
}

#[test]
fn a_disk_that_left_while_it_was_asked_for_slabs_has_its_room_when_it_is_back() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.stores[1].set_fault(FakeFault::Errors);
    for chunk in 0..5 {
        bench.overwrite(chunk * u64::from(CHUNK), 1);
    }
    bench.stores[1].set_fault(FakeFault::None);
    let joined = (0..500).any(|_| {
        tick(&mut bench);
        bench.record().in_sync.len() == 2
    });
    assert!(joined);
    // The record expels the disk before the other disk has promised so.
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::Hang));
    bench.pass(Duration::from_secs(15));
    let record = bench.record();
    assert!(record.in_sync == [disk(1)] && !record.building.is_empty(), "it was asked for slabs: {record:?}");
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::None));
    bench.pass(Duration::from_secs(60));
    let counts = bench.space.with_volume(VOLUME, |coordinator| coordinator.chunk_counts());
    assert_eq!(counts, Some((5, 0)));
}

#[test]
fn a_planned_move_is_waited_for_until_it_may_begin() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.pass(Duration::from_secs(120));
    let holders = bench.holders(0);
    let to = (0..3_u8).find(|at| !holders.contains(&usize::from(*at))).unwrap();
    let step = pool::Move {
        volume: VOLUME,
        chunk: ChunkIndex(0),
        from: disk(holders[0] as u8 + 1),
        to: disk(to + 1),
    };
    let due = bench.space.with_volume(VOLUME, |coordinator| {
        coordinator.rebalance(vec![step]);
        coordinator.next_timeout()
    });
    let soon = bench.now.after(Duration::from_secs(1));
    assert!(due.flatten().is_some_and(|due| due <= soon), "{due:?}");
}

#[test]
fn a_copy_too_many_is_given_up_and_a_retired_disk_gives_its_own_up_first() {
    for retired in [None, Some(disk(3))] {
        let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
        while bench.holders(0) != [0, 1] {
            bench.call(SpaceRequest::Discard { lba: Lba(0), blocks: u64::from(CHUNK) }).unwrap();
            let other = bench.next_token * u64::from(CHUNK);
            bench.overwrite(other, 1);
            bench.overwrite(0, 1);
        }
        // Disk 2's copy is rebuilt elsewhere; then disk 1 leaves too, and both come back at once.
        let second = bench.space.detach_disk(disk(2)).unwrap();
        bench.overwrite(0, 2);
        bench.pass(Duration::from_secs(31 * 60));
        assert_eq!(bench.record().in_sync, [disk(1), disk(3)]);
        let first = bench.space.detach_disk(disk(1)).unwrap();
        bench.overwrite(0, 3);
        if let Some(retired) = retired {
            bench.space.set_retired(retired, true);
        }
        bench.space.attach_disk(disk(1), first, FaultDomain::default()).unwrap();
        bench.space.attach_disk(disk(2), second, FaultDomain::default()).unwrap();
        bench.pass(Duration::from_secs(30));
        assert_eq!(bench.holders(0).len(), 2, "retired {retired:?}");
        if let Some(retired) = retired {
            assert!(!bench.record().in_sync.contains(&retired));
        }
        assert!(bench.record().building.is_empty());
        assert_eq!(bench.record().min_holders, 2);
        assert!(bench.copies_agree(0));
        assert_eq!(bench.read(0, 1), [3]);
    }
}

/// Makes a chunk with copies on three disks, of which two are wanted: the third disk is retired,
/// and about to give its copy up. `write` writes the number, on disks 1 and 2 at first.
fn with_a_copy_too_many(write: fn(&mut Bench, u8)) -> Bench {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    write(&mut bench, 1);
    while bench.holders(0) != [0, 1] {
        bench.call(SpaceRequest::Discard { lba: Lba(0), blocks: u64::from(CHUNK) }).unwrap();
        let other = bench.next_token * u64::from(CHUNK);
        bench.overwrite(other, 1);
        write(&mut bench, 1);
    }
    bench.pass(Duration::from_secs(120));
    let second = bench.space.detach_disk(disk(2)).unwrap();
    write(&mut bench, 2);
    bench.pass(Duration::from_secs(31 * 60));
    let first = bench.space.detach_disk(disk(1)).unwrap();
    write(&mut bench, 3);
    bench.space.set_retired(disk(3), true);
    bench.space.attach_disk(disk(1), first, FaultDomain::default()).unwrap();
    bench.space.attach_disk(disk(2), second, FaultDomain::default()).unwrap();
    let joined = (0..500).any(|_| {
        tick(&mut bench);
        bench.record().in_sync.len() == 3
    });
    assert!(joined && bench.record().building.is_empty(), "none was given up yet");
    bench
}

#[test]
pub(super) fn a_copy_too_many_is_given_up_only_when_those_that_remain_are_whole() {
    let mut bench = with_a_copy_too_many(|bench, byte| {
        if byte == 1 {
            bench.write(300, WriteClass::Fresh, 8, 4).unwrap();
        }
        bench.overwrite(0, byte);
    });
    // Only the copy that is to be given up still has this block.
    bench.stores[0].corrupt(VOLUME, Lba(302));
    bench.stores[1].corrupt(VOLUME, Lba(302));
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.holders(0), [0, 1]);
    assert!(!bench.record().in_sync.contains(&disk(3)));
    assert_eq!(bench.read(300, 8), [4; 8]);
    assert!((300..308).all(|lba| bench.copies_agree(lba)));
}

#[test]
fn a_copy_too_many_is_given_up_only_when_those_that_remain_have_the_newest_of_what_proves_itself() {
    let mut bench = with_a_copy_too_many(|bench, byte| bench.append(0, 4, byte, u64::from(byte)));
    for store in &bench.stores[..2] {
        store.put(VOLUME, Lba(1), &sealed(1, 1, 1, 1).contiguous());
    }
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.holders(0), [0, 1]);
    assert_eq!(bench.read(0, 4), [3; 4]);
}

#[test]
fn a_retired_disk_is_not_forgotten_while_it_is_asked_for_a_slab() {
    let mut bench = Bench::new(3, 8, Resiliency::Simple);
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::Hang));
    let write = SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data: filled(1, 7) };
    let token = bench.start(write);
    bench.pass(Duration::from_millis(100));
    let asked = (0..3).find(|at| bench.stores[*at].pending() > 0).unwrap();
    // The outcome of the record's change is not known for a while.
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::AnswerLost)));
    bench.space.set_retired(disk(asked as u8 + 1), true);
    bench.pass(Duration::from_secs(2));
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::None));
    bench.pass(Duration::from_secs(1));
    bench.state.set_fault_hook(None);
    let mut out = Vec::new();
    bench.handle.poll(&mut out);
    assert!(out.iter().any(|done| done.token == token && done.result.is_ok()), "{out:?}");
    bench.crash(|| true);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.read(0, 1), [7]);
}
