//! Tables of what is open: opens, the files they are of, and leases.
//!
//! Owns the data and its indexes, no rule. Promises: an identifier of an open is never given twice.

use super::caching::Caching;
use super::directory::Listing;
use super::grant::Grant;
use super::locks::{LockSequences, RangeLocks};
use super::share::ShareMode;
use super::waiting_locks::WaitingLocks;
use crate::backend::{
    AccessToken, AppInstance, Durability, DurableRequest, Guid, LeaseVersion2, OpenId, OperationId,
    SessionId, ShareOptions, ShareRoot, Standing, Terms, WideString,
};
use crate::fs::{FileId, StreamId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use types::Monotonic;

bitflags::bitflags! {
    /// Times that one open does not change by the way (MS-FSA Open.UserSet*Time).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FixedTimes: u8 {
        const ACCESSED = 1;
        const WRITTEN = 2;
        const CHANGED = 4;
    }
}

/// Writes change the times of a file a little later than its data: once two seconds after the first write of an open, and again with
/// a flush, a change of size or attributes, or the close.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteTime {
    /// The first write's change is due at this time.
    pub due: Option<Monotonic>,
    /// The first write was.
    pub started: bool,
    /// There were writes that the times do not show yet.
    pub owed: bool,
}

/// What an open may cache.
#[derive(Debug)]
pub enum CacheHolder {
    None,
    Oplock(Caching),
    /// Key of [`Leases`].
    Lease(LeaseName),
}

/// Client and key.
pub type LeaseName = (Guid, Guid);

/// How an open outlives its connection.
#[derive(Debug, Clone, Copy)]
pub struct Durable {
    pub request: DurableRequest,
    pub timeout: Duration,
}

/// A name of a file: directory and entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkName {
    pub parent: FileId,
    pub name: WideString,
}

/// Bytes of path that every open may have.
const PATH_BYTES_PER_PLACE: usize = 1024;

/// How many opens one with a path of this length counts for: what opens take of memory is bounded by their number, and a path may be a
/// hundred times as large as everything else of an open.
pub fn places_of(path_units: usize) -> usize {
    1 + 2 * path_units / PATH_BYTES_PER_PLACE
}

#[derive(Debug)]
pub struct Open {
    pub stream: StreamId,
    /// Its place among the opens of its file.
    pub place: u64,
    /// How many opens it counts for: see [`places_of`].
    pub places: usize,
    pub directory: bool,
    /// From the volume's root, in the case of the names as stored; with `:stream` where it is one.
    pub path: WideString,
    /// The name by which it was opened; `None` for the volume's root.
    pub link: Option<LinkName>,
    /// The root of its caller: what a client says and sees of paths begins there.
    pub root: ShareRoot,
    pub session: SessionId,
    pub client: Guid,
    pub token: Arc<AccessToken>,
    pub share: ShareOptions,
    pub standing: Standing,
    /// Access that the share grants at most.
    pub granted_by_share: u32,
    pub access: u32,
    pub share_access: u32,
    pub options: u32,
    pub holder: CacheHolder,
    /// Key that the creator's lease on the parent directory has: its own changes do not break it.
    pub parent_key: Option<Guid>,
    pub delete_on_close: bool,
    pub durable: Option<Durable>,
    pub create_guid: Option<Guid>,
    pub app_instance: Option<AppInstance>,
    /// Its connection is gone; it ends at this time.
    pub disconnected: Option<Monotonic>,
    /// It is being closed, though its client did not ask for it.
    pub closing: bool,
    /// Used for something else than its creation: a replayed create is then too late.
    pub used: bool,
    pub fixed_times: FixedTimes,
    pub sequences: Option<Box<LockSequences>>,
    /// When its writes become visible in the file's times.
    pub write_time: WriteTime,
    /// Something was changed through it since its last flush.
    pub dirty: bool,
    /// Flushes under way.
    pub flushes: u32,
    /// Wrote or changed sizes: to be told to watchers when it closes.
    pub modified: bool,
    pub listing: Option<Box<Listing>>,
    pub create_action: crate::backend::CreateAction,
}

impl Open {
    pub fn share_mode(&self) -> ShareMode {
        ShareMode { access: self.access, share: self.share_access, stream: self.stream.index }
    }

    /// Goes on under other terms. The access that was granted stays, as it does when a file's descriptor changes.
    pub fn amend(&mut self, terms: Terms) {
        let Terms { token, share_access, share, standing } = terms;
        (self.token, self.share, self.standing) = (token, share, standing);
        self.granted_by_share = share_access;
        // Entries found so far were found by the old terms.
        self.listing = None;
    }

    /// Nothing can be done through it from here on, and neither a reconnect nor a replay finds it.
    pub fn take_rights(&mut self) {
        self.access = 0;
        self.granted_by_share = 0;
        self.share.read_only = true;
        self.used = true;
        self.durable = None;
    }

    /// What the share that it was made through lets its client do.
    pub fn grant(&self) -> Grant {
        Grant::new(self.granted_by_share, self.share)
    }

    /// The name that its client reaches and may change; `None` for its root.
    pub fn own_link(&self) -> Option<&LinkName> {
        self.link.as_ref().filter(|_| self.stream.file != self.root.directory())
    }

    pub fn durable_writes(&self) -> bool {
        self.share.durability == Durability::Write || self.share.continuously_available
    }
}

