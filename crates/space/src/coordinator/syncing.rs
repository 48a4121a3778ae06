//! Making the copies of one region equal: the one step that reconciliation, repair, resync and rebuild are made of.
//!
//! Under the region's exclusive lock: read the copies, choose for each block the first intact one in order of disk ids (after a
//! crash in the order in which copies are believed, [`super::suspects`]), write it where it differs, read what was written and
//! compare (I5). A step that is cut off anywhere can be done again. A block without an intact copy is taken from the disk that
//! returns, if that has surely not missed it ([`super::absences`]). Any other is told; a copy in the making marks it as lost, so
//! that reads of it, and of it alone, fail until it is written again.
//!
//! | purpose | read | written |
//! |---|---|---|
//! | reconcile, repair | all in-sync copies | those of them that differ or are corrupt, as overwrites: each block is old or new |
//! | compare | all in-sync copies | nothing |
//! | resync, build | the first in-sync copy (others where it is corrupt) and the target | the target, which does not count yet; in-sync copies where the target had the last intact one |

use super::calls::{Failure, Owner};
use super::chunks::ChunkState;
use super::locks::Holder;
use super::{Comparison, Coordinator, Event, OVERWRITE_BLOCKS, REGION_BLOCKS};
use crate::message::{Answer, Operation as Message};
use std::collections::{BTreeMap, BTreeSet};
use store::api::{StoreError, WriteClass};
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Lba};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    Reconcile,
    Repair,
    Compare,
    Resync(DiskId),
    Build(DiskId),
}

impl Purpose {
    fn target(self) -> Option<DiskId> {
        match self {
            Self::Reconcile | Self::Repair | Self::Compare => None,
            Self::Resync(disk) | Self::Build(disk) => Some(disk),
        }
    }
}

#[derive(Debug, Clone)]
enum Block {
    Unread,
    Good(Buf),
    Corrupt,
}

/// What was read of one copy.
struct Gather {
    blocks: Vec<Block>,
    pending: u32,
    gone: bool,
}

