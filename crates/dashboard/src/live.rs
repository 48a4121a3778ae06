//! What pages are shown each second.

use crate::answers::Answers;
use crate::capacity::Trend;
use crate::clients::{SessionLine, lines as session_lines};
use crate::disks::{DiskLine, lines as disk_lines};
use crate::fleet::FleetRun;
use crate::mutes::HealthLines;
use crate::next_failure::{NextFailure, next_failures};
use crate::others::NodeFigures;
use crate::parts::{self, Part};
use crate::rates::{Sample, Totals};
use crate::repairs::{Repair, repairs};
use api::cluster::ClusterView;
use api::model::{Job, Performance, Pool, Rdma, RdmaDevice, RdmaInterface, RdmaListener};
use api::model::{Snapshot, Volume};
use serde::Serialize;
use std::collections::BTreeMap;

/// An event, if the data plane answered.
#[derive(Serialize)]
pub struct Live<'a> {
    pub at_unix_ms: u64,
    pub server: &'a str,
    pub version: &'static str,
    pub answers: Answers,
    pub next_failures: Vec<NextFailure>,
    pub repairs: Vec<Repair>,
    pub health: HealthLines<'a>,
    /// Servers of the cluster whose part of this is missing: they did not answer.
    pub unanswered: &'a [String],
    pub disks: Vec<DiskLine<'a>>,
    pub pools: &'a [Pool],
    /// `null`: the history is too short to tell.
    pub trend: Option<Trend>,
    pub volumes: &'a [Volume],
    pub sessions: Vec<SessionLine<'a>>,
    pub session_count: usize,
    pub shares: Vec<Part>,
    pub volume_figures: Vec<Part>,
    pub client_figures: Vec<Part>,
    pub jobs: &'a [Job],
    pub sample: &'a Sample,
    /// Totals since the start.
    pub performance: &'a Performance,
    pub rdma: RdmaView<'a>,
    /// `null`: it is not known yet.
    pub cluster: Option<&'a ClusterView>,
    /// What each server did, by name: this one, and those of its cluster that have answered lately.
    pub nodes: BTreeMap<String, NodeFigures>,
    pub fleet: Option<FleetRun>,
}

/// An event, if it did not.
#[derive(Serialize)]
pub struct Silent<'a> {
    pub at_unix_ms: u64,
    pub server: &'a str,
    pub version: &'static str,
    /// Why there is nothing to show.
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

/// What an event is made of.
pub struct Looked<'a> {
    pub at_unix_ms: u64,
    pub server: &'a str,
    pub snapshot: &'a Snapshot,
    pub rdma: &'a Rdma,
    pub sample: &'a Sample,
    pub cluster: Option<&'a ClusterView>,
    pub nodes: BTreeMap<String, NodeFigures>,
    pub fleet: Option<FleetRun>,
    pub health: HealthLines<'a>,
    pub trend: Option<Trend>,
    /// By path.
    pub serials: &'a BTreeMap<String, String>,
    /// The last look, one of some seconds ago, and this one.
    pub before: &'a Totals,
    pub earlier: &'a Totals,
    pub now: &'a Totals,
}

impl<'a> Live<'a> {
    pub fn new(looked: Looked<'a>) -> Self {
        let Looked {
            at_unix_ms,
            server,
            snapshot,
            rdma,
            sample,
            cluster,
            nodes,
            fleet,
            health,
            trend,
            serials,
            before,
            earlier,
            now,
        } = looked;
        let next_failures = next_failures(snapshot, cluster);
        let own = cluster.is_some_and(|view| view.name.is_some()).then_some(server);
        let mut disks = disk_lines(&snapshot.disks, own, before, earlier, now);
        for line in disks.iter_mut().filter(|line| line.is_local) {
            line.serial = serials.get(line.path()).cloned();
        }
        Self {
            at_unix_ms,
            server,
            version: env!("CARGO_PKG_VERSION"),
            answers: Answers::new(snapshot, rdma, sample, &next_failures),
            repairs: repairs(&snapshot.jobs, &disks, sample, at_unix_ms / 1000),
            next_failures,
            health,
            unanswered: &snapshot.health.unanswered,
            disks,
            pools: &snapshot.pools,
            trend,
            volumes: &snapshot.volumes,
            sessions: session_lines(&snapshot.sessions, server, rdma, before, now),
            session_count: snapshot.sessions.len(),
            shares: parts::shares(before, now),
            volume_figures: parts::volumes(&snapshot.volumes, before, now),
            client_figures: parts::clients(&snapshot.sessions, server, before, now),
            jobs: &snapshot.jobs,
            sample,
            performance: &snapshot.performance,
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
