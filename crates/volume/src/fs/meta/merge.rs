//! A checkpoint's merge: sorted changes and the old tree become a new tree, a bounded step at a time.
//!
//! Only pages whose keys change, and those above them, are rewritten; all others are shared with the
//! old tree. Replaced pages are listed, not touched. Changed neighbouring pages are filled together,
//! and one that would stay nearly empty absorbs its neighbour.

use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;

use ::types::Lba;
use sys::Buf;

use super::super::layout::{PAGE_BYTES, Pointer, Root};
use super::super::types::FsError;
use super::key::Key;
use super::page::{LEVELS_MAX, Page, PageBuilder};
use super::transaction::Changes;
use super::{Tree, Value};

/// Entries that one step examines.
const STEP_ENTRIES: usize = 512;

/// Number of children whose loads are requested together.
const PREFETCH: usize = 32;

/// A page is closed at this fill: the rest is space for later entries between its own.
const FILL_BYTES: usize = PAGE_BYTES * 9 / 10;

/// A rest smaller than this takes its neighbour in.
const SMALL_BYTES: usize = PAGE_BYTES / 4;

/// Entries for pages of one level.
#[derive(Debug, Default)]
struct Run {
    entries: VecDeque<(Key, Value)>,
    bytes: usize,
}

impl Run {
    fn push(&mut self, key: Key, value: Value) {
        self.bytes += entry_bytes(&key, &value);
        self.entries.push_back((key, value));
    }
}

fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
    2 + 4 + key.len() + value.len()
}

/// An inner page being rewritten.
#[derive(Debug)]
struct Frame {
    page: Rc<Page>,
    /// The next child to examine.
    next: usize,
    /// The end of the page's keys.
    high: Option<Key>,
    low: Option<Key>,
    /// New entries of the page.
    own: Run,
    emitted: Vec<(Key, Pointer)>,
}

/// A leaf being rewritten: `None` if there was none.
#[derive(Debug)]
struct Leaf {
    page: Option<Rc<Page>>,
    next: usize,
    from: Bound<Key>,
    high: Option<Key>,
}

/// Pages ready to be written.
pub type NewPages = Vec<(Lba, Buf)>;

/// Resources that a merge needs from outside.
pub struct Workshop<'a> {
    pub tree: &'a mut Tree,
    pub changes: &'a Changes,
    pub take_page: &'a mut dyn FnMut() -> Option<Lba>,
    pub pages: &'a mut NewPages,
}

/// A merge under way.
#[derive(Debug)]
pub struct Merge {
    volume: [u8; 16],
    sequence: u64,
    root: Option<Root>,
    frames: Vec<Frame>,
    leaf: Option<Leaf>,
    /// Entries for leaves, and the leaves made of them below the innermost frame.
    leaves: Run,
    leaves_emitted: Vec<(Key, Pointer)>,
    /// Level of the pages in `leaves_emitted` when no frame is left.
    top_level: Option<u8>,
    started: bool,
    /// Pages of the old tree that the new one does not have.
    pub replaced: Vec<Lba>,
}

impl Merge {
    /// Of changes into this tree; new pages carry `sequence`.
    pub fn new(volume: [u8; 16], sequence: u64, root: Option<Root>) -> Self {
        Self {
            volume,
            sequence,
            root,
            frames: Vec::new(),
            leaf: None,
            leaves: Run::default(),
            leaves_emitted: Vec::new(),
            top_level: None,
            started: false,
            replaced: Vec::new(),
        }
    }

    /// Pages that the next step may take.
    pub fn pages_needed(&self) -> u64 {
        let own: usize = self.frames.iter().map(|frame| frame.own.bytes + frame.emitted.len() * 80).sum();
        8 + ((self.leaves.bytes + own + self.leaves_emitted.len() * 80) / (PAGE_BYTES / 3)) as u64
    }

