//! A peer that breaks the rules: the stream is terminated with the code that names it, nothing is placed outside a registration, nothing
//! is delivered.

mod common;

use common::{ALL, DOMAIN, End, Pair, config, fpdu, pattern};
use iwarp::crc::crc32c;
use iwarp::ddp::{Header, Opcode, QUEUE_READ_REQUEST, QUEUE_SEND, ReadRequest};
use iwarp::framing::pad_bytes;
use iwarp::mpa::{Enhanced, FrameKind, StartFrame};
use iwarp::{Access, Config, Connection, SendFlags, Stag, StreamId, TerminateCode, WorkId, WorkStatus};
use proptest::prelude::*;
use std::time::Duration;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

fn send(sequence: u32, message_offset: u32, last: bool, payload: &[u8]) -> Buf {
    let (opcode, invalidate, queue) = (Opcode::Send, Stag(0), QUEUE_SEND);
    fpdu(Header::Untagged { opcode, last, invalidate, queue, sequence, message_offset }, &[], payload, true)
}

fn write(stag: Stag, offset: u64, last: bool, payload: &[u8]) -> Buf {
    fpdu(Header::Tagged { opcode: Opcode::Write, last, stag, offset }, &[], payload, true)
}

fn read_request(sequence: u32, source: Stag, source_offset: u64, len_bytes: u32) -> Buf {
    let request = ReadRequest { sink: Stag(9), sink_offset: 0, len_bytes, source, source_offset };
    let (opcode, invalidate, queue) = (Opcode::ReadRequest, Stag(0), QUEUE_READ_REQUEST);
    let header = Header::Untagged { opcode, last: true, invalidate, queue, sequence, message_offset: 0 };
    fpdu(header, &request.encode(), &[], true)
}

/// Feeds bytes to the server of an established pair; gives the code it terminates with.
fn server_says(prepare: impl FnOnce(&mut End) -> Vec<Buf>) -> (Option<TerminateCode>, Pair) {
    let mut pair = Pair::established();
    for bytes in prepare(&mut pair.server) {
        pair.server.connection.handle_input(&bytes, &mut pair.server.memory, pair.now);
    }
    pair.drive();
    (pair.server.terminated.map(|(_, code)| code), pair)
}

#[test]
fn guessed_stale_and_foreign_stags_are_refused() {
    let (code, _) = server_says(|_| vec![write(Stag(0x5555_5555), 0, true, b"x")]);
    assert_eq!(code, Some(TerminateCode::DDP_TAGGED_STAG));
    let (code, _) = server_says(|server| {
        let stag = server.region(&[0; 16], ALL);
        server.memory.deregister(stag).expect("is not in use");
        vec![write(stag, 0, true, b"x")]
    });
    assert_eq!(code, Some(TerminateCode::DDP_TAGGED_STAG));
    let (code, _) = server_says(|server| {
        let stag = server.region(&[0; 16], Access { remote_read: true, ..Access::default() });
        vec![write(stag, 0, true, b"x")]
    });
    assert_eq!(code, Some(TerminateCode::RDMAP_ACCESS));
}

#[test]
fn nothing_is_placed_out_of_bounds_or_by_a_wrapped_offset() {
    for (offset, expected) in [
        (10, TerminateCode::DDP_TAGGED_BOUNDS),
        (1 << 40, TerminateCode::DDP_TAGGED_BOUNDS),
        (u64::MAX - 3, TerminateCode::DDP_TAGGED_WRAP),
    ] {
        let mut stag = Stag(0);
        let (code, pair) = server_says(|server| {
            stag = server.region(&[0; 16], ALL);
            vec![write(stag, offset, true, b"0123456789")]
        });
        assert_eq!(code, Some(expected));
        assert_eq!(pair.server.memory.bytes(stag), Some(&[0; 16][..]));
        assert_eq!(pair.client.terminated, Some((true, expected)), "the peer is told");
    }
}

#[test]
fn a_write_that_is_continued_elsewhere_is_refused() {
    let (code, _) = server_says(|server| {
        let stag = server.region(&[0; 64], ALL);
        vec![write(stag, 0, false, b"0123"), write(stag, 32, true, b"4567")]
    });
    assert_eq!(code, Some(TerminateCode::DDP_TAGGED_BOUNDS));
}

#[test]
fn sends_out_of_sequence_without_buffer_or_too_long_are_refused() {
    for (posted, bytes, expected) in [
        (1, vec![send(2, 0, true, b"x")], TerminateCode::DDP_UNTAGGED_SEQUENCE),
        (0, vec![send(1, 0, true, b"x")], TerminateCode::DDP_UNTAGGED_NO_BUFFER),
        (1, vec![send(1, 0, true, b"x"), send(2, 0, true, b"y")], TerminateCode::DDP_UNTAGGED_NO_BUFFER),
        (1, vec![send(1, 4, true, b"x")], TerminateCode::DDP_UNTAGGED_OFFSET),
        (1, vec![send(1, 0, false, b"0123"), send(1, 8, true, b"4")], TerminateCode::DDP_UNTAGGED_OFFSET),
        (1, vec![send(1, 0, true, &[7; 65])], TerminateCode::DDP_UNTAGGED_TOO_LONG),
    ] {
        let (code, _) = server_says(|server| {
            server.post_receives(posted, 64);
            bytes
        });
        assert_eq!(code, Some(expected));
    }
}

