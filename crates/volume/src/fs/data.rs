//! Data of streams.

use std::collections::HashMap;
use std::task::Poll;

use super::FileSystem;
use super::meta::{Transaction, key};
use super::namespace::ATTRIBUTE_SPARSE_FILE;
use super::types::{FileId, FsError, StreamId};
use ::types::{BLOCK_BYTES, FileTime};
use sys::{Buf, BufMut, Payload};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Largest stream in bytes: 2^60.
pub const STREAM_BYTES_MAX: u64 = 1 << 60;

/// Blocks of streams.
#[derive(Debug, Default)]
pub struct Data {
    blocks: HashMap<(StreamId, u64), Buf>,
    allocated: HashMap<StreamId, u64>,
}

impl FileSystem {
    /// End of file and allocation in bytes, as clients see them.
    pub(super) fn stream_sizes(&self, stream: StreamId, end_of_file: u64, blocks: u64) -> (u64, u64) {
        let allocated = self.data.allocated.get(&stream).copied().unwrap_or(0);
        (end_of_file, allocated.max(blocks) * BLOCK)
    }

    fn end_of_file(&mut self, stream: StreamId) -> Result<u64, FsError> {
        Ok(self.stream_information(stream)?.end_of_file)
    }

    fn put_end_of_file(&mut self, stream: StreamId, end: u64, now: Option<FileTime>) -> Result<(), FsError> {
        let mut txn = Transaction::new();
        let mut inode = self.inode(&txn, stream.file)?;
        if stream.index == 0 {
            inode.end_of_file = end;
        } else {
            let mut record = self.stream_record(&txn, stream)?;
            record.end_of_file = end;
            txn.put(key::stream(stream), record.encode());
        }
        if let Some(now) = now {
            inode.written = now;
            inode.changed = now;
        }
        Self::put_inode(&mut txn, stream.file, &inode);
        self.commit(txn)
    }

    /// Reads: fewer bytes than asked where the stream ends, none at or behind its end. Sparse ranges read as zeroes.
    /// `Pending`: [`super::FsEvent::Read`] carries the answer.
    pub fn read(
        &mut self,
        _token: u64,
        stream: StreamId,
        offset: u64,
        len_bytes: u32,
    ) -> Poll<Result<Payload, FsError>> {
        Poll::Ready(self.read_now(stream, offset, len_bytes))
    }

    fn read_now(&mut self, stream: StreamId, offset: u64, len_bytes: u32) -> Result<Payload, FsError> {
        let end = self.end_of_file(stream)?;
        let len = u64::from(len_bytes).min(end.saturating_sub(offset));
        let mut out = BufMut::zeroed(len as usize);
        for at in 0..len {
            let position = offset + at;
            if let Some(block) = self.data.blocks.get(&(stream, position / BLOCK)) {
                out[at as usize] = block[(position % BLOCK) as usize];
            }
        }
        Ok(Payload::from(out.freeze()))
    }

    /// Writes, growing the stream where needed. Answers when the bytes are in the cache, or, with `durable`, when they
    /// and the metadata that makes them readable survive a crash. Times are the caller's to [`FileSystem::touch`].
    /// `Pending`: [`super::FsEvent::Written`] carries the answer.
    ///
    /// # Errors
    /// `NoSpace` (nothing was written), `TooLarge`.
    pub fn write(
        &mut self,
        _token: u64,
        stream: StreamId,
        offset: u64,
        data: Payload,
        _durable: bool,
    ) -> Poll<Result<(), FsError>> {
        Poll::Ready(self.write_now(stream, offset, &data))
    }

