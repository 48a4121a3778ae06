//! Several channels of one session with a peer: all are used, and losing one loses nothing else.

use crate::operations::{filled, write};
use crate::spaces::{Handle, in_sync, read, serving_in};
use crate::world::{Carried, SLAB, VOLUME_OF_TESTS, World, disk, peer_at};
use bus::{BusEvent, ChannelStatus, Peer, PeerState, RemoteOptions};
use records::Resiliency;
use space::api::{SpaceCompletion, SpaceRequest, VirtualDisk};
use space::fake_store::FakeFault;
use space::message::{Answer, BusError, ReplicaOperation, Response, Transport, Waiting};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::api::WriteClass;
use types::{BLOCK_BYTES, ChunkIndex, Lba, NodeId};

const LARGE: u32 = 256;
/// Silence after which a channel counts as lost in these tests: longer than the one thread of all nodes
/// is ever busy.
const SILENCE: Duration = Duration::from_millis(1500);

/// Two nodes with two channels to each other, and a session of the first with the disk of the second, of which all blocks are written.
fn doubled(carried: Carried) -> World {
    let mut world = World::new(2, carried);
    world.double_paths();
    begin(&mut world);
    world
}

fn begin(world: &mut World) {
    world.open(0, disk(2), 1, 5).unwrap();
    let allocate = ReplicaOperation::Allocate { chunk: ChunkIndex(0), append: false };
    world.call(0, disk(2), 1, 5, allocate).unwrap();
    for at in 0..SLAB / LARGE {
        world.call(0, disk(2), 1, 5, write(u64::from(at * LARGE), LARGE as usize, 1)).unwrap();
    }
}

fn channels(world: &World) -> Vec<ChannelStatus> {
    world.nodes[0].remote.peers()[0].channels.clone()
}

fn has_lost_its_peer(world: &World) -> bool {
    world.nodes[0].events.iter().any(|event| matches!(event, BusEvent::PeerLost { .. }))
}

fn traffic_goes_by_all_channels(carried: Carried) {
    let mut world = doubled(carried);
    let before = channels(&world);
    assert_eq!(before.len(), 2);
    assert_ne!(before[0].address.ip(), before[1].address.ip());
    for at in 0..32 {
        let lba = u64::from(at % 4 * LARGE);
        world.send(0, disk(2), 1, 5, write(lba, LARGE as usize, at as u8));
        world.send(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(lba), blocks: LARGE });
    }
    let answers = world.answers(64);
    assert!(answers.iter().all(|answer| answer.result.is_ok()));
    for (after, before) in channels(&world).iter().zip(before) {
        assert_eq!(after.in_flight_bytes, 0);
        let moved = after.moved_bytes - before.moved_bytes;
        assert!(moved > 16 << 20, "{moved} bytes by {}", after.address);
    }
    // Small ones that are alone keep to one channel.
    let before = channels(&world);
    for _ in 0..10 {
        world.call(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: 1 }).unwrap();
    }
    let after = channels(&world);
    assert_eq!((after[0].requests - before[0].requests, after[1].requests - before[1].requests), (10, 0));
    assert_eq!(world.nodes[0].remote.peers()[0].counters.connections, 1, "one session");
}

#[test]
fn traffic_goes_by_all_channels_of_tcp() {
    traffic_goes_by_all_channels(Carried::Tcp);
}

#[test]
fn traffic_goes_by_all_channels_encrypted() {
    traffic_goes_by_all_channels(Carried::Encrypted);
}

#[test]
fn traffic_goes_by_all_channels_of_smb_direct() {
    traffic_goes_by_all_channels(Carried::Rdma);
}

#[test]
fn as_many_channels_as_are_wanted_go_to_one_address() {
    let mut world = World::with_options(2, Carried::Tcp, |options| options.channels = Some(3));
    world.until_channels(0, 3);
    begin(&mut world);
    let mut one = World::with_options(2, Carried::Tcp, |options| options.channels = Some(1));
    one.reach_peers(0);
    one.pass(Duration::from_millis(50));
    assert_eq!(channels(&one).len(), 1);
}

#[test]
fn small_requests_keep_to_the_first_address_also_after_its_channel_was_lost() {
    let mut world = doubled(Carried::Tcp);
    world.nodes[0].remote.kill_channel(NodeId(2), 0);
    world.until("it is lost", |world| world.nodes[0].remote.peers()[0].counters.channels_lost == 1);
    world.until_channels(0, 2);
    let before = channels(&world);
    for _ in 0..20 {
        world.call(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: 1 }).unwrap();
    }
    let more = |at: usize| channels(&world)[at].requests - before[at].requests;
    assert!(more(0) >= 20 && more(1) == 0, "{} and {}", more(0), more(1));
}

