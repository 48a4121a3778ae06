//! Ties the data plane and the control plane to the cluster: heartbeats, and other servers' changes.
//! The rest of a server's part in a cluster is in the crate `member`.

mod following;
mod liveness;
mod own_server;

pub use following::follow_accounts;
pub use liveness::{Liveness, LivenessError, LivenessParts, Shared};
pub use own_server::{DaemonServer, ServerParts, cluster_options};
