//! Load on each share and volume, and by each client.

use crate::activity::Servers;
use api::activity::{ClientActivity, ShareActivity};
use api::latency::Percentiles;
use api::model::Volume;
use serde::Serialize;
use std::collections::BTreeMap;
use types::LatencyHistogram;

/// Clients that are shown by themselves: those with the most requests.
const CLIENTS_MAX: usize = 100;
/// The name of all others together.
const OTHERS: &str = "all others";

/// A share, a volume or a client, and its load in the last second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    pub name: String,
    /// Reads, writes and all other requests to open files; for a client, reads and writes.
    pub operations_per_s: f64,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    pub read_bytes_per_s: f64,
    pub written_bytes_per_s: f64,
    /// Times of reads and writes together.
    #[serde(flatten)]
    pub latency: Percentiles,
}

/// Requests to a share, volume or client, over all servers.
#[derive(Default)]
struct Asked {
    /// Reads, writes, bytes read and written.
    counts: [u64; 4],
    others: u64,
    times: LatencyHistogram,
}

impl Asked {
    fn add(&mut self, counts: [u64; 4], others: u64, times: &LatencyHistogram) {
        self.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
        self.others = self.others.saturating_add(others);
        self.times.add(times);
    }

    fn add_share(&mut self, share: &ShareActivity) {
        self.add(share.counts, share.others, &share.times);
    }

    fn part(&self, name: &str, interval_s: f64) -> Part {
        let [reads_per_s, writes_per_s, read_bytes_per_s, written_bytes_per_s] =
            self.counts.map(|count| count as f64 / interval_s);
        Part {
            name: name.to_owned(),
            operations_per_s: reads_per_s + writes_per_s + self.others as f64 / interval_s,
            reads_per_s,
            writes_per_s,
            read_bytes_per_s,
            written_bytes_per_s,
            latency: Percentiles::between(&LatencyHistogram::default(), &self.times),
        }
    }
}

/// Shares that somebody has connected to since the servers started.
pub fn shares(servers: &Servers) -> Vec<Part> {
    let mut asked: BTreeMap<&str, Asked> = BTreeMap::new();
    for share in servers.shares() {
        asked.entry(&share.name).or_default().add_share(share);
    }
    let interval_s = servers.interval_s();
    asked.into_iter().map(|(name, asked)| asked.part(name, interval_s)).collect()
}

/// The same by volume.
pub fn volumes(volumes: &[Volume], servers: &Servers) -> Vec<Part> {
    let interval_s = servers.interval_s();
    let part = |volume: &Volume| {
        let mut own = servers.shares().filter(|share| share.volume == volume.id).peekable();
        own.peek()?;
        let mut asked = Asked::default();
        own.for_each(|share| asked.add_share(share));
        Some(asked.part(&volume.name, interval_s))
    };
    volumes.iter().filter_map(part).collect()
}

