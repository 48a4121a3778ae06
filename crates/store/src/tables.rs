//! The slab table and the promise table (docs/ON_DISK.md, "Tables"): small, whole in RAM, two copies on disk.

use crate::bytes::{COUNT_MAX, Reader, put_u64, sealed_crc, u64_at};
use crate::layout::{
    LEAF_BYTES, LEAVES_PER_PAGE, Layout, PAGE_BYTES, PROMISE_ENTRIES_PER_LEAF, SLAB_ENTRIES_PER_LEAF,
    SLAB_ENTRIES_PER_PAGE,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{ChunkIndex, DiskId, Epoch, SlabIndex, VolumeId};

const HEADER_BYTES: usize = 32;
const SLAB_ENTRY_BYTES: usize = 48;
const PROMISE_ENTRY_BYTES: usize = 24;
const FLAG_ALLOCATED: u32 = 1;
const FLAG_APPEND: u32 = 2;
const FLAG_UNWRITTEN_DOUBT: u32 = 4;

/// Use of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabEntry {
    /// Volume that has the slab.
    pub volume: VolumeId,
    /// Chunk of the volume that the slab holds.
    pub chunk: ChunkIndex,
    /// Epoch under which the slab was allocated.
    pub epoch: Epoch,
    /// Number that differs for every allocation on this disk.
    pub generation: u64,
    /// Whether the slab holds self-proving data without checksums.
    pub append: bool,
    /// Regions of the slab last changed under this epoch or an earlier one may lack acknowledged
    /// writes, since the journal's end was not whole when the disk was opened; 0: no region does.
    /// Stays set until the copies were compared.
    pub doubtful_through: Epoch,
    /// Whether writes that doubtful regions lack read as never written, so that no older data are
    /// served in their place.
    pub doubts_unwritten: bool,
}

/// A leaf of the slab table as read: its sequence and entries.
pub type SlabLeaf = (u64, [Option<SlabEntry>; SLAB_ENTRIES_PER_LEAF]);
/// A leaf of the promise table as read: its sequence and entries.
pub type PromiseLeaf = (u64, [Option<(VolumeId, Epoch)>; PROMISE_ENTRIES_PER_LEAF]);

/// Returns the leaf's identity: another disk's or a displaced leaf does not pass for this one.
fn identity(disk: DiskId, kind: u8, leaf: u32) -> [u8; 21] {
    let mut identity = [0; 21];
    identity[..16].copy_from_slice(&disk.to_bytes());
    identity[16] = kind;
    identity[17..].copy_from_slice(&leaf.to_le_bytes());
    identity
}

fn seal(disk: DiskId, kind: u8, leaf: u32, sequence: u64, bytes: &mut [u8]) {
    put_u64(bytes, 8, sequence);
    let crc = sealed_crc(&identity(disk, kind, leaf), bytes, 0);
    put_u64(bytes, 0, crc);
}

fn unseal(disk: DiskId, kind: u8, leaf: u32, bytes: &[u8]) -> Option<(u64, Reader<'_>)> {
    let intact =
        bytes.len() == LEAF_BYTES && u64_at(bytes, 0) == sealed_crc(&identity(disk, kind, leaf), bytes, 0);
    (intact && u64_at(bytes, 8) < COUNT_MAX).then(|| (u64_at(bytes, 8), Reader::new(&bytes[HEADER_BYTES..])))
}

/// Encodes page `page` of the slab table; `sequence` tells which of two copies is newer.
pub(crate) fn encode_slab_page(
    disk: DiskId,
    page: usize,
    sequence: u64,
    slabs: &[Option<SlabEntry>],
) -> Vec<u8> {
    let mut out = vec![0; PAGE_BYTES];
    for (at, leaf) in out.chunks_exact_mut(LEAF_BYTES).enumerate() {
        let first = page * SLAB_ENTRIES_PER_PAGE + at * SLAB_ENTRIES_PER_LEAF;
        for (slot, place) in leaf[HEADER_BYTES..].chunks_exact_mut(SLAB_ENTRY_BYTES).enumerate() {
            let Some(Some(entry)) = slabs.get(first + slot) else { continue };
            let flag = |set: bool, flag: u32| if set { flag } else { 0 };
            let flags = FLAG_ALLOCATED
                | flag(entry.append, FLAG_APPEND)
                | flag(entry.doubts_unwritten, FLAG_UNWRITTEN_DOUBT);
            place[..16].copy_from_slice(&entry.volume.to_bytes());
            place[16..20].copy_from_slice(&entry.chunk.0.to_le_bytes());
            place[20..24].copy_from_slice(&flags.to_le_bytes());
            place[24..32].copy_from_slice(&entry.epoch.0.to_le_bytes());
            place[32..40].copy_from_slice(&entry.generation.to_le_bytes());
            place[40..48].copy_from_slice(&entry.doubtful_through.0.to_le_bytes());
        }
        seal(disk, b'S', (page * LEAVES_PER_PAGE + at) as u32, sequence, leaf);
    }
    out
}

/// Place of each volume's promise in the table. It never changes, so that no two leaves must change
/// together: a crash keeps or loses leaves one by one, and a promise that moved between leaves
/// could be lost from both.
#[derive(Debug, Default)]
pub(crate) struct PromisePlaces(Vec<Option<VolumeId>>);

