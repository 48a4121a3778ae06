//! What the control plane is shown: everything as of one moment.

use super::damage::{disk_faults, table_fault};
use super::storage::{Condition, DiskSlot};
use super::{Plane, VolumeEntry};
use crate::size::show_size;
use api::model::{
    Disk, DiskCounters, DiskStatus, DiskUsage, Health, HealthIssue, HealthReport, Pool, Provisioning,
    Resiliency, Snapshot, Volume, VolumeStatus,
};
use cluster::{DiskState, VolumeRecord};
use types::{BLOCK_BYTES, VolumeId};
use volume::fs::FsError;

/// Stands for a beginning that nothing records: when the issue was first seen. Health is looked at every few seconds.
pub(super) const SINCE_SEEN: u64 = 0;

impl Plane {
    pub fn snapshot(&self) -> Snapshot {
        self.update_jobs();
        let mut issues = Vec::new();
        let disks = self.show_disks(&mut issues);
        let volumes = self.show_volumes(&mut issues);
        let pools = self.show_pools(&disks);
        pools.iter().for_each(|pool| issues.extend(self.pool_issues(pool)));
        issues.extend(self.jobs.borrow().stopped().map(stopped_job));
        self.show_rdma_devices(&mut issues);
        self.date_issues(&mut issues);
        let health = issues.iter().map(|issue| issue.health).max().unwrap_or_default();
        let mut server = self.show_server();
        server.performance.cache_hit_bytes = volumes.iter().map(|volume| volume.cache_hit_bytes).sum();
        server.performance.cache_miss_bytes = volumes.iter().map(|volume| volume.cache_miss_bytes).sum();
        Snapshot {
            disks,
            pools,
            volumes,
            jobs: self.jobs.borrow().list(),
            health: HealthReport { health, issues },
            ..server
        }
    }

    /// Gives issues without a recorded beginning the time at which they were first seen, and forgets those that are gone.
    fn date_issues(&self, issues: &mut [HealthIssue]) {
        let now = super::unix_seconds();
        let mut seen = self.issues_seen.borrow_mut();
        let before = std::mem::take(&mut *seen);
        for issue in issues.iter_mut().filter(|issue| issue.since_unix_s == SINCE_SEEN) {
            let key = (issue.code.clone(), issue.target.clone());
            issue.since_unix_s = before.get(&key).copied().unwrap_or(now);
            seen.insert(key, issue.since_unix_s);
        }
    }

    fn show_disks(&self, issues: &mut Vec<HealthIssue>) -> Vec<Disk> {
        let disks = self.storage.disks.borrow();
        disks.values().map(|slot| self.show_disk(slot, issues)).collect()
    }

