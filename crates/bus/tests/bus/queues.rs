//! Requests that wait for their turn: their order, the bytes under way, and the end of those that never
//! leave.

use crate::operations::write;
use crate::world::{Carried, SLAB, VOLUME_OF_TESTS, World, disk};
use bus::Windows;
use space::fake_store::FakeFault;
use space::message::{Answer, BusError, Priority, ReplicaOperation, RequestId, Response, Transport, Waiting};
use std::time::{Duration, Instant};
use types::{ChunkIndex, DiskId, Epoch, Lba, NodeId};

const MIB: u64 = 1 << 20;
/// Blocks of 1 MiB.
const LARGE: u32 = 256;

/// A world in which node 1 has a session, under which all blocks of a slab are written, with each of the others.
fn world(count: u8, windows: Windows) -> World {
    let mut world = World::with_options(count, Carried::Tcp, |options| options.windows = windows);
    world.reach_peers(0);
    for other in 2..=count {
        fill(&mut world, disk(other));
    }
    world
}

fn fill(world: &mut World, disk: DiskId) {
    world.open(0, disk, 1, 5).unwrap();
    let allocate = ReplicaOperation::Allocate { chunk: ChunkIndex(0), append: false };
    world.call(0, disk, 1, 5, allocate).unwrap();
    for at in 0..SLAB / LARGE {
        world.call(0, disk, 1, 5, write(u64::from(at * LARGE), LARGE as usize, 1)).unwrap();
    }
}

/// Requests that node 1 has under way at node 2, and those that wait to.
fn under_way(world: &World) -> (usize, usize) {
    let peer = &world.nodes[0].remote.peers()[0];
    (peer.in_flight, peer.queues.iter().map(|queue| queue.waiting).sum())
}

fn large_read() -> ReplicaOperation {
    ReplicaOperation::Read { lba: Lba(0), blocks: LARGE }
}

fn ids(answers: &[Response]) -> Vec<RequestId> {
    answers.iter().map(|answer| answer.id).collect()
}

#[test]
fn a_clients_request_overtakes_reads_of_a_rebuild() {
    let windows = Windows { peer_bytes: 8 * MIB, background_bytes: 2 * MIB, ..Windows::default() };
    let mut world = world(2, windows);
    for _ in 0..20 {
        world.send_as(Priority::Rebuild, 0, disk(2), 1, 5, large_read());
    }
    let client = world.send(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: 1 });
    let answers = world.answers(21);
    let place = ids(&answers).iter().position(|id| *id == client).unwrap();
    assert!(place <= 2, "behind {place} reads of the rebuild");
    assert!(answers.iter().all(|answer| matches!(answer.result, Ok(Answer::Data { .. }))));
    let queues = world.nodes[0].remote.peers()[0].queues;
    let rebuild = queues[Priority::Rebuild as usize];
    assert_eq!((rebuild.requests, rebuild.waiting, rebuild.in_flight_bytes), (20, 0, 0));
    assert!(rebuild.longest_wait > Duration::ZERO);
}

#[test]
fn many_peers_that_are_read_from_at_once_bring_a_bounded_number_of_bytes() {
    let windows = Windows { incoming_bytes: 4 * MIB, ..Windows::default() };
    let mut world = world(5, windows);
    for other in 2..=5 {
        for _ in 0..12 {
            world.send(0, disk(other), 1, 5, large_read());
        }
    }
    let (mut answers, mut most) = (Vec::new(), 0);
    world.until("all are answered", |world| {
        let peers = world.nodes[0].remote.peers();
        let in_flight: u64 = peers.iter().map(|peer| peer.in_flight as u64).sum();
        most = most.max(in_flight);
        Transport::poll(&mut world.nodes[0].port, &mut answers);
        answers.len() >= 48
    });
    assert!(answers.iter().all(|answer| matches!(answer.result, Ok(Answer::Data { .. }))));
    // The window, and one of each peer.
    assert!((2..=8).contains(&most), "{most} MiB at once");
}

#[test]
fn background_is_served_while_clients_fill_the_window() {
    let windows = Windows { peer_bytes: 2 * MIB, background_bytes: 2 * MIB, ..Windows::default() };
    let mut world = world(2, windows);
    let mut answers = Vec::new();
    let mut clients = 0;
    let background = world.send_as(Priority::Rebalance, 0, disk(2), 1, 5, large_read());
    let start = Instant::now();
    world.until("the background is answered", |world| {
        for _ in 0..40_usize.saturating_sub(clients) {
            world.send(0, disk(2), 1, 5, large_read());
            clients += 1;
        }
        Transport::poll(&mut world.nodes[0].port, &mut answers);
        let is_there = answers.iter().any(|answer: &Response| answer.id == background);
        clients -= answers.drain(..).filter(|answer| answer.id != background).count();
        is_there
    });
    assert!(start.elapsed() < Duration::from_secs(5), "after {:?}", start.elapsed());
}

#[test]
fn what_waits_is_answered_when_its_connection_is_lost() {
    let mut world = world(2, Windows { peer_bytes: 2 * MIB, ..Windows::default() });
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    let asked: Vec<_> = (0..30).map(|_| world.send(0, disk(2), 1, 5, large_read())).collect();
    world.pass(Duration::from_millis(20));
    let waiting = world.nodes[0].remote.peers()[0].queues[0].waiting;
    assert!(waiting >= 28, "{waiting}");
    world.nodes[0].remote.kill(NodeId(2));
    let answers = world.answers(asked.len());
    assert_eq!(ids(&answers), asked);
    assert!(answers.iter().all(|answer| matches!(answer.result, Err(BusError::Unreachable))));
}

