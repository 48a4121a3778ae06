//! The engine alone, without sockets: bytes per second of one core, out and in, with CRC and without. The time is that which the
//! thread had a core for, so that other work on the machine counts little.
//!
//! `cargo bench -p cenote-iwarp` prints the table. Out: RDMA Writes of 1 MiB cut into FPDUs, payload not copied. In: the same stream in
//! pieces of 256 KiB, as a socket gives them, placed into a region. Round trip: a message of 64 bytes there and back between two threads over
//! loopback, as bare bytes of TCP and as Sends with CRC, by turns; medians, by the clock on the wall.

use iwarp::{
    Access, Config, Connection, CrcPolicy, DomainId, Event, LargeFpdus, Memory, SendFlags, Stag, StreamId,
    WorkId,
};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
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

/// Bytes of the message that goes to and fro.
const ECHO_BYTES: usize = 64;
const ECHOS: usize = 2000;
const ECHO_ROUNDS: usize = 9;

/// One end of an engine on a socket.
struct Wire {
    end: End,
    socket: TcpStream,
    input: Vec<u8>,
}

impl Wire {
    fn new(socket: TcpStream, initiates: bool) -> Self {
        socket.set_nodelay(true).expect("a socket");
        let config = Config::new(DomainId(1), StreamId(1));
        let connection = match initiates {
            true => Connection::connect(config, b"", NOW),
            false => Connection::listen(config, NOW),
        };
        Self { end: End { connection, memory: Memory::new() }, socket, input: vec![0; 4096] }
    }

    fn send(&mut self, payload: Payload) {
        self.end.connection.post_send(WorkId(1), payload, SendFlags::default()).expect("is open");
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(bytes) = self.end.send() {
            self.socket.write_all(&bytes).expect("the peer takes it");
        }
    }

    /// The next message; `None` at the end of the stream.
    fn receive(&mut self) -> Option<Buf> {
        self.end.connection.post_receive_later(WorkId(0), 256).expect("is open");
        loop {
            let mut received = None;
            while let Some(event) = self.end.connection.poll_event() {
                match event {
                    Event::ConnectRequest { .. } => {
                        self.end.connection.accept(&[], NOW).expect("a request waits");
                    }
                    Event::Completion(done) => received = received.or(done.buffer),
                    Event::Established { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            self.flush();
            if let Some(buffer) = received {
                return Some(buffer);
            }
            match self.socket.read(&mut self.input).expect("the peer speaks") {
                0 => return None,
                count => self.end.connection.handle_input(&self.input[..count], &mut self.end.memory, NOW),
            }
        }
    }
}

/// The median in microseconds.
fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn times(mut once: impl FnMut()) -> f64 {
    let one = |()| {
        let began = Instant::now();
        once();
        began.elapsed()
    };
    median_us(std::iter::repeat_n((), ECHOS).map(one).collect())
}

fn accepted(serve: impl FnOnce(TcpStream) + Send + 'static) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("listens");
    let (server, _) = listener.accept().expect("a connection");
    std::thread::spawn(move || serve(server));
    client.set_nodelay(true).expect("a socket");
    client
}

/// Microseconds of a round trip: bare TCP, Sends.
fn round_trips() -> (f64, f64) {
    let mut bare = accepted(|mut socket| {
        socket.set_nodelay(true).expect("a socket");
        let mut bytes = [0; ECHO_BYTES];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
    });
    let engine = accepted(|socket| {
        let mut wire = Wire::new(socket, false);
        while let Some(message) = wire.receive() {
            wire.send(message.into());
        }
    });
    let mut wire = Wire::new(engine, true);
    let payload = Payload::from(Buf::from(&[7; ECHO_BYTES][..]));
    // The handshake.
    wire.flush();
    while !wire.end.connection.is_flowing() {
        let count = wire.socket.read(&mut wire.input).expect("the peer speaks");
        wire.end.connection.handle_input(&wire.input[..count], &mut wire.end.memory, NOW);
    }
    let (mut tcp, mut sends) = (Vec::new(), Vec::new());
    for _ in 0..ECHO_ROUNDS {
        tcp.push(times(|| {
            let mut bytes = [7; ECHO_BYTES];
            bare.write_all(&bytes).expect("is taken");
            bare.read_exact(&mut bytes).expect("comes back");
        }));
        sends.push(times(|| {
            wire.send(payload.clone());
            assert_eq!(wire.receive().expect("comes back").len(), ECHO_BYTES);
        }));
    }
    let middle = |mut rounds: Vec<f64>| {
        rounds.sort_unstable_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    };
    (middle(tcp), middle(sends))
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
    let (tcp, sends) = round_trips();
    println!(
        "round trip of 64 bytes over loopback: TCP {tcp:.1} us, Send {sends:.1} us, difference {:.1} us",
        sends - tcp
    );
}
