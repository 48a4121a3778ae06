//! The oracle's view of records and disks, and the times of its checks.

use super::blocks::{CHUNK_BLOCKS, CHUNKS, VOLUME, value_of};
use super::client::{Doing, History};
use super::course::Course;
use super::invariants::beginnings::Beginnings;
use super::invariants::{i1, i2, i4, i5};
use super::narrate;
use super::nodes::SimDisk;
use super::oracle::{Register, ZERO};
use super::servers::Servers;
use records::{MemoryState, Typed, VolumeRecord};
use space::block_store::BlockStore;
use space::fake_store::FakeStore;
use types::{ChunkIndex, DiskId, Lba};

/// Judges each committed record and each acknowledged write by the contents of the disks.
///
/// `records` has every record that was ever committed, in order, the last being the one in force.
pub(crate) struct Judge {
    records: i2::Records,
    /// Revision of the last record.
    revision: u64,
    beginnings: Beginnings,
    /// Whether the disks hold wrong contents, so that they cannot be checked.
    pub is_blind: bool,
}

impl Judge {
    /// Begins with the record that makes the volume.
    pub fn new(first: &VolumeRecord, revision: u64) -> Self {
        let mut records = i2::Records::default();
        records.committed(first);
        Self { records, revision, beginnings: Beginnings::default(), is_blind: false }
    }

    /// Returns the record in force.
    pub fn record(&self) -> Option<&VolumeRecord> {
        self.records.last()
    }

    /// Checks the record after a change of the cluster state.
    pub fn state_changed(
        &mut self,
        course: &mut Course,
        state: &MemoryState,
        disks: &[SimDisk],
        history: &History,
        retired: Option<DiskId>,
    ) {
        let Ok(Some(found)) = state.read::<VolumeRecord>(&VOLUME.to_string()) else { return };
        if found.revision == self.revision {
            return;
        }
        self.revision = found.revision;
        course.violate(self.records.committed(&found.value));
        let Some(before) = self.records.before_last() else { return };
        let after = &found.value;
        self.beginnings.committed(after, retired, course.step);
        narrate::record(course.moment(), after, retired);
        course.trace.note(&[6, after.epoch.0, after.in_sync.len() as u64]);
        if retired.is_none() {
            course.violate(i5::check_record(before, after));
        }
        course.coverage.expulsions +=
            before.in_sync.iter().filter(|disk| !after.in_sync.contains(disk)).count() as u64;
        let look = Look { disks, history };
        if self.is_blind || !look.is_possible() {
            return;
        }
        let now = course.step;
        for disk in after.in_sync.iter().filter(|disk| !before.in_sync.contains(disk)) {
            course.coverage.joins += 1;
            let registers = history.registers.iter().filter(|(lba, _)| look.holds(*disk, **lba, after));
            course.violate(registers.filter_map(|(lba, register)| {
                i4::check(*disk, *lba, register, look.value_on(*disk, *lba), now)
            }));
        }
        course.violate(
            history.registers.iter().filter_map(|(lba, register)| {
                i5::check_block(*lba, register, &look.copies(*lba, after), now)
            }),
        );
    }

    /// Notes a client's operation on a node's coordinator that is about to begin.
    pub fn asked(&mut self, step: u64, servers: &Servers, node: usize, doing: &Doing) {
        let Doing::Write { lba, .. } = doing else { return };
        let chunk = chunk_of(*lba);
        let has_slab = |disk: &SimDisk| disk.medium.fake().is_none_or(|store| store.has_chunk(VOLUME, chunk));
        let is_unborn = !servers.disks.iter().any(has_slab);
        let coordinator = servers.nodes[node].coordinator.as_ref();
        let is_latest = coordinator.map(|found| found.record()) == self.records.last();
        self.beginnings.asked(chunk, is_unborn, is_latest, step);
    }

    /// Checks blocks whose write a node's coordinator acknowledged.
    pub fn acknowledged(
        &mut self,
        course: &mut Course,
        servers: &Servers,
        history: &History,
        node: usize,
        lbas: impl Iterator<Item = u64>,
    ) {
        let Some(record) = self.records.last() else { return };
        let Some(coordinator) = &servers.nodes[node].coordinator else { return };
        let own = coordinator.record();
        course.violate(self.records.acknowledged_under(own));
        course.violate(i2::check_counted(own, &coordinator.chunk_copies()));
        let look = Look { disks: &servers.disks, history };
        if self.is_blind || !look.is_possible() {
            return;
        }
        for lba in lbas {
            let Some(register) = history.registers.get(&lba) else { continue };
            // A copy may leave between the answer of the last disk and this moment, or become an
            // older image of itself. It still counts here.
            let gone_back = own.in_sync.iter().filter(|disk| look.went_back(**disk, own)).count();
            let count = look.copies(lba, own).len() + gone_back;
            let copies = look.copies(lba, record);
            // A chunk that was given back has no copies.
            let zeroed = !register.may_be_zeroed(course.step);
            let min_copies = if zeroed { 0 } else { usize::from(own.min_copies) };
            let step = course.step;
            course.violate(i1::check(lba, register, &copies, count, min_copies, step));
            if !zeroed {
                course.violate(self.beginnings.acknowledged(chunk_of(lba), own, count));
            }
        }
    }

