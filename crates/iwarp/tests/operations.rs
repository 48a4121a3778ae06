//! Operations between two well-behaved ends.

mod common;

use common::{ALL, DOMAIN, Pair, config, pattern, payload};
use iwarp::connection::HEAD_BYTES_MAX;
use iwarp::ddp::{AtomicOperation, Header};
use iwarp::framing::fpdu_bytes;
use iwarp::mpa::Extension;
use iwarp::{
    CompletionKind, CrcPolicy, Invalidate, LargeFpdus, PostError, SendFlags, StreamId, WorkId, WorkStatus,
};
use proptest::prelude::*;
use sys::BufMut;

#[test]
fn an_initiator_and_a_responder_meet_and_exchange_private_data() {
    let mut pair = Pair::new(config(), config());
    pair.drive();
    assert_eq!(pair.client.events, ["established"]);
    assert_eq!(pair.server.events, ["request", "established"]);
    assert_eq!(pair.client.private_data, b"welcome");
    assert!(pair.client.connection.agreed().crc);
}

#[test]
fn a_rejected_initiator_learns_why_and_both_close() {
    let mut pair = Pair::new(config(), config());
    pair.accept = false;
    pair.drive();
    assert_eq!(pair.client.events, ["rejected", "closed"]);
    assert_eq!(pair.client.private_data, b"no");
    pair.pass(std::time::Duration::from_secs(3));
    assert!(pair.server.connection.is_closed());
}

#[test]
fn crc_is_used_where_either_end_wants_it() {
    for (client, server, expected) in [
        (CrcPolicy::On, CrcPolicy::OffUnlessAsked, true),
        (CrcPolicy::OffUnlessAsked, CrcPolicy::On, true),
        (CrcPolicy::OffUnlessAsked, CrcPolicy::OffUnlessAsked, false),
    ] {
        let with = |crc| iwarp::Config { crc, ..config() };
        let pair = Pair::established_with(with(client), with(server));
        assert_eq!(pair.client.connection.agreed().crc, expected);
        assert_eq!(pair.server.connection.agreed().crc, expected);
    }
}

#[test]
fn read_depths_are_bounded_by_what_the_other_end_serves() {
    let client = iwarp::Config { inbound_read_depth: 4, outbound_read_depth: 100, ..config() };
    let server = iwarp::Config { inbound_read_depth: 8, outbound_read_depth: 100, ..config() };
    let pair = Pair::established_with(client, server);
    assert_eq!(pair.client.connection.agreed().outbound_read_depth, 8);
    assert_eq!(pair.server.connection.agreed().outbound_read_depth, 4);
}

#[test]
fn revision_1_peers_are_answered_in_revision_1_and_smb_direct_depths_are_taken_from_private_data() {
    let client = iwarp::Config { revision: 1, legacy_depths: true, inbound_read_depth: 16, ..config() };
    let pair = Pair::established_with(client, config());
    assert_eq!(pair.server.connection.agreed().revision, 1);
    assert_eq!(pair.server.connection.agreed().outbound_read_depth, 16);
}

#[test]
fn sends_posted_before_the_negotiation_leave_after_it() {
    let mut pair = Pair::new(config(), config());
    let messages = [b"one".as_slice(), &[7; 3000], b"three"];
    pair.server.post_receives(3, 4096);
    for (id, message) in (0..).zip(messages) {
        let connection = &mut pair.client.connection;
        connection.post_send(WorkId(id), payload(message), SendFlags::default()).expect("is taken");
    }
    pair.drive();
    let buffers = pair.server.completions.iter().map(|done| done.buffer.as_ref().expect("a message"));
    assert_eq!(buffers.map(|buffer| &buffer[..]).collect::<Vec<_>>(), messages);
    assert_eq!(pair.client.completions.len(), 3);
}

