//! Decisions on disks that went back in time.
//!
//! | holders of the chunks that such a disk lists | the next record |
//! |---|---|
//! | others: by the chunk map, or at an opening by `min_holders` and `min_homes` | expels it, stale since the beginning |
//! | not known: the volume is being opened | is not changed, until the disks that did not go back are listed |
//! | perhaps nobody else, of some chunks | is not changed until an administrator accepts the disk as it is: it lacks acknowledged writes, and the disk that has them may be at hand |
//! | the same, and it is accepted | keeps it for the chunks that no other disk lists, and marks its copies of all others: they do not count, and are given back. If there are none, the record expels the disk |
//! | the same, and another such disk is accepted | expels it if others list all that it lists; else waits until it is accepted, too |
//!
//! The list of an older image does not show the chunks of the right disk: the image may be older
//! than a chunk. So while no image is accepted, such a list proves nothing, and only the numbers of
//! the record do.
//!
//! So no copy of such a disk counts beside a copy of another disk, after any crash: the record says so
//! before a session with the disk begins.
//!
//! Invariant: a disk is `waiting` from its refusal until a committed record decides on it, and gets
//! no requests until then. The exception is an open of a session, to learn whether it still has
//! promised too little: a held disk may be exchanged for the right one.

use super::chunks::{Chunk, Chunks};
use super::fault_domains::may_miss;
use crate::planted::Planted;
use records::VolumeRecord;
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
    /// The opening lists them before it decides.
    Awaited,
    Listed(BTreeSet<ChunkIndex>),
}

/// Decision of the next record on a disk that went back.
#[derive(Debug)]
pub(super) enum Fate {
    /// No decision yet: other disks are not listed, or no administrator has accepted the disk.
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
    /// Waiting disks that would be kept if an administrator accepted them.
    held: BTreeSet<DiskId>,
    /// Disks that are accepted as they are.
    accepted: BTreeSet<DiskId>,
}

impl GoneBack {
    /// Notes a refusal. Returns whether it is new: a disk that may have been exchanged is asked
    /// repeatedly.
    pub fn note(
        &mut self,
        disk: DiskId,
        promised: Epoch,
        chunks: impl IntoIterator<Item = ChunkIndex>,
    ) -> bool {
        if self.may_be_right(disk) && self.waiting.get(&disk).is_some_and(|known| known.promised == promised)
        {
            return false;
        }
        let refusal = Refusal { promised, chunks: chunks.into_iter().collect(), others: Others::AsServed };
        self.waiting.insert(disk, refusal);
        self.held.remove(&disk);
        true
    }

    /// Whether the right disk may have taken the place of a waiting one. Such a disk is in no
    /// proposal.
    pub fn may_be_right(&self, disk: DiskId) -> bool {
        self.is_held(disk) || self.is_put_off(disk)
    }

    /// Whether the disk waits for an administrator to accept it.
    pub fn is_held(&self, disk: DiskId) -> bool {
        self.held.contains(&disk)
    }

