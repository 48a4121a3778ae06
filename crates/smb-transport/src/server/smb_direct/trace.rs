//! The last protocol events of a connection, for support: a ring of fixed size, at the cost of one
//! small store for each event.
//!
//! Never holds payload: lengths, names and credits only.

use rdma::{CloseReason, ConnectionInfo};
use std::fmt;
use types::Monotonic;

/// Number of events kept of a connection.
pub const EVENTS_MAX: usize = 256;

/// Kinds of events. Lengths are bytes. A value owns nothing, so that a newer event overwrites it at no
/// cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// An MPA request, or one of the connection manager.
    Request {
        /// Bytes of the request's private data.
        private_data: usize,
    },
    /// Connection of RDMA was accepted and is up.
    Established {
        /// RDMA Reads of the peer that are served at a time.
        inbound_read_depth: u16,
        /// RDMA Reads that may be outstanding.
        outbound_read_depth: u16,
        /// Whether FPDUs carry a CRC, in iWARP in software.
        crc: bool,
    },
    /// The SMB Direct negotiation.
    Negotiated {
        /// Most bytes of a transfer to the peer.
        send_bytes_max: u32,
        /// Most bytes of a transfer from the peer.
        receive_bytes_max: u32,
        /// Longest message to the peer.
        fragmented_bytes_max: u32,
    },
    /// One RDMA Send of the peer.
    Received {
        /// Bytes of the Send.
        len: u32,
    },
    /// One RDMA Send to the peer.
    Sent {
        /// Bytes of the Send.
        len: u32,
        /// Registration of the peer that the Send ends.
        invalidated: Option<u32>,
    },
    /// A whole message of the peer, if it came in several Sends.
    Message {
        /// Bytes of the message.
        len: u32,
    },
    /// Receives were posted for the peer.
    PostedReceives {
        /// Number of receives.
        count: u16,
    },
    /// One RDMA Write into the peer's memory.
    Wrote {
        /// Token of the peer's registration.
        token: u32,
        /// Address in the registration.
        offset: u64,
        /// Bytes written.
        len: u32,
    },
    /// One RDMA Read of the peer's memory was posted.
    ReadPosted {
        /// Token of the peer's registration.
        token: u32,
        /// Address in the registration.
        offset: u64,
        /// Bytes to read.
        len: u32,
    },
    /// All reads of a payload have ended.
    ReadDone {
        /// Bytes of the payload.
        len: usize,
        /// Whether a read failed.
        failed: bool,
    },
    /// A payload is not read, for want of memory, descriptors or read depth.
    ReadRefused {
        /// Bytes of the payload.
        len: usize,
    },
    /// Nothing may be sent until the peer grants credits.
    SendCreditStall,
    /// A read waits until the peer serves fewer.
    ReadStall,
    /// A keepalive was requested of the peer.
    Keepalive,
    /// Throttling of the peer's credits began or ended.
    Throttled(bool),
    /// The peer's messages would take more memory than its share: the connection ends.
    OverShare {
        /// Bytes that the messages would take.
        len: usize,
    },
    /// A message is not ended in time, or answers are not taken: the connection ends.
    Overdue,
    /// The state machine of SMB Direct ends the connection.
    Closing {
        /// Reason of the end.
        reason: smbdirect::CloseReason,
    },
    /// For the reason that [`Trace`] keeps.
    Closed,
}

/// One event of a trace, and the credits then.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Time of the event.
    pub at: Monotonic,
    /// Transfers that this end could send.
    pub send_credits: u16,
    /// Receives that the peer knew of and had not used.
    pub receive_credits: u16,
    /// Kind of the event.
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
    /// Adds an entry, over the oldest one if the ring is full.
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
    /// Makes the event of a connection that is up.
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
