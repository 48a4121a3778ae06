//! Limits of the memory and the time that peers of an [`SmbDirect`] take: the counterpart of
//! [`crate::server::tcp`]'s bounds.
//!
//! A peer sends as its credits allow, and cannot be made to wait in the middle of a message: its socket
//! also brings data that others wait for, such as the payload of a WRITE in work. So the rule of
//! [`crate::server::memory`] refuses instead: a connection whose unfinished and held messages exceed
//! its party's share is closed. So is one with overdue work: an unfinished message, or unread answers.
//! Nothing that a peer sends restarts the time for its unread answers.

use super::kept::Backlog;
use super::peer::Peer;
use super::trace::What;
use super::{SmbDirect, SmbDirectLimits};
use crate::server::memory::Party;
use rdma::{QueuePairId, Verbs};
use std::sync::Arc;
use std::time::Duration;
use types::Monotonic;

/// Pause between checks of connections that hold memory or have answers waiting.
const SWEEP: Duration = Duration::from_secs(1);
/// Connections with few receives that are served when another one ends.
const LENT_AT_ONCE: usize = 16;
/// Payload under way that is not counted: as much as a socket's buffer takes, uncounted, for a TCP
/// client.
const UNCOUNTED_BYTES: usize = 64 << 10;

impl Peer {
    fn unfinished_bytes(&self) -> usize {
        self.kept.transfer_bytes + self.smbd.unfinished_bytes()
    }

    /// Notes whether a message is under way, and when it began.
    fn note_message(&mut self, now: Monotonic) {
        let whole_before = self.smbd.counters().messages_received;
        self.kept.message = match self.kept.message {
            _ if self.unfinished_bytes() == 0 => None,
            Some(before) if before.1 == whole_before => Some(before),
            _ => Some((now, whole_before)),
        };
    }

    /// Returns the reason to close the peer, if there is one.
    fn overdue(&mut self, limits: &SmbDirectLimits, now: Monotonic) -> Option<&'static str> {
        if self.is_throttled {
            // A peer with throttled credits is not slow.
            self.kept.message = self.kept.message.map(|(_, whole_before)| (now, whole_before));
        }
        let time = if self.is_member { limits.message_time } else { limits.guest_message_time };
        if self.kept.message.is_some_and(|(since, _)| now.since(since) > time) {
            return Some("a message was begun and not ended");
        }
        let (is_unread, taken_bytes) = (self.unsent() > 0, self.taken_bytes());
        self.kept.unread = Backlog::after(self.kept.unread, is_unread, taken_bytes, now);
        let (is_ungiven, given_bytes) = (self.reading_bytes > 0, self.own.bytes_rdma_read);
        self.kept.ungiven = Backlog::after(self.kept.ungiven, is_ungiven, given_bytes, now);
        let is_late = |backlog: Backlog| now.since(backlog.since) > limits.stall;
        if self.kept.unread.is_some_and(is_late) {
            return Some("answers are not taken");
        }
        self.kept.ungiven.is_some_and(is_late).then_some("its memory is not given to be read")
    }
}

