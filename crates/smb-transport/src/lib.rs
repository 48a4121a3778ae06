//! How SMB2 messages travel: TCP framing and SMB Direct endpoints, of the accepting and of the connecting side.
//!
//! Owns sockets, queue pairs, the memory of messages that have not come whole, and the order in which
//! messages leave. Promises: a message comes out as it went in, or its connection ends; a peer that is
//! slow, silent or hostile holds a bounded share of memory and places, and delays nobody else. Never
//! reads a message: of SMB2 it knows only where the payload begins behind the longest usual headers, so
//! that payload lies aligned.
//!
//! [`server`] accepts connections, [`client`] makes them; both ends frame messages on TCP by [`framing`].

#![forbid(unsafe_code)]

pub mod client;
pub mod framing;
pub mod server;
