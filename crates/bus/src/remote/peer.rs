//! One peer: its session, from dialing to the connected share, the channels that carry it, and its end.

use super::channels::{self, Channels, Maker, Place};
use super::dial::Dial;
use super::pauses::Pauses;
use super::queue::{Queue, Queued};
use super::session::{Again, PeerError, Sessions, Taken, Turned, create, proof, status_question};
use super::{
    Answers, BusEvent, Common, Peer, PeerCounters, PeerState, PeerStatus, PortId, QueueStatus, RemoteOptions,
    Up, unreachable,
};
use crate::{SHARE, wire};
use smb::wire::{CreateResponse, Dialect, FileId};
use smb_client::{
    Binding, Channel, ClientError, Connection, Encryption, NodeCredentials, Options, RdmaDevice, Reply,
    Request as SmbRequest, Signing, Token,
};
use smb_transport::client::{Link, LinkError, Way};
use space::message::{Priority, ReplicaOperation};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;
use types::{DiskId, FileTime, Monotonic};

/// Refused logons in a row after which a server is tried at its next address.
const REFUSED_LOGONS: usize = 8;

/// The connection's own requests; those of coordinators have higher tokens.
const TREE: Token = Token(1);
const NODE: Token = Token(2);
const STATUS: Token = Token(3);
const CLOSE: Token = Token(4);
const ECHO: Token = Token(5);
const PROOF: Token = Token(6);
const FIRST_ASKED: u64 = 16;

/// Credits to request of a peer: the number of requests under way, or of 64 KiB of payload.
///
/// Enough for twice [`super::Windows::peer_bytes`]: requests under way at disks that hang count no more
/// than a share there.
const CREDITS: u16 = 1024;

/// A connection that is being set up.
struct Joining {
    channel: Box<Channel>,
    place: Place,
    /// The share, once it is connected.
    tree: Option<u32>,
    /// The open of the peer itself.
    node: Option<FileId>,
    /// Whether TREE_CONNECT, CREATE of the root, or the proof that large messages come through is under way.
    asked: bool,
    until: Monotonic,
}

/// A session in use.
struct Ready {
    channels: Channels,
    sessions: Sessions,
    queue: Queue,
    tree: u32,
    /// The open of the peer itself.
    node: FileId,
    next_token: u64,
    /// The number of each disk's last finding that the peer has reported.
    cursors: BTreeMap<DiskId, u64>,
    status_at: Monotonic,
    status_asked: bool,
    /// When large messages have to come through again in both directions.
    proof_at: Monotonic,
    proof_asked: bool,
}

impl Ready {
    /// Hands the request to the connection, or answers it: its session may be over.
    fn send(
        &mut self,
        queued: Queued,
        has_waited: bool,
        options: &Options,
        counters: &mut PeerCounters,
        now: Monotonic,
        answers: &mut Answers,
    ) {
        let (requests, longest_wait) = &mut counters.left[queued.request.priority as usize];
        let waited = now.since(queued.asked_at);
        let left = (has_waited && queued.is_client_read()).then(|| queued.waiting(true));
        let token = Token(self.next_token);
        self.next_token += 1;
        let (port, mut close) = (queued.port, None);
        match self.sessions.ask(queued, token, &mut self.queue, &mut close, now) {
            Turned::Submit(request, bytes) => {
                *requests += 1;
                *longest_wait = waited.max(*longest_wait);
                let under_way = self.channels.submit(token, request, bytes, options, now);
                if under_way.is_some() {
                    self.sessions.left_with(token, under_way);
                }
                if let Some(left) = left {
                    answers.push_waiting(port, left);
                }
            }
            Turned::Answer(response) => answers.push(port, response),
        }
        if let Some(file) = close {
            self.channels.submit(CLOSE, SmbRequest::close(self.tree, file), 0, options, now);
        }
    }

    /// Hands on waiting requests, as many as fit; returns whether there were any.
    fn send_waiting(
        &mut self,
        options: &Options,
        counters: &mut PeerCounters,
        elsewhere: u64,
        now: Monotonic,
        answers: &mut Answers,
    ) -> bool {
        let mut any = false;
        self.queue.look(now);
        while let Some(queued) = self.queue.next(elsewhere) {
            self.send(queued, true, options, counters, now, answers);
            any = true;
        }
        any
    }
}

