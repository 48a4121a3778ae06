//! The engine that keeps the records, as [`State`](crate::State) uses it.

use crate::{Answer, BlockingState, Board, Request, StateDump, StateError, StateTrouble};
use std::any::Any;
use std::sync::Arc;

/// An engine: it answers requests, and tells of itself.
pub trait EngineState: BlockingState + Any + Send + Sync {
    /// The last revision that this process knows of; asks nobody, and waits for nothing.
    fn revision(&self) -> u64;

    /// Why the engine does not answer, while it does not; asks nobody, and waits for nothing.
    fn trouble(&self) -> Option<StateTrouble>;

    /// Everything as of one moment.
    ///
    /// # Errors
    /// [`StateError::Unknown`].
    fn dump(&self) -> Result<StateDump, StateError>;

    /// The engine as one that other processes commit to as well; `None` if it is this process's own.
    fn shared(&self) -> Option<&dyn SharedEngine> {
        None
    }
}

/// An engine that several processes share. Records never move away from it, so that its requests wait for no move.
pub trait SharedEngine {
    /// Tells `board` of all commits from now on, whichever process makes them.
    fn tell(&self, board: Arc<Board>);

    /// Begins a request; `answered` is called on a thread of the engine and must not block. Several requests are in work at once.
    fn submit(&self, request: Request, answered: Box<dyn FnOnce(Result<Answer, StateError>) + Send>);
}
