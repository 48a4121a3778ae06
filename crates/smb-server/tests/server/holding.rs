//! State that one client can make the server hold, or search through: CANCEL, compounds, waiting
//! requests, opens, pipes.

use crate::fixture::*;
use smb::wire::*;
use smb_server::{Account, ConnectionInfo, Directory, Transport};
use types::NtStatus;
use volume::backend::{Event, Operation};

fn cancel_of(message_id: u64) -> Vec<u8> {
    let mut header = Header::new(Command::Cancel);
    header.message_id = message_id.into();
    let mut message = Vec::new();
    message.put(&header);
    message.put(&EmptyBody::default());
    message
}

/// Reports that the newest operation in the file layer takes long.
fn pend_newest(world: &mut World) {
    let operation = world.layer.0.borrow().asked.last().unwrap().0;
    world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
    world.run_until_idle();
}

fn hold(world: &World) {
    let mut layer = world.layer.0.borrow_mut();
    layer.asked.clear();
    layer.hold = true;
}

#[test]
fn a_cancel_before_negotiation_ends_the_connection() {
    let mut world = World::new();
    let client = Client::new(&mut world);
    world.deliver(client.connection, &cancel_of(0));
    assert!(world.is_closing(client.connection));
}

#[test]
fn a_compound_of_more_than_sixty_four_requests_ends_the_connection_even_of_cancels() {
    for (count, ends) in [(64, false), (65, true)] {
        let mut world = World::new();
        let client = Client::ready(&mut world);
        world.deliver(client.connection, &join(vec![cancel_of(0); count], false));
        assert_eq!(world.is_closing(client.connection), ends, "{count} elements");
    }
}

#[test]
fn cancel_by_message_id_finds_a_request_that_was_not_told_pending() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    hold(&world);
    let create = client.build(Command::Create, Client::create_body("file"));
    let id = Header::parse(&create).unwrap().message_id.get();
    client.send(&mut world, create);
    world.deliver(client.connection, &cancel_of(id + 1));
    assert!(world.layer.0.borrow().cancelled.is_empty());
    world.deliver(client.connection, &cancel_of(id));
    assert_eq!(status(&client.receive(&mut world).unwrap()), NtStatus::CANCELLED);
}

#[test]
fn cancel_of_another_connections_request_finds_nothing() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let other = Client::ready(&mut world);
    hold(&world);
    let create = client.build(Command::Create, Client::create_body("file"));
    let id = Header::parse(&create).unwrap().message_id.get();
    client.send(&mut world, create);
    world.deliver(other.connection, &cancel_of(id));
    assert!(world.layer.0.borrow().cancelled.is_empty());
}

#[test]
fn a_tree_disconnect_closes_what_was_opened_through_this_tree_and_nothing_else() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.create(&mut world, "stays");
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    client.create(&mut world, "goes");
    client.call(&mut world, Command::TreeDisconnect, |out| out.put(&EmptyBody::default()));
    assert_eq!(world.server.gauges().opens, 1);
}

/// A compound of a CREATE and a WRITE of this many bytes behind it.
fn create_and_write(client: &mut Client, bytes: usize) -> Vec<u8> {
    let mut create = client.build(Command::Create, Client::create_body("file"));
    Header::in_place(&mut create).unwrap().credit_charge = 1.into();
    let write = client.build(Command::Write, Client::write_body(FileId::RELATED, &vec![7; bytes]));
    join(vec![create, write], true)
}

#[test]
fn creates_that_wait_count_with_what_follows_them_and_are_refused_above_the_limit() {
    let mut world = World::with(|config| config.limits.parked_bytes_per_connection = 100_000);
    let mut client = Client::ready(&mut world);
    hold(&world);
    for expected in [NtStatus::PENDING, NtStatus::INSUFFICIENT_RESOURCES] {
        let compound = create_and_write(&mut client, 60_000);
        client.send(&mut world, compound);
        pend_newest(&mut world);
        assert_eq!(status(&client.receive(&mut world).unwrap()), expected);
        let held = world.server.gauges().parked_bytes;
        assert!((60_000..100_000).contains(&held), "{held}");
        assert!(world.server.wants_messages(client.connection), "what waits does not keep others waiting");
    }
    world.server.connection_closed(client.connection, world.now);
    world.run_until_idle();
    let left = world.server.gauges();
    assert_eq!((left.parked_bytes, left.in_flight_bytes, left.requests_in_work), (0, 0, 0));
}

