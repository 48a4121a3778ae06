//! Buffers that O_DIRECT, sockets and RDMA can use without a copy: page-aligned, reference counted, sliceable.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment in bytes of every allocation.
pub const ALIGN_BYTES: usize = 4096;

/// One page-aligned allocation, always initialised.
struct Allocation {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the allocation is plain bytes; it is written only through a unique `BufMut`.
unsafe impl Send for Allocation {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for Allocation {}

impl Allocation {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGN_BYTES)
            .expect("a buffer is far smaller than the address space")
    }

    fn new(len: usize) -> Self {
        let capacity = len.max(1).next_multiple_of(ALIGN_BYTES);
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a non-zero size.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, capacity }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) };
    }
}

/// A shared, read-only view of an allocation. Cloning and slicing copy no bytes.
#[derive(Clone)]
pub struct Buf {
    allocation: Arc<Allocation>,
    start: usize,
    len: usize,
}

/// The only view of an allocation, writable.
pub struct BufMut {
    allocation: Arc<Allocation>,
    start: usize,
    len: usize,
}

impl BufMut {
    /// `len` zero bytes, starting at a page boundary.
    pub fn zeroed(len: usize) -> Self {
        Self { allocation: Arc::new(Allocation::new(len)), start: 0, len }
    }

    /// `len` bytes of unspecified content, for a read or a receive to fill.
    pub fn for_overwrite(len: usize) -> Self {
        Self::zeroed(len)
    }

    /// `len` bytes of unspecified content whose byte `aligned_at` lies at a page boundary: room for a header before
    /// a payload that has to be aligned.
    pub fn with_aligned(len: usize, aligned_at: usize) -> Self {
        let start = (ALIGN_BYTES - aligned_at % ALIGN_BYTES) % ALIGN_BYTES;
        Self { allocation: Arc::new(Allocation::new(start + len)), start, len }
    }

    /// Forgets all bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Forgets the first `count` bytes.
    ///
    /// # Panics
    /// Where `count` is larger than the length.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len, "advance past the end of a buffer");
        self.start += count;
        self.len -= count;
    }

    /// Gives up writing, so that the bytes can be shared.
    pub fn freeze(self) -> Buf {
        Buf { allocation: self.allocation, start: self.start, len: self.len }
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: start + len lies within the initialised allocation, which this view owns alone.
        unsafe { std::slice::from_raw_parts(self.allocation.start.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `BufMut` is unique by construction.
        unsafe { std::slice::from_raw_parts_mut(self.allocation.start.as_ptr().add(self.start), self.len) }
    }
}

impl Buf {
    /// No bytes.
    pub fn empty() -> Self {
        Self::from(&[][..])
    }

    /// A view of part of these bytes.
    ///
    /// # Panics
    /// Where the range does not lie within the buffer.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let from = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&at) => at + 1,
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len,
        };
        assert!(from <= to && to <= self.len, "slice {from}..{to} of a buffer of {} bytes", self.len);
        Self { allocation: self.allocation.clone(), start: self.start + from, len: to - from }
    }

    /// Whether the first byte lies at a page boundary.
    pub fn is_aligned(&self) -> bool {
        self.start.is_multiple_of(ALIGN_BYTES)
    }

    /// Bytes that this view keeps alive, for budgets of memory.
    pub fn retained_bytes(&self) -> usize {
        self.allocation.capacity
    }

    /// Makes the bytes writable where nobody else shares the allocation.
    ///
    /// # Errors
    /// Returns the buffer itself where it is shared.
    pub fn try_into_mut(mut self) -> Result<BufMut, Self> {
        if Arc::get_mut(&mut self.allocation).is_some() {
            Ok(BufMut { allocation: self.allocation, start: self.start, len: self.len })
        } else {
            Err(self)
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: start + len lies within the initialised allocation, which nobody writes while a `Buf` exists.
        unsafe { std::slice::from_raw_parts(self.allocation.start.as_ptr().add(self.start), self.len) }
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
        write!(f, "Buf({} bytes)", self.len)
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.len)
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buf {}
