//! Operations that wait: parked whole, and tried again from their beginning.

use super::events::INTERNAL;
use super::open::LinkName;
use super::ready::{Party, Ready};
use crate::backend::{Create, OpenId, Operation, OperationId, SessionId};
use crate::fs::FileId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::NtStatus;

/// Work to do.
#[derive(Debug)]
pub enum Work {
    Request(Operation),
    /// A create, with the results of its earlier tries.
    Create(Box<Create>, Attempt),
    /// The close of an open without a client's request.
    CloseQuietly(OpenId),
}

impl Work {
    /// The session for which it opens something: it ends with that session.
    fn opens_for(&self) -> Option<SessionId> {
        match self {
            Self::Create(create, _) => Some(create.caller.session),
            Self::Request(Operation::Reconnect(reconnect)) => Some(reconnect.caller.session),
            _ => None,
        }
    }
}

/// Effects of earlier tries of a create.
#[derive(Debug, Default, Clone)]
pub struct Attempt {
    pub again: bool,
    /// The file that it made, before something else was missing.
    pub made: Option<FileId>,
    /// Whether it holds its create GUID against replays.
    pub guid_held: bool,
    /// The name of that file, if its open has to outlive the server.
    pub made_link: Option<Box<LinkName>>,
    /// Whether the create continues later with that file. If its open is to outlive the server, a record
    /// says that a restart in between deletes the file: otherwise the file would block a repeated create.
    pub interrupted: bool,
    /// Whether it continues although its client is disconnected: the client finds the open when it repeats
    /// the create.
    pub orphan: bool,
}

impl Attempt {
    /// The file made for an open that has to outlive the server: if the create ended without the open, the
    /// file would block its repetition.
    fn owes_an_open(&self) -> Option<FileId> {
        self.made.filter(|_| self.interrupted && self.made_link.is_some())
    }
}

/// Reason why an operation waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The file layer.
    Storage,
    /// Break of a file's caching; the operation's place in the queue for that file.
    Break(FileId, u64),
    /// Ready: it waits for its turn only.
    Nothing,
    /// The next turn of the loop.
    Turn,
    /// A byte range of this open's stream.
    Lock(OpenId),
    /// A change in this directory.
    Notify(OpenId),
}

#[derive(Debug)]
pub struct Parked {
    pub work: Option<Work>,
    pub wait: Wait,
    /// Whether its client was told of a long wait.
    pub told: bool,
}

/// The waiting operations, and the queues of those that continue without an event.
///
/// Invariant: an operation is parked exactly while it waits. One that waits for a break is in the queue
/// of that file; one that waits for the file layer, for its user's turn or for the next turn is in the
/// list of those. A list may also name ended operations: these are skipped. Locks and watches keep
/// their own queues, and their operations are parked without work.
#[derive(Debug)]
pub struct Tasks {
    parked_max: usize,
    parked: HashMap<OperationId, Parked>,
    misses: Vec<OperationId>,
    ready: Ready,
    /// Operations that continue in the next turn.
    yielded: Vec<OperationId>,
    /// Operations waiting for a break of a file's caching, in the order of arrival.
    for_caching: HashMap<FileId, BTreeMap<u64, OperationId>>,
    /// Creates among the parked.
    creates: BTreeSet<(SessionId, OperationId)>,
    /// The answer to operations that need the file layer, if it has stopped.
    failed: Option<NtStatus>,
    internal: u64,
    next_place: u64,
}

impl Tasks {
    /// Makes a table for `parked_max` operations; [`Tasks::is_full`] reports the limit.
    pub fn new(parked_max: usize) -> Self {
        Self {
            parked_max,
            parked: HashMap::new(),
            misses: Vec::new(),
            ready: Ready::default(),
            yielded: Vec::new(),
            for_caching: HashMap::new(),
            creates: BTreeSet::new(),
            failed: None,
            internal: 0,
            next_place: 0,
        }
    }

    /// Makes operations ready that waited for the file layer.
    pub fn retry_misses(&mut self) {
        for operation in std::mem::take(&mut self.misses) {
            self.make_ready(operation);
        }
    }

    /// Begins a turn: operations for which the last one had no steps left continue, behind those that came
    /// meanwhile.
    pub fn resume_yielded(&mut self) {
        for operation in std::mem::take(&mut self.yielded) {
            self.make_ready(operation);
        }
    }

    /// Makes operations ready that waited for caching of this file.
    pub fn wake(&mut self, file: FileId) {
        for operation in self.for_caching.remove(&file).unwrap_or_default().into_values() {
            self.make_ready(operation);
        }
    }

    fn make_ready(&mut self, operation: OperationId) {
        if let Some(parked) = self.parked.get_mut(&operation) {
            parked.wait = Wait::Nothing;
            self.ready.add(operation);
        }
    }

