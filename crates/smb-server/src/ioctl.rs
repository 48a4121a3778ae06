//! IOCTL (MS-SMB2 3.3.5.15): which FSCTL asks what of whom, and how its answer looks.

use crate::directory::Directory;
use crate::dispatch::Element;
use crate::request::{Body, Chain, Context, Step, Work};
use crate::server::Server;
use smb::wire::{
    AllocatedRange, CopyChunkRequest, CopyChunkResponse, Dialect, DuplicateExtents, DuplicateExtentsEx,
    FILE_REGION_USAGE_VALID_CACHED_DATA, FileId, FileLevelTrim, FileRegionInfo, FileRegionInput,
    FileRegionOutput, IOCTL_IS_FSCTL, IntegrityInformation, IoctlRequest, ObjectIdBuffer, PipeWait, Put,
    ReparseHead, ResumeKeyResponse, SetIntegrityInformation, SnapshotArray, U16, U32, ZeroData, fsctl,
    put_network_interfaces, range, view_at, wide, write_ioctl_response,
};
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, ByteRange, CopyChunk, FileInformation, OpenId, Operation, Reply};

const FILE_READ_DATA: u32 = 1;
const FILE_WRITE_DATA: u32 = 2;
const FILE_APPEND_DATA: u32 = 4;
const FILE_EXECUTE: u32 = 0x20;
const FILE_WRITE_ATTRIBUTES: u32 = 0x100;
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

/// A server-side copy, done a chunk at a time so that a failure tells how far it came.
#[derive(Debug, Clone)]
pub(crate) struct CopyProgress {
    source: OpenId,
    target: OpenId,
    /// Last chunk first.
    rest: Vec<CopyChunk>,
    chunks: u32,
    bytes: u32,
}

impl CopyProgress {
    /// The next chunk's operation; `None` where all are done.
    fn next(&mut self) -> Option<Operation> {
        let chunk = self.rest.pop()?;
        Some(Operation::CopyChunks { source: self.source, target: self.target, chunks: vec![chunk] })
    }

    fn response(&self) -> CopyChunkResponse {
        CopyChunkResponse {
            chunks_written: self.chunks.into(),
            chunk_bytes_written: 0.into(),
            total_bytes_written: self.bytes.into(),
        }
    }
}

/// One IOCTL's parts.
struct Call<'a> {
    code: u32,
    file_id: FileId,
    input: &'a [u8],
    output_max: usize,
}

fn invalid<T>(_: T) -> NtStatus {
    NtStatus::INVALID_PARAMETER
}

