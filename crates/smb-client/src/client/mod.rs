//! A session at one server: blocking calls for people, `submit`, `poll` and `next_reply` for pipelines.

mod chains;
mod channels;
mod connect;
mod files;
mod interfaces;
mod names;
mod pauses;
mod reconnect;
mod servers;

use crate::channel::Channel;
use crate::connection::{Binding, Connection, Limits, Token};
use crate::file::Tree;
use crate::operation::{Reply, Request};
use crate::{ClientError, Counters, Engine, Options, Transport};
pub use chains::{Changing, Contents, Fetching, Filling, Keeping, NotWhole, Whole};
use channels::Forming;
use connect::Target;
use names::Names;
use pauses::Pauses;
use servers::Servers;
use smb::auth::Credentials;
use smb::crypto::CipherId;
use smb::wire::{
    Dialect, FileId, SHARE_TYPE_PIPE, ShareCapabilities, ShareFlags, TreeConnectResponse, fsctl,
};
use std::collections::{HashSet, VecDeque};
use sys::monotonic_now;
use types::{IdentityMap, Monotonic, NtStatus};

/// Operations of one file transfer that are in flight at once.
const TRANSFER_DEPTH: usize = 8;

/// A session at a server, over one connection or several.
pub struct Client {
    engine: Engine,
    servers: Servers,
    options: Options,
    credentials: Credentials,
    session_id: u64,
    /// The places that channels are to lead to; each channel has the index of its own.
    targets: Vec<Target>,
    /// By target: when to make its channel anew if that is missing.
    remakes: Vec<Pauses>,
    /// Those that carry work.
    channels: Vec<Channel>,
    forming: Vec<Forming>,
    /// Data that a further channel needs; `None`: there cannot be any.
    binding: Option<Binding>,
    /// Why the last further channel could not be made.
    join_error: Option<ClientError>,
    /// ChannelSequence: the channels that died, of those that the session has had together.
    sequence: u16,
    names: Names,
    last_token: u64,
    answers: IdentityMap<Token, Reply>,
    /// Answers in the order in which they came, for [`Client::next_reply`].
    order: VecDeque<Token>,
    arrived: Vec<(Token, Reply)>,
    /// Refused because of a dead channel's requests: to be asked again at that time.
    later: Vec<(Monotonic, Token, Request)>,
    refused_until: IdentityMap<Token, Monotonic>,
    /// Asked a second time.
    repeated: HashSet<Token>,
    /// The client's own requests, whose answers nobody waits for.
    unasked: HashSet<Token>,
    /// Counters of channels that are gone.
    past: Counters,
    last_loss: Option<String>,
    /// While all connections are lost and nothing was answered since: the time at which the client gives
    /// up.
    fruitless_until: Option<Monotonic>,
    set_ups: Pauses,
    is_validated: bool,
    fallback: Option<String>,
}

impl Client {
    /// Connects, negotiates and logs on, with an event loop of its own. `server` is a name or address; `port` is that of the
    /// transport that the options choose (445 for TCP, 5445 for SMB Direct, as a rule).
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(
        server: &str,
        port: u16,
        credentials: Credentials,
        options: Options,
    ) -> Result<Self, ClientError> {
        Self::connect_on(&Engine::new()?, server, port, credentials, options)
    }

