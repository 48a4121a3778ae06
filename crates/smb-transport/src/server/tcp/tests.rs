//! Streams over real sockets, on both backends of the loop.

use super::*;
use crate::framing::HEADER_BYTES;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;
use sys::driver::DriverChoice;

const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    driver: Driver,
    tcp: Tcp,
    address: SocketAddr,
    events: Vec<TcpEvent>,
}

impl Server {
    fn new(choice: DriverChoice, limits: TcpLimits) -> Self {
        let driver = Driver::new(choice).expect("a loop");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let tcp = Tcp::new(&driver, vec![listener], limits).expect("a server");
        Self { driver, tcp, address, events: Vec::new() }
    }

    fn both(limits: &TcpLimits, test: impl Fn(Server)) {
        for choice in [DriverChoice::Automatic, DriverChoice::Fallback] {
            test(Self::new(choice, limits.clone()));
        }
    }

    fn connect(&mut self) -> (TcpStream, ConnectionId) {
        let client = TcpStream::connect(self.address).expect("a connection");
        client.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        match self.next() {
            TcpEvent::Opened { connection, peer, local } => {
                assert_eq!((peer, local), (client.local_addr().expect("an address"), self.address));
                (client, connection)
            }
            other => panic!("{other:?} before a connection"),
        }
    }

    /// A connection on which a user has logged on.
    fn log_on(&mut self, user: &str) -> (TcpStream, ConnectionId) {
        let (client, connection) = self.connect();
        self.tcp.set_message_bytes_max(connection, 9 << 20);
        self.tcp.set_standing(connection, Some(user));
        (client, connection)
    }

    fn turn(&mut self) {
        self.driver.wait(Some(Duration::from_millis(20))).expect("the loop");
        self.tcp.poll(sys::monotonic_now(), &mut self.events);
    }

    fn next(&mut self) -> TcpEvent {
        let deadline = Instant::now() + PATIENCE;
        while self.events.is_empty() {
            assert!(Instant::now() < deadline, "nothing happened");
            self.turn();
        }
        self.events.remove(0)
    }

    fn message(&mut self) -> Buf {
        match self.next() {
            TcpEvent::Message { message, .. } => message,
            other => panic!("{other:?} instead of a message"),
        }
    }

    fn closed(&mut self) -> CloseReason {
        match self.next() {
            TcpEvent::Closed { reason, .. } => reason,
            other => panic!("{other:?} instead of an end"),
        }
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&header(message.len())[..], message].concat()
}

fn header(len: usize) -> [u8; HEADER_BYTES] {
    MessageLength::new(len).expect("a length that can be said").header()
}

fn read_message(client: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    client.read_exact(&mut length).expect("a header");
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    client.read_exact(&mut message).expect("a message");
    message
}

#[test]
fn messages_go_both_ways_in_order() {
    Server::both(&TcpLimits::default(), |mut server| {
        let (mut client, connection) = server.connect();
        client.write_all(&[framed(b"one"), framed(b"two")].concat()).expect("a send");
        assert_eq!(&server.message()[..], b"one");
        assert_eq!(&server.message()[..], b"two");
        for answer in [&b"first"[..], b"", b"second"] {
            server.tcp.send(connection, Buf::from(answer).into());
            server.tcp.flush(connection);
        }
        server.turn();
        assert_eq!(read_message(&mut client), b"first");
        server.turn();
        assert_eq!(read_message(&mut client), b"");
        assert_eq!(read_message(&mut client), b"second");
        drop(client);
        assert_eq!(server.closed(), CloseReason::Client);
        assert_eq!(server.tcp.connection_count(), 0);
    });
}

#[test]
fn large_messages_pass_unharmed() {
    let limits = TcpLimits { first_message_bytes_max: 4 << 20, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (mut client, connection) = server.connect();
        let large: Vec<u8> = (0..3_000_000).map(|at| (at ^ (at >> 8)) as u8).collect();
        let sent = framed(&large);
        let thread = std::thread::spawn(move || {
            client.write_all(&sent).expect("a send");
            client.write_all(&sent).expect("a send");
            let echo = read_message(&mut client);
            (client, echo)
        });
        let message = server.message();
        assert!(message[..] == large[..]);
        assert!(server.message()[..] == large[..]);
        server.tcp.send(connection, message.into());
        server.tcp.flush(connection);
        while !thread.is_finished() {
            server.turn();
        }
        assert!(thread.join().expect("the client").1 == large);
    });
}

