use super::*;
use crate::fake_store::FakeFault;
use types::Epoch;

#[test]
fn a_disk_that_fails_leaves_by_a_committed_record_and_writes_go_on() {
    for fault in [FakeFault::WriteErrors, FakeFault::Errors, FakeFault::Hang] {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.overwrite(0, 1);
        let before = bench.record();
        bench.stores[1].set_fault(fault);
        bench.overwrite(0, 2);
        let record = bench.record();
        assert_eq!(record.in_sync, [disk(1)], "{fault:?}");
        assert!(record.epoch > before.epoch);
        assert_eq!(record.stale[0].disk, disk(2));
        assert_eq!(bench.read(0, 1), [2]);
    }
}

#[test]
fn without_the_cluster_state_nothing_is_acknowledged_under_fewer_copies() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.stores[1].set_fault(FakeFault::Errors);
    let write = SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data: filled(1, 2) };
    let token = bench.start(write);
    bench.pass(Duration::from_secs(10));
    let mut out = Vec::new();
    bench.handle.poll(&mut out);
    assert!(out.is_empty(), "{out:?}");
    bench.state.set_fault_hook(None);
    bench.pass(Duration::from_secs(2));
    bench.handle.poll(&mut out);
    assert!(out.iter().any(|done| done.token == token && done.result.is_ok()), "{out:?}");
    assert_eq!(bench.record().in_sync, [disk(1)]);
}

#[test]
fn an_answer_that_was_lost_is_found_to_be_committed() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    let mut first = true;
    bench.state.set_fault_hook(Some(Box::new(move |_| {
        if std::mem::take(&mut first) { records::Fault::AnswerLost } else { records::Fault::None }
    })));
    bench.stores[1].set_fault(FakeFault::Errors);
    bench.overwrite(0, 2);
    assert_eq!(bench.record().in_sync, [disk(1)]);
}

#[test]
fn a_disk_that_returns_is_given_what_it_missed_and_no_more() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    for region in 0..4 {
        bench.overwrite(region * 256, 1);
    }
    bench.pass(Duration::from_secs(120));
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(256, 2);
    bench.overwrite(u64::from(CHUNK), 3);
    assert_eq!(bench.record().in_sync, [disk(1)]);
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    assert_eq!(bench.space.counters(VOLUME).unwrap().resynced_regions, 1);
    assert!((0..2048).step_by(256).all(|lba| bench.copies_agree(lba)));
    // The chunk first written meanwhile has its second copy too.
    assert_eq!(bench.holders(1), [0, 1]);
    assert_eq!(bench.record().min_holders, 2);
    assert_eq!(bench.read(256, 1), [2]);
}

#[test]
fn room_is_told_as_it_is_given_while_a_disk_is_away() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(0, 2);
    let available = bench.handle.size().available.0;
    assert!(available >= u64::from(CHUNK), "{available} blocks");
    bench.overwrite(u64::from(CHUNK), 3);
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.holders(1), [0, 1]);
}

#[test]
fn a_chunk_freed_and_written_anew_meanwhile_does_not_bring_old_data_back() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 1024, 1).unwrap();
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.call(SpaceRequest::Discard { lba: Lba(0), blocks: 1024 }).unwrap();
    bench.overwrite(0, 2);
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    assert!(bench.copies_agree(512));
    bench.space.detach_disk(disk(1));
    assert_eq!(bench.read(512, 1), [0]);
    assert_eq!(bench.read(0, 1), [2]);
}

#[test]
fn a_corrupt_block_is_read_from_another_copy_and_repaired() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 300, 5).unwrap();
    bench.stores[0].corrupt(VOLUME, Lba(3));
    bench.stores[1].corrupt(VOLUME, Lba(4));
    for _ in 0..4 {
        assert_eq!(bench.read(0, 256), [5; 256]);
    }
    let counters = bench.space.counters(VOLUME).unwrap();
    assert!(counters.corrupt_blocks >= 1);
    assert_eq!(counters.repaired_blocks, 2);
    assert_eq!(bench.record().in_sync.len(), 2);
}