#[test]
fn what_waits_from_a_session_that_a_newer_one_ends_is_never_sent() {
    let mut world = world(2, Windows { peer_bytes: 2 * MIB, ..Windows::default() });
    let store = world.nodes[1].stores[&disk(2)].clone();
    store.set_fault(FakeFault::Hang);
    for at in 0..3 {
        world.send(0, disk(2), 1, 5, write(at * u64::from(LARGE), LARGE as usize, 7));
    }
    world.pass(Duration::from_millis(20));
    assert_eq!(under_way(&world), (1, 2));
    let opening = ReplicaOperation::Open { least: Epoch(0), settled: Epoch(0) };
    let opening = world.send(0, disk(2), 2, 5, opening);
    // The server gives up the one that had left, although the disk hangs; the opening waits for it there.
    let over = world.answers(3);
    assert!(over.iter().all(|answer| matches!(answer.result, Err(BusError::NoSession))), "{over:?}");
    assert_eq!(under_way(&world), (1, 0));
    store.set_fault(FakeFault::None);
    assert!(matches!(world.answer(0, opening), Ok(Answer::Opened { .. })));
    let found = |at: u32| store.peek(VOLUME_OF_TESTS, Lba(u64::from(at * LARGE))).unwrap()[0];
    assert_eq!((found(0), found(1), found(2)), (7, 1, 1));
}

#[test]
fn what_another_node_that_takes_the_volume_over_ends_is_given_up_though_the_disk_hangs() {
    let mut world = world(3, Windows::default());
    world.reach_peers(2);
    let store = world.nodes[1].stores[&disk(2)].clone();
    store.set_fault(FakeFault::Hang);
    let asked = world.send(0, disk(2), 1, 5, write(0, 1, 7));
    world.pass(Duration::from_millis(20));
    let opening = ReplicaOperation::Open { least: Epoch(5), settled: Epoch(0) };
    let opening = world.send(2, disk(2), 9, 6, opening);
    assert_eq!(world.answer(0, asked).unwrap_err(), BusError::NoSession);
    store.set_fault(FakeFault::None);
    // The abandoned write lands before the newer session begins, and nothing of the older one after that.
    assert!(matches!(world.answer(2, opening), Ok(Answer::Opened { .. })));
    assert_eq!(store.peek(VOLUME_OF_TESTS, Lba(0)).unwrap()[0], 7);
    assert_eq!(world.call(0, disk(2), 1, 5, write(0, 1, 8)).unwrap_err(), BusError::NoSession);
    assert_eq!(store.peek(VOLUME_OF_TESTS, Lba(0)).unwrap()[0], 7);
}

#[test]
fn a_port_that_is_gone_leaves_nothing_under_way_although_the_disk_hangs() {
    let mut world = world(2, Windows { peer_bytes: 2 * MIB, ..Windows::default() });
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    for _ in 0..3 {
        world.send(0, disk(2), 1, 5, large_read());
    }
    world.pass(Duration::from_millis(20));
    assert_eq!(under_way(&world), (1, 2));
    let port = world.nodes[0].remote.port();
    world.nodes[0].port = port;
    assert_eq!(under_way(&world).1, 0);
    let queue = |world: &World| world.nodes[0].remote.peers()[0].queues[0];
    assert_eq!(queue(&world).in_flight_bytes, 0);
    world.until("the server gives up what was asked", |world| under_way(world) == (0, 0));
    world.until("its session is closed", |world| {
        world.nodes[1].serving.as_ref().unwrap().exports.session_count() == 0
    });
}

#[test]
fn two_disks_of_three_that_hang_do_not_stop_the_third() {
    let mut world = world(2, Windows { peer_bytes: 4 * MIB, ..Windows::default() });
    for more in [21, 22] {
        world.add_disk(1, disk(more));
        fill(&mut world, disk(more));
    }
    for hanging in [21, 22] {
        world.nodes[1].stores[&disk(hanging)].set_fault(FakeFault::Hang);
    }
    for other in [21, 22, 2] {
        for _ in 0..20 {
            world.send(0, disk(other), 1, 5, large_read());
        }
    }
    let start = Instant::now();
    let healthy = world.answers(20);
    assert!(healthy.iter().all(|answer| answer.from == disk(2) && answer.result.is_ok()));
    assert!(start.elapsed() < Duration::from_secs(3), "after {:?}", start.elapsed());
}

#[test]
fn a_request_that_waits_for_long_is_told_of() {
    let mut world = world(2, Windows { peer_bytes: 2 * MIB, ..Windows::default() });
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    let asked: Vec<_> = (0..3).map(|_| world.send(0, disk(2), 1, 5, large_read())).collect();
    let mut told: Vec<Waiting> = Vec::new();
    world.until("the space is told", |world| {
        Transport::poll_waiting(&mut world.nodes[0].port, &mut told);
        !told.is_empty()
    });
    // Reads are reported at once, each second, and when they leave.
    let ids = |told: &[Waiting]| told.iter().map(|waiting| waiting.id).collect::<Vec<_>>();
    assert_eq!(ids(&told), asked[1..]);
    told.clear();
    world.until("the space is told once more", |world| {
        Transport::poll_waiting(&mut world.nodes[0].port, &mut told);
        !told.is_empty()
    });
    assert_eq!(ids(&told), asked[1..]);
    assert!(told.drain(..).all(|waiting| !waiting.has_left));
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::None);
    world.answers(3);
    Transport::poll_waiting(&mut world.nodes[0].port, &mut told);
    assert_eq!(ids(&told), asked[1..]);
    assert!(told.iter().all(|waiting| waiting.has_left));
}
