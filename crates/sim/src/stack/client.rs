//! Clients: each works in a directory of its own, and remembers its answers and the facts that
//! follow from them.

use super::home::Home;
use super::model::{CELL_BYTES, ChangeId, Changes, Content, FileModel};
use super::names::NameChange;
use super::recovery::Recovery;
use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};
use sys::Payload;
use types::{Monotonic, NtStatus, Sid};
use volume::backend::*;
use volume::security::{Ace, AceFlags, Acl, SecurityDescriptor, rights};

/// NT create option: each write is durable when it is answered.
const WRITE_THROUGH: u32 = 2;
/// MS-DTYP 2.4.7: the DACL is set.
const DACL_SECURITY_INFORMATION: u32 = 4;
/// Operations of one client at once.
const DOING_MAX: usize = 4;
/// Factor by which the pauses of a client that has done much are longer.
const LEISURE: u64 = 16;
/// Opens of one client at once.
const OPENS_MAX: usize = 4;
/// Cells of the block in which clones are aligned.
const BLOCK_CELLS: u64 = types::BLOCK_BYTES as u64 / CELL_BYTES;

/// A request that a client may have in flight.
#[derive(Debug, Clone)]
pub(crate) enum What {
    Create { file: u32, at: usize, write_through: bool },
    Open { file: u32, write_through: bool, then_remove: bool },
    Write { file: u32, change: ChangeId, durable: bool, cells: (u64, u64) },
    Read { file: u32, from: u64, count: u64 },
    Flush { open: OpenId, file: u32 },
    Close { open: OpenId, file: u32, flushes: bool, removes: Option<usize> },
    MarkRemoved { open: OpenId, file: u32 },
    SetEnd { file: u32, change: ChangeId },
    Zero { file: u32, change: ChangeId, cells: (u64, u64) },
    Clone { file: u32, change: ChangeId, cells: (u64, u64), source: (u32, u64, u64) },
    Rename { file: u32, at: usize },
    SetSecurity { file: u32 },
    Recovery,
}

