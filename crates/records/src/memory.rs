//! The state in memory, for tests and the simulator: the same answers, with faults on request.

use crate::{
    Answer, BlockingState, Change, ClusterState, EngineState, Request, StateCompletion, StateDump,
    StateError, StateTrouble, Transaction, Versioned,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Fate of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Not applied, answered `Unknown`.
    Lost,
    /// Applied, answered `Unknown`.
    AnswerLost,
}

/// Decides the fate of each request.
pub type FaultHook = Box<dyn FnMut(&Request) -> Fault + Send>;

#[derive(Default)]
struct Inner {
    revision: u64,
    entries: BTreeMap<String, Versioned>,
    hook: Option<FaultHook>,
}

impl Inner {
    fn answer(&mut self, request: &Request) -> Answer {
        let fault = self.hook.as_mut().map_or(Fault::None, |hook| hook(request));
        if fault == Fault::Lost {
            return Answer::Unknown;
        }
        let answer = match request {
            Request::Get { key } => Answer::Value(self.entries.get(key).cloned()),
            Request::List { prefix } => Answer::Listed(
                self.entries
                    .range(prefix.clone()..)
                    .take_while(|(key, _)| key.starts_with(prefix.as_str()))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
            ),
            Request::Commit(transaction) => self.commit(transaction),
        };
        if fault == Fault::AnswerLost { Answer::Unknown } else { answer }
    }

    fn commit(&mut self, transaction: &Transaction) -> Answer {
        let holds = transaction.conditions.iter().all(|condition| {
            self.entries.get(&condition.key).map_or(0, |found| found.revision) == condition.revision
        });
        if !holds {
            return Answer::Conflict;
        }
        self.revision += 1;
        for change in &transaction.changes {
            match change {
                Change::Put { key, value } => {
                    let value = Versioned { revision: self.revision, value: value.clone() };
                    self.entries.insert(key.clone(), value);
                }
                Change::Delete { key } => {
                    self.entries.remove(key);
                }
            }
        }
        Answer::Committed { revision: self.revision }
    }
}

/// A state that lives as long as its handles. Cloning shares it.
#[derive(Clone, Default)]
pub struct MemoryState {
    inner: Arc<Mutex<Inner>>,
}

impl MemoryState {
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks `hook` about every request from now on.
    pub fn set_fault_hook(&self, hook: Option<FaultHook>) {
        self.lock().hook = hook;
    }

    /// The answer to `request`, at once: for a simulated network that carries requests and answers itself.
    pub fn answer(&self, request: &Request) -> Answer {
        self.lock().answer(request)
    }

    /// The revision of the last commit.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Everything as of one moment.
    pub fn dump(&self) -> StateDump {
        let inner = self.lock();
        let entries = inner.entries.iter().map(|(key, found)| (key.clone(), found.value.clone()));
        StateDump { revision: inner.revision, entries: entries.collect() }
    }

    /// A handle for a state machine.
    pub fn client(&self) -> MemoryClient {
        MemoryClient { state: self.clone(), answers: VecDeque::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockingState for MemoryState {
    fn call(&self, request: Request) -> Result<Answer, StateError> {
        match self.answer(&request) {
            Answer::Unknown => Err(StateError::Unknown("injected fault".into())),
            answer => Ok(answer),
        }
    }
}

impl EngineState for MemoryState {
    fn revision(&self) -> u64 {
        self.revision()
    }

    fn trouble(&self) -> Option<StateTrouble> {
        None
    }

    fn dump(&self) -> Result<StateDump, StateError> {
        Ok(self.dump())
    }
}

/// [`MemoryState`] as a [`ClusterState`]: answers wait for the next poll.
pub struct MemoryClient {
    state: MemoryState,
    answers: VecDeque<StateCompletion>,
}

impl ClusterState for MemoryClient {
    fn submit(&mut self, token: u64, request: Request) {
        let answer = self.state.answer(&request);
        self.answers.push_back(StateCompletion { token, answer });
    }

    fn poll(&mut self, out: &mut Vec<StateCompletion>) {
        out.extend(self.answers.drain(..));
    }
}
