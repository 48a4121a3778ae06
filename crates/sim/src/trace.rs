//! A fingerprint of all events of a run, in order.

/// FNV-1a over the numbers of all events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trace(u64);

impl Trace {
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub fn note(&mut self, numbers: &[u64]) {
        for number in numbers {
            for byte in number.to_le_bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }

    pub fn hash(self) -> u64 {
        self.0
    }
}
