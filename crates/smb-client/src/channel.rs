//! One connection of a session and its carrier: the protocol above, the link below, and the memory lent
//! to the server for requests whose payload goes by RDMA. Nothing here blocks: [`crate::Client`] waits
//! for several of them, and the storage bus has them on the loop of a server.

use crate::connection::{Connection, Event, Limits, Protection, Token};
use crate::operation::{Reply, Request, Transfer};
use crate::{ClientError, Counters, Options};
use rdma::RegionKey;
use smallvec::SmallVec;
use smb::wire::{BufferDescriptorV1, CHANNEL_RDMA_V1, CHANNEL_RDMA_V1_INVALIDATE, Dialect, U32, U64};
use smb_transport::client::Link;
use smbdirect::BufferDescriptor;
use sys::{Buf, BufMut};
use types::{IdentityMap, Monotonic, NtStatus};

/// Most descriptors of one request; a payload in more parts is copied together first.
const DESCRIPTORS_MAX: usize = 16;

/// A descriptor as requests carry it (MS-SMBD 2.2.3.1).
fn on_the_wire(descriptor: BufferDescriptor) -> BufferDescriptorV1 {
    BufferDescriptorV1 {
        offset: U64::new(descriptor.offset),
        token: U32::new(descriptor.token),
        length: U32::new(descriptor.len_bytes),
    }
}

/// Memory lent to the server for one request.
enum Loan {
    Room(RegionKey, Protection),
    Bytes(SmallVec<[RegionKey; 2]>),
}

/// Most payload in unanswered messages of one channel: transfers are long, so that MS-SMBD's credits hardly bound it. Further payload is
/// lent, for the server to fetch when it wants to, or waits. As much as 32 messages of 1 MiB, which TCP has on its way as well.
const INLINE_BYTES_MAX: usize = 32 << 20;
/// Payload up to this length goes in messages always: a server's fetching pays for longer payload only.
const INLINE_BYTES_LEAST: usize = 64 << 10;

/// A connection with its link.
pub struct Channel {
    /// State machine of SMB2 on this link.
    pub connection: Connection,
    link: Link,
    loans: IdentityMap<Token, Loan>,
    /// When the server last said something, or was first asked after a pause.
    heard_at: Monotonic,
    counters: Counters,
    /// OPLOCK_BREAK notifications that nobody has taken.
    pub breaks: Vec<Buf>,
    /// Which of its owner's targets it goes to.
    pub target: usize,
}

impl Channel {
    /// Begins; the link may still be coming up.
    pub fn new(mut connection: Connection, link: Link, target: usize, now: Monotonic) -> Self {
        if link.is_rdma() {
            connection.set_payload_window(INLINE_BYTES_MAX);
        }
        Self {
            connection,
            link,
            loans: IdentityMap::default(),
            heard_at: now,
            counters: Counters::default(),
            breaks: Vec::new(),
            target,
        }
    }

    /// Breaks the connection, as a network does.
    pub fn kill(&mut self) {
        self.link.kill();
    }

    /// Whether messages go by SMB Direct.
    pub fn is_rdma(&self) -> bool {
        self.link.is_rdma()
    }

    /// Whether this request's payload goes by RDMA, and with which protection: a message's signature and
    /// encryption do not cover it.
    fn goes_remote(&self, request: &Request, options: &Options) -> Option<Protection> {
        let transfer = request.transfer.as_ref()?;
        let link = self.link.rdma_ref()?;
        let bytes_min = match transfer {
            Transfer::Read { .. } => (options.rdma_read_bytes_min as usize).min(link.answer_bytes_max() + 1),
            Transfer::Write { .. } => {
                let room_bytes = INLINE_BYTES_MAX.saturating_sub(self.connection.payload_bytes());
                let inline_bytes = link.transfer_bytes_max().min(room_bytes.max(INLINE_BYTES_LEAST));
                (options.rdma_write_bytes_min as usize).min(inline_bytes + 1)
            }
        };
        let suits = transfer.len() >= bytes_min.max(1) && self.connection.dialect() >= Some(Dialect::Smb300);
        if suits { self.connection.payload_protection(request.must_encrypt, request.must_sign) } else { None }
    }

