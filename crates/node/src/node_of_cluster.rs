//! A cluster node's exchanges with other nodes: heartbeats, and the bus.

use crate::node::Node;
use crate::peers::{ClusterMembership, NodeLife};
use crate::pools::PoolSpace;
use records::{DiskRecord, Record, State, StateError, Stored, Transaction, Typed, VolumeRecord};
use space::coordinator::LateReads;
use space::local::nodes::DiskReport;
use space::message::{PeerId, Request, RequestId, Response};
use std::collections::BTreeMap;
use types::{DiskId, NodeId};

/// Attempts to update a record that others change at the same time.
const WRITES_MAX: usize = 10;

impl Node {
    /// Makes the single server the first node of a cluster, while it serves: the records are the
    /// cluster's from now on, with its disks as this node's ([`adopt_records`]). The node answers
    /// without a lease until it has one. No other node may join the cluster before
    /// [`Node::has_joined`].
    pub fn join(&self, membership: ClusterMembership) {
        let heartbeats = membership.heartbeats.clone();
        self.peers.join(membership);
        self.job_control.join();
        for slot in self.disks.slots_mut().values_mut() {
            slot.record.node = self.peers.own();
            self.peers.name_domain(&mut slot.record.fault_domain);
            if let Some(store) = slot.store() {
                // From now on spaces of other nodes write to it, too.
                store.verify_writes();
            }
        }
        self.pools.join();
        self.kept.let_go();
        self.lease_gate.begin(heartbeats);
        let waker = self.tasks.waker();
        self.record_watch.begin(self.kept.state().watch_with("", move || waker.wake()));
    }

    /// Whether the node answers by leases, and the records of its volumes name it, so that other
    /// nodes know of them.
    pub fn has_joined(&self) -> bool {
        self.lease_gate.is_bound() && self.pools.are_named()
    }

    /// Whether most of the nodes hear this one, so that its knowledge of live nodes is current. A
    /// single server always does.
    pub fn hears_most(&self) -> bool {
        self.lease_gate.may_answer()
    }

    /// Takes a majority's verdicts on all nodes, including this one. Call once they are known, and
    /// after each change. Before the first call, no volume is opened.
    pub fn set_nodes(&self, nodes: BTreeMap<NodeId, NodeLife>) {
        self.record_watch.set_nodes(nodes);
        self.draining_of_node.look();
    }

    /// Returns the incarnation of this node that may answer: each term of its lease has another.
    /// `None`: it is being recorded.
    pub fn incarnation(&self) -> Option<u64> {
        self.record_watch.incarnation()
    }

    /// Takes a request of node `from`'s coordinator. [`Node::poll_remote`] returns the answer.
    pub fn handle_remote(&self, peer: PeerId, from: NodeId, disk: DiskId, request: Request) {
        let space = self.space_of(disk).or_else(|| self.pools.spaces().into_iter().next());
        if let Some(space) = space {
            space.handle_remote(peer, from, disk, request);
        }
    }

    /// Moves the answers to other nodes' coordinators into `out`.
    pub fn poll_remote(&self, out: &mut Vec<(PeerId, DiskId, Response)>) {
        for entry in self.pools.entries().values() {
            entry.space.poll_remote(out);
        }
    }

    /// Takes requests admitted to their disks since the last call that begin sessions.
    pub fn take_begun(&self) -> Vec<(PeerId, RequestId)> {
        self.pools.entries().values().flat_map(|entry| entry.space.take_begun()).collect()
    }

    /// Ends the sessions of a lost connection of another node.
    pub fn end_peer(&self, peer: PeerId) {
        for entry in self.pools.entries().values() {
            entry.space.end_peer(peer);
        }
    }

    /// Reports on a disk of this node, with the findings of scrubs since `cursor` (0: ever); `None`
    /// if the disk is absent.
    pub fn report(&self, disk: DiskId, cursor: u64) -> Option<DiskReport> {
        let report = self.space_of(disk)?.report(disk, cursor)?;
        Some(DiskReport { pace: self.slow_disks.pace(disk), ..report })
    }

    /// Returns the outcomes of late reads, by the node of the disk that was asked first.
    pub fn late_reads(&self) -> BTreeMap<NodeId, LateReads> {
        let (disks, mut all) = (self.peers.disks(), BTreeMap::<NodeId, LateReads>::new());
        for (disk, reads) in self.pools.entries().values().flat_map(|entry| entry.space.late_reads()) {
            if let Some(node) = disks.get(&disk).and_then(|disk| disk.node) {
                *all.entry(node).or_default() += reads;
            }
        }
        all
    }

    /// Lists the recorded volumes that no node has served for some seconds, by this node's
    /// knowledge. Call every few seconds.
    pub fn unserved(&self) -> Vec<VolumeRecord> {
        let is_absent = |volume| self.volumes.is_elsewhere(volume);
        self.peers.unserved(self.tasks.now(), is_absent)
    }

    /// Takes a node's report on a disk of its own. A report on another node's disk is ignored.
    pub fn note_report(&self, from: NodeId, report: &DiskReport) {
        let disks = self.peers.disks();
        let pool = disks.get(&report.disk).filter(|disk| disk.node == Some(from)).map(|disk| disk.pool);
        drop(disks);
        let Some(pool) = pool else { return };
        if let Some(pace) = report.pace {
            self.slow_disks.note(report.disk, pool, pace);
        }
        let Some(space) = self.pools.space(pool) else { return };
        space.update_remote_disk(report.disk, (report.total_slabs, report.free_slabs));
        if !report.corrupt.is_empty() {
            space.note_corrupt(report.disk, &report.corrupt);
        }
    }

    fn space_of(&self, disk: DiskId) -> Option<PoolSpace> {
        self.disks.pool_of(disk).and_then(|pool| self.pools.space(pool))
    }
}

/// Makes the disks of a single server those of a node, which becomes the first of a cluster.
///
/// # Errors
/// Errors of the state: then nothing was changed, or the outcome is unknown.
pub fn adopt_records(state: &State, node: NodeId, name: &str) -> Result<(), StateError> {
    for _ in 0..WRITES_MAX {
        let mut changes = Transaction::default();
        for Stored { revision, value } in state.list::<DiskRecord>()? {
            if value.node.is_some() {
                continue;
            }
            let mut record = DiskRecord { node: Some(node), ..value };
            name.clone_into(&mut record.fault_domain.node);
            changes = changes.when(record.key(), revision).put(record.key(), record.encode());
        }
        match state.commit(changes) {
            Err(StateError::Conflict) => {}
            written => return written.map(|_| ()),
        }
    }
    Err(StateError::Conflict)
}
