//! A run of the fleet: jobs for the machines, one common start, progress meanwhile, and one outcome.
//!
//! Each machine's part is a process of its own, `fleet worker`: here, or on another machine by ssh, in the same way. The nodes' own
//! counters are read when measuring begins and when it ends.

use crate::job::{self, Answer, Credentials, Done, Job, LINE_BYTES_MAX, Process};
use crate::outcome::{self, NodeOutcome, Outcome, Side, VolumeFigures};
use crate::owners::{Owner, Owners};
use crate::placement;
use crate::server::{self, Counters, Server};
use crate::state::{Accelerator, ApiAccess, Node, State, Transport, replace};
use crate::workload::{Times, fit_offsets};
use api::fleet::{FleetNode, FleetProgress};
use diskspd::profile::Profile;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Progress of the current run, in the fleet's directory.
pub const LIVE_FILE: &str = "live.json";
/// Processes of a machine, if the fleet does not set the workers of one.
const PROCESSES_MAX: u32 = 64;
/// Time to start a machine's part, to log on with a worker, and to open its files.
const LEAD: Duration = Duration::from_millis(1500);
const LEAD_OF_WORKER: Duration = Duration::from_millis(12);
/// Time to pack an initramfs and to boot a machine, and each machine's share of the host beside others;
/// emulated ones in turns of it.
const LEAD_OF_BOOT: Duration = Duration::from_secs(4);
const LEAD_OF_MICROVM: Duration = Duration::from_millis(200);
const LEAD_OF_EMULATED_BOOT: Duration = Duration::from_secs(8);

/// One run.
pub struct Plan<'a> {
    pub state: &'a State,
    /// Places of the nodes that take part.
    pub nodes: Vec<usize>,
    /// Profile with templates `*1` for a worker's data file.
    pub profile: &'a Profile,
    pub transport: Transport,
    /// Percent of the workers that run on the node that their volume was made for; [`placement`] places the
    /// others.
    pub alignment_percent: u32,
    /// The servers that the workers use.
    pub owners: &'a Owners,
    pub label: String,
    /// The text of the credentials file.
    pub credentials: Option<String>,
    pub lead: Option<Duration>,
    /// Time for writing data files, beyond the profile's times.
    pub preparation: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Plan(String),
    #[error("{machine}: {why}")]
    Machine { machine: String, why: String },
    #[error("interrupted")]
    Interrupted,
}

/// The caller's view of a run, and its wish to end it.
pub struct Watching<'a> {
    pub directory: &'a Path,
    pub is_interrupted: &'a dyn Fn() -> bool,
    pub show: &'a mut dyn FnMut(&FleetProgress),
}

pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The data file of a worker, counted from 0, in the node's share. Nodes of a cluster that have one share keep their files apart.
fn data_file(state: &State, home: &Node, worker: u32) -> String {
    let is_shared = state.nodes.iter().any(|node| node.name != home.name && node.share == home.share);
    let whose = if state.is_cluster && is_shared { format!("{}-", home.name) } else { String::new() };
    format!("worker-{whose}{:04}.dat", worker + 1)
}

/// Does a run.
///
/// # Errors
/// [`RunError`]; then nothing was measured that could be shown.
pub fn run(plan: &Plan<'_>, watching: &mut Watching<'_>) -> Result<Outcome, RunError> {
    let mut profile = plan.profile.clone();
    let is_scaled = fit_offsets(&mut profile, plan.state.data_bytes);
    let times = times_of(&profile)?;
    let lead = plan.lead.unwrap_or_else(|| usual_lead(plan));
    let start_ms = unix_ms() + lead.as_millis() as u64;
    let length_ms = times.total_s() * 1000 + plan.preparation.as_millis() as u64;
    let jobs = jobs(plan, &profile, start_ms, length_ms)?;
    let mut live = FleetProgress {
        label: plan.label.clone(),
        pid: std::process::id(),
        measure_from_unix_ms: start_ms + u64::from(times.warm_up_s) * 1000,
        ends_unix_ms: start_ms + times.total_s() * 1000,
        ..FleetProgress::default()
    };
    let measured_to = live.measure_from_unix_ms + u64::from(times.duration_s) * 1000;
    let mut counting = Counting::new(plan, live.measure_from_unix_ms, measured_to);
    let mut machines = Vec::new();
    for (host, job) in &jobs {
        machines.push(Machine::start(host.as_deref(), job)?);
    }
    let done = follow(machines, &mut live, &mut counting, watching);
    // Nobody is misled by a run that is over.
    let _ = std::fs::remove_file(watching.directory.join(LIVE_FILE));
    counting.finish();
    let mut outcome = outcome(done?, counting.figures())?;
    outcome.volume = counting.sum();
    outcome.is_interrupted = (watching.is_interrupted)();
    if is_scaled {
        outcome.notes.push(format!(
            "offsets of the profile were scaled from a data disk of 10 GiB to files of {}",
            types::size::show_size(plan.state.data_bytes)
        ));
    }
    outcome.notes.extend(note_of_placement(plan));
    Ok(outcome)
}

