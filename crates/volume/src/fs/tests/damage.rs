//! Damaged copies, damaged structures, and the check that finds the damage.

use super::*;
use crate::fs::layout::Superblock;
use crate::fs::meta::Key;
use crate::fs::meta::journal::{BatchHeader, encode_batch, encode_transaction};
use crate::fs::meta::page::{Page, PageBuilder};
use space::api::SpaceReply;
use std::collections::HashMap;

/// Two copies, one of which can be damaged block by block, or hold an older page. Like a virtual disk,
/// it verifies blocks outside chunk 0, and serves a plain read from an intact copy.
#[derive(Clone)]
struct TwoCopies {
    disk: SharedDisk,
    damaged: Rc<RefCell<Vec<(u8, u64)>>>,
    /// Intact blocks with older contents.
    older: Rc<RefCell<Vec<Older>>>,
    reads: Rc<RefCell<HashMap<u64, Read>>>,
}

/// A copy, the first block, the bytes there.
type Older = (u8, u64, Vec<u8>);

/// The copy asked for, and the first block.
type Read = (Option<u8>, u64);

impl TwoCopies {
    fn new(disk: &SharedDisk) -> Self {
        let (damaged, older, reads) = Default::default();
        Self { disk: disk.clone(), damaged, older, reads }
    }

    /// Returns the bytes that a copy holds in place of these.
    fn held(&self, copy: u8, lba: u64, bytes: &[u8]) -> Result<Vec<u8>, space::api::SpaceError> {
        let mut bytes = bytes.to_vec();
        let range = lba..lba + (bytes.len() / 4096) as u64;
        for (_, at, older) in self.older.borrow().iter().filter(|older| older.0 == copy) {
            if range.contains(at) {
                let from = (at - lba) as usize * 4096;
                bytes[from..from + older.len()].copy_from_slice(older);
            }
        }
        for (_, at) in self.damaged.borrow().iter().filter(|damage| damage.0 == copy) {
            if range.contains(at) && *at >= u64::from(self.size().chunk_blocks) {
                return Err(space::api::SpaceError::Corrupt { lbas: vec![Lba(*at)] });
            }
            if range.contains(at) {
                bytes[(at - lba) as usize * 4096 + 100] ^= 0xFF;
                bytes[(at - lba) as usize * 4096 + 5] ^= 0xFF;
            }
        }
        Ok(bytes)
    }
}

impl TwoCopies {
    /// Of blocks of chunk 0, the newest intact copy of each.
    fn newest(&self, lba: u64, bytes: &[u8]) -> Result<Vec<u8>, space::api::SpaceError> {
        let copies = [self.held(0, lba, bytes)?, self.held(1, lba, bytes)?];
        let (mut whole, mut lbas) = (Vec::new(), Vec::new());
        for (index, at) in (lba..).take(bytes.len() / 4096).enumerate() {
            let blocks = copies.iter().map(|copy| &copy[index * 4096..(index + 1) * 4096]);
            let order = |block: &&[u8]| codes::sealed_order(VolumeId::from_bytes([7; 16]), Lba(at), block);
            match blocks.filter(|block| order(block).is_some()).max_by_key(order) {
                Some(block) => whole.extend_from_slice(block),
                None => lbas.push(Lba(at)),
            }
        }
        if lbas.is_empty() { Ok(whole) } else { Err(space::api::SpaceError::Corrupt { lbas }) }
    }
}

impl VirtualDisk for TwoCopies {
    fn size(&self) -> SpaceSize {
        self.disk.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        if let SpaceRequest::Read { lba, copy, .. } = &request {
            self.reads.borrow_mut().insert(token, (*copy, lba.0));
        }
        self.disk.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.disk.poll(out);
        for completion in out {
            let Some((copy, lba)) = self.reads.borrow_mut().remove(&completion.token) else { continue };
            let Ok(SpaceReply::Data(data)) = &completion.result else { continue };
            let bytes = data.contiguous();
            let held = match copy {
                Some(copy) if copy > 1 => Err(space::api::SpaceError::Invalid("no such copy")),
                Some(copy) => self.held(copy, lba, &bytes),
                None if lba < u64::from(self.size().chunk_blocks) => self.newest(lba, &bytes),
                None => self.held(0, lba, &bytes).or_else(|_| self.held(1, lba, &bytes)),
            };
            completion.result = held.map(|bytes| SpaceReply::Data(Buf::from(&bytes[..]).into()));
        }
    }
}

