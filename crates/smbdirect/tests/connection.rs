//! Two ends of SMB Direct in virtual time.

use proptest::prelude::*;
use smbdirect::wire::{DataTransfer, NegotiateRequest, NegotiateResponse, VERSION};
use smbdirect::{CloseReason, Config, Connection, Event};
use std::collections::VecDeque;
use std::time::Duration;
use sys::{Buf, Payload};
use types::Monotonic;

const NOW: Monotonic = Monotonic(1);

struct End {
    connection: Connection,
    posted: u32,
    inbox: VecDeque<Buf>,
    messages: Vec<Vec<u8>>,
    closed: Option<CloseReason>,
    invalidated: Vec<u32>,
}

impl End {
    fn new(connection: Connection) -> Self {
        let (inbox, messages, invalidated) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { connection, posted: 0, inbox, messages, closed: None, invalidated }
    }

    fn receive(&mut self, bytes: Buf, now: Monotonic) {
        let message = self.connection.handle_receive(bytes, now);
        self.messages.extend(message.map(|message| message.to_vec()));
    }

    fn events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Established => {}
                Event::PostReceives(count) => {
                    self.posted += u32::from(count);
                    self.connection.receives_posted(count);
                }
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
    }
}

struct Pair([End; 2]);

impl Pair {
    fn new(client: Config, server: Config) -> Self {
        Self([End::new(Connection::connect(client, NOW)), End::new(Connection::listen(server, NOW))])
    }

    fn established(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server);
        pair.drive();
        assert!(pair.0.iter().all(|end| end.connection.is_established()));
        pair
    }

    fn step(&mut self, at: usize) -> bool {
        self.0[at].events();
        let mut moved = false;
        if let Some(out) = self.0[at].connection.poll_transmit() {
            self.0[1 - at].inbox.push_back(out.whole().contiguous());
            self.0[1 - at].invalidated.extend(out.invalidate);
            moved = true;
        }
        if let Some(bytes) = self.0[at].inbox.pop_front() {
            assert!(self.0[at].posted > 0, "a Send arrived without a posted receive");
            assert!(bytes.len() <= self.0[at].connection.receive_bytes_max() as usize);
            self.0[at].posted -= 1;
            self.0[at].receive(bytes, NOW);
            moved = true;
        }
        self.0[at].events();
        moved
    }

    /// As an owner does that sends at once what may leave so.
    fn send(&mut self, at: usize, bytes: &[u8]) {
        if let Some(head) = self.0[at].connection.begin_transfer(bytes.len(), false) {
            self.0[1 - at].inbox.push_back(Buf::from(&[&head, bytes].concat()[..]));
        } else {
            self.0[at].connection.send(Payload::from(Buf::from(bytes)), None).expect("fits");
        }
    }

    fn drive(&mut self) {
        let mut rounds = 0;
        while self.step(0) | self.step(1) {
            rounds += 1;
            assert!(rounds < 100_000, "the ends never fall silent");
        }
    }
}

fn request() -> NegotiateRequest {
    NegotiateRequest {
        version_min: VERSION,
        version_max: VERSION,
        credits_requested: 255,
        preferred_send_bytes: 1364,
        receive_bytes_max: 1364,
        fragmented_bytes_max: 1 << 20,
    }
}

#[test]
fn sizes_are_bounded_by_both_ends_and_the_server_answers_with_the_bounded_ones() {
    let mut server = End::new(Connection::listen(Config::default(), NOW));
    server.events();
    server.receive(Buf::from(&request().encode()[..]), NOW);
    server.events();
    let response = server.connection.poll_transmit().expect("a response").whole().contiguous();
    let response = NegotiateResponse::parse(&response).expect("is one");
    assert_eq!(response.preferred_send_bytes, 1364, "cifs.ko drops the connection for more than it receives");
    assert_eq!(response.receive_bytes_max, 1364);
    assert_eq!(response.credits_granted, 255);
}