impl What {
    /// Lists the files that it changes or relies on, with the cells: first the file that it
    /// changes.
    fn reserves(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        let (first, second) = match self {
            Self::Write { file, cells, .. } | Self::Zero { file, cells, .. } => {
                (Some((*file, cells.0, cells.1)), None)
            }
            Self::Clone { file, cells, source, .. } => (Some((*file, cells.0, cells.1)), Some(*source)),
            Self::SetEnd { file, .. } => (Some((*file, 0, u64::MAX)), None),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    fn is_naming(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Open { then_remove: true, .. }
                | Self::MarkRemoved { .. }
                | Self::Rename { .. }
                | Self::Close { removes: Some(_), .. }
        )
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Doing {
    pub what: What,
    pub began: u64,
    pub began_at: Monotonic,
}

#[derive(Debug, Clone)]
pub(crate) struct OpenFile {
    pub open: OpenId,
    pub file: u32,
    pub write_through: bool,
    /// Step of its last write's request, and of the last flush that was answered.
    wrote: u64,
    flushed: u64,
    closing: bool,
}

/// A client's next steps: those of a program that saves a file, or of a host that keeps images of
/// machines.
#[derive(Debug, Clone, Copy)]
enum Step {
    CreateAt(u64),
    WriteAll,
    RenameTo(u64),
    /// Writes cells of the file from this one on.
    WriteAt(u64),
    /// Makes the file as long as the preceding one, and lets it share all of its blocks.
    Grow,
    CloneAll,
    /// Gives back this block of the file, so that its neighbours become separate pieces.
    ZeroBlock(u64),
    Flush,
    /// Closes the preceding file, and removes it.
    CloseBefore,
    RemoveBefore,
}

/// Blocks of an image: half of them, given back by a clone, leave more pieces than a short
/// journal's batch holds.
const IMAGE_BLOCKS: u64 = 1600;
/// Cells of one write of an image.
const IMAGE_WRITE_CELLS: u64 = 400;
/// Longest pause before a step of a long plan, in microseconds.
const PLAN_PAUSE_US: u64 = 100;

pub(crate) enum Mode {
    /// The client's volume is not serving.
    Away,
    Recovering(Box<Recovery>),
    Working,
    /// Waiting for a restart, since an answer left open which names the client has.
    Lost,
}

pub(crate) struct Client {
    pub home: Home,
    pub volume: usize,
    pub opens: Vec<OpenFile>,
    pub doing: BTreeMap<u64, Doing>,
    pub mode: Mode,
    pub wake_at: Monotonic,
    plan: VecDeque<Step>,
    /// The file that the plan is about, and the preceding one.
    planned: u32,
    before: u32,
    /// Whether the client makes images, each with a clone that is changed in pieces.
    makes_images: bool,
    pause_us: u64,
    name_count: u64,
    cells_max: u64,
}

/// State that a client shares with the others.
pub(crate) struct Shared<'a> {
    pub random: &'a mut Random,
    pub changes: &'a mut Changes,
    pub next_file: &'a mut u32,
    pub step: u64,
    pub now: Monotonic,
}

/// Consequences of an answer.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub wrong: Option<String>,
    /// Step before which all answered metadata of all clients of the volume are durable. Other
    /// changes made during a durable request may be behind it in the volume's journal.
    pub metadata_durable: Option<u64>,
    /// The next request of the same task.
    pub next: Option<(What, Operation)>,
}

impl Client {
    pub fn new(number: usize, volume: usize, durability: Durability, scenario: &super::Scenario) -> Self {
        Self {
            home: Home::new(number, durability),
            volume,
            opens: Vec::new(),
            doing: BTreeMap::new(),
            mode: Mode::Away,
            wake_at: Monotonic(0),
            plan: VecDeque::new(),
            planned: 0,
            before: 0,
            // The volume has space for the images of one client.
            makes_images: scenario.images && number == 0,
            pause_us: scenario.pause_us,
            name_count: scenario.names,
            cells_max: scenario.file_bytes_max / CELL_BYTES,
        }
    }

    /// Handles the end of the process or the volume: no request is answered any more, and no open
    /// is left.
    pub fn restarted(&mut self) {
        self.doing.clear();
        self.opens.clear();
        self.plan.clear();
        self.mode = Mode::Away;
    }

    pub fn pause(&mut self, shared: &mut Shared, busy: bool) {
        let factor = if busy { 1 } else { LEISURE };
        let pause_us = if self.plan.len() > 16 { PLAN_PAUSE_US } else { self.pause_us * factor };
        let pause = shared.random.between(1, pause_us);
        self.wake_at = shared.now.after(std::time::Duration::from_micros(pause));
    }

    /// Whether no other request changes these cells of the file, or its end.
    fn is_free(&self, file: u32, from: u64, to: u64) -> bool {
        self.doing.values().flat_map(|doing| doing.what.reserves()).all(|(other, start, end)| {
            // A write behind the end of the file moves the end.
            other != file
                || ((end <= from || to <= start)
                    && end.max(to).saturating_mul(CELL_BYTES) <= self.home.end_of(file))
        })
    }

    fn is_naming(&self) -> bool {
        self.doing.values().any(|doing| doing.what.is_naming())
    }

    /// Whether the file is being opened, renamed or removed.
    fn is_touched(&self, file: u32) -> bool {
        self.opens.iter().any(|open| open.file == file)
            || self.doing.values().any(|doing| match doing.what {
                What::Open { file: other, .. } | What::Close { file: other, .. } => other == file,
                What::MarkRemoved { file: other, .. } | What::Create { file: other, .. } => other == file,
                _ => false,
            })
    }

