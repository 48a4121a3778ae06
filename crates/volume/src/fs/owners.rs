//! Which files have given blocks of the virtual disk, and where in them.
//!
//! Works in bounded steps between other operations. A file that changes meanwhile may be named or left out. Files below a damaged page
//! of the tree cannot be named: the search continues behind it.

use std::collections::{BTreeMap, BTreeSet};

use super::types::WideString;
use ::types::Lba;

use super::FileSystem;
use super::inodes::stream_record;
use super::meta::record::ExtentRecord;
use super::meta::{Key, Transaction, key};
use super::types::{FileId, FsError, StreamId};

/// Blocks of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedBlocks {
    /// Path as [`FileSystem::path`] returns it; `None`: the file has lost its name and is being reclaimed.
    pub path: Option<WideString>,
    /// Empty: the unnamed stream.
    pub stream: WideString,
    /// First block within the stream and number of blocks, in order, none touching the next.
    pub runs: Vec<(u64, u64)>,
}

/// A search under way.
#[derive(Debug)]
pub struct OwnerSearch {
    blocks: BTreeSet<Lba>,
    /// Of these, the blocks that some file has.
    owned: BTreeSet<Lba>,
    next: Key,
    found: BTreeMap<StreamId, BTreeSet<u64>>,
    /// Streams with their names, once all keys have been examined.
    named: Vec<OwnedBlocks>,
    scanned: bool,
    /// An unreadable page blocks the search.
    skipping: bool,
    pages_unreadable: u64,
}

impl OwnerSearch {
    /// Begins a search for the streams that have `blocks`, at the first file of the volume.
    pub fn new(blocks: impl IntoIterator<Item = Lba>) -> Self {
        Self {
            blocks: blocks.into_iter().collect(),
            owned: BTreeSet::new(),
            next: key::file_first(FileId(0)),
            found: BTreeMap::new(),
            named: Vec::new(),
            scanned: false,
            skipping: false,
            pages_unreadable: 0,
        }
    }

    /// Examines up to `keys_max` keys; whether the search is finished.
    ///
    /// # Errors
    /// `Miss`: call again after the next [`super::FsEvent::Retry`].
    pub fn step(&mut self, fs: &mut FileSystem, keys_max: usize) -> Result<bool, FsError> {
        fs.base.ready()?;
        let txn = Transaction::new();
        let end = key::file_first(FileId(u64::MAX));
        for _ in 0..keys_max {
            if self.scanned {
                let Some((&stream, _)) = self.found.first_key_value() else { return Ok(true) };
                let (path, name) = names(fs, &txn, stream)?;
                let blocks = self.found.remove(&stream).unwrap_or_default();
                self.named.push(OwnedBlocks { path, stream: name, runs: runs(&blocks) });
                continue;
            }
            if self.skipping {
                self.skip_page(fs, &end)?;
                continue;
            }
            match fs.base.meta.store.next(&txn, &self.next, &end) {
                Ok(Some((found, value))) => {
                    if let Some((stream, block)) = key::parse_extent(&found)
                        && let Some(extent) = ExtentRecord::decode(&value)
                    {
                        self.look(stream, block, &extent);
                    }
                    self.next = found;
                    self.next.push(0);
                }
                Ok(None) => self.scanned = true,
                Err(FsError::Corrupt { .. }) => self.skipping = true,
                Err(error) => return Err(error),
            }
        }
        Ok(self.scanned && self.found.is_empty())
    }

    /// Skips the damaged page that blocks the search.
    fn skip_page(&mut self, fs: &mut FileSystem, end: &[u8]) -> Result<(), FsError> {
        let (behind, damaged) = fs.base.meta.store.tree.behind_page_of(&self.next)?;
        self.skipping = false;
        self.pages_unreadable += u64::from(damaged);
        match behind.filter(|behind| behind[..] < *end && *behind > self.next) {
            Some(behind) => self.next = behind,
            None => self.scanned = true,
        }
        Ok(())
    }

    /// Damaged pages of the tree that the search skipped: files below them have no names.
    pub fn pages_unreadable(&self) -> u64 {
        self.pages_unreadable
    }

    fn look(&mut self, stream: StreamId, block: u64, extent: &ExtentRecord) {
        let end = Lba(extent.lba.0 + u64::from(extent.blocks));
        for lba in self.blocks.range(extent.lba..end) {
            self.owned.insert(*lba);
            self.found.entry(stream).or_default().insert(block + (lba.0 - extent.lba.0));
        }
    }

    /// Streams that own the blocks, and the number of blocks that no file owns.
    pub fn finish(self) -> (Vec<OwnedBlocks>, usize) {
        (self.named, self.blocks.len() - self.owned.len())
    }
}

fn names(
    fs: &mut FileSystem,
    txn: &Transaction,
    stream: StreamId,
) -> Result<(Option<WideString>, WideString), FsError> {
    let path = match fs.path(stream.file) {
        Ok(path) => Some(path),
        Err(FsError::NotFound | FsError::Corrupt { .. }) => None,
        Err(error) => return Err(error),
    };
    let name = match stream.index {
        0 => WideString::default(),
        _ => match stream_record(&mut fs.base.meta.store, txn, stream) {
            Ok(record) => record.name,
            Err(FsError::NotFound | FsError::Corrupt { .. }) => WideString::default(),
            Err(error) => return Err(error),
        },
    };
    Ok((path, name))
}

fn runs(blocks: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == block => *count += 1,
            _ => runs.push((block, 1)),
        }
    }
    runs
}
