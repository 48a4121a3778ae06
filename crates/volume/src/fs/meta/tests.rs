//! The store against a plain map, and the cost of lookups after many deletions.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use proptest::prelude::*;
use sys::Buf;
use types::Lba;

use super::super::layout::Root;
use super::super::types::FsError;
use super::merge::{Merge, Workshop};
use super::page::Page;
use super::{Changes, Key, Store, Transaction, Tree, Value};

const VOLUME: [u8; 16] = [7; 16];

/// A store over a disk, and a map with the expected contents.
struct Bench {
    store: Store,
    disk: HashMap<Lba, Buf>,
    root: Option<Root>,
    sealed: bool,
    next_page: u64,
    model: BTreeMap<u16, u16>,
}

fn key(number: u16) -> Key {
    Key::from_slice(&number.to_be_bytes())
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes.try_into().expect("two bytes"))
}

impl Bench {
    fn new() -> Self {
        Self {
            store: Store::new(Tree::new(None, 0), Changes::new()),
            disk: HashMap::new(),
            root: None,
            sealed: false,
            next_page: 100,
            model: BTreeMap::new(),
        }
    }

    fn apply(&mut self, changes: impl IntoIterator<Item = (u16, Option<u16>)>) {
        let mut layer = Changes::new();
        for (number, value) in changes {
            layer.insert(key(number), value.map(|value| value.to_be_bytes().into()));
            match value {
                Some(value) => self.model.insert(number, value),
                None => self.model.remove(&number),
            };
        }
        self.store.apply(layer);
    }

    fn seal(&mut self) {
        if !self.sealed {
            self.store.seal(Changes::new());
            self.sealed = true;
        }
    }

    fn merge(&mut self) {
        self.seal();
        let mut merge = Merge::new(VOLUME, 1, self.root);
        self.root = loop {
            let (next_page, mut pages) = (&mut self.next_page, Vec::new());
            let (changes, tree) = self.store.sealed();
            let step = merge.step(&mut Workshop {
                tree,
                changes,
                take_page: &mut || {
                    *next_page += 1;
                    Some(Lba(*next_page))
                },
                pages: &mut pages,
            });
            self.disk.extend(pages);
            match step {
                Ok(Some(root)) => break root,
                Ok(None) => {}
                Err(FsError::Miss) => self.load(),
                Err(error) => panic!("{error:?}"),
            }
        };
        let root = self.root;
        self.store.tree.replace_root(root, &merge.replaced);
        self.store.unseal();
        self.sealed = false;
    }

    /// Forgets the pages in memory.
    fn cool(&mut self) {
        self.store.tree = Tree::new(self.root, 0);
    }

    fn load(&mut self) {
        for pointer in self.store.tree.take_wanted() {
            let lba = pointer.lba;
            let page = Page::decode(self.disk[&lba].clone(), &VOLUME, lba).expect("a page");
            self.store.tree.loaded(lba, page);
        }
    }

