//! Changes of a file's properties (MS-FSA 2.1.5.15).

use super::file_opens::Doomed;
use super::io;
use super::notify;
use super::open::Open;
use super::open_record::FixedTimes;
use super::opens::Opens;
use super::parts::Parts;
use super::quotas;
use super::rename::{Linking, Renaming};
use super::suspend::{Suspend, ea_status};
use crate::backend::{OpenId, Reply, SetInformation, SetTime};
use crate::fs::{AttributeChange, FileSystem, FsError};
use crate::security::rights;
use types::{FileTime, NtStatus, attribute};

/// FileDispositionInformationEx flags (MS-FSCC 2.4.11.2).
const DISPOSITION_DELETE: u32 = 1;
const DISPOSITION_ON_CLOSE: u32 = 8;
const DISPOSITION_IGNORE_READONLY: u32 = 0x10;

pub fn set_information(parts: &mut Parts<'_>, id: OpenId, set: &SetInformation) -> Result<Reply, Suspend> {
    parts.opens.open_for(id, 0)?;
    match set {
        SetInformation::Basic { created, accessed, written, changed, attributes } => {
            set_basic(parts, id, [*created, *accessed, *written, *changed], *attributes)?;
        }
        SetInformation::EndOfFile(bytes) => set_end_of_file(parts, id, *bytes)?,
        SetInformation::Allocation(bytes) => set_allocation(parts, id, *bytes)?,
        SetInformation::ValidDataLength(bytes) => set_valid_data_length(parts, id, *bytes)?,
        SetInformation::Disposition { flags } => set_disposition(parts, id, *flags)?,
        SetInformation::Rename { target, replace, .. } => Renaming::new(id, target, *replace).run(parts)?,
        SetInformation::Link { target, replace } => Linking::new(id, target, *replace).run(parts)?,
        SetInformation::ExtendedAttributes(set) => {
            let file = parts.opens.open_for(id, rights::WRITE_EA)?.stream.file;
            let now = parts.time();
            parts.fs.set_extended_attributes(file, set, now).map_err(ea_status)?;
            parts.tell_modified(id, notify::EA);
        }
    }
    parts.mark_dirty(id);
    Ok(Reply::Done)
}

const fn to(time: SetTime) -> Option<FileTime> {
    match time {
        SetTime::To(time) => Some(time),
        SetTime::Keep | SetTime::Freeze | SetTime::Thaw => None,
    }
}

/// Returns the times that an open does not change as a side effect any more, after a client has set `times`.
fn fixed_by([_, accessed, written, changed]: [SetTime; 4], mut fixed: FixedTimes) -> FixedTimes {
    for (time, bit) in
        [(accessed, FixedTimes::ACCESSED), (written, FixedTimes::WRITTEN), (changed, FixedTimes::CHANGED)]
    {
        match time {
            SetTime::Keep => {}
            SetTime::Freeze | SetTime::To(_) => fixed |= bit,
            SetTime::Thaw => fixed -= bit,
        }
    }
    fixed
}

