//! Volumes as the control plane is shown them.

use api::model::{Health, HealthIssue, Provisioning, Resiliency, Volume, VolumeStatus};
use node::Node;
use node::disk_issues::{IMPORT_ANEW, LONG_OPENING};
use node::disks::Disks;
use node::volume_issues::{
    degraded_volume, detached_volume, full_volume, lost_blocks, read_only_volume, unreached_volume,
    unwritten_changes, volume_of_older_images,
};
use node::volumes::VolumeEntry;
use records::VolumeRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{BLOCK_BYTES, DiskId, Issue, Lba, NodeId, VolumeId};
use volume::fs::FsError;

/// Shows all volumes, and adds their issues.
pub(super) fn show_volumes(node: &Node, issues: &mut Vec<HealthIssue>) -> Vec<Volume> {
    let entries = node.volumes.entries();
    let shown = entries.iter().filter(|(_, entry)| !entry.is_hidden);
    shown.filter_map(|(id, entry)| show_volume(node, *id, entry, issues)).collect()
}

/// The copies of a volume's chunks.
#[derive(Default)]
struct Copies {
    /// Chunks that have data.
    chunks: u64,
    /// Chunks with fewer copies than they should have, and those of them for which no disk has space.
    few: u64,
    without_room: u64,
    /// Slabs on each disk that has some; `None`: known to another node only.
    slabs: Option<BTreeMap<DiskId, u64>>,
    /// A job makes copies.
    in_work: bool,
}

/// A volume's state at the moment.
struct Looked {
    record: VolumeRecord,
    is_served: bool,
    /// Whether another live node serves it.
    is_elsewhere: bool,
    /// Time for which that node has not answered.
    unreached_for: Option<Duration>,
    /// A disk of the pool misses writes of the volume.
    has_stale: bool,
    copies: Copies,
    /// The damage that lets it only be read, and since when (Unix seconds).
    read_only: Option<(FsError, u64)>,
    statistics: Option<volume::fs::Statistics>,
}

fn look(node: &Node, id: VolumeId, entry: &VolumeEntry) -> Option<Looked> {
    let space = node.pools.space(entry.pool)?;
    let is_served = entry.served.is_some();
    let record = space.record(id).filter(|_| is_served).unwrap_or_else(|| entry.record.clone());
    let disks = space.disks();
    let copies = space.with_volume(id, |coordinator| {
        let (chunks, few) = coordinator.allocated_chunk_counts();
        let slabs = disks.iter().map(|disk| (disk.disk, coordinator.slabs_on(disk.disk)));
        let slabs = is_served.then(|| slabs.filter(|(_, count)| *count > 0).collect());
        Copies { chunks, few, without_room: coordinator.chunks_without_room(), slabs, in_work: false }
    });
    let in_work = space.jobs().iter().any(|(volume, _)| *volume == id);
    let read_only = entry.served.as_ref().and_then(|served| {
        let (damage, since) = served.with(|service| service.file_system().read_only())?;
        let lasted = node.tasks.now().since(since);
        Some((damage, node.tasks.unix_seconds().saturating_sub(lasted.as_secs())))
    });
    let statistics =
        entry.served.as_ref().map(|served| served.with(|service| service.file_system().statistics()));
    let copies = Copies { in_work, ..copies.unwrap_or_default() };
    let is_elsewhere =
        entry.is_elsewhere && node.peers.owner(id).is_some_and(|owner| node.peers.is_up(owner));
    let unreached_for = match is_elsewhere {
        true => node.peers.owner_unreached_for(&record, node.tasks.now()),
        false => None,
    };
    let (slots, others) = (node.disks.slots(), node.peers.disks());
    let is_of_pool = |disk: &DiskId| slots.contains_key(disk) || others.contains_key(disk);
    let has_stale = record.stale.iter().any(|stale| is_of_pool(&stale.disk));
    Some(Looked { is_served, is_elsewhere, unreached_for, has_stale, copies, read_only, statistics, record })
}

impl Looked {
    fn status(&self) -> VolumeStatus {
        let Copies { few, in_work, .. } = self.copies;
        let (copies, has_stale) = (self.record.resiliency.copies(), self.has_stale);
        match () {
            () if !self.is_served && !self.is_elsewhere => VolumeStatus::Detached,
            () if self.unreached_for.is_some() => VolumeStatus::Detached,
            () if self.read_only.is_some() => VolumeStatus::ReadOnly,
            () if few > 0 && copies > 1 && !has_stale && in_work => VolumeStatus::InService,
            () if few > 0 && copies == 2 => VolumeStatus::NoRedundancy,
            () if few > 0 || has_stale => VolumeStatus::Degraded,
            () => VolumeStatus::Ok,
        }
    }
}

