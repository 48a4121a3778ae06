//! Writing the metadata journal: group commit, the circular region, durability.
//!
//! Batches are numbered; a transaction's ticket is its batch's number. Blocks that were acknowledged are never
//! rewritten before a checkpoint moved the tail past them.

use std::collections::VecDeque;
use sys::Buf;

use super::super::layout::{JOURNAL_FIRST, Position, SEALED_BYTES, Superblock};
use super::journal::{BatchHeader, batch_blocks, encode_batch, encode_transaction};
use super::transaction::Transaction;
use crate::planted::Planted;
use types::Lba;

/// Batches written concurrently: a full one and the one that gathers behind it.
const IN_FLIGHT_GOAL: usize = 2;

/// Batches written concurrently if a checkpoint has closed the gathering one.
pub const IN_FLIGHT_MAX: usize = IN_FLIGHT_GOAL + 1;

/// Bytes at which a batch is written immediately.
const BATCH_BYTES_GOAL: usize = 256 << 10;

/// Most blocks of changes that gather for one batch before others wait: 4 MiB.
const PENDING_BLOCKS_MAX: u32 = 1024;

/// Most blocks that one operation adds to a batch: 2 MiB. Producers divide their work long before
/// ([`PIECES_AT_ONCE`]); only the records of opens that one step keeps cannot be divided, at most 1024
/// of about a KiB.
const OPERATION_BLOCKS_MAX: u32 = 512;

/// Limit of pieces of streams' maps that one transaction changes, in a journal of any length: some
/// milliseconds of work.
const PIECES_AT_ONCE: usize = 1000;

/// Limit of bytes of the changes of one piece: its extent is deleted and put again in two parts, put
/// for another stream, its run of references likewise, and blocks are allocated and freed.
const PIECE_BYTES: usize = 256;

/// Blocks to write.
#[derive(Debug)]
pub struct Append {
    pub sequence: u64,
    pub lba: Lba,
    pub data: Buf,
}

/// The journal's writing end.
#[derive(Debug, Default)]
pub struct Log {
    volume: [u8; 16],
    incarnation: u64,
    blocks: u32,
    head: Position,
    /// Of the next batch's blocks: no block was ever written with this one.
    order: u64,
    tail_total: u64,
    pending: Vec<u8>,
    in_flight: VecDeque<(u64, bool)>,
    /// All batches up to this one are durable.
    durable: u64,
    /// The highest ticket that is waited for.
    wanted: u64,
    /// A checkpoint carries the gathered changes, for lack of space: nothing is written before it is
    /// published.
    absorbing: bool,
    /// A checkpoint has carried the gathered changes: their number belongs to a batch, which may be empty.
    absorbed: bool,
}

impl Log {
    /// Continues behind the replayed batches: the tail is the superblock's, `head` lies behind the last
    /// good batch.
    pub fn new(superblock: &Superblock, head: Position) -> Self {
        Self {
            volume: superblock.volume,
            incarnation: superblock.incarnation,
            blocks: superblock.journal_blocks,
            head,
            order: superblock.order,
            tail_total: superblock.tail.total,
            durable: head.sequence.saturating_sub(1),
            wanted: 0,
            ..Self::default()
        }
    }

    /// Adds a transaction to the gathering batch. Returns its ticket; `None`, with nothing changed, if the
    /// batch would exceed the length that readers accept.
    pub fn add(&mut self, txn: &Transaction) -> Option<u64> {
        let before = self.pending.len();
        encode_transaction(txn, &mut self.pending);
        let fits = batch_blocks(self.pending.len()) <= Self::batch_blocks_max(self.blocks);
        if !fits && !Planted::TransactionUnbounded.is_planted() {
            self.pending.truncate(before);
            return None;
        }
        Some(self.head.sequence)
    }

    /// The ticket of everything added so far.
    pub fn last_ticket(&self) -> u64 {
        let open = !self.pending.is_empty() || self.absorbing || self.absorbed;
        if open { self.head.sequence } else { self.head.sequence.saturating_sub(1) }
    }

    pub fn durable_ticket(&self) -> u64 {
        self.durable
    }

    /// Asks for this ticket to become durable soon.
    pub fn want(&mut self, ticket: u64) {
        self.wanted = self.wanted.max(ticket);
    }

    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Blocks that opening would replay.
    pub fn used_blocks(&self) -> u64 {
        self.head.total - self.tail_total
    }

    /// Blocks in use or asked for.
    pub fn filled_blocks(&self) -> u64 {
        self.used_blocks() + u64::from(batch_blocks(self.pending.len()))
    }

    /// Share of the region that is in use or asked for, in 1/256.
    pub fn fill(&self) -> u64 {
        self.filled_blocks() * 256 / u64::from(self.blocks.max(1))
    }

    /// Whether more changes may gather: there is space for them, and for those that free some.
    pub fn has_room(&self) -> bool {
        self.pending.len() <= self.pending_bytes_max() && self.fill() <= 192 && !self.absorbing
    }

