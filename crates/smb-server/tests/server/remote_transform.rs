//! Payload by RDMA on sessions that are signed or encrypted: protected as the messages are, or not sent.

use crate::fixture::*;
use smb::wire::*;
use smb_server::{Outgoing, Transport};
use sys::Buf;
use types::NtStatus;
use volume::backend::Operation;

const DATA: &[u8] = b"payload that nobody else may read or change";

/// How messages are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Signed { gmac: bool },
    Sealed,
}

const PROTECTED: [How; 3] = [How::Signed { gmac: false }, How::Signed { gmac: true }, How::Sealed];

/// Logged on over SMB Direct, with a file open.
fn ready(world: &mut World, how: How, transforms: &[u16]) -> (Client, FileId) {
    let mut client = Client::new(world);
    client.connection = world.connect_by(Transport::SmbDirect).unwrap();
    let gmac = how == How::Signed { gmac: true };
    let signing = vec![if gmac { SIGNING_AES_GMAC } else { SIGNING_AES_CMAC }];
    client.negotiate(world, &Wishes { signing, transforms: transforms.to_vec(), ..Wishes::default() });
    assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
    client.sign = matches!(how, How::Signed { .. });
    client.seal = how == How::Sealed;
    assert_eq!(client.tree_connect(world, "share"), NtStatus::SUCCESS);
    let file = client.create(world, "file");
    world.layer.0.borrow_mut().content = DATA.to_vec();
    (client, file)
}

fn memory() -> [BufferDescriptorV1; 1] {
    [BufferDescriptorV1 { offset: 0x1000.into(), token: 5.into(), length: 4096.into() }]
}

fn read(client: &mut Client, world: &mut World, file_id: FileId) {
    let message = client.build(Command::Read, |out| {
        let channel = CHANNEL_RDMA_V1.into();
        let body = ReadRequestBody { length: 4096.into(), file_id, channel, ..Default::default() };
        write_read_request(out, body, &memory());
    });
    client.send(world, message);
}

/// The next message, opened; payload by RDMA before it is answered beside it.
fn outcome(client: &mut Client, world: &mut World) -> (Vec<u8>, Vec<Outgoing>) {
    let mut before = Vec::new();
    loop {
        match world.server.poll_outgoing(client.connection).expect("an answer") {
            Outgoing::Message { payload, .. } => return (client.open(&payload.contiguous()), before),
            other => before.push(other),
        }
    }
}

/// Sends a WRITE of [`DATA`] by RDMA, which fetches `fetched`; `change` spoils its transform. Returns
/// its status.
fn write(
    client: &mut Client,
    world: &mut World,
    file_id: FileId,
    fetched: &[u8],
    transform: &RdmaTransform<'_>,
    change: impl FnOnce(&mut Vec<u8>),
) -> NtStatus {
    let mut info = Vec::new();
    transform.write(&mut info);
    change(&mut info);
    let message = client.build(Command::Write, |out| {
        let (remaining_bytes, channel) = ((fetched.len() as u32).into(), CHANNEL_RDMA_TRANSFORM.into());
        let body = WriteRequestBody { remaining_bytes, channel, file_id, ..Default::default() };
        write_write_request_with_info(out, body, &info);
    });
    client.send(world, message);
    match world.server.poll_outgoing(client.connection).expect("a reaction") {
        Outgoing::RemoteRead { token, len_bytes, .. } => {
            assert_eq!(len_bytes, fetched.len());
            world.server.remote_read(client.connection, token, Some(Buf::from(fetched)), world.now);
            world.run_until_idle();
            status(&outcome(client, world).0)
        }
        Outgoing::Message { payload, .. } => status(&client.open(&payload.contiguous())),
        Outgoing::RemoteWrite { .. } => panic!("nothing is to be written to the client"),
    }
}

fn written(world: &World) -> bool {
    world.layer.0.borrow().asked.iter().any(|(_, asked)| matches!(asked, Operation::Write { .. }))
}

