//! Which names a search pattern means (MS-FSA 2.1.4.4).

use crate::fs::upcase_unit;

const STAR: u16 = b'*' as u16;
const QUESTION: u16 = b'?' as u16;
const DOS_STAR: u16 = b'<' as u16;
const DOS_QUESTION: u16 = b'>' as u16;
const DOS_DOT: u16 = b'"' as u16;
const DOT: u16 = b'.' as u16;

/// Whether the pattern has any wildcard.
pub fn has_wildcard(pattern: &[u16]) -> bool {
    pattern.iter().any(|unit| [STAR, QUESTION, DOS_STAR, DOS_QUESTION, DOS_DOT].contains(unit))
}

/// Whether `name` is one that `pattern` means; case does not count. Takes time of at most pattern times name.
pub fn matches(pattern: &[u16], name: &[u16]) -> bool {
    if matches!(pattern, [] | [STAR]) {
        return true;
    }
    let last_dot = name.iter().rposition(|&unit| unit == DOT);
    // reachable[i]: the first i units of the pattern match the name so far.
    let mut reachable = vec![false; pattern.len() + 1];
    reachable[0] = true;
    close_over_empty(pattern, &mut reachable, name.is_empty(), true);
    for (at, &unit) in name.iter().enumerate() {
        let mut next = vec![false; pattern.len() + 1];
        for (i, &wild) in pattern.iter().enumerate() {
            if !reachable[i] {
                continue;
            }
            match wild {
                STAR => next[i] = true,
                // Everything up to the last dot; after it, what has no dot: so all but that dot, which it may end before.
                DOS_STAR => {
                    next[i] = true;
                    if Some(at) == last_dot {
                        next[i + 1] = true;
                    }
                }
                QUESTION => next[i + 1] = true,
                DOS_QUESTION => {
                    if unit != DOT {
                        next[i + 1] = true;
                    }
                }
                DOS_DOT => {
                    if unit == DOT {
                        next[i + 1] = true;
                    }
                }
                _ => {
                    if upcase_unit(wild) == upcase_unit(unit) {
                        next[i + 1] = true;
                    }
                }
            }
        }
        let at_end = at + 1 == name.len();
        let before_dot = name.get(at + 1) == Some(&DOT);
        close_over_empty(pattern, &mut next, at_end, at_end || before_dot);
        reachable = next;
    }
    reachable[pattern.len()]
}

/// Adds what is reached without taking a unit of the name.
fn close_over_empty(pattern: &[u16], reachable: &mut [bool], at_end: bool, at_end_or_dot: bool) {
    for (i, &wild) in pattern.iter().enumerate() {
        let skips = match wild {
            STAR | DOS_STAR => true,
            DOS_QUESTION => at_end_or_dot,
            DOS_DOT => at_end,
            _ => false,
        };
        if reachable[i] && skips {
            reachable[i + 1] = true;
        }
    }
}
