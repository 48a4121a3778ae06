//! Health issues of disks: their faults, and the reasons why they cannot be used.

use crate::damage::Damage;
use crate::disk_slot::DiskSlot;
use crate::events::Events;
use crate::promise_issues::{WrongPromises, went_back_issue};
use crate::volumes::Volumes;
use crate::{Asked, Beyond, HostFull, Slow};
use disk::FileState;
use disk::partition::TableState;
use records::DiskState;
use records::image::records_in_words;
use std::time::Duration;
use types::size::show_size;
use types::{Issue, Monotonic, Severity};

/// Unreadable or corrupt blocks from which on a disk should be replaced. A disk remaps a bad sector
/// when it is rewritten, and a few in its life are usual; disks with more fail many times as often
/// within weeks.
const REPLACE_AT_BLOCKS: u64 = 10;
/// Duration from which on an opening is reported: reading a disk's records and its journal takes a
/// second or two.
pub const LONG_OPENING: Duration = Duration::from_secs(10);
/// Lost writes from which on a disk should be replaced. The cause of the first may be a cable, a
/// controller or a power supply.
const REPLACE_AT_LOST_WRITES: u64 = 2;

/// Reports a disk's unacknowledged faults. In words: the place of the `last` one, and damaged `files`.
pub fn disk_faults(
    slot: &DiskSlot,
    damage: &Damage,
    acknowledged: &Damage,
    last: Option<&str>,
    files: Option<&str>,
) -> Vec<Issue> {
    let path = &slot.record.path;
    let Damage { medium_errors, lost_writes, corrupt_blocks, .. } = damage.since(acknowledged);
    let repaired_blocks = damage.repaired_blocks;
    let rotten = corrupt_blocks.saturating_sub(medium_errors);
    let known = [
        acknowledged.medium_errors,
        acknowledged.corrupt_blocks.saturating_sub(acknowledged.medium_errors),
        acknowledged.lost_writes,
    ];
    let kinds = [
        (
            "disk_medium_errors",
            medium_errors,
            REPLACE_AT_BLOCKS,
            format!("{medium_errors} blocks of 4 KiB on {path} could not be read (medium errors)"),
            "A disk takes another place for such a block when it is written again",
        ),
        (
            "disk_corrupt_blocks",
            rotten,
            REPLACE_AT_BLOCKS,
            format!("{rotten} blocks of 4 KiB on {path} failed their checksum"),
            "Check the disk, its cable and the machine's memory",
        ),
        (
            "disk_lost_writes",
            lost_writes,
            REPLACE_AT_LOST_WRITES,
            format!("{path} answered {lost_writes} writes and lost them"),
            "Check its cable, controller, firmware and power",
        ),
    ];
    let met = kinds.into_iter().zip(known).filter(|((_, count, ..), _)| *count > 0);
    met.map(|((code, count, replace_at, what, action), known)| Issue {
            severity: Severity::Warning,
            code,
            target: format!("disk {}", slot.record.id),
            since_unix_s: None,
            what: {
                let mut what = what;
                if known > 0 {
                    what += &format!(", beside {known} that were acknowledged");
                }
                if repaired_blocks > 0 {
                    what += &format!("; {repaired_blocks} blocks of the disk were written again from another copy");
                }
                what.extend(last.map(|last| format!("; the last: {last}")));
                what.extend(files.map(|files| format!("; affected: {files}")));
                what
            },
            meaning: "They are read from another copy if there is one: nothing wrong was returned. Blocks without an intact copy are an \
                      issue of their volume."
                .to_owned(),
            action: match count + known >= replace_at {
                true => format!("Replace the disk: `cenote disk replace {} NEW`.", slot.record.id),
                false => format!(
                    "{action}. If there are {replace_at} or more, replace it. If you have seen to it: `cenote disk acknowledge {}`.",
                    slot.record.id
                ),
            },
        })
        .collect()
}

