//! Names: directories, entries, links, renames, and the attributes of files.
//!
//! Reads and changes metadata only. [`super::files`] checks that changes are accepted, and stores a
//! file's data before the file gets another name.

use ::types::{FileTime, attribute};

use super::data::Streams;
use super::inodes::{apply, inode, new_inode, put_inode};
use super::meta::record::{EntryRecord, Inode, decode_number, encode_number};
use super::meta::{Charge, Store, Transaction, key};
use super::metadata::Metadata;
use super::quota::charge_of_inode;
use super::times::Times;
use super::types::{
    AttributeChange, Attributes, DEPTH_MAX, Entry, FileId, FsError, HardLink, NewFile, SecurityId, StreamId,
    Unlinked, WideString,
};
use super::upcase::names_equal;

/// Longest name in UTF-16 code units, as in NTFS.
pub const NAME_UNITS_MAX: usize = 255;

/// Most links of one file, as in NTFS.
pub const LINKS_MAX: u32 = 1024;

/// File ids are reserved in the journal this many at a time.
const FILE_IDS_AHEAD: u64 = 1024;

/// Checks that a name can be that of a file: the rules that no client may break. Further rules of Win32
/// are the caller's matter.
pub fn check_name(name: &[u16]) -> Result<(), FsError> {
    const FORBIDDEN: [u16; 4] = [0, b'/' as u16, b'\\' as u16, b':' as u16];
    let dots = matches!(name, [0x2e] | [0x2e, 0x2e]);
    if name.is_empty() || name.len() > NAME_UNITS_MAX || dots || name.iter().any(|u| FORBIDDEN.contains(u)) {
        return Err(FsError::NameInvalid);
    }
    Ok(())
}

/// Ids for new files.
///
/// No id is given twice: those below `reserved` are reserved by a recorded transaction, or by the one
/// that takes the first of them. So a transaction that took an id has to be recorded.
#[derive(Debug, Default)]
struct FileIds {
    next: u64,
    /// The first that is not reserved.
    reserved: u64,
}

impl FileIds {
    /// Takes an id, and reserves more in the same transaction if none is left.
    fn next(&mut self, txn: &mut Transaction, store: &mut Store) -> Result<FileId, FsError> {
        if self.next >= self.reserved {
            let counter = key::counter(key::Counter::File);
            let stored = match store.get(txn, &counter)? {
                Some(value) => decode_number(&value).ok_or(FsError::damaged("counter"))?,
                None => FileId::ROOT.0 + 1,
            };
            self.next = self.next.max(stored);
            self.reserved = self.next + FILE_IDS_AHEAD;
            txn.put(counter, encode_number(self.reserved));
        }
        let file = FileId(self.next);
        self.next += 1;
        Ok(file)
    }
}

/// Ids for new files. All else of names is in the metadata, which the functions below change.
#[derive(Debug, Default)]
pub struct Namespace {
    ids: FileIds,
}

impl Namespace {
    /// Makes a file or directory.
    ///
    /// # Errors
    /// `Exists`, `NameInvalid`, `NotFound` or `NotDirectory` (the parent), `NoSpace`.
    pub fn create(
        &mut self,
        parent: FileId,
        name: &[u16],
        new: &NewFile<'_>,
        meta: &mut Metadata,
    ) -> Result<FileId, FsError> {
        check_name(name)?;
        let mut txn = Transaction::new();
        let directory = directory_inode(&mut meta.store, &txn, parent)?;
        if !is_free(&mut meta.store, &txn, parent, name)? {
            return Err(FsError::Exists);
        }
        let charged = meta.quotas.charge_of_new(new.security)?;
        let security = meta.descriptors.give_new(&mut txn, new.security, &mut meta.store)?;
        let file = self.ids.next(&mut txn, &mut meta.store)?;
        if let Some((owner, blocks)) = charged {
            txn.charge(Charge { file, owner, blocks: i128::from(blocks) });
        }
        put_inode(&mut txn, file, &new_inode(new, security));
        put_link(&mut txn, file, new.directory, parent, name);
        touch_directory(&mut txn, parent, directory, new.now);
        meta.record(txn);
        Ok(file)
    }
}

/// Replaces a file's security descriptor; `limited`: within the owner's quota.
pub fn set_security(
    meta: &mut Metadata,
    file: FileId,
    descriptor: &[u8],
    limited: bool,
    now: FileTime,
) -> Result<SecurityId, FsError> {
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, file)?;
    meta.quotas.change_descriptor(&mut meta.store, &mut txn, (file, &inode), descriptor, limited)?;
    let id = meta.descriptors.replace(&mut txn, (file, inode.security), descriptor, &mut meta.store)?;
    inode.security = id;
    inode.changed = now;
    put_inode(&mut txn, file, &inode);
    meta.record(txn);
    Ok(id)
}

