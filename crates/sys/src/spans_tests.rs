//! Pieces never overlap, are zero when they say so, and move between sizes without a visit to the kernel.

use super::*;
use proptest::prelude::*;

const MIB: usize = 1 << 20;

/// A test has spans of its own.
impl Drop for Spans {
    fn drop(&mut self) {
        for span in &self.spans {
            // SAFETY: the test is over, and with it every use of its pieces.
            unsafe { libc::munmap(span.start as *mut libc::c_void, SPAN_BYTES) };
        }
    }
}

fn class_of(bytes: usize) -> usize {
    CLASS_BYTES.iter().position(|&class| class == bytes).expect("a class")
}

fn take_many(spans: &mut Spans, bytes: usize, count: usize) -> Vec<Piece> {
    (0..count).map(|_| spans.take(class_of(bytes)).expect("address space").0).collect()
}

/// As [`super::give_back`]; says how much went to the kernel.
fn give_back_all(spans: &mut Spans, pieces: Vec<Piece>) -> usize {
    let leaving: Vec<Leaving> = pieces.into_iter().flat_map(|piece| spans.give_back(piece)).collect();
    leave(spans, leaving)
}

fn leave(spans: &mut Spans, leaving: Vec<Leaving>) -> usize {
    let mut bytes = 0;
    for part in &leaving {
        // A whole span counts by its pieces.
        bytes += part.pieces.len() * spans.spans[part.span as usize].piece_bytes();
        // SAFETY: these spans are the test's own, and what leaves is free.
        assert_eq!(
            unsafe { libc::madvise(part.start as *mut libc::c_void, part.len, libc::MADV_DONTNEED) },
            0
        );
    }
    spans.gone(leaving);
    bytes
}

/// Lists, counts and pieces agree.
fn check(spans: &mut Spans) {
    let mut free = [0; CLASSES];
    for span in &spans.spans {
        assert_eq!(span.place, span.belongs());
        free[usize::from(span.class)] += span.kept.len();
    }
    assert_eq!(free, spans.free);
    assert_eq!(spans.kept_bytes, (0..CLASSES).map(|class| free[class] * CLASS_BYTES[class]).sum::<usize>());
    assert!((0..CLASSES).all(|class| spans.fewest[class] <= free[class]));
    let whole = spans.spans.iter().filter(|span| matches!(span.place, Place::Whole(_))).count();
    assert_eq!(spans.whole_spans, whole);
    let mut listed = 0;
    let mut places = vec![Place::Empty];
    for class in 0..CLASSES as u8 {
        places.extend([Place::Kept(class), Place::Whole(class), Place::Bare(class)]);
    }
    for place in places {
        let list = *spans.list(place).expect("a list");
        let (mut at, mut before) = (list.first, NONE);
        while at != NONE {
            let span = &spans.spans[at as usize];
            assert_eq!((span.place, span.previous), (place, before));
            listed += 1;
            (before, at) = (at, span.next);
        }
        assert_eq!(list.last, before);
    }
    let somewhere = spans.spans.iter().filter(|span| span.place != Place::Nowhere).count();
    assert_eq!(listed, somewhere);
}

#[test]
fn what_was_let_go_of_in_one_size_serves_another_without_the_kernel() {
    let mut spans = Spans::new();
    let small = take_many(&mut spans, 64 << 10, 512);
    assert_eq!(spans.spans.len(), 2);
    assert_eq!(give_back_all(&mut spans, small), 0);
    for _ in 0..15 {
        let (_, zero) = spans.take(class_of(MIB)).expect("address space");
        assert!(!zero, "it has memory already");
    }
    assert_eq!(spans.spans.len(), 2);
    check(&mut spans);
}

#[test]
fn a_cache_that_turns_over_from_small_to_large_pieces_keeps_its_memory() {
    let mut spans = Spans::new();
    // Sixty-four MiB in the order of their last use.
    let mut cached: std::collections::VecDeque<Piece> = take_many(&mut spans, 64 << 10, 1024).into();
    let (mut fresh, mut left) = (0, 0);
    let mut large = Vec::new();
    for _ in 0..62 {
        // Space is made first, as the cache does.
        let evicted: Vec<Piece> = cached.drain(..16.min(cached.len())).collect();
        left += give_back_all(&mut spans, evicted);
        let (piece, zero) = spans.take(class_of(MIB)).expect("address space");
        fresh += usize::from(zero);
        large.push(piece);
        check(&mut spans);
    }
    assert_eq!(left, 0);
    // Until the first whole span is free.
    assert!(fresh <= 16, "{fresh} of 62 pieces had to be cleared");
}

