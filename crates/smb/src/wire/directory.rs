//! Directory information classes (MS-FSCC 2.4.4, 2.4.5, 2.4.10, 2.4.14, 2.4.20-2.4.22, 2.4.33),
//! returned by QUERY_DIRECTORY.

use super::{Put, U32, U64, WireError, class, range, view_at, wide};

wire_struct! {
    /// The part that all classes but FileNamesInformation share, after NextEntryOffset.
    DirectoryTimes {
        file_index: U32,
        creation_time: U64,
        last_access_time: U64,
        last_write_time: U64,
        change_time: U64,
        end_of_file: U64,
        allocation_size: U64,
        file_attributes: U32,
        file_name_length: U32,
    }
}

/// The layouts of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryClass {
    Directory,
    FullDirectory,
    IdFullDirectory,
    BothDirectory,
    IdBothDirectory,
    Names,
    IdExtdDirectory,
    Id64ExtdDirectory,
    Id64ExtdBothDirectory,
    IdAllExtdDirectory,
    IdAllExtdBothDirectory,
}

impl DirectoryClass {
    /// From FileInformationClass; `None` if it is not a directory class.
    pub fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            class::DIRECTORY => Self::Directory,
            class::FULL_DIRECTORY => Self::FullDirectory,
            class::ID_FULL_DIRECTORY => Self::IdFullDirectory,
            class::BOTH_DIRECTORY => Self::BothDirectory,
            class::ID_BOTH_DIRECTORY => Self::IdBothDirectory,
            class::NAMES => Self::Names,
            class::ID_EXTD_DIRECTORY => Self::IdExtdDirectory,
            class::ID_64_EXTD_DIRECTORY => Self::Id64ExtdDirectory,
            class::ID_64_EXTD_BOTH_DIRECTORY => Self::Id64ExtdBothDirectory,
            class::ID_ALL_EXTD_DIRECTORY => Self::IdAllExtdDirectory,
            class::ID_ALL_EXTD_BOTH_DIRECTORY => Self::IdAllExtdBothDirectory,
            _ => return None,
        })
    }

    /// Whether its entries have a ShortName.
    pub const fn has_short_name(self) -> bool {
        matches!(
            self,
            Self::BothDirectory
                | Self::IdBothDirectory
                | Self::Id64ExtdBothDirectory
                | Self::IdAllExtdBothDirectory
        )
    }

    /// Bytes of an entry before its name.
    pub const fn name_offset(self) -> usize {
        match self {
            Self::Names => 12,
            Self::Directory => 64,
            Self::FullDirectory => 68,
            Self::IdFullDirectory | Self::Id64ExtdDirectory => 80,
            Self::BothDirectory => 94,
            Self::IdBothDirectory => 104,
            Self::IdExtdDirectory => 88,
            Self::IdAllExtdDirectory => 96,
            Self::Id64ExtdBothDirectory => 106,
            Self::IdAllExtdBothDirectory => 122,
        }
    }
}

/// Content of a directory entry.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectoryRecord<'a> {
    pub file_index: u32,
    pub creation_time: u64,
    pub last_access_time: u64,
    pub last_write_time: u64,
    pub change_time: u64,
    pub end_of_file: u64,
    pub allocation_size: u64,
    pub file_attributes: u32,
    pub ea_size: u32,
    pub reparse_tag: u32,
    pub file_id: u64,
    /// At most [`SHORT_NAME_UNITS`]; empty if the file has none beside its name.
    pub short_name: &'a [u16],
    pub name: &'a [u16],
}

/// Most code units of a name of eight and three characters.
pub const SHORT_NAME_UNITS: usize = 12;

/// ShortNameLength, a reserved byte, ShortName.
fn put_short_name(out: &mut Vec<u8>, name: &[u16]) {
    let name = &name[..name.len().min(SHORT_NAME_UNITS)];
    out.put(&[(name.len() * 2) as u8, 0]);
    let end = out.len() + SHORT_NAME_UNITS * 2;
    out.put_wide(name);
    out.resize(end, 0);
}

/// Collects entries up to a size.
#[derive(Debug)]
pub struct DirectoryWriter {
    class: DirectoryClass,
    bytes: Vec<u8>,
    last: Option<usize>,
    limit_bytes: usize,
}

