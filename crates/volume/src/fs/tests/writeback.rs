//! Writes without a flush: durable within five seconds on fast disks and slow ones; retried with pauses
//! if they fail.

use super::*;
use space::api::SpaceError;
use std::collections::{BTreeMap, VecDeque};

/// Time within which a write is durable (D14).
const PROMISE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(1);

/// A disk that writes this many bytes a second, one write after the other.
struct SlowDisk {
    disk: SharedDisk,
    now: Rc<Cell<Monotonic>>,
    bytes_per_s: Rc<Cell<u64>>,
    /// Times at which the waiting requests will be done.
    done_at: VecDeque<Monotonic>,
}

impl VirtualDisk for SlowDisk {
    fn size(&self) -> SpaceSize {
        self.disk.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        let len_bytes = match &request {
            SpaceRequest::Write { data, .. } => data.len() as u64,
            _ => 0,
        };
        let begun = self.done_at.back().map_or(self.now.get(), |last| self.now.get().max(*last));
        let taken = Duration::from_nanos(len_bytes * 1_000_000_000 / self.bytes_per_s.get());
        self.done_at.push_back(begun.after(taken));
        self.disk.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        let before = out.len();
        self.disk.0.borrow_mut().hold(true);
        while self.done_at.front().is_some_and(|at| *at <= self.now.get()) {
            self.done_at.pop_front();
            self.disk.0.borrow_mut().complete(0, out);
        }
        self.disk.note(&out[before..]);
    }
}

/// Time and contents of the last write to each block.
#[derive(Default)]
struct Written {
    blocks: BTreeMap<u64, (Monotonic, u8)>,
    next: u8,
}

impl Written {
    /// Overwrites a block; `false`: not yet.
    fn write(&mut self, bench: &mut Bench, stream: StreamId, block: u64, token: u64) -> bool {
        let data = Payload::from(Buf::from([self.next; 4096].as_slice()));
        let taken = bench.fs.write(token, stream, block * 4096, data, false).is_ready();
        if taken {
            self.blocks.insert(block, (bench.now, self.next));
            self.next = self.next.wrapping_add(1);
        }
        taken
    }

    /// Checks after a power cut that writes older than the promise are stored.
    fn check(&self, bench: &mut Bench, stream: StreamId) {
        let cut_at = bench.now;
        bench.disk.0.borrow_mut().hold(true);
        bench.crash(|_| 0);
        for (block, (at, value)) in &self.blocks {
            let old = cut_at.since(*at) >= PROMISE;
            let found = bench.read(stream, block * 4096, 4096).unwrap();
            assert!(!old || found == [*value; 4096], "block {block}, {:?} old", cut_at.since(*at));
        }
    }
}

fn pass(bench: &mut Bench, duration: Duration) {
    let until = bench.now.after(duration);
    while bench.now < until {
        bench.now = bench.now.after(STEP);
        bench.poll();
    }
}

/// A file of this many MiB on the disk.
fn stored_file(bench: &mut Bench, mib: u64) -> StreamId {
    let id = bench.create("data");
    for at in 0..mib {
        bench.write(StreamId::unnamed(id), at << 20, &[0xee; 1 << 20]).unwrap();
    }
    bench.flush(id).unwrap();
    StreamId::unnamed(id)
}

#[test]
fn very_many_scattered_changes_are_durable_in_time_without_a_flush() {
    let mut bench = Bench::with(64, 256, Config { dirty_bytes: 1 << 30, ..Config::default() });
    let stream = stored_file(&mut bench, 40);
    let mut written = Written::default();
    for block in (0..9000).step_by(3) {
        let value = block as u8;
        bench.write(stream, block * 4096, &[value; 4096]).unwrap();
        written.blocks.insert(block, (bench.now, value));
    }
    pass(&mut bench, PROMISE);
    written.check(&mut bench, stream);
}

/// Overwrites a file of 20 MiB on such a disk for this duration, repeatedly, as fast as possible.
fn overwrite_on(bytes_per_s: u64, duration: Duration) -> (Bench, StreamId, Written) {
    let now = Rc::new(Cell::new(Monotonic(1)));
    let speed = Rc::new(Cell::new(u64::MAX));
    let disk = memory_disk();
    let slow = SlowDisk {
        disk: disk.clone(),
        now: now.clone(),
        bytes_per_s: speed.clone(),
        done_at: VecDeque::new(),
    };
    let config = Config { dirty_bytes: 1 << 30, ..Config::default() };
    let mut bench = Bench::over(disk, Box::new(slow), config);
    let stream = stored_file(&mut bench, 20);
    speed.set(bytes_per_s);
    let mut written = Written::default();
    let (until, mut at, mut waits) = (bench.now.after(duration), 0_u64, false);
    while bench.now < until {
        bench.now = bench.now.after(STEP);
        now.set(bench.now);
        bench.poll();
        if bench.events.drain(..).any(|event| matches!(event, FsEvent::Written { result: Ok(()), .. })) {
            let block = at % 5120;
            written.blocks.insert(block, (bench.now, written.next));
            written.next = written.next.wrapping_add(1);
            (waits, at) = (false, at + 1);
        }
        // 200 MB/s at most.
        for _ in 0..50 {
            waits = waits || !written.write(&mut bench, stream, at % 5120, at);
            if waits {
                break;
            }
            at += 1;
        }
    }
    (bench, stream, written)
}

