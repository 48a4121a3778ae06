//! No chunk is short of copies unnoticed: either a job makes them, or the record names an absent
//! disk, which `health` reports. No chunk keeps too many copies.
//!
//! Checked in every interval of the manager. A chunk between two jobs, or being allocated, is short
//! for a moment; a chunk that stays short was forgotten.

use records::VolumeRecord;
use types::DiskId;

/// Virtual nanoseconds after which a shortage without a reason counts as forgotten: several times
/// the planning interval of jobs.
const PATIENCE: u64 = 1_500_000_000;

/// Chunks with fewer and with more in-sync copies than wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wrong {
    /// Chunks with fewer in-sync copies than the volume's resiliency asks for.
    pub short: u64,
    /// Chunks with more in-sync copies than the volume's resiliency asks for.
    pub too_many: u64,
}

/// Tracks the time for which chunks have had a wrong number of copies without a reason.
#[derive(Debug, Default)]
pub struct Watch {
    since: Option<u64>,
}

impl Watch {
    /// Checks the numbers of copies; `jobs`: running jobs.
    pub fn look(
        &mut self,
        now: u64,
        record: &VolumeRecord,
        retired: Option<DiskId>,
        wrong: Wrong,
        jobs: usize,
    ) -> Option<String> {
        let away = record.stale.iter().any(|stale| Some(stale.disk) != retired);
        if wrong == Wrong::default() || jobs > 0 || away {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        (now - since > PATIENCE)
            .then(|| format!("copies: {wrong:?}, no disk is away and no job runs: {record:?}"))
    }

    /// Resets the times, since no node serves the volume.
    pub fn forget(&mut self) {
        self.since = None;
    }
}