/// Time for machines to boot, if there are any, and for workers to log on.
fn usual_lead(plan: &Plan<'_>) -> Duration {
    let workers = plan.state.running_workers() * plan.nodes.len() as u32;
    let log_on = LEAD + LEAD_OF_WORKER * workers;
    let Some(microvms) = &plan.state.microvms else { return log_on };
    let processes = match plan.state.workers_per_process {
        0 => workers.min(PROCESSES_MAX * plan.nodes.len() as u32),
        count => workers.div_ceil(count),
    };
    log_on
        + match microvms.accelerator {
            Accelerator::Kvm => LEAD_OF_BOOT + LEAD_OF_MICROVM * processes,
            Accelerator::Tcg => LEAD_OF_EMULATED_BOOT * (1 + processes),
        }
}

/// Notes for readers that workers run elsewhere.
fn note_of_placement(plan: &Plan<'_>) -> Option<String> {
    let workers = plan.state.running_workers();
    let away = placement::away(workers, plan.alignment_percent);
    if away == 0 {
        return None;
    }
    let mut hosts = plan.nodes.iter().filter_map(|place| plan.state.nodes.get(*place)).map(|node| &node.host);
    let first = hosts.next();
    let text = format!("{away} of each node's {workers} workers run at other nodes than their volume's");
    Some(if hosts.all(|host| Some(host) == first) {
        format!("{text}; all nodes' workers run on one machine, so that their way to it is the same")
    } else {
        format!("{text}; rows of nodes are of the workers there, and of what the servers there answered")
    })
}

fn times_of(profile: &Profile) -> Result<Times, RunError> {
    match profile.time_spans.as_slice() {
        [span] => Ok(Times {
            warm_up_s: span.warm_up_s,
            duration_s: span.duration_s,
            cool_down_s: span.cool_down_s,
        }),
        spans => {
            Err(RunError::Plan(format!("a fleet's profile has one time span, this one has {}", spans.len())))
        }
    }
}

/// The jobs of all machines; `None` is this one.
///
/// # Errors
/// If the profile cannot be used so.
pub fn jobs(
    plan: &Plan<'_>,
    profile: &Profile,
    start_unix_ms: u64,
    length_ms: u64,
) -> Result<BTreeMap<Option<String>, Job>, RunError> {
    let mut jobs: BTreeMap<Option<String>, Job> = BTreeMap::new();
    let workers = plan.state.running_workers();
    let placed = placed(plan, workers)?;
    let mut on_host: BTreeMap<&Option<String>, u32> = BTreeMap::new();
    for place in &plan.nodes {
        *on_host.entry(&node(plan, *place)?.host).or_default() += workers;
    }
    for (place, at_node) in plan.nodes.iter().zip(&placed) {
        let node = node(plan, *place)?;
        let by_process = match plan.state.workers_per_process {
            0 => on_host.get(&node.host).map_or(1, |all| all.div_ceil(PROCESSES_MAX)),
            count => count,
        };
        let job = jobs.entry(node.host.clone()).or_insert_with(|| Job {
            name: format!("{}-{start_unix_ms}", std::process::id()),
            credentials: plan.credentials.clone().map(Credentials),
            start_unix_ms,
            length_ms,
            options: options(plan),
            template: plan.state.template,
            microvms: plan.state.microvms.clone(),
            profiles: Vec::new(),
            processes: Vec::new(),
        });
        for of_process in at_node.chunks(by_process.max(1) as usize) {
            let targets =
                of_process.iter().map(|worker| target(plan, *worker)).collect::<Result<Vec<_>, _>>()?;
            let text = diskspd::xml::profile(&for_workers(profile, targets.len())?, 0);
            let profile = job.profiles.iter().position(|known| *known == text).unwrap_or_else(|| {
                job.profiles.push(text);
                job.profiles.len() - 1
            });
            job.processes.push(Process { node: node.name.clone(), profile, targets });
        }
    }
    Ok(jobs)
}

