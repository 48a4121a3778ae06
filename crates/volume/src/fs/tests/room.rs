//! Space that a volume does not need any more is the pool's again.

use super::*;

/// Blocks of the pool that the volume has beyond its journal.
fn held(bench: &Bench) -> u64 {
    let size = bench.disk.size();
    size.blocks.0 - size.available.0 - u64::from(size.chunk_blocks)
}

fn fill(bench: &mut Bench, files: u64) {
    for number in 0..files {
        let made = bench.create(&format!("{number}"));
        bench.write(StreamId::unnamed(made), 0, &vec![7; 1 << 20]).unwrap();
    }
    bench.flush_all().unwrap();
}

fn remove(bench: &mut Bench, files: u64) {
    for number in 0..files {
        let name = wide(&format!("{number}"));
        let gone = bench.run(|fs| fs.unlink(FileId::ROOT, &name, FileTime(9))).expect("a file");
        bench.run(|fs| fs.reclaim(gone.file)).expect("no names");
    }
    bench.flush_all().unwrap();
}

#[test]
pub fn all_chunks_that_deletions_leave_empty_go_back_to_the_pool() {
    let mut bench = Bench::with(64, 256, Config::default());
    fill(&mut bench, 40);
    assert!(held(&bench) >= 40 * 256);
    remove(&mut bench, 40);
    bench.sleep(Duration::from_secs(5));
    assert!(held(&bench) <= 5 * 256, "{} chunks are kept", held(&bench) / 256);
    bench.check_clean();
    bench.reopen();
    bench.sleep(Duration::from_secs(5));
    assert!(held(&bench) <= 5 * 256, "{} chunks are taken again", held(&bench) / 256);
    fill(&mut bench, 50);
    bench.check_clean();
}

#[test]
fn what_a_crash_leaves_empty_goes_back_to_the_pool_too() {
    for polls in 0..12 {
        let mut bench = Bench::with(64, 256, Config::default());
        fill(&mut bench, 30);
        remove(&mut bench, 30);
        for _ in 0..polls {
            bench.poll();
        }
        bench.crash(|_| 0);
        bench.sleep(Duration::from_secs(5));
        assert!(held(&bench) <= 5 * 256, "{} chunks are kept, {polls} polls", held(&bench) / 256);
        bench.check_clean();
    }
}

#[test]
fn chunks_that_pages_needed_go_back_to_the_pool() {
    const FILES: u64 = 7_000;
    let mut bench = Bench::with(64, 256, small());
    let names = |number: u64| wide(&format!("{number:0200}"));
    for number in 0..FILES {
        bench.run(|fs| fs.create(FileId::ROOT, &names(number), &file(5))).expect("a new file");
        if number % 100 == 0 {
            bench.now = bench.now.after(Duration::from_millis(20));
            bench.poll();
        }
    }
    bench.flush_all().unwrap();
    bench.sleep(Duration::from_secs(2));
    let most = held(&bench);
    assert!(most >= 12 * 256, "{} chunks", most / 256);
    for number in 0..FILES {
        let gone = bench.run(|fs| fs.unlink(FileId::ROOT, &names(number), FileTime(9))).expect("a file");
        bench.run(|fs| fs.reclaim(gone.file)).expect("no names");
        if number % 10 == 0 {
            bench.now = bench.now.after(Duration::from_millis(20));
            bench.poll();
        }
    }
    bench.flush_all().unwrap();
    bench.sleep(Duration::from_secs(5));
    assert!(held(&bench) <= most / 2, "{} of {} chunks are kept", held(&bench) / 256, most / 256);
    bench.check_clean();
    bench.reopen();
    bench.check_clean();
    fill(&mut bench, 40);
    bench.check_clean();
}
