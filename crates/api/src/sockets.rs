//! Sockets that listen, for tasks.

use std::io;
use std::net::TcpListener;

/// Why a socket cannot be waited for.
#[derive(Debug, thiserror::Error)]
#[error("a socket that listens cannot be used: {0}")]
pub struct SocketError(io::Error);

/// The socket for tasks.
///
/// # Errors
/// [`SocketError`].
pub fn asynchronous(listener: TcpListener) -> Result<tokio::net::TcpListener, SocketError> {
    let converted = listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
    converted.map_err(SocketError)
}
