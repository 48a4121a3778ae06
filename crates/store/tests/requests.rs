//! The effect of each request on a disk without faults.

mod common;

use common::{
    EPOCH, POOL, Rig, VOLUME, crash_disk, new_rig, pattern, sealed, small, small_options, write_request,
    write_request_at,
};
use store::api::{StoreError, StoreReply, StoreRequest, WriteClass};
use store::{FormatError, FormatParameters, OpenError, Store, StoreOptions, format};
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Epoch, Lba, PoolId, VolumeId};

#[test]
fn blocks_never_written_read_as_zeroes() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    assert_eq!(rig.read(3, 5), Ok(vec![0; 5 * BLOCK_BYTES]));
}

#[test]
fn every_class_reads_back_at_once_after_a_checkpoint_and_after_a_restart() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.allocate(1, true);
    let (fresh, over, append) = (pattern(1, 200), pattern(2, 16), pattern(3, 7));
    rig.write(WriteClass::Fresh, 10, &fresh).unwrap();
    rig.write(WriteClass::Overwrite, 50, &over).unwrap();
    rig.write(WriteClass::Append, 256 + 9, &append).unwrap();
    let mut expected = fresh;
    expected[40 * BLOCK_BYTES..56 * BLOCK_BYTES].copy_from_slice(&over);
    let check = |rig: &mut Rig<_>| {
        assert_eq!(rig.read(10, 200).as_ref(), Ok(&expected));
        assert_eq!(rig.read(256 + 9, 7).as_ref(), Ok(&sealed(256 + 9, &append)));
        assert_eq!(rig.read(256, 9), Ok(vec![0; 9 * BLOCK_BYTES]));
        assert_eq!(rig.read(256 + 16, 240), Ok(vec![0; 240 * BLOCK_BYTES]));
    };
    check(&mut rig);
    let mut rig = rig.reopen();
    check(&mut rig);
    rig.checkpoint();
    assert_eq!(rig.store.health().journal_used_bytes, 0);
    check(&mut rig);
    check(&mut rig.reopen());
}

#[test]
fn a_read_returns_the_checksums_that_were_written() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    let bytes = pattern(4, 3);
    rig.write(WriteClass::Overwrite, 7, &bytes).unwrap();
    let Ok(StoreReply::Data { data, checksums }) =
        rig.run(StoreRequest::Read { volume: VOLUME, lba: Lba(6), blocks: 5 })
    else {
        panic!("a read answers with data")
    };
    assert_eq!(checksums[0], codes::UNWRITTEN);
    assert_eq!(checksums[4], codes::UNWRITTEN);
    assert_eq!(
        checksums[1..4],
        codes::payload_checksums(VOLUME, Lba(7), &data.slice(BLOCK_BYTES, 3 * BLOCK_BYTES))
    );
}

#[test]
fn many_overwrites_go_round_the_journal_and_share_batches() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    let mut last = vec![0u64; 256];
    for round in 1..60u64 {
        let tokens: Vec<u64> = (0..32u64)
            .map(|at| {
                let lba = (round * 37 + at * 5) % 256;
                last[lba as usize] = round * 1000 + at;
                rig.submit(write_request(WriteClass::Overwrite, lba, &pattern(round * 1000 + at, 1)))
            })
            .collect();
        tokens.into_iter().for_each(|token| assert!(rig.wait(token).is_ok()));
    }
    let health = rig.store.health();
    assert!(health.checkpoints > 3, "{health:?}");
    assert!(health.batches < 60 * 32 / 4, "{health:?}");
    let check = |rig: &mut Rig<_>| {
        for (lba, version) in last.iter().enumerate() {
            let expected = if *version == 0 { vec![0; BLOCK_BYTES] } else { pattern(*version, 1) };
            assert_eq!(rig.read(lba as u64, 1), Ok(expected), "block {lba}");
        }
    };
    check(&mut rig);
    check(&mut rig.reopen());
}

