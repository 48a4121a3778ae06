//! The way out: posted work and answers to the peer's reads, cut into FPDUs.
//!
//! Messages are sent whole, one after the other: siw takes no interleaving of two tagged messages. Work of the send queue and
//! read responses take turns.

use super::*;
use crate::ddp::{self, AtomicRequest, Header, Opcode, ReadRequest};
use crate::framing::{Head, Outgoing};

/// Payload of a large FPDU: a multiple of pages and sectors below the longest ULPDU.
const LARGE_PAYLOAD_BYTES: usize = 61_440;

/// Of FPDUs that are cut as their Sends are posted, at most so many bytes and one FPDU more.
const CUT_BYTES_MAX: usize = 512 << 10;

/// FPDUs for whose description an idle connection keeps room.
const SPARE_FPDUS_MAX: usize = 192;

pub(super) enum Work {
    Send { head: Head, payload: Payload, flags: SendFlags },
    Immediate { data: u64, solicited: bool },
    Write { payload: Payload, stag: Stag, offset: u64 },
    Read { sink: (Stag, u64), len_bytes: u32, source: (Stag, u64) },
    Atomic { target: (Stag, u64), operation: AtomicOperation },
}

struct Entry {
    id: WorkId,
    kind: CompletionKind,
    /// Taken when its message starts.
    work: Option<Work>,
    done: Option<Done>,
}

/// How an entry ended.
struct Done {
    status: WorkStatus,
    len_bytes: usize,
    original: Option<u64>,
}

impl Entry {
    fn completion(id: WorkId, kind: CompletionKind, done: Done) -> Completion {
        let Done { status, len_bytes, original } = done;
        Completion { len_bytes, original, ..Completion::new(id, kind, status) }
    }
}

/// A read or atomic of ours that waits for its answer.
pub(super) struct OutstandingRead {
    /// Counted from the connection's first work.
    entry: u64,
    pub kind: OutstandingKind,
}

pub(super) enum OutstandingKind {
    Read { sink: Stag, next_offset: u64, remaining: u32, len_bytes: u32 },
    Atomic { request_id: u32 },
}

/// A read or atomic of the peer that waits for our answer.
pub(super) enum InboundRead {
    Read { request: ReadRequest, at: usize },
    Atomic { request_id: u32, original: u64 },
}

/// A message on its way out.
struct Message {
    opcode: Opcode,
    /// Tagged: STag and offset. Untagged: the invalidate word, sequence.
    address: Address,
    /// Follows the DDP header of its first segment.
    head: Head,
    body: Body,
    sent: usize,
    origin: Origin,
}

enum Body {
    Payload(Payload),
    /// A region that the peer reads: taken from it FPDU by FPDU.
    Region {
        stag: Stag,
        at: usize,
        len_bytes: usize,
    },
}

impl Body {
    const EMPTY: fn() -> Self = || Self::Payload(Payload::new());

    /// See [`PAGE_FIRST_FROM_BYTES`].
    fn is_long_at_page(&self) -> bool {
        let behind_page = match self {
            Self::Payload(payload) => payload.behind_page(0),
            // Registered memory begins with a page, as a rule.
            Self::Region { at, .. } => at % ALIGN_BYTES,
        };
        self.len() >= PAGE_FIRST_FROM_BYTES && behind_page == 0
    }

    fn len(&self) -> usize {
        match self {
            Self::Payload(payload) => payload.len(),
            Self::Region { len_bytes, .. } => *len_bytes,
        }
    }
}

enum Address {
    Tagged(Stag, u64),
    Untagged { invalidate: Stag, sequence: u32 },
}

enum Origin {
    Work(u64),
    Response { source: Stag },
    Other,
}

#[derive(Default)]
pub(super) struct Transmitter {
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    /// Number of the next entry to start.
    next: u64,
    outstanding: VecDeque<OutstandingRead>,
    inbound: VecDeque<InboundRead>,
    current: Option<Message>,
    /// What was cut as it was posted; its room is that of the FPDUs that were sent last.
    outgoing: Outgoing,
    /// Bytes of FPDUs in `outgoing`, and of payload that their CRCs had to be made of.
    cut_bytes: (usize, usize),
    response_turn: bool,
    terminate: Option<Vec<u8>>,
    send_sequence: u32,
    read_sequence: u32,
    atomic_sequence: u32,
    request_id: u32,
}

