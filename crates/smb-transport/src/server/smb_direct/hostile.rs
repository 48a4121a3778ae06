//! A peer that breaks the rules of SMB Direct: its connection ends, nothing it held stays, and the connection beside it continues.

use super::tests::{Bench, pattern};
use super::{SmbDirectEvent, SmbDirectLimits};
use rdma::iwarp::IwarpOptions;
use rdma::{QueuePairId, RegionKey, Verbs, WorkId};
use smbdirect::wire::{DataTransfer, NegotiateRequest, NegotiateResponse};
use std::time::Duration;
use sys::{Buf, Payload};
use types::NtStatus;

/// A negotiated connection on which nothing is sent except by the test.
fn negotiated(bench: &mut Bench) -> QueuePairId {
    let pair = bench.connect();
    for _ in 0..300 {
        bench.client.post_receive(pair, WorkId(0), 8192).expect("is open");
    }
    let request = NegotiateRequest {
        version_min: 0x0100,
        version_max: 0x0100,
        credits_requested: 255,
        preferred_send_bytes: 8192,
        receive_bytes_max: 8192,
        fragmented_bytes_max: 1 << 20,
    };
    say(bench, pair, &request.encode());
    bench.until("negotiation", |bench| bench.received.iter().any(|(from, _)| *from == pair));
    bench.received.clear();
    pair
}

fn say(bench: &mut Bench, pair: QueuePairId, bytes: &[u8]) {
    // A connection that ended meanwhile takes no more.
    let _ = bench.client.post_send(pair, WorkId(0), Payload::from(Buf::from(bytes)), None);
}

fn transfer(granted: u16, remaining_bytes: u32, data: &[u8]) -> Vec<u8> {
    let transfer = DataTransfer {
        credits_requested: 255,
        credits_granted: granted,
        flags: 0,
        remaining_bytes,
        data_offset: if data.is_empty() { 0 } else { 24 },
        data_bytes: data.len() as u32,
    };
    let (header, len) = transfer.encode();
    [&header[..len], data].concat()
}

/// Lets a peer say something; wants its connection closed, everything of it given back, and the other to continue.
fn ends_it(name: &str, act: impl FnOnce(&mut Bench, QueuePairId)) {
    let mut bench = Bench::new();
    let pair = negotiated(&mut bench);
    assert_eq!(bench.server.connection_count(), 2);
    act(&mut bench, pair);
    bench.until(name, |bench| bench.lost.contains(&pair) && bench.server.connection_count() == 1);
    assert_eq!(bench.server.verbs.registered(), (0, 0), "{name}: nothing stays registered");
    goes_on(&mut bench);
}

fn goes_on(bench: &mut Bench) {
    assert!(!bench.disconnected);
    let connection = bench.opened().expect("is open");
    let (before, message) = (bench.server_messages().len(), pattern(100_000));
    bench.smbd.send(Payload::from(Buf::from(&message[..])), None).expect("fits");
    bench.until("message", |bench| bench.server_messages().len() > before);
    assert_eq!(bench.server_messages().last(), Some(&message));
    bench.server.send(connection, Payload::from(Buf::from(&message[..])), None);
    bench.until("answer", |bench| bench.messages.last() == Some(&message));
}

#[test]
fn transfers_without_a_credit() {
    // The client grants no credits, so it is granted none beyond those of the negotiation.
    ends_it("credit underflow", |bench, pair| {
        for _ in 0..300 {
            say(bench, pair, &transfer(0, 0, &[]));
        }
    });
}

#[test]
fn more_credits_than_there_can_be() {
    ends_it("credit overdraft", |bench, pair| {
        for _ in 0..3 {
            say(bench, pair, &transfer(u16::MAX, 0, &[]));
        }
    });
}

#[test]
fn a_message_longer_than_was_agreed() {
    ends_it("overlong message", |bench, pair| say(bench, pair, &transfer(1, 1 << 30, &[1; 100])));
}

#[test]
fn fragments_that_never_end() {
    ends_it("endless fragments", |bench, pair| {
        for _ in 0..20 {
            say(bench, pair, &transfer(1, 1 << 19, &[1; 8000]));
        }
    });
}

#[test]
fn a_long_message_before_a_logon() {
    ends_it("fragments of a guest", |bench, pair| say(bench, pair, &transfer(1, 70_000, &[1; 100])));
    ends_it("transfer of a guest", |bench, pair| say(bench, pair, &transfer(1, 0, &vec![1; 70_000])));
}

