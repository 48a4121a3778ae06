use super::{LENT_AFTER_SENDS, Lender, SendPath, keep_alive};
use crate::driver::{Descriptor, Driver, DriverChoice, IoOperation};
use crate::{Buf, BufMut, Payload};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

const BLOCK_BYTES: usize = 512 << 10;

fn pair() -> (Descriptor, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(OwnedFd::from(listener.accept().unwrap().0)), client)
}

/// Bytes that say where they belong: each eight are their own number, mixed with the block's version.
fn block(version: u64, len: usize) -> Buf {
    let mut block = BufMut::for_overwrite(len);
    for (nth, word) in block.chunks_mut(8).enumerate() {
        let value = (version << 32 | nth as u64).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
    block.freeze()
}

fn receive(client: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

/// Sends all of it to a client that reads meanwhile; what it got.
fn send_all(lender: &mut Lender, socket: &Descriptor, client: &TcpStream, payload: &Payload) -> Vec<u8> {
    let (mut client, len) = (client.try_clone().unwrap(), payload.len());
    let reader = std::thread::spawn(move || receive(&mut client, len));
    let mut sent = 0;
    while sent < len {
        sent += lender.send_now(socket, &payload.slice(sent, len - sent)).unwrap();
        std::thread::yield_now();
    }
    reader.join().unwrap()
}

#[test]
fn bytes_in_a_receivers_queue_stay_as_they_were_when_their_memory_is_needed_again() {
    let (socket, mut client) = pair();
    let mut lender = Lender::new(SendPath::Reference);
    let payload = Payload::from(block(1, BLOCK_BYTES));
    let sent = lender.send_now(&socket, &payload).unwrap();
    assert!(sent > 64 << 10 && lender.lent_bytes() == sent as u64, "{sent} bytes left");
    drop(payload);
    // All free memory of the size, and more than there was, is written.
    let others: Vec<Buf> = (2..40).map(|version| block(version, BLOCK_BYTES)).collect();
    assert_eq!(receive(&mut client, sent), block(1, BLOCK_BYTES)[..sent]);
    drop(others);
}

#[test]
fn memory_that_was_lent_comes_back_as_zeroes() {
    let (socket, _client) = pair();
    for _ in 0..4 {
        let buffer = block(7, BLOCK_BYTES);
        Lender::new(SendPath::Reference).send_now(&socket, &Payload::from(buffer)).unwrap();
        let zeroed = BufMut::zeroed(BLOCK_BYTES);
        assert!(zeroed.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_buffer_that_was_lent_is_not_written_again() {
    let (socket, _client) = pair();
    let payload = Payload::from(block(1, BLOCK_BYTES));
    Lender::new(SendPath::Reference).send_now(&socket, &payload).unwrap();
    let only = payload.into_contiguous();
    assert!(only.try_into_mut().is_err(), "its pages may lie in a receiver's queue");
}

#[test]
fn bytes_are_copied_until_they_were_sent_often() {
    let (socket, client) = pair();
    let mut lender = Lender::new(SendPath::Automatic);
    let payload = Payload::from(block(1, 256 << 10));
    for nth in 1..10 {
        assert_eq!(send_all(&mut lender, &socket, &client, &payload)[..], payload.parts()[0][..]);
        assert_eq!(lender.lent_bytes() > 0, nth > LENT_AFTER_SENDS, "at {nth}");
    }
}

#[test]
fn small_and_large_pieces_arrive_in_their_order() {
    let (socket, client) = pair();
    let mut lender = Lender::new(SendPath::Reference);
    let mut payload = Payload::new();
    let large = block(3, 200_000);
    let pieces = [large.slice(1..70_001), block(5, 66_000), large.slice(130_000..)];
    let parts = [block(1, 84), large.slice(100..150_100), block(2, 5000), block(4, 84)];
    for part in parts.into_iter().chain(pieces).chain([block(6, 84), block(7, 80_000)]) {
        payload.push(part);
    }
    assert_eq!(send_all(&mut lender, &socket, &client, &payload)[..], payload.contiguous()[..]);
    // The last is too little by itself; what is left of a run that the socket took in part may be too little as well.
    let lent = lender.lent_bytes();
    assert!(lent > 64 << 10 && lent <= 150_000 + 70_000 + 66_000 + 70_000, "{lent} bytes were lent");
}

fn a_full_socket_takes_the_rest_when_it_is_writable(choice: DriverChoice) {
    let Ok(driver) = Driver::new(choice) else { return };
    let queue = driver.queue();
    let (socket, mut client) = pair();
    let payload = Payload::from(block(9, 8 << 20));
    let expected = payload.contiguous();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        receive(&mut client, 8 << 20)
    });
    let mut lender = Lender::new(SendPath::Reference);
    let (mut sent, mut waits, mut answers) = (0, 0, Vec::new());
    while sent < payload.len() {
        let rest = payload.slice(sent, payload.len() - sent);
        sent += lender.send_now(&socket, &rest).unwrap();
        queue.submit(1, IoOperation::Writable { socket: socket.clone() });
        while answers.is_empty() {
            driver.wait(None).unwrap();
            queue.poll(&mut answers);
        }
        assert!(answers.drain(..).all(|answer| answer.result.is_ok()));
        waits += 1;
    }
    assert!(waits > 1, "8 MiB went into a socket at once");
    assert_eq!(reader.join().unwrap()[..], expected[..]);
}

#[test]
fn a_full_socket_takes_the_rest_by_io_uring() {
    a_full_socket_takes_the_rest_when_it_is_writable(DriverChoice::IoUring);
}

#[test]
fn a_full_socket_takes_the_rest_by_epoll() {
    a_full_socket_takes_the_rest_when_it_is_writable(DriverChoice::Fallback);
}

#[test]
fn an_end_of_the_connection_ends_the_wait_for_room() {
    for choice in [DriverChoice::IoUring, DriverChoice::Fallback] {
        let Ok(driver) = Driver::new(choice) else { continue };
        let queue = driver.queue();
        let (socket, client) = pair();
        let payload = Payload::from(block(9, 8 << 20));
        let mut lender = Lender::new(SendPath::Reference);
        assert!(lender.send_now(&socket, &payload).unwrap() < payload.len());
        queue.submit(1, IoOperation::Writable { socket: socket.clone() });
        driver.wait(Some(Duration::ZERO)).unwrap();
        crate::driver::shutdown(&socket).unwrap();
        let mut answers = Vec::new();
        while answers.is_empty() {
            driver.wait(Some(Duration::from_secs(5))).unwrap();
            queue.poll(&mut answers);
        }
        assert!(lender.send_now(&socket, &payload).is_err(), "the socket's error shows");
        drop(client);
    }
}

#[test]
fn a_connection_whose_other_end_vanished_is_asked_after() {
    use rustix::net::sockopt;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    keep_alive(&socket).unwrap();
    assert!(sockopt::socket_keepalive(&socket).unwrap());
    let of_probes = sockopt::tcp_keepintvl(&socket).unwrap() * sockopt::tcp_keepcnt(&socket).unwrap();
    assert_eq!((sockopt::tcp_keepidle(&socket).unwrap().as_secs(), of_probes.as_secs()), (60, 60));
}
