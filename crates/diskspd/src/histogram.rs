//! `--histogram FILE`: latencies as counted, for other tools, and to be added up over machines.
//!
//! One line a value: direction, latency in microseconds (the lowest of its bucket), count. Two files are merged by adding the counts of
//! equal lines.

use crate::statistics::{Histogram, SpanResult};
use std::fmt::Write;

/// The text of all time spans together.
pub fn export(spans: &[SpanResult]) -> String {
    let (mut read, mut write) = (Histogram::default(), Histogram::default());
    for target in spans.iter().flat_map(|span| span.threads.iter().flatten()) {
        read.merge(&target.read.latency);
        write.merge(&target.write.latency);
    }
    lines(&read, &write)
}

/// The text of a read and a write histogram.
pub fn lines(read: &Histogram, write: &Histogram) -> String {
    let mut text = String::from("# diskspd latency histogram 1: direction latency_us count\n");
    for (name, histogram) in [("read", read), ("write", write)] {
        for (us, count) in histogram.entries() {
            let _ = writeln!(text, "{name} {us} {count}");
        }
    }
    text
}

/// Reads what [`export`] wrote: the read and the write histogram.
///
/// # Errors
/// The number of the line that is wrong.
pub fn import(text: &str) -> Result<(Histogram, Histogram), usize> {
    let (mut read, mut write) = (Histogram::default(), Histogram::default());
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let histogram = match words.next() {
            Some("read") => &mut read,
            Some("write") => &mut write,
            _ => return Err(number + 1),
        };
        let values = [words.next(), words.next()].map(|word| word.and_then(|word| word.parse::<u64>().ok()));
        let ([Some(us), Some(count)], None) = (values, words.next()) else { return Err(number + 1) };
        histogram.record_many(us.saturating_mul(1000), count).ok_or(number + 1)?;
    }
    Ok((read, write))
}
