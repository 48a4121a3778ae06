//! A hostile RDMA peer: bytes, in pieces, at an iWARP responder and at an initiator, and as transfers at both ends of SMB Direct.
#![no_main]

use iwarp::connection::Transmitted;
use iwarp::{Access, Config, Connection, CrcPolicy, DomainId, Event, Memory, SendFlags, StreamId, WorkId};
use libfuzzer_sys::fuzz_target;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

const NOW: Monotonic = Monotonic(1);

/// The start-up frame that lets the rest of the input reach the FPDUs.
fn start(reply: bool) -> Vec<u8> {
    let mut frame = if reply { b"MPA ID Rep Frame".to_vec() } else { b"MPA ID Req Frame".to_vec() };
    // Revision 1, neither CRC nor markers, no private data.
    frame.extend_from_slice(&[0, 1, 0, 0]);
    frame
}

fn stream(responder: bool, started: bool, input: &[u8]) {
    // Without CRC: else hardly an input would come past it.
    let config = Config { crc: CrcPolicy::OffUnlessAsked, ..Config::new(DomainId(1), StreamId(1)) };
    let mut memory = Memory::new();
    let access =
        Access { remote_read: true, remote_write: true, remote_invalidate: true, unspecified_content: true };
    memory.register(BufMut::zeroed(4096), 0, access, DomainId(1), None, 0x0100);
    let sink = memory.register(BufMut::zeroed(4096), 0, Access::default(), DomainId(1), None, 0x0200);
    let mut connection =
        if responder { Connection::listen(config, NOW) } else { Connection::connect(config, b"", NOW) };
    for id in 0..4 {
        let _ = connection.post_receive(WorkId(id), BufMut::zeroed(64));
        let _ = connection.post_receive_later(WorkId(8), 200);
    }
    let work = |connection: &mut Connection, memory: &mut Memory| {
        while let Some(event) = connection.poll_event() {
            if let Event::ConnectRequest { .. } = event {
                let _ = connection.accept(b"", NOW);
            }
        }
        // TCP takes a part of the bytes offered.
        while !matches!(connection.transmit(memory, 65536, NOW, |_| 10), Transmitted::Nothing) {}
    };
    if started {
        work(&mut connection, &mut memory);
        connection.handle_input(&start(!responder), &mut memory, NOW);
        work(&mut connection, &mut memory);
        let _ = connection.post_read(WorkId(9), (sink, 0), 100, (iwarp::Stag(7), 0));
        let hello = Payload::from(Buf::from(&b"hello"[..]));
        let _ = connection.post_send(WorkId(10), hello, SendFlags::default());
    }
    let mut rest = input;
    while let Some((&length, after)) = rest.split_first() {
        let (piece, after) = after.split_at(usize::from(length).min(after.len()));
        // Every second piece comes in memory that its messages may share.
        if piece.len() % 2 == 0 {
            connection.handle_input(piece, &mut memory, NOW);
        } else {
            connection.handle_shared_input(&Buf::from(piece), piece.len(), &mut memory, NOW);
        }
        work(&mut connection, &mut memory);
        rest = after;
    }
    connection.handle_closed(&mut memory);
    work(&mut connection, &mut memory);
    assert_eq!(memory.registered_bytes(), 8192);
}

fn transfers(server: bool, input: &[u8]) {
    let config = smbdirect::Config::default();
    let mut connection = match server {
        true => smbdirect::Connection::listen(config, NOW),
        false => smbdirect::Connection::connect(config, NOW),
    };
    let mut rest = input;
    while let Some((&length, after)) = rest.split_first() {
        let (bytes, after) = after.split_at(usize::from(length).min(after.len()));
        let _ = connection.handle_receive(Buf::from(bytes), NOW);
        while let Some(event) = connection.poll_event() {
            if let smbdirect::Event::PostReceives(count) = event {
                connection.receives_posted(count);
            }
        }
        let _ = connection.send(Payload::from(Buf::from(&[1; 3000][..])), None);
        while connection.poll_transmit().is_some() {}
        rest = after;
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, input)) = input.split_first() else { return };
    match kind & 7 {
        0..4 => stream(kind & 1 == 0, kind & 2 == 0, input),
        _ => transfers(kind & 1 == 0, input),
    }
});
