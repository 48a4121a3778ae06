//! Sizes of the pieces that memory of buffers comes in.

/// Alignment in bytes of every allocation, and the size of a page.
pub const ALIGN_BYTES: usize = 4096;

/// Free memory in large pieces that the process keeps by default, in bytes.
pub(crate) const KEPT_BYTES_MAX: usize = 32 << 20;

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
    // From here on cut from spans.
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

/// Returns, of the other classes, the one with most bytes of free pieces that nobody took (`untaken`).
pub(crate) fn most_idle(untaken: &[usize], class: usize) -> Option<usize> {
    let idle = |other: usize| untaken[other] * CLASS_BYTES[other];
    let others = (0..untaken.len()).filter(|&other| other != class && idle(other) > 0);
    others.max_by_key(|&other| idle(other))
}
