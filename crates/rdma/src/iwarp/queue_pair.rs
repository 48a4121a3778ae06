//! One connection: the engine, its socket, and the operations under way between them.
//!
//! If much of a message is still to come, the kernel puts it straight into its place
//! ([`iwarp::connection::direct`]), and further such messages that the socket has already in the same
//! turn. Otherwise bytes are staged and copied from cache. Many FPDUs leave in one send, at once as far
//! as the socket takes them; one send is under way at a time. An idle connection holds no receive
//! buffer.

use super::{RECEIVE, SEND};
use crate::timers::Armed;
use crate::verbs::{
    Activity, CloseReason, Completion, CompletionKind, Event, QueuePairId, RegionKey, Status, WorkId,
};
use iwarp::connection::Transmitted;
use iwarp::connection::direct::{Expected, Plan};
use iwarp::{Connection, Memory, WorkStatus};
use smallvec::SmallVec;
use std::io::IoSlice;
use std::net::SocketAddr;
use sys::BufMut;
use sys::driver::{self, Descriptor, IoOperation, Outcome, Piece, Place, Queue, Scatter};
use types::Monotonic;

/// Receive buffer of a connection with traffic, and of one that filled that.
const RECEIVE_BYTES: usize = 32 << 10;
const RECEIVE_BYTES_MANY: usize = 256 << 10;
/// The same if long payload came last: enough to see what comes next, and little to be copied if that is payload again. A request to read
/// fits (164 bytes); of one to write there are 156 bytes of headers, and a cache line of payload, so that the rest is received from the start
/// of another on, to where it can be copied fastest.
const RECEIVE_BYTES_PEEK: usize = 156 + 64;
/// Memory behind the last payload that goes straight to its place: for the header of the next one, not
/// for that itself.
const BEHIND_BYTES: usize = 1 << 10;
/// Long payload that is received in one turn of the loop, about: a busy peer delays others no longer. With less, fewer messages are worked off
/// together, and their sender wakes for fewer answers each time.
const TURN_BYTES: usize = 2 << 20;
/// One send takes about this many bytes.
const SEND_BYTES: usize = 2 << 20;
/// Slices of one send that need no memory of their own: of as many small answers as are worked off together.
const SLICES_INLINE: usize = 32;
/// Receives for which the next send waits at most if more bytes have come than one receive could take:
/// the other end has less to wake up for, and more to do each time.
const HELD_RECEIVES_MAX: u8 = 4;

/// State that receives into place need beside the memory that they fill.
#[derive(Default)]
pub(super) struct Receipt {
    plan: Plan,
    into: Option<Box<Scatter>>,
}

/// Receipts that no receive has: the one used last is taken first, as it is still in the processor's cache if each connection's own
/// had left it.
#[derive(Default)]
pub(super) struct Receipts(Vec<Receipt>);

impl Receipts {
    /// As many are kept, at most.
    const SPARE_MAX: usize = 64;

    fn take(&mut self) -> Receipt {
        self.0.pop().unwrap_or_default()
    }

    fn give_back(&mut self, receipt: Receipt) {
        if self.0.len() < Self::SPARE_MAX {
            self.0.push(receipt);
        }
    }
}

/// See the module.
pub(super) struct QueuePair {
    pub(super) id: QueuePairId,
    pub(super) socket: Descriptor,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) connection: Connection,
    pub(super) receiving: Receiving,
    pub(super) sending: bool,
    /// Bytes of the next receive; zero: it waits without a buffer.
    receive_bytes: usize,
    buffer: Option<BufMut>,
    /// Of the receive under way, if it has one; the kernel has what it is received into.
    plan: Plan,
    pub(super) last_heard: Monotonic,
    pub(super) reason: Option<CloseReason>,
    /// Whether the engine has reported the closing.
    pub(super) finished: bool,
    /// In the provider's list of those for which something may be to be done.
    pub(super) touched: bool,
    pub(super) armed: Armed,
    /// When a last send that the peer does not take is given up.
    pub(super) linger_until: Option<Monotonic>,
    /// FPDUs flow in both directions.
    pub(super) active: bool,
    /// The last receive was filled: there is more, and it is received before anything is sent.
    holds: bool,
    held_receives: u8,
    /// Bytes of unfinished messages last reported to the owner.
    pub(super) told_unfinished_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiving {
    No,
    /// Waits for bytes without a buffer.
    Readable,
    Bytes,
    /// As the plan says.
    Planned,
}

