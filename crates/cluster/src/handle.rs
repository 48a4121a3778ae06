//! The state as the daemon holds it: one handle for any engine.
//!
//! Owns [`State`], the calls common to all engines, and the move from one engine to another while the
//! daemon runs. Promises: a request is answered by one engine, and none is lost or answered twice over
//! a move; watches hear of commits of this process (and, with etcd, of every process).

use crate::etcd::EtcdState;
use crate::watch::{Board, Watch};
use crate::{
    Answer, BlockingState, Change, ClusterState, MemoryState, RedbState, Request, StateCompletion, StateDump,
    StateError, StateTrouble, Transaction,
};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, mpsc};

#[derive(Clone)]
enum Engine {
    Memory(MemoryState),
    Redb(RedbState),
    Etcd(EtcdState),
}

impl Engine {
    fn blocking(&self) -> &dyn BlockingState {
        match self {
            Self::Memory(memory) => memory,
            Self::Redb(redb) => redb,
            Self::Etcd(etcd) => etcd,
        }
    }

    fn dump(&self) -> Result<StateDump, StateError> {
        match self {
            Self::Memory(memory) => Ok(memory.dump()),
            Self::Redb(redb) => redb.dump(),
            Self::Etcd(etcd) => etcd.dump(),
        }
    }
}

struct Shared {
    /// Held for reading while a request is in work, for writing while the records move to another engine.
    at_work: RwLock<()>,
    /// Held for a moment only: a caller that asks for the present engine never waits for a move.
    engine: RwLock<Engine>,
    board: Arc<Board>,
}

/// The cluster's state. Cloning shares it; any thread may use it.
#[derive(Clone)]
pub struct State {
    shared: Arc<Shared>,
}

impl From<MemoryState> for State {
    fn from(memory: MemoryState) -> Self {
        Self::new(Engine::Memory(memory))
    }
}

impl From<RedbState> for State {
    fn from(redb: RedbState) -> Self {
        Self::new(Engine::Redb(redb))
    }
}

impl From<EtcdState> for State {
    fn from(etcd: EtcdState) -> Self {
        Self::new(Engine::Etcd(etcd))
    }
}

impl State {
    fn new(engine: Engine) -> Self {
        let board = Arc::new(Board::default());
        if let Engine::Etcd(etcd) = &engine {
            etcd.tell(board.clone());
        }
        Self { shared: Arc::new(Shared { at_work: RwLock::default(), engine: RwLock::new(engine), board }) }
    }

