//! Which disks get the copies of a chunk.

use crate::domain::DomainName;
use crate::view::level;
use crate::{Disk, Level, PoolView};
use std::collections::BTreeSet;
use std::fmt;
use types::DiskId;

/// Purpose for which slabs are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// New data of a thin virtual disk: the reserve stays free, and what fixed ones are yet to be given.
    Write,
    /// New data of a fixed virtual disk: the reserve stays free.
    Promised,
    /// Copies that were lost: the reserve is for them.
    Repair,
}

/// Reason why a chunk gets no disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceError {
    /// Not enough disks in different fault domains, full or not.
    TooFewDomains,
    /// Enough domains, but too few free slabs in them, or only the reserve is left.
    Full,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooFewDomains => "the pool has too few disks in different fault domains for so many copies",
            Self::Full => "the pool has too few free slabs: add disks, or delete data",
        })
    }
}

impl std::error::Error for PlaceError {}

/// Chooses disks for `wanted` more copies of a chunk whose other copies are on `existing`. Disks of `excluded` are not chosen.
/// Where there are fewer nodes than copies, or fewer racks, these still have as equal a share as can be. Then the emptiest disks by capacity
/// come first.
///
/// # Errors
/// [`PlaceError`]; no partial answer.
pub fn place(
    pool: &PoolView,
    wanted: u8,
    existing: &[DiskId],
    excluded: &[DiskId],
    purpose: Purpose,
) -> Result<Vec<DiskId>, PlaceError> {
    let copies = (existing.len() + usize::from(wanted)).min(usize::from(u8::MAX)) as u8;
    let level = level(pool, copies).ok_or(PlaceError::TooFewDomains)?;
    let free_after = pool.free_slabs().checked_sub(u64::from(wanted)).ok_or(PlaceError::Full)?;
    let kept = match purpose {
        Purpose::Write => pool.reserve_slabs.saturating_add(pool.promised_slabs),
        Purpose::Promised => pool.reserve_slabs,
        Purpose::Repair => 0,
    };
    if free_after < kept {
        return Err(PlaceError::Full);
    }
    let mut taken: BTreeSet<DomainName<'_>> = existing
        .iter()
        .filter_map(|&id| pool.disk(id))
        .map(|disk| disk.domain.name(disk.id, level))
        .collect();
    let mut chosen: Vec<DiskId> = Vec::with_capacity(usize::from(wanted));
    for _ in 0..wanted {
        let best = pool
            .disks()
            .filter(|disk| disk.is_usable() && disk.free_slabs > 0)
            .filter(|disk| !existing.contains(&disk.id) && !excluded.contains(&disk.id))
            .filter(|disk| !taken.contains(&disk.domain.name(disk.id, level)))
            .min_by(|a, b| {
                let crowded = |disk: &Disk| crowd(pool, disk, existing.iter().chain(&chosen));
                crowded(a).cmp(&crowded(b)).then_with(|| a.by_fill_with_one_more(b))
            })
            .ok_or(PlaceError::Full)?;
        taken.insert(best.domain.name(best.id, level));
        chosen.push(best.id);
    }
    Ok(chosen)
}

/// Counts copies on `others` that would share a domain with one on this disk, level by level, the widest first.
pub(crate) fn crowd<'a>(
    pool: &PoolView,
    disk: &Disk,
    others: impl Iterator<Item = &'a DiskId> + Clone,
) -> [usize; Level::STRICTEST_FIRST.len()] {
    Level::STRICTEST_FIRST.map(|level| {
        let name = disk.domain.name(disk.id, level);
        let shares = |other: &&DiskId| {
            pool.disk(**other).is_some_and(|other| other.domain.name(other.id, level) == name)
        };
        others.clone().filter(shares).count()
    })
}
