//! One suite for both backends: what io_uring does, the fallback does.

use super::*;
use crate::Buf;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

macro_rules! on_both {
    ($($name:ident)*) => {
        mod io_uring {
            $(#[test]
            fn $name() {
                match super::Driver::new(super::DriverChoice::IoUring) {
                    Ok(driver) => super::$name(&driver),
                    Err(error) => eprintln!("io_uring is not permitted here, only the fallback is tested: {error}"),
                }
            })*
        }
        mod fallback {
            $(#[test]
            fn $name() {
                super::$name(&super::Driver::new(super::DriverChoice::Fallback).expect("epoll"));
            })*
        }
    };
}

on_both! {
    a_stream_arrives_whole_and_in_order_through_vectored_sends
    a_listener_accepts_many_until_it_is_cancelled
    a_receive_fills_from_its_offset_and_leaves_the_rest
    a_scattered_receive_fills_two_buffers_by_turns
    a_scattered_receive_never_leaves_its_buffers
    a_cancelled_scattered_receive_gives_both_buffers_back
    the_end_of_a_stream_is_zero_bytes
    what_has_come_is_received_at_once_and_beyond_the_first_buffer
    a_cancelled_receive_gives_its_buffer_back
    a_socket_becomes_readable_without_a_buffer
    a_client_that_does_not_read_holds_up_nobody_else
    a_send_to_a_closed_client_fails
    a_dropped_queue_is_never_answered_and_its_sockets_close
    a_non_blocking_socket_works_as_well
    bytes_written_are_read_back
    a_read_past_the_end_is_short
    a_punched_hole_reads_as_zeroes_and_gives_space_back
    a_write_to_a_read_only_file_fails
    more_operations_than_the_ring_has_entries_are_all_answered
    timers_expire_in_order
    a_wake_from_another_thread_ends_the_sleep
    a_wait_without_work_ends_at_its_timeout
    a_loop_that_polls_busily_hears_of_everything_as_well
    a_driver_dropped_in_mid_operation_leaves_nothing_behind
}

fn pair() -> (TcpListener, TcpStream, Descriptor) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    (listener, client, Arc::new(OwnedFd::from(server)))
}

/// Waits until the queue has answered so often.
fn answers(driver: &Driver, queue: &Queue, count: usize) -> Vec<Completion> {
    let deadline = Instant::now() + PATIENCE;
    let mut out = Vec::new();
    while out.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} answers came", out.len());
        driver.wait(Some(Duration::from_millis(100))).expect("the loop");
        queue.poll(&mut out);
    }
    out
}

fn answer(driver: &Driver, queue: &Queue) -> Completion {
    answers(driver, queue, 1).remove(0)
}

