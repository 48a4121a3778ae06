//! Each operation over each carrier.

use crate::world::{Carried, SLAB, VOLUME_OF_TESTS, World, disk};
use bus::BusEvent;
use space::fake_store::FakeFault;
use space::message::{Answer, BusError, ReplicaOperation};
use std::time::Duration;
use store::api::{StoreError, WriteClass};
use sys::{BufMut, Payload};
use types::{BLOCK_BYTES, ChangeNumber, ChunkIndex, Epoch, Lba, NodeId, Stamp};

pub fn filled(blocks: usize, byte: u8) -> Payload {
    let mut data = BufMut::zeroed(blocks * BLOCK_BYTES);
    data.fill(byte);
    Payload::from(data.freeze())
}

pub fn write(lba: u64, blocks: usize, byte: u8) -> ReplicaOperation {
    let data = filled(blocks, byte);
    let checksums = (0..blocks as u64)
        .map(|at| codes::block_checksum(VOLUME_OF_TESTS, Lba(lba + at), &data.contiguous()[..BLOCK_BYTES]))
        .collect();
    ReplicaOperation::Write {
        lba: Lba(lba),
        class: WriteClass::Fresh,
        data,
        checksums,
        number: ChangeNumber(3),
    }
}

fn all_operations(carried: Carried) {
    let mut world = World::new(2, carried);
    world.reach_peers(0);
    let there = disk(2);
    assert!(matches!(world.open(0, there, 1, 5), Ok(Answer::Opened { promised: Epoch(0), doubtful: false })));
    assert!(matches!(world.call(0, there, 1, 6, ReplicaOperation::Promise), Ok(Answer::Done)));
    let allocate = ReplicaOperation::Allocate { chunk: ChunkIndex(0), append: false };
    assert!(matches!(world.call(0, there, 1, 6, allocate), Ok(Answer::Done)));
    for (at, blocks) in [(0, 1), (1, 16), (17, 256)] {
        let byte = blocks as u8 + 3;
        assert!(matches!(world.call(0, there, 1, 6, write(at, blocks, byte)), Ok(Answer::Done)), "{blocks}");
        let read = ReplicaOperation::Read { lba: Lba(at), blocks: blocks as u32 };
        let Ok(Answer::Data { data, checksums }) = world.call(0, there, 1, 6, read) else {
            panic!("no data")
        };
        assert_eq!(data.contiguous()[..], filled(blocks, byte).contiguous()[..]);
        assert_eq!(checksums.len(), blocks);
        assert_eq!(
            world.nodes[1].stores[&there].peek(VOLUME_OF_TESTS, Lba(at)).unwrap()[..],
            [byte; BLOCK_BYTES]
        );
    }
    let Ok(Answer::Regions(regions)) =
        world.call(0, there, 1, 6, ReplicaOperation::Regions { chunk: ChunkIndex(0) })
    else {
        panic!("no regions")
    };
    assert_eq!(
        (regions.stamps[0], regions.stamps.len()),
        (Stamp::new(Epoch(6), ChangeNumber(3)), SLAB as usize / 256)
    );
    let Ok(Answer::Chunks(chunks)) = world.call(0, there, 1, 6, ReplicaOperation::Chunks) else {
        panic!("no chunks")
    };
    assert_eq!(chunks.len(), 1);
    assert!(matches!(
        world.call(
            0,
            there,
            1,
            6,
            ReplicaOperation::MarkLost { lba: Lba(3), blocks: 1, number: ChangeNumber(5) }
        ),
        Ok(Answer::Done)
    ));
    let lost = world.call(0, there, 1, 6, ReplicaOperation::Read { lba: Lba(0), blocks: 16 });
    assert_eq!(lost.unwrap_err(), BusError::Store(StoreError::Corrupt { lbas: vec![Lba(3)] }));
    assert!(matches!(
        world.call(
            0,
            there,
            1,
            6,
            ReplicaOperation::Discard { lba: Lba(0), blocks: 16, number: ChangeNumber(4) }
        ),
        Ok(Answer::Done)
    ));
    assert!(matches!(
        world.call(0, there, 1, 6, ReplicaOperation::Free { chunk: ChunkIndex(0) }),
        Ok(Answer::Done)
    ));
    let unmapped = world.call(0, there, 1, 6, write(0, 1, 1));
    assert_eq!(unmapped.unwrap_err(), BusError::Store(StoreError::NotMapped));
    let old = world.call(0, there, 1, 5, ReplicaOperation::Promise);
    assert_eq!(old.unwrap_err(), BusError::Store(StoreError::Fenced { promised: Epoch(6) }));
}

#[test]
fn every_operation_does_over_tcp_what_it_does_here() {
    all_operations(Carried::Tcp);
}

#[test]
fn every_operation_does_over_an_encrypted_bus_what_it_does_here() {
    all_operations(Carried::Encrypted);
}

#[test]
fn every_operation_does_over_smb_direct_what_it_does_here() {
    all_operations(Carried::Rdma);
}

#[test]
fn a_new_session_ends_the_one_before() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    world.open(0, disk(2), 2, 5).unwrap();
    assert_eq!(world.call(0, disk(2), 1, 5, ReplicaOperation::Promise).unwrap_err(), BusError::NoSession);
    assert!(world.call(0, disk(2), 2, 5, ReplicaOperation::Promise).is_ok());
    // The file of the old session is closed there too.
    world.until("one session is left", |world| {
        world.nodes[1].serving.as_ref().unwrap().exports.session_count() == 1
    });
}

