//! The opens of one file, and the deletions due with the last of them.

use super::open::LinkName;
use crate::backend::OpenId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::Sid;

/// The opens of one file, in the order in which they were made.
///
/// Invariant: those that cache are among them, and each is counted with its stream.
#[derive(Debug, Default)]
pub struct FileOpens {
    by_place: BTreeMap<u64, OpenId>,
    /// Opens that may cache something.
    caching: BTreeMap<u64, OpenId>,
    next_place: u64,
    /// Opens that outlive the server, and those of each user.
    persistent: usize,
    persistent_of: HashMap<Sid, usize>,
    /// The number of opens of the unnamed stream, and of each other one.
    unnamed: usize,
    named: HashMap<u32, usize>,
}

impl FileOpens {
    /// Adds an open of this stream; `caches`: it caches something. Returns its place.
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
        let removed = self.by_place.remove(&place);
        debug_assert!(removed.is_some(), "an open is removed once from its file");
        self.caching.remove(&place);
        match stream {
            0 => self.unnamed -= 1,
            named => {
                let count = self.named.get_mut(&named).expect("a stream that is open is counted");
                *count -= 1;
                if *count == 0 {
                    self.named.remove(&named);
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

    /// Notes that the open at this place may cache something from here on.
    pub fn start_caching(&mut self, place: u64, id: OpenId) {
        self.caching.insert(place, id);
    }

    /// Notes that the open at this place caches nothing any more.
    pub fn stop_caching(&mut self, place: u64) {
        self.caching.remove(&place);
    }

    /// Lists the opens that may cache something, oldest first.
    pub fn caching(&self) -> impl Iterator<Item = OpenId> {
        self.caching.values().copied()
    }

    pub fn caching_len(&self) -> usize {
        self.caching.len()
    }

    /// Notes that one of the opens outlives the server.
    pub fn add_persistent(&mut self, user: &Sid) {
        self.persistent += 1;
        *self.persistent_of.entry(user.clone()).or_default() += 1;
    }

    pub fn remove_persistent(&mut self, user: &Sid) {
        self.persistent -= 1;
        let count = self.persistent_of.get_mut(user).expect("the user of each open is counted");
        *count -= 1;
        if *count == 0 {
            self.persistent_of.remove(user);
        }
    }

    /// Counts the opens of a user that outlive the server.
    pub fn persistent_of(&self, user: &Sid) -> usize {
        self.persistent_of.get(user).copied().unwrap_or_default()
    }

    /// Counts the opens that outlive the server.
    pub fn persistent_len(&self) -> usize {
        self.persistent
    }

    /// Counts the opens of one stream.
    pub fn of_stream(&self, stream: u32) -> usize {
        if stream == 0 { self.unnamed } else { self.named.get(&stream).copied().unwrap_or_default() }
    }
}

/// A name or stream to delete with the last open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doomed {
    /// A name of the file.
    Link(LinkName),
    /// One of its named streams.
    Stream(u32),
}

/// Shared state of the opens of one file.
///
/// Invariant: names and streams in `kept` are to be deleted.
#[derive(Debug, Default)]
pub struct FileNode {
    pub opens: FileOpens,
    /// Deletions that outlive the server.
    kept: BTreeSet<Doomed>,
    /// Names that go when the last open of the file does.
    deleting: Vec<LinkName>,
    /// Named streams that go when their last open does.
    deleting_streams: BTreeSet<u32>,
}

impl FileNode {
    /// Whether any name of the file is marked for deletion.
    pub fn is_deleting(&self) -> bool {
        !self.deleting.is_empty()
    }

    /// Whether this name is marked for deletion.
    pub fn is_deleting_link(&self, link: &LinkName) -> bool {
        self.deleting.contains(link)
    }

    pub fn is_deleting_stream(&self, stream: u32) -> bool {
        self.deleting_streams.contains(&stream)
    }

    /// Returns the names marked for deletion.
    pub fn deleting(&self) -> &[LinkName] {
        &self.deleting
    }

    /// Marks a name for deletion with the last open. Returns whether that is new.
    pub fn delete_link(&mut self, link: LinkName) -> bool {
        let is_new = !self.deleting.contains(&link);
        if is_new {
            self.deleting.push(link);
        }
        is_new
    }

    /// Notes that a deletion is recorded. Whether that is new.
    pub fn keep(&mut self, doomed: Doomed) -> bool {
        self.kept.insert(doomed)
    }

    /// Unmarks a name, or notes its removal. Returns whether a record has to be removed.
    #[must_use]
    pub fn forget_link(&mut self, link: &LinkName) -> bool {
        self.deleting.retain(|other| other != link);
        !self.kept.is_empty() && self.kept.remove(&Doomed::Link(link.clone()))
    }

    pub fn delete_stream(&mut self, stream: u32) {
        self.deleting_streams.insert(stream);
    }

    /// Unmarks a named stream, or notes its removal. Returns whether a record has to be removed.
    #[must_use]
    pub fn forget_stream(&mut self, stream: u32) -> bool {
        self.deleting_streams.remove(&stream);
        !self.kept.is_empty() && self.kept.remove(&Doomed::Stream(stream))
    }
}