    /// Chooses the next request.
    pub fn choose(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        if self.doing.len() >= DOING_MAX {
            return None;
        }
        if !self.plan.is_empty() {
            return self.follow_plan(shared);
        }
        if self.makes_images && shared.random.chance(30) && self.opens.len() + 3 <= OPENS_MAX {
            self.plan_image(shared.random.chance(500));
            return self.follow_plan(shared);
        }
        match shared.random.below(100) {
            0..32 => self.choose_write(shared),
            32..35 => self.choose_security(shared),
            35..50 => self.choose_read(shared),
            50..59 => self.choose_flush(shared),
            59..67 => self.choose_close(shared),
            67..73 => self.choose_open(shared, false),
            73..79 => {
                let name = shared.random.below(self.name_count);
                self.create_file(shared, name)
            }
            79..83 => self.choose_end(shared),
            83..88 => self.choose_zero(shared),
            88..91 => {
                let (name, file) = self.pick_named(shared, |client, file| client.usable(file).is_some())?;
                let to = shared.random.below(self.name_count);
                let open = self.usable(file)?.open;
                self.rename(shared, name, open, file, to)
            }
            91..93 => self.choose_open(shared, true),
            93..96 => self.choose_clone(shared),
            _ => {
                let (temporary, name) = (self.name_count, shared.random.below(self.name_count));
                self.plan.extend([Step::CreateAt(temporary), Step::WriteAll, Step::RenameTo(name)]);
                self.follow_plan(shared)
            }
        }
    }

    /// Plans an image, a clone of it in which every other block is given back, and then one more
    /// clone of the image, or its removal.
    fn plan_image(&mut self, clones: bool) {
        let (image, clone) = (self.name_count + 1, self.name_count + 2);
        self.plan.push_back(Step::CreateAt(image));
        let cells = (0..IMAGE_BLOCKS * BLOCK_CELLS).step_by(IMAGE_WRITE_CELLS as usize);
        self.plan.extend(cells.map(Step::WriteAt));
        self.plan.extend([Step::Flush, Step::CreateAt(clone), Step::Grow, Step::CloneAll]);
        self.plan.extend((0..IMAGE_BLOCKS).step_by(2).map(Step::ZeroBlock));
        self.plan.push_back(Step::Flush);
        if clones {
            self.plan.extend([Step::CreateAt(self.name_count + 3), Step::Grow, Step::CloneAll, Step::Flush]);
        } else {
            self.plan.extend([Step::CloseBefore, Step::RemoveBefore, Step::Flush, Step::Flush]);
        }
    }

    /// Takes a step on an image, or on its clone.
    fn follow_image_plan(&mut self, shared: &mut Shared, step: Step) -> Option<(What, Operation)> {
        let open = self.usable(self.planned)?.clone();
        match step {
            Step::WriteAt(cell) => self.write(shared, &open, cell, IMAGE_WRITE_CELLS),
            Step::Grow => self.set_end(shared, &open, self.home.end_of(self.before)),
            Step::CloneAll => {
                let source = self.usable(self.before)?.clone();
                let cells = self.home.end_of(source.file) / CELL_BYTES;
                self.clone_cells(shared, (&source, 0), (&open, 0), cells)
            }
            Step::ZeroBlock(block) => {
                self.zero(shared, &open, block * BLOCK_CELLS, (block + 1) * BLOCK_CELLS)
            }
            Step::Flush => {
                let what = What::Flush { open: open.open, file: open.file };
                Some((what, Operation::Flush { open: open.open }))
            }
            Step::CloseBefore => {
                let before = self.usable(self.before)?.open;
                Some(self.close(before, self.before, None))
            }
            Step::RemoveBefore => {
                let names = self.home.names.current();
                let name = *names.iter().find(|(_, file)| **file == self.before)?.0;
                let operation = self.home.create(self.home.path(name), Disposition::Open, 0);
                Some((What::Open { file: self.before, write_through: false, then_remove: true }, operation))
            }
            Step::CreateAt(_) | Step::WriteAll | Step::RenameTo(_) => None,
        }
    }