#[test]
fn short_messages_share_the_memory_they_came_in_where_that_keeps_little_of_it() {
    let mut pair = Pair::established();
    let (client, server, now) = (&mut pair.client, &mut pair.server, pair.now);
    let messages = [pattern(16, 1), pattern(200, 2), pattern(1200, 3), pattern(15, 4)];
    for message in &messages {
        client.connection.post_send(WorkId(1), payload(message), SendFlags::default()).expect("is taken");
        server.connection.post_receive_later(WorkId(2), 8192).expect("is open");
    }
    let bytes = client.connection.poll_transmit(&mut client.memory, 1 << 20, now).expect("bytes");
    let mut input = BufMut::zeroed(32 << 10);
    bytes.copy_to(&mut input);
    let input = input.freeze();
    server.connection.handle_shared_input(&input, bytes.len(), &mut server.memory, now);
    let mut received = Vec::new();
    server.connection.take_completions(|done| received.extend(done.buffer.take()));
    assert!(received.iter().zip(&messages).all(|(got, sent)| got[..] == sent[..]));
    let shares: Vec<bool> = received.iter().map(|got| input.view_of(got).is_some()).collect();
    assert_eq!(shares, [false, true, true, false]);
    // A shared buffer is not writable again.
    assert!(input.try_into_mut().is_err());
}

/// Cuts a Send that nothing waits before, and one that waits behind a longer one.
#[test]
fn a_send_is_cut_alike_whether_it_waits_or_not() {
    for (crc, len_bytes) in [(true, 65_536), (false, 65_536), (true, 68 << 10), (true, 1), (false, 61_441)] {
        let policy = if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked };
        let with = || iwarp::Config { crc: policy, large_fpdus: LargeFpdus::Always, ..config() };
        let mut wires = Vec::new();
        for before in [16, 200_000] {
            let mut pair = Pair::established_with(with(), with());
            let client = &mut pair.client;
            for message in [pattern(before, 1), pattern(len_bytes, 2)] {
                let mut whole = payload(&message);
                whole.append(payload(&pattern(30, 3)));
                client
                    .connection
                    .post_send_with_head(WorkId(1), &[9; 24], whole, SendFlags::default())
                    .expect("is taken");
            }
            let mut wire = Vec::new();
            while let Some(bytes) = client.connection.poll_transmit(&mut client.memory, 1 << 20, pair.now) {
                wire.extend_from_slice(&bytes.contiguous());
            }
            // The FPDUs of the second message: it is the second by its sequence number.
            let (mut rest, mut second) = (&wire[..], Vec::new());
            while let [high, low, ..] = rest {
                let whole = fpdu_bytes(usize::from(u16::from_be_bytes([*high, *low])));
                let (fpdu, after) = rest.split_at(whole);
                if matches!(Header::parse(&fpdu[2..]), Ok(Header::Untagged { sequence: 2, .. })) {
                    second.extend_from_slice(fpdu);
                }
                rest = after;
            }
            assert!(second.len() > len_bytes);
            wires.push(second);
        }
        assert!(wires[0] == wires[1], "{len_bytes}");
    }
}

#[test]
fn the_responder_sends_nothing_before_the_first_message_of_the_initiator() {
    let mut pair = Pair::established();
    pair.client.post_receives(1, 64);
    pair.server.connection.post_send(WorkId(1), payload(b"early"), SendFlags::default()).expect("is taken");
    pair.drive();
    assert!(pair.client.completions.is_empty());
    pair.server.post_receives(1, 64);
    pair.client.connection.post_send(WorkId(2), payload(b"hello"), SendFlags::default()).expect("is taken");
    pair.drive();
    let received = pair.client.completions.iter().find(|done| done.kind == CompletionKind::Receive);
    assert_eq!(&received.and_then(|done| done.buffer.as_ref()).expect("a message arrived")[..], b"early");
}

#[test]
fn an_initiator_can_hold_its_first_message_back_until_a_slow_responder_listens() {
    let delay = std::time::Duration::from_millis(20);
    let mut pair = Pair::established_with(iwarp::Config { first_send_delay: delay, ..config() }, config());
    pair.server.post_receives(1, 64);
    pair.client.connection.post_send(WorkId(1), payload(b"hello"), SendFlags::default()).expect("is taken");
    pair.drive();
    assert!(pair.server.completions.is_empty());
    assert_eq!(pair.client.connection.poll_timeout(), Some(pair.now.after(delay)));
    pair.pass(delay);
    assert_eq!(pair.server.completions.len(), 1);
}

