//! A change of a disk's bytes that a power cut may keep, lose or tear, in memory or in a file.

use crate::image::SparseImage;
use crate::random::Random;
use rustix::fs::FallocateFlags;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use sys::{Buf, Payload};

/// The unit in bytes that a power cut keeps or loses whole.
pub const TEAR_BYTES: u64 = 512;

/// The effect of a power cut on one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Lost,
    Kept,
    /// The first `n` sectors are kept.
    First(u64),
    /// The last `n` sectors are kept.
    Last(u64),
    /// All but this sector are kept.
    Without(u64),
    /// Each sector by a coin that this seed throws.
    Mixed(u64),
}

impl Fate {
    /// Whether the sector at `index` of `count` is kept.
    pub(crate) fn keeps(self, index: u64, count: u64) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::First(n) => index < n,
            Self::Last(n) => index >= count.saturating_sub(n),
            Self::Without(n) => index != n,
            Self::Mixed(seed) => Random::new(seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).coin(),
        }
    }
}

/// Whether two ranges share a byte.
pub(crate) fn overlaps(a: u64, a_len: u64, b: u64, b_len: u64) -> bool {
    a < b.saturating_add(b_len) && b < a.saturating_add(a_len)
}

/// A medium that changes are applied to.
pub(crate) trait Medium {
    type Error;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Self::Error>;
    /// As [`Self::write`], of bytes that it may share.
    fn write_shared(&mut self, offset: u64, part: &Buf) -> Result<(), Self::Error> {
        self.write(offset, part)
    }
    /// The range reads as zeroes afterwards.
    fn zero(&mut self, offset: u64, len_bytes: u64) -> Result<(), Self::Error>;
}

impl Medium for &mut SparseImage {
    type Error = Infallible;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Infallible> {
        SparseImage::write(self, offset, bytes);
        Ok(())
    }
    fn write_shared(&mut self, offset: u64, part: &Buf) -> Result<(), Infallible> {
        SparseImage::write_shared(self, offset, part);
        Ok(())
    }
    fn zero(&mut self, offset: u64, len_bytes: u64) -> Result<(), Infallible> {
        SparseImage::zero(self, offset, len_bytes);
        Ok(())
    }
}

impl Medium for &File {
    type Error = io::Error;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
    fn zero(&mut self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&**self, flags, offset, len_bytes)?)
    }
}

/// A change of the medium's bytes.
#[derive(Clone)]
pub(crate) enum Change {
    Write(Payload),
    Zero(u64),
}

impl Change {
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::Write(data) => data.len() as u64,
            Self::Zero(len_bytes) => *len_bytes,
        }
    }

    /// Sectors that can be lost apart from each other.
    pub(crate) fn sectors(&self) -> u64 {
        match self {
            Self::Write(data) => data.len() as u64 / TEAR_BYTES,
            Self::Zero(_) => 1,
        }
    }

    pub(crate) fn apply<M: Medium>(&self, mut medium: M, offset: u64) -> Result<(), M::Error> {
        match self {
            Self::Write(data) => {
                let mut at = offset;
                for part in data.parts() {
                    medium.write_shared(at, part)?;
                    at += part.len() as u64;
                }
                Ok(())
            }
            Self::Zero(len_bytes) => medium.zero(offset, *len_bytes),
        }
    }

    /// Applies the sectors that the fate keeps.
    pub(crate) fn apply_fate<M: Medium>(
        &self,
        mut medium: M,
        offset: u64,
        fate: Fate,
    ) -> Result<(), M::Error> {
        match (fate, self) {
            (Fate::Lost, _) => Ok(()),
            (Fate::Kept, _) => self.apply(medium, offset),
            // Discarded bytes read as anything: to tear a discard would show nothing new.
            (_, Self::Zero(_)) if fate.keeps(0, 1) => self.apply(medium, offset),
            (_, Self::Zero(_)) => Ok(()),
            (_, Self::Write(data)) => {
                let whole = data.contiguous();
                let count = self.sectors();
                for (sector, bytes) in (0_u64..).zip(whole.chunks(TEAR_BYTES as usize)) {
                    if fate.keeps(sector, count) {
                        medium.write(offset + sector * TEAR_BYTES, bytes)?;
                    }
                }
                Ok(())
            }
        }
    }
}
