//! A piece with the copies.
//!
//! A write goes to every in-sync copy, and to every copy in the making. It is done when each has answered or has left by a
//! committed record, and at least `min_copies` that are in sync have it (I1, I2).
//!
//! | the copies say | the piece |
//! |---|---|
//! | all done | done |
//! | all refuse without effect (`NoSpace`, `Invalid`) | fails so: no copy changed |
//! | some done, some refuse | those that refused have failed as disks; it waits until they are out |
//! | left: fewer than `min_copies` | `Unavailable`: the copies that are left agree |
//!
//! A read goes to the copy that its part of the volume is read from as long as that is about as busy as the others, so that no two disks
//! cache the same; else to the least busy one in sync. When that copy is corrupt, all are read, the read is answered from those
//! that are intact, and the corrupt ones are repaired (I6). Blocks that prove themselves are read from all copies to begin with: an
//! intact one may be older than another.

use super::Coordinator;
use super::calls::{Failure, Owner};
use super::operations::{Kind, Stage};
use crate::api::SpaceError;
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use smallvec::SmallVec;
use store::api::{StoreError, WriteClass};
use sys::Payload;
use types::{ChunkIndex, DiskId, Epoch, Lba};

/// So many blocks from a multiple on are read from one copy: those that a page of a store's metadata tells of, and more.
const READ_TOGETHER_BLOCKS: u64 = 1024;

/// The state of a piece with the copies.
#[derive(Default)]
pub(super) struct Run {
    /// The epoch a write was first sent under.
    stamp: Epoch,
    pending: SmallVec<[DiskId; 3]>,
    acknowledged: SmallVec<[DiskId; 3]>,
    refused: SmallVec<[(DiskId, StoreError); 1]>,
}

impl Coordinator {
    /// Sends the piece to the copies.
    pub(super) fn run(&mut self, number: u64) {
        let Some(operation) = self.operations.get(&number) else { return };
        let index = operation.chunk;
        if matches!(operation.kind, Kind::Read { .. }) {
            return self.run_read(number);
        }
        self.note_missed(number);
        let stamp = self.record.epoch;
        self.members.last_stamp = self.members.last_stamp.max(stamp);
        let mut targets = self.holders_of(index);
        if let Some(chunk) = self.chunks.get(&index) {
            targets.extend(chunk.mirrors.iter().copied());
        }
        let run = Run { stamp, pending: targets.clone(), ..Run::default() };
        let Some(message) = self.message_of(number) else { return };
        if let Some(operation) = self.operations.get_mut(&number) {
            operation.stage = Stage::Running(run);
        }
        for disk in targets {
            self.call(Owner::Operation(number), disk, message.clone());
        }
        self.conclude_write(number);
    }

    fn message_of(&self, number: u64) -> Option<Message> {
        let operation = self.operations.get(&number)?;
        let lba = Lba(operation.lba);
        Some(match &operation.kind {
            Kind::Read { .. } => Message::Read { lba, blocks: operation.blocks as u32 },
            Kind::Write { class, data } => {
                let checksums = match class {
                    WriteClass::Append => Vec::new(),
                    _ => codes::payload_checksums(self.volume, lba, data),
                };
                Message::Write { lba, class: *class, data: data.clone(), checksums }
            }
            Kind::Discard => Message::Discard { lba, blocks: operation.blocks as u32 },
            Kind::Free => Message::Free { chunk: operation.chunk },
        })
    }

    fn run_read(&mut self, number: u64) {
        let Some(operation) = self.operations.get(&number) else { return };
        let Kind::Read { copy } = operation.kind else { return };
        let index = operation.chunk;
        // Who looks at each copy by itself has them compared, too.
        if copy.is_none_or(|copy| copy == 0) && self.wants_newest(index) {
            return self.compare_first(number);
        }
        let Some(disk) = self.choose_copy(number, index, copy) else { return self.gate_again(number) };
        let Some(message) = self.message_of(number) else { return };
        let run = Run { pending: SmallVec::from_slice(&[disk]), ..Run::default() };
        if let Some(operation) = self.operations.get_mut(&number) {
            operation.stage = Stage::Running(run);
        }
        self.call(Owner::Operation(number), disk, message);
    }

    /// Whether one copy alone cannot be trusted to have the last that was written, and there are others.
    fn wants_newest(&self, index: ChunkIndex) -> bool {
        let append = self.chunks.get(&index).is_some_and(|chunk| chunk.append);
        append && self.holders_of(index).iter().filter(|disk| self.calls.is_open(**disk)).count() > 1
    }

