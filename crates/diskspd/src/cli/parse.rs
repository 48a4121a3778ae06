//! From arguments to a profile.

mod values;

use super::{Changes, CommandLine, CommandLineError, Events, ReportStyle, SmbOptions, SmbTransport};
use crate::profile::{Affinity, Profile, Target, TimeSpan};
use crate::size::{self, SizeError};

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

/// Reads the arguments after the program's name. `clock_ms`: the seed of a bare `-z`.
///
/// # Errors
/// DiskSpd's message; the exit status is 3.
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
        progress_file: None,
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
        if self.line.xml.is_some() && !matches!(letter, 'v' | 'z' | 'R' | 'W' | 'd' | 'C' | 'X') {
            return fail(format!(
                "ERROR: invalid XML profile specification; parameter {argument} not compatible with -X"
            ));
        }
        let understood = match letter {
            'a' => return self.affinity(value),
            'B' => return self.base(argument, value),
            'c' => return self.sized(argument, value, |target, size| target.create_bytes = Some(size)),
            'f' => return self.hints_or_extent(argument, value),
            'h' if value.is_empty() => return self.cache_flags("h", "-h"),
            'r' => return self.random(argument, value),
            'R' => return self.results(value),
            's' => return self.sequential(argument, value),
            'S' => return self.cache_flags(value, argument),
            'T' => return self.sized(argument, value, |target, size| target.thread_stride_bytes = size),
            'w' => return self.write_percent(argument, value),
            'X' if self.line.xml.is_some() => return fail("ERROR: multiple XML profiles specified (-X)"),
            'Z' => return self.content(argument, value),
            // Read in the first pass.
            'b' => Some(()),
            ':' | 'C' | 'd' | 'D' | 'F' | 'L' | 'n' | 'O' | 'P' | 'W' | 'x' | 'X' | 'z' => {
                self.run_option(letter, value)
            }
            'e' => self.trace(value),
            'g' => self.throughput(value),
            'i' | 'j' | 'l' | 'o' | 'p' | 't' => self.target_option(letter, value),
            'I' => self.priority(value),
            'N' => self.flush_mode(value),
            'v' => self.verbose(value),
            'y' => self.event(value),
            'h' => None,
            _ => return fail(format!("ERROR: invalid option: '{argument}'")),
        };
        understood.ok_or_else(|| CommandLineError(wrong(argument)))
    }

    /// An option of the whole run; `None`: its value is none.
    fn run_option(&mut self, letter: char, value: &str) -> Option<()> {
        let number = || value.parse::<u32>().ok();
        let positive = || number().filter(|count| *count > 0);
        match letter {
            ':' => number().map(|flags| self.line.profile.experiment_flags = flags),
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
            'F' => positive().map(|count| self.span.thread_count = count),
            'L' if value.is_empty() => {
                self.span.measure_latency = true;
                Some(())
            }
            'n' if value.is_empty() => {
                self.seen.no_affinity = true;
                self.span.affinity = Affinity::Disabled;
                Some(())
            }
            'O' => positive().map(|count| self.span.request_count = count),
            'P' if value.is_empty() => {
                self.line.profile.progress = 65_536;
                Some(())
            }
            'P' => positive().map(|count| self.line.profile.progress = count),
            'W' => number().map(|seconds| {
                self.span.warm_up_s = seconds;
                self.line.changes.warm_up_s = Some(seconds);
            }),
            'x' if value.is_empty() => {
                self.span.completion_routines = true;
                Some(())
            }
            'X' if !value.is_empty() => {
                self.line.xml = Some(value.to_owned());
                Some(())
            }
            'z' => {
                let seed = if value.is_empty() { Some(self.clock_ms) } else { number() };
                seed.map(|seed| {
                    self.span.random_seed = seed;
                    self.line.changes.random_seed = Some(seed);
                })
            }
            _ => None,
        }
    }

    /// An option of the targets that follow; `None`: its value is none.
    fn target_option(&mut self, letter: char, value: &str) -> Option<()> {
        let positive = || value.parse::<u32>().ok().filter(|count| *count > 0);
        match letter {
            'i' => positive().map(|count| self.target.burst_size = count),
            'j' => positive().map(|ms| self.target.think_time_ms = ms),
            'l' if value.is_empty() => {
                self.target.large_pages = true;
                Some(())
            }
            'o' => positive().map(|count| self.target.request_count = count),
            'p' if value.is_empty() => {
                self.target.parallel_async = true;
                Some(())
            }
            't' => positive().map(|count| {
                self.seen.threads = true;
                self.target.threads = count;
            }),
            _ => None,
        }
    }

    fn takes_value(name: &str) -> bool {
        matches!(
            name,
            "report-style"
                | "histogram"
                | "progress-file"
                | "start-at"
                | "yes-overwrite"
                | "smb-credentials"
                | "smb-transport"
                | "smb-rdma-device"
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
            "progress-file" => self.line.progress_file = Some(value.ok_or_else(missing)?),
            "start-at" => {
                let unix_ms = value.and_then(|value| value.parse().ok()).ok_or_else(missing)?;
                self.line.events.start_unix_ms = Some(unix_ms);
            }
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
            "smb-rdma-device" => smb.rdma_device = Some(value.ok_or_else(missing)?),
            "smb-channels" => {
                let channels =
                    value.and_then(|value| value.parse().ok()).filter(|count| (1..=32).contains(count));
                smb.channels = channels.ok_or_else(missing)?;
            }
            "smb-sign" => smb.sign = true,
            "smb-seal" => smb.seal = true,
            "smb-no-crc" => smb.no_crc = true,
            "smb-busy-poll" => {
                let microseconds =
                    value.and_then(|value| value.parse().ok()).filter(|limit| *limit <= 10_000);
                smb.busy_poll_us = microseconds.ok_or_else(missing)?;
            }
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
