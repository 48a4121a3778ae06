//! The kernel's figures of this process (proc(5)), under the names that all of Prometheus' client
//! libraries use.

use super::exposition::Families;
use std::fs::{read_dir, read_to_string};

/// The unit of times in /proc/PID/stat: the kernel always reports 100 ticks a second to programs, at
/// any rate of its own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds the figures that can be read.
pub fn add(families: &mut Families) {
    if let Some(times) = read_to_string("/proc/self/stat").ok().as_deref().and_then(times_of) {
        families.add(
            "process_cpu_seconds_total",
            "CPU time of the process, in user and system mode.",
            crate::model::MetricKind::Counter,
            &[],
            times.cpu_s,
        );
        if let Some(boot_unix_s) = read_to_string("/proc/stat").ok().as_deref().and_then(boot_time) {
            let started = boot_unix_s + times.after_boot_s;
            families.gauge(
                "process_start_time_seconds",
                "Start of the process since 1970-01-01 00:00 UTC.",
                &[],
                started,
            );
        }
    }
    if let Ok(status) = read_to_string("/proc/self/status") {
        for (name, help, key) in [
            ("process_resident_memory_bytes", "Memory of the process that is in RAM.", "VmRSS:"),
            ("process_virtual_memory_bytes", "Address space of the process.", "VmSize:"),
        ] {
            if let Some(kib) = number_behind(&status, key) {
                families.gauge(name, help, &[], kib * 1024.0);
            }
        }
    }
    if let Ok(open) = read_dir("/proc/self/fd") {
        // One of them is the listing's own.
        let open = open.count().saturating_sub(1);
        families.gauge("process_open_fds", "Descriptors that the process has open.", &[], open as f64);
    }
    if let Some(max) =
        read_to_string("/proc/self/limits").ok().and_then(|limits| number_behind(&limits, "Max open files"))
    {
        families.gauge("process_max_fds", "Descriptors that the process may have open.", &[], max);
    }
}

struct Times {
    cpu_s: f64,
    /// The start of the process.
    after_boot_s: f64,
}

/// Parses fields 14, 15 and 22 of /proc/PID/stat. The second is a name in parentheses, which may hold
/// blanks and parentheses.
fn times_of(stat: &str) -> Option<Times> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let ticks = |field: usize| -> Option<f64> { fields.get(field - 3)?.parse().ok() };
    Some(Times {
        cpu_s: (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND,
        after_boot_s: ticks(22)? / TICKS_PER_SECOND,
    })
}

fn boot_time(stat: &str) -> Option<f64> {
    number_behind(stat, "btime")
}

/// Returns the first number after a key at the beginning of a line.
fn number_behind(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_moves_no_field() {
        let stat = "7 (a ) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 4 0 12345 999";
        let times = times_of(stat).unwrap();
        assert_eq!((times.cpu_s, times.after_boot_s), (2.0, 123.45));
        assert!(times_of("").is_none() && times_of("7 (a) S 1").is_none());
    }

    #[test]
    fn numbers_are_found_behind_the_words_of_their_line() {
        assert_eq!(number_behind("VmPeak: 9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12.0));
        assert_eq!(
            number_behind("Max open files            1024   524288  files", "Max open files"),
            Some(1024.0)
        );
        assert_eq!(number_behind("Max open files            unlimited", "Max open files"), None);
    }
}
