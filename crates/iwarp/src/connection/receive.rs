//! The way in: bytes of TCP to FPDUs, FPDUs to placements, deliveries and answers.
//!
//! A whole FPDU has its CRC checked before anything is placed. Only if a large one is taken straight into registered memory or a
//! posted receive ([`Connection::direct_target`]) the bytes are there before the check: they are not delivered until it has passed.

use super::posted::{ALIGNED_BYTES_LEAST, Posted, Room};
use super::receiver::{Direct, Target};
use super::transmit::{InboundRead, OutstandingKind};
use super::*;
use crate::crc::Crc32c;
use crate::ddp::{self, AtomicRequest, Header, Opcode, ReadRequest};
use crate::framing::{Framed, LENGTH_BYTES, fpdu_bytes, frame, pad_bytes, trailer_bytes};

/// If at least this many bytes are still to come, the part of a payload that has come is placed, not
/// staged.
pub const DIRECT_BYTES_MIN: usize = 16 * 1024;
/// The part of an FPDU of at least this length that has come is placed, not staged.
const LONG_FPDU_BYTES: usize = 2 * DIRECT_BYTES_MIN;
/// A message that shares the memory it was received in keeps at most this many times its own length: a
/// header of SMB2 (64 bytes) may keep the 32 KiB of an ordinary receive, a READ's answer of half a KiB
/// the 256 KiB of a large one.
const RETAINED_TIMES_MAX: usize = 512;
/// Staging that an idle connection may keep.
const STAGED_BYTES_IDLE: usize = 4096;

/// A receive that a message has filled, before its details are known.
const RECEIVED: Event =
    Event::Completion(Completion::new(WorkId(0), CompletionKind::Receive, WorkStatus::Success));

/// Where the owner may receive the next bytes of the stream straight into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectTarget {
    pub target: Target,
    /// Within the target, in bytes.
    pub at: usize,
    pub len_bytes: usize,
}

impl Connection {
    /// Takes bytes from TCP.
    pub fn handle_input(&mut self, bytes: &[u8], memory: &mut Memory, now: Monotonic) {
        self.handle_bytes(bytes, None, memory, now);
    }

    /// As [`Self::handle_input`] of the first `len_bytes` of a buffer. Short messages that came whole are given as views of it, if that does
    /// not keep too much memory: the owner that takes them up later finds them in the processor's cache, one behind the other.
    pub fn handle_shared_input(
        &mut self,
        input: &Buf,
        len_bytes: usize,
        memory: &mut Memory,
        now: Monotonic,
    ) {
        self.handle_bytes(input.get(..len_bytes).unwrap_or_default(), Some(input), memory, now);
    }

    /// `input`: the buffer that holds the bytes, if it may be shared.
    fn handle_bytes(&mut self, mut bytes: &[u8], input: Option<&Buf>, memory: &mut Memory, now: Monotonic) {
        self.counters.received_bytes += bytes.len() as u64;
        while !bytes.is_empty() && !matches!(self.state, State::Terminating | State::Closed) {
            if self.receiver.direct.is_some() {
                let taken = self.fill_direct(bytes, memory, now);
                bytes = &bytes[taken..];
            } else if self.receiver.staged.is_empty() {
                let used = self.consume(bytes, input, memory, now);
                if self.receiver.direct.is_none() && !matches!(self.state, State::Terminating | State::Closed)
                {
                    self.receiver.staged.extend_from_slice(&bytes[used..]);
                    bytes = &[];
                } else {
                    bytes = &bytes[used..];
                }
            } else {
                // Staged bytes are the beginning of one FPDU: it is completed, and the rest is handled where it lies.
                let mut staged = std::mem::take(&mut self.receiver.staged);
                let take = self.missing(&staged).min(bytes.len());
                staged.extend_from_slice(&bytes[..take]);
                bytes = &bytes[take..];
                let used = self.consume(&staged, None, memory, now);
                staged.drain(..used);
                if self.receiver.direct.is_some() && !staged.is_empty() {
                    // A trailer that is not whole is staged again.
                    let rest = std::mem::take(&mut staged);
                    let mut left = &rest[..];
                    while self.receiver.direct.is_some() && !left.is_empty() {
                        left = &left[self.fill_direct(left, memory, now)..];
                    }
                    staged = std::mem::take(&mut self.receiver.staged);
                    staged.extend_from_slice(left);
                }
                if staged.is_empty() && staged.capacity() > STAGED_BYTES_IDLE {
                    staged = Vec::new();
                }
                self.receiver.staged = staged;
            }
        }
        self.push_completions();
        if self.state == State::Closed {
            self.finish(memory);
        }
    }

