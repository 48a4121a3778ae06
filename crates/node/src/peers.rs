//! This node's knowledge of the others in a cluster: the live ones, the owner of each disk, the
//! node of each volume.
//!
//! Owns the knowledge of other nodes from heartbeats and records. Promises: pure bookkeeping;
//! verdicts come from outside. Empty and unused on a single server.

use crate::lease_gate::Heartbeats;
use records::{Condition, DiskRecord, DiskState, FaultDomain, NodeLease, Record, Stored, VolumeRecord};
use space::coordinator::Predecessor;
use space::message::Transport;
use space::takeover::{self, Candidate, View, owners};
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic, NodeId, PoolId, VolumeId};

/// Makes the transport through which one pool's space reaches disks of other nodes.
pub type MakeTransport = Box<dyn Fn(PoolId) -> Box<dyn Transport>>;

/// Parts that make a server a node of a cluster.
pub struct ClusterMembership {
    /// This node.
    pub node: NodeId,
    /// This node's name, in the fault domains of its disks.
    pub name: String,
    /// Duration of the lease by which a majority of the nodes lets this one answer for its volumes.
    pub lease: Duration,
    /// Whether this node may answer for its volumes.
    pub heartbeats: Rc<dyn Heartbeats>,
    /// Makes the transport to other nodes' disks, one for each pool.
    pub transport: MakeTransport,
}

/// Time without a connection of the bus after which a node counts as unreached. A silent connection
/// is closed after two seconds, and the next one shows within two more that it carries no large
/// messages. By then disks with pending requests are not late yet.
pub(crate) const UNREACHED_AFTER: Duration = Duration::from_secs(3);

/// Time without service after which a volume is reported: a takeover takes about two seconds, and
/// after ten an opening that waits for disks is left to another node.
const UNSERVED_AFTER: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// A node that no connection of the bus reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreached {
    /// Time since which no connection reaches the node.
    pub since: Monotonic,
    /// Address of the last attempt.
    pub address: Option<SocketAddr>,
    /// Reason why the last attempt failed.
    pub why: String,
}

/// Whether a node lives, by the verdict of a majority of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLife {
    /// Whether a majority hears it. Verdicts of fewer nodes must not come here.
    pub is_up: bool,
    /// Whether this node and that one can talk. If not, its disks answer no requests from here,
    /// although other nodes may hear it.
    pub is_reached: bool,
    /// Whether the node may get volumes: it neither drains nor leaves.
    pub takes_volumes: bool,
    /// Incarnation of the node that is up, or down; `None`: the last one recorded. A node that a
    /// majority declared dead comes back with another.
    pub incarnation: Option<u64>,
}

/// Changes by one set of verdicts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Turned {
    /// Disks of nodes that went down, or are cut off from this one.
    pub down: Vec<DiskId>,
    pub nodes_down: Vec<NodeId>,
    pub nodes_up: Vec<NodeId>,
    pub cut_off: Vec<NodeId>,
    pub reached_again: Vec<NodeId>,
}

/// The nodes of the cluster, and their disks and volumes.
///
/// Invariant: without a membership everything else is empty.
#[derive(Default)]
pub struct Peers {
    membership: OnceCell<ClusterMembership>,
    nodes: RefCell<BTreeMap<NodeId, NodeLife>>,
    /// Recorded disks of other nodes.
    disks: RefCell<BTreeMap<DiskId, DiskRecord>>,
    /// The owner of each recorded disk, this node included.
    homes: RefCell<BTreeMap<DiskId, NodeId>>,
    /// The volumes at the last reading of the records.
    volumes: RefCell<BTreeMap<VolumeId, VolumeRecord>>,
    /// The incarnation of each node that may answer, at the last reading.
    leases: RefCell<BTreeMap<NodeId, Stored<NodeLease>>>,
    /// Times when nodes went down, for the log.
    down_since: RefCell<BTreeMap<NodeId, Monotonic>>,
    /// Whether verdicts have come: before that no volume is opened.
    is_told: Cell<bool>,
    /// Times since which no node serves these volumes, by this node's knowledge.
    unserved_since: RefCell<BTreeMap<VolumeId, Monotonic>>,
    /// Nodes that no connection of the bus reaches.
    unreached: RefCell<BTreeMap<NodeId, Unreached>>,
    /// Disks of nodes that have left which were to come back at this node and may not, with the
    /// reasons.
    refused: RefCell<BTreeMap<DiskId, String>>,
}