/// Makes the root directory of a new volume.
pub fn put_root(txn: &mut Transaction, new: &NewFile<'_>, meta: &mut Metadata) -> Result<(), FsError> {
    let security = meta.descriptors.give_new(txn, new.security, &mut meta.store)?;
    put_inode(txn, FileId::ROOT, &new_inode(new, security));
    Ok(())
}

fn directory_inode(store: &mut Store, txn: &Transaction, file: FileId) -> Result<Inode, FsError> {
    let inode = inode(store, txn, file)?;
    if inode.directory { Ok(inode) } else { Err(FsError::NotDirectory) }
}

fn entry(store: &mut Store, txn: &Transaction, parent: FileId, name: &[u16]) -> Result<EntryRecord, FsError> {
    let value = store.get(txn, &key::entry(parent, name))?.ok_or(FsError::NotFound)?;
    EntryRecord::decode(&value).ok_or(FsError::damaged("directory entry"))
}

fn is_free(store: &mut Store, txn: &Transaction, parent: FileId, name: &[u16]) -> Result<bool, FsError> {
    Ok(store.get(txn, &key::entry(parent, name))?.is_none())
}

/// Returns a file's attributes.
///
/// # Errors
/// `NotFound` if the id names no file.
pub fn attributes(
    meta: &mut Metadata,
    times: &Times,
    streams: &Streams,
    file: FileId,
) -> Result<Attributes, FsError> {
    let inode = inode(&mut meta.store, &Transaction::new(), file)?;
    let lazy = times.get(file).unwrap_or_default();
    let (end_of_file, allocation_bytes) =
        streams.sizes(StreamId::unnamed(file), inode.end_of_file, inode.allocated_blocks);
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
pub fn set_attributes(
    meta: &mut Metadata,
    times: &mut Times,
    file: FileId,
    change: &AttributeChange,
) -> Result<(), FsError> {
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, file)?;
    if let Some(lazy) = times.get(file) {
        apply(&mut inode, &lazy);
    }
    apply(&mut inode, change);
    put_inode(&mut txn, file, &inode);
    meta.record(txn);
    times.forget(file);
    Ok(())
}

/// Sets or clears FILE_ATTRIBUTE_SPARSE_FILE.
pub fn set_sparse(meta: &mut Metadata, file: FileId, sparse: bool, now: FileTime) -> Result<(), FsError> {
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, file)?;
    if inode.directory {
        return Err(FsError::IsDirectory);
    }
    inode.attributes &= !attribute::SPARSE_FILE;
    inode.attributes |= if sparse { attribute::SPARSE_FILE } else { 0 };
    inode.changed = now;
    put_inode(&mut txn, file, &inode);
    meta.record(txn);
    Ok(())
}

/// Finds the entry of that name, ignoring case.
///
/// # Errors
/// `NotFound`; `NotDirectory` if `parent` is a file.
pub fn lookup(meta: &mut Metadata, parent: FileId, name: &[u16]) -> Result<Entry, FsError> {
    let txn = Transaction::new();
    match entry(&mut meta.store, &txn, parent, name) {
        Ok(record) => Ok(Entry { name: record.name, file: record.file, directory: record.directory }),
        Err(FsError::NotFound) => {
            directory_inode(&mut meta.store, &txn, parent)?;
            Err(FsError::NotFound)
        }
        Err(error) => Err(error),
    }
}

/// Gives a file one more name, after its data was stored. `replace`: the name may be another file's,
/// which loses it in the same transaction and is returned. A name that the file already has stays as it
/// is.
///
/// # Errors
/// `IsDirectory`, `Exists` (without `replace`), `TooManyLinks`, `QuotaExceeded` and those of [`Namespace::create`].
pub fn link(
    meta: &mut Metadata,
    file: FileId,
    place: Place<'_>,
    replace: bool,
    now: FileTime,
) -> Result<Option<Unlinked>, FsError> {
    let Place { parent, name } = place;
    let mut txn = Transaction::new();
    let directory = directory_inode(&mut meta.store, &txn, parent)?;
    if inode(&mut meta.store, &txn, file)?.directory {
        return Err(FsError::IsDirectory);
    }
    let replaced = match entry(&mut meta.store, &txn, parent, name) {
        Err(FsError::NotFound) => None,
        Err(error) => return Err(error),
        Ok(_) if !replace => return Err(FsError::Exists),
        Ok(old) if old.directory => return Err(FsError::IsDirectory),
        Ok(old) if old.file == file => return Ok(None),
        Ok(_) => Some(remove_link(meta, &mut txn, parent, name, now)?),
    };
    let mut inode = inode(&mut meta.store, &txn, file)?;
    if inode.link_count >= LINKS_MAX {
        return Err(FsError::TooManyLinks);
    }
    if inode.link_count == 0 {
        return Err(FsError::NotFound);
    }
    let before = charge_of_inode(&inode);
    inode.link_count += 1;
    let charges = (before, charge_of_inode(&inode));
    meta.quotas.charge_metadata(&mut meta.store, &mut txn, (file, &inode), charges)?;
    inode.changed = now;
    put_inode(&mut txn, file, &inode);
    put_link(&mut txn, file, false, parent, name);
    touch_directory(&mut txn, parent, directory, now);
    meta.record(txn);
    Ok(replaced)
}

