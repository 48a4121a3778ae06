//! The file server's view of a volume: opens and their effects on each other.
//!
//! [`Service`] implements [`Backend`] over a [`FileSystem`]: it decides about access, share modes,
//! locks, oplocks, leases, deletion and notification, and leaves the rest to the file layer. No clock,
//! thread or socket: operations and the time go in, events come out.
//!
//! **How an operation runs** ([`run`]). Each try starts at the beginning: it checks everything first,
//! then changes everything. An operation that cannot continue is parked whole, and tried again from its
//! beginning later: when metadata is in memory, or when a holder has released its caching. Locks and
//! notifications wait in their own queues. Data moves without being parked.
//!
//! **How long it runs.** Clients' operations between two polls take a bounded number of steps
//! ([`turn`]); the rest waits for the next poll, which [`Backend::next_timeout`] makes due. A walk over
//! many entries keeps its place and continues from there.
//!
//! **Ownership.** Each kind of state has a part that owns it, with its invariant above the type:
//!
//! | part | owns |
//! |---|---|
//! | [`Agenda`] | the time, the steps of the turn, timers, operations that wait, events for the server |
//! | [`Opens`] | opens by identifier, file and owner; names and streams deleted with the last open |
//! | [`Caching`] | leases, and the rules by which oplocks and leases are granted and broken |
//! | [`Locks`] | byte-range locks and the requests that wait for them |
//! | [`Watches`] | watched directories, and changes not yet reported |
//! | [`Replays`] | create GUIDs, which identify repeated creates |
//! | [`Records`](records::Records) | changes of opens that outlive the server, until they are in the journal |
//! | [`ShortNames`] | reported 8.3 names |
//! | [`Descriptors`] | security descriptors in parsed form |
//! | [`Transfers`] | operations that the file layer works on |
//! | [`Reclaims`] | deleted files and streams whose space is not freed yet |
//!
//! An operation takes the parts that it touches as arguments; one that touches many takes [`Parts`], which lends them for one try.
//! [`perform`] is the table of operations.

mod access;
mod agenda;
mod cache_state;
mod caching;
mod clock;
mod close;
mod commit;
mod completions;
mod control;
mod copy;
mod create;
mod descriptors;
mod directory;
mod durable;
mod establish;
mod events;
mod file_opens;
mod grant;
mod information;
mod inheritance;
mod intervals;
mod io;
mod lasting;
mod listing;
mod locks;
mod make_file;
mod notify;
mod open;
mod open_existing;
mod open_record;
mod open_table;
mod opens;
mod options;
mod owners;
mod parts;
mod party;
mod path;
mod perform;
mod persist_opens;
mod propagation;
mod quotas;
mod range_locks;
mod ready;
mod reclaims;
mod records;
mod recover_opens;
mod rename;
mod rename_stream;
mod replays;
mod reply_caching;
mod review;
mod roots;
mod run;
mod security;
mod sessions;
mod set_information;
mod share;
mod short_names;
mod suspend;
mod tasks;
mod timers;
mod transfers;
mod tunnel;
mod turn;
mod waiting_locks;
mod walk;
mod wildcard;

#[cfg(test)]
pub(crate) mod tests;

use crate::backend::{
    Backend, Event, OpenId, Operation, OperationId, Ruling, SessionId, Standing, WideString,
};
use crate::fs::{FileSystem, FsError, FsEvent, OpenStateKey};
use agenda::Agenda;
use caching::Caching;
use clock::Clock;
use descriptors::Descriptors;
use locks::{LockLimits, Locks};
use notify::Watches;
use opens::Opens;
use parts::{DurableTimeouts, Parts};
use reclaims::Reclaims;
use recover_opens::RecoverOpens;
use replays::Replays;
use short_names::ShortNames;
use std::time::Duration;
use timers::Timer;
use transfers::Transfers;
use tunnel::Tunnel;
use types::{FileTime, Monotonic};

