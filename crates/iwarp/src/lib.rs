//! iWARP: MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040, 7306) as one sans-IO state machine.
//!
//! Owns the protocol of one RDMA stream over one TCP connection. Promises: every segment is checked for access, bounds and
//! wrap-around before a byte is placed; inbound reads never exceed the advertised depth; wire-compatible with Linux siw and
//! hardware RNICs. Never owns a socket, a clock or a random source.
//!
//! [`Connection`] takes bytes and posted work in, and gives bytes, completions and events out. [`Memory`] holds the registered
//! regions of one protection domain space and is lent to each call.
//!
//! ```text
//!   bytes from TCP ─► handle_input ─► mpa ─► framing ─► ddp ─► memory (placement) / receives ─► poll_event
//!   post_send/write/read ─► send queue ─┐
//!   inbound reads ─► response queue ────┴► poll_transmit ─► bytes to TCP
//! ```

#![forbid(unsafe_code)]

pub mod connection;
pub mod crc;
pub mod ddp;
pub mod framing;
pub mod markers;
pub mod memory;
pub mod mpa;
pub mod terminate;

pub use connection::{
    Completion, CompletionKind, Config, Connection, CrcPolicy, Event, Invalidate, LargeFpdus, PostError,
    Role, SendFlags, WorkId, WorkStatus,
};
pub use memory::{Access, DomainId, Memory, MemoryError, Region, Stag, StreamId};
pub use terminate::TerminateCode;
