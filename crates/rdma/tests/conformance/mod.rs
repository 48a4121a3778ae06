//! Promises of every provider of the verbs, as one suite: [`conformance!`] makes it the tests of a provider.
//!
//! Both ends of each connection are in one provider. The loop sleeps until a descriptor or the provider's own time wakes it: a
//! provider that does not make itself heard fails by the bound on each wait.

use rdma::{
    Access, CloseReason, Completion, CompletionKind, Event, PostError, QueuePairId, RegionKey, RegisterError,
    Status, Verbs, WorkId,
};
use std::time::{Duration, Instant};
use sys::driver::Driver;
use sys::{Buf, BufMut, Payload};
use types::Monotonic;

/// Longer than any machine needs, short enough for a test.
const BOUND: Duration = Duration::from_secs(30);

type Begin<S> = Box<dyn FnMut(&mut S, &[u8], Monotonic) -> QueuePairId>;

pub struct Bench<S> {
    driver: Driver,
    pub subject: S,
    /// Begins a connection to the provider's own listener.
    begin: Begin<S>,
    /// Connections and registrations of the provider.
    counts: fn(&S) -> (usize, usize),
    began: Instant,
    events: Vec<Event>,
    pub done: Vec<Completion>,
    pub requests: Vec<(QueuePairId, Vec<u8>)>,
    pub established: Vec<(QueuePairId, Vec<u8>)>,
    pub disconnected: Vec<(QueuePairId, CloseReason)>,
}

impl<S: Verbs> Bench<S> {
    pub fn new(driver: Driver, subject: S, begin: Begin<S>, counts: fn(&S) -> (usize, usize)) -> Self {
        Self {
            driver,
            subject,
            begin,
            counts,
            began: Instant::now(),
            events: Vec::new(),
            done: Vec::new(),
            requests: Vec::new(),
            established: Vec::new(),
            disconnected: Vec::new(),
        }
    }

    pub fn begin(&mut self, private_data: &[u8]) -> QueuePairId {
        let now = self.now();
        (self.begin)(&mut self.subject, private_data, now)
    }

    pub fn counts(&self) -> (usize, usize) {
        (self.counts)(&self.subject)
    }

    pub fn now(&self) -> Monotonic {
        Monotonic(self.began.elapsed().as_nanos() as u64)
    }

    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + BOUND;
        loop {
            let now = self.now();
            let mut events = std::mem::take(&mut self.events);
            self.subject.poll(now, &mut events);
            let quiet = events.is_empty();
            for event in events.drain(..) {
                match event {
                    Event::ConnectRequest { queue_pair, private_data, .. } => {
                        self.requests.push((queue_pair, private_data));
                    }
                    Event::Established { queue_pair, private_data } => {
                        self.established.push((queue_pair, private_data));
                    }
                    Event::Completion(done) => self.done.push(done),
                    Event::Disconnected { queue_pair, reason } => {
                        self.disconnected.push((queue_pair, reason));
                    }
                }
            }
            self.events = events;
            if holds(self) {
                return;
            }
            assert!(Instant::now() < end, "no {what} within {BOUND:?}: {:?}", self.disconnected);
            if quiet {
                let timeout = self.subject.next_timeout().map_or(BOUND, |at| at.since(self.now()));
                self.driver.wait(Some(timeout.min(BOUND))).expect("the loop goes on");
            }
        }
    }

    /// (client, server), established.
    pub fn connect(&mut self) -> (QueuePairId, QueuePairId) {
        let client = self.begin(b"");
        self.until("request", |bench| !bench.requests.is_empty());
        let (server, _) = self.requests.remove(0);
        self.subject.accept(server, b"").expect("a request waits");
        self.until("connection", |bench| bench.established.len() == 2);
        self.established.clear();
        (client, server)
    }

    pub fn take(&mut self, queue_pair: QueuePairId, kind: CompletionKind) -> Completion {
        let found = |done: &Completion| done.queue_pair == queue_pair && done.kind == kind;
        self.until("completion", |bench| bench.done.iter().any(found));
        let at = self.done.iter().position(found).expect("is there");
        self.done.remove(at)
    }

    pub fn register(&mut self, bytes: &[u8], access: Access, queue_pair: QueuePairId) -> RegionKey {
        let mut memory = BufMut::for_overwrite(bytes.len());
        memory.copy_from_slice(bytes);
        self.subject.register(memory, access, queue_pair).expect("is open")
    }

    fn remote(&self, key: RegionKey, at: u64) -> (RegionKey, u64) {
        (key, self.subject.remote_offset(key) + at)
    }

    fn send(&mut self, queue_pair: QueuePairId, id: u64, bytes: &[u8]) {
        let payload = Payload::from(Buf::from(bytes));
        self.subject.post_send(queue_pair, WorkId(id), payload, None).expect("is open");
    }

    fn write(&mut self, queue_pair: QueuePairId, id: u64, bytes: &[u8], remote: (RegionKey, u64)) {
        let payload = Payload::from(Buf::from(bytes));
        self.subject.post_write(queue_pair, WorkId(id), payload, remote).expect("is open");
    }

    fn receive(&mut self, queue_pair: QueuePairId, id: u64, len_bytes: usize) {
        self.subject.post_receive(queue_pair, WorkId(id), len_bytes).expect("is open");
    }

    /// Both ends of one connection have ended, the others continue.
    fn both_ended(&mut self, (client, server): (QueuePairId, QueuePairId)) {
        self.until("both ends", |bench| bench.disconnected.len() == 2);
        let ended: Vec<QueuePairId> = self.disconnected.iter().map(|(queue_pair, _)| *queue_pair).collect();
        assert!(ended.contains(&client) && ended.contains(&server), "{:?}", self.disconnected);
        self.disconnected.clear();
    }

    /// A message gets from one end to the other.
    fn goes_on(&mut self, (client, server): (QueuePairId, QueuePairId)) {
        self.done.clear();
        self.receive(server, 1, 64);
        self.send(client, 2, b"still here");
        let received = self.take(server, CompletionKind::Receive);
        assert_eq!(received.status, Status::Success);
        assert_eq!(received.buffer.expect("comes back")[..], b"still here"[..]);
    }
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

