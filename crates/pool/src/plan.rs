//! Plans that move or add copies: repair after a loss, rebalance after disks were added.

use crate::place::{PlaceError, Purpose, crowd, place};
use crate::view::level;
use crate::{Disk, Level, PoolView};
use std::collections::BTreeMap;
use types::{ChunkIndex, DiskId, VolumeId};

/// A chunk and the disks that hold a good copy of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkCopies {
    /// Volume of the chunk.
    pub volume: VolumeId,
    /// Place of the chunk in the volume.
    pub chunk: ChunkIndex,
    /// Copies the chunk should have.
    pub copies: u8,
    /// Disks with a good copy.
    pub holders: Vec<DiskId>,
}

/// A copy to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repair {
    /// Volume of the chunk.
    pub volume: VolumeId,
    /// Place of the chunk in the volume.
    pub chunk: ChunkIndex,
    /// Disk that gets the new copy.
    pub to: DiskId,
}

/// A copy to be made on `to`, after which the one on `from` is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Volume of the chunk.
    pub volume: VolumeId,
    /// Place of the chunk in the volume.
    pub chunk: ChunkIndex,
    /// Disk whose copy is given up at the end.
    pub from: DiskId,
    /// Disk that gets the new copy.
    pub to: DiskId,
}

/// The copies that are missing: chunks with the fewest good copies first. A copy on a disk that is not usable (retired) counts
/// as one to read from, not as one to keep. Also says for how many copies there is no space.
pub fn repair_plan(pool: &PoolView, chunks: &[ChunkCopies]) -> (Vec<Repair>, u64) {
    let mut pool = pool.clone();
    let mut order: Vec<&ChunkCopies> = chunks.iter().collect();
    order.sort_by_key(|chunk| (kept(&pool, chunk).len(), chunk.volume, chunk.chunk));
    let (mut plan, mut unplaced) = (Vec::new(), 0);
    for chunk in order {
        let mut holders = kept(&pool, chunk);
        while holders.len() < usize::from(chunk.copies) {
            match place(&pool, 1, &holders, &chunk.holders, Purpose::Repair) {
                Ok(chosen) => {
                    for to in chosen {
                        pool.take(to);
                        holders.push(to);
                        plan.push(Repair { volume: chunk.volume, chunk: chunk.chunk, to });
                    }
                }
                Err(PlaceError::Full | PlaceError::TooFewDomains) => {
                    unplaced += u64::from(chunk.copies) - holders.len() as u64;
                    break;
                }
            }
        }
    }
    (plan, unplaced)
}

/// The room that the other disks lack for everything that disks hold which are to be emptied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Copies that would find no disk with room apart from the chunk's other copies, beyond those that find none now.
    pub copies: u64,
    /// Slabs that would be missing for chunks which the caller does not know, and for those promised to fixed virtual disks.
    pub slabs: u64,
}

/// Places the copies of the `leaving` disk as a rebuild would, together with those of the disks that are being emptied already. `chunks`: all that are
/// known; what these disks hold beyond them counts by its number only.
pub fn shortage_without(
    pool: &PoolView,
    chunks: &[ChunkCopies],
    leaving: DiskId,
    emptying: &[DiskId],
) -> Shortage {
    let mut left = pool.clone();
    left.change(leaving, |disk| disk.is_retired = true);
    let is_short = |chunk: &&ChunkCopies| kept(&left, chunk).len() < usize::from(chunk.copies);
    let short: Vec<ChunkCopies> = chunks.iter().filter(is_short).cloned().collect();
    let (plan, unplaced) = repair_plan(&left, &short);
    let unplaced_before = if unplaced > 0 { repair_plan(pool, &short).1 } else { 0 };
    let leaves = |disk: &DiskId| *disk == leaving || emptying.contains(disk);
    let views = pool.disks().filter(|disk| leaves(&disk.id));
    let held: u64 = views.map(Disk::used_slabs).sum();
    let known = short.iter().flat_map(|chunk| &chunk.holders).filter(|disk| leaves(disk)).count() as u64;
    let free = left.free_slabs() - plan.len() as u64;
    let slabs = (held.saturating_sub(known) + left.promised_slabs).saturating_sub(free);
    Shortage { copies: unplaced.saturating_sub(unplaced_before), slabs }
}

/// The copy to give up if a chunk has more than it should: of a disk that is not usable (retired), else of one in the fault domain
/// of another copy, else of the one that shares most with others, else of the fullest.
pub fn surplus(pool: &PoolView, chunk: &ChunkCopies) -> Option<DiskId> {
    if chunk.holders.len() <= usize::from(chunk.copies) {
        return None;
    }
    let level = level(pool, chunk.copies);
    let name = |id: DiskId| pool.disk(id).zip(level).map(|(disk, level)| disk.domain.name(disk.id, level));
    let worth = |&id: &DiskId| {
        let disk = pool.disk(id);
        let usable = disk.is_some_and(Disk::is_usable);
        let alone = chunk.holders.iter().all(|&other| other == id || name(other) != name(id));
        let per_mille = |disk: &Disk| disk.used_slabs() * 1000 / disk.total_slabs.max(1);
        let others = chunk.holders.iter().filter(|&&other| other != id);
        let crowded = disk.map(|disk| crowd(pool, disk, others));
        (usable, alone, std::cmp::Reverse((crowded, disk.map_or(0, per_mille))), id)
    };
    chunk.holders.iter().copied().min_by_key(worth)
}