fn filled() -> (Bench, TwoCopies) {
    let mut bench = Bench::with(32, 1024, small());
    for index in 0..3000 {
        bench.create(&format!("file {index}"));
        bench.poll();
    }
    bench.flush_all().unwrap();
    for _ in 0..2000 {
        bench.poll();
    }
    let copies = TwoCopies::new(&bench.disk);
    (bench, copies)
}

fn open(copies: &TwoCopies) -> (FileSystem, Vec<FsEvent>) {
    let mut fs = FileSystem::open(Box::new(copies.clone()), small());
    let mut events = Vec::new();
    for _ in 0..1000 {
        fs.poll(Monotonic(1), &mut events);
    }
    (fs, events)
}

fn look_up(fs: &mut FileSystem, name: &str) -> Result<FileId, FsError> {
    let mut events = Vec::new();
    for _ in 0..1000 {
        match fs.lookup(FileId::ROOT, &wide(name)) {
            Err(FsError::Miss) => fs.poll(Monotonic(1), &mut events),
            result => return result.map(|entry| entry.file),
        }
    }
    panic!("misses for ever");
}

#[test]
fn metadata_damaged_on_one_copy_is_read_from_the_other() {
    let (bench, copies) = filled();
    // All of chunks 0 and 1 on copy 0: superblock, journal, pages.
    copies.damaged.borrow_mut().extend((0..2048).map(|lba| (0, lba)));
    drop(bench);
    let (mut fs, events) = open(&copies);
    assert!(events.iter().any(|event| matches!(event, FsEvent::Opened)), "{events:?}");
    for index in 0..3000 {
        look_up(&mut fs, &format!("FILE {index}")).unwrap();
    }
}

#[test]
fn metadata_damaged_on_all_copies_is_an_error_of_its_own() {
    let (bench, copies) = filled();
    let root = bench.fs.base.checkpointer.superblock.unwrap().root.unwrap();
    drop(bench);
    let pages = root.page.lba.0..root.page.lba.0 + 4;
    copies.damaged.borrow_mut().extend(pages.flat_map(|lba| [(0, lba), (1, lba)]));
    let (mut fs, events) = open(&copies);
    let failed = events.iter().any(|event| matches!(event, FsEvent::Failed(FsError::Corrupt { .. })));
    assert!(failed || matches!(look_up(&mut fs, "file 7"), Err(FsError::Corrupt { .. })), "{events:?}");
}

/// The root page as it was one checkpoint ago, intact, as a lost write leaves it.
fn older_root(bench: &Bench) -> (u64, Vec<u8>) {
    let root = bench.fs.base.checkpointer.superblock.unwrap().root.unwrap();
    let mut disk = bench.disk.clone();
    disk.submit(0, SpaceRequest::Read { lba: root.page.lba, blocks: 4, copy: None });
    let mut answers = Vec::new();
    disk.poll(&mut answers);
    let Ok(SpaceReply::Data(data)) = &answers[0].result else { panic!("{answers:?}") };
    let page = Page::decode(data.contiguous(), &[7; 16], root.page.lba).unwrap();
    let mut builder = PageBuilder::default();
    for at in 0..page.len() - 1 {
        builder.push(page.key(at), page.value(at));
    }
    let older = builder.finish(&[7; 16], root.page.lba, root.level, root.page.sequence - 1).2;
    assert!(Page::decode(older.clone(), &[7; 16], root.page.lba).is_some(), "it is intact by itself");
    (root.page.lba.0, older.to_vec())
}

#[test]
pub fn a_tree_page_whose_write_was_lost_is_read_from_the_other_copy() {
    let (bench, copies) = filled();
    let (lba, older) = older_root(&bench);
    drop(bench);
    copies.older.borrow_mut().push((0, lba, older));
    let (mut fs, events) = open(&copies);
    assert!(events.iter().any(|event| matches!(event, FsEvent::Opened)), "{events:?}");
    for index in 0..3000 {
        look_up(&mut fs, &format!("file {index}")).unwrap();
    }
}