/// Reports that the disk's file was changed under the server.
pub fn changed_file(slot: &DiskSlot) -> Option<Issue> {
    let DiskSlot { record, file: (state, since_unix_s), .. } = slot;
    let path = &record.path;
    let replace = format!("`cenote disk replace {} NEW`", record.id);
    let (code, severity, what, meaning, action) = match state {
        FileState::Whole => return None,
        FileState::Removed => (
            "disk_file_removed",
            Severity::Unhealthy,
            format!("the file {path} was removed while the server has it open"),
            "The server reads and writes it as long as it runs. When the server stops, everything on this disk is lost; data \
             with copies on other disks is not.",
            format!("Do not stop the server before everything is on another disk: {replace}."),
        ),
        FileState::Renamed(now) => (
            "disk_file_renamed",
            Severity::Warning,
            match now {
                Some(now) => format!("{path} is {} now: it was renamed", now.display()),
                None => format!(
                    "{path} is not the disk's file any more: the file was renamed, or something was mounted over it"
                ),
            },
            "The server reads and writes the file as before. The next start finds it by its label only beside its old path or in disks.search.",
            "Give it its name back.".to_owned(),
        ),
        FileState::Truncated(bytes) => (
            "disk_file_truncated",
            Severity::Unhealthy,
            format!("the file {path} was cut to {} of {}", show_size(*bytes), show_size(record.size_bytes)),
            "The data behind the new end is gone from this disk. The server reads it from other copies, if there are any, and writes it again.",
            format!("Replace the disk: {replace}. Find out who writes to its file beside the server."),
        ),
    };
    Some(Issue {
        severity,
        code,
        target: format!("disk {}", record.id),
        since_unix_s: Some(*since_unix_s),
        what,
        meaning: meaning.to_owned(),
        action,
    })
}

/// Reports that the file system of the disk's file is full.
pub fn full_host(slot: &DiskSlot, full: &HostFull) -> Issue {
    let HostFull { mounted_at, available_bytes, since_unix_s } = full;
    let (path, mount) = (&slot.record.path, mounted_at.display());
    Issue {
        severity: Severity::Unhealthy,
        code: "host_file_system_full",
        target: format!("disk {}", slot.record.id),
        since_unix_s: Some(*since_unix_s),
        what: format!(
            "the file system at {mount}, which {path} lies in, is full ({} free): the disk's file cannot grow",
            show_size(*available_bytes)
        ),
        meaning: "Writes of new data wait, or are refused with STATUS_DISK_FULL, although the pool has space by its own \
                  count. Data that is there can be read, changed and deleted; the disk stays in use."
            .to_owned(),
        action: format!(
            "Free space in {mount}: remove other files there, or enlarge that file system. A new disk in the same file system \
             does not help. Files deleted on Cenote's volumes free space there when a whole slab of the disk is free."
        ),
    }
}

/// Reports that the disk is much slower than its peers.
pub fn slow_disk(slot: &DiskSlot, slow: &Slow) -> Issue {
    let Slow { asked, mean, peers, since_unix_s } = slow;
    let (path, id) = (&slot.record.path, slot.record.id);
    let asked = match asked {
        Asked::Read => "read",
        Asked::Write => "write",
        Asked::Flush => "flush",
    };
    let millis = |time: &std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    Issue {
        severity: Severity::Warning,
        code: "disk_slow",
        target: format!("disk {id}"),
        since_unix_s: Some(*since_unix_s),
        what: format!(
            "{path} takes {} on average for a {asked}, and the other disks of its kind in the pool take {}",
            millis(mean),
            millis(peers)
        ),
        meaning: "Each durable write waits for the slowest of its copies. Nothing is lost.".to_owned(),
        action: format!(
            "Check its SMART data (`cenote disk list`), cable and controller, and other programs that use it. If it stays \
             slow, replace it: `cenote disk replace {id} NEW`. This issue ends a minute and a half after the disk is as fast \
             as the others."
        ),
    }
}

/// Reports that the disk is being emptied; `in_the_way`: the obstacle, if there is one.
pub fn retiring_disk(slot: &DiskSlot, in_the_way: Option<String>) -> Issue {
    let wait = "Wait: `cenote job list` shows how far it is.";
    let action =
        in_the_way.as_ref().map_or(wait, |_| "Remove the reason: the retirement then goes on by itself.");
    let stopped = in_the_way.map(|why| format!("; that does not go on: {why}")).unwrap_or_default();
    Issue {
        severity: Severity::Warning,
        code: "disk_retiring",
        target: format!("disk {}", slot.record.id),
        since_unix_s: Some(slot.record.since_unix_s),
        what: format!("{} is being emptied, and then leaves its pool{stopped}", slot.record.path),
        meaning: "Its data keeps all copies meanwhile. New data goes to other disks, or is refused as in a full pool.".to_owned(),
        action: format!(
            "{action} Do not pull the disk before. `cenote disk retire {} --undo` keeps it.",
            slot.record.id
        ),
    }
}

