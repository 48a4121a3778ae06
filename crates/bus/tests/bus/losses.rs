//! Lost connections, dead nodes, and their requests under way.

use crate::operations::write;
use crate::world::{Carried, World, disk, peer_at};
use bus::{BusEvent, PeerState};
use space::fake_store::FakeFault;
use space::message::{BusError, ReplicaOperation, Response, Transport};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::{ChunkIndex, NodeId};

fn lose_connection(carried: Carried) {
    let mut world = World::new(2, carried);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    world.call(0, disk(2), 1, 5, ReplicaOperation::Allocate { chunk: ChunkIndex(0), append: false }).unwrap();
    // Requests that are on their way are answered when the connection is lost, and none twice.
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    let ids: Vec<_> = (0..50).map(|at| world.send(0, disk(2), 1, 5, write(at, 1, 7))).collect();
    world.pass(Duration::from_millis(50));
    world.nodes[0].remote.kill(NodeId(2));
    let mut answers: Vec<Response> = Vec::new();
    world.until("all are answered", |world| {
        Transport::poll(&mut world.nodes[0].port, &mut answers);
        answers.len() >= ids.len()
    });
    assert_eq!(answers.iter().map(|answer| answer.id).collect::<Vec<_>>(), ids);
    assert!(answers.iter().all(|answer| matches!(answer.result, Err(BusError::Unreachable))));
    assert!(world.nodes[0].events.iter().any(|event| matches!(event, BusEvent::PeerLost { .. })));
    // The connection comes back by itself; the old session is over on this end.
    world.reach_peers(0);
    assert_eq!(world.call(0, disk(2), 1, 5, ReplicaOperation::Promise).unwrap_err(), BusError::NoSession);
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::None);
    assert!(world.open(0, disk(2), 2, 5).is_ok());
    world.until("the server has forgotten the old session", |world| {
        world.nodes[1].serving.as_ref().unwrap().exports.session_count() == 1
    });
    assert_eq!(world.nodes[0].remote.peers()[0].counters.connections, 2);
}

#[test]
fn a_lost_connection_answers_what_was_asked_and_comes_back() {
    lose_connection(Carried::Tcp);
}

#[test]
fn a_lost_connection_of_smb_direct_does_so_too() {
    lose_connection(Carried::Rdma);
}

#[test]
fn a_node_that_dies_is_unreachable_at_once_and_found_again_where_it_comes_back() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    world.kill(1);
    let start = Instant::now();
    world.until("the loss is noticed", |world| world.state(0, 2) != PeerState::Ready);
    assert!(start.elapsed() < Duration::from_secs(1), "a reset connection is noticed at once");
    assert_eq!(world.call(0, disk(2), 1, 5, ReplicaOperation::Promise).unwrap_err(), BusError::Unreachable);
    world.restart(1);
    world.reach_peers(0);
    assert!(world.open(0, disk(2), 2, 5).is_ok());
}

#[test]
fn a_silent_peer_is_given_up_in_bounded_time() {
    let mut world =
        World::with_options(2, Carried::Tcp, |options| options.silence = Duration::from_millis(300));
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    let silent = world.nodes[1].serving.take();
    let start = Instant::now();
    let asked = world.send(0, disk(2), 1, 5, ReplicaOperation::Promise);
    assert_eq!(world.answer(0, asked).unwrap_err(), BusError::Unreachable);
    assert!(start.elapsed() < Duration::from_secs(2), "after {:?}", start.elapsed());
    world.nodes[1].serving = silent;
    world.reach_peers(0);
}

/// Leads to `target`; once `loses_large` is set, nothing more comes back behind a large answer, as TCP delivers nothing behind a packet that is lost.
fn narrow_way_to(target: SocketAddr, loses_large: Arc<AtomicBool>) -> SocketAddr {
    const LARGE: usize = 700;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let carry = |mut from: TcpStream, mut to: TcpStream, loses_large: Option<Arc<AtomicBool>>| {
        let (mut bytes, mut is_blocked) = (vec![0; 65_536], false);
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            let loses = loses_large.as_ref().is_some_and(|loses| loses.load(Ordering::Relaxed));
            is_blocked |= loses && len > LARGE;
            if !is_blocked && to.write_all(&bytes[..len]).is_err() {
                return;
            }
        }
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(target) else { continue };
            let (from, to, loses) =
                (client.try_clone().unwrap(), server.try_clone().unwrap(), loses_large.clone());
            std::thread::spawn(move || carry(from, to, None));
            std::thread::spawn(move || carry(server, client, Some(loses)));
        }
    });
    address
}

