//! The SMB 2 and 3 server as a state machine: messages, volumes' events and time in; messages out.
//!
//! Owns connections, sessions, tree connects, credits, signing and encryption, the wire identity of
//! opens, asynchronous requests, break and notify traffic, pipes. Promises: offers only implemented
//! features; a malformed or hostile client gets the NTSTATUS that MS-SMB2 names or loses its
//! connection, without effect on others; requests of one client never wait for one another; all
//! resources that a client can take are bounded ([`Limits`]). Never touches a disk, a socket or a
//! clock: files live in [`volume::backend`], bytes come from and go to a transport.
//!
//! The modules, each of which uses only those above it:
//!
//! - `state/`: what clients make the server hold, in parts that own their state: connections, sessions,
//!   opens, leases, volumes, budgets.
//! - `exchange.rs`: a request and its next step, as commands see them. `pipes.rs` and `remote.rs`: named pipes, and payload by RDMA.
//! - `commands/`: a file for each command of SMB2, which knows no other; FSCTLs are rows of a table in `commands/ioctl/file.rs`.
//! - `request/`: from a message to its requests, onward, and from answers to messages; breaks of oplocks and leases.
//! - `server.rs`: the calls of the server's owner.
//!
//! How it is used: [`Server::connection_opened`], then [`Server::handle_message`] for each message; [`Server::poll`] until it answers
//! false; [`Server::poll_transmit`] for each connection of [`Server::take_transmitters`]; [`Server::handle_timeout`] when
//! [`Server::next_timeout`] has come; [`Server::take_logon_lines`] for the audit log.

#![forbid(unsafe_code)]

mod commands;
mod config;
mod directory;
mod exchange;
mod extended_attributes;
mod lists;
mod logon;
mod pipes;
mod quotas;
mod remote;
mod request;
mod server;
mod state;
mod view;

pub use config::{Config, Limits};
pub use directory::{Account, Directory, NodeAccount, Share};
pub use lists::{Caching, Gauges, OpenInfo, SessionInfo};
pub use logon::audit::{LogonAction, LogonLine};
pub use server::Server;
pub use state::RandomSource;
pub use state::client_figures::ClientFigures;
pub use state::connections::{ConnectionId, ConnectionInfo, Outgoing, Transport};
pub use state::counters::{Counters, RequestKind};
pub use state::pipe::PipeChange;
pub use state::share_figures::ShareFigures;
