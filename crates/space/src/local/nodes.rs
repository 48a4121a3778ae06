//! The other nodes of a cluster, as a space uses them: their disks, their coordinators, and whether
//! they are alive.
//!
//! Verdicts about nodes and the node's lease come from outside, by heartbeats. Here they only make work
//! faster, or hold answers back: epochs and the disks' promises keep two coordinators apart (I2, I3).

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

/// Corrupt blocks of volumes that other nodes have open, kept for these for each disk: a scrub finds those again that go beyond it.
const FOUND_MAX: usize = 4096;

/// How long a disk took on average for what it was asked within the last window of its server, network not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskPace {
    pub is_rotational: bool,
    /// Of reads, writes and flushes; `None`: too few to say.
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
    /// `None`: its server does not say.
    pub pace: Option<DiskPace>,
    /// Corrupt blocks that were found since the cursor of the report before.
    pub corrupt: Vec<(VolumeId, Lba)>,
    /// To ask for the next report with.
    pub cursor: u64,
}

/// Corrupt blocks that scrubs found, of volumes that are not open here.
#[derive(Default)]
pub(super) struct Found {
    blocks: VecDeque<(VolumeId, Lba)>,
    /// Blocks that were found before the first of `blocks`.
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
        // One that another process gave begins anew.
        let from = if cursor > self.cursor() { 0 } else { cursor.saturating_sub(self.before) };
        self.blocks.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).copied().collect()
    }
}

impl<S: BlockStore, C: ClusterState> LocalSpace<S, C> {
    /// Returns counts of the volumes' late reads, by the disk that was asked first.
    pub fn late_reads(&self) -> BTreeMap<DiskId, LateReads> {
        let mut all: BTreeMap<DiskId, LateReads> = BTreeMap::new();
        for volume in self.inner.borrow().volumes.values() {
            for (disk, reads) in volume.coordinator.late_reads() {
                *all.entry(disk).or_default() += reads;
            }
        }
        all
    }

