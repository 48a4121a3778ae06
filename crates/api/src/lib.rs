//! The management API: REST with an OpenAPI document, Prometheus metrics, and the trait that the daemon
//! implements.
//!
//! Promises: the CLI uses nothing else. Never touches the data path.

#![forbid(unsafe_code)]

mod access;
pub mod activity;
mod asking;
pub mod audit;
mod caller;
mod carrying;
mod changes;
pub mod cluster;
mod confirming;
mod demands;
mod document;
mod errands;
pub mod fleet;
pub mod health_watch;
pub mod https;
pub mod latency;
mod leaving;
mod lists;
pub mod mail;
pub mod management;
mod merging;
mod metrics;
pub mod model;
mod pacing;
mod paths;
mod peer;
pub mod pem;
pub mod planned;
pub mod printed;
pub mod rdma;
mod rebalancing;
mod refusals;
pub mod requests;
mod revocable;
mod routes;
mod seats;
pub mod seconds;
pub mod sections;
mod server;
mod sockets;
pub mod tls;
mod token;

/// The file of the server's data directory that has the API's token.
pub const TOKEN_FILE: &str = "api.token";
/// File with the API's address while the server runs, for the command line.
pub const ADDRESS_FILE: &str = "api.address";
/// The file that the server has locked while it runs.
pub const LOCK_FILE: &str = "lock";

pub use access::Pages;
pub use caller::{Caller, Role};
pub use carrying::Errands;
pub use confirming::{Freshness, Reading, UNCONFIRMED, confirm};
pub use lists::{MORE, UNANSWERED, Whole, whole};
pub use management::{
    Answer, ApiError, ClusterManagement, ErrorKind, Management, RebalanceJob, RebalanceStep, Subject,
};
pub use merging::owner_names;
pub use paths::percent_encoded;
pub use peer::Peer;
pub use records::regular;
pub use seats::{CONNECTIONS_MAX, Seat, Seats};
pub use server::{openapi, serve, serve_tls};
pub use sockets::{SocketError, asynchronous};
pub use token::Token;
pub use types::is_unseen;
