//! Power cuts while some writes have been waiting for long and others were answered.

use super::*;
use crate::fs::layout::JOURNAL_FIRST;

/// A disk that withholds writes, as long as [`Keeping::which`] says: a power cut drops them.
#[derive(Clone)]
struct Keeping {
    disk: SharedDisk,
    which: Rc<Cell<Which>>,
    kept: Rc<RefCell<Vec<(u64, SpaceRequest)>>>,
    /// Blocks of data that were written.
    data_blocks: Rc<Cell<usize>>,
}

/// The writes to withhold.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    None,
    /// Those of the journal and the superblock: all that is written with class `Append`.
    Appends,
    Superblocks,
}

impl Keeping {
    fn new(chunks: u64) -> Self {
        let which = Rc::new(Cell::new(Which::None));
        let (kept, data_blocks) = Default::default();
        Self { disk: SharedDisk::new(chunks, 256), which, kept, data_blocks }
    }

    /// Performs the withheld writes.
    fn release(&self) {
        for (token, request) in self.kept.take() {
            self.disk.clone().submit(token, request);
        }
    }

    fn keeps(&self, request: &SpaceRequest) -> bool {
        let SpaceRequest::Write { lba, class: WriteClass::Append, .. } = request else { return false };
        match self.which.get() {
            Which::None => false,
            Which::Appends => true,
            Which::Superblocks => lba.0 < u64::from(JOURNAL_FIRST),
        }
    }
}

impl VirtualDisk for Keeping {
    fn size(&self) -> SpaceSize {
        self.disk.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        if let SpaceRequest::Write { class: WriteClass::Fresh | WriteClass::Overwrite, data, .. } = &request {
            self.data_blocks.update(|blocks| blocks + data.len() / ::types::BLOCK_BYTES);
        }
        match self.keeps(&request) {
            true => self.kept.borrow_mut().push((token, request)),
            false => self.disk.submit(token, request),
        }
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.disk.poll(out);
    }
}

#[test]
pub fn blocks_of_a_removed_file_are_not_written_before_it_is_durably_gone() {
    let device = Keeping::new(8);
    let mut bench = Bench::over(device.disk.clone(), Box::new(device.clone()), Config::default());
    let old = bench.create("old");
    let contents = vec![1; 400_000];
    bench.write(StreamId::unnamed(old), 0, &contents).unwrap();
    bench.flush_all().unwrap();
    // None of the following changes becomes durable.
    device.which.set(Which::Appends);
    bench.run(|fs| fs.unlink(FileId::ROOT, &wide("old"), FileTime(9))).unwrap();
    bench.run(|fs| fs.reclaim(old)).unwrap();
    bench.sleep(Duration::from_secs(10));
    let before = device.data_blocks.get();
    let new = bench.create("new");
    let token = bench.token();
    let _ =
        bench.fs.write(token, StreamId::unnamed(new), 0, Payload::from(Buf::from(&[2; 400_000][..])), false);
    let _ = bench.fs.flush(token + 1, new);
    bench.sleep(Duration::from_secs(10));
    let written = device.data_blocks.get() - before;
    assert!(written >= 97, "other data is written meanwhile: {written} blocks");
    bench.crash(|_| 0);
    let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide("old"))).expect("its removal was not durable");
    let read = bench.read(StreamId::unnamed(found.file), 0, 1 << 20).expect("its data");
    assert!(read == contents, "its blocks hold another file's data");
}

#[test]
pub fn the_journal_keeps_what_a_superblock_that_is_not_durable_makes_superfluous() {
    let device = Keeping::new(24);
    let mut bench = Bench::over(device.disk.clone(), Box::new(device.clone()), small());
    device.which.set(Which::Superblocks);
    let (mut made, mut durable) = (0, 0);
    // The journal fills up twice: the second checkpoint makes more of it superfluous than lies before its start.
    for round in 0..2 {
        let mut misses = 0;
        while misses < 500 {
            match bench.fs.create(FileId::ROOT, &wide(&format!("file {made}")), &file(5)) {
                Ok(_) => (made, misses) = (made + 1, 0),
                Err(FsError::Miss) => misses += 1,
                Err(error) => panic!("{error}"),
            }
            bench.poll();
            if misses == 0 && made % 20 == 0 {
                bench.flush_all().expect("the journal has room");
                durable = made;
            }
        }
        assert!(bench.fs.base.checkpointer.is_under_way(), "a superblock is under way");
        if round == 0 {
            device.release();
        }
    }
    assert!(durable > 500, "{durable} files are durable");
    bench.crash(|_| 0);
    for index in 0..durable {
        let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide(&format!("file {index}"))));
        assert!(found.is_ok(), "file {index} of {durable}: {found:?}");
    }
}
