//! Receives straight into registered memory or a posted receive: which bytes of the stream belong where, as far as can be said before
//! they come.
//!
//! The FPDU under way is known: its header was checked. The bytes behind it are expected to be further
//! FPDUs of the same message, as long as it is, or, behind the first of a Send, as those of the last
//! message were, at the places that continue it. They are received as if they were there, and each is
//! then checked like any other. If one is not as expected, everything from there on is taken out and
//! goes the ordinary way. A place is only expected if wrong bytes there do no harm: in the sink of our
//! own read before it is complete, in memory of unspecified content that the peer may write, and in the
//! receive that a Send fills, as far as the message's first bytes give its length.

use super::receive::{DIRECT_BYTES_MIN, DirectTarget};
use super::receiver::Direct;
pub use super::receiver::Target;
use super::*;
use crate::ddp::{Header, Opcode};
use crate::framing::{LENGTH_BYTES, trailer_bytes};

/// Most bytes of payload in one plan.
const PAYLOAD_BYTES_MAX: usize = 2 << 20;

/// Most pieces of one plan, for any length of FPDUs that the peer's past ones lead us to expect: less
/// than the vectors of one receive.
const PIECES_MAX: usize = 512;

/// The next bytes of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Payload, for this place in the plan's target.
    Payload { at: usize, len_bytes: usize },
    /// Trailers and headers.
    Between { len_bytes: usize },
}

/// Where a receive is to put the bytes of the stream: the pieces in order, and behind them what comes next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Place that the lent bytes belong to; none while there is no plan.
    pub target: Option<Target>,
    pub pieces: Vec<Expected>,
}

impl Plan {
    /// Bytes of trailers and headers between the payloads.
    pub fn between_bytes(&self) -> usize {
        let between = |piece: &Expected| match piece {
            Expected::Between { len_bytes } => *len_bytes,
            Expected::Payload { .. } => 0,
        };
        self.pieces.iter().map(between).sum()
    }
}

impl Connection {
    /// Whether the next bytes of the stream belong into registered memory or a posted receive. If so, `plan` says where, and the bytes
    /// of that are lent; [`Self::handle_planned`] or [`Self::give_up_plan`] takes them back. If not, `plan` is empty.
    pub fn plan_receive(&mut self, memory: &mut Memory, plan: &mut Plan) -> Option<BufMut> {
        plan.target = None;
        plan.pieces.clear();
        let direct = self.receiver.direct.as_ref().filter(|direct| direct.remaining > 0)?;
        if matches!(self.state, State::Terminating | State::Closed) {
            return None;
        }
        let payload_bytes = self.receiver.further_bytes(&direct.header, direct.payload_bytes());
        // A CRC is made of bytes that are still in the processor's cache.
        let summed = if self.agreed.crc { self.config.planned_summed_bytes_max } else { usize::MAX };
        let most = summed.min(PAYLOAD_BYTES_MAX);
        // Whole FPDUs: a part of one would not be what is expected.
        let mut left = match self.to_plan(memory)? {
            all if all <= most => all,
            _ => most / payload_bytes * payload_bytes,
        };
        let mut at = direct.at + direct.remaining;
        plan.pieces.push(Expected::Payload { at: direct.at, len_bytes: direct.remaining });
        let header_bytes = direct.header.len_bytes();
        while left > 0 && plan.pieces.len() < PIECES_MAX {
            let len_bytes = payload_bytes.min(left);
            let previous = if at == direct.at + direct.remaining {
                direct.ulpdu_bytes
            } else {
                payload_bytes + header_bytes
            };
            let between = trailer_bytes(previous) + LENGTH_BYTES + header_bytes;
            plan.pieces.push(Expected::Between { len_bytes: between });
            plan.pieces.push(Expected::Payload { at, len_bytes });
            at += len_bytes;
            left -= len_bytes;
        }
        let target = direct.target;
        let lent = match target {
            Target::Region(stag) => memory.lend(stag, self.config.stream),
            Target::Posted => self.receiver.lend(),
        };
        let Some(bytes) = lent else {
            plan.pieces.clear();
            return None;
        };
        self.receiver.message_planned |= matches!(target, Target::Region(_));
        plan.target = Some(target);
        Some(bytes)
    }

    fn give_back(&mut self, target: Target, bytes: BufMut, memory: &mut Memory) {
        match target {
            Target::Region(stag) => memory.give_back(stag, bytes),
            Target::Posted => self.receiver.give_back(bytes),
        }
    }

    /// Whether [`Self::plan_receive`] has a plan: enough of a message is known to come, or it is the rest of one that was planned.
    pub fn wants_plan(&self, memory: &Memory) -> bool {
        self.to_plan(memory).is_some()
    }