    fn follow_plan(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        if !self.doing.is_empty() {
            return None;
        }
        match self.plan.pop_front()? {
            Step::CreateAt(name) => {
                let begun = self.create_file(shared, name);
                match &begun {
                    Some((What::Create { file, .. }, _)) => {
                        (self.before, self.planned) = (self.planned, *file);
                    }
                    _ => self.plan.clear(),
                }
                begun
            }
            Step::WriteAll => {
                let open = self.usable(self.planned)?.clone();
                let count = shared.random.between(1, self.cells_max);
                self.write(shared, &open, 0, count.min(512))
            }
            Step::RenameTo(to) => {
                let open = self.usable(self.planned)?.open;
                let names = self.home.names.current();
                let (name, file) =
                    names.iter().find(|(_, file)| **file == self.planned).map(|(a, b)| (*a, *b))?;
                self.rename(shared, name, open, file, to)
            }
            step => {
                let begun = self.follow_image_plan(shared, step);
                if begun.is_none() {
                    self.plan.clear();
                }
                begun
            }
        }
    }

    fn usable(&self, file: u32) -> Option<&OpenFile> {
        self.opens.iter().find(|open| open.file == file && !open.closing)
    }

    fn pick_open(&self, shared: &mut Shared) -> Option<OpenFile> {
        let usable: Vec<usize> = (0..self.opens.len()).filter(|at| !self.opens[*at].closing).collect();
        shared.random.pick(&usable).map(|at| self.opens[at].clone())
    }

    fn pick_named(&self, shared: &mut Shared, fits: impl Fn(&Self, u32) -> bool) -> Option<(u64, u32)> {
        let names = self.home.names.current();
        let fitting: Vec<(u64, u32)> =
            names.iter().map(|(name, file)| (*name, *file)).filter(|(_, file)| fits(self, *file)).collect();
        shared.random.pick(&fitting)
    }

    fn create_file(&mut self, shared: &mut Shared, name: u64) -> Option<(What, Operation)> {
        if self.is_naming() || self.opens.len() >= OPENS_MAX || self.home.names.current().contains_key(&name)
        {
            return None;
        }
        *shared.next_file += 1;
        let file = *shared.next_file;
        self.home.files.insert(file, FileModel::new(file));
        let at = self.home.names.begin(NameChange::Create { name, file }, shared.step);
        let write_through = shared.random.chance(150);
        let options = if write_through { WRITE_THROUGH } else { 0 };
        let operation = self.home.create(self.home.path(name), Disposition::Create, options);
        Some((What::Create { file, at, write_through }, operation))
    }

    fn choose_open(&mut self, shared: &mut Shared, then_remove: bool) -> Option<(What, Operation)> {
        if self.opens.len() >= OPENS_MAX || self.is_naming() {
            return None;
        }
        let (name, file) = self.pick_named(shared, |client, file| !client.is_touched(file))?;
        let write_through = shared.random.chance(150);
        let options = if write_through { WRITE_THROUGH } else { 0 };
        let operation = self.home.create(self.home.path(name), Disposition::Open, options);
        Some((What::Open { file, write_through, then_remove }, operation))
    }

    fn choose_write(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let open = self.pick_open(shared)?;
        let end = self.home.end_of(open.file) / CELL_BYTES;
        let longest = if shared.random.chance(800) { 16 } else { 300 };
        let count = shared.random.between(1, longest.min(self.cells_max));
        let from = match shared.random.below(4) {
            0 => end,
            1 => shared.random.below(self.cells_max),
            2 => shared.random.below(end.max(1)) / BLOCK_CELLS * BLOCK_CELLS,
            _ => shared.random.below(end.max(1)),
        };
        let from = from.min(self.cells_max.saturating_sub(count));
        self.write(shared, &open, from, count)
    }

    fn write(
        &mut self,
        shared: &mut Shared,
        open: &OpenFile,
        from: u64,
        count: u64,
    ) -> Option<(What, Operation)> {
        if !self.is_free(open.file, from, from + count) {
            return None;
        }
        let change = shared.changes.begin();
        let bytes = self.home.files.get_mut(&open.file)?.write(shared.changes, change, from, count);
        let write_through = shared.random.chance(80);
        let durable = write_through || open.write_through || self.home.is_durable_share();
        let known = self.opens.iter_mut().find(|known| known.open == open.open)?;
        known.wrote = shared.step;
        let data = Payload::from(bytes.freeze());
        let offset = from * CELL_BYTES;
        let what = What::Write { file: open.file, change, durable, cells: (from, from + count) };
        Some((what, Operation::Write { open: open.open, offset, data, write_through, unbuffered: false }))
    }

