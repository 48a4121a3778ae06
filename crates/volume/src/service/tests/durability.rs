//! Changes answered as durable survive a power cut.

use super::*;
use space::api::{SpaceCompletion, SpaceError, SpaceReply, SpaceRequest, SpaceSize, VirtualDisk};
use space::memory::MemoryVirtualDisk;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A disk that outlives the service; while it is closed, writes wait, or fail once it opens.
#[derive(Clone)]
pub(super) struct Disk {
    disk: Rc<RefCell<MemoryVirtualDisk>>,
    pub(super) closed: Rc<Cell<bool>>,
    fails: Rc<Cell<bool>>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let blocks = BlockCount(65_536);
        let disk = Rc::new(RefCell::new(MemoryVirtualDisk::new(blocks, 4096, blocks)));
        Self { disk, closed: Rc::default(), fails: Rc::default() }
    }

    /// Cuts the power and opens the result.
    pub(super) fn cut(&self) -> Bench {
        self.closed.set(false);
        self.disk.borrow_mut().crash(|_| 0);
        Bench::over(FileSystem::open(Box::new(self.clone()), Config::default()))
    }
}

impl VirtualDisk for Disk {
    fn size(&self) -> SpaceSize {
        self.disk.borrow().size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        self.disk.borrow_mut().submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        if self.closed.get() {
            return;
        }
        let before = out.len();
        self.disk.borrow_mut().poll(out);
        for completion in &mut out[before..] {
            if self.fails.get() && matches!(completion.result, Ok(SpaceReply::Done)) {
                completion.result = Err(SpaceError::Unavailable);
            }
        }
    }
}

fn on_share(durability: Durability, path: &str) -> Create {
    let share = ShareOptions { durability, ..ShareOptions::default() };
    Create { caller: Caller { share, ..caller(1) }, ..open_if(1, path) }
}

#[test]
pub fn growth_on_a_share_that_writes_through_is_durable_when_it_is_answered() {
    let disk = Disk::new();
    let mut bench = Bench::over(formatted(disk.clone()));
    let open = bench.create(on_share(Durability::Write, "file")).expect("an open").open;
    bench.set(open, SetInformation::EndOfFile(100_000)).expect("it grows");
    let mut bench = disk.cut();
    let open = bench.create(open_if(1, "file")).expect("an open").open;
    assert_eq!(bench.information(open).end_of_file, 100_000);
}

#[test]
fn zeroed_edges_on_a_share_that_writes_through_are_durable_when_they_are_answered() {
    let disk = Disk::new();
    let mut bench = Bench::over(formatted(disk.clone()));
    let open = bench.create(on_share(Durability::Write, "file")).expect("an open").open;
    bench.write(open, 0, &[7; 20_000]).expect("written");
    let range = ByteRange { offset: 1_000, len_bytes: 10_000 };
    bench.call(Operation::ZeroRange { open, range }).expect("zeroed");
    let mut bench = disk.cut();
    let open = bench.create(open_if(1, "file")).expect("an open").open;
    let mut expected = vec![7; 20_000];
    expected[1_000..11_000].fill(0);
    assert!(bench.read(open, 0, 20_000).expect("read") == expected);
}

#[test]
pub fn a_close_that_overtakes_a_flush_waits_for_it_and_fails_as_it_does() {
    for (durability, fails) in
        [Durability::Flush, Durability::Close].into_iter().flat_map(|d| [(d, false), (d, true)])
    {
        let disk = Disk::new();
        let mut bench = Bench::over(formatted(disk.clone()));
        let open = bench.create(on_share(durability, "file")).expect("an open").open;
        bench.write(open, 0, &[7; 20_000]).expect("written");
        disk.closed.set(true);
        let flush = bench.start(Operation::Flush { open });
        let close = bench.start(Operation::Close { open, query: false });
        assert!(bench.answer(close).is_none(), "the flush is under way");
        disk.fails.set(fails);
        disk.closed.set(false);
        let (flush, close) =
            (bench.answer(flush).expect("an answer"), bench.answer(close).expect("an answer"));
        assert_eq!(flush.is_err(), fails, "{flush:?}");
        assert_eq!(close.is_err(), fails, "{close:?}");
        disk.fails.set(false);
        if !fails {
            let mut bench = disk.cut();
            let open = bench.create(open_if(1, "file")).expect("an open").open;
            assert!(bench.read(open, 0, 20_000).expect("read") == [7; 20_000]);
        }
    }
}

