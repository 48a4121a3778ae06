//! The storage bus (D5): every node of a cluster reaches the disks of the others by SMB3, over TCP or SMB Direct.
//!
//! Disks are opened on the hidden share `bus$` of the same SMB server that serves clients. [`Exports`] is the share's backend: it turns
//! SMB2 requests into requests for local replicas. [`Remote`] is the other end: a [`space::message::Transport`] to disks of other
//! nodes, on the data plane's loop. [`wire`] has the form of each operation on the wire.
//!
//! Access: nodes by their certificates ([`NodeAccounts`]), which open nothing but this share. Both ends
//! demand that messages are signed, and
//! encrypted if that is set.
//!
//! Promises: a change is carried out at most once, and only within the session that it was asked in.
//! Every request is answered in bounded time, with [`space::message::BusError::Unreachable`] at once
//! when the last connection is lost. Payload is not copied between socket and replica beyond
//! encryption. Messages of a peer are checked before any use. Never knows what blocks mean, and never
//! decides who owns a volume: epochs and the disks' promises do (I3).

#![forbid(unsafe_code)]

mod accounts;
mod exports;
mod remote;
mod served;
pub mod wire;

pub use accounts::{NodeAccounts, WithNodes, account_name, is_account_name};
pub use exports::{Exports, LocalDisks};
pub use remote::{
    BusEvent, ChannelStatus, Peer, PeerCounters, PeerState, PeerStatus, Port, QueueStatus, Remote,
    RemoteOptions, Windows, at_each,
};
pub use served::Served;

/// The name of the hidden share.
pub const SHARE: &str = "bus$";
/// Stands for the bus among the volumes of an SMB server.
pub const VOLUME: types::VolumeId = types::VolumeId::from_bytes(*b"cenote storage b");