#[test]
fn a_user_parks_no_more_than_is_free_over_all_sessions() {
    let mut world = World::with(|config| config.limits.parked_bytes = 200_000);
    for expected in [NtStatus::PENDING, NtStatus::INSUFFICIENT_RESOURCES] {
        world.layer.0.borrow_mut().hold = false;
        let mut client = Client::ready(&mut world);
        hold(&world);
        let compound = create_and_write(&mut client, 60_000);
        client.send(&mut world, compound);
        pend_newest(&mut world);
        assert_eq!(status(&client.receive(&mut world).unwrap()), expected);
    }
}

#[test]
fn a_waiting_request_keeps_of_its_message_only_what_is_still_to_be_done() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let file = client.create(&mut world, "file");
    hold(&world);
    world.layer.0.borrow_mut().block = Some(sys::BufMut::zeroed(16).freeze());
    let message = join(
        vec![
            client.build(Command::Write, Client::write_body(file, &[7; 60_000])),
            client.build(Command::Create, Client::create_body("other")),
            client.build(Command::Close, Client::close_body(FileId::RELATED)),
        ],
        false,
    );
    client.send(&mut world, message);
    world.run_until_idle();
    assert!(world.server.gauges().in_flight_bytes >= 60_000, "the whole message is held");
    pend_newest(&mut world);
    assert!(world.server.gauges().parked_bytes < 4096, "only CREATE and CLOSE are");
    while client.receive(&mut world).is_some() {}
    assert_eq!(world.server.gauges().in_flight_bytes, 0);
    world.layer.release(0);
    world.run_until_idle();
    let answer = client.receive(&mut world).expect("of CREATE");
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert!(client.receive(&mut world).is_some(), "CLOSE goes on");
    assert_eq!(world.server.gauges().parked_bytes, 0);
}

#[test]
fn create_contexts_longer_than_anybody_needs_are_an_invalid_parameter() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut contexts = CreateContextWriter::default();
    contexts.push(CONTEXT_SECURITY_DESCRIPTOR, &vec![0; 300 << 10]);
    let contexts = contexts.finish();
    let answer = client.call(&mut world, Command::Create, |out| {
        let body = CreateRequestBody { create_disposition: FILE_OPEN_IF.into(), ..Default::default() };
        write_create_request(out, body, &wide_from_str("file"), &contexts);
    });
    assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER);
}

#[test]
fn a_host_that_does_not_read_its_answers_is_not_listened_to_on_any_connection_while_others_are() {
    let mut world = World::with(|config| config.limits.bytes_in_flight = 200_000);
    let mut client = Client::ready(&mut world);
    let beside = Client::new(&mut world);
    let info = ConnectionInfo {
        peer: "10.0.0.3:50000".parse().unwrap(),
        local: "10.0.0.1:445".parse().unwrap(),
        transport: Transport::Tcp,
    };
    let elsewhere = world.server.connection_opened(info, world.now).unwrap();
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().content = vec![1; 65536];
    for _ in 0..2 {
        assert!(world.server.wants_messages(beside.connection));
        let read = client.build(Command::Read, Client::read_body(file, 65536));
        client.send(&mut world, read);
    }
    assert!(!world.server.wants_messages(beside.connection));
    assert!(world.server.wants_messages(elsewhere));
    // Handed to the transport, and still not on its way.
    let unsent: usize = std::iter::from_fn(|| client.receive(&mut world)).map(|bytes| bytes.len()).sum();
    world.server.set_unsent(client.connection, unsent);
    assert!(!world.server.wants_messages(beside.connection));
    world.server.set_unsent(client.connection, 0);
    assert!(world.server.wants_messages(beside.connection));
    assert_eq!(world.server.gauges().in_flight_bytes, 0);
}

