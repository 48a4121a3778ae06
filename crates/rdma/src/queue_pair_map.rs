//! A value for each connection, found by an index and a comparison: a name holds its place.

use crate::verbs::QueuePairId;

/// Values by connection. A name that was given again to the place of an ended connection takes that place over.
#[derive(Debug)]
pub struct QueuePairMap<T> {
    /// Connections of the software, and of devices.
    tables: [Vec<Option<(QueuePairId, T)>>; 2],
}

impl<T> Default for QueuePairMap<T> {
    fn default() -> Self {
        Self { tables: [Vec::new(), Vec::new()] }
    }
}

impl<T> QueuePairMap<T> {
    /// Returns the connection's value; `None` if it has none or ended.
    #[inline]
    pub fn get(&self, name: QueuePairId) -> Option<&T> {
        let (table, slot) = place(name);
        match self.tables[table].get(slot) {
            Some(Some((here, value))) if *here == name => Some(value),
            _ => None,
        }
    }

    /// Returns the connection's value for changes; `None` if it has none or ended.
    #[inline]
    pub fn get_mut(&mut self, name: QueuePairId) -> Option<&mut T> {
        let (table, slot) = place(name);
        match self.tables[table].get_mut(slot) {
            Some(Some((here, value))) if *here == name => Some(value),
            _ => None,
        }
    }

    /// Gives the connection a value, in place of an earlier value of its place.
    pub fn insert(&mut self, name: QueuePairId, value: T) {
        let (table, slot) = place(name);
        let table = &mut self.tables[table];
        if table.len() <= slot {
            table.resize_with(slot + 1, || None);
        }
        table[slot] = Some((name, value));
    }

    /// Removes the connection's value and returns it.
    pub fn remove(&mut self, name: QueuePairId) -> Option<T> {
        let (table, slot) = place(name);
        let (_, value) = self.tables[table].get_mut(slot)?.take_if(|(here, _)| *here == name)?;
        Some(value)
    }

    /// Lists all values: those of the software first, each provider's in order of place.
    pub fn iter(&self) -> impl Iterator<Item = (QueuePairId, &T)> {
        self.tables.iter().flatten().flatten().map(|(name, value)| (*name, value))
    }
}

/// Which table, and where in it.
#[inline]
fn place(name: QueuePairId) -> (usize, usize) {
    (usize::from(name.is_by_device()), name.slot())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_leads_to_its_own_value_until_it_is_taken_out() {
        let (first, other, device) =
            (QueuePairId(1 << 32 | 5), QueuePairId(1 << 32 | 2), QueuePairId(1 << 62 | 1 << 32 | 5));
        let mut map = QueuePairMap::default();
        for (value, name) in [first, other, device].into_iter().enumerate() {
            assert_eq!(map.get(name), None);
            map.insert(name, value);
        }
        assert_eq!((map.get(first), map.get(other), map.get(device)), (Some(&0), Some(&1), Some(&2)));
        assert_eq!(map.iter().count(), 3);
        assert_eq!([map.remove(first), map.remove(first)], [Some(0), None]);
        assert_eq!(map.iter().count(), 2);
        // The same place, used again.
        let again = QueuePairId(2 << 32 | 5);
        map.insert(again, 7);
        assert_eq!([map.get(first), map.get(again)], [None, Some(&7)]);
        assert_eq!((map.remove(first), map.get_mut(again)), (None, Some(&mut 7)));
        assert_eq!(map.iter().map(|(name, _)| name).collect::<Vec<_>>(), [other, again, device]);
    }

    #[test]
    fn a_place_that_is_taken_over_is_counted_once() {
        let mut map = QueuePairMap::default();
        map.insert(QueuePairId(1 << 32), 'a');
        map.insert(QueuePairId(2 << 32), 'b');
        assert_eq!(
            (map.iter().count(), map.get(QueuePairId(1 << 32)), map.get(QueuePairId(2 << 32))),
            (1, None, Some(&'b'))
        );
    }
}
