//! One buffer per thread in which scattered messages are put together for algorithms that want one slice.

use std::cell::RefCell;

/// Largest capacity in bytes that is kept between calls.
const KEPT_BYTES: usize = 2 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `use_it` with an empty buffer that is used again by the next call on this thread.
pub(super) fn with_scratch<R>(use_it: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = SCRATCH.with(RefCell::take);
    buffer.clear();
    let result = use_it(&mut buffer);
    if buffer.capacity() <= KEPT_BYTES {
        SCRATCH.with(|kept| kept.replace(buffer));
    }
    result
}
