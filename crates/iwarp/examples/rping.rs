//! rping over the software engine: `rping server ADDRESS COUNT` or `rping client ADDRESS COUNT SIZE`, `nocrc` at the end to ask for none.
//!
//! `RPING_FPDUS=large|small` overrides the length of FPDUs.
//!
//! Speaks the protocol of rdmacm-utils' rping, so that the engine meets kernel siw and hardware in both roles: Sends advertise a buffer,
//! the server reads it by RDMA Read, writes it back by RDMA Write, and the client compares.

use iwarp::{
    Access, Completion, CompletionKind, Config, Connection, CrcPolicy, DomainId, Event, LargeFpdus, Memory,
    SendFlags, Stag, StreamId, WorkId, WorkStatus,
};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

/// Advertisement: address, key, length, big-endian.
const INFO_BYTES: usize = 16;
/// How long a peer may say nothing.
const SILENCE: Duration = Duration::from_secs(20);
const REGION_BYTES: usize = 1 << 20;

struct Stream {
    tcp: TcpStream,
    connection: Connection,
    memory: Memory,
    done: VecDeque<Completion>,
    since: Instant,
}

type Outcome<T> = Result<T, String>;

impl Stream {
    fn new(tcp: TcpStream, connection: Connection, since: Instant) -> Outcome<Self> {
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { tcp, connection, memory: Memory::new(), done: VecDeque::new(), since })
    }

    fn now(&self) -> Monotonic {
        Monotonic(self.since.elapsed().as_nanos() as u64)
    }

    fn register(&mut self, bytes: BufMut, access: Access, name: u32) -> Stag {
        self.memory.register(bytes, 0, access, DomainId(1), None, name)
    }

    fn flush(&mut self) -> Outcome<()> {
        let now = self.now();
        while let Some(bytes) = self.connection.poll_transmit(&mut self.memory, 256 << 10, now) {
            // One send call for whole FPDUs: siw of Linux 6.1 can miss the end of one that comes in pieces.
            self.tcp.write_all(&bytes.contiguous()).map_err(|error| format!("send: {error}"))?;
        }
        Ok(())
    }

    /// Moves bytes until the condition holds.
    fn until(&mut self, mut holds: impl FnMut(&Self) -> bool) -> Outcome<()> {
        let mut buffer = vec![0; 256 << 10];
        loop {
            self.flush()?;
            while let Some(event) = self.connection.poll_event() {
                match event {
                    Event::ConnectRequest { .. } => {
                        self.connection.accept(&[], self.now()).map_err(|error| error.to_string())?;
                    }
                    Event::Established { .. } => {}
                    Event::Rejected { .. } => return Err("the peer rejected the connection".into()),
                    Event::Completion(done) => self.done.push_back(done),
                    Event::Terminated { by_peer, code } => {
                        return Err(format!(
                            "{} terminated: {code}",
                            if by_peer { "the peer" } else { "this end" }
                        ));
                    }
                    Event::Closed => return Err("closed".into()),
                }
            }
            self.flush()?;
            if holds(self) {
                return Ok(());
            }
            if let Some(at) = self.connection.poll_timeout() {
                let left = at.since(self.now()).max(Duration::from_millis(1));
                self.tcp.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            } else {
                self.tcp.set_read_timeout(Some(SILENCE)).map_err(|error| error.to_string())?;
            }
            match self.tcp.read(&mut buffer) {
                Err(error)
                    if error.kind() == std::io::ErrorKind::WouldBlock
                        && self.connection.poll_timeout().is_some() =>
                {
                    let now = self.now();
                    self.connection.handle_timeout(now, &mut self.memory);
                }
                Ok(0) => return Err("the peer closed".into()),
                Ok(count) => {
                    let now = self.now();
                    self.connection.handle_input(&buffer[..count], &mut self.memory, now);
                }
                Err(error) => return Err(format!("receive: {error}")),
            }
        }
    }

    fn wait(&mut self, kind: CompletionKind) -> Outcome<Completion> {
        self.until(|stream| stream.done.iter().any(|done| done.kind == kind))?;
        let at = self.done.iter().position(|done| done.kind == kind).ok_or("no completion")?;
        let done = self.done.remove(at).ok_or("no completion")?;
        if done.status == WorkStatus::Success {
            Ok(done)
        } else {
            Err(format!("{kind:?}: {:?}", done.status))
        }
    }

    fn post_receive(&mut self) -> Outcome<()> {
        self.connection.post_receive(WorkId(1), BufMut::zeroed(INFO_BYTES)).map_err(|error| error.to_string())
    }

    fn send(&mut self, info: [u8; INFO_BYTES]) -> Outcome<()> {
        let payload = Payload::from(Buf::from(&info[..]));
        self.connection
            .post_send(WorkId(2), payload, SendFlags::default())
            .map_err(|error| error.to_string())?;
        self.wait(CompletionKind::Send).map(drop)
    }

    /// The next advertisement: address, key, length.
    fn info(&mut self) -> Outcome<(u64, Stag, u32)> {
        let done = self.wait(CompletionKind::Receive)?;
        self.post_receive()?;
        let bytes =
            done.buffer.filter(|bytes| bytes.len() == INFO_BYTES).ok_or("an advertisement has 16 bytes")?;
        let mut address = [0; 8];
        address.copy_from_slice(&bytes[..8]);
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok((u64::from_be_bytes(address), Stag(word(8)), word(12)))
    }
}