#[test]
fn a_peer_whose_large_answers_are_lost_is_given_up_although_nothing_large_is_asked_of_it() {
    let mut world = World::with_options(2, Carried::Tcp, |options| {
        options.silence = Duration::from_millis(200);
        options.dial_timeout = Duration::from_millis(200);
        options.status_interval = Duration::from_millis(20);
        options.proof_interval = Duration::from_millis(50);
    });
    let loses_large = Arc::new(AtomicBool::new(false));
    let address = narrow_way_to(world.nodes[1].serving.as_ref().unwrap().address, loses_large.clone());
    world.nodes[0].remote.set_peers(vec![peer_at(2, address)]);
    world.reach_peers(0);
    let connections = world.nodes[0].remote.peers()[0].counters.connections;
    world.pass(Duration::from_millis(200));
    let peers = world.nodes[0].remote.peers();
    let found = (peers[0].state, peers[0].counters.connections);
    assert_eq!(found, (PeerState::Ready, connections), "proofs disturb nothing");
    loses_large.store(true, Ordering::Relaxed);
    world.until("it is given up", |world| world.state(0, 2) != PeerState::Ready);
    world.pass(Duration::from_millis(300));
    let found = &world.nodes[0].remote.peers()[0];
    assert!(found.state != PeerState::Ready && found.unreached_since.is_some(), "{found:?}");
    loses_large.store(false, Ordering::Relaxed);
    world.reach_peers(0);
}

#[test]
fn a_node_that_is_told_dead_is_given_up_without_waiting() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    let asked = world.send(0, disk(2), 1, 5, ReplicaOperation::Promise);
    world.nodes[0].remote.set_alive(NodeId(2), false);
    let mut answers = Vec::new();
    Transport::poll(&mut world.nodes[0].port, &mut answers);
    assert_eq!(answers.iter().map(|answer| answer.id).collect::<Vec<_>>(), [asked]);
}

#[test]
fn a_node_that_leaves_the_cluster_is_out_at_once() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    world.reach_peers(1);
    world.open(0, disk(2), 1, 5).unwrap();
    // Node 1 is removed: node 2 knows only itself any more.
    world.certificates.remove(NodeId(1));
    let trust = world.certificates.trust(NodeId(2));
    let serving = world.nodes[1].serving.as_mut().unwrap();
    serving.accounts.set(trust, false);
    serving.server.directory_changed(sys::monotonic_now());
    assert_eq!(serving.exports.session_count(), 0, "at the return");
    world.until("node 1 is out", |world| world.state(0, 2) != PeerState::Ready);
    world.pass(Duration::from_millis(500));
    assert_ne!(world.state(0, 2), PeerState::Ready);
    assert_eq!(world.open(0, disk(2), 2, 6).unwrap_err(), BusError::Unreachable);
    let trouble = world.nodes[0].remote.peers()[0].trouble.clone().unwrap();
    assert!(trouble.contains("LOGON_FAILURE"), "{trouble}");
}

#[test]
fn a_peer_that_speaks_rubbish_or_nothing_is_tried_again_and_harms_nobody() {
    let mut world =
        World::with_options(3, Carried::Tcp, |options| options.dial_timeout = Duration::from_millis(200));
    world.reach_peers(0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let rubbish = std::thread::spawn(move || {
        use std::io::Write;
        let mut kept = Vec::new();
        for (number, stream) in listener.incoming().take(6).enumerate() {
            let mut stream = stream.unwrap();
            if number % 2 == 0 {
                let _ = stream.write_all(&[0, 0, 0, 200]);
                let _ = stream.write_all(&[number as u8; 200]);
            }
            kept.push(stream);
        }
    });
    let peers = world.nodes[0].remote.peers();
    assert_eq!(peers.len(), 2);
    let good = world.nodes[2].serving.as_ref().unwrap().address;
    world.nodes[0].remote.set_peers(vec![peer_at(2, address), peer_at(3, good)]);
    world.until("it is tried six times", |_| rubbish.is_finished());
    rubbish.join().unwrap();
    assert_eq!(world.state(0, 3), PeerState::Ready, "the good peer is not disturbed");
    assert_eq!(world.nodes[0].remote.peers()[1].counters.connections, 1);
    assert!(world.nodes[0].remote.peers()[0].trouble.is_some());
}

/// Address of a network that carries so many bytes of each connection, each way, and loses later ones.
fn lossy(target: SocketAddr, carried: usize) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let carry = move |mut from: TcpStream, mut to: TcpStream| {
        let (mut left, mut bytes) = (carried, [0; 4096]);
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            if len > left || to.write_all(&bytes[..len]).is_err() {
                left = 0;
            } else {
                left -= len;
            }
        }
    };
    std::thread::spawn(move || {
        for here in listener.incoming().flatten() {
            let Ok(there) = TcpStream::connect(target) else { return };
            let (back, forth) = (there.try_clone().unwrap(), here.try_clone().unwrap());
            std::thread::spawn(move || carry(here, there));
            std::thread::spawn(move || carry(back, forth));
        }
    });
    address
}

#[test]
fn a_network_that_loses_everything_large_carries_no_requests_until_it_is_mended() {
    let mut world =
        World::with_options(2, Carried::Tcp, |options| options.dial_timeout = Duration::from_secs(1));
    let there = world.nodes[1].serving.as_ref().unwrap().address;
    world.nodes[0].remote.set_peers(vec![peer_at(2, lossy(there, 32 << 10))]);
    world.until("it is said why", |world| {
        let peer = world.nodes[0].remote.peers().remove(0);
        assert_ne!(peer.state, PeerState::Ready, "small messages prove nothing");
        peer.trouble.is_some_and(|trouble| trouble.contains("large ones do not"))
    });
    assert!(world.nodes[0].remote.peers()[0].unreached_since.is_some());
    world.nodes[0].remote.set_peers(vec![peer_at(2, there)]);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
}
