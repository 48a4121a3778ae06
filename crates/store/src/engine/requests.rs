//! Requests: they become tasks, or are refused at once.

use super::Store;
use super::append::{self, AppendTask};
use super::discard::DiscardTask;
use super::event::Next;
use super::place::Place;
use super::read::{READ_BLOCKS_MAX, ReadTask};
use super::scrub::ScrubTask;
use super::slab::{AllocateTask, FreeTask};
use super::tasks::Kind;
use super::volumes::Forgets;
use super::write::{WRITE_BLOCKS_MAX, WriteRequest, WriteTask};
use crate::api::{StoreError, StoreReply, StoreRequest, WriteClass};
use crate::layout::RECORDS_BYTES_MAX;
use crate::locks::Manner;
use crate::slots::SlotId;
use disk::Disk;
use std::ops::Range;
use types::{ChunkIndex, Epoch, Lba, VolumeId};

impl<D: Disk> Store<D> {
    /// Takes a request. Its answer carries `token`.
    pub fn submit(&mut self, token: u64, request: StoreRequest) {
        self.touched = true;
        if let Err(error) = self.take(token, request) {
            self.tasks.answer_at_once(token, Err(error));
        }
        self.start_ready();
    }

    fn take(&mut self, token: u64, request: StoreRequest) -> Result<(), StoreError> {
        let changes = !matches!(
            request,
            StoreRequest::Read { .. }
                | StoreRequest::Regions { .. }
                | StoreRequest::Chunks { .. }
                | StoreRequest::Scrub { .. }
        );
        if changes && self.poisoned {
            return Err(StoreError::Poisoned);
        }
        match request {
            StoreRequest::Promise { volume, epoch } => self.take_promise(token, volume, epoch),
            StoreRequest::Forget { volume } => self.take_forget(token, volume),
            StoreRequest::Unpromise { volume } => self.begin_forgetting(token, volume, Forgets::WithFence),
            StoreRequest::MarkLost { volume, stamp, lba, blocks } => {
                if blocks as usize > WRITE_BLOCKS_MAX {
                    return Err(StoreError::Invalid("at most 1 MiB is marked as lost at once"));
                }
                self.take_discard(token, volume, lba, blocks, DiscardTask::mark_lost(volume, stamp))
            }
            StoreRequest::AllocateChunk { volume, epoch, chunk, append } => {
                self.take_allocate(token, volume, epoch, chunk, append)
            }
            StoreRequest::FreeChunk { volume, epoch, chunk } => self.take_free(token, volume, epoch, chunk),
            StoreRequest::Read { volume, lba, blocks } => self.take_read(token, volume, lba, blocks),
            StoreRequest::Write { volume, stamp, lba, class, data, checksums } => {
                self.take_write(token, WriteRequest { volume, stamp, lba, class, data, checksums })
            }
            StoreRequest::Discard { volume, stamp, lba, blocks } => {
                self.take_discard(token, volume, lba, blocks, DiscardTask::new(volume, stamp))
            }
            StoreRequest::Regions { volume, chunk } => self.take_regions(token, volume, chunk),
            StoreRequest::Chunks { volume } => {
                let chunks = self.slabs.chunks_of(volume);
                self.tasks.answer_at_once(token, Ok(StoreReply::Chunks(chunks)));
                Ok(())
            }
            StoreRequest::Scrub { bytes } => self.take_scrub(token, bytes),
            StoreRequest::SetRecords { records } => self.take_set_records(token, records),
        }
    }

    fn take_read(&mut self, token: u64, volume: VolumeId, lba: Lba, blocks: u32) -> Result<(), StoreError> {
        if blocks > READ_BLOCKS_MAX {
            return Err(StoreError::Invalid("a read of more than 4 MiB"));
        }
        let (place, entry) = self.slabs.locate(volume, lba, blocks, &self.layout)?;
        let read = ReadTask::new(volume, lba, entry.append, None);
        let id = self.tasks.take(token, Some(place), Kind::Read(read));
        self.go_on(id, Next::Gather);
        if let Some(task) = self.tasks.get_mut(id).filter(|task| task.pages_missing > 0)
            && let Kind::Read(read) = &mut task.kind
        {
            read.read_early(id, place, &self.layout, &self.overlay, &mut self.device);
        }
        Ok(())
    }

    fn take_write(&mut self, token: u64, request: WriteRequest) -> Result<(), StoreError> {
        let WriteRequest { volume, stamp, lba, class, .. } = request;
        let blocks = request.blocks()?;
        self.volumes.check(volume, stamp.epoch())?;
        let (place, entry) = self.slabs.locate(volume, lba, blocks, &self.layout)?;
        if entry.append != (class == WriteClass::Append) {
            return Err(StoreError::Invalid("append writes go to append chunks, others do not"));
        }
        request.check_data(blocks, self.options.verify_writes)?;
        self.checkpoint.unstall();
        let (kind, span, manner) = if class == WriteClass::Append {
            // Until a region of an append chunk is known to be written, its first writer zeroes the rest of it.
            let settled = !self.tasks.awaits_discard(place.slab)
                && append::is_settled(place, stamp.epoch(), &self.layout, &mut self.pages.cache);
            let span = if settled { place.blocks() } else { place.regions() };
            (Kind::Append(AppendTask::new(volume, stamp, request.data)), span, Manner::InPlace)
        } else {
            let write = WriteTask::new(request);
            let manner = write.manner();
            (Kind::Write(write), place.blocks(), manner)
        };
        let id = self.tasks.take(token, Some(place), kind);
        self.join(id, place, span, manner);
        Ok(())
    }

