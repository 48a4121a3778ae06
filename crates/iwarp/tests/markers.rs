//! A peer that asks for markers gets them (RFC 5044 section 4.3): at every 512th byte of the stream, pointing back, counted in the CRC.

mod common;

use common::{ALL, End, config, fpdu, pattern, payload};
use iwarp::crc::crc32c;
use iwarp::ddp::{Header, Opcode, QUEUE_SEND};
use iwarp::framing::{Framed, Head, Outgoing, frame};
use iwarp::markers::{Markers, ulpdu_bytes_for_segment};
use iwarp::mpa::{FrameKind, StartFrame};
use iwarp::{Connection, CrcPolicy, SendFlags, Stag, TerminateCode, WorkId};
use proptest::prelude::*;
use types::Monotonic;

/// A Send whose ULPDU has `ulpdu_bytes`.
fn send(sequence: u32, ulpdu_bytes: usize) -> Outgoing {
    let header = Header::Untagged {
        opcode: Opcode::Send,
        last: true,
        invalidate: Stag(0),
        queue: QUEUE_SEND,
        sequence,
        message_offset: 0,
    };
    let mut out = Outgoing::default();
    out.push_whole(&header, &Head::EMPTY, payload(&vec![0; ulpdu_bytes - header.len_bytes()]), true);
    out
}

/// RFC 5044 figures 5 and 6: a marker before the first FPDU, and one within an FPDU.
#[test]
fn markers_and_crc_are_those_of_the_figures_of_rfc_5044() {
    let first = Markers::default().join(&send(1, 42), true).contiguous();
    assert_eq!(first[..8], [0, 0, 0, 0, 0, 0x2a, 0x41, 0x43]);
    assert_eq!(first[48..], [0x52, 0x23, 0x99, 0x83]);
    let second = Markers::at(492).join(&send(2, 42), true).contiguous();
    assert_eq!(second[20..24], [0, 0, 0, 0x14]);
    assert_eq!(second[48..], [0x84, 0x92, 0x58, 0x98]);
}

#[test]
fn an_fpdu_with_its_markers_fits_the_segment() {
    for segment_bytes in [512, 536, 1448, 1460, 8960] {
        let ulpdu_bytes = ulpdu_bytes_for_segment(segment_bytes);
        for position in (0..512).step_by(4) {
            let sent = Markers::at(position).join(&send(1, ulpdu_bytes), true);
            assert!(sent.len() <= segment_bytes, "{} bytes in a segment of {segment_bytes}", sent.len());
        }
    }
}

/// Takes the markers out of a stream that begins at its first FPDU; checks pointers and CRCs.
fn without_markers(stream: &[u8], crc: bool) -> Vec<u8> {
    let is_marker = |at: usize| at.is_multiple_of(512);
    let mut plain = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let first = at;
        if is_marker(at) {
            assert_eq!(
                stream[at..at + 4],
                [0, 0, 0, 0],
                "a marker between FPDUs points to the one behind it"
            );
            at += 4;
        }
        let start = at;
        let begins = plain.len();
        let length = usize::from(u16::from_be_bytes([stream[at], stream[at + 1]]));
        let mut left = iwarp::framing::fpdu_bytes(length);
        while left > 0 {
            if is_marker(at) {
                let pointer = usize::from(u16::from_be_bytes([stream[at + 2], stream[at + 3]]));
                assert_eq!((stream[at], stream[at + 1], pointer), (0, 0, at - start));
                at += 4;
            }
            if left == 4 {
                assert!(
                    !crc || crc32c(&stream[first..at]) == stream[at..at + 4],
                    "the CRC covers the markers"
                );
            }
            plain.extend_from_slice(&stream[at..at + 4]);
            at += 4;
            left -= 4;
        }
        // The reader has no markers to count.
        let end = plain.len() - 4;
        let sum = crc32c(&plain[begins..end]);
        plain[end..].copy_from_slice(&sum);
    }
    plain
}

