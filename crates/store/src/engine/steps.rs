//! A task's steps: it gets an event and answers with its next step, which the store performs. All
//! news from one part to another passes here; the parts do not know each other's tasks.

use super::checkpoint::{Checkpoint, Ended};
use super::event::{Event, Next};
use super::operation::PageRead;
use super::pages::Arrival;
use super::place::Place;
use super::read::ReadTask;
use super::structures::{PassEnded, Structures};
use super::tasks::{Kind, Task};
use super::{Store, append, checkpoint, effect, read, regions, scrub, slab, structures, write};
use crate::api::{StoreError, StoreReply};
use crate::journal::{Pending, Standing};
use crate::planted::Planted;
use crate::record::Record;
use crate::slots::SlotId;
use disk::{Disk, DiskError};
use sys::{BufMut, Payload};
use types::{Epoch, SlabIndex};

impl<D: Disk> Store<D> {
    /// Sends a task an event and performs its next step.
    pub(super) fn tell(&mut self, id: SlotId, event: Event) {
        let next = self.step(id, event);
        // A write in place that ended may be the last one that a promise waited for.
        for promise in self.volumes.take_due() {
            self.go_on(promise, Next::Gather);
        }
        self.go_on(id, next);
    }

    /// Performs a task's next step, and all that follows. A loop, since a scrub of empty cached
    /// pieces continues at once.
    pub(super) fn go_on(&mut self, mut id: SlotId, mut next: Next) {
        loop {
            (id, next) = match next {
                Next::Wait => return,
                Next::Gather => (id, self.gather(id)),
                Next::Poll => {
                    self.moves += 1;
                    return self.small_fresh.push(id);
                }
                Next::Flush => return self.flushes.join(id),
                Next::Record(record, data) => return self.record(id, record, data, Standing::Counts),
                Next::RecordBeside(record) => {
                    return self.record(id, record, Payload::new(), Standing::Awaits);
                }
                Next::Placed => {
                    self.journal.placed(id);
                    if Planted::PlacedWithoutRecord.is_planted() {
                        self.tasks.answer(id, Ok(StoreReply::Done));
                    }
                    return self.commit_batches();
                }
                Next::Withdraw => {
                    self.moves += 1;
                    if self.journal.withdraw(id) {
                        self.tasks.answer(id, Err(StoreError::NoSpace));
                        return self.commit_batches();
                    }
                    (id, Next::fail(StoreError::NoSpace))
                }
                Next::Finish(result) => match self.finish(id, result) {
                    Some(follows) => follows,
                    None => return,
                },
            };
        }
    }

    /// Starts the changes whose turn has come.
    pub(super) fn start_ready(&mut self) {
        while let Some(id) = self.tasks.next_ready() {
            self.go_on(id, Next::Gather);
        }
    }

    /// Pins the task's pages, and reads those that are not in RAM. The task has its turn when all
    /// are.
    fn gather(&mut self, id: SlotId) -> Next {
        let Some(task) = self.tasks.get_mut(id) else { return Next::Wait };
        let Some(place) = task.place else { return self.step(id, Event::Turn) };
        // The slab may have been freed, or given to another chunk, since the task was taken.
        if !self.slabs.is_current(place) {
            return Next::fail(StoreError::NotMapped);
        }
        let words = task.word_ranges(place, &self.layout);
        debug_assert!(task.pinned.is_empty(), "pages are pinned once");
        (task.pinned, task.pages_missing) =
            self.pages.gather(id, place, words, &self.layout, &mut self.device);
        if task.pages_missing > 0 { Next::Wait } else { self.step(id, Event::Turn) }
    }

    /// Sends a task an event. Returns its next step.
    fn step(&mut self, id: SlotId, event: Event) -> Next {
        let Some(task) = self.tasks.get_mut(id) else { return Next::Wait };
        match (&mut task.kind, task.place) {
            (Kind::Read(read), Some(place)) => {
                let near = read::ReadNeighbours {
                    layout: &self.layout,
                    zeroes: &self.zeroes,
                    device: &mut self.device,
                    pages: &mut self.pages,
                    overlay: &self.overlay,
                    slabs: &self.slabs,
                    placing: &self.placing,
                    damage: &mut self.damage,
                    health: &mut self.health,
                };
                read.step(id, place, event, &mut task.pinned, near)
            }
            (Kind::Regions, Some(place)) => {
                let cache = &mut self.pages.cache;
                let regions = regions::regions_of(place.slab, &self.slabs, &self.layout, cache);
                Next::Finish(Ok(StoreReply::Regions(regions)))
            }
            (Kind::Write(_) | Kind::Append(_) | Kind::Discard(_), Some(place)) => {
                self.step_change(id, place, event)
            }
            (Kind::Free(_) | Kind::Allocate(_), _) => self.step_slab(id, event),
            (Kind::Promise { .. }, _) => self.step_promise(id, event),
            (Kind::Forget { .. }, _) => self.step_forget(id, event),
            (Kind::Scrub(_) | Kind::Records, _) | (_, None) => event.cannot_be(),
        }
    }

