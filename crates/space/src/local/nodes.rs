//! The other nodes of a cluster, from a space's view: their disks, their coordinators, and whether
//! they are alive.
//!
//! Heartbeats decide outside which nodes are alive and how long the node's lease lasts. Here both
//! only make work faster, or hold answers back: epochs and the disks' promises keep two
//! coordinators apart (I2, I3).

use super::epochs::Asked;
use super::{Inner, LocalSpace, VolumeHandle};
use crate::block_store::BlockStore;
use crate::coordinator::{Claimed, LateReads, Phase, Predecessor};
use crate::message::{PeerId, ReplicaOperation, Request, RequestId, Response, Transport};
use pool::{Disk, Route};
use records::{ClusterState, FaultDomain, VolumeRecord};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{DiskId, Lba, Monotonic, NodeId, VolumeId};

/// Corrupt blocks kept for each disk, of volumes that other nodes have open. A later scrub finds
/// blocks beyond this limit again.
const FOUND_MAX: usize = 4096;

/// Mean latencies of a disk within the last window of its server, without the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskPace {
    pub is_rotational: bool,
    /// Means of reads, writes and flushes; `None`: too few to tell.
    pub means: [Option<Duration>; 3],
}

/// Report on a disk that other nodes ask for at intervals: its slabs, its latencies, and the findings
/// of scrubs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskReport {
    pub disk: DiskId,
    pub total_slabs: u64,
    pub free_slabs: u64,
    /// Blocks of one slab.
    pub slab_blocks: u32,
    /// `None`: the disk's server does not report one.
    pub pace: Option<DiskPace>,
    /// Corrupt blocks found since the cursor of the preceding report.
    pub corrupt: Vec<(VolumeId, Lba)>,
    /// Cursor for the next report.
    pub cursor: u64,
}

/// Corrupt blocks that scrubs found, of volumes that are not open here.
#[derive(Default)]
pub(super) struct Found {
    blocks: VecDeque<(VolumeId, Lba)>,
    /// Number of blocks found before the first of `blocks`.
    before: u64,
}

impl Found {
    fn add(&mut self, volume: VolumeId, lba: Lba) {
        self.blocks.push_back((volume, lba));
        if self.blocks.len() > FOUND_MAX {
            self.blocks.pop_front();
            self.before += 1;
        }
    }

    fn cursor(&self) -> u64 {
        self.before + self.blocks.len() as u64
    }

    fn since(&self, cursor: u64) -> Vec<(VolumeId, Lba)> {
        // A cursor of another process begins anew.
        let from = if cursor > self.cursor() { 0 } else { cursor.saturating_sub(self.before) };
        self.blocks.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).copied().collect()
    }
}

impl<S: BlockStore, C: ClusterState> LocalSpace<S, C> {
    /// Returns counts of the volumes' late reads, by the disk of the first request.
    pub fn late_reads(&self) -> BTreeMap<DiskId, LateReads> {
        let mut all: BTreeMap<DiskId, LateReads> = BTreeMap::new();
        for volume in self.inner.borrow().volumes.values() {
            for (disk, reads) in volume.coordinator.late_reads() {
                *all.entry(disk).or_default() += reads;
            }
        }
        all
    }