impl Gather {
    fn good(&self, block: usize) -> Option<&Buf> {
        match self.blocks.get(block) {
            Some(Block::Good(data)) => Some(data),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Locking,
    Reading,
    Writing,
    Verifying,
}

pub(super) struct Sync {
    pub purpose: Purpose,
    pub chunk: ChunkIndex,
    /// First block of the region, counted from the start of the virtual disk.
    pub lba: u64,
    blocks: u64,
    region: u64,
    stage: Stage,
    /// In-sync copies, in order.
    sources: Vec<DiskId>,
    gathers: BTreeMap<DiskId, Gather>,
    /// What every copy shall hold; none: no copy is intact.
    winner: Vec<Option<Buf>>,
    writing: u32,
    written: BTreeMap<DiskId, u64>,
    /// The disk that returns had the last intact copy of some blocks.
    rescues: bool,
    compared: Comparison,
    failed: bool,
}

impl Coordinator {
    /// Begins to make the region of `lba` equal; nothing where that is under way.
    pub(super) fn start_sync(&mut self, index: ChunkIndex, lba: u64, purpose: Purpose) {
        if let (number, true) = self.prepare_sync(index, lba, purpose) {
            self.enter_sync(number);
        }
    }

    /// The number of the step that makes the region of `lba` equal, and whether it is a new one: [`Self::enter_sync`] begins it.
    /// Another job of the same purpose, since given up, may have left one under way: it serves as well.
    pub(super) fn prepare_sync(&mut self, index: ChunkIndex, lba: u64, purpose: Purpose) -> (u64, bool) {
        let blocks = self.region_blocks();
        let offset = lba % self.chunk_blocks;
        let first = lba - offset % blocks;
        let blocks = blocks.min(self.chunk_blocks - first % self.chunk_blocks);
        let known = self.syncs.iter().find(|(_, sync)| sync.lba == first && sync.purpose == purpose);
        if let Some((&number, _)) = known {
            return (number, false);
        }
        let region = self.region_of(first);
        let number = self.number();
        let sync = Sync {
            purpose,
            chunk: index,
            lba: first,
            blocks,
            region,
            stage: Stage::Locking,
            sources: Vec::new(),
            gathers: BTreeMap::new(),
            winner: Vec::new(),
            writing: 0,
            written: BTreeMap::new(),
            rescues: false,
            compared: Comparison::default(),
            failed: false,
        };
        self.syncs.insert(number, sync);
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.active += 1;
        }
        (number, true)
    }

    pub(super) fn enter_sync(&mut self, number: u64) {
        let Some(sync) = self.syncs.get(&number) else { return };
        let (region, range) = (sync.region, sync.lba..sync.lba + sync.blocks);
        if self.locks.lock(Holder::Sync(number), region, range, true) {
            self.sync_locked(number);
        }
    }

    pub(super) fn sync_locked(&mut self, number: u64) {
        let Some(sync) = self.syncs.get(&number) else { return };
        let (index, purpose) = (sync.chunk, sync.purpose);
        let region = (sync.lba % self.chunk_blocks) / self.region_blocks();
        let mut sources = self.holders_of(index).to_vec();
        if let Some(believed) = self.chunks.get(&index).and_then(|chunk| chunk.believed.get(&region)) {
            sources.sort_by_key(|disk| believed.iter().position(|known| known == disk).unwrap_or(usize::MAX));
        }
        let state = self.chunks.get(&index).map(|chunk| &chunk.state);
        let mapped = state.is_some_and(|state| *state != ChunkState::Closing);
        let target = purpose.target();
        let few = target.is_none() && purpose != Purpose::Compare && sources.len() < 2;
        if !mapped || sources.is_empty() || few {
            // A chunk that is given back still counts until that is done, and a crash may come before: a copy that was not
            // filled must not count.
            let unfilled = target.is_some() && state.is_some();
            if let Some(sync) = self.syncs.get_mut(&number) {
                sync.failed |= unfilled;
            }
            return self.finish_sync(number);
        }
        let mut read = match target {
            None => sources.clone(),
            Some(_) => sources.iter().copied().take(1).collect(),
        };
        read.extend(target);
        if let Some(sync) = self.syncs.get_mut(&number) {
            sync.sources = sources;
        }
        for disk in read {
            self.gather(number, disk, Stage::Reading);
        }
    }

    /// Reads the whole region from the disk.
    fn gather(&mut self, number: u64, disk: DiskId, stage: Stage) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let blocks = sync.blocks;
        sync.stage = stage;
        let gather = Gather { blocks: vec![Block::Unread; blocks as usize], pending: 0, gone: false };
        sync.gathers.insert(disk, gather);
        self.gather_range(number, disk, 0, blocks);
    }

    fn gather_range(&mut self, number: u64, disk: DiskId, start: u64, blocks: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let lba = Lba(sync.lba + start);
        if let Some(gather) = sync.gathers.get_mut(&disk) {
            gather.pending += 1;
        }
        let owner = Owner::SyncRead { sync: number, start, blocks };
        self.call(owner, disk, Message::Read { lba, blocks: blocks as u32 });
    }

    pub(super) fn sync_read(
        &mut self,
        number: u64,
        disk: DiskId,
        start: u64,
        blocks: u64,
        result: Result<Answer, Failure>,
    ) {
        let Some(sync) = self.syncs.get(&number) else { return };
        let lba = sync.lba + start;
        let result = match result {
            Ok(Answer::Data { data, checksums }) if self.is_intact(lba, blocks, &data, &checksums) => {
                Ok(data)
            }
            Ok(_) => Err(Failure::Store(StoreError::Corrupt { lbas: vec![Lba(lba)] })),
            Err(failure) => Err(failure),
        };
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let first = sync.lba;
        let Some(gather) = sync.gathers.get_mut(&disk) else { return };
        gather.pending = gather.pending.saturating_sub(1);
        let mut again = Vec::new();
        match result {
            Ok(data) => {
                for at in 0..blocks {
                    let block = data.slice(at as usize * BLOCK_BYTES, BLOCK_BYTES).contiguous();
                    gather.blocks[(start + at) as usize] = Block::Good(block);
                }
            }
            Err(Failure::Store(StoreError::Corrupt { lbas })) => {
                let bad: BTreeSet<u64> = lbas.iter().map(|lba| lba.0.wrapping_sub(first)).collect();
                let known = (start..start + blocks).any(|at| bad.contains(&at));
                for at in start..start + blocks {
                    if bad.contains(&at) || !known {
                        gather.blocks[at as usize] = Block::Corrupt;
                    }
                }
                if known {
                    again = runs((start..start + blocks).filter(|at| !bad.contains(at)), REGION_BLOCKS);
                }
            }
            Err(_) => gather.gone = true,
        }
        for (start, blocks) in again {
            self.gather_range(number, disk, start, blocks);
        }
        self.conclude_reading(number);
    }

