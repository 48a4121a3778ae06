//! IOCTL (MS-SMB2 3.3.5.15): which FSCTL asks what of whom, and how its answer looks.

use crate::copy::CopyProgress;
use crate::directory::Directory;
use crate::dispatch::Element;
use crate::request::{Body, Chain, Context, Step, Work};
use crate::server::Server;
use smb::wire::{
    AllocatedRange, Dialect, FILE_REGION_USAGE_VALID_CACHED_DATA, FileId, FileLevelTrim, FileRegionInfo,
    FileRegionInput, FileRegionOutput, IOCTL_IS_FSCTL, IntegrityInformation, IoctlRequest, ObjectIdBuffer,
    PipeWait, Put, ReparseHead, SetIntegrityInformation, SnapshotArray, U16, U32, ZeroData, fsctl,
    put_network_interfaces, range, view_at, wide, write_ioctl_response,
};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, ByteRange, FileInformation, Operation, Reply};
use volume::security::rights;

/// COMPRESSION_FORMAT_NONE.
const COMPRESSION_NONE: u16 = 0;
/// CHECKSUM_TYPE_CRC64.
const CHECKSUM_CRC64: u16 = 2;
const REPARSE_BYTES_MAX: usize = 16 << 10;
/// Ranges taken in one request.
const TRIM_RANGES_MAX: usize = 4096;

/// How to answer when the volume is done.
#[derive(Debug, Clone)]
pub(crate) struct IoctlWork {
    pub code: u32,
    pub file_id: FileId,
    pub output_max: usize,
    /// What the request gave that its answer needs: a number of ranges, or a region.
    pub detail: IoctlDetail,
}

#[derive(Debug, Clone)]
pub(crate) enum IoctlDetail {
    None,
    TrimmedRanges(u32),
    Region(ByteRange),
    Copy(Box<CopyProgress>),
}

/// One IOCTL's parts.
pub(crate) struct Call<'a> {
    pub code: u32,
    pub file_id: FileId,
    pub input: &'a [u8],
    pub output_max: usize,
}