/// A server whose client asked for markers, and the bytes that it sends from its first FPDU on.
fn marked(crc: bool, act: impl FnOnce(&mut End)) -> Vec<u8> {
    let policy = if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked };
    let mut server = End::new(Connection::listen(iwarp::Config { crc: policy, ..config() }, Monotonic(1)));
    let request = StartFrame {
        kind: FrameKind::Request,
        markers: true,
        crc,
        reject: false,
        revision: 1,
        enhanced: None,
        private_data: Vec::new(),
    };
    let now = Monotonic(1);
    server.connection.handle_input(&request.encode(), &mut server.memory, now);
    server.connection.accept(b"", now).expect("a request waits");
    server.post_receives(1, 16);
    let reply = server.connection.poll_transmit(&mut server.memory, 1000, now).expect("a reply").contiguous();
    let (reply, _) = StartFrame::parse(FrameKind::Reply, &reply).expect("is a frame").expect("is whole");
    assert!(!reply.reject && !reply.markers, "it asks for none itself");
    let header = Header::Untagged {
        opcode: Opcode::Send,
        last: true,
        invalidate: Stag(0),
        queue: QUEUE_SEND,
        sequence: 1,
        message_offset: 0,
    };
    server.connection.handle_input(&fpdu(header, &[], b"go", crc), &mut server.memory, now);
    assert!(server.connection.is_flowing() && server.connection.agreed().markers);
    act(&mut server);
    let mut sent = Vec::new();
    while let Some(bytes) = server.connection.poll_transmit(&mut server.memory, 3000, now) {
        sent.extend_from_slice(&bytes.contiguous());
    }
    assert_eq!(server.connection.counters().sent_bytes, sent.len() as u64);
    sent
}

proptest! {
    #[test]
    fn messages_of_any_length_come_out_of_a_marked_stream(
        lengths in proptest::collection::vec(1usize..5000, 1..8),
        crc in any::<bool>(),
    ) {
        let bytes = pattern(5000, 3);
        let sent = marked(crc, |server| {
            for (at, length) in lengths.iter().enumerate() {
                let post = server.connection.post_send(
                    WorkId(at as u64),
                    payload(&bytes[..*length]),
                    SendFlags::default(),
                );
                post.expect("is open");
            }
        });
        let plain = without_markers(&sent, crc);
        let (mut rest, mut messages, mut message) = (&plain[..], Vec::new(), Vec::new());
        while !rest.is_empty() {
            let Framed::Whole { ulpdu, len_bytes } = frame(rest, true) else { panic!("no whole FPDU") };
            let Ok(Header::Untagged { opcode: Opcode::Send, last, message_offset, .. }) = Header::parse(ulpdu) else {
                panic!("no Send")
            };
            prop_assert_eq!(message_offset as usize, message.len());
            message.extend_from_slice(&ulpdu[18..]);
            if last {
                messages.push(std::mem::take(&mut message));
            }
            rest = &rest[len_bytes..];
        }
        prop_assert_eq!(messages.len(), lengths.len());
        for (message, length) in messages.iter().zip(&lengths) {
            prop_assert_eq!(&message[..], &bytes[..*length]);
        }
    }
}

#[test]
fn a_terminate_is_marked_too() {
    let sent = marked(true, |server| {
        server.region(&[1; 64], ALL);
        // A message for which there is no receive.
        let header = Header::Untagged {
            opcode: Opcode::Send,
            last: true,
            invalidate: Stag(0),
            queue: QUEUE_SEND,
            sequence: 2,
            message_offset: 0,
        };
        server.connection.handle_input(&fpdu(header, &[], b"more", true), &mut server.memory, Monotonic(1));
    });
    let plain = without_markers(&sent, true);
    let Framed::Whole { ulpdu, .. } = frame(&plain, true) else { panic!("no whole FPDU") };
    assert_eq!(Header::parse(ulpdu).map(|header| header.opcode()), Ok(Opcode::Terminate));
    assert_eq!(TerminateCode::parse(&ulpdu[18..]), Some(TerminateCode::DDP_UNTAGGED_NO_BUFFER));
}
