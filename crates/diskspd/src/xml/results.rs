//! Results as XML (`-Rxml`).

use super::writer::Writer;
use crate::report::Report;
use crate::statistics::{
    Direction, Histogram, Intervals, Moments, ProcessorPlace, SpanResult, SystemInformation, TargetResult,
};
use crate::system::GROUP_PROCESSORS;
use std::collections::{BTreeMap, BTreeSet};

/// The whole document.
pub fn results(report: &Report<'_>) -> String {
    let mut writer = Writer::new(0);
    writer.inside("Results", &[], |out| {
        out.inside("System", &[], |out| system(out, report.system));
        out.raw(&super::profile(report.profile, out.depth()));
        for (span, result) in report.profile.time_spans.iter().zip(report.spans) {
            out.inside("TimeSpan", &[], |out| {
                if result.seconds > 0.0 {
                    time_span(out, result, report.system, span.measure_latency, span.iops_std_dev);
                } else {
                    out.value(
                        "Error",
                        "The test was interrupted before the measurements began. No results are displayed.",
                    );
                }
            });
        }
    });
    writer.finish()
}

fn system(out: &mut Writer, system: &SystemInformation) {
    out.value("ComputerName", &system.computer_name);
    out.inside("Tool", &[], |out| {
        out.value("Version", &system.tool_version);
        out.value("VersionDate", &system.tool_date);
    });
    out.value("RunTime", &system.start_time);
    out.empty("PowerScheme", &[("Name", system.power_scheme.clone()), ("Guid", String::new())]);
    let heterogeneous = [("Heterogeneous", system.heterogeneous.to_string())];
    out.inside("ProcessorTopology", &heterogeneous, |out| topology(out, &system.places));
}

/// Processors of a group as bits.
fn mask(processors: &[u32]) -> u64 {
    processors.iter().fold(0, |mask, processor| mask | 1 << (processor % GROUP_PROCESSORS))
}

fn by_group<'a>(places: impl Iterator<Item = &'a ProcessorPlace>) -> BTreeMap<u32, Vec<u32>> {
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for place in places {
        groups.entry(place.processor / GROUP_PROCESSORS).or_default().push(place.processor);
    }
    groups
}

fn topology(out: &mut Writer, places: &[ProcessorPlace]) {
    for (group, processors) in by_group(places.iter()) {
        out.empty(
            "Group",
            &[
                ("Group", group.to_string()),
                ("MaximumProcessors", processors.len().to_string()),
                ("ActiveProcessors", processors.len().to_string()),
                ("ActiveProcessorMask", format!("{:#x}", mask(&processors))),
            ],
        );
    }
    let groups_of = |out: &mut Writer, is_there: &dyn Fn(&ProcessorPlace) -> bool| {
        for (group, processors) in by_group(places.iter().filter(|place| is_there(place))) {
            let attributes = [("Group", group.to_string()), ("Mask", format!("{:#x}", mask(&processors)))];
            out.empty("Group", &attributes);
        }
    };
    for node in places.iter().map(|place| place.node).collect::<BTreeSet<_>>() {
        out.inside("Node", &[("Node", node.to_string())], |out| groups_of(out, &|place| place.node == node));
    }
    for socket in places.iter().map(|place| place.socket).collect::<BTreeSet<_>>() {
        out.inside("Socket", &[("Socket", socket.to_string())], |out| {
            groups_of(out, &|place| place.socket == socket);
        });
    }
    let cores: BTreeMap<(u32, u32), u32> =
        places.iter().map(|place| ((place.socket, place.core), place.class)).collect();
    for ((socket, core), class) in cores {
        let of_core = places.iter().filter(|place| (place.socket, place.core) == (socket, core));
        for (group, processors) in by_group(of_core) {
            out.empty(
                "Core",
                &[
                    ("Group", group.to_string()),
                    ("Core", core.to_string()),
                    ("Mask", format!("{:#x}", mask(&processors))),
                    ("EfficiencyClass", class.to_string()),
                ],
            );
        }
    }
}

