//! What carries messages: TCP, or SMB Direct over an RDMA provider.
//!
//! A link takes whole messages and gives whole messages. It fails once and for all; what had come before is still handed out.

mod rdma;
mod tcp;

use rdma::RdmaLink;
use tcp::TcpLink;

use crate::connection::Outgoing;
use crate::{ClientError, Engine, Options};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use sys::Buf;
use types::Monotonic;

/// Largest message in bytes that is accepted: the largest read, with its headers.
pub(crate) const MESSAGE_BYTES_MAX: usize = (8 << 20) + 4096;

/// What the kernel takes of answers before they are received: all that is usually asked for at once (32 reads of 64 KiB, four of 1 MiB).
const RECEIVE_WINDOW_BYTES: u32 = 4 << 20;

/// The way to a server.
pub(crate) enum Way {
    /// Messages by TCP, over a connection that is up.
    Tcp(TcpStream),
    /// SMB Direct by iWARP in software, over a connection that is up.
    Iwarp(TcpStream),
    /// SMB Direct by the device that leads to the address.
    Device(SocketAddr),
}

pub(crate) enum Link {
    Tcp(Box<TcpLink>),
    Rdma(Box<RdmaLink>),
}

impl Link {
    /// [`Self::is_ready`] says when messages may flow.
    pub fn new(engine: &Engine, way: Way, timeout: Duration, options: &Options) -> Result<Self, ClientError> {
        if let Way::Tcp(stream) | Way::Iwarp(stream) = &way {
            // Without it the connection is slower, at worst.
            let _ = sys::widen_receive_window(stream, RECEIVE_WINDOW_BYTES);
        }
        let link = match way {
            Way::Tcp(stream) => return Ok(Self::Tcp(Box::new(TcpLink::new(engine, stream)?))),
            Way::Iwarp(stream) => RdmaLink::by_software(engine, stream, timeout, options)?,
            Way::Device(address) => RdmaLink::by_device(engine, address, timeout, options)?,
        };
        Ok(Self::Rdma(Box::new(link)))
    }

    /// Whether messages may flow.
    pub fn is_ready(&self) -> bool {
        self.rdma_ref().is_none_or(RdmaLink::is_ready)
    }

    /// Queues a message; it leaves with the loop's next turn.
    pub fn send(&mut self, message: Outgoing) -> Result<(), ClientError> {
        match self {
            Self::Tcp(link) => {
                link.send(message);
                Ok(())
            }
            Self::Rdma(link) => link.send(message),
        }
    }

    /// Takes what the loop brought and hands it what is to be sent.
    pub fn poll(&mut self, now: Monotonic) {
        match self {
            Self::Tcp(link) => link.poll(),
            Self::Rdma(link) => link.poll(now),
        }
    }

    /// Breaks the connection under the messages, as a network does.
    pub fn kill(&mut self) {
        match self {
            Self::Tcp(link) => link.kill(),
            Self::Rdma(link) => link.kill(),
        }
    }

    /// The next whole message.
    ///
    /// # Errors
    /// Why the link failed, once all that came before is taken.
    pub fn receive(&mut self) -> Result<Option<Buf>, ClientError> {
        match self {
            Self::Tcp(link) => link.receive(),
            Self::Rdma(link) => link.receive(),
        }
    }

    /// When [`Self::poll`] wants to be called at the latest.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(link) => link.next_timeout(),
        }
    }

    pub fn rdma(&mut self) -> Option<&mut RdmaLink> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(link) => Some(link),
        }
    }

    pub fn rdma_ref(&self) -> Option<&RdmaLink> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(link) => Some(link),
        }
    }

    pub fn is_rdma(&self) -> bool {
        matches!(self, Self::Rdma(_))
    }
}
