//! Health issues of volumes: the reasons why they are not served, or not properly.

use records::{VolumeRecord, WARN_AT_PERCENT};
use std::time::Duration;
use types::size::show_size;
use types::{BLOCK_BYTES, DiskId, Issue, Severity, VOLUME_UNREACHED};
use volume::fs::{FsError, Statistics};

/// Reports that chunks have too few copies.
pub fn degraded_volume(
    record: &VolumeRecord,
    (few, chunks, without_room): (u64, u64, u64),
    working: bool,
) -> Issue {
    Issue {
        severity: Severity::Warning,
        code: "volume_degraded",
        target: format!("volume {}", record.name),
        since_unix_s: None,
        what: format!("{few} of {chunks} slabs of its data have fewer copies than they should"),
        meaning: match record.min_holders {
            0 | 1 => "Data can be read as long as their other copies can be reached. The loss of one more disk may lose data of these slabs."
                .to_owned(),
            copies => format!("Each of them has at least {copies} copies still: the loss of one more disk loses nothing."),
        },
        action: if without_room > 0 && !working {
            format!(
                "{without_room} of them find no space on a disk in another fault domain: add a disk, or delete data. The \
                 server then makes the copies by itself."
            )
        } else if working {
            "Copies are being made: see `cenote job list`.".to_owned()
        } else {
            "Bring missing disks back, or add a disk to the pool: copies are then made by themselves."
                .to_owned()
        },
    }
}

/// Reports a volume filled above its threshold, or one that takes no more data at any fill level.
pub fn full_volume(record: &VolumeRecord, found: &Statistics) -> Option<Issue> {
    if found.lacks_metadata_room {
        return Some(volume_without_metadata_room(record, found));
    }
    let threshold = record.warn_at_percent.unwrap_or(WARN_AT_PERCENT);
    let percent = u128::from(found.used_bytes) * 100 / u128::from(found.total_bytes.max(1));
    if percent < u128::from(threshold) {
        return None;
    }
    let name = &record.name;
    Some(Issue {
        severity: Severity::Warning,
        code: "volume_capacity",
        target: format!("volume {name}"),
        since_unix_s: None,
        what: format!(
            "{percent} % of it are used: {} of {}; its threshold is {threshold} %",
            show_size(found.used_bytes),
            show_size(found.total_bytes)
        ),
        meaning: "When it is full, writes are refused (STATUS_DISK_FULL). What is there stays right."
            .to_owned(),
        action: format!(
            "Delete files, let it grow (`cenote volume resize {name} --size SIZE`), or change the threshold (`cenote volume set {name} \
             --warn-at PERCENT`)."
        ),
    })
}

fn volume_without_metadata_room(record: &VolumeRecord, found: &Statistics) -> Issue {
    let (name, used, total) = (&record.name, show_size(found.used_bytes), show_size(found.total_bytes));
    Issue {
        severity: Severity::Warning,
        code: "volume_metadata_full",
        target: format!("volume {name}"),
        since_unix_s: None,
        what: format!("its metadata is full: there is no more space for names and for the maps of its files, though only \
            {used} of {total} are used"),
        meaning: "New files and directories, and writes that need more room, are refused to everybody (STATUS_DISK_FULL). What is there stays right, \
                  and can be read and deleted."
            .to_owned(),
        action: format!(
            "Let it grow (`cenote volume resize {name} --size SIZE`), or delete files and directories; `cenote quota list {name}` says whose they \
             are, and a limit there bounds how many one user makes."
        ),
    }
}

/// Reports that the volume's server does not answer, so that nobody here knows whether the volume
/// is served. `hears_most`: most of the servers are heard, so that the other is known to live.
pub fn unreached_volume(record: &VolumeRecord, owner: &str, lasts: Duration, hears_most: bool) -> Issue {
    let lasts = lasts.as_secs();
    let (what, meaning, action) = if hears_most {
        (
            format!(
                "server {owner}, which serves it, has not answered for {lasts} s, although its heartbeats arrive"
            ),
            "Reads and writes of its files wait, or fail. No other server takes it over while that one lives and has not let it go.",
            format!(
                "See to the network of {owner}: cables, MTU, firewall. If that takes long, stop the service there: another server that has all data \
                 takes the volume over then."
            ),
        )
    } else {
        (
            format!(
                "server {owner}, which served it last, has not answered for {lasts} s; whether it lives is not known here without most of the servers"
            ),
            "Reads and writes of its files wait, or fail. No server takes it over until most of the servers hear each other.",
            format!(
                "Start {owner} and the other servers that are not heard, or see to the network between them and this one."
            ),
        )
    };
    Issue {
        severity: Severity::Unhealthy,
        code: VOLUME_UNREACHED,
        target: format!("volume {}", record.name),
        since_unix_s: None,
        what,
        meaning: meaning.to_owned(),
        action,
    }
}

