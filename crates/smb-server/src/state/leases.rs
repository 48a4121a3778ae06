//! Leases that clients hold, and the breaks that they have yet to acknowledge (MS-SMB2 3.3.1.12, 3.3.4.6, 3.3.4.7).

use super::connections::ConnectionId;
use super::keys::{LeaseName, VolumeSlot};
use super::opens::Open;
use std::collections::{HashMap, HashSet};
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

/// A break whose holder was told and has not acknowledged it yet.
#[derive(Debug, Clone, Copy)]
struct Told {
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

    /// The break is acknowledged, or its holder is gone.
    fn remove(&mut self, breaking: &Breaking) {
        let Some(told) = self.by_break.remove(breaking) else { return };
        if let Some(carried) = self.by_connection.get_mut(&told.connection) {
            carried.remove(breaking);
            if carried.is_empty() {
                self.by_connection.remove(&told.connection);
            }
        }
    }

    /// Forgets the breaks that a connection carried.
    fn take_of(&mut self, connection: ConnectionId) -> Vec<(Breaking, BreakStep)> {
        let carried = self.by_connection.remove(&connection).unwrap_or_default();
        let told = |breaking| Some((breaking, self.by_break.remove(&breaking)?.step));
        carried.into_iter().filter_map(told).collect()
    }
}

/// The place of a lease.
struct LeaseHome {
    volume: VolumeSlot,
    /// The number of opens under the lease.
    opens: usize,
    /// One of them is reached only encrypted: the break of the lease is told encrypted too.
    encrypt: bool,
}

/// All leases. Invariants: a lease is here exactly while an open is under it; a break to be acknowledged is remembered until it is, or
/// until its holder is gone.
#[derive(Default)]
pub(crate) struct Leases {
    homes: HashMap<LeaseName, LeaseHome>,
    told: ToldBreaks,
}

impl Leases {
    /// Counts one more open under a lease.
    pub fn add_open(&mut self, lease: LeaseName, volume: VolumeSlot, encrypt: bool) {
        let home = self.homes.entry(lease).or_insert(LeaseHome { volume, opens: 0, encrypt });
        home.opens += 1;
        home.encrypt |= encrypt;
    }

    /// Forgets what an open that is gone had: its part in a lease, and the break of its oplock.
    pub fn forget_open(&mut self, open: &Open) {
        if let Some((volume, name)) = open.volume_open() {
            self.told.remove(&Breaking::Oplock(volume, name));
        }
        if let Some(lease) = open.lease
            && let Some(home) = self.homes.get_mut(&lease)
        {
            home.opens -= 1;
            if home.opens == 0 {
                self.homes.remove(&lease);
                self.told.remove(&Breaking::Lease(lease));
            }
        }
    }

    /// The volume that a lease is of.
    pub fn volume_of(&self, lease: LeaseName) -> Result<VolumeSlot, NtStatus> {
        self.homes.get(&lease).map(|home| home.volume).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)
    }

    /// Whether the break of a lease is told encrypted.
    pub fn is_encrypted(&self, lease: LeaseName) -> bool {
        self.homes.get(&lease).is_some_and(|home| home.encrypt)
    }

    /// Remembers a break that a connection carries to its holder.
    pub fn told(&mut self, breaking: Breaking, connection: ConnectionId, step: BreakStep) {
        self.told.insert(breaking, Told { connection, step });
    }

    /// The holder has acknowledged a break.
    pub fn acknowledged(&mut self, breaking: Breaking) {
        self.told.remove(&breaking);
    }

    /// Takes out the breaks that a connection has carried.
    pub fn take_told_over(&mut self, connection: ConnectionId) -> Vec<(Breaking, BreakStep)> {
        self.told.take_of(connection)
    }
}
