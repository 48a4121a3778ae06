//! Settings that each end brings to the negotiation, and its result.

use crate::memory::{DomainId, StreamId};
use crate::mpa::Extension;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrcPolicy {
    /// CRC is used. The default of RFC 5044 section 4.4.
    On,
    /// CRC is used only if the peer wants it: for loopback and an own cluster.
    OffUnlessAsked,
}

/// Whether FPDUs may be longer than a TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeFpdus {
    Never,
    /// To peers that behave as software does: those that send our extension, and those that ask for neither CRC nor the
    /// peer-to-peer model, which is siw. Hardware asks for both and may be slow with, or refuse, what exceeds a segment.
    ToSoftware,
    Always,
}

/// How a buffer for a message is best allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Length of the message, as far as its first bytes say; it may be longer after all.
    pub len_bytes: usize,
    /// Which byte of it begins a page, if it is long: the payload behind the headers, best.
    pub aligned_at: usize,
}

/// By the first bytes of a message that have come, few or many.
pub type ShapeOf = fn(&[u8]) -> Option<Shape>;

/// Settings that one end brings to the negotiation.
#[derive(Debug, Clone)]
pub struct Config {
    pub crc: CrcPolicy,
    /// Inbound reads served at a time; at most 16383.
    pub inbound_read_depth: u16,
    /// Reads that may be outstanding; at most 16383.
    pub outbound_read_depth: u16,
    /// Effective maximum segment size of the TCP connection in bytes.
    pub segment_bytes: usize,
    pub large_fpdus: LargeFpdus,
    /// MPA revision to begin with: 2, or 1 after a peer closed on 2.
    pub revision: u8,
    /// Offered as initiator; as responder, the answer to an offered one.
    pub extension: Option<Extension>,
    /// As initiator of an SMB Direct connection: put the read depths into private data too (MS-SMBD section 6.1).
    pub legacy_depths: bool,
    /// As initiator: how long the first FPDU is held back after the reply. siw of Linux 6.1 sends its reply before it can receive, and
    /// never looks again at an FPDU that came too soon; 20 ms are enough even for an emulated one.
    pub first_send_delay: Duration,
    /// With a CRC, bytes that [`Connection::poll_transmit`] gives at a time, about, if it had to read them
    /// for it: they are still in the processor's cache when they are sent then.
    pub summed_bytes_max: usize,
    /// With a CRC, bytes planned to be received in place at a time, about: they are still in the
    /// processor's cache when they are checked.
    pub planned_summed_bytes_max: usize,
    /// Returns, from a message's first bytes, how its buffer is best allocated as it comes.
    pub receive_shape: Option<ShapeOf>,
    /// Whether Sends and Writes that succeeded one after the other share one completion: the last one's,
    /// with the bytes of all.
    pub tells_sent_together: bool,
    /// A payload is received straight into its place only if at least this many bytes of its message are
    /// still to come.
    pub planned_bytes_min: usize,
    pub domain: DomainId,
    pub stream: StreamId,
}

impl Config {
    pub fn new(domain: DomainId, stream: StreamId) -> Self {
        Self {
            crc: CrcPolicy::On,
            inbound_read_depth: 32,
            outbound_read_depth: 32,
            segment_bytes: 1460,
            large_fpdus: LargeFpdus::ToSoftware,
            revision: 2,
            extension: None,
            legacy_depths: false,
            first_send_delay: Duration::ZERO,
            summed_bytes_max: usize::MAX,
            planned_summed_bytes_max: usize::MAX,
            receive_shape: None,
            tells_sent_together: false,
            planned_bytes_min: 0,
            domain,
            stream,
        }
    }
}

/// Settings that the two ends have agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreed {
    pub crc: bool,
    /// The peer asked for markers in the stream that it receives.
    pub markers: bool,
    pub revision: u8,
    pub inbound_read_depth: u16,
    pub outbound_read_depth: u16,
    pub ulpdu_bytes_max: usize,
    pub atomics_and_immediate: bool,
    pub flush: bool,
}