    fn choose_read(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let open = self.pick_open(shared)?;
        let end = self.home.end_of(open.file) / CELL_BYTES;
        if end == 0 {
            return None;
        }
        let from = shared.random.below(end);
        let count = shared.random.between(1, 64);
        let range = ByteRange { offset: from * CELL_BYTES, len_bytes: count * CELL_BYTES };
        let what = What::Read { file: open.file, from, count };
        Some((what, Operation::Read { open: open.open, range, unbuffered: false }))
    }

    fn choose_flush(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let open = self.pick_open(shared)?;
        let what = What::Flush { open: open.open, file: open.file };
        Some((what, Operation::Flush { open: open.open }))
    }

    fn choose_close(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let OpenFile { open, file: own, .. } = self.pick_open(shared)?;
        // A close may overtake a flush; other requests in flight would lose their open.
        let busy = self.doing.values().any(|doing| match &doing.what {
            What::Flush { .. } => false,
            What::Read { file, .. } | What::Rename { file, .. } | What::SetSecurity { file } => *file == own,
            other => other.reserves().any(|(file, ..)| file == own),
        });
        if busy {
            return None;
        }
        Some(self.close(open, own, None))
    }

    fn close(&mut self, open: OpenId, file: u32, removes: Option<usize>) -> (What, Operation) {
        let mut flushes = false;
        if let Some(known) = self.opens.iter_mut().find(|known| known.open == open) {
            known.closing = true;
            flushes = self.home.share.durability != Durability::Flush && known.wrote > known.flushed;
        }
        (What::Close { open, file, flushes, removes }, Operation::Close { open, query: false })
    }

    fn choose_end(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let open = self.pick_open(shared)?;
        if !self.is_free(open.file, 0, u64::MAX / CELL_BYTES) {
            return None;
        }
        let end = shared.random.below(self.cells_max) * CELL_BYTES;
        self.set_end(shared, &open, end)
    }

    fn set_end(&mut self, shared: &mut Shared, open: &OpenFile, end: u64) -> Option<(What, Operation)> {
        let change = shared.changes.begin();
        self.home.files.get_mut(&open.file)?.set_end(shared.changes, change, end);
        let set = SetInformation::EndOfFile(end);
        Some((What::SetEnd { file: open.file, change }, Operation::SetInformation { open: open.open, set }))
    }

    fn choose_zero(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let open = self.pick_open(shared)?;
        let end = self.home.end_of(open.file) / CELL_BYTES;
        let from = shared.random.below(end.max(1));
        let to = (from + shared.random.between(1, 40)).min(end);
        if from >= to || !self.is_free(open.file, from, to) {
            return None;
        }
        self.zero(shared, &open, from, to)
    }

    fn zero(
        &mut self,
        shared: &mut Shared,
        open: &OpenFile,
        from: u64,
        to: u64,
    ) -> Option<(What, Operation)> {
        let change = shared.changes.begin();
        self.home.files.get_mut(&open.file)?.zero(shared.changes, change, from, to - from);
        let range = ByteRange { offset: from * CELL_BYTES, len_bytes: (to - from) * CELL_BYTES };
        let what = What::Zero { file: open.file, change, cells: (from, to) };
        Some((what, Operation::ZeroRange { open: open.open, range }))
    }

    fn choose_clone(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let (source, target) = (self.pick_open(shared)?, self.pick_open(shared)?);
        let (source_end, target_end) = (self.home.end_of(source.file), self.home.end_of(target.file));
        let blocks = (source_end.min(target_end) / CELL_BYTES / BLOCK_CELLS).min(32);
        if blocks == 0 || source.file == target.file {
            return None;
        }
        let count = shared.random.between(1, blocks) * BLOCK_CELLS;
        let place = |random: &mut Random, end: u64| {
            random.below((end / CELL_BYTES - count) / BLOCK_CELLS + 1) * BLOCK_CELLS
        };
        let (from, to) = (place(shared.random, source_end), place(shared.random, target_end));
        if !self.is_free(target.file, to, to + count) || !self.is_free(source.file, from, from + count) {
            return None;
        }
        self.clone_cells(shared, (&source, from), (&target, to), count)
    }

