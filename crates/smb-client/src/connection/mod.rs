//! One connection and its session as a state machine without I/O: credits, message identifiers, signing, encryption,
//! compounds, matching answers to requests.

mod handshake;
mod payload;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use crate::operation::{Reply, Request};
use crate::{ClientError, Options};
use handshake::Handshake;
pub(crate) use handshake::negotiate_request;
pub(crate) use payload::Protection;
use payload::Transforms;
use smb::auth::{Credentials, Initiator, NodeCredentials};
use smb::crypto::{CipherId, OpeningKey, SealingKey, SigningAlgorithm, SigningKey};
use smb::wire::{Capabilities, Command, Dialect, Guid, SecurityMode};
use smb_transport::client::Outgoing;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use sys::Buf;
use types::{FileTime, NumberMap};

/// Fills a slice with bytes nobody can guess.
pub type Random = Box<dyn FnMut(&mut [u8])>;

/// Names a request; chosen by the caller, given back with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Event of a connection.
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
    /// Most bytes of a READ (MaxReadSize, MS-SMB2 2.2.4).
    pub read_bytes: u32,
    /// Most bytes of a WRITE (MaxWriteSize).
    pub write_bytes: u32,
    /// Most bytes of a buffer of QUERY_INFO, SET_INFO, IOCTL or QUERY_DIRECTORY (MaxTransactSize).
    pub transact_bytes: u32,
}

/// Results of NEGOTIATE.
#[derive(Debug, Clone)]
struct Negotiated {
    dialect: Dialect,
    server_guid: Guid,
    capabilities: Capabilities,
    security_mode: SecurityMode,
    limits: Limits,
    transforms: Transforms,
}

/// The session's ciphers, which all its channels share: no nonce is ever used twice.
struct Ciphers {
    seal: RefCell<SealingKey>,
    open: OpeningKey,
}

/// The session's keys. There are none if the session belongs to a guest or to nobody.
struct Session {
    id: u64,
    /// Of this channel.
    signing: Option<Rc<SigningKey>>,
    /// Key that proves further channels to the server: of the session's first channel, or of a node's
    /// session as a whole.
    proof: Option<Rc<SigningKey>>,
    ciphers: Option<Rc<Ciphers>>,
    /// All requests are signed.
    must_sign: bool,
    /// All requests are encrypted.
    must_encrypt: bool,
}

/// Facts about a session that a further channel needs to join it. Holds keys, and shows none.
#[derive(Clone)]
pub struct Binding {
    session_id: u64,
    dialect: Dialect,
    proof: Rc<SigningKey>,
    /// By which the session's channels sign.
    signing: SigningAlgorithm,
    ciphers: Option<Rc<Ciphers>>,
    must_sign: bool,
    must_encrypt: bool,
    /// All channels lead to one server (MS-SMB2 3.2.5.2).
    server_guid: Guid,
}

impl Binding {
    /// The options of a channel that agrees on what the session's first one did.
    fn fit(&self, options: Options) -> Options {
        let cipher = self.ciphers.as_ref().map(|ciphers| ciphers.seal.borrow().cipher());
        Options {
            oldest: self.dialect,
            newest: self.dialect,
            ciphers: cipher.into_iter().collect(),
            signing_algorithms: vec![self.signing],
            previous_session_id: 0,
            server_guid: Some(self.server_guid),
            ..options
        }
    }

    /// A binding to another session, which the server has to refuse: for tests of that.
    #[doc(hidden)]
    pub fn to_session(self, session_id: u64) -> Self {
        Self { session_id, ..self }
    }
}

/// Requests that a lost connection leaves behind.
#[derive(Default)]
pub struct Leftovers {
    /// Went out and were not answered; a request of its own, or part of a chain (`None`).
    pub sent: Vec<(Token, Command, Option<Request>)>,
    /// Never went out.
    pub waiting: Vec<Vec<(Token, Request)>>,
}

/// Party that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Handshake,
    Caller(Token),
}