fn count(completion: &Completion) -> usize {
    match completion.result {
        Ok(Outcome::Bytes(count)) => count,
        ref other => panic!("no bytes but {other:?}"),
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// The bytes as parts of many sizes.
fn parts(bytes: &[u8]) -> Payload {
    let mut payload = Payload::new();
    let mut rest = bytes;
    for size in [1, 3, 4096, 10_000, 100].into_iter().cycle() {
        let (part, left) = rest.split_at(size.min(rest.len()));
        payload.push(Buf::from(part));
        rest = left;
        if rest.is_empty() {
            return payload;
        }
    }
    payload
}

fn a_stream_arrives_whole_and_in_order_through_vectored_sends(driver: &Driver) {
    let (_listener, mut client, server) = pair();
    let sent = pattern(9_000_000);
    let expected = sent.clone();
    let reader = std::thread::spawn(move || {
        let mut received = vec![0; expected.len()];
        client.read_exact(&mut received).expect("the stream");
        received == expected
    });
    let queue = driver.queue();
    queue.submit(1, IoOperation::Send { socket: server, data: parts(&sent) });
    assert!(matches!(answer(driver, &queue).result, Ok(Outcome::Done)));
    assert!(reader.join().expect("the reader"));
}

fn a_listener_accepts_many_until_it_is_cancelled(driver: &Driver) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let queue = driver.queue();
    queue.submit(5, IoOperation::Accept { listener: Arc::new(OwnedFd::from(listener)) });
    let clients: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    let accepted = answers(driver, &queue, 3);
    assert!(accepted.iter().all(|one| one.token == 5 && matches!(one.result, Ok(Outcome::Accepted(_)))));
    queue.cancel(5);
    let last = answer(driver, &queue);
    assert_eq!(last.result.expect_err("the cancellation").raw_os_error(), Some(libc::ECANCELED));
    drop(clients);
    assert_eq!(driver.in_flight(), 0);
}

fn a_receive_fills_from_its_offset_and_leaves_the_rest(driver: &Driver) {
    let (_listener, mut client, server) = pair();
    client.write_all(b"abcdef").expect("a send");
    let queue = driver.queue();
    let mut into = BufMut::zeroed(10);
    into[..2].copy_from_slice(b"xy");
    into.truncate(5);
    queue.submit(1, IoOperation::Receive { socket: server, into, at: 2 });
    let completion = answer(driver, &queue);
    assert_eq!(count(&completion), 3);
    assert_eq!(&completion.buffer.expect("the buffer")[..], b"xyabc");
}

fn the_end_of_a_stream_is_zero_bytes(driver: &Driver) {
    let (_listener, client, server) = pair();
    client.shutdown(Shutdown::Write).expect("a shutdown");
    let queue = driver.queue();
    queue.submit(1, IoOperation::Receive { socket: server, into: BufMut::zeroed(10), at: 0 });
    assert_eq!(count(&answer(driver, &queue)), 0);
}

fn what_has_come_is_received_at_once_and_beyond_the_first_buffer(driver: &Driver) {
    let (_listener, mut client, server) = pair();
    let (mut into, mut beyond) = ([0; 4], [0; 8]);
    assert_eq!(receive_now(&server, &mut into, &mut beyond).expect("a stream"), None);
    client.write_all(b"headbody").expect("a send");
    // That something has come is heard of by the loop.
    let queue = driver.queue();
    queue.submit(1, IoOperation::Readable { socket: server.clone() });
    assert!(answer(driver, &queue).result.is_ok());
    assert_eq!(receive_now(&server, &mut into, &mut beyond).expect("a stream"), Some(8));
    assert_eq!((&into, &beyond[..4]), (b"head", &b"body"[..]));
    client.shutdown(Shutdown::Write).expect("a shutdown");
    queue.submit(2, IoOperation::Readable { socket: server.clone() });
    assert!(answer(driver, &queue).result.is_ok());
    assert_eq!(receive_now(&server, &mut into, &mut []).expect("a stream"), Some(0));
}

fn a_cancelled_receive_gives_its_buffer_back(driver: &Driver) {
    let (_listener, _client, server) = pair();
    let queue = driver.queue();
    let mut into = BufMut::zeroed(100);
    into[..4].copy_from_slice(b"kept");
    queue.submit(1, IoOperation::Receive { socket: server, into, at: 4 });
    driver.wait(Some(Duration::from_millis(10))).expect("the loop");
    queue.cancel(1);
    let completion = answer(driver, &queue);
    assert_eq!(completion.result.expect_err("the cancellation").raw_os_error(), Some(libc::ECANCELED));
    assert_eq!(&completion.buffer.expect("the buffer")[..4], b"kept");
}

fn a_socket_becomes_readable_without_a_buffer(driver: &Driver) {
    let (_listener, mut client, server) = pair();
    let queue = driver.queue();
    queue.submit(1, IoOperation::Readable { socket: server.clone() });
    driver.wait(Some(Duration::from_millis(10))).expect("the loop");
    let mut out = Vec::new();
    queue.poll(&mut out);
    assert!(out.is_empty());
    client.write_all(b"x").expect("a send");
    assert!(matches!(answer(driver, &queue).result, Ok(Outcome::Done)));
    queue.submit(2, IoOperation::Receive { socket: server, into: BufMut::zeroed(8), at: 0 });
    assert_eq!(count(&answer(driver, &queue)), 1);
}

fn a_client_that_does_not_read_holds_up_nobody_else(driver: &Driver) {
    let (_slow_listener, slow_client, slow) = pair();
    let (_listener, mut client, server) = pair();
    let queue = driver.queue();
    let much: Buf = BufMut::zeroed(32 << 20).freeze();
    queue.submit(1, IoOperation::Send { socket: slow.clone(), data: much.into() });
    queue.submit(2, IoOperation::Send { socket: server, data: Buf::from(&b"quick"[..]).into() });
    assert_eq!(answer(driver, &queue).token, 2);
    let mut received = [0; 5];
    client.read_exact(&mut received).expect("the stream");
    assert_eq!(&received, b"quick");
    rustix::net::shutdown(&slow, rustix::net::Shutdown::Both).expect("a shutdown");
    let last = answer(driver, &queue);
    assert_eq!((last.token, last.result.is_err()), (1, true));
    drop(slow_client);
}

fn a_send_to_a_closed_client_fails(driver: &Driver) {
    let (_listener, client, server) = pair();
    drop(client);
    let queue = driver.queue();
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline);
        queue.submit(1, IoOperation::Send { socket: server.clone(), data: Buf::from(&[0; 1000][..]).into() });
        if answer(driver, &queue).result.is_err() {
            return;
        }
    }
}

