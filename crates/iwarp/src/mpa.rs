//! MPA start-up frames (RFC 5044 section 7.1, RFC 6581 sections 6 and 9) and the two blocks private data may begin with.
//!
//! Owns their bytes, not the rules of when they are sent.

/// Bytes of a start-up frame before its private data.
pub const FRAME_BYTES: usize = 20;
/// Most private data of a frame, the enhanced block included.
pub const PRIVATE_DATA_BYTES_MAX: usize = 512;
/// IRD or ORD value of RFC 6581 section 9.1 that asks for no negotiation.
pub const DEPTH_NO_NEGOTIATION: u16 = 0x3FFF;

const KEY_REQUEST: &[u8; 16] = b"MPA ID Req Frame";
const KEY_REPLY: &[u8; 16] = b"MPA ID Rep Frame";

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    Request,
    Reply,
}

/// The enhanced block of RFC 6581 section 9: the peer-to-peer model, its ready-to-receive messages, read depths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Enhanced {
    pub peer_to_peer: bool,
    pub rtr_send: bool,
    pub rtr_write: bool,
    pub rtr_read: bool,
    /// Inbound RDMA Reads that the sender of the frame serves at a time.
    pub inbound_read_depth: u16,
    /// RDMA Reads that the sender of the frame wants to have outstanding.
    pub outbound_read_depth: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartFrame {
    pub kind: FrameKind,
    /// The sender requires markers in the stream that it receives.
    pub markers: bool,
    pub crc: bool,
    /// Replies only.
    pub reject: bool,
    pub revision: u8,
    pub enhanced: Option<Enhanced>,
    /// Without the enhanced block.
    pub private_data: Vec<u8>,
}

/// Why bytes are not a start-up frame. The TCP connection is closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the MPA key is wrong")]
    Key,
    #[error("MPA revision {0} is not known")]
    Revision(u8),
    #[error("private data of {0} bytes is longer than 512")]
    PrivateDataLength(usize),
    #[error("the enhanced block is announced but missing")]
    EnhancedMissing,
}

impl StartFrame {
    pub fn encode(&self) -> Vec<u8> {
        let enhanced_bytes = if self.enhanced.is_some() { 4 } else { 0 };
        let length = (enhanced_bytes + self.private_data.len()).min(PRIVATE_DATA_BYTES_MAX);
        let mut out = Vec::with_capacity(FRAME_BYTES + length);
        out.extend_from_slice(if self.kind == FrameKind::Request { KEY_REQUEST } else { KEY_REPLY });
        let mut flags = 0;
        for (set, flag) in [
            (self.markers, FLAG_MARKERS),
            (self.crc, FLAG_CRC),
            (self.reject && self.kind == FrameKind::Reply, FLAG_REJECT),
            (self.enhanced.is_some(), FLAG_ENHANCED),
        ] {
            flags |= if set { flag } else { 0 };
        }
        out.extend_from_slice(&[flags, self.revision]);
        out.extend_from_slice(&(length as u16).to_be_bytes());
        if let Some(block) = self.enhanced {
            let bit = |set: bool, at: u32| if set { 1u16 << at } else { 0 };
            let first = bit(block.peer_to_peer, 15)
                | bit(block.rtr_send, 14)
                | (block.inbound_read_depth & DEPTH_NO_NEGOTIATION);
            let second = bit(block.rtr_write, 15)
                | bit(block.rtr_read, 14)
                | (block.outbound_read_depth & DEPTH_NO_NEGOTIATION);
            out.extend_from_slice(&first.to_be_bytes());
            out.extend_from_slice(&second.to_be_bytes());
        }
        out.extend_from_slice(&self.private_data[..length - enhanced_bytes]);
        out
    }

