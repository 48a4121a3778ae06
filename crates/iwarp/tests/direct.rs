//! Receives straight into registered memory: expected bytes that came, others that came instead, and
//! bytes that are never expected.

mod common;

use common::{Pair, config, fpdu, pattern, payload};
use iwarp::connection::Shape;
use iwarp::connection::direct::{Expected, Plan};
use iwarp::ddp::{Header, Opcode, QUEUE_SEND};
use iwarp::{Access, CrcPolicy, LargeFpdus, SendFlags, Stag, StreamId, TerminateCode, WorkId, WorkStatus};
use proptest::prelude::*;
use sys::BufMut;

const ROOM: Access =
    Access { remote_read: false, remote_write: true, remote_invalidate: true, unspecified_content: true };
const LEN: usize = 400_000;

fn pair(crc: bool, pieces: Vec<usize>) -> Pair {
    let with = || iwarp::Config {
        crc: if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked },
        large_fpdus: LargeFpdus::Always,
        ..config()
    };
    let mut pair = Pair::established_with(with(), with());
    (pair.pieces, pair.planned) = (pieces, true);
    // The responder may speak only after it has heard.
    pair.server.post_receives(40, 4096);
    pair.client.post_receives(40, 4096);
    pair.client.connection.post_send(WorkId(0), payload(b"first"), SendFlags::default()).expect("is taken");
    pair.drive();
    pair.client.completions.clear();
    pair.server.completions.clear();
    pair
}

fn write(pair: &mut Pair, target: Stag, at: usize, bytes: &[u8]) {
    pair.client.connection.post_write(WorkId(1), payload(bytes), target, at as u64).expect("is taken");
}

/// The first FPDU of a long tagged message: length field, header, a page, CRC.
const PAGE_FPDU_BYTES: usize = 2 + 14 + 4096 + 4;

/// Delivers the first 30,000 bytes of a write of the whole region; returns the memory lent for the
/// rest.
fn lend_for_a_long_write(pair: &mut Pair, room: Stag) -> (Plan, BufMut) {
    write(pair, room, 0, &pattern(LEN, 3));
    let (client, server, now) = (&mut pair.client, &mut pair.server, pair.now);
    let bytes = client.connection.poll_transmit(&mut client.memory, LEN, now).expect("bytes").contiguous();
    server.connection.handle_input(&bytes[..30_000], &mut server.memory, now);
    let mut plan = Plan::default();
    let lent =
        server.connection.plan_receive(&mut server.memory, &mut plan).expect("a long write is under way");
    (plan, lent)
}

#[test]
fn a_long_write_into_room_and_a_long_read_are_received_in_place() {
    for crc in [true, false] {
        let mut pair = pair(crc, vec![30_000, 100_000]);
        let bytes = pattern(LEN, 3);
        let room = pair.server.bound_region(&vec![0; LEN], ROOM);
        write(&mut pair, room, 0, &bytes);
        pair.drive();
        assert!(pair.server.memory.bytes(room) == Some(&bytes[..]));
        assert!(pair.server.plans > 0);
        let source = pair.server.region(&bytes, common::ALL);
        let sink = pair.client.bound_region(&vec![0; LEN], Access::default());
        pair.client.connection.post_read(WorkId(2), (sink, 0), LEN as u32, (source, 0)).expect("is taken");
        pair.drive();
        assert!(pair.client.memory.bytes(sink) == Some(&bytes[..]));
        assert!(pair.client.plans > 0);
        assert!(pair.client.completions.iter().all(|done| done.status == WorkStatus::Success));
    }
}

#[test]
fn a_message_that_ends_before_its_room_leaves_nothing_behind_in_what_was_written_before() {
    let mut pair = pair(true, vec![30_000, 250_000]);
    let room = pair.server.bound_region(&vec![0; LEN], ROOM);
    // The second half first: nothing of it may be taken for space when the first half comes.
    let (first, second) = (pattern(130_000, 1), pattern(LEN - 200_000, 2));
    write(&mut pair, room, 200_000, &second);
    write(&mut pair, room, 0, &first);
    pair.client.connection.post_send(WorkId(2), payload(b"done"), SendFlags::default()).expect("is taken");
    pair.drive();
    let held = pair.server.memory.bytes(room).expect("is there");
    assert!(held[..130_000] == first[..] && held[200_000..] == second[..]);
    assert_eq!(pair.server.completions.len(), 1);
}