    fn show_disk(&self, slot: &DiskSlot, issues: &mut Vec<HealthIssue>) -> Disk {
        let record = &slot.record;
        let retired = record.state == DiskState::Retired;
        let slab_bytes = record.slab_bytes;
        let mut status = if retired { DiskStatus::Retiring } else { DiskStatus::Ok };
        let mut health = if retired { Health::Warning } else { Health::Healthy };
        let damage = self.storage.damage(record.id);
        let (mut allocated_bytes, mut block_bytes, mut rotational) = (0, 0, false);
        match &slot.condition {
            Condition::Present(store) => store.with(|store| {
                allocated_bytes = u64::from(store.slab_count() - store.free_slabs()) * slab_bytes;
                block_bytes = store.disk_info().block_bytes;
                rotational = store.disk_info().rotational;
                if store.is_poisoned() {
                    (status, health) = (DiskStatus::IoError, Health::Unhealthy);
                }
            }),
            Condition::Opening { .. } | Condition::Absent { .. } => {
                (status, health) = (DiskStatus::LostCommunication, Health::Unhealthy);
                issues.push(lost_disk(slot));
            }
        }
        if let Some((why, since_unix_s)) = &slot.unrecorded {
            issues.push(unrecorded_disk(slot, why, *since_unix_s));
        }
        let (last, files) = (self.last_fault(record.id), self.files_damaged_by(record.id));
        let mut told = disk_faults(slot, &damage, last.as_deref(), files.as_deref());
        told.extend(self.went_back(slot));
        told.extend(table_fault(slot));
        if !told.is_empty() {
            health = health.max(Health::Warning);
            issues.extend(told);
        }
        let domain = &record.fault_domain;
        let places = [&domain.rack, &domain.node, &domain.enclosure];
        let named: Vec<&str> =
            places.iter().map(|place| place.as_str()).filter(|place| !place.is_empty()).collect();
        let counters = &slot.counters;
        Disk {
            id: record.id,
            pool: Some(record.pool),
            path: record.path.clone(),
            fault_domain: named.join("/"),
            health,
            status,
            usage: if retired { DiskUsage::Retired } else { DiskUsage::AutoSelect },
            size_bytes: record.size_bytes,
            allocated_bytes,
            block_bytes,
            rotational,
            counters: DiskCounters {
                reads: counters.reads.get(),
                read_bytes: counters.read_bytes.get(),
                writes: counters.writes.get(),
                write_bytes: counters.write_bytes.get(),
                flushes: counters.flushes.get(),
                errors: counters.errors.get(),
                corrupt_blocks: damage.corrupt_blocks,
                repaired_blocks: damage.repaired_blocks,
                medium_errors: damage.medium_errors,
                lost_writes: damage.lost_writes,
            },
            device_health: None,
        }
    }

    fn show_pools(&self, disks: &[Disk]) -> Vec<Pool> {
        let pools = self.storage.pools.borrow();
        let shown = pools.values().map(|entry| {
            let own = || disks.iter().filter(|disk| disk.pool == Some(entry.record.id));
            Pool {
                id: entry.record.id,
                name: entry.record.name.clone(),
                health: own().map(|disk| disk.health).max().unwrap_or(Health::Unhealthy).min(Health::Warning),
                disks: own().count() as u32,
                slab_bytes: entry.slab_bytes,
                size_bytes: own().map(|disk| disk.size_bytes).sum(),
                allocated_bytes: own().map(|disk| disk.allocated_bytes).sum(),
                reserve_disks: entry.record.reserve_disks,
                reserve_bytes: {
                    let mut sizes: Vec<u64> = own().map(|disk| disk.size_bytes).collect();
                    sizes.sort_unstable_by(|a, b| b.cmp(a));
                    sizes.iter().take(entry.record.reserve_disks as usize).sum()
                },
            }
        });
        shown.collect()
    }

    fn show_volumes(&self, issues: &mut Vec<HealthIssue>) -> Vec<Volume> {
        let volumes = self.volumes.borrow();
        volumes.iter().filter_map(|(id, entry)| self.show_volume(*id, entry, issues)).collect()
    }

