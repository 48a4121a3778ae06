//! Named data streams of files: made, found, renamed, listed, removed.

use ::types::FileTime;

use super::data::Streams;
use super::inodes::{inode, put_inode, stream_record};
use super::meta::record::{StreamRecord, decode_number, encode_number};
use super::meta::{Store, Transaction, key};
use super::metadata::Metadata;
use super::namespace::check_name;
use super::quota::charge_of_stream;
use super::types::{FileId, FsError, StreamId, StreamInformation};
use super::upcase::names_equal;

/// Most named streams of a file, so that listing and removing them takes bounded time. NTFS, whose list of attributes has at most 256 KiB,
/// holds about as many.
pub const NAMED_STREAMS_MAX: usize = 4096;

fn stream_index(store: &mut Store, txn: &Transaction, file: FileId, name: &[u16]) -> Result<u32, FsError> {
    let value = store.get(txn, &key::stream_name(file, name))?.ok_or(FsError::NotFound)?;
    let number = decode_number(&value).ok_or(FsError::damaged("stream index"))?;
    u32::try_from(number).map_err(|_| FsError::damaged("stream index"))
}

/// Finds the named stream of a file, ignoring case. Directories can have streams too.
///
/// # Errors
/// `NotFound`.
pub fn find_stream(meta: &mut Metadata, file: FileId, name: &[u16]) -> Result<StreamId, FsError> {
    let txn = Transaction::new();
    inode(&mut meta.store, &txn, file)?;
    Ok(StreamId { file, index: stream_index(&mut meta.store, &txn, file, name)? })
}

/// Makes an empty named stream.
///
/// # Errors
/// `Exists`, `NameInvalid`, `NotFound`; `TooManyStreams` beyond [`NAMED_STREAMS_MAX`]; `QuotaExceeded`.
pub fn create_stream(
    meta: &mut Metadata,
    file: FileId,
    name: &[u16],
    now: FileTime,
) -> Result<StreamId, FsError> {
    check_name(name)?;
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, file)?;
    if meta.store.get(&txn, &key::stream_name(file, name))?.is_some() {
        return Err(FsError::Exists);
    }
    check_stream_room(&mut meta.store, &txn, file, inode.next_stream)?;
    let record = StreamRecord { end_of_file: 0, allocated_blocks: 0, name: name.into() };
    let charge = (0, charge_of_stream(&record));
    meta.quotas.charge_metadata(&mut meta.store, &mut txn, (file, &inode), charge)?;
    let stream = StreamId { file, index: inode.next_stream };
    inode.next_stream = inode.next_stream.checked_add(1).ok_or(FsError::TooLarge)?;
    inode.changed = now;
    put_inode(&mut txn, file, &inode);
    txn.put(key::stream(stream), record.encode());
    txn.put(key::stream_name(file, name), encode_number(u64::from(stream.index)));
    meta.record(txn);
    Ok(stream)
}

/// Checks that a file may have one more stream.
///
/// # Errors
/// `TooManyStreams` if the file has [`NAMED_STREAMS_MAX`], including those being reclaimed. They are
/// counted only if that many were ever made.
fn check_stream_room(
    store: &mut Store,
    txn: &Transaction,
    file: FileId,
    next_stream: u32,
) -> Result<(), FsError> {
    if next_stream as usize <= NAMED_STREAMS_MAX {
        return Ok(());
    }
    let (mut from, end) = (key::streams(file), key::after(&key::streams(file)));
    for _ in 0..NAMED_STREAMS_MAX {
        let Some((found, _)) = store.next(txn, &from, &end)? else { return Ok(()) };
        from = found;
        from.push(0);
    }
    Err(FsError::TooManyStreams)
}

