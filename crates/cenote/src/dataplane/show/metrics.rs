//! Figures of the SMB server, as the control plane is shown them.

use crate::dataplane::clients::SmbServer;
use crate::limits::Limits;
use api::model::{Metric, MetricKind, OperationCounters, Performance, SmbDirectCounters};
use smb::wire::Command;
use smb_server::{RequestKind, ShareFigures};
use smb_transport::server::tcp::Tcp;
use types::Monotonic;

/// Shows counts and times of requests since the server started, without the volumes' caches;
/// `transferred_bytes`: bytes read from and written to disks.
pub(super) fn show_performance(
    server: &SmbServer,
    transferred_bytes: (u64, u64),
    started: Monotonic,
    now: Monotonic,
) -> Performance {
    let counters = server.counters();
    let requests = |command: Command| counters.requests.get(command as usize).copied().unwrap_or(0);
    let servers = of_other_servers(server.share_figures());
    let of_servers = |kind: RequestKind| counters.requests_of_servers[kind as usize];
    let reads = requests(Command::Read) - of_servers(RequestKind::Read);
    let writes = requests(Command::Write) - of_servers(RequestKind::Write);
    let all = counters.requests.iter().sum::<u64>() - counters.requests_of_servers.iter().sum::<u64>();
    let (disk_read_bytes, disk_write_bytes) = transferred_bytes;
    let of = |kind: RequestKind, operations: u64, bytes: u64| {
        let latency = server.latency(kind);
        OperationCounters {
            operations,
            bytes,
            measured_operations: latency.count(),
            latency_us: u64::try_from(latency.sum().as_micros()).unwrap_or(u64::MAX),
            errors: counters.errors[kind as usize],
        }
    };
    Performance {
        uptime_us: u64::try_from(now.since(started).as_micros()).unwrap_or(u64::MAX),
        read: of(RequestKind::Read, reads, counters.read_bytes - servers.read_bytes),
        write: of(RequestKind::Write, writes, counters.written_bytes - servers.written_bytes),
        metadata: of(RequestKind::Metadata, all - reads - writes, 0),
        disk_write_bytes,
        disk_read_bytes,
        ..Performance::default()
    }
}

/// Other servers' requests to this one's disks, apart from clients' requests that caused them.
fn of_other_servers(shares: &[ShareFigures]) -> ShareFigures {
    let is_theirs = |share: &&ShareFigures| share.volume == Some(bus::VOLUME);
    shares.iter().find(is_theirs).cloned().unwrap_or_default()
}

/// Shows the part of "SMB Server Shares: Received, Sent and Transferred Bytes/sec" that went via SMB Direct.
pub(super) fn show_transferred_by_smb_direct(direct: &SmbDirectCounters) -> Vec<Metric> {
    let value = |direction: &str, by: &str, value: u64| Metric {
        name: "smb_server_shares_smb_direct_bytes".to_owned(),
        help: "SMB Server Shares: Received and Sent Bytes via SMB Direct, in messages and by RDMA."
            .to_owned(),
        kind: MetricKind::Counter,
        labels: vec![("direction".to_owned(), direction.to_owned()), ("by".to_owned(), by.to_owned())],
        value: value as f64,
    };
    vec![
        value("received", "message", direct.bytes_received),
        value("sent", "message", direct.bytes_sent),
        value("received", "rdma_read", direct.bytes_rdma_read),
        value("sent", "rdma_write", direct.bytes_rdma_written),
    ]
}

/// Shows bytes that left by TCP without a copy, and those of them that clients have not taken.
pub(super) fn show_lent(tcp: &Tcp) -> [Metric; 2] {
    let held = "Bytes sent by TCP by reference that clients have not acknowledged.";
    [
        counter(
            "smb_lent_bytes",
            "Bytes sent by TCP by reference, without a copy in this server.",
            tcp.lent_bytes(),
        ),
        Metric { kind: MetricKind::Gauge, ..counter("smb_lent_held_bytes", held, tcp.lent_held_bytes()) },
    ]
}

fn counter(name: &str, help: &str, value: u64) -> Metric {
    Metric {
        name: name.to_owned(),
        help: help.to_owned(),
        kind: MetricKind::Counter,
        labels: Vec::new(),
        value: value as f64,
    }
}

fn gauge(name: &str, help: &str, value: usize) -> Metric {
    Metric { kind: MetricKind::Gauge, ..counter(name, help, value as u64) }
}

/// Shows current holdings of clients at the server, and their limits.
pub(super) fn show_gauges(gauges: smb_server::Gauges, limits: &Limits) -> Vec<Metric> {
    vec![
        gauge("smb_connections", "Connections of SMB clients.", gauges.connections),
        gauge("smb_sessions", "Sessions of SMB clients.", gauges.sessions),
        gauge("smb_opens", "Open files of SMB clients.", gauges.opens),
        gauge(
            "smb_connections_limit",
            "Connections at most (limits.connections).",
            limits.connections as usize,
        ),
        gauge("smb_sessions_limit", "Sessions at most (limits.sessions).", limits.sessions as usize),
        gauge("smb_opens_limit", "Open files at most (limits.opens).", limits.opens as usize),
        gauge("smb_requests_in_work", "Requests that are not answered yet.", gauges.requests_in_work),
        gauge(
            "smb_in_flight_bytes",
            "Memory of requests in work and of answers that are not sent.",
            gauges.in_flight_bytes,
        ),
        gauge(
            "smb_in_flight_limit_bytes",
            "Memory above which clients are not received from (limits.bytes_in_flight).",
            limits.bytes_in_flight as usize,
        ),
        gauge(
            "smb_parked_bytes",
            "Memory of requests that wait for another client, and of named pipes.",
            gauges.parked_bytes,
        ),
        gauge("smb_setups", "Logons in progress.", gauges.setups),
    ]
}

/// Shows the counters since the server started.
pub(super) fn show_counters(counters: &smb_server::Counters) -> Vec<Metric> {
    vec![
        counter("smb_received_bytes", "Bytes received from SMB clients.", counters.bytes_received),
        counter("smb_sent_bytes", "Bytes sent to SMB clients.", counters.bytes_sent),
        counter("smb_logons", "Successful logons.", counters.logons),
        counter("smb_logons_failed", "Logons with a wrong password or user.", counters.logons_failed),
        counter(
            "smb_logons_delayed",
            "Logons held back because of failures before.",
            counters.logons_delayed,
        ),
        counter(
            "smb_logons_refused",
            "Logons refused unseen because of failures before.",
            counters.logons_refused,
        ),
        counter("smb_setups_evicted", "Logons in progress that ended for others.", counters.setups_evicted),
        counter(
            "smb_connections_refused",
            "Connections refused because of limits.",
            counters.connections_refused,
        ),
        counter(
            "smb_protocol_errors",
            "Connections closed because of what they sent.",
            counters.protocol_errors,
        ),
        counter("smb_bad_signatures", "Requests whose signature was wrong.", counters.bad_signatures),
        counter("smb_oplock_breaks", "Oplock breaks sent.", counters.oplock_breaks),
        counter("smb_lease_breaks", "Lease breaks sent.", counters.lease_breaks),
    ]
}
