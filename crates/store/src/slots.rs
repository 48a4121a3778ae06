//! Places for what is in flight, named by tokens that are never valid twice.

/// An index and the generation of its use.
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
        self.0 as u32 as usize
    }
}

/// Values by [`SlotId`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> SlotId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, place) = &mut self.places[index as usize];
        *generation = generation.wrapping_add(1);
        *place = Some(value);
        SlotId(u64::from(*generation) << 32 | u64::from(index))
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let (generation, place) = self.places.get_mut(id.index())?;
        if u64::from(*generation) == id.0 >> 32 { place.as_mut() } else { None }
    }

    pub(crate) fn get(&self, id: SlotId) -> Option<&T> {
        let (generation, place) = self.places.get(id.index())?;
        if u64::from(*generation) == id.0 >> 32 { place.as_ref() } else { None }
    }

    pub(crate) fn remove(&mut self, id: SlotId) -> Option<T> {
        let (generation, place) = self.places.get_mut(id.index())?;
        if u64::from(*generation) != id.0 >> 32 {
            return None;
        }
        let value = place.take()?;
        self.free.push(id.index() as u32);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn ids(&self) -> Vec<SlotId> {
        let filled = self.places.iter().enumerate().filter(|(_, (_, place))| place.is_some());
        filled.map(|(index, (generation, _))| SlotId(u64::from(*generation) << 32 | index as u64)).collect()
    }
}
