use super::*;

/// Files of 20 directories, found again by name and by listing.
fn fill(bench: &mut Bench, count: usize) -> Vec<FileId> {
    let parents: Vec<FileId> = (0..20)
        .map(|index| {
            let name = wide(&format!("directory {index}"));
            bench.run(|fs| fs.create(FileId::ROOT, &name, &directory(5))).unwrap()
        })
        .collect();
    for index in 0..count {
        let name = wide(&format!("file {}", index * 7919 % count));
        bench.run(|fs| fs.create(parents[index % 20], &name, &file(5))).unwrap();
        bench.poll();
    }
    parents
}

fn verify(bench: &mut Bench, parents: &[FileId], count: usize) {
    let mut names = 0;
    for parent in parents {
        let mut after: Option<Vec<u16>> = None;
        loop {
            let entries = bench.run(|fs| fs.list(*parent, after.as_deref(), 100)).unwrap();
            let Some(last) = entries.last() else { break };
            after = Some(last.name.to_vec());
            names += entries.len();
        }
    }
    assert_eq!(names, count);
    for index in (0..count).step_by(97) {
        let name = wide(&format!("FILE {}", index * 7919 % count));
        let entry = bench.run(|fs| fs.lookup(parents[index % 20], &name)).unwrap();
        assert_eq!(bench.run(|fs| fs.attributes(entry.file)).unwrap().link_count, 1);
    }
}

#[test]
fn many_more_names_than_the_journal_holds_are_found_after_a_power_cut() {
    let mut bench = Bench::with(32, 1024, small());
    let parents = fill(&mut bench, 6_000);
    verify(&mut bench, &parents, 6_000);
    bench.flush_all().unwrap();
    let superblock = bench.fs.base.checkpointer.superblock.unwrap();
    assert!(superblock.root.is_some_and(|root| root.level > 0), "there were checkpoints: {superblock:?}");
    bench.disk.0.borrow_mut().hold(true);
    bench.crash(|_| 0);
    verify(&mut bench, &parents, 6_000);
}

#[test]
fn removed_names_leave_the_tree_and_its_pages() {
    let mut bench = Bench::with(32, 1024, small());
    let parents = fill(&mut bench, 4_000);
    for parent in &parents {
        loop {
            let entries = bench.run(|fs| fs.list(*parent, None, 100)).unwrap();
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                bench.run(|fs| fs.unlink(*parent, &entry.name, FileTime(9))).unwrap();
                bench.run(|fs| fs.reclaim(entry.file)).unwrap();
                bench.poll();
            }
        }
    }
    bench.flush_all().unwrap();
    bench.reopen();
    verify(&mut bench, &parents, 0);
    // Two more checkpoints: the tree has shrunk by then.
    fill_again(&mut bench, &parents);
    let used = bench.fs.base.meta.allocator.pages.used_count();
    assert!(used < 400, "{used} pages are in use");
}

fn fill_again(bench: &mut Bench, parents: &[FileId]) {
    for index in 0..4_000 {
        let name = wide(&format!("again {}", index % 10));
        let parent = parents[0];
        match bench.run(|fs| fs.create(parent, &name, &file(5))) {
            Ok(_) => {}
            Err(FsError::Exists) => {
                let gone = bench.run(|fs| fs.unlink(parent, &name, FileTime(9))).unwrap();
                bench.run(|fs| fs.reclaim(gone.file)).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
        bench.poll();
    }
}

/// Makes one more file, whose name nobody expects next.
fn make(bench: &mut Bench, count: &mut u64) {
    let name = wide(&format!("file {}", *count * 7919 % 100_000));
    bench.run(|fs| fs.create(FileId::ROOT, &name, &file(5))).unwrap();
    *count += 1;
    bench.poll();
}

#[test]
pub fn a_power_cut_at_any_moment_of_a_checkpoint_leaves_what_was_durable() {
    let mut bench = Bench::new(24);
    let (mut within, mut count) = (0, 0);
    for cut in 0..30_u64 {
        let sequence = bench.fs.base.checkpointer.superblock.unwrap().sequence;
        while bench.fs.base.checkpointer.superblock.unwrap().sequence == sequence
            || bench.fs.base.meta.journal.log.fill() < 50
        {
            make(&mut bench, &mut count);
        }
        bench.flush_all().unwrap();
        let durable = count;
        // The disk answers this many requests more, in some order; some of the unanswered ones still take
        // effect.
        bench.disk.1.set(Some(cut * 1009 + 7));
        bench.disk.2.borrow_mut().answers_left = Some(cut);
        for more in 0..100 {
            let _ = bench.fs.create(FileId::ROOT, &wide(&format!("more {cut} {more}")), &file(5));
            let token = bench.token();
            let _ = bench.fs.flush_metadata(token);
            bench.fs.poll(bench.now, &mut bench.events);
        }
        within += u64::from(bench.fs.base.checkpointer.is_under_way());
        bench.disk.1.set(None);
        bench.disk.2.borrow_mut().answers_left = None;
        let mut random = crash::Random(cut * 31 + 5);
        bench.crash(|limit| random.below(limit));
        for index in durable.saturating_sub(400)..durable {
            let name = wide(&format!("file {}", index * 7919 % 100_000));
            let found = bench.run(|fs| fs.lookup(FileId::ROOT, &name));
            assert!(found.is_ok(), "cut {cut}: file {index}: {found:?}");
        }
        if cut % 10 == 9 {
            bench.check_clean();
        }
    }
    assert!(within > 15, "{within} cuts fell into a checkpoint");
}