    /// Where the next bytes of the stream belong, if they are many of one segment.
    pub fn direct_target(&self) -> Option<DirectTarget> {
        let direct = self.receiver.direct.as_ref().filter(|direct| direct.remaining > 0)?;
        Some(DirectTarget { target: direct.target, at: direct.at, len_bytes: direct.remaining })
    }

    /// The first `len_bytes` of the direct target are filled.
    pub(super) fn direct_received(&mut self, len_bytes: usize, memory: &mut Memory, now: Monotonic) {
        let Some(mut direct) = self.receiver.direct.take() else { return };
        let len_bytes = len_bytes.min(direct.remaining);
        self.counters.received_bytes += len_bytes as u64;
        match self.receiver.writable(direct.target, direct.at, len_bytes, memory) {
            Ok(filled) => direct.advance(filled),
            Err(failure) => self.terminate(failure, now),
        }
        self.receiver.direct = Some(direct);
    }

    /// Copies into the direct target; checks its trailer once that is there. Returns the bytes used.
    fn fill_direct(&mut self, bytes: &[u8], memory: &mut Memory, now: Monotonic) -> usize {
        let Some(mut direct) = self.receiver.direct.take() else { return 0 };
        if direct.remaining > 0 {
            let take = direct.remaining.min(bytes.len());
            match self.receiver.writable(direct.target, direct.at, take, memory) {
                Ok(room) => {
                    room.copy_from_slice(&bytes[..take]);
                    direct.advance(&bytes[..take]);
                }
                Err(failure) => self.terminate(failure, now),
            }
            self.receiver.direct = Some(direct);
            return take;
        }
        // The trailer is short: it waits in staging until it is whole.
        let trailer = trailer_bytes(direct.ulpdu_bytes);
        let missing = trailer - self.receiver.staged.len();
        let take = missing.min(bytes.len());
        self.receiver.staged.extend_from_slice(&bytes[..take]);
        if take < missing {
            self.receiver.direct = Some(direct);
            return take;
        }
        let received = std::mem::take(&mut self.receiver.staged);
        if let Target::Region(stag) = direct.target {
            memory.set_busy(stag, false);
        }
        let (pad, sum) = received.split_at(pad_bytes(direct.ulpdu_bytes));
        if let Some(crc) = direct.crc.as_mut() {
            crc.update(pad);
            if crc.wire_bytes() != sum {
                self.terminate(TerminateCode::MPA_CRC.into(), now);
                return take;
            }
        }
        self.counters.received_fpdus += 1;
        let (header, payload_bytes) = (direct.header, direct.payload_bytes());
        let finished = match direct.target {
            Target::Region(_) => self.finish_tagged(header, payload_bytes, memory),
            Target::Posted => self.finish_send(header, payload_bytes, memory),
        };
        if let Err(failure) = finished {
            self.terminate(failure, now);
        }
        take
    }

    /// How many bytes the beginning of an FPDU needs next: its header first, since the rest of a large one need not be staged. All
    /// there are, before FPDUs flow.
    fn missing(&self, staged: &[u8]) -> usize {
        /// Length and the longer of the headers.
        const HEAD_BYTES: usize = LENGTH_BYTES + ddp::UNTAGGED_HEADER_BYTES;
        match (self.state, staged) {
            (State::AwaitFirst | State::Established, [high, low, ..]) => {
                let whole = fpdu_bytes(usize::from(u16::from_be_bytes([*high, *low])));
                let wanted = if staged.len() < HEAD_BYTES { HEAD_BYTES.min(whole) } else { whole };
                wanted.saturating_sub(staged.len())
            }
            (State::AwaitFirst | State::Established, short) => LENGTH_BYTES - short.len(),
            _ => usize::MAX,
        }
    }

