//! The way out: posted work and answers to the peer's reads, cut into FPDUs.
//!
//! Messages are sent whole, one after the other: siw takes no interleaving of two tagged messages. Work of the send queue and
//! read responses take turns.

use super::*;
use crate::ddp::{self, AtomicRequest, Header, Opcode, ReadRequest};
use crate::framing::{Cut, Head, Outgoing, Place};

/// Payload of a large FPDU: a multiple of pages and sectors below the longest ULPDU.
const LARGE_PAYLOAD_BYTES: usize = 61_440;

/// FPDUs are cut as their Sends are posted, up to this many bytes and one FPDU more.
const CUT_BYTES_MAX: usize = 512 << 10;

/// A Send that is longer than this is cut only when it leaves: the bytes of its CRC should be in the
/// processor's cache then.
const CUT_MESSAGE_BYTES_MAX: usize = 68 << 10;

/// FPDUs for whose description an idle connection keeps space.
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
    body_bytes: usize,
    sent: usize,
    origin: Origin,
}

enum Body {
    /// From a place on.
    Payload(Payload, Place),
    /// The payload lies with the FPDUs that are being cut.
    Lent,
    /// A region that the peer reads, from there on: taken from it FPDU by FPDU.
    Region { stag: Stag, at: usize },
}

impl Body {
    fn of(payload: Payload) -> Self {
        Self::Payload(payload, Place::default())
    }
}

impl Message {
    fn new(opcode: Opcode, address: Address, head: Head, payload: Payload, origin: Origin) -> Self {
        let body_bytes = payload.len();
        Self { opcode, address, head, body: Body::of(payload), body_bytes, sent: 0, origin }
    }
}

enum Address {
    Tagged(Stag, u64),
    Untagged { invalidate: Stag, sequence: u32 },
}

enum Origin {
    Work(u64),
    /// A Read response, which keeps the region that the peer reads busy.
    Response {
        source: Stag,
    },
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
    /// FPDUs that were cut when they were posted; their memory is that of the FPDUs that were sent last.
    outgoing: Outgoing,
    /// All FPDUs in `outgoing`.
    cut: Cut,
    response_turn: bool,
    terminate: Option<Vec<u8>>,
    send_sequence: u32,
    read_sequence: u32,
    atomic_sequence: u32,
    request_id: u32,
}

impl Transmitter {
    pub(super) fn prefetch(&mut self) {
        self.outgoing.prefetch();
    }

    pub(super) fn work_count(&self) -> usize {
        self.entries.len()
    }

