//! The volume's requests, cut into pieces of one region each. Every piece passes the gate, the lock and
//! the copies.
//!
//! The gate holds a piece while its chunk is being allocated, given back or probed, while its region may differ between copies,
//! and while too few copies can be reached. The lock orders pieces that touch the same blocks the same way on all copies. Then
//! the piece is sent to the copies ([`super::running`]).
//!
//! Invariants: a piece past the gate, until it ends or goes back, holds its chunk and its place in the queue of its region's lock; only
//! pieces of which the region's copies agree pass (I10), and writes only if `min_copies` that count can be reached by the record (I1).

use super::absences::Absences;
use super::allocation::Allocation;
use super::calls::{Failure, Owner};
use super::choosing::is_intact;
use super::chunks::ChunkState;
use super::clients::Clients;
use super::gates::{Gate, gate_free, gate_read, gate_write};
use super::ground::Ground;
use super::keys::{ClientKey, Holder, OperationKey};
use super::locks::Locks;
use super::pieces::{cut, range, refuse};
use super::reading::{Hedges, choose_copy, wants_newest};
use super::reports::{Next, Reports};
use super::running::{self, Run, space_error};
use super::setting::Geometry;
use super::suspects::{self, Suspects};
use super::{OVERWRITE_BLOCKS, Phase, REGION_BLOCKS};
use crate::api::{SpaceError, SpaceRequest};
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use store::api::{StoreError, WriteClass};
use sys::{BufMut, Payload};
use types::{BLOCK_BYTES, ChangeNumber, ChunkIndex, DiskId, Epoch, Lba, Monotonic, Stamp, VolumeId};

enum Kind {
    Read {
        copy: Option<u8>,
    },
    Write {
        class: WriteClass,
        data: Payload,
    },
    Discard,
    /// The whole chunk is given back.
    Free,
}

enum Stage {
    Gated,
    Locking,
    Running(Run),
    /// A read, without a lock, that waits for the comparison of all copies ([`super::syncing`]).
    Comparing,
}

/// One piece of a request.
struct Operation {
    client: ClientKey,
    /// Place among the client's pieces.
    part: usize,
    kind: Kind,
    chunk: ChunkIndex,
    lba: u64,
    blocks: u64,
    stage: Stage,
}

impl Operation {
    fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Read { .. })
    }

    fn frees(&self) -> bool {
        matches!(self.kind, Kind::Free)
    }

    /// Notes the blocks that the disks that are out miss.
    fn note_missed(&self, absences: &mut Absences, geometry: Geometry) {
        match self.kind {
            Kind::Read { .. } => {}
            Kind::Free => absences.forget_chunk(self.chunk, None),
            Kind::Write { .. } | Kind::Discard => {
                absences.miss(self.chunk, self.lba, self.blocks, geometry);
            }
        }
    }

    /// Returns the request to the copies. `number`: of the change, if the piece is one.
    fn message(&self, volume: VolumeId, number: ChangeNumber) -> Message {
        let lba = Lba(self.lba);
        match &self.kind {
            Kind::Read { .. } => Message::Read { lba, blocks: self.blocks as u32 },
            Kind::Write { class, data } => {
                let checksums = match class {
                    WriteClass::Append => Vec::new(),
                    _ => codes::payload_checksums(volume, lba, data),
                };
                Message::Write { lba, class: *class, data: data.clone(), checksums, number }
            }
            Kind::Discard => Message::Discard { lba, blocks: self.blocks as u32, number },
            Kind::Free => Message::Free { chunk: self.chunk },
        }
    }
}

pub(super) struct Operations {
    pub clients: Clients,
    pub absences: Absences,
    pub suspects: Suspects,
    pub hedges: Hedges,
    operations: BTreeMap<OperationKey, Operation>,
    last: OperationKey,
    /// Operations that wait for something other than a lock, in order of arrival.
    gated: VecDeque<OperationKey>,
    locks: Locks,
    allocation: Allocation,
}

impl Operations {
    pub fn new(now: Monotonic) -> Self {
        Self {
            clients: Clients::new(now),
            absences: Absences::default(),
            suspects: Suspects::default(),
            hedges: Hedges::default(),
            operations: BTreeMap::new(),
            last: OperationKey::default(),
            gated: VecDeque::new(),
            locks: Locks::default(),
            allocation: Allocation::default(),
        }
    }

