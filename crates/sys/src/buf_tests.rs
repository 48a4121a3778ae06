//! Views share and never alias a writer; memory comes back, within its bound.

use super::*;
use crate::recycle::{KEPT_SMALL_BYTES, kept_bytes};
use crate::sizes::CLASS_BYTES;

/// Runs on a thread of its own, whose free lists are empty.
fn on_fresh_thread(test: impl FnOnce() + Send + 'static) {
    std::thread::spawn(test).join().expect("the test's thread");
}

fn address(bytes: &[u8]) -> usize {
    bytes.as_ptr() as usize
}

#[test]
fn every_buffer_starts_at_a_page_and_with_aligned_places_one_byte_there() {
    for len in [1, 100, 4096, 5000, 1 << 20, (1 << 20) + 70_000, 3 << 20] {
        assert_eq!(address(&BufMut::for_overwrite(len)) % ALIGN_BYTES, 0);
        let buf = BufMut::with_aligned(len + 116, 116);
        assert_eq!(buf.len(), len + 116);
        assert_eq!(address(&buf[116..]) % ALIGN_BYTES, 0);
    }
}

#[test]
fn a_dropped_buffer_serves_the_next_of_its_size_and_zeroed_is_zero_again() {
    on_fresh_thread(|| {
        let mut first = BufMut::zeroed(4096);
        first.fill(0xaa);
        let at = address(&first);
        drop(first);
        assert_eq!(kept_bytes(), 4096);
        let second = BufMut::zeroed(4000);
        assert_eq!(address(&second), at);
        assert!(second.iter().all(|&byte| byte == 0));
        assert_eq!(kept_bytes(), 0);
    });
}

#[test]
fn memory_comes_back_when_the_last_view_goes() {
    on_fresh_thread(|| {
        let whole = BufMut::zeroed(8192).freeze();
        let part = whole.slice(100..200);
        drop(whole);
        assert_eq!(kept_bytes(), 0);
        assert_eq!(part.len(), 100);
        drop(part);
        assert_eq!(kept_bytes(), 8192);
    });
}

#[test]
fn a_thread_keeps_no_more_in_small_pieces_than_its_bound() {
    on_fresh_thread(|| {
        drop((0..2000).map(|_| BufMut::for_overwrite(4096)).collect::<Vec<_>>());
        assert_eq!(kept_bytes(), KEPT_SMALL_BYTES);
        drop(BufMut::for_overwrite(32 << 10));
        assert_eq!(kept_bytes(), KEPT_SMALL_BYTES);
    });
}

#[test]
fn small_sizes_that_a_thread_used_before_make_room_for_those_that_it_uses_now() {
    on_fresh_thread(|| {
        drop((0..1024).map(|_| BufMut::for_overwrite(4096)).collect::<Vec<_>>());
        assert_eq!(kept_bytes(), KEPT_SMALL_BYTES);
        // Nobody takes them until the next trimming, nor after it.
        crate::trim_free_memory();
        crate::trim_free_memory();
        let now: Vec<BufMut> = (0..40).map(|_| BufMut::for_overwrite(32 << 10)).collect();
        let mut places: Vec<usize> = now.iter().map(|buffer| address(buffer)).collect();
        drop(now);
        assert_eq!(kept_bytes(), KEPT_SMALL_BYTES);
        let again: Vec<BufMut> = (0..40).map(|_| BufMut::for_overwrite(32 << 10)).collect();
        let mut places_again: Vec<usize> = again.iter().map(|buffer| address(buffer)).collect();
        places.sort_unstable();
        places_again.sort_unstable();
        assert_eq!(places, places_again);
    });
}

#[test]
fn a_zeroed_large_buffer_is_zero_whoever_had_its_memory() {
    for len in [64 << 10, 300_000, 1 << 20, 2 << 20, 9 << 20, 64 << 10] {
        let mut first = BufMut::zeroed(len);
        assert!(first.iter().all(|&byte| byte == 0), "{len}");
        first.fill(0xaa);
    }
}

#[test]
fn a_buffer_may_be_dropped_on_another_thread_and_after_the_first_one_ended() {
    let sent = std::thread::spawn(|| {
        let mut buf = BufMut::for_overwrite(4096);
        buf.fill(7);
        buf.freeze()
    })
    .join()
    .expect("the sender");
    let twin = sent.clone();
    on_fresh_thread(move || {
        assert!(twin.iter().all(|&byte| byte == 7));
        drop(twin);
        assert_eq!(kept_bytes(), 0);
    });
    on_fresh_thread(move || {
        drop(sent);
        assert_eq!(kept_bytes(), 4096);
    });
}

#[test]
fn a_shared_buffer_does_not_become_writable_and_a_unique_one_does() {
    let buf = Buf::from(&b"abc"[..]);
    let twin = buf.clone();
    let buf = buf.try_into_mut().expect_err("it is shared");
    drop(twin);
    let mut unique = buf.try_into_mut().expect("it is the only one");
    unique[0] = b'x';
    assert_eq!(&unique[..], b"xbc");
}