impl Transmitter {
    pub(super) fn work_count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, id: WorkId, kind: CompletionKind, work: Work) {
        self.entries.push_back(Entry { id, kind, work: Some(work), done: None });
    }

    pub(super) fn push_terminate(&mut self, payload: Vec<u8>) {
        self.terminate = Some(payload);
    }

    pub(super) fn inbound_count(&self) -> usize {
        self.inbound.len()
    }

    pub(super) fn push_inbound(&mut self, read: InboundRead) {
        self.inbound.push_back(read);
    }

    pub(super) fn first_outstanding(&mut self) -> Option<&mut OutstandingRead> {
        self.outstanding.front_mut()
    }

    pub(super) fn peek_outstanding(&self) -> Option<&OutstandingRead> {
        self.outstanding.front()
    }

    /// The first outstanding read or atomic is answered.
    pub(super) fn complete_outstanding(&mut self, original: Option<u64>) {
        let Some(read) = self.outstanding.pop_front() else { return };
        let len_bytes = match read.kind {
            OutstandingKind::Read { len_bytes, .. } => len_bytes as usize,
            OutstandingKind::Atomic { .. } => 8,
        };
        self.complete(read.entry, WorkStatus::Success, len_bytes, original);
    }

    fn complete(&mut self, entry: u64, status: WorkStatus, len_bytes: usize, original: Option<u64>) {
        let Some(entry) = entry.checked_sub(self.first).and_then(|at| self.entries.get_mut(at as usize))
        else {
            return;
        };
        entry.done = Some(Done { status, len_bytes, original });
    }

    /// The next completion in posting order.
    pub(super) fn pop_complete(&mut self) -> Option<Completion> {
        let first = self.entries.front_mut()?;
        let (id, kind, done) = (first.id, first.kind, first.done.take()?);
        self.entries.pop_front();
        self.first += 1;
        Some(Entry::completion(id, kind, done))
    }

    pub(super) fn flush(&mut self) -> impl Iterator<Item = Completion> + use<> {
        let entries = std::mem::take(&mut self.entries);
        self.first += entries.len() as u64;
        self.next = self.first;
        entries.into_iter().map(|entry| match entry.done {
            Some(done) => Entry::completion(entry.id, entry.kind, done),
            None => Completion::new(entry.id, entry.kind, WorkStatus::Flushed),
        })
    }

    /// Lets go of the regions that unsent responses would have read.
    pub(super) fn release(&mut self, memory: &mut Memory) {
        for read in self.inbound.drain(..) {
            if let InboundRead::Read { request, .. } = read {
                memory.set_busy(request.source, false);
            }
        }
        if let Some(Message { origin: Origin::Response { source }, .. }) = self.current.take() {
            memory.set_busy(source, false);
        }
        self.outgoing.clear(0);
        for read in self.outstanding.drain(..) {
            if let OutstandingKind::Read { sink, .. } = read.kind {
                memory.set_busy(sink, false);
            }
        }
    }

    /// Whether the next work of the send queue may start.
    fn startable(&self, agreed: &Agreed) -> bool {
        let at = (self.next - self.first) as usize;
        match self.entries.get(at).and_then(|entry| entry.work.as_ref()) {
            None => false,
            Some(Work::Read { .. } | Work::Atomic { .. }) => {
                self.outstanding.len() < usize::from(agreed.outbound_read_depth)
            }
            Some(Work::Send { flags, .. }) => !flags.fence || self.outstanding.is_empty(),
            Some(_) => true,
        }
    }

    fn start_work(&mut self, memory: &mut Memory, config: &Config) -> Option<Message> {
        let number = self.next;
        let work = self.entries.get_mut((number - self.first) as usize)?.work.take()?;
        self.next += 1;
        let origin = Origin::Work(number);
        let message = match work {
            Work::Send { head, payload, flags } => {
                let opcode = send_opcode(flags);
                self.send_sequence = self.send_sequence.wrapping_add(1);
                let invalidate = flags.invalidate.unwrap_or(Stag(0));
                let address = Address::Untagged { invalidate, sequence: self.send_sequence };
                Message { opcode, address, head, body: Body::Payload(payload), sent: 0, origin }
            }
            Work::Immediate { data, solicited } => {
                let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                self.send_sequence = self.send_sequence.wrapping_add(1);
                let address = Address::Untagged { invalidate: Stag(0), sequence: self.send_sequence };
                let head = Head::new(&data.to_be_bytes());
                Message { opcode, address, head, body: Body::EMPTY(), sent: 0, origin }
            }
            Work::Write { payload, stag, offset } => Message {
                opcode: Opcode::Write,
                address: Address::Tagged(stag, offset),
                head: Head::EMPTY,
                body: Body::Payload(payload),
                sent: 0,
                origin,
            },
            Work::Read { sink: (sink, sink_offset), len_bytes, source: (source, source_offset) } => {
                let wish = Wish::Sink;
                if len_bytes > 0
                    && memory
                        .check(sink, sink_offset, u64::from(len_bytes), wish, config.domain, config.stream)
                        .is_err()
                {
                    self.complete(number, WorkStatus::LocalProtection, 0, None);
                    return None;
                }
                memory.set_busy(sink, true);
                let kind =
                    OutstandingKind::Read { sink, next_offset: sink_offset, remaining: len_bytes, len_bytes };
                self.outstanding.push_back(OutstandingRead { entry: number, kind });
                let request = ReadRequest { sink, sink_offset, len_bytes, source, source_offset };
                self.request(Opcode::ReadRequest, &request.encode())
            }
            Work::Atomic { target: (target, target_offset), operation } => {
                self.request_id = self.request_id.wrapping_add(1);
                let request_id = self.request_id;
                let kind = OutstandingKind::Atomic { request_id };
                self.outstanding.push_back(OutstandingRead { entry: number, kind });
                let request = AtomicRequest { request_id, target, target_offset, operation };
                self.request(Opcode::AtomicRequest, &request.encode())
            }
        };
        Some(message)
    }

    fn request(&mut self, opcode: Opcode, head: &[u8]) -> Message {
        self.read_sequence = self.read_sequence.wrapping_add(1);
        let address = Address::Untagged { invalidate: Stag(0), sequence: self.read_sequence };
        let head = Head::new(head);
        Message { opcode, address, head, body: Body::EMPTY(), sent: 0, origin: Origin::Other }
    }

    fn start_response(&mut self) -> Option<Message> {
        match self.inbound.pop_front()? {
            InboundRead::Read { request, at } => {
                let (stag, len_bytes) = (request.source, request.len_bytes as usize);
                let body = if len_bytes == 0 { Body::EMPTY() } else { Body::Region { stag, at, len_bytes } };
                let address = Address::Tagged(request.sink, request.sink_offset);
                let origin = Origin::Response { source: stag };
                Some(Message {
                    opcode: Opcode::ReadResponse,
                    address,
                    head: Head::EMPTY,
                    body,
                    sent: 0,
                    origin,
                })
            }
            InboundRead::Atomic { request_id, original } => {
                self.atomic_sequence = self.atomic_sequence.wrapping_add(1);
                let mut answer = [0; ddp::ATOMIC_RESPONSE_BYTES];
                answer[..4].copy_from_slice(&request_id.to_be_bytes());
                answer[4..].copy_from_slice(&original.to_be_bytes());
                let head = Head::new(&answer);
                let address = Address::Untagged { invalidate: Stag(0), sequence: self.atomic_sequence };
                let (opcode, origin) = (Opcode::AtomicResponse, Origin::Other);
                Some(Message { opcode, address, head, body: Body::EMPTY(), sent: 0, origin })
            }
        }
    }
}