    /// Takes a request of the volume; its answer carries `token`.
    pub fn accept(&mut self, token: u64, request: SpaceRequest, ground: &mut Ground) {
        let refusal = match &ground.setting.phase {
            Phase::Stopped(why) => Some(why.clone()),
            Phase::Closing | Phase::Closed => Some(SpaceError::Unavailable),
            _ => refuse(&request, ground),
        };
        if let Some(error) = refusal {
            return self.clients.refuse(token, error);
        }
        let (lba, blocks) = range(&request);
        let discards = matches!(request, SpaceRequest::Discard { .. });
        let pieces = cut(lba, blocks, discards, ground.setting.geometry);
        let deadline = ground.setting.now.after(ground.setting.config.unavailable_after);
        let reads = matches!(request, SpaceRequest::Read { .. });
        let client = self.clients.begin(token, reads, pieces.len(), deadline);
        for (part, piece) in pieces.into_iter().enumerate() {
            let kind = match &request {
                SpaceRequest::Read { copy, .. } => Kind::Read { copy: *copy },
                SpaceRequest::Write { class, data, .. } => {
                    let start = (piece.lba - lba) as usize * BLOCK_BYTES;
                    let data = data.slice(start, piece.blocks as usize * BLOCK_BYTES);
                    Kind::Write { class: *class, data }
                }
                SpaceRequest::Discard { .. } if piece.whole_chunk => Kind::Free,
                SpaceRequest::Discard { .. } => Kind::Discard,
            };
            let key = self.last.advance();
            let chunk = ground.setting.geometry.chunk_of(piece.lba);
            let (lba, blocks, stage) = (piece.lba, piece.blocks, Stage::Gated);
            let operation = Operation { client, part, kind, chunk, lba, blocks, stage };
            self.operations.insert(key, operation);
            if !self.pass(key, ground) {
                self.gated.push_back(key);
            }
        }
    }

    /// Lets every gated operation through that may go on.
    pub fn pass_gated(&mut self, ground: &mut Ground) {
        let gated = std::mem::take(&mut self.gated);
        let mut waiting = VecDeque::new();
        for key in gated {
            if !self.pass(key, ground) {
                waiting.push_back(key);
            }
        }
        waiting.append(&mut self.gated);
        self.gated = waiting;
    }

    /// Whether the operation needs the gate no more.
    fn pass(&mut self, key: OperationKey, ground: &mut Ground) -> bool {
        let Some(operation) = self.operations.get(&key) else { return true };
        if !matches!(operation.stage, Stage::Gated) {
            return true;
        }
        let (index, lba, blocks) = (operation.chunk, operation.lba, operation.blocks);
        let (writes, free) = (operation.writes(), operation.frees());
        match self.gate(key, ground) {
            Gate::Wait => return false,
            Gate::Fail(error) => self.finish_operation(key, Err(error), ground),
            Gate::Nothing => self.finish_operation(key, Ok(None), ground),
            Gate::Zeroes => {
                let zeroes = BufMut::zeroed(blocks as usize * BLOCK_BYTES).freeze();
                self.finish_operation(key, Ok(Some(Payload::from(zeroes))), ground);
            }
            Gate::Pass if free => self.run(key, ground),
            Gate::Pass => {
                ground.chunks.use_chunk(index);
                let region = ground.setting.geometry.region_of(lba);
                let granted = self.locks.lock(Holder::Operation(key), region, lba..lba + blocks, writes);
                if let Some(operation) = self.operations.get_mut(&key) {
                    operation.stage = Stage::Locking;
                }
                if granted {
                    self.run(key, ground);
                }
            }
        }
        true
    }