    fn conclude_reading(&mut self, number: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        if sync.gathers.values().any(|gather| gather.pending > 0) {
            return;
        }
        if sync.gathers.values().any(|gather| gather.gone) {
            // Which copies count has changed, or will: this is done again later.
            sync.failed = true;
            return self.finish_sync(number);
        }
        match sync.stage {
            Stage::Reading if sync.purpose == Purpose::Compare => self.compare_copies(number),
            Stage::Reading => self.choose_blocks(number),
            Stage::Verifying => self.compare_written(number),
            Stage::Locking | Stage::Writing => {}
        }
    }

    fn compare_copies(&mut self, number: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let mut found =
            Comparison { copies: sync.gathers.len() as u8, blocks: sync.blocks, ..Comparison::default() };
        for at in 0..sync.blocks as usize {
            let good: Vec<&Buf> = sync.gathers.values().filter_map(|gather| gather.good(at)).collect();
            found.corrupt += (sync.gathers.len() - good.len()) as u64;
            found.lost += u64::from(good.is_empty());
            found.differing += u64::from(good.windows(2).any(|pair| pair[0] != pair[1]));
        }
        sync.compared = found;
        self.finish_sync(number);
    }

    fn choose_blocks(&mut self, number: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let blocks = sync.blocks as usize;
        sync.winner = (0..blocks)
            .map(|at| {
                let gathers = sync.sources.iter().filter_map(|disk| sync.gathers.get(disk));
                gathers.filter_map(|gather| gather.good(at)).next().cloned()
            })
            .collect();
        let lost: Vec<Lba> =
            (0..blocks).filter(|&at| sync.winner[at].is_none()).map(|at| Lba(sync.lba + at as u64)).collect();
        let unread: Vec<DiskId> =
            sync.sources.iter().copied().filter(|disk| !sync.gathers.contains_key(disk)).collect();
        if !lost.is_empty() && !unread.is_empty() {
            for disk in unread {
                self.gather(number, disk, Stage::Reading);
            }
            return;
        }
        let chunk = sync.chunk;
        let lost = self.rescue(number, lost);
        if !lost.is_empty() {
            self.emit(Event::Unrepairable { chunk, lbas: lost });
        }
        self.write_differences(number);
    }

    /// Of blocks without an intact copy that counts, those are taken from the disk that returns which it did not miss; the
    /// others are lost.
    fn rescue(&mut self, number: u64, lost: Vec<Lba>) -> Vec<Lba> {
        let Some(sync) = self.syncs.get(&number) else { return lost };
        let Purpose::Resync(disk) = sync.purpose else { return lost };
        let Some(gather) = sync.gathers.get(&disk) else { return lost };
        let (mut rescued, first) = (Vec::new(), sync.lba);
        let lost = lost.into_iter().filter(|lba| {
            let at = (lba.0 - first) as usize;
            let found = gather.good(at).filter(|_| self.has_not_missed(disk, lba.0));
            rescued.extend(found.map(|block| (at, block.clone())));
            found.is_none()
        });
        let lost = lost.collect();
        if let Some(sync) = self.syncs.get_mut(&number) {
            sync.rescues = !rescued.is_empty();
            for (at, block) in rescued {
                sync.winner[at] = Some(block);
            }
        }
        lost
    }