#[test]
fn a_block_without_an_intact_copy_is_named_and_others_are_served() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores.iter().for_each(|store| store.corrupt(VOLUME, Lba(3)));
    let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 8, copy: None });
    assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(3)]));
    assert_eq!(bench.read(4, 4), [5; 4]);
    bench.overwrite(3, 6);
    assert_eq!(bench.read(0, 8), [5, 5, 5, 6, 5, 5, 5, 5]);
}

#[test]
fn copies_that_differ_after_a_crash_are_made_equal_before_they_are_read() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(10, 1);
    bench.start(SpaceRequest::Write { lba: Lba(10), class: WriteClass::Overwrite, data: filled(1, 2) });
    // Both copies are asked by the first poll's send; here neither has answered when the process dies.
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::Hang));
    let mut out = Vec::new();
    bench.handle.poll(&mut out);
    assert!(out.is_empty());
    let mut keep = [false, true].into_iter().cycle();
    bench.crash(move || keep.next().unwrap());
    let first = bench.read(10, 1);
    for _ in 0..6 {
        assert_eq!(bench.read(10, 1), first);
    }
    assert!(bench.copies_agree(10));
}

#[test]
fn after_a_clean_close_nothing_is_compared() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.space.close_volume(VOLUME);
    bench.run_briefly();
    assert_eq!(bench.space.phase(VOLUME), Some(Phase::Closed));
    bench.crash(|| true);
    assert_eq!(bench.read(0, 1), [1]);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.space.counters(VOLUME).unwrap().probed_chunks, 0);
}

#[test]
fn an_idle_volume_settles_so_that_a_crash_leaves_nothing_to_reconcile() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    let written = bench.record().epoch;
    bench.overwrite(0, 1);
    bench.pass(Duration::from_secs(120));
    assert!(bench.record().settled >= written);
    let revision = bench.record().epoch;
    bench.pass(Duration::from_secs(300));
    assert_eq!(bench.record().epoch, revision, "an idle volume does not change its record");
}

#[test]
fn a_second_coordinator_stops_the_first() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    let other = LocalSpace::new(bench.state.client(), Config::default(), CHUNK, 0, bench.now);
    for (at, store) in bench.stores.iter().enumerate() {
        other.attach_disk(disk(at as u8 + 1), store.clone(), FaultDomain::default()).unwrap();
    }
    other.open_volume(VOLUME, 99);
    other.handle_timeout(bench.now.after(Duration::from_millis(1)));
    assert_eq!(other.phase(VOLUME), Some(Phase::Serving));
    assert_eq!(bench.write(0, WriteClass::Overwrite, 1, 2), Err(SpaceError::Fenced));
    assert!(bench.record().epoch > Epoch(2));
}

#[test]
pub(super) fn a_volume_opens_without_a_disk_as_long_as_every_chunk_surely_has_another_copy() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    for chunk in 0..6 {
        bench.overwrite(chunk * u64::from(CHUNK), chunk as u8 + 1);
    }
    // One disk fewer: opened without it.
    let mut missing = bench.stores.clone();
    missing.pop();
    let (space, handle) = Bench::assemble(&bench.state, &missing, bench.now, 50);
    (bench.space, bench.handle) = (space, handle);
    bench.pass(Duration::from_secs(5));
    for chunk in 0..6 {
        assert_eq!(bench.read(chunk * u64::from(CHUNK), 1), [chunk as u8 + 1]);
    }
    assert_eq!(bench.record().min_holders, 1);
    // And another: some chunk may have had its last copy there, so the opening waits.
    missing.pop();
    let (space, handle) = Bench::assemble(&bench.state, &missing, bench.now, 51);
    (bench.space, bench.handle) = (space, handle);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.space.phase(VOLUME), Some(Phase::Opening));
    bench.space.attach_disk(disk(2), bench.stores[1].clone(), FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.space.phase(VOLUME), Some(Phase::Serving));
}

