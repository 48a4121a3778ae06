//! Bringing a pool back from the copies of its records that its disks carry (D8).
//!
//! Owns the choice among these copies, and the changes that an import makes in the cluster state.
//! Promises: the newest copy counts, and only if enough of the pool's disks are there that no newer one
//! can be elsewhere, or the administrator says to continue without the others. Everything is committed
//! at once, or nothing. The report names everything that cannot come back. Never writes a disk.
//!
//! Why the newest copy is safe: a coordinator continues under a changed record of its volume (members,
//! chunks being built) only after all reachable disks of the pool carry it. So of any majority of the
//! disks one carries the last record under which anything was acknowledged, as long as a majority was
//! reachable then. Epochs may be older in it: they are raised to the promises of the disks.

mod accounts;
mod checks;
mod copies;
#[cfg(test)]
mod made_up;
#[cfg(test)]
mod tests;

use crate::accounts::AccountError;
use crate::image::{ImageVersion, PoolImage};
use crate::seal::SealKey;
use crate::settings::ServerSettings;
use crate::shares::{self, Share};
use crate::{
    BlockingState, DeletedVolume, DiskRecord, DiskState, PoolRecord, Record, Transaction, Typed, VolumeRecord,
};
use accounts::{Known, malformed};
use checks::{check_disk, check_pool, check_settings, check_volume, of_pool};
pub use copies::latest_of;
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, Epoch, PoolId, VolumeId};
use uuid::Uuid;

/// A labelled disk, as it was found.
#[derive(Debug, Clone)]
pub struct FoundDisk {
    pub path: String,
    pub disk: DiskId,
    pub pool: PoolId,
    /// The image on the disk, or why it cannot be read.
    pub image: Result<PoolImage, String>,
    /// The highest epoch it has promised for each volume.
    pub promised: BTreeMap<VolumeId, Epoch>,
}

/// The administrator's request.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The pool's name, or its id; `None`: the only one that is found.
    pub pool: Option<String>,
    /// The name it gets here.
    pub rename: Option<String>,
    /// Named where it is: the pool may be taken although its last server did not give it up.
    pub confirm: Option<String>,
    /// Continues without disks that may carry newer records.
    pub accept_missing: bool,
}

/// A pool that can be imported.
#[derive(Debug, Clone)]
pub struct Plan {
    pub pool: PoolRecord,
    pub version: ImageVersion,
    pub image: PoolImage,
    pub disks: Vec<DiskRecord>,
    /// Recorded and not found.
    pub missing: Vec<DiskRecord>,
    pub volumes: Vec<VolumeRecord>,
    pub deleted: Vec<DeletedVolume>,
    /// Remarks for the administrator.
    pub notes: Vec<String>,
}

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub volumes: Vec<String>,
    pub shares: Vec<String>,
    pub users: Vec<String>,
    /// Of the users, those whose password has to be set anew.
    pub passwords_lost: Vec<String>,
    pub missing_disks: Vec<String>,
    /// The members of Administrators, now that the pool is here.
    pub administrators: Vec<String>,
    pub notes: Vec<String>,
}

/// Epochs that a disk may have promised beyond those in the pool's records, which may be older: an owner begins two a minute, and some more when disks
/// come and go, so that this is more than ten years. There are 2^32.
pub const EPOCHS_AHEAD_MAX: u64 = 1 << 24;