    fn write_differences(&mut self, number: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let append = self.chunks.get(&sync.chunk).is_some_and(|chunk| chunk.append);
        let target = sync.purpose.target();
        let mut targets: Vec<DiskId> = target.into_iter().collect();
        if target.is_none() || sync.rescues {
            targets.extend(&sync.sources);
        }
        let mut writes = Vec::new();
        for disk in targets {
            let Some(gather) = sync.gathers.get(&disk) else { continue };
            let fills = target == Some(disk);
            let (class, most) = match (append, fills) {
                (true, _) => (WriteClass::Append, REGION_BLOCKS),
                (false, true) => (WriteClass::Fresh, REGION_BLOCKS),
                (false, false) => (WriteClass::Overwrite, OVERWRITE_BLOCKS),
            };
            let differs = |at: &u64| match (&sync.winner[*at as usize], gather.good(*at as usize)) {
                (Some(winner), Some(have)) => winner != have,
                (Some(_), None) => true,
                (None, _) => false,
            };
            for (start, blocks) in runs((0..sync.blocks).filter(differs), most) {
                let mut data = Payload::new();
                for at in start..start + blocks {
                    sync.winner[at as usize].iter().for_each(|block| data.push(block.clone()));
                }
                *sync.written.entry(disk).or_default() += blocks;
                let lba = Lba(sync.lba + start);
                let checksums = match class {
                    WriteClass::Append => Vec::new(),
                    _ => codes::payload_checksums(self.volume, lba, &data),
                };
                writes.push((disk, Message::Write { lba, class, data, checksums }));
            }
            // It must not answer for what no copy that counts can answer for.
            let lost = |at: &u64| fills && sync.winner[*at as usize].is_none();
            for (start, blocks) in runs((0..sync.blocks).filter(lost), REGION_BLOCKS) {
                *sync.written.entry(disk).or_default() += blocks;
                let lba = Lba(sync.lba + start);
                writes.push((disk, Message::MarkLost { lba, blocks: blocks as u32 }));
            }
        }
        sync.stage = Stage::Writing;
        sync.writing = writes.len() as u32;
        if writes.is_empty() {
            return self.finish_sync(number);
        }
        self.members.last_stamp = self.members.last_stamp.max(self.record.epoch);
        for (disk, message) in writes {
            self.call(Owner::SyncWrite(number), disk, message);
        }
    }

    pub(super) fn sync_written(&mut self, number: u64, _disk: DiskId, result: Result<Answer, Failure>) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        sync.writing = sync.writing.saturating_sub(1);
        sync.failed |= result.is_err();
        if sync.writing > 0 {
            return;
        }
        if sync.failed {
            return self.finish_sync(number);
        }
        let written: Vec<DiskId> = sync.written.keys().copied().collect();
        sync.gathers.clear();
        for disk in written {
            self.gather(number, disk, Stage::Verifying);
        }
    }

    fn compare_written(&mut self, number: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let equal = |gather: &Gather| {
            sync.winner.iter().enumerate().all(|(at, winner)| match winner {
                Some(winner) => gather.good(at) == Some(winner),
                None => true,
            })
        };
        sync.failed |= !sync.gathers.values().all(equal);
        self.finish_sync(number);
    }

    fn finish_sync(&mut self, number: u64) {
        let Some(sync) = self.syncs.remove(&number) else { return };
        let blocks: u64 = sync.written.values().sum();
        if (sync.purpose == Purpose::Repair || sync.rescues) && !sync.failed {
            let target = sync.purpose.target();
            for (&disk, &blocks) in sync.written.iter().filter(|(disk, _)| target != Some(**disk)) {
                self.counters.repaired_blocks += blocks;
                self.emit(Event::Repaired { disk, chunk: sync.chunk, blocks });
            }
        }
        self.release_chunk(sync.chunk);
        match sync.purpose {
            Purpose::Reconcile if !sync.failed => self.reconciled(sync.chunk, sync.lba, blocks),
            Purpose::Reconcile => {}
            Purpose::Repair => self.build_step(None, number, &sync),
            Purpose::Compare => self.emit(Event::Compared { lba: Lba(sync.lba), found: sync.compared }),
            Purpose::Resync(disk) => self.resync_step(disk, number, &sync),
            Purpose::Build(disk) => self.build_step(Some(disk), number, &sync),
        }
        self.background_step_done();
        self.recheck = true;
        self.unlock(Holder::Sync(number), sync.region);
    }
}

impl Sync {
    pub fn succeeded(&self) -> bool {
        !self.failed
    }

    pub fn uses(&self, disk: DiskId) -> bool {
        self.sources.contains(&disk) || self.gathers.contains_key(&disk)
    }

    pub fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }
}

/// Consecutive numbers as (first, count), of at most `most` each.
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