#[test]
fn memory_with_content_is_received_into_only_where_the_peer_named_it() {
    let mut pair = pair(true, vec![20_000, 250_000]);
    let content = pattern(LEN, 9);
    let region = pair.server.bound_region(&content, Access { unspecified_content: false, ..ROOM });
    let bytes = pattern(61_440 + 20_000, 5);
    write(&mut pair, region, 0, &bytes);
    pair.client.connection.post_send(WorkId(2), payload(&[7; 3000]), SendFlags::default()).expect("is taken");
    pair.drive();
    let held = pair.server.memory.bytes(region).expect("is there");
    assert!(held[..bytes.len()] == bytes[..] && held[bytes.len()..] == content[bytes.len()..]);
}

#[test]
fn memory_that_others_reach_or_that_is_read_is_never_lent() {
    let mut pair = pair(true, vec![20_000]);
    let shared = pair.server.region(&vec![0; LEN], ROOM);
    let read = pair.server.bound_region(&vec![0; LEN], Access { remote_read: true, ..ROOM });
    let bytes = pattern(LEN, 3);
    for region in [shared, read] {
        write(&mut pair, region, 0, &bytes);
        pair.drive();
        assert!(pair.server.memory.bytes(region) == Some(&bytes[..]));
    }
    assert_eq!(pair.server.plans, 0);
}

#[test]
fn a_region_let_go_of_while_it_is_received_into_goes_when_that_is_over() {
    let mut pair = pair(true, vec![usize::MAX]);
    let room = pair.server.bound_region(&vec![0; LEN], ROOM);
    let (plan, lent) = lend_for_a_long_write(&mut pair, room);
    let (server, now) = (&mut pair.server, pair.now);
    assert!(server.memory.bytes(room).is_none());
    assert!(server.memory.deregister(room).is_err());
    assert!(!server.memory.is_valid(room));
    // The peer continues in memory that is gone: it is refused, and nothing is kept.
    let between = vec![0; plan.between_bytes() + 512];
    let first = PAGE_FPDU_BYTES + 16 + 61_440 - 30_000 + 20;
    server.connection.handle_planned(&plan, lent, &between, first, &mut server.memory, now);
    pair.drive();
    assert!(pair.server.terminated.is_some());
    assert_eq!((pair.server.memory.region_count(), pair.server.memory.registered_bytes()), (0, 0));
}

#[test]
fn a_connection_that_ends_while_memory_is_lent_takes_it_back() {
    let mut pair = pair(false, vec![usize::MAX]);
    let room = pair.server.bound_region(&vec![0; LEN], ROOM);
    let (plan, lent) = lend_for_a_long_write(&mut pair, room);
    let (server, now) = (&mut pair.server, pair.now);
    server.connection.handle_closed(&mut server.memory);
    let between = vec![0; plan.between_bytes() + 512];
    server.connection.handle_planned(&plan, lent, &between, 50_000, &mut server.memory, now);
    assert_eq!(server.memory.deregister(room).expect("is not in use").map(|bytes| bytes.len()), Some(LEN));
}

#[test]
fn a_flipped_bit_in_a_payload_received_in_place_ends_the_stream_before_it_is_delivered() {
    let mut pair = pair(true, vec![usize::MAX]);
    let room = pair.server.bound_region(&vec![0; LEN], ROOM);
    write(&mut pair, room, 0, &pattern(LEN, 3));
    pair.client.connection.post_send(WorkId(2), payload(b"done"), SendFlags::default()).expect("is taken");
    let (client, server, now) = (&mut pair.client, &mut pair.server, pair.now);
    let mut bytes = client
        .connection
        .poll_transmit(&mut client.memory, 2 * LEN, now)
        .expect("bytes")
        .contiguous()
        .to_vec();
    bytes[200_000] ^= 4;
    server.connection.handle_input(&bytes[..30_000], &mut server.memory, now);
    server.receive(&bytes[30_000..], now);
    pair.drive();
    assert_eq!(pair.server.terminated, Some((false, TerminateCode::MPA_CRC)));
    assert!(pair.server.completions.iter().all(|done| done.status == WorkStatus::Flushed));
    assert!(pair.server.plans > 0);
}