/// Reports the reason why changes stay in memory. `absent`: missing members; `full_mounts`:
/// members' full file systems.
pub fn unwritten_changes(
    record: &VolumeRecord,
    error: &FsError,
    (absent, full_mounts): (&str, &str),
    since_unix_s: u64,
) -> Issue {
    let waits = "Nothing is lost: durable data is on the disks, and the rest is in memory, where a crash would lose it, as \
                 always. Files can be read. A client that waits for a write gets an error after half a minute.";
    let again = "It is tried again by itself, every 30 seconds at the latest.";
    let (what, meaning, action) = match error {
        FsError::NoSpace | FsError::Unavailable if !full_mounts.is_empty() => (
            format!("it waits for space in the file system of the disks' files: {full_mounts}"),
            waits,
            format!("Free space in {full_mounts}: a new disk there does not help. {again}"),
        ),
        FsError::NoSpace => (
            "it waits for room in the pool".to_owned(),
            waits,
            format!("Delete files, or add a disk to the pool. {again}"),
        ),
        FsError::Unavailable if !absent.is_empty() => (
            format!("it waits for copies: too few can be reached; missing: {absent}"),
            waits,
            format!("Bring the disks back. {again}"),
        ),
        FsError::Unavailable => (
            "it waits for copies: too few can be reached".to_owned(),
            waits,
            format!("Follow the other issues about disks and the cluster state. {again}"),
        ),
        error => (
            format!("changes in memory cannot be written: {error}"),
            "A crash may lose data that clients do not yet take for durable. Clients get the error when they flush or close a \
             file; writes are refused when memory is full.",
            format!("See to the disks that are named. {again}"),
        ),
    };
    Issue {
        severity: Severity::Unhealthy,
        code: "volume_unwritten",
        target: format!("volume {}", record.name),
        since_unix_s: Some(since_unix_s),
        what,
        meaning: meaning.to_owned(),
        action,
    }
}

/// Reports the reason why a volume is read-only. `dirty_bytes`: clients' earlier data that cannot
/// be stored.
pub fn read_only_volume(
    record: &VolumeRecord,
    damage: &FsError,
    dirty_bytes: u64,
    since_unix_s: u64,
) -> Issue {
    let name = &record.name;
    let dirty = match dirty_bytes {
        0 => String::new(),
        bytes => format!(
            " {} that clients wrote before is in memory only, and would be lost in a restart.",
            show_size(bytes)
        ),
    };
    Issue {
        severity: Severity::Unhealthy,
        code: "volume_read_only",
        target: format!("volume {name}"),
        since_unix_s: Some(since_unix_s),
        what: format!("{damage}; no copy of this page of its tree of files is intact"),
        meaning: format!(
            "Files can be read, except those that the page holds. Every change is refused (STATUS_MEDIA_WRITE_PROTECTED), because it could \
             not be stored for good. Changes that were acknowledged as durable are safe in the journal.{dirty}"
        ),
        action: format!(
            "If a disk of the volume is away, bring it back: it may hold an intact copy, and the volume goes on by itself within seconds. \
             If all disks are there, nothing brings the page back: `cenote volume damage {name}` says what cannot be read. Copy everything \
             else to a new volume, restore what is missing from a backup, and delete this volume."
        ),
    }
}

/// Reports blocks without an intact copy: the first, the disks that damaged them, and the files, in words.
pub fn lost_blocks(
    record: &VolumeRecord,
    blocks: usize,
    (first, disks, files): &(u64, String, String),
    since_unix_s: u64,
) -> Issue {
    let on = if disks.is_empty() { String::new() } else { format!(" on {disks}") };
    let at = show_size(first * BLOCK_BYTES as u64);
    Issue {
        severity: Severity::Unhealthy,
        code: "volume_lost_blocks",
        target: format!("volume {}", record.name),
        since_unix_s: Some(since_unix_s),
        what: format!(
            "{blocks} blocks of 4 KiB have no intact copy{on}; the first is at {at} of the volume; affected: {files}"
        ),
        meaning: "Reads of these blocks fail; everything else of the volume is served.".to_owned(),
        action: format!(
            "`cenote volume damage {0}` lists the files. Write these blocks again, or restore the files or delete them; then `cenote \
             volume check {0}` looks at the blocks anew.",
            record.name
        ),
    }
}

/// Reports the reason why a volume is not served.
pub fn detached_volume(record: &VolumeRecord, why: &str) -> Issue {
    Issue {
        severity: Severity::Unhealthy,
        code: "volume_detached",
        target: format!("volume {}", record.name),
        since_unix_s: None,
        what: format!("it is not served: {why}"),
        meaning: "Its files cannot be reached. Nothing on its disks is changed meanwhile.".to_owned(),
        action: "Bring missing disks back: it is opened by itself, and tried again from time to time."
            .to_owned(),
    }
}

