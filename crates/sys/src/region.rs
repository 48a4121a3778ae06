//! Plain memory for load generators: anonymous pages, on demand huge ones, and files mapped into memory.
//!
//! Owns mappings. Promises: nothing here hands out a reference to bytes that another process or the kernel may change; mapped
//! files are copied from and to.

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, msync, munmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

/// Bytes of a large page.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;

/// Zeroed pages of this process alone, page aligned.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    mapped_bytes: usize,
}

// SAFETY: plain bytes; written through `&mut` only, or by the kernel into parts that a `FileRing` keeps from its user meanwhile.
unsafe impl Send for Region {}
// SAFETY: as above; shared access is read-only.
unsafe impl Sync for Region {}

impl Region {
    /// `len` zero bytes. With `large_pages` from the system's reserve of huge pages, and from nowhere else.
    ///
    /// # Errors
    /// When there is no such memory.
    pub fn new(len: usize, large_pages: bool) -> io::Result<Self> {
        let unit = if large_pages { LARGE_PAGE_BYTES } else { PAGE_BYTES };
        let mapped_bytes = len
            .max(1)
            .checked_next_multiple_of(unit)
            .filter(|bytes| *bytes <= isize::MAX as usize)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut flags = MapFlags::PRIVATE;
        if large_pages {
            flags |= MapFlags::HUGETLB;
        }
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), mapped_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { start, len, mapped_bytes })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: start + len lies within the mapping; nobody writes while `self` is borrowed shared (a `FileRing` that lets
        // the kernel write into a region owns it).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this region's own, and nothing of it is borrowed any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// A file mapped shared. A file that is cut short meanwhile ends the process with SIGBUS, as mappings do.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: all access is by copies of plain bytes through raw pointers, as between processes that share a mapping.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes. `persistent`: with MAP_SYNC, so that flushed cache lines are durable; only files on
    /// persistent memory can.
    ///
    /// # Errors
    /// The kernel's: a file that cannot be mapped, or not persistently.
    pub fn new(file: impl AsFd, len: u64, writable: bool, persistent: bool) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mut access = ProtFlags::READ;
        if writable {
            access |= ProtFlags::WRITE;
        }
        let flags = if persistent { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start = unsafe { mmap(ptr::null_mut(), len, access, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { start, len })
    }

    fn checked(&self, at: u64, len: usize) -> *mut u8 {
        let fits =
            usize::try_from(at).ok().and_then(|at| at.checked_add(len)).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {at} of a mapping of {} bytes", self.len);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.start.as_ptr().add(at as usize) }
    }

    /// # Panics
    /// Outside of the mapping.
    pub fn read(&self, at: u64, into: &mut [u8]) {
        let from = self.checked(at, into.len());
        // SAFETY: the source lies within the mapping; `into` is this process's own memory and cannot overlap it.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// `around_cache`: with non-temporal stores if the processor has them.
    ///
    /// # Panics
    /// Outside of the mapping.
    pub fn write(&self, at: u64, bytes: &[u8], around_cache: bool) {
        let to = self.checked(at, bytes.len());
        if around_cache {
            stream(to, bytes);
        } else {
            // SAFETY: the target lies within the mapping; `bytes` is this process's own memory and cannot overlap it.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
    }

    /// msync of the pages around these bytes: they are durable when it returns.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// Outside of the mapping.
    pub fn sync(&self, at: u64, len: usize) -> io::Result<()> {
        let start = self.checked(at, len);
        let before = start as usize % PAGE_BYTES;
        // SAFETY: from the page boundary before, which the mapping begins at or lies behind, to the end of the range.
        unsafe { msync(start.sub(before).cast(), before + len, MsyncFlags::SYNC) }?;
        Ok(())
    }

    /// Writes the cache lines of these bytes back; `drain`: and waits for them.
    ///
    /// # Panics
    /// Outside of the mapping.
    pub fn flush_lines(&self, at: u64, len: usize, drain: bool) {
        let start = self.checked(at, len);
        flush_lines(start, len, drain);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Copies with non-temporal stores; head and tail that are not of 8 bytes at a boundary of 8 go the ordinary way.
#[cfg(target_arch = "x86_64")]
fn stream(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{_mm_sfence, _mm_stream_si64};
    let head = to.align_offset(8).min(bytes.len());
    let (head, rest) = bytes.split_at(head);
    // SAFETY: the caller's range at `to` has space for all of `bytes`; `to + head` is a multiple of 8; the fence makes the stores
    // visible in order, as the intrinsic demands.
    unsafe {
        ptr::copy_nonoverlapping(head.as_ptr(), to, head.len());
        let mut at = to.add(head.len());
        let (words, tail) = rest.as_chunks::<8>();
        for word in words {
            _mm_stream_si64(at.cast(), i64::from_ne_bytes(*word));
            at = at.add(8);
        }
        ptr::copy_nonoverlapping(tail.as_ptr(), at, tail.len());
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's range at `to` has space for all of `bytes`.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

#[cfg(target_arch = "x86_64")]
fn flush_lines(start: *mut u8, len: usize, drain: bool) {
    use std::arch::x86_64::{_mm_clflush, _mm_sfence};
    const LINE_BYTES: usize = 64;
    let first = start as usize / LINE_BYTES * LINE_BYTES;
    let mut line = first;
    while line < start as usize + len {
        // SAFETY: a line that holds bytes of the mapping; flushing changes no byte.
        unsafe { _mm_clflush(line as *const u8) };
        line += LINE_BYTES;
    }
    if drain {
        // SAFETY: a fence.
        unsafe { _mm_sfence() };
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn flush_lines(start: *mut u8, len: usize, _drain: bool) {
    let before = start as usize % PAGE_BYTES;
    // SAFETY: pages of the caller's mapping.
    let _ = unsafe { msync(start.sub(before).cast(), before + len, MsyncFlags::SYNC) };
}