#[test]
fn copies_that_differ_are_found_without_a_write_and_made_equal_on_demand() {
    use crate::coordinator::{Comparison, Event};
    use crate::local::LocalEvent;
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.overwrite(256, 1);
    let compared = |bench: &mut Bench, lba: u64| -> Comparison {
        while bench.space.poll_event().is_some() {}
        bench.space.compare(VOLUME, Lba(lba));
        bench.pass(Duration::from_secs(1));
        let mut found = Vec::new();
        while let Some(event) = bench.space.poll_event() {
            if let LocalEvent::Volume(_, Event::Compared { found: comparison, .. }) = event {
                found.push(comparison);
            }
        }
        assert_eq!(found.len(), 1, "one answer");
        found[0]
    };
    let clean = compared(&mut bench, 0);
    assert_eq!((clean.copies, clean.differing, clean.corrupt, clean.lost), (2, 0, 0, 0));
    bench.stores[1].corrupt(VOLUME, Lba(256));
    let found = compared(&mut bench, 256);
    assert_eq!((found.corrupt, found.lost, found.differing), (1, 0, 0));
    assert_eq!(compared(&mut bench, 256), found, "comparing repairs nothing");
    bench.space.equalize(VOLUME, Lba(256));
    assert_eq!(compared(&mut bench, 256).corrupt, 0);
    assert_eq!(compared(&mut bench, 6 * u64::from(CHUNK)).copies, 0, "nothing is mapped there");
}

#[test]
fn both_disks_of_a_mirror_that_go_at_once_come_back_in_sync_in_any_order() {
    for first in [1, 2] {
        for (pause_ms, write_meanwhile) in
            [(0, false), (0, true), (2_500, true), (40_000, true), (40_000, false)]
        {
            let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
            bench.overwrite(0, 1);
            bench.overwrite(u64::from(CHUNK), 1);
            let other = 3 - first;
            let a = bench.space.detach_disk(disk(first)).unwrap();
            bench.now = bench.now.after(Duration::from_millis(1));
            let b = bench.space.detach_disk(disk(other)).unwrap();
            let pause = Duration::from_millis(pause_ms);
            let mut tokens = Vec::new();
            if write_meanwhile {
                for lba in [0, 300, u64::from(CHUNK) * 2] {
                    let data = filled(1, 9);
                    tokens.push(bench.start(SpaceRequest::Write {
                        lba: Lba(lba),
                        class: WriteClass::Overwrite,
                        data,
                    }));
                }
            }
            bench.pass(pause);
            bench.space.attach_disk(disk(first), a, FaultDomain::default()).unwrap();
            bench.pass(pause);
            bench.space.attach_disk(disk(other), b, FaultDomain::default()).unwrap();
            bench.pass(Duration::from_secs(60));
            let record = bench.record();
            assert_eq!(
                record.in_sync,
                [disk(1), disk(2)],
                "{first} first, {pause_ms} ms, {write_meanwhile}: {record:?}"
            );
            assert_eq!(record.min_holders, 2);
            assert_eq!(bench.read(u64::from(CHUNK), 1), [1]);
            bench.overwrite(0, 3);
            assert_eq!(bench.read(0, 1), [3]);
            for lba in [0, 300, u64::from(CHUNK), u64::from(CHUNK) * 2] {
                assert!(bench.copies_agree(lba));
            }
            let counts = bench.space.with_volume(VOLUME, |coordinator| coordinator.chunk_counts()).unwrap();
            assert_eq!(counts.1, 0);
        }
    }
}

#[test]
fn a_resync_ends_although_a_block_has_no_intact_copy_and_reads_of_that_block_alone_fail() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(3, 6);
    bench.overwrite(5, 6);
    bench.stores[0].corrupt(VOLUME, Lba(5));
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    assert!(bench.stores[1].is_lost(VOLUME, Lba(5)), "what it holds may be of before");
    for _ in 0..4 {
        let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 8, copy: None });
        assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(5)]));
    }
    assert_eq!((bench.read(0, 5), bench.read(6, 2)), (vec![5, 5, 5, 6, 5], vec![5, 5]));
    bench.overwrite(5, 7);
    assert_eq!(bench.read(0, 8), [5, 5, 5, 6, 5, 7, 5, 5]);
    assert!((0..8).all(|lba| bench.copies_agree(lba)));
}

