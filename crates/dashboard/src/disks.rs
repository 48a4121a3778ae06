//! Disks as the pages show them: load, and times compared with their peers'.

use crate::activity::Servers;
use api::latency::Percentiles;
use api::model::Disk;
use serde::Serialize;

/// A disk, and its recent load.
#[derive(Debug, Serialize)]
pub struct DiskLine<'a> {
    #[serde(flatten)]
    disk: &'a Disk,
    /// The server that has the disk, by its fault domain; empty: a single server.
    pub node: &'a str,
    /// This server has it.
    pub is_local: bool,
    /// Serial number of the device; `null`: it has none, or its server does not report it.
    pub serial: Option<String>,
    /// Rates in the last second; `null`: the disk's server does not report them.
    pub reads_per_s: Option<f64>,
    pub writes_per_s: Option<f64>,
    pub read_bytes_per_s: Option<f64>,
    pub write_bytes_per_s: Option<f64>,
    /// Times of the last seconds, or since the start if the disk had no requests lately.
    pub read: Percentiles,
    pub write: Percentiles,
    pub flush: Percentiles,
    /// Median time of a write (or a read, if there are no writes), divided by the median of the disk's
    /// peers; 1: equal.
    pub against_peers: Option<f64>,
    /// The time that is compared. Of the last seconds only: peers may not have had the same work longer ago.
    #[serde(skip)]
    typical_us: Option<f64>,
}

/// Ratio to its peers' time from which a disk is slow.
pub const SLOW_RATIO: f64 = 2.0;

/// `own`: this server's name, in a cluster; `servers`: their work in the last second.
pub fn lines<'a>(disks: &'a [Disk], own: Option<&str>, servers: &Servers) -> Vec<DiskLine<'a>> {
    let told = servers.disks();
    let line = |disk: &'a Disk| {
        let (node, activity) = (node_of(&disk.fault_domain), told.get(&disk.id));
        // Readings are a second apart; small deviations do not matter here.
        let operations = |kind: usize| activity.map(|activity| activity.operations[kind] as f64);
        let bytes = |kind: usize| activity.map(|activity| activity.bytes[kind] as f64);
        DiskLine {
            disk,
            node,
            is_local: is_local(disk, node, own),
            serial: activity.and_then(|activity| activity.serial.clone()),
            reads_per_s: operations(0),
            writes_per_s: operations(1),
            read_bytes_per_s: bytes(0),
            write_bytes_per_s: bytes(1),
            read: activity.map(|activity| activity.read).unwrap_or_default(),
            write: activity.map(|activity| activity.write).unwrap_or_default(),
            flush: activity.map(|activity| activity.flush).unwrap_or_default(),
            against_peers: None,
            typical_us: activity.and_then(|activity| activity.typical_us),
        }
    };
    let mut lines: Vec<DiskLine<'a>> = disks.iter().map(line).collect();
    let typical: Vec<Option<f64>> = lines.iter().map(|line| line.typical_us).collect();
    for at in 0..lines.len() {
        let (Some(line), Some(own)) = (lines.get(at), typical.get(at).copied().flatten()) else { continue };
        let peers = lines.iter().zip(&typical).enumerate().filter(|(other, (peer, _))| {
            *other != at && peer.disk.pool == line.disk.pool && peer.disk.rotational == line.disk.rotational
        });
        let mut times: Vec<f64> = peers.filter_map(|(_, (_, time))| *time).collect();
        let ratio = median(&mut times).filter(|median| *median > 0.0).map(|median| own / median);
        if let Some(line) = lines.get_mut(at) {
            line.against_peers = ratio;
        }
    }
    lines
}

/// Tells whether this server has the disk, and so knows its times. For a disk that no server reports,
/// the fault domain decides.
fn is_local(disk: &Disk, node: &str, own: Option<&str>) -> bool {
    match (&disk.server, own) {
        (Some(server), Some(own)) => server.eq_ignore_ascii_case(own),
        _ => disk.block_bytes.is_some() || own.is_none_or(|own| own.eq_ignore_ascii_case(node)),
    }
}

/// The server in `RACK/NODE/ENCLOSURE`, of which those without a name are left out: one alone is the server.
pub fn node_of(fault_domain: &str) -> &str {
    let mut names = fault_domain.split('/');
    let first = names.next().unwrap_or_default();
    names.next().unwrap_or(first)
}

fn median(times: &mut [f64]) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

