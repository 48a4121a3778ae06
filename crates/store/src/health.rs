//! Counters of one store, for health, metrics and write amplification.

use disk::DiskError;

/// Purpose of written bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// Journal batches.
    Journal,
    /// Fresh and append data, in place.
    InPlace,
    /// Journaled blocks, in place later.
    Applied,
    /// Metadata pages.
    Metadata,
    /// Slab and promise tables.
    Tables,
    /// Anchors and records, and copies of the label that were damaged.
    Anchors,
}

/// Bytes written to the disk since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WrittenBytes {
    /// Bytes of journal batches.
    pub journal: u64,
    /// Bytes of fresh and append data, written in place.
    pub in_place: u64,
    /// Bytes of journaled blocks that checkpoints put in place.
    pub applied: u64,
    /// Bytes of metadata pages.
    pub metadata: u64,
    /// Bytes of slab table, promise table and versions of pages.
    pub tables: u64,
    /// Bytes of anchors, records and healed labels.
    pub anchors: u64,
}

impl WrittenBytes {
    pub(crate) fn add(&mut self, kind: WriteKind, bytes: u64) {
        *match kind {
            WriteKind::Journal => &mut self.journal,
            WriteKind::InPlace => &mut self.in_place,
            WriteKind::Applied => &mut self.applied,
            WriteKind::Metadata => &mut self.metadata,
            WriteKind::Tables => &mut self.tables,
            WriteKind::Anchors => &mut self.anchors,
        } += bytes;
    }

    /// Returns the sum of all kinds, in bytes.
    pub fn total(&self) -> u64 {
        self.journal + self.in_place + self.applied + self.metadata + self.tables + self.anchors
    }
}

/// Counters since the store was opened, and fill levels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Whether a write or flush failed: the store writes nothing until it is opened anew.
    pub poisoned: bool,
    /// Error that poisoned the store; `None` if the store is not poisoned.
    pub poisoned_by: Option<DiskError>,
    /// Bytes of the journal that live batches take.
    pub journal_used_bytes: u64,
    /// Size of the journal in bytes.
    pub journal_bytes: u64,
    /// Blocks in the journal that are not yet in place.
    pub overlay_blocks: u64,
    /// Bytes of such blocks that are kept in RAM.
    pub overlay_kept_bytes: u64,
    /// Metadata pages in RAM, of 4 KiB each.
    pub cached_pages: u64,
    /// Metadata pages in RAM that are newer than those on disk.
    pub dirty_pages: u64,
    /// Blocks found corrupt by reads, scrub and replay. A damaged metadata page counts as one; the
    /// blocks whose checksums it loses are not at fault. Append blocks that do not prove themselves
    /// count only when a scrub finds them, since a crash tears such blocks. Pages of the store's
    /// own structures count too.
    pub corrupt_blocks: u64,
    /// Of these, the blocks and pages that the medium failed to read.
    pub medium_errors: u64,
    /// Of the corrupt blocks, the pages of the store's own structures (label, anchors, records,
    /// tables, page versions, journal) that could not be read, failed their checksums, or differed
    /// from the last write when a scrub read them. Each counts once until the store rewrites it,
    /// which happens by itself. Damage that a power cut alone may leave does not count.
    pub damaged_structures: u64,
    /// Reads that the medium refused before the blocks were known to hold data: blocks that do are
    /// read again, and counted then. Also needless reads of a scrub, of blocks written in the
    /// meantime.
    pub refused_early: u64,
    /// Metadata leaves found corrupt; each loses the checksums of 62 blocks.
    pub damaged_metadata_leaves: u64,
    /// Writes of metadata pages that the disk acknowledged and lost: the page is older than its
    /// version, and its checksums count as lost.
    pub lost_writes: u64,
    /// Bytes written to the disk by purpose.
    pub written: WrittenBytes,
    /// Bytes read from the disk for any purpose.
    pub read_bytes: u64,
    /// Bytes of payload in acknowledged writes.
    pub acknowledged_bytes: u64,
    /// Journal batches written.
    pub batches: u64,
    /// Flushes of the disk's write cache.
    pub flushes: u64,
    /// Checkpoints finished: their anchor is durable.
    pub checkpoints: u64,
    /// Metadata pages read because they were not in RAM.
    pub page_reads: u64,
    /// Writes refused because the file under the disk could not grow.
    pub no_space: u64,
}
