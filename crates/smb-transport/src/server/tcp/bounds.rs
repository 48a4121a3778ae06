//! Limits of clients of a [`Tcp`]: places, memory of unfinished messages, and time for these.
//!
//! A connection is a guest until [`Tcp::set_standing`] names its user. Guests have fewer places, small
//! messages, little memory, counted apart, and little time. So guests keep out no client that has
//! logged on, or is about to.

use super::super::memory::{Loan, Party};
use super::{CloseReason, Connection, ConnectionId, RECEIVE, Receiving, SWEEP_TIMER, Tcp, TcpLimits};
use crate::framing::{BATCH_BYTES, GUEST_BATCH_BYTES, Room};
use std::sync::Arc;
use std::time::Duration;
use sys::driver::{self, IoOperation};
use types::{Monotonic, PeerHost};

/// Limit of buffers that one sweep takes from idle connections, since the driver searches all
/// operations for each.
const CANCELS_MAX: usize = 256;

/// The slowest rate of a message: once `grace` has passed, its bytes must have come at this rate since.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Time from a message's first byte in which no rate is demanded.
    pub grace: Duration,
    /// Rate after that; 0 demands none.
    pub bytes_per_second: u64,
}

impl Pace {
    fn is_missed(self, age: Duration, bytes: u64) -> bool {
        let counted = age.saturating_sub(self.grace);
        u128::from(bytes) * 1000 < counted.as_millis() * u128::from(self.bytes_per_second)
    }
}

/// Rate at which a client takes its answers. Its own messages do not count, nor do occasional single
/// bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taking {
    /// Since then it has taken `bytes`, fewer than [`TcpLimits::pace_bytes`].
    pub(super) since: Monotonic,
    bytes: u64,
    /// Something has waited for it all the time.
    is_behind: bool,
}

impl Taking {
    pub(super) fn new(now: Monotonic) -> Self {
        Self { since: now, bytes: 0, is_behind: false }
    }

    /// Notes that the socket has no space for the next bytes.
    pub(super) fn wait(&mut self, now: Monotonic) {
        if !self.is_behind {
            *self = Self { is_behind: true, ..Self::new(now) };
        }
    }

    /// The socket took this many bytes.
    pub(super) fn take(&mut self, bytes: usize, pace_bytes: u64, now: Monotonic) {
        self.bytes += bytes as u64;
        if self.bytes >= pace_bytes {
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Nothing waits any more.
    pub(super) fn end(&mut self) {
        self.is_behind = false;
    }
}

/// Counts of connections refused or evicted since the last log entry.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    pub(super) evicted: u64,
    pub(super) refused: u64,
}

impl Tcp {
    /// Sets the connection's user; `None`: nobody has logged on, or the last user has logged off.
    pub fn set_standing(&mut self, connection: ConnectionId, user: Option<&str>) {
        let Some(entry) = self.connection(connection) else { return };
        if entry.closed.is_some() || entry.is_member == user.is_some() {
            return;
        }
        let (was_member, is_member, host) = (entry.is_member, user.is_some(), entry.host);
        let (loans, waiting, before) =
            ([entry.loan.take(), entry.held.take()], entry.waiting.take(), entry.party);
        let memory = self.memory.of(was_member);
        let bytes = loans.each_ref().map(|loan| loan.as_ref().map(Loan::bytes));
        loans.into_iter().flatten().for_each(|loan| memory.give_back(loan));
        waiting.into_iter().for_each(|waiting| memory.end_wait(before, waiting));
        memory.leave(before);
        let memory = self.memory.of(is_member);
        let party = memory.join(Party { host, user: user.map(Arc::from) });
        let [loan, held] = bytes.map(|bytes| bytes.map(|bytes| memory.take_over(party, bytes)));
        if is_member {
            self.admission.prove(connection);
        } else {
            self.admission.unprove(connection);
        }
        let Some(entry) = self.connection(connection) else { return };
        (entry.is_member, entry.party) = (is_member, party);
        (entry.loan, entry.held) = (loan, held);
        entry.framing.set_batch_bytes(if is_member { BATCH_BYTES } else { GUEST_BATCH_BYTES });
        if waiting.is_some() {
            self.start_receive(connection);
        }
    }