#[test]
fn a_slice_shows_its_part_and_a_cut_buffer_what_is_left() {
    let buf = Buf::from(&b"0123456789"[..]);
    assert_eq!(&buf.slice(2..5)[..], b"234");
    assert_eq!(&buf.slice(..=2).slice(1..)[..], b"12");
    let mut cut = buf.try_into_mut().expect("it is the only one");
    cut.advance(3);
    cut.truncate(4);
    assert_eq!(&cut[..], b"3456");
}

#[test]
#[should_panic(expected = "slice")]
fn a_slice_beyond_the_end_is_refused() {
    let _ = Buf::from(&b"abc"[..]).slice(1..5);
}

#[test]
fn no_bytes_take_no_memory() {
    assert_eq!(Buf::empty().retained_bytes(), 0);
    assert_eq!(BufMut::zeroed(0).len(), 0);
    assert_eq!(&Buf::from(&[][..])[..], b"");
}

#[test]
fn size_classes_grow_and_are_whole_pages() {
    assert!(CLASS_BYTES.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(CLASS_BYTES.iter().all(|bytes| bytes % ALIGN_BYTES == 0));
}

#[test]
fn words_about_pages_are_shared_by_views_and_gone_when_the_bytes_are_written() {
    on_fresh_thread(|| {
        let whole = BufMut::zeroed(32 << 10).freeze();
        let part = whole.slice(4096..12_288);
        part.page_words().expect("two pages")[1].store(7, Ordering::Relaxed);
        let words = whole.page_words().expect("eight pages");
        assert_eq!(
            words.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>(),
            [0, 0, 7, 0, 0, 0, 0, 0]
        );
        for none in
            [whole.slice(1..4097), whole.slice(4096..5000), BufMut::zeroed(4096).freeze(), Buf::empty()]
        {
            assert!(none.page_words().is_none_or(<[AtomicU32]>::is_empty));
        }
        let whole = whole.try_into_mut().expect_err("it is shared");
        assert_eq!(part.page_words().expect("two pages")[1].load(Ordering::Relaxed), 7);
        drop(part);
        let whole = whole.try_into_mut().expect("nobody else has it").freeze();
        assert_eq!(whole.page_words().expect("eight pages")[2].swap(9, Ordering::Relaxed), 0);
        let at = address(&whole);
        drop(whole);
        let next = BufMut::for_overwrite(32 << 10).freeze();
        assert_eq!(address(&next), at);
        assert!(next.page_words().expect("eight pages").iter().all(|word| word.load(Ordering::Relaxed) == 0));
    });
}

#[test]
fn a_view_knows_its_place_to_the_last_byte_of_4_gib_and_no_further() {
    for (start, len) in
        [(0, 0), (0, 1), (1, 0), (4095, 4097), (u32::MAX as usize - 1, 0), (0, u32::MAX as usize - 1)]
    {
        let span = Span::new(start, len);
        assert_eq!((span.start(), span.len()), (start, len));
    }
    for (start, len) in [(0, u32::MAX as usize), (u32::MAX as usize, 0), (usize::MAX, 1)] {
        assert!(std::panic::catch_unwind(|| Span::new(start, len)).is_err());
    }
    assert_eq!(size_of::<Option<Buf>>(), 16);
}

#[test]
fn bytes_that_were_borrowed_from_a_view_lead_to_a_view_of_them_and_others_to_none() {
    let whole = Buf::from(&[1, 2, 3, 4, 5, 6][..]);
    let middle = whole.slice(1..5);
    assert_eq!(middle.view_of(&middle[1..3]).as_deref(), Some(&[3, 4][..]));
    assert_eq!(middle.view_of(&middle[4..]).as_deref(), Some(&[][..]));
    // Of the same memory, but not of this view.
    assert_eq!(middle.view_of(&whole[..2]), None);
    assert_eq!(middle.view_of(&whole[4..]), None);
    assert_eq!(middle.view_of(&Buf::from(&[3, 4][..])), None);
    let shares = middle.view_of(&middle[..]).expect("all of it");
    drop((whole, middle));
    assert!(shares.try_into_mut().is_ok(), "the last view of its memory");
}

#[test]
fn the_words_of_a_part_are_those_of_its_pages() {
    let whole = BufMut::zeroed(8 * ALIGN_BYTES).freeze();
    whole.page_words().expect("eight pages")[3].store(7, Ordering::Relaxed);
    let part = whole.page_words_in(2 * ALIGN_BYTES..5 * ALIGN_BYTES).expect("three pages");
    assert_eq!(part.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>(), [0, 7, 0]);
    assert!(whole.page_words_in(1..ALIGN_BYTES + 1).is_none());
    assert!(whole.page_words_in(0..ALIGN_BYTES - 1).is_none());
}