struct Pending {
    owner: Owner,
    command: Command,
    charge: u16,
    payload_bytes: usize,
    is_encrypted: bool,
    is_signed: bool,
    async_id: Option<u64>,
    /// The request, to be repeated by another connection if this one dies; `None` for part of a chain.
    request: Option<Request>,
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
    pending: NumberMap<Pending>,
    /// Of requests that wait, and of those that are on their way.
    payload_bytes: (usize, usize),
    /// Most of it on its way.
    payload_window: usize,
    /// Chains of requests that wait for the session or for credits.
    waiting: VecDeque<Vec<(Token, Request)>>,
    outgoing: VecDeque<Outgoing>,
    events: VecDeque<Event>,
    /// ChannelSequence of outgoing requests (MS-SMB2 2.2.1.2).
    channel_sequence: u16,
    credit_stalls: u64,
    /// Payloads that were signed: each has a nonce of its own.
    payloads_signed: u64,
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
        Self::start(options, Initiator::new(credentials), server, now, random, None)
    }

    /// Starts a further channel of a session (MS-SMB2 3.2.4.1.7).
    pub fn bind(
        options: Options,
        credentials: Credentials,
        server: &str,
        now: FileTime,
        random: Random,
        binding: Binding,
    ) -> Self {
        let options = binding.fit(options);
        Self::start(options, Initiator::new(credentials), server, now, random, Some(binding))
    }

    /// Starts with NEGOTIATE, to log on as a node of a cluster at another one; `binding`: to a further channel of such a session.
    ///
    /// # Errors
    /// [`ClientError::Auth`] if it is the node itself that is meant.
    pub fn of_node(
        options: Options,
        credentials: NodeCredentials,
        server: &str,
        now: FileTime,
        mut random: Random,
        binding: Option<Binding>,
    ) -> Result<Self, ClientError> {
        let initiator = Initiator::of_node(credentials, &mut *random)?;
        let options = match &binding {
            Some(binding) => binding.fit(options),
            None => Options { oldest: Dialect::Smb311, newest: Dialect::Smb311, ..options },
        };
        Ok(Self::start(options, initiator, server, now, random, binding))
    }

    fn start(
        options: Options,
        initiator: Initiator,
        server: &str,
        now: FileTime,
        random: Random,
        binding: Option<Binding>,
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
            pending: NumberMap::default(),
            payload_bytes: (0, 0),
            payload_window: usize::MAX,
            waiting: VecDeque::new(),
            outgoing: VecDeque::new(),
            events: VecDeque::new(),
            channel_sequence: 0,
            credit_stalls: 0,
            payloads_signed: 0,
            is_stalled: false,
        };
        connection.begin(initiator, server, now, binding);
        connection
    }

    /// Returns what a further channel needs; `None` if the session cannot have any.
    pub fn binding(&self) -> Option<Binding> {
        let dialect = self.dialect().filter(|dialect| *dialect >= Dialect::Smb300)?;
        let session = self.session.as_ref()?;
        Some(Binding {
            session_id: session.id,
            dialect,
            proof: session.proof.clone()?,
            signing: session.signing.as_ref()?.algorithm(),
            ciphers: session.ciphers.clone(),
            must_sign: session.must_sign,
            must_encrypt: session.must_encrypt,
            server_guid: self.server_guid()?,
        })
    }

    /// As the server said in NEGOTIATE.
    pub(crate) fn server_guid(&self) -> Option<Guid> {
        self.negotiated.as_ref().map(|negotiated| negotiated.server_guid)
    }

    pub(crate) fn set_channel_sequence(&mut self, sequence: u16) {
        self.channel_sequence = sequence;
    }

    /// Takes everything that was not answered, in the order of asking.
    pub fn take_leftovers(&mut self) -> Leftovers {
        self.payload_bytes = (0, 0);
        let mut pending: Vec<(u64, Pending)> = self.pending.drain().collect();
        pending.sort_by_key(|(message_id, _)| *message_id);
        let sent = pending.into_iter().filter_map(|(_, pending)| match pending.owner {
            Owner::Caller(token) => Some((token, pending.command, pending.request)),
            Owner::Handshake => None,
        });
        Leftovers { sent: sent.collect(), waiting: self.waiting.drain(..).collect() }
    }

    /// Queues a request; it goes out when the session is set up and there are credits.
    pub fn submit(&mut self, token: Token, request: Request) {
        self.queue(vec![(token, request)]);
    }

    fn queue(&mut self, chain: Vec<(Token, Request)>) {
        self.payload_bytes.0 += payload_bytes(&chain);
        self.waiting.push_back(chain);
    }

    /// A message with payload waits while this much more of it would be on its way than here, unless it is alone.
    pub fn set_payload_window(&mut self, len_bytes: usize) {
        self.payload_window = len_bytes;
    }

    /// Payload in messages of requests that are not answered.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes.0 + self.payload_bytes.1
    }

    /// Queues requests that go out in one message, each related to the one before it:
    /// [`smb::wire::FileId::RELATED`] names the file that the first of them opens.
    pub fn submit_compound(&mut self, requests: Vec<(Token, Request)>) {
        if !requests.is_empty() {
            self.queue(requests);
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

    /// Credits that are there or come back with answers: a chain that takes more of them may wait for ever.
    pub(crate) fn credits_in_all(&self) -> u32 {
        self.credits + self.credits_spent
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

    /// Returns the cipher that was agreed on, if there is one.
    pub fn cipher(&self) -> Option<CipherId> {
        self.session.as_ref()?.ciphers.as_ref().map(|ciphers| ciphers.seal.borrow().cipher())
    }

    /// Returns input and expected output of FSCTL_VALIDATE_NEGOTIATE_INFO; `None` if the dialect protects NEGOTIATE itself, or if there is
    /// no key to sign the question with.
    pub(crate) fn validation(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let negotiated = self.negotiated.as_ref()?;
        let has_key = self.session.as_ref().is_some_and(|session| session.signing.is_some());
        if negotiated.dialect == Dialect::Smb311 || self.options.newest < Dialect::Smb300 || !has_key {
            return None;
        }
        Some((handshake::validation_input(&self.options), handshake::validation_expected(negotiated)))
    }

    /// Takes back the credits and the payload of a request that went out: it is answered, or never will be.
    fn release_credits(&mut self, pending: &Pending) {
        self.credits_spent = self.credits_spent.saturating_sub(u32::from(pending.charge));
        self.payload_bytes.1 = self.payload_bytes.1.saturating_sub(pending.payload_bytes);
    }

    fn fail(message: &'static str) -> ClientError {
        ClientError::Protocol(message)
    }
}

fn payload_bytes(chain: &[(Token, Request)]) -> usize {
    chain.iter().map(|(_, request)| request.payload.len()).sum()
}
