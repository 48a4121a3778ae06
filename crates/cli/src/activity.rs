//! `cenote session`, `cenote file`, `cenote job`, `cenote health`, `cenote perf`.

use crate::args;
use crate::client::{Client, Failure};
use crate::output::{Align, Column, health as colored, json, json_line, say, table, word};
use crate::printable::println;
use crate::progress::{fit, fit_words};
use api::model::{
    Health, HealthReport, Job, JobKind, JobState, OpenFile, Performance, Session, SmbDirectCounters,
};
use api::printed::{OperationSample, PerformanceSample};
use cluster::clock::unix_now_s;
use indicatif::{MultiProgress, ProgressBar};
use owo_colors::OwoColorize;
use std::collections::BTreeMap;
use std::time::Duration;
use types::size::{show_seconds, show_size};

pub fn session(client: &Client, as_json: bool, command: args::Session) -> Result<(), Failure> {
    match command {
        args::Session::List => {
            let sessions: Vec<Session> = client.get("/sessions")?;
            if as_json {
                return json(&sessions);
            }
            let columns = [
                Column("ID", Align::Right),
                Column("USER", Align::Left),
                Column("CLIENT", Align::Left),
                Column("DIALECT", Align::Left),
                Column("TRANSPORT", Align::Left),
                Column("CHANNELS", Align::Right),
                Column("ZERO COPY", Align::Left),
                Column("CREDITS", Align::Right),
                Column("SIGNING", Align::Left),
                Column("ENCRYPTION", Align::Left),
                Column("SHARES", Align::Left),
                Column("OPENS", Align::Right),
                Column("SINCE", Align::Right),
                Column("IDLE", Align::Right),
                Column("READ", Align::Right),
                Column("WRITTEN", Align::Right),
                Column("BY RDMA WRITE", Align::Right),
                Column("BY RDMA READ", Align::Right),
                Column("INLINE", Align::Right),
            ];
            let now = unix_now_s();
            let rows = sessions.iter().map(|session| {
                vec![
                    session.id.to_string(),
                    session.user.clone(),
                    session.client.join(", "),
                    session.dialect.clone(),
                    session.transport.clone(),
                    session.channels.len().to_string(),
                    show_zero_copy(session),
                    show_credits(session),
                    none_if_empty(&session.signing),
                    none_if_empty(&session.encryption),
                    session.shares.join(", "),
                    session.opens.to_string(),
                    show_seconds(now.saturating_sub(session.since_unix_s)),
                    show_seconds(session.idle_s),
                    show_size(session.read_bytes),
                    show_size(session.written_bytes),
                    show_size(by_rdma(session, |counters| counters.bytes_rdma_written)),
                    show_size(by_rdma(session, |counters| counters.bytes_rdma_read)),
                    show_size(by_rdma(session, |counters| counters.bytes_sent + counters.bytes_received)),
                ]
            });
            table(&columns, rows.collect(), "no sessions");
        }
        args::Session::Close { id } => {
            client.delete(&format!("/sessions/{id}"))?;
            say(as_json, format!("session {id} was closed"))?;
        }
    }
    Ok(())
}

/// Send and receive credits of the channels over SMB Direct.
fn show_credits(session: &Session) -> String {
    let shown: Vec<String> = session
        .channels
        .iter()
        .filter_map(|channel| channel.rdma.as_ref())
        .map(|rdma| format!("{}/{}", rdma.send_credits, rdma.receive_credits))
        .collect();
    shown.join(", ")
}

/// Whether large reads leave without a copy in the server, by TCP; by SMB Direct adapters do as they can.
fn show_zero_copy(session: &Session) -> String {
    let mut told: Vec<&str> =
        session.channels.iter().filter_map(|channel| channel.zero_copy.as_deref()).collect();
    told.sort_unstable();
    told.dedup();
    told.join(", ")
}

fn by_rdma(session: &Session, pick: impl Fn(&SmbDirectCounters) -> u64) -> u64 {
    session.channels.iter().filter_map(|channel| channel.rdma.as_ref()).map(|rdma| pick(&rdma.counters)).sum()
}

fn none_if_empty(text: &str) -> String {
    if text.is_empty() { "none".into() } else { text.into() }
}

pub fn file(client: &Client, as_json: bool, command: args::File) -> Result<(), Failure> {
    match command {
        args::File::List => {
            let files: Vec<OpenFile> = client.get("/files")?;
            if as_json {
                return json(&files);
            }
            let columns = [
                Column("ID", Align::Right),
                Column("USER", Align::Left),
                Column("SHARE", Align::Left),
                Column("PATH", Align::Left),
                Column("ACCESS", Align::Left),
                Column("LOCKS", Align::Right),
                Column("CACHING", Align::Left),
                Column("SESSION", Align::Right),
            ];
            let rows = files.iter().map(|file| {
                vec![
                    file.id.to_string(),
                    file.user.clone(),
                    file.share.clone(),
                    format!("\\{}", file.path),
                    file.access.clone(),
                    file.locks.to_string(),
                    none_if_empty(&file.caching),
                    if file.session == 0 { "durable, waits".into() } else { file.session.to_string() },
                ]
            });
            table(&columns, rows.collect(), "no open files");
        }
        args::File::Close { id } => {
            client.delete(&format!("/files/{id}"))?;
            say(as_json, format!("file {id} was closed"))?;
        }
    }
    Ok(())
}