    /// Continues for a bounded time. `Some` with the new root (`None`: an empty tree) when all is merged.
    ///
    /// # Errors
    /// `Miss` while a page is being loaded, or none is free.
    pub fn step(&mut self, shop: &mut Workshop<'_>) -> Result<Option<Option<Root>>, FsError> {
        if !self.started {
            self.start(shop)?;
            self.started = true;
        }
        if self.leaf.is_some() {
            self.step_leaf(shop)?;
            return Ok(None);
        }
        let Some(frame) = self.frames.last() else {
            return self.finish(shop).map(Some);
        };
        if frame.next >= frame.page.len() {
            self.close_frame(shop)?;
        } else {
            self.step_frame(shop)?;
        }
        Ok(None)
    }

    fn start(&mut self, shop: &mut Workshop<'_>) -> Result<(), FsError> {
        match self.root {
            None => {
                self.leaf = Some(Leaf { page: None, next: 0, from: Bound::Unbounded, high: None });
            }
            Some(root) => {
                let page = shop.tree.page(root.page, root.level)?;
                self.replaced.push(root.page.lba);
                if root.level == 0 {
                    self.leaf = Some(Leaf { page: Some(page), next: 0, from: Bound::Unbounded, high: None });
                } else {
                    self.push_frame(page, None, None);
                }
            }
        }
        Ok(())
    }

    fn push_frame(&mut self, page: Rc<Page>, low: Option<Key>, high: Option<Key>) {
        self.frames.push(Frame { page, next: 0, high, low, own: Run::default(), emitted: Vec::new() });
    }

    /// Merges some entries of the current leaf.
    fn step_leaf(&mut self, shop: &mut Workshop<'_>) -> Result<(), FsError> {
        // Gathered entries are emitted first, so that a step that misses has changed nothing else.
        self.emit_leaves(shop, false)?;
        let Some(mut leaf) = self.leaf.take() else { return Ok(()) };
        let mut next_from = None;
        let mut count = 0;
        {
            let high = leaf.high.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
            let from = leaf.from.as_ref().map(|key| &key[..]);
            let empty = matches!((&from, &high), (Bound::Included(f) | Bound::Excluded(f), Bound::Excluded(h)) if f >= h);
            let mut changes =
                (!empty).then(|| shop.changes.range::<[u8], _>((from, high))).into_iter().flatten();
            let mut change = changes.next();
            let old_len = leaf.page.as_ref().map_or(0, |page| page.len());
            loop {
                let old = leaf.page.as_ref().filter(|_| leaf.next < old_len);
                if old.is_none() && change.is_none() {
                    break;
                }
                if count >= STEP_ENTRIES {
                    next_from = Some(match change {
                        Some((key, _)) => Bound::Included(key.clone()),
                        // Only old entries are left.
                        None => {
                            Bound::Excluded(leaf.high.clone().unwrap_or_else(|| Key::from_slice(&[0xFF; 3])))
                        }
                    });
                    break;
                }
                count += 1;
                let order = match (old, change) {
                    (Some(page), Some((key, _))) => page.key(leaf.next).cmp(key),
                    (Some(_), None) => std::cmp::Ordering::Less,
                    _ => std::cmp::Ordering::Greater,
                };
                if order.is_le()
                    && let Some(page) = old
                {
                    if order.is_lt() {
                        self.leaves
                            .push(Key::from_slice(page.key(leaf.next)), Value::in_page(page, leaf.next));
                    }
                    leaf.next += 1;
                }
                if order.is_ge()
                    && let Some((key, value)) = change
                {
                    if let Some(value) = value {
                        self.leaves.push(key.clone(), Value::Overlay(value.clone()));
                    }
                    change = changes.next();
                }
            }
        }
        if let Some(from) = next_from {
            leaf.from = from;
            self.leaf = Some(leaf);
        }
        Ok(())
    }

