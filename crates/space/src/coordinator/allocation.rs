//! Giving a chunk its slabs at the first write.

use super::Coordinator;
use super::calls::{Failure, Owner};
use super::chunks::{Chunk, ChunkState};
use super::operations::{Kind, Stage};
use crate::api::SpaceError;
use crate::message::{Answer, Operation as Message};
use crate::planted::Planted;
use cluster::Provisioning;
use pool::Purpose;
use types::{BLOCK_BYTES, ChunkIndex, DiskId};

impl Coordinator {
    /// Asks disks for slabs of the chunk. An error: there are none; `Unavailable`: there may be when disks that are in sync can be
    /// reached again.
    pub(super) fn allocate(&mut self, index: ChunkIndex, append: bool) -> Option<SpaceError> {
        let mut chunk = Chunk::new(append);
        chunk.state = ChunkState::Allocating { pending: Vec::new(), refused: Vec::new(), undoing: false };
        self.chunks.insert(index, chunk);
        let error = self.ask_for_slabs(index)?;
        self.chunks.remove(&index);
        Some(error)
    }

    fn is_fixed(&self) -> bool {
        self.record.provisioning == Provisioning::Fixed
    }

    /// Slabs that the volume, being fixed, was promised and has not been given yet.
    pub fn promised_slabs(&self) -> u64 {
        if !self.is_fixed() {
            return 0;
        }
        let copies = u64::from(self.record.resiliency.copies());
        let chunks = (self.record.size_bytes / BLOCK_BYTES as u64).div_ceil(self.chunk_blocks);
        let given: u64 = self.chunks.values().map(|chunk| chunk.holders.len() as u64).sum();
        (chunks * copies).saturating_sub(given)
    }

    /// Disks that may not be given chunks of the volume.
    pub(super) fn excluded(&self) -> Vec<DiskId> {
        let pool = self.pool.borrow();
        let ids = pool.disks().iter().map(|disk| disk.id);
        ids.filter(|disk| {
            !self.record.in_sync.contains(disk) || !self.calls.is_open(*disk) || self.retired.contains(disk)
        })
        .collect()
    }

    /// Copies of a new chunk that there is room for now, at most as many as the volume has. `None`: no disk is away, which alone lets a
    /// chunk begin with fewer copies, or too few are left.
    pub(super) fn copies_while_disks_are_away(&self) -> Option<u8> {
        let (excluded, copies) = (self.excluded(), self.record.resiliency.copies());
        if excluded.is_empty() && self.record.stale.is_empty() {
            return None;
        }
        let pool = self.pool.borrow();
        let takes_more =
            |disk: &&pool::DiskView| disk.usable && disk.free_slabs > 0 && !excluded.contains(&disk.id);
        let with_room = pool.disks().iter().filter(takes_more).count();
        let possible = copies.min(u8::try_from(with_room).unwrap_or(u8::MAX));
        (possible >= self.record.min_copies.clamp(1, copies)).then_some(possible)
    }

    /// Asks as many disks as the chunk still lacks copies.
    fn ask_for_slabs(&mut self, index: ChunkIndex) -> Option<SpaceError> {
        let copies = self.record.resiliency.copies();
        let least = self.record.min_copies.clamp(1, copies);
        let chunk = self.chunks.get(&index)?;
        let (append, holders) = (chunk.append, chunk.holders.to_vec());
        let refused = match &chunk.state {
            ChunkState::Allocating { refused, .. } => refused.clone(),
            _ => return None,
        };
        let mut excluded = self.excluded();
        excluded.extend(self.marked_for(index));
        // With disks missing, fewer copies are better than none: they are made up for later.
        let degraded = !excluded.is_empty() || !refused.is_empty() || !self.record.stale.is_empty();
        excluded.extend(refused);
        let mut chosen = None;
        for wanted in (1..=copies.saturating_sub(holders.len() as u8)).rev() {
            if holders.len() as u8 + wanted < least {
                break;
            }
            let purpose = if self.is_fixed() { Purpose::Promised } else { Purpose::Write };
            chosen = pool::place(&self.pool.borrow(), wanted, &holders, &excluded, purpose).ok();
            if chosen.is_some() || !degraded {
                break;
            }
        }
        let Some(chosen) = chosen else {
            return (holders.len() < usize::from(least)).then(|| self.why_no_slabs());
        };
        if let Some(chunk) = self.chunks.get_mut(&index)
            && let ChunkState::Allocating { pending, .. } = &mut chunk.state
        {
            pending.extend(chosen.iter().copied());
        }
        if self.is_fixed() {
            let mut pool = self.pool.borrow_mut();
            pool.promised_slabs = pool.promised_slabs.saturating_sub(chosen.len() as u64);
        }
        for disk in chosen {
            self.pool.borrow_mut().take(disk);
            self.call(Owner::Allocate(index), disk, Message::Allocate { chunk: index, append });
        }
        None
    }

    /// A disk that is in sync and cannot be reached is out soon, or back.
    fn why_no_slabs(&self) -> SpaceError {
        let pool = self.pool.borrow();
        let away = |disk: &DiskId| {
            let has_room = pool.disk(*disk).is_some_and(|view| view.free_slabs > 0);
            has_room && !self.calls.is_open(*disk) && !self.retired.contains(disk)
        };
        let waits = self.record.in_sync.iter().any(away) && !Planted::FullWhenAway.is_planted();
        if waits { SpaceError::Unavailable } else { SpaceError::NoSpace }
    }

