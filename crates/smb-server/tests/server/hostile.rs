//! Bytes that no good client sends: an NTSTATUS or the end of the connection, never a panic, and nothing kept.

use crate::fixture::*;
use proptest::prelude::*;
use smb::wire::*;
use types::NtStatus;

#[test]
fn garbage_ends_the_connection() {
    for bytes in [&b""[..], b"\x00", b"GET / HTTP/1.0\r\n\r\n", b"\xFCSMB", b"\xFDSMB", b"\xFESMB"] {
        let mut world = World::new();
        let client = Client::new(&mut world);
        world.deliver(client.connection, bytes);
        assert!(world.is_closing(client.connection), "{bytes:?}");
    }
}

#[test]
fn a_response_from_a_client_ends_the_connection() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut message = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
    Header::in_place(&mut message).unwrap().flags = HeaderFlags::SERVER_TO_REDIR.bits().into();
    world.deliver(client.connection, &message);
    assert!(world.is_closing(client.connection));
}

#[test]
fn every_command_with_an_empty_body_is_an_invalid_parameter() {
    for command in Command::ALL {
        if matches!(command, Command::Negotiate | Command::Cancel) {
            continue;
        }
        let mut world = World::new();
        let mut client = Client::ready(&mut world);
        client.sign = true;
        let answer = client.call(&mut world, command, |_| {});
        assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER, "{}", command.name());
    }
}

#[test]
fn an_unknown_command_is_an_invalid_parameter() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut message = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
    Header::in_place(&mut message).unwrap().command = 0x1234.into();
    client.send(&mut world, message);
    assert_eq!(status(&client.receive(&mut world).unwrap()), NtStatus::INVALID_PARAMETER);
}

/// Good requests of each kind, to be damaged.
fn requests(client: &mut Client, file: FileId) -> Vec<Vec<u8>> {
    let name = wide_from_str("*");
    let mut contexts = CreateContextWriter::default();
    contexts.push_struct(CONTEXT_LEASE, &LeaseV2::default());
    contexts.push_struct(CONTEXT_DURABLE_REQUEST_V2, &DurableRequestV2::default());
    let contexts = contexts.finish();
    vec![
        client.build(Command::Create, |out| {
            let body = CreateRequestBody { requested_oplock_level: OPLOCK_LEVEL_LEASE, ..Default::default() };
            write_create_request(out, body, &wide_from_str("file"), &contexts);
        }),
        client.build(Command::Write, Client::write_body(file, &[1; 100])),
        client.build(Command::Read, Client::read_body(file, 100)),
        client.build(Command::QueryDirectory, |out| {
            let body = QueryDirectoryRequestBody {
                file_id: file,
                output_buffer_length: 4096.into(),
                ..Default::default()
            };
            write_query_directory_request(out, body, &name);
        }),
        client.build(Command::QueryInfo, |out| {
            let body = QueryInfoRequestBody {
                info_type: INFO_FILE,
                file_info_class: class::ALL,
                output_buffer_length: 4096.into(),
                file_id: file,
                ..Default::default()
            };
            write_query_info_request(out, body, &[]);
        }),
        client.build(Command::SetInfo, |out| {
            let body = SetInfoRequestBody {
                info_type: INFO_FILE,
                file_info_class: class::RENAME,
                file_id: file,
                ..Default::default()
            };
            let mut buffer = Vec::new();
            RenameInformation { flags: 1, root_directory: 0, name: wide_from_str("new") }.write(&mut buffer);
            write_set_info_request(out, body, &buffer);
        }),
        client.build(Command::Ioctl, |out| {
            let body = IoctlRequestBody {
                control_code: fsctl::SRV_COPYCHUNK.into(),
                file_id: file,
                max_output_response: 64.into(),
                flags: IOCTL_IS_FSCTL.into(),
                ..Default::default()
            };
            let mut input = Vec::new();
            input.put(&CopyChunkRequest { chunk_count: 1.into(), ..Default::default() });
            input.put(&CopyChunkElement { length: 5.into(), ..Default::default() });
            write_ioctl_request(out, body, &input);
        }),
        client.build(Command::Lock, |out| {
            let element = LockElement { flags: 1.into(), ..Default::default() };
            write_lock_request(out, LockRequestBody { file_id: file, ..Default::default() }, &[element]);
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_requests_never_panic_and_leave_nothing_in_work(
        which in 0..8_usize,
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut world = World::new();
        let mut client = Client::ready(&mut world);
        let file = client.create(&mut world, "file");
        let mut message = requests(&mut client, file).swap_remove(which);
        for (at, value) in hits {
            let at = at.index(message.len());
            message[at] = value;
        }
        if let Some(cut) = cut {
            message.truncate(cut.index(message.len()));
        }
        world.deliver(client.connection, &message);
        prop_assert!(world.server.gauges().requests_in_work <= 1);
        world.server.connection_closed(client.connection, world.now);
        world.run_until_idle();
        let left = world.server.gauges();
        prop_assert_eq!((left.connections, left.sessions, left.opens, left.requests_in_work), (0, 0, 0, 0));
        prop_assert_eq!((left.in_flight_bytes, left.parked_bytes), (0, 0));
    }
}