fn advertise(stag: Stag, len_bytes: u32) -> [u8; INFO_BYTES] {
    let mut info = [0; INFO_BYTES];
    info[8..12].copy_from_slice(&stag.0.to_be_bytes());
    info[12..].copy_from_slice(&len_bytes.to_be_bytes());
    info
}

fn config(crc: bool) -> Config {
    let crc = if crc { CrcPolicy::On } else { CrcPolicy::OffUnlessAsked };
    let large_fpdus = match std::env::var("RPING_FPDUS").as_deref() {
        Ok("large") => LargeFpdus::Always,
        Ok("small") => LargeFpdus::Never,
        _ => LargeFpdus::ToSoftware,
    };
    Config {
        crc,
        large_fpdus,
        first_send_delay: Duration::from_millis(20),
        ..Config::new(DomainId(1), StreamId(1))
    }
}

fn server(address: &str, count: u32, crc: bool) -> Outcome<u32> {
    let listener = TcpListener::bind(address).map_err(|error| error.to_string())?;
    println!("listening on {}", listener.local_addr().map_err(|error| error.to_string())?);
    let (tcp, _) = listener.accept().map_err(|error| error.to_string())?;
    let connection = Connection::listen(config(crc), Monotonic(0));
    let mut stream = Stream::new(tcp, connection, Instant::now())?;
    let sink = stream.register(BufMut::zeroed(REGION_BYTES), Access::default(), 0x00AB_CD01);
    stream.post_receive()?;
    stream.until(|stream| stream.connection.is_established())?;
    println!("established: {:?}", stream.connection.agreed());
    for round in 0..count {
        let (from, key, len) = match stream.info() {
            Ok(info) => info,
            // A client that asks for fewer rounds ends by closing.
            Err(_) if round > 0 => return Ok(round),
            Err(error) => return Err(error),
        };
        let read = stream.connection.post_read(WorkId(3), (sink, 0), len, (key, from));
        read.map_err(|error| error.to_string())?;
        stream.wait(CompletionKind::Read)?;
        stream.send([0; INFO_BYTES])?;
        let (to, key, _) = stream.info()?;
        let bytes =
            stream.memory.bytes(sink).and_then(|bytes| bytes.get(..len as usize)).ok_or("no bytes")?;
        let payload = Payload::from(Buf::from(bytes));
        stream.connection.post_write(WorkId(4), payload, key, to).map_err(|error| error.to_string())?;
        stream.wait(CompletionKind::Write)?;
        stream.send([0; INFO_BYTES])?;
    }
    // The client closes: an end from here could overtake what it has still to take in.
    let _ = stream.info();
    Ok(count)
}

fn client(address: &str, count: u32, size: usize, crc: bool) -> Outcome<u32> {
    let tcp = TcpStream::connect(address).map_err(|error| error.to_string())?;
    let connection = Connection::connect(config(crc), &[], Monotonic(0));
    let mut stream = Stream::new(tcp, connection, Instant::now())?;
    stream.post_receive()?;
    stream.until(|stream| stream.connection.is_established())?;
    println!("established: {:?}", stream.connection.agreed());
    let target = stream.register(
        BufMut::zeroed(size),
        Access { remote_write: true, ..Access::default() },
        0x00AB_CE01,
    );
    for round in 0..count {
        // The C server writes a string back: up to and with its terminating zero.
        let letter = |at: usize| if at + 1 == size { 0 } else { b'A' + ((at as u32 + round) % 58) as u8 };
        let pattern: Vec<u8> = (0..size).map(letter).collect();
        let mut source = BufMut::zeroed(size);
        source.copy_from_slice(&pattern);
        let source = stream.register(
            source,
            Access { remote_read: true, ..Access::default() },
            0x00AB_CF01 + (round << 8),
        );
        stream.send(advertise(source, size as u32))?;
        stream.info()?;
        stream.send(advertise(target, size as u32))?;
        stream.info()?;
        let back = stream.memory.bytes(target).ok_or("no region")?;
        if back != pattern {
            return Err(format!("round {round}: other bytes came back"));
        }
        stream.memory.deregister(source).map_err(|error| error.to_string())?;
    }
    Ok(count)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let crc = !words.ends_with(&["nocrc"]);
    let result = match words[..] {
        ["server", address, count, ..] => server(address, count.parse().unwrap_or(1), crc),
        ["client", address, count, size, ..] => {
            client(address, count.parse().unwrap_or(1), size.parse().unwrap_or(64), crc)
        }
        _ => {
            Err("usage: rping server ADDRESS COUNT [nocrc] | rping client ADDRESS COUNT SIZE [nocrc]".into())
        }
    };
    match result {
        Ok(rounds) => println!("rping: {rounds} rounds"),
        Err(error) => {
            eprintln!("rping: {error}");
            std::process::exit(1);
        }
    }
}
