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
    let found = bench.run(|fs| fs.allocated_ranges(stream, 0, 100_000, 10)).unwrap();
    assert_eq!(found, (vec![(0, 8192), (53_248, 100_000 - 53_248)], false));
    let found = bench.run(|fs| fs.allocated_ranges(stream, 0, 100_000, 1)).unwrap();
    assert_eq!(found, (vec![(0, 8192)], true), "there is more");
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

/// Counts the blocks that are written, overwrites and fresh ones apart.
struct CountedWrites(SharedDisk, Rc<Cell<(usize, usize)>>);

impl VirtualDisk for CountedWrites {
    fn size(&self) -> SpaceSize {
        self.0.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        if let SpaceRequest::Write { class, data, .. } = &request {
            let (mut overwritten, mut fresh) = self.1.get();
            match class {
                WriteClass::Overwrite => overwritten += data.len() / 4096,
                WriteClass::Fresh => fresh += data.len() / 4096,
                WriteClass::Append => {}
            }
            self.1.set((overwritten, fresh));
        }
        self.0.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.0.poll(out);
    }
}

#[test]
fn overwrites_from_32_kib_on_take_new_blocks_beside_others_and_from_64_kib_on_alone() {
    let mut bench = Bench::new(16);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    let mut bytes = pattern(1, 1 << 20);
    bench.write(stream, 0, &bytes).unwrap();
    bench.flush_all().unwrap();
    let counted = Rc::new(Cell::new((0, 0)));
    let config = *bench.fs.config();
    bench.fs = FileSystem::open(Box::new(CountedWrites(bench.disk.clone(), counted.clone())), config);
    bench.wait_opened();
    let allocated = bench.fs.stream_information(stream).unwrap().allocation_bytes;
    let mut write = |bench: &mut Bench, block: usize, blocks: usize| {
        let new = pattern((block + blocks) as u64, blocks * 4096);
        bytes[block * 4096..][..new.len()].copy_from_slice(&new);
        bench.write(stream, block as u64 * 4096, &new).unwrap();
    };
    for (blocks, expected) in [(1, (1, 0)), (16, (16, 0)), (17, (0, 17)), (100, (0, 100))] {
        counted.set((0, 0));
        write(&mut bench, blocks, blocks);
        bench.flush(id).unwrap();
        assert_eq!(counted.get(), expected, "{blocks} blocks alone");
    }
    for (blocks, expected) in [(7, (28, 0)), (8, (0, 32)), (16, (0, 64))] {
        counted.set((0, 0));
        (0..4).for_each(|nth| write(&mut bench, nth * 40, blocks));
        bench.flush(id).unwrap();
        // The last one is alone when its turn comes.
        let (overwritten, fresh) = counted.get();
        assert_eq!(overwritten + fresh, 4 * blocks);
        assert!(
            fresh <= expected.1 && fresh + blocks >= expected.1,
            "4 times {blocks} blocks: {fresh} fresh"
        );
    }
    bench.flush_all().unwrap();
    assert_eq!(bench.fs.stream_information(stream).unwrap().allocation_bytes, allocated);
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    assert!(bench.read(stream, 0, 1 << 20).unwrap() == bytes);
}

/// Counts the blocks of data that are read.
struct Counted(SharedDisk, Rc<Cell<u64>>);

impl VirtualDisk for Counted {
    fn size(&self) -> SpaceSize {
        self.0.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        // Superblocks and journal are read when the volume is opened.
        if let SpaceRequest::Read { lba, blocks, .. } = &request
            && lba.0 >= u64::from(self.size().chunk_blocks)
        {
            self.1.set(self.1.get() + u64::from(*blocks));
        }
        self.0.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.0.poll(out);
    }
}

/// Reads a stream from end to end, `depth` requests at a time, over a disk that answers a few at a time and out of order. The bytes, and the blocks
/// that were read from the disk.
fn read_pipelined(bench: &mut Bench, stream: StreamId, len: u64, step: u32, depth: usize) -> (Vec<u8>, u64) {
    let blocks = Rc::new(Cell::new(0));
    let config = *bench.fs.config();
    bench.fs = FileSystem::open(Box::new(Counted(bench.disk.clone(), blocks.clone())), config);
    bench.wait_opened();
    bench.disk.1.set(Some(99));
    let mut bytes = vec![0; len as usize];
    let (mut next, mut under_way, mut events) = (0, 0, Vec::new());
    let mut place = |token: u64, result: Result<Payload, FsError>| {
        result.unwrap().copy_to(&mut bytes[token as usize * step as usize..]);
    };
    while next * u64::from(step) < len || under_way > 0 {
        while under_way < depth && next * u64::from(step) < len {
            match bench.fs.read(next, stream, next * u64::from(step), step) {
                Poll::Ready(result) => place(next, result),
                Poll::Pending => under_way += 1,
            }
            next += 1;
        }
        bench.fs.poll(bench.now, &mut events);
        for event in events.drain(..) {
            if let FsEvent::Read { token, result } = event {
                under_way -= 1;
                place(token, result);
            }
        }
    }
    bench.disk.1.set(None);
    bench.disk.0.borrow_mut().hold(false);
    (bytes, blocks.get())
}