fn kept(pool: &PoolView, chunk: &ChunkCopies) -> Vec<DiskId> {
    let usable = |id: &DiskId| pool.disk(*id).is_some_and(Disk::is_usable);
    chunk.holders.iter().copied().filter(usable).collect()
}

/// The fewest moves found that bring each usable disk to within 2 % of its size, or one slab, of the pool's mean fill. Copies that share a
/// fault domain although there are others move apart first: a pool may have begun on one node. After that copies move from disks above
/// the mean to disks below it only, and never to where they share more with another copy.
pub fn rebalance_plan(pool: &PoolView, chunks: &[ChunkCopies], moves_max: usize) -> Vec<Move> {
    let mut pool = pool.clone();
    let mut chunks: Vec<ChunkCopies> = chunks.to_vec();
    chunks.sort_by_key(|chunk| (chunk.volume, chunk.chunk));
    let mut plan = Vec::new();
    let mut levels = BTreeMap::new();
    for chunk in &mut chunks {
        let level = *levels.entry(chunk.copies).or_insert_with(|| level(&pool, chunk.copies));
        while plan.len() < moves_max
            && let Some(step) = level.and_then(|level| move_apart(&pool, chunk, level))
        {
            apply(step, &mut pool, chunk);
            plan.push(step);
        }
    }
    while plan.len() < moves_max {
        let Some(step) = next_move(&pool, &chunks) else { break };
        let moved = chunks.iter_mut().find(|chunk| chunk.volume == step.volume && chunk.chunk == step.chunk);
        let Some(moved) = moved else { break };
        apply(step, &mut pool, moved);
        plan.push(step);
    }
    plan
}

fn apply(step: Move, pool: &mut PoolView, chunk: &mut ChunkCopies) {
    pool.take(step.to);
    pool.give_back(step.from);
    for holder in chunk.holders.iter_mut().filter(|holder| **holder == step.from) {
        *holder = step.to;
    }
}

/// Slabs above (positive) or below (negative) the disk's share of the used ones, times the pool's size.
fn excess(disk: &Disk, used: u64, total: u64) -> i128 {
    i128::from(disk.used_slabs()) * i128::from(total) - i128::from(disk.total_slabs) * i128::from(used)
}

fn next_move(pool: &PoolView, chunks: &[ChunkCopies]) -> Option<Move> {
    let disks: Vec<&Disk> = pool.disks().filter(|disk| disk.is_usable()).collect();
    let total: u64 = disks.iter().map(|disk| disk.total_slabs).sum();
    let used: u64 = disks.iter().map(|disk| disk.used_slabs()).sum();
    let tolerance = |disk: &Disk| i128::from((disk.total_slabs / 50).max(1)) * i128::from(total);
    let mut over: Vec<(i128, &Disk)> = disks.iter().map(|disk| (excess(disk, used, total), *disk)).collect();
    over.sort_by_key(|(excess, disk)| (std::cmp::Reverse(*excess), disk.id));
    for (high, from) in &over {
        for (low, to) in over.iter().rev() {
            let out_of_tolerance = *high > tolerance(from) || -*low > tolerance(to);
            // A move must bring both disks nearer to their share.
            let helps = *high > 0 && *low < 0 && *high - *low > i128::from(total);
            if !(out_of_tolerance && helps && to.free_slabs > 0) {
                continue;
            }
            if let Some(chunk) = chunks.iter().find(|chunk| movable(pool, chunk, from.id, to)) {
                return Some(Move { volume: chunk.volume, chunk: chunk.chunk, from: from.id, to: to.id });
            }
        }
    }
    None
}

/// Finds a copy that shares a fault domain with another one of its chunk, and a disk of a domain that has none.
fn move_apart(pool: &PoolView, chunk: &ChunkCopies, level: Level) -> Option<Move> {
    let name = |id: DiskId| pool.disk(id).map(|disk| disk.domain.name(disk.id, level));
    let shares = |id: &DiskId| {
        name(*id).is_some() && chunk.holders.iter().any(|other| other != id && name(*other) == name(*id))
    };
    let fill = |id: &DiskId| pool.disk(*id).map(|disk| disk.used_slabs() * 1000 / disk.total_slabs.max(1));
    let from = chunk.holders.iter().copied().filter(shares).max_by_key(fill)?;
    let free = pool.disks().filter(|disk| disk.is_usable() && disk.free_slabs > 0);
    let is_apart = |disk: &&Disk| {
        let mut kept = chunk.holders.iter().filter(|holder| **holder != from);
        kept.all(|holder| name(*holder) != name(disk.id))
    };
    let to = free.filter(is_apart).min_by(|a, b| a.by_fill_with_one_more(b))?;
    Some(Move { volume: chunk.volume, chunk: chunk.chunk, from, to: to.id })
}

fn movable(pool: &PoolView, chunk: &ChunkCopies, from: DiskId, to: &Disk) -> bool {
    if !chunk.holders.contains(&from) || chunk.holders.contains(&to.id) {
        return false;
    }
    let Some(level) = level(pool, chunk.copies) else { return false };
    let name = to.domain.name(to.id, level);
    let others = chunk.holders.iter().filter(|&&id| id != from);
    let is_free = others
        .clone()
        .filter_map(|&id| pool.disk(id))
        .all(|other| other.domain.name(other.id, level) != name);
    is_free && pool.disk(from).is_none_or(|from| crowd(pool, to, others.clone()) <= crowd(pool, from, others))
}
