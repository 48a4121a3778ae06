//! One machine's part in a run, in processes of DiskSpd: starts them, reports progress, and adds up
//! their results.
//!
//! Promises: no process outlives an orderly end, and its scratch directory, which has the password, is
//! gone then.

use crate::cgroup::Groups;
use crate::job::{Answer, Done, Job, NodeDone, Process, Rate};
use api::fleet::FleetNode;
use diskspd::histogram;
use diskspd::progress::{PROGRESS_FILE_BYTES, Phase, ProgressLine};
use diskspd::statistics::Histogram;
use diskspd::xml::{self, RESULTS_BYTES_MAX};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval between reports of progress.
const TELL: Duration = Duration::from_millis(500);
/// Time that processes may run beyond their end: they wait for their last operations.
const GRACE: Duration = Duration::from_secs(60);
/// Limits of a process's error output: bytes read, and lines shown.
const ERROR_BYTES_MAX: u64 = 64 << 10;
const ERROR_LINES: usize = 5;

/// DiskSpd beside this program, else on the path.
pub fn diskspd() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("diskspd"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| "diskspd".into())
}

/// A scratch directory that nobody else may read; gone with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// # Errors
    /// The system's.
    pub fn new(name: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("fleet-{name}-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed stays, silently: the run is over.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process of DiskSpd that runs.
struct Running<'a> {
    process: &'a Process,
    child: Child,
    files: Files,
    progress: Option<ProgressLine>,
    exit: Option<std::process::ExitStatus>,
    /// Whether the process ran when it was asked to end: its end is no failure then.
    was_asked: bool,
}

impl Running<'_> {
    /// The file of its first worker, by which a message names it.
    fn first(&self) -> &str {
        self.process.targets.first().map_or("", String::as_str)
    }
}

struct Files {
    results: PathBuf,
    errors: PathBuf,
    histogram: PathBuf,
    progress: PathBuf,
}

impl Files {
    fn new(directory: &Path, number: usize) -> Self {
        let file = |kind: &str| directory.join(format!("{number}.{kind}"));
        Self {
            results: file("xml"),
            errors: file("err"),
            histogram: file("histogram"),
            progress: file("progress"),
        }
    }
}

/// Runs a job. `tell` reports progress; an answer that cannot be sent ends the run.
///
/// # Errors
/// The reason why there are no results.
pub fn work(
    job: &Job,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Answer) -> io::Result<()>,
) -> Result<Done, String> {
    if job.name.is_empty() || !job.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(format!("'{}' is no name for a run", job.name));
    }
    let scratch = Scratch::new(&job.name).map_err(|error| format!("no scratch directory: {error}"))?;
    write_inputs(job, &scratch.0).map_err(|error| format!("{}: {error}", scratch.0.display()))?;
    let mut notes = Vec::new();
    let mut groups = match job.template.map(|_| Groups::new(&format!("cenote-fleet-{}", std::process::id())))
    {
        Some(Ok(groups)) => {
            notes.push(format!("workers are held by {}", groups.describe()));
            Some(groups)
        }
        Some(Err(why)) => {
            notes.push(format!("workers are not held to processors and memory: {why}"));
            None
        }
        None => None,
    };
    let mut running: Vec<Running<'_>> = Vec::new();
    for (number, process) in job.processes.iter().enumerate() {
        match start(job, process, &scratch.0, number) {
            Ok(started) => {
                let pid = started.child.id();
                running.push(started);
                if let (Some(made), Some(template)) = (&mut groups, job.template)
                    && let Err(why) = made.hold(number, pid, template, process.targets.len() as u32)
                {
                    notes.push(format!("a worker is not held to processors and memory: {why}"));
                    // The next would fail as this one did.
                    groups = None;
                }
            }
            Err(why) => {
                stop(&mut running);
                return Err(why);
            }
        }
    }
    follow(job, &mut running, is_stopped, tell)?;
    let mut done = collect(&running)?;
    drop(groups);
    done.notes.splice(0..0, notes);
    Ok(done)
}