    /// As [`Self::connect`], on a loop that this thread's clients share.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect_on(
        engine: &Engine,
        server: &str,
        port: u16,
        credentials: Credentials,
        mut options: Options,
    ) -> Result<Self, ClientError> {
        if options.client_guid == [0; 16] && getrandom::fill(&mut options.client_guid).is_err() {
            return Err(ClientError::Invalid("the system has no random bytes"));
        }
        let target = connect::first_target(port, &options);
        let mut servers = Servers::new(server, &mut options);
        let channel = servers.first_session(engine, target, &credentials, &options)?;
        let mut client = Self {
            engine: engine.clone(),
            credentials,
            session_id: channel.connection.session_id(),
            targets: vec![target],
            remakes: vec![channels::REMAKES],
            binding: channel.connection.binding(),
            channels: vec![channel],
            forming: Vec::new(),
            join_error: None,
            sequence: 0,
            names: Names::default(),
            last_token: 0,
            answers: IdentityMap::default(),
            order: VecDeque::new(),
            arrived: Vec::new(),
            later: Vec::new(),
            refused_until: IdentityMap::default(),
            repeated: HashSet::new(),
            unasked: HashSet::new(),
            past: Counters::default(),
            last_loss: None,
            fruitless_until: None,
            set_ups: servers.pauses(),
            servers,
            is_validated: false,
            fallback: None,
            options,
        };
        if client.options.transport == Transport::Auto
            && let Err(error) = client.move_to_rdma()
        {
            tracing::info!(server, port = client.options.rdma_port, %error, "no SMB Direct: using TCP");
            client.fallback = Some(error.to_string());
        }
        let target = client.targets.first().copied().unwrap_or(target);
        let transport = if target.is_rdma { Transport::Rdma } else { Transport::Tcp };
        if client.options.multichannel {
            let most = client.options.channels.max(2);
            if let Err(error) = client.find_channels(most) {
                tracing::info!(server, %error, "the server's other addresses are not known");
            }
            return Ok(client);
        }
        for _ in 1..client.options.channels {
            if let Err(error) = client.add_channel(transport, target.port) {
                tracing::info!(server, %error, channels = client.channels.len(), "no more connections");
                break;
            }
        }
        Ok(client)
    }

    /// The server in use: as it was given to the connect call, or one of [`Options::others`].
    pub fn server(&self) -> &str {
        self.servers.name()
    }

    /// The session's protocol state, as its first connection has it.
    fn first(&self) -> Option<&Connection> {
        self.channels.first().map(|channel| &channel.connection)
    }

    /// Returns the dialect agreed on; `None` if all connections are lost.
    pub fn dialect(&self) -> Option<Dialect> {
        self.first()?.dialect()
    }

    /// Most bytes of one operation.
    pub fn limits(&self) -> Limits {
        self.limits_of(false)
    }

    /// Limits that every channel can keep.
    fn limits_of(&self, must_encrypt: bool) -> Limits {
        let smallest = |a: Limits, b: Limits| Limits {
            read_bytes: a.read_bytes.min(b.read_bytes),
            write_bytes: a.write_bytes.min(b.write_bytes),
            transact_bytes: a.transact_bytes.min(b.transact_bytes),
        };
        let limits = self.channels.iter().map(|channel| channel.limits(must_encrypt));
        limits.reduce(smallest).unwrap_or(Limits {
            read_bytes: 65536,
            write_bytes: 65536,
            transact_bytes: 65536,
        })
    }

    /// Whether every message of the session is signed.
    pub fn is_signed(&self) -> bool {
        self.first().is_some_and(Connection::is_signed)
    }

    /// Whether every message of the session is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.first().is_some_and(Connection::is_encrypted)
    }

    /// Returns the cipher that was agreed on, which is used when session or share demand encryption.
    pub fn cipher(&self) -> Option<CipherId> {
        self.first()?.cipher()
    }

    /// Whether messages go by SMB Direct.
    pub fn is_rdma(&self) -> bool {
        self.channels.iter().any(Channel::is_rdma)
    }

    /// Connections that carry the session.
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Says why [`Transport::Auto`] took TCP, if it did.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Returns the counters of all connections.
    pub fn counters(&self) -> Counters {
        let mut counters = self.past;
        for channel in &self.channels {
            counters.add(&channel.counters());
        }
        counters
    }

    /// Why the connection that died last died.
    pub fn last_loss(&self) -> Option<&str> {
        self.last_loss.as_deref()
    }

    /// The loop it runs on.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Queues a request. It leaves with the next [`Self::poll`] and [`Engine::wait`], or with any call that waits; its answer comes
    /// from [`Self::poll`], [`Self::next_reply`] or [`Self::wait`].
    ///
    /// # Errors
    /// [`ClientError`] if the connection failed.
    pub fn submit(&mut self, mut request: Request) -> Result<Token, ClientError> {
        let token = self.new_token();
        if self.names.translate(&mut request) {
            self.dispatch(token, request, monotonic_now());
        } else {
            self.answer_gone(token, request.command);
        }
        Ok(token)
    }

    /// Queues related requests that go out in one message (see [`Connection::submit_compound`]).
    ///
    /// # Errors
    /// [`ClientError`] if the connection failed.
    pub fn submit_compound(&mut self, requests: Vec<Request>) -> Result<Vec<Token>, ClientError> {
        let mut chain: Vec<(Token, Request)> =
            requests.into_iter().map(|request| (self.new_token(), request)).collect();
        let tokens = chain.iter().map(|(token, _)| *token).collect();
        if chain.iter_mut().all(|(_, request)| self.names.translate(request)) {
            self.dispatch_chain(chain, monotonic_now());
        } else {
            self.answer_all_gone(chain);
        }
        Ok(tokens)
    }

    /// Asks the server to give up a request; its answer still comes.
    ///
    /// # Errors
    /// [`ClientError`] if the connection failed.
    pub fn cancel(&mut self, token: Token) -> Result<(), ClientError> {
        for channel in &mut self.channels {
            channel.connection.cancel(token);
        }
        Ok(())
    }

    /// Moves received bytes into `out`, and queued ones towards the server. Never waits, except to set a
    /// lost session up anew ([`Options::reconnect`]). With nothing new, [`Engine::wait`] sleeps.
    ///
    /// # Errors
    /// [`ClientError`] if the connection failed.
    pub fn poll(&mut self, out: &mut Vec<(Token, Reply)>) -> Result<(), ClientError> {
        self.pump()?;
        while let Some(token) = self.order.pop_front() {
            if let Some(reply) = self.answers.remove(&token) {
                out.push((token, reply));
            }
        }
        Ok(())
    }

    /// Requests that wait to be sent or answered.
    pub fn in_flight(&self) -> usize {
        let asked: usize = self.channels.iter().map(|channel| channel.connection.in_flight()).sum();
        asked + self.later.len() + self.arrived.len()
    }

    /// Waits for the next answer to any request; `None` if nothing is in flight.
    ///
    /// # Errors
    /// [`ClientError`] if the connection failed.
    pub fn next_reply(&mut self) -> Result<Option<(Token, Reply)>, ClientError> {
        loop {
            while let Some(token) = self.order.pop_front() {
                if let Some(reply) = self.answers.remove(&token) {
                    return Ok(Some((token, reply)));
                }
            }
            if self.in_flight() == 0 {
                return Ok(None);
            }
            self.turn()?;
        }
    }

    /// The answer to one request.
    ///
    /// # Errors
    /// [`ClientError`] if the connection failed.
    pub fn wait(&mut self, token: Token) -> Result<Reply, ClientError> {
        loop {
            if let Some(reply) = self.answers.remove(&token) {
                // As a rule it is the first: answers are waited for in the order in which they come.
                match self.order.front() {
                    Some(first) if *first == token => drop(self.order.pop_front()),
                    _ => self.order.retain(|waiting| *waiting != token),
                }
                return Ok(reply);
            }
            if self.in_flight() == 0 {
                return Err(ClientError::Invalid("a token that is not in flight"));
            }
            self.turn()?;
        }
    }

    /// Sends a request and waits for its answer, good or bad.
    ///
    /// # Errors
    /// [`ClientError`] if the connection failed.
    pub fn call(&mut self, request: Request) -> Result<Reply, ClientError> {
        let token = self.submit(request)?;
        self.wait(token)
    }

    /// Connects a share; `IPC$` for pipes.
    ///
    /// # Errors
    /// [`ClientError::Status`] if the server refuses; others if the connection failed.
    pub fn tree_connect(&mut self, share: &str) -> Result<Tree, ClientError> {
        let mut reply = self.call(Request::tree_connect(&format!("\\\\{}\\{share}", self.server())))?;
        if reply.status() == NtStatus::BAD_NETWORK_NAME {
            reply = self.connect_elsewhere(share, reply)?;
        }
        reply.success()?;
        let response = TreeConnectResponse::parse(reply.message())?;
        let flags = ShareFlags::from_bits_retain(response.share_flags.get());
        let tree = Tree {
            id: reply.tree_id(),
            must_encrypt: flags.contains(ShareFlags::ENCRYPT_DATA),
            is_pipe: response.share_type == SHARE_TYPE_PIPE,
            maximal_access: response.maximal_access.get(),
            is_continuously_available: ShareCapabilities::from_bits_retain(response.capabilities.get())
                .contains(ShareCapabilities::CONTINUOUS_AVAILABILITY),
            session: reply.session().unwrap_or(self.names.session),
        };
        self.validate_negotiate(tree)?;
        self.names.connected(tree, share);
        Ok(tree)
    }

    /// Asks on the first tree whether what NEGOTIATE agreed on is what the server meant (MS-SMB2 3.2.5.5).
    fn validate_negotiate(&mut self, tree: Tree) -> Result<(), ClientError> {
        if self.is_validated {
            return Ok(());
        }
        self.is_validated = true;
        let Some((input, expected)) = self.first().and_then(Connection::validation) else { return Ok(()) };
        let mut request = Request::fsctl(
            tree.id,
            FileId::RELATED,
            fsctl::VALIDATE_NEGOTIATE_INFO,
            &input,
            expected.len() as u32,
        );
        request.must_sign = true;
        let reply = self.call(request.within(tree))?;
        // A server that does not know the question says so in a signed answer (MS-SMB2 3.2.5.5).
        let unknown = [NtStatus::INVALID_DEVICE_REQUEST, NtStatus::NOT_SUPPORTED, NtStatus::FILE_CLOSED];
        if unknown.contains(&reply.status()) {
            return Ok(());
        }
        if reply.fsctl_output()? == expected {
            Ok(())
        } else {
            Err(ClientError::Protocol("NEGOTIATE was changed on the way"))
        }
    }

    /// # Errors
    /// [`ClientError::Status`] if the server refuses; others if the connection failed.
    pub fn tree_disconnect(&mut self, tree: Tree) -> Result<(), ClientError> {
        let reply = self.call(Request::tree_disconnect(tree.id).within(tree))?;
        self.names.disconnected(tree);
        reply.success().map(|_| ())
    }

    /// Asks whether the server is there.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn echo(&mut self) -> Result<(), ClientError> {
        self.call(Request::echo())?.success().map(|_| ())
    }

    /// Ends the session.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn log_off(mut self) -> Result<(), ClientError> {
        self.call(Request::logoff())?.success().map(|_| ())
    }

    fn new_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// Carries messages both ways, and waits if nothing came.
    fn turn(&mut self) -> Result<(), ClientError> {
        if self.pump()? {
            return Ok(());
        }
        self.engine.wait(self.next_timeout().since(monotonic_now()))
    }
}
