//! Lists of sessions and open files, as plain numbers and words.

use crate::directory::Directory;
use crate::state::State;
use crate::state::connections::{ConnectionInfo, Transport};
use crate::state::keys::OpenKey;
use crate::state::opens::Open;
use smb::crypto::{CipherId, SigningAlgorithm};
use std::time::Duration;
use types::{Monotonic, Sid, VolumeId};
use volume::backend::{Backend, CacheGrant, LeaseState, OplockLevel, WideString};

/// The state of the server at this moment, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Transport connections, those without a session included.
    pub connections: usize,
    /// Sessions, of clients and of other nodes.
    pub sessions: usize,
    /// SESSION_SETUP exchanges in progress.
    pub setups: usize,
    /// Opens of files, disks and pipes.
    pub opens: usize,
    /// Number of requests received and not answered.
    pub requests_in_work: usize,
    /// Bytes of requests in work, and of answers that are not sent.
    pub in_flight_bytes: usize,
    /// Bytes of waiting requests, and of data in named pipes.
    pub parked_bytes: usize,
}

/// A session, as `session list` shows it.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// SessionId (MS-SMB2 2.2.1.2).
    pub id: u64,
    /// The session of another node of the cluster, not of a client.
    pub is_nodes: bool,
    /// Connections that carry the session's channels, the oldest first.
    pub connections: Vec<ConnectionInfo>,
    /// Account name as the directory spells it.
    pub user: String,
    /// Security identifier of the account.
    pub user_sid: Sid,
    /// Dialect's name, such as `3.1.1`.
    pub dialect: &'static str,
    /// Carrier of the first connection.
    pub transport: Transport,
    /// Every request has to be signed.
    pub signing_required: bool,
    /// Signing algorithm of the first connection.
    pub signing: SigningAlgorithm,
    /// The cipher that it can be encrypted with.
    pub cipher: Option<CipherId>,
    /// Every request has to be encrypted.
    pub encryption_required: bool,
    /// Names of the shares that the session has tree connects to.
    pub shares: Vec<String>,
    /// Number of opens of the session.
    pub opens: usize,
    /// Time since the session was made.
    pub age: Duration,
    /// Seconds since the session's last request.
    pub idle_s: u64,
    /// READ requests that succeeded.
    pub reads: u64,
    /// WRITE requests that succeeded.
    pub writes: u64,
    /// Payload read, in bytes.
    pub read_bytes: u64,
    /// Payload written, in bytes.
    pub written_bytes: u64,
}

/// An open, as `file list` shows it.
#[derive(Debug, Clone)]
pub struct OpenInfo {
    /// Volatile part of the open's FileId (MS-SMB2 2.2.14.1), by which it can be closed.
    pub id: u64,
    /// SessionId of the session that has the open.
    pub session: u64,
    /// Whether it is another node's open of a disk.
    pub is_nodes: bool,
    /// Account name of the session; empty if the session has ended.
    pub user: String,
    /// Name of the share; empty if the tree connect has ended.
    pub share: String,
    /// `None`: a pipe.
    pub volume: Option<VolumeId>,
    /// Path below the share's root, or the pipe's name.
    pub path: WideString,
    /// Access mask that CREATE granted (MS-SMB2 2.2.13.1).
    pub granted_access: u32,
    /// Oplock or lease that the open has now.
    pub caching: Caching,
    /// The open outlasts its connection.
    pub durable: bool,
    /// The open is of a directory.
    pub directory: bool,
    /// Seconds since the open was made.
    pub age_s: u64,
    /// Payload read through the open, in bytes.
    pub read_bytes: u64,
    /// Payload written through the open, in bytes.
    pub written_bytes: u64,
}

/// The caching that a client was granted for an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Oplock of the open itself.
    Oplock(OplockLevel),
    /// State of the lease that the open shares with others of the same key.
    Lease(LeaseState),
}

pub(crate) fn gauges<B: Backend, D: Directory>(state: &State<B, D>, requests_in_work: usize) -> Gauges {
    Gauges {
        connections: state.connections.len(),
        sessions: state.sessions.len(),
        setups: state.setups.len(),
        opens: state.opens.len(),
        requests_in_work,
        in_flight_bytes: state.memory.in_work.held(),
        parked_bytes: state.memory.parked.held(),
    }
}

pub(crate) fn sessions<B: Backend, D: Directory>(state: &State<B, D>, now: Monotonic) -> Vec<SessionInfo> {
    let valid = state.sessions.iter().filter(|(_, session)| !session.channels.is_empty());
    valid
        .map(|(id, session)| {
            let connections: Vec<_> = session
                .channels
                .iter()
                .filter_map(|channel| Some(state.connections.get(channel.connection)?.info))
                .collect();
            SessionInfo {
                id: id.get(),
                is_nodes: session.is_node(),
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
                age: now.since(session.created_at),
                idle_s: now.since(session.last_request_at).as_secs(),
                reads: session.reads,
                writes: session.writes,
                read_bytes: session.read_bytes,
                written_bytes: session.written_bytes,
            }
        })
        .collect()
}

pub(crate) fn opens<B: Backend, D: Directory>(state: &State<B, D>, now: Monotonic) -> Vec<OpenInfo> {
    state.opens.iter().map(|(id, open)| open_info(state, id, open, now)).collect()
}

/// Lists clients' opens with numbers above `after`, in the order of their numbers: at most `most`, and
/// no more once their paths have `path_units_max` UTF-16 units. Also returns whether there are more.
pub(crate) fn opens_after<B: Backend, D: Directory>(
    state: &State<B, D>,
    now: Monotonic,
    after: Option<u64>,
    most: usize,
    path_units_max: usize,
) -> (Vec<OpenInfo>, bool) {
    let is_clients = |open: &Open| state.sessions.get(open.session).is_none_or(|session| !session.is_node());
    let mut found: Vec<_> = (state.opens.iter())
        .filter(|(id, open)| after.is_none_or(|after| id.get() > after) && is_clients(open))
        .collect();
    let of_all = found.len();
    if most < of_all {
        found.select_nth_unstable_by_key(most, |(id, _)| id.get());
        found.truncate(most);
    }
    found.sort_unstable_by_key(|(id, _)| id.get());
    let mut path_units = 0;
    let fits = |(_, open): &(OpenKey, &Open)| {
        // One is always shown, so that all are in the end.
        let is_first = path_units == 0;
        path_units += open.path.len() + 1;
        is_first || path_units <= path_units_max
    };
    let shown = found.into_iter().take_while(fits).map(|(id, open)| open_info(state, id, open, now));
    let shown: Vec<OpenInfo> = shown.collect();
    let has_more = shown.len() < of_all;
    (shown, has_more)
}

fn open_info<B: Backend, D: Directory>(
    state: &State<B, D>,
    id: OpenKey,
    open: &Open,
    now: Monotonic,
) -> OpenInfo {
    let session = state.sessions.get(open.session);
    let tree = session.and_then(|session| session.tree(open.tree_id));
    OpenInfo {
        id: id.get(),
        session: open.session.get(),
        is_nodes: session.is_some_and(|session| session.is_node()),
        user: session.map(|session| session.account.clone()).unwrap_or_default(),
        share: tree.map(|tree| tree.name().to_owned()).unwrap_or_default(),
        volume: open.volume_open().map(|(volume, _)| state.volumes.id_of(volume)),
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
}