/// Why a pool is not imported; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("no disk of a pool was found in {0}; say where they are (--disk PATH, --search DIRECTORY)")]
    Nothing(String),
    #[error("the disks found belong to several pools: {0}; say which one to import")]
    Several(String),
    #[error("none of the disks found belongs to pool '{0}'; there are: {1}")]
    NotFound(String, String),
    #[error("no disk of pool {0} carries its records: {1}")]
    NoRecords(PoolId, String),
    #[error(
        "two servers had pool '{pool}' apart from each other, or one went on from an older copy of its state: {disks}; give only the disks \
         of the one whose data you want"
    )]
    TwoHistories { pool: String, disks: String },
    #[error(
        "pool '{pool}' was not exported: server {server} had it last. Where that server still runs, both would write to the \
         same disks and destroy the pool. Make sure that it does not, then repeat with --yes '{pool}'"
    )]
    NotExported { pool: String, server: String },
    #[error(
        "{found} of the {all} disks of pool '{pool}' were found, no majority; missing: {missing}. A missing disk may hold what \
         was written last. Bring them back; or, where they are lost, go on without what only they hold: --accept-missing"
    )]
    TooFewDisks { pool: String, found: usize, all: usize, missing: String },
    #[error(
        "disk {path} has promised epoch {promised} to volume '{volume}', and the pool's records have {recorded}: no server that ran the pool can have come so \
         far. Nothing was changed, since the volume could not be served by such an epoch for long. Import the pool by its other disks (--disk PATH for each, \
         with --accept-missing if they are no majority), then erase this one and add it anew"
    )]
    Beyond { path: String, volume: String, promised: Epoch, recorded: Epoch },
    #[error(
        "disk {disk} was found more than once, and nothing tells which copy has what was written last: {copies}. Nothing was changed. Detach the copies that are \
         not to count, or name each disk that is (--disk PATH)"
    )]
    Copies { disk: DiskId, copies: String },
    #[error("the records of pool '{0}' are damaged: {1}")]
    Damaged(String, String),
    #[error(
        "record {record} on the disks is none that a server writes: {why}. Nothing was changed: the pool was not imported, since somebody may have \
         made up what its disks carry"
    )]
    Impossible { record: String, why: String },
}

/// Chooses the pool and the newest records.
///
/// # Errors
/// [`ImportError`].
pub fn plan(found: &[FoundDisk], wanted: &Wanted, searched: &str) -> Result<Plan, ImportError> {
    let pool = choose_pool(found, wanted, searched)?;
    let mut notes = Vec::new();
    let disks = copies::latest(found.iter().filter(|disk| disk.pool == pool), &mut notes)?;
    let image = newest(pool, &disks)?;
    let damaged = |why: String| ImportError::Damaged(pool.to_string(), why);
    let record = image.records::<PoolRecord>().map_err(|error| damaged(error.to_string()))?;
    let record = record
        .into_iter()
        .find(|record| record.id == pool)
        .ok_or_else(|| damaged("no pool in them".into()))?;
    check_pool(&record, &image.header)?;
    let recorded = of_pool::<DiskRecord>(image, pool, &mut notes)?;
    if !image.header.exported && wanted.confirm.as_deref() != Some(record.name.as_str()) {
        let server = format!("{} ({})", image.header.host, image.header.server);
        return Err(ImportError::NotExported { pool: record.name, server });
    }
    let (mut here, mut missing) = (Vec::new(), Vec::new());
    for known in recorded.iter().cloned() {
        match disks.iter().find(|disk| disk.disk == known.id) {
            Some(disk) => here.push(DiskRecord { path: disk.path.clone(), node: None, ..known }),
            None => missing.push(known),
        }
    }
    for disk in &disks {
        if !here.iter().any(|known| known.id == disk.disk) {
            notes.push(format!("{} no longer belongs to the pool and is left as it is", disk.path));
        }
    }
    let all = here.len() + missing.len();
    let unread =
        here.iter().filter(|known| disks.iter().any(|disk| disk.disk == known.id && disk.image.is_err()));
    let carrying = here.len() - unread.count();
    if carrying * 2 <= all && !wanted.accept_missing {
        let missing = missing.iter().map(|disk| format!("{} ({})", disk.path, disk.id)).collect::<Vec<_>>();
        let missing =
            if missing.is_empty() { "none, but records are damaged".into() } else { missing.join(", ") };
        return Err(ImportError::TooFewDisks { pool: record.name, found: carrying, all, missing });
    }
    let (mut volumes, deleted) = checked(image, pool, &recorded, &mut notes)?;
    for volume in &mut volumes {
        take_promises(volume, &disks)?;
    }
    if image.header.omitted > 0 {
        notes.push(format!(
            "{} accounts or shares had no room on the disks and are not there: make them anew",
            image.header.omitted
        ));
    }
    let pool = PoolRecord {
        generation: image.header.version.generation.saturating_add(1),
        history: Uuid::new_v4(),
        exported: false,
        name: wanted.rename.clone().unwrap_or(record.name),
        ..record
    };
    let version = image.header.version;
    Ok(Plan { pool, version, image: image.clone(), disks: here, missing, volumes, deleted, notes })
}