fn lose_one_channel(carried: Carried) {
    let mut world = doubled(carried);
    world.add_disk(1, disk(21));
    world.until_channels(0, 2);
    world.open(0, disk(21), 1, 5).unwrap();
    let allocate = ReplicaOperation::Allocate { chunk: ChunkIndex(0), append: false };
    world.call(0, disk(21), 1, 5, allocate).unwrap();
    world.nodes[0].events.clear();
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    world.nodes[1].stores[&disk(21)].set_fault(FakeFault::Hang);
    // Reads of one disk, and writes of the other, by both channels.
    let reads: Vec<_> = (0..8)
        .map(|_| world.send(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: LARGE / 4 }))
        .collect();
    let writes: Vec<_> = (0..8).map(|at| world.send(0, disk(21), 1, 5, write(at * 64, 64, 7))).collect();
    world.pass(Duration::from_millis(50));
    assert!(channels(&world).iter().all(|channel| channel.in_flight_bytes > 0), "{:?}", channels(&world));
    world.nodes[0].remote.kill_channel(NodeId(2), 1);
    // The writes that were under way there end their session with the disk, and nothing else.
    let (mut lost, mut waiting): (Vec<Response>, Vec<Waiting>) = Default::default();
    world.until("they are answered", |world| {
        Transport::poll(&mut world.nodes[0].port, &mut lost);
        !lost.is_empty()
    });
    let is_unreachable = |answer: &Response| matches!(answer.result, Err(BusError::Unreachable));
    assert!(lost.iter().all(|answer| answer.from == disk(21) && is_unreachable(answer)), "{lost:?}");
    world.nodes[0].port.poll_waiting(&mut waiting);
    let leaves_anew = |waiting: &Waiting| waiting.disk == disk(2) && waiting.has_left;
    assert!(waiting.iter().any(leaves_anew), "the disk's time begins anew: {waiting:?}");
    assert_eq!(world.call(0, disk(21), 1, 5, ReplicaOperation::Promise).unwrap_err(), BusError::NoSession);
    for store in world.nodes[1].stores.values() {
        store.set_fault(FakeFault::None);
    }
    let mut rest = world.answers(reads.len() + writes.len() - lost.len());
    rest.retain(|answer| answer.from == disk(2));
    assert_eq!(rest.len(), reads.len());
    assert!(rest.iter().all(|answer| matches!(answer.result, Ok(Answer::Data { .. }))), "{rest:?}");
    world.call(0, disk(2), 1, 5, ReplicaOperation::Promise).unwrap();
    world.open(0, disk(21), 2, 5).unwrap();
    assert!(!has_lost_its_peer(&world));
    world.until_channels(0, 2);
    let counters = world.nodes[0].remote.peers()[0].counters.clone();
    assert_eq!((counters.connections, counters.channels_lost), (1, 1));
    world.until("no session is left over", |world| {
        world.nodes[1].serving.as_ref().unwrap().exports.session_count() == 2
    });
}

#[test]
fn a_channel_that_is_lost_takes_nothing_with_it_but_sessions_with_changes_on_it() {
    lose_one_channel(Carried::Tcp);
}

#[test]
fn a_channel_of_smb_direct_that_is_lost_does_so_too() {
    lose_one_channel(Carried::Rdma);
}

/// Writes of one volume in rounds, over and over the same blocks.
struct Load {
    world: World,
    handle: Handle,
    done: u64,
    longest: Duration,
}

impl Load {
    /// Sends as many requests again, has `cut` happen meanwhile, and waits for the answers.
    fn round(&mut self, cut: impl FnOnce(&mut World)) {
        const ASKED: u64 = 8;
        let began = Instant::now();
        for number in self.done..self.done + ASKED {
            let (lba, data) = (Lba(number % 16 * 64), filled(16, number as u8));
            self.handle.submit(number, SpaceRequest::Write { lba, class: WriteClass::Overwrite, data });
        }
        let mut out: Vec<SpaceCompletion> = Vec::new();
        self.handle.poll(&mut out);
        cut(&mut self.world);
        self.world.until("the writes are acknowledged", |_| {
            self.handle.poll(&mut out);
            out.len() as u64 == ASKED
        });
        assert!(out.iter().all(|completion| completion.result.is_ok()), "{out:?}");
        self.longest = self.longest.max(began.elapsed());
        self.done += ASKED;
        assert_eq!(in_sync(&self.world.nodes[0].space), 2, "a disk was expelled");
        assert!(!has_lost_its_peer(&self.world), "{:?}", self.world.nodes[0].events);
    }

