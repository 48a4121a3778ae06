//! Queries and changes of what is known of a file (MS-FSA 2.1.5.12, 2.1.5.15).

use super::notify;
use super::opens::{FixedTimes, Open};
use super::{Halt, Service};
use crate::backend::{
    FileInformation, OpenId, Reply, SetInformation, SetTime, StreamEntry, VolumeInformation,
};
use crate::fs::{AttributeChange, Attributes, FsError};
use crate::security::rights;
use types::{BLOCK_BYTES, FileTime, NtStatus, attribute};

/// FileDispositionInformationEx flags (MS-FSCC 2.4.11.2).
const DISPOSITION_DELETE: u32 = 1;
const DISPOSITION_ON_CLOSE: u32 = 8;
const DISPOSITION_IGNORE_READONLY: u32 = 0x10;

/// What the file layer knows, in the words of the boundary.
pub(super) fn file_information(found: &Attributes) -> FileInformation {
    let attributes = if found.attributes == 0 { attribute::NORMAL } else { found.attributes };
    FileInformation {
        file_id: found.file.0,
        created: found.created,
        accessed: found.accessed,
        written: found.written,
        changed: found.changed,
        attributes,
        end_of_file: found.end_of_file,
        allocation_bytes: found.allocation_bytes,
        link_count: found.link_count,
        delete_pending: false,
        directory: found.directory,
        reparse_tag: found.reparse_tag,
        extended_attribute_bytes: found.extended_attribute_bytes,
    }
}

/// What a client is told whose extended attributes cannot be set.
pub(super) fn ea_status(error: FsError) -> Halt {
    if error == FsError::TooLarge { NtStatus::EA_TOO_LARGE.into() } else { error.into() }
}

impl Service {
    /// An open, for an operation that needs these rights; it counts as used from here on.
    pub(super) fn open_for(&mut self, id: OpenId, access: u32) -> Result<&mut Open, NtStatus> {
        let open = self.opens.get_mut(id).ok_or(NtStatus::FILE_CLOSED)?;
        open.used = true;
        if open.access & access == access { Ok(open) } else { Err(NtStatus::ACCESS_DENIED) }
    }

    pub(super) fn query_information(&mut self, id: OpenId) -> Result<Reply, Halt> {
        self.open_for(id, 0)?;
        Ok(Reply::Information(Box::new(self.information(id)?)))
    }

    pub(super) fn query_streams(&mut self, id: OpenId) -> Result<Reply, Halt> {
        let file = self.open_for(id, 0)?.stream.file;
        let streams = self.fs.streams(file)?;
        let entry = |stream: crate::fs::StreamInformation| {
            let mut name = vec![u16::from(b':')];
            name.extend_from_slice(&stream.name);
            name.extend(":$DATA".encode_utf16());
            StreamEntry {
                name: name.into(),
                end_of_file: stream.end_of_file,
                allocation_bytes: stream.allocation_bytes,
            }
        };
        Ok(Reply::Streams(streams.into_iter().map(entry).collect()))
    }

    pub(super) fn query_extended_attributes(&mut self, id: OpenId) -> Result<Reply, Halt> {
        let file = self.open_for(id, rights::READ_EA)?.stream.file;
        Ok(Reply::ExtendedAttributes(self.fs.extended_attributes(file)?))
    }

    pub(super) fn query_volume(&mut self) -> Reply {
        let figures = self.fs.statistics();
        let volume = self.fs.volume();
        Reply::Volume(Box::new(VolumeInformation {
            label: volume.label.clone(),
            serial: volume.serial,
            id: volume.id,
            created: volume.created,
            total_bytes: figures.total_bytes,
            available_bytes: figures.available_bytes,
            block_bytes: BLOCK_BYTES as u32,
        }))
    }