/// A worker: the place of the node that its volume was made for, and its number there.
#[derive(Debug, Clone, Copy)]
struct Worker {
    home: usize,
    number: u32,
}

/// The workers that each node of the plan runs.
fn placed(plan: &Plan<'_>, workers: u32) -> Result<Vec<Vec<Worker>>, RunError> {
    let away = placement::away(workers, plan.alignment_percent);
    let nodes = plan.nodes.len();
    if away > 0 && nodes < 2 {
        return Err(RunError::Plan(format!(
            "an alignment of {} % takes two nodes: the others run where their volume is not",
            plan.alignment_percent
        )));
    }
    let mut placed = vec![Vec::new(); nodes];
    for (at, home) in plan.nodes.iter().enumerate() {
        for number in 0..workers {
            let runs_at = placement::runs_at(at, number, workers, away, nodes);
            if let Some(there) = placed.get_mut(runs_at) {
                there.push(Worker { home: *home, number });
            }
        }
    }
    Ok(placed)
}

fn node<'a>(plan: &Plan<'a>, place: usize) -> Result<&'a Node, RunError> {
    plan.state.nodes.get(place).ok_or_else(|| RunError::Plan(format!("there is no node {place}")))
}

/// How the workers of a run come: all alike, so that its figures are of one kind.
fn transport(plan: &Plan<'_>) -> Transport {
    match plan.transport {
        Transport::Auto if plan.owners.servers().iter().all(|owner| owner.rdma.is_some()) => Transport::Rdma,
        Transport::Auto => Transport::Tcp,
        chosen => chosen,
    }
}

fn options(plan: &Plan<'_>) -> Vec<String> {
    let transport = if transport(plan) == Transport::Rdma { "rdma" } else { "tcp" };
    vec![format!("--smb-transport={transport}")]
}

/// The address of a worker's file: at the server that has its volume, wherever the worker runs.
fn target(plan: &Plan<'_>, worker: Worker) -> Result<String, RunError> {
    let own = node(plan, worker.home)?;
    let asked = plan.owners.of_place(worker.home).ok_or_else(|| {
        RunError::Plan(format!("it is not known which server has the volume of {}", own.name))
    })?;
    let address = match (transport(plan), &asked.rdma) {
        (Transport::Rdma, Some(rdma)) => rdma,
        (Transport::Rdma, None) => {
            return Err(RunError::Plan(format!("node {} has no address for SMB Direct", asked.name)));
        }
        _ => &asked.smb,
    };
    Ok(format!("smb://{address}/{}/{}", own.share, data_file(plan.state, own, worker.number)))
}

/// Makes the profile for a process of `workers` workers: their targets one after the other, a template
/// number for each worker.
///
/// # Errors
/// The profile's threads form a pool, which workers would share.
fn for_workers(profile: &Profile, workers: usize) -> Result<Profile, RunError> {
    let mut repeated = profile.clone();
    for span in &mut repeated.time_spans {
        if workers > 1 && span.thread_count > 0 {
            return Err(RunError::Plan(
                "a profile whose threads form a pool (-F) takes one worker a process: --workers-per-process 1".into(),
            ));
        }
        let targets = std::mem::take(&mut span.targets);
        if targets.iter().any(|target| target.path != "*1") {
            return Err(RunError::Plan("a fleet's profile has *1 for the path of each target".into()));
        }
        for worker in 1..=workers {
            let of_worker = targets.iter().cloned().map(|mut target| {
                target.path = format!("*{worker}");
                target
            });
            span.targets.extend(of_worker);
        }
    }
    Ok(repeated)
}

/// A machine's part that runs.
struct Machine {
    name: String,
    child: Child,
    /// Standard input; its end makes the machine stop.
    input: Option<ChildStdin>,
}

/// The command that does a machine's part: this program here, or by ssh there.
pub fn command(host: Option<&str>) -> io::Result<Command> {
    let mut command = match host {
        None => {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("worker");
            command
        }
        Some(host) => {
            let mut command = Command::new("ssh");
            // Never prompts: the fleet's user has given ssh keys. `--` ends ssh's own options.
            command.args([
                "-o",
                "BatchMode=yes",
                "-o",
                "ServerAliveInterval=5",
                "-T",
                "--",
                host,
                "fleet worker",
            ]);
            command
        }
    };
    // A process group of its own: Ctrl-C reaches the coordinator only, which ends the machines' parts in
    // order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    Ok(command)
}