/// Raises the volume's epoch to the highest promise, and accepts disks that have promised less.
fn take_promises(volume: &mut VolumeRecord, disks: &[&FoundDisk]) -> Result<(), ImportError> {
    let promised = demand_likely(volume, disks)?;
    // Nobody here has accepted anything.
    volume.accepted_images.clear();
    if volume.owner.is_some() && promised > volume.epoch {
        // A cluster's coordinators do not wait for the disks' copies of the record: a disk may have been
        // expelled since. An expelled disk has promised less than the remaining ones, and is compared
        // before it counts, or counts for data that nobody else has.
        volume.promised = promised;
        let behind = disks.iter().filter(|disk| disk.promised.get(&volume.id) < Some(&promised));
        volume.accepted_images = behind.map(|disk| disk.disk).collect();
    }
    volume.epoch = volume.epoch.max(promised);
    // The nodes of another cluster say nothing here.
    volume.owner = None;
    Ok(())
}

/// The pool's volumes, and those that were deleted, if all records can be true.
fn checked(
    image: &PoolImage,
    pool: PoolId,
    disks: &[DiskRecord],
    notes: &mut Vec<String>,
) -> Result<(Vec<VolumeRecord>, Vec<DeletedVolume>), ImportError> {
    disks.iter().try_for_each(check_disk)?;
    // Without disks there is nothing to import, and the caller has refused that.
    let slab_bytes = disks.iter().map(|disk| disk.slab_bytes).min().unwrap_or(1);
    let volumes = of_pool::<VolumeRecord>(image, pool, notes)?;
    let known: BTreeSet<DiskId> = disks.iter().map(|disk| disk.id).collect();
    volumes.iter().try_for_each(|volume| check_volume(volume, &known, slab_bytes))?;
    let deleted = of_pool::<DeletedVolume>(image, pool, notes)?;
    let settings = image.records::<ServerSettings>();
    let settings = settings.map_err(|error| ImportError::Damaged(pool.to_string(), error.to_string()))?;
    settings.iter().try_for_each(check_settings)?;
    Ok((volumes, deleted))
}

/// Returns the highest promise to the volume; refuses one that its owners cannot have come to since the records were written on the disks.
fn demand_likely(volume: &VolumeRecord, disks: &[&FoundDisk]) -> Result<Epoch, ImportError> {
    let bound = Epoch(volume.epoch.0.saturating_add(EPOCHS_AHEAD_MAX));
    let promised =
        |disk: &&&FoundDisk| disk.promised.get(&volume.id).is_some_and(|promised| *promised > bound);
    let Some(disk) = disks.iter().find(promised) else {
        let highest = disks.iter().filter_map(|disk| disk.promised.get(&volume.id)).max();
        return Ok(highest.copied().unwrap_or_default());
    };
    Err(ImportError::Beyond {
        path: disk.path.clone(),
        volume: volume.name.clone(),
        promised: disk.promised.get(&volume.id).copied().unwrap_or_default(),
        recorded: volume.epoch,
    })
}

