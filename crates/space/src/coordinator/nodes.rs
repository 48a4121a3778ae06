//! A coordinator's input about nodes, if there are several: the nodes of disks, the dead nodes, this
//! node's lease.
//!
//! Heartbeats and the cluster state's changes are the sources of this input, which makes work
//! faster or holds answers back. Safety depends on the record and on the disks' promises alone (I2,
//! I3).

use super::calls::Owner;
use super::chunks::ChunkState;
use super::opening::{Claimed, Predecessor};
use super::pending_changes::Change;
use super::shared::Shared;
use super::{Coordinator, LateReads, Phase};
use crate::api::SpaceError;
use crate::message::Waiting;
use crate::planted::Planted;
use records::VolumeRecord;
use records::import::EPOCHS_AHEAD_MAX;
use std::time::Duration;
use types::{DiskId, Epoch, Monotonic, NodeId};

impl Coordinator {
    /// Lets answers be given until this time, if several nodes may open the volume.
    pub fn set_lease(&mut self, valid_until: Monotonic) {
        self.shared.membership.lease.extend(valid_until);
    }

    /// Notes that the server has become a node of a cluster, for the record to name as the volume's
    /// owner.
    pub fn set_node(&mut self, now: Monotonic, node: NodeId) {
        self.advance_time(now);
        self.shared.context.config.node = Some(node);
        // A running opening changes its record when it ends.
        if self.shared.context.serving() && self.shared.membership.record().owner != Some(node) {
            self.shared.membership.want(Change::Rotate);
        }
        self.drive();
    }

    /// Gives answers only while the node's lease is valid from now on. A new coordinator waits for
    /// that lease, of this length, to end.
    pub fn set_leased(&mut self, lease: Duration) {
        self.shared.context.config.lease = Some(lease);
    }

    /// Takes the volume over from this node alone. If the record names another node by now, or the
    /// node has come back, the volume stays there: [`SpaceError::Fenced`].
    pub fn set_predecessor(&mut self, predecessor: Predecessor) {
        self.opening.predecessor = Some(predecessor);
    }

    /// Returns the claim of an opening that waits, or will wait, until no other node answers for
    /// the volume ([`Coordinator::permit`]).
    pub fn claimed(&self) -> Option<&Claimed> {
        self.opening.claimed().filter(|_| self.shared.context.phase == Phase::Opening)
    }

    /// Returns the disks in sync that an opening waits for.
    pub fn missing_disks(&self) -> Vec<DiskId> {
        match self.shared.context.phase {
            Phase::Opening => self.opening.missing(&self.shared),
            _ => Vec::new(),
        }
    }

    /// Returns the promise by which a disk refused this coordinator, now stopped, if no owner of
    /// the volume can reach that epoch. The promise of another owner is an epoch that the record
    /// has given, or soon will.
    pub fn refused_beyond_bounds(&self) -> Option<Epoch> {
        let bound = self.shared.membership.record().epoch.0.saturating_add(EPOCHS_AHEAD_MAX);
        self.shared.mailbox.refused_by().filter(|promised| promised.0 > bound)
    }

    /// Notes that no node that [`Coordinator::claimed`] named answers for the volume any more.
    pub fn permit(&mut self, now: Monotonic) {
        self.advance_time(now);
        self.opening.permit();
        self.drive();
    }

    /// Notes that a request still waits behind others on its way to the disk, or has left after a
    /// wait.
    pub fn note_waiting(&mut self, now: Monotonic, waiting: Waiting) {
        self.advance_time(now);
        let Shared { calls, context, .. } = &mut self.shared;
        if let Some(Owner::Operation(key)) = calls.note_waiting(&waiting, context) {
            self.operations.hedges.note_waiting(key, &waiting, context.now);
        }
    }

    /// Whether a chunk is about to be given back. Its copies count until then, and no disk leaves
    /// that has the last one.
    pub fn gives_back(&self) -> bool {
        self.shared.chunks.map.values().any(|chunk| chunk.state == ChunkState::Closing)
    }

    /// Whether some chunk has too few copies for a write, while a resync brings disks up to date.
    pub fn makes_up_for_copies(&self) -> bool {
        let record = self.shared.membership.record();
        self.shared.context.serving()
            && self.shared.chunks.fewest_holders(record) < record.min_copies
            && !self.jobs.resyncs.is_empty()
    }

    /// Returns counts of late reads, by the disk that was asked first.
    pub fn late_reads(&self) -> impl Iterator<Item = (DiskId, LateReads)> + '_ {
        self.operations.hedges.counts()
    }

    /// Notes that the node of these disks is dead, as the table of disks has it by now. One change
    /// of the record expels all of them, and nothing waits for them longer than that takes.
    pub fn disks_down(&mut self, now: Monotonic, disks: &[DiskId]) {
        self.advance_time(now);
        if Planted::DeadDisksWaitedFor.is_planted() {
            return;
        }
        for &disk in disks {
            if self.shared.context.is_over() {
                break;
            }
            let Shared { context, mailbox, calls, .. } = &mut self.shared;
            match context.serving() {
                true => self.shared.fail_disk(disk, "its node is down"),
                // The opening decides whether all missing disks may be missing.
                false => calls.pause_disk(disk, "its node is down", context, mailbox),
            }
        }
        self.drive();
    }

    /// Notes that the node of these disks is back, as the table of disks has it by now.
    pub fn disks_up(&mut self, now: Monotonic, disks: &[DiskId]) {
        self.advance_time(now);
        for &disk in disks {
            if !Planted::DeadDisksWaitedFor.is_planted() && !self.shared.context.is_over() {
                self.shared.calls.reopen(disk, &self.shared.context);
            }
        }
        self.jobs.plan_soon(now);
        self.drive();
    }

    /// Compares the coordinator's record with the cluster state's. If another coordinator has
    /// claimed the volume, this one stops. Disks accepted as they are by an administrator count.
    pub fn note_record(&mut self, now: Monotonic, record: &VolumeRecord) {
        self.advance_time(now);
        if self.shared.membership.is_lost_by(record, &self.shared.context) {
            self.stop(SpaceError::Fenced);
        }
        let membership = &mut self.shared.membership;
        // An older record names disks that have since been decided on.
        if record.epoch >= membership.record().epoch {
            membership.accept_images(&record.accepted_images);
        }
        self.drive();
    }

    /// Lists disks that went back in time and have data that no other disk has. The volume waits
    /// for the right disks, or for an administrator to accept these as they are.
    pub fn held_images(&self) -> Vec<DiskId> {
        self.shared.membership.gone_back.held().collect()
    }
}
