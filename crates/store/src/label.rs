//! The label: a disk's identity and layout (docs/ON_DISK.md, "Label"). Parses without trust.

use crate::bytes::{Reader, put_u64, sealed_crc, u64_at};
use crate::layout::{FORMAT_VERSION, Layout, PAGE_BYTES};
use std::fmt;
use types::{DiskId, PoolId};

const MAGIC: [u8; 8] = *b"CENOTE\x01L";
const CRC_AT: usize = 8;
const TAG_BYTES_MAX: usize = 255;
const TAGS_MAX: usize = 16;

/// Features of a disk's format beyond its version, one bit each, as in file systems. A program that
/// does not know a bit may use the disk (compat), may only read it (ro-compat), or must not use it
/// (incompat). Two bits have a meaning: [`Self::PLACED`] and [`Self::STAMPS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Bits that a program need not know to use the disk.
    pub compat: u64,
    /// Bits that a program must know to write to the disk.
    pub ro_compat: u64,
    /// Bits that a program must know to use the disk at all.
    pub incompat: u64,
}

impl Features {
    /// Incompat: the journal may hold records of data that are written in place concurrently. A
    /// program that does not know such a record takes it for the journal's end.
    pub const PLACED: u64 = 1;
    /// Incompat: the words of regions are stamps. A program that does not know of change numbers
    /// takes them for epochs, and misses changed regions.
    pub const STAMPS: u64 = 2;
    const ALL: u64 = Self::PLACED | Self::STAMPS;

    /// Returns the features of a disk that this program writes to.
    pub(crate) fn written() -> Self {
        Self { incompat: Self::ALL, ..Self::default() }
    }

    /// Adds the features that a disk gets once this program writes to it. Returns whether one is
    /// new.
    pub(crate) fn take_up(&mut self) -> bool {
        let before = self.incompat;
        self.incompat |= Self::ALL;
        before != self.incompat
    }

    /// Returns the features, unknown to this program, that keep it from using the disk; `None`: it
    /// may use the disk.
    fn refused(self) -> Option<Self> {
        let (ro_compat, incompat) = (self.ro_compat, self.incompat & !Self::ALL);
        (ro_compat | incompat != 0).then_some(Self { compat: 0, ro_compat, incompat })
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compat, ro_compat, incompat } = self;
        write!(f, "compat {compat:#x}, ro-compat {ro_compat:#x}, incompat {incompat:#x}")
    }
}

/// Facts that a disk records about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Features that the disk's format has.
    pub features: Features,
    /// Number that grows with every change of the label; the highest valid copy counts.
    pub sequence: u64,
    /// Identity of the disk, drawn when it was formatted.
    pub disk: DiskId,
    /// Pool that the disk belongs to.
    pub pool: PoolId,
    /// Bytes of the device's logical block when it was formatted.
    pub block_bytes: u32,
    /// Places of all structures, computed from the sizes in the label.
    pub layout: Layout,
    /// Fault-domain tags, such as ("enclosure", "shelf 2").
    pub tags: Vec<(String, String)>,
}

/// Reason why a block is not a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The block does not begin with a label's magic.
    #[error("no label")]
    Absent,
    /// Format version in the label, from a newer program.
    #[error("a label of format version {0}, newer than this program's {FORMAT_VERSION}")]
    Newer(u32),
    /// Format version in the label, which this program no longer reads.
    #[error("a label of format version {0}, older than this program's {FORMAT_VERSION}")]
    Older(u32),
    /// Unknown ro-compat and incompat bits of the label.
    #[error("a label with features that this program does not know: {0}")]
    UnknownFeatures(Features),
    /// Checksum, sizes or fields of the label are wrong.
    #[error("a damaged label")]
    Damaged,
}

