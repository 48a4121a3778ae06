//! A run's profile: the values behind a command line or an XML profile, checked as DiskSpd's Profile::Validate does.

/// Intervals of one series (`-D`).
const INTERVALS_MAX: u64 = 1_000_000;

/// Everything a run needs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// A dot every this many completions; 0: none.
    pub progress: u32,
    pub format: ResultFormat,
    /// Print the profile and do nothing (`-Rp`).
    pub profile_only: bool,
    pub verbose: bool,
    pub verbose_statistics: bool,
    pub experiment_flags: u32,
    /// Make the files of all time spans before the first; of XML profiles only.
    pub precreate: Option<Precreate>,
    pub trace: Option<Trace>,
    pub time_spans: Vec<TimeSpan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResultFormat {
    #[default]
    Text,
    Xml,
}

/// Which files are made before the first time span, and not again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precreate {
    /// All, each with the largest size that any time span gives it.
    UseMaxSize,
    /// Those that have the same size wherever they occur.
    OnlyConstantSizes,
    /// Those that have the same size wherever they have one.
    OnlyConstantOrZeroSizes,
}

/// The ETW options: kept and reported, since no such provider exists here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub process: bool,
    pub thread: bool,
    pub image_load: bool,
    pub disk_io: bool,
    pub memory_page_faults: bool,
    pub memory_hard_faults: bool,
    pub network: bool,
    pub registry: bool,
    pub paged_memory: bool,
    pub clock: TraceClock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TraceClock {
    #[default]
    Performance,
    System,
    Cycles,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TimeSpan {
    pub duration_s: u32,
    pub warm_up_s: u32,
    pub cool_down_s: u32,
    pub random_seed: u32,
    /// All threads together (`-F`); 0: threads are counted per target.
    pub thread_count: u32,
    /// Outstanding operations per thread of a pool (`-O`); 0: per target.
    pub request_count: u32,
    pub affinity: Affinity,
    pub completion_routines: bool,
    pub measure_latency: bool,
    pub iops_std_dev: bool,
    pub bucket_ms: u32,
    pub random_write_data: bool,
    pub targets: Vec<Target>,
}

impl Default for TimeSpan {
    fn default() -> Self {
        Self {
            duration_s: 10,
            warm_up_s: 5,
            cool_down_s: 0,
            random_seed: 0,
            thread_count: 0,
            request_count: 0,
            affinity: Affinity::RoundRobin,
            completion_routines: false,
            measure_latency: false,
            iops_std_dev: false,
            bucket_ms: 1000,
            random_write_data: false,
            targets: Vec::new(),
        }
    }
}

/// Which processor a thread runs on. A group is a slice of 64 processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affinity {
    RoundRobin,
    Disabled,
    Assigned(Vec<GroupProcessor>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupProcessor {
    pub group: u16,
    pub processor: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    #[default]
    Cached,
    DisableOsCache,
    DisableLocalCache,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteThrough {
    #[default]
    Off,
    On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushMode {
    ViewOfFile,
    NonVolatileMemory,
    NonVolatileMemoryNoDrain,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WriteContent {
    /// Bytes 0 to 255, again and again.
    #[default]
    Sequential,
    Zero,
    /// A buffer of random bytes, or of a file's, from which every write takes a piece.
    Source {
        size_bytes: u64,
        file: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throughput {
    BytesPerMillisecond(u32),
    Iops(u32),
}

/// Shares of operations over shares of the target: (share of operations in %, extent).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distribution {
    Percent(Vec<(u32, u64)>),
    Absolute(Vec<(u32, u64)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    VeryLow,
    Low,
    #[default]
    Normal,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub path: String,
    pub block_bytes: u32,
    /// Stride of sequential access, alignment of random; `None`: the block size.
    pub stride_bytes: Option<u64>,
    pub interlocked: bool,
    pub base_offset_bytes: u64,
    /// Exclusive; 0: the target's size.
    pub max_offset_bytes: u64,
    pub hint_sequential: bool,
    pub hint_random: bool,
    pub temporary: bool,
    pub large_pages: bool,
    pub request_count: u32,
    /// 0: sequential, 100: random, between: mixed.
    pub random_percent: u32,
    pub distribution: Option<Distribution>,
    pub cache: CacheMode,
    pub write_through: WriteThrough,
    pub memory_mapped: bool,
    pub flush_mode: Option<FlushMode>,
    pub content: WriteContent,
    pub burst_size: u32,
    pub think_time_ms: u32,
    pub throughput: Option<Throughput>,
    pub threads: u32,
    /// Create the file, of this size.
    pub create_bytes: Option<u64>,
    pub write_percent: u32,
    pub parallel_async: bool,
    pub thread_stride_bytes: u64,
    pub priority: Priority,
    pub weight: u32,
    /// (thread, weight): which threads of a pool use it, all if empty.
    pub thread_targets: Vec<(u32, Option<u32>)>,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            path: String::new(),
            block_bytes: 64 << 10,
            stride_bytes: None,
            interlocked: false,
            base_offset_bytes: 0,
            max_offset_bytes: 0,
            hint_sequential: false,
            hint_random: false,
            temporary: false,
            large_pages: false,
            request_count: 2,
            random_percent: 0,
            distribution: None,
            cache: CacheMode::Cached,
            write_through: WriteThrough::Off,
            memory_mapped: false,
            flush_mode: None,
            content: WriteContent::Sequential,
            burst_size: 0,
            think_time_ms: 0,
            throughput: None,
            threads: 1,
            create_bytes: None,
            write_percent: 0,
            parallel_async: false,
            thread_stride_bytes: 0,
            priority: Priority::Normal,
            weight: 1,
            thread_targets: Vec::new(),
        }
    }
}

impl Target {
    pub fn stride(&self) -> u64 {
        self.stride_bytes.unwrap_or(u64::from(self.block_bytes))
    }

    pub fn is_random(&self) -> bool {
        self.random_percent > 0
    }
}

/// Errors and oddities of a profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

impl Profile {
    /// The conflicts that are checked after parsing, and the warnings.
    pub fn validate(&self) -> Findings {
        let mut found = Findings::default();
        if self.time_spans.is_empty() {
            found.errors.push("ERROR: no timespans specified".into());
        }
        for span in &self.time_spans {
            span.validate(&mut found);
        }
        found
    }
}

impl Profile {
    /// Puts targets in the place of templates: `*1` stands for the first, and so on.
    ///
    /// # Errors
    /// A template without a target, a target without a template.
    pub fn fill_templates(&mut self, targets: &[String]) -> Result<(), String> {
        let mut used = vec![false; targets.len()];
        for target in self.time_spans.iter_mut().flat_map(|span| &mut span.targets) {
            let Some(number) = target.path.strip_prefix('*') else { continue };
            let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let Some((path, used)) = place.and_then(|at| targets.get(at).zip(used.get_mut(at))) else {
                return Err(format!(
                    "ERROR: template target {} was not given on the command line",
                    target.path
                ));
            };
            target.path.clone_from(path);
            *used = true;
        }
        match targets.iter().zip(used).find(|(_, used)| !used) {
            Some((path, _)) => Err(format!("ERROR: target '{path}' has no template in the XML profile")),
            None => Ok(()),
        }
    }
}

impl TimeSpan {
    fn validate(&self, found: &mut Findings) {
        let mut error = |condition: bool, text: &str| {
            if condition {
                found.errors.push(text.to_owned());
            }
        };
        error(self.targets.is_empty(), "ERROR: need to provide at least one filename");
        error(
            self.completion_routines && self.targets.iter().any(|target| target.throughput.is_some()),
            "ERROR: -g throughput control cannot be used with -x completion routines",
        );
        error(self.request_count > 0 && self.thread_count == 0, "ERROR: -O can only be used with -F");
        error(
            self.iops_std_dev
                && u64::from(self.duration_s) * 1000 / u64::from(self.bucket_ms.max(1)) > INTERVALS_MAX,
            "ERROR: the duration (-d) has too many IOPS intervals (-D)",
        );
        for target in &self.targets {
            target.validate(self, found);
        }
    }
}

impl Target {
    fn validate(&self, span: &TimeSpan, found: &mut Findings) {
        let told = |checks: &[(bool, &str)]| -> Vec<String> {
            checks.iter().filter(|(applies, _)| *applies).map(|(_, text)| (*text).to_owned()).collect()
        };
        found.errors.extend(told(&self.errors(span)));
        if let Some(distribution) = &self.distribution {
            found.errors.extend(distribution.validate(self.block_bytes));
        }
        found.warnings.extend(told(&self.warnings(span)));
    }

    /// Threads that work on the target.
    fn threads_in(&self, span: &TimeSpan) -> u32 {
        if span.thread_count > 0 { span.thread_count } else { self.threads }
    }

    /// Returns each reason that makes a target impossible, and whether it applies.
    fn errors(&self, span: &TimeSpan) -> [(bool, &'static str); 17] {
        let pool = span.request_count > 0;
        let random = self.is_random();
        let threads = self.threads_in(span);
        let cached_only = self.cache != CacheMode::DisableOsCache;
        let source_too_small = match &self.content {
            WriteContent::Source { size_bytes, .. } => *size_bytes < u64::from(self.block_bytes),
            _ => false,
        };
        [
            (
                pool && self.throughput.is_some(),
                "ERROR: -g throughput control cannot be used with -O outstanding requests per thread",
            ),
            (
                pool && self.think_time_ms > 0,
                "ERROR: -j think time cannot be used with -O outstanding requests per thread",
            ),
            (pool && self.parallel_async, "ERROR: -p cannot be used with -O outstanding requests per thread"),
            (
                self.burst_size > 0 && self.think_time_ms == 0,
                "ERROR: need to specify -j<think time> with -i<burst size>",
            ),
            (self.thread_stride_bytes > 0 && random, "ERROR: -T conflicts with -r"),
            (self.interlocked && random, "ERROR: -si conflicts with -r"),
            (self.interlocked && self.thread_stride_bytes > 0, "ERROR: -si conflicts with -T"),
            (self.interlocked && self.parallel_async, "ERROR: -si conflicts with -p"),
            (self.parallel_async && random, "ERROR: -p conflicts with -r"),
            (
                self.distribution.is_some() && !random,
                "ERROR: -rd random distribution cannot be used with purely sequential IO",
            ),
            (
                self.thread_stride_bytes > 0 && threads < 2,
                "ERROR: -T can only be used with more than one thread per target",
            ),
            (source_too_small, "ERROR: custom write buffer (-Z) is smaller than the block size"),
            (
                span.completion_routines && self.memory_mapped,
                "ERROR: completion routines (-x) can't be used with memory mapped IO (-Sm)",
            ),
            (
                self.memory_mapped && !cached_only,
                "ERROR: unbuffered IO (-Su or -Sh) can't be used with memory mapped IO (-Sm)",
            ),
            (
                self.flush_mode.is_some() && !self.memory_mapped,
                "ERROR: memory mapped flush mode (-N) can only be specified with memory mapped IO (-Sm)",
            ),
            (self.path.starts_with('*'), "ERROR: template target was not given on the command line"),
            (
                self.max_offset_bytes > 0 && self.max_offset_bytes <= self.base_offset_bytes,
                "ERROR: maximum file offset (-f) must be greater than base file offset (-B)",
            ),
        ]
    }

    /// Returns each reason that makes a target strange, and whether it applies.
    fn warnings(&self, span: &TimeSpan) -> [(bool, &'static str); 3] {
        let random = self.is_random();
        let threads = self.threads_in(span);
        [
            (
                self.parallel_async && self.request_count == 1,
                "WARNING: -p does not have effect unless outstanding I/O count (-o) is > 1",
            ),
            (self.interlocked && threads == 1, "WARNING: single-threaded test, -si ignored"),
            (
                !random
                    && !self.interlocked
                    && self.thread_stride_bytes == 0
                    && threads > 1
                    && !self.parallel_async,
                "WARNING: target access pattern will not be sequential, consider -si",
            ),
        ]
    }
}

impl Distribution {
    fn validate(&self, block_bytes: u32) -> Vec<String> {
        let (ranges, extent_limit) = match self {
            Self::Percent(ranges) => (ranges, Some(100)),
            Self::Absolute(ranges) => (ranges, None),
        };
        let mut errors = Vec::new();
        let operations: u64 = ranges.iter().map(|(share, _)| u64::from(*share)).sum();
        if operations > 100 {
            errors.push(format!("ERROR: random distribution IO% is {operations}%, more than 100%"));
        }
        if let Some(limit) = extent_limit {
            let extent = ranges.iter().fold(0u64, |sum, (_, extent)| sum.saturating_add(*extent));
            if extent > limit {
                errors.push(format!("ERROR: random distribution target% is {extent}%, more than 100%"));
            }
            if operations == 100 && extent < limit && ranges.is_empty() {
                errors.push("ERROR: random distribution is empty".into());
            }
        } else if ranges
            .iter()
            .any(|(share, extent)| *share > 0 && *extent > 0 && *extent < u64::from(block_bytes))
        {
            errors.push("ERROR: random distribution range is smaller than the block size".into());
        }
        if ranges.iter().any(|(share, extent)| *share > 0 && *extent == 0) {
            errors.push("ERROR: random distribution range has IO but no extent".into());
        }
        errors
    }
}
