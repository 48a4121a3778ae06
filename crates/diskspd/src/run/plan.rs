//! Prepares a time span before its threads start: targets made, measured and claimed, sources filled,
//! threads laid out.

use super::{RunError, RunOptions};
use crate::engine::WorkerFailure;
use crate::engine::offsets::Offsets;
use crate::engine::random::Random;
use crate::port::Content;
use crate::profile::{Affinity, FlushMode, Precreate, Profile, Target, TimeSpan, WriteContent};
use crate::target::smb::Access;
use crate::target::{self, Place, TargetError, local, smb};
use smb_client::{Engine, Location};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use sys::Buf;
use sys::region::{Mapping, Region};

/// Threads at most, so that a slip of the finger does not bring the machine down.
const THREADS_MAX: u64 = 4096;
/// Most operations of one thread at once, as many as a ring takes.
const SLOTS_MAX: u64 = 32_000;
/// Streams of random numbers beside those of threads.
const SOURCE_STREAM: u32 = 1 << 31;

/// A target, ready to be opened by threads.
pub(super) struct Prepared {
    pub(super) target: Target,
    pub(super) kind: PreparedKind,
    pub(super) size_bytes: u64,
    /// Memory that writes take their data from, if it is not the slots' own.
    pub(super) source: Option<Arc<Region>>,
    /// Source for files on shares.
    pub(super) smb_source: Option<Buf>,
    /// The offset that `-si` shares.
    pub(super) shared: Arc<AtomicU64>,
    /// Keeps a block device from others.
    pub(super) _claim: Option<File>,
}

pub(super) enum PreparedKind {
    File(PathBuf),
    Mapped(Arc<Mapping>),
    Smb(Location),
}

/// The work of one thread.
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
    /// Where there are files on shares.
    pub(super) smb: Option<Access>,
}

