//! Change notification: which opens watch which directories, and the changes not yet reported to them
//! (MS-FSA 2.1.5.11, MS-SMB2 3.3.5.19).
//!
//! Paths are those of the volume, in the stored case. Promises: a watch keeps at most as much as its
//! first request allows, and all together keep no more than [`KEPT_BYTES_MAX`]; beyond, a watch reports
//! that everything may have changed. A user has no more watches than [`WATCHES_PER_USER_MAX`], as each
//! costs every change below it. A change takes one walk along its path, for any number of watches, and
//! reports its steps. Never touches files.

use super::agenda::Agenda;
use super::opens::Opens;
use super::path;
use super::suspend::{Outcome, Suspend};
use super::tasks::Wait;
use super::turn::OPERATION_STEPS;
use crate::backend::{OpenId, OperationId, Reply, WideString};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use types::{NtStatus, Sid};

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

/// Most changes kept for one watch, even if it asked for more.
const CHANGES_MAX: usize = 4096;
/// Memory of the changes of all watches; a user's take no more of it than is free.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Memory that a change takes beside its name.
const CHANGE_BYTES: usize = 48;
const WATCHES_MAX: usize = 16_384;
const WATCHES_PER_USER_MAX: usize = 4096;

/// A request to watch an open's directory.
#[derive(Debug, Clone, Copy)]
pub struct NotifyRequest {
    pub operation: OperationId,
    pub open: OpenId,
    pub filter: u32,
    pub tree: bool,
    pub bytes_max: u32,
}

/// The directory to watch, and the user of the watch.
pub struct Asked<'a> {
    pub open: OpenId,
    pub user: &'a Sid,
    pub path: &'a [u16],
    pub filter: u32,
    pub tree: bool,
    pub bytes_max: u32,
}

/// The changes that a request waits for, or is answered with.
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
    /// Bytes of memory of the changes.
    kept_bytes: usize,
    user: Sid,
    requests: VecDeque<OperationId>,
    /// Whether changes came between requests, or the one that waits can be answered.
    ready: bool,
}

/// All watches.
///
/// Invariant: a watch is indexed by its open and by the hash of its path, and counts for its user;
/// `kept_bytes` is the sum of what watches keep. A waiting request is parked in [`super::tasks`] with
/// [`Wait::Notify`].
#[derive(Debug, Default)]
pub struct Watches {
    by_open: HashMap<OpenId, Watch>,
    by_path: HashMap<PathHash, Vec<OpenId>>,
    hashes: RandomState,
    /// Steps (see [`super::turn`]) that changes took since the last call of [`Self::take_steps`].
    steps: u32,
    /// Watches that have something to answer.
    ready: VecDeque<OpenId>,
    by_user: HashMap<Sid, WatchUse>,
    kept_bytes: usize,
}

/// The hash of a directory's path, under a key of this process: one walk along a path yields the hashes
/// of all its directories. Two paths may have the same hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PathHash(u64);

/// Units of a path that are walked along in one step.
const UNITS_PER_STEP: usize = 8;
/// Steps of examining one watch.
const WATCH_STEPS: u32 = 2;

/// Resources taken by a user's watches.
#[derive(Debug, Default)]
struct WatchUse {
    watches: usize,
    kept_bytes: usize,
}

impl Watches {
    pub fn is_empty(&self) -> bool {
        self.by_open.is_empty()
    }