#[test]
fn room_of_one_stream_is_no_room_for_another() {
    let mut pair = pair(true, vec![usize::MAX]);
    let stags = 0x4321_0000;
    let bytes = sys::BufMut::zeroed(LEN);
    let foreign = pair.server.memory.register(bytes, 0, ROOM, common::DOMAIN, Some(StreamId(8)), stags);
    write(&mut pair, foreign, 0, &pattern(LEN, 3));
    pair.drive();
    assert_eq!(pair.server.terminated, Some((false, TerminateCode::DDP_TAGGED_NOT_ASSOCIATED)));
    assert!(pair.server.memory.bytes(foreign) == Some(&vec![0; LEN][..]));
}

/// The bytes that a write of these bytes to the start of `room` and a message put on the wire.
fn write_on_the_wire(pair: &mut Pair, room: Stag, bytes: &[u8]) -> Vec<u8> {
    write(pair, room, 0, bytes);
    pair.client.connection.post_send(WorkId(2), payload(b"done"), SendFlags::default()).expect("is taken");
    let (client, now) = (&mut pair.client, pair.now);
    client.connection.poll_transmit(&mut client.memory, 2 * LEN, now).expect("bytes").contiguous().to_vec()
}

#[test]
fn a_long_payload_that_came_up_to_a_part_of_its_trailer_is_whole_with_the_rest() {
    const LEN: usize = 50_001;
    // Length field, header, payload, pad and CRC: an FPDU of a page, and one of the rest.
    let payload_end = PAGE_FPDU_BYTES + 2 + 14 + LEN - 4096;
    for crc in [true, false] {
        for cut in payload_end - 2..payload_end + 3 + 4 {
            let mut pair = pair(crc, vec![usize::MAX]);
            let content = vec![0xAB; LEN + 64];
            let room = pair.server.bound_region(&content, ROOM);
            let bytes = pattern(LEN, 3);
            let wire = write_on_the_wire(&mut pair, room, &bytes);
            let (server, now) = (&mut pair.server, pair.now);
            server.connection.handle_input(&wire[..cut], &mut server.memory, now);
            server.receive(&wire[cut..], now);
            pair.drive();
            assert_eq!(pair.server.terminated, None, "cut at {cut}");
            assert_eq!(pair.server.completions.len(), 1);
            let held = pair.server.memory.bytes(room).expect("is there");
            assert!(held[..LEN] == bytes[..] && held[LEN..] == content[LEN..], "cut at {cut}");
        }
    }
}

#[test]
fn a_long_tagged_message_begins_with_a_page_and_long_fpdus_are_expected_behind_it() {
    const LEN: usize = 4096 + 2 * 61_440;
    let mut pair = pair(true, vec![usize::MAX]);
    let room = pair.server.bound_region(&vec![0; LEN], ROOM);
    let bytes = pattern(LEN, 3);
    let wire = write_on_the_wire(&mut pair, room, &bytes);
    let (server, now) = (&mut pair.server, pair.now);
    server.connection.handle_input(&wire[..PAGE_FPDU_BYTES], &mut server.memory, now);
    assert_eq!(server.connection.counters().write_bytes_in, 4096);
    server.connection.handle_input(&wire[PAGE_FPDU_BYTES..PAGE_FPDU_BYTES + 16], &mut server.memory, now);
    let mut plan = Plan::default();
    let lent = server.connection.plan_receive(&mut server.memory, &mut plan).expect("a long write");
    let payloads = plan.pieces.iter().filter_map(|piece| match piece {
        Expected::Payload { at, len_bytes } => Some((*at, *len_bytes)),
        Expected::Between { .. } => None,
    });
    assert_eq!(payloads.collect::<Vec<_>>(), [(4096, 61_440), (65_536, 61_440)]);
    server.connection.give_up_plan(&plan, lent, &mut server.memory);
    server.receive(&wire[PAGE_FPDU_BYTES + 16..], now);
    pair.drive();
    assert_eq!((pair.server.terminated, pair.server.completions.len()), (None, 1));
    assert!(pair.server.memory.bytes(room) == Some(&bytes[..]));
}

