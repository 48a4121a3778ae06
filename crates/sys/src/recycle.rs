//! Where the memory of buffers comes from and goes to: free lists by size, one set per thread.
//!
//! Promises: a thread keeps at most [`KEPT_BYTES_MAX`] of free memory, or what it was told by [`keep_free_memory`], and besides as much
//! as [`KEPT_SMALL_BYTES`], or an eighth, in small pieces, which large ones do not drive out; a buffer may be dropped on another thread than the one
//! that took it, and then serves that one. Allocations above the largest size class go straight back to the allocator, large
//! ones to the regions they are cut from ([`crate::pieces`]).
//!
//! Memory that goes to the kernel and comes back costs a fault and a clearing for each page, more than all else that is done with a
//! payload. So a server keeps what its cache lets go of in bursts, and gives it up by and by where nobody took it
//! ([`trim_free_memory`]).

use crate::{ALIGN_BYTES, pieces};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// Free memory that one thread keeps, in bytes, unless it is told otherwise.
pub(crate) const KEPT_BYTES_MAX: usize = 32 << 20;
pub(crate) const KEPT_SMALL_BYTES: usize = 4 << 20;
/// Most that one call of [`trim_free_memory`] gives up, in bytes: a thread that serves clients does not stop for long.
const TRIMMED_AT_ONCE: usize = 16 << 20;
/// What counts as small.
const SMALL_BYTES_MAX: usize = 36 * KIB;

const KIB: usize = 1024;

/// Capacities of recycled allocations in bytes. Powers of two, and each with a page more: a payload of that size often has a
/// header before it.
pub(crate) const CLASS_BYTES: [usize; 20] = [
    4 * KIB,
    8 * KIB,
    12 * KIB,
    16 * KIB,
    20 * KIB,
    32 * KIB,
    36 * KIB,
    64 * KIB,
    68 * KIB,
    128 * KIB,
    132 * KIB,
    256 * KIB,
    260 * KIB,
    512 * KIB,
    516 * KIB,
    1024 * KIB,
    1088 * KIB,
    2112 * KIB,
    4160 * KIB,
    8256 * KIB,
];

/// One page-aligned piece of memory, always initialised, and the count of its users.
pub(crate) struct Allocation {
    pub(crate) references: AtomicUsize,
    pub(crate) start: NonNull<u8>,
    pub(crate) capacity: usize,
    /// Index into [`CLASS_BYTES`]; none above the largest.
    class: Option<u8>,
    /// A word by page that readers leave for each other ([`crate::Buf::page_words`]); gone before anybody writes.
    pub(crate) page_words: OnceLock<Box<[AtomicU32]>>,
}

struct FreeLists {
    by_class: [Vec<NonNull<Allocation>>; CLASS_BYTES.len()],
    /// The shortest that each list was since the last trimming: so many at its front nobody took.
    shortest: [usize; CLASS_BYTES.len()],
    kept_bytes: usize,
    /// Of these, not in small pieces.
    kept_large_bytes: usize,
    kept_large_bytes_max: usize,
}

thread_local! {
    static FREE: RefCell<FreeLists> =
        const { RefCell::new(FreeLists {
            by_class: [const { Vec::new() }; CLASS_BYTES.len()],
            shortest: [0; CLASS_BYTES.len()],
            kept_bytes: 0,
            kept_large_bytes: 0,
            kept_large_bytes_max: KEPT_BYTES_MAX,
        }) };
}

impl Drop for FreeLists {
    fn drop(&mut self) {
        for allocation in self.by_class.iter_mut().flat_map(std::mem::take) {
            // SAFETY: what lies in a free list has no user.
            unsafe { release(allocation) };
        }
    }
}

/// What a piece of this class counts among the large ones.
fn large_bytes(class: usize) -> usize {
    if CLASS_BYTES[class] > SMALL_BYTES_MAX { CLASS_BYTES[class] } else { 0 }
}

/// Memory of at least `len` bytes with one reference.
pub(crate) fn take(len: usize, zeroed: bool) -> NonNull<Allocation> {
    let class = CLASS_BYTES.iter().position(|&capacity| capacity >= len);
    if let Some(class) = class
        && let Ok(Some(free)) = FREE.try_with(|lists| {
            let mut lists = lists.borrow_mut();
            let free = lists.by_class[class].pop()?;
            lists.shortest[class] = lists.shortest[class].min(lists.by_class[class].len());
            lists.kept_bytes -= CLASS_BYTES[class];
            lists.kept_large_bytes -= large_bytes(class);
            Some(free)
        })
    {
        // SAFETY: taken off the free list, so nobody else uses it.
        unsafe {
            let allocation = &mut *free.as_ptr();
            *allocation.references.get_mut() = 1;
            allocation.page_words.take();
            if zeroed {
                allocation.start.as_ptr().write_bytes(0, len);
            }
        }
        return free;
    }
    let capacity = class.map_or_else(|| len.next_multiple_of(ALIGN_BYTES), |class| CLASS_BYTES[class]);
    let start = match class {
        Some(class) if capacity >= pieces::PIECE_BYTES_LEAST => pieces::take(class),
        // SAFETY: the layout has a non-zero size.
        _ => NonNull::new(unsafe { alloc_zeroed(layout(capacity)) }),
    };
    let Some(start) = start else { handle_alloc_error(layout(capacity)) };
    let class = class.map(|class| class as u8);
    let (references, page_words) = (AtomicUsize::new(1), OnceLock::new());
    let allocation = Box::new(Allocation { references, start, capacity, class, page_words });
    NonNull::from(Box::leak(allocation))
}