    pub(super) fn allocated(&mut self, index: ChunkIndex, disk: DiskId, result: Result<Answer, Failure>) {
        if result.is_ok() && self.proposes_to_leave(disk) {
            // That it may leave was found harmless while it held nothing. The chunk waits for what the state says.
            self.allocated_by_leaving.push((index, disk));
            return;
        }
        let counts = self.record.in_sync.contains(&disk);
        let Some(chunk) = self.chunks.get_mut(&index) else { return };
        let ChunkState::Allocating { pending, refused, undoing: false } = &mut chunk.state else { return };
        pending.retain(|pending| *pending != disk);
        match result {
            // It left meanwhile: were it a holder, its resync would take the slab for a copy that counts already. When it comes
            // back, its slab is filled or given back like any other.
            Ok(_) if !counts => refused.push(disk),
            Ok(_) => {
                chunk.holders.push(disk);
                chunk.holders.sort_unstable();
            }
            Err(failure) => {
                refused.push(disk);
                let mut pool = self.pool.borrow_mut();
                if failure == Failure::Gone {
                    pool.give_back(disk);
                } else if let Some(view) = pool.disk_mut(disk) {
                    view.free_slabs = 0;
                }
            }
        }
        if !pending.is_empty() || self.waits_for_leaving(index) {
            return;
        }
        let Some(chunk) = self.chunks.get(&index) else { return };
        let copies = usize::from(self.record.resiliency.copies());
        let error = if chunk.holders.len() < copies { self.ask_for_slabs(index) } else { None };
        let Some(chunk) = self.chunks.get_mut(&index) else { return };
        let waits = matches!(&chunk.state, ChunkState::Allocating { pending, .. } if !pending.is_empty());
        if let Some(error) = error {
            // Until the slabs are given back nothing may be allocated anew: a disk in sync is believed to have what it has.
            let holders = std::mem::take(&mut chunk.holders);
            let (pending, refused) = (holders.to_vec(), Vec::new());
            chunk.state = ChunkState::Allocating { pending, refused, undoing: true };
            if holders.is_empty() {
                self.chunks.remove(&index);
            }
            for holder in holders {
                self.call(Owner::AllocateUndo(index), holder, Message::Free { chunk: index });
            }
            if error != SpaceError::Unavailable {
                self.fail_gated_writes(index, &error);
            }
        } else if !waits {
            chunk.state = ChunkState::Mapped;
        }
        self.recheck = true;
    }

    /// A disk that gave its slab may have been proposed to leave since, which was found harmless like any other: until that is
    /// decided the chunk is not used.
    fn waits_for_leaving(&mut self, index: ChunkIndex) -> bool {
        let given = self.chunks.get(&index).map(|chunk| chunk.holders.clone()).unwrap_or_default();
        let leaving: Vec<DiskId> = given.into_iter().filter(|disk| self.proposes_to_leave(*disk)).collect();
        let Some(chunk) = self.chunks.get_mut(&index) else { return false };
        let ChunkState::Allocating { pending, .. } = &mut chunk.state else { return false };
        chunk.holders.retain(|holder| !leaving.contains(holder));
        pending.extend(leaving.iter().copied());
        self.allocated_by_leaving.extend(leaving.iter().map(|disk| (index, *disk)));
        !leaving.is_empty()
    }

    /// A disk gave its slab back, or is out.
    pub(super) fn allocation_undone(&mut self, index: ChunkIndex, disk: DiskId) {
        self.pool.borrow_mut().give_back(disk);
        let Some(chunk) = self.chunks.get_mut(&index) else { return };
        let ChunkState::Allocating { pending, undoing: true, .. } = &mut chunk.state else { return };
        pending.retain(|pending| *pending != disk);
        if pending.is_empty() {
            self.chunks.remove(&index);
        }
        self.recheck = true;
    }

    /// It is decided whether disks leave that gave slabs meanwhile.
    pub(super) fn leaving_decided(&mut self) {
        for (index, disk) in std::mem::take(&mut self.allocated_by_leaving) {
            self.allocated(index, disk, Ok(Answer::Done));
        }
    }

    fn fail_gated_writes(&mut self, index: ChunkIndex, error: &SpaceError) {
        let waiting: Vec<u64> = self
            .operations
            .iter()
            .filter(|(_, operation)| {
                operation.chunk == index
                    && matches!(operation.stage, Stage::Gated)
                    && matches!(operation.kind, Kind::Write { .. })
            })
            .map(|(&number, _)| number)
            .collect();
        for number in waiting {
            self.finish_operation(number, Err(error.clone()));
        }
    }

    /// No copy has a slab of the chunk any more.
    pub(super) fn chunk_freed(&mut self, index: ChunkIndex) {
        let Some(chunk) = self.chunks.remove(&index) else { return };
        self.unclean.remove(&index);
        let mut pool = self.pool.borrow_mut();
        for disk in chunk.holders.iter().chain(chunk.mirrors.iter()) {
            pool.give_back(*disk);
        }
        drop(pool);
        self.recheck = true;
    }
}