#[test]
fn overlapping_writes_take_effect_in_order_of_submission() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    let tokens: Vec<u64> = (0..40u64)
        .map(|at| {
            let (class, blocks) =
                if at % 3 == 0 { (WriteClass::Fresh, 40) } else { (WriteClass::Overwrite, 12) };
            rig.submit(write_request(class, at % 7, &pattern(at, blocks)))
        })
        .collect();
    tokens.into_iter().for_each(|token| assert!(rig.wait(token).is_ok()));
    let mut expected = vec![0; 64 * BLOCK_BYTES];
    for at in 0..40u64 {
        let blocks = if at % 3 == 0 { 40 } else { 12 };
        let start = (at % 7) as usize * BLOCK_BYTES;
        expected[start..start + blocks * BLOCK_BYTES].copy_from_slice(&pattern(at, blocks));
    }
    assert_eq!(rig.read(0, 64), Ok(expected.clone()));
    rig.checkpoint();
    assert_eq!(rig.read(0, 64), Ok(expected));
}

#[test]
fn discarded_blocks_read_as_zeroes_and_take_new_data() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.write(WriteClass::Overwrite, 100, &pattern(2, 4)).unwrap();
    rig.discard(90, 40).unwrap();
    rig.write(WriteClass::Fresh, 95, &pattern(3, 20)).unwrap();
    let mut expected = pattern(1, 256);
    expected[90 * BLOCK_BYTES..130 * BLOCK_BYTES].fill(0);
    expected[95 * BLOCK_BYTES..115 * BLOCK_BYTES].copy_from_slice(&pattern(3, 20));
    assert_eq!(rig.read(0, 256).as_ref(), Ok(&expected));
    rig.checkpoint();
    assert_eq!(rig.reopen().read(0, 256), Ok(expected));
}

#[test]
fn a_freed_chunk_is_gone_and_its_slab_shows_nothing_of_it_to_the_next() {
    let mut rig = new_rig();
    let slabs = rig.store.slab_count();
    for chunk in 0..slabs {
        rig.allocate(chunk, false);
    }
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.write(WriteClass::Overwrite, 3, &pattern(2, 1)).unwrap();
    let more = |chunk| StoreRequest::AllocateChunk {
        volume: VOLUME,
        epoch: EPOCH,
        chunk: ChunkIndex(chunk),
        append: false,
    };
    assert_eq!(rig.run(more(slabs)).unwrap_err(), StoreError::NoSpace);
    rig.run(StoreRequest::FreeChunk { volume: VOLUME, epoch: EPOCH, chunk: ChunkIndex(0) }).unwrap();
    assert_eq!(rig.read(0, 1), Err(StoreError::NotMapped));
    rig.run(more(slabs)).unwrap();
    assert_eq!(rig.read(u64::from(slabs) * 256, 256), Ok(vec![0; 256 * BLOCK_BYTES]));
    let mut rig = rig.reopen();
    assert_eq!(rig.read(u64::from(slabs) * 256, 256), Ok(vec![0; 256 * BLOCK_BYTES]));
    assert_eq!(rig.read(0, 1), Err(StoreError::NotMapped));
    assert_eq!(rig.store.free_slabs(), 0);
}

#[test]
fn a_promise_refuses_older_epochs_and_survives_a_restart() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(9) }).unwrap();
    let mut rig = rig.reopen();
    assert_eq!(rig.store.promised(VOLUME), Epoch(9));
    let fenced = StoreError::Fenced { promised: Epoch(9) };
    let old = Epoch(8);
    let refused = [
        write_request_at(old, WriteClass::Overwrite, 0, &pattern(1, 1)),
        StoreRequest::AllocateChunk { volume: VOLUME, epoch: old, chunk: ChunkIndex(4), append: false },
        StoreRequest::FreeChunk { volume: VOLUME, epoch: old, chunk: ChunkIndex(0) },
        StoreRequest::Discard { volume: VOLUME, stamp: old.into(), lba: Lba(0), blocks: 1 },
        StoreRequest::Promise { volume: VOLUME, epoch: old },
    ];
    for request in refused {
        assert_eq!(rig.run(request).unwrap_err(), fenced);
    }
    assert!(rig.run(write_request_at(Epoch(9), WriteClass::Overwrite, 0, &pattern(1, 1))).is_ok());
    assert!(rig.run(write_request_at(Epoch(12), WriteClass::Overwrite, 0, &pattern(1, 1))).is_ok());
    rig.checkpoint();
    assert_eq!(rig.reopen().store.promised(VOLUME), Epoch(9));
}

