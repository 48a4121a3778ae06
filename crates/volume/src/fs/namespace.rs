//! Names: directories, entries, links, renames, and the attributes of files.

use types::{FileTime, attribute};

use super::FileSystem;
use super::meta::record::{EntryRecord, Inode};
use super::meta::{Transaction, key};
use super::types::WideString;
use super::types::{
    AttributeChange, Attributes, DEPTH_MAX, Entry, FileId, FsError, Link, NewFile, SecurityId, StreamId,
    Unlinked,
};
use super::upcase::names_equal;
use crate::planted::Planted;

/// Longest name in UTF-16 code units, as in NTFS.
pub const NAME_UNITS_MAX: usize = 255;

/// Most links of one file, as in NTFS.
pub const LINKS_MAX: u32 = 1024;

/// What may be set of a file; the rest follows from what it is.
const SETTABLE_ATTRIBUTES: u32 = attribute::READONLY
    | attribute::HIDDEN
    | attribute::SYSTEM
    | attribute::ARCHIVE
    | attribute::TEMPORARY
    | attribute::OFFLINE
    | attribute::NOT_CONTENT_INDEXED
    | attribute::NO_SCRUB_DATA
    | attribute::PINNED
    | attribute::UNPINNED;

/// File ids are reserved in the journal this many at a time.
const FILE_IDS_AHEAD: u64 = 1024;

/// Checks that a name can be that of a file: the rules that no client may break. What Win32 forbids beyond is the
/// caller's matter.
pub fn check_name(name: &[u16]) -> Result<(), FsError> {
    const FORBIDDEN: [u16; 4] = [0, b'/' as u16, b'\\' as u16, b':' as u16];
    let dots = matches!(name, [0x2e] | [0x2e, 0x2e]);
    if name.is_empty() || name.len() > NAME_UNITS_MAX || dots || name.iter().any(|u| FORBIDDEN.contains(u)) {
        return Err(FsError::NameInvalid);
    }
    Ok(())
}

impl FileSystem {
    pub(super) fn inode(&mut self, txn: &Transaction, file: FileId) -> Result<Inode, FsError> {
        let value = self.meta.get(txn, &key::inode(file))?.ok_or(FsError::NotFound)?;
        Inode::decode(&value).ok_or(FsError::damaged("inode"))
    }

    pub(super) fn put_inode(txn: &mut Transaction, file: FileId, inode: &Inode) {
        txn.put(key::inode(file), inode.encode());
    }

    fn directory(&mut self, txn: &Transaction, file: FileId) -> Result<Inode, FsError> {
        let inode = self.inode(txn, file)?;
        if inode.directory { Ok(inode) } else { Err(FsError::NotDirectory) }
    }

    fn entry(&mut self, txn: &Transaction, parent: FileId, name: &[u16]) -> Result<EntryRecord, FsError> {
        let value = self.meta.get(txn, &key::entry(parent, name))?.ok_or(FsError::NotFound)?;
        EntryRecord::decode(&value).ok_or(FsError::damaged("directory entry"))
    }

    fn is_free(&mut self, txn: &Transaction, parent: FileId, name: &[u16]) -> Result<bool, FsError> {
        Ok(self.meta.get(txn, &key::entry(parent, name))?.is_none())
    }

    /// What is known of a file.
    ///
    /// # Errors
    /// `NotFound` where the id names no file.
    pub fn attributes(&mut self, file: FileId) -> Result<Attributes, FsError> {
        self.ready()?;
        let inode = self.inode(&Transaction::new(), file)?;
        let lazy = self.lazy_times.get(&file).copied().unwrap_or_default();
        let (end_of_file, allocation_bytes) =
            self.stream_sizes(StreamId::unnamed(file), inode.end_of_file, inode.allocated_blocks);
        Ok(Attributes {
            file,
            directory: inode.directory,
            attributes: inode.attributes,
            created: lazy.created.unwrap_or(inode.created),
            accessed: lazy.accessed.unwrap_or(inode.accessed),
            written: lazy.written.unwrap_or(inode.written),
            changed: lazy.changed.unwrap_or(inode.changed),
            end_of_file,
            allocation_bytes,
            link_count: inode.link_count,
            reparse_tag: inode.reparse_tag,
            extended_attribute_bytes: inode.extended_attribute_bytes,
            security: inode.security,
        })
    }

    /// Changes times and attributes.
    pub fn set_attributes(&mut self, file: FileId, change: &AttributeChange) -> Result<(), FsError> {
        self.ready_to_change()?;
        let mut txn = Transaction::new();
        let mut inode = self.inode(&txn, file)?;
        if let Some(lazy) = self.lazy_times.get(&file) {
            apply(&mut inode, lazy);
        }
        apply(&mut inode, change);
        Self::put_inode(&mut txn, file, &inode);
        self.commit(txn)?;
        self.lazy_times.remove(&file);
        Ok(())
    }