    /// A reachable in-sync copy.
    fn choose_copy(&self, number: u64, index: ChunkIndex, copy: Option<u8>) -> Option<DiskId> {
        let holders = self.holders_of(index);
        if let Some(copy) = copy {
            return holders.get(usize::from(copy)).copied().filter(|disk| self.calls.is_open(*disk));
        }
        let chunk = self.chunks.get(&index)?;
        if Planted::ReadStaleCopy.is_planted()
            && let Some(&mirror) = chunk.mirrors.first()
        {
            return Some(mirror);
        }
        let open = holders.iter().copied().filter(|disk| self.calls.is_open(*disk));
        let loads = open.map(|disk| (disk, self.calls.load(disk)));
        choose_by_load(self.operations.get(&number)?.lba, loads)
    }

    pub(super) fn operation_answered(&mut self, number: u64, disk: DiskId, result: Result<Answer, Failure>) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        let reads = !operation.writes();
        let Stage::Running(run) = &mut operation.stage else { return };
        run.pending.retain(|pending| *pending != disk);
        if reads {
            return self.read_answered(number, result);
        }
        match result {
            Ok(_) => run.acknowledged.push(disk),
            Err(Failure::Gone) => {}
            Err(Failure::Store(error)) => run.refused.push((disk, error)),
        }
        if Planted::AckFirstCopy.is_planted() && !run.acknowledged.is_empty() {
            return self.finish_operation(number, Ok(None));
        }
        self.conclude_write(number);
    }

    /// Decides a write that no copy is pending for; see the table above.
    fn conclude_write(&mut self, number: u64) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        let (index, free) = (operation.chunk, matches!(operation.kind, Kind::Free));
        let Stage::Running(run) = &mut operation.stage else { return };
        if !run.pending.is_empty() {
            return;
        }
        let refused = std::mem::take(&mut run.refused);
        let acknowledged = run.acknowledged.clone();
        let holders = self.holders_of(index);
        if !refused.is_empty() {
            let first = refused[0].1.clone();
            if acknowledged.is_empty() && refused.len() >= holders.len() {
                return self.finish_operation(number, Err(space_error(first)));
            }
            if let Some(operation) = self.operations.get_mut(&number)
                && let Stage::Running(run) = &mut operation.stage
            {
                run.pending.extend(refused.iter().map(|(disk, _)| *disk));
            }
            let Some(message) = self.message_of(number) else { return };
            for (disk, error) in refused {
                self.call(Owner::Operation(number), disk, message.clone());
                self.fail_disk(disk, &error.to_string());
            }
            return;
        }
        // A copy may have come to count meanwhile.
        let missing: SmallVec<[DiskId; 3]> =
            holders.iter().copied().filter(|disk| !acknowledged.contains(disk)).collect();
        let blind = Planted::AckBeforeCas.is_planted() || Planted::JoinBeforeDrain.is_planted();
        if !missing.is_empty() && !blind {
            let Some(message) = self.message_of(number) else { return };
            if let Some(operation) = self.operations.get_mut(&number)
                && let Stage::Running(run) = &mut operation.stage
            {
                run.pending.extend(missing.iter().copied());
            }
            for disk in missing {
                self.call(Owner::Operation(number), disk, message.clone());
            }
            return;
        }
        if free {
            self.chunk_freed(index);
            return self.finish_operation(number, Ok(None));
        }
        if holders.len() < usize::from(self.record.min_copies) {
            return self.finish_operation(number, Err(SpaceError::Unavailable));
        }
        self.finish_operation(number, Ok(None));
    }

    fn read_answered(&mut self, number: u64, result: Result<Answer, Failure>) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        let (lba, blocks) = (operation.lba, operation.blocks);
        match result {
            Ok(Answer::Data { data, checksums }) => {
                if self.is_intact(lba, blocks, &data, &checksums) {
                    return self.finish_operation(number, Ok(Some(data)));
                }
                self.read_corrupt(number);
            }
            Err(Failure::Store(StoreError::Corrupt { .. })) => self.read_corrupt(number),
            Err(Failure::Store(error @ StoreError::Invalid(_))) => {
                self.finish_operation(number, Err(space_error(error)));
            }
            Ok(_) | Err(Failure::Store(_) | Failure::Gone) => self.gate_again(number),
        }
    }

    /// Whether data that came over the transport is what its checksums say.
    pub(super) fn is_intact(&self, lba: u64, blocks: u64, data: &Payload, checksums: &[u64]) -> bool {
        if data.len() as u64 != blocks * types::BLOCK_BYTES as u64 {
            return false;
        }
        if !self.config.verify_reads || checksums.is_empty() {
            return true;
        }
        checksums.iter().enumerate().all(|(at, &checksum)| {
            let block = data.slice(at * types::BLOCK_BYTES, types::BLOCK_BYTES).contiguous();
            codes::block_matches(self.volume, Lba(lba + at as u64), &block, checksum)
        })
    }

    /// Answers the read from another copy, and has the corrupt one repaired.
    fn read_corrupt(&mut self, number: u64) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        if Planted::ServeCorrupt.is_planted() {
            let zeroes = sys::BufMut::zeroed(operation.blocks as usize * types::BLOCK_BYTES).freeze();
            return self.finish_operation(number, Ok(Some(Payload::from(zeroes))));
        }
        self.compare_first(number);
    }

    /// The lowest stamp of a write that is with the copies.
    pub(super) fn lowest_stamp(&self) -> Option<Epoch> {
        self.runs().map(|run| run.stamp).min()
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.operations.values().filter(|operation| operation.writes()).filter_map(|operation| {
            match &operation.stage {
                Stage::Running(run) => Some(run),
                _ => None,
            }
        })
    }

    /// Whether something was sent to this copy, or may be: its slab must not be given back.
    pub(super) fn is_in_use(&self, index: ChunkIndex, disk: DiskId) -> bool {
        let mut operations = self.operations.values().filter(|operation| operation.chunk == index);
        operations
            .any(|operation| matches!(&operation.stage, Stage::Running(run) if run.pending.contains(&disk)))
            || self.syncs.values().any(|sync| sync.chunk == index && sync.uses(disk))
    }

    /// Writes that are with the copies now.
    pub(super) fn running_writes(&self) -> Vec<u64> {
        self.operations
            .iter()
            .filter(|(_, operation)| operation.writes() && matches!(operation.stage, Stage::Running(_)))
            .map(|(&number, _)| number)
            .collect()
    }
}