/// Each eight bytes of a message say which one it is, and where in it they are.
fn numbered(message: u64, len: usize) -> Buf {
    let mut bytes = BufMut::for_overwrite(len);
    for (nth, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(message << 32 | nth as u64).to_le_bytes());
    }
    bytes.freeze()
}

#[test]
fn messages_sent_by_reference_reach_a_slow_client_as_they_were_though_their_memory_is_used_again() {
    const LEN: usize = 1 << 20;
    for send_path in [SendPath::Reference, SendPath::Automatic, SendPath::Copy] {
        let limits = TcpLimits { send_path, ..TcpLimits::default() };
        Server::both(&limits, |mut server| {
            let (mut client, connection) = server.log_on("anna");
            let reader = std::thread::spawn(move || {
                for nth in 0..24 {
                    std::thread::sleep(Duration::from_millis(5));
                    assert!(read_message(&mut client) == *numbered(nth, LEN), "message {nth} was changed");
                }
            });
            for nth in 0..24 {
                server.tcp.send(connection, Payload::from(numbered(nth, LEN)));
                server.tcp.flush(connection);
                while server.tcp.queued_bytes(connection) > 2 * LEN {
                    server.turn();
                    // Written where free memory is.
                    drop(numbered(u64::from(u32::MAX), LEN));
                }
            }
            while server.tcp.queued_bytes(connection) > 0 {
                server.turn();
            }
            reader.join().expect("all messages as they were sent");
        });
    }
}

/// Bytes that a socket takes though its client does not read, and of which it does not acknowledge all.
const UNREAD_BYTES: usize = 256 << 10;

#[test]
fn a_client_that_does_not_read_what_was_lent_to_it_is_given_up_and_one_that_does_is_not() {
    let (stall, sweep) = (Duration::from_millis(600), Duration::from_millis(50));
    let limits = TcpLimits { send_path: SendPath::Reference, stall, sweep, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (mut reading, reading_id) = server.log_on("anna");
        let (idle, idle_id) = server.log_on("otto");
        for connection in [reading_id, idle_id] {
            server.tcp.send(connection, Payload::from(numbered(1, UNREAD_BYTES)));
            server.tcp.flush(connection);
            assert_eq!(server.tcp.queued_bytes(connection), 0, "the socket has all of it");
        }
        assert!(server.tcp.lent_held_bytes() > 0);
        assert!(read_message(&mut reading) == *numbered(1, UNREAD_BYTES));
        match server.next() {
            TcpEvent::Closed { connection, reason } => {
                assert_eq!((connection, reason), (idle_id, CloseReason::Stalled));
            }
            other => panic!("{other:?} instead of an end"),
        }
        assert_eq!(server.tcp.lent_held_bytes(), 0);
        drop(idle);
        let until = Instant::now() + 2 * stall;
        while Instant::now() < until {
            server.turn();
        }
        assert!(server.events.is_empty(), "who has read may be silent: {:?}", server.events);
    });
}

#[test]
fn beyond_what_may_be_lent_messages_are_copied() {
    for lent_bytes_max in [0, 100 << 10] {
        let limits = TcpLimits { send_path: SendPath::Reference, lent_bytes_max, ..TcpLimits::default() };
        Server::both(&limits, |mut server| {
            let (mut first, first_id) = server.log_on("anna");
            let (_idle, idle_id) = server.log_on("otto");
            server.tcp.send(idle_id, Payload::from(numbered(1, UNREAD_BYTES)));
            server.tcp.flush(idle_id);
            let lent = server.tcp.lent_bytes();
            assert_eq!(lent > 0, lent_bytes_max > 0);
            server.tcp.send(first_id, Payload::from(numbered(2, UNREAD_BYTES)));
            server.tcp.flush(first_id);
            server.turn();
            assert_eq!(server.tcp.lent_bytes(), lent, "the first has all that may be lent");
            assert!(read_message(&mut first) == *numbered(2, UNREAD_BYTES));
        });
    }
}