    fn show_volume(
        &self,
        id: VolumeId,
        entry: &VolumeEntry,
        issues: &mut Vec<HealthIssue>,
    ) -> Option<Volume> {
        let space = self.storage.space(entry.pool)?;
        let running = entry.served.is_some();
        let record = space.record(id).filter(|_| running).unwrap_or_else(|| entry.record.clone());
        let slab_bytes = space_slab_bytes(self, &record);
        let (chunks, few, without_room, slabs) = space
            .with_volume(id, |coordinator| {
                let (chunks, few) = coordinator.settled_chunk_counts();
                let disks = self.storage.disks.borrow();
                let slabs: u64 = disks.keys().map(|disk| coordinator.slabs_on(*disk)).sum();
                (chunks, few, coordinator.chunks_without_room(), slabs)
            })
            .unwrap_or_default();
        let copies = record.resiliency.copies();
        let statistics =
            entry.served.as_ref().map(|served| served.with(|service| service.file_system().statistics()));
        let resyncing = space.jobs().iter().any(|(volume, _)| *volume == id);
        let read_only = entry.served.as_ref().and_then(|served| {
            let (damage, since) = served.with(|service| service.file_system().read_only())?;
            Some((damage, super::unix_seconds().saturating_sub(self.now().since(since).as_secs())))
        });
        let status = match () {
            () if !running => VolumeStatus::Detached,
            () if read_only.is_some() => VolumeStatus::ReadOnly,
            () if few > 0 && copies > 1 && record.stale.is_empty() && resyncing => VolumeStatus::InService,
            () if few > 0 && copies == 2 => VolumeStatus::NoRedundancy,
            () if few > 0 || !record.stale.is_empty() => VolumeStatus::Degraded,
            () => VolumeStatus::Ok,
        };
        let health = match status {
            VolumeStatus::Ok => Health::Healthy,
            VolumeStatus::Detached | VolumeStatus::ReadOnly => Health::Unhealthy,
            _ => Health::Warning,
        };
        if let Some(why) = &entry.failure {
            issues.push(detached_volume(&record, why));
        } else if !running {
            issues.push(self.waiting_volume(&record));
        } else if few > 0 {
            issues.push(degraded_volume(&record, (few, chunks, without_room), resyncing));
        }
        let unwritten = entry.served.as_ref().filter(|_| read_only.is_none()).and_then(|served| {
            served.with(|service| {
                let (error, since) = service.file_system().write_back_failure()?;
                Some((error.clone(), self.now().since(since)))
            })
        });
        if let Some((error, lasted)) = unwritten {
            let since_unix_s = super::unix_seconds().saturating_sub(lasted.as_secs());
            issues.push(unwritten_changes(&record, &error, &self.absent_members(&record), since_unix_s));
        }
        if let Some((damage, since_unix_s)) = &read_only {
            let dirty_bytes = statistics.map_or(0, |found| found.dirty_bytes);
            issues.push(read_only_volume(&record, damage, dirty_bytes, *since_unix_s));
        }
        if let Some((blocks, first, since_unix_s)) = self.storage.lost_blocks(id) {
            let place = (first.0, self.disks_of_lost(id), self.damaged_files_in_words(id, None));
            issues.push(lost_blocks(&record, blocks, &place, since_unix_s));
        }
        let available = statistics.map_or(0, |found| found.available_bytes);
        let total = statistics.map_or(record.size_bytes, |found| found.total_bytes);
        Some(Volume {
            id,
            name: record.name.clone(),
            pool: record.pool,
            health,
            status,
            resiliency: match record.resiliency {
                cluster::Resiliency::Simple => Resiliency::Simple,
                cluster::Resiliency::TwoWay => Resiliency::TwoWayMirror,
                cluster::Resiliency::ThreeWay => Resiliency::ThreeWayMirror,
            },
            provisioning: match record.provisioning {
                cluster::Provisioning::Thin => Provisioning::Thin,
                cluster::Provisioning::Fixed => Provisioning::Fixed,
            },
            size_bytes: total,
            used_bytes: statistics.map_or(0, |found| found.used_bytes),
            available_bytes: available,
            footprint_bytes: slabs * slab_bytes,
            copies,
            in_sync_copies: if few > 0 { copies.saturating_sub(1) } else { copies },
            min_copies: record.min_copies,
            epoch: record.epoch.0,
            stale_bytes: if few > 0 { few * slab_bytes } else { 0 },
            cache_hit_bytes: statistics.map_or(0, |found| found.read_from_cache_bytes),
            cache_miss_bytes: statistics.map_or(0, |found| found.read_from_disk_bytes),
        })
    }
}

