//! Freed blocks are discarded before they are written again.

use super::*;

/// A disk that counts blocks which are written with class `Fresh` and hold something.
#[derive(Clone)]
struct Counting {
    disk: SharedDisk,
    over: Rc<Cell<usize>>,
    discards: Rc<Cell<usize>>,
    refuses: Rc<Cell<bool>>,
}

impl Counting {
    fn new(chunks: u64, chunk_blocks: u32) -> Self {
        let disk = SharedDisk::new(chunks, chunk_blocks);
        Self { disk, over: Rc::default(), discards: Rc::default(), refuses: Rc::default() }
    }

    fn bench(&self) -> Bench {
        Bench::over(self.disk.clone(), Box::new(self.clone()), Config::default())
    }
}

impl VirtualDisk for Counting {
    fn size(&self) -> SpaceSize {
        self.disk.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        match &request {
            SpaceRequest::Write { lba, class: WriteClass::Fresh, data } => {
                let held = self.disk.2.borrow();
                let end = lba.0 + (data.len() / ::types::BLOCK_BYTES) as u64;
                self.over.update(|over| over + held.written.range(lba.0..end).count());
            }
            // Discards of whole chunks return their space.
            SpaceRequest::Discard { blocks, .. } if *blocks < u64::from(self.size().chunk_blocks) => {
                self.discards.update(|discards| discards + 1);
                if self.refuses.get() {
                    // As one that waited too long for copies.
                    let beyond = self.size().blocks.0;
                    return self.disk.submit(token, SpaceRequest::Discard { lba: Lba(beyond), blocks: 1 });
                }
            }
            _ => {}
        }
        self.disk.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.disk.poll(out);
    }
}

#[test]
fn a_stream_that_is_overwritten_again_and_again_finds_blocks_that_hold_nothing() {
    let device = Counting::new(16, 4096);
    let mut bench = device.bench();
    let stream = StreamId::unnamed(bench.create("file"));
    for round in 0..40 {
        bench.write_durably(stream, 0, &[round; 1 << 20]).unwrap();
        bench.sleep(Duration::from_millis(100));
    }
    // The block with which the chunk was proven.
    assert_eq!(device.over.get(), 1);
    assert_eq!(bench.read(stream, 0, 1 << 20).unwrap(), [39; 1 << 20]);
    bench.check_clean();
    bench.crash(|_| 0);
    assert_eq!(bench.read(stream, 0, 1 << 20).unwrap(), [39; 1 << 20]);
}

#[test]
fn freed_blocks_count_as_free_and_are_so_when_they_cannot_be_discarded() {
    let device = Counting::new(16, 4096);
    let mut bench = device.bench();
    let file = bench.create("file");
    bench.write_durably(StreamId::unnamed(file), 0, &[1; 8 << 20]).unwrap();
    let before = bench.fs.statistics().used_bytes;
    device.refuses.set(true);
    bench.run(|fs| fs.unlink(FileId::ROOT, &wide("file"), FileTime(9))).unwrap();
    bench.run(|fs| fs.reclaim(file)).unwrap();
    bench.flush_all().unwrap();
    bench.sleep(Duration::from_secs(1));
    assert!(device.discards.get() > 0);
    assert!(bench.fs.base.meta.allocator.preparing.is_empty());
    assert_eq!(before - bench.fs.statistics().used_bytes, 8 << 20);
    let stream = StreamId::unnamed(bench.create("other"));
    bench.write_durably(stream, 0, &[2; 8 << 20]).unwrap();
    assert_eq!(bench.read(stream, 0, 8 << 20).unwrap(), [2; 8 << 20]);
    bench.check_clean();
}

#[test]
fn what_is_freed_can_be_written_at_once_on_a_volume_that_is_almost_full() {
    let device = Counting::new(6, 256);
    let mut bench = device.bench();
    for round in 0..20 {
        let name = format!("file {round}");
        let file = bench.create(&name);
        let half = vec![round as u8; 1400 << 10];
        bench.write_durably(StreamId::unnamed(file), 0, &half).unwrap();
        bench.run(|fs| fs.unlink(FileId::ROOT, &wide(&name), FileTime(9))).unwrap();
        bench.run(|fs| fs.reclaim(file)).unwrap();
    }
    bench.check_clean();
}
