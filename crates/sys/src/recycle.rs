//! Where the memory of buffers comes from and goes to: small ones by free lists, one set per thread, large ones by the process's spans
//! ([`crate::spans`]).
//!
//! Promises: the process keeps at most [`KEPT_BYTES_MAX`] of free memory in large pieces, or the number
//! given to [`keep_free_memory`], and a thread keeps [`KEPT_SMALL_BYTES`] in small ones, or an eighth
//! of the number that it gave. A small buffer may be dropped on another thread than the one that took
//! it, and then serves that one. Allocations above the largest size class go straight back to the
//! allocator.
//!
//! Memory that goes to the kernel and comes back costs a fault and a clearing for each page, more than all else that is done with a
//! payload. So a server keeps what its cache lets go of in bursts, and gives it up by and by if nobody took it
//! ([`trim_free_memory`]).

use crate::sizes::{ALIGN_BYTES, CLASS_BYTES, KEPT_BYTES_MAX, most_idle};
use crate::spans::{self, Piece};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Free memory in small pieces that a thread keeps.
pub(crate) const KEPT_SMALL_BYTES: usize = 4 << 20;
/// Most that one call of [`trim_free_memory`] gives up, in bytes: a thread that serves clients does not stop for long.
const TRIMMED_AT_ONCE: usize = 16 << 20;

/// Classes that are small.
const SMALL: usize = 7;

/// One page-aligned piece of memory, always initialised, and the count of its users.
pub(crate) struct Allocation {
    pub(crate) references: AtomicUsize,
    pub(crate) start: NonNull<u8>,
    pub(crate) capacity: usize,
    origin: Origin,
    /// A word by page that readers leave for each other ([`crate::Buf::page_words`]); gone before anybody writes.
    pub(crate) page_words: OnceLock<Box<[AtomicU32]>>,
    /// The kernel was given pages of it, which others read for as long as they like: it is never written again.
    pub(crate) is_lent: AtomicBool,
    /// Pages that were copied to a socket, counted until they are enough to lend it.
    pub(crate) sent_pages: AtomicU32,
}

impl Allocation {
    /// Pages can be given to the kernel for good, and others taken instead.
    pub(crate) fn is_lendable(&self) -> bool {
        self.has_own_pages() && spans::lends()
    }

    pub(crate) fn has_own_pages(&self) -> bool {
        matches!(self.origin, Origin::Span(_))
    }
}

/// Where an allocation goes back to.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// Index into the small ones of [`CLASS_BYTES`].
    Small(u8),
    Span(Piece),
    Allocator,
}

/// Small pieces.
struct FreeLists {
    by_class: [Vec<NonNull<Allocation>>; SMALL],
    /// The shortest that each list was since the last trimming: this many at its front nobody took.
    shortest: [usize; SMALL],
    kept_bytes: usize,
    kept_bytes_max: usize,
}

