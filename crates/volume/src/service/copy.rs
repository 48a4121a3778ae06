//! Copies within the server: chunk by chunk through memory, or by sharing blocks (MS-FSA 2.1.5.10.5; MS-SMB2 3.3.5.15.6).

use super::io::InFlight;
use super::tasks::Outcome;
use super::{Halt, Service, status_of};
use crate::backend::{ByteRange, CopyChunk, OpenId, OperationId, Reply};
use crate::fs::{FsError, StreamId};
use crate::security::rights;
use std::task::Poll;
use sys::Payload;
use types::NtStatus;

/// Most bytes in memory for one copy.
const PIECE_BYTES: u64 = 1 << 20;

/// A copy under way.
#[derive(Debug)]
pub struct Copy {
    operation: OperationId,
    source: OpenId,
    target: OpenId,
    pub source_stream: StreamId,
    pub target_stream: StreamId,
    chunks: Vec<CopyChunk>,
    /// Chunks done, and bytes done of the next one.
    done: usize,
    within: u64,
    bytes: u64,
    /// Bytes on their way.
    piece: u64,
    /// Answers without figures: it was asked for as one range.
    plain: bool,
}

impl Service {
    /// The chunks' number and sizes are the server's to limit.
    pub(super) fn copy_chunks(
        &mut self,
        operation: OperationId,
        source: OpenId,
        target: OpenId,
        chunks: Vec<CopyChunk>,
    ) -> Result<Outcome, Halt> {
        let (source_stream, target_stream) = self.check_copy(source, target)?;
        let end = self.fs.stream_information(source_stream)?.end_of_file;
        for chunk in &chunks {
            if chunk.source_offset.checked_add(chunk.len_bytes).is_none_or(|last| last > end) {
                return Err(NtStatus::INVALID_VIEW_SIZE.into());
            }
            let range = ByteRange { offset: chunk.source_offset, len_bytes: chunk.len_bytes };
            self.check_read(source, range)?;
            self.check_write(target, chunk.target_offset, chunk.len_bytes)?;
        }
        let copy = Copy {
            operation,
            source,
            target,
            source_stream,
            target_stream,
            chunks,
            done: 0,
            within: 0,
            bytes: 0,
            piece: 0,
            plain: false,
        };
        self.copy_next(Box::new(copy));
        Ok(Outcome::Later)
    }

