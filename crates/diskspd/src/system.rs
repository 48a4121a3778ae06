//! The machine as the report names it, and the use of its processors meanwhile.

use crate::statistics::{ProcessorPlace, ProcessorUse, SystemInformation};
use std::collections::BTreeSet;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Version of DiskSpd's layout, which `-?` prints as well.
pub const VERSION: &str = "2.2.0";
pub const VERSION_DATE: &str = "2024/6/3";
/// Processors in a group: Windows' number.
pub const GROUP_PROCESSORS: u32 = 64;

/// Times of one processor in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorTimes {
    pub number: u32,
    pub user: u64,
    pub kernel: u64,
    pub idle: u64,
}

/// Returns the times of the processors since the system's start.
pub fn processor_times() -> Vec<ProcessorTimes> {
    parse_times(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// user and nice are user; system, irq, softirq and steal are kernel; idle and iowait are idle.
fn parse_times(text: &str) -> Vec<ProcessorTimes> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let mut words = rest.split_ascii_whitespace();
        if rest.starts_with(' ') {
            continue;
        }
        let Some(number) = words.next().and_then(|word| word.parse().ok()) else { continue };
        let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let tick = |at: usize| ticks.get(at).copied().unwrap_or(0);
        found.push(ProcessorTimes {
            number,
            user: tick(0) + tick(1),
            kernel: tick(2) + tick(5) + tick(6) + tick(7),
            idle: tick(3) + tick(4),
        });
    }
    found
}

/// Shares of the time between two looks.
pub fn processor_use(before: &[ProcessorTimes], after: &[ProcessorTimes]) -> Vec<ProcessorUse> {
    let mut found = Vec::new();
    for now in after {
        let Some(then) = before.iter().find(|then| then.number == now.number) else { continue };
        let user = now.user.saturating_sub(then.user) as f64;
        let kernel = now.kernel.saturating_sub(then.kernel) as f64;
        let idle = now.idle.saturating_sub(then.idle) as f64;
        let all = user + kernel + idle;
        let percent = |part: f64| if all > 0.0 { part / all * 100.0 } else { 0.0 };
        found.push(ProcessorUse {
            group: (now.number / GROUP_PROCESSORS) as u16,
            number: now.number % GROUP_PROCESSORS,
            user_percent: percent(user),
            kernel_percent: percent(kernel),
            idle_percent: if all > 0.0 { percent(idle) } else { 100.0 },
        });
    }
    found
}

/// User and kernel time that this process has used, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The numbers of a list such as `0-3,8`.
fn listed(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            found.extend(first..=last.min(first.saturating_add(8191)));
        }
    }
    found
}

/// Processors that are there.
pub fn processors() -> Vec<u32> {
    let online = read("/sys/devices/system/cpu/online").map(|text| listed(&text)).unwrap_or_default();
    if online.is_empty() { vec![0] } else { online }
}

/// Where the processors sit. Classes are the ranks of their capacities.
fn places(processors: &[u32]) -> Vec<ProcessorPlace> {
    let value = |processor: u32, name: &str| -> u32 {
        let path = format!("/sys/devices/system/cpu/cpu{processor}/{name}");
        read(&path).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let capacities: BTreeSet<u32> =
        processors.iter().map(|&processor| value(processor, "cpu_capacity")).collect();
    let nodes: Vec<(u32, Vec<u32>)> = read("/sys/devices/system/node/online")
        .map(|text| listed(&text))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|node| {
            let path = format!("/sys/devices/system/node/node{node}/cpulist");
            Some((node, listed(&read(&path)?)))
        })
        .collect();
    processors
        .iter()
        .map(|&processor| ProcessorPlace {
            processor,
            socket: value(processor, "topology/physical_package_id"),
            core: value(processor, "topology/core_id"),
            node: nodes.iter().find(|(_, list)| list.contains(&processor)).map_or(0, |(node, _)| *node),
            class: capacities.range(..value(processor, "cpu_capacity")).count() as u32,
        })
        .collect()
}

/// Returns the report's facts about this machine.
pub fn information() -> SystemInformation {
    let processors = processors();
    let places = places(&processors);
    let cores: BTreeSet<(u32, u32)> = places.iter().map(|place| (place.socket, place.core)).collect();
    let sockets: BTreeSet<u32> = places.iter().map(|place| place.socket).collect();
    let nodes: BTreeSet<u32> = places.iter().map(|place| place.node).collect();
    let classes: BTreeSet<u32> = places.iter().map(|place| place.class).collect();
    let groups: BTreeSet<u32> = processors.iter().map(|processor| processor / GROUP_PROCESSORS).collect();
    SystemInformation {
        computer_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        start_time: utc(SystemTime::now()),
        processors: processors.len() as u32,
        cores: cores.len() as u32,
        groups: groups.len() as u32,
        nodes: nodes.len() as u32,
        sockets: sockets.len() as u32,
        heterogeneous: classes.len() > 1,
        places,
        power_scheme: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            .unwrap_or_else(|| "not available".into()),
        tool_version: VERSION.into(),
        tool_date: VERSION_DATE.into(),
    }
}

/// As `2024/06/03 10:00:00 UTC`.
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = types::civil_date(days as i64);
    format!(
        "{year:04}/{month:02}/{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_across_leap_years() {
        for (seconds, text) in [
            (0, "1970/01/01 00:00:00 UTC"),
            (951_782_399, "2000/02/28 23:59:59 UTC"),
            (951_782_400, "2000/02/29 00:00:00 UTC"),
            (1_717_408_800, "2024/06/03 10:00:00 UTC"),
            (4_107_542_400, "2100/03/01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + std::time::Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn the_kernels_times_fall_into_three_kinds() {
        let before = parse_times("cpu  1 1 1 1\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu1 0 0 0 0\nintr 5\n");
        let after = parse_times("cpu  1 1 1 1\ncpu0 120 10 60 840 60 5 3 2 0 0\ncpu1 0 0 0 0\n");
        let shares = processor_use(&before, &after);
        assert_eq!(shares.len(), 2);
        assert_eq!(
            (shares[0].user_percent, shares[0].kernel_percent, shares[0].idle_percent),
            (30.0, 20.0, 50.0)
        );
        assert_eq!(shares[1].idle_percent, 100.0);
    }
}
