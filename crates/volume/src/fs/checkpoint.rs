//! The background checkpoint: merges changes since the last one into a new tree and restarts the
//! journal.
//!
//! # How it works
//!
//! A checkpoint begins when a quarter of the journal is in use or very many keys have changed, and takes four steps.
//!
//! 1. *Seal.* The journal's open batch is closed: replay will begin behind it (the boundary). All changes up to there, and the bitmaps
//!    of groups whose allocation changed, become the store's sealed layer. The chunks' uses and free counts are copied.
//! 2. *Merge.* The sealed layer is merged with the old tree, a few steps in each poll, into new pages beside the old ones. Only pages
//!    that change are written again, and the inner pages above them.
//! 3. *Publish.* When all pages are durable the space map is written, as it will be once the old pages are free; when that is durable,
//!    the superblock, to the older one of its two places.
//! 4. *Forget.* Only when the superblock is durable the old tree's pages and the old space map's are free, the sealed layer is dropped
//!    (the tree has it), and the journal's tail moves to the boundary. Places of free pages are discarded before they are taken again,
//!    because a page is written to blocks that hold nothing.
//!
//! A crash at any point before the new superblock is durable finds the old superblock, the old tree and the whole journal: none of their
//! blocks was written over. A crash behind that point finds the new one and replays from the boundary.
//!
//! # Meanwhile
//!
//! - Changes continue: they are above the sealed layer, in the journal behind the boundary, and belong to the next checkpoint. When the
//!   journal is three quarters full they wait ([`Log::has_room`](super::meta::log::Log::has_room)).
//! - Reads go through all three layers. They may be loading a page of the old tree when it is replaced: such a page is in doubt, and is
//!   freed by a later checkpoint, when nobody loads it any more.
//! - Chunks change their use. One that holds pages of the new space map is metadata for good, even if
//!   the journal behind the boundary says otherwise: replay knows that.
//! - The journal may have no space to close the open batch. Then the checkpoint alone carries these changes, and no batch is written before
//!   it is published.
//!
//! # Failures
//!
//! - *No free page.* The checkpoint requests a chunk or discards places, and the merge continues from
//!   there. So that this ends, changes that grow are refused while fewer pages are free than the
//!   largest checkpoint needs ([`Checkpointer::has_page_reserve`]).
//! - *A page of the old tree cannot be read* for lack of copies or space: the checkpoint reads it again
//!   after [`PAUSE`].
//! - *A page of the old tree is damaged on all copies.* The journal keeps all unmerged changes, and
//!   everything outside that page's subtree can be read. The volume is read-only until the page can be
//!   read again, perhaps from a disk that returned ([`Checkpointer::read_only`]): the next try follows
//!   after [`DAMAGE_PAUSE`].
//! - *A write or discard fails.* [`Requests`] retries after a lack of copies or space. All else fails
//!   the volume: changes that were not durable may be lost, stored ones are whole.

use std::num::NonZeroU32;
use std::time::Duration;

use ::types::{Lba, Monotonic};
use space::api::{SpaceRequest, WriteClass};
use sys::{BufMut, Payload};

use super::agenda::Agenda;
use super::allocator::{Allocator, ChunkRecord};
use super::chunks::Chunks;
use super::io::{Answer, Purpose, Requests};
use super::layout::{
    Features, PAGE_BLOCKS, PAGE_BYTES, POINTER_BYTES, Pointer, Position, Root, SPACE_MAP_PIECE_BYTES,
    SpaceMapPlace, Superblock,
};
use super::meta::key;
use super::meta::log::Log;
use super::meta::merge::{Merge, NewPages, Workshop};
use super::metadata::Metadata;
use super::types::FsError;
use crate::planted::Planted;

/// Share of the journal that is in use when a checkpoint begins, in 1/256.
const JOURNAL_FILL: u64 = 64;

/// Number of changed keys that begins a checkpoint at any fill of the journal.
const CHANGES_MAX: usize = 150_000;

/// Limit of merge steps in one poll: bounds others' wait.
const STEPS_AT_ONCE: usize = 8;

/// Bitmaps of groups loaded in one go.
const GROUPS_AT_ONCE: usize = 16;

/// Pages in one write.
const PAGES_AT_ONCE: usize = 64;

/// Writes of pages under way.
const WRITES_MAX: usize = 8;

/// Limit of concurrent discards of pages.
const DISCARDS_MAX: usize = 8;

