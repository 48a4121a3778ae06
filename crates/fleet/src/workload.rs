//! The work of a worker: VMFleet's profiles, those of the published papers, and profiles of one's own.
//!
//! Every profile has template targets `*1`, which stand for the worker's data file.

use diskspd::profile::{
    CacheMode, Distribution, Profile, ResultFormat, Target, Throughput, TimeSpan, WriteContent, WriteThrough,
};

/// The source of write data of VMFleet's profiles (`-Z10m`).
const SOURCE_BYTES: u64 = 10 << 20;
/// The data disk that offsets of the VDI and SQL profiles are made for.
const DATA_DISK_BYTES: u64 = 10 << 30;
/// 95 % of the operations on 5 % of the target, 4 % on 10 %, and 1 % on the rest.
const HOT: [(u32, u64); 2] = [(95, 5), (4, 10)];

/// The order of a worker's offsets, as `Start-FleetSweep -p` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    #[default]
    Random,
    Sequential,
    /// All threads of a target share one offset.
    Interlocked,
}

impl Pattern {
    pub fn letters(self) -> &'static str {
        match self {
            Self::Random => "r",
            Self::Sequential => "s",
            Self::Interlocked => "si",
        }
    }

    /// Reads `r`, `s` or `si`.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Random, Self::Sequential, Self::Interlocked].into_iter().find(|one| one.letters() == text)
    }
}

/// Seconds of a run's parts. The defaults are `Get-FleetProfileXml`'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub warm_up_s: u32,
    pub duration_s: u32,
    pub cool_down_s: u32,
}

impl Default for Times {
    fn default() -> Self {
        Self { warm_up_s: 300, duration_s: 60, cool_down_s: 30 }
    }
}

impl Times {
    pub fn total_s(self) -> u64 {
        u64::from(self.warm_up_s) + u64::from(self.duration_s) + u64::from(self.cool_down_s)
    }

    /// Gives all time spans of a profile these times.
    pub fn apply(self, profile: &mut Profile) {
        for span in &mut profile.time_spans {
            span.warm_up_s = self.warm_up_s;
            span.duration_s = self.duration_s;
            span.cool_down_s = self.cool_down_s;
        }
    }
}

/// Changes of a named profile; `None` fields stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub block_bytes: Option<u32>,
    pub write_percent: Option<u32>,
    pub threads: Option<u32>,
    pub requests: Option<u32>,
    pub pattern: Option<Pattern>,
    pub random_percent: Option<u32>,
    pub base_offset_bytes: Option<u64>,
    pub max_offset_bytes: Option<u64>,
}

impl Changes {
    /// Changes the targets; `-w` and `-b` reach every one.
    pub fn apply(&self, profile: &mut Profile) {
        for target in targets(profile) {
            if let Some(bytes) = self.block_bytes {
                // A stride or an alignment of one block stays one.
                if target.stride_bytes == Some(u64::from(target.block_bytes)) {
                    target.stride_bytes = Some(u64::from(bytes));
                }
                target.block_bytes = bytes;
            }
            for (value, change) in [
                (&mut target.write_percent, self.write_percent),
                (&mut target.threads, self.threads),
                (&mut target.request_count, self.requests),
            ] {
                *value = change.unwrap_or(*value);
            }
            if let Some(pattern) = self.pattern {
                target.random_percent = if pattern == Pattern::Random { 100 } else { 0 };
                target.interlocked = pattern == Pattern::Interlocked;
            }
            target.random_percent = self.random_percent.unwrap_or(target.random_percent);
            if target.random_percent == 0 {
                target.distribution = None;
            }
            target.base_offset_bytes = self.base_offset_bytes.unwrap_or(target.base_offset_bytes);
            target.max_offset_bytes = self.max_offset_bytes.unwrap_or(target.max_offset_bytes);
        }
    }
}

/// A named profile: how it is called, where it comes from.
pub struct Named {
    pub name: &'static str,
    /// The command line that it equals, or its parts.
    pub line: &'static str,
    make: fn() -> Profile,
}

impl Named {
    pub fn profile(&self) -> Profile {
        (self.make)()
    }
}