    fn step_change(&mut self, id: SlotId, place: Place, event: Event) -> Next {
        let alone = self.is_alone();
        match self.tasks.get_mut(id).map(|task| &mut task.kind) {
            Some(Kind::Write(write)) => {
                let near = write::WriteNeighbours {
                    layout: &self.layout,
                    device: &mut self.device,
                    pages: &mut self.pages,
                    volumes: &self.volumes,
                    slabs: &self.slabs,
                    checkpoint: &mut self.checkpoint,
                    damage: &mut self.damage,
                    health: &mut self.health,
                    alone,
                };
                write.step(id, place, event, near)
            }
            Some(Kind::Append(append)) => {
                let near = append::AppendNeighbours {
                    layout: &self.layout,
                    zeroes: &self.zeroes,
                    device: &mut self.device,
                    pages: &mut self.pages,
                    volumes: &mut self.volumes,
                    placing: &mut self.placing,
                    damage: &mut self.damage,
                    health: &mut self.health,
                };
                append.step(id, place, event, near)
            }
            Some(Kind::Discard(discard)) => discard.step(place, event, &self.volumes, &self.slabs),
            _ => event.cannot_be(),
        }
    }

    /// Whether a single task has no other to share a flush or a batch with.
    fn is_alone(&self) -> bool {
        self.tasks.len() == 1 && self.journal.is_idle() && self.flushes.is_idle()
    }

    fn step_slab(&mut self, id: SlotId, event: Event) -> Next {
        let Some(task) = self.tasks.get_mut(id) else { return Next::Wait };
        let near = slab::SlabNeighbours {
            layout: &self.layout,
            device: &mut self.device,
            pages: &mut self.pages,
            overlay: &mut self.overlay,
            volumes: &self.volumes,
            slabs: &mut self.slabs,
            checkpoint: &mut self.checkpoint,
            health: &mut self.health,
        };
        match (&mut task.kind, task.place) {
            (Kind::Allocate(allocate), _) => allocate.step(id, event, near),
            (Kind::Free(free), Some(place)) => free.step(place, event, near),
            _ => event.cannot_be(),
        }
    }

    /// Changes admitted under an older epoch precede the promise's record in the journal, or are
    /// refused by the fence.
    fn step_promise(&mut self, id: SlotId, event: Event) -> Next {
        let Some(Task { kind: Kind::Promise { volume, epoch }, .. }) = self.tasks.get(id) else {
            return Next::Wait;
        };
        let (volume, epoch) = (*volume, *epoch);
        match event {
            Event::Turn if !Planted::PromiseInMemory.is_planted() => {
                Next::Record(Record::Promise { volume, epoch }, Payload::new())
            }
            Event::Turn | Event::Committed(_) => {
                self.volumes.keep(volume, epoch);
                Next::done()
            }
            _ => event.cannot_be(),
        }
    }

    fn step_forget(&mut self, id: SlotId, event: Event) -> Next {
        let Some(Task { kind: Kind::Forget { volume, how }, .. }) = self.tasks.get(id) else {
            return Next::Wait;
        };
        let (volume, how) = (*volume, *how);
        match event {
            Event::Turn => Next::Record(Record::Promise { volume, epoch: Epoch(0) }, Payload::new()),
            Event::Committed(_) => {
                self.volumes.forget(volume, how);
                Next::done()
            }
            _ => event.cannot_be(),
        }
    }

    /// Reads the next piece of a scrub, or answers the scrub. Returns the task that continues, and
    /// its step.
    pub(super) fn scrub_on(&mut self, id: SlotId) -> (SlotId, Next) {
        let Some(Task { kind: Kind::Scrub(scrub), .. }) = self.tasks.get_mut(id) else {
            return (id, Next::Wait);
        };
        let Some(piece) = scrub.next_piece(&mut self.scrub, &self.slabs, &self.layout) else {
            let waits = scrub.is_finished() && !self.poisoned && {
                let (structures, near) = self.structures_beside_neighbours();
                structures.begin(id, near)
            };
            return (id, if waits { Next::Wait } else { self.scrubbed(id) });
        };
        scrub::read_pages(piece.place, &self.layout, &self.pages, &mut self.device);
        let read = ReadTask::new(piece.volume, piece.lba, piece.append, Some(id));
        (self.tasks.take_part(piece.place, Kind::Read(read)), Next::Gather)
    }

    /// Answers a scrub.
    fn scrubbed(&mut self, id: SlotId) -> Next {
        match self.tasks.get_mut(id) {
            Some(Task { kind: Kind::Scrub(scrub), .. }) => {
                Next::Finish(Ok(StoreReply::Scrubbed(scrub.take_progress())))
            }
            _ => Next::Wait,
        }
    }

