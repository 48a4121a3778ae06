//! DDP and RDMAP headers (RFC 5041 section 4, RFC 5040 section 4, RFC 7306 sections 5 and 6) and the table of opcodes.

use crate::TerminateCode;
use crate::memory::Stag;

/// Bytes of a tagged segment's header, control bytes included.
pub const TAGGED_HEADER_BYTES: usize = 14;
/// Bytes of an untagged segment's header, control bytes included.
pub const UNTAGGED_HEADER_BYTES: usize = 18;
/// Bytes of the RDMA Read Request that follows its DDP header.
pub const READ_REQUEST_BYTES: usize = 28;
/// Bytes of the Atomic Request that follows its DDP header (RFC 7306 section 5.2.1).
pub const ATOMIC_REQUEST_BYTES: usize = 52;
/// Bytes of the Atomic Response that follows its DDP header.
pub const ATOMIC_RESPONSE_BYTES: usize = 12;

/// Untagged queues.
pub const QUEUE_SEND: u32 = 0;
pub const QUEUE_READ_REQUEST: u32 = 1;
pub const QUEUE_TERMINATE: u32 = 2;
pub const QUEUE_ATOMIC_RESPONSE: u32 = 3;

const DDP_TAGGED: u8 = 0x80;
const DDP_LAST: u8 = 0x40;
const DDP_VERSION: u8 = 0x01;
const RDMAP_VERSION: u8 = 0x40;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $tagged:literal, $queue:expr;)*) => {
        /// RDMAP opcodes. 0xC to 0xE are unassigned; 0xF is reserved for experiments (RFC 6580 section 3.4) and carries
        /// the flush operation between ends that negotiated it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $value,)* }

        impl Opcode {
            pub const fn from_bits(bits: u8) -> Option<Self> {
                match bits { $($value => Some(Self::$name),)* _ => None }
            }
            /// Carried in tagged segments.
            pub const fn is_tagged(self) -> bool {
                match self { $(Self::$name => $tagged,)* }
            }
            /// The untagged queue that its messages use.
            pub const fn queue(self) -> u32 {
                match self { $(Self::$name => $queue,)* }
            }
        }
    };
}

opcodes! {
    Write = 0x0, true, 0;
    ReadRequest = 0x1, false, QUEUE_READ_REQUEST;
    ReadResponse = 0x2, true, 0;
    Send = 0x3, false, QUEUE_SEND;
    SendInvalidate = 0x4, false, QUEUE_SEND;
    SendSolicited = 0x5, false, QUEUE_SEND;
    SendSolicitedInvalidate = 0x6, false, QUEUE_SEND;
    Terminate = 0x7, false, QUEUE_TERMINATE;
    Immediate = 0x8, false, QUEUE_SEND;
    ImmediateSolicited = 0x9, false, QUEUE_SEND;
    AtomicRequest = 0xA, false, QUEUE_READ_REQUEST;
    AtomicResponse = 0xB, false, QUEUE_ATOMIC_RESPONSE;
    Flush = 0xF, false, QUEUE_READ_REQUEST;
}

impl Opcode {
    /// Of the four that fill a posted receive.
    pub const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendSolicited) || self.invalidates()
    }
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate | Self::ImmediateSolicited)
    }
}

/// Whether a segment is tagged, by the first byte of its header.
pub const fn is_tagged(control: u8) -> bool {
    control & DDP_TAGGED != 0
}

/// A segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    Tagged { opcode: Opcode, last: bool, stag: Stag, offset: u64 },
    Untagged { opcode: Opcode, last: bool, invalidate: Stag, queue: u32, sequence: u32, message_offset: u32 },
}

impl Header {
    pub const fn opcode(&self) -> Opcode {
        match *self {
            Self::Tagged { opcode, .. } | Self::Untagged { opcode, .. } => opcode,
        }
    }