const fn send_opcode(flags: SendFlags) -> Opcode {
    match (flags.solicited, flags.invalidate) {
        (false, None) => Opcode::Send,
        (false, Some(_)) => Opcode::SendInvalidate,
        (true, None) => Opcode::SendSolicited,
        (true, Some(_)) => Opcode::SendSolicitedInvalidate,
    }
}

/// The header of a Send that is whole in one FPDU.
fn send_header(flags: &SendFlags, sequence: u32) -> Header {
    Header::Untagged {
        opcode: send_opcode(*flags),
        last: true,
        invalidate: flags.invalidate.unwrap_or(Stag(0)),
        queue: ddp::QUEUE_SEND,
        sequence,
        message_offset: 0,
    }
}

/// Payload that an FPDU takes beside a head of so many bytes: whole words, so that only a message's last FPDU is padded.
const fn payload_room(room: usize, head_bytes: usize) -> usize {
    (room & !3).saturating_sub(head_bytes.next_multiple_of(4))
}

/// Of a payload from `at`, up to `room` bytes: where more follow, they begin with a page, so that the CRC of each whole page is kept
/// with it. A short FPDU is not made much shorter for that.
fn to_page(payload: &Payload, at: usize, room: usize) -> usize {
    if payload.len() <= at + room {
        return room;
    }
    let behind = payload.behind_page(at + room);
    if behind > room / 8 || !behind.is_multiple_of(4) { room } else { room - behind }
}

/// A tagged message at least so long has one page of its memory in its first FPDU. Sixteen bytes of headers lie before that: where a
/// kernel puts them at the start of a page, it copies from the start of one page to behind the start of another. Some processors (AMD Zen 3)
/// move a string to a few bytes behind its place in a page ten times slower than elsewhere; FPDUs after the first lie better.
const PAGE_FIRST_FROM_BYTES: usize = 16 << 10;

