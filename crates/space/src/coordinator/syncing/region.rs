//! One step on one region: the blocks read from each copy, and the writes that follow. Leaves
//! sending to `Syncing`.

use super::super::choosing::{Belief, Candidate, RegionCopy, choose, choose_after_crash};
use super::super::dirty_regions::Believed;
use super::super::keys::{OperationKey, Purpose};
use super::super::{Comparison, OVERWRITE_BLOCKS, REGION_BLOCKS};
use crate::message::ReplicaOperation;
use crate::planted::Planted;
use std::collections::{BTreeMap, BTreeSet};
use store::api::{StoreError, WriteClass};
use sys::Payload;
use types::{BLOCK_BYTES, ChangeNumber, ChunkIndex, DiskId, Lba, VolumeId};

#[derive(Debug, Clone)]
enum Block {
    Unread,
    Good(Candidate),
    Corrupt,
}

/// The blocks read from one copy.
struct Gather {
    blocks: Vec<Block>,
    /// Reads without an answer yet.
    pending: u32,
    /// Whether the copy could not be read.
    gone: bool,
}

impl Gather {
    fn good(&self, block: usize) -> Option<&Candidate> {
        match self.blocks.get(block) {
            Some(Block::Good(found)) => Some(found),
            _ => None,
        }
    }
}

/// A read of the volume that waits for the blocks chosen by a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub operation: OperationKey,
    pub lba: u64,
    pub blocks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Locking,
    Reading,
    Writing,
    Verifying,
}

/// Result of one read of a copy.
pub(super) enum Found {
    Blocks(Vec<Option<Candidate>>),
    /// These blocks are corrupt by the store, which returned no block.
    Corrupt(Vec<Lba>),
    Gone,
}

/// Progress of reading all copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Pending,
    Failed,
    Complete,
}

/// Damaged blocks of one disk.
pub(super) struct Damage {
    pub disk: DiskId,
    pub corrupt: Vec<Lba>,
    /// Blocks that are intact, and older than another copy.
    pub older: Vec<Lba>,
}

/// Numbers of the changes that make copies equal.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepNumbers {
    pub others: ChangeNumber,
    /// After a crash, the later number: for the base copy.
    pub base: ChangeNumber,
}

/// Invariant: a block of `winner` is lost only if every copy in `sources` was read, and none has it intact.
pub(super) struct Sync {
    pub purpose: Purpose,
    pub chunk: ChunkIndex,
    /// Whether the chunk has blocks that prove themselves.
    append: bool,
    /// First block, counted from the start of the virtual disk.
    pub lba: u64,
    pub blocks: u64,
    /// The region, counted over the virtual disk.
    pub region: u64,
    /// Whether the chunk existed when the step began. The step keeps it until it ends.
    pub uses_chunk: bool,
    pub stage: Stage,
    /// In-sync copies, in the order of trust.
    sources: Vec<DiskId>,
    gathers: BTreeMap<DiskId, Gather>,
    /// The blocks that every copy is to hold. `None`: no copy is intact.
    winner: Vec<Option<Candidate>>,
    /// After a crash: the base copy, and the copies with changes under the last epoch.
    lead: Option<(DiskId, Vec<DiskId>)>,
    /// Writes without an answer yet.
    writing: u32,
    /// Writes to send after those.
    later: Vec<(DiskId, ReplicaOperation)>,
    /// Blocks rewritten or, in a comparison, found wrong, by disk.
    written: BTreeMap<DiskId, u64>,
    /// Whether the returning disk had the last intact copy of some blocks.
    rescues: bool,
    waiting: Vec<Waiting>,
    /// Disks that refused a write, and their errors.
    refused: Vec<(DiskId, StoreError)>,
    pub compared: Comparison,
    /// Blocks without an intact copy, found by a comparison.
    pub lost: Vec<Lba>,
    pub failed: bool,
}

impl Sync {
    pub fn new(purpose: Purpose, chunk: ChunkIndex, lba: u64, blocks: u64, region: u64) -> Self {
        Self {
            purpose,
            chunk,
            append: false,
            lba,
            blocks,
            region,
            uses_chunk: false,
            stage: Stage::Locking,
            sources: Vec::new(),
            gathers: BTreeMap::new(),
            winner: Vec::new(),
            lead: None,
            writing: 0,
            later: Vec::new(),
            written: BTreeMap::new(),
            rescues: false,
            waiting: Vec::new(),
            refused: Vec::new(),
            compared: Comparison::default(),
            lost: Vec::new(),
            failed: false,
        }
    }

