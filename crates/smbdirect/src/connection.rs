//! One SMB Direct connection over one RDMA stream.
//!
//! The owner posts receives when [`Event::PostReceives`] says so, feeds what arrives to `handle_receive`, which gives messages, sends what
//! `poll_transmit` gives, and calls `handle_timeout` when `poll_timeout` says so.

use crate::credits::Credits;
use crate::reassembly::Reassembly;
use crate::wire::{
    DATA_OFFSET, DataTransfer, FLAG_RESPONSE_REQUESTED, FRAGMENTED_BYTES_MIN, NegotiateRequest,
    NegotiateResponse, RECEIVE_BYTES_MIN, VERSION, WireError,
};
use std::collections::VecDeque;
use std::time::Duration;
use sys::{Buf, Payload};
use types::{Monotonic, NtStatus};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// Bytes of a transfer when receives take memory only as messages come ([`Config::receives_on_demand`]): one holds a READ or WRITE of 1 MiB
/// with its headers, encrypted or not.
const ON_DEMAND_BYTES: u32 = (1 << 20) + 1024;

/// Settings that one end brings to the negotiation. The defaults and their reasons are those of MS-SMBD appendix B, except for the receive size: 8192
/// bytes hold any request without payload and a 4 KiB answer in one transfer.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Receives that are posted at most.
    pub receive_credits_max: u16,
    /// Credits that are asked of the peer.
    pub send_credit_target: u16,
    pub send_bytes_max: u32,
    pub receive_bytes_max: u32,
    pub fragmented_bytes_max: u32,
    /// Server: largest payload of one RDMA read or write.
    pub read_write_bytes_max: u32,
    pub keepalive_interval: Duration,
    /// How long an answer to a keepalive may take.
    pub keepalive_timeout: Duration,
    pub negotiate_timeout: Duration,
}

impl Config {
    /// For a stream whose receives take memory only as messages come: transfers may be as long as that pays.
    #[must_use]
    pub fn receives_on_demand(self) -> Self {
        let fragmented_bytes_max = self.fragmented_bytes_max.max(ON_DEMAND_BYTES);
        Self {
            send_bytes_max: ON_DEMAND_BYTES,
            receive_bytes_max: ON_DEMAND_BYTES,
            fragmented_bytes_max,
            ..self
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_credits_max: 255,
            send_credit_target: 255,
            send_bytes_max: 8192,
            receive_bytes_max: 8192,
            fragmented_bytes_max: 1_048_576,
            read_write_bytes_max: 8 << 20,
            keepalive_interval: Duration::from_secs(120),
            keepalive_timeout: Duration::from_secs(5),
            negotiate_timeout: Duration::from_secs(120),
        }
    }
}

/// One RDMA Send to be posted.
#[derive(Debug)]
pub struct Outgoing {
    /// The header of a data transfer; empty in the negotiation.
    pub head: Head,
    pub payload: Payload,
    /// Registration of the peer that this Send ends (Send with Invalidate).
    pub invalidate: Option<u32>,
}

/// The bytes of a header: of [`DATA_OFFSET`] at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head {
    bytes: [u8; DATA_OFFSET],
    len: usize,
}