/// Takes a name away. A file without names lives on, out of sight, until [`FileSystem::reclaim`](super::FileSystem::reclaim), or until the
/// volume is opened again.
///
/// # Errors
/// `NotFound`; `NotEmpty` if it is a directory with entries.
pub fn unlink(meta: &mut Metadata, parent: FileId, name: &[u16], now: FileTime) -> Result<Unlinked, FsError> {
    let mut txn = Transaction::new();
    let directory = directory_inode(&mut meta.store, &txn, parent)?;
    let unlinked = remove_link(meta, &mut txn, parent, name, now)?;
    touch_directory(&mut txn, parent, directory, now);
    meta.record(txn);
    Ok(unlinked)
}

/// A checked change of a file's name.
#[derive(Debug)]
pub struct Renaming {
    pub file: FileId,
    /// Data written to the file has to be stored before the file takes the other name.
    pub needs_data: bool,
    directory: bool,
    replaces: bool,
    source: Inode,
    target: Inode,
}

/// The place of a name.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub parent: FileId,
    pub name: &'a [u16],
}

/// Finds out whether a file can get another name, or the same one in another case. Changes nothing.
///
/// # Errors
/// Those of [`FileSystem::rename`](super::FileSystem::rename).
pub fn check_rename(
    store: &mut Store,
    from: Place<'_>,
    to: Place<'_>,
    replace: bool,
) -> Result<Renaming, FsError> {
    check_name(to.name)?;
    let txn = Transaction::new();
    let source = directory_inode(store, &txn, from.parent)?;
    let target = directory_inode(store, &txn, to.parent)?;
    let record = entry(store, &txn, from.parent, from.name)?;
    let same_entry = from.parent == to.parent && names_equal(from.name, to.name);
    let mut replaces = false;
    if !same_entry {
        if record.directory {
            refuse_loop(store, &txn, record.file, to.parent)?;
        }
        match entry(store, &txn, to.parent, to.name) {
            Ok(_) if !replace => return Err(FsError::Exists),
            Ok(old) if old.directory => return Err(FsError::IsDirectory),
            Ok(_) => replaces = true,
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    let needs_data = !same_entry && !record.directory;
    Ok(Renaming { file: record.file, needs_data, directory: record.directory, replaces, source, target })
}

/// Gives a file another name, as [`check_rename`] found it to be possible; its written data has been
/// stored. Returns the file that it replaced.
pub fn rename(
    meta: &mut Metadata,
    from: Place<'_>,
    to: Place<'_>,
    renaming: &Renaming,
    now: FileTime,
) -> Result<Option<Unlinked>, FsError> {
    let mut txn = Transaction::new();
    let replaced = match renaming.replaces {
        true => Some(remove_link(meta, &mut txn, to.parent, to.name, now)?),
        false => None,
    };
    let file = renaming.file;
    let mut inode = inode(&mut meta.store, &txn, file)?;
    inode.changed = now;
    put_inode(&mut txn, file, &inode);
    txn.delete(key::entry(from.parent, from.name));
    txn.delete(key::link(file, from.parent, from.name));
    put_link(&mut txn, file, renaming.directory, to.parent, to.name);
    touch_directory(&mut txn, from.parent, renaming.source, now);
    if to.parent != from.parent {
        touch_directory(&mut txn, to.parent, renaming.target, now);
    }
    meta.record(txn);
    Ok(replaced)
}

/// Lists entries in the order of their upper-case names, those after `after`, at most `entries_max`.
pub fn list(
    meta: &mut Metadata,
    parent: FileId,
    after: Option<&[u16]>,
    entries_max: usize,
) -> Result<Vec<Entry>, FsError> {
    let txn = Transaction::new();
    directory_inode(&mut meta.store, &txn, parent)?;
    let end = key::after(&key::entries(parent));
    let mut from = match after {
        // The smallest key that is larger than that name's.
        Some(name) => {
            let mut key = key::entry(parent, name);
            key.push(0);
            key
        }
        None => key::entries(parent),
    };
    let mut out = Vec::with_capacity(entries_max.min(1024));
    while out.len() < entries_max
        && let Some((found, value)) = meta.store.next(&txn, &from, &end)?
    {
        let record = EntryRecord::decode(&value).ok_or(FsError::damaged("directory entry"))?;
        out.push(Entry { name: record.name, file: record.file, directory: record.directory });
        from = found;
        from.push(0);
    }
    Ok(out)
}

/// Whether a directory has no entries.
pub fn is_empty_directory(meta: &mut Metadata, directory: FileId) -> Result<bool, FsError> {
    has_no_entries(&mut meta.store, &Transaction::new(), directory)
}

fn has_no_entries(store: &mut Store, txn: &Transaction, directory: FileId) -> Result<bool, FsError> {
    let prefix = key::entries(directory);
    Ok(store.next(txn, &prefix, &key::after(&prefix))?.is_none())
}

/// Lists all names of a file in their original case, unordered.
pub fn links(meta: &mut Metadata, file: FileId) -> Result<Vec<HardLink>, FsError> {
    links_in(&mut meta.store, &Transaction::new(), file, usize::MAX)
}

fn links_in(
    store: &mut Store,
    txn: &Transaction,
    file: FileId,
    links_max: usize,
) -> Result<Vec<HardLink>, FsError> {
    let prefix = key::links(file);
    let end = key::after(&prefix);
    let (mut from, mut out) = (prefix, Vec::new());
    while out.len() < links_max
        && let Some((found, _)) = store.next(txn, &from, &end)?
    {
        let (parent, upcased) = key::parse_link(&found).ok_or(FsError::damaged("link"))?;
        let name = match entry(store, txn, parent, &upcased) {
            Ok(record) => record.name,
            Err(FsError::NotFound) => return Err(FsError::damaged("link without entry")),
            Err(error) => return Err(error),
        };
        out.push(HardLink { parent, name });
        from = found;
        from.push(0);
    }
    Ok(out)
}

/// Finds the path of a file by one of its names: `\` between names, none before the first; empty for the root.
///
/// # Errors
/// `NotFound` if it has no name.
pub fn path(meta: &mut Metadata, file: FileId) -> Result<WideString, FsError> {
    let txn = Transaction::new();
    let (mut names, mut at) = (Vec::new(), file);
    while at != FileId::ROOT {
        let link = links_in(&mut meta.store, &txn, at, 1)?.pop().ok_or(FsError::NotFound)?;
        names.push(link.name);
        at = link.parent;
        if names.len() > DEPTH_MAX {
            return Err(FsError::damaged("directories in a loop"));
        }
    }
    names.reverse();
    Ok(names.join(&u16::from(b'\\')).into())
}

fn refuse_loop(store: &mut Store, txn: &Transaction, moved: FileId, target: FileId) -> Result<(), FsError> {
    let mut at = target;
    for _ in 0..DEPTH_MAX {
        if at == moved {
            return Err(FsError::Loop);
        }
        if at == FileId::ROOT {
            return Ok(());
        }
        at = links_in(store, txn, at, 1)?.pop().ok_or(FsError::NotFound)?.parent;
    }
    Err(FsError::damaged("directories in a loop"))
}

fn put_link(txn: &mut Transaction, file: FileId, directory: bool, parent: FileId, name: &[u16]) {
    let record = EntryRecord { file, directory, name: name.into() };
    txn.put(key::entry(parent, name), record.encode());
    txn.put(key::link(file, parent, name), Vec::new());
}

fn remove_link(
    meta: &mut Metadata,
    txn: &mut Transaction,
    parent: FileId,
    name: &[u16],
    now: FileTime,
) -> Result<Unlinked, FsError> {
    let Metadata { store, quotas, .. } = meta;
    let record = entry(store, txn, parent, name)?;
    let mut inode = inode(store, txn, record.file)?;
    if inode.directory && !has_no_entries(store, txn, record.file)? {
        return Err(FsError::NotEmpty);
    }
    let before = charge_of_inode(&inode);
    inode.link_count = inode.link_count.saturating_sub(1);
    quotas.charge(store, txn, (record.file, inode.security), (before, charge_of_inode(&inode)))?;
    inode.changed = now;
    let last = inode.link_count == 0;
    put_inode(txn, record.file, &inode);
    txn.delete(key::entry(parent, name));
    txn.delete(key::link(record.file, parent, name));
    if last {
        txn.put(key::orphan(StreamId { file: record.file, index: key::WHOLE_FILE }), Vec::new());
    }
    Ok(Unlinked { file: record.file, last })
}

fn touch_directory(txn: &mut Transaction, file: FileId, mut inode: Inode, now: FileTime) {
    inode.written = now;
    inode.changed = now;
    put_inode(txn, file, &inode);
}
