//! Writes to blocks of which an earlier write is on its way to be durable.

use super::*;

const EARLIER: [u8; 100] = [2; 100];

/// A file whose first blocks are stored, if `stored`.
fn bench(stored: bool) -> (Bench, StreamId) {
    let mut bench = Bench::new(24);
    let stream = StreamId::unnamed(bench.create("file"));
    if stored {
        bench.write(stream, 0, &[1; 8192]).unwrap();
    }
    bench.flush_all().unwrap();
    (bench, stream)
}

/// The same blocks are written before the first write is on its way; then the power goes as soon as that has been answered.
fn write_beside_and_crash(mut bench: Bench, stream: StreamId, token: u64) {
    let later = Payload::from(Buf::from([3; 100].as_slice()));
    assert!(bench.fs.write(90, stream, 100, later, false).is_ready());
    bench.wait(token).unwrap();
    bench.crash(|_| 0);
    let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide("file"))).unwrap();
    assert_eq!(bench.read(StreamId::unnamed(found.file), 0, 100).unwrap(), EARLIER);
}

#[test]
fn what_was_flushed_is_durable_although_its_block_is_written_again_at_once() {
    for stored in [false, true] {
        let (mut bench, stream) = bench(stored);
        bench.write(stream, 0, &EARLIER).unwrap();
        assert!(bench.fs.flush(80, stream.file).is_pending());
        write_beside_and_crash(bench, stream, 80);
    }
}

#[test]
fn a_durable_write_is_durable_although_its_block_is_written_again_at_once() {
    for stored in [false, true] {
        let (mut bench, stream) = bench(stored);
        let earlier = Payload::from(Buf::from(EARLIER.as_slice()));
        assert!(bench.fs.write(80, stream, 0, earlier, true).is_pending());
        write_beside_and_crash(bench, stream, 80);
    }
}
