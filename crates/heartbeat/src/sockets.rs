//! The sockets of the heartbeats: one for each peer, and one for everybody else.
//!
//! A socket that is connected to a peer's address gets the datagrams from there, and the kernel puts
//! them into a buffer of its own. So a flood from elsewhere fills the buffer of the strangers' socket
//! only, and is dropped there without waking anybody. Promises: peers are heard before strangers;
//! strangers cost a bounded number of datagrams a turn, and a bounded number of turns a second. A peer
//! that sends from an address which the records do not name is heard as strangers are: only its
//! signature tells the worth of a datagram.

use super::DATAGRAM_BYTES_MAX;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use types::Monotonic;

/// Datagrams of one peer that are read before others have their turn: a peer sends ten a second, and forty when it asks.
const PEER_DATAGRAMS_A_TURN: usize = 64;
/// Datagrams of strangers that are read in a turn while peers have sockets of their own, and the rest after a turn that used them up.
const STRANGERS_A_TURN: usize = 64;
const STRANGERS_REST: Duration = Duration::from_millis(5);
/// The same while no peer has: all of them may be peers.
const ANYBODY_A_TURN: usize = 256;
/// A peer's datagrams of many seconds, if the thread is late; the kernel gives less if `net.core.rmem_max` is.
const BUFFER_BYTES: usize = 1 << 20;

/// A socket for heartbeats, whose port further sockets of this process can be connected from.
///
/// # Errors
/// The address is in use, also by another process that would share it; or there is no socket.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    // Sockets of one user may share a port: a socket that does not share finds another one on it.
    let port = UdpSocket::bind(address)?.local_addr()?.port();
    shared(SocketAddr::new(address.ip(), port))
}

fn shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    // Less is no failure.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
    rustix::net::bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

/// See the module.
pub(super) struct Sockets {
    strangers: UdpSocket,
    peers: BTreeMap<SocketAddr, UdpSocket>,
    /// Strangers are not heard before: they used up a turn.
    rest_until: Option<Monotonic>,
}

impl Sockets {
    pub fn new(strangers: UdpSocket) -> io::Result<Self> {
        strangers.set_nonblocking(true)?;
        Ok(Self { strangers, peers: BTreeMap::new(), rest_until: None })
    }

    /// Gives each of these addresses a socket of its own; one that cannot have any is heard as strangers are.
    pub fn set_peers(&mut self, addresses: &BTreeSet<SocketAddr>) {
        self.peers.retain(|address, _| addresses.contains(address));
        for address in addresses {
            if self.peers.contains_key(address) {
                continue;
            }
            match self.connected(*address) {
                Ok(socket) => {
                    self.peers.insert(*address, socket);
                }
                Err(error) => {
                    tracing::debug!(%address, %error, "heartbeats of a peer have no socket of their own")
                }
            }
        }
    }

    fn connected(&self, peer: SocketAddr) -> io::Result<UdpSocket> {
        let socket = shared(self.strangers.local_addr()?)?;
        socket.connect(peer)?;
        Ok(socket)
    }

    /// Lost datagrams need no report: heartbeats expect them.
    pub fn send(&self, address: SocketAddr, datagram: &[u8]) {
        // The first error may be the answer to an earlier datagram, and this one has not left then.
        let is_sent = self.peers.get(&address).is_some_and(|own| {
            let mut sent = (0..2).map(|_| own.send(datagram));
            sent.any(|sent| sent.is_ok())
        });
        if !is_sent {
            let _ = self.strangers.send_to(datagram, address);
        }
    }

    /// Takes the datagrams that have come, those of peers first.
    pub fn hear(&mut self, now: Monotonic, mut take: impl FnMut(&[u8])) {
        for own in self.peers.values() {
            hear(own, PEER_DATAGRAMS_A_TURN, &mut take);
        }
        if self.rest_until.is_some_and(|until| now < until) {
            return;
        }
        let is_anybody = self.peers.is_empty();
        let datagrams_max = if is_anybody { ANYBODY_A_TURN } else { STRANGERS_A_TURN };
        let is_used_up = hear(&self.strangers, datagrams_max, &mut take) == datagrams_max;
        self.rest_until = (is_used_up && !is_anybody).then(|| now.after(STRANGERS_REST));
    }

