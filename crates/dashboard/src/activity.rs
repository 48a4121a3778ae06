//! The work of each server of the cluster in its last second, and of all together.
//!
//! Promises: counts are added, and percentiles made of all; unreported figures are left out, and their
//! server does not count.

use crate::rates::{DiskTotals, Sample, ShareTotals, Totals};
use api::activity::{Activity, ClientActivity, DiskActivity, SessionActivity, ShareActivity};
use api::latency::Percentiles;
use api::model::{Performance, Session, Snapshot};
use api::printed::PerformanceSample;
use api::seconds::ServerActivity;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use types::{DiskId, LatencyHistogram, PeerHost};

/// Operations below which a disk's speed is unknown.
const MEASURED_MIN: u64 = 10;

/// The work of servers, by name.
#[derive(Debug, Clone, Default)]
pub struct Servers(pub BTreeMap<String, ServerActivity>);

impl Servers {
    /// Servers that report the activity of their second.
    fn told(&self) -> impl Iterator<Item = (&ServerActivity, &Activity)> {
        self.0.values().filter_map(|server| Some((server, server.activity.as_ref()?)))
    }

    /// Servers that count in the sums.
    pub fn names(&self) -> Vec<&str> {
        let told = self.0.iter().filter(|(_, server)| server.activity.is_some());
        told.map(|(name, _)| name.as_str()).collect()
    }

    /// One by its name, in any case of its letters.
    pub fn of(&self, name: &str) -> Option<(&ServerActivity, &Activity)> {
        let (_, server) = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some((server, server.activity.as_ref()?))
    }

    /// Totals of all at both ends of the second.
    pub fn performance(&self) -> (Performance, Performance) {
        let mut sum = (Performance::default(), Performance::default());
        for (server, _) in self.told() {
            sum.0.add(&server.second.before);
            sum.1.add(&server.second.after);
        }
        sum
    }

    /// All servers read when a second begins: their seconds are of one length, up to negligible differences.
    pub fn interval_s(&self) -> f64 {
        let (before, after) = self.performance();
        PerformanceSample::between(&before, &after).interval_s
    }

    /// Adds up the work of all servers. `own`: of this server, whose machine is shown.
    pub fn sample(&self, own: &Sample) -> Sample {
        let (before, after) = self.performance();
        let (mut requests, mut disk_operations) = ([LatencyHistogram::default(); 3], [0_u64; 3]);
        let (mut rdma_bytes, mut sessions) = (0_u64, 0_u64);
        for (_, activity) in self.told() {
            requests.iter_mut().zip(&activity.requests).for_each(|(sum, times)| sum.add(times));
            for disk in &activity.disks {
                let counts = disk_operations.iter_mut().zip(disk.operations);
                counts.for_each(|(sum, count)| *sum = sum.saturating_add(count));
            }
            rdma_bytes = rdma_bytes.saturating_add(activity.rdma_bytes);
            sessions = sessions.saturating_add(activity.session_count);
        }
        let nothing = Totals::default();
        let before = Totals { performance: before, ..nothing.clone() };
        let after = Totals {
            performance: after,
            requests,
            disk_operations,
            rdma_bytes,
            session_count: usize::try_from(sessions).unwrap_or(usize::MAX),
            ..nothing
        };
        Sample {
            machine: own.machine,
            allocated_bytes: own.allocated_bytes,
            ..Sample::between(&before, &after)
        }
    }

    pub fn shares(&self) -> impl Iterator<Item = &ShareActivity> {
        self.told().flat_map(|(_, activity)| &activity.shares)
    }

    pub fn clients(&self) -> impl Iterator<Item = &ClientActivity> {
        self.told().flat_map(|(_, activity)| &activity.clients)
    }

    pub fn disks(&self) -> BTreeMap<DiskId, &DiskActivity> {
        self.told().flat_map(|(_, activity)| &activity.disks).map(|disk| (disk.id, disk)).collect()
    }
}