fn choose_pool(found: &[FoundDisk], wanted: &Wanted, searched: &str) -> Result<PoolId, ImportError> {
    let mut names: BTreeMap<PoolId, String> = BTreeMap::new();
    for disk in found {
        let name = disk.image.as_ref().ok().and_then(|image| {
            Some((image.header.version, image.records::<PoolRecord>().ok()?.into_iter().next()?.name))
        });
        let shown = names.entry(disk.pool).or_default();
        if let Some((_, name)) = name
            && shown.is_empty()
        {
            *shown = name;
        }
    }
    let shown = || {
        let shown = names.iter().map(|(id, name)| format!("'{name}' ({id})"));
        shown.collect::<Vec<_>>().join(", ")
    };
    match (&wanted.pool, names.len()) {
        (_, 0) => Err(ImportError::Nothing(searched.to_owned())),
        (None, 1) => names.keys().next().copied().ok_or_else(|| ImportError::Nothing(searched.to_owned())),
        (None, _) => Err(ImportError::Several(shown())),
        (Some(name), _) => {
            let matches = |(id, known): &(&PoolId, &String)| {
                known.to_lowercase() == name.to_lowercase() || id.to_string() == *name
            };
            let mut matching = names.iter().filter(matches);
            match (matching.next(), matching.next()) {
                (Some((id, _)), None) => Ok(*id),
                (Some(_), Some(_)) => Err(ImportError::Several(shown())),
                (None, _) => Err(ImportError::NotFound(name.clone(), shown())),
            }
        }
    }
}

/// The newest copy of one history.
fn newest<'a>(pool: PoolId, disks: &[&'a FoundDisk]) -> Result<&'a PoolImage, ImportError> {
    let images = disks.iter().filter_map(|disk| Some((*disk, disk.image.as_ref().ok()?)));
    let images: Vec<(&FoundDisk, &PoolImage)> =
        images.filter(|(_, image)| image.header.pool == pool).collect();
    let newest = images.iter().max_by_key(|(_, image)| image.header.version).map(|(_, image)| *image);
    let Some(newest) = newest else {
        let why = disks.iter().map(|disk| match &disk.image {
            Err(why) => format!("{}: {why}", disk.path),
            Ok(_) => format!("{}: those of another pool", disk.path),
        });
        return Err(ImportError::NoRecords(pool, why.collect::<Vec<_>>().join("; ")));
    };
    let generation = newest.header.version.generation;
    let of_generation = || {
        images.iter().map(|(_, image)| image).filter(|image| image.header.version.generation == generation)
    };
    let histories: BTreeSet<Uuid> = of_generation().map(|image| image.header.history).collect();
    // Within one history an older copy has no later epoch: a server went on from an older copy of its state.
    if histories.len() > 1 || of_generation().any(|image| image.has_later_epoch(newest)) {
        let shown = images.iter().map(|(disk, image)| format!("{} by {}", disk.path, image.header.host));
        let disks = shown.collect::<Vec<_>>().join(", ");
        return Err(ImportError::TwoHistories { pool: pool.to_string(), disks });
    }
    Ok(newest)
}

/// Commits the plan. `old_key` opens passwords that were sealed on another server. If this server has
/// no pools,
/// shares and users yet, it takes over the identity that SIDs on the disks belong to.
///
/// # Errors
/// `Invalid` if the pool is here already, `Exists` if another one has its name; those of state and key. Nothing is changed then.
pub fn commit(
    state: &impl BlockingState,
    key: &SealKey,
    old_key: Option<&SealKey>,
    plan: &Plan,
    now_unix_s: u64,
) -> Result<Report, AccountError> {
    let pools = state.list::<PoolRecord>()?;
    let taken = |name: &str| pools.iter().any(|pool| pool.value.name.to_lowercase() == name.to_lowercase());
    if let Some(here) = pools.iter().find(|pool| pool.value.id == plan.pool.id) {
        return Err(AccountError::Invalid(format!(
            "nothing was imported: the pool is on this server already, as '{}', and these are disks of it or copies of such",
            here.value.name
        )));
    }
    if taken(&plan.pool.name) {
        return Err(AccountError::Exists { kind: "pool", name: plan.pool.name.clone() });
    }
    let mut report = Report { notes: plan.notes.clone(), ..Report::default() };
    let mut changes =
        Transaction::default().when(plan.pool.key(), 0).put(plan.pool.key(), plan.pool.encode());
    let state_of = |missing| if missing { DiskState::Missing } else { DiskState::Healthy };
    let here = plan.disks.iter().map(|disk| (disk, false));
    for (disk, missing) in here.chain(plan.missing.iter().map(|disk| (disk, true))) {
        demand_free::<DiskRecord>(state, "disk", &disk.id())?;
        let state = if disk.state == DiskState::Retired { DiskState::Retired } else { state_of(missing) };
        let record = DiskRecord { state, since_unix_s: now_unix_s, ..disk.clone() };
        changes = changes.when(record.key(), 0).put(record.key(), record.encode());
        if missing {
            report.missing_disks.push(format!("{} ({})", disk.path, disk.id));
        }
    }
    changes = volumes(state, plan, &mut report, changes)?;
    changes = add_shares(state, plan, &mut report, changes)?;
    changes = accounts::add(&Known::read(state)?, (key, old_key), plan, &mut report, changes)?;
    state.commit(changes)?;
    Ok(report)
}