/// Inputs for new connections to the peer.
struct Making<'a> {
    peer: &'a Peer,
    options: &'a Options,
    common: &'a Common<'a>,
}

impl Making<'_> {
    /// A connection that logs on, to a session of its own or to the one that it is bound to.
    fn channel(&self, place: Place, way: Way, binding: Option<Binding>) -> Result<Box<Channel>, PeerError> {
        let Self { peer, options, common } = self;
        let server = place.address.ip().to_string();
        let prover = common.options.nodes.prover().ok_or(PeerError::Unproven)?;
        let credentials = NodeCredentials { prover, peer: peer.node };
        let of_link = options.of_link(common.options.dial_timeout);
        let mut options = (*options).clone();
        options.client_guid = common.client_guid;
        options.rdma_transform = place.is_rdma;
        let random = Box::new(|bytes: &mut [u8]| {
            // Without random bytes no key and no nonce is safe: the connection cannot continue.
            getrandom::fill(bytes).expect("a system that gave random bytes once gives them again");
        });
        let connection = Connection::of_node(options, credentials, &server, wall_clock(), random, binding)?;
        let link = Link::new(common.driver, way, &of_link)
            .map_err(|error: LinkError| PeerError::Client(error.into()))?;
        Ok(Box::new(Channel::new(connection, link, 0, common.now)))
    }
}

impl Maker for Making<'_> {
    fn dial(&self, place: Place) -> Result<Dial, PeerError> {
        let Common { driver, options, .. } = self.common;
        Dial::begin(driver, place.address, options.dial_timeout)
            .map_err(|error| PeerError::Other(format!("{}: {error}", place.address)))
    }

    fn is_by_device(&self, place: Place) -> bool {
        place.is_rdma && self.options.rdma_device != RdmaDevice::Software
    }

    fn bind(&self, place: Place, way: Way, binding: Binding) -> Result<Box<Channel>, PeerError> {
        self.channel(place, way, Some(binding))
    }
}

enum Phase {
    Waiting { until: Monotonic },
    Dialing { dial: Dial, place: Place, until: Monotonic },
    Joining(Joining),
    Ready(Box<Ready>),
}

/// One peer and its session.
pub(super) struct PeerLink {
    peer: Peer,
    phase: Phase,
    pauses: Pauses,
    /// Number of the present attempt, which chooses the address.
    attempt: usize,
    /// Logons that a server refused one after the other.
    refused: usize,
    options: Options,
    trouble: Option<String>,
    /// Since when no connection carries requests; `None`: one does.
    unreached_since: Option<Monotonic>,
    counters: PeerCounters,
    /// Stalls of connections that are gone.
    past_stalls: u64,
}

fn wall_clock() -> FileTime {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(FileTime::UNIX_EPOCH, |since| FileTime::from_unix_nanos(since.as_nanos() as i128))
}

fn options_of(options: &RemoteOptions) -> Options {
    Options {
        rdma_device: options.rdma_device.clone(),
        rdma_crc: options.rdma_crc,
        oldest: Dialect::Smb311,
        newest: Dialect::Smb311,
        signing: Signing::Required,
        encryption: if options.encrypt { Encryption::Required } else { Encryption::IfRequired },
        credits: CREDITS,
        timeout: options.silence,
        ..Options::default()
    }
}