#[test]
fn a_block_that_rots_while_its_other_copy_is_away_is_taken_from_there_when_that_did_not_miss_it() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    let store = bench.space.detach_disk(disk(2)).unwrap();
    bench.overwrite(3, 6);
    bench.stores[0].corrupt(VOLUME, Lba(5));
    let result = bench.call(SpaceRequest::Read { lba: Lba(5), blocks: 1, copy: None });
    assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(5)]));
    bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    for store in &bench.stores {
        assert!(!store.is_lost(VOLUME, Lba(5)) && !store.is_corrupt(VOLUME, Lba(5)));
    }
    assert_eq!(bench.read(0, 8), [5, 5, 5, 6, 5, 5, 5, 5]);
    assert!((0..8).all(|lba| bench.copies_agree(lba)));
    assert_eq!(bench.space.counters(VOLUME).unwrap().repaired_blocks, 1);
}

#[test]
pub(super) fn a_block_of_a_disk_that_returns_is_not_believed_where_it_may_be_of_before() {
    type Meanwhile = fn(&mut Bench);
    let cases: [(&str, Meanwhile); 4] = [
        ("written", |bench| bench.overwrite(5, 6)),
        ("given back", |bench| {
            bench.call(SpaceRequest::Discard { lba: Lba(5), blocks: 1 }).unwrap();
            bench.overwrite(5, 6);
        }),
        ("its chunk allocated anew", |bench| {
            bench.call(SpaceRequest::Discard { lba: Lba(0), blocks: u64::from(CHUNK) }).unwrap();
            bench.write(0, WriteClass::Fresh, 8, 6).unwrap();
        }),
        ("another coordinator since", |bench| {
            bench.crash(|| true);
            bench.space.detach_disk(disk(2));
            bench.pass(Duration::from_secs(5));
        }),
    ];
    for (case, meanwhile) in cases {
        let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
        bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
        let store = bench.space.detach_disk(disk(2)).unwrap();
        bench.overwrite(3, 6);
        meanwhile(&mut bench);
        bench.overwrite(3, 7);
        bench.stores[0].corrupt(VOLUME, Lba(5));
        let _ = bench.space.detach_disk(disk(2));
        bench.space.attach_disk(disk(2), store, FaultDomain::default()).unwrap();
        bench.pass(Duration::from_secs(20));
        assert_eq!(bench.record().in_sync, [disk(1), disk(2)], "{case}");
        let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 8, copy: None });
        assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(5)]), "{case}");
    }
}

#[test]
fn a_write_that_was_with_a_disk_when_it_left_counts_as_missed() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    bench.stores[1].set_fault(FakeFault::WriteErrors);
    bench.overwrite(5, 6);
    assert_eq!(bench.record().in_sync, [disk(1)]);
    bench.stores[0].corrupt(VOLUME, Lba(5));
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 8, copy: None });
    assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(5)]));
}

#[test]
fn a_rebuild_ends_although_a_block_has_no_intact_copy() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 5).unwrap();
    let holders = bench.holders(0);
    holders.iter().for_each(|at| bench.stores[*at].corrupt(VOLUME, Lba(5)));
    bench.space.set_retired(disk(holders[0] as u8 + 1), true);
    bench.pass(Duration::from_secs(30));
    assert!(bench.space.is_free(disk(holders[0] as u8 + 1)));
    let result = bench.call(SpaceRequest::Read { lba: Lba(5), blocks: 1, copy: None });
    assert!(matches!(result, Err(SpaceError::Corrupt { lbas }) if lbas == [Lba(5)]));
    assert_eq!(bench.read(0, 5), [5; 5]);
}

