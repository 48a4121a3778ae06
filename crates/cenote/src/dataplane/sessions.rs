//! What the SMB server shows of its clients: sessions, open files, counts.

use super::{Plane, unix_seconds};
use api::model::{Metric, MetricKind, OpenFile, OperationCounters, Performance, Session, Snapshot};
use smb::wire::Command;
use smb_server::{Caching, OpenInfo, SessionInfo, Transport};
use volume::backend::{LeaseState, OplockLevel};
use volume::security::rights;

impl Plane {
    /// The part of a snapshot that the server knows.
    pub(super) fn show_server(&self) -> Snapshot {
        let server = self.server.borrow();
        let now = self.now();
        let wall = unix_seconds();
        Snapshot {
            sessions: server.sessions(now).into_iter().map(|session| show_session(session, wall)).collect(),
            opens: server.opens(now).into_iter().map(show_open).collect(),
            performance: self.show_performance(server.counters()),
            metrics: show_metrics(server.counters(), server.gauges()),
            ..Snapshot::default()
        }
    }

    fn show_performance(&self, counters: &smb_server::Counters) -> Performance {
        let disks = self.storage.disks.borrow();
        let requests = |command: Command| counters.requests.get(command as usize).copied().unwrap_or(0);
        let (reads, writes) = (requests(Command::Read), requests(Command::Write));
        let all: u64 = counters.requests.iter().sum();
        Performance {
            uptime_us: u64::try_from(self.now().since(self.started).as_micros()).unwrap_or(u64::MAX),
            read: OperationCounters { operations: reads, bytes: counters.read_bytes, ..Default::default() },
            write: OperationCounters {
                operations: writes,
                bytes: counters.written_bytes,
                ..Default::default()
            },
            metadata: OperationCounters {
                operations: all - reads - writes,
                errors: counters.errors,
                ..Default::default()
            },
            disk_write_bytes: disks.values().map(|slot| slot.counters.write_bytes.get()).sum(),
            disk_read_bytes: disks.values().map(|slot| slot.counters.read_bytes.get()).sum(),
            ..Performance::default()
        }
    }
}

fn show_session(session: SessionInfo, wall: u64) -> Session {
    Session {
        id: session.id,
        client: session.connections.iter().map(|connection| connection.peer.to_string()).collect(),
        user: session.user,
        user_sid: Some(session.user_sid),
        dialect: session.dialect.to_owned(),
        transport: match session.transport {
            Transport::Tcp => "TCP".to_owned(),
            Transport::SmbDirect => "SMB Direct".to_owned(),
        },
        signing: if session.signing_required { format!("{:?}", session.signing) } else { String::new() },
        encryption: match session.cipher {
            Some(cipher) if session.encryption_required => format!("{cipher:?}"),
            _ => String::new(),
        },
        shares: session.shares,
        opens: session.opens as u64,
        since_unix_s: wall.saturating_sub(session.age_s),
        idle_s: session.idle_s,
        read_bytes: session.read_bytes,
        written_bytes: session.written_bytes,
    }
}

fn show_open(open: OpenInfo) -> OpenFile {
    OpenFile {
        id: open.id,
        session: open.session,
        user: open.user,
        share: open.share,
        path: String::from_utf16_lossy(&open.path),
        access: show_access(open.granted_access),
        locks: 0,
        caching: show_caching(open.caching),
        durable: open.durable,
    }
}

fn show_access(access: u32) -> String {
    let words = [
        (rights::READ_DATA, "read"),
        (rights::WRITE_DATA | rights::APPEND_DATA, "write"),
        (rights::DELETE, "delete"),
        (rights::WRITE_DAC | rights::WRITE_OWNER, "change permissions"),
    ];
    let named: Vec<&str> =
        words.iter().filter(|(bits, _)| access & bits != 0).map(|(_, word)| *word).collect();
    if named.is_empty() { "attributes".to_owned() } else { named.join(", ") }
}

fn show_caching(caching: Caching) -> String {
    match caching {
        Caching::Oplock(OplockLevel::None) => String::new(),
        Caching::Oplock(OplockLevel::LevelII) => "oplock level II".to_owned(),
        Caching::Oplock(OplockLevel::Exclusive) => "oplock exclusive".to_owned(),
        Caching::Oplock(OplockLevel::Batch) => "oplock batch".to_owned(),
        Caching::Lease(state) if state.is_empty() => String::new(),
        Caching::Lease(state) => {
            let letters = [(LeaseState::READ, 'R'), (LeaseState::WRITE, 'W'), (LeaseState::HANDLE, 'H')];
            let held: String =
                letters.iter().filter(|(bit, _)| state.contains(*bit)).map(|(_, letter)| letter).collect();
            format!("lease {held}")
        }
    }
}

fn show_metrics(counters: &smb_server::Counters, gauges: smb_server::Gauges) -> Vec<Metric> {
    let counter = |name: &str, help: &str, value: u64| Metric {
        name: name.to_owned(),
        help: help.to_owned(),
        kind: MetricKind::Counter,
        labels: Vec::new(),
        value: value as f64,
    };
    let gauge = |name: &str, help: &str, value: usize| Metric {
        kind: MetricKind::Gauge,
        ..counter(name, help, value as u64)
    };
    vec![
        gauge("smb_connections", "Connections of SMB clients.", gauges.connections),
        gauge("smb_sessions", "Sessions of SMB clients.", gauges.sessions),
        gauge("smb_opens", "Open files of SMB clients.", gauges.opens),
        gauge("smb_requests_in_work", "Requests that are not answered yet.", gauges.requests_in_work),
        counter("smb_received_bytes", "Bytes received from SMB clients.", counters.bytes_received),
        counter("smb_sent_bytes", "Bytes sent to SMB clients.", counters.bytes_sent),
        counter("smb_errors", "Requests answered with an error.", counters.errors),
        counter("smb_logons", "Successful logons.", counters.logons),
        counter("smb_logons_failed", "Refused logons.", counters.logons_failed),
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