pub use lasting::LastingOpens;
pub use propagation::{Propagation, PropagationReport, PropagationStep};
pub use wildcard::PATTERN_UNITS_MAX;

/// Limits that an administrator sets.
#[derive(Debug, Clone)]
pub struct ServiceConfig {
    /// Limit of opens, including those of disconnected clients; a user has no more than are free. Beyond
    /// it, creates answer TOO_MANY_OPENED_FILES.
    pub opens_max: usize,
    /// Limit of waiting operations; beyond it, operations answer INSUFFICIENT_RESOURCES.
    pub parked_max: usize,
    /// Byte-range locks that one open holds or waits for; beyond, LOCK answers INSUFFICIENT_RESOURCES, as beyond the next two.
    pub locks_per_open: usize,
    /// Byte-range locks that all opens of one session hold or wait for.
    pub locks_per_session: usize,
    /// Byte-range locks of the whole volume.
    pub locks_max: usize,
    /// The time for which a durable handle waits for its client if the client does not say.
    pub durable_timeout: Duration,
    /// Longest timeout that a client may request.
    pub durable_timeout_max: Duration,
    /// Count of opens that outlast their connections, over all volumes with the same one.
    pub lasting: LastingOpens,
}

/// Opens of a volume if an administrator does not say.
const OPENS_MAX: usize = 262_144;

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            opens_max: OPENS_MAX,
            parked_max: 65_536,
            locks_per_open: 4096,
            locks_per_session: 65_536,
            locks_max: 1 << 20,
            durable_timeout: Duration::from_secs(60),
            durable_timeout_max: Duration::from_secs(300),
            lasting: LastingOpens::new(OPENS_MAX),
        }
    }
}

/// The file layer behind [`Backend`]: takes operations, passes them to the parts, and polls.
///
/// Invariant: between two calls no operation that could continue waits, unless the turn is spent.
pub struct Service {
    fs: FileSystem,
    opens: Opens,
    caching: Caching,
    locks: Locks,
    watches: Watches,
    names: ShortNames,
    tunnel: Tunnel,
    descriptors: Descriptors,
    replays: Replays,
    transfers: Transfers,
    reclaims: Reclaims,
    agenda: Agenda,
    durable_timeouts: DurableTimeouts,
    /// The file layer's events, kept for its memory.
    fs_events: Vec<FsEvent>,
    /// Recovery of opens that outlived the last start, until it is done.
    recover_opens: Option<RecoverOpens>,
    failed: Option<FsError>,
}

/// Rounds of one poll.
const ROUNDS_MAX: usize = 64;

/// Pause before opens that could not be read for lack of copies are read again.
const RESTORE_PAUSE: Duration = Duration::from_secs(1);

impl Service {
    /// Makes a service on an opened or opening file system. `wall` is the wall clock's time at `now`.
    pub fn new(fs: FileSystem, config: ServiceConfig, now: Monotonic, wall: FileTime) -> Self {
        let limits = LockLimits {
            per_open: config.locks_per_open,
            per_session: config.locks_per_session,
            of_volume: config.locks_max,
        };
        Self {
            fs,
            opens: Opens::new(config.opens_max, config.lasting),
            caching: Caching::default(),
            locks: Locks::new(limits),
            watches: Watches::default(),
            names: ShortNames::default(),
            tunnel: Tunnel::default(),
            descriptors: Descriptors::default(),
            replays: Replays::default(),
            transfers: Transfers::default(),
            reclaims: Reclaims::default(),
            agenda: Agenda::new(Clock::new(now, wall), config.parked_max),
            durable_timeouts: DurableTimeouts {
                usual: config.durable_timeout,
                max: config.durable_timeout_max,
            },
            fs_events: Vec::new(),
            recover_opens: None,
            failed: None,
        }
    }

    /// Sets the wall clock: it shows `wall` at `now`. Call this every now and then, since the clock may be set.
    pub fn set_wall_clock(&mut self, now: Monotonic, wall: FileTime) {
        self.agenda.clock.set_wall(now, wall);
    }