#[test]
fn out_of_bounds_negotiations_are_dropped_and_other_versions_are_answered() {
    for (bad, reason) in [
        (NegotiateRequest { credits_requested: 0, ..request() }, "no credits requested"),
        (NegotiateRequest { receive_bytes_max: 127, ..request() }, "MaxReceiveSize under 128"),
        (NegotiateRequest { fragmented_bytes_max: 131_071, ..request() }, "MaxFragmentedSize under 131072"),
    ] {
        let mut server = End::new(Connection::listen(Config::default(), NOW));
        server.receive(Buf::from(&bad.encode()[..]), NOW);
        server.events();
        assert_eq!(server.closed, Some(CloseReason::Bounds(reason)));
    }
    let mut server = End::new(Connection::listen(Config::default(), NOW));
    let other = NegotiateRequest { version_min: 0x0200, version_max: 0x0300, ..request() };
    server.receive(Buf::from(&other.encode()[..]), NOW);
    let response = server.connection.poll_transmit().expect("a response").whole().contiguous();
    assert_eq!(NegotiateResponse::parse(&response).map(|r| r.status), Ok(types::NtStatus::NOT_SUPPORTED));
    server.events();
    assert_eq!(server.closed, Some(CloseReason::Version));
}

#[test]
fn a_peer_that_sends_without_credit_or_overlong_fragments_is_disconnected() {
    let transfer = |remaining_bytes, data: &[u8]| {
        let header = DataTransfer {
            credits_requested: 10,
            credits_granted: 0,
            flags: 0,
            remaining_bytes,
            data_offset: 24,
            data_bytes: data.len() as u32,
        };
        Buf::from(&[&header.encode().0[..], data].concat()[..])
    };
    let mut pair = Pair::established(Config::default(), Config::default());
    pair.0[1].receive(transfer(2 << 20, b"x"), NOW);
    pair.0[1].events();
    assert_eq!(pair.0[1].closed, Some(CloseReason::Fragments));

    let mut pair = Pair::established(Config::default(), Config::default());
    pair.0[1].receive(transfer(100, b"x"), NOW);
    pair.0[1].receive(transfer(100, b"y"), NOW);
    pair.0[1].events();
    assert_eq!(pair.0[1].closed, Some(CloseReason::Fragments));

    let few = Config { receive_credits_max: 3, ..Config::default() };
    let mut pair = Pair::established(Config::default(), few);
    for _ in 0..4 {
        pair.0[1].receive(transfer(0, b"x"), NOW);
    }
    pair.0[1].events();
    assert_eq!(pair.0[1].closed, Some(CloseReason::CreditUnderflow));
}

#[test]
fn an_idle_connection_asks_and_a_silent_peer_is_disconnected() {
    let mut pair = Pair::established(Config::default(), Config::default());
    let idle = NOW.after(Duration::from_secs(120));
    pair.0[0].connection.handle_timeout(idle);
    let asked = pair.0[0].connection.poll_transmit().expect("a keepalive").whole().contiguous();
    assert_eq!(DataTransfer::parse(&asked).map(|t| (t.flags, t.data_bytes)), Ok((1, 0)));
    pair.0[1].receive(asked, idle);
    let answer = pair.0[1].connection.poll_transmit().expect("an answer").whole().contiguous();
    let answered_at = idle.after(Duration::from_secs(1));
    pair.0[0].receive(answer, answered_at);
    pair.0[0].connection.handle_timeout(idle.after(Duration::from_secs(5)));
    pair.0[0].events();
    assert_eq!(pair.0[0].closed, None);
    let next = answered_at.after(Duration::from_secs(120));
    pair.0[0].connection.handle_timeout(next);
    pair.0[0].connection.handle_timeout(next.after(Duration::from_secs(5)));
    pair.0[0].events();
    assert_eq!(pair.0[0].closed, Some(CloseReason::TimedOut));
}

#[test]
fn a_remote_invalidation_goes_with_the_last_fragment() {
    let mut pair = Pair::established(Config::default(), Config::default());
    pair.0[1].connection.send(Payload::from(Buf::from(&[7; 20_000][..])), Some(0xBEEF)).expect("fits");
    pair.drive();
    assert_eq!(pair.0[0].messages, [vec![7; 20_000]]);
    assert_eq!(pair.0[0].invalidated, [0xBEEF]);
}