#[test]
fn the_short_end_of_a_long_payload_is_received_in_place_too() {
    const LEN: usize = 65_536 + 4096;
    let mut pair = pair(true, vec![usize::MAX]);
    let room = pair.server.bound_region(&vec![0; LEN], ROOM);
    let bytes = pattern(LEN, 3);
    let wire = write_on_the_wire(&mut pair, room, &bytes);
    let (server, now) = (&mut pair.server, pair.now);
    server.connection.handle_input(&wire[..8192], &mut server.memory, now);
    let mut plan = Plan::default();
    let lent = server.connection.plan_receive(&mut server.memory, &mut plan).expect("a write is under way");
    assert_eq!(plan.pieces.last(), Some(&Expected::Payload { at: 65_536, len_bytes: 4096 }));
    server.connection.give_up_plan(&plan, lent, &mut server.memory);
    server.receive(&wire[8192..], now);
    pair.drive();
    assert_eq!(pair.server.plans, 1);
    assert_eq!(pair.server.completions.len(), 1);
    assert!(pair.server.memory.bytes(room) == Some(&bytes[..]));
}

#[test]
fn something_shorter_than_a_header_in_the_place_of_an_expected_payload_ends_the_stream() {
    let mut pair = pair(false, vec![usize::MAX]);
    let room = pair.server.bound_region(&vec![0; LEN], ROOM);
    let wire = write_on_the_wire(&mut pair, room, &pattern(LEN, 3));
    let (server, now) = (&mut pair.server, pair.now);
    let first = PAGE_FPDU_BYTES + 2 + 14 + 61_440 + 4;
    server.connection.handle_input(&wire[..8192], &mut server.memory, now);
    // A ULPDU of 11 bytes, of which the header would have 14.
    let mut wrong = wire[8192..first].to_vec();
    wrong.extend_from_slice(&[0, 11]);
    wrong.extend_from_slice(&[0xC1; 40]);
    server.receive(&wrong, now);
    pair.drive();
    assert!(pair.server.terminated.is_some());
}

#[test]
fn room_takes_memory_when_the_first_byte_is_placed() {
    let mut pair = pair(true, vec![30_000, 100_000]);
    let room =
        pair.server.memory.register_room(LEN, 0, ROOM, common::DOMAIN, Some(common::STREAM), 0x7766_5500);
    assert_eq!(pair.server.memory.registered_bytes(), LEN as u64);
    assert_eq!(pair.server.memory.bytes(room), None);
    let bytes = pattern(LEN, 3);
    write(&mut pair, room, 0, &bytes);
    pair.drive();
    assert!(pair.server.plans > 0);
    let held = pair.server.memory.deregister(room).expect("is not in use");
    assert!(held.as_deref() == Some(&bytes[..]));
    assert_eq!(pair.server.memory.registered_bytes(), 0);
}

#[test]
fn room_that_nothing_was_placed_in_comes_back_as_zeroes() {
    let mut pair = pair(true, vec![usize::MAX]);
    // Bytes that an earlier owner left in memory of that size.
    let earlier = pair.server.bound_region(&vec![0xAB; LEN], ROOM);
    let memory = &mut pair.server.memory;
    drop(memory.deregister(earlier));
    let room = memory.register_room(LEN, 0, ROOM, common::DOMAIN, Some(common::STREAM), 0x7766_5500);
    assert!(memory.deregister(room).expect("is not in use").as_deref() == Some(&vec![0; LEN][..]));
}

