//! The events for pages, one each second.

use crate::activity::Servers;
use crate::answers::Answers;
use crate::clients::{SessionLine, lines as session_lines};
use crate::disks::{DiskLine, lines as disk_lines};
use crate::fleet::FleetRun;
use crate::mutes::HealthLines;
use crate::next_failure::{NextFailure, next_failures};
use crate::others::NodeFigures;
use crate::parts::{self, Part};
use crate::rates::Sample;
use crate::repairs::{Repair, repairs};
use api::cluster::ClusterView;
use api::model::{Job, Performance, Pool, Rdma, RdmaDevice, RdmaInterface, RdmaListener};
use api::model::{Snapshot, Volume};
use serde::Serialize;
use std::collections::BTreeMap;

/// An event when the data plane answered.
#[derive(Serialize)]
pub struct Live<'a> {
    pub at_unix_ms: u64,
    pub server: &'a str,
    pub version: &'static str,
    pub answers: Answers,
    pub next_failures: Vec<NextFailure>,
    pub repairs: Vec<Repair>,
    pub health: HealthLines<'a>,
    /// Servers of the cluster whose part is missing: they did not answer.
    pub unanswered: &'a [String],
    pub disks: Vec<DiskLine<'a>>,
    pub pools: &'a [Pool],
    pub volumes: &'a [Volume],
    pub sessions: Vec<SessionLine<'a>>,
    pub session_count: usize,
    pub shares: Vec<Part>,
    pub volume_figures: Vec<Part>,
    pub client_figures: Vec<Part>,
    pub jobs: &'a [Job],
    /// The work of all servers in the last second, but for the machine, which is this server's.
    pub sample: Sample,
    /// The work of this server.
    pub own_sample: &'a Sample,
    /// Totals of all servers, each since its start.
    pub performance: Performance,
    /// The servers that these figures are of, and those of shares, volumes, clients, sessions and disks.
    pub counted: Vec<&'a str>,
    pub rdma: RdmaView<'a>,
    /// `null`: it is not known yet.
    pub cluster: Option<&'a ClusterView>,
    /// Figures of each server, by name: this one, and those of its cluster that have answered lately.
    pub nodes: BTreeMap<String, NodeFigures>,
    pub fleet: Option<FleetRun>,
}

/// An event when the data plane did not answer.
#[derive(Serialize)]
pub struct Silent<'a> {
    pub at_unix_ms: u64,
    pub server: &'a str,
    pub version: &'static str,
    /// Reason why there is nothing to show.
    pub error: &'a str,
}

#[derive(Serialize)]
pub struct RdmaView<'a> {
    listeners: &'a [RdmaListener],
    interfaces: &'a [RdmaInterface],
    devices: &'a [RdmaDevice],
    no_devices: &'a str,
    /// Connections of clients over SMB Direct.
    connections: usize,
}

/// Inputs of an event.
pub struct Looked<'a> {
    pub at_unix_ms: u64,
    pub server: &'a str,
    pub snapshot: &'a Snapshot,
    pub rdma: &'a Rdma,
    /// Work of this server alone.
    pub sample: &'a Sample,
    /// The work of each server in the last second, this one among them.
    pub servers: &'a Servers,
    pub cluster: Option<&'a ClusterView>,
    pub nodes: BTreeMap<String, NodeFigures>,
    pub fleet: Option<FleetRun>,
    pub health: HealthLines<'a>,
}

impl<'a> Live<'a> {
    pub fn new(looked: Looked<'a>) -> Self {
        let Looked { at_unix_ms, server, snapshot, rdma, sample, servers, cluster, nodes, fleet, health } =
            looked;
        let (own_sample, sample) = (sample, servers.sample(sample));
        let next_failures = next_failures(snapshot, cluster);
        let own = cluster.is_some_and(|view| view.name.is_some()).then_some(server);
        let disks = disk_lines(&snapshot.disks, own, servers);
        Self {
            at_unix_ms,
            server,
            version: env!("CARGO_PKG_VERSION"),
            answers: Answers::new(snapshot, rdma, &sample, &next_failures),
            repairs: repairs(&snapshot.jobs, &disks, &sample, at_unix_ms / 1000),
            next_failures,
            health,
            unanswered: &snapshot.health.unanswered,
            disks,
            pools: &snapshot.pools,
            volumes: &snapshot.volumes,
            sessions: session_lines(&snapshot.sessions, server, rdma, servers),
            session_count: snapshot.sessions.len(),
            shares: parts::shares(servers),
            volume_figures: parts::volumes(&snapshot.volumes, servers),
            client_figures: parts::clients(servers),
            jobs: &snapshot.jobs,
            sample,
            own_sample,
            performance: servers.performance().1,
            counted: servers.names(),
            rdma: RdmaView {
                listeners: &rdma.state.listeners,
                interfaces: &rdma.interfaces,
                devices: &rdma.devices,
                no_devices: &rdma.no_devices,
                connections: snapshot.rdma.connections.len(),
            },
            cluster,
            nodes,
            fleet,
        }
    }
}
