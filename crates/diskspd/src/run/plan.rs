//! What a time span needs before its threads start: targets made, looked at and claimed, sources filled, threads laid out.

use super::{RunError, RunOptions};
use crate::engine::WorkerFailure;
use crate::engine::offsets::Offsets;
use crate::engine::random::Random;
use crate::port::Content;
use crate::profile::{Affinity, FlushMode, Profile, Target, TimeSpan, WriteContent};
use crate::target::{self, Place, TargetError, local};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use sys::region::{Mapping, Region};

/// Threads at most, so that a slip of the finger does not bring the machine down.
const THREADS_MAX: usize = 4096;
/// Streams of random numbers beside those of threads.
const SOURCE_STREAM: u32 = 1 << 31;

/// A target, ready to be opened by threads.
pub(super) struct Prepared {
    pub(super) target: Target,
    pub(super) kind: PreparedKind,
    pub(super) size_bytes: u64,
    /// What writes come from, where it is not the slots' own memory.
    pub(super) source: Option<Arc<Region>>,
    /// The offset that `-si` shares.
    pub(super) shared: Arc<AtomicU64>,
    /// Keeps a block device from others.
    pub(super) _claim: Option<File>,
}

pub(super) enum PreparedKind {
    File(PathBuf),
    Mapped(Arc<Mapping>),
}

/// What one thread does.
pub(super) struct ThreadPlan {
    /// (target, the thread's number among the target's, weight in a pool)
    pub(super) targets: Vec<(usize, u32, u32)>,
    pub(super) processor: Option<usize>,
}

pub(super) struct Plan {
    pub(super) targets: Vec<Prepared>,
    pub(super) threads: Vec<ThreadPlan>,
    pub(super) pool_slots: u32,
    pub(super) random_seed: u32,
    pub(super) random_write_data: bool,
    pub(super) measure_latency: bool,
    pub(super) bucket_ms: Option<u32>,
    pub(super) large_pages: bool,
}

impl Plan {
    pub(super) fn new(
        profile: &Profile,
        span: &TimeSpan,
        options: &RunOptions<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let mut targets = Vec::new();
        for (number, target) in span.targets.iter().enumerate() {
            if profile.verbose {
                eprintln!("opening '{}'", target.path);
            }
            targets.push(prepare(span, target, number as u32, options, is_stopped)?);
        }
        let plan = Self {
            threads: threads(span)?,
            targets,
            pool_slots: if span.thread_count > 0 { span.request_count } else { 0 },
            random_seed: span.random_seed,
            random_write_data: span.random_write_data,
            measure_latency: span.measure_latency || options.latency,
            bucket_ms: span.iops_std_dev.then_some(span.bucket_ms),
            large_pages: span.targets.iter().any(|target| target.large_pages),
        };
        plan.check_offsets()?;
        Ok(plan)
    }

    /// Every thread must have room on its targets.
    fn check_offsets(&self) -> Result<(), RunError> {
        for thread in &self.threads {
            for (number, relative, _) in &thread.targets {
                let Some(one) = self.targets.get(*number) else { continue };
                if Offsets::new(&one.target, one.size_bytes, *relative, 0, &one.shared).is_err() {
                    return Err(RunError::Setup(format!(
                        "The file is too small. File: '{}' relative thread {relative}: file size: {}, base offset: {}, \
                         thread stride: {}, block size: {}",
                        one.target.path,
                        one.size_bytes,
                        one.target.base_offset_bytes,
                        one.target.thread_stride_bytes,
                        one.target.block_bytes
                    )));
                }
            }
        }
        Ok(())
    }

    /// Where the writes of a target come from in a thread's port; `index` is the source's place there.
    pub(super) fn content(&self, target: &Prepared, index: usize) -> Content {
        match &target.source {
            _ if self.random_write_data => Content::Random,
            Some(source) => Content::source(index, source.len(), target.target.block_bytes),
            None => Content::Slot,
        }
    }
}

