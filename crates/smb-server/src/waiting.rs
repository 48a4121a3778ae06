//! The requests of one connection that may wait for somebody, by the two names that CANCEL has for them (MS-SMB2 3.3.5.16).
//!
//! Promises: finding one costs no more the more others wait. READ and WRITE of files are not among them: they wait for storage alone,
//! which cannot be cancelled, so that the hot path keeps no index.

use crate::request::{Context, Work};
use smb::wire::{Header, HeaderFlags};
use std::collections::BTreeMap;

#[derive(Default)]
pub(crate) struct Waiting {
    /// Keys of requests by MessageId.
    by_message: BTreeMap<u64, u64>,
    /// Keys of requests that were told STATUS_PENDING, by AsyncId.
    by_async_id: BTreeMap<u64, u64>,
}

impl Waiting {
    /// Notes a request that goes into work.
    pub fn insert(&mut self, context: &Context, key: u64) {
        self.by_message.insert(context.to.message_id, key);
        if context.async_id != 0 {
            self.by_async_id.insert(context.async_id, key);
        }
    }

    /// The request was told STATUS_PENDING.
    pub fn told_pending(&mut self, async_id: u64, key: u64) {
        self.by_async_id.insert(async_id, key);
    }

    /// Forgets a request that is in work no more.
    pub fn remove(&mut self, context: &Context, work: &Work) {
        if may_wait(work) {
            self.by_message.remove(&context.to.message_id);
        }
        if context.async_id != 0 {
            self.by_async_id.remove(&context.async_id);
        }
    }

    /// The request that a CANCEL with this header means.
    pub fn find(&self, cancel: &Header) -> Option<u64> {
        if cancel.flags().contains(HeaderFlags::ASYNC_COMMAND) {
            self.by_async_id.get(&cancel.async_id()).copied()
        } else {
            self.by_message.get(&cancel.message_id.get()).copied()
        }
    }

    /// Requests that were told STATUS_PENDING.
    pub fn pending(&self) -> usize {
        self.by_async_id.len()
    }

    pub fn len(&self) -> usize {
        self.by_message.len()
    }

    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.by_message.values().copied()
    }
}

/// Whether a request may wait for something else than storage.
pub(crate) fn may_wait(work: &Work) -> bool {
    !matches!(work, Work::Read { .. } | Work::ReadRemote { .. } | Work::Write { .. })
}
