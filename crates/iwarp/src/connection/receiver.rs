//! State of the way in: posted receives, the segment under way, staged bytes.

use super::posted::{Posted, Room};
use super::*;
use crate::crc::Crc32c;
use crate::ddp::Header;

const PAGE_BYTES: usize = 4096;

/// Memory that payload is received into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Region(Stag),
    /// The posted receive of the Send message under way.
    Posted,
}

/// A segment whose payload goes straight to its place.
pub(super) struct Direct {
    pub header: Header,
    pub ulpdu_bytes: usize,
    pub target: Target,
    pub at: usize,
    pub remaining: usize,
    pub(super) crc: Option<Crc32c>,
}

impl Direct {
    /// These bytes of it are in their place.
    pub(super) fn advance(&mut self, filled: &[u8]) {
        if let Some(crc) = self.crc.as_mut() {
            crc.update(filled);
        }
        self.at += filled.len();
        self.remaining -= filled.len();
    }

    /// Payload of the whole segment.
    pub fn payload_bytes(&self) -> usize {
        self.ulpdu_bytes - self.header.len_bytes()
    }
}

#[derive(Default)]
pub(super) struct Receiver {
    pub(super) staged: Vec<u8>,
    pub direct: Option<Direct>,
    /// The handled bytes end before a payload that was received into its region, if it is the expected one.
    pub planned: bool,
    /// Part of the tagged message under way was received into its region.
    pub message_planned: bool,
    pub(super) posted: VecDeque<Posted>,
    /// Bytes of the Send message under way.
    pub(super) filled: usize,
    /// Payload of the last FPDU in the middle of a Send message: the first may have another length. Zero: none yet.
    pub(super) middle_bytes: usize,
    pub(super) send_sequence: u32,
    pub(super) read_sequence: u32,
    pub(super) atomic_sequence: u32,
    /// A tagged write under way must continue exactly here.
    pub(super) write_under_way: Option<(Stag, u64)>,
}

impl Receiver {
    pub(super) fn post(&mut self, id: WorkId, buffer: BufMut) {
        let len_bytes = buffer.len();
        self.posted.push_back(Posted { id, len_bytes, room: Room::Buffer(buffer), told_bytes: 0, count: 1 });
    }

    pub(super) fn post_later(&mut self, id: WorkId, len_bytes: usize) {
        match self.posted.back_mut() {
            Some(last)
                if matches!(last.room, Room::Later) && (last.id, last.len_bytes) == (id, len_bytes) =>
            {
                last.count += 1;
            }
            _ => self.posted.push_back(Posted { id, len_bytes, room: Room::Later, told_bytes: 0, count: 1 }),
        }
    }

    pub(super) fn prefetch(&self) {
        if let Some(posted) = self.posted.front() {
            sys::prefetch(posted);
        }
    }

    pub(super) fn posted_count(&self) -> usize {
        self.posted.iter().map(|posted| posted.count).sum()
    }

    /// The first posted receive, alone.
    pub(super) fn first_posted(&mut self) -> Option<&mut Posted> {
        let first = self.posted.front_mut()?;
        if first.count > 1 {
            first.count -= 1;
            let alone = Posted {
                id: first.id,
                len_bytes: first.len_bytes,
                room: Room::Later,
                told_bytes: 0,
                count: 1,
            };
            self.posted.push_front(alone);
        }
        self.posted.front_mut()
    }

    pub(super) fn take_posted(&mut self) -> Option<Posted> {
        self.first_posted()?;
        self.posted.pop_front()
    }

    pub(super) fn staged_capacity(&self) -> usize {
        self.staged.capacity()
    }

    /// Memory of the Send message under way, and of a segment of which a part has come if that is at least a page: less is not worth a count.
    pub(super) fn unfinished_bytes(&self) -> usize {
        let filling = self.posted.front().map_or(0, |posted| posted.room.len_bytes());
        filling + self.staged.len() / PAGE_BYTES * PAGE_BYTES
    }

    pub(super) fn release(&mut self, memory: &mut Memory) {
        if let Some(Direct { target: Target::Region(stag), .. }) = self.direct.take() {
            memory.set_busy(stag, false);
        }
        self.staged = Vec::new();
    }

    /// The bytes of the receive that the Send message under way fills; [`Self::give_back`] returns them.
    pub(super) fn lend(&mut self) -> Option<BufMut> {
        let posted = self.posted.front_mut()?;
        let lent = Room::Lent(posted.room.len_bytes());
        match std::mem::replace(&mut posted.room, lent) {
            Room::Buffer(buffer) => Some(buffer),
            other => {
                posted.room = other;
                None
            }
        }
    }

    /// Nobody takes them if the receives were flushed.
    pub(super) fn give_back(&mut self, bytes: BufMut) {
        if let Some(Posted { room: room @ Room::Lent(_), .. }) = self.posted.front_mut() {
            *room = Room::Buffer(bytes);
        }
    }

    /// Bytes of the Send message under way that come behind the first `end`, as far as that is known and there is space.
    pub(super) fn sent_bytes_after(&self, end: usize) -> usize {
        let told = self.posted.front().filter(|posted| matches!(posted.room, Room::Buffer(_)));
        told.map_or(0, |posted| posted.told_bytes.saturating_sub(end))
    }

    /// Payload expected of each further FPDU of the message under way, one of whose FPDUs has this header and this much.
    pub(super) fn further_bytes(&self, header: &Header, payload_bytes: usize) -> usize {
        match header {
            Header::Untagged { message_offset: 0, .. } if self.middle_bytes > 0 => self.middle_bytes,
            _ => payload_bytes,
        }
    }

    /// Names the Send message under way.
    pub(super) fn send_sequence(&self) -> u32 {
        self.send_sequence
    }

    /// The bytes of the receive that the Send message under way fills.
    pub(super) fn posted_bytes(&mut self) -> Option<&mut BufMut> {
        match &mut self.posted.front_mut()?.room {
            Room::Buffer(buffer) => Some(buffer),
            Room::Later | Room::Lent(_) => None,
        }
    }

    /// Bytes of a checked range of the target, to be written.
    pub(super) fn writable<'a>(
        &'a mut self,
        target: Target,
        at: usize,
        len_bytes: usize,
        memory: &'a mut Memory,
    ) -> Result<&'a mut [u8], Failure> {
        match target {
            Target::Region(stag) => Ok(memory.writable(stag, at, len_bytes).map_err(tagged_code)?),
            Target::Posted => {
                let room = self.posted_bytes().and_then(|buffer| buffer.get_mut(at..at + len_bytes));
                Ok(room.ok_or(TerminateCode::DDP_UNTAGGED_TOO_LONG)?)
            }
        }
    }

    pub(super) fn flush(&mut self) -> impl Iterator<Item = Completion> {
        std::iter::from_fn(|| self.take_posted()).map(|posted| Completion {
            buffer: posted.room.into_buffer().map(BufMut::freeze),
            ..Completion::new(posted.id, CompletionKind::Receive, WorkStatus::Flushed)
        })
    }
}
