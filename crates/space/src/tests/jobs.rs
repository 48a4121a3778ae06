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
