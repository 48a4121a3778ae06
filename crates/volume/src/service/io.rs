//! READ, WRITE, FLUSH: checked here, carried out below (MS-FSA 2.1.5.2, 2.1.5.3, 2.1.5.6).
//!
//! The way of a read or a write: find the open, check rights and locks, hand down. It allocates nothing of its own and touches no path.

use super::copy::Copy;
use super::opens::FixedTimes;
use super::tasks::Outcome;
use super::{Halt, Service, Timer, status_of};
use crate::backend::{ByteRange, FileInformation, OpenId, Operation, OperationId, Reply};
use crate::fs::{AttributeChange, FileId, FsError, StreamId};
use crate::security::rights;
use std::task::Poll;
use std::time::Duration;
use sys::Payload;
use types::NtStatus;

/// A write at this offset goes to the end of the file (MS-FSA 2.1.5.3).
const TO_END: u64 = u64::MAX;
/// A write at this offset goes where the last one ended: over the wire there is no such place.
const AT_POSITION: u64 = u64::MAX - 1;

/// How long after the first write of an open the file's times show it, as in NTFS.
const WRITE_TIME_DELAY: Duration = Duration::from_secs(2);

/// What the file layer is doing for an operation.
#[derive(Debug)]
pub enum InFlight {
    Read {
        operation: OperationId,
        stream: StreamId,
        len_bytes: u64,
    },
    Write {
        operation: OperationId,
        stream: StreamId,
        len_bytes: u32,
    },
    Flush {
        operation: OperationId,
        stream: StreamId,
        open: OpenId,
    },
    Close {
        operation: OperationId,
        stream: StreamId,
        information: Option<FileInformation>,
    },
    /// Metadata is becoming durable before this answer.
    Commit {
        operation: OperationId,
        reply: Box<Reply>,
    },
    CopyRead(Box<Copy>),
    CopyWrite(Box<Copy>),
}

impl InFlight {
    /// The stream that is worked on: it must not go away.
    pub fn stream(&self) -> Option<StreamId> {
        match self {
            Self::Read { stream, .. }
            | Self::Write { stream, .. }
            | Self::Flush { stream, .. }
            | Self::Close { stream, .. } => Some(*stream),
            Self::Commit { .. } => None,
            Self::CopyRead(copy) => Some(copy.source_stream),
            Self::CopyWrite(copy) => Some(copy.target_stream),
        }
    }
}

impl Service {
    pub(super) fn read(&mut self, operation: OperationId, id: OpenId, range: ByteRange) {
        let stream = match self.check_read(id, range) {
            Ok(stream) => stream,
            Err(status) => return self.done(operation, Err(status)),
        };
        let len = u32::try_from(range.len_bytes).unwrap_or(u32::MAX);
        let entry = self.in_flight.vacant_entry();
        match self.fs.read(entry.key() as u64, stream, range.offset, len) {
            Poll::Pending => {
                entry.insert(InFlight::Read { operation, stream, len_bytes: range.len_bytes });
            }
            Poll::Ready(result) => self.finish_read(operation, range.len_bytes, result),
        }
    }

    /// The stream of an open that may read the range.
    pub(super) fn check_read(&mut self, id: OpenId, range: ByteRange) -> Result<StreamId, NtStatus> {
        let open = self.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
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
        self.check_locks(id, stream, range, false)?;
        if first && !fixed {
            let accessed = Some(self.time());
            self.fs.touch(stream.file, &AttributeChange { accessed, ..AttributeChange::default() });
        }
        Ok(stream)
    }

