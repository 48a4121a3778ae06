//! What the SMB server shows of its clients: sessions, open files, counts.

use super::accounts::ServerDirectory;
use super::storage::DiskSlot;
use super::volumes::ServedVolume;
use super::{Plane, unix_seconds};
use crate::limits::Limits;
use crate::rdma_devices::transport_name;
use api::model::{
    Channel, ChannelRdma, Latency, Metric, MetricKind, OpenFile, OperationCounters, Performance,
    RdmaActivity, RdmaConnection, RdmaListener, RdmaState, RdmaTrace, RdmaTraceEvent, Session,
    SmbDirectCounters, Snapshot,
};
use rdma::ibverbs::IbverbsProvider;
use rdma::providers::Providers;
use smb::wire::Command;
use smb_server::{Caching, OpenInfo, RequestKind, Server, SessionInfo, Transport};
use smb_transport::server::smb_direct::{Counters, Shown, SmbDirect};
use std::cell::RefCell;
use std::net::SocketAddr;
use types::LatencyHistogram;
use volume::backend::{LeaseState, OplockLevel};
use volume::security::rights;

impl Plane {
    /// The part of a snapshot that the server knows.
    pub(super) fn show_server(&self) -> Snapshot {
        let server = self.server.borrow();
        let now = self.now();
        let wall = unix_seconds();
        let clients = self.clients.borrow();
        let direct = clients.direct();
        let rdma = show_rdma(&self.rdma_addresses, direct);
        let mut metrics = show_metrics(server.counters(), server.gauges(), &self.limits);
        metrics.extend(show_transferred_by_smb_direct(&rdma.counters));
        Snapshot {
            sessions: server
                .sessions(now)
                .into_iter()
                .map(|session| show_session(session, direct, wall))
                .collect(),
            opens: server.opens(now).into_iter().map(show_open).collect(),
            performance: self.show_performance(&server),
            latencies: self.show_latencies(&server),
            rdma,
            metrics,
            ..Snapshot::default()
        }
    }

    /// The last protocol events of an RDMA connection.
    pub(super) fn show_trace(&self, connection: u64) -> Option<RdmaTrace> {
        let clients = self.clients.borrow();
        let trace = clients.direct().trace(connection)?;
        let newest = trace.entries().last().map(|entry| entry.at).unwrap_or_default();
        let events = trace.entries().map(|entry| RdmaTraceEvent {
            before_newest_us: u64::try_from(newest.since(entry.at).as_micros()).unwrap_or(u64::MAX),
            send_credits: entry.send_credits,
            receive_credits: entry.receive_credits,
            event: trace.tell(entry),
        });
        Some(RdmaTrace { connection, count: trace.count(), events: events.collect() })
    }

    fn show_performance(&self, server: &Server<ServedVolume, ServerDirectory>) -> Performance {
        let counters = server.counters();
        let disks = self.storage.disks.borrow();
        let requests = |command: Command| counters.requests.get(command as usize).copied().unwrap_or(0);
        let (reads, writes) = (requests(Command::Read), requests(Command::Write));
        let all: u64 = counters.requests.iter().sum();
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
            uptime_us: u64::try_from(self.now().since(self.started).as_micros()).unwrap_or(u64::MAX),
            read: of(RequestKind::Read, reads, counters.read_bytes),
            write: of(RequestKind::Write, writes, counters.written_bytes),
            metadata: of(RequestKind::Metadata, all - reads - writes, 0),
            disk_write_bytes: disks.values().map(|slot| slot.counters.write_bytes.get()).sum(),
            disk_read_bytes: disks.values().map(|slot| slot.counters.read_bytes.get()).sum(),
            // Volumes know of their caches.
            ..Performance::default()
        }
    }

    fn show_latencies(&self, server: &Server<ServedVolume, ServerDirectory>) -> Vec<Latency> {
        let requests = RequestKind::ALL.map(|kind| Latency {
            name: "smb_request".to_owned(),
            help: "From a request's arrival to its answer, without requests that wait for another client."
                .to_owned(),
            labels: vec![("operation".to_owned(), request_kind(kind).to_owned())],
            histogram: *server.latency(kind),
        });
        let disks = self.storage.disks.borrow();
        let of_disk = |slot: &DiskSlot, operation: &str, histogram: &RefCell<LatencyHistogram>| Latency {
            name: "disk_io".to_owned(),
            help: "From an operation's submission to the disk's answer.".to_owned(),
            labels: vec![
                ("disk".to_owned(), slot.record.id.to_string()),
                ("operation".to_owned(), operation.to_owned()),
            ],
            histogram: *histogram.borrow(),
        };
        let of_disks = disks.values().flat_map(|slot| {
            let counters = &slot.counters;
            [
                of_disk(slot, "read", &counters.read_latency),
                of_disk(slot, "write", &counters.write_latency),
                of_disk(slot, "flush", &counters.flush_latency),
            ]
        });
        requests.into_iter().chain(of_disks).collect()
    }
}