    /// Examines the next child of the innermost frame.
    fn step_frame(&mut self, shop: &mut Workshop<'_>) -> Result<(), FsError> {
        let mut passed = 0;
        loop {
            let Some(frame) = self.frames.last() else { return Ok(()) };
            if frame.next >= frame.page.len() || passed >= STEP_ENTRIES {
                return Ok(());
            }
            let (index, level) = (frame.next, frame.page.level());
            let (low, high) = frame.bounds(index);
            let child = frame.page.child(index);
            let touched = changes_in(shop.changes, low.as_deref(), high.as_deref());
            let takes_in = level == 1 && self.leaves.bytes > 0 && self.leaves.bytes < SMALL_BYTES;
            if !touched && !takes_in {
                self.pass_child(shop, index, child)?;
                passed += 1;
                continue;
            }
            let page = match shop.tree.page(child, level - 1) {
                Ok(page) => page,
                // An unreadable neighbour stays as it is.
                Err(FsError::Corrupt { .. }) if !touched => {
                    self.pass_child(shop, index, child)?;
                    passed += 1;
                    continue;
                }
                Err(error) => {
                    self.prefetch(shop);
                    return Err(error);
                }
            };
            self.replaced.push(child.lba);
            if let Some(frame) = self.frames.last_mut() {
                frame.next += 1;
            }
            if level == 1 {
                let from = low.map_or(Bound::Unbounded, Bound::Included);
                self.leaf = Some(Leaf { page: Some(page), next: 0, from, high });
            } else {
                self.push_frame(page, low, high);
            }
            return Ok(());
        }
    }

    /// Adds a child of the innermost frame to the new tree unchanged.
    fn pass_child(&mut self, shop: &mut Workshop<'_>, index: usize, child: Pointer) -> Result<(), FsError> {
        self.emit_leaves(shop, true)?;
        self.adopt_leaves(shop)?;
        let key = Key::from_slice(self.frames.last().map_or(&[], |frame| frame.page.key(index)));
        self.push_child(shop, key, child)?;
        if let Some(frame) = self.frames.last_mut() {
            frame.next += 1;
        }
        Ok(())
    }

    /// Asks for the next children that change.
    fn prefetch(&self, shop: &mut Workshop<'_>) {
        let Some(frame) = self.frames.last() else { return };
        let mut asked = 0;
        for index in frame.next..frame.page.len() {
            let (low, high) = frame.bounds(index);
            if changes_in(shop.changes, low.as_deref(), high.as_deref()) {
                shop.tree.prefetch(frame.page.child(index));
                asked += 1;
                if asked >= PREFETCH {
                    return;
                }
            }
        }
    }

    /// Ends the innermost frame: its pages become entries of the one above.
    fn close_frame(&mut self, shop: &mut Workshop<'_>) -> Result<(), FsError> {
        self.emit_leaves(shop, true)?;
        self.adopt_leaves(shop)?;
        self.emit_own(shop, true)?;
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        let level = frame.page.level();
        if self.frames.is_empty() {
            self.leaves_emitted = frame.emitted;
            return self.raise(shop, level);
        }
        for (key, page) in frame.emitted {
            if let Some(parent) = self.frames.last_mut() {
                parent.own.push(key, child_value(page));
            }
        }
        Ok(())
    }

    /// Leaves that were made become children of the innermost frame, if it is just above them.
    fn adopt_leaves(&mut self, shop: &mut Workshop<'_>) -> Result<(), FsError> {
        for (key, page) in std::mem::take(&mut self.leaves_emitted) {
            if let Some(frame) = self.frames.last_mut() {
                frame.own.push(key, child_value(page));
            }
        }
        self.emit_own(shop, false)
    }

    fn push_child(&mut self, shop: &mut Workshop<'_>, key: Key, child: Pointer) -> Result<(), FsError> {
        self.emit_own(shop, false)?;
        if let Some(frame) = self.frames.last_mut() {
            frame.own.push(key, child_value(child));
        }
        Ok(())
    }

    /// Makes pages of the innermost frame's entries; all of them if `all`.
    fn emit_own(&mut self, shop: &mut Workshop<'_>, all: bool) -> Result<(), FsError> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let level = frame.page.level();
        emit(&mut frame.own, &mut frame.emitted, all, level, &self.volume, self.sequence, shop)
    }

