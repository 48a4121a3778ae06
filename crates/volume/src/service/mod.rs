//! The file server's view of a volume: opens and what they may do to each other.
//!
//! [`Service`] implements [`Backend`] over a [`FileSystem`]: it decides about access, share modes, locks, oplocks, leases, deletion and
//! notification, and lets the file layer do the rest. No clock, no thread, no socket: operations and the time go in, events come out.
//!
//! **How an operation runs.** It is tried from its beginning: first everything is checked, then everything is changed. Where it
//! cannot go on it is parked whole, and tried again from its beginning later: when metadata has come into memory, when a holder has
//! given up what it cached. Locks and notifications wait in their own queues. Data moves without being parked.
//!
//! **How long it runs.** What clients ask for between two polls takes a bounded number of steps ([`turn`]); the rest waits for the next
//! poll, and [`Backend::next_timeout`] says that it is due. A walk over many entries keeps its place and goes on from there.

mod breaks;
mod caching;
mod close;
mod control;
mod copy;
mod create;
mod directory;
mod durable;
mod grant;
mod information;
mod intervals;
mod io;
mod locking;
mod locks;
mod notify;
mod open_existing;
mod opens;
mod owners;
mod path;
mod rename;
mod review;
mod roots;
mod security;
mod share;
mod short_names;
mod tasks;
mod turn;
mod waiting_locks;
mod wildcard;

#[cfg(test)]
pub(crate) mod tests;

use crate::backend::{Backend, Event, Guid, OpenId, Operation, OperationId, Ruling, Standing};
use crate::fs::{Attributes, FileId, FileSystem, FsError, FsEvent, SecurityId, StreamId};
use crate::security::SecurityDescriptor;
use opens::{FileNode, LeaseName, Leases, OpenTable};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use types::{FileTime, Monotonic, NtStatus};

pub use wildcard::PATTERN_UNITS_MAX;

/// Limits that an administrator sets.
#[derive(Debug, Clone, Copy)]
pub struct ServiceConfig {
    /// Opens at once, those whose clients are away included; a user has no more than are free. Beyond, creates answer
    /// TOO_MANY_OPENED_FILES.
    pub opens_max: usize,
    /// Operations that wait for something at once; beyond, they answer INSUFFICIENT_RESOURCES.
    pub parked_max: usize,
    /// Byte-range locks that one open holds or waits for; beyond, LOCK answers INSUFFICIENT_RESOURCES, as beyond the next two.
    pub locks_per_open: usize,
    pub locks_per_session: usize,
    /// Of the whole volume.
    pub locks_max: usize,
    /// How long a durable handle waits for its client where the client does not say.
    pub durable_timeout: Duration,
    /// The longest it waits whatever the client says.
    pub durable_timeout_max: Duration,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            opens_max: 262_144,
            parked_max: 65_536,
            locks_per_open: 4096,
            locks_per_session: 65_536,
            locks_max: 1 << 20,
            durable_timeout: Duration::from_secs(60),
            durable_timeout_max: Duration::from_secs(300),
        }
    }
}

/// What happens at a time, unless something else happened before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The holder of a lease has not acknowledged.
    Lease(LeaseName),
    Oplock(OpenId),
    /// A durable open's client has not come back.
    Disconnected(OpenId),
    /// A write becomes visible in the file's times.
    WriteTime(OpenId),
}

/// Why an operation does not go on.
#[derive(Debug)]
enum Halt {
    Status(NtStatus),
    /// The file layer needs something first.
    Miss,
    /// It goes on in the next turn, since this one is spent.
    Yield,
    /// Somebody has to give up what they cache of this file first.
    Break(FileId),
    /// Opens of this file whose clients were away are being closed: goes on after that.
    Closing(FileId),
    /// A reparse point lies on the path: its data, and how many bytes of path lie behind it.
    Symlink {
        data: Vec<u8>,
        unparsed_bytes: u16,
    },
}

impl From<NtStatus> for Halt {
    fn from(status: NtStatus) -> Self {
        Self::Status(status)
    }
}

impl From<FsError> for Halt {
    fn from(error: FsError) -> Self {
        if error == FsError::Miss { Self::Miss } else { Self::Status(status_of(&error)) }
    }
}

/// What the file layer's errors are called in NT.
fn status_of(error: &FsError) -> NtStatus {
    match error {
        FsError::Miss => NtStatus::INTERNAL_ERROR,
        FsError::NotFound => NtStatus::OBJECT_NAME_NOT_FOUND,
        FsError::Exists => NtStatus::OBJECT_NAME_COLLISION,
        FsError::NotDirectory => NtStatus::NOT_A_DIRECTORY,
        FsError::IsDirectory => NtStatus::FILE_IS_A_DIRECTORY,
        FsError::NotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
        FsError::NameInvalid => NtStatus::OBJECT_NAME_INVALID,
        FsError::Loop => NtStatus::ACCESS_DENIED,
        FsError::TooManyLinks => NtStatus::TOO_MANY_LINKS,
        FsError::TooManyStreams => NtStatus::FILE_SYSTEM_LIMITATION,
        FsError::NoSpace => NtStatus::DISK_FULL,
        FsError::TooLarge | FsError::Invalid(_) => NtStatus::INVALID_PARAMETER,
        FsError::Corrupt { .. } => NtStatus::DATA_ERROR,
        FsError::ReadOnly { .. } => NtStatus::MEDIA_WRITE_PROTECTED,
        FsError::Fenced | FsError::Stopped => NtStatus::VOLUME_DISMOUNTED,
        FsError::Unavailable => NtStatus::DEVICE_NOT_READY,
        FsError::NotAVolume(_) | FsError::OtherFormat(_) => NtStatus::UNRECOGNIZED_VOLUME,
    }
}