    /// Finds a place for a new connection, if need be that of a guest.
    pub(super) fn admit(&mut self, connection: ConnectionId, host: PeerHost) -> bool {
        match self.admission.admit(connection, host) {
            Ok(evicted) => {
                evicted.into_iter().for_each(|evicted| self.evict(evicted));
                true
            }
            Err(reason) => {
                tracing::debug!(%host, %reason, "a connection was refused");
                self.turned_away.refused += 1;
                false
            }
        }
    }

    /// Closes the next guest in the order of eviction: descriptors are short.
    pub(super) fn evict_a_guest(&mut self) {
        if let Some(evicted) = self.admission.evict() {
            self.evict(evicted);
        }
    }

    fn evict(&mut self, connection: ConnectionId) {
        self.turned_away.evicted += 1;
        self.shut(connection, CloseReason::Evicted);
    }

    /// Says how much of a beginning large message may be received; `None`: nothing now, the connection
    /// waits for memory.
    pub(super) fn make_room(&mut self, connection: ConnectionId) -> Option<Room> {
        let entry = self.connections.get_mut(connection.0 as u32 as usize)?.as_mut()?;
        let memory = self.memory.of(entry.is_member);
        let wanted_bytes = entry.framing.wanted_bytes();
        let is_advance = !entry.framing.fills_batch();
        // Guests are lent nothing on an announcement.
        if is_advance && !entry.is_member {
            return Some(Room::Part);
        }
        if let Some(loan) = memory.lend(entry.party, wanted_bytes, is_advance) {
            entry.loan.replace(loan).into_iter().for_each(|before| memory.give_back(before));
            return Some(Room::Whole);
        }
        if is_advance {
            return Some(Room::Part);
        }
        if entry.waiting.is_none() {
            let is_new = !entry.has_brought_large;
            entry.waiting = Some(memory.wait(entry.party, connection, wanted_bytes, is_new));
        }
        None
    }

    /// Returns the loan for a message that has arrived whole.
    pub(super) fn return_loan(&mut self, connection: ConnectionId) {
        let Some(Some(entry)) = self.connections.get_mut(connection.0 as u32 as usize) else { return };
        if let Some(loan) = entry.loan.take() {
            entry.has_brought_large = true;
            self.memory.of(entry.is_member).give_back(loan);
        }
    }

    /// Memory of large messages that have not come whole and of all that are held, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.memory.held_bytes()
    }

    /// Counts a message that came whole and that the service does not want yet, until [`Tcp::resume`]: others wait for the memory meanwhile.
    /// The connection should be paused.
    pub fn hold(&mut self, connection: ConnectionId, bytes: usize) {
        let Some(Some(entry)) = self.connections.get_mut(connection.0 as u32 as usize) else { return };
        if entry.id != connection || entry.closed.is_some() {
            return;
        }
        let memory = self.memory.of(entry.is_member);
        let before = entry.held.take();
        let before_bytes = before.as_ref().map_or(0, Loan::bytes);
        before.into_iter().for_each(|loan| memory.give_back(loan));
        entry.held = Some(memory.take_over(entry.party, before_bytes + bytes));
    }

    /// Returns the memory of held messages.
    pub(super) fn end_hold(&mut self, connection: ConnectionId) {
        let Some(Some(entry)) = self.connections.get_mut(connection.0 as u32 as usize) else { return };
        if entry.id == connection
            && let Some(loan) = entry.held.take()
        {
            self.memory.of(entry.is_member).give_back(loan);
        }
    }

    /// Frees the place and the memory of a connection that has closed.
    pub(super) fn release(&mut self, connection: ConnectionId) {
        self.admission.remove(connection);
        let Some(Some(entry)) = self.connections.get_mut(connection.0 as u32 as usize) else { return };
        let memory = self.memory.of(entry.is_member);
        let loans = [entry.loan.take(), entry.held.take()];
        loans.into_iter().flatten().for_each(|loan| memory.give_back(loan));
        entry.waiting.take().into_iter().for_each(|waiting| memory.end_wait(entry.party, waiting));
        memory.leave(entry.party);
    }

    /// Lets connections that waited for memory receive again, as far as there is some.
    pub(super) fn serve_waiting(&mut self) {
        for is_member in [true, false] {
            while let Some(connection) = self.memory.of(is_member).next_served() {
                let now = self.now;
                if let Some(entry) = self.connection(connection) {
                    entry.waiting = None;
                    entry.begin_message(now);
                }
                self.start_receive(connection);
            }
        }
    }

