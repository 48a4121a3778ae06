//! Load of the machine beside serving files: its processors, memory and network, as the kernel reports
//! them (proc(5)).
//!
//! Promises: a figure that the kernel does not report is absent. Never runs another program.

use api::seconds::MachineSecond;
use std::fs::read_to_string;
use std::path::Path;

/// The kernel's counters since the machine started, and its memory now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineTotals {
    /// Ticks of all processors together: busy ones, and all.
    cpu_ticks: Option<[u64; 2]>,
    /// In use, and all of it, in bytes.
    memory_bytes: Option<[u64; 2]>,
    /// Received and sent.
    network_bytes: Option<[u64; 2]>,
}

impl MachineTotals {
    pub fn read() -> Self {
        let text = |path: &str| read_to_string(path).ok();
        Self {
            cpu_ticks: text("/proc/stat").and_then(|text| cpu_ticks(&text)),
            memory_bytes: text("/proc/meminfo").and_then(|text| memory_bytes(&text)),
            network_bytes: text("/proc/net/dev").and_then(|text| network_bytes(&text, is_device)),
        }
    }

    /// Computes the load since `before`, which was read `interval_s` seconds ago.
    pub fn since(&self, before: &Self, interval_s: f64) -> MachineSecond {
        let ticks = self.cpu_ticks.zip(before.cpu_ticks);
        let network = self.network_bytes.zip(before.network_bytes);
        let rate = |kind: usize| {
            network.map(|(after, before)| after[kind].saturating_sub(before[kind]) as f64 / interval_s)
        };
        MachineSecond {
            cpu_percent: ticks.and_then(|(after, before)| {
                let [busy, all] = [0, 1].map(|kind| after[kind].saturating_sub(before[kind]) as f64);
                (all > 0.0).then_some(busy / all * 100.0)
            }),
            memory_used_bytes: self.memory_bytes.map(|[used, _]| used),
            memory_bytes: self.memory_bytes.map(|[_, all]| all),
            received_bytes_per_s: rate(0),
            sent_bytes_per_s: rate(1),
        }
    }
}

/// The line `cpu`: user, nice, system, idle, iowait, irq, softirq, steal; the guests behind them are in the first two.
fn cpu_ticks(stat: &str) -> Option<[u64; 2]> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4).copied().unwrap_or_default();
    Some([all - idle, all])
}

/// Returns memory in use, and all of it: memory that is available without swapping is not in use.
fn memory_bytes(meminfo: &str) -> Option<[u64; 2]> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let (all, available) = (bytes("MemTotal")?, bytes("MemAvailable")?);
    Some([all.checked_sub(available)?, all])
}

/// Sums the traffic of devices, so that traffic through a bridge, a bond or a VLAN counts once; of all
/// interfaces but loopback if there is no device, as in a container.
fn network_bytes(text: &str, is_device: impl Fn(&str) -> bool) -> Option<[u64; 2]> {
    let lines: Vec<(&str, [u64; 2])> = text.lines().filter_map(interface).collect();
    let sum = |counted: &dyn Fn(&str) -> bool| {
        let all = lines.iter().filter(|(name, _)| counted(name)).map(|(_, bytes)| *bytes);
        all.reduce(|sum, bytes| [sum[0].saturating_add(bytes[0]), sum[1].saturating_add(bytes[1])])
    };
    sum(&is_device).or_else(|| sum(&|name| name != "lo"))
}

/// Parses `NAME: RECEIVED` and seven more fields, then the bytes sent.
fn interface(line: &str) -> Option<(&str, [u64; 2])> {
    let (name, fields) = line.split_once(':')?;
    let mut fields = fields.split_whitespace();
    let received = fields.next()?.parse().ok()?;
    let sent = fields.nth(7)?.parse().ok()?;
    Some((name.trim(), [received, sent]))
}

fn is_device(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("device").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_busy_when_they_neither_idle_nor_wait_for_disks() {
        let at = |ticks: &str| MachineTotals { cpu_ticks: cpu_ticks(ticks), ..MachineTotals::default() };
        let (before, after) =
            (at("cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1"), at("cpu  130 0 120 740 110 0 0 0 70 0\n"));
        assert_eq!(after.since(&before, 1.0).cpu_percent, Some(50.0));
        assert_eq!(before.since(&before, 1.0).cpu_percent, None, "no tick has passed");
        assert_eq!(cpu_ticks("intr 7"), None);
    }

    #[test]
    fn memory_that_can_be_had_at_once_is_not_used() {
        let text = "MemTotal:       2000 kB\nMemFree: 100 kB\nMemAvailable:    1500 kB\n";
        assert_eq!(memory_bytes(text), Some([500 << 10, 2000 << 10]));
        assert_eq!(memory_bytes("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_bond_and_its_device_are_counted_once() {
        let text = "Inter-|   Receive\n face |bytes packets\n    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n bond0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(text, |name| name == "eth0"), Some([100, 20]));
        assert_eq!(network_bytes(text, |_| false), Some([200, 40]));
        assert_eq!(network_bytes("", |_| true), None);
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_absent() {
        let nothing = MachineTotals::default();
        assert_eq!(nothing.since(&nothing, 1.0), MachineSecond::default());
    }
}
