//! The last protocol events of a connection, for support: a ring of fixed size, which costs one small store for each event.
//!
//! Never holds payload: lengths, names and credits only.

use rdma::{CloseReason, ConnectionInfo};
use std::fmt;
use types::Monotonic;

/// Events that are kept of a connection.
pub const EVENTS_MAX: usize = 256;

/// Kinds of events. Lengths are bytes. A value owns nothing, so that a newer event overwrites it at no
/// cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// An MPA request, or one of the connection manager.
    Request {
        private_data: usize,
    },
    Established {
        inbound_read_depth: u16,
        outbound_read_depth: u16,
        crc: bool,
    },
    /// The SMB Direct negotiation.
    Negotiated {
        send_bytes_max: u32,
        receive_bytes_max: u32,
        fragmented_bytes_max: u32,
    },
    /// One RDMA Send of the peer.
    Received {
        len: u32,
    },
    /// One RDMA Send to the peer.
    Sent {
        len: u32,
        invalidated: Option<u32>,
    },
    /// A whole message of the peer, if it came in several Sends.
    Message {
        len: u32,
    },
    PostedReceives {
        count: u16,
    },
    Wrote {
        token: u32,
        offset: u64,
        len: u32,
    },
    ReadPosted {
        token: u32,
        offset: u64,
        len: u32,
    },
    ReadDone {
        len: usize,
        failed: bool,
    },
    ReadRefused {
        len: usize,
    },
    /// Nothing may be sent until the peer grants credits.
    SendCreditStall,
    /// A read waits until the peer serves fewer.
    ReadStall,
    Keepalive,
    /// The peer is kept short of credits, or that ended.
    Throttled(bool),
    /// The peer's messages would take more memory than its share: the connection ends.
    OverShare {
        len: usize,
    },
    /// A message is not ended in time, or answers are not taken: the connection ends.
    Overdue,
    Closing {
        reason: smbdirect::CloseReason,
    },
    /// For the reason that [`Trace`] keeps.
    Closed,
}

#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub at: Monotonic,
    pub send_credits: u16,
    pub receive_credits: u16,
    pub what: What,
}

/// The ring of entries of one connection.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    entries: Vec<Entry>,
    /// The place of the next entry when the ring is full.
    next: usize,
    /// All that ever were.
    count: u64,
    /// Why the connection ended.
    closed: Option<CloseReason>,
}

impl Trace {
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.count += 1;
        if self.entries.len() < EVENTS_MAX {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
            self.next = (self.next + 1) % EVENTS_MAX;
        }
    }

    /// Keeps the reason why the connection ended, for its last entry.
    pub fn close(&mut self, reason: CloseReason) {
        self.closed = Some(reason);
    }

    /// Describes an entry in words.
    pub fn tell(&self, entry: &Entry) -> String {
        match (entry.what, &self.closed) {
            (What::Closed, Some(reason)) => format!("closed: {reason}"),
            (what, _) => what.to_string(),
        }
    }

    /// Counts the events since the connection began, those forgotten among them.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Gives the kept entries, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let (newest, oldest) = self.entries.split_at(self.next);
        oldest.iter().chain(newest)
    }
}

impl What {
    pub fn established(info: &ConnectionInfo) -> Self {
        Self::Established {
            inbound_read_depth: info.inbound_read_depth,
            outbound_read_depth: info.outbound_read_depth,
            crc: info.crc,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { private_data } => write!(out, "connect request, {private_data} B private data"),
            Self::Established { inbound_read_depth, outbound_read_depth, crc } => {
                let crc = if *crc { "on" } else { "off" };
                write!(
                    out,
                    "RDMA established: IRD {inbound_read_depth}, ORD {outbound_read_depth}, CRC {crc}"
                )
            }
            Self::Negotiated { send_bytes_max, receive_bytes_max, fragmented_bytes_max } => write!(
                out,
                "SMB Direct negotiated: send {send_bytes_max} B, receive {receive_bytes_max} B, \
                 fragmented {fragmented_bytes_max} B"
            ),
            Self::Received { len } => write!(out, "received a Send of {len} B"),
            Self::Sent { len, invalidated: None } => write!(out, "sent {len} B"),
            Self::Sent { len, invalidated: Some(token) } => {
                write!(out, "sent {len} B with invalidate of {token:#010x}")
            }
            Self::Message { len } => write!(out, "message of {len} B"),
            Self::PostedReceives { count } => write!(out, "posted {count} receives"),
            Self::Wrote { token, offset, len } => {
                write!(out, "RDMA Write of {len} B to {token:#010x} at {offset:#x}")
            }
            Self::ReadPosted { token, offset, len } => {
                write!(out, "RDMA Read of {len} B from {token:#010x} at {offset:#x}")
            }
            Self::ReadDone { len, failed: false } => write!(out, "payload of {len} B was read"),
            Self::ReadDone { len, failed: true } => write!(out, "payload of {len} B could not be read"),
            Self::ReadRefused { len } => {
                write!(out, "payload of {len} B is not read: no room or no descriptor")
            }
            Self::SendCreditStall => write!(out, "waits for a send credit"),
            Self::ReadStall => write!(out, "waits for an RDMA Read to end"),
            Self::Keepalive => write!(out, "asks for a sign of life"),
            Self::Throttled(true) => write!(out, "keeps the peer short of credits: too much in work"),
            Self::Throttled(false) => write!(out, "gives credits again"),
            Self::OverShare { len } => {
                write!(
                    out,
                    "ends: messages that are not whole, or wait, would take {len} bytes, more than its share"
                )
            }
            Self::Overdue => {
                write!(out, "ends: a message is not ended, or answers are not taken, for too long")
            }
            Self::Closing { reason } => write!(out, "closes: {reason}"),
            Self::Closed => write!(out, "closed"),
        }
    }
}
