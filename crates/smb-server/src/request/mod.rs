//! Requests from their message to their answer: taken apart ([`dispatch`]), moved on ([`advance`]), put
//! together ([`send`]), and the server's unasked messages ([`breaks`]).

pub(crate) mod advance;
pub(crate) mod breaks;
mod chain;
pub(crate) mod dispatch;
mod send;

use crate::commands::Work;
use crate::directory::Directory;
use crate::exchange::Context;
use crate::state::State;
use crate::state::arena::Arena;
use crate::state::budget::{Charge, ChargeKind};
use crate::state::connections::{Connection, ConnectionId};
use crate::state::keys::{RequestKey, VolumeSlot};
use chain::Chain;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use types::Monotonic;
use volume::backend::Backend;

/// A request in work.
struct Request {
    context: Context,
    work: Work,
    /// The volume that works on it.
    volume: Option<VolumeSlot>,
    /// The compound that it belongs to; `None` if it is alone in its message.
    chain: Option<Box<Chain>>,
    charge: Charge,
}

/// Memory in bytes that a request which waits takes beside its payload: its place here and in its volume, and in their indexes.
const REQUEST_BYTES: usize = 1024;

impl Request {
    /// Releases the chain's unneeded memory, before a long wait. Returns the bytes that it still holds.
    fn shrink(&mut self) -> usize {
        let rest = self.chain.as_mut().map_or(0, |chain| chain.shrink());
        REQUEST_BYTES + self.context.bytes + rest
    }
}

/// All requests in work. Invariants:
///
/// - Each counts once among those of its connection while that lives, and its charge is counted there and in its session too.
/// - A request with a volume is answered by that volume, exactly once, also if it is cancelled.
/// - A request is among the waiting ones of its connection exactly if it may wait for something else than storage.
#[derive(Default)]
pub(crate) struct Requests {
    table: Arena<Request>,
    /// Requests that wait for a time.
    timers: BinaryHeap<Reverse<(Monotonic, RequestKey)>>,
    /// The last AsyncId used.
    last_async_id: u64,
}

impl Requests {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    fn get(&self, key: RequestKey) -> Option<&Request> {
        self.table.get(key.get())
    }

    #[inline]
    fn get_mut(&mut self, key: RequestKey) -> Option<&mut Request> {
        self.table.get_mut(key.get())
    }

    /// The next free AsyncId.
    fn new_async_id(&mut self) -> NonZeroU64 {
        self.last_async_id = self.last_async_id.wrapping_add(1);
        NonZeroU64::new(self.last_async_id).unwrap_or(NonZeroU64::MIN)
    }

    /// The requests that a volume works on.
    pub fn of_volume(&self, volume: VolumeSlot) -> Vec<RequestKey> {
        let own = self.table.iter().filter(|(_, request)| request.volume == Some(volume));
        own.map(|(key, _)| RequestKey::of_slot(key)).collect()
    }

    /// Finds the requests of a lost connection. Searches for READ and WRITE only if there are some: an idle
    /// connection costs no search.
    fn of_connection(&self, id: ConnectionId, gone: &Connection) -> Vec<RequestKey> {
        if gone.in_work == gone.waiting.len() {
            return gone.waiting.keys().collect();
        }
        let own = self.table.iter().filter(|(_, request)| request.context.connection == id);
        own.map(|(key, _)| RequestKey::of_slot(key)).take(gone.in_work).collect()
    }

    /// Takes a request out of work: it holds nothing any more, and CANCEL does not find it.
    // Inlined, as a request is large: it moves once, out of its table.
    #[inline]
    fn take<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        key: RequestKey,
    ) -> Option<Request> {
        self.release_charge(state, key)?;
        self.table.remove(key.get())
    }

    /// Returns the charge of the request named `key`, before it leaves its table.
    #[inline]
    fn release_charge<B: Backend, D: Directory>(
        &mut self,
        state: &mut State<B, D>,
        key: RequestKey,
    ) -> Option<()> {
        let Request { context, work, charge, .. } = self.get_mut(key)?;
        let charge = std::mem::replace(charge, Charge::none());
        if let Some(connection) = state.connections.get_mut(context.connection) {
            connection.in_work -= 1;
            if work.may_wait() {
                connection.waiting.remove(context.to.message_id, context.async_id);
            } else {
                connection.waiting.end_pending(context.async_id);
            }
            match charge.kind {
                ChargeKind::InWork => connection.in_work_bytes -= charge.bytes,
                ChargeKind::Parked => connection.parked_bytes -= charge.bytes,
            }
        }
        if charge.kind == ChargeKind::Parked
            && let Ok(session) = context.session_mut(&mut state.sessions)
        {
            session.parked_bytes -= charge.bytes;
        }
        state.memory.release(charge);
        Some(())
    }

    /// Counts a request's memory as parked, because its client will get STATUS_PENDING. False: it may not
    /// wait.
    fn park<B: Backend, D: Directory>(&mut self, state: &mut State<B, D>, key: RequestKey) -> bool {
        let limits = &state.config.limits;
        let Some(request) = self.get_mut(key) else { return false };
        let bytes = request.shrink();
        let Some(connection) = state.connections.get_mut(request.context.connection) else { return false };
        let Ok(session) = request.context.session_mut(&mut state.sessions) else { return false };
        if connection.waiting.pending() >= limits.pending_per_connection
            || connection.parked_bytes + bytes > limits.parked_bytes_per_connection
            || session.parked_bytes + bytes > limits.parked_bytes_per_session
        {
            return false;
        }
        let Some(charge) = state.memory.park(&session.token.user, bytes) else { return false };
        connection.parked_bytes += bytes;
        session.parked_bytes += bytes;
        let in_work = std::mem::replace(&mut request.charge, charge);
        connection.in_work_bytes -= in_work.bytes;
        state.memory.release(in_work);
        true
    }

    /// The time at which [`Self::handle_timeout`] has something to do.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The request whose time has come first.
    fn pop_due(&mut self, now: Monotonic) -> Option<RequestKey> {
        let Reverse((at, key)) = *self.timers.peek()?;
        if at > now {
            return None;
        }
        self.timers.pop();
        Some(key)
    }
}
