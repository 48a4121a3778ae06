//! "Input parameters" of the text report.

use super::style;
use crate::cli::ReportStyle;
use crate::profile::{
    Affinity, CacheMode, Distribution, FlushMode, Priority, Profile, Target, Throughput, TimeSpan,
    WriteContent, WriteThrough,
};
use std::fmt::Write;

/// Writes the whole block, command line included.
pub fn profile(out: &mut String, command_line: &str, profile: &Profile, style: ReportStyle) {
    let _ = write!(out, "\nCommand Line: {command_line}\n\nInput parameters:\n\n");
    if profile.experiment_flags != 0 {
        let _ = writeln!(
            out,
            "\tExperiment Flags: {:#x} ({})",
            profile.experiment_flags, profile.experiment_flags
        );
    }
    for (number, span) in profile.time_spans.iter().enumerate() {
        let _ = write!(out, "\ttimespan:   {}\n\t-------------\n", number + 1);
        time_span(out, span, style);
        out.push('\n');
    }
}

fn time_span(out: &mut String, span: &TimeSpan, style: ReportStyle) {
    let _ = writeln!(out, "\tduration: {}s", span.duration_s);
    let _ = writeln!(out, "\twarm up time: {}s", span.warm_up_s);
    let _ = writeln!(out, "\tcool down time: {}s", span.cool_down_s);
    if span.affinity == Affinity::Disabled {
        out.push_str("\taffinity disabled\n");
    }
    if span.measure_latency {
        out.push_str("\tmeasuring latency\n");
    }
    if span.iops_std_dev {
        let _ = writeln!(out, "\tgathering IOPS at intervals of {}ms", span.bucket_ms);
    }
    let _ = writeln!(out, "\trandom seed: {}", span.random_seed);
    if span.thread_count > 0 {
        let _ = writeln!(out, "\tthread pool with {} threads", span.thread_count);
        if span.request_count > 0 {
            let _ =
                writeln!(out, "\tnumber of outstanding I/O operations per thread: {}", span.request_count);
        }
    }
    if let Affinity::Assigned(list) = &span.affinity {
        let list: Vec<_> = list.iter().map(|one| format!("{}/{}", one.group, one.processor)).collect();
        let _ = writeln!(out, "\tadvanced affinity round robin (group/core): {}", list.join(", "));
    }
    if span.random_write_data {
        out.push_str("\tgenerating random data for each write IO\n");
        out.push_str("\t  WARNING: this increases the CPU cost of issuing writes and should only\n");
        out.push_str("\t           be compared to other results using the -Zr flag\n");
    }
    for one in &span.targets {
        target(out, span, one, style);
    }
}

/// Writes a target's lines, each below its path.
struct Lines<'a>(&'a mut String);

impl Lines<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        self.0.push_str("\t\t");
        self.0.push_str(text.as_ref());
        self.0.push('\n');
    }
}

fn target(out: &mut String, span: &TimeSpan, target: &Target, style: ReportStyle) {
    let _ = writeln!(out, "\tpath: '{}'", target.path);
    let mut lines = Lines(out);
    lines.line(format!("think time: {}ms", target.think_time_ms));
    lines.line(format!("burst size: {}", target.burst_size));
    caching(&mut lines, target);
    content(&mut lines, target, style);
    access(&mut lines, span, target, style);
    sizes(&mut lines, target, style);
    threads(&mut lines, span, target);
    limits(&mut lines, target, style);
}

fn caching(lines: &mut Lines<'_>, target: &Target) {
    lines.line(match target.cache {
        CacheMode::Cached => "using software cache",
        CacheMode::DisableLocalCache => "local software cache disabled, remote cache enabled",
        CacheMode::DisableOsCache => "software cache disabled",
    });
    lines.line(match (target.write_through, target.cache) {
        (WriteThrough::Off, _) => "using hardware write cache, writethrough off",
        (WriteThrough::On, CacheMode::DisableOsCache) => {
            "hardware and software write caches disabled, writethrough on"
        }
        (WriteThrough::On, _) => "hardware write cache disabled, writethrough on",
    });
    if target.memory_mapped {
        let mode = match target.flush_mode {
            None => "",
            Some(FlushMode::ViewOfFile) => ", flush mode: FlushViewOfFile",
            Some(FlushMode::NonVolatileMemory) => ", flush mode: FlushNonVolatileMemory",
            Some(FlushMode::NonVolatileMemoryNoDrain) => ", flush mode: FlushNonVolatileMemory with no drain",
        };
        lines.line(format!("memory mapped I/O enabled{mode}"));
    }
}

