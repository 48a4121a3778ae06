//! From arguments to a profile.

use super::{CommandLineError, SmbOptions, SmbTransport, affinity};
use crate::profile::{
    Affinity, CacheMode, Distribution, FlushMode, Priority, Profile, ResultFormat, Target, Throughput,
    TimeSpan, Trace, TraceClock, WriteContent, WriteThrough,
};
use crate::size::{self, SizeError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReportStyle {
    #[default]
    V2_2,
    V2_0_17,
}

/// Names of the events that start and stop a run (`-y`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Events {
    pub signal_start: Option<String>,
    pub signal_finish: Option<String>,
    pub wait_start: Option<String>,
    pub stop: Option<String>,
    /// Set this one and quit.
    pub set: Option<String>,
}

/// A whole command line. `profile` is what its options say; with `xml` they only change what the file says.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandLine {
    pub help: bool,
    /// Print the manual page.
    pub manual: bool,
    pub profile: Profile,
    pub xml: Option<String>,
    /// What `-W -d -C -z -R -v` said, to change an XML profile with.
    pub changes: Changes,
    pub targets: Vec<String>,
    pub events: Events,
    pub report_style: ReportStyle,
    pub histogram: Option<String>,
    pub overwrite: Vec<String>,
    pub smb: SmbOptions,
}

/// Options that may stand beside `-X`, where they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub duration_s: Option<u32>,
    pub warm_up_s: Option<u32>,
    pub cool_down_s: Option<u32>,
    pub random_seed: Option<u32>,
    pub format: Option<ResultFormat>,
    pub profile_only: bool,
    pub verbose: bool,
    pub verbose_statistics: bool,
}

impl Changes {
    /// Changes all time spans of a profile.
    pub fn apply(&self, profile: &mut Profile) {
        if let Some(format) = self.format {
            profile.format = format;
        }
        profile.profile_only |= self.profile_only;
        profile.verbose |= self.verbose;
        profile.verbose_statistics |= self.verbose_statistics;
        for span in &mut profile.time_spans {
            for (value, change) in [
                (&mut span.duration_s, self.duration_s),
                (&mut span.warm_up_s, self.warm_up_s),
                (&mut span.cool_down_s, self.cool_down_s),
                (&mut span.random_seed, self.random_seed),
            ] {
                if let Some(change) = change {
                    *value = change;
                }
            }
        }
    }
}

type Parsed<T> = Result<T, CommandLineError>;

fn fail<T>(text: impl Into<String>) -> Parsed<T> {
    Err(CommandLineError(text.into()))
}

/// Which of the options that exclude each other were seen.
#[derive(Default)]
struct Seen {
    cache_mode: Option<&'static str>,
    write_through: Option<&'static str>,
    memory_mapped: bool,
    base_length: bool,
    max_offset: bool,
    sequential: bool,
    random_percent: bool,
    threads: bool,
    no_affinity: bool,
    affinity: bool,
    distribution: bool,
    random: bool,
    throughput: bool,
}

struct Parser {
    line: CommandLine,
    span: TimeSpan,
    target: Target,
    seen: Seen,
    /// For `-z` alone.
    clock_ms: u32,
}

/// Reads the arguments after the program's name. `clock_ms`: what a bare `-z` takes for its seed.
///
/// # Errors
/// What DiskSpd prints; the exit status is 3.
pub fn parse(arguments: &[String], clock_ms: u32) -> Parsed<CommandLine> {
    let line = CommandLine {
        help: false,
        manual: false,
        profile: Profile::default(),
        xml: None,
        changes: Changes::default(),
        targets: Vec::new(),
        events: Events::default(),
        report_style: ReportStyle::default(),
        histogram: None,
        overwrite: Vec::new(),
        smb: SmbOptions::default(),
    };
    let (span, target) = (TimeSpan::default(), Target::default());
    let mut parser = Parser { line, span, target, seen: Seen::default(), clock_ms };
    parser.block_size(arguments)?;
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        at += 1;
        if argument == "--man" {
            parser.line.manual = true;
            return Ok(parser.line);
        }
        if let Some(name) = argument.strip_prefix("--") {
            let value = match name.split_once('=') {
                Some((_, value)) => Some(value.to_owned()),
                None if Parser::takes_value(name) => {
                    at += 1;
                    arguments.get(at - 1).cloned()
                }
                None => None,
            };
            parser.long_option(argument, name.split('=').next().unwrap_or(name), value)?;
        } else if argument.starts_with('-') && argument.len() > 1 {
            if !parser.line.targets.is_empty() {
                return fail(format!(
                    "ERROR: parameters ({argument}) must come before targets on the command line"
                ));
            }
            if argument == "-?" {
                parser.line.help = true;
                return Ok(parser.line);
            }
            parser.option(argument)?;
        } else {
            parser.line.targets.push(argument.clone());
        }
    }
    parser.finish()
}

