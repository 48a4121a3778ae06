//! No disk of a node known to be dead counts for longer than a change of the record takes, if the
//! other disks have all its data. Otherwise every write would wait for the timeout of calls to the
//! disk.

use pool::ChunkCopies;
use records::VolumeRecord;
use std::collections::BTreeSet;
use types::DiskId;

/// Virtual nanoseconds within which the record must change.
pub const PATIENCE: u64 = 150_000_000;

/// Checks the record in force. `down`: disks of nodes known to be dead for [`PATIENCE`].
pub fn check(record: &VolumeRecord, chunks: &[ChunkCopies], down: &BTreeSet<DiskId>) -> Option<String> {
    let counts: Vec<DiskId> = record.in_sync.iter().copied().filter(|disk| down.contains(disk)).collect();
    let lives = |disk: &DiskId| record.in_sync.contains(disk) && !down.contains(disk);
    let is_spare = |disk: &DiskId| {
        chunks.iter().all(|chunk| !chunk.holders.contains(disk) || chunk.holders.iter().any(lives))
    };
    let dead = counts.into_iter().find(is_spare)?;
    let others = record.in_sync.iter().any(lives);
    others.then(|| format!("dead nodes: {dead} of a dead node still counts: {record:?}"))
}
