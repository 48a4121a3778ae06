//! Making the copies of one region equal: the one step that reconciliation, repair, resync and rebuild are made of.
//!
//! Under the region's exclusive lock: read the copies, choose for each block the right one ([`super::choosing`]), write it where it
//! differs, read what was written and compare (I5). A step that is cut off anywhere can be done again. A block without an intact
//! copy is taken from the disk that returns, if that has surely not missed it ([`super::absences`]). Any other is told; a copy in
//! the making marks it as lost, so that reads of it, and of it alone, fail until it is written again. The copies that count stay
//! as they are: what cannot be read now may be readable later.
//!
//! | purpose | read | written |
//! |---|---|---|
//! | reconcile, repair | all in-sync copies | those of them that differ or are corrupt, as overwrites: each block is old or new |
//! | answer | all in-sync copies that can be reached | the same |
//! | compare | all in-sync copies | nothing |
//! | resync, build | the first in-sync copy (others when it is corrupt, when the chunk is of class `Append`, or when a copy is given up for the new one) and the target | the target, which does not count yet; in-sync copies when the target had the last intact one, or when all were read |
//!
//! Reads of the volume that met a corrupt block, or that want the newest of blocks that prove themselves, wait for such a step and
//! are answered with what it chose: whether or not the copies can be made whole.

use super::calls::{Failure, Owner};
use super::choosing::{Candidate, choose, choose_after_crash};
use super::chunks::ChunkState;
use super::locks::Holder;
use super::{Comparison, Coordinator, Event, OVERWRITE_BLOCKS, REGION_BLOCKS};
use crate::api::SpaceError;
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use std::collections::{BTreeMap, BTreeSet};
use store::api::{StoreError, WriteClass};
use sys::Payload;
use types::{BLOCK_BYTES, ChunkIndex, DiskId, Lba};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    Reconcile,
    Repair,
    /// A read of blocks that prove themselves: the newest of all copies is wanted.
    Answer,
    Compare,
    Resync(DiskId),
    Build(DiskId),
}

impl Purpose {
    fn target(self) -> Option<DiskId> {
        match self {
            Self::Reconcile | Self::Repair | Self::Answer | Self::Compare => None,
            Self::Resync(disk) | Self::Build(disk) => Some(disk),
        }
    }
}

#[derive(Debug, Clone)]
enum Block {
    Unread,
    Good(Candidate),
    Corrupt,
}

/// A disk whose copy of so many regions, one after the other, was not what had just been written to it, keeps nothing.
const UNKEPT_MAX: u32 = 3;

