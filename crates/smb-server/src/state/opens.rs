//! Opens (MS-SMB2 3.3.1.10): the file or pipe that a FileId names, and the state that only the protocol
//! needs.

use super::arena::Arena;
use super::bounded::Bounded;
use super::budget::{Budget, HolderId};
use super::client_figures::ClientSlot;
use super::connections::ConnectionId;
use super::keys::{LeaseName, OpenKey, RequestKey, SessionKey, VolumeSlot};
use super::pipe::Pipe;
use super::share_figures::FiguresSlot;
use smb::wire::{FileId, U64};
use std::collections::{HashMap, VecDeque};
use types::{Monotonic, NtStatus, Sid};
use volume::backend::{CacheGrant, OpenId, WideString};

/// Position of a directory enumeration.
#[derive(Default)]
pub(crate) struct Enumeration {
    /// `None`: not begun.
    pub pattern: Option<WideString>,
    /// Place from which the volume continues.
    pub after: u64,
    /// The volume is listing entries.
    pub busy: bool,
    /// Requests that wait for their turn.
    pub queued: VecDeque<RequestKey>,
}

/// Kind of an open.
pub(crate) enum OpenKind {
    File { volume: VolumeSlot, open: OpenId },
    Pipe(Box<Pipe>),
}

pub(crate) struct Open {
    pub session: SessionKey,
    /// The user charged for it.
    pub holder: HolderId,
    /// Connection on which it was opened: unasked messages about it go there first.
    pub connection: ConnectionId,
    pub lease: Option<LeaseName>,
    pub tree_id: u32,
    /// Of the share that it was opened through.
    pub figures: FiguresSlot,
    /// Of the client whose session it is.
    pub client: ClientSlot,
    pub kind: OpenKind,
    pub persistent: u64,
    /// Present name from the share's root, as the volume reports it.
    pub path: WideString,
    pub directory: bool,
    pub granted_access: u32,
    pub cache: CacheGrant,
    pub durable: bool,
    /// The client gets a persistent open back after any loss: passing losses are not reported to it.
    pub is_persistent: bool,
    pub create_options: u32,
    pub enumeration: Enumeration,
    /// After a CLOSE: only earlier requests still find it.
    pub closing: bool,
    /// ChannelSequence of the last request (MS-SMB2 3.3.5.2.10).
    pub channel_sequence: u16,
    pub outstanding: u32,
    pub outstanding_before: u32,
    /// FilePositionInformation: kept for the client, used by nothing.
    pub position: u64,
    /// User whose quota was listed last, in a list of all.
    pub quota_scan: Option<Sid>,
    pub opened_at: Monotonic,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Open {
    /// The FileId of the open named `key`.
    pub fn file_id(&self, key: OpenKey) -> FileId {
        FileId { persistent: U64::new(self.persistent), volatile: U64::new(key.get()) }
    }

    /// The volume's name for it; `None` for a pipe.
    #[inline]
    pub fn volume_open(&self) -> Option<(VolumeSlot, OpenId)> {
        match self.kind {
            OpenKind::File { volume, open } => Some((volume, open)),
            OpenKind::Pipe(_) => None,
        }
    }

    /// Takes a request's ChannelSequence into account (MS-SMB2 3.3.5.2.10): requests of a channel that failed over before are not to
    /// overtake those of its successor. Answers whether the request counts as outstanding.
    #[inline]
    pub fn begin_outstanding(
        &mut self,
        channel_sequence: u16,
        is_replay: bool,
        modifies: bool,
    ) -> Result<bool, NtStatus> {
        // Half of all numbers are ahead, the others behind.
        const AHEAD_MAX: u16 = 0x7FFF;
        let ahead = channel_sequence.wrapping_sub(self.channel_sequence);
        if ahead > AHEAD_MAX {
            return if modifies { Err(NtStatus::FILE_NOT_AVAILABLE) } else { Ok(false) };
        }
        if ahead != 0 {
            self.outstanding_before += self.outstanding;
            self.outstanding = 0;
            self.channel_sequence = channel_sequence;
        }
        if is_replay && self.outstanding_before > 0 && modifies {
            return Err(NtStatus::FILE_NOT_AVAILABLE);
        }
        self.outstanding += 1;
        Ok(true)
    }

    /// A request that counted as outstanding has been answered.
    #[inline]
    pub fn end_outstanding(&mut self, channel_sequence: u16) {
        if self.channel_sequence == channel_sequence {
            self.outstanding = self.outstanding.saturating_sub(1);
        } else {
            self.outstanding_before = self.outstanding_before.saturating_sub(1);
        }
    }

    /// The pipe that it is of.
    pub fn pipe(&self) -> Option<&Pipe> {
        match &self.kind {
            OpenKind::Pipe(pipe) => Some(pipe),
            OpenKind::File { .. } => None,
        }
    }
}

/// All opens. Invariants:
///
/// - Each open counts once among those of its user.
/// - An open of a file is found by its volume's name for it, and no two opens have the same one.
/// - The persistent part of a file's FileId is the volume's name of the open, which is never reused,
///   not even after a restart. That of a pipe's lies above all of them.
pub(crate) struct Opens {
    table: Arena<Open>,
    /// Counts of each user's opens.
    shares: Budget<Sid>,
    by_volume: HashMap<(VolumeSlot, OpenId), OpenKey>,
    /// FilePositionInformation of durable opens whose clients are away.
    positions: Bounded<(VolumeSlot, OpenId), u64>,
    next_pipe: u64,
}

impl Opens {
    /// Holds at most `most` opens.
    pub fn new(most: usize) -> Self {
        Self {
            table: Arena::default(),
            shares: Budget::new(most),
            by_volume: HashMap::new(),
            positions: Bounded::new(most),
            next_pipe: 1,
        }
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The open in the slot at an index.
    pub fn at(&self, index: usize) -> Option<(OpenKey, &Open)> {
        let key = self.table.key_at(index)?;
        Some((OpenKey::of_slot(key), self.table.get(key)?))
    }

    /// Returns the number of slots, empty ones included.
    pub fn slots(&self) -> usize {
        self.table.slots()
    }

    pub fn iter(&self) -> impl Iterator<Item = (OpenKey, &Open)> {
        self.table.iter().map(|(key, open)| (OpenKey::of_slot(key), open))
    }

    #[inline]
    pub fn get(&self, key: OpenKey) -> Result<&Open, NtStatus> {
        self.table.get(key.get()).ok_or(NtStatus::FILE_CLOSED)
    }

    #[inline]
    pub fn get_mut(&mut self, key: OpenKey) -> Result<&mut Open, NtStatus> {
        self.table.get_mut(key.get()).ok_or(NtStatus::FILE_CLOSED)
    }

    /// The end of the pipe that an open is of.
    pub fn pipe_mut(&mut self, key: OpenKey) -> Result<&mut Pipe, NtStatus> {
        match &mut self.get_mut(key)?.kind {
            OpenKind::Pipe(pipe) => Ok(pipe),
            OpenKind::File { .. } => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }

    /// Returns the open with this name of the volume's.
    pub fn of_volume(&self, name: (VolumeSlot, OpenId)) -> Option<OpenKey> {
        self.by_volume.get(&name).copied()
    }

    /// Whether the user may have one more.
    pub fn may_open(&self, user: &Sid) -> bool {
        self.shares.may_take(user, 1)
    }

    /// Takes in an open of this user.
    pub fn insert(&mut self, user: &Sid, open: impl FnOnce(HolderId) -> Open) -> OpenKey {
        let holder = self.shares.enter(user);
        self.shares.take(holder, 1);
        let open = open(holder);
        let name = open.volume_open();
        let key = OpenKey::of_slot(self.table.insert(open));
        if let Some(name) = name {
            let replaced = self.by_volume.insert(name, key);
            debug_assert!(replaced.is_none(), "an open of a volume has one FileId");
        }
        key
    }

    /// Forgets an open; its neighbours do so in [`super::State::forget_open`].
    pub fn remove(&mut self, key: OpenKey) -> Option<Open> {
        let open = self.table.remove(key.get())?;
        self.shares.release(open.holder, 1);
        self.shares.leave(open.holder);
        if let Some(name) = open.volume_open() {
            self.by_volume.remove(&name);
        }
        Some(open)
    }

    /// The persistent part of one more pipe's FileId.
    pub fn next_pipe(&mut self) -> u64 {
        let persistent = u64::MAX - self.next_pipe;
        self.next_pipe += 1;
        persistent
    }

    /// Keeps the position of a durable open whose client is away.
    pub fn keep_position(&mut self, open: &Open) {
        if let Some(name) = open.volume_open()
            && open.durable
            && open.position != 0
        {
            self.positions.insert(name, open.position);
        }
    }

    /// Takes the kept position of an open; zero if there is none.
    pub fn take_position(&mut self, name: (VolumeSlot, OpenId)) -> u64 {
        self.positions.remove(&name).unwrap_or_default()
    }

    /// Forgets the positions of opens on a volume that was removed.
    pub fn forget_positions(&mut self, volume: VolumeSlot) {
        self.positions.retain(|(of, _)| *of != volume);
    }
}
