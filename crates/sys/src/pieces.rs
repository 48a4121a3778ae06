//! Address space that large buffers are cut from: aligned to huge pages, which the kernel is asked to use.
//!
//! A fault for each 4 KiB of a fresh buffer, and clearing it twice, would cost more than moving the bytes. Promises: a piece is
//! zeroed when it is taken, without work of ours; given back, its memory goes to the kernel at once. Address space is kept for
//! pieces of the same size, so that it grows with the most that was ever in use, memory does not.

use crate::recycle::CLASS_BYTES;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smaller pieces are the allocator's.
pub(crate) const PIECE_BYTES_LEAST: usize = 64 << 10;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Pieces are cut from regions of about this size.
const REGION_BYTES: usize = 16 << 20;

/// Addresses of pieces that hold no memory, by class.
static FREE: Mutex<[Vec<usize>; CLASS_BYTES.len()]> = Mutex::new([const { Vec::new() }; CLASS_BYTES.len()]);

fn free_pieces() -> MutexGuard<'static, [Vec<usize>; CLASS_BYTES.len()]> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A piece of a class, all zeroes. `None`: the kernel has no address space left.
pub(crate) fn take(class: usize) -> Option<NonNull<u8>> {
    let mut free = free_pieces();
    let pieces = free.get_mut(class)?;
    if pieces.is_empty() {
        let len = *CLASS_BYTES.get(class)?;
        let count = (REGION_BYTES / len).max(1);
        let start = map((count * len).next_multiple_of(HUGE_PAGE_BYTES))?;
        pieces.extend((0..count).rev().map(|nth| start + nth * len));
    }
    NonNull::new(pieces.pop()? as *mut u8)
}

/// # Safety
/// The piece was taken with the same class, and nobody uses it any more.
pub(crate) unsafe fn give_back(piece: NonNull<u8>, class: usize) {
    // SAFETY: by the caller's promise the whole piece is ours and unused; what is read there later are zeroes.
    unsafe { libc::madvise(piece.as_ptr().cast(), CLASS_BYTES[class], libc::MADV_DONTNEED) };
    free_pieces()[class].push(piece.as_ptr() as usize);
}

/// Maps `len` bytes at a multiple of a huge page.
fn map(len: usize) -> Option<usize> {
    let whole = len + HUGE_PAGE_BYTES;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the place, so nothing that is in use changes.
    let mapped =
        unsafe { libc::mmap(std::ptr::null_mut(), whole, protection, flags | libc::MAP_NORESERVE, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let start = (mapped as usize).next_multiple_of(HUGE_PAGE_BYTES);
    let (before, behind) = (start - mapped as usize, mapped as usize + whole - (start + len));
    // SAFETY: both lie within what was just mapped, and outside of what is kept.
    unsafe {
        if before > 0 {
            libc::munmap(mapped, before);
        }
        if behind > 0 {
            libc::munmap((start + len) as *mut libc::c_void, behind);
        }
        // Advice only: without huge pages it is slower.
        libc::madvise(start as *mut libc::c_void, len, libc::MADV_HUGEPAGE);
    }
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_comes_back_is_taken_again_and_is_zero_again() {
        // A class that no other test takes.
        let class = CLASS_BYTES.iter().position(|&bytes| bytes == 132 << 10).expect("a class");
        let first = take(class).expect("address space");
        // SAFETY: the piece is as long as its class says, and ours.
        unsafe {
            first.as_ptr().write_bytes(0xaa, CLASS_BYTES[class]);
            give_back(first, class);
        }
        let second = take(class).expect("address space");
        assert_eq!(first, second);
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(second.as_ptr(), CLASS_BYTES[class]) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        // SAFETY: as above.
        unsafe { give_back(second, class) };
    }

    #[test]
    fn pieces_of_a_region_do_not_overlap_and_begin_at_pages() {
        let class = CLASS_BYTES.iter().position(|&bytes| bytes == 260 << 10).expect("a class");
        let mut pieces: Vec<usize> =
            (0..100).map(|_| take(class).expect("address space").as_ptr() as usize).collect();
        pieces.sort_unstable();
        assert!(pieces.windows(2).all(|pair| pair[0] + CLASS_BYTES[class] <= pair[1]));
        assert!(pieces.iter().all(|piece| piece % crate::ALIGN_BYTES == 0));
        for piece in pieces {
            let piece = NonNull::new(piece as *mut u8).expect("an address");
            // SAFETY: taken above with this class, and not used since.
            unsafe { give_back(piece, class) };
        }
    }
}
