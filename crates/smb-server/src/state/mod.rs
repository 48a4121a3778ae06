//! State that the server holds for its clients: connections, sessions, opens, leases, and the budgets
//! charged for them.
//!
//! [`State`] is the sum of its parts, and each part states its invariant. Commands change the parts;
//! this file has the changes of several parts, since the end of one ends others. Nothing in this module
//! knows a command or a message.

pub(crate) mod arena;
pub(crate) mod bindings;
pub(crate) mod bounded;
pub(crate) mod budget;
pub(crate) mod client_figures;
pub(crate) mod clock;
pub(crate) mod connections;
pub(crate) mod counters;
pub(crate) mod credits;
pub(crate) mod keys;
pub(crate) mod latencies;
pub(crate) mod leases;
pub(crate) mod opens;
pub(crate) mod parting;
pub(crate) mod pipe;
pub(crate) mod policy;
pub(crate) mod proof;
pub(crate) mod session_shares;
pub(crate) mod sessions;
pub(crate) mod setups;
pub(crate) mod share_figures;
pub(crate) mod share_uses;
pub(crate) mod tree;
pub(crate) mod volumes;
pub(crate) mod waiting;

use crate::config::Config;
use crate::directory::Directory;
use crate::logon::audit::LogonAudit;
use crate::logon::guard::LogonGuard;
use bounded::Bounded;
use budget::{Charge, Memory};
use clock::WallClock;
use connections::Connections;
use counters::Counters;
use keys::{LeaseName, OpenKey, RequestKey, SessionKey, VolumeSlot};
use latencies::Latencies;
use leases::{BreakStep, Leases};
use opens::{Open, OpenKind, Opens};
use pipe::PipeChange;
use sessions::Sessions;
use setups::Setups;
use share_figures::AllShareFigures;
use types::{FileTime, Monotonic, PeerHost};
use volume::backend::{Backend, OpenId, Operation};
use volumes::{UNATTENDED, Volumes};

/// Fills a slice with unpredictable bytes.
pub type RandomSource = Box<dyn FnMut(&mut [u8])>;

/// Requests that a command has made ready. They continue before the command itself is answered.
pub(crate) enum Wake {
    /// The READs that wait for this pipe to have something to read.
    Readers(OpenKey),
    /// Requests that waited for an open now closed: READs of a pipe, the next requests of an enumeration.
    WaitedForClosed(Vec<RequestKey>),
    /// The next requests of this open's enumeration.
    Enumeration(OpenKey),
    /// The break of this lease, which now has an open that can receive it; no request.
    Break(LeaseName, BreakStep),
}

/// Facts about clients that are already in the log, so that no request repeats them. Only the last are
/// remembered.
pub(crate) struct ToldOnce {
    /// Names of other servers in clients' logons.
    pub other_names: Bounded<String, ()>,
    /// Hosts that sent requests without the signature that they need.
    pub unsigned: Bounded<PeerHost, ()>,
}

impl Default for ToldOnce {
    fn default() -> Self {
        const REMEMBERED: usize = 64;
        Self { other_names: Bounded::new(REMEMBERED), unsigned: Bounded::new(REMEMBERED) }
    }
}

/// State of the server. Invariants over its parts:
///
/// - An open belongs to one session and one of its tree connects, and is among that session's opens until [`Self::forget_open`].
/// - A session is among the sessions of each connection that it has a channel on, until [`Self::end_session`].
/// - Every charge to [`Self::memory`] or to a budget is released when its holder ends.
pub(crate) struct State<B, D> {
    pub config: Config,
    pub directory: D,
    pub random: RandomSource,
    pub clock: WallClock,
    pub volumes: Volumes<B>,
    pub connections: Connections,
    pub sessions: Sessions,
    /// Logons in progress.
    pub setups: Setups,
    pub opens: Opens,
    pub leases: Leases,
    pub memory: Memory,
    pub logon_guard: LogonGuard,
    pub logon_audit: LogonAudit,
    pub told: ToldOnce,
    pub counters: Counters,
    pub latencies: Latencies,
    pub share_figures: AllShareFigures,
    /// Changes that pipes wait for: at most one of each.
    pub pipe_changes: Vec<PipeChange>,
    /// In the order in which commands found them.
    pub woken: Vec<Wake>,
}