#[test]
fn on_a_slow_disk_no_more_waits_than_is_durable_in_time() {
    for (bytes_per_s, duration_ms) in [(4_000_000, 11_300), (12_000_000, 6_300)] {
        let (mut bench, stream, written) = overwrite_on(bytes_per_s, Duration::from_millis(duration_ms));
        let dirty = bench.fs.statistics().dirty_bytes;
        assert!(dirty <= (bytes_per_s * 5 / 2).max(9 << 20), "{dirty} bytes wait at {bytes_per_s} B/s");
        written.check(&mut bench, stream);
    }
}

/// A disk whose writes are counted.
struct CountedDisk(SharedDisk, Rc<Cell<usize>>);

impl VirtualDisk for CountedDisk {
    fn size(&self) -> SpaceSize {
        self.0.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        self.1.set(self.1.get() + usize::from(matches!(request, SpaceRequest::Write { .. })));
        self.0.submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.0.poll(out);
    }
}

fn memory_disk() -> SharedDisk {
    SharedDisk::new(64, 256)
}

/// How often a block was tried to be written while the disk took none for this long.
fn tries_while_failing(duration: Duration) -> (Bench, StreamId, usize) {
    let (disk, writes) = (memory_disk(), Rc::new(Cell::new(0)));
    let mut bench = Bench::over(disk.clone(), Box::new(CountedDisk(disk, writes.clone())), Config::default());
    let stream = stored_file(&mut bench, 4);
    let mut written = Written::default();
    assert!(written.write(&mut bench, stream, 3, 1));
    bench.disk.0.borrow_mut().fail(Some(SpaceError::Unavailable));
    let until = bench.now.after(duration);
    writes.set(0);
    while bench.now < until {
        bench.now = bench.now.after(STEP * 10);
        bench.poll();
    }
    (bench, stream, writes.get())
}

#[test]
fn write_back_that_fails_is_tried_again_with_growing_pauses_and_is_told() {
    let (mut bench, stream, tries) = tries_while_failing(Duration::from_secs(600));
    // After 1, 2, 4, 8, 16 s, then every 30.
    assert!((20..30).contains(&tries), "{tries} tries in ten minutes");
    let (error, since) = bench.fs.write_back_failure().expect("a failure");
    assert_eq!((error, bench.now.since(since).as_secs() / 10), (&FsError::Unavailable, 59));

    bench.disk.0.borrow_mut().fail(None);
    pass(&mut bench, Duration::from_secs(31));
    assert!(bench.fs.write_back_failure().is_none(), "it is over");
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    assert_eq!(bench.read(stream, 3 * 4096, 4096).unwrap(), [0; 4096]);
}

#[test]
fn a_volume_whose_write_back_fails_asks_for_no_turn_before_it_tries_again() {
    let (bench, _, _) = tries_while_failing(Duration::from_secs(100));
    let next = bench.fs.next_timeout().expect("a time");
    assert!(next > bench.now, "it spins");
}

#[test]
fn writes_that_memory_has_no_room_for_are_refused_while_write_back_fails() {
    let mut bench = Bench::with(64, 256, Config { dirty_bytes: 1 << 20, ..Config::default() });
    let stream = stored_file(&mut bench, 4);
    bench.disk.0.borrow_mut().fail(Some(SpaceError::Unavailable));
    let mut refused = None;
    for at in 0..600_u64 {
        let data = Payload::from(Buf::from([9; 4096].as_slice()));
        match bench.fs.write(at, stream, at * 4096, data, false) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => refused = Some(error),
            Poll::Pending => pass(&mut bench, STEP * 20),
        }
        if let Some(FsEvent::Written { result: Err(error), .. }) =
            bench.events.drain(..).find(|event| matches!(event, FsEvent::Written { result: Err(_), .. }))
        {
            refused = Some(error);
        }
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused, Some(FsError::Unavailable));
}

/// A disk whose machine has no space for blocks that nothing was written to.
struct FullDisk {
    disk: SharedDisk,
    is_full: Rc<Cell<bool>>,
    /// Also refuses changes of existing files.
    refuses_changes: Rc<Cell<bool>>,
    refused: Vec<u64>,
}