    /// Notes that the server has become a node of a cluster: its volumes' records must name it, and
    /// its disks get the fault domain `domain`.
    pub fn set_node(&self, node: NodeId, domain: impl Fn(&mut FaultDomain)) {
        let mut inner = self.change();
        inner.config.node = Some(node);
        inner.pool.borrow_mut().change_domains(domain);
        let now = inner.now;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.set_node(now, node));
        inner.pump();
    }

    /// Gives answers from now on only while the node's lease is valid
    /// ([`LocalSpace::set_node_lease`]). All volumes share one lease.
    pub fn set_leased(&self, lease: Duration) {
        let mut inner = self.change();
        debug_assert!(inner.now < inner.lease_until, "clients would wait for a lease");
        inner.config.lease = Some(lease);
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.set_leased(lease));
    }

    /// Whether the record of every volume served here names the node.
    pub fn are_named(&self, node: NodeId) -> bool {
        let inner = self.inner.borrow();
        inner.volumes.values().all(|volume| {
            let coordinator = &volume.coordinator;
            coordinator.phase() != &Phase::Serving || coordinator.record().owner == Some(node)
        })
    }

    /// Sends requests to disks of other nodes over this transport from now on.
    pub fn set_remote(&self, remote: Box<dyn Transport>) {
        self.change().bus.remote = Some(remote);
    }

    /// Adds a disk of another node, with its slabs in all and free ones as far as known. All
    /// volumes may have slabs of it, unless it is retired.
    pub fn attach_remote_disk(&self, disk: DiskId, slabs: (u64, u64), domain: FaultDomain) {
        let mut inner = self.change();
        debug_assert!(inner.bus.replica(disk).is_none(), "{disk} is of this node");
        let (was_given_up, is_retired) = inner.pool.borrow_mut().change(disk, |known| {
            known.domain = domain;
            known.route = Route::Remote { is_down: known.is_down(), reported: slabs };
            (known.total_slabs, known.free_slabs) = slabs;
            (std::mem::take(&mut known.is_given_up), known.is_retired)
        });
        inner.refresh_pool();
        for volume in inner.volumes.values_mut() {
            if was_given_up {
                volume.coordinator.plan_soon();
            }
            if !is_retired {
                volume.coordinator.add_disk(disk);
            }
        }
    }

    /// Updates the slabs of another node's disk, in all and free. A report equal to the one before
    /// says nothing about slabs allocated from here since.
    pub fn update_remote_disk(&self, disk: DiskId, slabs: (u64, u64)) {
        let mut inner = self.inner.borrow_mut();
        let is_news =
            |known: &Disk| matches!(known.route, Route::Remote { reported, .. } if reported != slabs);
        if !inner.pool.borrow().disk(disk).is_some_and(is_news) {
            return;
        }
        inner.pool.borrow_mut().change(disk, |known| {
            known.route = Route::Remote { is_down: known.is_down(), reported: slabs };
            (known.total_slabs, known.free_slabs) = slabs;
        });
        inner.refresh_pool();
    }

    /// Removes a disk that is no longer another node's: it comes back to this one.
    pub fn detach_remote_disk(&self, disk: DiskId) {
        let mut inner = self.change();
        if !inner.pool.borrow().disk(disk).is_some_and(Disk::is_remote) {
            return;
        }
        let was_down = inner.pool.borrow_mut().change(disk, |known| {
            let was_down = known.is_down();
            known.route = Route::Away;
            was_down
        });
        let now = inner.now;
        if was_down {
            inner.volumes.values_mut().for_each(|volume| volume.coordinator.disks_up(now, &[disk]));
        }
        inner.refresh_pool();
    }

    /// Compares the known verdicts about other nodes' disks with `is_down`, and handles each
    /// difference. A disk's verdict changes with its node's, and also when the record moves the
    /// disk to another node, whose own verdict stays.
    pub fn heed_nodes(&self, is_down: impl Fn(DiskId) -> bool) {
        let (down, up): (Vec<DiskId>, Vec<DiskId>) = {
            let inner = self.inner.borrow();
            let pool = inner.pool.borrow();
            let turned = pool.disks().filter(|disk| disk.is_remote() && is_down(disk.id) != disk.is_down());
            turned.map(|disk| disk.id).partition(|disk| is_down(*disk))
        };
        if !down.is_empty() {
            self.node_down(&down);
        }
        if !up.is_empty() {
            self.node_up(&up);
        }
    }

    /// Handles the death of these disks' node: one change of each volume's record expels them at
    /// once, and nothing waits for them. Disks with the last copy of a chunk are still waited for.
    pub fn node_down(&self, disks: &[DiskId]) {
        let mut inner = self.change();
        let turned = inner.set_down(disks, true);
        let now = inner.now;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.disks_down(now, &turned));
        inner.pump();
    }

    /// Handles the return of these disks' node: opens sessions with them at once.
    pub fn node_up(&self, disks: &[DiskId]) {
        let mut inner = self.change();
        let turned = inner.set_down(disks, false);
        let now = inner.now;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.disks_up(now, &turned));
        inner.pump();
    }

    /// Extends the lease by which a majority of the nodes lets this one answer for its volumes.
    /// Only if [`crate::coordinator::Config::lease`] is set.
    pub fn set_node_lease(&self, valid_until: Monotonic) {
        let mut inner = self.inner.borrow_mut();
        if valid_until <= inner.lease_until {
            return;
        }
        let now = inner.now;
        let lapsed = inner.lease_until <= now;
        inner.lease_until = valid_until;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.set_lease(valid_until));
        // The next pump takes answers that the lease held back.
        inner.quiet &= !lapsed;
    }

    /// Begins to take a volume over from the node that its record names. If another node has it by
    /// now, or that node is back, the opening ends with [`crate::api::SpaceError::Fenced`].
    pub fn take_over(
        &self,
        volume: VolumeId,
        incarnation: u128,
        predecessor: Predecessor,
    ) -> VolumeHandle<S, C> {
        self.open_with(volume, incarnation, |coordinator| coordinator.set_predecessor(predecessor))
    }

    /// Returns the claims of volumes that wait until no earlier owner answers for them.
    pub fn claimed(&self) -> Vec<(VolumeId, Claimed)> {
        let inner = self.inner.borrow();
        let claimed =
            |(id, volume): (&VolumeId, &super::Volume)| Some((*id, volume.coordinator.claimed()?.clone()));
        inner.volumes.iter().filter_map(claimed).collect()
    }

    /// Notes that no earlier owner answers for the volume any more.
    pub fn permit(&self, volume: VolumeId) {
        let mut inner = self.change();
        let now = inner.now;
        if let Some(volume) = inner.volumes.get_mut(&volume) {
            volume.coordinator.permit(now);
        }
        inner.pump();
    }

    /// Passes on a volume's record from the cluster state. A coordinator whose volume another one
    /// has claimed stops at once.
    pub fn note_record(&self, record: &VolumeRecord) {
        let mut inner = self.change();
        let now = inner.now;
        for asked in inner.epochs.note(record) {
            inner.admit(asked);
        }
        if let Some(volume) = inner.volumes.get_mut(&record.id) {
            volume.coordinator.note_record(now, record);
        }
        inner.pump();
    }

    /// Takes a request of node `from`'s coordinator to a disk of this one.
    /// [`LocalSpace::poll_remote`] returns the answer.
    pub fn handle_remote(&self, peer: PeerId, from: NodeId, disk: DiskId, request: Request) {
        let mut inner = self.inner.borrow_mut();
        inner.quiet = false;
        let (volume, promised) = (request.volume, inner.bus.promised(disk, request.volume));
        let asked = Asked { peer, from, disk, request };
        if promised.is_none_or(|promised| inner.epochs.admits(&asked, promised)) {
            return inner.admit(asked);
        }
        if inner.epochs.wait(asked) {
            inner.read_for_epochs(volume);
        }
    }

    /// Runs ready work, then moves the answers to other nodes' coordinators into `out`.
    pub fn poll_remote(&self, out: &mut Vec<(PeerId, DiskId, Response)>) {
        let mut inner = self.inner.borrow_mut();
        inner.pump();
        out.extend(inner.bus.take_peer_answers().map(|(peer, response)| (peer, response.from, response)));
    }

    /// Forgets the records that decide on requests of other nodes, like a server that has just
    /// started and read none.
    #[cfg(test)]
    pub(crate) fn forget_records(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.begun.clear();
        inner.epochs = super::epochs::Epochs::default();
    }

    /// Takes requests admitted to their disks since the last call that begin sessions: their epochs
    /// are ones that the records gave.
    pub fn take_begun(&self) -> Vec<(PeerId, RequestId)> {
        std::mem::take(&mut self.inner.borrow_mut().begun)
    }

    /// Ends the sessions of a lost connection, and drops the answers to its requests.
    pub fn end_peer(&self, peer: PeerId) {
        let mut inner = self.inner.borrow_mut();
        inner.begun.retain(|(begun, _)| *begun != peer);
        inner.epochs.end_peer(peer);
        inner.bus.end_peer(peer);
    }

    /// Reports on a disk of this node, with the damage that scrubs found since `cursor` (0: ever)
    /// in volumes that are not open here. Leaves its pace to the caller.
    pub fn report(&self, disk: DiskId, cursor: u64) -> Option<DiskReport> {
        let inner = self.inner.borrow();
        let (total_slabs, free_slabs) = inner.bus.replica(disk)?.store().slabs();
        let found = inner.bus.found(disk);
        Some(DiskReport {
            disk,
            total_slabs,
            free_slabs,
            slab_blocks: inner.chunk_blocks,
            pace: None,
            corrupt: found.map(|found| found.since(cursor)).unwrap_or_default(),
            cursor: found.map_or(0, Found::cursor),
        })
    }

    /// Ends the sessions of a volume with a disk of this node ([`crate::replica::Replica::end_sessions`]).
    pub fn end_sessions(&self, disk: DiskId, volume: VolumeId) {
        if let Some(replica) = self.change().bus.replica_mut(disk) {
            replica.end_sessions(volume);
        }
    }

    /// Repairs blocks that another node's scrub found corrupt on a disk of that node.
    pub fn note_corrupt(&self, disk: DiskId, blocks: &[(VolumeId, Lba)]) {
        let mut inner = self.change();
        let now = inner.now;
        for (volume, lba) in blocks {
            if let Some(volume) = inner.volumes.get_mut(volume) {
                volume.coordinator.repair(now, disk, *lba);
            }
        }
        inner.pump();
    }

    /// Whether the disk is on another node.
    pub fn is_remote(&self, disk: DiskId) -> bool {
        self.inner.borrow().pool.borrow().disk(disk).is_some_and(Disk::is_remote)
    }
}

