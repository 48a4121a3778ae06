//! A pool as placement sees it.

use crate::domain::DomainName;
use crate::{FaultDomain, Level};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use types::DiskId;

/// The way to a disk from the server that looks at the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The disk is of this server, and its store is open.
    Local,
    /// The disk is of another server.
    Remote {
        /// That server is dead, or cut off from this one.
        is_down: bool,
        /// Slabs, in all and free, as that server reported them last.
        reported: (u64, u64),
    },
    /// There is none any more: the disk was pulled, or has failed.
    Away,
    /// There was none yet. The administrator's decisions on the disk are known, its place and its size are not.
    Unseen,
}

/// A disk of the pool, with all that a server knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Id of the disk.
    pub id: DiskId,
    /// Slabs that the disk has.
    pub total_slabs: u64,
    /// Free slabs. Of another server's disk: as reported, less the slabs that were given from here since.
    pub free_slabs: u64,
    /// Place of the disk, by which copies are kept apart.
    pub domain: FaultDomain,
    /// Way to the disk.
    pub route: Route,
    /// The administrator takes the disk out: its chunks move to others, and it is given none.
    pub is_retired: bool,
    /// The disk will not come back with the data that it had.
    pub is_given_up: bool,
}

impl Disk {
    /// Makes a disk of which all slabs are free.
    pub fn new(id: DiskId, slabs: u64, domain: FaultDomain, route: Route) -> Self {
        let (total_slabs, free_slabs) = (slabs, slabs);
        Self { id, total_slabs, free_slabs, domain, route, is_retired: false, is_given_up: false }
    }

    fn unseen(id: DiskId) -> Self {
        Self::new(id, 0, FaultDomain::default(), Route::Unseen)
    }

    /// Whether the disk is of another server.
    pub fn is_remote(&self) -> bool {
        matches!(self.route, Route::Remote { .. })
    }

    /// Whether the disk is of another server that is dead, or cut off from this one.
    pub fn is_down(&self) -> bool {
        matches!(self.route, Route::Remote { is_down: true, .. })
    }

    /// Whether there is a way to the disk, as far as this server knows.
    pub fn is_attached(&self) -> bool {
        matches!(self.route, Route::Local | Route::Remote { .. })
    }

    /// Whether the disk may be given chunks.
    pub fn is_usable(&self) -> bool {
        self.is_attached() && !self.is_down() && !self.is_retired
    }

    /// Whether the disk's server is down and expected back: the disk is given nothing, and its fault domain counts.
    pub fn is_expected(&self) -> bool {
        self.is_down() && !self.is_retired && !self.is_given_up
    }

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

/// The disks of a pool, in order of their ids, and its reserve: the one table of disks of a server.
///
/// Invariant: `reserve_slabs`, `has_remote` and `has_retired` follow from the disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolView {
    disks: Vec<Disk>,
    reserve_disks: u32,
    /// Slabs that only repair may take.
    pub reserve_slabs: u64,
    /// Slabs that fixed virtual disks have been promised and not been given yet.
    pub promised_slabs: u64,
    has_remote: bool,
    has_retired: bool,
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
    pub fn new(mut disks: Vec<Disk>, reserve_disks: u32) -> Self {
        disks.sort_by_key(|disk| disk.id);
        let mut view = Self { disks, reserve_disks, ..Self::default() };
        view.recount();
        view
    }

    fn recount(&mut self) {
        let usable = self.disks.iter().filter(|disk| disk.is_usable());
        let mut sizes: Vec<u64> = usable.map(|disk| disk.total_slabs).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        self.reserve_slabs = sizes.iter().take(self.reserve_disks as usize).sum();
        self.has_remote = self.disks.iter().any(Disk::is_remote);
        self.has_retired = self.disks.iter().any(|disk| disk.is_retired);
    }

    /// The disks that were seen.
    pub fn disks(&self) -> impl Iterator<Item = &Disk> + Clone {
        self.disks.iter().filter(|disk| disk.route != Route::Unseen)
    }

