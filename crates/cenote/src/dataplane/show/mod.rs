//! Everything that the control plane shows, as of one moment, in the words of the API.

mod cluster_issues;
mod disks;
mod latencies;
mod metrics;
mod peers;
mod pools;
mod rdma;
mod sessions;
mod volumes;

pub use peers::show_peer;

use super::frontend::Frontend;
use crate::limits::Limits;
use api::model::{
    DamagedFile, DamagedRange, Health, HealthIssue, HealthReport, Job, JobKind, JobState, OpensPage,
    RdmaTrace, Snapshot, VolumeDamage,
};
use node::Node;
use node::{damage_search, jobs};
use records::clock::unix_now;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use types::Monotonic;

/// Unrecorded beginning, shown as the time when the issue was first seen. Health is checked every few
/// seconds.
const SINCE_SEEN: u64 = 0;
/// Length of a part of clients' opens; with [`OPEN_PATHS_UNITS_MAX`], its JSON fits into an errand's answer.
const OPENS_MAX: usize = 1000;
const OPEN_PATHS_UNITS_MAX: usize = 256 << 10;

/// Shows the parts of the data plane.
///
/// Invariant: `issues_seen` has the last snapshot's issues without a recorded beginning, and no others.
pub(super) struct Show {
    /// Addresses on which SMB Direct listens in software.
    rdma_addresses: Vec<SocketAddr>,
    /// RDMA devices of the configuration that are not served, and why.
    rdma_refused: Vec<String>,
    limits: Limits,
    started: Monotonic,
    /// Code and target of issues, and when they were first seen.
    issues_seen: RefCell<BTreeMap<(String, String), u64>>,
}

impl Show {
    pub(super) fn new(
        rdma_addresses: Vec<SocketAddr>,
        rdma_refused: Vec<String>,
        limits: Limits,
        started: Monotonic,
    ) -> Self {
        Self { rdma_addresses, rdma_refused, limits, started, issues_seen: RefCell::default() }
    }

    /// Shows everything except clients' opens.
    pub(super) fn figures(&self, node: &Node, frontend: &Frontend) -> Snapshot {
        node.job_control.update();
        let mut issues = Vec::new();
        let disks = disks::show_disks(node, &mut issues);
        let volumes = volumes::show_volumes(node, &mut issues);
        let mut pools = pools::show_pools(&node.pools, &disks);
        for pool in &mut pools {
            let told = pools::pool_issues(pool, node, &volumes);
            pool.health = told.iter().map(|issue| issue.health).fold(pool.health, Health::max);
            issues.extend(told);
        }
        issues.extend(peers::unreached_nodes(node));
        issues.extend(cluster_issues::unserved_volumes(node));
        issues.extend(cluster_issues::disks_left_behind(node));
        issues.extend(node.jobs.borrow().stopped().map(stopped_job));
        issues.extend(self.rdma_refused.iter().map(|reason| refused_device(reason)));
        issues.iter_mut().for_each(HealthIssue::reveal);
        self.date_issues(&mut issues, node.tasks.unix_seconds());
        let health = issues.iter().map(|issue| issue.health).max().unwrap_or_default();
        let mut server = self.show_server(node, frontend);
        server.performance.cache_hit_bytes = volumes.iter().filter_map(|volume| volume.cache_hit_bytes).sum();
        server.performance.cache_miss_bytes =
            volumes.iter().filter_map(|volume| volume.cache_miss_bytes).sum();
        Snapshot {
            disks,
            pools,
            volumes,
            jobs: node.jobs.borrow().list().into_iter().map(show_job).collect(),
            health: HealthReport { health, issues, ..HealthReport::default() },
            ..server
        }
    }

    /// Dates issues without a recorded beginning by their first appearance, and forgets those that have
    /// ended.
    fn date_issues(&self, issues: &mut [HealthIssue], unix_s: u64) {
        let mut seen = self.issues_seen.borrow_mut();
        let before = std::mem::take(&mut *seen);
        for issue in issues.iter_mut().filter(|issue| issue.since_unix_s == SINCE_SEEN) {
            let key = (issue.code.clone(), issue.target.clone());
            issue.since_unix_s = before.get(&key).copied().unwrap_or(unix_s);
            seen.insert(key, issue.since_unix_s);
        }
    }

