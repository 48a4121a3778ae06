//! Waiting requests of one connection, by the two names that CANCEL has for them (MS-SMB2 3.3.5.16).
//!
//! Promises: the cost of finding one does not depend on their number. READ and WRITE of files are not
//! among them: they wait for storage alone, which cannot be cancelled, so that the hot path keeps no
//! index.

use super::keys::RequestKey;
use smb::wire::{Header, HeaderFlags};
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Invariant: a request is listed by its MessageId from its start to its end, and by its AsyncId from
/// STATUS_PENDING to its end.
#[derive(Default)]
pub(crate) struct Waiting {
    by_message: BTreeMap<u64, RequestKey>,
    /// Requests whose client got STATUS_PENDING.
    by_async_id: BTreeMap<u64, RequestKey>,
}

impl Waiting {
    /// Notes a request that goes into work.
    pub fn insert(&mut self, message_id: u64, async_id: Option<NonZeroU64>, key: RequestKey) {
        self.by_message.insert(message_id, key);
        if let Some(async_id) = async_id {
            self.by_async_id.insert(async_id.get(), key);
        }
    }

    /// Notes that the client got STATUS_PENDING.
    pub fn told_pending(&mut self, async_id: NonZeroU64, key: RequestKey) {
        self.by_async_id.insert(async_id.get(), key);
    }

    /// Forgets a request that is in work no more.
    pub fn remove(&mut self, message_id: u64, async_id: Option<NonZeroU64>) {
        self.by_message.remove(&message_id);
        self.end_pending(async_id);
    }

    /// Forgets the AsyncId of a request that is in work no more.
    pub fn end_pending(&mut self, async_id: Option<NonZeroU64>) {
        if let Some(async_id) = async_id {
            self.by_async_id.remove(&async_id.get());
        }
    }

    /// The request that a CANCEL with this header means.
    pub fn find(&self, cancel: &Header) -> Option<RequestKey> {
        if cancel.flags().contains(HeaderFlags::ASYNC_COMMAND) {
            self.by_async_id.get(&cancel.async_id()).copied()
        } else {
            self.by_message.get(&cancel.message_id.get()).copied()
        }
    }

    /// Returns the number of requests whose clients got STATUS_PENDING.
    pub fn pending(&self) -> usize {
        self.by_async_id.len()
    }

    pub fn len(&self) -> usize {
        self.by_message.len()
    }

    pub fn keys(&self) -> impl Iterator<Item = RequestKey> {
        self.by_message.values().copied()
    }
}