impl DirectoryWriter {
    pub fn new(class: DirectoryClass, limit_bytes: usize) -> Self {
        Self { class, bytes: Vec::new(), last: None, limit_bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Appends an entry; false, and nothing appended, if it does not fit.
    #[must_use]
    pub fn push(&mut self, record: &DirectoryRecord<'_>) -> bool {
        let at = self.bytes.len().next_multiple_of(8);
        let len = self.class.name_offset() + record.name.len() * 2;
        if at + len > self.limit_bytes {
            return false;
        }
        let out = &mut self.bytes;
        out.resize(at, 0);
        if let Some(last) = self.last {
            out.patch_u32(last, (at - last) as u32);
        }
        self.last = Some(at);
        out.put(&U32::new(0));
        put_head(out, self.class, record);
        // In EaSize's place the reparse tag goes where there is one (MS-FSCC 2.4.8).
        let ea_or_tag = U32::new(if record.reparse_tag == 0 { record.ea_size } else { record.reparse_tag });
        let id = U64::new(record.file_id);
        match self.class {
            DirectoryClass::Directory | DirectoryClass::Names => {}
            DirectoryClass::FullDirectory => out.put(&ea_or_tag),
            DirectoryClass::IdFullDirectory => {
                out.put(&[ea_or_tag, U32::new(0)]);
                out.put(&id);
            }
            DirectoryClass::BothDirectory => {
                out.put(&ea_or_tag);
                put_short_name(out, record.short_name);
            }
            DirectoryClass::IdBothDirectory => {
                out.put(&ea_or_tag);
                put_short_name(out, record.short_name);
                out.put(&[0u8; 2]);
                out.put(&id);
            }
            DirectoryClass::IdExtdDirectory => {
                out.put(&[U32::new(record.ea_size), U32::new(record.reparse_tag)]);
                out.put(&[id, U64::new(0)]);
            }
            DirectoryClass::Id64ExtdDirectory | DirectoryClass::Id64ExtdBothDirectory => {
                out.put(&[U32::new(record.ea_size), U32::new(record.reparse_tag)]);
                out.put(&id);
                if self.class == DirectoryClass::Id64ExtdBothDirectory {
                    put_short_name(out, record.short_name);
                }
            }
            DirectoryClass::IdAllExtdDirectory | DirectoryClass::IdAllExtdBothDirectory => {
                out.put(&[U32::new(record.ea_size), U32::new(record.reparse_tag)]);
                out.put(&[id, id, U64::new(0)]);
                if self.class == DirectoryClass::IdAllExtdBothDirectory {
                    put_short_name(out, record.short_name);
                }
            }
        }
        out.put_wide(record.name);
        true
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Writes the fields that all classes have behind NextEntryOffset.
fn put_head(out: &mut Vec<u8>, class: DirectoryClass, record: &DirectoryRecord<'_>) {
    let name_bytes = U32::new((record.name.len() * 2) as u32);
    if class == DirectoryClass::Names {
        out.put(&[U32::new(record.file_index), name_bytes]);
    } else {
        out.put(&DirectoryTimes {
            file_index: record.file_index.into(),
            creation_time: record.creation_time.into(),
            last_access_time: record.last_access_time.into(),
            last_write_time: record.last_write_time.into(),
            change_time: record.change_time.into(),
            end_of_file: record.end_of_file.into(),
            allocation_size: record.allocation_size.into(),
            file_attributes: record.file_attributes.into(),
            file_name_length: name_bytes,
        });
    }
}

/// A directory entry as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedDirectoryEntry {
    pub name: Box<[u16]>,
    /// Absent in FileNamesInformation.
    pub times: Option<DirectoryTimes>,
    /// Zero if the class has none.
    pub file_id: u64,
}

/// The entries of a QUERY_DIRECTORY response.
///
/// # Errors
/// [`WireError`] if the list is cut short.
pub fn parse_directory(
    class: DirectoryClass,
    mut bytes: &[u8],
) -> Result<Vec<ParsedDirectoryEntry>, WireError> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let next = view_at::<U32>(bytes, 0)?.get() as usize;
        let (times, len) = if class == DirectoryClass::Names {
            (None, view_at::<U32>(bytes, 8)?.get())
        } else {
            let times: &DirectoryTimes = view_at(bytes, 4)?;
            (Some(*times), times.file_name_length.get())
        };
        let id_at = match class {
            DirectoryClass::IdFullDirectory
            | DirectoryClass::IdExtdDirectory
            | DirectoryClass::Id64ExtdDirectory
            | DirectoryClass::Id64ExtdBothDirectory
            | DirectoryClass::IdAllExtdDirectory
            | DirectoryClass::IdAllExtdBothDirectory => Some(72),
            DirectoryClass::IdBothDirectory => Some(96),
            _ => None,
        };
        let file_id = match id_at {
            Some(at) => view_at::<U64>(bytes, at)?.get(),
            None => 0,
        };
        let name = wide(range(bytes, class.name_offset(), len as usize)?)?;
        entries.push(ParsedDirectoryEntry { name, times, file_id });
        if next == 0 {
            break;
        }
        if next < class.name_offset() {
            return Err(WireError::OutOfBounds);
        }
        bytes = bytes.get(next..).ok_or(WireError::OutOfBounds)?;
    }
    Ok(entries)
}