fn time_span(
    out: &mut Writer,
    result: &SpanResult,
    system: &SystemInformation,
    latency: bool,
    deviation: bool,
) {
    out.value("TestTimeSeconds", format_args!("{:.2}", result.seconds));
    out.value("ThreadCount", result.thread_count);
    out.value("RequestCount", result.request_count);
    out.value("ProcCount", result.processors.len());
    out.inside("CpuUtilization", &[], |out| processors(out, result, system));
    let mut all = TargetResult::default();
    for target in result.threads.iter().flatten() {
        all.read.merge(&target.read);
        all.write.merge(&target.write);
    }
    if latency {
        latencies(out, &all);
    }
    if deviation {
        out.inside("Iops", &[], |out| iops(out, &all.read, &all.write));
    }
    smb(out, result);
    for (id, targets) in result.threads.iter().enumerate() {
        out.inside("Thread", &[], |out| {
            out.value("Id", id);
            for one in targets {
                out.inside("Target", &[], |out| target(out, one, latency, deviation));
            }
            if let Some(waits) = result.waits.get(id) {
                out.inside("WaitStatistics", &[], |out| {
                    out.value("CompletionWait", waits.completion_waits);
                    out.value("ThrottleWait", waits.throttle_waits);
                    out.value("ThrottleSleep", waits.throttle_sleeps);
                    out.value("Lookaside", 0);
                    out.value("LookasideCompletion", 0);
                });
            }
        });
    }
}

fn processors(out: &mut Writer, result: &SpanResult, system: &SystemInformation) {
    let shares = |out: &mut Writer, user: f64, kernel: f64, idle: f64| {
        out.value("UsagePercent", format_args!("{:.2}", 100.0 - idle));
        out.value("UserPercent", format_args!("{user:.2}"));
        out.value("KernelPercent", format_args!("{kernel:.2}"));
        out.value("IdlePercent", format_args!("{idle:.2}"));
    };
    let (mut user, mut kernel, mut idle) = (0.0, 0.0, 0.0);
    for one in &result.processors {
        let number = u32::from(one.group) * GROUP_PROCESSORS + one.number;
        let place = system.places.iter().find(|place| place.processor == number);
        let place = place.copied().unwrap_or_default();
        out.inside("CPU", &[], |out| {
            out.value("Socket", place.socket);
            out.value("Node", place.node);
            out.value("Group", one.group);
            out.value("Core", place.core);
            out.value("EfficiencyClass", place.class);
            out.value("Id", one.number);
            shares(out, one.user_percent, one.kernel_percent, one.idle_percent);
        });
        user += one.user_percent;
        kernel += one.kernel_percent;
        idle += one.idle_percent;
    }
    let count = result.processors.len().max(1) as f64;
    let idle = if result.processors.is_empty() { 100.0 } else { idle / count };
    out.inside("Average", &[], |out| shares(out, user / count, kernel / count, idle));
}

fn ms(value: Option<f64>) -> String {
    format!("{:.3}", value.unwrap_or(0.0))
}

/// Percentiles of the latency table: 0 to 99, one nine to nine more, 100. Their order is an interface.
pub(super) fn percentiles() -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> =
        (0..100).map(|percent| (percent.to_string(), f64::from(percent) / 100.0)).collect();
    for nines in 1..=7usize {
        all.push((format!("99.{}", "9".repeat(nines)), 1.0 - 0.1f64.powi(nines as i32 + 2)));
    }
    all.push(("100".into(), 1.0));
    all
}

fn latencies(out: &mut Writer, all: &TargetResult) {
    let (read, write, total) = (&all.read.latency, &all.write.latency, all.total().latency);
    let buckets = |histogram: &Histogram| histogram.entries().count().to_string();
    let attributes = [
        ("ReadHistoBuckets", buckets(read)),
        ("WriteHistoBuckets", buckets(write)),
        ("TotalHistoBuckets", buckets(&total)),
    ];
    out.inside("Latency", &attributes, |out| {
        if read.count() > 0 {
            out.value("AverageReadMilliseconds", ms(read.mean_ms()));
            out.value("ReadLatencyStdev", ms(read.std_dev_ms()));
        }
        if write.count() > 0 {
            out.value("AverageWriteMilliseconds", ms(write.mean_ms()));
            out.value("WriteLatencyStdev", ms(write.std_dev_ms()));
        }
        out.value("AverageTotalMilliseconds", ms(total.mean_ms()));
        out.value("LatencyStdev", ms(total.std_dev_ms()));
        for (name, share) in percentiles() {
            let at = |histogram: &Histogram| {
                let value = if share <= 0.0 { histogram.min_ms() } else { histogram.percentile_ms(share) };
                value.map(|value| ms(Some(value)))
            };
            out.inside("Bucket", &[], |out| {
                out.value("Percentile", name);
                if let Some(value) = at(read) {
                    out.value("ReadMilliseconds", value);
                }
                if let Some(value) = at(write) {
                    out.value("WriteMilliseconds", value);
                }
                out.value("TotalMilliseconds", at(&total).unwrap_or_else(|| ms(None)));
            });
        }
    });
}