#[test]
fn a_tree_page_that_is_older_than_its_pointer_on_all_copies_is_damage_and_never_served() {
    let (bench, copies) = filled();
    let (lba, older) = older_root(&bench);
    drop(bench);
    copies.older.borrow_mut().extend([(0, lba, older.clone()), (1, lba, older)]);
    let (mut fs, events) = open(&copies);
    let damage = |event: &FsEvent| matches!(event, FsEvent::Failed(FsError::Corrupt { .. }));
    assert!(
        events.iter().any(damage)
            || (0..3000).all(|index| {
                // Changes since the last checkpoint are in the journal.
                !matches!(look_up(&mut fs, &format!("file {index}")), Err(FsError::NotFound))
            })
    );
}

/// A disk that must not be changed.
struct Untouched(SharedDisk);

impl VirtualDisk for Untouched {
    fn size(&self) -> SpaceSize {
        self.0.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        assert!(matches!(request, SpaceRequest::Read { .. }), "{request:?}");
        self.0.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.0.poll(out);
    }
}

/// Returns the error with which opening a disk fails; opening must not change the disk.
fn refusal(disk: &SharedDisk) -> FsError {
    let mut fs = FileSystem::open(Box::new(Untouched(disk.clone())), small());
    let mut events = Vec::new();
    for _ in 0..100 {
        fs.poll(Monotonic(1), &mut events);
    }
    let failed = events.into_iter().find_map(|event| match event {
        FsEvent::Failed(error) => Some(error),
        _ => None,
    });
    failed.expect("the volume is refused")
}

fn put(disk: &SharedDisk, lba: Lba, class: WriteClass, data: Buf) {
    let mut disk = disk.0.borrow_mut();
    disk.submit(0, SpaceRequest::Write { lba, class, data: data.into() });
    let mut answers = Vec::new();
    disk.poll(&mut answers);
    assert!(answers[0].result.is_ok());
}

#[test]
fn a_volume_of_format_1_is_refused_untouched() {
    let disk = SharedDisk::new(8, 256);
    let mut block = vec![0; 4096];
    block[..8].copy_from_slice(b"CENOTEFS");
    block[8..12].copy_from_slice(&1_u32.to_le_bytes());
    block[12..16].copy_from_slice(&256_u32.to_le_bytes());
    block[16..32].copy_from_slice(&[7; 16]);
    let crc = codes::crc64(&block[..4088]);
    block[4088..].copy_from_slice(&crc.to_le_bytes());
    put(&disk, Lba(0), WriteClass::Append, Buf::from(&block[..]));
    let error = refusal(&disk);
    assert!(matches!(error, FsError::OtherFormat(text) if text.contains("format 1")), "{error}");
}

#[test]
pub fn an_unknown_change_in_the_journal_refuses_the_volume_untouched() {
    let mut bench = Bench::new(8);
    bench.create("a name");
    bench.flush_all().unwrap();
    let head = bench.fs.base.meta.journal.log.head();
    let header = BatchHeader {
        blocks: 0,
        operation_bytes: 0,
        volume: [7; 16],
        sequence: head.sequence,
        incarnation: 1,
        chain: head.chain,
        acknowledged: head.sequence - 1,
    };
    let lba = Lba(u64::from(crate::fs::layout::JOURNAL_FIRST + head.block));
    put(&bench.disk, lba, WriteClass::Append, encode_batch(&header, 1000, lba, &[6, 1, 2, 3]).0);
    let error = refusal(&bench.disk);
    assert!(matches!(error, FsError::OtherFormat(text) if text.contains("kind")), "{error}");
}

