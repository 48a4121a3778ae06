//! Messages that real clients send and other codecs refuse (each case once broke an existing implementation).

use super::*;
use std::net::IpAddr;
use types::NtStatus;
use zerocopy::IntoBytes;

#[test]
fn sizes_of_fixed_parts_are_those_of_the_specification() {
    assert_eq!(size_of::<Header>(), 64);
    assert_eq!(size_of::<TransformHeader>(), 52);
    assert_eq!(size_of::<NegotiateRequestBody>(), 36);
    assert_eq!(size_of::<NegotiateResponseBody>(), 64);
    assert_eq!(size_of::<CreateRequestBody>(), 56);
    assert_eq!(size_of::<CreateResponseBody>(), 88);
    assert_eq!(size_of::<CloseResponseBody>(), 60);
    assert_eq!(size_of::<ReadRequestBody>(), 48);
    assert_eq!(size_of::<ReadResponseBody>(), 16);
    assert_eq!(size_of::<WriteRequestBody>(), 48);
    assert_eq!(size_of::<WriteResponseBody>(), 16);
    assert_eq!(size_of::<LockRequestBody>() + size_of::<LockElement>(), 48);
    assert_eq!(size_of::<IoctlRequestBody>(), 56);
    assert_eq!(size_of::<IoctlResponseBody>(), 48);
    assert_eq!(size_of::<QueryDirectoryRequestBody>(), 32);
    assert_eq!(size_of::<ChangeNotifyRequestBody>(), 32);
    assert_eq!(size_of::<QueryInfoRequestBody>(), 40);
    assert_eq!(size_of::<SetInfoRequestBody>(), 32);
    assert_eq!(size_of::<LeaseBreakNotificationBody>(), 44);
    assert_eq!(size_of::<LeaseBreakBody>(), 36);
    assert_eq!(size_of::<AllInformation>(), 96);
    assert_eq!(size_of::<NetworkOpenInformation>(), 56);
    assert_eq!(size_of::<DirectoryTimes>() + 4, DirectoryClass::Directory.name_offset());
}

#[test]
fn read_with_rdma_channel_keeps_its_buffer_descriptors() {
    for channel in [CHANNEL_RDMA_V1, CHANNEL_RDMA_V1_INVALIDATE] {
        let descriptor =
            BufferDescriptorV1 { offset: U64::new(0x1000), token: U32::new(7), length: U32::new(4096) };
        let sent = message(Command::Read, |out| {
            let body = ReadRequestBody {
                length: 4096.into(),
                file_id: file_id(),
                channel: channel.into(),
                ..Default::default()
            };
            write_read_request(out, body, &[descriptor, descriptor]);
        });
        let read = ReadRequest::parse(&sent).unwrap();
        assert_eq!(read.channel.get(), channel);
        assert_eq!(read.channel_info().unwrap(), [descriptor, descriptor]);
    }
}

#[test]
fn write_gives_its_data_wherever_data_offset_says() {
    let mut sent = message(Command::Write, |out| {
        let body = WriteRequestBody { length: 5.into(), file_id: file_id(), ..Default::default() };
        write_write_request(out, body, &[]);
        out.extend_from_slice(b"hello");
    });
    let write = WriteRequest::parse(&sent).unwrap();
    assert_eq!(write.data_range().unwrap(), 112..117);
    assert_eq!(&sent[write.data_range().unwrap()], b"hello");
    // The same data, eight bytes later.
    sent.splice(112..112, [0xAA; 8]);
    sent[66..68].copy_from_slice(&120_u16.to_le_bytes());
    let write = WriteRequest::parse(&sent).unwrap();
    assert_eq!(&sent[write.data_range().unwrap()], b"hello");
    // And one byte too far.
    sent[66..68].copy_from_slice(&121_u16.to_le_bytes());
    assert_eq!(WriteRequest::parse(&sent).unwrap().data_range(), Err(WireError::OutOfBounds));
}

#[test]
fn data_inside_the_header_is_refused() {
    let mut sent = message(Command::Write, |out| {
        let body = WriteRequestBody { length: 5.into(), ..Default::default() };
        write_write_request(out, body, &[]);
        out.extend_from_slice(b"hello");
    });
    sent[66..68].copy_from_slice(&4_u16.to_le_bytes());
    assert_eq!(WriteRequest::parse(&sent).unwrap().data_range(), Err(WireError::OutOfBounds));
}

