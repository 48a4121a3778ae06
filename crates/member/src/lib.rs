//! This server as a part of a cluster: its identity, admission of others, and the API's requests to the
//! cluster.
//!
//! Owns `DATA/cluster`. Promises: listens only on sockets from the daemon; strangers take a bounded
//! share of connections and time, and change nothing without a token. [`admission`] decides about
//! joins, heartbeats about life.
//!
//! | file | |
//! |---|---|
//! | `admission`, `join_token` | changes of the records when a server founds, joins, drains or leaves; the token of a join |
//! | `identity` | files that name this server and its cluster |
//! | `wire` | requests and answers between servers, on the cluster's port |
//! | `control` | the API's requests: founding, joining, tokens, the view, preflight |
//! | `questions` | requests of other servers |
//! | `departure` | draining and removal |
//! | `keeping` | own maintenance: certificate, addresses of etcd, the end of draining, issues of health |
//! | `seat` | its seat among the members of etcd: taken, and replaced after a loss |
//! | `engine`, `options` | the engine of the records, redb or etcd: its start and its requests |
//! | `undoing` | undoes a founding that cannot continue |
//! | `credentials`, `tls`, `renewal`, `alone` | the server's credentials, and their renewal, with the cluster and without |
//! | `listener`, `asking` | the cluster's port, at both ends |
//! | `waiting`, `unready` | why a starting server still waits for the cluster's state; its API meanwhile |
//! | `removal` | how a running server finds out about its removal |
//! | `guesses` | limit on a host's wrong tokens |
//! | `handing_on` | requests of the API forwarded to another server |
//! | `hearing` | the state of etcd's members, within a short timeout |
//! | `own_etcd` | this server's member of etcd, polled each second: one that hangs becomes an issue |
//! | `figures` | figures of the cluster for metrics |
//! | `retreat` | stops its member of etcd when this server, whose data reach nobody, falls silent |
//! | `unserved` | the reason why this server serves no volumes without a majority |
//! | `section` | the cluster's keys in the configuration |
//! | `possessions` | objects that a joining server may not have |
//! | `applicant`, `preflight`, `view` | description of itself, checks that servers fit, view of the cluster |

#![forbid(unsafe_code)]

pub mod admission;
mod alone;
mod applicant;
mod asking;
mod control;
mod credentials;
mod departure;
mod engine;
mod failure;
mod figures;
mod guesses;
mod handing_on;
mod hearing;
pub mod identity;
mod issues;
pub mod join_token;
mod keeping;
mod listener;
mod options;
mod own_etcd;
mod possessions;
mod preflight;
mod questions;
mod removal;
mod renewal;
mod retreat;
mod seat;
pub mod section;
mod surroundings;
mod tls;
mod undoing;
mod unready;
mod unserved;
mod view;
mod waiting;
pub mod wire;

pub use crate::identity::{Identity, IdentityError};
pub use alone::open_identity;
pub use applicant::ClusterKeys;
pub use control::{ClusterControl, ClusterParts};
pub use credentials::Credentials;
pub use engine::{Engine, EngineError, EnginePlaces, FOUNDING_PATIENCE, await_answer, open_state};
pub use keeping::keep;
pub use listener::{Host, serve};
pub use options::{OtherEtcd, etcd_options, forget_seen, process_options};
pub use own_etcd::{OwnAnswer, OwnMember};
pub use renewal::renew_if_due;
pub use surroundings::{ErrandRunner, OwnServer};
pub use tls::ClusterTlsError;
pub use unready::Waiting;
pub use waiting::Waits;

#[cfg(test)]
mod tests;