#[test]
fn a_promise_is_answered_after_every_write_admitted_before_it() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.allocate(1, true);
    rig.write(WriteClass::Append, 256, &pattern(1, 1)).unwrap();
    let writes = [
        rig.submit(write_request(WriteClass::Overwrite, 0, &pattern(1, 1))),
        rig.submit(write_request(WriteClass::Append, 256, &pattern(2, 1))),
        rig.submit(write_request(WriteClass::Fresh, 20, &pattern(3, 1))),
    ];
    let promise = rig.submit(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(4) });
    rig.wait(promise).unwrap();
    let seen = [rig.read(0, 1), rig.read(256, 1), rig.read(20, 1)];
    rig.run_until_idle();
    for (token, before) in writes.into_iter().zip(&seen) {
        match rig.answers.remove(&token).expect("each write is answered") {
            Ok(_) => {}
            Err(StoreError::Fenced { .. }) => assert_eq!(before.as_ref(), Ok(&vec![0; BLOCK_BYTES])),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(
        [rig.read(0, 1), rig.read(256, 1), rig.read(20, 1)],
        seen,
        "nothing changes after the promise"
    );
}

#[test]
fn regions_carry_the_epoch_of_their_last_change() {
    let disk =
        format(crash_disk(40 << 20), FormatParameters { slab_bytes: Some(4 << 20), ..small() }).unwrap();
    let mut rig = Rig::open(disk);
    rig.allocate(0, false);
    rig.allocate(1, true);
    let none = Epoch(0);
    assert_eq!(rig.regions(0), vec![none; 4]);
    rig.run(write_request_at(Epoch(5), WriteClass::Overwrite, 255, &pattern(1, 2))).unwrap();
    rig.run(write_request_at(Epoch(6), WriteClass::Fresh, 600, &pattern(1, 100))).unwrap();
    rig.run(write_request_at(Epoch(7), WriteClass::Append, 1024 + 300, &pattern(1, 2))).unwrap();
    let mut rig = rig.reopen();
    assert_eq!(rig.regions(0), [Epoch(5), Epoch(5), Epoch(6), none]);
    assert_eq!(rig.regions(1), [none, Epoch(7), none, none]);
    rig.run(StoreRequest::Discard { volume: VOLUME, stamp: Epoch(8).into(), lba: Lba(255), blocks: 1 })
        .unwrap();
    rig.run(write_request_at(Epoch(9), WriteClass::Append, 1024 + 300, &pattern(2, 2))).unwrap();
    rig.checkpoint();
    let mut rig = rig.reopen();
    assert_eq!(rig.regions(0), [Epoch(8), Epoch(5), Epoch(6), none]);
    assert_eq!(rig.regions(1), [none, Epoch(9), none, none]);
    assert_eq!(rig.read(1024 + 300, 2), Ok(sealed(1024 + 300, &pattern(2, 2))));
}

#[test]
fn records_are_replaced_whole_and_survive() {
    let mut rig = new_rig();
    assert!(rig.store.records().is_empty());
    for round in 1..4u8 {
        rig.run(StoreRequest::SetRecords { records: vec![round; 100_000] }).unwrap();
        rig = rig.reopen();
        assert_eq!(rig.store.records(), vec![round; 100_000]);
    }
    let too_large = rig.run(StoreRequest::SetRecords { records: vec![0; (256 << 10) + 1] });
    assert!(matches!(too_large, Err(StoreError::Invalid(_))));
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.allocate(1, true);
    let mut wrong = write_request(WriteClass::Overwrite, 0, &pattern(1, 2));
    if let StoreRequest::Write { checksums, .. } = &mut wrong {
        checksums[1] ^= 1;
    }
    let refused = [
        wrong,
        write_request(WriteClass::Overwrite, 0, &pattern(1, 17)),
        write_request(WriteClass::Overwrite, 250, &pattern(1, 10)),
        write_request(WriteClass::Overwrite, 256, &pattern(1, 1)),
        write_request(WriteClass::Append, 0, &pattern(1, 1)),
        write_request(WriteClass::Fresh, 0, &pattern(1, 1)[..100]),
        write_request(WriteClass::Fresh, 0, &[]),
        StoreRequest::Read { volume: VOLUME, lba: Lba(0), blocks: 0 },
        StoreRequest::Read { volume: VOLUME, lba: Lba(0), blocks: u32::MAX },
        StoreRequest::Read { volume: VOLUME, lba: Lba(u64::MAX), blocks: 1 },
        StoreRequest::Discard { volume: VOLUME, stamp: EPOCH.into(), lba: Lba(0), blocks: u32::MAX },
    ];
    for request in refused {
        let text = format!("{request:?}");
        let answer = rig.run(request);
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{text}: {answer:?}");
    }
    assert_eq!(rig.read(512, 1), Err(StoreError::NotMapped));
    assert_eq!(rig.read(0, 256), Ok(vec![0; 256 * BLOCK_BYTES]));
}

#[test]
fn a_store_that_trusts_checksums_takes_no_wrong_ones_into_its_journal_and_returns_nothing_that_they_do_not_fit()
 {
    let disk = format(crash_disk(16 << 20), small()).unwrap();
    let options = StoreOptions { verify_writes: false, ..small_options() };
    let mut rig = Rig::new(Store::open_with(disk, options).unwrap());
    rig.allocate(0, false);
    let wrong = |class, lba, blocks| {
        let mut wrong = write_request(class, lba, &pattern(1, blocks));
        if let StoreRequest::Write { checksums, .. } = &mut wrong {
            checksums[3] ^= 1;
        }
        wrong
    };
    for (class, blocks) in [(WriteClass::Overwrite, 16), (WriteClass::Fresh, 7)] {
        assert!(matches!(rig.run(wrong(class, 0, blocks)), Err(StoreError::Invalid(_))));
    }
    assert!(rig.run(wrong(WriteClass::Fresh, 40, 16)).is_ok());
    assert_eq!(rig.read(40, 16), Err(StoreError::Corrupt { lbas: vec![Lba(43)] }));
    assert_eq!(rig.read(40, 3), Ok(pattern(1, 16)[..3 * BLOCK_BYTES].to_vec()));
    let mut short = write_request(WriteClass::Fresh, 60, &pattern(1, 16));
    if let StoreRequest::Write { checksums, .. } = &mut short {
        checksums.pop();
    }
    assert!(matches!(rig.run(short), Err(StoreError::Invalid(_))));
}

#[test]
fn fresh_writes_from_32_kib_on_are_written_once_also_where_they_are_alone_or_hold_something() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    for version in 1..=3 {
        let before = rig.store.health();
        let bytes = pattern(version, 8);
        rig.write(WriteClass::Fresh, 16, &bytes).unwrap();
        let after = rig.store.health();
        assert_eq!(after.written.in_place - before.written.in_place, 8 * BLOCK_BYTES as u64);
        assert_eq!(after.overlay_blocks, 0);
        let mut again = rig.reopen();
        assert_eq!(again.read(16, 8), Ok(bytes));
        rig = again;
    }
}

