//! What the volume asks: cut into pieces of one region each, every piece passed through gate, lock and copies.
//!
//! The gate holds a piece while its chunk is being allocated, given back or probed, while its region may differ between copies,
//! and while too few copies can be reached. The lock orders pieces that touch the same blocks the same way on all copies. Then
//! the piece is sent to the copies ([`super::running`]).

use super::chunks::ChunkState;
use super::locks::Holder;
use super::running::Run;
use super::suspects::Verdict;
use super::{Coordinator, OVERWRITE_BLOCKS, Phase, REGION_BLOCKS};
use crate::api::{SpaceCompletion, SpaceError, SpaceReply, SpaceRequest};
use store::api::WriteClass;
use sys::{BufMut, Payload};
use types::{BLOCK_BYTES, ChunkIndex, Monotonic};

/// A request of the volume.
pub(super) struct Client {
    pub token: u64,
    reads: bool,
    /// Pieces not done.
    remaining: usize,
    /// Data of a read, by piece.
    parts: Vec<Option<Payload>>,
    error: Option<SpaceError>,
    pub deadline: Monotonic,
    /// Answered already, because it took too long; its pieces go on.
    pub answered: bool,
}

pub(super) enum Kind {
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

pub(super) enum Stage {
    Gated,
    Locking,
    Running(Run),
    /// A read that is answered with what all copies hold, compared ([`super::syncing`]); without lock.
    Comparing,
}

/// One piece of a request.
pub(super) struct Operation {
    pub client: u64,
    /// Its place among the client's pieces.
    pub part: usize,
    pub kind: Kind,
    pub chunk: ChunkIndex,
    pub lba: u64,
    pub blocks: u64,
    pub stage: Stage,
}

impl Operation {
    pub fn writes(&self) -> bool {
        !matches!(self.kind, Kind::Read { .. })
    }
}

enum Gate {
    Pass,
    Wait,
    Zeroes,
    Nothing,
    Fail(SpaceError),
}

impl Coordinator {
    pub(super) fn accept(&mut self, token: u64, request: SpaceRequest) {
        let refusal = match &self.phase {
            Phase::Stopped(why) => Some(why.clone()),
            Phase::Closing | Phase::Closed => Some(SpaceError::Unavailable),
            _ => self.refuse(&request),
        };
        if let Some(error) = refusal {
            self.completions.push(SpaceCompletion { token, result: Err(error) });
            return;
        }
        let (lba, blocks) = match &request {
            SpaceRequest::Read { lba, blocks, .. } => (lba.0, u64::from(*blocks)),
            SpaceRequest::Write { lba, data, .. } => (lba.0, (data.len() / BLOCK_BYTES) as u64),
            SpaceRequest::Discard { lba, blocks } => (lba.0, *blocks),
        };
        let number = self.number();
        let pieces = self.cut(lba, blocks, matches!(request, SpaceRequest::Discard { .. }));
        let client = Client {
            token,
            reads: matches!(request, SpaceRequest::Read { .. }),
            remaining: pieces.len(),
            parts: vec![None; pieces.len()],
            error: None,
            deadline: self.now.after(self.config.unavailable_after),
            answered: false,
        };
        // Later clients have later deadlines.
        if self.clients.is_empty() {
            self.clients_expire_at = client.deadline;
        }
        self.clients.insert(number, client);
        for (part, (at, length, whole_chunk)) in pieces.into_iter().enumerate() {
            let kind = match &request {
                SpaceRequest::Read { copy, .. } => Kind::Read { copy: *copy },
                SpaceRequest::Write { class, data, .. } => {
                    let start = (at - lba) as usize * BLOCK_BYTES;
                    Kind::Write { class: *class, data: data.slice(start, length as usize * BLOCK_BYTES) }
                }
                SpaceRequest::Discard { .. } if whole_chunk => Kind::Free,
                SpaceRequest::Discard { .. } => Kind::Discard,
            };
            let operation = self.number();
            let chunk = self.chunk_of(at);
            let piece =
                Operation { client: number, part, kind, chunk, lba: at, blocks: length, stage: Stage::Gated };
            self.operations.insert(operation, piece);
            if !self.pass(operation) {
                self.gated.push_back(operation);
            }
        }
    }

