//! `cenote alert`, `cenote session`, `cenote file`, `cenote health`, `cenote perf`.

use crate::args;
use crate::output::{Align, Column, health as colored, json, json_line, say, table};
use crate::printable::println;
use api::model::{ClusterPerformance, Health, HealthReport, Session, SmbDirectCounters};
use api::printed::{OperationSample, PerformanceSample};
use api::requests::TestedReceiver;
use api_client::{Client, Failure, escaped};
use owo_colors::OwoColorize;
use records::clock::unix_now_s;
use std::time::Duration;
use types::size::{show_seconds, show_size};

/// `cenote alert test`: fails if a notice was not taken.
pub fn test_alerts(client: &Client, as_json: bool) -> Result<(), Failure> {
    let tested: Vec<TestedReceiver> = client.post("/alerts/test", &())?;
    if as_json {
        json(&tested)?;
    } else {
        let columns = ["RECEIVER", "TO", "RESULT"].map(|name| Column(name, Align::Left));
        let rows = tested.iter().map(|one| {
            let result = one.error.clone().unwrap_or_else(|| "taken".into());
            vec![one.receiver.clone(), one.to.clone(), result]
        });
        table(
            &columns,
            rows.collect(),
            "no receiver is set: health.webhook and health.mail_server name them",
        );
    }
    match tested.iter().any(|one| one.error.is_some()) {
        true => Err(Failure::new("a notice was not taken")),
        false => Ok(()),
    }
}

pub fn session(client: &Client, as_json: bool, command: args::Session) -> Result<(), Failure> {
    match command {
        args::Session::List => {
            let sessions: Vec<Session> = client.get_whole("/sessions", "sessions there are not listed")?;
            if as_json {
                return json(&sessions);
            }
            let columns = [
                Column("ID", Align::Right),
                Column("SERVER", Align::Left),
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
                    session.server.clone().unwrap_or_else(|| "-".into()),
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
            let sessions: Vec<Session> = client.get("/sessions")?;
            let servers =
                sessions.iter().filter(|session| session.id == id).map(|session| session.server.clone());
            client.delete(&at_its_server("sessions", id, "", servers.collect())?)?;
            say(as_json, format!("session {id} was closed"))?;
        }
    }
    Ok(())
}

/// The path of a session, open file or connection, and of the part `below` it, with its server.
/// `servers`: those that have one of this number.
pub(crate) fn at_its_server(
    kind: &str,
    id: u64,
    below: &str,
    servers: Vec<Option<String>>,
) -> Result<String, Failure> {
    match servers.as_slice() {
        [Some(server)] => Ok(format!("/{kind}/{id}{below}?server={}", escaped(server))),
        // On a single server, which itself refuses a missing one.
        [None] | [] => Ok(format!("/{kind}/{id}{below}")),
        several => {
            let names: Vec<&str> = several.iter().filter_map(Option::as_deref).collect();
            Err(Failure::new(format!(
                "servers {} each have one with this number: ask the right server with --local and its --data or --api",
                names.join(" and ")
            )))
        }
    }
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
            let files = client.open_files("files there are not listed")?;
            if as_json {
                return json(&files);
            }
            let columns = [
                Column("ID", Align::Right),
                Column("SERVER", Align::Left),
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
                    file.server.clone().unwrap_or_else(|| "-".into()),
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
            let files = client.open_files("files there are not seen")?;
            let servers = files.iter().filter(|file| file.id == id).map(|file| file.server.clone());
            client.delete(&at_its_server("files", id, "", servers.collect())?)?;
            say(as_json, format!("file {id} was closed"))?;
        }
    }
    Ok(())
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
        if !report.unanswered.is_empty() {
            println!("no answer from {}: what is wrong there is not known", report.unanswered.join(", "));
        }
        let now = unix_now_s();
        for issue in &report.issues {
            println!("\n{}: {}", colored(issue.health), issue.target.bold());
            if let Some(server) = &issue.server {
                println!("  server   {server}");
            }
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
    const MISSING: &str = "what clients ask there is missing";
    let mut before: ClusterPerformance = client.get_of_all("/perf", MISSING)?;
    if !as_json {
        println!(
            "{:>10} {:>12} {:>10}  {:>10} {:>12} {:>10}  {:>10} {:>10}  {:>6}",
            "READ/s", "", "LATENCY", "WRITE/s", "", "LATENCY", "OTHER/s", "LATENCY", "CACHE"
        );
    }
    let mut samples = 0;
    while command.count == 0 || samples < command.count {
        std::thread::sleep(Duration::from_secs(command.interval));
        let after: ClusterPerformance = client.get_of_all("/perf", MISSING)?;
        let sample = PerformanceSample::of_all(&before, &after);
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
