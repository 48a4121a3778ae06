//! Slots named by keys that are never reused: connections, opens, requests in work.
//!
//! Promises: finding a slot costs an index and a comparison; the key of an emptied slot finds nothing.

/// Index in the low half, generation (never zero) in the high half; so a key is never zero nor all ones.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    used: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), used: 0 }
    }
}

impl<T> Arena<T> {
    #[inline]
    pub fn insert(&mut self, value: T) -> u64 {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot { generation: 1, value: None });
                (self.slots.len() - 1) as u32
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        self.used += 1;
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    #[inline]
    fn slot(&self, key: u64) -> Option<&Slot<T>> {
        self.slots.get(key as u32 as usize).filter(|slot| u64::from(slot.generation) == key >> 32)
    }

    #[inline]
    pub fn get(&self, key: u64) -> Option<&T> {
        self.slot(key)?.value.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(key as u32 as usize)?;
        if u64::from(slot.generation) == key >> 32 { slot.value.as_mut() } else { None }
    }

    #[inline]
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let index = key as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if u64::from(slot.generation) != key >> 32 {
            return None;
        }
        // Moved once: the value may be large.
        let value = slot.value.take();
        value.as_ref()?;
        self.used -= 1;
        // A generation that would wrap retires its slot: a key never names two values.
        if slot.generation < u32::MAX - 1 {
            slot.generation += 1;
            self.free.push(index);
        }
        value
    }

    pub fn len(&self) -> usize {
        self.used
    }

    /// The key of the slot at an index, if it holds something.
    pub fn key_at(&self, index: usize) -> Option<u64> {
        let slot = self.slots.get(index).filter(|slot| slot.value.is_some())?;
        Some(u64::from(slot.generation) << 32 | index as u64)
    }

    /// Returns the number of slots, empty ones included.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let value = slot.value.as_ref()?;
            Some((u64::from(slot.generation) << 32 | index as u64, value))
        })
    }
}