    /// Takes buffers back from idle connections, and closes those that stall or are too slow.
    pub(super) fn sweep(&mut self) {
        self.queue.submit(SWEEP_TIMER, IoOperation::Timeout { after: self.limits.sweep });
        self.tell_turned_away();
        let is_short = self.memory.are_short();
        let (mut stalled, mut cancels) = (Vec::new(), 0);
        let (now, patience, pace_bytes) = (self.now, self.limits.stall, self.limits.pace_bytes());
        for entry in self.connections.iter_mut().flatten() {
            if entry.receiving == Receiving::No {
                // No client is slow while the server does not listen.
                entry.begin_message(self.now);
            }
            let age = self.now.since(entry.message_since);
            let is_unread = entry.sending && now.since(entry.sent.since) > patience;
            let is_stalled =
                is_unread || entry.receives_message() && now.since(entry.last_progress) > patience;
            let is_stuck = self.lent.is_stuck(&mut entry.lent, &entry.socket, now, (patience, pace_bytes));
            if is_stuck {
                // Fails if the connection is already closed.
                let _ = driver::discard_at_close(&entry.socket);
            }
            if is_stalled
                || is_stuck
                || self.limits.is_too_slow(entry, age, is_short[usize::from(entry.is_member)])
            {
                stalled.push(entry.id);
            }
            let idle = !std::mem::take(&mut entry.active) && !entry.framing.in_mid_message();
            if idle && entry.receiving == Receiving::Bytes && entry.closed.is_none() && cancels < CANCELS_MAX
            {
                cancels += 1;
                self.queue.cancel((entry.id.0 & 0xffff_ffff) << 2 | RECEIVE);
            }
        }
        for id in stalled {
            self.shut(id, CloseReason::Stalled);
        }
        self.memory.look_again();
    }

    fn tell_turned_away(&mut self) {
        let TurnedAway { evicted, refused } = std::mem::take(&mut self.turned_away);
        if refused > 0 {
            let limit = self.limits.connections;
            tracing::warn!(
                refused,
                limit,
                "connections were refused: their host, or all hosts, have too many"
            );
        }
        if evicted > 0 {
            tracing::warn!(
                evicted,
                "connections on which nobody had logged on were closed to make room for others"
            );
        }
    }
}

impl TcpLimits {
    /// Bytes that a client takes within [`Self::stall`] at least while something waits for it: less is nothing.
    pub(super) fn pace_bytes(&self) -> u64 {
        (self.stall.as_millis() as u64 * self.member_pace.bytes_per_second / 1000).max(1)
    }

    /// Says whether the message that a connection receives comes too slowly. `is_short`: others wait for the memory that it holds.
    fn is_too_slow(&self, entry: &Connection, age: Duration, is_short: bool) -> bool {
        let bytes = entry.message_bytes;
        let pace = if entry.is_member { self.member_pace } else { self.guest_pace };
        let is_in_the_way = is_short && entry.loan.is_some() && self.pace_when_short.is_missed(age, bytes);
        entry.receives_message() && (is_in_the_way || pace.is_missed(age, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_takes_less_than_its_pace_takes_nothing_and_a_short_pause_is_none() {
        let at = |s: u64| Monotonic(s * 1_000_000_000);
        let mut taking = Taking::new(at(0));
        taking.wait(at(1));
        (2..100).for_each(|s| taking.take(10, 1000, at(s)));
        assert_eq!(taking.since, at(1), "980 bytes in 98 s");
        // A second wait keeps the time of the first.
        taking.wait(at(100));
        assert_eq!(taking.since, at(1));
        taking.take(20, 1000, at(101));
        assert_eq!(taking.since, at(101));
        // Once nothing waits, the time starts again with the next bytes.
        taking.end();
        taking.wait(at(500));
        assert_eq!(taking.since, at(500));
    }

    #[test]
    fn a_pace_is_missed_by_what_trickles_and_not_by_what_comes() {
        let pace = Pace { grace: Duration::from_secs(2), bytes_per_second: 1000 };
        assert!(!pace.is_missed(Duration::from_secs(2), 0));
        assert!(pace.is_missed(Duration::from_secs(4), 1999));
        assert!(!pace.is_missed(Duration::from_secs(4), 2000));
        assert!(!pace.is_missed(Duration::from_secs(60), 1 << 20));
    }
}
