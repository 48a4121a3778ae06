//! Which records of a disk belong to the pool that is imported, and whether they can be true.
//!
//! Promises: no record of another pool passes, and none with numbers that no server can have written.
//! An attacker may have chosen every byte of a disk.

use super::ImportError;
use crate::image::{ImageHeader, PoolImage};
use crate::settings::{FIRST_RELATIVE_ID, ServerSettings};
use crate::{DeletedVolume, DiskRecord, PoolRecord, Record, VolumeRecord};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use types::{BLOCK_BYTES, DiskId, Epoch, PoolId, Sid, Stamp};

/// As `store` lays disks out.
const SLAB_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 30;
/// As `store` lays disks out: it uses no more of a larger one.
const DISK_BYTES_MAX: u64 = 1 << 60;
/// As `volume` has it: the largest file system, in bytes and in chunks.
const VOLUME_BYTES_MAX: u64 = 1 << 46;
const CHUNKS_MAX: u64 = 1 << 20;
/// Disks that a pool may keep free: more than a pool has. A new reserve is checked against the pool's
/// disks, and these may leave later.
const RESERVE_DISKS_MAX: u32 = 1 << 16;
/// The largest relative identifier that Windows gives: as many again are left for accounts to come.
const RELATIVE_ID_MAX: u32 = (1 << 30) - 1;
/// Epochs that an imported volume must have before it: an owner begins two a minute.
const EPOCHS_LEFT_MIN: u64 = 1 << 24;
const NAME_CHARS_MAX: usize = 255;

/// A kind of record that names its pool.
pub(super) trait OfPool: Record {
    fn pool(&self) -> PoolId;
}

impl OfPool for DiskRecord {
    fn pool(&self) -> PoolId {
        self.pool
    }
}

impl OfPool for VolumeRecord {
    fn pool(&self) -> PoolId {
        self.pool
    }
}

impl OfPool for DeletedVolume {
    fn pool(&self) -> PoolId {
        self.pool
    }
}

/// The pool's records of a kind. Notes those of other pools, which are left out.
///
/// # Errors
/// `Damaged` if one does not parse; `Impossible` if two have one id.
pub(super) fn of_pool<R: OfPool>(
    image: &PoolImage,
    pool: PoolId,
    notes: &mut Vec<String>,
) -> Result<Vec<R>, ImportError> {
    let all =
        image.records::<R>().map_err(|error| ImportError::Damaged(pool.to_string(), error.to_string()))?;
    let (own, others): (Vec<R>, Vec<R>) = all.into_iter().partition(|record| record.pool() == pool);
    if let Some(first) = others.first() {
        let (key, count) = (first.key(), others.len());
        notes.push(format!(
            "the disks carry {count} {} of another pool, {key} first: left out, since no server writes such",
            if count == 1 { "record" } else { "records" }
        ));
    }
    let mut seen = BTreeSet::new();
    match own.iter().find(|record| !seen.insert(record.id())) {
        Some(twice) => Err(impossible(twice, "it is there twice".into())),
        None => Ok(own),
    }
}

fn impossible(record: &impl Record, why: String) -> ImportError {
    ImportError::Impossible { record: record.key(), why }
}

/// Refuses the first number of `numbers` that is out of its range, by its name.
fn demand(record: &impl Record, numbers: &[(&str, u64, RangeInclusive<u64>)]) -> Result<(), ImportError> {
    match numbers.iter().find(|(_, number, range)| !range.contains(number)) {
        None => Ok(()),
        Some((name, number, range)) => {
            let why = format!("{name} is {number}, not from {} to {}", range.start(), range.end());
            Err(impossible(record, why))
        }
    }
}

fn demand_name(record: &impl Record, name: &str) -> Result<(), ImportError> {
    let is_one =
        !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.chars().any(char::is_control);
    if is_one { Ok(()) } else { Err(impossible(record, "its name is none".into())) }
}

/// # Errors
/// `Impossible`.
pub(super) fn check_pool(pool: &PoolRecord, header: &ImageHeader) -> Result<(), ImportError> {
    // An import counts one more.
    let generations = 0..=u64::from(u32::MAX) - 1;
    demand_name(pool, &pool.name)?;
    demand(
        pool,
        &[
            ("reserve_disks", u64::from(pool.reserve_disks), 0..=u64::from(RESERVE_DISKS_MAX)),
            ("generation", u64::from(pool.generation), generations.clone()),
            ("the header's generation", u64::from(header.version.generation), generations),
        ],
    )
}