const ALL: Access =
    Access { remote_read: true, remote_write: true, remote_invalidate: true, unspecified_content: false };

pub fn messages_writes_and_reads_arrive<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    let bytes = pattern(3_000_000);
    let target = bench.register(&vec![0; bytes.len()], ALL, server);
    bench.receive(server, 1, 64);
    let remote = bench.remote(target, 0);
    bench.write(client, 2, &bytes, remote);
    bench.send(client, 3, b"written");
    let received = bench.take(server, CompletionKind::Receive);
    assert_eq!((received.id, received.len_bytes), (WorkId(1), 7));
    assert_eq!(received.buffer.expect("comes back")[..], b"written"[..]);
    assert_eq!(bench.take(client, CompletionKind::Write).id, WorkId(2));
    assert_eq!(bench.take(client, CompletionKind::Send).id, WorkId(3));

    let sink = bench.register(&vec![0; bytes.len()], Access::default(), client);
    let len = bytes.len() as u32;
    bench.subject.post_read(client, WorkId(4), (sink, 0), len, remote).expect("is open");
    let read = bench.take(client, CompletionKind::Read);
    assert_eq!((read.status, read.id, read.len_bytes), (Status::Success, WorkId(4), bytes.len()));
    assert_eq!(bench.subject.deregister(sink).expect("is writable")[..], bytes[..]);
    assert_eq!(bench.subject.deregister(target).expect("is writable")[..], bytes[..]);
    assert_eq!(bench.counts(), (2, 0));
}

/// Where the provider says that it can be.
pub fn a_message_ends_a_registration_of_its_receiver<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    if !bench.subject.info(server).expect("is open").remote_invalidation {
        return;
    }
    let target = bench.register(&pattern(100), ALL, server);
    bench.receive(server, 5, 64);
    let note = Payload::from(Buf::from(&b"done"[..]));
    bench.subject.post_send(client, WorkId(6), note, Some(target)).expect("is open");
    assert_eq!(bench.take(server, CompletionKind::Receive).invalidated, Some(target));
    assert_eq!(bench.subject.deregister(target).expect("is writable")[..], pattern(100)[..]);
}

