//! File information classes (MS-FSCC 2.4) that QUERY_INFO and SET_INFO carry.

use super::{Put, U16, U32, U64, WireError, range, view_at, wide};

/// Numbers of file information classes (MS-FSCC 2.4).
pub mod class {
    pub const DIRECTORY: u8 = 1;
    pub const FULL_DIRECTORY: u8 = 2;
    pub const BOTH_DIRECTORY: u8 = 3;
    pub const BASIC: u8 = 4;
    pub const STANDARD: u8 = 5;
    pub const INTERNAL: u8 = 6;
    pub const EA: u8 = 7;
    pub const ACCESS: u8 = 8;
    pub const NAME: u8 = 9;
    pub const RENAME: u8 = 10;
    pub const LINK: u8 = 11;
    pub const NAMES: u8 = 12;
    pub const DISPOSITION: u8 = 13;
    pub const POSITION: u8 = 14;
    pub const FULL_EA: u8 = 15;
    pub const MODE: u8 = 16;
    pub const ALIGNMENT: u8 = 17;
    pub const ALL: u8 = 18;
    pub const ALLOCATION: u8 = 19;
    pub const END_OF_FILE: u8 = 20;
    pub const ALTERNATE_NAME: u8 = 21;
    pub const STREAM: u8 = 22;
    pub const PIPE: u8 = 23;
    pub const PIPE_LOCAL: u8 = 24;
    pub const PIPE_REMOTE: u8 = 25;
    pub const COMPRESSION: u8 = 28;
    pub const NETWORK_OPEN: u8 = 34;
    pub const ATTRIBUTE_TAG: u8 = 35;
    pub const ID_BOTH_DIRECTORY: u8 = 37;
    pub const ID_FULL_DIRECTORY: u8 = 38;
    pub const VALID_DATA_LENGTH: u8 = 39;
    pub const SHORT_NAME: u8 = 40;
    pub const HARD_LINK: u8 = 46;
    pub const NORMALIZED_NAME: u8 = 48;
    pub const STANDARD_LINK: u8 = 54;
    pub const ID: u8 = 59;
    pub const ID_EXTD_DIRECTORY: u8 = 60;
    pub const DISPOSITION_EX: u8 = 64;
    pub const RENAME_EX: u8 = 65;
    pub const ID_64_EXTD_DIRECTORY: u8 = 78;
    pub const ID_64_EXTD_BOTH_DIRECTORY: u8 = 79;
    pub const ID_ALL_EXTD_DIRECTORY: u8 = 80;
    pub const ID_ALL_EXTD_BOTH_DIRECTORY: u8 = 81;
}