    pub(super) fn structures_beside_neighbours(
        &mut self,
    ) -> (&mut Structures, structures::StructureNeighbours<'_, D>) {
        let near = structures::StructureNeighbours {
            label: &self.label,
            layout: &self.layout,
            device: &mut self.device,
            journal: &self.journal,
            overlay: &self.overlay,
            pages: &mut self.pages,
            slabs: &mut self.slabs,
            volumes: &mut self.volumes,
            checkpoint: &mut self.checkpoint,
            records: &mut self.records,
            damage: &mut self.damage,
            health: &mut self.health,
        };
        (&mut self.structures, near)
    }

    /// Continues the scrub of structures, after a checkpoint has ended or records were written.
    pub(super) fn resume_structures(&mut self) {
        let (structures, near) = self.structures_beside_neighbours();
        let ended = structures.resume(near);
        self.structures_ended(ended);
    }

    /// Answers the scrub that waited until the store's own structures were verified.
    pub(super) fn structures_ended(&mut self, ended: Option<PassEnded>) {
        let Some(PassEnded { task, corrupt }) = ended else { return };
        if let Some(Task { kind: Kind::Scrub(scrub), .. }) = self.tasks.get_mut(task) {
            scrub.found_in_journal(corrupt);
        }
        let next = self.scrubbed(task);
        self.go_on(task, next);
    }

    /// Answers a task and releases its pages and queue place. Returns the task that continues
    /// because of that, and its step.
    fn finish(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) -> Option<(SlotId, Next)> {
        match self.tasks.get_mut(id).map(|task| &mut task.kind) {
            Some(Kind::Read(read)) if read.scrub().is_some() => {
                let scrub = read.scrub()?;
                let damaged: Vec<_> = read.damaged().collect();
                self.tasks.finish(id, Ok(StoreReply::Done), &mut self.pages);
                let Kind::Scrub(task) = &mut self.tasks.get_mut(scrub)?.kind else { return None };
                task.found(damaged.into_iter());
                match result {
                    // A chunk freed since has nothing to verify.
                    Ok(_) | Err(StoreError::NotMapped) => Some(self.scrub_on(scrub)),
                    Err(error) => Some((scrub, Next::fail(error))),
                }
            }
            Some(Kind::Allocate(_)) => {
                self.finish_allocation(id, result);
                None
            }
            _ => {
                self.tasks.finish(id, result, &mut self.pages);
                None
            }
        }
    }

    /// Answers an allocation, and the others that waited for the same chunk.
    fn finish_allocation(&mut self, id: SlotId, result: Result<StoreReply, StoreError>) {
        let Some(Task { kind: Kind::Allocate(allocate), .. }) = self.tasks.get_mut(id) else { return };
        allocate.give_up(&mut self.slabs);
        let (volume, chunk) = allocate.chunk();
        for other in self.slabs.end_allocating(volume, chunk) {
            let tasks = (self.tasks.get(id), self.tasks.get(other));
            let (Some(Task { kind: Kind::Allocate(own), .. }), Some(Task { kind: Kind::Allocate(task), .. })) =
                tasks
            else {
                continue;
            };
            let answer = own.answer_other(task, &result);
            self.tasks.finish(other, answer, &mut self.pages);
        }
        self.tasks.finish(id, result, &mut self.pages);
    }

    /// Queues a record for the journal; the task gets an event when the record is durable.
    fn record(&mut self, id: SlotId, record: Record, data: Payload, standing: Standing) {
        self.moves += 1;
        self.journal.push(Pending { record, data, task: Some(id), standing });
        self.tasks.queued(id);
    }

    /// Handles a metadata page that tasks wait for.
    pub(super) fn page_read(&mut self, read: PageRead, result: Result<Option<BufMut>, DiskError>) {
        let (slabs, damage) = (&self.slabs, &mut self.damage);
        let arrival = self.pages.arrived(read, result, slabs, damage, &self.layout, &mut self.device);
        match arrival {
            Arrival::Again => {}
            Arrival::Failed(waiters, error) => {
                for id in waiters {
                    self.go_on(id, Next::fail(StoreError::Disk(error.clone())));
                }
            }
            Arrival::Here(waiters) => waiters.into_iter().for_each(|id| self.page_arrived(id, read.key)),
        }
    }