pub fn a_payload_in_many_pieces_arrives_as_one<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    let bytes = pattern(600_000);
    for (pieces, round) in [(1, 0), (6, 1), (7, 2), (40, 3), (1000, 4)] {
        let target = bench.register(&vec![0; bytes.len() + 16], ALL, server);
        let mut payload = Payload::new();
        for piece in bytes.chunks(bytes.len().div_ceil(pieces)) {
            payload.push(Buf::from(piece));
        }
        let remote = bench.remote(target, 8);
        bench.subject.post_write(client, WorkId(round), payload, remote).expect("is open");
        bench.receive(server, round, 64);
        bench.send(client, 100 + round, b"");
        assert_eq!(bench.take(server, CompletionKind::Receive).len_bytes, 0);
        assert_eq!(bench.take(client, CompletionKind::Write).status, Status::Success);
        let memory = bench.subject.deregister(target).expect("is writable");
        assert_eq!(memory[8..bytes.len() + 8], bytes[..], "{pieces} pieces");
        assert_eq!((&memory[..8], &memory[bytes.len() + 8..]), (&[0; 8][..], &[0; 8][..]));
        // The messages in the same pieces.
        let mut payload = Payload::new();
        for piece in bytes[..50_000].chunks(50_000_usize.div_ceil(pieces)) {
            payload.push(Buf::from(piece));
        }
        bench.receive(server, round, 50_000);
        bench.subject.post_send(client, WorkId(round), payload, None).expect("is open");
        let received = bench.take(server, CompletionKind::Receive);
        assert_eq!(received.buffer.expect("comes back")[..], bytes[..50_000]);
    }
}

pub fn more_work_than_any_queue_holds_completes_in_order<S: Verbs>(mut bench: Bench<S>) {
    const MESSAGES: u64 = 1500;
    let (client, server) = bench.connect();
    for id in 0..MESSAGES {
        bench.receive(server, id, 256);
    }
    for id in 0..MESSAGES {
        bench.send(client, id, &id.to_le_bytes());
    }
    let received = |bench: &mut Bench<S>| {
        bench.done.iter().filter(|done| done.queue_pair == server).count() as u64 == MESSAGES
            && bench.done.iter().filter(|done| done.queue_pair == client).count() as u64 == MESSAGES
    };
    bench.until("all messages", received);
    for (number, done) in bench.done.iter().filter(|done| done.queue_pair == server).enumerate() {
        let number = number as u64;
        assert_eq!(done.id, WorkId(number));
        assert_eq!(done.buffer.as_ref().expect("comes back")[..], number.to_le_bytes()[..]);
    }
    let sent: Vec<u64> =
        bench.done.iter().filter(|done| done.queue_pair == client).map(|done| done.id.0).collect();
    assert!(sent.iter().copied().eq(0..MESSAGES));
}

pub fn long_and_short_messages_and_writes_one_behind_the_other_arrive_as_sent<S: Verbs>(mut bench: Bench<S>) {
    const ROOM: usize = 200_000;
    // Lengths near those at which FPDUs, receives and the bytes planned behind them end, and a WRITE of 64
    // KiB.
    const LENGTHS: [usize; 11] =
        [65_672, 65_724, 1, 61_440, 61_441, 70_000, 30_000, 4096, 69_500, 0, 131_000];
    let (client, server) = bench.connect();
    let bytes = pattern(ROOM);
    let target = bench.register(&[0; ROOM], ALL, server);
    let remote = bench.remote(target, 0);
    for round in 0..4 {
        let messages: Vec<usize> = (0..60).map(|nth| LENGTHS[(nth * 7 + round) % LENGTHS.len()]).collect();
        for (id, &len_bytes) in messages.iter().enumerate() {
            bench.receive(server, id as u64, len_bytes.max(64));
        }
        for (id, &len_bytes) in messages.iter().enumerate() {
            if id % (round + 2) == 0 {
                bench.write(client, 1000, &bytes[..len_bytes], remote);
            }
            bench.send(client, id as u64, &bytes[bytes.len() - len_bytes..]);
        }
        for (id, &len_bytes) in messages.iter().enumerate() {
            let received = bench.take(server, CompletionKind::Receive);
            assert_eq!((received.id, received.status), (WorkId(id as u64), Status::Success));
            let buffer = received.buffer.expect("comes back");
            assert!(buffer[..] == bytes[bytes.len() - len_bytes..], "round {round}, {id}: {len_bytes}");
        }
        bench.done.clear();
    }
    let held = bench.subject.deregister(target).expect("is writable");
    assert!(held[..131_000] == bytes[..131_000]);
}