    /// Compares all copies at the end, when they must be equal.
    pub fn check_copies(&self, course: &mut Course, disks: &[SimDisk], history: &History) {
        let Some(record) = self.records.last() else { return };
        let look = Look { disks, history };
        for (lba, register) in &history.registers {
            let copies = look.copies(*lba, record);
            if copies.windows(2).any(|pair| pair[0] != pair[1]) {
                let wrong = format!("I10: copies of block {lba} differ at the end: {copies:x?}");
                course.violate([wrong]);
            }
            if look.is_possible() {
                let step = course.step;
                course.violate(i5::check_block(*lba, register, &copies, step));
            }
        }
    }

    /// Checks at the end, when every disk is present, that each chunk has all copies for which
    /// there is space: slabs of other disks, and those that an expelled disk still has.
    pub fn check_counts(&self, course: &mut Course, disks: &[SimDisk], retired: Option<DiskId>) {
        let Some(record) = self.records.last() else { return };
        for chunk in (0..CHUNKS).map(|chunk| ChunkIndex(chunk as u32)) {
            let known = || disks.iter().filter_map(|disk| Some((disk, disk.medium.fake()?)));
            let having = || known().filter(|(_, store)| store.has_chunk(VOLUME, chunk));
            let counts = |disk: &SimDisk| {
                record.in_sync.contains(&disk.id) && !record.building.contains(&(disk.id, chunk))
            };
            let holders: Vec<&SimDisk> = having().map(|(disk, _)| disk).filter(|disk| counts(disk)).collect();
            if holders.is_empty() || holders.len() >= usize::from(record.resiliency.copies()) {
                continue;
            }
            let is_apart = |disk: &SimDisk| holders.iter().all(|holder| holder.node != disk.node);
            let has_room = |disk: &SimDisk, store: &FakeStore| {
                let is_usable = record.in_sync.contains(&disk.id) && Some(disk.id) != retired;
                is_usable && is_apart(disk) && store.slabs().1 > 0
            };
            // A disk that was away only for moments is never forgotten while it has the second copy
            // of a chunk.
            let is_forgotten =
                |disk: &SimDisk| course.scenario.retiring_away && Some(disk.id) == retired && !counts(disk);
            let is_out =
                |disk: &SimDisk| record.stale.iter().any(|stale| stale.disk == disk.id) || is_forgotten(disk);
            let free = known().find(|(disk, store)| has_room(disk, store));
            let outdated = having().find(|(disk, _)| is_out(disk));
            if let Some((disk, _)) = free.or(outdated) {
                let (count, id) = (holders.len(), disk.id);
                course.violate([format!(
                    "I1: {chunk:?} has {count} copies at the end, and {id} has a slab for it"
                )]);
            }
        }
    }
}

/// Returns the chunk of a block.
fn chunk_of(lba: u64) -> ChunkIndex {
    ChunkIndex((lba / CHUNK_BLOCKS) as u32)
}

/// Direct access to the stores, past their replicas.
struct Look<'a> {
    disks: &'a [SimDisk],
    history: &'a History,
}

impl Look<'_> {
    /// Whether stores can be read directly, without requests.
    fn is_possible(&self) -> bool {
        self.disks.iter().all(|disk| !disk.medium.is_real())
    }

    /// Whether the disk became an older image of itself: it has promised less than the record says.
    /// No session with it can begin before a record has decided on it (docs/PROTOCOL.md), so until
    /// then nothing reads its data.
    fn went_back(&self, disk: DiskId, record: &VolumeRecord) -> bool {
        let known = self.disks.iter().find(|known| known.id == disk);
        let store = known.and_then(|known| known.medium.fake());
        record.in_sync.contains(&disk) && store.is_some_and(|store| store.promised(VOLUME) < record.promised)
    }

    /// Whether the disk has a copy of the block that counts by this record.
    fn holds(&self, disk: DiskId, lba: u64, record: &VolumeRecord) -> bool {
        let chunk = chunk_of(lba);
        let known = self.disks.iter().find(|known| known.id == disk);
        let has = known.and_then(|known| known.medium.fake()).is_some_and(|store| {
            // Blocks marked as lost do not count as held.
            store.has_chunk(VOLUME, chunk) && !store.is_lost(VOLUME, Lba(lba))
        });
        let counts = record.in_sync.contains(&disk) && !self.went_back(disk, record);
        has && counts && !record.building.contains(&(disk, chunk))
    }

    /// Reads the value that the disk has of the block; `None` if that is garbage.
    fn value_on(&self, disk: DiskId, lba: u64) -> Option<u64> {
        let known = self.disks.iter().find(|known| known.id == disk)?;
        let found = match known.medium.fake()?.peek(VOLUME, Lba(lba)) {
            Some(block) => value_of(&block, lba)?,
            None => ZERO,
        };
        let zeroes = || self.history.registers.get(&lba).map(Register::zeroes);
        if found == ZERO { zeroes().or(Some(found)) } else { Some(found) }
    }

    /// Reads the values of all copies of the block that count by this record.
    fn copies(&self, lba: u64, record: &VolumeRecord) -> Vec<Option<u64>> {
        let holders = record.in_sync.iter().filter(|disk| self.holds(**disk, lba, record));
        holders.map(|disk| self.value_on(*disk, lba)).collect()
    }
}
