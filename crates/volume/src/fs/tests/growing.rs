//! Volumes that grow while they are served.

use super::super::allocator::{Allocator, ChunkState};
use super::super::meta::ChunkUse;
use super::*;

const MIB: usize = 1 << 20;

/// Writes files until the volume is full; how many.
fn fill(bench: &mut Bench, name: &str) -> usize {
    for number in 0..100 {
        let file = bench.create(&format!("{name}{number}"));
        let stream = StreamId { file, index: 0 };
        if bench.write_durably(stream, 0, &vec![number as u8; MIB]).is_err() {
            return number;
        }
    }
    panic!("it is never full");
}

#[test]
fn a_volume_that_grew_is_larger_at_once_and_its_new_room_can_be_filled() {
    let mut bench = Bench::new(8);
    let before = bench.fs.statistics();
    assert_eq!(before.total_bytes, 8 * MIB as u64);
    assert_eq!(before.total_bytes, before.used_bytes + before.available_bytes);
    let first = fill(&mut bench, "a");
    bench.disk.0.borrow_mut().grow(8 * 256);
    bench.fs.grow().expect("more room");
    let after = bench.fs.statistics();
    assert_eq!(after.total_bytes, 16 * MIB as u64);
    assert!(after.used_bytes <= before.total_bytes, "what is new is not used: {after:?}");
    bench.sleep(Duration::from_secs(3));
    let second = fill(&mut bench, "b");
    assert!(first >= 4 && second >= 7, "{first}, then {second}");
    bench.check_clean();
    bench.reopen();
    bench.check_clean();
    let statistics = bench.fs.statistics();
    assert_eq!(statistics.total_bytes, 16 * MIB as u64);
}

#[test]
fn a_checkpoint_keeps_its_pages_in_a_chunk_by_which_the_volume_grew_after_it_began() {
    let (before, after) = (4 * 256, 8 * 256);
    let mut allocator = Allocator::new(before, 256).expect("an allocator");
    for chunk in 1..4 {
        allocator.set_chunk(chunk, ChunkUse::Data, ChunkState::Ready);
    }
    let records = allocator.chunk_records();
    allocator.grow(after).expect("room for more");
    assert_eq!(allocator.free_chunk(), Some(4));
    allocator.set_chunk(4, ChunkUse::Meta, ChunkState::Changing);
    allocator.pages.emptied(4, true);
    allocator.set_chunk(4, ChunkUse::Meta, ChunkState::Ready);
    let page = allocator.pages.take(3).expect("pages");
    assert!(page.0 >= before, "{page} lies in the new chunk");
    let map = allocator.encode_space_map(&records, &[]);
    let mut opened = Allocator::new(after, 256).expect("an allocator");
    opened.decode_space_map(&map).expect("it makes sense");
    assert_eq!((opened.chunk_use(4), opened.pages.used_count()), (Some(ChunkUse::Meta), 3));
}

#[test]
fn a_volume_that_is_being_opened_does_not_grow_yet() {
    let disk = SharedDisk::new(4, 256);
    let mut fs = FileSystem::format(Box::new(disk), &format(), Config::default());
    assert_eq!(fs.grow(), Err(FsError::Miss));
}
