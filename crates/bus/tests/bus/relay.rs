//! A party between two nodes, or at the address of one, gains nothing by their logons; and
//! things that a genuine node must not do.

use crate::operations::write;
use crate::world::{Carried, EPOCH_OF_TESTS, World, accounts_of, disk, peer_at, wall_clock};
use bus::{PeerState, SHARE};
use records::{Typed, VolumeRecord};
use smb::auth::{
    Acceptor, AccountLookup, AuthStep, DeniedReason, Identity, InitiateError, Initiator, InitiatorStep,
    NodeCredentials, NodeRefused, NtHash, ServerNames,
};
use smb::crypto::PreauthHash;
use smb::wire::{CreateRequestBody, FILE_OPEN, Header, HeaderFlags, U32};
use smb_client::{Connection, Event, Options, Request, Signing, Token};
use smb_server::{ConnectionId, ConnectionInfo, Transport};
use space::message::{BusError, ReplicaOperation};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::api::StoreError;
use sys::{Buf, monotonic_now};
use trust::node_trust::fixture::TestCluster;
use types::{Epoch, FileTime, NodeId, NtStatus};

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

struct Nobody;

impl AccountLookup for Nobody {
    fn nt_hash(&self, _: &str, _: &str) -> Option<NtHash> {
        None
    }
}

fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).unwrap();
}

fn unix_s() -> u64 {
    (wall_clock().0 - FileTime::UNIX_EPOCH.0) / 10_000_000
}

/// Messages of one connection: its hash before the logon, and behind each of the logon's messages.
struct Line([PreauthHash; 4]);

fn line(salt: u8) -> Line {
    let mut hash = PreauthHash::default();
    Line([0, 1, 2, 3].map(|number| {
        hash.update(&[salt, number]);
        hash
    }))
}

fn client_of(cluster: &TestCluster, own: NodeId, peer: NodeId) -> Initiator {
    let prover = accounts_of(cluster, own, false).prover().unwrap();
    Initiator::of_node(NodeCredentials { prover, peer }, &mut random).unwrap()
}

fn server_of(cluster: &TestCluster, own: NodeId) -> Acceptor {
    let prover = accounts_of(cluster, own, false).prover().unwrap();
    Acceptor::new(ServerNames::standalone("node")).with_nodes(prover)
}

fn hello_at(server: &mut Acceptor, token: &[u8], line: &Line) -> Result<Vec<u8>, DeniedReason> {
    server.hear(line.0[0], line.0[1]);
    match server.step(token, &Nobody, wall_clock(), &mut random) {
        AuthStep::Continue(answer) => Ok(answer),
        AuthStep::Denied(denied) => Err(denied.reason),
        AuthStep::Done(accepted) => panic!("{accepted:?}"),
    }
}

fn answer_at(client: &mut Initiator, token: &[u8], line: &Line) -> Result<Vec<u8>, InitiateError> {
    client.hear(line.0[1], line.0[2]);
    match client.step(token, wall_clock(), &mut random)? {
        InitiatorStep::Send(proof) => Ok(proof),
        InitiatorStep::Done(_) => panic!("the server's answer ends nothing"),
    }
}

fn proof_at(server: &mut Acceptor, token: &[u8], line: &Line) -> Result<[u8; 16], DeniedReason> {
    server.hear(line.0[2], line.0[3]);
    match server.step(token, &Nobody, wall_clock(), &mut random) {
        AuthStep::Done(accepted) => {
            assert_eq!(accepted.identity, Identity::Node(ONE));
            Ok(*accepted.session_key)
        }
        AuthStep::Denied(denied) => Err(denied.reason),
        AuthStep::Continue(_) => panic!("a proof ends the logon"),
    }
}