impl Machine {
    fn start(host: Option<&str>, job: &Job) -> Result<Self, RunError> {
        let name = host.unwrap_or("this machine").to_owned();
        let failed = |error: io::Error| RunError::Machine { machine: name.clone(), why: error.to_string() };
        let mut child = command(host).and_then(|mut command| command.spawn()).map_err(failed)?;
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            input.write_all(job::line(job).as_bytes()).and_then(|()| input.flush()).map_err(failed)?;
        }
        Ok(Self { name, child, input })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.input.take());
        // At the end of its input it ends by itself, in order.
        let _ = self.child.wait();
    }
}

/// Reads the machines' answers until all are done.
fn follow(
    mut machines: Vec<Machine>,
    live: &mut FleetProgress,
    counting: &mut Counting,
    watching: &mut Watching<'_>,
) -> Result<Vec<Done>, RunError> {
    let (sender, answers) = mpsc::channel();
    for (number, machine) in machines.iter_mut().enumerate() {
        let Some(output) = machine.child.stdout.take() else { continue };
        let sender = sender.clone();
        std::thread::spawn(move || read_answers(output, |answer| sender.send((number, answer)).is_ok()));
    }
    drop(sender);
    let mut progress: Vec<BTreeMap<String, FleetNode>> = vec![BTreeMap::new(); machines.len()];
    let mut done: Vec<Option<Done>> = vec![None; machines.len()];
    let mut is_told = false;
    let mut shown = Instant::now();
    loop {
        counting.look();
        if !is_told && (watching.is_interrupted)() {
            machines.iter_mut().for_each(|machine| drop(machine.input.take()));
            is_told = true;
        }
        match answers.recv_timeout(Duration::from_millis(50)) {
            Ok((number, Answer::Progress(nodes))) => {
                if let Some(slot) = progress.get_mut(number) {
                    *slot = nodes;
                }
            }
            Ok((number, Answer::Done(found))) => {
                if let Some(slot) = done.get_mut(number) {
                    *slot = Some(found);
                }
            }
            Ok((number, Answer::Failed(why))) => {
                if (watching.is_interrupted)() {
                    return Err(RunError::Interrupted);
                }
                let machine = machines.get(number).map_or_else(String::new, |machine| machine.name.clone());
                return Err(RunError::Machine { machine, why });
            }
            Err(RecvTimeoutError::Timeout) => {}
            // All outputs are at their end.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if shown.elapsed() >= Duration::from_millis(500) {
            shown = Instant::now();
            publish(live, &progress, watching);
        }
    }
    let missing = done.iter().position(Option::is_none);
    if let Some(machine) = missing.and_then(|number| machines.get(number)) {
        if (watching.is_interrupted)() {
            return Err(RunError::Interrupted);
        }
        let why = "it ended without an answer; is `fleet` installed there, of this version?".into();
        return Err(RunError::Machine { machine: machine.name.clone(), why });
    }
    Ok(done.into_iter().flatten().collect())
}

/// Reads lines until the end, or until nobody wants them; a line that is no answer ends it.
fn read_answers(output: impl Read, mut give: impl FnMut(Answer) -> bool) {
    let mut lines = BufReader::new(output);
    loop {
        let mut line = String::new();
        match lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let answer = serde_json::from_str(&line)
            .unwrap_or_else(|error| Answer::Failed(format!("its answer is not understood: {error}")));
        let is_failure = matches!(answer, Answer::Failed(_));
        if !give(answer) || is_failure {
            return;
        }
    }
}

fn publish(live: &mut FleetProgress, progress: &[BTreeMap<String, FleetNode>], watching: &mut Watching<'_>) {
    live.updated_unix_ms = unix_ms();
    live.nodes.clear();
    for (name, node) in progress.iter().flatten() {
        let sum = live.nodes.entry(name.clone()).or_default();
        *sum = sum.plus(node);
    }
    // Only `fleet watch` reads the file; a failure does not end the run.
    let _ = replace(&watching.directory.join(LIVE_FILE), job::line(live).as_bytes(), 0o644);
    (watching.show)(live);
}

