//! `fleet start`, `stop`, `set`, `remove`: the life of a fleet that is made.

use super::{Failure, say, tell};
use crate::args::{Limits, Set, Start};
use crate::microvm;
use crate::runner::{self, unix_ms};
use crate::server::Server;
use crate::state::{ApiAccess, CREDENTIALS_FILE, Running, State, Template};
use crate::workload::{Times, limit_iops, set_limit};
use diskspd::profile::{Profile, ResultFormat, Target, TimeSpan};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Duration of `fleet start`, if nobody stops the workers.
const START_SECONDS: u32 = 900_000;
/// Timeout of writing the data files: far more than that takes, unless a server hangs.
const PREPARATION: Duration = Duration::from_secs(2 * 3600);
/// Log of a supervisor that runs in the background.
const LOG_FILE: &str = "start.log";

/// Writes every worker's data file: a profile that creates them and reads for a second.
pub fn prepare(directory: &Path, state: &State) -> Result<(), Failure> {
    let target = Target {
        path: "*1".into(),
        block_bytes: 64 << 10,
        create_bytes: Some(state.data_bytes),
        ..Target::default()
    };
    let span = TimeSpan { duration_s: 1, warm_up_s: 0, targets: vec![target], ..TimeSpan::default() };
    let profile = Profile { format: ResultFormat::Xml, time_spans: vec![span], ..Profile::default() };
    // All workers have files, also those that rest today; and nothing holds them while they write.
    let whole = State {
        running_percent: 100,
        alignment_percent: 100,
        template: None,
        microvms: None,
        ..state.clone()
    };
    let durations = crate::args::Durations::default();
    // Files are made before the start: it is late for all alike, and nothing is measured.
    let mut ready = super::Ready::new(directory, &whole, &durations);
    ready.lead = Some(Duration::from_millis(100));
    ready.preparation = PREPARATION;
    let nodes = (0..whole.nodes.len()).collect();
    ready.run_whole("writing data files", &profile, nodes, 0).map(drop)
}

pub fn apply(state: &mut State, limits: &Limits) -> Result<(), Failure> {
    if limits.unrestricted {
        state.template = None;
    }
    if let Some(name) = &limits.template {
        let known = crate::state::TEMPLATES.map(|(name, ..)| name).join(", ");
        let template = Template::named(name);
        state.template = Some(
            template
                .ok_or_else(|| Failure::new(format!("there is no template '{name}'; there are {known}")))?,
        );
    }
    if limits.vcpus.is_some() || limits.memory.is_some() {
        let usual = state.template.unwrap_or(Template { vcpus: 1.0, memory_bytes: 2 << 30 });
        let vcpus = limits.vcpus.unwrap_or(usual.vcpus);
        if !(0.01..=1024.0).contains(&vcpus) {
            return Err(Failure::new("a worker has 0.01 to 1024 processors"));
        }
        let memory_bytes = limits.memory.unwrap_or(usual.memory_bytes);
        if memory_bytes < 16 << 20 {
            return Err(Failure::new("a worker has 16MiB of memory at least"));
        }
        state.template = Some(Template { vcpus, memory_bytes });
    }
    apply_microvms(state, limits)?;
    state.qos = limits.qos.unwrap_or(state.qos);
    state.running_percent = limits.running.unwrap_or(state.running_percent);
    state.workers_per_process = limits.workers_per_process.unwrap_or(state.workers_per_process);
    state.alignment_percent = limits.alignment.unwrap_or(state.alignment_percent);
    super::check_alignments(state, &[state.alignment_percent])?;
    state.transport = limits.transport.unwrap_or(state.transport);
    Ok(())
}

/// Whether workers run in machines of their own, and in which.
fn apply_microvms(state: &mut State, limits: &Limits) -> Result<(), Failure> {
    if limits.processes {
        state.microvms = None;
        return Ok(());
    }
    if limits.microvms {
        state.microvms.get_or_insert_default();
    }
    let is_about_machines =
        limits.accelerator.is_some() || limits.kernel.is_some() || limits.modules.is_some();
    let Some(microvms) = &mut state.microvms else {
        return if is_about_machines {
            Err(Failure::new("--accelerator, --kernel and --modules are of microVMs: give --microvms"))
        } else {
            Ok(())
        };
    };
    microvms.accelerator = limits.accelerator.unwrap_or(microvms.accelerator);
    // Later commands may be given elsewhere.
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Some(kernel) = &limits.kernel {
        microvms.kernel = Some(whole(kernel));
    }
    if let Some(modules) = &limits.modules {
        microvms.modules = Some(whole(modules));
    }
    // Other hosts' machines are checked when they are started.
    if state.nodes.iter().all(|node| node.host.is_none()) {
        microvm::host::check(microvms)?;
        microvm::image::kernel(microvms)?;
    }
    Ok(())
}