    /// Handles what is whole at the front of `bytes`; returns how much that was.
    fn consume(&mut self, bytes: &[u8], input: Option<&Buf>, memory: &mut Memory, now: Monotonic) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match self.state {
                State::AwaitRequest | State::AwaitReply | State::AwaitAccept if !rest.is_empty() => {
                    match self.handle_start(rest, now) {
                        Ok(0) => return used,
                        Ok(taken) => used += taken,
                        Err(()) => {
                            // Flushed and reported by the caller.
                            self.finish(memory);
                            return bytes.len();
                        }
                    }
                }
                State::AwaitFirst | State::Established => match frame(rest, self.agreed.crc) {
                    Framed::Incomplete(missing) => {
                        let is_long = missing >= DIRECT_BYTES_MIN || rest.len() + missing >= LONG_FPDU_BYTES;
                        if is_long || self.receiver.planned {
                            match self.begin_direct(rest, memory) {
                                Ok(taken) => used += taken,
                                Err(failure) => self.terminate(failure, now),
                            }
                        }
                        return used;
                    }
                    Framed::Corrupt => {
                        self.terminate(TerminateCode::MPA_CRC.into(), now);
                        return bytes.len();
                    }
                    Framed::Whole { ulpdu, len_bytes } => {
                        used += len_bytes;
                        self.counters.received_fpdus += 1;
                        self.first_fpdu();
                        if let Err(failure) = self.handle_segment(ulpdu, input, memory) {
                            self.terminate(failure, now);
                        }
                    }
                },
                _ => {
                    return if matches!(self.state, State::Terminating | State::Closed) {
                        bytes.len()
                    } else {
                        used
                    };
                }
            }
        }
    }

    /// The peer's first FPDU: from here on we may send.
    fn first_fpdu(&mut self) {
        if self.state == State::AwaitFirst {
            self.state = State::Established;
            self.deadline = None;
        }
    }

    /// Sets up direct placement of the partial FPDU at the front of `bytes`, if it is a tagged segment or one of a Send; returns
    /// bytes used.
    fn begin_direct(&mut self, bytes: &[u8], memory: &mut Memory) -> Result<usize, Failure> {
        let [high, low, ulpdu @ ..] = bytes else { return Ok(0) };
        let ulpdu_bytes = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(&control) = ulpdu.first() else { return Ok(0) };
        let header_bytes =
            if ddp::is_tagged(control) { ddp::TAGGED_HEADER_BYTES } else { ddp::UNTAGGED_HEADER_BYTES };
        // A header that is not whole yet is nothing to be judged by.
        if ulpdu.len().min(ulpdu_bytes) < header_bytes || self.start.awaits_ready() {
            return Ok(0);
        }
        let header = Header::parse(ulpdu)?;
        let payload_bytes = ulpdu_bytes - header_bytes;
        let found = match header {
            Header::Tagged { .. } => self
                .check_tagged(header, payload_bytes, memory)
                .map(|place| place.map(|(stag, at)| (Target::Region(stag), at))),
            Header::Untagged { opcode, .. } if opcode.is_send() => {
                let first = &ulpdu[header_bytes..ulpdu.len().min(ulpdu_bytes)];
                self.check_send(header, payload_bytes, first).map(|at| Some((Target::Posted, at)))
            }
            Header::Untagged { .. } => return Ok(0),
        };
        let Some((target, at)) = found.map_err(|failure| failure.with(ulpdu_bytes, ulpdu))? else {
            return Ok(0);
        };
        self.first_fpdu();
        // The received bytes may reach into the trailer.
        let taken = ulpdu.len().min(ulpdu_bytes);
        let here = &ulpdu[header_bytes..taken];
        self.receiver.writable(target, at, here.len(), memory)?.copy_from_slice(here);
        if let Target::Region(stag) = target {
            memory.set_busy(stag, true);
        }
        let crc = self.agreed.crc.then(|| {
            let mut crc = Crc32c::default();
            crc.update(&bytes[..LENGTH_BYTES + taken]);
            crc
        });
        let (at, remaining) = (at + here.len(), payload_bytes - here.len());
        self.receiver.direct = Some(Direct { header, ulpdu_bytes, target, at, remaining, crc });
        Ok(LENGTH_BYTES + taken)
    }

    fn handle_segment(
        &mut self,
        ulpdu: &[u8],
        input: Option<&Buf>,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let header = Header::parse(ulpdu).map_err(Failure::from)?;
        let payload = ulpdu.get(header.len_bytes()..).ok_or(TerminateCode::MPA_LENGTH)?;
        if self.start.take_awaits_ready() && self.is_ready_message(header, payload)? {
            return Ok(());
        }
        let result = match header {
            Header::Tagged { .. } => match self.check_tagged(header, payload.len(), memory) {
                Ok(target) => {
                    if let Some((stag, at)) = target {
                        memory.place(stag, at, payload).map_err(tagged_code)?;
                    }
                    self.finish_tagged(header, payload.len(), memory)
                }
                Err(failure) => Err(failure),
            },
            Header::Untagged { opcode, .. } => match opcode {
                Opcode::ReadRequest => self.handle_read_request(header, payload, memory),
                Opcode::AtomicRequest => self.handle_atomic_request(header, payload, memory),
                Opcode::AtomicResponse => self.handle_atomic_response(header, payload),
                Opcode::Terminate => {
                    self.handle_terminate(payload, memory);
                    Ok(())
                }
                Opcode::Immediate | Opcode::ImmediateSolicited => self.handle_immediate(header, payload),
                Opcode::Flush => Err(TerminateCode::RDMAP_OPCODE.into()),
                _ => self.handle_send(header, payload, input, memory),
            },
        };
        result.map_err(|failure| failure.with(ulpdu.len(), ulpdu))
    }

    /// The zero-length message by which an initiator in the peer-to-peer model says that we may send.
    fn is_ready_message(&mut self, header: Header, payload: &[u8]) -> Result<bool, Failure> {
        match header {
            Header::Tagged { opcode: Opcode::Write, .. } if payload.is_empty() => Ok(true),
            Header::Untagged { opcode: Opcode::Send, sequence: 1, .. } if payload.is_empty() => {
                self.receiver.send_sequence = 1;
                Ok(true)
            }
            Header::Untagged { opcode: Opcode::ReadRequest, sequence: 1, .. } => {
                let bytes: &[u8; ddp::READ_REQUEST_BYTES] =
                    payload.try_into().map_err(|_| TerminateCode::MPA_LENGTH)?;
                let request = ReadRequest::parse(bytes);
                if request.len_bytes != 0 {
                    return Ok(false);
                }
                self.receiver.read_sequence = 1;
                self.transmitter.push_inbound(InboundRead::Read { request, at: 0 });
                Ok(true)
            }
            // A peer may do without one: its first message is an ordinary one then.
            _ => Ok(false),
        }
    }

    /// Checks a tagged segment against its region and against the message it continues. `None`: nothing to place.
    fn check_tagged(
        &self,
        header: Header,
        len_bytes: usize,
        memory: &Memory,
    ) -> Result<Option<(Stag, usize)>, Failure> {
        let Header::Tagged { opcode, stag, offset, last } = header else {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        };
        let (domain, stream) = (self.config.domain, self.config.stream);
        match opcode {
            Opcode::Write => {
                if self.receiver.write_under_way.is_some_and(|expected| expected != (stag, offset)) {
                    return Err(TerminateCode::DDP_TAGGED_BOUNDS.into());
                }
                if len_bytes == 0 {
                    // RFC 5041 section 5.2: STag and offset of an empty segment are not checked.
                    return Ok(None);
                }
                let at = memory
                    .check(stag, offset, len_bytes as u64, Wish::Write, domain, stream)
                    .map_err(tagged_code)?;
                Ok(Some((stag, at)))
            }
            Opcode::ReadResponse => {
                let Some((sink, next_offset, remaining)) = self.transmitter.expected_response() else {
                    return Err(TerminateCode::RDMAP_OPCODE.into());
                };
                let exact = len_bytes as u64 <= u64::from(remaining)
                    && last == (len_bytes as u64 == u64::from(remaining));
                if len_bytes == 0 && remaining == 0 && last {
                    return Ok(None);
                }
                if sink != stag || next_offset != offset || !exact {
                    return Err(TerminateCode::DDP_TAGGED_BOUNDS.into());
                }
                if len_bytes == 0 {
                    return Ok(None);
                }
                let at = memory
                    .check(stag, offset, len_bytes as u64, Wish::Sink, domain, stream)
                    .map_err(tagged_code)?;
                Ok(Some((stag, at)))
            }
            _ => Err(TerminateCode::RDMAP_OPCODE.into()),
        }
    }

    /// A tagged segment is placed.
    fn finish_tagged(
        &mut self,
        header: Header,
        len_bytes: usize,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let Header::Tagged { opcode, last, stag, offset } = header else {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        };
        self.receiver.message_planned &= !last;
        if opcode == Opcode::Write {
            self.counters.write_bytes_in += len_bytes as u64;
            self.receiver.write_under_way = (!last).then_some((stag, offset.wrapping_add(len_bytes as u64)));
            return Ok(());
        }
        self.counters.read_bytes_in += len_bytes as u64;
        if let Some(read) = self.transmitter.first_outstanding()
            && let OutstandingKind::Read { next_offset, remaining, sink, .. } = &mut read.kind
        {
            *next_offset = next_offset.wrapping_add(len_bytes as u64);
            *remaining = remaining.saturating_sub(len_bytes as u32);
            if last {
                memory.set_busy(*sink, false);
                self.transmitter.complete_outstanding(None);
            }
        }
        Ok(())
    }

    fn handle_send(
        &mut self,
        header: Header,
        payload: &[u8],
        input: Option<&Buf>,
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        if self.take_short_send(header, payload, input) {
            return Ok(());
        }
        let at = self.check_send(header, payload.len(), payload)?;
        self.receiver.writable(Target::Posted, at, payload.len(), memory)?.copy_from_slice(payload);
        self.finish_send(header, payload.len(), memory)
    }

    /// Delivers a short message that came whole and ends no registration, as most do. `false`: it is no
    /// such message, or it breaks a rule, which [`Self::check_send`] handles.
    fn take_short_send(&mut self, header: Header, payload: &[u8], input: Option<&Buf>) -> bool {
        let Header::Untagged { opcode, last: true, sequence, message_offset: 0, .. } = header else {
            return false;
        };
        let receiver = &mut self.receiver;
        let in_turn = sequence == receiver.send_sequence.wrapping_add(1) && receiver.filled == 0;
        let Some(Posted { id, len_bytes, room: Room::Later, count, .. }) = receiver.posted.front_mut() else {
            return false;
        };
        let fits = payload.len() <= *len_bytes && payload.len() < ALIGNED_BYTES_LEAST;
        if !in_turn || !fits || opcode.invalidates() {
            return false;
        }
        let id = *id;
        *count -= 1;
        if *count == 0 {
            receiver.posted.pop_front();
        }
        receiver.send_sequence = sequence;
        self.counters.send_bytes_in += payload.len() as u64;
        let shared = input
            .filter(|input| input.retained_bytes() <= payload.len() * RETAINED_TIMES_MAX)
            .and_then(|input| input.view_of(payload));
        let buffer = shared.unwrap_or_else(|| Buf::from(payload));
        // Filled in if it stays: memory just written in small parts is slow to move.
        if let Event::Completion(received) = self.events.push_back_mut(RECEIVED) {
            (received.id, received.len_bytes) = (id, payload.len());
            received.buffer = Some(buffer);
            received.solicited = opcode.is_solicited();
        }
        true
    }

    /// Checks a segment of a Send against the posted receive and against the message it continues: its
    /// place there, and that there is space for it. `first`: the bytes of its payload that have come.
    fn check_send(&mut self, header: Header, len_bytes: usize, first: &[u8]) -> Result<usize, Failure> {
        let Header::Untagged { last, sequence, message_offset, .. } = header else {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        };
        let receiver = &mut self.receiver;
        if sequence != receiver.send_sequence.wrapping_add(1) {
            return Err(TerminateCode::DDP_UNTAGGED_SEQUENCE.into());
        }
        let (filled, bytes_max) = (receiver.filled, self.receive_bytes_max);
        let posted = receiver.first_posted().ok_or(TerminateCode::DDP_UNTAGGED_NO_BUFFER)?;
        if message_offset as usize != filled {
            return Err(TerminateCode::DDP_UNTAGGED_OFFSET.into());
        }
        let end = filled + len_bytes;
        let whole_bytes = (last && filled == 0).then_some(end);
        let shape = || self.config.receive_shape.and_then(|shape_of| shape_of(first));
        posted.make_room(end, whole_bytes, bytes_max, shape).ok_or(TerminateCode::DDP_UNTAGGED_TOO_LONG)?;
        Ok(filled)
    }

    /// A segment of a Send is placed.
    fn finish_send(&mut self, header: Header, len_bytes: usize, memory: &mut Memory) -> Result<(), Failure> {
        let Header::Untagged { opcode, last, invalidate, sequence, message_offset, .. } = header else {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        };
        self.receiver.filled += len_bytes;
        let end = self.receiver.filled;
        self.counters.send_bytes_in += len_bytes as u64;
        if !last {
            if message_offset > 0 {
                self.receiver.middle_bytes = len_bytes;
            }
            return Ok(());
        }
        if opcode.invalidates() {
            memory.invalidate(invalidate, self.config.domain, self.config.stream, true).map_err(|error| {
                match error {
                    MemoryError::Access => TerminateCode::RDMAP_CANNOT_INVALIDATE,
                    error => remote_code(error),
                }
            })?;
        }
        let Some(Posted { id, room, .. }) = self.receiver.take_posted() else { return Ok(()) };
        let mut buffer = room.into_buffer().unwrap_or_else(|| BufMut::zeroed(0));
        buffer.truncate(end);
        let buffer = buffer.freeze();
        self.receiver.filled = 0;
        self.receiver.send_sequence = sequence;
        self.events.push_back(Event::Completion(Completion {
            len_bytes: end,
            buffer: Some(buffer),
            invalidated: opcode.invalidates().then_some(Invalidate(invalidate)),
            solicited: opcode.is_solicited(),
            ..Completion::new(id, CompletionKind::Receive, WorkStatus::Success)
        }));
        Ok(())
    }

    fn handle_immediate(&mut self, header: Header, payload: &[u8]) -> Result<(), Failure> {
        let Header::Untagged { opcode, sequence, .. } = header else {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        };
        if !self.agreed.atomics_and_immediate {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        }
        if payload.len() != 8 {
            return Err(TerminateCode::MPA_LENGTH.into());
        }
        if sequence != self.receiver.send_sequence.wrapping_add(1) || self.receiver.filled != 0 {
            return Err(TerminateCode::DDP_UNTAGGED_SEQUENCE.into());
        }
        let posted = self.receiver.take_posted().ok_or(TerminateCode::DDP_UNTAGGED_NO_BUFFER)?;
        self.receiver.send_sequence = sequence;
        self.events.push_back(Event::Completion(Completion {
            buffer: posted.room.into_buffer().map(BufMut::freeze),
            solicited: opcode.is_solicited(),
            immediate: Some(ddp::be64(payload)),
            ..Completion::new(posted.id, CompletionKind::Receive, WorkStatus::Success)
        }));
        Ok(())
    }

    /// Takes the next place of the inbound read queue, which is as deep as was advertised.
    fn take_read_sequence(&mut self, header: Header) -> Result<(), Failure> {
        let Header::Untagged { sequence, last, message_offset, .. } = header else {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        };
        if sequence != self.receiver.read_sequence.wrapping_add(1) {
            return Err(TerminateCode::DDP_UNTAGGED_SEQUENCE.into());
        }
        if !last || message_offset != 0 {
            return Err(TerminateCode::DDP_UNTAGGED_OFFSET.into());
        }
        if self.transmitter.inbound_count() >= usize::from(self.agreed.inbound_read_depth) {
            return Err(TerminateCode::DDP_UNTAGGED_NO_BUFFER.into());
        }
        self.receiver.read_sequence = sequence;
        Ok(())
    }

    fn handle_read_request(
        &mut self,
        header: Header,
        payload: &[u8],
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        let bytes: &[u8; ddp::READ_REQUEST_BYTES] =
            payload.try_into().map_err(|_| TerminateCode::MPA_LENGTH)?;
        self.take_read_sequence(header)?;
        let request = ReadRequest::parse(bytes);
        request.sink_offset.checked_add(u64::from(request.len_bytes)).ok_or(TerminateCode::RDMAP_WRAP)?;
        let mut at = 0;
        if request.len_bytes > 0 {
            let (domain, stream) = (self.config.domain, self.config.stream);
            let len_bytes = u64::from(request.len_bytes);
            at = memory
                .check(request.source, request.source_offset, len_bytes, Wish::Read, domain, stream)
                .map_err(remote_code)?;
        }
        if let Some(source) = request.held_source() {
            memory.set_busy(source, true);
        }
        self.transmitter.push_inbound(InboundRead::Read { request, at });
        Ok(())
    }

    fn handle_atomic_request(
        &mut self,
        header: Header,
        payload: &[u8],
        memory: &mut Memory,
    ) -> Result<(), Failure> {
        if !self.agreed.atomics_and_immediate {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        }
        let bytes: &[u8; ddp::ATOMIC_REQUEST_BYTES] =
            payload.try_into().map_err(|_| TerminateCode::MPA_LENGTH)?;
        self.take_read_sequence(header)?;
        let request = AtomicRequest::parse(bytes).ok_or(TerminateCode::RDMAP_OPERATION_UNSPECIFIED)?;
        if !request.target_offset.is_multiple_of(8) {
            return Err(TerminateCode::RDMAP_PROTECTION_UNSPECIFIED.into());
        }
        let (domain, stream) = (self.config.domain, self.config.stream);
        let check = |wish| memory.check(request.target, request.target_offset, 8, wish, domain, stream);
        let at = check(Wish::Read).and_then(|_| check(Wish::Write)).map_err(remote_code)?;
        let word = memory.writable(request.target, at, 8).map_err(remote_code)?;
        let original = u64::from_ne_bytes(word.try_into().map_err(|_| TerminateCode::RDMAP_BOUNDS)?);
        word.copy_from_slice(&request.operation.apply(original).to_ne_bytes());
        self.transmitter.push_inbound(InboundRead::Atomic { request_id: request.request_id, original });
        Ok(())
    }

    fn handle_atomic_response(&mut self, header: Header, payload: &[u8]) -> Result<(), Failure> {
        let Header::Untagged { sequence, .. } = header else {
            return Err(TerminateCode::RDMAP_OPCODE.into());
        };
        if payload.len() != ddp::ATOMIC_RESPONSE_BYTES {
            return Err(TerminateCode::MPA_LENGTH.into());
        }
        if sequence != self.receiver.atomic_sequence.wrapping_add(1) {
            return Err(TerminateCode::DDP_UNTAGGED_SEQUENCE.into());
        }
        self.receiver.atomic_sequence = sequence;
        match self.transmitter.first_outstanding().map(|read| &read.kind) {
            Some(OutstandingKind::Atomic { request_id }) if *request_id == ddp::be32(payload) => {
                self.transmitter.complete_outstanding(Some(ddp::be64(&payload[4..])));
                Ok(())
            }
            _ => Err(TerminateCode::RDMAP_OPCODE.into()),
        }
    }

    fn handle_terminate(&mut self, payload: &[u8], memory: &mut Memory) {
        let code = TerminateCode::parse(payload).unwrap_or(TerminateCode::RDMAP_OPERATION_UNSPECIFIED);
        self.events.push_back(Event::Terminated { by_peer: true, code });
        self.finish(memory);
    }
}

