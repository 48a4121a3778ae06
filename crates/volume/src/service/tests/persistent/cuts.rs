//! Power cuts before each write to the disk, under a client with opens, leases, locks and deletions.
//!
//! Answered operations survive, and unanswered ones survive whole or not at all: the client finds the
//! state after its last answered operation, or after the next one.

use super::*;
use space::api::{SpaceCompletion, SpaceRequest, SpaceSize, VirtualDisk};
use space::memory::MemoryVirtualDisk;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A disk whose power goes before the write of this number.
#[derive(Clone)]
struct CutDisk {
    disk: Rc<RefCell<MemoryVirtualDisk>>,
    /// Whether each request that waits changes something, oldest first.
    waiting: Rc<RefCell<Vec<bool>>>,
    writes_left: Rc<Cell<u64>>,
}

impl CutDisk {
    fn new() -> Self {
        let blocks = BlockCount(65_536);
        let disk = Rc::new(RefCell::new(MemoryVirtualDisk::new(blocks, 4096, blocks)));
        Self { disk, waiting: Rc::default(), writes_left: Rc::new(Cell::new(u64::MAX)) }
    }

    /// Opens the result of a power cut, with the writes under way if `arrived`.
    fn cut(&self, arrived: bool) -> Bench {
        self.writes_left.set(u64::MAX);
        self.waiting.borrow_mut().clear();
        self.disk.borrow_mut().crash(|_| u64::from(arrived));
        Bench::over(FileSystem::open(Box::new(self.clone()), Config::default()))
    }
}

impl VirtualDisk for CutDisk {
    fn size(&self) -> SpaceSize {
        self.disk.borrow().size()
    }
    fn submit(&mut self, token: u64, request: SpaceRequest) {
        self.waiting.borrow_mut().push(!matches!(request, SpaceRequest::Read { .. }));
        self.disk.borrow_mut().submit(token, request);
    }
    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        loop {
            let first = self.waiting.borrow().first().copied();
            let Some(changes) = first else { return };
            if changes {
                let Some(left) = self.writes_left.get().checked_sub(1) else { return };
                self.writes_left.set(left);
            }
            self.waiting.borrow_mut().remove(0);
            self.disk.borrow_mut().complete(0, out);
        }
    }
}

/// Open that a client finds under a GUID.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    path: &'static str,
    state: LeaseState,
    /// Offsets of its locks.
    locks: Vec<u64>,
    deleting: bool,
}