fn show_volume(
    node: &Node,
    id: VolumeId,
    entry: &VolumeEntry,
    issues: &mut Vec<HealthIssue>,
) -> Option<Volume> {
    let looked = look(node, id, entry)?;
    issues.extend(issues_of(node, id, entry, &looked).into_iter().map(HealthIssue::from));
    let status = looked.status();
    let Looked { record, is_served, copies: Copies { few, slabs, .. }, statistics, .. } = looked;
    let owner = if is_served { record.owner } else { node.peers.present_owner(&record) };
    let slab_bytes = node.pools.slab_bytes(record.pool).unwrap_or(BLOCK_BYTES as u64);
    let copies = record.resiliency.copies();
    let bytes = |(disk, count): (DiskId, u64)| (disk, count * slab_bytes);
    let held: Option<BTreeMap<DiskId, u64>> = slabs.map(|slabs| slabs.into_iter().map(bytes).collect());
    Some(Volume {
        id,
        name: record.name,
        pool: record.pool,
        owner: owner.map(|owner| node.peers.name(owner)),
        health: match status {
            VolumeStatus::Ok if statistics.is_some_and(|found| found.lacks_metadata_room) => Health::Warning,
            VolumeStatus::Ok => Health::Healthy,
            VolumeStatus::Detached | VolumeStatus::ReadOnly => Health::Unhealthy,
            _ => Health::Warning,
        },
        status,
        resiliency: match record.resiliency {
            records::Resiliency::Simple => Resiliency::Simple,
            records::Resiliency::TwoWay => Resiliency::TwoWayMirror,
            records::Resiliency::ThreeWay => Resiliency::ThreeWayMirror,
        },
        provisioning: match record.provisioning {
            records::Provisioning::Thin => Provisioning::Thin,
            records::Provisioning::Fixed => Provisioning::Fixed,
        },
        size_bytes: record.size_bytes,
        used_bytes: statistics.map(|found| found.used_bytes),
        available_bytes: statistics.map(|found| found.available_bytes),
        footprint_bytes: held.as_ref().map(|held| held.values().sum()),
        warn_at_percent: record.warn_at_percent.unwrap_or(records::WARN_AT_PERCENT),
        copies,
        in_sync_copies: match status {
            VolumeStatus::Detached => None,
            // For a volume of another node, only the record has the number of copies of each chunk.
            _ if !is_served => Some(record.min_holders.min(copies)),
            _ if few > 0 => Some(copies.saturating_sub(1)),
            _ => Some(copies),
        },
        min_copies: record.min_copies,
        epoch: record.epoch.0,
        stale_bytes: is_served.then_some(few * slab_bytes),
        cache_hit_bytes: statistics.map(|found| found.read_from_cache_bytes),
        cache_miss_bytes: statistics.map(|found| found.read_from_disk_bytes),
        least_copies: record.min_holders,
        least_servers: (!record.homes.is_empty()).then_some(record.min_homes),
        holders: record.in_sync,
        held_bytes: held,
    })
}

fn issues_of(node: &Node, id: VolumeId, entry: &VolumeEntry, looked: &Looked) -> Vec<Issue> {
    let mut issues = Vec::new();
    let Looked { record, copies, read_only, statistics, .. } = looked;
    if let Some(why) = &entry.failure {
        let issue = detached_volume(record, why);
        issues.push(match node.pools.why_superseded(record.pool) {
            Some(_) => Issue { action: IMPORT_ANEW.to_owned(), ..issue },
            None => issue,
        });
    } else if !looked.is_served && !looked.is_elsewhere {
        issues.extend(waiting_volume(record, entry.first_opening(node.tasks.now()), node));
    } else if let (Some(lasts), Some(owner)) = (looked.unreached_for, record.owner) {
        issues.push(unreached_volume(record, &node.peers.name(owner), lasts, node.hears_most()));
    } else if copies.few > 0 {
        let chunks = (copies.few, copies.chunks, copies.without_room);
        issues.push(degraded_volume(record, chunks, copies.in_work));
    }
    if !looked.is_served && !record.tried.is_empty() {
        issues.push(passed_on_volume(node, record));
    }
    let unwritten = entry.served.as_ref().filter(|_| read_only.is_none()).and_then(|served| {
        served.with(|service| {
            let (error, since) = service.file_system().write_back_failure()?;
            Some((error.clone(), node.tasks.now().since(since)))
        })
    });
    if let Some((error, lasted)) = unwritten {
        let since_unix_s = node.tasks.unix_seconds().saturating_sub(lasted.as_secs());
        let absent = absent_members(record, &node.disks);
        let full = full_mounts(record, &node.disks);
        issues.push(unwritten_changes(record, &error, (&absent, &full), since_unix_s));
    }
    issues.extend(statistics.and_then(|found| full_volume(record, &found)));
    if let Some((damage, since_unix_s)) = read_only {
        let dirty_bytes = statistics.map_or(0, |found| found.dirty_bytes);
        issues.push(read_only_volume(record, damage, dirty_bytes, *since_unix_s));
    }
    if let Some((blocks, first, since_unix_s)) = node.damage.lost_blocks(id) {
        let place = (first.0, disks_of_lost(node, id), node.damaged_files.in_words(id, None));
        issues.push(lost_blocks(record, blocks, &place, since_unix_s));
    }
    issues
}

