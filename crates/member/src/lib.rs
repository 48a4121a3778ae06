//! This server as a part of a cluster: its identity, admission of others, and the API's requests to the
//! cluster.
//!
//! Owns `DATA/cluster`. Promises: nothing listens unless the daemon hands a socket over; strangers take a bounded share of connections
//! and time, and change nothing without a token. [`admission`] decides about joins, heartbeats
//! about life.
//!
//! | file | |
//! |---|---|
//! | `admission`, `join_token` | changes of the records when a server founds, joins, drains or leaves; the token of a join |
//! | `identity` | files that name this server and its cluster |
//! | `wire` | questions and answers between servers, on the cluster's port |
//! | `control` | the API's requests: founding, joining, tokens, the view, preflight |
//! | `questions` | questions of other servers |
//! | `departure` | draining and removal |
//! | `keeping` | own upkeep: certificate, addresses of etcd, the end of draining, issues of health |
//! | `seat` | its seat among the members of etcd: taken, and made anew when its member was lost |
//! | `engine`, `options` | the engine of the records, redb or etcd: how it is started and asked |
//! | `undoing` | a founding that cannot go on is taken back |
//! | `credentials`, `tls`, `renewal`, `alone` | the server's credentials, and their renewal, with the cluster and without |
//! | `listener`, `asking` | the cluster's port, at both ends |
//! | `waiting`, `unready` | why a server that starts still waits for the cluster's state; its API meanwhile |
//! | `removal` | how a server that runs learns that it was removed |
//! | `guesses` | how often a host may show tokens that are none |
//! | `handing_on` | requests of the API that another server carries out |
//! | `hearing` | the state of etcd's members, without waiting for long |
//! | `own_etcd` | this server's member of etcd, asked each second: one that hangs becomes an issue |
//! | `figures` | figures of the cluster for metrics |
//! | `retreat` | its member of etcd makes way when this server, whose data reach nobody, falls silent |
//! | `unserved` | the reason why this server serves no volumes if it does not hear most of the others |
//! | `section` | the configuration's keys of it |
//! | `possessions` | things that a joining server may not have |
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
