//! No chunk is short of copies unseen: either a job makes them, or the record names a disk that is away (which `health` tells). None
//! keeps more than it should.
//!
//! Checked in every interval of the manager. A chunk between two jobs, or being allocated, is short for
//! a moment; one that stays short is forgotten.

use records::VolumeRecord;
use types::DiskId;

/// Virtual nanoseconds after which a shortage without a reason counts as forgotten: several times the interval in which jobs are
/// planned.
const PATIENCE: u64 = 1_500_000_000;

/// Chunks with fewer and with more in-sync copies than wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wrong {
    pub short: u64,
    pub too_many: u64,
}

#[derive(Debug, Default)]
pub struct Watch {
    since: Option<u64>,
}

impl Watch {
    /// `jobs`: jobs that run.
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

    /// Nobody serves the volume.
    pub fn forget(&mut self) {
        self.since = None;
    }
}
