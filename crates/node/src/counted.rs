//! Disks that count and time what they are asked.

use disk::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{LatencyHistogram, Monotonic};

/// The operations that a disk was asked for since it was first opened.
#[derive(Debug, Default)]
pub struct Counters {
    pub reads: Cell<u64>,
    pub read_bytes: Cell<u64>,
    pub writes: Cell<u64>,
    pub write_bytes: Cell<u64>,
    pub flushes: Cell<u64>,
    /// Operations answered with an error, or not in time.
    pub errors: Cell<u64>,
    /// The disk did not answer in time, or is gone: it has to be opened anew.
    pub lost: Cell<bool>,
    /// From each operation's submission to its answer, also if that was an error.
    pub read_latency: RefCell<LatencyHistogram>,
    pub write_latency: RefCell<LatencyHistogram>,
    pub flush_latency: RefCell<LatencyHistogram>,
}

impl Counters {
    fn record(&self, measured: Measured, taken: Duration) {
        let histogram = match measured {
            Measured::Read => &self.read_latency,
            Measured::Write => &self.write_latency,
            Measured::Flush => &self.flush_latency,
        };
        histogram.borrow_mut().record(taken);
    }
}

#[derive(Debug, Clone, Copy)]
enum Measured {
    Read,
    Write,
    Flush,
}

/// An operation that the disk works on.
#[derive(Debug, Clone, Copy)]
struct InWork {
    /// The caller's.
    token: u64,
    /// `None`: it is not measured.
    measured: Option<Measured>,
    since: Monotonic,
}

fn add(counter: &Cell<u64>, value: u64) {
    counter.set(counter.get() + value);
}

/// A disk behind counters, which are also told how long each operation took.
///
/// Invariant: the disk beneath knows each operation by its place in `in_work`; the places that no operation has are those in `free`.
pub struct CountedDisk {
    disk: Box<dyn Disk>,
    counters: Rc<Counters>,
    in_work: Vec<Option<InWork>>,
    free: Vec<u32>,
}

impl CountedDisk {
    /// Takes counters that go on from an earlier opening of the same disk.
    pub fn new(disk: Box<dyn Disk>, counters: Rc<Counters>) -> Self {
        Self { disk, counters, in_work: Vec::new(), free: Vec::new() }
    }

    /// Gives an operation a place, by which the disk knows it.
    fn enter(&mut self, operation: InWork) -> u64 {
        match self.free.pop() {
            Some(place) => {
                self.in_work[place as usize] = Some(operation);
                place.into()
            }
            None => {
                self.in_work.push(Some(operation));
                self.in_work.len() as u64 - 1
            }
        }
    }
}

impl Disk for CountedDisk {
    fn info(&self) -> &DiskInfo {
        self.disk.info()
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        let measured = match &operation {
            DiskOperation::Read { into, .. } => {
                add(&self.counters.reads, 1);
                add(&self.counters.read_bytes, into.len() as u64);
                Some(Measured::Read)
            }
            DiskOperation::Write { data, .. } => {
                add(&self.counters.writes, 1);
                add(&self.counters.write_bytes, data.len() as u64);
                Some(Measured::Write)
            }
            DiskOperation::Flush => {
                add(&self.counters.flushes, 1);
                Some(Measured::Flush)
            }
            DiskOperation::Discard { .. } => None,
        };
        let place = self.enter(InWork { token, measured, since: sys::monotonic_now() });
        self.disk.submit(place, operation);
    }

    fn has_news(&self) -> bool {
        self.disk.has_news()
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        let before = out.len();
        self.disk.poll(out);
        if out.len() == before {
            return;
        }
        let now = sys::monotonic_now();
        for answer in &mut out[before..] {
            let operation = self.in_work[answer.token as usize].take();
            // An answer to another operation would be taken for this one's: nothing of the disk could be believed.
            let operation = operation.expect("a disk answers each operation once");
            self.free.push(answer.token as u32);
            answer.token = operation.token;
            if let Some(measured) = operation.measured {
                self.counters.record(measured, now.since(operation.since));
            }
            if let Err(error) = &answer.result {
                add(&self.counters.errors, 1);
                if matches!(error, DiskError::TimedOut | DiskError::Gone) {
                    self.counters.lost.set(true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::memory::MemoryDisk;
    use sys::BufMut;

    #[test]
    fn operations_bytes_and_errors_are_counted() {
        let counters = Rc::new(Counters::default());
        let mut disk = CountedDisk::new(Box::new(MemoryDisk::new(1 << 20)), counters.clone());
        disk.submit(1, DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(8192) });
        let data = BufMut::zeroed(4096).freeze().into();
        disk.submit(2, DiskOperation::Write { offset: 0, data, durable: true });
        disk.submit(3, DiskOperation::Read { offset: 1, into: BufMut::for_overwrite(4096) });
        disk.submit(4, DiskOperation::Flush);
        disk.poll(&mut Vec::new());
        let counted = (counters.reads.get(), counters.read_bytes.get(), counters.writes.get());
        assert_eq!(counted, (2, 12_288, 1));
        assert_eq!((counters.write_bytes.get(), counters.flushes.get(), counters.errors.get()), (4096, 1, 1));
    }

    #[test]
    fn operations_are_timed_by_kind_and_answers_carry_the_tokens_of_the_caller() {
        let counters = Rc::new(Counters::default());
        let mut disk = CountedDisk::new(Box::new(MemoryDisk::new(1 << 20)), counters.clone());
        for round in 1..=3 {
            // Places are used again, by whatever comes next.
            for (token, operation) in [
                (u64::MAX - round, DiskOperation::Flush),
                (round, DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(4096) }),
                (1000 + round, DiskOperation::Discard { offset: 0, len_bytes: 4096 }),
            ] {
                disk.submit(token, operation);
            }
            let mut answers = Vec::new();
            disk.poll(&mut answers);
            let mut tokens: Vec<u64> = answers.iter().map(|answer| answer.token).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, [round, 1000 + round, u64::MAX - round]);
        }
        let timed = [&counters.read_latency, &counters.write_latency, &counters.flush_latency];
        assert_eq!(timed.map(|histogram| histogram.borrow().count()), [3, 0, 3]);
        assert_eq!(disk.in_work.len(), 3, "places are used again");
    }
}