/// What was read of one copy.
struct Gather {
    blocks: Vec<Block>,
    pending: u32,
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

/// A read of the volume that is answered with what a step chooses.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    operation: u64,
    lba: u64,
    blocks: u64,
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
    winner: Vec<Option<Candidate>>,
    writing: u32,
    written: BTreeMap<DiskId, u64>,
    /// The disk that returns had the last intact copy of some blocks.
    rescues: bool,
    waiting: Vec<Waiting>,
    /// Disks that did not take what was written to them, and why.
    refused: Vec<(DiskId, String)>,
    compared: Comparison,
    /// Blocks without an intact copy, of a comparison.
    lost: Vec<Lba>,
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
        self.prepare_part(index, first, blocks, purpose)
    }

    /// The same of `blocks` blocks of one region, from `first` on.
    fn prepare_part(&mut self, index: ChunkIndex, first: u64, blocks: u64, purpose: Purpose) -> (u64, bool) {
        let same = |sync: &Sync| sync.lba == first && sync.blocks == blocks && sync.purpose == purpose;
        let known = self.syncs.iter().find(|(_, sync)| same(sync));
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
            waiting: Vec::new(),
            refused: Vec::new(),
            compared: Comparison::default(),
            lost: Vec::new(),
            failed: false,
        };
        self.syncs.insert(number, sync);
        if let Some(chunk) = self.chunks.get_mut(&index) {
            chunk.active += 1;
        }
        (number, true)
    }

    /// The read, which holds neither lock nor chunk any more, is answered with what the copies hold, compared: the whole region of a
    /// block that is corrupt, the range alone of blocks that prove themselves.
    pub(super) fn answer_by_sync(&mut self, operation: u64, index: ChunkIndex, lba: u64, blocks: u64) {
        let append = self.chunks.get(&index).is_some_and(|chunk| chunk.append);
        let (number, new) = match append {
            true => self.prepare_part(index, lba, blocks, Purpose::Answer),
            false => self.prepare_sync(index, lba, Purpose::Repair),
        };
        if let Some(sync) = self.syncs.get_mut(&number) {
            sync.waiting.push(Waiting { operation, lba, blocks });
        }
        if new {
            self.enter_sync(number);
        }
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
            sources.sort_by_key(|disk| believed.place(*disk));
        }
        let state = self.chunks.get(&index).map(|chunk| &chunk.state);
        let mapped = state.is_some_and(|state| *state != ChunkState::Closing);
        let target = purpose.target();
        let answers = !sync.waiting.is_empty();
        let few = purpose == Purpose::Reconcile && sources.len() < 2;
        if !mapped || sources.is_empty() || few {
            // A chunk that is given back still counts until that is done, and a crash may come before: a copy that was not
            // filled must not count.
            let unfilled = target.is_some() && state.is_some();
            if let Some(sync) = self.syncs.get_mut(&number) {
                sync.failed |= unfilled;
            }
            return self.finish_sync(number);
        }
        let mut read = sources.clone();
        if answers {
            // Whoever waits for an answer does not wait for a disk that is away, unless a block has no other intact copy.
            read.retain(|disk| self.calls.is_open(*disk));
        }
        if target.is_some() && !self.reads_all_copies(index) {
            read.truncate(1);
        }
        read.extend(target);
        if read.is_empty() {
            return self.finish_sync(number);
        }
        if let Some(sync) = self.syncs.get_mut(&number) {
            sync.sources = sources;
        }
        for disk in read {
            self.gather(number, disk, Stage::Reading);
        }
    }

    /// Whether a new copy of the chunk is made from all others: when one of them alone cannot be trusted to have the last that was
    /// written, or when one of them is given up for it.
    fn reads_all_copies(&self, index: ChunkIndex) -> bool {
        let gives_up = self.jobs.builds.get(&index).is_some_and(|build| build.drop.is_some());
        gives_up && !Planted::MoveFromOneCopy.is_planted()
            || self.chunks.get(&index).is_some_and(|chunk| chunk.append)
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
        let (lba, index) = (sync.lba + start, sync.chunk);
        let result = match result {
            Ok(Answer::Data { data, checksums }) if self.is_intact(lba, blocks, &data, &checksums) => {
                Ok(self.candidates(index, Lba(lba), &data, &checksums))
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
            Ok(found) => {
                for (block, found) in gather.blocks[start as usize..].iter_mut().zip(found) {
                    *block = found.map_or(Block::Corrupt, Block::Good);
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
        let append = self.chunks.get(&sync.chunk).is_some_and(|chunk| chunk.append);
        let mut found =
            Comparison { copies: sync.gathers.len() as u8, blocks: sync.blocks, ..Comparison::default() };
        for at in 0..sync.blocks as usize {
            let good: Vec<&Candidate> = sync.gathers.values().filter_map(|gather| gather.good(at)).collect();
            if append && good.is_empty() {
                // Torn on all copies: it was never acknowledged, or the volume misses it and says so.
                continue;
            }
            found.corrupt += (sync.gathers.len() - good.len()) as u64;
            found.lost += u64::from(good.is_empty());
            sync.lost.extend(good.is_empty().then_some(Lba(sync.lba + at as u64)));
            found.differing += u64::from(good.windows(2).any(|pair| pair[0].data != pair[1].data));
            let newest = choose(good.into_iter()).cloned();
            for (&disk, gather) in &sync.gathers {
                let wrong = match (gather.good(at), &newest) {
                    (Some(have), Some(newest)) => have.is_older_than(newest),
                    (Some(_), None) => false,
                    (None, _) => true,
                };
                *sync.written.entry(disk).or_default() += u64::from(wrong);
            }
        }
        sync.compared = found;
        self.finish_sync(number);
    }

    fn choose_blocks(&mut self, number: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let blocks = sync.blocks as usize;
        let append = self.chunks.get(&sync.chunk).is_some_and(|chunk| chunk.append);
        let copies: Vec<Vec<Option<&Candidate>>> = sync
            .sources
            .iter()
            .filter_map(|disk| sync.gathers.get(disk))
            .map(|gather| (0..blocks).map(|at| gather.good(at)).collect())
            .collect();
        sync.winner = if sync.purpose == Purpose::Reconcile && !append {
            let region = (sync.lba % self.chunk_blocks) / REGION_BLOCKS.min(self.chunk_blocks);
            let chunk = self.chunks.get(&sync.chunk);
            let believed = chunk.and_then(|chunk| chunk.believed.get(&region));
            let equally = |disk: &&DiskId| believed.is_none_or(|known| known.is_first(**disk));
            let equals = sync.sources.iter().filter(equally).count().max(1);
            choose_after_crash(&copies, equals)
        } else if append && Planted::AppendByLowestId.is_planted() {
            (0..blocks).map(|at| copies.iter().find_map(|copy| copy[at]).cloned()).collect()
        } else {
            (0..blocks).map(|at| choose(copies.iter().filter_map(|copy| copy[at])).cloned()).collect()
        };
        let all_gave =
            sync.sources.len() > 1 && sync.sources.iter().all(|disk| sync.gathers.contains_key(disk));
        if append && sync.purpose == Purpose::Reconcile && all_gave {
            // The crash tore them on every copy, so they were never acknowledged. A scrub would take them for damage of all disks.
            sync.winner
                .iter_mut()
                .for_each(|winner| *winner = winner.take().or_else(|| Some(Candidate::zeroes())));
        }
        let lost: Vec<Lba> =
            (0..blocks).filter(|&at| sync.winner[at].is_none()).map(|at| Lba(sync.lba + at as u64)).collect();
        let unread: Vec<DiskId> =
            sync.sources.iter().copied().filter(|disk| !sync.gathers.contains_key(disk)).collect();
        if !lost.is_empty() && !unread.is_empty() {
            // What a disk that is just away has is not lost: only what waits for something else is answered now.
            self.answer_found(number);
            for disk in unread {
                self.gather(number, disk, Stage::Reading);
            }
            return;
        }
        let chunk = sync.chunk;
        let lost = self.rescue(number, lost);
        if !lost.is_empty()
            && Planted::RebuildRetriesForEver.is_planted()
            && let Some(sync) = self.syncs.get_mut(&number)
            && matches!(sync.purpose, Purpose::Build(_))
        {
            sync.failed = true;
            return self.finish_sync(number);
        }
        // The last write to blocks that prove themselves may have been torn on every copy, if it was never acknowledged: only the
        // volume can tell whether it needs them.
        if !lost.is_empty() && !append {
            self.emit(Event::Unrepairable { chunk, lbas: lost });
        }
        self.tell_damage(number, append);
        self.write_differences(number);
    }

    /// Tells which disks have blocks that are corrupt, or intact and older than they should be: such a disk lost a write that it
    /// acknowledged. A crash alone may leave a block that proves itself torn or old.
    fn tell_damage(&mut self, number: u64, append: bool) {
        let Some(sync) = self.syncs.get(&number) else { return };
        let (chunk, crashed) = (sync.chunk, sync.purpose == Purpose::Reconcile);
        let mut damage = Vec::new();
        for (&disk, gather) in sync.gathers.iter().filter(|(disk, _)| sync.sources.contains(disk)) {
            let (mut corrupt, mut older) = (Vec::new(), Vec::new());
            for (at, winner) in sync.winner.iter().enumerate() {
                let (is_corrupt, is_older) = match (gather.good(at), winner) {
                    (None, Some(_)) => (!append || !crashed, false),
                    (None, None) => (!append, false),
                    (Some(have), Some(winner)) => (false, !crashed && have.is_older_than(winner)),
                    (Some(_), None) => (false, false),
                };
                let lba = Lba(sync.lba + at as u64);
                corrupt.extend(is_corrupt.then_some(lba));
                older.extend(is_older.then_some(lba));
            }
            damage.push((disk, corrupt, older));
        }
        for (disk, corrupt, older) in damage {
            self.counters.corrupt_blocks += corrupt.len() as u64;
            self.counters.lost_writes += older.len() as u64;
            if !corrupt.is_empty() {
                self.emit(Event::CorruptRead { disk, chunk, blocks: corrupt.len() as u64, lbas: corrupt });
            }
            if !older.is_empty() {
                self.emit(Event::LostWrite { disk, chunk, blocks: older.len() as u64, lbas: older });
            }
        }
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
            rescued.extend(found.map(|found| (at, found.clone())));
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
        if target.is_none() || sync.rescues || sync.sources.iter().all(|disk| sync.gathers.contains_key(disk))
        {
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
                (Some(winner), Some(have)) => winner.data != have.data,
                (Some(_), None) => true,
                (None, _) => false,
            };
            for (start, blocks) in runs((0..sync.blocks).filter(differs), most) {
                let mut data = Payload::new();
                for at in start..start + blocks {
                    sync.winner[at as usize].iter().for_each(|found| data.push(found.data.clone()));
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

    pub(super) fn sync_written(&mut self, number: u64, disk: DiskId, result: Result<Answer, Failure>) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        sync.writing = sync.writing.saturating_sub(1);
        sync.failed |= result.is_err();
        // Nothing of the region is served before its copies are equal: one that refuses what others hold has failed, as with any write.
        if let Err(Failure::Store(error)) = &result
            && sync.purpose == Purpose::Reconcile
        {
            sync.refused.push((disk, error.to_string()));
        }
        if sync.writing > 0 {
            return;
        }
        if sync.failed {
            for (disk, why) in std::mem::take(&mut sync.refused) {
                self.fail_disk(disk, &why);
            }
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
                Some(winner) => gather.good(at).is_some_and(|have| have.data == winner.data),
                None => true,
            })
        };
        let (kept, unkept): (Vec<_>, Vec<_>) = sync.gathers.iter().partition(|(_, gather)| equal(gather));
        let kept: Vec<DiskId> = kept.into_iter().map(|(&disk, _)| disk).collect();
        let unkept: Vec<DiskId> = unkept.into_iter().map(|(&disk, _)| disk).collect();
        let (chunk, first) = (sync.chunk, Lba(sync.lba));
        sync.failed |= !unkept.is_empty();
        for disk in kept {
            self.unkept.remove(&disk);
        }
        for disk in unkept {
            self.emit(Event::LostWrite { disk, chunk, blocks: 1, lbas: vec![first] });
            self.counters.lost_writes += 1;
            let times = self.unkept.entry(disk).or_default();
            *times += 1;
            if *times >= UNKEPT_MAX {
                self.unkept.remove(&disk);
                self.fail_disk(disk, "it does not keep what is written to it");
            }
        }
        self.finish_sync(number);
    }

    fn finish_sync(&mut self, number: u64) {
        let Some(mut sync) = self.syncs.remove(&number) else { return };
        let blocks: u64 = sync.written.values().sum();
        let target = sync.purpose.target();
        if !matches!(sync.purpose, Purpose::Reconcile | Purpose::Compare) && !sync.failed {
            for (&disk, &blocks) in sync.written.iter().filter(|(disk, _)| target != Some(**disk)) {
                self.counters.repaired_blocks += blocks;
                self.emit(Event::Repaired { disk, chunk: sync.chunk, blocks });
            }
        }
        self.release_chunk(sync.chunk);
        self.answer_waiting(&mut sync);
        if sync.failed
            && matches!(sync.purpose, Purpose::Repair | Purpose::Answer)
            && !Planted::RepairOnce.is_planted()
        {
            let first = sync.lba - (sync.lba % self.chunk_blocks) % self.region_blocks();
            self.repair_later(sync.chunk, first);
        }
        match sync.purpose {
            Purpose::Reconcile if !sync.failed => self.reconciled(sync.chunk, sync.lba, blocks),
            Purpose::Reconcile | Purpose::Answer => {}
            Purpose::Repair => self.build_step(None, number, &sync),
            Purpose::Compare => {
                let wrong = sync.written.into_iter().filter(|(_, blocks)| *blocks > 0).collect();
                let (lba, found, lost) = (Lba(sync.lba), sync.compared, sync.lost);
                self.emit(Event::Compared { lba, found, wrong, lost });
            }
            Purpose::Resync(disk) => self.resync_step(disk, number, &sync),
            Purpose::Build(disk) => self.build_step(Some(disk), number, &sync),
        }
        self.background_step_done();
        self.recheck = true;
        self.unlock(Holder::Sync(number), sync.region);
    }

    /// Answers the reads of which all blocks were found; the others are chosen once more when more copies were read.
    fn answer_found(&mut self, number: u64) {
        let Some(sync) = self.syncs.get_mut(&number) else { return };
        let winner = std::mem::take(&mut sync.winner);
        let place = |waiting: &Waiting| (waiting.lba - sync.lba) as usize;
        let is_found = |waiting: &Waiting| {
            winner.iter().skip(place(waiting)).take(waiting.blocks as usize).all(Option::is_some)
        };
        let (found, others): (Vec<_>, Vec<_>) = sync.waiting.iter().partition(|waiting| is_found(waiting));
        let places: Vec<usize> = found.iter().map(place).collect();
        sync.waiting = others;
        for (Waiting { operation, blocks, .. }, start) in found.into_iter().zip(places) {
            let mut data = Payload::new();
            winner[start..start + blocks as usize]
                .iter()
                .flatten()
                .for_each(|block| data.push(block.data.clone()));
            self.finish_operation(operation, Ok(Some(data)));
        }
    }

    /// Answers the reads that waited, or has them try again when the copies could not be read.
    fn answer_waiting(&mut self, sync: &mut Sync) {
        for Waiting { operation, lba, blocks } in std::mem::take(&mut sync.waiting) {
            if sync.winner.is_empty() {
                self.wait_again(operation);
                continue;
            }
            if sync.failed && Planted::ReadFailsWithRepair.is_planted() {
                self.finish_operation(operation, Err(SpaceError::Corrupt { lbas: vec![Lba(lba)] }));
                continue;
            }
            let start = (lba - sync.lba) as usize;
            let (mut data, mut lost) = (Payload::new(), Vec::new());
            for at in start..start + blocks as usize {
                match &sync.winner[at] {
                    Some(found) => data.push(found.data.clone()),
                    None => lost.push(Lba(sync.lba + at as u64)),
                }
            }
            let result =
                if lost.is_empty() { Ok(Some(data)) } else { Err(SpaceError::Corrupt { lbas: lost }) };
            self.finish_operation(operation, result);
        }
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