/// Names full file systems that files of the volume's disks lie in.
fn full_mounts(record: &VolumeRecord, disks: &Disks) -> String {
    let slots = disks.slots();
    let members = record.in_sync.iter().filter_map(|disk| slots.get(disk)?.host_full());
    let mounts: BTreeSet<String> = members.map(|full| full.mounted_at.display().to_string()).collect();
    mounts.into_iter().collect::<Vec<_>>().join(", ")
}

/// Lists the paths of disks that hold the last writes and are not there.
fn absent_members(record: &VolumeRecord, disks: &Disks) -> String {
    let slots = disks.slots();
    let absent =
        slots.values().filter(|slot| slot.store().is_none() && record.in_sync.contains(&slot.record.id));
    absent.map(|slot| slot.record.path.as_str()).collect::<Vec<_>>().join(", ")
}

/// Lists the paths of the disks on which blocks of the volume were damaged that no copy has intact.
fn disks_of_lost(node: &Node, volume: VolumeId) -> String {
    let is_lost = |lba: &Lba| node.damage.is_lost(volume, *lba);
    let any_lost = |blocks: &BTreeSet<Lba>| blocks.iter().any(is_lost);
    let met = node.damage.met_blocks().into_iter();
    let met = met.filter(|((of, _), blocks)| *of == volume && any_lost(blocks));
    let slots = node.disks.slots();
    let mut paths: Vec<&str> =
        met.filter_map(|((_, disk), _)| Some(slots.get(&disk)?.record.path.as_str())).collect();
    paths.sort_unstable();
    paths.join(", ")
}

/// Nodes could not open the volume, and another one tries.
fn passed_on_volume(node: &Node, record: &VolumeRecord) -> Issue {
    let name = |id: &NodeId| node.peers.name(*id);
    let tried: Vec<String> = record.tried.iter().map(name).collect();
    let owner = record.owner.as_ref().map(name).unwrap_or_default();
    let what = format!("{} could not open it, see the log there; {owner} tries", tried.join(", "));
    Issue { what, ..detached_volume(record, "") }
}

/// `lasts`: duration so far of the volume's first opening, an issue only if it is long or cannot end.
fn waiting_volume(record: &VolumeRecord, lasts: Option<Duration>, node: &Node) -> Option<Issue> {
    let (absent, peers) = (absent_members(record, &node.disks), &node.peers);
    let space = node.pools.space(record.pool);
    let held = space.and_then(|space| space.with_volume(record.id, |coordinator| coordinator.held_images()));
    if let Some(held) = held.filter(|held| !held.is_empty()) {
        return Some(volume_of_older_images(record, &held));
    }
    let what = match absent.is_empty() {
        true => "it is being opened".to_owned(),
        false => format!("it waits for disks that hold what was written last: {absent}"),
    };
    let issue = Issue { what, ..detached_volume(record, "") };
    let Some(refused) = record.in_sync.iter().find(|disk| peers.refusal(**disk).is_some()) else {
        let has_begun = lasts.is_some_and(|lasts| lasts < LONG_OPENING) && !lacks_member(record, node);
        return (!has_begun).then_some(issue);
    };
    let action = format!(
        "It may wait for disk {refused}, which this server refused: health has an issue about that disk. If the volume does \
         not open without it, import the lost servers' disks on another, single server."
    );
    Some(Issue { action, ..issue })
}

/// Whether a disk of this server with the volume's last writes was tried and cannot be used.
fn lacks_member(record: &VolumeRecord, node: &Node) -> bool {
    let (slots, now) = (node.disks.slots(), node.tasks.now());
    let mut members = record.in_sync.iter().filter_map(|disk| slots.get(disk));
    members.any(|slot| slot.store().is_none() && slot.first_opening(now).is_none())
}
