//! Peers that break off, say nothing or take nothing: they cost their own connection only, and for a bounded time.

use iwarp::ddp::{Header, Opcode, QUEUE_READ_REQUEST, QUEUE_SEND, ReadRequest};
use iwarp::framing::{Head, Outgoing};
use iwarp::mpa::{Enhanced, FrameKind, StartFrame};
use rdma::iwarp::{IwarpOptions, IwarpProvider};
use rdma::{Access, CompletionKind, Event, QueuePairId, Verbs, WorkId};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

struct Server {
    driver: Driver,
    provider: IwarpProvider,
    began: Instant,
    address: SocketAddr,
    /// In the order they asked.
    accepted: Vec<QueuePairId>,
    received: Vec<(QueuePairId, Vec<u8>)>,
    disconnected: Vec<QueuePairId>,
}

impl Server {
    fn new(queue_pairs_max: usize) -> Self {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let mut seed = 0x1357_9BDFu32;
        let random = Box::new(move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed
        });
        let options = IwarpOptions { queue_pairs_max, ..IwarpOptions::default() };
        let mut provider = IwarpProvider::new(&driver, options, random);
        let address = provider.listen(TcpListener::bind("127.0.0.1:0").expect("loopback")).expect("listens");
        Self {
            driver,
            provider,
            began: Instant::now(),
            address,
            accepted: Vec::new(),
            received: Vec::new(),
            disconnected: Vec::new(),
        }
    }

    fn turn(&mut self) {
        let mut events = Vec::new();
        self.provider.poll(Monotonic(self.began.elapsed().as_nanos() as u64), &mut events);
        for event in events {
            match event {
                Event::ConnectRequest { queue_pair, .. } => {
                    self.provider.accept(queue_pair, b"").expect("a request waits");
                    for _ in 0..4 {
                        self.provider.post_receive(queue_pair, WorkId(0), 4096).expect("is open");
                    }
                    self.accepted.push(queue_pair);
                }
                Event::Completion(done) if done.kind == CompletionKind::Receive => {
                    let bytes = done.buffer.map(|buffer| buffer.to_vec()).unwrap_or_default();
                    self.received.push((done.queue_pair, bytes));
                }
                Event::Disconnected { queue_pair, .. } => self.disconnected.push(queue_pair),
                Event::Completion(_) | Event::Established { .. } => {}
            }
        }
        // Submitted operations go to the kernel.
        self.driver.wait(Some(Duration::ZERO)).expect("the loop goes on");
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            self.turn();
            if holds(self) {
                return;
            }
            assert!(Instant::now() < end, "no {what} within 30 s");
            if !self.provider.wants_poll() {
                self.driver.wait(Some(Duration::from_millis(2))).expect("the loop goes on");
            }
        }
    }

    /// A client that keeps to the rules: request, reply, one message.
    fn honest(&mut self) -> (TcpStream, QueuePairId) {
        let before = self.accepted.len();
        let mut stream = TcpStream::connect(self.address).expect("listens");
        stream.write_all(&request()).expect("is taken");
        self.until("request", |server| server.accepted.len() > before);
        let pair = self.accepted[before];
        // The reply has to leave before it can be read.
        self.turn();
        read_reply(&mut stream);
        stream.write_all(&send(1, b"hello")).expect("is taken");
        self.until("message", |server| server.received.iter().any(|(from, _)| *from == pair));
        (stream, pair)
    }
}

fn request() -> Vec<u8> {
    StartFrame {
        kind: FrameKind::Request,
        markers: false,
        crc: true,
        reject: false,
        revision: 2,
        enhanced: Some(Enhanced { inbound_read_depth: 8, outbound_read_depth: 8, ..Enhanced::default() }),
        private_data: Vec::new(),
    }
    .encode()
}

fn read_reply(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is a socket");
    let mut reply = [0; 24];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply[..16], b"MPA ID Rep Frame");
}

fn untagged(opcode: Opcode, queue: u32, sequence: u32, extra: &[u8]) -> Vec<u8> {
    let header = Header::Untagged {
        opcode,
        last: true,
        invalidate: iwarp::Stag(0),
        queue,
        sequence,
        message_offset: 0,
    };
    fpdu(header, extra, &[])
}

fn fpdu(header: Header, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = Outgoing::default();
    out.push_whole(&header, &Head::new(head), Payload::from(Buf::from(payload)), true);
    out.rest(0).expect("an FPDU").contiguous().to_vec()
}

fn send(sequence: u32, data: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send, QUEUE_SEND, sequence, data)
}

/// Asks for this many bytes of a region.
fn read(sequence: u32, source: u32, len_bytes: u32) -> Vec<u8> {
    let request = ReadRequest {
        sink: iwarp::Stag(9),
        sink_offset: 0,
        len_bytes,
        source: iwarp::Stag(source),
        source_offset: 0,
    };
    untagged(Opcode::ReadRequest, QUEUE_READ_REQUEST, sequence, &request.encode())
}

fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("is a socket");
}

