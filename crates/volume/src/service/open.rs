//! One open: its owner, its rights, its past.

use super::cache_state::CacheState;
use super::grant::Grant;
use super::listing::Listing;
use super::open_record::{FixedTimes, TokenDigest};
use super::range_locks::LockSequences;
use super::share::ShareMode;
use crate::backend::{
    AccessToken, AppInstance, CreateAction, Durability, DurableRequest, Guid, LeaseState, SessionId,
    ShareOptions, ShareRoot, Standing, Terms, WideString,
};
use crate::fs::{FileId, StreamId};
use crate::security::rights;
use std::sync::Arc;
use std::time::Duration;
use types::{Monotonic, Sid};

/// How far a file's times show the writes of one open. They do so a little later than its data: once two seconds after the first
/// write, and again with a flush, a change of size or attributes, or the close.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteTime {
    /// The time at which the first write becomes visible.
    pub due: Option<Monotonic>,
    /// Whether the first write has been.
    pub started: bool,
    /// Whether the times do not show some writes yet.
    pub owed: bool,
}

/// Right of an open to cache.
#[derive(Debug)]
pub enum CacheHolder {
    None,
    Oplock(CacheState),
    /// The state is that of the lease ([`super::caching`]).
    Lease(LeaseName),
}

/// Client and key.
pub type LeaseName = (Guid, Guid);

/// The lease on the parent directory that an open's client claims, and the client's user.
#[derive(Debug, Clone)]
pub struct ParentLease {
    pub name: LeaseName,
    pub user: Sid,
}

/// How an open outlives its connection.
#[derive(Debug, Clone, Copy)]
pub struct Durable {
    pub request: DurableRequest,
    pub timeout: Duration,
}

/// A name of a file: directory and entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkName {
    pub parent: FileId,
    pub name: WideString,
}

/// Bytes of path that every open may have.
const PATH_BYTES_PER_PLACE: usize = 1024;

/// Returns how many opens one with a path of this length counts for. The number of opens bounds their memory, and a path may take a
/// hundred times as much as everything else of an open.
pub fn places_of(path_units: usize) -> usize {
    1 + 2 * path_units / PATH_BYTES_PER_PLACE
}

#[derive(Debug)]
pub struct Open {
    pub stream: StreamId,
    /// Place among the opens of the file.
    pub place: u64,
    /// The number of opens that it counts for: see [`places_of`].
    pub places: usize,
    pub directory: bool,
    /// The path from the volume's root, in the case of the names as stored; with `:stream` if it is of a named one.
    pub path: WideString,
    /// The name by which it was opened; `None` for the volume's root.
    pub link: Option<LinkName>,
    /// The root of its caller: paths from and to the client begin there.
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
    /// Whether its client may know of it: no answer to its create waits to be durable, or a replay was answered.
    pub told: bool,
    /// Key of the creator's lease on the parent directory: its own changes do not break that lease.
    pub parent_key: Option<Guid>,
    pub delete_on_close: bool,
    /// The file was renamed since: the client may not know its present name.
    pub renamed: bool,
    pub durable: Option<Durable>,
    /// Whether it outlives the server: the volume's journal has a record of it ([`super::records`]).
    pub persistent: bool,
    /// Digest of the user's token, of an open restored from the journal, until its reconnect.
    pub token_digest: Option<TokenDigest>,
    pub create_guid: Option<Guid>,
    pub app_instance: Option<AppInstance>,
    /// The time at which it ends, if its client is disconnected.
    pub disconnected: Option<Monotonic>,
    /// Whether the server is closing it without a Close.
    pub closing: bool,
    /// Whether it was used for anything but its creation: a replayed create is then too late.
    pub used: bool,
    pub fixed_times: FixedTimes,
    pub sequences: Option<Box<LockSequences>>,
    pub write_time: WriteTime,
    /// Whether it changed something since its last flush.
    pub dirty: bool,
    /// Flushes under way.
    pub flushes: u32,
    /// Whether it wrote or changed sizes: its close notifies watchers.
    pub modified: bool,
    pub listing: Option<Box<Listing>>,
    pub create_action: CreateAction,
}

impl ShareOptions {
    /// Whether changes are answered when they are durable.
    pub fn durable_writes(&self) -> bool {
        self.continuously_available || self.durability == Durability::Write
    }

    /// Returns the most that its opens may cache (MS-SMB2 3.3.5.9).
    pub fn most_cached(&self, directory: bool) -> LeaseState {
        match self {
            Self { no_caching: true, .. } => LeaseState::empty(),
            Self { scale_out: true, .. } if directory => LeaseState::empty(),
            Self { scale_out: true, .. } => LeaseState::READ,
            _ => LeaseState::all(),
        }
    }
}

impl Open {
    pub fn share_mode(&self) -> ShareMode {
        ShareMode { access: self.access, share: self.share_access, stream: self.stream.index }
    }

    /// Puts other terms in force. The access that was granted stays, as it does when a file's descriptor changes.
    pub fn amend(&mut self, terms: Terms) {
        let Terms { token, share_access, share, standing } = terms;
        (self.token, self.share, self.standing) = (token, share, standing);
        self.granted_by_share = share_access;
        // Entries found so far were found under the old terms.
        self.listing = None;
    }

    /// Removes all rights: the open can do nothing more, and neither a reconnect nor a replay finds it.
    pub fn take_rights(&mut self) {
        self.access = 0;
        self.granted_by_share = 0;
        self.share.read_only = true;
        self.used = true;
        self.durable = None;
    }

    /// Returns the grant of its share to its client.
    pub fn grant(&self) -> Grant {
        Grant::new(self.granted_by_share, self.share)
    }

    /// Returns the name that its client reaches and may change; `None` for its root.
    pub fn own_link(&self) -> Option<&LinkName> {
        self.link.as_ref().filter(|_| self.stream.file != self.root.directory())
    }

    /// Returns the client's lease on the parent directory.
    pub fn parent_lease(&self) -> Option<ParentLease> {
        self.parent_key.map(|key| ParentLease { name: (self.client, key), user: self.token.user.clone() })
    }

    /// Whether its client is disconnected, and may return to it even after a restart of the server.
    pub fn awaits_client(&self) -> bool {
        self.persistent && self.disconnected.is_some() && !self.closing
    }

    /// Whether it may change its stream's bytes.
    pub fn writes(&self) -> bool {
        self.access & (rights::WRITE_DATA | rights::APPEND_DATA) != 0
    }

    /// Whether its changes are answered only when durable. After a restart, an open that outlives the
    /// server must not be older than its last answer, even if its share promises less by then.
    pub fn durable_writes(&self) -> bool {
        self.persistent || self.share.durable_writes()
    }
}
