//! The queue pair of one connection: work in, completions out.
//!
//! Owns the work that is with the device and the memory it uses, and the work that waits because the device's queues are full.
//! Promises: at most what the device's limits allow is posted; every work completes once; the memory of work is held until then.
//!
//! Payload of up to [`COPY_BYTES`] is copied into registered slots, more is registered where it lies for as long as its work takes.

use super::cm::{ConnectionId, SendWork};
use super::layout::*;
use super::library::Library;
use super::resources::{CompletionQueue, Context, MemoryRegion, ProtectionDomain, status_name};
use super::staging::{Slot, Staging};
use crate::verbs::{Activity, Completion, CompletionKind, Event, QueuePairId, RegionKey, Status, WorkId};
use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::rc::Rc;
use sys::{Buf, Payload};

/// Registering memory costs two calls into the kernel and a visit to each page: below this a copy is cheaper.
const COPY_BYTES: usize = 32 << 10;
/// Requests on the send and the receive queue, if the device has space for as many.
const SEND_DEPTH: u32 = 256;
const RECEIVE_DEPTH: u32 = 512;
/// Pieces of memory in one request.
const ELEMENTS_MAX: usize = 16;
/// A payload in more pieces than this is copied into one.
const PIECES_MAX: usize = 64;
/// Completions taken in one call.
const BATCH: usize = 16;
/// Completions taken at a time before others have their turn.
const BUDGET: usize = 1024;

/// Limits of a device for one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub send_depth: u32,
    pub receive_depth: u32,
    pub elements: usize,
    /// Reads that we serve, and that we have outstanding, at a time.
    pub inbound_read_depth: u8,
    pub outbound_read_depth: u8,
}

impl Limits {
    pub fn new(attributes: &ibv_device_attr, read_depths: (u8, u8)) -> Self {
        let at_least_one = |limit: c_int| u32::try_from(limit).unwrap_or(1).max(1);
        let entries = at_least_one(attributes.max_cqe);
        let queue = at_least_one(attributes.max_qp_wr);
        let depth = |limit: c_int| u8::try_from(limit.clamp(0, 255)).unwrap_or(u8::MAX);
        Self {
            send_depth: SEND_DEPTH.min(queue).min((entries / 3).max(1)),
            receive_depth: RECEIVE_DEPTH.min(queue).min((entries / 3).max(1)),
            elements: ELEMENTS_MAX.min(at_least_one(attributes.max_sge) as usize),
            inbound_read_depth: read_depths.0.min(depth(attributes.max_qp_rd_atom)),
            outbound_read_depth: read_depths.1.min(depth(attributes.max_qp_init_rd_atom)),
        }
    }
}

/// A request to the send queue.
pub(super) enum Request {
    Send {
        payload: Payload,
        invalidate: Option<RegionKey>,
    },
    Write {
        payload: Payload,
        remote: (RegionKey, u64),
    },
    /// Into one piece of memory: devices of iWARP take no more (`max_sge_rd` 1).
    Read {
        sink: ibv_sge,
        remote: (RegionKey, u64),
    },
}

impl Request {
    fn kind(&self) -> CompletionKind {
        match self {
            Self::Send { .. } => CompletionKind::Send,
            Self::Write { .. } => CompletionKind::Write,
            Self::Read { .. } => CompletionKind::Read,
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            Self::Send { payload, .. } | Self::Write { payload, .. } => payload.len(),
            Self::Read { sink, .. } => sink.length as usize,
        }
    }
}