#[test]
fn what_is_no_message_ends_only_its_own_connection() {
    Server::both(&TcpLimits::default(), |mut server| {
        let (mut bad, _) = server.connect();
        let (mut good, _) = server.connect();
        bad.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a send");
        assert_eq!(server.closed(), CloseReason::Framing(FramingError::NotAMessage));
        let (mut long, _) = server.connect();
        long.write_all(&[0, 0xff, 0xff, 0xff]).expect("a send");
        let reason = server.closed();
        assert_eq!(reason, CloseReason::Framing(FramingError::TooLong { len_bytes: 0x00ff_ffff }));
        good.write_all(&framed(b"still here")).expect("a send");
        assert_eq!(&server.message()[..], b"still here");
    });
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_stops_nobody() {
    let limits = TcpLimits { queued_bytes_max: 100_000, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (mut slow, slow_id) = server.connect();
        let (mut quick, quick_id) = server.connect();
        slow.write_all(&framed(b"go")).expect("a send");
        server.message();
        let answer = BufMut::zeroed(8 << 20).freeze();
        for _ in 0..8 {
            server.tcp.send(slow_id, answer.clone().into());
            server.tcp.flush(slow_id);
        }
        for _ in 0..5 {
            slow.write_all(&framed(b"more")).expect("a send");
        }
        quick.write_all(&framed(b"hello")).expect("a send");
        let mut from_slow = 0;
        loop {
            match server.next() {
                TcpEvent::Message { connection, .. } if connection == quick_id => break,
                TcpEvent::Message { .. } => from_slow += 1,
                other => panic!("{other:?}"),
            }
        }
        // Messages received before the queue filled may come; the rest stays in the socket.
        assert!(from_slow <= 5);
        assert!(server.tcp.queued_bytes(slow_id) > 100_000);
        server.tcp.send(quick_id, Buf::from(&b"world"[..]).into());
        server.tcp.flush(quick_id);
        server.turn();
        assert_eq!(read_message(&mut quick), b"world");
        server.tcp.close(slow_id, false);
        assert_eq!(server.closed(), CloseReason::Server);
    });
}

#[test]
fn a_close_after_the_queue_sends_what_is_queued_first() {
    Server::both(&TcpLimits::default(), |mut server| {
        let (mut client, connection) = server.connect();
        server.tcp.send(connection, Buf::from(&b"farewell"[..]).into());
        server.tcp.flush(connection);
        server.tcp.close(connection, true);
        assert_eq!(server.closed(), CloseReason::Server);
        assert_eq!(read_message(&mut client), b"farewell");
        assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
    });
}

#[test]
fn a_message_that_cannot_be_framed_ends_its_connection_and_no_other() {
    Server::both(&TcpLimits::default(), |mut server| {
        let (mut client, connection) = server.connect();
        let (mut other, other_connection) = server.connect();
        server.tcp.send(connection, BufMut::zeroed(MessageLength::MAX + 1).freeze().into());
        server.tcp.flush(connection);
        assert_eq!(server.closed(), CloseReason::TooLongToSend);
        assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0, "not a byte of it was sent");
        server.tcp.send(other_connection, Buf::from(&b"hello"[..]).into());
        server.tcp.flush(other_connection);
        server.turn();
        assert_eq!(read_message(&mut other), b"hello");
    });
}

#[test]
fn an_idle_connection_holds_no_buffer_and_works_afterwards() {
    let limits = TcpLimits { sweep: Duration::from_millis(30), ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (mut client, _) = server.connect();
        let deadline = Instant::now() + PATIENCE;
        while server.tcp.connections.iter().flatten().any(|entry| entry.receiving == Receiving::Bytes) {
            assert!(Instant::now() < deadline);
            server.turn();
        }
        client.write_all(&framed(b"awake")).expect("a send");
        assert_eq!(&server.message()[..], b"awake");
    });
}

#[test]
fn a_message_that_does_not_go_on_is_given_up() {
    let limits = TcpLimits {
        sweep: Duration::from_millis(20),
        stall: Duration::from_millis(60),
        ..TcpLimits::default()
    };
    Server::both(&limits, |mut server| {
        let (mut idle, _) = server.connect();
        let (mut stuck, _) = server.connect();
        stuck.write_all(&[0, 0, 1]).expect("a send");
        assert_eq!(server.closed(), CloseReason::Stalled);
        idle.write_all(&framed(b"idle is not stalled")).expect("a send");
        server.message();
    });
}

