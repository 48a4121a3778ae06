//! Disks of other nodes: the connecting side of the bus.
//!
//! [`Remote`] lives on the data plane's loop and never blocks. It keeps one session with each peer, over one connection or several ([`channels`]), makes
//! it anew by itself when the last one is lost, and carries the requests of coordinators to the peers that have the disks. How it is used: [`Remote::set_peers`] and
//! [`Remote::set_disks`] when the cluster's records change; [`Remote::port`] for each pool's space, which asks through it; in each round of
//! the loop [`Remote::poll`]; [`Remote::poll_event`]; [`Remote::next_timeout`] before the loop sleeps.

mod channels;
mod dial;
mod pauses;
mod peer;
mod queue;
mod session;

pub use channels::at_each;
pub use queue::Windows;

use crate::accounts::NodeAccounts;
use peer::PeerLink;
use queue::Queued;
use smb_client::RdmaDevice;
use space::local::nodes::DiskReport;
use space::message::{BusError, Priority, Request, Response, Transport, Waiting};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use sys::driver::Driver;
use types::{DiskId, LatencyHistogram, Monotonic, NodeId};

/// Another node, as its record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub node: NodeId,
    /// Name for administrators, in the log.
    pub name: String,
    /// Where its SMB server listens by TCP.
    pub addresses: Vec<SocketAddr>,
    /// Addresses of SMB Direct; tried first, if there are any.
    pub rdma: Vec<SocketAddr>,
}

/// Settings of the connecting side.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Proofs of this node to the others, and of them to it.
    pub nodes: NodeAccounts,
    /// Silence after which a connection with an unanswered request counts as lost.
    pub silence: Duration,
    /// Timeout of connecting, and again of logging on.
    pub dial_timeout: Duration,
    /// Between two attempts to connect: the first pause, and the longest.
    pub pauses: (Duration, Duration),
    /// Interval between questions about a peer's disks.
    pub status_interval: Duration,
    /// Interval in which a large message has to come through to a peer, and one back. A network may begin
    /// to lose them in one direction only, and a peer without large requests looks well meanwhile.
    pub proof_interval: Duration,
    /// How many bytes may be under way.
    pub windows: Windows,
    /// Connections to each peer, spread over its addresses; `None`: one to each, and four at most.
    pub channels: Option<usize>,
    /// Messages are encrypted; if not, they are signed.
    pub encrypt: bool,
    /// The device that carries SMB Direct.
    pub rdma_device: RdmaDevice,
    /// Frames of software RDMA carry a CRC.
    pub rdma_crc: bool,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            nodes: NodeAccounts::default(),
            silence: Duration::from_secs(2),
            dial_timeout: Duration::from_secs(2),
            pauses: (Duration::from_millis(50), Duration::from_secs(1)),
            status_interval: Duration::from_secs(1),
            proof_interval: Duration::from_secs(5),
            windows: Windows::default(),
            channels: None,
            encrypt: false,
            rdma_device: RdmaDevice::Software,
            rdma_crc: true,
        }
    }
}

/// State of the connection to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// Lost; the next attempt follows after a pause.
    Waiting,
    Connecting,
    /// The session is set up and the share is connected.
    Ready,
}

/// Counters of one peer since the process began.
#[derive(Debug, Clone, Default)]
pub struct PeerCounters {
    pub requests: u64,
    /// Requests that the peer answered, with success or an error.
    pub answers: u64,
    /// Requests that were lost with their connection, or asked without one.
    pub unreachable: u64,
    /// Payload of writes and reads.
    pub written_bytes: u64,
    pub read_bytes: u64,
    /// Sessions that were set up.
    pub connections: u64,
    /// Channels that were lost while others remained.
    pub channels_lost: u64,
    /// Times that a request waited because SMB2 credits were used up.
    pub credit_stalls: u64,
    /// Times from the departure of a request to its answer.
    pub latency: LatencyHistogram,
    /// By priority: requests that left, and the longest wait of one.
    left: [(u64, Duration); Priority::ALL.len()],
}

/// Queue of one priority's requests to a peer, and its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStatus {
    pub priority: Priority,
    /// Requests that have not left.
    pub waiting: usize,
    /// Bytes in flight in both directions, plus 64 KiB for each request.
    pub in_flight_bytes: u64,
    /// Requests that have left since the process began.
    pub requests: u64,
    /// The longest time that one of these waited.
    pub longest_wait: Duration,
}

/// One channel of the session with a peer, or one that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelStatus {
    pub address: SocketAddr,
    pub rdma: bool,
    /// Whether the channel carries requests.
    pub is_ready: bool,
    /// Bytes in flight in both directions, plus 64 KiB for each request.
    pub in_flight_bytes: u64,
    /// Requests since the session was set up, and their bytes, counted in the same way.
    pub requests: u64,
    pub moved_bytes: u64,
}

