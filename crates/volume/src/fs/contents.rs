//! Callers' operations on the contents of streams.
//!
//! Brings the parts together: [`Data`](super::data::Data) has the contents, [`Base`](super::base::Base)
//! the layer below.

use std::task::Poll;

use ::types::{BLOCK_BYTES, FileTime, attribute};
use sys::Payload;

use super::FileSystem;
use super::data::{ParkedRead, ParkedWrite};
use super::inodes::{inode, stream_record};
use super::meta::{Transaction, key};
use super::types::{FileId, FsError, StreamId};

impl FileSystem {
    /// Reads: fewer bytes than asked if the stream ends, none at or behind its end. Sparse ranges read as zeroes.
    /// `Pending`: [`FsEvent::Read`](super::FsEvent::Read) carries the answer.
    pub fn read(
        &mut self,
        token: u64,
        stream: StreamId,
        offset: u64,
        len_bytes: u32,
    ) -> Poll<Result<Payload, FsError>> {
        self.data.read(ParkedRead { token, stream, offset, len_bytes }, true, &mut self.base)
    }

    /// Writes, growing the stream if needed. Answers when the bytes are in the cache, or, with `durable`, when they
    /// and the metadata that makes them readable survive a crash. Times are the caller's to [`FileSystem::touch`].
    /// `Pending`: [`FsEvent::Written`](super::FsEvent::Written) carries the answer.
    ///
    /// # Errors
    /// `NoSpace` (nothing was written), `TooLarge`.
    pub fn write(
        &mut self,
        token: u64,
        stream: StreamId,
        offset: u64,
        data: Payload,
        durable: bool,
    ) -> Poll<Result<(), FsError>> {
        self.data.write(ParkedWrite { token, stream, offset, data, durable }, &mut self.base)
    }

    /// Bytes that the volume could hold if nothing else were on it: no stream without holes is longer.
    #[inline]
    pub fn capacity_bytes(&self) -> u64 {
        let allocator = &self.base.meta.allocator;
        u64::from(allocator.chunk_count()) * u64::from(allocator.chunk_blocks()) * BLOCK_BYTES as u64
    }

    /// Whether a stream may end at `end` (MS-FSA 2.1.5.15.4): unless its file is sparse, the volume must
    /// have space for all bytes up to there. The space is compared and not reserved. It is that of the
    /// volume's addresses: only writing shows whether the pool of a thin volume has it. While deleted
    /// files' space is being freed, only the volume's capacity counts.
    pub fn has_room_for(&mut self, stream: StreamId, end: u64) -> Result<bool, FsError> {
        self.base.ready()?;
        let inode = inode(&mut self.base.meta.store, &Transaction::new(), stream.file)?;
        let found = self.stream_information(stream)?;
        let held_bytes = found.end_of_file.max(found.allocation_bytes);
        if inode.attributes & attribute::SPARSE_FILE != 0 || end <= held_bytes {
            return Ok(true);
        }
        let space_comes_back =
            !self.data.gives_nothing_back() || self.base.meta.allocator.pending_ticket().is_some();
        let statistics = self.statistics();
        let free_bytes = statistics.total_bytes.saturating_sub(statistics.used_bytes);
        Ok(end <= self.capacity_bytes() && (space_comes_back || end - held_bytes <= free_bytes))
    }

    /// Makes all of a file's data and everything done to any metadata so far durable.
    /// `Pending`: [`FsEvent::Flushed`](super::FsEvent::Flushed) carries the answer.
    pub fn flush(&mut self, token: u64, file: FileId) -> Poll<Result<(), FsError>> {
        let slots = self.data.streams.of_file(file);
        self.wait_for_flush(token, &slots, vec![file])
    }

    /// Makes everything done to any metadata so far durable; data that was not flushed stays unpublished.
    /// `Pending`: [`FsEvent::Flushed`](super::FsEvent::Flushed) carries the answer.
    pub fn flush_metadata(&mut self, token: u64) -> Poll<Result<(), FsError>> {
        self.wait_for_flush(token, &[], Vec::new())
    }