#[test]
fn a_client_that_says_much_and_reads_nothing_is_given_up() {
    let limits = TcpLimits {
        sweep: Duration::from_millis(20),
        stall: Duration::from_millis(500),
        queued_bytes_max: 64 << 20,
        ..TcpLimits::default()
    };
    Server::both(&limits, |mut server| {
        let (mut deaf, id) = server.log_on("anna");
        server.tcp.send(id, Payload::from(Buf::from(&vec![0; 12 << 20][..])));
        server.tcp.flush(id);
        assert!(server.tcp.queued_bytes(id) > 0, "more than the sockets take");
        // The client's messages are received, but none of them may restart its timeout.
        let until = Instant::now() + Duration::from_secs(20);
        let mut is_given_up = false;
        while !is_given_up && Instant::now() < until {
            let _ = deaf.write_all(&framed(b"is here"));
            server.turn();
            is_given_up = server
                .events
                .drain(..)
                .any(|event| matches!(event, TcpEvent::Closed { reason: CloseReason::Stalled, .. }));
        }
        assert!(is_given_up);
    });
}

#[test]
fn a_client_that_takes_a_little_now_and_then_is_given_up_and_one_that_reads_is_not() {
    const BYTES: usize = 12 << 20;
    for send_path in [SendPath::Reference, SendPath::Automatic] {
        let limits = TcpLimits {
            sweep: Duration::from_millis(20),
            stall: Duration::from_millis(400),
            member_pace: Pace { grace: Duration::from_secs(60), bytes_per_second: 4 << 20 },
            queued_bytes_max: 64 << 20,
            send_path,
            ..TcpLimits::default()
        };
        Server::both(&limits, |mut server| {
            let (mut reading, reading_id) = server.log_on("anna");
            let (mut trickling, trickling_id) = server.log_on("otto");
            // Small, so that the socket takes something with each of the trickling client's reads.
            let socket = &server.tcp.connection(trickling_id).expect("it is open").socket;
            set_socket_send_buffer_size(socket, 64 << 10).expect("a size");
            set_socket_recv_buffer_size(&trickling, 64 << 10).expect("a size");
            for id in [reading_id, trickling_id] {
                server.tcp.send(id, Payload::from(Buf::from(&vec![7; BYTES][..])));
                server.tcp.flush(id);
            }
            let reader = std::thread::spawn(move || (read_message(&mut reading).len(), reading));
            let until = Instant::now() + Duration::from_secs(5);
            let (mut given_up, mut taken) = (None, 0);
            trickling.set_nonblocking(true).expect("it does not wait");
            let mut some = vec![0; 64 << 10];
            while given_up.is_none() && Instant::now() < until {
                let round = Instant::now() + Duration::from_millis(50);
                taken += trickling.read(&mut some).unwrap_or(0);
                while Instant::now() < round && server.events.is_empty() {
                    server.turn();
                }
                given_up = server.events.drain(..).find_map(|event| match event {
                    TcpEvent::Closed { connection, reason } => Some((connection, reason)),
                    _ => None,
                });
            }
            assert_eq!(given_up, Some((trickling_id, CloseReason::Stalled)), "{send_path:?}: {taken} bytes");
            assert_eq!(reader.join().expect("a whole message").0, BYTES);
        });
    }
}

#[test]
fn memory_for_unfinished_messages_is_bounded_and_no_one_starves() {
    let limits =
        TcpLimits { receiving_bytes_max: 300_000, first_message_bytes_max: 1 << 20, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let mut clients: Vec<TcpStream> = (0..4).map(|_| server.log_on("ann").0).collect();
        for client in &mut clients {
            client.write_all(&framed(&[7; 200_000])[..150_000]).expect("a send");
        }
        for _ in 0..20 {
            server.turn();
        }
        let held_bytes = server.tcp.memory.held_bytes();
        assert!((1..=300_000).contains(&held_bytes), "{held_bytes}");
        let rest: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                std::thread::spawn(move || {
                    client.write_all(&framed(&[7; 200_000])[150_000..]).expect("a send");
                    client
                })
            })
            .collect();
        for _ in 0..4 {
            assert_eq!(server.message().len(), 200_000);
        }
        assert_eq!(server.tcp.memory.held_bytes(), 0);
        drop(rest);
    });
}

