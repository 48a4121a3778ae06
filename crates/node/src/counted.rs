//! Disks that count what they are asked.

use disk::{Disk, DiskCompletion, DiskError, DiskInfo, DiskOperation};
use std::cell::Cell;
use std::rc::Rc;

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
}

fn add(counter: &Cell<u64>, value: u64) {
    counter.set(counter.get() + value);
}

/// A disk behind counters.
pub struct CountedDisk {
    disk: Box<dyn Disk>,
    counters: Rc<Counters>,
}

impl CountedDisk {
    /// Takes counters that go on from an earlier opening of the same disk.
    pub fn new(disk: Box<dyn Disk>, counters: Rc<Counters>) -> Self {
        Self { disk, counters }
    }
}

impl Disk for CountedDisk {
    fn info(&self) -> &DiskInfo {
        self.disk.info()
    }

    fn submit(&mut self, token: u64, operation: DiskOperation) {
        match &operation {
            DiskOperation::Read { into, .. } => {
                add(&self.counters.reads, 1);
                add(&self.counters.read_bytes, into.len() as u64);
            }
            DiskOperation::Write { data, .. } => {
                add(&self.counters.writes, 1);
                add(&self.counters.write_bytes, data.len() as u64);
            }
            DiskOperation::Flush => add(&self.counters.flushes, 1),
            DiskOperation::Discard { .. } => {}
        }
        self.disk.submit(token, operation);
    }

    fn has_news(&self) -> bool {
        self.disk.has_news()
    }

    fn poll(&mut self, out: &mut Vec<DiskCompletion>) {
        let before = out.len();
        self.disk.poll(out);
        for answer in &out[before..] {
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
}