fn scatter(payload: usize, between: usize, pieces: &[(Place, Range<usize>)]) -> Box<Scatter> {
    let pieces = pieces.iter().map(|(place, range)| Piece { place: *place, range: range.clone() }).collect();
    Box::new(Scatter { payload: BufMut::zeroed(payload), between: BufMut::zeroed(between), pieces })
}

fn a_scattered_receive_fills_two_buffers_by_turns(driver: &Driver) {
    let (_listener, mut client, server) = pair();
    client.write_all(b"headPAYLOADtailMOREand").expect("a send");
    let (p, b) = (Place::Payload, Place::Between);
    let into = scatter(20, 40, &[(b, 0..4), (p, 2..9), (b, 4..8), (p, 9..13), (b, 30..40)]);
    let queue = driver.queue();
    queue.submit(1, IoOperation::ReceiveScattered { socket: server, into });
    let answer = answer(driver, &queue);
    assert_eq!(count(&answer), 22);
    let back = answer.scatter.expect("both buffers");
    assert_eq!(&back.payload[..], b"\0\0PAYLOADMORE\0\0\0\0\0\0\0");
    assert_eq!((&back.between[..8], &back.between[30..33]), (&b"headtail"[..], &b"and"[..]));
    let bytes: Vec<&[u8]> = back.pieces.iter().map(|piece| back.bytes(piece)).collect();
    assert_eq!(bytes, [&b"head"[..], b"PAYLOAD", b"tail", b"MORE", b"and\0\0\0\0\0\0\0"]);
}

/// Pieces that overlap, go back or lie outside end the list: nothing is filled from there on.
fn a_scattered_receive_never_leaves_its_buffers(driver: &Driver) {
    let (p, b) = (Place::Payload, Place::Between);
    let backwards = Range { start: 5, end: 1 };
    for wrong in [(p, 3..9), (p, 0..2), (p, 8..17), (b, backwards), (b, usize::MAX - 1..usize::MAX)] {
        let (_listener, mut client, server) = pair();
        client.write_all(&[7; 64]).expect("a send");
        let queue = driver.queue();
        let into = scatter(16, 16, &[(p, 0..4), (b, 0..2), wrong.clone(), (b, 8..16)]);
        queue.submit(1, IoOperation::ReceiveScattered { socket: server, into });
        let answer = answer(driver, &queue);
        assert_eq!(count(&answer), 6, "{wrong:?}");
        let back = answer.scatter.expect("both buffers");
        let filled = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == 7).count();
        assert_eq!((filled(&back.payload), filled(&back.between)), (4, 2), "{wrong:?}");
    }
}

fn a_cancelled_scattered_receive_gives_both_buffers_back(driver: &Driver) {
    let (_listener, _client, server) = pair();
    let queue = driver.queue();
    let into = scatter(8, 8, &[(Place::Payload, 0..8), (Place::Between, 0..8)]);
    queue.submit(5, IoOperation::ReceiveScattered { socket: server, into });
    driver.wait(Some(Duration::from_millis(10))).expect("the loop");
    queue.cancel(5);
    let answer = answer(driver, &queue);
    assert!(answer.result.is_err_and(|error| is_cancelled(&error)));
    assert!(answer.scatter.is_some_and(|back| back.payload.len() == 8 && back.between.len() == 8));
}