pub(super) fn space_error(error: StoreError) -> SpaceError {
    match error {
        StoreError::Corrupt { lbas } => SpaceError::Corrupt { lbas },
        StoreError::NoSpace => SpaceError::NoSpace,
        StoreError::Fenced { .. } => SpaceError::Fenced,
        StoreError::Invalid(why) => SpaceError::Invalid(why),
        StoreError::NotMapped | StoreError::Poisoned | StoreError::Disk(_) => SpaceError::Unavailable,
    }
}

/// The copy that the block is read from, where that has no more than half as many calls again under way as the least busy one.
fn choose_by_load<D: Copy>(lba: u64, copies: impl Iterator<Item = (D, u32)>) -> Option<D> {
    let mut copies: SmallVec<[(D, u32); 3]> = copies.collect();
    let own = (lba / READ_TOGETHER_BLOCKS).checked_rem(copies.len() as u64)? as usize;
    copies.rotate_left(own);
    let &(own, load) = copies.first()?;
    let &(idle, least) = copies.iter().min_by_key(|(_, load)| *load)?;
    Some(if load > least + least / 2 { idle } else { own })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(lba: u64, loads: &[u32]) -> Option<usize> {
        choose_by_load(lba, loads.iter().copied().enumerate())
    }

    #[test]
    fn a_part_of_a_volume_is_read_from_one_copy_until_that_is_busier() {
        assert_eq!(choose(0, &[]), None);
        for (lba, own) in
            [(0, 0), (READ_TOGETHER_BLOCKS - 1, 0), (READ_TOGETHER_BLOCKS, 1), (2 * READ_TOGETHER_BLOCKS, 2)]
        {
            assert_eq!(choose(lba, &[0, 0, 0]), Some(own));
            assert_eq!(choose(lba, &[8, 8, 8]), Some(own));
            assert_eq!(choose(lba, &[9]), Some(0));
        }
        assert_eq!(choose(0, &[1, 0]), Some(1));
        assert_eq!(choose(0, &[2, 1]), Some(1));
        assert_eq!(choose(0, &[3, 2]), Some(0));
        assert_eq!(choose(0, &[16, 12]), Some(0));
        assert_eq!(choose(0, &[19, 12]), Some(1));
        assert_eq!(choose(READ_TOGETHER_BLOCKS, &[12, 19, 11]), Some(2));
    }
}
