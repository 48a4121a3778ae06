//! Messages signed and encrypted with a session's keys, and for which clients.

use crate::fixture::*;
use smb::auth::{Credentials, Initiator, NtHash};
use smb::crypto::{CipherId, SealingKey, SigningAlgorithm, SigningKey};
use smb::wire::*;
use std::collections::HashSet;
use types::NtStatus;
use volume::backend::Event;

fn gmac() -> Wishes {
    Wishes { signing: vec![SIGNING_AES_GMAC], ..Wishes::default() }
}

fn logged_on(world: &mut World, wishes: &Wishes) -> Client {
    let mut client = Client::new(world);
    client.negotiate(world, wishes);
    assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
    client
}

/// The first message of any logon: nothing in it is secret.
fn first_token() -> Vec<u8> {
    let initiator = Initiator::new(Credentials::User {
        user: "user".to_owned(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password("unknown"),
        target_name: String::new(),
    });
    initiator.first_token().to_vec()
}

/// Makes an unsigned SESSION_SETUP with the binding flag.
fn binding(client: &mut Client, flags: u8) -> Vec<u8> {
    let token = first_token();
    client.build(Command::SessionSetup, |out| {
        write_session_setup_request(out, SessionSetupRequestBody { flags, ..Default::default() }, &token);
    })
}

fn signature(answer: &[u8]) -> [u8; 16] {
    Header::parse(answer).unwrap().signature
}

/// Asks to bind under a signature that is made up.
fn forge_binding(world: &mut World, stranger: &mut Client) -> Vec<u8> {
    let mut message = binding(stranger, SESSION_FLAG_BINDING);
    let header = Header::in_place(&mut message).unwrap();
    header.flags = HeaderFlags::SIGNED.bits().into();
    header.signature = [0xAB; 16];
    world.deliver(stranger.connection, &message);
    stranger.receive(world).expect("a refusal")
}

#[test]
fn a_forged_binding_is_refused_without_a_signature() {
    // The stranger's dialect and algorithms decide which refusal it is; the session signs none of them.
    let others = [
        gmac(),
        Wishes::default(),
        Wishes { ciphers: vec![CIPHER_AES_128_CCM], ..gmac() },
        Wishes { dialects: vec![0x0302], ..Wishes::default() },
        Wishes { dialects: vec![0x0210], ..Wishes::default() },
    ];
    for wishes in [gmac(), Wishes::default(), Wishes { dialects: vec![0x0210], ..Wishes::default() }] {
        for other in &others {
            let mut world = World::new();
            let victim = logged_on(&mut world, &wishes);
            let mut stranger = Client::new(&mut world);
            stranger.negotiate(&mut world, other);
            stranger.session = victim.session;
            for _ in 0..3 {
                let answer = forge_binding(&mut world, &mut stranger);
                assert!(status(&answer).is_error());
                assert_eq!(signature(&answer), [0; 16], "{}", status(&answer));
            }
        }
    }
}

#[test]
fn the_answers_to_a_genuine_binding_are_signed() {
    for wishes in [Wishes::default(), gmac()] {
        let mut world = World::new();
        let victim = logged_on(&mut world, &wishes);
        let mut second = Client::new(&mut world);
        second.negotiate(&mut world, &wishes);
        second.session = victim.session;
        let mut message = binding(&mut second, SESSION_FLAG_BINDING);
        sign(victim.signing.as_ref().unwrap(), &mut message);
        world.deliver(second.connection, &message);
        let answer = second.receive(&mut world).unwrap();
        assert_eq!(status(&answer), NtStatus::MORE_PROCESSING_REQUIRED);
        assert!(victim.is_signed(&answer));
    }
}

#[test]
fn a_nonce_of_a_session_that_signs_by_gmac_is_used_once_however_many_channels_it_has() {
    // Each connection begins with message identifier 0: signatures with the session's own key have the
    // same nonces. The monitor in the build of the tests would end this one.
    let mut world = World::new();
    let first = logged_on(&mut world, &gmac());
    for _ in 0..5 {
        let mut channel = Client::new(&mut world);
        channel.negotiate(&mut world, &gmac());
        assert_eq!(channel.bind(&mut world, &first), NtStatus::SUCCESS);
        channel.sign = true;
        assert_eq!(channel.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    }
    // A connection that has been in use before, whose identifiers are others.
    let mut late = logged_on(&mut world, &gmac());
    assert_eq!(late.bind(&mut world, &first), NtStatus::SUCCESS);
}

#[test]
fn who_repeats_a_binding_that_was_heard_learns_nothing_new_and_gets_no_channel() {
    let mut world = World::new();
    let first = logged_on(&mut world, &gmac());
    let mut second = Client::new(&mut world);
    second.negotiate(&mut world, &gmac());
    assert_eq!(second.bind(&mut world, &first), NtStatus::SUCCESS);
    let mut challenges = HashSet::new();
    for _ in 0..3 {
        let mut stranger = Client::new(&mut world);
        stranger.negotiate(&mut world, &gmac());
        stranger.session = first.session;
        world.deliver(stranger.connection, &second.setups[0]);
        let challenge = stranger.receive(&mut world).expect("the same challenge");
        assert_eq!(status(&challenge), NtStatus::MORE_PROCESSING_REQUIRED);
        challenges.insert(challenge);
        world.deliver(stranger.connection, &second.setups[1]);
        let refusal = stranger.receive(&mut world).expect("a refusal");
        assert_eq!(status(&refusal), NtStatus::ACCESS_DENIED);
        assert_eq!(signature(&refusal), [0; 16]);
        stranger.message_id += 2;
        let message = stranger.build(Command::TreeConnect, |out| {
            write_tree_connect_request(out, 0, &wide_from_str(r"\\server\share"));
        });
        world.deliver(stranger.connection, &message);
        let answer = stranger.receive(&mut world).expect("a refusal");
        assert_eq!(status(&answer), NtStatus::USER_SESSION_DELETED, "it is no channel");
    }
    assert_eq!(challenges.len(), 1, "an answer is the same as often as its request is");
}

#[test]
fn the_refusal_of_one_channel_too_many_is_signed() {
    // With 32 channels the client has signed 31 requests under one nonce of the session's key: one more
    // answer gives nothing away that these did not, and shows the client that its own server refuses.
    for wishes in [Wishes::default(), gmac()] {
        let mut world = World::new();
        let first = logged_on(&mut world, &wishes);
        for _ in 1..32 {
            let mut channel = Client::new(&mut world);
            channel.negotiate(&mut world, &wishes);
            assert_eq!(channel.bind(&mut world, &first), NtStatus::SUCCESS);
        }
        let mut late = Client::new(&mut world);
        late.negotiate(&mut world, &wishes);
        smb::crypto::forget_nonces();
        let answer = late.try_bind(&mut world, &first);
        assert_eq!(status(&answer), NtStatus::INSUFFICIENT_RESOURCES);
        assert!(first.is_signed(&answer));
    }
}

#[test]
fn a_connection_that_is_a_channel_is_bound_again_under_its_own_key_alone_and_refused() {
    for wishes in [Wishes::default(), gmac()] {
        let mut world = World::new();
        let first = logged_on(&mut world, &wishes);
        let mut second = Client::new(&mut world);
        second.negotiate(&mut world, &wishes);
        assert_eq!(second.bind(&mut world, &first), NtStatus::SUCCESS);
        for (of_session, expected) in
            [(true, NtStatus::ACCESS_DENIED), (false, NtStatus::REQUEST_NOT_ACCEPTED)]
        {
            let mut message = binding(&mut second, SESSION_FLAG_BINDING);
            let key = if of_session { &first.signing } else { &second.signing };
            sign(key.as_ref().unwrap(), &mut message);
            world.deliver(second.connection, &message);
            let answer = second.receive(&mut world).unwrap();
            assert_eq!(status(&answer), expected);
            assert_eq!(second.is_signed(&answer), !of_session);
        }
    }
}

#[test]
fn each_leg_of_a_binding_is_verified() {
    for wishes in [Wishes::default(), gmac()] {
        for (flags, signs) in [(0, true), (0, false), (SESSION_FLAG_BINDING, false)] {
            let mut world = World::new();
            let first = logged_on(&mut world, &wishes);
            let mut second = Client::new(&mut world);
            second.negotiate(&mut world, &wishes);
            second.session = first.session;
            let mut message = binding(&mut second, SESSION_FLAG_BINDING);
            sign(first.signing.as_ref().unwrap(), &mut message);
            world.deliver(second.connection, &message);
            second.receive(&mut world).expect("a challenge");
            let mut message = binding(&mut second, flags);
            if signs {
                sign(first.signing.as_ref().unwrap(), &mut message);
            }
            world.deliver(second.connection, &message);
            let answer = second.receive(&mut world).expect("a refusal, at once");
            let expected =
                if flags == 0 { NtStatus::USER_SESSION_DELETED } else { NtStatus::INVALID_PARAMETER };
            assert_eq!(status(&answer), expected, "{flags} {signs}");
            assert_eq!(signature(&answer), [0; 16]);
        }
    }
}

#[test]
fn what_a_forged_request_is_refused_with_is_not_signed() {
    for wishes in [Wishes::default(), gmac()] {
        let mut world = World::new();
        let mut client = logged_on(&mut world, &wishes);
        for command in [Command::Echo, Command::Logoff, Command::TreeConnect, Command::SessionSetup] {
            let mut message = client.build(command, |_| {});
            let header = Header::in_place(&mut message).unwrap();
            header.flags = HeaderFlags::SIGNED.bits().into();
            header.signature = [0xAB; 16];
            world.deliver(client.connection, &message);
            let answer = client.receive(&mut world).expect("a refusal");
            assert_eq!(signature(&answer), [0; 16], "{}", command.name());
        }
    }
}

#[test]
fn of_two_answers_to_one_request_the_last_alone_is_signed() {
    let mut world = World::new();
    let mut client = logged_on(&mut world, &gmac());
    client.tree_connect(&mut world, "share");
    client.sign = true;
    let file_id = client.create(&mut world, "file");
    world.layer.0.borrow_mut().asked.clear();
    world.layer.0.borrow_mut().hold = true;
    let read = client.build(Command::Read, Client::read_body(file_id, 5));
    client.send(&mut world, read);
    let operation = world.layer.0.borrow().asked[0].0;
    world.layer.0.borrow_mut().events.push_back(Event::Pending { operation });
    world.run_until_idle();
    let interim = client.receive(&mut world).unwrap();
    assert_eq!((status(&interim), signature(&interim)), (NtStatus::PENDING, [0; 16]));
    world.layer.0.borrow_mut().content = b"hello".to_vec();
    world.layer.release(0);
    world.run_until_idle();
    let answer = client.receive(&mut world).unwrap();
    assert!(client.is_signed(&answer));
}

#[test]
fn a_tree_connect_of_3_1_1_is_signed_or_encrypted_or_ends_its_connection() {
    let path = wide_from_str(r"\\server\share");
    for (dialect, ends) in [(0x0311, true), (0x0302, false), (0x0210, false)] {
        let mut world = World::new();
        let mut client = logged_on(&mut world, &Wishes { dialects: vec![dialect], ..Wishes::default() });
        let message = client.build(Command::TreeConnect, |out| write_tree_connect_request(out, 0, &path));
        world.deliver(client.connection, &message);
        assert_eq!(world.is_closing(client.connection), ends, "{dialect:x}");
        assert_eq!(client.receive(&mut world).is_none(), ends);
    }
    for seals in [true, false] {
        let mut world = World::new();
        let mut client = logged_on(&mut world, &Wishes::default());
        (client.seal, client.sign) = (seals, !seals);
        assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    }
}

#[test]
fn names_of_sessions_cannot_be_guessed_from_each_other() {
    let mut world = World::new();
    let mut names = Vec::new();
    for _ in 0..64 {
        let client = logged_on(&mut world, &Wishes::default());
        names.push(client.session);
        world.server.connection_closed(client.connection, world.now);
    }
    assert!(names.iter().all(|name| *name != 0 && *name < u64::from(u32::MAX)));
    let steps: HashSet<u64> = names.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert_eq!(steps.len(), 63, "no two are as far apart as two others");
}

#[test]
fn a_logoff_ends_its_session_when_its_own_answer_is_sent() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut other = Client::ready(&mut world);
    client.sign = true;
    // The chain ends with another session's CREATE, which waits; the answer to LOGOFF waits with it.
    let mut logoff = client.build(Command::Logoff, |out| out.put(&EmptyBody::default()));
    let own = client.session;
    client.session = 0;
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    let header = Header::in_place(&mut logoff).unwrap();
    (header.message_id, header.session_id) = (client.message_id.into(), own.into());
    client.message_id += 1;
    world.layer.0.borrow_mut().hold = true;
    let create = client.build(Command::Create, Client::create_body("file"));
    let chain = join(vec![logoff, create], false);
    world.deliver(client.connection, &chain);
    assert!(client.receive(&mut world).is_none());
    assert_eq!(world.server.gauges().sessions, 3);
    let echo = other.call(&mut world, Command::Echo, |out| out.put(&EmptyBody::default()));
    assert_eq!(status(&echo), NtStatus::SUCCESS);
    assert_eq!(world.server.gauges().sessions, 3, "another connection's answer ends nobody's session");
    world.layer.release(0);
    world.run_until_idle();
    let answers = split(&client.receive(&mut world).unwrap());
    assert!(answers.iter().all(|answer| status(answer) == NtStatus::SUCCESS));
    assert_eq!(world.server.gauges().sessions, 2);
}

#[test]
fn a_session_that_logged_off_ends_though_its_connection_was_lost_before_the_answer() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    let mut channel = Client::new(&mut world);
    channel.negotiate(&mut world, &Wishes::default());
    assert_eq!(channel.bind(&mut world, &client), NtStatus::SUCCESS);
    let logoff = client.build(Command::Logoff, |out| out.put(&EmptyBody::default()));
    let mut other = Client { session: 0, ..client };
    assert_eq!(other.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(other.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    let mut logoff = logoff;
    Header::in_place(&mut logoff).unwrap().message_id = other.message_id.into();
    other.message_id += 1;
    world.layer.0.borrow_mut().hold = true;
    let create = other.build(Command::Create, Client::create_body("file"));
    let chain = join(vec![logoff, create], false);
    world.deliver(other.connection, &chain);
    world.server.connection_closed(other.connection, world.now);
    world.run_until_idle();
    assert_eq!(world.server.gauges().sessions, 0);
}

#[test]
#[should_panic(expected = "two messages are protected with one key")]
fn the_monitor_finds_a_key_that_encrypts_twice_with_one_nonce() {
    for plain in [b"first ", b"second"] {
        let mut key = SealingKey::new(CipherId::Aes128Gcm, &[1; 16]).unwrap();
        let mut out = vec![0; TRANSFORM_HEADER_BYTES + plain.len()];
        key.seal_parts(&[plain], &mut out, 1).unwrap();
    }
}

#[test]
#[should_panic(expected = "two messages are protected with one key")]
fn the_monitor_finds_a_server_that_signs_two_answers_with_one_nonce() {
    let key = SigningKey::new(SigningAlgorithm::AesGmac, &[1; 16]);
    key.sign(&[&[0; 64]], 7, true, false);
    key.sign(&[&[0; 72]], 7, true, false);
}