#[test]
fn room_is_never_read_by_a_peer() {
    let mut pair = pair(true, vec![usize::MAX]);
    let access = Access { remote_read: true, ..ROOM };
    let memory = &mut pair.server.memory;
    let room = memory.register_room(LEN, 0, access, common::DOMAIN, Some(common::STREAM), 0x7766_5500);
    let sink = pair.client.bound_region(&vec![0; LEN], Access::default());
    pair.client.connection.post_read(WorkId(2), (sink, 0), LEN as u32, (room, 0)).expect("is taken");
    pair.drive();
    assert_eq!(pair.server.terminated, Some((false, TerminateCode::RDMAP_ACCESS)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Writes of any length and order into space, with messages between them: every byte that was named is what was written last.
    #[test]
    fn whatever_comes_instead_of_what_was_expected_every_named_byte_is_right(
        writes in proptest::collection::vec((0usize..LEN, 0usize..220_000, any::<bool>()), 1..12),
        pieces in proptest::collection::vec(prop_oneof![1usize..64, 1000usize..300_000], 1..8),
        crc in any::<bool>(),
    ) {
        let mut pair = pair(crc, pieces);
        let room = pair.server.bound_region(&vec![0; LEN], ROOM);
        let mut model = vec![None; LEN];
        let mut sent = 0;
        for (nth, (at, len, then_send)) in writes.iter().enumerate() {
            let bytes = pattern((*len).min(LEN - at), nth as u8);
            write(&mut pair, room, *at, &bytes);
            for (named, &byte) in model[*at..].iter_mut().zip(&bytes) {
                *named = Some(byte);
            }
            if *then_send {
                let message = payload(&pattern(2000, nth as u8));
                pair.client.connection.post_send(WorkId(2), message, SendFlags::default()).expect("is taken");
                sent += 1;
            }
        }
        pair.drive();
        prop_assert_eq!(pair.server.terminated, None);
        prop_assert_eq!(pair.server.completions.len(), sent);
        let held = pair.server.memory.bytes(room).expect("is there");
        for (at, (named, held)) in model.iter().zip(held).enumerate() {
            prop_assert!(named.is_none_or(|byte| byte == *held), "byte {}", at);
        }
    }
}

#[test]
fn a_long_send_is_whole_wherever_the_stream_is_cut() {
    let bytes = pattern(65_672, 5);
    // Around the headers of its two FPDUs, and anywhere.
    let cuts = (1..60).chain([1460, 4096, 32_768, 61_000]).chain(61_440..61_520);
    for (crc, planned) in [(true, true), (false, true), (true, false)] {
        let mut pair = pair(crc, vec![usize::MAX]);
        pair.planned = planned;
        for cut in cuts.clone() {
            pair.pieces = vec![cut, usize::MAX];
            pair.server.connection.post_receive_later(WorkId(7), bytes.len()).expect("is open");
            // The receives of the fixture come first.
            while pair.server.connection.posted_receives() > 1 {
                pair.client
                    .connection
                    .post_send(WorkId(6), payload(b"short"), SendFlags::default())
                    .expect("is taken");
                pair.drive();
            }
            pair.server.completions.clear();
            pair.client
                .connection
                .post_send(WorkId(8), payload(&bytes), SendFlags::default())
                .expect("is taken");
            pair.drive();
            let done = pair
                .server
                .completions
                .pop_front()
                .unwrap_or_else(|| panic!("cut at {cut}: {:?}", pair.server.terminated));
            assert!(done.buffer.is_some_and(|buffer| buffer[..] == bytes[..]), "cut at {cut}");
        }
    }
}

#[test]
fn the_fpdus_of_a_long_send_begin_with_pages_and_are_expected_so_once_one_was_seen() {
    let with = || iwarp::Config {
        receive_shape: Some(|_| Some(Shape { len_bytes: 136 + (1 << 20), aligned_at: 136 })),
        large_fpdus: LargeFpdus::Always,
        ..config()
    };
    let mut pair = Pair::established_with(with(), with());
    (pair.planned, pair.pieces) = (true, vec![usize::MAX]);
    let (head, data) = (payload(&pattern(136, 1)), payload(&pattern(1 << 20, 2)));
    let mut message = head.clone();
    message.append(data.clone());
    let whole = message.contiguous();
    for further in [57_344 + 136, 61_440] {
        pair.server.connection.post_receive_later(WorkId(7), whole.len()).expect("is open");
        let sent = pair.client.connection.post_send(WorkId(8), message.clone(), SendFlags::default());
        sent.expect("is taken");
        let (client, server, now) = (&mut pair.client, &mut pair.server, pair.now);
        let wire = client.connection.poll_transmit(&mut client.memory, 2 << 20, now).expect("bytes");
        let wire = wire.contiguous();
        server.connection.handle_input(&wire[..1020], &mut server.memory, now);
        let mut plan = Plan::default();
        let lent = server.connection.plan_receive(&mut server.memory, &mut plan).expect("a long Send");
        let payloads = plan.pieces.iter().filter_map(|piece| match piece {
            Expected::Payload { len_bytes, .. } => Some(*len_bytes),
            Expected::Between { .. } => None,
        });
        assert_eq!(payloads.take(3).collect::<Vec<_>>(), [57_344 + 136 - 1000, further, further]);
        server.connection.give_up_plan(&plan, lent, &mut server.memory);
        server.receive(&wire[1020..], now);
        pair.drive();
        let buffer = pair.server.completions.pop_front().and_then(|done| done.buffer).expect("it came");
        assert!(buffer[..] == whole[..]);
    }
    let words = data.parts()[0].page_words().expect("whole pages");
    assert!(words.iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0));
}

#[test]
fn a_message_that_comes_whole_takes_only_the_memory_it_needs_and_a_long_payload_lies_at_a_page() {
    let with = || iwarp::Config {
        receive_shape: Some(|_| Some(Shape { len_bytes: usize::MAX, aligned_at: 136 })),
        large_fpdus: LargeFpdus::Always,
        ..config()
    };
    let mut pair = Pair::established_with(with(), with());
    for (len_bytes, retained_max) in
        [(200, 4096), (136 + 4096, 8192), (136 + 16_384, 20_480), (65_672, 69_632)]
    {
        pair.server.connection.post_receive_later(WorkId(7), 65_672).expect("is open");
        let bytes = pattern(len_bytes, 9);
        pair.client.connection.post_send(WorkId(8), payload(&bytes), SendFlags::default()).expect("is taken");
        pair.drive();
        let buffer = pair.server.completions.pop_front().and_then(|done| done.buffer).expect("it came");
        assert!(buffer[..] == bytes[..]);
        assert!(buffer.retained_bytes() <= retained_max, "{len_bytes}: {}", buffer.retained_bytes());
        let at = buffer.as_ptr() as usize;
        assert!(len_bytes < 16_384 || (at + 136).is_multiple_of(4096), "{len_bytes}");
        pair.client.completions.clear();
    }
}

#[test]
fn a_message_longer_than_its_first_bytes_say_comes_whole_and_one_longer_than_its_receive_does_not() {
    for (cut, crc) in [(1000, true), (5000, false), (30_000, true), (70_000, false)] {
        let with = || iwarp::Config {
            crc: if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked },
            receive_shape: Some(|first| first.first().map(|_| Shape { len_bytes: 100, aligned_at: 136 })),
            large_fpdus: LargeFpdus::Always,
            ..config()
        };
        let mut pair = Pair::established_with(with(), with());
        (pair.pieces, pair.planned) = (vec![cut], true);
        for len_bytes in [99, 101, 20_000, 65_672, 100_000] {
            pair.server.connection.post_receive_later(WorkId(7), 100_000).expect("is open");
            let bytes = pattern(len_bytes, 9);
            let sent = pair.client.connection.post_send(WorkId(8), payload(&bytes), SendFlags::default());
            sent.expect("is taken");
            pair.drive();
            let buffer = pair.server.completions.pop_front().and_then(|done| done.buffer).expect("it came");
            assert!(buffer[..] == bytes[..], "{len_bytes} in pieces of {cut}");
        }
        pair.server.connection.post_receive_later(WorkId(7), 100_000).expect("is open");
        let bytes = pattern(100_001, 9);
        pair.client.connection.post_send(WorkId(8), payload(&bytes), SendFlags::default()).expect("is taken");
        pair.drive();
        assert_eq!(pair.server.terminated, Some((false, TerminateCode::DDP_UNTAGGED_TOO_LONG)));
    }
}