pub fn set(directory: &Path, options: &Set) -> Result<(), Failure> {
    let mut state = State::load_made(directory)?;
    let before = state.clone();
    apply(&mut state, &options.limits)?;
    if state == before {
        return Err(Failure::new("nothing to change: `fleet set --help` lists what there is"));
    }
    state.save(directory)?;
    let running = running(&state).is_some();
    say(if running { "changed; the workers that run go on as they were started" } else { "changed" });
    Ok(())
}

/// The supervisor that runs, if it does.
pub fn running(state: &State) -> Option<&Running> {
    state.running.as_ref().filter(|running| started_ticks(running.pid) == Some(running.started_ticks))
}

/// Field 22 of a process' stat: the kernel's time of its start; `None` if there is no such process.
fn started_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any letter.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(19)?.parse().ok()
}

pub fn start(directory: &Path, options: &Start) -> Result<(), Failure> {
    let mut state = State::load_made(directory)?;
    if let Some(running) = running(&state) {
        return Err(Failure::new(format!("'{}' runs: `fleet stop` first", running.label)));
    }
    // Checked here, so that the user sees the error.
    let mut profile = super::profile_of(&options.workload, &options.shape)?;
    if state.qos > 0 {
        set_limit(&mut profile, state.qos)?;
    }
    let times = Times { warm_up_s: 0, duration_s: START_SECONDS, cool_down_s: 0 };
    times.apply(&mut profile);
    for span in &mut profile.time_spans {
        // Intervals of days would be many.
        span.iops_std_dev = false;
    }
    let file = directory.join("start.xml");
    fs::write(&file, diskspd::xml::profile(&profile, 0))
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    let log = directory.join(LOG_FILE);
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", log.display()));
    let output = fs::File::create(&log).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let child = Command::new(program)
        .arg("--fleet")
        .arg(directory)
        .arg("run")
        .arg(&file)
        .args(["--warm-up", "0", "--cool-down", "0", "--duration", &START_SECONDS.to_string(), "--out"])
        .arg(directory.join("started"))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let label = options.workload.clone();
    let ticks = started_ticks(child.id()).ok_or_else(|| Failure::new("the supervisor ended at once"))?;
    state.running = Some(Running { pid: child.id(), started_ticks: ticks, label });
    state.save(directory)?;
    await_workers(directory, &state, &log)?;
    let limit = match limit_iops(&profile) {
        0 => String::new(),
        iops => format!(", {iops} I/O per s each"),
    };
    say(&format!(
        "{} workers of {} nodes run '{}'{limit}; `fleet watch` shows them, `fleet stop` ends them",
        u64::from(state.running_workers()) * state.nodes.len() as u64,
        state.nodes.len(),
        options.workload
    ));
    Ok(())
}

