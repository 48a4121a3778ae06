//! The connecting side: one connection to a server, by TCP or by SMB Direct.
//!
//! A link takes and returns whole messages. It fails once and for all, and still returns the messages
//! received before. It keeps the server's unread answers; its owner bounds these, since a server
//! answers only requests. So the client needs no rule of its own for memory.

mod rdma;
mod tcp;

pub use rdma::{Agreed, RdmaLink};
pub use tcp::TcpLink;

use crate::framing::FramingError;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use sys::driver::Driver;
use sys::{Buf, Payload};
use types::Monotonic;

/// Largest message in bytes that is accepted: the largest read, with its headers.
pub const MESSAGE_BYTES_MAX: usize = (8 << 20) + 4096;

/// Bytes of answers that the kernel buffers: the usual requests under way (32 reads of 64 KiB, four of
/// 1 MiB).
const RECEIVE_WINDOW_BYTES: u32 = 4 << 20;

/// Why a link does not carry messages any more.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Socket that failed, or that the server closed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// SMB Direct, or the RDMA below it.
    #[error("{0}")]
    Rdma(String),
    /// Bytes that are no message, or a message that is too long.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// A message without a byte.
    #[error("the peer sends a message without a byte")]
    EmptyMessage,
}

/// Settings of a link.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Timeout of the negotiation of SMB Direct.
    pub timeout: Duration,
    /// iWARP in software: FPDUs carry a CRC. If false, only if the server wants it.
    pub crc: bool,
    /// RDMA device by which to reach the server; `None`: any.
    pub device: Option<String>,
}

/// Bytes to send, in this order, the header of TCP included ([`crate::framing::HEADER_BYTES`]).
#[derive(Debug)]
pub struct Outgoing {
    /// Header of TCP and the front of the message, if it is not in `payload`.
    pub head: Vec<u8>,
    /// Rest of the bytes, by reference.
    pub payload: Payload,
}

impl Outgoing {
    /// Counts its bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// Whether there are no bytes to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The way to a server.
pub enum Way {
    /// Messages by TCP, over a connection that is up.
    Tcp(TcpStream),
    /// SMB Direct by iWARP in software, over a connection that is up.
    Iwarp(TcpStream),
    /// SMB Direct by the device that leads to the address.
    Device(SocketAddr),
}

/// A connection to a server.
pub enum Link {
    /// Messages by TCP.
    Tcp(Box<TcpLink>),
    /// Messages by SMB Direct, over iWARP in software or a device.
    Rdma(Box<RdmaLink>),
}

impl Link {
    /// Begins a connection; [`Self::is_ready`] says when it can carry messages.
    ///
    /// # Errors
    /// If the loop or the device refuses it.
    pub fn new(driver: &Driver, way: Way, options: &LinkOptions) -> Result<Self, LinkError> {
        if let Way::Tcp(stream) | Way::Iwarp(stream) = &way {
            // Without it the connection is slower, at worst.
            let _ = sys::widen_receive_window(stream, RECEIVE_WINDOW_BYTES);
        }
        let link = match way {
            Way::Tcp(stream) => return Ok(Self::Tcp(Box::new(TcpLink::new(driver, stream)?))),
            Way::Iwarp(stream) => RdmaLink::by_software(driver, stream, options)?,
            Way::Device(address) => RdmaLink::by_device(driver, address, options)?,
        };
        Ok(Self::Rdma(Box::new(link)))
    }

    /// Says whether messages may flow.
    pub fn is_ready(&self) -> bool {
        self.rdma_ref().is_none_or(RdmaLink::is_ready)
    }

    /// Queues a message; it leaves with the loop's next turn.
    ///
    /// # Errors
    /// If it is longer than the server takes by SMB Direct.
    pub fn send(&mut self, message: Outgoing) -> Result<(), LinkError> {
        match self {
            Self::Tcp(link) => {
                link.send(message);
                Ok(())
            }
            Self::Rdma(link) => link.send(message),
        }
    }

    /// Takes completions of the loop and hands it the messages to be sent.
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

    /// Takes the next whole message.
    ///
    /// # Errors
    /// Why the link failed, once all messages received before are taken.
    pub fn receive(&mut self) -> Result<Option<Buf>, LinkError> {
        match self {
            Self::Tcp(link) => link.receive(),
            Self::Rdma(link) => link.receive(),
        }
    }

    /// Says when [`Self::poll`] wants to be called at the latest.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(link) => link.next_timeout(),
        }
    }

    /// Returns the connection by SMB Direct; `None` by TCP.
    pub fn rdma(&mut self) -> Option<&mut RdmaLink> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(link) => Some(link),
        }
    }

    /// Returns the connection by SMB Direct; `None` by TCP.
    pub fn rdma_ref(&self) -> Option<&RdmaLink> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(link) => Some(link),
        }
    }

    /// Whether messages go by SMB Direct.
    pub fn is_rdma(&self) -> bool {
        matches!(self, Self::Rdma(_))
    }
}
