//! Properties of a file beside its data: extended attributes, reparse data, object id.
//!
//! All are opaque here. Values longer than a metadata value are stored in pieces.

use ::types::{FileTime, attribute};

use super::blob::{blob, put_blob};
use super::extended_attributes::{AttributeList, unpack_attributes as unpack};
use super::inodes::{inode, put_inode};
use super::meta::record::{decode_number, encode_number};
use super::meta::{Store, Transaction, key};
use super::metadata::Metadata;
use super::quota::charge_of_metadata;
use super::types::{ExtendedAttribute, FileId, FsError};

/// Longest reparse data in bytes (MS-FSCC 2.1.2: MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
pub const REPARSE_BYTES_MAX: usize = 16384;

/// Lists all extended attributes, in the order they were first set.
pub fn extended_attributes(meta: &mut Metadata, file: FileId) -> Result<Vec<ExtendedAttribute>, FsError> {
    unpack_attributes(&mut meta.store, &Transaction::new(), file)
}

/// Sets each of these attributes; one with an empty value is removed. All or none.
///
/// # Errors
/// `TooLarge` beyond [`EXTENDED_ATTRIBUTE_BYTES_MAX`](super::EXTENDED_ATTRIBUTE_BYTES_MAX), `Invalid` for an empty name, `QuotaExceeded`.
pub fn set_extended_attributes(
    meta: &mut Metadata,
    file: FileId,
    set: &[ExtendedAttribute],
    now: FileTime,
) -> Result<(), FsError> {
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, file)?;
    let mut list = AttributeList::new(unpack_attributes(&mut meta.store, &txn, file)?);
    list.merge(set)?;
    let (packed, full_bytes) = list.pack()?;
    put_blob(&mut meta.store, &mut txn, &key::extended_attributes(file), &packed)?;
    let blocks = [inode.extended_attribute_bytes, full_bytes].map(u64::from).map(charge_of_metadata);
    meta.quotas.charge_metadata(&mut meta.store, &mut txn, (file, &inode), blocks.into())?;
    inode.extended_attribute_bytes = full_bytes;
    inode.changed = now;
    put_inode(&mut txn, file, &inode);
    meta.record(txn);
    Ok(())
}

fn unpack_attributes(
    store: &mut Store,
    txn: &Transaction,
    file: FileId,
) -> Result<Vec<ExtendedAttribute>, FsError> {
    if inode(store, txn, file)?.extended_attribute_bytes == 0 {
        return Ok(Vec::new());
    }
    let packed = blob(store, txn, &key::extended_attributes(file))?;
    unpack(&packed).ok_or(FsError::damaged("extended attributes"))
}

/// Reads the reparse point's data as it was set, or nothing.
pub fn reparse_data(meta: &mut Metadata, file: FileId) -> Result<Option<Vec<u8>>, FsError> {
    let txn = Transaction::new();
    if inode(&mut meta.store, &txn, file)?.reparse_tag == 0 {
        return Ok(None);
    }
    blob(&mut meta.store, &txn, &key::reparse(file)).map(Some)
}

/// Makes the file a reparse point with this tag and data, or an ordinary file again.
pub fn set_reparse(
    meta: &mut Metadata,
    file: FileId,
    point: Option<(u32, &[u8])>,
    now: FileTime,
) -> Result<(), FsError> {
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, file)?;
    let (tag, data) = point.unwrap_or((0, &[]));
    if data.len() > REPARSE_BYTES_MAX {
        return Err(FsError::TooLarge);
    }
    if point.is_some() && tag == 0 {
        return Err(FsError::Invalid("a reparse tag of 0"));
    }
    put_blob(&mut meta.store, &mut txn, &key::reparse(file), data)?;
    let blocks = charge_of_metadata(data.len() as u64);
    let charges = (u64::from(inode.reparse_blocks), blocks);
    meta.quotas.charge_metadata(&mut meta.store, &mut txn, (file, &inode), charges)?;
    inode.reparse_blocks = u8::try_from(blocks).unwrap_or(u8::MAX);
    inode.reparse_tag = tag;
    inode.attributes &= !attribute::REPARSE_POINT;
    inode.attributes |= if tag == 0 { 0 } else { attribute::REPARSE_POINT };
    inode.changed = now;
    put_inode(&mut txn, file, &inode);
    meta.record(txn);
    Ok(())
}

/// Reads the file's object id (MS-FSCC 2.1.3.1), if it has one.
pub fn object_id(meta: &mut Metadata, file: FileId) -> Result<Option<[u8; 16]>, FsError> {
    let txn = Transaction::new();
    if !inode(&mut meta.store, &txn, file)?.has_object_id {
        return Ok(None);
    }
    let value = meta.store.get(&txn, &key::file_object_id(file))?;
    let id = value.and_then(|value| <[u8; 16]>::try_from(&value[..]).ok());
    id.map(Some).ok_or(FsError::damaged("object id"))
}

/// Sets or removes the file's object id.
///
/// # Errors
/// `Exists` if another file has it.
pub fn set_object_id(meta: &mut Metadata, file: FileId, id: Option<[u8; 16]>) -> Result<(), FsError> {
    let old = object_id(meta, file)?;
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, file)?;
    if let Some(old) = old {
        txn.delete(key::object_id(old));
        txn.delete(key::file_object_id(file));
    }
    if let Some(id) = id {
        if meta.store.get(&txn, &key::object_id(id))?.is_some() {
            return Err(FsError::Exists);
        }
        txn.put(key::object_id(id), encode_number(file.0));
        txn.put(key::file_object_id(file), id.to_vec());
    }
    inode.has_object_id = id.is_some();
    put_inode(&mut txn, file, &inode);
    meta.record(txn);
    Ok(())
}

/// Finds the file that has this object id.
pub fn file_by_object_id(meta: &mut Metadata, id: [u8; 16]) -> Result<FileId, FsError> {
    let value = meta.store.get(&Transaction::new(), &key::object_id(id))?.ok_or(FsError::NotFound)?;
    decode_number(&value).map(FileId).ok_or(FsError::damaged("object id"))
}