pub fn reads_beyond_the_depth_wait_their_turn<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    let depth = bench.subject.info(client).expect("is open").outbound_read_depth;
    assert!(depth > 0);
    let bytes = pattern(200 * 1000);
    let source = bench.register(&bytes, ALL, server);
    let sink = bench.register(&vec![0; bytes.len()], Access::default(), client);
    for part in 0..200u64 {
        let remote = bench.remote(source, part * 1000);
        bench.subject.post_read(client, WorkId(part), (sink, part * 1000), 1000, remote).expect("is open");
    }
    for _ in 0..200 {
        assert_eq!(bench.take(client, CompletionKind::Read).status, Status::Success);
    }
    assert_eq!(bench.subject.deregister(sink).expect("is writable")[..], bytes[..]);
}

pub fn sinks_side_by_side_have_names_of_their_own<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    let bytes = pattern(8 * 1000);
    let source = bench.register(&bytes, ALL, server);
    let sinks: Vec<RegionKey> =
        (0..8).map(|_| bench.register(&[0; 1000], Access::default(), client)).collect();
    for (part, sink) in sinks.iter().enumerate() {
        let remote = bench.remote(source, part as u64 * 1000);
        bench.subject.post_read(client, WorkId(part as u64), (*sink, 0), 1000, remote).expect("is open");
    }
    for (sink, part) in sinks.into_iter().zip(bytes.chunks(1000)) {
        assert_eq!(bench.take(client, CompletionKind::Read).status, Status::Success);
        assert_eq!(bench.subject.deregister(sink).expect("is writable")[..], *part);
    }
}

pub fn private_data_is_carried_both_ways<S: Verbs>(mut bench: Bench<S>) {
    let client = bench.begin(b"who asks");
    bench.until("request", |bench| !bench.requests.is_empty());
    let (server, asked) = bench.requests.remove(0);
    // InfiniBand's connection manager fills up with zeros.
    assert!(asked.starts_with(b"who asks") && asked[8..].iter().all(|byte| *byte == 0));
    bench.subject.accept(server, b"who answers").expect("a request waits");
    bench.until("connection", |bench| bench.established.len() == 2);
    let (_, answered) =
        bench.established.iter().find(|(queue_pair, _)| *queue_pair == client).expect("is there");
    assert!(answered.starts_with(b"who answers") && answered[11..].iter().all(|byte| *byte == 0));
    let (of_client, of_server) =
        (bench.subject.info(client).expect("is open"), bench.subject.info(server).expect("is open"));
    assert_eq!(of_client.transport, of_server.transport);
    assert_eq!((of_client.local, of_client.peer), (of_server.peer, of_server.local));
    assert_eq!(of_client.outbound_read_depth, of_server.inbound_read_depth);
}

pub fn a_rejected_request_says_so<S: Verbs>(mut bench: Bench<S>) {
    let client = bench.begin(b"");
    bench.until("request", |bench| !bench.requests.is_empty());
    let (server, _) = bench.requests.remove(0);
    bench.subject.reject(server, b"");
    bench.until("end", |bench| bench.disconnected.iter().any(|(queue_pair, _)| *queue_pair == client));
    assert!(bench.disconnected.contains(&(client, CloseReason::Rejected)), "{:?}", bench.disconnected);
    bench.until("no connection", |bench| bench.counts().0 == 0);
}

pub fn work_of_a_lost_connection_is_flushed_and_the_other_end_hears_of_it<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    bench.receive(server, 1, 64);
    bench.receive(server, 2, 64);
    bench.subject.disconnect(client);
    assert_eq!(bench.subject.post_receive(client, WorkId(9), 64).err(), Some(PostError::Closed));
    assert_eq!(bench.take(server, CompletionKind::Receive).status, Status::Flushed);
    assert_eq!(bench.take(server, CompletionKind::Receive).status, Status::Flushed);
    bench.until("both ends", |bench| bench.disconnected.len() == 2);
    assert!(bench.disconnected.contains(&(client, CloseReason::Local)), "{:?}", bench.disconnected);
    assert!(bench.disconnected.contains(&(server, CloseReason::Peer)), "{:?}", bench.disconnected);
    assert_eq!(bench.counts().0, 0);
    let payload = Payload::from(Buf::from(&b"x"[..]));
    assert_eq!(bench.subject.post_send(server, WorkId(2), payload, None), Err(PostError::Closed));
    let memory = BufMut::zeroed(8);
    assert_eq!(bench.subject.register(memory, ALL, server).err(), Some(RegisterError::Closed));
}

