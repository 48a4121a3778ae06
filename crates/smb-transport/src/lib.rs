//! Transports of SMB2 messages: TCP framing and SMB Direct endpoints, of the accepting and of the
//! connecting side.
//!
//! Owns sockets, queue pairs, the memory of unfinished messages, and the order of sending. Promises: a
//! message arrives as it was sent, or its connection ends; a slow, silent or hostile peer holds a
//! bounded share of memory and places, and delays nobody else. Never reads a message: of SMB2 it knows
//! only where the payload begins behind the longest usual headers, so that payload lies aligned.
//!
//! [`server`] accepts connections, [`client`] makes them; both ends frame messages on TCP by [`framing`].

#![forbid(unsafe_code)]

pub mod client;
pub mod framing;
pub mod server;