/// All profiles that have a name.
pub const NAMED: &[Named] = &[
    Named { name: "peak", line: "-t1 -b4k -o32 -w0 -r -Suw -D -L -Z10m", make: peak },
    Named {
        name: "general",
        line: "-t1 -b4k -o32 -w0 -r -Suw -D -L -Z10m -rdpct95/5:4/10",
        make: || one(hot(peak_target())),
    },
    Named {
        name: "vdi",
        line: "-t1 -o8 -b32k -w100 -g6i -rs20 -rdpct95/5:4/10 -Z10m -f10g; -t1 -o8 -b8k -w0 -g6i -rs80 -rdpct95/5:4/10 -f8g",
        make: vdi,
    },
    Named {
        name: "sql",
        line: "-t4 -o32 -r -b8k -g1500i -w30 -rdpct95/5:4/10 -B5g -Z10m; -t1 -o1 -s -b32k -g300i -w100 -f5g -Z10m",
        make: sql,
    },
    Named { name: "read-4k", line: "-t1 -b4k -r -o32 -w0", make: || plain(4 << 10, 0) },
    // The mixes are the Soochow paper's; the rest of the line is that of VMFleet's run.ps1 of the time.
    Named { name: "web", line: "-Z20M -h -t1 -o8 -b4k -r4k -w0", make: || mix(0) },
    Named { name: "file", line: "-Z20M -h -t1 -o8 -b4k -r4k -w10", make: || mix(10) },
    Named { name: "mail", line: "-Z20M -h -t1 -o8 -b4k -r4k -w33", make: || mix(33) },
    Named { name: "guest-write", line: "-b64k -w100 -r -o64 -t32 -Sh", make: || guest(100) },
    Named { name: "guest-read", line: "-b64k -w0 -r -o64 -t32 -Sh", make: || guest(0) },
];

/// The profile of this name, in any case.
pub fn named(name: &str) -> Option<&'static Named> {
    NAMED.iter().find(|one| one.name.eq_ignore_ascii_case(name))
}

fn targets(profile: &mut Profile) -> impl Iterator<Item = &mut Target> {
    profile.time_spans.iter_mut().flat_map(|span| &mut span.targets)
}

/// One time span of these targets, with latencies and the deviation of IOPS, as all of VMFleet's.
fn span(targets: Vec<Target>) -> Profile {
    let span = TimeSpan { measure_latency: true, iops_std_dev: true, targets, ..TimeSpan::default() };
    let mut profile = Profile { format: ResultFormat::Xml, time_spans: vec![span], ..Profile::default() };
    Times::default().apply(&mut profile);
    profile
}

fn one(target: Target) -> Profile {
    span(vec![target])
}

fn template(block_bytes: u32) -> Target {
    Target {
        path: "*1".into(),
        block_bytes,
        cache: CacheMode::DisableOsCache,
        write_through: WriteThrough::On,
        content: WriteContent::Source { size_bytes: SOURCE_BYTES, file: None },
        ..Target::default()
    }
}

fn random(mut target: Target, percent: u32) -> Target {
    target.random_percent = percent;
    target.stride_bytes = Some(u64::from(target.block_bytes));
    target
}

fn hot(mut target: Target) -> Target {
    target.distribution = Some(Distribution::Percent(HOT.to_vec()));
    target
}

fn peak_target() -> Target {
    Target { request_count: 32, ..random(template(4 << 10), 100) }
}

fn peak() -> Profile {
    one(peak_target())
}

fn vdi() -> Profile {
    let part = |block_bytes, percent| {
        let target = hot(random(template(block_bytes), percent));
        Target { request_count: 8, throughput: Some(Throughput::Iops(6)), ..target }
    };
    let write = Target { write_percent: 100, max_offset_bytes: 10 << 30, ..part(32 << 10, 20) };
    let read = Target { content: WriteContent::Sequential, max_offset_bytes: 8 << 30, ..part(8 << 10, 80) };
    span(vec![write, read])
}

fn sql() -> Profile {
    let oltp = Target {
        threads: 4,
        request_count: 32,
        write_percent: 30,
        throughput: Some(Throughput::Iops(1500)),
        base_offset_bytes: 5 << 30,
        ..hot(random(template(8 << 10), 100))
    };
    let log = Target {
        request_count: 1,
        write_percent: 100,
        throughput: Some(Throughput::Iops(300)),
        max_offset_bytes: 5 << 30,
        stride_bytes: Some(32 << 10),
        ..template(32 << 10)
    };
    span(vec![oltp, log])
}

