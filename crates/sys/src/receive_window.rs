//! How much of a TCP connection the kernel takes before it is received.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// Lets the kernel take some `bytes` of a connection that nobody has received yet, as far as it allows that to anybody. Left to itself it finds out by
/// how much is received in a round trip; if that is microseconds it may stay at less than what was asked for, and the sender waits again and again.
///
/// The limit keeps growing by itself: it is not SO_RCVBUF, which would end that. Linux raises it when
/// SO_RCVLOWAT asks for more than it holds (`tcp_set_rcvlowat`), and leaves it there when that is taken
/// back.
///
/// # Errors
/// When the socket takes no such option.
pub fn widen_receive_window(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for value in [bytes, 1] {
        // SAFETY: the value is read, and its length is right.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const value).cast(),
                mem::size_of_val(&value) as libc::socklen_t,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::sockopt::socket_recv_buffer_size;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn more_may_wait_to_be_received_and_a_single_byte_still_wakes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listens");
        let (server, _) = listener.accept().expect("it came");
        // The third number is the largest window that the system allows any connection.
        let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").expect("Linux");
        let allowed = allowed.split_whitespace().last().and_then(|most| most.parse().ok()).unwrap_or(0usize);
        let before = socket_recv_buffer_size(&server).expect("a socket");
        widen_receive_window(&server, 2 << 20).expect("TCP");
        let after = socket_recv_buffer_size(&server).expect("a socket");
        assert!(after >= before && after >= (2usize << 20).min(allowed / 2), "{before} {after} {allowed}");
        client.write_all(b"x").expect("connected");
        let mut wanted = [PollFd::new(&server, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut wanted, Some(&timeout)).expect("polls"), 1);
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("there is one");
        assert!(widen_receive_window(&file, 1 << 20).is_err());
    }
}
