//! The disks that may be missing at an opening, before it knows the chunks: fewer disks than any chunk
//! has copies, or all disks of fewer nodes than any chunk has copies in.
//!
//! The record has both numbers and the nodes by which they were counted, as `homes`. A disk that
//! has moved to another node since, or whose node is not known, still counts for its old one.
//!
//! While the volume is served, `homes` has disks in sync only. A disk that an opening expels stays
//! in `homes`: `min_homes` no longer counts its node, and the node's other disks may be missing
//! too.
//!
//! Invariant: every chunk with an acknowledged write has copies in sync on `min_holders` disks, and
//! in `min_homes` of the record's nodes without an expelled disk (I5).

use super::chunks::Chunks;
use super::pending_changes::{Change, PendingChanges};
use crate::planted::Planted;
pub(super) use crate::takeover::may_miss;
use records::{Home, VolumeRecord};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::DiskId;

impl Chunks {
    /// Returns the nodes of the record's disks in sync; none if the pool's disks are on one server.
    pub fn homes(&self, record: &VolumeRecord) -> Vec<Home> {
        let pool = self.pool.borrow();
        let mut homes: BTreeMap<&str, Vec<DiskId>> = BTreeMap::new();
        for disk in &record.in_sync {
            let node = pool.disk(*disk).map_or("", |view| view.domain.node.as_str());
            if !node.is_empty() {
                homes.entry(node).or_default().push(*disk);
            }
        }
        homes.into_iter().map(|(node, disks)| Home { node: node.to_owned(), disks }).collect()
    }

    /// Returns the fewest of the record's nodes that any chunk has copies on; 0 if none are
    /// counted.
    pub fn fewest_homes(&self, record: &VolumeRecord) -> u8 {
        if record.homes.is_empty() {
            return 0;
        }
        let in_sync = record.in_sync.iter().copied().collect();
        let homes = record.homes.iter().enumerate();
        let home_of: BTreeMap<DiskId, usize> =
            homes.flat_map(|(home, found)| found.disks.iter().map(move |disk| (*disk, home))).collect();
        let allocated = self.map.values().filter(|chunk| !chunk.is_allocating());
        let counts = allocated.map(|chunk| {
            // A disk whose node is not known counts for no node.
            let known = chunk.in_sync_holders(&in_sync).filter_map(|disk| home_of.get(&disk).copied());
            let mut homes: SmallVec<[usize; 3]> = known.collect();
            homes.sort_unstable();
            homes.dedup();
            homes.len()
        });
        let most = record.homes.len().min(usize::from(record.resiliency.copies()));
        counts.min().unwrap_or(most).min(most) as u8
    }
}

/// Counts the record's nodes that have one of these disks. `are_whole`: no disk of them is out.
pub(super) fn homes_of(record: &VolumeRecord, disks: &[DiskId], are_whole: bool) -> u8 {
    let in_home = |disk: &DiskId| record.homes.iter().any(|home| home.disks.contains(disk));
    let known = disks.iter().copied().filter(in_home);
    let homes = if are_whole { record.whole_homes_of(known) } else { record.homes_of(known) };
    homes.unwrap_or_default().min(usize::from(u8::MAX)) as u8
}

/// Writes to the next record the fewest copies of any chunk, and the fewest nodes that these are
/// on: by the chunk map if the volume is `serving`.
pub(super) fn count_copies(
    record: &VolumeRecord,
    next: &mut VolumeRecord,
    changes: &PendingChanges,
    chunks: &Chunks,
    serving: bool,
) {
    if serving {
        next.min_holders = chunks.fewest_holders(next).min(changes.holders_max());
        next.homes = chunks.homes(next);
        next.min_homes = chunks.fewest_homes(next).min(changes.homes_max());
        return;
    }
    // The decision on a disk that went back may rest on the lists of the other disks instead of the
    // record's numbers: each chunk is then sure of one copy.
    let by_lists = changes.has(Change::Rewind) || changes.has(Change::Keep);
    let left = changes.disks(Change::Expel).chain(changes.disks(Change::Keep));
    let fewer = left.clone().count().min(usize::from(u8::MAX)) as u8;
    debug_assert!(
        fewer == 0 || by_lists || may_miss(record, left.clone()) || Planted::MinHoldersIgnored.is_planted()
    );
    let homes = record.homes_of(left).unwrap_or(usize::MAX).min(usize::from(u8::MAX)) as u8;
    next.min_homes = record.min_homes.saturating_sub(homes);
    // A chunk with copies on this many nodes has at least as many copies.
    let least = u8::from(by_lists).max(next.min_homes);
    next.min_holders = record.min_holders.saturating_sub(fewer).max(least);
}
