use super::*;

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[test]
fn bytes_written_are_read_back_with_zeroes_between() {
    let mut bench = Bench::new(8);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    bench.write(stream, 10_000, b"hello").unwrap();
    assert_eq!(bench.read(stream, 9_998, 100).unwrap(), b"\0\0hello");
    assert_eq!(bench.fs.attributes(id).unwrap().end_of_file, 10_005);
}

#[test]
fn flushed_data_survives_a_power_cut() {
    let mut bench = Bench::new(16);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    let bytes = pattern(1, 3_000_001);
    bench.write(stream, 0, &bytes).unwrap();
    bench.flush(id).unwrap();
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    assert_eq!(bench.run(|fs| fs.attributes(id)).unwrap().end_of_file, 3_000_001);
    assert!(bench.read(stream, 0, 4_000_000).unwrap() == bytes);
}

#[test]
fn a_durable_overwrite_in_the_middle_survives() {
    let mut bench = Bench::new(16);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    let mut bytes = pattern(1, 1 << 20);
    bench.write(stream, 0, &bytes).unwrap();
    bench.flush(id).unwrap();
    for (seed, offset, len) in [(2, 4096, 4096), (3, 100_001, 5000), (4, 300_000, 200_000)] {
        let new = pattern(seed, len);
        bytes[offset..offset + len].copy_from_slice(&new);
        bench.write_durably(stream, offset as u64, &new).unwrap();
    }
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    assert!(bench.read(stream, 0, 1 << 20).unwrap() == bytes);
}

#[test]
fn a_flush_of_very_many_scattered_blocks_leaves_none_behind() {
    let mut bench = Bench::new(32);
    let id = bench.create("scattered");
    let stream = StreamId::unnamed(id);
    bench.run(|fs| fs.set_end_of_file(stream, 16 << 20, FileTime(9))).unwrap();
    for block in 0..1500_u64 {
        bench.write(stream, block * 2 * 4096, &[block as u8 | 1; 4096]).unwrap();
    }
    // The last of them alone, while all the others wait for their turn too.
    bench.write_durably(stream, 1499 * 2 * 4096, &[77; 4096]).unwrap();
    bench.flush(id).unwrap();
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    for block in 0..1499_u64 {
        assert_eq!(bench.read(stream, block * 2 * 4096, 1).unwrap(), [block as u8 | 1]);
    }
    assert_eq!(bench.read(stream, 1499 * 2 * 4096, 1).unwrap(), [77]);
}

#[test]
fn a_stream_cut_off_and_grown_again_reads_as_zeroes() {
    let mut bench = Bench::new(16);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    bench.write(stream, 0, &pattern(1, 20_000)).unwrap();
    bench.flush(id).unwrap();
    bench.run(|fs| fs.set_end_of_file(stream, 5_000, FileTime(9))).unwrap();
    bench.flush(id).unwrap();
    bench.reopen();
    bench.run(|fs| fs.set_end_of_file(stream, 20_000, FileTime(9))).unwrap();
    bench.flush(id).unwrap();
    bench.reopen();
    let mut expected = pattern(1, 20_000);
    expected[5_000..].fill(0);
    assert!(bench.read(stream, 0, 30_000).unwrap() == expected);
}

#[test]
fn a_full_volume_refuses_before_it_acknowledges_and_has_room_again_after_a_removal() {
    let mut bench = Bench::with(8, 256, small());
    let id = bench.create("big");
    let stream = StreamId::unnamed(id);
    let mut written = 0;
    let refused = loop {
        match bench.write(stream, written, &pattern(written, 65_536)) {
            Ok(()) => written += 65_536,
            Err(error) => break error,
        }
        assert!(written < 16 << 20, "more was taken than there is");
    };
    assert_eq!(refused, FsError::NoSpace);
    assert!(written >= 5 << 20, "only {written} bytes were taken");
    bench.flush(id).unwrap();
    bench.reopen();
    for at in (0..written).step_by(65_536) {
        assert!(bench.read(stream, at, 65_536).unwrap() == pattern(at, 65_536));
    }
    bench.run(|fs| fs.unlink(FileId::ROOT, &wide("big"), FileTime(9))).unwrap();
    bench.run(|fs| fs.reclaim(id)).unwrap();
    bench.sleep(Duration::from_secs(10));
    let other = bench.create("other");
    bench.write(StreamId::unnamed(other), 0, &pattern(7, 4 << 20)).unwrap();
    bench.flush(other).unwrap();
    assert!(bench.read(StreamId::unnamed(other), 0, 4 << 20).unwrap() == pattern(7, 4 << 20));
}