#[test]
fn a_sequential_reader_reads_each_block_from_the_disk_once() {
    let mut bench = Bench::new(40);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    let bytes = pattern(5, 8_000_001);
    bench.write(stream, 0, &bytes).unwrap();
    bench.flush(id).unwrap();
    for (step, depth) in [(1 << 20, 16), (65_536, 4), (4096, 32), (100_000, 3)] {
        let (read, blocks) = read_pipelined(&mut bench, stream, 8_000_001, step, depth);
        assert!(read == bytes, "{depth} reads of {step} bytes at a time");
        assert_eq!(blocks, 8_000_001_u64.div_ceil(4096), "{depth} reads of {step} bytes at a time");
    }
}

#[test]
fn a_sequential_reader_gets_its_bytes_from_a_cache_that_holds_almost_nothing() {
    let mut bench = Bench::with(40, 256, Config { cache_bytes: 64 << 10, ..small() });
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    let bytes = pattern(5, 5_000_001);
    for (at, part) in bytes.chunks(20_000).enumerate() {
        bench.write(stream, at as u64 * 20_000, part).unwrap();
    }
    bench.flush(id).unwrap();
    let (read, _) = read_pipelined(&mut bench, stream, 5_000_001, 65_536, 16);
    assert!(read == bytes);
}

#[test]
fn readers_that_wait_for_the_same_blocks_are_all_told_of_an_error() {
    let mut bench = Bench::new(16);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    bench.write(stream, 0, &pattern(1, 1 << 20)).unwrap();
    bench.flush(id).unwrap();
    bench.reopen();
    assert_eq!(bench.read(stream, 0, 1).unwrap().len(), 1, "the map is in memory");
    bench.disk.0.borrow_mut().fail(Some(space::api::SpaceError::Unavailable));
    for token in 0..3 {
        assert!(bench.fs.read(token, stream, 500_000, 4096).is_pending());
    }
    let mut failed = Vec::new();
    for _ in 0..100 {
        bench.poll();
        for event in bench.events.drain(..) {
            if let FsEvent::Read { token, result: Err(FsError::Unavailable) } = event {
                failed.push(token);
            }
        }
    }
    failed.sort_unstable();
    assert_eq!(failed, [0, 1, 2]);
}

/// Writes files of these lengths and opens the volume anew, with an empty cache; the blocks that are read of the disk from then on.
fn write_and_reopen(bench: &mut Bench, files: &[(StreamId, u64)]) -> Rc<Cell<u64>> {
    for &(stream, len) in files {
        for at in (0..len).step_by(1 << 20) {
            bench.write(stream, at, &pattern(at | 1, 1 << 20)).unwrap();
        }
    }
    bench.flush_all().unwrap();
    let blocks = Rc::new(Cell::new(0));
    let config = *bench.fs.config();
    bench.fs = FileSystem::open(Box::new(Counted(bench.disk.clone(), blocks.clone())), config);
    bench.wait_opened();
    blocks
}

#[test]
fn one_pass_over_a_huge_file_leaves_in_the_cache_what_is_used_again_and_again() {
    let mut bench = Bench::with(40, 256, Config { cache_bytes: 4 << 20, ..small() });
    let (hot, huge) = (StreamId::unnamed(bench.create("hot")), StreamId::unnamed(bench.create("huge")));
    let blocks = write_and_reopen(&mut bench, &[(hot, 1 << 20), (huge, 24 << 20)]);
    let read_hot = |bench: &mut Bench| {
        for at in 0..256_u64 {
            assert_eq!(bench.read(hot, at * 83 % 256 * 4096, 4096).unwrap().len(), 4096);
        }
    };
    for _ in 0..2 {
        read_hot(&mut bench);
    }
    for at in (0..24 << 20).step_by(65_536) {
        bench.read(huge, at, 65_536).unwrap();
    }
    assert!(blocks.get() >= 25 * 256, "all of it was read");
    blocks.set(0);
    read_hot(&mut bench);
    assert_eq!(blocks.get(), 0, "blocks of the small file were read again");
    assert!(bench.fs.statistics().cache_bytes <= 4 << 20);
}