#[test]
fn no_more_is_kept_than_the_bound_and_idle_sizes_give_way() {
    let mut spans = Spans::new();
    let many = take_many(&mut spans, MIB, 40);
    assert_eq!(give_back_all(&mut spans, many), 8 * MIB);
    assert_eq!(spans.kept_bytes, KEPT_BYTES_MAX);
    // Kept spans may still be wanted: those that come last are given back.
    let now = take_many(&mut spans, 260 << 10, 60);
    let kept = spans.kept_bytes;
    give_back_all(&mut spans, now);
    assert!(spans.kept_bytes > kept && spans.kept_bytes <= KEPT_BYTES_MAX);
    check(&mut spans);
    // Nobody takes those of a MiB until the next trimming: they go for others.
    spans.trim(KEPT_BYTES_MAX, usize::MAX);
    let before = spans.free[class_of(MIB)];
    let now = take_many(&mut spans, 260 << 10, 120);
    give_back_all(&mut spans, now);
    assert!(spans.free[class_of(MIB)] < before);
    assert!(spans.kept_bytes <= KEPT_BYTES_MAX);
    check(&mut spans);
}

#[test]
fn what_nobody_took_since_the_last_trimming_is_given_up_in_parts() {
    let mut spans = Spans::new();
    spans.kept_bytes_max = 64 * MIB;
    let many = take_many(&mut spans, MIB, 100);
    assert_eq!(give_back_all(&mut spans, many), 36 * MIB);
    let trim = |spans: &mut Spans| {
        let leaving = spans.trim(KEPT_BYTES_MAX, 16 * MIB);
        let left = leave(spans, leaving);
        check(spans);
        left
    };
    // All of it was just in use.
    assert_eq!(trim(&mut spans), 0);
    // A working set of 56 MiB leaves 8.
    let working = take_many(&mut spans, MIB, 56);
    assert_eq!(give_back_all(&mut spans, working), 0);
    assert_eq!(trim(&mut spans), 8 * MIB);
    // Idle, it goes in parts down to what is kept in any case.
    assert_eq!(trim(&mut spans), 16 * MIB);
    assert_eq!(trim(&mut spans), 8 * MIB);
    assert_eq!(trim(&mut spans), 0);
    assert_eq!(spans.kept_bytes, KEPT_BYTES_MAX);
}

#[test]
fn spans_are_held_ready_while_there_is_demand() {
    let mut spans = Spans::new();
    (spans.has_helper, spans.kept_bytes_max) = (true, 128 * MIB);
    let ahead = |spans: &mut Spans| {
        spans.is_wanted_ahead = false;
        let mut count = 0;
        while let Some((number, start)) = spans.begin_ahead() {
            // SAFETY: the span is in no list, and this test's.
            assert!(unsafe { populate(start, SPAN_BYTES) });
            spans.end_ahead(number, true);
            check(spans);
            count += 1;
        }
        count
    };
    // A span of each size is no demand.
    for bytes in [64 << 10, 128 << 10, MIB] {
        let (_, zero) = spans.take(class_of(bytes)).expect("address space");
        assert!(zero && !spans.is_wanted_ahead);
    }
    assert_eq!(ahead(&mut spans), 0);
    // Nor is what comes and goes.
    for _ in 0..8 {
        let piece = take_many(&mut spans, 8256 << 10, 1);
        give_back_all(&mut spans, piece);
        assert_eq!(ahead(&mut spans), 0);
    }
    // Any size takes what is ready; the more are begun, the more are held.
    let mut most = 0;
    for _ in 0..20 {
        for bytes in [8256 << 10, 64 << 10] {
            spans.take(class_of(bytes)).expect("address space");
            let wanted = spans.is_wanted_ahead;
            assert_eq!(ahead(&mut spans) > 0, wanted);
            most = most.max(spans.whole_spans);
        }
    }
    assert_eq!(most, AHEAD_SPANS);
    let (_, zero) = spans.take(class_of(MIB)).expect("address space");
    assert!(!zero, "it was ready");
    // Idle, they go as other free memory does, and nobody wants others.
    for _ in 0..8 {
        let leaving = spans.trim(0, usize::MAX);
        leave(&mut spans, leaving);
    }
    assert_eq!((spans.kept_bytes, spans.whole_spans), (0, 0));
    assert_eq!(ahead(&mut spans), 0);
}

