//! FSCTLs that are the file layer's matter: sparse files, zeroing, ranges, reparse points, object ids (MS-FSA 2.1.5.10).

use super::io::check_write;
use super::notify;
use super::open_record::FixedTimes;
use super::opens::Opens;
use super::parts::Parts;
use super::suspend::Suspend;
use crate::backend::{ByteRange, OpenId, Reply};
use crate::fs::{AttributeChange, StreamId};
use crate::security::rights;
use types::NtStatus;

/// Most ranges of one answer.
const RANGES_MAX: usize = 16_384;
/// Set if Microsoft has assigned the tag (MS-FSCC 2.1.2.1).
const TAG_MICROSOFT: u32 = 0x8000_0000;
const MOUNT_POINT_TAG: u32 = 0xA000_0003;

/// Finds the stream of an open that has one of these rights.
fn stream_for_any(opens: &mut Opens, id: OpenId, access: u32) -> Result<StreamId, NtStatus> {
    let open = opens.open_for(id, 0)?;
    if access != 0 && open.access & access == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(open.stream)
}

pub fn set_sparse(parts: &mut Parts<'_>, id: OpenId, sparse: bool) -> Result<Reply, Suspend> {
    let access = rights::WRITE_DATA | rights::WRITE_ATTRIBUTES | rights::APPEND_DATA;
    if parts.opens.open_for(id, 0)?.directory {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let stream = stream_for_any(parts.opens, id, access)?;
    let now = parts.time();
    parts.fs.set_sparse(stream.file, sparse, now)?;
    parts.tell_modified(id, notify::ATTRIBUTES);
    Ok(Reply::Done)
}

pub fn zero_range(parts: &mut Parts<'_>, id: OpenId, range: ByteRange) -> Result<Reply, Suspend> {
    if parts.opens.open_for(id, rights::WRITE_DATA)?.directory {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let (stream, _) = check_write(parts, id, range.offset, range.len_bytes)?;
    let now = parts.time();
    let before = parts.fs.attributes(stream.file)?;
    parts.fs.zero_range(stream, range.offset, range.len_bytes, now)?;
    parts.opens.mark_archive(id, parts.fs);
    parts.contend(id);
    if let Some(open) = parts.opens.get_mut(id) {
        open.dirty = true;
        if open.fixed_times.contains(FixedTimes::WRITTEN) {
            let change = AttributeChange { written: Some(before.written), ..AttributeChange::default() };
            parts.fs.touch(stream.file, &change);
        }
    }
    Ok(Reply::Done)
}

pub fn query_allocated_ranges(parts: &mut Parts<'_>, id: OpenId, range: ByteRange) -> Result<Reply, Suspend> {
    let open = parts.opens.open_for(id, rights::READ_DATA)?;
    if open.directory || range.offset.checked_add(range.len_bytes).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let stream = open.stream;
    let (found, more) = parts.fs.allocated_ranges(stream, range.offset, range.len_bytes, RANGES_MAX)?;
    let ranges = found.into_iter().map(|(offset, len_bytes)| ByteRange { offset, len_bytes }).collect();
    Ok(Reply::Ranges { ranges, more })
}

/// Frees the whole blocks of ranges, whose bytes then have no defined content, if the file is sparse.
/// Removes finished ranges from `ranges`.
pub fn trim(parts: &mut Parts<'_>, id: OpenId, ranges: &mut Vec<ByteRange>) -> Result<Reply, Suspend> {
    if parts.opens.open_for(id, rights::WRITE_DATA)?.directory {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    while let Some(range) = ranges.last() {
        if parts.agenda.turn.is_spent() {
            return Err(Suspend::Yield);
        }
        let (stream, _) = check_write(parts, id, range.offset, range.len_bytes)?;
        let now = parts.time();
        parts.fs.zero_range(stream, range.offset, range.len_bytes, now)?;
        ranges.pop();
        parts.spend_metadata();
    }
    parts.contend(id);
    Ok(Reply::Done)
}

pub fn query_reparse_point(parts: &mut Parts<'_>, id: OpenId) -> Result<Reply, Suspend> {
    let file = parts.opens.open_for(id, 0)?.stream.file;
    match parts.fs.reparse_data(file)? {
        Some(data) => Ok(Reply::ReparsePoint(data)),
        None => Err(NtStatus::NOT_A_REPARSE_POINT.into()),
    }
}

/// Keeps `data` whole: REPARSE_DATA_BUFFER or REPARSE_GUID_DATA_BUFFER (MS-FSCC 2.1.2.2, 2.1.2.3).
pub fn set_reparse_point(parts: &mut Parts<'_>, id: OpenId, data: &[u8]) -> Result<Reply, Suspend> {
    let stream = stream_for_any(parts.opens, id, rights::WRITE_DATA | rights::WRITE_ATTRIBUTES)?;
    let directory = parts.opens.get(id).is_some_and(|open| open.directory);
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
    let found = parts.fs.attributes(stream.file)?;
    if found.reparse_tag != 0 && found.reparse_tag != tag {
        return Err(NtStatus::IO_REPARSE_TAG_MISMATCH.into());
    }
    if directory && !parts.fs.is_empty_directory(stream.file)? {
        return Err(NtStatus::DIRECTORY_NOT_EMPTY.into());
    }
    let now = parts.time();
    parts.fs.set_reparse(stream.file, Some((tag, data)), now)?;
    parts.tell_modified(id, notify::ATTRIBUTES);
    Ok(Reply::Done)
}

pub fn delete_reparse_point(parts: &mut Parts<'_>, id: OpenId, tag: u32) -> Result<Reply, Suspend> {
    let stream = stream_for_any(parts.opens, id, rights::WRITE_DATA | rights::WRITE_ATTRIBUTES)?;
    let found = parts.fs.attributes(stream.file)?;
    if found.reparse_tag == 0 {
        return Err(NtStatus::NOT_A_REPARSE_POINT.into());
    }
    if found.reparse_tag != tag {
        return Err(NtStatus::IO_REPARSE_TAG_MISMATCH.into());
    }
    let now = parts.time();
    parts.fs.set_reparse(stream.file, None, now)?;
    parts.tell_modified(id, notify::ATTRIBUTES);
    Ok(Reply::Done)
}

/// Answers the object id. If there is none, `make` says whether to make one, and whether that is
/// granted.
pub fn object_id(
    parts: &mut Parts<'_>,
    id: OpenId,
    make: Option<Result<(), NtStatus>>,
) -> Result<Reply, Suspend> {
    let file = parts.opens.open_for(id, 0)?.stream.file;
    if let Some(found) = parts.fs.object_id(file)? {
        return Ok(Reply::ObjectId(found));
    }
    make.unwrap_or(Err(NtStatus::OBJECTID_NOT_FOUND))?;
    // Volume and file make it unique; file identifiers are never used again.
    let mut made = parts.fs.volume().id;
    for (byte, of_file) in made.iter_mut().zip(file.0.to_le_bytes()) {
        *byte ^= of_file;
    }
    parts.fs.set_object_id(file, Some(made))?;
    Ok(Reply::ObjectId(made))
}

/// Switches nothing: every file has checksums here, always.
pub fn set_integrity(parts: &mut Parts<'_>, id: OpenId) -> Result<Reply, Suspend> {
    stream_for_any(parts.opens, id, rights::WRITE_DATA | rights::WRITE_ATTRIBUTES)?;
    Ok(Reply::Done)
}
