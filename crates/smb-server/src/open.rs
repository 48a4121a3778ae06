//! The wire identity of opens (MS-SMB2 3.3.1.10): what a FileId names, and what only the protocol needs to know of it.

use smb::wire::{FileId, Guid, U64};
use std::collections::VecDeque;
use types::Monotonic;
use volume::backend::{CacheGrant, OpenId, WideString};

/// Where a directory enumeration stands.
#[derive(Default)]
pub(crate) struct Enumeration {
    /// `None`: not begun.
    pub pattern: Option<WideString>,
    /// Where the volume goes on.
    pub after: u64,
    /// At least one entry was found since it began.
    pub found: bool,
    /// The volume is asked for entries.
    pub busy: bool,
    /// Requests that wait for their turn.
    pub queued: VecDeque<u64>,
}

/// What an open is of.
pub(crate) enum OpenKind {
    File { volume: usize, open: OpenId },
    Pipe(Box<crate::pipe::Pipe>),
}

pub(crate) struct Open {
    pub session: u64,
    /// Where it was opened: what the server says of it unasked goes there first.
    pub connection: u64,
    /// The client and its lease.
    pub lease: Option<(Guid, Guid)>,
    pub tree_id: u32,
    pub kind: OpenKind,
    pub persistent: u64,
    pub path: WideString,
    pub directory: bool,
    pub granted_access: u32,
    pub cache: CacheGrant,
    pub durable: bool,
    pub create_options: u32,
    pub enumeration: Enumeration,
    /// CLOSE has come: only what was asked before still finds it.
    pub closing: bool,
    /// ChannelSequence of the last request (MS-SMB2 3.3.5.2.10).
    pub channel_sequence: u16,
    pub outstanding: u32,
    pub outstanding_before: u32,
    /// FilePositionInformation: kept for the client, used by nothing.
    pub position: u64,
    pub opened_at: Monotonic,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Open {
    /// The FileId of the open named `key`.
    pub fn file_id(&self, key: u64) -> FileId {
        FileId { persistent: U64::new(self.persistent), volatile: U64::new(key) }
    }

    /// The volume's name for it; `None` for a pipe.
    pub fn volume_open(&self) -> Option<(usize, OpenId)> {
        match self.kind {
            OpenKind::File { volume, open } => Some((volume, open)),
            OpenKind::Pipe(_) => None,
        }
    }
}

/// Where a lease is held.
pub(crate) struct LeaseHome {
    pub volume: usize,
    /// Opens under the lease.
    pub opens: usize,
}