    /// Makes all data and metadata durable, before the volume is released. `Pending`:
    /// [`FsEvent::Flushed`](super::FsEvent::Flushed) carries the answer.
    pub fn flush_all(&mut self, token: u64) -> Poll<Result<(), FsError>> {
        let (slots, files) = (self.data.streams.all(), self.base.times.files());
        self.wait_for_flush(token, &slots, files)
    }

    fn wait_for_flush(
        &mut self,
        token: u64,
        slots: &[usize],
        files: Vec<FileId>,
    ) -> Poll<Result<(), FsError>> {
        if let Err(error) = self.base.ready() {
            return Poll::Ready(Err(error));
        }
        self.data.flush(token, slots, files, &mut self.base);
        Poll::Pending
    }

    /// Frees a file that has no name and is no longer used; long work continues in the background.
    ///
    /// # Errors
    /// `Invalid` if it has a name.
    pub fn reclaim(&mut self, file: FileId) -> Result<(), FsError> {
        self.base.ready()?;
        if inode(&mut self.base.meta.store, &Transaction::new(), file)?.link_count != 0 {
            return Err(FsError::Invalid("a file with names is not reclaimed"));
        }
        self.data.reclaim(StreamId { file, index: key::WHOLE_FILE }, &mut self.base);
        Ok(())
    }

    /// Frees a stream that has no name and is no longer used.
    ///
    /// # Errors
    /// `Invalid` if it has a name.
    pub fn reclaim_stream(&mut self, stream: StreamId) -> Result<(), FsError> {
        self.base.ready()?;
        let store = &mut self.base.meta.store;
        if stream.index == 0 || !stream_record(store, &Transaction::new(), stream)?.name.is_empty() {
            return Err(FsError::Invalid("a stream with a name is not reclaimed"));
        }
        self.data.reclaim(stream, &mut self.base);
        Ok(())
    }

    /// Sets the end of a stream: cuts it off, or lets it grow by zeroes without allocating.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn set_end_of_file(&mut self, id: StreamId, end: u64, now: FileTime) -> Result<(), FsError> {
        self.data.editor(&mut self.base).set_end_of_file(id, end, now)
    }

    /// Sets how many bytes are allocated from the stream's start: allocates holes, or cuts off everything
    /// beyond, the end of the stream included. Long allocations are made in steps: a crash may leave a
    /// part.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`.
    pub fn set_allocation(&mut self, id: StreamId, bytes: u64, now: FileTime) -> Result<(), FsError> {
        self.data.editor(&mut self.base).set_allocation(id, bytes, now)
    }

    /// Zeroes the range, up to the stream's end. Frees whole blocks.
    pub fn zero_range(
        &mut self,
        id: StreamId,
        offset: u64,
        len_bytes: u64,
        now: FileTime,
    ) -> Result<(), FsError> {
        self.data.editor(&mut self.base).zero_range(id, offset, len_bytes, now)
    }

    /// Finds ranges (offset, length in bytes) that hold data within the given one, all of it if the file is not sparse; and whether there
    /// may be more behind the last.
    pub fn allocated_ranges(
        &mut self,
        id: StreamId,
        offset: u64,
        len_bytes: u64,
        ranges_max: usize,
    ) -> Result<(Vec<(u64, u64)>, bool), FsError> {
        self.data.editor(&mut self.base).allocated_ranges(id, offset, len_bytes, ranges_max)
    }

    /// Lets the target's range share the source's blocks, all of which can be shared
    /// ([`CloneRange::shared_bytes`]). Returns how many bytes do now: fewer than requested, a multiple of
    /// the block, if there are many extents.
    ///
    /// # Errors
    /// `Invalid` if not all of it can be shared.
    ///
    /// [`CloneRange::shared_bytes`]: super::CloneRange::shared_bytes
    pub fn clone_range(
        &mut self,
        source: StreamId,
        source_offset: u64,
        target: StreamId,
        target_offset: u64,
        len_bytes: u64,
        now: FileTime,
    ) -> Result<u64, FsError> {
        let (from, to) = ((source, source_offset), (target, target_offset));
        self.data.editor(&mut self.base).clone_range(from, to, len_bytes, now)
    }
}
