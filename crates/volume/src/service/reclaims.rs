//! Files and streams without a name and without opens, until the file layer frees them.

use crate::fs::{FileId, FileSystem, FsError, StreamId};
use std::collections::{HashSet, VecDeque};

/// Files and streams that are tried in one round.
const TRIED_AT_ONCE: usize = 64;

#[derive(Debug, Clone, Copy)]
enum Reclaim {
    File(FileId),
    Stream(StreamId),
}

impl Reclaim {
    const fn file(self) -> FileId {
        match self {
            Self::File(file) => file,
            Self::Stream(stream) => stream.file,
        }
    }
}

/// Files and streams still to be freed.
///
/// Invariant: nothing reaches a listed file or stream, except for transfers that began before.
#[derive(Debug, Default)]
pub struct Reclaims(VecDeque<Reclaim>);

impl Reclaims {
    pub fn add_file(&mut self, file: FileId) {
        self.0.push_back(Reclaim::File(file));
    }

    pub fn add_stream(&mut self, stream: StreamId) {
        self.0.push_back(Reclaim::Stream(stream));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees as much as possible now: transfers to and from the `busy` files are under way.
    pub fn give_back(&mut self, fs: &mut FileSystem, busy: &HashSet<FileId>) {
        for _ in 0..self.0.len().min(TRIED_AT_ONCE) {
            let Some(reclaim) = self.0.pop_front() else { return };
            let result = match reclaim {
                _ if busy.contains(&reclaim.file()) => Err(FsError::Miss),
                Reclaim::File(file) => fs.reclaim(file),
                Reclaim::Stream(stream) => fs.reclaim_stream(stream),
            };
            if result == Err(FsError::Miss) {
                self.0.push_back(reclaim);
            }
        }
    }
}
