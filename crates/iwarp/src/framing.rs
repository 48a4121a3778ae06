//! FPDUs (RFC 5044 section 4): length, ULPDU, pad, CRC. Without markers: what a peer that asks for them is sent is made by
//! [`crate::markers`].

use crate::crc::Crc32c;
use sys::{BufMut, Payload};

/// Bytes before the ULPDU.
pub const LENGTH_BYTES: usize = 2;
/// Bytes of the CRC field, there also where CRC is off.
pub const CRC_BYTES: usize = 4;
/// Longest ULPDU that may be sent (RFC 5044 section 4.5).
pub const ULPDU_BYTES_MAX: usize = 64_768;

/// Pad and CRC after a ULPDU of this length.
pub const fn trailer_bytes(ulpdu_bytes: usize) -> usize {
    pad_bytes(ulpdu_bytes) + CRC_BYTES
}

/// Zero bytes that make length field and ULPDU a multiple of four.
pub const fn pad_bytes(ulpdu_bytes: usize) -> usize {
    (4 - (LENGTH_BYTES + ulpdu_bytes) % 4) % 4
}

/// All bytes of the FPDU.
pub const fn fpdu_bytes(ulpdu_bytes: usize) -> usize {
    LENGTH_BYTES + ulpdu_bytes + trailer_bytes(ulpdu_bytes)
}

/// Longest ULPDU whose FPDU fits the effective maximum segment size (RFC 5044 section 5).
pub const fn ulpdu_bytes_for_segment(segment_bytes: usize) -> usize {
    let fitting = segment_bytes.saturating_sub(6 + segment_bytes % 4);
    if fitting < 128 {
        128
    } else if fitting > ULPDU_BYTES_MAX {
        ULPDU_BYTES_MAX
    } else {
        fitting
    }
}

/// One FPDU to be sent: header bytes of ours, payload of somebody else's.
pub struct Outgoing {
    /// DDP header and, for the short messages, what follows it.
    pub header: [u8; 80],
    pub header_len: usize,
    pub payload: Payload,
}

impl Outgoing {
    pub fn ulpdu_bytes(&self) -> usize {
        self.header_len + self.payload.len()
    }
}

/// Puts FPDUs into one list of slices: headers and trailers lie together in one allocation, payload is not copied but taken.
pub fn join(fpdus: &mut [Outgoing], crc: bool) -> Payload {
    let own = |f: &Outgoing| LENGTH_BYTES + f.header_len + trailer_bytes(f.ulpdu_bytes());
    let mut arena = BufMut::for_overwrite(fpdus.iter().map(own).sum());
    let (mut at, mut parts) = (0, 1);
    for fpdu in fpdus.iter() {
        let length = fpdu.ulpdu_bytes();
        let start = at;
        arena[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        arena[at + 2..at + 2 + fpdu.header_len].copy_from_slice(&fpdu.header[..fpdu.header_len]);
        at += LENGTH_BYTES + fpdu.header_len;
        let (trailer, pad) = (at, pad_bytes(length));
        arena[at..at + pad + CRC_BYTES].fill(0);
        at += pad;
        if crc {
            let mut sum = Crc32c::default();
            sum.update(&arena[start..trailer]);
            for part in fpdu.payload.parts() {
                sum.update_shared(part);
            }
            if pad > 0 {
                sum.update(&arena[trailer..at]);
            }
            arena[at..at + CRC_BYTES].copy_from_slice(&sum.wire_bytes());
        }
        at += CRC_BYTES;
        parts += 1 + fpdu.payload.parts().len();
    }
    let arena = arena.freeze();
    let mut out = Payload::with_capacity(parts);
    // A trailer and the next header are neighbours: one slice serves both.
    let (mut from, mut start) = (0, 0);
    for fpdu in fpdus {
        let (first, len) = (start, own(fpdu));
        start += len;
        if !fpdu.payload.is_empty() {
            let header_end = first + LENGTH_BYTES + fpdu.header_len;
            out.push(arena.slice(from..header_end));
            out.append(std::mem::take(&mut fpdu.payload));
            from = header_end;
        }
    }
    out.push(arena.slice(from..at));
    out
}

/// What stands at the front of a byte stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Framed<'a> {
    /// This many more bytes are needed at least.
    Incomplete(usize),
    /// A whole FPDU: its ULPDU and its length in the stream.
    Whole { ulpdu: &'a [u8], len_bytes: usize },
    /// The CRC is wrong.
    Corrupt,
}

/// Reads the FPDU at the front of `bytes`; `crc`: the CRC counts.
pub fn frame(bytes: &[u8], crc: bool) -> Framed<'_> {
    let [high, low, ..] = bytes else { return Framed::Incomplete(LENGTH_BYTES - bytes.len()) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let whole = fpdu_bytes(length);
    if bytes.len() < whole {
        return Framed::Incomplete(whole - bytes.len());
    }
    if crc && crate::crc::crc32c(&bytes[..whole - CRC_BYTES]) != bytes[whole - CRC_BYTES..whole] {
        return Framed::Corrupt;
    }
    Framed::Whole { ulpdu: &bytes[LENGTH_BYTES..LENGTH_BYTES + length], len_bytes: whole }
}