    fn emit_leaves(&mut self, shop: &mut Workshop<'_>, all: bool) -> Result<(), FsError> {
        emit(&mut self.leaves, &mut self.leaves_emitted, all, 0, &self.volume, self.sequence, shop)
    }

    /// Ends a merge after all leaves of a tree without inner pages, or after the topmost frame: builds the
    /// levels above.
    fn finish(&mut self, shop: &mut Workshop<'_>) -> Result<Option<Root>, FsError> {
        self.emit_leaves(shop, true)?;
        self.raise(shop, self.top_level.unwrap_or(0))?;
        let level = self.top_level.unwrap_or(0);
        Ok(self.leaves_emitted.first().map(|(_, page)| Root { page: *page, level }))
    }

    /// Builds levels above the emitted pages until there is one page.
    fn raise(&mut self, shop: &mut Workshop<'_>, level: u8) -> Result<(), FsError> {
        self.top_level = Some(level);
        while self.leaves_emitted.len() > 1 {
            let above = self.top_level.unwrap_or(level) + 1;
            if above > LEVELS_MAX {
                return Err(FsError::damaged("a tree too deep"));
            }
            let mut run = Run::default();
            for (key, page) in &self.leaves_emitted {
                run.push(key.clone(), child_value(*page));
            }
            let mut emitted = Vec::new();
            emit(&mut run, &mut emitted, true, above, &self.volume, self.sequence, shop)?;
            self.leaves_emitted = emitted;
            self.top_level = Some(above);
        }
        Ok(())
    }
}

impl Frame {
    /// Which keys a child covers.
    fn bounds(&self, index: usize) -> (Option<Key>, Option<Key>) {
        let low = if index == 0 { self.low.clone() } else { Some(Key::from_slice(self.page.key(index))) };
        let high = if index + 1 < self.page.len() {
            Some(Key::from_slice(self.page.key(index + 1)))
        } else {
            self.high.clone()
        };
        (low, high)
    }
}

fn child_value(page: Pointer) -> Value {
    Value::Overlay(Rc::from(page.encode()))
}

fn changes_in(changes: &Changes, low: Option<&[u8]>, high: Option<&[u8]>) -> bool {
    let from = low.map_or(Bound::Unbounded, Bound::Included);
    let to = high.map_or(Bound::Unbounded, Bound::Excluded);
    if let (Some(low), Some(high)) = (low, high)
        && low >= high
    {
        return false;
    }
    changes.range::<[u8], _>((from, to)).next().is_some()
}

/// Makes pages of entries: full ones as long as two and more could be filled, and, if `all`, the rest in equal parts.
fn emit(
    run: &mut Run,
    emitted: &mut Vec<(Key, Pointer)>,
    all: bool,
    level: u8,
    volume: &[u8; 16],
    sequence: u64,
    shop: &mut Workshop<'_>,
) -> Result<(), FsError> {
    while run.bytes > 2 * FILL_BYTES || (all && !run.entries.is_empty()) {
        let goal = match run.bytes {
            bytes if bytes > 2 * FILL_BYTES => FILL_BYTES,
            // One page's entries go into one page: a checkpoint's space is reserved by that.
            bytes if bytes > PageBuilder::CAPACITY_BYTES => bytes / 2,
            _ => PAGE_BYTES,
        };
        let lba = (shop.take_page)().ok_or(FsError::Miss)?;
        let mut builder = PageBuilder::default();
        while let Some((key, value)) = run.entries.front() {
            let full = builder.filled() >= goal || !builder.fits(key, value);
            if full && !builder.is_empty() {
                break;
            }
            builder.push(key, value);
            run.bytes -= entry_bytes(key, value);
            run.entries.pop_front();
        }
        let (key, pointer, bytes) = builder.finish(volume, lba, level, sequence);
        if let Some(page) = Page::decode(bytes.clone(), volume, lba) {
            shop.tree.insert(lba, Rc::new(page));
        }
        shop.pages.push((lba, bytes));
        emitted.push((key, pointer));
    }
    Ok(())
}
