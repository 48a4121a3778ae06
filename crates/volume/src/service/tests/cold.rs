//! Operations whose metadata is not in memory: they proceed with each answer of the disk, without the
//! clock.

use super::*;
use crate::fs::{FileId, FsError, NewFile};
use space::api::{SpaceCompletion, SpaceRequest, SpaceSize, VirtualDisk};
use space::memory::MemoryVirtualDisk;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A disk that answers its pending requests once at each command; or always.
#[derive(Clone)]
struct GatedDisk {
    disk: Rc<RefCell<MemoryVirtualDisk>>,
    always: Rc<Cell<bool>>,
    once: Rc<Cell<bool>>,
}

impl VirtualDisk for GatedDisk {
    fn size(&self) -> SpaceSize {
        self.disk.borrow().size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        self.disk.borrow_mut().submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        let mut disk = self.disk.borrow_mut();
        disk.hold(!self.always.get());
        if self.always.get() {
            disk.poll(out);
        } else if self.once.take() {
            (0..disk.pending()).for_each(|_| disk.complete(0, out));
        }
    }
}

/// Makes this many files in one directory, more than the metadata journal holds.
fn fill(fs: &mut FileSystem, count: usize) {
    let mut events = Vec::new();
    let mut run = |fs: &mut FileSystem, parent: Option<FileId>, name: &str| loop {
        let file = NewFile { directory: parent.is_none(), attributes: 0, now: FileTime(5), security: b"" };
        match fs.create(parent.unwrap_or(FileId::ROOT), &wide(name), &file) {
            Err(FsError::Miss) => fs.poll(Monotonic(1), &mut events),
            made => break made.expect("a file"),
        }
    };
    while fs.attributes(FileId::ROOT).is_err() {
        fs.poll(Monotonic(1), &mut Vec::new());
    }
    let folder = run(fs, None, "d");
    for index in 0..count {
        run(fs, Some(folder), &format!("file {}", index * 7919 % count));
        fs.poll(Monotonic(1), &mut Vec::new());
    }
    let _ = fs.flush_all(1);
    (0..1000).for_each(|_| fs.poll(Monotonic(1), &mut Vec::new()));
}

/// A service over a directory of this many files of which nothing is in memory, and an open of it.
fn cold_directory(count: usize) -> (Bench, OpenId, GatedDisk) {
    let blocks = BlockCount(32 * 1024);
    let gate = GatedDisk {
        disk: Rc::new(RefCell::new(MemoryVirtualDisk::new(blocks, 1024, blocks))),
        always: Rc::new(Cell::new(true)),
        once: Rc::default(),
    };
    fill(&mut formatted(gate.clone()), count);
    let mut bench = Bench::over(FileSystem::open(Box::new(gate.clone()), Config::default()));
    let open = bench.create(directory(1, "d")).expect("an open").open;
    gate.always.set(false);
    (bench, open, gate)
}

fn list_from(open: OpenId, after: u64) -> Operation {
    Operation::QueryDirectory { open, pattern: wide("*"), after, entries_max: 4096, short_names: false }
}

#[test]
fn a_listing_asks_for_what_it_misses_next_with_the_answer_to_what_it_missed_before() {
    let (mut bench, open, gate) = cold_directory(6000);
    bench.service.submit(OperationId(1 << 40), list_from(open, 0), bench.now);
    let mut answers = 0;
    let events = loop {
        let mut events = Vec::new();
        bench.service.poll(&mut events);
        if !events.is_empty() {
            break events;
        }
        assert!(gate.disk.borrow().pending() > 0, "after {answers} answers it waits for nothing");
        gate.once.set(true);
        answers += 1;
    };
    assert!(answers > 3, "all was in memory: {answers}");
    // Inodes lie in another order than names: the first miss also requests those of the names that follow.
    assert!(answers < 60, "4,096 entries took {answers} answers of the disk");
    let Some(Event::Done { result: Ok(Reply::Directory(entries)), .. }) = events.first() else {
        panic!("{events:?}")
    };
    let names: Vec<String> = entries.iter().map(|entry| String::from_utf16_lossy(&entry.name)).collect();
    let mut all: Vec<String> = (0..6000).map(|index| format!("file {index}")).collect();
    all.sort();
    assert_eq!(names[..2], [".", ".."]);
    assert_eq!(names[2..], all[..4094]);
    assert_eq!(entries.iter().map(|entry| entry.cookie).collect::<Vec<_>>(), (1..=4096).collect::<Vec<_>>());
}

#[test]
fn a_second_question_of_the_same_open_does_not_disturb_one_that_waits() {
    let (mut bench, open, gate) = cold_directory(3000);
    let mut events = Vec::new();
    for number in 0..2 {
        bench.service.submit(OperationId(1 << 40 | number), list_from(open, 0), bench.now);
        // Halfway, each has found something and missed more.
        for _ in 0..4 {
            bench.service.poll(&mut events);
            gate.once.set(true);
        }
    }
    while events.len() < 2 {
        bench.service.poll(&mut events);
        gate.once.set(true);
    }
    for event in events {
        let Event::Done { result: Ok(Reply::Directory(entries)), .. } = event else { panic!("{event:?}") };
        assert_eq!(entries.len(), 3002);
        assert!(entries[2..].windows(2).all(|pair| *pair[0].name < *pair[1].name));
    }
}
