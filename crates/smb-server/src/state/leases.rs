//! Leases that clients hold, and the breaks that they have yet to acknowledge (MS-SMB2 3.3.1.12, 3.3.4.6, 3.3.4.7).

use super::connections::ConnectionId;
use super::keys::{LeaseName, SessionKey, VolumeSlot};
use super::opens::Open;
use smb::wire::Guid;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use types::NtStatus;
use volume::backend::{LeaseState, OpenId, OplockLevel};

/// An oplock or a lease that breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Breaking {
    /// The oplock of this open of a volume.
    Oplock(VolumeSlot, OpenId),
    /// A lease.
    Lease(LeaseName),
}

/// A break that was sent to its holder and is not acknowledged yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told {
    connection: ConnectionId,
    step: BreakStep,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum BreakStep {
    Oplock(OplockLevel),
    Lease { from: LeaseState, to: LeaseState, epoch: u16 },
}

/// Breaks to be acknowledged, and which connection carried each.
#[derive(Default)]
struct ToldBreaks {
    by_break: HashMap<Breaking, Told>,
    by_connection: HashMap<ConnectionId, HashSet<Breaking>>,
}

impl ToldBreaks {
    fn insert(&mut self, breaking: Breaking, told: Told) {
        self.remove(&breaking);
        self.by_connection.entry(told.connection).or_default().insert(breaking);
        self.by_break.insert(breaking, told);
    }

    /// Removes an acknowledged break, or one whose holder is gone.
    fn remove(&mut self, breaking: &Breaking) -> Option<Told> {
        let told = self.by_break.remove(breaking)?;
        if let Some(carried) = self.by_connection.get_mut(&told.connection) {
            carried.remove(breaking);
            if carried.is_empty() {
                self.by_connection.remove(&told.connection);
            }
        }
        Some(told)
    }

    /// Forgets the breaks that a connection carried.
    fn take_of(&mut self, connection: ConnectionId) -> Vec<(Breaking, BreakStep)> {
        let carried = self.by_connection.remove(&connection).unwrap_or_default();
        let told = |breaking| Some((breaking, self.by_break.remove(&breaking)?.step));
        carried.into_iter().filter_map(told).collect()
    }
}

/// Holders of a lease.
#[derive(Default)]
struct LeaseHolders {
    /// By session, the number of its opens under the lease.
    sessions: BTreeMap<SessionKey, usize>,
    /// Whether one of the opens is reached only encrypted: then the break of the lease is sent encrypted
    /// too.
    encrypt: bool,
}

/// All leases. Invariants:
///
/// - A lease is here exactly while an open has it, with the sessions of those opens. Its breaks go to
///   them only, and only they acknowledge them.
/// - A break is remembered until its acknowledgment or the end of its holder.
#[derive(Default)]
pub(crate) struct Leases {
    holders: HashMap<LeaseName, LeaseHolders>,
    /// The leases by session and key, since an acknowledgment names only these.
    by_session: BTreeSet<(SessionKey, Guid, VolumeSlot)>,
    told: ToldBreaks,
    /// Breaks before the answer to the CREATE that gets the lease: the lease has no holder yet.
    owed: HashMap<LeaseName, BreakStep>,
}

/// Limit of owed breaks: one for each CREATE that waits for its answer, and some whose CREATE was never
/// answered.
const OWED_MAX: usize = 4096;

impl Leases {
    /// Counts one more open of a session under a lease.
    pub fn add_open(&mut self, lease: LeaseName, session: SessionKey, encrypt: bool) {
        let holders = self.holders.entry(lease).or_default();
        *holders.sessions.entry(session).or_default() += 1;
        holders.encrypt |= encrypt;
        self.by_session.insert((session, lease.key, lease.volume));
    }

    /// Forgets the caching of a closed open: its part in a lease, and the break of its oplock.
    pub fn forget_open(&mut self, open: &Open) {
        if let Some((volume, name)) = open.volume_open() {
            self.told.remove(&Breaking::Oplock(volume, name));
        }
        let Some(lease) = open.lease else { return };
        let Some(holders) = self.holders.get_mut(&lease) else { return };
        let Some(opens) = holders.sessions.get_mut(&open.session) else { return };
        *opens -= 1;
        if *opens == 0 {
            holders.sessions.remove(&open.session);
            self.by_session.remove(&(open.session, lease.key, lease.volume));
        }
        if holders.sessions.is_empty() {
            self.holders.remove(&lease);
            self.told.remove(&Breaking::Lease(lease));
        }
    }

    /// Finds the lease that a session means by a key: one that breaks, if it has several.
    pub fn of_session(&self, session: SessionKey, client: Guid, key: Guid) -> Result<LeaseName, NtStatus> {
        let range = (session, key, VolumeSlot(0))..=(session, key, VolumeSlot(usize::MAX));
        let mut leases = self.by_session.range(range).map(|(_, key, volume)| LeaseName {
            volume: *volume,
            client,
            key: *key,
        });
        let first = leases.clone().next().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        Ok(leases.find(|lease| self.told.by_break.contains_key(&Breaking::Lease(*lease))).unwrap_or(first))
    }

    /// The sessions that have opens under a lease.
    pub fn sessions_of(&self, lease: LeaseName) -> impl Iterator<Item = SessionKey> {
        self.holders.get(&lease).into_iter().flat_map(|holders| holders.sessions.keys().copied())
    }

    /// Whether the break of a lease is sent encrypted.
    pub fn is_encrypted(&self, lease: LeaseName) -> bool {
        self.holders.get(&lease).is_some_and(|holders| holders.encrypt)
    }

    /// Remembers a break until an open gets its lease.
    pub fn owe(&mut self, lease: LeaseName, step: BreakStep) {
        if self.owed.len() >= OWED_MAX {
            self.owed.clear();
        }
        self.owed.insert(lease, step);
    }

    pub fn take_owed(&mut self, lease: LeaseName) -> Option<BreakStep> {
        self.owed.remove(&lease)
    }

    /// Remembers a break that a connection carries to its holder.
    pub fn told(&mut self, breaking: Breaking, connection: ConnectionId, step: BreakStep) {
        self.told.insert(breaking, Told { connection, step });
    }

    /// The holder acknowledges a break. Answers the break, for [`Self::refused`].
    pub fn acknowledged(&mut self, breaking: Breaking) -> Option<Told> {
        self.told.remove(&breaking)
    }

    /// Notes that the volume has refused an acknowledgment, so the break continues, unless it has changed
    /// or the lease has no holder any more.
    pub fn refused(&mut self, lease: LeaseName, told: Told) {
        if self.holders.contains_key(&lease) && !self.told.by_break.contains_key(&Breaking::Lease(lease)) {
            self.told.insert(Breaking::Lease(lease), told);
        }
    }

    /// Removes and returns the breaks that a connection has carried.
    pub fn take_told_over(&mut self, connection: ConnectionId) -> Vec<(Breaking, BreakStep)> {
        self.told.take_of(connection)
    }
}
