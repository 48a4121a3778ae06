//! Values of the metadata store, byte for byte. All numbers are little-endian; every record begins with its version.
//!
//! Decoding takes bytes of unknown origin: `None` if they are not a record of this version.

use types::{FileTime, Lba};

use super::super::reader::Reader;
use super::super::types::{FileId, SecurityId, VolumeRecord, WideString};

const VERSION: u8 = 1;

/// No count gets there; one that did could not grow.
const COUNT_MAX: u64 = 1 << 62;

/// Takes the version with which a record begins; none if it is another one.
fn version(reader: &mut Reader<'_>) -> Option<()> {
    (reader.u8()? == VERSION).then_some(())
}

fn push_wide(out: &mut Vec<u8>, name: &[u16]) {
    for unit in name {
        out.extend_from_slice(&unit.to_le_bytes());
    }
}

/// Stored properties of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    pub directory: bool,
    pub has_object_id: bool,
    /// Blocks that the owner is charged with for the reparse data: none of reparse points that were made before they were charged.
    pub reparse_blocks: u8,
    pub attributes: u32,
    pub created: FileTime,
    pub accessed: FileTime,
    pub written: FileTime,
    pub changed: FileTime,
    pub end_of_file: u64,
    /// Blocks mapped by the unnamed stream.
    pub allocated_blocks: u64,
    pub link_count: u32,
    pub reparse_tag: u32,
    pub extended_attribute_bytes: u32,
    /// Index that the next named stream gets.
    pub next_stream: u32,
    pub security: SecurityId,
}

impl Inode {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(80);
        out.push(VERSION);
        out.push(u8::from(self.directory) | u8::from(self.has_object_id) << 1);
        out.push(self.reparse_blocks);
        out.push(0);
        out.extend_from_slice(&self.attributes.to_le_bytes());
        for time in [self.created, self.accessed, self.written, self.changed] {
            out.extend_from_slice(&time.0.to_le_bytes());
        }
        out.extend_from_slice(&self.end_of_file.to_le_bytes());
        out.extend_from_slice(&self.allocated_blocks.to_le_bytes());
        out.extend_from_slice(&self.link_count.to_le_bytes());
        out.extend_from_slice(&self.reparse_tag.to_le_bytes());
        out.extend_from_slice(&self.extended_attribute_bytes.to_le_bytes());
        out.extend_from_slice(&self.next_stream.to_le_bytes());
        out.extend_from_slice(&self.security.0.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        version(&mut reader)?;
        let flags = reader.u8()?;
        let reparse_blocks = reader.u8()?;
        reader.u8()?;
        Some(Self {
            directory: flags & 1 != 0,
            has_object_id: flags & 2 != 0,
            reparse_blocks,
            attributes: reader.u32()?,
            created: FileTime(reader.u64()?),
            accessed: FileTime(reader.u64()?),
            written: FileTime(reader.u64()?),
            changed: FileTime(reader.u64()?),
            end_of_file: reader.u64()?,
            allocated_blocks: reader.u64()?,
            link_count: reader.u32()?,
            reparse_tag: reader.u32()?,
            extended_attribute_bytes: reader.u32()?,
            next_stream: reader.u32()?,
            security: SecurityId(reader.u64()?),
        })
    }
}

/// A name in a directory; the key holds it in upper case only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    pub file: FileId,
    pub directory: bool,
    pub name: WideString,
}

impl EntryRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(10 + 2 * self.name.len());
        out.push(VERSION);
        out.push(u8::from(self.directory));
        out.extend_from_slice(&self.file.0.to_le_bytes());
        push_wide(&mut out, &self.name);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        version(&mut reader)?;
        let flags = reader.u8()?;
        let file = FileId(reader.u64()?);
        Some(Self { file, directory: flags & 1 != 0, name: reader.wide()? })
    }
}

/// A named stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    pub end_of_file: u64,
    pub allocated_blocks: u64,
    pub name: WideString,
}

