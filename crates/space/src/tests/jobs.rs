use super::*;
use cluster::JobKind;

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
    use crate::fake_store::FakeFault;
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
    bench.state.set_fault_hook(Some(Box::new(|_| cluster::Fault::Lost)));
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
    bench.settle();
    assert_eq!(bench.space.counters(VOLUME).unwrap().repaired_blocks, 1);
}

#[test]
fn a_volume_can_grow() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    let blocks = bench.handle.size().blocks.0;
    let bytes = (blocks + 1024) * BLOCK_BYTES as u64;
    bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(bytes));
    bench.settle();
    assert_eq!(bench.handle.size().blocks.0, blocks + 1024);
    bench.overwrite(blocks + 1023, 1);
}