#[test]
fn reads_count_once_by_whether_a_disk_was_asked_and_no_further_than_the_file_reaches() {
    let mut bench = Bench::with(40, 256, small());
    let file = StreamId::unnamed(bench.create("file"));
    bench.write(file, 0, &pattern(1, 10_000)).unwrap();
    bench.flush_all().unwrap();
    bench.reopen();
    let counted = |bench: &Bench| {
        let found = bench.fs.statistics();
        (found.read_from_cache_bytes, found.read_from_disk_bytes)
    };
    assert_eq!(counted(&bench), (0, 0));
    assert_eq!(bench.read(file, 0, 1 << 20).unwrap().len(), 10_000);
    assert_eq!(counted(&bench), (0, 10_000), "pages of the map were missing, too: it counts once");
    assert_eq!(bench.read(file, 0, 1 << 20).unwrap().len(), 10_000);
    assert_eq!(bench.read(file, 8192, 100).unwrap().len(), 100);
    assert_eq!(bench.read(file, 10_000, 100).unwrap().len(), 0);
    assert_eq!(counted(&bench), (10_100, 10_000));
}

#[test]
fn what_comes_back_soon_after_it_went_stays() {
    let mut bench = Bench::with(40, 256, Config { cache_bytes: 4 << 20, ..small() });
    let [file, between, after] =
        ["file", "between", "after"].map(|name| StreamId::unnamed(bench.create(name)));
    let blocks = write_and_reopen(&mut bench, &[(file, 2 << 20), (between, 6 << 20), (after, 16 << 20)]);
    let read = |bench: &mut Bench, stream, len: u64| {
        for at in (0..len).step_by(65_536) {
            bench.read(stream, at, 65_536).unwrap();
        }
    };
    // Two sequential passes, with something larger between them: the second one protects it.
    read(&mut bench, file, 2 << 20);
    read(&mut bench, between, 6 << 20);
    read(&mut bench, file, 2 << 20);
    read(&mut bench, after, 16 << 20);
    blocks.set(0);
    read(&mut bench, file, 2 << 20);
    assert_eq!(blocks.get(), 0, "blocks were read a third time");
}

#[test]
fn cached_blocks_that_were_written_one_by_one_are_read_in_one_piece() {
    let mut bench = Bench::new(16);
    let id = bench.create("data");
    let stream = StreamId::unnamed(id);
    let mut bytes = pattern(1, 128 << 10);
    for (at, block) in bytes.chunks(4096).enumerate() {
        bench.write(stream, at as u64 * 4096, block).unwrap();
    }
    let parts = |bench: &mut Bench, offset, len_bytes| match bench.fs.read(1, stream, offset, len_bytes) {
        Poll::Ready(Ok(data)) => data.parts().len(),
        other => panic!("it is cached: {other:?}"),
    };
    // Blocks that are not stored yet stay apart.
    assert_eq!(parts(&mut bench, 0, 64 << 10), 16);
    bench.flush(id).unwrap();
    assert_eq!(parts(&mut bench, 100, 63 << 10), 1);
    assert_eq!(parts(&mut bench, 0, 64 << 10), 1);
    assert_eq!(parts(&mut bench, 64 << 10, 16 << 10), 4, "too few to be worth it");
    let new = pattern(2, 4096);
    bytes[8192..12_288].copy_from_slice(&new);
    bench.write(stream, 8192, &new).unwrap();
    assert_eq!(parts(&mut bench, 0, 64 << 10), 3);
    assert!(bench.read(stream, 0, 128 << 10).unwrap() == bytes);
    bench.flush(id).unwrap();
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    assert!(bench.read(stream, 0, 128 << 10).unwrap() == bytes);
}

/// A file of this many extents, each of one block, with a hole behind each.
fn in_pieces(bench: &mut Bench, name: &str, extents: u64) -> (FileId, StreamId) {
    let id = bench.create(name);
    let stream = StreamId::unnamed(id);
    bench.run(|fs| fs.set_sparse(id, true, FileTime(9))).unwrap();
    for number in 0..extents {
        bench.write(stream, number * 8192, &[1; 4096]).unwrap();
    }
    bench.flush(id).unwrap();
    (id, stream)
}

