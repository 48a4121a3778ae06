//! A pool as placement sees it.

use crate::domain::DomainName;
use crate::{FaultDomain, Level};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use types::DiskId;

/// A disk as placement sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskView {
    /// Id of the disk.
    pub id: DiskId,
    /// Slabs that the disk has.
    pub total_slabs: u64,
    /// Slabs that no volume has.
    pub free_slabs: u64,
    /// Place of the disk, by which copies are kept apart.
    pub domain: FaultDomain,
    /// May be given chunks: healthy, reachable, not retired.
    pub usable: bool,
    /// Whether the disk's node is down and expected back: it is given nothing, and its fault domain counts.
    pub expected: bool,
}

impl DiskView {
    /// Returns the slabs that volumes have.
    pub fn used_slabs(&self) -> u64 {
        self.total_slabs.saturating_sub(self.free_slabs)
    }

    /// Compares how full the disks would be with one more slab each; the emptier is less.
    pub(crate) fn by_fill_with_one_more(&self, other: &Self) -> Ordering {
        let mine = u128::from(self.used_slabs() + 1) * u128::from(other.total_slabs);
        let theirs = u128::from(other.used_slabs() + 1) * u128::from(self.total_slabs);
        mine.cmp(&theirs).then(other.free_slabs.cmp(&self.free_slabs)).then(self.id.cmp(&other.id))
    }
}

/// The disks of a pool, in order of their ids, and its reserve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolView {
    disks: Vec<DiskView>,
    /// Slabs that only repair may take.
    pub reserve_slabs: u64,
    /// Slabs that fixed virtual disks have been promised and not been given yet.
    pub promised_slabs: u64,
}

/// How many disks' worth of space is kept for repair if nothing else is said: one for each node, at most four, as Storage
/// Spaces Direct recommends; none if fewer than three disks would make it a third or more of the pool for nothing.
pub fn default_reserve_disks(domains: &[FaultDomain]) -> u32 {
    let nodes: BTreeSet<(&str, &str)> =
        domains.iter().map(|domain| (domain.rack.as_str(), domain.node.as_str())).collect();
    let spare = domains.len().saturating_sub(2);
    nodes.len().min(4).min(spare) as u32
}

impl PoolView {
    /// The reserve is the size of the `reserve_disks` largest usable disks.
    pub fn new(mut disks: Vec<DiskView>, reserve_disks: u32) -> Self {
        disks.sort_by_key(|disk| disk.id);
        let mut sizes: Vec<u64> =
            disks.iter().filter(|disk| disk.usable).map(|disk| disk.total_slabs).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let reserve_slabs = sizes.iter().take(reserve_disks as usize).sum();
        Self { disks, reserve_slabs, promised_slabs: 0 }
    }

    /// Returns the disks, by their ids.
    pub fn disks(&self) -> &[DiskView] {
        &self.disks
    }

    /// Finds a disk by its id.
    pub fn disk(&self, id: DiskId) -> Option<&DiskView> {
        self.disks.binary_search_by_key(&id, |disk| disk.id).ok().map(|at| &self.disks[at])
    }

    /// Finds a disk by its id, to change it.
    pub fn disk_mut(&mut self, id: DiskId) -> Option<&mut DiskView> {
        self.disks.binary_search_by_key(&id, |disk| disk.id).ok().map(|at| &mut self.disks[at])
    }

    /// Free slabs of the usable disks, the reserve included.
    pub fn free_slabs(&self) -> u64 {
        self.disks.iter().filter(|disk| disk.usable).map(|disk| disk.free_slabs).sum()
    }

    /// One slab of the disk is taken.
    pub fn take(&mut self, id: DiskId) {
        if let Some(disk) = self.disk_mut(id) {
            disk.free_slabs = disk.free_slabs.saturating_sub(1);
        }
    }

    /// One slab of the disk is given back.
    pub fn give_back(&mut self, id: DiskId) {
        if let Some(disk) = self.disk_mut(id) {
            disk.free_slabs = (disk.free_slabs + 1).min(disk.total_slabs);
        }
    }

    /// Chunks of `copies` copies that new writes can still be given: by how many rounds of `copies` different fault domains the free slabs
    /// allow.
    pub fn available_chunks(&self, copies: u8) -> u64 {
        self.chunks_beyond(copies, self.reserve_slabs.saturating_add(self.promised_slabs))
    }

    /// As [`PoolView::available_chunks`], for volumes to which slabs were promised.
    pub fn promised_chunks(&self, copies: u8) -> u64 {
        self.chunks_beyond(copies, self.reserve_slabs)
    }

    /// Counts fault domains of which a chunk of `copies` copies could have a disk with room now, except for those of `excluded`.
    pub fn domains_with_room(&self, copies: u8, excluded: &[DiskId]) -> usize {
        let Some(level) = level(self, copies) else { return 0 };
        let with_room = self.disks.iter().filter(|disk| disk.usable && disk.free_slabs > 0);
        let with_room = with_room.filter(|disk| !excluded.contains(&disk.id));
        with_room.map(|disk| disk.domain.name(disk.id, level)).collect::<BTreeSet<_>>().len()
    }

    fn chunks_beyond(&self, copies: u8, kept_slabs: u64) -> u64 {
        let Some(level) = level(self, copies) else { return 0 };
        let copies = u64::from(copies.max(1));
        let mut by_domain = BTreeMap::new();
        for disk in self.disks.iter().filter(|disk| disk.usable) {
            *by_domain.entry(disk.domain.name(disk.id, level)).or_insert(0) += disk.free_slabs;
        }
        let free: Vec<u64> = by_domain.into_values().collect();
        let budget = self.free_slabs().saturating_sub(kept_slabs) / copies;
        // The largest n with sum(min(free, n)) >= n * copies: each chunk takes at most one slab of a domain.
        let (mut low, mut high) = (0, budget);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let room: u128 = free.iter().map(|&slabs| u128::from(slabs.min(middle))).sum();
            if room >= u128::from(middle) * u128::from(copies) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

/// The strictest level at which the pool's disks give every copy a domain of its own: those that are usable, and those that are expected
/// back. For a node that restarts, copies are not crowded on others.
pub fn level(pool: &PoolView, copies: u8) -> Option<Level> {
    Level::STRICTEST_FIRST.into_iter().find(|&level| {
        let domains: BTreeSet<DomainName<'_>> = pool
            .disks()
            .iter()
            .filter(|disk| disk.usable || disk.expected)
            .map(|disk| disk.domain.name(disk.id, level))
            .collect();
        domains.len() >= usize::from(copies.max(1))
    })
}
