//! No chunk is short of copies unseen: either a job makes them, or the record names a disk that is away (which `health` tells).
//!
//! Looked at in every interval of the manager. What is between two jobs, or being allocated, is short for a moment; what stays so
//! is forgotten.

use cluster::VolumeRecord;
use types::DiskId;

/// Virtual nanoseconds after which a shortage without a reason counts as forgotten: several times the interval in which jobs are
/// planned.
const PATIENCE: u64 = 1_500_000_000;

#[derive(Debug, Default)]
pub struct Watch {
    since: Option<u64>,
}

impl Watch {
    /// `short`: chunks with fewer in-sync copies than wanted; `jobs`: jobs that run.
    pub fn look(
        &mut self,
        now: u64,
        record: &VolumeRecord,
        retired: Option<DiskId>,
        short: u64,
        jobs: usize,
    ) -> Option<String> {
        let away = record.stale.iter().any(|stale| Some(stale.disk) != retired);
        if short == 0 || jobs > 0 || away {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        (now - since > PATIENCE).then(|| {
            format!("copies: {short} chunks are short of copies, no disk is away and no job runs: {record:?}")
        })
    }

    /// Nobody serves the volume.
    pub fn forget(&mut self) {
        self.since = None;
    }
}
