//! The cluster state, changed off the data plane's thread.

use crate::error::{Done, Error};
use crate::tasks::Tasks;
use cluster::{RedbState, StateError};
use std::rc::Rc;

/// The cluster state as tasks change it: on a helper thread, since a commit waits for a disk.
#[derive(Clone)]
pub struct State {
    redb: RedbState,
    tasks: Rc<Tasks>,
}

impl State {
    pub fn new(redb: RedbState, tasks: Rc<Tasks>) -> Self {
        Self { redb, tasks }
    }

    /// Reads or changes the state.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&RedbState) -> Result<T, StateError> + Send + 'static,
    ) -> Done<T> {
        let redb = self.redb.clone();
        let result = self.tasks.blocking(move || change(&redb)).await;
        Ok(result.ok_or_else(|| Error::io("no thread for the cluster state"))??)
    }

    /// The state itself, for the start of the server, when blocking harms nobody.
    pub fn at_start(&self) -> &RedbState {
        &self.redb
    }
}
