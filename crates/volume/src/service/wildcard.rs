//! Search patterns, and the names that they mean (MS-FSA 2.1.4.4).

use crate::fs::upcase_unit;
use types::NtStatus;

const STAR: u16 = b'*' as u16;
const QUESTION: u16 = b'?' as u16;
const DOS_STAR: u16 = b'<' as u16;
const DOS_QUESTION: u16 = b'>' as u16;
const DOS_DOT: u16 = b'"' as u16;
const DOT: u16 = b'.' as u16;

/// Longest pattern in UTF-16 code units: the same as the longest name.
pub const PATTERN_UNITS_MAX: usize = 255;

/// Whether the pattern has any wildcard.
pub fn has_wildcard(pattern: &[u16]) -> bool {
    pattern.iter().any(|unit| [STAR, QUESTION, DOS_STAR, DOS_QUESTION, DOS_DOT].contains(unit))
}

/// Places in a pattern: before each unit, and behind the last.
#[derive(Debug, Clone, Copy, Default)]
struct Places([u64; 4]);

const _: () = assert!(PATTERN_UNITS_MAX < 256, "each place has a bit");

impl Places {
    fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn contains(&self, place: usize) -> bool {
        self.0[place / 64] & 1 << (place % 64) != 0
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Finds the first at `from` or behind it.
    fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.0.get(word)? & u64::MAX << (from % 64);
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn remove_before(&mut self, place: usize) {
        self.0[..place / 64].fill(0);
        self.0[place / 64] &= u64::MAX << (place % 64);
    }
}

/// A search pattern, prepared for many names. Matching allocates nothing.
#[derive(Debug)]
pub struct Pattern {
    /// In upper case.
    units: Box<[u16]>,
}

impl Pattern {
    /// Prepares a pattern.
    ///
    /// # Errors
    /// OBJECT_NAME_INVALID beyond [`PATTERN_UNITS_MAX`].
    pub fn new(pattern: &[u16]) -> Result<Self, NtStatus> {
        if pattern.len() > PATTERN_UNITS_MAX {
            return Err(NtStatus::OBJECT_NAME_INVALID);
        }
        Ok(Self { units: pattern.iter().map(|unit| upcase_unit(*unit)).collect() })
    }

    /// Whether `name` matches the pattern, ignoring case. Adds to `steps` one for each place of the pattern
    /// examined for each unit of the name: at most pattern times name, and a few for each unit with one
    /// star.
    pub fn matches(&self, name: &[u16], steps: &mut u32) -> bool {
        if matches!(&self.units[..], [] | [STAR]) {
            *steps += 1;
            return true;
        }
        let last_dot = name.iter().rposition(|&unit| unit == DOT);
        // The places that the pattern can be at after it has taken the name so far.
        let mut places = Places::default();
        places.insert(0);
        self.skip(&mut places, name, 0, steps);
        for (at, &unit) in name.iter().enumerate() {
            let unit = upcase_unit(unit);
            let mut next = Places::default();
            let mut from = 0;
            while let Some(place) = places.next(from).filter(|place| *place < self.units.len()) {
                *steps += 1;
                from = place + 1;
                let (stays, goes_on) = match self.units[place] {
                    STAR => (true, false),
                    // Takes everything up to the last dot, and that dot.
                    DOS_STAR => (Some(at) != last_dot, Some(at) == last_dot),
                    QUESTION => (false, true),
                    DOS_QUESTION => (false, unit != DOT),
                    DOS_DOT => (false, unit == DOT),
                    wanted => (false, wanted == unit),
                };
                if stays {
                    next.insert(place);
                }
                if goes_on {
                    next.insert(place + 1);
                }
            }
            places = next;
            self.skip(&mut places, name, at + 1, steps);
            if places.is_empty() {
                return false;
            }
        }
        places.contains(self.units.len())
    }

    /// Adds the places reached without taking a unit of the name, of which `taken` are taken.
    fn skip(&self, places: &mut Places, name: &[u16], taken: usize, steps: &mut u32) {
        let at_end = taken == name.len();
        let mut from = 0;
        while let Some(place) = places.next(from).filter(|place| *place < self.units.len()) {
            *steps += 1;
            from = place + 1;
            let skips = match self.units[place] {
                STAR => {
                    // Every way from an earlier place is also one from here: a star takes the units between.
                    places.remove_before(place);
                    true
                }
                DOS_STAR => true,
                DOS_QUESTION => at_end || name[taken] == DOT,
                DOS_DOT => at_end,
                _ => false,
            };
            if skips {
                places.insert(place + 1);
            }
        }
    }
}
