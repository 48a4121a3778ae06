//! READ, WRITE, FLUSH: checked here, done by the file layer (MS-FSA 2.1.5.2, 2.1.5.3, 2.1.5.6).
//!
//! A read or a write finds its open, checks rights and locks, and calls the file layer. It allocates
//! nothing and touches no path.

use super::locks::Obstacle;
use super::open_record::FixedTimes;
use super::parts::Parts;
use super::quotas;
use super::reply_caching::cut_down;
use super::suspend::{Outcome, Suspend, status_of};
use super::tasks::Work;
use super::transfers::InFlight;
use crate::backend::{ByteRange, OpenId, Operation, OperationId, Reply};
use crate::fs::{AttributeChange, FsError, StreamId};
use crate::security::rights;
use std::task::Poll;
use sys::Payload;
use types::NtStatus;

/// A write at this offset goes to the end of the file (MS-FSA 2.1.5.3).
const TO_END: u64 = u64::MAX;
/// Offset of a write at the current position: SMB has none.
const AT_POSITION: u64 = u64::MAX - 1;

pub fn read(parts: &mut Parts<'_>, operation: OperationId, id: OpenId, range: ByteRange) {
    let stream = match check_read(parts, id, range) {
        Ok(stream) => stream,
        Err(status) => return parts.agenda.events.done(operation, Err(status)),
    };
    let len = u32::try_from(range.len_bytes).unwrap_or(u32::MAX);
    let entry = parts.transfers.vacant();
    match parts.fs.read(entry.key() as u64, stream, range.offset, len) {
        Poll::Pending => {
            entry.insert(InFlight::Read { operation, stream, len_bytes: range.len_bytes });
        }
        Poll::Ready(result) => finish_read(parts, operation, range.len_bytes, result),
    }
}

/// Finds the stream of an open that may read the range.
pub fn check_read(parts: &mut Parts<'_>, id: OpenId, range: ByteRange) -> Result<StreamId, NtStatus> {
    let open = parts.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
    if open.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if open.access & (rights::READ_DATA | rights::EXECUTE) == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if range.offset.checked_add(range.len_bytes).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let first = !open.used;
    open.used = true;
    let stream = open.stream;
    let fixed = open.fixed_times.contains(FixedTimes::ACCESSED);
    parts.locks.check_io(id, stream, range, false).map_err(|_| NtStatus::FILE_LOCK_CONFLICT)?;
    if first && !fixed {
        let accessed = Some(parts.time());
        parts.fs.touch(stream.file, &AttributeChange { accessed, ..AttributeChange::default() });
    }
    Ok(stream)
}

/// Answers a read.
pub fn finish_read(
    parts: &mut Parts<'_>,
    operation: OperationId,
    len_bytes: u64,
    result: Result<Payload, FsError>,
) {
    let result = match result {
        Ok(payload) if payload.is_empty() && len_bytes > 0 => Err(NtStatus::END_OF_FILE),
        Ok(payload) => Ok(Reply::Read(payload)),
        Err(error) => Err(status_of(&error)),
    };
    parts.agenda.events.done(operation, result);
}

/// Writes, or parks the write: for metadata, which only a write to the end of the file needs, or until
/// a disconnected client that wrote to the stream returns or is given up.
pub fn write_or_wait(
    parts: &mut Parts<'_>,
    operation: OperationId,
    id: OpenId,
    offset: u64,
    data: Payload,
    write_through: bool,
) {
    let Some((request, suspend)) = write(parts, operation, id, offset, data, write_through) else { return };
    match suspend {
        Suspend::Break(_) if parts.agenda.tasks.is_full() => {
            parts.agenda.events.done(operation, Err(NtStatus::INSUFFICIENT_RESOURCES));
        }
        Suspend::Break(file) => {
            let wait = parts.agenda.tasks.wait_for_caching(file);
            parts.agenda.park(operation, Some(Work::Request(request)), wait, false);
        }
        _ => parts.agenda.wait_for_storage(operation, request),
    }
}

/// Writes, or returns the write and why it has to wait.
fn write(
    parts: &mut Parts<'_>,
    operation: OperationId,
    id: OpenId,
    offset: u64,
    data: Payload,
    write_through: bool,
) -> Option<(Operation, Suspend)> {
    let len_bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let checked = check_write(parts, id, offset, u64::from(len_bytes)).and_then(|(stream, offset)| {
        check_end(parts, stream, offset + u64::from(len_bytes))?;
        Ok((stream, offset))
    });
    let (stream, offset) = match checked {
        Ok(found) => found,
        Err(Suspend::Status(status)) => {
            parts.agenda.events.done(operation, Err(status));
            return None;
        }
        Err(suspend) => {
            let write = Operation::Write { open: id, offset, data, write_through, unbuffered: false };
            return Some((write, suspend));
        }
    };
    if len_bytes == 0 {
        parts.agenda.events.done(operation, Ok(Reply::Written(0)));
        return None;
    }
    let durable = parts.before_write(id) || write_through;
    let entry = parts.transfers.vacant();
    match parts.fs.write(entry.key() as u64, stream, offset, data, durable) {
        Poll::Pending => {
            entry.insert(InFlight::Write { operation, stream, len_bytes });
        }
        Poll::Ready(result) => finish_write(parts, operation, len_bytes, result),
    }
    None
}

