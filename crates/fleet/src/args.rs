//! The command line: one definition for parser, help and man pages. Owns names and options only.

use crate::state::{Accelerator, Transport};
use crate::workload::{Changes, Pattern, Times};
use api_client::Resiliency;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use types::size::parse_size;

/// fleet: many workers measure a storage system together, in VMFleet's steps.
#[derive(Debug, Parser)]
#[command(name = "fleet", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Directory of the fleet: its description, its password, its current run
    #[arg(long, global = true, default_value = "fleet-data", value_name = "DIR")]
    pub fleet: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a fleet: a volume and a share for each node's workers, a user, and their data files
    New(New),
    /// Start the workers; they work until `fleet stop`
    Start(Start),
    /// Stop the workers, and print their results
    Stop,
    /// Change the limits of workers, and how many run
    Set(Set),
    /// Show the fleet: nodes, workers, the current run
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a profile once on all workers, or a published experiment: seed-001 to seed-004
    Run(Run),
    /// Run every combination of lists of parameters
    Sweep(Sweep),
    /// Measure the core workloads: search the loads between idle and saturation
    Measure(Measure),
    /// Show the nodes' rates, once a second
    Watch(Watch),
    /// Show results: the rows, fits of CPU sweeps
    Results {
        /// A result.tsv, or the directory that has one
        #[arg(default_value = ".")]
        from: PathBuf,
        /// IOPS at this CPU use, by the fit
        #[arg(long, value_name = "PERCENT", value_parser = percent)]
        cpu_target: Option<f64>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the fleet: workers, shares, volumes with all data on them, and the user
    Remove {
        /// Do it without asking; NAME is the fleet's
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
    /// Print a profile as XML, to be changed and used as one's own
    Profile {
        /// Name of the profile; without one, all are listed
        name: Option<String>,
        #[command(flatten)]
        shape: Shape,
    },
    /// Do one machine's part in a run, which is read from standard input; started by the others
    #[command(hide = true)]
    Worker,
    /// Do one job in a microVM, as its first process
    #[command(hide = true)]
    Guest,
    /// Become QEMU, and end with the process that started it
    #[command(hide = true)]
    Microvm {
        /// The process that started it
        parent: u32,
        /// QEMU and its arguments
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Write man pages into a directory
    Man {
        /// Made if there is none
        directory: PathBuf,
    },
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (0.0..=100.0).contains(&value) { Ok(value) } else { Err("it is 0 to 100".into()) }
}

/// Which servers, and how they are reached.
#[derive(Debug, Clone, Default, Args)]
pub struct Servers {
    /// A node: NAME,SMB,RDMA,API[,HOST]; several are given one by one. API is ADDR:PORT, https://HOST:PORT or a data directory
    #[arg(long, value_name = "NODE")]
    pub node: Vec<String>,
    /// Data directory of a running server: its node, or all of its cluster [default if no --node is given: ./cenote-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Only the first N of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: Option<u32>,
    /// File with the API's token, for nodes whose API is an address
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Use this existing share of each server instead of making volumes; SHARE or SHARE/FOLDER
    #[arg(long, requires = "credentials")]
    pub share: Option<String>,
    /// With --share: lines username= and password=, as mount.cifs reads them
    #[arg(long, value_name = "FILE", requires = "share")]
    pub credentials: Option<PathBuf>,
}

/// Options of `fleet new`.
#[derive(Debug, Clone, Args)]
pub struct New {
    #[command(flatten)]
    pub servers: Servers,
    /// The fleet's name: volumes, shares and the user begin with it
    #[arg(long, default_value = "fleet", value_parser = name)]
    pub name: String,
    /// Workers of each node
    #[arg(long, short = 'n', default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers_per_node: u32,
    /// Size of a worker's data file [default: 30 % of the pool's free space, shared; at most 64MiB]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub data_size: Option<u64>,
    /// Copies that the volumes keep
    #[arg(long, value_enum, default_value = "two-way-mirror")]
    pub resiliency: Resiliency,
    #[command(flatten)]
    pub limits: Limits,
    /// Only print the steps
    #[arg(long)]
    pub dry_run: bool,
}

/// Letters that names of volumes, shares and users have in common.
fn name(text: &str) -> Result<String, String> {
    let is_good = (1..=15).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-');
    if is_good { Ok(text.to_owned()) } else { Err("1 to 15 letters, digits and '-'".into()) }
}

/// Limits of workers, and the way they run.
#[derive(Debug, Clone, Default, Args)]
pub struct Limits {
    /// VMFleet's compute template: A1v2, A2v2, A4v2, A8v2, A2mv2, A4mv2, A8mv2
    #[arg(long, value_name = "NAME", conflicts_with = "unrestricted")]
    pub template: Option<String>,
    /// Processors of a worker, such as 1 or 0.5
    #[arg(long, value_name = "COUNT", conflicts_with = "unrestricted")]
    pub vcpus: Option<f64>,
    /// Memory of a worker
    #[arg(long, value_parser = parse_size, value_name = "SIZE", conflicts_with = "unrestricted")]
    pub memory: Option<u64>,
    /// Hold workers to nothing
    #[arg(long)]
    pub unrestricted: bool,
    /// Run each process of workers in a QEMU machine with the template's processors and memory
    #[arg(long, conflicts_with_all = ["processes", "unrestricted"])]
    pub microvms: bool,
    /// Run workers as processes in control groups again, as they do at first
    #[arg(long, conflicts_with_all = ["accelerator", "kernel", "modules"])]
    pub processes: bool,
    /// How QEMU runs the processors of its machines
    #[arg(long, value_enum)]
    pub accelerator: Option<Accelerator>,
    /// Kernel of the machines, a bzImage or vmlinux [default: the one that runs here, of /boot]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// Modules of that kernel, with modules.dep [default: of /lib/modules; with --kernel: none, all built in]
    #[arg(long, value_name = "DIR")]
    pub modules: Option<PathBuf>,
    /// Operations a second of a worker; 0: no limit
    #[arg(long, value_name = "IOPS")]
    pub qos: Option<u32>,
    /// Percent of the workers that run
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub running: Option<u32>,
    /// Workers of one process; 0: as many as keep the processes of a machine to 64
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub workers_per_process: Option<u32>,
    /// Percent of the workers that run at the node which has their volume; the others are spread over the other nodes
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub alignment: Option<u32>,
    /// How workers reach the nodes
    #[arg(long, value_enum)]
    pub transport: Option<Transport>,
}

/// Options of `fleet set`.
#[derive(Debug, Clone, Args)]
pub struct Set {
    #[command(flatten)]
    pub limits: Limits,
}

/// Changes of a named profile.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Changes of the profile")]
pub struct Shape {
    /// Block size
    #[arg(long, short = 'b', value_parser = parse_block, value_name = "SIZE")]
    pub block: Option<u32>,
    /// Percent of writes
    #[arg(long, short = 'w', value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub write: Option<u32>,
    /// Threads of each target
    #[arg(long, short = 't', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Outstanding operations of each thread
    #[arg(long, short = 'o', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub outstanding: Option<u32>,
    /// Order of offsets: r, s or si
    #[arg(long, short = 'p', value_parser = pattern, value_name = "PATTERN")]
    pub pattern: Option<Pattern>,
    /// Percent of random operations; the others are sequential
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub random_ratio: Option<u32>,
    /// First offset
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub base_offset: Option<u64>,
    /// Offset at which the range ends
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub max_offset: Option<u64>,
}

impl Shape {
    /// Returns the changes that the options make to a profile.
    pub fn changes(&self) -> Changes {
        Changes {
            block_bytes: self.block,
            write_percent: self.write,
            threads: self.threads,
            requests: self.outstanding,
            pattern: self.pattern,
            random_percent: self.random_ratio,
            base_offset_bytes: self.base_offset,
            max_offset_bytes: self.max_offset,
        }
    }
}

fn parse_block(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (1..=16 << 20).contains(bytes))
        .ok_or_else(|| "1 byte to 16MiB".into())
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).ok_or_else(|| "r, s or si".into())
}