#[test]
fn blocks_whose_checksums_are_not_in_ram_are_read_beside_them_and_every_race_is_told() {
    let (old, new) = (pattern(1, 40), pattern(2, 40));
    for (class, write_first) in [
        (WriteClass::Overwrite, false),
        (WriteClass::Overwrite, true),
        (WriteClass::Fresh, false),
        (WriteClass::Fresh, true),
    ] {
        let mut rig = new_rig();
        rig.allocate(0, false);
        rig.write(WriteClass::Fresh, 0, &old).unwrap();
        rig.checkpoint();
        let mut rig = rig.reopen();
        let blocks = if class == WriteClass::Overwrite { 16 } else { 40 };
        let read = |rig: &mut Rig<_>| {
            rig.submit(StoreRequest::Read { volume: VOLUME, lba: Lba(0), blocks: blocks as u32 })
        };
        let write = |rig: &mut Rig<_>| rig.submit(write_request(class, 0, &new[..blocks * BLOCK_BYTES]));
        let submitted = rig.store.disk_mut().submitted_operations();
        let tokens = if write_first {
            [write(&mut rig), read(&mut rig)]
        } else {
            let first = read(&mut rig);
            // The page and the blocks.
            assert_eq!(rig.store.disk_mut().submitted_operations(), submitted + 2);
            [first, write(&mut rig)]
        };
        for token in tokens {
            let Ok(StoreReply::Data { data, .. }) = rig.wait(token) else { continue };
            let data = data.contiguous();
            for (at, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
                let range = at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES;
                let withdrawn = class == WriteClass::Fresh && block.iter().all(|byte| *byte == 0);
                assert!(block == &old[range.clone()] || block == &new[range] || withdrawn, "block {at}");
            }
        }
        assert!(rig.read(0, blocks as u32).unwrap() == new[..blocks * BLOCK_BYTES]);
        assert_eq!(rig.store.health().corrupt_blocks, 0);
    }
}

