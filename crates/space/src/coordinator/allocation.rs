//! Giving a chunk its slabs at the first write.
//!
//! Invariant: a chunk in the state `Allocating` holds no acknowledged write. It becomes `Mapped` with
//! at least `min_copies` holders, none of which a proposal was to expel meanwhile (I1). A chunk begins
//! with fewer copies than the volume's resiliency only while the record has a disk out. A disk that is
//! present and gives no slab, because it is being retired, is full, or does not answer for the moment,
//! excuses no missing copy.

use super::calls::{Failure, Owner};
use super::chunks::{Chunk, ChunkState};
use super::ground::Ground;
use crate::api::SpaceError;
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use pool::Purpose;
use records::Provisioning;
use types::{BLOCK_BYTES, ChunkIndex, DiskId};

#[derive(Default)]
pub(super) struct Allocation {
    /// Slabs given by disks that a record not yet committed expels.
    by_leaving: Vec<(ChunkIndex, DiskId)>,
}

impl Allocation {
    /// Asks disks for slabs of the chunk. Returns an error if there are none; `Unavailable` if there may be
    /// some when disks in sync are reachable again.
    pub fn allocate(&mut self, index: ChunkIndex, append: bool, ground: &mut Ground) -> Option<SpaceError> {
        let mut chunk = Chunk::new(append);
        chunk.state = ChunkState::Allocating { pending: Vec::new(), refused: Vec::new(), undoing: false };
        debug_assert!(ground.chunks.get(index).is_none(), "{index:?} has slabs");
        ground.chunks.map.insert(index, chunk);
        let error = self.ask_for_slabs(index, ground)?;
        ground.chunks.map.remove(&index);
        Some(error)
    }

    /// Asks as many disks as the chunk still lacks copies.
    fn ask_for_slabs(&mut self, index: ChunkIndex, ground: &mut Ground) -> Option<SpaceError> {
        let copies = ground.membership.record().resiliency.copies();
        let least = ground.membership.record().min_copies.clamp(1, copies);
        let chunk = ground.chunks.get(index)?;
        let (append, holders) = (chunk.append, chunk.holders.to_vec());
        let refused = match &chunk.state {
            ChunkState::Allocating { refused, .. } => refused.clone(),
            _ => return None,
        };
        let mut excluded = excluded(ground);
        excluded.extend(ground.membership.marked_for(index));
        excluded.extend(refused);
        let lacking = copies.saturating_sub(holders.len() as u8);
        let may_lack_copies = is_disk_out(ground);
        // With disks missing, fewer copies are better than none: a rebuild makes the others later.
        let fewest =
            if may_lack_copies { least.saturating_sub(holders.len() as u8).max(1) } else { lacking.max(1) };
        let purpose = if is_fixed(ground) { Purpose::Promised } else { Purpose::Write };
        let chosen = (fewest..=lacking).rev().find_map(|wanted| {
            pool::place(&ground.chunks.pool.borrow(), wanted, &holders, &excluded, purpose).ok()
        });
        let Some(chosen) = chosen else {
            let enough = if may_lack_copies { least } else { copies };
            return (holders.len() < usize::from(enough)).then(|| why_no_slabs(index, ground));
        };
        if let Some(chunk) = ground.chunks.get_mut(index)
            && let ChunkState::Allocating { pending, .. } = &mut chunk.state
        {
            pending.extend(chosen.iter().copied());
        }
        if is_fixed(ground) {
            let mut pool = ground.chunks.pool.borrow_mut();
            pool.promised_slabs = pool.promised_slabs.saturating_sub(chosen.len() as u64);
        }
        for disk in chosen {
            ground.chunks.pool.borrow_mut().take(disk);
            ground.call(Owner::Allocate(index), disk, Message::Allocate { chunk: index, append });
        }
        None
    }