    fn check_copy(&mut self, source: OpenId, target: OpenId) -> Result<(StreamId, StreamId), NtStatus> {
        let from = self.open_for(source, 0)?;
        if from.access & (rights::READ_DATA | rights::EXECUTE) == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let (from_stream, from_directory) = (from.stream, from.directory);
        let to = self.open_for(target, 0)?;
        if to.access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 || to.share.read_only {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if from_directory || to.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        Ok((from_stream, to.stream))
    }

    fn copy_next(&mut self, mut copy: Box<Copy>) {
        loop {
            let Some(chunk) = copy.chunks.get(copy.done).copied() else {
                let reply = if copy.plain {
                    Reply::Done
                } else {
                    Reply::Copied { chunks: copy.done as u32, bytes: copy.bytes }
                };
                return self.done(copy.operation, Ok(reply));
            };
            let left = chunk.len_bytes - copy.within;
            if left == 0 {
                copy.done += 1;
                copy.within = 0;
                continue;
            }
            copy.piece = left.min(PIECE_BYTES);
            let (stream, offset, len) =
                (copy.source_stream, chunk.source_offset + copy.within, copy.piece as u32);
            let token = self.in_flight.insert(InFlight::CopyRead(copy));
            match self.fs.read(token as u64, stream, offset, len) {
                Poll::Pending => return,
                Poll::Ready(result) => {
                    let InFlight::CopyRead(back) = self.in_flight.remove(token) else { return };
                    match self.copy_piece(back, result) {
                        Some(back) => copy = back,
                        None => return,
                    }
                }
            }
        }
    }

    /// Writes what was read. Returns the copy where it can go on at once.
    fn copy_piece(&mut self, copy: Box<Copy>, result: Result<Payload, FsError>) -> Option<Box<Copy>> {
        let data = match result {
            Ok(data) if data.len() as u64 == copy.piece => data,
            Ok(_) => {
                // The source was cut off meanwhile.
                self.done(copy.operation, Err(NtStatus::INVALID_VIEW_SIZE));
                return None;
            }
            Err(error) => {
                self.done(copy.operation, Err(status_of(&error)));
                return None;
            }
        };
        let chunk = copy.chunks.get(copy.done)?;
        let (stream, offset) = (copy.target_stream, chunk.target_offset + copy.within);
        // Either may have been closed or taken from its client since the copy began.
        if let Err(status) = self.check_copy(copy.source, copy.target) {
            self.done(copy.operation, Err(status));
            return None;
        }
        let durable = self.before_write(copy.target);
        let token = self.in_flight.insert(InFlight::CopyWrite(copy));
        match self.fs.write(token as u64, stream, offset, data, durable) {
            Poll::Pending => None,
            Poll::Ready(result) => {
                let InFlight::CopyWrite(back) = self.in_flight.remove(token) else { return None };
                self.piece_written(back, result)
            }
        }
    }

    fn piece_written(&mut self, mut copy: Box<Copy>, result: Result<(), FsError>) -> Option<Box<Copy>> {
        if let Err(error) = result {
            self.done(copy.operation, Err(status_of(&error)));
            return None;
        }
        copy.within += copy.piece;
        copy.bytes += copy.piece;
        Some(copy)
    }

    pub(super) fn copy_read(&mut self, copy: Box<Copy>, result: Result<Payload, FsError>) {
        if let Some(copy) = self.copy_piece(copy, result) {
            self.copy_next(copy);
        }
    }

    pub(super) fn copy_written(&mut self, copy: Box<Copy>, result: Result<(), FsError>) {
        if let Some(copy) = self.piece_written(copy, result) {
            self.copy_next(copy);
        }
    }

    /// MS-FSA 2.1.5.10.4. `chunk` becomes what is left to do. Ranges that are not of whole blocks are refused, as ReFS does.
    pub(super) fn duplicate_extents(
        &mut self,
        operation: OperationId,
        source: OpenId,
        target: OpenId,
        chunk: &mut CopyChunk,
    ) -> Result<Outcome, Halt> {
        let (from, to) = self.check_copy(source, target)?;
        let range = ByteRange { offset: chunk.source_offset, len_bytes: chunk.len_bytes };
        self.check_read(source, range)?;
        self.check_write(target, chunk.target_offset, chunk.len_bytes)?;
        let block = types::BLOCK_BYTES as u64;
        let source_end = self.fs.stream_information(from)?.end_of_file;
        let last = chunk.source_offset.checked_add(chunk.len_bytes).ok_or(NtStatus::INVALID_PARAMETER)?;
        let whole = chunk.source_offset.is_multiple_of(block)
            && chunk.target_offset.is_multiple_of(block)
            && (chunk.len_bytes.is_multiple_of(block) || last == source_end);
        if !whole {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        if last > source_end {
            return Err(NtStatus::NOT_SUPPORTED.into());
        }
        let target_end = self.fs.stream_information(to)?.end_of_file;
        let target_last =
            chunk.target_offset.checked_add(chunk.len_bytes).ok_or(NtStatus::INVALID_PARAMETER)?;
        if target_last > target_end {
            return Err(NtStatus::NOT_SUPPORTED.into());
        }
        if from == to && chunk.source_offset < target_last && chunk.target_offset < last {
            return Err(NtStatus::NOT_SUPPORTED.into());
        }
        let now = self.time();
        match self.fs.clone_range(from, chunk.source_offset, to, chunk.target_offset, chunk.len_bytes, now) {
            Ok(done) if done < chunk.len_bytes => {
                self.before_write(target);
                chunk.source_offset += done;
                chunk.target_offset += done;
                chunk.len_bytes -= done;
                Err(Halt::Yield)
            }
            Ok(_) => {
                self.before_write(target);
                Ok(Outcome::Reply(Reply::Done))
            }
            // Blocks that cannot be shared are copied.
            Err(FsError::Invalid(_)) => {
                let copy = Copy {
                    operation,
                    source,
                    target,
                    source_stream: from,
                    target_stream: to,
                    chunks: vec![*chunk],
                    done: 0,
                    within: 0,
                    bytes: 0,
                    piece: 0,
                    plain: true,
                };
                self.copy_next(Box::new(copy));
                Ok(Outcome::Later)
            }
            Err(error) => Err(error.into()),
        }
    }
}
