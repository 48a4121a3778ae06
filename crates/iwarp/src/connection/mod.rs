//! One RDMA stream over one TCP connection.
//!
//! A connection is fed and drained by its owner: `handle_input` takes bytes from TCP, `post_*` takes work, `poll_transmit` gives bytes for
//! TCP, `poll_event` gives what happened, `handle_timeout` is called when `poll_timeout` says so. Nothing else has an effect.
//!
//! The order of states:
//!
//! ```text
//! initiator:  AwaitReply ──────────────────────────► Established ─► Terminating ─► Closed
//! responder:  AwaitRequest ─► AwaitAccept ─► AwaitFirst ─┘
//! ```
//!
//! A responder sends no FPDU before it has received one (RFC 5044 section 7.1.2); siw fails if that is not kept.

mod config;
pub mod direct;
mod posted;
mod receive;
mod receiver;
mod start;
mod transmit;

pub use crate::framing::HEAD_BYTES_MAX;
pub use config::{Agreed, Config, CrcPolicy, LargeFpdus, Shape, ShapeOf};
pub use transmit::Transmitted;

use crate::ddp::AtomicOperation;
use crate::markers::Markers;
use crate::memory::{Memory, MemoryError, Stag, Wish};
use crate::terminate::OffendingSegment;
use crate::{TerminateCode, framing};
use receiver::Receiver;
use start::{Reply, Start};
use std::collections::VecDeque;
use std::time::Duration;
use sys::{ALIGN_BYTES, Buf, BufMut, Payload};
use transmit::Transmitter;
use types::Monotonic;

/// How long a responder waits for the request, and an accepted one for the first FPDU.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that an initiator waits for the reply, as siw does: an owner has to accept sooner.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a terminated stream waits for its last bytes to leave.
pub const TERMINATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Chosen by the owner, given back with the completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Initiator,
    Responder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendFlags {
    pub solicited: bool,
    /// Ends the peer's registration when the message is delivered.
    pub invalidate: Option<Stag>,
    /// Starts only when all earlier reads are complete.
    pub fence: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionKind {
    Send,
    Write,
    Read,
    Atomic,
    Receive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStatus {
    Success,
    /// The stream ended before it was done.
    Flushed,
    /// The sink of a read or atomic is not registered as it has to be.
    LocalProtection,
}

/// The peer's registration that a received message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalidate(pub Stag);

/// The end of one piece of posted work. Work of the send queue completes in the order it was posted, receives in theirs.
#[derive(Debug)]
pub struct Completion {
    pub id: WorkId,
    pub kind: CompletionKind,
    pub status: WorkStatus,
    /// Payload bytes.
    pub len_bytes: usize,
    /// The received bytes, or the receive's buffer if it was flushed.
    pub buffer: Option<Buf>,
    pub invalidated: Option<Invalidate>,
    pub solicited: bool,
    pub immediate: Option<u64>,
    /// The value before an atomic.
    pub original: Option<u64>,
}

impl Completion {
    const fn new(id: WorkId, kind: CompletionKind, status: WorkStatus) -> Self {
        Self {
            id,
            kind,
            status,
            len_bytes: 0,
            buffer: None,
            invalidated: None,
            solicited: false,
            immediate: None,
            original: None,
        }
    }

    fn is_sent(&self) -> bool {
        matches!(self.kind, CompletionKind::Send | CompletionKind::Write)
            && self.status == WorkStatus::Success
    }
}

#[derive(Debug)]
pub enum Event {
    /// Responder: a peer wants to connect; answer with accept or reject within five seconds.
    ConnectRequest {
        private_data: Vec<u8>,
    },
    /// Work may flow. `private_data`: of the reply, for an initiator.
    Established {
        private_data: Vec<u8>,
    },
    /// Initiator: the peer refused.
    Rejected {
        private_data: Vec<u8>,
    },
    Completion(Completion),
    /// The stream ends with an error, found here or reported by the peer.
    Terminated {
        by_peer: bool,
        code: TerminateCode,
    },
    /// Nothing more will come or go: close the TCP connection.
    Closed,
}

/// Why work was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    #[error("the stream is closed")]
    Closed,
    #[error("the peer did not agree to this operation")]
    NotNegotiated,
    #[error("longer than 4 GiB - 1")]
    TooLong,
    #[error("no read depth was agreed: the peer serves no RDMA reads")]
    NoReadDepth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitRequest,
    AwaitAccept,
    AwaitReply,
    AwaitFirst,
    Established,
    Terminating,
    Closed,
}

/// Counters of one stream, for RDMA Activity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub sent_fpdus: u64,
    pub received_fpdus: u64,
    pub write_bytes_out: u64,
    pub write_bytes_in: u64,
    pub read_bytes_out: u64,
    pub read_bytes_in: u64,
    pub send_bytes_out: u64,
    pub send_bytes_in: u64,
}