/// Reports that the volume waits for the right disks in the places of older images.
pub fn volume_of_older_images(record: &VolumeRecord, held: &[DiskId]) -> Issue {
    let disks = held.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Issue {
        what: format!(
            "it is not served: older images are in the places of disks that may alone have some of its acknowledged writes: {disks}"
        ),
        action: "Bring the right disks, as the issues `disk_went_back` say: the volume is opened by itself. If they are lost, \
                 `cenote disk forget-promises DISK` has the volume opened without these writes."
            .to_owned(),
        ..detached_volume(record, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use records::{Provisioning, Resiliency};
    use types::{Lba, PoolId, VolumeId};

    #[test]
    fn health_says_why_a_volume_is_read_only_and_what_to_do() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, "plans", two, 1 << 30, thin, Vec::new(), 0);
        let damage = FsError::ReadOnly { what: "tree page", lba: Lba(1160) };
        let issue = read_only_volume(&record, &damage, 8192, 7);
        assert_eq!((issue.code, issue.since_unix_s), ("volume_read_only", Some(7)));
        assert!(issue.what.contains("can only be read") && issue.what.contains("1160"), "{issue:?}");
        assert!(issue.meaning.contains(&show_size(8192)), "{issue:?}");
        assert!(issue.action.contains("cenote volume damage plans"), "{issue:?}");
    }

    #[test]
    fn the_loss_of_one_more_disk_is_feared_only_where_one_copy_is_left() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (three, thin) = (Resiliency::ThreeWay, Provisioning::Thin);
        let mut record = VolumeRecord::new(id, pool, "plans", three, 1 << 30, thin, Vec::new(), 0);
        record.min_holders = 2;
        let meaning = |record: &VolumeRecord| degraded_volume(record, (1, 4, 0), false).meaning;
        assert!(meaning(&record).contains("loses nothing"));
        record.min_holders = 1;
        assert!(meaning(&record).contains("may lose data"));
    }

    #[test]
    fn health_warns_of_a_volume_that_is_used_to_its_threshold_and_says_which_that_is() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let mut record = VolumeRecord::new(id, pool, "plans", two, 1 << 30, thin, Vec::new(), 0);
        let used = |used_bytes| Statistics { total_bytes: 1000, used_bytes, ..Statistics::default() };
        assert!(full_volume(&record, &used(899)).is_none());
        let issue = full_volume(&record, &used(900)).expect("an issue");
        assert!(issue.severity == Severity::Warning && issue.what.contains("threshold is 90 %"), "{issue:?}");
        record.warn_at_percent = Some(50);
        assert!(full_volume(&record, &used(500)).is_some() && full_volume(&record, &used(499)).is_none());
    }

    #[test]
    fn health_tells_of_a_volume_that_takes_nothing_more_although_little_is_used() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, "plans", two, 1 << 30, thin, Vec::new(), 0);
        let found = Statistics {
            total_bytes: 1000,
            used_bytes: 750,
            lacks_metadata_room: true,
            ..Statistics::default()
        };
        let issue = full_volume(&record, &found).expect("an issue");
        assert_eq!((issue.code, issue.severity), ("volume_metadata_full", Severity::Warning));
        assert!(issue.meaning.contains("STATUS_DISK_FULL"), "{issue:?}");
    }

    #[test]
    fn health_names_a_volume_whose_server_lives_and_does_not_answer() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, "plans", two, 1 << 30, thin, Vec::new(), 0);
        let lost = unreached_volume(&record, "node-3", Duration::from_secs(12), false);
        assert!(!lost.what.contains("heartbeats") && !lost.action.contains("stop the service"), "{lost:?}");
        let issue = unreached_volume(&record, "node-3", Duration::from_secs(12), true);
        assert_eq!((issue.severity, issue.target.as_str()), (Severity::Unhealthy, "volume plans"));
        assert!(
            issue.what.starts_with("server node-3, which serves it, has not answered for 12 s"),
            "{issue:?}"
        );
    }

    #[test]
    fn health_says_what_a_volume_waits_for_and_that_nothing_is_lost() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, "plans", two, 1 << 30, thin, Vec::new(), 0);
        for (error, absent, what, action) in [
            (FsError::NoSpace, "", "room in the pool", "Delete files"),
            (FsError::Unavailable, "/dev/sdq", "missing: /dev/sdq", "Bring the disks back"),
            (FsError::Unavailable, "", "too few can be reached", "cluster state"),
        ] {
            let issue = unwritten_changes(&record, &error, (absent, ""), 7);
            assert!(issue.what.contains(what) && issue.action.contains(action), "{issue:?}");
            assert!(issue.meaning.starts_with("Nothing is lost"), "{issue:?}");
            let full = unwritten_changes(&record, &FsError::NoSpace, ("", "/srv"), 7);
            assert!(full.what.contains("/srv") && full.action.starts_with("Free space in /srv"), "{full:?}");
            assert_eq!((issue.since_unix_s, issue.target.as_str()), (Some(7), "volume plans"));
        }
    }
}