/// Number of pages kept ready, beside a quarter of those in use: a checkpoint of scattered changes
/// seldom waits.
const READY_PAGES: u64 = 128;

/// A checkpoint that cannot read a page for lack of copies or space tries again after this time.
const PAUSE: Duration = Duration::from_secs(1);

/// Time between tries of a checkpoint that needs a damaged page: an intact copy may have returned with
/// its disk.
const DAMAGE_PAUSE: Duration = Duration::from_secs(10);

/// A checkpoint that cannot read a page.
#[derive(Debug)]
struct Pause {
    error: FsError,
    since: Monotonic,
    until: Monotonic,
}

/// Number of pages in reserve beyond those counted.
const SPARE_PAGES: u64 = 32;

/// Dirty blocks that a page has space for the extents of, at least.
const EXTENTS_OF_PAGE: u64 = 128;

/// How far a checkpoint is.
#[derive(Debug)]
enum Phase {
    Merging(Box<Merge>),
    /// All pages are made; their last writes are under way.
    PagesWritten(Option<Root>),
    SpaceMapWritten(Superblock),
    SuperblockWritten(Superblock),
}

/// A checkpoint under way.
#[derive(Debug)]
struct Checkpoint {
    phase: Phase,
    /// Place in the journal at which replay will begin.
    boundary: Position,
    chunks: Vec<ChunkRecord>,
    /// Pages not handed to a write yet.
    pages: NewPages,
    writes: usize,
    /// First page and number of pages that the old tree and space map leave.
    old: Vec<(Lba, u32)>,
    /// The pages of the old space map are among them.
    map_left: bool,
    /// Pages of the new space map.
    map_pages: Vec<Lba>,
}

/// The checkpoint, and the state that the last one published.
///
/// `superblock` is the newest one that is durable. Until a later one is, no page is free that it points to (`published_pages` of them in
/// tree and space map, the latter at `space_map_pages`), and the journal's tail stays at its boundary. Pages in doubt belong to no tree
/// and are not free.
#[derive(Debug, Default)]
pub struct Checkpointer {
    pub superblock: Option<Superblock>,
    checkpoint: Option<Checkpoint>,
    /// Merge steps left in this poll.
    steps: usize,
    /// A page that cannot be read. If it is damaged, nothing is changed meanwhile.
    pause: Option<Pause>,
    /// A wait for a page, or for space.
    waits: bool,
    /// Pages of the tree and the space map that the superblock points to.
    published_pages: u64,
    /// Pages of the stored space map.
    space_map_pages: Vec<Lba>,
    /// Pages that the tree has left while a read of them was under way.
    pages_in_doubt: Vec<Lba>,
    /// Discards of pages under way.
    discards: usize,
    /// Pages that the checkpoint waits for.
    wanted_pages: u64,
    /// Features that the next superblock has.
    features_wanted: Features,
}

/// Sources from which the space that checkpoints may need is computed.
#[derive(Clone, Copy)]
pub struct Room<'a> {
    pub allocator: &'a Allocator,
    pub log: &'a Log,
}

/// The parts that a checkpoint works on.
pub struct Neighbours<'a> {
    pub meta: &'a mut Metadata,
    pub requests: &'a mut Requests,
    pub chunks: &'a mut Chunks,
    pub agenda: &'a mut Agenda,
}

impl Checkpointer {
    /// Takes the state that an opening found.
    pub fn start(&mut self, superblock: Superblock, space_map_pages: Vec<Lba>, allocator: &Allocator) {
        self.superblock = Some(superblock);
        self.space_map_pages = space_map_pages;
        self.published_pages = allocator.pages.used_count();
    }