/// One RDMA stream.
pub struct Connection {
    config: Config,
    state: State,
    agreed: Agreed,
    deadline: Option<Monotonic>,
    /// Nothing is sent before.
    hold_until: Option<Monotonic>,
    start: Start,
    receiver: Receiver,
    /// Longest Send message that is taken, even if its receive has space for more.
    receive_bytes_max: usize,
    transmitter: Transmitter,
    markers: Markers,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Connection {
    /// Begins as initiator: the TCP connection is up.
    pub fn connect(config: Config, private_data: &[u8], now: Monotonic) -> Self {
        let start = Start::initiator(&config, private_data);
        Self::new(config, start, State::AwaitReply, now.after(REPLY_TIMEOUT))
    }

    /// Begins as responder: a TCP connection was accepted.
    pub fn listen(config: Config, now: Monotonic) -> Self {
        Self::new(config, Start::responder(), State::AwaitRequest, now.after(REQUEST_TIMEOUT))
    }

    fn new(config: Config, start: Start, state: State, deadline: Monotonic) -> Self {
        Self {
            config,
            state,
            agreed: Agreed::default(),
            deadline: Some(deadline),
            hold_until: None,
            start,
            receiver: Receiver::default(),
            receive_bytes_max: usize::MAX,
            transmitter: Transmitter::default(),
            markers: Markers::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    pub fn role(&self) -> Role {
        self.start.role()
    }

    /// Returns the agreed settings; meaningful once established.
    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Memory that what has not come whole takes, in bytes: a peer that begins messages and does not end them makes this end hold it.
    #[inline]
    pub fn unfinished_bytes(&self) -> usize {
        self.receiver.unfinished_bytes()
    }

    pub fn is_established(&self) -> bool {
        matches!(self.state, State::Established | State::AwaitFirst)
    }

    /// FPDUs may flow in both directions: the first one has come, or the reply.
    #[inline]
    pub fn is_flowing(&self) -> bool {
        self.state == State::Established
    }

    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Responder: takes the connection. Receives should be posted before.
    ///
    /// # Errors
    /// `Closed` if no request waits.
    pub fn accept(&mut self, private_data: &[u8], now: Monotonic) -> Result<(), PostError> {
        if self.state != State::AwaitAccept {
            return Err(PostError::Closed);
        }
        self.agreed = self.start.accept(&self.config, private_data)?;
        self.state = State::AwaitFirst;
        self.deadline = Some(now.after(REQUEST_TIMEOUT));
        self.events.push_back(Event::Established { private_data: Vec::new() });
        Ok(())
    }

    /// Responder: refuses the connection.
    pub fn reject(&mut self, private_data: &[u8]) {
        if self.state == State::AwaitAccept && self.start.reject(private_data) {
            self.state = State::Terminating;
        }
    }

    /// Takes start-up bytes; returns how many were used, or an error that closes the TCP connection without an answer.
    fn handle_start(&mut self, bytes: &[u8], now: Monotonic) -> Result<usize, ()> {
        match self.state {
            State::AwaitRequest => {
                let Some((used, private_data)) = self.start.take_request(bytes)? else { return Ok(0) };
                self.state = State::AwaitAccept;
                self.deadline = None;
                self.events.push_back(Event::ConnectRequest { private_data });
                Ok(used)
            }
            State::AwaitReply => {
                let Some((used, reply)) = start::parse_reply(&self.config, bytes)? else { return Ok(0) };
                self.handle_reply(reply, now)?;
                Ok(used)
            }
            // Bytes between request and accept: the initiator has to wait.
            _ => Err(()),
        }
    }

    fn handle_reply(&mut self, reply: Reply, now: Monotonic) -> Result<(), ()> {
        let (agreed, listens, private_data, unfit) = match reply {
            Reply::Rejected { private_data } => {
                self.events.push_back(Event::Rejected { private_data });
                return Err(());
            }
            Reply::Accepted { agreed, listens, private_data, unfit } => {
                (agreed, listens, private_data, unfit)
            }
        };
        self.agreed = agreed;
        self.state = State::Established;
        self.deadline = None;
        let is_held = !listens && !self.config.first_send_delay.is_zero();
        self.hold_until = is_held.then(|| now.after(self.config.first_send_delay));
        match unfit {
            Some(code) => self.terminate(code.into(), now),
            None => self.events.push_back(Event::Established { private_data }),
        }
        Ok(())
    }

    /// Posted work of the send queue that is not complete.
    pub fn outstanding_work(&self) -> usize {
        self.transmitter.work_count()
    }

    /// Posted receives that no message has used.
    pub fn posted_receives(&self) -> usize {
        self.receiver.posted_count()
    }

    /// Bytes of memory that an idle connection holds beyond its own size.
    pub fn retained_bytes(&self) -> usize {
        self.receiver.staged_capacity()
    }

    pub fn post_receive(&mut self, id: WorkId, buffer: BufMut) -> Result<(), PostError> {
        if matches!(self.state, State::Closed | State::Terminating) {
            return Err(PostError::Closed);
        }
        self.receiver.post(id, buffer);
        Ok(())
    }

    /// As [`Self::post_receive`], with a buffer that is allocated when a message begins to arrive: as long as the message if that is
    /// known by then, of `len_bytes` else.
    #[inline]
    pub fn post_receive_later(&mut self, id: WorkId, len_bytes: usize) -> Result<(), PostError> {
        if matches!(self.state, State::Closed | State::Terminating) {
            return Err(PostError::Closed);
        }
        self.receiver.post_later(id, len_bytes);
        Ok(())
    }

    /// Send messages may have this length from now on, and no longer than their receives: a peer that is not trusted yet makes this end take
    /// memory for its first ones.
    pub fn set_receive_bytes_max(&mut self, bytes: usize) {
        self.receive_bytes_max = bytes;
    }

    pub fn post_send(&mut self, id: WorkId, payload: Payload, flags: SendFlags) -> Result<(), PostError> {
        self.post_send_with_head(id, &[], payload, flags)
    }

    /// As [`Self::post_send`], with up to [`HEAD_BYTES_MAX`] bytes before the payload, which are copied: no buffer is needed for a short
    /// header. More are too long.
    pub fn post_send_with_head(
        &mut self,
        id: WorkId,
        head: &[u8],
        mut payload: Payload,
        flags: SendFlags,
    ) -> Result<(), PostError> {
        if head.len() > HEAD_BYTES_MAX {
            return Err(PostError::TooLong);
        }
        self.postable(head.len() + payload.len())?;
        if self.cut_at_once(id, head, &mut payload, &flags) {
            return Ok(());
        }
        let mut head = head;
        if head.len() > framing::KEPT_HEAD_BYTES_MAX {
            let mut whole = Payload::from(sys::Buf::from(std::mem::take(&mut head)));
            whole.append(payload);
            payload = whole;
        }
        let work = transmit::Work::Send { head: framing::Head::new(head), payload, flags };
        self.transmitter.push(id, CompletionKind::Send, work);
        Ok(())
    }

    /// Eight bytes that arrive with a completion and no buffer (RFC 7306 section 6).
    pub fn post_immediate(&mut self, id: WorkId, data: u64, solicited: bool) -> Result<(), PostError> {
        self.postable(8)?;
        if !self.agreed.atomics_and_immediate {
            return Err(PostError::NotNegotiated);
        }
        self.transmitter.push(id, CompletionKind::Send, transmit::Work::Immediate { data, solicited });
        Ok(())
    }

    /// Writes into the peer's region. Complete means sent, not placed.
    pub fn post_write(
        &mut self,
        id: WorkId,
        payload: Payload,
        stag: Stag,
        offset: u64,
    ) -> Result<(), PostError> {
        self.postable(payload.len())?;
        self.transmitter.push(id, CompletionKind::Write, transmit::Work::Write { payload, stag, offset });
        Ok(())
    }

    /// Reads `len_bytes` of the peer's region into the region `sink` of `memory`, from `sink_offset` on.
    pub fn post_read(
        &mut self,
        id: WorkId,
        sink: (Stag, u64),
        len_bytes: u32,
        source: (Stag, u64),
    ) -> Result<(), PostError> {
        self.postable(len_bytes as usize)?;
        if self.agreed.outbound_read_depth == 0 {
            return Err(PostError::NoReadDepth);
        }
        self.transmitter.push(id, CompletionKind::Read, transmit::Work::Read { sink, len_bytes, source });
        Ok(())
    }

    pub fn post_atomic(
        &mut self,
        id: WorkId,
        target: (Stag, u64),
        operation: AtomicOperation,
    ) -> Result<(), PostError> {
        self.postable(8)?;
        if !self.agreed.atomics_and_immediate {
            return Err(PostError::NotNegotiated);
        }
        if self.agreed.outbound_read_depth == 0 {
            return Err(PostError::NoReadDepth);
        }
        self.transmitter.push(id, CompletionKind::Atomic, transmit::Work::Atomic { target, operation });
        Ok(())
    }

    fn postable(&self, len_bytes: usize) -> Result<(), PostError> {
        match self.state {
            State::Closed | State::Terminating => Err(PostError::Closed),
            _ if u32::try_from(len_bytes).is_err() => Err(PostError::TooLong),
            _ => Ok(()),
        }
    }

    /// Whether [`Self::transmit`] may have something to send: it is asked far more often than there is anything.
    #[inline]
    pub fn may_transmit(&self) -> bool {
        self.start.has_frame() || self.transmitter.has_work()
    }

    /// Prefetches memory that the next message and its answer need and the connection only points to
    /// ([`sys::prefetch`]); the connection itself is read for that.
    pub fn prefetch(&mut self) {
        self.receiver.prefetch();
        self.transmitter.prefetch();
    }

    /// Whether [`Self::poll_event`] has one.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Hands on the completions at the front of the event queue, in place: `each` takes what it needs out
    /// of them.
    #[inline]
    pub fn take_completions(&mut self, mut each: impl FnMut(&mut Completion)) {
        let mut count = 0;
        for event in &mut self.events {
            let Event::Completion(done) = event else { break };
            each(done);
            count += 1;
        }
        if count == self.events.len() {
            self.events.clear();
        } else {
            self.events.drain(..count);
        }
    }

    /// Returns the next event, oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    #[inline]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        match (self.deadline, self.hold_until) {
            (Some(deadline), Some(hold)) => Some(deadline.min(hold)),
            (deadline, hold) => deadline.or(hold),
        }
    }

    pub fn handle_timeout(&mut self, now: Monotonic, memory: &mut Memory) {
        if self.hold_until.is_some_and(|hold| hold <= now) {
            self.hold_until = None;
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.finish(memory);
        }
    }

    /// The TCP connection ended, or its owner ends it.
    pub fn handle_closed(&mut self, memory: &mut Memory) {
        self.finish(memory);
    }

    fn finish(&mut self, memory: &mut Memory) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.deadline = None;
        self.start.clear();
        self.receiver.release(memory);
        let (transmitter, receiver) = (&mut self.transmitter, &mut self.receiver);
        transmitter.release(memory);
        self.events.extend(transmitter.flush().chain(receiver.flush()).map(Event::Completion));
        self.events.push_back(Event::Closed);
    }