impl VirtualDisk for FullDisk {
    fn size(&self) -> SpaceSize {
        self.disk.size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        match request {
            SpaceRequest::Write { class: WriteClass::Fresh, .. } if self.is_full.get() => {
                self.refused.push(token);
            }
            SpaceRequest::Write { class: WriteClass::Overwrite, .. } if self.refuses_changes.get() => {
                self.refused.push(token);
            }
            request => self.disk.submit(token, request),
        }
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        self.disk.poll(out);
        let refused = |token| SpaceCompletion { token, result: Err(SpaceError::NoSpace) };
        out.extend(self.refused.drain(..).map(refused));
    }
}

#[test]
fn new_data_that_finds_no_space_keeps_nobody_from_changing_what_is_there() {
    let (disk, is_full) = (memory_disk(), Rc::new(Cell::new(false)));
    let refuses_changes = Rc::new(Cell::new(false));
    let device = FullDisk {
        disk: disk.clone(),
        is_full: is_full.clone(),
        refuses_changes: refuses_changes.clone(),
        refused: Vec::new(),
    };
    let config = Config { dirty_bytes: 1 << 20, ..Config::default() };
    let mut bench = Bench::over(disk, Box::new(device), config);
    let old = stored_file(&mut bench, 4);
    let new = StreamId::unnamed(bench.create("new"));
    is_full.set(true);
    let mut at = 0;
    let refused = loop {
        match bench.write(new, at, &[7; 65536]) {
            Ok(()) => at += 65536,
            Err(error) => break error,
        }
    };
    assert_eq!((refused, bench.flush(new.file)), (FsError::NoSpace, Err(FsError::NoSpace)));
    assert_eq!(bench.fs.write_back_failure().map(|(error, _)| error), Some(&FsError::NoSpace));

    // Also large changes, which go to new blocks while there are some; and, without a flush, more than
    // memory can hold.
    for round in 0..40_u64 {
        bench.write(old, (round * 7 % 64) << 16, &[round as u8; 65536]).unwrap();
        assert_eq!(bench.flush(old.file), Ok(()), "round {round}");
    }
    for round in 0..64_u64 {
        bench.write(old, round << 16, &[round as u8; 65536]).unwrap();
    }
    assert_eq!(bench.write(new, at, &[7; 65536]), Err(FsError::NoSpace));
    let dirty = bench.fs.statistics().dirty_bytes;
    assert!(dirty <= 2 << 20, "{dirty} bytes wait");

    // If that is refused as well, memory has its bound, and writes are refused.
    refuses_changes.set(true);
    let refused =
        (0..64_u64).map(|round| bench.write(old, round << 16, &[round as u8; 65536])).find_map(Result::err);
    assert_eq!(refused, Some(FsError::NoSpace));
    let dirty = bench.fs.statistics().dirty_bytes;
    assert!(dirty <= (2 << 20) + 65536, "{dirty} bytes wait");
    refuses_changes.set(false);

    is_full.set(false);
    pass(&mut bench, Duration::from_secs(40));
    assert!(bench.fs.write_back_failure().is_none(), "it is over");
    bench.flush_all().unwrap();
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    for round in 0..64_u64 {
        assert_eq!(bench.read(old, round << 16, 65536).unwrap(), [round as u8; 65536], "{round}");
    }
    assert_eq!(bench.read(new, 0, at as u32).unwrap(), vec![7; at as usize]);
}

#[test]
fn a_clone_of_data_that_cannot_be_written_waits_without_trying_by_itself_and_is_answered() {
    let (disk, writes) = (memory_disk(), Rc::new(Cell::new(0)));
    let mut bench = Bench::over(disk.clone(), Box::new(CountedDisk(disk, writes.clone())), Config::default());
    let source = stored_file(&mut bench, 1);
    let target = StreamId::unnamed(bench.create("target"));
    bench.write(target, 0, &[5; 1 << 20]).unwrap();
    bench.flush_all().unwrap();
    let mut written = Written::default();
    assert!(written.write(&mut bench, source, 3, 1));
    bench.disk.0.borrow_mut().fail(Some(SpaceError::Unavailable));
    writes.set(0);
    let begun = bench.now;
    let error = loop {
        match bench.fs.clone_range(source, 0, target, 0, 1 << 20, FileTime(9)) {
            Err(FsError::Miss) => {}
            result => break result.err(),
        }
        bench.now = bench.now.after(STEP);
        bench.poll();
        assert!(bench.now.since(begun) < Duration::from_secs(70), "the clone waits for ever");
    };
    assert_eq!(error, Some(FsError::Unavailable));
    assert!(writes.get() < 40, "{} writes", writes.get());
}