    /// Returns the file layer below.
    pub fn file_system(&self) -> &FileSystem {
        &self.fs
    }

    /// Returns the file layer below, for checks and maintenance.
    pub fn file_system_mut(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    /// Whether the volume has reported that it can be used.
    pub fn is_open(&self) -> bool {
        self.agenda.is_open
    }

    /// Returns why the volume stopped, if it did.
    pub fn failure(&self) -> Option<&FsError> {
        self.failed.as_ref()
    }

    /// Counts the opens.
    pub fn open_count(&self) -> usize {
        self.opens.len()
    }

    /// Lists the opens.
    pub fn list_opens(&self) -> Vec<OpenSummary> {
        self.opens
            .iter()
            .map(|(id, open)| OpenSummary {
                open: id,
                path: open.path.clone(),
                access: open.access,
                session: open.session,
                locks: self.locks.count(open.stream, id),
                disconnected: open.disconnected.is_some(),
            })
            .collect()
    }

    /// Makes all data and metadata durable, before the volume is released; answers `Done` to `operation`.
    pub fn make_durable(&mut self, operation: OperationId) {
        run::make_durable(&mut self.parts(), operation);
    }

    #[inline]
    fn parts(&mut self) -> Parts<'_> {
        Parts {
            fs: &mut self.fs,
            opens: &mut self.opens,
            caching: &mut self.caching,
            locks: &mut self.locks,
            watches: &mut self.watches,
            names: &mut self.names,
            tunnel: &mut self.tunnel,
            descriptors: &mut self.descriptors,
            replays: &mut self.replays,
            transfers: &mut self.transfers,
            reclaims: &mut self.reclaims,
            agenda: &mut self.agenda,
            durable_timeouts: self.durable_timeouts,
        }
    }

    fn poll_file_system(&mut self) {
        let mut events = std::mem::take(&mut self.fs_events);
        self.fs.poll(self.agenda.clock.now(), &mut events);
        for event in events.drain(..) {
            match event {
                FsEvent::Opened => {
                    self.opens.set_incarnation(self.fs.incarnation());
                    self.recover_opens = Some(RecoverOpens::default());
                }
                FsEvent::Failed(error) => {
                    self.agenda.tasks.fail(suspend::status_of(&error));
                    self.failed = Some(error);
                    self.agenda.tasks.retry_misses();
                }
                FsEvent::Retry => self.agenda.tasks.retry_misses(),
                FsEvent::Read { token, result } => completions::read_done(&mut self.parts(), token, result),
                FsEvent::Written { token, result } => completions::written(&mut self.parts(), token, result),
                FsEvent::Flushed { token, result } => io::flushed(&mut self.parts(), token, result),
            }
        }
        self.fs_events = events;
        persist_opens::record_some(&mut self.parts());
    }

    /// Restores the opens that outlived the last start, some of them in each poll. Then operations run.
    fn restore(&mut self) {
        let Some(mut recover_opens) = self.recover_opens.take() else { return };
        match recover_opens.step(&mut self.parts()) {
            Ok(true) => {
                self.agenda.is_open = true;
                self.agenda.tasks.retry_misses();
            }
            Ok(false) | Err(FsError::Miss) => self.recover_opens = Some(recover_opens),
            Err(FsError::Unavailable) => {
                self.recover_opens = Some(recover_opens);
                let at = self.agenda.clock.now().after(RESTORE_PAUSE);
                self.agenda.timers.set(at, Timer::Restore);
            }
            Err(FsError::Corrupt { what, .. }) => self.fs.refuse_open_state(what),
            Err(error) => {
                self.agenda.tasks.fail(suspend::status_of(&error));
                self.failed = Some(error);
            }
        }
    }

    /// Frees files and streams that are unreachable.
    fn reclaim(&mut self) {
        if !self.reclaims.is_empty() {
            self.reclaims.give_back(&mut self.fs, &self.transfers.busy_files());
        }
    }