/// Waits until workers report progress, or an error.
fn await_workers(directory: &Path, state: &State, log: &Path) -> Result<(), Failure> {
    let live = directory.join(runner::LIVE_FILE);
    let until = Instant::now() + Duration::from_secs(120);
    while !live.exists() {
        if running(state).is_none() {
            let text = fs::read_to_string(log).unwrap_or_default();
            return Err(Failure::new(format!("the workers ended at once: {}", text.trim())));
        }
        if Instant::now() > until {
            return Err(Failure::new(format!("no worker tells of itself; {} may say why", log.display())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

pub fn stop(directory: &Path) -> Result<(), Failure> {
    let mut state = State::load(directory)?;
    let Some(running) = running(&state).cloned() else {
        state.running = None;
        state.save(directory)?;
        say("nothing runs");
        return Ok(());
    };
    end(&running)?;
    state.running = None;
    state.save(directory)?;
    let text = fs::read_to_string(directory.join(LOG_FILE)).unwrap_or_default();
    say(&format!("'{}' was stopped\n{}", running.label, text.trim_end()));
    Ok(())
}

/// Asks a supervisor to end, and waits until it has.
fn end(running: &Running) -> Result<(), Failure> {
    let pid = i32::try_from(running.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::new("the fleet's description names no process"))?;
    kill_process(pid, Signal::INT)
        .map_err(|error| Failure::new(format!("process {}: {error}", running.pid)))?;
    let began = unix_ms();
    while started_ticks(running.pid) == Some(running.started_ticks) {
        // A child of this very process that has ended is still listed until it is waited for.
        let is_over =
            fs::read_to_string(format!("/proc/{}/stat", running.pid)).is_ok_and(|text| text.contains(") Z "));
        if is_over {
            break;
        }
        if unix_ms() - began > 90_000 {
            return Err(Failure::new(format!("process {} does not end", running.pid)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

pub fn remove(directory: &Path, yes: Option<&str>) -> Result<(), Failure> {
    let state = State::load(directory)?;
    let volumes: Vec<&str> = state.nodes.iter().filter_map(|node| node.volume.as_deref()).collect();
    let what = if volumes.is_empty() {
        "its description; data files on the share stay".to_owned()
    } else {
        format!(
            "its workers, the volumes {} with all data on them, their shares, and the user",
            volumes.join(", ")
        )
    };
    confirm(&format!("this removes fleet '{}': {what}", state.name), &state.name, yes)?;
    if let Some(running) = running(&state).cloned() {
        end(&running)?;
    }
    destroy(directory, &state)
}

/// Deletes the fleet's users, volumes and shares on the servers, and the description.
pub fn destroy(directory: &Path, state: &State) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for (place, node) in state.nodes.iter().enumerate() {
        let Some(access) = &node.api else { continue };
        // In a cluster any server can delete them: the node's own may be the one that went down.
        let others = state.nodes.iter().filter(|other| state.is_cluster && other.name != node.name);
        let others: Vec<_> = others.filter_map(|other| other.api.as_ref()).collect();
        let done = || -> Result<(), String> {
            let server = first_that_answers(access, &others)?;
            if let Some(volume) = &node.volume {
                server.delete("shares", &node.share)?;
                server.delete("volumes", volume)?;
            }
            match &state.user {
                // Where nothing else was made, a user of that name is somebody else's.
                Some(user) if node.volume.is_some() && (place == 0 || !state.is_cluster) => {
                    server.delete("users", user)
                }
                _ => Ok(()),
            }
        };
        problems.extend(done().err().map(|why| format!("{}: {why}", node.name)));
    }
    if !problems.is_empty() {
        return Err(Failure::new(format!(
            "the fleet is still described, since not all went: {}",
            problems.join("; ")
        )));
    }
    for file in [CREDENTIALS_FILE, runner::LIVE_FILE, "start.xml", LOG_FILE, crate::state::FILE] {
        // A missing file needs no removal; the description goes last.
        let _ = fs::remove_file(directory.join(file));
    }
    // Results of `fleet start` may lie there, and stay.
    let _ = fs::remove_dir(directory);
    tell(&format!("fleet '{}' is gone", state.name));
    Ok(())
}

fn first_that_answers(own: &ApiAccess, others: &[&ApiAccess]) -> Result<Server, String> {
    let ask = |access: &ApiAccess| Server::connect(access).and_then(|server| server.shares().map(|_| server));
    ask(own).or_else(|why| others.iter().find_map(|other| ask(other).ok()).ok_or(why))
}

/// Has the name typed, or given by `--yes` (I8).
fn confirm(what: &str, name: &str, yes: Option<&str>) -> Result<(), Failure> {
    if let Some(given) = yes {
        return if given == name {
            Ok(())
        } else {
            Err(Failure::new(format!("{what}; --yes says '{given}', and the name is '{name}'")))
        };
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(format!("{what}; give --yes {name}")));
    }
    eprint!("{what}. Type its name: ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| Failure::new(error.to_string()))?;
    if line.trim() == name { Ok(()) } else { Err(Failure::new("that is not its name; nothing was done")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::state;

    #[test]
    fn limits_change_the_description_and_wrong_ones_are_refused() {
        let mut state = state();
        let mut with = |limits: Limits| apply(&mut state, &limits).map(|()| state.clone());
        let changed = with(Limits {
            template: Some("A4v2".into()),
            qos: Some(500),
            running: Some(25),
            ..Limits::default()
        });
        let changed = changed.unwrap();
        assert_eq!(
            (changed.template, changed.qos, changed.running_workers()),
            (Template::named("A4v2"), 500, 11)
        );
        let changed = with(Limits { vcpus: Some(0.5), ..Limits::default() }).unwrap();
        assert_eq!(changed.template, Some(Template { vcpus: 0.5, memory_bytes: 8 << 30 }));
        assert_eq!(with(Limits { unrestricted: true, ..Limits::default() }).unwrap().template, None);
        for wrong in [
            Limits { template: Some("B2ms".into()), ..Limits::default() },
            Limits { vcpus: Some(0.0), ..Limits::default() },
            Limits { memory: Some(1), ..Limits::default() },
            Limits { accelerator: Some(crate::state::Accelerator::Tcg), ..Limits::default() },
        ] {
            assert!(with(wrong).is_err());
        }
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let mut state = state();
        let pid = std::process::id();
        let started_ticks = started_ticks(pid).unwrap();
        state.running = Some(Running { pid, started_ticks, label: "x".into() });
        assert!(running(&state).is_some());
        state.running = Some(Running { pid, started_ticks: started_ticks + 1, label: "x".into() });
        assert!(running(&state).is_none(), "another process has the number now");
    }

    #[test]
    fn removal_wants_the_name() {
        assert!(confirm("x", "fleet", Some("fleet")).is_ok());
        assert!(confirm("x", "fleet", Some("other")).is_err());
    }
}
