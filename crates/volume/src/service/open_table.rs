//! Opens by identifier.
//!
//! An identifier is the number of the volume's opening, then a generation, then a slot. So the slot is
//! known without a search, and no identifier is reused in the life of the volume. Opens that outlived a
//! start keep their identifiers: these are looked up.

use super::open::Open;
use crate::backend::OpenId;
use std::collections::HashMap;

/// Bits of the slot's number, of how often it was used, and of the volume's opening.
const SLOT_BITS: u32 = 26;
const GENERATION_BITS: u32 = 18;
const INCARNATION_BITS: u32 = 64 - SLOT_BITS - GENERATION_BITS;

const GENERATIONS_MAX: u64 = 1 << GENERATION_BITS;

#[derive(Debug)]
struct Slot {
    /// Of the open in it, or of the next one.
    id: OpenId,
    /// How often it was used in this opening of the volume.
    generation: u64,
    open: Option<Box<Open>>,
}

/// The opens.
///
/// Invariant: no identifier is reused. An open whose identifier does not give its slot is listed in
/// `kept`.
#[derive(Debug, Default)]
pub struct OpenTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    len: usize,
    incarnation: u64,
    /// Slots of opens that outlived a start.
    kept: HashMap<OpenId, u32>,
}

impl OpenTable {
    /// Sets the number of the volume's opening, before anything is opened.
    pub fn set_incarnation(&mut self, incarnation: u64) {
        debug_assert!(self.slots.is_empty(), "nothing is open in a volume that is being opened");
        self.incarnation = incarnation % (1 << INCARNATION_BITS);
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn id(&self, generation: u64, slot: usize) -> OpenId {
        let number = generation << SLOT_BITS | slot as u64;
        OpenId(self.incarnation << (64 - INCARNATION_BITS) | number)
    }

    fn slot_of(&self, id: OpenId) -> Option<usize> {
        let slot = (id.0 & ((1 << SLOT_BITS) - 1)) as usize;
        match self.slots.get(slot) {
            Some(found) if found.id == id => Some(slot),
            _ if self.kept.is_empty() => None,
            _ => self.kept.get(&id).map(|slot| *slot as usize),
        }
    }

    pub fn insert(&mut self, open: Open) -> OpenId {
        let slot = self.free_slot();
        self.put(slot, open)
    }

    /// Inserts an open that outlived a start. False: its identifier is taken.
    pub fn restore(&mut self, id: OpenId, open: Open) -> bool {
        if self.slot_of(id).is_some() || id.0 >> (64 - INCARNATION_BITS) == self.incarnation {
            return false;
        }
        let slot = self.free_slot();
        self.slots[slot].id = id;
        self.kept.insert(id, slot as u32);
        self.put(slot, open);
        true
    }

    fn free_slot(&mut self) -> usize {
        if let Some(slot) = self.free.pop() {
            return slot as usize;
        }
        let slot = self.slots.len();
        assert!(slot < 1 << SLOT_BITS, "the number of opens is bounded");
        self.slots.push(Slot { id: self.id(0, slot), generation: 0, open: None });
        slot
    }

    fn put(&mut self, slot: usize, open: Open) -> OpenId {
        let slot = &mut self.slots[slot];
        debug_assert!(slot.open.is_none(), "a free slot holds no open");
        slot.open = Some(Box::new(open));
        self.len += 1;
        slot.id
    }

    pub fn get(&self, id: OpenId) -> Option<&Open> {
        self.slots[self.slot_of(id)?].open.as_deref()
    }

    pub fn get_mut(&mut self, id: OpenId) -> Option<&mut Open> {
        let slot = self.slot_of(id)?;
        self.slots[slot].open.as_deref_mut()
    }

    pub fn remove(&mut self, id: OpenId) -> Option<Box<Open>> {
        let at = self.slot_of(id)?;
        let open = self.slots[at].open.take()?;
        self.len -= 1;
        if !self.kept.is_empty() {
            self.kept.remove(&id);
        }
        let generation = self.slots[at].generation + 1;
        // A slot whose generations are used up stays empty, so that no identifier comes twice.
        if generation < GENERATIONS_MAX {
            self.slots[at].generation = generation;
            self.slots[at].id = self.id(generation, at);
            self.free.push(at as u32);
        }
        Some(open)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpenId, &mut Open)> {
        self.slots.iter_mut().filter_map(|slot| Some((slot.id, slot.open.as_deref_mut()?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (OpenId, &Open)> {
        self.slots.iter().filter_map(|slot| Some((slot.id, slot.open.as_deref()?)))
    }
}