    /// Checks that every copy has the last acknowledged write.
    fn check(&mut self) {
        for at in 0..16 {
            let newest = (self.done - 16..self.done).find(|write| write % 16 == at).unwrap() as u8;
            for copy in 0..2 {
                let found = read(&mut self.world, &mut self.handle, at * 64, 16, Some(copy));
                assert_eq!(found, vec![newest; 16 * BLOCK_BYTES], "block {at} of copy {copy}");
            }
        }
    }
}

fn load(world: World) -> Load {
    let (mut world, handle) = serving_in(world, Resiliency::TwoWay);
    world.nodes[0].events.clear();
    Load { world, handle, done: 0, longest: Duration::ZERO }
}

#[test]
fn channels_that_are_cut_under_load_expel_no_disk_and_stall_nobody() {
    let mut world = World::new(2, Carried::Tcp);
    world.double_paths();
    let mut load = load(world);
    for cut in 0..12 {
        for _ in 0..10 {
            load.round(|_| ());
        }
        load.round(|world| world.nodes[0].remote.kill_channel(NodeId(2), cut % 2));
        load.world.until_channels(0, 2);
    }
    // No disk's time was over, nor was any left alone for long.
    assert!(load.longest < Duration::from_secs(3), "{:?}", load.longest);
    let counters = load.world.nodes[0].remote.peers()[0].counters.clone();
    assert!(counters.channels_lost == 12 && counters.unreachable > 0, "{counters:?}");
    load.check();
}

#[test]
fn a_network_that_loses_everything_stalls_nobody_for_longer_than_silence_takes_to_notice() {
    let (world, wires) = wired();
    let mut load = load(world);
    for _ in 0..10 {
        load.round(|_| ());
    }
    for wire in [0, 1] {
        let Wire { is_held, is_mute, .. } = &wires[wire];
        let set = |cut| [is_held, is_mute].into_iter().for_each(|way| way.store(cut, Ordering::Release));
        load.round(|_| set(true));
        let cut_at = Instant::now();
        while cut_at.elapsed() < SILENCE * 3 / 2 {
            load.round(|_| ());
        }
        set(false);
        load.world.until_channels(0, 2);
        load.round(|_| ());
    }
    assert_eq!(load.world.nodes[0].remote.peers()[0].counters.channels_lost, 2);
    assert!(load.longest < 3 * SILENCE, "{:?}", load.longest);
    load.world.pass(Duration::from_millis(100));
    load.check();
}

#[test]
fn when_all_channels_are_lost_the_peer_is() {
    let mut world = doubled(Carried::Tcp);
    world.nodes[0].events.clear();
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    let reads: Vec<_> = (0..8)
        .map(|_| world.send(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: 64 }))
        .collect();
    world.pass(Duration::from_millis(20));
    let start = Instant::now();
    world.nodes[0].remote.kill(NodeId(2));
    let answers = world.answers(reads.len());
    assert!(answers.iter().all(|answer| matches!(answer.result, Err(BusError::Unreachable))));
    assert!(start.elapsed() < Duration::from_secs(1), "after {:?}", start.elapsed());
    world.until("it is told", |world| has_lost_its_peer(world));
    world.reach_peers(0);
    world.until_channels(0, 2);
}

fn notice_soon(options: &mut RemoteOptions) {
    (options.silence, options.status_interval) = (SILENCE, SILENCE / 8);
}

/// A world of two channels, in which silence is noticed soon.
fn soon_noticed() -> World {
    let mut world = World::with_options(2, Carried::Tcp, notice_soon);
    world.double_paths();
    begin(&mut world);
    world.nodes[0].events.clear();
    world
}

#[test]
fn a_channel_that_waits_for_disks_that_hang_alone_is_not_taken_for_dead() {
    let mut world = soon_noticed();
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    for _ in 0..8 {
        world.send(0, disk(2), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: LARGE });
    }
    world.pass(Duration::from_millis(20));
    assert!(channels(&world).iter().all(|channel| channel.in_flight_bytes > 0));
    world.pass(SILENCE * 3 / 2);
    assert_eq!(world.nodes[0].remote.peers()[0].counters.channels_lost, 0);
    assert!(!has_lost_its_peer(&world));
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::None);
    assert!(world.answers(8).iter().all(|answer| answer.result.is_ok()));
}

#[test]
fn a_peer_that_is_silent_on_all_channels_is_given_up_as_soon_as_on_one() {
    let mut world = soon_noticed();
    let silent = world.nodes[1].serving.take();
    let start = Instant::now();
    let asked = world.send(0, disk(2), 1, 5, ReplicaOperation::Promise);
    assert_eq!(world.answer(0, asked).unwrap_err(), BusError::Unreachable);
    world.until("the peer is lost", |world| has_lost_its_peer(world));
    assert!(start.elapsed() < SILENCE * 15 / 8, "after {:?}", start.elapsed());
    world.nodes[1].serving = silent;
    world.reach_peers(0);
}