    /// Shows the server's part of a snapshot.
    fn show_server(&self, node: &Node, frontend: &Frontend) -> Snapshot {
        let (server, clients) = (frontend.server(), frontend.clients());
        let (now, wall) = (node.tasks.now(), unix_now());
        let direct = clients.direct();
        let rdma = rdma::show_rdma(&self.rdma_addresses, direct);
        let mut metrics = metrics::show_gauges(server.gauges(), &self.limits);
        metrics.extend(metrics::show_counters(server.counters()));
        metrics.extend(metrics::show_transferred_by_smb_direct(&rdma.counters));
        metrics.extend(metrics::show_lent(clients.tcp()));
        let copies = sessions::Copies::of(clients.tcp());
        // Other nodes' opens of disks are shown elsewhere, and are not files.
        let sessions = server.sessions(now).into_iter().filter(|session| !session.is_nodes);
        let transferred = node.disks.transferred_bytes();
        Snapshot {
            sessions: sessions
                .map(|session| sessions::show_session(session, direct, &copies, wall))
                .collect(),
            shares: sessions::show_shares(server.share_figures()),
            clients: sessions::show_clients(server.client_figures()),
            performance: metrics::show_performance(&server, transferred, self.started, now),
            latencies: latencies::show_latencies(&server, &node.disks),
            rdma,
            metrics,
            ..Snapshot::default()
        }
    }
}

/// Shows a part of clients' opens, of which there may be very many: it takes the loop a few milliseconds.
pub(super) fn show_opens(frontend: &Frontend, now: Monotonic, after: Option<u64>, most: usize) -> OpensPage {
    let most = most.min(OPENS_MAX);
    let (opens, has_more) = frontend.server().opens_after(now, after, most, OPEN_PATHS_UNITS_MAX);
    OpensPage { files: opens.into_iter().map(sessions::show_open).collect(), has_more }
}

/// Shows the last protocol events of an RDMA connection.
pub(super) fn show_trace(frontend: &Frontend, connection: u64) -> Option<RdmaTrace> {
    rdma::show_events(frontend.clients().direct(), connection)
}

fn show_job(job: jobs::Job) -> Job {
    Job {
        id: job.id.0,
        server: None,
        kind: match job.kind {
            jobs::JobKind::Resync => JobKind::Resync,
            jobs::JobKind::Rebuild => JobKind::Rebuild,
            jobs::JobKind::Rebalance => JobKind::Rebalance,
            jobs::JobKind::Scrub => JobKind::Scrub,
            jobs::JobKind::Check => JobKind::Check,
            jobs::JobKind::Repair => JobKind::Repair,
            jobs::JobKind::Retirement => JobKind::Retirement,
            jobs::JobKind::AclPropagation => JobKind::AclPropagation,
            jobs::JobKind::Takeover => JobKind::Takeover,
        },
        target: job.target,
        state: match job.state {
            jobs::JobState::Running => JobState::Running,
            jobs::JobState::Suspended => JobState::Suspended,
            jobs::JobState::Completed => JobState::Completed,
            jobs::JobState::Failed => JobState::Failed,
            jobs::JobState::Cancelled => JobState::Cancelled,
        },
        done_bytes: job.done_bytes,
        total_bytes: job.total_bytes,
        started_unix_s: job.started_unix_s,
        ended_unix_s: job.ended_unix_s,
        remaining_s: job.remaining_s,
        message: job.message,
    }
}

/// Shows the files of a volume that lost data.
pub(super) fn show_damage(damage: damage_search::VolumeDamage) -> VolumeDamage {
    let range = |range: damage_search::DamagedRange| DamagedRange {
        offset_bytes: range.offset_bytes,
        length_bytes: range.length_bytes,
    };
    let file = |file: damage_search::DamagedFile| DamagedFile {
        path: file.path,
        ranges: file.ranges.into_iter().map(range).collect(),
    };
    VolumeDamage {
        files: damage.files.into_iter().map(file).collect(),
        other_bytes: damage.other_bytes,
        unreadable_pages: damage.unreadable_pages,
        truncated: damage.truncated,
    }
}

fn stopped_job(job: &jobs::Job) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: "job_stopped".to_owned(),
        target: format!("job {}", job.id),
        since_unix_s: job.started_unix_s,
        server: None,
        what: format!("a job on {} was stopped by the administrator", job.target),
        meaning: "The copies that the job would make are missing: the loss of another disk may lose data."
            .to_owned(),
        action: format!("Let it go on: `cenote job resume {}`.", job.id),
    }
}

/// Reports a configured RDMA device that is not served.
fn refused_device(reason: &str) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: "rdma_not_served".to_owned(),
        target: "SMB Direct".to_owned(),
        since_unix_s: SINCE_SEEN,
        server: None,
        what: format!("an RDMA device is not used: {reason}"),
        meaning: "Clients use SMB over TCP, or SMB Direct elsewhere; nothing is lost but speed.".to_owned(),
        action: "Mend it, or change smb.rdma_devices, and start the daemon again.".to_owned(),
    }
}
