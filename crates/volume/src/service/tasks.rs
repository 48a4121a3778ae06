//! Operations that wait: parked whole, and tried again from their beginning.

use super::io::InFlight;
use super::turn::OPERATION_STEPS;
use super::{Halt, Service};
use crate::backend::{
    Create, CreateAction, Durability, Event, OpenId, Operation, OperationId, Reply, SessionId,
};
use crate::fs::FileId;
use crate::planted::Planted;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::task::Poll;
use types::NtStatus;

/// What is to be done.
#[derive(Debug)]
pub enum Work {
    Request(Operation),
    /// A create, with what its earlier tries found or did.
    Create(Box<Create>, Attempt),
    /// Closes an open that nobody asks about.
    CloseQuietly(OpenId),
}

/// What earlier tries of a create did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Attempt {
    pub again: bool,
    /// The file that it made, before something else was missing.
    pub made: Option<FileId>,
    /// It holds its create GUID against replays.
    pub guid_held: bool,
}

/// What an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The file layer.
    Storage,
    /// Caching being given up; its place among those that wait for the same.
    Break(FileId, u64),
    /// Its turn.
    Nothing,
    /// The next turn of the loop.
    Turn,
    /// A byte range of this open's stream.
    Lock(OpenId),
    /// A change in this directory.
    Notify(OpenId),
}

#[derive(Debug)]
struct Parked {
    work: Option<Work>,
    wait: Wait,
    told: bool,
}

/// Internal operations have identifiers from here on.
const INTERNAL: u64 = 3 << 62;

#[derive(Debug, Default)]
pub struct Tasks {
    parked: HashMap<OperationId, Parked>,
    misses: Vec<OperationId>,
    ready: VecDeque<OperationId>,
    /// They go on in the next turn.
    yielded: Vec<OperationId>,
    /// Creates among the parked.
    creates: BTreeSet<(SessionId, OperationId)>,
    internal: u64,
    next_place: u64,
}

impl Tasks {
    pub fn retry_misses(&mut self) {
        for operation in std::mem::take(&mut self.misses) {
            self.make_ready(operation);
        }
    }

    /// A turn begins: what the last one had no steps left for goes on, behind what came meanwhile.
    pub fn resume_yielded(&mut self) {
        for operation in std::mem::take(&mut self.yielded) {
            self.make_ready(operation);
        }
    }

    /// Whether an operation goes on in the next turn without waiting for anything else.
    pub fn is_due(&self) -> bool {
        !self.ready.is_empty() || !self.yielded.is_empty()
    }

    fn make_ready(&mut self, operation: OperationId) {
        if let Some(parked) = self.parked.get_mut(&operation) {
            parked.wait = Wait::Nothing;
            self.ready.push_back(operation);
        }
    }

    fn insert(&mut self, operation: OperationId, parked: Parked) {
        if let Some(Work::Create(create, _)) = &parked.work {
            self.creates.insert((create.caller.session, operation));
        }
        self.parked.insert(operation, parked);
    }

    fn remove(&mut self, operation: OperationId) -> Option<Parked> {
        let parked = self.parked.remove(&operation)?;
        if let Some(Work::Create(create, _)) = &parked.work {
            self.creates.remove(&(create.caller.session, operation));
        }
        Some(parked)
    }

    /// An operation that is answered elsewhere (a lock, a notification) waits no more.
    pub fn forget(&mut self, operation: OperationId) {
        self.remove(operation);
    }

    /// Takes up an operation that waited for its turn: what to do, and whether its client was told that it takes long.
    fn take_work(&mut self, operation: OperationId) -> Option<(Work, bool)> {
        self.parked.get(&operation)?.work.as_ref()?;
        let Parked { work, told, .. } = self.remove(operation)?;
        Some((work?, told))
    }

