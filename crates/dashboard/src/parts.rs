//! What is asked of each share and volume, and by each client.

use crate::clients::is_at;
use crate::rates::{ShareTotals, Totals};
use api::latency::Percentiles;
use api::model::{Session, Volume};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use types::{LatencyHistogram, PeerHost};

/// Clients that are shown by themselves: those that ask most.
const CLIENTS_MAX: usize = 100;
/// The name of all others together.
const OTHERS: &str = "all others";

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
    /// Of reads and writes together.
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

/// Two looks at how long requests took.
type Look = (LatencyHistogram, LatencyHistogram);

/// A client, or several that are shown as one.
#[derive(Default)]
struct Client {
    sessions: usize,
    /// Reads, writes, bytes read and written a second.
    rates: [f64; 4],
    looks: Vec<Look>,
}

impl Client {
    fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.rates.iter_mut().zip(other.rates).for_each(|(sum, rate)| *sum += rate);
        self.looks.extend(other.looks);
    }

    fn operations_per_s(&self) -> f64 {
        self.rates[0] + self.rates[1]
    }

    fn part(&self, name: String) -> Part {
        let [reads_per_s, writes_per_s, read_bytes_per_s, written_bytes_per_s] = self.rates;
        Part {
            name,
            operations_per_s: self.operations_per_s(),
            reads_per_s,
            writes_per_s,
            read_bytes_per_s,
            written_bytes_per_s,
            latency: Percentiles::of_all(&self.looks),
        }
    }
}

/// Sessions of one address together, those that ask most first; behind them all further clients as one.
pub fn clients(sessions: &[Session], own: &str, before: &Totals, now: &Totals) -> Vec<Part> {
    let mut apart: BTreeMap<String, Client> = BTreeMap::new();
    let mut others = Client { looks: vec![look_at_others(before, now)], ..Client::default() };
    // Only of its own sessions a server knows times.
    for session in sessions.iter().filter(|session| is_at(session, own)) {
        let name = client_of(session);
        let of = |totals: &Totals| totals.clients.get(&Some(name.clone())).copied();
        let rates = now.session_rate(before, session.id);
        let Some(after) = of(now) else {
            others.add(Client { sessions: 1, rates, looks: Vec::new() });
            continue;
        };
        let look = (of(before).unwrap_or_default(), after);
        let client = apart.entry(name).or_insert_with(|| Client { looks: vec![look], ..Client::default() });
        client.add(Client { sessions: 1, rates, looks: Vec::new() });
    }
    let mut apart: Vec<(String, Client)> = apart.into_iter().collect();
    apart.sort_by(|(_, a), (_, b)| b.operations_per_s().total_cmp(&a.operations_per_s()));
    let further = apart.split_off(apart.len().min(CLIENTS_MAX));
    further.into_iter().for_each(|(_, client)| others.add(client));
    let mut parts: Vec<Part> = apart.into_iter().map(|(name, client)| client.part(name)).collect();
    if others.sessions > 0 {
        parts.push(others.part(OTHERS.to_owned()));
    }
    parts
}

/// As the server names the client of a session.
fn client_of(session: &Session) -> String {
    let first = session.client.first().map_or("", String::as_str);
    let host = first.parse::<SocketAddr>().map(|address| PeerHost::from(address.ip()).to_string());
    host.unwrap_or_else(|_| first.to_owned())
}

/// Clients that had a place of their own and have none now were counted there before.
fn look_at_others(before: &Totals, now: &Totals) -> Look {
    let of = |totals: &Totals| totals.clients.get(&None).copied().unwrap_or_default();
    let mut then = of(before);
    let gone = before.clients.iter().filter(|(name, _)| name.is_some() && !now.clients.contains_key(*name));
    gone.for_each(|(_, latency)| then.add(latency));
    (then, of(now))
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
        let sessions = [1, 2].map(|id| Session { id, ..session("TCP") });
        let found = clients(&sessions, "FILER", &before, &now);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].reads_per_s), ("10.0.0.9", 60.0));
        assert_eq!(found[0].latency.count, 30);
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
        // One had its place taken away: what it had asked by then is counted with the others, and was not asked in this second.
        let (before, now) = (totals(1_000_000, 5, 0), totals(2_000_000, 5 + 2 + 7, 1));
        let sessions: Vec<Session> = (0..=names.len())
            .map(|at| {
                let address = names.get(at).map_or("10.0.2.1", String::as_str);
                Session { id: at as u64, client: vec![format!("{address}:50000")], ..session("TCP") }
            })
            .collect();
        let found = clients(&sessions, "FILER", &before, &now);
        assert_eq!(found.len(), CLIENTS_MAX + 1);
        assert_eq!((found[0].name.as_str(), found[0].reads_per_s), ("10.0.1.149", 149.0));
        assert_eq!((found[0].latency.count, found[CLIENTS_MAX].name.as_str()), (2, OTHERS));
        // 49 beyond the busiest with two each, and the seven.
        assert_eq!(found[CLIENTS_MAX].latency.count, 49 * 2 + 7);
        assert_eq!(found[CLIENTS_MAX].reads_per_s, (1..50).sum::<u64>() as f64 + 150.0);
    }
}
