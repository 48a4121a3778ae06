//! The server's end against a client end of the same engines, over loopback.

use super::trace::What;
use super::{SmbDirect, SmbDirectEvent, SmbDirectLimits};
use rdma::iwarp::{IwarpOptions, IwarpProvider};
use rdma::{Access, CompletionKind, Event, QueuePairId, RegionKey, Verbs, WorkId};
use smbdirect::{BufferDescriptor, Config, Connection};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

pub(super) struct Bench {
    driver: Driver,
    began: Instant,
    address: SocketAddr,
    pub server: SmbDirect<IwarpProvider>,
    pub client: IwarpProvider,
    pub pair: QueuePairId,
    pub smbd: Connection,
    pub events: Vec<SmbDirectEvent>,
    pub messages: Vec<Vec<u8>>,
    pub disconnected: bool,
    /// Messages received by the client's other connections, and which of these are lost.
    pub received: Vec<(QueuePairId, Buf)>,
    pub lost: Vec<QueuePairId>,
    pub established: Vec<QueuePairId>,
}

fn random(mut seed: u32) -> Box<dyn FnMut() -> u32> {
    Box::new(move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed
    })
}

impl Bench {
    pub fn new() -> Self {
        Self::with(SmbDirectLimits::default())
    }

    pub fn with(limits: SmbDirectLimits) -> Self {
        Self::over(IwarpOptions::default(), limits)
    }

    /// `provider`: how the server's end is.
    pub fn over(provider: IwarpOptions, limits: SmbDirectLimits) -> Self {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let mut provider = IwarpProvider::new(&driver, provider, random(1));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = provider.listen(listener).expect("has an address");
        // Few reads at a time: a larger number of descriptors still has to be served.
        let options =
            IwarpOptions { inbound_read_depth: 2, tells_sent_together: true, ..IwarpOptions::default() };
        let mut client = IwarpProvider::new(&driver, options, random(2));
        let began = Instant::now();
        let stream = TcpStream::connect(address).expect("listens");
        let pair = client.connect(stream, b"", Monotonic(0)).expect("is taken");
        let mut bench = Self {
            driver,
            began,
            address,
            server: SmbDirect::new(provider, Config::default(), limits),
            client,
            pair,
            smbd: Connection::connect(Config::default(), Monotonic(0)),
            events: Vec::new(),
            messages: Vec::new(),
            disconnected: false,
            received: Vec::new(),
            lost: Vec::new(),
            established: Vec::new(),
        };
        bench.until("connection", |bench| bench.smbd.is_established() && bench.opened().is_some());
        if let Some(connection) = bench.opened() {
            bench.server.become_member(connection, "user");
        }
        bench
    }

    /// Makes another connection of the client, for any message.
    pub fn connect(&mut self) -> QueuePairId {
        let stream = TcpStream::connect(self.address).expect("listens");
        let now = Monotonic(self.began.elapsed().as_nanos() as u64);
        let pair = self.client.connect(stream, b"", now).expect("is taken");
        self.until("connection", |bench| bench.established.contains(&pair));
        pair
    }

    pub fn opened(&self) -> Option<QueuePairId> {
        self.events.iter().find_map(|event| match event {
            SmbDirectEvent::Opened { connection, .. } => Some(*connection),
            _ => None,
        })
    }

    fn step(&mut self) {
        let now = Monotonic(self.began.elapsed().as_nanos() as u64);
        self.server.poll(now, &mut self.events);
        let mut events = Vec::new();
        self.client.poll(now, &mut events);
        for event in events {
            match event {
                Event::Completion(done) if done.kind == CompletionKind::Receive => match done.buffer {
                    Some(buffer) if done.queue_pair == self.pair => {
                        let message = self.smbd.handle_receive(buffer, now);
                        self.messages.extend(message.map(|message| message.to_vec()));
                    }
                    Some(buffer) => self.received.push((done.queue_pair, buffer)),
                    None => {}
                },
                Event::Established { queue_pair, .. } => self.established.push(queue_pair),
                Event::Disconnected { queue_pair, .. } => {
                    self.disconnected |= queue_pair == self.pair;
                    self.lost.push(queue_pair);
                }
                _ => {}
            }
        }
        while let Some(event) = self.smbd.poll_event() {
            match event {
                smbdirect::Event::PostReceives(count) => {
                    for _ in 0..count {
                        self.client.post_receive(self.pair, WorkId(0), 8192).expect("is open");
                    }
                    self.smbd.receives_posted(count);
                }
                smbdirect::Event::Established | smbdirect::Event::Closed(_) => {}
            }
        }
        while let Some(out) = self.smbd.poll_transmit() {
            let invalidate = out.invalidate.map(RegionKey);
            let _ = self.client.post_send_with_head(self.pair, WorkId(0), &out.head, out.payload, invalidate);
        }
    }

