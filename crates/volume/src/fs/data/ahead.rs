//! Sequential readers of one stream, and how far to read ahead of each.
//!
//! Owns positions only and never reads. Promises: a reader is recognised at its second read in order
//! (its first if that begins the stream), with several readers and slightly reordered requests; the
//! distance doubles while the reader continues.

/// Number of readers distinguished.
const READERS_MAX: usize = 4;

/// First distance in blocks: 128 KiB, or four reads if that is more.
const WINDOW_FIRST_BLOCKS: u64 = 32;

#[derive(Debug, Clone, Copy)]
struct Reader {
    /// Behind its last read.
    next: u64,
    /// End of the requested range.
    ahead_end: u64,
    /// Zero: not known to be sequential.
    window_blocks: u64,
}

/// The last reader is the one that read last.
#[derive(Debug, Default)]
pub struct Readers(Vec<Reader>);

impl Readers {
    /// Records a read of `from..to` in a stream of `last` blocks. Returns the range to read ahead, at most
    /// `window_max` blocks from the read's end.
    pub fn note(&mut self, from: u64, to: u64, last: u64, window_max: u64) -> Option<(u64, u64)> {
        let len = to.saturating_sub(from);
        let slack = 4 * len;
        let known = self.0.iter().position(|reader| reader.next.abs_diff(from) <= slack);
        let Some(at) = known else {
            if from == 0 && to >= last {
                return None;
            }
            if self.0.len() >= READERS_MAX {
                self.0.remove(0);
            }
            let window_blocks = if from == 0 { first_window(len) } else { 0 };
            self.0.push(Reader { next: to, ahead_end: to, window_blocks });
            return self.0.last_mut().and_then(|reader| reader.ask(last, window_max));
        };
        self.0[at..].rotate_left(1);
        let reader = self.0.last_mut()?;
        if reader.window_blocks == 0 {
            reader.window_blocks = first_window(len);
        }
        reader.next = reader.next.max(to);
        reader.ahead_end = reader.ahead_end.max(reader.next);
        reader.ask(last, window_max)
    }

    /// Withdraws the last answer of [`Readers::note`] from `start` on: those blocks are not read ahead.
    pub fn take_back(&mut self, start: u64) {
        if let Some(reader) = self.0.last_mut() {
            reader.ahead_end = reader.ahead_end.min(start);
        }
    }
}

impl Reader {
    fn ask(&mut self, last: u64, window_max: u64) -> Option<(u64, u64)> {
        let window = self.window_blocks.min(window_max);
        let there = self.ahead_end - self.next;
        // In large steps: again when half of it is used up.
        if there * 2 > window || window == 0 {
            return None;
        }
        let (start, end) = (self.ahead_end, (self.next + window).min(last));
        if start >= end {
            return None;
        }
        self.ahead_end = end;
        self.window_blocks = (window * 2).min(window_max);
        Some((start, end))
    }
}

fn first_window(len_blocks: u64) -> u64 {
    (4 * len_blocks).max(WINDOW_FIRST_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: u64 = 1 << 20;

    #[test]
    fn a_sequential_reader_is_read_ahead_of_without_gaps_and_ever_further() {
        let mut readers = Readers::default();
        let (mut ahead, mut most) = (16, 0);
        for read in 0..1000 {
            let (from, to) = (read * 16, read * 16 + 16);
            if let Some((start, end)) = readers.note(from, to, LAST, 2048) {
                assert_eq!(start, ahead, "neither a gap nor anything twice");
                assert!(end <= to + 2048);
                (ahead, most) = (end, most.max(end - start));
            }
            assert!(ahead > to, "the reader catches up at {to}");
        }
        assert!(most >= 1024, "only {most} blocks at a time");
    }

    #[test]
    fn scattered_reads_are_not_read_ahead_of() {
        let mut readers = Readers::default();
        let mut state = 1_u64;
        for _ in 0..1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let from = 1 + (state >> 33) * 64 % (LAST - 64);
            assert_eq!(readers.note(from, from + 1, LAST, 2048), None, "a read at {from}");
        }
    }

    #[test]
    fn several_readers_go_on_beside_each_other_and_requests_may_overtake() {
        let mut readers = Readers::default();
        let mut ahead = [0; 3];
        for read in 0..100_u64 {
            for (reader, ahead) in ahead.iter_mut().enumerate() {
                // Each pair of requests comes in the wrong order.
                let from = reader as u64 * 300_000 + (read ^ 1) * 8;
                if let Some((_, end)) = readers.note(from, from + 8, LAST, 2048) {
                    *ahead = end;
                }
                assert!(read < 4 || *ahead > from + 8, "reader {reader} is at {from}, ahead {ahead}");
            }
        }
    }

    #[test]
    fn nothing_is_asked_for_behind_the_end_and_what_was_not_read_is_asked_for_again() {
        let mut readers = Readers::default();
        assert_eq!(readers.note(0, 64, 100, 2048), Some((64, 100)));
        readers.take_back(64);
        assert_eq!(readers.note(64, 72, 100, 2048), Some((72, 100)));
        assert_eq!(readers.note(72, 100, 100, 2048), None);
        assert_eq!(Readers::default().note(0, 1, 1, 2048), None);
    }
}
