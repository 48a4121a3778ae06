//! Messages over one TCP socket: vectored sends, and receives that take many small messages at once and a large one in place.

use crate::ClientError;
use crate::connection::Outgoing;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smb::wire::TCP_PREFIX_BYTES;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use sys::BufMut;

/// Largest message in bytes that is accepted: the largest read, with its headers.
const MESSAGE_BYTES_MAX: usize = (8 << 20) + 4096;
/// Room for messages that come together.
const INPUT_BYTES: usize = 256 << 10;
/// A message with at least this much missing is received where it will stay.
const IN_PLACE_BYTES: usize = 16 << 10;
/// Slices in one send.
const SLICES_MAX: usize = 64;

/// A message of which part has come.
struct Partial {
    message: BufMut,
    filled: usize,
}

pub(crate) struct Stream {
    socket: TcpStream,
    outgoing: VecDeque<Outgoing>,
    /// Bytes of the first outgoing message that are sent.
    sent: usize,
    input: Vec<u8>,
    /// The bytes of `input` that have come and are not taken.
    from: usize,
    to: usize,
    partial: Option<Partial>,
    timeout: Duration,
}

impl Stream {
    pub(crate) fn connect(address: SocketAddr, timeout: Duration) -> Result<Self, ClientError> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.connect_timeout(&address.into(), timeout)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: socket.into(),
            outgoing: VecDeque::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES],
            from: 0,
            to: 0,
            partial: None,
            timeout,
        })
    }

    pub(crate) fn send(&mut self, message: Outgoing) {
        self.outgoing.push_back(message);
    }

    /// Whether everything is handed to the kernel.
    pub(crate) fn is_sent(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Sends what the socket takes, without waiting. Whether anything went.
    pub(crate) fn flush(&mut self) -> Result<bool, ClientError> {
        let mut any = false;
        while !self.outgoing.is_empty() {
            let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(SLICES_MAX);
            let mut skip = self.sent;
            'collect: for message in &self.outgoing {
                for part in
                    [&message.head[..]].into_iter().chain(message.payload.parts().iter().map(|p| &p[..]))
                {
                    if slices.len() == SLICES_MAX {
                        break 'collect;
                    }
                    if skip >= part.len() {
                        skip -= part.len();
                        continue;
                    }
                    slices.push(IoSlice::new(&part[skip..]));
                    skip = 0;
                }
            }
            match self.socket.write_vectored(&slices) {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(count) => {
                    any = true;
                    self.sent += count;
                    while let Some(first) = self.outgoing.front()
                        && self.sent >= first.len()
                    {
                        self.sent -= first.len();
                        self.outgoing.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(any)
    }

    /// The next whole message, without waiting.
    pub(crate) fn receive(&mut self) -> Result<Option<BufMut>, ClientError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let read = match &mut self.partial {
                Some(partial) => {
                    self.socket.read(partial.message.get_mut(partial.filled..).unwrap_or_default())
                }
                None => {
                    self.input.copy_within(self.from..self.to, 0);
                    self.to -= self.from;
                    self.from = 0;
                    self.socket.read(self.input.get_mut(self.to..).unwrap_or_default())
                }
            };
            match read {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(count) => match &mut self.partial {
                    Some(partial) => partial.filled += count,
                    None => self.to += count,
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A message that has come whole.
    fn take(&mut self) -> Result<Option<BufMut>, ClientError> {
        if let Some(partial) = self.partial.take_if(|partial| partial.filled == partial.message.len()) {
            return Ok(Some(partial.message));
        }
        if self.partial.is_some() {
            return Ok(None);
        }
        let waiting = self.input.get(self.from..self.to).unwrap_or_default();
        let Some((prefix, rest)) = waiting.split_first_chunk::<TCP_PREFIX_BYTES>() else { return Ok(None) };
        let len = u32::from_be_bytes(*prefix) as usize;
        if len == 0 || len > MESSAGE_BYTES_MAX {
            return Err(ClientError::Protocol("a message of impossible length"));
        }
        let here = rest.len().min(len);
        if here < len && len - here < IN_PLACE_BYTES && TCP_PREFIX_BYTES + len <= self.input.len() {
            return Ok(None);
        }
        let mut message = BufMut::for_overwrite(len);
        let (front, _) = message.split_at_mut(here);
        front.copy_from_slice(rest.get(..here).unwrap_or_default());
        self.from += TCP_PREFIX_BYTES + here;
        if here == len {
            return Ok(Some(message));
        }
        self.partial = Some(Partial { message, filled: here });
        Ok(None)
    }

    /// Waits until the socket can be read, or written where there is something to send.
    pub(crate) fn wait(&self) -> Result<(), ClientError> {
        let mut flags = PollFlags::IN;
        if !self.is_sent() {
            flags |= PollFlags::OUT;
        }
        let timeout = Timespec::try_from(self.timeout).map_err(|_| ClientError::Invalid("time-out"))?;
        let mut descriptors = [PollFd::new(&self.socket, flags)];
        loop {
            match poll(&mut descriptors, Some(&timeout)) {
                Ok(0) => return Err(ClientError::TimedOut),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}
