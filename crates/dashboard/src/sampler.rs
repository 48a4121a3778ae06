//! Reads the server's counters when a second begins: for the history always, for the streams and the
//! cluster while somebody watches.
//!
//! Promises: slow look-ups, such as the cluster's records and the kernel's list of interfaces, do not
//! delay the next reading.

use crate::activity::of_own;
use crate::disks::node_of;
use crate::history::{Point, Span};
use crate::live::{Live, Looked, Silent};
use crate::machine::MachineTotals;
use crate::others::{NodeFigures, Others};
use crate::rates::{Sample, Totals};
use crate::routes::Shared;
use crate::slow::Slow;
use api::activity::Activity;
use api::cluster::{ClusterView, NodeStatus};
use api::model::{Pool, Rdma, Snapshot};
use api::seconds::{LastSecond, ServerActivity};
use api::{Whole, whole};
use records::clock::unix_now_s;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Least time between two readings, also if the wall clock jumps.
const LOOKS_APART_MIN: Duration = Duration::from_millis(500);
/// A data plane that takes longer is shown as one that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Age from which all servers' view is no longer shown, but this server's own.
const WHOLE_AGE_MAX: Duration = Duration::from_secs(5);
/// Pause before the allocation of pools is asked for again, if it was unknown.
const POOLS_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Period that times of disks cover.
const DISK_TIMES_OF: Duration = Duration::from_secs(10);

/// State from one reading to the next.
struct Looks {
    last: Totals,
    /// Readings of some seconds ago, for the times of disks, and the next one of that kind.
    earlier: [(Instant, Totals); 2],
    /// At the last point of each span.
    points: [(u64, Totals); 3],
    cluster: Slow<ClusterView>,
    /// RDMA of this server, if it is in no cluster, or if the others do not answer in time.
    rdma: Slow<Rdma>,
    others: Others,
    serials: Serials,
    /// The allocation of each pool is being noted.
    pools: Slow<()>,
    /// The view of all servers of the cluster together.
    whole: Slow<(Instant, Whole)>,
}

/// Serial numbers of disks by path, looked up again when there are other disks.
#[derive(Default)]
struct Serials {
    of: Vec<String>,
    found: Option<Slow<BTreeMap<String, String>>>,
}

impl Serials {
    fn of(&mut self, snapshot: &Snapshot) -> BTreeMap<String, String> {
        // Only disks of this server have a block size.
        let local = snapshot.disks.iter().filter(|disk| disk.block_bytes.is_some());
        let paths: Vec<String> = local.map(|disk| disk.path.clone()).collect();
        if self.of != paths {
            let mut slow = Slow::new();
            self.of.clone_from(&paths);
            slow.refresh(async move {
                let look = move || {
                    paths
                        .into_iter()
                        .filter_map(|path| Some((path.clone(), machine::locate::serial_of(&path)?)))
                };
                tokio::task::spawn_blocking(move || look().collect()).await.ok()
            });
            self.found = Some(slow);
        }
        self.found.as_ref().and_then(Slow::last).unwrap_or_default()
    }
}

impl Looks {
    /// Forgets everything that is looked up only for watchers: nobody watches, and it would be old for the
    /// next one.
    fn forget_slow(&mut self) {
        (self.cluster, self.rdma, self.others) = (Slow::new(), Slow::new(), Others::default());
        self.whole = Slow::new();
    }
}

/// Until the task is dropped.
pub async fn watch(shared: Arc<Shared>) {
    let mut looks = None;
    loop {
        tokio::time::sleep(until_next_look(unix_ms())).await;
        // Without clients' opens: there may be a great many.
        let look = tokio::time::timeout(PATIENCE, shared.management.figures()).await;
        let why = match look {
            Ok(Ok(mut snapshot)) => {
                // Other servers of the cluster are no clients.
                snapshot.sessions.retain(|session| !session.is_of_server());
                shared.management.seconds().note(snapshot.performance, Instant::now());
                note(&shared, &mut looks, &snapshot);
                continue;
            }
            Ok(Err(error)) => error.message,
            Err(_) => "the data plane does not answer".to_owned(),
        };
        let silent = Silent {
            at_unix_ms: unix_ms(),
            server: &shared.server,
            version: env!("CARGO_PKG_VERSION"),
            error: &why,
        };
        publish(&shared, &silent);
    }
}

