//! Change notification: who watches which directory, what they have not been told yet (MS-FSA 2.1.5.11, MS-SMB2 3.3.5.19).
//!
//! Paths are those of the volume, in the case in which names are stored. Promises: a watch keeps at most as much as its first request
//! asked for; beyond, it says that everything may have changed. Never touches files.

use super::path;
use crate::backend::{OpenId, OperationId, WideString};
use std::collections::{HashMap, VecDeque};

/// FILE_ACTION_* (MS-FSCC 2.7.1).
pub const ADDED: u32 = 1;
pub const REMOVED: u32 = 2;
pub const MODIFIED: u32 = 3;
pub const RENAMED_OLD_NAME: u32 = 4;
pub const RENAMED_NEW_NAME: u32 = 5;
pub const ADDED_STREAM: u32 = 6;
pub const REMOVED_STREAM: u32 = 7;
pub const MODIFIED_STREAM: u32 = 8;

/// FILE_NOTIFY_CHANGE_* (MS-SMB2 2.2.35).
pub const FILE_NAME: u32 = 0x001;
pub const DIR_NAME: u32 = 0x002;
pub const ATTRIBUTES: u32 = 0x004;
pub const SIZE: u32 = 0x008;
pub const LAST_WRITE: u32 = 0x010;
pub const LAST_ACCESS: u32 = 0x020;
pub const CREATION: u32 = 0x040;
pub const EA: u32 = 0x080;
pub const SECURITY: u32 = 0x100;
pub const STREAM_NAME: u32 = 0x200;
pub const STREAM_SIZE: u32 = 0x400;
pub const STREAM_WRITE: u32 = 0x800;

/// Most changes kept for one watch, whatever it asked for.
const CHANGES_MAX: usize = 4096;

/// What a request waits for, or is answered with.
pub type Changes = Vec<(u32, WideString)>;

#[derive(Debug)]
struct Watch {
    path: WideString,
    filter: u32,
    tree: bool,
    bytes_max: usize,
    changes: Vec<(u32, WideString)>,
    bytes: usize,
    overflow: bool,
    requests: VecDeque<OperationId>,
    /// Changes came between requests, or the one that waits can be answered.
    ready: bool,
}

#[derive(Debug, Default)]
pub struct Watches {
    by_open: HashMap<OpenId, Watch>,
    by_path: HashMap<WideString, Vec<OpenId>>,
    /// Watches that have something to answer.
    ready: VecDeque<OpenId>,
}

impl Watches {
    pub fn is_empty(&self) -> bool {
        self.by_open.is_empty()
    }

    /// A request of an open directory. The first one fixes filter, depth and size of the buffer. Returns the answer where there is one
    /// at once (empty: too much changed).
    pub fn request(
        &mut self,
        open: OpenId,
        path: &[u16],
        operation: OperationId,
        filter: u32,
        tree: bool,
        bytes_max: u32,
    ) -> Option<Changes> {
        let watch = self.by_open.entry(open).or_insert_with(|| {
            self.by_path.entry(path.into()).or_default().push(open);
            Watch {
                path: path.into(),
                filter,
                tree,
                bytes_max: bytes_max as usize,
                changes: Vec::new(),
                bytes: 0,
                overflow: false,
                requests: VecDeque::new(),
                ready: false,
            }
        });
        if watch.requests.is_empty() && (watch.overflow || !watch.changes.is_empty()) {
            return Some(watch.take());
        }
        watch.requests.push_back(operation);
        None
    }

    /// Something happened to the entry at `path`.
    pub fn changed(&mut self, path: &[u16], action: u32, filter: u32) {
        if self.by_open.is_empty() || path.is_empty() {
            return;
        }
        let (mut directory, _) = path::split_last(path);
        let mut direct = true;
        loop {
            if let Some(opens) = self.by_path.get(directory) {
                for open in opens {
                    let Some(watch) = self.by_open.get_mut(open) else { continue };
                    if watch.filter & filter == 0 || !(direct || watch.tree) {
                        continue;
                    }
                    let Some(relative) = path::strip_directory(path, &watch.path) else { continue };
                    watch.add(action, relative);
                    if !watch.ready {
                        watch.ready = true;
                        self.ready.push_back(*open);
                    }
                }
            }
            if directory.is_empty() {
                return;
            }
            direct = false;
            directory = path::split_last(directory).0;
        }
    }

    /// A request that can be answered by now, and the changes since the last answer: the oldest request of a watch.
    pub fn next_ready(&mut self) -> Option<(OperationId, Changes)> {
        while let Some(open) = self.ready.pop_front() {
            let Some(watch) = self.by_open.get_mut(&open) else { continue };
            watch.ready = false;
            if let Some(operation) = watch.requests.pop_front() {
                return Some((operation, watch.take()));
            }
        }
        None
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The open is gone, or its directory is about to: returns the requests that waited.
    pub fn remove(&mut self, open: OpenId) -> Vec<OperationId> {
        let Some(watch) = self.by_open.remove(&open) else { return Vec::new() };
        if let Some(opens) = self.by_path.get_mut(&watch.path) {
            opens.retain(|other| *other != open);
            if opens.is_empty() {
                self.by_path.remove(&watch.path);
            }
        }
        watch.requests.into()
    }

    /// Takes a request back; whether it waited.
    pub fn cancel(&mut self, open: OpenId, operation: OperationId) -> bool {
        let Some(watch) = self.by_open.get_mut(&open) else { return false };
        let before = watch.requests.len();
        watch.requests.retain(|waiting| *waiting != operation);
        watch.requests.len() != before
    }

    /// Takes back all requests that wait on a directory which is being deleted; its watches stay.
    pub fn interrupt(&mut self, open: OpenId) -> Vec<OperationId> {
        self.by_open
            .get_mut(&open)
            .map(|watch| std::mem::take(&mut watch.requests).into())
            .unwrap_or_default()
    }

    /// The directory of an open has another path.
    pub fn moved(&mut self, open: OpenId, to: &[u16]) {
        let Some(watch) = self.by_open.get_mut(&open) else { return };
        if let Some(opens) = self.by_path.get_mut(&watch.path) {
            opens.retain(|other| *other != open);
            if opens.is_empty() {
                self.by_path.remove(&watch.path);
            }
        }
        watch.path = to.into();
        self.by_path.entry(to.into()).or_default().push(open);
    }
}

impl Watch {
    fn add(&mut self, action: u32, relative: &[u16]) {
        if self.overflow {
            return;
        }
        // The same change twice says nothing new.
        if self
            .changes
            .last()
            .is_some_and(|(last, name)| *last == action && action == MODIFIED && **name == *relative)
        {
            return;
        }
        // FILE_NOTIFY_INFORMATION: 12 bytes and the name, to a multiple of 4.
        let bytes = (12 + 2 * relative.len()).next_multiple_of(4);
        if self.bytes + bytes > self.bytes_max || self.changes.len() >= CHANGES_MAX {
            self.overflow = true;
            self.changes = Vec::new();
            self.bytes = 0;
            return;
        }
        self.bytes += bytes;
        self.changes.push((action, relative.into()));
    }

    fn take(&mut self) -> Changes {
        self.overflow = false;
        self.bytes = 0;
        std::mem::take(&mut self.changes)
    }
}