impl Peers {
    /// Makes the peers of a node, or with `None` those of a single server, which has none.
    pub fn new(membership: Option<ClusterMembership>) -> Self {
        let peers = Self::default();
        if let Some(membership) = membership {
            peers.join(membership);
        }
        peers
    }

    /// Makes the single server a node, permanently.
    pub(crate) fn join(&self, membership: ClusterMembership) {
        let is_first = self.membership.set(membership).is_ok();
        debug_assert!(is_first, "a server is a node of one cluster");
    }

    /// Returns this node, if it is one of a cluster.
    pub fn own(&self) -> Option<NodeId> {
        self.membership.get().map(|membership| membership.node)
    }

    /// Sets the owner in records of this server's disks before they are written.
    pub(crate) fn name_own(&self, records: &mut [DiskRecord]) {
        records.iter_mut().for_each(|record| record.node = self.own());
    }

    /// Sets this node in the fault domain of one of its disks.
    pub(crate) fn name_domain(&self, domain: &mut FaultDomain) {
        if let Some(membership) = self.membership.get() {
            domain.node.clone_from(&membership.name);
        }
    }

    pub(crate) fn lease(&self) -> Option<Duration> {
        self.membership.get().map(|membership| membership.lease)
    }

    pub(crate) fn transport(&self, pool: PoolId) -> Option<Box<dyn Transport>> {
        self.membership.get().map(|membership| (membership.transport)(pool))
    }

    /// Whether the disk is on this server. On a single server all are.
    pub(crate) fn is_own(&self, record: &DiskRecord) -> bool {
        self.own().is_none() || record.node == self.own()
    }