impl Parser {
    /// The first pass: `b` in other options counts in this.
    fn block_size(&mut self, arguments: &[String]) -> Parsed<()> {
        for argument in arguments.iter().filter(|argument| argument.starts_with("-b")) {
            let size = size::parse(&argument[2..], 0);
            match size.ok().and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0) {
                Some(size) => self.target.block_bytes = size,
                None => {
                    let detail = size::parse(&argument[2..], 0).err().map(|error| format!("{error}\n"));
                    return fail(format!(
                        "{}ERROR: invalid block size passed to -b\n{}",
                        detail.unwrap_or_default(),
                        wrong(argument)
                    ));
                }
            }
        }
        Ok(())
    }

    fn size(&self, text: &str) -> Result<u64, SizeError> {
        size::parse(text, u64::from(self.target.block_bytes))
    }

    fn option(&mut self, argument: &str) -> Parsed<()> {
        let mut letters = argument[1..].chars();
        let letter = letters.next().unwrap_or_default();
        let value = letters.as_str();
        let number = || value.parse::<u32>().ok();
        let positive = || number().filter(|count| *count > 0);
        if self.line.xml.is_some() && !matches!(letter, 'v' | 'z' | 'R' | 'W' | 'd' | 'C' | 'X') {
            return fail(format!(
                "ERROR: invalid XML profile specification; parameter {argument} not compatible with -X"
            ));
        }
        let understood = match letter {
            ':' => number().map(|flags| self.line.profile.experiment_flags = flags),
            'a' => return self.affinity(value),
            // Read in the first pass.
            'b' => Some(()),
            'B' => return self.base(argument, value),
            'c' => return self.sized(argument, value, |target, size| target.create_bytes = Some(size)),
            'C' => number().map(|seconds| {
                self.span.cool_down_s = seconds;
                self.line.changes.cool_down_s = Some(seconds);
            }),
            'd' => positive().map(|seconds| {
                self.span.duration_s = seconds;
                self.line.changes.duration_s = Some(seconds);
            }),
            'D' => {
                self.span.iops_std_dev = true;
                if value.is_empty() { Some(()) } else { positive().map(|ms| self.span.bucket_ms = ms) }
            }
            'e' => self.trace(value),
            'f' => return self.hints_or_extent(argument, value),
            'F' => positive().map(|count| self.span.thread_count = count),
            'g' => self.throughput(value),
            'h' if value.is_empty() => return self.cache_flags("h", "-h"),
            'i' => positive().map(|count| self.target.burst_size = count),
            'I' => self.priority(value),
            'j' => positive().map(|ms| self.target.think_time_ms = ms),
            'l' if value.is_empty() => {
                self.target.large_pages = true;
                Some(())
            }
            'L' if value.is_empty() => {
                self.span.measure_latency = true;
                Some(())
            }
            'n' if value.is_empty() => {
                self.seen.no_affinity = true;
                self.span.affinity = Affinity::Disabled;
                Some(())
            }
            'N' => self.flush_mode(value),
            'o' => positive().map(|count| self.target.request_count = count),
            'O' => positive().map(|count| self.span.request_count = count),
            'p' if value.is_empty() => {
                self.target.parallel_async = true;
                Some(())
            }
            'P' if value.is_empty() => {
                self.line.profile.progress = 65_536;
                Some(())
            }
            'P' => positive().map(|count| self.line.profile.progress = count),
            'r' => return self.random(argument, value),
            'R' => return self.results(value),
            's' => return self.sequential(argument, value),
            'S' => return self.cache_flags(value, argument),
            't' => positive().map(|count| {
                self.seen.threads = true;
                self.target.threads = count;
            }),
            'T' => return self.sized(argument, value, |target, size| target.thread_stride_bytes = size),
            'v' => self.verbose(value),
            'w' => return self.write_percent(argument, value),
            'W' => number().map(|seconds| {
                self.span.warm_up_s = seconds;
                self.line.changes.warm_up_s = Some(seconds);
            }),
            'x' if value.is_empty() => {
                self.span.completion_routines = true;
                Some(())
            }
            'X' if self.line.xml.is_some() => return fail("ERROR: multiple XML profiles specified (-X)"),
            'X' if !value.is_empty() => {
                self.line.xml = Some(value.to_owned());
                Some(())
            }
            'y' => self.event(value),
            'z' => {
                let seed = if value.is_empty() { Some(self.clock_ms) } else { number() };
                seed.map(|seed| {
                    self.span.random_seed = seed;
                    self.line.changes.random_seed = Some(seed);
                })
            }
            'Z' => return self.content(argument, value),
            'h' | 'l' | 'L' | 'n' | 'p' | 'x' | 'X' => None,
            _ => return fail(format!("ERROR: invalid option: '{argument}'")),
        };
        understood.ok_or_else(|| CommandLineError(wrong(argument)))
    }

    fn sized(&mut self, argument: &str, value: &str, set: impl FnOnce(&mut Target, u64)) -> Parsed<()> {
        match self.size(value) {
            Ok(size) if size > 0 => {
                set(&mut self.target, size);
                Ok(())
            }
            Ok(_) => fail(wrong(argument)),
            Err(error) => fail(format!("{error}\n{}", wrong(argument))),
        }
    }

    fn affinity(&mut self, value: &str) -> Parsed<()> {
        self.seen.affinity = true;
        if value == "g" {
            self.span.affinity = Affinity::RoundRobin;
            return Ok(());
        }
        let more = affinity::parse(value)?;
        match &mut self.span.affinity {
            Affinity::Assigned(list) => list.extend(more),
            other => *other = Affinity::Assigned(more),
        }
        Ok(())
    }

    fn base(&mut self, argument: &str, value: &str) -> Parsed<()> {
        let (base, length) = match value.split_once(':') {
            Some((base, length)) => (base, Some(length)),
            None => (value, None),
        };
        let base =
            self.size(base).map_err(|error| CommandLineError(format!("{error}\n{}", wrong(argument))))?;
        self.target.base_offset_bytes = base;
        let Some(length) = length else { return Ok(()) };
        if self.seen.max_offset {
            return fail("ERROR: -f<size> conflicts with -B<base>:<length>");
        }
        let length =
            self.size(length).map_err(|error| CommandLineError(format!("{error}\n{}", wrong(argument))))?;
        let end = base
            .checked_add(length)
            .filter(|_| length > 0)
            .ok_or_else(|| CommandLineError(wrong(argument)))?;
        self.seen.base_length = true;
        self.target.max_offset_bytes = end;
        Ok(())
    }

    /// `-f` is a size where a digit follows, and hints else.
    fn hints_or_extent(&mut self, argument: &str, value: &str) -> Parsed<()> {
        if value.starts_with(|first: char| first.is_ascii_digit()) {
            if self.seen.base_length {
                return fail("ERROR: -f<size> conflicts with -B<base>:<length>");
            }
            self.seen.max_offset = true;
            return self.sized(argument, value, |target, size| target.max_offset_bytes = size);
        }
        if value.is_empty() {
            return fail(wrong(argument));
        }
        for hint in value.chars() {
            match hint {
                'r' => self.target.hint_random = true,
                's' => self.target.hint_sequential = true,
                't' => self.target.temporary = true,
                _ => return fail(wrong(argument)),
            }
        }
        Ok(())
    }

    fn throughput(&mut self, value: &str) -> Option<()> {
        self.seen.throughput = true;
        let (digits, iops) = match value.strip_suffix('i') {
            Some(digits) => (digits, true),
            None => (value, false),
        };
        let rate: u32 = digits.parse().ok()?;
        self.target.throughput = match (rate, iops) {
            (0, _) => None,
            (rate, true) => Some(Throughput::Iops(rate)),
            (rate, false) => Some(Throughput::BytesPerMillisecond(rate)),
        };
        Some(())
    }

    fn priority(&mut self, value: &str) -> Option<()> {
        self.target.priority = match value {
            "1" => Priority::VeryLow,
            "2" => Priority::Low,
            "3" => Priority::Normal,
            _ => return None,
        };
        Some(())
    }

    fn flush_mode(&mut self, value: &str) -> Option<()> {
        self.target.flush_mode = Some(match value {
            "v" => FlushMode::ViewOfFile,
            "n" => FlushMode::NonVolatileMemory,
            "i" => FlushMode::NonVolatileMemoryNoDrain,
            _ => return None,
        });
        Some(())
    }

    fn random(&mut self, argument: &str, value: &str) -> Parsed<()> {
        if let Some(kind) = value.strip_prefix('d') {
            self.seen.distribution = true;
            let distribution = self
                .distribution(kind)
                .map_err(|text| CommandLineError(format!("{text}{}", wrong(argument))))?;
            if self.target.distribution.replace(distribution).is_some() {
                return fail(format!(
                    "ERROR: random distribution (-rd) specified twice\n{}",
                    wrong(argument)
                ));
            }
            if self.target.random_percent == 0 {
                self.target.random_percent = 100;
            }
            return Ok(());
        }
        if let Some(percent) = value.strip_prefix('s') {
            let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
            self.target.random_percent = percent.ok_or_else(|| CommandLineError(wrong(argument)))?;
            self.seen.random_percent = true;
            return Ok(());
        }
        self.seen.random = true;
        if self.target.random_percent == 0 {
            self.target.random_percent = 100;
        }
        if value.is_empty() {
            return Ok(());
        }
        self.sized(argument, value, |target, size| target.stride_bytes = Some(size))
    }

    fn distribution(&self, kind: &str) -> Result<Distribution, String> {
        let (percent, list) = if let Some(list) = kind.strip_prefix("pct") {
            (true, list)
        } else if let Some(list) = kind.strip_prefix("abs") {
            (false, list)
        } else {
            return Err(String::new());
        };
        let mut ranges = Vec::new();
        for range in list.split(':') {
            let (share, extent) = range.split_once('/').ok_or_else(String::new)?;
            let share = share.parse::<u32>().ok().filter(|share| *share <= 100).ok_or_else(String::new)?;
            let extent = if percent {
                extent.parse::<u64>().ok().filter(|extent| *extent <= 100).ok_or_else(String::new)?
            } else {
                self.size(extent).map_err(|error| format!("{error}\n"))?
            };
            ranges.push((share, extent));
        }
        Ok(if percent { Distribution::Percent(ranges) } else { Distribution::Absolute(ranges) })
    }

    fn results(&mut self, value: &str) -> Parsed<()> {
        let (profile_only, format) = match value.strip_prefix('p') {
            Some(format) => (true, format),
            None => (false, value),
        };
        let format = match format {
            "text" => ResultFormat::Text,
            "xml" => ResultFormat::Xml,
            "" if profile_only => ResultFormat::Text,
            _ => return fail("ERROR: unspecified results format -R: use [p]<text|xml>"),
        };
        self.line.profile.profile_only = profile_only;
        self.line.profile.format = format;
        self.line.changes.profile_only = profile_only;
        self.line.changes.format = Some(format);
        Ok(())
    }

    fn sequential(&mut self, argument: &str, value: &str) -> Parsed<()> {
        let stride = match value.strip_prefix('i') {
            Some(stride) => {
                self.target.interlocked = true;
                stride
            }
            None => value,
        };
        self.seen.sequential = true;
        if stride.is_empty() {
            return Ok(());
        }
        self.sized(argument, stride, |target, size| target.stride_bytes = Some(size))
    }

    /// `-S` and its flags, in any order; each of cache mode, write-through and mapping is set once.
    fn cache_flags(&mut self, flags: &str, argument: &str) -> Parsed<()> {
        let flags = if flags.is_empty() { "u" } else { flags };
        let option = |flag: char| -> &'static str {
            match flag {
                'b' => "-Sb",
                'h' if argument == "-h" => "-h",
                'h' => "-Sh",
                'm' => "-Sm",
                'r' => "-Sr",
                'u' => "-Su",
                _ => "-Sw",
            }
        };
        for flag in flags.chars() {
            let name = option(flag);
            let (cache, write_through, mapped) = match flag {
                'b' => (Some(CacheMode::Cached), false, false),
                'h' => (Some(CacheMode::DisableOsCache), true, false),
                'm' => (None, false, true),
                'r' => (Some(CacheMode::DisableLocalCache), false, false),
                'u' => (Some(CacheMode::DisableOsCache), false, false),
                'w' => (None, true, false),
                _ => return fail(format!("ERROR: unrecognized option provided to -S\n{}", wrong(argument))),
            };
            if let Some(mode) = cache {
                if let Some(earlier) = self.seen.cache_mode {
                    return fail(format!(
                        "ERROR: {name} conflicts with earlier specification of cache mode ({earlier})\n{}",
                        wrong(argument)
                    ));
                }
                if self.seen.memory_mapped && mode == CacheMode::DisableOsCache {
                    return fail(format!(
                        "ERROR: {name} conflicts with earlier specification of memory mapped IO\n{}",
                        wrong(argument)
                    ));
                }
                self.seen.cache_mode = Some(name);
                self.target.cache = mode;
            }
            if write_through {
                if let Some(earlier) = self.seen.write_through {
                    let colon = if flag == 'w' { "" } else { ":" };
                    return fail(format!(
                        "ERROR{colon} {name} conflicts with earlier specification of write through ({earlier})\n{}",
                        wrong(argument)
                    ));
                }
                self.seen.write_through = Some(name);
                self.target.write_through = WriteThrough::On;
            }
            if mapped {
                if self.seen.memory_mapped || self.target.cache == CacheMode::DisableOsCache {
                    return fail(format!(
                        "ERROR: -Sm conflicts with earlier specification of unbuffered or memory mapped IO\n{}",
                        wrong(argument)
                    ));
                }
                self.seen.memory_mapped = true;
                self.target.memory_mapped = true;
            }
        }
        Ok(())
    }

    fn verbose(&mut self, value: &str) -> Option<()> {
        match value {
            "" => {
                self.line.profile.verbose = true;
                self.line.changes.verbose = true;
            }
            "s" => {}
            _ => return None,
        }
        self.line.profile.verbose_statistics = true;
        self.line.changes.verbose_statistics = true;
        Some(())
    }

    fn write_percent(&mut self, argument: &str, value: &str) -> Parsed<()> {
        if value.is_empty() {
            return fail(format!("ERROR: no write ratio passed to -w\n{}", wrong(argument)));
        }
        match value.parse::<u32>().ok().filter(|percent| *percent <= 100) {
            Some(percent) => {
                self.target.write_percent = percent;
                Ok(())
            }
            None => fail(format!(
                "ERROR: write ratio passed to -w must be between 0 and 100 (percent)\n{}",
                wrong(argument)
            )),
        }
    }

    fn content(&mut self, argument: &str, value: &str) -> Parsed<()> {
        match value {
            "" => self.target.content = WriteContent::Zero,
            "r" => self.span.random_write_data = true,
            _ => {
                let (size, file) = match value.split_once(',') {
                    Some((_, "")) => return fail(wrong(argument)),
                    Some((size, file)) => (size, Some(file.to_owned())),
                    None => (value, None),
                };
                return self.sized(argument, size, |target, size_bytes| {
                    target.content = WriteContent::Source { size_bytes, file };
                });
            }
        }
        Ok(())
    }

    fn event(&mut self, value: &str) -> Option<()> {
        let mut letters = value.chars();
        let kind = letters.next()?;
        let name = Some(letters.as_str().to_owned()).filter(|name| !name.is_empty())?;
        let events = &mut self.line.events;
        let slot = match kind {
            's' => &mut events.signal_start,
            'f' => &mut events.signal_finish,
            'r' => &mut events.wait_start,
            'p' => &mut events.stop,
            'e' => &mut events.set,
            _ => return None,
        };
        *slot = Some(name);
        Some(())
    }

    fn trace(&mut self, value: &str) -> Option<()> {
        let trace = self.line.profile.trace.get_or_insert_with(Trace::default);
        match value {
            "q" => trace.clock = TraceClock::Performance,
            "c" => trace.clock = TraceClock::Cycles,
            "s" => trace.clock = TraceClock::System,
            "p" => trace.paged_memory = true,
            "PROCESS" => trace.process = true,
            "THREAD" => trace.thread = true,
            "IMAGE_LOAD" => trace.image_load = true,
            "DISK_IO" => trace.disk_io = true,
            "MEMORY_PAGE_FAULTS" => trace.memory_page_faults = true,
            "MEMORY_HARD_FAULTS" => trace.memory_hard_faults = true,
            "NETWORK" => trace.network = true,
            "REGISTRY" => trace.registry = true,
            _ => return None,
        }
        Some(())
    }

    fn takes_value(name: &str) -> bool {
        matches!(
            name,
            "report-style"
                | "histogram"
                | "yes-overwrite"
                | "smb-credentials"
                | "smb-transport"
                | "smb-channels"
        )
    }

    fn long_option(&mut self, argument: &str, name: &str, value: Option<String>) -> Parsed<()> {
        let missing = || CommandLineError(wrong(argument));
        let smb = &mut self.line.smb;
        match name {
            "report-style" => {
                self.line.report_style = match value.as_deref() {
                    Some("2.2") => ReportStyle::V2_2,
                    Some("2.0.17") => ReportStyle::V2_0_17,
                    _ => return Err(missing()),
                };
            }
            "histogram" => self.line.histogram = Some(value.ok_or_else(missing)?),
            "yes-overwrite" => self.line.overwrite.push(value.ok_or_else(missing)?),
            "smb-credentials" => smb.credentials = Some(value.ok_or_else(missing)?),
            "smb-transport" => {
                smb.transport = match value.as_deref() {
                    Some("auto") => SmbTransport::Auto,
                    Some("tcp") => SmbTransport::Tcp,
                    Some("rdma") => SmbTransport::Rdma,
                    _ => return Err(missing()),
                };
            }
            "smb-channels" => {
                let channels =
                    value.and_then(|value| value.parse().ok()).filter(|count| (1..=32).contains(count));
                smb.channels = channels.ok_or_else(missing)?;
            }
            "smb-sign" => smb.sign = true,
            "smb-seal" => smb.seal = true,
            "smb-no-crc" => smb.no_crc = true,
            _ => return fail(format!("ERROR: invalid option: '{argument}'")),
        }
        Ok(())
    }

    /// The conflicts that need the whole line, and the targets.
    fn finish(mut self) -> Parsed<CommandLine> {
        let seen = &self.seen;
        for (conflict, text) in [
            (seen.no_affinity && seen.affinity, "ERROR: -n and -a parameters cannot be used together"),
            (
                self.span.thread_count > 0 && seen.threads,
                "ERROR: -F and -t parameters cannot be used together",
            ),
            (
                seen.throughput && self.span.completion_routines,
                "ERROR: -g throughput control cannot be used with -x completion routines",
            ),
            (seen.sequential && seen.random && !seen.random_percent, "ERROR: -s conflicts with -r"),
            (
                seen.distribution && self.target.random_percent == 0,
                "ERROR: -rd random distribution cannot be used with purely sequential IO",
            ),
        ] {
            if conflict {
                return fail(text);
            }
        }
        if self.line.events.set.is_some() {
            return Ok(self.line);
        }
        if self.line.xml.is_none() {
            if self.line.targets.is_empty() {
                return fail("ERROR: need to provide at least one filename");
            }
            for path in &self.line.targets {
                self.span.targets.push(Target { path: path.clone(), ..self.target.clone() });
            }
            self.line.profile.time_spans.push(self.span);
            let findings = self.line.profile.validate();
            if !findings.errors.is_empty() {
                return fail(findings.errors.join("\n"));
            }
        }
        Ok(self.line)
    }
}

fn wrong(argument: &str) -> String {
    format!("ERROR: incorrectly provided option: '{argument}'")
}
