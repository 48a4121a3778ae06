//! Records of files and streams, read from the store and put into transactions.

use ::types::attribute;

use super::meta::record::{Inode, StreamRecord};
use super::meta::{Store, Transaction, key};
use super::types::{AttributeChange, FileId, FsError, NewFile, SecurityId, StreamId};

/// Attributes that callers may set; the others follow from the kind of file.
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

/// Reads a file's inode.
///
/// # Errors
/// `NotFound` if the id names no file.
pub fn inode(store: &mut Store, txn: &Transaction, file: FileId) -> Result<Inode, FsError> {
    let value = store.get(txn, &key::inode(file))?.ok_or(FsError::NotFound)?;
    Inode::decode(&value).ok_or(FsError::damaged("inode"))
}

/// Replaces a file's inode.
pub fn put_inode(txn: &mut Transaction, file: FileId, inode: &Inode) {
    txn.put(key::inode(file), inode.encode());
}

/// Reads the record of a named stream.
///
/// # Errors
/// `NotFound` if there is none.
pub fn stream_record(
    store: &mut Store,
    txn: &Transaction,
    stream: StreamId,
) -> Result<StreamRecord, FsError> {
    let value = store.get(txn, &key::stream(stream))?.ok_or(FsError::NotFound)?;
    StreamRecord::decode(&value).ok_or(FsError::damaged("stream"))
}

/// Makes the inode of a file that has one name and no data.
pub fn new_inode(new: &NewFile<'_>, security: SecurityId) -> Inode {
    let directory = if new.directory { attribute::DIRECTORY } else { 0 };
    Inode {
        directory: new.directory,
        has_object_id: false,
        reparse_blocks: 0,
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

/// Changes an inode's times, and of its attributes those that a client may set.
pub fn apply(inode: &mut Inode, change: &AttributeChange) {
    inode.created = change.created.unwrap_or(inode.created);
    inode.accessed = change.accessed.unwrap_or(inode.accessed);
    inode.written = change.written.unwrap_or(inode.written);
    inode.changed = change.changed.unwrap_or(inode.changed);
    if let Some(attributes) = change.attributes {
        inode.attributes = attributes & SETTABLE_ATTRIBUTES | inode.attributes & !SETTABLE_ATTRIBUTES;
    }
}