fn content(lines: &mut Lines<'_>, target: &Target, style: ReportStyle) {
    let size = |bytes: u64| style::bytes(style, bytes);
    match &target.content {
        WriteContent::Sequential => {}
        WriteContent::Zero => lines.line("zeroing write buffers"),
        WriteContent::Source { size_bytes, file } => {
            lines.line(format!("write buffer size: {}", size(*size_bytes)));
            lines.line(match file {
                Some(file) => format!("write buffer source: '{file}'"),
                None => "write buffer source: random fill".to_owned(),
            });
        }
    }
}

fn access(lines: &mut Lines<'_>, span: &TimeSpan, target: &Target, style: ReportStyle) {
    let size = |bytes: u64| style::bytes(style, bytes);
    if target.parallel_async {
        lines.line("using parallel async I/O");
    }
    lines.line(match target.write_percent {
        0 => "performing read test".into(),
        100 => "performing write test".into(),
        writes => format!("performing mix test (read/write ratio: {}/{writes})", 100 - writes),
    });
    lines.line(format!("block size: {}", size(u64::from(target.block_bytes))));
    let stride = size(target.stride());
    lines.line(match target.random_percent {
        0 => format!(
            "using{} sequential I/O (stride: {stride})",
            if target.interlocked { " interlocked" } else { "" }
        ),
        100 => format!("using random I/O (alignment: {stride})"),
        percent => {
            format!("using mixed random/sequential I/O ({percent}% random) (alignment/stride: {stride})")
        }
    });
    if span.request_count > 0 {
        lines.line(format!("relative IO weight in thread pool: {}", target.weight));
    } else {
        lines.line(format!("number of outstanding I/O operations per thread: {}", target.request_count));
    }
}

fn sizes(lines: &mut Lines<'_>, target: &Target, style: ReportStyle) {
    let size = |bytes: u64| style::bytes(style, bytes);
    for (bytes, name) in [
        (target.base_offset_bytes, "base file offset"),
        (target.max_offset_bytes, "max file size"),
        (target.thread_stride_bytes, "thread stride size"),
    ] {
        // The older layout always has this one.
        let is_always = style == ReportStyle::V2_0_17 && name == "thread stride size";
        if bytes > 0 || is_always {
            lines.line(format!("{name}: {}", size(bytes)));
        }
    }
    for (set, name) in [
        (target.hint_sequential, "using FILE_FLAG_SEQUENTIAL_SCAN hint"),
        (target.hint_random, "using FILE_FLAG_RANDOM_ACCESS hint"),
        (target.temporary, "using FILE_ATTRIBUTE_TEMPORARY hint"),
        (target.large_pages, "using large pages"),
    ] {
        if set {
            lines.line(name);
        }
    }
}

fn threads(lines: &mut Lines<'_>, span: &TimeSpan, target: &Target) {
    if span.thread_count == 0 {
        lines.line(format!("threads per file: {}", target.threads));
    }
    if target.request_count > 1 && span.request_count == 0 || span.request_count > 1 {
        lines.line(if span.completion_routines {
            "using completion routines (ReadFileEx/WriteFileEx)"
        } else {
            "using I/O Completion Ports"
        });
    }
}

fn limits(lines: &mut Lines<'_>, target: &Target, style: ReportStyle) {
    let size = |bytes: u64| style::bytes(style, bytes);
    lines.line(format!(
        "IO priority: {}",
        match target.priority {
            Priority::VeryLow => "very low",
            Priority::Low => "low",
            Priority::Normal => "normal",
        }
    ));
    match target.throughput {
        None => {}
        Some(Throughput::Iops(rate)) => lines.line(format!("throughput rate-limited to {rate} IOPS")),
        Some(Throughput::BytesPerMillisecond(rate)) => {
            lines.line(format!("throughput rate-limited to {rate} B/ms"))
        }
    }
    if let Some(distribution) = &target.distribution {
        lines.line("IO Distribution:");
        let (ranges, percent) = match distribution {
            Distribution::Percent(ranges) => (ranges, true),
            Distribution::Absolute(ranges) => (ranges, false),
        };
        for (share, extent) in ranges {
            let extent = if percent { format!("{extent}%") } else { size(*extent) };
            lines.line(format!("   {share:3}% of IO => {extent} of target"));
        }
    }
}
