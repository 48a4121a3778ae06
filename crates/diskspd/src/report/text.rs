//! The text report of DiskSpd 2.2, byte for byte, and of 2.0.17 if it is asked for.

use super::style;
use crate::cli::ReportStyle;
use crate::profile::Profile;
use crate::statistics::{
    Direction, ProcessorPlace, ProcessorUse, SpanResult, SystemInformation, TargetResult,
};
use crate::system::GROUP_PROCESSORS;
use std::fmt::Write;

/// All that a report says.
pub struct Report<'a> {
    /// The command line, as it is repeated in the report.
    pub command_line: &'a str,
    /// The profile that was run.
    pub profile: &'a Profile,
    /// The machine that ran it.
    pub system: &'a SystemInformation,
    /// Results by time span.
    pub spans: &'a [SpanResult],
    /// Version of DiskSpd whose layout the report has.
    pub style: ReportStyle,
}

/// Which side of the results a table shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Total,
    Read,
    Write,
}

/// The whole report.
pub fn text(report: &Report<'_>) -> String {
    let mut out = String::new();
    let style = report.style;
    super::profile(&mut out, report.command_line, report.profile, style);
    if style == ReportStyle::V2_2 {
        system(&mut out, report.system);
    }
    for (number, (result, span)) in report.spans.iter().zip(&report.profile.time_spans).enumerate() {
        let _ = write!(out, "\n\nResults for timespan {}:\n{}\n", number + 1, "*".repeat(79));
        if result.seconds <= 0.0 {
            out.push_str(
                "\nThe test was interrupted before the measurements began. No results are displayed.\n",
            );
            continue;
        }
        let _ = write!(
            out,
            "\nactual test time:\t{:.2}s\nthread count:\t\t{}\n",
            result.seconds, result.thread_count
        );
        if result.request_count > 0 {
            let _ = writeln!(out, "request count:\t\t{}", result.request_count);
        }
        if style == ReportStyle::V2_0_17 {
            let _ = writeln!(out, "proc count:\t\t{}", result.processors.len());
        }
        out.push('\n');
        processors(&mut out, &result.processors, report.system, style);
        if style == ReportStyle::V2_2 {
            super::distributions::block(&mut out, &result.threads);
        }
        let (latency, deviation) = (span.measure_latency, span.iops_std_dev);
        for (title, side) in [("Total IO", Side::Total), ("Read IO", Side::Read), ("Write IO", Side::Write)] {
            let _ = write!(out, "\n{title}\n");
            table(&mut out, result, side, latency, deviation, style);
        }
        if latency {
            latency_tables(&mut out, result);
        }
        if report.profile.verbose_statistics {
            waits(&mut out, result);
        }
        super::smb::block(&mut out, result);
    }
    if report.spans.len() > 1 {
        totals(&mut out, report.spans, style);
    }
    out
}

fn system(out: &mut String, system: &SystemInformation) {
    let _ = write!(
        out,
        "System information:\n\n\tcomputer name: {}\n\tstart time: {}\n\n",
        system.computer_name, system.start_time
    );
    for (name, value) in [
        ("cpu count", system.processors),
        ("core count", system.cores),
        ("group count", system.groups),
        ("node count", system.nodes),
        ("socket count", system.sockets),
    ] {
        let _ = writeln!(out, "\t{name}:\t\t{value}");
    }
    let _ = writeln!(out, "\theterogeneous cores:\t{}", if system.heterogeneous { 'y' } else { 'n' });
    let _ = writeln!(out, "\n\tactive power scheme:\t{}", system.power_scheme);
}

/// Columns that say where a processor sits, each where the machine has more than one such place: name, width of its figures,
/// and the figures.
fn places(
    processors: &[ProcessorUse],
    system: &SystemInformation,
) -> Vec<(&'static str, Vec<(u32, &'static str)>)> {
    let all: Vec<ProcessorPlace> = processors
        .iter()
        .map(|one| {
            let number = u32::from(one.group) * GROUP_PROCESSORS + one.number;
            system.places.iter().find(|place| place.processor == number).copied().unwrap_or_default()
        })
        .collect();
    let top = all.iter().map(|place| place.class).max().unwrap_or(0);
    let has_smt = system.cores > 0 && system.cores < system.processors;
    let column = |pick: &dyn Fn(&ProcessorPlace) -> u32| all.iter().map(|place| (pick(place), "")).collect();
    let mut columns = Vec::new();
    if system.sockets > 1 {
        columns.push(("Socket", column(&|place| place.socket)));
    }
    if system.nodes > 1 {
        columns.push(("Node", column(&|place| place.node)));
    }
    if system.groups > 1 {
        columns.push(("Group", processors.iter().map(|one| (u32::from(one.group), "")).collect()));
    }
    if has_smt {
        columns.push(("Core", column(&|place| place.core)));
    }
    if top > 0 {
        let mark = |class: u32| (class, if class == top { "P" } else { " " });
        columns.push(("Class", all.iter().map(|place| mark(place.class)).collect()));
    }
    columns
}

