//! Bits that say which blocks are taken.

/// A fixed number of bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    words: Box<[u64]>,
    len: u32,
}

impl Bitmap {
    /// All clear.
    pub fn new(len: u32) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize].into(), len }
    }

    /// Decodes the bytes, little-endian; `None` if their number is wrong.
    pub fn from_bytes(bytes: &[u8], len: u32) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let fits = rest.is_empty() && words.len() == len.div_ceil(64) as usize;
        fits.then(|| Self { words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(), len })
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn get(&self, at: u32) -> bool {
        self.words.get(at as usize / 64).is_none_or(|word| word >> (at % 64) & 1 != 0)
    }

    /// Number of set bits.
    pub fn ones(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Number of set bits in a range, cut off at the end.
    pub fn ones_in(&self, from: u32, count: u32) -> u32 {
        let end = from.saturating_add(count).min(self.len);
        let (mut at, mut ones) = (from, 0);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let mask = if bits == 64 { u64::MAX } else { ((1 << bits) - 1) << (at % 64) };
            ones += (self.words[at as usize / 64] & mask).count_ones();
            at += bits;
        }
        ones
    }

    /// Sets or clears a range, cut off at the end; returns how many bits changed.
    pub fn set_range(&mut self, from: u32, count: u32, value: bool) -> u32 {
        let end = from.saturating_add(count).min(self.len);
        let (mut at, mut changed) = (from, 0);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let mask = if bits == 64 { u64::MAX } else { ((1 << bits) - 1) << (at % 64) };
            let word = &mut self.words[at as usize / 64];
            let before = *word & mask;
            changed += if value { bits - before.count_ones() } else { before.count_ones() };
            if value {
                *word |= mask;
            } else {
                *word &= !mask;
            }
            at += bits;
        }
        changed
    }

    /// First clear bit at or after `from`.
    fn next_clear(&self, from: u32) -> Option<u32> {
        let mut at = from;
        while at < self.len {
            let free = !self.words[at as usize / 64] >> (at % 64);
            if free != 0 {
                let found = at + free.trailing_zeros();
                return (found < self.len).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Length of the run of clear bits that begins at `from`, up to `max`.
    pub fn clear_run(&self, from: u32, max: u32) -> u32 {
        let end = from.saturating_add(max).min(self.len);
        let mut at = from;
        while at < end {
            let taken = self.words[at as usize / 64] >> (at % 64);
            if taken != 0 {
                return (at + taken.trailing_zeros()).min(end) - from;
            }
            at = (at / 64 + 1) * 64;
        }
        end.saturating_sub(from)
    }

    /// The first run of `want` clear bits, or the longest one if all are shorter. Start and length.
    pub fn find_clear(&self, want: u32) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32)> = None;
        let mut at = 0;
        while let Some(start) = self.next_clear(at) {
            let run = self.clear_run(start, want);
            if run >= want {
                return Some((start, run));
            }
            if best.is_none_or(|(_, len)| len < run) {
                best = Some((start, run));
            }
            at = start + run;
        }
        best
    }
}