fn prepare(
    span: &TimeSpan,
    target: &Target,
    number: u32,
    options: &RunOptions<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Prepared, RunError> {
    let place = target::place(&target.path)?;
    target::check_options(target, &place)?;
    let overwrite = options.overwrite.contains(&target.path);
    let path = match place {
        Place::Local(path) => path,
        Place::Smb(_) => {
            return Err(TargetError::Other(format!(
                "ERROR: '{}': SMB targets are not built into this program",
                target.path
            ))
            .into());
        }
    };
    if let Some(size_bytes) = target.create_bytes {
        local::create(target, &path, size_bytes, overwrite, is_stopped)?;
    }
    let measured = local::measure(target, &path, overwrite)?;
    let is_claimed = measured.is_block_device && target.write_percent > 0;
    let claim = if is_claimed { Some(local::claim(target, &path)?) } else { None };
    if target.max_offset_bytes > measured.size_bytes {
        eprintln!(
            "WARNING: file size {} is less than MaxFileSize {}",
            measured.size_bytes, target.max_offset_bytes
        );
    }
    // In a pool a slot serves all targets, so that their bytes cannot lie in it.
    let needs_source = target.write_percent > 0
        && !span.random_write_data
        && (span.request_count > 0
            || target.memory_mapped
            || matches!(target.content, WriteContent::Source { .. }));
    let source = if needs_source {
        let mut random = Random::new(span.random_seed, SOURCE_STREAM | number);
        let fill = |bytes: &mut [u8]| random.fill(bytes);
        Some(Arc::new(local::source(&target.content, target.block_bytes, target.large_pages, fill)?))
    } else {
        None
    };
    let kind = if target.memory_mapped {
        PreparedKind::Mapped(Arc::new(map(target, &path, measured.size_bytes)?))
    } else {
        PreparedKind::File(path)
    };
    Ok(Prepared {
        target: target.clone(),
        kind,
        size_bytes: measured.size_bytes,
        source,
        shared: Arc::new(AtomicU64::new(0)),
        _claim: claim,
    })
}

fn map(target: &Target, path: &std::path::Path, size_bytes: u64) -> Result<Mapping, TargetError> {
    let file = local::open(target, path)?;
    let is_persistent =
        matches!(target.flush_mode, Some(FlushMode::NonVolatileMemory | FlushMode::NonVolatileMemoryNoDrain));
    Mapping::new(&file, size_bytes, target.write_percent > 0, is_persistent).map_err(|error| {
        if is_persistent {
            TargetError::Other(format!(
                "ERROR: '{}' is not on persistent memory (a file system mounted with DAX): -Nn and -Ni would flush nothing: {error}",
                target.path
            ))
        } else {
            TargetError::Other(format!("Error mapping file: {} [{}]\n{error}", target.path, error.raw_os_error().unwrap_or(0)))
        }
    })
}

/// Lays the threads out, and the processors they run on.
fn threads(span: &TimeSpan) -> Result<Vec<ThreadPlan>, RunError> {
    let mut found = Vec::new();
    if span.thread_count > 0 {
        for thread in 0..span.thread_count {
            let mut targets = Vec::new();
            for (number, target) in span.targets.iter().enumerate() {
                let chosen = target.thread_targets.iter().find(|(wanted, _)| *wanted == thread);
                match chosen {
                    None if !target.thread_targets.is_empty() => {}
                    chosen => {
                        let weight = chosen.and_then(|(_, weight)| *weight).unwrap_or(target.weight);
                        targets.push((number, thread, weight));
                    }
                }
            }
            found.push(targets);
        }
    } else {
        for (number, target) in span.targets.iter().enumerate() {
            found.extend((0..target.threads).map(|relative| vec![(number, relative, target.weight)]));
        }
    }
    if found.len() > THREADS_MAX {
        return Err(RunError::Setup(format!("ERROR: {} threads are more than {THREADS_MAX}", found.len())));
    }
    let processors = processors(span)?;
    let plans = found.into_iter().enumerate().map(|(at, targets)| ThreadPlan {
        targets,
        processor: processors.get(at % processors.len().max(1)).copied(),
    });
    Ok(plans.collect())
}

/// Processors to go round; empty without affinity.
fn processors(span: &TimeSpan) -> Result<Vec<usize>, RunError> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Ok(Vec::new()) };
    match &span.affinity {
        Affinity::Disabled => Ok(Vec::new()),
        Affinity::RoundRobin => {
            let all = 0..rustix::thread::CpuSet::MAX_CPU;
            Ok(all.filter(|processor| allowed.is_set(*processor)).collect())
        }
        Affinity::Assigned(list) => list
            .iter()
            .map(|one| {
                let number = usize::from(one.group) * 64 + usize::from(one.processor);
                let is_there = number < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(number);
                if is_there {
                    Ok(number)
                } else {
                    Err(RunError::Setup(format!("ERROR: CPU {} is out of range", one.processor)))
                }
            })
            .collect(),
    }
}

/// As DiskSpd prints it, the missing parenthesis included.
pub(super) fn failure_text(failure: &WorkerFailure) -> String {
    match failure.operation {
        Some((target, is_write)) => format!(
            "t[{}:{target}] error during {} error code: {})",
            failure.thread,
            if is_write { "write" } else { "read" },
            failure.failure
        ),
        None => format!("t[{}] error: {}", failure.thread, failure.failure),
    }
}
