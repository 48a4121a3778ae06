//! Registered memory: regions that a peer may read and write, by name.
//!
//! A region is bound to a protection domain and, if wished, to one stream (RFC 5042 section 6). Its name, the STag, is 24 random bits
//! and an 8-bit key. Bytes come in and out as owned buffers: no pointer is ever handed to a peer's offset.

use sys::{Buf, BufMut, Payload};
use types::IdentityMap;

/// Names a region to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stag(pub u32);

/// A protection domain: streams see only the regions of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainId(pub u32);

/// One stream, to bind regions to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(pub u64);

/// Rights of a peer to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    pub remote_read: bool,
    pub remote_write: bool,
    /// The peer may end the registration by Send with Invalidate.
    pub remote_invalidate: bool,
    /// Memory without content, of which the owner reads only what the peer wrote: bytes that the peer may
    /// write can also change without being named.
    pub unspecified_content: bool,
}

enum Bytes {
    /// Never written while registered: read responses share it without a copy.
    Shared(Buf),
    Exclusive(BufMut),
    /// Memory of which nothing is used: it is allocated when the first byte is to be placed.
    Room {
        len_bytes: usize,
    },
    /// With the kernel, which receives into them.
    Lent {
        len_bytes: usize,
    },
}

/// One registration.
pub struct Region {
    bytes: Bytes,
    /// The peer's offset of the first byte.
    base: u64,
    access: Access,
    domain: DomainId,
    stream: Option<StreamId>,
    valid: bool,
    /// Inbound reads that still take bytes from it, or a placement under way.
    busy: u32,
    /// Whether its owner let go of it while it was busy: then it goes when it is not.
    abandoned: bool,
    /// Nothing was placed from here on.
    placed_end: usize,
}

/// Why an access is refused; each layer names it with a Terminate code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    #[error("no such STag")]
    Stag,
    #[error("outside the region")]
    Bounds,
    #[error("the region does not grant it")]
    Access,
    #[error("the region belongs to another protection domain or stream")]
    NotAssociated,
    #[error("offset and length wrap around")]
    Wrap,
    #[error("the region is in use")]
    Busy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Read,
    Write,
    /// The sink of our own RDMA Read: needs no right of the peer beyond the registration.
    Sink,
}

/// The regions of a device.
#[derive(Default)]
pub struct Memory {
    /// STags are chosen at this end: no peer can make them collide.
    regions: IdentityMap<Stag, Region>,
    bytes: u64,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers bytes that may be read. `random`: fresh randomness from a secure source; the STag is made of it.
    pub fn register_shared(
        &mut self,
        bytes: Buf,
        base: u64,
        access: Access,
        domain: DomainId,
        stream: Option<StreamId>,
        random: u32,
    ) -> Stag {
        let access = Access { remote_write: false, ..access };
        self.insert(Region::new(Bytes::Shared(bytes), base, access, domain, stream), random)
    }

    /// Registers bytes that may be written, by the peer or as the sink of our reads.
    pub fn register(
        &mut self,
        bytes: BufMut,
        base: u64,
        access: Access,
        domain: DomainId,
        stream: Option<StreamId>,
        random: u32,
    ) -> Stag {
        self.insert(Region::new(Bytes::Exclusive(bytes), base, access, domain, stream), random)
    }

    /// Registers memory without content, as [`Self::register`] does: it is allocated when the first byte is
    /// placed. So loans of many requests take no more than what is under way, and that lies in the
    /// processor's cache.
    pub fn register_room(
        &mut self,
        len_bytes: usize,
        base: u64,
        access: Access,
        domain: DomainId,
        stream: Option<StreamId>,
        random: u32,
    ) -> Stag {
        let access = Access { remote_read: false, ..access };
        self.insert(Region::new(Bytes::Room { len_bytes }, base, access, domain, stream), random)
    }

    fn insert(&mut self, region: Region, random: u32) -> Stag {
        let mut name = random;
        // STags 0 and 1 have uses of their own in ready-to-receive messages.
        while name < 2 || self.regions.contains_key(&Stag(name)) {
            name = name.wrapping_mul(0x9E37_79B1).wrapping_add(0x7F4A_7C15);
        }
        self.bytes += region.len() as u64;
        self.regions.insert(Stag(name), region);
        Stag(name)
    }