pub fn messages_before_a_disconnect_are_received<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    for id in 0..8 {
        bench.receive(server, id, 64);
    }
    bench.send(client, 1, b"last words");
    bench.take(client, CompletionKind::Send);
    bench.take(server, CompletionKind::Receive);
    bench.subject.disconnect(client);
    bench.until("both ends", |bench| bench.disconnected.len() == 2);
    let flushed = |done: &&Completion| done.queue_pair == server && done.status == Status::Flushed;
    assert_eq!(bench.done.iter().filter(flushed).count(), 7);
}

pub fn a_write_to_a_name_that_was_guessed_ends_that_connection_only<S: Verbs>(mut bench: Bench<S>) {
    let bad = bench.connect();
    let good = bench.connect();
    bench.write(bad.0, 1, b"x", (RegionKey(0x4444_4444), 0));
    bench.both_ended(bad);
    bench.goes_on(good);
}

pub fn memory_of_one_connection_is_out_of_reach_of_another<S: Verbs>(mut bench: Bench<S>) {
    let good = bench.connect();
    let bad = bench.connect();
    let target = bench.register(&pattern(4096), ALL, good.1);
    let remote = bench.remote(target, 0);
    bench.write(bad.0, 1, &[0xEE; 4096], remote);
    bench.both_ended(bad);
    bench.goes_on(good);
    assert_eq!(bench.subject.deregister(target).expect("is writable")[..], pattern(4096)[..]);
}

pub fn a_write_past_the_end_places_nothing_outside<S: Verbs>(mut bench: Bench<S>) {
    let good = bench.connect();
    let bad = bench.connect();
    let target = bench.register(&pattern(4096), ALL, bad.1);
    let remote = bench.remote(target, 4000);
    bench.write(bad.0, 1, &[0xEE; 97], remote);
    bench.both_ended(bad);
    bench.goes_on(good);
    assert_eq!(bench.subject.deregister(target).expect("is writable")[..4000], pattern(4096)[..4000]);
}

pub fn memory_registered_for_reading_is_not_written<S: Verbs>(mut bench: Bench<S>) {
    let bad = bench.connect();
    let bytes = Buf::from(&pattern(4096)[..]);
    let source = bench.subject.register_shared(bytes.clone(), bad.1).expect("is open");
    let remote = bench.remote(source, 0);
    bench.write(bad.0, 1, &[0xEE; 4096], remote);
    bench.both_ended(bad);
    assert_eq!(bytes[..], pattern(4096)[..]);
    assert!(bench.subject.deregister(source).is_none());
}

pub fn a_read_of_what_is_not_registered_fails_and_ends_the_connection<S: Verbs>(mut bench: Bench<S>) {
    let bad = bench.connect();
    let sink = bench.register(&[0; 64], Access::default(), bad.0);
    bench.subject.post_read(bad.0, WorkId(1), (sink, 0), 64, (RegionKey(0x4444_4444), 0)).expect("is open");
    assert_ne!(bench.take(bad.0, CompletionKind::Read).status, Status::Success);
    bench.both_ended(bad);
    assert_eq!(bench.subject.deregister(sink).expect("is writable")[..], [0; 64][..]);
}

pub fn a_message_longer_than_its_receive_ends_the_connection<S: Verbs>(mut bench: Bench<S>) {
    let bad = bench.connect();
    let good = bench.connect();
    bench.receive(bad.1, 1, 64);
    bench.send(bad.0, 2, &[7; 65]);
    assert_ne!(bench.take(bad.1, CompletionKind::Receive).status, Status::Success);
    bench.both_ended(bad);
    bench.goes_on(good);
}

pub fn a_sink_outside_its_registration_fails_by_itself<S: Verbs>(mut bench: Bench<S>) {
    let (client, server) = bench.connect();
    let source = bench.register(&pattern(64), ALL, server);
    let sink = bench.register(&[0; 32], Access::default(), client);
    let remote = bench.remote(source, 0);
    bench.subject.post_read(client, WorkId(1), (sink, 0), 64, remote).expect("is open");
    assert_eq!(bench.take(client, CompletionKind::Read).status, Status::LocalProtection);
}