#[test]
fn close_without_post_query_is_read() {
    let sent = message(Command::Close, |out| {
        out.put(&CloseRequestBody { file_id: file_id(), ..Default::default() });
    });
    let close = CloseRequest::parse(&sent).unwrap();
    assert_eq!(close.flags.get(), 0);
    assert_eq!(close.file_id, file_id());
}

#[test]
fn create_with_unknown_contexts_keeps_the_known_ones() {
    let mut contexts = CreateContextWriter::default();
    contexts.push(b"AAPL", &[1; 24]);
    contexts.push(b"\x93\xAD\x25\x50\x9C\xB4\x11\xE7\xB4\x23\x83\xDE\x96\x8B\xCD\x7C", &[0; 4]);
    contexts.push(CONTEXT_MAXIMAL_ACCESS, &[]);
    contexts.push(CONTEXT_DURABLE_RECONNECT, file_id().as_bytes());
    let contexts = contexts.finish();
    let name = wide_from_str("dir\\file.txt");
    let sent = message(Command::Create, |out| {
        write_create_request(out, CreateRequestBody::default(), &name, &contexts);
    });
    let create = CreateRequest::parse(&sent).unwrap();
    assert_eq!(create.name().unwrap(), name);
    let names: Vec<_> = create.contexts().unwrap().map(|context| context.unwrap().name).collect();
    assert_eq!(names.len(), 4);
    assert_eq!(names[2], b"MxAc");
    assert_eq!(names[3], b"DHnC");
    let last = create.contexts().unwrap().last().unwrap().unwrap();
    assert_eq!(*view_at::<FileId>(last.data, 0).unwrap(), file_id());
}

#[test]
fn create_contexts_that_loop_or_point_outside_end_with_an_error() {
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_MAXIMAL_ACCESS, &[]);
    contexts.push(CONTEXT_ON_DISK_ID, &[]);
    let good = contexts.finish();
    for next in [8_u32, 4, 12, 17, u32::MAX, 1 << 20] {
        let mut bytes = good.clone();
        bytes.patch_u32(0, next);
        assert!(CreateContexts::new(&bytes).any(|context| context.is_err()), "next {next}");
    }
}

#[test]
fn lease_version_follows_length_and_never_flags() {
    let v2 = LeaseV2 { key: [1; 16], state: 7.into(), epoch: 3.into(), ..Default::default() };
    assert_eq!(Lease::parse(v2.as_bytes()).unwrap(), Lease::V2(&v2));
    let v1 = LeaseV1 { flags: LEASE_FLAG_BREAK_IN_PROGRESS.into(), ..Default::default() };
    assert_eq!(Lease::parse(v1.as_bytes()).unwrap(), Lease::V1(&v1));
    assert!(Lease::parse(&v2.as_bytes()[..40]).is_err());
}

#[test]
fn negotiate_skips_unknown_contexts_and_reads_unknown_ids() {
    let contexts = [
        put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&[9; 32])),
        put_context(0x0100, b"\x93\xAD\x25\x50\x9C\xB4\x11\xE7"),
        put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&[0x77, CIPHER_AES_128_GCM])),
        put_context(CONTEXT_SIGNING, &put_counted_ids(&[0x99, SIGNING_AES_GMAC])),
    ];
    let sent = message(Command::Negotiate, |out| {
        let dialects = [0x202, 0x210, 0x300, 0x302, 0x311];
        write_negotiate_request(out, NegotiateRequestBody::default(), &dialects, &contexts);
    });
    let negotiate = NegotiateRequest::parse(&sent).unwrap();
    assert_eq!(negotiate.dialects().unwrap().collect::<Vec<_>>(), [0x202, 0x210, 0x300, 0x302, 0x311]);
    let found: Vec<_> = negotiate.contexts().collect::<Result<_, _>>().unwrap();
    assert_eq!(found.len(), 4);
    let preauth = PreauthIntegrity::parse(found[0].data).unwrap();
    assert!(preauth.offers(HASH_SHA_512));
    assert_eq!(preauth.salt, [9; 32]);
    assert_eq!(found[1].context_type, 0x0100);
    assert_eq!(counted_ids(found[2].data).unwrap().collect::<Vec<_>>(), [0x77, CIPHER_AES_128_GCM]);
}