#[test]
fn a_disk_that_holds_anything_is_formatted_by_force_only() {
    let disk = crash_disk(16 << 20);
    disk.poke(1080, b"\x53\xEF");
    assert_eq!(format(disk.clone(), small()).err(), Some(FormatError::Foreign("an ext2/3/4 file system")));
    assert_eq!(Store::open(disk.clone()).err(), Some(OpenError::Foreign("an ext2/3/4 file system")));
    assert_eq!(disk.peek(1080, 2), b"\x53\xEF");
    let formatted = format(disk, FormatParameters { force: true, ..small() }).unwrap();
    assert_eq!(
        format(formatted.clone(), small()).err(),
        Some(FormatError::InUse { disk: common::DISK, pool: POOL })
    );
    assert!(Store::open(formatted).is_ok());
}

#[test]
fn disks_that_are_not_ours_are_refused_untouched() {
    assert_eq!(Store::open(crash_disk(16 << 20)).err(), Some(OpenError::Blank));
    let disk = format(crash_disk(16 << 20), small()).unwrap();
    let other = PoolId::from_bytes([1; 16]);
    let options = StoreOptions { pool: Some(other), ..small_options() };
    assert_eq!(Store::open_with(disk, options).err(), Some(OpenError::OtherPool { found: POOL }));
    assert!(matches!(format(crash_disk(3 << 20), small()), Err(FormatError::TooSmall { .. })));
}

#[test]
fn one_volume_does_not_see_another() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.write(WriteClass::Overwrite, 0, &pattern(1, 1)).unwrap();
    let other = VolumeId::from_bytes([2; 16]);
    let read = StoreRequest::Read { volume: other, lba: Lba(0), blocks: 1 };
    assert_eq!(rig.run(read).unwrap_err(), StoreError::NotMapped);
    let _ = DiskId::from_bytes([0; 16]);
}

#[test]
fn a_scrub_reads_everything_and_goes_on_where_it_stopped() {
    let mut rig = new_rig();
    for chunk in 0..3 {
        rig.allocate(chunk, chunk == 1);
    }
    rig.write(WriteClass::Fresh, 0, &pattern(1, 256)).unwrap();
    rig.write(WriteClass::Fresh, 512, &pattern(2, 200)).unwrap();
    let scrub = |rig: &mut Rig<_>| match rig.run(StoreRequest::Scrub { bytes: 1 << 20 }) {
        Ok(StoreReply::Scrubbed(progress)) => progress,
        other => panic!("{other:?}"),
    };
    let first = scrub(&mut rig);
    assert_eq!((first.checked_bytes, first.total_bytes, first.finished), (1 << 20, 3 << 20, false));
    rig.checkpoint();
    let mut rig = rig.reopen();
    for finished in [false, true] {
        let next = scrub(&mut rig);
        assert_eq!((next.checked_bytes, next.finished), (1 << 20, finished));
        assert!(next.corrupt.is_empty());
    }
}

/// Replay merges the changes of many records of the same blocks.
#[test]
fn blocks_written_fresh_again_and_again_replay_to_their_last_state() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    for round in 0..12 {
        rig.write(WriteClass::Fresh, 0, &pattern(round, 200)).unwrap();
        rig.discard(0, 200).unwrap();
    }
    rig.write(WriteClass::Fresh, 0, &pattern(99, 150)).unwrap();
    assert_eq!(rig.store.health().checkpoints, 0, "all of it is in the journal");
    let mut rig = rig.reopen();
    assert_eq!(rig.read(0, 150), Ok(pattern(99, 150)));
    assert_eq!(rig.read(150, 106), Ok(vec![0; 106 * BLOCK_BYTES]));
    assert_eq!(rig.regions(0), [EPOCH]);
}

#[test]
fn a_small_fresh_write_that_is_alone_waits_for_one_durable_write_and_no_flush() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    let before = rig.store.health();
    let bytes = pattern(1, 4);
    rig.write(WriteClass::Fresh, 10, &bytes).unwrap();
    let after = rig.store.health();
    assert_eq!(after.flushes, before.flushes);
    assert_eq!(after.batches, before.batches + 1);
    assert_eq!(after.written.in_place, before.written.in_place);
    assert_eq!(rig.read(10, 4).as_ref(), Ok(&bytes));
    let mut rig = rig.reopen();
    assert_eq!(rig.read(10, 4).as_ref(), Ok(&bytes));
    rig.checkpoint();
    assert_eq!(rig.read(10, 4), Ok(bytes));
}

