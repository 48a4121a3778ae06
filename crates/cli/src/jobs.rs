//! `cenote job`, and the progress of jobs that other commands begin.
//!
//! Promises: a job is reported as completed only if its server said so. A server that does not answer
//! is asked again for [`PATIENCE`]; a job that no server knows any more fails the command, with the
//! message that nobody knows its end.

use crate::args;
use crate::output::{Align, Column, json, say, table, word};
use crate::printable::{eprintln, printable, println};
use crate::progress::{fit, fit_words};
use api::ErrorKind;
use api::model::{Job, JobKind, JobState};
use api_client::{Client, Failure};
use indicatif::{MultiProgress, ProgressBar};
use records::clock::unix_now_s;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use types::size::{show_seconds, show_size};

/// Interval between checks of a job.
const LOOK: Duration = Duration::from_millis(500);
/// Timeout of a server that has answered before: it may be starting again, which takes seconds, and
/// with large journals longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn job(client: &Client, as_json: bool, command: args::Job) -> Result<(), Failure> {
    match command {
        args::Job::List => {
            let jobs: Vec<Job> = client.get_whole("/jobs", "jobs there are not listed")?;
            if as_json {
                return json(&jobs);
            }
            let columns = [
                Column("ID", Align::Right),
                Column("SERVER", Align::Left),
                Column("KIND", Align::Left),
                Column("TARGET", Align::Left),
                Column("STATE", Align::Left),
                Column("DONE", Align::Right),
                Column("OF", Align::Right),
                Column("LEFT", Align::Right),
                Column("BEGAN", Align::Right),
                Column("MESSAGE", Align::Left),
            ];
            let now = unix_now_s();
            let rows = jobs.iter().map(|job| {
                vec![
                    job.id.to_string(),
                    job.server.clone().unwrap_or_else(|| "-".into()),
                    word(job.kind),
                    job.target.clone(),
                    word(job.state),
                    show_size(job.done_bytes),
                    show_size(job.total_bytes),
                    job.remaining_s.map(show_seconds).unwrap_or_default(),
                    format!("{} ago", show_seconds(now.saturating_sub(job.started_unix_s))),
                    job.message.clone(),
                ]
            });
            table(&columns, rows.collect(), "no jobs");
        }
        args::Job::Watch { id: Some(id) } if as_json => json_of_ended(client, id)?,
        args::Job::Watch { id: None } if as_json => {
            let jobs = wait(client, None)?;
            json(&jobs)?;
            fail_if_one_failed(&jobs)?;
        }
        args::Job::Watch { id } => watch(client, id)?,
        args::Job::Cancel { id } => {
            client.delete(&format!("/jobs/{id}"))?;
            say(as_json, format!("job {id} was stopped; the work that it has done stays"))?;
        }
        args::Job::Resume { id } => {
            let () = client.post(&format!("/jobs/{id}/resume"), &())?;
            say(as_json, format!("job {id} goes on"))?;
        }
    }
    Ok(())
}

/// Jobs that a command follows: one, or all that run anywhere in the cluster.
struct Watch<'a> {
    client: &'a Client,
    /// `None`: all.
    id: Option<u64>,
    /// Jobs that were seen running: each of them is followed to its end.
    followed: BTreeSet<u64>,
    is_seen: bool,
    /// Since when there has been no answer, and for how long that is borne.
    silent_since: Option<Instant>,
    patience: Duration,
}

impl<'a> Watch<'a> {
    fn new(client: &'a Client, id: Option<u64>) -> Self {
        Self { client, id, followed: BTreeSet::new(), is_seen: false, silent_since: None, patience: PATIENCE }
    }

    /// Returns the followed jobs as they are now. Waits for servers that do not answer.
    ///
    /// # Errors
    /// There is no such job, no server knows a followed one any more, or a server stays silent.
    fn look(&mut self) -> Result<Vec<Job>, Failure> {
        loop {
            match self.look_once() {
                Ok(jobs) => {
                    (self.is_seen, self.silent_since) = (true, None);
                    return Ok(jobs);
                }
                Err(failure) if failure.kind == Some(ErrorKind::NotFound) && self.is_seen => {
                    return Err(forgotten(self.id));
                }
                Err(failure) if failure.kind == Some(ErrorKind::Unavailable) && self.is_seen => {
                    if self.silent_since.is_none() {
                        eprintln!("cenote: {}; waiting for an answer", failure.message);
                    }
                    let since = *self.silent_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.patience {
                        return Err(Failure {
                            message: format!("{}. {}", failure.message, unknown_end(self.id)),
                            ..failure
                        });
                    }
                }
                Err(failure) => return Err(failure),
            }
            std::thread::sleep(LOOK);
        }
    }