    /// The disks that the administrator takes out, seen or not.
    pub fn retired(&self) -> impl Iterator<Item = DiskId> + '_ {
        self.disks.iter().filter(|disk| disk.is_retired).map(|disk| disk.id)
    }

    /// Whether the administrator takes some disk out.
    pub fn has_retired(&self) -> bool {
        self.has_retired
    }

    /// Whether some disk is of another server.
    pub fn has_remote(&self) -> bool {
        self.has_remote
    }

    fn place_of(&self, id: DiskId) -> Result<usize, usize> {
        self.disks.binary_search_by_key(&id, |disk| disk.id)
    }

    /// Finds a disk by its id.
    pub fn disk(&self, id: DiskId) -> Option<&Disk> {
        self.place_of(id).ok().map(|at| &self.disks[at])
    }

    fn disk_mut(&mut self, id: DiskId) -> Option<&mut Disk> {
        self.place_of(id).ok().map(|at| &mut self.disks[at])
    }

    /// Changes a disk; one that is not in the table yet begins as [`Route::Unseen`].
    pub fn change<R>(&mut self, id: DiskId, change: impl FnOnce(&mut Disk) -> R) -> R {
        let at = self.place_of(id).unwrap_or_else(|at| {
            self.disks.insert(at, Disk::unseen(id));
            at
        });
        let changed = change(&mut self.disks[at]);
        self.recount();
        changed
    }

    /// Notes whether the server of another server's disk is down; answers whether that is new.
    pub fn set_down(&mut self, id: DiskId, is_down: bool) -> bool {
        let Some(Disk { route: Route::Remote { is_down: known, .. }, .. }) = self.disk_mut(id) else {
            return false;
        };
        let is_new = std::mem::replace(known, is_down) != is_down;
        self.recount();
        is_new
    }

    /// Changes the fault domains of all disks that were seen.
    pub fn change_domains(&mut self, change: impl FnMut(&mut FaultDomain)) {
        let seen = self.disks.iter_mut().filter(|disk| disk.route != Route::Unseen);
        seen.map(|disk| &mut disk.domain).for_each(change);
    }

    /// Takes the slabs of disks, in all and free.
    pub fn set_slabs(&mut self, slabs: impl Iterator<Item = (DiskId, (u64, u64))>) {
        for (id, slabs) in slabs {
            if let Some(disk) = self.disk_mut(id) {
                (disk.total_slabs, disk.free_slabs) = slabs;
            }
        }
        self.recount();
    }

    /// Takes a disk out of the table.
    pub fn remove(&mut self, id: DiskId) -> Option<Disk> {
        let removed = self.place_of(id).ok().map(|at| self.disks.remove(at));
        self.recount();
        removed
    }

    /// Keeps so many disks' worth of space for repair from now on.
    pub fn set_reserve_disks(&mut self, reserve_disks: u32) {
        self.reserve_disks = reserve_disks;
        self.recount();
    }

    /// Free slabs of the usable disks, the reserve included.
    pub fn free_slabs(&self) -> u64 {
        self.disks.iter().filter(|disk| disk.is_usable()).map(|disk| disk.free_slabs).sum()
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

    /// The disk refused a slab.
    pub fn note_full(&mut self, id: DiskId) {
        if let Some(disk) = self.disk_mut(id) {
            disk.free_slabs = 0;
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
        let with_room = self.disks.iter().filter(|disk| disk.is_usable() && disk.free_slabs > 0);
        let with_room = with_room.filter(|disk| !excluded.contains(&disk.id));
        with_room.map(|disk| disk.domain.name(disk.id, level)).collect::<BTreeSet<_>>().len()
    }

    fn chunks_beyond(&self, copies: u8, kept_slabs: u64) -> u64 {
        let Some(level) = level(self, copies) else { return 0 };
        let copies = u64::from(copies.max(1));
        let mut by_domain = BTreeMap::new();
        for disk in self.disks.iter().filter(|disk| disk.is_usable()) {
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
            .filter(|disk| disk.is_usable() || disk.is_expected())
            .map(|disk| disk.domain.name(disk.id, level))
            .collect();
        domains.len() >= usize::from(copies.max(1))
    })
}