    fn gate(&mut self, key: OperationKey, ground: &mut Ground) -> Gate {
        if !ground.setting.serving() {
            return Gate::Wait;
        }
        let Some(operation) = self.operations.get(&key) else { return Gate::Nothing };
        let (index, lba) = (operation.chunk, operation.lba);
        if lba + operation.blocks > ground.membership.record().size_bytes / BLOCK_BYTES as u64 {
            return Gate::Fail(SpaceError::Invalid("the range is beyond the end of the virtual disk"));
        }
        let Some(chunk) = ground.chunks.get(index) else {
            return match &operation.kind {
                Kind::Read { .. } => Gate::Zeroes,
                Kind::Discard | Kind::Free => Gate::Nothing,
                Kind::Write { class, .. } => {
                    let append = *class == WriteClass::Append;
                    match self.allocation.allocate(index, append, ground) {
                        None | Some(SpaceError::Unavailable) => Gate::Wait,
                        Some(error) => Gate::Fail(error),
                    }
                }
            };
        };
        match &operation.kind {
            Kind::Read { .. } if chunk.is_allocating() => return Gate::Zeroes,
            _ if chunk.is_allocating() => return Gate::Wait,
            Kind::Free => return gate_free(index, ground),
            _ if chunk.state == ChunkState::Closing => return Gate::Wait,
            Kind::Write { class, .. } if (*class == WriteClass::Append) != chunk.append => {
                return Gate::Fail(SpaceError::Invalid(
                    "a chunk is either of class Append or not, from its first write on",
                ));
            }
            _ => {}
        }
        if self.suspects.verdict(index, lba, ground) == suspects::Verdict::MayDiffer {
            return Gate::Wait;
        }
        match operation.kind {
            Kind::Read { copy } => gate_read(index, copy, ground),
            _ => gate_write(index, ground),
        }
    }

    /// Gives up the lock, or the place in its queue; others that are granted theirs by it go on.
    pub fn unlock(&mut self, holder: Holder, region: u64, reports: &mut Reports) {
        for granted in self.locks.unlock(holder, region) {
            reports.leave(Next::Granted(granted));
        }
    }

    /// Asks for the exclusive lock of blocks of one region, for a step that makes their copies equal; whether it is granted at once.
    pub fn lock_for_sync(&mut self, holder: Holder, region: u64, range: std::ops::Range<u64>) -> bool {
        self.locks.lock(holder, region, range, true)
    }

    /// Gives up the chunk and the lock of an operation.
    pub fn release(&mut self, key: OperationKey, chunk: ChunkIndex, lba: u64, ground: &mut Ground) {
        release_chunk(chunk, ground);
        self.unlock(Holder::Operation(key), ground.setting.geometry.region_of(lba), &mut ground.reports);
    }

    /// Gives up lock and chunk; the operation goes back to the gate.
    fn gate_again(&mut self, key: OperationKey, ground: &mut Ground) {
        let Some(operation) = self.operations.get(&key) else { return };
        let (chunk, lba) = (operation.chunk, operation.lba);
        self.end_reading(key, ground);
        self.wait_again(key, &mut ground.reports);
        self.release(key, chunk, lba, ground);
    }

