//! This server as a part of a cluster: who it is there, who may join, and what the API asks of the cluster.
//!
//! Owns `DATA/cluster`. Promises: nothing listens unless the daemon hands a socket over; strangers take a bounded share of connections
//! and time, and change nothing without a token. Who is let in is decided in `cluster::admission`, who lives by heartbeats.
//!
//! | file | |
//! |---|---|
//! | `control` | what the API asks: founding, joining, tokens, the view, preflight |
//! | `questions` | what other servers ask |
//! | `departure` | draining and removal |
//! | `keeping` | what a server sees to by itself: certificate, addresses of etcd, the end of draining, issues of health |
//! | `seat` | its seat among the members of etcd: taken, and made anew when its member was lost |
//! | `engine`, `options` | what keeps the records: redb or etcd, and how that is started and asked |
//! | `undoing` | a founding that cannot go on is taken back |
//! | `credentials`, `tls`, `renewal`, `alone` | who it proves to be, and how that is renewed, with the cluster and without |
//! | `listener`, `asking` | the cluster's port, at both ends |
//! | `waiting` | why a server that starts still waits for the cluster's state |
//! | `guesses` | how often a host may show tokens that are none |
//! | `handing_on` | requests of the API that another server carries out |
//! | `hearing` | how etcd's members are, without waiting for long |
//! | `own_etcd` | this server's member of etcd, asked each second: one that hangs is told of |
//! | `figures` | what metrics tell of the cluster |
//! | `retreat` | its member of etcd makes way when this server, whose data reach nobody, falls silent |
//! | `unserved` | what is told when most of the others are not heard |
//! | `section` | the configuration's keys of it |
//! | `possessions` | what a server may not have of its own when it joins |
//! | `applicant`, `preflight`, `view` | what it says of itself, what fits together, what is shown |

#![forbid(unsafe_code)]

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
mod issues;
mod keeping;
mod listener;
mod options;
mod own_etcd;
mod possessions;
mod preflight;
mod questions;
mod renewal;
mod retreat;
mod seat;
pub mod section;
mod surroundings;
mod tls;
mod undoing;
mod unserved;
mod view;
mod waiting;

pub use alone::open_identity;
pub use applicant::ClusterKeys;
pub use cluster::identity::{Identity, IdentityError};
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
pub use waiting::{Waits, look as look_what_is_waited_for};

#[cfg(test)]
mod tests;
