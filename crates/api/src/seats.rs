//! The choice of connections that a listener of the API serves.
//!
//! Promises: at most [`CONNECTIONS_MAX`] at a time. A connection is proven while its token allowed its
//! last request; of one token at most [`PROVEN_OF_ONE_MAX`] are proven, those used last. Newcomers
//! replace unproven ones, first those of the host with most of them, and an idle proven one if all are
//! proven. So silent connections, refused ones, and one token's connections keep nobody out.

use records::api_tokens::TokenHash;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use types::{Admission, AdmissionLimits, PeerHost};

/// Connections of one listener served at a time.
pub const CONNECTIONS_MAX: usize = 128;

/// Proven connections of one token: more than the pages of a dashboard and the programs of one holder have.
const PROVEN_OF_ONE_MAX: usize = CONNECTIONS_MAX / 4;
/// Timeout for a client that has an answer before it takes the next part of it, ...
const PART_TIMEOUT: Duration = Duration::from_secs(20);
/// ... and no less than this on the whole.
const TAKEN_BYTES_PER_S_MIN: u64 = 32 << 10;

/// Names a connection of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SeatId(u64);

/// A proven connection.
struct Proof {
    /// `None`: the server's token file.
    token: Option<TokenHash>,
    /// In the order of uses.
    used: u64,
}

/// A request that a connection is about.
struct Work {
    /// When its answer began to leave, how much of that has left, and when it did last.
    leaving: Option<(Instant, u64, Instant)>,
}

struct Table {
    admission: Admission<SeatId>,
    proofs: HashMap<SeatId, Proof>,
    /// Requests whose answer has not left, by connection.
    work: HashMap<SeatId, Work>,
    uses: u64,
    /// Handles that end connections with a seat.
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
    /// Makes the seats of a listener, with the limits of the API.
    pub fn new() -> Arc<Self> {
        Self::with_limits(AdmissionLimits {
            connections: CONNECTIONS_MAX,
            connections_per_host: CONNECTIONS_MAX,
            guests: CONNECTIONS_MAX,
            guests_per_host: CONNECTIONS_MAX / 2,
        })
    }

    /// Makes the seats of a listener, with other limits.
    pub fn with_limits(limits: AdmissionLimits) -> Arc<Self> {
        let table = Table {
            admission: Admission::new(limits),
            proofs: HashMap::new(),
            work: HashMap::new(),
            uses: 0,
            tasks: HashMap::new(),
            taken: 0,
        };
        Arc::new(Self(Mutex::new(table)))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat for a new connection. Another one may end for it. `None`: all are proven, and have a
    /// request under way.
    pub fn take(self: &Arc<Self>, peer: SocketAddr) -> Option<Seat> {
        let table = &mut *self.table();
        table.taken += 1;
        let (id, host) = (SeatId(table.taken), PeerHost::from(peer.ip()));
        let evicted = match table.admission.admit(id, host) {
            Ok(evicted) => evicted,
            Err(_) => {
                let idle = table.longest_idle()?;
                table.admission.remove(idle);
                table.admission.admit(id, host).ok()?;
                Some(idle)
            }
        };
        if let Some(evicted) = evicted {
            table.proofs.remove(&evicted);
            if let Some(task) = table.tasks.remove(&evicted) {
                task.abort();
            }
        }
        Some(Seat { id, seats: self.clone() })
    }
}

impl Table {
    /// The proven connection that has been idle for the longest time.
    fn longest_idle(&self) -> Option<SeatId> {
        let idle = self.proofs.iter().filter(|(id, _)| !self.work.contains_key(id));
        idle.min_by_key(|(_, proof)| proof.used).map(|(id, _)| *id)
    }

    fn prove(&mut self, id: SeatId, token: Option<TokenHash>) {
        self.uses += 1;
        self.admission.prove(id);
        self.proofs.insert(id, Proof { token, used: self.uses });
        let of_token = self.proofs.iter().filter(|(_, proof)| proof.token == token);
        if of_token.clone().count() > PROVEN_OF_ONE_MAX
            && let Some((&oldest, _)) = of_token.min_by_key(|(_, proof)| proof.used)
        {
            self.unprove(oldest);
        }
    }

    fn unprove(&mut self, id: SeatId) {
        self.proofs.remove(&id);
        self.admission.unprove(id);
    }
}

impl Seat {
    /// Notes the task that serves the connection: it is aborted when another one needs the seat.
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

    /// Marks the connection for good as authenticated: seats are for these.
    pub fn prove(&self) {
        self.seats.table().admission.prove(self.id);
    }

    /// Notes that the connection has shown a token that allows the request (`None`: the server's token
    /// file).
    pub(crate) fn prove_by(&self, token: Option<TokenHash>) {
        self.seats.table().prove(self.id, token);
    }