/// # Errors
/// `Impossible`.
pub(super) fn check_disk(disk: &DiskRecord) -> Result<(), ImportError> {
    demand(
        disk,
        &[
            ("slab_bytes", disk.slab_bytes, SLAB_BYTES),
            ("size_bytes", disk.size_bytes, disk.slab_bytes..=DISK_BYTES_MAX),
        ],
    )?;
    match disk.slab_bytes.is_power_of_two() {
        true => Ok(()),
        false => Err(impossible(disk, format!("slab_bytes is {}, no power of two", disk.slab_bytes))),
    }
}

/// Holds a volume's record against itself, the pool's disks and the smallest slabs of these.
///
/// # Errors
/// `Impossible`.
pub(super) fn check_volume(
    volume: &VolumeRecord,
    known: &BTreeSet<DiskId>,
    slab_bytes: u64,
) -> Result<(), ImportError> {
    let copies = u64::from(volume.resiliency.copies());
    let epoch_max = Stamp::EPOCH_MAX.0 - EPOCHS_LEFT_MIN;
    let size_max = VOLUME_BYTES_MAX.min(CHUNKS_MAX.saturating_mul(slab_bytes));
    demand_name(volume, &volume.name)?;
    demand(
        volume,
        &[
            ("size_bytes", volume.size_bytes, BLOCK_BYTES as u64..=size_max),
            ("min_copies", u64::from(volume.min_copies), 1..=copies),
            ("min_holders", u64::from(volume.min_holders), 0..=copies),
            ("min_homes", u64::from(volume.min_homes), 0..=copies.min(volume.homes.len() as u64)),
            ("epoch", volume.epoch.0, 0..=epoch_max),
            ("settled", volume.settled.0, 0..=volume.epoch.0),
            ("promised", volume.promised.0, 0..=volume.epoch.0),
            ("warn_at_percent", u64::from(volume.warn_at_percent.unwrap_or(1)), 1..=100),
        ],
    )?;
    let mut members: BTreeSet<DiskId> = BTreeSet::new();
    let disks = volume.in_sync.iter().copied().chain(volume.stale.iter().map(|stale| stale.disk));
    if let Some(twice) = disks.into_iter().find(|disk| !members.insert(*disk)) {
        return Err(impossible(volume, format!("disk {twice} is a member twice")));
    }
    // A disk's record goes when no volume's record names it any more.
    if let Some(foreign) = members.difference(known).next() {
        return Err(impossible(volume, format!("disk {foreign} is a member, and no disk of the pool")));
    }
    if let Some((foreign, _)) = volume.building.iter().find(|(disk, _)| !members.contains(disk)) {
        return Err(impossible(
            volume,
            format!("a chunk is being copied to disk {foreign}, which is no member"),
        ));
    }
    let late = |epoch: Epoch| epoch > volume.epoch;
    if volume.stale.iter().any(|stale| late(stale.since) || late(stale.promised)) {
        return Err(impossible(volume, "a disk is stale since an epoch that has not begun".into()));
    }
    let chunks = volume.size_bytes.div_ceil(slab_bytes);
    match volume.building.iter().find(|(_, chunk)| u64::from(chunk.0) >= chunks) {
        Some((_, chunk)) => Err(impossible(volume, format!("it has no chunk {}", chunk.0))),
        None => Ok(()),
    }
}

/// # Errors
/// `Impossible`.
pub(super) fn check_settings(settings: &ServerSettings) -> Result<(), ImportError> {
    let next = u64::from(FIRST_RELATIVE_ID)..=u64::from(RELATIVE_ID_MAX);
    demand(settings, &[("next_relative_id", u64::from(settings.next_relative_id), next)])?;
    let sid = &settings.domain_sid;
    match (sid.authority(), sid.sub_authorities()) {
        (5, [21, _, _, _]) => Ok(()),
        _ => Err(impossible(settings, format!("{sid} is no domain of accounts"))),
    }
}

/// Whether a server gives such SIDs to its users and groups: S-1-5-21-X-Y-Z and a relative identifier from [`FIRST_RELATIVE_ID`] on. Windows' own
/// accounts and groups have other ones.
pub(super) fn is_given_to_accounts(sid: &Sid) -> bool {
    let given = FIRST_RELATIVE_ID..=RELATIVE_ID_MAX;
    sid.authority() == 5 && matches!(sid.sub_authorities(), [21, _, _, _, id] if given.contains(id))
}
