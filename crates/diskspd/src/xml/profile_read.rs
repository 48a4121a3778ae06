//! XML as a profile: every element of DiskSpd's schema, in any order.

use super::XmlError;
use super::tree::{self, Element};
use crate::profile::{
    Affinity, CacheMode, Distribution, FlushMode, GroupProcessor, Precreate, Priority, Profile, ResultFormat,
    Target, Throughput, TimeSpan, Trace, TraceClock, WriteContent, WriteThrough,
};
use std::str::FromStr;

type Read<T> = Result<T, XmlError>;

/// Reads a file's bytes.
///
/// # Errors
/// The fault in the profile, and its place.
pub fn read_profile(bytes: &[u8]) -> Read<Profile> {
    let root = tree::parse(&tree::decode(bytes)?)?;
    if root.name != "Profile" {
        return Err(XmlError(format!("its root is '{}', not 'Profile'", root.name)));
    }
    let mut profile = Profile::default();
    for element in &root.children {
        match element.name.as_str() {
            "Progress" => profile.progress = number(element)?,
            "ResultFormat" => {
                profile.format = named(element, &[("text", ResultFormat::Text), ("xml", ResultFormat::Xml)])?;
            }
            "Verbose" => profile.verbose = boolean(element)?,
            "VerboseStats" => profile.verbose_statistics = boolean(element)?,
            "ExperimentFlags" => profile.experiment_flags = number(element)?,
            "PrecreateFiles" => {
                let modes =
                    [Precreate::UseMaxSize, Precreate::OnlyConstantSizes, Precreate::OnlyConstantOrZeroSizes];
                let modes = modes.map(|mode| (super::profile_write::precreate_name(mode), mode));
                profile.precreate = Some(named(element, &modes)?);
            }
            "ETW" => profile.trace = Some(trace(element)?),
            "TimeSpans" => {
                for child in only(element, "TimeSpan")? {
                    profile.time_spans.push(time_span(child)?);
                }
            }
            _ => return unknown(&root, element),
        }
    }
    Ok(profile)
}

fn unknown<T>(parent: &Element, element: &Element) -> Read<T> {
    Err(XmlError(format!("'{}' has no element '{}'", parent.name, element.name)))
}

fn wrong<T>(element: &Element) -> Read<T> {
    let shown: String = element.text.chars().take(100).collect();
    Err(XmlError(format!("'{}' cannot be '{shown}'", element.name)))
}

/// The children, all of that name.
fn only<'a>(element: &'a Element, name: &str) -> Read<&'a [Element]> {
    match element.children.iter().find(|child| child.name != name) {
        Some(other) => unknown(element, other),
        None => Ok(&element.children),
    }
}

fn number<T: FromStr>(element: &Element) -> Read<T> {
    element.text.parse().or_else(|_| wrong(element))
}

fn positive(element: &Element) -> Read<u32> {
    number(element).and_then(|value| if value > 0 { Ok(value) } else { wrong(element) })
}

fn boolean(element: &Element) -> Read<bool> {
    named(element, &[("true", true), ("false", false), ("1", true), ("0", false)])
}

fn named<T: Copy>(element: &Element, names: &[(&str, T)]) -> Read<T> {
    match names.iter().find(|(name, _)| *name == element.text) {
        Some((_, value)) => Ok(*value),
        None => wrong(element),
    }
}

fn trace(root: &Element) -> Read<Trace> {
    let mut trace = Trace::default();
    for element in &root.children {
        let is_on = boolean(element)?;
        match element.name.as_str() {
            "Process" => trace.process = is_on,
            "Thread" => trace.thread = is_on,
            "ImageLoad" => trace.image_load = is_on,
            "DiskIO" => trace.disk_io = is_on,
            "MemoryPageFaults" => trace.memory_page_faults = is_on,
            "MemoryHardFaults" => trace.memory_hard_faults = is_on,
            "Network" => trace.network = is_on,
            "Registry" => trace.registry = is_on,
            "UsePagedMemory" => trace.paged_memory = is_on,
            "UsePerfTimer" if is_on => trace.clock = TraceClock::Performance,
            "UseSystemTimer" if is_on => trace.clock = TraceClock::System,
            "UseCyclesCounter" if is_on => trace.clock = TraceClock::Cycles,
            "UsePerfTimer" | "UseSystemTimer" | "UseCyclesCounter" => {}
            _ => return unknown(root, element),
        }
    }
    Ok(trace)
}

