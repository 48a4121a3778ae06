//! What the server counts, and what lists of sessions and open files show: plain numbers and words.

use crate::connection::{ConnectionInfo, Transport};
use crate::directory::Directory;
use crate::server::Server;
use smb::crypto::{CipherId, SigningAlgorithm};
use smb::wire::Command;
use types::{Monotonic, Sid, VolumeId};
use volume::backend::{Backend, CacheGrant, LeaseState, OplockLevel, WideString};

/// Totals since the start.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// By [`Command`]'s number.
    pub requests: [u64; Command::ALL.len()],
    /// Requests answered with an error.
    pub errors: u64,
    pub messages_received: u64,
    pub messages_sent: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Payload of READ and WRITE.
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub connections_opened: u64,
    pub connections_refused: u64,
    pub sessions_ended: u64,
    pub logons: u64,
    pub logons_failed: u64,
    /// Logons whose password was looked at later, because of failures before.
    pub logons_delayed: u64,
    /// Logons whose password was not looked at, because of failures before.
    pub logons_refused: u64,
    /// SESSION_SETUP exchanges that ended because others took their places.
    pub setups_evicted: u64,
    pub opens: u64,
    pub protocol_errors: u64,
    pub bad_signatures: u64,
    pub oplock_breaks: u64,
    pub lease_breaks: u64,
}

/// What there is at this moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    pub connections: usize,
    pub sessions: usize,
    /// SESSION_SETUP exchanges in progress.
    pub setups: usize,
    pub opens: usize,
    pub requests_in_work: usize,
    /// Bytes of requests in work, and of answers that are not sent.
    pub in_flight_bytes: usize,
    /// Bytes of requests that wait for somebody, and of what named pipes keep.
    pub parked_bytes: usize,
}

/// A session, as `session list` shows it.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub id: u64,
    pub connections: Vec<ConnectionInfo>,
    pub user: String,
    pub user_sid: Sid,
    pub dialect: &'static str,
    pub transport: Transport,
    /// Every request has to be signed.
    pub signing_required: bool,
    pub signing: SigningAlgorithm,
    /// What it can be encrypted with.
    pub cipher: Option<CipherId>,
    pub encryption_required: bool,
    pub shares: Vec<String>,
    pub opens: usize,
    pub age_s: u64,
    pub idle_s: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// An open, as `file list` shows it.
#[derive(Debug, Clone)]
pub struct OpenInfo {
    pub id: u64,
    pub session: u64,
    pub user: String,
    pub share: String,
    /// `None`: a pipe.
    pub volume: Option<VolumeId>,
    pub path: WideString,
    pub granted_access: u32,
    pub caching: Caching,
    pub durable: bool,
    pub directory: bool,
    pub age_s: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// What a client may cache of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    Oplock(OplockLevel),
    Lease(LeaseState),
}

impl<B: Backend, D: Directory> Server<B, D> {
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            connections: self.connections.len(),
            sessions: self.sessions.len(),
            setups: self.setups.len(),
            opens: self.opens.len(),
            requests_in_work: self.requests.len(),
            in_flight_bytes: self.memory.in_work.held(),
            parked_bytes: self.memory.parked.held(),
        }
    }

    pub fn sessions(&self, now: Monotonic) -> Vec<SessionInfo> {
        let valid = self.sessions.iter().filter(|(_, session)| !session.channels.is_empty());
        valid
            .map(|(id, session)| {
                let connections: Vec<_> = session
                    .channels
                    .iter()
                    .filter_map(|channel| Some(self.connections.get(channel.connection)?.info))
                    .collect();
                SessionInfo {
                    id,
                    user: session.account.clone(),
                    user_sid: session.token.user.clone(),
                    dialect: session.dialect.name(),
                    transport: connections.first().map_or(Transport::Tcp, |info| info.transport),
                    connections,
                    signing_required: session.signing_required,
                    signing: session
                        .channels
                        .first()
                        .map_or(SigningAlgorithm::HmacSha256, |channel| channel.signing.algorithm()),
                    cipher: session.sealing.as_ref().map(smb::crypto::SealingKey::cipher),
                    encryption_required: session.encrypt,
                    shares: session.trees.iter().map(|(_, tree)| tree.name().to_owned()).collect(),
                    opens: session.opens.len(),
                    age_s: now.since(session.created_at).as_secs(),
                    idle_s: now.since(session.last_request_at).as_secs(),
                    read_bytes: session.read_bytes,
                    written_bytes: session.written_bytes,
                }
            })
            .collect()
    }

    pub fn opens(&self, now: Monotonic) -> Vec<OpenInfo> {
        let opens = self.opens.iter();
        opens
            .map(|(id, open)| {
                let session = self.sessions.get(open.session);
                let tree = session.and_then(|session| session.tree(open.tree_id));
                OpenInfo {
                    id,
                    session: open.session,
                    user: session.map(|session| session.account.clone()).unwrap_or_default(),
                    share: tree.map(|tree| tree.name().to_owned()).unwrap_or_default(),
                    volume: open.volume_open().map(|(volume, _)| self.volumes[volume].id),
                    path: open.path.clone(),
                    granted_access: open.granted_access,
                    caching: match open.cache {
                        CacheGrant::Oplock(level) => Caching::Oplock(level),
                        CacheGrant::Lease { state, .. } => Caching::Lease(state),
                    },
                    durable: open.durable,
                    directory: open.directory,
                    age_s: now.since(open.opened_at).as_secs(),
                    read_bytes: open.read_bytes,
                    written_bytes: open.written_bytes,
                }
            })
            .collect()
    }
}