    fn clone_cells(
        &mut self,
        shared: &mut Shared,
        (source, from): (&OpenFile, u64),
        (target, to): (&OpenFile, u64),
        count: u64,
    ) -> Option<(What, Operation)> {
        let contents: Vec<Content> =
            self.home.files.get(&source.file)?.certain(shared.changes, from, count)?;
        let change = shared.changes.begin();
        self.home.files.get_mut(&target.file)?.take(shared.changes, change, to, &contents);
        let chunk = CopyChunk {
            source_offset: from * CELL_BYTES,
            target_offset: to * CELL_BYTES,
            len_bytes: count * CELL_BYTES,
        };
        let what = What::Clone {
            file: target.file,
            change,
            cells: (to, to + count),
            source: (source.file, from, from + count),
        };
        Some((what, Operation::DuplicateExtents { source: source.open, target: target.open, chunk }))
    }

    /// Gives a file a unique descriptor of several KiB that still allows the client everything.
    fn choose_security(&mut self, shared: &mut Shared) -> Option<(What, Operation)> {
        let open = self.pick_open(shared)?;
        let full = |sid| Ace::allow(sid, rights::FILE_ALL, AceFlags::empty());
        let mut aces = vec![full(Sid::everyone())];
        for _ in 0..shared.random.between(1, 400) {
            let rid = shared.random.below(u64::from(u32::MAX)) as u32;
            aces.push(full(Sid::new(5, &[21, 9, 9, 9, rid]).expect("a SID")));
        }
        let descriptor = SecurityDescriptor { dacl: Some(Acl::new(aces)), ..Default::default() };
        let descriptor = descriptor.build().expect("short enough");
        let set = Operation::SetSecurity { open: open.open, parts: DACL_SECURITY_INFORMATION, descriptor };
        Some((What::SetSecurity { file: open.file }, set))
    }

    fn rename(
        &mut self,
        shared: &mut Shared,
        from: u64,
        open: OpenId,
        file: u32,
        to: u64,
    ) -> Option<(What, Operation)> {
        let names = self.home.names.current();
        let replaced = names.get(&to).copied();
        if self.is_naming() || from == to || replaced.is_some_and(|file| self.is_touched(file)) {
            return None;
        }
        let at = self.home.names.begin(NameChange::Rename { from, to }, shared.step);
        if replaced.is_some() {
            self.home.files.get_mut(&file)?.replaced.push((at, shared.step));
        }
        let set = SetInformation::Rename { target: self.home.path(to), replace: true, posix: false };
        Some((What::Rename { file, at }, Operation::SetInformation { open, set }))
    }

    /// Requests that a file be removed when this open of it is closed; the open gets no other
    /// request.
    fn mark_removed(&mut self, open: OpenId, file: u32) -> (What, Operation) {
        self.opens.iter_mut().filter(|open| open.file == file).for_each(|open| open.closing = true);
        let set = SetInformation::Disposition { flags: 1 };
        (What::MarkRemoved { open, file }, Operation::SetInformation { open, set })
    }

