//! Values behind an option's letter: each function checks its value and puts it into the profile.

use super::{Parsed, Parser, fail, wrong};
use crate::cli::{CommandLineError, affinity};
use crate::profile::{
    Affinity, CacheMode, Distribution, FlushMode, Priority, ResultFormat, Target, Throughput, Trace,
    TraceClock, WriteContent, WriteThrough,
};

impl Parser {
    pub(super) fn sized(
        &mut self,
        argument: &str,
        value: &str,
        set: impl FnOnce(&mut Target, u64),
    ) -> Parsed<()> {
        match self.size(value) {
            Ok(size) if size > 0 => {
                set(&mut self.target, size);
                Ok(())
            }
            Ok(_) => fail(wrong(argument)),
            Err(error) => fail(format!("{error}\n{}", wrong(argument))),
        }
    }

    pub(super) fn affinity(&mut self, value: &str) -> Parsed<()> {
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

    pub(super) fn base(&mut self, argument: &str, value: &str) -> Parsed<()> {
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

    /// `-f` is a size if a digit follows, and hints else.
    pub(super) fn hints_or_extent(&mut self, argument: &str, value: &str) -> Parsed<()> {
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

    pub(super) fn throughput(&mut self, value: &str) -> Option<()> {
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

    pub(super) fn priority(&mut self, value: &str) -> Option<()> {
        self.target.priority = match value {
            "1" => Priority::VeryLow,
            "2" => Priority::Low,
            "3" => Priority::Normal,
            _ => return None,
        };
        Some(())
    }

    pub(super) fn flush_mode(&mut self, value: &str) -> Option<()> {
        self.target.flush_mode = Some(match value {
            "v" => FlushMode::ViewOfFile,
            "n" => FlushMode::NonVolatileMemory,
            "i" => FlushMode::NonVolatileMemoryNoDrain,
            _ => return None,
        });
        Some(())
    }

    pub(super) fn random(&mut self, argument: &str, value: &str) -> Parsed<()> {
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

    pub(super) fn distribution(&self, kind: &str) -> Result<Distribution, String> {
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

    pub(super) fn results(&mut self, value: &str) -> Parsed<()> {
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

    pub(super) fn sequential(&mut self, argument: &str, value: &str) -> Parsed<()> {
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
    pub(super) fn cache_flags(&mut self, flags: &str, argument: &str) -> Parsed<()> {
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

    pub(super) fn verbose(&mut self, value: &str) -> Option<()> {
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

    pub(super) fn write_percent(&mut self, argument: &str, value: &str) -> Parsed<()> {
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

    pub(super) fn content(&mut self, argument: &str, value: &str) -> Parsed<()> {
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

    pub(super) fn event(&mut self, value: &str) -> Option<()> {
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

    pub(super) fn trace(&mut self, value: &str) -> Option<()> {
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
}
