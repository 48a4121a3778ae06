//! Nodes with an SMB server, disks in memory and a bus to the others, on one event loop.

use bus::{
    BusEvent, Exports, NodeAccounts, Peer, PeerState, PeerStatus, Port, Remote, RemoteOptions, Served,
    VOLUME, WithNodes,
};
use rdma::iwarp::{CrcPolicy, IwarpOptions, IwarpProvider, Shape};
use rdma::providers::Providers;
use records::{FaultDomain, MemoryClient, MemoryState, Provisioning, Resiliency, Typed, VolumeRecord};
use smb::auth::NtHash;
use smb::rpc::AccountEntry;
use smb::wire::BufferDescriptorV1;
use smb_server::{Account, Config, ConnectionId, ConnectionInfo, Directory, Server, Share, Transport as Way};
use smb_transport::server::smb_direct::{SmbDirect, SmbDirectLimits};
use smb_transport::server::tcp::{Tcp, TcpLimits};
use smb_transport::server::{Carrier, Clients, Descriptors, Origin, Outgoing, Service};
use smbdirect::BufferDescriptor;
use space::coordinator::Config as SpaceConfig;
use space::fake_store::FakeStore;
use space::local::LocalSpace;
use space::message::{
    Answer, BusError, Priority, ReplicaOperation, Request, RequestId, Response, SessionId, Transport as _,
};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, Payload, monotonic_now};
use trust::node_trust::fixture::TestCluster;
use types::{DiskId, Epoch, FileTime, Monotonic, NodeId, PoolId, Sid, VolumeId};
use volume::backend::{AccessToken, Backend, Event, OperationId, Privileges, Ruling, ShareOptions, Standing};

/// Blocks of a slab.
pub const SLAB: u32 = 1024;
pub const PASSWORD: &str = "right";
/// Where each node listens.
const PATHS: [&str; 2] = ["127.0.0.1", "127.0.93.2"];
const PATIENCE: Duration = Duration::from_secs(20);

pub fn disk(number: u8) -> DiskId {
    DiskId::from_bytes([number; 16])
}

pub fn wall_clock() -> FileTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    FileTime::from_unix_nanos(since.as_nanos() as i128)
}

/// The proofs that a node knows of the others, and shows of itself.
pub fn accounts_of(cluster: &TestCluster, node: NodeId, encrypt: bool) -> NodeAccounts {
    let accounts = NodeAccounts::default();
    accounts.set(cluster.trust(node), encrypt);
    accounts
}

pub type Space = LocalSpace<FakeStore, MemoryClient>;

/// A volume of files that answers nothing.
pub struct NoFiles;

impl Backend for NoFiles {
    fn submit(&mut self, _: OperationId, _: volume::backend::Operation, _: Monotonic) {}
    fn cancel(&mut self, _: OperationId) {}
    fn review(&mut self, _: &mut dyn FnMut(&Standing) -> Ruling, _: Monotonic) {}
    fn poll(&mut self, _: &mut Vec<Event>) {}
    fn next_timeout(&self) -> Option<Monotonic> {
        None
    }
    fn handle_timeout(&mut self, _: Monotonic) {}
}

/// One user, `ana`, with all rights of users; and an account that happens to be named like a node's,
/// and to be in the nodes' group.
pub struct People;

impl Directory for People {
    fn account(&self, _domain: &str, user: &str) -> Option<Account> {
        let (user_sid, groups) = match user {
            "ana" => (
                Sid::new(5, &[21, 1, 2, 3, 1000]).unwrap(),
                vec![Sid::everyone(), Sid::authenticated_users(), Sid::administrators()],
            ),
            "node-1$" => (Sid::cluster_nodes().child(1).unwrap(), vec![Sid::cluster_nodes()]),
            _ => return None,
        };
        Some(Account {
            name: user.to_owned(),
            nt_hash: *NtHash::from_password(PASSWORD).as_bytes(),
            enabled: true,
            token: Arc::new(AccessToken {
                user: user_sid,
                primary_group: Sid::users(),
                groups,
                privileges: Privileges::all(),
            }),
        })
    }
    fn share(&self, name: &str) -> Option<Arc<Share>> {
        (name == "files").then(|| {
            Arc::new(Share {
                name: name.to_owned(),
                comment: String::new(),
                volume: VolumeId::from_bytes([1; 16]),
                path: String::new(),
                options: ShareOptions::default(),
                encrypt: false,
                access: vec![(Sid::everyone(), 0x001F_01FF)],
            })
        })
    }
    fn shares(&self) -> Vec<Arc<Share>> {
        self.share("files").into_iter().collect()
    }
    fn domain_sid(&self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3]).unwrap()
    }
    fn account_by_sid(&self, _: &Sid) -> Option<AccountEntry> {
        None
    }
    fn account_by_name(&self, _: &str) -> Option<AccountEntry> {
        None
    }
    fn users(&self) -> Vec<smb::rpc::UserEntry> {
        Vec::new()
    }
    fn groups(&self) -> Vec<smb::rpc::GroupEntry> {
        Vec::new()
    }
    fn volume_name(&self, _volume: types::VolumeId) -> Option<String> {
        None
    }
}

