//! Server-side copies: resume keys, SRV_COPYCHUNK and duplicated extents (MS-SMB2 3.3.5.15.5, 3.3.5.15.6; MS-FSCC 2.3.7).

use crate::directory::Directory;
use crate::ioctl::{Call, IoctlDetail, IoctlWork, reply};
use crate::request::{Context, Step, Work};
use crate::server::Server;
use smb::wire::{
    CopyChunkRequest, CopyChunkResponse, DuplicateExtents, DuplicateExtentsEx, Put, ResumeKeyResponse, fsctl,
    view_at,
};
use types::NtStatus;
use volume::backend::{Backend, CopyChunk, OpenId, Operation, Reply};
use volume::security::rights;

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
    pub fn next(&mut self) -> Option<Operation> {
        let chunk = self.rest.pop()?;
        Some(Operation::CopyChunks { source: self.source, target: self.target, chunks: vec![chunk] })
    }

    pub fn response(&self) -> CopyChunkResponse {
        CopyChunkResponse {
            chunks_written: self.chunks.into(),
            chunk_bytes_written: 0.into(),
            total_bytes_written: self.bytes.into(),
        }
    }
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn resume_key(&self, key: u64, call: &Call<'_>) -> Result<Step, NtStatus> {
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
    pub(crate) fn copy_chunks(
        &self,
        context: &Context,
        key: u64,
        call: &Call<'_>,
    ) -> Result<Result<CopyProgress, Step>, NtStatus> {
        if call.output_max < size_of::<CopyChunkResponse>() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let (request, chunks) = CopyChunkRequest::parse(call.input)?;
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
        let source_key = u64::from_le_bytes(request.source_key[..8].try_into().unwrap_or_default());
        let source = self
            .opens
            .get(source_key)
            .filter(|open| {
                open.session == context.session && request.source_key[8..16] == open.persistent.to_le_bytes()
            })
            .ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let target = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
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

    pub(crate) fn duplicate_extents(
        &mut self,
        context: &Context,
        volume: usize,
        target: OpenId,
        call: &Call<'_>,
    ) -> Result<Operation, NtStatus> {
        let (source_id, source_offset, target_offset, len_bytes) =
            if call.code == fsctl::DUPLICATE_EXTENTS_TO_FILE {
                let data: &DuplicateExtents = view_at(call.input, 0)?;
                (data.source_file_id, data.source_offset, data.target_offset, data.byte_count)
            } else {
                let data: &DuplicateExtentsEx = view_at(call.input, 0)?;
                (data.source_file_id, data.source_offset, data.target_offset, data.byte_count)
            };
        let source = self
            .opens
            .get(source_id.volatile.get())
            .filter(|open| open.session == context.session && open.persistent == source_id.persistent.get())
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
        let fits =
            |offset: u64| offset.checked_add(chunk.len_bytes).is_some_and(|end| end <= i64::MAX as u64);
        if !fits(chunk.source_offset) || !fits(chunk.target_offset) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(Operation::DuplicateExtents { source, target, chunk })
    }

    /// One chunk is copied, or failed: the next, or the answer.
    pub(crate) fn copied(
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
}