    fn refuse(&self, request: &SpaceRequest) -> Option<SpaceError> {
        let (lba, blocks) = match request {
            SpaceRequest::Read { lba, blocks, .. } => (lba.0, u64::from(*blocks)),
            SpaceRequest::Write { lba, data, class } => {
                if !data.len().is_multiple_of(BLOCK_BYTES) {
                    return Some(SpaceError::Invalid("a write must be of whole blocks"));
                }
                let blocks = (data.len() / BLOCK_BYTES) as u64;
                if *class == WriteClass::Overwrite && blocks > OVERWRITE_BLOCKS {
                    return Some(SpaceError::Invalid("an overwrite is of 64 KiB at most"));
                }
                (lba.0, blocks)
            }
            SpaceRequest::Discard { lba, blocks } => (lba.0, *blocks),
        };
        // The size is known once the record is read; until then requests wait, and the gate checks them.
        let end = lba.checked_add(blocks);
        if blocks == 0 || end.is_none() || (self.serving() && end > Some(self.size().blocks.0)) {
            return Some(SpaceError::Invalid("the range is empty or beyond the end of the virtual disk"));
        }
        None
    }

    /// Pieces of one region each; where whole chunks are discarded, of a chunk each: (block, blocks, whole chunk).
    fn cut(&self, lba: u64, blocks: u64, discard: bool) -> Vec<(u64, u64, bool)> {
        let region = self.region_blocks();
        let (mut at, end) = (lba, lba + blocks);
        let mut pieces = Vec::new();
        while at < end {
            let whole = discard && at.is_multiple_of(self.chunk_blocks) && end - at >= self.chunk_blocks;
            let length = if whole {
                self.chunk_blocks
            } else {
                let in_region = region - (at % self.chunk_blocks) % region;
                in_region.min(self.chunk_blocks - at % self.chunk_blocks).min(end - at)
            };
            pieces.push((at, length, whole));
            at += length;
        }
        pieces
    }

    /// Regions are counted from the first of each chunk; this numbers them over the whole virtual disk.
    pub(super) fn region_of(&self, lba: u64) -> u64 {
        let per_chunk = self.chunk_blocks.div_ceil(self.region_blocks());
        lba / self.chunk_blocks * per_chunk + (lba % self.chunk_blocks) / self.region_blocks()
    }

    /// Lets every gated operation through that may go on.
    pub(super) fn pass_gated(&mut self) {
        let gated = std::mem::take(&mut self.gated);
        let mut waiting = std::collections::VecDeque::new();
        for number in gated {
            if !self.pass(number) {
                waiting.push_back(number);
            }
        }
        waiting.append(&mut self.gated);
        self.gated = waiting;
    }

    /// Whether the operation needs the gate no more.
    fn pass(&mut self, number: u64) -> bool {
        let Some(operation) = self.operations.get(&number) else { return true };
        if !matches!(operation.stage, Stage::Gated) {
            return true;
        }
        let (index, lba, blocks) = (operation.chunk, operation.lba, operation.blocks);
        let (writes, free) = (operation.writes(), matches!(operation.kind, Kind::Free));
        match self.gate(number) {
            Gate::Wait => false,
            Gate::Fail(error) => {
                self.finish_operation(number, Err(error));
                true
            }
            Gate::Nothing => {
                self.finish_operation(number, Ok(None));
                true
            }
            Gate::Zeroes => {
                let zeroes = BufMut::zeroed(blocks as usize * BLOCK_BYTES).freeze();
                self.finish_operation(number, Ok(Some(Payload::from(zeroes))));
                true
            }
            Gate::Pass if free => {
                self.run(number);
                true
            }
            Gate::Pass => {
                if let Some(chunk) = self.chunks.get_mut(&index) {
                    chunk.active += 1;
                }
                let region = self.region_of(lba);
                let granted = self.locks.lock(Holder::Operation(number), region, lba..lba + blocks, writes);
                if let Some(operation) = self.operations.get_mut(&number) {
                    operation.stage = Stage::Locking;
                }
                if granted {
                    self.run(number);
                }
                true
            }
        }
    }