/// All servers read their counters when a second of the wall clock begins, so that their figures of one
/// second can be added up.
fn until_next_look(unix_ms: u64) -> Duration {
    let left = Duration::from_millis(1000 - unix_ms % 1000);
    if left < LOOKS_APART_MIN { left + Duration::from_secs(1) } else { left }
}

fn note(shared: &Arc<Shared>, looks: &mut Option<Looks>, snapshot: &Snapshot) {
    let now_s = unix_now_s();
    let mut now = Totals::of(snapshot);
    now.machine = MachineTotals::read();
    let Some(looks) = looks else {
        let instant = Instant::now();
        *looks = Some(Looks {
            last: now.clone(),
            earlier: [(instant, now.clone()), (instant, now.clone())],
            points: Span::ALL.map(|span| (now_s / span.step_s(), now.clone())),
            cluster: Slow::new(),
            rdma: Slow::new(),
            others: Others::default(),
            serials: Serials::default(),
            pools: Slow::new(),
            whole: Slow::new(),
        });
        return;
    };
    let sample = Sample::between(&looks.last, &now);
    shared.management.seconds().note_machine(sample.machine);
    if shared.pools.is_due(now_s) {
        looks.pools.refresh(note_pools(shared.clone(), snapshot.pools.clone(), now_s));
    }
    for (span, (number, since)) in Span::ALL.into_iter().zip(&mut looks.points) {
        let current = now_s / span.step_s();
        if current != *number {
            let point = Point::new(current * span.step_s(), &Sample::between(since, &now));
            shared.keeper.put(span, point);
            (*number, *since) = (current, now.clone());
        }
    }
    let seconds = shared.management.seconds();
    let (is_read, is_asked) = (shared.streams.are_read(), seconds.is_activity_wanted(Instant::now()));
    if is_read || is_asked {
        let serials = looks.serials.of(snapshot);
        let activity = of_own(snapshot, &serials, &looks.last, &looks.earlier[0].1, &now);
        if is_asked {
            seconds.note_activity(activity.clone(), Instant::now());
        }
        if is_read {
            show(shared, looks, snapshot, &sample, activity);
        }
    }
    if !is_read {
        looks.forget_slow();
    }
    let [oldest, next] = &mut looks.earlier;
    if next.0.elapsed() >= DISK_TIMES_OF {
        *oldest = std::mem::replace(next, (Instant::now(), now.clone()));
    }
    looks.last = now;
}

/// Notes the allocation of each pool, which in a cluster all servers report together. Notes nothing for
/// pools that one of them does not report.
async fn note_pools(shared: Arc<Shared>, own: Vec<Pool>, now_s: u64) -> Option<()> {
    let pools = whole(&shared.management).await.map_or(own, |whole| whole.pools);
    let known = move || pools.into_iter().filter_map(|pool| Some((pool.id, pool.allocated_bytes?)));
    // The file may be on a file system that is slow.
    tokio::task::spawn_blocking(move || shared.pools.note(now_s, known())).await.ok()?;
    // Not each second, if there is nothing to note.
    tokio::time::sleep(POOLS_AGAIN_AFTER).await;
    Some(())
}