    fn look(
        &mut self,
        mut look: impl FnMut(&mut Store) -> Result<Option<(Key, Value)>, FsError>,
    ) -> Option<(u16, u16)> {
        loop {
            match look(&mut self.store) {
                Ok(found) => return found.map(|(key, value)| (number(&key), number(&value))),
                Err(FsError::Miss) => self.load(),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn next(&mut self, txn: &Transaction, from: u16, to: u16) -> Option<(u16, u16)> {
        self.look(|store| store.next(txn, &key(from), &key(to)))
    }

    fn previous(&mut self, txn: &Transaction, at: u16, from: u16) -> Option<(u16, u16)> {
        self.look(|store| store.previous(txn, &key(at), &key(from)))
    }
}

#[derive(Debug, Clone)]
enum Step {
    Apply(Vec<(u16, Option<u16>)>),
    Fill(u16, u16),
    DeleteRange(u16, u16),
    Seal,
    Merge,
    Cool,
    /// Lookups by a transaction with its own changes.
    Look(Vec<(u16, Option<u16>)>, Vec<(u16, u16)>),
}

const KEYS: u16 = 300;

fn changes() -> impl Strategy<Value = Vec<(u16, Option<u16>)>> {
    prop::collection::vec((0..KEYS, any::<Option<u16>>()), 0..8)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => changes().prop_map(Step::Apply),
        1 => (0..KEYS, 1..KEYS).prop_map(|(from, len)| Step::Fill(from, len)),
        3 => (0..KEYS, 1..KEYS).prop_map(|(from, len)| Step::DeleteRange(from, len)),
        1 => Just(Step::Seal),
        1 => Just(Step::Merge),
        1 => Just(Step::Cool),
        6 => (changes(), prop::collection::vec((0..KEYS, 0..KEYS), 1..8))
            .prop_map(|(changes, looks)| Step::Look(changes, looks)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn lookups_find_what_a_plain_map_finds(steps in prop::collection::vec(step(), 1..40)) {
        let mut bench = Bench::new();
        for step in steps {
            match step {
                Step::Apply(changes) => bench.apply(changes),
                Step::Fill(from, len) => bench.apply((from..(from + len).min(KEYS)).map(|number| (number, Some(!number)))),
                Step::DeleteRange(from, len) => {
                    bench.apply((from..(from + len).min(KEYS)).map(|number| (number, None)));
                }
                Step::Seal => bench.seal(),
                Step::Merge => bench.merge(),
                Step::Cool => bench.cool(),
                Step::Look(changes, looks) => {
                    let mut txn = Transaction::new();
                    let mut seen = bench.model.clone();
                    for (number, value) in changes {
                        match value {
                            Some(value) => {
                                txn.put(key(number), value.to_be_bytes().to_vec());
                                seen.insert(number, value);
                            }
                            None => {
                                txn.delete(key(number));
                                seen.remove(&number);
                            }
                        }
                    }
                    for (a, b) in looks {
                        let pair = |(key, value): (&u16, &u16)| (*key, *value);
                        let wanted = (a < b).then(|| seen.range(a..b).next().map(pair)).flatten();
                        prop_assert_eq!(bench.next(&txn, a, b), wanted);
                        let wanted = (b <= a).then(|| seen.range(b..=a).next_back().map(pair)).flatten();
                        prop_assert_eq!(bench.previous(&txn, a, b), wanted);
                    }
                }
            }
        }
        // With any set of known gaps, every entry is found from both sides.
        let txn = Transaction::new();
        for at in 0..KEYS {
            let wanted = bench.model.range(at..).next().map(|(key, value)| (*key, *value));
            prop_assert_eq!(bench.next(&txn, at, u16::MAX), wanted);
            let below = (Bound::Unbounded, Bound::Included(at));
            let wanted = bench.model.range(below).next_back().map(|(key, value)| (*key, *value));
            prop_assert_eq!(bench.previous(&txn, at, 0), wanted);
        }
    }
}

/// Rewriting a file of many small extents in large pieces leaves hundreds of deleted keys between two
/// live ones.
#[test]
fn what_was_deleted_is_passed_once() {
    const ALL: u16 = 20_000;
    for in_tree in [false, true] {
        let mut bench = Bench::new();
        bench.apply((0..ALL).map(|number| (number, Some(1))));
        if in_tree {
            bench.merge();
        }
        bench.apply((0..ALL).filter(|number| number % 1_000 != 0).map(|number| (number, None)));
        let txn = Transaction::new();
        let scattered = |index: u16| (u32::from(index) * 7_919 % u32::from(ALL)) as u16;
        for at in (0..ALL).map(scattered) {
            assert_eq!(bench.previous(&txn, at, 0), Some((at - at % 1_000, 1)));
            let above = at.next_multiple_of(1_000);
            assert_eq!(bench.next(&txn, at, u16::MAX), (above < ALL).then_some((above, 1)));
        }
        // Once each to find the gaps; then a lookup passes the key it begins at.
        let passed = std::mem::take(&mut bench.store.passed);
        assert!(passed < 4 * usize::from(ALL), "{passed} passed, in tree: {in_tree}");

        // New entries cut the gaps and go again.
        for at in (0..ALL).map(scattered).filter(|at| at % 1_000 != 0) {
            bench.apply([(at, Some(2))]);
            assert_eq!(bench.previous(&txn, at, 0), Some((at, 2)));
            bench.apply([(at, None)]);
            assert_eq!(bench.previous(&txn, at, 0), Some((at - at % 1_000, 1)));
        }
        let passed = std::mem::take(&mut bench.store.passed);
        assert!(passed < 2 * usize::from(ALL), "{passed} passed, in tree: {in_tree}");
    }
}

/// A search that waits for a page does not repeat the part already passed.
#[test]
fn a_missed_page_loses_no_progress() {
    const ALL: u16 = 60_000;
    let mut bench = Bench::new();
    bench.apply((0..ALL).map(|number| (number, Some(1))));
    bench.merge();
    bench.apply((0..ALL - 1).map(|number| (number, None)));
    bench.cool();
    assert!(bench.disk.len() > 20, "{} pages", bench.disk.len());
    assert_eq!(bench.next(&Transaction::new(), 0, u16::MAX), Some((ALL - 1, 1)));
    assert!(bench.store.passed < usize::from(ALL) + 1_000, "{} passed", bench.store.passed);
}