    /// Ends a registration; writable bytes are handed back.
    ///
    /// # Errors
    /// `Stag` if there is none. `Busy` while an inbound read still takes bytes from it or a placement is under way: nobody finds it
    /// any more, and it goes, with its bytes, when that is over.
    pub fn deregister(&mut self, stag: Stag) -> Result<Option<BufMut>, MemoryError> {
        match self.regions.get_mut(&stag) {
            None => return Err(MemoryError::Stag),
            Some(region) if region.busy > 0 => {
                (region.valid, region.abandoned) = (false, true);
                return Err(MemoryError::Busy);
            }
            Some(_) => {}
        }
        let region = self.regions.remove(&stag).ok_or(MemoryError::Stag)?;
        self.bytes -= region.len() as u64;
        Ok(match region.bytes {
            Bytes::Exclusive(bytes) => Some(bytes),
            // The peer may still say that it wrote: nobody is to see bytes of an earlier buffer for that.
            Bytes::Room { len_bytes } => Some(BufMut::zeroed(len_bytes)),
            Bytes::Shared(_) | Bytes::Lent { .. } => None,
        })
    }

    /// The bytes of a region for the kernel to receive into, if only this stream reaches it and only to write. It stays busy until
    /// [`Self::give_back`].
    pub(crate) fn lend(&mut self, stag: Stag, stream: StreamId) -> Option<BufMut> {
        let region = self.regions.get_mut(&stag)?;
        if region.stream != Some(stream) || region.access.remote_read {
            return None;
        }
        let len_bytes = region.len();
        region.allocate();
        match std::mem::replace(&mut region.bytes, Bytes::Lent { len_bytes }) {
            Bytes::Exclusive(bytes) => {
                region.busy += 1;
                Some(bytes)
            }
            other => {
                region.bytes = other;
                None
            }
        }
    }

    /// Takes back the memory that [`Self::lend`] gave.
    pub(crate) fn give_back(&mut self, stag: Stag, bytes: BufMut) {
        if let Some(region) = self.regions.get_mut(&stag)
            && matches!(region.bytes, Bytes::Lent { len_bytes } if len_bytes == bytes.len())
        {
            region.bytes = Bytes::Exclusive(bytes);
            self.set_busy(stag, false);
        }
    }

    /// How many bytes from `at` on nobody would miss: the peer may write them, none of them was placed, and the owner said that what the
    /// peer does not name may be anything.
    pub(crate) fn unspecified_bytes(&self, stag: Stag, at: usize) -> usize {
        let open = |region: &&Region| {
            region.valid
                && region.access.remote_write
                && region.access.unspecified_content
                && region.placed_end <= at
        };
        self.regions.get(&stag).filter(open).map_or(0, |region| region.len().saturating_sub(at))
    }

    pub fn is_valid(&self, stag: Stag) -> bool {
        self.regions.get(&stag).is_some_and(|region| region.valid)
    }

    /// Bytes registered.
    pub fn registered_bytes(&self) -> u64 {
        self.bytes
    }

    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// Checks an access; gives the offset within the region.
    pub fn check(
        &self,
        stag: Stag,
        offset: u64,
        len_bytes: u64,
        wish: Wish,
        domain: DomainId,
        stream: StreamId,
    ) -> Result<usize, MemoryError> {
        let region = self.regions.get(&stag).filter(|region| region.valid).ok_or(MemoryError::Stag)?;
        if region.domain != domain || region.stream.is_some_and(|bound| bound != stream) {
            return Err(MemoryError::NotAssociated);
        }
        let granted = match wish {
            Wish::Read => region.access.remote_read,
            Wish::Write => region.access.remote_write,
            Wish::Sink => !matches!(region.bytes, Bytes::Shared(_)),
        };
        if !granted {
            return Err(MemoryError::Access);
        }
        let end = offset.checked_add(len_bytes).ok_or(MemoryError::Wrap)?;
        let region_end = region.base.checked_add(region.len() as u64).ok_or(MemoryError::Wrap)?;
        if offset < region.base || end > region_end {
            return Err(MemoryError::Bounds);
        }
        Ok((offset - region.base) as usize)
    }