impl StreamRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(17 + 2 * self.name.len());
        out.push(VERSION);
        out.extend_from_slice(&self.end_of_file.to_le_bytes());
        out.extend_from_slice(&self.allocated_blocks.to_le_bytes());
        push_wide(&mut out, &self.name);
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        version(&mut reader)?;
        Some(Self { end_of_file: reader.u64()?, allocated_blocks: reader.u64()?, name: reader.wide()? })
    }
}

/// Blocks of a stream on the virtual disk; the key holds the stream and its first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRecord {
    pub lba: Lba,
    pub blocks: u32,
    /// Other extents may point to these blocks: never written in place.
    pub shared: bool,
    /// Allocated, never written: reads as zeroes.
    pub unwritten: bool,
}

impl ExtentRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(14);
        out.push(VERSION);
        out.push(u8::from(self.shared) | u8::from(self.unwritten) << 1);
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.lba.0.to_le_bytes());
        out
    }

    /// Also `None` if the extent is empty or its end overflows.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        version(&mut reader)?;
        let flags = reader.u8()?;
        let (blocks, lba) = (reader.u32()?, reader.u64()?);
        lba.checked_add(u64::from(blocks))?;
        (blocks > 0).then_some(Self {
            lba: Lba(lba),
            blocks,
            shared: flags & 1 != 0,
            unwritten: flags & 2 != 0,
        })
    }
}

/// A run of blocks that more than one extent points to; the key holds its first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedRecord {
    pub blocks: u32,
    /// At least 2.
    pub references: u32,
}

impl SharedRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.references.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        version(&mut reader)?;
        let record = Self { blocks: reader.u32()?, references: reader.u32()? };
        (record.blocks > 0 && record.references >= 2).then_some(record)
    }
}

/// How many files have a security descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReferencesRecord {
    /// The counting that the number belongs to.
    pub generation: u64,
    pub references: u64,
}

impl ReferencesRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.references.to_le_bytes());
        out
    }

    /// Of no bytes: none was counted.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let mut reader = Reader(bytes);
        version(&mut reader)?;
        let record = Self { generation: reader.u64()?, references: reader.u64()? };
        (record.generation < COUNT_MAX && record.references < COUNT_MAX).then_some(record)
    }
}

/// Progress of counting the files' references to descriptors, and the incarnation that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DescriptorCountsRecord {
    /// The last incarnation of the volume that kept the counts.
    pub incarnation: u64,
    /// The counting under way, or the last one: counts of any other are void.
    pub generation: u64,
    /// Files with smaller numbers are counted.
    pub next: FileId,
    /// Descriptors without a file have been removed.
    pub swept: bool,
}

impl DescriptorCountsRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.swept)];
        for number in [self.incarnation, self.generation, self.next.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        version(&mut reader)?;
        let swept = reader.u8()? & 1 != 0;
        let (incarnation, generation) = (reader.u64()?, reader.u64()?);
        let next = FileId(reader.u64()?);
        (generation < COUNT_MAX).then_some(Self { incarnation, generation, next, swept })
    }
}

/// A number: counters, stream indexes, the file of an object id.
pub fn encode_number(number: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&number.to_le_bytes());
    out
}

pub fn decode_number(bytes: &[u8]) -> Option<u64> {
    let mut reader = Reader(bytes);
    version(&mut reader)?;
    reader.u64()
}

pub fn encode_volume(volume: &VolumeRecord) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&volume.id);
    out.extend_from_slice(&volume.serial.to_le_bytes());
    out.extend_from_slice(&volume.created.0.to_le_bytes());
    out.extend_from_slice(volume.label.as_bytes());
    out
}

pub fn decode_volume(bytes: &[u8]) -> Option<VolumeRecord> {
    let mut reader = Reader(bytes);
    version(&mut reader)?;
    Some(VolumeRecord {
        id: reader.take(16)?.try_into().ok()?,
        serial: reader.u32()?,
        created: FileTime(reader.u64()?),
        label: std::str::from_utf8(reader.0).ok()?.to_owned(),
    })
}
