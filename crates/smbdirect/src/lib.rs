//! MS-SMBD: SMB messages over RDMA Sends, as a sans-IO state machine.
//!
//! Owns negotiation, fragmentation and reassembly, credits in both directions, keepalive. Promises: credits never deadlock
//! ([`credits`] has the argument). Knows of SMB2 only how long its headers are, so that payload lands aligned; knows no verbs and
//! no socket.

#![forbid(unsafe_code)]

pub mod connection;
pub mod credits;
pub mod descriptor;
mod reassembly;
pub mod shape;
pub mod wire;

pub use connection::{CloseReason, Config, Connection, Counters, Event, Outgoing, Role, SendError};
pub use descriptor::{BufferDescriptor, DescriptorError, ReadBudget, parse_descriptors};
pub use shape::{READ_PAYLOAD_AT, TransferShape, WRITE_PAYLOAD_AT, transfer_shape};