#[test]
fn clones_share_blocks_until_one_of_them_is_written() {
    let mut bench = Bench::new(16);
    let (one, two) = (bench.create("one"), bench.create("two"));
    let (source, target) = (StreamId::unnamed(one), StreamId::unnamed(two));
    let bytes = pattern(1, 1 << 20);
    bench.write(source, 0, &bytes).unwrap();
    bench.flush(one).unwrap();
    bench.sleep(Duration::from_secs(5));
    let before = bench.fs.statistics().available_bytes;
    bench.run(|fs| fs.set_end_of_file(target, 1 << 20, FileTime(9))).unwrap();
    bench.run(|fs| fs.clone_range(source, 0, target, 0, 1 << 20, FileTime(9))).unwrap();
    bench.flush_all().unwrap();
    assert_eq!(bench.fs.statistics().available_bytes, before, "a clone takes no room");
    bench.write(target, 8192, b"changed").unwrap();
    bench.flush_all().unwrap();
    bench.reopen();
    assert!(bench.read(source, 0, 1 << 20).unwrap() == bytes);
    let mut changed = bytes.clone();
    changed[8192..8199].copy_from_slice(b"changed");
    assert!(bench.read(target, 0, 1 << 20).unwrap() == changed);
    bench.run(|fs| fs.unlink(FileId::ROOT, &wide("one"), FileTime(9))).unwrap();
    bench.run(|fs| fs.reclaim(one)).unwrap();
    bench.flush_all().unwrap();
    assert!(bench.read(target, 0, 1 << 20).unwrap() == changed);
}

#[test]
fn punched_holes_read_as_zeroes_and_are_not_listed_as_allocated() {
    let mut bench = Bench::new(16);
    let id = bench.create("sparse");
    let stream = StreamId::unnamed(id);
    bench.run(|fs| fs.set_sparse(id, true, FileTime(9))).unwrap();
    let mut bytes = pattern(1, 100_000);
    bench.write(stream, 0, &bytes).unwrap();
    bench.flush(id).unwrap();
    bench.run(|fs| fs.zero_range(stream, 5_000, 50_000, FileTime(9))).unwrap();
    bytes[5_000..55_000].fill(0);
    assert!(bench.read(stream, 0, 100_000).unwrap() == bytes);
    let ranges = bench.run(|fs| fs.allocated_ranges(stream, 0, 100_000, 10)).unwrap();
    assert_eq!(ranges, [(0, 8192), (53_248, 100_000 - 53_248)]);
    bench.flush(id).unwrap();
    bench.reopen();
    assert!(bench.read(stream, 0, 100_000).unwrap() == bytes);
}

#[test]
fn what_is_allocated_ahead_reads_as_zeroes_and_takes_writes() {
    let mut bench = Bench::new(16);
    let id = bench.create("ahead");
    let stream = StreamId::unnamed(id);
    bench.run(|fs| fs.set_allocation(stream, 3 << 20, FileTime(9))).unwrap();
    assert_eq!(bench.fs.attributes(id).unwrap().allocation_bytes, 3 << 20);
    bench.write(stream, 1 << 20, &pattern(3, 100_000)).unwrap();
    bench.flush(id).unwrap();
    bench.reopen();
    let mut expected = vec![0; (1 << 20) + 100_000];
    expected[1 << 20..].copy_from_slice(&pattern(3, 100_000));
    assert!(bench.read(stream, 0, 4 << 20).unwrap() == expected);
}