type NodeServer = Server<Served<NoFiles, Space>, WithNodes<People>>;

/// The server of one node.
pub struct Serving {
    pub server: NodeServer,
    clients: Clients<ConnectionId, Providers>,
    pub address: SocketAddr,
    /// All its addresses by TCP, and those by SMB Direct.
    pub addresses: Vec<SocketAddr>,
    pub rdma: Vec<SocketAddr>,
    pub exports: Exports<Space>,
    pub accounts: NodeAccounts,
}

pub struct Node {
    pub id: NodeId,
    pub space: Space,
    pub stores: BTreeMap<DiskId, FakeStore>,
    /// `None`: its process is dead.
    pub serving: Option<Serving>,
    pub remote: Remote,
    /// The test's own way to the disks of the others.
    pub port: Port,
    pub events: Vec<BusEvent>,
}

struct Behind<'a>(&'a mut NodeServer);

fn describe(descriptors: &[BufferDescriptorV1]) -> Descriptors {
    let one = |wire: &BufferDescriptorV1| BufferDescriptor {
        offset: wire.offset.get(),
        token: wire.token.get(),
        len_bytes: wire.length.get(),
    };
    descriptors.iter().map(one).collect()
}

impl Service for Behind<'_> {
    type Connection = ConnectionId;

    fn connection_opened(&mut self, origin: Origin, now: Monotonic) -> Option<ConnectionId> {
        let transport = match origin.carrier {
            Carrier::Tcp => Way::Tcp,
            Carrier::SmbDirect => Way::SmbDirect,
        };
        let Origin { peer, local, .. } = origin;
        self.0.connection_opened(ConnectionInfo { peer, local, transport }, now)
    }
    fn connection_closed(&mut self, connection: ConnectionId, now: Monotonic) {
        self.0.connection_closed(connection, now);
    }
    fn wants_messages(&self, connection: ConnectionId) -> bool {
        self.0.wants_messages(connection)
    }
    fn handle_message(&mut self, connection: ConnectionId, message: Buf, now: Monotonic) {
        self.0.handle_message(connection, message, now);
    }
    fn take_remote_read(&mut self, connection: ConnectionId, token: u64, data: Option<Buf>, now: Monotonic) {
        self.0.remote_read(connection, token, data, now);
    }
    fn take_transmitters(&mut self, out: &mut Vec<ConnectionId>) {
        self.0.take_transmitters(out);
    }
    fn take_closing(&mut self, out: &mut Vec<ConnectionId>) {
        self.0.take_closing(out);
    }
    fn poll_message(&mut self, connection: ConnectionId) -> Option<Payload> {
        self.0.poll_transmit(connection)
    }
    fn poll_outgoing(&mut self, connection: ConnectionId) -> Option<Outgoing> {
        Some(match self.0.poll_outgoing(connection)? {
            smb_server::Outgoing::Message { payload, invalidate } => {
                Outgoing::Message { payload, invalidate }
            }
            smb_server::Outgoing::RemoteWrite { payload, descriptors } => {
                Outgoing::RemoteWrite { payload, descriptors: describe(&descriptors) }
            }
            smb_server::Outgoing::RemoteRead { token, len_bytes, descriptors } => {
                Outgoing::RemoteRead { token, len_bytes, descriptors: describe(&descriptors) }
            }
        })
    }
    fn set_unsent(&mut self, connection: ConnectionId, bytes: usize) -> bool {
        self.0.set_unsent(connection, bytes)
    }
    fn message_bytes_max(&self, connection: ConnectionId) -> usize {
        self.0.message_bytes_max(connection)
    }
    fn user(&self, connection: ConnectionId) -> Option<&str> {
        self.0.user(connection)
    }
}