#[test]
fn a_send_with_invalidate_ends_the_registration_and_says_so() {
    let mut pair = Pair::established();
    let stag = pair.server.region(&[0; 64], ALL);
    pair.server.post_receives(1, 64);
    let flags = SendFlags { invalidate: Some(stag), solicited: true, fence: false };
    pair.client.connection.post_send(WorkId(1), payload(b"done"), flags).expect("is taken");
    pair.drive();
    let received = pair.server.completions.pop_front().expect("a message arrived");
    assert_eq!(received.invalidated, Some(Invalidate(stag)));
    assert!(received.solicited);
    assert!(!pair.server.memory.is_valid(stag));
    assert_eq!(pair.server.memory.deregister(stag).map(|bytes| bytes.map(|b| b.len())), Ok(Some(64)));
}

#[test]
fn atomics_and_immediate_data_work_between_ends_that_agreed_on_them() {
    let extension = Some(Extension { atomics_and_immediate: true, flush: false, ulpdu_bytes_max: 64_768 });
    let with = || iwarp::Config { extension, ..config() };
    let mut pair = Pair::established_with(with(), with());
    let stag = pair.server.region(&7u64.to_ne_bytes(), ALL);
    let add = AtomicOperation::FetchAdd { add: 5, mask: 0 };
    pair.client.connection.post_atomic(WorkId(1), (stag, 0), add).expect("is agreed");
    let swap =
        AtomicOperation::CompareSwap { compare: 12, compare_mask: u64::MAX, swap: 99, swap_mask: u64::MAX };
    pair.client.connection.post_atomic(WorkId(2), (stag, 0), swap).expect("is agreed");
    pair.server.post_receives(1, 16);
    pair.client.connection.post_immediate(WorkId(3), 0xFEED, false).expect("is agreed");
    pair.drive();
    let originals: Vec<_> = pair.client.completions.iter().filter_map(|done| done.original).collect();
    assert_eq!(originals, [7, 12]);
    assert_eq!(pair.server.memory.bytes(stag), Some(&99u64.to_ne_bytes()[..]));
    assert_eq!(pair.server.completions.pop_front().and_then(|done| done.immediate), Some(0xFEED));
}

#[test]
fn operations_that_were_not_agreed_are_refused_before_they_reach_the_wire() {
    let mut pair = Pair::established();
    let add = AtomicOperation::FetchAdd { add: 1, mask: 0 };
    assert!(pair.client.connection.post_atomic(WorkId(1), (iwarp::Stag(5), 0), add).is_err());
    assert!(pair.client.connection.post_immediate(WorkId(1), 1, false).is_err());
}

#[test]
fn a_read_whose_sink_is_not_registered_fails_alone() {
    let mut pair = Pair::established();
    let source = pair.server.region(&pattern(100, 1), ALL);
    pair.client.connection.post_read(WorkId(1), (iwarp::Stag(77), 0), 100, (source, 0)).expect("is taken");
    pair.drive();
    assert_eq!(
        pair.client.completions.pop_front().map(|done| done.status),
        Some(WorkStatus::LocalProtection)
    );
    assert!(pair.client.connection.is_established());
}

#[test]
fn segments_fit_the_tcp_segment_of_hardware_and_grow_for_software() {
    let hardware = iwarp::Config { large_fpdus: LargeFpdus::Never, segment_bytes: 1460, ..config() };
    let pair = Pair::established_with(hardware.clone(), hardware);
    let ulpdu = pair.client.connection.agreed().ulpdu_bytes_max;
    assert!(iwarp::framing::fpdu_bytes(ulpdu) <= 1460 && ulpdu >= 1440);
    let software = iwarp::Config { crc: CrcPolicy::OffUnlessAsked, ..config() };
    let pair = Pair::established_with(software.clone(), software);
    assert_eq!(pair.server.connection.agreed().ulpdu_bytes_max, iwarp::framing::ULPDU_BYTES_MAX);
}

