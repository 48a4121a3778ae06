//! Progress on a terminal: one line for each running task, never longer than the terminal is wide.
//!
//! Promises: draws nothing if standard error is no terminal, and removes its drawing at the end.

use crate::printable::printable;
use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::OwoColorize;
use smb_client::transfer::{TransferError, Watcher};

/// Columns that the figures of the widest form need beside a name and a bar.
const WIDE: u16 = 76;
const NARROW: u16 = 50;

/// The parts of a line for a terminal of this width. The rest of the line shows the name, cut to its length.
fn template(columns: u16, has_end: bool) -> &'static str {
    match (columns, has_end) {
        (WIDE.., true) => {
            "{wide_msg} [{bar:16}] {bytes:>10} of {total_bytes:10} {bytes_per_sec:>12} {eta:>4}"
        }
        (NARROW.., true) => "{wide_msg} {percent:>3}% {bytes_per_sec:>12} {eta:>4}",
        (_, true) => "{wide_msg} {percent:>3}% {eta:>4}",
        (WIDE.., false) => "{wide_msg} {prefix} {bytes:>10} {bytes_per_sec:>12} {elapsed:>4}",
        (NARROW.., false) => "{wide_msg} {bytes:>10} {bytes_per_sec:>12}",
        (_, false) => "{wide_msg} {bytes:>10}",
    }
}

/// Fits the line to the terminal as wide as it is now.
pub fn fit(bar: &ProgressBar) {
    let columns = console_columns();
    let style = ProgressStyle::with_template(template(columns, bar.length().is_some()));
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
}

/// As [`fit`], for a line whose message has the progress in words.
pub fn fit_words(bar: &ProgressBar) {
    if let Ok(style) = ProgressStyle::with_template("{wide_msg} {elapsed:>4}") {
        bar.set_style(style);
    }
}

fn console_columns() -> u16 {
    rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| size.ws_col).max(1)
}

/// Shows the progress of copies, and prints files left out.
pub struct Copying {
    bar: ProgressBar,
    files: u64,
}

impl Copying {
    /// `total_bytes` is that of a single file.
    pub fn new(is_hidden: bool, total_bytes: Option<u64>) -> Self {
        let bar = match total_bytes {
            _ if is_hidden => ProgressBar::hidden(),
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        fit(&bar);
        Self { bar, files: 0 }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Copying {
    fn begin(&mut self, path: &str, size_bytes: u64) {
        self.files += 1;
        if self.bar.length().is_some() {
            self.bar.set_length(size_bytes);
        }
        fit(&self.bar);
        self.bar.set_prefix(format!("{} files", self.files));
        self.bar.set_message(printable(path).into_owned());
    }

    fn advance(&mut self, bytes: u64) {
        // The terminal may have another width by now.
        fit(&self.bar);
        self.bar.inc(bytes);
    }

    fn left_out(&mut self, why: &TransferError) {
        let line = format!("cenote: {}", printable(&why.to_string()));
        self.bar.suspend(|| anstream::eprintln!("{}", line.yellow()));
    }

    fn is_stopped(&self) -> bool {
        sys::interrupt::received() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    /// Lines on a terminal of this width while a bar moves, and after it.
    fn lines(columns: u16, has_end: bool) -> (String, String) {
        let screen = InMemoryTerm::new(10, columns);
        let total = has_end.then_some(3 << 40);
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let bar = ProgressBar::with_draw_target(total, target);
        bar.set_style(ProgressStyle::with_template(template(columns, has_end)).unwrap());
        bar.set_prefix("12345 files");
        bar.set_message("17 rebuild: a volume with a name that is as long as sixty-four characters are");
        for at in 1..=20 {
            bar.set_position((3 << 40) / 20 * at);
            bar.tick();
        }
        let while_it_moves = screen.contents();
        bar.finish_and_clear();
        (while_it_moves, screen.contents())
    }

    #[test]
    fn a_line_fits_into_terminals_of_40_and_80_columns_and_leaves_nothing() {
        for columns in [20, 40, 49, 50, 75, 76, 80, 200] {
            for has_end in [true, false] {
                let (shown, left) = lines(columns, has_end);
                assert_eq!(shown.lines().count(), 1, "{columns} columns: {shown}");
                assert_eq!(left, "", "{columns} columns");
            }
        }
    }
}
