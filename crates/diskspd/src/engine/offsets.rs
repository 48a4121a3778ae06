//! Where the next operation goes: sequential, interlocked, parallel, random, mixed, and random by a distribution.
//!
//! All offsets lie in `base..end` of the target and every operation fits. Sequential ones begin at the thread's first offset
//! and continue at the base when the end is reached; random ones are multiples of the alignment, counted from the base.

use super::random::Random;
use crate::profile::{Distribution, Target};
use crate::statistics::EffectiveRange;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a target cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooSmall;

/// A share of the operations over a share of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Shares of this span and those before it. The last one's is the whole: a hundred, or less if a target is too small
    /// for some of the ranges.
    pub cumulative: u32,
    /// In units of the alignment, from the base on.
    pub first_unit: u64,
    pub units: u64,
}

/// The offsets of one thread on one target.
#[derive(Debug, Clone)]
pub struct Offsets {
    kind: Kind,
    base: u64,
    stride: u64,
    /// Places an operation may begin at: `base + n * stride` for n below this.
    units: u64,
    /// Where the last operation may end.
    end: u64,
    /// Relative to the base; of sequential operations.
    next: u64,
    /// Last relative offset an operation may begin at.
    last: u64,
    /// Each operation's own next offset, with `-p`.
    parallel: Vec<u64>,
    spans: Vec<Span>,
}

#[derive(Debug, Clone)]
enum Kind {
    Sequential,
    Interlocked(Arc<AtomicU64>),
    Parallel,
    Random,
    /// This many in a hundred are random.
    Mixed(u32),
}

impl Offsets {
    /// `size_bytes` is the target's; `thread` counts the target's own threads; `shared` is the target's interlocked offset.
    ///
    /// # Errors
    /// When not one operation fits.
    pub fn new(
        target: &Target,
        size_bytes: u64,
        thread: u32,
        slots: u32,
        shared: &Arc<AtomicU64>,
    ) -> Result<Self, TooSmall> {
        let end = match target.max_offset_bytes {
            0 => size_bytes,
            limit => limit.min(size_bytes),
        };
        let base = target.base_offset_bytes;
        let last = end
            .checked_sub(base)
            .and_then(|usable| usable.checked_sub(u64::from(target.block_bytes)))
            .ok_or(TooSmall)?;
        let first = target.thread_stride_bytes.checked_mul(u64::from(thread)).ok_or(TooSmall)?;
        if first > last {
            return Err(TooSmall);
        }
        let stride = target.stride().max(1);
        let units = last / stride + 1;
        let kind = match target.random_percent {
            100.. => Kind::Random,
            0 if target.interlocked => Kind::Interlocked(shared.clone()),
            0 if target.parallel_async => Kind::Parallel,
            0 => Kind::Sequential,
            percent => Kind::Mixed(percent),
        };
        let spans = match &target.distribution {
            Some(distribution) => spans(distribution, units, stride, end - base),
            None => Vec::new(),
        };
        Ok(Self {
            kind,
            base,
            stride,
            units,
            end,
            next: first,
            last,
            parallel: vec![first; slots as usize],
            spans,
        })
    }

    /// The next operation's offset in the target; `slot` is which of the thread's operations on this target asks.
    pub fn next(&mut self, slot: u32, random: &mut Random) -> u64 {
        let relative = match &self.kind {
            Kind::Sequential => self.sequential(),
            Kind::Interlocked(shared) => {
                let number = shared.fetch_add(1, Ordering::Relaxed);
                number % self.units * self.stride
            }
            Kind::Parallel => match self.parallel.get_mut(slot as usize) {
                Some(next) => {
                    let here = *next;
                    *next = following(here, self.stride, self.last);
                    here
                }
                None => 0,
            },
            Kind::Random => self.random(random),
            Kind::Mixed(percent) => {
                if random.percent(*percent) {
                    let here = self.random(random);
                    self.next = following(here, self.stride, self.last);
                    here
                } else {
                    self.sequential()
                }
            }
        };
        self.base + relative
    }

    /// Returns the spans of a distribution; empty without one.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// As [`Offsets::spans`], in bytes of the target. An operation that begins in the last unit ends with the target.
    pub fn ranges(&self) -> Vec<EffectiveRange> {
        let mut before = 0;
        let range = |span: &Span| {
            let share = span.cumulative - std::mem::replace(&mut before, span.cumulative);
            let end = match span.first_unit + span.units {
                all if all >= self.units => self.end,
                some => self.base + some * self.stride,
            };
            let offset = self.base + span.first_unit * self.stride;
            EffectiveRange { share, offset, len_bytes: end - offset }
        };
        self.spans.iter().map(range).collect()
    }

    fn sequential(&mut self) -> u64 {
        let here = self.next;
        self.next = following(here, self.stride, self.last);
        here
    }

    fn random(&self, random: &mut Random) -> u64 {
        let unit = match self.spans.last() {
            None => random.below(self.units),
            Some(last) => {
                let draw = random.below(u64::from(last.cumulative)) as u32;
                match self.spans.iter().find(|span| draw < span.cumulative) {
                    Some(span) => span.first_unit + random.below(span.units),
                    None => random.below(self.units),
                }
            }
        };
        unit * self.stride
    }
}

fn following(here: u64, stride: u64, last: u64) -> u64 {
    here.checked_add(stride).filter(|next| *next <= last).unwrap_or(0)
}

/// Lays the distribution's ranges one after the other; operations that they leave over go to the rest
/// of the target. A range too short for one operation takes the nearest place. Absolute ranges behind
/// the target's end are left out, and the operations are those of the others.
fn spans(distribution: &Distribution, units: u64, stride: u64, usable_bytes: u64) -> Vec<Span> {
    let (ranges, is_percent) = match distribution {
        Distribution::Percent(ranges) => (ranges, true),
        Distribution::Absolute(ranges) => (ranges, false),
    };
    let unit_at = |position: u64| -> u64 {
        if is_percent {
            (u128::from(units) * u128::from(position.min(100)) / 100) as u64
        } else {
            (position / stride).min(units)
        }
    };
    let limit = if is_percent { 100 } else { usable_bytes };
    let mut found = Vec::new();
    let (mut position, mut cumulative) = (0u64, 0u32);
    let mut add = |share: u32, from: u64, to: u64| {
        if !is_percent && from >= limit {
            return;
        }
        cumulative += share;
        let first = unit_at(from).min(units - 1);
        if share > 0 {
            let units = unit_at(to).saturating_sub(first).max(1);
            found.push(Span { cumulative, first_unit: first, units });
        }
    };
    for (share, extent) in ranges {
        let end = position.saturating_add(*extent).min(limit);
        add(*share, position, end);
        position = end;
    }
    let listed: u32 = ranges.iter().map(|(share, _)| *share).sum();
    if listed < 100 && position < limit {
        add(100 - listed, position, limit);
    }
    found
}