    /// Bytes that follow the FPDU under way, if there is to be a plan.
    fn to_plan(&self, memory: &Memory) -> Option<usize> {
        let direct = self.receiver.direct.as_ref().filter(|direct| direct.remaining > 0)?;
        if direct.target == Target::Posted {
            let last = matches!(direct.header, Header::Untagged { last: true, .. });
            let to_follow =
                if last { 0 } else { self.receiver.sent_bytes_after(direct.at + direct.remaining) };
            return (direct.remaining + to_follow >= DIRECT_BYTES_MIN).then_some(to_follow);
        }
        let to_follow = self.bytes_to_follow(direct, direct.payload_bytes(), memory);
        let enough = direct.remaining + to_follow >= self.config.planned_bytes_min;
        (enough || self.receiver.message_planned).then_some(to_follow)
    }

    /// Bytes of the message under way that come after this FPDU, as far as they may be placed before they are known.
    fn bytes_to_follow(&self, direct: &Direct, payload_bytes: usize, memory: &Memory) -> usize {
        let Header::Tagged { opcode, last: false, stag, .. } = direct.header else { return 0 };
        match opcode {
            Opcode::Write => {
                let next = direct.at + direct.remaining;
                memory.unspecified_bytes(stag, next)
            }
            Opcode::ReadResponse => {
                let remaining = self.transmitter.expected_response().map_or(0, |(_, _, left)| left as usize);
                remaining.saturating_sub(payload_bytes)
            }
            _ => 0,
        }
    }

    /// Handles the first `count` bytes that `plan` describes: payload lies in `payload`, the lent bytes,
    /// and the rest in `between`, piece after piece; bytes after the last piece are in `between` too.
    pub fn handle_planned(
        &mut self,
        plan: &Plan,
        payload: BufMut,
        between: &[u8],
        count: usize,
        memory: &mut Memory,
        now: Monotonic,
    ) {
        // Without a plan all bytes lie between.
        let Some(target) = plan.target else { return self.handle_input(&between[..count], memory, now) };
        self.give_back(target, payload, memory);
        if matches!(self.state, State::Terminating | State::Closed) {
            return;
        }
        let send = self.receiver.send_sequence();
        let (mut left, mut from) = (count, 0);
        for (nth, piece) in plan.pieces.iter().enumerate() {
            match *piece {
                Expected::Payload { at, len_bytes } => {
                    let here = len_bytes.min(left);
                    let expected = DirectTarget { target, at, len_bytes };
                    if here > 0 && self.direct_target() != Some(expected) {
                        if target == Target::Posted && self.receiver.send_sequence() != send {
                            // The message was shorter than its first bytes announced, and has left with the
                            // bytes behind it.
                            return self.terminate(TerminateCode::DDP_UNTAGGED_TOO_LONG.into(), now);
                        }
                        // All bytes are taken out before any are placed: a placement could meet bytes that
                        // still lie there.
                        match self.unplaced(&plan.pieces[nth..], target, &between[from..], left, memory) {
                            Some(rest) => self.handle_input(&rest, memory, now),
                            None => self.terminate(TerminateCode::DDP_TAGGED_STAG.into(), now),
                        }
                        return;
                    }
                    self.direct_received(here, memory, now);
                    left -= here;
                }
                Expected::Between { len_bytes } => {
                    let here = len_bytes.min(left);
                    self.receiver.planned = true;
                    self.handle_input(&between[from..from + here], memory, now);
                    self.receiver.planned = false;
                    from += here;
                    left -= here;
                }
            }
            if left == 0 {
                return self.push_completions();
            }
        }
        self.handle_input(&between[from..from + left], memory, now);
    }

    /// Nothing came: the lent bytes go back.
    pub fn give_up_plan(&mut self, plan: &Plan, payload: BufMut, memory: &mut Memory) {
        if let Some(target) = plan.target {
            self.give_back(target, payload, memory);
        }
    }

    /// The bytes of the stream that lie in these pieces, in order; `None` if their target is gone.
    fn unplaced(
        &mut self,
        pieces: &[Expected],
        target: Target,
        between: &[u8],
        count: usize,
        memory: &Memory,
    ) -> Option<Vec<u8>> {
        let placed: &[u8] = match target {
            Target::Region(stag) => memory.bytes(stag)?,
            Target::Posted => self.receiver.posted_bytes()?,
        };
        let (mut out, mut from) = (Vec::with_capacity(count), 0);
        for piece in pieces {
            let left = count - out.len();
            match *piece {
                Expected::Payload { at, len_bytes } => {
                    out.extend_from_slice(placed.get(at..at + len_bytes.min(left))?);
                }
                Expected::Between { len_bytes } => {
                    out.extend_from_slice(&between[from..from + len_bytes.min(left)]);
                    from += len_bytes.min(left);
                }
            }
        }
        let left = count - out.len();
        out.extend_from_slice(&between[from..from + left]);
        Some(out)
    }
}
