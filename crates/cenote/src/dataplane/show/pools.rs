//! Pools as the control plane is shown them.

use super::SINCE_SEEN;
use api::model::{Disk, Health, HealthIssue, Pool, Provisioning, Volume, VolumeStatus};
use node::Node;
use node::disk_slot::DiskSlot;
use node::pools::{PoolEntry, Pools};
use types::size::show_size;

/// Shows all pools; `disks`: in their shown form.
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
        reserve_is_set: entry.record.reserve_is_set == Some(true),
        reserve_bytes: sizes.iter().take(entry.record.reserve_disks as usize).sum(),
    }
}

/// Fill levels, in percent, at which a thin pool warns, warns again, and is unhealthy.
const THRESHOLDS_PERCENT: [u64; 3] = [70, 85, 95];

/// How full a pool is for thin volumes.
struct Fill<'a> {
    /// In slabs: given or promised, and all that data may take.
    slabs: (u64, u64),
    slab_bytes: u64,
    /// Thin volumes that have not all of their slabs yet.
    thin: usize,
    /// Thin volumes that lack a slab for a copy.
    refused: Vec<&'a str>,
}

/// Reports a pool's issues; `volumes`: in their shown form.
pub(super) fn pool_issues(pool: &Pool, node: &Node, volumes: &[Volume]) -> Vec<HealthIssue> {
    let mut issues = Vec::new();
    if let Some(why) = node.keeper.trouble(pool.id) {
        issues.push(HealthIssue {
            health: Health::Unhealthy,
            code: "pool_records".to_owned(),
            target: format!("pool {}", pool.name),
            since_unix_s: SINCE_SEEN,
            server: None,
            what: format!("its disks do not all carry its newest records: {why}"),
            meaning: "All data is served. If the server's state is lost now, an import does not know the volumes that were \
                      made since, and would give their space away."
                .to_owned(),
            action: match node.keeper.lacks_room(pool.id) {
                true => "Delete volumes that are not needed, or copy some to another pool and delete them here, until this goes. Keep a copy of \
                         the cluster's state until then."
                    .to_owned(),
                false => "See to the disk that is named: replace it if it stays so. Keep a copy of the cluster's state until then.".to_owned(),
            },
        });
    }
    let follows =
        node.pools.entries().get(&pool.id).is_some_and(|entry| entry.record.reserve_is_set == Some(false));
    issues.extend(low_reserve_issue(pool, node.disks.usual_reserve(pool.id), follows));
    issues.extend(reserve_issue(pool, node));
    issues.extend(node.pools.space(pool.id).and_then(|space| {
        let grows = |volume: &&Volume| {
            let all = volume.size_bytes.div_ceil(pool.slab_bytes.max(1)) * u64::from(volume.copies);
            volume.pool == pool.id
                && volume.provisioning == Provisioning::Thin
                && volume.status != VolumeStatus::Detached
                && volume.footprint_bytes.is_some_and(|taken| taken < all * pool.slab_bytes)
                // Only the owner of a volume knows how it grows.
                && !node.volumes.is_elsewhere(volume.id)
        };
        let thin: Vec<&Volume> = volumes.iter().filter(grows).collect();
        let has_none = |volume: &&&Volume| {
            space.with_volume(volume.id, |coordinator| {
                let all = volume.size_bytes.div_ceil(pool.slab_bytes.max(1));
                coordinator.allocated_chunk_counts().0 < all && coordinator.size().available.0 == 0
            }) == Some(true)
        };
        let refused = thin.iter().filter(has_none).map(|volume| volume.name.as_str()).collect();
        fill_issue(
            pool,
            &Fill { slabs: space.fill(), slab_bytes: pool.slab_bytes, thin: thin.len(), refused },
        )
    }));
    issues
}

/// Reports that a pool is full, or will be.
fn fill_issue(pool: &Pool, fill: &Fill<'_>) -> Option<HealthIssue> {
    let [warns, warns_again, is_unhealthy] = THRESHOLDS_PERCENT;
    let (used, all) = fill.slabs;
    let percent = used * 100 / all.max(1);
    let is_full = !fill.refused.is_empty();
    if fill.thin == 0 || !is_full && percent < warns {
        return None;
    }
    let name = &pool.name;
    let amount = format!(
        "volumes take {} of the {} for data ({percent} %); {} are kept for repair",
        show_size(used * fill.slab_bytes),
        show_size(all * fill.slab_bytes),
        show_size(pool.reserve_bytes)
    );
    let what = match is_full {
        true => format!(
            "the pool is full: no room is left for volumes to grow ({}); {amount}",
            fill.refused.join(", ")
        ),
        false => format!(
            "{amount}; health warns from {warns} and {warns_again} %, and is unhealthy from {is_unhealthy} %"
        ),
    };
    let meaning = match (is_full, percent >= warns_again) {
        (true, _) => "New data is refused (STATUS_DISK_FULL). What is there stays right.",
        (false, true) => {
            "Thin volumes are promised more than there is. Soon new data is refused (STATUS_DISK_FULL)."
        }
        (false, false) => {
            "Thin volumes are promised more than there is. When the pool is full, new data is refused."
        }
    };
    Some(HealthIssue {
        health: if is_full || percent >= is_unhealthy { Health::Unhealthy } else { Health::Warning },
        // The code changes at the second threshold, for programs.
        code: match () {
            () if is_full => "pool_full",
            () if percent >= warns_again => "pool_nearly_full",
            () => "pool_filling",
        }
        .to_owned(),
        target: format!("pool {name}"),
        since_unix_s: SINCE_SEEN,
        server: None,
        what,
        meaning: meaning.to_owned(),
        action: format!("Add a disk (`cenote disk add PATH --pool {name}`), or delete files or volumes."),
    })
}