impl<S: BlockStore, C: ClusterState> Inner<S, C> {
    /// Notes whether the node of these disks is down. Returns those for which this is new.
    fn set_down(&mut self, disks: &[DiskId], is_down: bool) -> Vec<DiskId> {
        let mut pool = self.pool.borrow_mut();
        let turned = disks.iter().copied().filter(|disk| pool.set_down(*disk, is_down)).collect();
        drop(pool);
        self.refresh_pool();
        turned
    }

    /// Passes a request of another node to its disk.
    pub(super) fn admit(&mut self, asked: Asked) {
        if matches!(asked.request.operation, ReplicaOperation::Open { .. }) {
            self.begun.push((asked.peer, asked.request.id));
        }
        self.bus.handle_peer(asked.peer, asked.disk, asked.request);
    }

    /// Handles a block of a disk that a scrub found corrupt: its volume's coordinator repairs it,
    /// here or on the node that has the volume open.
    pub(super) fn found_corrupt(&mut self, disk: DiskId, volume: VolumeId, lba: Lba) {
        match self.volumes.get_mut(&volume) {
            Some(open) => open.coordinator.repair(self.now, disk, lba),
            None if self.bus.remote.is_some() => {
                self.bus.found_mut(disk).add(volume, lba);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scrubs_found_is_told_from_the_cursor_on_and_again_to_one_of_another_process() {
        let mut found = Found::default();
        let volume = VolumeId::from_bytes([1; 16]);
        (0..FOUND_MAX as u64 + 2).for_each(|lba| found.add(volume, Lba(lba)));
        let cursor = found.cursor();
        assert_eq!(cursor, FOUND_MAX as u64 + 2);
        assert_eq!(found.since(cursor), []);
        assert_eq!(found.since(cursor - 1), [(volume, Lba(cursor - 1))]);
        assert_eq!(found.since(0).len(), FOUND_MAX);
        assert_eq!(found.since(cursor + 5).len(), FOUND_MAX);
    }
}
