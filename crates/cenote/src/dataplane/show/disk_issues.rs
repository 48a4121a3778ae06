//! Health issues of disks: what each did to its data, and why it cannot be used.

use super::SINCE_SEEN;
use api::model::{Health, HealthIssue};
use cluster::DiskState;
use disk::partition::TableState;
use node::damage::Damage;
use node::disk_slot::DiskSlot;
use node::events::Events;
use node::volumes::Volumes;
use space::coordinator::Event;
use space::local::LocalEvent;
use std::collections::BTreeMap;
use types::VolumeId;

/// Blocks that a disk could not read, or whose checksum failed, that are a reason to replace it. A disk remaps a sector when it is
/// written again, and a few in its life are usual; disks with more fail many times as often within weeks.
const REPLACE_AT_BLOCKS: u64 = 10;
/// Lost writes that are a reason to replace a disk. The first may be a cable, a controller or a power supply.
const REPLACE_AT_LOST_WRITES: u64 = 2;

/// Tells what a disk did to its data. `last`: the place of the last fault, `files`: those that were damaged, both in words.
pub(super) fn disk_faults(
    slot: &DiskSlot,
    damage: &Damage,
    last: Option<&str>,
    files: Option<&str>,
) -> Vec<HealthIssue> {
    let path = &slot.record.path;
    let Damage { medium_errors, lost_writes, corrupt_blocks, repaired_blocks } = *damage;
    let rotten = corrupt_blocks.saturating_sub(medium_errors);
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
    let met = kinds.into_iter().filter(|(_, count, ..)| *count > 0);
    met.map(|(code, count, replace_at, what, action)| HealthIssue {
            health: Health::Warning,
            code: code.to_owned(),
            target: format!("disk {}", slot.record.id),
            since_unix_s: SINCE_SEEN,
            what: {
                let mut what = format!("{what}; {repaired_blocks} blocks of the disk were written again from another copy");
                what.extend(last.map(|last| format!("; the last: {last}")));
                what.extend(files.map(|files| format!("; affected: {files}")));
                what
            },
            meaning: "They are read from another copy and written again if there is one: nothing wrong was returned. Blocks without \
                      an intact copy are an issue of their volume."
                .to_owned(),
            action: match count >= replace_at {
                true => format!("Replace the disk: `cenote disk replace {} NEW`.", slot.record.id),
                false => format!("{action}. If there are {replace_at} or more, replace it."),
            },
        })
        .collect()
}

/// Tells that the partition table was damaged that the disk lies in.
pub(super) fn table_fault(slot: &DiskSlot) -> Option<HealthIssue> {
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
    Some(HealthIssue {
        health: Health::Warning,
        code: "disk_partition_table".to_owned(),
        target: format!("disk {}", slot.record.id),
        since_unix_s: SINCE_SEEN,
        what,
        meaning:
            "No data is concerned: the disk is found by either copy. Without both, it could not be found."
                .to_owned(),
        action,
    })
}

/// Tells that an older image of the disk was put back, and it is not yet up to date again.
pub(super) fn went_back(slot: &DiskSlot, events: &Events, volumes: &Volumes) -> Option<HealthIssue> {
    let mut since: BTreeMap<VolumeId, u64> = BTreeMap::new();
    for (unix_s, event) in events.log().iter() {
        match event {
            LocalEvent::Volume(volume, Event::WentBack { disk, .. }) if *disk == slot.record.id => {
                since.entry(*volume).or_insert(*unix_s);
            }
            LocalEvent::Volume(volume, Event::DiskJoined { disk }) if *disk == slot.record.id => {
                since.remove(volume);
            }
            _ => {}
        }
    }
    let since_unix_s = *since.values().min()?;
    let entries = volumes.entries();
    let names: Vec<&str> =
        since.keys().filter_map(|id| Some(entries.get(id)?.record.name.as_str())).collect();
    Some(HealthIssue {
        health: Health::Warning,
        code: "disk_went_back".to_owned(),
        target: format!("disk {}", slot.record.id),
        since_unix_s,
        what: format!(
            "{} holds less than it had promised for {}: an older image of it was put back, or it lost writes",
            slot.record.path,
            names.join(", ")
        ),
        meaning: "Nothing is read from it until all of it was compared with the other copies and brought up to date.".to_owned(),
        action: "Nothing: see `cenote job list`. Do not put back images of single disks; if nobody did, replace the disk."
            .to_owned(),
    })
}

/// Tells why a disk cannot be used.
pub(super) fn lost_disk(slot: &DiskSlot) -> HealthIssue {
    HealthIssue {
        health: Health::Unhealthy,
        code: "disk_lost".to_owned(),
        target: format!("disk {}", slot.record.id),
        since_unix_s: match slot.record.state {
            DiskState::Missing | DiskState::Failed => slot.record.since_unix_s,
            DiskState::Healthy | DiskState::Retired => slot.since_unix_s,
        },
        what: format!("{} cannot be used: {}", slot.record.path, slot.why),
        meaning: "Data with copies on other disks can be read and written; these copies miss what is written meanwhile."
            .to_owned(),
        action: if slot.is_damaged {
            format!(
                "Its data is copied to the pool's other disks by itself, as far as there is room: see `cenote job list`. Then replace \
                 the disk: `cenote disk replace {}`.",
                slot.record.id
            )
        } else {
            format!(
            "Bring the disk back at {}: it is found by itself. If it stays away, its data is copied to other disks after the \
             repair delay; `cenote disk retire {}` does that at once.",
                slot.record.path, slot.record.id
            )
        },
    }
}

/// Tells why the state of a disk cannot be written down.
pub(super) fn unrecorded_disk(slot: &DiskSlot, why: &str, since_unix_s: u64) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: "disk_unrecorded".to_owned(),
        target: format!("disk {}", slot.record.id),
        since_unix_s,
        what: format!("the state of {} cannot be written to the cluster state: {why}", slot.record.path),
        meaning: "All data is served. After a restart the server may look for the disk where it was, or believe that it is there."
            .to_owned(),
        action: "See to the file system that the data directory is on: room, permissions, errors. It is tried again by itself."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{DiskRecord, FaultDomain};
    use types::{DiskId, PoolId};

    fn slot() -> DiskSlot {
        let record = DiskRecord {
            id: DiskId::from_bytes([1; 16]),
            pool: PoolId::from_bytes([2; 16]),
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
    fn a_damaged_disk_is_to_be_replaced_and_an_absent_one_brought_back() {
        let mut slot = slot();
        assert!(lost_disk(&slot).action.contains("Bring the disk back at /dev/sdq1"));
        slot.is_damaged = true;
        assert!(lost_disk(&slot).action.contains("cenote disk replace"));
    }

    #[test]
    fn health_names_disk_place_files_what_was_done_and_what_to_do() {
        let damage = Damage { medium_errors: 2, corrupt_blocks: 2, repaired_blocks: 2, lost_writes: 0 };
        let place = "volume plans, 64MiB to 128MiB";
        let issues = disk_faults(&slot(), &damage, Some(place), Some(r"on volume plans: file a\b"));
        let [issue] = &issues[..] else { panic!("{issues:?}") };
        for words in ["2 blocks", "/dev/sdq1", "2 blocks of the disk were written again", place, r"file a\b"]
        {
            assert!(issue.what.contains(words), "{words}: {issue:?}");
        }
        assert!(issue.action.contains("10 or more"), "{issue:?}");
        let more = Damage { medium_errors: 10, corrupt_blocks: 10, ..damage };
        let issues = disk_faults(&slot(), &more, None, None);
        assert!(issues[0].action.contains("cenote disk replace"), "{issues:?}");
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