impl Plan {
    pub(super) fn new(
        profile: &Profile,
        span: &TimeSpan,
        options: &RunOptions<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Self, RunError> {
        let mut targets = Vec::new();
        let mut access = None;
        for (number, target) in span.targets.iter().enumerate() {
            if profile.verbose {
                eprintln!("opening '{}'", target.path);
            }
            let place = target::place(&target.path)?;
            target::check_options(target, &place)?;
            let number = number as u32;
            targets.push(match place {
                Place::Local(path) => prepare_local(span, target, number, path, options, is_stopped)?,
                Place::Smb(path) => {
                    let access = match &mut access {
                        Some(access) => access,
                        none => none.insert(Access::new(options.smb)?),
                    };
                    prepare_smb(span, target, number, path, access, options, is_stopped)?
                }
            });
        }
        let plan = Self {
            smb: access,
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

    /// Checks that every thread has space on its targets.
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

/// Makes files before the first time span, if the profile wants it; gives the paths made.
pub(super) fn precreate(profile: &Profile, options: &RunOptions<'_>) -> Result<Vec<String>, RunError> {
    let Some(mode) = profile.precreate else { return Ok(Vec::new()) };
    let mut made: Vec<String> = Vec::new();
    let all = || profile.time_spans.iter().flat_map(|span| &span.targets);
    for target in all().filter(|target| target.create_bytes.is_some()) {
        if made.contains(&target.path) {
            continue;
        }
        let sizes =
            || all().filter(|other| other.path == target.path).map(|other| other.create_bytes.unwrap_or(0));
        let largest = sizes().max().unwrap_or(0);
        let is_wanted = match mode {
            Precreate::UseMaxSize => true,
            Precreate::OnlyConstantSizes => sizes().all(|size| size == largest),
            Precreate::OnlyConstantOrZeroSizes => sizes().all(|size| size == largest || size == 0),
        };
        if !is_wanted {
            continue;
        }
        let overwrite = options.overwrite.contains(&target.path);
        match target::place(&target.path)? {
            Place::Local(path) => local::create(target, &path, largest, overwrite, options.is_interrupted)?,
            Place::Smb(path) => {
                create_remote(
                    target,
                    &path,
                    &Access::new(options.smb)?,
                    largest,
                    overwrite,
                    options.is_interrupted,
                )?;
            }
        }
        made.push(target.path.clone());
    }
    Ok(made)
}

fn create_remote(
    target: &Target,
    path: &Location,
    access: &Access,
    size_bytes: u64,
    overwrite: bool,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), RunError> {
    let engine = Engine::new().map_err(|error| RunError::Setup(format!("ERROR: no network: {error}")))?;
    let mut client = access.connect(&engine, path)?;
    let tree = smb::tree(&mut client, target, path)?;
    smb::create(&mut client, tree, target, path, size_bytes, overwrite, is_stopped)?;
    // A server that does not care for its end has ended the session all the same.
    let _ = client.log_off();
    Ok(())
}

fn prepare_local(
    span: &TimeSpan,
    target: &Target,
    number: u32,
    path: PathBuf,
    options: &RunOptions<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Prepared, RunError> {
    let overwrite = options.overwrite.contains(&target.path);
    if let Some(size_bytes) = target.create_bytes {
        local::create(target, &path, size_bytes, overwrite, is_stopped)?;
    }
    let measured = local::measure(target, &path, overwrite)?;
    let is_claimed = measured.is_block_device && target.write_percent > 0;
    let claim = if is_claimed { Some(local::claim(target, &path)?) } else { None };
    warn_of_size(target, measured.size_bytes);
    // In a pool a slot serves all targets, so that their bytes cannot lie in it.
    let needs_source = target.write_percent > 0
        && !span.random_write_data
        && (span.request_count > 0
            || target.memory_mapped
            || matches!(target.content, WriteContent::Source { .. }));
    let source = if needs_source { Some(Arc::new(fill_source(span, target, number)?)) } else { None };
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
        smb_source: None,
        shared: Arc::new(AtomicU64::new(0)),
        _claim: claim,
    })
}

fn prepare_smb(
    span: &TimeSpan,
    target: &Target,
    number: u32,
    path: Location,
    access: &Access,
    options: &RunOptions<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Prepared, RunError> {
    let overwrite = options.overwrite.contains(&target.path);
    let engine = Engine::new().map_err(|error| RunError::Setup(format!("ERROR: no network: {error}")))?;
    let mut client = access.connect(&engine, &path)?;
    let tree = smb::tree(&mut client, target, &path)?;
    if let Some(size_bytes) = target.create_bytes {
        smb::create(&mut client, tree, target, &path, size_bytes, overwrite, is_stopped)?;
    }
    // The guard does not check a file that was just made.
    let overwrite = overwrite || target.create_bytes.is_some();
    let size_bytes = smb::measure(&mut client, tree, target, &path, overwrite)?;
    // A server that does not care for its end has ended the session all the same.
    let _ = client.log_off();
    warn_of_size(target, size_bytes);
    let smb_source = if target.write_percent > 0 && !span.random_write_data {
        if let WriteContent::Source { size_bytes, .. } = target.content
            && size_bytes > sys::BUFFER_BYTES_MAX as u64
        {
            return Err(RunError::Setup(format!(
                "ERROR: write buffers of {size_bytes} bytes (-Z) are over the limit of {} bytes for a file on a share",
                sys::BUFFER_BYTES_MAX
            )));
        }
        Some(Buf::from(fill_source(span, target, number)?.bytes()))
    } else {
        None
    };
    Ok(Prepared {
        target: target.clone(),
        kind: PreparedKind::Smb(path),
        size_bytes,
        source: None,
        smb_source,
        shared: Arc::new(AtomicU64::new(0)),
        _claim: None,
    })
}

fn warn_of_size(target: &Target, size_bytes: u64) {
    if target.max_offset_bytes > size_bytes {
        eprintln!("WARNING: file size {size_bytes} is less than MaxFileSize {}", target.max_offset_bytes);
    }
}

fn fill_source(span: &TimeSpan, target: &Target, number: u32) -> Result<Region, TargetError> {
    let mut random = Random::new(span.random_seed, SOURCE_STREAM | number);
    local::source(&target.content, target.block_bytes, target.large_pages, |bytes| random.fill(bytes))
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
    let by_target = span.targets.iter().map(|target| u64::from(target.threads)).sum();
    let count = if span.thread_count > 0 { u64::from(span.thread_count) } else { by_target };
    if count > THREADS_MAX {
        return Err(RunError::Setup(format!("ERROR: {count} threads are more than {THREADS_MAX}")));
    }
    let requests = span.targets.iter().map(|target| u64::from(target.request_count));
    let slots = match (span.request_count, span.thread_count) {
        (0, 0) => requests.max().unwrap_or(0),
        (0, _) => requests.sum(),
        (slots, _) => u64::from(slots),
    };
    if slots > SLOTS_MAX {
        return Err(RunError::Setup(format!(
            "ERROR: {slots} outstanding I/O operations per thread are more than {SLOTS_MAX}"
        )));
    }
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
