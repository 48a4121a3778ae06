//! The Terminate message (RFC 5040 section 4.8) and its codes (RFC 6580 section 3).

use std::fmt;

/// Layer, error type and error code of a Terminate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminateCode {
    /// Layer of the error: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Type of the error in its layer, four bits.
    pub error_type: u8,
    /// Code of the error in its type.
    pub code: u8,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = ($layer:literal, $kind:literal, $code:literal, $text:literal);)*) => {
        impl TerminateCode {
            $($(#[$doc])* pub const $name: Self = Self { layer: $layer, error_type: $kind, code: $code };)*

            /// Returns the code's name, if the registries have it.
            pub const fn text(self) -> Option<&'static str> {
                match (self.layer, self.error_type, self.code) {
                    $(($layer, $kind, $code) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Failure of the receiver that concerns more than the stream.
    RDMAP_LOCAL_CATASTROPHIC = (0, 0, 0, "RDMAP: local catastrophic error");
    /// STag of an RDMA Read's source that names no region.
    RDMAP_INVALID_STAG = (0, 1, 0, "RDMAP: invalid STag");
    /// Read outside the source region.
    RDMAP_BOUNDS = (0, 1, 1, "RDMAP: base or bounds violation");
    /// Region that does not grant the access.
    RDMAP_ACCESS = (0, 1, 2, "RDMAP: access rights violation");
    /// Region of another protection domain or stream.
    RDMAP_NOT_ASSOCIATED = (0, 1, 3, "RDMAP: STag not associated with the stream");
    /// Tagged offset and length that wrap around.
    RDMAP_WRAP = (0, 1, 4, "RDMAP: tagged offset wrap");
    /// Region that the peer may not invalidate.
    RDMAP_CANNOT_INVALIDATE = (0, 1, 9, "RDMAP: STag cannot be invalidated");
    /// Protection error without a code of its own.
    RDMAP_PROTECTION_UNSPECIFIED = (0, 1, 0xFF, "RDMAP: unspecified protection error");
    /// RDMAP version other than 1.
    RDMAP_VERSION = (0, 2, 5, "RDMAP: invalid version");
    /// Opcode that is unassigned or out of place.
    RDMAP_OPCODE = (0, 2, 6, "RDMAP: unexpected opcode");
    /// Failure of the stream alone.
    RDMAP_STREAM_CATASTROPHIC = (0, 2, 7, "RDMAP: catastrophic error, localized to the stream");
    /// Failure that concerns all streams of the receiver.
    RDMAP_GLOBAL_CATASTROPHIC = (0, 2, 8, "RDMAP: catastrophic error, global");
    /// As [`Self::RDMAP_CANNOT_INVALIDATE`], among the remote operation errors.
    RDMAP_INVALIDATE_ACCESS = (0, 2, 9, "RDMAP: STag cannot be invalidated");
    /// Operation error without a code of its own.
    RDMAP_OPERATION_UNSPECIFIED = (0, 2, 0xFF, "RDMAP: unspecified operation error");
    /// Failure of DDP at the receiver.
    DDP_LOCAL_CATASTROPHIC = (1, 0, 0, "DDP: local catastrophic error");
    /// Tagged segment with an STag that names no region.
    DDP_TAGGED_STAG = (1, 1, 0, "DDP: invalid STag");
    /// Tagged segment outside of its region.
    DDP_TAGGED_BOUNDS = (1, 1, 1, "DDP: base or bounds violation");
    /// Tagged segment for a region of another domain or stream.
    DDP_TAGGED_NOT_ASSOCIATED = (1, 1, 2, "DDP: STag not associated with the stream");
    /// Tagged segment whose offset and length wrap around.
    DDP_TAGGED_WRAP = (1, 1, 3, "DDP: tagged offset wrap");
    /// Tagged segment with a DDP version other than 1.
    DDP_TAGGED_VERSION = (1, 1, 4, "DDP: invalid version");
    /// Untagged segment for a queue that does not exist.
    DDP_UNTAGGED_QUEUE = (1, 2, 1, "DDP: invalid queue number");
    /// Send without a posted receive.
    DDP_UNTAGGED_NO_BUFFER = (1, 2, 2, "DDP: invalid message sequence number, no buffer");
    /// Message sequence number out of turn.
    DDP_UNTAGGED_SEQUENCE = (1, 2, 3, "DDP: invalid message sequence number, out of range");
    /// Message offset out of turn.
    DDP_UNTAGGED_OFFSET = (1, 2, 4, "DDP: invalid message offset");
    /// Send longer than its receive, or than this end allows.
    DDP_UNTAGGED_TOO_LONG = (1, 2, 5, "DDP: message too long for the buffer");
    /// Untagged segment with a DDP version other than 1.
    DDP_UNTAGGED_VERSION = (1, 2, 6, "DDP: invalid version");
    /// End of the TCP connection within the stream.
    MPA_CONNECTION_LOST = (2, 0, 1, "MPA: TCP connection closed");
    /// FPDU with a wrong CRC.
    MPA_CRC = (2, 0, 2, "MPA: CRC error");
    /// Marker that does not point to the start of its FPDU.
    MPA_LENGTH = (2, 0, 3, "MPA: marker and length mismatch");
    /// Start-up frame that is none.
    MPA_START_FRAME = (2, 0, 4, "MPA: invalid request or reply frame");
    /// Failure of MPA at the receiver (RFC 6581).
    MPA_LOCAL_CATASTROPHIC = (2, 0, 5, "MPA: local catastrophic error");
    /// Read depth that the reply demands and this end cannot serve (RFC 6581).
    MPA_INSUFFICIENT_READ_DEPTH = (2, 0, 6, "MPA: insufficient inbound read depth");
    /// Ready-to-receive message that was not offered (RFC 6581).
    MPA_NO_READY_TO_RECEIVE = (2, 0, 7, "MPA: no matching ready-to-receive option");
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "layer {} type {} code {}", self.layer, self.error_type, self.code),
        }
    }
}

impl fmt::Debug for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Terminate({self})")
    }
}

/// The segment that a Terminate complains about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffendingSegment {
    /// Bytes of the segment's ULPDU.
    pub len_bytes: u16,
    /// The DDP header, 14 or 18 bytes.
    pub header: Vec<u8>,
    /// The 28 bytes of an RDMA Read Request.
    pub read_request: Option<Vec<u8>>,
}

impl TerminateCode {
    /// The Terminate payload: the control word and, if given, the offending segment's length and headers.
    pub fn encode(self, segment: Option<&OffendingSegment>) -> Vec<u8> {
        let mut out = vec![self.layer << 4 | self.error_type & 0xF, self.code, 0, 0];
        if let Some(segment) = segment {
            out[2] = 0x80 | 0x40 | if segment.read_request.is_some() { 0x20 } else { 0 };
            out.extend_from_slice(&segment.len_bytes.to_be_bytes());
            out.extend_from_slice(&segment.header);
            out.extend_from_slice(segment.read_request.as_deref().unwrap_or_default());
        }
        out
    }

    /// From a Terminate's payload; the rest of it is for people only.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let [first, code, _, _, ..] = payload else { return None };
        Some(Self { layer: first >> 4, error_type: first & 0xF, code: *code })
    }
}
