//! Chains of requests (MS-SMB2 3.3.5.2.7).

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

fn create_read_close(client: &mut Client, name: &str) -> Vec<Vec<u8>> {
    vec![
        client.build(Command::Create, Client::create_body(name)),
        client.build(Command::Read, Client::read_body(FileId::RELATED, 5)),
        client.build(Command::Close, Client::close_body(FileId::RELATED)),
    ]
}

#[test]
fn related_requests_work_on_the_file_the_first_opened() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    world.layer.0.borrow_mut().content = b"hello world".to_vec();
    let chain = join(create_read_close(&mut client, "file"), true);
    client.send(&mut world, chain);
    let message = client.receive(&mut world).unwrap();
    assert!(message.len().is_multiple_of(8));
    let answers = split(&message);
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| status(answer) == NtStatus::SUCCESS));
    assert_eq!(ReadResponse::parse(&answers[1]).unwrap().data().unwrap(), b"hello");
    assert_eq!(world.server.gauges().opens, 0);
}

#[test]
fn what_follows_a_failed_create_fails_as_it_did() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let chain = join(create_read_close(&mut client, "missing"), true);
    client.send(&mut world, chain);
    let answers = split(&client.receive(&mut world).unwrap());
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| status(answer) == NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn a_first_request_that_claims_to_be_related_is_invalid_with_all_that_relate_to_it() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut requests = create_read_close(&mut client, "file");
    let header = Header::in_place(&mut requests[0]).unwrap();
    header.flags = HeaderFlags::RELATED_OPERATIONS.bits().into();
    client.send(&mut world, join(requests, true));
    let answers = split(&client.receive(&mut world).unwrap());
    assert!(answers.iter().all(|answer| status(answer) == NtStatus::INVALID_PARAMETER));
}

#[test]
fn unrelated_requests_fail_each_for_itself() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let nothing = FileId { persistent: 9.into(), volatile: 9.into() };
    let requests = vec![
        client.build(Command::Create, Client::create_body("file")),
        client.build(Command::Close, Client::close_body(nothing)),
        client.build(Command::Echo, |out| out.put(&EmptyBody::default())),
    ];
    client.send(&mut world, join(requests, false));
    let found: Vec<_> =
        split(&client.receive(&mut world).unwrap()).iter().map(|answer| status(answer)).collect();
    assert_eq!(found, [NtStatus::SUCCESS, NtStatus::FILE_CLOSED, NtStatus::SUCCESS]);
}

#[test]
fn every_answer_of_a_signed_compound_is_signed_for_itself() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    world.layer.0.borrow_mut().content = b"abc".to_vec();
    let requests = create_read_close(&mut client, "file");
    let count = requests.len();
    let mut out = Vec::new();
    for (position, mut request) in requests.into_iter().enumerate() {
        let header = Header::in_place(&mut request).unwrap();
        let mut flags = HeaderFlags::SIGNED;
        if position > 0 {
            flags |= HeaderFlags::RELATED_OPERATIONS;
        }
        header.flags = flags.bits().into();
        let id = header.message_id.get();
        if position + 1 < count {
            request.resize(request.len().next_multiple_of(8), 0);
            let len = request.len() as u32;
            Header::in_place(&mut request).unwrap().next_command = len.into();
        }
        client.signing.as_ref().unwrap().sign_in_place(&mut request, id, false, false).unwrap();
        out.extend(request);
    }
    world.deliver(client.connection, &out);
    let answers = split(&client.receive(&mut world).unwrap());
    assert_eq!(answers.len(), 3);
    for answer in &answers {
        assert_eq!(status(answer), NtStatus::SUCCESS);
        assert!(client.is_signed(answer));
    }
}

#[test]
fn a_chain_that_leads_outside_its_message_ends_the_connection() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut chain = join(create_read_close(&mut client, "file"), true);
    chain[20..24].copy_from_slice(&0xFFFF_FFF8_u32.to_le_bytes());
    client.send(&mut world, chain);
    assert!(world.is_closing(client.connection));
}

fn reads(client: &mut Client, file: FileId, count: u64, length: u32) -> Vec<u8> {
    let requests = (0..count).map(|_| {
        let mut message = client.build(Command::Read, Client::read_body(file, length));
        let charge = (length >> 16) as u16;
        Header::in_place(&mut message).unwrap().credit_charge = charge.into();
        client.message_id += u64::from(charge) - 1;
        message
    });
    join(requests.collect(), false)
}

#[test]
fn answers_of_a_compound_that_are_too_much_for_one_message_come_in_several() {
    for seals in [false, true] {
        let mut world = World::new();
        let mut client = Client::ready(&mut world);
        // Gets credits for all requests.
        for _ in 0..8 {
            let mut echo = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
            Header::in_place(&mut echo).unwrap().credits = 512.into();
            client.send(&mut world, echo);
            client.receive(&mut world).unwrap();
        }
        client.seal = seals;
        let file = client.create(&mut world, "file");
        world.layer.0.borrow_mut().block = Some(sys::Buf::from(&vec![7; 8 << 20][..]));
        let chain = reads(&mut client, file, 12, 8 << 20);
        client.send(&mut world, chain);
        let mut found = Vec::new();
        while let Some(raw) = world.sent(client.connection) {
            assert!(raw.len() < 1 << 24, "24 bits say how long a message is");
            found.extend(split(&client.open(&raw)).iter().map(|answer| status(answer)));
        }
        assert_eq!(found.len(), 12);
        assert_eq!(found[..8], [NtStatus::SUCCESS; 8]);
        assert_eq!(found[9..], [NtStatus::INSUFFICIENT_RESOURCES; 3], "64 MiB are on their way at most");
    }
}

#[test]
fn what_a_chain_holds_while_it_waits_counts_against_its_connection() {
    let mut world = World::with(|config| config.limits.bytes_in_flight_per_connection = 3 << 20);
    let mut client = Client::ready(&mut world);
    for _ in 0..4 {
        let mut echo = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
        Header::in_place(&mut echo).unwrap().credits = 512.into();
        client.send(&mut world, echo);
        client.receive(&mut world).unwrap();
    }
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().block = Some(sys::Buf::from(&vec![7; 2 << 20][..]));
    world.layer.0.borrow_mut().hold = true;
    world.layer.0.borrow_mut().asked.clear();
    let alone = reads(&mut client, file, 1, 2 << 20);
    client.send(&mut world, alone);
    assert!(world.server.wants_messages(client.connection), "2 of 3 MiB wait to be sent");
    let mut chain = reads(&mut client, file, 1, 2 << 20);
    chain.resize(chain.len().next_multiple_of(8), 0);
    let len = chain.len() as u32;
    Header::in_place(&mut chain).unwrap().next_command = len.into();
    chain.extend(
        client
            .build(Command::Flush, |out| out.put(&FlushRequestBody { file_id: file, ..Default::default() })),
    );
    client.send(&mut world, chain);
    assert!(!world.server.wants_messages(client.connection));
    world.layer.release(0);
    world.run_until_idle();
    while client.receive(&mut world).is_some() {}
    assert!(world.server.wants_messages(client.connection));
}
