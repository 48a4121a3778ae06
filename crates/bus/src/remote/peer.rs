//! One peer: its connection, from dialing to the connected share, and what becomes of it.

use super::dial::Dial;
use super::pauses::Pauses;
use super::queue::{Queue, Queued};
use super::session::{PeerError, Sessions, Turned, create, status_question};
use super::{
    Answers, BusEvent, Common, Peer, PeerCounters, PeerState, PeerStatus, PortId, QueueStatus, RemoteOptions,
    Up, unreachable,
};
use crate::{SHARE, wire};
use smb::wire::{CreateResponse, Dialect, FileId};
use smb_client::{
    Channel, ClientError, Connection, Credentials, Encryption, Options, RdmaDevice, Reply,
    Request as SmbRequest, Signing, Token,
};
use smb_transport::client::{Link, LinkError, Way};
use space::message::{Operation, Priority};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;
use types::{DiskId, FileTime, Monotonic};

/// A server that refuses so many logons one after the other is tried at its next address.
const REFUSED_LOGONS: usize = 8;

/// The connection's own requests; those of coordinators have higher tokens.
const TREE: Token = Token(1);
const NODE: Token = Token(2);
const STATUS: Token = Token(3);
const CLOSE: Token = Token(4);
const FIRST_ASKED: u64 = 16;

/// Credits that a peer is asked for: as many requests may be under way, or 64 KiB of payload for each.
///
/// As many as for twice [`super::Windows::peer_bytes`]: what is under way at disks that hang counts as little as a share there.
const CREDITS: u16 = 1024;

/// A connection that is being set up.
struct Joining {
    channel: Box<Channel>,
    /// The share, once it is connected.
    tree: Option<u32>,
    /// TREE_CONNECT, or CREATE of the root, is asked.
    asked: bool,
    until: Monotonic,
}

/// A connection in use.
struct Ready {
    channel: Box<Channel>,
    sessions: Sessions,
    queue: Queue,
    tree: u32,
    /// The open of the peer itself.
    node: FileId,
    next_token: u64,
    /// How far the peer has told of what was found on its disks.
    cursors: BTreeMap<DiskId, u64>,
    status_at: Monotonic,
    status_asked: bool,
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
            Turned::Submit(request) => {
                *requests += 1;
                *longest_wait = waited.max(*longest_wait);
                self.channel.submit(token, request, options, now);
                if let Some(left) = left {
                    answers.push_waiting(port, left);
                }
            }
            Turned::Answer(response) => answers.push(port, response),
        }
        if let Some(file) = close {
            self.channel.submit(CLOSE, SmbRequest::close(self.tree, file), options, now);
        }
    }

    /// Hands on what waits, as much as there is room for; whether it was any.
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

enum Phase {
    Waiting { until: Monotonic },
    Dialing { dial: Dial, rdma: bool, until: Monotonic },
    Joining(Joining),
    Ready(Box<Ready>),
}

