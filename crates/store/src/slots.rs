//! Slots for operations in flight, named by tokens that are never valid twice.

const INDEX_BITS: u32 = 20;
const GENERATION_BITS: u32 = 32;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

/// An index, the generation of its use, and the instance of the store: a late answer to an
/// abandoned store cannot pass for an answer to its successor on the same disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SlotId(u64);

impl SlotId {
    pub(crate) fn token(self) -> u64 {
        self.0
    }
    pub(crate) fn from_token(token: u64) -> Self {
        Self(token)
    }
    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }
    fn generation(self) -> u64 {
        self.0 >> INDEX_BITS & GENERATION_MASK
    }
    fn instance(self) -> u64 {
        self.0 >> (INDEX_BITS + GENERATION_BITS)
    }
}

/// Values by [`SlotId`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    instance: u64,
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// Makes slots for a store of this `incarnation`; never zero, which [`crate::io`] uses.
    pub(crate) fn new(incarnation: u64) -> Self {
        Self { instance: incarnation % 0xFFF + 1, places: Vec::new(), free: Vec::new() }
    }

    fn id(&self, index: usize, generation: u32) -> SlotId {
        let instance = self.instance << (INDEX_BITS + GENERATION_BITS);
        SlotId(instance | u64::from(generation) << INDEX_BITS | index as u64)
    }

    /// Whether the id's slot is still in the same use.
    fn is_current(&self, id: SlotId) -> bool {
        id.instance() == self.instance
            && self
                .places
                .get(id.index())
                .is_some_and(|(generation, _)| u64::from(*generation) == id.generation())
    }

    pub(crate) fn insert(&mut self, value: T) -> SlotId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, place) = &mut self.places[index as usize];
        *generation = generation.wrapping_add(1);
        *place = Some(value);
        let generation = *generation;
        self.id(index as usize, generation)
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        if self.is_current(id) { self.places.get_mut(id.index())?.1.as_mut() } else { None }
    }

    pub(crate) fn get(&self, id: SlotId) -> Option<&T> {
        if self.is_current(id) { self.places.get(id.index())?.1.as_ref() } else { None }
    }

    pub(crate) fn remove(&mut self, id: SlotId) -> Option<T> {
        if !self.is_current(id) {
            return None;
        }
        let value = self.places.get_mut(id.index())?.1.take()?;
        self.free.push(id.index() as u32);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn ids(&self) -> Vec<SlotId> {
        let filled = self.places.iter().enumerate().filter(|(_, (_, place))| place.is_some());
        filled.map(|(index, (generation, _))| self.id(index, *generation)).collect()
    }
}
