//! Volumes over the disks of several nodes.

use crate::operations::filled;
use crate::world::{Carried, SLAB, Space, VOLUME_OF_TESTS, World, disk};
use bus::BusEvent;
use records::{MemoryClient, Provisioning, Resiliency, Typed, VolumeRecord};
use space::api::{SpaceCompletion, SpaceReply, SpaceRequest, VirtualDisk};
use space::coordinator::{Phase, Predecessor};
use space::fake_store::FakeStore;
use space::local::VolumeHandle;
use std::time::{Duration, Instant};
use store::api::WriteClass;
use types::{BLOCK_BYTES, Lba, NodeId, PoolId};

pub type Handle = VolumeHandle<FakeStore, MemoryClient>;

fn volume_of(world: &World, resiliency: Resiliency) {
    let disks = world.nodes.iter().flat_map(|node| node.stores.keys().copied()).collect();
    let size = u64::from(SLAB) * 16 * BLOCK_BYTES as u64;
    let pool = PoolId::from_bytes([1; 16]);
    let thin = Provisioning::Thin;
    let record = VolumeRecord::new(VOLUME_OF_TESTS, pool, "data", resiliency, size, thin, disks, 0);
    let before = world.state.read::<VolumeRecord>(&record.id.to_string()).unwrap().unwrap();
    world.state.write(&record, before.revision).unwrap();
}

/// A world whose first node has the volume open.
fn serving(count: u8, carried: Carried, resiliency: Resiliency) -> (World, Handle) {
    let world = World::new(count, carried);
    serving_in(world, resiliency)
}

pub fn serving_in(mut world: World, resiliency: Resiliency) -> (World, Handle) {
    volume_of(&world, resiliency);
    for at in 0..world.nodes.len() {
        world.reach_peers(at);
        world.join_space(at);
    }
    let handle = world.nodes[0].space.open_volume(VOLUME_OF_TESTS, 1);
    serve(&mut world, 0);
    (world, handle)
}

fn serve(world: &mut World, at: usize) {
    world.until("the volume is served", |world| {
        world.nodes[at].space.phase(VOLUME_OF_TESTS) == Some(Phase::Serving)
    });
}

fn call(world: &mut World, handle: &mut Handle, request: SpaceRequest) -> SpaceReply {
    handle.submit(1, request);
    let mut out: Vec<SpaceCompletion> = Vec::new();
    world.until("an answer of the volume", |_| {
        handle.poll(&mut out);
        !out.is_empty()
    });
    out.pop().unwrap().result.unwrap()
}

fn write(world: &mut World, handle: &mut Handle, lba: u64, blocks: usize, byte: u8) {
    let data = filled(blocks, byte);
    call(world, handle, SpaceRequest::Write { lba: Lba(lba), class: WriteClass::Fresh, data });
}

pub fn read(world: &mut World, handle: &mut Handle, lba: u64, blocks: u32, copy: Option<u8>) -> Vec<u8> {
    match call(world, handle, SpaceRequest::Read { lba: Lba(lba), blocks, copy }) {
        SpaceReply::Data(data) => data.contiguous().to_vec(),
        SpaceReply::Done => panic!("no data"),
    }
}

pub fn in_sync(space: &Space) -> usize {
    space.record(VOLUME_OF_TESTS).unwrap().in_sync.len()
}

fn every_copy_is_written(carried: Carried) {
    let (mut world, mut handle) = serving(3, carried, Resiliency::ThreeWay);
    for at in 0..20 {
        write(&mut world, &mut handle, at * 50, 50, at as u8 + 1);
    }
    for at in (0..20).step_by(7) {
        for copy in 0..3 {
            let found = read(&mut world, &mut handle, at * 50, 50, Some(copy));
            assert_eq!(found, vec![at as u8 + 1; 50 * BLOCK_BYTES]);
        }
        for node in 0..3 {
            let store = &world.nodes[node].stores[&disk(node as u8 + 1)];
            let block = store.peek(VOLUME_OF_TESTS, Lba(at * 50)).unwrap();
            assert_eq!(block[..], [at as u8 + 1; BLOCK_BYTES]);
        }
    }
}

#[test]
fn an_acknowledged_write_is_on_every_node() {
    every_copy_is_written(Carried::Tcp);
}

