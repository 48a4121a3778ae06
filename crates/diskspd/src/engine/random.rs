//! The run's random numbers: xoshiro256++ seeded by splitmix64, one stream per thread. Fast, repeatable, not for secrets.

/// One stream.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of thread `stream` under the run's seed.
    pub fn new(seed: u32, stream: u32) -> Self {
        let mut mix = (u64::from(seed) << 32) | u64::from(stream);
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = mix;
            word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word ^ (word >> 31)
        });
        Self { state }
    }

    pub fn word(&mut self) -> u64 {
        let [mut a, mut b, mut c, mut d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        c ^= a;
        d ^= b;
        b ^= c;
        a ^= d;
        c ^= shifted;
        d = d.rotate_left(45);
        self.state = [a, b, c, d];
        result
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high word of a product: the bias is under bound / 2^64.
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        match percent {
            0 => false,
            100.. => true,
            percent => self.below(100) < u64::from(percent),
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        let (words, tail) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = self.word().to_le_bytes();
        }
        let last = self.word().to_le_bytes();
        for (to, from) in tail.iter_mut().zip(last) {
            *to = from;
        }
    }
}
