//! Outgoing messages: sent immediately as far as the socket takes them, the rest when it has space.
//!
//! Buffers that are large and often sent go by reference ([`sys::driver::Lender`]). Bytes in flight
//! then need no copy, but are bounded ([`super::lent`]).

use super::{CloseReason, Connection, ConnectionId, SEND, Tcp};
use crate::framing::HEADER_BYTES;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use sys::driver::{IoOperation, Outcome};
use sys::{BufMut, Payload};

/// One send takes at most this many parts, and about this many bytes.
const SEND_PARTS_MAX: usize = 128;
const SEND_BYTES_MAX: usize = 4 << 20;

impl Connection {
    /// Messages from the queue with their headers, as much as one call takes; and the messages' bytes.
    fn take_queued(&mut self) -> Option<(Payload, usize)> {
        let (mut parts, mut bytes, mut count) = (0, 0, 0);
        for (_, message) in &self.queue {
            parts += 1 + message.parts().len();
            bytes += message.len();
            if count > 0 && (parts > SEND_PARTS_MAX || bytes > SEND_BYTES_MAX) {
                break;
            }
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let mut headers = BufMut::for_overwrite(count * HEADER_BYTES);
        for ((length, _), target) in self.queue.iter().zip(headers.chunks_exact_mut(HEADER_BYTES)) {
            target.copy_from_slice(&length.header());
        }
        let headers = headers.freeze();
        let mut data = Payload::new();
        for (nth, (_, message)) in self.queue.drain(..count).enumerate() {
            data.push(headers.slice(nth * HEADER_BYTES..(nth + 1) * HEADER_BYTES));
            data.append(message);
        }
        let message_bytes = data.len() - count * HEADER_BYTES;
        Some((data, message_bytes))
    }
}

impl Tcp {
    /// Bytes that left by reference, of all connections there ever were.
    pub fn lent_bytes(&self) -> u64 {
        self.lender.lent_bytes()
    }

    /// Bytes that left by reference and that clients have not acknowledged.
    pub fn lent_held_bytes(&self) -> u64 {
        self.lent.held_bytes
    }

    /// Returns why nothing is sent by reference; `None`: large payload that is sent often is.
    pub fn why_only_copies(&self) -> Option<&'static str> {
        self.lender.why_only_copies()
    }

    /// Bytes that left by reference, of each connection, by its client's address and ours.
    pub fn lent_by_connection(&self) -> HashMap<(SocketAddr, SocketAddr), u64> {
        self.connections.iter().flatten().map(|entry| (entry.ends, entry.lent.bytes)).collect()
    }

    /// Sends the queued messages: immediately as much as the socket takes, and the rest through the loop.
    pub(super) fn start_send(&mut self, id: ConnectionId) {
        let (now, pace_bytes) = (self.now, self.limits.pace_bytes());
        // Not by `connection`: the lender is borrowed beside it.
        let Some(Some(entry)) = self.connections.get_mut(id.0 as u32 as usize) else { return };
        if entry.id != id || entry.sending || entry.queue.is_empty() || entry.closed.is_some() {
            return;
        }
        while let Some((data, message_bytes)) = entry.take_queued() {
            let Connection { lent, socket, .. } = entry;
            let taken = match self.lent.send_now(&mut self.lender, lent, socket, &data, now) {
                Ok(taken) => taken,
                // A part may have left: anything sent now would be out of step.
                Err(error) => return self.shut(id, CloseReason::Network(error.kind())),
            };
            if taken >= data.len() {
                entry.queued_bytes = entry.queued_bytes.saturating_sub(message_bytes);
                entry.active = true;
                entry.sent.take(taken, pace_bytes, now);
                continue;
            }
            entry.sending = true;
            entry.sent.wait(now);
            entry.sent.take(taken, pace_bytes, now);
            entry.sending_bytes = message_bytes;
            let data = if taken > 0 { data.slice(taken, data.len() - taken) } else { data };
            return self.send_when_writable(id, data);
        }
        entry.sent.end();
        self.all_sent(id);
    }

    /// Leaves the rest of the payload to the loop, until the socket has space.
    fn send_when_writable(&mut self, id: ConnectionId, data: Payload) {
        let Some(entry) = self.connections[id.0 as u32 as usize].as_mut() else { return };
        let socket = entry.socket.clone();
        let operation = if self.lent.may_lend(&entry.lent) && self.lender.lends_of(&data) {
            entry.unsent = Some(data);
            IoOperation::Writable { socket }
        } else {
            IoOperation::Send { socket, data }
        };
        self.queue.submit((id.0 & 0xffff_ffff) << 2 | SEND, operation);
    }

    pub(super) fn sent(&mut self, index: u32, result: io::Result<Outcome>) {
        let (now, pace_bytes) = (self.now, self.limits.pace_bytes());
        let Some(Some(entry)) = self.connections.get_mut(index as usize) else { return };
        let id = entry.id;
        let mut result = result;
        if let Some(data) = entry.unsent.take()
            && entry.closed.is_none()
            && result.is_ok()
        {
            let Connection { lent, socket, .. } = entry;
            match self.lent.send_now(&mut self.lender, lent, socket, &data, now) {
                Ok(taken) if taken < data.len() => {
                    entry.active |= taken > 0;
                    entry.sent.take(taken, pace_bytes, now);
                    return self.send_when_writable(id, data.slice(taken, data.len() - taken));
                }
                Ok(_) => {}
                Err(error) => result = Err(error),
            }
        }
        entry.sending = false;
        let sent_bytes = std::mem::take(&mut entry.sending_bytes);
        entry.queued_bytes = entry.queued_bytes.saturating_sub(sent_bytes);
        entry.active = true;
        entry.sent.take(sent_bytes, pace_bytes, now);
        if let Err(error) = result {
            return self.shut(id, CloseReason::Network(error.kind()));
        }
        if entry.queue.is_empty() {
            entry.sent.end();
            self.all_sent(id);
        } else {
            self.start_send(id);
            self.start_receive(id);
        }
        self.finish(id);
    }

    /// Continues when nothing is queued any more.
    fn all_sent(&mut self, id: ConnectionId) {
        match self.connection(id) {
            Some(entry) if entry.closing && entry.closed.is_none() => self.shut(id, CloseReason::Server),
            _ => self.start_receive(id),
        }
    }
}