fn time_span(root: &Element) -> Read<TimeSpan> {
    let mut span = TimeSpan::default();
    for element in &root.children {
        match element.name.as_str() {
            "Duration" => span.duration_s = positive(element)?,
            "Warmup" => span.warm_up_s = number(element)?,
            "Cooldown" => span.cool_down_s = number(element)?,
            "RandSeed" => span.random_seed = number(element)?,
            "RandomWriteData" => span.random_write_data = boolean(element)?,
            "ThreadCount" => span.thread_count = number(element)?,
            "RequestCount" => span.request_count = number(element)?,
            "GroupAffinity" => {
                // Going round over groups is the only way here.
                boolean(element)?;
            }
            "Affinity" => {
                let list = element.children.iter().map(|child| processor(element, child));
                span.affinity = Affinity::Assigned(list.collect::<Read<_>>()?);
            }
            "DisableAffinity" => {
                if boolean(element)? {
                    span.affinity = Affinity::Disabled;
                }
            }
            "CompletionRoutines" => span.completion_routines = boolean(element)?,
            "MeasureLatency" => span.measure_latency = boolean(element)?,
            "CalculateIopsStdDev" => span.iops_std_dev = boolean(element)?,
            "IoBucketDuration" => span.bucket_ms = positive(element)?,
            "Targets" => {
                for child in only(element, "Target")? {
                    span.targets.push(target(child)?);
                }
            }
            _ => return unknown(root, element),
        }
    }
    Ok(span)
}

fn processor(parent: &Element, element: &Element) -> Read<GroupProcessor> {
    let value = |name: &str| element.attribute(name).and_then(|value| value.parse::<u32>().ok());
    let (group, processor) = match element.name.as_str() {
        "AffinityGroupAssignment" => (value("Group"), value("Processor")),
        "AffinityAssignment" => {
            let number = element.text.parse::<u32>().ok().or_else(|| value("Processor"));
            (Some(0), number)
        }
        _ => return unknown(parent, element),
    };
    let group = group.and_then(|group| u16::try_from(group).ok());
    let processor = processor.and_then(|number| u8::try_from(number).ok()).filter(|number| *number < 64);
    match (group, processor) {
        (Some(group), Some(processor)) => Ok(GroupProcessor { group, processor }),
        _ => Err(XmlError(format!("'{}' names no processor of a group", element.name))),
    }
}

fn target(root: &Element) -> Read<Target> {
    let mut target = Target { path: String::new(), ..Target::default() };
    // Values that stand in one element and count only if another one is present.
    let (mut stride, mut random, mut ratio) = (None, None, None);
    for element in &root.children {
        match element.name.as_str() {
            "Path" => target.path.clone_from(&element.text),
            "BlockSize" => target.block_bytes = positive(element)?,
            "StrideSize" => stride = Some(number::<u64>(element)?),
            "InterlockedSequential" => target.interlocked = boolean(element)?,
            "BaseFileOffset" => target.base_offset_bytes = number(element)?,
            "SequentialScan" => target.hint_sequential = boolean(element)?,
            "RandomAccess" => target.hint_random = boolean(element)?,
            "TemporaryFile" => target.temporary = boolean(element)?,
            "UseLargePages" => target.large_pages = boolean(element)?,
            "RequestCount" => target.request_count = positive(element)?,
            "Random" => random = Some(number::<u64>(element)?),
            "RandomRatio" => {
                let percent = number(element)?;
                if !(1..=100).contains(&percent) {
                    return wrong(element);
                }
                ratio = Some(percent);
            }
            "Distribution" => target.distribution = Some(distribution(element)?),
            "WriteBufferContent" => target.content = content(element)?,
            "BurstSize" => target.burst_size = number(element)?,
            "ThinkTime" => target.think_time_ms = number(element)?,
            "Throughput" => target.throughput = throughput(element)?,
            "ThreadsPerFile" => target.threads = positive(element)?,
            "FileSize" => target.create_bytes = Some(number(element)?).filter(|size| *size > 0),
            "MaxFileSize" => target.max_offset_bytes = number(element)?,
            "WriteRatio" => {
                target.write_percent = number(element)?;
                if target.write_percent > 100 {
                    return wrong(element);
                }
            }
            "ParallelAsyncIO" => target.parallel_async = boolean(element)?,
            "ThreadStride" => target.thread_stride_bytes = number(element)?,
            "IOPriority" => {
                let levels = [("1", Priority::VeryLow), ("2", Priority::Low), ("3", Priority::Normal)];
                target.priority = named(element, &levels)?;
            }
            "Weight" => target.weight = positive(element)?,
            "ThreadTargets" => {
                for child in only(element, "ThreadTarget")? {
                    target.thread_targets.push(thread_target(child)?);
                }
            }
            _ => caching(&mut target, root, element)?,
        }
    }
    if target.path.is_empty() {
        return Err(XmlError("a target has no path".into()));
    }
    pattern(&mut target, stride, random, ratio);
    Ok(target)
}

