//! Checks before servers become a cluster, and at an administrator's request: facts of each server, and
//! the network between each two.
//!
//! Promises: changes nothing; every check has a finding, and a remedy if it is not good. Owns the
//! judgement; the figures come from the servers themselves.

use crate::admission::{CLOCK_SKEW_MAX_S, check_versions};
use crate::wire::{Facts, Probed, Storage, Target};
use api::cluster::{CheckOutcome, PreflightCheck};
use smb_client::ping;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use types::size::show_size;

/// Clocks that NTP keeps differ by less.
const CLOCK_WARNING_MS: u64 = 1000;
/// One-way time that counts as slow: servers of a cluster are in one room, or two.
const TCP_WARNING_US: f64 = 5000.0;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const PINGS: u32 = 50;
/// Bytes that a TCP receive buffer should be able to grow to: a round trip of 1 ms at 25 Gbit/s, and then some.
const RECEIVE_BUFFER_BYTES: u64 = 6 << 20;

/// A queried server, and its answer.
pub struct Seen {
    pub name: String,
    pub told: Result<Facts, String>,
    /// How far its clock is from ours, ahead if positive; without the time of the question.
    pub clock_ms: i64,
}

fn check(check: &str, subject: &str, outcome: CheckOutcome, found: String) -> PreflightCheck {
    PreflightCheck { check: check.into(), subject: subject.into(), outcome, found }
}

/// Judges the servers' facts, ours first.
pub fn judge_facts(ours: &Facts, others: &[Seen]) -> Vec<PreflightCheck> {
    let mut checks = Vec::new();
    for seen in others {
        let facts = match &seen.told {
            Ok(facts) => facts,
            Err(why) => {
                checks.push(check("answer", &seen.name, CheckOutcome::Failed, why.clone()));
                continue;
            }
        };
        checks.push(check("answer", &seen.name, CheckOutcome::Good, format!("of cluster {}", facts.cluster)));
        checks.push(match check_versions(&facts.version, &ours.version) {
            Ok(()) => check("version", &seen.name, CheckOutcome::Good, facts.version.clone()),
            Err(error) => check("version", &seen.name, CheckOutcome::Failed, error.to_string()),
        });
        checks.push(judge_clock(&seen.name, seen.clock_ms));
    }
    for facts in std::iter::once(ours).chain(others.iter().filter_map(|seen| seen.told.as_ref().ok())) {
        checks.push(judge_receive_buffer(facts));
        checks.push(match &facts.etcd {
            Some(version) => check("etcd", &facts.name, CheckOutcome::Good, version.clone()),
            None => check(
                "etcd",
                &facts.name,
                CheckOutcome::Warning,
                "not installed: the first three servers need it (package etcd-server)".into(),
            ),
        });
    }
    checks.push(judge_mtu(ours, others));
    checks.extend(judge_disks(ours, others));
    checks
}

/// Judges the servers' disks in the pool, and whether copies of each server's data find space on the others.
fn judge_disks(ours: &Facts, others: &[Seen]) -> Vec<PreflightCheck> {
    let all = std::iter::once(ours).chain(others.iter().filter_map(|seen| seen.told.as_ref().ok()));
    let stored: Vec<(&str, &Storage)> =
        all.filter_map(|facts| Some((facts.name.as_str(), facts.storage.as_ref()?))).collect();
    let total: u64 = stored.iter().map(|(_, storage)| storage.size_bytes).sum();
    let judge = |(name, storage): &(&str, &Storage)| {
        let elsewhere = total - storage.size_bytes;
        let size = show_size(storage.size_bytes);
        let (outcome, found) = match storage {
            Storage { failing, .. } if !failing.is_empty() => (
                CheckOutcome::Failed,
                format!("failing or gone: {}; see `cenote health`", failing.join(", ")),
            ),
            Storage { disks: 0, .. } => (
                CheckOutcome::Warning,
                "it has no disk in the pool: `cenote disk add`, on that server".to_owned(),
            ),
            _ if stored.len() > 1 && storage.size_bytes > elsewhere => (
                CheckOutcome::Warning,
                format!(
                    "{} disks with {size}, more than all other servers together ({}): copies of the rest have no place",
                    storage.disks,
                    show_size(elsewhere)
                ),
            ),
            _ => (CheckOutcome::Good, format!("{} disks with {size}", storage.disks)),
        };
        check("disks", name, outcome, found)
    };
    stored.iter().map(judge).collect()
}

