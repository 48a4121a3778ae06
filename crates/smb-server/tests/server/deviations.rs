//! Small rules of MS-SMB2 that audits of other servers found broken there, one message each.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;
use volume::backend::{Event, OpenId, OplockLevel, SessionId};

/// Sends an FSCTL on a file, with an output buffer of `output_max` bytes.
fn control(world: &mut World, client: &mut Client, code: u32, file_id: FileId, output_max: u32) -> NtStatus {
    let message = fsctl_message(client, code, file_id, output_max, &[]);
    client.send(world, message);
    status(&client.receive(world).expect("an answer"))
}

fn fsctl_message(client: &mut Client, code: u32, file_id: FileId, output_max: u32, input: &[u8]) -> Vec<u8> {
    client.build(Command::Ioctl, |out| {
        let body = IoctlRequestBody {
            control_code: code.into(),
            file_id,
            max_output_response: output_max.into(),
            flags: IOCTL_IS_FSCTL.into(),
            ..Default::default()
        };
        write_ioctl_request(out, body, input);
    })
}

fn root_of(world: &mut World, client: &mut Client) -> FileId {
    let body = Client::create_body_with("", 0x0012_0089, FILE_OPEN, Vec::new());
    CreateResponse::parse(&client.call(world, Command::Create, body)).unwrap().file_id
}

#[test]
fn a_client_without_room_for_what_was_negotiated_is_disconnected() {
    for (room, stays) in [(24, true), (23, false)] {
        let mut world = World::new();
        let mut client = Client::new(&mut world);
        client.negotiate(&mut world, &Wishes { dialects: vec![0x0302], ..Default::default() });
        assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
        assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
        let mut input = Vec::new();
        input.put(&0x7F_u32.to_le_bytes());
        input.extend_from_slice(&client.guid);
        input.extend_from_slice(&[1, 0, 1, 0, 0x02, 0x03]);
        let message =
            fsctl_message(&mut client, fsctl::VALIDATE_NEGOTIATE_INFO, FileId::RELATED, room, &input);
        client.send(&mut world, message);
        assert_eq!(world.is_closing(client.connection), !stays, "{room} bytes");
    }
}

#[test]
fn the_sessions_of_one_client_have_one_dialect_of_smb_3() {
    let mut world = World::new();
    let _first = Client::ready(&mut world);
    let mut log_on = |guid: u8, user: &str, dialect: u16| {
        let mut client = Client::new(&mut world);
        (client.guid, client.user) = ([guid; 16], user.to_owned());
        client.negotiate(&mut world, &Wishes { dialects: vec![dialect], ..Default::default() });
        client.log_on(&mut world, PASSWORD)
    };
    assert_eq!(log_on(5, "user", 0x0302), NtStatus::USER_SESSION_DELETED);
    assert_eq!(log_on(5, "user", 0x0311), NtStatus::SUCCESS);
    assert_eq!(log_on(5, "user", 0x0210), NtStatus::SUCCESS, "the rule is of SMB 3");
    assert_eq!(log_on(6, "user", 0x0302), NtStatus::SUCCESS, "another client");
    assert_eq!(log_on(5, "second", 0x0302), NtStatus::SUCCESS, "a ClientGuid alone proves nothing");
}

#[test]
fn a_list_of_ciphers_or_of_signing_algorithms_without_any_has_nothing_in_common() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    let wishes = Wishes { ciphers: vec![], signing: vec![], ..Default::default() };
    let answer = client.negotiate(&mut world, &wishes);
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    let response = NegotiateResponse::parse(&answer).unwrap();
    let contexts: Vec<_> = response.contexts().map(Result::unwrap).collect();
    let found = contexts.iter().find(|context| context.context_type == CONTEXT_ENCRYPTION).unwrap();
    assert_eq!(counted_ids(found.data).unwrap().collect::<Vec<_>>(), [0]);
    assert!(contexts.iter().all(|context| context.context_type != CONTEXT_SIGNING));
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(&mut world, "secret"), NtStatus::ACCESS_DENIED, "it has to be encrypted");
}

#[test]
fn logoff_and_tree_disconnect_of_another_size_are_invalid_and_end_nothing() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    for command in [Command::TreeDisconnect, Command::Logoff] {
        let answer = client.call(&mut world, command, |out| out.extend_from_slice(&[5, 0, 0, 0]));
        assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER, "{command:?}");
        client.create(&mut world, "file");
    }
    let answer = client.call(&mut world, Command::TreeDisconnect, |out| out.put(&EmptyBody::default()));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
}

#[test]
fn the_data_of_a_write_begins_within_its_first_256_bytes() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    for (offset, expected) in [(0x100_usize, NtStatus::SUCCESS), (0x108, NtStatus::INVALID_PARAMETER)] {
        let answer = client.call(&mut world, Command::Write, |out| {
            Client::write_body(file, b"x")(out);
            let field = std::mem::offset_of!(WriteRequestBody, data_offset);
            out[field..field + 2].copy_from_slice(&(offset as u16).to_le_bytes());
            out.resize(offset - HEADER_BYTES + 1, 0);
        });
        assert_eq!(status(&answer), expected, "{offset:#x}");
    }
}

