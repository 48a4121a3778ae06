//! Copies within the server: chunk by chunk through memory, or by sharing blocks (MS-FSA 2.1.5.10.5; MS-SMB2 3.3.5.15.6).

use super::io::{check_end, check_read, check_write};
use super::parts::Parts;
use super::suspend::{Outcome, Suspend, status_of};
use super::transfers::{Copy, InFlight};
use super::turn::STEPS_PER_TURN;
use crate::backend::{ByteRange, CopyChunk, OpenId, OperationId, Reply};
use crate::fs::{CloneRange, CloneRefusal, FsError, StreamId};
use crate::security::rights;
use std::task::Poll;
use sys::Payload;
use types::NtStatus;

/// Most bytes in memory for one copy.
const PIECE_BYTES: u64 = 1 << 20;

/// Copies chunks. Their number and sizes are the server's to limit.
pub fn copy_chunks(
    parts: &mut Parts<'_>,
    operation: OperationId,
    source: OpenId,
    target: OpenId,
    chunks: Vec<CopyChunk>,
) -> Result<Outcome, Suspend> {
    let (source_stream, target_stream) = check_copy(parts, source, target)?;
    let end = parts.fs.stream_information(source_stream)?.end_of_file;
    for chunk in &chunks {
        if chunk.source_offset.checked_add(chunk.len_bytes).is_none_or(|last| last > end) {
            return Err(NtStatus::INVALID_VIEW_SIZE.into());
        }
        let range = ByteRange { offset: chunk.source_offset, len_bytes: chunk.len_bytes };
        check_read(parts, source, range)?;
        check_write(parts, target, chunk.target_offset, chunk.len_bytes)?;
        check_end(parts, target_stream, chunk.target_offset.saturating_add(chunk.len_bytes))?;
    }
    let copy = of_chunks(operation, (source, source_stream), (target, target_stream), chunks);
    copy_next(parts, Box::new(copy));
    Ok(Outcome::Later)
}

/// Makes a copy of chunks, not begun.
fn of_chunks(
    operation: OperationId,
    (source, source_stream): (OpenId, StreamId),
    (target, target_stream): (OpenId, StreamId),
    chunks: Vec<CopyChunk>,
) -> Copy {
    Copy {
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
    }
}