/// Memory of work that is with the device.
enum Held {
    Nothing,
    Slot(Slot),
    Regions(#[allow(dead_code, reason = "held, not looked at")] Vec<MemoryRegion>),
}

struct Sent {
    id: WorkId,
    kind: CompletionKind,
    len_bytes: usize,
    /// The number of its last request.
    last: u64,
    status: Status,
    held: Held,
}

struct Received {
    id: WorkId,
    number: u64,
    slot: Slot,
}

/// See the module. It is used with the [`ConnectionId`] that its queue pair belongs to.
pub(super) struct Endpoint {
    library: &'static Library,
    queue_pair: QueuePairId,
    limits: Limits,
    sent: VecDeque<Sent>,
    /// Requests that are with the device.
    requests: u32,
    next_send: u64,
    waiting: VecDeque<(WorkId, Request)>,
    receives: VecDeque<Received>,
    next_receive: u64,
    waiting_receives: VecDeque<(WorkId, usize)>,
    /// The first status that was neither success nor flushed.
    fault: Option<(String, bool)>,
    flushed: bool,
    /// Bytes of work that succeeded, and errors of reads.
    pub activity: Activity,
    staging: Staging,
    pub completions: CompletionQueue,
    pub domain: Rc<ProtectionDomain>,
}

impl Endpoint {
    /// Makes the queue pair of a connection that is bound to a device.
    pub fn new(
        library: &'static Library,
        id: QueuePairId,
        connection: &mut ConnectionId,
        context: Context,
        limits: Limits,
    ) -> io::Result<Self> {
        let domain = ProtectionDomain::new(library, context)?;
        let completions = CompletionQueue::new(library, context, limits.send_depth + limits.receive_depth)?;
        let capacity = ibv_qp_cap {
            max_send_wr: limits.send_depth,
            max_recv_wr: limits.receive_depth,
            max_send_sge: limits.elements as u32,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        completions.arm()?;
        // SAFETY: both are of this context; the provider ends the queue pair before it lets go of an endpoint.
        unsafe { connection.create_queue_pair(&domain, &completions, capacity)? };
        Ok(Self {
            library,
            queue_pair: id,
            limits,
            sent: VecDeque::new(),
            requests: 0,
            next_send: 0,
            waiting: VecDeque::new(),
            receives: VecDeque::new(),
            next_receive: 0,
            waiting_receives: VecDeque::new(),
            fault: None,
            flushed: false,
            activity: Activity::default(),
            staging: Staging::new(domain.clone()),
            completions,
            domain,
        })
    }

    /// The first failure in words, and whether the peer caused it.
    pub fn fault(&self) -> Option<&(String, bool)> {
        self.fault.as_ref()
    }

    /// The device flushes work: the connection is about to end.
    pub fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// # Errors
    /// When the device refuses: the connection is of no use then.
    pub fn post(&mut self, connection: &ConnectionId, id: WorkId, request: Request) -> io::Result<()> {
        self.waiting.push_back((id, request));
        self.post_waiting(connection)
    }

    /// # Errors
    /// As [`Self::post`].
    pub fn post_receive(
        &mut self,
        connection: &ConnectionId,
        id: WorkId,
        len_bytes: usize,
    ) -> io::Result<()> {
        self.waiting_receives.push_back((id, len_bytes));
        self.post_waiting(connection)
    }

    /// Posts what waits, as far as there is space.
    pub fn post_waiting(&mut self, connection: &ConnectionId) -> io::Result<()> {
        while self.receives.len() < self.limits.receive_depth as usize
            && let Some(&(id, len_bytes)) = self.waiting_receives.front()
        {
            let slot = self.staging.take(len_bytes)?;
            let element = slot.element(len_bytes).ok_or(io::ErrorKind::InvalidInput)?;
            let number = self.next_receive;
            self.next_receive += 1;
            self.waiting_receives.pop_front();
            self.receives.push_back(Received { id, number, slot });
            // SAFETY: the slot is kept in `receives` until its completion, or until the queue pair has ended.
            unsafe { connection.post_receive(number << 1 | RECEIVE, element)? };
        }
        while let Some((_, request)) = self.waiting.front() {
            if self.requests + self.requests_of(request) > self.limits.send_depth {
                break;
            }
            if let Some((id, request)) = self.waiting.pop_front() {
                self.start(connection, id, request)?;
            }
        }
        Ok(())
    }

    fn requests_of(&self, request: &Request) -> u32 {
        match request {
            Request::Write { payload, .. } if self.in_pieces(payload) => {
                payload.parts().len().div_ceil(self.limits.elements) as u32
            }
            _ => 1,
        }
    }

    /// Whether a payload is registered piece by piece where it lies.
    fn in_pieces(&self, payload: &Payload) -> bool {
        let pieces = payload.parts().len();
        payload.len() > COPY_BYTES
            && pieces <= PIECES_MAX
            && pieces.div_ceil(self.limits.elements) <= self.limits.send_depth as usize
    }

    /// Hands one work to the device.
    fn start(&mut self, connection: &ConnectionId, id: WorkId, request: Request) -> io::Result<()> {
        let (kind, len_bytes) = (request.kind(), request.len_bytes());
        let (opcode, invalidate, remote) = match &request {
            Request::Send { invalidate: Some(key), .. } => (IBV_WR_SEND_WITH_INV, key.0, (0, 0)),
            Request::Send { invalidate: None, .. } => (IBV_WR_SEND, 0, (0, 0)),
            Request::Write { remote, .. } => (IBV_WR_RDMA_WRITE, 0, (remote.0.0, remote.1)),
            Request::Read { remote, .. } => (IBV_WR_RDMA_READ, 0, (remote.0.0, remote.1)),
        };
        let placed = match &request {
            Request::Read { sink, .. } => Ok((vec![*sink], Held::Nothing)),
            Request::Send { payload, .. } | Request::Write { payload, .. } => {
                self.place(payload, kind == CompletionKind::Write)
            }
        };
        let (elements, held) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                // The request completes when the connection ends.
                self.waiting.push_front((id, request));
                return Err(error);
            }
        };
        // A message of no bytes is one request without memory.
        let count = elements.len().div_ceil(self.limits.elements).max(1) as u64;
        let first = self.next_send;
        self.next_send += count;
        self.requests += count as u32;
        let last = self.next_send - 1;
        self.sent.push_back(Sent { id, kind, len_bytes, last, status: Status::Success, held });
        let mut address = remote.1;
        for at in 0..count {
            let from = at as usize * self.limits.elements;
            let part = &elements[from..elements.len().min(from + self.limits.elements)];
            let work = SendWork { id: (first + at) << 1, opcode, invalidate, remote: (remote.0, address) };
            // SAFETY: the memory is in `sent`, or a registration that the provider keeps, until the completion, or until the queue
            // pair has ended.
            unsafe { connection.post_send(&work, part)? };
            address = address.wrapping_add(part.iter().map(|element| u64::from(element.length)).sum());
        }
        Ok(())
    }