impl<B: Backend, D: Directory> State<B, D> {
    /// # Panics
    /// If the limits let an answer be longer than a message can be.
    pub fn new(config: Config, directory: D, random: RandomSource, now: Monotonic, wall: FileTime) -> Self {
        assert!(config.limits.are_possible(), "an answer of the largest payload fits one message");
        let limits = &config.limits;
        Self {
            clock: WallClock::new(now, wall),
            volumes: Volumes::new(),
            connections: Connections::default(),
            sessions: Sessions::new(limits.sessions, limits.session_bytes()),
            setups: Setups::new(limits),
            opens: Opens::new(limits.opens),
            leases: Leases::default(),
            memory: Memory::new(limits.bytes_in_flight, limits.parked_bytes),
            logon_guard: LogonGuard::default(),
            logon_audit: LogonAudit::default(),
            told: ToldOnce::default(),
            counters: Counters::default(),
            latencies: Latencies::default(),
            share_figures: AllShareFigures::default(),
            pipe_changes: Vec::new(),
            woken: Vec::new(),
            config,
            directory,
            random,
        }
    }

    /// Drops the wire identity of an open without telling the volume. Requests of this server that wait for
    /// it are refused.
    pub fn forget_open(&mut self, key: OpenKey) -> Option<Open> {
        let mut open = self.opens.remove(key)?;
        let mut waiting = std::mem::take(&mut open.enumeration.queued);
        if let OpenKind::Pipe(pipe) = &mut open.kind {
            self.memory.release(std::mem::replace(&mut pipe.charge, Charge::none()));
            waiting.extend(pipe.take_readers());
        }
        if !waiting.is_empty() {
            self.woken.push(Wake::WaitedForClosed(waiting.into()));
        }
        if let Some(session) = self.sessions.get_mut(open.session) {
            session.opens.remove(open.tree_id, key, open.volume_open().is_none());
        }
        self.leases.forget_open(&open);
        Some(open)
    }

    /// Removes a tree connect and closes its opens.
    pub fn end_tree(&mut self, session: SessionKey, tree_id: u32, now: Monotonic) {
        for key in self.sessions.disconnect_tree(session, tree_id) {
            let Some(open) = self.forget_open(key) else { continue };
            if let Some(name) = open.volume_open() {
                self.volumes.close(name, now);
            }
        }
    }

    /// Removes a session with everything it holds, except for durable opens: they wait for their client,
    /// also after a LOGOFF (MS-SMB2 3.3.5.6).
    pub fn end_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.remove(key) else { return };
        self.counters.sessions_ended += 1;
        for key in session.opens.keys() {
            let Some(open) = self.forget_open(key) else { continue };
            self.opens.keep_position(&open);
        }
        for channel in &session.channels {
            self.connections.drop_session(channel.connection, key);
        }
        self.volumes.end_session(key.into(), self.clock.set_at());
    }

    /// Ends a session without its client's request, and its connections if they carry no other. False:
    /// there is none.
    pub fn close_session(&mut self, key: SessionKey) -> bool {
        let Some(found) = self.sessions.get(key) else { return false };
        let connections: Vec<_> = found.channels.iter().map(|channel| channel.connection).collect();
        self.end_session(key);
        for connection in connections {
            self.connections.close_idle(connection);
        }
        true
    }

    /// Closes an open without its client's request. False: there is none.
    pub fn close_open(&mut self, key: OpenKey, now: Monotonic) -> bool {
        let Some(open) = self.forget_open(key) else { return false };
        if let Some((volume, name)) = open.volume_open()
            && let Some(backend) = self.volumes.get_mut(volume)
        {
            backend.submit(UNATTENDED, Operation::ForceClose { open: name }, now);
        }
        true
    }

    /// Notes that the volume has closed an open.
    pub fn closed_by_volume(&mut self, volume: VolumeSlot, open: OpenId) {
        self.opens.take_position((volume, open));
        if let Some(key) = self.opens.of_volume((volume, open)) {
            self.forget_open(key);
        }
    }
}
