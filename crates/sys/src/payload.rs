//! Payload on its way between socket and disk: a list of buffer slices, handed down without a copy.

use crate::Buf;
use smallvec::SmallVec;

/// Bytes as a list of slices, in order.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    parts: SmallVec<[Buf; 2]>,
    len: usize,
}

impl Payload {
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// No bytes, with room for this many parts.
    pub fn with_capacity(parts: usize) -> Self {
        Self { parts: SmallVec::with_capacity(parts), len: 0 }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub fn push(&mut self, part: Buf) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(part);
        }
    }

    pub fn append(&mut self, mut other: Payload) {
        // Space that was made for parts is kept.
        if self.is_empty() && !self.parts.spilled() {
            *self = other;
        } else {
            self.len += other.len;
            match other.parts.len() {
                1 => self.parts.extend(other.parts.pop()),
                _ => self.parts.append(&mut other.parts),
            }
        }
    }

    #[inline]
    pub fn parts(&self) -> &[Buf] {
        &self.parts
    }

    /// A view of `len` bytes from `start`.
    ///
    /// # Panics
    /// When the range does not lie within the payload.
    #[must_use]
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len, "slice {start}+{len} of a payload of {} bytes", self.len);
        if len == self.len {
            return self.clone();
        }
        let (mut skip, mut want, mut out) = (start, len, Self::with_capacity(self.parts.len()));
        for part in &self.parts {
            if want == 0 {
                break;
            }
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            let take = want.min(part.len() - skip);
            out.push(part.slice(skip..skip + take));
            skip = 0;
            want -= take;
        }
        out
    }

    /// Copies all bytes to the front of `target`, which must be long enough.
    pub fn copy_to(&self, target: &mut [u8]) {
        let mut at = 0;
        for part in &self.parts {
            target[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    /// The bytes as one slice: no copy if there is one part already.
    pub fn contiguous(&self) -> Buf {
        if let [only] = &self.parts[..] {
            return only.clone();
        }
        let mut whole = crate::BufMut::for_overwrite(self.len);
        self.copy_to(&mut whole);
        whole.freeze()
    }

    /// As [`Self::contiguous`], for bytes that are wanted only so: one part is given as it is, shared with nobody more than before.
    pub fn into_contiguous(mut self) -> Buf {
        match self.parts.len() {
            1 => self.parts.pop().unwrap_or_else(Buf::empty),
            _ => self.contiguous(),
        }
    }
}

impl From<Buf> for Payload {
    fn from(part: Buf) -> Self {
        let mut payload = Self::new();
        payload.push(part);
        payload
    }
}