    fn internal_id(&mut self) -> OperationId {
        self.internal += 1;
        OperationId(INTERNAL | self.internal)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// All work that waits.
    pub fn waiting_mut(&mut self) -> impl Iterator<Item = (OperationId, &mut Work)> {
        self.parked.iter_mut().filter_map(|(operation, parked)| Some((*operation, parked.work.as_mut()?)))
    }

    /// Parked creates of a session.
    pub fn creates_of(&self, session: SessionId) -> Vec<OperationId> {
        let all = (session, OperationId(0))..=(session, OperationId(u64::MAX));
        self.creates.range(all).map(|(_, operation)| *operation).collect()
    }
}

/// How a try ended well.
#[derive(Debug)]
pub enum Outcome {
    Reply(Reply),
    /// The answer comes from elsewhere: a transfer, or a queue.
    Later,
}

impl Service {
    pub(super) fn start(&mut self, operation: OperationId, request: Operation) {
        let work = match request {
            Operation::Create(create) => Work::Create(create, Attempt::default()),
            other => Work::Request(other),
        };
        let operation =
            if operation == OperationId::UNATTENDED { self.tasks.internal_id() } else { operation };
        if self.turn.is_spent() {
            let parked = Parked { work: Some(work), wait: Wait::Nothing, told: false };
            self.tasks.insert(operation, parked);
            self.tasks.ready.push_back(operation);
            return;
        }
        self.run(operation, work, false);
    }

    /// Does work that nobody waits for.
    pub(super) fn start_internal(&mut self, work: Work) {
        let operation = self.tasks.internal_id();
        self.tasks.insert(operation, Parked { work: Some(work), wait: Wait::Nothing, told: true });
        self.tasks.ready.push_back(operation);
    }

    /// Tries everything that can go on, as long as the turn is not spent.
    pub(super) fn run_ready(&mut self) {
        loop {
            while !self.turn.is_spent()
                && let Some(operation) = self.tasks.ready.pop_front()
            {
                let Some((work, told)) = self.tasks.take_work(operation) else { continue };
                self.run(operation, work, told);
            }
            self.answer_watches();
            if self.tasks.ready.is_empty() || self.turn.is_spent() {
                return;
            }
        }
    }

    fn run(&mut self, operation: OperationId, mut work: Work, told: bool) {
        let durable = self.wants_durability(&work);
        // What the file layer did by itself is its own to bound.
        self.fs.take_steps();
        let result = self.perform(operation, &mut work);
        self.turn.spend(OPERATION_STEPS);
        self.turn.spend_metadata(self.fs.take_steps());
        self.turn.spend(self.watches.take_steps());
        match result {
            Ok(Outcome::Reply(reply)) => match durable {
                Some(data) => self.commit(operation, reply, data),
                None => self.done(operation, Ok(reply)),
            },
            Ok(Outcome::Later) => (),
            Err(Halt::Closing(file)) => {
                let wait = self.wait_for_caching(operation, file);
                self.tasks.insert(operation, Parked { work: Some(work), wait, told });
            }
            Err(Halt::Status(status)) => {
                self.release_guid(&work);
                if let Work::CloseQuietly(id) = work
                    && let Some(open) = self.opens.get_mut(id)
                {
                    open.closing = false;
                }
                self.done(operation, Err(status))
            }
            Err(Halt::Symlink { data, unparsed_bytes }) => {
                self.release_guid(&work);
                self.done(operation, Ok(Reply::StoppedOnSymlink { data, unparsed_bytes }))
            }
            Err(Halt::Miss) => {
                if let Some(error) = &self.failed {
                    let status = super::status_of(error);
                    self.release_guid(&work);
                    return self.done(operation, Err(status));
                }
                self.park(operation, Some(work), Wait::Storage, told);
                self.tasks.misses.push(operation);
            }
            Err(Halt::Yield) => {
                self.park(operation, Some(work), Wait::Turn, told);
                self.tasks.yielded.push(operation);
            }
            Err(Halt::Break(file)) => {
                if let Work::Create(_, attempt) = &mut work {
                    attempt.again = true;
                }
                let wait = self.wait_for_caching(operation, file);
                self.park(operation, Some(work), wait, told);
            }
        }
    }

    /// Queues an operation behind the others that wait for what is cached of a file.
    fn wait_for_caching(&mut self, operation: OperationId, file: FileId) -> Wait {
        let place = self.tasks.next_place;
        self.tasks.next_place += 1;
        let node = self.files.entry(file).or_default();
        node.waiting.insert(place, operation);
        // Each try looked at all of them.
        self.turn.spend(u32::try_from(node.opens.len()).unwrap_or(u32::MAX));
        Wait::Break(file, place)
    }

    fn leave_queue(&mut self, file: FileId, place: u64) {
        if let Some(node) = self.files.get_mut(&file) {
            node.waiting.remove(&place);
        }
        self.drop_idle_file(file);
    }

