//! Messages over one TCP socket of the loop: everything queued leaves in one send, receives take many small messages at once and a
//! large one in place.

use super::MESSAGE_BYTES_MAX;
use crate::connection::Outgoing;
use crate::{ClientError, Engine};
use smb::wire::TCP_PREFIX_BYTES;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use sys::driver::{self, Completion, Descriptor, Operation, Outcome, Queue};
use sys::{Buf, BufMut, Payload};

/// Room for messages that come together.
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

pub(crate) struct TcpLink {
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
    failure: Option<ClientError>,
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        // Operations in flight hold the socket too: the server is to hear of the end at once.
        let _ = driver::shutdown(&self.socket);
    }
}

impl TcpLink {
    /// Over a connection that is up.
    pub fn new(engine: &Engine, socket: TcpStream) -> Result<Self, ClientError> {
        socket.set_nodelay(true)?;
        Ok(Self {
            socket: Arc::new(OwnedFd::from(socket)),
            queue: engine.driver().queue(),
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

    pub fn kill(&mut self) {
        let _ = driver::shutdown(&self.socket);
    }

    pub fn send(&mut self, message: Outgoing) {
        self.outgoing.push(Buf::from(&message.head[..]));
        self.outgoing.append(message.payload);
    }

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
            // At once what the socket takes; an error shows again, to be acted on, when the loop sends.
            let taken = driver::send_now(&self.socket, &data).unwrap_or(0);
            if taken < data.len() {
                self.is_sending = true;
                let data = if taken > 0 { data.slice(taken, data.len() - taken) } else { data };
                self.queue.submit(SEND, Operation::Send { socket: self.socket.clone(), data });
            }
        }
        self.arm();
    }

    fn fail(&mut self, error: ClientError) {
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

    /// Sorts what has come into messages.
    fn take_all(&mut self) -> Result<(), ClientError> {
        if let Some(partial) = self.partial.take_if(|partial| partial.filled == partial.len) {
            self.messages.extend(partial.message);
        }
        while self.partial.is_none() {
            let Some(input) = &self.input else { return Ok(()) };
            let waiting = input.get(self.from..self.to).unwrap_or_default();
            let Some((prefix, rest)) = waiting.split_first_chunk::<TCP_PREFIX_BYTES>() else { break };
            let len = u32::from_be_bytes(*prefix) as usize;
            if len == 0 || len > MESSAGE_BYTES_MAX {
                return Err(ClientError::Protocol("a message of impossible length"));
            }
            let here = rest.len().min(len);
            if here < len && len - here < IN_PLACE_BYTES && TCP_PREFIX_BYTES + len <= input.len() {
                break;
            }
            let mut message = BufMut::for_overwrite(len);
            let (front, _) = message.split_at_mut(here);
            front.copy_from_slice(rest.get(..here).unwrap_or_default());
            self.from += TCP_PREFIX_BYTES + here;
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
            self.queue.submit(RECEIVE, Operation::Receive { socket, into, at });
        }
    }

    pub fn receive(&mut self) -> Result<Option<Buf>, ClientError> {
        match (self.messages.pop_front(), &self.failure) {
            (Some(message), _) => Ok(Some(message.freeze())),
            (None, None) => Ok(None),
            // The first to ask hears the reason; whoever asks again hears that there is none to come.
            (None, Some(_)) => {
                let gone = io::Error::from(ErrorKind::NotConnected).into();
                Err(self.failure.replace(gone).unwrap_or(ClientError::Protocol("closed")))
            }
        }
    }
}
