//! Range locks and their waiting requests against a model that examines every lock, and the number of
//! locks they examine themselves.

use super::super::intervals::STEPS;
use super::super::waiting_locks::{WaitingLock, WaitingLocks};
use super::*;
use crate::backend::OperationId;
use proptest::prelude::*;

/// All locks in a list.
#[derive(Default)]
struct Model(Vec<(OpenId, ByteRange, bool)>);

fn overlap(one: ByteRange, other: ByteRange) -> bool {
    let end = |range: ByteRange| u128::from(range.offset) + u128::from(range.len_bytes);
    u128::from(one.offset) < end(other) && u128::from(other.offset) < end(one)
}

impl Model {
    fn lock(&mut self, owner: OpenId, elements: &[LockElement]) -> bool {
        let before = self.0.len();
        for element in elements {
            let exclusive = element.exclusive == Some(true);
            let conflicts = self.0.iter().any(|(holder, range, held_exclusive)| {
                let both_shared = !held_exclusive && !exclusive;
                let stacked = *held_exclusive && !exclusive && *holder == owner;
                !both_shared && !stacked && overlap(*range, element.range)
            });
            if conflicts {
                self.0.truncate(before);
                return false;
            }
            self.0.push((owner, element.range, exclusive));
        }
        true
    }

    fn unlock(&mut self, owner: OpenId, range: ByteRange) -> bool {
        let find = |exclusive| self.0.iter().position(|lock| *lock == (owner, range, exclusive));
        match find(true).or_else(|| find(false)) {
            Some(at) => {
                self.0.remove(at);
                true
            }
            None => false,
        }
    }

    fn may_do(&self, owner: OpenId, range: ByteRange, write: bool) -> bool {
        range.len_bytes == 0
            || !self.0.iter().any(|(holder, held, exclusive)| {
                let forbids =
                    if write { *holder != owner || !exclusive } else { *exclusive && *holder != owner };
                forbids && overlap(*held, range)
            })
    }
}

#[derive(Debug, Clone)]
enum Step {
    Lock(u64, Vec<(ByteRange, bool)>),
    Unlock(u64, ByteRange),
    Release(u64),
    Check(u64, ByteRange, bool),
}

