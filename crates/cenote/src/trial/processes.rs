//! The servers of a trial cluster as processes.
//!
//! Promises: each has the end of a pipe as standard input, so that it stops when this process ends; one
//! that dies is restarted after its delay; a stop lets servers finish acknowledged work.

use super::Plan;
use crate::daemon::DaemonError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server drains for at most 30 s.
const STOP_PATIENCE: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(50);

enum Life {
    Running(Child),
    /// Since when, and how it ended.
    Ended(Instant),
}

struct Process {
    plan: Plan,
    life: Life,
}

/// See the module.
pub(super) struct Processes {
    all: Vec<Process>,
    /// `None`: a dead server stays dead.
    restart_after: Option<Duration>,
}

impl Processes {
    /// # Errors
    /// If one cannot start; then none is left.
    pub fn start(plans: &[Plan], restart_after: Option<Duration>) -> Result<Self, DaemonError> {
        let mut processes = Self { all: Vec::new(), restart_after };
        for plan in plans {
            match spawn(plan) {
                Ok(child) => processes.all.push(Process { plan: plan.clone(), life: Life::Running(child) }),
                Err(error) => {
                    processes.stop();
                    return Err(error);
                }
            }
        }
        Ok(processes)
    }

    pub fn pid(&self, name: &str) -> Option<u32> {
        let found = self.all.iter().find(|process| process.plan.name == name)?;
        match &found.life {
            Life::Running(child) => Some(child.id()),
            Life::Ended(_) => None,
        }
    }

    /// Takes note of those that have died, and starts those again that have been dead for long enough. Before the cluster `served` once, a
    /// death is a failure to start.
    ///
    /// # Errors
    /// Which server does not start.
    pub fn look(&mut self, served: bool) -> Result<(), DaemonError> {
        for process in &mut self.all {
            match &mut process.life {
                Life::Running(child) => {
                    let Ok(Some(status)) = child.try_wait() else { continue };
                    let (name, log) = (&process.plan.name, log_of(&process.plan));
                    if !served {
                        let why = last_line(&log);
                        return Err(DaemonError::Setup(format!("{name} does not start ({status}): {why}")));
                    }
                    match self.restart_after {
                        Some(after) => {
                            println!(
                                "{name} has ended ({status}): it is started again in {} s",
                                after.as_secs()
                            );
                        }
                        None => println!("{name} has ended ({status}); {log} tells more"),
                    }
                    process.life = Life::Ended(Instant::now());
                }
                Life::Ended(since) => {
                    if self.restart_after.is_some_and(|after| since.elapsed() >= after) {
                        let child = spawn(&process.plan)?;
                        println!("{} is started again, as pid {}", process.plan.name, child.id());
                        process.life = Life::Running(child);
                    }
                }
            }
        }
        Ok(())
    }

    /// Stops all of them, and kills those that do not end.
    pub fn stop(&mut self) {
        let mut running: Vec<&mut Child> = Vec::new();
        for process in &mut self.all {
            if let Life::Running(child) = &mut process.life {
                tell(child, Signal::TERM);
                running.push(child);
            }
        }
        let until = Instant::now() + STOP_PATIENCE;
        while !running.is_empty() && Instant::now() < until {
            running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            std::thread::sleep(LOOK_EVERY);
        }
        for child in running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn tell(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The child may already have ended.
        let _ = kill_process(pid, signal);
    }
}

fn log_of(plan: &Plan) -> String {
    plan.config.with_extension("log").display().to_string()
}

/// Returns the last line of a server's log, for people.
fn last_line(log: &str) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().last().map_or_else(|| format!("{log} is empty"), str::to_owned)
}

fn spawn(plan: &Plan) -> Result<Child, DaemonError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| DaemonError::Io { what, source }
    };
    let program = std::env::current_exe().map_err(failed("this program"))?;
    let log = log_of(plan);
    let file = OpenOptions::new().create(true).append(true).open(&log).map_err(failed(&log))?;
    let errors = file.try_clone().map_err(failed(&log))?;
    Command::new(program)
        .args(["serve", "--end-with-stdin", "--config"])
        .arg(&plan.config)
        .stdin(Stdio::piped())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .map_err(failed(&plan.name))
}