#[test]
fn connections_without_a_logon_keep_no_other_out() {
    let limits = SmbDirectLimits { connections: 4, ..SmbDirectLimits::default() };
    let mut bench = Bench::with(limits);
    let guests: Vec<_> = (0..10).map(|_| bench.connect()).collect();
    bench.until("eviction", |bench| guests[..8].iter().all(|guest| bench.lost.contains(guest)));
    assert!(bench.server.connection_count() <= 4);
    assert!(!bench.lost.contains(&guests[9]), "the last one got in");
    goes_on(&mut bench);
}

#[test]
fn fragments_that_promise_more_and_carry_nothing() {
    ends_it("empty fragment", |bench, pair| say(bench, pair, &transfer(1, 100, &[])));
}

#[test]
fn data_outside_of_its_transfer() {
    ends_it("data offset", |bench, pair| {
        let mut bytes = transfer(1, 0, &[1; 64]);
        bytes[12..16].copy_from_slice(&4096u32.to_le_bytes());
        say(bench, pair, &bytes);
    });
    ends_it("data length", |bench, pair| {
        let mut bytes = transfer(1, 0, &[1; 64]);
        bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        say(bench, pair, &bytes);
    });
}

#[test]
fn a_transfer_shorter_than_its_header() {
    ends_it("short transfer", |bench, pair| say(bench, pair, &[1, 0, 1]));
}

#[test]
fn a_transfer_longer_than_a_receive() {
    ends_it("long transfer", |bench, pair| say(bench, pair, &[0; 9000]));
}

#[test]
fn a_negotiation_longer_than_a_receive() {
    let mut bench = Bench::new();
    let pair = bench.connect();
    bench.client.post_receive(pair, WorkId(0), 8192).expect("is open");
    // Longer receives are only for members.
    say(&mut bench, pair, &[0; 60_000]);
    bench.until("end", |bench| bench.lost.contains(&pair) && bench.server.connection_count() == 1);
    goes_on(&mut bench);
}

#[test]
fn a_write_to_memory_that_was_never_offered() {
    ends_it("guessed STag", |bench, pair| {
        let payload = Payload::from(Buf::from(&[1; 100][..]));
        let _ = bench.client.post_write(pair, WorkId(0), payload, (RegionKey(0x1234_5678), 0));
    });
}

#[test]
fn a_negotiation_out_of_bounds() {
    let mut bench = Bench::new();
    let pair = bench.connect();
    bench.client.post_receive(pair, WorkId(0), 8192).expect("is open");
    let request = NegotiateRequest {
        version_min: 0x0100,
        version_max: 0x0100,
        credits_requested: 0,
        preferred_send_bytes: 0,
        receive_bytes_max: 0,
        fragmented_bytes_max: 0,
    };
    say(&mut bench, pair, &request.encode());
    bench.until("end", |bench| bench.lost.contains(&pair) && bench.server.connection_count() == 1);
    goes_on(&mut bench);
}