/// Computes this server's work from one reading to the next. `earlier`: the reading of some seconds
/// ago, for the times of disks; `serials`: of disks by path.
pub fn of_own(
    snapshot: &Snapshot,
    serials: &BTreeMap<String, String>,
    before: &Totals,
    earlier: &Totals,
    now: &Totals,
) -> Activity {
    let disk = |disk: &api::model::Disk| {
        let serial = serials.get(&disk.path).cloned();
        disk_activity(disk.id, serial, before, earlier, now)
    };
    // This server has no counters of others' disks.
    let own = snapshot.disks.iter().filter(|disk| disk.block_bytes.is_some());
    Activity {
        requests: std::array::from_fn(|kind| now.requests[kind].since(&before.requests[kind])),
        rdma_bytes: now.rdma_bytes.saturating_sub(before.rdma_bytes),
        session_count: now.session_count as u64,
        shares: shares(before, now),
        clients: clients(snapshot, before, now),
        sessions: sessions(before, now),
        disks: own.map(disk).collect(),
    }
}

fn grown<const N: usize>(before: [u64; N], now: [u64; N]) -> [u64; N] {
    std::array::from_fn(|at| now[at].saturating_sub(before[at]))
}

fn shares(before: &Totals, now: &Totals) -> Vec<ShareActivity> {
    let share = |((name, volume), totals): (&(String, types::VolumeId), &ShareTotals)| {
        let then = before.shares.get(&(name.clone(), *volume)).copied().unwrap_or_default();
        ShareActivity {
            name: name.clone(),
            volume: *volume,
            counts: grown(then.counts, totals.counts),
            others: totals.others.saturating_sub(then.others),
            times: totals.times.since(&then.times),
        }
    };
    now.shares.iter().map(share).collect()
}

fn sessions(before: &Totals, now: &Totals) -> Vec<SessionActivity> {
    let rate = |id: &u64| SessionActivity { id: *id, counts: now.session_counts(before, *id) };
    now.sessions.keys().map(rate).filter(|session| session.counts != [0; 4]).collect()
}

/// Sessions of one address together; those of clients without a place of their own as one.
fn clients(snapshot: &Snapshot, before: &Totals, now: &Totals) -> Vec<ClientActivity> {
    let none =
        |client| ClientActivity { client, sessions: 0, counts: [0; 4], times: LatencyHistogram::default() };
    let mut others = ClientActivity { times: look_at_others(before, now), ..none(None) };
    let mut apart: BTreeMap<String, ClientActivity> = BTreeMap::new();
    for session in &snapshot.sessions {
        let name = client_of(session);
        let of = |totals: &Totals| totals.clients.get(&Some(name.clone())).copied();
        let client = match of(now) {
            None => &mut others,
            Some(after) => apart.entry(name.clone()).or_insert_with(|| ClientActivity {
                times: after.since(&of(before).unwrap_or_default()),
                ..none(Some(name.clone()))
            }),
        };
        client.sessions += 1;
        let counts = now.session_counts(before, session.id);
        client.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }
    apart.into_values().chain([others]).collect()
}

fn disk_activity(
    id: DiskId,
    serial: Option<String>,
    before: &Totals,
    earlier: &Totals,
    now: &Totals,
) -> DiskActivity {
    let of = |totals: &Totals| totals.disks.get(&id).copied().unwrap_or_default();
    let (last, earlier, now) = (of(before), of(earlier), of(now));
    DiskActivity {
        id,
        serial,
        operations: grown(last.operations, now.operations),
        bytes: grown(last.bytes, now.bytes),
        read: recent(&earlier, &now, 0),
        write: recent(&earlier, &now, 1),
        flush: recent(&earlier, &now, 2),
        typical_us: typical_us(&earlier, &now),
    }
}

/// Times between two readings, or since the start if there were no requests meanwhile.
fn recent(before: &DiskTotals, now: &DiskTotals, kind: usize) -> Percentiles {
    let lately = Percentiles::between(&before.times[kind], &now.times[kind]);
    match lately.count {
        0 => Percentiles::between(&LatencyHistogram::default(), &now.times[kind]),
        _ => lately,
    }
}

