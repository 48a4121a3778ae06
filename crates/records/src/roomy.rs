//! The state for commands that change accounts and shares: records that the pools' disks could not
//! carry are refused.
//!
//! Every disk of a pool carries the accounts and shares, beside the pool's own records, for an import
//! ([`crate::image`]). Records without space there are left out, and an import would lose them without
//! a word. Promises: a commit that makes the records longer than a pool's disks can carry changes
//! nothing.

use crate::image::pool_without_room;
use crate::{Answer, BlockingState, Request, State, StateError};

/// See the module.
pub struct RoomyState {
    state: State,
    /// For the records on each disk.
    bytes_max: usize,
}

impl RoomyState {
    pub fn new(state: State, bytes_max: usize) -> Self {
        Self { state, bytes_max }
    }
}

impl BlockingState for RoomyState {
    fn call(&self, request: Request) -> Result<Answer, StateError> {
        if let Request::Commit(transaction) = &request
            && let Some(pool) = pool_without_room(&self.state.dump()?, transaction, self.bytes_max)
        {
            return Err(StateError::NoRoom(pool));
        }
        self.state.call(request)
    }
}
