//! The clock that the data plane's thread reads once per turn and hands down as an argument.

use types::Monotonic;

/// CLOCK_BOOTTIME: it continues while the machine is suspended, so that a lease is over when the machine wakes up.
pub fn monotonic_now() -> Monotonic {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The C library reads it without entering the kernel, also under tools that hide the vDSO (valgrind).
    // SAFETY: `now` is a valid place for the kernel's answer. The clock exists on every Linux: it cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Monotonic(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