#[test]
fn negotiate_response_reads_back() {
    let contexts = [
        put_context(CONTEXT_PREAUTH_INTEGRITY, &PreauthIntegrity::build(&[9; 32])),
        put_context(CONTEXT_SIGNING, &put_counted_ids(&[SIGNING_AES_CMAC])),
    ];
    let sent = message(Command::Negotiate, |out| {
        let body = NegotiateResponseBody { dialect_revision: 0x311.into(), ..Default::default() };
        write_negotiate_response(out, body, b"token", &contexts);
    });
    let response = NegotiateResponse::parse(&sent).unwrap();
    assert_eq!(response.security_buffer().unwrap(), b"token");
    assert_eq!(response.contexts().filter(|context| context.is_ok()).count(), 2);
}

#[test]
fn read_response_may_be_empty_or_have_gone_by_rdma() {
    let header = ResponseTo {
        command: Command::Read,
        message_id: 5,
        session_id: 6,
        tree_id: 7,
        credit_charge: 1,
        flags: HeaderFlags::empty(),
    }
    .header(NtStatus::SUCCESS, 3);
    let empty = read_response_head(&header, 0);
    assert_eq!(ReadResponse::parse(&empty).unwrap().data().unwrap(), b"");
    assert!(Header::parse(&empty).unwrap().is_response());
    let mut full = read_response_head(&header, 3).to_vec();
    full.extend_from_slice(b"abc");
    assert_eq!(ReadResponse::parse(&full).unwrap().data().unwrap(), b"abc");
    let written = write_response(&header, 4096);
    assert_eq!(WriteResponse::parse(&written).unwrap().count.get(), 4096);
}

#[test]
fn ioctl_input_is_read_from_its_offset() {
    let mut sent = message(Command::Ioctl, |out| {
        write_ioctl_request(out, IoctlRequestBody::default(), b"input");
    });
    assert_eq!(IoctlRequest::parse(&sent).unwrap().input().unwrap(), b"input");
    sent.splice(120..120, [0; 16]);
    sent[88..92].copy_from_slice(&136_u32.to_le_bytes());
    assert_eq!(IoctlRequest::parse(&sent).unwrap().input().unwrap(), b"input");
}

#[test]
fn compounds_split_where_next_command_says_and_nowhere_else() {
    let mut chain = message(Command::Echo, |out| out.put(&EmptyBody::default()));
    chain.resize(72, 0);
    chain.extend(message(Command::Echo, |out| out.put(&EmptyBody::default())));
    for (next, good) in [(72, true), (71, false), (8, false), (80, false), (u32::MAX - 7, false)] {
        let mut bytes = chain.clone();
        bytes.patch_u32(20, next);
        match split_compound(&bytes) {
            Ok((first, rest)) => {
                assert!(good, "next {next}");
                assert_eq!(first.len(), 72);
                assert!(split_compound(rest.unwrap()).unwrap().1.is_none());
            }
            Err(error) => assert!(!good, "next {next}: {error}"),
        }
    }
}

#[test]
fn tree_connect_reads_plain_and_extended_paths() {
    let path = wide_from_str(r"\\server\share");
    let sent = message(Command::TreeConnect, |out| write_tree_connect_request(out, 0, &path));
    assert_eq!(TreeConnectRequest::parse(&sent).unwrap().path().unwrap(), path);
}

