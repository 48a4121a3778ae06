//! Registered memory that messages pass through: for receives, and for copies of payload too small to
//! be registered by itself.
//!
//! Owns slabs, registered once and cut into slots of equal size. Promises: slots do not overlap, and one is never given twice.

use super::layout::ibv_sge;
use super::resources::{MemoryRegion, ProtectionDomain};
use std::io;
use std::rc::Rc;
use sys::{BufMut, Payload};

/// The smallest slot.
const SLOT_BYTES_MIN: usize = 1 << 10;
/// The largest is 8 MiB.
const CLASSES: usize = 14;
/// Bytes that are registered at a time, unless one slot is larger.
const SLAB_BYTES: usize = 256 << 10;

/// The slots of one connection.
pub(super) struct Staging {
    domain: Rc<ProtectionDomain>,
    free: [Vec<Slot>; CLASSES],
}

/// Registered bytes with one user.
pub(super) struct Slot {
    slab: Rc<MemoryRegion>,
    offset: usize,
    class: usize,
}

impl Staging {
    pub fn new(domain: Rc<ProtectionDomain>) -> Self {
        Self { domain, free: Default::default() }
    }

    /// A slot of at least `len_bytes`.
    ///
    /// # Errors
    /// If it would be larger than the largest, or the device registers no more.
    pub fn take(&mut self, len_bytes: usize) -> io::Result<Slot> {
        let class = class_of(len_bytes).ok_or(io::ErrorKind::InvalidInput)?;
        if let Some(slot) = self.free[class].pop() {
            return Ok(slot);
        }
        let slot_bytes = SLOT_BYTES_MIN << class;
        let slab_bytes = slot_bytes.max(SLAB_BYTES);
        let slab = Rc::new(MemoryRegion::owned(&self.domain, BufMut::for_overwrite(slab_bytes), 0)?);
        for offset in (slot_bytes..slab_bytes).step_by(slot_bytes) {
            self.free[class].push(Slot { slab: slab.clone(), offset, class });
        }
        Ok(Slot { slab, offset: 0, class })
    }

    pub fn give_back(&mut self, slot: Slot) {
        self.free[slot.class].push(slot);
    }
}

fn class_of(len_bytes: usize) -> Option<usize> {
    let slots = len_bytes.div_ceil(SLOT_BYTES_MIN).max(1).checked_next_power_of_two()?;
    let class = slots.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

impl Slot {
    pub fn len(&self) -> usize {
        SLOT_BYTES_MIN << self.class
    }

    /// The first `len_bytes`, for a work request.
    pub fn element(&self, len_bytes: usize) -> Option<ibv_sge> {
        if len_bytes > self.len() {
            return None;
        }
        self.slab.element(self.offset, len_bytes)
    }

    /// # Safety
    /// No work with this slot is with the device.
    pub unsafe fn fill(&mut self, payload: &Payload) {
        assert!(payload.len() <= self.len(), "a message larger than its slot");
        // SAFETY: the bytes are this slot's alone, and not with the device (the caller's promise).
        unsafe { self.slab.copy_in(self.offset, payload) };
    }

    /// A copy of the first `len_bytes`.
    ///
    /// # Safety
    /// As [`Self::fill`].
    pub unsafe fn copy(&self, len_bytes: usize) -> BufMut {
        // SAFETY: as in `fill`.
        unsafe { self.slab.copy_out(self.offset, len_bytes.min(self.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::class_of;

    #[test]
    fn a_slot_is_the_smallest_power_of_two_that_holds_the_message() {
        assert_eq!(class_of(0), Some(0));
        assert_eq!(class_of(1024), Some(0));
        assert_eq!(class_of(1025), Some(1));
        assert_eq!(class_of(1364), Some(1));
        assert_eq!(class_of(8 << 20), Some(13));
        assert_eq!(class_of((8 << 20) + 1), None);
        assert_eq!(class_of(usize::MAX), None);
    }
}
