//! Queue of administrators' changes through named pipes, from the data plane to the control plane.
//!
//! Promises: the data plane never waits for it; a change that does not fit is returned for refusal.

use smb_server::PipeChange;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Limit of queued changes: each pipe waits for at most one, and a person makes few.
const CHANGES_MAX: usize = 64;

/// The data plane's end of the way.
pub struct PipeChanges(Sender<PipeChange>);

impl PipeChanges {
    /// A way, and its other end.
    pub fn new() -> (Self, Receiver<PipeChange>) {
        let (sender, changes) = channel(CHANGES_MAX);
        (Self(sender), changes)
    }

    /// Sends a change. The error has the pipe whose client gets the refusal.
    ///
    /// # Errors
    /// If too many are queued, or the receiver is gone.
    pub fn send(&self, change: PipeChange) -> Result<(), u64> {
        let pipe = change.pipe;
        self.0.try_send(change).map_err(|_| pipe)
    }
}