    /// Whether the merge can continue immediately.
    pub fn is_busy(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| {
            matches!(checkpoint.phase, Phase::Merging(_)) && checkpoint.writes < WRITES_MAX && !self.waits
        })
    }

    /// When a checkpoint that cannot read a page tries again. After that time it waits for an answer.
    pub fn timeout(&self, now: Monotonic) -> Option<Monotonic> {
        self.pause.as_ref().map(|pause| pause.until).filter(|until| *until > now)
    }

    /// Why checkpoints do not continue, and since when.
    pub fn trouble(&self) -> Option<(&FsError, Monotonic)> {
        self.pause.as_ref().map(|pause| (&pause.error, pause.since))
    }

    /// Returns the error that makes the volume read-only, and since when: the checkpoint needs a page that
    /// is damaged on all copies. The checkpoint retries, and the volume recovers when the page can be read.
    pub fn read_only(&self) -> Option<(FsError, Monotonic)> {
        match self.trouble()? {
            (&FsError::Corrupt { what, lba }, since) => Some((FsError::ReadOnly { what, lba }, since)),
            _ => None,
        }
    }

    /// As if the checkpoint needed a page that is damaged on all copies, or could read it again.
    #[cfg(test)]
    pub fn set_read_only(&mut self, is_read_only: bool) {
        let error = FsError::Corrupt { what: "a page", lba: Lba(77) };
        let pause = Pause { error, since: Monotonic(1), until: Monotonic(u64::MAX) };
        self.pause = is_read_only.then_some(pause);
    }

    /// Returns the most pages that a checkpoint of a full journal writes: all of the tree, most pages nine
    /// tenths full; the journal's content in half-full pages; the extents of unstored blocks, which are not
    /// in the journal yet; the space map.
    ///
    /// Later changes may be removals only: the checkpoint of the present journal leaves a larger tree, and
    /// the next one, of nothing but removals, may write all of that again. So the journal's content counts
    /// twice.
    fn page_reserve(&self, Room { allocator, log }: Room<'_>, unstored_blocks: u64) -> u64 {
        let tree = self.published_pages + self.published_pages / 4;
        let journal = self.superblock.map_or(0, |superblock| u64::from(superblock.journal_blocks)) * 3 / 8;
        let gathered = log.filled_blocks() / 2;
        let map = allocator.space_map_bytes_max().div_ceil(SPACE_MAP_PIECE_BYTES as u64);
        tree + journal + gathered + unstored_blocks / EXTENTS_OF_PAGE + map + SPARE_PAGES
    }

    /// Whether any checkpoint finds the pages that it needs: pages that the superblock points to do not leave before the next one is
    /// durable, all others are the checkpoint's to write.
    pub fn has_page_reserve(&self, room: Room<'_>, unstored_blocks: u64) -> bool {
        let reserve = self.page_reserve(room, unstored_blocks);
        room.allocator.pages.total_count() >= self.published_pages + reserve
    }

    /// Pages, used ones included, with fewer than which a further chunk for metadata is wanted soon.
    pub fn pages_wanted(&self, room: Room<'_>, unstored_blocks: u64) -> u64 {
        let margin = u64::from(room.allocator.chunk_blocks() / PAGE_BLOCKS) / 8;
        self.published_pages + self.page_reserve(room, unstored_blocks) + margin
    }

    /// Allows as many merge steps as one poll may take.
    pub fn begin_turn(&mut self) {
        self.steps = STEPS_AT_ONCE;
    }

    /// Has the next superblock, soon, say that the volume has these features. Whether that is new.
    pub fn want_features(&mut self, features: Features) -> bool {
        let is_new = !self.features_wanted.contains(features);
        self.features_wanted |= features;
        is_new
    }

    /// Whether a durable superblock has these features.
    pub fn has_features(&self, features: Features) -> bool {
        self.superblock.is_some_and(|superblock| superblock.features.contains(features))
    }

    /// Begins a checkpoint or carries on the one under way, as far as it can go.
    ///
    /// # Errors
    /// Those with which the volume fails. After all others the checkpoint tries again.
    pub fn pump(&mut self, by: &mut Neighbours<'_>) -> Result<(), FsError> {
        if self.pause.as_ref().is_some_and(|pause| by.agenda.now < pause.until) {
            return Ok(());
        }
        let result = match self.checkpoint.take() {
            None => self.begin(by).inspect(|()| self.end_pause(by.agenda)),
            Some(mut checkpoint) => {
                let result = self.carry_on(&mut checkpoint, by);
                if !matches!(result, Ok(true)) {
                    self.checkpoint = Some(checkpoint);
                }
                result.map(drop)
            }
        };
        match result {
            Ok(()) => self.waits = false,
            Err(FsError::Miss) => self.waits = true,
            Err(error @ (FsError::Unavailable | FsError::NoSpace))
                if !Planted::OutageFailsVolume.is_planted() =>
            {
                self.pause(error, PAUSE, by.agenda.now);
            }
            // Everything that is not below the page can still be read, and the journal's content stays there.
            Err(error @ FsError::Corrupt { .. }) => {
                self.pause(error, DAMAGE_PAUSE, by.agenda.now);
                by.agenda.wake();
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn pause(&mut self, error: FsError, length: Duration, now: Monotonic) {
        let since = self.pause.take().map_or(now, |pause| pause.since);
        self.pause = Some(Pause { error, since, until: now.after(length) });
        self.waits = true;
    }

    /// Ends the pause: the page that could not be read can be.
    fn end_pause(&mut self, agenda: &mut Agenda) {
        if self.pause.take().is_some() {
            agenda.wake();
        }
    }

    fn begin(&mut self, by: &mut Neighbours<'_>) -> Result<(), FsError> {
        let Metadata { store, journal, .. } = &by.meta;
        let new_features = self.superblock.is_some_and(|old| !old.features.contains(self.features_wanted));
        let wanted = journal.log.fill() >= JOURNAL_FILL || store.changed() >= CHANGES_MAX || new_features;
        if !wanted || store.changed() == 0 || journal.log.is_at_limit() {
            return Ok(());
        }
        load_dirty_groups(by)?;
        let Some(superblock) = self.superblock else { return Ok(()) };
        let Metadata { store, journal, allocator, .. } = &mut *by.meta;
        journal.close(by.requests);
        let bitmaps = allocator.take_dirty().into_iter();
        store.seal(bitmaps.map(|(group, bitmap)| (key::group(group), bitmap.map(Into::into))).collect());
        let merge = Merge::new(superblock.volume, superblock.sequence + 1, store.tree.root());
        self.checkpoint = Some(Checkpoint {
            phase: Phase::Merging(Box::new(merge)),
            boundary: journal.log.head(),
            chunks: allocator.chunk_records(),
            pages: Vec::new(),
            writes: 0,
            old: Vec::new(),
            map_left: false,
            map_pages: Vec::new(),
        });
        by.agenda.again = true;
        Ok(())
    }

    /// Continues as far as the phase allows. Returns whether the checkpoint is done.
    fn carry_on(&mut self, checkpoint: &mut Checkpoint, by: &mut Neighbours<'_>) -> Result<bool, FsError> {
        let all_written = checkpoint.writes == 0;
        match &mut checkpoint.phase {
            Phase::Merging(_) => self.merge(checkpoint, by)?,
            Phase::PagesWritten(root) => {
                let root = *root;
                if all_written || Planted::SuperblockBeforePages.is_planted() {
                    let superblock = self.write_space_map(checkpoint, root, by)?;
                    checkpoint.phase = Phase::SpaceMapWritten(superblock);
                }
            }
            Phase::SpaceMapWritten(superblock) => {
                let superblock = *superblock;
                if all_written || Planted::SuperblockBeforePages.is_planted() {
                    checkpoint.publish(superblock, by);
                }
            }
            Phase::SuperblockWritten(superblock) => {
                let superblock = *superblock;
                if all_written {
                    self.end(checkpoint, superblock, by);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Takes the merge steps left in this poll, and writes the pages made.
    fn merge(&mut self, checkpoint: &mut Checkpoint, by: &mut Neighbours<'_>) -> Result<(), FsError> {
        let Phase::Merging(merge) = &mut checkpoint.phase else { return Ok(()) };
        let mut root = None;
        while root.is_none() && self.steps > 0 && checkpoint.writes < WRITES_MAX {
            self.steps -= 1;
            let needed = merge.pages_needed();
            if by.meta.allocator.pages.ready_count() < needed {
                self.want_pages(needed, by);
                return Err(FsError::Miss);
            }
            let pages = &mut by.meta.allocator.pages;
            let (changes, tree) = by.meta.store.sealed();
            let step = merge.step(&mut Workshop {
                tree,
                changes,
                take_page: &mut || pages.take(1),
                pages: &mut checkpoint.pages,
            });
            match step {
                Ok(done) => {
                    root = done;
                    self.end_pause(by.agenda);
                }
                Err(error) => {
                    write_pages(&mut checkpoint.pages, &mut checkpoint.writes, by.requests, true);
                    return Err(error);
                }
            }
            write_pages(&mut checkpoint.pages, &mut checkpoint.writes, by.requests, root.is_some());
        }
        if let Some(root) = root {
            checkpoint.old = std::mem::take(&mut merge.replaced).into_iter().map(|lba| (lba, 1)).collect();
            checkpoint.phase = Phase::PagesWritten(root);
            by.agenda.again = true;
        }
        Ok(())
    }

    /// Writes the space map as of this checkpoint's publication. Returns the superblock that will point to
    /// it.
    fn write_space_map(
        &mut self,
        checkpoint: &mut Checkpoint,
        root: Option<Root>,
        by: &mut Neighbours<'_>,
    ) -> Result<Superblock, FsError> {
        let Some(old) = self.superblock else { return Err(FsError::Stopped) };
        if !checkpoint.map_left {
            checkpoint.map_left = true;
            checkpoint.old.extend(self.space_map_pages.iter().map(|lba| (*lba, 1)));
        }
        // Its length does not depend on which pages are in use.
        let len_bytes = by.meta.allocator.encode_space_map(&checkpoint.chunks, &checkpoint.old).len();
        let count = len_bytes.div_ceil(SPACE_MAP_PIECE_BYTES);
        if by.meta.allocator.pages.ready_count() < count as u64 {
            self.want_pages(count as u64, by);
            return Err(FsError::Miss);
        }
        let allocator = &mut by.meta.allocator;
        let places: Vec<Lba> = (0..count).filter_map(|_| allocator.pages.take(1)).collect();
        let map = allocator.encode_space_map(&checkpoint.chunks, &checkpoint.old);
        assert!(map.len() == len_bytes && places.len() == count, "a space map has all its pieces");
        let (pieces, first) = encode_pieces(&map, &places, old.sequence + 1);
        checkpoint.pages.extend(pieces);
        checkpoint.map_pages = places;
        write_pages(&mut checkpoint.pages, &mut checkpoint.writes, by.requests, true);
        self.wanted_pages = 0;
        Ok(Superblock {
            sequence: old.sequence + 1,
            tail: checkpoint.boundary,
            root,
            space_map: first.map(|first| SpaceMapPlace { first, len_bytes: map.len() as u32 }),
            order: by.meta.journal.log.order(),
            features: old.features | self.features_wanted,
            // All batches from the boundary on are this program's.
            batch_blocks_max: NonZeroU32::new(Log::batch_blocks_max(old.journal_blocks)),
            ..old
        })
    }

    fn end(&mut self, checkpoint: &mut Checkpoint, superblock: Superblock, by: &mut Neighbours<'_>) {
        let Metadata { store, journal, allocator, .. } = &mut *by.meta;
        self.superblock = Some(superblock);
        store.unseal();
        let pages: Vec<Lba> = checkpoint.old.iter().map(|(lba, _)| *lba).collect();
        let loading = store.tree.replace_root(superblock.root, &pages);
        for (lba, count) in std::mem::take(&mut checkpoint.old) {
            // A page with a read under way is not reused before the next checkpoint.
            if loading.contains(&lba) {
                self.pages_in_doubt.push(lba);
            } else {
                allocator.pages.free(lba, count);
            }
        }
        for lba in std::mem::take(&mut self.pages_in_doubt) {
            if loading.contains(&lba) || store.tree.is_loading(lba) {
                self.pages_in_doubt.push(lba);
            } else {
                allocator.pages.free(lba, 1);
            }
        }
        self.space_map_pages = std::mem::take(&mut checkpoint.map_pages);
        self.published_pages = allocator.pages.used_count();
        journal.log.advance_tail(checkpoint.boundary);
        by.agenda.wake();
        by.agenda.again = true;
    }

    /// Notes that the checkpoint waits for this number of pages.
    fn want_pages(&mut self, count: u64, by: &mut Neighbours<'_>) {
        by.chunks.need_meta |= by.meta.allocator.pages.free_count() < count;
        self.wanted_pages = count;
        by.agenda.again |= !self.waits;
    }

    /// Discards places of pages until enough can be taken.
    pub fn pump_discards(&mut self, allocator: &mut Allocator, requests: &mut Requests) {
        let pages = &mut allocator.pages;
        let goal = (pages.used_count() / 4 + READY_PAGES).max(self.wanted_pages);
        while pages.ready_count() < goal
            && self.discards < DISCARDS_MAX
            && let Some((first, count)) = pages.next_discard()
        {
            self.discards += 1;
            let purpose = Purpose::DiscardPages { first, count };
            requests.discard_needed(purpose, first, u64::from(count * PAGE_BLOCKS));
        }
    }

    /// Takes the answer to a discard of pages.
    ///
    /// # Errors
    /// The volume fails with the request.
    pub fn handle_discard(
        &mut self,
        first: Lba,
        count: u32,
        answer: Answer,
        allocator: &mut Allocator,
        agenda: &mut Agenda,
    ) -> Result<(), FsError> {
        self.discards -= 1;
        allocator.pages.discarded(first, count, answer.is_ok());
        agenda.again = true;
        answer.map(drop)
    }

    /// Takes the answer to a write of pages, space map or superblock.
    ///
    /// # Errors
    /// The volume fails with the request.
    pub fn handle_write(&mut self, answer: Answer) -> Result<(), FsError> {
        answer?;
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.writes -= 1;
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn is_under_way(&self) -> bool {
        self.checkpoint.is_some()
    }
}

impl Checkpoint {
    /// Writes the superblock that makes this checkpoint the one that counts.
    fn publish(&mut self, superblock: Superblock, by: &mut Neighbours<'_>) {
        let data = superblock.encode().into();
        by.requests.write_needed(Purpose::Checkpoint, superblock.lba(), WriteClass::Append, data);
        self.writes += 1;
        if Planted::DiscardBeforeSuperblock.is_planted() {
            for &(lba, count) in &self.old {
                let blocks = u64::from(count * PAGE_BLOCKS);
                by.requests.submit(Purpose::Nothing, SpaceRequest::Discard { lba, blocks });
            }
        }
        if Planted::JournalTailEarly.is_planted() {
            by.meta.journal.log.advance_tail(self.boundary);
        }
        self.phase = Phase::SuperblockWritten(superblock);
    }
}

/// Loads the bitmaps of changed groups, some at a time: they stay in memory.
///
/// # Errors
/// `Miss` until all are loaded: missing ones are requested together. Damage of one of them.
fn load_dirty_groups(by: &mut Neighbours<'_>) -> Result<(), FsError> {
    let groups = by.meta.allocator.dirty_unloaded(GROUPS_AT_ONCE);
    let mut missed = false;
    for &group in &groups {
        match by.meta.load_group(group) {
            Ok(()) => {}
            Err(FsError::Miss) => missed = true,
            Err(error) => return Err(error),
        }
    }
    match (missed, groups.is_empty()) {
        (true, _) => Err(FsError::Miss),
        (false, true) => Ok(()),
        (false, false) => {
            by.agenda.again = true;
            Err(FsError::Miss)
        }
    }
}

/// Hands pages to writes: neighbours together, the last ones only if `all`.
fn write_pages(pages: &mut NewPages, writes: &mut usize, requests: &mut Requests, all: bool) {
    if pages.is_empty() || (!all && pages.len() < PAGES_AT_ONCE) {
        return;
    }
    let mut pages = std::mem::take(pages);
    pages.sort_unstable_by_key(|(lba, _)| *lba);
    let mut run: Option<(Lba, u64, Payload)> = None;
    let mut write = |run: Option<(Lba, u64, Payload)>| {
        if let Some((lba, _, data)) = run {
            *writes += 1;
            requests.write_needed(Purpose::Checkpoint, lba, WriteClass::Fresh, data);
        }
    };
    for (lba, bytes) in pages {
        match &mut run {
            Some((_, end, data)) if *end == lba.0 && data.len() < PAGES_AT_ONCE * PAGE_BYTES => {
                data.push(bytes);
                *end += u64::from(PAGE_BLOCKS);
            }
            _ => {
                write(run.take());
                run = Some((lba, lba.0 + u64::from(PAGE_BLOCKS), bytes.into()));
            }
        }
    }
    write(run);
}

/// A space map as pages for these places, and the pointer to the first one. Each page points to the
/// next.
fn encode_pieces(map: &[u8], places: &[Lba], sequence: u64) -> (NewPages, Option<Pointer>) {
    let (mut pages, mut next) = (NewPages::new(), None::<Pointer>);
    for (&lba, piece) in places.iter().zip(map.chunks(SPACE_MAP_PIECE_BYTES)).rev() {
        let mut page = BufMut::zeroed(PAGE_BYTES);
        page[..POINTER_BYTES].copy_from_slice(&next.map_or([0; POINTER_BYTES], |next| next.encode()));
        page[POINTER_BYTES..POINTER_BYTES + piece.len()].copy_from_slice(piece);
        next = Some(Pointer { lba, sequence, crc: codes::crc64(&page) });
        pages.push((lba, page.freeze()));
    }
    (pages, next)
}