impl Label {
    /// Whether these tags fit a label: at most 16, each key and value at most 255 bytes.
    pub fn tags_fit(tags: &[(String, String)]) -> bool {
        let short = |text: &String| text.len() <= TAG_BYTES_MAX;
        let bytes: usize = tags.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
        tags.len() <= TAGS_MAX
            && bytes <= PAGE_BYTES / 2
            && tags.iter().all(|(key, value)| short(key) && short(value))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        for bits in [self.features.compat, self.features.ro_compat, self.features.incompat] {
            out.extend_from_slice(&bits.to_le_bytes());
        }
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.disk.to_bytes());
        out.extend_from_slice(&self.pool.to_bytes());
        let layout = &self.layout;
        for number in [layout.size_bytes, layout.slab_bytes, layout.journal_bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&(self.tags.len() as u32).to_le_bytes());
        for text in self.tags.iter().flat_map(|(key, value)| [key, value]) {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
        out.resize(PAGE_BYTES, 0);
        let crc = sealed_crc(&[], &out, CRC_AT);
        put_u64(&mut out, CRC_AT, crc);
        out
    }
}

/// Reads one copy of a label.
///
/// # Errors
/// [`LabelError`]: absent (no magic), damaged, or intact with another version or with unknown
/// features.
pub fn parse_label(block: &[u8]) -> Result<Label, LabelError> {
    if block.len() != PAGE_BYTES || !block.starts_with(&MAGIC) {
        return Err(LabelError::Absent);
    }
    if u64_at(block, CRC_AT) != sealed_crc(&[], block, CRC_AT) {
        return Err(LabelError::Damaged);
    }
    let mut reader = Reader::new(block.get(16..).unwrap_or(&[]));
    let version = reader.u32().ok_or(LabelError::Damaged)?;
    match version {
        0 => return Err(LabelError::Damaged),
        FORMAT_VERSION => {}
        1..FORMAT_VERSION => return Err(LabelError::Older(version)),
        _ => return Err(LabelError::Newer(version)),
    }
    let label = parse_body(&mut reader).ok_or(LabelError::Damaged)?;
    match label.features.refused() {
        Some(unknown) => Err(LabelError::UnknownFeatures(unknown)),
        None => Ok(label),
    }
}

fn parse_body(reader: &mut Reader<'_>) -> Option<Label> {
    let block_bytes = reader.u32()?;
    let features = Features { compat: reader.u64()?, ro_compat: reader.u64()?, incompat: reader.u64()? };
    let sequence = reader.u64()?;
    let disk = DiskId::from_bytes(reader.array()?);
    let pool = PoolId::from_bytes(reader.array()?);
    let (size_bytes, slab_bytes, journal_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let layout = Layout::compute(size_bytes, slab_bytes, journal_bytes)?;
    if layout.size_bytes != size_bytes {
        return None;
    }
    let count = reader.u32()? as usize;
    if count > TAGS_MAX {
        return None;
    }
    let mut text = || {
        let len = usize::from(reader.array::<1>()?[0]);
        String::from_utf8(reader.take(len)?.to_vec()).ok()
    };
    let mut tags = Vec::with_capacity(count);
    for _ in 0..count {
        tags.push((text()?, text()?));
    }
    Some(Label { features, sequence, disk, pool, block_bytes, layout, tags })
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = &self.layout;
        writeln!(f, "disk           {}", self.disk)?;
        writeln!(f, "pool           {}", self.pool)?;
        writeln!(f, "format         {FORMAT_VERSION} (label {})", self.sequence)?;
        writeln!(f, "features       {}", self.features)?;
        writeln!(
            f,
            "size           {} bytes, logical blocks of {} bytes",
            layout.size_bytes, self.block_bytes
        )?;
        writeln!(
            f,
            "slabs          {} of {} MiB at {}",
            layout.slab_count,
            layout.slab_bytes >> 20,
            layout.slabs
        )?;
        writeln!(f, "journal        {} KiB at {}", layout.journal_bytes >> 10, layout.journal)?;
        writeln!(f, "metadata       at {}", layout.metadata)?;
        write!(f, "tables         at {} and {}", layout.tables[0], layout.tables[1])?;
        self.tags.iter().try_for_each(|(key, value)| write!(f, "\ntag            {key} = {value}"))
    }
}
