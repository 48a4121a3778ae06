//! Shows the progress of a run: a line on a terminal, the dots of `-P`, and a file for programs. Never part of the report.

use crate::engine::control::Totals;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

const REDRAW_NS: u64 = 250_000_000;
/// Bytes of a progress file: one line, padded, so that it is written over in one go.
pub const PROGRESS_FILE_BYTES: usize = 96;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Opening,
    /// The run waits for its time to start.
    Ready,
    WarmUp,
    Measuring,
    CoolDown,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Opening, Self::Ready, Self::WarmUp, Self::Measuring, Self::CoolDown];

    fn word(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Ready => "ready",
            Self::WarmUp => "warm-up",
            Self::Measuring => "measuring",
            Self::CoolDown => "cool-down",
        }
    }
}

/// A line of a progress file: the phase, and totals since the run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressLine {
    pub phase: Phase,
    pub totals: Totals,
}

impl ProgressLine {
    fn text(self) -> String {
        let Totals { operations, bytes, latency_ns } = self.totals;
        let line = format!("{} {operations} {bytes} {latency_ns}", self.phase.word());
        format!("{line:<width$}\n", width = PROGRESS_FILE_BYTES - 1)
    }

    /// Reads a progress file; `None` if nothing was written yet.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let word = words.next()?;
        let phase = Phase::ALL.into_iter().find(|phase| phase.word() == word)?;
        let mut number = || words.next()?.parse().ok();
        let totals = Totals { operations: number()?, bytes: number()?, latency_ns: number()? };
        Some(Self { phase, totals })
    }
}

pub struct Progress {
    file: Option<File>,
    is_terminal: bool,
    is_drawn: bool,
    /// A dot every this many completions; 0: none.
    dot_every: u64,
    dots: u64,
    last: Totals,
    last_ns: u64,
}

impl Progress {
    pub fn new(is_terminal: bool, dot_every: u32) -> Self {
        Self {
            file: None,
            is_terminal,
            is_drawn: false,
            dot_every: u64::from(dot_every),
            dots: 0,
            last: Totals::default(),
            last_ns: 0,
        }
    }

    /// Keeps where the run is in a file as well.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_in(&mut self, path: &str) -> io::Result<()> {
        self.file = Some(File::create(path)?);
        Ok(())
    }

    /// Shows where the run is.
    pub fn update(&mut self, now_ns: u64, phase: Phase, totals: Totals, left_ns: u64) {
        if let Some(dots) = totals.operations.checked_div(self.dot_every)
            && dots > self.dots
        {
            let new = (dots - self.dots).min(1000) as usize;
            self.dots = dots;
            eprint!("{}", ".".repeat(new));
        }
        if let Some(file) = &self.file {
            // A reader of the file notices that it does not change; the run continues anyway.
            let _ = file.write_all_at(ProgressLine { phase, totals }.text().as_bytes(), 0);
        }
        if !self.is_terminal || now_ns.saturating_sub(self.last_ns) < REDRAW_NS {
            return;
        }
        let line = line(phase, self.last, totals, now_ns - self.last_ns, left_ns);
        (self.last, self.last_ns, self.is_drawn) = (totals, now_ns, true);
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }

    /// Takes the line away.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            eprint!("\r\x1b[K");
        } else if self.dots > 0 {
            eprintln!();
        }
        let _ = std::io::stderr().flush();
    }
}

/// The rates since the line before.
fn line(phase: Phase, last: Totals, now: Totals, passed_ns: u64, left_ns: u64) -> String {
    let seconds = (passed_ns as f64 / 1e9).max(1e-9);
    let operations = now.operations.saturating_sub(last.operations);
    let bytes = now.bytes.saturating_sub(last.bytes);
    let latency_ms = match operations {
        0 => 0.0,
        count => now.latency_ns.saturating_sub(last.latency_ns) as f64 / count as f64 / 1e6,
    };
    let phase = match phase {
        Phase::Opening => "opening",
        Phase::Ready => "ready",
        Phase::WarmUp => "warm up",
        Phase::Measuring => "measuring",
        Phase::CoolDown => "cool down",
    };
    format!(
        "{phase}: {:.0} I/O per s, {:.2} MiB/s, {latency_ms:.3} ms, {} s left",
        operations as f64 / seconds,
        bytes as f64 / f64::from(1 << 20) / seconds,
        left_ns.div_ceil(1_000_000_000)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_file_is_read_as_it_was_written_and_has_one_length() {
        for phase in Phase::ALL {
            let totals = Totals { operations: 7, bytes: u64::MAX, latency_ns: 12 };
            let line = ProgressLine { phase, totals };
            assert_eq!(line.text().len(), PROGRESS_FILE_BYTES);
            assert_eq!(ProgressLine::parse(&line.text()), Some(line));
        }
        for wrong in ["", "measuring", "measuring 1 2", "measuring 1 2 x", "asleep 1 2 3"] {
            assert_eq!(ProgressLine::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_line_shows_rate_latency_and_time_left_of_the_last_interval() {
        let last = Totals { operations: 100, bytes: 0, latency_ns: 0 };
        let now = Totals { operations: 1100, bytes: 4 << 20, latency_ns: 500_000_000 };
        assert_eq!(
            line(Phase::Measuring, last, now, 500_000_000, 2_100_000_000),
            "measuring: 2000 I/O per s, 8.00 MiB/s, 0.500 ms, 3 s left"
        );
    }
}