    fn take_discard(
        &mut self,
        token: u64,
        volume: VolumeId,
        lba: Lba,
        blocks: u32,
        discard: DiscardTask,
    ) -> Result<(), StoreError> {
        let (place, _) = self.slabs.locate(volume, lba, blocks, &self.layout)?;
        discard.check_fence(&self.volumes)?;
        self.checkpoint.unstall();
        let id = self.tasks.take(token, Some(place), Kind::Discard(discard));
        self.join(id, place, place.blocks(), Manner::Emptying);
        Ok(())
    }

    /// Joins the slab's queue.
    fn join(&mut self, id: SlotId, place: Place, span: Range<u32>, manner: Manner) {
        if self.tasks.join(id, place.slab, span, manner) {
            self.go_on(id, Next::Gather);
        }
    }

    fn take_allocate(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
        chunk: ChunkIndex,
        append: bool,
    ) -> Result<(), StoreError> {
        self.volumes.check(volume, epoch)?;
        if let Some(entry) = self.slabs.find(volume, chunk).and_then(|slab| self.slabs.entry(slab)) {
            if entry.append != append {
                return Err(StoreError::Invalid("the chunk has a slab of the other kind"));
            }
            self.tasks.answer_at_once(token, Ok(StoreReply::Done));
            return Ok(());
        }
        self.checkpoint.unstall();
        let allocate = AllocateTask::new(volume, chunk, epoch, append);
        let id = self.tasks.take(token, None, Kind::Allocate(allocate));
        if self.slabs.begin_allocating(volume, chunk, id) {
            self.go_on(id, Next::Gather);
        }
        Ok(())
    }

    fn take_free(
        &mut self,
        token: u64,
        volume: VolumeId,
        epoch: Epoch,
        chunk: ChunkIndex,
    ) -> Result<(), StoreError> {
        self.volumes.check(volume, epoch)?;
        let slab = self.slabs.find(volume, chunk).ok_or(StoreError::NotMapped)?;
        let generation = self.slabs.entry(slab).ok_or(StoreError::NotMapped)?.generation;
        let place = Place { slab, generation, first: 0, count: self.layout.slab_blocks() };
        self.checkpoint.unstall();
        let id = self.tasks.take(token, Some(place), Kind::Free(FreeTask::new(volume, epoch)));
        self.join(id, place, place.blocks(), Manner::InPlace);
        Ok(())
    }

    fn take_promise(&mut self, token: u64, volume: VolumeId, epoch: Epoch) -> Result<(), StoreError> {
        self.volumes.raise_fence(volume, epoch)?;
        let id = self.tasks.take(token, None, Kind::Promise { volume, epoch });
        if !self.volumes.await_in_place(volume, id) {
            self.go_on(id, Next::Gather);
        }
        Ok(())
    }

    fn take_forget(&mut self, token: u64, volume: VolumeId) -> Result<(), StoreError> {
        if !self.slabs.chunks_of(volume).is_empty() {
            return Err(StoreError::Invalid("chunks of the volume are here"));
        }
        self.begin_forgetting(token, volume, Forgets::KeepingFence)
    }

    fn begin_forgetting(&mut self, token: u64, volume: VolumeId, how: Forgets) -> Result<(), StoreError> {
        self.volumes.begin_forgetting(volume)?;
        let id = self.tasks.take(token, None, Kind::Forget { volume, how });
        self.go_on(id, Next::Gather);
        Ok(())
    }

    fn take_regions(&mut self, token: u64, volume: VolumeId, chunk: ChunkIndex) -> Result<(), StoreError> {
        let slab_blocks = self.layout.slab_blocks();
        let lba = Lba(u64::from(chunk.0) * u64::from(slab_blocks));
        let (place, _) = self.slabs.locate(volume, lba, slab_blocks, &self.layout)?;
        let id = self.tasks.take(token, Some(place), Kind::Regions);
        self.go_on(id, Next::Gather);
        Ok(())
    }

    fn take_scrub(&mut self, token: u64, bytes: u64) -> Result<(), StoreError> {
        let scrub = ScrubTask::new(bytes, &self.slabs, &self.layout);
        let id = self.tasks.take(token, None, Kind::Scrub(scrub));
        let (id, next) = self.scrub_on(id);
        self.go_on(id, next);
        Ok(())
    }

    fn take_set_records(&mut self, token: u64, records: Vec<u8>) -> Result<(), StoreError> {
        if records.len() > RECORDS_BYTES_MAX {
            return Err(StoreError::Invalid("records of more than 256 KiB"));
        }
        let id = self.tasks.take(token, None, Kind::Records);
        self.records.set(id, records, self.label.disk, &self.layout, &mut self.device);
        Ok(())
    }
}