fn unsummed_bytes(payload: &Payload) -> usize {
    payload.parts().iter().map(crate::crc::unsummed_bytes).sum()
}

impl Connection {
    /// Bytes for TCP, about `len_bytes_max` of them, as slices of payload and of headers; `None` where there is nothing to send.
    /// They have to be sent whole and in order.
    pub fn poll_transmit(
        &mut self,
        memory: &mut Memory,
        len_bytes_max: usize,
        now: Monotonic,
    ) -> Option<Payload> {
        if let Some(frame) = self.start_out.take() {
            if self.state == State::Terminating {
                self.deadline = Some(now);
            }
            return Some(Payload::from(sys::Buf::from(&frame[..])));
        }
        if let (State::Terminating, Some(payload)) = (self.state, self.transmitter.terminate.take()) {
            self.deadline = Some(now);
            let header = Header::Untagged {
                opcode: Opcode::Terminate,
                last: true,
                invalidate: Stag(0),
                queue: ddp::QUEUE_TERMINATE,
                sequence: 1,
                message_offset: 0,
            };
            let mut out = self.take_cut().0;
            let payload = Payload::from(sys::Buf::from(&payload[..]));
            out.push(&header, &[], payload, self.sums_frames());
            return Some(self.join(&mut out));
        }
        if self.state != State::Established || self.hold_until.is_some_and(|hold| now < hold) {
            return None;
        }
        let transmitter = &self.transmitter;
        if transmitter.outgoing.is_empty() && transmitter.current.is_none() && !self.start_message(memory) {
            self.push_completions();
            return None;
        }
        let (mut out, (mut total, mut summed)) = self.take_cut();
        while total < len_bytes_max && summed < self.config.summed_bytes_max {
            if self.transmitter.current.is_none() && !self.start_message(memory) {
                break;
            }
            match self.next_fpdu(memory, &mut out) {
                Ok((len_bytes, unsummed_bytes)) => {
                    total += len_bytes;
                    summed += unsummed_bytes;
                }
                Err(code) => {
                    self.terminate(code.into(), now);
                    break;
                }
            }
        }
        self.push_completions();
        let bytes = (!out.is_empty()).then(|| self.join(&mut out));
        // An idle connection keeps little.
        out.clear(SPARE_FPDUS_MAX);
        self.transmitter.outgoing = out;
        bytes
    }

    /// Whether CRCs are made as FPDUs are cut: with markers they are made where these are put in.
    fn sums_frames(&self) -> bool {
        self.agreed.crc && !self.agreed.markers
    }

    fn join(&mut self, out: &mut Outgoing) -> Payload {
        self.counters.sent_fpdus += out.len() as u64;
        let bytes = match self.agreed.markers {
            true => self.markers.join(out, self.agreed.crc),
            false => out.take(),
        };
        self.counters.sent_bytes += bytes.len() as u64;
        bytes
    }

    fn take_cut(&mut self) -> (Outgoing, (usize, usize)) {
        let transmitter = &mut self.transmitter;
        (std::mem::take(&mut transmitter.outgoing), std::mem::take(&mut transmitter.cut_bytes))
    }

    /// A Send that is posted while there is nothing before it, and leaves whole in one FPDU, is cut at once. `false`: it has to wait.
    pub(super) fn cut_at_once(
        &mut self,
        id: WorkId,
        head: &[u8],
        payload: &mut Payload,
        flags: &SendFlags,
    ) -> bool {
        let transmitter = &self.transmitter;
        let is_first = transmitter.entries.is_empty()
            && transmitter.current.is_none()
            && transmitter.inbound.is_empty()
            && self.state == State::Established;
        // The rest waits uncut until the owner can send: what is cut counts as sent.
        let (cut_bytes, summed_bytes) = transmitter.cut_bytes;
        if !is_first || cut_bytes >= CUT_BYTES_MAX || summed_bytes >= self.config.summed_bytes_max {
            return false;
        }
        // Only now: what an FPDU takes is agreed in the negotiation, before which a Send may be posted.
        let (crc, room) = (self.sums_frames(), self.room(ddp::UNTAGGED_HEADER_BYTES));
        let transmitter = &mut self.transmitter;
        if head.len() > room || payload.len() > payload_room(room, head.len()) {
            return false;
        }
        transmitter.send_sequence = transmitter.send_sequence.wrapping_add(1);
        let header = send_header(flags, transmitter.send_sequence);
        self.counters.send_bytes_out += payload.len() as u64;
        let len_bytes = head.len() + payload.len();
        let unsummed_bytes = if self.agreed.crc { unsummed_bytes(payload) } else { 0 };
        let fpdu_bytes = transmitter.outgoing.push(&header, head, std::mem::take(payload), crc);
        transmitter.cut_bytes.0 += fpdu_bytes;
        transmitter.cut_bytes.1 += unsummed_bytes;
        let sent = Completion::new(id, CompletionKind::Send, WorkStatus::Success);
        self.push_completion(Completion { len_bytes, ..sent });
        true
    }

