//! From a server's name to a channel: addresses, transport, logon.

use crate::channel::Channel;
use crate::connection::{Binding, Connection, Random, Token};
use crate::operation::{Reply, Request};
use crate::{ClientError, Engine, Options, RdmaDevice, Transport};
use smb::auth::Credentials;
use smb_transport::client::{Link, Way};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, SystemTime};
use sys::monotonic_now;
use types::FileTime;

/// Time for SMB Direct to answer if there is a choice of transports.
pub(super) const AUTO_RDMA_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for an address that the server listed to answer.
const FOUND_TIMEOUT: Duration = Duration::from_secs(3);

/// The place that a channel leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub is_rdma: bool,
    pub port: u16,
    /// One of the addresses that the server offered; `None`: any that the server's name leads to.
    pub address: Option<IpAddr>,
}

impl Target {
    /// Whether a device carries it.
    pub fn is_by_device(&self, options: &Options) -> bool {
        self.is_rdma && options.rdma_device != RdmaDevice::Software
    }

    /// Connects to the target, or returns its address if a device is to connect. An address that the server offered may be out of this
    /// client's reach, so it gets less time. Blocks.
    pub fn dial(&self, server: &str, timeout: Duration, by_device: bool) -> Result<Way, ClientError> {
        let address = self.address.map(|address| SocketAddr::new(address, self.port));
        if by_device {
            let named = || (server, self.port).to_socket_addrs()?.next().ok_or(NO_ADDRESS);
            return Ok(Way::Device(address.map_or_else(named, Ok)?));
        }
        let stream = match address {
            None => dial(server, self.port, timeout)?,
            Some(address) => TcpStream::connect_timeout(&address, timeout.min(FOUND_TIMEOUT))?,
        };
        Ok(if self.is_rdma { Way::Iwarp(stream) } else { Way::Tcp(stream) })
    }
}

const NO_ADDRESS: ClientError = ClientError::Invalid("the server's name has no address");

/// A TCP connection to the first of the server's addresses that answers. Blocks.
pub(super) fn dial(server: &str, port: u16, timeout: Duration) -> Result<TcpStream, ClientError> {
    let mut last = NO_ADDRESS;
    for address in (server, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// The first place to connect to: the one that the caller named, by TCP unless SMB Direct alone is
/// wanted.
pub(super) fn first_target(port: u16, options: &Options) -> Target {
    Target { is_rdma: options.transport == Transport::Rdma, port, address: None }
}

/// A link over which messages may flow.
pub(super) fn link(
    engine: &Engine,
    server: &str,
    target: Target,
    timeout: Duration,
    options: &Options,
) -> Result<Link, ClientError> {
    let deadline = monotonic_now().after(timeout);
    let way = target.dial(server, timeout, target.is_by_device(options))?;
    let mut link = Link::new(engine.driver(), way, &options.of_link(timeout))?;
    loop {
        let now = monotonic_now();
        link.poll(now);
        if link.is_ready() {
            return Ok(link);
        }
        link.receive()?;
        if now >= deadline {
            return Err(ClientError::TimedOut);
        }
        let until = link.next_timeout().map_or(deadline, |at| at.min(deadline));
        engine.wait(until.since(now))?;
    }
}

fn random() -> Random {
    Box::new(|bytes: &mut [u8]| {
        getrandom::fill(bytes).expect("a system that gave random bytes once gives them again");
    })
}

fn wall_clock() -> FileTime {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(FileTime::UNIX_EPOCH, |since| FileTime::from_unix_nanos(since.as_nanos() as i128))
}

/// The protocol's start of a session of its own.
pub(super) fn session(server: &str, is_rdma: bool, options: Options, credentials: Credentials) -> Connection {
    let options = Options { rdma_transform: options.rdma_transform && is_rdma, ..options };
    Connection::new(options, credentials, server, wall_clock(), random())
}

/// The protocol's start of a further channel.
pub(super) fn further(
    server: &str,
    is_rdma: bool,
    options: Options,
    credentials: Credentials,
    binding: Binding,
) -> Connection {
    let options = Options { rdma_transform: options.rdma_transform && is_rdma, ..options };
    Connection::bind(options, credentials, server, wall_clock(), random(), binding)
}

/// Carries the logon.
pub(super) fn log_on(
    engine: &Engine,
    link: Link,
    target: usize,
    connection: Connection,
    options: &Options,
) -> Result<Channel, ClientError> {
    let mut channel = Channel::new(connection, link, target, monotonic_now());
    let mut none = Vec::new();
    while !channel.connection.is_ready() {
        step(engine, &mut channel, options, &mut none)?;
    }
    Ok(channel)
}

fn step(
    engine: &Engine,
    channel: &mut Channel,
    options: &Options,
    out: &mut Vec<(Token, Reply)>,
) -> Result<(), ClientError> {
    let now = monotonic_now();
    let moved = channel.pump(now, options.timeout, out)?;
    if !moved {
        engine.wait(channel.next_timeout(options.timeout).since(now))?;
    }
    Ok(())
}

/// One request and its answer on a channel that nobody else uses yet.
pub(super) fn call(
    engine: &Engine,
    channel: &mut Channel,
    request: Request,
    token: Token,
    options: &Options,
) -> Result<Reply, ClientError> {
    channel.submit(token, request, options, monotonic_now());
    let mut answers = Vec::new();
    loop {
        step(engine, channel, options, &mut answers)?;
        if let Some((_, reply)) = answers.pop() {
            return Ok(reply);
        }
    }
}
