//! Rules by which a [`super::CrashDisk`] misbehaves.

use crate::change::overlaps;
use crate::{DiskError, DiskOperation};

/// Acts on the operations that match `target`, after letting `skip` of them pass, `times` times.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Operations that count.
    pub target: FaultTarget,
    /// Matching operations that pass first.
    pub skip: u64,
    /// Matching operations after those on which the fault acts.
    pub times: u64,
    /// Effect on these operations.
    pub action: FaultAction,
}

/// Operations that a [`Fault`] matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultTarget {
    /// All operations.
    Any,
    /// Reads.
    Read,
    /// Durable or not.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Reads and writes that touch the range.
    Range {
        /// First byte of the range.
        offset: u64,
        /// Bytes of the range.
        len_bytes: u64,
    },
    /// Reads that touch the range.
    ReadRange {
        /// First byte of the range.
        offset: u64,
        /// Bytes of the range.
        len_bytes: u64,
    },
    /// Writes that touch the range.
    WriteRange {
        /// First byte of the range.
        offset: u64,
        /// Bytes of the range.
        len_bytes: u64,
    },
}

/// Effect of a [`Fault`] on an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultAction {
    /// Answers with the error. A write may have happened nevertheless, in part or in whole.
    Fail(DiskError),
    /// Does not answer, until released or timed out.
    Hang,
    /// A write is acknowledged and never happens.
    LoseWrite,
    /// A write is acknowledged and lands elsewhere.
    MisdirectWrite { to_offset: u64 },
    /// A write is acknowledged and some of its sectors never happen.
    TearWrite,
}

impl Fault {
    /// Acts on the `nth` matching operation (counted from 0) and on no other.
    pub fn nth(target: FaultTarget, nth: u64, action: FaultAction) -> Self {
        Self { target, skip: nth, times: 1, action }
    }

    /// Acts on every matching operation.
    pub fn every(target: FaultTarget, action: FaultAction) -> Self {
        Self { target, skip: 0, times: u64::MAX, action }
    }

    /// The action, if the rule applies to this operation. Counts it.
    pub(crate) fn strike(&mut self, operation: &DiskOperation) -> Option<FaultAction> {
        if self.times == 0 || !self.target.matches(operation) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.action.clone())
    }
}

impl FaultTarget {
    pub(crate) fn matches(self, operation: &DiskOperation) -> bool {
        match (self, operation) {
            (Self::Any, _)
            | (Self::Read, DiskOperation::Read { .. })
            | (Self::Write, DiskOperation::Write { .. })
            | (Self::Flush, DiskOperation::Flush)
            | (Self::Discard, DiskOperation::Discard { .. }) => true,
            (
                Self::Range { offset, len_bytes } | Self::ReadRange { offset, len_bytes },
                DiskOperation::Read { offset: at, into },
            ) => overlaps(offset, len_bytes, *at, into.len() as u64),
            (
                Self::Range { offset, len_bytes } | Self::WriteRange { offset, len_bytes },
                DiskOperation::Write { offset: at, data, .. },
            ) => overlaps(offset, len_bytes, *at, data.len() as u64),
            _ => false,
        }
    }
}