/// The counters of nodes and of the workers' servers, at both ends of the measured time.
struct Counting {
    servers: Vec<(String, Option<Server>)>,
    /// Names of the servers that workers use.
    asked: Vec<String>,
    from_ms: u64,
    to_ms: u64,
    before: Option<Vec<Option<Counters>>>,
    after: Option<Vec<Option<Counters>>>,
}

impl Counting {
    fn new(plan: &Plan<'_>, from_ms: u64, to_ms: u64) -> Self {
        let own = plan.nodes.iter().filter_map(|place| plan.state.nodes.get(*place));
        let own = own.map(|node| (node.name.clone(), node.api.clone()));
        let asked = plan.owners.servers();
        let mut access: BTreeMap<String, Option<ApiAccess>> = own.collect();
        access.extend(asked.iter().map(|owner| (owner.name.clone(), owner.api.clone())));
        let servers = access.into_iter().map(|(name, access)| {
            let server = access.and_then(|access| Server::connect(&access).ok());
            (name, server)
        });
        let asked = asked.into_iter().map(|owner: &Owner| owner.name.clone()).collect();
        Self { servers: servers.collect(), asked, from_ms, to_ms, before: None, after: None }
    }

    fn look(&mut self) {
        let now = unix_ms();
        let all = || -> Vec<Option<Counters>> {
            self.servers
                .iter()
                .map(|(_, server)| server.as_ref().and_then(|server| server.counters().ok()))
                .collect()
        };
        if self.before.is_none() && now >= self.from_ms {
            self.before = Some(all());
        } else if self.before.is_some() && self.after.is_none() && now >= self.to_ms {
            self.after = Some(all());
        }
    }

    /// The run is over: one that was ended early has been measured until now.
    fn finish(&mut self) {
        self.to_ms = self.to_ms.min(unix_ms());
        self.look();
    }

    fn figures(&self) -> BTreeMap<String, VolumeFigures> {
        let processors = std::thread::available_parallelism().ok().map(usize::from);
        let mut figures = BTreeMap::new();
        let looks = self.before.iter().flatten().zip(self.after.iter().flatten());
        for ((name, _), (before, after)) in self.servers.iter().zip(looks) {
            if let (Some(before), Some(after)) = (before, after) {
                figures.insert(name.clone(), server::figures(before, after, processors));
            }
        }
        figures
    }

    /// Sums the servers' counters; `None` if one of the workers' servers is missing, since the sum could
    /// not be compared with the workers'.
    fn sum(&self) -> Option<VolumeFigures> {
        let figures = self.figures();
        let is_whole = self.asked.iter().all(|name| figures.contains_key(name));
        is_whole.then(|| outcome::sum_of(&figures.values().collect::<Vec<_>>()))
    }
}

fn outcome(done: Vec<Done>, mut volumes: BTreeMap<String, VolumeFigures>) -> Result<Outcome, RunError> {
    let mut nodes: BTreeMap<String, NodeOutcome> = BTreeMap::new();
    let mut notes: Vec<String> = Vec::new();
    let mut transports: Vec<String> = Vec::new();
    let mut processors = Vec::new();
    for part in done {
        for (name, found) in part.nodes {
            let node = nodes
                .entry(name.clone())
                .or_insert_with(|| NodeOutcome { node: name.clone(), ..NodeOutcome::default() });
            node.workers += found.workers;
            for (sum, rate) in [(&mut node.read, found.read), (&mut node.write, found.write)] {
                *sum = Side { iops: sum.iops + rate.iops, bytes_per_s: sum.bytes_per_s + rate.bytes_per_s };
            }
            let wrong = |why| RunError::Machine { machine: name.clone(), why };
            node.read_histogram.merge(&job::histogram(&found.read_latencies).map_err(wrong)?);
            node.write_histogram.merge(&job::histogram(&found.write_latencies).map_err(wrong)?);
            node.volume = volumes.remove(&name);
        }
        processors.extend(part.cpu_percent);
        transports.extend(part.transports);
        notes.extend(part.notes);
    }
    transports.sort_unstable();
    transports.dedup();
    notes.dedup();
    let mut outcome = Outcome::of_nodes(nodes.into_values().collect());
    outcome.cpu_percent =
        (!processors.is_empty()).then(|| processors.iter().sum::<f64>() / processors.len() as f64);
    outcome.transport = transports.join(" + ");
    outcome.notes = notes;
    Ok(outcome)
}

#[cfg(test)]
mod tests;