    fn page_arrived(&mut self, id: SlotId, key: u64) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if !self.pages.cache.pin(key) {
            // The slab has another owner now: the tasks that wait for this page begin again.
            self.pages.unpin(std::mem::take(&mut task.pinned));
            return self.go_on(id, Next::Gather);
        }
        task.pinned.push(key);
        task.pages_missing -= 1;
        if task.pages_missing == 0 {
            self.tell(id, Event::Turn);
        }
    }

    /// Handles the end of a write of fresh or append data, or of a new slab's metadata.
    pub(super) fn data_written(&mut self, id: SlotId, result: Result<(), DiskError>) {
        match result {
            Ok(()) | Err(DiskError::NoSpace) => self.tell(id, Event::Written(result)),
            Err(error) => self.poison(&error),
        }
    }

    /// Handles a batch that is durable.
    pub(super) fn batch_written(&mut self, sequence: u64) {
        self.journal.written(sequence);
        self.commit_batches();
    }

    /// Applies the oldest batches in flight, in order, as far as they are durable with all that
    /// belongs to them.
    fn commit_batches(&mut self) {
        while let Some(batch) = self.journal.next_committed() {
            let mut data_block = batch.data_block;
            for pending in batch.entries {
                let (cache, overlay) = (&mut self.pages.cache, &mut self.overlay);
                effect::take_effect(&pending, batch.sequence, data_block, &self.layout, cache, overlay);
                data_block += pending.record.data_blocks();
                let Some(id) = pending.task.filter(|_| pending.standing != Standing::Void) else { continue };
                self.tell(id, Event::Committed(batch.sequence));
            }
        }
    }

    /// Handles the begin of a flush: records of the writes that it makes durable can be written
    /// concurrently.
    pub(super) fn flush_begun(&mut self) {
        for id in self.flushes.covered().to_vec() {
            if let Some(Task { kind: Kind::Write(_), .. }) = self.tasks.get(id) {
                self.tell(id, Event::Flushing);
            }
        }
    }

    /// Handles the end of the flush in flight.
    pub(super) fn flushed(&mut self) {
        for id in self.flushes.end() {
            self.tell(id, Event::Flushed);
        }
        let (checkpoint, near) = self.checkpoint_beside_neighbours();
        checkpoint.flushed(near);
    }

    /// Begins a checkpoint if one is due, and issues its next writes.
    pub(super) fn run_checkpoint(&mut self) {
        let (checkpoint, near) = self.checkpoint_beside_neighbours();
        let ended = checkpoint.run(near);
        self.checkpoint_ended(ended);
    }

    /// Refuses the changes that wait for the journal, since it is full and cannot be emptied.
    pub(super) fn refuse_pending(&mut self) {
        for id in self.journal.refuse_pending() {
            self.health.no_space += 1;
            self.go_on(id, Next::fail(StoreError::NoSpace));
        }
    }

    pub(super) fn checkpoint_beside_neighbours(
        &mut self,
    ) -> (&mut Checkpoint, checkpoint::CheckpointNeighbours<'_, D>) {
        let near = checkpoint::CheckpointNeighbours {
            disk: self.label.disk,
            layout: &self.layout,
            device: &mut self.device,
            journal: &self.journal,
            overlay: &self.overlay,
            pages: &mut self.pages,
            slabs: &mut self.slabs,
            volumes: &mut self.volumes,
            damage: &mut self.damage,
            health: &mut self.health,
            scrub: self.scrub,
        };
        (&mut self.checkpoint, near)
    }

    /// Reports the end of one of its last writes to the checkpoint.
    pub(super) fn end_checkpoint(
        &mut self,
        written: impl FnOnce(&mut Checkpoint, checkpoint::Ending<'_, D>) -> Option<Ended>,
    ) {
        let ending = checkpoint::Ending {
            layout: &self.layout,
            device: &mut self.device,
            overlay: &mut self.overlay,
            journal: &mut self.journal,
        };
        let ended = written(&mut self.checkpoint, ending);
        self.checkpoint_ended(ended);
    }

    /// Continues the tasks that waited for the end of a checkpoint.
    fn checkpoint_ended(&mut self, ended: Option<Ended>) {
        let (waiting, released) = match ended {
            None => return,
            Some(Ended::Done { through, waiting }) => {
                self.damage.checkpoint_ended(self.checkpoint.number());
                (waiting, Some(through))
            }
            Some(Ended::GivenUp { waiting }) => {
                // No checkpoint is going to release a slab for now.
                for id in self.slabs.refuse_waiting() {
                    self.health.no_space += 1;
                    self.go_on(id, Next::fail(StoreError::NoSpace));
                }
                (waiting, None)
            }
        };
        for id in waiting {
            self.tell(id, Event::CheckpointEnded);
        }
        for id in released.map(|through| self.slabs.release(through)).unwrap_or_default() {
            self.tell(id, Event::Turn);
        }
        self.resume_structures();
    }

    /// Handles the end of a discard of a slab's space. A failure does not matter, since a discard
    /// is advice.
    pub(super) fn punched(&mut self, slab: SlabIndex) {
        self.slabs.punched(slab);
        if self.slabs.is_awaited() {
            self.checkpoint.request();
        }
    }
}
