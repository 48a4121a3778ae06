//! The Terminate message (RFC 5040 section 4.8) and its codes (RFC 6580 section 3).

use std::fmt;

/// Layer, error type and error code of a Terminate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminateCode {
    pub layer: u8,
    pub error_type: u8,
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
    RDMAP_LOCAL_CATASTROPHIC = (0, 0, 0, "RDMAP: local catastrophic error");
    RDMAP_INVALID_STAG = (0, 1, 0, "RDMAP: invalid STag");
    RDMAP_BOUNDS = (0, 1, 1, "RDMAP: base or bounds violation");
    RDMAP_ACCESS = (0, 1, 2, "RDMAP: access rights violation");
    RDMAP_NOT_ASSOCIATED = (0, 1, 3, "RDMAP: STag not associated with the stream");
    RDMAP_WRAP = (0, 1, 4, "RDMAP: tagged offset wrap");
    RDMAP_CANNOT_INVALIDATE = (0, 1, 9, "RDMAP: STag cannot be invalidated");
    RDMAP_PROTECTION_UNSPECIFIED = (0, 1, 0xFF, "RDMAP: unspecified protection error");
    RDMAP_VERSION = (0, 2, 5, "RDMAP: invalid version");
    RDMAP_OPCODE = (0, 2, 6, "RDMAP: unexpected opcode");
    RDMAP_STREAM_CATASTROPHIC = (0, 2, 7, "RDMAP: catastrophic error, localized to the stream");
    RDMAP_GLOBAL_CATASTROPHIC = (0, 2, 8, "RDMAP: catastrophic error, global");
    RDMAP_INVALIDATE_ACCESS = (0, 2, 9, "RDMAP: STag cannot be invalidated");
    RDMAP_OPERATION_UNSPECIFIED = (0, 2, 0xFF, "RDMAP: unspecified operation error");
    DDP_LOCAL_CATASTROPHIC = (1, 0, 0, "DDP: local catastrophic error");
    DDP_TAGGED_STAG = (1, 1, 0, "DDP: invalid STag");
    DDP_TAGGED_BOUNDS = (1, 1, 1, "DDP: base or bounds violation");
    DDP_TAGGED_NOT_ASSOCIATED = (1, 1, 2, "DDP: STag not associated with the stream");
    DDP_TAGGED_WRAP = (1, 1, 3, "DDP: tagged offset wrap");
    DDP_TAGGED_VERSION = (1, 1, 4, "DDP: invalid version");
    DDP_UNTAGGED_QUEUE = (1, 2, 1, "DDP: invalid queue number");
    DDP_UNTAGGED_NO_BUFFER = (1, 2, 2, "DDP: invalid message sequence number, no buffer");
    DDP_UNTAGGED_SEQUENCE = (1, 2, 3, "DDP: invalid message sequence number, out of range");
    DDP_UNTAGGED_OFFSET = (1, 2, 4, "DDP: invalid message offset");
    DDP_UNTAGGED_TOO_LONG = (1, 2, 5, "DDP: message too long for the buffer");
    DDP_UNTAGGED_VERSION = (1, 2, 6, "DDP: invalid version");
    MPA_CONNECTION_LOST = (2, 0, 1, "MPA: TCP connection closed");
    MPA_CRC = (2, 0, 2, "MPA: CRC error");
    MPA_LENGTH = (2, 0, 3, "MPA: marker and length mismatch");
    MPA_START_FRAME = (2, 0, 4, "MPA: invalid request or reply frame");
    MPA_LOCAL_CATASTROPHIC = (2, 0, 5, "MPA: local catastrophic error");
    MPA_INSUFFICIENT_READ_DEPTH = (2, 0, 6, "MPA: insufficient inbound read depth");
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