/// Sessions by address, those with the most requests first; behind them all further clients as one.
pub fn clients(servers: &Servers) -> Vec<Part> {
    let (mut apart, mut others): (BTreeMap<&str, Asked>, Asked) = Default::default();
    let mut other_sessions = 0_u64;
    for ClientActivity { client, sessions, counts, times } in servers.clients() {
        match client {
            Some(name) => apart.entry(name).or_default().add(*counts, 0, times),
            None => {
                other_sessions = other_sessions.saturating_add(*sessions);
                others.add(*counts, 0, times);
            }
        }
    }
    let asked = |asked: &Asked| asked.counts[0].saturating_add(asked.counts[1]);
    let mut apart: Vec<(&str, Asked)> = apart.into_iter().collect();
    apart.sort_by_key(|(_, one)| std::cmp::Reverse(asked(one)));
    let further = apart.split_off(apart.len().min(CLIENTS_MAX));
    let are_there_others = other_sessions > 0 || !further.is_empty();
    further.into_iter().for_each(|(_, one)| others.add(one.counts, 0, &one.times));
    let interval_s = servers.interval_s();
    let mut parts: Vec<Part> = apart.into_iter().map(|(name, one)| one.part(name, interval_s)).collect();
    parts.extend(are_there_others.then(|| others.part(OTHERS, interval_s)));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::tests::servers;
    use crate::clients::tests::session;
    use crate::next_failure::tests::volume;
    use crate::rates::Totals;
    use api::model::{Performance, Session, ShareFigures, Snapshot};
    use std::time::Duration;

    fn look(uptime_us: u64, reads: u64) -> Totals {
        let mut latency = LatencyHistogram::default();
        (0..reads).for_each(|_| latency.record(Duration::from_micros(80)));
        let share = |name: &str| ShareFigures {
            name: name.into(),
            volume: volume("data", 2, 2).id,
            reads,
            writes: 0,
            others: 4 * reads,
            read_bytes: reads * 4096,
            written_bytes: 0,
            latency,
        };
        let sessions = [1, 2].map(|id| Session { id, reads, read_bytes: reads * 4096, ..session("TCP") });
        Totals::of(&Snapshot {
            performance: Performance { uptime_us, ..Performance::default() },
            shares: vec![share("one"), share("two")],
            sessions: sessions.into(),
            ..Snapshot::default()
        })
    }

    fn of_sessions(sessions: Vec<Session>) -> Snapshot {
        Snapshot { sessions, ..Snapshot::default() }
    }

    #[test]
    fn a_volumes_figures_are_the_sum_of_its_shares() {
        let (before, now) = (look(1_000_000, 0), look(3_000_000, 100));
        let snapshot = Snapshot::default();
        let servers = servers(&[("node-1", &snapshot, &before, &now)]);
        let shares = shares(&servers);
        assert_eq!(shares.iter().map(|part| part.reads_per_s).collect::<Vec<_>>(), [50.0, 50.0]);
        let of_volumes = volumes(&[volume("data", 2, 2), volume("else", 3, 3)], &servers);
        assert_eq!(of_volumes.len(), 1);
        assert_eq!((of_volumes[0].operations_per_s, of_volumes[0].latency.count), (500.0, 200));
        assert_eq!(of_volumes[0].read_bytes_per_s, 409_600.0);
    }

    fn clients_of(counts: &[(Option<&str>, u64)]) -> BTreeMap<Option<String>, LatencyHistogram> {
        let timed = |(client, count): &(Option<&str>, u64)| {
            let mut latency = LatencyHistogram::default();
            (0..*count).for_each(|_| latency.record(Duration::from_micros(80)));
            (client.map(str::to_owned), latency)
        };
        counts.iter().map(timed).collect()
    }

    #[test]
    fn sessions_of_one_address_are_one_client_with_its_times() {
        let look = |uptime_us: u64, reads: u64| {
            let mut totals = look(uptime_us, reads);
            totals.clients = clients_of(&[(Some("10.0.0.9"), reads)]);
            totals
        };
        let (before, now) = (look(1_000_000, 10), look(2_000_000, 40));
        let snapshot = of_sessions([1, 2].map(|id| Session { id, ..session("TCP") }).into());
        let found = clients(&servers(&[("node-1", &snapshot, &before, &now)]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].reads_per_s), ("10.0.0.9", 60.0));
        assert_eq!(found[0].latency.count, 30);
        let two = servers(&[("node-1", &snapshot, &before, &now), ("node-2", &snapshot, &before, &now)]);
        let of_both = clients(&two);
        assert_eq!((of_both.len(), of_both[0].reads_per_s, of_both[0].latency.count), (1, 120.0, 60));
        assert!((50.0..=100.0).contains(&found[0].latency.p99_us.unwrap()), "{found:?}");
    }

    #[test]
    fn clients_without_a_place_and_those_beyond_the_busiest_are_one() {
        let names: Vec<String> = (0..150).map(|number| format!("10.0.1.{number}")).collect();
        let totals = |uptime_us: u64, others: u64, skipped: usize| {
            let apart = names.iter().skip(skipped).map(|name| (Some(name.as_str()), uptime_us / 500_000));
            let counts: Vec<_> = apart.chain([(None, others)]).collect();
            let sessions = (0..=names.len() as u64).map(|id| (id, [id * (uptime_us / 1_000_000), 0, 0, 0]));
            let mut totals = look(uptime_us, 0);
            (totals.clients, totals.sessions) = (clients_of(&counts), sessions.collect());
            totals
        };
        // One client lost its place: its earlier requests count with the others', and were not made in this
        // second.
        let (before, now) = (totals(1_000_000, 5, 0), totals(2_000_000, 5 + 2 + 7, 1));
        let sessions: Vec<Session> = (0..=names.len())
            .map(|at| {
                let address = names.get(at).map_or("10.0.2.1", String::as_str);
                Session { id: at as u64, client: vec![format!("{address}:50000")], ..session("TCP") }
            })
            .collect();
        let snapshot = of_sessions(sessions);
        let found = clients(&servers(&[("node-1", &snapshot, &before, &now)]));
        assert_eq!(found.len(), CLIENTS_MAX + 1);
        assert_eq!((found[0].name.as_str(), found[0].reads_per_s), ("10.0.1.149", 149.0));
        assert_eq!((found[0].latency.count, found[CLIENTS_MAX].name.as_str()), (2, OTHERS));
        // 49 beyond the busiest with two each, and the seven.
        assert_eq!(found[CLIENTS_MAX].latency.count, 49 * 2 + 7);
        assert_eq!(found[CLIENTS_MAX].reads_per_s, (1..50).sum::<u64>() as f64 + 150.0);
    }
}