    /// Whether this request fits one message, or goes by RDMA.
    pub fn can_carry(&self, request: &Request, options: &Options) -> bool {
        let Some(link) = self.link.rdma_ref() else { return true };
        request.payload.len() <= link.inline_bytes_max() as usize
            || self.goes_remote(request, options).is_some()
    }

    /// Queues a request; it leaves with [`Self::pump`].
    pub fn submit(&mut self, token: Token, mut request: Request, options: &Options, now: Monotonic) {
        self.asked(now);
        if let Some(protection) = self.goes_remote(&request, options) {
            self.lend(token, &mut request, protection);
        }
        self.connection.submit(token, request);
    }

    /// Queues requests that go out in one message ([`Connection::submit_compound`]).
    pub fn submit_compound(&mut self, chain: Vec<(Token, Request)>, now: Monotonic) {
        self.asked(now);
        self.connection.submit_compound(chain);
    }

    fn asked(&mut self, now: Monotonic) {
        if self.connection.in_flight() == 0 {
            self.heard_at = now;
        }
    }

    /// Lends the memory of a request's payload to the device; if that is not possible the payload goes in messages.
    fn lend(&mut self, token: Token, request: &mut Request, protection: Protection) {
        // The server ends the registration with its answer if dialect and device can do that.
        let is_new = self.connection.dialect() >= Some(Dialect::Smb302);
        let Some(link) = self.link.rdma() else { return };
        let channel =
            if is_new && link.may_invalidate() { CHANNEL_RDMA_V1_INVALIDATE } else { CHANNEL_RDMA_V1 };
        let mut descriptors: SmallVec<[BufferDescriptorV1; 2]> = SmallVec::new();
        let mut seal = None;
        let loan = match &request.transfer {
            Some(Transfer::Read { len, .. }) => {
                let Some((key, descriptor)) = link.lend_room(*len as usize) else { return };
                descriptors.push(on_the_wire(descriptor));
                Loan::Room(key, protection)
            }
            Some(Transfer::Write { data, .. }) => {
                let Some((data, sealed)) = self.connection.protect_payload(protection, data) else { return };
                seal = sealed;
                let mut keys: SmallVec<[RegionKey; 2]> = SmallVec::new();
                let whole;
                let parts = if data.parts().len() > DESCRIPTORS_MAX {
                    whole = [data.contiguous()];
                    &whole[..]
                } else {
                    data.parts()
                };
                for part in parts {
                    let Some((key, descriptor)) = link.lend(part.clone()) else {
                        for key in keys {
                            link.take_back(key);
                        }
                        return;
                    };
                    keys.push(key);
                    descriptors.push(on_the_wire(descriptor));
                }
                Loan::Bytes(keys)
            }
            None => return,
        };
        request.send_remote(channel, &descriptors);
        if let Some(seal) = seal {
            request.send_transformed(&seal.describe(channel, &descriptors));
        }
        self.loans.insert(token, loan);
    }

    /// Takes back what was lent for a request that is answered.
    fn take_back_loan(&mut self, token: Token, reply: &mut Reply) {
        let Some(link) = self.link.rdma().filter(|_| !self.loans.is_empty()) else { return };
        match self.loans.remove(&token) {
            None => {}
            Some(Loan::Room(key, protection)) => {
                let mut room = link.take_back(key).map(BufMut::freeze);
                if reply.status() == NtStatus::SUCCESS
                    && let Some(placed) = room.take()
                {
                    match self.connection.open_payload(protection, reply, placed) {
                        Ok(opened) => room = Some(opened),
                        Err(status) => *reply = Reply::local(reply.command(), status),
                    }
                }
                reply.attach(room);
                self.counters.rdma_read_bytes += reply.placed_bytes() as u64;
            }
            Some(Loan::Bytes(keys)) => {
                for key in keys {
                    link.take_back(key);
                }
                if reply.status() == NtStatus::SUCCESS {
                    self.counters.rdma_written_bytes += u64::from(reply.written_bytes().unwrap_or(0));
                }
            }
        }
    }