    fn gate(&mut self, number: u64) -> Gate {
        if !self.serving() {
            return Gate::Wait;
        }
        let Some(operation) = self.operations.get(&number) else { return Gate::Nothing };
        let (index, lba) = (operation.chunk, operation.lba);
        if lba + operation.blocks > self.record.size_bytes / BLOCK_BYTES as u64 {
            return Gate::Fail(SpaceError::Invalid("the range is beyond the end of the virtual disk"));
        }
        let Some(chunk) = self.chunks.get(&index) else {
            return match &operation.kind {
                Kind::Read { .. } => Gate::Zeroes,
                Kind::Discard | Kind::Free => Gate::Nothing,
                Kind::Write { class, .. } => {
                    let append = *class == WriteClass::Append;
                    match self.allocate(index, append) {
                        None | Some(SpaceError::Unavailable) => Gate::Wait,
                        Some(error) => Gate::Fail(error),
                    }
                }
            };
        };
        match &operation.kind {
            Kind::Read { .. } if matches!(chunk.state, ChunkState::Allocating { .. }) => return Gate::Zeroes,
            _ if matches!(chunk.state, ChunkState::Allocating { .. }) => return Gate::Wait,
            Kind::Free => return self.gate_free(index),
            _ if chunk.state == ChunkState::Closing => return Gate::Wait,
            Kind::Write { class, .. } if (*class == WriteClass::Append) != chunk.append => {
                return Gate::Fail(SpaceError::Invalid(
                    "a chunk is either of class Append or not, from its first write on",
                ));
            }
            _ => {}
        }
        let writes = operation.writes();
        let explicit = match operation.kind {
            Kind::Read { copy } => copy,
            _ => None,
        };
        if self.verdict(index, lba) == Verdict::MayDiffer {
            return Gate::Wait;
        }
        let holders = self.holders_of(index);
        if let Some(copy) = explicit
            && usize::from(copy) >= holders.len()
        {
            return Gate::Fail(SpaceError::Invalid("the chunk has no such in-sync copy"));
        }
        if writes {
            if holders.len() < usize::from(self.record.min_copies.max(1)) {
                return Gate::Wait;
            }
            if holders.len() < usize::from(self.promised_holders()) {
                // An opening may then miss fewer disks: this must be on record before it is relied on.
                self.members.want_lower(holders.len() as u8);
                return Gate::Wait;
            }
        } else {
            let wanted = |at: usize| explicit.is_none_or(|copy| usize::from(copy) == at);
            let mut readable = holders.iter().enumerate().filter(|(at, _)| wanted(*at));
            if !readable.any(|(_, disk)| self.calls.is_open(*disk)) {
                return Gate::Wait;
            }
        }
        Gate::Pass
    }

    fn gate_free(&mut self, index: ChunkIndex) -> Gate {
        let Some(chunk) = self.chunks.get_mut(&index) else { return Gate::Nothing };
        chunk.state = ChunkState::Closing;
        // A copy being made would outlive the chunk. One that is complete by the record is waited for.
        self.abort_build(index);
        let active = self.chunks.get(&index).is_some_and(|chunk| chunk.active > 0);
        if active || self.is_building(index) { Gate::Wait } else { Gate::Pass }
    }

    /// The lock was granted.
    pub(super) fn lock_granted(&mut self, holder: Holder) {
        match holder {
            Holder::Operation(number) => self.run(number),
            Holder::Sync(number) => self.sync_locked(number),
        }
    }

    pub(super) fn unlock(&mut self, holder: Holder, region: u64) {
        for granted in self.locks.unlock(holder, region) {
            self.lock_granted(granted);
        }
    }

    /// Gives up lock and chunk; the operation goes back to the gate.
    pub(super) fn gate_again(&mut self, number: u64) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        operation.stage = Stage::Gated;
        let (chunk, lba) = (operation.chunk, operation.lba);
        self.gated.push_back(number);
        self.recheck = true;
        self.release_chunk(chunk);
        self.unlock(Holder::Operation(number), self.region_of(lba));
    }

