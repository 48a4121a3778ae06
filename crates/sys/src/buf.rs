//! Buffers that O_DIRECT, sockets and RDMA can use without a copy: page-aligned, reference counted, sliceable.
//!
//! Promises: taking and dropping a buffer costs no visit to the kernel once enough memory is in use
//! (see [`crate::recycle`]). Memory is always initialised, so that "unspecified content" means bytes of an earlier buffer.

use crate::recycle::{Allocation, give_back, take};
use crate::sizes::ALIGN_BYTES;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::sync::atomic::{self, AtomicU32, Ordering};

/// Longest buffer.
pub const BUFFER_BYTES_MAX: usize = u32::MAX as usize - ALIGN_BYTES;

/// Smaller allocations keep no words about their pages: what is worth one there costs little more than the word.
const PAGE_WORDS_FROM_BYTES: usize = 4 * ALIGN_BYTES;

/// One counted reference to an allocation.
struct Shared(NonNull<Allocation>);

// SAFETY: the allocation is plain bytes behind an atomic count; it is written only through a unique `BufMut`.
unsafe impl Send for Shared {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(len: usize, zeroed: bool) -> Self {
        Self(take(len, zeroed))
    }

    fn allocation(&self) -> &Allocation {
        // SAFETY: the allocation lives until its last reference is dropped, and this is one.
        unsafe { self.0.as_ref() }
    }

    /// Whether nobody else shares the allocation, the kernel included, which may be written then.
    fn make_writable(&mut self) -> bool {
        // Acquire: what other threads did with their references happens before this thread's writes.
        let unique = self.allocation().references.load(Ordering::Acquire) == 1
            && !self.allocation().is_lent.load(Ordering::Relaxed);
        if unique {
            // SAFETY: this is the only reference, and it is borrowed alone.
            unsafe { self.0.as_mut() }.page_words.take();
        }
        unique
    }
}

impl Clone for Shared {
    #[inline]
    fn clone(&self) -> Self {
        let before = self.allocation().references.fetch_add(1, Ordering::Relaxed);
        if before > isize::MAX as usize {
            // Only leaked references can get here; an overflow would free memory in use.
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        let references = &self.allocation().references;
        // Where this is the only reference nobody can make another one: the dearer subtraction is not needed.
        let last = references.load(Ordering::Acquire) == 1 || references.fetch_sub(1, Ordering::Release) == 1;
        if last {
            atomic::fence(Ordering::Acquire);
            // SAFETY: this was the last reference, and every use of the others happens before (the fence).
            unsafe { give_back(self.0) };
        }
    }
}

/// First byte and length, both below 4 GiB, in one word: with the reference beside it a view is two words, which calls pass in registers.
/// When a view was three words, each call wrote it to memory word by word and read it back in other parts, for which a processor waits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Span(NonZeroU64);

impl Span {
    const EMPTY: Self = Self(NonZeroU64::MIN);

    /// # Panics
    /// When the bytes do not end within 4 GiB.
    #[inline]
    fn new(start: usize, len: usize) -> Self {
        assert!(start.checked_add(len).is_some_and(|end| end < u32::MAX as usize), "a buffer of 4 GiB");
        // The length counts from one: the word is never zero.
        Self(NonZeroU64::MIN.saturating_add((start as u64) << 32 | len as u64))
    }

    #[inline]
    fn start(self) -> usize {
        (self.0.get() >> 32) as usize
    }

    #[inline]
    fn len(self) -> usize {
        self.0.get() as u32 as usize - 1
    }
}

/// A shared, read-only view of an allocation. Cloning and slicing copy no bytes.
#[derive(Clone)]
pub struct Buf {
    /// `None` only if there are no bytes.
    shared: Option<Shared>,
    span: Span,
}

/// The only view of an allocation, writable.
pub struct BufMut {
    /// `None` only if there are no bytes.
    shared: Option<Shared>,
    span: Span,
}

impl BufMut {
    /// `len` zero bytes, starting at a page boundary.
    ///
    /// # Panics
    /// For more than [`BUFFER_BYTES_MAX`], as every other way to make a buffer.
    pub fn zeroed(len: usize) -> Self {
        Self::new(0, len, true)
    }