    /// Reads a frame from the front of `bytes`: the frame and its length, or `None` if more bytes are needed. A wrong key is
    /// found at its first wrong byte.
    ///
    /// # Errors
    /// [`FrameError`]: the peer does not speak MPA as this code does.
    pub fn parse(kind: FrameKind, bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let key = if kind == FrameKind::Request { KEY_REQUEST } else { KEY_REPLY };
        let seen = bytes.len().min(key.len());
        if bytes[..seen] != key[..seen] {
            return Err(FrameError::Key);
        }
        let Some(head) = bytes.get(16..FRAME_BYTES) else { return Ok(None) };
        let (flags, revision) = (head[0], head[1]);
        if revision > 2 {
            return Err(FrameError::Revision(revision));
        }
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if length > PRIVATE_DATA_BYTES_MAX {
            return Err(FrameError::PrivateDataLength(length));
        }
        let Some(data) = bytes.get(FRAME_BYTES..FRAME_BYTES + length) else { return Ok(None) };
        let (enhanced, private_data) = if flags & FLAG_ENHANCED != 0 && revision == 2 {
            let [a, b, c, d, rest @ ..] = data else { return Err(FrameError::EnhancedMissing) };
            let (first, second) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            let block = Enhanced {
                peer_to_peer: first & 0x8000 != 0,
                rtr_send: first & 0x4000 != 0,
                rtr_write: second & 0x8000 != 0,
                rtr_read: second & 0x4000 != 0,
                inbound_read_depth: first & DEPTH_NO_NEGOTIATION,
                outbound_read_depth: second & DEPTH_NO_NEGOTIATION,
            };
            (Some(block), rest)
        } else {
            (None, data)
        };
        let frame = Self {
            kind,
            markers: flags & FLAG_MARKERS != 0,
            crc: flags & FLAG_CRC != 0,
            reject: flags & FLAG_REJECT != 0 && kind == FrameKind::Reply,
            revision,
            enhanced,
            private_data: private_data.to_vec(),
        };
        Ok(Some((frame, FRAME_BYTES + length)))
    }
}

/// The read depths that MS-SMBD section 6.1 puts into the private data for providers without RFC 6581: IRD and ORD, big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyDepths {
    pub inbound: u32,
    pub outbound: u32,
}

impl LegacyDepths {
    pub const BYTES: usize = 8;

    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.inbound.to_be_bytes());
        out[4..].copy_from_slice(&self.outbound.to_be_bytes());
        out
    }

    /// From private data of exactly eight bytes with both values set; values written in the wrong byte order by old clients are
    /// recognised by their size.
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let data: [u8; Self::BYTES] = private_data.try_into().ok()?;
        let value = |bytes: [u8; 4]| {
            let value = u32::from_be_bytes(bytes);
            if value > 0xFFFF { value.swap_bytes() } else { value }
        };
        let inbound = value([data[0], data[1], data[2], data[3]]);
        let outbound = value([data[4], data[5], data[6], data[7]]);
        (inbound > 0 && outbound > 0).then_some(Self { inbound, outbound })
    }
}

/// Our own block at the start of private data, by which two ends of this code agree on what the RFCs leave open. Only sent if
/// configured, or in answer to one. Where [`LegacyDepths`] are there too they come first: a peer that looks for them finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// RFC 7306 atomic operations and immediate data are understood.
    pub atomics_and_immediate: bool,
    /// The flush operation on the experimental opcode 0xF is understood.
    pub flush: bool,
    /// Longest ULPDU that the sender takes, in bytes.
    pub ulpdu_bytes_max: u16,
}

impl Extension {
    pub const BYTES: usize = 12;
    const MAGIC: &[u8; 4] = b"CnRD";
    const VERSION: u8 = 1;

    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(Self::MAGIC);
        out[4] = Self::VERSION;
        out[5] = u8::from(self.atomics_and_immediate) | u8::from(self.flush) << 1;
        out[6..8].copy_from_slice(&self.ulpdu_bytes_max.to_be_bytes());
        out
    }

    /// The block and the private data without it; `None` for a peer that does not send it.
    pub fn parse(private_data: &[u8]) -> Option<(Self, Vec<u8>)> {
        [0, LegacyDepths::BYTES].into_iter().find_map(|at| {
            let (before, rest) = private_data.split_at_checked(at)?;
            let (block, after) = rest.split_at_checked(Self::BYTES)?;
            if &block[..4] != Self::MAGIC || block[4] != Self::VERSION {
                return None;
            }
            let extension = Self {
                atomics_and_immediate: block[5] & 1 != 0,
                flush: block[5] & 2 != 0,
                ulpdu_bytes_max: u16::from_be_bytes([block[6], block[7]]),
            };
            Some((extension, [before, after].concat()))
        })
    }
}
