//! Every parser and accessor over random bytes and over damaged good messages: an error at worst.

use super::*;
use proptest::prelude::*;
use std::hint::black_box;

/// Runs every request and response parser over `bytes`, and every accessor of the results.
fn parse_everything(bytes: &[u8]) {
    let _ = black_box(split_compound(bytes));
    let _ = black_box(TransformHeader::parse(bytes));
    let _ = black_box(CompressionHeader::parse(bytes));
    let _ = black_box(Smb1Negotiate::parse(bytes));
    if let Ok(v) = NegotiateRequest::parse(bytes) {
        let _ = v.dialects().map(Iterator::count);
        black_box(v.contexts().count());
    }
    if let Ok(v) = NegotiateResponse::parse(bytes) {
        let _ = black_box(v.security_buffer());
        black_box(v.contexts().count());
    }
    let _ = SessionSetupRequest::parse(bytes).map(|v| v.security_buffer().map(<[u8]>::len));
    let _ = SessionSetupResponse::parse(bytes).map(|v| v.security_buffer().map(<[u8]>::len));
    let _ = TreeConnectRequest::parse(bytes).map(|v| v.path());
    if let Ok(v) = CreateRequest::parse(bytes) {
        let _ = black_box(v.name());
        let _ = v.contexts().map(Iterator::count);
    }
    let _ = CreateResponse::parse(bytes).map(|v| v.contexts().map(Iterator::count));
    if let Ok(v) = ReadRequest::parse(bytes) {
        let _ = black_box(v.channel_info());
    }
    let _ = ReadResponse::parse(bytes).map(|v| v.data().map(<[u8]>::len));
    if let Ok(v) = WriteRequest::parse(bytes) {
        let _ = black_box(v.channel_info());
        if let Ok(range) = v.data_range() {
            black_box(&bytes[range]);
        }
    }
    let _ = LockRequest::parse(bytes).map(|v| v.locks().map(<[LockElement]>::len));
    let _ = IoctlRequest::parse(bytes).map(|v| v.input().map(<[u8]>::len));
    let _ = IoctlResponse::parse(bytes).map(|v| v.output().map(<[u8]>::len));
    let _ = QueryDirectoryRequest::parse(bytes).map(|v| v.pattern());
    let _ = QueryInfoRequest::parse(bytes).map(|v| v.input().map(<[u8]>::len));
    let _ = SetInfoRequest::parse(bytes).map(|v| v.buffer().map(<[u8]>::len));
    let _ = OutputBufferResponse::parse(bytes).map(|v| v.data().map(<[u8]>::len));
    let _ = ErrorResponse::parse(bytes).map(|v| v.data().map(<[u8]>::len));
    let _ = black_box(symlink_error(bytes, 0));
    let _ = black_box(BreakAcknowledgment::parse(bytes));
    let _ = black_box(parse_notify_records(bytes));
    let _ = black_box(parse_get_ea_names(bytes));
    let _ = black_box(QuotaInformation::parse_list(bytes));
    let _ = black_box(QueryQuota::parse(bytes));
    black_box(FullEas::new(bytes).count());
    black_box(CreateContexts::new(bytes).count());
    for extended in [false, true] {
        let _ = black_box(RenameInformation::parse(bytes, extended));
    }
    for number in 0..=u8::MAX {
        if let Some(class) = DirectoryClass::from_wire(number) {
            let _ = black_box(parse_directory(class, bytes));
        }
    }
    let _ = black_box(CopyChunkRequest::parse(bytes));
    let _ = black_box(FileLevelTrim::parse(bytes));
    let _ = black_box(parse_network_interfaces(bytes));
    let _ = ValidateNegotiateRequest::parse(bytes).map(|(_, dialects)| dialects.count());
    let _ = PreauthIntegrity::parse(bytes).map(|v| v.offers(HASH_SHA_512));
    let _ = counted_ids(bytes).map(Iterator::count);
    let _ = black_box(Lease::parse(bytes));
}

/// Good messages of each kind that has variable parts.
fn samples() -> Vec<Vec<u8>> {
    let name = wide_from_str("some\\name");
    let mut contexts = CreateContextWriter::default();
    contexts.push_struct(CONTEXT_LEASE, &LeaseV2::default());
    contexts.push(b"AAPL", &[1; 24]);
    contexts.push_struct(CONTEXT_DURABLE_REQUEST_V2, &DurableRequestV2::default());
    let contexts = contexts.finish();
    let mut eas = Vec::new();
    let mut last = None;
    for name in [&b"A"[..], b"BB"] {
        put_full_ea(&mut eas, &mut last, FullEa { flags: 0, name, value: b"value" });
    }
    let negotiate = vec![put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&[1, 2])); 3];
    vec![
        message(Command::Negotiate, |out| {
            write_negotiate_request(out, NegotiateRequestBody::default(), &[0x311], &negotiate);
        }),
        message(Command::Create, |out| {
            write_create_request(out, CreateRequestBody::default(), &name, &contexts);
        }),
        message(Command::Write, |out| {
            let body = WriteRequestBody { length: 64.into(), ..Default::default() };
            write_write_request(out, body, &[]);
            out.extend_from_slice(&[7; 64]);
        }),
        message(Command::Lock, |out| {
            write_lock_request(out, LockRequestBody::default(), &[LockElement::default(); 3]);
        }),
        message(Command::Ioctl, |out| write_ioctl_request(out, IoctlRequestBody::default(), &contexts)),
        message(Command::QueryDirectory, |out| {
            write_query_directory_request(out, QueryDirectoryRequestBody::default(), &name);
        }),
        message(Command::SetInfo, |out| write_set_info_request(out, SetInfoRequestBody::default(), &eas)),
        Smb1Negotiate::build(&["NT LM 0.12", "SMB 2.???"]),
        contexts,
        eas,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        parse_everything(&bytes);
    }

    #[test]
    fn damaged_messages_never_panic(
        sample in 0..10_usize,
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        shorten in any::<bool>(),
    ) {
        let mut bytes = samples().swap_remove(sample);
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if shorten {
            bytes.truncate(cut.index(bytes.len()));
        }
        parse_everything(&bytes);
    }

    #[test]
    fn names_of_any_units_survive(units in proptest::collection::vec(any::<u16>(), 0..300)) {
        let sent = message(Command::Create, |out| {
            write_create_request(out, CreateRequestBody::default(), &units, &[]);
        });
        let create = CreateRequest::parse(&sent).unwrap();
        prop_assert_eq!(&*create.name().unwrap(), &units[..]);
    }
}