    /// Takes a request for an open directory: answers it, or parks it until a change.
    ///
    /// # Errors
    /// DELETE_PENDING if the directory is marked for deletion; INSUFFICIENT_RESOURCES if too much waits
    /// already.
    pub fn watch(
        &mut self,
        request: NotifyRequest,
        opens: &mut Opens,
        agenda: &mut Agenda,
    ) -> Result<Outcome, Suspend> {
        let NotifyRequest { operation, open: id, filter, tree, bytes_max } = request;
        opens.open_to_list(id)?;
        let open = opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
        let node = opens.file(open.stream.file);
        if let Some(link) = &open.link
            && node.is_some_and(|node| node.is_deleting_link(link))
        {
            return Err(NtStatus::DELETE_PENDING.into());
        }
        if agenda.tasks.is_full() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
        }
        let user = &open.token.user;
        let asked = Asked { open: id, user, path: &open.path, filter, tree, bytes_max };
        match self.request(operation, &asked)? {
            Some(changes) => Ok(Outcome::Reply(Reply::Notify(changes))),
            None => {
                agenda.park(operation, None, Wait::Notify(id), false);
                Ok(Outcome::Later)
            }
        }
    }

    /// Answers requests whose directories changed, until the turn is spent.
    pub fn answer(&mut self, agenda: &mut Agenda) {
        while !agenda.turn.is_spent()
            && let Some((operation, changes)) = self.next_ready()
        {
            agenda.turn.spend(OPERATION_STEPS);
            agenda.finish(operation, Ok(Reply::Notify(changes)));
        }
    }

    /// Ends the watch of an open that goes, or whose client does.
    pub fn end(&mut self, open: OpenId, agenda: &mut Agenda) {
        for operation in self.remove(open) {
            agenda.finish(operation, Err(NtStatus::NOTIFY_CLEANUP));
        }
    }

    /// Ends the requests that wait on a directory which is being deleted; its watch stays.
    pub fn interrupt(&mut self, open: OpenId, agenda: &mut Agenda) {
        let Some(watch) = self.by_open.get_mut(&open) else { return };
        for operation in std::mem::take(&mut watch.requests) {
            agenda.finish(operation, Err(NtStatus::DELETE_PENDING));
        }
    }

    /// Queues a request. The first one of an open fixes filter, depth and size of the buffer. Returns an
    /// immediate answer, if any (empty: too much changed).
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES beyond the limit of watches.
    fn request(&mut self, operation: OperationId, asked: &Asked<'_>) -> Result<Option<Changes>, NtStatus> {
        if !self.by_open.contains_key(&asked.open) {
            self.insert(asked)?;
        }
        let Some(watch) = self.by_open.get_mut(&asked.open) else { return Err(NtStatus::INTERNAL_ERROR) };
        if watch.requests.is_empty() && (watch.overflow || !watch.changes.is_empty()) {
            return Ok(Some(self.take(asked.open)));
        }
        watch.requests.push_back(operation);
        Ok(None)
    }

    fn insert(&mut self, asked: &Asked<'_>) -> Result<(), NtStatus> {
        let count = self.by_user.get(asked.user).map_or(0, |user| user.watches);
        if count >= WATCHES_PER_USER_MAX.min(WATCHES_MAX.saturating_sub(self.by_open.len())) {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        self.by_user.entry(asked.user.clone()).or_default().watches += 1;
        self.by_path.entry(self.hash_of(asked.path)).or_default().push(asked.open);
        let watch = Watch {
            path: asked.path.into(),
            filter: asked.filter,
            tree: asked.tree,
            bytes_max: asked.bytes_max as usize,
            changes: Vec::new(),
            bytes: 0,
            overflow: false,
            kept_bytes: 0,
            user: asked.user.clone(),
            requests: VecDeque::new(),
            ready: false,
        };
        self.by_open.insert(asked.open, watch);
        Ok(())
    }

    /// Takes the changes that a watch has kept.
    fn take(&mut self, open: OpenId) -> Changes {
        let Some(watch) = self.by_open.get_mut(&open) else { return Changes::new() };
        let before = watch.kept_bytes;
        let changes = watch.take();
        self.kept_bytes -= before;
        if let Some(user) = self.by_user.get_mut(&watch.user) {
            user.kept_bytes -= before;
        }
        changes
    }

    /// Notes that something happened to the entry at `path`.
    pub fn changed(&mut self, path: &[u16], action: u32, filter: u32) {
        if self.by_open.is_empty() || path.is_empty() {
            return;
        }
        self.steps = self.steps.saturating_add((path.len() / UNITS_PER_STEP) as u32);
        let parent_units = path::split_last(path).0.len();
        for (directory_units, directory) in self.watched_directories(path) {
            let direct = directory_units == parent_units;
            for open in self.by_path.get(&directory).into_iter().flatten() {
                self.steps = self.steps.saturating_add(WATCH_STEPS);
                let Some(watch) = self.by_open.get_mut(open) else { continue };
                if watch.filter & filter == 0 || !(direct || watch.tree) {
                    continue;
                }
                // Another directory's path may have the same hash.
                if watch.path.len() != directory_units {
                    continue;
                }
                let Some(relative) = path::strip_directory(path, &watch.path) else { continue };
                let Some(user) = self.by_user.get_mut(&watch.user) else { continue };
                let before = watch.kept_bytes;
                let (others, free) =
                    (self.kept_bytes - before, KEPT_BYTES_MAX.saturating_sub(self.kept_bytes));
                watch.add(action, relative, free.saturating_sub(user.kept_bytes));
                self.kept_bytes = others + watch.kept_bytes;
                user.kept_bytes = user.kept_bytes - before + watch.kept_bytes;
                if !watch.ready {
                    watch.ready = true;
                    self.ready.push_back(*open);
                }
            }
        }
    }

    /// Lists the possibly watched directories of `path`, by the length of their paths, the nearest first.
    fn watched_directories(&self, path: &[u16]) -> Vec<(usize, PathHash)> {
        let mut found = Vec::new();
        let mut hasher = self.hashes.build_hasher();
        let mut look_at = |units: usize, hash: u64| {
            if self.by_path.contains_key(&PathHash(hash)) {
                found.push((units, PathHash(hash)));
            }
        };
        look_at(0, hasher.finish());
        for (at, unit) in path.iter().enumerate() {
            if *unit == u16::from(b'\\') {
                look_at(at, hasher.finish());
            }
            hasher.write_u16(*unit);
        }
        found.reverse();
        found
    }

    fn hash_of(&self, directory: &[u16]) -> PathHash {
        let mut hasher = self.hashes.build_hasher();
        directory.iter().for_each(|unit| hasher.write_u16(*unit));
        PathHash(hasher.finish())
    }

    /// Takes the number of steps that changes took since the last call.
    pub fn take_steps(&mut self) -> u32 {
        std::mem::take(&mut self.steps)
    }

    /// Takes a request that can be answered by now, the oldest of its watch, and the changes since the last answer.
    fn next_ready(&mut self) -> Option<(OperationId, Changes)> {
        while let Some(open) = self.ready.pop_front() {
            let Some(watch) = self.by_open.get_mut(&open) else { continue };
            watch.ready = false;
            if let Some(operation) = watch.requests.pop_front() {
                return Some((operation, self.take(open)));
            }
        }
        None
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Removes the watch of an open. Returns the requests that waited.
    fn remove(&mut self, open: OpenId) -> Vec<OperationId> {
        self.take(open);
        let Some(watch) = self.by_open.remove(&open) else { return Vec::new() };
        if let Some(user) = self.by_user.get_mut(&watch.user) {
            user.watches -= 1;
            if user.watches == 0 {
                self.by_user.remove(&watch.user);
            }
        }
        self.leave_path(open, &watch.path);
        watch.requests.into()
    }

    /// Takes a request back that is cancelled. The caller answers it.
    pub fn cancel(&mut self, open: OpenId, operation: OperationId) {
        if let Some(watch) = self.by_open.get_mut(&open) {
            watch.requests.retain(|waiting| *waiting != operation);
        }
    }

    /// Notes that the directory of an open has another path.
    pub fn moved(&mut self, open: OpenId, to: &[u16]) {
        let Some(watch) = self.by_open.get_mut(&open) else { return };
        let before = std::mem::replace(&mut watch.path, to.into());
        self.leave_path(open, &before);
        self.by_path.entry(self.hash_of(to)).or_default().push(open);
    }

    fn leave_path(&mut self, open: OpenId, path: &[u16]) {
        let hash = self.hash_of(path);
        if let Some(opens) = self.by_path.get_mut(&hash) {
            opens.retain(|other| *other != open);
            if opens.is_empty() {
                self.by_path.remove(&hash);
            }
        }
    }
}

impl Watch {
    /// Keeps a change, within the client's limit and `room` bytes of memory.
    fn add(&mut self, action: u32, relative: &[u16], room: usize) {
        if self.overflow {
            return;
        }
        // Repeating the last change adds nothing.
        if self
            .changes
            .last()
            .is_some_and(|(last, name)| *last == action && action == MODIFIED && **name == *relative)
        {
            return;
        }
        // FILE_NOTIFY_INFORMATION: 12 bytes and the name, to a multiple of 4.
        let bytes = (12 + 2 * relative.len()).next_multiple_of(4);
        let kept_bytes = CHANGE_BYTES + 2 * relative.len();
        if self.bytes + bytes > self.bytes_max || self.changes.len() >= CHANGES_MAX || kept_bytes > room {
            self.overflow = true;
            self.changes = Vec::new();
            (self.bytes, self.kept_bytes) = (0, 0);
            return;
        }
        self.bytes += bytes;
        self.kept_bytes += kept_bytes;
        self.changes.push((action, relative.into()));
    }

    fn take(&mut self) -> Changes {
        self.overflow = false;
        (self.bytes, self.kept_bytes) = (0, 0);
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::{ADDED, Asked, FILE_NAME, KEPT_BYTES_MAX, WATCHES_PER_USER_MAX, Watches};
    use crate::backend::{OpenId, OperationId};
    use types::{NtStatus, Sid};

    fn asked(open: u64, user: &Sid) -> Asked<'_> {
        Asked { open: OpenId(open), user, path: &[], filter: FILE_NAME, tree: true, bytes_max: 8 << 20 }
    }

    #[test]
    fn a_user_has_only_so_many_watches_and_others_have_theirs() {
        let (mut watches, user, other) = (Watches::default(), Sid::users(), Sid::network());
        for open in 0..WATCHES_PER_USER_MAX as u64 {
            assert_eq!(watches.request(OperationId(open), &asked(open, &user)), Ok(None));
        }
        let refused = Err(NtStatus::INSUFFICIENT_RESOURCES);
        assert_eq!(watches.request(OperationId(90_000), &asked(90_000, &user)), refused);
        assert_eq!(watches.request(OperationId(90_001), &asked(90_001, &other)), Ok(None));
        watches.remove(OpenId(7));
        assert_eq!(watches.request(OperationId(90_002), &asked(90_000, &user)), Ok(None));
    }

    #[test]
    fn a_change_far_down_takes_one_walk_along_its_path() {
        let (mut watches, user) = (Watches::default(), Sid::users());
        let depth = 16_000;
        let path: Vec<u16> = "a\\".repeat(depth).encode_utf16().chain([1]).collect();
        let nearest = &path[..path.len() - 2];
        for (open, path) in [(1, &[][..]), (2, &path[..1]), (3, nearest)] {
            let asked = Asked { path, ..asked(open, &user) };
            assert_eq!(watches.request(OperationId(open), &asked), Ok(None));
        }
        // A watch of another directory gets nothing.
        let elsewhere = Asked { path: &[2; 9], ..asked(4, &user) };
        assert_eq!(watches.request(OperationId(4), &elsewhere), Ok(None));
        watches.changed(&path, ADDED, FILE_NAME);
        assert!(watches.take_steps() <= path.len() as u32 / 4, "each directory is not walked to anew");
        let told: Vec<_> = std::iter::from_fn(|| watches.next_ready()).collect();
        let expected = [&path[path.len() - 1..], &path[2..], &path[..]];
        assert_eq!(told.len(), expected.len());
        for ((operation, changes), (order, relative)) in told.iter().zip([3, 2, 1].iter().zip(expected)) {
            assert_eq!(operation.0, *order);
            assert_eq!(changes[..], [(ADDED, relative.into())]);
        }
    }

    #[test]
    fn what_watches_keep_of_changes_that_nobody_fetches_is_bounded_and_given_back() {
        let (mut watches, user) = (Watches::default(), Sid::users());
        let count = 100;
        for open in 0..count {
            watches.request(OperationId(open), &asked(open, &user)).unwrap();
        }
        watches.changed(&[1; 10], ADDED, FILE_NAME);
        while watches.next_ready().is_some() {}
        for number in 0..2000 {
            let mut name = vec![1; 200];
            name[0] = number + 2;
            watches.changed(&name, ADDED, FILE_NAME);
            assert!(watches.kept_bytes <= KEPT_BYTES_MAX / 2);
        }
        assert!(watches.kept_bytes > 0);
        for open in 0..count {
            watches.remove(OpenId(open));
        }
        assert_eq!((watches.kept_bytes, watches.by_user.len()), (0, 0));
    }
}
