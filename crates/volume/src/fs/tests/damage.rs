//! Damaged copies, damaged structures, and the check that finds what is wrong.

use super::*;
use crate::fs::layout::Superblock;
use crate::fs::meta::journal::{BatchHeader, encode_batch, encode_transaction};
use crate::fs::meta::page::PageBuilder;
use space::api::SpaceReply;
use std::collections::HashMap;

/// Two copies, of which one can be damaged block by block.
#[derive(Clone)]
struct TwoCopies {
    disk: SharedDisk,
    damaged: Rc<RefCell<Vec<(u8, u64)>>>,
    reads: Rc<RefCell<HashMap<u64, (u8, u64)>>>,
}

impl VirtualDisk for TwoCopies {
    fn size(&self) -> SpaceSize {
        self.disk.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        if let SpaceRequest::Read { lba, copy: Some(copy), .. } = &request {
            self.reads.borrow_mut().insert(token, (*copy, lba.0));
        }
        self.disk.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.disk.poll(out);
        for completion in out {
            let Some((copy, lba)) = self.reads.borrow_mut().remove(&completion.token) else { continue };
            if copy > 1 {
                completion.result = Err(space::api::SpaceError::Invalid("no such copy"));
            } else if let Ok(SpaceReply::Data(data)) = &completion.result {
                let mut bytes = data.contiguous().to_vec();
                for (_, at) in self.damaged.borrow().iter().filter(|damage| damage.0 == copy) {
                    if *at >= lba && ((at - lba) as usize) < bytes.len() / 4096 {
                        bytes[(at - lba) as usize * 4096 + 100] ^= 0xFF;
                        bytes[(at - lba) as usize * 4096 + 5] ^= 0xFF;
                    }
                }
                completion.result = Ok(SpaceReply::Data(Buf::from(&bytes[..]).into()));
            }
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
    let copies = TwoCopies { disk: bench.disk.clone(), damaged: Rc::default(), reads: Rc::default() };
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
    // All of chunk 0 on copy 0: superblock, journal, pages.
    copies.damaged.borrow_mut().extend((0..1024).map(|lba| (0, lba)));
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
    let root = bench.fs.superblock.unwrap().root.unwrap();
    drop(bench);
    let pages = root.lba.0..root.lba.0 + 4;
    copies.damaged.borrow_mut().extend(pages.flat_map(|lba| [(0, lba), (1, lba)]));
    let (mut fs, events) = open(&copies);
    let failed = events.iter().any(|event| matches!(event, FsEvent::Failed(FsError::Corrupt { .. })));
    assert!(failed || matches!(look_up(&mut fs, "file 7"), Err(FsError::Corrupt { .. })), "{events:?}");
}

#[test]
fn a_gap_in_the_journal_that_later_batches_know_to_have_been_durable_refuses_the_volume() {
    let (mut bench, copies) = filled();
    let mut places = Vec::new();
    for index in 0..6 {
        places.push(bench.fs.log.head().block);
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
            let mut inode = fs.inode(txn, file).unwrap();
            inode.allocated_blocks += 1;
            FileSystem::put_inode(txn, file, &inode);
        }),
        ("nothing has it", |_, file, txn| txn.delete(key::extent(StreamId::unnamed(file), 0))),
        ("another extent has too", |fs, file, txn| {
            let value = fs.meta.get(txn, &key::extent(StreamId::unnamed(file), 0)).unwrap().unwrap();
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
        bench.fs.record(txn);
        let report = bench.check();
        assert!(report.problems.iter().any(|problem| problem.contains(words)), "{words}: {report:#?}");
    }
}

/// Whole structures of each kind, to be mutated.
fn samples() -> Vec<(u8, Vec<u8>)> {
    let bench = Bench::new(8);
    let superblock: Superblock = bench.fs.superblock.unwrap();
    let mut txn = Transaction::new();
    txn.put(key::entry(FileId(5), &wide("name")), vec![1; 40]);
    txn.delete(key::inode(FileId(9)));
    txn.use_chunk(3, meta::journal::ChunkUse::Data);
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
    let batch = encode_batch(&header, &operations).0;
    let mut builder = PageBuilder::default();
    for at in 0..50_u8 {
        builder.push(&[0x10, at], &[at; 100]);
    }
    let page = builder.finish(&[7; 16], Lba(4), 0, 1).1;
    let map = bench.fs.allocator.encode_space_map(&bench.fs.allocator.chunk_records(), &[]);
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