impl std::ops::Deref for Head {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Outgoing {
    fn negotiation(bytes: Buf) -> Self {
        Self { head: Head::default(), payload: bytes.into(), invalidate: None }
    }

    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Header and payload in one.
    pub fn whole(&self) -> Payload {
        let mut whole = Payload::from(Buf::from(&self.head[..]));
        whole.append(self.payload.clone());
        whole
    }
}

#[derive(Debug)]
pub enum Event {
    /// Negotiated; messages may flow.
    Established,
    /// Post this many receives of `receive_bytes_max` bytes, then say so with `receives_posted`.
    PostReceives(u16),
    /// Disconnect the stream.
    Closed(CloseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("{0}")]
    Wire(WireError),
    #[error("the peers have no version in common")]
    Version,
    #[error("a size or credit of the negotiation is out of bounds: {0}")]
    Bounds(&'static str),
    #[error("the server refused: {0}")]
    Refused(NtStatus),
    #[error("the peer sent without a credit")]
    CreditUnderflow,
    #[error("the peer granted more credits than there can be")]
    CreditOverflow,
    #[error("a fragmented message is longer than was agreed, or does not add up")]
    Fragments,
    #[error("no answer in time")]
    TimedOut,
    #[error("disconnected")]
    Disconnected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the connection is not established or closed")]
    NotEstablished,
    #[error("the message is longer than the peer takes")]
    TooLong,
}

/// The counters that Windows keeps as "SMB Direct Connection", as far as this layer sees them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub transfers_sent: u64,
    pub transfers_received: u64,
    pub remote_invalidations: u64,
    /// Times that the peer was asked for a sign of life.
    pub keepalives: u64,
    /// Times that a message waited because no credit was there.
    pub stalls_send_credit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitRequest,
    AwaitResponse,
    Established,
    /// A refusing response is still to be sent.
    Refusing,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    Negotiate,
    Idle,
    KeepaliveAnswer,
}

struct Queued {
    /// Empty once it is all handed out.
    message: Payload,
    len: usize,
    sent: usize,
    invalidate: Option<u32>,
    stalled: bool,
}

/// The state machine of MS-SMBD 3.1.
pub struct Connection {
    role: Role,
    config: Config,
    state: State,
    credits: Credits,
    send_bytes_max: u32,
    receive_bytes_max: u32,
    /// Longest transfer that the peer has said it sends.
    transfer_in_bytes_max: u32,
    fragmented_send_bytes_max: u32,
    read_write_bytes_max: u32,
    handshake: Option<Buf>,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    reassembly: Reassembly,
    /// Of a message from the peer: as was agreed, or less while the owner says so.
    message_bytes_max: u32,
    respond: bool,
    request_response: bool,
    /// Transfers came since the owner last looked: receives may be to be posted.
    received: bool,
    timer: Timer,
    deadline: Monotonic,
    events: VecDeque<Event>,
    counters: Counters,
}

impl Connection {
    /// The client end of a stream that is up; its owner posts the first receives before anything is sent.
    pub fn connect(config: Config, now: Monotonic) -> Self {
        let mut connection = Self::new(Role::Client, State::AwaitResponse, config, now);
        let request = NegotiateRequest {
            version_min: VERSION,
            version_max: VERSION,
            credits_requested: config.send_credit_target,
            preferred_send_bytes: config.send_bytes_max,
            receive_bytes_max: config.receive_bytes_max,
            fragmented_bytes_max: config.fragmented_bytes_max,
        };
        connection.handshake = Some(Buf::from(&request.encode()[..]));
        connection.events.push_back(Event::PostReceives(1));
        connection
    }

    /// The server end of a stream that is up.
    pub fn listen(config: Config, now: Monotonic) -> Self {
        let mut connection = Self::new(Role::Server, State::AwaitRequest, config, now);
        connection.events.push_back(Event::PostReceives(1));
        connection
    }

    fn new(role: Role, state: State, config: Config, now: Monotonic) -> Self {
        Self {
            role,
            config,
            state,
            credits: Credits::new(config.receive_credits_max),
            send_bytes_max: config.send_bytes_max,
            receive_bytes_max: config.receive_bytes_max,
            transfer_in_bytes_max: 0,
            fragmented_send_bytes_max: 0,
            read_write_bytes_max: config.read_write_bytes_max,
            handshake: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            reassembly: Reassembly::default(),
            message_bytes_max: config.fragmented_bytes_max,
            respond: false,
            request_response: false,
            received: false,
            timer: Timer::Negotiate,
            deadline: now.after(config.negotiate_timeout),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    pub fn role(&self) -> Role {
        self.role
    }

    #[inline]
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Longest message that may be sent, in bytes.
    pub fn fragmented_send_bytes_max(&self) -> u32 {
        self.fragmented_send_bytes_max
    }

    /// Size of the receives to post, in bytes.
    pub fn receive_bytes_max(&self) -> u32 {
        self.receive_bytes_max
    }

    /// Largest payload of one RDMA read or write, in bytes.
    pub fn read_write_bytes_max(&self) -> u32 {
        self.read_write_bytes_max
    }

    /// Longest transfer that may be sent, in bytes.
    pub fn send_bytes_max(&self) -> u32 {
        self.send_bytes_max
    }

    /// Longest transfer that the peer sends, in bytes; zero before it said so.
    pub fn transfer_in_bytes_max(&self) -> u32 {
        self.transfer_in_bytes_max
    }

    pub fn send_credits(&self) -> u16 {
        self.credits.send_credits()
    }

    pub fn receive_credits(&self) -> u16 {
        self.credits.receive_credits()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Messages that wait to be sent.
    pub fn queued_messages(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of messages that wait to be sent.
    #[inline]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Memory of a message of which only some transfers have come, in bytes.
    #[inline]
    pub fn unfinished_bytes(&self) -> usize {
        self.reassembly.held_bytes()
    }

    /// Whether [`Self::poll_event`] may have one.
    #[inline]
    pub fn has_events(&self) -> bool {
        self.received || !self.events.is_empty()
    }

    /// The receives for all transfers that came are one event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.received) && self.state == State::Established {
            let to_post = self.credits.to_post();
            if to_post > 0 {
                return Some(Event::PostReceives(to_post));
            }
        }
        self.events.pop_front()
    }

    #[inline]
    pub fn poll_timeout(&self) -> Option<Monotonic> {
        (self.state != State::Closed).then_some(self.deadline)
    }

    pub fn handle_timeout(&mut self, now: Monotonic) {
        if self.state == State::Closed || now < self.deadline {
            return;
        }
        match self.timer {
            Timer::Idle => {
                self.request_response = true;
                self.counters.keepalives += 1;
                self.timer = Timer::KeepaliveAnswer;
                self.deadline = now.after(self.config.keepalive_timeout);
            }
            Timer::Negotiate | Timer::KeepaliveAnswer => self.close(CloseReason::TimedOut),
        }
    }

    /// The stream is gone.
    pub fn handle_disconnected(&mut self) {
        self.close(CloseReason::Disconnected);
    }

    fn close(&mut self, reason: CloseReason) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.queue.clear();
            self.queued_bytes = 0;
            self.reassembly = Reassembly::default();
            self.events.push_back(Event::Closed(reason));
        }
    }

