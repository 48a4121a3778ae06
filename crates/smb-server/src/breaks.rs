//! What the server says unasked: that an oplock or a lease breaks (MS-SMB2 3.3.4.6, 3.3.4.7).
//!
//! Promises: a break that its holder has yet to acknowledge is told again on another channel where the one that carried it dies.

use crate::connection::Connection;
use crate::directory::Directory;
use crate::request::{Body, Hashed, Response};
use crate::server::Server;
use crate::session::SessionState;
use smallvec::SmallVec;
use smb::wire::{
    Command, Guid, Header, HeaderFlags, LEASE_BREAK_ACK_REQUIRED, LeaseBreakNotificationBody,
    OPLOCK_LEVEL_II, OPLOCK_LEVEL_NONE, OplockBreakBody, Put, U64,
};
use std::collections::{HashMap, HashSet};
use volume::backend::{Backend, CacheGrant, LeaseState, OpenId, OplockLevel};

/// What breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Breaking {
    /// The oplock of this open of a volume.
    Oplock(usize, OpenId),
    /// The lease of a client, by its key.
    Lease(Guid, Guid),
}

/// A break that was told, and not acknowledged yet.
#[derive(Debug, Clone, Copy)]
struct Told {
    connection: u64,
    step: BreakStep,
}

#[derive(Debug, Clone, Copy)]
enum BreakStep {
    Oplock(OplockLevel),
    Lease { from: LeaseState, to: LeaseState, epoch: u16 },
}

/// Breaks to be acknowledged, and which connection carried each.
#[derive(Default)]
pub(crate) struct ToldBreaks {
    by_break: HashMap<Breaking, Told>,
    by_connection: HashMap<u64, HashSet<Breaking>>,
}

impl ToldBreaks {
    fn insert(&mut self, breaking: Breaking, told: Told) {
        self.remove(&breaking);
        self.by_connection.entry(told.connection).or_default().insert(breaking);
        self.by_break.insert(breaking, told);
    }

    /// The break is acknowledged, or its holder is gone.
    pub fn remove(&mut self, breaking: &Breaking) {
        let Some(told) = self.by_break.remove(breaking) else { return };
        if let Some(carried) = self.by_connection.get_mut(&told.connection) {
            carried.remove(breaking);
            if carried.is_empty() {
                self.by_connection.remove(&told.connection);
            }
        }
    }

    /// Forgets the breaks that a connection carried.
    fn take_of(&mut self, connection: u64) -> Vec<(Breaking, BreakStep)> {
        let carried = self.by_connection.remove(&connection).unwrap_or_default();
        let told = |breaking| Some((breaking, self.by_break.remove(&breaking)?.step));
        carried.into_iter().filter_map(told).collect()
    }
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// Tells the holder of an oplock that it breaks (MS-SMB2 3.3.4.6).
    pub(crate) fn send_oplock_break(&mut self, volume: usize, open: OpenId, to: OplockLevel) {
        let Some(key) = self.by_volume_open.get(&(volume, open)).copied() else { return };
        let Some(found) = self.opens.get(key) else { return };
        let file_id = found.file_id(key);
        let session_key = found.session;
        let Some(session) = self.sessions.get(session_key) else { return };
        let sealed_by = if session.encrypts(found.tree_id) { session_key } else { 0 };
        let opened_on = session.channel(found.connection);
        let carrier = opened_on.or_else(|| session.channels.first());
        let Some(connection) = carrier.map(|channel| channel.connection) else { return };
        // Level II goes without being acknowledged.
        if found.cache != CacheGrant::Oplock(OplockLevel::LevelII) {
            self.told
                .insert(Breaking::Oplock(volume, open), Told { connection, step: BreakStep::Oplock(to) });
        }
        let level = if to == OplockLevel::LevelII { OPLOCK_LEVEL_II } else { OPLOCK_LEVEL_NONE };
        let mut body = Vec::new();
        body.put(&OplockBreakBody { oplock_level: level, file_id, ..Default::default() });
        self.counters.oplock_breaks += 1;
        self.send_unasked(connection, body, sealed_by);
    }

    /// Tells a client that a lease of its breaks (MS-SMB2 3.3.4.7).
    pub(crate) fn send_lease_break(
        &mut self,
        client: Guid,
        key: Guid,
        from: LeaseState,
        to: LeaseState,
        acknowledge: bool,
        epoch: u16,
    ) {
        let encrypt = self.leases.get(&(client, key)).is_some_and(|home| home.encrypt);
        let sealer = |connection: &u64| self.sealing_session(self.connections.get(*connection)?);
        // A lease is its client's, not a connection's: as Windows does, the oldest is told, whichever asked for it.
        let carrier = self.clients.oldest_first(client).find(|found| !encrypt || sealer(found).is_some());
        let Some(connection) = carrier else { return };
        let sealed_by = if encrypt { sealer(&connection).unwrap_or(0) } else { 0 };
        if acknowledge {
            let step = BreakStep::Lease { from, to, epoch };
            self.told.insert(Breaking::Lease(client, key), Told { connection, step });
        }
        let mut body = Vec::new();
        body.put(&LeaseBreakNotificationBody {
            new_epoch: epoch.into(),
            flags: if acknowledge { LEASE_BREAK_ACK_REQUIRED } else { 0 }.into(),
            lease_key: key,
            current_lease_state: from.bits().into(),
            new_lease_state: to.bits().into(),
            ..Default::default()
        });
        self.counters.lease_breaks += 1;
        self.send_unasked(connection, body, sealed_by);
    }

    /// A session of this connection that can encrypt.
    fn sealing_session(&self, connection: &Connection) -> Option<u64> {
        connection.sessions.iter().copied().find(|key| {
            self.sessions
                .get(*key)
                .is_some_and(|session| session.state == SessionState::Valid && session.sealing.is_some())
        })
    }

    /// Tells again what `connection` carried to its end, if somebody is left to be told.
    pub(crate) fn tell_again(&mut self, connection: u64) {
        for (breaking, step) in self.told.take_of(connection) {
            match (breaking, step) {
                (Breaking::Oplock(volume, open), BreakStep::Oplock(to)) => {
                    self.send_oplock_break(volume, open, to);
                }
                (Breaking::Lease(client, key), BreakStep::Lease { from, to, epoch }) => {
                    self.send_lease_break(client, key, from, to, true, epoch);
                }
                _ => {}
            }
        }
    }

    fn send_unasked(&mut self, connection: u64, body: Vec<u8>, sealed_by: u64) {
        let mut header = Header::new(Command::OplockBreak);
        header.flags = HeaderFlags::SERVER_TO_REDIR.bits().into();
        header.message_id = U64::MAX_VALUE;
        let (hashed, invalidate) = (Hashed::No, None);
        let body = Body::Bytes(body);
        let response = Response { header, body, proof: None, ends_session: 0, hashed, invalidate };
        self.send(connection, SmallVec::from_iter([response]), sealed_by);
    }
}