    /// Ends the stream with a Terminate to the peer.
    fn terminate(&mut self, failure: Failure, now: Monotonic) {
        if matches!(self.state, State::Terminating | State::Closed) {
            return;
        }
        let may_send = self.state == State::Established;
        self.state = State::Terminating;
        self.deadline = Some(now.after(if may_send { TERMINATE_TIMEOUT } else { Duration::ZERO }));
        self.events.push_back(Event::Terminated { by_peer: false, code: failure.code });
        if may_send {
            self.transmitter.push_terminate(failure.code.encode(failure.segment.as_ref()));
        }
    }

    fn push_completions(&mut self) {
        while let Some(completion) = self.transmitter.pop_complete() {
            self.push_completion(completion);
        }
    }

    fn push_completion(&mut self, completion: Completion) {
        let Completion { id, kind, len_bytes, .. } = completion;
        if !completion.is_sent() || !self.joins_sent(id, kind, len_bytes) {
            self.events.push_back(Event::Completion(completion));
        }
    }

    /// Completes a Send that succeeded: seldom is a completion made for it.
    #[inline]
    fn push_sent(&mut self, id: WorkId, len_bytes: usize) {
        if !self.joins_sent(id, CompletionKind::Send, len_bytes) {
            let sent = Completion::new(id, CompletionKind::Send, WorkStatus::Success);
            self.events.push_back(Event::Completion(Completion { len_bytes, ..sent }));
        }
    }

