//! The journal's writer: waiting records, batches in flight, live batches. Decides the place of
//! each batch; does no I/O itself.

use crate::anchor::Anchor;
use crate::layout::PAGE_BYTES;
use crate::planted::Planted;
use crate::record::{BatchHeader, DATA_BLOCKS_MAX, HEADER_BLOCKS_MAX, HEADER_BYTES, Record, encode_batch};
use crate::slots::SlotId;
use std::collections::VecDeque;
use std::ops::Range;
use sys::{BufMut, Payload};
use types::{DiskId, Stamp};

/// Batches in flight at once. With a single one, the disk would idle while the next is gathered.
const BATCHES_IN_FLIGHT: usize = 2;

/// Relation of a record to the data in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everything that belongs to the record is durable, or in its batch.
    Counts,
    /// The record's data are being written in place: its batch takes no effect before they are
    /// durable.
    Awaits,
    /// The record's data were not written in place. The record has no effect, and one that
    /// `Withdraws` follows it.
    Void,
    /// A discard of blocks that a void record names. It changes only the result of replaying both,
    /// and precedes all waiting records.
    Withdraws,
}

/// A record waiting for a batch.
pub(crate) struct Pending {
    pub(crate) record: Record,
    /// The data blocks of an overwrite.
    pub(crate) data: Payload,
    /// `None` if the record withdraws one that an opening found void.
    pub(crate) task: Option<SlotId>,
    pub(crate) standing: Standing,
}

impl Pending {
    fn withdraws(&self) -> bool {
        self.standing == Standing::Withdraws
    }

    /// Makes a discard that withdraws a void record. It has no epoch, since it changes no blocks.
    pub(crate) fn withdrawal(record: &Record, task: Option<SlotId>) -> Option<Self> {
        let (slab, first, count, _) = record.blocks()?;
        let record = Record::Discard { slab, first, count, stamp: Stamp::default() };
        Some(Self { record, data: Payload::new(), task, standing: Standing::Withdraws })
    }
}

/// A batch as replay or the writer left it in the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveBatch {
    pub(crate) sequence: u64,
    /// Blocks of the batch, including those skipped at the end of the journal.
    pub(crate) blocks: u32,
    pub(crate) crc: u64,
}

/// Consecutive batches.
pub(crate) struct Run {
    /// First block, counted from the start of the journal.
    pub(crate) block: u32,
    pub(crate) blocks: u32,
    pub(crate) last_sequence: u64,
}

/// A batch being written.
pub(crate) struct FlyingBatch {
    pub(crate) sequence: u64,
    /// First data block, in blocks from the start of the journal.
    pub(crate) data_block: u32,
    pub(crate) entries: Vec<Pending>,
    durable: bool,
}

/// Size of the next batch.
struct Measured {
    /// Number of its records.
    count: usize,
    header_blocks: u32,
    data_blocks: u32,
    /// Number of its records that await their data.
    awaiting: u32,
}

/// A durable write for the caller to issue.
pub(crate) struct BatchWrite {
    pub(crate) sequence: u64,
    pub(crate) block: u32,
    pub(crate) data: Payload,
}

/// Consecutive blocks of the ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) first: u32,
    pub(crate) blocks: u32,
    /// Number of all blocks of the ring.
    pub(crate) of: u32,
}

impl Stretch {
    pub(crate) fn contains(self, block: u32) -> bool {
        (block + self.of - self.first) % self.of < self.blocks
    }
}

/// Returns the first of these blocks, in order, and those that follow it without a gap: at most as
/// many as a batch has data blocks.
pub(crate) fn first_run(mut blocks: impl Iterator<Item = u32>) -> Option<Range<u32>> {
    let first = blocks.next()?;
    let follows = |(at, block): &(u32, u32)| *block == first + at && *at < DATA_BLOCKS_MAX;
    Some(first..first + 1 + (1..).zip(blocks).take_while(follows).count() as u32)
}

pub(crate) struct Journal {
    blocks: u32,
    disk: DiskId,
    incarnation: u64,
    head: u32,
    used: u32,
    /// Sequence and CRC of the last batch cut.
    last_sequence: u64,
    last_crc: u64,
    /// Sequence up to which all batches are durable.
    committed: u64,
    tail_block: u32,
    tail_previous: u64,
    live: VecDeque<LiveBatch>,
    pending: VecDeque<Pending>,
    flying: VecDeque<FlyingBatch>,
    /// Whether the last attempt to cut a batch found no space.
    starved: bool,
    /// First batch with a void record that is not durably withdrawn. No batch says that it was
    /// durable, not even the withdrawing one: a crash may leave that one's header, which replay
    /// would believe, without the data, without which its records are void.
    withdrawing_from: Option<u64>,
}

