//! The state as the daemon holds it: one handle for any engine.
//!
//! Owns [`State`], the calls common to all engines, and the move from one engine to another while the
//! daemon runs. Promises: a request is answered by one engine, and none is lost or answered twice over
//! a move; watches hear of commits of this process (and, with etcd, of every process).

use crate::{
    Answer, BlockingState, Board, Change, ClusterState, EngineState, MemoryState, RedbState, Request,
    StateCompletion, StateDump, StateError, StateTrouble, Transaction, Watch,
};
use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, mpsc};

struct Shared {
    /// Held for reading while a request is in work, for writing while the records move to another engine.
    at_work: RwLock<()>,
    /// Held for a moment only: a caller that asks for the present engine never waits for a move.
    engine: RwLock<Arc<dyn EngineState>>,
    board: Arc<Board>,
}

/// The cluster's state. Cloning shares it; any thread may use it.
#[derive(Clone)]
pub struct State {
    shared: Arc<Shared>,
}

impl From<MemoryState> for State {
    fn from(memory: MemoryState) -> Self {
        Self::new(memory)
    }
}

impl From<RedbState> for State {
    fn from(redb: RedbState) -> Self {
        Self::new(redb)
    }
}

impl State {
    pub fn new(engine: impl EngineState) -> Self {
        let board = Arc::new(Board::default());
        if let Some(shared) = engine.shared() {
            shared.tell(board.clone());
        }
        let engine = RwLock::new(Arc::new(engine) as Arc<dyn EngineState>);
        Self { shared: Arc::new(Shared { at_work: RwLock::default(), engine, board }) }
    }

    /// Opens or creates the state of a single server: redb in a file.
    ///
    /// # Errors
    /// As [`RedbState::open`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        RedbState::open(path).map(Self::from)
    }

    fn engine(&self) -> Arc<dyn EngineState> {
        self.shared.engine.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until no move is under way; none begins as long as the answer is held.
    fn stay(&self) -> RwLockReadGuard<'_, ()> {
        self.shared.at_work.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last revision that this process knows of; asks nobody, and waits for nothing.
    pub fn revision(&self) -> u64 {
        self.engine().revision()
    }

    /// Why the state does not answer, while it does not; asks nobody, and waits for nothing.
    pub fn trouble(&self) -> Option<StateTrouble> {
        self.engine().trouble()
    }

    /// Acts as if the file of a single server's state failed now; for tests of the layers above.
    pub fn fail(&self, why: &str) {
        if let Some(redb) = self.engine_as::<RedbState>() {
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

    /// The engine, if it is an `E`.
    pub fn engine_as<E: EngineState + Clone>(&self) -> Option<E> {
        let engine: Arc<dyn Any + Send + Sync> = self.engine();
        engine.downcast_ref::<E>().cloned()
    }

    /// Moves to another engine, if `prepare` succeeds: it finds the engine that there is without work, and none begins until it returns.
    ///
    /// # Errors
    /// Those of `prepare`, or the present engine's: then the records have not moved.
    pub fn move_to<E>(
        &self,
        engine: impl EngineState,
        prepare: impl FnOnce(&dyn BlockingState, StateDump) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<StateError>,
    {
        let alone = self.shared.at_work.write().unwrap_or_else(PoisonError::into_inner);
        let old = self.engine();
        prepare(&*old, old.dump()?)?;
        if let Some(shared) = engine.shared() {
            shared.tell(self.shared.board.clone());
        }
        *self.shared.engine.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(engine);
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
                    match state.engine().shared() {
                        Some(shared) => {
                            let answered = answered.clone();
                            shared.submit(request, Box::new(move |answer| answered(token, answer)));
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
        if engine.shared().is_some() {
            // Records never move away from it, and it tells of commits by itself.
            drop(stays);
            return engine.call(request);
        }
        let changed = changed_keys(&request);
        let answer = engine.call(request)?;
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
    use std::time::Duration;

    #[test]
    fn requests_wait_while_the_records_move_and_what_a_loop_asks_waits_for_nothing() {
        let (memory, elsewhere) = (MemoryState::new(), MemoryState::new());
        let state = State::from(memory.clone());
        let (told, heard) = mpsc::channel();
        let committing = state.clone();
        let moved = state.move_to(elsewhere.clone(), |_, _| {
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
        assert_eq!(moved, Err(StateError::Conflict));
        let watch = state.watch("a");
        while !matches!(memory.call(Request::Get { key: "a".into() }), Ok(Answer::Value(Some(_)))) {
            watch.wait(Duration::from_millis(10));
        }
        assert_eq!(elsewhere.revision(), 0);
    }
}
