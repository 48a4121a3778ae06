//! Limit of dirty bytes: as many as write-back surely stores within the promise of five seconds.
//!
//! Owns a measure of write-back's speed, taken while some job is always writing. Never reads a clock.

use super::BLOCK;
use ::types::Monotonic;
use std::time::Duration;

/// Limit of dirty bytes while write-back's speed is unknown. Once it is known, the limit is the bytes
/// of [`DRAIN_TIME`], which with the age at which write-back begins and the journal's delay makes five
/// seconds; but at least the longest write.
const DIRTY_BYTES_UNMEASURED: u64 = 16 << 20;
const DIRTY_BYTES_LEAST: u64 = 8 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Write-back is measured over at least this time, or over this number of blocks in a shorter one: bursts do not last.
const MEASURED_TIME: Duration = Duration::from_millis(250);
const BURST_TIME: Duration = Duration::from_millis(25);
const BURST_BLOCKS: u64 = DIRTY_BYTES_UNMEASURED / BLOCK;

/// How fast blocks are written back, while some always are.
#[derive(Debug, Default)]
pub struct Drain {
    since: Monotonic,
    blocks: u64,
    /// There was not always enough to write.
    idle: bool,
    /// Blocks in [`DRAIN_TIME`]; zero: unknown.
    blocks_known: u64,
}

impl Drain {
    /// Writing begins after a pause.
    pub fn begin(&mut self, now: Monotonic) {
        (self.since, self.blocks, self.idle) = (now, 0, false);
    }

    /// Returns how many bytes may wait, at most `most`.
    pub fn bytes_max(&self, most: u64) -> u64 {
        match self.blocks_known {
            0 => DIRTY_BYTES_UNMEASURED.min(most),
            known => (known * BLOCK).clamp(DIRTY_BYTES_LEAST.min(most), most),
        }
    }

    /// Blocks are written; `left` are under way or wait.
    pub fn wrote(&mut self, blocks: u64, left: u64, now: Monotonic) {
        self.blocks += blocks;
        self.idle |= left * BLOCK < DIRTY_BYTES_LEAST;
        let passed = now.since(self.since);
        if passed >= MEASURED_TIME || (passed >= BURST_TIME && self.blocks >= BURST_BLOCKS) {
            let found = (u128::from(self.blocks) * DRAIN_TIME.as_nanos() / passed.as_nanos()) as u64;
            if self.blocks_known == 0 {
                self.blocks_known = found;
            } else if found > self.blocks_known || !self.idle {
                // With few writes at a time, the measured rate is a lower bound.
                self.blocks_known = self.blocks_known.midpoint(found);
            }
            self.begin(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 8 << 30;
    const MUCH: u64 = 1 << 20;

    /// Writes `blocks` every 10 ms for a second, while `left` are still to be written.
    fn write_on(drain: &mut Drain, blocks: u64, left: u64) {
        let mut now = Monotonic(1);
        drain.begin(now);
        for _ in 0..100 {
            now = now.after(Duration::from_millis(10));
            drain.wrote(blocks, left, now);
        }
    }

    fn drained(blocks: u64) -> Drain {
        let mut drain = Drain::default();
        write_on(&mut drain, blocks, MUCH);
        drain
    }

    #[test]
    fn as_much_may_wait_as_is_written_in_two_seconds_once_that_is_known() {
        assert_eq!(Drain::default().bytes_max(MOST), DIRTY_BYTES_UNMEASURED);
        // 1.6 GB/s, 20 MB/s, 4 MB/s, and more than there may ever be.
        assert_eq!(drained(4096).bytes_max(MOST), 819_200 * BLOCK);
        assert_eq!(drained(50).bytes_max(MOST), 10_000 * BLOCK);
        assert_eq!(drained(10).bytes_max(MOST), DIRTY_BYTES_LEAST);
        assert_eq!(drained(1 << 20).bytes_max(MOST), MOST);
        assert_eq!(drained(25).bytes_max(1 << 20), 1 << 20);
    }

    #[test]
    fn few_writes_at_a_time_do_not_make_the_disk_a_slow_one() {
        let mut drain = drained(4096);
        write_on(&mut drain, 25, 2000);
        assert_eq!(drain.bytes_max(MOST), 819_200 * BLOCK);
        write_on(&mut drain, 25, MUCH);
        assert!(drain.bytes_max(MOST) < 400_000 * BLOCK);
    }

    #[test]
    fn a_burst_that_a_fast_disk_has_soon_written_is_measured() {
        let mut drain = Drain::default();
        drain.begin(Monotonic(1));
        drain.wrote(BURST_BLOCKS, MUCH, Monotonic(1).after(BURST_TIME));
        assert_eq!(drain.bytes_max(MOST), BURST_BLOCKS * BLOCK * 80);
    }

    #[test]
    fn pauses_between_writes_are_not_measured() {
        let mut drain = Drain::default();
        let mut now = Monotonic(1);
        for _ in 0..100 {
            now = now.after(Duration::from_secs(1));
            drain.begin(now);
            now = now.after(Duration::from_millis(10));
            drain.wrote(4096, MUCH, now);
        }
        assert_eq!(drain.bytes_max(MOST), DIRTY_BYTES_UNMEASURED);
    }
}