#[test]
fn a_thread_populates_what_is_wanted() {
    populate_ahead();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut taken = Vec::new();
    loop {
        let (piece, _) = take(class_of(MIB)).expect("address space");
        taken.push(piece);
        std::thread::sleep(std::time::Duration::from_millis(20));
        if spans().whole_spans > 0 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no span was populated");
    }
    for piece in taken {
        // SAFETY: taken above, and not used.
        unsafe { give_back(piece) };
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take {
        class: usize,
    },
    GiveBack {
        which: usize,
    },
    Trim,
    /// A span is populated, while another step is done.
    Ahead {
        is_populated: bool,
        meanwhile: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (class_of(64 << 10)..CLASSES).prop_map(|class| Step::Take { class }),
        4 => any::<usize>().prop_map(|which| Step::GiveBack { which }),
        1 => Just(Step::Trim),
        1 => (any::<bool>(), class_of(64 << 10)..CLASSES)
            .prop_map(|(is_populated, meanwhile)| Step::Ahead { is_populated, meanwhile }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn pieces_never_overlap_and_are_zero_where_they_say_so(steps in prop::collection::vec(step(), 1..120)) {
        let mut spans = Spans::new();
        let mut used: Vec<(Piece, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Take { class } => {
                    let (piece, zero) = spans.take(class).expect("address space");
                    let (start, end) = (piece.start.as_ptr() as usize, piece.start.as_ptr() as usize + CLASS_BYTES[class]);
                    prop_assert!(start.is_multiple_of(crate::ALIGN_BYTES));
                    for (other, class) in &used {
                        let other = other.start.as_ptr() as usize;
                        prop_assert!(end <= other || other + CLASS_BYTES[*class] <= start);
                    }
                    // SAFETY: the piece is as long as its class says, and this test's.
                    let bytes = unsafe { std::slice::from_raw_parts_mut(piece.start.as_ptr(), CLASS_BYTES[class]) };
                    // A byte of each page tells.
                    prop_assert!(!zero || bytes.iter().step_by(4096).all(|&byte| byte == 0));
                    bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 0xaa);
                    used.push((piece, class));
                }
                Step::GiveBack { which } if !used.is_empty() => {
                    let (piece, _) = used.swap_remove(which % used.len());
                    give_back_all(&mut spans, vec![piece]);
                }
                Step::GiveBack { .. } => {}
                Step::Trim => {
                    let leaving = spans.trim(0, 8 * MIB);
                    leave(&mut spans, leaving);
                }
                Step::Ahead { is_populated, meanwhile } => {
                    if let Some((number, start)) = spans.begin_ahead() {
                        // SAFETY: the span is this test's, and in no list.
                        let done = is_populated && unsafe { populate(start, SPAN_BYTES) };
                        prop_assert_eq!(done, is_populated);
                        let (piece, _) = spans.take(meanwhile).expect("address space");
                        prop_assert!(piece.span != number);
                        check(&mut spans);
                        spans.end_ahead(number, is_populated);
                        give_back_all(&mut spans, vec![piece]);
                    }
                }
            }
            prop_assert!(spans.kept_bytes <= spans.kept_bytes_max);
            check(&mut spans);
        }
    }
}

#[test]
fn memory_that_the_kernel_does_not_take_back_is_cleared_before_somebody_else_gets_it() {
    let mut spans = Spans::new();
    spans.kept_bytes_max = 0;
    let (piece, _) = spans.take(class_of(MIB)).expect("address space");
    let start = piece.start.as_ptr();
    // SAFETY: the piece is the test's own. A locked page makes the kernel refuse to take the range (EINVAL).
    unsafe {
        start.write_bytes(0xA5, MIB);
        assert_eq!(libc::mlock(start.cast(), 4096), 0, "a page may be locked");
    }
    let leaving = spans.give_back(piece);
    assert_eq!(leaving.len(), 1);
    for part in &leaving {
        // SAFETY: what leaves has no user.
        unsafe { discard(part.start, part.len) };
    }
    spans.gone(leaving);
    let (again, zero) = spans.take(class_of(MIB)).expect("address space");
    assert_eq!((again.start, zero), (piece.start, true));
    // SAFETY: the piece is the test's own, and a MiB long.
    let bytes = unsafe { std::slice::from_raw_parts(again.start.as_ptr(), MIB) };
    assert!(bytes.iter().all(|&byte| byte == 0), "bytes of its former user");
}