    /// Opens or creates the state of a single server: redb in a file.
    ///
    /// # Errors
    /// As [`RedbState::open`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        RedbState::open(path).map(Self::from)
    }

    fn engine(&self) -> Engine {
        self.shared.engine.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until no move is under way; none begins as long as the answer is held.
    fn stay(&self) -> RwLockReadGuard<'_, ()> {
        self.shared.at_work.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last revision that this process knows of; asks nobody, and waits for nothing.
    pub fn revision(&self) -> u64 {
        match self.engine() {
            Engine::Memory(memory) => memory.revision(),
            Engine::Redb(redb) => redb.revision(),
            Engine::Etcd(etcd) => etcd.revision(),
        }
    }

    /// Why the state does not answer, while it does not; asks nobody, and waits for nothing.
    pub fn trouble(&self) -> Option<StateTrouble> {
        match self.engine() {
            Engine::Memory(_) => None,
            Engine::Redb(redb) => redb.trouble(),
            Engine::Etcd(etcd) => etcd.trouble(),
        }
    }

    /// Acts as if the file of a single server's state failed now; for tests of the layers above.
    pub fn fail(&self, why: &str) {
        if let Engine::Redb(redb) = self.engine() {
            redb.fail(why);
        }
    }

    /// Everything as of one moment.
    ///
    /// # Errors
    /// [`StateError::Unknown`].
    pub fn dump(&self) -> Result<StateDump, StateError> {
        let _stays = self.stay();
        self.engine().dump()
    }

    /// etcd, if it is the engine.
    pub fn etcd(&self) -> Option<EtcdState> {
        match self.engine() {
            Engine::Etcd(etcd) => Some(etcd),
            _ => None,
        }
    }

    /// Moves to etcd, if `prepare` succeeds: it finds the engine that there is without work, and none begins until it returns.
    pub(crate) fn move_to<E>(
        &self,
        etcd: &EtcdState,
        prepare: impl FnOnce(&dyn BlockingState, StateDump) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<StateError>,
    {
        let alone = self.shared.at_work.write().unwrap_or_else(PoisonError::into_inner);
        let old = self.engine();
        prepare(old.blocking(), old.dump()?)?;
        etcd.tell(self.shared.board.clone());
        *self.shared.engine.write().unwrap_or_else(PoisonError::into_inner) = Engine::Etcd(etcd.clone());
        drop(alone);
        self.shared.board.start_over();
        Ok(())
    }

    /// Hears of changes of all keys that begin with `prefix`. The first that it gives is to start over, so that the listener lists.
    pub fn watch(&self, prefix: &str) -> Watch {
        self.watch_with(prefix, || {})
    }

    /// As [`State::watch`]; `wake` is called when changes wait that were not there before. It must not block.
    pub fn watch_with(&self, prefix: &str, wake: impl Fn() + Send + Sync + 'static) -> Watch {
        self.shared.board.listen(prefix, Box::new(wake))
    }

    /// A handle for the data plane, which never blocks. `wake` is called after each answer, so that the data plane's loop polls.
    ///
    /// # Errors
    /// [`StateError::Open`] if the thread that answers cannot be started.
    pub fn client(&self, wake: impl Fn() + Send + 'static) -> Result<StateClient, StateError> {
        let (requests, take) = mpsc::channel::<(u64, Request)>();
        let (give, answers) = mpsc::channel();
        let state = self.clone();
        let wake = Arc::new(Mutex::new(wake));
        let answered = move |token, answer: Result<Answer, StateError>| {
            let completion = StateCompletion { token, answer: answer.unwrap_or(Answer::Unknown) };
            // Fails if the client is gone.
            if give.send(completion).is_ok() {
                (wake.lock().unwrap_or_else(PoisonError::into_inner))();
            }
        };
        std::thread::Builder::new()
            .name("cluster-state".into())
            .spawn(move || {
                for (token, request) in take {
                    match state.etcd() {
                        // etcd answers several at once.
                        Some(etcd) => {
                            let answered = answered.clone();
                            etcd.submit(request, move |answer| answered(token, answer));
                        }
                        None => answered(token, state.call(request)),
                    }
                }
            })
            .map_err(|error| StateError::Open(format!("no thread for the cluster state: {error}")))?;
        Ok(StateClient { requests, answers, refused: Vec::new() })
    }
}

impl BlockingState for State {
    fn call(&self, request: Request) -> Result<Answer, StateError> {
        let stays = self.stay();
        let engine = self.engine();
        if let Engine::Etcd(etcd) = engine {
            // etcd needs no protection from a move, and tells of commits by itself.
            drop(stays);
            return etcd.call(request);
        }
        let changed = changed_keys(&request);
        let answer = engine.blocking().call(request)?;
        if let Answer::Committed { revision } = answer {
            self.shared.board.changed(changed.iter().map(String::as_str), revision);
        }
        Ok(answer)
    }
}

/// The keys that a request changes if it is committed.
fn changed_keys(request: &Request) -> Vec<String> {
    let Request::Commit(Transaction { changes, .. }) = request else { return Vec::new() };
    let keys = changes.iter().map(|change| match change {
        Change::Put { key, .. } | Change::Delete { key } => key.clone(),
    });
    keys.collect()
}

/// [`State`] as a [`ClusterState`].
pub struct StateClient {
    requests: mpsc::Sender<(u64, Request)>,
    answers: mpsc::Receiver<StateCompletion>,
    /// Requests that found the thread gone.
    refused: Vec<StateCompletion>,
}

impl ClusterState for StateClient {
    fn submit(&mut self, token: u64, request: Request) {
        if self.requests.send((token, request)).is_err() {
            self.refused.push(StateCompletion { token, answer: Answer::Unknown });
        }
    }

    fn poll(&mut self, out: &mut Vec<StateCompletion>) {
        out.append(&mut self.refused);
        out.extend(self.answers.try_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Typed;
    use crate::etcd::EtcdOptions;
    use std::time::Duration;

    #[test]
    fn requests_wait_while_the_records_move_and_what_a_loop_asks_waits_for_nothing() {
        let state = State::from(MemoryState::new());
        let nowhere = EtcdOptions::new("C", vec!["http://127.0.0.1:1".into()], None);
        let etcd = EtcdState::connect(nowhere).unwrap();
        let (told, heard) = mpsc::channel();
        let committing = state.clone();
        let moved = state.move_to(&etcd, |_, _| {
            let (asking, told) = (state.clone(), told.clone());
            std::thread::spawn(move || {
                told.send(format!("{} {:?}", asking.revision(), asking.trouble())).unwrap();
            });
            let commit =
                std::thread::spawn(move || committing.commit(Transaction::default().put("a", vec![1])));
            let answered = heard.recv_timeout(Duration::from_secs(20)).expect("the loop would hang");
            assert_eq!(answered, "0 None");
            assert!(!commit.is_finished(), "a commit is taken that does not move");
            Err(StateError::Conflict)
        });
        // The move failed: the old engine does the commit.
        assert_eq!((moved, state.etcd().is_none()), (Err(StateError::Conflict), true));
        let watch = state.watch("a");
        while !matches!(state.call(Request::Get { key: "a".into() }), Ok(Answer::Value(Some(_)))) {
            watch.wait(Duration::from_millis(10));
        }
    }
}
