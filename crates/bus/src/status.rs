//! What a node tells the others of its disks.

use std::collections::VecDeque;
use types::{DiskId, Lba, VolumeId};

/// Findings that are remembered for peers that have not asked yet; the next scrub finds again what is forgotten.
const FINDINGS_MAX: usize = 4096;

/// A disk as the node that has it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskStatus {
    pub disk: DiskId,
    pub total_slabs: u64,
    pub free_slabs: u64,
    pub slab_blocks: u32,
    /// Blocks that failed their checksum here and that nobody who asked before was told of.
    pub corrupt: Vec<(VolumeId, Lba)>,
}

/// Corrupt blocks that were found on local disks, such as by a scrub, and that only the owners of their volumes can repair.
#[derive(Debug, Default)]
pub struct Findings {
    found: VecDeque<(DiskId, VolumeId, Lba)>,
    /// Findings forgotten since the start, so that every finding has a number.
    forgotten: u64,
}

impl Findings {
    pub(crate) fn note(&mut self, disk: DiskId, blocks: &[(VolumeId, Lba)]) {
        for &(volume, lba) in blocks {
            let finding = (disk, volume, lba);
            if self.found.contains(&finding) {
                continue;
            }
            if self.found.len() == FINDINGS_MAX {
                self.found.pop_front();
                self.forgotten += 1;
            }
            self.found.push_back(finding);
        }
    }

    /// The number that the next finding will have.
    pub(crate) fn cursor(&self) -> u64 {
        self.forgotten + self.found.len() as u64
    }

    /// What was found from this number on, and the number of its first. A number that was never given stands for the beginning: it is of
    /// another process.
    pub(crate) fn since(&self, cursor: u64) -> (u64, impl Iterator<Item = &(DiskId, VolumeId, Lba)>) {
        let known = if cursor > self.cursor() { 0 } else { cursor.saturating_sub(self.forgotten) };
        (self.forgotten + known, self.found.iter().skip(known as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(number: u8) -> DiskId {
        DiskId::from_bytes([number; 16])
    }

    #[test]
    fn each_finding_is_told_once_to_who_says_how_far_it_was_told() {
        let volume = VolumeId::from_bytes([7; 16]);
        let mut findings = Findings::default();
        findings.note(disk(1), &[(volume, Lba(1)), (volume, Lba(2)), (volume, Lba(1))]);
        let cursor = findings.cursor();
        assert_eq!((findings.since(0).1.count(), findings.since(cursor).1.count()), (2, 0));
        findings.note(disk(1), &[(volume, Lba(3))]);
        assert_eq!(findings.since(cursor).1.collect::<Vec<_>>(), [&(disk(1), volume, Lba(3))]);
        // A peer that was told by a process of before.
        assert_eq!(findings.since(1000).1.count(), 3);
    }

    #[test]
    fn findings_that_nobody_asks_for_are_bounded() {
        let volume = VolumeId::from_bytes([7; 16]);
        let mut findings = Findings::default();
        for lba in 0..FINDINGS_MAX as u64 + 10 {
            findings.note(disk(1), &[(volume, Lba(lba))]);
        }
        assert_eq!(findings.since(0).1.count(), FINDINGS_MAX);
        assert_eq!(
            findings.since(findings.cursor() - 1).1.map(|(_, _, lba)| lba.0).collect::<Vec<_>>(),
            [4105]
        );
    }
}
