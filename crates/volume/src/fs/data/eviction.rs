//! Order of eviction of cached blocks: two queues, so that one pass over a huge file does not evict
//! blocks in frequent use.
//!
//! New blocks are on probation. Used again there, they become protected. Unused, they are evicted, and
//! their name is kept for a while: blocks read again under such a name are protected immediately (the
//! scheme is that of S3-FIFO). Probation is emptied first while it is larger than its share. Owns the
//! order only; the blocks are the streams'.

use std::collections::{HashSet, VecDeque};

/// The queue in which a segment waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Probation,
    Protected,
}

/// Share of the cache that probation has at least, while the rest is protected: blocks read ahead must
/// live to be read.
const PROBATION_DIVISOR: usize = 4;

/// Segments that wait to be written passed in one queue, before the other is examined.
const PASSED_MAX: usize = 64;

/// Least number of names remembered, at any size of the cache.
const NAMES_LEAST: usize = 1024;

/// A segment by its stream's place and its first block.
type Entry = (usize, u64);

/// The order in which segments go, and names of those that went.
#[derive(Debug, Default)]
pub struct Eviction {
    probation: VecDeque<Entry>,
    protected: VecDeque<Entry>,
    /// Memory on probation.
    probation_bytes: usize,
    /// Names of segments evicted from probation lately, oldest first.
    gone: VecDeque<u64>,
    names: HashSet<u64>,
    /// Segments passed in a row, all of which wait to be written.
    passed: usize,
}

impl Eviction {
    pub fn len(&self) -> usize {
        self.probation.len() + self.protected.len()
    }

    pub fn push(&mut self, queue: Queue, entry: Entry) {
        self.queue(queue).push_back(entry);
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<Entry> {
        match queue {
            Queue::Probation => &mut self.probation,
            Queue::Protected => &mut self.protected,
        }
    }

    pub fn came(&mut self, queue: Queue, bytes: usize) {
        if queue == Queue::Probation {
            self.probation_bytes += bytes;
        }
    }

    pub fn left(&mut self, queue: Queue, bytes: usize) {
        if queue == Queue::Probation {
            self.probation_bytes -= bytes;
        }
    }

    /// Requeues the entry that [`Eviction::next`] named: it waits to be written.
    pub fn pass(&mut self, queue: Queue, entry: Entry) {
        self.passed += 1;
        self.push(queue, entry);
    }

    /// Protects the entry that [`Eviction::next`] named: it was used again.
    pub fn keep(&mut self, entry: Entry, probation_bytes: usize) {
        self.passed = 0;
        self.probation_bytes -= probation_bytes;
        self.push(Queue::Protected, entry);
    }

    /// Takes the next segment to evict out of its queue, in a cache of `bytes_max`.
    pub fn next(&mut self, bytes_max: usize) -> Option<(Queue, Entry)> {
        let too_long = self.probation_bytes > bytes_max / PROBATION_DIVISOR;
        let turn = (self.passed / PASSED_MAX).is_multiple_of(2);
        let first = if too_long == turn { Queue::Probation } else { Queue::Protected };
        let second = if first == Queue::Probation { Queue::Protected } else { Queue::Probation };
        match self.queue(first).pop_front() {
            Some(entry) => Some((first, entry)),
            None => Some((second, self.queue(second).pop_front()?)),
        }
    }

    /// Records that the entry that [`Eviction::next`] named was evicted. From probation its name is
    /// remembered.
    pub fn gone(&mut self, queue: Queue, name: u64) {
        self.passed = 0;
        if queue == Queue::Probation && self.names.insert(name) {
            self.gone.push_back(name);
        }
        while self.gone.len() > self.len().max(NAMES_LEAST) {
            if let Some(oldest) = self.gone.pop_front() {
                self.names.remove(&oldest);
            }
        }
    }

    /// The queue in which something of this name begins.
    pub fn place_of(&self, name: u64) -> Queue {
        if self.names.contains(&name) { Queue::Protected } else { Queue::Probation }
    }

    /// Drops entries whose segments are gone.
    pub fn retain(&mut self, mut stands: impl FnMut(Queue, Entry) -> bool) {
        for queue in [Queue::Probation, Queue::Protected] {
            let mut seen = HashSet::new();
            self.queue(queue).retain(|entry| stands(queue, *entry) && seen.insert(*entry));
        }
    }
}

/// A segment's name, which outlives it: a mix of file, stream and first block.
pub fn name(file: u64, stream: u32, block: u64) -> u64 {
    let mixed = (file ^ u64::from(stream).rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ block).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29) ^ mixed
}