    pub fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            self.step();
            assert!(Instant::now() < end, "no {what} within 20 s");
            if !self.server.wants_poll() && !self.client.wants_poll() {
                self.driver.wait(Some(Duration::from_millis(2))).expect("the loop goes on");
            }
        }
    }

    pub fn server_messages(&self) -> Vec<Vec<u8>> {
        let message = |event: &SmbDirectEvent| match event {
            SmbDirectEvent::Message { message, .. } => Some(message.to_vec()),
            _ => None,
        };
        self.events.iter().filter_map(message).collect()
    }
}

pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + at / 509) as u8).collect()
}

#[test]
fn messages_longer_than_a_receive_go_both_ways() {
    let mut bench = Bench::new();
    let (short, long) = (pattern(200), pattern(300_000));
    for message in [&short, &long] {
        bench.smbd.send(Payload::from(Buf::from(&message[..])), None).expect("fits");
    }
    bench.until("messages", |bench| bench.server_messages().len() == 2);
    assert_eq!(bench.server_messages(), [short.clone(), long.clone()]);
    let connection = bench.opened().expect("is open");
    for message in [&long, &short] {
        bench.server.send(connection, Payload::from(Buf::from(&message[..])), None);
    }
    bench.until("answers", |bench| bench.messages.len() == 2);
    assert_eq!(bench.messages, [long, short]);
}

#[test]
fn an_answer_leaves_before_the_payload_of_the_next() {
    let mut bench = Bench::new();
    let connection = bench.opened().expect("is open");
    let access = Access { remote_write: true, ..Access::default() };
    let target = bench.client.register_room(100, access, bench.pair).expect("is open");
    let descriptors = [BufferDescriptor { offset: 0, token: target.0, len_bytes: 100 }];
    // Credits come with the first request.
    bench.smbd.send(Payload::from(Buf::from(&b"request"[..])), None).expect("fits");
    bench.until("request", |bench| bench.server_messages().len() == 1);
    for _ in 0..3 {
        bench.server.write(connection, Payload::from(Buf::from(&[7; 100][..])), &descriptors);
        bench.server.send(connection, Payload::from(Buf::from(&b"written"[..])), None);
    }
    bench.until("messages", |bench| bench.messages.len() == 3);
    let number = bench.server.show(connection).expect("is open").number;
    let order: Vec<bool> = bench
        .server
        .trace(number)
        .expect("is kept")
        .entries()
        .filter_map(|entry| match entry.what {
            What::Wrote { .. } => Some(true),
            What::Sent { len, .. } if len > 24 => Some(false),
            _ => None,
        })
        .collect();
    assert!(order.ends_with(&[true, false, true, false, true, false]), "{order:?}");
}

#[test]
fn payload_is_written_before_the_message_and_read_with_more_descriptors_than_the_peer_serves_at_a_time() {
    let mut bench = Bench::new();
    let connection = bench.opened().expect("is open");
    let bytes = pattern(1 << 20);
    let access =
        Access { remote_read: true, remote_write: true, remote_invalidate: true, unspecified_content: false };
    let target = bench.client.register(BufMut::zeroed(bytes.len()), access, bench.pair).expect("is open");
    let third = (bytes.len() / 3) as u32;
    let descriptors: Vec<BufferDescriptor> =
        [(0, third), (third, third), (2 * third, bytes.len() as u32 - 2 * third)]
            .map(|(offset, len_bytes)| BufferDescriptor {
                offset: u64::from(offset),
                token: target.0,
                len_bytes,
            })
            .to_vec();
    bench.server.write(connection, Payload::from(Buf::from(&bytes[..])), &descriptors);
    bench.server.send(connection, Payload::from(Buf::from(&b"written"[..])), None);
    bench.until("message", |bench| bench.messages.len() == 1);
    // Eight pieces, two at a time.
    let piece = bytes.len() as u32 / 8;
    let pieces: Vec<BufferDescriptor> = (0..8)
        .map(|at| BufferDescriptor { offset: u64::from(at * piece), token: target.0, len_bytes: piece })
        .collect();
    bench.server.read(connection, 42, bytes.len(), &pieces);
    let read = |bench: &Bench| {
        bench.events.iter().find_map(|event| match event {
            SmbDirectEvent::Read { token: 42, data, .. } => Some(data.clone()),
            _ => None,
        })
    };
    bench.until("read", |bench| read(bench).is_some());
    assert_eq!(read(&bench).flatten().expect("was read")[..], bytes[..]);
    let shown = bench.server.show(connection).expect("is open");
    let counters = shown.counters;
    assert_eq!((counters.bytes_rdma_read, counters.bytes_rdma_written), (1 << 20, 1 << 20));
    assert_eq!((counters.rdma_registrations, counters.memory_regions), (1, 0));
    assert!(counters.stalls_rdma_read > 0, "eight reads where the peer serves two at a time");
    assert_eq!(bench.server.counters(), counters, "the sum over one connection");
    let trace: Vec<String> =
        bench.server.trace(1).expect("the first").entries().map(|entry| entry.what.to_string()).collect();
    for wanted in
        ["connect request", "RDMA established", "SMB Direct negotiated", "RDMA Write of", "RDMA Read of"]
    {
        assert!(trace.iter().any(|event| event.starts_with(wanted)), "no {wanted:?} in {trace:#?}");
    }
    bench.server.send(connection, Payload::from(Buf::from(&b"invalidated"[..])), Some(target.0));
    bench.until("message", |bench| bench.messages.len() == 2);
    assert_eq!(bench.client.deregister(target).expect("is writable")[..], bytes[..]);
}