    /// Notes that a request on the connection was refused.
    pub(crate) fn unprove(&self) {
        self.seats.table().unprove(self.id);
    }

    /// Begins a request on the connection, which lasts until its answer is sent.
    pub(crate) fn begin(self: &Arc<Self>) -> AtWork {
        self.seats.table().work.insert(self.id, Work { leaving: None });
        AtWork(self.clone())
    }

    /// Returns whether the client does not take its answer.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        let table = self.seats.table();
        let leaving = table.work.get(&self.id).and_then(|work| work.leaving);
        leaving.is_some_and(|(began, bytes, at)| {
            let whole = PART_TIMEOUT + Duration::from_secs(bytes / TAKEN_BYTES_PER_S_MIN);
            now.saturating_duration_since(at) > PART_TIMEOUT || now.saturating_duration_since(began) > whole
        })
    }
}

/// A request whose answer has not left.
pub(crate) struct AtWork(Arc<Seat>);

impl AtWork {
    /// A part of the answer leaves: the client has taken the part before.
    pub fn leaves(&self, bytes: usize, now: Instant) {
        if let Some(work) = self.0.seats.table().work.get_mut(&self.0.id) {
            let (began, before, _) = work.leaving.unwrap_or((now, 0, now));
            work.leaving = Some((began, before + bytes as u64, now));
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.seats.table().work.remove(&self.0.id);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let table = &mut *self.seats.table();
        table.admission.remove(self.id);
        table.proofs.remove(&self.id);
        table.work.remove(&self.id);
        table.tasks.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 1))
    }

    fn token(number: usize) -> Option<TokenHash> {
        Some(TokenHash::of(&number.to_le_bytes()))
    }

    /// Fills all seats, each proven by its own token.
    fn filled(seats: &Arc<Seats>) -> Vec<Arc<Seat>> {
        let proven = |number| {
            let seat = Arc::new(seats.take(peer(1)).unwrap());
            seat.prove_by(token(number));
            seat
        };
        (0..CONNECTIONS_MAX).map(proven).collect()
    }

    fn proven(seats: &Seats) -> usize {
        seats.table().proofs.len()
    }

    #[tokio::test]
    async fn refused_connections_make_room_also_if_they_were_allowed_something_before() {
        let seats = Seats::new();
        let taken = filled(&seats);
        let work: Vec<_> = taken.iter().map(Seat::begin).collect();
        taken.iter().for_each(|seat| seat.unprove());
        assert_eq!(proven(&seats), 0);
        let ended = tokio::spawn(std::future::pending::<()>());
        taken.iter().for_each(|seat| seat.is_of(ended.abort_handle()));
        assert!(seats.take(peer(2)).is_some());
        assert!(ended.await.unwrap_err().is_cancelled(), "one of them was ended");
        drop(work);
    }

    #[test]
    fn one_token_proves_a_bounded_number_of_connections_and_the_others_make_room() {
        let seats = Seats::new();
        let taken = filled(&seats);
        let work: Vec<_> = taken.iter().map(Seat::begin).collect();
        assert!(seats.take(peer(2)).is_none(), "128 holders of tokens are at work");
        taken.iter().for_each(|seat| seat.prove_by(token(0)));
        assert_eq!(proven(&seats), PROVEN_OF_ONE_MAX);
        let administrator = seats.take(peer(2)).expect("a seat");
        administrator.prove_by(None);
        assert_eq!(proven(&seats), PROVEN_OF_ONE_MAX + 1);
        drop(work);
    }

    #[test]
    fn among_proven_connections_one_on_which_nothing_is_asked_makes_room() {
        let seats = Seats::new();
        let taken = filled(&seats);
        let work: Vec<_> = taken.iter().skip(1).map(Seat::begin).collect();
        assert!(seats.take(peer(2)).is_some());
        assert!(!seats.table().proofs.contains_key(&taken[0].id), "the idle one made room");
        drop(work);
    }

    #[test]
    fn an_answer_that_is_not_taken_or_only_drop_by_drop_stalls_its_connection() {
        let seats = Seats::new();
        let (seat, began) = (Arc::new(seats.take(peer(1)).unwrap()), Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        let work = seat.begin();
        assert!(!seat.is_stalled(after(1000)), "the server is about it");
        work.leaves(64 << 10, began);
        assert!(!seat.is_stalled(after(20)) && seat.is_stalled(after(21)));
        work.leaves(64 << 10, after(15));
        assert!(!seat.is_stalled(after(24)) && seat.is_stalled(after(25)), "64 KiB each 15 s are too few");
        drop(work);
        assert!(!seat.is_stalled(after(1000)), "the answer has left");
    }
}
