//! Operations that need more pages of the tree than the cache holds still end.

use super::*;

/// Directories below each other, each with this many files of long names, so that no two of the directories lie in one page.
fn deep(bench: &mut Bench, depth: usize, files: usize) -> FileId {
    let mut at = FileId::ROOT;
    for level in 0..depth {
        for index in 0..files {
            let name = wide(&format!("{index:0200}"));
            bench.run(|fs| fs.create(at, &name, &file(5))).unwrap();
            bench.poll();
        }
        let name = wide(&format!("level {level}"));
        at = bench.run(|fs| fs.create(at, &name, &directory(5))).unwrap();
    }
    bench.flush_all().unwrap();
    bench.reopen();
    at
}

#[test]
fn the_path_of_a_file_that_lies_deeper_than_the_page_cache_has_pages_is_found() {
    let mut bench = Bench::with(64, 1024, small());
    let deepest = deep(&mut bench, 120, 40);
    let path = bench.run(|fs| fs.path(deepest)).unwrap();
    assert!(String::from_utf16_lossy(&path).ends_with(r"level 118\level 119"));
    // The extra pages are released.
    let mut parents = vec![FileId::ROOT];
    for level in 0..119 {
        let name = wide(&format!("level {level}"));
        let parent = *parents.last().unwrap();
        parents.push(bench.run(|fs| fs.lookup(parent, &name)).unwrap().file);
    }
    for index in [0, 15, 30] {
        let name = wide(&format!("{index:0200}"));
        for parent in &parents {
            bench.run(|fs| fs.lookup(*parent, &name)).unwrap();
        }
    }
    let cached = bench.fs.base.meta.store.tree.cached_count();
    assert!(cached < 80, "{cached} pages are held");
}

#[test]
fn a_check_ends_in_a_cache_that_is_smaller_than_the_tree() {
    let mut bench = Bench::with(64, 1024, small());
    deep(&mut bench, 20, 200);
    let (mut check, mut misses) = (Check::new(&bench.fs), 0);
    loop {
        match check.step(&mut bench.fs, 100) {
            Ok(true) => break,
            Ok(false) => {}
            Err(FsError::Miss) => {
                misses += 1;
                bench.poll();
            }
            Err(error) => panic!("{error}"),
        }
    }
    let report = check.report();
    assert!(report.problems.is_empty(), "{report:#?}");
    assert!(bench.fs.base.meta.allocator.pages.used_count() > 300);
    assert!(misses < report.keys, "{misses} misses for {} keys", report.keys);
}
