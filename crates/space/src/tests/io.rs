use super::*;

#[test]
fn what_was_written_reads_back_and_is_on_two_disks() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.overwrite(5, 1);
    bench.write(6, WriteClass::Overwrite, 16, 2).unwrap();
    assert_eq!(bench.read(4, 20), [&[0, 1][..], &[2; 16], &[0, 0]].concat());
    assert_eq!(bench.holders(0).len(), 2);
    assert!((4..24).all(|lba| bench.copies_agree(lba)));
}

#[test]
fn simple_and_three_way_keep_one_and_three_copies() {
    for (resiliency, copies) in [(Resiliency::Simple, 1), (Resiliency::ThreeWay, 3)] {
        let mut bench = Bench::new(3, 8, resiliency);
        bench.overwrite(0, 9);
        assert_eq!(bench.holders(0).len(), copies);
        assert_eq!(bench.read(0, 1), [9]);
    }
}

#[test]
fn a_large_write_crosses_regions_and_chunks() {
    let mut bench = Bench::new(3, 8, Resiliency::TwoWay);
    bench.write(u64::from(CHUNK) - 300, WriteClass::Fresh, 600, 3).unwrap();
    assert_eq!(bench.read(u64::from(CHUNK) - 301, 602), [&[0][..], &[3; 600], &[0]].concat());
}

#[test]
fn an_unmapped_chunk_reads_as_zeroes_without_disk_operations() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.stores.iter().for_each(|store| store.set_fault(crate::fake_store::FakeFault::Hang));
    assert_eq!(bench.read(3 * u64::from(CHUNK), 4), [0; 4]);
    assert!(bench.holders(3).is_empty());
}

#[test]
fn discarded_blocks_read_as_zeroes_and_a_discarded_chunk_gives_its_slabs_back() {
    let mut bench = Bench::new(2, 2, Resiliency::TwoWay);
    bench.write(0, WriteClass::Fresh, 8, 1).unwrap();
    bench.call(SpaceRequest::Discard { lba: Lba(2), blocks: 2 }).unwrap();
    assert_eq!(bench.read(0, 8), [1, 1, 0, 0, 1, 1, 1, 1]);
    bench.call(SpaceRequest::Discard { lba: Lba(0), blocks: u64::from(CHUNK) }).unwrap();
    assert!(bench.holders(0).is_empty());
    assert_eq!(bench.read(0, 2), [0, 0]);
    for chunk in 1..3 {
        bench.overwrite(chunk * u64::from(CHUNK), 1);
    }
}

#[test]
fn a_full_pool_refuses_and_serves_on() {
    let mut bench = Bench::new(2, 1, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    let refused = bench.write(u64::from(CHUNK), WriteClass::Overwrite, 1, 1);
    assert_eq!(refused, Err(SpaceError::NoSpace));
    assert_eq!(bench.read(0, 1), [1]);
    assert_eq!(bench.record().in_sync.len(), 2);
    assert_eq!(bench.handle.size().available.0, 0);
}

#[test]
fn bad_requests_are_refused() {
    let mut bench = Bench::new(2, 4, Resiliency::TwoWay);
    let end = bench.handle.size().blocks.0;
    for request in [
        SpaceRequest::Read { lba: Lba(end), blocks: 1, copy: None },
        SpaceRequest::Read { lba: Lba(u64::MAX), blocks: 2, copy: None },
        SpaceRequest::Read { lba: Lba(0), blocks: 0, copy: None },
        SpaceRequest::Write { lba: Lba(0), class: WriteClass::Overwrite, data: filled(17, 1) },
        SpaceRequest::Write {
            lba: Lba(0),
            class: WriteClass::Fresh,
            data: Payload::from(sys::Buf::from(&[1_u8][..])),
        },
        SpaceRequest::Discard { lba: Lba(end - 1), blocks: 2 },
    ] {
        assert!(matches!(bench.call(request), Err(SpaceError::Invalid(_))));
    }
}

#[test]
fn each_copy_can_be_read_by_itself() {
    let mut bench = Bench::new(2, 4, Resiliency::TwoWay);
    bench.append(0, 2, 4, 1);
    for copy in [0, 1] {
        let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 1, copy: Some(copy) });
        assert!(matches!(result, Ok(SpaceReply::Data(data)) if data.contiguous()[0] == 4));
    }
    let result = bench.call(SpaceRequest::Read { lba: Lba(0), blocks: 1, copy: Some(2) });
    assert!(matches!(result, Err(SpaceError::Invalid(_))));
}

#[test]
fn overlapping_writes_in_flight_end_equal_on_all_copies() {
    let mut bench = Bench::new(3, 8, Resiliency::ThreeWay);
    bench.overwrite(0, 0);
    for byte in 1..=40_u8 {
        let lba = u64::from(byte % 3);
        bench.start(SpaceRequest::Write {
            lba: Lba(lba),
            class: WriteClass::Overwrite,
            data: filled(4, byte),
        });
    }
    let mut out = Vec::new();
    bench.handle.poll(&mut out);
    assert_eq!(out.len(), 40);
    assert!((0..8).all(|lba| bench.copies_agree(lba)));
    assert_eq!(bench.read(0, 6), [39, 40, 40, 40, 40, 38]);
}

#[test]
fn answers_that_nobody_takes_any_more_keep_no_loop_awake() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.start(SpaceRequest::Read { lba: Lba(0), blocks: 1, copy: None });
    let Bench { space, handle, .. } = bench;
    let still_moves = (0..10).filter(|_| space.poll()).count();
    assert_eq!(still_moves, 10, "the volume has yet to take its answer");
    drop(handle);
    space.close_volume(VOLUME);
    assert!((0..10).any(|_| !space.poll()), "there is always something to do");
}

#[test]
fn a_chunk_whose_discard_was_given_up_serves_again() {
    let mut bench = Bench::new(2, 8, Resiliency::TwoWay);
    bench.overwrite(0, 1);
    // A write is in flight to a disk that hangs and cannot be expelled: the discard of the chunk
    // waits for it, and ends before it.
    bench.state.set_fault_hook(Some(Box::new(|_| records::Fault::Lost)));
    bench.stores[1].set_fault(FakeFault::Hang);
    bench.start(SpaceRequest::Write { lba: Lba(1), class: WriteClass::Overwrite, data: filled(1, 2) });
    let blocks = u64::from(CHUNK);
    let refused = bench.call(SpaceRequest::Discard { lba: Lba(0), blocks });
    assert!(matches!(refused, Err(SpaceError::Unavailable)), "{refused:?}");
    bench.state.set_fault_hook(None);
    bench.stores[1].set_fault(FakeFault::None);
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.read(0, 1), [1]);
    bench.overwrite(2, 3);
    bench.call(SpaceRequest::Discard { lba: Lba(0), blocks }).unwrap();
    assert_eq!((bench.read(0, 3), bench.holders(0)), (vec![0; 3], vec![]));
}