pub fn room_that_is_filled_in_any_order_holds_what_was_written<S: Verbs>(mut bench: Bench<S>) {
    const LEN: usize = 2_000_000;
    let (client, server) = bench.connect();
    let bytes = pattern(LEN);
    let access = Access { remote_read: false, unspecified_content: true, ..ALL };
    // In one piece; the end first; short messages between long writes.
    let orders: [&[(usize, usize)]; 3] =
        [&[(0, LEN)], &[(LEN / 2, LEN), (0, LEN / 2 - 70_000)], &[(0, 100_000), (300_000, LEN)]];
    for (round, parts) in orders.into_iter().enumerate() {
        let room = bench.register(&vec![0; LEN], access, server);
        for (nth, &(from, to)) in parts.iter().enumerate() {
            let remote = bench.remote(room, from as u64);
            bench.write(client, 1, &bytes[from..to], remote);
            bench.receive(server, nth as u64, 9000);
            bench.send(client, 2, &bytes[..8000]);
        }
        for nth in 0..parts.len() {
            let received = bench.take(server, CompletionKind::Receive);
            assert_eq!(
                (received.id, &received.buffer.expect("comes back")[..]),
                (WorkId(nth as u64), &bytes[..8000])
            );
        }
        let held = bench.subject.deregister(room).expect("is writable");
        for &(from, to) in parts {
            assert!(held[from..to] == bytes[from..to], "round {round}: {from}..{to}");
        }
    }
    assert_eq!(bench.counts(), (2, 0));
}

pub fn a_connection_that_ends_in_the_middle_of_a_long_transfer_gives_everything_back<S: Verbs>(
    mut bench: Bench<S>,
) {
    for round in 0..6 {
        let both = bench.connect();
        let access = Access { remote_read: false, unspecified_content: true, ..ALL };
        let room = bench.register(&vec![0; 8_000_000], access, both.1);
        let remote = bench.remote(room, 0);
        bench.receive(both.1, 1, 64);
        bench.send(both.0, 2, b"first");
        bench.take(both.1, CompletionKind::Receive);
        bench.write(both.0, 3, &pattern(8_000_000), remote);
        // Some of it comes, then either end goes.
        let (mut turns, stop) = (0, round * 2);
        bench.until("some turns", |bench| {
            turns += 1;
            // A device needs no turns of ours.
            turns > stop || bench.done.iter().any(|done| done.kind == CompletionKind::Write)
        });
        bench.subject.disconnect(if round % 2 == 0 { both.0 } else { both.1 });
        bench.both_ended(both);
        assert_eq!(bench.subject.deregister(room).expect("is writable").len(), 8_000_000);
        bench.done.clear();
        assert_eq!(bench.counts(), (0, 0));
    }
}

pub fn connections_that_come_and_go_leave_nothing<S: Verbs>(mut bench: Bench<S>) {
    for round in 0..20 {
        let both = bench.connect();
        bench.goes_on(both);
        let target = bench.register(&pattern(10_000), ALL, both.1);
        bench.receive(both.1, 7, 4096);
        bench.subject.disconnect(if round % 2 == 0 { both.0 } else { both.1 });
        bench.both_ended(both);
        assert_eq!(bench.subject.deregister(target).expect("is writable").len(), 10_000);
        bench.done.clear();
    }
    assert_eq!(bench.counts(), (0, 0));
}

/// Makes the suite the tests of a provider: `run` is called with each of its functions, which take a [`Bench`].
macro_rules! conformance {
    ($run:ident) => {
        conformance! { $run,
            messages_writes_and_reads_arrive
            a_message_ends_a_registration_of_its_receiver
            a_payload_in_many_pieces_arrives_as_one
            more_work_than_any_queue_holds_completes_in_order
            long_and_short_messages_and_writes_one_behind_the_other_arrive_as_sent
            reads_beyond_the_depth_wait_their_turn
            sinks_side_by_side_have_names_of_their_own
            private_data_is_carried_both_ways
            a_rejected_request_says_so
            work_of_a_lost_connection_is_flushed_and_the_other_end_hears_of_it
            messages_before_a_disconnect_are_received
            a_write_to_a_name_that_was_guessed_ends_that_connection_only
            memory_of_one_connection_is_out_of_reach_of_another
            a_write_past_the_end_places_nothing_outside
            memory_registered_for_reading_is_not_written
            a_read_of_what_is_not_registered_fails_and_ends_the_connection
            a_message_longer_than_its_receive_ends_the_connection
            a_sink_outside_its_registration_fails_by_itself
            room_that_is_filled_in_any_order_holds_what_was_written
            a_connection_that_ends_in_the_middle_of_a_long_transfer_gives_everything_back
            connections_that_come_and_go_leave_nothing
        }
    };
    ($run:ident, $($name:ident)+) => {
        $(#[test] fn $name() { $run(conformance::$name); })+
    };
}
pub(crate) use conformance;