    /// `len` bytes of unspecified content, for a read or a receive to fill.
    pub fn for_overwrite(len: usize) -> Self {
        Self::new(0, len, false)
    }

    /// `len` bytes of unspecified content whose byte `aligned_at` lies at a page boundary: space for a header before
    /// a payload that has to be aligned.
    pub fn with_aligned(len: usize, aligned_at: usize) -> Self {
        let start = (ALIGN_BYTES - aligned_at % ALIGN_BYTES) % ALIGN_BYTES;
        Self::new(start, len, false)
    }

    fn new(start: usize, len: usize, zeroed: bool) -> Self {
        if len == 0 {
            return Self { shared: None, span: Span::EMPTY };
        }
        let span = Span::new(start, len);
        Self { shared: Some(Shared::new(start + len, zeroed)), span }
    }

    /// Forgets all bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.span = Span::new(self.span.start(), self.len().min(len));
    }

    /// Forgets the first `count` bytes.
    ///
    /// # Panics
    /// When `count` is larger than the length.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "advance past the end of a buffer");
        self.span = Span::new(self.span.start() + count, self.len() - count);
    }

    /// Whether the first byte lies at a page boundary.
    #[inline]
    pub fn is_aligned(&self) -> bool {
        self.span.start().is_multiple_of(ALIGN_BYTES)
    }

    /// Bytes that this view keeps alive, for budgets of memory.
    #[inline]
    pub fn retained_bytes(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.allocation().capacity)
    }

    /// Gives up writing, so that the bytes can be shared.
    #[inline]
    pub fn freeze(self) -> Buf {
        Buf { shared: self.shared, span: self.span }
    }
}

impl Deref for BufMut {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        bytes(self.shared.as_ref(), self.span)
    }
}

impl DerefMut for BufMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let Some(shared) = &self.shared else { return &mut [] };
        // SAFETY: start + len lies within the initialised allocation; `BufMut` is its only view by construction.
        unsafe {
            let start = shared.allocation().start.as_ptr().add(self.span.start());
            std::slice::from_raw_parts_mut(start, self.span.len())
        }
    }
}

#[inline]
fn bytes(shared: Option<&Shared>, span: Span) -> &[u8] {
    let Some(shared) = shared else { return &[] };
    // SAFETY: start + len lies within the initialised allocation, which lives as long as `shared` and is written only through
    // a `BufMut`, of which there is none beside this view.
    unsafe { std::slice::from_raw_parts(shared.allocation().start.as_ptr().add(span.start()), span.len()) }
}

impl Buf {
    /// No bytes.
    #[inline]
    pub fn empty() -> Self {
        Self { shared: None, span: Span::EMPTY }
    }