    pub const fn len_bytes(&self) -> usize {
        match self {
            Self::Tagged { .. } => TAGGED_HEADER_BYTES,
            Self::Untagged { .. } => UNTAGGED_HEADER_BYTES,
        }
    }

    /// Reads the header at the front of a ULPDU.
    ///
    /// # Errors
    /// The code to terminate the stream with.
    #[inline]
    pub fn parse(ulpdu: &[u8]) -> Result<Self, TerminateCode> {
        let [ddp, rdmap, rest @ ..] = ulpdu else { return Err(TerminateCode::MPA_LENGTH) };
        let tagged = is_tagged(*ddp);
        if ddp & 0x03 != DDP_VERSION {
            return Err(if tagged {
                TerminateCode::DDP_TAGGED_VERSION
            } else {
                TerminateCode::DDP_UNTAGGED_VERSION
            });
        }
        if rdmap & 0xC0 != RDMAP_VERSION {
            return Err(TerminateCode::RDMAP_VERSION);
        }
        let opcode = Opcode::from_bits(rdmap & 0xF).ok_or(TerminateCode::RDMAP_OPCODE)?;
        if opcode.is_tagged() != tagged {
            return Err(TerminateCode::RDMAP_OPCODE);
        }
        let last = ddp & DDP_LAST != 0;
        if tagged {
            let rest: &[u8; 12] = rest.first_chunk().ok_or(TerminateCode::MPA_LENGTH)?;
            return Ok(Self::Tagged { opcode, last, stag: Stag(be32(rest)), offset: be64(&rest[4..]) });
        }
        let rest: &[u8; 16] = rest.first_chunk().ok_or(TerminateCode::MPA_LENGTH)?;
        let header = Self::Untagged {
            opcode,
            last,
            invalidate: Stag(be32(rest)),
            queue: be32(&rest[4..]),
            sequence: be32(&rest[8..]),
            message_offset: be32(&rest[12..]),
        };
        match header {
            Self::Untagged { queue, .. } if queue != opcode.queue() => {
                Err(if queue > QUEUE_ATOMIC_RESPONSE {
                    TerminateCode::DDP_UNTAGGED_QUEUE
                } else {
                    TerminateCode::RDMAP_OPCODE
                })
            }
            _ => Ok(header),
        }
    }

    /// Writes the header; returns its length.
    #[inline]
    pub fn write(&self, out: &mut [u8]) -> usize {
        let (tagged, last, opcode) = match *self {
            Self::Tagged { opcode, last, .. } => (DDP_TAGGED, last, opcode),
            Self::Untagged { opcode, last, .. } => (0, last, opcode),
        };
        out[0] = tagged | if last { DDP_LAST } else { 0 } | DDP_VERSION;
        out[1] = RDMAP_VERSION | opcode as u8;
        match *self {
            Self::Tagged { stag, offset, .. } => {
                out[2..6].copy_from_slice(&stag.0.to_be_bytes());
                out[6..14].copy_from_slice(&offset.to_be_bytes());
            }
            Self::Untagged { invalidate, queue, sequence, message_offset, .. } => {
                // Checked once.
                if let Some(words) = out[2..].first_chunk_mut::<16>() {
                    words[..4].copy_from_slice(&invalidate.0.to_be_bytes());
                    words[4..8].copy_from_slice(&queue.to_be_bytes());
                    words[8..12].copy_from_slice(&sequence.to_be_bytes());
                    words[12..].copy_from_slice(&message_offset.to_be_bytes());
                }
            }
        }
        self.len_bytes()
    }
}

/// RDMA Read Request (RFC 5040 section 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    pub sink: Stag,
    pub sink_offset: u64,
    pub len_bytes: u32,
    pub source: Stag,
    pub source_offset: u64,
}

impl ReadRequest {
    pub fn encode(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut out = [0; READ_REQUEST_BYTES];
        out[..4].copy_from_slice(&self.sink.0.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.len_bytes.to_be_bytes());
        out[16..20].copy_from_slice(&self.source.0.to_be_bytes());
        out[20..].copy_from_slice(&self.source_offset.to_be_bytes());
        out
    }

