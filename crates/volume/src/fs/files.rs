//! Callers' operations on names, attributes and other properties of files.
//!
//! Everything here only sees to it that the volume takes the change, and brings the parts together.

use std::rc::Rc;

use ::types::{FileTime, Sid};

use super::FileSystem;
use super::descriptors::descriptor;
use super::meta::Transaction;
use super::namespace::{self, Place, check_name};
use super::quota::{QuotaLimits, QuotaMode, QuotaSettings, QuotaUser};
use super::types::{
    AttributeChange, Attributes, Entry, ExtendedAttribute, FileId, FsError, HardLink, NewFile, SecurityId,
    StreamId, StreamInformation, Unlinked, WideString,
};
use super::{properties, streams};
use crate::planted::Planted;

impl FileSystem {
    /// Returns a file's attributes.
    ///
    /// # Errors
    /// `NotFound` if the id names no file.
    pub fn attributes(&mut self, file: FileId) -> Result<Attributes, FsError> {
        self.base.ready()?;
        namespace::attributes(&mut self.base.meta, &self.base.times, &self.data.streams, file)
    }

    /// Changes times and attributes.
    pub fn set_attributes(&mut self, file: FileId, change: &AttributeChange) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        namespace::set_attributes(&mut self.base.meta, &mut self.base.times, file, change)
    }

    /// Changes times in memory: they become durable with the file's next flush, and within seconds anyway. For the
    /// times that reads and writes change as a side effect. Attributes are not changed.
    pub fn touch(&mut self, file: FileId, times: &AttributeChange) {
        self.base.times.touch(file, times, self.base.agenda.now);
    }

    /// Sets or clears FILE_ATTRIBUTE_SPARSE_FILE.
    pub fn set_sparse(&mut self, file: FileId, sparse: bool, now: FileTime) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        namespace::set_sparse(&mut self.base.meta, file, sparse, now)
    }

    /// Finds the entry of that name, ignoring case.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory` if `parent` is a file.
    pub fn lookup(&mut self, parent: FileId, name: &[u16]) -> Result<Entry, FsError> {
        self.base.ready()?;
        namespace::lookup(&mut self.base.meta, parent, name)
    }

    /// Makes a file or directory.
    ///
    /// # Errors
    /// `Exists`, `NameInvalid`, `NotFound` or `NotDirectory` (the parent), `NoSpace`.
    pub fn create(&mut self, parent: FileId, name: &[u16], new: &NewFile<'_>) -> Result<FileId, FsError> {
        self.base.ready_to_grow(self.data.unstored())?;
        self.names.create(parent, name, new, &mut self.base.meta)
    }

    /// Gives a file one more name, once the file's writes are stored.
    ///
    /// # Errors
    /// `IsDirectory`, `Exists`, `TooManyLinks` and those of [`FileSystem::create`].
    pub fn link(
        &mut self,
        file: FileId,
        parent: FileId,
        name: &[u16],
        replace: bool,
        now: FileTime,
    ) -> Result<Option<Unlinked>, FsError> {
        self.base.ready_to_grow(self.data.unstored())?;
        check_name(name)?;
        self.data.publish_file(file, &mut self.base)?;
        namespace::link(&mut self.base.meta, file, Place { parent, name }, replace, now)
    }

    /// Takes a name away. A file without names lives on, out of sight, until [`FileSystem::reclaim`], or until the
    /// volume is opened again.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` if it is a directory with entries.
    pub fn unlink(&mut self, parent: FileId, name: &[u16], now: FileTime) -> Result<Unlinked, FsError> {
        self.base.ready_to_change()?;
        namespace::unlink(&mut self.base.meta, parent, name, now)
    }

    /// Gives a file another name, or the same one in another case, once the file's writes are stored: a
    /// crash leaves the target's name to the old file or to the new one, whole. Returns the replaced file.
    ///
    /// # Errors
    /// `NotFound`, `Exists` (without `replace`), `IsDirectory` if the target is a directory (never replaced),
    /// `Loop` if a directory would come to lie below itself, `NameInvalid`.
    pub fn rename(
        &mut self,
        parent: FileId,
        name: &[u16],
        target_parent: FileId,
        target_name: &[u16],
        replace: bool,
        now: FileTime,
    ) -> Result<Option<Unlinked>, FsError> {
        self.base.ready_to_change()?;
        let (from, to) = (Place { parent, name }, Place { parent: target_parent, name: target_name });
        let renaming = namespace::check_rename(&mut self.base.meta.store, from, to, replace)?;
        if renaming.needs_data && !Planted::RenameBeforeData.is_planted() {
            self.data.publish_file(renaming.file, &mut self.base)?;
        }
        namespace::rename(&mut self.base.meta, from, to, &renaming, now)
    }

    /// Lists entries in the order of their upper-case names, those after `after`, at most `entries_max`.
    pub fn list(
        &mut self,
        directory: FileId,
        after: Option<&[u16]>,
        entries_max: usize,
    ) -> Result<Vec<Entry>, FsError> {
        self.base.ready()?;
        namespace::list(&mut self.base.meta, directory, after, entries_max)
    }

    /// Whether a directory has no entries.
    pub fn is_empty_directory(&mut self, directory: FileId) -> Result<bool, FsError> {
        self.base.ready()?;
        namespace::is_empty_directory(&mut self.base.meta, directory)
    }

    /// Lists all names of a file in their original case, unordered.
    pub fn links(&mut self, file: FileId) -> Result<Vec<HardLink>, FsError> {
        self.base.ready()?;
        namespace::links(&mut self.base.meta, file)
    }

    /// Finds the path of a file by one of its names: `\` between names, none before the first; empty for the root.
    ///
    /// # Errors
    /// `NotFound` if it has no name.
    pub fn path(&mut self, file: FileId) -> Result<WideString, FsError> {
        self.base.ready()?;
        namespace::path(&mut self.base.meta, file)
    }

    /// Reads a security descriptor of a file; empty for `SecurityId(0)`. Never changes for one id, so
    /// callers may cache their parse of it.
    pub fn security(&mut self, id: SecurityId) -> Result<Rc<[u8]>, FsError> {
        self.base.ready()?;
        descriptor(&mut self.base.meta.store, id)
    }

    /// Replaces a file's security descriptor.
    ///
    /// # Errors
    /// `QuotaExceeded` if the owner that it names may not have that much more.
    pub fn set_security(
        &mut self,
        file: FileId,
        descriptor: &[u8],
        now: FileTime,
    ) -> Result<SecurityId, FsError> {
        self.base.ready_to_grow(self.data.unstored())?;
        namespace::set_security(&mut self.base.meta, file, descriptor, true, now)
    }

    /// As [`FileSystem::set_security`], for an administrator: the owner is charged and not refused.
    pub fn hand_down_security(
        &mut self,
        file: FileId,
        descriptor: &[u8],
        now: FileTime,
    ) -> Result<SecurityId, FsError> {
        self.base.ready_to_grow(self.data.unstored())?;
        namespace::set_security(&mut self.base.meta, file, descriptor, false, now)
    }

    /// The volume's quota settings, and whether files are still being counted for them.
    pub fn quota_settings(&self) -> (QuotaSettings, bool) {
        let quotas = &self.base.meta.quotas;
        (*quotas.settings(), quotas.settings().mode != QuotaMode::Off && !quotas.settings().counted)
    }

    /// Changes mode, defaults and flags. After turning quotas on, the next checkpoint begins at once and
    /// starts their counting; they hold when all files are counted. [`QuotaSettings::counted`] is an output
    /// only.
    pub fn set_quota_settings(&mut self, new: QuotaSettings) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        let mut txn = Transaction::new();
        self.base.meta.quotas.set_settings(&mut txn, new);
        self.base.record(txn);
        self.base.agenda.again = true;
        Ok(())
    }

    /// Describes a user's quota.
    pub fn quota_user(&self, user: &Sid) -> QuotaUser {
        self.base.meta.quotas.user(user)
    }

    /// Lists users' quotas, at most `users_max`, behind `after`.
    pub fn quota_users(&self, after: Option<&Sid>, users_max: usize) -> Vec<QuotaUser> {
        self.base.meta.quotas.users(after, users_max)
    }

    /// Gives a user limits, or takes them away: then the volume's defaults hold.
    pub fn set_quota_limits(
        &mut self,
        user: &Sid,
        limits: Option<QuotaLimits>,
        now: FileTime,
    ) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        let mut txn = Transaction::new();
        self.base.meta.quotas.set_limits(&mut txn, user, limits, now);
        self.base.record(txn);
        Ok(())
    }

    /// Bytes that a user may still take and the user's limit, if one holds.
    pub fn quota_room(&self, user: &Sid) -> Option<(u64, u64)> {
        self.base.meta.quotas.room(user)
    }

    /// Recounts all quotas from the files. Until that is done no limit holds.
    pub fn recount_quotas(&mut self) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        let mut txn = Transaction::new();
        self.base.meta.quotas.begin_again(&mut txn);
        self.base.record(txn);
        Ok(())
    }

    /// Lists all extended attributes, in the order they were first set.
    pub fn extended_attributes(&mut self, file: FileId) -> Result<Vec<ExtendedAttribute>, FsError> {
        self.base.ready()?;
        properties::extended_attributes(&mut self.base.meta, file)
    }

    /// Sets each of these attributes; one with an empty value is removed. All or none.
    ///
    /// # Errors
    /// `TooLarge` beyond [`EXTENDED_ATTRIBUTE_BYTES_MAX`](super::EXTENDED_ATTRIBUTE_BYTES_MAX), `Invalid` for an empty name.
    pub fn set_extended_attributes(
        &mut self,
        file: FileId,
        set: &[ExtendedAttribute],
        now: FileTime,
    ) -> Result<(), FsError> {
        self.base.ready_to_grow(self.data.unstored())?;
        properties::set_extended_attributes(&mut self.base.meta, file, set, now)
    }

    /// Reads the reparse point's data as it was set, or nothing.
    pub fn reparse_data(&mut self, file: FileId) -> Result<Option<Vec<u8>>, FsError> {
        self.base.ready()?;
        properties::reparse_data(&mut self.base.meta, file)
    }

    /// Makes the file a reparse point with this tag and data, or an ordinary file again.
    pub fn set_reparse(
        &mut self,
        file: FileId,
        point: Option<(u32, &[u8])>,
        now: FileTime,
    ) -> Result<(), FsError> {
        if point.is_some() {
            self.base.ready_to_grow(self.data.unstored())?;
        }
        self.base.ready_to_change()?;
        properties::set_reparse(&mut self.base.meta, file, point, now)
    }

    /// Reads the file's object id (MS-FSCC 2.1.3.1), if it has one.
    pub fn object_id(&mut self, file: FileId) -> Result<Option<[u8; 16]>, FsError> {
        self.base.ready()?;
        properties::object_id(&mut self.base.meta, file)
    }

    /// Sets or removes the file's object id.
    ///
    /// # Errors
    /// `Exists` if another file has it.
    pub fn set_object_id(&mut self, file: FileId, id: Option<[u8; 16]>) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        properties::set_object_id(&mut self.base.meta, file, id)
    }

    /// Finds the file that has this object id.
    pub fn file_by_object_id(&mut self, id: [u8; 16]) -> Result<FileId, FsError> {
        self.base.ready()?;
        properties::file_by_object_id(&mut self.base.meta, id)
    }

    /// Finds the named stream of a file, ignoring case. Directories can have streams too.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn find_stream(&mut self, file: FileId, name: &[u16]) -> Result<StreamId, FsError> {
        self.base.ready()?;
        streams::find_stream(&mut self.base.meta, file, name)
    }

    /// Makes an empty named stream.
    ///
    /// # Errors
    /// `Exists`, `NameInvalid`, `NotFound`; `TooManyStreams` beyond [`NAMED_STREAMS_MAX`](super::NAMED_STREAMS_MAX).
    pub fn create_stream(&mut self, file: FileId, name: &[u16], now: FileTime) -> Result<StreamId, FsError> {
        self.base.ready_to_grow(self.data.unstored())?;
        streams::create_stream(&mut self.base.meta, file, name, now)
    }

    /// Gives a named stream another name.
    ///
    /// # Errors
    /// `Exists`, `NameInvalid`, `NotFound`; `Invalid` for the unnamed stream.
    pub fn rename_stream(&mut self, stream: StreamId, name: &[u16], now: FileTime) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        streams::rename_stream(&mut self.base.meta, stream, name, now)
    }

    /// Takes a stream's name away. It lives on until [`FileSystem::reclaim_stream`], or until the volume is opened again.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for the unnamed stream.
    pub fn unlink_stream(&mut self, stream: StreamId, now: FileTime) -> Result<(), FsError> {
        self.base.ready_to_change()?;
        streams::unlink_stream(&mut self.base.meta, stream, now)
    }

    /// Lists all streams: the unnamed one first (files only), the others in the order they were made.
    pub fn streams(&mut self, file: FileId) -> Result<Vec<StreamInformation>, FsError> {
        self.base.ready()?;
        streams::streams(&mut self.base.meta, &self.data.streams, file)
    }

    /// Returns one stream's sizes and name.
    pub fn stream_information(&mut self, stream: StreamId) -> Result<StreamInformation, FsError> {
        self.base.ready()?;
        streams::stream_information(&mut self.base.meta, &self.data.streams, stream)
    }
}
