//! Server-side copies: resume keys, SRV_COPYCHUNK and duplicated extents (MS-SMB2 3.3.5.15.5, 3.3.5.15.6; MS-FSCC 2.3.7).

use super::file::{Ask, Target};
use super::{Call, Detail, IoctlWork, reply};
use crate::config::Limits;
use crate::exchange::{Context, Step};
use crate::state::keys::{OpenKey, VolumeSlot};
use crate::state::opens::{Open, Opens};
use smb::wire::{
    CopyChunkRequest, CopyChunkResponse, DuplicateExtents, DuplicateExtentsEx, Put, ResumeKeyResponse, fsctl,
    view_at,
};
use types::NtStatus;
use volume::backend::{CopyChunk, OpenId, Operation, Reply};
use volume::security::rights;

/// A server-side copy, done a chunk at a time so that a failure reports its progress.
pub(super) struct CopyProgress {
    source: OpenId,
    target: OpenId,
    /// Last chunk first.
    rest: Vec<CopyChunk>,
    chunks: u32,
    bytes: u32,
}

impl CopyProgress {
    /// Returns the next chunk's operation. `None`: all are done.
    fn next(&mut self) -> Option<Operation> {
        let chunk = self.rest.pop()?;
        Some(Operation::CopyChunks { source: self.source, target: self.target, chunks: vec![chunk] })
    }

    /// Makes the output, with the progress of the copy.
    fn response(&self) -> Vec<u8> {
        let mut output = Vec::new();
        output.put(&CopyChunkResponse {
            chunks_written: self.chunks.into(),
            chunk_bytes_written: 0.into(),
            total_bytes_written: self.bytes.into(),
        });
        output
    }
}

/// Answers with the key of an open for SRV_COPYCHUNK.
pub(super) fn resume_key(open: &Open, key: OpenKey, call: &Call<'_>) -> Result<Step<IoctlWork>, NtStatus> {
    // The structure is followed by four bytes of context that mean nothing.
    let output_bytes = size_of::<ResumeKeyResponse>() + 4;
    if call.output_max < output_bytes {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut resume_key = [0; 24];
    resume_key[..8].copy_from_slice(&key.get().to_le_bytes());
    resume_key[8..16].copy_from_slice(&open.persistent.to_le_bytes());
    let mut output = Vec::new();
    output.put(&ResumeKeyResponse { resume_key, ..Default::default() });
    output.resize(output_bytes, 0);
    Ok(reply(call.code, open.file_id(key), NtStatus::SUCCESS, &output))
}

/// Parses a copy request, or answers with the limits (MS-SMB2 3.3.5.15.6).
pub(super) fn copy_chunks(
    opens: &Opens,
    limits: &Limits,
    context: &Context,
    key: OpenKey,
    call: &Call<'_>,
) -> Result<Ask, NtStatus> {
    if call.output_max < size_of::<CopyChunkResponse>() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let (request, chunks) = CopyChunkRequest::parse(call.input)?;
    let total = chunks.iter().try_fold(0_u32, |sum, chunk| sum.checked_add(chunk.length.get()));
    let too_much = chunks.len() > limits.copy_chunks as usize
        || total.is_none_or(|total| total > limits.copy_total_bytes)
        || chunks.iter().any(|chunk| chunk.length.get() == 0 || chunk.length.get() > limits.copy_chunk_bytes);
    if too_much {
        let mut output = Vec::new();
        output.put(&CopyChunkResponse {
            chunks_written: limits.copy_chunks.into(),
            chunk_bytes_written: limits.copy_chunk_bytes.into(),
            total_bytes_written: limits.copy_total_bytes.into(),
        });
        return Ok(Ask::Limits(output));
    }
    let source_key = u64::from_le_bytes(request.source_key[..8].try_into().unwrap_or_default());
    let source = OpenKey::from_number(source_key)
        .and_then(|key| opens.get(key).ok())
        .filter(|open| {
            Some(open.session) == context.session
                && request.source_key[8..16] == open.persistent.to_le_bytes()
        })
        .ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let target = opens.get(key)?;
    let reads_target = call.code == fsctl::SRV_COPYCHUNK;
    if target.granted_access & rights::WRITE_DATA == 0
        || reads_target && target.granted_access & rights::READ_DATA == 0
        || source.granted_access & (rights::READ_DATA | rights::EXECUTE) == 0
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if source.directory || target.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let (source_volume, source_open) = source.volume_open().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let (target_volume, target_open) = target.volume_open().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    if source_volume != target_volume {
        // The client then copies without the server.
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let rest = chunks
        .iter()
        .rev()
        .map(|chunk| {
            checked(CopyChunk {
                source_offset: chunk.source_offset.get(),
                target_offset: chunk.target_offset.get(),
                len_bytes: chunk.length.get().into(),
            })
        })
        .collect::<Result<_, _>>()?;
    let mut progress = CopyProgress { source: source_open, target: target_open, rest, chunks: 0, bytes: 0 };
    Ok(match progress.next() {
        Some(first) => Ask::Volume(first, Detail::Copy(Box::new(progress))),
        None => Ask::Nothing(progress.response()),
    })
}

/// Checks that both ends of a chunk are offsets that a file can have.
fn checked(chunk: CopyChunk) -> Result<CopyChunk, NtStatus> {
    let fits = |offset: u64| offset.checked_add(chunk.len_bytes).is_some_and(|end| end <= i64::MAX as u64);
    if fits(chunk.source_offset) && fits(chunk.target_offset) {
        Ok(chunk)
    } else {
        Err(NtStatus::INVALID_PARAMETER)
    }
}

/// Parses the extents that a file has to share with another.
pub(super) fn duplicate_extents(
    opens: &Opens,
    context: &Context,
    volume: VolumeSlot,
    target: &Target,
    call: &Call<'_>,
) -> Result<Ask, NtStatus> {
    target.check(rights::WRITE_DATA)?;
    let (source_id, source_offset, target_offset, len_bytes) =
        if call.code == fsctl::DUPLICATE_EXTENTS_TO_FILE {
            let data: &DuplicateExtents = view_at(call.input, 0)?;
            (data.source_file_id, data.source_offset, data.target_offset, data.byte_count)
        } else {
            let data: &DuplicateExtentsEx = view_at(call.input, 0)?;
            (data.source_file_id, data.source_offset, data.target_offset, data.byte_count)
        };
    let source = OpenKey::from_number(source_id.volatile.get())
        .and_then(|key| opens.get(key).ok())
        .filter(|open| Some(open.session) == context.session && open.persistent == source_id.persistent.get())
        .ok_or(NtStatus::INVALID_HANDLE)?;
    if source.granted_access & rights::READ_DATA == 0 {
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
    let operation = Operation::DuplicateExtents { source, target: target.open, chunk: checked(chunk)? };
    Ok(Ask::Volume(operation, Detail::None))
}

/// Continues with the next chunk after one has been copied or has failed, or answers. A `volume` of
/// `None`: the open is gone.
pub(super) fn resume(
    volume: Option<VolumeSlot>,
    mut work: IoctlWork,
    result: Result<Reply, NtStatus>,
) -> Result<Step<IoctlWork>, NtStatus> {
    let Detail::Copy(progress) = &mut work.detail else { return Err(NtStatus::INTERNAL_ERROR) };
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
        return Ok(Step::Submit { volume: volume.ok_or(NtStatus::FILE_CLOSED)?, operation, work });
    }
    Ok(reply(work.code, work.file_id, status, &progress.response()))
}