/// Reports that the disk's partition table was damaged.
pub fn table_fault(slot: &DiskSlot) -> Option<Issue> {
    let path = &slot.record.path;
    let (what, action) = match &slot.table {
        TableState::Whole => return None,
        TableState::Repaired(copy) => (
            format!("{copy} was damaged on {path}; it was written again from the other copy"),
            "Nothing. If it happens again, replace the disk, or find out who writes to the device beside the server.".to_owned(),
        ),
        TableState::Damaged(copy, why) => (
            format!("{copy} is damaged on {path}: {why}"),
            format!("Start the server with the right to write to the whole device of {path}, or see to the device."),
        ),
    };
    Some(Issue {
        severity: Severity::Warning,
        code: "disk_partition_table",
        target: format!("disk {}", slot.record.id),
        since_unix_s: None,
        what,
        meaning:
            "No data is concerned: the disk is found by either copy. Without both, it could not be found."
                .to_owned(),
        action,
    })
}

/// Reports that an older image of the disk is in its place, and that a volume may wait for the right disk.
pub fn older_image(slot: &DiskSlot, behind: &[Beyond]) -> Option<Issue> {
    let records = slot.store().map(|store| store.with(|store| records_in_words(store.records())));
    Some(promises(slot, behind)?.older_image(&records.unwrap_or_default()))
}

/// Reports that an older image of the disk was restored, and is not yet up to date again.
pub fn went_back(slot: &DiskSlot, events: &Events, volumes: &Volumes) -> Option<Issue> {
    let since = events.gone_back(slot.record.id);
    let since_unix_s = *since.values().min()?;
    let entries = volumes.entries();
    let names: Vec<&str> =
        since.keys().filter_map(|id| Some(entries.get(id)?.record.name.as_str())).collect();
    Some(went_back_issue(slot.record.id, &slot.record.path, &names.join(", "), since_unix_s))
}

/// Reports promised epochs out of reach of the volumes' owners, so that nobody can open the volumes.
pub fn promise_beyond(slot: &DiskSlot, beyond: &[Beyond]) -> Option<Issue> {
    Some(promises(slot, beyond)?.out_of_bounds())
}

fn promises<'a>(slot: &'a DiskSlot, found: &'a [Beyond]) -> Option<WrongPromises<'a>> {
    let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
    let (first, record) = (found.first()?, &slot.record);
    let (promised, recorded) = (first.promised.0, first.recorded.0);
    let (disk, path, since_unix_s) = (record.id, &record.path, slot.since_unix_s);
    Some(WrongPromises {
        disk,
        path,
        since_unix_s,
        volume: &first.name,
        volumes: names.join(", "),
        promised,
        recorded,
    })
}

/// The remedy if disks have newer records of their pool than the server.
pub const IMPORT_ANEW: &str = "Stop the server, move state.redb in its data directory away, start it, and import the pool \
     (`cenote pool import`). Retire and replace none of the pool's disks.";

/// Reports the reason for a disk's absence: it cannot be used, or its first opening takes long.
pub fn absent_disk(slot: &DiskSlot, now: Monotonic) -> Option<Issue> {
    match slot.first_opening(now) {
        Some(lasts) => opening_disk(slot, lasts),
        None => Some(lost_disk(slot)),
    }
}

/// Reports that the first opening of a disk takes long; `lasts`: its duration so far.
fn opening_disk(slot: &DiskSlot, lasts: Duration) -> Option<Issue> {
    (lasts >= LONG_OPENING).then(|| Issue {
        severity: Severity::Warning,
        code: "disk_opening",
        target: format!("disk {}", slot.record.id),
        since_unix_s: Some(slot.since_unix_s),
        what: format!("opening {} has taken {} s so far", slot.record.path, lasts.as_secs()),
        meaning: "The disk answers, and its records are still being read; its data wait, or are read from other disks."
            .to_owned(),
        action: "Wait. If it takes minutes, check the disk, its cable and controller, and the server's load."
            .to_owned(),
    })
}

