//! Groups of blocks: how many are free, and which.

use super::bitmap::Bitmap;

/// Bitmaps of used and of committed blocks. Every committed block is used.
#[derive(Debug)]
struct Bits {
    /// Committed, reserved, or freed and not reusable yet.
    used: Bitmap,
    committed: Bitmap,
}

/// Reason for refusing a change: it contradicts the group's state. Nobody may continue, since a block
/// would get two owners.
pub type Contradiction = &'static str;

/// A group of blocks, by their number within it.
///
/// `free` and `committed_free` are the numbers of clear bits in `used` and `committed`, also while the bitmap is not in memory: then
/// `deltas` are the committed changes that came before it.
#[derive(Debug)]
pub struct Group {
    blocks: u32,
    /// Blocks that can be reserved.
    pub free: u32,
    pub committed_free: u32,
    bits: Option<Box<Bits>>,
    /// First block, number and whether they were allocated.
    deltas: Vec<(u32, u32, bool)>,
    /// Committed changes since the last checkpoint.
    dirty: bool,
    /// Length that no run of free blocks exceeds.
    pub longest: u32,
}

impl Group {
    /// An empty group.
    pub fn new(blocks: u32) -> Self {
        Self {
            blocks,
            free: blocks,
            committed_free: blocks,
            bits: None,
            deltas: Vec::new(),
            dirty: false,
            longest: blocks,
        }
    }

    pub fn is_loaded(&self) -> bool {
        self.bits.is_some()
    }

    /// Whether nothing in it is committed, reserved or waits to become reusable.
    pub fn is_empty(&self) -> bool {
        self.free == self.blocks && self.committed_free == self.blocks
    }

    /// The committed bitmap, if it is in memory.
    pub fn committed(&self) -> Option<&Bitmap> {
        self.bits.as_ref().map(|bits| &bits.committed)
    }

    /// The bitmap of blocks that cannot be reserved, if it is in memory.
    pub fn used(&self) -> Option<&Bitmap> {
        self.bits.as_ref().map(|bits| &bits.used)
    }

    /// Takes the stored bitmap. `held`: freed blocks that are not reusable yet. `counted`: the count of
    /// free blocks is kept.
    ///
    /// # Errors
    /// Changes since the bitmap was stored, or the count of free blocks, contradict it: the group stays as
    /// it was.
    pub fn load(
        &mut self,
        stored: Option<Bitmap>,
        held: &[(u32, u32)],
        counted: bool,
    ) -> Result<(), Contradiction> {
        let mut committed = stored.unwrap_or_else(|| Bitmap::new(self.blocks));
        for &(from, count, allocated) in &self.deltas {
            if committed.set_range(from, count, allocated) != count {
                return Err("allocation bitmap that changes since contradict");
            }
        }
        if counted && committed.ones() != self.blocks - self.committed_free {
            return Err("allocation bitmap that the count of free blocks contradicts");
        }
        let mut used = committed.clone();
        for &(from, count) in held {
            used.set_range(from, count, true);
        }
        self.deltas = Vec::new();
        self.bits = Some(Box::new(Bits { used, committed }));
        Ok(())
    }

    /// Takes free blocks out of the count, and marks them in use if the bitmap is in memory.
    pub fn take(&mut self, from: u32, count: u32) -> Result<(), Contradiction> {
        let refused = "blocks are taken that were in use";
        self.free = self.free.checked_sub(count).ok_or(refused)?;
        let Some(bits) = &mut self.bits else { return Ok(()) };
        if bits.used.set_range(from, count, true) == count { Ok(()) } else { Err(refused) }
    }

    /// Gives blocks back that are reserved, or were freed.
    pub fn release(&mut self, from: u32, count: u32) -> Result<(), Contradiction> {
        let refused = "blocks are given back that were free or a file has";
        if count > self.blocks - self.free {
            return Err(refused);
        }
        self.free += count;
        self.longest = self.blocks;
        let Some(bits) = &mut self.bits else { return Ok(()) };
        let changed = bits.used.set_range(from, count, false);
        if changed == count && bits.committed.ones_in(from, count) == 0 { Ok(()) } else { Err(refused) }
    }

    /// Commits reserved blocks as allocated, or others as freed: these stay in use until released.
    pub fn commit(
        &mut self,
        from: u32,
        count: u32,
        allocated: bool,
        counted: bool,
    ) -> Result<(), Contradiction> {
        let refused = match allocated {
            true => "blocks are allocated that a file has",
            false => "blocks are freed that were free",
        };
        self.dirty = true;
        if counted {
            let free = self.committed_free;
            let after = if allocated { free.checked_sub(count) } else { free.checked_add(count) };
            self.committed_free = after.filter(|after| *after <= self.blocks).ok_or(refused)?;
        }
        let Some(bits) = &mut self.bits else {
            self.deltas.push((from, count, allocated));
            return Ok(());
        };
        let in_use = bits.used.ones_in(from, count) == count;
        let changed = bits.committed.set_range(from, count, allocated);
        if in_use && changed == count { Ok(()) } else { Err(refused) }
    }

    /// The committed bitmap, if it is in memory and was changed since the last call.
    pub fn take_dirty(&mut self) -> Option<&Bitmap> {
        let bits = self.bits.as_ref()?;
        std::mem::take(&mut self.dirty).then_some(&bits.committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_around_from_free_to_reserved_to_committed_to_freed() {
        let mut group = Group::new(256);
        group.load(None, &[], true).unwrap();
        group.take(10, 20).unwrap();
        group.commit(10, 20, true, true).unwrap();
        assert_eq!((group.free, group.committed_free), (236, 236));
        group.commit(10, 20, false, true).unwrap();
        assert_eq!((group.free, group.committed_free), (236, 256));
        group.release(10, 20).unwrap();
        assert!(group.is_empty());
    }

    #[test]
    fn what_would_give_a_block_two_owners_is_refused() {
        let loaded = || {
            let mut group = Group::new(256);
            group.load(None, &[], true).unwrap();
            group.take(0, 64).unwrap();
            group.commit(0, 32, true, true).unwrap();
            group
        };
        assert!(loaded().take(63, 2).is_err(), "taken twice");
        assert!(loaded().commit(31, 2, true, true).is_err(), "committed twice");
        assert!(loaded().commit(64, 1, true, true).is_err(), "committed without having been reserved");
        assert!(loaded().commit(31, 2, false, true).is_err(), "freed without having been committed");
        assert!(loaded().release(64, 1).is_err(), "given back twice");
        assert!(loaded().release(31, 2).is_err(), "given back though a file has it");
    }

    #[test]
    fn a_bitmap_that_contradicts_what_happened_since_is_not_taken() {
        let mut group = Group::new(256);
        group.commit(0, 8, true, true).unwrap();
        let mut stored = Bitmap::new(256);
        stored.set_range(4, 1, true);
        assert!(group.load(Some(stored.clone()), &[], true).is_err());
        assert!(!group.is_loaded());
        group.load(None, &[], true).unwrap();
        let mut empty = Group::new(256);
        assert!(
            empty.load(Some(stored.clone()), &[], true).is_err(),
            "the count says that nothing is committed"
        );
        empty.load(Some(stored), &[], false).unwrap();
    }
}
