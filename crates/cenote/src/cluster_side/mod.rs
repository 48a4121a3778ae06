//! This server as a part of a cluster: who it is there, who may join, and what the API asks of the cluster.
//!
//! Owns `DATA/cluster`. Promises: nothing listens unless `cluster.listen` names an address; strangers take a bounded share of connections
//! and time, and change nothing without a token. Who is let in is decided in `cluster::admission`.

mod applicant;
mod asking;
mod control;
mod engine;
mod failure;
mod following;
mod listener;
mod liveness;
mod preflight;
mod renewal;
mod tls;
mod view;

pub use applicant::ClusterKeys;
pub use cluster::identity::{Identity, IdentityError};
pub use control::{ClusterControl, ClusterParts};
pub use engine::{
    Engine, EngineError, FOUNDING_PATIENCE, await_answer, etcd_options, forget_seen, open_state,
    process_options,
};
pub use following::{follow_accounts, follow_revocations};
pub use listener::serve;
pub use liveness::{Liveness, LivenessError, LivenessParts, Shared};
pub use renewal::renew_if_due;
pub use tls::{ClusterTlsError, listening};

#[cfg(test)]
mod tests;