fn reply(code: u32, file_id: FileId, status: NtStatus, output: &[u8]) -> Step {
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
        let request = IoctlRequest::parse(element.bytes()).map_err(invalid)?;
        if request.flags.get() != IOCTL_IS_FSCTL {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let input = request.input().map_err(invalid)?;
        let output_max = request.max_output_response.get();
        let bytes_max = self.config.limits.transact_bytes;
        if input.len() > bytes_max as usize
            || output_max > bytes_max
            || request.max_input_response.get() > bytes_max
        {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.check_charge(context, input.len().max(output_max as usize))?;
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
                let wait: &PipeWait = view_at(call.input, 0).map_err(invalid)?;
                let name = range(call.input, size_of::<PipeWait>(), wait.name_length.get() as usize);
                let name = String::from_utf16_lossy(&wide(name.map_err(invalid)?).map_err(invalid)?);
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
                if granted & FILE_WRITE_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                self.duplicate_extents(context, volume, name, call)?
            }
            fsctl::SET_SPARSE => {
                if directory {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                let needed = FILE_WRITE_DATA | FILE_APPEND_DATA | FILE_WRITE_ATTRIBUTES;
                if granted & needed == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                let sparse = call.input.first().is_none_or(|byte| *byte != 0);
                Operation::SetSparse { open: name, sparse }
            }
            fsctl::SET_ZERO_DATA => {
                let zero: &ZeroData = view_at(call.input, 0).map_err(invalid)?;
                let (from, to) = (zero.file_offset.get(), zero.beyond_final_zero.get());
                if granted & FILE_WRITE_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                if directory || to < from || to > i64::MAX as u64 {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                Operation::ZeroRange { open: name, range: ByteRange { offset: from, len_bytes: to - from } }
            }
            fsctl::QUERY_ALLOCATED_RANGES => {
                let asked: &AllocatedRange = view_at(call.input, 0).map_err(invalid)?;
                if granted & FILE_READ_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                Operation::QueryAllocatedRanges { open: name, range: byte_range(asked)? }
            }
            fsctl::FILE_LEVEL_TRIM => {
                if granted & FILE_WRITE_DATA == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                let ranges = FileLevelTrim::parse(call.input).map_err(invalid)?;
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
                    let asked: &FileRegionInput = view_at(call.input, 0).map_err(invalid)?;
                    byte_range(&AllocatedRange { file_offset: asked.file_offset, length: asked.length })?
                };
                detail = IoctlDetail::Region(asked);
                Operation::QueryInformation { open: name }
            }
            fsctl::GET_REPARSE_POINT => Operation::QueryReparsePoint { open: name },
            fsctl::SET_REPARSE_POINT => {
                let head: &ReparseHead = view_at(call.input, 0).map_err(invalid)?;
                let named = usize::from(head.data_length.get());
                // Tags of others than Microsoft carry a GUID after the head.
                let head_bytes = if head.tag.get() & 0x8000_0000 == 0 { 24 } else { 8 };
                if call.input.len() > REPARSE_BYTES_MAX || call.input.len() != named + head_bytes {
                    return Err(NtStatus::IO_REPARSE_DATA_INVALID);
                }
                Operation::SetReparsePoint { open: name, data: call.input.to_vec() }
            }
            fsctl::DELETE_REPARSE_POINT => {
                let head: &ReparseHead = view_at(call.input, 0).map_err(invalid)?;
                Operation::DeleteReparsePoint { open: name, tag: head.tag.get() }
            }
            fsctl::GET_OBJECT_ID => Operation::ObjectId { open: name, create: false },
            fsctl::CREATE_OR_GET_OBJECT_ID => Operation::ObjectId { open: name, create: true },
            fsctl::GET_COMPRESSION => {
                let output = COMPRESSION_NONE.to_le_bytes();
                return self.fitting(call, file_id, &output);
            }
            fsctl::SET_COMPRESSION => {
                let format = view_at::<U16>(call.input, 0).map_err(invalid)?.get();
                if granted & (FILE_WRITE_DATA | FILE_APPEND_DATA) == 0 {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                if format != COMPRESSION_NONE {
                    return Err(NtStatus::NOT_SUPPORTED);
                }
                return Ok(reply(call.code, file_id, NtStatus::SUCCESS, &[]));
            }
            fsctl::GET_INTEGRITY_INFORMATION => Operation::QueryInformation { open: name },
            fsctl::SET_INTEGRITY_INFORMATION => {
                let set: &SetIntegrityInformation = view_at(call.input, 0).map_err(invalid)?;
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

    fn resume_key(&self, key: u64, call: &Call<'_>) -> Result<Step, NtStatus> {
        let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        // The structure is followed by four bytes of context that mean nothing.
        let output_bytes = size_of::<ResumeKeyResponse>() + 4;
        if call.output_max < output_bytes {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mut resume_key = [0; 24];
        resume_key[..8].copy_from_slice(&key.to_le_bytes());
        resume_key[8..16].copy_from_slice(&open.persistent.to_le_bytes());
        let mut output = Vec::new();
        output.put(&ResumeKeyResponse { resume_key, ..Default::default() });
        output.resize(output_bytes, 0);
        Ok(reply(call.code, open.file_id(key), NtStatus::SUCCESS, &output))
    }

    /// The copy to ask for, or the answer that tells the limits (MS-SMB2 3.3.5.15.6).
    fn copy_chunks(
        &self,
        context: &Context,
        key: u64,
        call: &Call<'_>,
    ) -> Result<Result<CopyProgress, Step>, NtStatus> {
        if call.output_max < size_of::<CopyChunkResponse>() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let (request, chunks) = CopyChunkRequest::parse(call.input).map_err(invalid)?;
        let limits = &self.config.limits;
        let total = chunks.iter().try_fold(0_u32, |sum, chunk| sum.checked_add(chunk.length.get()));
        let too_much = chunks.len() > limits.copy_chunks as usize
            || total.is_none_or(|total| total > limits.copy_total_bytes)
            || chunks
                .iter()
                .any(|chunk| chunk.length.get() == 0 || chunk.length.get() > limits.copy_chunk_bytes);
        if too_much {
            let mut output = Vec::new();
            output.put(&CopyChunkResponse {
                chunks_written: limits.copy_chunks.into(),
                chunk_bytes_written: limits.copy_chunk_bytes.into(),
                total_bytes_written: limits.copy_total_bytes.into(),
            });
            return Ok(Err(reply(call.code, call.file_id, NtStatus::INVALID_PARAMETER, &output)));
        }
        let source_key = u64::from_le_bytes(request.source_key[..8].try_into().map_err(invalid)?);
        let source = self
            .opens
            .get(source_key)
            .filter(|open| {
                open.session == context.session && request.source_key[8..16] == open.persistent.to_le_bytes()
            })
            .ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let target = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        let reads_target = call.code == fsctl::SRV_COPYCHUNK;
        if target.granted_access & FILE_WRITE_DATA == 0
            || reads_target && target.granted_access & FILE_READ_DATA == 0
            || source.granted_access & (FILE_READ_DATA | FILE_EXECUTE) == 0
        {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if source.directory || target.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let (source_volume, source_open) = source.volume_open().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        let (target_volume, target_open) = target.volume_open().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
        if source_volume != target_volume {
            // The client copies by itself then.
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let rest = chunks
            .iter()
            .rev()
            .map(|chunk| {
                let chunk = CopyChunk {
                    source_offset: chunk.source_offset.get(),
                    target_offset: chunk.target_offset.get(),
                    len_bytes: chunk.length.get().into(),
                };
                let ends = [chunk.source_offset, chunk.target_offset];
                let fits = ends.iter().all(|offset| {
                    offset.checked_add(chunk.len_bytes).is_some_and(|end| end <= i64::MAX as u64)
                });
                if fits { Ok(chunk) } else { Err(NtStatus::INVALID_PARAMETER) }
            })
            .collect::<Result<_, _>>()?;
        Ok(Ok(CopyProgress { source: source_open, target: target_open, rest, chunks: 0, bytes: 0 }))
    }

    fn duplicate_extents(
        &mut self,
        context: &Context,
        volume: usize,
        target: OpenId,
        call: &Call<'_>,
    ) -> Result<Operation, NtStatus> {
        let (source_id, source_offset, target_offset, len_bytes) =
            if call.code == fsctl::DUPLICATE_EXTENTS_TO_FILE {
                let data: &DuplicateExtents = view_at(call.input, 0).map_err(invalid)?;
                (data.source_file_id, data.source_offset, data.target_offset, data.byte_count)
            } else {
                let data: &DuplicateExtentsEx = view_at(call.input, 0).map_err(invalid)?;
                (data.source_file_id, data.source_offset, data.target_offset, data.byte_count)
            };
        let source = self
            .opens
            .get(source_id.volatile.get())
            .filter(|open| open.session == context.session && open.persistent == source_id.persistent.get())
            .ok_or(NtStatus::INVALID_HANDLE)?;
        if source.granted_access & FILE_READ_DATA == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let (source_volume, source) = source.volume_open().ok_or(NtStatus::INVALID_PARAMETER)?;
        if source_volume != volume {
            return Err(NtStatus::NOT_SAME_DEVICE);
        }
        let chunk = CopyChunk {
            source_offset: source_offset.get(),
            target_offset: target_offset.get(),
            len_bytes: len_bytes.get(),
        };
        let fits =
            |offset: u64| offset.checked_add(chunk.len_bytes).is_some_and(|end| end <= i64::MAX as u64);
        if !fits(chunk.source_offset) || !fits(chunk.target_offset) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(Operation::DuplicateExtents { source, target, chunk })
    }

    /// One chunk is copied, or failed: the next, or the answer.
    fn copied(
        &mut self,
        context: &Context,
        mut work: IoctlWork,
        result: Result<Reply, NtStatus>,
    ) -> Result<Step, NtStatus> {
        let IoctlDetail::Copy(progress) = &mut work.detail else { return Err(NtStatus::INTERNAL_ERROR) };
        let status = match result {
            Ok(Reply::Copied { chunks, bytes }) => {
                progress.chunks = progress.chunks.saturating_add(chunks);
                progress.bytes = progress.bytes.saturating_add(bytes.min(u64::from(u32::MAX)) as u32);
                NtStatus::SUCCESS
            }
            Ok(_) => NtStatus::INTERNAL_ERROR,
            Err(status) => status,
        };
        if status == NtStatus::SUCCESS
            && let Some(operation) = progress.next()
        {
            let open = self.opens.get(context.open).and_then(|open| open.volume_open());
            let volume = open.map(|(volume, _)| volume).ok_or(NtStatus::FILE_CLOSED)?;
            return Ok(Step::Submit { volume, operation, work: Work::Ioctl(work) });
        }
        let mut output = Vec::new();
        output.put(&progress.response());
        Ok(reply(work.code, work.file_id, status, &output))
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
            (_, Reply::Ranges(ranges)) => {
                let fit = work.output_max / size_of::<AllocatedRange>();
                if ranges.len() > fit {
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
                let checked = file.attributes & smb::wire::attribute::INTEGRITY_STREAM != 0;
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
