//! [`Membership`] on a UDP socket, in a thread of its own.
//!
//! Owns the thread, the socket and the snapshot that other threads read. Promises: what the data plane asks here takes no system call
//! and waits for nothing but a lock that is held for a moment; the thread sends heartbeats whatever other threads do, and tells peers how
//! long the data plane has made no turn.

use super::{DATAGRAM_BYTES_MAX, Event, FormerOwner, Lease, Member, Membership, Options, Verdict};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use sys::monotonic_now;
use types::{Monotonic, NodeId};

/// Datagrams that are read before others have their turn: a flood may cost peers' heartbeats, not the thread's clock.
const DATAGRAMS_A_TURN: usize = 256;
/// Events that wait for who takes them; beyond, the verdicts tell the rest.
const EVENTS_MAX: usize = 1024;

/// What the thread asks and tells.
pub struct Surroundings {
    /// Turns that the data plane has made.
    pub turns: Box<dyn Fn() -> u64 + Send>,
    /// Makes the data plane turn, so that an idle one is told from one that hangs.
    pub poke: Box<dyn Fn() + Send>,
    /// Called when events wait; must not block.
    pub wake: Box<dyn Fn() + Send>,
    /// Told, at each heartbeat, until when this node may answer from memory; must not block.
    pub answer_until: Box<dyn Fn(Monotonic) + Send>,
}

/// The peers as of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers {
    pub verdicts: BTreeMap<NodeId, Verdict>,
    /// Datagrams that were not taken since the start.
    pub refused: u64,
}

#[derive(Default)]
struct Snapshot {
    peers: Peers,
    lease: Option<Lease>,
    may_answer_until: Option<Monotonic>,
    unconfirmed_term: Option<u64>,
    events: Vec<Event>,
}

enum Order {
    SetMembers(Vec<Member>),
    NoteReset(NodeId),
    NoteApplied(u64),
    MayAnswerFor(FormerOwner, mpsc::Sender<bool>),
    Confirm(u64),
    Stop,
}

struct Shared {
    snapshot: Mutex<Snapshot>,
    orders: Mutex<Vec<Order>>,
    ordered: OwnedFd,
}

/// The running heartbeats. Dropping it ends the thread.
pub struct Heartbeats {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Heartbeats {
    /// Begins to send and to hear on `socket`.
    ///
    /// # Errors
    /// The socket cannot be used, or there is no thread.
    pub fn start(
        options: Options,
        socket: UdpSocket,
        members: Vec<Member>,
        surroundings: Surroundings,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let ordered = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { snapshot: Mutex::default(), orders: Mutex::default(), ordered });
        let now = monotonic_now();
        let mut membership = Membership::new(options, now);
        membership.set_members(&members, now);
        let interval = membership.options.timing.dead;
        let beating =
            Beating { membership, socket, shared: shared.clone(), surroundings, poked: now, interval };
        let thread = std::thread::Builder::new().name("heartbeats".into()).spawn(move || beating.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The peers as the records have them; see [`Membership::set_members`].
    pub fn set_members(&self, members: Vec<Member>) {
        self.order(Order::SetMembers(members));
    }

    /// All connections to a peer's process were reset.
    pub fn note_reset(&self, node: NodeId) {
        self.order(Order::NoteReset(node));
    }

    /// See [`Membership::note_applied`].
    pub fn note_applied(&self, revision: u64) {
        self.order(Order::NoteApplied(revision));
    }

    /// See [`Membership::may_answer_for`]. Waits for the thread, so not for the data plane's.
    pub fn may_answer_for(&self, before: FormerOwner) -> bool {
        let (give, take) = mpsc::channel();
        self.order(Order::MayAnswerFor(before, give));
        take.recv().unwrap_or(false)
    }

    /// The term whose lease waits for the records to be read: read them now, act by them, and [`Heartbeats::confirm`] it. `None`: there is
    /// no lease, or nothing to do.
    pub fn unconfirmed_term(&self) -> Option<u64> {
        self.snapshot().unconfirmed_term
    }

    /// The records were read after [`Heartbeats::unconfirmed_term`] told this term, and this node acts by them.
    pub fn confirm(&self, term: u64) {
        self.order(Order::Confirm(term));
    }

    /// Until when this node may answer from memory: the lease's end, if its term is confirmed.
    pub fn may_answer_until(&self) -> Option<Monotonic> {
        self.snapshot().may_answer_until
    }

    fn order(&self, order: Order) {
        self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        // Fails only if it was not read for 2^64 orders.
        let _ = rustix::io::write(&self.shared.ordered, &1_u64.to_ne_bytes());
    }

    /// This node's lease; invalid until the first heartbeats were exchanged.
    pub fn lease(&self) -> Lease {
        self.snapshot().lease.unwrap_or(Lease { term: 0, valid_until: None })
    }

    pub fn peers(&self) -> Peers {
        self.snapshot().peers.clone()
    }

    /// What happened since this was asked last.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.snapshot().events)
    }