fn a_dropped_queue_is_never_answered_and_its_sockets_close(driver: &Driver) {
    let (_listener, mut client, server) = pair();
    let queue = driver.queue();
    queue.submit(1, IoOperation::Receive { socket: server.clone(), into: BufMut::zeroed(100), at: 0 });
    queue.submit(2, IoOperation::Timeout { after: Duration::ZERO });
    drop(server);
    driver.wait(Some(Duration::from_millis(10))).expect("the loop");
    drop(queue);
    let deadline = Instant::now() + PATIENCE;
    while driver.in_flight() > 0 {
        assert!(Instant::now() < deadline);
        driver.wait(Some(Duration::from_millis(10))).expect("the loop");
    }
    assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
}

fn a_non_blocking_socket_works_as_well(driver: &Driver) {
    let (_listener, mut client, server) = pair();
    rustix::io::ioctl_fionbio(&server, true).expect("a flag");
    let queue = driver.queue();
    queue.submit(1, IoOperation::Receive { socket: server, into: BufMut::zeroed(8), at: 0 });
    driver.wait(Some(Duration::from_millis(10))).expect("the loop");
    client.write_all(b"late").expect("a send");
    assert_eq!(count(&answer(driver, &queue)), 4);
}

fn file() -> Descriptor {
    Arc::new(OwnedFd::from(tempfile::tempfile().expect("a file")))
}

fn bytes_written_are_read_back(driver: &Driver) {
    let file = file();
    let queue = driver.queue();
    let bytes = pattern(3 << 20);
    queue.submit(
        1,
        IoOperation::Write { file: file.clone(), offset: 4096, data: parts(&bytes), durable: true },
    );
    assert!(matches!(answer(driver, &queue).result, Ok(Outcome::Done)));
    let one = Buf::from(&b"front"[..]).into();
    queue.submit(2, IoOperation::Write { file: file.clone(), offset: 0, data: one, durable: false });
    assert!(matches!(answer(driver, &queue).result, Ok(Outcome::Done)));
    queue.submit(3, IoOperation::SyncData { file: file.clone() });
    assert!(matches!(answer(driver, &queue).result, Ok(Outcome::Done)));
    let into = BufMut::zeroed(4096 + bytes.len());
    queue.submit(4, IoOperation::Read { file, offset: 0, into });
    let completion = answer(driver, &queue);
    assert_eq!(count(&completion), 4096 + bytes.len());
    let read = completion.buffer.expect("the buffer");
    assert_eq!(&read[..5], b"front");
    assert!(read[4096..] == bytes[..]);
}

fn a_read_past_the_end_is_short(driver: &Driver) {
    let file = file();
    rustix::fs::ftruncate(&file, 100).expect("a size");
    let queue = driver.queue();
    queue.submit(1, IoOperation::Read { file, offset: 50, into: BufMut::zeroed(4096) });
    assert_eq!(count(&answer(driver, &queue)), 50);
}

fn a_punched_hole_reads_as_zeroes_and_gives_space_back(driver: &Driver) {
    let file = file();
    let queue = driver.queue();
    let bytes: Buf = Buf::from(&vec![1; 1 << 20][..]);
    queue.submit(1, IoOperation::Write { file: file.clone(), offset: 0, data: bytes.into(), durable: true });
    assert!(answer(driver, &queue).result.is_ok());
    let before = rustix::fs::fstat(file.as_fd()).expect("a stat").st_blocks;
    queue.submit(2, IoOperation::PunchHole { file: file.clone(), offset: 0, len_bytes: 1 << 19 });
    assert!(answer(driver, &queue).result.is_ok());
    let after = rustix::fs::fstat(file.as_fd()).expect("a stat").st_blocks;
    assert!(after < before, "{after} blocks of {before}");
    queue.submit(3, IoOperation::Read { file, offset: (1 << 19) - 4096, into: BufMut::zeroed(8192) });
    let read = answer(driver, &queue).buffer.expect("the buffer");
    assert!(read[..4096].iter().all(|&byte| byte == 0) && read[4096..].iter().all(|&byte| byte == 1));
}

fn a_write_to_a_read_only_file_fails(driver: &Driver) {
    let file = std::fs::File::open("/dev/null").expect("the null device");
    let queue = driver.queue();
    let data = Buf::from(&b"x"[..]).into();
    let file = Arc::new(OwnedFd::from(file));
    queue.submit(1, IoOperation::Write { file, offset: 0, data, durable: false });
    assert_eq!(answer(driver, &queue).result.expect_err("the refusal").raw_os_error(), Some(libc::EBADF));
}

