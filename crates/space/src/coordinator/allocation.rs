//! Allocation of a chunk's slabs at its first write.
//!
//! Invariant: a chunk in the state `Allocating` holds no acknowledged write. It becomes `Mapped`
//! with at least `min_copies` holders, none of which a proposal was to expel meanwhile (I1). A
//! chunk begins with fewer copies than the volume's resiliency only while a disk is out by the
//! record. A present disk that gives no slab, because it is being retired, is full, or does not
//! answer at the moment, excuses no missing copy.

use super::calls::{Failure, Owner};
use super::chunks::{Chunk, ChunkState};
use super::shared::Shared;
use crate::api::SpaceError;
use crate::message::{Answer, ReplicaOperation};
use crate::planted::Planted;
use pool::Purpose;
use records::Provisioning;
use types::{BLOCK_BYTES, ChunkIndex, DiskId};

#[derive(Default)]
pub(super) struct Allocation {
    /// Slabs given by disks that an uncommitted record expels.
    by_leaving: Vec<(ChunkIndex, DiskId)>,
}

impl Allocation {
    /// Requests slabs of the chunk from disks. Returns an error if none can give one: `Unavailable`
    /// if some may when disks in sync are reachable again.
    pub fn allocate(&mut self, index: ChunkIndex, append: bool, shared: &mut Shared) -> Option<SpaceError> {
        let mut chunk = Chunk::new(append);
        chunk.state = ChunkState::Allocating { pending: Vec::new(), refused: Vec::new(), undoing: false };
        debug_assert!(shared.chunks.get(index).is_none(), "{index:?} has slabs");
        shared.chunks.map.insert(index, chunk);
        let error = self.ask_for_slabs(index, shared)?;
        shared.chunks.map.remove(&index);
        Some(error)
    }

    /// Requests as many slabs as the chunk still lacks.
    fn ask_for_slabs(&mut self, index: ChunkIndex, shared: &mut Shared) -> Option<SpaceError> {
        let copies = shared.membership.record().resiliency.copies();
        let least = shared.membership.record().min_copies.clamp(1, copies);
        let chunk = shared.chunks.get(index)?;
        let (append, holders) = (chunk.append, chunk.holders.to_vec());
        let refused = match &chunk.state {
            ChunkState::Allocating { refused, .. } => refused.clone(),
            _ => return None,
        };
        let mut excluded = excluded(shared);
        excluded.extend(shared.membership.marked_for(index));
        excluded.extend(refused);
        let lacking = copies.saturating_sub(holders.len() as u8);
        let may_lack_copies = is_disk_out(shared);
        // With disks missing, fewer copies are better than none: a rebuild makes the others later.
        let fewest =
            if may_lack_copies { least.saturating_sub(holders.len() as u8).max(1) } else { lacking.max(1) };
        let purpose = if is_fixed(shared) { Purpose::Promised } else { Purpose::Write };
        let chosen = (fewest..=lacking).rev().find_map(|wanted| {
            pool::place(&shared.chunks.pool.borrow(), wanted, &holders, &excluded, purpose).ok()
        });
        let Some(chosen) = chosen else {
            let enough = if may_lack_copies { least } else { copies };
            return (holders.len() < usize::from(enough)).then(|| why_no_slabs(index, shared));
        };
        if let Some(chunk) = shared.chunks.get_mut(index)
            && let ChunkState::Allocating { pending, .. } = &mut chunk.state
        {
            pending.extend(chosen.iter().copied());
        }
        if is_fixed(shared) {
            let mut pool = shared.chunks.pool.borrow_mut();
            pool.promised_slabs = pool.promised_slabs.saturating_sub(chosen.len() as u64);
        }
        for disk in chosen {
            shared.chunks.pool.borrow_mut().take(disk);
            shared.call(Owner::Allocate(index), disk, ReplicaOperation::Allocate { chunk: index, append });
        }
        None
    }