    /// Whether anything waits to be sent.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.outgoing.is_empty()
            || !self.entries.is_empty()
            || !self.inbound.is_empty()
            || self.current.is_some()
            || self.terminate.is_some()
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
            if let InboundRead::Read { request, .. } = read
                && let Some(source) = request.held_source()
            {
                memory.set_busy(source, false);
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
                Message::new(opcode, address, head, payload, origin)
            }
            Work::Immediate { data, solicited } => {
                let opcode = if solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                self.send_sequence = self.send_sequence.wrapping_add(1);
                let address = Address::Untagged { invalidate: Stag(0), sequence: self.send_sequence };
                let head = Head::new(&data.to_be_bytes());
                Message::new(opcode, address, head, Payload::new(), origin)
            }
            Work::Write { payload, stag, offset } => {
                Message::new(Opcode::Write, Address::Tagged(stag, offset), Head::EMPTY, payload, origin)
            }
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
        Message::new(opcode, address, Head::new(head), Payload::new(), Origin::Other)
    }

    fn start_response(&mut self) -> Option<Message> {
        match self.inbound.pop_front()? {
            InboundRead::Read { request, at } => {
                let (stag, body_bytes) = (request.source, request.len_bytes as usize);
                let body = if body_bytes == 0 { Body::of(Payload::new()) } else { Body::Region { stag, at } };
                let origin =
                    request.held_source().map_or(Origin::Other, |source| Origin::Response { source });
                Some(Message {
                    opcode: Opcode::ReadResponse,
                    address: Address::Tagged(request.sink, request.sink_offset),
                    head: Head::EMPTY,
                    body,
                    body_bytes,
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
                Some(Message::new(Opcode::AtomicResponse, address, head, Payload::new(), Origin::Other))
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

/// Payload that an FPDU takes beside a head of this many bytes: whole words, so that only a message's last FPDU is padded.
const fn payload_room(room: usize, head_bytes: usize) -> usize {
    (room & !3).saturating_sub(head_bytes.next_multiple_of(4))
}

/// Of a payload of which `left` bytes are to be sent, up to `room` bytes: if more follow, they begin with a page, so that the CRC of each
/// whole page is kept with it and kernels copy from the start of one. A short FPDU is not made much shorter for that.
fn to_page(out: &Outgoing, left: usize, room: usize) -> usize {
    if left <= room {
        return room;
    }
    let behind = out.behind_page(room);
    if behind > room / 8 || !behind.is_multiple_of(4) { room } else { room - behind }
}

/// A tagged message of at least this length has one page of its memory in its first FPDU. Sixteen bytes of headers lie before that: if a
/// kernel puts them at the start of a page, it copies from the start of one page to behind the start of another. Some processors (AMD Zen 3)
/// move a string to a few bytes behind its place in a page ten times slower than elsewhere; FPDUs after the first lie better.
const PAGE_FIRST_FROM_BYTES: usize = 16 << 10;

/// Outcome of sending some bytes.
#[derive(Debug)]
pub enum Transmitted {
    /// There were none.
    Nothing,
    All,
    /// Those that are still to be sent, before all others.
    Rest(Payload),
}

impl Connection {
    /// Bytes for TCP, about `len_bytes_max` of them, as slices of payload and of headers; `None` if there is nothing to send.
    /// They have to be sent whole and in order.
    pub fn poll_transmit(
        &mut self,
        memory: &mut Memory,
        len_bytes_max: usize,
        now: Monotonic,
    ) -> Option<Payload> {
        match self.transmit(memory, len_bytes_max, now, |_| 0) {
            Transmitted::Rest(bytes) => Some(bytes),
            Transmitted::All | Transmitted::Nothing => None,
        }
    }

    /// As [`Self::poll_transmit`]: `send` is shown the FPDUs in place, and says how many bytes TCP took.
    /// Start-up frames, a Terminate and FPDUs with markers are not shown to it; they are rest.
    pub fn transmit(
        &mut self,
        memory: &mut Memory,
        len_bytes_max: usize,
        now: Monotonic,
        send: impl FnOnce(&Outgoing) -> usize,
    ) -> Transmitted {
        if let Some(frame) = self.start.take_frame() {
            if self.state == State::Terminating {
                self.deadline = Some(now);
            }
            return Transmitted::Rest(Payload::from(Buf::from(&frame[..])));
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
            let (mut out, mut cut) = self.take_cut();
            let payload = Payload::from(Buf::from(&payload[..]));
            cut += out.push_whole(&header, &[], payload, self.sums_frames());
            return self.hand_out(&out, cut.len_bytes, |_| 0);
        }
        if self.state != State::Established || self.hold_until.is_some_and(|hold| now < hold) {
            return Transmitted::Nothing;
        }
        let transmitter = &self.transmitter;
        if transmitter.outgoing.is_empty() && transmitter.current.is_none() && !self.start_message(memory) {
            self.push_completions();
            return Transmitted::Nothing;
        }
        let (mut out, mut cut) = self.take_cut();
        while cut.len_bytes < len_bytes_max && cut.summed_bytes < self.config.summed_bytes_max {
            if self.transmitter.current.is_none() && !self.start_message(memory) {
                break;
            }
            match self.next_fpdu(memory, &mut out) {
                Ok(fpdu) => cut += fpdu,
                Err(code) => {
                    self.terminate(code.into(), now);
                    break;
                }
            }
        }
        self.push_completions();
        let transmitted =
            if out.is_empty() { Transmitted::Nothing } else { self.hand_out(&out, cut.len_bytes, send) };
        if let Some(message) = &mut self.transmitter.current
            && let Body::Lent = message.body
            && let Some((payload, from)) = out.take_back()
        {
            message.body = Body::Payload(payload, from);
        }
        // An idle connection keeps little.
        out.clear(SPARE_FPDUS_MAX);
        self.transmitter.outgoing = out;
        transmitted
    }

    /// Whether CRCs are made as FPDUs are cut: with markers they are made where these are put in.
    fn sums_frames(&self) -> bool {
        self.agreed.crc && !self.agreed.markers
    }

    fn hand_out(
        &mut self,
        out: &Outgoing,
        len_bytes: usize,
        send: impl FnOnce(&Outgoing) -> usize,
    ) -> Transmitted {
        self.counters.sent_fpdus += out.len() as u64;
        let (rest, len_bytes) = if self.agreed.markers {
            let marked = self.markers.join(out, self.agreed.crc);
            let len_bytes = marked.len();
            (Some(marked), len_bytes)
        } else {
            (out.rest(send(out)), len_bytes)
        };
        self.counters.sent_bytes += len_bytes as u64;
        rest.map_or(Transmitted::All, Transmitted::Rest)
    }

    fn take_cut(&mut self) -> (Outgoing, Cut) {
        let transmitter = &mut self.transmitter;
        (std::mem::take(&mut transmitter.outgoing), std::mem::take(&mut transmitter.cut))
    }

    /// A Send that is posted while there is nothing before it, and is not long, is cut at once. `false`: it has to wait.
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
        // The rest waits uncut until the owner can send: cut FPDUs count as sent.
        let Cut { len_bytes, summed_bytes } = transmitter.cut;
        if !is_first || len_bytes >= CUT_BYTES_MAX || summed_bytes >= self.config.summed_bytes_max {
            return false;
        }
        // Only now: the size of an FPDU is agreed in the negotiation, and a Send may be posted before that.
        let (crc, room) = (self.sums_frames(), self.room(ddp::UNTAGGED_HEADER_BYTES));
        let body_bytes = payload.len();
        if head.len() > room || body_bytes > CUT_MESSAGE_BYTES_MAX.max(payload_room(room, head.len())) {
            return false;
        }
        let transmitter = &mut self.transmitter;
        transmitter.send_sequence = transmitter.send_sequence.wrapping_add(1);
        self.counters.send_bytes_out += body_bytes as u64;
        let out = &mut transmitter.outgoing;
        out.begin(std::mem::take(payload), Place::default());
        let (mut head, mut sent, mut message_offset) = (head, 0, 0);
        loop {
            let (left, room) = (body_bytes - sent, payload_room(room, head.len()));
            let take = to_page(out, left, room).min(left);
            let last = take == left;
            let header = Header::Untagged {
                opcode: send_opcode(*flags),
                last,
                invalidate: flags.invalidate.unwrap_or(Stag(0)),
                queue: ddp::QUEUE_SEND,
                sequence: transmitter.send_sequence,
                message_offset,
            };
            transmitter.cut += out.push(&header, head, take, crc);
            message_offset += (head.len() + take) as u32;
            if last {
                break;
            }
            (head, sent) = (&[], sent + take);
        }
        self.push_sent(id, message_offset as usize);
        true
    }

    /// Makes a message the current one; `false` if none may start.
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

    /// Payload of one FPDU, with the message's head before it.
    fn room(&self, header_bytes: usize) -> usize {
        (self.agreed.ulpdu_bytes_max - header_bytes).min(LARGE_PAYLOAD_BYTES)
    }

    /// Cuts the next FPDU off the current message.
    ///
    /// # Errors
    /// The region that the peer reads is gone since its request was checked.
    fn next_fpdu(&mut self, memory: &mut Memory, out: &mut Outgoing) -> Result<Cut, TerminateCode> {
        let crc = self.sums_frames();
        let rooms = (self.room(ddp::TAGGED_HEADER_BYTES), self.room(ddp::UNTAGGED_HEADER_BYTES));
        let message = self.transmitter.current.as_mut().ok_or(TerminateCode::RDMAP_LOCAL_CATASTROPHIC)?;
        if let Body::Payload(payload, from) = &mut message.body {
            out.begin(std::mem::take(payload), *from);
            message.body = Body::Lent;
        }
        let is_tagged = matches!(message.address, Address::Tagged(..));
        let room = if is_tagged { rooms.0 } else { rooms.1 };
        let (first, left) = (message.sent == 0, message.body_bytes - message.sent);
        let head = if first { message.head } else { Head::EMPTY };
        let room = payload_room(room, head.len());
        let behind_page = || match message.body {
            // Registered memory begins with a page, as a rule.
            Body::Region { at, .. } => at % ALIGN_BYTES,
            _ => out.behind_page(0),
        };
        let is_long = first && left >= PAGE_FIRST_FROM_BYTES && room >= PAGE_FIRST_FROM_BYTES;
        let take = match message.body {
            _ if is_long && is_tagged && behind_page() == 0 => ALIGN_BYTES,
            Body::Lent => to_page(out, left, room),
            _ => room,
        };
        let take = take.min(left);
        if let Body::Region { stag, at } = &mut message.body {
            if !memory.is_valid(*stag) {
                return Err(TerminateCode::RDMAP_INVALID_STAG);
            }
            out.begin(memory.readable(*stag, *at, take).map_err(remote_code)?, Place::default());
            *at += take;
        }
        let last = take == left;
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
        let cut = out.push(&header, &head, take, crc);
        message.sent += take;
        if last && let Some(message) = self.transmitter.current.take() {
            match message.origin {
                Origin::Work(number) => {
                    let len_bytes = message.head.len() + message.body_bytes;
                    self.transmitter.complete(number, WorkStatus::Success, len_bytes, None);
                }
                Origin::Response { source } => memory.set_busy(source, false),
                Origin::Other => {}
            }
        }
        Ok(cut)
    }
}