thread_local! {
    static FREE: RefCell<FreeLists> =
        const { RefCell::new(FreeLists {
            by_class: [const { Vec::new() }; SMALL],
            shortest: [0; SMALL],
            kept_bytes: 0,
            kept_bytes_max: KEPT_SMALL_BYTES,
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

/// Memory of at least `len` bytes with one reference.
pub(crate) fn take(len: usize, zeroed: bool) -> NonNull<Allocation> {
    let class = CLASS_BYTES.iter().position(|&capacity| capacity >= len);
    if let Some(class) = class
        && class < SMALL
        && let Ok(Some(free)) = FREE.try_with(|lists| lists.borrow_mut().take(class))
    {
        // SAFETY: taken off the free list, so nobody else uses it.
        unsafe {
            let allocation = &mut *free.as_ptr();
            *allocation.references.get_mut() = 1;
            allocation.page_words.take();
            *allocation.sent_pages.get_mut() = 0;
            if zeroed {
                allocation.start.as_ptr().write_bytes(0, len);
            }
        }
        return free;
    }
    let capacity = class.map_or_else(|| len.next_multiple_of(ALIGN_BYTES), |class| CLASS_BYTES[class]);
    let taken = match class {
        Some(class) if class >= SMALL => spans::take(class).map(|(piece, zero)| {
            if zeroed && !zero {
                // SAFETY: the piece is as long as its class says, and ours alone.
                unsafe { piece.start.as_ptr().write_bytes(0, len) };
            }
            (piece.start, Origin::Span(piece))
        }),
        _ => {
            let origin = class.map_or(Origin::Allocator, |class| Origin::Small(class as u8));
            // SAFETY: the layout has a non-zero size.
            NonNull::new(unsafe { alloc_zeroed(layout(capacity)) }).map(|start| (start, origin))
        }
    };
    let Some((start, origin)) = taken else { handle_alloc_error(layout(capacity)) };
    let (references, page_words) = (AtomicUsize::new(1), OnceLock::new());
    let (is_lent, sent_pages) = (AtomicBool::new(false), AtomicU32::new(0));
    let allocation =
        Box::new(Allocation { references, start, capacity, origin, page_words, is_lent, sent_pages });
    NonNull::from(Box::leak(allocation))
}

/// Keeps the memory for another `take`, or frees it.
///
/// # Safety
/// Nobody uses the allocation any more.
pub(crate) unsafe fn give_back(allocation: NonNull<Allocation>) {
    // SAFETY: the caller's promise.
    let unused = match unsafe { allocation.as_ref().origin } {
        // The lists are gone while the thread ends.
        Origin::Small(class) => FREE
            .try_with(|lists| lists.borrow_mut().keep(allocation, usize::from(class)))
            .unwrap_or_else(|_| vec![allocation]),
        Origin::Span(_) | Origin::Allocator => {
            // SAFETY: the caller's promise.
            return unsafe { release(allocation) };
        }
    };
    for unused in unused {
        // SAFETY: the caller's promise, or it lay in a free list and has no user.
        unsafe { release(unused) };
    }
}

/// The process keeps this many bytes of free memory in large pieces from now on, [`KEPT_BYTES_MAX`] at least, and this thread an eighth of
/// it in small ones. A caller that raises it calls [`trim_free_memory`] from time to time.
pub fn keep_free_memory(bytes: usize) {
    let bytes = bytes.max(KEPT_BYTES_MAX);
    spans::keep(bytes);
    // The lists are gone while the thread ends.
    let _ =
        FREE.try_with(|lists| lists.borrow_mut().kept_bytes_max = bytes / KEPT_BYTES_MAX * KEPT_SMALL_BYTES);
}

/// A thread of the process touches memory for large buffers before they are needed, from now on: up to 64 MiB more than is in use, while there
/// is demand.
pub fn populate_memory_ahead() {
    spans::populate_ahead();
}

/// Gives up free memory that nobody took since the last call, the process's in large pieces and this thread's in small ones, a part at
/// a time. Memory that is kept in any case stays.
pub fn trim_free_memory() {
    spans::trim(KEPT_BYTES_MAX, TRIMMED_AT_ONCE);
    let unused = FREE.try_with(|lists| lists.borrow_mut().take_unused()).unwrap_or_default();
    for allocation in unused {
        // SAFETY: what lay in a free list has no user.
        unsafe { release(allocation) };
    }
}

impl FreeLists {
    fn take(&mut self, class: usize) -> Option<NonNull<Allocation>> {
        let free = self.by_class[class].pop()?;
        self.shortest[class] = self.shortest[class].min(self.by_class[class].len());
        self.kept_bytes -= CLASS_BYTES[class];
        Some(free)
    }

    /// Keeps a piece; says which are given up for it: ones of other sizes that nobody took since the last trimming, so that what a thread
    /// worked with before does not keep out what it works with now. If there are none, the piece itself.
    fn keep(&mut self, allocation: NonNull<Allocation>, class: usize) -> Vec<NonNull<Allocation>> {
        let mut given_up = Vec::new();
        loop {
            let excess = (self.kept_bytes + CLASS_BYTES[class]).saturating_sub(self.kept_bytes_max);
            if excess == 0 {
                break;
            }
            let Some(most) = most_idle(&self.shortest, class) else {
                given_up.push(allocation);
                return given_up;
            };
            let count = excess.div_ceil(CLASS_BYTES[most]).min(self.shortest[most]);
            given_up.extend(self.by_class[most].drain(..count));
            self.shortest[most] -= count;
            self.kept_bytes -= count * CLASS_BYTES[most];
        }
        self.kept_bytes += CLASS_BYTES[class];
        self.by_class[class].push(allocation);
        given_up
    }

    /// Pieces that nobody took since the last call, beyond what is kept in any case.
    fn take_unused(&mut self) -> Vec<NonNull<Allocation>> {
        let mut beyond = self.kept_bytes.saturating_sub(KEPT_SMALL_BYTES).min(TRIMMED_AT_ONCE);
        let mut unused = Vec::new();
        for class in (0..SMALL).rev() {
            let count = (beyond / CLASS_BYTES[class]).min(self.shortest[class]);
            unused.extend(self.by_class[class].drain(..count));
            self.shortest[class] = self.by_class[class].len();
            beyond -= count * CLASS_BYTES[class];
            self.kept_bytes -= count * CLASS_BYTES[class];
        }
        unused
    }
}

/// # Safety
/// Nobody uses the allocation any more.
unsafe fn release(allocation: NonNull<Allocation>) {
    // SAFETY: leaked from a box in `take`, and unused by the caller's promise.
    let allocation = unsafe { Box::from_raw(allocation.as_ptr()) };
    match allocation.origin {
        // SAFETY: taken in `take`, and unused by the caller's promise.
        Origin::Span(piece) => unsafe {
            if allocation.is_lent.load(Ordering::Relaxed) {
                spans::give_up_lent(piece);
            } else {
                spans::give_back(piece);
            }
        },
        // SAFETY: allocated in `take` with the same layout.
        _ => unsafe { dealloc(allocation.start.as_ptr(), layout(allocation.capacity)) },
    }
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN_BYTES).expect("a buffer is far smaller than the address space")
}

/// Free memory in small pieces that this thread keeps, in bytes.
#[cfg(test)]
pub(crate) fn kept_bytes() -> usize {
    FREE.with(|lists| lists.borrow().kept_bytes)
}