#[test]
fn a_session_that_a_newer_one_overtakes_leaves_nothing_open() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    let opening = || ReplicaOperation::Open { least: Epoch(0), settled: Epoch(0) };
    let ids: Vec<_> = (1..=20).map(|session| world.send(0, disk(2), session, 5, opening())).collect();
    let mut answers = Vec::new();
    world.until("the last is answered", |world| {
        space::message::Transport::poll(&mut world.nodes[0].port, &mut answers);
        answers.iter().any(|answer| Some(&answer.id) == ids.last())
    });
    world.until("one session is left", |world| {
        world.nodes[1].serving.as_ref().unwrap().exports.session_count() == 1
    });
    assert!(world.call(0, disk(2), 20, 5, ReplicaOperation::Promise).is_ok());
}

#[test]
fn a_coordinator_on_another_node_takes_the_session_over_and_fences_the_old_one() {
    let mut world = World::new(3, Carried::Tcp);
    world.reach_peers(0);
    world.reach_peers(1);
    world.open(0, disk(3), 1, 5).unwrap();
    assert!(matches!(world.open(1, disk(3), 9, 6), Ok(Answer::Opened { promised: Epoch(5), .. })));
    let refused =
        world.call(0, disk(3), 1, 5, ReplicaOperation::Read { lba: Lba(0), blocks: 1 }).unwrap_err();
    assert_eq!(refused, BusError::NoSession);
    let fenced = world.open(0, disk(3), 2, 5).unwrap_err();
    assert_eq!(fenced, BusError::Store(StoreError::Fenced { promised: Epoch(6) }));
}

#[test]
fn a_disk_that_is_not_there_cannot_be_reached() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    assert_eq!(world.open(0, disk(77), 1, 5).unwrap_err(), BusError::Unreachable);
    world.nodes[0].remote.set_disks([(disk(77), NodeId(2))].into());
    assert_eq!(world.open(0, disk(77), 1, 5).unwrap_err(), BusError::Unreachable);
}

#[test]
fn many_requests_are_under_way_at_once_and_each_gets_its_own_answer() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    for chunk in 0..4 {
        let allocate = ReplicaOperation::Allocate { chunk: ChunkIndex(chunk), append: false };
        world.call(0, disk(2), 1, 5, allocate).unwrap();
    }
    let ids: Vec<_> = (0..1000).map(|at| world.send(0, disk(2), 1, 5, write(at * 4, 4, at as u8))).collect();
    let mut answers = Vec::new();
    world.until("all are answered", |world| {
        space::message::Transport::poll(&mut world.nodes[0].port, &mut answers);
        answers.len() == ids.len()
    });
    assert!(answers.iter().all(|answer| answer.result.is_ok()));
    for at in (0..1000).step_by(97) {
        let read = ReplicaOperation::Read { lba: Lba(at * 4), blocks: 4 };
        let Ok(Answer::Data { data, .. }) = world.call(0, disk(2), 1, 5, read) else { panic!("no data") };
        assert_eq!(data.contiguous()[..], [at as u8; 4 * BLOCK_BYTES]);
    }
    let counters = world.nodes[0].remote.peers()[0].counters.clone();
    assert_eq!((counters.requests, counters.answers, counters.connections), (1016, 1016, 1));
    let queue = world.nodes[0].remote.peers()[0].queues[0];
    assert!(queue.longest_wait > Duration::ZERO, "what is under way is bounded");
    assert_eq!(counters.credit_stalls, 0, "and bytes are before credits are");
}

#[test]
fn a_node_tells_of_its_disks_and_of_what_is_corrupt_on_them() {
    let mut world = World::with_options(2, Carried::Tcp, |options| {
        options.status_interval = Duration::from_millis(20);
    });
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    world.call(0, disk(2), 1, 5, ReplicaOperation::Allocate { chunk: ChunkIndex(0), append: false }).unwrap();
    world.call(0, disk(2), 1, 5, write(0, 16, 1)).unwrap();
    let found = [(VOLUME_OF_TESTS, Lba(3)), (VOLUME_OF_TESTS, Lba(4))];
    found.iter().for_each(|(volume, lba)| world.nodes[1].stores[&disk(2)].corrupt(*volume, *lba));
    // The volume is not open there: its owner has to repair it.
    world.join_space(1);
    world.nodes[1].space.scrub(disk(2), 1 << 30);
    let mut told = Vec::new();
    world.until("the findings are told", |world| {
        for event in world.nodes[0].events.drain(..) {
            if let BusEvent::Status { node: NodeId(2), disks } = event {
                assert_eq!((disks.len(), disks[0].disk, disks[0].total_slabs), (1, disk(2), 64));
                told.extend(disks[0].corrupt.clone());
            }
        }
        told.len() >= 2
    });
    world.pass(Duration::from_millis(200));
    let again = world.nodes[0].events.iter().filter(|event| match event {
        BusEvent::Status { disks, .. } => !disks[0].corrupt.is_empty(),
        _ => false,
    });
    assert_eq!((told, again.count()), (found.to_vec(), 0), "each is told once");
}

#[test]
fn a_disk_that_hangs_delays_no_other_request_of_its_node() {
    let mut world = World::new(2, Carried::Tcp);
    world.reach_peers(0);
    world.open(0, disk(2), 1, 5).unwrap();
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::Hang);
    let hangs = world.send(0, disk(2), 1, 5, ReplicaOperation::Chunks);
    // A stale opening of a session is never answered either.
    world.pass(Duration::from_millis(100));
    assert_eq!(world.state(0, 2), bus::PeerState::Ready);
    world.nodes[0].remote.set_disks([(disk(2), NodeId(2)), (disk(9), NodeId(2))].into());
    assert_eq!(world.open(0, disk(9), 1, 5).unwrap_err(), BusError::Unreachable);
    world.nodes[1].stores[&disk(2)].set_fault(FakeFault::None);
    assert!(world.answer(0, hangs).is_ok());
}