#[test]
fn a_user_has_no_more_opens_than_are_free() {
    let mut world = World::with(|config| config.limits.opens = 10);
    for _ in 0..2 {
        let mut client = Client::ready(&mut world);
        let mut file = None;
        for _ in 0..5 {
            file = Some(client.create(&mut world, "file"));
        }
        let answer = client.call(&mut world, Command::Create, Client::create_body("file"));
        assert_eq!(status(&answer), NtStatus::TOO_MANY_OPENED_FILES);
        let close = Client::close_body(file.unwrap());
        client.call(&mut world, Command::Close, close);
        client.create(&mut world, "file");
        // Over all sessions of the user.
        let mut second = Client::ready(&mut world);
        let answer = second.call(&mut world, Command::Create, Client::create_body("file"));
        assert_eq!(status(&answer), NtStatus::TOO_MANY_OPENED_FILES);
        world.server.connection_closed(client.connection, world.now);
        world.run_until_idle();
        assert_eq!(world.server.gauges().opens, 0);
    }
}

#[test]
fn a_session_has_only_so_many_pipes() {
    let mut world = World::with(|config| config.limits.pipes_per_session = 3);
    let mut client = Client::ready(&mut world);
    assert_eq!(client.tree_connect(&mut world, "IPC$"), NtStatus::SUCCESS);
    let mut pipe = FileId::RELATED;
    for _ in 0..3 {
        pipe = client.create(&mut world, "srvsvc");
    }
    let answer = client.call(&mut world, Command::Create, Client::create_body("srvsvc"));
    assert_eq!(status(&answer), NtStatus::TOO_MANY_OPENED_FILES);
    client.call(&mut world, Command::Close, Client::close_body(pipe));
    client.create(&mut world, "srvsvc");
}