    fn look_once(&mut self) -> Result<Vec<Job>, Failure> {
        if let Some(id) = self.id {
            return Ok(vec![self.client.get(&format!("/jobs/{id}"))?]);
        }
        let (mut jobs, unanswered) = self.client.get_list::<Job>("/jobs")?;
        self.followed.extend(jobs.iter().filter(|job| job.state == JobState::Running).map(|job| job.id));
        jobs.retain(|job| self.followed.contains(&job.id));
        let lost = self.followed.iter().find(|id| !jobs.iter().any(|job| job.id == **id));
        match (lost, unanswered.is_empty()) {
            (None, _) => Ok(jobs),
            (Some(id), true) => Err(forgotten(Some(*id))),
            (Some(_), false) => {
                let message = format!("no answer from {}", unanswered.join(", "));
                Err(Failure { kind: Some(ErrorKind::Unavailable), ..Failure::new(message) })
            }
        }
    }
}

fn unknown_end(id: Option<u64>) -> String {
    let what = id.map_or_else(|| "the jobs there".to_owned(), |id| format!("job {id}"));
    format!("It is not known whether {what} ended or goes on: see `cenote job list` and `cenote disk list`")
}

fn forgotten(id: Option<u64>) -> Failure {
    let what = id.map_or_else(|| "a job".to_owned(), |id| format!("job {id}"));
    Failure::new(format!(
        "nobody knows {what} any more: its server has restarted, and may do the same work under another number. {}",
        unknown_end(id)
    ))
}

/// Shows one job.
///
/// # Errors
/// As [`Client::get`].
pub fn job_of(client: &Client, id: u64) -> Result<Job, Failure> {
    client.get(&format!("/jobs/{id}"))
}

/// Waits until the job, or all jobs that run, have ended; how they did.
pub fn wait(client: &Client, id: Option<u64>) -> Result<Vec<Job>, Failure> {
    let mut watch = Watch::new(client, id);
    loop {
        let jobs = watch.look()?;
        if jobs.iter().all(|job| job.state != JobState::Running) {
            return Ok(jobs);
        }
        std::thread::sleep(LOOK);
    }
}

/// Prints a job when it has ended. One that did not do all it should fails the command.
pub fn json_of_ended(client: &Client, id: u64) -> Result<(), Failure> {
    let jobs = wait(client, Some(id))?;
    for job in &jobs {
        json(job)?;
    }
    jobs.iter().find_map(shortfall).map_or(Ok(()), Err)
}

pub fn fail_if_one_failed(jobs: &[Job]) -> Result<(), Failure> {
    let failed = jobs.iter().find(|job| job.state == JobState::Failed);
    failed.and_then(shortfall).map_or(Ok(()), Err)
}

/// Reports that a job did not do all that it should: callers that waited count on that.
fn shortfall(job: &Job) -> Option<Failure> {
    let how = match job.state {
        JobState::Completed => return None,
        JobState::Failed => "failed",
        JobState::Cancelled => "was cancelled",
        JobState::Suspended => "does not go on",
        JobState::Running => "has not ended",
    };
    let why = if job.message.is_empty() { String::new() } else { format!(": {}", job.message) };
    let left = match job.kind {
        JobKind::Retirement => format!(". {} is not empty", job.target),
        _ => String::new(),
    };
    Some(Failure::new(format!("job {} {how}{why}{left}", job.id)))
}

