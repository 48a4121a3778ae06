//! Images that were cloned and then overwritten in small pieces: the cost of deleting, cloning and
//! cutting them, and their state after a crash. Most of them are larger than the page cache.

use super::super::meta::Transaction;
use super::super::meta::key;
use super::super::meta::log::Log;
use super::super::meta::record::{ExtentRecord, SharedRecord};
use super::*;
use crate::fs::base::Unstored;
use crate::fs::data::put_sizes;
use crate::fs::layout::{JOURNAL_FIRST, Superblock};
use crate::fs::meta::journal::{BatchHeader, encode_batch, encode_transaction};

/// An image of this number of blocks, and a clone of it that has every other block of it: the rest of the clone was overwritten, and
/// given back. Made from metadata alone, some blocks in each transaction.
fn image(bench: &mut Bench, blocks: u64) -> (FileId, FileId) {
    let (one, two) = (bench.create("image"), bench.create("clone"));
    let (image, clone) = (StreamId::unnamed(one), StreamId::unnamed(two));
    for stream in [image, clone] {
        bench.run(|fs| fs.set_end_of_file(stream, blocks * 4096, FileTime(9))).unwrap();
    }
    bench.flush_all().unwrap();
    let mut at = 0;
    while at < blocks {
        at += bench
            .run(|fs| fs.base.ready_to_change().and_then(|()| share_some(fs, image, clone, at, blocks)))
            .unwrap();
        bench.poll();
    }
    bench.flush_all().unwrap();
    bench.reopen();
    (one, two)
}

/// Makes a clone of an image of this number of blocks, sharing all of them. The image is made from
/// metadata alone.
pub fn clone_of_an_image(bench: &mut Bench, blocks: u64) -> StreamId {
    let (image, clone) = (bench.create("image"), bench.create("clone"));
    let (image, clone) = (StreamId::unnamed(image), StreamId::unnamed(clone));
    for stream in [image, clone] {
        bench.run(|fs| fs.set_end_of_file(stream, blocks * 4096, FileTime(9))).unwrap();
    }
    bench.flush_all().unwrap();
    let mut at = 0;
    while at < blocks {
        let some = |fs: &mut FileSystem| -> Result<u64, FsError> {
            fs.base.ready_to_change()?;
            let run = fs.base.reserve(None, (blocks - at).min(256) as u32, Unstored::default())?;
            let mut txn = Transaction::new();
            txn.allocate(run);
            let extent = ExtentRecord { lba: run.lba, blocks: run.blocks, shared: false, unwritten: false };
            txn.put(key::extent(image, at), extent.encode());
            put_sizes(&mut fs.base, &mut txn, image, blocks * 4096, i64::from(run.blocks))?;
            fs.base.record(txn);
            Ok(u64::from(run.blocks))
        };
        at += bench.run(some).unwrap();
        bench.poll();
    }
    bench.flush_all().unwrap();
    bench.reopen();
    let (mut at, len_bytes) = (0, blocks * 4096);
    while at < len_bytes {
        at += bench.run(|fs| fs.clone_range(image, at, clone, at, len_bytes - at, FileTime(9))).unwrap();
    }
    clone
}

fn share_some(
    fs: &mut FileSystem,
    image: StreamId,
    clone: StreamId,
    at: u64,
    blocks: u64,
) -> Result<u64, FsError> {
    let run = fs.base.reserve(None, (blocks - at).min(256) as u32, Unstored::default())?;
    let mut txn = Transaction::new();
    txn.allocate(run);
    let extent = ExtentRecord { lba: run.lba, blocks: run.blocks, shared: true, unwritten: false };
    txn.put(key::extent(image, at), extent.encode());
    let mut shared = 0;
    for skip in (1..u64::from(run.blocks)).step_by(2) {
        let lba = Lba(run.lba.0 + skip);
        txn.put(key::extent(clone, at + skip), ExtentRecord { lba, blocks: 1, ..extent }.encode());
        txn.put(key::shared(lba), SharedRecord { blocks: 1, references: 2 }.encode());
        shared += 1;
    }
    put_sizes(&mut fs.base, &mut txn, image, blocks * 4096, i64::from(run.blocks))?;
    put_sizes(&mut fs.base, &mut txn, clone, blocks * 4096, shared)?;
    fs.base.record(txn);
    Ok(u64::from(run.blocks))
}

