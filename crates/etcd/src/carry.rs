//! The records move from a single server's engine to a cluster's etcd, while the server runs.
//!
//! Promises: etcd has every record as of one revision, read back and compared, before anything is asked of it; nothing is committed
//! to the old engine from that revision on. If the server dies on the way, [`Moved`] in the old engine and
//! [`EtcdState::is_formed`] together say which of the two has the state.

use crate::{EtcdState, FormError};
use records::{BlockingState, Record, Request, State, StateDump, StateError, Transaction};
use serde::{Deserialize, Serialize};

/// Written into the old engine before the records move: from then on etcd has the state if it has the cluster, else the old engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The cluster's name.
    pub cluster: String,
}

impl Record for Moved {
    const PREFIX: &'static str = "moved/";
    fn id(&self) -> String {
        Self::ID.into()
    }
}

impl Moved {
    /// There is one such record.
    pub const ID: &'static str = "state";
}

/// Why the records did not move. The server continues with its old engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CarryError {
    #[error("the state is in etcd already")]
    Done,
    #[error("etcd has a cluster of this name already: '{0}'")]
    Exists(String),
    /// The handle uses etcd from now on, which does not answer. Starting the server anew finds out which engine has the state.
    #[error(
        "etcd did not say whether the cluster state moved; start the server again when etcd answers: {0}"
    )]
    Undecided(StateError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// Moves the state to `to`, which must not have the cluster yet, and makes the handle use it. Requests wait meanwhile. Returns the
/// number of records.
///
/// # Errors
/// [`CarryError`].
pub fn carry(state: &State, to: &EtcdState) -> Result<usize, CarryError> {
    if EtcdState::of(state).is_some() {
        return Err(CarryError::Done);
    }
    let cluster = to.cluster();
    let mut count = 0;
    let mut undecided = None;
    state.move_to(to.clone(), |old, dump| {
        note_move(old, &cluster)?;
        let marker = Moved { cluster: cluster.clone() }.key();
        let entries: Vec<_> = dump.entries.into_iter().filter(|(key, _)| *key != marker).collect();
        count = entries.len();
        match to.form(StateDump { revision: dump.revision + 1, entries }) {
            Ok(()) => Ok(()),
            Err(FormError::Exists) => Err(CarryError::Exists(cluster.clone())),
            Err(FormError::Failed(error)) => Err(CarryError::State(error)),
            // Neither engine may take a commit until it is known, and etcd answers nothing until it has the cluster.
            Err(FormError::Undecided(error)) => {
                undecided = Some(error);
                Ok(())
            }
        }
    })?;
    if let Some(error) = undecided {
        return Err(CarryError::Undecided(error));
    }
    tracing::info!(cluster, records = count, "the cluster state is in etcd");
    Ok(count)
}

fn note_move(old: &dyn BlockingState, cluster: &str) -> Result<(), StateError> {
    let marker = Moved { cluster: cluster.to_owned() };
    let note = Transaction::default().put(marker.key(), marker.encode());
    old.call(Request::Commit(note)).map(|_| ())
}