#[test]
fn the_epoch_of_a_region_of_a_store_in_memory_only_grows() {
    use crate::block_store::BlockStore;
    use store::api::{StoreReply, StoreRequest};
    let mut store = FakeStore::new(CHUNK, 4);
    let (volume, chunk) = (VOLUME, types::ChunkIndex(0));
    let mut out = Vec::new();
    store.submit(0, StoreRequest::AllocateChunk { volume, epoch: Epoch(1), chunk, append: false });
    for (token, epoch, lba) in [(1, Epoch(7), 3), (2, Epoch(5), 9)] {
        let data = filled(1, 1);
        let (lba, class) = (Lba(lba), WriteClass::Fresh);
        let checksums = codes::payload_checksums(volume, lba, &data);
        store.submit(token, StoreRequest::Write { volume, stamp: epoch.into(), lba, class, data, checksums });
    }
    store.submit(3, StoreRequest::Discard { volume, stamp: Epoch(6).into(), lba: Lba(9), blocks: 1 });
    store.submit(4, StoreRequest::Regions { volume, chunk });
    store.poll(&mut out);
    let Some(Ok(StoreReply::Regions(found))) = out.pop().map(|done| done.result) else { panic!("{out:?}") };
    assert_eq!(found.stamps[0].epoch(), Epoch(7), "a change under an older epoch came late");
}

#[test]
fn a_new_chunk_is_not_written_while_a_disk_that_gave_it_a_slab_may_already_be_out() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    // A write to a chunk on disk 1 makes the disk fail.
    let old = (0..4).map(|chunk| chunk * u64::from(CHUNK)).find(|lba| {
        bench.overwrite(*lba, 1);
        bench.holders((*lba / u64::from(CHUNK)) as u32).contains(&0)
    });
    let (old, new) = (old.unwrap(), 20 * u64::from(CHUNK));
    let late = (1..3).map(|at| bench.stores[at].clone()).collect::<Vec<_>>();
    late.iter().for_each(|store| store.set_fault(FakeFault::Hang));
    let start = |bench: &mut Bench, lba: u64| {
        let write = SpaceRequest::Write { lba: Lba(lba), class: WriteClass::Overwrite, data: filled(1, 5) };
        bench.start(write)
    };
    let mut lba = new;
    let token = loop {
        let token = start(&mut bench, lba);
        bench.pass(Duration::from_millis(100));
        if bench.holders((lba / u64::from(CHUNK)) as u32) == [0] {
            break token;
        }
        lba += u64::from(CHUNK);
    };
    // A record without disk 1 is proposed, and its outcome stays unknown; then the other disk gives its
    // slab too.
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.stores[0].set_fault(FakeFault::Errors);
    start(&mut bench, old);
    bench.pass(Duration::from_millis(500));
    bench.stores[0].set_fault(FakeFault::None);
    late.iter().for_each(|store| store.set_fault(FakeFault::None));
    bench.pass(Duration::from_secs(3));
    let mut out = Vec::new();
    bench.handle.poll(&mut out);
    assert!(out.iter().all(|done| done.token != token), "acknowledged on disk 1: {out:?}");
    bench.state.set_fault_hook(None);
    bench.pass(Duration::from_secs(10));
    bench.handle.poll(&mut out);
    assert!(out.iter().any(|done| done.token == token && done.result.is_ok()), "{out:?}");
    assert_eq!(bench.read(lba, 1), [5]);
}