/// Seconds as `5`, `5s`, `2m` or `1h`.
pub fn parse_seconds(text: &str) -> Result<u32, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("'{text}' is no time: a number, with s, m or h")),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    seconds
        .filter(|seconds| *seconds <= 30 * 86_400)
        .ok_or_else(|| format!("'{text}' is no time up to 30 days"))
}

/// Times of each run.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Times")]
pub struct Durations {
    /// Measured time of each run
    #[arg(long, short = 'd', value_parser = parse_seconds, value_name = "TIME")]
    pub duration: Option<u32>,
    /// Time before that
    #[arg(long, value_parser = parse_seconds, value_name = "TIME")]
    pub warm_up: Option<u32>,
    /// Time after that
    #[arg(long, value_parser = parse_seconds, value_name = "TIME")]
    pub cool_down: Option<u32>,
    /// Time between the order and the common start, in which workers log on [default: by their number]
    #[arg(long, value_parser = parse_seconds, value_name = "TIME")]
    pub lead: Option<u32>,
}

impl Durations {
    /// Fills omitted times from `usual`; a shorter duration of its own shortens warm-up and cool-down as
    /// well.
    pub fn times(&self, usual: Times) -> Times {
        let duration_s = self.duration.unwrap_or(usual.duration_s).max(1);
        let is_short = duration_s < usual.duration_s;
        Times {
            duration_s,
            warm_up_s: self.warm_up.unwrap_or(if is_short {
                usual.warm_up_s.min(1)
            } else {
                usual.warm_up_s
            }),
            cool_down_s: self.cool_down.unwrap_or(if is_short { 0 } else { usual.cool_down_s }),
        }
    }
}

/// Where results go.
#[derive(Debug, Clone, Default, Args)]
pub struct Output {
    /// Directory of results: result.tsv, report.md, figures [default: a new one below the current one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only list the runs and how long they take
    #[arg(long)]
    pub dry_run: bool,
}

