//! Disks as the control plane is shown them.

use api::model::{Disk, DiskCounters, DiskStatus, DiskUsage, Health, HealthIssue};
use node::damage::Damage;
use node::disk_issues::{
    absent_disk, changed_file, disk_faults, full_host, older_image, promise_beyond, retiring_disk, slow_disk,
    table_fault, unrecorded_disk, went_back,
};
use node::disk_slot::{Condition, DiskSlot};
use node::{Node, Recorded};
use records::{DiskRecord, DiskState, FaultDomain};
use types::Issue;

/// Shows all disks, and adds their issues.
pub(super) fn show_disks(node: &Node, issues: &mut Vec<HealthIssue>) -> Vec<Disk> {
    let recorded = node.promises.recorded();
    let mut disks: Vec<Disk> =
        node.disks.slots().values().map(|slot| show_disk((node, &recorded), slot, issues)).collect();
    disks.extend(node.peers.disks().values().map(|record| show_remote_disk(node, record)));
    disks
}

/// Shows another node's disk, about which that node knows more.
fn show_remote_disk(node: &Node, record: &DiskRecord) -> Disk {
    let is_retired = record.state == DiskState::Retired;
    let (status, health) = match () {
        () if node.peers.is_down(record.id) => (DiskStatus::LostCommunication, Health::Unhealthy),
        () if is_retired => (DiskStatus::Retiring, Health::Warning),
        () => (DiskStatus::Ok, Health::Healthy),
    };
    let listed = node.pools.space(record.pool).map(|space| space.disks()).unwrap_or_default();
    let slabs = listed.iter().find(|disk| disk.disk == record.id);
    let given = slabs.map(|disk| disk.total_slabs.saturating_sub(disk.free_slabs) * record.slab_bytes);
    // The present contents of a missing disk are unknown.
    let allocated_bytes = given.filter(|_| status != DiskStatus::LostCommunication);
    Disk { health, status, allocated_bytes, ..as_recorded(record) }
}

/// `recorded`: the records of all volumes, read once for all disks.
fn show_disk((node, recorded): (&Node, &Recorded), slot: &DiskSlot, issues: &mut Vec<HealthIssue>) -> Disk {
    let record = &slot.record;
    let is_retired = record.state == DiskState::Retired;
    let slab_bytes = record.slab_bytes;
    let mut status = if is_retired { DiskStatus::Retiring } else { DiskStatus::Ok };
    let mut health = if is_retired { Health::Warning } else { Health::Healthy };
    let (mut allocated_bytes, mut block_bytes, mut rotational) = (None, None, None);
    match &slot.condition {
        Condition::Present(store) => store.with(|store| {
            allocated_bytes = Some(u64::from(store.slab_count() - store.free_slabs()) * slab_bytes);
            block_bytes = Some(store.disk_info().block_bytes);
            rotational = Some(store.disk_info().rotational);
            if store.is_poisoned() {
                (status, health) = (DiskStatus::IoError, Health::Unhealthy);
            }
        }),
        Condition::Opening { .. } | Condition::Absent { .. } => {
            let now = node.tasks.now();
            status = match slot.first_opening(now) {
                Some(_) => DiskStatus::Starting,
                None => DiskStatus::LostCommunication,
            };
            if let Some(absent) = absent_disk(slot, now) {
                health = health.max(absent.severity.into());
                issues.push(absent.into());
            }
        }
    }
    if is_retired {
        issues.push(retiring_disk(slot, node.jobs.borrow().retirement_in_the_way(record.id)).into());
    }
    if let Some(changed) = slot.store().and_then(|_| changed_file(slot)) {
        health = health.max(changed.severity.into());
        issues.push(changed.into());
    }
    if let Some(full) = slot.host_full() {
        health = Health::Unhealthy;
        issues.push(full_host(slot, full).into());
    }
    if let Some(slow) = slot.store().and_then(|_| slot.slow()) {
        health = health.max(Health::Warning);
        issues.push(slow_disk(slot, slow).into());
    }
    if let Some((why, since_unix_s)) = &slot.unrecorded {
        issues.push(unrecorded_disk(slot, why, *since_unix_s).into());
    }
    let damage = node.damage.of(record.id, slot.store());
    let told = damage_issues((node, recorded), slot, &damage);
    if !told.is_empty() {
        health = health.max(Health::Warning);
        issues.extend(told.into_iter().map(HealthIssue::from));
    }
    Disk {
        health,
        status,
        allocated_bytes,
        block_bytes,
        rotational,
        counters: Some(show_counters(slot, &damage, &node.damage.acknowledged(record.id))),
        ..as_recorded(record)
    }
}

/// Shows a disk by its record alone: without its state and contents.
fn as_recorded(record: &DiskRecord) -> Disk {
    let is_retired = record.state == DiskState::Retired;
    Disk {
        id: record.id,
        pool: Some(record.pool),
        path: record.path.clone(),
        fault_domain: show_fault_domain(&record.fault_domain),
        health: Health::Healthy,
        status: DiskStatus::Ok,
        usage: if is_retired { DiskUsage::Retired } else { DiskUsage::AutoSelect },
        size_bytes: record.size_bytes,
        allocated_bytes: None,
        block_bytes: None,
        rotational: None,
        counters: None,
        server: None,
        device_health: None,
    }
}

fn damage_issues((node, recorded): (&Node, &Recorded), slot: &DiskSlot, damage: &Damage) -> Vec<Issue> {
    let disk = slot.record.id;
    let (last, files) = (node.damage_keeper.last_fault(disk), node.damaged_files.of_disk_in_words(disk));
    let acknowledged = node.damage.acknowledged(disk);
    let mut told = disk_faults(slot, damage, &acknowledged, last.as_deref(), files.as_deref());
    let behind = node.promises.behind(disk, recorded);
    told.extend(older_image(slot, &behind).or_else(|| went_back(slot, &node.events, &node.volumes)));
    told.extend(table_fault(slot));
    told.extend(promise_beyond(slot, &node.promises.beyond(disk, recorded)));
    told
}

fn show_fault_domain(domain: &FaultDomain) -> String {
    let places = [&domain.rack, &domain.node, &domain.enclosure];
    let named: Vec<&str> =
        places.iter().map(|place| place.as_str()).filter(|place| !place.is_empty()).collect();
    named.join("/")
}

fn show_counters(slot: &DiskSlot, damage: &Damage, acknowledged: &Damage) -> DiskCounters {
    let counters = &slot.counters;
    DiskCounters {
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
        acknowledged_corrupt_blocks: acknowledged.corrupt_blocks,
        acknowledged_medium_errors: acknowledged.medium_errors,
        acknowledged_lost_writes: acknowledged.lost_writes,
    }
}