pub fn job(client: &Client, as_json: bool, command: args::Job) -> Result<(), Failure> {
    match command {
        args::Job::List => {
            let jobs: Vec<Job> = client.get("/jobs")?;
            if as_json {
                return json(&jobs);
            }
            let columns = [
                Column("ID", Align::Right),
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
            say(as_json, format!("job {id} was stopped; what it did stays done"))?;
        }
        args::Job::Resume { id } => {
            let () = client.post(&format!("/jobs/{id}/resume"), &())?;
            say(as_json, format!("job {id} goes on"))?;
        }
    }
    Ok(())
}

/// Waits until the job, or all jobs that run, have ended; how they did.
pub fn wait(client: &Client, id: Option<u64>) -> Result<Vec<Job>, Failure> {
    let mut watched: Option<Vec<u64>> = id.map(|id| vec![id]);
    loop {
        let mut jobs: Vec<Job> = client.get("/jobs")?;
        let running = jobs.iter().filter(|job| job.state == JobState::Running).map(|job| job.id);
        let watched = watched.get_or_insert_with(|| running.collect());
        jobs.retain(|job| watched.contains(&job.id));
        if let (Some(id), true) = (id, jobs.is_empty()) {
            return Err(no_such_job(id));
        }
        if jobs.iter().all(|job| job.state != JobState::Running) {
            return Ok(jobs);
        }
        std::thread::sleep(Duration::from_millis(500));
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

/// Says that a job did not do all it should: whoever waited for it counts on that.
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

fn no_such_job(id: u64) -> Failure {
    Failure::new(format!("there is no job {id}; `cenote job list` shows those there are"))
}

/// Shows progress until the job, or all jobs, have ended. A job that failed fails the command; the one that was asked for, unless it
/// was completed.
pub fn watch(client: &Client, id: Option<u64>) -> Result<(), Failure> {
    let bars = MultiProgress::new();
    let mut shown: BTreeMap<u64, ProgressBar> = BTreeMap::new();
    let mut failed: Vec<Failure> = Vec::new();
    loop {
        let mut jobs: Vec<Job> = client.get("/jobs")?;
        jobs.retain(|job| id.is_none_or(|id| job.id == id));
        if let (Some(id), true) = (id, jobs.is_empty()) {
            return Err(no_such_job(id));
        }
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
                bar.set_message(format!("{what}: {}", job.message));
                fit_words(bar);
            } else {
                bar.set_message(what);
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
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Whether a job tells in words how far it is, and not in bytes.
fn counts_files(job: &Job) -> bool {
    job.kind == JobKind::AclPropagation
}

/// How a job ended, and what it says of that.
fn outcome(job: &Job) -> String {
    if job.message.is_empty() { word(job.state) } else { format!("{}: {}", word(job.state), job.message) }
}

/// Exit status of `health` if nobody answers how things are: not that of a warning.
const NOT_REACHED: u8 = 3;

pub fn health(client: Result<Client, Failure>, as_json: bool) -> Result<(), Failure> {
    let report = client.and_then(|client| client.get::<HealthReport>("/health"));
    let report = report.map_err(|failure| Failure { exit_status: NOT_REACHED, ..failure })?;
    if as_json {
        json(&report)?;
    } else {
        println!("{}", colored(report.health));
        let now = unix_now_s();
        for issue in &report.issues {
            println!("\n{}: {}", colored(issue.health), issue.target.bold());
            println!("  what     {}", issue.what);
            println!("  since    {} ago", show_seconds(now.saturating_sub(issue.since_unix_s)));
            println!("  meaning  {}", issue.meaning);
            println!("  do       {}", issue.action);
        }
    }
    let exit_status = match report.health {
        Health::Healthy => return Ok(()),
        Health::Warning => 1,
        Health::Unhealthy => 2,
    };
    Err(Failure { exit_status, ..Failure::new("") })
}

pub fn perf(client: &Client, as_json: bool, command: &args::Perf) -> Result<(), Failure> {
    let mut before: Performance = client.get("/perf")?;
    if !as_json {
        println!(
            "{:>10} {:>12} {:>10}  {:>10} {:>12} {:>10}  {:>10} {:>10}  {:>6}",
            "READ/s", "", "LATENCY", "WRITE/s", "", "LATENCY", "OTHER/s", "LATENCY", "CACHE"
        );
    }
    let mut samples = 0;
    while command.count == 0 || samples < command.count {
        std::thread::sleep(Duration::from_secs(command.interval));
        let after: Performance = client.get("/perf")?;
        let sample = PerformanceSample::between(&before, &after);
        match as_json {
            true => json_line(&sample)?,
            false => show_sample(&sample),
        }
        before = after;
        samples += 1;
    }
    Ok(())
}

fn show_sample(sample: &PerformanceSample) {
    let [read, write, other] = [&sample.read, &sample.write, &sample.metadata].map(show_operations);
    let cache = sample.cache_hit_ratio.map_or_else(|| "-".into(), |ratio| format!("{:.0} %", ratio * 100.0));
    println!(
        "{:>10} {:>12} {:>10}  {:>10} {:>12} {:>10}  {:>10} {:>10}  {cache:>6}",
        read.0, read.1, read.2, write.0, write.1, write.2, other.0, other.2
    );
}

/// Operations a second, bytes a second, mean latency.
fn show_operations(sample: &OperationSample) -> (String, String, String) {
    let latency = match sample.mean_latency_us {
        None => "-".into(),
        Some(mean) if mean < 10_000.0 => format!("{mean:.0} us"),
        Some(mean) => format!("{:.0} ms", mean / 1000.0),
    };
    let bytes = format!("{}/s", show_size(sample.bytes_per_s as u64));
    (format!("{:.0}", sample.operations_per_s), bytes, latency)
}
