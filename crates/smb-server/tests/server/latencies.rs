//! How long requests take, and which of them fail: as an administrator is shown it.

use crate::fixture::*;
use smb::wire::*;
use smb_server::RequestKind;
use std::time::Duration;
use volume::backend::Event;

fn counts(world: &mut World) -> [u64; 3] {
    world.server.record_latencies(world.now);
    RequestKind::ALL.map(|kind| world.server.latency(kind).count())
}

#[test]
fn a_request_takes_from_its_arrival_to_the_time_at_which_its_answer_is_handed_over() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    assert_eq!(counts(&mut world)[RequestKind::Read as usize], 0);
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    let read = client.build(Command::Read, Client::read_body(file, 4096));
    client.send(&mut world, read);
    assert!(!world.server.has_noted_latencies(), "it is not answered yet");
    world.wait(Duration::from_millis(3));
    world.layer.release(0);
    world.run_until_idle();
    client.receive(&mut world).unwrap();
    assert!(world.server.has_noted_latencies());
    world.server.record_latencies(world.now.after(Duration::from_millis(1)));
    let reads = world.server.latency(RequestKind::Read);
    assert_eq!((reads.count(), reads.sum()), (1, Duration::from_millis(4)));
}

#[test]
fn what_waits_for_another_client_is_not_measured() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let before = counts(&mut world);
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    let lock = client.build(Command::Lock, |out| {
        let element =
            LockElement { length: 1.into(), flags: LOCK_FLAG_EXCLUSIVE.into(), ..Default::default() };
        write_lock_request(out, LockRequestBody { file_id: file, ..Default::default() }, &[element]);
    });
    client.send(&mut world, lock);
    let operation = world.layer.0.borrow().asked[0].0;
    world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
    world.run_until_idle();
    client.receive(&mut world).expect("the client is told that it waits");
    world.wait(Duration::from_secs(60));
    world.layer.release(0);
    world.run_until_idle();
    client.receive(&mut world).expect("the lock");
    assert_eq!(counts(&mut world), before);
}

#[test]
fn errors_are_counted_by_kind_and_a_logon_in_two_exchanges_is_none() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    assert_eq!(world.server.counters().errors, [0, 0, 0]);
    let nothing = FileId::default();
    client.call(&mut world, Command::Read, Client::read_body(nothing, 4096));
    client.call(&mut world, Command::Write, Client::write_body(nothing, b"data"));
    client.call(&mut world, Command::Write, Client::write_body(nothing, b"data"));
    client.call(&mut world, Command::Close, Client::close_body(nothing));
    assert_eq!(world.server.counters().errors, [1, 2, 1]);
}