/// Reports the reason why a disk cannot be used.
fn lost_disk(slot: &DiskSlot) -> Issue {
    Issue {
        severity: Severity::Unhealthy,
        code: "disk_lost",
        target: format!("disk {}", slot.record.id),
        since_unix_s: Some(match slot.record.state {
            DiskState::Missing | DiskState::Failed => slot.record.since_unix_s,
            DiskState::Healthy | DiskState::Retired => slot.since_unix_s,
        }),
        what: format!("{} cannot be used: {}", slot.record.path, slot.why),
        meaning: match slot.is_ahead {
            true => {
                "An old copy could be taken for the newest data, so the disk is not used. Nothing on it is changed meanwhile."
            }
            false => {
                "Data with copies on other disks can be read and written; this disk misses the writes meanwhile."
            }
        }
        .to_owned(),
        action: if slot.is_ahead {
            IMPORT_ANEW.to_owned()
        } else if slot.is_damaged {
            format!(
                "The server copies its data to the pool's other disks, as far as there is space: see `cenote job list`. Then \
                 replace the disk: `cenote disk replace {}`.",
                slot.record.id
            )
        } else {
            format!(
                "Bring the disk back at {}: the server finds it by itself. If it stays away, the server copies its data to other \
             disks after the repair delay; `cenote disk retire {}` does that at once.",
                slot.record.path, slot.record.id
            )
        },
    }
}