    /// Whether an operation continues in the next turn without waiting for anything else.
    pub fn is_due(&self) -> bool {
        !self.ready.is_empty() || !self.yielded.is_empty()
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether no more operations may begin to wait for others.
    pub fn is_full(&self) -> bool {
        self.parked.len() >= self.parked_max
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.for_caching.is_empty()
    }

    /// Notes that the file layer has stopped: operations that need it are answered with `status`.
    pub fn fail(&mut self, status: NtStatus) {
        self.failed = Some(status);
    }

    /// Returns the answer to operations that need the file layer, if it has stopped.
    pub const fn failed(&self) -> Option<NtStatus> {
        self.failed
    }

    /// Parks an operation, and lists it in the queue that its wait belongs to.
    pub fn park(&mut self, operation: OperationId, parked: Parked) {
        match parked.wait {
            Wait::Storage => self.misses.push(operation),
            Wait::Nothing => self.ready.add(operation),
            Wait::Turn => self.yielded.push(operation),
            Wait::Break(file, place) => {
                self.for_caching.entry(file).or_default().insert(place, operation);
            }
            Wait::Lock(_) | Wait::Notify(_) => {}
        }
        if let Some(session) = parked.work.as_ref().and_then(Work::opens_for) {
            self.creates.insert((session, operation));
        }
        self.parked.insert(operation, parked);
    }

    /// Returns the wait for caching of a file, behind the others.
    pub fn wait_for_caching(&mut self, file: FileId) -> Wait {
        let place = self.next_place;
        self.next_place += 1;
        Wait::Break(file, place)
    }

    /// Takes the next ready operation: its work, and whether its client was told of a long wait. Users take
    /// turns.
    pub fn take_ready(&mut self, party_of: impl Fn(&Work) -> Party) -> Option<(OperationId, Work, bool)> {
        loop {
            let parked = &self.parked;
            let work_of = |operation| parked.get(&operation)?.work.as_ref();
            let operation = self.ready.take(|operation| Some(party_of(work_of(operation)?)))?;
            // The operation may have ended before its user's turn came.
            if work_of(operation).is_some()
                && let Some(Parked { work: Some(work), told, .. }) = self.forget(operation)
            {
                return Some((operation, work, told));
            }
        }
    }

    /// Removes an operation whose wait is over.
    pub fn forget(&mut self, operation: OperationId) -> Option<Parked> {
        let parked = self.parked.remove(&operation)?;
        if let Some(session) = parked.work.as_ref().and_then(Work::opens_for) {
            self.creates.remove(&(session, operation));
        }
        if let Wait::Break(file, place) = parked.wait
            && let Some(queue) = self.for_caching.get_mut(&file)
        {
            queue.remove(&place);
            if queue.is_empty() {
                self.for_caching.remove(&file);
            }
        }
        Some(parked)
    }

    /// Returns the cancellable wait of an operation; none if it no longer waits, or only for a short time.
    pub fn cancellable(&self, operation: OperationId) -> Option<Wait> {
        let wait = self.parked.get(&operation)?.wait;
        (!matches!(wait, Wait::Storage | Wait::Nothing)).then_some(wait)
    }

    /// Lets a create continue although its client is disconnected, if it owes the client an open
    /// ([`Attempt::owes_an_open`]). Returns whether it does.
    pub fn orphan(&mut self, operation: OperationId) -> bool {
        match self.parked.get_mut(&operation) {
            Some(Parked { work: Some(Work::Create(_, attempt)), .. }) if attempt.owes_an_open().is_some() => {
                attempt.orphan = true;
                true
            }
            _ => false,
        }
    }

    /// The file for which a create owes its client an open.
    pub fn owes_an_open(&self, operation: OperationId) -> Option<FileId> {
        match self.parked.get(&operation)?.work.as_ref()? {
            Work::Create(_, attempt) => attempt.owes_an_open(),
            _ => None,
        }
    }

    /// Keeps an operation that is cancelled from making the next turn due.
    pub fn leave_next_turn(&mut self, operation: OperationId) {
        self.yielded.retain(|yielded| *yielded != operation);
    }

    /// Makes an identifier for an operation without a waiting client.
    pub fn internal_id(&mut self) -> OperationId {
        self.internal += 1;
        OperationId(INTERNAL | self.internal)
    }

    /// Iterates over all waiting work.
    pub fn waiting_mut(&mut self) -> impl Iterator<Item = (OperationId, &mut Work)> {
        self.parked.iter_mut().filter_map(|(operation, parked)| Some((*operation, parked.work.as_mut()?)))
    }

    /// Lists parked operations that are to open something for the session.
    pub fn creates_of(&self, session: SessionId) -> Vec<OperationId> {
        let all = (session, OperationId(0))..=(session, OperationId(u64::MAX));
        self.creates.range(all).map(|(_, operation)| *operation).collect()
    }
}