fn write_inputs(job: &Job, directory: &Path) -> io::Result<()> {
    for (number, profile) in job.profiles.iter().enumerate() {
        fs::write(directory.join(format!("profile-{number}.xml")), profile)?;
    }
    if let Some(credentials) = &job.credentials {
        let path = directory.join("credentials");
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(credentials.0.as_bytes())?;
    }
    Ok(())
}

/// The arguments of a process, in words that DiskSpd reads.
fn arguments(job: &Job, process: &Process, directory: &Path, files: &Files) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut words = vec![
        format!("-X{}", path(&directory.join(format!("profile-{}.xml", process.profile)))),
        "-Rxml".to_owned(),
        format!("--histogram={}", path(&files.histogram)),
        format!("--progress-file={}", path(&files.progress)),
        format!("--start-at={}", job.start_unix_ms),
    ];
    if job.credentials.is_some() {
        words.push(format!("--smb-credentials={}", path(&directory.join("credentials"))));
    }
    words.extend(job.options.iter().cloned());
    words.extend(process.targets.iter().cloned());
    words
}

fn start<'a>(
    job: &Job,
    process: &'a Process,
    directory: &Path,
    number: usize,
) -> Result<Running<'a>, String> {
    let files = Files::new(directory, number);
    let program = diskspd();
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    let results = File::create(&files.results).map_err(failed)?;
    let errors = File::create(&files.errors).map_err(failed)?;
    let child = Command::new(&program)
        .args(arguments(job, process, directory, &files))
        .stdin(Stdio::null())
        .stdout(results)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("{} could not be started: {error}", program.display()))?;
    Ok(Running { process, child, files, progress: None, exit: None, was_asked: false })
}