pub(crate) fn reply(code: u32, file_id: FileId, status: NtStatus, output: &[u8]) -> Step {
    let mut body = Vec::with_capacity(48 + output.len());
    write_ioctl_response(&mut body, code, file_id, output);
    if output.is_empty() {
        body.push(0);
    }
    Step::Reply(status, Body::Bytes(body))
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_ioctl(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let request = IoctlRequest::parse(element.bytes())?;
        if request.flags.get() != IOCTL_IS_FSCTL {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let input = request.input()?;
        let output_max = request.max_output_response.get();
        let limit = self.config.limits.transact_bytes;
        if request.max_input_response.get() > limit {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.check_size(context, input.len().max(output_max as usize), limit)?;
        let call = Call {
            code: request.control_code.get(),
            file_id: request.file_id,
            input,
            output_max: output_max as usize,
        };
        match call.code {
            fsctl::VALIDATE_NEGOTIATE_INFO
            | fsctl::QUERY_NETWORK_INTERFACE_INFO
            | fsctl::DFS_GET_REFERRALS
            | fsctl::DFS_GET_REFERRALS_EX
            | fsctl::PIPE_WAIT => self.ioctl_without_file(context, &call),
            _ => {
                let key = self.find_open(context, chain, call.file_id)?;
                self.ioctl_of_file(context, key, &call, now)
            }
        }
    }

    fn ioctl_without_file(&mut self, context: &Context, call: &Call<'_>) -> Result<Step, NtStatus> {
        if call.file_id != FileId::RELATED {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let output = match call.code {
            fsctl::VALIDATE_NEGOTIATE_INFO => {
                // 3.1.1 protects its negotiation otherwise, and the request is a sign of tampering.
                if self.dialect_of(context) == Dialect::Smb311 {
                    return Ok(Step::Disconnect);
                }
                match self.validate_negotiate(context, call.input)? {
                    Some(output) => output,
                    None => return Ok(Step::Disconnect),
                }
            }
            fsctl::QUERY_NETWORK_INTERFACE_INFO => {
                if self.dialect_of(context) < Dialect::Smb300 || self.config.interfaces.is_empty() {
                    return Err(NtStatus::INVALID_DEVICE_REQUEST);
                }
                let mut output = Vec::new();
                put_network_interfaces(&mut output, &self.config.interfaces);
                output
            }
            fsctl::PIPE_WAIT => {
                let wait: &PipeWait = view_at(call.input, 0)?;
                let name = range(call.input, size_of::<PipeWait>(), wait.name_length.get() as usize);
                let name = String::from_utf16_lossy(&wide(name?)?);
                let known = ["srvsvc", "lsarpc", "wkssvc"];
                if !known.iter().any(|pipe| name.eq_ignore_ascii_case(pipe)) {
                    return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
                }
                Vec::new()
            }
            _ => return Err(NtStatus::FS_DRIVER_REQUIRED),
        };
        if output.len() > call.output_max {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        Ok(reply(call.code, FileId::RELATED, NtStatus::SUCCESS, &output))
    }

    fn ioctl_of_file(
        &mut self,
        context: &mut Context,
        key: u64,
        call: &Call<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        let file_id = open.file_id(key);
        let Some((volume, name)) = open.volume_open() else {
            return self.ioctl_of_pipe(key, call, now);
        };
        let (granted, directory) = (open.granted_access, open.directory);
        let mut detail = IoctlDetail::None;
        let operation = match call.code {
            fsctl::SRV_REQUEST_RESUME_KEY => {
                return self.resume_key(key, call);
            }
            fsctl::SRV_COPYCHUNK | fsctl::SRV_COPYCHUNK_WRITE => {
                let mut progress = match self.copy_chunks(context, key, call)? {
                    Ok(progress) => progress,
                    Err(step) => return Ok(step),
                };
                let Some(first) = progress.next() else {
                    let mut output = Vec::new();
                    output.put(&progress.response());
                    return Ok(reply(call.code, file_id, NtStatus::SUCCESS, &output));
                };
                detail = IoctlDetail::Copy(Box::new(progress));
                first
            }
            fsctl::DUPLICATE_EXTENTS_TO_FILE | fsctl::DUPLICATE_EXTENTS_TO_FILE_EX => {
                if granted & rights::WRITE_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                self.duplicate_extents(context, volume, name, call)?
            }
            fsctl::SET_SPARSE => {
                if directory {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                let needed = rights::WRITE_DATA | rights::APPEND_DATA | rights::WRITE_ATTRIBUTES;
                if granted & needed == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                let sparse = call.input.first().is_none_or(|byte| *byte != 0);
                Operation::SetSparse { open: name, sparse }
            }
            fsctl::SET_ZERO_DATA => {
                let zero: &ZeroData = view_at(call.input, 0)?;
                let (from, to) = (zero.file_offset.get(), zero.beyond_final_zero.get());
                if granted & rights::WRITE_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                if directory || to < from || to > i64::MAX as u64 {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                Operation::ZeroRange { open: name, range: ByteRange { offset: from, len_bytes: to - from } }
            }
            fsctl::QUERY_ALLOCATED_RANGES => {
                let asked: &AllocatedRange = view_at(call.input, 0)?;
                if granted & rights::READ_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                Operation::QueryAllocatedRanges { open: name, range: byte_range(asked)? }
            }
            fsctl::FILE_LEVEL_TRIM => {
                if granted & rights::WRITE_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                let ranges = FileLevelTrim::parse(call.input)?;
                if ranges.is_empty() || ranges.len() > TRIM_RANGES_MAX {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                detail = IoctlDetail::TrimmedRanges(ranges.len() as u32);
                let ranges = ranges.iter().map(byte_range).collect::<Result<_, _>>()?;
                Operation::Trim { open: name, ranges }
            }
            fsctl::QUERY_FILE_REGIONS => {
                let asked = if call.input.is_empty() {
                    ByteRange { offset: 0, len_bytes: i64::MAX as u64 }
                } else {
                    let asked: &FileRegionInput = view_at(call.input, 0)?;
                    byte_range(&AllocatedRange { file_offset: asked.file_offset, length: asked.length })?
                };
                detail = IoctlDetail::Region(asked);
                Operation::QueryInformation { open: name }
            }
            fsctl::GET_REPARSE_POINT => Operation::QueryReparsePoint { open: name },
            fsctl::SET_REPARSE_POINT => {
                let head: &ReparseHead = view_at(call.input, 0)?;
                let named = usize::from(head.data_length.get());
                // Tags of others than Microsoft carry a GUID after the head.
                let head_bytes = if head.tag.get() & 0x8000_0000 == 0 { 24 } else { 8 };
                if call.input.len() > REPARSE_BYTES_MAX || call.input.len() != named + head_bytes {
                    return Err(NtStatus::IO_REPARSE_DATA_INVALID);
                }
                Operation::SetReparsePoint { open: name, data: call.input.to_vec() }
            }
            fsctl::DELETE_REPARSE_POINT => {
                let head: &ReparseHead = view_at(call.input, 0)?;
                Operation::DeleteReparsePoint { open: name, tag: head.tag.get() }
            }
            fsctl::GET_OBJECT_ID => Operation::ObjectId { open: name, create: false },
            fsctl::CREATE_OR_GET_OBJECT_ID => Operation::ObjectId { open: name, create: true },
            fsctl::GET_COMPRESSION => {
                let output = COMPRESSION_NONE.to_le_bytes();
                return self.fitting(call, file_id, &output);
            }
            fsctl::SET_COMPRESSION => {
                let format = view_at::<U16>(call.input, 0)?.get();
                if granted & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                if format != COMPRESSION_NONE {
                    return Err(NtStatus::NOT_SUPPORTED);
                }
                return Ok(reply(call.code, file_id, NtStatus::SUCCESS, &[]));
            }
            fsctl::GET_INTEGRITY_INFORMATION => Operation::QueryInformation { open: name },
            fsctl::SET_INTEGRITY_INFORMATION => {
                let set: &SetIntegrityInformation = view_at(call.input, 0)?;
                Operation::SetIntegrity {
                    open: name,
                    algorithm: set.checksum_algorithm.get(),
                    flags: set.flags.get(),
                }
            }
            fsctl::SRV_ENUMERATE_SNAPSHOTS => {
                // None: two zeros end the empty list of names.
                let mut output = Vec::new();
                let names_bytes = 2 * size_of::<u16>();
                output.put(&SnapshotArray {
                    snapshot_array_size: U32::new(names_bytes as u32),
                    ..Default::default()
                });
                output.resize(output.len() + names_bytes, 0);
                return self.fitting(call, file_id, &output);
            }
            fsctl::SRV_READ_HASH => return Err(NtStatus::HASH_NOT_SUPPORTED),
            _ => return Err(NtStatus::INVALID_DEVICE_REQUEST),
        };
        let changes = !matches!(
            call.code,
            fsctl::QUERY_ALLOCATED_RANGES
                | fsctl::QUERY_FILE_REGIONS
                | fsctl::GET_REPARSE_POINT
                | fsctl::GET_OBJECT_ID
                | fsctl::GET_INTEGRITY_INFORMATION
        );
        self.check_channel_sequence(context, key, changes)?;
        let work = IoctlWork { code: call.code, file_id, output_max: call.output_max, detail };
        Ok(Step::Submit { volume, operation, work: Work::Ioctl(work) })
    }

    fn fitting(&self, call: &Call<'_>, file_id: FileId, output: &[u8]) -> Result<Step, NtStatus> {
        if output.len() > call.output_max {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(reply(call.code, file_id, NtStatus::SUCCESS, output))
    }

    fn ioctl_of_pipe(&mut self, key: u64, call: &Call<'_>, now: Monotonic) -> Result<Step, NtStatus> {
        let (status, output) = match call.code {
            fsctl::PIPE_TRANSCEIVE => self.transact_pipe(key, call.input, call.output_max, now)?,
            fsctl::PIPE_PEEK => {
                let output = self.peek_pipe(key)?;
                if output.len() > call.output_max {
                    return Err(NtStatus::BUFFER_OVERFLOW);
                }
                (NtStatus::SUCCESS, output)
            }
            _ => return Err(NtStatus::INVALID_DEVICE_REQUEST),
        };
        let file_id = self.opens.get(key).map(|open| open.file_id(key)).unwrap_or_default();
        Ok(reply(call.code, file_id, status, &output))
    }

    pub(crate) fn ioctl_done(
        &mut self,
        context: &Context,
        work: IoctlWork,
        result: Result<Reply, NtStatus>,
    ) -> Result<Step, NtStatus> {
        if matches!(work.detail, IoctlDetail::Copy(_)) {
            return self.copied(context, work, result);
        }
        let work = &work;
        let answer = result?;
        let mut output = Vec::new();
        let mut status = NtStatus::SUCCESS;
        match (work.code, answer) {
            (_, Reply::Ranges { ranges, more }) => {
                let fit = work.output_max / size_of::<AllocatedRange>();
                if ranges.len() > fit || more {
                    if fit == 0 {
                        return Err(NtStatus::BUFFER_TOO_SMALL);
                    }
                    status = NtStatus::BUFFER_OVERFLOW;
                }
                for range in ranges.iter().take(fit) {
                    output.put(&AllocatedRange {
                        file_offset: range.offset.into(),
                        length: range.len_bytes.into(),
                    });
                }
            }
            (fsctl::QUERY_FILE_REGIONS, Reply::Information(file)) => {
                output = self.file_regions(work, &file)?;
            }
            (fsctl::GET_INTEGRITY_INFORMATION, Reply::Information(file)) => {
                let checked = file.attributes & types::attribute::INTEGRITY_STREAM != 0;
                output.put(&IntegrityInformation {
                    checksum_algorithm: if checked { CHECKSUM_CRC64 } else { 0 }.into(),
                    checksum_chunk_size_bytes: 4096.into(),
                    cluster_size_bytes: 4096.into(),
                    ..Default::default()
                });
            }
            (_, Reply::ReparsePoint(data)) => {
                if data.len() > work.output_max {
                    status = NtStatus::BUFFER_OVERFLOW;
                }
                output = data;
                output.truncate(work.output_max);
            }
            (_, Reply::ObjectId(object_id)) => {
                let volume =
                    self.opens.get(context.open).and_then(|open| open.volume_open()).map(|open| open.0);
                let birth_volume_id =
                    volume.map(|volume| self.volumes[volume].id.to_bytes()).unwrap_or_default();
                output.put(&ObjectIdBuffer {
                    object_id,
                    birth_volume_id,
                    birth_object_id: object_id,
                    domain_id: [0; 16],
                });
            }
            _ => {
                if let IoctlDetail::TrimmedRanges(count) = work.detail {
                    output.put(&U32::new(count));
                }
            }
        }
        if output.len() > work.output_max {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        Ok(reply(work.code, work.file_id, status, &output))
    }

    /// The valid data of a file within what was asked for: all of it up to its end.
    fn file_regions(&self, work: &IoctlWork, file: &FileInformation) -> Result<Vec<u8>, NtStatus> {
        let IoctlDetail::Region(asked) = work.detail else { return Err(NtStatus::INVALID_PARAMETER) };
        let end = file.end_of_file.min(asked.offset.saturating_add(asked.len_bytes));
        let length = end.saturating_sub(asked.offset);
        let count = u32::from(length > 0);
        let mut output = Vec::new();
        output.put(&FileRegionOutput {
            total_region_entry_count: count.into(),
            region_entry_count: count.into(),
            ..Default::default()
        });
        if length > 0 {
            output.put(&FileRegionInfo {
                file_offset: asked.offset.into(),
                length: length.into(),
                usage: FILE_REGION_USAGE_VALID_CACHED_DATA.into(),
                reserved: 0.into(),
            });
        }
        Ok(output)
    }
}

fn byte_range(asked: &AllocatedRange) -> Result<ByteRange, NtStatus> {
    let (offset, len_bytes) = (asked.file_offset.get(), asked.length.get());
    match offset.checked_add(len_bytes) {
        Some(end) if end <= i64::MAX as u64 => Ok(ByteRange { offset, len_bytes }),
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}
