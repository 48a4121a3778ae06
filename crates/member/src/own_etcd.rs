//! This server's own member of etcd, polled once a second.
//!
//! A member that hangs becomes an issue within seconds, by the server that knows the reason: the others
//! see only that it does not answer, and wait longer, since it might be starting. Promises: a member
//! that has not answered since the server's start is no issue, unless it keeps exiting.

use crate::issues::{MEMBER_CODE, issue};
use api::model::{Health, HealthIssue};
use etcd::members::EtcdStatus;
use etcd::process::EtcdProcessState;
use records::clock::unix_now_s;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Timeout of a member's answer: it takes milliseconds, also during an election.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// In etcd's reason if its log is shorter than it has acknowledged (raft's `commitTo`).
const LOG_WENT_BACK: &str = "is out of range";
/// Silence from which there is an issue: three polls, on a loaded machine.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// A member that answers this long after its last end ended for a reason that has passed.
const RAN_WELL: Duration = Duration::from_secs(30);

/// The state of this server's member of etcd, by its process and by its own answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAnswer {
    /// State of the process that this server runs.
    pub process: EtcdProcessState,
    /// Its answer, or why there is none.
    pub status: Result<EtcdStatus, String>,
}

/// The state of this server's member of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnMember {
    /// Not started: no member, or one without data.
    Absent,
    /// Started, or about to be: the process is restarted when it exits.
    Runs,
    /// Removed by the other members, and ended.
    Removed,
}

/// Findings of the last check.
#[derive(Default)]
pub(crate) struct OwnEtcd(Mutex<Watched>);

#[derive(Default)]
struct Watched {
    has_answered: bool,
    silent: Option<Silence>,
    ends: Option<Ends>,
    votes: Option<bool>,
    issue: Option<HealthIssue>,
}

#[derive(Clone, Copy)]
struct Silence {
    since: Instant,
    since_unix_s: u64,
}

/// Ends of the member's process, of which none was followed by a run of [`RAN_WELL`].
struct Ends {
    count: u32,
    /// The reason of the last one.
    why: String,
    last: Instant,
    is_over: bool,
}

/// Time and server of a check.
struct Look<'a> {
    server: &'a str,
    asked_at: Instant,
    now: Instant,
    now_unix_s: u64,
    /// The kernel's letter for a process's state.
    letter: &'a dyn Fn(u32) -> Option<char>,
}

impl OwnEtcd {
    /// Returns the issue, if there is one.
    pub fn issue(&self) -> Option<HealthIssue> {
        self.watched(|watched| watched.issue.clone())
    }

    /// Whether it has not answered for a while.
    pub fn is_silent(&self) -> bool {
        self.watched(|watched| watched.silent.is_some())
    }

    /// Whether it votes; `None`: this server runs none, or it is unknown.
    pub fn votes(&self) -> Option<bool> {
        self.watched(|watched| watched.votes)
    }

    /// Takes a new answer. `server`: the member's server, by name; `asked_at`: the start of the poll.
    pub fn note(&self, found: Option<OwnAnswer>, server: &str, asked_at: Instant) {
        let look =
            Look { server, asked_at, now: Instant::now(), now_unix_s: unix_now_s(), letter: &letter_of };
        self.watched(|watched| watched.note(found, &look));
    }

