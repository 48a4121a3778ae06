//! What keeps the records: redb on a single server, etcd in a cluster, and the members of etcd.

use api::cluster::StateEngine;
use cluster::{NodeRecord, State};

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

/// A single server's own state.
pub struct SingleServer {
    pub state: State,
    pub program: std::path::PathBuf,
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
        Err("no etcd".into())
    }

    fn add_member(&self, _: &NodeRecord) -> Result<Vec<(String, String)>, String> {
        Err("this server is in no cluster".into())
    }

    fn remove_member(&self, _: &NodeRecord) -> Result<(), String> {
        Err("this server is in no cluster".into())
    }
}