/// Limits of an operation's cost: no poll takes more than some milliseconds; all together take a few
/// lookups for each piece, and read each page a few times at most.
struct Bounds {
    lookups: u64,
    reads: u64,
}

/// Lookups of one poll or try at most.
const LOOKUPS_AT_ONCE: u32 = 20_000;

impl Bounds {
    fn linear(pieces: u64, pages: u64) -> Self {
        Self { lookups: 16 * pieces, reads: 3 * pages }
    }

    /// Polls until an operation is done, or everything is reclaimed, and checks the limits after each poll:
    /// a quadratic operation would run for minutes before it ended.
    fn hold(&self, bench: &mut Bench, mut is_done: impl FnMut(&mut FileSystem) -> Result<bool, FsError>) {
        bench.fs.take_steps();
        let reads_before = bench.disk.2.borrow().reads;
        let mut lookups = 0;
        for _ in 0..100_000 {
            let done = is_done(&mut bench.fs);
            for polls in [false, true] {
                if polls {
                    bench.poll();
                }
                let steps = bench.fs.take_steps();
                assert!(steps < LOOKUPS_AT_ONCE, "{steps} lookups in one go");
                lookups += u64::from(steps);
            }
            let reads = bench.disk.2.borrow().reads - reads_before;
            assert!(lookups < self.lookups, "{lookups} lookups, of {} at most", self.lookups);
            assert!(reads < self.reads, "{reads} reads of pages, of {} at most", self.reads);
            match done {
                Ok(true) => return,
                Ok(false) | Err(FsError::Miss) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it never ends");
    }
}

/// Number of chunks of 1024 blocks with space for an image. Larger chunks would make the journal
/// longer: a smaller image would be reclaimed before any of it is in the tree.
const LARGE_CHUNKS: u64 = 112;

fn pages(bench: &Bench) -> u64 {
    bench.fs.base.meta.allocator.pages.used_count()
}

fn remove(bench: &mut Bench, name: &str) {
    let gone = bench.run(|fs| fs.unlink(FileId::ROOT, &wide(name), FileTime(9))).unwrap();
    bench.run(|fs| fs.reclaim(gone.file)).unwrap();
}

#[test]
pub fn an_image_of_more_pieces_than_the_page_cache_holds_is_given_back_in_bounded_steps() {
    const BLOCKS: u64 = 64_000;
    let mut bench = Bench::with(LARGE_CHUNKS, 1024, small());
    image(&mut bench, BLOCKS);
    let pages = pages(&bench);
    assert!(pages > 128, "{pages} pages fit the cache, which holds 64");
    remove(&mut bench, "image");
    Bounds::linear(BLOCKS, pages).hold(&mut bench, |fs| Ok(fs.data.gives_nothing_back()));
    bench.check_clean();
    remove(&mut bench, "clone");
    bench.sleep(Duration::from_secs(5));
    bench.reopen();
    bench.check_clean();
}

#[test]
fn such_an_image_is_cloned_and_cut_off_in_bounded_steps() {
    const BLOCKS: u64 = 36_000;
    let mut bench = Bench::with(LARGE_CHUNKS, 1024, small());
    let (image, _) = image(&mut bench, BLOCKS);
    let (source, target) = (StreamId::unnamed(image), StreamId::unnamed(bench.create("second clone")));
    bench.run(|fs| fs.set_end_of_file(target, BLOCKS * 4096, FileTime(9))).unwrap();
    let (mut at, len_bytes) = (0, BLOCKS * 4096);
    let pages = pages(&bench);
    Bounds::linear(BLOCKS, pages).hold(&mut bench, |fs| {
        at += fs.clone_range(source, at, target, at, len_bytes - at, FileTime(9))?;
        Ok(at == len_bytes)
    });
    let bounds = Bounds::linear(BLOCKS, 2 * pages);
    bounds.hold(&mut bench, |fs| fs.set_end_of_file(source, 0, FileTime(9)).map(|()| true));
    let zeroed = 4096 * 3..len_bytes - 4096 * 3;
    let (offset, len_bytes) = (zeroed.start, zeroed.end - zeroed.start);
    bounds.hold(&mut bench, |fs| fs.zero_range(target, offset, len_bytes, FileTime(9)).map(|()| true));
    bench.check_clean();
}

#[test]
fn a_truncation_of_very_many_pieces_sets_the_end_first_and_goes_on_after_a_crash() {
    const BLOCKS: u64 = 16_000;
    let mut bench = Bench::with(LARGE_CHUNKS, 1024, small());
    let (image, _) = image(&mut bench, BLOCKS);
    let stream = StreamId::unnamed(image);
    let sizes = |bench: &mut Bench| bench.run(|fs| fs.stream_information(stream)).unwrap();
    let whole = sizes(&mut bench).allocation_bytes;
    // Until the first part is done.
    let first = loop {
        let result = bench.fs.set_end_of_file(stream, 3 * 4096 + 100, FileTime(9));
        assert!(matches!(result, Err(FsError::Miss)), "it takes several transactions: {result:?}");
        bench.poll();
        let now = sizes(&mut bench);
        if now.allocation_bytes < whole {
            break now;
        }
        assert_eq!(now.end_of_file, BLOCKS * 4096);
    };
    assert_eq!(first.end_of_file, 3 * 4096 + 100);
    bench.flush_all().unwrap();
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    let after = sizes(&mut bench);
    assert_eq!(after.end_of_file, 3 * 4096 + 100);
    assert!(after.allocation_bytes > 4 * 4096, "a part was given back");
    bench.check_clean();
    // The same once more gives the rest back.
    bench.run(|fs| fs.set_end_of_file(stream, 3 * 4096 + 100, FileTime(9))).unwrap();
    assert_eq!(sizes(&mut bench).allocation_bytes, 4 * 4096);
    bench.check_clean();
}

#[test]
pub fn a_volume_that_lost_its_power_after_a_change_of_very_many_pieces_opens_with_all_of_it() {
    const BLOCKS: u64 = 8_000;
    let mut bench = Bench::with(48, 256, Config::default());
    let (_, clone) = image(&mut bench, BLOCKS);
    remove(&mut bench, "image");
    bench.flush_all().unwrap();
    for name in ["one", "two", "three", "four", "five"] {
        bench.create(name);
        bench.flush_all().unwrap();
    }
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    for name in ["one", "five"] {
        bench.run(|fs| fs.lookup(FileId::ROOT, &wide(name))).unwrap();
    }
    let gone = bench.run(|fs| fs.lookup(FileId::ROOT, &wide("image")));
    assert!(matches!(gone, Err(FsError::NotFound)), "{gone:?}");
    let left = bench.run(|fs| fs.stream_information(StreamId::unnamed(clone))).unwrap();
    assert_eq!(left.allocation_bytes, BLOCKS / 2 * 4096);
    bench.check_clean();
}

#[test]
fn a_change_that_no_reader_would_take_fails_the_volume_and_is_not_written() {
    let mut bench = Bench::new(16);
    bench.create("before");
    bench.flush_all().unwrap();
    let mut txn = Transaction::new();
    for number in 0..200 {
        txn.put(key::object_id([number; 16]), vec![1; 3000]);
    }
    bench.fs.base.record(txn);
    bench.poll();
    assert!(matches!(bench.fs.lookup(FileId::ROOT, &wide("before")), Err(FsError::Corrupt { .. })));
    bench.reopen();
    assert!(bench.run(|fs| fs.lookup(FileId::ROOT, &wide("before"))).is_ok());
    bench.check_clean();
}

/// Writes a batch to the place of a journal where the next one is expected; the next place, number and chain.
fn put_batch(disk: &SharedDisk, header: &BatchHeader, block: u32, operations: &[u8]) -> (u32, u64, u64) {
    let lba = Lba(u64::from(JOURNAL_FIRST + block));
    let (data, chain) = encode_batch(header, 1000 + header.sequence, lba, operations);
    let blocks = (data.len() / ::types::BLOCK_BYTES) as u32;
    let mut disk = disk.0.borrow_mut();
    disk.submit(0, SpaceRequest::Write { lba, class: WriteClass::Append, data: data.into() });
    disk.poll(&mut Vec::new());
    (block + blocks, header.sequence + 1, chain)
}

#[test]
fn a_batch_longer_than_this_program_writes_is_replayed_if_it_fits_the_journal() {
    let mut bench = Bench::with(8, 4096, small());
    bench.create("before");
    bench.flush_all().unwrap();
    let head = bench.fs.base.meta.journal.log.head();
    let mut txn = Transaction::new();
    for number in 0..1050_u32 {
        let mut id = [7; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        txn.put(key::object_id(id), vec![1; 3000]);
    }
    let mut operations = Vec::new();
    encode_transaction(&txn, &mut operations);
    let (sequence, chain) = (head.sequence, head.chain);
    let header = BatchHeader {
        blocks: 0,
        operation_bytes: 0,
        volume: [7; 16],
        sequence,
        incarnation: 1,
        chain,
        acknowledged: sequence - 1,
    };
    let (end, sequence, chain) = put_batch(&bench.disk, &header, head.block, &operations);
    assert!(end - head.block > Log::batch_blocks_max(1024));
    // A later batch is not lost either.
    let mut operations = Vec::new();
    let mut txn = Transaction::new();
    txn.put(key::object_id([9; 16]), vec![2; 8]);
    encode_transaction(&txn, &mut operations);
    let header = BatchHeader { sequence, chain, acknowledged: sequence - 1, ..header };
    put_batch(&bench.disk, &header, end, &operations);
    bench.reopen();
    let found =
        bench.run(|fs| fs.base.meta.store.get(&Transaction::new(), &key::object_id([9; 16]))).unwrap();
    assert_eq!(found.map(|value| value.to_vec()), Some(vec![2; 8]));
}

#[test]
fn the_proof_that_a_batch_was_durable_is_found_however_far_an_older_program_wrote_it() {
    const FAR: u32 = 12_000;
    let mut bench = Bench::with(4, 65_536, small());
    bench.create("before");
    bench.flush_all().unwrap();
    let head = bench.fs.base.meta.journal.log.head();
    let header = BatchHeader {
        blocks: 0,
        operation_bytes: 0,
        volume: [7; 16],
        sequence: head.sequence + 3,
        incarnation: 1,
        chain: 5,
        acknowledged: head.sequence,
    };
    let mut operations = Vec::new();
    let mut txn = Transaction::new();
    txn.put(key::object_id([9; 16]), vec![2; 8]);
    encode_transaction(&txn, &mut operations);
    assert!(Log::batch_blocks_max(16_384) * 4 < FAR);
    put_batch(&bench.disk, &header, head.block + FAR, &operations);
    // A superblock as an older program writes it.
    let superblock: Superblock = bench.fs.base.checkpointer.superblock.unwrap();
    let superblock = Superblock { batch_blocks_max: None, sequence: superblock.sequence + 2, ..superblock };
    {
        let mut disk = bench.disk.0.borrow_mut();
        let data = superblock.encode().into();
        disk.submit(0, SpaceRequest::Write { lba: superblock.lba(), class: WriteClass::Append, data });
        disk.poll(&mut Vec::new());
    }
    let mut fs = FileSystem::open(Box::new(bench.disk.clone()), small());
    let mut events = Vec::new();
    for _ in 0..100 {
        fs.poll(Monotonic(1), &mut events);
    }
    let refused =
        |event: &FsEvent| matches!(event, FsEvent::Failed(FsError::Corrupt { what: "journal", .. }));
    assert!(events.iter().any(refused), "{events:?}");
}

#[test]
fn times_of_very_many_files_are_published_some_at_a_time() {
    let mut bench = Bench::with(64, 256, small());
    let files: Vec<FileId> = (0..3000).map(|index| bench.create(&format!("file {index}"))).collect();
    bench.flush_all().unwrap();
    bench.sleep(Duration::from_secs(3));
    for &file in &files {
        bench.fs.touch(file, &AttributeChange { accessed: Some(FileTime(77)), ..Default::default() });
    }
    bench.sleep(Duration::from_secs(20));
    bench.reopen();
    for file in [files[0], files[2999]] {
        assert_eq!(bench.run(|fs| fs.attributes(file)).unwrap().accessed, FileTime(77));
    }
}

#[test]
fn orphans_and_groups_of_blocks_that_do_not_fit_the_page_cache_are_found_and_loaded_in_linear_time() {
    let mut bench = Bench::with(64, 1024, small());
    // Bare orphans, as a crash leaves those of files that were reclaimed meanwhile.
    for first in (0..60_000).step_by(1000) {
        bench.run(|fs| fs.base.ready_to_change()).unwrap();
        let mut txn = Transaction::new();
        for file in first..first + 1000 {
            txn.put(
                key::orphan(StreamId { file: FileId(1_000_000 + file), index: key::WHOLE_FILE }),
                Vec::new(),
            );
        }
        bench.fs.base.record(txn);
        bench.poll();
    }
    bench.flush_all().unwrap();
    bench.sleep(Duration::from_secs(2));
    let reads = bench.disk.2.borrow().reads;
    let pages = pages(&bench);
    bench.reopen();
    // Reads of the opening count as well.
    let read = bench.disk.2.borrow().reads - reads;
    let bounds = Bounds { lookups: u64::MAX, reads: (4 * pages + 100).saturating_sub(read) };
    bounds.hold(&mut bench, |fs| Ok(fs.data.gives_nothing_back()));
}

#[test]
fn a_check_compares_the_references_of_more_blocks_than_it_counts_at_once_and_says_if_it_does_not() {
    let mut bench = Bench::with(28, 256, Config::default());
    let (image, _) = image(&mut bench, 2000);
    let check = |bench: &mut Bench, change: bool| {
        let mut check = Check::new(&bench.fs);
        check.count_shared_at_once(90);
        while !bench.run(|fs| check.step(fs, 100)).unwrap() {
            if change {
                bench.fs.base.meta.shared_changes += 1;
            }
        }
        check.report().clone()
    };
    let report = check(&mut bench, false);
    assert!(report.problems.is_empty() && report.references_compared, "{report:#?}");
    let report = check(&mut bench, true);
    assert!(report.problems.is_empty() && !report.references_compared, "{report:#?}");
    // A wrong number of references, of the last block that is shared.
    let txn = Transaction::new();
    let (first, end) = (key::all_shared(), key::after(&key::all_shared()));
    let last = bench.run(|fs| fs.base.meta.store.previous(&txn, &end, &first)).unwrap().unwrap().0;
    let mut txn = Transaction::new();
    txn.put(last, SharedRecord { blocks: 1, references: 7 }.encode());
    bench.fs.base.record(txn);
    let report = check(&mut bench, false);
    assert_eq!(report.problem_count, 1, "{report:#?}");
    assert!(bench.run(|fs| fs.attributes(image)).is_ok());
}