fn more_operations_than_the_ring_has_entries_are_all_answered(driver: &Driver) {
    let file = file();
    rustix::fs::ftruncate(&file, 4096).expect("a size");
    let queue = driver.queue();
    for token in 0..10_000 {
        queue.submit(
            token,
            IoOperation::Read { file: file.clone(), offset: 0, into: BufMut::for_overwrite(16) },
        );
    }
    let mut tokens: Vec<u64> = answers(driver, &queue, 10_000).iter().map(|one| one.token).collect();
    tokens.sort_unstable();
    assert!(tokens.iter().copied().eq(0..10_000));
    assert_eq!(driver.in_flight(), 0);
}

fn timers_expire_in_order(driver: &Driver) {
    let queue = driver.queue();
    for (token, after_ms) in [(3, 30), (1, 5), (2, 15)] {
        queue.submit(token, IoOperation::Timeout { after: Duration::from_millis(after_ms) });
    }
    let started = Instant::now();
    let tokens: Vec<u64> = answers(driver, &queue, 3).iter().map(|one| one.token).collect();
    assert_eq!(tokens, [1, 2, 3]);
    assert!(started.elapsed() >= Duration::from_millis(25));
}

fn a_wake_from_another_thread_ends_the_sleep(driver: &Driver) {
    for _ in 0..3 {
        let waker = driver.waker();
        let (said, heard) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            said.send(1).expect("the loop listens");
            waker.wake();
            waker.wake();
        });
        let deadline = Instant::now() + PATIENCE;
        while heard.try_recv().is_err() {
            assert!(Instant::now() < deadline);
            driver.wait(Some(PATIENCE)).expect("the loop");
        }
        thread.join().expect("the caller");
    }
}

fn a_wait_without_work_ends_at_its_timeout(driver: &Driver) {
    let started = Instant::now();
    driver.wait(Some(Duration::from_millis(20))).expect("the loop");
    assert!(started.elapsed() >= Duration::from_millis(19));
}

fn a_driver_dropped_in_mid_operation_leaves_nothing_behind(driver: &Driver) {
    let choice = match driver.kind() {
        DriverKind::IoUring => DriverChoice::IoUring,
        DriverKind::Fallback => DriverChoice::Fallback,
    };
    let own = Driver::new(choice).expect("a second loop");
    let (_listener, mut client, server) = pair();
    let queue = own.queue();
    queue.submit(1, IoOperation::Receive { socket: server.clone(), into: BufMut::zeroed(100), at: 0 });
    own.wait(Some(Duration::from_millis(5))).expect("the loop");
    drop((server, queue, own));
    assert_eq!(client.read(&mut [0; 1]).expect("the end"), 0);
}

fn a_loop_that_polls_busily_hears_of_everything_as_well(driver: &Driver) {
    driver.busy_poll(Duration::from_millis(20));
    let (_listener, mut client, server) = pair();
    let queue = driver.queue();
    for round in 0..50_u8 {
        queue.submit(1, IoOperation::Receive { socket: server.clone(), into: BufMut::zeroed(8), at: 0 });
        queue.submit(2, IoOperation::Timeout { after: Duration::from_millis(u64::from(round % 3)) });
        let waker = driver.waker();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(u64::from(round % 4)));
            waker.wake();
            client.write_all(&[round]).expect("the stream");
            client
        });
        let tokens: Vec<u64> = answers(driver, &queue, 2).iter().map(|done| done.token).collect();
        assert!(tokens.contains(&1) && tokens.contains(&2));
        client = other.join().expect("the writer");
    }
    // A call from elsewhere ends a wait of any length, searching or asleep.
    for _ in 0..10 {
        let waker = driver.waker();
        let other = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            waker.wake();
        });
        let began = Instant::now();
        driver.wait(Some(PATIENCE)).expect("the loop");
        other.join().expect("the caller");
        assert!(began.elapsed() < PATIENCE / 2);
        // Leftovers of one call do not count for the next.
        driver.wait(Some(Duration::ZERO)).expect("the loop");
    }
    let began = Instant::now();
    driver.wait(Some(Duration::from_millis(5))).expect("the loop");
    assert!(began.elapsed() >= Duration::from_millis(4));
}