    /// Payload as registered memory. `divisible`: may go in several requests.
    fn place(&mut self, payload: &Payload, divisible: bool) -> io::Result<(Vec<ibv_sge>, Held)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        if payload.is_empty() {
            return Ok((Vec::new(), Held::Nothing));
        }
        if payload.len() <= COPY_BYTES {
            let mut slot = self.staging.take(payload.len())?;
            // SAFETY: the slot is fresh: no work with it is with the device.
            unsafe { slot.fill(payload) };
            let element = slot.element(payload.len()).ok_or_else(invalid)?;
            return Ok((vec![element], Held::Slot(slot)));
        }
        let one_by_one =
            self.in_pieces(payload) && (divisible || payload.parts().len() <= self.limits.elements);
        let whole;
        let parts: &[Buf] = if one_by_one {
            payload.parts()
        } else {
            whole = [payload.contiguous()];
            &whole
        };
        let mut regions = Vec::with_capacity(parts.len());
        let mut elements = Vec::with_capacity(parts.len());
        for part in parts {
            let region = MemoryRegion::shared(&self.domain, part.clone(), 0)?;
            elements.push(region.element(0, part.len()).ok_or_else(invalid)?);
            regions.push(region);
        }
        Ok((elements, Held::Regions(regions)))
    }

    /// Takes completions; `true` if more may be there.
    ///
    /// # Errors
    /// When the queue failed.
    pub fn poll(&mut self, out: &mut Vec<Event>) -> io::Result<bool> {
        let mut batch = [ibv_wc::default(); BATCH];
        let mut taken = 0;
        while taken < BUDGET {
            let count = self.completions.poll(&mut batch)?;
            for completion in &batch[..count] {
                self.complete(completion, out);
            }
            taken += count;
            if count < BATCH {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn complete(&mut self, done: &ibv_wc, out: &mut Vec<Event>) {
        let status = status_of(done.status);
        match status {
            Status::Success => {}
            Status::Flushed => self.flushed = true,
            _ => {
                let by_peer = matches!(status, Status::RemoteAccess | Status::RemoteOperation);
                let library = self.library;
                self.fault.get_or_insert_with(|| (status_name(library, done.status), by_peer));
            }
        }
        let number = done.wr_id >> 1;
        if done.wr_id & 1 == RECEIVE {
            let Some(at) = self.receives.iter().position(|receive| receive.number == number) else { return };
            let Some(receive) = self.receives.remove(at) else { return };
            let len_bytes = if status == Status::Success { done.byte_len as usize } else { 0 };
            // SAFETY: the device has completed the only work with this slot.
            let buffer = unsafe { receive.slot.copy(len_bytes) };
            self.staging.give_back(receive.slot);
            self.activity.inbound_bytes += len_bytes as u64;
            let invalidated = status == Status::Success && done.wc_flags & IBV_WC_WITH_INV != 0;
            out.push(Event::Completion(Completion {
                queue_pair: self.queue_pair,
                id: receive.id,
                kind: CompletionKind::Receive,
                status,
                len_bytes: buffer.len(),
                buffer: Some(buffer.freeze()),
                invalidated: invalidated.then_some(RegionKey(done.invalidated_rkey)),
            }));
            return;
        }
        self.requests = self.requests.saturating_sub(1);
        // Requests of a connection complete in their order.
        let Some(at) = self.sent.iter().position(|sent| number <= sent.last) else { return };
        let sent = &mut self.sent[at];
        if sent.status == Status::Success {
            sent.status = status;
        }
        if number == sent.last
            && let Some(sent) = self.sent.remove(at)
        {
            self.finish(sent, out);
        }
    }

    fn finish(&mut self, sent: Sent, out: &mut Vec<Event>) {
        if let Held::Slot(slot) = sent.held {
            self.staging.give_back(slot);
        }
        let bytes = sent.len_bytes as u64;
        match (sent.status, sent.kind) {
            (Status::Success, CompletionKind::Read) => self.activity.inbound_bytes += bytes,
            (Status::Success, _) => self.activity.outbound_bytes += bytes,
            (Status::LocalProtection, CompletionKind::Read) => self.activity.completion_queue_errors += 1,
            _ => {}
        }
        out.push(Event::Completion(Completion {
            queue_pair: self.queue_pair,
            id: sent.id,
            kind: sent.kind,
            status: sent.status,
            len_bytes: sent.len_bytes,
            buffer: None,
            invalidated: None,
        }));
    }

    /// Completes everything that is left as flushed. The queue pair has ended.
    pub fn flush(&mut self, out: &mut Vec<Event>) {
        for mut sent in std::mem::take(&mut self.sent) {
            if sent.status == Status::Success {
                sent.status = Status::Flushed;
            }
            self.finish(sent, out);
        }
        let queue_pair = self.queue_pair;
        for (id, request) in self.waiting.drain(..) {
            out.push(Event::Completion(flushed(queue_pair, id, request.kind())));
        }
        for receive in std::mem::take(&mut self.receives) {
            self.staging.give_back(receive.slot);
            out.push(Event::Completion(flushed(queue_pair, receive.id, CompletionKind::Receive)));
        }
        for (id, _) in self.waiting_receives.drain(..) {
            out.push(Event::Completion(flushed(queue_pair, id, CompletionKind::Receive)));
        }
    }
}

/// The low bit of a request's number.
const RECEIVE: u64 = 1;

pub(super) fn flushed(queue_pair: QueuePairId, id: WorkId, kind: CompletionKind) -> Completion {
    Completion {
        queue_pair,
        id,
        kind,
        status: Status::Flushed,
        len_bytes: 0,
        buffer: None,
        invalidated: None,
    }
}

pub(super) fn status_of(status: c_int) -> Status {
    match status {
        IBV_WC_SUCCESS => Status::Success,
        IBV_WC_WR_FLUSH_ERR => Status::Flushed,
        IBV_WC_LOC_LEN_ERR => Status::LocalLength,
        IBV_WC_LOC_PROT_ERR => Status::LocalProtection,
        IBV_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        IBV_WC_REM_INV_REQ_ERR | IBV_WC_REM_OP_ERR => Status::RemoteOperation,
        IBV_WC_RETRY_EXC_ERR | IBV_WC_RNR_RETRY_EXC_ERR => Status::RetriesExceeded,
        other => Status::Failed(other as u32),
    }
}