/// Keeps the memory for the next `take` on this thread, or frees it.
///
/// # Safety
/// Nobody uses the allocation any more.
pub(crate) unsafe fn give_back(allocation: NonNull<Allocation>) {
    // SAFETY: the caller's promise.
    let class = unsafe { allocation.as_ref().class };
    // The lists are gone while the thread ends.
    let in_its_place = match class {
        Some(class) => FREE.try_with(|lists| lists.borrow_mut().keep(allocation, usize::from(class))).ok(),
        None => None,
    };
    for unused in in_its_place.unwrap_or_else(|| vec![allocation]) {
        // SAFETY: the caller's promise, or it lay in a free list and has no user.
        unsafe { release(unused) };
    }
}

/// Free memory in small pieces that is kept beside so much in large ones.
fn small_bytes_max(large_bytes_max: usize) -> usize {
    (large_bytes_max / KEPT_BYTES_MAX).max(1) * KEPT_SMALL_BYTES
}

/// This thread keeps so many bytes of free memory in large pieces from now on, [`KEPT_BYTES_MAX`] at least. Whoever raises it calls
/// [`trim_free_memory`] from time to time.
pub fn keep_free_memory(bytes: usize) {
    // The lists are gone while the thread ends.
    let _ = FREE.try_with(|lists| lists.borrow_mut().kept_large_bytes_max = bytes.max(KEPT_BYTES_MAX));
}

/// Gives up free memory of this thread that nobody took since the last call, a part at a time. What a thread keeps in any case stays.
pub fn trim_free_memory() {
    let unused = FREE.try_with(|lists| lists.borrow_mut().take_unused()).unwrap_or_default();
    for allocation in unused {
        // SAFETY: what lay in a free list has no user.
        unsafe { release(allocation) };
    }
}

impl FreeLists {
    /// Bytes over what may be kept, were a piece of this class kept too.
    fn excess(&self, class: usize) -> usize {
        let large_max = self.kept_large_bytes_max;
        let all = self.kept_bytes + CLASS_BYTES[class];
        let large = self.kept_large_bytes + large_bytes(class);
        (all.saturating_sub(large_max + small_bytes_max(large_max))).max(large.saturating_sub(large_max))
    }

    /// Keeps a piece; says which are given up for it: ones of other sizes that nobody took since the last trimming, so that what a thread
    /// worked with before does not keep out what it works with now. Where there are none, the piece itself.
    fn keep(&mut self, allocation: NonNull<Allocation>, class: usize) -> Vec<NonNull<Allocation>> {
        let mut given_up = Vec::new();
        loop {
            let excess = self.excess(class);
            if excess == 0 {
                break;
            }
            let idle = |other: usize| self.shortest[other] * CLASS_BYTES[other];
            let others = (0..CLASS_BYTES.len()).filter(|&other| other != class && idle(other) > 0);
            // Small pieces are few; that large ones do not drive them out is promised.
            let others = others.filter(|&other| (large_bytes(other) > 0) == (large_bytes(class) > 0));
            let Some(most) = others.max_by_key(|&other| idle(other)) else {
                given_up.push(allocation);
                return given_up;
            };
            let count = excess.div_ceil(CLASS_BYTES[most]).min(self.shortest[most]);
            given_up.extend(self.by_class[most].drain(..count));
            self.shortest[most] -= count;
            self.kept_bytes -= count * CLASS_BYTES[most];
            self.kept_large_bytes -= count * large_bytes(most);
        }
        self.kept_bytes += CLASS_BYTES[class];
        self.kept_large_bytes += large_bytes(class);
        self.by_class[class].push(allocation);
        given_up
    }

    /// Pieces that nobody took since the last call, beyond what is kept in any case.
    fn take_unused(&mut self) -> Vec<NonNull<Allocation>> {
        let kept_small_bytes = self.kept_bytes - self.kept_large_bytes;
        let mut beyond_large = self.kept_large_bytes.saturating_sub(KEPT_BYTES_MAX).min(TRIMMED_AT_ONCE);
        let mut beyond_small = kept_small_bytes.saturating_sub(KEPT_SMALL_BYTES).min(TRIMMED_AT_ONCE);
        let mut unused = Vec::new();
        for class in (0..CLASS_BYTES.len()).rev() {
            let large = large_bytes(class) > 0;
            let beyond = if large { &mut beyond_large } else { &mut beyond_small };
            let count = (*beyond / CLASS_BYTES[class]).min(self.shortest[class]);
            unused.extend(self.by_class[class].drain(..count));
            self.shortest[class] = self.by_class[class].len();
            let bytes = count * CLASS_BYTES[class];
            *beyond -= bytes;
            self.kept_bytes -= bytes;
            self.kept_large_bytes -= if large { bytes } else { 0 };
        }
        unused
    }
}

/// # Safety
/// Nobody uses the allocation any more.
unsafe fn release(allocation: NonNull<Allocation>) {
    // SAFETY: leaked from a box in `take`, and unused by the caller's promise.
    let allocation = unsafe { Box::from_raw(allocation.as_ptr()) };
    match allocation.class {
        Some(class) if allocation.capacity >= pieces::PIECE_BYTES_LEAST => {
            // SAFETY: taken in `take` with this class.
            unsafe { pieces::give_back(allocation.start, usize::from(class)) };
        }
        // SAFETY: allocated in `take` with the same layout.
        _ => unsafe { dealloc(allocation.start.as_ptr(), layout(allocation.capacity)) },
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN_BYTES).expect("a buffer is far smaller than the address space")
}

/// Free memory that this thread keeps, in bytes.
#[cfg(test)]
pub(crate) fn kept_bytes() -> usize {
    FREE.with(|lists| lists.borrow().kept_bytes)
}