#[test]
fn one_connection_more_than_the_limit_is_refused() {
    let limits = TcpLimits { connections: 1, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (first, _) = server.log_on("ann");
        let mut second = TcpStream::connect(server.address).expect("the kernel accepts");
        second.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        for _ in 0..5 {
            server.turn();
        }
        assert!(matches!(second.read(&mut [0; 1]), Ok(0) | Err(_)));
        first.shutdown(Shutdown::Both).expect("a shutdown");
        assert_eq!(server.closed(), CloseReason::Client);
        server.connect();
    });
}

#[test]
fn a_paused_connection_is_heard_again_after_it_resumes() {
    Server::both(&TcpLimits::default(), |mut server| {
        let (mut client, connection) = server.connect();
        client.write_all(&framed(b"before")).expect("a send");
        assert_eq!(&server.message()[..], b"before");
        server.tcp.pause(connection);
        // The receive that was in flight may still bring one message.
        client.write_all(&framed(b"first")).expect("a send");
        assert_eq!(&server.message()[..], b"first");
        client.write_all(&framed(b"second")).expect("a send");
        for _ in 0..5 {
            server.turn();
        }
        assert!(server.events.is_empty());
        server.tcp.resume(connection);
        assert_eq!(&server.message()[..], b"second");
    });
}

/// Connections that have announced a message of `len` bytes and sent `sent` of it.
fn announcers(
    server: &mut Server,
    count: usize,
    user: Option<&str>,
    len: usize,
    sent: usize,
) -> Vec<TcpStream> {
    let begun = [&header(len)[..], &vec![7; sent]].concat();
    (0..count)
        .map(|_| {
            let (mut client, _) = match user {
                Some(user) => server.log_on(user),
                None => server.connect(),
            };
            client.write_all(&begun).expect("a send");
            client
        })
        .collect()
}

/// Sends `count` messages of 1 MiB on a connection, and checks that they arrive. Returns the time
/// taken.
fn writes_on(server: &mut Server, client: &TcpStream, connection: ConnectionId, count: usize) -> Duration {
    let (began, mut client) = (Instant::now(), client.try_clone().expect("a handle"));
    let message = framed(&vec![9; 1 << 20]);
    let thread = std::thread::spawn(move || {
        for _ in 0..count {
            client.write_all(&message).expect("a send");
        }
    });
    let mut arrived = 0;
    while arrived < count {
        match server.next() {
            TcpEvent::Message { connection: from, message } if from == connection => {
                assert_eq!(message.len(), 1 << 20);
                arrived += 1;
            }
            TcpEvent::Closed { connection: gone, reason } => assert_ne!(gone, connection, "{reason:?}"),
            _ => {}
        }
    }
    thread.join().expect("the client");
    began.elapsed()
}

#[test]
fn announcements_of_guests_hold_up_no_client_that_has_logged_on() {
    let limits = TcpLimits { receiving_bytes_max: 8 << 20, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (victim, connection) = server.log_on("ann");
        let held = announcers(&mut server, 200, None, 60_000, 28);
        assert!(writes_on(&mut server, &victim, connection, 20) < PATIENCE);
        // Of those that have sent more, memory of their own is held, and no more than there is for them.
        let more = announcers(&mut server, 60, None, 60_000, 20_000);
        assert!(writes_on(&mut server, &victim, connection, 20) < PATIENCE);
        assert!(server.tcp.memory.held_bytes() <= 512 << 10, "{}", server.tcp.memory.held_bytes());
        drop((held, more));
    });
}

#[test]
fn announcements_of_one_client_hold_up_no_other_not_even_of_its_own_user() {
    let limits = TcpLimits { receiving_bytes_max: 16 << 20, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (same, same_id) = server.log_on("eve");
        let (other, other_id) = server.log_on("ann");
        let held = announcers(&mut server, 200, Some("eve"), 256 << 10, 28);
        assert!(writes_on(&mut server, &other, other_id, 20) < PATIENCE);
        assert!(writes_on(&mut server, &same, same_id, 20) < PATIENCE);
        drop(held);
    });
}

#[test]
fn who_holds_all_memory_that_one_client_may_have_is_cut_off_by_its_own_and_delays_no_other() {
    let limits = TcpLimits {
        receiving_bytes_max: 16 << 20,
        pace_when_short: Pace { grace: Duration::from_millis(100), bytes_per_second: 1 << 20 },
        sweep: Duration::from_millis(50),
        ..TcpLimits::default()
    };
    Server::both(&limits, |mut server| {
        let (same, same_id) = server.log_on("eve");
        let (other, other_id) = server.log_on("ann");
        // More than a fair part of each: they hold the memory that they announced.
        let held = announcers(&mut server, 100, Some("eve"), 256 << 10, 40_000);
        assert!(writes_on(&mut server, &other, other_id, 20) < PATIENCE);
        assert!(writes_on(&mut server, &same, same_id, 20) < PATIENCE);
        drop(held);
    });
}