    /// Keeps the peer short of credits, or ends that: for an owner that has more messages than it can work on. The peer keeps as many as it
    /// needs to grant credits itself.
    pub fn throttle(&mut self, throttled: bool) {
        self.credits.throttle(throttled);
        self.received |= !throttled;
    }

    /// Messages that begin later may be this long; as long as was agreed at most.
    pub fn set_message_bytes_max(&mut self, bytes: u32) {
        self.message_bytes_max = bytes.min(self.config.fragmented_bytes_max);
    }

    /// Receives that the owner has posted.
    #[inline]
    pub fn receives_posted(&mut self, count: u16) {
        if self.state == State::Established {
            self.credits.posted(count);
        }
    }

    /// Queues a message. `invalidate`: a registration of the peer that its last transfer ends.
    pub fn send(&mut self, message: Payload, invalidate: Option<u32>) -> Result<(), SendError> {
        if self.state != State::Established {
            return Err(SendError::NotEstablished);
        }
        if message.is_empty() || message.len() as u64 > u64::from(self.fragmented_send_bytes_max) {
            return Err(SendError::TooLong);
        }
        let len = message.len();
        self.queued_bytes += len;
        self.queue.push_back(Queued { message, len, sent: 0, invalidate, stalled: false });
        Ok(())
    }

    /// The header of a transfer that carries a whole message of `len_bytes`, to be sent at once and before all others. `None`: messages wait,
    /// no transfer may leave, or it has no place in one; [`Self::send`] takes it then. `invalidates`: the transfer ends a registration of the
    /// peer.
    #[inline]
    pub fn begin_transfer(&mut self, len_bytes: usize, invalidates: bool) -> Option<Head> {
        let negotiated = self.role == Role::Client || self.counters.transfers_sent > 0;
        let fits = len_bytes + DATA_OFFSET <= self.send_bytes_max as usize
            && len_bytes <= self.fragmented_send_bytes_max as usize;
        let may_send = self.state == State::Established && negotiated && self.credits.may_send();
        if !may_send || !fits || len_bytes == 0 || !self.queue.is_empty() {
            return None;
        }
        self.counters.messages_sent += 1;
        self.counters.remote_invalidations += u64::from(invalidates);
        Some(self.transfer(len_bytes as u32, 0))
    }