/// A paper's own line: cached, since none of `-S` is on it.
fn plain(block_bytes: u32, write_percent: u32) -> Profile {
    let target = Target {
        request_count: 32,
        write_percent,
        cache: CacheMode::Cached,
        write_through: WriteThrough::Off,
        content: WriteContent::Sequential,
        ..random(template(block_bytes), 100)
    };
    one(target)
}

fn mix(write_percent: u32) -> Profile {
    let content = WriteContent::Source { size_bytes: 20 << 20, file: None };
    one(Target { request_count: 8, write_percent, content, ..random(template(4 << 10), 100) })
}

fn guest(write_percent: u32) -> Profile {
    let target = Target {
        request_count: 64,
        threads: 32,
        write_percent,
        content: WriteContent::Sequential,
        ..random(template(64 << 10), 100)
    };
    one(target)
}

/// Makes a profile fit a data file: offsets beyond its end are scaled as the file is to a data disk of
/// 10 GiB. Returns whether it changed anything.
pub fn fit_offsets(profile: &mut Profile, file_bytes: u64) -> bool {
    let beyond = |target: &Target| {
        let first_end = target.base_offset_bytes.saturating_add(u64::from(target.block_bytes));
        target.max_offset_bytes > file_bytes || (target.base_offset_bytes > 0 && first_end > file_bytes)
    };
    if !targets(profile).any(|target| beyond(target)) {
        return false;
    }
    let scale = |offset: u64, block: u64| {
        let scaled = u128::from(offset) * u128::from(file_bytes) / u128::from(DATA_DISK_BYTES);
        let scaled = u64::try_from(scaled).unwrap_or(file_bytes).min(file_bytes);
        scaled / block * block
    };
    for target in targets(profile) {
        let block = u64::from(target.block_bytes.max(1));
        target.base_offset_bytes = scale(target.base_offset_bytes, block);
        if target.max_offset_bytes > 0 {
            target.max_offset_bytes =
                scale(target.max_offset_bytes, block).max(target.base_offset_bytes + block);
        }
    }
    true
}

/// The operations a second of one worker, over all its targets and threads; 0: a target is not limited.
pub fn limit_iops(profile: &Profile) -> u64 {
    let mut total = 0;
    for target in profile.time_spans.iter().flat_map(|span| &span.targets) {
        match target.throughput {
            Some(Throughput::Iops(iops)) if iops > 0 => total += u64::from(iops) * u64::from(target.threads),
            _ => return 0,
        }
    }
    total
}