impl DiskLine<'_> {
    pub fn path(&self) -> &str {
        &self.disk.path
    }

    /// Tells whether the disk keeps others waiting.
    pub fn is_slow(&self) -> bool {
        self.against_peers.is_some_and(|ratio| ratio >= SLOW_RATIO)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::activity::tests::servers;
    use crate::rates::Totals;
    use api::model::{DiskCounters, DiskStatus, DiskUsage, Health, Latency, Snapshot};
    use std::time::Duration;
    use types::{DiskId, LatencyHistogram, PoolId};

    pub fn disk(number: u128) -> Disk {
        Disk {
            id: DiskId::from_bytes(number.to_be_bytes()),
            pool: Some(PoolId::from_bytes([1; 16])),
            path: format!("/d/{number}"),
            fault_domain: String::new(),
            health: Health::Healthy,
            status: DiskStatus::Ok,
            usage: DiskUsage::AutoSelect,
            size_bytes: 10 << 30,
            allocated_bytes: Some(2 << 30),
            block_bytes: Some(512),
            rotational: Some(false),
            counters: Some(DiskCounters::default()),
            server: None,
            device_health: None,
        }
    }

    fn snapshot(times_us: &[u64]) -> Snapshot {
        let disks: Vec<Disk> = (1..=times_us.len() as u128).map(disk).collect();
        let latencies = disks.iter().zip(times_us).map(|(disk, us)| {
            let mut histogram = LatencyHistogram::default();
            (0..100).for_each(|_| histogram.record(Duration::from_micros(*us)));
            let labels =
                vec![("disk".into(), disk.id.to_string()), ("operation".to_owned(), "write".to_owned())];
            Latency { name: "disk_io".into(), help: String::new(), labels, histogram }
        });
        Snapshot { latencies: latencies.collect(), disks, ..Snapshot::default() }
    }

    #[test]
    fn a_disk_that_takes_longer_than_its_peers_is_slow() {
        let snapshot = snapshot(&[80, 80, 20_000, 80]);
        let (nothing, now) = (Totals::default(), Totals::of(&snapshot));
        let servers = servers(&[("node-1", &snapshot, &nothing, &now)]);
        let lines = lines(&snapshot.disks, None, &servers);
        let slow: Vec<bool> = lines.iter().map(DiskLine::is_slow).collect();
        assert_eq!(slow, [false, false, true, false]);
    }

    #[test]
    fn what_another_server_knows_of_its_disk_is_not_shown() {
        let mut snapshot = snapshot(&[80, 80, 80]);
        for (disk, (node, block_bytes)) in
            snapshot.disks.iter_mut().zip([("a", Some(512)), ("a", None), ("b", None)])
        {
            (disk.fault_domain, disk.block_bytes) = (node.into(), block_bytes);
        }
        let local = |own| -> Vec<bool> {
            let lines = lines(&snapshot.disks, own, &Servers::default());
            assert!(lines.iter().all(|line| line.reads_per_s.is_none()), "nobody tells");
            lines.iter().map(|line| line.is_local).collect()
        };
        assert_eq!(local(Some("A")), [true, true, false]);
        let told = Disk { server: Some("b".into()), ..disk(9) };
        assert!(!is_local(&told, "b", Some("a")), "another server told of it");
        assert_eq!(local(None), [true, true, true]);
    }

    #[test]
    fn a_disk_that_did_nothing_lately_is_compared_with_none() {
        let snapshot = snapshot(&[80, 20_000]);
        let (nothing, now) = (Totals::default(), Totals::of(&snapshot));
        let mut lately = servers(&[("node-1", &snapshot, &nothing, &now)]);
        let idle = crate::activity::of_own(&snapshot, &Default::default(), &nothing, &now, &now);
        lately.0.get_mut("node-1").unwrap().activity = Some(idle);
        let lines = lines(&snapshot.disks, None, &lately);
        assert_eq!(lines.iter().map(|line| line.against_peers).collect::<Vec<_>>(), [None, None]);
        assert_eq!(lines[1].write.count, 100, "its times since the start are shown");
    }

    #[test]
    fn a_disk_alone_has_no_peers() {
        let snapshot = snapshot(&[20_000]);
        let (nothing, now) = (Totals::default(), Totals::of(&snapshot));
        let servers = servers(&[("node-1", &snapshot, &nothing, &now)]);
        assert_eq!(lines(&snapshot.disks, None, &servers)[0].against_peers, None);
    }

    #[test]
    fn the_server_of_a_disk_stands_in_its_fault_domain() {
        assert_eq!([node_of("rack/node/box"), node_of("node"), node_of("")], ["node", "node", ""]);
    }
}
