//! I1: a chunk begins with as many copies as the volume keeps, unless a disk is out.
//!
//! A retired disk excuses nothing, whether present or absent: it gets no new chunks. Nor does a
//! full disk.
//!
//! Checked when the first write to a chunk is acknowledged that had no slab on any disk when a
//! client requested it. If no disk was out since, and none has left, all copies must exist. A chunk
//! that began earlier may wait for a rebuild.

use records::VolumeRecord;
use std::collections::BTreeMap;
use types::{ChunkIndex, DiskId};

#[derive(Default)]
pub struct Beginnings {
    /// Whether a disk is out by the record in force.
    is_out: bool,
    /// Step at which a record with a disk out was last in force.
    last_out: u64,
    /// Step at which no disk had a slab of the chunk.
    unborn: BTreeMap<ChunkIndex, u64>,
}

impl Beginnings {
    /// Notes a record that replaces another.
    pub fn committed(&mut self, after: &VolumeRecord, retired: Option<DiskId>, step: u64) {
        let too_few = after.in_sync.len() < usize::from(after.resiliency.copies());
        let is_out = after.stale.iter().any(|stale| too_few || Some(stale.disk) != retired);
        if is_out || self.is_out {
            self.last_out = step;
        }
        self.is_out = is_out;
    }

    /// Notes a client's request to write to the chunk. `is_unborn`: no disk has a slab of it.
    /// `is_latest`: the coordinator has the record in force.
    pub fn asked(&mut self, chunk: ChunkIndex, is_unborn: bool, is_latest: bool, step: u64) {
        if is_unborn && is_latest && !self.is_out {
            self.unborn.insert(chunk, step);
        } else if is_unborn {
            self.unborn.remove(&chunk);
        }
    }

    /// Checks a write to the chunk that was acknowledged under the record `own`, by which `count`
    /// copies of it count.
    pub fn acknowledged(&mut self, chunk: ChunkIndex, own: &VolumeRecord, count: usize) -> Option<String> {
        let since = self.unborn.remove(&chunk)?;
        let is_moving = own.building.iter().any(|(_, building)| *building == chunk);
        let copies = usize::from(own.resiliency.copies());
        let is_excused = self.is_out || self.last_out >= since || is_moving;
        (!is_excused && count < copies).then(|| {
            format!("I1: {chunk:?} began with {count} of {copies} copies, and no disk is out: {own:?}")
        })
    }
}