#[test]
fn all_channels_of_a_node_that_leaves_end_at_once() {
    let mut world = doubled(Carried::Tcp);
    world.certificates.remove(NodeId(1));
    let trust = world.certificates.trust(NodeId(2));
    let serving = world.nodes[1].serving.as_mut().unwrap();
    serving.accounts.set(trust, false);
    serving.server.directory_changed(sys::monotonic_now());
    assert_eq!(serving.exports.session_count(), 0, "at the return");
    assert!(!serving.server.sessions(sys::monotonic_now()).iter().any(|session| session.user == "node-1$"));
    world.until("node 1 is out", |world| world.state(0, 2) != PeerState::Ready);
    world.pass(Duration::from_millis(300));
    assert_ne!(world.state(0, 2), PeerState::Ready);
    assert!(channels(&world).is_empty());
}

/// Passes bytes on between a peer and a server, and holds back those of either on demand, also the end
/// of its connection.
struct Wire {
    address: SocketAddr,
    is_held: Arc<AtomicBool>,
    is_mute: Arc<AtomicBool>,
    passed_bytes: Arc<AtomicUsize>,
}

impl Wire {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.93.3:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_held, passed_bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let is_mute = Arc::new(AtomicBool::new(false));
        let (held, mute, passed) = (is_held.clone(), is_mute.clone(), passed_bytes.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(server).unwrap());
                let ends = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (held, mute, passed) = (held.clone(), mute.clone(), passed.clone());
                std::thread::spawn(move || pass_on(near, far, &held, &passed));
                std::thread::spawn(move || pass_on(ends.1, ends.0, &mute, &AtomicUsize::new(0)));
            }
        });
        Self { address, is_held, is_mute, passed_bytes }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_held: &AtomicBool, passed: &AtomicUsize) {
    let mut bytes = vec![0; 1 << 20];
    loop {
        let len = from.read(&mut bytes).unwrap_or(0);
        while is_held.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if len == 0 || to.write_all(&bytes[..len]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        passed.fetch_add(len, Ordering::Release);
    }
}

/// Two nodes with two such wires between them.
fn wired() -> (World, [Wire; 2]) {
    let mut world = World::with_options(2, Carried::Tcp, notice_soon);
    let server = world.nodes[1].serving.as_ref().unwrap().address;
    let wires = [Wire::to(server), Wire::to(server)];
    let addresses = wires.iter().map(|wire| wire.address).collect();
    let peer = Peer { addresses, ..peer_at(2, server) };
    world.nodes[0].remote.set_peers(vec![peer]);
    world.until_channels(0, 2);
    (world, wires)
}

#[test]
fn a_session_whose_opening_was_answered_into_a_dead_channel_is_not_left_open() {
    let (mut world, wires) = wired();
    begin(&mut world);
    wires[0].is_mute.store(true, Ordering::Release);
    assert_eq!(world.open(0, disk(2), 2, 5).unwrap_err(), BusError::Unreachable);
    let sessions = |world: &World| world.nodes[1].serving.as_ref().unwrap().exports.session_count();
    world.until("the server has it open, and not the one before", |world| sessions(world) == 1);
    world.open(0, disk(2), 3, 5).unwrap();
    assert_eq!(sessions(&world), 1);
    assert!(matches!(world.call(0, disk(2), 3, 5, write(0, 1, 8)), Ok(Answer::Done)));
}

#[test]
fn a_write_that_a_dead_channel_brings_late_does_not_take_the_place_of_a_newer_one() {
    let (mut world, wires) = wired();
    begin(&mut world);
    let store = world.nodes[1].stores[&disk(2)].clone();
    wires[0].is_held.store(true, Ordering::Release);
    let older = world.send(0, disk(2), 1, 5, write(0, 1, 7));
    // The network has it, and the channel counts as lost.
    let session = match world.answer(0, older) {
        Ok(_) => 1,
        Err(_) => {
            world.open(0, disk(2), 2, 5).unwrap();
            2
        }
    };
    assert!(matches!(world.call(0, disk(2), session, 5, write(0, 1, 8)), Ok(Answer::Done)));
    assert_eq!(store.peek(VOLUME_OF_TESTS, Lba(0)).unwrap()[0], 8);
    let passed = wires[0].passed_bytes.load(Ordering::Acquire);
    wires[0].is_held.store(false, Ordering::Release);
    world.until("the older write arrives", |_| {
        wires[0].passed_bytes.load(Ordering::Acquire) >= passed + BLOCK_BYTES
    });
    world.pass(Duration::from_millis(200));
    assert_eq!(store.peek(VOLUME_OF_TESTS, Lba(0)).unwrap()[0], 8);
}