#[test]
fn an_answer_held_back_by_the_lease_is_not_given_when_too_few_copies_are_left() {
    let mut bench = Bench::new(3, 8, Resiliency::ThreeWay);
    bench.space.close_volume(VOLUME);
    bench.run_briefly();
    let config = Config { lease: Some(Duration::from_millis(400)), ..Config::default() };
    bench.space = LocalSpace::new(bench.state.client(), config, CHUNK, 0, bench.now);
    for (at, store) in bench.stores.iter().enumerate() {
        bench.space.attach_disk(disk(at as u8 + 1), store.clone(), FaultDomain::default()).unwrap();
    }
    bench.handle = bench.space.open_volume(VOLUME, 70);
    bench.space.set_node_lease(bench.now.after(Duration::from_secs(10)));
    bench.pass(Duration::from_secs(2));
    bench.stores[2].set_fault(FakeFault::Errors);
    bench.overwrite(0, 1);
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.pass(Duration::from_secs(10));
    let write =
        |byte| SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data: filled(1, byte) };
    let held = bench.start(write(2));
    bench.pass(Duration::from_millis(200));
    bench.stores[1].set_fault(FakeFault::Errors);
    bench.start(write(3));
    bench.pass(Duration::from_secs(1));
    let mut out = Vec::new();
    bench.handle.poll(&mut out);
    assert!(out.is_empty(), "without a lease: {out:?}");
    bench.state.set_fault_hook(None);
    bench.pass(Duration::from_secs(2));
    bench.space.set_node_lease(bench.now.after(Duration::from_secs(60)));
    for _ in 0..200 {
        bench.pass(Duration::from_millis(100));
        bench.handle.poll(&mut out);
    }
    assert_eq!(bench.record().in_sync, [disk(1)]);
    let answer = out.iter().find(|done| done.token == held).map(|done| &done.result);
    assert!(matches!(answer, Some(Err(SpaceError::Unavailable))), "{answer:?}");
}

#[test]
fn a_disk_that_holds_a_write_which_the_others_lost_is_given_what_they_have() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    bench.pass(Duration::from_secs(120));
    // Disk 2 has the write, disk 1 never gets it; the record changes meanwhile, and then disk 2 leaves.
    bench.stores[0].set_fault(FakeFault::Hang);
    bench.start(SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data: filled(1, 2) });
    bench.pass(Duration::from_millis(200));
    let grown = u64::from(CHUNK) * 65 * BLOCK_BYTES as u64;
    bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(grown));
    bench.pass(Duration::from_millis(200));
    bench.stores[1].set_fault(FakeFault::Errors);
    bench.start(SpaceRequest::Write { lba: Lba(256), class: WriteClass::Overwrite, data: filled(1, 3) });
    bench.pass(Duration::from_millis(500));
    assert_eq!(bench.record().in_sync, [disk(1)]);
    bench.crash(|| false);
    assert_eq!(bench.read(0, 1), [1]);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.record().in_sync, [disk(1), disk(2)]);
    assert!(bench.copies_agree(0));
}

#[test]
pub(super) fn a_second_crash_finds_again_what_the_first_left_to_compare() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(10, 1);
    bench.start(SpaceRequest::Write { lba: Lba(10), class: WriteClass::Overwrite, data: filled(1, 2) });
    bench.stores.iter().for_each(|store| store.set_fault(FakeFault::Hang));
    bench.answers();
    let mut keep = [false, true].into_iter();
    bench.stores.iter().for_each(|store| store.crash(|| keep.next().unwrap()));
    // The first start had too little time: the record changes, and nothing is compared yet.
    bench.restart_with(&[FakeFault::ReadsHang; 2], Duration::from_millis(300));
    let size_bytes = bench.record().size_bytes * 2;
    bench.space.with_volume(VOLUME, |coordinator| coordinator.resize(size_bytes));
    bench.run_briefly();
    assert_eq!(bench.record().size_bytes, size_bytes);
    bench.restart_for(Duration::from_secs(1));
    bench.read(10, 1);
    assert!(bench.copies_agree(10));
}

#[test]
fn a_volume_whose_epochs_are_used_up_is_not_opened_and_its_record_stays() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    let found = bench.state.read::<VolumeRecord>(&VOLUME.to_string()).unwrap().unwrap();
    let ended = VolumeRecord { epoch: types::Stamp::EPOCH_MAX, ..found.value };
    bench.state.write(&ended, found.revision).unwrap();
    bench.restart_for(Duration::from_secs(10));
    assert_ne!(bench.space.phase(VOLUME), Some(Phase::Serving));
    assert_eq!(bench.record(), ended);
}