fn processors(out: &mut String, processors: &[ProcessorUse], system: &SystemInformation, style: ReportStyle) {
    // The older layout knows groups only, and its column of kernel time is wider.
    let mut columns = places(processors, system);
    let wider = match style {
        ReportStyle::V2_2 => "",
        ReportStyle::V2_0_17 => {
            columns.retain(|(name, _)| *name == "Group");
            " "
        }
    };
    let head: String = columns.iter().map(|(name, _)| format!("{name} | ")).collect();
    let rule = "-".repeat(head.len() + 40 + 3 * wider.len());
    let _ = write!(out, "{head}CPU |  Usage |  User  |{wider} Kernel |  Idle\n{rule}\n");
    let row = |out: &mut String, name: String, user: f64, kernel: f64, idle: f64| {
        let used = 100.0 - idle;
        let _ = writeln!(out, "{name}| {used:6.2}%| {user:6.2}%| {wider}{kernel:6.2}%| {idle:6.2}%");
    };
    let count = processors.len().max(1) as f64;
    let (mut user, mut kernel, mut idle) = (0.0, 0.0, 0.0);
    for (at, one) in processors.iter().enumerate() {
        let mut name = String::new();
        for (title, values) in &columns {
            let (value, mark) = values.get(at).copied().unwrap_or_default();
            let width = title.len() + 1 - mark.len();
            let _ = write!(name, "{value:width$}{mark}| ");
        }
        let _ = write!(name, "{:4}", one.number);
        row(out, name, one.user_percent, one.kernel_percent, one.idle_percent);
        user += one.user_percent;
        kernel += one.kernel_percent;
        idle += one.idle_percent;
    }
    let _ = writeln!(out, "{rule}");
    let idle = if processors.is_empty() { 100.0 } else { idle / count };
    row(out, format!("{:width$}avg.", "", width = head.len()), user / count, kernel / count, idle);
}

fn rule(latency: bool, deviation: bool) -> String {
    let width =
        66 + if latency { 11 } else { 0 } + if deviation { 13 } else { 0 } + if latency { 12 } else { 0 };
    "-".repeat(width + 12)
}

fn table(
    out: &mut String,
    result: &SpanResult,
    side: Side,
    latency: bool,
    deviation: bool,
    style: ReportStyle,
) {
    let throughput = style::throughput(style);
    let _ = write!(out, "thread |       bytes     |     I/Os     |{throughput}|  I/O per s ");
    if latency {
        out.push_str("|  AvgLat  ");
    }
    if deviation {
        out.push_str("| IopsStdDev ");
    }
    if latency {
        out.push_str("| LatStdDev ");
    }
    let rule = rule(latency, deviation);
    let _ = write!(out, "|  file\n{rule}\n");
    let mut total = Direction::default();
    for (thread, targets) in result.threads.iter().enumerate() {
        for target in targets {
            let direction = pick(target, side);
            let _ = write!(out, "{thread:6} | ");
            figures(out, &direction, result.seconds, latency, deviation);
            let _ = writeln!(out, " | {} ({})", target.path, style::file_bytes(style, target.file_bytes));
            total.merge(&direction);
        }
    }
    let _ = write!(out, "{rule}\ntotal:   ");
    figures(out, &total, result.seconds, latency, deviation);
    out.push('\n');
}

fn pick(target: &TargetResult, side: Side) -> Direction {
    match side {
        Side::Total => target.total(),
        Side::Read => target.read.clone(),
        Side::Write => target.write.clone(),
    }
}

fn figures(out: &mut String, direction: &Direction, seconds: f64, latency: bool, deviation: bool) {
    let mib = direction.bytes as f64 / f64::from(1 << 20) / seconds;
    let rate = direction.operations as f64 / seconds;
    let _ = write!(out, "{:15} | {:12} | {mib:10.2} | {rate:10.2}", direction.bytes, direction.operations);
    if latency {
        let _ = write!(out, " | {:8.3}", direction.latency.mean_ms().unwrap_or(0.0));
    }
    if deviation {
        let _ = write!(out, " | {:10.2}", direction.intervals.iops_std_dev());
    }
    if latency {
        match direction.latency.std_dev_ms() {
            Some(std_dev) => {
                let _ = write!(out, " |  {std_dev:8.3}");
            }
            None => out.push_str(" |       N/A"),
        }
    }
}

