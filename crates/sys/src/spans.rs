//! Memory of large buffers: spans of address space, each cut into pieces of one size at a time.
//!
//! A span whose pieces are all free serves any other size as it is: what a cache lets go of in one size becomes space for another
//! without leaving for the kernel and coming back, which costs a fault and a clearing for each page, more than moving the bytes.
//! Promises: all threads together keep at most [`Spans::kept_bytes_max`] of free memory; if there is more, sizes give way that
//! nobody took lately, and whole spans before parts of some. Address space is kept: it grows with the most that was ever in use,
//! memory does not. Spans begin at huge pages, which the kernel is asked to use.
//!
//! Memory that is used for the first time costs its first user a fault and a clearing, 2 MiB at a time: far more than a request, and on a
//! guest whose host has to find the memory ten times that. So a process that asks for it has a thread that populates some spans before
//! they are needed, while there is demand ([`populate_ahead`]).

use crate::sizes::{CLASS_BYTES, KEPT_BYTES_MAX, most_idle};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};

const SPAN_BYTES: usize = 16 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const CLASSES: usize = CLASS_BYTES.len();

/// At most this many spans whose pieces are all free and have memory are held ready while there is demand.
const AHEAD_SPANS: usize = 4;

/// Niceness of the thread that populates them.
const NICENESS_AHEAD: i32 = 15;

/// No span: the end of a list.
const NONE: u32 = u32::MAX;

/// Cleared when the kernel refuses memory that was lent.
static LENDS: AtomicBool = AtomicBool::new(true);

/// The process's spans.
static SPANS: Mutex<Spans> = Mutex::new(Spans::new());

/// Wakes the thread of [`populate_ahead`] if [`Spans::is_wanted_ahead`].
static WANTED_AHEAD: Condvar = Condvar::new();

fn spans() -> MutexGuard<'static, Spans> {
    SPANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of a class in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: NonNull<u8>,
    span: u32,
    nth: u16,
}

/// A piece of a class, and whether it is all zeroes. `None`: the kernel has no address space left.
pub(crate) fn take(class: usize) -> Option<(Piece, bool)> {
    let mut spans = spans();
    let was_wanted = spans.is_wanted_ahead;
    let taken = spans.take(class);
    let wakes = spans.is_wanted_ahead && !was_wanted;
    drop(spans);
    if wakes {
        WANTED_AHEAD.notify_one();
    }
    taken
}

/// From now on a thread of the process touches memory before others need it. Where the kernel does not offer that (before Linux 5.14), or
/// has no thread left, its users touch it as they come.
pub(crate) fn populate_ahead() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        spans().has_helper = true;
        let started = std::thread::Builder::new().name("cenote-memory".to_owned()).spawn(run_ahead);
        if started.is_err() {
            spans().has_helper = false;
        }
    });
}

/// Populates spans whenever some are wanted; until that fails.
fn run_ahead() {
    // Where it shares a processor with those who need the memory, they go first: clearing a span takes milliseconds.
    // SAFETY: the call takes no memory. On Linux it is of the calling thread alone; should it fail, nothing else depends on it.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS_AHEAD) };
    let mut held = spans();
    loop {
        held = WANTED_AHEAD
            .wait_while(held, |held| !held.is_wanted_ahead)
            .unwrap_or_else(PoisonError::into_inner);
        held.is_wanted_ahead = false;
        while let Some((number, start)) = held.begin_ahead() {
            drop(held);
            // SAFETY: the span is in no list meanwhile, so nobody else has any of it.
            let is_populated = unsafe { populate(start, SPAN_BYTES) };
            held = spans();
            held.end_ahead(number, is_populated);
            if !is_populated {
                held.has_helper = false;
                return;
            }
        }
    }
}

/// # Safety
/// The piece was taken, is given back once, and nobody uses it any more.
pub(crate) unsafe fn give_back(piece: Piece) {
    let leaving = spans().give_back(piece);
    // SAFETY: what leaves has no user: the caller's promise, or it was free.
    unsafe { send_away(leaving) };
}