/// The transform of a WRITE that this client protects as its messages; the payload as it lies in its memory.
fn protect(client: &mut Client, how: How) -> (u16, Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut payload = DATA.to_vec();
    match how {
        How::Sealed => {
            let (sealing, _) = client.sealing.as_mut().unwrap();
            let (nonce, tag) = sealing.seal_payload(&[DATA], &mut payload).unwrap();
            (RDMA_TRANSFORM_ENCRYPTION, tag.to_vec(), nonce.as_bytes().to_vec(), payload)
        }
        _ => {
            let key = client.signing.as_ref().unwrap();
            let (nonce, signature) = key.sign_payload(&[&payload], client.message_id, false);
            (RDMA_TRANSFORM_SIGNING, signature.to_vec(), nonce.as_bytes().to_vec(), payload)
        }
    }
}

#[test]
fn without_a_transform_nothing_goes_by_rdma_on_a_protected_session() {
    for how in PROTECTED {
        let mut world = World::new();
        let (mut client, file) = ready(&mut world, how, &[]);
        read(&mut client, &mut world, file);
        let (answer, by_rdma) = outcome(&mut client, &mut world);
        assert_eq!((status(&answer), by_rdma.len()), (NtStatus::INVALID_PARAMETER, 0), "{how:?}");
        let message = client.build(Command::Write, |out| {
            let (remaining_bytes, channel) = (5.into(), CHANNEL_RDMA_V1.into());
            let body = WriteRequestBody { remaining_bytes, channel, file_id: file, ..Default::default() };
            write_write_request(out, body, &memory());
        });
        client.send(&mut world, message);
        let (answer, by_rdma) = outcome(&mut client, &mut world);
        assert_eq!((status(&answer), by_rdma.len()), (NtStatus::INVALID_PARAMETER, 0), "{how:?}");
        // Inside the message it is protected with it.
        let message = client.build(Command::Read, Client::read_body(file, 4096));
        client.send(&mut world, message);
        let (answer, by_rdma) = outcome(&mut client, &mut world);
        assert!(by_rdma.is_empty());
        assert_eq!(ReadResponse::parse(&answer).unwrap().data().unwrap(), DATA, "{how:?}");
    }
}

#[test]
fn what_is_read_is_protected_as_the_messages_are() {
    for how in PROTECTED {
        let mut world = World::new();
        let transforms = [RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING];
        let (mut client, file) = ready(&mut world, how, &transforms);
        read(&mut client, &mut world, file);
        let (answer, by_rdma) = outcome(&mut client, &mut world);
        let [Outgoing::RemoteWrite { payload, .. }] = &by_rdma[..] else { panic!("{how:?}: one payload") };
        let payload = payload.contiguous().to_vec();
        let response = ReadResponse::parse(&answer).unwrap();
        assert_eq!(response.data_remaining.get() as usize, DATA.len());
        assert_eq!(response.flags.get(), READ_RESPONSE_RDMA_TRANSFORM);
        let transform = RdmaTransform::parse(response.data().unwrap()).unwrap();
        assert_eq!(transform.channel, CHANNEL_NONE);
        if how == How::Sealed {
            assert_eq!(transform.transform_type, RDMA_TRANSFORM_ENCRYPTION);
            assert_ne!(payload, DATA, "it is not sent in the clear");
            let mut plain = vec![0; payload.len()];
            let (_, opening) = client.sealing.as_ref().unwrap();
            opening.open_payload(transform.nonce, transform.signature, &payload, &mut plain).unwrap();
            assert_eq!(plain, DATA);
        } else {
            assert_eq!(transform.transform_type, RDMA_TRANSFORM_SIGNING);
            assert_eq!(payload, DATA);
            let key = client.signing.as_ref().unwrap();
            key.verify_payload(&[&payload], transform.nonce, transform.signature).unwrap();
        }
    }
}