    /// Notes an answer to a request for a slab. If the chunk gets none, returns the error for the
    /// writes to it.
    pub fn allocated(
        &mut self,
        index: ChunkIndex,
        disk: DiskId,
        result: Result<Answer, Failure>,
        shared: &mut Shared,
    ) -> Option<SpaceError> {
        if result.is_ok() && shared.membership.proposes_to_leave(disk) {
            // The proposal counted on the disk having no copy of this chunk. The chunk waits for the state's
            // answer.
            self.by_leaving.push((index, disk));
            return None;
        }
        let counts = shared.membership.is_in_sync(disk);
        let chunk = shared.chunks.map.get_mut(&index)?;
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
                let mut pool = shared.chunks.pool.borrow_mut();
                if failure == Failure::Gone {
                    pool.give_back(disk);
                } else {
                    pool.note_full(disk);
                }
            }
        }
        if !pending.is_empty() || self.waits_for_leaving(index, shared) {
            return None;
        }
        let chunk = shared.chunks.get(index)?;
        let copies = usize::from(shared.membership.record().resiliency.copies());
        let error = if chunk.holders.len() < copies { self.ask_for_slabs(index, shared) } else { None };
        let chunk = shared.chunks.get_mut(index)?;
        let waits = matches!(&chunk.state, ChunkState::Allocating { pending, .. } if !pending.is_empty());
        shared.mailbox.recheck = true;
        if let Some(error) = error {
            // No new allocation before the slabs are given back: all slabs of a disk in sync count as copies.
            let holders = std::mem::take(&mut chunk.holders);
            let (pending, refused) = (holders.to_vec(), Vec::new());
            chunk.state = ChunkState::Allocating { pending, refused, undoing: true };
            if holders.is_empty() {
                shared.chunks.map.remove(&index);
            }
            for holder in holders {
                shared.call(Owner::AllocateUndo(index), holder, ReplicaOperation::Free { chunk: index });
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
    fn waits_for_leaving(&mut self, index: ChunkIndex, shared: &mut Shared) -> bool {
        let given = shared.chunks.get(index).map(|chunk| chunk.holders.clone()).unwrap_or_default();
        let leaving: Vec<DiskId> =
            given.into_iter().filter(|disk| shared.membership.proposes_to_leave(*disk)).collect();
        let Some(chunk) = shared.chunks.get_mut(index) else { return false };
        let ChunkState::Allocating { pending, .. } = &mut chunk.state else { return false };
        chunk.holders.retain(|holder| !leaving.contains(holder));
        pending.extend(leaving.iter().copied());
        self.by_leaving.extend(leaving.iter().map(|disk| (index, *disk)));
        !leaving.is_empty()
    }

    /// Notes that a disk gave its slab back, or was expelled.
    pub fn allocation_undone(&mut self, index: ChunkIndex, disk: DiskId, shared: &mut Shared) {
        shared.chunks.pool.borrow_mut().give_back(disk);
        let Some(chunk) = shared.chunks.get_mut(index) else { return };
        let ChunkState::Allocating { pending, undoing: true, .. } = &mut chunk.state else { return };
        pending.retain(|pending| *pending != disk);
        if pending.is_empty() {
            shared.chunks.map.remove(&index);
        }
        shared.mailbox.recheck = true;
    }

    /// Takes the slabs of disks that a proposal was to expel, now that the state has decided.
    pub fn take_by_leaving(&mut self) -> Vec<(ChunkIndex, DiskId)> {
        std::mem::take(&mut self.by_leaving)
    }
}

fn is_fixed(shared: &Shared) -> bool {
    shared.membership.record().provisioning == Provisioning::Fixed
}

/// Counts slabs that a fixed volume was promised and does not have yet.
pub(super) fn promised_slabs(shared: &Shared) -> u64 {
    if !is_fixed(shared) {
        return 0;
    }
    let copies = u64::from(shared.membership.record().resiliency.copies());
    let chunks = (shared.membership.record().size_bytes / BLOCK_BYTES as u64)
        .div_ceil(shared.context.geometry.chunk_blocks);
    let given: u64 = shared.chunks.map.values().map(|chunk| chunk.holders.len() as u64).sum();
    (chunks * copies).saturating_sub(given)
}

/// Returns disks that may not get chunks of the volume.
pub(super) fn excluded(shared: &Shared) -> Vec<DiskId> {
    let pool = shared.chunks.pool.borrow();
    let ids = pool.disks().map(|disk| disk.id);
    ids.filter(|disk| {
        !shared.membership.is_in_sync(*disk)
            || !shared.calls.is_open(*disk)
            || shared.context.is_retired(*disk)
            // The chunk could not use this disk's slab before the state has decided whether the disk leaves.
            || shared.membership.proposes_to_leave(*disk)
    })
    .collect()
}

/// Whether a disk is out by the record, the only reason for a chunk to begin with fewer copies. A
/// disk that fails is not out before the record says so: until then new chunks wait, as writes to
/// its other chunks do. A retired disk would give no slab if it were present, so it excuses
/// nothing, unless fewer disks than copies are left without it: then a lost disk was retired.
fn is_disk_out(shared: &Shared) -> bool {
    let is_retired = |disk: &DiskId| shared.context.is_retired(*disk);
    if Planted::RetiringCountsAsOut.is_planted() && excluded(shared).iter().any(is_retired) {
        return true;
    }
    let record = shared.membership.record();
    let too_few = record.in_sync.len() < usize::from(record.resiliency.copies());
    record.stale.iter().any(|stale| too_few || !is_retired(&stale.disk))
}

/// Returns the number of copies of a new chunk that there is space for now, at most the volume's.
/// `None`: no disk is out, or too few are left.
pub(super) fn copies_while_disks_are_out(shared: &Shared) -> Option<u8> {
    if !is_disk_out(shared) {
        return None;
    }
    let (excluded, copies) = (excluded(shared), shared.membership.record().resiliency.copies());
    let pool = shared.chunks.pool.borrow();
    let least = shared.membership.record().min_copies.clamp(1, copies);
    (least..=copies)
        .rev()
        .find(|&possible| pool.domains_with_room(possible, &excluded) >= usize::from(possible))
}

/// Returns the reason why no disk gives a slab. A disk in sync that is unreachable, or that a
/// proposal expels, will soon be out or back. A disk that still has to give back an earlier slab of
/// the chunk can give one after that. Disks that are being brought up to date give slabs when they
/// are in sync.
fn why_no_slabs(index: ChunkIndex, shared: &Shared) -> SpaceError {
    let pool = shared.chunks.pool.borrow();
    let marked = shared.membership.marked_for(index);
    let away = |disk: &DiskId| {
        let has_room = pool.disk(*disk).is_some_and(|view| view.free_slabs > 0);
        let is_asked = shared.calls.is_open(*disk)
            && !shared.membership.proposes_to_leave(*disk)
            && !marked.contains(disk);
        has_room && !is_asked && !shared.context.is_retired(*disk)
    };
    let waits = shared.membership.record().in_sync.iter().any(away) || returning_give_slabs(index, shared);
    if waits && !Planted::FullWhenAway.is_planted() { SpaceError::Unavailable } else { SpaceError::NoSpace }
}

/// Whether the chunk would get its slabs if the disks that are being brought up to date were in sync.
fn returning_give_slabs(index: ChunkIndex, shared: &Shared) -> bool {
    let (membership, returning) = (&shared.membership, &shared.chunks.returning);
    let Some(chunk) = shared.chunks.get(index) else { return false };
    if returning.is_empty() || Planted::FullWhileReturning.is_planted() {
        return false;
    }
    let is_retired = |disk: &DiskId| shared.context.is_retired(*disk);
    let mut excluded = excluded(shared);
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
    let purpose = if is_fixed(shared) { Purpose::Promised } else { Purpose::Write };
    pool::place(&shared.chunks.pool.borrow(), lacking, &chunk.holders, &excluded, purpose).is_ok()
}