    /// Takes an answer to a request for a slab. Returns the error by which writes to the chunk fail, if it
    /// gets none.
    pub fn allocated(
        &mut self,
        index: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        ground: &mut Ground,
    ) -> Option<SpaceError> {
        if result.is_ok() && ground.membership.proposes_to_leave(disk) {
            // The proposal counted on the disk having no copy of this chunk. The chunk waits for the state's
            // answer.
            self.by_leaving.push((index, disk));
            return None;
        }
        let counts = ground.membership.is_in_sync(disk);
        let chunk = ground.chunks.map.get_mut(&index)?;
        let ChunkState::Allocating { pending, refused, undoing: false } = &mut chunk.state else {
            return None;
        };
        pending.retain(|pending| *pending != disk);
        match result {
            // The disk left meanwhile. As a holder, its resync would take the slab for a copy that counts
            // already. When the disk comes back, the slab is filled or given back like any other.
            Ok(_) if !counts => refused.push(disk),
            Ok(_) => {
                chunk.holders.push(disk);
                chunk.holders.sort_unstable();
            }
            Err(failure) => {
                refused.push(disk);
                let mut pool = ground.chunks.pool.borrow_mut();
                if failure == Failure::Gone {
                    pool.give_back(disk);
                } else {
                    pool.note_full(disk);
                }
            }
        }
        if !pending.is_empty() || self.waits_for_leaving(index, ground) {
            return None;
        }
        let chunk = ground.chunks.get(index)?;
        let copies = usize::from(ground.membership.record().resiliency.copies());
        let error = if chunk.holders.len() < copies { self.ask_for_slabs(index, ground) } else { None };
        let chunk = ground.chunks.get_mut(index)?;
        let waits = matches!(&chunk.state, ChunkState::Allocating { pending, .. } if !pending.is_empty());
        ground.reports.recheck = true;
        if let Some(error) = error {
            // No new allocation before the slabs are given back: all slabs of a disk in sync count as copies.
            let holders = std::mem::take(&mut chunk.holders);
            let (pending, refused) = (holders.to_vec(), Vec::new());
            chunk.state = ChunkState::Allocating { pending, refused, undoing: true };
            if holders.is_empty() {
                ground.chunks.map.remove(&index);
            }
            for holder in holders {
                ground.call(Owner::AllocateUndo(index), holder, Message::Free { chunk: index });
            }
            return (error != SpaceError::Unavailable).then_some(error);
        }
        if !waits {
            debug_assert!(!chunk.holders.is_empty(), "{index:?} is mapped without a copy (I1)");
            chunk.state = ChunkState::Mapped;
        }
        None
    }

    /// Makes the chunk wait for holders that a proposal is to expel since they gave their slabs: the
    /// proposal counted on them having no copy, so the chunk is not used before the state has decided.
    /// Returns whether there are any.
    fn waits_for_leaving(&mut self, index: ChunkIndex, ground: &mut Ground) -> bool {
        let given = ground.chunks.get(index).map(|chunk| chunk.holders.clone()).unwrap_or_default();
        let leaving: Vec<DiskId> =
            given.into_iter().filter(|disk| ground.membership.proposes_to_leave(*disk)).collect();
        let Some(chunk) = ground.chunks.get_mut(index) else { return false };
        let ChunkState::Allocating { pending, .. } = &mut chunk.state else { return false };
        chunk.holders.retain(|holder| !leaving.contains(holder));
        pending.extend(leaving.iter().copied());
        self.by_leaving.extend(leaving.iter().map(|disk| (index, *disk)));
        !leaving.is_empty()
    }

    /// Notes that a disk gave its slab back, or is out.
    pub fn allocation_undone(&mut self, index: ChunkIndex, disk: DiskId, ground: &mut Ground) {
        ground.chunks.pool.borrow_mut().give_back(disk);
        let Some(chunk) = ground.chunks.get_mut(index) else { return };
        let ChunkState::Allocating { pending, undoing: true, .. } = &mut chunk.state else { return };
        pending.retain(|pending| *pending != disk);
        if pending.is_empty() {
            ground.chunks.map.remove(&index);
        }
        ground.reports.recheck = true;
    }

    /// Takes the slabs of disks that a proposal was to expel, now that the state has decided.
    pub fn take_by_leaving(&mut self) -> Vec<(ChunkIndex, DiskId)> {
        std::mem::take(&mut self.by_leaving)
    }
}

fn is_fixed(ground: &Ground) -> bool {
    ground.membership.record().provisioning == Provisioning::Fixed
}

/// Counts the slabs that a fixed volume was promised and does not have yet.
pub(super) fn promised_slabs(ground: &Ground) -> u64 {
    if !is_fixed(ground) {
        return 0;
    }
    let copies = u64::from(ground.membership.record().resiliency.copies());
    let chunks = (ground.membership.record().size_bytes / BLOCK_BYTES as u64)
        .div_ceil(ground.setting.geometry.chunk_blocks);
    let given: u64 = ground.chunks.map.values().map(|chunk| chunk.holders.len() as u64).sum();
    (chunks * copies).saturating_sub(given)
}