impl Journal {
    /// Continues behind the replayed batches.
    pub(crate) fn new(disk: DiskId, blocks: u32, anchor: &Anchor, live: VecDeque<LiveBatch>) -> Self {
        let used: u32 = live.iter().map(|batch| batch.blocks).sum();
        let (last_sequence, last_crc) = match live.back() {
            Some(last) => (last.sequence, last.crc),
            None => (anchor.tail_sequence - 1, anchor.previous),
        };
        Self {
            blocks,
            disk,
            incarnation: anchor.incarnation,
            head: (anchor.tail_block + used) % blocks,
            used,
            last_sequence,
            last_crc,
            committed: last_sequence,
            tail_block: anchor.tail_block,
            tail_previous: anchor.previous,
            live,
            pending: VecDeque::new(),
            flying: VecDeque::new(),
            starved: false,
            withdrawing_from: None,
        }
    }

    /// Returns the largest size of a batch in blocks: three always fit, so that an empty journal
    /// takes any.
    pub(crate) fn batch_blocks_max(blocks: u32) -> u32 {
        (blocks / 3).min(HEADER_BLOCKS_MAX + DATA_BLOCKS_MAX)
    }

    pub(crate) fn used_blocks(&self) -> u32 {
        self.used
    }
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.flying.is_empty()
    }
    pub(crate) fn push(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Returns the last batch that later ones may call durable with all that belongs to it.
    pub(crate) fn proven(&self) -> u64 {
        self.withdrawing_from.map_or(self.committed, |from| self.committed.min(from - 1))
    }

    /// Whether a batch not cut yet must withdraw a void record.
    fn must_withdraw(&self) -> bool {
        self.pending.front().is_some_and(Pending::withdraws)
    }

    /// Withdraws records that an opening found void, in batch `from` and later ones.
    pub(crate) fn withdraw_found(&mut self, from: Option<u64>, void: &[Record]) {
        if Planted::VoidNotWithdrawn.is_planted() {
            return;
        }
        self.withdrawing_from = from;
        self.pending.extend(void.iter().filter_map(|record| Pending::withdrawal(record, None)));
    }

    fn awaiting(&mut self, task: SlotId) -> Option<&mut Pending> {
        let flying = self.flying.iter_mut().flat_map(|batch| &mut batch.entries);
        let mut entries = flying.chain(&mut self.pending);
        entries.find(|entry| entry.task == Some(task) && entry.standing == Standing::Awaits)
    }

    /// Notes that the data of the task's record are durable in place.
    pub(crate) fn placed(&mut self, task: SlotId) {
        let entry = self.awaiting(task);
        debug_assert!(entry.is_some(), "a record awaits its data once");
        if let Some(entry) = entry {
            entry.standing = Standing::Counts;
        }
    }

    /// Notes that the data of the task's record will not be in place. Returns whether a withdrawing
    /// record was queued: the task gets an event when that is durable. Otherwise the record was in
    /// no batch yet, and is dropped.
    pub(crate) fn withdraw(&mut self, task: SlotId) -> bool {
        let awaits = |entry: &Pending| entry.task == Some(task) && entry.standing == Standing::Awaits;
        if let Some(at) = self.pending.iter().position(awaits) {
            self.pending.remove(at);
            return false;
        }
        for batch in &mut self.flying {
            let Some(entry) = batch.entries.iter_mut().find(|entry| awaits(entry)) else { continue };
            entry.standing = Standing::Void;
            let from = self.withdrawing_from.get_or_insert(batch.sequence);
            *from = (*from).min(batch.sequence);
            if let Some(withdrawal) = Pending::withdrawal(&entry.record, Some(task)) {
                self.pending.push_front(withdrawal);
            }
            return true;
        }
        debug_assert!(false, "a record awaits its data once");
        false
    }

    /// Drops everything that is not durable; none of it was acknowledged.
    pub(crate) fn abandon(&mut self) {
        self.pending.clear();
        self.flying.clear();
    }

    /// Removes the records that wait for a batch, and returns their tasks. Keeps records that must
    /// precede all others, and those whose data are being written in place: no other task may write
    /// there yet.
    pub(crate) fn refuse_pending(&mut self) -> Vec<SlotId> {
        self.starved = false;
        let (kept, refused): (VecDeque<_>, VecDeque<_>) =
            self.pending.drain(..).partition(|pending| pending.standing != Standing::Counts);
        self.pending = kept;
        refused.into_iter().filter_map(|pending| pending.task).collect()
    }

    /// Takes the next batch, if records wait and there is space for it in flight and in the
    /// journal.
    pub(crate) fn cut(&mut self) -> Option<BatchWrite> {
        self.starved = false;
        // A batch behind a withdrawing one says that the void record's batch was durable, so it
        // must not be found without the withdrawing one.
        let withdraws = |batch: &FlyingBatch| batch.entries.iter().any(Pending::withdraws);
        if self.pending.is_empty()
            || self.flying.len() >= BATCHES_IN_FLIGHT
            || self.withdrawing_from.is_some() && self.flying.iter().any(withdraws)
        {
            return None;
        }
        let withdrawals = self.pending.iter().take_while(|pending| pending.withdraws()).count();
        let Some(next) = [self.pending.len(), withdrawals].iter().find_map(|count| self.fitting(*count))
        else {
            self.starved = true;
            return None;
        };
        let Measured { count, header_blocks, data_blocks, .. } = next;
        let to_end = self.blocks - self.head;
        if header_blocks + data_blocks > to_end {
            return Some(self.write_wrap(to_end));
        }
        let entries: Vec<Pending> = self.pending.drain(..count).collect();
        Some(self.write_batch(entries, header_blocks, data_blocks))
    }

    /// Measures the batch of the first `count` waiting records, or of fewer, if the journal has
    /// space for it. The journal reserves a block for each record that awaits its data: a
    /// withdrawal without a block would hold its place against all tasks until a checkpoint frees
    /// space, and no checkpoint does while the file system beneath the disk's file is full.
    fn fitting(&self, count: usize) -> Option<Measured> {
        let next = self.measure(count)?;
        let flying = self.flying.iter().flat_map(|batch| &batch.entries);
        let kept = next.awaiting + flying.filter(|entry| entry.standing == Standing::Awaits).count() as u32;
        let needed = next.header_blocks + next.data_blocks;
        let to_end = self.blocks - self.head;
        let skipped = if needed > to_end { to_end } else { 0 };
        (self.used + skipped + needed + kept < self.blocks).then_some(next)
    }

    /// Returns how many of the first `count` waiting records make a batch.
    fn measure(&self, count: usize) -> Option<Measured> {
        let blocks_max = Self::batch_blocks_max(self.blocks);
        let (mut header_bytes, mut data_blocks, mut awaiting) = (HEADER_BYTES, 0, 0);
        let mut measured = None;
        for (at, pending) in self.pending.iter().take(count).enumerate() {
            header_bytes += pending.record.len_bytes();
            data_blocks += pending.record.data_blocks();
            awaiting += u32::from(pending.standing == Standing::Awaits);
            let header_blocks = header_bytes.div_ceil(PAGE_BYTES) as u32;
            let too_large = header_blocks > HEADER_BLOCKS_MAX
                || data_blocks > DATA_BLOCKS_MAX
                || header_blocks + data_blocks + awaiting > blocks_max;
            if too_large {
                debug_assert!(at > 0, "a single record fits every batch");
                break;
            }
            measured = Some(Measured { count: at + 1, header_blocks, data_blocks, awaiting });
        }
        measured
    }

    fn write_wrap(&mut self, to_end: u32) -> BatchWrite {
        let block = self.head;
        let header = self.next_header(1, 0, 0, true);
        let mut bytes = BufMut::for_overwrite(PAGE_BYTES);
        let crc = encode_batch(self.disk, &header, &[], &mut bytes);
        self.advance(header.sequence, crc, to_end, Vec::new(), 0);
        BatchWrite { sequence: header.sequence, block, data: bytes.freeze().into() }
    }

    fn write_batch(&mut self, mut entries: Vec<Pending>, header_blocks: u32, data_blocks: u32) -> BatchWrite {
        let block = self.head;
        let header = self.next_header(header_blocks, data_blocks, entries.len() as u32, false);
        let mut bytes = BufMut::for_overwrite(header_blocks as usize * PAGE_BYTES);
        let crc = {
            let records: Vec<&Record> = entries.iter().map(|pending| &pending.record).collect();
            encode_batch(self.disk, &header, &records, &mut bytes)
        };
        let mut data = Payload::from(bytes.freeze());
        for pending in &mut entries {
            data.append(pending.data.clone());
        }
        self.advance(header.sequence, crc, header_blocks + data_blocks, entries, block + header_blocks);
        BatchWrite { sequence: header.sequence, block, data }
    }

    fn next_header(
        &self,
        header_blocks: u32,
        data_blocks: u32,
        record_count: u32,
        wrap: bool,
    ) -> BatchHeader {
        let proves = Planted::WithdrawalProves.is_planted() && !self.must_withdraw();
        BatchHeader {
            sequence: self.last_sequence + 1,
            incarnation: self.incarnation,
            previous: self.last_crc,
            durable_through: if proves { self.committed } else { self.proven() },
            header_blocks,
            data_blocks,
            record_count,
            wrap,
            crc: 0,
        }
    }

    fn advance(&mut self, sequence: u64, crc: u64, blocks: u32, entries: Vec<Pending>, data_block: u32) {
        self.last_sequence = sequence;
        self.last_crc = crc;
        self.head = (self.head + blocks) % self.blocks;
        self.used += blocks;
        self.live.push_back(LiveBatch { sequence, blocks, crc });
        self.flying.push_back(FlyingBatch { sequence, data_block, entries, durable: false });
    }

    /// Notes that a batch is durable.
    pub(crate) fn written(&mut self, sequence: u64) {
        if let Some(batch) = self.flying.iter_mut().find(|batch| batch.sequence == sequence) {
            batch.durable = true;
        }
    }

    /// Takes the oldest batch in flight, if it is durable and so are all the data in place that its
    /// records name: its records take effect.
    pub(crate) fn next_committed(&mut self) -> Option<FlyingBatch> {
        let awaits =
            |batch: &FlyingBatch| batch.entries.iter().any(|entry| entry.standing == Standing::Awaits);
        let batch = self.flying.pop_front_if(|batch| batch.durable && !awaits(batch))?;
        self.committed = batch.sequence;
        if batch.entries.iter().any(Pending::withdraws) && !self.must_withdraw() {
            self.withdrawing_from = None;
        }
        Some(batch)
    }

    /// Returns the sequence of the oldest batch whose space was not freed, or of the next one to be
    /// cut.
    pub(crate) fn first_live(&self) -> u64 {
        self.live.front().map_or(self.last_sequence + 1, |batch| batch.sequence)
    }

    /// Returns the batches from this one on whose space was not freed.
    pub(crate) fn live_from(&self, sequence: u64) -> impl Iterator<Item = LiveBatch> {
        self.live.iter().filter(move |batch| batch.sequence >= sequence).copied()
    }

    /// Returns the consecutive batches from `sequence` to `until`: at most `blocks_max` blocks, if
    /// there is more than one batch. `None` if the first one's space was freed.
    pub(crate) fn run_from(&self, sequence: u64, until: u64, blocks_max: u32) -> Option<Run> {
        let before = self.live.iter().take_while(|batch| batch.sequence < sequence);
        let block = before.fold(self.tail_block, |block, batch| (block + batch.blocks) % self.blocks);
        let mut run: Option<Run> = None;
        for batch in self.live_from(sequence).take_while(|batch| batch.sequence <= until) {
            let blocks = run.as_ref().map_or(0, |run| run.blocks) + batch.blocks;
            let fits = blocks <= blocks_max && block + blocks <= self.blocks;
            if run.is_none() && batch.sequence != sequence || run.is_some() && !fits {
                break;
            }
            run = Some(Run { block, blocks, last_sequence: batch.sequence });
        }
        run
    }

    /// Returns the blocks of batches behind `through`.
    pub(crate) fn place_behind(&self, through: u64) -> Stretch {
        let (first, ..) = self.tail_after(through);
        let blocks = self.live_from(through + 1).map(|batch| batch.blocks).sum();
        Stretch { first, blocks, of: self.blocks }
    }

    /// Returns the anchor's place for a journal whose batches up to `through` are applied: block,
    /// sequence and CRC before it.
    pub(crate) fn tail_after(&self, through: u64) -> (u32, u64, u64) {
        let (mut block, mut previous, mut sequence) = (self.tail_block, self.tail_previous, None);
        for batch in self.live.iter().take_while(|batch| batch.sequence <= through) {
            block = (block + batch.blocks) % self.blocks;
            previous = batch.crc;
            sequence = Some(batch.sequence + 1);
        }
        (block, sequence.unwrap_or(self.first_live()), previous)
    }

    /// Frees the space of the batches up to `through`, after an anchor behind them is durable.
    pub(crate) fn release(&mut self, through: u64) {
        while let Some(batch) = self.live.pop_front_if(|batch| batch.sequence <= through) {
            self.used -= batch.blocks;
            self.tail_block = (self.tail_block + batch.blocks) % self.blocks;
            self.tail_previous = batch.crc;
        }
    }
}