#[test]
fn a_region_that_is_never_written_is_read_without_a_copy_of_the_whole() {
    let mut pair = Pair::established();
    let bytes = pattern(200_000, 3);
    let access = iwarp::Access { remote_read: true, ..Default::default() };
    let source = pair.server.memory.register_shared(
        sys::Buf::from(&bytes[..]),
        0x10_0000,
        access,
        DOMAIN,
        None,
        0xABCD_0001,
    );
    let sink = pair.client.region(&vec![0; 200_000], iwarp::Access::default());
    pair.client.connection.post_read(WorkId(1), (sink, 0), 200_000, (source, 0x10_0000)).expect("is taken");
    pair.drive();
    assert_eq!(pair.client.memory.bytes(sink), Some(&bytes[..]));
}

#[test]
fn regions_can_be_bound_to_one_stream() {
    let mut pair = Pair::established();
    let bound =
        pair.server.memory.register(sys::BufMut::zeroed(64), 0, ALL, DOMAIN, Some(StreamId(8)), 0x4242_4200);
    pair.client.connection.post_write(WorkId(1), payload(b"x"), bound, 0).expect("is taken");
    pair.drive();
    assert_eq!(
        pair.server.terminated.map(|(_, code)| code),
        Some(iwarp::TerminateCode::DDP_TAGGED_NOT_ASSOCIATED)
    );
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize),
    Write(usize, usize),
    Read(usize, usize),
}

const REGION: usize = 300_000;
const WRITTEN: iwarp::Access = iwarp::Access {
    remote_read: false,
    remote_write: true,
    remote_invalidate: true,
    unspecified_content: false,
};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![0usize..200, 1400usize..3000, 60_000usize..130_000];
    let step = (0..3, 0usize..REGION, len).prop_map(|(kind, at, len)| {
        let len = len.min(REGION - at);
        match kind {
            0 => Step::Send(len.min(4096)),
            1 => Step::Write(at, len),
            _ => Step::Read(at, len),
        }
    });
    proptest::collection::vec(step, 1..20)
}