    /// Takes the bytes of one receive; gives the message that is whole with them: a slice of it if it came in one transfer.
    pub fn handle_receive(&mut self, bytes: Buf, now: Monotonic) -> Option<Buf> {
        let result = match self.state {
            State::Established => self.handle_transfer(bytes),
            State::AwaitRequest => self.handle_negotiate_request(&bytes).map(|()| None),
            State::AwaitResponse => self.handle_negotiate_response(&bytes).map(|()| None),
            State::Refusing | State::Closed => Ok(None),
        };
        match result {
            Ok(message) => {
                if self.state == State::Established {
                    self.timer = Timer::Idle;
                    self.deadline = now.after(self.config.keepalive_interval);
                }
                message
            }
            Err(reason) => {
                self.close(reason);
                None
            }
        }
    }

    fn handle_negotiate_request(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        let request = NegotiateRequest::parse(bytes).map_err(CloseReason::Wire)?;
        let config = self.config;
        if request.version_min > VERSION || request.version_max < VERSION {
            self.state = State::Refusing;
            self.handshake = Some(self.response(NtStatus::NOT_SUPPORTED, 0));
            return Ok(());
        }
        check_bounds(request.credits_requested, request.receive_bytes_max, request.fragmented_bytes_max)?;
        self.receive_bytes_max =
            config.receive_bytes_max.min(request.preferred_send_bytes).max(RECEIVE_BYTES_MIN);
        self.transfer_in_bytes_max = self.receive_bytes_max.min(request.preferred_send_bytes);
        self.send_bytes_max = config.send_bytes_max.min(request.receive_bytes_max);
        self.fragmented_send_bytes_max = request.fragmented_bytes_max;
        self.credits.set_peer_target(request.credits_requested);
        self.state = State::Established;
        let to_post = self.credits.to_post();
        self.events.push_back(Event::PostReceives(to_post));
        self.events.push_back(Event::Established);
        Ok(())
    }

    /// The response to a request; `granted` receives are posted.
    fn response(&self, status: NtStatus, granted: u16) -> Buf {
        let response = NegotiateResponse {
            version_min: VERSION,
            version_max: VERSION,
            version: VERSION,
            credits_requested: self.config.send_credit_target,
            credits_granted: granted,
            status,
            read_write_bytes_max: self.config.read_write_bytes_max,
            // Already bounded by what the client receives: it drops the connection otherwise.
            preferred_send_bytes: self.send_bytes_max,
            receive_bytes_max: self.receive_bytes_max,
            fragmented_bytes_max: self.config.fragmented_bytes_max,
        };
        Buf::from(&response.encode()[..])
    }

    fn handle_negotiate_response(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        let response = NegotiateResponse::parse(bytes).map_err(CloseReason::Wire)?;
        if response.status != NtStatus::SUCCESS {
            return Err(CloseReason::Refused(response.status));
        }
        if response.version != VERSION {
            return Err(CloseReason::Version);
        }
        check_bounds(response.credits_requested, response.receive_bytes_max, response.fragmented_bytes_max)?;
        if response.credits_granted == 0 {
            return Err(CloseReason::Bounds("no credits granted"));
        }
        if response.preferred_send_bytes > self.config.receive_bytes_max {
            return Err(CloseReason::Bounds("the server would send more than a receive holds"));
        }
        self.transfer_in_bytes_max = response.preferred_send_bytes;
        self.send_bytes_max = self.config.send_bytes_max.min(response.receive_bytes_max);
        self.fragmented_send_bytes_max = response.fragmented_bytes_max;
        self.read_write_bytes_max = response.read_write_bytes_max;
        self.credits.set_peer_target(response.credits_requested);
        if !self.credits.peer_granted(response.credits_granted) {
            return Err(CloseReason::CreditOverflow);
        }
        self.state = State::Established;
        self.events.push_back(Event::PostReceives(self.credits.to_post()));
        self.events.push_back(Event::Established);
        Ok(())
    }

    fn handle_transfer(&mut self, bytes: Buf) -> Result<Option<Buf>, CloseReason> {
        let transfer = DataTransfer::parse(&bytes).map_err(CloseReason::Wire)?;
        self.counters.transfers_received += 1;
        // A server's peer may answer the negotiation before its grant is counted here: it is counted when it is sent.
        if !self.credits.received() {
            return Err(CloseReason::CreditUnderflow);
        }
        if !self.credits.peer_granted(transfer.credits_granted) {
            return Err(CloseReason::CreditOverflow);
        }
        self.credits.set_peer_target(transfer.credits_requested);
        self.respond |= transfer.flags & FLAG_RESPONSE_REQUESTED != 0;
        self.received = true;
        if transfer.data_bytes == 0 {
            return if transfer.remaining_bytes == 0 { Ok(None) } else { Err(CloseReason::Fragments) };
        }
        self.counters.bytes_received += u64::from(transfer.data_bytes);
        let start = transfer.data_offset as usize;
        let data = bytes.into_slice(start..start + transfer.data_bytes as usize);
        let message = self
            .reassembly
            .push(data, transfer.remaining_bytes, self.message_bytes_max)
            .map_err(|_| CloseReason::Fragments)?;
        self.counters.messages_received += u64::from(message.is_some());
        Ok(message)
    }