    /// Continues with these copies, which count, after the lock was granted.
    pub fn begin(&mut self, sources: Vec<DiskId>, append: bool) {
        debug_assert!(self.stage == Stage::Locking && !sources.is_empty());
        self.sources = sources;
        self.append = append;
    }

    pub fn is_append(&self) -> bool {
        self.append
    }

    /// Whether the step has requests in flight to the disk, or may send some.
    pub fn uses(&self, disk: DiskId) -> bool {
        self.sources.contains(&disk) || self.gathers.contains_key(&disk)
    }

    /// Adds a read that the chosen blocks are to answer.
    pub fn add_waiting(&mut self, waiting: Waiting) {
        debug_assert!(waiting.lba >= self.lba && waiting.lba + waiting.blocks <= self.lba + self.blocks);
        self.waiting.push(waiting);
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn take_waiting(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Begins to read the disk's copy.
    pub fn begin_gather(&mut self, disk: DiskId, stage: Stage) {
        self.stage = stage;
        let blocks = vec![Block::Unread; self.blocks as usize];
        self.gathers.insert(disk, Gather { blocks, pending: 0, gone: false });
    }

    /// Notes that one more read of the disk's copy is sent.
    pub fn expect_read(&mut self, disk: DiskId) {
        if let Some(gather) = self.gathers.get_mut(&disk) {
            gather.pending += 1;
        }
    }

    /// Notes the result of a read of the disk's copy. Returns the parts to read once more, without
    /// the corrupt blocks between them.
    pub fn take_read(&mut self, disk: DiskId, start: u64, blocks: u64, found: Found) -> Vec<(u64, u64)> {
        let first = self.lba;
        let Some(gather) = self.gathers.get_mut(&disk) else { return Vec::new() };
        debug_assert!(gather.pending > 0, "{disk} answers a read that was not sent");
        gather.pending -= 1;
        match found {
            Found::Blocks(found) => {
                for (block, found) in gather.blocks[start as usize..].iter_mut().zip(found) {
                    *block = found.map_or(Block::Corrupt, Block::Good);
                }
            }
            Found::Corrupt(lbas) => {
                let bad: BTreeSet<u64> = lbas.iter().map(|lba| lba.0.wrapping_sub(first)).collect();
                let known = (start..start + blocks).any(|at| bad.contains(&at));
                for at in start..start + blocks {
                    if bad.contains(&at) || !known {
                        gather.blocks[at as usize] = Block::Corrupt;
                    }
                }
                if known {
                    return runs((start..start + blocks).filter(|at| !bad.contains(at)), REGION_BLOCKS);
                }
            }
            Found::Gone => gather.gone = true,
        }
        Vec::new()
    }

    pub fn progress(&self) -> Progress {
        if self.gathers.values().any(|gather| gather.pending > 0) {
            return Progress::Pending;
        }
        if self.gathers.values().any(|gather| gather.gone) { Progress::Failed } else { Progress::Complete }
    }

    /// Returns copies that count and were not read.
    pub fn unread(&self) -> Vec<DiskId> {
        self.sources.iter().copied().filter(|disk| !self.gathers.contains_key(disk)).collect()
    }

    /// Compares the copies with each other; writes nothing.
    pub fn compare(&mut self) {
        let mut found =
            Comparison { copies: self.gathers.len() as u8, blocks: self.blocks, ..Comparison::default() };
        for at in 0..self.blocks as usize {
            let good: Vec<&Candidate> = self.gathers.values().filter_map(|gather| gather.good(at)).collect();
            if self.append && good.is_empty() {
                // Torn on all copies: the write was never acknowledged, or the volume itself finds
                // the block missing and reports that.
                continue;
            }
            found.corrupt += (self.gathers.len() - good.len()) as u64;
            found.lost += u64::from(good.is_empty());
            self.lost.extend(good.is_empty().then_some(Lba(self.lba + at as u64)));
            found.differing += u64::from(good.windows(2).any(|pair| pair[0].data != pair[1].data));
            let newest = choose(good.into_iter()).cloned();
            for (&disk, gather) in &self.gathers {
                let wrong = match (gather.good(at), &newest) {
                    (Some(have), Some(newest)) => have.is_older_than(newest),
                    (Some(_), None) => false,
                    (None, _) => true,
                };
                *self.written.entry(disk).or_default() += u64::from(wrong);
            }
        }
        self.compared = found;
    }

    /// Chooses the blocks that every copy is to hold, and returns those that no copy has intact.
    /// `believed`: the order of trust in the copies after a crash.
    pub fn choose_blocks(&mut self, believed: Option<&Believed>) -> Vec<Lba> {
        let blocks = self.blocks as usize;
        let copies: Vec<Vec<Option<&Candidate>>> = self
            .sources
            .iter()
            .filter_map(|disk| self.gathers.get(disk))
            .map(|gather| (0..blocks).map(|at| gather.good(at)).collect())
            .collect();
        self.winner = if self.purpose == Purpose::Reconcile && !self.append {
            let belief = |disk| believed.map_or(Belief::Newest, |believed| believed.belief(disk));
            let disks = self.sources.iter().filter(|disk| self.gathers.contains_key(disk));
            let copies = disks.clone().zip(copies);
            let copies = copies.map(|(disk, blocks)| RegionCopy { belief: belief(*disk), blocks });
            let choice = choose_after_crash(&copies.collect::<Vec<_>>());
            let last = disks.clone().copied().filter(|disk| belief(*disk) != Belief::Behind).collect();
            self.lead = disks.clone().nth(choice.base).map(|base| (*base, last));
            choice.blocks
        } else if self.append && Planted::AppendByLowestId.is_planted() {
            (0..blocks).map(|at| copies.iter().find_map(|copy| copy[at]).cloned()).collect()
        } else {
            (0..blocks).map(|at| choose(copies.iter().filter_map(|copy| copy[at])).cloned()).collect()
        };
        if self.append && self.purpose == Purpose::Reconcile && self.gave_all() {
            // The crash tore these blocks on every copy, so they were never acknowledged. A scrub would
            // report damage of all disks.
            self.winner
                .iter_mut()
                .for_each(|winner| *winner = winner.take().or_else(|| Some(Candidate::zeroes())));
        }
        (0..blocks).filter(|&at| self.winner[at].is_none()).map(|at| Lba(self.lba + at as u64)).collect()
    }

    /// Whether there are several copies, and each of them was read.
    fn gave_all(&self) -> bool {
        self.sources.len() > 1 && self.sources.iter().all(|disk| self.gathers.contains_key(disk))
    }

    /// Takes blocks without an intact copy that counts from the returning disk, if it has not missed them.
    /// Returns the others, which are lost.
    pub fn rescue(&mut self, lost: Vec<Lba>, has_not_missed: impl Fn(DiskId, u64) -> bool) -> Vec<Lba> {
        let Purpose::Resync(disk) = self.purpose else { return lost };
        let Some(gather) = self.gathers.get(&disk) else { return lost };
        let mut rescued = Vec::new();
        let lost = lost.into_iter().filter(|lba| {
            let at = (lba.0 - self.lba) as usize;
            let found = gather.good(at).filter(|_| has_not_missed(disk, lba.0));
            rescued.extend(found.map(|found| (at, found.clone())));
            found.is_none()
        });
        let lost = lost.collect();
        self.rescues = !rescued.is_empty();
        for (at, block) in rescued {
            self.winner[at] = Some(block);
        }
        lost
    }

    /// Returns the disks with corrupt blocks, or with intact ones that are too old because the disk lost an
    /// acknowledged write. A crash alone may leave a block that proves itself torn or old.
    pub fn damage(&self) -> Vec<Damage> {
        let (append, crashed) = (self.append, self.purpose == Purpose::Reconcile);
        let read = self.gathers.iter().filter(|(disk, _)| self.sources.contains(disk));
        let damage = read.map(|(&disk, gather)| {
            let (mut corrupt, mut older) = (Vec::new(), Vec::new());
            for (at, winner) in self.winner.iter().enumerate() {
                let (is_corrupt, is_older) = match (gather.good(at), winner) {
                    (None, Some(_)) => (!append || !crashed, false),
                    (None, None) => (!append, false),
                    (Some(have), Some(winner)) => (false, !crashed && have.is_older_than(winner)),
                    (Some(_), None) => (false, false),
                };
                let lba = Lba(self.lba + at as u64);
                corrupt.extend(is_corrupt.then_some(lba));
                older.extend(is_older.then_some(lba));
            }
            Damage { disk, corrupt, older }
        });
        damage.collect()
    }

    /// Begins to write. Returns the writes that make the copies equal, as changes with these
    /// numbers, or the stamps to write first ([`Sync::begin_later`]). A copy that takes several
    /// writes gets a late stamp with the first of them, and after a crash at that point it would
    /// outrank the better copies. So the copies with changes under the last epoch get a stamp
    /// first, by a write of a block that they have; the base copy gets the later stamp.
    pub fn begin_writing(
        &mut self,
        volume: VolumeId,
        numbers: StepNumbers,
    ) -> Vec<(DiskId, ReplicaOperation)> {
        let target = self.purpose.target();
        let mut targets: Vec<DiskId> = target.into_iter().collect();
        if target.is_none() || self.rescues || self.unread().is_empty() {
            targets.extend(&self.sources);
        }
        let mut writes = Vec::new();
        for disk in targets {
            self.differences(disk, target == Some(disk), volume, self.number_of(disk, numbers), &mut writes);
        }
        let times = |disk: DiskId| writes.iter().filter(|(to, _)| *to == disk).count();
        if writes.iter().any(|(disk, _)| times(*disk) > 1) {
            let stamps = self.stamps(volume, numbers);
            if !stamps.is_empty() {
                self.later = std::mem::replace(&mut writes, stamps);
            }
        }
        self.stage = Stage::Writing;
        self.writing = writes.len() as u32;
        writes
    }

    /// Returns the writes to send once the stamps are durable.
    pub fn begin_later(&mut self) -> Vec<(DiskId, ReplicaOperation)> {
        let writes = std::mem::take(&mut self.later);
        self.writing = writes.len() as u32;
        writes
    }

    fn number_of(&self, disk: DiskId, numbers: StepNumbers) -> ChangeNumber {
        match &self.lead {
            Some((base, _)) if *base == disk => numbers.base,
            _ => numbers.others,
        }
    }

    /// Returns unchanged writes of one block each that stamp the copies with changes under the last
    /// epoch; none if the base copy has no written block.
    fn stamps(&self, volume: VolumeId, numbers: StepNumbers) -> Vec<(DiskId, ReplicaOperation)> {
        let Some((base, last)) = &self.lead else { return Vec::new() };
        let stamp = |disk: DiskId| {
            let gather = self.gathers.get(&disk)?;
            let written = |at: &u64| gather.good(*at as usize).filter(|found| found.is_written());
            let (lba, found) = (0..self.blocks).find_map(|at| Some((Lba(self.lba + at), written(&at)?)))?;
            let data = Payload::from(found.data.clone());
            let checksums = codes::payload_checksums(volume, lba, &data);
            let (class, number) = (WriteClass::Overwrite, self.number_of(disk, numbers));
            Some((disk, ReplicaOperation::Write { lba, class, data, checksums, number }))
        };
        if stamp(*base).is_none() {
            return Vec::new();
        }
        let others = last.iter().filter(|disk| *disk != base);
        std::iter::once(base).chain(others).filter_map(|disk| stamp(*disk)).collect()
    }

    /// Adds the writes that give the disk's copy the chosen blocks. `fills`: the copy is in the making.
    fn differences(
        &mut self,
        disk: DiskId,
        fills: bool,
        volume: VolumeId,
        number: ChangeNumber,
        writes: &mut Vec<(DiskId, ReplicaOperation)>,
    ) {
        let Some(gather) = self.gathers.get(&disk) else { return };
        let (class, most) = match (self.append, fills) {
            (true, _) => (WriteClass::Append, REGION_BLOCKS),
            (false, true) => (WriteClass::Fresh, REGION_BLOCKS),
            (false, false) => (WriteClass::Overwrite, OVERWRITE_BLOCKS),
        };
        let differs = |at: &u64| match (&self.winner[*at as usize], gather.good(*at as usize)) {
            (Some(winner), Some(have)) => winner.data != have.data,
            (Some(_), None) => true,
            (None, _) => false,
        };
        for (start, blocks) in runs((0..self.blocks).filter(differs), most) {
            let mut data = Payload::new();
            for at in start..start + blocks {
                self.winner[at as usize].iter().for_each(|found| data.push(found.data.clone()));
            }
            debug_assert_eq!(data.len() as u64, blocks * BLOCK_BYTES as u64, "a lost block is written (I6)");
            *self.written.entry(disk).or_default() += blocks;
            let lba = Lba(self.lba + start);
            let checksums = match class {
                WriteClass::Append => Vec::new(),
                _ => codes::payload_checksums(volume, lba, &data),
            };
            writes.push((disk, ReplicaOperation::Write { lba, class, data, checksums, number }));
        }
        // A new copy must fail reads of blocks that no copy that counts has.
        let lost = |at: &u64| fills && self.winner[*at as usize].is_none();
        for (start, blocks) in runs((0..self.blocks).filter(lost), REGION_BLOCKS) {
            *self.written.entry(disk).or_default() += blocks;
            let lba = Lba(self.lba + start);
            writes.push((disk, ReplicaOperation::MarkLost { lba, blocks: blocks as u32, number }));
        }
    }

    /// Counts one write as answered; returns whether all are.
    pub fn write_answered(&mut self) -> bool {
        debug_assert!(self.writing > 0, "a write is answered that was not sent");
        self.writing -= 1;
        self.writing == 0
    }

    /// Notes that the disk refuses a write that other copies hold.
    pub fn refuse(&mut self, disk: DiskId, error: StoreError) {
        self.refused.push((disk, error));
    }

    pub fn take_refused(&mut self) -> Vec<(DiskId, StoreError)> {
        std::mem::take(&mut self.refused)
    }

    /// Begins to read the written copies back; returns their disks.
    pub fn begin_verifying(&mut self) -> Vec<DiskId> {
        self.gathers.clear();
        self.written.keys().copied().collect()
    }

    /// Returns the disks that hold the chosen blocks, and the disks that do not (I5).
    pub fn compare_written(&self) -> (Vec<DiskId>, Vec<DiskId>) {
        let equal = |gather: &Gather| {
            self.winner.iter().enumerate().all(|(at, winner)| match winner {
                Some(winner) => gather.good(at).is_some_and(|have| have.data == winner.data),
                None => true,
            })
        };
        let (kept, unkept): (Vec<_>, Vec<_>) = self.gathers.iter().partition(|(_, gather)| equal(gather));
        let disks = |found: Vec<(&DiskId, &Gather)>| found.into_iter().map(|(&disk, _)| disk).collect();
        (disks(kept), disks(unkept))
    }

    /// Returns the number of blocks rewritten or, in a comparison, found wrong, by disk.
    pub fn written(&self) -> &BTreeMap<DiskId, u64> {
        &self.written
    }

    /// Whether blocks were chosen, so that reads can be answered.
    pub fn has_chosen(&self) -> bool {
        !self.winner.is_empty()
    }

    /// Takes the reads all of whose blocks were found, with their data. The others wait until blocks are
    /// chosen once more.
    pub fn take_found(&mut self) -> Vec<(OperationKey, Payload)> {
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for waiting in self.take_waiting() {
            match self.answer(&waiting) {
                Ok(data) => found.push((waiting.operation, data)),
                Err(_) => others.push(waiting),
            }
        }
        self.waiting = others;
        self.winner.clear();
        found
    }

    /// Returns the read's data, or those of its blocks that no copy has intact.
    pub fn answer(&self, waiting: &Waiting) -> Result<Payload, Vec<Lba>> {
        let start = (waiting.lba - self.lba) as usize;
        let (mut data, mut lost) = (Payload::new(), Vec::new());
        for at in start..start + waiting.blocks as usize {
            match &self.winner[at] {
                Some(found) => data.push(found.data.clone()),
                None => lost.push(Lba(self.lba + at as u64)),
            }
        }
        if lost.is_empty() { Ok(data) } else { Err(lost) }
    }

    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }
}

/// Groups consecutive numbers as (first, count), of at most `most` each.
fn runs(numbers: impl Iterator<Item = u64>, most: u64) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match found.last_mut() {
            Some((first, count)) if *first + *count == number && *count < most => *count += 1,
            _ => found.push((number, 1)),
        }
    }
    found
}