    fn snapshot(&self) -> MutexGuard<'_, Snapshot> {
        self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Beating {
    membership: Membership,
    socket: UdpSocket,
    shared: Arc<Shared>,
    surroundings: Surroundings,
    poked: Monotonic,
    /// Between two pokes of an idle data plane.
    interval: Duration,
}

impl Beating {
    fn run(mut self) {
        loop {
            if !self.obey(monotonic_now()) {
                return;
            }
            self.hear();
            let now = monotonic_now();
            self.ask_data_plane(now);
            let mut out = Vec::new();
            self.membership.poll(now, &mut out);
            for (address, datagram) in out {
                // Lost datagrams are what heartbeats are about.
                let _ = self.socket.send_to(&datagram, address);
            }
            self.publish();
            self.wait();
        }
    }

    fn obey(&mut self, now: Monotonic) -> bool {
        let orders = std::mem::take(&mut *self.shared.orders.lock().unwrap_or_else(PoisonError::into_inner));
        for order in orders {
            match order {
                Order::SetMembers(members) => self.membership.set_members(&members, now),
                Order::NoteReset(node) => self.membership.note_reset(node, now),
                Order::NoteApplied(revision) => self.membership.note_applied(revision, now),
                // Who asks may have given up.
                Order::MayAnswerFor(before, give) => {
                    let _ = give.send(self.membership.may_answer_for(&before, now));
                }
                Order::Confirm(term) => self.membership.confirm(term, now),
                Order::Stop => return false,
            }
        }
        true
    }

    fn hear(&mut self) {
        // One byte more than any datagram has, so that a longer one is seen to be none.
        let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
        for _ in 0..DATAGRAMS_A_TURN {
            // An error here is an answer to what was sent to a port that nobody listens on, or that nothing waits.
            let Ok((count, _)) = self.socket.recv_from(&mut bytes) else { return };
            if let Err(why) = self.membership.receive(&bytes[..count], monotonic_now()) {
                tracing::trace!(%why, "a datagram was not taken");
            }
        }
    }

    fn ask_data_plane(&mut self, now: Monotonic) {
        self.membership.note_turns((self.surroundings.turns)(), now);
        if now.since(self.poked) >= self.interval {
            self.poked = now;
            (self.surroundings.poke)();
        }
    }

    fn publish(&mut self) {
        let events = self.membership.take_events();
        for event in &events {
            tracing::debug!(?event, "heartbeats");
        }
        let unconfirmed_term = self.membership.unconfirmed_term(monotonic_now());
        let may_answer_until = self.membership.may_answer_until();
        let has_news;
        {
            let mut snapshot = self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            has_news = !events.is_empty()
                || (unconfirmed_term.is_some() && unconfirmed_term != snapshot.unconfirmed_term);
            snapshot.unconfirmed_term = unconfirmed_term;
            snapshot.may_answer_until = may_answer_until;
            snapshot.peers =
                Peers { verdicts: self.membership.verdicts(), refused: self.membership.refused() };
            snapshot.lease = Some(self.membership.lease());
            snapshot.events.extend(events);
            let overflow = snapshot.events.len().saturating_sub(EVENTS_MAX);
            snapshot.events.drain(..overflow);
        }
        if let Some(until) = may_answer_until {
            (self.surroundings.answer_until)(until);
        }
        if has_news {
            (self.surroundings.wake)();
        }
    }

    /// Until a datagram or an order comes, or time has something to say.
    fn wait(&self) {
        let patience = self.membership.next_timeout().since(monotonic_now());
        let timeout =
            Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
        let mut waited =
            [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.shared.ordered, PollFlags::IN)];
        // Interrupted: the loop looks anyway.
        let _ = poll(&mut waited, Some(&timeout));
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.ordered, &mut count);
    }
}
