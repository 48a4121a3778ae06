//! The seam between connections and the owner of their messages.

use smallvec::SmallVec;
use smbdirect::BufferDescriptor;
use std::hash::Hash;
use std::net::SocketAddr;
use sys::{Buf, Payload};
use types::Monotonic;

/// The carrier of a connection's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// TCP, with a length before each message (MS-SMB2 2.1).
    Tcp,
    /// SMB Direct (MS-SMBD).
    SmbDirect,
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// Address of the client.
    pub peer: SocketAddr,
    /// Address at which the client connected.
    pub local: SocketAddr,
    /// Transport of the connection.
    pub carrier: Carrier,
}

/// Parts of a client's memory. A client names one, as a rule.
pub type Descriptors = SmallVec<[BufferDescriptor; 4]>;

/// The next work for an SMB Direct connection, in order.
#[derive(Debug)]
pub enum Outgoing {
    /// `invalidate`: the client's registration that ends with the message.
    Message { payload: Payload, invalidate: Option<u32> },
    /// Payload that goes into the client's memory before the next message.
    RemoteWrite { payload: Payload, descriptors: Descriptors },
    /// A read of the client's memory. [`Service::take_remote_read`] gets the answer, with `token`.
    RemoteRead { token: u64, len_bytes: usize, descriptors: Descriptors },
}

/// The owner of the messages: an SMB server, or a test.
///
/// It names each connection at its begin, and the connection ends with [`Self::connection_closed`].
/// Until then it gets messages only while [`Self::wants_messages`] is true. It is polled for outgoing
/// messages only for connections from [`Self::take_transmitters`], and for full connections that have
/// space again.
pub trait Service {
    /// The service's name for a connection.
    type Connection: Copy + Eq + Hash;

    /// Begins a connection; `None` refuses it.
    fn connection_opened(&mut self, origin: Origin, now: Monotonic) -> Option<Self::Connection>;

    /// Ends a connection, whichever end closed it.
    fn connection_closed(&mut self, connection: Self::Connection, now: Monotonic);

    /// Says whether more may be received from the connection: false while it has too much in work or unsent.
    fn wants_messages(&self, connection: Self::Connection) -> bool;

    /// Takes a whole message, without its length.
    fn handle_message(&mut self, connection: Self::Connection, message: Buf, now: Monotonic);

    /// Takes the answer to [`Outgoing::RemoteRead`]; `None`: the memory could not be read.
    fn take_remote_read(
        &mut self,
        connection: Self::Connection,
        token: u64,
        data: Option<Buf>,
        now: Monotonic,
    );

    /// Names the connections that may have something to send since the last call.
    fn take_transmitters(&mut self, out: &mut Vec<Self::Connection>);

    /// Names the connections to close once their messages are sent.
    fn take_closing(&mut self, out: &mut Vec<Self::Connection>);

    /// Gives the next message for a connection by TCP.
    fn poll_message(&mut self, connection: Self::Connection) -> Option<Payload>;

    /// Gives the next work for a connection by SMB Direct.
    fn poll_outgoing(&mut self, connection: Self::Connection) -> Option<Outgoing>;

    /// Takes the number of unsent bytes of a connection. Returns whether there were some before.
    fn set_unsent(&mut self, connection: Self::Connection, bytes: usize) -> bool;

    /// Gives the length in bytes of the longest message that the connection may send now.
    fn message_bytes_max(&self, connection: Self::Connection) -> usize;

    /// Returns the user logged on to the connection.
    fn user(&self, connection: Self::Connection) -> Option<&str>;
}
