//! On a full pool, removal still works.

use super::*;
use std::cell::RefCell;

/// A volume with more addresses than its pool has space for.
fn crowded(chunks: u64) -> Bench {
    crowded_of(64, chunks)
}

fn crowded_of(chunks: u64, room: u64) -> Bench {
    let (blocks, room) = (BlockCount(chunks * 256), BlockCount(room * 256));
    let disk = SharedDisk(
        Rc::new(RefCell::new(MemoryVirtualDisk::new(blocks, 256, room))),
        Rc::default(),
        Rc::default(),
    );
    Bench::over(disk.clone(), Box::new(disk), small())
}

/// Makes files of names and data until space is left for neither.
fn fill(bench: &mut Bench, data_bytes: usize) -> Vec<String> {
    let mut names = Vec::new();
    for round in 0..20_000_u64 {
        let name = format!("a file with a name of some length {}", round * 7919 % 20_000);
        let wide = wide(&name);
        match bench.run(|fs| fs.create(FileId::ROOT, &wide, &file(5))) {
            Ok(made) => {
                names.push(name);
                let _ = bench.write(StreamId::unnamed(made), 0, &vec![7; data_bytes]);
            }
            Err(FsError::NoSpace) => return names,
            Err(error) => panic!("{error}"),
        }
        bench.now = bench.now.after(Duration::from_millis(20));
        bench.poll();
    }
    panic!("{} files fit", names.len());
}

#[test]
pub fn everything_can_be_removed_from_a_full_pool() {
    for (chunks, data_bytes) in [(4, 100), (9, 20_000), (7, 1)] {
        let mut bench = crowded(chunks);
        let mut names = fill(&mut bench, data_bytes);
        assert!(names.len() > 20, "{} files", names.len());
        let mut random = crash::Random(chunks * 77 + data_bytes as u64);
        while !names.is_empty() {
            let name = names.swap_remove(random.below(names.len() as u64) as usize);
            let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide(&name))).expect("the name").file;
            bench.run(|fs| fs.set_end_of_file(StreamId::unnamed(found), 0, FileTime(8))).expect("cut off");
            let gone = bench.run(|fs| fs.unlink(FileId::ROOT, &wide(&name), FileTime(9))).expect("removed");
            bench.run(|fs| fs.reclaim(gone.file)).expect("reclaimed");
            bench.now = bench.now.after(Duration::from_millis(20));
            bench.poll();
        }
        bench.flush_all().unwrap();
        // Afterwards there is space again.
        bench.sleep(Duration::from_secs(10));
        bench.create("new");
        bench.reopen();
        bench.check_clean();
    }
}

#[test]
pub fn a_volume_that_metadata_has_filled_tells_no_room_until_names_are_gone() {
    let mut bench = Bench::with(4, 1024, small());
    let names = fill(&mut bench, 0);
    let full = bench.fs.statistics();
    assert!(full.used_bytes < full.total_bytes, "there is room for data: {full:?}");
    assert_eq!((full.available_bytes, full.lacks_metadata_room), (0, true));
    for name in &names {
        bench.remove(name);
    }
    bench.sleep(Duration::from_secs(10));
    let empty = bench.fs.statistics();
    assert!(empty.available_bytes > 0 && !empty.lacks_metadata_room, "{empty:?}");
}

#[test]
pub fn blocks_that_are_given_back_one_by_one_on_a_full_pool_leave_room_for_checkpoints() {
    const BLOCKS: u64 = 40_000;
    let mut bench = crowded_of(240, 166);
    let clone = pieces::clone_of_an_image(&mut bench, BLOCKS);
    let rest = StreamId::unnamed(bench.create("rest"));
    let mut at = 0;
    while bench.write(rest, at, &[7; 65_536]).is_ok() {
        at += 65_536;
        bench.poll();
    }
    bench.flush_all().unwrap();
    for block in (0..BLOCKS).step_by(2) {
        match bench.run(|fs| fs.zero_range(clone, block * 4096, 4096, FileTime(9))) {
            Ok(()) => {}
            Err(FsError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        if block % 64 == 0 {
            bench.now = bench.now.after(Duration::from_millis(20));
            bench.poll();
        }
    }
    for name in ["clone", "rest", "image"] {
        let gone = bench.run(|fs| fs.unlink(FileId::ROOT, &wide(name), FileTime(9))).expect("removed");
        bench.run(|fs| fs.reclaim(gone.file)).expect("reclaimed");
        bench.sleep(Duration::from_secs(3));
    }
    bench.flush_all().unwrap();
    bench.sleep(Duration::from_secs(10));
    bench.create("new");
    bench.reopen();
    bench.check_clean();
}
