//! One RDMA connection of the server's, and the work under way on it.

use super::counters::{Counters, Own};
use super::kept::Kept;
use super::trace::{self, Trace, What};
use rdma::timers::Armed;
use rdma::{QueuePairId, RegionKey, Verbs, WorkId};
use smbdirect::{BufferDescriptor, Connection, ReadBudget};
use std::collections::VecDeque;
use sys::Payload;
use types::{Monotonic, NumberMap};

/// A payload of the peer that is being read.
pub(super) struct Reading {
    pub token: u64,
    pub sink: RegionKey,
    pub len_bytes: usize,
    /// Descriptors, each with its place in the sink, that no read was posted for.
    pub waiting: VecDeque<(BufferDescriptor, u64)>,
    pub outstanding: usize,
    pub failed: bool,
}

pub(super) struct Peer {
    /// For people: counted from one.
    pub number: u64,
    pub smbd: Connection,
    pub opened: bool,
    /// There was a logon.
    pub is_member: bool,
    /// Whether its receives take no memory before messages come.
    pub on_demand: bool,
    /// Whether too much of it is in work.
    pub is_throttled: bool,
    pub budget: Option<ReadBudget>,
    pub readings: Vec<Reading>,
    pub reading_bytes: usize,
    /// The token of the payload that each read is for, by the work identifier of the read.
    pub reads: NumberMap<u64>,
    pub next_work: u64,
    /// Given to the provider and not sent.
    pub unsent_bytes: usize,
    /// Given to the provider and sent, since the connection began.
    pub sent_bytes: u64,
    /// Account of its memory and time.
    pub kept: Kept,
    /// The owner waits for space.
    pub blocked: bool,
    pub own: Own,
    /// The last turns that brought completions: (receives, others).
    pub turns: (u64, u64),
    pub trace: Trace,
    pub armed: Armed,
    /// Listed for [`SmbDirect::flush`].
    pub touched: bool,
}

impl Peer {
    pub fn new(number: u64, smbd: Connection, on_demand: bool, kept: Kept) -> Self {
        Self {
            number,
            smbd,
            opened: false,
            is_member: false,
            on_demand,
            is_throttled: false,
            budget: None,
            readings: Vec::new(),
            reading_bytes: 0,
            reads: NumberMap::default(),
            next_work: 1,
            unsent_bytes: 0,
            sent_bytes: 0,
            kept,
            blocked: false,
            own: Own::default(),
            turns: (0, 0),
            trace: Trace::default(),
            armed: Armed::default(),
            touched: false,
        }
    }

    #[inline]
    pub fn note(&mut self, at: Monotonic, what: What) {
        let (send_credits, receive_credits) = (self.smbd.send_credits(), self.smbd.receive_credits());
        self.trace.push(trace::Entry { at, send_credits, receive_credits, what });
    }

    pub fn work_id(&mut self) -> WorkId {
        self.next_work += 1;
        WorkId(self.next_work - 1)
    }

    /// Posts a Send; `false` if the connection has ended, as an event reports.
    pub fn post(
        &mut self,
        verbs: &mut impl Verbs,
        connection: QueuePairId,
        head: &[u8],
        payload: Payload,
        invalidate: Option<u32>,
        now: Monotonic,
    ) -> bool {
        let (id, len) = (self.work_id(), head.len() + payload.len());
        let key = invalidate.map(RegionKey);
        let posted = verbs.post_send_with_head(connection, id, head, payload, key).is_ok();
        if posted {
            self.unsent_bytes += len;
            self.note(now, What::Sent { len: len as u32, invalidated: invalidate });
        }
        posted
    }

    /// Whether its receives take a device's memory that was not lent for all of them: a guest, or beyond
    /// its party's share.
    pub fn has_few_receives(&self) -> bool {
        !self.on_demand && self.kept.receives.is_none()
    }

    /// Keeps the peer short of credits, or ends that.
    pub fn tell_throttle(&mut self) {
        self.smbd.throttle(self.is_throttled || self.has_few_receives());
    }

    pub fn unsent(&self) -> usize {
        self.unsent_bytes + self.smbd.queued_bytes()
    }

    /// Bytes of answers that the peer has taken, or has granted credits for: only grows.
    pub fn taken_bytes(&self) -> u64 {
        self.sent_bytes + self.smbd.counters().bytes_sent
    }

    /// Lists the connection for [`SmbDirect::flush`], unless it is listed.
    pub fn touch(&mut self, connection: QueuePairId, touched: &mut Vec<QueuePairId>) {
        if !std::mem::replace(&mut self.touched, true) {
            touched.push(connection);
        }
    }

    pub fn counters(&self) -> Counters {
        Counters::of(&self.own, &self.smbd.counters(), self.readings.len())
    }
}