/// The file layer behind [`Backend`].
pub struct Service {
    fs: FileSystem,
    config: ServiceConfig,
    now: Monotonic,
    /// What the wall clock showed at a time of the other one.
    wall: (Monotonic, FileTime),
    opens: OpenTable,
    owners: owners::Owners,
    files: HashMap<FileId, FileNode>,
    leases: Leases,
    locks_taken: locks::LocksTaken,
    /// Opens and creates in progress by client and create GUID.
    creates: HashMap<(Guid, Guid), durable::CreateState>,
    short_names: short_names::ShortNames,
    watches: notify::Watches,
    tasks: tasks::Tasks,
    turn: turn::Turn,
    in_flight: slab::Slab<io::InFlight>,
    timers: BTreeSet<(Monotonic, Timer)>,
    events: Vec<Event>,
    fs_events: Vec<FsEvent>,
    descriptors: Descriptors,
    /// Files and streams without a name and without opens, whose space is still to be given back.
    reclaims: VecDeque<StreamId>,
    opened: bool,
    failed: Option<FsError>,
}

/// Rounds of one poll.
const ROUNDS_MAX: usize = 64;
/// Files and streams whose space is tried to be given back in one round.
const RECLAIMS_AT_ONCE: usize = 64;
/// Marks the whole file in [`Service::reclaims`].
const WHOLE_FILE: u32 = u32::MAX;
/// Descriptors kept in parsed form, and what they take on disk: in memory it is some ten times as much.
const DESCRIPTORS_MAX: usize = 4096;
const DESCRIPTOR_BYTES_MAX: usize = 4 << 20;

/// Parsed descriptors.
#[derive(Default)]
struct Descriptors {
    parsed: HashMap<SecurityId, Rc<SecurityDescriptor>>,
    stored_bytes: usize,
}

impl Descriptors {
    fn insert(&mut self, id: SecurityId, parsed: Rc<SecurityDescriptor>, stored_bytes: usize) {
        if self.parsed.len() >= DESCRIPTORS_MAX || self.stored_bytes + stored_bytes > DESCRIPTOR_BYTES_MAX {
            *self = Self::default();
        }
        self.parsed.insert(id, parsed);
        self.stored_bytes += stored_bytes;
    }
}

impl Service {
    /// A service on an opened or opening file system. `wall` is the wall clock's time at `now`.
    pub fn new(fs: FileSystem, config: ServiceConfig, now: Monotonic, wall: FileTime) -> Self {
        Self {
            fs,
            config,
            now,
            wall: (now, wall),
            opens: OpenTable::default(),
            owners: owners::Owners::default(),
            files: HashMap::new(),
            leases: HashMap::new(),
            locks_taken: locks::LocksTaken::default(),
            creates: HashMap::new(),
            short_names: short_names::ShortNames::default(),
            watches: notify::Watches::default(),
            tasks: tasks::Tasks::default(),
            turn: turn::Turn::default(),
            in_flight: slab::Slab::new(),
            timers: BTreeSet::new(),
            events: Vec::new(),
            fs_events: Vec::new(),
            descriptors: Descriptors::default(),
            reclaims: VecDeque::new(),
            opened: false,
            failed: None,
        }
    }

    /// The wall clock shows `wall` at `now`: to be told every now and then, since it may be set.
    pub fn set_wall_clock(&mut self, now: Monotonic, wall: FileTime) {
        self.wall = (now, wall);
    }