#[test]
fn a_pipe_keeps_its_own_name_and_not_what_a_client_put_before_it() {
    let mut world = World::with(|_| {});
    let mut client = Client::ready(&mut world);
    assert_eq!(client.tree_connect(&mut world, "IPC$"), NtStatus::SUCCESS);
    client.create(&mut world, &format!("{}srvsvc", r"\".repeat(30_000)));
    let opens = world.server.opens(world.now);
    assert_eq!(String::from_utf16_lossy(&opens[0].path), "srvsvc");
}

#[test]
fn what_a_pipe_keeps_is_counted_until_it_is_closed() {
    let mut world = World::with(|config| config.limits.parked_bytes = 10_000);
    let mut client = Client::ready(&mut world);
    assert_eq!(client.tree_connect(&mut world, "IPC$"), NtStatus::SUCCESS);
    let pipe = client.create(&mut world, "srvsvc");
    // A PDU that announces 60,000 bytes, and the first of them.
    let mut pdu = vec![5, 0, 0, 3, 0x10, 0, 0, 0, 0x60, 0xEA, 0, 0, 1, 0, 0, 0];
    pdu.resize(4000, 0);
    let answer = client.call(&mut world, Command::Write, Client::write_body(pipe, &pdu));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert!(world.server.gauges().parked_bytes >= 4000);
    let answer = client.call(&mut world, Command::Write, Client::write_body(pipe, &[0; 8000]));
    assert_eq!(status(&answer), NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(world.server.gauges().parked_bytes, 0);
    let answer = client.call(&mut world, Command::Write, Client::write_body(pipe, &[0; 10]));
    assert_eq!(status(&answer), NtStatus::PIPE_DISCONNECTED);
    let pipe = client.create(&mut world, "srvsvc");
    client.call(&mut world, Command::Write, Client::write_body(pipe, &pdu));
    client.call(&mut world, Command::Close, Client::close_body(pipe));
    assert_eq!(world.server.gauges().parked_bytes, 0);
}

/// A PDU of DCE/RPC (C706 12.6.3.1) that is whole.
fn pdu(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![5, 0, kind, 3, 0x10, 0, 0, 0, (16 + body.len()) as u8, 0, 0, 0, 1, 0, 0, 0];
    out.extend_from_slice(body);
    out
}

/// Returns the tree connects of `share` by NetrShareGetInfo (MS-SRVS 3.1.4.10, SHARE_INFO_2), over a
/// separate session.
fn uses_of_share(world: &mut World) -> u32 {
    const BIND: u8 = 11;
    const GET_INFO: u8 = 16;
    let mut client = Client::ready_at(world, "IPC$");
    let pipe = client.create(world, "srvsvc");
    let mut bind = vec![0xB8, 0x10, 0xB8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0];
    bind.extend([
        0xC8, 0x4F, 0x32, 0x4B, 0x70, 0x16, 0xD3, 1, 0x12, 0x78, 0x5A, 0x47, 0xBF, 0x6E, 0xE1, 0x88,
    ]);
    bind.extend([3, 0, 0, 0]);
    bind.extend([4, 0x5D, 0x88, 0x8A, 0xEB, 0x1C, 0xC9, 0x11, 0x9F, 0xE8, 8, 0, 0x2B, 0x10, 0x48, 0x60]);
    bind.extend([2, 0, 0, 0]);
    // No server's name; the share's; the level.
    let mut stub: Vec<u8> = [0_u32, 6, 0, 6].iter().flat_map(|number| number.to_le_bytes()).collect();
    stub.extend("share\0".encode_utf16().flat_map(u16::to_le_bytes));
    stub.extend(2_u32.to_le_bytes());
    let mut request = vec![stub.len() as u8, 0, 0, 0, 0, 0, GET_INFO, 0];
    request.extend(stub);
    let mut answer = Vec::new();
    for written in [pdu(BIND, &bind), pdu(0, &request)] {
        client.call(world, Command::Write, Client::write_body(pipe, &written));
        answer = client.call(world, Command::Read, Client::read_body(pipe, 4280));
    }
    let at = READ_RESPONSE_DATA_OFFSET + 24;
    let number = |nth: usize| u32::from_le_bytes(answer[at + 4 * nth..at + 4 * nth + 4].try_into().unwrap());
    assert_eq!(number(0), 2, "the level");
    number(7)
}

#[test]
fn the_tree_connects_that_end_with_their_volume_are_no_longer_counted() {
    let mut world = World::new();
    let mut token = (*world.people.account("", "user").unwrap().token).clone();
    token.groups.push(types::Sid::administrators());
    let account = Account { token: token.into(), ..world.people.account("", "user").unwrap() };
    world.people.0.borrow_mut().account = Some(Some(account));
    let mut client = Client::ready(&mut world);
    client.create(&mut world, "file");
    assert_eq!(uses_of_share(&mut world), 1);
    let volume = types::VolumeId::from_bytes([9; 16]);
    let layer = world.server.remove_volume(volume, world.now).unwrap();
    world.server.add_volume(volume, layer);
    assert_eq!(uses_of_share(&mut world), 0);
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    assert_eq!(uses_of_share(&mut world), 1);
}

#[test]
fn the_end_of_a_logon_that_never_was_does_not_reach_the_volumes() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes::default());
    assert_eq!(client.log_on(&mut world, "wrong"), NtStatus::PENDING);
    world.server.connection_closed(client.connection, world.now);
    world.run_until_idle();
    let asked = &world.layer.0.borrow().asked;
    assert!(!asked.iter().any(|(_, operation)| matches!(operation, Operation::EndSession { .. })));
}

#[test]
fn sessions_and_tree_connects_of_a_user_share_one_budget_however_they_are_multiplied() {
    // A MiB for all sessions, so that a user has at most half of it: a thousand tree connects, less the
    // sessions' own bytes.
    let mut world = World::with(|config| config.limits.sessions = 64);
    let logged_on = |world: &mut World, user: &str| {
        let mut client = Client::new(world);
        client.user = user.to_owned();
        client.negotiate(world, &Wishes::default());
        assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS, "{user}");
        client
    };
    let connected = |world: &mut World, client: &mut Client| {
        (0..4096).take_while(|_| client.tree_connect(world, "IPC$") == NtStatus::SUCCESS).count()
    };
    let mut clients: Vec<Client> = (0..4).map(|_| logged_on(&mut world, "user")).collect();
    let trees: Vec<usize> = clients.iter_mut().map(|client| connected(&mut world, client)).collect();
    assert!((900..1000).contains(&trees[0]), "{trees:?}");
    assert_eq!(trees[1..], [0; 3], "what one session holds is not to be had by another of the same user");
    let mut second = logged_on(&mut world, "second");
    assert!(connected(&mut world, &mut second) > 100, "others have their share");
    // Returned tree connects are available again.
    let answer = clients[0].call(&mut world, Command::Logoff, |out| out.put(&EmptyBody::default()));
    assert_eq!(status(&answer), NtStatus::SUCCESS);
    assert!(connected(&mut world, &mut clients[1]) > 100);
}