#[test]
fn a_logon_is_good_at_the_node_that_was_meant_and_on_its_own_connection_only() {
    let (cluster, here, elsewhere) = (TestCluster::new(3, unix_s()), line(1), line(2));
    let mut client = client_of(&cluster, ONE, TWO);
    let hello = client.first_token().to_vec();
    let at = |node| hello_at(&mut server_of(&cluster, node), &hello, &here);
    assert_eq!(at(THREE).unwrap_err(), DeniedReason::OtherNode, "it is handed on to another node");
    assert_eq!(at(ONE).unwrap_err(), DeniedReason::OtherNode, "it is sent back");
    let own = accounts_of(&cluster, ONE, false).prover().unwrap();
    assert!(Initiator::of_node(NodeCredentials { prover: own, peer: ONE }, &mut random).is_err());

    // Both tokens are handed on between two connections: neither end takes the other's word.
    let mut server = server_of(&cluster, TWO);
    let answer = hello_at(&mut server, &hello, &elsewhere).unwrap();
    let forged = InitiateError::NotTheNode(NodeRefused::BadSignature);
    assert_eq!(answer_at(&mut client, &answer, &here).unwrap_err(), forged);
    let mut client = client_of(&cluster, ONE, TWO);
    let mut server = server_of(&cluster, TWO);
    let answer = hello_at(&mut server, client.first_token(), &here).unwrap();
    let proof = answer_at(&mut client, &answer, &here).unwrap();
    let denied = proof_at(&mut server, &proof, &elsewhere).unwrap_err();
    assert_eq!(denied, DeniedReason::Node(NodeRefused::BadSignature));

    let mut client = client_of(&cluster, ONE, TWO);
    let mut server = server_of(&cluster, TWO);
    let answer = hello_at(&mut server, client.first_token(), &here).unwrap();
    let proof = answer_at(&mut client, &answer, &here).unwrap();
    let key = proof_at(&mut server, &proof, &here).unwrap();
    assert_eq!(**client.session_key().unwrap(), key, "both have the key");
}

#[test]
fn an_answer_is_nobody_elses_and_the_roles_are_not_exchanged() {
    let (mut cluster, here) = (TestCluster::new(3, unix_s()), line(1));
    // A node that is none of those meant answers in its own name, with all that it has.
    let mut client = client_of(&cluster, ONE, THREE);
    let answer = hello_at(&mut server_of(&cluster, THREE), client.first_token(), &here).unwrap();
    let mut meant_for_two = client_of(&cluster, ONE, TWO);
    let refused = answer_at(&mut meant_for_two, &answer, &here).unwrap_err();
    assert_eq!(refused, InitiateError::NotTheNode(NodeRefused::NotItsCertificate));
    // A server's signature is no proof of a client.
    let mut server = server_of(&cluster, TWO);
    let hello = client_of(&cluster, ONE, TWO).first_token().to_vec();
    hello_at(&mut server, &hello, &here).unwrap();
    assert!(proof_at(&mut server, &answer, &here).is_err());
    // Nobody accepts any proof of a removed node.
    let mut removed = client_of(&cluster, ONE, TWO);
    cluster.remove(ONE);
    let mut server = server_of(&cluster, TWO);
    let answer = hello_at(&mut server, removed.first_token(), &here).unwrap();
    let proof = answer_at(&mut removed, &answer, &here).unwrap();
    let denied = proof_at(&mut server, &proof, &here).unwrap_err();
    assert_eq!(denied, DeniedReason::Node(NodeRefused::Unknown));
    assert!(answer_at(&mut client, &[], &here).is_err());
}

#[test]
fn a_dialect_without_a_hash_of_what_was_said_carries_no_nodes_logon() {
    let cluster = TestCluster::new(2, unix_s());
    let client = client_of(&cluster, ONE, TWO);
    let mut server = server_of(&cluster, TWO);
    // As with 3.0.2, of which the server has no hash.
    let AuthStep::Denied(denied) = server.step(client.first_token(), &Nobody, wall_clock(), &mut random)
    else {
        panic!("the server goes on with it");
    };
    assert_eq!(denied.reason, DeniedReason::NoPreauthIntegrity);
}

/// A relay's address, and bytes of the first message that it exchanges on the way.
#[derive(Clone)]
struct Relay {
    target: Arc<Mutex<SocketAddr>>,
    exchanged: Option<([u8; 2], [u8; 2])>,
}