impl super::transmit::Transmitter {
    /// Sink, next offset and bytes left of the read whose response has to come next.
    pub(super) fn expected_response(&self) -> Option<(Stag, u64, u32)> {
        match self.peek_outstanding()?.kind {
            OutstandingKind::Read { sink, next_offset, remaining, .. } => {
                Some((sink, next_offset, remaining))
            }
            OutstandingKind::Atomic { .. } => None,
        }
    }
}

impl Failure {
    /// Adds the segment that caused it, for the Terminate message.
    fn with(mut self, ulpdu_bytes: usize, ulpdu: &[u8]) -> Self {
        let tagged = ulpdu.first().is_some_and(|&control| ddp::is_tagged(control));
        let header_bytes = if tagged { ddp::TAGGED_HEADER_BYTES } else { ddp::UNTAGGED_HEADER_BYTES };
        let read = ulpdu.get(1).is_some_and(|control| control & 0xF == Opcode::ReadRequest as u8);
        if let Some(header) = ulpdu.get(..header_bytes) {
            let rest = &ulpdu[header_bytes..];
            let read_request =
                if read { rest.get(..ddp::READ_REQUEST_BYTES).map(<[u8]>::to_vec) } else { None };
            self.segment = Some(OffendingSegment {
                len_bytes: ulpdu_bytes as u16,
                header: header.to_vec(),
                read_request,
            });
        }
        self
    }
}