wire_struct! {
    /// MS-FSCC 2.4.7.
    BasicInformation {
        creation_time: U64,
        last_access_time: U64,
        last_write_time: U64,
        change_time: U64,
        file_attributes: U32,
        reserved: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.4.47.
    StandardInformation {
        allocation_size: U64,
        end_of_file: U64,
        number_of_links: U32,
        delete_pending: u8,
        directory: u8,
        reserved: U16,
    }
}

wire_struct! {
    /// MS-FSCC 2.4.26.
    InternalInformation { index_number: U64, }
}

wire_struct! {
    /// MS-FSCC 2.4.13.
    EaInformation { ea_size: U32, }
}

wire_struct! {
    /// MS-FSCC 2.4.1.
    AccessInformation { access_flags: U32, }
}

wire_struct! {
    /// MS-FSCC 2.4.40.
    PositionInformation { current_byte_offset: U64, }
}

wire_struct! {
    /// MS-FSCC 2.4.31.
    ModeInformation { mode: U32, }
}

wire_struct! {
    /// MS-FSCC 2.4.3.
    AlignmentInformation { alignment_requirement: U32, }
}

wire_struct! {
    /// MS-FSCC 2.4.2, up to the name.
    AllInformation {
        basic: BasicInformation,
        standard: StandardInformation,
        internal: InternalInformation,
        ea: EaInformation,
        access: AccessInformation,
        position: PositionInformation,
        mode: ModeInformation,
        alignment: AlignmentInformation,
    }
}

wire_struct! {
    /// MS-FSCC 2.4.34.
    NetworkOpenInformation {
        creation_time: U64,
        last_access_time: U64,
        last_write_time: U64,
        change_time: U64,
        allocation_size: U64,
        end_of_file: U64,
        file_attributes: U32,
        reserved: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.4.6.
    AttributeTagInformation { file_attributes: U32, reparse_tag: U32, }
}

wire_struct! {
    /// MS-FSCC 2.4.9.
    CompressionInformation {
        compressed_file_size: U64,
        compression_format: U16,
        compression_unit_shift: u8,
        chunk_shift: u8,
        cluster_shift: u8,
        reserved: [u8; 3],
    }
}

wire_struct! {
    /// MS-FSCC 2.4.23: volume serial number and 128-bit file id.
    IdInformation { volume_serial_number: U64, file_id: [u8; 16], }
}

wire_struct! {
    /// MS-FSCC 2.4.48: FileStandardLinkInformation.
    StandardLinkInformation {
        number_of_accessible_links: U32,
        total_number_of_links: U32,
        delete_pending: u8,
        directory: u8,
        reserved: U16,
    }
}

wire_struct! {
    /// MS-FSCC 2.4.36.
    PipeInformation { read_mode: U32, completion_mode: U32, }
}

wire_struct! {
    /// MS-FSCC 2.4.37.
    PipeLocalInformation {
        named_pipe_type: U32,
        named_pipe_configuration: U32,
        maximum_instances: U32,
        current_instances: U32,
        inbound_quota: U32,
        read_data_available: U32,
        outbound_quota: U32,
        write_quota_available: U32,
        named_pipe_state: U32,
        named_pipe_end: U32,
    }
}

/// Appends a name with its length in bytes in front (MS-FSCC 2.1.7 FILE_NAME_INFORMATION).
pub fn put_counted_name(out: &mut Vec<u8>, name: &[u16]) {
    out.put(&U32::new((name.len() * 2) as u32));
    out.put_wide(name);
}

/// One entry of FileStreamInformation (MS-FSCC 2.4.49) appended to a list whose last entry starts at `last`.
pub fn put_stream_entry(
    out: &mut Vec<u8>,
    last: &mut Option<usize>,
    name: &[u16],
    size: u64,
    allocation: u64,
) {
    out.pad_from(0, 8);
    let at = out.len();
    if let Some(last) = *last {
        out.patch_u32(last, (at - last) as u32);
    }
    *last = Some(at);
    out.put(&[U32::new(0), U32::new((name.len() * 2) as u32)]);
    out.put(&[U64::new(size), U64::new(allocation)]);
    out.put_wide(name);
}

/// One extended attribute (MS-FSCC 2.4.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullEa<'a> {
    pub flags: u8,
    /// Without the zero that ends it on the wire.
    pub name: &'a [u8],
    pub value: &'a [u8],
}

wire_struct! {
    /// Head of each extended attribute.
    FullEaHead { next_entry_offset: U32, flags: u8, ea_name_length: u8, ea_value_length: U16, }
}

/// Bytes that an extended attribute takes, the padding to the next apart.
pub fn full_ea_bytes(name_len: usize, value_len: usize) -> usize {
    size_of::<FullEaHead>() + name_len + 1 + value_len
}

/// Appends an extended attribute to a list whose last entry starts at `last`.
pub fn put_full_ea(out: &mut Vec<u8>, last: &mut Option<usize>, ea: FullEa<'_>) {
    out.pad_from(0, 4);
    let at = out.len();
    if let Some(last) = *last {
        out.patch_u32(last, (at - last) as u32);
    }
    *last = Some(at);
    out.put(&FullEaHead {
        next_entry_offset: U32::new(0),
        flags: ea.flags,
        ea_name_length: ea.name.len() as u8,
        ea_value_length: U16::new(ea.value.len() as u16),
    });
    out.extend_from_slice(ea.name);
    out.push(0);
    out.extend_from_slice(ea.value);
}

/// Iterates over a list of extended attributes.
#[derive(Debug, Clone)]
pub struct FullEas<'a> {
    rest: &'a [u8],
}