/// Rows of the latency table: name and share.
const PERCENTILES: [(&str, f64); 14] = [
    ("25th", 0.25),
    ("50th", 0.50),
    ("75th", 0.75),
    ("90th", 0.90),
    ("95th", 0.95),
    ("99th", 0.99),
    ("3-nines", 0.999),
    ("4-nines", 0.9999),
    ("5-nines", 0.99999),
    ("6-nines", 0.999999),
    ("7-nines", 0.9999999),
    ("8-nines", 0.99999999),
    ("9-nines", 0.999999999),
    ("max", 1.0),
];

fn latency_tables(out: &mut String, result: &SpanResult) {
    let mut by_path: Vec<(String, TargetResult)> = Vec::new();
    for target in result.threads.iter().flatten() {
        match by_path.iter_mut().find(|(path, _)| *path == target.path) {
            Some((_, sum)) => {
                sum.read.merge(&target.read);
                sum.write.merge(&target.write);
            }
            None => by_path.push((target.path.clone(), target.clone())),
        }
    }
    let mut all = TargetResult::default();
    for (path, sum) in &by_path {
        all.read.merge(&sum.read);
        all.write.merge(&sum.write);
        if by_path.len() > 1 {
            let _ = write!(out, "\n\nLatency distribution: {path}\n");
            latency_table(out, sum);
        }
    }
    out.push_str("\n\nTotal latency distribution:\n");
    latency_table(out, &all);
}

fn latency_table(out: &mut String, target: &TargetResult) {
    let total = target.total().latency;
    let (read, write) = (&target.read.latency, &target.write.latency);
    let _ = write!(out, "  %-ile |  Read (ms) | Write (ms) | Total (ms)\n{}\n", "-".repeat(46));
    let cell =
        |value: Option<f64>| value.map_or_else(|| "       N/A".into(), |value| format!("{value:10.3}"));
    let mut row = |name: &str, read: Option<f64>, write: Option<f64>, total: Option<f64>| {
        let _ = writeln!(out, "{name:>7} | {} | {} | {}", cell(read), cell(write), cell(total));
    };
    row("min", read.min_ms(), write.min_ms(), total.min_ms());
    for (name, share) in PERCENTILES {
        row(name, read.percentile_ms(share), write.percentile_ms(share), total.percentile_ms(share));
    }
}

/// `-vs`: how the threads spent their waits. There are no lookasides: completions are taken as they come.
fn waits(out: &mut String, result: &SpanResult) {
    out.push_str("\n\nWait Statistics\n");
    out.push_str(
        "thread |  CompletionWait |  ThrottleWait | ThrottleSleep |     Lookaside | LookasideCompletion\n",
    );
    let rule = "-".repeat(94);
    let _ = writeln!(out, "{rule}");
    for (thread, one) in result.waits.iter().enumerate() {
        let _ = writeln!(
            out,
            "{thread:6} | {:15} | {:13} | {:13} | {:13} | {:19}",
            one.completion_waits, one.throttle_waits, one.throttle_sleeps, 0, 0
        );
    }
}

fn totals(out: &mut String, spans: &[SpanResult], style: ReportStyle) {
    let seconds: f64 = spans.iter().map(|span| span.seconds).sum();
    let _ = write!(out, "\n\nTotals:\n{}\n\n", "*".repeat(79));
    let _ = write!(out, "total test time:\t{seconds:.2}s\n\n");
    let throughput = style::throughput(style);
    let _ = writeln!(out, "type   |       bytes     |     I/Os     |{throughput}|  I/O per s");
    let rule = "-".repeat(67);
    let _ = writeln!(out, "{rule}");
    let sum = |side: Side| {
        let mut sum = Direction::default();
        for target in spans.iter().flat_map(|span| span.threads.iter().flatten()) {
            sum.merge(&pick(target, side));
        }
        sum
    };
    for (name, side) in [("write", Side::Write), ("read", Side::Read), ("total", Side::Total)] {
        if side == Side::Total {
            let _ = writeln!(out, "{rule}");
        }
        let _ = write!(out, "{name:<6} | ");
        figures(out, &sum(side), seconds.max(f64::MIN_POSITIVE), false, false);
        out.push('\n');
    }
}
