//! FSCTLs that are the file layer's matter: sparse files, zeroing, ranges, reparse points, object ids (MS-FSA 2.1.5.10).

use super::notify;
use super::opens::FixedTimes;
use super::{Halt, Service};
use crate::backend::{ByteRange, OpenId, Reply};
use crate::fs::StreamId;
use crate::security::rights;
use types::NtStatus;

/// Most ranges of one answer.
const RANGES_MAX: usize = 16_384;
/// Set where Microsoft has assigned the tag (MS-FSCC 2.1.2.1).
const TAG_MICROSOFT: u32 = 0x8000_0000;
const MOUNT_POINT_TAG: u32 = 0xA000_0003;

impl Service {
    /// The stream of an open for one of several rights.
    fn stream_for_any(&mut self, id: OpenId, access: u32) -> Result<StreamId, NtStatus> {
        let open = self.open_for(id, 0)?;
        if access != 0 && open.access & access == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(open.stream)
    }

    pub(super) fn set_sparse(&mut self, id: OpenId, sparse: bool) -> Result<Reply, Halt> {
        let access = rights::WRITE_DATA | rights::WRITE_ATTRIBUTES | rights::APPEND_DATA;
        if self.open_for(id, 0)?.directory {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        let stream = self.stream_for_any(id, access)?;
        let now = self.time();
        self.fs.set_sparse(stream.file, sparse, now)?;
        self.tell_modified(id, notify::ATTRIBUTES);
        Ok(Reply::Done)
    }

    pub(super) fn zero_range(&mut self, id: OpenId, range: ByteRange) -> Result<Reply, Halt> {
        if self.open_for(id, rights::WRITE_DATA)?.directory {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        let (stream, _) = self.check_write(id, range.offset, range.len_bytes)?;
        let now = self.time();
        let before = self.fs.attributes(stream.file)?;
        self.fs.zero_range(stream, range.offset, range.len_bytes, now)?;
        self.mark_archive(id);
        self.contend(id);
        if let Some(open) = self.opens.get_mut(id) {
            open.dirty = true;
            if open.fixed_times.contains(FixedTimes::WRITTEN) {
                let change = crate::fs::AttributeChange {
                    written: Some(before.written),
                    ..crate::fs::AttributeChange::default()
                };
                self.fs.touch(stream.file, &change);
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn query_allocated_ranges(&mut self, id: OpenId, range: ByteRange) -> Result<Reply, Halt> {
        let open = self.open_for(id, rights::READ_DATA)?;
        if open.directory || range.offset.checked_add(range.len_bytes).is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        let stream = open.stream;
        let (found, more) = self.fs.allocated_ranges(stream, range.offset, range.len_bytes, RANGES_MAX)?;
        let ranges = found.into_iter().map(|(offset, len_bytes)| ByteRange { offset, len_bytes }).collect();
        Ok(Reply::Ranges { ranges, more })
    }

    /// Trimmed bytes have no defined content: whole blocks are given back where the file is sparse.
    /// Takes the ranges that are done out of `ranges`.
    pub(super) fn trim(&mut self, id: OpenId, ranges: &mut Vec<ByteRange>) -> Result<Reply, Halt> {
        if self.open_for(id, rights::WRITE_DATA)?.directory {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        while let Some(range) = ranges.last() {
            if self.turn.is_spent() {
                return Err(Halt::Yield);
            }
            let (stream, _) = self.check_write(id, range.offset, range.len_bytes)?;
            let now = self.time();
            self.fs.zero_range(stream, range.offset, range.len_bytes, now)?;
            ranges.pop();
            self.turn.spend_metadata(self.fs.take_steps());
        }
        self.contend(id);
        Ok(Reply::Done)
    }

    pub(super) fn query_reparse_point(&mut self, id: OpenId) -> Result<Reply, Halt> {
        let file = self.open_for(id, 0)?.stream.file;
        match self.fs.reparse_data(file)? {
            Some(data) => Ok(Reply::ReparsePoint(data)),
            None => Err(NtStatus::NOT_A_REPARSE_POINT.into()),
        }
    }

    /// `data`: REPARSE_DATA_BUFFER or REPARSE_GUID_DATA_BUFFER (MS-FSCC 2.1.2.2, 2.1.2.3), kept whole.
    pub(super) fn set_reparse_point(&mut self, id: OpenId, data: &[u8]) -> Result<Reply, Halt> {
        let stream = self.stream_for_any(id, rights::WRITE_DATA | rights::WRITE_ATTRIBUTES)?;
        let directory = self.opens.get(id).is_some_and(|open| open.directory);
        let invalid = NtStatus::IO_REPARSE_DATA_INVALID;
        let tag = data.first_chunk::<4>().map(|tag| u32::from_le_bytes(*tag)).ok_or(invalid)?;
        let len = data.get(4..6).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])));
        let header = if tag & TAG_MICROSOFT != 0 { 8 } else { 24 };
        if len.ok_or(invalid)? + header != data.len() {
            return Err(invalid.into());
        }
        if tag <= 1 || tag == MOUNT_POINT_TAG && !directory {
            return Err(NtStatus::IO_REPARSE_TAG_INVALID.into());
        }
        let found = self.fs.attributes(stream.file)?;
        if found.reparse_tag != 0 && found.reparse_tag != tag {
            return Err(NtStatus::IO_REPARSE_TAG_MISMATCH.into());
        }
        if directory && !self.fs.is_empty_directory(stream.file)? {
            return Err(NtStatus::DIRECTORY_NOT_EMPTY.into());
        }
        let now = self.time();
        self.fs.set_reparse(stream.file, Some((tag, data)), now)?;
        self.tell_modified(id, notify::ATTRIBUTES);
        Ok(Reply::Done)
    }

    pub(super) fn delete_reparse_point(&mut self, id: OpenId, tag: u32) -> Result<Reply, Halt> {
        let stream = self.stream_for_any(id, rights::WRITE_DATA | rights::WRITE_ATTRIBUTES)?;
        let found = self.fs.attributes(stream.file)?;
        if found.reparse_tag == 0 {
            return Err(NtStatus::NOT_A_REPARSE_POINT.into());
        }
        if found.reparse_tag != tag {
            return Err(NtStatus::IO_REPARSE_TAG_MISMATCH.into());
        }
        let now = self.time();
        self.fs.set_reparse(stream.file, None, now)?;
        self.tell_modified(id, notify::ATTRIBUTES);
        Ok(Reply::Done)
    }

    /// `make`: one is to be made where there is none, if that is granted.
    pub(super) fn object_id(
        &mut self,
        id: OpenId,
        make: Option<Result<(), NtStatus>>,
    ) -> Result<Reply, Halt> {
        let file = self.open_for(id, 0)?.stream.file;
        if let Some(found) = self.fs.object_id(file)? {
            return Ok(Reply::ObjectId(found));
        }
        make.unwrap_or(Err(NtStatus::OBJECTID_NOT_FOUND))?;
        // Volume and file make it unique; file identifiers are never used again.
        let mut made = self.fs.volume().id;
        for (byte, of_file) in made.iter_mut().zip(file.0.to_le_bytes()) {
            *byte ^= of_file;
        }
        self.fs.set_object_id(file, Some(made))?;
        Ok(Reply::ObjectId(made))
    }

    /// Every file has checksums here, always: there is nothing to switch.
    pub(super) fn set_integrity(&mut self, id: OpenId) -> Result<Reply, Halt> {
        self.stream_for_any(id, rights::WRITE_DATA | rights::WRITE_ATTRIBUTES)?;
        Ok(Reply::Done)
    }
}