    /// Sockets to wait for, and the end of the wait at the latest.
    pub fn waited(&self) -> (Vec<PollFd<'_>>, Option<Monotonic>) {
        let strangers = self.rest_until.is_none().then_some(&self.strangers);
        let all = self.peers.values().chain(strangers);
        (all.map(|socket| PollFd::new(socket, PollFlags::IN)).collect(), self.rest_until)
    }
}

/// Takes at most `datagrams_max`; returns how many there were.
fn hear(socket: &UdpSocket, datagrams_max: usize, take: &mut impl FnMut(&[u8])) -> usize {
    // One byte more than any datagram has, so that a longer one is seen to be none.
    let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
    for heard in 0..datagrams_max {
        match socket.recv(&mut bytes) {
            Ok(count) => take(&bytes[..count]),
            // The answer to a datagram for a port on which nobody listens: more may have come behind it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => return heard,
        }
    }
    datagrams_max
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Datagrams that are heard, until nothing comes.
    fn heard(sockets: &mut Sockets) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut now = Monotonic(0);
        loop {
            let before = all.len();
            sockets.hear(now, |datagram| all.push(datagram.to_vec()));
            if all.len() == before && sockets.rest_until.is_none() {
                return all;
            }
            now = now.after(STRANGERS_REST);
        }
    }

    #[test]
    fn a_flood_of_strangers_costs_no_heartbeat_of_a_peer() {
        let (own, peer, stranger) = ("127.0.26.4:0", "127.0.26.5:0", "127.0.26.6:0");
        let mut sockets = Sockets::new(bind(own.parse().unwrap()).unwrap()).unwrap();
        let address = sockets.strangers.local_addr().unwrap();
        let (peer, stranger) = (bind(peer.parse().unwrap()).unwrap(), UdpSocket::bind(stranger).unwrap());
        sockets.set_peers(&[peer.local_addr().unwrap()].into());
        // More than any buffer holds, and nobody reads meanwhile: loopback puts each into its socket's buffer before the call returns.
        for _ in 0..40_000 {
            stranger.send_to(&[0; 116], address).unwrap();
        }
        for number in 0..20 {
            peer.send_to(&[number; 100], address).unwrap();
        }
        let all = heard(&mut sockets);
        let of_peer: Vec<u8> = all.iter().take(20).map(|datagram| datagram[0]).collect();
        assert_eq!(of_peer, (0..20).collect::<Vec<u8>>(), "each of them, and before all others");
        assert!(all.len() > 20 && all.len() < 40_000, "strangers are heard as far as their buffer goes");
    }

    #[test]
    fn strangers_rest_after_a_turn_and_peers_do_not() {
        let mut sockets = Sockets::new(bind("127.0.26.4:0".parse().unwrap()).unwrap()).unwrap();
        let address = sockets.strangers.local_addr().unwrap();
        let peer = bind("127.0.26.5:0".parse().unwrap()).unwrap();
        let stranger = UdpSocket::bind("127.0.26.6:0").unwrap();
        sockets.set_peers(&[peer.local_addr().unwrap()].into());
        for _ in 0..100 {
            stranger.send_to(&[0; 116], address).unwrap();
        }
        let mut count = |now| {
            let mut count = 0;
            sockets.hear(now, |_| count += 1);
            (count, sockets.waited().0.len())
        };
        assert_eq!(count(Monotonic(0)), (STRANGERS_A_TURN, 1), "only the peer is waited for");
        peer.send_to(&[1; 100], address).unwrap();
        assert_eq!(count(Monotonic(1)), (1, 1));
        assert_eq!(count(Monotonic(0).after(STRANGERS_REST)), (100 - STRANGERS_A_TURN, 2));
    }

    #[test]
    fn a_port_that_is_taken_is_not_shared_with_another_who_binds_it() {
        let socket = bind("127.0.26.4:0".parse().unwrap()).unwrap();
        let taken = bind(socket.local_addr().unwrap()).expect_err("it is taken");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
