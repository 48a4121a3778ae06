//! The engine alone, without sockets: bytes per second of one core, out and in, with CRC and without. The time is that which the
//! thread had a core for, so that other work on the machine counts little.
//!
//! `cargo bench -p cenote-iwarp` prints the table. Out: RDMA Writes of 1 MiB cut into FPDUs, payload not copied. In: the same stream in
//! pieces of 256 KiB, as a socket gives them, placed into a region.

use iwarp::{
    Access, Config, Connection, CrcPolicy, DomainId, Event, LargeFpdus, Memory, SendFlags, Stag, StreamId,
    WorkId,
};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

const MESSAGE_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 256 << 10;
/// How long each figure is measured.
const TIME: Duration = Duration::from_millis(800);
const NOW: Monotonic = Monotonic(1);

struct End {
    connection: Connection,
    memory: Memory,
}

impl End {
    fn drain(&mut self, accept: bool) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::ConnectRequest { .. } if accept => {
                    self.connection.accept(&[], NOW).expect("a request waits");
                }
                Event::Terminated { code, .. } => panic!("terminated: {code}"),
                other => drop(black_box(other)),
            }
        }
    }

    fn send(&mut self) -> Option<Buf> {
        self.connection.poll_transmit(&mut self.memory, 1 << 20, NOW).map(|bytes| bytes.contiguous())
    }
}

/// A moment of this thread's own clock.
struct Core(Duration);

impl Core {
    fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Self(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// Two ends that speak, and a region of the second.
fn pair(crc: bool, large: bool) -> (End, End, Stag) {
    let config = Config {
        crc: if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked },
        large_fpdus: if large { LargeFpdus::Always } else { LargeFpdus::Never },
        ..Config::new(DomainId(1), StreamId(1))
    };
    let mut client = End { connection: Connection::connect(config.clone(), b"", NOW), memory: Memory::new() };
    let mut server = End { connection: Connection::listen(config, NOW), memory: Memory::new() };
    server.connection.post_receive(WorkId(0), BufMut::zeroed(64)).expect("is open");
    let access = Access { remote_write: true, ..Access::default() };
    let region = BufMut::zeroed(MESSAGE_BYTES);
    let stag = server.memory.register(region, 0, access, DomainId(1), None, 0x1234_5678);
    let first = Payload::from(Buf::from(&b"first"[..]));
    client.connection.post_send(WorkId(0), first, SendFlags::default()).expect("is open");
    loop {
        let (out, back) = (client.send(), server.send());
        if out.is_none() && back.is_none() {
            return (client, server, stag);
        }
        if let Some(bytes) = out {
            server.connection.handle_input(&bytes, &mut server.memory, NOW);
        }
        if let Some(bytes) = back {
            client.connection.handle_input(&bytes, &mut client.memory, NOW);
        }
        client.drain(false);
        server.drain(true);
        // A reply that was asked for by an event.
        if let Some(bytes) = server.send() {
            client.connection.handle_input(&bytes, &mut client.memory, NOW);
            client.drain(false);
        }
    }
}

fn encode(crc: bool, large: bool) -> f64 {
    let (mut client, _, stag) = pair(crc, large);
    let payload = Payload::from(BufMut::zeroed(MESSAGE_BYTES).freeze());
    let (began, mut bytes) = (Core::now(), 0u64);
    while began.elapsed() < TIME {
        for _ in 0..4 {
            client.connection.post_write(WorkId(1), payload.clone(), stag, 0).expect("is open");
            while let Some(out) = client.connection.poll_transmit(&mut client.memory, 1 << 20, NOW) {
                black_box(out.parts().len());
            }
            client.drain(false);
            bytes += MESSAGE_BYTES as u64;
        }
    }
    bytes as f64 / began.elapsed().as_secs_f64() / 1e9
}

fn decode(crc: bool, large: bool) -> f64 {
    let (mut client, mut server, stag) = pair(crc, large);
    let payload = Payload::from(BufMut::zeroed(MESSAGE_BYTES).freeze());
    client.connection.post_write(WorkId(1), payload, stag, 0).expect("is open");
    let mut stream = Vec::new();
    while let Some(out) = client.send() {
        stream.extend_from_slice(&out);
    }
    let (began, mut bytes) = (Core::now(), 0u64);
    while began.elapsed() < TIME {
        for _ in 0..4 {
            for piece in stream.chunks(PIECE_BYTES) {
                server.connection.handle_input(black_box(piece), &mut server.memory, NOW);
            }
            server.drain(false);
            bytes += MESSAGE_BYTES as u64;
        }
    }
    bytes as f64 / began.elapsed().as_secs_f64() / 1e9
}

/// Nanoseconds of one Send of 64 bytes, out and in.
fn small() -> f64 {
    let (mut client, mut server, _) = pair(true, true);
    let payload = Payload::from(Buf::from(&[7; 64][..]));
    let (began, mut count) = (Core::now(), 0u64);
    while began.elapsed() < TIME {
        for _ in 0..100 {
            server.connection.post_receive_later(WorkId(0), 256).expect("is open");
            client.connection.post_send(WorkId(1), payload.clone(), SendFlags::default()).expect("is open");
            let bytes = client.send().expect("there is something to send");
            server.connection.handle_input(&bytes, &mut server.memory, NOW);
            client.drain(false);
            server.drain(false);
            count += 1;
        }
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

fn main() {
    println!("{:<22} {:>4} {:>12} {:>12}", "FPDUs", "CRC", "out GB/s", "in GB/s");
    for (name, large) in [("60 KiB payload", true), ("1460-byte segments", false)] {
        for crc in [true, false] {
            let word = if crc { "on" } else { "off" };
            println!("{name:<22} {word:>4} {:>12.2} {:>12.2}", encode(crc, large), decode(crc, large));
        }
    }
    println!("a Send of 64 bytes, out and in, CRC on: {:.0} ns", small());
}