/// Options of `fleet start`.
#[derive(Debug, Clone, Args)]
pub struct Start {
    /// A profile's name, or a file with a profile of DiskSpd
    #[arg(default_value = "general")]
    pub workload: String,
    #[command(flatten)]
    pub shape: Shape,
}

/// Options of `fleet run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// A profile's name, a file with a profile of DiskSpd, or seed-001, seed-002, seed-003, seed-004
    pub workload: String,
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub durations: Durations,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub servers: Servers,
    /// Of experiments: only cells whose label contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Operations a second of each worker
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u32).range(1..))]
    pub iops: Option<u32>,
    /// Of experiments: workers of each node, instead of the paper's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub workers_per_node: Option<u32>,
    /// Of experiments: size of a worker's data file
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    pub data_size: Option<u64>,
    /// Of experiments: keep the fleet that was made for it
    #[arg(long)]
    pub keep: bool,
}

/// Options of `fleet sweep`: lists of parameters, of which every combination runs.
#[derive(Debug, Clone, Args)]
pub struct Sweep {
    /// The profile that the lists change, or a file with one
    #[arg(long, default_value = "peak", value_name = "PROFILE")]
    pub workload: String,
    /// Block sizes
    #[arg(long, short = 'b', value_delimiter = ',', required = true, value_parser = parse_block)]
    pub block: Vec<u32>,
    /// Threads of each target
    #[arg(long, short = 't', value_delimiter = ',', required = true)]
    pub threads: Vec<u32>,
    /// Outstanding operations of each thread
    #[arg(long, short = 'o', value_delimiter = ',', required = true)]
    pub outstanding: Vec<u32>,
    /// Percents of writes
    #[arg(long, short = 'w', value_delimiter = ',', required = true)]
    pub write: Vec<u32>,
    /// Orders of offsets: r, s, si
    #[arg(long, short = 'p', value_delimiter = ',', default_value = "r", value_parser = pattern)]
    pub pattern: Vec<Pattern>,
    /// Operations a second of a worker
    #[arg(long, value_delimiter = ',')]
    pub iops: Vec<u32>,
    /// Percents of workers that run at the node which has their volume [default: the fleet's]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    pub alignment: Vec<u32>,
    /// A word at the end of each label
    #[arg(long, default_value = "")]
    pub add_spec: String,
    #[command(flatten)]
    pub durations: Durations,
    #[command(flatten)]
    pub output: Output,
}

/// Options of `fleet measure`.
#[derive(Debug, Clone, Args)]
pub struct Measure {
    /// Only workloads whose name begins with this, such as General4K
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Percents of workers that run at the node which has their volume [default: 100,70; with --workload or one node: 100]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100))]
    pub alignment: Vec<u32>,
    /// A profile of one's own (a file), or a name, instead of the core workloads
    #[arg(long, value_name = "PROFILE")]
    pub workload: Option<String>,
    /// With --workload: results beyond this CPU use are cut off
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub cutoff_cpu: Option<f64>,
    /// With --workload: results beyond this mean latency are cut off
    #[arg(long, value_name = "MS")]
    pub cutoff_latency: Option<f64>,
    #[command(flatten)]
    pub shape: Shape,
    #[command(flatten)]
    pub durations: Durations,
    #[command(flatten)]
    pub output: Output,
}

/// Options of `fleet watch`.
#[derive(Debug, Clone, Args)]
pub struct Watch {
    #[command(flatten)]
    pub servers: Servers,
    /// Tables to print; 0: until interrupted
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub count: u64,
    /// Seconds between two
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Tab-separated values, a line a node
    #[arg(long, conflicts_with = "json")]
    pub tsv: bool,
    /// JSON, an object a line
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(["5", "5s", "2m", "1h"].map(|text| parse_seconds(text).unwrap()), [5, 5, 120, 3600]);
        for wrong in ["", "s", "5d", "-1", "99999999999", "4000000"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_short_duration_shortens_what_is_around_it() {
        let usual = Times::default();
        let of = |duration, warm_up| Durations { duration, warm_up, ..Durations::default() }.times(usual);
        assert_eq!(of(None, None), usual);
        assert_eq!(of(Some(2), None), Times { warm_up_s: 1, duration_s: 2, cool_down_s: 0 });
        assert_eq!(of(Some(2), Some(9)).warm_up_s, 9);
    }

    #[test]
    fn each_command_and_option_has_a_help_text() {
        fn missing(command: &clap::Command, found: &mut Vec<String>) {
            let arguments =
                command.get_arguments().filter(|one| !matches!(one.get_id().as_str(), "help" | "version"));
            for argument in arguments {
                if argument.get_help().is_none() {
                    found.push(format!("{}: {}", command.get_name(), argument.get_id()));
                }
            }
            if command.get_about().is_none() {
                found.push(command.get_name().to_owned());
            }
            command.get_subcommands().for_each(|verb| missing(verb, found));
        }
        let mut found = Vec::new();
        missing(&Cli::command(), &mut found);
        assert!(found.is_empty(), "{found:?}");
    }
}