    fn write_now(&mut self, stream: StreamId, offset: u64, data: &Payload) -> Result<(), FsError> {
        self.ready_to_change()?;
        let new_end = offset.checked_add(data.len() as u64).ok_or(FsError::TooLarge)?;
        if new_end > STREAM_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        let end = self.end_of_file(stream)?;
        let bytes = data.contiguous();
        let mut at = 0;
        while at < bytes.len() {
            let position = offset + at as u64;
            let within = (position % BLOCK) as usize;
            let take = (BLOCK_BYTES - within).min(bytes.len() - at);
            let mut block = BufMut::zeroed(BLOCK_BYTES);
            if let Some(old) = self.data.blocks.get(&(stream, position / BLOCK)) {
                block.copy_from_slice(old);
            } else {
                *self.data.allocated.entry(stream).or_default() += 1;
            }
            block[within..within + take].copy_from_slice(&bytes[at..at + take]);
            self.data.blocks.insert((stream, position / BLOCK), block.freeze());
            at += take;
        }
        if new_end > end {
            self.put_end_of_file(stream, new_end, None)?;
        }
        Ok(())
    }

    /// Makes all of a file's data and everything done to any metadata so far durable.
    /// `Pending`: [`super::FsEvent::Flushed`] carries the answer.
    pub fn flush(&mut self, _token: u64, _file: FileId) -> Poll<Result<(), FsError>> {
        Poll::Ready(self.ready())
    }

    /// Makes everything done to any metadata so far durable; data that was not flushed stays unpublished.
    /// `Pending`: [`super::FsEvent::Flushed`] carries the answer.
    pub fn flush_metadata(&mut self, _token: u64) -> Poll<Result<(), FsError>> {
        Poll::Ready(self.ready())
    }

    /// Makes all data and metadata durable: before the volume is let go of.
    /// `Pending`: [`super::FsEvent::Flushed`] carries the answer.
    pub fn flush_all(&mut self, _token: u64) -> Poll<Result<(), FsError>> {
        Poll::Ready(self.ready())
    }

    /// Sets the end of a stream: cuts it off, or lets it grow by zeroes without allocating.
    pub fn set_end_of_file(&mut self, stream: StreamId, end: u64, now: FileTime) -> Result<(), FsError> {
        self.ready_to_change()?;
        if end > STREAM_BYTES_MAX {
            return Err(FsError::TooLarge);
        }
        let old = self.end_of_file(stream)?;
        if end < old {
            self.zero(stream, end, old.next_multiple_of(BLOCK) - end);
        }
        self.put_end_of_file(stream, end, Some(now))
    }

    /// Sets how many bytes are allocated from the stream's start: allocates holes, or cuts off what lies beyond, the
    /// end of the stream included.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`.
    pub fn set_allocation(&mut self, stream: StreamId, bytes: u64, now: FileTime) -> Result<(), FsError> {
        if bytes < self.end_of_file(stream)? {
            return self.set_end_of_file(stream, bytes, now);
        }
        self.data.allocated.insert(stream, bytes.div_ceil(BLOCK));
        Ok(())
    }

    fn zero(&mut self, stream: StreamId, offset: u64, len_bytes: u64) {
        let last = offset.saturating_add(len_bytes);
        let touched: Vec<u64> = self
            .data
            .blocks
            .keys()
            .filter(|(owner, block)| *owner == stream && block * BLOCK < last && (block + 1) * BLOCK > offset)
            .map(|(_, block)| *block)
            .collect();
        for block in touched {
            let start = block * BLOCK;
            let (from, to) = (offset.max(start) - start, last.min(start + BLOCK) - start);
            if to - from == BLOCK {
                self.data.blocks.remove(&(stream, block));
                self.data.allocated.entry(stream).and_modify(|blocks| *blocks -= 1);
            } else if let Some(old) = self.data.blocks.get(&(stream, block)) {
                let mut new = BufMut::zeroed(BLOCK_BYTES);
                new.copy_from_slice(old);
                new[from as usize..to as usize].fill(0);
                self.data.blocks.insert((stream, block), new.freeze());
            }
        }
    }