impl PromisePlaces {
    /// Notes the place of a volume as the table is read, from its beginning on.
    pub(crate) fn found(&mut self, volume: Option<VolumeId>) {
        let known = volume.is_some_and(|volume| self.0.contains(&Some(volume)));
        self.0.push(volume.filter(|_| !known));
    }

    /// Returns the promises by their places; new ones take the first free places.
    pub(crate) fn arrange(&mut self, promises: &[(VolumeId, Epoch)]) -> Vec<Option<(VolumeId, Epoch)>> {
        let mut left: BTreeMap<VolumeId, Epoch> = promises.iter().copied().collect();
        let mut placed: Vec<Option<(VolumeId, Epoch)>> =
            self.0.iter().map(|place| place.and_then(|volume| left.remove_entry(&volume))).collect();
        let mut at = 0;
        for promise in left {
            while placed.get(at).is_some_and(Option::is_some) {
                at += 1;
            }
            if at == placed.len() {
                placed.push(None);
            }
            placed[at] = Some(promise);
        }
        self.0 = placed.iter().map(|place| place.map(|(volume, _)| volume)).collect();
        placed
    }
}

/// Encodes page `page` of the promise table.
pub(crate) fn encode_promise_page(
    disk: DiskId,
    page: usize,
    sequence: u64,
    promises: &[Option<(VolumeId, Epoch)>],
) -> Vec<u8> {
    let mut out = vec![0; PAGE_BYTES];
    for (at, leaf) in out.chunks_exact_mut(LEAF_BYTES).enumerate() {
        let index = page * LEAVES_PER_PAGE + at;
        let entries = promises.iter().skip(index * PROMISE_ENTRIES_PER_LEAF).take(PROMISE_ENTRIES_PER_LEAF);
        for (place, entry) in leaf[HEADER_BYTES..].chunks_exact_mut(PROMISE_ENTRY_BYTES).zip(entries) {
            let Some((volume, epoch)) = entry else { continue };
            place[..16].copy_from_slice(&volume.to_bytes());
            place[16..24].copy_from_slice(&epoch.0.to_le_bytes());
        }
        seal(disk, b'P', index as u32, sequence, leaf);
    }
    out
}

/// Reads leaf `leaf` of the slab table; `None` if it is damaged.
pub fn parse_slab_leaf(disk: DiskId, leaf: u32, bytes: &[u8]) -> Option<SlabLeaf> {
    let (sequence, mut reader) = unseal(disk, b'S', leaf, bytes)?;
    let mut entries = [None; SLAB_ENTRIES_PER_LEAF];
    for entry in &mut entries {
        let (volume, chunk, flags) = (reader.array()?, reader.u32()?, reader.u32()?);
        let (epoch, generation, doubtful_through) = (reader.u64()?, reader.u64()?, reader.u64()?);
        if flags & FLAG_ALLOCATED != 0 && generation >= COUNT_MAX {
            return None;
        }
        if flags & FLAG_ALLOCATED != 0 {
            *entry = Some(SlabEntry {
                volume: VolumeId::from_bytes(volume),
                chunk: ChunkIndex(chunk),
                epoch: Epoch(epoch),
                generation,
                append: flags & FLAG_APPEND != 0,
                doubtful_through: Epoch(doubtful_through),
                doubts_unwritten: flags & FLAG_UNWRITTEN_DOUBT != 0,
            });
        }
    }
    Some((sequence, entries))
}

/// Reads leaf `leaf` of the promise table; `None` if it is damaged.
pub fn parse_promise_leaf(disk: DiskId, leaf: u32, bytes: &[u8]) -> Option<PromiseLeaf> {
    let (sequence, mut reader) = unseal(disk, b'P', leaf, bytes)?;
    let mut entries = [None; PROMISE_ENTRIES_PER_LEAF];
    for entry in &mut entries {
        let (volume, epoch) = (reader.array()?, reader.u64()?);
        if epoch != 0 {
            *entry = Some((VolumeId::from_bytes(volume), Epoch(epoch)));
        }
    }
    Some((sequence, entries))
}

/// Returns the page of the slab table that holds a slab.
pub(crate) fn slab_page(slab: SlabIndex) -> usize {
    slab.0 as usize / SLAB_ENTRIES_PER_PAGE
}

/// Returns the pages, counted from the first of `bytes`, that have a damaged leaf. `first` is the
/// number of that first page in its copy of both tables. A leaf is one sector, which no crash
/// tears.
pub(crate) fn damaged_table_pages(
    disk: DiskId,
    layout: &Layout,
    first: usize,
    bytes: &[u8],
) -> BTreeSet<usize> {
    let slab_leaves = layout.slab_table_pages() * LEAVES_PER_PAGE;
    let leaves = (first * LEAVES_PER_PAGE..).zip(bytes.chunks_exact(LEAF_BYTES));
    let damaged = leaves.filter(|(at, leaf)| match at.checked_sub(slab_leaves) {
        None => parse_slab_leaf(disk, *at as u32, leaf).is_none(),
        Some(at) => parse_promise_leaf(disk, at as u32, leaf).is_none(),
    });
    damaged.map(|(at, _)| at / LEAVES_PER_PAGE - first).collect()
}
