//! FPDUs (RFC 5044 section 4): length, ULPDU, pad, CRC. Without markers: [`crate::markers`] puts them
//! in for a peer that asks for them.

use crate::crc::Crc32c;
use crate::ddp::{self, Header};
use std::ops::Range;
use sys::{Buf, Payload};

/// Bytes before the ULPDU.
pub const LENGTH_BYTES: usize = 2;
/// Bytes of the CRC field, there also if CRC is off.
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

    /// Copies the bytes, at most [`KEPT_HEAD_BYTES_MAX`] of them.
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
    /// Payloads that the FPDUs carry parts of, each whole, so that no part needs a reference of its own.
    bodies: Vec<Payload>,
    /// Where the next FPDU begins in the last of them.
    next: Place,
}

/// A byte of a payload.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    part: usize,
    at: usize,
}

struct Fpdu {
    /// Where in `own` it begins, and where its payload comes.
    start: usize,
    payload_at: usize,
    /// Which of the bodies, from where on, and how much that does not lie in `own`.
    body: usize,
    from: Place,
    len: usize,
}

/// Bytes on their way out.
enum Piece<'a> {
    /// Of `own`.
    Own(Range<usize>),
    Payload(&'a Buf, Range<usize>),
}

/// An FPDU that was added.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cut {
    pub len_bytes: usize,
    /// Payload that its CRC was made of, byte by byte.
    pub summed_bytes: usize,
}

impl std::ops::AddAssign for Cut {
    fn add_assign(&mut self, other: Self) {
        self.len_bytes += other.len_bytes;
        self.summed_bytes += other.summed_bytes;
    }
}

impl Place {
    /// This many bytes of the parts from here on, as ranges of them.
    fn ranges(self, parts: &[Buf], len: usize) -> impl Iterator<Item = (&Buf, Range<usize>)> {
        let (mut at, mut left) = (self.at, len);
        parts.get(self.part..).unwrap_or_default().iter().map_while(move |part| {
            let range = at..part.len().min(at + left);
            (at, left) = (0, left - range.len());
            (!range.is_empty()).then_some((part, range))
        })
    }

    /// The place `len` bytes further.
    fn after(self, parts: &[Buf], len: usize) -> Self {
        let Self { mut part, mut at } = self;
        at += len;
        while let Some(here) = parts.get(part).filter(|here| at >= here.len()) {
            (part, at) = (part + 1, at - here.len());
        }
        Self { part, at }
    }
}

impl Outgoing {
    /// Asks for the memory that the next FPDU is described in ([`sys::prefetch`]).
    pub(crate) fn prefetch(&mut self) {
        /// Headers of one small message.
        const OWN_BYTES: usize = 2 * 64;
        if let Some(room) = self.own.spare_capacity_mut().first_chunk::<OWN_BYTES>() {
            sys::prefetch(room);
        }
        if let Some(room) = self.fpdus.spare_capacity_mut().first() {
            sys::prefetch(room);
        }
        if let Some(room) = self.bodies.spare_capacity_mut().first() {
            sys::prefetch(room);
        }
    }

    /// Sets the payload of the FPDUs that follow, from a place on.
    pub(crate) fn begin(&mut self, body: Payload, from: Place) {
        self.bodies.push(body);
        self.next = from;
    }

    /// Takes back the last body, of which something is left, and the place of the rest: its FPDUs are no
    /// longer in use.
    pub(crate) fn take_back(&mut self) -> Option<(Payload, Place)> {
        Some((self.bodies.pop()?, self.next))
    }

    fn last_parts(&self) -> &[Buf] {
        self.bodies.last().map(Payload::parts).unwrap_or_default()
    }

    /// Distance of the byte `ahead` bytes after the next one from the start of its page of memory.
    pub(crate) fn behind_page(&self, ahead: usize) -> usize {
        let (parts, place) = (self.last_parts(), self.next.after(self.last_parts(), ahead));
        parts.get(place.part).map_or(0, |part| part.behind_page(place.at))
    }

    /// Adds an FPDU whose ULPDU is `header`, `head` and `payload`, as [`Self::push`] does.
    pub fn push_whole(&mut self, header: &Header, head: &[u8], payload: Payload, crc: bool) -> Cut {
        let len_bytes = payload.len();
        self.begin(payload, Place::default());
        self.push(header, head, len_bytes, crc)
    }

