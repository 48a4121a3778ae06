//! "Effective IO Distributions": the ranges of `-rd` on each target, with the threads that used them.

use crate::size;
use crate::statistics::{EffectiveRange, TargetResult};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Writes the block; nothing if no target has a distribution.
pub fn block(out: &mut String, threads: &[Vec<TargetResult>]) {
    // Equal distributions are reported once: targets of one size have the same.
    let mut users: BTreeMap<&[EffectiveRange], BTreeMap<&str, BTreeSet<usize>>> = BTreeMap::new();
    for (thread, targets) in threads.iter().enumerate() {
        for target in targets.iter().filter(|target| !target.distribution.is_empty()) {
            users.entry(&target.distribution).or_default().entry(&target.path).or_default().insert(thread);
        }
    }
    if users.is_empty() {
        return;
    }
    out.push_str("\nEffective IO Distributions\n--------------------------\n");
    for (ranges, targets) in users {
        for (path, threads) in targets {
            let _ = writeln!(out, "target: {path} [thread:{}]", runs(threads));
        }
        let all: u32 = ranges.iter().map(|range| range.share).sum();
        for range in ranges {
            let share = match all {
                100 => format!("{:3}", range.share),
                _ => format!("{:5.1}", f64::from(range.share) * 100.0 / f64::from(all.max(1))),
            };
            let (from, to) = (bound(range.offset), bound(range.offset.saturating_add(range.len_bytes)));
            let _ = writeln!(out, "   {share}% of IO => [{from} - {to})");
        }
    }
}

/// Numbers in order; three or more that follow one another as first and last.
fn runs(numbers: BTreeSet<usize>) -> String {
    let mut text = String::new();
    let mut run: Option<(usize, usize)> = None;
    let mut end = |run: Option<(usize, usize)>| {
        let _ = match run {
            Some((first, last)) if first == last => write!(text, " {first}"),
            Some((first, last)) if first + 1 == last => write!(text, " {first} {last}"),
            Some((first, last)) => write!(text, " {first} - {last}"),
            None => Ok(()),
        };
    };
    for number in numbers {
        run = match run {
            Some((first, last)) if last + 1 == number => Some((first, number)),
            before => {
                end(before);
                Some((number, number))
            }
        };
    }
    end(run);
    text
}

/// A size, its figures and its unit each in a column of their own.
fn bound(bytes: u64) -> String {
    let shown = size::display(bytes);
    let digits = shown.find(|one: char| one.is_ascii_alphabetic()).unwrap_or(shown.len());
    let (figure, unit) = shown.split_at(digits);
    format!("{figure:>6}{unit:<3}")
}
