//! I2: in-sync set and epoch are one record, changed by compare-and-swap before any acknowledgement under the smaller set.
//!
//! Every record's epoch is higher than the one before it, and whoever acknowledges does so under a record that was committed.

use cluster::VolumeRecord;

#[derive(Debug, Default)]
pub struct Records {
    history: Vec<VolumeRecord>,
}

impl Records {
    /// A record was committed.
    pub fn committed(&mut self, record: &VolumeRecord) -> Option<String> {
        let last = self.history.last().map(|last| last.epoch);
        self.history.push(record.clone());
        last.filter(|last| *last >= record.epoch)
            .map(|last| format!("I2: epoch {} was committed after epoch {last}", record.epoch))
    }

    pub fn last(&self) -> Option<&VolumeRecord> {
        self.history.last()
    }

    pub fn before_last(&self) -> Option<&VolumeRecord> {
        self.history.len().checked_sub(2).and_then(|at| self.history.get(at))
    }

    /// A coordinator acknowledged a write under this record.
    pub fn acknowledged_under(&self, record: &VolumeRecord) -> Option<String> {
        (!self.history.contains(record))
            .then(|| format!("I2: acknowledged under epoch {}, which was never committed so", record.epoch))
    }
}