/// Reports an unusually small default reserve. `follows`: it follows the number of disks.
fn low_reserve_issue(pool: &Pool, usual: u32, follows: bool) -> Option<HealthIssue> {
    let kept = pool.reserve_disks;
    if pool.reserve_is_set || kept >= usual {
        return None;
    }
    let (why, otherwise) = match follows {
        true => (
            "for which it is too full, or a disk is away",
            "Add a disk or delete data: the reserve is then taken by itself. Or choose: ",
        ),
        false => ("which its record of an earlier release does not follow by itself", ""),
    };
    let what = format!(
        "{kept} of its disks' sizes are kept free for repair; with so many disks {usual} are usual, {why}"
    );
    let name = &pool.name;
    let action = format!(
        "{otherwise}`cenote pool set {name} --reserve-disks {usual}` keeps that much free, `--reserve-disks {kept}` leaves it so without \
         this warning."
    );
    Some(reserve_warning(pool, "pool_reserve_low", what, action))
}

/// Reports that less space is free than is reserved for repair.
fn reserve_issue(pool: &Pool, node: &Node) -> Option<HealthIssue> {
    let slots = node.disks.slots();
    let own = || slots.values().filter(|slot| slot.record.pool == pool.id);
    let free = |slot: &DiskSlot| {
        let free = |store: &node::DiskStore| store.with(|store| u64::from(store.free_slabs()));
        slot.store().map_or(0, |store| free(store) * slot.record.slab_bytes)
    };
    let mut free: u64 = own().filter(|slot| slot.is_usable()).map(free).sum();
    let mut absent = own().filter(|slot| !slot.is_usable()).count() as u32;
    if let Some(space) = node.pools.space(pool.id) {
        for disk in space.disks().into_iter().filter(|disk| space.is_remote(disk.disk)) {
            match node.peers.is_down(disk.disk) {
                true => absent += 1,
                false => free += disk.free_slabs * pool.slab_bytes,
            }
        }
    }
    if absent >= pool.reserve_disks || free >= pool.reserve_bytes {
        return None;
    }
    let kept = show_size(pool.reserve_bytes);
    let what = format!("{} is free, less than the {kept} kept for repair", show_size(free));
    Some(reserve_warning(pool, "pool_reserve", what, "Add a disk, or delete data.".to_owned()))
}

fn reserve_warning(pool: &Pool, code: &str, what: String, action: String) -> HealthIssue {
    HealthIssue {
        health: Health::Warning,
        code: code.to_owned(),
        target: format!("pool {}", pool.name),
        since_unix_s: SINCE_SEEN,
        server: None,
        what,
        meaning: "If a disk is lost, there is no space for new copies of all of its data.".to_owned(),
        action,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PoolId;

    const GIB: u64 = 1 << 30;

    fn pool() -> Pool {
        Pool {
            id: PoolId::from_bytes([1; 16]),
            name: "pool".to_owned(),
            health: Health::Healthy,
            disks: 3,
            slab_bytes: GIB,
            size_bytes: 300 * GIB,
            allocated_bytes: Some(0),
            reserve_bytes: 100 * GIB,
            reserve_disks: 1,
            reserve_is_set: false,
        }
    }

    fn fill(used: u64, thin: usize, refused: Vec<&str>) -> Fill<'_> {
        Fill { slabs: (used, 200), slab_bytes: GIB, thin, refused }
    }

    #[test]
    fn a_pool_with_thin_volumes_warns_at_70_and_85_percent_and_is_unhealthy_at_95_and_when_it_is_full() {
        let told =
            |used| fill_issue(&pool(), &fill(used, 1, Vec::new())).map(|issue| (issue.health, issue.code));
        assert_eq!(told(139), None);
        assert_eq!(told(140), Some((Health::Warning, "pool_filling".to_owned())));
        assert_eq!(told(170), Some((Health::Warning, "pool_nearly_full".to_owned())));
        assert_eq!(told(189), Some((Health::Warning, "pool_nearly_full".to_owned())));
        assert_eq!(told(190), Some((Health::Unhealthy, "pool_nearly_full".to_owned())));
        let issue = fill_issue(&pool(), &fill(150, 1, Vec::new())).expect("an issue");
        for words in ["150 GiB of the 200 GiB", "75 %", "70 and 85 %", "95 %", "100 GiB are kept"] {
            assert!(issue.what.contains(words), "{words}: {issue:?}");
        }
        let full = fill_issue(&pool(), &fill(100, 2, vec!["plans"])).expect("an issue");
        assert!(
            full.health == Health::Unhealthy && full.code == "pool_full" && full.what.contains("plans"),
            "{full:?}"
        );
        assert!(
            fill_issue(&pool(), &fill(200, 0, Vec::new())).is_none(),
            "fixed volumes have what they need"
        );
    }
}