fn iops(out: &mut Writer, read: &Direction, write: &Direction) {
    let mut total = read.intervals.clone();
    total.merge(&write.intervals);
    out.value("ReadIopsStdDev", format_args!("{:.3}", read.intervals.iops_std_dev()));
    out.value("WriteIopsStdDev", format_args!("{:.3}", write.intervals.iops_std_dev()));
    out.value("IopsStdDev", format_args!("{:.3}", total.iops_std_dev()));
    for at in 0..total.counts.len() {
        let rate = |intervals: &Intervals| {
            let count = intervals.counts.get(at).copied().unwrap_or(0) as f64;
            format!("{:.0}", count * 1000.0 / f64::from(intervals.bucket_ms.max(1)))
        };
        let moments = |intervals: &Intervals| intervals.latencies.get(at).copied().unwrap_or_default();
        let milliseconds = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
        let (of_read, of_write): (Moments, Moments) = (moments(&read.intervals), moments(&write.intervals));
        out.empty(
            "Bucket",
            &[
                ("SampleMillisecond", ((at as u64 + 1) * u64::from(total.bucket_ms)).to_string()),
                ("Read", rate(&read.intervals)),
                ("Write", rate(&write.intervals)),
                ("Total", rate(&total)),
                ("ReadMinLatencyMilliseconds", milliseconds(of_read.min_ns)),
                ("ReadMaxLatencyMilliseconds", milliseconds(of_read.max_ns)),
                ("ReadAvgLatencyMilliseconds", format!("{:.3}", of_read.mean_ms())),
                ("ReadLatencyStdDev", format!("{:.3}", of_read.std_dev_ms())),
                ("WriteMinLatencyMilliseconds", milliseconds(of_write.min_ns)),
                ("WriteMaxLatencyMilliseconds", milliseconds(of_write.max_ns)),
                ("WriteAvgLatencyMilliseconds", format!("{:.3}", of_write.mean_ms())),
                ("WriteLatencyStdDev", format!("{:.3}", of_write.std_dev_ms())),
            ],
        );
    }
}

fn target(out: &mut Writer, target: &TargetResult, latency: bool, deviation: bool) {
    let (read, write) = (&target.read, &target.write);
    out.value("Path", &target.path);
    out.value("BytesCount", read.bytes + write.bytes);
    out.value("FileSize", target.file_bytes);
    out.value("IOCount", read.operations + write.operations);
    out.value("ReadBytes", read.bytes);
    out.value("ReadCount", read.operations);
    out.value("WriteBytes", write.bytes);
    out.value("WriteCount", write.operations);
    if latency {
        let total = target.total().latency;
        for (name, histogram) in [("Read", &read.latency), ("Write", &write.latency), ("", &total)] {
            out.value(&format!("Average{name}LatencyMilliseconds"), ms(histogram.mean_ms()));
            out.value(&format!("{name}LatencyStdev"), ms(histogram.std_dev_ms()));
        }
    }
    if deviation {
        out.inside("Iops", &[], |out| iops(out, read, write));
    }
}

/// Not DiskSpd's: how SMB targets were reached.
fn smb(out: &mut Writer, result: &SpanResult) {
    if result.smb_sessions.is_empty() {
        return;
    }
    out.inside("Smb", &[], |out| {
        out.value("ClientCpuMicroseconds", result.process_cpu_ns / 1000);
        for session in &result.smb_sessions {
            out.inside("Session", &[], |out| {
                out.value("Server", &session.server);
                out.value("Transport", if session.is_rdma { "SMB Direct" } else { "TCP" });
                out.value("Dialect", &session.dialect);
                out.value("Channels", session.channels);
                out.value("Signed", session.is_signed);
                out.value("Encryption", session.cipher.as_deref().unwrap_or("off"));
                let counters = &session.counters;
                out.value("RdmaReadBytes", counters.rdma_read_bytes);
                out.value("RdmaWrittenBytes", counters.rdma_written_bytes);
                out.value("CreditStalls", counters.smb_credit_stalls);
                out.value("RdmaCreditStalls", counters.rdma_credit_stalls);
            });
        }
    });
}