/// Runs an operation to its end. Returns the number of tries, and the most metadata that one examined.
fn tries(
    bench: &mut Bench,
    mut operation: impl FnMut(&mut FileSystem) -> Result<(), FsError>,
) -> (usize, u32) {
    let (mut tries, mut steps_max) = (0, 0);
    bench
        .run(|fs| {
            fs.take_steps();
            tries += 1;
            let result = operation(fs);
            steps_max = steps_max.max(fs.take_steps());
            result
        })
        .unwrap();
    (tries, steps_max)
}

#[test]
fn what_changes_many_extents_does_so_about_a_thousand_at_a_time() {
    const EXTENTS: u64 = 3500;
    const STEPS_MAX: u32 = 8000;
    let mut bench = Bench::new(64);
    let (_, zeroed) = in_pieces(&mut bench, "zeroed", EXTENTS);
    let (found, more) = bench.run(|fs| fs.allocated_ranges(zeroed, 0, u64::MAX, 10_000)).unwrap();
    assert_eq!((found.len() as u64, more), (EXTENTS, false));
    let (count, steps) = tries(&mut bench, |fs| fs.zero_range(zeroed, 4096, EXTENTS * 8192, FileTime(9)));
    assert!(count >= 4 && steps < STEPS_MAX, "{count} tries, {steps} steps");
    let (found, _) = bench.run(|fs| fs.allocated_ranges(zeroed, 0, u64::MAX, 10_000)).unwrap();
    assert_eq!(found, [(0, 4096)]);
    let (_, cut) = in_pieces(&mut bench, "cut", EXTENTS);
    let (count, steps) = tries(&mut bench, |fs| fs.set_end_of_file(cut, 4096, FileTime(9)));
    assert!(count >= 4 && steps < STEPS_MAX, "{count} tries, {steps} steps");
    assert_eq!(bench.read(cut, 0, 8192).unwrap(), [1; 4096]);
    let (_, filled) = in_pieces(&mut bench, "filled", EXTENTS);
    let (count, steps) = tries(&mut bench, |fs| fs.set_allocation(filled, EXTENTS * 8192, FileTime(9)));
    assert!(count >= 4 && steps < STEPS_MAX, "{count} tries, {steps} steps");
    let allocated = bench.run(|fs| fs.stream_information(filled)).unwrap().allocation_bytes;
    assert_eq!(allocated, EXTENTS * 8192);
}

#[test]
fn a_clone_of_many_extents_is_made_some_hundreds_at_a_time() {
    const EXTENTS: u64 = 2500;
    let len_bytes = EXTENTS * 8192 - 4096;
    let mut bench = Bench::new(64);
    let (_, source) = in_pieces(&mut bench, "source", EXTENTS);
    let target = StreamId::unnamed(bench.create("target"));
    bench.run(|fs| fs.set_end_of_file(target, len_bytes, FileTime(9))).unwrap();
    let extents_max = bench.fs.base.meta.journal.log.pieces_at_once() as u64 / 2;
    let (mut done, mut calls) = (0, 0);
    while done < len_bytes {
        let at = done;
        done += bench.run(|fs| fs.clone_range(source, at, target, at, len_bytes - at, FileTime(9))).unwrap();
        calls += 1;
    }
    assert_eq!(calls, EXTENTS.div_ceil(extents_max));
    let expected = bench.read(source, 0, len_bytes as u32).unwrap();
    assert!(bench.read(target, 0, len_bytes as u32).unwrap() == expected);
}

#[test]
fn a_file_has_a_bounded_number_of_named_streams() {
    let mut bench = Bench::new(64);
    let file = bench.create("file");
    for number in 0..NAMED_STREAMS_MAX {
        bench.run(|fs| fs.create_stream(file, &wide(&format!("s{number}")), FileTime(9))).unwrap();
    }
    let refused = bench.run(|fs| fs.create_stream(file, &wide("more"), FileTime(9)));
    assert_eq!(refused, Err(FsError::TooManyStreams));
    let stream = bench.run(|fs| fs.find_stream(file, &wide("s7"))).unwrap();
    bench.run(|fs| fs.unlink_stream(stream, FileTime(9))).unwrap();
    bench.run(|fs| fs.reclaim_stream(stream)).unwrap();
    bench.flush_all().unwrap();
    bench.run(|fs| fs.create_stream(file, &wide("more"), FileTime(9))).unwrap();
}