/// Opens by identifier: position and generation.
#[derive(Debug, Default)]
pub struct OpenTable {
    slots: Vec<(u32, Option<Box<Open>>)>,
    free: Vec<u32>,
    len: usize,
}

impl OpenTable {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn insert(&mut self, open: Open) -> OpenId {
        let open = Some(Box::new(open));
        self.len += 1;
        match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.1 = open;
                Self::id(slot.0, index)
            }
            None => {
                let index = self.slots.len() as u32;
                self.slots.push((1, open));
                Self::id(1, index)
            }
        }
    }

    fn id(generation: u32, index: u32) -> OpenId {
        OpenId(u64::from(generation) << 32 | u64::from(index))
    }

    pub fn get(&self, id: OpenId) -> Option<&Open> {
        let (generation, open) = self.slots.get(id.0 as u32 as usize)?;
        if *generation == (id.0 >> 32) as u32 { open.as_deref() } else { None }
    }

    pub fn get_mut(&mut self, id: OpenId) -> Option<&mut Open> {
        let (generation, open) = self.slots.get_mut(id.0 as u32 as usize)?;
        if *generation == (id.0 >> 32) as u32 { open.as_deref_mut() } else { None }
    }

    pub fn remove(&mut self, id: OpenId) -> Option<Box<Open>> {
        let index = id.0 as u32;
        let (generation, open) = self.slots.get_mut(index as usize)?;
        if *generation != (id.0 >> 32) as u32 {
            return None;
        }
        let open = open.take()?;
        self.len -= 1;
        // A slot whose generations are used up stays empty, so that no identifier comes twice.
        if let Some(next) = generation.checked_add(1) {
            *generation = next;
            self.free.push(index);
        }
        Some(open)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpenId, &mut Open)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, (generation, open))| {
            Some((Self::id(*generation, index as u32), open.as_deref_mut()?))
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (OpenId, &Open)> {
        self.slots.iter().enumerate().filter_map(|(index, (generation, open))| {
            Some((Self::id(*generation, index as u32), open.as_deref()?))
        })
    }
}

/// What is common to the opens of one stream.
#[derive(Debug, Default)]
pub struct StreamNode {
    pub locks: RangeLocks,
    pub waiting_locks: WaitingLocks,
    /// Of a named stream: goes with its last open.
    pub delete_pending: bool,
}

/// The opens of one file, in the order they were made.
#[derive(Debug, Default)]
pub struct FileOpens {
    by_place: BTreeMap<u64, OpenId>,
    /// Those that may cache something.
    caching: BTreeMap<u64, OpenId>,
    next_place: u64,
    /// How many are of the unnamed stream, and of each other one.
    unnamed: usize,
    named: HashMap<u32, usize>,
}

impl FileOpens {
    /// Adds an open of this stream, which `caches` something or does not; its place.
    pub fn insert(&mut self, id: OpenId, stream: u32, caches: bool) -> u64 {
        let place = self.next_place;
        self.next_place += 1;
        self.by_place.insert(place, id);
        if caches {
            self.caching.insert(place, id);
        }
        match stream {
            0 => self.unnamed += 1,
            named => *self.named.entry(named).or_default() += 1,
        }
        place
    }

    pub fn remove(&mut self, place: u64, stream: u32) {
        if self.by_place.remove(&place).is_none() {
            return;
        }
        self.caching.remove(&place);
        match stream {
            0 => self.unnamed -= 1,
            named => {
                if let Some(count) = self.named.get_mut(&named) {
                    *count -= 1;
                    if *count == 0 {
                        self.named.remove(&named);
                    }
                }
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = OpenId> {
        self.by_place.values().copied()
    }

    pub fn len(&self) -> usize {
        self.by_place.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// The open at this place may cache something from here on.
    pub fn start_caching(&mut self, place: u64, id: OpenId) {
        self.caching.insert(place, id);
    }

    /// The open at this place caches nothing any more.
    pub fn stop_caching(&mut self, place: u64) {
        self.caching.remove(&place);
    }

    /// Opens that may cache something, in the order they were made.
    pub fn caching(&self) -> impl Iterator<Item = OpenId> {
        self.caching.values().copied()
    }

    pub fn caching_len(&self) -> usize {
        self.caching.len()
    }

    /// Opens of one stream.
    pub fn of_stream(&self, stream: u32) -> usize {
        if stream == 0 { self.unnamed } else { self.named.get(&stream).copied().unwrap_or_default() }
    }
}

/// What is common to the opens of one file.
#[derive(Debug, Default)]
pub struct FileNode {
    pub opens: FileOpens,
    pub streams: HashMap<u32, StreamNode>,
    /// Names that go when the last open of the file does.
    pub deleting: Vec<LinkName>,
    /// Operations that wait until somebody's caching is taken back, in the order in which they came.
    pub waiting: BTreeMap<u64, OperationId>,
}

impl FileNode {
    pub fn has_locks(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|node| !node.locks.is_empty())
    }
}

#[derive(Debug)]
pub struct Lease {
    pub stream: StreamId,
    pub caching: Caching,
    /// Counts changes of state (version 2).
    pub epoch: u16,
    pub version_2: Option<LeaseVersion2>,
    pub opens: u32,
}

pub type Leases = HashMap<LeaseName, Lease>;
