//! How long to wait for a former holder of a disk to let go.

use std::time::Duration;

/// A holder keeps its claim for a moment after it let go: the kernel tears a killed process's io_uring down after its end, and
/// an answered operation holds its file until its loop turns again.
pub(crate) const RELEASE: Duration = Duration::from_secs(1);
/// Between two looks whether a claim is free.
pub(crate) const RELEASE_PAUSE: Duration = Duration::from_millis(10);