    /// The read waits for the copies to be compared. It keeps lock and chunk until the comparison has its place in the queue, and is
    /// then released.
    fn compare_first(&mut self, key: OperationKey, reports: &mut Reports) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        operation.stage = Stage::Comparing;
        let (chunk, lba, blocks) = (operation.chunk, operation.lba, operation.blocks);
        reports.leave(Next::Compare { operation: key, chunk, lba, blocks });
    }

    /// Begins the operation again: the copies could not be read, or compared.
    pub fn wait_again(&mut self, key: OperationKey, reports: &mut Reports) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        operation.stage = Stage::Gated;
        self.gated.push_back(key);
        reports.recheck = true;
    }

    /// Ends a piece; `Some` is the data of a read.
    pub fn finish_operation(
        &mut self,
        key: OperationKey,
        result: Result<Option<Payload>, SpaceError>,
        ground: &mut Ground,
    ) {
        let Some(operation) = self.operations.remove(&key) else { return };
        if let (Kind::Read { .. }, Stage::Running(run)) = (&operation.kind, &operation.stage) {
            self.hedges.end(key, run.pending(), ground);
        }
        debug_assert!(
            operation.writes()
                || result.as_ref().is_ok_and(|data| {
                    data.as_ref()
                        .is_some_and(|data| data.len() as u64 == operation.blocks * BLOCK_BYTES as u64)
                })
                || result.is_err(),
            "a read ends with other bytes than were asked for (I6)"
        );
        self.clients.piece_done(operation.client, operation.part, result, &mut ground.reports.counters);
        if !matches!(operation.stage, Stage::Gated | Stage::Comparing) && !operation.frees() {
            self.release(key, operation.chunk, operation.lba, ground);
        }
        let gives_up_free = operation.frees() && matches!(operation.stage, Stage::Gated);
        if gives_up_free
            && !self.operations.values().any(|other| other.frees() && other.chunk == operation.chunk)
        {
            ground.chunks.keep(operation.chunk);
            ground.reports.recheck = true;
        }
        if operation.writes() {
            // A resync or build may have waited for it.
            ground.reports.recheck = true;
        }
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.clients.next_timeout().into_iter().chain(self.hedges.next_timeout()).min()
    }

    /// Fails requests that waited too long for the record or for unreachable disks. Pieces at the gate end;
    /// pieces with the copies continue until all copies agree.
    pub fn expire_clients(&mut self, ground: &mut Ground) {
        let now = ground.setting.now;
        if !self.clients.is_due(now) {
            return;
        }
        let later = now.after(ground.setting.config.unavailable_after);
        for client in self.clients.late(now) {
            if !self.is_unavailable(client, ground) {
                self.clients.extend(client, later);
                continue;
            }
            self.clients.give_up(client);
            for key in self.gated_where(|operation| operation.client == client) {
                self.finish_operation(key, Err(SpaceError::Unavailable), ground);
            }
        }
        self.clients.look_again(later);
    }

    /// Returns the operations at the gate that `wanted` selects.
    fn gated_where(&self, wanted: impl Fn(&Operation) -> bool) -> Vec<OperationKey> {
        let gated = self.operations.iter().filter(|(_, operation)| matches!(operation.stage, Stage::Gated));
        gated.filter(|(_, operation)| wanted(operation)).map(|(&key, _)| key).collect()
    }

    /// Whether the request waits for the record, or for a disk that cannot be reached.
    fn is_unavailable(&self, client: ClientKey, ground: &Ground) -> bool {
        let reachable = |index: ChunkIndex| {
            let holders = ground.holders_of(index);
            let enough = holders.len() >= usize::from(ground.membership.record().min_copies.max(1));
            enough && holders.iter().all(|disk| ground.calls.is_open(*disk))
        };
        !ground.setting.serving()
            || ground.membership.is_changing()
            || self
                .operations
                .values()
                .filter(|operation| operation.client == client)
                .any(|operation| !reachable(operation.chunk))
    }

    /// Takes an answer to a request for a slab of the chunk.
    pub fn allocated(
        &mut self,
        index: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        ground: &mut Ground,
    ) {
        if let Some(error) = self.allocation.allocated(index, disk, result, ground) {
            let writes = |operation: &Operation| {
                operation.chunk == index && matches!(operation.kind, Kind::Write { .. })
            };
            for key in self.gated_where(writes) {
                self.finish_operation(key, Err(error.clone()), ground);
            }
        }
    }

    pub fn allocation_undone(&mut self, index: ChunkIndex, disk: DiskId, ground: &mut Ground) {
        self.allocation.allocation_undone(index, disk, ground);
    }

    /// Takes the slabs of disks that a proposal was to expel, now that the state has decided.
    pub fn leaving_decided(&mut self, ground: &mut Ground) {
        for (index, disk) in self.allocation.take_by_leaving() {
            self.allocated(index, disk, Ok(Answer::Done), ground);
        }
    }

    /// Sends the piece, which has its lock, to the copies.
    pub fn run(&mut self, key: OperationKey, ground: &mut Ground) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let index = operation.chunk;
        let region = ground.setting.geometry.region_in_chunk(operation.lba);
        debug_assert!(
            operation.frees() || !self.suspects.is_suspect(index, region),
            "a piece is sent to copies that may differ (I10)"
        );
        if let Kind::Read { copy } = operation.kind {
            return self.run_read(key, copy, ground);
        }
        if !self.absences.is_empty() {
            operation.note_missed(&mut self.absences, ground.setting.geometry);
        }
        let stamp = Stamp::new(ground.membership.record().epoch, ground.next_change());
        ground.membership.stamp(stamp.epoch());
        let mut targets = ground.holders_of(index);
        if let Some(chunk) = ground.chunks.get(index) {
            targets.extend(chunk.mirrors.iter().copied());
        }
        let message = operation.message(ground.setting.volume, stamp.number());
        operation.stage = Stage::Running(Run::new(stamp, targets.clone()));
        for disk in targets {
            ground.call(Owner::Operation(key), disk, message.clone());
        }
        self.conclude_write(key, ground);
    }

    fn run_read(&mut self, key: OperationKey, copy: Option<u8>, ground: &mut Ground) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        // A reader of each copy in turn has them compared too.
        if copy.is_none_or(|copy| copy == 0) && wants_newest(operation.chunk, ground) {
            return self.compare_first(key, &mut ground.reports);
        }
        let (index, lba) = (operation.chunk, operation.lba);
        let Some(disk) = choose_copy(index, lba, copy, &self.hedges, ground) else {
            return self.gate_again(key, ground);
        };
        let message = operation.message(ground.setting.volume, ChangeNumber::default());
        operation.stage = Stage::Running(Run::new(Stamp::default(), SmallVec::from_slice(&[disk])));
        ground.call(Owner::Operation(key), disk, message);
        if copy.is_none() {
            self.hedges.begin(key, index, disk, ground);
        }
    }

    /// Asks a second copy for each late read.
    pub fn hedge_late_reads(&mut self, ground: &mut Ground) {
        while let Some(key) = self.hedges.take_late(ground.setting.now) {
            let Some(operation) = self.operations.get_mut(&key) else { continue };
            let region = ground.setting.geometry.region_in_chunk(operation.lba);
            let message = operation.message(ground.setting.volume, ChangeNumber::default());
            let Stage::Running(run) = &mut operation.stage else { continue };
            if !self.suspects.is_suspect(operation.chunk, region)
                && let Some(second) = self.hedges.choose_second(key, ground)
            {
                run.ask_also(second);
                ground.call(Owner::Operation(key), second, message);
            }
        }
    }

    /// Drops the answers that copies still owe to the read.
    fn end_reading(&mut self, key: OperationKey, ground: &mut Ground) {
        if let Some(Operation { stage: Stage::Running(run), .. }) = self.operations.get(&key) {
            self.hedges.end(key, run.pending(), ground);
        }
    }

    pub fn operation_answered(
        &mut self,
        key: OperationKey,
        disk: DiskId,
        result: Result<Answer, Failure>,
        ground: &mut Ground,
    ) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let reads = !operation.writes();
        let Stage::Running(run) = &mut operation.stage else { return };
        if reads {
            return self.read_answered(key, disk, result, ground);
        }
        run.answered(disk, result);
        if Planted::AckFirstCopy.is_planted() && run.is_acknowledged() {
            return self.finish_operation(key, Ok(None), ground);
        }
        self.conclude_write(key, ground);
    }

    /// Decides a write that no copy is pending for; see the table in [`super::running`].
    fn conclude_write(&mut self, key: OperationKey, ground: &mut Ground) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let (index, free) = (operation.chunk, operation.frees());
        let Stage::Running(run) = &mut operation.stage else { return };
        let (holders, number) = (ground.holders_of(index), run.stamp.number());
        match run.conclude(&holders) {
            running::Verdict::Pending => {}
            running::Verdict::Refused(error) => {
                self.finish_operation(key, Err(space_error(error)), ground);
            }
            running::Verdict::Differ(refused) => {
                let message = operation.message(ground.setting.volume, number);
                for (disk, error) in refused {
                    ground.call(Owner::Operation(key), disk, message.clone());
                    ground.refused_by(disk, &error);
                }
            }
            running::Verdict::Missing(disks) => {
                let message = operation.message(ground.setting.volume, number);
                for disk in disks {
                    ground.call(Owner::Operation(key), disk, message.clone());
                }
            }
            running::Verdict::Done => {
                debug_assert!(
                    running::may_miss() || run.is_on(&holders),
                    "a copy that counts lacks a write (I1)"
                );
                let enough = holders.len() >= usize::from(ground.membership.record().min_copies);
                if free {
                    self.chunk_freed(index, ground);
                }
                let result = if free || enough { Ok(None) } else { Err(SpaceError::Unavailable) };
                self.finish_operation(key, result, ground);
            }
        }
    }

    /// Forgets the chunk, of which no copy has a slab any more.
    fn chunk_freed(&mut self, index: ChunkIndex, ground: &mut Ground) {
        ground.chunks.chunk_freed(index);
        self.suspects.set_clean(index);
        ground.reports.recheck = true;
    }

    fn read_answered(
        &mut self,
        key: OperationKey,
        disk: DiskId,
        result: Result<Answer, Failure>,
        ground: &mut Ground,
    ) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let Stage::Running(run) = &mut operation.stage else { return };
        let others = run.ended_at(disk);
        let (lba, blocks) = (operation.lba, operation.blocks);
        let (append, is_far) = (ground.chunks.is_append(operation.chunk), ground.setting.is_far(disk));
        match result {
            Ok(Answer::Data { data, checksums }) if self.hedges.may_answer(key, disk, ground) => {
                if is_intact(&ground.setting, is_far, append, lba, blocks, &data, &checksums) {
                    self.hedges.answered(key, disk, ground.setting.now);
                    return self.finish_operation(key, Ok(Some(data)), ground);
                }
                self.read_corrupt(key, blocks, ground);
            }
            Err(Failure::Store(StoreError::Corrupt { .. })) => self.read_corrupt(key, blocks, ground),
            Err(Failure::Store(error @ StoreError::Invalid(_))) => {
                self.finish_operation(key, Err(space_error(error)), ground);
            }
            // The hedged read still waits for the other copy.
            Ok(_) | Err(Failure::Store(_) | Failure::Gone) if others => {}
            Ok(_) | Err(Failure::Store(_) | Failure::Gone) => self.gate_again(key, ground),
        }
    }

    /// Has the read answered from another copy, and the corrupt one repaired.
    fn read_corrupt(&mut self, key: OperationKey, blocks: u64, ground: &mut Ground) {
        if Planted::ServeCorrupt.is_planted() {
            let zeroes = BufMut::zeroed(blocks as usize * BLOCK_BYTES).freeze();
            return self.finish_operation(key, Ok(Some(Payload::from(zeroes))), ground);
        }
        self.end_reading(key, ground);
        self.compare_first(key, &mut ground.reports);
    }

    /// Begins to note the blocks that the disk misses. A committed record expels it, and it is still among
    /// the holders of its chunks.
    pub fn begin_absence(&mut self, disk: DiskId, ground: &Ground) {
        self.absences.forget(disk);
        if !ground.setting.serving() {
            return;
        }
        let suspects = &self.suspects;
        let held = ground.chunks.map.iter().filter(|(index, chunk)| {
            chunk.is_mapped() && chunk.holders.contains(&disk) && !suspects.is_unclean(**index)
        });
        self.absences.begin(disk, held.map(|(&index, _)| index));
        for operation in self.operations.values() {
            if matches!(operation.stage, Stage::Running(_)) {
                operation.note_missed(&mut self.absences, ground.setting.geometry);
            }
        }
    }

    /// Whether the operation has not ended.
    pub fn is_under_way(&self, key: OperationKey) -> bool {
        self.operations.contains_key(&key)
    }

    /// Whether no piece of a write is with the copies or on its way there.
    pub fn is_drained(&self) -> bool {
        self.operations.values().all(|operation| !operation.writes())
    }

    pub fn foreground_is_busy(&self) -> bool {
        self.operations.values().any(|operation| !matches!(operation.stage, Stage::Gated))
    }

    /// Returns the lowest stamp of a write that is with the copies.
    pub fn lowest_stamp(&self) -> Option<Epoch> {
        self.running()
            .filter(|(_, operation, _)| operation.writes())
            .map(|(_, _, run)| run.stamp.epoch())
            .min()
    }

    /// Whether the copy owes an answer to an operation.
    pub fn is_in_use(&self, index: ChunkIndex, disk: DiskId) -> bool {
        self.running().any(|(_, operation, run)| operation.chunk == index && run.waits_for(disk))
    }

    /// Returns writes that are with the copies now.
    pub fn running_writes(&self) -> Vec<OperationKey> {
        self.running().filter(|(_, operation, _)| operation.writes()).map(|(key, ..)| key).collect()
    }

    fn running(&self) -> impl Iterator<Item = (OperationKey, &Operation, &Run)> {
        self.operations.iter().filter_map(|(&key, operation)| match &operation.stage {
            Stage::Running(run) => Some((key, operation, run)),
            _ => None,
        })
    }

    /// Ends all operations, and fails waiting requests with `why`.
    pub fn stop(&mut self, why: &SpaceError) {
        self.operations.clear();
        self.gated.clear();
        self.hedges.clear();
        self.locks = Locks::default();
        self.clients.stop(why);
    }
}

/// Ends one use of the chunk.
pub(super) fn release_chunk(index: ChunkIndex, ground: &mut Ground) {
    if ground.chunks.release_chunk(index) {
        ground.reports.recheck = true;
    }
}

const _: () = assert!(OVERWRITE_BLOCKS <= REGION_BLOCKS);
