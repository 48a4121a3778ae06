//! Blocks of one stream in memory: an interval map of buffer slices, clean and dirty.

use super::eviction::Queue;
use ::types::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use sys::Buf;

/// The rest of a segment is copied if its buffer keeps at least this many times its length in memory.
const KEEPS_TOO_MUCH: usize = 16;

/// State of a segment's bytes, compared with the stored ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    Clean,
    /// Newer than the stored bytes.
    Dirty,
    /// Being written by this job, unchanged since.
    Writing(u64),
}

/// Whole blocks.
#[derive(Debug)]
pub struct Segment {
    pub data: Buf,
    pub state: SegmentState,
    /// Number of the last write in it.
    pub sequence: u64,
    /// Of a dirty segment, number of its first write that is not stored. Later writes to the same blocks do
    /// not change the wait for that one.
    oldest: u64,
    /// Memory charged for it; of a part that was cut, its share.
    pub charge_bytes: usize,
    /// Blocks from its first one on that were read since it came; all, if it was written.
    read_blocks: u64,
    /// Used again since eviction last came to it.
    touched: bool,
    /// The queue with an entry for the segment's first block, if any.
    queued: Option<Queue>,
}

impl Segment {
    pub fn blocks(&self) -> u64 {
        (self.data.len() / BLOCK_BYTES) as u64
    }

    /// Records a read of blocks counted from the segment's first one, up to `to`. A read that continues the
    /// last one is part of the same use: reading a segment in parts after read-ahead does not count as
    /// using it again.
    pub fn note_read(&mut self, to: u64) {
        if to <= self.read_blocks {
            self.touched = true;
        } else {
            self.read_blocks = to;
        }
    }
}

/// Outcome for a segment that eviction has reached.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// Memory that it took, and the number of its last write.
    Gone { bytes: usize, sequence: u64 },
    /// Used again and now protected; this much of its memory was on probation before.
    Kept { probation_bytes: usize },
    /// Waits to be written.
    Busy,
    /// No such segment, or one of another queue.
    Unknown,
}

/// Segments removed from the map.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Memory, all of it and that on probation.
    pub bytes: usize,
    pub probation_bytes: usize,
    pub dirty_blocks: u64,
    /// Number of the first write in the dirty ones.
    oldest: Option<u64>,
    /// A rest that its queue has to learn of.
    pub rest: Option<(u64, Queue)>,
}

/// Part of a range: in memory, or not.
#[derive(Debug)]
pub enum Piece {
    Cached(Buf),
    /// Blocks from, to.
    Gap(u64, u64),
}

/// Segments by their first block; none overlap.
#[derive(Debug, Default)]
pub struct Segments {
    map: BTreeMap<u64, Segment>,
    dirty: BTreeSet<u64>,
}

impl Segments {
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The segment that covers a block, and its first block.
    pub fn covering(&mut self, block: u64) -> Option<(u64, &mut Segment)> {
        let (start, segment) = self.map.range_mut(..=block).next_back()?;
        (block < start + segment.blocks()).then_some((*start, segment))
    }

    pub fn at(&mut self, start: u64) -> Option<&mut Segment> {
        self.map.get_mut(&start)
    }