#[test]
fn an_acknowledged_write_is_on_every_node_by_smb_direct() {
    every_copy_is_written(Carried::Rdma);
}

#[test]
fn a_node_dies_under_writes_and_gets_what_it_missed_when_it_is_back() {
    let (mut world, mut handle) = serving(3, Carried::Tcp, Resiliency::ThreeWay);
    write(&mut world, &mut handle, 0, 256, 1);
    world.kill(2);
    world.until("the loss is noticed", |world| {
        world.nodes[0].events.iter().any(|event| matches!(event, BusEvent::PeerLost { node: NodeId(3), .. }))
    });
    world.nodes[0].space.node_down(&[disk(3)]);
    let start = Instant::now();
    for at in 0..50 {
        write(&mut world, &mut handle, at * 10, 10, 2);
    }
    assert!(start.elapsed() < Duration::from_secs(2), "nobody waits for the dead: {:?}", start.elapsed());
    assert_eq!(in_sync(&world.nodes[0].space), 2);
    assert_eq!(world.nodes[2].stores[&disk(3)].peek(VOLUME_OF_TESTS, Lba(9)).unwrap()[..], [1; BLOCK_BYTES]);
    world.restart(2);
    world.join_space(2);
    world.reach_peers(0);
    world.nodes[0].space.node_up(&[disk(3)]);
    world.until("all three are in sync", |world| in_sync(&world.nodes[0].space) == 3);
    for at in 0..500 {
        let block = world.nodes[2].stores[&disk(3)].peek(VOLUME_OF_TESTS, Lba(at)).unwrap();
        assert_eq!(block[..], [2; BLOCK_BYTES], "block {at}");
    }
}

#[test]
fn another_node_takes_the_volume_over_and_the_old_owner_is_fenced() {
    let (mut world, mut handle) = serving(3, Carried::Tcp, Resiliency::ThreeWay);
    write(&mut world, &mut handle, 0, 100, 5);
    let predecessor = Predecessor { owner: Some(NodeId(1)), ..Predecessor::default() };
    let mut taken = world.nodes[1].space.take_over(VOLUME_OF_TESTS, 99 << 32, predecessor);
    serve(&mut world, 1);
    assert_eq!(read(&mut world, &mut taken, 0, 100, None), vec![5; 100 * BLOCK_BYTES]);
    write(&mut world, &mut taken, 0, 100, 6);
    // The old one still believes that it owns it; its writes reach no disk.
    handle.submit(7, SpaceRequest::Write { lba: Lba(0), class: WriteClass::Fresh, data: filled(100, 7) });
    let mut out = Vec::new();
    world.until("the old owner is told", |_| {
        handle.poll(&mut out);
        !out.is_empty()
    });
    assert!(out[0].result.is_err(), "{:?}", out[0].result);
    for copy in 0..3 {
        assert_eq!(read(&mut world, &mut taken, 0, 100, Some(copy)), vec![6; 100 * BLOCK_BYTES]);
    }
}

#[test]
fn connections_that_break_again_and_again_lose_no_acknowledged_write() {
    let (mut world, mut handle) = serving(2, Carried::Tcp, Resiliency::TwoWay);
    for round in 0..30_u8 {
        let data = filled(20, round + 1);
        handle.submit(
            1,
            SpaceRequest::Write { lba: Lba(u64::from(round) * 20), class: WriteClass::Fresh, data },
        );
        if round % 6 == 0 {
            world.pass(Duration::from_millis(u64::from(round) % 7));
            world.nodes[0].remote.kill(NodeId(2));
        }
        let mut out: Vec<SpaceCompletion> = Vec::new();
        world.until("the write is acknowledged", |_| {
            handle.poll(&mut out);
            !out.is_empty()
        });
        assert!(out[0].result.is_ok(), "{:?}", out[0].result);
    }
    world.until("both are in sync", |world| in_sync(&world.nodes[0].space) == 2);
    for round in 0..30_u8 {
        for node in 0..2 {
            let store = &world.nodes[node].stores[&disk(node as u8 + 1)];
            let block = store.peek(VOLUME_OF_TESTS, Lba(u64::from(round) * 20 + 19)).unwrap();
            assert_eq!(block[..], [round + 1; BLOCK_BYTES], "round {round} on node {}", node + 1);
        }
    }
    assert!(world.nodes[0].remote.peers()[0].counters.connections > 3);
}
