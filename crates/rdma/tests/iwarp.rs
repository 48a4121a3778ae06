//! The verbs over real sockets on loopback, on both backends of the loop.

use rdma::iwarp::{IwarpOptions, IwarpProvider};
use rdma::{
    Access, CloseReason, Completion, CompletionKind, Event, PostError, QueuePairId, RegionKey, Status, Verbs,
    WorkId,
};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use sys::driver::{Driver, DriverChoice};
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

struct Bench {
    driver: Driver,
    provider: IwarpProvider,
    began: Instant,
    address: SocketAddr,
    events: Vec<Event>,
    done: Vec<Completion>,
    requests: Vec<QueuePairId>,
    established: Vec<QueuePairId>,
    disconnected: Vec<(QueuePairId, CloseReason)>,
}

impl Bench {
    fn new(choice: DriverChoice) -> Option<Self> {
        let driver = Driver::new(choice).ok()?;
        let mut seed = 0x1357_9BDFu32;
        let random = Box::new(move || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed
        });
        let mut provider = IwarpProvider::new(&driver, IwarpOptions::default(), random);
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = provider.listen(listener).expect("has an address");
        Some(Self {
            driver,
            provider,
            began: Instant::now(),
            address,
            events: Vec::new(),
            done: Vec::new(),
            requests: Vec::new(),
            established: Vec::new(),
            disconnected: Vec::new(),
        })
    }

    fn now(&self) -> Monotonic {
        Monotonic(self.began.elapsed().as_nanos() as u64)
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let now = self.now();
            let mut events = std::mem::take(&mut self.events);
            self.provider.poll(now, &mut events);
            let quiet = events.is_empty();
            for event in events.drain(..) {
                match event {
                    Event::ConnectRequest { queue_pair, .. } => self.requests.push(queue_pair),
                    Event::Established { queue_pair, .. } => self.established.push(queue_pair),
                    Event::Completion(done) => self.done.push(done),
                    Event::Disconnected { queue_pair, reason } => {
                        self.disconnected.push((queue_pair, reason))
                    }
                }
            }
            self.events = events;
            if holds(self) {
                return;
            }
            assert!(Instant::now() < end, "no {what} within 20 s");
            if quiet {
                self.driver.wait(Some(Duration::from_millis(5))).expect("the loop goes on");
            }
        }
    }

    /// (client, server), established.
    fn connect(&mut self) -> (QueuePairId, QueuePairId) {
        let stream = TcpStream::connect(self.address).expect("listens");
        let now = self.now();
        let client = self.provider.connect(stream, b"", now).expect("is taken");
        self.until("request", |bench| !bench.requests.is_empty());
        let server = self.requests.remove(0);
        self.provider.accept(server, b"").expect("a request waits");
        self.until("connection", |bench| bench.established.len() == 2);
        self.established.clear();
        (client, server)
    }

    fn take(&mut self, queue_pair: QueuePairId, kind: CompletionKind) -> Completion {
        let found = |done: &Completion| done.queue_pair == queue_pair && done.kind == kind;
        self.until("completion", |bench| bench.done.iter().any(found));
        let at = self.done.iter().position(found).expect("is there");
        self.done.remove(at)
    }
}

fn on_both(run: impl Fn(Bench)) {
    let mut ran = 0;
    for choice in [DriverChoice::IoUring, DriverChoice::Fallback] {
        if let Some(bench) = Bench::new(choice) {
            run(bench);
            ran += 1;
        }
    }
    assert!(ran > 0, "no backend works here");
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn messages_writes_and_reads_arrive() {
    on_both(|mut bench| {
        let (client, server) = bench.connect();
        let bytes = pattern(3_000_000);
        let access = Access { remote_write: true, remote_read: true, remote_invalidate: true };
        let target = bench.provider.register(BufMut::zeroed(bytes.len()), access, server).expect("is open");
        bench.provider.post_receive(server, WorkId(1), 64).expect("is open");
        let payload = Payload::from(Buf::from(&bytes[..]));
        bench.provider.post_write(client, WorkId(2), payload, (target, 0)).expect("is open");
        let note = Payload::from(Buf::from(&b"written"[..]));
        bench.provider.post_send(client, WorkId(3), note, None).expect("is open");
        let received = bench.take(server, CompletionKind::Receive);
        assert_eq!(&received.buffer.expect("comes back")[..7], b"written");

        let sink =
            bench.provider.register(BufMut::zeroed(bytes.len()), Access::default(), client).expect("is open");
        let len = bytes.len() as u32;
        bench.provider.post_read(client, WorkId(4), (sink, 0), len, (target, 0)).expect("is open");
        assert_eq!(bench.take(client, CompletionKind::Read).status, Status::Success);
        assert_eq!(bench.provider.deregister(sink).expect("is writable")[..], bytes[..]);

        bench.provider.post_receive(server, WorkId(5), 64).expect("is open");
        let note = Payload::from(Buf::from(&b"done"[..]));
        bench.provider.post_send(client, WorkId(6), note, Some(target)).expect("is open");
        assert_eq!(bench.take(server, CompletionKind::Receive).invalidated, Some(target));
        assert_eq!(bench.provider.deregister(target).expect("is writable")[..], bytes[..]);
        assert_eq!(bench.provider.registered(), (0, 0));
    });
}

#[test]
fn work_of_a_lost_connection_is_flushed_and_the_other_end_hears_of_it() {
    on_both(|mut bench| {
        let (client, server) = bench.connect();
        bench.provider.post_receive(server, WorkId(1), 64).expect("is open");
        bench.provider.disconnect(client);
        assert_eq!(bench.take(server, CompletionKind::Receive).status, Status::Flushed);
        bench.until("both ends", |bench| bench.disconnected.len() == 2);
        assert!(bench.disconnected.contains(&(server, CloseReason::Peer)));
        assert_eq!(bench.provider.queue_pair_count(), 0);
        let again = bench.provider.post_receive(server, WorkId(2), 64);
        assert_eq!(again, Err(PostError::Closed));
    });
}

#[test]
fn a_write_to_a_name_that_was_guessed_ends_that_connection_only() {
    on_both(|mut bench| {
        let (bad, _) = bench.connect();
        let (good, good_server) = bench.connect();
        let payload = Payload::from(Buf::from(&b"x"[..]));
        bench.provider.post_write(bad, WorkId(1), payload, (RegionKey(0x4444_4444), 0)).expect("is open");
        bench.until("both ends", |bench| bench.disconnected.len() == 2);
        assert!(
            bench.disconnected.iter().any(|(_, reason)| matches!(reason, CloseReason::TerminatedByPeer(_)))
        );
        bench.provider.post_receive(good_server, WorkId(2), 64).expect("is open");
        let payload = Payload::from(Buf::from(&b"still here"[..]));
        bench.provider.post_send(good, WorkId(3), payload, None).expect("is open");
        assert_eq!(bench.take(good_server, CompletionKind::Receive).status, Status::Success);
    });
}

#[test]
fn bytes_that_are_no_mpa_close_the_connection_without_an_event_for_the_owner_to_answer() {
    on_both(|mut bench| {
        let mut stream = TcpStream::connect(bench.address).expect("listens");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("is sent");
        bench.until("end", |bench| bench.disconnected.len() == 1);
        assert!(bench.requests.is_empty());
        assert_eq!(bench.provider.queue_pair_count(), 0);
    });
}