#[test]
fn blocks_of_the_journal_that_are_not_intact_end_it_only_if_nothing_later_was_durable() {
    let mut bench = Bench::with(32, 1024, small());
    let mut places = Vec::new();
    for index in 0..6 {
        places.push(bench.fs.base.meta.journal.log.head().block);
        bench.create(&format!("late {index}"));
        bench.flush_all().unwrap();
    }
    let end = bench.fs.base.meta.journal.log.head().block;
    let lba = |block| Lba(u64::from(crate::fs::layout::JOURNAL_FIRST + block));
    // Torn by a power cut behind the last batch.
    bench.disk.0.borrow_mut().corrupt(lba(end));
    bench.disk.0.borrow_mut().corrupt(lba(end + 3));
    bench.reopen();
    // A scrub finds nothing there, though nothing was written since.
    assert!([end, end + 3].iter().all(|block| !bench.disk.0.borrow().is_corrupt(lba(*block))));
    assert!(bench.run(|fs| fs.lookup(FileId::ROOT, &wide("late 5"))).is_ok());
    bench.disk.0.borrow_mut().corrupt(lba(places[2]));
    let error = refusal(&bench.disk);
    assert!(matches!(error, FsError::Corrupt { what: "journal", .. }), "{error}");
}

#[test]
fn a_gap_in_the_journal_that_later_batches_know_to_have_been_durable_refuses_the_volume() {
    let (mut bench, copies) = filled();
    let mut places = Vec::new();
    for index in 0..6 {
        places.push(bench.fs.base.meta.journal.log.head().block);
        bench.create(&format!("late {index}"));
        bench.flush_all().unwrap();
    }
    drop(bench);
    let open_without = |batch: usize, on: &[u8]| {
        let lba = u64::from(crate::fs::layout::JOURNAL_FIRST + places[batch]);
        *copies.damaged.borrow_mut() = on.iter().map(|copy| (*copy, lba)).collect();
        open(&copies)
    };
    for batch in [0, 1, 3] {
        let (mut fs, events) = open_without(batch, &[0]);
        assert!(events.iter().any(|event| matches!(event, FsEvent::Opened)), "{events:?}");
        look_up(&mut fs, "late 5").unwrap();
        drop(fs);
        let (_, events) = open_without(batch, &[0, 1]);
        let refused =
            |event: &FsEvent| matches!(event, FsEvent::Failed(FsError::Corrupt { what: "journal", .. }));
        assert!(events.iter().any(refused), "batch {batch}: {events:?}");
    }
}

#[test]
fn the_check_finds_each_kind_of_damage() {
    type Damage = fn(&mut FileSystem, FileId, &mut Transaction);
    let cases: [(&str, Damage); 5] = [
        ("link", |_, file, txn| txn.delete(key::link(file, FileId::ROOT, &wide("victim")))),
        ("which is not there", |_, file, txn| txn.delete(key::inode(file))),
        ("says", |fs, file, txn| {
            let mut inode = inodes::inode(&mut fs.base.meta.store, txn, file).unwrap();
            inode.allocated_blocks += 1;
            inodes::put_inode(txn, file, &inode);
        }),
        ("nothing has it", |_, file, txn| txn.delete(key::extent(StreamId::unnamed(file), 0))),
        ("another extent has too", |fs, file, txn| {
            let value =
                fs.base.meta.store.get(txn, &key::extent(StreamId::unnamed(file), 0)).unwrap().unwrap();
            txn.put(key::extent(StreamId::unnamed(file), 100), value.to_vec());
        }),
    ];
    for (words, damage) in cases {
        let mut bench = Bench::new(16);
        let file = bench.create("victim");
        bench.write(StreamId::unnamed(file), 0, &[1; 50_000]).unwrap();
        bench.check_clean();
        let mut txn = Transaction::new();
        damage(&mut bench.fs, file, &mut txn);
        bench.fs.base.record(txn);
        let report = bench.check();
        assert!(report.problems.iter().any(|problem| problem.contains(words)), "{words}: {report:#?}");
    }
}

