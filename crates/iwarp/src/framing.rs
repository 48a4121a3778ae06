//! FPDUs (RFC 5044 section 4): length, ULPDU, pad, CRC. Without markers: what a peer that asks for them is sent is made by
//! [`crate::markers`].

use crate::crc::Crc32c;
use crate::ddp::{self, Header};
use sys::{Buf, BufMut, Payload};

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

/// Bytes that a message may have in front of its payload, which are copied: the headers of MS-SMBD and of an SMB2 READ or WRITE.
pub const HEAD_BYTES_MAX: usize = 192;
/// As many as are kept with a message that waits: an Atomic Request has the most.
pub(crate) const KEPT_HEAD_BYTES_MAX: usize = ddp::ATOMIC_REQUEST_BYTES;
const TRAILER_BYTES_MAX: usize = 3 + CRC_BYTES;
/// A first part of a payload is copied where it is no longer than this: a slice of its own costs more, here and in the kernel. It holds
/// the header of an SMB2 request or answer.
const COPIED_BYTES_MAX: usize = 192;

/// Bytes that follow a message's first DDP header, kept until it starts: of the short messages all, of a Send what its owner gives so.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; KEPT_HEAD_BYTES_MAX],
    len: u8,
}

impl Head {
    pub const EMPTY: Self = Self { bytes: [0; KEPT_HEAD_BYTES_MAX], len: 0 };

    /// What is longer than [`KEPT_HEAD_BYTES_MAX`] is cut off.
    pub fn new(bytes: &[u8]) -> Self {
        let len = bytes.len().min(KEPT_HEAD_BYTES_MAX);
        let mut head = Self { len: len as u8, ..Self::EMPTY };
        head.bytes[..len].copy_from_slice(&bytes[..len]);
        head
    }
}

impl std::ops::Deref for Head {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// FPDUs on their way out: bytes of ours lie together, with short ones in front of a payload; payload is taken, not copied.
#[derive(Default)]
pub struct Outgoing {
    /// Lengths, headers and trailers, in order.
    own: Vec<u8>,
    fpdus: Vec<Fpdu>,
}

struct Fpdu {
    /// Where in `own` it begins, and where its payload comes.
    start: usize,
    payload_at: usize,
    payload: Payload,
    /// Parts at the payload's front that lie in `own` already. They are not taken off: what was just changed is slow to move.
    copied: usize,
}

impl Fpdu {
    fn parts(&self) -> &[Buf] {
        &self.payload.parts()[self.copied..]
    }
}

impl Outgoing {
    /// Adds an FPDU whose ULPDU is `header`, `head` and `payload`. `crc`: its CRC is computed; else the field is zero. Returns
    /// the FPDU's length.
    pub fn push(&mut self, header: &Header, head: &[u8], payload: Payload, crc: bool) -> usize {
        let length = header.len_bytes() + head.len() + payload.len();
        let start = self.own.len();
        let headers_bytes = LENGTH_BYTES + header.len_bytes();
        self.own.reserve(headers_bytes + head.len() + COPIED_BYTES_MAX + TRAILER_BYTES_MAX);
        // Written where they stay: bytes that were just written in small parts are slow to read in larger ones.
        self.own.resize(start + headers_bytes, 0);
        let front = &mut self.own[start..];
        front[..LENGTH_BYTES].copy_from_slice(&(length as u16).to_be_bytes());
        header.write(&mut front[LENGTH_BYTES..]);
        self.own.extend_from_slice(head);
        let mut copied = 0;
        if let Some(short) = payload.parts().first().filter(|first| first.len() <= COPIED_BYTES_MAX) {
            self.own.extend_from_slice(short);
            copied = 1;
        }
        let payload_at = self.own.len();
        let pad = pad_bytes(length);
        self.own.resize(payload_at + pad + CRC_BYTES, 0);
        if crc {
            let mut sum = Crc32c::default();
            sum.update(&self.own[start..payload_at]);
            for part in &payload.parts()[copied..] {
                sum.update_shared(part);
            }
            sum.update(&self.own[payload_at..payload_at + pad]);
            self.own[payload_at + pad..].copy_from_slice(&sum.wire_bytes());
        }
        self.fpdus.push(Fpdu { start, payload_at, payload, copied });
        fpdu_bytes(length)
    }

    pub fn len(&self) -> usize {
        self.fpdus.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fpdus.is_empty()
    }

    /// Of each FPDU: length field and headers, payload, pad and CRC field.
    pub fn parts(&self) -> impl Iterator<Item = (&[u8], &[Buf], &[u8])> {
        let ends = self.fpdus.iter().skip(1).map(|fpdu| fpdu.start).chain([self.own.len()]);
        self.fpdus.iter().zip(ends).map(|(fpdu, end)| {
            (&self.own[fpdu.start..fpdu.payload_at], fpdu.parts(), &self.own[fpdu.payload_at..end])
        })
    }

    /// Takes all out, as one list of slices.
    pub fn take(&mut self) -> Payload {
        let mut own = BufMut::for_overwrite(self.own.len());
        own.copy_from_slice(&self.own);
        let own = own.freeze();
        let payloads: usize = self.fpdus.iter().map(|fpdu| fpdu.parts().len()).sum();
        let mut out = Payload::with_capacity(self.fpdus.len() + payloads + 1);
        // A trailer and the next header are neighbours: one slice serves both.
        let mut from = 0;
        for fpdu in self.fpdus.drain(..) {
            if !fpdu.parts().is_empty() {
                out.push(own.slice(from..fpdu.payload_at));
                out.append_from(fpdu.payload, fpdu.copied);
                from = fpdu.payload_at;
            }
        }
        out.push(own.slice(from..own.len()));
        self.own.clear();
        out
    }

    /// Forgets what is in it, and keeps room for no more than so many FPDUs.
    pub fn clear(&mut self, fpdus_max: usize) {
        if self.fpdus.capacity() > fpdus_max {
            *self = Self::default();
        }
        self.own.clear();
        self.fpdus.clear();
    }
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
