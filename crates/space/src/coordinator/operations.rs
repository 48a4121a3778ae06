//! The volume's requests, cut into pieces of one region each. Every piece passes the gate, the lock and
//! the copies.
//!
//! The gate holds a piece while its chunk is being allocated, given back or probed, while its
//! region may differ between copies, and while too few copies can be reached. The lock orders
//! pieces that touch the same blocks the same way on all copies. Then the coordinator sends the
//! piece to the copies ([`super::running`]).
//!
//! Invariants: a piece past the gate, until it ends or goes back, holds its chunk and its place in
//! the queue of its region's lock. A piece passes only if its region's copies agree (I10), and a
//! write only if, by the record, `min_copies` that count can be reached (I1).

use super::absences::Absences;
use super::allocation::Allocation;
use super::calls::{Failure, Owner};
use super::choosing::is_intact;
use super::chunks::ChunkState;
use super::clients::Clients;
use super::context::Geometry;
use super::dirty_regions::{self, DirtyRegions};
use super::gates::{Gate, gate_free, gate_read, gate_write};
use super::keys::{ClientKey, Holder, OperationKey};
use super::locks::Locks;
use super::mailbox::{Mailbox, Next};
use super::pieces::{cut, range, refuse};
use super::reading::{Hedges, choose_copy, wants_newest};
use super::running::{self, IfRefused, Run, space_error};
use super::shared::Shared;
use super::{OVERWRITE_BLOCKS, Phase, REGION_BLOCKS};
use crate::api::{SpaceError, SpaceRequest};
use crate::message::{Answer, ReplicaOperation};
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
    /// Gives the whole chunk back.
    Free,
}

enum Stage {
    Gated,
    Locking,
    Running(Run),
    /// A read that waits, without a lock, for the comparison of all copies ([`super::syncing`]).
    Comparing,
}

/// A fresh write that some copies had no space for.
struct Undone {
    kind: Kind,
    without_space: SmallVec<[DiskId; 1]>,
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
    /// The write in place of which its blocks are discarded.
    undone: Option<Undone>,
}

impl Operation {
    fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Read { .. })
    }

    fn if_refused(&self) -> IfRefused {
        match self.kind {
            _ if self.undone.is_some() => IfRefused::AskAgain,
            Kind::Write { class: WriteClass::Fresh, .. } => IfRefused::TakeBack,
            _ => IfRefused::Fail,
        }
    }

    /// Sends the write, which runs, to these copies.
    fn send(&self, key: OperationKey, disks: impl IntoIterator<Item = DiskId>, shared: &mut Shared) {
        let Stage::Running(run) = &self.stage else { return };
        let message = self.message(shared.context.volume, run.stamp.number());
        for disk in disks {
            shared.call(Owner::Operation(key), disk, message.clone());
        }
    }

    fn frees(&self) -> bool {
        matches!(self.kind, Kind::Free)
    }

    /// Notes the blocks that expelled disks miss.
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
    fn message(&self, volume: VolumeId, number: ChangeNumber) -> ReplicaOperation {
        let lba = Lba(self.lba);
        match &self.kind {
            Kind::Read { .. } => ReplicaOperation::Read { lba, blocks: self.blocks as u32 },
            Kind::Write { class, data } => {
                let checksums = match class {
                    WriteClass::Append => Vec::new(),
                    _ => codes::payload_checksums(volume, lba, data),
                };
                ReplicaOperation::Write { lba, class: *class, data: data.clone(), checksums, number }
            }
            Kind::Discard => ReplicaOperation::Discard { lba, blocks: self.blocks as u32, number },
            Kind::Free => ReplicaOperation::Free { chunk: self.chunk },
        }
    }
}

