//! The bytes themselves: vectors of the RFCs, headers, start-up frames.

use iwarp::crc::crc32c;
use iwarp::ddp::{Header, Opcode};
use iwarp::framing::{Framed, fpdu_bytes, frame, pad_bytes};
use iwarp::mpa::{Enhanced, FrameKind, LegacyDepths, StartFrame};
use iwarp::{Stag, TerminateCode};
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("is hex"))
        .collect()
}

/// RFC 5044 figures 5 and 6, without and with a marker in front.
#[test]
fn crc_matches_the_figures_of_rfc_5044() {
    let fpdu = [hex("002a 4143 00000000 00000000 00000001 00000000"), vec![0; 24]].concat();
    assert_eq!(crc32c(&fpdu), [0xb7, 0x24, 0x3e, 0xc3]);
    let marked = [hex("00000000"), fpdu].concat();
    assert_eq!(crc32c(&marked), [0x52, 0x23, 0x99, 0x83]);
}

#[test]
fn an_fpdu_is_a_multiple_of_four_bytes_and_its_pad_is_not_counted() {
    for ulpdu in 0..64 {
        assert_eq!(fpdu_bytes(ulpdu) % 4, 0);
        assert!(pad_bytes(ulpdu) < 4);
    }
    let mut bytes = hex("002a 4143 00000000 00000000 00000001 00000000");
    bytes.extend([0; 24]);
    bytes.extend([0xb7, 0x24, 0x3e, 0xc3]);
    assert!(matches!(frame(&bytes, true), Framed::Whole { ulpdu, len_bytes: 48 } if ulpdu.len() == 42));
    bytes[20] ^= 1;
    assert_eq!(frame(&bytes, true), Framed::Corrupt);
    assert!(matches!(frame(&bytes, false), Framed::Whole { .. }));
}

#[test]
fn control_bytes_are_those_of_rfc_5040() {
    for (opcode, tagged, expected) in [
        (Opcode::Write, true, [0xC1, 0x40]),
        (Opcode::ReadRequest, false, [0x41, 0x41]),
        (Opcode::ReadResponse, true, [0xC1, 0x42]),
        (Opcode::Send, false, [0x41, 0x43]),
        (Opcode::SendInvalidate, false, [0x41, 0x44]),
        (Opcode::SendSolicited, false, [0x41, 0x45]),
        (Opcode::SendSolicitedInvalidate, false, [0x41, 0x46]),
        (Opcode::Terminate, false, [0x41, 0x47]),
    ] {
        let header = if tagged {
            Header::Tagged { opcode, last: true, stag: Stag(1), offset: 2 }
        } else {
            let (invalidate, queue) = (Stag(0), opcode.queue());
            Header::Untagged { opcode, last: true, invalidate, queue, sequence: 1, message_offset: 0 }
        };
        let mut bytes = [0; 18];
        let len = header.write(&mut bytes);
        assert_eq!(bytes[..2], expected);
        assert_eq!(Header::parse(&bytes[..len]), Ok(header));
    }
}

#[test]
fn what_is_wrong_with_a_header_is_named_by_its_layer() {
    let mut header = [0; 18];
    header[..2].copy_from_slice(&[0x41, 0x43]);
    let with = |at: usize, value: u8| {
        let mut bytes = header;
        bytes[at] = value;
        Header::parse(&bytes)
    };
    assert_eq!(with(0, 0x42), Err(TerminateCode::DDP_UNTAGGED_VERSION));
    assert_eq!(with(0, 0xC2), Err(TerminateCode::DDP_TAGGED_VERSION));
    assert_eq!(with(1, 0x83), Err(TerminateCode::RDMAP_VERSION));
    assert_eq!(with(1, 0x4D), Err(TerminateCode::RDMAP_OPCODE));
    assert_eq!(with(0, 0xC1), Err(TerminateCode::RDMAP_OPCODE));
    assert_eq!(with(9, 9), Err(TerminateCode::DDP_UNTAGGED_QUEUE));
    assert_eq!(Header::parse(&header[..10]), Err(TerminateCode::MPA_LENGTH));
}

#[test]
fn a_start_frame_stands_on_the_wire_as_rfc_6581_draws_it() {
    let block = Enhanced {
        peer_to_peer: true,
        rtr_write: true,
        inbound_read_depth: 32,
        outbound_read_depth: 16,
        ..Enhanced::default()
    };
    let request = StartFrame {
        kind: FrameKind::Request,
        markers: false,
        crc: true,
        reject: false,
        revision: 2,
        enhanced: Some(block),
        private_data: b"pd".to_vec(),
    };
    let bytes = request.encode();
    assert_eq!(bytes, [&b"MPA ID Req Frame"[..], &[0x50, 2, 0, 6, 0x80, 32, 0x80, 16], b"pd"].concat());
    assert_eq!(StartFrame::parse(FrameKind::Request, &bytes), Ok(Some((request, bytes.len()))));
    assert!(StartFrame::parse(FrameKind::Request, b"GET / HTTP").is_err());
    assert_eq!(StartFrame::parse(FrameKind::Request, b"MPA ID"), Ok(None));
}

#[test]
fn smb_direct_depths_are_read_in_either_byte_order() {
    assert_eq!(
        LegacyDepths::parse(&hex("00000020 00000010")),
        Some(LegacyDepths { inbound: 32, outbound: 16 })
    );
    assert_eq!(
        LegacyDepths::parse(&hex("20000000 10000000")),
        Some(LegacyDepths { inbound: 32, outbound: 16 })
    );
    assert_eq!(LegacyDepths::parse(&hex("00000020 00000000")), None);
    assert_eq!(LegacyDepths::parse(b"other"), None);
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_fail_otherwise_than_by_saying_so(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let _ = Header::parse(&bytes);
        let _ = frame(&bytes, true);
        let _ = StartFrame::parse(FrameKind::Reply, &bytes);
        let keyed = [&b"MPA ID Rep Frame"[..], &bytes].concat();
        let _ = StartFrame::parse(FrameKind::Reply, &keyed);
        let _ = TerminateCode::parse(&bytes);
    }
}
