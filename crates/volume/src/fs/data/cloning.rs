//! Which bytes of a file can share their blocks with another file: the one rule that clients' requests and the work itself go by.

use super::BLOCK;

/// A range of one stream and the place in another one for its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneRange {
    /// First byte of the range in the source stream; a multiple of the block.
    pub source_offset: u64,
    /// Byte of the target stream at which the range begins; a multiple of the block.
    pub target_offset: u64,
    /// Bytes of the range; a multiple of the block unless the range ends at the source's end.
    pub len_bytes: u64,
}

/// Why a range cannot be cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloneRefusal {
    /// An offset, or the length before the end of the source, is no multiple of the block.
    #[error("a range to clone is not of whole blocks")]
    Unaligned,
    /// The range ends behind the end of the source or of the target.
    #[error("a range to clone lies behind the end of its stream")]
    Outside,
    /// Source and target are one stream, and the two ranges have bytes in common.
    #[error("the ranges to clone overlap")]
    Overlaps,
}

impl CloneRange {
    /// Number of bytes from the range's start that can be shared, in streams with these ends: all of them,
    /// or, if the source ends in a block and the target does not end with it, those of the whole blocks.
    /// The rest, less than a block, can be copied.
    ///
    /// # Errors
    /// Offsets are multiples of the block, and so is the length unless the range ends at the source's end. Both ranges lie within their
    /// streams and, in one stream, do not overlap.
    pub fn shared_bytes(
        &self,
        source_end: u64,
        target_end: u64,
        one_stream: bool,
    ) -> Result<u64, CloneRefusal> {
        let end_of = |offset: u64| offset.checked_add(self.len_bytes).ok_or(CloneRefusal::Unaligned);
        let (source_last, target_last) = (end_of(self.source_offset)?, end_of(self.target_offset)?);
        let is_whole = self.len_bytes.is_multiple_of(BLOCK);
        let is_aligned = self.source_offset.is_multiple_of(BLOCK) && self.target_offset.is_multiple_of(BLOCK);
        if !is_aligned || !(is_whole || source_last == source_end) {
            return Err(CloneRefusal::Unaligned);
        }
        if source_last > source_end || target_last > target_end {
            return Err(CloneRefusal::Outside);
        }
        if one_stream && self.source_offset < target_last && self.target_offset < source_last {
            return Err(CloneRefusal::Overlaps);
        }
        let rest = if is_whole || target_last == target_end { 0 } else { self.len_bytes % BLOCK };
        Ok(self.len_bytes - rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_block_is_left_to_copy() {
        let range =
            |source_offset, target_offset, len_bytes| CloneRange { source_offset, target_offset, len_bytes };
        let terabyte = 1 << 40;
        let whole = range(0, 0, terabyte + 1);
        assert_eq!(whole.shared_bytes(terabyte + 1, terabyte + 1, false), Ok(terabyte + 1));
        assert_eq!(whole.shared_bytes(terabyte + 1, terabyte + 2, false), Ok(terabyte));
        assert_eq!(range(0, 0, 100).shared_bytes(100, 200, false), Ok(0));
        assert_eq!(range(0, 0, 100).shared_bytes(200, 100, false), Err(CloneRefusal::Unaligned));
        assert_eq!(range(1, 0, BLOCK).shared_bytes(9000, 9000, false), Err(CloneRefusal::Unaligned));
        assert_eq!(range(0, 0, BLOCK).shared_bytes(9000, 100, false), Err(CloneRefusal::Outside));
        assert_eq!(range(BLOCK, 0, u64::MAX).shared_bytes(9000, 100, false), Err(CloneRefusal::Unaligned));
        assert_eq!(
            range(0, BLOCK, 2 * BLOCK).shared_bytes(20_000, 20_000, true),
            Err(CloneRefusal::Overlaps)
        );
        assert_eq!(range(0, 2 * BLOCK, 2 * BLOCK).shared_bytes(20_000, 20_000, true), Ok(2 * BLOCK));
    }
}
