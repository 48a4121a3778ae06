//! Sparse bytes in memory, which [`crate::memory::MemoryDisk`] and [`crate::crash::CrashDisk`] keep
//! instead of a medium.
//!
//! Promises: memory by content, not by size; a clone shares all pages until one side changes them. Whole pages of small buffers are
//! shared with who wrote them.

use std::collections::BTreeMap;
use std::sync::Arc;
use sys::Buf;

const PAGE_BYTES: u64 = 4096;
/// A page of a larger buffer is copied: the image would keep all of the buffer for it.
const SHARED_BYTES_MAX: usize = 128 << 10;

#[derive(Clone)]
enum Page {
    Own(Arc<[u8; PAGE_BYTES as usize]>),
    /// As it was written.
    Shared(Buf),
}

impl Page {
    fn zeroes() -> Self {
        Self::Own(Arc::new([0; PAGE_BYTES as usize]))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => &bytes[..],
            Self::Shared(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Self::Shared(shared) = self {
            let mut bytes = [0; PAGE_BYTES as usize];
            bytes.copy_from_slice(shared);
            *self = Self::Own(Arc::new(bytes));
        }
        match self {
            Self::Own(bytes) => &mut Arc::make_mut(bytes)[..],
            Self::Shared(_) => unreachable!("the bytes were copied"),
        }
    }
}

/// Bytes that were never written read as zeroes.
#[derive(Clone, Default)]
pub(crate) struct SparseImage {
    pages: BTreeMap<u64, Page>,
}

impl SparseImage {
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        for_each_page(offset, into.len(), |page, within, range| {
            let target = &mut into[range];
            match self.pages.get(&page) {
                Some(found) => target.copy_from_slice(&found.bytes()[within..within + target.len()]),
                None => target.fill(0),
            }
        });
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for_each_page(offset, bytes.len(), |page, within, range| {
            let source = &bytes[range];
            let target = self.pages.entry(page).or_insert_with(Page::zeroes);
            target.bytes_mut()[within..within + source.len()].copy_from_slice(source);
        });
    }

    /// As [`Self::write`], of a buffer that the image may keep.
    pub(crate) fn write_shared(&mut self, offset: u64, part: &Buf) {
        if part.retained_bytes() > SHARED_BYTES_MAX
            || part.len() < PAGE_BYTES as usize
            || !offset.is_multiple_of(PAGE_BYTES)
        {
            return self.write(offset, part);
        }
        let whole = part.len() / PAGE_BYTES as usize * PAGE_BYTES as usize;
        for at in (0..whole).step_by(PAGE_BYTES as usize) {
            let page = Page::Shared(part.slice(at..at + PAGE_BYTES as usize));
            self.pages.insert((offset + at as u64) / PAGE_BYTES, page);
        }
        self.write(offset + whole as u64, &part[whole..]);
    }

    /// Makes the range read as zeroes and gives the memory of whole pages back.
    pub(crate) fn zero(&mut self, offset: u64, len_bytes: u64) {
        let end = offset.saturating_add(len_bytes);
        let whole = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        if whole.start >= whole.end {
            self.zero_present(offset, end);
            return;
        }
        let drop: Vec<u64> = self.pages.range(whole.clone()).map(|(&page, _)| page).collect();
        for page in drop {
            self.pages.remove(&page);
        }
        self.zero_present(offset, whole.start * PAGE_BYTES);
        self.zero_present(whole.end * PAGE_BYTES, end);
    }

    /// Zeroes a range of less than two pages without creating pages.
    fn zero_present(&mut self, offset: u64, end: u64) {
        for_each_page(offset, (end - offset) as usize, |page, within, range| {
            if let Some(bytes) = self.pages.get_mut(&page) {
                bytes.bytes_mut()[within..within + range.len()].fill(0);
            }
        });
    }

    /// Bytes of memory that the content takes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES
    }
}

/// Calls `visit(page, offset within it, range of the buffer)` for each page that the range touches.
fn for_each_page(offset: u64, len: usize, mut visit: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES) as usize;
        let take = (len - done).min(PAGE_BYTES as usize - within);
        visit(at / PAGE_BYTES, within, done..done + take);
        done += take;
    }
}