/// Returns disks that may not get chunks of the volume.
pub(super) fn excluded(ground: &Ground) -> Vec<DiskId> {
    let pool = ground.chunks.pool.borrow();
    let ids = pool.disks().map(|disk| disk.id);
    ids.filter(|disk| {
        !ground.membership.is_in_sync(*disk)
            || !ground.calls.is_open(*disk)
            || ground.setting.is_retired(*disk)
            // The chunk could not use this disk's slab before the state has decided whether the disk leaves.
            || ground.membership.proposes_to_leave(*disk)
    })
    .collect()
}

/// Whether the record has a disk out, the only reason for a chunk to begin with fewer copies. A disk
/// that fails is not out before the record says so: until then new chunks wait, as writes to its other
/// chunks do. A retired disk would give no slab if it were there, so it excuses nothing, unless fewer disks
/// than copies are left without it: a lost disk was retired.
fn is_disk_out(ground: &Ground) -> bool {
    let is_retired = |disk: &DiskId| ground.setting.is_retired(*disk);
    if Planted::RetiringCountsAsOut.is_planted() && excluded(ground).iter().any(is_retired) {
        return true;
    }
    let record = ground.membership.record();
    let too_few = record.in_sync.len() < usize::from(record.resiliency.copies());
    record.stale.iter().any(|stale| too_few || !is_retired(&stale.disk))
}

/// Returns the number of copies of a new chunk that there is space for now, at most the volume's.
/// `None`: no disk is out, or too few are left.
pub(super) fn copies_while_disks_are_out(ground: &Ground) -> Option<u8> {
    if !is_disk_out(ground) {
        return None;
    }
    let (excluded, copies) = (excluded(ground), ground.membership.record().resiliency.copies());
    let pool = ground.chunks.pool.borrow();
    let least = ground.membership.record().min_copies.clamp(1, copies);
    (least..=copies)
        .rev()
        .find(|&possible| pool.domains_with_room(possible, &excluded) >= usize::from(possible))
}

/// Returns why no disk gives a slab. A disk in sync that is unreachable, or that a proposal is to
/// expel, will soon be out or back. A disk that still has to give back an earlier slab of the chunk can
/// take it after that. Disks that are being brought up to date give slabs when they are in sync.
fn why_no_slabs(index: ChunkIndex, ground: &Ground) -> SpaceError {
    let pool = ground.chunks.pool.borrow();
    let marked = ground.membership.marked_for(index);
    let away = |disk: &DiskId| {
        let has_room = pool.disk(*disk).is_some_and(|view| view.free_slabs > 0);
        let is_asked = ground.calls.is_open(*disk)
            && !ground.membership.proposes_to_leave(*disk)
            && !marked.contains(disk);
        has_room && !is_asked && !ground.setting.is_retired(*disk)
    };
    let waits = ground.membership.record().in_sync.iter().any(away) || returning_give_slabs(index, ground);
    if waits && !Planted::FullWhenAway.is_planted() { SpaceError::Unavailable } else { SpaceError::NoSpace }
}

/// Whether the chunk would get its slabs if the disks that are being brought up to date were in sync.
fn returning_give_slabs(index: ChunkIndex, ground: &Ground) -> bool {
    let (membership, returning) = (&ground.membership, &ground.chunks.returning);
    let Some(chunk) = ground.chunks.get(index) else { return false };
    if returning.is_empty() || Planted::FullWhileReturning.is_planted() {
        return false;
    }
    let is_retired = |disk: &DiskId| ground.setting.is_retired(*disk);
    let mut excluded = excluded(ground);
    excluded.retain(|disk| !returning.contains(disk) || is_retired(disk));
    excluded.extend(membership.marked_for(index));
    let record = membership.record();
    let stays_out = |disk: &DiskId| !returning.contains(disk) && !is_retired(disk);
    let copies = record.resiliency.copies();
    let enough = match record.stale.iter().any(|stale| stays_out(&stale.disk)) {
        true => record.min_copies.clamp(1, copies),
        false => copies,
    };
    let lacking = enough.saturating_sub(chunk.holders.len() as u8);
    let purpose = if is_fixed(ground) { Purpose::Promised } else { Purpose::Write };
    pool::place(&ground.chunks.pool.borrow(), lacking, &chunk.holders, &excluded, purpose).is_ok()
}