    /// Changes times in memory: they become durable with the file's next flush, and within seconds anyway. For the
    /// times that reads and writes change by the way. Attributes are not changed.
    pub fn touch(&mut self, file: FileId, times: &AttributeChange) {
        self.lazy_since.get_or_insert(self.now);
        let lazy = self.lazy_times.entry(file).or_default();
        lazy.created = times.created.or(lazy.created);
        lazy.accessed = times.accessed.or(lazy.accessed);
        lazy.written = times.written.or(lazy.written);
        lazy.changed = times.changed.or(lazy.changed);
    }

    /// Sets or clears FILE_ATTRIBUTE_SPARSE_FILE.
    pub fn set_sparse(&mut self, file: FileId, sparse: bool, now: FileTime) -> Result<(), FsError> {
        self.ready_to_change()?;
        let mut txn = Transaction::new();
        let mut inode = self.inode(&txn, file)?;
        if inode.directory {
            return Err(FsError::IsDirectory);
        }
        inode.attributes &= !attribute::SPARSE_FILE;
        inode.attributes |= if sparse { attribute::SPARSE_FILE } else { 0 };
        inode.changed = now;
        Self::put_inode(&mut txn, file, &inode);
        self.commit(txn)
    }

    /// The entry of that name, whatever its case.
    ///
    /// # Errors
    /// `NotFound`; `NotDirectory` where `parent` is a file.
    pub fn lookup(&mut self, parent: FileId, name: &[u16]) -> Result<Entry, FsError> {
        self.ready()?;
        let txn = Transaction::new();
        match self.entry(&txn, parent, name) {
            Ok(record) => Ok(Entry { name: record.name, file: record.file, directory: record.directory }),
            Err(FsError::NotFound) => {
                self.directory(&txn, parent)?;
                Err(FsError::NotFound)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a file or directory.
    ///
    /// # Errors
    /// `Exists`, `NameInvalid`, `NotFound` or `NotDirectory` (the parent), `NoSpace`.
    pub fn create(&mut self, parent: FileId, name: &[u16], new: &NewFile<'_>) -> Result<FileId, FsError> {
        self.ready_to_grow()?;
        check_name(name)?;
        let mut txn = Transaction::new();
        let directory = self.directory(&txn, parent)?;
        if !self.is_free(&txn, parent, name)? {
            return Err(FsError::Exists);
        }
        let security = self.intern_security(&mut txn, new.security)?;
        let file = self.next_file_id(&mut txn)?;
        Self::put_inode(&mut txn, file, &new_inode(new, security));
        Self::put_link(&mut txn, file, new.directory, parent, name);
        self.touch_directory(&mut txn, parent, directory, new.now);
        self.commit(txn)?;
        Ok(file)
    }

    /// Gives a file one more name, once what was written to it is stored.
    ///
    /// # Errors
    /// `IsDirectory`, `Exists`, `TooManyLinks` and those of [`FileSystem::create`].
    pub fn link(&mut self, file: FileId, parent: FileId, name: &[u16], now: FileTime) -> Result<(), FsError> {
        self.ready_to_grow()?;
        check_name(name)?;
        self.settle_data(file)?;
        let mut txn = Transaction::new();
        let directory = self.directory(&txn, parent)?;
        let mut inode = self.inode(&txn, file)?;
        if inode.directory {
            return Err(FsError::IsDirectory);
        }
        if !self.is_free(&txn, parent, name)? {
            return Err(FsError::Exists);
        }
        if inode.link_count >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        if inode.link_count == 0 {
            return Err(FsError::NotFound);
        }
        inode.link_count += 1;
        inode.changed = now;
        Self::put_inode(&mut txn, file, &inode);
        Self::put_link(&mut txn, file, false, parent, name);
        self.touch_directory(&mut txn, parent, directory, now);
        self.commit(txn)
    }

    /// Takes a name away. A file without names lives on, out of sight, until [`FileSystem::reclaim`], or until the
    /// volume is opened again.
    ///
    /// # Errors
    /// `NotFound`; `NotEmpty` where it is a directory with entries.
    pub fn unlink(&mut self, parent: FileId, name: &[u16], now: FileTime) -> Result<Unlinked, FsError> {
        self.ready_to_change()?;
        let mut txn = Transaction::new();
        let directory = self.directory(&txn, parent)?;
        let unlinked = self.remove_link(&mut txn, parent, name, now)?;
        self.touch_directory(&mut txn, parent, directory, now);
        self.commit(txn)?;
        Ok(unlinked)
    }

    /// Gives a file another name, or the same one in another case, once what was written to it is stored: a crash leaves the target's
    /// name to the old file or to the new one, whole. Returns what it replaced.
    ///
    /// # Errors
    /// `NotFound`, `Exists` (without `replace`), `IsDirectory` where the target is a directory (never replaced),
    /// `Loop` where a directory would come to lie below itself, `NameInvalid`.
    pub fn rename(
        &mut self,
        parent: FileId,
        name: &[u16],
        target_parent: FileId,
        target_name: &[u16],
        replace: bool,
        now: FileTime,
    ) -> Result<Option<Unlinked>, FsError> {
        self.ready_to_change()?;
        check_name(target_name)?;
        let mut txn = Transaction::new();
        let source = self.directory(&txn, parent)?;
        let target = self.directory(&txn, target_parent)?;
        let record = self.entry(&txn, parent, name)?;
        let same_entry = parent == target_parent && names_equal(name, target_name);
        let mut replaces = false;
        if !same_entry {
            if record.directory {
                self.refuse_loop(&txn, record.file, target_parent)?;
            }
            match self.entry(&txn, target_parent, target_name) {
                Ok(_) if !replace => return Err(FsError::Exists),
                Ok(old) if old.directory => return Err(FsError::IsDirectory),
                Ok(_) => replaces = true,
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
            if !record.directory && !Planted::RenameBeforeData.is_planted() {
                self.settle_data(record.file)?;
            }
        }
        let replaced = match replaces {
            true => Some(self.remove_link(&mut txn, target_parent, target_name, now)?),
            false => None,
        };
        let mut inode = self.inode(&txn, record.file)?;
        inode.changed = now;
        Self::put_inode(&mut txn, record.file, &inode);
        txn.delete(key::entry(parent, name));
        txn.delete(key::link(record.file, parent, name));
        Self::put_link(&mut txn, record.file, record.directory, target_parent, target_name);
        self.touch_directory(&mut txn, parent, source, now);
        if target_parent != parent {
            self.touch_directory(&mut txn, target_parent, target, now);
        }
        self.commit(txn)?;
        Ok(replaced)
    }

    /// Entries in the order of their upper-case names, those after `after`, at most `entries_max`.
    pub fn list(
        &mut self,
        directory: FileId,
        after: Option<&[u16]>,
        entries_max: usize,
    ) -> Result<Vec<Entry>, FsError> {
        self.ready()?;
        let txn = Transaction::new();
        self.directory(&txn, directory)?;
        let end = key::after(&key::entries(directory));
        let mut from = match after {
            // The smallest key that is larger than that name's.
            Some(name) => {
                let mut key = key::entry(directory, name);
                key.push(0);
                key
            }
            None => key::entries(directory),
        };
        let mut out = Vec::with_capacity(entries_max.min(1024));
        while out.len() < entries_max
            && let Some((found, value)) = self.meta.next(&txn, &from, &end)?
        {
            let record = EntryRecord::decode(&value).ok_or(FsError::damaged("directory entry"))?;
            out.push(Entry { name: record.name, file: record.file, directory: record.directory });
            from = found;
            from.push(0);
        }
        Ok(out)
    }

    /// Whether a directory has no entries.
    pub fn is_empty_directory(&mut self, directory: FileId) -> Result<bool, FsError> {
        self.ready()?;
        self.has_no_entries(&Transaction::new(), directory)
    }

    fn has_no_entries(&mut self, txn: &Transaction, directory: FileId) -> Result<bool, FsError> {
        let prefix = key::entries(directory);
        Ok(self.meta.next(txn, &prefix, &key::after(&prefix))?.is_none())
    }

    /// All names of a file, in no particular order, as they were given.
    pub fn links(&mut self, file: FileId) -> Result<Vec<Link>, FsError> {
        self.ready()?;
        self.links_in(&Transaction::new(), file, usize::MAX)
    }

    fn links_in(&mut self, txn: &Transaction, file: FileId, links_max: usize) -> Result<Vec<Link>, FsError> {
        let prefix = key::links(file);
        let end = key::after(&prefix);
        let (mut from, mut out) = (prefix, Vec::new());
        while out.len() < links_max
            && let Some((found, _)) = self.meta.next(txn, &from, &end)?
        {
            let (parent, upcased) = key::parse_link(&found).ok_or(FsError::damaged("link"))?;
            let name = match self.entry(txn, parent, &upcased) {
                Ok(record) => record.name,
                Err(FsError::NotFound) => return Err(FsError::damaged("link without entry")),
                Err(error) => return Err(error),
            };
            out.push(Link { parent, name });
            from = found;
            from.push(0);
        }
        Ok(out)
    }

    /// The path of a file by one of its names: `\` between names, none before the first; empty for the root.
    ///
    /// # Errors
    /// `NotFound` where it has no name.
    pub fn path(&mut self, file: FileId) -> Result<WideString, FsError> {
        self.ready()?;
        let txn = Transaction::new();
        let (mut names, mut at) = (Vec::new(), file);
        while at != FileId::ROOT {
            let link = self.links_in(&txn, at, 1)?.pop().ok_or(FsError::NotFound)?;
            names.push(link.name);
            at = link.parent;
            if names.len() > DEPTH_MAX {
                return Err(FsError::damaged("directories in a loop"));
            }
        }
        names.reverse();
        Ok(names.join(&u16::from(b'\\')).into())
    }

    fn refuse_loop(&mut self, txn: &Transaction, moved: FileId, target: FileId) -> Result<(), FsError> {
        let mut at = target;
        for _ in 0..DEPTH_MAX {
            if at == moved {
                return Err(FsError::Loop);
            }
            if at == FileId::ROOT {
                return Ok(());
            }
            at = self.links_in(txn, at, 1)?.pop().ok_or(FsError::NotFound)?.parent;
        }
        Err(FsError::damaged("directories in a loop"))
    }

    fn put_link(txn: &mut Transaction, file: FileId, directory: bool, parent: FileId, name: &[u16]) {
        let record = EntryRecord { file, directory, name: name.into() };
        txn.put(key::entry(parent, name), record.encode());
        txn.put(key::link(file, parent, name), Vec::new());
    }

    fn remove_link(
        &mut self,
        txn: &mut Transaction,
        parent: FileId,
        name: &[u16],
        now: FileTime,
    ) -> Result<Unlinked, FsError> {
        let record = self.entry(txn, parent, name)?;
        let mut inode = self.inode(txn, record.file)?;
        if inode.directory && !self.has_no_entries(txn, record.file)? {
            return Err(FsError::NotEmpty);
        }
        inode.link_count = inode.link_count.saturating_sub(1);
        inode.changed = now;
        let last = inode.link_count == 0;
        Self::put_inode(txn, record.file, &inode);
        txn.delete(key::entry(parent, name));
        txn.delete(key::link(record.file, parent, name));
        if last {
            txn.put(key::orphan(StreamId { file: record.file, index: key::WHOLE_FILE }), Vec::new());
        }
        Ok(Unlinked { file: record.file, last })
    }

    fn touch_directory(&mut self, txn: &mut Transaction, file: FileId, mut inode: Inode, now: FileTime) {
        inode.written = now;
        inode.changed = now;
        Self::put_inode(txn, file, &inode);
    }

    fn next_file_id(&mut self, txn: &mut Transaction) -> Result<FileId, FsError> {
        if self.next_file >= self.file_ids_reserved {
            let counter = key::counter(key::Counter::File);
            let stored = match self.meta.get(txn, &counter)? {
                Some(value) => {
                    super::meta::record::decode_number(&value).ok_or(FsError::damaged("counter"))?
                }
                None => FileId::ROOT.0 + 1,
            };
            self.next_file = self.next_file.max(stored);
            self.file_ids_reserved = self.next_file + FILE_IDS_AHEAD;
            txn.put(counter, super::meta::record::encode_number(self.file_ids_reserved));
        }
        let file = FileId(self.next_file);
        self.next_file += 1;
        Ok(file)
    }

    pub(super) fn put_root(&mut self, txn: &mut Transaction, new: &NewFile<'_>) -> Result<(), FsError> {
        let security = self.intern_security(txn, new.security)?;
        Self::put_inode(txn, FileId::ROOT, &new_inode(new, security));
        Ok(())
    }
}

fn new_inode(new: &NewFile<'_>, security: SecurityId) -> Inode {
    let directory = if new.directory { attribute::DIRECTORY } else { 0 };
    Inode {
        directory: new.directory,
        has_object_id: false,
        attributes: new.attributes & SETTABLE_ATTRIBUTES | directory,
        created: new.now,
        accessed: new.now,
        written: new.now,
        changed: new.now,
        end_of_file: 0,
        allocated_blocks: 0,
        link_count: 1,
        reparse_tag: 0,
        extended_attribute_bytes: 0,
        next_stream: 1,
        security,
    }
}

pub(super) fn apply(inode: &mut Inode, change: &AttributeChange) {
    inode.created = change.created.unwrap_or(inode.created);
    inode.accessed = change.accessed.unwrap_or(inode.accessed);
    inode.written = change.written.unwrap_or(inode.written);
    inode.changed = change.changed.unwrap_or(inode.changed);
    if let Some(attributes) = change.attributes {
        inode.attributes = attributes & SETTABLE_ATTRIBUTES | inode.attributes & !SETTABLE_ATTRIBUTES;
    }
}
