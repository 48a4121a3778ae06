//! FSCTLs on files that a volume answers, or that every file answers alike: a row of [`TABLE`] for each.

use super::Detail;
use smb::wire::{
    AllocatedRange, FileLevelTrim, FileRegionInput, IntegrityInformation, ObjectIdBuffer, Put, ReparseHead,
    SetIntegrityInformation, SnapshotArray, U16, U32, ZeroData, fsctl, view_at,
};
use types::NtStatus;
use volume::backend::{ByteRange, OpenId, Operation};
use volume::security::rights;

/// COMPRESSION_FORMAT_NONE.
const COMPRESSION_NONE: u16 = 0;
const REPARSE_BYTES_MAX: usize = 16 << 10;
/// Ranges taken in one request.
const TRIM_RANGES_MAX: usize = 4096;

/// The open that an FSCTL is on.
pub(super) struct Target {
    pub open: OpenId,
    pub granted: u32,
    pub is_directory: bool,
    /// Bytes of output that the client takes.
    pub output_max: usize,
}

impl Target {
    /// Checks that at least one of these rights was granted.
    pub fn check(&self, any_of: u32) -> Result<(), NtStatus> {
        if self.granted & any_of == 0 { Err(NtStatus::ACCESS_DENIED) } else { Ok(()) }
    }

    /// Checks that the client takes an answer of this many bytes, before any work on it.
    fn check_room(&self, output_bytes: usize, otherwise: NtStatus) -> Result<(), NtStatus> {
        if self.output_max < output_bytes { Err(otherwise) } else { Ok(()) }
    }
}

/// Work that an FSCTL requires.
pub(super) enum Ask {
    Volume(Operation, Detail),
    /// Nothing: the answer is known.
    Nothing(Vec<u8>),
    /// Nothing: the request is refused, and answered with the limits of server-side copies.
    Limits(Vec<u8>),
}

/// One FSCTL.
pub(super) struct Row {
    code: u32,
    /// Whether it changes the file, for the ChannelSequence (MS-SMB2 3.3.5.2.10).
    pub changes: bool,
    /// Reads the request's input.
    pub ask: fn(&Target, &[u8]) -> Result<Ask, NtStatus>,
}

const fn changes(code: u32, ask: fn(&Target, &[u8]) -> Result<Ask, NtStatus>) -> Row {
    Row { code, changes: true, ask }
}

const fn queries(code: u32, ask: fn(&Target, &[u8]) -> Result<Ask, NtStatus>) -> Row {
    Row { code, changes: false, ask }
}

const TABLE: &[Row] = &[
    changes(fsctl::SET_SPARSE, set_sparse),
    changes(fsctl::SET_ZERO_DATA, set_zero_data),
    queries(fsctl::QUERY_ALLOCATED_RANGES, query_allocated_ranges),
    changes(fsctl::FILE_LEVEL_TRIM, file_level_trim),
    queries(fsctl::QUERY_FILE_REGIONS, query_file_regions),
    queries(fsctl::GET_REPARSE_POINT, |target, _| {
        // Of a Microsoft tag's data at least the head fits (MS-FSA 2.1.5.10.14).
        target.check_room(size_of::<ReparseHead>(), NtStatus::BUFFER_TOO_SMALL)?;
        ask(Operation::QueryReparsePoint { open: target.open })
    }),
    changes(fsctl::SET_REPARSE_POINT, set_reparse_point),
    changes(fsctl::DELETE_REPARSE_POINT, delete_reparse_point),
    queries(fsctl::GET_OBJECT_ID, |target, _| object_id(target, false)),
    changes(fsctl::CREATE_OR_GET_OBJECT_ID, |target, _| object_id(target, true)),
    queries(fsctl::GET_COMPRESSION, |_, _| know(COMPRESSION_NONE.to_le_bytes().to_vec())),
    changes(fsctl::SET_COMPRESSION, set_compression),
    queries(fsctl::GET_INTEGRITY_INFORMATION, |target, _| {
        target.check_room(size_of::<IntegrityInformation>(), NtStatus::INVALID_PARAMETER)?;
        ask(Operation::QueryInformation { open: target.open })
    }),
    changes(fsctl::SET_INTEGRITY_INFORMATION, set_integrity_information),
    queries(fsctl::SRV_ENUMERATE_SNAPSHOTS, |_, _| know(no_snapshots())),
    queries(fsctl::SRV_READ_HASH, |_, _| Err(NtStatus::HASH_NOT_SUPPORTED)),
];

/// Finds the row of an FSCTL.
pub(super) fn row(code: u32) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.code == code)
}

