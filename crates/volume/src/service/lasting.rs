//! Opens that outlast their connections, of all volumes of the server: those that outlive it, and durable ones while their clients are away.
//!
//! The opens of connected clients are bounded by their sessions. Opens that outlast their connections
//! are bounded here, by one rule for all volumes together, so that a user does not get a share in each
//! of them: **a user may keep more only while that is no more than the number still free.** One user
//! alone keeps at most half of all there may be. Beyond, a new open is durable at best, and of a user's
//! disconnected opens the one that was away longest is closed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use types::Sid;

/// Places of the opens of all volumes that outlast their connections, by user. Clones are the same count.
#[derive(Debug, Clone)]
pub struct LastingOpens(Rc<RefCell<Places>>);

#[derive(Debug)]
struct Places {
    max: usize,
    count: usize,
    users: HashMap<Sid, usize>,
}

impl LastingOpens {
    /// Makes a count of at most `max` opens, those with long paths counted as several.
    pub fn new(max: usize) -> Self {
        Self(Rc::new(RefCell::new(Places { max, count: 0, users: HashMap::new() })))
    }

    /// Counts the places of a user's.
    fn of(&self, user: &Sid) -> usize {
        self.0.borrow().users.get(user).copied().unwrap_or(0)
    }

    fn free(&self) -> usize {
        let places = self.0.borrow();
        places.max.saturating_sub(places.count)
    }

    fn change(&self, user: &Sid, more: usize, less: usize) {
        let places = &mut *self.0.borrow_mut();
        places.count = places.count + more - less;
        let own = places.users.entry(user.clone()).or_default();
        *own = *own + more - less;
        if *own == 0 {
            places.users.remove(user);
        }
    }
}

/// One volume's part of them.
///
/// Invariant: `own` is this volume's part of `all`; it is released when another server takes the
/// volume.
#[derive(Debug)]
pub struct LastingHere {
    all: LastingOpens,
    own: HashMap<Sid, usize>,
}

impl LastingHere {
    pub fn new(all: LastingOpens) -> Self {
        Self { all, own: HashMap::new() }
    }

    /// Whether a user may keep one more open.
    pub fn may_keep(&self, user: &Sid) -> bool {
        self.all.of(user) < self.all.free()
    }

    /// Whether a user keeps more than is free.
    pub fn keeps_too_much(&self, user: &Sid) -> bool {
        self.all.of(user) > self.all.free()
    }

    pub fn add(&mut self, user: &Sid, places: usize) {
        self.all.change(user, places, 0);
        *self.own.entry(user.clone()).or_default() += places;
    }

    pub fn remove(&mut self, user: &Sid, places: usize) {
        self.all.change(user, 0, places);
        if let Some(own) = self.own.get_mut(user) {
            *own -= places;
            if *own == 0 {
                self.own.remove(user);
            }
        }
    }
}

impl Drop for LastingHere {
    fn drop(&mut self) {
        for (user, places) in self.own.drain() {
            self.all.change(&user, 0, places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_keeps_half_over_all_volumes_and_a_volume_that_goes_gives_its_part_back() {
        let all = LastingOpens::new(100);
        let mut volumes = [LastingHere::new(all.clone()), LastingHere::new(all.clone())];
        let [first, second] = [1, 2].map(|rid| Sid::new(5, &[21, 1, 2, 3, rid]).expect("a SID"));
        for number in 0.. {
            if !volumes[number % 2].may_keep(&first) {
                break;
            }
            volumes[number % 2].add(&first, 1);
        }
        assert_eq!(all.of(&first), 50);
        assert!(volumes[0].may_keep(&second) && !volumes[0].keeps_too_much(&first));
        volumes[1].add(&second, 1);
        assert!(volumes[0].keeps_too_much(&first), "there is less than it keeps");
        let [kept, gone] = volumes;
        drop(gone);
        assert_eq!((all.of(&first), all.of(&second)), (25, 0));
        drop(kept);
        assert_eq!(all.0.borrow().count, 0);
    }
}