/// All opens that it finds, by GUID, and the existing names.
type World = (Vec<(u8, Seen)>, Vec<&'static str>);

const OFFSETS: [u64; 3] = [0, 100, 200];
const PATHS: [&str; 3] = ["one", "two", "new"];

/// Does the step of this number; whether it was answered. The last result is the number of steps.
fn step(bench: &mut Bench, opens: &mut Vec<OpenId>, number: usize) -> Option<bool> {
    let lock = |open, offset, exclusive, sequence| {
        let range = ByteRange { offset, len_bytes: 10 };
        let element = LockElement { range, exclusive, fail_immediately: exclusive.is_some() };
        Operation::Lock { open, elements: vec![element], sequence }
    };
    let delete = |open, flags| Operation::SetInformation { open, set: SetInformation::Disposition { flags } };
    let rename = SetInformation::Rename { target: wide("new"), replace: false, posix: false };
    let created = |create| Operation::Create(Box::new(create));
    let request = match number {
        // The file is made before there is space for its allocation.
        0 => created(Create { allocation_bytes: Some(100 << 20), ..leased("one", 1, RH) }),
        1 => lock(opens[0], 0, Some(true), Some(0x11)),
        2 => created(leased("two", 2, RWH)),
        3 => lock(opens[1], 100, Some(true), None),
        4 => lock(opens[1], 200, Some(true), None),
        5 => lock(opens[0], 0, None, None),
        6 => created(Create { cache: lease(1, RWH), ..persistent("one", 3) }),
        7 => delete(opens[1], 1),
        8 => delete(opens[1], 0),
        9 => Operation::SetInformation { open: opens[0], set: rename },
        10 => Operation::Close { open: opens[2], query: false },
        11 => delete(opens[1], 1),
        12 => Operation::Close { open: opens[1], query: false },
        13 => Operation::Close { open: opens[0], query: false },
        _ => return None,
    };
    let operation = bench.start(request);
    for _ in 0..50 {
        if let Some(answer) = bench.answer(operation) {
            if let Reply::Created(created) = answer.expect("it succeeds") {
                opens.push(created.open);
            }
            return Some(true);
        }
        bench.pass(Duration::from_millis(100));
    }
    Some(false)
}

/// The worlds after no step, the first, the first two, and so on.
fn expected() -> Vec<World> {
    let seen = |path, state, locks: &[u64], deleting| Seen { path, state, locks: locks.to_vec(), deleting };
    let one = |state, locks: &[u64]| (1, seen("one", state, locks, false));
    let two = |locks: &[u64], deleting| (2, seen("two", RWH, locks, deleting));
    let three = |path, locks: &[u64]| (3, seen(path, RWH, locks, false));
    let both = vec!["one", "two"];
    let new = vec!["two", "new"];
    let first = (1, seen("new", RWH, &[], false));
    vec![
        (vec![], vec![]),
        (vec![one(RH, &[])], vec!["one"]),
        (vec![one(RH, &[0])], vec!["one"]),
        (vec![one(RH, &[0]), two(&[], false)], both.clone()),
        (vec![one(RH, &[0]), two(&[100], false)], both.clone()),
        (vec![one(RH, &[0]), two(&[100, 200], false)], both.clone()),
        (vec![one(RH, &[]), two(&[100, 200], false)], both.clone()),
        (vec![one(RWH, &[]), two(&[100, 200], false), three("one", &[])], both.clone()),
        (vec![one(RWH, &[]), two(&[100, 200], true), three("one", &[])], both.clone()),
        (vec![one(RWH, &[]), two(&[100, 200], false), three("one", &[])], both),
        (vec![first.clone(), two(&[100, 200], false), three("new", &[])], new.clone()),
        (vec![first.clone(), two(&[100, 200], false)], new.clone()),
        (vec![first.clone(), two(&[100, 200], true)], new),
        (vec![first], vec!["new"]),
        (vec![], vec!["new"]),
    ]
}

/// Returns the state that clients find.
fn look(bench: &mut Bench) -> World {
    let known: Vec<(OpenId, String)> = bench
        .service
        .list_opens()
        .into_iter()
        .map(|open| (open.open, String::from_utf16_lossy(&open.path)))
        .collect();
    let mut found = Vec::new();
    for guid in 1..=3 {
        // Opens two and three have leases of their own keys; the third shares that of the first.
        let key = if guid == 3 { 1 } else { guid };
        for (open, path) in &known {
            let CacheRequest::Lease(asked) = lease(key, LeaseState::empty()) else { unreachable!() };
            let request = Reconnect { lease: Some(asked), ..back(*open, path, guid) };
            let Ok(created) = bench.reconnect(request) else { continue };
            let path = PATHS.into_iter().find(|name| name == path).expect("a name of the script");
            let mut locks = Vec::new();
            for offset in OFFSETS {
                if bench.unlock(*open, offset).is_ok() {
                    locks.push(offset);
                }
            }
            let (state, deleting) = (lease_state(&created), created.information.delete_pending);
            found.push((guid, Seen { path, state, locks, deleting }));
        }
    }
    let root = bench.create(root(9)).expect("the root").open;
    let names = bench.names(root, "*");
    (found, PATHS.into_iter().filter(|path| names.iter().any(|name| name == path)).collect())
}

#[test]
fn after_a_power_cut_a_client_finds_what_it_was_told() {
    let worlds = expected();
    for arrived in [false, true] {
        for cut_at in 0.. {
            let disk = CutDisk::new();
            let mut bench = Bench::over(formatted(disk.clone()));
            disk.writes_left.set(cut_at);
            let (mut opens, mut answered) = (Vec::new(), 0);
            let is_whole = loop {
                match step(&mut bench, &mut opens, answered) {
                    Some(true) => answered += 1,
                    Some(false) => break false,
                    None => break true,
                }
            };
            let mut bench = disk.cut(arrived);
            let found = look(&mut bench);
            let fits = found == worlds[answered] || !is_whole && found == worlds[answered + 1];
            assert!(fits, "cut before write {cut_at}, {answered} steps answered: {found:#?}");
            if is_whole {
                assert!(answered + 1 == worlds.len() && cut_at > 10, "the script is cut everywhere");
                break;
            }
        }
    }
}

#[test]
fn a_file_is_never_there_without_the_open_that_made_it() {
    for cut_at in 0..40 {
        let disk = CutDisk::new();
        let mut bench = Bench::over(formatted(disk.clone()));
        // From here on the superblock says that there may be opens.
        bench.create(persistent("first", 9)).expect("made");
        disk.writes_left.set(cut_at);
        // The file is made before there is space for its allocation; the other create has the journal written
        // meanwhile.
        let allocating = Create { allocation_bytes: Some(100 << 20), ..persistent("one", 1) };
        bench.service.submit(OperationId(500), Operation::Create(Box::new(allocating)), bench.now);
        bench.start(Operation::Create(Box::new(persistent("two", 2))));
        for _ in 0..20 {
            bench.pass(Duration::from_millis(100));
        }
        let mut bench = disk.cut(true);
        let opens = bench.service.list_opens();
        let root = bench.create(root(9)).expect("the root").open;
        let names = bench.names(root, "*");
        for path in ["one", "two"] {
            let is_open = opens.iter().any(|open| String::from_utf16_lossy(&open.path) == path);
            assert_eq!(names.iter().any(|name| name == path), is_open, "{path}, cut before write {cut_at}");
        }
    }
}