fn random() -> smb_server::RandomSource {
    Box::new(|bytes: &mut [u8]| getrandom::fill(bytes).unwrap())
}

impl Serving {
    fn start(driver: &Driver, space: Space, accounts: NodeAccounts) -> Self {
        let listen = || Vec::from(PATHS.map(|ip| TcpListener::bind((ip, 0)).unwrap()));
        let listeners = listen();
        let addresses: Vec<SocketAddr> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        let tcp = Tcp::new(driver, listeners, TcpLimits::default()).unwrap();
        let options = IwarpOptions {
            crc: CrcPolicy::On,
            receive_shape: Some(|first| {
                let smbdirect::TransferShape { len_bytes, payload_at } = smbdirect::transfer_shape(first)?;
                Some(Shape { len_bytes, aligned_at: payload_at })
            }),
            tells_sent_together: true,
            ..IwarpOptions::default()
        };
        let mut iwarp = IwarpProvider::new(driver, options, rdma::random_names());
        let rdma = listen().into_iter().map(|listener| iwarp.listen(listener).unwrap()).collect();
        let direct = SmbDirect::new(
            Providers::new(iwarp, None),
            smbdirect::Config::default(),
            SmbDirectLimits::default(),
        );
        let directory = WithNodes { inner: People, nodes: accounts.clone() };
        let config = Config::new([9; 16], "NODE");
        let mut server = Server::new(config, directory, random(), monotonic_now(), wall_clock());
        let exports = Exports::new(space);
        server.add_volume(VOLUME, Served::Bus(exports.clone()));
        server.add_volume(VolumeId::from_bytes([1; 16]), Served::Volume(NoFiles));
        let (address, clients) = (addresses[0], Clients::new(tcp, direct));
        Self { server, clients, address, addresses, rdma, exports, accounts }
    }

    fn turn(&mut self, now: Monotonic) -> bool {
        let mut worked = self.clients.hear(&mut Behind(&mut self.server), now);
        worked |= self.server.poll(now);
        self.clients.transmit(&mut Behind(&mut self.server));
        worked |= self.clients.put_on_wire(now);
        if self.server.next_timeout().is_some_and(|at| at <= now) {
            self.server.handle_timeout(now);
        }
        worked
    }
}

/// The pool of one node, with its own disks.
fn space_of(state: &MemoryState, node: NodeId, stores: &BTreeMap<DiskId, FakeStore>) -> Space {
    let config = SpaceConfig { node: Some(node), ..SpaceConfig::default() };
    let space = LocalSpace::new(state.client(), config, SLAB, 0, monotonic_now());
    for (disk, store) in stores {
        space.attach_disk(*disk, store.clone(), domain(node)).unwrap();
    }
    space
}

pub fn domain(node: NodeId) -> FaultDomain {
    FaultDomain { node: format!("node-{node}"), ..FaultDomain::default() }
}

/// Transport of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    Tcp,
    Encrypted,
    Rdma,
}

pub struct World {
    pub driver: Driver,
    /// The state of the cluster, which every node reaches.
    pub state: MemoryState,
    pub nodes: Vec<Node>,
    pub certificates: TestCluster,
    carried: Carried,
    /// Number of addresses by which nodes know each other.
    paths: usize,
    last_id: u64,
}

impl World {
    /// Nodes 1 to `count`, of which node n has disk n.
    pub fn new(count: u8, carried: Carried) -> Self {
        Self::with_options(count, carried, |_| ())
    }