    /// The range reads as zeroes afterwards. Whole blocks are given back, but those of files that are not sparse stay
    /// allocated.
    pub fn zero_range(
        &mut self,
        stream: StreamId,
        offset: u64,
        len_bytes: u64,
        now: FileTime,
    ) -> Result<(), FsError> {
        self.ready_to_change()?;
        let end = self.end_of_file(stream)?;
        self.zero(stream, offset, len_bytes.min(end.saturating_sub(offset)));
        self.put_end_of_file(stream, end, Some(now))
    }

    /// Ranges (offset, length in bytes) that hold data within the given one; all of it where the file is not sparse.
    pub fn allocated_ranges(
        &mut self,
        stream: StreamId,
        offset: u64,
        len_bytes: u64,
        ranges_max: usize,
    ) -> Result<Vec<(u64, u64)>, FsError> {
        let end = self.end_of_file(stream)?.min(offset.saturating_add(len_bytes));
        if self.inode(&Transaction::new(), stream.file)?.attributes & ATTRIBUTE_SPARSE_FILE == 0 {
            return Ok(if offset < end { vec![(offset, end - offset)] } else { Vec::new() });
        }
        let mut blocks: Vec<u64> =
            self.data.blocks.keys().filter(|key| key.0 == stream).map(|key| key.1).collect();
        blocks.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::new();
        for block in blocks {
            let (from, to) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
            match out.last_mut() {
                _ if from >= to => {}
                Some(last) if last.0 + last.1 == from => last.1 += to - from,
                _ => out.push((from, to - from)),
            }
        }
        out.truncate(ranges_max);
        Ok(out)
    }

    /// Lets the target's range share the source's blocks. Offsets are multiples of the block; the length too, unless it
    /// ends at the source's end of file. Both ranges must lie within their streams.
    pub fn clone_range(
        &mut self,
        source: StreamId,
        source_offset: u64,
        target: StreamId,
        target_offset: u64,
        len_bytes: u64,
        now: FileTime,
    ) -> Result<(), FsError> {
        self.ready_to_grow()?;
        if !source_offset.is_multiple_of(BLOCK) || !target_offset.is_multiple_of(BLOCK) {
            return Err(FsError::Invalid("block cloning needs whole blocks"));
        }
        for block in 0..len_bytes.div_ceil(BLOCK) {
            let to = (target, target_offset / BLOCK + block);
            match self.data.blocks.get(&(source, source_offset / BLOCK + block)).cloned() {
                Some(data) => drop(self.data.blocks.insert(to, data)),
                None => drop(self.data.blocks.remove(&to)),
            }
        }
        let end = self.end_of_file(target)?;
        self.put_end_of_file(target, end, Some(now))
    }

    /// Gives back all of a file that has no name and is no longer used.
    pub fn reclaim(&mut self, file: FileId) -> Result<(), FsError> {
        self.ready_to_change()?;
        let mut txn = Transaction::new();
        if self.inode(&txn, file)?.link_count != 0 {
            return Err(FsError::Invalid("a file with names is not reclaimed"));
        }
        let (mut from, end) = (key::file_first(file), key::file_first(FileId(file.0 + 1)));
        while let Some((found, _)) = self.meta.next(&txn, &from, &end)? {
            from = found.clone();
            from.push(0);
            txn.delete(found);
        }
        txn.delete(key::orphan(StreamId { file, index: key::WHOLE_FILE }));
        self.data.blocks.retain(|(stream, _), _| stream.file != file);
        self.lazy_times.remove(&file);
        self.commit(txn)
    }

    /// Gives back all of a stream that has no name and is no longer used.
    pub fn reclaim_stream(&mut self, stream: StreamId) -> Result<(), FsError> {
        self.ready_to_change()?;
        let mut txn = Transaction::new();
        txn.delete(key::stream(stream));
        txn.delete(key::orphan(stream));
        self.data.blocks.retain(|(owner, _), _| *owner != stream);
        self.commit(txn)
    }
}
