//! Decisions on disks that went back in time.
//!
//! | holders of the chunks that such a disk says it has | the next record |
//! |---|---|
//! | others: by the chunk map, or at an opening by `min_holders` or what they list | puts it out, stale since the beginning |
//! | not known: the volume is being opened | is not changed, until the disks that did not go back are listed |
//! | nobody else, of some chunks | keeps it for these, and marks its copies of all others: they do not count, and are given back |
//!
//! So no copy of such a disk counts beside a copy of another disk, after any crash: the record says so
//! before a session with the disk begins.
//!
//! Invariant: a disk is `waiting` from its refusal until a committed record says what becomes of it, and is not spoken to before.

use super::chunks::{Chunk, Chunks};
use std::collections::{BTreeMap, BTreeSet};
use types::{ChunkIndex, DiskId, Epoch};

/// A disk's refusal of a session, with its state.
struct Refusal {
    promised: Epoch,
    chunks: BTreeSet<ChunkIndex>,
    others: Others,
}

/// Knowledge of the chunks that count on disks that did not go back.
enum Others {
    /// As much as the coordinator knows while it serves; nothing at an opening.
    AsServed,
    /// The opening lists them first.
    Awaited,
    Listed(BTreeSet<ChunkIndex>),
}

/// Decision of the next record on a disk that went back.
#[derive(Debug)]
pub(super) enum Fate {
    /// Nothing yet.
    Later,
    PutOut,
    /// Kept in sync for the chunks that no other disk has, but not for the `marked` ones.
    Keep {
        marked: Vec<ChunkIndex>,
    },
}

#[derive(Default)]
pub(super) struct GoneBack {
    waiting: BTreeMap<DiskId, Refusal>,
    /// Disks that have the last copy of something.
    kept: BTreeSet<DiskId>,
}

impl GoneBack {
    pub fn note(&mut self, disk: DiskId, promised: Epoch, chunks: impl IntoIterator<Item = ChunkIndex>) {
        let refusal = Refusal { promised, chunks: chunks.into_iter().collect(), others: Others::AsServed };
        self.waiting.insert(disk, refusal);
    }

    /// Whether the record has yet to say what becomes of the disk.
    pub fn is_waiting(&self, disk: DiskId) -> bool {
        self.waiting.contains_key(&disk)
    }

    /// Whether the disk counts although it went back.
    pub fn is_kept(&self, disk: DiskId) -> bool {
        self.kept.contains(&disk)
    }

    /// Whether the disk waits until others are listed.
    pub fn is_put_off(&self, disk: DiskId) -> bool {
        self.waiting.get(&disk).is_some_and(|refusal| matches!(refusal.others, Others::Awaited))
    }

    /// Whether any disk waits until others are listed.
    pub fn has_put_off(&self) -> bool {
        self.waiting.values().any(|refusal| matches!(refusal.others, Others::Awaited))
    }

    /// Returns the disks that were put off, to be decided on by what the coordinator knows: it serves now.
    pub fn take_up(&mut self) -> Vec<DiskId> {
        let disks: Vec<DiskId> = self.waiting.keys().copied().filter(|disk| self.is_put_off(*disk)).collect();
        for disk in &disks {
            self.know(*disk, Others::AsServed);
        }
        disks
    }

    /// Takes all chunks of the disks that did not go back. Returns the disk to decide on by them: of
    /// several the one with the newest state, beside which copies of the others do not count.
    pub fn decide_by(&mut self, others: BTreeSet<ChunkIndex>) -> Option<DiskId> {
        let put_off = self.waiting.iter().filter(|(disk, _)| self.is_put_off(**disk));
        let disk = put_off.max_by_key(|(_, refusal)| refusal.promised).map(|(disk, _)| *disk)?;
        self.know(disk, Others::Listed(others));
        Some(disk)
    }

    fn know(&mut self, disk: DiskId, others: Others) {
        if let Some(refusal) = self.waiting.get_mut(&disk) {
            refusal.others = others;
        }
    }

    /// Decides on a disk of `in_sync`, which so many others have `left` just now. At an opening every chunk had copies on `min_holders` of them; while
    /// the volume is served that is none, and `chunks` are known.
    pub fn fate(
        &mut self,
        disk: DiskId,
        in_sync: &[DiskId],
        left: usize,
        min_holders: Option<u8>,
        chunks: &Chunks,
    ) -> Fate {
        // None of several such disks stands in for another.
        let (older, trusted): (Vec<DiskId>, Vec<DiskId>) =
            in_sync.iter().filter(|other| **other != disk).partition(|other| self.is_waiting(**other));
        let Some(Refusal { chunks: own, others, .. }) = self.waiting.get(&disk) else { return Fate::PutOut };
        let (alone, marked): (Vec<ChunkIndex>, Vec<ChunkIndex>) = match (others, min_holders) {
            (Others::Listed(listed), Some(min_holders)) if left == 0 => {
                if older.len() + 1 < usize::from(min_holders) {
                    return Fate::PutOut;
                }
                own.iter().partition(|chunk| !listed.contains(chunk))
            }
            (_, None) => {
                // Chunks that the disk has and the map lacks were freed since, or moved.
                let alone = |chunk: &Chunk| {
                    let others = chunk.holders.iter().any(|holder| trusted.contains(holder));
                    !chunk.is_allocating() && chunk.holders.contains(&disk) && !others
                };
                let needed: Vec<ChunkIndex> =
                    chunks.map.iter().filter(|(_, chunk)| alone(chunk)).map(|(index, _)| *index).collect();
                let marked =
                    own.iter().copied().filter(|chunk| needed.binary_search(chunk).is_err()).collect();
                (needed, marked)
            }
            _ => {
                self.know(disk, Others::Awaited);
                return Fate::Later;
            }
        };
        if alone.is_empty() && in_sync.len() > 1 { Fate::PutOut } else { Fate::Keep { marked } }
    }

    /// The record has put the disk out.
    pub fn put_out(&mut self, disk: DiskId) {
        self.waiting.remove(&disk);
    }

    /// The record keeps the disk, for what nobody else has.
    pub fn keep(&mut self, disk: DiskId) {
        self.waiting.remove(&disk);
        self.kept.insert(disk);
    }
}