/// The server's name of the connection that came last.
fn last_opened(bench: &mut Bench, before: usize) -> QueuePairId {
    let opened = |bench: &Bench| {
        let names = bench.events.iter().filter_map(|event| match event {
            SmbDirectEvent::Opened { connection, .. } => Some(*connection),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    bench.until("opening", |bench| opened(bench).len() > before);
    opened(bench)[before]
}

#[test]
fn a_peer_that_says_much_and_takes_no_answer() {
    let limits = SmbDirectLimits { stall: Duration::from_secs(2), ..SmbDirectLimits::default() };
    let mut bench = Bench::with(limits);
    let pair = negotiated(&mut bench);
    let connection = last_opened(&mut bench, 1);
    say(&mut bench, pair, &transfer(1, 0, &[1; 100]));
    bench.until("message", |bench| bench.server_messages().len() == 1);
    bench.server.send(connection, Payload::from(Buf::from(&pattern(500_000)[..])), None);
    assert!(bench.server.unsent_bytes(connection) > 400_000, "it has a credit for 8 KiB of them");
    // The client sends, but grants nothing: none of its messages may restart its timeout.
    let mut said = 0;
    while !bench.lost.contains(&pair) {
        let before = said;
        if said < 250 {
            say(&mut bench, pair, &transfer(0, 0, &[]));
            said += 1;
        }
        let rounds = std::cell::Cell::new(0);
        bench.until("end", |bench| {
            rounds.set(rounds.get() + 1);
            rounds.get() > 20 || bench.lost.contains(&pair)
        });
        assert!(before < 250, "it is still there");
    }
    goes_on(&mut bench);
}

#[test]
fn messages_that_are_begun_take_a_share_and_end_in_time() {
    let limits = SmbDirectLimits {
        receiving_bytes_max: 16 * (256 << 10),
        guest_message_time: Duration::from_secs(1000),
        ..SmbDirectLimits::default()
    };
    let mut bench = Bench::with(limits);
    let pairs: Vec<_> = (0..20).map(|_| negotiated(&mut bench)).collect();
    for pair in &pairs {
        say(&mut bench, *pair, &transfer(1, 56_000, &[1; 8000]));
    }
    // Each takes 32,000 bytes of the same host, which alone gets half of the guests' memory.
    bench.until("refusals", |bench| {
        assert!(bench.server.kept_bytes() <= 128 << 10, "{}", bench.server.kept_bytes());
        bench.lost.len() == 16
    });
    assert_eq!(bench.server.kept_bytes(), 4 * 32_000);
    bench.server.limits.guest_message_time = Duration::from_millis(100);
    bench.until("end", |bench| bench.lost.len() == 20);
    assert_eq!(bench.server.kept_bytes(), 0);
    goes_on(&mut bench);
}

#[test]
fn messages_that_are_held_take_a_share() {
    let limits = SmbDirectLimits { receiving_bytes_max: 16 << 20, ..SmbDirectLimits::default() };
    let mut bench = Bench::with(limits);
    let connection = bench.opened().expect("is open");
    let taken = (0..16).take_while(|_| bench.server.hold(connection, 1 << 20)).count();
    assert_eq!(taken, 8, "half of what members may hold");
    bench.server.throttle(connection, false);
    assert_eq!(bench.server.kept_bytes(), 0);
    assert!(bench.server.hold(connection, 1 << 20));
    bench.server.throttle(connection, false);
    goes_on(&mut bench);
}

#[test]
fn a_version_that_there_is_not() {
    let mut bench = Bench::new();
    let pair = bench.connect();
    bench.client.post_receive(pair, WorkId(0), 8192).expect("is open");
    let request = NegotiateRequest {
        version_min: 0x0200,
        version_max: 0x0300,
        credits_requested: 10,
        preferred_send_bytes: 8192,
        receive_bytes_max: 8192,
        fragmented_bytes_max: 1 << 20,
    };
    say(&mut bench, pair, &request.encode());
    bench.until("end", |bench| bench.lost.contains(&pair) && bench.server.connection_count() == 1);
    let (_, refusal) = bench.received.iter().find(|(from, _)| *from == pair).expect("it is told");
    assert_eq!(NegotiateResponse::parse(refusal).map(|told| told.status), Ok(NtStatus::NOT_SUPPORTED));
    goes_on(&mut bench);
}

#[test]
fn receives_of_a_device_count_against_the_user_and_beyond_its_share_there_are_few() {
    let hardware = IwarpOptions { receives_on_demand: false, ..IwarpOptions::default() };
    // Two MiB are the receives of one connection, and half of fifteen sixteenths a user's.
    let limits = SmbDirectLimits { receiving_bytes_max: 9 << 20, ..SmbDirectLimits::default() };
    let mut bench = Bench::over(hardware, limits);
    let receives = 255 * 8192;
    assert_eq!(bench.server.kept_bytes(), receives, "the bench's own connection");
    let credits =
        |bench: &Bench, connection| bench.server.show(connection).map(|shown| shown.receive_credits);
    let mut more = Vec::new();
    for number in 1..4 {
        let pair = negotiated(&mut bench);
        let connection = last_opened(&mut bench, number);
        assert!(credits(&bench, connection) <= Some(3), "a guest");
        bench.server.become_member(connection, "user");
        // Posted receives are granted when the peer has used up its earlier credits.
        (0..2).for_each(|_| say(&mut bench, pair, &transfer(10, 0, &[])));
        more.push((pair, connection));
    }
    bench.until("receives", |bench| credits(bench, more[0].1) > Some(200));
    assert_eq!(bench.server.kept_bytes(), 2 * receives);
    assert!(credits(&bench, more[1].1) <= Some(3) && credits(&bench, more[2].1) <= Some(3));
    // A receive that becomes free goes to a connection that waited.
    bench.client.disconnect(more[0].0);
    bench.until("end", |bench| bench.lost.contains(&more[0].0) || bench.server.show(more[0].1).is_none());
    (0..2).for_each(|_| say(&mut bench, more[1].0, &transfer(10, 0, &[])));
    bench.until("receives of the next", |bench| credits(bench, more[1].1) > Some(200));
    assert_eq!(bench.server.kept_bytes(), 2 * receives);
}