    /// A view of part of these bytes.
    ///
    /// # Panics
    /// When the range does not lie within the buffer.
    #[must_use]
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let span = self.checked(range);
        Self { shared: self.shared.clone(), span }
    }

    /// As [`Self::slice`], for bytes of which no more than that is wanted: they are shared with nobody more than before.
    ///
    /// # Panics
    /// When the range does not lie within the buffer.
    #[must_use]
    #[inline]
    pub fn into_slice(self, range: impl RangeBounds<usize>) -> Self {
        let span = self.checked(range);
        Self { shared: self.shared, span }
    }

    /// The view of bytes that were borrowed from this one; `None` if they lie elsewhere.
    #[inline]
    pub fn view_of(&self, part: &[u8]) -> Option<Self> {
        let at = part.as_ptr().addr().checked_sub(self.as_ptr().addr())?;
        let end = at.checked_add(part.len()).filter(|&end| end <= self.len())?;
        Some(self.slice(at..end))
    }

    /// A range of this view.
    #[inline]
    fn checked(&self, range: impl RangeBounds<usize>) -> Span {
        let from = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&at) => at + 1,
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len(),
        };
        assert!(from <= to && to <= self.len(), "slice {from}..{to} of a buffer of {} bytes", self.len());
        Span::new(self.span.start() + from, to - from)
    }

    /// Whether the first byte lies at a page boundary.
    pub fn is_aligned(&self) -> bool {
        self.span.start().is_multiple_of(ALIGN_BYTES)
    }

    /// How far the byte at `at` of this view lies behind the start of a page of its memory.
    #[inline]
    pub fn behind_page(&self, at: usize) -> usize {
        (self.span.start() + at) % ALIGN_BYTES
    }

    /// Bytes that this view keeps alive, for budgets of memory.
    #[inline]
    pub fn retained_bytes(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.allocation().capacity)
    }

    /// A word for each page of this view, if it is whole pages of a larger allocation: a caller that computes from a page what others
    /// will want again leaves it there. Zero: nobody did. All views of the allocation share the words, and they are gone once it is
    /// written again.
    pub fn page_words(&self) -> Option<&[AtomicU32]> {
        self.page_words_in(..)
    }

    /// As [`Self::page_words`], of a part of this view.
    ///
    /// # Panics
    /// When the range does not lie within the buffer.
    pub fn page_words_in(&self, range: impl RangeBounds<usize>) -> Option<&[AtomicU32]> {
        let (span, allocation) = (self.checked(range), self.shared.as_ref()?.allocation());
        if !span.start().is_multiple_of(ALIGN_BYTES)
            || !span.len().is_multiple_of(ALIGN_BYTES)
            || allocation.capacity < PAGE_WORDS_FROM_BYTES
        {
            return None;
        }
        let zeroes = || (0..allocation.capacity / ALIGN_BYTES).map(|_| AtomicU32::new(0)).collect();
        let words: &[AtomicU32] = allocation.page_words.get_or_init(zeroes);
        words.get(span.start() / ALIGN_BYTES..(span.start() + span.len()) / ALIGN_BYTES)
    }

    /// Whether its pages may be lent ([`crate::driver::Lender`]).
    pub(crate) fn is_lendable(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.allocation().is_lendable())
    }

    /// The bytes, to be given to the kernel by reference: they are not written any more from now on, by anybody and for ever, and their
    /// memory goes to the kernel with the last view.
    ///
    /// # Panics
    /// If it is no memory of which pages may leave ([`Self::is_lendable`]).
    pub(crate) fn lend(&self) -> &[u8] {
        if let Some(shared) = &self.shared {
            assert!(
                shared.allocation().has_own_pages(),
                "memory is lent that is used for something else later"
            );
            // A thread that drops the last reference, or asks for a writable buffer, sees this: it happens before this reference is dropped.
            shared.allocation().is_lent.store(true, Ordering::Relaxed);
        }
        self
    }

    /// Counts bytes of this view that were copied to a socket.
    pub(crate) fn count_sent(&self, bytes: usize) {
        let Some(shared) = &self.shared else { return };
        let pages = &shared.allocation().sent_pages;
        // A count that another thread's makes wrong costs a copy more, or one less.
        let counted = pages.load(Ordering::Relaxed).saturating_add((bytes / ALIGN_BYTES) as u32);
        pages.store(counted, Ordering::Relaxed);
    }

    /// How many times over the allocation was copied to sockets.
    pub(crate) fn sends(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| {
            let allocation = shared.allocation();
            allocation.sent_pages.load(Ordering::Relaxed) as usize / (allocation.capacity / ALIGN_BYTES)
        })
    }

    /// Makes the bytes writable if nobody else shares the allocation, and no pages of it were lent.
    ///
    /// # Errors
    /// Returns the buffer itself if it is shared.
    pub fn try_into_mut(mut self) -> Result<BufMut, Self> {
        if self.shared.as_mut().is_none_or(Shared::make_writable) {
            Ok(BufMut { shared: self.shared, span: self.span })
        } else {
            Err(self)
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        bytes(self.shared.as_ref(), self.span)
    }
}

impl From<&[u8]> for Buf {
    /// Copies the bytes.
    fn from(bytes: &[u8]) -> Self {
        let mut buf = BufMut::for_overwrite(bytes.len());
        buf.copy_from_slice(bytes);
        buf.freeze()
    }
}

impl From<BufMut> for Buf {
    fn from(buf: BufMut) -> Self {
        buf.freeze()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.len())
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buf {}

#[cfg(test)]
#[path = "buf_tests.rs"]
mod tests;