/// Passes an FSCTL of a device on unchanged.
pub(super) fn of_device(target: &Target, code: u32, input: &[u8], output_bytes_max: usize) -> Ask {
    let input = input.to_vec();
    Ask::Volume(Operation::Control { open: target.open, code, input, output_bytes_max }, Detail::None)
}

fn ask(operation: Operation) -> Result<Ask, NtStatus> {
    Ok(Ask::Volume(operation, Detail::None))
}

fn know(output: Vec<u8>) -> Result<Ask, NtStatus> {
    Ok(Ask::Nothing(output))
}

fn object_id(target: &Target, create: bool) -> Result<Ask, NtStatus> {
    target.check_room(size_of::<ObjectIdBuffer>(), NtStatus::INVALID_PARAMETER)?;
    ask(Operation::ObjectId { open: target.open, create })
}

fn set_sparse(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    if target.is_directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    target.check(rights::WRITE_DATA | rights::APPEND_DATA | rights::WRITE_ATTRIBUTES)?;
    let sparse = input.first().is_none_or(|byte| *byte != 0);
    ask(Operation::SetSparse { open: target.open, sparse })
}

fn set_zero_data(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    let zero: &ZeroData = view_at(input, 0)?;
    let (from, to) = (zero.file_offset.get(), zero.beyond_final_zero.get());
    target.check(rights::WRITE_DATA)?;
    if target.is_directory || to < from || to > i64::MAX as u64 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let range = ByteRange { offset: from, len_bytes: to - from };
    ask(Operation::ZeroRange { open: target.open, range })
}

fn query_allocated_ranges(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    let asked: &AllocatedRange = view_at(input, 0)?;
    target.check(rights::READ_DATA)?;
    ask(Operation::QueryAllocatedRanges { open: target.open, range: byte_range(asked)? })
}

fn file_level_trim(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    target.check(rights::WRITE_DATA)?;
    let ranges = FileLevelTrim::parse(input)?;
    if ranges.is_empty() || ranges.len() > TRIM_RANGES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let detail = Detail::TrimmedRanges(ranges.len() as u32);
    let ranges = ranges.iter().map(byte_range).collect::<Result<_, _>>()?;
    Ok(Ask::Volume(Operation::Trim { open: target.open, ranges }, detail))
}

fn query_file_regions(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    if target.is_directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let region = if input.is_empty() {
        ByteRange { offset: 0, len_bytes: i64::MAX as u64 }
    } else {
        let asked: &FileRegionInput = view_at(input, 0)?;
        byte_range(&AllocatedRange { file_offset: asked.file_offset, length: asked.length })?
    };
    Ok(Ask::Volume(Operation::QueryInformation { open: target.open }, Detail::Region(region)))
}

fn set_reparse_point(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    let head: &ReparseHead = view_at(input, 0)?;
    let named = usize::from(head.data_length.get());
    // Tags of others than Microsoft carry a GUID after the head.
    let head_bytes = if head.tag.get() & 0x8000_0000 == 0 { 24 } else { 8 };
    if input.len() > REPARSE_BYTES_MAX || input.len() != named + head_bytes {
        return Err(NtStatus::IO_REPARSE_DATA_INVALID);
    }
    ask(Operation::SetReparsePoint { open: target.open, data: input.to_vec() })
}

fn delete_reparse_point(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    let head: &ReparseHead = view_at(input, 0)?;
    ask(Operation::DeleteReparsePoint { open: target.open, tag: head.tag.get() })
}

fn set_compression(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    let format = view_at::<U16>(input, 0)?.get();
    target.check(rights::WRITE_DATA | rights::APPEND_DATA)?;
    if format != COMPRESSION_NONE {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    know(Vec::new())
}

fn set_integrity_information(target: &Target, input: &[u8]) -> Result<Ask, NtStatus> {
    let set: &SetIntegrityInformation = view_at(input, 0)?;
    let (algorithm, flags) = (set.checksum_algorithm.get(), set.flags.get());
    ask(Operation::SetIntegrity { open: target.open, algorithm, flags })
}

/// Lists no snapshots: two zeros end the empty list of names.
fn no_snapshots() -> Vec<u8> {
    let mut output = Vec::new();
    let names_bytes = 2 * size_of::<u16>();
    output.put(&SnapshotArray { snapshot_array_size: U32::new(names_bytes as u32), ..Default::default() });
    output.resize(output.len() + names_bytes, 0);
    output
}

fn byte_range(asked: &AllocatedRange) -> Result<ByteRange, NtStatus> {
    let (offset, len_bytes) = (asked.file_offset.get(), asked.length.get());
    match offset.checked_add(len_bytes) {
        Some(end) if end <= i64::MAX as u64 => Ok(ByteRange { offset, len_bytes }),
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}