#[test]
fn a_peer_that_asks_for_more_reads_than_were_advertised_is_terminated() {
    let mut pair = Pair::established_with(config(), iwarp::Config { inbound_read_depth: 2, ..config() });
    let source = pair.server.region(&pattern(64, 0), ALL);
    for sequence in 1..=3 {
        let bytes = read_request(sequence, source, 0, 64);
        pair.server.connection.handle_input(&bytes, &mut pair.server.memory, pair.now);
    }
    pair.drive();
    assert_eq!(pair.server.terminated.map(|(_, code)| code), Some(TerminateCode::DDP_UNTAGGED_NO_BUFFER));
}

#[test]
fn a_read_of_no_bytes_keeps_no_region_of_another_stream_busy() {
    let mut pair = Pair::established();
    let memory = &mut pair.server.memory;
    let theirs =
        memory.register(BufMut::zeroed(64), 0, Access::default(), DOMAIN, Some(StreamId(8)), 0x4242_4200);
    // The read's answer is not sent yet.
    pair.server.connection.handle_input(&read_request(1, theirs, 0, 0), memory, pair.now);
    let bytes = memory.deregister(theirs).expect("nobody uses it");
    assert_eq!(bytes.map(|bytes| bytes.len()), Some(64));
}

#[test]
fn reads_of_what_is_not_granted_are_refused_with_the_codes_of_rdmap() {
    for (offset, len, access, expected) in [
        (0, 65, ALL, TerminateCode::RDMAP_BOUNDS),
        (u64::MAX - 1, 8, ALL, TerminateCode::RDMAP_WRAP),
        (0, 8, Access { remote_write: true, ..Access::default() }, TerminateCode::RDMAP_ACCESS),
    ] {
        let (code, _) = server_says(|server| {
            let source = server.region(&[1; 64], access);
            vec![read_request(1, source, offset, len)]
        });
        assert_eq!(code, Some(expected));
    }
    let (code, _) = server_says(|_| vec![read_request(1, Stag(3), 0, 8)]);
    assert_eq!(code, Some(TerminateCode::RDMAP_INVALID_STAG));
}

#[test]
fn a_read_response_that_nobody_asked_for_is_refused() {
    let (code, _) = server_says(|server| {
        let stag = server.region(&[0; 16], ALL);
        vec![fpdu(
            Header::Tagged { opcode: Opcode::ReadResponse, last: true, stag, offset: 0 },
            &[],
            b"x",
            true,
        )]
    });
    assert_eq!(code, Some(TerminateCode::RDMAP_OPCODE));
}

#[test]
fn opcodes_that_were_not_agreed_end_the_stream_as_rfc_7306_says() {
    for opcode in [Opcode::Immediate, Opcode::AtomicRequest, Opcode::Flush] {
        let header = Header::Untagged {
            opcode,
            last: true,
            invalidate: Stag(0),
            queue: opcode.queue(),
            sequence: 1,
            message_offset: 0,
        };
        let (code, _) = server_says(|_| vec![fpdu(header, &[], &[0; 8], true)]);
        assert_eq!(code, Some(TerminateCode::RDMAP_OPCODE));
    }
}

#[test]
fn a_flipped_bit_is_found_before_delivery_and_placement() {
    let mut stag = Stag(0);
    let (code, pair) = server_says(|server| {
        stag = server.region(&[0; 64], ALL);
        let mut bytes = write(stag, 0, true, &[9; 64]).to_vec();
        bytes[30] ^= 0x10;
        vec![Buf::from(&bytes[..])]
    });
    assert_eq!(code, Some(TerminateCode::MPA_CRC));
    assert_eq!(pair.server.memory.bytes(stag), Some(&[0; 64][..]));
}

#[test]
fn a_flipped_bit_in_a_directly_placed_payload_ends_the_stream() {
    let (code, _) = server_says(|server| {
        let stag = server.region(&vec![0; 60_000], ALL);
        let mut bytes = write(stag, 0, true, &pattern(60_000, 1)).to_vec();
        bytes[59_000] ^= 1;
        bytes.chunks(1000).map(Buf::from).collect()
    });
    assert_eq!(code, Some(TerminateCode::MPA_CRC));
}

