//! Memory of this machine, or of the control group that this process is in; and the default size of the
//! cache.
//!
//! Owns the reading of /proc and of the control group's limits. Never fails: an unreadable figure
//! limits nothing.

use std::path::Path;

/// The cache takes a quarter of the memory by default.
const CACHE_DIVISOR: u64 = 4;
/// Bounds of the default.
const CACHE_BYTES_LEAST: u64 = 64 << 20;
const CACHE_BYTES_MOST: u64 = 64 << 30;
/// The default if nothing is known of the memory.
const CACHE_BYTES_UNKNOWN: u64 = 256 << 20;

/// RAM for cached reads and buffered writes by default.
pub fn default_cache_bytes() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let group = group_limit_bytes(&read("/proc/self/cgroup"), |path| std::fs::read_to_string(path).ok());
    cache_bytes_of(memory_total_bytes(&read("/proc/meminfo")), group)
}

fn cache_bytes_of(total: Option<u64>, group_limit: Option<u64>) -> u64 {
    match [total, group_limit].into_iter().flatten().min() {
        Some(bytes) => (bytes / CACHE_DIVISOR).clamp(CACHE_BYTES_LEAST, CACHE_BYTES_MOST),
        None => CACHE_BYTES_UNKNOWN,
    }
}

/// MemTotal of proc(5) meminfo.
fn memory_total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit of the control groups above this process: cgroups(7), version 2 and the memory controller of version 1.
fn group_limit_bytes(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut group = group.trim_start_matches('/');
        loop {
            let text = read(&Path::new(root).join(group).join(file));
            // "max" is no number, and no limit.
            let limit = text.and_then(|text| text.trim().parse::<u64>().ok());
            least = [least, limit].into_iter().flatten().min();
            if group.is_empty() {
                break;
            }
            group = group.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_takes_a_quarter_of_what_there_is() {
        let total = memory_total_bytes("MemTotal:       24684084 kB\nMemFree:        18852736 kB\n");
        assert_eq!(total, Some(24_684_084 * 1024));
        assert_eq!(cache_bytes_of(total, None), 24_684_084 * 256);
        assert_eq!(cache_bytes_of(total, Some(4 << 30)), 1 << 30);
        assert_eq!(cache_bytes_of(total, Some(u64::MAX)), 24_684_084 * 256);
        assert_eq!(cache_bytes_of(Some(100 << 20), None), CACHE_BYTES_LEAST);
        assert_eq!(cache_bytes_of(Some(4 << 40), None), CACHE_BYTES_MOST);
        assert_eq!(cache_bytes_of(memory_total_bytes("nonsense"), None), CACHE_BYTES_UNKNOWN);
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let files = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/system.slice/cenote.service/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/system.slice/memory.max" => Some("8589934592\n".to_owned()),
            "/sys/fs/cgroup/memory/box/memory.limit_in_bytes" => Some("1073741824\n".to_owned()),
            _ => None,
        };
        let second = "0::/system.slice/cenote.service\n";
        assert_eq!(group_limit_bytes(second, files), Some(8 << 30));
        let both = "5:cpu,memory:/box\n3:cpuset:/\n0::/system.slice/cenote.service\n";
        assert_eq!(group_limit_bytes(both, files), Some(1 << 30));
        assert_eq!(group_limit_bytes("0::/\n", files), None);
        assert_eq!(group_limit_bytes("nonsense", files), None);
    }
}