impl PeerLink {
    pub fn new(peer: Peer, options: &RemoteOptions) -> Self {
        Self {
            peer,
            phase: Phase::Waiting { until: Monotonic(0) },
            pauses: Pauses::new(options.pauses),
            attempt: 0,
            refused: 0,
            options: options_of(options),
            trouble: None,
            unreached_since: None,
            counters: PeerCounters::default(),
            past_stalls: 0,
        }
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the same peer by another record, with its counters.
    pub fn renewed(self, peer: Peer, options: &RemoteOptions) -> Self {
        let Self { counters, past_stalls, trouble, unreached_since, .. } = self;
        Self { counters, past_stalls, trouble, unreached_since, ..Self::new(peer, options) }
    }

    /// Ends the pause before the next attempt: there is reason to think that the peer is there.
    pub fn hurry(&mut self) {
        self.pauses.reset();
        if let Phase::Waiting { until } = &mut self.phase {
            *until = Monotonic(0);
        }
    }

    pub fn kill(&mut self) {
        match &mut self.phase {
            Phase::Waiting { .. } | Phase::Dialing { .. } => {}
            Phase::Joining(joining) => joining.channel.kill(),
            Phase::Ready(ready) => ready.channels.kill(None),
        }
    }

    pub fn kill_channel(&mut self, at: usize) {
        if let Phase::Ready(ready) = &mut self.phase {
            ready.channels.kill(Some(at));
        }
    }

    /// Takes a coordinator's request; it is answered at once if it goes nowhere. `elsewhere`: bytes that READs under way bring from other peers.
    pub fn ask(&mut self, queued: Queued, elsewhere: u64, now: Monotonic, answers: &mut Answers) {
        self.counters.requests += 1;
        let Phase::Ready(ready) = &mut self.phase else {
            self.counters.unreachable += 1;
            return answers.push(queued.port, unreachable(queued.disk, &queued.request));
        };
        let opens = matches!(queued.request.operation, ReplicaOperation::Open { .. });
        if opens || ready.queue.admits(&queued.load(), elsewhere) {
            ready.send(queued, false, &self.options, &mut self.counters, now, answers);
        } else {
            if queued.is_client_read() {
                answers.push_waiting(queued.port, queued.waiting(false));
            }
            ready.queue.push(queued, now);
            ready.send_waiting(&self.options, &mut self.counters, elsewhere, now, answers);
        }
    }

    /// Ends the port's sessions: nobody asks through it any more.
    pub fn end_port(&mut self, port: PortId) {
        if let Phase::Ready(ready) = &mut self.phase {
            let Ready { sessions, queue, .. } = &mut **ready;
            queue.forget(port);
            sessions.end_port(port, queue);
        }
    }

    /// Bytes that READs under way bring.
    pub fn incoming_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Ready(ready) => ready.queue.incoming_bytes(),
            Phase::Waiting { .. } | Phase::Dialing { .. } | Phase::Joining(_) => 0,
        }
    }

    /// Carries messages both ways, and takes due steps; returns whether anything moved.
    pub fn poll(&mut self, common: &Common<'_>, up: &mut Up<'_>) -> bool {
        let phase = std::mem::replace(&mut self.phase, Phase::Waiting { until: Monotonic(0) });
        if !matches!(phase, Phase::Ready(_)) {
            self.unreached_since.get_or_insert(common.now);
        }
        let result = match phase {
            Phase::Waiting { until } if until > common.now => {
                self.phase = Phase::Waiting { until };
                return false;
            }
            Phase::Waiting { .. } => self.begin(common),
            Phase::Dialing { dial, place, until } => self.dialing(dial, place, until, common),
            Phase::Joining(joining) => self.join(joining, common, up),
            Phase::Ready(ready) => self.serve(ready, common, up),
        };
        match result {
            Ok((phase, moved)) => {
                self.phase = phase;
                moved
            }
            Err(error) => {
                self.lost(&error, common.now, up);
                true
            }
        }
    }

    /// The addresses to be tried, those of SMB Direct first.
    fn place(&self) -> Option<Place> {
        let Peer { addresses, rdma, .. } = &self.peer;
        let count = addresses.len() + rdma.len();
        let at = self.attempt.checked_rem(count)?;
        Some(match rdma.get(at) {
            Some(address) => Place { address: *address, is_rdma: true },
            None => Place { address: addresses[at - rdma.len()], is_rdma: false },
        })
    }

    fn address(&self) -> Option<SocketAddr> {
        self.place().map(|place| place.address)
    }

    fn begin(&mut self, common: &Common<'_>) -> Result<(Phase, bool), PeerError> {
        let Some(place) = self.place() else {
            return Err(PeerError::Other("no address of it is known".to_owned()));
        };
        let (making, until) = (self.making(common), common.now.after(common.options.dial_timeout));
        if making.is_by_device(place) {
            return Ok((self.joining(place, Way::Device(place.address), common)?, true));
        }
        Ok((Phase::Dialing { dial: making.dial(place)?, place, until }, true))
    }

    fn dialing(
        &mut self,
        dial: Dial,
        place: Place,
        until: Monotonic,
        common: &Common<'_>,
    ) -> Result<(Phase, bool), PeerError> {
        match dial.result() {
            None if common.now >= until => Err(PeerError::TimedOut),
            None => Ok((Phase::Dialing { dial, place, until }, false)),
            Some(Err(error)) => Err(PeerError::Other(error.to_string())),
            Some(Ok(stream)) => {
                let way = if place.is_rdma { Way::Iwarp(stream) } else { Way::Tcp(stream) };
                Ok((self.joining(place, way, common)?, true))
            }
        }
    }

    fn making<'a>(&'a self, common: &'a Common<'a>) -> Making<'a> {
        Making { peer: &self.peer, options: &self.options, common }
    }

    /// Begins the logon over a connection.
    fn joining(&self, place: Place, way: Way, common: &Common<'_>) -> Result<Phase, PeerError> {
        let channel = self.making(common).channel(place, way, None)?;
        let until = common.now.after(common.options.dial_timeout);
        Ok(Phase::Joining(Joining { channel, place, tree: None, node: None, asked: false, until }))
    }

    /// Logs on, connects the share, opens its root, and has a large message come through in each direction: a network that loses large packets, as
    /// one with a smaller MTU than its servers believe, lets all before that pass, and no data.
    fn join(
        &mut self,
        mut joining: Joining,
        common: &Common<'_>,
        up: &mut Up<'_>,
    ) -> Result<(Phase, bool), PeerError> {
        let mut replies = Vec::new();
        let pumped = joining.channel.pump(common.now, self.options.timeout, &mut replies);
        let mut moved = match pumped {
            Err(ClientError::TimedOut) if joining.node.is_some() => return Err(PeerError::LosesLarge),
            pumped => pumped?,
        };
        for (token, reply) in replies {
            if let (PROOF, Some(tree), Some(node)) = (token, joining.tree, joining.node) {
                // A server that does not know the question has received it, and answers nothing large.
                return Ok((self.ready(joining, tree, node, common, up), true));
            }
            reply.success()?;
            if token == TREE {
                (joining.tree, joining.asked) = (Some(reply.tree_id()), false);
            } else if token == NODE {
                let response = CreateResponse::parse(reply.message()).map_err(ClientError::from)?;
                (joining.node, joining.asked) = (Some(response.file_id), false);
            }
        }
        if !joining.asked && joining.channel.connection.is_ready() {
            let (token, request) = match (joining.tree, joining.node) {
                (None, _) => {
                    let server = joining.place.address.ip();
                    (TREE, SmbRequest::tree_connect(&format!("\\\\{server}\\{SHARE}")))
                }
                (Some(tree), None) => (NODE, create(tree, "", &[])),
                (Some(tree), Some(node)) => (PROOF, proof(tree, node)),
            };
            joining.channel.submit(token, request, &self.options, common.now);
            joining.channel.pump(common.now, self.options.timeout, &mut Vec::new())?;
            (joining.asked, moved) = (true, true);
        }
        if common.now >= joining.until {
            return Err(if joining.node.is_some() { PeerError::LosesLarge } else { PeerError::TimedOut });
        }
        Ok((Phase::Joining(joining), moved))
    }

    fn ready(
        &mut self,
        Joining { channel, place, .. }: Joining,
        tree: u32,
        node: FileId,
        common: &Common<'_>,
        up: &mut Up<'_>,
    ) -> Phase {
        self.counters.connections += 1;
        (self.trouble, self.unreached_since) = (None, None);
        self.pauses.succeeded(common.now);
        tracing::info!(node = %self.peer.name, address = %place.address, "the storage bus reaches a node");
        up.events.push_back(BusEvent::PeerUp { node: self.peer.node });
        let addresses = if place.is_rdma { &self.peer.rdma } else { &self.peer.addresses };
        let places = channels::places(place, addresses, common.options.channels);
        Phase::Ready(Box::new(Ready {
            channels: Channels::new(channel, places, common.options),
            sessions: Sessions::new(tree),
            queue: Queue::new(common.options.windows),
            tree,
            node,
            next_token: FIRST_ASKED,
            cursors: BTreeMap::new(),
            status_at: common.now,
            status_asked: false,
            proof_at: common.now.after(common.options.proof_interval),
            proof_asked: false,
        }))
    }

    /// Carries requests and answers of a connection in use.
    fn serve(
        &mut self,
        mut ready: Box<Ready>,
        common: &Common<'_>,
        up: &mut Up<'_>,
    ) -> Result<(Phase, bool), PeerError> {
        if common.now >= ready.status_at {
            if !ready.status_asked {
                let question = status_question(ready.tree, ready.node, &ready.cursors);
                ready.channels.submit_first(STATUS, question, &self.options, common.now);
                ready.status_asked = true;
            }
            ready.channels.probe(ECHO, &self.options, common.now);
            ready.status_at = common.now.after(common.options.status_interval);
        }
        if common.now >= ready.proof_at {
            if !std::mem::replace(&mut ready.proof_asked, true) {
                let question = proof(ready.tree, ready.node);
                ready.channels.submit_first(PROOF, question, &self.options, common.now);
            }
            ready.proof_at = common.now.after(common.options.proof_interval);
        }
        let is_formed = ready.channels.form(&self.making(common), common.options, common.now);
        let mut result = self.exchange(&mut ready, common, up);
        // Requests for which answers have just made space leave in the same turn.
        let is_sent =
            ready.send_waiting(&self.options, &mut self.counters, common.elsewhere, common.now, up.answers);
        if is_sent && result.is_ok() {
            result = self.exchange(&mut ready, common, up).map(|_| true);
        }
        let answers = &mut *up.answers;
        ready.queue.tell(common.now, |port, waiting| answers.push_waiting(port, waiting));
        for file in ready.sessions.take_unused() {
            let close = SmbRequest::close(ready.tree, file);
            ready.channels.submit(CLOSE, close, 0, &self.options, common.now);
        }
        match result {
            Ok(moved) => Ok((Phase::Ready(ready), moved || is_formed)),
            Err(error) => {
                self.phase = Phase::Ready(ready);
                Err(error)
            }
        }
    }

    /// Carries messages both ways, and takes the answers.
    fn exchange(
        &mut self,
        ready: &mut Ready,
        common: &Common<'_>,
        up: &mut Up<'_>,
    ) -> Result<bool, PeerError> {
        let (mut replies, mut result, mut at) = (Vec::new(), Ok(false), 0);
        while at < ready.channels.len() {
            let pumped = ready.channels.pump(at, self.options.timeout, common.now, &mut replies);
            for (token, reply) in replies.drain(..) {
                // Replies before the end are valid, and the first malformed one ends the connection.
                if let Err(error) = self.take(ready, at, token, &reply, common.now, up) {
                    result = Err(error);
                }
            }
            match pumped {
                Err(error) if ready.channels.len() > 1 => {
                    self.lose_channel(ready, at, &error, common.now, up);
                    result = result.map(|_| true);
                }
                Err(error) => (result, at) = (Err(error), at + 1),
                Ok(moved) => (result, at) = (result.map(|any| any | moved), at + 1),
            }
        }
        result
    }

    /// Takes out one lost channel of several: the others continue, and take over requests that may be sent
    /// again.
    fn lose_channel(
        &mut self,
        ready: &mut Ready,
        at: usize,
        error: &PeerError,
        now: Monotonic,
        up: &mut Up<'_>,
    ) {
        self.counters.channels_lost += 1;
        let (place, leftovers) = ready.channels.take_lost(at, now);
        tracing::warn!(node = %self.peer.name, address = %place.address, %error, "a channel of the storage bus is lost");
        let Ready { sessions, queue, channels, status_asked, proof_asked, .. } = ready;
        for Again { token, request, bytes, waiting } in
            sessions.channel_lost(leftovers, queue, &mut self.counters, up.answers)
        {
            match token {
                STATUS => *status_asked = false,
                PROOF => *proof_asked = false,
                ECHO => {}
                token => {
                    channels.submit(token, request, bytes, &self.options, now);
                }
            }
            if let Some((port, waiting)) = waiting {
                up.answers.push_waiting(port, waiting);
            }
        }
    }

    fn take(
        &mut self,
        ready: &mut Ready,
        at: usize,
        token: Token,
        reply: &Reply,
        now: Monotonic,
        up: &mut Up<'_>,
    ) -> Result<(), PeerError> {
        match token {
            STATUS => {
                let disks = wire::parse_status(reply.fsctl_output()?)?;
                ready.cursors = disks.iter().map(|report| (report.disk, report.cursor)).collect();
                ready.status_asked = false;
                up.events.push_back(BusEvent::Status { node: self.peer.node, disks });
            }
            CLOSE => {}
            // Any answer proves the way: a peer that does not know the question has received it.
            PROOF => ready.proof_asked = false,
            ECHO => ready.channels.probed(at),
            token => {
                let Ready { sessions, queue, channels, .. } = ready;
                if let Some(Taken { port, response, bytes, paced }) =
                    sessions.answered(token, reply, now, queue, &mut self.counters)?
                {
                    channels.ended(at, bytes, paced);
                    up.answers.push(port, response);
                }
            }
        }
        Ok(())
    }

    /// Ends the connection, if there is one, and answers its requests. The next attempt begins after a pause.
    fn lost(&mut self, error: &PeerError, now: Monotonic, up: &mut Up<'_>) {
        let why = &error.told();
        if self.trouble.as_ref() != Some(why) {
            let address = self.address();
            tracing::warn!(node = %self.peer.name, ?address, why, "the storage bus does not reach a node");
        }
        self.give_up(why, error.is_reset(), up);
        let (until, had_lasted) = self.pauses.after_failure(now);
        // Back to the best address after one that worked for a while; on to the next one from all others.
        self.refused = if error.is_refused_logon() { self.refused.wrapping_add(1) } else { 0 };
        // An address that refuses a logon is right: the other server has not heard of this one yet.
        let stays = !self.refused.is_multiple_of(REFUSED_LOGONS);
        self.attempt = if had_lasted { 0 } else { self.attempt.wrapping_add(usize::from(!stays)) };
        self.phase = Phase::Waiting { until };
    }

    /// Ends the connection, if there is one, and answers its requests. The next attempt begins at once.
    pub fn give_up(&mut self, why: &str, was_reset: bool, up: &mut Up<'_>) {
        self.trouble = Some(why.to_owned());
        let phase = std::mem::replace(&mut self.phase, Phase::Waiting { until: Monotonic(0) });
        if let Phase::Ready(mut ready) = phase {
            self.past_stalls += ready.channels.credit_stalls();
            ready.sessions.give_up(&mut self.counters, up.answers);
            for queued in ready.queue.drain() {
                self.counters.unreachable += 1;
                up.answers.push(queued.port, unreachable(queued.disk, &queued.request));
            }
            let (node, why) = (self.peer.node, why.to_owned());
            up.events.push_back(BusEvent::PeerLost { node, why, was_reset });
        }
    }

    pub fn next_timeout(&self, options: &RemoteOptions) -> Option<Monotonic> {
        Some(match &self.phase {
            Phase::Waiting { until } | Phase::Dialing { until, .. } => *until,
            Phase::Joining(joining) => joining.until.min(joining.channel.next_timeout(options.silence)),
            Phase::Ready(ready) => {
                let others = [ready.channels.next_timeout(options.silence), ready.queue.next_timeout()];
                others.into_iter().flatten().fold(ready.status_at.min(ready.proof_at), Monotonic::min)
            }
        })
    }

    pub fn status(&self) -> PeerStatus {
        let mut counters = self.counters.clone();
        counters.credit_stalls = self.past_stalls;
        let mut queues = self.queues();
        let mut channels = Vec::new();
        let (state, in_flight, rdma) = match &self.phase {
            Phase::Waiting { .. } => (PeerState::Waiting, 0, false),
            Phase::Dialing { place, .. } => (PeerState::Connecting, 0, place.is_rdma),
            Phase::Joining(joining) => (PeerState::Connecting, 0, joining.channel.is_rdma()),
            Phase::Ready(ready) => {
                counters.credit_stalls += ready.channels.credit_stalls();
                channels = ready.channels.status();
                for queue in &mut queues {
                    queue.waiting = ready.queue.waiting(queue.priority);
                    queue.in_flight_bytes = ready.queue.bytes(queue.priority);
                }
                (PeerState::Ready, ready.sessions.in_flight(), ready.channels.is_rdma())
            }
        };
        let address = channels.first().map(|first| first.address).or_else(|| self.address());
        PeerStatus {
            node: self.peer.node,
            state,
            address,
            rdma,
            trouble: self.trouble.clone(),
            unreached_since: self.unreached_since,
            in_flight,
            channels,
            queues,
            counters,
        }
    }

    /// Counters of each priority, for a peer at which nothing waits.
    fn queues(&self) -> [QueueStatus; Priority::ALL.len()] {
        Priority::ALL.map(|priority| {
            let (requests, longest_wait) = self.counters.left[priority as usize];
            QueueStatus { priority, waiting: 0, in_flight_bytes: 0, requests, longest_wait }
        })
    }
}