/// One peer, to be shown.
#[derive(Debug, Clone)]
pub struct PeerStatus {
    pub node: NodeId,
    pub state: PeerState,
    /// The address of the present connection, or of the last attempt.
    pub address: Option<SocketAddr>,
    pub rdma: bool,
    /// Why the last connection, or the last attempt, failed.
    pub trouble: Option<String>,
    /// Since when no connection carries requests; `None`: one does.
    pub unreached_since: Option<Monotonic>,
    /// Requests that have left and are not answered.
    pub in_flight: usize,
    /// Channels of the present session.
    pub channels: Vec<ChannelStatus>,
    pub queues: [QueueStatus; Priority::ALL.len()],
    pub counters: PeerCounters,
}

/// Event of the bus, for the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusEvent {
    /// The peer's disks can be reached.
    PeerUp { node: NodeId },
    /// The connection is lost: all its requests are answered with [`BusError::Unreachable`].
    PeerLost {
        node: NodeId,
        why: String,
        /// Whether the other side ended the connection, as the kernel of a dead process does: a reason to ask
        /// whether it lives.
        was_reset: bool,
    },
    /// The peer's report of its disks, about once a second; it reports each corrupt block once.
    Status { node: NodeId, disks: Vec<DiskReport> },
}

/// Names a port, to which its requests' answers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortId(usize);

/// Answers by the ports that they are for.
#[derive(Default)]
struct Answers {
    /// `None`: the port is gone, and nobody takes its answers.
    ports: Vec<Option<Outbox>>,
}

/// Answers and notices for one port.
#[derive(Default)]
struct Outbox {
    responses: Vec<Response>,
    waiting: Vec<Waiting>,
}

impl Answers {
    fn push(&mut self, port: PortId, response: Response) {
        if let Some(outbox) = &mut self.ports[port.0] {
            outbox.responses.push(response);
        }
    }

    fn push_waiting(&mut self, port: PortId, waiting: Waiting) {
        if let Some(outbox) = &mut self.ports[port.0] {
            outbox.waiting.push(waiting);
        }
    }

    fn has_any(&self, port: PortId) -> bool {
        self.ports[port.0]
            .as_ref()
            .is_some_and(|outbox| !outbox.responses.is_empty() || !outbox.waiting.is_empty())
    }
}

struct Inner {
    driver: Driver,
    options: RemoteOptions,
    client_guid: [u8; 16],
    peers: BTreeMap<NodeId, PeerLink>,
    disks: BTreeMap<DiskId, NodeId>,
    answers: Answers,
    events: VecDeque<BusEvent>,
    now: Monotonic,
    /// Whether a request waits that no connection's link has yet.
    unsent: bool,
}

/// The disks of other nodes; clones share them.
#[derive(Clone)]
pub struct Remote {
    inner: Rc<RefCell<Inner>>,
}

/// Outputs of a connection.
struct Up<'a> {
    answers: &'a mut Answers,
    events: &'a mut VecDeque<BusEvent>,
}

/// Context that all connections share.
struct Common<'a> {
    driver: &'a Driver,
    options: &'a RemoteOptions,
    client_guid: [u8; 16],
    now: Monotonic,
    /// Bytes that READs under way bring from other peers.
    elsewhere: u64,
}

fn incoming_bytes(peers: &BTreeMap<NodeId, PeerLink>) -> u64 {
    peers.values().map(PeerLink::incoming_bytes).sum()
}

impl Inner {
    /// Carries messages both ways; whether anything moved.
    fn pump(&mut self) -> bool {
        let Self { driver, options, client_guid, peers, answers, events, now, .. } = self;
        self.unsent = false;
        let mut common = Common { driver, options, client_guid: *client_guid, now: *now, elsewhere: 0 };
        let mut up = Up { answers, events };
        let (mut moved, mut incoming) = (false, incoming_bytes(peers));
        for peer in peers.values_mut() {
            common.elsewhere = incoming - peer.incoming_bytes();
            moved |= peer.poll(&common, &mut up);
            incoming = common.elsewhere + peer.incoming_bytes();
        }
        moved
    }
}

fn unreachable(disk: DiskId, request: &Request) -> Response {
    let Request { volume, session, id, .. } = *request;
    Response { from: disk, volume, session, id, result: Err(BusError::Unreachable) }
}