    pub(super) fn set_information(&mut self, id: OpenId, set: &SetInformation) -> Result<Reply, Halt> {
        self.open_for(id, 0)?;
        match set {
            SetInformation::Basic { created, accessed, written, changed, attributes } => {
                self.set_basic(id, [*created, *accessed, *written, *changed], *attributes)?;
            }
            SetInformation::EndOfFile(bytes) => self.set_end_of_file(id, *bytes)?,
            SetInformation::Allocation(bytes) => self.set_allocation(id, *bytes)?,
            SetInformation::ValidDataLength(bytes) => self.set_valid_data_length(id, *bytes)?,
            SetInformation::Disposition { flags } => self.set_disposition(id, *flags)?,
            SetInformation::Rename { target, replace, .. } => self.rename(id, target, *replace)?,
            SetInformation::Link { target, replace } => self.link(id, target, *replace)?,
            SetInformation::ExtendedAttributes(set) => {
                let file = self.open_for(id, rights::WRITE_EA)?.stream.file;
                let now = self.time();
                self.fs.set_extended_attributes(file, set, now).map_err(ea_status)?;
                self.tell_modified(id, notify::EA);
            }
        }
        if let Some(open) = self.opens.get_mut(id) {
            open.dirty = true;
        }
        Ok(Reply::Done)
    }

    fn set_basic(&mut self, id: OpenId, times: [SetTime; 4], attributes: Option<u32>) -> Result<(), Halt> {
        let open = self.open_for(id, rights::WRITE_ATTRIBUTES)?;
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
        self.settle_write_time(id);
        let now = self.time();
        let to = |time: SetTime| match time {
            SetTime::To(time) => Some(time),
            _ => None,
        };
        let [created, accessed, written, changed] = times;
        let mut fixed = self.opens.get(id).map(|open| open.fixed_times).unwrap_or_default();
        for (time, bit) in
            [(accessed, FixedTimes::ACCESSED), (written, FixedTimes::WRITTEN), (changed, FixedTimes::CHANGED)]
        {
            match time {
                SetTime::Keep => {}
                SetTime::Freeze | SetTime::To(_) => fixed |= bit,
                SetTime::Thaw => fixed -= bit,
            }
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
            self.fs.set_attributes(file, &change)?;
        }
        if let Some(open) = self.opens.get_mut(id) {
            open.fixed_times = fixed;
        }
        if to(written).is_some() {
            self.forget_write_times(file);
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
            self.tell_modified(id, what);
        }
        Ok(())
    }

    /// An open with these rights on a stream of data.
    fn data_open(&mut self, id: OpenId, access: u32) -> Result<&mut Open, NtStatus> {
        let open = self.open_for(id, access)?;
        if open.directory { Err(NtStatus::INVALID_PARAMETER) } else { Ok(open) }
    }