    /// The file layer below.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// The file layer below, for checks and maintenance.
    pub fn file_system_mut(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    /// Whether the volume has told that it can be used.
    pub fn is_open(&self) -> bool {
        self.opened
    }

    /// Why the volume stopped, where it did.
    pub fn failure(&self) -> Option<&FsError> {
        self.failed.as_ref()
    }

    /// Opens at the moment.
    pub fn open_count(&self) -> usize {
        self.opens.len()
    }

    /// What is open: identifier, path from the volume's root, granted access, owner's session.
    pub fn list_opens(&self) -> Vec<OpenSummary> {
        self.opens
            .iter()
            .map(|(id, open)| OpenSummary {
                open: id,
                path: open.path.clone(),
                access: open.access,
                session: open.session,
                locks: self
                    .files
                    .get(&open.stream.file)
                    .and_then(|node| node.streams.get(&open.stream.index))
                    .map_or(0, |stream| stream.locks.count(id)),
                disconnected: open.disconnected.is_some(),
            })
            .collect()
    }

    fn time(&self) -> FileTime {
        let passed = self.now.since(self.wall.0).as_nanos() / 100;
        FileTime(self.wall.1.0.saturating_add(passed as u64))
    }

    fn advance(&mut self, now: Monotonic) {
        self.now = self.now.max(now);
    }

    /// The parsed descriptor of a file, for one check of access; one without any is open to all.
    fn descriptor(&mut self, attributes: &Attributes) -> Result<Rc<SecurityDescriptor>, Halt> {
        let id = attributes.security;
        let aces = |parsed: &SecurityDescriptor| parsed.dacl.as_ref().map_or(0, |acl| acl.aces.len()) as u32;
        if let Some(parsed) = self.descriptors.parsed.get(&id) {
            self.turn.spend(aces(parsed));
            return Ok(parsed.clone());
        }
        let bytes = self.fs.security(id)?;
        let parsed = if bytes.is_empty() {
            SecurityDescriptor::default()
        } else {
            SecurityDescriptor::parse(&bytes).map_err(|_| NtStatus::DATA_ERROR)?
        };
        // Each is taken apart, and then looked at.
        self.turn.spend(3 * aces(&parsed));
        let parsed = Rc::new(parsed);
        self.descriptors.insert(id, parsed.clone(), bytes.len());
        Ok(parsed)
    }

    fn poll_file_system(&mut self) {
        let mut events = std::mem::take(&mut self.fs_events);
        self.fs.poll(self.now, &mut events);
        for event in events.drain(..) {
            match event {
                FsEvent::Opened => {
                    self.opened = true;
                    self.tasks.retry_misses();
                }
                FsEvent::Failed(error) => {
                    self.failed = Some(error);
                    self.tasks.retry_misses();
                }
                FsEvent::Retry => self.tasks.retry_misses(),
                FsEvent::Read { token, result } => self.read_done(token, result),
                FsEvent::Written { token, result } => self.written(token, result),
                FsEvent::Flushed { token, result } => self.flushed(token, result),
            }
        }
        self.fs_events = events;
    }

    /// Gives back the space of what nobody can reach any more.
    fn reclaim(&mut self) {
        if self.reclaims.is_empty() {
            return;
        }
        let busy: HashSet<FileId> =
            self.in_flight.iter().filter_map(|(_, io)| Some(io.stream()?.file)).collect();
        for _ in 0..self.reclaims.len().min(RECLAIMS_AT_ONCE) {
            let Some(stream) = self.reclaims.pop_front() else { return };
            let result = if busy.contains(&stream.file) {
                Err(FsError::Miss)
            } else if stream.index == WHOLE_FILE {
                self.fs.reclaim(stream.file)
            } else {
                self.fs.reclaim_stream(stream)
            };
            if result == Err(FsError::Miss) {
                self.reclaims.push_back(stream);
            }
        }
    }

    /// As long as the turn is not spent.
    fn answer_watches(&mut self) {
        while !self.turn.is_spent()
            && let Some((operation, changes)) = self.watches.next_ready()
        {
            self.turn.spend(turn::OPERATION_STEPS);
            self.tasks.forget(operation);
            self.events.push(Event::Done { operation, result: Ok(crate::backend::Reply::Notify(changes)) });
        }
    }
}

/// One open, as an administrator sees it.
#[derive(Debug, Clone)]
pub struct OpenSummary {
    pub open: OpenId,
    pub path: crate::backend::WideString,
    pub access: u32,
    pub session: crate::backend::SessionId,
    pub locks: usize,
    /// Durable, and waiting for its client.
    pub disconnected: bool,
}

impl Backend for Service {
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic) {
        self.advance(now);
        match request {
            Operation::Read { open, range, .. } => self.read(operation, open, range),
            Operation::Write { open, offset, data, write_through, .. } => {
                self.write(operation, open, offset, data, write_through);
            }
            request => self.start(operation, request),
        }
        self.run_ready();
    }

    fn cancel(&mut self, operation: OperationId) {
        self.cancel_operation(operation);
        self.run_ready();
    }

    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, now: Monotonic) {
        self.advance(now);
        self.review_all(judge);
        self.run_ready();
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        self.turn.begin();
        self.tasks.resume_yielded();
        for _ in 0..ROUNDS_MAX {
            self.poll_file_system();
            self.run_ready();
            self.reclaim();
            // Who went on may want something else that is not in memory.
            if !self.fs.wants_poll() {
                break;
            }
        }
        out.append(&mut self.events);
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        if self.tasks.is_due() || self.watches.has_ready() {
            return Some(self.now);
        }
        let own = self.timers.first().map(|(at, _)| *at);
        match (own, self.fs.next_timeout()) {
            (Some(own), Some(below)) => Some(own.min(below)),
            (own, below) => own.or(below),
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        self.advance(now);
        while let Some(&(at, timer)) = self.timers.first() {
            if at > self.now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Lease(name) => self.lease_timed_out(name, at),
                Timer::Oplock(open) => self.oplock_timed_out(open, at),
                Timer::Disconnected(open) => self.disconnected_timed_out(open, at),
                Timer::WriteTime(open) => self.settle_write_time(open),
            }
        }
        self.poll_file_system();
        self.run_ready();
    }
}