/// A pair whose server has no receives posted but these.
fn pair_for_sends(crc: bool, pieces: Vec<usize>, receives: u64, len_bytes: usize) -> Pair {
    let mut pair = pair(crc, pieces);
    for number in 0..39 {
        pair.client
            .connection
            .post_send(WorkId(number), payload(b"uses one"), SendFlags::default())
            .expect("is taken");
    }
    pair.drive();
    pair.client.completions.clear();
    pair.server.completions.clear();
    for id in 0..receives {
        // Both kinds of them.
        if id.is_multiple_of(2) {
            pair.server.connection.post_receive_later(WorkId(id), len_bytes).expect("is taken");
        } else {
            pair.server.connection.post_receive(WorkId(id), BufMut::zeroed(len_bytes)).expect("is taken");
        }
    }
    pair
}

fn received(pair: &Pair) -> Vec<&[u8]> {
    let buffers = pair.server.completions.iter().map(|done| done.buffer.as_deref());
    buffers.map(|buffer| buffer.expect("a receive has one")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn sends_of_any_length_arrive_whole_however_the_stream_is_cut(
        crc: bool,
        lens in prop::collection::vec(prop_oneof![1..300_usize, 15_000..70_000_usize, 100_000..200_000_usize], 1..8),
        pieces in prop::collection::vec(1..90_000_usize, 1..6),
    ) {
        let mut pair = pair_for_sends(crc, pieces, lens.len() as u64, 200_000);
        let messages: Vec<Vec<u8>> = lens.iter().enumerate().map(|(nth, len)| pattern(*len, nth as u8)).collect();
        for message in &messages {
            pair.client.connection.post_send(WorkId(1), payload(message), SendFlags::default()).expect("is taken");
        }
        pair.drive();
        prop_assert!(pair.server.terminated.is_none(), "{:?}", pair.server.terminated);
        prop_assert!(received(&pair) == messages);
        prop_assert!(pair.server.terminated.is_none());
    }
}

/// Makes a message whose first bytes announce its length, for [`told`].
fn telling(told_bytes: usize, len_bytes: usize, seed: u8) -> Vec<u8> {
    let mut message = pattern(len_bytes, seed);
    for (byte, told) in message.iter_mut().zip((told_bytes as u32).to_be_bytes()) {
        *byte = told;
    }
    message
}

fn told(first: &[u8]) -> Option<Shape> {
    let told = first.first_chunk::<4>()?;
    Some(Shape { len_bytes: u32::from_be_bytes(*told) as usize, aligned_at: 136 })
}

fn pair_that_is_told(crc: bool, pieces: Vec<usize>, receives: u64) -> Pair {
    let with = || iwarp::Config {
        crc: if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked },
        large_fpdus: LargeFpdus::Always,
        receive_shape: Some(told),
        ..config()
    };
    let mut pair = Pair::established_with(with(), with());
    (pair.pieces, pair.planned) = (pieces, true);
    for id in 0..receives {
        pair.server.connection.post_receive_later(WorkId(id), 500_000).expect("is taken");
    }
    pair
}

