//! A map that forgets its oldest entry when it is full.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

pub(crate) struct Bounded<K, V> {
    found: HashMap<K, V>,
    /// The keys in the order of arrival; some may be gone.
    order: VecDeque<K>,
    most: usize,
}

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    /// Makes a map of at most `most` entries, and at least one.
    pub fn new(most: usize) -> Self {
        Self { found: HashMap::new(), order: VecDeque::new(), most: most.max(1) }
    }

    pub fn contains(&self, key: &K) -> bool {
        self.found.contains_key(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if let Some(place) = self.found.get_mut(&key) {
            *place = value;
            return;
        }
        if self.order.len() >= 2 * self.most {
            self.order.retain(|key| self.found.contains_key(key));
        }
        while self.found.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.found.remove(&oldest);
        }
        self.order.push_back(key.clone());
        self.found.insert(key, value);
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.found.remove(key)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.found.retain(|key, _| keep(key));
    }
}

#[cfg(test)]
mod tests {
    use super::Bounded;

    #[test]
    fn the_oldest_go_first_and_neither_entries_nor_their_order_grow() {
        let mut map = Bounded::new(4);
        for key in 0..100 {
            map.insert(key, key);
            map.insert(key, key + 1);
            assert!(map.found.len() <= 4 && map.order.len() <= 8);
            if key % 3 == 0 {
                assert_eq!(map.remove(&key), Some(key + 1));
            }
        }
        assert_eq!((map.remove(&98), map.remove(&5)), (Some(99), None));
        map.retain(|_| false);
        assert!(map.found.is_empty());
    }
}