pub(super) struct Operations {
    pub clients: Clients,
    pub absences: Absences,
    pub dirty_regions: DirtyRegions,
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
            dirty_regions: DirtyRegions::default(),
            hedges: Hedges::default(),
            operations: BTreeMap::new(),
            last: OperationKey::default(),
            gated: VecDeque::new(),
            locks: Locks::default(),
            allocation: Allocation::default(),
        }
    }

    /// Takes a request of the volume. Its answer carries `token`.
    pub fn accept(&mut self, token: u64, request: SpaceRequest, shared: &mut Shared) {
        let refusal = match &shared.context.phase {
            Phase::Stopped(why) => Some(why.clone()),
            Phase::Closing | Phase::Closed => Some(SpaceError::Unavailable),
            _ => refuse(&request, shared),
        };
        if let Some(error) = refusal {
            return self.clients.refuse(token, error);
        }
        let (lba, blocks) = range(&request);
        let discards = matches!(request, SpaceRequest::Discard { .. });
        let pieces = cut(lba, blocks, discards, shared.context.geometry);
        let deadline = shared.context.now.after(shared.context.config.unavailable_after);
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
            let chunk = shared.context.geometry.chunk_of(piece.lba);
            let (lba, blocks, stage) = (piece.lba, piece.blocks, Stage::Gated);
            let operation = Operation { client, part, kind, chunk, lba, blocks, stage, undone: None };
            self.operations.insert(key, operation);
            if !self.pass(key, shared) {
                self.gated.push_back(key);
            }
        }
    }

    /// Lets through every gated operation that may continue.
    pub fn pass_gated(&mut self, shared: &mut Shared) {
        let gated = std::mem::take(&mut self.gated);
        let mut waiting = VecDeque::new();
        for key in gated {
            if !self.pass(key, shared) {
                waiting.push_back(key);
            }
        }
        waiting.append(&mut self.gated);
        self.gated = waiting;
    }

    /// Whether the operation is past the gate.
    fn pass(&mut self, key: OperationKey, shared: &mut Shared) -> bool {
        let Some(operation) = self.operations.get(&key) else { return true };
        if !matches!(operation.stage, Stage::Gated) {
            return true;
        }
        let (index, lba, blocks) = (operation.chunk, operation.lba, operation.blocks);
        let (writes, free) = (operation.writes(), operation.frees());
        match self.gate(key, shared) {
            Gate::Wait => return false,
            Gate::Fail(error) => self.finish_operation(key, Err(error), shared),
            Gate::Nothing => self.finish_operation(key, Ok(None), shared),
            Gate::Zeroes => {
                let zeroes = BufMut::zeroed(blocks as usize * BLOCK_BYTES).freeze();
                self.finish_operation(key, Ok(Some(Payload::from(zeroes))), shared);
            }
            Gate::Pass if free => self.run(key, shared),
            Gate::Pass => {
                shared.chunks.use_chunk(index);
                let region = shared.context.geometry.region_of(lba);
                let granted = self.locks.lock(Holder::Operation(key), region, lba..lba + blocks, writes);
                if let Some(operation) = self.operations.get_mut(&key) {
                    operation.stage = Stage::Locking;
                }
                if granted {
                    self.run(key, shared);
                }
            }
        }
        true
    }

    fn gate(&mut self, key: OperationKey, shared: &mut Shared) -> Gate {
        if !shared.context.serving() {
            return Gate::Wait;
        }
        let Some(operation) = self.operations.get(&key) else { return Gate::Nothing };
        let (index, lba) = (operation.chunk, operation.lba);
        if lba + operation.blocks > shared.membership.record().size_bytes / BLOCK_BYTES as u64 {
            return Gate::Fail(SpaceError::Invalid("the range is beyond the end of the virtual disk"));
        }
        let Some(chunk) = shared.chunks.get(index) else {
            return match &operation.kind {
                Kind::Read { .. } => Gate::Zeroes,
                Kind::Discard | Kind::Free => Gate::Nothing,
                Kind::Write { class, .. } => {
                    let append = *class == WriteClass::Append;
                    match self.allocation.allocate(index, append, shared) {
                        None | Some(SpaceError::Unavailable) => Gate::Wait,
                        Some(error) => Gate::Fail(error),
                    }
                }
            };
        };
        match &operation.kind {
            Kind::Read { .. } if chunk.is_allocating() => return Gate::Zeroes,
            _ if chunk.is_allocating() => return Gate::Wait,
            Kind::Free => return gate_free(index, shared),
            _ if chunk.state == ChunkState::Closing => return Gate::Wait,
            Kind::Write { class, .. } if (*class == WriteClass::Append) != chunk.append => {
                return Gate::Fail(SpaceError::Invalid(
                    "a chunk is either of class Append or not, from its first write on",
                ));
            }
            _ => {}
        }
        if self.dirty_regions.verdict(index, lba, shared) == dirty_regions::Verdict::MayDiffer {
            return Gate::Wait;
        }
        match operation.kind {
            Kind::Read { copy } => gate_read(index, copy, shared),
            _ => gate_write(index, shared),
        }
    }

    /// Releases the lock, or the place in its queue. Holders granted a lock by that continue.
    pub fn unlock(&mut self, holder: Holder, region: u64, mailbox: &mut Mailbox) {
        for granted in self.locks.unlock(holder, region) {
            mailbox.leave(Next::Granted(granted));
        }
    }

    /// Requests the exclusive lock of blocks of one region, for a step that makes their copies
    /// equal. Returns whether it is granted at once.
    pub fn lock_for_sync(&mut self, holder: Holder, region: u64, range: std::ops::Range<u64>) -> bool {
        self.locks.lock(holder, region, range, true)
    }

    /// Releases the chunk and the lock of an operation.
    pub fn release(&mut self, key: OperationKey, chunk: ChunkIndex, lba: u64, shared: &mut Shared) {
        release_chunk(chunk, shared);
        self.unlock(Holder::Operation(key), shared.context.geometry.region_of(lba), &mut shared.mailbox);
    }

    /// Releases lock and chunk, and sends the operation back to the gate.
    fn gate_again(&mut self, key: OperationKey, shared: &mut Shared) {
        let Some(operation) = self.operations.get(&key) else { return };
        let (chunk, lba) = (operation.chunk, operation.lba);
        self.end_reading(key, shared);
        self.wait_again(key, &mut shared.mailbox);
        self.release(key, chunk, lba, shared);
    }

    /// Has the copies compared before the read. The read keeps lock and chunk until the comparison
    /// has its place in the queue.
    fn compare_first(&mut self, key: OperationKey, mailbox: &mut Mailbox) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        operation.stage = Stage::Comparing;
        let (chunk, lba, blocks) = (operation.chunk, operation.lba, operation.blocks);
        mailbox.leave(Next::Compare { operation: key, chunk, lba, blocks });
    }

    /// Begins the operation again, after the copies could not be read or compared.
    pub fn wait_again(&mut self, key: OperationKey, mailbox: &mut Mailbox) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        operation.stage = Stage::Gated;
        self.gated.push_back(key);
        mailbox.recheck = true;
    }

    /// Ends a piece; `Some` is the data of a read.
    pub fn finish_operation(
        &mut self,
        key: OperationKey,
        result: Result<Option<Payload>, SpaceError>,
        shared: &mut Shared,
    ) {
        let Some(operation) = self.operations.remove(&key) else { return };
        if let (Kind::Read { .. }, Stage::Running(run)) = (&operation.kind, &operation.stage) {
            self.hedges.end(key, run.pending(), shared);
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
        self.clients.piece_done(operation.client, operation.part, result, &mut shared.mailbox.counters);
        if !matches!(operation.stage, Stage::Gated | Stage::Comparing) && !operation.frees() {
            self.release(key, operation.chunk, operation.lba, shared);
        }
        let gives_up_free = operation.frees() && matches!(operation.stage, Stage::Gated);
        if gives_up_free
            && !self.operations.values().any(|other| other.frees() && other.chunk == operation.chunk)
        {
            shared.chunks.keep(operation.chunk);
            shared.mailbox.recheck = true;
        }
        if operation.writes() {
            // A resync or build may have waited for this operation.
            shared.mailbox.recheck = true;
        }
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.clients.next_timeout().into_iter().chain(self.hedges.next_timeout()).min()
    }

    /// Fails requests that waited too long for the record or for unreachable disks. Their pieces at
    /// the gate end; pieces sent to the copies continue until all copies agree.
    pub fn expire_clients(&mut self, shared: &mut Shared) {
        let now = shared.context.now;
        if !self.clients.is_due(now) {
            return;
        }
        let later = now.after(shared.context.config.unavailable_after);
        for client in self.clients.late(now) {
            if !self.is_unavailable(client, shared) {
                self.clients.extend(client, later);
                continue;
            }
            self.clients.give_up(client);
            for key in self.gated_where(|operation| operation.client == client) {
                self.finish_operation(key, Err(SpaceError::Unavailable), shared);
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
    fn is_unavailable(&self, client: ClientKey, shared: &Shared) -> bool {
        let reachable = |index: ChunkIndex| {
            let holders = shared.holders_of(index);
            let enough = holders.len() >= usize::from(shared.membership.record().min_copies.max(1));
            enough && holders.iter().all(|disk| shared.calls.is_open(*disk))
        };
        !shared.context.serving()
            || shared.membership.is_changing()
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
        shared: &mut Shared,
    ) {
        if let Some(error) = self.allocation.allocated(index, disk, result, shared) {
            let writes = |operation: &Operation| {
                operation.chunk == index && matches!(operation.kind, Kind::Write { .. })
            };
            for key in self.gated_where(writes) {
                self.finish_operation(key, Err(error.clone()), shared);
            }
        }
    }

    pub fn allocation_undone(&mut self, index: ChunkIndex, disk: DiskId, shared: &mut Shared) {
        self.allocation.allocation_undone(index, disk, shared);
    }

    /// Takes the slabs of disks that a proposal was to expel, now that the state has decided.
    pub fn leaving_decided(&mut self, shared: &mut Shared) {
        for (index, disk) in self.allocation.take_by_leaving() {
            self.allocated(index, disk, Ok(Answer::Done), shared);
        }
    }

    /// Sends the piece, which has its lock, to the copies.
    pub fn run(&mut self, key: OperationKey, shared: &mut Shared) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let index = operation.chunk;
        let region = shared.context.geometry.region_in_chunk(operation.lba);
        debug_assert!(
            operation.frees() || !self.dirty_regions.is_suspect(index, region),
            "a piece is sent to copies that may differ (I10)"
        );
        if let Kind::Read { copy } = operation.kind {
            return self.run_read(key, copy, shared);
        }
        if !self.absences.is_empty() {
            operation.note_missed(&mut self.absences, shared.context.geometry);
        }
        let stamp = Stamp::new(shared.membership.record().epoch, shared.next_change());
        shared.membership.stamp(stamp.epoch());
        let targets = shared.targets_of(index);
        operation.stage = Stage::Running(Run::new(stamp, targets.clone()));
        operation.send(key, targets, shared);
        self.conclude_write(key, shared);
    }

    fn run_read(&mut self, key: OperationKey, copy: Option<u8>, shared: &mut Shared) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        // A client that reads each copy in turn gets them compared too, by its read of the first.
        if copy.is_none_or(|copy| copy == 0) && wants_newest(operation.chunk, shared) {
            return self.compare_first(key, &mut shared.mailbox);
        }
        let (index, lba) = (operation.chunk, operation.lba);
        let Some(disk) = choose_copy(index, lba, copy, &self.hedges, shared) else {
            return self.gate_again(key, shared);
        };
        let message = operation.message(shared.context.volume, ChangeNumber::default());
        operation.stage = Stage::Running(Run::new(Stamp::default(), SmallVec::from_slice(&[disk])));
        shared.call(Owner::Operation(key), disk, message);
        if copy.is_none() {
            self.hedges.begin(key, index, disk, shared);
        }
    }

    /// Asks a second copy for each late read.
    pub fn hedge_late_reads(&mut self, shared: &mut Shared) {
        while let Some(key) = self.hedges.take_late(shared.context.now) {
            let Some(operation) = self.operations.get_mut(&key) else { continue };
            let region = shared.context.geometry.region_in_chunk(operation.lba);
            let message = operation.message(shared.context.volume, ChangeNumber::default());
            let Stage::Running(run) = &mut operation.stage else { continue };
            if !self.dirty_regions.is_suspect(operation.chunk, region)
                && let Some(second) = self.hedges.choose_second(key, shared)
            {
                run.ask_also(second);
                shared.call(Owner::Operation(key), second, message);
            }
        }
    }

    /// Drops the answers that copies still owe to the read.
    fn end_reading(&mut self, key: OperationKey, shared: &mut Shared) {
        if let Some(Operation { stage: Stage::Running(run), .. }) = self.operations.get(&key) {
            self.hedges.end(key, run.pending(), shared);
        }
    }

    pub fn operation_answered(
        &mut self,
        key: OperationKey,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
    ) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let reads = !operation.writes();
        let Stage::Running(run) = &mut operation.stage else { return };
        if reads {
            return self.read_answered(key, disk, result, shared);
        }
        run.answered(disk, result);
        if Planted::AckFirstCopy.is_planted() && run.is_acknowledged() {
            return self.finish_operation(key, Ok(None), shared);
        }
        self.conclude_write(key, shared);
    }

    /// Decides a write that no disk still has to answer; see the table in [`super::running`].
    fn conclude_write(&mut self, key: OperationKey, shared: &mut Shared) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let (index, free, if_refused) = (operation.chunk, operation.frees(), operation.if_refused());
        let Stage::Running(run) = &mut operation.stage else { return };
        let holders = shared.holders_of(index);
        match run.conclude(&holders, if_refused) {
            running::Verdict::Pending => {}
            running::Verdict::Refused(error) => {
                self.finish_operation(key, Err(space_error(error)), shared);
            }
            running::Verdict::Differ(refused) => {
                operation.send(key, refused.iter().map(|(disk, _)| *disk), shared);
                refused.iter().for_each(|(disk, error)| shared.refused_by(*disk, error));
            }
            running::Verdict::Undo(disks) => self.undo_write(key, disks, shared),
            running::Verdict::Without(disks) => {
                shared.mailbox.leave(Next::GiveUpCopies { operation: key, chunk: index, disks });
            }
            running::Verdict::Missing(disks) => operation.send(key, disks, shared),
            running::Verdict::Done if operation.undone.is_some() => self.write_undone(key, &holders, shared),
            running::Verdict::Done => {
                debug_assert!(
                    running::may_miss() || run.is_on(&holders),
                    "a copy that counts lacks a write (I1)"
                );
                let enough = holders.len() >= usize::from(shared.membership.record().min_copies);
                if free {
                    self.chunk_freed(index, shared);
                }
                let result = if free || enough { Ok(None) } else { Err(SpaceError::Unavailable) };
                self.finish_operation(key, result, shared);
            }
        }
    }

    /// Continues a write for which these disks had no space. Their copies in the making were given
    /// up, except those about to count.
    pub fn copies_given_up(&mut self, key: OperationKey, disks: &[DiskId], shared: &mut Shared) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let Stage::Running(run) = &mut operation.stage else { return };
        let targets = shared.targets_of(operation.chunk);
        let kept: SmallVec<[DiskId; 3]> =
            disks.iter().copied().filter(|disk| targets.contains(disk)).collect();
        kept.iter().for_each(|disk| run.ask_also(*disk));
        operation.send(key, kept.iter().copied(), shared);
        kept.iter().for_each(|disk| shared.refused_by(*disk, &StoreError::NoSpace));
        self.conclude_write(key, shared);
    }

    /// Has all copies discard a fresh write for which some had no space, so that they are equal
    /// again. A crash in between is like one during a write: the next opening makes the copies
    /// equal.
    fn undo_write(&mut self, key: OperationKey, disks: SmallVec<[DiskId; 1]>, shared: &mut Shared) {
        let number = shared.next_change();
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let Stage::Running(run) = &operation.stage else { return };
        // Until it is undone, the write is at the copies under the epoch in which it was first
        // sent.
        let stamp = Stamp::new(run.stamp.epoch(), number);
        shared.membership.stamp(shared.membership.record().epoch);
        let kind = std::mem::replace(&mut operation.kind, Kind::Discard);
        operation.undone = Some(Undone { kind, without_space: disks });
        let targets = shared.targets_of(operation.chunk);
        operation.stage = Stage::Running(Run::new(stamp, targets.clone()));
        operation.send(key, targets, shared);
    }

    /// Ends a write that all copies have discarded, or begins it anew if the disks that had no space
    /// for it have left meanwhile: the others have space.
    fn write_undone(&mut self, key: OperationKey, holders: &[DiskId], shared: &mut Shared) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let Some(Undone { kind, without_space }) = operation.undone.take() else { return };
        if without_space.iter().any(|disk| holders.contains(disk)) {
            return self.finish_operation(key, Err(SpaceError::NoSpace), shared);
        }
        operation.kind = kind;
        self.gate_again(key, shared);
    }

    /// Forgets the chunk: no copy has a slab any more.
    fn chunk_freed(&mut self, index: ChunkIndex, shared: &mut Shared) {
        shared.chunks.chunk_freed(index);
        self.dirty_regions.set_clean(index);
        shared.mailbox.recheck = true;
    }

    fn read_answered(
        &mut self,
        key: OperationKey,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
    ) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let Stage::Running(run) = &mut operation.stage else { return };
        let others = run.ended_at(disk);
        let (lba, blocks) = (operation.lba, operation.blocks);
        let (append, is_far) = (shared.chunks.is_append(operation.chunk), shared.context.is_far(disk));
        match result {
            Ok(Answer::Data { data, checksums }) if self.hedges.may_answer(key, disk, shared) => {
                if is_intact(&shared.context, is_far, append, lba, blocks, &data, &checksums) {
                    self.hedges.answered(key, disk, shared.context.now);
                    return self.finish_operation(key, Ok(Some(data)), shared);
                }
                self.read_corrupt(key, blocks, shared);
            }
            Err(Failure::Store(StoreError::Corrupt { .. })) => self.read_corrupt(key, blocks, shared),
            Err(Failure::Store(error @ StoreError::Invalid(_))) => {
                self.finish_operation(key, Err(space_error(error)), shared);
            }
            // The hedged read still waits for the other copy.
            Ok(_) | Err(Failure::Store(_) | Failure::Gone) if others => {}
            Ok(_) | Err(Failure::Store(_) | Failure::Gone) => self.gate_again(key, shared),
        }
    }

    /// Has another copy answer the read, and the corrupt one repaired.
    fn read_corrupt(&mut self, key: OperationKey, blocks: u64, shared: &mut Shared) {
        if Planted::ServeCorrupt.is_planted() {
            let zeroes = BufMut::zeroed(blocks as usize * BLOCK_BYTES).freeze();
            return self.finish_operation(key, Ok(Some(Payload::from(zeroes))), shared);
        }
        self.end_reading(key, shared);
        self.compare_first(key, &mut shared.mailbox);
    }

    /// Begins to note the blocks that the disk misses, when a committed record expels it and it is
    /// still among the holders of its chunks.
    pub fn begin_absence(&mut self, disk: DiskId, shared: &Shared) {
        self.absences.forget(disk);
        if !shared.context.serving() {
            return;
        }
        let dirty_regions = &self.dirty_regions;
        let held = shared.chunks.map.iter().filter(|(index, chunk)| {
            chunk.is_mapped() && chunk.holders.contains(&disk) && !dirty_regions.is_unclean(**index)
        });
        self.absences.begin(disk, held.map(|(&index, _)| index));
        for operation in self.operations.values() {
            if matches!(operation.stage, Stage::Running(_)) {
                operation.note_missed(&mut self.absences, shared.context.geometry);
            }
        }
    }

    /// Whether the operation has not ended.
    pub fn is_under_way(&self, key: OperationKey) -> bool {
        self.operations.contains_key(&key)
    }

    /// Whether no piece of a write is in flight to the copies, or about to be sent.
    pub fn is_drained(&self) -> bool {
        self.operations.values().all(|operation| !operation.writes())
    }

    pub fn foreground_is_busy(&self) -> bool {
        self.operations.values().any(|operation| !matches!(operation.stage, Stage::Gated))
    }

    /// Returns the lowest stamp of a write in flight.
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

    /// Returns writes in flight to the copies.
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
pub(super) fn release_chunk(index: ChunkIndex, shared: &mut Shared) {
    if shared.chunks.release_chunk(index) {
        shared.mailbox.recheck = true;
    }
}

const _: () = assert!(OVERWRITE_BLOCKS <= REGION_BLOCKS);