/// Refuses an id that this server has for something else: its record here would be lost, or served from
/// foreign disks.
fn demand_free<R: Record>(state: &impl BlockingState, kind: &str, id: &str) -> Result<(), AccountError> {
    match state.read::<R>(id)? {
        None => Ok(()),
        Some(_) => Err(AccountError::Invalid(format!(
            "nothing was imported: this server has a {kind} {id} of its own, and the disks' records have one with the same id"
        ))),
    }
}

fn volumes(
    state: &impl BlockingState,
    plan: &Plan,
    report: &mut Report,
    mut changes: Transaction,
) -> Result<Transaction, AccountError> {
    let mut names: BTreeSet<String> =
        state.list::<VolumeRecord>()?.into_iter().map(|volume| volume.value.name.to_lowercase()).collect();
    for volume in &plan.volumes {
        let mut volume = volume.clone();
        let name = volume.name.clone();
        let mut number = 1;
        while !names.insert(volume.name.to_lowercase()) {
            number += 1;
            volume.name = format!("{name}-{number}");
        }
        if volume.name != name {
            report
                .notes
                .push(format!("there is a volume '{name}' here: the imported one is '{}'", volume.name));
        }
        report.volumes.push(volume.name.clone());
        demand_free::<VolumeRecord>(state, "volume", &volume.id())?;
        demand_free::<DeletedVolume>(state, "deleted volume", &volume.id())?;
        changes = changes.when(volume.key(), 0).put(volume.key(), volume.encode());
    }
    for note in &plan.deleted {
        let is_volume = plan.volumes.iter().any(|volume| volume.id == note.id);
        if is_volume || state.read::<VolumeRecord>(&note.id())?.is_some() {
            report.notes.push(format!(
                "the disks tell that volume {} was deleted, and it is there: left out",
                note.id
            ));
            continue;
        }
        demand_free::<DeletedVolume>(state, "deleted volume", &note.id())?;
        changes = changes
            .when(note.key(), 0)
            .when(VolumeRecord::key_of(&note.id()), 0)
            .put(note.key(), note.encode());
    }
    Ok(changes)
}

/// Only shares of the pool's own volumes: another one would open a volume that this server had before.
fn add_shares(
    state: &impl BlockingState,
    plan: &Plan,
    report: &mut Report,
    mut changes: Transaction,
) -> Result<Transaction, AccountError> {
    let mut seen = BTreeSet::new();
    for share in plan.image.records::<Share>().map_err(malformed)? {
        let mut leave_out =
            |why: String| report.notes.push(format!("share {:?} was left out: {why}", share.name));
        if !plan.volumes.iter().any(|volume| volume.id == share.volume) {
            leave_out(format!("volume {} is not of the imported pool", share.volume));
        } else if let Err(error) = shares::check(&share) {
            leave_out(error.to_string());
        } else if state.read::<Share>(&share.id())?.is_some() {
            leave_out(
                "there is one of this name here; `cenote share create` makes it under another name".into(),
            );
        } else if !seen.insert(share.id()) {
            leave_out("the disks' records have it twice".into());
        } else {
            report.shares.push(share.name.clone());
            changes = changes.when(share.key(), 0).put(share.key(), share.encode());
        }
    }
    Ok(changes)
}