#[test]
fn a_transfer_leaves_at_once_only_where_nothing_waits_and_it_has_a_credit_and_room() {
    let config = Config { receive_credits_max: 4, send_credit_target: 4, ..Config::default() };
    assert!(Connection::connect(config, NOW).begin_transfer(10, false).is_none());
    let mut pair = Pair::established(config, config);
    let client = &mut pair.0[0].connection;
    let longest = client.send_bytes_max() as usize - 24;
    assert!(client.begin_transfer(0, false).is_none());
    assert!(client.begin_transfer(longest + 1, false).is_none());
    let before = client.counters();
    let head = client.begin_transfer(longest, true).expect("may leave");
    let transfer = DataTransfer::parse(&[&head[..], &vec![0; longest]].concat()).expect("is one");
    assert_eq!((transfer.data_offset, transfer.data_bytes), (24, longest as u32));
    let after = client.counters();
    assert_eq!(after.transfers_sent, before.transfers_sent + 1);
    assert_eq!(after.messages_sent, before.messages_sent + 1);
    assert_eq!(after.remote_invalidations, before.remote_invalidations + 1);
    // Waiting messages go first, and the last credit is kept for a grant.
    client.send(Payload::from(Buf::from(&b"waits"[..])), None).expect("fits");
    assert!(client.begin_transfer(10, false).is_none());
    assert!(client.poll_transmit().is_some());
    while client.begin_transfer(10, false).is_some() {}
    assert_eq!(client.send_credits(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn messages_of_any_size_arrive_whole_and_in_order_with_any_credits(
        sizes in proptest::collection::vec((0usize..2, 1usize..60_000), 1..30),
        credits in (1u16..10, 1u16..10),
        receive in (128u32..9000, 128u32..9000),
        at_once: bool,
    ) {
        let config = |credits, receive_bytes_max| Config {
            receive_credits_max: credits,
            send_credit_target: credits,
            receive_bytes_max,
            ..Config::default()
        };
        let mut pair = Pair::established(config(credits.0, receive.0), config(credits.1, receive.1));
        let mut sent = [Vec::new(), Vec::new()];
        for (at, (from, size)) in sizes.iter().enumerate() {
            let bytes = vec![at as u8; *size];
            if at_once {
                pair.send(*from, &bytes);
            } else {
                pair.0[*from].connection.send(Payload::from(Buf::from(&bytes[..])), None).expect("fits");
            }
            sent[*from].push(bytes);
        }
        pair.drive();
        prop_assert_eq!(&pair.0[0].closed, &None);
        prop_assert!(pair.0[1].messages == sent[0]);
        prop_assert!(pair.0[0].messages == sent[1]);
    }

    #[test]
    fn no_received_bytes_do_more_than_close_the_connection(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for mut pair in [
            Pair::new(Config::default(), Config::default()),
            Pair::established(Config::default(), Config::default()),
        ] {
            for end in &mut pair.0 {
                end.receive(Buf::from(&bytes[..]), NOW);
                let _ = end.connection.poll_transmit();
            }
        }
    }

    #[test]
    fn descriptor_arrays_are_taken_whole_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        if let Ok(descriptors) = smbdirect::parse_descriptors(&bytes) {
            let back: Vec<u8> = descriptors.iter().flat_map(|one| one.encode()).collect();
            prop_assert_eq!(back, bytes);
        }
    }
}

#[test]
fn the_first_bytes_of_a_transfer_say_how_long_it_is_and_where_its_payload_lies() {
    use smbdirect::{READ_PAYLOAD_AT, TransferShape, WRITE_PAYLOAD_AT, transfer_shape};
    let mut first = vec![0; 24];
    first[12..16].copy_from_slice(&24u32.to_le_bytes());
    first[16..20].copy_from_slice(&65_700u32.to_le_bytes());
    assert_eq!(transfer_shape(&first), None);
    first.extend_from_slice(b"\xFESMB");
    let shape = TransferShape { len_bytes: 65_724, payload_at: WRITE_PAYLOAD_AT };
    assert_eq!(transfer_shape(&first), Some(shape));
    assert_eq!(shape.read_payload_at(), READ_PAYLOAD_AT);
    first[24] = 0xFD;
    assert_eq!(transfer_shape(&first), Some(TransferShape { payload_at: WRITE_PAYLOAD_AT + 52, ..shape }));
    first[12..20].fill(0xFF);
    assert_eq!(transfer_shape(&first), None);
}