    /// Handles an answer.
    pub fn answered(&mut self, shared: &mut Shared, doing: Doing, reply: Reply) -> Outcome {
        let (began, step) = (doing.began, shared.step);
        let mut outcome = Outcome::default();
        let durable_share = self.home.is_durable_share();
        match (doing.what, reply) {
            (What::Create { file, at, write_through }, Reply::Created(created)) => {
                self.home.names.end(at, step);
                outcome.metadata_durable = self.home.made_names_durable(durable_share, began);
                self.opened(file, &created, write_through);
            }
            (What::Open { file, write_through, then_remove }, Reply::Created(created)) => {
                outcome.wrong = self.home.check_opened(shared.changes, file, &created);
                self.opened(file, &created, write_through);
                outcome.next = then_remove.then(|| self.mark_removed(created.open, file));
            }
            (What::MarkRemoved { open, file }, Reply::Done) => {
                let current = self.home.names.current();
                let name = current.iter().find(|(_, other)| **other == file).map_or(0, |(name, _)| *name);
                let at = self.home.names.begin(NameChange::Remove { name }, step);
                outcome.next = Some(self.close(open, file, Some(at)));
            }
            (What::Write { change, durable, .. }, Reply::Written(_)) => {
                shared.changes.end(change, step, durable);
            }
            (What::SetEnd { change, .. } | What::Zero { change, .. }, Reply::Done) => {
                shared.changes.end(change, step, durable_share);
            }
            (What::Clone { change, .. }, Reply::Done | Reply::Copied { .. }) => {
                shared.changes.end(change, step, durable_share);
            }
            (What::SetSecurity { .. }, Reply::Done) => {}
            (What::Read { file, from, count }, Reply::Read(data)) => {
                outcome.wrong = self.home.check_read(shared.changes, file, from, count, &data, began);
            }
            (What::Flush { open, file }, Reply::Done) => {
                if let Some(known) = self.opens.iter_mut().find(|known| known.open == open) {
                    known.flushed = known.flushed.max(began);
                }
                self.home.made_durable(file, began);
                outcome.metadata_durable = Some(began);
            }
            (What::Close { open, file, flushes, removes }, Reply::Closed(_)) => {
                self.opens.retain(|known| known.open != open);
                outcome.metadata_durable = match removes {
                    Some(at) => {
                        self.home.names.end(at, step);
                        let at_close = self.home.share.durability == Durability::Close;
                        self.home.made_names_durable(durable_share || at_close, began)
                    }
                    None if flushes => {
                        self.home.made_durable(file, began);
                        Some(began)
                    }
                    None => None,
                };
            }
            (What::Rename { file, at }, Reply::Done) => {
                self.home.names.end(at, step);
                // The names are durable at the latest when the open is closed.
                let renamed = self.opens.iter_mut().filter(|known| known.file == file);
                renamed.for_each(|known| known.wrote = known.wrote.max(began));
                outcome.metadata_durable = self.home.made_names_durable(durable_share, began);
            }
            (what, reply) => outcome.wrong = Some(format!("{what:?} was answered {reply:?}")),
        }
        outcome
    }

    fn opened(&mut self, file: u32, created: &Created, write_through: bool) {
        if let Some(known) = self.home.files.get_mut(&file) {
            known.file_id = Some(created.information.file_id);
        }
        let (open, closing) = (created.open, false);
        self.opens.push(OpenFile { open, file, write_through, wrote: 0, flushed: 0, closing });
    }

    /// Handles a refusal of an operation. Returns the fault, unless the refusal is allowed.
    pub fn refused(
        &mut self,
        changes: &Changes,
        doing: &Doing,
        status: NtStatus,
        tolerated: bool,
    ) -> Option<String> {
        match &doing.what {
            What::Read { file, from, .. } if status == NtStatus::END_OF_FILE => {
                let known = self.home.files.get(file)?;
                let ends: Vec<u64> = known.end_of_file.live(changes, doing.began).collect();
                let right = ends.iter().any(|end| *end <= from * CELL_BYTES);
                return (!right)
                    .then(|| format!("file {file} ends before cell {from} to a read, and at {ends:?}"));
            }
            _ if !tolerated => return Some(format!("{:?} was refused: {status:?}", doing.what)),
            What::Create { at, file, .. } if status == NtStatus::DISK_FULL => {
                self.home.names.withdraw(*at);
                self.home.files.remove(file);
                self.plan.clear();
            }
            what if what.is_naming() => self.mode = Mode::Lost,
            What::Close { open, .. } => self.opens.retain(|known| known.open != *open),
            _ => self.plan.clear(),
        }
        None
    }
}