/// Finds the stream of an open that may write there, and where it will.
pub fn check_write(
    parts: &mut Parts<'_>,
    id: OpenId,
    offset: u64,
    len_bytes: u64,
) -> Result<(StreamId, u64), Suspend> {
    let open = parts.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
    if open.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST.into());
    }
    if open.access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 || open.share.read_only {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    open.used = true;
    let stream = open.stream;
    let append_only = open.access & rights::WRITE_DATA == 0;
    if stream.index != 0 {
        quotas::demand_stream(parts, id)?;
    }
    let offset = if offset == TO_END || append_only {
        let end = parts.fs.stream_information(stream)?.end_of_file;
        if offset < end {
            // MS-SMB2 3.3.5.13; NTFS would write at the end.
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        if offset == TO_END { end } else { offset }
    } else {
        offset
    };
    if offset == AT_POSITION || offset.checked_add(len_bytes).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    check_range(parts, id, stream, ByteRange { offset, len_bytes })?;
    Ok((stream, offset))
}

/// Checks that the volume could ever hold a stream that ends there without holes, or that it has holes.
#[inline]
pub fn check_end(parts: &mut Parts<'_>, stream: StreamId, end: u64) -> Result<(), Suspend> {
    if end <= parts.fs.capacity_bytes() || parts.fs.has_room_for(stream, end)? {
        return Ok(());
    }
    Err(NtStatus::DISK_FULL.into())
}

/// Checks that others let an open write a range of its stream.
fn check_range(parts: &Parts<'_>, id: OpenId, stream: StreamId, range: ByteRange) -> Result<(), Suspend> {
    let mut checked = parts.locks.check_io(id, stream, range, true);
    if checked == Err(Obstacle::WriterAway) && !is_writer_elsewhere(parts, id, stream) {
        checked = parts.locks.check_locked(id, stream, range);
    }
    match checked {
        Ok(()) => Ok(()),
        Err(Obstacle::Locked) => Err(NtStatus::FILE_LOCK_CONFLICT.into()),
        Err(Obstacle::WriterAway) => Err(Suspend::Break(stream.file)),
    }
}

/// Whether another client than the open's is disconnected and may have written. A client knows the
/// order of its own writes.
fn is_writer_elsewhere(parts: &Parts<'_>, id: OpenId, stream: StreamId) -> bool {
    let client_of = |id| parts.opens.get(id).map(|open| open.client);
    parts.locks.writers_away(stream).any(|away| client_of(away) != client_of(id))
}

/// Checks that no disconnected client may repeat a write to the stream of an open.
pub fn check_writers(parts: &Parts<'_>, id: OpenId, stream: StreamId) -> Result<(), Suspend> {
    check_range(parts, id, stream, ByteRange { offset: 0, len_bytes: 0 })
}

/// Answers a write.
pub fn finish_write(
    parts: &mut Parts<'_>,
    operation: OperationId,
    len_bytes: u32,
    result: Result<(), FsError>,
) {
    let result = match result {
        Ok(()) => Ok(Reply::Written(len_bytes)),
        Err(FsError::TooLarge) => Err(NtStatus::INVALID_PARAMETER),
        Err(error) => Err(status_of(&error)),
    };
    parts.agenda.events.done(operation, result);
}

pub fn flush(parts: &mut Parts<'_>, operation: OperationId, id: OpenId) -> Result<Outcome, Suspend> {
    let open = parts.opens.open_for(id, 0)?;
    let writes = rights::WRITE_DATA | rights::APPEND_DATA;
    if open.access & writes == 0 {
        return Err(NtStatus::ACCESS_DENIED.into());
    }
    // Bytes that are written from here on are for the next flush.
    open.dirty = false;
    open.flushes += 1;
    let stream = open.stream;
    parts.apply_write_time(id);
    let token = parts.transfers.add(InFlight::Flush { operation, stream, open: id });
    match parts.fs.flush(token, stream.file) {
        Poll::Pending => Ok(Outcome::Later),
        Poll::Ready(result) => {
            parts.transfers.take(token);
            after_flush(parts, id, result.is_ok());
            result?;
            Ok(Outcome::Reply(Reply::Done))
        }
    }
}

fn after_flush(parts: &mut Parts<'_>, id: OpenId, succeeded: bool) {
    if let Some(open) = parts.opens.get_mut(id) {
        open.flushes -= 1;
        open.dirty |= !succeeded;
    }
}

/// Takes the result of a flush, and answers the operations that waited for it.
pub fn flushed(parts: &mut Parts<'_>, token: u64, result: Result<(), FsError>) {
    let (operation, reply) = match parts.transfers.take(token) {
        Some(InFlight::Flush { operation, open, .. }) => {
            after_flush(parts, open, result.is_ok());
            (operation, Reply::Done)
        }
        Some(InFlight::Commit { operation, mut reply, shown }) => {
            cut_down(parts, &mut reply, shown);
            (operation, *reply)
        }
        Some(InFlight::Close { operation, information, .. }) => (operation, Reply::Closed(information)),
        _ => return,
    };
    let result = result.map(|()| reply).map_err(|error| status_of(&error));
    parts.agenda.events.done(operation, result);
}