fn show(shared: &Shared, looks: &mut Looks, snapshot: &Snapshot, sample: &Sample, activity: Activity) {
    let management = shared.management.clone();
    looks.cluster.refresh(async move { management.cluster().known().await.ok() });
    let management = shared.management.clone();
    looks.rdma.refresh(async move { management.rdma().await.ok() });
    let rdma = looks.rdma.last().unwrap_or_default();
    let mut rdma = Rdma { state: snapshot.rdma.clone(), ..rdma };
    let mut view = looks.cluster.last();
    if let Some(view) = &mut view {
        overlay(view, &shared.server, |node| shared.management.cluster().is_up(node));
    }
    let up = view.iter().flat_map(|view| &view.nodes).filter(|node| node.state != NodeStatus::Down);
    let names = up.map(|node| node.name.as_str()).filter(|name| !name.eq_ignore_ascii_case(&shared.server));
    looks.others.look(&shared.management, names);
    let (mut nodes, mut servers) = looks.others.figures(Instant::now());
    nodes.insert(shared.server.clone(), NodeFigures::new(&snapshot.performance, sample));
    let second = LastSecond { before: looks.last.performance, after: snapshot.performance, machine: None };
    servers.0.insert(shared.server.clone(), ServerActivity { second, activity: Some(activity) });
    let now_s = unix_now_s();
    let management = shared.management.clone();
    looks.whole.refresh(async move { Some((Instant::now(), whole(&management).await?)) });
    let mut shown = snapshot.clone();
    if let Some((_, found)) = looks.whole.last().filter(|(at, _)| at.elapsed() < WHOLE_AGE_MAX) {
        let Whole { health, disks, pools, volumes, jobs, sessions, rdma: of_all, unanswered } = found;
        (shown.health, shown.disks, shown.pools) = (health, disks, pools);
        (shown.volumes, shown.jobs, shown.sessions) = (volumes, jobs, sessions);
        shown.health.unanswered = unanswered;
        (shown.rdma, rdma) = (of_all.state.clone(), of_all);
        forget_dead(&mut shown, snapshot, view.as_ref());
    }
    let live = Live::new(Looked {
        at_unix_ms: unix_ms(),
        server: &shared.server,
        snapshot: &shown,
        rdma: &rdma,
        sample,
        servers: &servers,
        cluster: view.as_ref(),
        nodes,
        fleet: shared.fleets.running(Instant::now()),
        health: shared.mutes.lines(&shown.health, now_s),
    });
    publish(shared, &live);
}

/// Replaces reports of dead servers about their disks and volumes by this server's own verdict.
fn forget_dead(shown: &mut Snapshot, own: &Snapshot, view: Option<&ClusterView>) {
    let nodes = || view.iter().flat_map(|view| &view.nodes).filter(|node| node.state == NodeStatus::Down);
    let is_dead = |name: &str| nodes().any(|node| node.name.eq_ignore_ascii_case(name));
    for disk in &mut shown.disks {
        let server = disk.server.as_deref().unwrap_or_else(|| node_of(&disk.fault_domain));
        if is_dead(server)
            && let Some(known) = own.disks.iter().find(|known| known.id == disk.id)
        {
            *disk = known.clone();
        }
    }
    for volume in &mut shown.volumes {
        if volume.owner.as_deref().is_some_and(is_dead)
            && let Some(known) = own.volumes.iter().find(|known| known.id == volume.id)
        {
            *volume = known.clone();
        }
    }
}

/// Corrects the states of servers by heartbeats, which know at once who lives; the records take a while
/// if a server that keeps them has just died.
fn overlay(view: &mut ClusterView, own: &str, is_up: impl Fn(types::NodeId) -> Option<bool>) {
    for node in view.nodes.iter_mut().filter(|node| !node.name.eq_ignore_ascii_case(own)) {
        match (is_up(node.id), node.state) {
            (Some(false), _) => node.state = NodeStatus::Down,
            (Some(true), NodeStatus::Down) => node.state = NodeStatus::Up,
            _ => {}
        }
    }
}

fn publish(shared: &Shared, event: &impl serde::Serialize) {
    match serde_json::to_string(event) {
        Ok(json) => shared.streams.publish(&json, Instant::now()),
        Err(error) => tracing::error!(%error, "what the dashboard shows is no JSON"),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_at_whole_seconds_and_never_twice_at_one() {
        let after = |unix_ms| until_next_look(unix_ms).as_millis();
        assert_eq!([5000, 5003, 5500, 5501, 5999].map(after), [1000, 997, 500, 1499, 1001]);
    }
}