/// Pages of the piece were lent to the kernel, and others may read them still: they go to the kernel, and fresh ones take their place
/// when the piece is used again.
///
/// # Safety
/// As for [`give_back`], except for what the kernel and others read.
pub(crate) unsafe fn give_up_lent(piece: Piece) {
    let leaving = spans().leaving_lent(piece);
    // Nothing is written here: the pages are still read.
    // SAFETY: the caller's promise; the memory is ours.
    let is_gone =
        unsafe { libc::madvise(leaving.start as *mut libc::c_void, leaving.len, libc::MADV_DONTNEED) } == 0;
    if is_gone {
        spans().gone(vec![leaving]);
    } else {
        // The piece is never used again, and nothing is lent any more.
        LENDS.store(false, Ordering::Relaxed);
    }
}

/// Whether pages may be lent: the kernel takes them back.
pub(crate) fn lends() -> bool {
    LENDS.load(Ordering::Relaxed)
}

/// At most this many bytes of free memory are kept from now on.
pub(crate) fn keep(bytes: usize) {
    spans().kept_bytes_max = bytes;
}

/// Gives up to `bytes` of free memory to the kernel that nobody took since the last call, beyond `least` that is kept.
pub(crate) fn trim(least: usize, bytes: usize) {
    let leaving = spans().trim(least, bytes);
    // SAFETY: what leaves was free.
    unsafe { send_away(leaving) };
}

/// Outside of the lock: the kernel takes its time.
///
/// # Safety
/// Nobody uses the memory.
unsafe fn send_away(leaving: Vec<Leaving>) {
    if leaving.is_empty() {
        return;
    }
    for part in &leaving {
        // SAFETY: the caller's promise.
        unsafe { discard(part.start, part.len) };
    }
    spans().gone(leaving);
}

/// Memory on its way to the kernel: in no list meanwhile.
#[derive(Debug)]
struct Leaving {
    start: usize,
    len: usize,
    span: u32,
    pieces: Vec<u16>,
}

/// Which list a span is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// All pieces are in use or on their way to the kernel.
    Nowhere,
    /// Some pieces are free and have memory.
    Kept(u8),
    /// All pieces are free and have memory.
    Whole(u8),
    /// Some pieces are free, none of them with memory.
    Bare(u8),
    /// All pieces are free and none has memory.
    Empty,
}

#[derive(Debug)]
struct Span {
    start: usize,
    class: u8,
    /// Free pieces with memory.
    kept: Vec<u16>,
    /// Free pieces without.
    bare: Vec<u16>,
    /// Populated, and nobody has used any of it since.
    is_ahead: bool,
    place: Place,
    previous: u32,
    next: u32,
}

impl Span {
    fn piece_bytes(&self) -> usize {
        CLASS_BYTES[usize::from(self.class)]
    }

    fn pieces(&self) -> usize {
        SPAN_BYTES / self.piece_bytes()
    }

    fn belongs(&self) -> Place {
        match (self.kept.len(), self.bare.len()) {
            (0, 0) => Place::Nowhere,
            (kept, 0) if kept == self.pieces() => Place::Whole(self.class),
            (0, bare) if bare == self.pieces() => Place::Empty,
            (0, _) => Place::Bare(self.class),
            _ => Place::Kept(self.class),
        }
    }
}

/// The last one touched is at the front.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl List {
    const fn new() -> Self {
        Self { first: NONE, last: NONE }
    }
}

/// See the module. Owns no memory that it gives back when dropped: the process has one.
struct Spans {
    spans: Vec<Span>,
    kept: [List; CLASSES],
    whole: [List; CLASSES],
    bare: [List; CLASSES],
    empty: List,
    /// Free pieces with memory by class.
    free: [usize; CLASSES],
    /// The fewest that there were since the last trimming: this many nobody took.
    fewest: [usize; CLASSES],
    kept_bytes: usize,
    kept_bytes_max: usize,
    /// Spans in the lists of whole ones.
    whole_spans: usize,
    /// Spans that had no memory or were populated ahead and came into use, by class; fading with each trimming.
    begun: [usize; CLASSES],
    /// Somebody populates spans that are wanted ahead.
    has_helper: bool,
    is_wanted_ahead: bool,
    /// Size class of the last allocation: spans are populated for it.
    class_taken: usize,
}

