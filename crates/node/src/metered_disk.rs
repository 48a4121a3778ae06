//! Disks that count and time their operations, and that get a probe when they have no requests.

use disk::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use sys::BufMut;
use types::{LatencyHistogram, Monotonic};

/// The operations of a disk since it was first opened.
#[derive(Debug, Default)]
pub struct Counters {
    pub reads: Cell<u64>,
    pub read_bytes: Cell<u64>,
    pub writes: Cell<u64>,
    pub write_bytes: Cell<u64>,
    pub flushes: Cell<u64>,
    /// Operations that failed or timed out.
    pub errors: Cell<u64>,
    /// Whether the disk timed out or is gone, so that it must be opened anew.
    pub lost: Cell<bool>,
    pub probes: Probes,
    /// Time from each operation's submission to its answer, including errors.
    pub read_latency: RefCell<LatencyHistogram>,
    pub write_latency: RefCell<LatencyHistogram>,
    pub flush_latency: RefCell<LatencyHistogram>,
}

/// Reads of a block of an idle disk, since a pulled disk sends no notice.
///
/// Invariant: at most one probe is in progress.
#[derive(Debug, Default)]
pub struct Probes {
    wanted: Cell<bool>,
    in_work: Cell<bool>,
    /// Number of probes that failed since the last success.
    failed: Cell<u32>,
}

/// Failed probes in a row, at both ends of the disk, that cannot be bad blocks: the disk is
/// unreadable.
const FAILED_MAX: u32 = 2;
/// A probe reads a block of this size.
const PROBE_BYTES: usize = 4096;

impl Probes {
    /// Makes the disk read a block at its next poll.
    pub fn ask(&self) {
        self.wanted.set(!self.in_work.get());
    }

    pub fn is_unreadable(&self) -> bool {
        self.failed.get() >= FAILED_MAX
    }

    fn answered(&self, is_good: bool) {
        self.in_work.set(false);
        self.failed.set(if is_good { 0 } else { self.failed.get() + 1 });
    }
}

impl Counters {
    /// Counts the disk's operations.
    pub fn operations(&self) -> u64 {
        self.reads.get() + self.writes.get() + self.flushes.get()
    }

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
    /// The caller's token; `None`: a probe.
    token: Option<u64>,
    /// `None`: not measured.
    measured: Option<Measured>,
    since: Monotonic,
}

fn add(counter: &Cell<u64>, value: u64) {
    counter.set(counter.get() + value);
}

/// A disk behind counters, which also record each operation's latency.
///
/// Invariant: the disk beneath knows each operation by its place in `in_work`; `free` has the
/// places without an operation.
pub struct MeteredDisk {
    disk: Box<dyn Disk>,
    counters: Rc<Counters>,
    in_work: Vec<Option<InWork>>,
    free: Vec<u32>,
}

impl MeteredDisk {
    /// Takes over counters, which continue those of an earlier opening of the same disk.
    pub fn new(disk: Box<dyn Disk>, counters: Rc<Counters>) -> Self {
        // Answers of an earlier opening never arrive.
        counters.probes.answered(true);
        Self { disk, counters, in_work: Vec::new(), free: Vec::new() }
    }

    /// Reads the first block of the disk, or the last one if that failed.
    fn probe(&mut self) {
        let last = (self.disk.info().size_bytes / PROBE_BYTES as u64).saturating_sub(1);
        let block = if self.counters.probes.failed.get() == 0 { 0 } else { last };
        self.counters.probes.in_work.set(true);
        let place = self.enter(InWork { token: None, measured: None, since: sys::monotonic_now() });
        let into = BufMut::for_overwrite(PROBE_BYTES);
        self.disk.submit(place, DiskOperation::Read { offset: block * PROBE_BYTES as u64, into });
    }

    /// Gives an operation its place, by which the disk knows it.
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

impl Disk for MeteredDisk {
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
        let place = self.enter(InWork { token: Some(token), measured, since: sys::monotonic_now() });
        self.disk.submit(place, operation);
    }