    fn check_locks(
        &self,
        id: OpenId,
        stream: StreamId,
        range: ByteRange,
        write: bool,
    ) -> Result<(), NtStatus> {
        match self.files.get(&stream.file) {
            Some(node) if !node.streams.is_empty() => match node.streams.get(&stream.index) {
                Some(stream) => stream.locks.check_io(id, range, write),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn finish_read(&mut self, operation: OperationId, len_bytes: u64, result: Result<Payload, FsError>) {
        let result = match result {
            Ok(payload) if payload.is_empty() && len_bytes > 0 => Err(NtStatus::END_OF_FILE),
            Ok(payload) => Ok(Reply::Read(payload)),
            Err(error) => Err(status_of(&error)),
        };
        self.done(operation, result);
    }

    pub(super) fn read_done(&mut self, token: u64, result: Result<Payload, FsError>) {
        match self.in_flight.try_remove(token as usize) {
            Some(InFlight::Read { operation, len_bytes, .. }) => {
                self.finish_read(operation, len_bytes, result);
            }
            Some(InFlight::CopyRead(copy)) => self.copy_read(copy, result),
            _ => {}
        }
    }

    pub(super) fn write(
        &mut self,
        operation: OperationId,
        id: OpenId,
        offset: u64,
        data: Payload,
        write_through: bool,
    ) {
        let len_bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let (stream, offset) = match self.check_write(id, offset, u64::from(len_bytes)) {
            Ok(found) => found,
            Err(Halt::Status(status)) => return self.done(operation, Err(status)),
            // Only a write to the end looks at metadata, which may have to come into memory first.
            Err(_) => {
                let request = Operation::Write { open: id, offset, data, write_through, unbuffered: false };
                return self.wait_for_storage(operation, request);
            }
        };
        if len_bytes == 0 {
            return self.done(operation, Ok(Reply::Written(0)));
        }
        let durable = self.before_write(id) || write_through;
        let entry = self.in_flight.vacant_entry();
        match self.fs.write(entry.key() as u64, stream, offset, data, durable) {
            Poll::Pending => {
                entry.insert(InFlight::Write { operation, stream, len_bytes });
            }
            Poll::Ready(result) => self.finish_write(operation, len_bytes, result),
        }
    }

    /// The stream of an open that may write there, and where it will.
    pub(super) fn check_write(
        &mut self,
        id: OpenId,
        offset: u64,
        len_bytes: u64,
    ) -> Result<(StreamId, u64), Halt> {
        let open = self.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
        if open.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST.into());
        }
        if open.access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 || open.share.read_only {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        open.used = true;
        let stream = open.stream;
        let append_only = open.access & rights::WRITE_DATA == 0;
        let offset = if offset == TO_END || append_only {
            self.fs.stream_information(stream)?.end_of_file
        } else {
            offset
        };
        if offset == AT_POSITION || offset.checked_add(len_bytes).is_none_or(|end| end > i64::MAX as u64) {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        self.check_locks(id, stream, ByteRange { offset, len_bytes }, true)?;
        Ok((stream, offset))
    }

    /// What a write changes beside the data: archive attribute, others' caches, and times a little later. Whether it has to be durable at once.
    pub(super) fn before_write(&mut self, id: OpenId) -> bool {
        self.mark_archive(id);
        self.contend(id);
        let now = self.now;
        let Some(open) = self.opens.get_mut(id) else { return false };
        open.dirty = true;
        if !open.fixed_times.contains(FixedTimes::WRITTEN | FixedTimes::CHANGED) {
            open.write_time.owed = true;
            if !open.write_time.started {
                open.write_time.started = true;
                let due = now.after(WRITE_TIME_DELAY);
                open.write_time.due = Some(due);
                self.timers.insert((due, Timer::WriteTime(id)));
            }
        }
        open.durable_writes() || open.options & super::create::options::WRITE_THROUGH != 0
    }

    /// Writes of an open that the file's times do not show yet become visible in them.
    pub(super) fn settle_write_time(&mut self, id: OpenId) {
        let now = self.time();
        let Some(open) = self.opens.get_mut(id) else { return };
        if let Some(due) = open.write_time.due.take() {
            self.timers.remove(&(due, Timer::WriteTime(id)));
        }
        if !std::mem::take(&mut open.write_time.owed) {
            return;
        }
        let set = |bit| (!open.fixed_times.contains(bit)).then_some(now);
        let change = AttributeChange {
            written: set(FixedTimes::WRITTEN),
            changed: set(FixedTimes::CHANGED),
            ..AttributeChange::default()
        };
        self.fs.touch(open.stream.file, &change);
    }

    /// Somebody has said when the file was written: writes before that no longer count.
    pub(super) fn forget_write_times(&mut self, file: FileId) {
        let Some(node) = self.files.get(&file) else { return };
        for id in node.opens.iter() {
            if let Some(open) = self.opens.get_mut(id) {
                open.write_time.owed = false;
            }
        }
    }

    fn finish_write(&mut self, operation: OperationId, len_bytes: u32, result: Result<(), FsError>) {
        let result = match result {
            Ok(()) => Ok(Reply::Written(len_bytes)),
            Err(FsError::TooLarge) => Err(NtStatus::INVALID_PARAMETER),
            Err(error) => Err(status_of(&error)),
        };
        self.done(operation, result);
    }

    pub(super) fn written(&mut self, token: u64, result: Result<(), FsError>) {
        match self.in_flight.try_remove(token as usize) {
            Some(InFlight::Write { operation, len_bytes, .. }) => {
                self.finish_write(operation, len_bytes, result);
            }
            Some(InFlight::CopyWrite(copy)) => self.copy_written(copy, result),
            _ => {}
        }
    }

    pub(super) fn flush(&mut self, operation: OperationId, id: OpenId) -> Result<Outcome, Halt> {
        let open = self.open_for(id, 0)?;
        let writes = rights::WRITE_DATA | rights::APPEND_DATA;
        if open.access & writes == 0 {
            return Err(NtStatus::ACCESS_DENIED.into());
        }
        // What is written from here on is for the next flush.
        open.dirty = false;
        open.flushes += 1;
        let stream = open.stream;
        self.settle_write_time(id);
        let token = self.in_flight.insert(InFlight::Flush { operation, stream, open: id });
        match self.fs.flush(token as u64, stream.file) {
            Poll::Pending => Ok(Outcome::Later),
            Poll::Ready(result) => {
                self.in_flight.remove(token);
                self.after_flush(id, result.is_ok());
                result?;
                Ok(Outcome::Reply(Reply::Done))
            }
        }
    }

    fn after_flush(&mut self, id: OpenId, succeeded: bool) {
        if let Some(open) = self.opens.get_mut(id) {
            open.flushes -= 1;
            open.dirty |= !succeeded;
        }
    }

    /// Makes all data and metadata durable, before the volume is let go of; answers `Done` to `operation`.
    pub fn make_durable(&mut self, operation: OperationId) {
        let reply = Box::new(Reply::Done);
        let token = self.in_flight.insert(InFlight::Commit { operation, reply }) as u64;
        if let Poll::Ready(result) = self.fs.flush_all(token) {
            self.flushed(token, result);
        }
    }

    pub(super) fn flushed(&mut self, token: u64, result: Result<(), FsError>) {
        match self.in_flight.try_remove(token as usize) {
            Some(InFlight::Flush { operation, open, .. }) => {
                self.after_flush(open, result.is_ok());
                let result = result.map(|()| Reply::Done).map_err(|error| status_of(&error));
                self.done(operation, result);
            }
            Some(InFlight::Commit { operation, reply }) => {
                let result = result.map(|()| *reply).map_err(|error| status_of(&error));
                self.done(operation, result);
            }
            Some(InFlight::Close { operation, information, .. }) => {
                let result = result.map(|()| Reply::Closed(information)).map_err(|error| status_of(&error));
                self.done(operation, result);
            }
            _ => {}
        }
    }
}