impl Remote {
    /// Without peers; connections live on `driver`'s loop.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(driver: &Driver, options: RemoteOptions, now: Monotonic) -> Result<Self, std::io::Error> {
        let mut client_guid = [0; 16];
        getrandom::fill(&mut client_guid).map_err(std::io::Error::other)?;
        let inner = Inner {
            driver: driver.clone(),
            options,
            client_guid,
            peers: BTreeMap::new(),
            disks: BTreeMap::new(),
            answers: Answers::default(),
            events: VecDeque::new(),
            now,
            unsent: false,
        };
        Ok(Self { inner: Rc::new(RefCell::new(inner)) })
    }

    /// Replaces the peers. Connections to unchanged peers continue; others are given up, and their requests
    /// answered.
    pub fn set_peers(&self, peers: Vec<Peer>) {
        let mut inner = self.inner.borrow_mut();
        let Inner { peers: links, answers, events, options, .. } = &mut *inner;
        let mut up = Up { answers, events };
        let mut kept = BTreeMap::new();
        for peer in peers {
            let mut link = match links.remove(&peer.node) {
                Some(link) if *link.peer() == peer => link,
                Some(mut changed) => {
                    changed.give_up("its record has changed", false, &mut up);
                    changed.renewed(peer, options)
                }
                None => PeerLink::new(peer, options),
            };
            link.hurry();
            kept.insert(link.peer().node, link);
        }
        for link in links.values_mut() {
            link.give_up("it is no node of the cluster any more", false, &mut up);
        }
        *links = kept;
    }

    /// Replaces the nodes of disks.
    pub fn set_disks(&self, disks: BTreeMap<DiskId, NodeId>) {
        self.inner.borrow_mut().disks = disks;
    }

    /// A way to the disks for one pool's space; answers go to the port of the request.
    pub fn port(&self) -> Port {
        let ports = &mut self.inner.borrow_mut().answers.ports;
        ports.push(Some(Outbox::default()));
        Port { inner: self.inner.clone(), id: PortId(ports.len() - 1) }
    }

    /// Gives a node's connection up at once if the node is known to be dead, or tries it at once if it is
    /// there again.
    pub fn set_alive(&self, node: NodeId, alive: bool) {
        let mut inner = self.inner.borrow_mut();
        let Inner { peers, answers, events, .. } = &mut *inner;
        let Some(link) = peers.get_mut(&node) else { return };
        if alive {
            link.hurry();
        } else {
            link.give_up("its node is dead", false, &mut Up { answers, events });
        }
    }

    /// Brings the time, carries messages both ways and keeps connections; whether anything moved.
    pub fn poll(&self, now: Monotonic) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.now = inner.now.max(now);
        inner.pump()
    }

    /// When [`Remote::poll`] wants to be called at the latest.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        let inner = self.inner.borrow();
        inner.peers.values().filter_map(|peer| peer.next_timeout(&inner.options)).min()
    }

    /// Tells whether a request waits for the next poll.
    pub fn has_unsent(&self) -> bool {
        self.inner.borrow().unsent
    }

    pub fn poll_event(&self) -> Option<BusEvent> {
        self.inner.borrow_mut().events.pop_front()
    }

    pub fn peers(&self) -> Vec<PeerStatus> {
        self.inner.borrow().peers.values().map(PeerLink::status).collect()
    }

    /// Breaks a peer's connections, as a network does.
    pub fn kill(&self, node: NodeId) {
        if let Some(link) = self.inner.borrow_mut().peers.get_mut(&node) {
            link.kill();
        }
    }

    /// Breaks one of a peer's connections, by its place among those that carry requests.
    pub fn kill_channel(&self, node: NodeId, at: usize) {
        if let Some(link) = self.inner.borrow_mut().peers.get_mut(&node) {
            link.kill_channel(at);
        }
    }
}

/// The way of one pool's space to disks of other nodes.
pub struct Port {
    inner: Rc<RefCell<Inner>>,
    id: PortId,
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut inner = self.inner.borrow_mut();
        inner.answers.ports[self.id.0] = None;
        inner.peers.values_mut().for_each(|peer| peer.end_port(self.id));
        // The next poll closes the files of the port's sessions.
        inner.unsent = true;
    }
}

impl Transport for Port {
    fn send(&mut self, to: DiskId, request: Request) {
        let mut inner = self.inner.borrow_mut();
        let Inner { peers, disks, answers, now, unsent, .. } = &mut *inner;
        let incoming = incoming_bytes(peers);
        match disks.get(&to).and_then(|node| peers.get_mut(node)) {
            Some(peer) => {
                *unsent = true;
                let elsewhere = incoming - peer.incoming_bytes();
                let queued = Queued { port: self.id, disk: to, request, asked_at: *now };
                peer.ask(queued, elsewhere, *now, answers);
            }
            None => answers.push(self.id, unreachable(to, &request)),
        }
    }

    fn has_news(&self) -> bool {
        let inner = self.inner.borrow();
        inner.unsent || inner.answers.has_any(self.id)
    }

    fn poll(&mut self, out: &mut Vec<Response>) {
        let mut inner = self.inner.borrow_mut();
        if inner.unsent {
            inner.pump();
        }
        if let Some(outbox) = &mut inner.answers.ports[self.id.0] {
            out.append(&mut outbox.responses);
        }
    }

    fn poll_waiting(&mut self, out: &mut Vec<Waiting>) {
        if let Some(outbox) = &mut self.inner.borrow_mut().answers.ports[self.id.0] {
            out.append(&mut outbox.waiting);
        }
    }
}