    /// Segments that overlap a range, in order.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (&u64, &Segment)> {
        let first = match self.map.range(..from).next_back() {
            Some((start, segment)) if start + segment.blocks() > from => *start,
            _ => from,
        };
        self.map.range(first..to.max(first))
    }

    /// First blocks of segments that overlap a range.
    fn overlapping(&self, from: u64, to: u64) -> SmallVec<[u64; 8]> {
        self.within(from, to).map(|(start, _)| *start).collect()
    }

    /// Takes a range out; segments that reach beyond it are cut.
    pub fn cut(&mut self, from: u64, to: u64) -> Removed {
        let mut removed = Removed::default();
        for start in self.overlapping(from, to) {
            let Some(segment) = self.map.remove(&start) else { continue };
            self.dirty.remove(&start);
            let end = start + segment.blocks();
            let (cut_from, cut_to) = (start.max(from), end.min(to));
            let mut bytes = segment.charge_bytes;
            if segment.state == SegmentState::Dirty {
                removed.dirty_blocks += cut_to - cut_from;
                removed.oldest =
                    Some(removed.oldest.map_or(segment.oldest, |known| known.min(segment.oldest)));
            }
            if start < cut_from {
                let before = part(&segment, start, start, cut_from);
                bytes -= before.charge_bytes;
                self.put(start, before);
            }
            if cut_to < end {
                let behind = part(&segment, start, cut_to, end);
                bytes -= behind.charge_bytes;
                removed.rest = behind.queued.map(|queue| (cut_to, queue));
                self.put(cut_to, behind);
            }
            removed.bytes += bytes;
            if segment.queued == Some(Queue::Probation) {
                removed.probation_bytes += bytes;
            }
        }
        removed
    }

    fn put(&mut self, start: u64, segment: Segment) {
        if segment.state == SegmentState::Dirty {
            self.dirty.insert(start);
        }
        self.map.insert(start, segment);
    }

    /// Replaces the contents of the range by a segment, for `queue`; `read`: its reader has it already.
    /// Returns the parts removed, the segment's queue, and whether that queue needs a new entry for it.
    pub fn insert(
        &mut self,
        start: u64,
        data: Buf,
        state: SegmentState,
        sequence: u64,
        read: bool,
        queue: Queue,
    ) -> (Removed, Queue, bool) {
        let known = self.map.get(&start).and_then(|old| old.queued);
        let queue = known.unwrap_or(queue);
        let blocks = (data.len() / BLOCK_BYTES) as u64;
        let removed = self.cut(start, start + blocks);
        let segment = Segment {
            charge_bytes: charge_bytes(&data),
            data,
            state,
            sequence,
            oldest: removed.oldest.map_or(sequence, |oldest| oldest.min(sequence)),
            read_blocks: if read { blocks } else { 0 },
            touched: false,
            queued: Some(queue),
        };
        self.put(start, segment);
        (removed, queue, known.is_none())
    }

    /// The turn of the segment that begins at this block, in this queue: it goes if it is clean and was not used again.
    pub fn evict(&mut self, start: u64, queue: Queue) -> Fate {
        let Some(segment) = self.map.get_mut(&start).filter(|segment| segment.queued == Some(queue)) else {
            return Fate::Unknown;
        };
        if segment.state != SegmentState::Clean {
            return Fate::Busy;
        }
        if std::mem::take(&mut segment.touched) {
            let probation_bytes = if queue == Queue::Probation { segment.charge_bytes } else { 0 };
            segment.queued = Some(Queue::Protected);
            return Fate::Kept { probation_bytes };
        }
        let fate = Fate::Gone { bytes: segment.charge_bytes, sequence: segment.sequence };
        self.map.remove(&start);
        fate
    }

    /// Whether a queue's entry is valid: its segment exists.
    pub fn is_queued(&self, start: u64, queue: Queue) -> bool {
        self.map.get(&start).is_some_and(|segment| segment.queued == Some(queue))
    }

    /// Visits the range in order, in memory or not; `read`: a client reads it.
    pub fn gather(&mut self, from: u64, to: u64, read: bool, mut each: impl FnMut(u64, Piece)) {
        let mut at = from;
        let first = match self.map.range(..from).next_back() {
            Some((start, segment)) if start + segment.blocks() > from => *start,
            _ => from,
        };
        for (&start, segment) in self.map.range_mut(first..to.max(first)) {
            if start > at {
                each(at, Piece::Gap(at, start));
                at = start;
            }
            let end = (start + segment.blocks()).min(to);
            if read {
                segment.note_read(end - start);
            }
            let bytes = (at - start) as usize * BLOCK_BYTES..(end - start) as usize * BLOCK_BYTES;
            each(at, Piece::Cached(segment.data.slice(bytes)));
            at = end;
        }
        if at < to {
            each(at, Piece::Gap(at, to));
        }
    }

    /// Whether a range has data that is unstored or being stored.
    pub fn has_unstored(&self, from: u64, to: u64) -> bool {
        self.within(from, to).any(|(_, segment)| segment.state != SegmentState::Clean)
    }

    /// The first block at or after `from` that is not stored yet.
    pub fn first_unstored(&self, from: u64) -> Option<u64> {
        let mut unstored =
            self.within(from, u64::MAX).filter(|(_, segment)| segment.state != SegmentState::Clean);
        unstored.next().map(|(start, _)| (*start).max(from))
    }

    /// Whether a range has dirty segments with writes numbered up to `sequence`.
    pub fn has_dirty_until(&self, from: u64, to: u64, sequence: u64) -> bool {
        let first = self.dirty.range(..from).next_back().copied().unwrap_or(from).min(from);
        self.dirty.range(first..to.max(first)).any(|start| {
            let segment = &self.map[start];
            segment.oldest <= sequence && start + segment.blocks() > from
        })
    }

    /// Returns the first contiguous run of dirty segments that begins at or after `from` and before `to`,
    /// of at most `blocks_max` blocks and before the first segment that `blocked` rejects.
    pub fn dirty_run(
        &self,
        from: u64,
        to: u64,
        blocks_max: u64,
        blocked: impl Fn(u64, u64) -> bool,
    ) -> Vec<(u64, Buf)> {
        let mut out: Vec<(u64, Buf)> = Vec::new();
        let (mut blocks, mut next) = (0, None);
        let first = self.dirty.range(..from).next_back().copied();
        let first = first.filter(|start| start + self.map[start].blocks() > from).unwrap_or(from);
        for start in self.dirty.range(first..to.max(first)) {
            let segment = &self.map[start];
            if blocked(*start, start + segment.blocks()) {
                if out.is_empty() {
                    continue;
                }
                break;
            }
            if next.is_some_and(|next| next != *start)
                || (blocks > 0 && blocks + segment.blocks() > blocks_max)
            {
                break;
            }
            out.push((*start, segment.data.clone()));
            blocks += segment.blocks();
            next = Some(start + segment.blocks());
        }
        out
    }

    /// Marks dirty segments that begin in a range as being written by a job.
    pub fn begin_writing(&mut self, starts: impl Iterator<Item = u64>, job: u64) {
        for start in starts {
            if self.dirty.remove(&start)
                && let Some(segment) = self.map.get_mut(&start)
            {
                segment.state = SegmentState::Writing(job);
            }
        }
    }

    /// The number of the oldest write that is dirty in the segments that begin at these blocks.
    pub fn oldest_of(&self, starts: impl Iterator<Item = u64>) -> u64 {
        starts.filter_map(|start| self.map.get(&start)).map(|segment| segment.oldest).min().unwrap_or(0)
    }

    /// The dirty segment that begins at a block becomes clean. Blocks concerned.
    pub fn make_clean(&mut self, start: u64) -> u64 {
        if !self.dirty.remove(&start) {
            return 0;
        }
        self.map.get_mut(&start).map_or(0, |segment| {
            segment.state = SegmentState::Clean;
            segment.blocks()
        })
    }

    /// Ends a job's writing: segments that nobody changed since become clean, or dirty again. Returns the
    /// number of their blocks. A segment written over meanwhile inherits the age of blocks that the job
    /// failed to store.
    pub fn end_writing(&mut self, from: u64, to: u64, job: u64, stored: bool) -> u64 {
        let mut blocks = 0;
        for start in self.overlapping(from, to) {
            let Some(segment) = self.map.get_mut(&start) else { continue };
            if segment.state == SegmentState::Writing(job) {
                segment.state = if stored { SegmentState::Clean } else { SegmentState::Dirty };
                blocks += segment.blocks();
                if !stored {
                    self.dirty.insert(start);
                }
            } else if !stored && segment.state == SegmentState::Dirty {
                segment.oldest = 0;
            }
        }
        blocks
    }
}

/// Memory that a segment is charged with: that of its buffer, as far as the buffer is not shared with
/// many others.
fn charge_bytes(data: &Buf) -> usize {
    data.retained_bytes().clamp(data.len(), 2 * data.len())
}

fn part(segment: &Segment, start: u64, from: u64, to: u64) -> Segment {
    let bytes = (from - start) as usize * BLOCK_BYTES..(to - start) as usize * BLOCK_BYTES;
    let charge_bytes = (segment.charge_bytes as u64 * (to - from) / segment.blocks()) as usize;
    let slice = segment.data.slice(bytes);
    let keeps_too_much = slice.retained_bytes() >= slice.len() * KEEPS_TOO_MUCH;
    Segment {
        data: if keeps_too_much { Buf::from(&slice[..]) } else { slice },
        charge_bytes,
        read_blocks: segment.read_blocks.saturating_sub(from - start).min(to - from),
        ..*segment
    }
}