impl Plane {
    /// Paths of disks that hold what was written last and are not there.
    fn absent_members(&self, record: &VolumeRecord) -> String {
        let disks = self.storage.disks.borrow();
        let absent =
            disks.values().filter(|slot| slot.store().is_none() && record.in_sync.contains(&slot.record.id));
        absent.map(|slot| slot.record.path.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn waiting_volume(&self, record: &VolumeRecord) -> HealthIssue {
        let absent = self.absent_members(record);
        let what = match absent.is_empty() {
            true => "it is being opened".to_owned(),
            false => format!("it waits for disks that hold what was written last: {absent}"),
        };
        HealthIssue { what, ..detached_volume(record, "") }
    }

    fn pool_issues(&self, pool: &Pool) -> Vec<HealthIssue> {
        let mut issues = Vec::new();
        if let Some(why) = self.storage.keeper.trouble(pool.id) {
            issues.push(HealthIssue {
                health: Health::Warning,
                code: "pool_records".to_owned(),
                target: format!("pool {}", pool.name),
                since_unix_s: SINCE_SEEN,
                what: format!("its disks do not all carry its newest records: {why}"),
                meaning: "All data is served. If the server's state is lost now, an import may not know what changed last."
                    .to_owned(),
                action: "Keep a copy of state.redb, and see to the disk that is named.".to_owned(),
            });
        }
        let usable = |disk: &&super::storage::DiskSlot| {
            disk.record.pool == pool.id && disk.store().is_some() && disk.record.state != DiskState::Retired
        };
        let disks = self.storage.disks.borrow();
        let free = |disk: &super::storage::DiskSlot| {
            disk.store()
                .map_or(0, |store| store.with(|store| u64::from(store.free_slabs()) * disk.record.slab_bytes))
        };
        let free: u64 = disks.values().filter(usable).map(free).sum();
        let absent =
            disks.values().filter(|disk| disk.record.pool == pool.id && !usable(disk)).count() as u32;
        if absent < pool.reserve_disks && free < pool.reserve_bytes {
            issues.push(HealthIssue {
                health: Health::Warning,
                code: "pool_reserve".to_owned(),
                target: format!("pool {}", pool.name),
                since_unix_s: SINCE_SEEN,
                what: format!(
                    "{} is free, less than the {} kept for repair",
                    show_size(free),
                    show_size(pool.reserve_bytes)
                ),
                meaning: "When a disk is lost, not all of its data can be given a new copy.".to_owned(),
                action: "Add a disk, or delete data.".to_owned(),
            });
        }
        issues
    }
}

fn stopped_job(job: &api::model::Job) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: "job_stopped".to_owned(),
        target: format!("job {}", job.id),
        since_unix_s: job.started_unix_s,
        what: format!("a job on {} was stopped by the administrator", job.target),
        meaning: "Copies that it would make are not made: the loss of another disk may lose data.".to_owned(),
        action: format!("Let it go on: `cenote job resume {}`.", job.id),
    }
}

fn space_slab_bytes(plane: &Plane, record: &VolumeRecord) -> u64 {
    let pools = plane.storage.pools.borrow();
    pools.get(&record.pool).map_or(BLOCK_BYTES as u64, |entry| entry.slab_bytes)
}

fn lost_disk(slot: &DiskSlot) -> HealthIssue {
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
        action: format!(
            "Bring the disk back at {}: it is found by itself. If it stays away, its data is copied to other disks after the \
             repair delay; `cenote disk retire {}` does that at once.",
            slot.record.path, slot.record.id
        ),
    }
}

fn unrecorded_disk(slot: &DiskSlot, why: &str, since_unix_s: u64) -> HealthIssue {
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

fn degraded_volume(
    record: &VolumeRecord,
    (few, chunks, without_room): (u64, u64, u64),
    working: bool,
) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: "volume_degraded".to_owned(),
        target: format!("volume {}", record.name),
        since_unix_s: SINCE_SEEN,
        what: format!("{few} of {chunks} pieces have fewer copies than they should"),
        meaning: "Data can be read as long as their other copies can be reached. The loss of one more disk may lose data of these pieces."
            .to_owned(),
        action: if without_room > 0 && !working {
            format!(
                "For {without_room} of them no disk in another fault domain has room: add a disk, or delete data. Copies are then \
                 made by themselves."
            )
        } else if working {
            "Copies are being made: see `cenote job list`.".to_owned()
        } else {
            "Bring missing disks back, or add a disk to the pool: copies are then made by themselves."
                .to_owned()
        },
    }
}