    /// Whether the operation changes something and is to be answered only when that is durable; and the file whose size or data it
    /// changes, which the file layer publishes later than other changes.
    fn wants_durability(&self, work: &Work) -> Option<Option<FileId>> {
        let (share, data) = match work {
            Work::Create(create, _) => (create.caller.share, None),
            Work::CloseQuietly(_) => return None,
            Work::Request(request) => match request {
                Operation::SetInformation { open, .. }
                | Operation::ZeroRange { open, .. }
                | Operation::Trim { open, .. }
                | Operation::DuplicateExtents { target: open, .. } => {
                    let open = self.opens.get(*open)?;
                    (open.share, Some(open.stream.file))
                }
                Operation::Close { open, .. }
                | Operation::SetSecurity { open, .. }
                | Operation::SetSparse { open, .. }
                | Operation::SetReparsePoint { open, .. }
                | Operation::DeleteReparsePoint { open, .. }
                | Operation::ObjectId { open, create: true } => (self.opens.get(*open)?.share, None),
                _ => return None,
            },
        };
        let data = data.filter(|_| !Planted::GrowthNotDurable.is_planted());
        (share.continuously_available || share.durability == Durability::Write).then_some(data)
    }

    /// Answers when all metadata changed so far is durable, with a file's data and size.
    fn commit(&mut self, operation: OperationId, reply: Reply, data: Option<FileId>) {
        if matches!(&reply, Reply::Created(created) if created.action == CreateAction::Opened) {
            return self.done(operation, Ok(reply));
        }
        let token = self.in_flight.insert(InFlight::Commit { operation, reply: Box::new(reply) });
        let result = match data {
            Some(file) => self.fs.flush(token as u64, file),
            None => self.fs.flush_metadata(token as u64),
        };
        if let Poll::Ready(result) = result {
            self.flushed(token as u64, result);
        }
    }

    /// Lets an operation wait, and says so once where it may take long.
    pub(super) fn park(&mut self, operation: OperationId, work: Option<Work>, wait: Wait, told: bool) {
        let tell = !told && !matches!(wait, Wait::Storage | Wait::Turn);
        if tell {
            self.events.push(Event::Pending { operation });
        }
        self.tasks.insert(operation, Parked { work, wait, told: told || tell });
    }

    /// Tries again when metadata has come into memory.
    pub(super) fn wait_for_storage(&mut self, operation: OperationId, request: Operation) {
        if let Some(error) = &self.failed {
            let status = super::status_of(error);
            return self.done(operation, Err(status));
        }
        self.park(operation, Some(Work::Request(request)), Wait::Storage, true);
        self.tasks.misses.push(operation);
    }

    pub(super) fn too_many_parked(&self) -> bool {
        self.tasks.parked.len() >= self.config.parked_max
    }

    pub(super) fn done(&mut self, operation: OperationId, result: Result<Reply, NtStatus>) {
        if operation.0 < INTERNAL {
            self.events.push(Event::Done { operation, result });
        }
    }

    /// Whoever waited for caching of this file tries again.
    pub(super) fn wake(&mut self, file: FileId) {
        if let Some(node) = self.files.get_mut(&file) {
            for operation in std::mem::take(&mut node.waiting).into_values() {
                self.tasks.make_ready(operation);
            }
            self.drop_idle_file(file);
        }
    }

    pub(super) fn drop_idle_file(&mut self, file: FileId) {
        if let Some(node) = self.files.get(&file)
            && node.opens.is_empty()
            && node.waiting.is_empty()
        {
            self.files.remove(&file);
        }
    }

    pub(super) fn cancel_operation(&mut self, operation: OperationId) {
        let Some(parked) = self.tasks.parked.get(&operation) else { return };
        match parked.wait {
            // Short, or about to go on: it is past waiting.
            Wait::Storage | Wait::Nothing => return,
            Wait::Turn => self.tasks.yielded.retain(|yielded| *yielded != operation),
            Wait::Break(file, place) => self.leave_queue(file, place),
            Wait::Lock(open) => self.forget_waiting_lock(open, operation),
            Wait::Notify(open) => {
                self.watches.cancel(open, operation);
            }
        }
        if let Some(Parked { work: Some(work), .. }) = self.tasks.remove(operation) {
            self.release_guid(&work);
        }
        self.done(operation, Err(NtStatus::CANCELLED));
    }