#[test]
pub fn a_name_that_was_removed_changed_or_added_is_so_for_good_once_its_handle_is_closed() {
    let disk = Disk::new();
    let mut bench = Bench::over(formatted(disk.clone()));
    let on = |path: &str| on_share(Durability::Close, path);
    for path in ["gone", "twice", "old", "linked", "streams:gone", "streams:old"] {
        let open = bench.create(on(path)).expect("an open").open;
        bench.close(open).expect("closed");
    }
    let mut change = |path: &str, set: SetInformation| {
        let open = bench.create(on(path)).expect("an open").open;
        bench.set(open, set).expect("changed");
        bench.close(open).expect("closed");
    };
    let rename = |target: &str| SetInformation::Rename { target: wide(target), replace: false, posix: false };
    let link = |target: &str| SetInformation::Link { target: wide(target), replace: false };
    let delete = || SetInformation::Disposition { flags: 1 };
    change("linked", link("link"));
    change("twice", link("other"));
    let last: [(&str, &dyn Fn() -> SetInformation); 6] = [
        ("gone", &delete),
        ("twice", &delete),
        ("old", &|| rename("new")),
        ("linked", &|| link("another link")),
        ("streams:gone", &delete),
        ("streams:old", &|| rename(":new")),
    ];
    for (path, set) in last {
        let mut bench = disk.cut();
        let open = bench.create(on(path)).expect("an open").open;
        bench.set(open, set()).expect("changed");
        bench.close(open).expect("closed");
    }
    let mut bench = disk.cut();
    let folder = bench.create(root(1)).expect("the root").open;
    let mut names = bench.names(folder, "*");
    names.retain(|name| !name.starts_with('.'));
    assert_eq!(names, ["another link", "link", "linked", "new", "other", "streams"]);
    let exists = |path: &str| Create { disposition: Disposition::Open, ..open_if(1, path) };
    assert!(bench.create(exists("streams:gone")).is_err() && bench.create(exists("streams:old")).is_err());
    bench.create(exists("streams:new")).expect("the stream by its new name");
}

#[test]
fn a_clone_of_a_terabyte_of_holes_copies_less_than_a_block() {
    let mut bench = Bench::new();
    let source = bench.create(open_if(1, "source")).expect("an open").open;
    let target = bench.create(open_if(1, "target")).expect("an open").open;
    for open in [source, target] {
        bench.call(Operation::SetSparse { open, sparse: true }).expect("sparse");
    }
    bench.write(source, 0, b"begins").expect("written");
    bench.write(source, 1 << 40, b"!").expect("written");
    bench.set(target, SetInformation::EndOfFile((1 << 40) + 4096)).expect("it grows");
    bench.write(target, (1 << 40) + 1, b"stays").expect("written");
    let chunk = CopyChunk { source_offset: 0, target_offset: 0, len_bytes: (1 << 40) + 1 };
    bench.call(Operation::DuplicateExtents { source, target, chunk }).expect("cloned");
    assert_eq!(bench.read(target, 0, 8).expect("read"), b"begins\0\0");
    assert_eq!(bench.read(target, 1 << 40, 7).expect("read"), b"!stays\0");
    assert!(bench.information(target).allocation_bytes <= 2 * 4096, "holes stay holes");
    let beyond = CopyChunk { len_bytes: (1 << 40) + 2, ..chunk };
    let refused = bench.call(Operation::DuplicateExtents { source, target, chunk: beyond });
    assert_eq!(refused.expect_err("not of whole blocks"), NtStatus::INVALID_PARAMETER);
}