impl Spans {
    const fn new() -> Self {
        Self {
            spans: Vec::new(),
            kept: [List::new(); CLASSES],
            whole: [List::new(); CLASSES],
            bare: [List::new(); CLASSES],
            empty: List::new(),
            free: [0; CLASSES],
            fewest: [0; CLASSES],
            kept_bytes: 0,
            kept_bytes_max: KEPT_BYTES_MAX,
            whole_spans: 0,
            begun: [0; CLASSES],
            has_helper: false,
            is_wanted_ahead: false,
            class_taken: 0,
        }
    }

    fn take(&mut self, class: usize) -> Option<(Piece, bool)> {
        let with_memory = [self.kept[class].first, self.whole[class].first];
        let with_memory = with_memory.into_iter().find(|&number| number != NONE);
        let number = match with_memory.or_else(|| self.recut_whole(class)) {
            Some(number) => number,
            None if self.bare[class].first != NONE => self.bare[class].first,
            None => self.cut_empty(class)?,
        };
        let span = &mut self.spans[number as usize];
        let (nth, zero) = match span.kept.pop() {
            Some(nth) => (nth, false),
            None => (span.bare.pop()?, true),
        };
        let start = NonNull::new((span.start + usize::from(nth) * CLASS_BYTES[class]) as *mut u8)?;
        // A piece that comes and goes in the same memory is no demand for more.
        let begins = std::mem::take(&mut span.is_ahead) || (zero && span.bare.len() + 1 == span.pieces());
        if !zero {
            self.leave_free(class, 1);
        }
        self.relist(number);
        self.class_taken = class;
        self.begun[class] += usize::from(begins);
        self.is_wanted_ahead |= begins && self.has_helper && self.has_room_ahead();
        Some((Piece { start, span: number, nth }, zero))
    }

    /// Takes a piece back, and returns the memory that goes to the kernel because of it.
    fn give_back(&mut self, piece: Piece) -> Vec<Leaving> {
        let Some(span) = self.spans.get_mut(piece.span as usize) else { return Vec::new() };
        let class = usize::from(span.class);
        span.kept.push(piece.nth);
        self.free[class] += 1;
        self.kept_bytes += CLASS_BYTES[class];
        self.relist(piece.span);
        let mut leaving = Vec::new();
        while self.kept_bytes > self.kept_bytes_max {
            let excess = self.kept_bytes - self.kept_bytes_max;
            let Some(most) = most_idle(&self.fewest, class) else {
                self.give_up(class, 1, &mut leaving);
                break;
            };
            let count = excess.div_ceil(CLASS_BYTES[most]).min(self.fewest[most]);
            self.give_up(most, count, &mut leaving);
        }
        leaving
    }

    /// A piece that leaves as it is.
    fn leaving_lent(&self, piece: Piece) -> Leaving {
        let len = self.spans[piece.span as usize].piece_bytes();
        Leaving { start: piece.start.as_ptr() as usize, len, span: piece.span, pieces: vec![piece.nth] }
    }

    fn trim(&mut self, least: usize, bytes: usize) -> Vec<Leaving> {
        self.begun.iter_mut().for_each(|spans| *spans /= 2);
        let mut beyond = self.kept_bytes.saturating_sub(least).min(bytes);
        let mut leaving = Vec::new();
        for class in (0..CLASSES).rev() {
            let count = (beyond / CLASS_BYTES[class]).min(self.fewest[class]);
            beyond -= count * CLASS_BYTES[class];
            self.give_up(class, count, &mut leaving);
            self.fewest[class] = self.free[class];
        }
        leaving
    }

    /// Takes `count` free pieces of a class off the lists, those of spans that were not touched for long.
    fn give_up(&mut self, class: usize, mut count: usize, leaving: &mut Vec<Leaving>) {
        while count > 0 {
            // Whole spans leave in one piece; parts of others before parts of those.
            let (whole, kept) = (self.whole[class].last, self.kept[class].last);
            let number = match (whole, kept) {
                (NONE, NONE) => return,
                (NONE, kept) => kept,
                (whole, NONE) => whole,
                (whole, _) if self.spans[whole as usize].kept.len() <= count => whole,
                (_, kept) => kept,
            };
            let span = &mut self.spans[number as usize];
            span.is_ahead = false;
            if span.place == Place::Whole(class as u8) && span.kept.len() <= count {
                let pieces = std::mem::take(&mut span.kept);
                count -= pieces.len();
                self.leave_free(class, pieces.len());
                let start = self.spans[number as usize].start;
                leaving.push(Leaving { start, len: SPAN_BYTES, span: number, pieces });
            } else {
                let Some(nth) = span.kept.pop() else { return };
                let start = span.start + usize::from(nth) * CLASS_BYTES[class];
                leaving.push(Leaving { start, len: CLASS_BYTES[class], span: number, pieces: vec![nth] });
                count -= 1;
                self.leave_free(class, 1);
            }
            self.relist(number);
        }
    }