    /// Places bytes at a checked position.
    pub(crate) fn place(&mut self, stag: Stag, at: usize, bytes: &[u8]) -> Result<(), MemoryError> {
        self.writable(stag, at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// The writable bytes of a checked range, for a receive to fill.
    pub fn writable(&mut self, stag: Stag, at: usize, len_bytes: usize) -> Result<&mut [u8], MemoryError> {
        let region = self.regions.get_mut(&stag).ok_or(MemoryError::Stag)?;
        region.allocate();
        let bytes = match &mut region.bytes {
            Bytes::Exclusive(bytes) => bytes,
            Bytes::Shared(_) | Bytes::Room { .. } => return Err(MemoryError::Access),
            Bytes::Lent { .. } => return Err(MemoryError::Busy),
        };
        let range = at.checked_add(len_bytes).and_then(|end| bytes.get_mut(at..end));
        region.placed_end = region.placed_end.max(at.saturating_add(len_bytes));
        range.ok_or(MemoryError::Bounds)
    }

    /// The bytes of a checked range, for a response: shared if the region is never written, copied else.
    pub(crate) fn readable(&self, stag: Stag, at: usize, len_bytes: usize) -> Result<Payload, MemoryError> {
        let region = self.regions.get(&stag).ok_or(MemoryError::Stag)?;
        let end = at.checked_add(len_bytes).ok_or(MemoryError::Wrap)?;
        match &region.bytes {
            Bytes::Shared(bytes) if end <= bytes.len() => Ok(bytes.slice(at..end).into()),
            Bytes::Exclusive(bytes) => Ok(Buf::from(bytes.get(at..end).ok_or(MemoryError::Bounds)?).into()),
            Bytes::Shared(_) => Err(MemoryError::Bounds),
            Bytes::Room { .. } => Err(MemoryError::Access),
            Bytes::Lent { .. } => Err(MemoryError::Busy),
        }
    }

    /// The bytes of a region, for its owner; `None` while they are received into, and if memory without
    /// content was never written.
    pub fn bytes(&self, stag: Stag) -> Option<&[u8]> {
        match &self.regions.get(&stag)?.bytes {
            Bytes::Shared(bytes) => Some(bytes),
            Bytes::Exclusive(bytes) => Some(bytes),
            Bytes::Room { .. } | Bytes::Lent { .. } => None,
        }
    }

    /// Ends the peer's access (Send with Invalidate, or the owner's wish); the owner still deregisters.
    pub fn invalidate(
        &mut self,
        stag: Stag,
        domain: DomainId,
        stream: StreamId,
        by_peer: bool,
    ) -> Result<(), MemoryError> {
        let region = self.regions.get_mut(&stag).filter(|region| region.valid).ok_or(MemoryError::Stag)?;
        if region.domain != domain || region.stream.is_some_and(|bound| bound != stream) {
            return Err(MemoryError::NotAssociated);
        }
        if by_peer && !region.access.remote_invalidate {
            return Err(MemoryError::Access);
        }
        region.valid = false;
        Ok(())
    }

    pub(crate) fn set_busy(&mut self, stag: Stag, busy: bool) {
        if let Some(region) = self.regions.get_mut(&stag) {
            region.busy = if busy { region.busy + 1 } else { region.busy.saturating_sub(1) };
            if region.busy == 0 && region.abandoned {
                self.bytes -= region.len() as u64;
                self.regions.remove(&stag);
            }
        }
    }
}

impl Region {
    fn new(bytes: Bytes, base: u64, access: Access, domain: DomainId, stream: Option<StreamId>) -> Self {
        Self { bytes, base, access, domain, stream, valid: true, busy: 0, abandoned: false, placed_end: 0 }
    }

    fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Shared(bytes) => bytes.len(),
            Bytes::Exclusive(bytes) => bytes.len(),
            Bytes::Room { len_bytes } | Bytes::Lent { len_bytes } => *len_bytes,
        }
    }

    /// Allocates memory without content.
    fn allocate(&mut self) {
        if let Bytes::Room { len_bytes } = self.bytes {
            self.bytes = Bytes::Exclusive(BufMut::for_overwrite(len_bytes));
        }
    }
}
