//! What is asked of each share and volume, and by each client.

use crate::latency::Percentiles;
use crate::rates::{ShareTotals, Totals};
use api::model::{Session, Volume};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Clients that are shown: those that ask most.
const CLIENTS_MAX: usize = 100;

/// A share, a volume or a client, and what happened in the last second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    pub name: String,
    /// Reads, writes and all else that is asked of an open file; of a client, reads and writes.
    pub operations_per_s: f64,
    pub reads_per_s: f64,
    pub writes_per_s: f64,
    pub read_bytes_per_s: f64,
    pub written_bytes_per_s: f64,
    /// Of reads and writes together; not known of clients.
    #[serde(flatten)]
    pub latency: Percentiles,
}

impl Part {
    fn of_totals(name: &str, looks: &[(ShareTotals, ShareTotals)], interval_s: f64) -> Self {
        let grown = |of: fn(&ShareTotals) -> u64| {
            let sum: u64 = looks.iter().map(|(before, now)| of(now).saturating_sub(of(before))).sum();
            sum as f64 / interval_s
        };
        let (reads_per_s, writes_per_s) =
            (grown(|totals| totals.counts[0]), grown(|totals| totals.counts[1]));
        let times: Vec<_> = looks.iter().map(|(before, now)| (before.times, now.times)).collect();
        Self {
            name: name.to_owned(),
            operations_per_s: reads_per_s + writes_per_s + grown(|totals| totals.others),
            reads_per_s,
            writes_per_s,
            read_bytes_per_s: grown(|totals| totals.counts[2]),
            written_bytes_per_s: grown(|totals| totals.counts[3]),
            latency: Percentiles::of_all(&times),
        }
    }
}

/// Shares that somebody has connected to since the server started.
pub fn shares(before: &Totals, now: &Totals) -> Vec<Part> {
    let interval_s = now.interval_s(before);
    let mut looks: BTreeMap<&str, Vec<(ShareTotals, ShareTotals)>> = BTreeMap::new();
    for (key, totals) in &now.shares {
        let then = before.shares.get(key).copied().unwrap_or_default();
        looks.entry(&key.0).or_default().push((then, *totals));
    }
    looks.into_iter().map(|(name, looks)| Part::of_totals(name, &looks, interval_s)).collect()
}

/// The same by volume.
pub fn volumes(volumes: &[Volume], before: &Totals, now: &Totals) -> Vec<Part> {
    let interval_s = now.interval_s(before);
    let part = |volume: &Volume| {
        let own = now.shares.iter().filter(|((_, id), _)| *id == volume.id);
        let looks: Vec<_> =
            own.map(|(key, totals)| (before.shares.get(key).copied().unwrap_or_default(), *totals)).collect();
        (!looks.is_empty()).then(|| Part::of_totals(&volume.name, &looks, interval_s))
    };
    volumes.iter().filter_map(part).collect()
}

/// Sessions of one address together.
pub fn clients(sessions: &[Session], before: &Totals, now: &Totals) -> Vec<Part> {
    let mut clients: BTreeMap<String, [f64; 4]> = BTreeMap::new();
    for session in sessions {
        let first = session.client.first().map_or("", String::as_str);
        let name =
            first.parse::<SocketAddr>().map_or_else(|_| first.to_owned(), |address| address.ip().to_string());
        let sums = clients.entry(name).or_default();
        for (sum, rate) in sums.iter_mut().zip(now.session_rate(before, session.id)) {
            *sum += rate;
        }
    }
    let part = |(name, rates): (String, [f64; 4])| Part {
        name,
        operations_per_s: rates[0] + rates[1],
        reads_per_s: rates[0],
        writes_per_s: rates[1],
        read_bytes_per_s: rates[2],
        written_bytes_per_s: rates[3],
        latency: Percentiles::default(),
    };
    let mut parts: Vec<Part> = clients.into_iter().map(part).collect();
    parts.sort_by(|a, b| b.operations_per_s.total_cmp(&a.operations_per_s));
    parts.truncate(CLIENTS_MAX);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::session;
    use crate::next_failure::tests::volume;
    use api::model::{Performance, ShareFigures, Snapshot};
    use std::time::Duration;
    use types::LatencyHistogram;

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

    #[test]
    fn a_volumes_figures_are_the_sum_of_its_shares() {
        let (before, now) = (look(1_000_000, 0), look(3_000_000, 100));
        let shares = shares(&before, &now);
        assert_eq!(shares.iter().map(|part| part.reads_per_s).collect::<Vec<_>>(), [50.0, 50.0]);
        let of_volumes = volumes(&[volume("data", 2, 2), volume("else", 3, 3)], &before, &now);
        assert_eq!(of_volumes.len(), 1);
        assert_eq!((of_volumes[0].operations_per_s, of_volumes[0].latency.count), (500.0, 200));
        assert_eq!(of_volumes[0].read_bytes_per_s, 409_600.0);
    }

    #[test]
    fn sessions_of_one_address_are_one_client() {
        let (before, now) = (look(1_000_000, 0), look(2_000_000, 30));
        let sessions = [1, 2].map(|id| Session { id, ..session("TCP") });
        let found = clients(&sessions, &before, &now);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].reads_per_s), ("10.0.0.9", 60.0));
    }
}