/// One peer and its connection.
pub(super) struct PeerLink {
    peer: Peer,
    phase: Phase,
    pauses: Pauses,
    /// Which of the addresses is tried.
    attempt: usize,
    /// Logons that a server refused one after the other.
    refused: usize,
    options: Options,
    trouble: Option<String>,
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
            counters: PeerCounters::default(),
            past_stalls: 0,
        }
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The same peer by another record, with what was counted of it.
    pub fn renewed(self, peer: Peer, options: &RemoteOptions) -> Self {
        let Self { counters, past_stalls, trouble, .. } = self;
        Self { counters, past_stalls, trouble, ..Self::new(peer, options) }
    }

    /// Does not wait for the next attempt any longer: there is reason to think that the peer is there.
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
            Phase::Ready(ready) => ready.channel.kill(),
        }
    }

    /// Takes a coordinator's request; it is answered at once if it goes nowhere. `elsewhere`: bytes that READs under way bring from other peers.
    pub fn ask(&mut self, queued: Queued, elsewhere: u64, now: Monotonic, answers: &mut Answers) {
        self.counters.requests += 1;
        let Phase::Ready(ready) = &mut self.phase else {
            self.counters.unreachable += 1;
            return answers.push(queued.port, unreachable(queued.disk, &queued.request));
        };
        let opens = matches!(queued.request.operation, Operation::Open { .. });
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

    /// Nobody asks through the port any more.
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

    /// Carries messages both ways and goes on with what is due; whether anything moved.
    pub fn poll(&mut self, common: &Common<'_>, up: &mut Up<'_>) -> bool {
        let phase = std::mem::replace(&mut self.phase, Phase::Waiting { until: Monotonic(0) });
        let result = match phase {
            Phase::Waiting { until } if until > common.now => {
                self.phase = Phase::Waiting { until };
                return false;
            }
            Phase::Waiting { .. } => self.begin(common),
            Phase::Dialing { dial, rdma, until } => self.dialing(dial, rdma, until, common),
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
    fn address(&self) -> Option<(SocketAddr, bool)> {
        let Peer { addresses, rdma, .. } = &self.peer;
        let count = addresses.len() + rdma.len();
        let at = self.attempt.checked_rem(count)?;
        Some(match rdma.get(at) {
            Some(address) => (*address, true),
            None => (addresses[at - rdma.len()], false),
        })
    }

    fn begin(&mut self, common: &Common<'_>) -> Result<(Phase, bool), PeerError> {
        let Some((address, rdma)) = self.address() else {
            return Err(PeerError::Other("no address of it is known".to_owned()));
        };
        let until = common.now.after(common.options.dial_timeout);
        if rdma && self.options.rdma_device != RdmaDevice::Software {
            return Ok((self.joining(Way::Device(address), common)?, true));
        }
        let dial = Dial::begin(common.driver, address, common.options.dial_timeout)
            .map_err(|error| PeerError::Other(format!("{address}: {error}")))?;
        Ok((Phase::Dialing { dial, rdma, until }, true))
    }

    fn dialing(
        &mut self,
        dial: Dial,
        rdma: bool,
        until: Monotonic,
        common: &Common<'_>,
    ) -> Result<(Phase, bool), PeerError> {
        match dial.result() {
            None if common.now >= until => Err(PeerError::TimedOut),
            None => Ok((Phase::Dialing { dial, rdma, until }, false)),
            Some(Err(error)) => Err(PeerError::Other(error.to_string())),
            Some(Ok(stream)) => {
                let way = if rdma { Way::Iwarp(stream) } else { Way::Tcp(stream) };
                Ok((self.joining(way, common)?, true))
            }
        }
    }

    /// Begins the logon over a connection.
    fn joining(&self, way: Way, common: &Common<'_>) -> Result<Phase, PeerError> {
        let server = self.address().map_or_else(String::new, |(address, _)| address.ip().to_string());
        let credentials = Credentials::User {
            user: self.peer.account.clone(),
            domain: String::new(),
            workstation: String::new(),
            hash: self.peer.secret.nt_hash(),
            target_name: format!("cifs/{server}"),
        };
        let mut options = self.options.clone();
        options.client_guid = common.client_guid;
        options.rdma_transform = !matches!(way, Way::Tcp(_));
        let random = Box::new(|bytes: &mut [u8]| {
            // Without random bytes no key and no nonce is safe: there is nothing to go on with.
            getrandom::fill(bytes).expect("a system that gave random bytes once gives them again");
        });
        let connection = Connection::new(options, credentials, &server, wall_clock(), random);
        let link = Link::new(common.driver, way, &self.options.of_link(common.options.dial_timeout))
            .map_err(|error: LinkError| PeerError::Client(error.into()))?;
        let channel = Box::new(Channel::new(connection, link, 0, common.now));
        let until = common.now.after(common.options.dial_timeout);
        Ok(Phase::Joining(Joining { channel, tree: None, asked: false, until }))
    }

    /// Logs on, connects the share and opens its root.
    fn join(
        &mut self,
        mut joining: Joining,
        common: &Common<'_>,
        up: &mut Up<'_>,
    ) -> Result<(Phase, bool), PeerError> {
        let mut replies = Vec::new();
        let mut moved = joining.channel.pump(common.now, self.options.timeout, &mut replies)?;
        for (token, reply) in replies {
            reply.success()?;
            if token == TREE {
                (joining.tree, joining.asked) = (Some(reply.tree_id()), false);
            } else if let (NODE, Some(tree)) = (token, joining.tree) {
                let response = CreateResponse::parse(reply.message()).map_err(ClientError::from)?;
                return Ok((self.ready(joining.channel, tree, response.file_id, common, up), true));
            }
        }
        if !joining.asked && joining.channel.connection.is_ready() {
            let (token, request) = match joining.tree {
                None => {
                    let server =
                        self.address().map_or_else(String::new, |(address, _)| address.ip().to_string());
                    (TREE, SmbRequest::tree_connect(&format!("\\\\{server}\\{SHARE}")))
                }
                Some(tree) => (NODE, create(tree, "", &[])),
            };
            joining.channel.submit(token, request, &self.options, common.now);
            joining.channel.pump(common.now, self.options.timeout, &mut Vec::new())?;
            (joining.asked, moved) = (true, true);
        }
        if common.now >= joining.until {
            return Err(PeerError::TimedOut);
        }
        Ok((Phase::Joining(joining), moved))
    }

    fn ready(
        &mut self,
        channel: Box<Channel>,
        tree: u32,
        node: FileId,
        common: &Common<'_>,
        up: &mut Up<'_>,
    ) -> Phase {
        self.counters.connections += 1;
        self.trouble = None;
        self.pauses.succeeded(common.now);
        let address = self.address().map(|(address, _)| address);
        tracing::info!(node = %self.peer.node, ?address, "the storage bus reaches a node");
        up.events.push_back(BusEvent::PeerUp { node: self.peer.node });
        Phase::Ready(Box::new(Ready {
            channel,
            sessions: Sessions::new(tree),
            queue: Queue::new(common.options.windows),
            tree,
            node,
            next_token: FIRST_ASKED,
            cursors: BTreeMap::new(),
            status_at: common.now,
            status_asked: false,
        }))
    }

    /// Carries requests and answers of a connection in use.
    fn serve(
        &mut self,
        mut ready: Box<Ready>,
        common: &Common<'_>,
        up: &mut Up<'_>,
    ) -> Result<(Phase, bool), PeerError> {
        if !ready.status_asked && common.now >= ready.status_at {
            let question = status_question(ready.tree, ready.node, &ready.cursors);
            ready.channel.submit(STATUS, question, &self.options, common.now);
            ready.status_asked = true;
            ready.status_at = common.now.after(common.options.status_interval);
        }
        let mut result = self.exchange(&mut ready, common, up);
        // What answers have made room for leaves in the same turn.
        let is_sent =
            ready.send_waiting(&self.options, &mut self.counters, common.elsewhere, common.now, up.answers);
        if is_sent && result.is_ok() {
            result = self.exchange(&mut ready, common, up).map(|_| true);
        }
        let answers = &mut *up.answers;
        ready.queue.tell(common.now, |port, waiting| answers.push_waiting(port, waiting));
        for file in ready.sessions.take_unused() {
            ready.channel.submit(CLOSE, SmbRequest::close(ready.tree, file), &self.options, common.now);
        }
        match result {
            Ok(moved) => Ok((Phase::Ready(ready), moved)),
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
        let mut replies = Vec::new();
        let mut result =
            ready.channel.pump(common.now, self.options.timeout, &mut replies).map_err(PeerError::from);
        for (token, reply) in replies {
            // What came before the end is believed, and the first nonsense is the end.
            if let Err(error) = self.take(ready, token, &reply, common.now, up) {
                result = Err(error);
            }
        }
        result
    }

    fn take(
        &mut self,
        ready: &mut Ready,
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
            token => {
                let Ready { sessions, queue, .. } = ready;
                if let Some((port, response)) =
                    sessions.answered(token, reply, now, queue, &mut self.counters)?
                {
                    up.answers.push(port, response);
                }
            }
        }
        Ok(())
    }

    /// Ends the connection, if there is one, and answers what was asked. The next attempt begins after a pause.
    fn lost(&mut self, error: &PeerError, now: Monotonic, up: &mut Up<'_>) {
        let why = &error.to_string();
        if self.trouble.as_ref() != Some(why) {
            let address = self.address().map(|(address, _)| address);
            tracing::warn!(node = %self.peer.node, ?address, why, "the storage bus does not reach a node");
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

    /// Ends the connection, if there is one, and answers what was asked. The next attempt begins at once.
    pub fn give_up(&mut self, why: &str, was_reset: bool, up: &mut Up<'_>) {
        self.trouble = Some(why.to_owned());
        let phase = std::mem::replace(&mut self.phase, Phase::Waiting { until: Monotonic(0) });
        if let Phase::Ready(mut ready) = phase {
            self.past_stalls += ready.channel.counters().smb_credit_stalls;
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
                let silent_at = (ready.channel.connection.in_flight() > 0)
                    .then(|| ready.channel.next_timeout(options.silence));
                let status_at = (!ready.status_asked).then_some(ready.status_at);
                return [silent_at, status_at, ready.queue.next_timeout()].into_iter().flatten().min();
            }
        })
    }

    pub fn status(&self) -> PeerStatus {
        let mut counters = self.counters.clone();
        counters.credit_stalls = self.past_stalls;
        let mut queues = self.queues();
        let (state, in_flight, rdma) = match &self.phase {
            Phase::Waiting { .. } => (PeerState::Waiting, 0, false),
            Phase::Dialing { rdma, .. } => (PeerState::Connecting, 0, *rdma),
            Phase::Joining(joining) => (PeerState::Connecting, 0, joining.channel.is_rdma()),
            Phase::Ready(ready) => {
                counters.credit_stalls += ready.channel.counters().smb_credit_stalls;
                for queue in &mut queues {
                    queue.waiting = ready.queue.waiting(queue.priority);
                    queue.in_flight_bytes = ready.queue.bytes(queue.priority);
                }
                (PeerState::Ready, ready.sessions.in_flight(), ready.channel.is_rdma())
            }
        };
        let address = self.address().map(|(address, _)| address);
        PeerStatus {
            node: self.peer.node,
            state,
            address,
            rdma,
            trouble: self.trouble.clone(),
            in_flight,
            queues,
            counters,
        }
    }

    /// What was counted of each priority, of a peer at which nothing waits.
    fn queues(&self) -> [QueueStatus; Priority::ALL.len()] {
        Priority::ALL.map(|priority| {
            let (requests, longest_wait) = self.counters.left[priority as usize];
            QueueStatus { priority, waiting: 0, in_flight_bytes: 0, requests, longest_wait }
        })
    }
}