    pub fn held(&self) -> impl Iterator<Item = DiskId> + '_ {
        self.held.iter().copied()
    }

    /// Notes that these disks are accepted as they are. Returns disks to be decided on anew.
    pub fn accept(&mut self, disks: &[DiskId]) -> Vec<DiskId> {
        let news = disks.iter().copied().filter(|disk| self.accepted.insert(*disk) && self.is_waiting(*disk));
        let news: Vec<DiskId> = news.collect();
        if news.is_empty() {
            return news;
        }
        news.iter().for_each(|disk| self.know(*disk, Others::AsServed));
        // Beside these, another held disk may be dispensable.
        news.into_iter().chain(self.reconsider()).collect()
    }

    /// Releases the held disks, since other disks may have their data by now. Returns them, to be
    /// decided on anew.
    pub fn reconsider(&mut self) -> Vec<DiskId> {
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|disk| self.know(*disk, Others::AsServed));
        held.into_iter().collect()
    }

    fn is_accepted(&self, disk: DiskId) -> bool {
        self.accepted.contains(&disk)
    }

    /// Whether the disk is an accepted image, so that an opening waits for no other copy of its
    /// data. A disk that was made to forget its promise is none.
    pub fn is_accepted_image(&self, disk: DiskId) -> bool {
        self.is_accepted(disk) && self.waiting.get(&disk).is_some_and(|known| known.promised > Epoch(0))
    }

    /// Whether the record has yet to decide on the disk.
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

    /// Returns the disks that were put off, to be decided on by the chunk map, since the
    /// coordinator serves now.
    pub fn take_up(&mut self) -> Vec<DiskId> {
        let disks: Vec<DiskId> = self.waiting.keys().copied().filter(|disk| self.is_put_off(*disk)).collect();
        for disk in &disks {
            self.know(*disk, Others::AsServed);
        }
        disks
    }

    /// Adds the list of all chunks on disks that did not go back, and returns the disk to decide on
    /// by it: an accepted one before others, then the one with the newest state, beside which
    /// copies of the others do not count.
    pub fn decide_by(&mut self, others: BTreeSet<ChunkIndex>) -> Option<DiskId> {
        let put_off = self.waiting.iter().filter(|(disk, _)| self.is_put_off(**disk));
        let disk = put_off
            .max_by_key(|(disk, refusal)| (self.is_accepted(**disk), refusal.promised))
            .map(|(disk, _)| *disk)?;
        self.know(disk, Others::Listed(others));
        Some(disk)
    }

    fn know(&mut self, disk: DiskId, others: Others) {
        if let Some(refusal) = self.waiting.get_mut(&disk) {
            refusal.others = others;
        }
    }

    /// Decides on a disk of `in_sync`, when `left` others have just left. At an opening, the
    /// numbers of the `record` give the number of disks of every chunk; while the volume is served
    /// there is no `record`, and `chunks` are known.
    pub fn fate(
        &mut self,
        disk: DiskId,
        in_sync: &[DiskId],
        left: usize,
        record: Option<&VolumeRecord>,
        chunks: &Chunks,
    ) -> Fate {
        // None of several such disks stands in for another.
        let (older, trusted): (Vec<DiskId>, Vec<DiskId>) =
            in_sync.iter().filter(|other| **other != disk).partition(|other| self.is_waiting(**other));
        let Some(Refusal { chunks: own, others, .. }) = self.waiting.get(&disk) else { return Fate::PutOut };
        let (alone, marked): (Vec<ChunkIndex>, Vec<ChunkIndex>) = match (others, record) {
            (Others::Listed(listed), Some(record)) if left == 0 => {
                if may_miss(record, older.iter().copied().chain([disk])) {
                    return Fate::PutOut;
                }
                let is_any_accepted = !self.accepted.is_empty() || !record.accepted_images.is_empty();
                if !is_any_accepted && !Planted::OlderImageServed.is_planted() {
                    self.held.insert(disk);
                    return Fate::Later;
                }
                own.iter().partition(|chunk| !listed.contains(chunk))
            }
            (_, None) => {
                // Chunks that the disk has and the map lacks have been freed or moved since.
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
        if alone.is_empty() && in_sync.len() > 1 {
            return Fate::PutOut;
        }
        if !self.is_accepted(disk) && !Planted::OlderImageServed.is_planted() {
            self.held.insert(disk);
            return Fate::Later;
        }
        Fate::Keep { marked }
    }

    /// Forgets a disk that the record has expelled, or that the right disk has replaced. Returns
    /// whether it had waited.
    pub fn forget(&mut self, disk: DiskId) -> bool {
        self.held.remove(&disk);
        self.accepted.remove(&disk);
        self.waiting.remove(&disk).is_some()
    }

    /// Notes that the record keeps the disk, for chunks that no other disk has.
    pub fn keep(&mut self, disk: DiskId) {
        self.forget(disk);
        self.kept.insert(disk);
    }
}