    /// Bytes that may gather for one batch before changes wait.
    fn pending_bytes_max(&self) -> usize {
        pending_blocks_max(self.blocks) as usize * SEALED_BYTES
    }

    /// Size at which a transaction with more to do ends: half of what one operation may add.
    pub fn transaction_bytes_goal(&self) -> usize {
        operation_blocks_max(self.blocks) as usize * SEALED_BYTES / 2
    }

    /// Pieces of streams' maps that one transaction may change.
    pub fn pieces_at_once(&self) -> usize {
        if Planted::TransactionUnbounded.is_planted() || Planted::MissStartsOver.is_planted() {
            return usize::MAX;
        }
        (self.transaction_bytes_goal() / PIECE_BYTES).clamp(1, PIECES_AT_ONCE)
    }

    /// Most blocks of a batch in a journal of this length: the gathered changes, and the operation that
    /// goes beyond.
    pub fn batch_blocks_max(blocks: u32) -> u32 {
        (pending_blocks_max(blocks) + operation_blocks_max(blocks)).min(blocks)
    }

    /// Whether no further batch may be under way: an opening searches only that far for the proof that one
    /// was durable.
    pub fn is_at_limit(&self) -> bool {
        self.in_flight.len() >= IN_FLIGHT_MAX
    }

    /// The next batch to write, if it is time.
    pub fn next_append(&mut self, force: bool) -> Option<Append> {
        let goal = BATCH_BYTES_GOAL.min(self.pending_bytes_max() / 2);
        let asked = force || self.wanted >= self.head.sequence || self.pending.len() >= goal;
        if (self.pending.is_empty() && !self.absorbed) || !asked || self.in_flight.len() >= IN_FLIGHT_GOAL {
            return None;
        }
        self.cut()
    }

    /// Closes the gathering batch. `None` if there is none, or no space for it.
    pub fn cut(&mut self) -> Option<Append> {
        if self.absorbing || (self.pending.is_empty() && !self.absorbed) {
            return None;
        }
        let blocks = batch_blocks(self.pending.len());
        let wraps = self.head.block + blocks > self.blocks;
        let skipped = if wraps { self.blocks - self.head.block } else { 0 };
        let after = self.head.total + u64::from(skipped + blocks);
        if after - self.tail_total >= u64::from(self.blocks) {
            return None;
        }
        assert!(!self.is_at_limit(), "no more batches under way than an opening reckons with");
        let header = BatchHeader {
            blocks,
            operation_bytes: 0,
            volume: self.volume,
            sequence: self.head.sequence,
            incarnation: self.incarnation,
            chain: self.head.chain,
            acknowledged: self.durable,
        };
        let block = if wraps { 0 } else { self.head.block };
        let lba = Lba(u64::from(JOURNAL_FIRST + block));
        let order = if Planted::SealOrderNotRaised.is_planted() { self.head.sequence } else { self.order };
        let (data, chain) = encode_batch(&header, order, lba, &self.pending);
        self.order += 1;
        self.pending.clear();
        self.absorbed = false;
        let sequence = self.head.sequence;
        self.in_flight.push_back((sequence, false));
        self.head = Position { block: block + blocks, sequence: sequence + 1, chain, total: after };
        Some(Append { sequence, lba, data })
    }

    /// A batch is durable on every copy. Returns whether more tickets are.
    pub fn written(&mut self, sequence: u64) -> bool {
        for (batch, done) in &mut self.in_flight {
            *done |= *batch == sequence;
        }
        let before = self.durable;
        while let Some((batch, true)) = self.in_flight.front().copied() {
            self.durable = batch;
            self.in_flight.pop_front();
        }
        self.durable > before
    }

    /// The next batch's place: a checkpoint of everything before it starts replay here.
    pub fn head(&self) -> Position {
        self.head
    }

    /// No block of the journal has been written with this order, or one above.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// A checkpoint made all before this position superfluous, durably.
    pub fn advance_tail(&mut self, tail: Position) {
        self.tail_total = tail.total;
        self.absorbed |= std::mem::take(&mut self.absorbing);
    }

    /// Leaves the gathering changes to the beginning checkpoint, since there is no space to close their
    /// batch.
    pub fn absorb(&mut self) {
        self.pending.clear();
        self.absorbing = true;
    }
}

/// Blocks of changes that gather for one batch before others wait, in a journal of this length.
fn pending_blocks_max(blocks: u32) -> u32 {
    (blocks / 8).clamp(1, PENDING_BLOCKS_MAX)
}

/// Limit of blocks that one operation adds, in a journal of this length: at most three quarters are
/// full when changes are accepted.
fn operation_blocks_max(blocks: u32) -> u32 {
    (blocks * 3 / 4).clamp(1, OPERATION_BLOCKS_MAX)
}