/// Gives a named stream another name.
///
/// # Errors
/// `Exists`, `NameInvalid`, `NotFound`; `Invalid` for the unnamed stream.
pub fn rename_stream(
    meta: &mut Metadata,
    stream: StreamId,
    name: &[u16],
    now: FileTime,
) -> Result<(), FsError> {
    check_name(name)?;
    if stream.index == 0 {
        return Err(FsError::Invalid("the unnamed stream has no name to change"));
    }
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, stream.file)?;
    let mut record = stream_record(&mut meta.store, &txn, stream)?;
    let new_key = key::stream_name(stream.file, name);
    if !names_equal(&record.name, name) && meta.store.get(&txn, &new_key)?.is_some() {
        return Err(FsError::Exists);
    }
    txn.delete(key::stream_name(stream.file, &record.name));
    txn.put(new_key, encode_number(u64::from(stream.index)));
    record.name = name.into();
    txn.put(key::stream(stream), record.encode());
    inode.changed = now;
    put_inode(&mut txn, stream.file, &inode);
    meta.record(txn);
    Ok(())
}

/// Takes a stream's name away. It lives on until [`FileSystem::reclaim_stream`](super::FileSystem::reclaim_stream), or until the volume is
/// opened again.
///
/// # Errors
/// `NotFound`; `Invalid` for the unnamed stream.
pub fn unlink_stream(meta: &mut Metadata, stream: StreamId, now: FileTime) -> Result<(), FsError> {
    if stream.index == 0 {
        return Err(FsError::Invalid("the unnamed stream goes with its file only"));
    }
    let mut txn = Transaction::new();
    let mut inode = inode(&mut meta.store, &txn, stream.file)?;
    let mut record = stream_record(&mut meta.store, &txn, stream)?;
    if record.name.is_empty() {
        return Err(FsError::NotFound);
    }
    txn.delete(key::stream_name(stream.file, &record.name));
    record.name = [].into();
    txn.put(key::stream(stream), record.encode());
    txn.put(key::orphan(stream), Vec::new());
    inode.changed = now;
    put_inode(&mut txn, stream.file, &inode);
    meta.record(txn);
    Ok(())
}

/// Lists all streams: the unnamed one first (files only), the others in the order they were made.
pub fn streams(
    meta: &mut Metadata,
    cached: &Streams,
    file: FileId,
) -> Result<Vec<StreamInformation>, FsError> {
    let txn = Transaction::new();
    let inode = inode(&mut meta.store, &txn, file)?;
    let mut out = Vec::new();
    if !inode.directory {
        let stream = StreamId::unnamed(file);
        let (end_of_file, allocation_bytes) = cached.sizes(stream, inode.end_of_file, inode.allocated_blocks);
        out.push(StreamInformation { stream, name: [].into(), end_of_file, allocation_bytes });
    }
    let prefix = key::streams(file);
    let (mut from, end) = (prefix.clone(), key::after(&prefix));
    while let Some((found, value)) = meta.store.next(&txn, &from, &end)? {
        let index = key::parse_stream(&found).ok_or(FsError::damaged("stream"))?;
        let record = StreamRecord::decode(&value).ok_or(FsError::damaged("stream"))?;
        from = found;
        from.push(0);
        if record.name.is_empty() {
            continue;
        }
        let stream = StreamId { file, index };
        let (end_of_file, allocation_bytes) =
            cached.sizes(stream, record.end_of_file, record.allocated_blocks);
        out.push(StreamInformation { stream, name: record.name, end_of_file, allocation_bytes });
    }
    Ok(out)
}

/// Returns one stream's sizes and name.
pub fn stream_information(
    meta: &mut Metadata,
    cached: &Streams,
    stream: StreamId,
) -> Result<StreamInformation, FsError> {
    let txn = Transaction::new();
    let (name, end_of_file, blocks) = if stream.index == 0 {
        let inode = inode(&mut meta.store, &txn, stream.file)?;
        if inode.directory {
            return Err(FsError::IsDirectory);
        }
        ([].into(), inode.end_of_file, inode.allocated_blocks)
    } else {
        let record = stream_record(&mut meta.store, &txn, stream)?;
        (record.name, record.end_of_file, record.allocated_blocks)
    };
    let (end_of_file, allocation_bytes) = cached.sizes(stream, end_of_file, blocks);
    Ok(StreamInformation { stream, name, end_of_file, allocation_bytes })
}