#[test]
fn a_guest_that_trickles_is_given_up_and_one_whose_messages_come_is_not() {
    let limits = TcpLimits {
        guest_pace: Pace { grace: Duration::from_millis(200), bytes_per_second: 64 << 10 },
        sweep: Duration::from_millis(20),
        ..TcpLimits::default()
    };
    Server::both(&limits, |mut server| {
        let (mut slow, slow_id) = server.connect();
        let (mut quick, quick_id) = server.connect();
        slow.write_all(&header(60_000)).expect("a send");
        let began = Instant::now();
        let mut bytes_sent = 0;
        loop {
            assert!(began.elapsed() < PATIENCE, "each byte gave it more time");
            // A byte a millisecond: on a fast machine a byte a turn would be above the pace.
            if began.elapsed().as_millis() > bytes_sent {
                bytes_sent += 1;
                let _ = slow.write_all(b"x");
            }
            quick.write_all(&framed(b"goes on")).expect("a send");
            server.turn();
            let ended = |event: &TcpEvent| match event {
                TcpEvent::Closed { connection, reason } => {
                    assert_eq!((*connection, *reason), (slow_id, CloseReason::Stalled));
                    true
                }
                TcpEvent::Message { connection, .. } => {
                    assert_eq!(*connection, quick_id);
                    false
                }
                TcpEvent::Opened { .. } => false,
            };
            if server.events.drain(..).any(|event| ended(&event)) {
                return;
            }
        }
    });
}

#[test]
fn a_guest_sends_no_long_message() {
    Server::both(&TcpLimits::default(), |mut server| {
        let (mut client, connection) = server.connect();
        let len_bytes = (64 << 10) + 1;
        client.write_all(&header(len_bytes)).expect("a send");
        assert_eq!(server.closed(), CloseReason::Framing(FramingError::TooLong { len_bytes }));
        let (mut client, connection_2) = server.connect();
        client.write_all(&framed(&[1; 64 << 10])).expect("a send");
        assert_eq!(server.message().len(), 64 << 10);
        assert_ne!(connection, connection_2);
    });
}

#[test]
fn silent_connections_keep_nobody_out() {
    let limits = TcpLimits { connections: 16, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let (mut member, member_id) = server.log_on("ann");
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(TcpStream::connect(server.address).expect("the kernel accepts"));
            server.turn();
        }
        assert!(server.tcp.connection_count() <= 16);
        for event in server.events.drain(..) {
            if let TcpEvent::Closed { connection, reason } = event {
                assert_eq!(reason, CloseReason::Evicted);
                assert_ne!(connection, member_id);
            }
        }
        // A later client gets in, and an earlier one stays.
        let mut late = TcpStream::connect(server.address).expect("the kernel accepts");
        late.write_all(&framed(b"late")).expect("a send");
        member.write_all(&framed(b"member")).expect("a send");
        let mut heard = Vec::new();
        while heard.len() < 2 {
            if let TcpEvent::Message { message, .. } = server.next() {
                heard.push(message.to_vec());
            }
        }
        heard.sort();
        assert_eq!(heard, [&b"late"[..], b"member"]);
    });
}

#[test]
fn one_host_has_a_bounded_number_of_connections() {
    let limits = TcpLimits { connections_per_host: 3, ..TcpLimits::default() };
    Server::both(&limits, |mut server| {
        let members: Vec<_> = (0..3).map(|_| server.log_on("ann")).collect();
        let mut fourth = TcpStream::connect(server.address).expect("the kernel accepts");
        fourth.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        for _ in 0..5 {
            server.turn();
        }
        assert!(matches!(fourth.read(&mut [0; 1]), Ok(0) | Err(_)));
        assert_eq!(server.tcp.connection_count(), 3);
        server.tcp.set_standing(members[1].1, None);
        let _fifth = TcpStream::connect(server.address).expect("the kernel accepts");
        while !matches!(server.next(), TcpEvent::Closed { connection, reason: CloseReason::Evicted } if connection == members[1].1)
        {
        }
    });
}