/// Returns the initiator's reaction to a reply with this block.
fn initiator_says(block: Enhanced) -> (Option<TerminateCode>, Connection) {
    let mut memory = iwarp::Memory::new();
    let config = Config { inbound_read_depth: 4, ..config() };
    let mut client = Connection::connect(config, b"", Monotonic(1));
    client.poll_transmit(&mut memory, 1000, Monotonic(1)).expect("the request");
    let reply = StartFrame {
        kind: FrameKind::Reply,
        markers: false,
        crc: true,
        reject: false,
        revision: 2,
        enhanced: Some(block),
        private_data: Vec::new(),
    };
    client.handle_input(&reply.encode(), &mut memory, Monotonic(1));
    let mut said = None;
    while let Some(event) = client.poll_event() {
        if let iwarp::Event::Terminated { by_peer: false, code } = event {
            said = Some(code);
        }
    }
    if let Some(code) = said {
        // Length, DDP header, then layer and type, code.
        let terminate =
            client.poll_transmit(&mut memory, 1000, Monotonic(1)).expect("a Terminate").contiguous();
        assert_eq!(TerminateCode::parse(&terminate[20..24]), Some(code));
    }
    (said, client)
}

#[test]
fn a_reply_that_wants_more_reads_than_can_be_served_or_a_message_never_offered_is_terminated() {
    let wants =
        |outbound_read_depth| Enhanced { inbound_read_depth: 8, outbound_read_depth, ..Enhanced::default() };
    assert_eq!(initiator_says(wants(4)).0, None);
    let (said, client) = initiator_says(wants(128));
    assert_eq!((said, client.agreed().inbound_read_depth), (None, 128), "siw asks for that");
    assert_eq!(initiator_says(wants(129)).0, Some(TerminateCode::MPA_INSUFFICIENT_READ_DEPTH));
    assert_eq!(initiator_says(wants(0x3FFF)).0, None, "it negotiates nothing");
    let peer_to_peer = Enhanced { peer_to_peer: true, rtr_write: true, ..wants(4) };
    assert_eq!(initiator_says(peer_to_peer).0, Some(TerminateCode::MPA_NO_READY_TO_RECEIVE));
}

#[test]
fn bytes_before_the_reply_and_bytes_that_are_no_mpa_close_the_connection() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], &[0xFF; 40]] {
        let mut server = Connection::listen(config(), Monotonic(1));
        let mut memory = iwarp::Memory::new();
        server.handle_input(bytes, &mut memory, Monotonic(1));
        assert!(server.is_closed());
        assert!(server.poll_transmit(&mut memory, 1000, Monotonic(1)).is_none());
    }
}

#[test]
fn a_peer_that_says_nothing_is_closed_in_time() {
    let mut pair = Pair::new(config(), config());
    pair.client.connection.handle_timeout(pair.now.after(Duration::from_secs(5)), &mut pair.client.memory);
    assert!(pair.client.connection.is_closed());
    pair.server.connection.handle_timeout(pair.now.after(Duration::from_secs(9)), &mut pair.server.memory);
    assert!(!pair.server.connection.is_closed());
    pair.server.connection.handle_timeout(pair.now.after(Duration::from_secs(10)), &mut pair.server.memory);
    assert!(pair.server.connection.is_closed());
}

#[test]
fn a_lost_connection_gives_back_all_work_and_all_buffers() {
    let mut pair = Pair::established();
    pair.client.post_receives(3, 64);
    let sink = pair.client.region(&[0; 64], Access::default());
    pair.client.connection.post_read(WorkId(1), (sink, 0), 64, (Stag(8), 0)).expect("is taken");
    pair.client.connection.post_send(WorkId(2), Payload::new(), SendFlags::default()).expect("is taken");
    pair.client.connection.handle_closed(&mut pair.client.memory);
    pair.drive();
    assert_eq!(pair.client.completions.len(), 5);
    assert!(pair.client.completions.iter().all(|done| done.status == WorkStatus::Flushed));
    assert!(pair.client.memory.deregister(sink).is_ok());
}

#[test]
fn an_idle_connection_holds_little_memory() {
    let mut pair = Pair::established();
    let stag = pair.server.region(&vec![0; 100_000], ALL);
    pair.pieces = vec![777];
    let bytes = common::payload(&pattern(100_000, 1));
    pair.client.connection.post_write(WorkId(1), bytes, stag, 0).expect("is taken");
    pair.drive();
    assert!(pair.server.connection.retained_bytes() <= 4096);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Well-framed rubbish: no panic, and nothing placed outside the one region.
    #[test]
    fn random_segments_never_do_harm(
        segments in proptest::collection::vec((any::<[u8; 18]>(), proptest::collection::vec(any::<u8>(), 0..80)), 1..6),
        opcode in 0u8..16,
    ) {
        let (_, pair) = server_says(|server| {
            server.post_receives(2, 64);
            segments
                .iter()
                .map(|(header, payload)| {
                    let mut ulpdu = header.to_vec();
                    ulpdu[0] = ulpdu[0] & 0xC0 | 1;
                    ulpdu[1] = 0x40 | opcode;
                    ulpdu.extend(payload);
                    let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
                    fpdu.extend(&ulpdu);
                    fpdu.resize(fpdu.len() + pad_bytes(ulpdu.len()), 0);
                    fpdu.extend(crc32c(&fpdu));
                    Buf::from(&fpdu[..])
                })
                .collect()
        });
        prop_assert!(pair.server.completions.len() <= 2);
    }
}