/// Until all processes have ended.
fn follow(
    job: &Job,
    running: &mut [Running<'_>],
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Answer) -> io::Result<()>,
) -> Result<(), String> {
    let end = UNIX_EPOCH + Duration::from_millis(job.start_unix_ms.saturating_add(job.length_ms)) + GRACE;
    let mut is_asked = false;
    let mut told = Instant::now();
    loop {
        let mut is_over = true;
        for one in running.iter_mut().filter(|one| one.exit.is_none()) {
            one.exit = one.child.try_wait().unwrap_or(None);
            is_over &= one.exit.is_some();
        }
        if is_over {
            return Ok(());
        }
        let has_failed = running.iter().any(|one| one.exit.is_some_and(|exit| !exit.success()));
        if !is_asked && (has_failed || is_stopped()) {
            ask_to_stop(running);
            is_asked = true;
        }
        if SystemTime::now() > end {
            stop(running);
            return Err(format!("workers went on for more than {} s after their time", GRACE.as_secs()));
        }
        if told.elapsed() >= TELL {
            told = Instant::now();
            if tell(&Answer::Progress(progress(running))).is_err() {
                stop(running);
                return Err("nobody listens any more".into());
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn progress(running: &mut [Running<'_>]) -> BTreeMap<String, FleetNode> {
    let mut nodes: BTreeMap<String, FleetNode> = BTreeMap::new();
    for one in running {
        let mut text = String::new();
        let read = File::open(&one.files.progress)
            .and_then(|file| file.take(PROGRESS_FILE_BYTES as u64).read_to_string(&mut text));
        if let (Ok(_), Some(line)) = (read, ProgressLine::parse(&text)) {
            one.progress = Some(line);
        }
        let totals = one.progress.map(|line| line.totals).unwrap_or_default();
        let is_ready = one.progress.is_some_and(|line| line.phase != Phase::Opening);
        let node = nodes.entry(one.process.node.clone()).or_default();
        *node = node.plus(&FleetNode {
            workers: one.process.targets.len() as u64,
            ready: u64::from(is_ready),
            processes: 1,
            operations: totals.operations,
            bytes: totals.bytes,
            latency_ns: totals.latency_ns,
        });
    }
    nodes
}

/// Stops processes as Ctrl-C does: they print their results so far.
fn ask_to_stop(running: &mut [Running<'_>]) {
    for one in running.iter_mut().filter(|one| one.exit.is_none()) {
        one.was_asked = true;
        if let Some(pid) = i32::try_from(one.child.id()).ok().and_then(Pid::from_raw) {
            // The process may have ended by itself.
            let _ = kill_process(pid, Signal::INT);
        }
    }
}

fn stop(running: &mut [Running<'_>]) {
    for one in running.iter_mut().filter(|one| one.exit.is_none()) {
        let _ = one.child.kill();
        let _ = one.child.wait();
    }
}

/// Adds up the processes' results.
fn collect(running: &[Running<'_>]) -> Result<Done, String> {
    let mut done = Done::default();
    let mut histograms: BTreeMap<String, (Histogram, Histogram)> = BTreeMap::new();
    let mut processors = Vec::new();
    let mut late = Vec::new();
    let outcomes = running.iter().map(|one| (one.exit.is_some_and(|exit| exit.success()), one.was_asked));
    if let Some(failed) = cause(outcomes).and_then(|number| running.get(number)) {
        let errors = text_of(&failed.files.errors, ERROR_BYTES_MAX)?;
        return Err(format!("the worker of {} failed: {}", failed.first(), last_lines(&errors)));
    }
    for one in running {
        let errors = text_of(&one.files.errors, ERROR_BYTES_MAX)?;
        late.extend(errors.lines().find(|line| line.contains("--start-at")).and_then(late_ms));
        let results = text_of(&one.files.results, RESULTS_BYTES_MAX)?;
        // One that could not begin ends well, with a report without figures: why is among its errors.
        let spans = xml::read_results(results.as_bytes()).map_err(|error| {
            format!("the worker of {} measured nothing: {error}; {}", one.first(), last_lines(&errors))
        })?;
        let node = done.nodes.entry(one.process.node.clone()).or_default();
        node.workers += one.process.targets.len() as u64;
        let seconds: f64 = spans.iter().map(|span| span.seconds).sum();
        if seconds <= 0.0 {
            return Err("a worker was stopped before it measured anything".into());
        }
        for target in spans.iter().flat_map(|span| &span.targets) {
            add(&mut node.read, target.read_count, target.read_bytes, seconds);
            add(&mut node.write, target.write_count, target.write_bytes, seconds);
        }
        processors.extend(spans.iter().filter_map(|span| span.cpu_percent));
        done.transports.extend(spans.into_iter().flat_map(|span| span.transports));
        done.transports.sort_unstable();
        done.transports.dedup();
        let text = text_of(&one.files.histogram, RESULTS_BYTES_MAX)?;
        let (read, write) = histogram::import(&text)
            .map_err(|line| format!("{}: line {line} is no latency", one.files.histogram.display()))?;
        let sums = histograms.entry(one.process.node.clone()).or_default();
        sums.0.merge(&read);
        sums.1.merge(&write);
    }
    for (name, (read, write)) in histograms {
        let node: &mut NodeDone = done.nodes.entry(name).or_default();
        node.read_latencies = read.entries().collect();
        node.write_latencies = write.entries().collect();
    }
    // Each process has measured the whole machine.
    done.cpu_percent =
        (!processors.is_empty()).then(|| processors.iter().sum::<f64>() / processors.len() as f64);
    if let Some(most) = late.iter().max() {
        done.notes.push(format!(
            "{} of {} processes began late, by {most} ms at most: give them longer with --lead",
            late.len(),
            running.len()
        ));
    }
    Ok(done)
}

/// Finds the process by which a run failed, of those that have ended: whether each ended well, and
/// whether it had been asked to. Processes that were asked to end after another's failure would only
/// report an interruption.
fn cause(outcomes: impl Iterator<Item = (bool, bool)> + Clone) -> Option<usize> {
    let failed = || outcomes.clone().enumerate().filter(|(_, (is_well, _))| !is_well);
    let by_itself = failed().find(|(_, (_, was_asked))| !was_asked);
    by_itself.or_else(|| failed().next()).map(|(number, _)| number)
}

/// Returns the last lines of a process's error output. Its message on Ctrl-C is left out: nobody
/// pressed it, the fleet ends processes so.
fn last_lines(errors: &str) -> String {
    let said = errors.lines().filter(|line| !line.contains("Interrupted by Ctrl-C"));
    let lines: Vec<&str> = said.rev().take(ERROR_LINES).collect();
    lines.into_iter().rev().collect::<Vec<&str>>().join("; ")
}

fn late_ms(line: &str) -> Option<u64> {
    line.split_ascii_whitespace().find_map(|word| word.parse().ok())
}

fn add(rate: &mut Rate, count: u64, bytes: u64, seconds: f64) {
    rate.iops += count as f64 / seconds;
    rate.bytes_per_s += bytes as f64 / seconds;
}

fn text_of(path: &Path, bytes_max: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(bytes_max).read_to_end(&mut bytes))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Credentials;

    fn job() -> Job {
        Job {
            name: "test".into(),
            credentials: Some(Credentials("username=a\npassword=b\n".into())),
            start_unix_ms: 1_790_000_000_123,
            length_ms: 1000,
            options: vec!["--smb-transport=rdma".into()],
            template: None,
            microvms: None,
            profiles: vec!["<Profile/>".into()],
            processes: vec![Process {
                node: "one".into(),
                profile: 0,
                targets: vec!["smb://h/s/w1.dat".into()],
            }],
        }
    }

    #[test]
    fn the_arguments_are_a_command_line_that_diskspd_reads() {
        let job = job();
        let directory = Path::new("/tmp/x");
        let words = arguments(&job, &job.processes[0], directory, &Files::new(directory, 7));
        let line = diskspd::cli::parse(&words, 0).unwrap();
        assert_eq!(line.xml.as_deref(), Some("/tmp/x/profile-0.xml"));
        assert_eq!(line.events.start_unix_ms, Some(1_790_000_000_123));
        assert_eq!(line.progress_file.as_deref(), Some("/tmp/x/7.progress"));
        assert_eq!(line.histogram.as_deref(), Some("/tmp/x/7.histogram"));
        assert_eq!(line.smb.credentials.as_deref(), Some("/tmp/x/credentials"));
        assert_eq!(line.targets, ["smb://h/s/w1.dat"]);
        assert!(words.iter().all(|word| !word.contains("password")));
    }

    #[test]
    fn the_scratch_directory_is_private_and_goes() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new("scratch-test").unwrap();
        write_inputs(&job(), &scratch.0).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&scratch.0), mode(&scratch.0.join("credentials"))), (0o700, 0o600));
        let path = scratch.0.clone();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn the_worker_that_failed_by_itself_is_named_and_not_one_that_was_ended_because_of_it() {
        let outcome = |outcomes: &[(bool, bool)]| cause(outcomes.iter().copied());
        assert_eq!(outcome(&[(true, false), (false, true), (false, false)]), Some(2));
        assert_eq!(outcome(&[(true, true), (false, true)]), Some(1), "all were asked to end");
        assert_eq!(outcome(&[(true, false), (true, true)]), None);
    }

    #[test]
    fn a_failure_does_not_speak_of_keys_that_nobody_pressed() {
        let said = "ERROR: opening w1.dat failed: connection lost\n*** Interrupted by Ctrl-C. Stopping I/O Request Generator. ***\n";
        assert_eq!(last_lines(said), "ERROR: opening w1.dat failed: connection lost");
    }

    #[test]
    fn a_name_that_is_a_path_is_refused() {
        let wrong = Job { name: "../x".into(), ..job() };
        let error = work(&wrong, &|| false, &mut |_| Ok(())).unwrap_err();
        assert!(error.contains("no name"), "{error}");
    }

    #[test]
    fn lateness_is_read_from_diskspds_warning() {
        assert_eq!(late_ms("WARNING: this run begins 250 ms after its time (--start-at)"), Some(250));
    }
}
