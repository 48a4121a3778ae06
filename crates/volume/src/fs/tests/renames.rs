//! A file that takes another's name brings its data along.

use super::*;

static OLD: [u8; 20_000] = [1; 20_000];
static NEW: [u8; 60_000] = [2; 60_000];

/// A volume over a disk that answers out of order, with a file that is durable and a new one that is not.
fn old_and_new(seed: u64) -> Bench {
    let mut bench = Bench::with(24, 256, small());
    let old = bench.create("target");
    bench.write(StreamId::unnamed(old), 0, &OLD).unwrap();
    bench.flush_all().unwrap();
    bench.disk.1.set(Some(seed));
    let new = bench.create("new");
    bench.write(StreamId::unnamed(new), 0, &NEW).unwrap();
    bench
}

/// Takes the power away; the file that has the target's name then.
fn target_after_cut(mut bench: Bench, seed: u64) -> Vec<u8> {
    let mut random = crash::Random(seed);
    bench.crash(|limit| random.below(limit));
    let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide("target"))).expect("the name is there");
    bench.read(StreamId::unnamed(found.file), 0, 1 << 20).unwrap()
}

#[test]
pub fn a_file_renamed_over_another_is_the_old_one_or_the_new_one_whole_whenever_the_power_goes() {
    let (mut olds, mut news) = (0, 0);
    for seed in 1..4 {
        for cut in (0..60).step_by(2) {
            let mut bench = old_and_new(seed * 7919 + cut);
            let mut renamed = false;
            for _ in 0..cut {
                if !renamed {
                    let (from, to) = (wide("new"), wide("target"));
                    let result = bench.fs.rename(FileId::ROOT, &from, FileId::ROOT, &to, true, FileTime(9));
                    assert!(matches!(result, Ok(_) | Err(FsError::Miss)), "{result:?}");
                    renamed = result.is_ok();
                }
                bench.now = bench.now.after(Duration::from_millis(50));
                bench.poll();
            }
            let found = target_after_cut(bench, seed | cut << 8 | 1);
            assert!(found == OLD || found == NEW, "seed {seed}, cut {cut}: {} bytes", found.len());
            olds += u32::from(found == OLD);
            news += u32::from(found == NEW);
        }
    }
    assert!(olds > 10 && news > 10, "{olds} old, {news} new");
}

#[test]
fn a_rename_brings_the_end_of_the_file_along_whatever_is_written_behind_it_meanwhile() {
    let mut bench = old_and_new(7);
    let new = StreamId::unnamed(bench.run(|fs| fs.lookup(FileId::ROOT, &wide("new"))).unwrap().file);
    // In the middle of a block that holds nothing yet.
    bench.run(|fs| fs.set_end_of_file(new, 70_000, FileTime(8))).unwrap();
    let (from, to) = (wide("new"), wide("target"));
    let mut renamed = bench.fs.rename(FileId::ROOT, &from, FileId::ROOT, &to, true, FileTime(9));
    assert!(matches!(renamed, Err(FsError::Miss)), "{renamed:?}");
    let behind = Payload::from(Buf::from([3; 4096].as_slice()));
    let _ = bench.fs.write(77, new, 70_000, behind, false);
    while matches!(renamed, Err(FsError::Miss)) {
        bench.poll();
        renamed = bench.fs.rename(FileId::ROOT, &from, FileId::ROOT, &to, true, FileTime(9));
    }
    renamed.unwrap();
    // The rename reaches the journal, but nothing of the writes behind it.
    bench.now = bench.now.after(Duration::from_millis(1100));
    bench.poll();
    bench.poll();
    bench.disk.1.set(None);
    bench.poll();
    bench.crash(|_| 0);
    let found = bench.run(|fs| fs.lookup(FileId::ROOT, &wide("target"))).unwrap();
    let bytes = bench.read(StreamId::unnamed(found.file), 0, 1 << 20).unwrap();
    assert!(bytes.len() >= 70_000, "{} bytes", bytes.len());
    assert!(bytes[..60_000] == NEW && bytes[60_000..70_000].iter().all(|byte| *byte == 0));
}

#[test]
fn a_rename_waits_for_what_was_written_before_it_only() {
    let mut bench = old_and_new(99);
    let new = bench.run(|fs| fs.lookup(FileId::ROOT, &wide("new"))).unwrap().file;
    for round in 0..500_u64 {
        let (from, to) = (wide("new"), wide("target"));
        match bench.fs.rename(FileId::ROOT, &from, FileId::ROOT, &to, true, FileTime(9)) {
            Err(FsError::Miss) => {}
            result => {
                result.unwrap();
                return;
            }
        }
        // Another writer continues.
        let token = 10_000 + round;
        let _ = bench.fs.write(
            token,
            StreamId::unnamed(new),
            round % 14 * 4096,
            Payload::from(Buf::from([3; 4096].as_slice())),
            false,
        );
        bench.poll();
    }
    panic!("the rename waits for ever");
}

#[test]
fn a_rename_whose_data_cannot_be_written_is_answered() {
    let mut bench = old_and_new(5);
    bench.disk.0.borrow_mut().fail(Some(space::api::SpaceError::NoSpace));
    let begun = bench.now;
    loop {
        let (from, to) = (wide("new"), wide("target"));
        match bench.fs.rename(FileId::ROOT, &from, FileId::ROOT, &to, true, FileTime(9)) {
            Err(FsError::Miss) => {}
            result => {
                assert_eq!(result.err(), Some(FsError::NoSpace));
                break;
            }
        }
        bench.now = bench.now.after(Duration::from_millis(50));
        bench.poll();
        assert!(bench.now.since(begun) < Duration::from_secs(70), "the rename waits for ever");
    }
    bench.disk.0.borrow_mut().fail(None);
    bench.sleep(Duration::from_secs(40));
    let (from, to) = (wide("new"), wide("target"));
    bench.run(|fs| fs.rename(FileId::ROOT, &from, FileId::ROOT, &to, true, FileTime(9))).unwrap();
}