    pub fn with_options(count: u8, carried: Carried, set: impl Fn(&mut RemoteOptions)) -> Self {
        let driver = Driver::new(DriverChoice::Automatic).unwrap();
        let state = MemoryState::new();
        write_record(&state);
        let now_unix_s = (wall_clock().0 - FileTime::UNIX_EPOCH.0) / 10_000_000;
        let certificates = TestCluster::new(count.into(), now_unix_s);
        let nodes = (1..=count).map(|number| {
            let accounts = accounts_of(&certificates, NodeId(number.into()), carried == Carried::Encrypted);
            let store = FakeStore::new(SLAB, 64);
            let stores = BTreeMap::from([(disk(number), store)]);
            let space = space_of(&state, NodeId(number.into()), &stores);
            let mut options = RemoteOptions {
                nodes: accounts.clone(),
                encrypt: carried == Carried::Encrypted,
                pauses: (Duration::from_millis(10), Duration::from_millis(100)),
                ..RemoteOptions::default()
            };
            set(&mut options);
            let remote = Remote::new(&driver, options, monotonic_now()).unwrap();
            Node {
                id: NodeId(number.into()),
                serving: Some(Serving::start(&driver, space.clone(), accounts)),
                space,
                stores,
                port: remote.port(),
                remote,
                events: Vec::new(),
            }
        });
        let nodes = nodes.collect();
        let (driver, state) = (driver.clone(), state.clone());
        let mut world = Self { nodes, certificates, driver, state, carried, paths: 1, last_id: 0 };
        world.introduce();
        world
    }

    /// Every node knows the others by two addresses from now on, and has a channel to each of them.
    pub fn double_paths(&mut self) {
        self.paths = PATHS.len();
        self.introduce();
        for at in 0..self.nodes.len() {
            self.until_channels(at, PATHS.len());
        }
    }

    /// Waits until node `at` has `count` channels to each of the others.
    pub fn until_channels(&mut self, at: usize, count: usize) {
        self.until("all channels are there", |world| {
            let ready = |peer: &PeerStatus| peer.channels.iter().filter(|one| one.is_ready).count();
            world.nodes[at].remote.peers().iter().all(|peer| ready(peer) == count)
        });
    }

    /// Tells every node the addresses of the others.
    pub fn introduce(&mut self) {
        let places: Vec<_> = self
            .nodes
            .iter()
            .map(|node| {
                let of = |all: &[SocketAddr]| all[..self.paths].to_vec();
                let serving = node.serving.as_ref();
                (node.id, serving.map(|serving| (of(&serving.addresses), of(&serving.rdma))))
            })
            .collect();
        for node in &self.nodes {
            let others = places.iter().filter(|(id, _)| *id != node.id);
            let peers = others.filter_map(|(id, place)| {
                let (addresses, rdma) = place.clone()?;
                Some(Peer {
                    node: *id,
                    name: format!("node-{id}"),
                    addresses: if self.carried == Carried::Rdma { vec![] } else { addresses },
                    rdma: if self.carried == Carried::Rdma { rdma } else { vec![] },
                })
            });
            node.remote.set_peers(peers.collect());
            let disks = self.nodes.iter().filter(|other| other.id != node.id);
            node.remote.set_disks(
                disks.flat_map(|other| other.stores.keys().map(|disk| (*disk, other.id))).collect(),
            );
        }
    }

    /// Gives a node one more disk.
    pub fn add_disk(&mut self, at: usize, disk: DiskId) {
        let (node, store) = (&mut self.nodes[at], FakeStore::new(SLAB, 64));
        node.space.attach_disk(disk, store.clone(), domain(node.id)).unwrap();
        node.stores.insert(disk, store);
        self.introduce();
    }

    /// One turn of the loop.
    pub fn turn(&mut self) {
        for _ in 0..100 {
            let now = monotonic_now();
            let mut worked = false;
            for node in &mut self.nodes {
                // A process that is dead does nothing at all.
                let Some(serving) = &mut node.serving else { continue };
                node.space.handle_timeout(now);
                worked |= node.remote.poll(now);
                worked |= node.space.poll();
                worked |= serving.turn(now);
                while let Some(event) = node.remote.poll_event() {
                    node.events.push(event);
                }
            }
            if !worked {
                break;
            }
        }
        self.driver.wait(Some(Duration::from_millis(2))).unwrap();
    }