    fn set_end_of_file(&mut self, id: OpenId, bytes: u64) -> Result<(), Halt> {
        let stream = self.data_open(id, rights::WRITE_DATA)?.stream;
        if bytes > i64::MAX as u64 {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        self.resize(id, |service, now| service.fs.set_end_of_file(stream, bytes, now))
    }

    fn set_allocation(&mut self, id: OpenId, bytes: u64) -> Result<(), Halt> {
        let stream = self.data_open(id, rights::WRITE_DATA)?.stream;
        if bytes > i64::MAX as u64 {
            return Err(NtStatus::INVALID_PARAMETER.into());
        }
        let end = self.fs.stream_information(stream)?.end_of_file;
        if bytes >= end {
            let now = self.time();
            self.fs.set_allocation(stream, bytes, now)?;
            self.contend(id);
            return Ok(());
        }
        self.resize(id, |service, now| service.fs.set_allocation(stream, bytes, now))
    }

    /// Changes a stream's size, and tells whom it concerns.
    fn resize(
        &mut self,
        id: OpenId,
        change: impl FnOnce(&mut Self, FileTime) -> Result<(), crate::fs::FsError>,
    ) -> Result<(), Halt> {
        self.settle_write_time(id);
        let now = self.time();
        let Some(open) = self.opens.get(id) else { return Err(NtStatus::FILE_CLOSED.into()) };
        let (file, fixed) = (open.stream.file, open.fixed_times);
        let before = self.fs.attributes(file)?;
        change(self, now)?;
        // The file layer sets both times; an open that fixed them keeps what was.
        if !fixed.is_empty() {
            let keep = |bit, time| fixed.contains(bit).then_some(time);
            self.fs.touch(
                file,
                &AttributeChange {
                    written: keep(FixedTimes::WRITTEN, before.written),
                    changed: keep(FixedTimes::CHANGED, before.changed),
                    ..AttributeChange::default()
                },
            );
        }
        self.mark_archive(id);
        if let Some(open) = self.opens.get_mut(id) {
            open.dirty = true;
        }
        self.contend(id);
        let what = if self.opens.get(id).is_some_and(|open| open.stream.index != 0) {
            notify::STREAM_SIZE
        } else {
            notify::SIZE | notify::LAST_WRITE
        };
        self.tell_modified(id, what);
        Ok(())
    }

    /// MS-FSA 2.1.5.15.14: needs a privilege, and only says what is already so here.
    fn set_valid_data_length(&mut self, id: OpenId, bytes: u64) -> Result<(), Halt> {
        let stream = self.data_open(id, rights::WRITE_DATA)?.stream;
        let end = self.fs.stream_information(stream)?.end_of_file;
        if bytes > end { Err(NtStatus::INVALID_PARAMETER.into()) } else { Ok(()) }
    }

    /// The archive attribute says that a backup has something to do.
    pub(super) fn mark_archive(&mut self, id: OpenId) {
        let Some(open) = self.opens.get_mut(id) else { return };
        if open.modified {
            return;
        }
        open.modified = true;
        let file = open.stream.file;
        if let Ok(found) = self.fs.attributes(file)
            && found.attributes & attribute::ARCHIVE == 0
            && !found.directory
        {
            let change = AttributeChange {
                attributes: Some(found.attributes | attribute::ARCHIVE),
                ..AttributeChange::default()
            };
            // Where metadata is missing, the next modification sets it.
            if self.fs.set_attributes(file, &change).is_err()
                && let Some(open) = self.opens.get_mut(id)
            {
                open.modified = false;
            }
        }
    }

    fn set_disposition(&mut self, id: OpenId, flags: u32) -> Result<(), Halt> {
        let open = self.open_for(id, rights::DELETE)?;
        let (stream, directory) = (open.stream, open.directory);
        let link = open.own_link().cloned();
        if flags & DISPOSITION_DELETE != 0 && stream.index == 0 && link.is_none() {
            return Err(NtStatus::CANNOT_DELETE.into());
        }
        if flags & DISPOSITION_ON_CLOSE != 0 {
            open.delete_on_close = flags & DISPOSITION_DELETE != 0;
            return Ok(());
        }
        if flags & DISPOSITION_DELETE == 0 {
            let node = self.files.entry(stream.file).or_default();
            if stream.index != 0 {
                node.streams.entry(stream.index).or_default().delete_pending = false;
            } else if let Some(link) = link {
                node.deleting.retain(|other| *other != link);
            }
            return Ok(());
        }
        let found = self.fs.attributes(stream.file)?;
        let protected =
            found.attributes & attribute::READONLY != 0 && flags & DISPOSITION_IGNORE_READONLY == 0;
        if protected {
            return Err(NtStatus::CANNOT_DELETE.into());
        }
        if stream.index != 0 {
            let node = self.files.entry(stream.file).or_default();
            node.streams.entry(stream.index).or_default().delete_pending = true;
            return Ok(());
        }
        let link = link.ok_or(NtStatus::CANNOT_DELETE)?;
        if directory && !self.fs.is_empty_directory(stream.file)? {
            return Err(NtStatus::DIRECTORY_NOT_EMPTY.into());
        }
        if self.break_handles(id)? {
            return Err(Halt::Break(stream.file));
        }
        self.mark_deleting(stream.file, link);
        Ok(())
    }

    /// Tells watchers and holders of directory leases that an open's file changed.
    pub(super) fn tell_modified(&mut self, id: OpenId, what: u32) {
        let Some(open) = self.opens.get(id) else { return };
        let by = open.parent_key.map(|key| (open.client, key));
        let parent = open.link.as_ref().map(|link| link.parent);
        if !self.watches.is_empty() {
            let action = if open.stream.index != 0 { notify::MODIFIED_STREAM } else { notify::MODIFIED };
            self.watches.changed(&open.path, action, what);
        }
        if let Some(parent) = parent {
            self.directory_changed(parent, by);
        }
    }
}
