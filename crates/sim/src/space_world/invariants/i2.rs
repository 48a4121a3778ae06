//! I2: in-sync set and epoch are one record, changed by compare-and-swap before any acknowledgement under the smaller set.
//!
//! Every record's epoch is higher than the one before it. An owner acknowledges only under a
//! committed record, and counts no copy that the next coordinator would not count by that record.

use pool::ChunkCopies;
use records::VolumeRecord;

/// Records of the volume in the order of their commits.
#[derive(Debug, Default)]
pub struct Records {
    history: Vec<VolumeRecord>,
}

impl Records {
    /// Checks a committed record.
    pub fn committed(&mut self, record: &VolumeRecord) -> Option<String> {
        let last = self.history.last().map(|last| last.epoch);
        self.history.push(record.clone());
        last.filter(|last| *last >= record.epoch)
            .map(|last| format!("I2: epoch {} was committed after epoch {last}", record.epoch))
    }

    /// Returns the record that is in force; `None` before the first.
    pub fn last(&self) -> Option<&VolumeRecord> {
        self.history.last()
    }

    /// Returns the record that the last one replaced; `None` before the second.
    pub fn before_last(&self) -> Option<&VolumeRecord> {
        self.history.len().checked_sub(2).and_then(|at| self.history.get(at))
    }

    /// Checks the record under which a coordinator acknowledged a write.
    pub fn acknowledged_under(&self, record: &VolumeRecord) -> Option<String> {
        (!self.history.contains(record))
            .then(|| format!("I2: acknowledged under epoch {}, which was never committed so", record.epoch))
    }
}

/// Checks `chunks`: the copies that a coordinator counts on under `record`.
pub fn check_counted(record: &VolumeRecord, chunks: &[ChunkCopies]) -> Option<String> {
    let copies = chunks.iter().flat_map(|chunk| chunk.holders.iter().map(|disk| (*disk, chunk.chunk)));
    let wrong = copies.into_iter().find(|copy| record.building.contains(copy));
    wrong.map(|(disk, chunk)| {
        format!(
            "I2: the copy of chunk {} on disk {disk} is counted on, and does not count by the record",
            chunk.0
        )
    })
}