fn relay(target: SocketAddr, exchanged: Option<([u8; 2], [u8; 2])>) -> (SocketAddr, Relay) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let relay = Relay { target: Arc::new(Mutex::new(target)), exchanged };
    let between = relay.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(*between.target.lock().unwrap()))
            else {
                continue;
            };
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let exchanged = between.exchanged;
            std::thread::spawn(move || carry(from, to, exchanged));
            std::thread::spawn(move || carry(server, client, None));
        }
    });
    (address, relay)
}

fn carry(mut from: TcpStream, mut to: TcpStream, mut exchanged: Option<([u8; 2], [u8; 2])>) {
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some((before, after)) = exchanged.take() {
            let at = bytes[..count].windows(2).rposition(|two| two == before);
            at.into_iter().for_each(|at| bytes[at..at + 2].copy_from_slice(&after));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_listener_at_a_nodes_address_gets_into_no_node() {
    let mut world = World::new(3, Carried::Tcp);
    let address = |world: &World, at: usize| world.nodes[at].serving.as_ref().unwrap().address;
    let (between, relay) = relay(address(&world, 2), None);
    world.nodes[0].remote.set_peers(vec![peer_at(2, between)]);
    for at in [2, 0] {
        *relay.target.lock().unwrap() = address(&world, at);
        world.pass(Duration::from_millis(300));
        assert_ne!(world.state(0, 2), PeerState::Ready);
        let sessions = world.nodes[at].serving.as_mut().unwrap().server.sessions(monotonic_now());
        assert!(!sessions.iter().any(|session| session.user == "node-1$"), "{sessions:?}");
    }
    // Handed on as they are, the logon is one with the node that is meant.
    *relay.target.lock().unwrap() = address(&world, 1);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
}

#[test]
fn a_dialect_that_was_changed_on_the_way_ends_the_logon() {
    let mut world = World::new(2, Carried::Tcp);
    let server = world.nodes[1].serving.as_ref().unwrap().address;
    let (between, _) = relay(server, Some((0x0311_u16.to_le_bytes(), 0x0302_u16.to_le_bytes())));
    world.nodes[0].remote.set_peers(vec![peer_at(2, between)]);
    world.pass(Duration::from_millis(300));
    assert_ne!(world.state(0, 2), PeerState::Ready);
    let sessions = world.nodes[1].serving.as_mut().unwrap().server.sessions(monotonic_now());
    assert!(sessions.is_empty(), "{sessions:?}");
}

/// A client and node 2's server without a network, so that a test between them can do with messages as
/// it likes.
struct Between {
    client: Connection,
    connection: ConnectionId,
}

impl Between {
    fn new(world: &mut World) -> Self {
        let peer = "192.0.2.1:40000".parse().unwrap();
        let info = ConnectionInfo { peer, local: peer, transport: Transport::Tcp };
        let prover = accounts_of(&world.certificates, ONE, false).prover().unwrap();
        let credentials = NodeCredentials { prover, peer: TWO };
        // The client demands nothing of the server.
        let options = Options { signing: Signing::IfRequired, ..Options::default() };
        let random = Box::new(random);
        let client = Connection::of_node(options, credentials, "node", wall_clock(), random, None).unwrap();
        let server = &mut world.nodes[1].serving.as_mut().unwrap().server;
        let connection = server.connection_opened(info, monotonic_now()).unwrap();
        let mut between = Self { client, connection };
        let messages = between.sent();
        messages.into_iter().for_each(|message| between.deliver(world, message));
        assert!(between.client.is_ready());
        between
    }

    /// The client's pending messages, without the frames of TCP.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(outgoing) = self.client.poll_transmit() {
            let mut bytes = outgoing.head[4..].to_vec();
            outgoing.payload.parts().iter().for_each(|part| bytes.extend_from_slice(part));
            all.push(bytes);
        }
        all
    }

    /// Gives the server a message, and the client the answers, until both are silent.
    fn deliver(&mut self, world: &mut World, message: Vec<u8>) {
        let mut messages = vec![message];
        while let Some(message) = messages.pop() {
            for answer in self.answers(world, &message) {
                self.client.handle_message(Buf::from(&answer[..])).unwrap();
            }
            messages.append(&mut self.sent());
        }
    }

    fn answers(&mut self, world: &mut World, message: &[u8]) -> Vec<Vec<u8>> {
        let server = &mut world.nodes[1].serving.as_mut().unwrap().server;
        server.handle_message(self.connection, Buf::from(message), monotonic_now());
        server.poll(monotonic_now());
        let mut all = Vec::new();
        while let Some(payload) = server.poll_transmit(self.connection) {
            all.push(payload.contiguous().to_vec());
        }
        all
    }
}

