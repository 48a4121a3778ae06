//! Blocks of one stream in memory: an interval map of buffer slices, clean and dirty.

use ::types::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use sys::Buf;

/// What a segment's bytes are, compared with what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentState {
    Clean,
    /// Newer than what is stored.
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
    pub touched: bool,
    /// The eviction queue knows it by its first block.
    pub queued: bool,
}

impl Segment {
    pub fn blocks(&self) -> u64 {
        (self.data.len() / BLOCK_BYTES) as u64
    }
}

/// What was taken out of the map.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    pub bytes: usize,
    pub dirty_blocks: u64,
    /// A rest that the eviction queue has to learn of.
    pub rest: Option<u64>,
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
            removed.bytes += (cut_to - cut_from) as usize * BLOCK_BYTES;
            if segment.state == SegmentState::Dirty {
                removed.dirty_blocks += cut_to - cut_from;
            }
            if start < cut_from {
                self.put(start, part(&segment, start, start, cut_from, segment.queued));
            }
            if cut_to < end {
                self.put(cut_to, part(&segment, start, cut_to, end, true));
                removed.rest = Some(cut_to);
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

    /// Puts a segment in place of whatever its range held. What was taken out, and whether the eviction queue has to
    /// learn of the segment.
    pub fn insert(&mut self, start: u64, data: Buf, state: SegmentState, sequence: u64) -> (Removed, bool) {
        let queued = self.map.get(&start).is_some_and(|old| old.queued);
        let end = start + (data.len() / BLOCK_BYTES) as u64;
        let removed = self.cut(start, end);
        self.put(start, Segment { data, state, sequence, touched: true, queued: true });
        (removed, !queued)
    }

    /// Removes the segment that begins at this block where it is clean and nobody used it since the last call. Bytes
    /// gone and the number of their last write, or whether the queue keeps it.
    pub fn evict(&mut self, start: u64) -> Result<(usize, u64), bool> {
        let Some(segment) = self.map.get_mut(&start) else { return Err(false) };
        if segment.touched || segment.state != SegmentState::Clean {
            segment.touched = false;
            return Err(true);
        }
        let gone = (segment.data.len(), segment.sequence);
        self.map.remove(&start);
        Ok(gone)
    }

    /// The range in order, in memory or not.
    pub fn gather(&mut self, from: u64, to: u64, mut each: impl FnMut(u64, Piece)) {
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
            segment.touched = true;
            let bytes = (at - start) as usize * BLOCK_BYTES..(end - start) as usize * BLOCK_BYTES;
            each(at, Piece::Cached(segment.data.slice(bytes)));
            at = end;
        }
        if at < to {
            each(at, Piece::Gap(at, to));
        }
    }

    /// Whether a range has data that is newer than what is stored, or on its way there.
    pub fn has_unstored(&self, from: u64, to: u64) -> bool {
        self.within(from, to).any(|(_, segment)| segment.state != SegmentState::Clean)
    }

    /// The first block at or after `from` that is newer than what is stored.
    pub fn first_unstored(&self, from: u64) -> Option<u64> {
        let mut unstored =
            self.within(from, u64::MAX).filter(|(_, segment)| segment.state != SegmentState::Clean);
        unstored.next().map(|(start, _)| (*start).max(from))
    }

    /// Whether a range has dirty segments of writes numbered up to `sequence`.
    pub fn has_dirty_until(&self, from: u64, to: u64, sequence: u64) -> bool {
        let first = self.dirty.range(..from).next_back().copied().unwrap_or(from).min(from);
        self.dirty.range(first..to.max(first)).any(|start| {
            let segment = &self.map[start];
            segment.sequence <= sequence && start + segment.blocks() > from
        })
    }

    /// The first contiguous run of dirty segments that begins at or after `from` and before `to`, at most `blocks_max`
    /// long, ending where `stop` says so: its segments.
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

    /// Dirty segments that begin in a range come to be written by a job.
    pub fn begin_writing(&mut self, starts: impl Iterator<Item = u64>, job: u64) {
        for start in starts {
            if self.dirty.remove(&start)
                && let Some(segment) = self.map.get_mut(&start)
            {
                segment.state = SegmentState::Writing(job);
            }
        }
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

    /// What a job wrote and nobody changed since becomes clean, or dirty again. Blocks concerned.
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
            }
        }
        blocks
    }
}

fn part(segment: &Segment, start: u64, from: u64, to: u64, queued: bool) -> Segment {
    let bytes = (from - start) as usize * BLOCK_BYTES..(to - start) as usize * BLOCK_BYTES;
    Segment {
        data: segment.data.slice(bytes),
        state: segment.state,
        sequence: segment.sequence,
        touched: segment.touched,
        queued,
    }
}
