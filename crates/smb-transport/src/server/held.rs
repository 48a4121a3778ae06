//! Back-pressure: the one rule for connections with too much work in the service.
//!
//! A message that the service does not want is held, and the first one stops its connection: TCP
//! receives nothing more, and an SMB Direct peer gets few credits. Messages already on their way are
//! held behind the first, so that order stays. In each round at most [`LOOKED_AT_ONCE`] held
//! connections get a turn, in order, so that their number costs others nothing. A connection continues
//! when none of its messages is held and the service wants more. One that still sends more than
//! [`HELD_BYTES_MAX`] is abandoned: its messages are dropped, also those that arrive before it has
//! closed. The transports count the held memory of all connections ([`super::memory`]): beyond their
//! limit TCP receives no further large message, and SMB Direct closes connections.
//!
//! Invariant: each connection of `by_connection` that is not abandoned is in `order`. An entry of
//! `order` without one is skipped.

use super::service::Service;
use std::collections::VecDeque;
use sys::Buf;
use types::{IdentityMap, Monotonic};

/// Bytes of held messages of one connection. A peer is stopped long before: TCP brings at most one
/// large message and a turn's bytes more, and our own client has at most 32 MiB of payload under way by
/// SMB Direct.
const HELD_BYTES_MAX: usize = 40 << 20;
/// Held connections that get a turn in one round.
const LOOKED_AT_ONCE: usize = 64;

/// The messages of one connection that the service did not want yet.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Buf>,
    bytes: usize,
    is_given_up: bool,
}

/// Decision about a connection after one of its messages came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    GoOn,
    /// The message is held; `is_first`: as the only one of its connection.
    Hold {
        is_first: bool,
    },
    /// The connection sends more than the service handles.
    Close,
}

/// Held messages of all connections.
#[derive(Debug)]
pub(super) struct Held<C> {
    by_connection: IdentityMap<C, Queue>,
    /// Connections in the order of their turns.
    order: VecDeque<C>,
}

impl<C> Default for Held<C> {
    fn default() -> Self {
        Self { by_connection: IdentityMap::default(), order: VecDeque::new() }
    }
}

impl<C: Copy + Eq + std::hash::Hash> Held<C> {
    pub fn is_empty(&self) -> bool {
        self.by_connection.is_empty()
    }

    /// Hands a message to the service, or holds it.
    #[inline]
    pub fn offer(
        &mut self,
        service: &mut impl Service<Connection = C>,
        connection: C,
        message: Buf,
        now: Monotonic,
    ) -> Verdict {
        // As a rule no connection is held.
        if (self.by_connection.is_empty() || !self.by_connection.contains_key(&connection))
            && service.wants_messages(connection)
        {
            service.handle_message(connection, message, now);
            return Verdict::GoOn;
        }
        self.hold(connection, message)
    }

    #[cold]
    fn hold(&mut self, connection: C, message: Buf) -> Verdict {
        let mut is_first = false;
        let queue = self.by_connection.entry(connection).or_insert_with(|| {
            self.order.push_back(connection);
            is_first = true;
            Queue::default()
        });
        if queue.is_given_up {
            return Verdict::GoOn;
        }
        queue.bytes += message.len();
        queue.messages.push_back(message);
        if queue.bytes > HELD_BYTES_MAX {
            self.give_up(connection);
            return Verdict::Close;
        }
        Verdict::Hold { is_first }
    }

    /// Drops the held messages of a connection that is being closed, also later ones.
    pub fn give_up(&mut self, connection: C) {
        if let Some(queue) = self.by_connection.get_mut(&connection) {
            *queue = Queue { is_given_up: true, ..Queue::default() };
        }
    }

    /// Hands held messages over as far as the service wants them. Connections that may continue are added
    /// to `resumed`. Says whether anything moved.
    pub fn resume(
        &mut self,
        service: &mut impl Service<Connection = C>,
        now: Monotonic,
        resumed: &mut Vec<C>,
    ) -> bool {
        let mut moved = false;
        for _ in 0..self.order.len().min(LOOKED_AT_ONCE) {
            let Some(connection) = self.order.pop_front() else { break };
            // The connection may have ended meanwhile.
            let Some(queue) = self.by_connection.get_mut(&connection) else { continue };
            if queue.is_given_up {
                continue;
            }
            while service.wants_messages(connection)
                && let Some(message) = queue.messages.pop_front()
            {
                moved = true;
                queue.bytes -= message.len();
                service.handle_message(connection, message, now);
            }
            if queue.messages.is_empty() && service.wants_messages(connection) {
                debug_assert_eq!(queue.bytes, 0, "bytes of messages that are not there");
                self.by_connection.remove(&connection);
                resumed.push(connection);
            } else {
                self.order.push_back(connection);
            }
        }
        moved
    }

    /// Drops the messages of a connection that has ended.
    pub fn forget(&mut self, connection: C) {
        self.by_connection.remove(&connection);
    }
}