    /// The kernel has taken the memory.
    fn gone(&mut self, leaving: Vec<Leaving>) {
        for part in leaving {
            if let Some(span) = self.spans.get_mut(part.span as usize) {
                span.bare.extend(part.pieces);
                self.relist(part.span);
            }
        }
    }

    fn leave_free(&mut self, class: usize, count: usize) {
        self.free[class] -= count;
        self.fewest[class] = self.fewest[class].min(self.free[class]);
        self.kept_bytes -= count * CLASS_BYTES[class];
    }

    /// A whole span of the size that has most memory lying idle, cut anew.
    fn recut_whole(&mut self, class: usize) -> Option<u32> {
        let sizes = (0..CLASSES).filter(|&other| self.whole[other].first != NONE);
        let most = sizes.max_by_key(|&other| self.free[other] * CLASS_BYTES[other])?;
        let number = self.whole[most].last;
        let span = &mut self.spans[number as usize];
        let count = span.kept.len();
        // Memory that no piece covered may be unpopulated, so it does not count as kept.
        let cut = count * CLASS_BYTES[most] / CLASS_BYTES[class];
        span.class = class as u8;
        let pieces = span.pieces();
        span.kept.clear();
        span.kept.extend((0..cut as u16).rev());
        span.bare.extend((cut as u16..pieces as u16).rev());
        if cut < pieces {
            let covered = cut * CLASS_BYTES[class];
            // SAFETY: no piece of the span is in use.
            unsafe { discard(span.start + covered, SPAN_BYTES - covered) };
        }
        self.leave_free(most, count);
        self.free[class] += cut;
        self.kept_bytes += cut * CLASS_BYTES[class];
        self.relist(number);
        Some(number)
    }

    /// A span without memory, cut for a class.
    fn cut_empty(&mut self, class: usize) -> Option<u32> {
        let number = self.empty_span()?;
        self.cut_bare(number, class);
        Some(number)
    }

    fn cut_bare(&mut self, number: u32, class: usize) {
        let span = &mut self.spans[number as usize];
        span.class = class as u8;
        span.bare.clear();
        span.bare.extend((0..span.pieces() as u16).rev());
        self.relist(number);
    }

    /// A span without memory, all zero, as it was or new.
    fn empty_span(&mut self) -> Option<u32> {
        let number = self.empty.first;
        if number != NONE {
            let start = self.spans[number as usize].start;
            // Nonzero bytes of a former size class, behind the last piece of the next one, are still there.
            // SAFETY: no piece of the span is in use.
            unsafe { discard(start, SPAN_BYTES) };
            return Some(number);
        }
        self.spans.push(Span {
            start: map(SPAN_BYTES)?,
            class: 0,
            kept: Vec::new(),
            bare: Vec::new(),
            is_ahead: false,
            place: Place::Nowhere,
            previous: NONE,
            next: NONE,
        });
        u32::try_from(self.spans.len() - 1).ok()
    }

    /// One more span is to be held ready.
    fn has_room_ahead(&self) -> bool {
        // The first span of a size is no demand: a process that rests has some of each.
        let demand: usize = self.begun.iter().map(|spans| spans.saturating_sub(1)).sum();
        let wanted = demand.min(AHEAD_SPANS);
        self.whole_spans < wanted && self.kept_bytes + SPAN_BYTES <= self.kept_bytes_max
    }

    /// Takes a span and its address off the lists to be populated.
    fn begin_ahead(&mut self) -> Option<(u32, usize)> {
        if !self.has_room_ahead() {
            return None;
        }
        let number = self.empty_span()?;
        self.spans[number as usize].bare.clear();
        self.relist(number);
        Some((number, self.spans[number as usize].start))
    }