    /// Adds an FPDU whose ULPDU is `header`, `head` and the next `take` bytes of the last body. `crc`: its CRC is computed; else the field
    /// is zero.
    pub(crate) fn push(&mut self, header: &Header, head: &[u8], take: usize, crc: bool) -> Cut {
        let length = header.len_bytes() + head.len() + take;
        let parts = self.bodies.last().map(Payload::parts).unwrap_or_default();
        let (mut from, mut len, mut copied) = (self.next, take, &[][..]);
        if let Some((part, range)) = from.ranges(parts, take).next()
            && range.len() <= COPIED_BYTES_MAX
        {
            (from, len) = (from.after(parts, range.len()), take - range.len());
            copied = &part[range];
        }
        self.next = from.after(parts, len);
        // Written if they stay: bytes that were just written in small parts are slow to read in larger ones.
        let (start, pad) = (self.own.len(), pad_bytes(length));
        let head_at = LENGTH_BYTES + header.len_bytes();
        let copied_at = head_at + head.len();
        let trailer_at = copied_at + copied.len();
        self.own.resize(start + trailer_at + pad + CRC_BYTES, 0);
        let (front, trailer) = self.own[start..].split_at_mut(trailer_at);
        front[..LENGTH_BYTES].copy_from_slice(&(length as u16).to_be_bytes());
        header.write(&mut front[LENGTH_BYTES..head_at]);
        front[head_at..copied_at].copy_from_slice(head);
        front[copied_at..].copy_from_slice(copied);
        let mut summed_bytes = 0;
        if crc {
            let mut sum = Crc32c::default();
            sum.update(front);
            for (part, range) in from.ranges(parts, len) {
                summed_bytes += sum.update_shared(part, range);
            }
            sum.update(&trailer[..pad]);
            trailer[pad..].copy_from_slice(&sum.wire_bytes());
        }
        let payload_at = start + trailer_at;
        let body = self.bodies.len().saturating_sub(1);
        self.fpdus.push(Fpdu { start, payload_at, body, from, len });
        Cut { len_bytes: fpdu_bytes(length), summed_bytes }
    }

    pub fn len(&self) -> usize {
        self.fpdus.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fpdus.is_empty()
    }

    fn payload(&self, fpdu: &Fpdu) -> impl Iterator<Item = (&Buf, Range<usize>)> {
        let parts = self.bodies.get(fpdu.body).map(Payload::parts).unwrap_or_default();
        fpdu.from.ranges(parts, fpdu.len)
    }

    /// Of each FPDU: length field and headers, payload, pad and CRC field.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&[u8], impl Iterator<Item = &[u8]>, &[u8])> {
        let ends = self.fpdus.iter().skip(1).map(|fpdu| fpdu.start).chain([self.own.len()]);
        self.fpdus.iter().zip(ends).map(|(fpdu, end)| {
            let payload = self.payload(fpdu).map(|(part, range)| &part[range]);
            (&self.own[fpdu.start..fpdu.payload_at], payload, &self.own[fpdu.payload_at..end])
        })
    }

    /// All bytes in their order: a trailer and the next header are neighbours, and one piece.
    fn pieces<'a>(&'a self, mut each: impl FnMut(Piece<'a>)) {
        let mut from = 0;
        for fpdu in self.fpdus.iter().filter(|fpdu| fpdu.len > 0) {
            each(Piece::Own(from..fpdu.payload_at));
            self.payload(fpdu).for_each(|(part, range)| each(Piece::Payload(part, range)));
            from = fpdu.payload_at;
        }
        each(Piece::Own(from..self.own.len()));
    }

    /// All bytes in their order, where they lie.
    pub fn slices<'a>(&'a self, mut each: impl FnMut(&'a [u8])) {
        self.pieces(|piece| match piece {
            Piece::Own(range) => each(&self.own[range]),
            Piece::Payload(part, range) => each(&part[range]),
        });
    }

    /// All bytes but the first `skip`, to be kept; none: `None`.
    pub fn rest(&self, skip: usize) -> Option<Payload> {
        let len_bytes = self.own.len() + self.fpdus.iter().map(|fpdu| fpdu.len).sum::<usize>();
        if skip >= len_bytes {
            return None;
        }
        let own = Buf::from(&self.own[..]);
        let (mut out, mut skip) = (Payload::new(), skip);
        self.pieces(|piece| {
            let (whole, range) = match piece {
                Piece::Own(range) => (&own, range),
                Piece::Payload(part, range) => (part, range),
            };
            let skipped = skip.min(range.len());
            skip -= skipped;
            out.push(whole.slice(range.start + skipped..range.end));
        });
        Some(out)
    }

    /// Forgets its content, and keeps memory for at most `fpdus_max` FPDUs.
    pub(crate) fn clear(&mut self, fpdus_max: usize) {
        if self.fpdus.capacity() > fpdus_max {
            *self = Self::default();
        }
        self.own.clear();
        self.fpdus.clear();
        self.bodies.clear();
    }
}

/// The unit at the front of a byte stream.
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
