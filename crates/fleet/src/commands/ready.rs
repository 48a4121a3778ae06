//! A run of the fleet as described: at the servers that have the volumes now, with progress, and
//! measured again if a volume moved to another server meanwhile.

use super::{Failure, credentials, show_seconds, tell};
use crate::args::Durations;
use crate::outcome::Outcome;
use crate::owners::{Owners, OwnersError};
use crate::runner::{self, Plan, RunError, Watching, unix_ms};
use crate::state::State;
use crate::telling::Telling;
use api::fleet::{FleetNode, FleetProgress};
use diskspd::profile::Profile;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Attempts of a run while volumes move between servers.
const ATTEMPTS: u32 = 3;
/// A server that dies is missed within seconds, and its volumes are taken over in a few more.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);

/// A run of the fleet as described.
pub struct Ready<'a> {
    directory: &'a Path,
    state: &'a State,
    pub lead: Option<Duration>,
    /// Time for preparation, beyond the profile's times.
    pub preparation: Duration,
    pub alignment_percent: u32,
    /// How often a run is tried while volumes move.
    pub attempts: u32,
    /// Notes that were printed.
    told: RefCell<BTreeSet<String>>,
}

impl<'a> Ready<'a> {
    pub fn new(directory: &'a Path, state: &'a State, durations: &Durations) -> Self {
        let lead = durations.lead.map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            directory,
            state,
            lead,
            preparation: Duration::ZERO,
            alignment_percent: state.alignment_percent,
            attempts: ATTEMPTS,
            told: RefCell::default(),
        }
    }

    /// Runs on all nodes, or on some; shows progress on a terminal. `behind`: seconds of the runs that
    /// follow.
    ///
    /// Workers use the servers that have their volumes now. If one moves meanwhile, the figures belong to
    /// neither layout: the run is repeated, and if that happens every time, the last one is reported with a
    /// note.
    pub fn run(
        &self,
        label: &str,
        profile: &Profile,
        nodes: Vec<usize>,
        behind_s: u64,
    ) -> Result<Outcome, Failure> {
        sys::interrupt::install().map_err(|error| Failure::new(format!("Ctrl-C: {error}")))?;
        let mut earlier = BTreeSet::new();
        let mut owners = self.owners(&nodes)?;
        let mut attempt = 1;
        loop {
            let result = self.attempt(label, profile, nodes.clone(), &owners, behind_s);
            let (moves, after) = self.moves(&nodes, &owners, result.is_err());
            let is_over = attempt >= self.attempts
                || result.as_ref().is_ok_and(|one| one.is_interrupted)
                || is_interrupted();
            if moves.is_empty() || is_over {
                let moved = moves.join(", ");
                let mut outcome = match result {
                    Err(failure) if !moves.is_empty() => {
                        return Err(Failure { message: format!("{failure}; {moved} meanwhile"), ..failure });
                    }
                    other => other?,
                };
                outcome.notes.extend(earlier);
                outcome.notes.extend(owners.strays(self.state));
                if !moves.is_empty() {
                    outcome
                        .notes
                        .push(format!("{moved} in the middle of it: it is no measure of either layout"));
                }
                return Ok(outcome);
            }
            let why = format!("{} in the middle of {label}: it was measured again", moves.join(", "));
            tell(&why);
            earlier.insert(why);
            owners = after;
            attempt += 1;
        }
    }

    /// Which servers have the volumes: waits for one that nobody has for a moment.
    fn owners(&self, nodes: &[usize]) -> Result<Owners, Failure> {
        let until = Instant::now() + KNOWN_WITHIN;
        let mut is_told = false;
        loop {
            match Owners::ask(self.state, nodes) {
                Err(OwnersError::NotYetKnown(_)) if is_interrupted() => {
                    return Err(RunError::Interrupted.into());
                }
                Err(OwnersError::NotYetKnown(why)) if Instant::now() < until => {
                    if !is_told {
                        tell(&format!("waiting: {why}"));
                    }
                    is_told = true;
                    std::thread::sleep(Duration::from_millis(500));
                }
                result => return result.map_err(|why| Failure::new(why.to_string())),
            }
        }
    }

    /// Which volumes have gone to other servers since a run began, in words, and where they are. A run that failed may be the first
    /// to notice that a server died: its volumes are waited for, unless all servers answer.
    fn moves(&self, nodes: &[usize], before: &Owners, has_failed: bool) -> (Vec<String>, Owners) {
        let until = Instant::now() + KNOWN_WITHIN;
        let mut was_away = false;
        loop {
            let after = match Owners::ask(self.state, nodes) {
                Ok(after) => after,
                Err(OwnersError::NotYetKnown(_)) if Instant::now() < until && !is_interrupted() => {
                    was_away = has_failed;
                    std::thread::sleep(Duration::from_millis(500));
                    continue;
                }
                Err(why) => {
                    return (vec![format!("it is not known where the volumes are ({why})")], before.clone());
                }
            };
            let mut moves = before.moves(&after);
            let is_final = !moves.is_empty() || !has_failed || !self.state.is_cluster || before.answer();
            if is_final || Instant::now() >= until || is_interrupted() {
                if was_away && moves.is_empty() {
                    moves.push("a server went away and came back".into());
                }
                return (moves, after);
            }
            was_away = true;
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Prints notes of a run that were not printed before.
    pub fn tell_notes(&self, outcome: &Outcome) {
        for note in &outcome.notes {
            if self.told.borrow_mut().insert(note.clone()) {
                tell(&format!("note: {note}"));
            }
        }
    }

    fn attempt(
        &self,
        label: &str,
        profile: &Profile,
        nodes: Vec<usize>,
        owners: &Owners,
        behind_s: u64,
    ) -> Result<Outcome, Failure> {
        let plan = Plan {
            state: self.state,
            nodes,
            profile,
            transport: self.state.transport,
            alignment_percent: self.alignment_percent,
            owners,
            label: label.to_owned(),
            credentials: credentials(self.directory)?,
            lead: self.lead,
            preparation: self.preparation,
        };
        let is_terminal = std::io::stderr().is_terminal();
        let mut last = (unix_ms(), 0);
        let telling = Telling::begin(self.state.nodes.clone());
        let mut show = |live: &FleetProgress| {
            telling.tell(live);
            let operations: u64 = live.nodes.values().map(|node| node.operations).sum();
            let seconds = live.updated_unix_ms.saturating_sub(last.0).max(1) as f64 / 1000.0;
            let rate = operations.saturating_sub(last.1) as f64 / seconds;
            last = (live.updated_unix_ms, operations);
            if is_terminal {
                let left = live.ends_unix_ms.saturating_sub(live.updated_unix_ms) / 1000;
                eprint!("\r\x1b[K{}", progress_line(live, rate, left, behind_s));
                let _ = std::io::stderr().flush();
            }
        };
        let mut watching =
            Watching { directory: self.directory, is_interrupted: &is_interrupted, show: &mut show };
        let outcome = runner::run(&plan, &mut watching);
        if is_terminal {
            eprint!("\r\x1b[K");
        }
        Ok(outcome?)
    }

    /// As [`Ready::run`]; an early end is a failure.
    pub fn run_whole(
        &self,
        label: &str,
        profile: &Profile,
        nodes: Vec<usize>,
        behind_s: u64,
    ) -> Result<Outcome, Failure> {
        let outcome = self.run(label, profile, nodes, behind_s)?;
        if outcome.is_interrupted { Err(RunError::Interrupted.into()) } else { Ok(outcome) }
    }
}

fn is_interrupted() -> bool {
    sys::interrupt::received() > 0
}

fn progress_line(live: &FleetProgress, rate: f64, left_s: u64, behind_s: u64) -> String {
    let sum = |of: fn(&FleetNode) -> u64| live.nodes.values().map(of).sum::<u64>();
    let (ready, processes) = (sum(|node| node.ready), sum(|node| node.processes));
    let phase = if ready < processes {
        format!("{ready} of {processes} processes are ready")
    } else if live.updated_unix_ms < live.measure_from_unix_ms {
        "warm-up".into()
    } else {
        "measuring".into()
    };
    let behind =
        if behind_s > 0 { format!(", {} of all", show_seconds(left_s + behind_s)) } else { String::new() };
    format!("{}: {phase}, {rate:.0} I/O per s, {} left{behind}", live.label, show_seconds(left_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_what_is_waited_for() {
        let node = FleetNode { ready: 1, processes: 2, ..Default::default() };
        let mut live = FleetProgress {
            label: "x".into(),
            nodes: [("n".to_owned(), node)].into(),
            ..FleetProgress::default()
        };
        assert!(progress_line(&live, 0.0, 5, 0).contains("1 of 2 processes are ready"));
        live.nodes.get_mut("n").unwrap().ready = 2;
        assert_eq!(
            progress_line(&live, 12.3, 65, 60),
            "x: measuring, 12 I/O per s, 1 min 5 s left, 2 min 5 s of all"
        );
    }
}
