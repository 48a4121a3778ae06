//! Memory lent to the kernel until clients acknowledge it: counted, bounded, and not lent for ever.
//!
//! A client that reads nothing keeps sent bytes in the socket, and the pages sent by reference with
//! them. While too much is held so, or too much by one connection, bytes are copied instead. A
//! connection without acknowledgements for long ends, and the kernel drops its bytes. Loopback is
//! different: bytes count as acknowledged in the receiver's own queue, which bounds them.

use std::io;
use std::time::Duration;
use sys::Payload;
use sys::driver::{self, Descriptor, Lender};
use types::Monotonic;

/// Least bytes of a lent buffer, which is held as a whole until its last byte is acknowledged.
const HELD_BYTES_LEAST: u64 = 64 << 10;

/// Memory that left one connection by reference.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// Bytes so far.
    pub(super) bytes: u64,
    /// Upper bound of those unacknowledged at the last check.
    held_bytes: u64,
    /// Bytes of the connection that were acknowledged at that time.
    acknowledged_bytes: u64,
    since: Monotonic,
}

/// Memory that all connections hold together.
///
/// Invariant: `held_bytes` is the sum of those of the connections.
#[derive(Debug)]
pub(super) struct LentMemory {
    pub(super) held_bytes: u64,
    bytes_max: u64,
}

impl LentMemory {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { held_bytes: 0, bytes_max }
    }

    /// Whether more may be lent to a connection: only while it holds no more than is still free.
    pub(super) fn may_lend(&self, lent: &Lent) -> bool {
        let free = self.bytes_max.saturating_sub(self.held_bytes);
        free > 0 && lent.held_bytes <= free
    }

    /// Sends as much as the socket takes now, by reference if that pays and is allowed. Returns the bytes
    /// taken.
    ///
    /// # Errors
    /// The socket's: end the stream.
    pub(super) fn send_now(
        &mut self,
        lender: &mut Lender,
        lent: &mut Lent,
        socket: &Descriptor,
        data: &Payload,
        now: Monotonic,
    ) -> io::Result<usize> {
        if !self.may_lend(lent) {
            return driver::send_now(socket, data);
        }
        let before = lender.lent_bytes();
        let taken = lender.send_now(socket, data);
        let bytes = lender.lent_bytes() - before;
        if bytes > 0 {
            if lent.held_bytes == 0 {
                lent.since = now;
            }
            lent.bytes += bytes;
            self.look(lent, socket, lent.held_bytes + bytes);
        }
        taken
    }

    /// Recounts a connection's held bytes, at most `bytes_max`.
    fn look(&mut self, lent: &mut Lent, socket: &Descriptor, bytes_max: u64) {
        // A socket that cannot answer is closed.
        let held_bytes = match driver::unacknowledged_bytes(socket).unwrap_or(0).min(bytes_max) {
            0 => 0,
            bytes => bytes.max(HELD_BYTES_LEAST),
        };
        self.held_bytes = self.held_bytes - lent.held_bytes + held_bytes;
        lent.held_bytes = held_bytes;
    }

    /// Checks a connection now and then. Returns whether it has held something for longer than `patience`
    /// without acknowledging `pace_bytes`: a client that takes a byte now and then would hold it for ever.
    pub(super) fn is_stuck(
        &mut self,
        lent: &mut Lent,
        socket: &Descriptor,
        now: Monotonic,
        (patience, pace_bytes): (Duration, u64),
    ) -> bool {
        if lent.held_bytes == 0 {
            return false;
        }
        self.look(lent, socket, lent.held_bytes);
        // A socket that cannot answer does not count as stuck.
        let Ok(acknowledged_bytes) = driver::acknowledged_bytes(socket) else { return false };
        if acknowledged_bytes.wrapping_sub(lent.acknowledged_bytes) >= pace_bytes {
            (lent.acknowledged_bytes, lent.since) = (acknowledged_bytes, now);
        }
        lent.held_bytes > 0 && now.since(lent.since) > patience
    }

    /// Forgets a closed connection. Returns whether it still holds memory.
    pub(super) fn leave(&mut self, lent: &mut Lent, socket: &Descriptor) -> bool {
        if lent.held_bytes > 0 {
            self.look(lent, socket, lent.held_bytes);
        }
        self.held_bytes -= lent.held_bytes;
        lent.held_bytes > 0
    }
}