fn judge_clock(name: &str, clock_ms: i64) -> PreflightCheck {
    let off_ms = clock_ms.unsigned_abs();
    let direction = if clock_ms > 0 { "ahead of" } else { "behind" };
    let found = format!("{:.3} s {direction} this server's", off_ms as f64 / 1000.0);
    if off_ms > CLOCK_SKEW_MAX_S * 1000 {
        let found = format!("{found}, {CLOCK_SKEW_MAX_S} s are allowed: set both by NTP");
        return check("clock", name, CheckOutcome::Failed, found);
    }
    if off_ms > CLOCK_WARNING_MS {
        return check("clock", name, CheckOutcome::Warning, format!("{found}: set both by NTP"));
    }
    check("clock", name, CheckOutcome::Good, found)
}

fn judge_receive_buffer(facts: &Facts) -> PreflightCheck {
    match facts.receive_buffer_max {
        Some(bytes) if bytes < RECEIVE_BUFFER_BYTES => check(
            "receive queue",
            &facts.name,
            CheckOutcome::Warning,
            format!(
                "TCP buffers grow to {bytes} bytes: raise the last number of net.ipv4.tcp_rmem to {RECEIVE_BUFFER_BYTES}"
            ),
        ),
        Some(bytes) => check(
            "receive queue",
            &facts.name,
            CheckOutcome::Good,
            format!("TCP buffers grow to {bytes} bytes"),
        ),
        None => check("receive queue", &facts.name, CheckOutcome::Warning, "not known".into()),
    }
}

/// Compares MTUs: a packet too large for the receiver is lost silently.
fn judge_mtu(ours: &Facts, others: &[Seen]) -> PreflightCheck {
    let all = std::iter::once(ours).chain(others.iter().filter_map(|seen| seen.told.as_ref().ok()));
    let known: Vec<(&str, u32)> = all.filter_map(|facts| Some((facts.name.as_str(), facts.mtu?))).collect();
    let listed: Vec<String> = known.iter().map(|(name, mtu)| format!("{name} {mtu}")).collect();
    let found = listed.join(", ");
    if known.iter().all(|(_, mtu)| *mtu == known[0].1) {
        check("MTU", "all", CheckOutcome::Good, found)
    } else {
        check(
            "MTU",
            "all",
            CheckOutcome::Failed,
            format!("{found}: set the same on all interfaces of a network"),
        )
    }
}

/// Judges the ways from server `from`.
pub fn judge_probes(from: &str, probes: &[Probed]) -> Vec<PreflightCheck> {
    let mut checks = Vec::new();
    for probe in probes {
        let subject = format!("{from} -> {}", probe.name);
        checks.push(match &probe.tcp {
            Ok(us) if *us > TCP_WARNING_US => {
                check("TCP", &subject, CheckOutcome::Warning, format!("connected in {us:.0} us: a slow way"))
            }
            Ok(us) => check("TCP", &subject, CheckOutcome::Good, format!("connected in {us:.0} us")),
            Err(why) => check("TCP", &subject, CheckOutcome::Failed, why.clone()),
        });
        checks.push(match &probe.rdma {
            None => check(
                "RDMA",
                &subject,
                CheckOutcome::Warning,
                "it has no SMB Direct: TCP carries the bus".into(),
            ),
            Some(Ok(us)) => check(
                "RDMA",
                &subject,
                CheckOutcome::Good,
                format!("4 KiB there and back in {us:.0} us at the median"),
            ),
            Some(Err(why)) => check("RDMA", &subject, CheckOutcome::Failed, why.clone()),
        });
    }
    checks
}

/// Reaches each of the targets, one after the other, so that they do not disturb each other. Blocks.
pub fn probe(targets: &[Target]) -> Vec<Probed> {
    targets
        .iter()
        .map(|target| Probed {
            name: target.name.clone(),
            tcp: connect(target.smb),
            rdma: target.rdma.map(round_trip),
        })
        .collect()
}

fn connect(address: SocketAddr) -> Result<f64, String> {
    let began = Instant::now();
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
        .map(|_| began.elapsed().as_secs_f64() * 1e6)
        .map_err(|error| format!("{address} cannot be reached: {error}"))
}

/// Measures as `cenote rdma ping` does.
fn round_trip(address: SocketAddr) -> Result<f64, String> {
    let settings =
        ping::Settings { host: address.to_string(), count: PINGS, step_timeout: CONNECT_TIMEOUT, crc: true };
    let report = ping::ping(&settings).map_err(|error| error.to_string())?;
    let large = report.round_trips.last();
    large.map(|times| times.median_us).ok_or_else(|| "nothing came back".to_owned())
}