    /// The next RDMA Send, if one may leave.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        // Asked far more often than there is anything.
        let established = self.state == State::Established && self.counters.transfers_sent > 0;
        if established && self.queue.is_empty() && !self.wants_transfer() {
            return None;
        }
        self.next_transfer()
    }

    /// A transfer without data is to leave.
    fn wants_transfer(&self) -> bool {
        self.credits.owes_grant() || self.respond || self.request_response
    }

    fn next_transfer(&mut self) -> Option<Outgoing> {
        if let Some(bytes) = self.handshake.take() {
            if self.state == State::Refusing {
                self.close(CloseReason::Version);
            }
            return Some(Outgoing::negotiation(bytes));
        }
        if self.state != State::Established {
            return None;
        }
        if self.role == Role::Server
            && self.counters.transfers_sent == 0
            && self.credits.receive_credits() == 0
        {
            // The response to the negotiation: it waits until the receives that it grants are posted.
            let granted = self.credits.grant();
            if granted == 0 {
                return None;
            }
            self.counters.transfers_sent += 1;
            return Some(Outgoing::negotiation(self.response(NtStatus::SUCCESS, granted)));
        }
        let empty = self.wants_transfer();
        if !self.credits.may_send() {
            if let Some(first) = self.queue.front_mut().filter(|first| !first.stalled) {
                first.stalled = true;
                self.counters.stalls_send_credit += 1;
            }
            return None;
        }
        let mut piece = Payload::new();
        let (mut remaining_bytes, mut invalidate) = (0, None);
        if let Some(first) = self.queue.front_mut() {
            let room = self.send_bytes_max as usize - DATA_OFFSET;
            let whole = first.len;
            let take = room.min(whole - first.sent);
            piece = if take == whole {
                std::mem::take(&mut first.message)
            } else {
                first.message.slice(first.sent, take)
            };
            first.sent += take;
            self.queued_bytes -= take;
            first.stalled = false;
            remaining_bytes = (whole - first.sent) as u32;
            if remaining_bytes == 0 {
                invalidate = first.invalidate;
                self.queue.pop_front();
                self.counters.messages_sent += 1;
                self.counters.remote_invalidations += u64::from(invalidate.is_some());
            }
        } else if !empty {
            return None;
        }
        let head = self.transfer(piece.len() as u32, remaining_bytes);
        Some(Outgoing { head, payload: piece, invalidate })
    }

    /// The header of a transfer that leaves: it uses a credit, and grants and asks for as many as possible.
    fn transfer(&mut self, data_bytes: u32, remaining_bytes: u32) -> Head {
        let credits_granted = self.credits.take();
        let flags = if std::mem::take(&mut self.request_response) { FLAG_RESPONSE_REQUESTED } else { 0 };
        self.respond = false;
        self.counters.transfers_sent += 1;
        self.counters.bytes_sent += u64::from(data_bytes);
        let (bytes, len) = DataTransfer {
            credits_requested: self.config.send_credit_target.max(1),
            credits_granted,
            flags,
            remaining_bytes,
            data_offset: if data_bytes == 0 { 0 } else { DATA_OFFSET as u32 },
            data_bytes,
        }
        .encode();
        Head { bytes, len }
    }
}

/// The bounds of MS-SMBD 3.1.5.6 and 3.1.5.7 that both messages share.
fn check_bounds(credits: u16, receive_bytes: u32, fragmented_bytes: u32) -> Result<(), CloseReason> {
    if credits == 0 {
        return Err(CloseReason::Bounds("no credits requested"));
    }
    if receive_bytes < RECEIVE_BYTES_MIN {
        return Err(CloseReason::Bounds("MaxReceiveSize under 128"));
    }
    if fragmented_bytes < FRAGMENTED_BYTES_MIN {
        return Err(CloseReason::Bounds("MaxFragmentedSize under 131072"));
    }
    Ok(())
}