/// Reads how the target is cached, which several elements say together.
fn caching(target: &mut Target, root: &Element, element: &Element) -> Read<()> {
    match element.name.as_str() {
        "DisableAllCache" if boolean(element)? => {
            target.cache = CacheMode::DisableOsCache;
            target.write_through = WriteThrough::On;
        }
        "DisableLocalCache" if boolean(element)? => target.cache = CacheMode::DisableLocalCache,
        "DisableOSCache" if boolean(element)? => target.cache = CacheMode::DisableOsCache,
        "WriteThrough" if boolean(element)? => target.write_through = WriteThrough::On,
        "DisableAllCache" | "DisableLocalCache" | "DisableOSCache" | "WriteThrough" => {}
        "MemoryMappedIo" => target.memory_mapped = boolean(element)?,
        "FlushType" => {
            target.flush_mode = Some(named(
                element,
                &[
                    ("ViewOfFile", FlushMode::ViewOfFile),
                    ("NonVolatileMemory", FlushMode::NonVolatileMemory),
                    ("NonVolatileMemoryNoDrain", FlushMode::NonVolatileMemoryNoDrain),
                ],
            )?);
        }
        _ => return unknown(root, element),
    }
    Ok(())
}

/// Takes together what says where operations go: a stride, random operations' alignment, and their share.
fn pattern(target: &mut Target, stride: Option<u64>, random: Option<u64>, ratio: Option<u32>) {
    match random {
        Some(alignment) => {
            target.random_percent = ratio.unwrap_or(100);
            target.stride_bytes = Some(alignment).filter(|bytes| *bytes > 0);
        }
        None => {
            target.random_percent = ratio.unwrap_or(0);
            target.stride_bytes = stride.filter(|bytes| *bytes > 0);
        }
    }
    // The block size is what an absent stride means.
    if target.stride_bytes == Some(u64::from(target.block_bytes)) {
        target.stride_bytes = None;
    }
}

fn content(root: &Element) -> Read<WriteContent> {
    let mut pattern = "sequential";
    let mut source = None;
    for element in &root.children {
        match (element.name.as_str(), element.text.as_str()) {
            ("Pattern", text @ ("sequential" | "zero" | "random")) => pattern = text,
            ("Pattern", _) => return wrong(element),
            ("RandomDataSource", _) => {
                let (mut size_bytes, mut file) = (0, None);
                for child in &element.children {
                    match child.name.as_str() {
                        "SizeInBytes" => size_bytes = number(child)?,
                        "FilePath" => file = Some(child.text.clone()).filter(|path| !path.is_empty()),
                        _ => return unknown(element, child),
                    }
                }
                source = Some((size_bytes, file));
            }
            _ => return unknown(root, element),
        }
    }
    match (pattern, source) {
        ("zero", _) => Ok(WriteContent::Zero),
        ("random", Some((size_bytes, file))) => Ok(WriteContent::Source { size_bytes, file }),
        ("random", None) => {
            Err(XmlError("'WriteBufferContent' is random but has no 'RandomDataSource'".into()))
        }
        _ => Ok(WriteContent::Sequential),
    }
}

fn throughput(element: &Element) -> Read<Option<Throughput>> {
    let rate: u32 = number(element)?;
    let unit = element.attribute("unit").unwrap_or("BPMS");
    match (rate, unit) {
        (0, "IOPS" | "BPMS") => Ok(None),
        (rate, "IOPS") => Ok(Some(Throughput::Iops(rate))),
        (rate, "BPMS") => Ok(Some(Throughput::BytesPerMillisecond(rate))),
        _ => Err(XmlError("the unit of 'Throughput' is neither IOPS nor BPMS".into())),
    }
}

fn distribution(root: &Element) -> Read<Distribution> {
    let [kind] = &root.children[..] else {
        return Err(XmlError("'Distribution' needs one element, 'Percent' or 'Absolute'".into()));
    };
    let mut ranges = Vec::new();
    for range in only(kind, "Range")? {
        let share = range.attribute("IO").and_then(|share| share.parse::<u32>().ok());
        let share = share.filter(|share| *share <= 100);
        let Some(share) = share else {
            return Err(XmlError("a 'Range' has no 'IO' of 0 to 100".into()));
        };
        ranges.push((share, number(range)?));
    }
    match kind.name.as_str() {
        "Percent" => Ok(Distribution::Percent(ranges)),
        "Absolute" => Ok(Distribution::Absolute(ranges)),
        _ => unknown(root, kind),
    }
}

fn thread_target(root: &Element) -> Read<(u32, Option<u32>)> {
    let (mut thread, mut weight) = (None, None);
    for element in &root.children {
        match element.name.as_str() {
            "Thread" => thread = Some(number(element)?),
            "Weight" => weight = Some(positive(element)?),
            _ => return unknown(root, element),
        }
    }
    match thread {
        Some(thread) => Ok((thread, weight)),
        None => Err(XmlError("a 'ThreadTarget' names no thread".into())),
    }
}