fn set_basic(
    parts: &mut Parts<'_>,
    id: OpenId,
    times: [SetTime; 4],
    attributes: Option<u32>,
) -> Result<(), Suspend> {
    let open = parts.opens.open_for(id, rights::WRITE_ATTRIBUTES)?;
    let (file, directory) = (open.stream.file, open.directory);
    if times.iter().any(|time| matches!(time, SetTime::To(time) if time.0 > i64::MAX as u64)) {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let attributes = attributes.filter(|bits| *bits != 0);
    if let Some(bits) = attributes {
        let wrong = if directory { attribute::TEMPORARY } else { attribute::DIRECTORY };
        if bits & wrong != 0 {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
    }
    parts.apply_write_time(id);
    let now = parts.time();
    let [created, accessed, written, changed] = times;
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    let fixed = fixed_by(times, open.fixed_times);
    if open.persistent && fixed != open.fixed_times {
        parts.fs.ready_to_change_opens()?;
    }
    let sets_something = attributes.is_some() || times.iter().any(|time| to(*time).is_some());
    if sets_something {
        let implied = (!fixed.contains(FixedTimes::CHANGED)).then_some(now);
        let change = AttributeChange {
            created: to(created),
            accessed: to(accessed),
            written: to(written),
            changed: to(changed).or(implied),
            attributes: attributes.map(|bits| bits & !(attribute::NORMAL | attribute::DIRECTORY)),
        };
        parts.fs.set_attributes(file, &change)?;
    }
    if let Some(open) = parts.opens.get_mut(id)
        && std::mem::replace(&mut open.fixed_times, fixed) != fixed
        && open.persistent
    {
        parts.agenda.records.open(id);
    }
    if to(written).is_some() {
        parts.opens.forget_write_times(file);
    }
    let mut what = 0;
    for (set, filter) in [
        (attributes.is_some(), notify::ATTRIBUTES),
        (to(created).is_some(), notify::CREATION),
        (to(accessed).is_some(), notify::LAST_ACCESS),
        (to(written).is_some(), notify::LAST_WRITE),
    ] {
        what |= if set { filter } else { 0 };
    }
    if what != 0 {
        parts.tell_modified(id, what);
    }
    Ok(())
}

/// Finds an open with these rights on a stream of data.
fn data_open(opens: &mut Opens, id: OpenId, access: u32) -> Result<&mut Open, NtStatus> {
    let open = opens.open_for(id, access)?;
    if open.directory { Err(NtStatus::INVALID_PARAMETER) } else { Ok(open) }
}

fn set_end_of_file(parts: &mut Parts<'_>, id: OpenId, bytes: u64) -> Result<(), Suspend> {
    let stream = data_open(parts.opens, id, rights::WRITE_DATA)?.stream;
    quotas::demand_stream(parts, id)?;
    io::check_writers(parts, id, stream)?;
    if bytes > i64::MAX as u64 {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    // Deleted files may still hold the space.
    let may_come = bytes <= parts.fs.capacity_bytes() && !parts.reclaims.is_empty();
    if !may_come && !parts.fs.has_room_for(stream, bytes)? {
        return Err(NtStatus::DISK_FULL.into());
    }
    resize(parts, id, |fs, now| fs.set_end_of_file(stream, bytes, now))
}

fn set_allocation(parts: &mut Parts<'_>, id: OpenId, bytes: u64) -> Result<(), Suspend> {
    let stream = data_open(parts.opens, id, rights::WRITE_DATA)?.stream;
    quotas::demand_stream(parts, id)?;
    io::check_writers(parts, id, stream)?;
    if bytes > i64::MAX as u64 {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let end = parts.fs.stream_information(stream)?.end_of_file;
    if bytes >= end {
        let now = parts.time();
        parts.fs.set_allocation(stream, bytes, now)?;
        parts.contend(id);
        return Ok(());
    }
    resize(parts, id, |fs, now| fs.set_allocation(stream, bytes, now))
}

/// Changes a stream's size, and notifies watchers and holders of leases.
fn resize(
    parts: &mut Parts<'_>,
    id: OpenId,
    change: impl FnOnce(&mut FileSystem, FileTime) -> Result<(), FsError>,
) -> Result<(), Suspend> {
    parts.apply_write_time(id);
    let now = parts.time();
    let Some(open) = parts.opens.get(id) else { return Err(NtStatus::FILE_CLOSED.into()) };
    let (file, fixed) = (open.stream.file, open.fixed_times);
    let before = parts.fs.attributes(file)?;
    change(parts.fs, now)?;
    // The file layer sets both times; an open that fixed them restores the old ones.
    if !fixed.is_empty() {
        let keep = |bit, time| fixed.contains(bit).then_some(time);
        parts.fs.touch(
            file,
            &AttributeChange {
                written: keep(FixedTimes::WRITTEN, before.written),
                changed: keep(FixedTimes::CHANGED, before.changed),
                ..AttributeChange::default()
            },
        );
    }
    parts.opens.mark_archive(id, parts.fs);
    parts.mark_dirty(id);
    parts.contend(id);
    let what = if parts.opens.get(id).is_some_and(|open| open.stream.index != 0) {
        notify::STREAM_SIZE
    } else {
        notify::SIZE | notify::LAST_WRITE
    };
    parts.tell_modified(id, what);
    Ok(())
}

/// Checks a valid data length, which changes nothing here: all bytes of a file are valid (MS-FSA
/// 2.1.5.15.14).
fn set_valid_data_length(parts: &mut Parts<'_>, id: OpenId, bytes: u64) -> Result<(), Suspend> {
    let stream = data_open(parts.opens, id, rights::WRITE_DATA)?.stream;
    let end = parts.fs.stream_information(stream)?.end_of_file;
    if bytes > end { Err(NtStatus::INVALID_PARAMETER.into()) } else { Ok(()) }
}

fn set_disposition(parts: &mut Parts<'_>, id: OpenId, flags: u32) -> Result<(), Suspend> {
    let open = parts.opens.open_for(id, rights::DELETE)?;
    let (stream, directory) = (open.stream, open.directory);
    let keep = open.share.continuously_available;
    if keep {
        parts.fs.ready_to_keep_deletion()?;
    }
    let open = parts.opens.open_for(id, rights::DELETE)?;
    let link = open.own_link().cloned();
    if flags & DISPOSITION_DELETE != 0 && stream.index == 0 && link.is_none() {
        return Err(NtStatus::CANNOT_DELETE.into());
    }
    if flags & DISPOSITION_ON_CLOSE != 0 {
        open.delete_on_close = flags & DISPOSITION_DELETE != 0;
        if open.persistent {
            parts.agenda.records.open(id);
        }
        return Ok(());
    }
    let doomed = match (stream.index, link) {
        (0, Some(link)) => Doomed::Link(link),
        (0, None) => return Ok(()),
        (index, _) => Doomed::Stream(index),
    };
    if flags & DISPOSITION_DELETE == 0 {
        parts.forget_deletion(stream.file, doomed);
        return Ok(());
    }
    let found = parts.fs.attributes(stream.file)?;
    let protected = found.attributes & attribute::READONLY != 0 && flags & DISPOSITION_IGNORE_READONLY == 0;
    if protected {
        return Err(NtStatus::CANNOT_DELETE.into());
    }
    if stream.index == 0 {
        if directory && !parts.fs.is_empty_directory(stream.file)? {
            return Err(NtStatus::DIRECTORY_NOT_EMPTY.into());
        }
        parts.break_handles(id, stream.file)?;
    }
    parts.mark_deleting(stream.file, doomed, keep);
    Ok(())
}