    fn has_news(&self) -> bool {
        self.counters.probes.wanted.get() || self.disk.has_news()
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        if self.counters.probes.wanted.take() {
            self.probe();
        }
        let before = out.len();
        self.disk.poll(out);
        if out.len() == before {
            return;
        }
        let now = sys::monotonic_now();
        let mut at = before;
        while let Some(answer) = out.get_mut(at) {
            let operation = self.in_work[answer.token as usize].take();
            // An answer to another operation would pass for this one's, and nothing of the disk
            // could be trusted.
            let operation = operation.expect("a disk answers each operation once");
            self.free.push(answer.token as u32);
            if let Some(measured) = operation.measured {
                self.counters.record(measured, now.since(operation.since));
            }
            if let Err(error) = &answer.result {
                add(&self.counters.errors, 1);
                if matches!(error, DiskError::TimedOut | DiskError::Gone) {
                    self.counters.lost.set(true);
                }
            }
            match operation.token {
                Some(token) => {
                    answer.token = token;
                    at += 1;
                }
                None => {
                    self.counters.probes.answered(answer.result.is_ok());
                    out.swap_remove(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::crash::{CrashDisk, CrashOptions, Fault, FaultAction, FaultTarget};
    use disk::memory::MemoryDisk;

    #[test]
    fn operations_bytes_and_errors_are_counted() {
        let counters = Rc::new(Counters::default());
        let mut disk = MeteredDisk::new(Box::new(MemoryDisk::new(1 << 20)), counters.clone());
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
        let mut disk = MeteredDisk::new(Box::new(MemoryDisk::new(1 << 20)), counters.clone());
        for round in 1..=3 {
            // Later operations reuse the places.
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

    /// Polls a disk with a probe in progress. Returns its caller's completions.
    fn probed(disk: &mut MeteredDisk) -> Vec<DiskCompletion> {
        disk.counters.probes.ask();
        assert!(disk.has_news());
        let mut answers = Vec::new();
        disk.poll(&mut answers);
        answers
    }

    #[test]
    fn a_probe_is_nobodys_answer_and_no_figure() {
        let counters = Rc::new(Counters::default());
        let mut disk = MeteredDisk::new(Box::new(MemoryDisk::new(1 << 20)), counters.clone());
        assert!(probed(&mut disk).is_empty());
        assert_eq!((counters.operations(), counters.read_latency.borrow().count()), (0, 0));
        // Concurrent with others, which keep their tokens.
        disk.submit(7, DiskOperation::Flush);
        disk.submit(8, DiskOperation::Read { offset: 0, into: BufMut::for_overwrite(4096) });
        let mut tokens: Vec<u64> = probed(&mut disk).iter().map(|answer| answer.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [7, 8]);
        assert!(!counters.lost.get() && !counters.probes.is_unreadable());
    }

    #[test]
    fn a_disk_that_is_gone_is_lost_by_a_probe_and_one_that_cannot_be_read_by_two() {
        for (error, lost_at) in [(DiskError::Gone, 1), (DiskError::TimedOut, 1), (DiskError::Medium(5), 2)] {
            let counters = Rc::new(Counters::default());
            let beneath = CrashDisk::new(CrashOptions::new(1 << 20));
            let mut disk = MeteredDisk::new(Box::new(beneath.clone()), counters.clone());
            let is_out = || counters.lost.get() || counters.probes.is_unreadable();
            // One unreadable block, among readable ones.
            if lost_at > 1 {
                beneath.inject(Fault::nth(FaultTarget::Read, 0, FaultAction::Fail(error.clone())));
                probed(&mut disk);
                probed(&mut disk);
                assert!(!is_out(), "{error:?}");
            }
            beneath.inject(Fault::every(FaultTarget::Read, FaultAction::Fail(error.clone())));
            for probe in 1..=lost_at {
                assert!(!is_out(), "{error:?}");
                assert!(probed(&mut disk).is_empty());
                assert_eq!(is_out(), probe == lost_at, "{error:?} after {probe}");
            }
            // Opening the disk anew decides.
            MeteredDisk::new(Box::new(MemoryDisk::new(1 << 20)), counters.clone());
            assert!(!counters.probes.is_unreadable());
        }
    }
}