#[test]
fn a_create_longer_than_any_can_be_ends_the_connection() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut message = client.build(Command::Create, Client::create_body("file"));
    message.resize(1 << 20, 0);
    client.send(&mut world, message);
    assert!(world.is_closing(client.connection));
}

#[test]
fn a_pipe_is_opened_at_no_other_level_of_impersonation_than_a_file() {
    for (share, name) in [("share", "file"), ("IPC$", "srvsvc")] {
        let mut world = World::new();
        let mut client = Client::ready_at(&mut world, share);
        let answer = client.call(&mut world, Command::Create, |out| {
            let body = CreateRequestBody {
                impersonation_level: 4.into(),
                desired_access: 0x0012_0089.into(),
                create_disposition: FILE_OPEN.into(),
                ..Default::default()
            };
            write_create_request(out, body, &wide_from_str(name), &[]);
        });
        assert_eq!(status(&answer), NtStatus::BAD_IMPERSONATION_LEVEL, "{share}");
    }
}

#[test]
fn a_pipe_is_not_read_without_buffering() {
    let mut world = World::new();
    let mut client = Client::ready_at(&mut world, "IPC$");
    let pipe = client.create(&mut world, "srvsvc");
    let answer = client.call(&mut world, Command::Read, |out| {
        let body = ReadRequestBody {
            length: 100.into(),
            file_id: pipe,
            flags: READ_FLAG_UNBUFFERED,
            ..Default::default()
        };
        write_read_request(out, body, &[]);
    });
    assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER);
}

#[test]
fn an_fsctl_without_room_for_its_answer_is_refused_and_does_nothing() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let mut control = |code, room| control(&mut world, &mut client, code, file, room);
    let invalid = NtStatus::INVALID_PARAMETER;
    assert_eq!(control(fsctl::CREATE_OR_GET_OBJECT_ID, 63), invalid);
    assert_eq!(control(fsctl::GET_OBJECT_ID, 64), NtStatus::OBJECTID_NOT_FOUND, "none was made");
    assert_eq!(control(fsctl::CREATE_OR_GET_OBJECT_ID, 64), NtStatus::SUCCESS);
    assert_eq!(control(fsctl::GET_OBJECT_ID, 63), invalid);
    assert_eq!(control(fsctl::GET_INTEGRITY_INFORMATION, 15), invalid);
    assert_eq!(control(fsctl::GET_REPARSE_POINT, 7), NtStatus::BUFFER_TOO_SMALL);
    assert_eq!(control(fsctl::GET_REPARSE_POINT, 8), NtStatus::NOT_A_REPARSE_POINT);
}

#[test]
fn a_directory_has_neither_regions_nor_byte_range_locks() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    let root = root_of(&mut world, &mut client);
    let answer = control(&mut world, &mut client, fsctl::QUERY_FILE_REGIONS, root, 4096);
    assert_eq!(answer, NtStatus::INVALID_PARAMETER);
    let answer = client.call(&mut world, Command::Lock, |out| {
        let element =
            LockElement { length: 1.into(), flags: LOCK_FLAG_EXCLUSIVE.into(), ..Default::default() };
        write_lock_request(out, LockRequestBody { file_id: root, ..Default::default() }, &[element]);
    });
    assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER);
}

#[test]
fn the_break_of_an_oplock_names_the_session_of_its_open() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.create(&mut world, "file");
    let (open, session) = (OpenId(1), SessionId(client.session));
    let event = Event::BreakOplock { open, session, to: OplockLevel::LevelII };
    world.layer.0.borrow_mut().events.push_back(event);
    world.run_until_idle();
    let told = client.receive(&mut world).expect("the break");
    assert_eq!(Header::parse(&told).unwrap().session_id.get(), client.session);
}

#[test]
fn a_file_system_tells_no_ability_that_it_only_pretends() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    let root = root_of(&mut world, &mut client);
    let answer = client.call(&mut world, Command::QueryInfo, |out| {
        let body = QueryInfoRequestBody {
            info_type: INFO_FILESYSTEM,
            file_info_class: fs_class::ATTRIBUTE,
            output_buffer_length: 64.into(),
            file_id: root,
            ..Default::default()
        };
        write_query_info_request(out, body, &[]);
    });
    let data = OutputBufferResponse::parse(&answer).unwrap().data().unwrap();
    let told = u32::from_le_bytes(data[..4].try_into().unwrap());
    // Every file has checksums, and no client can switch them off. Object identifiers are kept.
    assert_eq!(told & FileSystemAttributes::SUPPORTS_INTEGRITY_STREAMS.bits(), 0);
    assert_ne!(told & FileSystemAttributes::SUPPORTS_OBJECT_IDS.bits(), 0);
}

#[test]
fn a_security_descriptor_is_laid_out_owner_group_and_access_list() {
    let mut world = World::over_volume();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    let data = client.security(&mut world, file);
    let at = |field: usize| u32::from_le_bytes(data[field..field + 4].try_into().unwrap());
    let (owner, group, sacl, dacl) = (at(4), at(8), at(12), at(16));
    assert_eq!((owner, sacl), (20, 0));
    assert!(owner < group && group < dacl, "{owner} {group} {dacl}");
}