/// Reports the reason why the state of a disk cannot be recorded.
pub fn unrecorded_disk(slot: &DiskSlot, why: &str, since_unix_s: u64) -> Issue {
    Issue {
        severity: Severity::Warning,
        code: "disk_unrecorded",
        target: format!("disk {}", slot.record.id),
        since_unix_s: Some(since_unix_s),
        what: format!("the state of {} cannot be written to the cluster state: {why}", slot.record.path),
        meaning: "All data is served. After a restart the server may look for the disk where it was, or believe that it is there."
            .to_owned(),
        action: "Check the file system of the data directory: free space, permissions, errors. The server tries again by itself."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_slot::Condition;
    use records::{DiskRecord, FaultDomain};
    use types::{DiskId, PoolId};

    fn slot() -> DiskSlot {
        let record = DiskRecord {
            id: DiskId::from_bytes([1; 16]),
            pool: PoolId::from_bytes([2; 16]),
            node: None,
            path: "/dev/sdq1".to_owned(),
            size_bytes: 1 << 30,
            slab_bytes: 1 << 20,
            fault_domain: FaultDomain::default(),
            state: DiskState::Healthy,
            since_unix_s: 0,
            scrubbed_unix_s: 0,
        };
        DiskSlot::new(record, 0)
    }

    #[test]
    fn a_disk_that_was_recorded_a_moment_ago_starts_and_is_not_lost() {
        let (mut slot, now) = (slot(), Monotonic(5_000_000_000));
        let began = Monotonic(4_000_000_000);
        for condition in [
            Condition::Absent { retry_at: Monotonic(0) },
            Condition::Opening { since: began, has_answered: false },
            Condition::Opening { since: began, has_answered: true },
        ] {
            slot.condition = condition;
            assert!(slot.first_opening(now).is_some() && absent_disk(&slot, now).is_none());
        }
        slot.why = "it does not answer".to_owned();
        assert_eq!(slot.first_opening(now), None);
        let issue = absent_disk(&slot, now).expect("an issue");
        assert!(issue.what.ends_with("cannot be used: it does not answer"));
    }

    #[test]
    fn a_retirement_that_does_not_go_on_is_told_with_its_reason() {
        let runs = retiring_disk(&slot(), None);
        assert!(runs.action.starts_with("Wait"), "{runs:?}");
        let stopped = retiring_disk(&slot(), Some("3 of its slabs find no room".to_owned()));
        assert!(stopped.what.contains("3 of its slabs find no room"), "{stopped:?}");
        assert!(!stopped.action.contains("Wait: ") && stopped.action.contains("--undo"), "{stopped:?}");
    }

    #[test]
    fn a_damaged_disk_is_to_be_replaced_and_an_absent_one_brought_back() {
        let mut slot = slot();
        assert!(lost_disk(&slot).action.contains("Bring the disk back at /dev/sdq1"));
        slot.is_damaged = true;
        assert!(lost_disk(&slot).action.contains("cenote disk replace"));
    }

    #[test]
    fn a_disk_that_is_ahead_of_the_state_is_neither_brought_back_nor_retired() {
        let mut slot = slot();
        (slot.is_ahead, slot.why) = (true, "it carries newer records".to_owned());
        let issue = lost_disk(&slot);
        assert!(
            issue.what.contains("newer records") && issue.action.contains("cenote pool import"),
            "{issue:?}"
        );
        assert!(!issue.action.contains("disk retire") && !issue.action.contains("Bring"), "{issue:?}");
        assert!(!issue.meaning.contains("can be read and written"), "{issue:?}");
    }

    #[test]
    fn an_opening_is_an_issue_only_if_it_takes_long() {
        assert!(opening_disk(&slot(), LONG_OPENING - Duration::from_millis(1)).is_none());
        let issue = opening_disk(&slot(), Duration::from_secs(12)).expect("an issue");
        assert!(issue.what == "opening /dev/sdq1 has taken 12 s so far", "{issue:?}");
        assert!(issue.code == "disk_opening" && issue.severity == Severity::Warning, "{issue:?}");
    }

    #[test]
    fn health_names_disk_place_files_what_was_done_and_what_to_do() {
        let damage = Damage { medium_errors: 2, corrupt_blocks: 2, repaired_blocks: 2, lost_writes: 0 };
        let place = "volume plans, 64MiB to 128MiB";
        let none = Damage::default();
        let issues = disk_faults(&slot(), &damage, &none, Some(place), Some(r"on volume plans: file a\b"));
        let [issue] = &issues[..] else { panic!("{issues:?}") };
        for words in ["2 blocks", "/dev/sdq1", "2 blocks of the disk were written again", place, r"file a\b"]
        {
            assert!(issue.what.contains(words), "{words}: {issue:?}");
        }
        assert!(issue.action.contains("10 or more"), "{issue:?}");
        let more = Damage { medium_errors: 10, corrupt_blocks: 10, ..damage };
        let issues = disk_faults(&slot(), &more, &none, None, None);
        assert!(issues[0].action.contains("cenote disk replace"), "{issues:?}");
    }

    #[test]
    fn what_was_acknowledged_is_no_issue_and_counts_when_more_comes() {
        let known = Damage { medium_errors: 6, corrupt_blocks: 9, repaired_blocks: 0, lost_writes: 1 };
        assert!(disk_faults(&slot(), &known, &known, None, None).is_empty());
        let more = Damage { medium_errors: 10, corrupt_blocks: 13, ..known };
        let issues = disk_faults(&slot(), &more, &known, None, None);
        let [issue] = &issues[..] else { panic!("{issues:?}") };
        assert!(issue.what.starts_with("4 blocks") && issue.what.contains("beside 6"), "{issue:?}");
        assert!(issue.action.contains("disk replace"), "ten in all: {issue:?}");
        assert!(
            !issue.what.contains("written again") && !issue.meaning.contains("written again"),
            "{issue:?}"
        );
    }

    #[test]
    fn a_disk_much_slower_than_its_peers_is_an_issue_with_both_figures() {
        let millis = std::time::Duration::from_millis;
        let slow = Slow { asked: Asked::Write, mean: millis(301), peers: millis(2), since_unix_s: 7 };
        let issue = slow_disk(&slot(), &slow);
        assert!(issue.code == "disk_slow" && issue.since_unix_s == Some(7), "{issue:?}");
        let words = ["/dev/sdq1", "301.0 ms on average for a write", "take 2.0 ms"];
        assert!(words.iter().all(|word| issue.what.contains(word)), "{issue:?}");
    }

    #[test]
    fn a_file_that_is_changed_under_the_server_is_an_issue() {
        let mut slot = slot();
        assert!(changed_file(&slot).is_none());
        for (state, code, words) in [
            (FileState::Removed, "disk_file_removed", "was removed"),
            (FileState::Renamed(Some("/srv/b".into())), "disk_file_renamed", "/dev/sdq1 is /srv/b now"),
            (FileState::Renamed(None), "disk_file_renamed", "is not the disk"),
            (FileState::Truncated(1 << 20), "disk_file_truncated", "was cut to 1.00 MiB of 1.00 GiB"),
        ] {
            slot.file = (state, 7);
            let issue = changed_file(&slot).expect(code);
            assert!(
                issue.code == code && issue.since_unix_s == Some(7) && issue.what.contains(words),
                "{issue:?}"
            );
        }
    }

    #[test]
    fn health_tells_of_a_damaged_partition_table_whether_it_could_be_repaired_or_not() {
        let mut slot = slot();
        assert!(table_fault(&slot).is_none());
        slot.table = TableState::Repaired("the first copy");
        let issue = table_fault(&slot).expect("an issue");
        assert!(issue.what.contains("/dev/sdq1") && issue.what.contains("written again"), "{issue:?}");
        slot.table = TableState::Damaged("the first copy", "it cannot be written: no".to_owned());
        let issue = table_fault(&slot).expect("an issue");
        assert!(issue.what.contains("is damaged on /dev/sdq1: it cannot be written"), "{issue:?}");
    }
}