/// Limits a worker to `iops` operations a second, as `Set-FleetProfile -Throughput` does: shared by the
/// targets as their limits were, else evenly, and by their threads. 0 with one target removes its limit.
///
/// # Errors
/// Targets with and without a limit are mixed, 0 is given for several targets, or threads form a pool.
pub fn set_limit(profile: &mut Profile, iops: u32) -> Result<(), String> {
    for span in &mut profile.time_spans {
        if span.thread_count > 0 {
            return Err("a profile whose threads form a pool (-F) cannot be limited".into());
        }
        let weight = |target: &Target| match target.throughput {
            Some(Throughput::Iops(iops) | Throughput::BytesPerMillisecond(iops)) => {
                u64::from(iops) * u64::from(target.threads)
            }
            None => 0,
        };
        let total: u64 = span.targets.iter().map(weight).sum();
        let limited = span.targets.iter().filter(|target| weight(target) > 0).count();
        if limited > 0 && limited < span.targets.len() {
            return Err("a profile of limited and unlimited targets cannot be limited as a whole".into());
        }
        if iops == 0 && limited > 1 {
            return Err("the limit of several targets cannot be taken off: their ratio would be lost".into());
        }
        let count = span.targets.len().max(1) as f64;
        for target in &mut span.targets {
            let share = if total == 0 { 1.0 / count } else { weight(target) as f64 / total as f64 };
            let by_thread = f64::from(iops) * share / f64::from(target.threads.max(1));
            target.throughput =
                (iops > 0).then(|| Throughput::Iops((by_thread.round_ties_even() as u32).max(1)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskspd::{cli, xml};

    /// The profile of a command line of DiskSpd.
    fn of_line(words: &str) -> Vec<Target> {
        let words: Vec<String> = words.split(' ').chain(["x"]).map(str::to_owned).collect();
        let line = cli::parse(&words, 0).unwrap();
        line.profile.time_spans[0].targets.clone()
    }

    #[test]
    fn each_named_profile_is_the_command_line_that_it_says() {
        for named in NAMED {
            let mut profile = named.profile();
            let ours = std::mem::take(&mut profile.time_spans[0].targets);
            let parts: Vec<&str> = named.line.split("; ").collect();
            assert_eq!(parts.len(), ours.len(), "{}", named.name);
            for (words, target) in parts.into_iter().zip(ours) {
                let mut theirs = of_line(words).remove(0);
                theirs.path = "*1".into();
                assert_eq!(theirs.stride(), target.stride(), "{}", named.name);
                theirs.stride_bytes = target.stride_bytes;
                // VMFleet's VDI and SQL templates have -Suw beyond what their comments say.
                if matches!(named.name, "vdi" | "sql") {
                    (theirs.cache, theirs.write_through) = (target.cache, target.write_through);
                }
                assert_eq!(theirs, target, "{}", named.name);
            }
        }
    }

    #[test]
    fn each_named_profile_survives_its_xml() {
        for named in NAMED {
            let profile = named.profile();
            let mut read = xml::read_profile(xml::profile(&profile, 0).as_bytes()).unwrap();
            read.fill_templates(&["file".into()]).unwrap();
            assert_eq!(read.validate().errors, Vec::<String>::new(), "{}", named.name);
            assert_eq!(read.time_spans[0].targets.len(), profile.time_spans[0].targets.len());
        }
    }

    #[test]
    fn times_are_those_of_get_fleet_profile_xml() {
        let span = &named("General").unwrap().profile().time_spans[0];
        assert_eq!((span.warm_up_s, span.duration_s, span.cool_down_s), (300, 60, 30));
    }

    #[test]
    fn a_limit_is_shared_by_the_ratio_of_targets_and_by_threads() {
        let limits = |profile: &Profile| -> Vec<u32> {
            let of = |target: &Target| match target.throughput {
                Some(Throughput::Iops(iops)) => iops,
                _ => 0,
            };
            profile.time_spans[0].targets.iter().map(of).collect()
        };
        // 4 threads of 1500 and one of 300: 6300 in all.
        let mut profile = named("sql").unwrap().profile();
        assert_eq!(limit_iops(&profile), 6300);
        set_limit(&mut profile, 12_600).unwrap();
        assert_eq!(limits(&profile), [3000, 600]);
        assert!(set_limit(&mut profile, 0).is_err());
        let mut profile = named("peak").unwrap().profile();
        assert_eq!(limit_iops(&profile), 0);
        set_limit(&mut profile, 500).unwrap();
        assert_eq!(limits(&profile), [500]);
        set_limit(&mut profile, 0).unwrap();
        assert_eq!(limit_iops(&profile), 0);
    }

    #[test]
    fn offsets_of_a_data_disk_are_scaled_to_a_smaller_file() {
        let mut profile = named("sql").unwrap().profile();
        assert!(fit_offsets(&mut profile, 64 << 20));
        let targets = &profile.time_spans[0].targets;
        assert_eq!(targets[0].base_offset_bytes, 32 << 20);
        assert_eq!(targets[1].max_offset_bytes, 32 << 20);
        let mut profile = named("sql").unwrap().profile();
        assert!(!fit_offsets(&mut profile, 10 << 30), "a file of 10 GiB holds them");
        assert!(!fit_offsets(&mut named("peak").unwrap().profile(), 1 << 20));
        assert!(!fit_offsets(&mut named("vdi").unwrap().profile(), 10 << 30));
    }

    #[test]
    fn changes_reach_all_targets_and_keep_the_profile_valid() {
        let mut profile = named("general").unwrap().profile();
        let changes = Changes {
            block_bytes: Some(8192),
            write_percent: Some(10),
            pattern: Some(Pattern::Interlocked),
            threads: Some(4),
            ..Changes::default()
        };
        changes.apply(&mut profile);
        let target = &profile.time_spans[0].targets[0];
        assert_eq!((target.block_bytes, target.stride(), target.write_percent), (8192, 8192, 10));
        assert!(target.interlocked && target.distribution.is_none());
        profile.fill_templates(&["file".into()]).unwrap();
        assert_eq!(profile.validate().errors, Vec::<String>::new());
    }
}
