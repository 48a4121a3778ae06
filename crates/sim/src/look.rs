//! What the oracle sees of records and disks, and when it looks.

use crate::client::{CHUNK_BLOCKS, value_of};
use crate::invariants::{i1, i2, i4, i5};
use crate::narrate;
use crate::world::{VOLUME, World};
use cluster::{Typed, VolumeRecord};
use types::{ChunkIndex, DiskId, Lba};

impl World {
    pub(crate) fn record_changed(&mut self) {
        let Ok(Some(found)) = self.state.read::<VolumeRecord>(&VOLUME.to_string()) else { return };
        if found.revision == self.revision {
            return;
        }
        self.revision = found.revision;
        let wrong = self.records.committed(&found.value);
        self.violate(wrong);
        let Some(before) = self.records.before_last().cloned() else { return };
        let after = found.value;
        narrate::record(self.moment(), &after, self.retired);
        self.trace.note(&[6, after.epoch.0, after.in_sync.len() as u64]);
        if self.retired.is_none() {
            self.violate(i5::check_record(&before, &after));
        }
        self.coverage.expulsions +=
            before.in_sync.iter().filter(|disk| !after.in_sync.contains(disk)).count() as u64;
        if !self.can_look() {
            return;
        }
        let now = self.step;
        for disk in &after.in_sync {
            if before.in_sync.contains(disk) {
                continue;
            }
            self.coverage.joins += 1;
            let wrong: Vec<String> = self
                .history
                .registers
                .iter()
                .filter(|(lba, _)| self.holds(*disk, **lba, &after))
                .filter_map(|(lba, register)| {
                    i4::check(*disk, *lba, register, self.value_on(*disk, *lba), now)
                })
                .collect();
            self.violate(wrong);
        }
        let wrong: Vec<String> = self
            .history
            .registers
            .iter()
            .filter_map(|(lba, register)| i5::check_block(*lba, register, &self.copies(*lba, &after), now))
            .collect();
        self.violate(wrong);
    }

    /// Whether the disk has a copy of the block that counts by this record.
    pub(crate) fn holds(&self, disk: DiskId, lba: u64, record: &VolumeRecord) -> bool {
        let chunk = ChunkIndex((lba / CHUNK_BLOCKS) as u32);
        let known = self.disks.iter().find(|known| known.id == disk);
        let has = known.and_then(|known| known.medium.fake()).is_some_and(|store| {
            // What is marked as lost is not answered for.
            store.has_chunk(VOLUME, chunk) && !store.is_lost(VOLUME, Lba(lba))
        });
        has && record.in_sync.contains(&disk) && !record.building.contains(&(disk, chunk))
    }

    /// What the disk has of the block; none: garbage.
    pub(crate) fn value_on(&self, disk: DiskId, lba: u64) -> Option<u64> {
        let known = self.disks.iter().find(|known| known.id == disk)?;
        let found = match known.medium.fake()?.peek(VOLUME, Lba(lba)) {
            Some(block) => value_of(&block, lba)?,
            None => crate::oracle::ZERO,
        };
        let zeroes = || self.history.registers.get(&lba).map(crate::oracle::Register::zeroes);
        if found == crate::oracle::ZERO { zeroes().or(Some(found)) } else { Some(found) }
    }

    pub(crate) fn copies(&self, lba: u64, record: &VolumeRecord) -> Vec<Option<u64>> {
        let holders = record.in_sync.iter().filter(|disk| self.holds(**disk, lba, record));
        holders.map(|disk| self.value_on(*disk, lba)).collect()
    }

    pub(crate) fn check_acknowledged(&mut self, node: usize, lba: u64, blocks: u64) {
        let Some(record) = self.records.last().cloned() else { return };
        let Some(coordinator) = &self.nodes[node].coordinator else { return };
        let own = coordinator.record().clone();
        let mut wrong: Vec<String> = self.records.acknowledged_under(&own).into_iter().collect();
        wrong.extend(i2::check_counted(&own, &coordinator.chunk_copies()));
        for at in lba..lba + blocks {
            let Some(register) = self.history.registers.get(&at).filter(|_| self.can_look()) else {
                continue;
            };
            // A copy may leave between the answer of the last disk and this moment: it counts for the number of copies.
            let count = self.copies(at, &own).len();
            let copies = self.copies(at, &record);
            // A chunk that was given back has no copies.
            let zeroed = !register.may_be_zeroed(self.step);
            let min_copies = if zeroed { 0 } else { usize::from(own.min_copies) };
            wrong.extend(i1::check(at, register, &copies, count, min_copies, self.step));
        }
        self.violate(wrong);
    }

    /// At the end all copies are equal.
    pub(crate) fn check_copies(&mut self) {
        let Some(record) = self.records.last().cloned() else { return };
        let mut wrong = Vec::new();
        for (lba, register) in &self.history.registers {
            let copies = self.copies(*lba, &record);
            if copies.windows(2).any(|pair| pair[0] != pair[1]) {
                wrong.push(format!("I10: copies of block {lba} differ at the end: {copies:x?}"));
            }
            if self.can_look() {
                wrong.extend(i5::check_block(*lba, register, &copies, self.step));
            }
        }
        self.violate(wrong);
    }

    /// Whether stores can be looked into without asking them.
    pub(crate) fn can_look(&self) -> bool {
        self.disks.iter().all(|disk| !disk.medium.is_real())
    }
}
