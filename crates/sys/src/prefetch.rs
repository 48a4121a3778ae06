//! Telling the processor what will be needed.

/// Bytes that a processor fetches at a time.
const CACHE_LINE_BYTES: usize = 64;

/// Asks for all of `value` at once, before it is used field by field: what has left the processor's cache meanwhile would else be waited for
/// line by line. Of what it points to nothing is asked for. No effect but on time.
#[inline]
pub fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<i8>();
    for at in (0..size_of::<T>()).step_by(CACHE_LINE_BYTES) {
        fetch(start.wrapping_add(at));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn fetch(address: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing that the program could see, at any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn fetch(_: *const i8) {}