/// The server's name for the client of a session.
fn client_of(session: &Session) -> String {
    let first = session.client.first().map_or("", String::as_str);
    let host = first.parse::<SocketAddr>().map(|address| PeerHost::from(address.ip()).to_string());
    host.unwrap_or_else(|_| first.to_owned())
}

/// Times of clients without a place of their own. Those that had one and have none now were counted there before.
fn look_at_others(before: &Totals, now: &Totals) -> LatencyHistogram {
    let of = |totals: &Totals| totals.clients.get(&None).copied().unwrap_or_default();
    let mut then = of(before);
    let gone = before.clients.iter().filter(|(name, _)| name.is_some() && !now.clients.contains_key(*name));
    gone.for_each(|(_, latency)| then.add(latency));
    of(now).since(&then)
}

/// The median time of a disk's writes between two readings, or of its reads if there are no writes.
/// `None`: they are too few.
fn typical_us(before: &DiskTotals, now: &DiskTotals) -> Option<f64> {
    [1, 0].into_iter().find_map(|kind| {
        let lately = Percentiles::between(&before.times[kind], &now.times[kind]);
        lately.p50_us.filter(|_| lately.count >= MEASURED_MIN)
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use api::seconds::LastSecond;
    use std::time::Duration;

    /// Servers by name, from readings of each: the snapshot, and the totals before and now.
    pub fn servers(looks: &[(&str, &Snapshot, &Totals, &Totals)]) -> Servers {
        let server = |(name, snapshot, before, now): &(&str, &Snapshot, &Totals, &Totals)| {
            let second = LastSecond { before: before.performance, after: now.performance, machine: None };
            let activity = Some(of_own(snapshot, &BTreeMap::new(), before, before, now));
            ((*name).to_owned(), ServerActivity { second, activity })
        };
        Servers(looks.iter().map(server).collect())
    }

    #[test]
    fn what_servers_did_is_added_and_percentiles_are_of_all_times() {
        let activity = |us: u64, count: u64| {
            let mut times = LatencyHistogram::default();
            (0..count).for_each(|_| times.record(Duration::from_micros(us)));
            Activity {
                requests: [times, LatencyHistogram::default(), times],
                session_count: 2,
                ..Activity::default()
            }
        };
        let second = |operations: u64, uptime_us: u64| {
            let mut second = LastSecond::default();
            second.after.read.operations = operations;
            second.before.uptime_us = uptime_us;
            second.after.uptime_us = uptime_us + 1_000_000;
            second
        };
        let mut all = Servers::default();
        let server = |second, activity| ServerActivity { second, activity };
        all.0.insert("node-1".into(), server(second(90, 5), Some(activity(80, 90))));
        all.0.insert("node-2".into(), server(second(10, 900), Some(activity(20_000, 10))));
        all.0.insert("node-3".into(), server(second(700, 7), None));
        let sample = all.sample(&Sample::default());
        assert_eq!((sample.read.operations_per_s, sample.sessions), (100.0, 4));
        let latency = sample.read.latency;
        assert_eq!(latency.count, 100);
        assert!(latency.p50_us.unwrap() <= 100.0 && latency.p99_us.unwrap() > 10_000.0, "{latency:?}");
        assert_eq!(all.names(), ["node-1", "node-2"], "one that does not tell is not counted");
        assert!(all.of("NODE-1").is_some() && all.of("node-3").is_none());
    }

    #[test]
    fn what_a_server_says_that_it_has_counted_ends_in_no_panic() {
        let mut times = serde_json::to_value(LatencyHistogram::default()).unwrap();
        times["counts"] = serde_json::json!(vec![u64::MAX; 20]);
        times["sum_ns"] = serde_json::json!(u64::MAX);
        let times: LatencyHistogram = serde_json::from_value(times).unwrap();
        let activity = Activity { requests: [times; 3], session_count: u64::MAX, ..Activity::default() };
        let mut all = Servers::default();
        for name in ["a", "b"] {
            let server = ServerActivity { activity: Some(activity.clone()), ..ServerActivity::default() };
            all.0.insert(name.into(), server);
        }
        assert!(all.sample(&Sample::default()).read.latency.p50_us.is_some());
    }
}