    /// All of this many answers to the first node, in the order in which they came.
    pub fn answers(&mut self, count: usize) -> Vec<Response> {
        let mut answers: Vec<Response> = Vec::new();
        self.until("all are answered", |world| {
            world.nodes[0].port.poll(&mut answers);
            answers.len() >= count
        });
        answers
    }

    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            self.turn();
        }
    }

    pub fn pass(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn();
        }
    }

    pub fn state(&self, at: usize, of: u32) -> PeerState {
        let peers = self.nodes[at].remote.peers();
        peers.iter().find(|peer| peer.node == NodeId(of)).map_or(PeerState::Waiting, |peer| peer.state)
    }

    /// The node's pool reaches the disks of the others by the bus from now on.
    pub fn join_space(&mut self, at: usize) {
        let node = &self.nodes[at];
        node.space.set_remote(Box::new(node.remote.port()));
        for other in self.nodes.iter().filter(|other| other.id != node.id) {
            for disk in other.stores.keys() {
                node.space.attach_remote_disk(*disk, (64, 64), domain(other.id));
            }
        }
    }

    /// Node `at` reaches all the others.
    pub fn reach_peers(&mut self, at: usize) {
        self.until("the peers are reached", |world| {
            world.nodes[at].remote.peers().iter().all(|peer| peer.state == PeerState::Ready)
        });
    }

    pub fn send(
        &mut self,
        at: usize,
        to: DiskId,
        session: u64,
        epoch: u64,
        operation: ReplicaOperation,
    ) -> RequestId {
        self.send_as(Priority::Client, at, to, session, epoch, operation)
    }

    pub fn send_as(
        &mut self,
        priority: Priority,
        at: usize,
        to: DiskId,
        session: u64,
        epoch: u64,
        operation: ReplicaOperation,
    ) -> RequestId {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        let request = Request {
            volume: VOLUME_OF_TESTS,
            session: SessionId(session),
            id,
            epoch: Epoch(epoch),
            priority,
            operation,
        };
        self.nodes[at].port.send(to, request);
        id
    }

    /// Sends a request and waits for the answer.
    pub fn call(
        &mut self,
        at: usize,
        to: DiskId,
        session: u64,
        epoch: u64,
        operation: ReplicaOperation,
    ) -> Result<Answer, BusError> {
        let id = self.send(at, to, session, epoch, operation);
        self.answer(at, id)
    }

    pub fn answer(&mut self, at: usize, id: RequestId) -> Result<Answer, BusError> {
        let mut answers = Vec::new();
        let mut found = None;
        self.until("an answer", |world| {
            world.nodes[at].port.poll(&mut answers);
            found = answers.iter().position(|answer: &Response| answer.id == id);
            found.is_some()
        });
        answers.swap_remove(found.unwrap()).result
    }

    pub fn open(&mut self, at: usize, to: DiskId, session: u64, epoch: u64) -> Result<Answer, BusError> {
        self.call(at, to, session, epoch, ReplicaOperation::Open { least: Epoch(0), settled: Epoch(0) })
    }

    /// Kills the node's process: its sockets are closed, its disks keep their contents.
    pub fn kill(&mut self, at: usize) {
        self.nodes[at].serving = None;
    }

    /// Starts the node again, at other addresses.
    pub fn restart(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let accounts = accounts_of(&self.certificates, node.id, self.carried == Carried::Encrypted);
        for store in node.stores.values() {
            store.crash(|| false);
        }
        node.space = space_of(&self.state, node.id, &node.stores);
        node.serving = Some(Serving::start(&self.driver, node.space.clone(), accounts));
        self.introduce();
    }
}

pub const VOLUME_OF_TESTS: VolumeId = VolumeId::from_bytes([7; 16]);
pub const OTHER_VOLUME: VolumeId = VolumeId::from_bytes([8; 16]);

/// The record of the tests' volume has given all epochs that tests name.
fn write_record(state: &MemoryState) {
    for volume in [VOLUME_OF_TESTS, OTHER_VOLUME] {
        let (pool, disks) = (PoolId::from_bytes([1; 16]), vec![disk(1), disk(2)]);
        let thin = Provisioning::Thin;
        let mut record = VolumeRecord::new(volume, pool, "data", Resiliency::TwoWay, 1 << 30, thin, disks, 0);
        record.epoch = EPOCH_OF_TESTS;
        state.write(&record, 0).unwrap();
    }
}

/// The epoch of the record of the tests' volume.
pub const EPOCH_OF_TESTS: Epoch = Epoch(1000);

/// The record of node `node`, at this address of TCP.
pub fn peer_at(node: u32, address: SocketAddr) -> Peer {
    Peer { node: NodeId(node), name: format!("node-{node}"), addresses: vec![address], rdma: Vec::new() }
}