#[test]
fn a_send_that_tells_its_length_is_planned_to_its_end() {
    for crc in [true, false] {
        for len_bytes in [65_672, 61_440, 61_441, 130_000, LEN] {
            let mut pair = pair_that_is_told(crc, vec![20_000, usize::MAX], 1);
            let bytes = telling(len_bytes, len_bytes, 3);
            pair.client
                .connection
                .post_send(WorkId(1), payload(&bytes), SendFlags::default())
                .expect("is taken");
            pair.drive();
            // The longest payload has seven FPDUs, which leave in two pieces.
            assert_eq!(pair.server.plans, if len_bytes == LEN { 2 } else { 1 }, "{len_bytes}");
            let buffer = pair.server.completions.pop_front().and_then(|done| done.buffer).expect("it came");
            assert!(buffer[..] == bytes[..], "{len_bytes}");
        }
    }
}

#[test]
fn what_comes_behind_a_message_that_is_shorter_than_it_tells_is_never_taken_for_it() {
    for len_bytes in [30_000, 61_440, 61_441, 2 * 61_440, 2 * 61_440 + 5] {
        let mut pair = pair_that_is_told(true, vec![20_000, usize::MAX], 2);
        let (first, second) = (telling(LEN, len_bytes, 3), telling(LEN, LEN, 4));
        for message in [&first, &second] {
            pair.client
                .connection
                .post_send(WorkId(1), payload(message), SendFlags::default())
                .expect("is taken");
        }
        pair.drive();
        assert!(received(&pair)[0] == first);
        // A message that ended when an FPDU of it was expected has left with the bytes behind it.
        let is_lost = len_bytes == 2 * 61_440;
        let expected = is_lost.then_some((false, TerminateCode::DDP_UNTAGGED_TOO_LONG));
        assert_eq!(pair.server.terminated, expected, "{len_bytes}");
        assert!(is_lost || received(&pair)[1] == second, "{len_bytes}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn sends_that_tell_their_length_or_less_arrive_whole_however_the_stream_is_cut(
        crc: bool,
        lens in prop::collection::vec(
            (prop_oneof![4..300_usize, 15_000..70_000_usize, 100_000..400_000_usize], prop_oneof![Just(0), 1..90_000_usize]),
            1..8,
        ),
        pieces in prop::collection::vec(prop_oneof![1..90_000_usize, 200_000..600_000_usize], 1..6),
    ) {
        let mut pair = pair_that_is_told(crc, pieces, lens.len() as u64);
        let tell = |(nth, (len, less)): (usize, &(usize, usize))| telling(len.saturating_sub(*less), *len, nth as u8);
        let messages: Vec<Vec<u8>> = lens.iter().enumerate().map(tell).collect();
        for message in &messages {
            pair.client.connection.post_send(WorkId(1), payload(message), SendFlags::default()).expect("is taken");
        }
        pair.drive();
        prop_assert!(pair.server.terminated.is_none(), "{:?}", pair.server.terminated);
        prop_assert!(received(&pair) == messages);
        prop_assert!(pair.server.terminated.is_none());
    }
}

#[test]
fn a_short_message_is_not_planned_and_a_long_one_to_its_end() {
    let with = || iwarp::Config {
        large_fpdus: LargeFpdus::Always,
        planned_bytes_min: 128 << 10,
        crc: CrcPolicy::On,
        ..config()
    };
    let mut pair = Pair::established_with(with(), with());
    pair.planned = true;
    pair.server.post_receives(10, 4096);
    pair.client.connection.post_send(WorkId(0), payload(b"first"), SendFlags::default()).expect("is taken");
    pair.drive();
    for (len, planned) in [(100_000, false), (LEN, true), (100_000, false)] {
        let room = pair.server.bound_region(&vec![0; len], ROOM);
        let bytes = pattern(len, 3);
        let wire = write_on_the_wire(&mut pair, room, &bytes);
        let (server, now, rest) = (&mut pair.server, pair.now, wire.len() - 20_000);
        server.plans = 0;
        server.connection.handle_input(&wire[..30_000], &mut server.memory, now);
        server.receive(&wire[30_000..rest], now);
        assert_eq!((server.plans > 0, server.connection.wants_plan(&server.memory)), (planned, planned));
        server.receive(&wire[rest..], now);
        assert!(server.memory.bytes(room) == Some(&bytes[..]));
    }
}

#[test]
fn a_plan_has_no_more_pieces_than_one_receive_takes_however_short_the_peers_fpdus_are() {
    let mut pair = pair_that_is_told(true, vec![usize::MAX], 2);
    let segment = |sequence, at: usize, message: &[u8], len_bytes: usize| {
        let header = Header::Untagged {
            opcode: Opcode::Send,
            last: at + len_bytes == message.len(),
            invalidate: Stag(0),
            queue: QUEUE_SEND,
            sequence,
            message_offset: at as u32,
        };
        fpdu(header, &[], &message[at..at + len_bytes], true)
    };
    // The first message ends in FPDUs of four bytes: such are expected of the next message too.
    let first = telling(20_008, 20_008, 1);
    let (server, now) = (&mut pair.server, pair.now);
    for (at, len_bytes) in [(0, 20_000), (20_000, 4), (20_004, 4)] {
        server.receive(&segment(1, at, &first, len_bytes), now);
    }
    let second = telling(430_000, 430_000, 2);
    let begin = segment(2, 0, &second, 30_000);
    server.receive(&begin[..10_000], now);
    let mut plan = Plan::default();
    let lent = server.connection.plan_receive(&mut server.memory, &mut plan).expect("much is to come");
    assert!((100..=513).contains(&plan.pieces.len()), "{}", plan.pieces.len());
    server.connection.give_up_plan(&plan, lent, &mut server.memory);
    let rest: Vec<u8> =
        (0..40).flat_map(|nth| segment(2, 30_000 + nth * 10_000, &second, 10_000).to_vec()).collect();
    server.receive(&[&begin[10_000..], &rest].concat(), now);
    pair.drive();
    assert_eq!(pair.server.terminated, None);
    assert!(received(&pair) == [first, second]);
}