#[test]
fn smb1_negotiate_names_the_smb2_dialects() {
    let sent = Smb1Negotiate::build(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"]);
    let both = Smb1Negotiate { smb_2_002: true, smb_2_wildcard: true };
    assert_eq!(Smb1Negotiate::parse(&sent), Ok(both));
    let old = Smb1Negotiate::build(&["NT LM 0.12"]);
    assert_eq!(Smb1Negotiate::parse(&old), Ok(Smb1Negotiate::default()));
}

#[test]
fn directory_entries_of_every_class_read_back() {
    let (name, short_name) = (wide_from_str("Ünïcode name"), wide_from_str("NCODE~1.TXT"));
    for number in [1, 2, 3, 12, 37, 38, 60, 78, 79, 80, 81] {
        let class = DirectoryClass::from_wire(number).unwrap();
        let mut writer = DirectoryWriter::new(class, 4096);
        let record = DirectoryRecord {
            file_id: 77,
            end_of_file: 9,
            short_name: &short_name,
            name: &name,
            ..Default::default()
        };
        assert!(writer.push(&record));
        assert!(writer.push(&DirectoryRecord { name: &name[..3], ..record }));
        let bytes = writer.finish();
        // Where the layout puts ShortNameLength and ShortName (MS-FSCC 2.4.8, 2.4.17, 2.4.19, 2.4.21).
        let short_name_at = match number {
            3 | 37 => Some(68),
            79 => Some(80),
            81 => Some(96),
            _ => None,
        };
        assert_eq!(class.has_short_name(), short_name_at.is_some());
        if let Some(at) = short_name_at {
            assert_eq!(bytes[at], 22);
            assert_eq!(wide(&bytes[at + 2..at + 24]).as_deref(), Ok(&*short_name));
        }
        let entries = parse_directory(class, &bytes).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].name, name);
        assert_eq!(*entries[1].name, name[..3]);
        if let Some(times) = entries[0].times {
            assert_eq!(times.end_of_file.get(), 9);
        }
        if matches!(number, 37 | 38 | 60 | 78..=81) {
            assert_eq!(entries[1].file_id, 77, "class {number}");
        }
    }
}

#[test]
fn directory_writer_stops_at_its_limit() {
    let name = wide_from_str("name");
    let mut writer = DirectoryWriter::new(DirectoryClass::Names, 40);
    let record = DirectoryRecord { name: &name, ..Default::default() };
    assert!(writer.push(&record));
    assert!(!writer.push(&record));
    assert_eq!(writer.finish().len(), 20);
}

#[test]
fn extended_attributes_read_back() {
    let mut bytes = Vec::new();
    let mut last = None;
    let first = FullEa { flags: 0, name: b"ONE", value: b"value" };
    let second = FullEa { flags: 0x80, name: b"TWO", value: b"" };
    put_full_ea(&mut bytes, &mut last, first);
    put_full_ea(&mut bytes, &mut last, second);
    assert_eq!(FullEas::new(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), [first, second]);
}

#[test]
fn rename_reads_back_in_both_forms() {
    let name = wide_from_str("new name");
    let mut bytes = Vec::new();
    RenameInformation { flags: 3, root_directory: 0, name: name.clone() }.write(&mut bytes);
    assert_eq!(RenameInformation::parse(&bytes, true).unwrap().flags, 3);
    let plain = RenameInformation::parse(&bytes, false).unwrap();
    assert_eq!((plain.flags, plain.name), (1, name));
}

#[test]
fn network_interfaces_read_back() {
    let interfaces = ["10.0.0.1", "fe80::1"].map(|address| NetworkInterface {
        index: 2,
        capabilities: InterfaceCapabilities::RSS,
        link_speed: 10_000_000_000,
        address: address.parse::<IpAddr>().unwrap(),
    });
    let mut bytes = Vec::new();
    put_network_interfaces(&mut bytes, &interfaces);
    assert_eq!(bytes.len(), 2 * NETWORK_INTERFACE_INFO_BYTES);
    assert_eq!(parse_network_interfaces(&bytes).unwrap(), interfaces);
}

#[test]
fn transform_header_checks_the_length_it_names() {
    let mut sent = TransformHeader::new(5, 70).as_bytes().to_vec();
    sent.resize(52 + 70, 0);
    assert!(TransformHeader::parse(&sent).is_ok());
    sent.pop();
    assert_eq!(TransformHeader::parse(&sent), Err(WireError::OutOfBounds));
}

#[test]
fn notify_records_read_back() {
    let (mut bytes, mut last) = (Vec::new(), None);
    let name = wide_from_str("odd");
    put_notify_record(&mut bytes, &mut last, 1, &name);
    put_notify_record(&mut bytes, &mut last, 3, &name);
    assert_eq!(parse_notify_records(&bytes).unwrap(), [(1, name.clone()), (3, name)]);
}

#[test]
fn async_id_fills_both_halves() {
    let mut header = Header::new(Command::Lock);
    header.set_async_id(0x1122_3344_5566_7788);
    assert_eq!(header.async_id(), 0x1122_3344_5566_7788);
    assert!(header.flags().contains(HeaderFlags::ASYNC_COMMAND));
}
