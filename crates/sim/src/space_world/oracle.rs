//! Oracle of the values that a read may return: each block is a register, and every write has a
//! value of its own.
//!
//! Since values are unique, each read identifies its write. A history of one register is
//! linearizable if and only if, taking each value's operations together, no read ends before its
//! write begins, no two values must both be current at one moment, and no value lives entirely
//! within a time at which another must be current. (An operation that was never answered may take
//! effect at any time after it began, or never.)

use std::collections::BTreeMap;

/// The value of a block that was never written.
pub const ZERO: u64 = 0;

/// End of an operation that was never answered.
const NEVER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
struct Interval {
    start: u64,
    end: u64,
}

#[derive(Debug, Clone)]
struct Value {
    write: Interval,
    reads: Vec<Interval>,
}

/// The history of one block.
#[derive(Debug, Clone)]
pub struct Register {
    values: BTreeMap<u64, Value>,
    /// Values that read as zeroes, in the order they began.
    zeroes: Vec<u64>,
    /// Violations found when they happened.
    strange: Vec<String>,
}

impl Default for Register {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Register {
    /// Makes a register that holds zeroes from `at` on.
    pub fn new(at: u64) -> Self {
        let zero = Value { write: Interval { start: at, end: at }, reads: Vec::new() };
        Self { values: BTreeMap::from([(ZERO, zero)]), zeroes: vec![ZERO], strange: Vec::new() }
    }

    /// Notes that a write of `value`, unique in the register, began at this virtual nanosecond.
    pub fn write_began(&mut self, value: u64, at: u64) {
        self.values.insert(value, Value { write: Interval { start: at, end: NEVER }, reads: Vec::new() });
    }

    /// Begins a write of zeroes. Call only if [`Register::may_be_zeroed`]: otherwise a read of
    /// zeroes would not identify its write.
    pub fn zeroing_began(&mut self, value: u64, at: u64) {
        self.write_began(value, at);
        self.zeroes.push(value);
    }

    /// Whether all earlier zeroes must have been overwritten at `now`.
    pub fn may_be_zeroed(&self, now: u64) -> bool {
        self.is_outdated(self.zeroes(), now)
    }

    /// Returns the value that stands for zeroes found now.
    pub fn zeroes(&self) -> u64 {
        self.zeroes.last().copied().unwrap_or(ZERO)
    }

    /// Notes a read of zeroes. If a discard began meanwhile, they may be its own or earlier ones,
    /// which proves nothing.
    pub fn read_zeroes(&mut self, start: u64, end: u64) {
        let value = self.zeroes();
        if self.values.get(&value).is_none_or(|found| found.write.start <= start) {
            self.read(value, start, end);
        }
    }

    /// Notes that the write of `value` was acknowledged at this virtual nanosecond.
    pub fn write_ended(&mut self, value: u64, at: u64) {
        if let Some(found) = self.values.get_mut(&value) {
            found.write.end = at;
        }
    }

    /// Whether no write has begun.
    pub fn is_untouched(&self) -> bool {
        self.values.len() == 1
    }

    /// Whether some write was acknowledged.
    pub fn has_durable_value(&self) -> bool {
        self.values.iter().any(|(name, value)| *name != ZERO && value.write.end < NEVER)
    }

    /// Notes that a read from `start` to `end` returned `value`.
    pub fn read(&mut self, value: u64, start: u64, end: u64) {
        match self.values.get_mut(&value) {
            Some(found) => found.reads.push(Interval { start, end }),
            None => self.strange.push(format!("value {value:#x} was read and never written")),
        }
    }

    /// Whether `value`, found on a copy at `now`, is older than a write that was acknowledged
    /// before `now`.
    pub fn is_outdated(&self, value: u64, now: u64) -> bool {
        let Some(found) = self.values.get(&value) else { return true };
        self.values.iter().any(|(other, newer)| {
            *other != value && newer.write.end <= now && found.write.end < newer.write.start
        })
    }

    /// Returns the violations of linearizability in the history; empty: it is linearizable.
    pub fn violations(&self) -> Vec<String> {
        let mut wrong = self.strange.clone();
        let mut zones: Vec<(u64, u64, u64)> = Vec::new();
        for (&name, value) in &self.values {
            if value.reads.iter().any(|read| read.end < value.write.start) {
                wrong.push(format!("value {name:#x} was read before it was written"));
            }
            if value.reads.is_empty() && value.write.end == NEVER {
                continue;
            }
            let all = || value.reads.iter().chain(std::iter::once(&value.write));
            let first_end = all().map(|interval| interval.end).min().unwrap_or(NEVER);
            let last_start = all().map(|interval| interval.start).max().unwrap_or(0);
            zones.push((first_end, last_start, name));
        }
        for (at, &(end, start, name)) in zones.iter().enumerate() {
            for &(other_end, other_start, other) in &zones[at + 1..] {
                let forward = end < start;
                let other_forward = other_end < other_start;
                let clash = match (forward, other_forward) {
                    (true, true) => end < other_start && other_end < start,
                    (true, false) => end < other_start && other_end < start,
                    (false, true) => other_end < start && end < other_start,
                    (false, false) => false,
                };
                if clash {
                    wrong.push(format!("values {name:#x} and {other:#x} were current by turns"));
                }
            }
        }
        wrong
    }
}
