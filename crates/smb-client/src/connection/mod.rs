//! One connection and its session as a state machine without I/O: credits, message identifiers, signing, encryption,
//! compounds, matching answers to requests.

mod handshake;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use crate::operation::{Reply, Request};
use crate::{ClientError, Options};
use handshake::Handshake;
use smb::auth::Credentials;
use smb::crypto::{CipherId, OpeningKey, SealingKey, SigningKey};
use smb::wire::{Capabilities, Command, Dialect, Guid, SecurityMode};
use std::collections::{HashMap, VecDeque};
use sys::{Buf, Payload};
use types::FileTime;

/// Fills a slice with bytes nobody can guess.
pub type Random = Box<dyn FnMut(&mut [u8])>;

/// Names a request; chosen by the caller, given back with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Bytes to send, in this order, the length prefix of TCP included.
#[derive(Debug)]
pub struct Outgoing {
    pub head: Vec<u8>,
    pub payload: Payload,
}

impl Outgoing {
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What the connection tells.
#[derive(Debug)]
pub enum Event {
    /// The session is set up; requests go out from here on.
    Ready,
    /// The server answered a request.
    Completed { token: Token, reply: Reply },
    /// The server breaks an oplock or lease: the whole OPLOCK_BREAK notification.
    Break(Buf),
}

/// Most bytes of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub read_bytes: u32,
    pub write_bytes: u32,
    pub transact_bytes: u32,
}

/// What was agreed in NEGOTIATE.
#[derive(Debug, Clone)]
struct Negotiated {
    dialect: Dialect,
    server_guid: Guid,
    capabilities: Capabilities,
    security_mode: SecurityMode,
    limits: Limits,
}

/// The session's keys. There are none where the session belongs to a guest or nobody.
struct Session {
    id: u64,
    signing: Option<SigningKey>,
    ciphers: Option<(SealingKey, OpeningKey)>,
    /// All requests are signed.
    must_sign: bool,
    /// All requests are encrypted.
    must_encrypt: bool,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Handshake,
    Caller(Token),
}

struct Pending {
    owner: Owner,
    command: Command,
    charge: u16,
    is_encrypted: bool,
    is_signed: bool,
    async_id: Option<u64>,
}

/// The protocol of one connection.
pub struct Connection {
    options: Options,
    random: Random,
    handshake: Option<Handshake>,
    negotiated: Option<Negotiated>,
    session: Option<Session>,
    next_message_id: u64,
    /// Credits at hand.
    credits: u32,
    /// Credits in requests that are on their way.
    credits_spent: u32,
    pending: HashMap<u64, Pending>,
    /// Chains of requests that wait for the session or for credits.
    waiting: VecDeque<Vec<(Token, Request)>>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    credit_stalls: u64,
    /// The first waiting request was counted as waiting for credits.
    is_stalled: bool,
}

impl Connection {
    /// Starts with NEGOTIATE. `random` fills a slice with bytes nobody can guess; `now` dates the logon; `server` is the name
    /// that the user knows the server by.
    pub fn new(
        options: Options,
        credentials: Credentials,
        server: &str,
        now: FileTime,
        random: Random,
    ) -> Self {
        let mut connection = Self {
            options,
            random,
            handshake: None,
            negotiated: None,
            session: None,
            next_message_id: 0,
            credits: 1,
            credits_spent: 0,
            pending: HashMap::new(),
            waiting: VecDeque::new(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            credit_stalls: 0,
            is_stalled: false,
        };
        connection.begin(credentials, server, now);
        connection
    }

    /// Queues a request; it goes out when the session is set up and there are credits.
    pub fn submit(&mut self, token: Token, request: Request) {
        self.waiting.push_back(vec![(token, request)]);
    }

    /// Queues requests that go out in one message, each related to the one before it: where they name a file they use
    /// [`smb::wire::FileId::RELATED`] for the one that the first opens.
    pub fn submit_compound(&mut self, requests: Vec<(Token, Request)>) {
        if !requests.is_empty() {
            self.waiting.push_back(requests);
        }
    }

    /// Asks the server to give up a request that is on its way. Its answer still comes.
    pub fn cancel(&mut self, token: Token) {
        let found = self.pending.iter().find(|(_, pending)| pending.owner == Owner::Caller(token));
        if let Some((&message_id, pending)) = found {
            let async_id = pending.async_id;
            self.transmit_cancel(message_id, async_id);
        }
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.transmit_waiting();
        self.outgoing.pop_front()
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether the session is set up.
    pub fn is_ready(&self) -> bool {
        self.session.is_some() && self.handshake.is_none()
    }

    /// Requests that wait to be sent or answered.
    pub fn in_flight(&self) -> usize {
        self.pending.len() + self.waiting.iter().map(Vec::len).sum::<usize>()
    }

    /// Times that a request waited because credits were used up.
    pub fn credit_stalls(&self) -> u64 {
        self.credit_stalls
    }

    /// The dialect agreed on.
    pub fn dialect(&self) -> Option<Dialect> {
        self.negotiated.as_ref().map(|negotiated| negotiated.dialect)
    }

    /// The server's limits; the smallest of any server before NEGOTIATE is over.
    pub fn limits(&self) -> Limits {
        let smallest = Limits { read_bytes: 65536, write_bytes: 65536, transact_bytes: 65536 };
        self.negotiated.as_ref().map_or(smallest, |negotiated| negotiated.limits)
    }

    /// The session's identifier, zero before there is one.
    pub fn session_id(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.id)
    }

    /// Whether every message of the session is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.must_encrypt)
    }

    /// Whether every message of the session is signed.
    pub fn is_signed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.must_sign && session.signing.is_some())
    }

    /// The cipher that was agreed on, where there is one.
    pub fn cipher(&self) -> Option<CipherId> {
        self.session.as_ref()?.ciphers.as_ref().map(|(seal, _)| seal.cipher())
    }

    /// How the server's answer to FSCTL_VALIDATE_NEGOTIATE_INFO has to look, and what to send: (input, expected output).
    /// `None` where the dialect protects NEGOTIATE itself, or nothing can protect the question.
    pub(crate) fn validation(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let negotiated = self.negotiated.as_ref()?;
        let has_key = self.session.as_ref().is_some_and(|session| session.signing.is_some());
        if negotiated.dialect == Dialect::Smb311 || self.options.newest < Dialect::Smb300 || !has_key {
            return None;
        }
        Some((handshake::validation_input(&self.options), handshake::validation_expected(negotiated)))
    }

    fn fail(message: &'static str) -> ClientError {
        ClientError::Protocol(message)
    }
}
