//! Discards freed blocks in the background, before they are allocated again.
//!
//! A disk writes data in place, beside the record that publishes them, only to unwritten blocks: those
//! whose checksums say so. Other blocks need a record of that first, and the writer would wait for it.
//! So freed blocks are discarded when nobody waits: when the transaction that freed them is durable and
//! no read of them is under way. They can be reserved once the discard is done or refused (the disk
//! then does it with the write). None of this is stored: after a crash the next writer pays for it.
//!
//! Blocks gather for a short time, so that many share a request and a batch of each disk's journal.

use std::time::Duration;

use ::types::{Lba, Monotonic};

use super::meta::BlockRun;

/// Limit of blocks being discarded, 64 MiB: blocks freed beyond it can be reserved immediately.
const BLOCKS_MAX: u64 = 16_384;

/// Number of blocks that starts a discard immediately: 4 MiB.
const BLOCKS_GOAL: u64 = 1024;

/// Shorter runs, below 32 KiB, are not discarded: writes there go through the disks' journals.
const RUN_BLOCKS_MIN: u32 = 8;

/// Time for which blocks gather.
const DELAY: Duration = Duration::from_millis(20);

/// Freed blocks that cannot be reserved yet.
///
/// A run is in `waiting`, or in `under_way` while a request for it is. `blocks` counts both.
#[derive(Debug, Default)]
pub struct BackgroundTrim {
    waiting: Vec<BlockRun>,
    under_way: Vec<BlockRun>,
    blocks: u64,
    /// Since when the first one waits.
    since: Option<Monotonic>,
}

impl BackgroundTrim {
    /// Blocks that are free, and cannot be reserved yet.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Returns all runs, waiting or being discarded.
    pub fn runs(&self) -> impl Iterator<Item = &BlockRun> {
        self.waiting.iter().chain(&self.under_way)
    }

    /// Takes a run. Returns whether there is space for it.
    pub fn add(&mut self, run: BlockRun, now: Monotonic) -> bool {
        if self.blocks + u64::from(run.blocks) > BLOCKS_MAX {
            return false;
        }
        self.blocks += u64::from(run.blocks);
        self.waiting.push(run);
        self.since.get_or_insert(now);
        true
    }

    /// When [`Self::take_due`] wants to be called.
    pub fn timeout(&self) -> Option<Monotonic> {
        self.since.map(|since| since.after(DELAY))
    }

    /// Takes out waiting runs whose time has come: runs to discard, of at most `blocks_max`, for which
    /// [`Self::ended`] has to follow; and runs that can be reserved as they are.
    pub fn take_due(&mut self, now: Monotonic, blocks_max: u32) -> (Vec<BlockRun>, Vec<BlockRun>) {
        let waiting: u64 = self.waiting.iter().map(|run| u64::from(run.blocks)).sum();
        if waiting < BLOCKS_GOAL && self.timeout().is_none_or(|at| now < at) {
            return (Vec::new(), Vec::new());
        }
        self.since = None;
        let merged = merged(std::mem::take(&mut self.waiting), blocks_max);
        let (long, short): (Vec<_>, Vec<_>) =
            merged.into_iter().partition(|run| run.blocks >= RUN_BLOCKS_MIN);
        self.blocks -= short.iter().map(|run| u64::from(run.blocks)).sum::<u64>();
        self.under_way.extend(&long);
        (long, short)
    }

    /// Takes out the waiting runs, when space is short.
    pub fn take_waiting(&mut self) -> Vec<BlockRun> {
        self.since = None;
        self.blocks -= self.waiting.iter().map(|run| u64::from(run.blocks)).sum::<u64>();
        std::mem::take(&mut self.waiting)
    }

    /// Notes that a run was discarded, or was not.
    pub fn ended(&mut self, run: BlockRun) {
        let at = self.under_way.iter().position(|known| *known == run);
        debug_assert!(at.is_some(), "each request ends once");
        if let Some(at) = at {
            self.under_way.swap_remove(at);
            self.blocks -= u64::from(run.blocks);
        }
    }
}

/// The runs in order, those that follow each other as one, none longer than `blocks_max`.
fn merged(mut runs: Vec<BlockRun>, blocks_max: u32) -> Vec<BlockRun> {
    runs.sort_unstable_by_key(|run| run.lba.0);
    let mut merged: Vec<BlockRun> = Vec::with_capacity(runs.len());
    for mut run in runs {
        if let Some(last) = merged.last_mut()
            && Lba(last.lba.0 + u64::from(last.blocks)) == run.lba
        {
            let more = run.blocks.min(blocks_max.saturating_sub(last.blocks));
            last.blocks += more;
            run = behind(run, more);
        }
        while run.blocks > 0 {
            let blocks = run.blocks.min(blocks_max.max(1));
            merged.push(BlockRun { blocks, ..run });
            run = behind(run, blocks);
        }
    }
    merged
}

/// Rest of a run without its first blocks.
fn behind(run: BlockRun, blocks: u32) -> BlockRun {
    BlockRun { lba: Lba(run.lba.0 + u64::from(blocks)), blocks: run.blocks - blocks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lba: u64, blocks: u32) -> BlockRun {
        BlockRun { lba: Lba(lba), blocks }
    }

    #[test]
    fn freed_blocks_gather_and_short_runs_are_left_as_they_are() {
        let (start, mut preparing) = (Monotonic::default(), BackgroundTrim::default());
        for freed in [run(8, 4), run(100, 7), run(4, 4), run(200, 16)] {
            assert!(preparing.add(freed, start));
        }
        assert_eq!(preparing.take_due(start, 512), (Vec::new(), Vec::new()));
        let due = preparing.timeout().unwrap();
        let (long, short) = preparing.take_due(due, 512);
        assert_eq!((long, short), (vec![run(4, 8), run(200, 16)], vec![run(100, 7)]));
        assert_eq!((preparing.blocks(), preparing.timeout()), (24, None));
        assert!(preparing.add(run(300, 1000), due) && preparing.add(run(1300, 30), due));
        assert_eq!(preparing.take_due(due, 512).0, vec![run(300, 512), run(812, 512)]);
        for ended in [run(4, 8), run(300, 512), run(200, 16), run(812, 512)] {
            preparing.ended(ended);
        }
        assert!(preparing.is_empty());
    }

    #[test]
    fn what_is_freed_beyond_a_limit_does_not_wait() {
        let mut preparing = BackgroundTrim::default();
        assert!(preparing.add(run(0, BLOCKS_MAX as u32), Monotonic::default()));
        assert!(!preparing.add(run(1 << 20, 8), Monotonic::default()));
        assert_eq!(preparing.take_waiting(), vec![run(0, BLOCKS_MAX as u32)]);
        assert!(preparing.is_empty() && preparing.timeout().is_none());
    }
}
