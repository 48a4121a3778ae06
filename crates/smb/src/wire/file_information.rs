//! File information classes (MS-FSCC 2.4) that QUERY_INFO and SET_INFO carry.

use super::{Put, U16, U32, U64, WireError, range, view_at, wide};

/// Numbers of file information classes (MS-FSCC 2.4).
pub mod class {
    /// FileDirectoryInformation: entries with times and sizes.
    pub const DIRECTORY: u8 = 1;
    /// FileFullDirectoryInformation: entries with the size of extended attributes.
    pub const FULL_DIRECTORY: u8 = 2;
    /// FileBothDirectoryInformation: entries with short names.
    pub const BOTH_DIRECTORY: u8 = 3;
    /// FileBasicInformation: times and attributes.
    pub const BASIC: u8 = 4;
    /// FileStandardInformation: sizes, links and pending deletion.
    pub const STANDARD: u8 = 5;
    /// FileInternalInformation: the file's 64-bit id.
    pub const INTERNAL: u8 = 6;
    /// FileEaInformation: bytes of extended attributes.
    pub const EA: u8 = 7;
    /// FileAccessInformation: access granted to the open.
    pub const ACCESS: u8 = 8;
    /// FileNameInformation: the path inside the volume.
    pub const NAME: u8 = 9;
    /// FileRenameInformation: set only, [`RenameInformation`](super::RenameInformation).
    pub const RENAME: u8 = 10;
    /// FileLinkInformation: set only, a hard link to be made.
    pub const LINK: u8 = 11;
    /// FileNamesInformation: directory entries of names alone.
    pub const NAMES: u8 = 12;
    /// FileDispositionInformation: set only, deletion at the last close.
    pub const DISPOSITION: u8 = 13;
    /// FilePositionInformation: the open's byte offset.
    pub const POSITION: u8 = 14;
    /// FileFullEaInformation: extended attributes, [`FullEa`](super::FullEa).
    pub const FULL_EA: u8 = 15;
    /// FileModeInformation: options of the open.
    pub const MODE: u8 = 16;
    /// FileAlignmentInformation: alignment that unbuffered I/O needs.
    pub const ALIGNMENT: u8 = 17;
    /// FileAllInformation: all of the classes 4 to 9, 14, 16 and 17.
    pub const ALL: u8 = 18;
    /// FileAllocationInformation: set only, allocated bytes.
    pub const ALLOCATION: u8 = 19;
    /// FileEndOfFileInformation: set only, size in bytes.
    pub const END_OF_FILE: u8 = 20;
    /// FileAlternateNameInformation: the short name.
    pub const ALTERNATE_NAME: u8 = 21;
    /// FileStreamInformation: the streams of a file.
    pub const STREAM: u8 = 22;
    /// FilePipeInformation: read and completion mode of a pipe.
    pub const PIPE: u8 = 23;
    /// FilePipeLocalInformation: instances, quotas and state of a pipe.
    pub const PIPE_LOCAL: u8 = 24;
    /// FilePipeRemoteInformation: collection of data of a remote pipe.
    pub const PIPE_REMOTE: u8 = 25;
    /// FileCompressionInformation: compressed size and format.
    pub const COMPRESSION: u8 = 28;
    /// FileNetworkOpenInformation: times, sizes and attributes.
    pub const NETWORK_OPEN: u8 = 34;
    /// FileAttributeTagInformation: attributes and reparse tag.
    pub const ATTRIBUTE_TAG: u8 = 35;
    /// FileIdBothDirectoryInformation: entries with short names and 64-bit ids.
    pub const ID_BOTH_DIRECTORY: u8 = 37;
    /// FileIdFullDirectoryInformation: entries with 64-bit ids.
    pub const ID_FULL_DIRECTORY: u8 = 38;
    /// FileValidDataLengthInformation: set only, bytes that need no zeros.
    pub const VALID_DATA_LENGTH: u8 = 39;
    /// FileShortNameInformation: set only, a new short name.
    pub const SHORT_NAME: u8 = 40;
    /// FileHardLinkInformation: the names of all hard links.
    pub const HARD_LINK: u8 = 46;
    /// FileNormalizedNameInformation: the path with long names only.
    pub const NORMALIZED_NAME: u8 = 48;
    /// FileStandardLinkInformation: numbers of hard links.
    pub const STANDARD_LINK: u8 = 54;
    /// FileIdInformation: volume's serial number and the file's 128-bit id.
    pub const ID: u8 = 59;
    /// FileIdExtdDirectoryInformation: entries with 128-bit ids.
    pub const ID_EXTD_DIRECTORY: u8 = 60;
    /// FileDispositionInformationEx: set only, deletion with flags.
    pub const DISPOSITION_EX: u8 = 64;
    /// FileRenameInformationEx: set only, a rename with flags.
    pub const RENAME_EX: u8 = 65;
    /// FileId64ExtdDirectoryInformation: entries with reparse tags and 64-bit ids.
    pub const ID_64_EXTD_DIRECTORY: u8 = 78;
    /// FileId64ExtdBothDirectoryInformation: as the former, with short names.
    pub const ID_64_EXTD_BOTH_DIRECTORY: u8 = 79;
    /// FileIdAllExtdDirectoryInformation: entries with reparse tags, 64-bit and 128-bit ids.
    pub const ID_ALL_EXTD_DIRECTORY: u8 = 80;
    /// FileIdAllExtdBothDirectoryInformation: as the former, with short names.
    pub const ID_ALL_EXTD_BOTH_DIRECTORY: u8 = 81;
}