    /// Returns the recorded disks of other nodes.
    pub fn disks(&self) -> Ref<'_, BTreeMap<DiskId, DiskRecord>> {
        self.disks.borrow()
    }

    /// Returns the node that has the volume by its record.
    pub fn owner(&self, volume: VolumeId) -> Option<NodeId> {
        self.volumes.borrow().get(&volume)?.owner
    }

    /// Returns the node of the cluster that has a volume not served here: by the record last read,
    /// which may be newer than `known`. `None`: that node has left, as others do in a recovery.
    pub fn present_owner(&self, known: &VolumeRecord) -> Option<NodeId> {
        let volumes = self.volumes.borrow();
        let owner = volumes.get(&known.id).map_or(known.owner, |record| record.owner)?;
        let is_here =
            Some(owner) == self.own() || !self.is_told.get() || self.nodes.borrow().contains_key(&owner);
        is_here.then_some(owner)
    }

    /// Notes that a disk whose server has left may not come back, with the reason.
    pub(crate) fn note_refused(&self, disk: DiskId, why: String) {
        self.refused.borrow_mut().insert(disk, why);
    }

    /// Returns the reason why the disk, whose server has left, was refused when it was to come back
    /// here.
    pub fn refusal(&self, disk: DiskId) -> Option<String> {
        self.refused.borrow().get(&disk).cloned()
    }

    /// Returns the name of a node, if known: this one's, and those of nodes with disks.
    pub fn name(&self, node: NodeId) -> String {
        if let Some(own) = self.membership.get().filter(|own| own.node == node) {
            return own.name.clone();
        }
        let disks = self.disks.borrow();
        let of_node = disks.values().find(|disk| disk.node == Some(node));
        of_node.map_or_else(|| node.to_string(), |disk| disk.fault_domain.node.clone())
    }

    /// Returns the volume's record at the last reading.
    pub(crate) fn record(&self, volume: VolumeId) -> Option<VolumeRecord> {
        self.volumes.borrow().get(&volume).cloned()
    }

    /// Whether the node lives. A node without a verdict does not.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes.borrow().get(&node).is_some_and(|life| life.is_up)
    }

    /// Whether some volume that another node has, or should have, may depend on the disk.
    pub(crate) fn is_needed(&self, disk: DiskId) -> bool {
        self.volumes.borrow().values().any(|volume| {
            let is_stale = volume.stale.iter().any(|stale| stale.disk == disk);
            volume.owner != self.own() && (is_stale || volume.in_sync.contains(&disk))
        })
    }

    /// Whether this node does the work that any of them could: the first live one does.
    pub(crate) fn is_first(&self) -> bool {
        let Some(own) = self.own() else { return true };
        self.nodes.borrow().iter().find(|(_, life)| life.is_up).is_some_and(|(node, _)| *node == own)
    }

    /// Takes verdicts. Returns their changes.
    pub(crate) fn set_nodes(&self, nodes: BTreeMap<NodeId, NodeLife>, now: Monotonic) -> Turned {
        let before = self.nodes.replace(nodes);
        let is_first_word = !self.is_told.replace(true);
        let mut turned = Turned::default();
        let nodes = self.nodes.borrow();
        let mut down_since = self.down_since.borrow_mut();
        for (&node, life) in nodes.iter().filter(|(node, _)| Some(**node) != self.own()) {
            let known = before.get(&node);
            let (was_reached, is_reached) = (known.is_none_or(|life| life.is_reached), life.is_reached);
            match (was_reached, is_reached) {
                (true, false) => turned.cut_off.push(node),
                // A node that went down counts as dead, and no longer as cut off.
                (false, true) if life.is_up => turned.reached_again.push(node),
                _ => {}
            }
            match (known.map(|life| life.is_up), life.is_up) {
                (Some(true) | None, false) => {
                    down_since.insert(node, now);
                    turned.nodes_down.push(node);
                }
                (Some(false), true) => {
                    down_since.remove(&node);
                    turned.nodes_up.push(node);
                }
                _ => {}
            }
        }
        // A node that is missing from the verdicts has left.
        turned.nodes_down.extend(before.keys().filter(|node| !nodes.contains_key(node)));
        if is_first_word {
            let homes = self.homes.borrow();
            let left: BTreeSet<NodeId> =
                homes.values().filter(|node| !nodes.contains_key(node)).copied().collect();
            turned.nodes_down.extend(left);
        }
        drop((nodes, down_since));
        let gone = [&turned.nodes_down[..], &turned.cut_off].into_iter();
        turned.down = gone.flat_map(|nodes| self.disks_of(nodes)).collect();
        turned
    }

    fn disks_of(&self, nodes: &[NodeId]) -> Vec<DiskId> {
        let homes = self.homes.borrow();
        homes.iter().filter(|(_, node)| nodes.contains(node)).map(|(disk, _)| *disk).collect()
    }

    /// Whether the disk's node is known to be down, to be cut off from this one, or to have left.
    pub fn is_down(&self, disk: DiskId) -> bool {
        let (homes, nodes) = (self.homes.borrow(), self.nodes.borrow());
        let life = homes.get(&disk).map(|node| nodes.get(node));
        life.is_some_and(|life| life.map_or(self.is_told.get(), |life| !life.is_up || !life.is_reached))
    }

    /// Lists retired disks of nodes that have left, on which no recorded volume depends any more.
    pub(crate) fn orphans(&self) -> Vec<(DiskId, PoolId)> {
        let (nodes, disks, volumes) = (self.nodes.borrow(), self.disks.borrow(), self.volumes.borrow());
        let is_left = |record: &&DiskRecord| {
            let is_member = record.node.is_none_or(|node| nodes.contains_key(&node));
            self.is_told.get() && !is_member && record.state == DiskState::Retired
        };
        let is_named = |disk: DiskId| {
            volumes.values().any(|volume| {
                volume.in_sync.contains(&disk)
                    || volume.stale.iter().any(|stale| stale.disk == disk)
                    || volume.building.iter().any(|(building, _)| *building == disk)
            })
        };
        let orphans = disks.values().filter(is_left).filter(|record| !is_named(record.id));
        orphans.map(|record| (record.id, record.pool)).collect()
    }

    /// Returns the disks whose nodes have left without them, and that may still come back at other
    /// nodes.
    pub fn left_behind(&self) -> Vec<DiskRecord> {
        let (nodes, disks) = (self.nodes.borrow(), self.disks.borrow());
        let is_left = |record: &&DiskRecord| {
            let is_member = record.node.is_none_or(|node| nodes.contains_key(&node));
            self.is_told.get() && !is_member && record.state != DiskState::Retired
        };
        disks.values().filter(is_left).cloned().collect()
    }

    /// Lists the recorded volumes that no node has served for [`UNSERVED_AFTER`], by this node's
    /// knowledge: their owner is dead or has left, or there is none, or it is this node, which does
    /// not have them (`is_absent`). Call every few seconds.
    pub(crate) fn unserved(&self, now: Monotonic, is_absent: impl Fn(VolumeId) -> bool) -> Vec<VolumeRecord> {
        if !self.is_told.get() {
            return Vec::new();
        }
        let (volumes, mut since) = (self.volumes.borrow(), self.unserved_since.borrow_mut());
        let is_unserved = |volume: &VolumeRecord| match volume.owner {
            Some(owner) if Some(owner) == self.own() => is_absent(volume.id),
            Some(owner) => !self.is_up(owner),
            None => true,
        };
        let found = volumes.values().filter(|volume| !volume.is_unfinished && is_unserved(volume));
        let found: BTreeMap<VolumeId, &VolumeRecord> = found.map(|volume| (volume.id, volume)).collect();
        since.retain(|volume, _| found.contains_key(volume));
        for volume in found.keys() {
            since.entry(*volume).or_insert(now);
        }
        let lasts = |volume: &&&VolumeRecord| now.since(since[&volume.id]) >= UNSERVED_AFTER;
        found.values().filter(lasts).map(|volume| (*volume).clone()).collect()
    }

    /// Names the nodes that are down, or have left, and have disks in sync with the volume.
    pub fn missing_of(&self, volume: &VolumeRecord) -> Vec<String> {
        let homes = self.homes.borrow();
        let nodes: BTreeSet<NodeId> =
            volume.in_sync.iter().filter_map(|disk| homes.get(disk).copied()).collect();
        nodes
            .into_iter()
            .filter(|node| Some(*node) != self.own() && !self.is_up(*node))
            .map(|node| self.name(node))
            .collect()
    }

    /// Whether this node drains, and so should have no volumes.
    pub(crate) fn drains(&self) -> bool {
        let Some(own) = self.own() else { return false };
        self.nodes.borrow().get(&own).is_some_and(|life| !life.takes_volumes)
    }

    /// Returns the other node that should have a volume of this one: the one that would take it
    /// over if this node were dead. `None`: only nodes that drain themselves would.
    pub(crate) fn heir(&self, volume: VolumeId) -> Option<NodeId> {
        let own = self.own()?;
        let mut view = self.view();
        view.nodes.entry(own).and_modify(|node| node.is_up = false);
        let volumes: Vec<VolumeRecord> = self.volumes.borrow().values().cloned().collect();
        let heir = owners(&volumes, &view).get(&volume).copied()?;
        view.nodes.get(&heir).is_some_and(|node| node.takes_volumes).then_some(heir)
    }

    /// Updates the nodes that no connection of the bus reaches.
    pub fn set_unreached(&self, unreached: BTreeMap<NodeId, Unreached>) {
        self.unreached.replace(unreached);
    }

    /// Returns the nodes that live by the majority's verdict, but that no connection of the bus has
    /// reached for [`UNREACHED_AFTER`].
    pub fn unreached(&self, now: Monotonic) -> BTreeMap<NodeId, Unreached> {
        let unreached = self.unreached.borrow();
        let long = |(node, found): &(&NodeId, &Unreached)| {
            self.is_up(**node) && now.since(found.since) >= UNREACHED_AFTER
        };
        unreached.iter().filter(long).map(|(node, found)| (*node, found.clone())).collect()
    }

    /// Whether connections of the bus reach most of the nodes, itself among them. A node that has
    /// not been reached for `patience`, or is dead, does not count.
    pub(crate) fn reaches_most(&self, now: Monotonic, patience: Duration) -> bool {
        let (nodes, unreached) = (self.nodes.borrow(), self.unreached.borrow());
        let is_reached = |(node, life): &(&NodeId, &NodeLife)| {
            let is_lost = || unreached.get(node).is_some_and(|found| now.since(found.since) >= patience);
            Some(**node) == self.own() || (life.is_up && !is_lost())
        };
        nodes.iter().filter(is_reached).count() * 2 > nodes.len()
    }

    /// Returns the volume to name in a request to the state of which only the answer matters.
    pub(crate) fn any_volume(&self) -> Option<VolumeId> {
        self.volumes.borrow().keys().next().copied()
    }

    /// Returns the time for which no connection of the bus has reached another node that has the
    /// volume, although that node lives by the majority's verdict. `None`: it is reached, or has
    /// not been for less than [`UNSERVED_AFTER`]: within that time it releases the volume if it
    /// can.
    pub fn owner_unreached_for(&self, volume: &VolumeRecord, now: Monotonic) -> Option<Duration> {
        let owner = volume.owner.filter(|owner| Some(*owner) != self.own() && self.is_up(*owner))?;
        let lasts = now.since(self.unreached.borrow().get(&owner)?.since);
        (lasts >= UNSERVED_AFTER).then_some(lasts)
    }

    /// Counts the pool's disks on other nodes that are up, and that do not leave the pool.
    pub(crate) fn usable_of(&self, pool: PoolId) -> usize {
        let disks = self.disks.borrow();
        let own = disks.values().filter(|disk| disk.pool == pool && disk.state != DiskState::Retired);
        own.filter(|disk| !self.is_down(disk.id)).count()
    }

    /// Returns the time for which the node has been down.
    pub(crate) fn down_for(&self, node: NodeId, now: Monotonic) -> Option<Duration> {
        self.down_since.borrow().get(&node).map(|since| now.since(*since))
    }

    /// Returns the owner that the volume is taken over from, by its record. The incarnation of a
    /// dead owner is a condition of the claim; an owner that is this node, or has released the
    /// volume, needs none.
    pub(crate) fn predecessor(&self, record: &VolumeRecord) -> Predecessor {
        let (owner, is_waited_out) = (record.owner, false);
        let Some(other) = owner.filter(|owner| Some(*owner) != self.own() && record.coordinator != 0) else {
            return Predecessor { owner, fence: None, is_waited_out };
        };
        let revision = self.leases.borrow().get(&other).map_or(0, |lease| lease.revision);
        let fence = Some(Condition { key: NodeLease::key_of(&other.to_string()), revision });
        Predecessor { owner, fence, is_waited_out }
    }

    /// Whether, by its record, the volume is with another node, or has come from one.
    pub(crate) fn is_anothers(&self, record: &VolumeRecord) -> bool {
        self.own().is_some()
            && record.owner.is_some()
            && (record.owner != self.own() || record.coordinator == 0)
    }

    /// Whether a volume may be taken over from its owner now: the incarnation known to be dead is
    /// the last recorded one.
    fn may_take_over_from(&self, owner: NodeId) -> bool {
        let dead = self.nodes.borrow().get(&owner).and_then(|life| life.incarnation);
        let recorded = self.leases.borrow().get(&owner).map_or(0, |lease| lease.value.incarnation);
        dead.is_none_or(|dead| dead == recorded)
    }

    /// Takes the nodes' leases from the records.
    pub(crate) fn set_leases(&self, leases: Vec<Stored<NodeLease>>) {
        self.leases.replace(leases.into_iter().map(|lease| (lease.value.node, lease)).collect());
    }

    /// Takes the disks of other nodes from the records. Returns those that are not recorded any
    /// more.
    pub(crate) fn set_disks(&self, records: &[DiskRecord]) -> Vec<DiskRecord> {
        let others = records.iter().filter(|record| !self.is_own(record));
        let others: BTreeMap<DiskId, DiskRecord> = others.map(|record| (record.id, record.clone())).collect();
        let before = self.disks.replace(others);
        let homes = records.iter().filter_map(|record| Some((record.id, record.node?)));
        self.homes.replace(homes.collect());
        let disks = self.disks.borrow();
        self.refused.borrow_mut().retain(|disk, _| disks.contains_key(disk));
        before.into_values().filter(|record| !disks.contains_key(&record.id)).collect()
    }

    /// Takes the volumes from the records.
    pub(crate) fn set_volumes(&self, records: impl Iterator<Item = VolumeRecord>) {
        self.volumes.replace(records.map(|record| (record.id, record)).collect());
    }

    /// Whether this node should have the volume, by its own knowledge. A single server should have
    /// all; before the first verdicts, a node should have none.
    pub(crate) fn is_to_have(&self, volume: VolumeId) -> bool {
        self.own().is_none() || self.to_have().contains_key(&volume)
    }

    /// Returns the volumes that this node should have, by its own knowledge.
    pub(crate) fn to_have(&self) -> BTreeMap<VolumeId, VolumeRecord> {
        let Some(own) = self.own() else { return BTreeMap::new() };
        let owners = self.owners();
        let volumes = self.volumes.borrow();
        let mine = volumes.iter().filter(|(id, _)| owners.get(id) == Some(&own));
        let mine = mine.filter(|(_, record)| {
            record
                .owner
                .is_none_or(|owner| owner == own || record.coordinator == 0 || self.may_take_over_from(owner))
        });
        mine.map(|(id, record)| (*id, record.clone())).collect()
    }

    /// Returns the node that tries next to open a volume that this one could not open.
    pub(crate) fn next_for(&self, record: &VolumeRecord) -> Option<NodeId> {
        takeover::next(record, &self.view(), self.own()?)
    }

    fn owners(&self) -> BTreeMap<VolumeId, NodeId> {
        if !self.is_told.get() {
            return BTreeMap::new();
        }
        let volumes: Vec<VolumeRecord> = self.volumes.borrow().values().cloned().collect();
        owners(&volumes, &self.view())
    }

    pub(crate) fn view(&self) -> View {
        let candidate = |life: &NodeLife| Candidate { is_up: life.is_up, takes_volumes: life.takes_volumes };
        let nodes = self.nodes.borrow();
        View {
            nodes: nodes.iter().map(|(node, life)| (*node, candidate(life))).collect(),
            disks: self.homes.borrow().clone(),
        }
    }
}
