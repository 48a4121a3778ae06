//! Keys of the server's state. None is ever zero, so that `Option` of one costs nothing.

use std::num::NonZeroU64;
use volume::backend::{OperationId, SessionId};

/// Names a connection for its life; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(NonZeroU64);

        impl $name {
            /// Makes a key of a number from elsewhere. `None`: zero, which is no key.
            pub fn from_number(number: u64) -> Option<Self> {
                NonZeroU64::new(number).map(Self)
            }

            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }
    };
}

key! {
    /// Names a session: its SessionId on the wire.
    SessionKey
}

key! {
    /// Names an open: the volatile part of its FileId.
    OpenKey
}

key! {
    /// Names a request in work, to its volume too.
    RequestKey
}

impl OpenKey {
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    pub const LAST: Self = Self(NonZeroU64::MAX);

    /// Makes the key of a slot in an [`super::arena::Arena`], which is never zero.
    pub fn of_slot(number: u64) -> Self {
        Self::from_number(number).expect("no slot is named zero")
    }
}

impl RequestKey {
    /// Makes the key of a slot in an [`super::arena::Arena`], which is never zero.
    pub fn of_slot(number: u64) -> Self {
        Self::from_number(number).expect("no slot is named zero")
    }
}

impl From<SessionKey> for SessionId {
    fn from(key: SessionKey) -> Self {
        Self(key.get())
    }
}

impl From<RequestKey> for OperationId {
    fn from(key: RequestKey) -> Self {
        Self(key.get())
    }
}

/// The place of a volume among those that the server serves or has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VolumeSlot(pub usize);

/// Names a lease of a volume: the client that holds it, by its ClientGuid, and the client's key. Both
/// come from clients and are no secret: only its opens give a session a part in the lease
/// ([`super::leases::Leases`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeaseName {
    pub volume: VolumeSlot,
    pub client: smb::wire::Guid,
    pub key: smb::wire::Guid,
}
