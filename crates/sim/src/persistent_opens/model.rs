//! Clients' knowledge of their opens, and its consequences for other clients.

use std::collections::BTreeMap;
use types::Monotonic;
use volume::backend::{Guid, LeaseState, OpenId};
use volume::security::rights;

/// Ranges of a file that can be locked.
pub(crate) const SLOTS: usize = 4;

/// A file: one shared by all clients, or one that a client made for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum File {
    Shared(u64),
    Own { client: usize, number: u64 },
}

impl File {
    /// Returns the file's name in the volume's root after `generation` renames.
    pub fn name(self, generation: u64) -> String {
        match self {
            Self::Shared(_) => self.stem(),
            Self::Own { .. } => format!("{}_{generation}", self.stem()),
        }
    }

    /// Returns the common part of all of the file's names.
    pub fn stem(self) -> String {
        match self {
            Self::Shared(number) => format!("shared{number}"),
            Self::Own { client, number } => format!("own{client}_{number}"),
        }
    }
}

/// A fact as its client last learned it, and the step since which the client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// `None`: a request that changes it is in flight.
    is_so: Option<bool>,
    since: u64,
}

impl Known {
    pub fn new(is_so: bool, since: u64) -> Self {
        Self { is_so: Some(is_so), since }
    }

    pub fn doubt(&mut self) {
        self.is_so = None;
    }

    pub fn learn(&mut self, is_so: bool, since: u64) {
        *self = Self::new(is_so, since);
    }

    /// Whether the fact has held at all times since the step.
    pub fn is_so_since(&self, step: u64) -> bool {
        self.is_so == Some(true) && self.since <= step
    }

    /// Whether the fact has held at no time since the step.
    pub fn is_not_since(&self, step: u64) -> bool {
        self.is_so == Some(false) && self.since <= step
    }

    pub fn is_so(&self) -> bool {
        self.is_so == Some(true)
    }

    pub fn is_not(&self) -> bool {
        self.is_so == Some(false)
    }
}

/// Modes in which a file is open: the client's own rights, and those of others meanwhile
/// (FILE_SHARE_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    pub access: u32,
    pub share: u32,
}

impl Mode {
    pub fn excludes(self, other: Self) -> bool {
        let wants = |access: u32| {
            let reads = access & (rights::READ_DATA | rights::EXECUTE) != 0;
            let writes = access & (rights::WRITE_DATA | rights::APPEND_DATA) != 0;
            let deletes = access & rights::DELETE != 0;
            u32::from(reads) | u32::from(writes) << 1 | u32::from(deletes) << 2
        };
        wants(self.access) & !other.share != 0 || wants(other.access) & !self.share != 0
    }
}

/// A client's knowledge of an open.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub open: OpenId,
    pub guid: Guid,
    pub file: File,
    pub mode: Mode,
    /// Step of its answer.
    pub since: u64,
    pub lease: LeaseState,
    /// A break to this state that has arrived and may be acknowledged.
    pub breaking: Option<LeaseState>,
    /// An acknowledgement in flight, of a break to this state.
    pub acknowledging: Option<LeaseState>,
    pub locks: [Known; SLOTS],
    /// Sequence number of the last lock request (MS-SMB2 2.2.26).
    pub sequence: u32,
    /// Whether a CLOSE is in flight.
    pub closing: bool,
    /// Whether the client has it in its present session.
    pub is_here: bool,
    /// Step and time at which the client had it last.
    pub here_at: (u64, Monotonic),
}

/// A file that its client made for itself.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub exists: Known,
    /// The last name that an answer confirmed.
    pub name: u64,
    /// The file's first eight bytes after the last answered write.
    pub value: u64,
    /// Whether the file is deleted with its last open.
    pub deleting: Known,
}

impl Own {
    pub fn new(step: u64) -> Self {
        Self {
            exists: Known { is_so: None, since: step },
            name: 0,
            value: 0,
            deleting: Known::new(false, step),
        }
    }
}

/// Last step at which a client changed how a file is open, by file and client.
#[derive(Debug, Default)]
pub(crate) struct Touched(BTreeMap<(File, usize), u64>);

impl Touched {
    pub fn note(&mut self, file: File, client: usize, step: u64) {
        self.0.insert((file, client), step);
    }

    /// Whether another client did since the step.
    pub fn by_others_since(&self, file: File, client: usize, step: u64) -> bool {
        let of_file = self.0.range((file, 0)..=(file, usize::MAX));
        of_file.into_iter().any(|((_, other), at)| *other != client && *at >= step)
    }
}