/// The largest packet of the interface that has the address.
pub fn mtu_of(ip: IpAddr) -> Option<u32> {
    let interfaces = sys::interface_addresses().ok()?;
    let found = interfaces.iter().find(|interface| interface.address == ip);
    // All of 127.0.0.0/8 is the loopback interface's, which lists one address of it.
    let name = match found {
        Some(interface) => &interface.name,
        None => {
            &interfaces.iter().find(|interface| ip.is_loopback() && interface.address.is_loopback())?.name
        }
    };
    let path = std::path::Path::new(machine::interfaces::SYSFS).join(name).join("mtu");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Bytes to which a TCP receive buffer may grow.
pub fn receive_buffer_max() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").ok()?;
    text.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str) -> Facts {
        Facts {
            name: name.into(),
            cluster: "C".into(),
            version: "0.1.0".into(),
            unix_ms: 0,
            pid: 1,
            mtu: Some(1500),
            receive_buffer_max: Some(RECEIVE_BUFFER_BYTES),
            etcd: Some("3.4.23".into()),
            storage: None,
            members: Vec::new(),
        }
    }

    fn failed(checks: &[PreflightCheck]) -> Vec<&str> {
        let failed = checks.iter().filter(|check| check.outcome == CheckOutcome::Failed);
        failed.map(|check| check.check.as_str()).collect()
    }

    #[test]
    fn servers_that_fit_together_pass() {
        let seen = Seen { name: "b".into(), told: Ok(facts("b")), clock_ms: 3 };
        let checks = judge_facts(&facts("a"), &[seen]);
        assert!(checks.iter().all(|check| check.outcome == CheckOutcome::Good), "{checks:?}");
    }

    #[test]
    fn what_stands_in_the_way_is_told_by_its_name() {
        let silent = Seen { name: "b".into(), told: Err("silent".into()), clock_ms: 0 };
        assert_eq!(failed(&judge_facts(&facts("a"), &[silent])), ["answer"]);
        let late = Seen { name: "b".into(), told: Ok(facts("b")), clock_ms: -3_600_000 };
        assert_eq!(failed(&judge_facts(&facts("a"), &[late])), ["clock"]);
        let other = Facts { version: "0.9.0".into(), mtu: Some(9000), ..facts("b") };
        let other = Seen { name: "b".into(), told: Ok(other), clock_ms: 0 };
        assert_eq!(failed(&judge_facts(&facts("a"), &[other])), ["version", "MTU"]);
    }

    #[test]
    fn disks_that_fail_or_have_no_place_for_copies_are_told() {
        let with = |name: &str, disks, size_bytes, failing: &[&str]| {
            let failing = failing.iter().map(|path| (*path).to_owned()).collect();
            Facts { storage: Some(Storage { disks, size_bytes, failing }), ..facts(name) }
        };
        let seen = |facts: Facts| Seen { name: facts.name.clone(), told: Ok(facts), clock_ms: 0 };
        let outcomes = |ours: Facts, others: Vec<Facts>| -> Vec<CheckOutcome> {
            let others: Vec<Seen> = others.into_iter().map(seen).collect();
            judge_disks(&ours, &others).into_iter().map(|check| check.outcome).collect()
        };
        use CheckOutcome::{Failed, Good, Warning};
        let tib = 1 << 40;
        assert_eq!(outcomes(with("a", 2, 2 * tib, &[]), vec![with("b", 2, 2 * tib, &[])]), [Good, Good]);
        assert_eq!(outcomes(with("a", 2, 4 * tib, &[]), vec![with("b", 0, 0, &[])]), [Warning, Warning]);
        assert_eq!(outcomes(with("a", 1, tib, &["/dev/sdb"]), vec![with("b", 1, tib, &[])]), [Failed, Good]);
        assert_eq!(outcomes(facts("a"), vec![]), [], "a server that is in no cluster has none to tell of");
    }

    #[test]
    fn a_way_that_is_not_there_fails_and_is_bounded_in_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let target = |name: &str, smb| Target { name: name.into(), cluster: smb, smb, rdma: None };
        let probes = probe(&[target("b", open), target("c", closed)]);
        assert_eq!(failed(&judge_probes("a", &probes)), ["TCP"]);
        assert!(probes[0].tcp.is_ok());
    }
}