#[test]
fn what_is_written_must_be_what_the_client_protected() {
    for how in PROTECTED {
        let mut world = World::new();
        let transforms = [RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING];
        let (mut client, file) = ready(&mut world, how, &transforms);
        let (transform_type, signature, nonce, payload) = protect(&mut client, how);
        let descriptors = memory();
        let transform = RdmaTransform {
            channel: CHANNEL_RDMA_V1_INVALIDATE,
            transform_type,
            signature: &signature,
            nonce: &nonce,
            descriptors: &descriptors,
        };
        let mut forged = payload.clone();
        forged[7] ^= 1;
        let mismatch =
            if how == How::Sealed { NtStatus::AUTH_TAG_MISMATCH } else { NtStatus::INVALID_SIGNATURE };
        let refused = write(&mut client, &mut world, file, &forged, &transform, |_| {});
        assert_eq!(refused, mismatch, "{how:?}");
        let mut long = signature.clone();
        long.push(0);
        let with_long = RdmaTransform { signature: &long, ..transform };
        let refused = write(&mut client, &mut world, file, &payload, &with_long, |_| {});
        assert_eq!(refused, mismatch, "{how:?}: a signature that is too long");
        for count in [0, 2] {
            let refused = write(&mut client, &mut world, file, &payload, &transform, |info| info[8] = count);
            assert_eq!(refused, NtStatus::INVALID_PARAMETER, "{how:?}: {count} transforms");
        }
        let other = RdmaTransform { transform_type: 3 - transform_type, ..transform };
        let refused = write(&mut client, &mut world, file, &payload, &other, |_| {});
        assert_eq!(refused, NtStatus::INVALID_PARAMETER, "{how:?}: of the other kind");
        assert!(!written(&world), "{how:?}: nothing of it was written");
        assert_eq!(write(&mut client, &mut world, file, &payload, &transform, |_| {}), NtStatus::SUCCESS);
        assert_eq!(world.layer.0.borrow().content, DATA, "{how:?}");
    }
}

#[test]
fn a_transform_that_was_not_negotiated_or_has_nothing_to_match_is_refused() {
    let both = [RDMA_TRANSFORM_ENCRYPTION, RDMA_TRANSFORM_SIGNING];
    for (how, negotiated) in [
        (How::Sealed, &both[1..]),
        (How::Signed { gmac: false }, &both[..1]),
        (How::Sealed, &[]),
        (How::Plain, &both),
    ] {
        let mut world = World::new();
        let (mut client, file) = ready(&mut world, how, negotiated);
        let (transform_type, signature, nonce, payload) = protect(&mut client, how);
        let descriptors = memory();
        let transform = RdmaTransform {
            channel: CHANNEL_RDMA_V1,
            transform_type,
            signature: &signature,
            nonce: &nonce,
            descriptors: &descriptors,
        };
        let refused = write(&mut client, &mut world, file, &payload, &transform, |_| {});
        assert_eq!(refused, NtStatus::INVALID_PARAMETER, "{how:?} {negotiated:?}");
        assert!(!written(&world));
    }
}

#[test]
fn transforms_are_agreed_on_where_there_is_rdma_and_a_cipher() {
    let answered = |transport, ciphers: Vec<u16>, transforms: Vec<u16>| {
        let mut world = World::new();
        let mut client = Client::new(&mut world);
        client.connection = world.connect_by(transport).unwrap();
        let answer = client.negotiate(&mut world, &Wishes { ciphers, transforms, ..Wishes::default() });
        let response = NegotiateResponse::parse(&answer).unwrap();
        let found = response
            .contexts()
            .filter_map(Result::ok)
            .find(|context| context.context_type == CONTEXT_RDMA_TRANSFORM);
        found.map(|context| rdma_transform_ids(context.data).unwrap().collect::<Vec<_>>())
    };
    let gcm = || vec![CIPHER_AES_128_GCM];
    assert_eq!(answered(Transport::SmbDirect, gcm(), vec![2, 1, 77]), Some(vec![1, 2]));
    assert_eq!(answered(Transport::SmbDirect, vec![0x99], vec![1, 2]), Some(vec![2]));
    assert_eq!(answered(Transport::SmbDirect, gcm(), vec![77]), Some(vec![RDMA_TRANSFORM_NONE]));
    assert_eq!(answered(Transport::SmbDirect, gcm(), vec![]), None);
    assert_eq!(answered(Transport::Tcp, gcm(), vec![1, 2]), None);
}