const fn request_kind(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "read",
        RequestKind::Write => "write",
        RequestKind::Metadata => "metadata",
    }
}

/// The provider of listeners that need no device.
const SOFTWARE: &str = "software";

fn show_rdma(addresses: &[SocketAddr], direct: &SmbDirect<Providers>) -> RdmaState {
    let software = addresses.iter().map(|address| RdmaListener {
        address: address.to_string(),
        transport: transport_name(rdma::Transport::Iwarp).to_owned(),
        provider: SOFTWARE.to_owned(),
    });
    let devices =
        direct.verbs().devices.iter().flat_map(IbverbsProvider::listening).map(|listening| RdmaListener {
            address: listening.address.to_string(),
            transport: transport_name(listening.transport).to_owned(),
            provider: listening.device.clone(),
        });
    let connection = |shown: Shown| RdmaConnection {
        client: shown.info.peer.to_string(),
        server: shown.info.local.to_string(),
        transport: transport_name(shown.info.transport).to_owned(),
        rdma: show_channel(&shown),
    };
    RdmaState {
        listeners: software.chain(devices).collect(),
        connections: direct.show_all().into_iter().map(connection).collect(),
        activity: show_activity(direct.activity()),
        counters: show_smb_direct(&direct.counters()),
    }
}

fn show_channel(shown: &Shown) -> ChannelRdma {
    ChannelRdma {
        connection: shown.number,
        send_credits: shown.send_credits,
        receive_credits: shown.receive_credits,
        crc: shown.info.crc,
        inbound_read_depth: shown.info.inbound_read_depth,
        outbound_read_depth: shown.info.outbound_read_depth,
        counters: show_smb_direct(&shown.counters),
    }
}

fn show_activity(activity: rdma::Activity) -> RdmaActivity {
    RdmaActivity {
        accepted_connections: activity.accepted_connections,
        active_connections: activity.active_connections,
        completion_queue_errors: activity.completion_queue_errors,
        connection_errors: activity.connection_errors,
        failed_connection_attempts: activity.failed_connection_attempts,
        inbound_bytes: activity.inbound_bytes,
        inbound_frames: activity.inbound_frames,
        initiated_connections: activity.initiated_connections,
        outbound_bytes: activity.outbound_bytes,
        outbound_frames: activity.outbound_frames,
    }
}

fn show_smb_direct(counters: &Counters) -> SmbDirectCounters {
    SmbDirectCounters {
        bytes_rdma_read: counters.bytes_rdma_read,
        bytes_rdma_written: counters.bytes_rdma_written,
        bytes_received: counters.bytes_received,
        bytes_sent: counters.bytes_sent,
        memory_regions: counters.memory_regions,
        rcq_notification_events: counters.rcq_notification_events,
        rdma_registrations: counters.rdma_registrations,
        receives: counters.receives,
        remote_invalidations: counters.remote_invalidations,
        scq_notification_events: counters.scq_notification_events,
        sends: counters.sends,
        // Software wakes nobody without a completion.
        spurious_rcq_notification_events: 0,
        spurious_scq_notification_events: 0,
        stalls_rdma_read: counters.stalls_rdma_read,
        stalls_rdma_registrations: counters.stalls_rdma_registrations,
        stalls_send_credit: counters.stalls_send_credit,
        stalls_send_queue: counters.stalls_send_queue,
    }
}

/// What part of "SMB Server Shares: Received, Sent and Transferred Bytes/sec" went via SMB Direct.
fn show_transferred_by_smb_direct(direct: &SmbDirectCounters) -> Vec<Metric> {
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

fn show_session(session: SessionInfo, direct: &SmbDirect<Providers>, wall: u64) -> Session {
    let channel = |connection: &smb_server::ConnectionInfo| {
        let shown = match connection.transport {
            Transport::Tcp => None,
            Transport::SmbDirect => direct.find(connection.peer, connection.local),
        };
        Channel {
            client: connection.peer.to_string(),
            server: connection.local.to_string(),
            transport: match (connection.transport, &shown) {
                (Transport::Tcp, _) => "TCP".to_owned(),
                (Transport::SmbDirect, Some(shown)) => transport_name(shown.info.transport).to_owned(),
                (Transport::SmbDirect, None) => "SMB Direct".to_owned(),
            },
            rdma: shown.as_ref().map(show_channel),
        }
    };
    let channels: Vec<Channel> = session.connections.iter().map(channel).collect();
    Session {
        id: session.id,
        client: session.connections.iter().map(|connection| connection.peer.to_string()).collect(),
        user: session.user,
        user_sid: Some(session.user_sid),
        dialect: session.dialect.to_owned(),
        transport: channels.first().map(|channel| channel.transport.clone()).unwrap_or_default(),
        channels,
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

fn show_metrics(counters: &smb_server::Counters, gauges: smb_server::Gauges, limits: &Limits) -> Vec<Metric> {
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
        gauge("smb_setups", "Logons in progress.", gauges.setups),
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
