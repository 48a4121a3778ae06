//! Pools as the control plane is shown them.

use super::SINCE_SEEN;
use api::model::{Disk, Health, HealthIssue, Pool};
use node::disk_slot::DiskSlot;
use node::disks::Disks;
use node::pools::{PoolEntry, Pools};
use node::records::Keeper;
use types::size::show_size;

/// Shows all pools; `disks`: as they are shown.
pub(super) fn show_pools(pools: &Pools, disks: &[Disk]) -> Vec<Pool> {
    pools.entries().values().map(|entry| show_pool(entry, disks)).collect()
}

fn show_pool(entry: &PoolEntry, disks: &[Disk]) -> Pool {
    let own = || disks.iter().filter(|disk| disk.pool == Some(entry.record.id));
    let mut sizes: Vec<u64> = own().map(|disk| disk.size_bytes).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    Pool {
        id: entry.record.id,
        name: entry.record.name.clone(),
        health: own().map(|disk| disk.health).max().unwrap_or(Health::Unhealthy).min(Health::Warning),
        disks: own().count() as u32,
        slab_bytes: entry.slab_bytes,
        size_bytes: own().map(|disk| disk.size_bytes).sum(),
        allocated_bytes: own().map(|disk| disk.allocated_bytes).sum(),
        reserve_disks: entry.record.reserve_disks,
        reserve_bytes: sizes.iter().take(entry.record.reserve_disks as usize).sum(),
    }
}

/// Tells what is wrong with a pool.
pub(super) fn pool_issues(pool: &Pool, disks: &Disks, keeper: &Keeper) -> Vec<HealthIssue> {
    let mut issues = Vec::new();
    if let Some(why) = keeper.trouble(pool.id) {
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
    let slots = disks.slots();
    let own = || slots.values().filter(|slot| slot.record.pool == pool.id);
    let free = |slot: &DiskSlot| {
        let free = |store: &node::DiskStore| store.with(|store| u64::from(store.free_slabs()));
        slot.store().map_or(0, |store| free(store) * slot.record.slab_bytes)
    };
    let free: u64 = own().filter(|slot| slot.is_usable()).map(free).sum();
    let absent = own().filter(|slot| !slot.is_usable()).count() as u32;
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
