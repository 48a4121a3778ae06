//! Connecting a socket, which blocks: on a thread of its own, that wakes the loop when it is done.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;
use sys::driver::Driver;

/// An attempt to connect.
pub(super) struct Dial(Receiver<io::Result<TcpStream>>);

impl Dial {
    /// Begins.
    ///
    /// # Errors
    /// There is no thread.
    pub fn begin(driver: &Driver, address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let (done, result) = channel();
        let waker = driver.waker();
        std::thread::Builder::new().name("cenote-dial".to_owned()).spawn(move || {
            // The caller may have given up.
            let _ = done.send(TcpStream::connect_timeout(&address, timeout));
            waker.wake();
        })?;
        Ok(Self(result))
    }

    /// The connection, once there is one or it has failed.
    pub fn result(&self) -> Option<io::Result<TcpStream>> {
        match self.0.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}
