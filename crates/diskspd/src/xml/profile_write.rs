//! A profile as XML, as `-Rpxml` prints it and every result holds it. The order of elements is
//! DiskSpd's.

use super::writer::Writer;
use crate::profile::{
    Affinity, CacheMode, Distribution, FlushMode, Precreate, Priority, Profile, ResultFormat, Target,
    Throughput, TimeSpan, Trace, TraceClock, WriteContent, WriteThrough,
};

/// The profile, `depth` levels in.
pub fn profile(profile: &Profile, depth: usize) -> String {
    let mut writer = Writer::new(depth);
    writer.inside("Profile", &[], |out| {
        out.value("Progress", profile.progress);
        out.value(
            "ResultFormat",
            match profile.format {
                ResultFormat::Text => "text",
                ResultFormat::Xml => "xml",
            },
        );
        out.value("Verbose", profile.verbose);
        if profile.verbose_statistics {
            out.value("VerboseStats", true);
        }
        if profile.experiment_flags != 0 {
            out.value("ExperimentFlags", profile.experiment_flags);
        }
        if let Some(precreate) = profile.precreate {
            out.value("PrecreateFiles", precreate_name(precreate));
        }
        if let Some(one) = &profile.trace {
            out.inside("ETW", &[], |out| trace(out, one));
        }
        out.inside("TimeSpans", &[], |out| {
            for span in &profile.time_spans {
                out.inside("TimeSpan", &[], |out| time_span(out, span));
            }
        });
    });
    writer.finish()
}

pub(super) fn precreate_name(precreate: Precreate) -> &'static str {
    match precreate {
        Precreate::UseMaxSize => "UseMaxSize",
        Precreate::OnlyConstantSizes => "CreateOnlyFilesWithConstantSizes",
        Precreate::OnlyConstantOrZeroSizes => "CreateOnlyFilesWithConstantOrZeroSizes",
    }
}

fn trace(out: &mut Writer, trace: &Trace) {
    for (name, value) in [
        ("Process", trace.process),
        ("Thread", trace.thread),
        ("ImageLoad", trace.image_load),
        ("DiskIO", trace.disk_io),
        ("MemoryPageFaults", trace.memory_page_faults),
        ("MemoryHardFaults", trace.memory_hard_faults),
        ("Network", trace.network),
        ("Registry", trace.registry),
        ("UsePagedMemory", trace.paged_memory),
        ("UsePerfTimer", trace.clock == TraceClock::Performance),
        ("UseSystemTimer", trace.clock == TraceClock::System),
        ("UseCyclesCounter", trace.clock == TraceClock::Cycles),
    ] {
        out.value(name, value);
    }
}

fn time_span(out: &mut Writer, span: &TimeSpan) {
    out.value("CompletionRoutines", span.completion_routines);
    out.value("MeasureLatency", span.measure_latency);
    out.value("CalculateIopsStdDev", span.iops_std_dev);
    out.value("DisableAffinity", span.affinity == Affinity::Disabled);
    out.value("Duration", span.duration_s);
    out.value("Warmup", span.warm_up_s);
    out.value("Cooldown", span.cool_down_s);
    out.value("ThreadCount", span.thread_count);
    out.value("RequestCount", span.request_count);
    out.value("IoBucketDuration", span.bucket_ms);
    out.value("RandSeed", span.random_seed);
    if span.random_write_data {
        out.value("RandomWriteData", true);
    }
    if let Affinity::Assigned(list) = &span.affinity {
        out.inside("Affinity", &[], |out| {
            for one in list {
                let attributes = [("Group", one.group.to_string()), ("Processor", one.processor.to_string())];
                out.empty("AffinityGroupAssignment", &attributes);
            }
        });
    }
    out.inside("Targets", &[], |out| {
        for one in &span.targets {
            out.inside("Target", &[], |out| target(out, one));
        }
    });
}