    /// The server has become a node of a cluster: the records of its volumes are to name it, and `domain` is that of its disks.
    pub fn set_node(&self, node: NodeId, domain: impl Fn(&mut FaultDomain)) {
        let mut inner = self.change();
        inner.config.node = Some(node);
        inner.pool.borrow_mut().change_domains(domain);
        let now = inner.now;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.set_node(now, node));
        inner.pump();
    }

    /// Answers are given from now on only while the node's lease is valid ([`LocalSpace::set_node_lease`]), of which there is one.
    pub fn set_leased(&self, lease: Duration) {
        let mut inner = self.change();
        debug_assert!(inner.now < inner.lease_until, "clients would wait for a lease");
        inner.config.lease = Some(lease);
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.set_leased(lease));
    }

    /// Whether the record of every volume that is served here names the node.
    pub fn are_named(&self, node: NodeId) -> bool {
        let inner = self.inner.borrow();
        inner.volumes.values().all(|volume| {
            let coordinator = &volume.coordinator;
            coordinator.phase() != &Phase::Serving || coordinator.record().owner == Some(node)
        })
    }

    /// Requests to disks of other nodes go to this transport from now on.
    pub fn set_remote(&self, remote: Box<dyn Transport>) {
        self.change().bus.remote = Some(remote);
    }

    /// Takes notice of a disk of another node, with `slabs` in all and free ones, as far as is known. All volumes may be given slabs of it,
    /// unless it is retired.
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

    /// Takes notice of the slabs that a disk of another node has, in all and free. A report that says the same as the one before tells
    /// nothing of the slabs that were given from here since.
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

    /// The disk is not another node's any more: it comes back here.
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

    /// Compares what is known of the disks of other nodes with what `is_down` says now, and heeds each difference. A disk's verdict changes with its
    /// node, and also when the disk is recorded with another node, of which no verdict changes.
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

    /// The node of these disks is dead: they leave the in-sync sets of all volumes at once, each by one change of its record, and nobody
    /// waits for them. Those that have the last copy of something are waited for.
    pub fn node_down(&self, disks: &[DiskId]) {
        let mut inner = self.change();
        let turned = inner.set_down(disks, true);
        let now = inner.now;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.disks_down(now, &turned));
        inner.pump();
    }

    /// The node of these disks is back: they are spoken to at once.
    pub fn node_up(&self, disks: &[DiskId]) {
        let mut inner = self.change();
        let turned = inner.set_down(disks, false);
        let now = inner.now;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.disks_up(now, &turned));
        inner.pump();
    }

    /// A majority of the nodes lets this one answer for its volumes until then. Only if [`crate::coordinator::Config::lease`] is set.
    pub fn set_node_lease(&self, valid_until: Monotonic) {
        let mut inner = self.inner.borrow_mut();
        if valid_until <= inner.lease_until {
            return;
        }
        let now = inner.now;
        let lapsed = inner.lease_until <= now;
        inner.lease_until = valid_until;
        inner.volumes.values_mut().for_each(|volume| volume.coordinator.set_lease(valid_until));
        // Answers that were held back are taken by the next pump.
        inner.quiet &= !lapsed;
    }

    /// Begins to take a volume over from the node that its record names. If another one has it by now, or the node is back, the opening ends
    /// with [`crate::api::SpaceError::Fenced`].
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

    /// Takes notice of a volume's record as the cluster state has it: a coordinator whose volume another one has claimed stops at once.
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

    /// Takes a request of the coordinator of node `from` to a disk of this one; answered by [`LocalSpace::poll_remote`].
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

    /// Moves the answers to other nodes' coordinators into `out`, after it ran what is ready.
    pub fn poll_remote(&self, out: &mut Vec<(PeerId, DiskId, Response)>) {
        let mut inner = self.inner.borrow_mut();
        inner.pump();
        out.extend(inner.bus.take_peer_answers().map(|(peer, response)| (peer, response.from, response)));
    }

    /// Forgets the records by which requests of other nodes are judged, as a server that starts has not read them yet.
    #[cfg(test)]
    pub(crate) fn forget_records(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.begun.clear();
        inner.epochs = super::epochs::Epochs::default();
    }

    /// Takes the requests that begin sessions and were admitted to their disks since this was asked last: by epochs that the records gave.
    pub fn take_begun(&self) -> Vec<(PeerId, RequestId)> {
        std::mem::take(&mut self.inner.borrow_mut().begun)
    }

    /// The connection is lost: its sessions end, and what it asked for is answered to nobody.
    pub fn end_peer(&self, peer: PeerId) {
        let mut inner = self.inner.borrow_mut();
        inner.begun.retain(|(begun, _)| *begun != peer);
        inner.epochs.end_peer(peer);
        inner.bus.end_peer(peer);
    }

    /// Reports on a disk of this node, with what scrubs found since `cursor` (0: ever) in volumes that are not open here. Its pace is not known here.
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

    /// Repairs blocks that a scrub on another node found corrupt on a disk of that node.
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

    /// Whether the disk is another node's.
    pub fn is_remote(&self, disk: DiskId) -> bool {
        self.inner.borrow().pool.borrow().disk(disk).is_some_and(Disk::is_remote)
    }
}

impl<S: BlockStore, C: ClusterState> Inner<S, C> {
    /// Notes whether the node of these disks is down; returns those of them of which that is new.
    fn set_down(&mut self, disks: &[DiskId], is_down: bool) -> Vec<DiskId> {
        let mut pool = self.pool.borrow_mut();
        let turned = disks.iter().copied().filter(|disk| pool.set_down(*disk, is_down)).collect();
        drop(pool);
        self.refresh_pool();
        turned
    }

    /// Hands a request of another node to its disk.
    pub(super) fn admit(&mut self, asked: Asked) {
        if matches!(asked.request.operation, ReplicaOperation::Open { .. }) {
            self.begun.push((asked.peer, asked.request.id));
        }
        self.bus.handle_peer(asked.peer, asked.disk, asked.request);
    }

    /// A scrub found this block of a disk corrupt: its volume's coordinator repairs it, here or on the node that has it open.
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