    /// Carries messages both ways, without waiting; answers go to `out`. Whether anything moved. With something asked and nothing heard
    /// for `timeout`, the channel counts as dead.
    ///
    /// # Errors
    /// Why the channel is of no further use.
    pub fn pump(
        &mut self,
        now: Monotonic,
        timeout: std::time::Duration,
        out: &mut Vec<(Token, Reply)>,
    ) -> Result<bool, ClientError> {
        if !self.link.is_ready() {
            self.link.poll(now);
            if !self.link.is_ready() {
                self.link.receive()?;
                return Ok(false);
            }
        }
        self.push_out()?;
        self.link.poll(now);
        let mut moved = false;
        while let Some(message) = self.link.receive()? {
            moved = true;
            self.heard_at = now;
            self.counters.received_bytes += message.len() as u64;
            self.connection.handle_message(message)?;
            while let Some(event) = self.connection.poll_event() {
                match event {
                    Event::Completed { token, mut reply } => {
                        self.take_back_loan(token, &mut reply);
                        out.push((token, reply));
                    }
                    Event::Break(message) => self.breaks.push(message),
                    Event::Ready => {}
                }
            }
        }
        if self.push_out()? {
            self.link.poll(now);
        }
        if !moved && self.connection.in_flight() > 0 && now >= self.heard_at.after(timeout) {
            return Err(ClientError::TimedOut);
        }
        Ok(moved)
    }

    fn push_out(&mut self) -> Result<bool, ClientError> {
        let mut any = false;
        while let Some(message) = self.connection.poll_transmit() {
            any = true;
            self.counters.sent_bytes += message.len() as u64;
            self.link.send(message)?;
        }
        Ok(any)
    }

    /// Until when to sleep at most.
    pub fn next_timeout(&self, timeout: std::time::Duration) -> Monotonic {
        let dead_at = self.heard_at.after(timeout);
        self.link.next_timeout().map_or(dead_at, |at| at.min(dead_at))
    }

    /// Most bytes of one operation, whichever way its payload goes.
    pub fn limits(&self, must_encrypt: bool) -> Limits {
        let mut limits = self.connection.limits();
        let protected = self.connection.payload_protection(must_encrypt, false).is_none();
        let is_old = self.connection.dialect() < Some(Dialect::Smb300);
        if let Some(link) = self.link.rdma_ref() {
            let remote = link.remote_bytes_max();
            limits.read_bytes = limits.read_bytes.min(remote);
            limits.write_bytes = limits.write_bytes.min(remote);
            if protected || is_old {
                // Whole pages, as people ask for them.
                limits.write_bytes = limits.write_bytes.min(link.inline_bytes_max() & !0xFFF);
            }
        }
        limits
    }

    /// Whether a chain of this many requests with this many bytes in all can be one message.
    pub fn can_compound(&self, requests: u32, len_bytes: usize) -> bool {
        let limit = self.connection.limits().write_bytes;
        let limit = self.link.rdma_ref().map_or(limit, |link| link.inline_bytes_max().min(limit));
        self.connection.credits_in_all() >= requests && len_bytes <= limit as usize
    }

    /// Returns the channel's counters.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        counters.smb_credit_stalls = self.connection.credit_stalls();
        if let Some(link) = self.link.rdma_ref() {
            counters.rdma_credit_stalls = link.counters().stalls_send_credit;
            counters.rdma_connections = 1;
            counters.rdma_crc = link.has_crc();
        }
        counters
    }
}
