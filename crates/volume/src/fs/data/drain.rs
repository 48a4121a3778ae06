//! How much may wait to be written back: what is known to be written soon enough for the promise of five seconds.
//!
//! Owns a measure of write-back's speed, taken while something is always being written. Never reads a clock.

use super::BLOCK;
use ::types::Monotonic;
use std::time::Duration;

/// Bytes that may wait to be written while nothing is known of how fast they go. Once that is known: what goes in [`DRAIN_TIME`], so
/// that the rest of the five seconds is enough, but so many at least.
const DIRTY_BYTES_UNMEASURED: u64 = 256 << 20;
const DIRTY_BYTES_LEAST: u64 = 128 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Write-back is measured over at least so long.
const MEASURED_TIME: Duration = Duration::from_millis(250);

/// How fast blocks are written back, while some always are.
#[derive(Debug, Default)]
pub struct Drain {
    since: Monotonic,
    blocks: u64,
    /// Blocks in [`DRAIN_TIME`]; zero: not known.
    blocks_known: u64,
}

impl Drain {
    /// Writing begins after a pause.
    pub fn begin(&mut self, now: Monotonic) {
        (self.since, self.blocks) = (now, 0);
    }

    /// Bytes that may wait, `most` at most.
    pub fn bytes_max(&self, most: u64) -> u64 {
        match self.blocks_known {
            0 => DIRTY_BYTES_UNMEASURED.min(most),
            known => (known * BLOCK).clamp(DIRTY_BYTES_LEAST.min(most), most),
        }
    }

    /// Blocks are written.
    pub fn wrote(&mut self, blocks: u64, now: Monotonic) {
        self.blocks += blocks;
        let passed = now.since(self.since);
        if passed >= MEASURED_TIME {
            let found = (u128::from(self.blocks) * DRAIN_TIME.as_nanos() / passed.as_nanos()) as u64;
            self.blocks_known =
                if self.blocks_known == 0 { found } else { self.blocks_known.midpoint(found) };
            self.begin(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 2 << 30;

    /// Writes `blocks` every 10 ms for a second.
    fn drained(blocks: u64) -> Drain {
        let mut drain = Drain::default();
        let mut now = Monotonic(1);
        drain.begin(now);
        for _ in 0..100 {
            now = now.after(Duration::from_millis(10));
            drain.wrote(blocks, now);
        }
        drain
    }

    #[test]
    fn as_much_may_wait_as_is_written_in_a_second_once_that_is_known() {
        assert_eq!(Drain::default().bytes_max(MOST), DIRTY_BYTES_UNMEASURED);
        // 1.6 GB/s, 10 MB/s, and more than there may ever be.
        assert_eq!(drained(4096).bytes_max(MOST), 409_600 * BLOCK);
        assert_eq!(drained(25).bytes_max(MOST), DIRTY_BYTES_LEAST);
        assert_eq!(drained(1 << 20).bytes_max(MOST), MOST);
        assert_eq!(drained(25).bytes_max(1 << 20), 1 << 20);
    }

    #[test]
    fn pauses_between_writes_are_not_measured() {
        let mut drain = Drain::default();
        let mut now = Monotonic(1);
        for _ in 0..100 {
            now = now.after(Duration::from_secs(1));
            drain.begin(now);
            now = now.after(Duration::from_millis(10));
            drain.wrote(4096, now);
        }
        assert_eq!(drain.bytes_max(MOST), DIRTY_BYTES_UNMEASURED);
    }
}