/// Checks that both opens may still do their part. Returns their streams.
fn check_copy(
    parts: &mut Parts<'_>,
    source: OpenId,
    target: OpenId,
) -> Result<(StreamId, StreamId), NtStatus> {
    let from = parts.opens.open_for(source, 0)?;
    if from.access & (rights::READ_DATA | rights::EXECUTE) == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let (from_stream, from_directory) = (from.stream, from.directory);
    let to = parts.opens.open_for(target, 0)?;
    if to.access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 || to.share.read_only {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if from_directory || to.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    Ok((from_stream, to.stream))
}

fn copy_next(parts: &mut Parts<'_>, mut copy: Box<Copy>) {
    loop {
        let Some(chunk) = copy.chunks.get(copy.done).copied() else {
            let reply = if copy.plain {
                Reply::Done
            } else {
                Reply::Copied { chunks: copy.done as u32, bytes: copy.bytes }
            };
            return parts.agenda.events.done(copy.operation, Ok(reply));
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
        let token = parts.transfers.add(InFlight::CopyRead(copy));
        match parts.fs.read(token, stream, offset, len) {
            Poll::Pending => return,
            Poll::Ready(result) => {
                let Some(InFlight::CopyRead(back)) = parts.transfers.take(token) else { return };
                match copy_piece(parts, back, result) {
                    Some(back) => copy = back,
                    None => return,
                }
            }
        }
    }
}

/// Writes the bytes just read. Returns the copy if it can continue immediately.
fn copy_piece(parts: &mut Parts<'_>, copy: Box<Copy>, result: Result<Payload, FsError>) -> Option<Box<Copy>> {
    let data = match result {
        Ok(data) if data.len() as u64 == copy.piece => data,
        Ok(_) => {
            // The source was cut off meanwhile.
            parts.agenda.events.done(copy.operation, Err(NtStatus::INVALID_VIEW_SIZE));
            return None;
        }
        Err(error) => {
            parts.agenda.events.done(copy.operation, Err(status_of(&error)));
            return None;
        }
    };
    let chunk = copy.chunks.get(copy.done)?;
    let (stream, offset) = (copy.target_stream, chunk.target_offset + copy.within);
    // Either may have been closed or taken from its client since the copy began.
    if let Err(status) = check_copy(parts, copy.source, copy.target) {
        parts.agenda.events.done(copy.operation, Err(status));
        return None;
    }
    let durable = parts.before_write(copy.target);
    let token = parts.transfers.add(InFlight::CopyWrite(copy));
    match parts.fs.write(token, stream, offset, data, durable) {
        Poll::Pending => None,
        Poll::Ready(result) => {
            let Some(InFlight::CopyWrite(back)) = parts.transfers.take(token) else { return None };
            piece_written(parts, back, result)
        }
    }
}

fn piece_written(
    parts: &mut Parts<'_>,
    mut copy: Box<Copy>,
    result: Result<(), FsError>,
) -> Option<Box<Copy>> {
    if let Err(error) = result {
        parts.agenda.events.done(copy.operation, Err(status_of(&error)));
        return None;
    }
    copy.within += copy.piece;
    copy.bytes += copy.piece;
    Some(copy)
}

pub fn copy_read(parts: &mut Parts<'_>, copy: Box<Copy>, result: Result<Payload, FsError>) {
    if let Some(copy) = copy_piece(parts, copy, result) {
        copy_next(parts, copy);
    }
}

pub fn copy_written(parts: &mut Parts<'_>, copy: Box<Copy>, result: Result<(), FsError>) {
    if let Some(copy) = piece_written(parts, copy, result) {
        copy_next(parts, copy);
    }
}

/// How many bytes of a range can share their blocks; the others, less than a block, are copied.
///
/// # Errors
/// INVALID_PARAMETER for ranges that are not of whole blocks, as ReFS answers; NOT_SUPPORTED for a range
/// beyond the end of its file, and for two that overlap.
fn shared_bytes(
    parts: &mut Parts<'_>,
    from: StreamId,
    to: StreamId,
    chunk: &CopyChunk,
) -> Result<u64, Suspend> {
    let source_end = parts.fs.stream_information(from)?.end_of_file;
    let target_end = parts.fs.stream_information(to)?.end_of_file;
    let CopyChunk { source_offset, target_offset, len_bytes } = *chunk;
    let range = CloneRange { source_offset, target_offset, len_bytes };
    range.shared_bytes(source_end, target_end, from == to).map_err(|refusal| {
        Suspend::Status(match refusal {
            CloneRefusal::Unaligned => NtStatus::INVALID_PARAMETER,
            CloneRefusal::Outside | CloneRefusal::Overlaps => NtStatus::NOT_SUPPORTED,
        })
    })
}

/// Shares the blocks of a range with another file (MS-FSA 2.1.5.10.4). Updates `chunk` to the rest.
pub fn duplicate_extents(
    parts: &mut Parts<'_>,
    operation: OperationId,
    source: OpenId,
    target: OpenId,
    chunk: &mut CopyChunk,
) -> Result<Outcome, Suspend> {
    let (from, to) = check_copy(parts, source, target)?;
    let range = ByteRange { offset: chunk.source_offset, len_bytes: chunk.len_bytes };
    check_read(parts, source, range)?;
    check_write(parts, target, chunk.target_offset, chunk.len_bytes)?;
    let shared = shared_bytes(parts, from, to, chunk)?;
    if shared == 0 && chunk.len_bytes > 0 {
        let copy = of_chunks(operation, (source, from), (target, to), vec![*chunk]);
        copy_next(parts, Box::new(Copy { plain: true, ..copy }));
        return Ok(Outcome::Later);
    }
    let now = parts.time();
    let done = parts.fs.clone_range(from, chunk.source_offset, to, chunk.target_offset, shared, now)?;
    parts.before_write(target);
    if done < chunk.len_bytes {
        chunk.source_offset += done;
        chunk.target_offset += done;
        chunk.len_bytes -= done;
        // A transaction of this many pieces costs more than its steps say: one is enough for a turn.
        parts.agenda.turn.spend(STEPS_PER_TURN);
        return Err(Suspend::Yield);
    }
    Ok(Outcome::Reply(Reply::Done))
}