    fn time_out(&mut self, at: Monotonic, timer: Timer) {
        let mut parts = self.parts();
        match timer {
            Timer::Lease(name) => parts.caching.lease_timed_out(parts.agenda, name, at),
            Timer::Oplock(open) => caching::oplock_timed_out(parts.opens, parts.agenda, open, at),
            Timer::Disconnected(open) => sessions::disconnected_timed_out(&mut parts, open, at),
            Timer::WriteTime(open) => parts.apply_write_time(open),
            Timer::CloseAgain(open) => parts.opens.close_again(open, parts.agenda),
            Timer::Restore => self.restore(),
        }
    }
}

/// Parses bytes of any origin as a record of an open under a key, for fuzzers; returns whether they
/// were one. A parsed record encodes to an equal one.
pub fn parse_open_state(key: &OpenStateKey, bytes: &[u8]) -> bool {
    let record = open_record::StateRecord::decode(key, bytes);
    if let Some(record) = &record {
        let again = open_record::StateRecord::decode(key, &record.encode());
        assert_eq!(again.as_ref(), Some(record), "a record comes back as it was stored");
    }
    record.is_some()
}

/// One open, as an administrator sees it.
#[derive(Debug, Clone)]
pub struct OpenSummary {
    /// Identity of the open, by which it can be closed.
    pub open: OpenId,
    /// Path below the root through which the open was made, without leading `\`.
    pub path: WideString,
    /// Access mask that was granted.
    pub access: u32,
    /// Session that has the open, or had it last if its client is away.
    pub session: SessionId,
    /// Byte-range locks that the open holds.
    pub locks: usize,
    /// Whether it is durable, and waits for its client.
    pub disconnected: bool,
}

impl Backend for Service {
    fn submit(&mut self, operation: OperationId, request: Operation, now: Monotonic) {
        self.agenda.clock.advance(now);
        let mut parts = self.parts();
        match request {
            Operation::Read { open, range, .. } => io::read(&mut parts, operation, open, range),
            Operation::Write { open, offset, data, write_through, .. } => {
                io::write_or_wait(&mut parts, operation, open, offset, data, write_through);
            }
            request => run::start(&mut parts, operation, request),
        }
        run::run_ready(&mut parts);
    }

    fn cancel(&mut self, operation: OperationId) {
        let mut parts = self.parts();
        run::cancel(&mut parts, operation);
        run::run_ready(&mut parts);
    }

    fn review(&mut self, judge: &mut dyn FnMut(&Standing) -> Ruling, now: Monotonic) {
        self.agenda.clock.advance(now);
        review::review(&mut self.opens, &mut self.replays, &mut self.agenda, judge);
        run::run_ready(&mut self.parts());
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        self.agenda.turn.begin();
        self.agenda.tasks.resume_yielded();
        for _ in 0..ROUNDS_MAX {
            self.poll_file_system();
            self.restore();
            run::run_ready(&mut self.parts());
            self.reclaim();
            // Operations that continued may want something else that is not in memory.
            if !self.fs.wants_poll() {
                break;
            }
        }
        self.agenda.events.fetch(out);
    }

    fn lock_count(&self, open: OpenId) -> usize {
        self.opens.get(open).map_or(0, |found| self.locks.count(found.stream, open))
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        let is_due = self.agenda.is_open && self.agenda.tasks.is_due();
        if is_due || self.watches.has_ready() || self.recover_opens.as_ref().is_some_and(RecoverOpens::is_due)
        {
            return Some(self.agenda.clock.now());
        }
        match (self.agenda.timers.next(), self.fs.next_timeout()) {
            (Some(own), Some(below)) => Some(own.min(below)),
            (own, below) => own.or(below),
        }
    }

    fn handle_timeout(&mut self, now: Monotonic) {
        self.agenda.clock.advance(now);
        while let Some((at, timer)) = self.agenda.timers.take_due(self.agenda.clock.now()) {
            self.time_out(at, timer);
        }
        self.poll_file_system();
        run::run_ready(&mut self.parts());
    }
}