    /// Gives up lock and chunk; the read waits for the copies to be compared.
    pub(super) fn compare_first(&mut self, number: u64) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        operation.stage = Stage::Comparing;
        let (chunk, lba, blocks) = (operation.chunk, operation.lba, operation.blocks);
        // The comparison has its place in the queue before the read gives up its own.
        self.answer_by_sync(number, chunk, lba, blocks);
        self.release_chunk(chunk);
        self.unlock(Holder::Operation(number), self.region_of(lba));
    }

    /// The copies could not be compared: the read begins again.
    pub(super) fn wait_again(&mut self, number: u64) {
        let Some(operation) = self.operations.get_mut(&number) else { return };
        operation.stage = Stage::Gated;
        self.gated.push_back(number);
        self.recheck = true;
    }

    /// The piece is done; `Some` is the data of a read.
    pub(super) fn finish_operation(&mut self, number: u64, result: Result<Option<Payload>, SpaceError>) {
        let Some(operation) = self.operations.remove(&number) else { return };
        if let Some(client) = self.clients.get_mut(&operation.client) {
            client.remaining -= 1;
            match result {
                Ok(data) => client.parts[operation.part] = data,
                Err(error) => merge_error(&mut client.error, error),
            }
            if client.remaining == 0 {
                self.answer_client(operation.client);
            }
        }
        let free = matches!(operation.kind, Kind::Free);
        if !matches!(operation.stage, Stage::Gated | Stage::Comparing) && !free {
            self.release_chunk(operation.chunk);
            self.unlock(Holder::Operation(number), self.region_of(operation.lba));
        }
        if operation.writes() {
            // A resync or build may have waited for it.
            self.recheck = true;
        }
    }

    fn answer_client(&mut self, number: u64) {
        let Some(client) = self.clients.remove(&number) else { return };
        if client.answered {
            return;
        }
        let result = match client.error {
            Some(error) => Err(error),
            None if client.reads => {
                let mut data = Payload::new();
                client.parts.into_iter().flatten().for_each(|part| data.append(part));
                self.counters.reads += 1;
                Ok(SpaceReply::Data(data))
            }
            None => {
                self.counters.writes += 1;
                Ok(SpaceReply::Done)
            }
        };
        self.completions.push(SpaceCompletion { token: client.token, result });
    }

    /// Answers what waited too long for something that cannot be reached. Pieces at the gate end; pieces with the copies go on until all copies agree.
    pub(super) fn expire_clients(&mut self) {
        let now = self.now;
        if now < self.clients_expire_at {
            return;
        }
        let late: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| !client.answered && client.deadline <= now)
            .map(|(&number, _)| number)
            .collect();
        for number in late {
            if !self.is_unavailable(number) {
                // It is slow, and goes on.
                let deadline = now.after(self.config.unavailable_after);
                self.clients.entry(number).and_modify(|client| client.deadline = deadline);
                continue;
            }
            if let Some(client) = self.clients.get_mut(&number) {
                client.answered = true;
                let token = client.token;
                self.completions.push(SpaceCompletion { token, result: Err(SpaceError::Unavailable) });
            }
            let gated: Vec<u64> = self
                .operations
                .iter()
                .filter(|(_, operation)| {
                    operation.client == number && matches!(operation.stage, Stage::Gated)
                })
                .map(|(&operation, _)| operation)
                .collect();
            for operation in gated {
                self.finish_operation(operation, Err(SpaceError::Unavailable));
            }
        }
        let waiting = self.clients.values().filter(|client| !client.answered);
        let first = waiting.map(|client| client.deadline).min();
        self.clients_expire_at = first.unwrap_or(now.after(self.config.unavailable_after));
    }

    /// Whether the request waits for the record, or for a disk that cannot be reached.
    fn is_unavailable(&self, client: u64) -> bool {
        let reachable = |index: ChunkIndex| {
            let holders = self.holders_of(index);
            let enough = holders.len() >= usize::from(self.record.min_copies.max(1));
            enough && holders.iter().all(|disk| self.calls.is_open(*disk))
        };
        !self.serving()
            || self.members.is_changing()
            || self
                .operations
                .values()
                .filter(|operation| operation.client == client)
                .any(|operation| !reachable(operation.chunk))
    }

    /// No piece of a write is with the copies or on its way there.
    pub(super) fn is_drained(&self) -> bool {
        self.operations.values().all(|operation| !operation.writes()) && self.syncs.is_empty()
    }

    pub(super) fn foreground_is_busy(&self) -> bool {
        self.operations.values().any(|operation| !matches!(operation.stage, Stage::Gated))
    }
}

/// Corrupt blocks of several pieces are listed together; of other errors the first is kept.
fn merge_error(have: &mut Option<SpaceError>, error: SpaceError) {
    match (have, error) {
        (Some(SpaceError::Corrupt { lbas }), SpaceError::Corrupt { lbas: more }) => lbas.extend(more),
        (have @ None, error) => *have = Some(error),
        _ => {}
    }
}

const _: () = assert!(OVERWRITE_BLOCKS <= REGION_BLOCKS);