/// Receives alike that take no memory before are one in the engine, and each its own for their owner.
#[test]
fn receives_without_memory_are_used_and_flushed_one_by_one() {
    let mut pair = Pair::established();
    let server = &mut pair.server.connection;
    for (id, len_bytes) in [(7, 70_000), (7, 70_000), (7, 70_000), (8, 70_000), (8, 100), (8, 100), (8, 100)]
    {
        server.post_receive_later(WorkId(id), len_bytes).expect("takes receives");
    }
    assert_eq!(server.posted_receives(), 7);
    for len_bytes in [10, 70_000, 20_000, 0, 100] {
        let bytes = payload(&pattern(len_bytes, 3));
        pair.client.connection.post_send(WorkId(1), bytes, SendFlags::default()).expect("is taken");
    }
    pair.drive();
    assert_eq!(pair.server.terminated, None);
    assert_eq!(pair.server.connection.posted_receives(), 2);
    pair.server.connection.handle_closed(&mut pair.server.memory);
    pair.drive();
    let told: Vec<_> =
        pair.server.completions.iter().map(|done| (done.id.0, done.len_bytes, done.status)).collect();
    let (success, flushed) = (WorkStatus::Success, WorkStatus::Flushed);
    let whole =
        [(7, 10, success), (7, 70_000, success), (7, 20_000, success), (8, 0, success), (8, 100, success)];
    assert_eq!(told[..5], whole);
    assert_eq!(told[5..], [(8, 0, flushed); 2]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any mix of work, any split of the byte streams, with CRC and without, long FPDUs and short ones: every byte lands where it
    /// belongs, and work completes in order.
    #[test]
    fn any_work_over_any_split_of_the_stream_arrives(
        steps in steps(),
        pieces in proptest::collection::vec(prop_oneof![1usize..64, 1000usize..70_000], 1..8),
        crc in any::<bool>(),
        large in any::<bool>(),
        planned in any::<bool>(),
        together in any::<bool>(),
    ) {
        let with = || iwarp::Config {
            crc: if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked },
            large_fpdus: if large { LargeFpdus::Always } else { LargeFpdus::Never },
            outbound_read_depth: 3,
            tells_sent_together: together,
            ..config()
        };
        let mut pair = Pair::established_with(with(), with());
        (pair.pieces, pair.planned) = (pieces, planned);
        let mut model = pattern(REGION, 9);
        let target = pair.server.bound_region(&model, WRITTEN);
        let source_bytes = pattern(REGION, 42);
        let source = pair.server.region(&source_bytes, ALL);
        let sink = pair.client.bound_region(&vec![0; REGION], iwarp::Access::default());
        let mut sink_model = vec![0; REGION];
        pair.server.post_receives(20, 4096);
        let mut sent = Vec::new();
        for (id, step) in steps.iter().enumerate() {
            let id_work = WorkId(id as u64);
            match *step {
                Step::Send(len) => {
                    let bytes = pattern(len, id as u8);
                    pair.client.connection.post_send(id_work, payload(&bytes), SendFlags::default()).expect("is taken");
                    sent.push(bytes);
                }
                Step::Write(at, len) => {
                    let bytes = pattern(len, 100 + id as u8);
                    model[at..at + len].copy_from_slice(&bytes);
                    pair.client.connection.post_write(id_work, payload(&bytes), target, at as u64).expect("is taken");
                }
                Step::Read(at, len) => {
                    sink_model[at..at + len].copy_from_slice(&source_bytes[at..at + len]);
                    pair.client
                        .connection
                        .post_read(id_work, (sink, at as u64), len as u32, (source, at as u64))
                        .expect("is taken");
                }
            }
        }
        pair.drive();
        prop_assert_eq!(pair.server.terminated, None);
        prop_assert!(pair.server.memory.bytes(target) == Some(&model[..]));
        prop_assert!(pair.client.memory.bytes(sink) == Some(&sink_model[..]));
        let done: Vec<_> = pair.client.completions.iter().map(|done| done.id.0).collect();
        // Together: what no later Send or Write speaks for has its own.
        let is_sent = |id: u64| steps.get(id as usize).is_some_and(|step| !matches!(step, Step::Read(..)));
        let told: Vec<_> =
            (0..steps.len() as u64).filter(|&id| !together || done.contains(&id) || !is_sent(id)).collect();
        prop_assert_eq!(&done, &told);
        prop_assert!(!together || told.is_empty() || told.last() == Some(&(steps.len() as u64 - 1)));
        let bytes = |of: &dyn Fn(&Step) -> usize| steps.iter().map(of).sum::<usize>();
        let told_bytes: usize = pair.client.completions.iter().map(|done| done.len_bytes).sum();
        prop_assert_eq!(told_bytes, bytes(&|step| match *step {
            Step::Send(len) | Step::Write(_, len) | Step::Read(_, len) => len,
        }));
        let received: Vec<_> =
            pair.server.completions.iter().map(|done| done.buffer.as_ref().expect("has a buffer").to_vec()).collect();
        prop_assert_eq!(received, sent);
    }
}

#[test]
fn a_head_arrives_before_its_payload_whether_it_leaves_at_once_or_waits() {
    for len_bytes in [0, 24, 52, 53, 137, HEAD_BYTES_MAX] {
        let mut pair = Pair::established();
        pair.server.post_receives(3, 100_200);
        let (head, behind, long) = (pattern(len_bytes, 1), pattern(1000, 2), pattern(100_000, 3));
        // The first leaves at once; the last waits for the long one.
        for (head, body) in [(&head[..], &behind[..]), (&[], &long), (&head, &behind)] {
            pair.client
                .connection
                .post_send_with_head(WorkId(1), head, payload(body), SendFlags::default())
                .expect("is taken");
        }
        pair.drive();
        let received: Vec<_> =
            pair.server.completions.iter().filter_map(|done| done.buffer.as_deref()).collect();
        let whole = [&head[..], &behind].concat();
        assert!(received == [&whole[..], &long, &whole], "{len_bytes}");
    }
}

#[test]
fn a_head_longer_than_is_copied_is_refused() {
    let mut pair = Pair::established();
    let head = [0; HEAD_BYTES_MAX + 1];
    let refused =
        pair.client.connection.post_send_with_head(WorkId(1), &head, payload(b""), SendFlags::default());
    assert_eq!(refused, Err(PostError::TooLong));
}