/// Whole structures of each kind, to be mutated.
fn samples() -> Vec<(u8, Vec<u8>)> {
    let bench = Bench::new(8);
    let superblock: Superblock = bench.fs.base.checkpointer.superblock.unwrap();
    let mut txn = Transaction::new();
    txn.put(key::entry(FileId(5), &wide("name")), vec![1; 40]);
    txn.delete(key::inode(FileId(9)));
    txn.use_chunk(3, meta::ChunkUse::Data);
    let mut operations = Vec::new();
    encode_transaction(&txn, &mut operations);
    let header = BatchHeader {
        blocks: 0,
        operation_bytes: 0,
        volume: [7; 16],
        sequence: 1,
        incarnation: 1,
        chain: 0,
        acknowledged: 0,
    };
    let batch = encode_batch(&header, 3, Lba(4), &operations).0;
    let mut builder = PageBuilder::default();
    for at in 0..50_u8 {
        builder.push(&[0x10, at], &[at; 100]);
    }
    let page = builder.finish(&[7; 16], Lba(4), 0, 1).2;
    let map =
        bench.fs.base.meta.allocator.encode_space_map(&bench.fs.base.meta.allocator.chunk_records(), &[]);
    let inode = [1_u8; 80].to_vec();
    let name = key::entry(FileId(5), &wide("name")).to_vec();
    vec![
        (0, superblock.encode().to_vec()),
        (1, batch.to_vec()),
        (2, page.to_vec()),
        (3, map),
        (4, inode),
        (5, name),
    ]
}