impl<'a> FullEas<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self) -> Result<FullEa<'a>, WireError> {
        let head: &FullEaHead = view_at(self.rest, 0)?;
        let name_len = usize::from(head.ea_name_length);
        let name = range(self.rest, 8, name_len)?;
        if self.rest.get(8 + name_len) != Some(&0) {
            return Err(WireError::Value);
        }
        let value = range(self.rest, 9 + name_len, usize::from(head.ea_value_length.get()))?;
        let next = head.next_entry_offset.get() as usize;
        self.rest = match next {
            0 => &[],
            _ if next < full_ea_bytes(name.len(), value.len()) => return Err(WireError::OutOfBounds),
            _ => self.rest.get(next..).ok_or(WireError::OutOfBounds)?,
        };
        Ok(FullEa { flags: head.flags, name, value })
    }
}

impl<'a> Iterator for FullEas<'a> {
    type Item = Result<FullEa<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}

/// The names of a FILE_GET_EA_INFORMATION list (MS-FSCC 2.4.16.1).
///
/// # Errors
/// [`WireError`] if the list is cut short.
pub fn parse_get_ea_names(mut bytes: &[u8]) -> Result<Vec<&[u8]>, WireError> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let next: &U32 = view_at(bytes, 0)?;
        let len = *bytes.get(4).ok_or(WireError::Short)?;
        names.push(range(bytes, 5, usize::from(len))?);
        let next = next.get() as usize;
        if next == 0 {
            break;
        }
        if next < 6 + usize::from(len) {
            return Err(WireError::OutOfBounds);
        }
        bytes = bytes.get(next..).ok_or(WireError::OutOfBounds)?;
    }
    Ok(names)
}

/// Flags of FileRenameInformationEx.
pub const RENAME_REPLACE_IF_EXISTS: u32 = 1;
pub const RENAME_POSIX_SEMANTICS: u32 = 2;

/// FileRenameInformation and FileLinkInformation (MS-FSCC 2.4.42.2, 2.4.27.2), and FileRenameInformationEx (2.4.43.2), whose first four
/// bytes are flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenameInformation {
    pub flags: u32,
    pub root_directory: u64,
    pub name: Box<[u16]>,
}

wire_struct! {
    /// Head of a rename: `flags` is ReplaceIfExists and three reserved bytes if the class is not -Ex.
    RenameHead { flags: U32, reserved: U32, root_directory: U64, name_length: U32, }
}

impl RenameInformation {
    /// `extended`: the class is FileRenameInformationEx.
    ///
    /// # Errors
    /// [`WireError`] if it is cut short or the name has an odd length.
    pub fn parse(bytes: &[u8], extended: bool) -> Result<Self, WireError> {
        let head: &RenameHead = view_at(bytes, 0)?;
        let flags = if extended { head.flags.get() } else { u32::from(head.flags.get() & 0xFF != 0) };
        let name = range(bytes, size_of::<RenameHead>(), head.name_length.get() as usize)?;
        Ok(Self { flags, root_directory: head.root_directory.get(), name: wide(name)? })
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put(&RenameHead {
            flags: U32::new(self.flags),
            reserved: U32::new(0),
            root_directory: U64::new(self.root_directory),
            name_length: U32::new((self.name.len() * 2) as u32),
        });
        out.put_wide(&self.name);
        // Servers want 24 bytes at least: the structure's own size with its padding.
        if out.len() - start < 24 {
            out.resize(start + 24, 0);
        }
    }
}
