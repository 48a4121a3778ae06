//! A cluster node's exchange with the outside: the heartbeats, and the bus between the nodes.

use crate::node::Node;
use crate::peers::{ClusterMembership, NodeLife};
use crate::pools::PoolSpace;
use records::{DiskRecord, Record, State, StateError, Stored, Transaction, Typed, VolumeRecord};
use space::coordinator::LateReads;
use space::local::nodes::DiskReport;
use space::message::{PeerId, Request, RequestId, Response};
use std::collections::BTreeMap;
use types::{DiskId, NodeId};

/// How often a record is written over one that was changed meanwhile.
const WRITES_MAX: usize = 10;

impl Node {
    /// Makes the single server a node of a cluster, of which it is the first, while it serves: the records are the cluster's from now on, and its disks
    /// stand there as this node's ([`adopt_records`]). It answers without a lease until it has one; nobody else may be let into the cluster before
    /// [`Node::has_joined`].
    pub fn join(&self, membership: ClusterMembership) {
        let heartbeats = membership.heartbeats.clone();
        self.peers.join(membership);
        self.job_control.join();
        for slot in self.disks.slots_mut().values_mut() {
            slot.record.node = self.peers.own();
            self.peers.name_domain(&mut slot.record.fault_domain);
            if let Some(store) = slot.store() {
                // From now on spaces of other nodes write there, too.
                store.verify_writes();
            }
        }
        self.pools.join();
        self.kept.let_go();
        self.lease_gate.begin(heartbeats);
        let waker = self.tasks.waker();
        self.record_watch.begin(self.kept.state().watch_with("", move || waker.wake()));
    }

    /// Whether the node answers by leases, and the records of the volumes that it serves name it: other
    /// nodes know its volumes from then on.
    pub fn has_joined(&self) -> bool {
        self.lease_gate.is_bound() && self.pools.are_named()
    }

    /// Whether most of the nodes hear this one: its knowledge of their lives holds now. A single server
    /// hears all that there are.
    pub fn hears_most(&self) -> bool {
        self.lease_gate.may_answer()
    }

    /// Takes a majority's verdicts on all nodes, this one too. To be called once they are known, and after
    /// each change; before, no volume is opened.
    pub fn set_nodes(&self, nodes: BTreeMap<NodeId, NodeLife>) {
        self.record_watch.set_nodes(nodes);
        self.draining_of_node.look();
    }

    /// The life of this node that may answer: another one in each term of its lease. None: it is about to be recorded.
    pub fn incarnation(&self) -> Option<u64> {
        self.record_watch.incarnation()
    }

    /// Takes a request of the coordinator of node `from`; answered by [`Node::poll_remote`].
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

    /// Takes the requests that begin sessions, and were admitted to their disks since this was asked last.
    pub fn take_begun(&self) -> Vec<(PeerId, RequestId)> {
        self.pools.entries().values().flat_map(|entry| entry.space.take_begun()).collect()
    }

    /// A connection of another node is lost.
    pub fn end_peer(&self, peer: PeerId) {
        for entry in self.pools.entries().values() {
            entry.space.end_peer(peer);
        }
    }

    /// Reports on a disk of this node, with the findings of scrubs since `cursor` (0: ever); none if the
    /// disk is not there.
    pub fn report(&self, disk: DiskId, cursor: u64) -> Option<DiskReport> {
        let report = self.space_of(disk)?.report(disk, cursor)?;
        Some(DiskReport { pace: self.slow_disks.pace(disk), ..report })
    }

    /// Outcomes of late reads, by the node of the disk that was asked first.
    pub fn late_reads(&self) -> BTreeMap<NodeId, LateReads> {
        let (disks, mut all) = (self.peers.disks(), BTreeMap::<NodeId, LateReads>::new());
        for (disk, reads) in self.pools.entries().values().flat_map(|entry| entry.space.late_reads()) {
            if let Some(node) = disks.get(&disk).and_then(|disk| disk.node) {
                *all.entry(node).or_default() += reads;
            }
        }
        all
    }

    /// The recorded volumes that nobody serves, and has not for some seconds, as far as that is known here. To be asked every few seconds.
    pub fn unserved(&self) -> Vec<VolumeRecord> {
        let is_absent = |volume| self.volumes.is_elsewhere(volume);
        self.peers.unserved(self.tasks.now(), is_absent)
    }

    /// Takes the report of a node on a disk of its own; of another one's disks it has nothing to say.
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
/// Those of the state; nothing is changed then, or nobody knows.
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
