//! Messages over one TCP socket of the loop: all queued messages leave in one send, and a receive takes many small messages at once or
//! the rest of a large one in place.
//!
//! It places received bytes otherwise than a server ([`crate::framing::Framing`]): this end has
//! requested the answers, which may have any size, so one large buffer takes everything with one
//! receive. A server has thousands of such streams and may not give each a large buffer.

use super::{LinkError, MESSAGE_BYTES_MAX, Outgoing};
use crate::framing::{HEADER_BYTES, Header};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use sys::driver::{self, Completion, Descriptor, Driver, IoOperation, Outcome, Queue};
use sys::{Buf, BufMut, Payload};

/// Space for messages that come together.
const INPUT_BYTES: usize = 256 << 10;
/// A message with at least this much missing is received where it will stay.
const IN_PLACE_BYTES: usize = 16 << 10;

const RECEIVE: u64 = 0;
const SEND: u64 = 1;

/// A message of which part has come.
struct Partial {
    /// `None` while the kernel fills it.
    message: Option<BufMut>,
    len: usize,
    filled: usize,
}

/// Messages over one TCP connection.
pub struct TcpLink {
    socket: Descriptor,
    queue: Queue,
    completions: Vec<Completion>,
    outgoing: Payload,
    is_sending: bool,
    is_receiving: bool,
    /// `None` while the kernel fills it.
    input: Option<BufMut>,
    /// The bytes of `input` that have come and are not taken.
    from: usize,
    to: usize,
    partial: Option<Partial>,
    messages: VecDeque<BufMut>,
    failure: Option<LinkError>,
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        // Operations in flight hold the socket too, but the server is to see the end immediately.
        let _ = driver::shutdown(&self.socket);
    }
}

impl TcpLink {
    /// Takes over an established connection.
    ///
    /// # Errors
    /// If the socket is lost.
    pub fn new(driver: &Driver, socket: TcpStream) -> Result<Self, LinkError> {
        socket.set_nodelay(true)?;
        Ok(Self {
            socket: Arc::new(OwnedFd::from(socket)),
            queue: driver.queue(),
            completions: Vec::new(),
            outgoing: Payload::new(),
            is_sending: false,
            is_receiving: false,
            input: Some(BufMut::for_overwrite(INPUT_BYTES)),
            from: 0,
            to: 0,
            partial: None,
            messages: VecDeque::new(),
            failure: None,
        })
    }

    /// Breaks the connection, as a network does.
    pub fn kill(&mut self) {
        let _ = driver::shutdown(&self.socket);
    }

    /// Queues a message; [`Self::poll`] sends it.
    pub fn send(&mut self, message: Outgoing) {
        self.outgoing.push(Buf::from(&message.head[..]));
        self.outgoing.append(message.payload);
    }

    /// Takes completions of the loop and hands it the queued messages.
    pub fn poll(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.queue.poll(&mut completions);
        for completion in completions.drain(..) {
            if completion.token == SEND {
                self.is_sending = false;
                if let Err(error) = completion.result {
                    self.fail(error.into());
                }
            } else {
                self.received(completion);
            }
        }
        self.completions = completions;
        if self.failure.is_some() {
            return;
        }
        if !self.is_sending && !self.outgoing.is_empty() {
            let data = std::mem::take(&mut self.outgoing);
            // Immediately as much as the socket takes; an error recurs when the loop sends, and is handled
            // then.
            let taken = driver::send_now(&self.socket, &data).unwrap_or(0);
            if taken < data.len() {
                self.is_sending = true;
                let data = if taken > 0 { data.slice(taken, data.len() - taken) } else { data };
                self.queue.submit(SEND, IoOperation::Send { socket: self.socket.clone(), data });
            }
        }
        self.arm();
    }

    fn fail(&mut self, error: LinkError) {
        self.failure.get_or_insert(error);
    }

    fn received(&mut self, completion: Completion) {
        self.is_receiving = false;
        match &mut self.partial {
            Some(partial) => partial.message = completion.buffer,
            None => self.input = completion.buffer,
        }
        match completion.result {
            Ok(Outcome::Bytes(0)) => self.fail(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(Outcome::Bytes(count)) => {
                match &mut self.partial {
                    Some(partial) => partial.filled += count,
                    None => self.to += count,
                }
                if let Err(error) = self.take_all() {
                    self.fail(error);
                }
            }
            Ok(_) => {}
            Err(error) => self.fail(error.into()),
        }
    }

    /// Cuts the received bytes into messages.
    fn take_all(&mut self) -> Result<(), LinkError> {
        if let Some(partial) = self.partial.take_if(|partial| partial.filled == partial.len) {
            self.messages.extend(partial.message);
        }
        while self.partial.is_none() {
            let Some(input) = &self.input else { return Ok(()) };
            let waiting = input.get(self.from..self.to).unwrap_or_default();
            let Some(Header { len, is_message }) = Header::parse(waiting, MESSAGE_BYTES_MAX)? else { break };
            let rest = waiting.get(HEADER_BYTES..).unwrap_or_default();
            if !is_message {
                self.from += HEADER_BYTES;
                continue;
            }
            if len == 0 {
                return Err(LinkError::EmptyMessage);
            }
            let here = rest.len().min(len);
            if here < len && len - here < IN_PLACE_BYTES && HEADER_BYTES + len <= input.len() {
                break;
            }
            let mut message = BufMut::for_overwrite(len);
            let (front, _) = message.split_at_mut(here);
            front.copy_from_slice(rest.get(..here).unwrap_or_default());
            self.from += HEADER_BYTES + here;
            if here == len {
                self.messages.push_back(message);
            } else {
                self.partial = Some(Partial { message: Some(message), len, filled: here });
            }
        }
        Ok(())
    }

    fn arm(&mut self) {
        if self.is_receiving {
            return;
        }
        let (into, at) = match &mut self.partial {
            Some(partial) => (partial.message.take(), partial.filled),
            None => {
                if let Some(input) = &mut self.input
                    && self.from > 0
                {
                    input.copy_within(self.from..self.to, 0);
                    self.to -= self.from;
                    self.from = 0;
                }
                (self.input.take(), self.to)
            }
        };
        if let Some(into) = into {
            self.is_receiving = true;
            let socket = self.socket.clone();
            self.queue.submit(RECEIVE, IoOperation::Receive { socket, into, at });
        }
    }

    /// Takes the next whole message.
    ///
    /// # Errors
    /// Why the link failed, once all messages received before are taken.
    pub fn receive(&mut self) -> Result<Option<Buf>, LinkError> {
        match (self.messages.pop_front(), &self.failure) {
            (Some(message), _) => Ok(Some(message.freeze())),
            (None, None) => Ok(None),
            // The first call gives the reason, and each later one that the link is closed.
            (None, Some(_)) => {
                let gone = io::Error::from(ErrorKind::NotConnected).into();
                Err(self.failure.replace(gone).unwrap_or(LinkError::Io(ErrorKind::NotConnected.into())))
            }
        }
    }
}
