//! The commands.

mod life;
mod making;
mod measure;
mod ready;
mod rows;
mod run;
mod show;
mod sweep;
mod watch;

use crate::args::{Cli, Command, Output, Servers, Shape};
use crate::microvm;
use crate::nodes;
use crate::runner::{RunError, unix_ms};
use crate::state::{ApiAccess, CREDENTIALS_FILE, Node, State};
use crate::workload::{self, Times};
use diskspd::profile::Profile;
use ready::Ready;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Why a command ends, and its exit status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Message for stderr: what happened, and the remedy.
    pub message: String,
    /// Exit status of the program: 1, or 130 after an interruption.
    pub exit_status: u8,
}

impl Failure {
    /// Makes a failure with exit status 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit_status: 1 }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<crate::state::StateError> for Failure {
    fn from(error: crate::state::StateError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let exit_status = if matches!(error, RunError::Interrupted) { 130 } else { 1 };
        Self { message: error.to_string(), exit_status }
    }
}

/// Runs the command of the command line.
///
/// # Errors
/// [`Failure`], to be printed.
pub fn main(cli: &Cli) -> Result<(), Failure> {
    let directory = &cli.fleet;
    match &cli.command {
        Command::New(options) => making::new(directory, options),
        Command::Start(options) => life::start(directory, options),
        Command::Stop => life::stop(directory),
        Command::Set(options) => life::set(directory, options),
        Command::Show { json } => show::show(directory, *json),
        Command::Run(options) => run::run(directory, options),
        Command::Sweep(options) => sweep::sweep(directory, options),
        Command::Measure(options) => measure::measure(directory, options),
        Command::Watch(options) => watch::watch(directory, options),
        Command::Results { from, cpu_target, json } => show::results(from, *cpu_target, *json),
        Command::Remove { yes } => life::remove(directory, yes.as_deref()),
        Command::Profile { name, shape } => show::profile(name.as_deref(), shape),
        Command::Worker => sys::interrupt::install()
            .and_then(|()| crate::worker::serve(&|| sys::interrupt::received() > 0))
            .map_err(|error| Failure::new(format!("worker: {error}"))),
        Command::Guest => microvm::guest::run().map_err(|error| Failure::new(format!("guest: {error}"))),
        Command::Microvm { parent, words } => microvm::host::become_qemu(*parent, words)
            .map_err(|error| Failure::new(format!("microvm: {error}"))),
        Command::Man { directory } => show::man(directory),
    }
}

/// Prints a line; a reader who went away is no failure.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush());
}

fn tell(text: &str) {
    eprintln!("fleet: {text}");
}

/// Returns the nodes of the command line, or those behind a server's data directory, and whether they
/// are a cluster.
fn nodes_of(servers: &Servers) -> Result<(Vec<Node>, bool), Failure> {
    let (mut found, is_cluster) = if servers.node.is_empty() {
        let data = servers.data.clone().or_else(|| std::env::var_os("CENOTE_DATA").map(PathBuf::from));
        let data = match data {
            Some(data) => data,
            None => api_client::near_directory().map_err(|failure| failure.message)?,
        };
        nodes::discover(&ApiAccess::Data(data))?
    } else {
        (servers.node.iter().map(|text| nodes::parse(text)).collect::<Result<Vec<_>, _>>()?, false)
    };
    for node in &mut found {
        match &mut node.api {
            Some(ApiAccess::Address { token_file, .. }) => {
                *token_file = token_file.take().or_else(|| servers.token_file.clone());
            }
            // Later commands may be given elsewhere.
            Some(ApiAccess::Data(data)) => {
                if let Ok(whole) = fs::canonicalize(&*data) {
                    *data = whole;
                }
            }
            None => {}
        }
    }
    if let Some(count) = servers.nodes {
        found.truncate(count as usize);
    }
    Ok((found, is_cluster))
}

/// Returns the profile of a name or a file, with changes.
fn profile_of(workload: &str, shape: &Shape) -> Result<Profile, Failure> {
    let mut profile = match workload::named(workload) {
        Some(named) => named.profile(),
        None => {
            let names: Vec<&str> = workload::NAMED.iter().map(|named| named.name).collect();
            let mut bytes = Vec::new();
            fs::File::open(workload)
                .and_then(|file| {
                    file.take(diskspd::xml::PROFILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)
                })
                .map_err(|error| {
                    Failure::new(format!(
                        "'{workload}' is neither a profile ({}) nor a file: {error}",
                        names.join(", ")
                    ))
                })?;
            diskspd::xml::read_profile(&bytes)
                .map_err(|error| Failure::new(format!("{workload}: {error}")))?
        }
    };
    shape.changes().apply(&mut profile);
    let mut filled = profile.clone();
    let templates =
        filled.time_spans.iter().flat_map(|span| &span.targets).any(|target| target.path.starts_with('*'));
    if !templates {
        return Err(Failure::new(
            "a fleet's profile has *1 for the path of each target: the worker's data file",
        ));
    }
    filled.fill_templates(&["x".to_owned()])?;
    let findings = filled.validate();
    if !findings.errors.is_empty() {
        return Err(Failure::new(findings.errors.join("\n")));
    }
    Ok(profile)
}

fn credentials(directory: &Path) -> Result<Option<String>, Failure> {
    let path = directory.join(CREDENTIALS_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))),
    }
}

/// Refuses alignments that the fleet has too few nodes for, before anything is measured.
fn check_alignments(state: &State, percents: &[u32]) -> Result<(), Failure> {
    match percents.iter().find(|percent| **percent < 100) {
        Some(percent) if state.nodes.len() < 2 => Err(Failure::new(format!(
            "an alignment of {percent} % takes two nodes, and the fleet has one: workers run where their volume is not"
        ))),
        _ => Ok(()),
    }
}

/// `40 s`, `5 min 10 s`, `2 h 3 min`.
fn show_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Rough duration of a run with its preparation, in seconds.
fn run_seconds(times: Times) -> u64 {
    times.total_s() + 3
}

/// The directory of results, made if it is not there; without a name a new one below the current one.
fn output_directory(output: &Output, name: &str) -> Result<PathBuf, Failure> {
    let made = |path: PathBuf| {
        fs::create_dir_all(&path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(path)
    };
    if let Some(path) = &output.out {
        return made(path.clone());
    }
    let stamp = unix_ms() / 1000;
    made(PathBuf::from(format!("result-{name}-{stamp}")))
}

/// Describes the machine in a line of a report.
fn machine() -> String {
    let information = diskspd::system::information();
    let kib = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next()?.parse::<u64>().ok())
    });
    format!(
        "{}: {} processors, {} of memory; {}.",
        information.computer_name,
        information.processors,
        types::size::show_size(kib.unwrap_or_default() * 1024),
        information.start_time
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_ones_own_are_read_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("own.xml");
        let text = diskspd::xml::profile(&workload::named("sql").unwrap().profile(), 0);
        fs::write(&path, &text).unwrap();
        let shape = Shape { write: Some(50), ..Shape::default() };
        let profile = profile_of(path.to_str().unwrap(), &shape).unwrap();
        assert!(profile.time_spans[0].targets.iter().all(|target| target.write_percent == 50));
        fs::write(&path, text.replace("*1", "/etc/passwd")).unwrap();
        assert!(profile_of(path.to_str().unwrap(), &shape).unwrap_err().message.contains("*1"));
        assert!(profile_of("nothing", &shape).unwrap_err().message.contains("peak"));
    }
}
