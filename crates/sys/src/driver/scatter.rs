//! One receive into two buffers by turns: payload into its place, and the bytes between elsewhere.
//!
//! Owns both buffers and the order in which the stream fills them. Promises: no piece reaches out of
//! its buffer and no two share a byte; a piece that would break this ends the list.

use crate::BufMut;
use std::io::IoSliceMut;
use std::ops::Range;

/// A buffer of [`Scatter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// [`Scatter::payload`].
    Payload,
    /// [`Scatter::between`].
    Between,
}

/// The next bytes of the stream go here. Pieces of one buffer are in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Buffer of the piece.
    pub place: Place,
    /// Bytes of the buffer that the piece fills.
    pub range: Range<usize>,
}

/// Where a receive puts its bytes; see [`super::IoOperation::ReceiveScattered`].
#[derive(Debug)]
pub struct Scatter {
    /// Buffer for payload.
    pub payload: BufMut,
    /// Buffer for the bytes between payloads.
    pub between: BufMut,
    /// Pieces in the order of the stream.
    pub pieces: Vec<Piece>,
}

impl Scatter {
    /// The bytes of a piece; none if it lies outside of its buffer.
    pub fn bytes(&self, piece: &Piece) -> &[u8] {
        let buffer = match piece.place {
            Place::Payload => &self.payload,
            Place::Between => &self.between,
        };
        buffer.get(piece.range.clone()).unwrap_or_default()
    }

    /// Calls `each` with the pieces in order, `most` at most.
    pub(super) fn slices<'a>(&'a mut self, most: usize, mut each: impl FnMut(IoSliceMut<'a>)) {
        let mut payload = Rest { bytes: &mut self.payload, start: 0 };
        let mut between = Rest { bytes: &mut self.between, start: 0 };
        for piece in self.pieces.iter().take(most) {
            let rest = match piece.place {
                Place::Payload => &mut payload,
                Place::Between => &mut between,
            };
            let Some(slice) = rest.cut(&piece.range) else { return };
            each(IoSliceMut::new(slice));
        }
    }
}

/// The part of a buffer that no piece has taken: everything from `start` on.
struct Rest<'a> {
    bytes: &'a mut [u8],
    start: usize,
}

impl<'a> Rest<'a> {
    fn cut(&mut self, range: &Range<usize>) -> Option<&'a mut [u8]> {
        let skip = range.start.checked_sub(self.start)?;
        let len = range.end.checked_sub(range.start)?;
        if skip.checked_add(len)? > self.bytes.len() {
            return None;
        }
        let (_, rest) = std::mem::take(&mut self.bytes).split_at_mut(skip);
        let (slice, rest) = rest.split_at_mut(len);
        (self.bytes, self.start) = (rest, range.end);
        Some(slice)
    }
}