/// `absent`: paths of members that are not there.
fn unwritten_changes(record: &VolumeRecord, error: &FsError, absent: &str, since_unix_s: u64) -> HealthIssue {
    let waits = "Nothing is lost: what was acknowledged as durable is on the disks, the rest stays in memory and would be lost in a crash, as \
                 always. What is there can be read. Who waits for a write is answered with the error after half a minute.";
    let again = "It is tried again by itself, every 30 seconds at the latest.";
    let (what, meaning, action) = match error {
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
            format!("See to the disks and to the cluster state, as other issues name them. {again}"),
        ),
        error => (
            format!("changes in memory cannot be written: {error}"),
            "What clients have not been told is durable may be lost in a crash. They are told of the error when they flush or close a \
             file; what memory has no room for is refused.",
            format!("See to the disks that are named. {again}"),
        ),
    };
    HealthIssue {
        health: Health::Unhealthy,
        code: "volume_unwritten".to_owned(),
        target: format!("volume {}", record.name),
        since_unix_s,
        what,
        meaning: meaning.to_owned(),
        action,
    }
}

/// `dirty_bytes`: what clients wrote before and cannot be stored.
fn read_only_volume(
    record: &VolumeRecord,
    damage: &FsError,
    dirty_bytes: u64,
    since_unix_s: u64,
) -> HealthIssue {
    let name = &record.name;
    let dirty = match dirty_bytes {
        0 => String::new(),
        bytes => format!(
            " {} that clients wrote before is in memory only, and would be lost in a restart.",
            show_size(bytes)
        ),
    };
    HealthIssue {
        health: Health::Unhealthy,
        code: "volume_read_only".to_owned(),
        target: format!("volume {name}"),
        since_unix_s,
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

/// The first block, the disks that are known to have damaged it, and the files, in words.
fn lost_blocks(
    record: &VolumeRecord,
    blocks: usize,
    (first, disks, files): &(u64, String, String),
    since_unix_s: u64,
) -> HealthIssue {
    let on = if disks.is_empty() { String::new() } else { format!(" on {disks}") };
    let at = show_size(first * BLOCK_BYTES as u64);
    HealthIssue {
        health: Health::Unhealthy,
        code: "volume_lost_blocks".to_owned(),
        target: format!("volume {}", record.name),
        since_unix_s,
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

fn detached_volume(record: &VolumeRecord, why: &str) -> HealthIssue {
    HealthIssue {
        health: Health::Unhealthy,
        code: "volume_detached".to_owned(),
        target: format!("volume {}", record.name),
        since_unix_s: SINCE_SEEN,
        what: format!("it is not served: {why}"),
        meaning: "Its files cannot be reached. Nothing on its disks is changed meanwhile.".to_owned(),
        action: "Bring missing disks back: it is opened by itself, and tried again from time to time."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{FsError, read_only_volume, show_size, unwritten_changes};
    use cluster::{Provisioning, Resiliency, VolumeRecord};
    use types::{Lba, PoolId, VolumeId};

    #[test]
    fn health_says_why_a_volume_is_read_only_and_what_to_do() {
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (two, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, "plans", two, 1 << 30, thin, Vec::new(), 0);
        let damage = FsError::ReadOnly { what: "tree page", lba: Lba(1160) };
        let issue = read_only_volume(&record, &damage, 8192, 7);
        assert_eq!((issue.code.as_str(), issue.since_unix_s), ("volume_read_only", 7));
        assert!(issue.what.contains("can only be read") && issue.what.contains("1160"), "{issue:?}");
        assert!(issue.meaning.contains(&show_size(8192)), "{issue:?}");
        assert!(issue.action.contains("cenote volume damage plans"), "{issue:?}");
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
            let issue = unwritten_changes(&record, &error, absent, 7);
            assert!(issue.what.contains(what) && issue.action.contains(action), "{issue:?}");
            assert!(issue.meaning.starts_with("Nothing is lost"), "{issue:?}");
            assert_eq!((issue.since_unix_s, issue.target.as_str()), (7, "volume plans"));
        }
    }
}