    fn watched<T>(&self, look: impl FnOnce(&mut Watched) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watched {
    fn note(&mut self, found: Option<OwnAnswer>, look: &Look<'_>) {
        let Some(OwnAnswer { process, status }) = found else {
            *self = Self::default();
            return;
        };
        let process = self.with_ends(process, status.is_ok(), look.now);
        let is_silent = match (&process, &status) {
            (EtcdProcessState::Running { .. }, Ok(_)) => {
                self.has_answered = true;
                false
            }
            (EtcdProcessState::Running { .. }, Err(_)) => self.has_answered,
            (EtcdProcessState::Restarting { .. }, _) => true,
            (EtcdProcessState::Removed | EtcdProcessState::Stopped, _) => false,
        };
        match &status {
            Ok(status) => self.votes = Some(status.leader.is_some() && !status.is_learner),
            Err(_) if is_silent => self.votes = Some(false),
            Err(_) => {}
        }
        if !is_silent {
            (self.silent, self.issue) = (None, None);
            return;
        }
        let Look { now, now_unix_s, .. } = *look;
        let silence = *self.silent.get_or_insert(Silence { since: look.asked_at, since_unix_s: now_unix_s });
        if now.saturating_duration_since(silence.since) >= TOLD_AFTER {
            let texts = texts(&process, look);
            let found = issue(Health::Warning, MEMBER_CODE, format!("server {}", look.server), texts);
            self.issue = Some(HealthIssue { since_unix_s: silence.since_unix_s, ..found });
        }
    }

    /// Counts the ends of the process. One that ended again and again counts as ending while it runs for a moment: its issue stays the same.
    fn with_ends(&mut self, process: EtcdProcessState, answers: bool, now: Instant) -> EtcdProcessState {
        match (process, &mut self.ends) {
            (EtcdProcessState::Restarting { why }, ends) => {
                let known = ends.take();
                let is_new = known.as_ref().is_none_or(|ends| ends.is_over);
                let count = known.map_or(0, |ends| ends.count) + u32::from(is_new);
                *ends = Some(Ends { count, why: why.clone(), last: now, is_over: false });
                EtcdProcessState::Restarting { why }
            }
            (process @ EtcdProcessState::Running { .. }, Some(ends)) => {
                ends.is_over = true;
                let runs_well = answers && now.saturating_duration_since(ends.last) >= RAN_WELL;
                if ends.count > 1 && !runs_well {
                    return EtcdProcessState::Restarting { why: ends.why.clone() };
                }
                if runs_well {
                    self.ends = None;
                }
                process
            }
            (process, _) => process,
        }
    }
}

/// Returns the issue's description, meaning and remedy.
fn texts(process: &EtcdProcessState, look: &Look<'_>) -> [String; 3] {
    let server = look.server;
    let (what, action) = match process {
        EtcdProcessState::Restarting { why } => (
            format!("etcd ends by itself on server '{server}', and is started again and again: {why}"),
            match why.contains(LOG_WENT_BACK) {
                true => format!(
                    "etcd's data on '{server}' are older than the cluster's: an older image was put back, or the disk lost writes. Stop the \
                     server, remove DATA/cluster/etcd there, and start it: etcd gets its data from the other members."
                ),
                false => format!(
                    "See etcd's last lines in the log of '{server}'. etcd cannot run if the file system of its data directory is \
                     full: free space there, and the server starts etcd again by itself."
                ),
            },
        ),
        EtcdProcessState::Running { pid }
            if (look.letter)(*pid).is_some_and(|letter| "Tt".contains(letter)) =>
        {
            (
                format!(
                    "etcd is stopped by a signal on server '{server}' (process {pid}), and answers nothing"
                ),
                format!(
                    "Give `kill -CONT {pid}` on '{server}' to continue it. If you did not stop it, a debugger or a backup tool did."
                ),
            )
        }
        EtcdProcessState::Running { pid } => (
            format!("etcd runs on server '{server}' (process {pid}), and answers nothing"),
            format!(
                "Check on '{server}' whether the disk below the data directory answers and whether memory is left. After \
                 `kill -9 {pid}` there, the server starts etcd again, with its data."
            ),
        ),
        EtcdProcessState::Removed | EtcdProcessState::Stopped => Default::default(),
    };
    let meaning = "Fewer servers may fail than usual: `cenote cluster status` says how many. Files are served as long as most \
                   members of etcd vote.";
    [what, meaning.to_owned(), action]
}

/// Returns the kernel's letter for a process's state; `None`: it has ended.
fn letter_of(pid: u32) -> Option<char> {
    let told = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may contain any character.
    told.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::status;

    const RUNS: EtcdProcessState = EtcdProcessState::Running { pid: 7 };

    /// Returns the issue after checks at these seconds: whether the member answers, and the letter of its
    /// process.
    fn told(looks: &[(u64, EtcdProcessState, bool)], letter: char) -> Option<HealthIssue> {
        let (began, mut watched) = (Instant::now(), Watched::default());
        for (second, process, answers) in looks {
            let status = if *answers { Ok(status(7)) } else { Err("silence".to_owned()) };
            let found = OwnAnswer { process: process.clone(), status };
            let now = began + Duration::from_secs(*second);
            let look = Look {
                server: "node-2",
                asked_at: now,
                now,
                now_unix_s: 100 + second,
                letter: &|_| Some(letter),
            };
            watched.note(Some(found), &look);
        }
        watched.issue
    }

    #[test]
    fn a_member_that_is_stopped_is_told_of_within_seconds_with_the_command_that_helps() {
        let stopped = [(0, RUNS, true), (1, RUNS, false), (4, RUNS, false)];
        let issue = told(&stopped, 'T').unwrap();
        assert_eq!((issue.target.as_str(), issue.since_unix_s), ("server node-2", 101));
        assert!(issue.action.contains("kill -CONT 7") && issue.what.contains("signal"), "{issue:?}");
        let hangs = told(&stopped, 'D').unwrap();
        assert!(hangs.action.contains("kill -9 7") && !hangs.action.contains("CONT"), "{hangs:?}");
        assert!(told(&stopped[..2], 'T').is_none(), "not for one lost answer");
        let again = [stopped.as_slice(), &[(5, RUNS, true)]].concat();
        assert!(told(&again, 'T').is_none(), "it goes on");
    }

    #[test]
    fn a_member_that_starts_is_not_told_of_but_one_that_ends_again_and_again_is() {
        assert!(told(&[(0, RUNS, false), (20, RUNS, false)], 'S').is_none());
        let ends = || EtcdProcessState::Restarting { why: "no space left on device".into() };
        let issue = told(&[(0, ends(), false), (5, ends(), false)], 'S').unwrap();
        assert!(issue.what.contains("no space left on device"), "{issue:?}");
    }

    #[test]
    fn a_member_that_ends_again_and_again_is_one_issue_also_while_it_runs_for_a_moment() {
        let why = "tocommit(57) is out of range [lastIndex(29)]".to_owned();
        let ends = || EtcdProcessState::Restarting { why: why.clone() };
        let mut looks = vec![(0, RUNS, false), (1, ends(), false), (2, RUNS, false), (3, ends(), false)];
        looks.push((6, ends(), false));
        let shown =
            |looks: &[_]| told(looks, 'S').map(|issue| (issue.what, issue.action, issue.since_unix_s));
        let issue = shown(&looks).unwrap();
        assert!(issue.0.contains(&why) && issue.1.contains("remove DATA/cluster/etcd"), "{issue:?}");
        for (second, process, answers) in
            [(7, RUNS, false), (8, RUNS, true), (9, ends(), false), (39, RUNS, false)]
        {
            looks.push((second, process, answers));
            assert_eq!(shown(&looks).as_ref(), Some(&issue), "{second}");
        }
        looks.push((40, RUNS, true));
        assert_eq!(shown(&looks), None, "it runs well");
        let once = [(0, RUNS, true), (1, ends(), false), (2, RUNS, true), (6, RUNS, true)];
        assert_eq!(shown(&once), None, "one end is no issue");
    }
}
