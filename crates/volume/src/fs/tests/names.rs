use super::*;

#[test]
fn names_are_found_whatever_their_case_and_keep_the_one_they_were_given() {
    let mut bench = Bench::new(8);
    let id = bench.create("Grüße.TXT");
    let entry = bench.fs.lookup(FileId::ROOT, &wide("gRÜßE.txt")).unwrap();
    assert_eq!((entry.file, &entry.name[..]), (id, &wide("Grüße.TXT")[..]));
    assert_eq!(bench.fs.create(FileId::ROOT, &wide("GRÜßE.TXT"), &file(5)), Err(FsError::Exists));
    assert_eq!(bench.fs.lookup(FileId::ROOT, &wide("GRÜSSE.TXT")), Err(FsError::NotFound));
}

#[test]
fn a_listing_resumes_behind_a_removed_entry() {
    let mut bench = Bench::new(8);
    for index in 0..100 {
        bench.create(&format!("file{index:03}"));
    }
    let (mut cursor, mut after, mut seen) = (DirectoryCursor::new(), 0, Vec::new());
    loop {
        let batch = cursor.list(&mut bench.fs, FileId::ROOT, after, 7).unwrap();
        let Some(last) = batch.last() else { break };
        after = last.0;
        for (_, entry) in batch {
            bench.run(|fs| fs.unlink(FileId::ROOT, &entry.name, FileTime(9))).unwrap();
            seen.push(String::from_utf16_lossy(&entry.name));
        }
    }
    assert_eq!(seen, (0..100).map(|index| format!("file{index:03}")).collect::<Vec<_>>());
    assert!(bench.fs.is_empty_directory(FileId::ROOT).unwrap());
}

/// If pages have to be read, the same question comes again with each of them.
#[test]
fn a_position_is_known_however_often_what_follows_it_is_asked_for() {
    let mut bench = Bench::new(8);
    for index in 0..100 {
        bench.create(&format!("file{index:03}"));
    }
    let mut cursor = DirectoryCursor::new();
    let mut list = |after, count| cursor.list(&mut bench.fs, FileId::ROOT, after, count);
    let first = list(0, 10).unwrap();
    let after = first.last().unwrap().0;
    let next = list(after, 64).unwrap();
    for _ in 0..1000 {
        assert_eq!(list(after, 64).unwrap(), next);
    }
    assert_eq!(list(0, 10).unwrap(), first);
}

#[test]
fn a_directory_cannot_be_moved_below_itself() {
    let mut bench = Bench::new(8);
    let outer = bench.fs.create(FileId::ROOT, &wide("outer"), &directory(5)).unwrap();
    let inner = bench.fs.create(outer, &wide("inner"), &directory(5)).unwrap();
    let moved = bench.fs.rename(FileId::ROOT, &wide("outer"), inner, &wide("x"), false, FileTime(9));
    assert_eq!(moved, Err(FsError::Loop));
    assert_eq!(bench.fs.path(inner).unwrap()[..], wide("outer\\inner")[..]);
}

#[test]
fn what_was_flushed_is_there_after_a_power_cut_and_what_was_not_is_gone_as_a_suffix() {
    let mut bench = Bench::new(8);
    let kept = bench.create("kept");
    bench.flush(kept).unwrap();
    bench.disk.0.borrow_mut().hold(true);
    bench.create("lost");
    bench.crash(|_| 0);
    assert_eq!(bench.run(|fs| fs.lookup(FileId::ROOT, &wide("kept"))).unwrap().file, kept);
    assert_eq!(bench.run(|fs| fs.lookup(FileId::ROOT, &wide("lost"))), Err(FsError::NotFound));
    assert!(bench.create("later").0 > kept.0, "file ids are not given twice");
}

#[test]
fn changes_that_nobody_waits_for_are_durable_after_seconds() {
    let mut bench = Bench::new(8);
    bench.create("lazy");
    bench.sleep(Duration::from_secs(5));
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    assert!(bench.run(|fs| fs.lookup(FileId::ROOT, &wide("LAZY"))).is_ok());
}

#[test]
fn a_foreign_disk_is_refused() {
    let disk = MemoryVirtualDisk::new(BlockCount(4096), 256, BlockCount(4096));
    let mut fs = FileSystem::open(Box::new(disk), Config::default());
    let mut events = Vec::new();
    for _ in 0..5 {
        fs.poll(Monotonic(1), &mut events);
    }
    assert!(
        events.iter().any(|event| matches!(event, FsEvent::Failed(FsError::NotAVolume(_)))),
        "{events:?}"
    );
    assert!(matches!(fs.lookup(FileId::ROOT, &wide("x")), Err(FsError::NotAVolume(_))));
}

#[test]
fn a_link_that_cannot_be_made_leaves_the_file_that_it_was_to_replace() {
    let mut bench = Bench::new(8);
    let source = bench.create("source");
    for number in 1..LINKS_MAX {
        let name = wide(&format!("link{number}"));
        bench.run(|fs| fs.link(source, FileId::ROOT, &name, false, FileTime(6))).expect("one more name");
    }
    let precious = bench.create("precious");
    let name = wide("precious");
    let refused = bench.run(|fs| fs.link(source, FileId::ROOT, &name, true, FileTime(6)));
    assert_eq!(refused, Err(FsError::TooManyLinks));
    assert_eq!(bench.run(|fs| fs.lookup(FileId::ROOT, &name)).unwrap().file, precious);
    // With a name less it takes the place of the other file, in one step.
    bench.run(|fs| fs.unlink(FileId::ROOT, &wide("link1"), FileTime(6))).unwrap();
    let replaced = bench.run(|fs| fs.link(source, FileId::ROOT, &name, true, FileTime(6))).unwrap();
    assert_eq!(replaced.map(|gone| (gone.file, gone.last)), Some((precious, true)));
    assert_eq!(bench.run(|fs| fs.lookup(FileId::ROOT, &name)).unwrap().file, source);
    // A file that has the name already keeps it.
    assert_eq!(bench.run(|fs| fs.link(source, FileId::ROOT, &name, true, FileTime(6))).map(|_| ()), Ok(()));
    assert_eq!(bench.run(|fs| fs.lookup(FileId::ROOT, &name)).unwrap().file, source);
}