/// Shows progress until the job, or all jobs, have ended. A failed job fails the command; so does the
/// requested one unless it completed.
pub fn watch(client: &Client, id: Option<u64>) -> Result<(), Failure> {
    let bars = MultiProgress::new();
    let mut shown: BTreeMap<u64, ProgressBar> = BTreeMap::new();
    let mut failed: Vec<Failure> = Vec::new();
    let mut watch = Watch::new(client, id);
    loop {
        let jobs = watch.look()?;
        let mut running = false;
        for job in &jobs {
            let goes_on = job.state == JobState::Running;
            running |= goes_on;
            if !goes_on && id.is_none() && !shown.contains_key(&job.id) {
                continue;
            }
            let bar = shown.entry(job.id).or_insert_with(|| bars.add(ProgressBar::new(job.total_bytes)));
            bar.set_length(job.total_bytes);
            bar.set_position(job.done_bytes);
            let what = format!("{} {}: {}", job.id, word(job.kind), job.target);
            if counts_files(job) {
                bar.set_message(printable(&format!("{what}: {}", job.message)).into_owned());
                fit_words(bar);
            } else {
                bar.set_message(printable(&what).into_owned());
                fit(bar);
            }
            if !goes_on && !bar.is_finished() {
                bar.finish_and_clear();
                if id.is_some() || job.state == JobState::Failed {
                    failed.extend(shortfall(job));
                }
                if job.state != JobState::Failed {
                    let line =
                        format!("job {}: {} of {}: {}", job.id, word(job.kind), job.target, outcome(job));
                    bars.suspend(|| println!("{line}"));
                }
            }
        }
        if !running {
            let messages: Vec<String> = failed.into_iter().map(|failure| failure.message).collect();
            return if messages.is_empty() { Ok(()) } else { Err(Failure::new(messages.join("\n"))) };
        }
        std::thread::sleep(LOOK);
    }
}

/// Tells whether a job reports its progress in words, and not in bytes.
fn counts_files(job: &Job) -> bool {
    job.kind == JobKind::AclPropagation
}

/// Returns a job's end, and its own words on it.
fn outcome(job: &Job) -> String {
    if job.message.is_empty() { word(job.state) } else { format!("{}: {}", word(job.state), job.message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_client::Access;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const RUNNING: &str = r#"{"id":2000001,"kind":"retirement","target":"/dev/b","state":"running","done_bytes":0,"total_bytes":9,
        "started_unix_s":1,"ended_unix_s":null,"remaining_s":null,"message":""}"#;

    /// Watches one job at an API that gives these answers, a connection each.
    fn watched(answers: Vec<(&'static str, String)>) -> Result<Vec<Job>, Failure> {
        let directory = tempfile::tempdir().expect("a directory");
        let token_file = directory.path().join("api.token");
        api::Token::open_or_create(&token_file).expect("a token");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().expect("somebody asks");
                let mut request = [0; 4096];
                let count = stream.read(&mut request).expect("a request");
                let asked = String::from_utf8_lossy(&request[..count]);
                assert!(asked.starts_with("GET /api/v1/jobs/2000001 "), "{asked}");
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(format!("{head}{body}").as_bytes()).expect("is read");
            }
        });
        let access = Access {
            local: false,
            data: None,
            api: Some(address.to_string()),
            ca_file: None,
            token_file: Some(token_file),
        };
        let client = Client::find_within(&access, Duration::from_secs(60)).expect("a client");
        let mut watch = Watch { patience: Duration::ZERO, ..Watch::new(&client, Some(2_000_001)) };
        loop {
            let jobs = watch.look()?;
            if jobs.iter().all(|job| job.state != JobState::Running) {
                return Ok(jobs);
            }
        }
    }

    fn refusal(kind: &str, message: &str) -> String {
        format!(r#"{{"kind":"{kind}","message":"{message}"}}"#)
    }

    #[test]
    fn a_job_that_its_server_has_forgotten_is_not_said_to_have_ended_well() {
        let running = ("200 OK", RUNNING.to_owned());
        let gone = ("404 Not Found", refusal("not_found", "there is no job"));
        let failure = watched(vec![running.clone(), gone.clone()]).expect_err("nobody knows how it ended");
        assert!(failure.message.contains("not known"), "{}", failure.message);
        let down = ("503 Service Unavailable", refusal("unavailable", "server 'b' does not answer"));
        let failure = watched(vec![running.clone(), down]).expect_err("nobody says how it ended");
        assert!(
            failure.message.contains("'b'") && failure.message.contains("not known"),
            "{}",
            failure.message
        );
        let done = ("200 OK", RUNNING.replace("running", "completed"));
        let jobs = watched(vec![running, done]).expect("it ended");
        assert_eq!(jobs[0].state, JobState::Completed);
        assert!(watched(vec![gone]).is_err());
    }
}
