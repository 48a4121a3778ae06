//! The cluster state, changed off the data plane's thread.

use crate::error::{Done, Error};
use crate::tasks::Tasks;
use records::StateError;
use std::rc::Rc;

/// The cluster state for tasks: changes run on a helper thread, since a commit waits for a disk.
#[derive(Clone)]
pub struct State {
    records: records::State,
    tasks: Rc<Tasks>,
}

impl State {
    pub fn new(records: records::State, tasks: Rc<Tasks>) -> Self {
        Self { records, tasks }
    }

    /// Reads or changes the state.
    pub async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&records::State) -> Result<T, StateError> + Send + 'static,
    ) -> Done<T> {
        let records = self.records.clone();
        let result = self.tasks.blocking(move || change(&records)).await;
        Ok(result.ok_or_else(|| Error::io("no thread for the cluster state"))??)
    }

    /// Returns the state itself, for the start of the server, when blocking does no harm.
    pub fn at_start(&self) -> &records::State {
        &self.records
    }
}