#[test]
fn a_thousand_connections_that_say_nothing_do_not_keep_others_out() {
    const MAX: usize = 128;
    let mut server = Server::new(MAX);
    let (mut first, first_pair) = server.honest();
    // As many as descriptors allow are open at a time; half of them begin a request and never end it.
    let mut silent = VecDeque::new();
    for at in 0..1000 {
        let mut stream = TcpStream::connect(server.address).expect("listens");
        if at % 2 == 0 {
            stream.write_all(&request()[..10]).expect("is taken");
        }
        silent.push_back(stream);
        if silent.len() > 300 {
            silent.pop_front();
        }
        server.turn();
        assert!(server.provider.queue_pair_count() <= MAX);
    }
    let (_second, _) = server.honest();
    first.write_all(&send(2, b"still here")).expect("is taken");
    server.until("message", |server| {
        server.received.iter().any(|(from, bytes)| *from == first_pair && bytes == b"still here")
    });
    drop(silent);
    server.until("end of the others", |server| server.provider.queue_pair_count() == 2);
    assert!(server.provider.activity().failed_connection_attempts >= 900);
}

#[test]
fn a_reset_in_any_state_ends_that_connection_only() {
    let mut server = Server::new(16);
    let (mut other, other_pair) = server.honest();
    let region = 4 << 20;
    type Act = fn(&mut Server, &mut TcpStream);
    let states: [(&str, Act); 8] = [
        ("connected", |_, _| {}),
        ("in its request", |_, stream| stream.write_all(&request()[..13]).expect("is taken")),
        ("asked", |_, stream| stream.write_all(&request()).expect("is taken")),
        ("answered", |server, stream| {
            let before = server.accepted.len();
            stream.write_all(&request()).expect("is taken");
            server.until("request", |server| server.accepted.len() > before);
            server.turn();
            read_reply(stream);
        }),
        ("in its first FPDU", |server, stream| {
            let before = server.accepted.len();
            stream.write_all(&request()).expect("is taken");
            server.until("request", |server| server.accepted.len() > before);
            server.turn();
            read_reply(stream);
            stream.write_all(&send(1, b"hello")[..9]).expect("is taken");
        }),
        ("established", |_, _| {}),
        ("being read from", |_, _| {}),
        ("being sent to", |_, _| {}),
    ];
    for (name, act) in states {
        let gone = server.disconnected.len();
        if matches!(name, "established" | "being read from" | "being sent to") {
            let (mut stream, pair) = server.honest();
            if name == "being read from" {
                let bytes = BufMut::zeroed(region).freeze();
                let key = server.provider.register_shared(bytes, pair).expect("is open");
                stream.write_all(&read(1, key.0, region as u32)).expect("is taken");
                server.turn();
            } else if name == "being sent to" {
                let payload = Payload::from(Buf::from(&vec![1; 4 << 20][..]));
                server.provider.post_send(pair, WorkId(7), payload, None).expect("is open");
                server.turn();
            }
            reset(stream);
        } else {
            let mut stream = TcpStream::connect(server.address).expect("listens");
            act(&mut server, &mut stream);
            server.turn();
            reset(stream);
        }
        server.until(name, |server| server.provider.queue_pair_count() == 1);
        assert!(server.disconnected.len() >= gone, "{name}");
    }
    other.write_all(&send(2, b"unharmed")).expect("is taken");
    server.until("message", |server| {
        server.received.iter().any(|(from, bytes)| *from == other_pair && bytes == b"unharmed")
    });
}

#[test]
fn a_peer_that_takes_nothing_is_given_up_when_its_connection_ends() {
    let mut server = Server::new(4);
    let (stream, pair) = server.honest();
    // More than the sockets hold between them.
    for _ in 0..16 {
        let payload = Payload::from(Buf::from(&vec![1; 4 << 20][..]));
        server.provider.post_send(pair, WorkId(1), payload, None).expect("is open");
    }
    // Until the sockets are full.
    for _ in 0..100 {
        server.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    server.provider.disconnect(pair);
    server.turn();
    assert_eq!(server.provider.queue_pair_count(), 1, "its last send is still under way");
    server.until("end", |server| server.disconnected == [pair] && server.provider.queue_pair_count() == 0);
    drop(stream);
}

#[test]
fn what_a_peer_registered_nothing_for_is_not_written_to_by_it() {
    let mut server = Server::new(4);
    let (mut stream, pair) = server.honest();
    let access = Access { remote_read: true, ..Access::default() };
    let key = server.provider.register(BufMut::zeroed(64), access, pair).expect("is open");
    let header = Header::Tagged { opcode: Opcode::Write, last: true, stag: iwarp::Stag(key.0), offset: 0 };
    stream.write_all(&fpdu(header, &[], b"x")).expect("is taken");
    server.until("end", |server| server.disconnected == [pair]);
    assert_eq!(server.provider.deregister(key).expect("is given back")[..], [0; 64]);
    assert_eq!(server.provider.activity().connection_errors, 1);
}