fn target(out: &mut Writer, target: &Target) {
    out.value("Path", &target.path);
    out.value("BlockSize", target.block_bytes);
    out.value("BaseFileOffset", target.base_offset_bytes);
    out.value("SequentialScan", target.hint_sequential);
    out.value("RandomAccess", target.hint_random);
    out.value("TemporaryFile", target.temporary);
    out.value("UseLargePages", target.large_pages);
    caching(out, target);
    content(out, target);
    out.value("ParallelAsyncIO", target.parallel_async);
    if target.burst_size > 0 {
        out.value("BurstSize", target.burst_size);
    }
    if target.think_time_ms > 0 {
        out.value("ThinkTime", target.think_time_ms);
    }
    if let Some(size_bytes) = target.create_bytes {
        out.value("FileSize", size_bytes);
    }
    if target.random_percent > 0 {
        out.value("Random", target.stride());
        if target.random_percent < 100 {
            out.value("RandomRatio", target.random_percent);
        }
    } else {
        out.value("StrideSize", target.stride());
    }
    if let Some(distribution) = &target.distribution {
        out.inside("Distribution", &[], |out| ranges(out, distribution));
    }
    out.value("InterlockedSequential", target.interlocked);
    out.value("ThreadStride", target.thread_stride_bytes);
    out.value("MaxFileSize", target.max_offset_bytes);
    out.value("RequestCount", target.request_count);
    out.value("WriteRatio", target.write_percent);
    match target.throughput {
        None => out.value("Throughput", 0),
        Some(Throughput::BytesPerMillisecond(rate)) => out.value("Throughput", rate),
        Some(Throughput::Iops(rate)) => {
            out.value_with("Throughput", &[("unit", "IOPS".to_owned())], rate);
        }
    }
    out.value("ThreadsPerFile", target.threads);
    out.value(
        "IOPriority",
        match target.priority {
            Priority::VeryLow => 1,
            Priority::Low => 2,
            Priority::Normal => 3,
        },
    );
    out.value("Weight", target.weight);
    thread_targets(out, target);
}

fn content(out: &mut Writer, target: &Target) {
    out.inside("WriteBufferContent", &[], |out| match &target.content {
        WriteContent::Sequential => out.value("Pattern", "sequential"),
        WriteContent::Zero => out.value("Pattern", "zero"),
        WriteContent::Source { size_bytes, file } => {
            out.value("Pattern", "random");
            out.inside("RandomDataSource", &[], |out| {
                out.value("SizeInBytes", size_bytes);
                if let Some(file) = file {
                    out.value("FilePath", file);
                }
            });
        }
    });
}

fn thread_targets(out: &mut Writer, target: &Target) {
    if !target.thread_targets.is_empty() {
        out.inside("ThreadTargets", &[], |out| {
            for (thread, weight) in &target.thread_targets {
                out.inside("ThreadTarget", &[], |out| {
                    out.value("Thread", thread);
                    if let Some(weight) = weight {
                        out.value("Weight", weight);
                    }
                });
            }
        });
    }
}

/// Only what is set: cached and without write-through is implied.
fn caching(out: &mut Writer, target: &Target) {
    match target.cache {
        CacheMode::Cached => {}
        CacheMode::DisableLocalCache => out.value("DisableLocalCache", true),
        CacheMode::DisableOsCache => out.value("DisableOSCache", true),
    }
    if target.write_through == WriteThrough::On {
        out.value("WriteThrough", true);
    }
    if target.memory_mapped {
        out.value("MemoryMappedIo", true);
    }
    if let Some(mode) = target.flush_mode {
        out.value(
            "FlushType",
            match mode {
                FlushMode::ViewOfFile => "ViewOfFile",
                FlushMode::NonVolatileMemory => "NonVolatileMemory",
                FlushMode::NonVolatileMemoryNoDrain => "NonVolatileMemoryNoDrain",
            },
        );
    }
}

fn ranges(out: &mut Writer, distribution: &Distribution) {
    let (name, ranges) = match distribution {
        Distribution::Percent(ranges) => ("Percent", ranges),
        Distribution::Absolute(ranges) => ("Absolute", ranges),
    };
    out.inside(name, &[], |out| {
        for (share, extent) in ranges {
            out.value_with("Range", &[("IO", share.to_string())], extent);
        }
    });
}