    /// Adds sent bytes to the last completion, if that is of such and they share one.
    #[inline]
    fn joins_sent(&mut self, id: WorkId, kind: CompletionKind, len_bytes: usize) -> bool {
        match self.events.back_mut() {
            Some(Event::Completion(last)) if self.config.tells_sent_together && last.is_sent() => {
                (last.id, last.kind) = (id, kind);
                last.len_bytes += len_bytes;
                true
            }
            _ => false,
        }
    }
}

/// Why the stream has to end, with the segment that caused it.
struct Failure {
    code: TerminateCode,
    segment: Option<OffendingSegment>,
}

impl From<TerminateCode> for Failure {
    fn from(code: TerminateCode) -> Self {
        Self { code, segment: None }
    }
}

/// The Terminate code of a refused tagged placement: DDP's own, except for access rights, which are RDMAP's.
fn tagged_code(error: MemoryError) -> TerminateCode {
    match error {
        MemoryError::Stag | MemoryError::Busy => TerminateCode::DDP_TAGGED_STAG,
        MemoryError::Bounds => TerminateCode::DDP_TAGGED_BOUNDS,
        MemoryError::Access => TerminateCode::RDMAP_ACCESS,
        MemoryError::NotAssociated => TerminateCode::DDP_TAGGED_NOT_ASSOCIATED,
        MemoryError::Wrap => TerminateCode::DDP_TAGGED_WRAP,
    }
}

/// The Terminate code of a refused source of a read or target of an atomic.
fn remote_code(error: MemoryError) -> TerminateCode {
    match error {
        MemoryError::Stag | MemoryError::Busy => TerminateCode::RDMAP_INVALID_STAG,
        MemoryError::Bounds => TerminateCode::RDMAP_BOUNDS,
        MemoryError::Access => TerminateCode::RDMAP_ACCESS,
        MemoryError::NotAssociated => TerminateCode::RDMAP_NOT_ASSOCIATED,
        MemoryError::Wrap => TerminateCode::RDMAP_WRAP,
    }
}