#[test]
fn a_descriptor_that_names_nothing_ends_the_connection_and_gives_everything_back() {
    let mut bench = Bench::new();
    let connection = bench.opened().expect("is open");
    let bad = [BufferDescriptor { offset: 0, token: 0x7777_7777, len_bytes: 100_000 }];
    bench.server.read(connection, 1, 100_000, &bad);
    bench.until("end", |bench| bench.disconnected && bench.server.connection_count() == 0);
    assert!(bench.events.iter().any(|event| matches!(event, SmbDirectEvent::Closed { .. })));
}

#[test]
fn descriptors_shorter_than_the_payload_are_refused_without_a_read() {
    let mut bench = Bench::new();
    let connection = bench.opened().expect("is open");
    let short = [BufferDescriptor { offset: 0, token: 5, len_bytes: 10 }];
    bench.server.read(connection, 9, 100, &short);
    bench.until("answer", |bench| {
        bench.events.iter().any(|event| matches!(event, SmbDirectEvent::Read { token: 9, data: None, .. }))
    });
    assert_eq!(bench.server.connection_count(), 1);
}

#[test]
fn a_peer_that_takes_nothing_is_not_given_more_until_it_does() {
    let limits = SmbDirectLimits { unsent_bytes_max: 1 << 20, ..SmbDirectLimits::default() };
    let mut bench = Bench::with(limits);
    let connection = bench.opened().expect("is open");
    let access = Access { remote_write: true, ..Access::default() };
    let bytes = pattern(1 << 20);
    let target = bench.client.register(BufMut::zeroed(bytes.len()), access, bench.pair).expect("is open");
    let whole = [BufferDescriptor { offset: 0, token: target.0, len_bytes: bytes.len() as u32 }];
    assert!(bench.server.has_room(connection));
    bench.server.write(connection, Payload::from(Buf::from(&bytes[..])), &whole);
    assert!(!bench.server.has_room(connection), "nothing of it is sent yet");
    bench
        .until("room", |bench| bench.events.iter().any(|event| matches!(event, SmbDirectEvent::Room { .. })));
    assert!(bench.server.has_room(connection));
}

#[test]
fn a_trace_keeps_the_newest_events_and_outlives_its_connection() {
    let mut bench = Bench::new();
    let connection = bench.opened().expect("is open");
    for at in 0..200u32 {
        bench.server.send(connection, Payload::from(Buf::from(&at.to_le_bytes()[..])), None);
        bench.until("message", |bench| bench.messages.len() > at as usize);
    }
    let trace = bench.server.trace(1).expect("the first");
    assert_eq!(trace.entries().count(), super::trace::EVENTS_MAX.min(trace.count() as usize));
    assert!(trace.entries().zip(trace.entries().skip(1)).all(|(a, b)| a.at <= b.at), "in their order");
    bench.client.disconnect(bench.pair);
    bench.until("end", |bench| bench.server.connection_count() == 0);
    let trace = bench.server.trace(1).expect("is kept");
    let last = trace.tell(trace.entries().last().expect("has events"));
    assert!(last.starts_with("closed: "), "{last}");
}
