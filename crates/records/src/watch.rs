//! Changed keys: how a listener hears of commits without polling.
//!
//! Owns the [`Watch`]es of a state and the [`Board`] that tells them of changes. Promises: a change
//! that is committed after a watch was made is in its next result, or the watch says that it starts
//! over, and the listener lists anew. Unread changes are bounded: a key is kept once, and beyond
//! [`KEYS_MAX`] keys the watch starts over. Never carries values: between the change and the reading
//! there may be another change, of which the watch then tells too.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Changed keys that wait for one listener; more than all records of a large cluster.
const KEYS_MAX: usize = 16_384;

type Wake = Box<dyn Fn() + Send + Sync>;

/// The changes since a watch was last asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes may be missing: list everything that is watched. So it is at first, after a connection was lost for longer than the
    /// state keeps its history, and after the state moved to another engine.
    pub started_over: bool,
    /// Each changed (or deleted) key and the revision of its last change.
    pub keys: BTreeMap<String, u64>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        !self.started_over && self.keys.is_empty()
    }
}

/// A listener's end. Dropping it ends the listening.
pub struct Watch {
    slot: Arc<Slot>,
}

impl Watch {
    /// Takes the changes that have come; `None` if there are none.
    pub fn take(&self) -> Option<Changes> {
        taken(&mut self.slot.pending())
    }

    /// Waits for changes for at most `patience`. Not for the data plane's thread.
    pub fn wait(&self, patience: Duration) -> Option<Changes> {
        let until = Instant::now() + patience;
        let mut pending = self.slot.pending();
        loop {
            if let Some(changes) = taken(&mut pending) {
                return Some(changes);
            }
            let left = until.checked_duration_since(Instant::now())?;
            pending = self.slot.come.wait_timeout(pending, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn taken(pending: &mut Changes) -> Option<Changes> {
    (!pending.is_empty()).then(|| std::mem::take(pending))
}

struct Slot {
    prefix: String,
    pending: Mutex<Changes>,
    come: Condvar,
    wake: Wake,
}

impl Slot {
    fn pending(&self) -> MutexGuard<'_, Changes> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `change` note something; the listener is woken if nothing waited for it before.
    fn note(&self, change: impl FnOnce(&mut Changes)) {
        let is_first = {
            let mut pending = self.pending();
            let was_empty = pending.is_empty();
            change(&mut pending);
            was_empty && !pending.is_empty()
        };
        if is_first {
            self.come.notify_all();
            (self.wake)();
        }
    }
}

/// All listeners of one state.
#[derive(Default)]
pub struct Board {
    slots: Mutex<Vec<Weak<Slot>>>,
}

impl Board {
    /// A listener to all keys that begin with `prefix`. `wake` is called on the committing thread when
    /// changes wait that were not there before; it must not block.
    pub fn listen(&self, prefix: &str, wake: Wake) -> Watch {
        let pending = Mutex::new(Changes { started_over: true, ..Changes::default() });
        let slot = Arc::new(Slot { prefix: prefix.to_owned(), pending, come: Condvar::new(), wake });
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        Watch { slot }
    }

    /// Tells of keys that a commit changed.
    pub fn changed<'a>(&self, keys: impl Iterator<Item = &'a str> + Clone, revision: u64) {
        for slot in self.listeners() {
            let watched = keys.clone().filter(|key| key.starts_with(slot.prefix.as_str()));
            slot.note(|pending| {
                for key in watched {
                    let last = pending.keys.entry(key.to_owned()).or_default();
                    *last = revision.max(*last);
                }
                if pending.keys.len() > KEYS_MAX {
                    *pending = Changes { started_over: true, ..Changes::default() };
                }
            });
        }
    }

    /// Changes may have been missed: everybody lists anew.
    pub fn start_over(&self) {
        for slot in self.listeners() {
            slot.note(|pending| *pending = Changes { started_over: true, ..Changes::default() });
        }
    }

    /// A copy, so that `wake` runs without the lock.
    fn listeners(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryState, State, Transaction, Typed};
    use std::sync::atomic::{AtomicU32, Ordering};

    fn keys(changes: Option<Changes>) -> Vec<(String, u64)> {
        let changes = changes.expect("changes");
        assert!(!changes.started_over);
        changes.keys.into_iter().collect()
    }

    #[test]
    fn a_watch_begins_with_a_listing_and_then_tells_each_change_below_its_prefix_once() {
        let state = State::from(MemoryState::new());
        state.commit(Transaction::default().put("user/a", vec![1])).unwrap();
        let woken = Arc::new(AtomicU32::new(0));
        let count = woken.clone();
        let watch = state.watch_with("user/", move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert!(watch.take().unwrap().started_over);
        assert_eq!(watch.take(), None);
        state.commit(Transaction::default().put("user/a", vec![2]).put("share/a", vec![2])).unwrap();
        let last = state.commit(Transaction::default().delete("user/a").put("user/b", vec![3])).unwrap();
        assert!(state.commit(Transaction::default().when("user/b", 1).delete("user/b")).is_err());
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert_eq!(keys(watch.take()), [("user/a".to_owned(), last), ("user/b".to_owned(), last)]);
        assert_eq!(watch.take(), None);
    }

    #[test]
    fn a_listener_that_does_not_take_its_changes_costs_a_bounded_number_of_keys_and_starts_over() {
        let state = State::from(MemoryState::new());
        let watch = state.watch("");
        watch.take();
        let mut many = Transaction::default();
        for number in 0..=KEYS_MAX {
            many = many.put(format!("key/{number}"), Vec::new());
        }
        state.commit(many).unwrap();
        let changes = watch.take().unwrap();
        assert!(changes.started_over && changes.keys.is_empty());
        state.commit(Transaction::default().put("after", Vec::new())).unwrap();
        assert_eq!(keys(watch.take()).len(), 1);
    }

    #[test]
    fn a_waiting_listener_hears_of_a_commit_of_another_thread() {
        let state = State::from(MemoryState::new());
        let watch = state.watch("a/");
        watch.take();
        assert_eq!(watch.wait(Duration::from_millis(1)), None);
        let other = state.clone();
        let thread = std::thread::spawn(move || other.commit(Transaction::default().put("a/x", vec![1])));
        let changes = watch.wait(Duration::from_secs(60));
        assert_eq!(keys(changes), [("a/x".to_owned(), thread.join().unwrap().unwrap())]);
    }
}
