//! READ and WRITE whose payload goes by RDMA.

use crate::fixture::*;
use smb::wire::*;
use smb_server::{Outgoing, Transport};
use types::NtStatus;

const TOKEN: u32 = 0x4D89_5001;

/// Logged on over SMB Direct, with nothing signed.
fn ready(world: &mut World) -> Client {
    let mut client = Client::new(world);
    client.connection = world.connect_by(Transport::SmbDirect).unwrap();
    client.negotiate(world, &Wishes::default());
    assert_eq!(client.log_on(world, PASSWORD), NtStatus::SUCCESS);
    assert_eq!(client.tree_connect(world, "share"), NtStatus::SUCCESS);
    client.sign = false;
    client
}

fn memory(length: u32) -> [BufferDescriptorV1; 1] {
    [BufferDescriptorV1 { offset: 0x1000.into(), token: TOKEN.into(), length: length.into() }]
}

fn read(file_id: FileId, channel: u32, length: u32) -> impl FnOnce(&mut Vec<u8>) {
    move |out| {
        let (length, channel) = (length.into(), channel.into());
        let body = ReadRequestBody { length, file_id, channel, ..Default::default() };
        write_read_request(out, body, &memory(4096));
    }
}

/// Returns (status, registration that ends with it) of the next message, skipping RDMA before it.
fn answer(world: &mut World, client: &Client) -> (NtStatus, Option<u32>) {
    loop {
        match world.server.poll_outgoing(client.connection).expect("an answer") {
            Outgoing::Message { payload, invalidate } => return (status(&payload.contiguous()), invalidate),
            Outgoing::RemoteWrite { .. } => {}
            Outgoing::RemoteRead { .. } => panic!("nothing is to be fetched"),
        }
    }
}

#[test]
fn a_read_goes_to_the_client_s_memory_and_its_answer_ends_the_registration() {
    let mut world = World::new();
    let mut client = ready(&mut world);
    let file = client.create(&mut world, "file");
    world.layer.0.borrow_mut().content = vec![1; 10];
    let message = client.build(Command::Read, read(file, CHANNEL_RDMA_V1_INVALIDATE, 4096));
    client.send(&mut world, message);
    let Some(Outgoing::RemoteWrite { payload, descriptors }) = world.server.poll_outgoing(client.connection)
    else {
        panic!("the payload comes first");
    };
    assert_eq!((payload.len(), descriptors[0].token.get()), (10, TOKEN));
    assert_eq!(answer(&mut world, &client), (NtStatus::SUCCESS, Some(TOKEN)));
}

#[test]
fn an_error_ends_the_registration_too() {
    let mut world = World::new();
    let mut client = ready(&mut world);
    let file = client.create(&mut world, "file");
    let mut ask = |client: &mut Client, channel, file| {
        let message = client.build(Command::Read, read(file, channel, 4096));
        client.send(&mut world, message);
        answer(&mut world, client)
    };
    assert_eq!(ask(&mut client, CHANNEL_RDMA_V1_INVALIDATE, file), (NtStatus::END_OF_FILE, Some(TOKEN)));
    assert_eq!(ask(&mut client, CHANNEL_RDMA_V1, file), (NtStatus::END_OF_FILE, None));
    let closed = FileId { persistent: 77.into(), volatile: 77.into() };
    assert_eq!(ask(&mut client, CHANNEL_RDMA_V1_INVALIDATE, closed), (NtStatus::FILE_CLOSED, Some(TOKEN)));
    client.tree = 99;
    let (status, ended) = ask(&mut client, CHANNEL_RDMA_V1_INVALIDATE, file);
    assert_eq!((status, ended), (NtStatus::NETWORK_NAME_DELETED, Some(TOKEN)));
}

#[test]
fn a_write_that_is_refused_ends_the_registration_and_fetches_nothing() {
    let mut world = World::new();
    let mut client = ready(&mut world);
    client.create(&mut world, "file");
    let message = client.build(Command::Write, |out| {
        let (remaining_bytes, channel) = (4096.into(), CHANNEL_RDMA_V1_INVALIDATE.into());
        let file_id = FileId { persistent: 77.into(), volatile: 77.into() };
        let body = WriteRequestBody { remaining_bytes, channel, file_id, ..Default::default() };
        write_write_request(out, body, &memory(4096));
    });
    client.send(&mut world, message);
    assert_eq!(answer(&mut world, &client), (NtStatus::FILE_CLOSED, Some(TOKEN)));
}

#[test]
fn over_tcp_there_is_no_memory_of_the_client() {
    let mut world = World::new();
    let mut client = Client::ready(&mut world);
    client.sign = false;
    let file = client.create(&mut world, "file");
    let message = client.build(Command::Read, read(file, CHANNEL_RDMA_V1_INVALIDATE, 4096));
    client.send(&mut world, message);
    assert_eq!(answer(&mut world, &client), (NtStatus::INVALID_PARAMETER, None));
}