    /// Makes a message the current one; `false` where none may start.
    fn start_message(&mut self, memory: &mut Memory) -> bool {
        loop {
            let work = self.transmitter.startable(&self.agreed);
            let response = !self.transmitter.inbound.is_empty();
            let take_response = match (work, response) {
                (false, false) => return false,
                (true, true) => self.transmitter.response_turn,
                (_, only) => only,
            };
            self.transmitter.response_turn = !take_response;
            self.transmitter.current = if take_response {
                self.transmitter.start_response()
            } else {
                self.transmitter.start_work(memory, &self.config)
            };
            if self.transmitter.current.is_some() {
                return true;
            }
        }
    }

    /// Payload of one FPDU, with what stands before it.
    fn room(&self, header_bytes: usize) -> usize {
        (self.agreed.ulpdu_bytes_max - header_bytes).min(LARGE_PAYLOAD_BYTES)
    }

    /// Cuts the next FPDU off the current message; its length, and how many bytes of payload its CRC had to be made of.
    ///
    /// # Errors
    /// The region that the peer reads is gone since its request was checked.
    fn next_fpdu(
        &mut self,
        memory: &mut Memory,
        out: &mut Outgoing,
    ) -> Result<(usize, usize), TerminateCode> {
        let crc = self.sums_frames();
        let rooms = (self.room(ddp::TAGGED_HEADER_BYTES), self.room(ddp::UNTAGGED_HEADER_BYTES));
        let message = self.transmitter.current.as_mut().ok_or(TerminateCode::RDMAP_LOCAL_CATASTROPHIC)?;
        let is_tagged = matches!(message.address, Address::Tagged(..));
        let room = if is_tagged { rooms.0 } else { rooms.1 };
        let (first, body_bytes) = (message.sent == 0, message.body.len());
        let head = if first { message.head } else { Head::EMPTY };
        let take = match &message.body {
            body if first && body.is_long_at_page() && is_tagged && room >= PAGE_FIRST_FROM_BYTES => {
                ALIGN_BYTES
            }
            Body::Payload(payload) if crc => to_page(payload, message.sent, payload_room(room, head.len())),
            _ => payload_room(room, head.len()),
        };
        let take = take.min(body_bytes - message.sent);
        let payload = match &mut message.body {
            Body::Payload(payload) if take == body_bytes => std::mem::take(payload),
            Body::Payload(payload) => payload.slice(message.sent, take),
            Body::Region { stag, at, .. } => {
                if !memory.is_valid(*stag) {
                    return Err(TerminateCode::RDMAP_INVALID_STAG);
                }
                memory.readable(*stag, *at + message.sent, take).map_err(remote_code)?
            }
        };
        let last = message.sent + take == body_bytes;
        let header = match message.address {
            Address::Tagged(stag, offset) => {
                let offset = offset.wrapping_add(message.sent as u64);
                Header::Tagged { opcode: message.opcode, last, stag, offset }
            }
            Address::Untagged { invalidate, sequence } => Header::Untagged {
                opcode: message.opcode,
                last,
                invalidate,
                queue: message.opcode.queue(),
                sequence,
                message_offset: if first { 0 } else { (message.head.len() + message.sent) as u32 },
            },
        };
        let counter = match message.opcode {
            Opcode::Write => &mut self.counters.write_bytes_out,
            Opcode::ReadResponse => &mut self.counters.read_bytes_out,
            _ => &mut self.counters.send_bytes_out,
        };
        *counter += take as u64;
        let unsummed_bytes = if self.agreed.crc { unsummed_bytes(&payload) } else { 0 };
        let len_bytes = out.push(&header, &head, payload, crc);
        message.sent += take;
        if last && let Some(message) = self.transmitter.current.take() {
            match message.origin {
                Origin::Work(number) => {
                    let len_bytes = message.head.len() + body_bytes;
                    self.transmitter.complete(number, WorkStatus::Success, len_bytes, None);
                }
                Origin::Response { source } => memory.set_busy(source, false),
                Origin::Other => {}
            }
        }
        Ok((len_bytes, unsummed_bytes))
    }
}