    /// The span comes back: with memory, or with none.
    fn end_ahead(&mut self, number: u32, is_populated: bool) {
        let class = self.class_taken;
        if !is_populated {
            return self.cut_bare(number, class);
        }
        let span = &mut self.spans[number as usize];
        span.class = class as u8;
        span.is_ahead = true;
        let pieces = span.pieces();
        span.kept.extend((0..pieces as u16).rev());
        self.free[class] += pieces;
        self.kept_bytes += pieces * CLASS_BYTES[class];
        self.relist(number);
    }

    /// Puts a span into the list that it belongs to.
    fn relist(&mut self, number: u32) {
        let span = &self.spans[number as usize];
        let (from, to) = (span.place, span.belongs());
        if from == to {
            return;
        }
        let (previous, next) = (span.previous, span.next);
        self.whole_spans -= usize::from(matches!(from, Place::Whole(_)));
        self.whole_spans += usize::from(matches!(to, Place::Whole(_)));
        if let Some(list) = self.list(from) {
            if list.first == number {
                list.first = next;
            }
            if list.last == number {
                list.last = previous;
            }
            if previous != NONE {
                self.spans[previous as usize].next = next;
            }
            if next != NONE {
                self.spans[next as usize].previous = previous;
            }
        }
        let mut second = NONE;
        if let Some(list) = self.list(to) {
            second = std::mem::replace(&mut list.first, number);
            if list.last == NONE {
                list.last = number;
            }
        }
        if second != NONE {
            self.spans[second as usize].previous = number;
        }
        let span = &mut self.spans[number as usize];
        (span.place, span.previous, span.next) = (to, NONE, second);
    }

    fn list(&mut self, place: Place) -> Option<&mut List> {
        match place {
            Place::Nowhere => None,
            Place::Kept(class) => Some(&mut self.kept[usize::from(class)]),
            Place::Whole(class) => Some(&mut self.whole[usize::from(class)]),
            Place::Bare(class) => Some(&mut self.bare[usize::from(class)]),
            Place::Empty => Some(&mut self.empty),
        }
    }
}

/// Gives memory to the kernel; later reads there give zeroes. The next owner relies on that, and it held bytes of clients: if
/// the kernel does not take it (memory that is locked, a filter of system calls), it is cleared here.
///
/// # Safety
/// All of it is ours, and nobody uses it.
unsafe fn discard(start: usize, len: usize) {
    // SAFETY: the caller's promise.
    let is_gone = unsafe { libc::madvise(start as *mut libc::c_void, len, libc::MADV_DONTNEED) } == 0;
    if !is_gone {
        // SAFETY: the caller's promise; the mapping is writable.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0, len) };
    }
}

/// Gives each page memory. `false`: there is none of it afterwards.
///
/// # Safety
/// All of it is ours, and nobody uses it.
unsafe fn populate(start: usize, len: usize) -> bool {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::madvise(start as *mut libc::c_void, len, libc::MADV_POPULATE_WRITE) } == 0;
    if !done {
        // SAFETY: the caller's promise.
        unsafe { discard(start, len) };
    }
    done
}

/// Maps `len` bytes at a multiple of a huge page.
fn map(len: usize) -> Option<usize> {
    let whole = len + HUGE_PAGE_BYTES;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the place, so nothing that is in use changes.
    let mapped =
        unsafe { libc::mmap(std::ptr::null_mut(), whole, protection, flags | libc::MAP_NORESERVE, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let start = (mapped as usize).next_multiple_of(HUGE_PAGE_BYTES);
    let (before, behind) = (start - mapped as usize, mapped as usize + whole - (start + len));
    // SAFETY: both lie within what was just mapped, and outside of what is kept.
    unsafe {
        if before > 0 {
            libc::munmap(mapped, before);
        }
        if behind > 0 {
            libc::munmap((start + len) as *mut libc::c_void, behind);
        }
        // Advice only: without huge pages it is slower.
        libc::madvise(start as *mut libc::c_void, len, libc::MADV_HUGEPAGE);
    }
    Some(start)
}

#[cfg(test)]
#[path = "spans_tests.rs"]
mod tests;