    /// Ends an operation that waits, with this status.
    pub(super) fn abort(&mut self, operation: OperationId, status: NtStatus) {
        let Some(parked) = self.tasks.remove(operation) else { return };
        if let Wait::Break(file, place) = parked.wait {
            self.leave_queue(file, place);
        }
        if let Some(work) = &parked.work {
            self.release_guid(work);
        }
        self.done(operation, Err(status));
    }

    fn perform(&mut self, operation: OperationId, work: &mut Work) -> Result<Outcome, Halt> {
        let request = match work {
            Work::Create(create, attempt) => return self.create(create, attempt),
            Work::CloseQuietly(open) => return self.close(operation, *open, false),
            Work::Request(request) => request,
        };
        let granted = self.check_grant(request);
        // An object id that is there is told to everyone: only making one is a change.
        if !matches!(request, Operation::ObjectId { .. }) {
            granted?;
        }
        let reply = match request {
            Operation::Write { open, offset, data, write_through, .. } => {
                let data = std::mem::take(data);
                self.write(operation, *open, *offset, data, *write_through);
                return Ok(Outcome::Later);
            }
            Operation::Create(_) | Operation::Read { .. } => {
                return Err(NtStatus::INTERNAL_ERROR.into());
            }
            Operation::OpenRoot { path } => self.open_root(path)?,
            Operation::Reconnect(reconnect) => self.reconnect(reconnect)?,
            Operation::Close { open, query } => return self.close(operation, *open, *query),
            Operation::Flush { open } => return self.flush(operation, *open),
            Operation::QueryInformation { open } => self.query_information(*open)?,
            Operation::SetInformation { open, set } => self.set_information(*open, set)?,
            Operation::QueryStreams { open } => self.query_streams(*open)?,
            Operation::QueryShortName { open } => self.query_short_name(*open)?,
            Operation::QueryExtendedAttributes { open } => self.query_extended_attributes(*open)?,
            Operation::QuerySecurity { open, parts } => self.query_security(*open, *parts)?,
            Operation::SetSecurity { open, parts, descriptor } => {
                self.set_security(*open, *parts, descriptor)?
            }
            Operation::QueryVolume => self.query_volume(),
            Operation::QueryDirectory { open, pattern, after, entries_max, short_names } => {
                self.query_directory(operation, *open, pattern, *after, *entries_max, *short_names)?
            }
            Operation::Lock { open, elements, sequence } => {
                return self.lock(operation, *open, elements, *sequence);
            }
            Operation::Notify { open, filter, tree, bytes_max } => {
                return self.notify(operation, *open, *filter, *tree, *bytes_max);
            }
            Operation::SetSparse { open, sparse } => self.set_sparse(*open, *sparse)?,
            Operation::ZeroRange { open, range } => self.zero_range(*open, *range)?,
            Operation::QueryAllocatedRanges { open, range } => self.query_allocated_ranges(*open, *range)?,
            Operation::Trim { open, ranges } => self.trim(*open, ranges)?,
            Operation::CopyChunks { source, target, chunks } => {
                return self.copy_chunks(operation, *source, *target, std::mem::take(chunks));
            }
            Operation::DuplicateExtents { source, target, chunk } => {
                return self.duplicate_extents(operation, *source, *target, chunk);
            }
            Operation::QueryReparsePoint { open } => self.query_reparse_point(*open)?,
            Operation::SetReparsePoint { open, data } => self.set_reparse_point(*open, data)?,
            Operation::DeleteReparsePoint { open, tag } => self.delete_reparse_point(*open, *tag)?,
            Operation::ObjectId { open, create } => self.object_id(*open, create.then_some(granted))?,
            Operation::SetIntegrity { open, .. } => self.set_integrity(*open)?,
            Operation::AcknowledgeOplock { open, level } => self.acknowledge_oplock(*open, *level)?,
            Operation::AcknowledgeLease { client, key, state } => {
                self.acknowledge_lease((*client, *key), *state)?
            }
            Operation::EndSession { session, .. } => self.end_session(*session),
            Operation::ForceClose { open } => self.force_close(*open)?,
        };
        Ok(Outcome::Reply(reply))
    }
}