#[test]
fn small_fresh_writes_beside_each_other_share_a_flush_and_are_written_once() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    let before = rig.store.health();
    let bytes = pattern(1, 1);
    let tokens: Vec<u64> =
        (0..8).map(|at| rig.submit(write_request(WriteClass::Fresh, at * 3, &bytes))).collect();
    tokens.into_iter().for_each(|token| assert!(rig.wait(token).is_ok()));
    let after = rig.store.health();
    assert_eq!(after.written.in_place - before.written.in_place, 8 * BLOCK_BYTES as u64);
    assert!(after.flushes > before.flushes);
    assert!(after.batches - before.batches < 8);
}

#[test]
fn a_promise_to_a_volume_that_is_gone_is_forgotten_for_good_and_makes_room_for_another() {
    let volume = |number: u64| {
        let mut bytes = [9; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        VolumeId::from_bytes(bytes)
    };
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(9) }).unwrap();
    assert!(rig.run(StoreRequest::Forget { volume: VOLUME }).is_err(), "it has a chunk here");
    let places = 10_240 - 1;
    let promise = |number: u64| StoreRequest::Promise { volume: volume(number), epoch: Epoch(5) };
    let promised: Vec<u64> = (0..places).map(|number| rig.submit(promise(number))).collect();
    promised.into_iter().for_each(|token| assert!(rig.wait(token).is_ok()));
    let more = StoreRequest::Promise { volume: volume(places), epoch: Epoch(1) };
    assert!(rig.run(more).is_err(), "the table is full");
    rig.checkpoint();
    rig.run(StoreRequest::Forget { volume: volume(7) }).unwrap();
    assert!(rig.run(StoreRequest::Forget { volume: volume(7) }).is_err(), "nothing is known of it");
    let stale = StoreRequest::Promise { volume: volume(7), epoch: Epoch(5) };
    assert!(matches!(rig.run(stale), Err(StoreError::Fenced { .. })), "its owner may not come back");
    let allocate = StoreRequest::AllocateChunk {
        volume: volume(7),
        epoch: Epoch(5),
        chunk: ChunkIndex(0),
        append: false,
    };
    assert!(matches!(rig.run(allocate), Err(StoreError::Fenced { .. })));
    rig.run(StoreRequest::Promise { volume: volume(places), epoch: Epoch(1) }).unwrap();
    for checkpointed in [false, true] {
        if checkpointed {
            rig.checkpoint();
        }
        rig = rig.reopen();
        assert_eq!(rig.store.promised(volume(7)), Epoch(0));
        assert_eq!(rig.store.promised(volume(8)), Epoch(5));
        assert_eq!(rig.store.promised(volume(places)), Epoch(1));
        assert_eq!(rig.store.promised(VOLUME), Epoch(9));
        assert_eq!(rig.store.promises().len(), 10_240);
    }
}

#[test]
fn a_promise_that_no_owner_can_come_to_is_forgotten_with_its_fence_for_good() {
    let mut rig = new_rig();
    rig.allocate(0, false);
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(4_294_967_000) }).unwrap();
    let promise = || StoreRequest::Promise { volume: VOLUME, epoch: Epoch(9) };
    assert!(matches!(rig.run(promise()), Err(StoreError::Fenced { .. })));
    rig.run(StoreRequest::Unpromise { volume: VOLUME }).unwrap();
    assert_eq!(rig.store.promised(VOLUME), Epoch(0));
    for checkpointed in [false, true] {
        if checkpointed {
            rig.checkpoint();
        }
        rig = rig.reopen();
        assert_eq!((rig.store.promised(VOLUME), rig.store.chunks().len()), (Epoch(0), 1), "{checkpointed}");
    }
    assert!(rig.run(StoreRequest::Unpromise { volume: VOLUME }).is_err(), "nothing is promised");
    rig.run(promise()).unwrap();
    rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(4_294_967_000) }).unwrap();
    rig.run(StoreRequest::Unpromise { volume: VOLUME }).unwrap();
    rig.run(promise()).expect("its owner is taken without a new start");
    assert!(matches!(
        rig.run(StoreRequest::Promise { volume: VOLUME, epoch: Epoch(8) }),
        Err(StoreError::Fenced { .. })
    ));
}
