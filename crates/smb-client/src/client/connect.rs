//! From a server's name to a channel: addresses, transport, the fallback from SMB Direct to TCP, logon.

use crate::channel::Channel;
use crate::connection::Connection;
use crate::link::{Link, RdmaLink, TcpLink};
use crate::{ClientError, Engine, Options, Transport};
use smb::auth::Credentials;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, SystemTime};
use sys::monotonic_now;
use types::FileTime;

/// With a choice of transports, SMB Direct has so long to be there.
const AUTO_RDMA_TIMEOUT: Duration = Duration::from_secs(2);

fn each_address<T>(
    server: &str,
    port: u16,
    mut connect: impl FnMut(SocketAddr) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut last = ClientError::Invalid("the server's name has no address");
    for address in (server, port).to_socket_addrs()? {
        match connect(address) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A link by the transport that the options choose; where SMB Direct was hoped for and is not there, also why.
pub(super) fn link(
    engine: &Engine,
    server: &str,
    port: u16,
    options: &Options,
) -> Result<(Link, Option<String>), ClientError> {
    let tcp = || {
        each_address(server, port, |to| TcpLink::connect(engine, to, options.timeout))
            .map(|link| Link::Tcp(Box::new(link)))
    };
    match options.transport {
        Transport::Tcp => Ok((tcp()?, None)),
        Transport::Rdma => Ok((rdma(engine, server, port, options.timeout, options)?, None)),
        Transport::Auto => {
            let timeout = options.timeout.min(AUTO_RDMA_TIMEOUT);
            match rdma(engine, server, options.rdma_port, timeout, options) {
                Ok(link) => Ok((link, None)),
                Err(error) => {
                    tracing::info!(server, port = options.rdma_port, %error, "no SMB Direct: using TCP");
                    Ok((tcp()?, Some(error.to_string())))
                }
            }
        }
    }
}

/// A link by SMB Direct that is negotiated.
fn rdma(
    engine: &Engine,
    server: &str,
    port: u16,
    timeout: Duration,
    options: &Options,
) -> Result<Link, ClientError> {
    each_address(server, port, |address| {
        let mut link = RdmaLink::connect(engine, address, timeout, options)?;
        let deadline = monotonic_now().after(timeout);
        loop {
            let now = monotonic_now();
            link.poll(now);
            if link.is_ready() {
                return Ok(Link::Rdma(Box::new(link)));
            }
            link.receive()?;
            if now >= deadline {
                return Err(ClientError::TimedOut);
            }
            let until = link.next_timeout().map_or(deadline, |at| at.min(deadline));
            engine.wait(until.since(now))?;
        }
    })
}

/// The protocol's start of a session of its own.
pub(super) fn session(server: &str, options: &Options, credentials: Credentials) -> Connection {
    let random = Box::new(|bytes: &mut [u8]| {
        getrandom::fill(bytes).expect("a system that gave random bytes once gives them again");
    });
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(FileTime::UNIX_EPOCH, |since| FileTime::from_unix_nanos(since.as_nanos() as i128));
    Connection::new(options.clone(), credentials, server, now, random)
}

/// Carries the logon.
pub(super) fn log_on(
    engine: &Engine,
    link: Link,
    connection: Connection,
    options: &Options,
) -> Result<Channel, ClientError> {
    let mut channel = Channel::new(connection, link, monotonic_now());
    let mut none = Vec::new();
    loop {
        let now = monotonic_now();
        let moved = channel.pump(now, options.timeout, &mut none)?;
        if channel.connection.is_ready() {
            return Ok(channel);
        }
        if !moved {
            engine.wait(channel.next_timeout(options.timeout).since(now))?;
        }
    }
}