impl<V: Verbs> SmbDirect<V> {
    /// Memory of unfinished and held messages of all connections, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.memory.held_bytes()
    }

    /// Counts the bytes of answers that wait for the peer, and of payload being read from it, except for
    /// the few that are always under way.
    #[inline]
    pub fn unsent_bytes(&mut self, connection: QueuePairId) -> usize {
        let Some(peer) = self.peers.get_mut(connection) else { return 0 };
        let unsent = peer.unsent() + peer.reading_bytes;
        if unsent > 0 && !peer.kept.is_watched {
            self.watch(connection);
        }
        if unsent > UNCOUNTED_BYTES { unsent } else { 0 }
    }

    /// Counts a whole message that the service does not want yet, until the connection is no longer
    /// throttled. `false`: it exceeds the peer's share; close the connection.
    #[must_use]
    pub fn hold(&mut self, connection: QueuePairId, bytes: usize) -> bool {
        let Some(peer) = self.peers.get_mut(connection) else { return true };
        peer.kept.held_bytes += bytes;
        self.count(connection)
    }

    /// Counts the peer's messages against another party, after a logon.
    pub(super) fn count_as_members(&mut self, connection: QueuePairId, user: &str) {
        let Some(info) = self.verbs.info(connection) else { return };
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if peer.is_member {
            return;
        }
        let guests = self.memory.of(false);
        let loan = peer.kept.loan.take().map(|loan| {
            let bytes = loan.bytes();
            guests.give_back(loan);
            bytes
        });
        guests.leave(peer.kept.party);
        let members = self.memory.of(true);
        let party = Party { host: info.peer.ip().into(), user: Some(Arc::from(user)) };
        peer.kept.party = members.join(party);
        peer.kept.loan = loan.map(|bytes| members.take_over(peer.kept.party, bytes));
        peer.is_member = true;
        self.lend_receives(connection);
    }

    /// Lends a member the memory of all the device receives that it may ask for. A part beyond its party's
    /// share stays unlent until another of its connections ends: the connection works with few credits.
    fn lend_receives(&mut self, connection: QueuePairId) {
        let bytes = usize::from(self.config.receive_credits_max) * self.config.receive_bytes_max as usize;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if !peer.is_member || !peer.has_few_receives() {
            return;
        }
        peer.kept.receives = self.memory.of(true).lend(peer.kept.party, bytes, false);
        if peer.has_few_receives() {
            return self.few_receives.push_back(connection);
        }
        peer.tell_throttle();
        peer.touch(connection, &mut self.touched);
    }

    /// Takes notice of the memory that the provider holds for transfers that have not come whole.
    pub(super) fn count_transfers(&mut self) {
        let mut unfinished = std::mem::take(&mut self.unfinished);
        self.verbs.take_unfinished(&mut unfinished);
        for (connection, bytes) in unfinished.drain(..) {
            if let Some(peer) = self.peers.get_mut(connection) {
                peer.kept.transfer_bytes = bytes;
                self.count_or_close(connection);
            }
        }
        self.unfinished = unfinished;
    }

    /// Counts the memory of the peer's messages, and closes the connection if it exceeds its share.
    #[inline]
    pub(super) fn count_or_close(&mut self, connection: QueuePairId) {
        if !self.count(connection) {
            tracing::debug!("SMB Direct connection closed: its messages take more memory than its share");
            self.verbs.disconnect(connection);
        }
    }

    fn count(&mut self, connection: QueuePairId) -> bool {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(connection) else { return true };
        let bytes = peer.unfinished_bytes() + peer.kept.held_bytes;
        // Usually there is nothing, and was nothing.
        if bytes == 0 && peer.kept.loan.is_none() {
            return true;
        }
        peer.note_message(now);
        if peer.kept.loan_bytes() == bytes {
            return true;
        }
        let memory = self.memory.of(peer.is_member);
        let fits = memory.resize(&mut peer.kept.loan, peer.kept.party, bytes).is_some();
        if !fits {
            peer.note(now, What::OverShare { len: bytes });
        }
        self.watch(connection);
        fits
    }

    /// Frees the memory of a connection that has ended.
    pub(super) fn release(&mut self, peer: &mut Peer) {
        let memory = self.memory.of(peer.is_member);
        let loans = [peer.kept.loan.take(), peer.kept.receives.take()];
        loans.into_iter().flatten().for_each(|loan| memory.give_back(loan));
        memory.leave(peer.kept.party);
        for _ in 0..self.few_receives.len().min(LENT_AT_ONCE) {
            let Some(next) = self.few_receives.pop_front() else { break };
            self.lend_receives(next);
        }
    }

    pub(super) fn watch(&mut self, connection: QueuePairId) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if !std::mem::replace(&mut peer.kept.is_watched, true) {
            self.watched.push(connection);
            self.sweep_at.get_or_insert(self.now.after(SWEEP));
        }
    }

    /// Closes peers that do not finish their messages, or do not take their answers. Does not check peers
    /// that hold nothing.
    pub(super) fn sweep_if_due(&mut self) {
        let now = self.now;
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        self.sweep_at = None;
        for connection in std::mem::take(&mut self.watched) {
            let Some(peer) = self.peers.get_mut(connection) else { continue };
            peer.kept.is_watched = false;
            if let Some(why) = peer.overdue(&self.limits, now) {
                tracing::debug!(why, "SMB Direct connection closed");
                peer.note(now, What::Overdue);
                self.verbs.disconnect(connection);
                continue;
            }
            if peer.unsent() > 0 || peer.reading_bytes > 0 || peer.kept.loan.is_some() {
                self.watch(connection);
            }
        }
    }
}