    pub fn parse(bytes: &[u8; READ_REQUEST_BYTES]) -> Self {
        Self {
            sink: Stag(be32(&bytes[..4])),
            sink_offset: be64(&bytes[4..12]),
            len_bytes: be32(&bytes[12..16]),
            source: Stag(be32(&bytes[16..20])),
            source_offset: be64(&bytes[20..]),
        }
    }

    /// The region that the read keeps busy until it is answered. A read of no bytes touches none: its
    /// source is not checked (RFC 5040), and may belong to another stream.
    pub fn held_source(&self) -> Option<Stag> {
        (self.len_bytes > 0).then_some(self.source)
    }
}

/// The effect of an atomic operation on its eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds within the fields that `mask` delimits: a set bit stops the carry out of it (RFC 7306 section 5.1.1).
    FetchAdd { add: u64, mask: u64 },
    /// Replaces the bits of `swap_mask` if the bits of `compare_mask` are equal (section 5.1.3).
    CompareSwap { compare: u64, compare_mask: u64, swap: u64, swap_mask: u64 },
}

impl AtomicOperation {
    /// The new value.
    pub fn apply(self, old: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask: 0 } => old.wrapping_add(add),
            Self::FetchAdd { add, mask } => {
                let (mut carry, mut sum) = (0, 0);
                for bit in 0..64 {
                    let total = (old >> bit & 1) + (add >> bit & 1) + carry;
                    sum |= (total & 1) << bit;
                    carry = if mask >> bit & 1 == 1 { 0 } else { total >> 1 };
                }
                sum
            }
            Self::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                if old & compare_mask == compare & compare_mask {
                    old & !swap_mask | swap & swap_mask
                } else {
                    old
                }
            }
        }
    }
}

/// Atomic Request (RFC 7306 section 5.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicRequest {
    pub request_id: u32,
    pub target: Stag,
    pub target_offset: u64,
    pub operation: AtomicOperation,
}

impl AtomicRequest {
    pub fn encode(&self) -> [u8; ATOMIC_REQUEST_BYTES] {
        let (code, data, mask, compare, compare_mask) = match self.operation {
            AtomicOperation::FetchAdd { add, mask } => (0u32, add, mask, 0, 0),
            AtomicOperation::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                (2, swap, swap_mask, compare, compare_mask)
            }
        };
        let mut out = [0; ATOMIC_REQUEST_BYTES];
        out[..4].copy_from_slice(&code.to_be_bytes());
        out[4..8].copy_from_slice(&self.request_id.to_be_bytes());
        out[8..12].copy_from_slice(&self.target.0.to_be_bytes());
        for (at, value) in [self.target_offset, data, mask, compare, compare_mask].into_iter().enumerate() {
            out[12 + 8 * at..20 + 8 * at].copy_from_slice(&value.to_be_bytes());
        }
        out
    }

    /// `None` for an operation code that RFC 7306 does not define.
    pub fn parse(bytes: &[u8; ATOMIC_REQUEST_BYTES]) -> Option<Self> {
        let value = |at: usize| be64(&bytes[12 + 8 * at..20 + 8 * at]);
        let operation = match be32(&bytes[..4]) & 0xF {
            0 => AtomicOperation::FetchAdd { add: value(1), mask: value(2) },
            2 => AtomicOperation::CompareSwap {
                compare: value(3),
                compare_mask: value(4),
                swap: value(1),
                swap_mask: value(2),
            },
            _ => return None,
        };
        let (request_id, target) = (be32(&bytes[4..8]), Stag(be32(&bytes[8..12])));
        Some(Self { request_id, target, target_offset: value(0), operation })
    }
}

#[inline]
pub(crate) fn be32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

#[inline]
pub(crate) fn be64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
