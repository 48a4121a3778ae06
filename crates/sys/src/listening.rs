//! Listening on an address: with an error that says what to do, for both versions of IP, for many clients at a time.

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{what} {address} cannot be listened on: {source}; {hint}")]
pub struct ListenError {
    pub what: &'static str,
    pub address: SocketAddr,
    pub source: io::Error,
    pub hint: &'static str,
}

/// A process that was killed keeps its port for a moment: the kernel tears its io_uring down after its end.
const PORT_RELEASE: Duration = Duration::from_secs(2);

/// Connections that the kernel holds until they are accepted, as far as it lets us (net.core.somaxconn). With the 128 of the standard library
/// a client that comes amid many others tries anew after a second.
const BACKLOG: i32 = 4096;

/// Binds one address; waits a little for one that is taken. `[::]` is all addresses of both versions of IP; on a machine without IPv6, those of IPv4.
///
/// # Errors
/// [`ListenError`].
pub fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, ListenError> {
    let until = Instant::now() + PORT_RELEASE;
    let bound = loop {
        match bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            bound => break bound,
        }
    };
    let bound = bound.and_then(|listener| {
        // The socket listens already: this changes how many connections may wait.
        net::listen(&listener, BACKLOG)?;
        Ok(listener)
    });
    bound.map_err(|source| {
        let hint = match source.kind() {
            io::ErrorKind::AddrInUse => {
                "another program listens there (ss -ltnp shows which): stop it, or take another port"
            }
            io::ErrorKind::PermissionDenied => {
                "ports under 1024 need root or CAP_NET_BIND_SERVICE: take another port"
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine does not have that address (ip address shows them)"
            }
            _ => "take another address or port",
        };
        ListenError { what, address, source, hint }
    })
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != Ipv6Addr::UNSPECIFIED {
        return TcpListener::bind(address);
    }
    let socket = match net::socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None)
    {
        Err(Errno::AFNOSUPPORT) => return TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())),
        socket => socket?,
    };
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // The system's default (net.ipv6.bindv6only) does not matter here.
    sockopt::set_ipv6_v6only(&socket, false)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn all_addresses_are_those_of_both_versions_of_ip() {
        let listener = listen("test", SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        // A machine without IPv6 has no such address.
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        }
        let other = listen("test", SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let port = other.local_addr().unwrap().port();
        assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_err(), "nothing more than was asked for");
    }
}