impl QueuePair {
    pub(super) fn new(
        id: QueuePairId,
        socket: Descriptor,
        local: SocketAddr,
        peer: SocketAddr,
        connection: Connection,
        now: Monotonic,
    ) -> Self {
        Self {
            id,
            socket,
            local,
            peer,
            connection,
            receiving: Receiving::No,
            sending: false,
            receive_bytes: 0,
            buffer: None,
            plan: Plan::default(),
            last_heard: now,
            reason: None,
            finished: false,
            touched: false,
            armed: Armed::default(),
            linger_until: None,
            active: false,
            holds: false,
            held_receives: 0,
            told_unfinished_bytes: 0,
        }
    }

    /// Puts it into the list of those for which something may be to be done, unless it is there.
    pub(super) fn touch(&mut self, slot: usize, touched: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.touched, true) {
            touched.push(slot as u32);
        }
    }

    /// Gives received bytes to the engine.
    pub(super) fn received(
        &mut self,
        completion: driver::Completion,
        memory: &mut Memory,
        receipts: &mut Receipts,
        now: Monotonic,
    ) {
        let was = std::mem::replace(&mut self.receiving, Receiving::No);
        let count = match completion.result {
            Ok(Outcome::Bytes(count)) => count,
            _ => 0,
        };
        if let Some(into) = completion.scatter {
            let mut receipt = Receipt { plan: std::mem::take(&mut self.plan), into: Some(into) };
            self.took(&mut receipt, count, memory, now);
            receipts.give_back(receipt);
        } else if let Some(buffer) = completion.buffer {
            self.holds = count == buffer.len();
            let input = buffer.freeze();
            self.connection.handle_shared_input(&input, count, memory, now);
            self.receive_bytes = match input.len() {
                _ if self.connection.wants_plan(memory) => RECEIVE_BYTES_PEEK,
                RECEIVE_BYTES_PEEK if self.holds => RECEIVE_BYTES,
                _ if self.holds => RECEIVE_BYTES_MANY,
                len if count < RECEIVE_BYTES / 2 => len.min(RECEIVE_BYTES),
                len => len,
            };
            // Messages that share it keep it.
            self.buffer = Some(input)
                .filter(|input| input.len() == self.receive_bytes)
                .and_then(|input| input.try_into_mut().ok());
        }
        match completion.result {
            // Readable: the next receive takes a buffer.
            Ok(Outcome::Done) => (self.receive_bytes, self.last_heard) = (RECEIVE_BYTES, now),
            Ok(Outcome::Bytes(0)) => {
                self.reason.get_or_insert(CloseReason::Peer);
                self.connection.handle_closed(memory);
            }
            Ok(Outcome::Bytes(_)) => self.last_heard = now,
            Ok(Outcome::Accepted(_)) => {}
            // The connection was idle: the receive was cancelled, and its buffer goes until bytes come.
            Err(error) if driver::is_cancelled(&error) && was == Receiving::Bytes && !self.finished => {
                (self.receive_bytes, self.buffer) = (0, None);
            }
            Err(error) => {
                self.reason.get_or_insert(CloseReason::Network(error.kind()));
                self.connection.handle_closed(memory);
            }
        }
        if self.holds && !self.finished {
            self.receive_now(memory, receipts, now);
        }
    }

    /// Gives bytes that were planned or peeked at to the engine.
    fn took(&mut self, receipt: &mut Receipt, count: usize, memory: &mut Memory, now: Monotonic) {
        let Some(into) = receipt.into.as_deref_mut() else { return };
        let payload = std::mem::replace(&mut into.payload, BufMut::zeroed(0));
        self.holds = count == into.pieces.iter().map(|piece| piece.range.len()).sum();
        if count == 0 {
            self.connection.give_up_plan(&receipt.plan, payload, memory);
        } else {
            self.connection.handle_planned(&receipt.plan, payload, &into.between, count, memory, now);
        }
        self.receive_bytes = RECEIVE_BYTES_PEEK;
    }

    /// Takes the bytes of long payload that the socket has already, in this turn. The loop receives later
    /// ones, and the end of the stream.
    fn receive_now(&mut self, memory: &mut Memory, receipts: &mut Receipts, now: Monotonic) {
        let (mut received_bytes, mut may_peek) = (0, false);
        let mut receipt = receipts.take();
        while self.holds && received_bytes < TURN_BYTES {
            let is_planned = self.plan_into(&mut receipt, memory);
            // The next bytes may be the short end of a message, with a long message behind it.
            if !is_planned && !may_peek {
                break;
            }
            may_peek = is_planned;
            let socket = &self.socket;
            let received =
                receipt.into.as_deref_mut().map(|into| driver::receive_scattered_now(socket, into));
            let count = match received {
                Some(Ok(Some(count))) => count,
                _ => 0,
            };
            received_bytes += count;
            self.took(&mut receipt, count, memory, now);
            if count == 0 {
                break;
            }
        }
        receipts.give_back(receipt);
    }

    /// Plans the next receive, straight to its place if that is known. `false`: it is not, and the plan has
    /// no payload.
    fn plan_into(&mut self, receipt: &mut Receipt, memory: &mut Memory) -> bool {
        let payload = self.connection.plan_receive(memory, &mut receipt.plan);
        let is_planned = payload.is_some();
        let into = receipt.into.get_or_insert_with(|| {
            let (payload, between) = (BufMut::zeroed(0), BufMut::zeroed(0));
            Box::new(Scatter { payload, between, pieces: Vec::new() })
        });
        let between_bytes = receipt.plan.between_bytes() + BEHIND_BYTES;
        if into.between.len() < between_bytes {
            into.between = BufMut::for_overwrite(between_bytes);
        }
        if let Some(payload) = payload {
            into.payload = payload;
        }
        fill_pieces(&receipt.plan, &mut into.pieces);
        is_planned
    }

    /// Starts the next receive: straight to its place if much of a message is still to come.
    pub(super) fn receive(&mut self, queue: &Queue, memory: &mut Memory, receipts: &mut Receipts) {
        if self.receiving != Receiving::No || self.finished {
            return;
        }
        let socket = self.socket.clone();
        let token = self.id.0 << 2 | RECEIVE;
        if self.connection.wants_plan(memory) {
            let mut receipt = receipts.take();
            let is_planned = self.plan_into(&mut receipt, memory);
            if let Some(into) = receipt.into.take_if(|_| is_planned) {
                (self.plan, self.receiving) = (receipt.plan, Receiving::Planned);
                return queue.submit(token, IoOperation::ReceiveScattered { socket, into });
            }
            receipts.give_back(receipt);
        }
        if self.receive_bytes == 0 {
            self.receiving = Receiving::Readable;
            return queue.submit(token, IoOperation::Readable { socket });
        }
        self.receiving = Receiving::Bytes;
        let len_bytes = self.receive_bytes;
        let into = self.buffer.take().unwrap_or_else(|| BufMut::for_overwrite(len_bytes));
        queue.submit(token, IoOperation::Receive { socket, into, at: 0 });
    }

    /// Whether the last receive was filled, so that what is to be sent waits for the next one.
    pub(super) fn holds_back(&mut self) -> bool {
        let holds =
            std::mem::take(&mut self.holds) && self.held_receives < HELD_RECEIVES_MAX && !self.finished;
        self.held_receives = if holds { self.held_receives + 1 } else { 0 };
        holds
    }

    /// At once what the socket takes, the rest as it takes it.
    pub(super) fn send(&mut self, queue: &Queue, memory: &mut Memory, now: Monotonic) {
        let socket = &self.socket;
        while !self.sending && self.connection.may_transmit() {
            let sent = self.connection.transmit(memory, SEND_BYTES, now, |fpdus| {
                let mut slices = SmallVec::<[IoSlice<'_>; SLICES_INLINE]>::new();
                fpdus.slices(|slice| slices.push(IoSlice::new(slice)));
                // An error shows again, to be acted on, when the loop sends.
                driver::send_slices_now(socket, &slices).unwrap_or(0)
            });
            match sent {
                Transmitted::Nothing => return,
                Transmitted::All => {}
                Transmitted::Rest(data) => {
                    self.sending = true;
                    let socket = socket.clone();
                    queue.submit(self.id.0 << 2 | SEND, IoOperation::Send { socket, data });
                }
            }
        }
    }

    /// The loop has sent the rest.
    pub(super) fn sent(&mut self, completion: driver::Completion, memory: &mut Memory) {
        self.sending = false;
        if let Err(error) = completion.result {
            self.reason.get_or_insert(CloseReason::Network(error.kind()));
            self.connection.handle_closed(memory);
        }
    }

    /// Takes the engine's events, in the words of verbs.
    #[inline]
    pub(super) fn take_events(&mut self, activity: &mut Activity, out: &mut Vec<Event>) {
        if self.connection.has_events() {
            self.take_all_events(activity, out);
        }
    }

    fn take_all_events(&mut self, activity: &mut Activity, out: &mut Vec<Event>) {
        let queue_pair = self.id;
        loop {
            self.connection.take_completions(|done| {
                let wrong = done.status == WorkStatus::LocalProtection;
                activity.completion_queue_errors += u64::from(wrong);
                let Some(kind) = kind(done.kind) else { return };
                out.push(Event::Completion(Completion {
                    queue_pair,
                    id: WorkId(done.id.0),
                    kind,
                    status: match done.status {
                        WorkStatus::Success => Status::Success,
                        WorkStatus::Flushed => Status::Flushed,
                        WorkStatus::LocalProtection => Status::LocalProtection,
                    },
                    len_bytes: done.len_bytes,
                    buffer: done.buffer.take(),
                    invalidated: done.invalidated.map(|iwarp::Invalidate(stag)| RegionKey(stag.0)),
                }));
            });
            let Some(event) = self.connection.poll_event() else { return };
            match event {
                iwarp::Event::ConnectRequest { private_data } => {
                    out.push(Event::ConnectRequest { queue_pair, peer: self.peer, private_data });
                }
                iwarp::Event::Established { private_data } => {
                    out.push(Event::Established { queue_pair, private_data });
                }
                iwarp::Event::Rejected { .. } => self.reason = Some(CloseReason::Rejected),
                // The loop has taken those before this one.
                iwarp::Event::Completion(_) => {}
                iwarp::Event::Terminated { by_peer, code } => {
                    let text = code.to_string();
                    self.reason = Some(match by_peer {
                        true => CloseReason::TerminatedByPeer(text),
                        false => CloseReason::Terminated(text),
                    });
                }
                iwarp::Event::Closed => self.finished = true,
            }
        }
    }
}

/// The plan in the driver's terms, and memory behind it for the next bytes.
fn fill_pieces(plan: &Plan, pieces: &mut Vec<Piece>) {
    pieces.clear();
    let mut from = 0;
    let mut between = |len_bytes: usize| {
        let range = from..from + len_bytes;
        from = range.end;
        Piece { place: Place::Between, range }
    };
    for piece in &plan.pieces {
        pieces.push(match *piece {
            Expected::Payload { at, len_bytes } => Piece { place: Place::Payload, range: at..at + len_bytes },
            Expected::Between { len_bytes } => between(len_bytes),
        });
    }
    pieces.push(between(BEHIND_BYTES));
}

/// Verbs have no atomics here: their completions do not occur.
fn kind(kind: iwarp::CompletionKind) -> Option<CompletionKind> {
    match kind {
        iwarp::CompletionKind::Send => Some(CompletionKind::Send),
        iwarp::CompletionKind::Write => Some(CompletionKind::Write),
        iwarp::CompletionKind::Read => Some(CompletionKind::Read),
        iwarp::CompletionKind::Receive => Some(CompletionKind::Receive),
        iwarp::CompletionKind::Atomic => None,
    }
}
