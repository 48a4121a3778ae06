//! Differences between the layouts: names and sizes. 2.0.17 prints MB/s for MiB/s, bytes as they are, and file sizes in its
//! own units.

use crate::cli::ReportStyle;
use crate::size;

/// A size among the input parameters.
pub(super) fn bytes(style: ReportStyle, bytes: u64) -> String {
    match style {
        ReportStyle::V2_2 => size::display(bytes),
        ReportStyle::V2_0_17 => bytes.to_string(),
    }
}

/// A file's size behind its name.
pub(super) fn file_bytes(style: ReportStyle, bytes: u64) -> String {
    if style == ReportStyle::V2_2 {
        return size::display(bytes);
    }
    for (shift, unit) in [(30, "GB"), (20, "MB"), (10, "KB")] {
        if bytes > 10 << shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// The head of the column of throughput.
pub(super) fn throughput(style: ReportStyle) -> &'static str {
    match style {
        ReportStyle::V2_2 => "    MiB/s   ",
        ReportStyle::V2_0_17 => "     MB/s   ",
    }
}
