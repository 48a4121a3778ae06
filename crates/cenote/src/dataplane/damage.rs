//! What disks did to their data, as health tells it, and the files that lost some.
//!
//! Promises: the search for files goes on between other work, a few thousand keys at a time. Never reads data.

use super::snapshot::SINCE_SEEN;
use super::storage::{Damage, DiskSlot, LOST_MAX};
use super::volumes::ServedVolume;
use super::{Plane, failed};
use crate::control::{CommandError, CommandErrorKind};
use crate::size::show_size;
use api::model::{DamagedFile, DamagedRange, Health, HealthIssue, VolumeDamage};
use disk::partition::TableState;
use space::coordinator::Event;
use space::local::LocalEvent;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{BLOCK_BYTES, DiskId, Lba, VolumeId};
use volume::fs::{FsError, OwnedBlocks, OwnerSearch};

/// So many blocks that a disk could not read, or whose checksum failed, are a reason to replace it. A disk remaps a sector when it is
/// written again, and a few in its life are usual; disks with more fail many times as often within weeks.
pub(super) const REPLACE_AT_BLOCKS: u64 = 10;
/// So many lost writes are one. The first may be a cable, a controller or a power supply.
pub(super) const REPLACE_AT_LOST_WRITES: u64 = 2;

/// Keys that are looked at in one go, and how long the search rests after.
const STEP_KEYS: usize = 1000;
const STEP_REST: Duration = Duration::from_millis(1);
/// Ranges listed at most.
const RANGES_MAX: usize = 10_000;

/// What a disk did to its data, as issues. `last`: where it was met last, `files`: whose blocks it was, both in words.
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

/// The partition table that the disk lies in was damaged.
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

impl Plane {
    /// Volume and range in which a fault of the disk was met last.
    pub(super) fn last_fault(&self, disk: DiskId) -> Option<String> {
        self.last_fault_seen(disk).or_else(|| self.storage.last_fault_before(disk))
    }

    fn last_fault_seen(&self, disk: DiskId) -> Option<String> {
        let events = self.storage.events.borrow();
        let (volume, chunk) = events.iter().rev().find_map(|(_, event)| match event {
            LocalEvent::Volume(
                volume,
                Event::CorruptRead { disk: of, chunk, .. }
                | Event::LostWrite { disk: of, chunk, .. }
                | Event::Repaired { disk: of, chunk, .. },
            ) if *of == disk => Some((*volume, chunk.0)),
            _ => None,
        })?;
        let volumes = self.volumes.borrow();
        let entry = volumes.get(&volume)?;
        let pools = self.storage.pools.borrow();
        let slab_bytes = pools.get(&entry.pool)?.slab_bytes;
        let begin = u64::from(chunk) * slab_bytes;
        let end = begin + slab_bytes;
        Some(format!("volume {}, {} to {}", entry.record.name, show_size(begin), show_size(end)))
    }

    /// Paths of the disks on which blocks of the volume were damaged that no copy has intact.
    pub(super) fn disks_of_lost(&self, volume: VolumeId) -> String {
        let is_lost = |lba: &Lba| self.storage.is_lost(volume, *lba);
        let met = self.storage.met_blocks().into_iter();
        let met = met.filter(|((of, _), blocks)| *of == volume && blocks.iter().any(is_lost));
        let disks = self.storage.disks.borrow();
        let mut paths: Vec<&str> =
            met.filter_map(|((_, disk), _)| Some(disks.get(&disk)?.record.path.as_str())).collect();
        paths.sort_unstable();
        paths.join(", ")
    }

    /// An older image of the disk was put back, and it is not yet up to date again.
    pub(super) fn went_back(&self, slot: &DiskSlot) -> Option<HealthIssue> {
        let mut since: BTreeMap<VolumeId, u64> = BTreeMap::new();
        for (unix_s, event) in self.storage.events.borrow().iter() {
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
        let volumes = self.volumes.borrow();
        let names: Vec<&str> =
            since.keys().filter_map(|id| Some(volumes.get(id)?.record.name.as_str())).collect();
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

    /// The files of a volume of which some blocks have no intact copy.
    pub(super) async fn volume_damage(&self, volume: VolumeId) -> Result<VolumeDamage, CommandError> {
        let served = {
            let volumes = self.volumes.borrow();
            let entry = volumes.get(&volume).ok_or_else(|| super::commands::not_found("volume", volume))?;
            entry.served.clone().ok_or_else(|| {
                let name = &entry.record.name;
                let why = format!("volume {name} is not served: see `cenote health`");
                CommandError::new(CommandErrorKind::Unavailable, why)
            })?
        };
        let ranges = self.storage.lost_ranges(volume);
        let blocks = ranges.iter().flat_map(|(first, blocks)| (first.0..first.0 + blocks).map(Lba));
        let lost: Vec<Lba> = blocks.collect();
        let read_only = served.with(|service| service.file_system().read_only().is_some());
        if lost.is_empty() && !read_only {
            return Ok(VolumeDamage::default());
        }
        // No more of them are remembered.
        let truncated = lost.len() >= LOST_MAX;
        let mut search = OwnerSearch::new(lost);
        self.search_owners(&served, &mut search).await?;
        let unreadable_pages = search.pages_unreadable();
        let (owned, others) = search.finish();
        let shown = shown(owned, others);
        Ok(VolumeDamage { truncated: shown.truncated || truncated, unreadable_pages, ..shown })
    }

    async fn search_owners(
        &self,
        served: &ServedVolume,
        search: &mut OwnerSearch,
    ) -> Result<(), CommandError> {
        loop {
            match served.with_mut(|service| search.step(service.file_system_mut(), STEP_KEYS)) {
                Ok(true) => return Ok(()),
                Ok(false) | Err(FsError::Miss) => self.rest(STEP_REST).await,
                Err(why) => {
                    return Err(failed(format!("the volume's structures cannot be read for it: {why}")));
                }
            }
        }
    }
}

fn shown(owned: Vec<OwnedBlocks>, others: usize) -> VolumeDamage {
    let block = BLOCK_BYTES as u64;
    let mut damage = VolumeDamage { other_bytes: others as u64 * block, ..VolumeDamage::default() };
    let mut listed = 0;
    for OwnedBlocks { path, stream, runs } in owned {
        let Some(path) = path else {
            damage.other_bytes += runs.iter().map(|(_, count)| count * block).sum::<u64>();
            continue;
        };
        let room = RANGES_MAX - listed;
        damage.truncated |= runs.len() > room;
        let ranges: Vec<DamagedRange> = runs
            .iter()
            .take(room)
            .map(|(first, count)| DamagedRange { offset_bytes: first * block, length_bytes: count * block })
            .collect();
        listed += ranges.len();
        if ranges.is_empty() {
            continue;
        }
        let mut path = String::from_utf16_lossy(&path);
        if !stream.is_empty() {
            path.push(':');
            path.push_str(&String::from_utf16_lossy(&stream));
        }
        damage.files.push(DamagedFile { path, ranges });
    }
    damage.files.sort_by(|one, other| one.path.cmp(&other.path));
    damage
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{DiskRecord, DiskState, FaultDomain};
    use types::PoolId;

    fn slot() -> DiskSlot {
        DiskSlot::new(DiskRecord {
            id: DiskId::from_bytes([1; 16]),
            pool: PoolId::from_bytes([2; 16]),
            path: "/dev/sdq1".to_owned(),
            size_bytes: 1 << 30,
            slab_bytes: 1 << 20,
            fault_domain: FaultDomain::default(),
            state: DiskState::Healthy,
            since_unix_s: 0,
            scrubbed_unix_s: 0,
        })
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
