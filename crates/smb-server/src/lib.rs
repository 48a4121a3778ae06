//! The SMB 2 and 3 server as a state machine: messages, volumes' events and time in; messages out.
//!
//! Owns connections, sessions, tree connects, credits, signing and encryption, the wire identity of opens, asynchronous requests,
//! break and notify traffic, pipes. Promises: advertises only what is backed; a malformed or hostile client gets the NTSTATUS that
//! MS-SMB2 names or loses its connection, others notice nothing; requests of one client never wait for one another; everything a
//! client can make the server hold is bounded ([`Limits`]). Never touches a disk, a socket or a clock: files live in
//! [`volume::backend`], bytes come from and go to a transport.
//!
//! How it is used: [`Server::connection_opened`], then [`Server::handle_message`] for each message; [`Server::poll`] until it answers
//! false; [`Server::poll_transmit`] for each connection of [`Server::take_transmitters`]; [`Server::handle_timeout`] when
//! [`Server::next_timeout`] has come; [`Server::take_logon_lines`] for the audit log.

#![forbid(unsafe_code)]

mod advance;
mod arena;
mod bounded;
mod breaks;
mod budget;
mod clients;
mod config;
mod connection;
mod copy;
mod create;
mod credits;
mod directory;
mod dispatch;
mod extended_attributes;
mod file;
mod finish;
mod ioctl;
mod logon;
mod logon_audit;
mod logon_guard;
mod negotiate;
mod open;
mod pipe;
mod policy;
mod proof;
mod query_directory;
mod query_info;
mod read_write;
mod remote;
mod request;
mod send;
mod server;
mod session;
mod session_shares;
mod set_info;
mod setups;
mod share_uses;
mod statistics;
mod tree;
mod waiting;

pub use config::{Config, Limits};
pub use connection::{ConnectionId, ConnectionInfo, Outgoing, Transport};
pub use directory::{Account, Directory, Share};
pub use logon_audit::{LogonAction, LogonLine};
pub use server::{RandomSource, Server};
pub use statistics::{Caching, Counters, Gauges, OpenInfo, SessionInfo};
