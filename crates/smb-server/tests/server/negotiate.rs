//! Results of negotiation, and offers that end the connection immediately.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

#[test]
fn the_highest_common_dialect_is_chosen() {
    let offers: [(&[u16], Dialect); 5] = [
        (&[0x0202], Dialect::Smb202),
        (&[0x0202, 0x0210], Dialect::Smb210),
        (&[0x0300, 0x0210], Dialect::Smb300),
        (&[0x0302, 0x9999], Dialect::Smb302),
        (&[0x0202, 0x0210, 0x0300, 0x0302, 0x0311], Dialect::Smb311),
    ];
    for (dialects, expected) in offers {
        let mut world = World::new();
        let mut client = Client::new(&mut world);
        let wishes = Wishes { dialects: dialects.to_vec(), ..Default::default() };
        let answer = client.negotiate(&mut world, &wishes);
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        assert_eq!(client.dialect, expected);
        assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS, "{expected:?}");
        assert_eq!(client.tree_connect(&mut world, "share"), NtStatus::SUCCESS);
    }
}

#[test]
fn no_common_dialect_is_not_supported() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    let wishes = Wishes { dialects: vec![0x0999], ..Default::default() };
    assert_eq!(status(&client.negotiate(&mut world, &wishes)), NtStatus::NOT_SUPPORTED);
}

#[test]
fn the_server_prefers_its_own_first_cipher_and_gmac() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    let wishes = Wishes {
        ciphers: vec![CIPHER_AES_256_CCM, CIPHER_AES_128_GCM, 0x77],
        signing: vec![0x99, SIGNING_HMAC_SHA256, SIGNING_AES_GMAC],
        ..Default::default()
    };
    let answer = client.negotiate(&mut world, &wishes);
    let response = NegotiateResponse::parse(&answer).unwrap();
    let contexts: Vec<_> = response.contexts().map(Result::unwrap).collect();
    let ids = |kind| {
        let context = contexts.iter().find(|context| context.context_type == kind).unwrap();
        counted_ids(context.data).unwrap().collect::<Vec<_>>()
    };
    assert_eq!(ids(CONTEXT_ENCRYPTION), [CIPHER_AES_128_GCM]);
    assert_eq!(ids(CONTEXT_SIGNING), [SIGNING_AES_GMAC]);
    assert!(contexts.iter().all(|context| context.context_type != 0x0100), "unknown is not answered");
}

#[test]
fn newest_dialect_without_preauthentication_is_refused() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    let answer = client.call(&mut world, Command::Negotiate, |out| {
        let contexts = [put_context(CONTEXT_ENCRYPTION, &put_counted_ids(&[1]))];
        write_negotiate_request(out, NegotiateRequestBody::default(), &[0x0311], &contexts);
    });
    assert_eq!(status(&answer), NtStatus::INVALID_PARAMETER);
}

#[test]
fn smb1_client_is_led_to_smb2() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    world.deliver(client.connection, &Smb1Negotiate::build(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"]));
    let answer = client.receive(&mut world).unwrap();
    assert_eq!(NegotiateResponse::parse(&answer).unwrap().dialect_revision.get(), DIALECT_WILDCARD);
    // The SMB1 message took identifier 0.
    client.message_id = 1;
    assert_eq!(status(&client.negotiate(&mut world, &Wishes::default())), NtStatus::SUCCESS);
    assert_eq!(client.log_on(&mut world, PASSWORD), NtStatus::SUCCESS);
}

#[test]
fn smb1_alone_is_disconnected() {
    let mut world = World::new();
    let client = Client::new(&mut world);
    world.deliver(client.connection, &Smb1Negotiate::build(&["NT LM 0.12"]));
    assert!(world.is_closing(client.connection));
}

#[test]
fn a_second_negotiate_or_none_at_all_ends_the_connection() {
    let mut world = World::new();
    let mut client = Client::new(&mut world);
    client.negotiate(&mut world, &Wishes::default());
    let again = client.build(Command::Negotiate, |out| {
        write_negotiate_request(out, NegotiateRequestBody::default(), &[0x0202], &[]);
    });
    world.deliver(client.connection, &again);
    assert!(world.is_closing(client.connection));

    let mut client = Client::new(&mut world);
    let early = client.build(Command::Echo, |out| out.put(&EmptyBody::default()));
    world.deliver(client.connection, &early);
    assert!(world.is_closing(client.connection));
}

#[test]
fn validate_negotiate_that_differs_from_what_came_ends_the_connection() {
    for (capabilities, stays) in [(0x7F_u32, true), (0x7E, false)] {
        let mut world = World::new();
        let mut client = Client::new(&mut world);
        let wishes = Wishes { dialects: vec![0x0302], ..Default::default() };
        client.negotiate(&mut world, &wishes);
        client.log_on(&mut world, PASSWORD);
        client.tree_connect(&mut world, "share");
        client.sign = true;
        let message = client.build(Command::Ioctl, |out| {
            let mut input = Vec::new();
            input.put(&ValidateNegotiateRequest {
                capabilities: capabilities.into(),
                guid: [5; 16],
                security_mode: 1.into(),
                dialect_count: 1.into(),
            });
            input.put_wide(&[0x0302]);
            let body = IoctlRequestBody {
                control_code: fsctl::VALIDATE_NEGOTIATE_INFO.into(),
                file_id: FileId::RELATED,
                max_output_response: 24.into(),
                flags: IOCTL_IS_FSCTL.into(),
                ..Default::default()
            };
            write_ioctl_request(out, body, &input);
        });
        client.send(&mut world, message);
        assert_eq!(world.is_closing(client.connection), !stays);
        if stays {
            let answer = client.receive(&mut world).unwrap();
            let output = IoctlResponse::parse(&answer).unwrap().output().unwrap();
            let answer: &ValidateNegotiateResponse = view_at(output, 0).unwrap();
            assert_eq!(answer.dialect.get(), 0x0302);
        }
    }
}