#[test]
fn structures_of_any_content_are_parsed_or_refused() {
    let mut random = crash::Random(99);
    for (which, sample) in samples() {
        let foreign = which == 3;
        assert!(foreign || fuzz::parse(which, &sample), "the sample of structure {which} is one");
        for _ in 0..3000 {
            let mut bytes = sample.clone();
            for _ in 0..1 + random.below(4) {
                let near = if random.below(2) == 0 { 128 } else { bytes.len() as u64 };
                let at = random.below(near.min(bytes.len() as u64)) as usize;
                bytes[at] = random.below(256) as u8;
            }
            if random.below(8) == 0 {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            fuzz::seal(which, &mut bytes);
            fuzz::parse(which, &bytes);
        }
    }
}

/// Searches for the files that have blocks; damaged pages that it went by.
fn search(fs: &mut FileSystem, blocks: &[Lba]) -> (Vec<OwnedBlocks>, u64) {
    let (mut search, mut events) = (OwnerSearch::new(blocks.iter().copied()), Vec::new());
    for _ in 0..100_000 {
        match search.step(fs, 10) {
            Ok(true) => {
                let unreadable = search.pages_unreadable();
                return (search.finish().0, unreadable);
            }
            Ok(false) => {}
            Err(FsError::Miss) => fs.poll(Monotonic(1), &mut events),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the search does not end");
}

#[test]
fn files_with_lost_blocks_are_found_by_path_and_all_else_of_them_can_be_read() {
    let mut bench = Bench::with(24, 256, small());
    let parent = wide("folder");
    let folder = bench.run(|fs| fs.create(FileId::ROOT, &parent, &directory(5))).unwrap();
    let mut files = Vec::new();
    for index in 0..20 {
        let name = wide(&format!("file {index}"));
        let made = bench.run(|fs| fs.create(folder, &name, &file(5))).unwrap();
        bench.write(StreamId::unnamed(made), 0, &[index as u8 + 1; 60_000]).unwrap();
        files.push(StreamId::unnamed(made));
    }
    bench.flush_all().unwrap();
    let lba_of = |bench: &mut Bench, stream: StreamId, block: u64| {
        let extents = bench
            .run(|fs| extents_from(&mut fs.base.meta.store, &Transaction::new(), stream, 0, 100))
            .unwrap();
        let (first, extent) = extents.into_iter().rev().find(|(first, _)| *first <= block).unwrap();
        Lba(extent.lba.0 + block - first)
    };
    let (one, two) = (lba_of(&mut bench, files[3], 5), lba_of(&mut bench, files[11], 14));
    bench.reopen();
    for lba in [one, two] {
        bench.disk.0.borrow_mut().corrupt(lba);
    }
    let (found, unreadable) = search(&mut bench.fs, &[two, one, Lba(20 * 256), Lba(5)]);
    let found: Vec<_> = found
        .iter()
        .map(|file| (String::from_utf16_lossy(file.path.as_deref().unwrap_or_default()), file.runs.clone()))
        .collect();
    let expected =
        [("folder\\file 3".to_owned(), vec![(5, 1)]), ("folder\\file 11".to_owned(), vec![(14, 1)])];
    assert_eq!(found, expected);
    assert_eq!(unreadable, 0);
    // Reads fail for these blocks alone.
    assert!(matches!(bench.read(files[3], 5 * 4096 + 7, 10), Err(FsError::Corrupt { .. })));
    assert_eq!(bench.read(files[3], 0, 5 * 4096).unwrap(), [4; 5 * 4096]);
    assert_eq!(bench.read(files[3], 6 * 4096, 10_000).unwrap(), [4; 10_000]);
    // Until they are written again.
    bench.write(files[3], 5 * 4096, &[9; 4096]).unwrap();
    bench.flush_all().unwrap();
    assert_eq!(bench.read(files[3], 5 * 4096, 4096).unwrap(), [9; 4096]);
}

#[test]
fn a_damaged_tree_page_fails_what_is_below_it_and_nothing_else() {
    let (mut bench, copies) = filled();
    let root = bench.fs.base.checkpointer.superblock.unwrap().root.unwrap();
    assert_eq!(root.level, 1);
    let page = bench.run(|fs| fs.base.meta.store.tree.page(root.page, 1)).unwrap();
    let leaf = page.child(page.len() / 2).lba;
    drop(bench);
    copies.damaged.borrow_mut().extend([(0, leaf.0 + 1), (1, leaf.0 + 1)]);
    let (mut fs, events) = open(&copies);
    assert!(events.iter().any(|event| matches!(event, FsEvent::Opened)), "{events:?}");
    let (mut found, mut lost) = (0, 0);
    for index in 0..3000 {
        match look_up(&mut fs, &format!("file {index}")) {
            Ok(_) => found += 1,
            Err(FsError::Corrupt { .. }) => lost += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(found > 2000, "{found} found, {lost} lost");
    assert!(search(&mut fs, &[Lba(3)]).0.is_empty(), "it ends");
    // Changes elsewhere continue until a checkpoint needs the page; then the volume can be read only, and does not fail.
    let (mut events, mut refused) = (Vec::new(), false);
    for round in 0..6000 {
        match fs.create(FileId::ROOT, &wide(&format!("more {round}")), &file(5)) {
            Err(FsError::Corrupt { .. }) => refused = true,
            Ok(_) | Err(FsError::Miss) => {}
            Err(error) => panic!("{error}"),
        }
        fs.poll(Monotonic(1 + round * 1_000_000), &mut events);
    }
    assert!(!events.iter().any(|event| matches!(event, FsEvent::Failed(_))), "{events:?}");
    assert!(refused || look_up(&mut fs, "more 3").is_ok());
}

/// Creates files until the volume refuses, or up to this number. Returns the refusal.
fn grow(fs: &mut FileSystem, now: &mut Monotonic, prefix: &str, count: usize) -> Option<FsError> {
    let mut events = Vec::new();
    let mut made = 0;
    for _ in 0..100_000 {
        match fs.create(FileId::ROOT, &wide(&format!("{prefix} {made}")), &file(5)) {
            Err(FsError::Miss) => {}
            // The new file's keys are below the damaged page.
            Ok(_) | Err(FsError::Corrupt { .. }) => made += 1,
            Err(error) => return Some(error),
        }
        fs.poll(*now, &mut events);
        *now = now.after(Duration::from_millis(1));
        assert!(!events.iter().any(|event| matches!(event, FsEvent::Failed(_))), "{events:?}");
        if made == count {
            return None;
        }
    }
    panic!("the volume neither refuses nor goes on");
}

#[test]
fn a_volume_whose_checkpoint_needs_a_damaged_page_is_read_only_says_so_and_goes_on_when_the_page_is_back() {
    let (mut bench, copies) = filled();
    let root = bench.fs.base.checkpointer.superblock.unwrap().root.unwrap();
    let page = bench.run(|fs| fs.base.meta.store.tree.page(root.page, 1)).unwrap();
    let leaf = page.child(page.len() / 2).lba;
    // A change below the page is in the journal alone.
    let key =
        bench.run(|fs| fs.base.meta.store.tree.page(page.child(page.len() / 2), 0)).unwrap().key(0).to_vec();
    let mut txn = Transaction::new();
    let value = bench.run(|fs| fs.base.meta.store.get(&Transaction::new(), &key)).unwrap().unwrap();
    txn.put(Key::from_slice(&key), value.to_vec());
    bench.fs.base.record(txn);
    bench.flush_all().unwrap();
    drop(bench);
    copies.damaged.borrow_mut().extend([(0, leaf.0 + 1), (1, leaf.0 + 1)]);
    let (mut fs, _) = open(&copies);
    assert_eq!(fs.read_only(), None);
    let mut now = Monotonic(1);
    let refusal = grow(&mut fs, &mut now, "more", 20_000);
    assert!(matches!(refusal, Some(FsError::ReadOnly { lba, .. }) if lba == leaf), "{refusal:?}");
    assert_eq!(fs.read_only().map(|(error, _)| error), refusal);
    assert!(fs.next_timeout().is_some_and(|at| at > now), "it does not spin");
    look_up(&mut fs, "more 1").unwrap();
    // A disk with an intact copy returns.
    copies.damaged.borrow_mut().clear();
    let mut events = Vec::new();
    for _ in 0..1000 {
        now = now.after(Duration::from_millis(50));
        fs.poll(now, &mut events);
    }
    assert_eq!(fs.read_only(), None);
    let sequence = fs.base.checkpointer.superblock.unwrap().sequence;
    assert_eq!(grow(&mut fs, &mut now, "later", 20_000), None);
    assert!(fs.base.checkpointer.superblock.unwrap().sequence > sequence, "there was a checkpoint");
    for index in 0..3000 {
        look_up(&mut fs, &format!("file {index}")).unwrap();
    }
}

#[test]
fn a_damaged_neighbour_of_pages_that_change_does_not_keep_a_checkpoint_from_its_end() {
    let (mut bench, copies) = filled();
    let root = bench.fs.base.checkpointer.superblock.unwrap().root.unwrap();
    let page = bench.run(|fs| fs.base.meta.store.tree.page(root.page, 1)).unwrap();
    let (small, damaged) = (page.child(2), page.child(3).lba);
    // Nearly all of one page is deleted, so that it would take its neighbour in.
    let leaf = bench.run(|fs| fs.base.meta.store.tree.page(small, 0)).unwrap();
    let mut txn = Transaction::new();
    (1..leaf.len()).for_each(|at| txn.delete(Key::from_slice(leaf.key(at))));
    bench.fs.base.record(txn);
    bench.flush_all().unwrap();
    drop(bench);
    copies.damaged.borrow_mut().extend([(0, damaged.0), (1, damaged.0)]);
    let (mut fs, _) = open(&copies);
    let sequence = fs.base.checkpointer.superblock.unwrap().sequence;
    let mut now = Monotonic(1);
    assert_eq!(grow(&mut fs, &mut now, "more", 20_000), None);
    assert!(fs.base.checkpointer.superblock.unwrap().sequence > sequence, "there was a checkpoint");
}

#[test]
fn a_change_that_frees_a_block_twice_fails_the_volume_and_nothing_of_it_is_stored() {
    let mut bench = Bench::new(16);
    let file = bench.create("victim");
    let stream = StreamId::unnamed(file);
    bench.write(stream, 0, &[1; 50_000]).unwrap();
    bench.flush_all().unwrap();
    let found = bench.run(|fs| extents_from(&mut fs.base.meta.store, &Transaction::new(), stream, 0, 1));
    let (_, extent) = found.unwrap()[0];
    let mut txn = Transaction::new();
    for _ in 0..2 {
        txn.free(meta::BlockRun { lba: extent.lba, blocks: 1 });
    }
    txn.delete(key::extent(stream, 0));
    let ticket = bench.fs.base.record(txn);
    assert!(ticket > bench.fs.base.meta.journal.log.last_ticket(), "it never becomes durable");
    let refused = FsError::Corrupt { what: "blocks are freed that were free", lba: extent.lba };
    assert_eq!(bench.fs.lookup(FileId::ROOT, &wide("victim")), Err(refused.clone()));
    bench.poll();
    let failed = |event: &FsEvent| matches!(event, FsEvent::Failed(error) if *error == refused);
    assert!(bench.events.iter().any(failed), "{:?}", bench.events);
    bench.reopen();
    assert_eq!(bench.read(stream, 0, 50_000).unwrap(), [1; 50_000]);
    bench.check_clean();
}