wire_struct! {
    /// MS-FSCC 2.4.7.
    BasicInformation {
        /// Creation (FILETIME: 100 ns since 1601, MS-DTYP 2.3.3).
        creation_time: U64,
        /// Last read (FILETIME).
        last_access_time: U64,
        /// Last write of data (FILETIME).
        last_write_time: U64,
        /// Last change of data or attributes (FILETIME).
        change_time: U64,
        /// FILE_ATTRIBUTE_ bits (MS-FSCC 2.6).
        file_attributes: U32,
        /// Reserved: sent as 0 and ignored.
        reserved: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.4.47.
    StandardInformation {
        /// Allocated bytes.
        allocation_size: U64,
        /// Size in bytes.
        end_of_file: U64,
        /// Hard links that are not about to be deleted.
        number_of_links: U32,
        /// 1 if the file goes at its last close.
        delete_pending: u8,
        /// 1 if the file is a directory.
        directory: u8,
        /// Reserved: sent as 0 and ignored.
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
        /// FileBasicInformation.
        basic: BasicInformation,
        /// FileStandardInformation.
        standard: StandardInformation,
        /// FileInternalInformation.
        internal: InternalInformation,
        /// FileEaInformation.
        ea: EaInformation,
        /// FileAccessInformation.
        access: AccessInformation,
        /// FilePositionInformation.
        position: PositionInformation,
        /// FileModeInformation.
        mode: ModeInformation,
        /// FileAlignmentInformation.
        alignment: AlignmentInformation,
    }
}

wire_struct! {
    /// MS-FSCC 2.4.34.
    NetworkOpenInformation {
        /// Creation (FILETIME: 100 ns since 1601, MS-DTYP 2.3.3).
        creation_time: U64,
        /// Last read (FILETIME).
        last_access_time: U64,
        /// Last write of data (FILETIME).
        last_write_time: U64,
        /// Last change of data or attributes (FILETIME).
        change_time: U64,
        /// Allocated bytes.
        allocation_size: U64,
        /// Size in bytes.
        end_of_file: U64,
        /// FILE_ATTRIBUTE_ bits (MS-FSCC 2.6).
        file_attributes: U32,
        /// Reserved: sent as 0 and ignored.
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
        /// Bytes that the compressed file takes.
        compressed_file_size: U64,
        /// COMPRESSION_FORMAT_NONE (0) or _LZNT1 (2).
        compression_format: U16,
        /// Logarithm to base 2 of the compression unit in bytes.
        compression_unit_shift: u8,
        /// Logarithm to base 2 of the compressed chunk in bytes.
        chunk_shift: u8,
        /// Logarithm to base 2 of the cluster in bytes.
        cluster_shift: u8,
        /// Reserved: sent as 0 and ignored.
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
        /// Hard links that are not about to be deleted.
        number_of_accessible_links: U32,
        /// All hard links.
        total_number_of_links: U32,
        /// 1 if the file goes at its last close.
        delete_pending: u8,
        /// 1 if the file is a directory.
        directory: u8,
        /// Reserved: sent as 0 and ignored.
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
        /// Byte stream (0) or message (1).
        named_pipe_type: U32,
        /// Inbound (0), outbound (1) or full duplex (2).
        named_pipe_configuration: U32,
        /// Most instances of the pipe.
        maximum_instances: U32,
        /// Instances of the pipe at present.
        current_instances: U32,
        /// Bytes of the buffer towards the server.
        inbound_quota: U32,
        /// Bytes that wait to be read.
        read_data_available: U32,
        /// Bytes of the buffer towards the client.
        outbound_quota: U32,
        /// Free bytes of the buffer for writes.
        write_quota_available: U32,
        /// Disconnected (1), listening (2), connected (3) or closing (4).
        named_pipe_state: U32,
        /// End of the open: client (0) or server (1).
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
    /// 0, or FILE_NEED_EA (0x80): the file means nothing to those who do not know the attribute.
    pub flags: u8,
    /// Without the zero that ends it on the wire.
    pub name: &'a [u8],
    /// At most 65,535 bytes; an empty value removes the attribute.
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
    /// Begins at the front of `bytes`, the whole list.
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
/// Replaces a target that others have open, as POSIX does.
pub const RENAME_POSIX_SEMANTICS: u32 = 2;

/// FileRenameInformation and FileLinkInformation (MS-FSCC 2.4.42.2, 2.4.27.2), and FileRenameInformationEx (2.4.43.2), whose first four
/// bytes are flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenameInformation {
    /// ReplaceIfExists as bit 0; all flags of FileRenameInformationEx.
    pub flags: u32,
    /// Must be 0 on the network (MS-FSCC 2.4.42.2): names count from the share.
    pub root_directory: u64,
    /// New path in UTF-16 code units, relative to the share's root.
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

    /// Appends the structure; pads it to the 24 bytes that servers expect at least.
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
