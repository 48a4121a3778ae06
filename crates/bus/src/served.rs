//! Backends of a node's SMB server: volumes of files, and the disks on the bus.

use crate::exports::{Exports, LocalDisks};
use types::Monotonic;
use volume::backend::{Backend, Event, OpenId, Operation, OperationId, Ruling, Standing};

/// One of an SMB server's backends: a volume `B`, or the share `bus$` over the disks `L`.
pub enum Served<B, L> {
    Volume(B),
    Bus(Exports<L>),
}

impl<B, L> Served<B, L> {
    /// The volume of files, if it is one.
    pub fn volume(&self) -> Option<&B> {
        match self {
            Self::Volume(volume) => Some(volume),
            Self::Bus(_) => None,
        }
    }

    /// As [`Self::volume`].
    pub fn volume_mut(&mut self) -> Option<&mut B> {
        match self {
            Self::Volume(volume) => Some(volume),
            Self::Bus(_) => None,
        }
    }

    /// As [`Self::volume`].
    pub fn into_volume(self) -> Option<B> {
        match self {
            Self::Volume(volume) => Some(volume),
            Self::Bus(_) => None,
        }
    }
}

impl<B: Backend, L: LocalDisks> Backend for Served<B, L> {
    #[inline]
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic) {
        match self {
            Self::Volume(volume) => volume.submit(operation, request, now),
            Self::Bus(exports) => exports.submit(operation, request, now),
        }
    }

    fn cancel(&mut self, operation: OperationId) {
        match self {
            Self::Volume(volume) => volume.cancel(operation),
            Self::Bus(exports) => exports.cancel(operation),
        }
    }

    fn lock_count(&self, open: OpenId) -> usize {
        match self {
            Self::Volume(volume) => volume.lock_count(open),
            Self::Bus(_) => 0,
        }
    }

    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, now: Monotonic) {
        match self {
            Self::Volume(volume) => volume.review(judge, now),
            Self::Bus(exports) => exports.review(judge, now),
        }
    }

    #[inline]
    fn poll(&mut self, out: &mut Vec<Event>) {
        match self {
            Self::Volume(volume) => volume.poll(out),
            Self::Bus(exports) => exports.poll(out),
        }
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        match self {
            Self::Volume(volume) => volume.next_timeout(),
            Self::Bus(exports) => exports.next_timeout(),
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        match self {
            Self::Volume(volume) => volume.handle_timeout(now),
            Self::Bus(exports) => exports.handle_timeout(now),
        }
    }
}