#[test]
fn a_node_is_answered_only_what_it_signed() {
    let mut world = World::new(2, Carried::Tcp);
    let mut between = Between::new(&mut world);
    between.client.submit(Token(1), Request::tree_connect(&format!(r"\\node\{SHARE}")));
    let message = between.sent().remove(0);
    between.deliver(&mut world, message);
    let mut tree = None;
    while let Some(event) = between.client.poll_event() {
        if let Event::Completed { reply, .. } = event {
            tree = Some(reply.tree_id());
        }
    }
    let body = CreateRequestBody {
        desired_access: U32::new(3),
        share_access: U32::new(7),
        create_disposition: U32::new(FILE_OPEN),
        ..Default::default()
    };
    between.client.submit(Token(2), Request::create(tree.unwrap(), "", body, &[]));
    let mut message = between.sent().remove(0);
    let header = Header::in_place(&mut message).unwrap();
    assert!(header.flags().contains(HeaderFlags::SIGNED), "our client signs");
    header.flags = U32::new((header.flags() & !HeaderFlags::SIGNED).bits());
    header.signature = [0; 16];
    let answers = between.answers(&mut world, &message);
    let status = Header::parse(&answers[0]).unwrap().status();
    assert_eq!(status, NtStatus::ACCESS_DENIED, "the server demands it, whatever the client asked for");
}

#[test]
fn a_node_names_no_epoch_that_the_volumes_record_did_not_give() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    let refused = |result: Result<_, BusError>| {
        let refused = matches!(&result, Err(BusError::Store(StoreError::Invalid(_))));
        assert!(refused, "{:?}", result.map(|_: space::message::Answer| "it was taken"));
    };
    for epoch in [4_294_967_000, EPOCH_OF_TESTS.0 + 1, u64::MAX] {
        refused(world.open(0, disk(2), 1, epoch));
    }
    world.open(0, disk(2), 2, 5).unwrap();
    for epoch in [4_294_967_000, EPOCH_OF_TESTS.0 + 1, u64::MAX] {
        refused(world.call(0, disk(2), 2, epoch, ReplicaOperation::Promise));
        refused(world.call(0, disk(2), 2, epoch, write(0, 1, 9)));
    }
    assert!(world.call(0, disk(2), 2, 5, ReplicaOperation::Promise).is_ok(), "the session goes on");
    world.open(0, disk(2), 3, 6).unwrap();
    let id = crate::world::VOLUME_OF_TESTS.to_string();
    let found = world.state.read::<VolumeRecord>(&id).unwrap().unwrap();
    // The record has changed meanwhile, which the node reads before it refuses anybody; and it names the
    // owner.
    let next = VolumeRecord { epoch: Epoch(EPOCH_OF_TESTS.0 + 1), owner: Some(TWO), ..found.value };
    let revision = world.state.write(&next, found.revision).unwrap();
    refused(world.open(0, disk(2), 4, next.epoch.0));
    world.open(0, disk(2), 5, EPOCH_OF_TESTS.0).unwrap();
    world.state.write(&VolumeRecord { owner: Some(ONE), ..next.clone() }, revision).unwrap();
    world.open(0, disk(2), 6, next.epoch.0).unwrap();
}