fn ranges() -> impl Strategy<Value = ByteRange> {
    let offsets = prop_oneof![4 => 0_u64..24, 1 => (0_u64..6).prop_map(|back| u64::MAX - back)];
    (offsets, prop_oneof![4 => 0_u64..8, 1 => Just(u64::MAX)]).prop_map(|(offset, len)| {
        // The largest offset can be locked, but nothing behind it.
        let len_bytes = if offset == 0 { len } else { len.min(u64::MAX - offset + 1) };
        ByteRange { offset, len_bytes }
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let owner = || 0_u64..4;
    prop_oneof![
        4 => (owner(), prop::collection::vec((ranges(), any::<bool>()), 1..4)).prop_map(|(owner, set)| Step::Lock(owner, set)),
        4 => (owner(), ranges()).prop_map(|(owner, range)| Step::Unlock(owner, range)),
        1 => owner().prop_map(Step::Release),
        3 => (owner(), ranges(), any::<bool>()).prop_map(|(owner, range, write)| Step::Check(owner, range, write)),
    ]
}

fn element(range: ByteRange, exclusive: bool) -> LockElement {
    LockElement { range, exclusive: Some(exclusive), fail_immediately: true }
}

proptest! {
    #[test]
    fn locks_are_granted_and_checked_as_if_each_were_looked_at(
        steps in prop::collection::vec(steps(), 1..200),
    ) {
        let (mut locks, mut model) = (RangeLocks::default(), Model::default());
        for step in steps {
            match step {
                Step::Lock(owner, set) => {
                    let set: Vec<_> = set.into_iter().map(|(range, how)| element(range, how)).collect();
                    let owner = OpenId(owner);
                    prop_assert_eq!(locks.lock(owner, &set).is_ok(), model.lock(owner, &set));
                }
                Step::Unlock(owner, range) => {
                    let owner = OpenId(owner);
                    // Held ranges are unlocked more often than others.
                    let held: Vec<_> = model.0.iter().filter(|lock| lock.0 == owner).collect();
                    let range = held.get(range.offset as usize % 8).map_or(range, |lock| lock.1);
                    prop_assert_eq!(locks.unlock(owner, range).is_ok(), model.unlock(owner, range));
                }
                Step::Release(owner) => {
                    let owner = OpenId(owner);
                    locks.release(owner);
                    model.0.retain(|lock| lock.0 != owner);
                }
                Step::Check(owner, range, write) => {
                    let owner = OpenId(owner);
                    prop_assert_eq!(
                        locks.check_io(owner, range, write).is_ok(),
                        model.may_do(owner, range, write)
                    );
                }
            }
            for owner in (0..4).map(OpenId) {
                let held = model.0.iter().filter(|lock| lock.0 == owner).count();
                prop_assert_eq!(locks.count(owner), held);
            }
            prop_assert_eq!(locks.is_empty(), model.0.is_empty());
        }
    }

    #[test]
    fn waiting_requests_are_granted_in_order_as_if_each_were_tried(
        held in prop::collection::vec((0_u64..4, ranges(), any::<bool>()), 1..20),
        asked in prop::collection::vec((0_u64..4, ranges(), any::<bool>()), 1..40),
    ) {
        let (mut locks, mut waiting) = (RangeLocks::default(), WaitingLocks::default());
        for (owner, range, exclusive) in held {
            let _ = locks.lock(OpenId(owner), &[element(range, exclusive)]);
        }
        let mut model = Model::default();
        for (lock, times) in &locks.held {
            let len_bytes = (lock.interval.end - u128::from(lock.interval.start)) as u64;
            let range = ByteRange { offset: lock.interval.start, len_bytes };
            model.0.extend(std::iter::repeat_n((lock.owner, range, !lock.shared), *times));
        }
        let mut queue = Vec::new();
        for (number, (owner, range, exclusive)) in asked.into_iter().enumerate() {
            let (open, element) = (OpenId(owner), element(range, exclusive));
            if locks.lock(open, &[element]).is_ok() {
                prop_assert!(model.lock(open, &[element]));
            } else {
                let operation = OperationId(number as u64);
                waiting.push(WaitingLock { operation, open, element, sequence: None });
                queue.push((operation, open, element));
            }
        }
        for owner in (0..4).map(OpenId) {
            let freed: Vec<Interval> = locks.release(owner).into_iter().map(|(interval, _)| interval).collect();
            let granted = waiting.retry(&freed, |lock| locks.lock(lock.open, &[lock.element]).is_ok());
            model.0.retain(|lock| lock.0 != owner);
            let mut expected = Vec::new();
            queue.retain(|(operation, open, element)| {
                let succeeds = model.lock(*open, &[*element]);
                if succeeds {
                    expected.push(*operation);
                }
                !succeeds
            });
            let granted: Vec<_> = granted.into_iter().map(|lock| lock.operation).collect();
            prop_assert_eq!(granted, expected);
        }
    }
}

/// Steps that `work` takes.
fn counted(work: impl FnOnce()) -> usize {
    let before = STEPS.with(std::cell::Cell::get);
    work();
    STEPS.with(std::cell::Cell::get) - before
}

const OWNER: OpenId = OpenId(1);
const OTHER: OpenId = OpenId(2);

fn byte(offset: u64) -> ByteRange {
    ByteRange { offset, len_bytes: 1 }
}

#[test]
fn forty_requests_of_1638_locks_and_the_reads_beside_them_take_logarithmic_steps() {
    let mut locks = RangeLocks::default();
    let requests: Vec<Vec<_>> = (0..40)
        .map(|request| (0..1638).map(|at| element(byte(2 * (request * 1638 + at)), at % 2 == 0)).collect())
        .collect();
    let taken = counted(|| requests.iter().for_each(|set| locks.lock(OWNER, set).expect("free")));
    assert!(taken < 40 * 1638 * 100, "{taken} steps to take 65,520 locks");
    let checked = counted(|| {
        locks.check_io(OTHER, byte(65_521), true).expect("between two locks");
        locks.check_io(OTHER, byte(65_520), true).expect_err("locked");
        locks.check_io(OTHER, ByteRange { offset: 0, len_bytes: 1 << 20 }, true).expect_err("locked");
    });
    assert!(checked < 200, "{checked} steps to check three ranges");
    let released = counted(|| drop(locks.release(OWNER)));
    assert!(released < 40 * 1638 * 100, "{released} steps to give up 65,520 locks");
    assert!(locks.is_empty());
    assert_eq!(counted(|| locks.check_io(OTHER, byte(0), true).expect("free")), 0, "none are looked at");
}

#[test]
fn shared_locks_on_one_range_are_not_looked_at_one_by_one() {
    let mut locks = RangeLocks::default();
    let whole = ByteRange { offset: 0, len_bytes: u64::MAX };
    for owner in 0..10_000 {
        locks.lock(OpenId(owner), &[element(whole, false), element(byte(owner), false)]).expect("shared");
    }
    let steps = counted(|| {
        locks.lock(OTHER, &[element(byte(5), false)]).expect("shared");
        locks.lock(OTHER, &[element(byte(5), true)]).expect_err("others share it");
        locks.check_io(OTHER, byte(5), false).expect("readable");
        locks.check_io(OTHER, byte(5), true).expect_err("not writable");
        locks.unlock(OTHER, byte(5)).expect("held");
    });
    assert!(steps < 500, "{steps} steps");
}

#[test]
fn ten_thousand_requests_that_wait_for_one_byte_are_not_all_tried_when_it_is_free() {
    let (mut locks, mut waiting) = (RangeLocks::default(), WaitingLocks::default());
    locks.lock(OWNER, &[element(byte(0), true)]).expect("free");
    for number in 0..10_000 {
        let (operation, open) = (OperationId(number), OpenId(number));
        waiting.push(WaitingLock { operation, open, element: element(byte(0), true), sequence: None });
    }
    locks.unlock(OWNER, byte(0)).expect("held");
    let mut tries = 0;
    let granted = waiting.retry(&[byte(0).into()], |lock| {
        tries += 1;
        locks.lock(lock.open, &[lock.element]).is_ok()
    });
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].operation, OperationId(0), "the oldest");
    assert_eq!(tries, 2, "the one that succeeds, and one more");
    assert_eq!(waiting.retry(&[byte(1).into()], |_| panic!("none waits for it")).len(), 0);
}
