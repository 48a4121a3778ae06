//! The wire identity of opens (MS-SMB2 3.3.1.10): what a FileId names, what only the protocol needs to know of it, and how a
//! request finds it.

use crate::budget::HolderId;
use crate::directory::Directory;
use crate::request::{Chain, ChainFile, Context};
use crate::server::Server;
use smb::wire::{FileId, Guid, HeaderFlags, U64};
use std::collections::VecDeque;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, CacheGrant, OpenId, WideString};

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
    /// The user, which it is counted against.
    pub holder: HolderId,
    /// Where it was opened: what the server says of it unasked goes there first.
    pub connection: u64,
    /// The client and its lease.
    pub lease: Option<(Guid, Guid)>,
    pub tree_id: u32,
    pub kind: OpenKind,
    pub persistent: u64,
    /// From the share's root.
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
    /// One of them is reached only encrypted: that the lease breaks is said encrypted too.
    pub encrypt: bool,
}

impl<B: Backend, D: Directory> Server<B, D> {
    /// What a request on a file begins with that carries or asks for `bytes`: its open; and that these are neither more than
    /// `bytes_max` nor more than was paid for.
    pub(crate) fn find_open_for(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        id: FileId,
        bytes: usize,
        bytes_max: u32,
    ) -> Result<u64, NtStatus> {
        let key = self.find_open(context, chain, id)?;
        self.check_size(context, bytes, bytes_max)?;
        Ok(key)
    }

    /// The open that `id` names, in a request that may be related to one before it (MS-SMB2 3.3.5.2.7.2).
    pub(crate) fn find_open(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        id: FileId,
    ) -> Result<u64, NtStatus> {
        let related = context.to.flags.contains(HeaderFlags::RELATED_OPERATIONS);
        let key = match chain.file {
            ChainFile::Open(key) if related && id == FileId::RELATED => key,
            ChainFile::Failed(status) if related => return Err(status),
            _ => id.volatile.get(),
        };
        let open = self.opens.get_mut(key).ok_or(NtStatus::FILE_CLOSED)?;
        if open.closing {
            return Err(NtStatus::FILE_CLOSED);
        }
        let by_name = !(related && id == FileId::RELATED);
        if open.session != context.session
            || open.tree_id != context.tree_id
            || by_name && open.persistent != id.persistent.get()
        {
            return Err(NtStatus::FILE_CLOSED);
        }
        context.open = key;
        Ok(key)
    }

    /// Checks that the larger of what is sent and what is asked for is no more than `bytes_max`, and that the credits paid
    /// cover it (MS-SMB2 3.3.5.2.5).
    pub(crate) fn check_size(&self, context: &Context, bytes: usize, bytes_max: u32) -> Result<(), NtStatus> {
        let found = self.connections.get(context.connection).ok_or(NtStatus::CONNECTION_DISCONNECTED)?;
        let paid = if found.large_mtu() { usize::from(context.to.credit_charge.max(1)) } else { 1 };
        if bytes > bytes_max as usize || bytes > paid << 16 {
            Err(NtStatus::INVALID_PARAMETER)
        } else {
            Ok(())
        }
    }
}
