//! Operations in the file layer: transfers of data, flushes, commits.

use super::open::LeaseName;
use crate::backend::{CopyChunk, FileInformation, OpenId, OperationId, Reply};
use crate::fs::{FileId, StreamId};
use slab::{Slab, VacantEntry};
use std::collections::HashSet;

/// Open or lease whose caching an answer grants.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    Open(OpenId),
    Lease(LeaseName),
}

/// Work of the file layer for an operation.
#[derive(Debug)]
pub enum InFlight {
    Read {
        operation: OperationId,
        stream: StreamId,
        len_bytes: u64,
    },
    Write {
        operation: OperationId,
        stream: StreamId,
        len_bytes: u32,
    },
    Flush {
        operation: OperationId,
        stream: StreamId,
        open: OpenId,
    },
    Close {
        operation: OperationId,
        stream: StreamId,
        information: Option<FileInformation>,
    },
    /// Metadata is becoming durable before this answer.
    Commit {
        operation: OperationId,
        reply: Box<Reply>,
        shown: Option<Shown>,
    },
    CopyRead(Box<Copy>),
    CopyWrite(Box<Copy>),
}

impl InFlight {
    /// Returns the stream of the transfer: it must not be reclaimed.
    fn stream(&self) -> Option<StreamId> {
        match self {
            Self::Read { stream, .. }
            | Self::Write { stream, .. }
            | Self::Flush { stream, .. }
            | Self::Close { stream, .. } => Some(*stream),
            Self::Commit { .. } => None,
            Self::CopyRead(copy) => Some(copy.source_stream),
            Self::CopyWrite(copy) => Some(copy.target_stream),
        }
    }
}

/// A copy under way.
#[derive(Debug)]
pub struct Copy {
    pub operation: OperationId,
    pub source: OpenId,
    pub target: OpenId,
    pub source_stream: StreamId,
    pub target_stream: StreamId,
    pub chunks: Vec<CopyChunk>,
    /// Chunks done, and bytes done of the next one.
    pub done: usize,
    pub within: u64,
    pub bytes: u64,
    /// Bytes being transferred.
    pub piece: u64,
    /// Whether it answers without figures: the request was for one range.
    pub plain: bool,
}

/// All transfers, by the token that the file layer answers with.
///
/// Invariant: the file layer holds a token exactly while its transfer is listed here.
#[derive(Debug, Default)]
pub struct Transfers(Slab<InFlight>);

impl Transfers {
    /// Removes and returns a transfer that ended.
    pub fn take(&mut self, token: u64) -> Option<InFlight> {
        self.0.try_remove(token as usize)
    }

    /// Returns a place whose key is the token of a transfer, in case it does not end immediately.
    #[inline]
    pub fn vacant(&mut self) -> VacantEntry<'_, InFlight> {
        self.0.vacant_entry()
    }

    /// Adds a transfer. Returns its token.
    pub fn add(&mut self, transfer: InFlight) -> u64 {
        self.0.insert(transfer) as u64
    }

    /// Lists the files with transfers of data.
    pub fn busy_files(&self) -> HashSet<FileId> {
        self.0.iter().filter_map(|(_, transfer)| Some(transfer.stream()?.file)).collect()
    }
}
