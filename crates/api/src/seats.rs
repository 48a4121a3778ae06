//! Which connections a listener of the API serves.
//!
//! Promises: at most [`CONNECTIONS_MAX`] at a time; connections that have not shown the token make room for others, those of the host with most
//! of them first, so that nobody is kept out by connections that say nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;
use types::{Admission, AdmissionLimits, PeerHost};

/// Connections of one listener served at a time.
pub const CONNECTIONS_MAX: usize = 128;

/// Names a connection of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SeatId(u64);

struct Table {
    admission: Admission<SeatId>,
    /// Of connections that have a seat: what ends them.
    tasks: HashMap<SeatId, AbortHandle>,
    taken: u64,
}

/// See the module.
pub struct Seats(Mutex<Table>);

/// A connection's seat; free again when it is dropped.
pub struct Seat {
    id: SeatId,
    seats: Arc<Seats>,
}

impl Seats {
    pub fn new() -> Arc<Self> {
        Self::with_limits(AdmissionLimits {
            connections: CONNECTIONS_MAX,
            connections_per_host: CONNECTIONS_MAX,
            guests: CONNECTIONS_MAX,
            guests_per_host: CONNECTIONS_MAX / 2,
        })
    }

    pub fn with_limits(limits: AdmissionLimits) -> Arc<Self> {
        let table = Table { admission: Admission::new(limits), tasks: HashMap::new(), taken: 0 };
        Arc::new(Self(Mutex::new(table)))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a new connection. Another one may end for it. `None`: all have shown the token.
    pub fn take(self: &Arc<Self>, peer: SocketAddr) -> Option<Seat> {
        let table = &mut *self.table();
        table.taken += 1;
        let id = SeatId(table.taken);
        let evicted = table.admission.admit(id, PeerHost::from(peer.ip())).ok()?;
        if let Some(task) = evicted.and_then(|evicted| table.tasks.remove(&evicted)) {
            task.abort();
        }
        Some(Seat { id, seats: self.clone() })
    }
}

impl Seat {
    /// The task that serves the connection: it ends when the connection has to make room.
    pub fn is_of(&self, task: AbortHandle) {
        let table = &mut *self.seats.table();
        table.tasks.insert(self.id, task);
    }

    /// Ends the connection.
    pub fn end(&self) {
        if let Some(task) = self.seats.table().tasks.remove(&self.id) {
            task.abort();
        }
    }

    /// It has shown the token.
    pub fn prove(&self) {
        self.seats.table().admission.prove(self.id);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let table = &mut *self.seats.table();
        table.admission.remove(self.id);
        table.tasks.remove(&self.id);
    }
}
