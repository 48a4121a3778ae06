//! Rules for the choice of the node that opens a volume whose owner is dead, or that has none; and
//! for the end of an opening.
//!
//! Owns the rules only, pure functions of a node's knowledge: the live nodes, the records, the
//! owner of each disk. Nodes with the same knowledge choose the same node. Others may both claim a
//! volume: the record's compare-and-swap gives it to one of them, and the other then finds that the
//! volume's owner lives. `node` and the simulator call the same functions.
//!
//! An opening that failed changes the record only if it is still the record that it tried: another
//! node may have claimed the volume meanwhile, and serve it. A node that releases a volume, for any
//! reason, checks again whether it should have it ([`LetGo`]), since it ignored all news while it
//! held the volume.

use crate::api::SpaceError;
use crate::planted::Planted;
use records::{Condition, VolumeRecord};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, NodeId, VolumeId};

/// A node as a possible owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Whether a majority of the nodes hears it.
    pub is_up: bool,
    /// Whether the node may get volumes: it neither drains nor leaves.
    pub takes_volumes: bool,
}

/// Facts that decide which node opens a volume.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub nodes: BTreeMap<NodeId, Candidate>,
    /// The node of each disk.
    pub disks: BTreeMap<DiskId, NodeId>,
}

impl View {
    fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_up)
    }

    /// Counts the volume's disks in sync on a node.
    fn in_sync_on(&self, node: NodeId, volume: &VolumeRecord) -> usize {
        volume.in_sync.iter().filter(|disk| self.disks.get(disk) == Some(&node)).count()
    }
}

/// Returns the node that should have each volume: the owner as long as it lives. Otherwise, a live
/// node, preferably one that takes volumes: of those with copies of the volume the one with the
/// fewest volumes, then with most of its disks in sync, then the first. Without any live node, no
/// volume is in the result.
pub fn owners(volumes: &[VolumeRecord], view: &View) -> BTreeMap<VolumeId, NodeId> {
    let mut volumes: Vec<&VolumeRecord> = volumes.iter().collect();
    volumes.sort_by_key(|volume| volume.id);
    let mut owners = BTreeMap::new();
    let mut load: BTreeMap<NodeId, usize> = BTreeMap::new();
    for volume in &volumes {
        if let Some(owner) = volume.owner.filter(|owner| view.is_up(*owner)) {
            owners.insert(volume.id, owner);
            *load.entry(owner).or_default() += 1;
        }
    }
    let takes_some = view.nodes.values().any(|node| node.is_up && node.takes_volumes);
    for volume in volumes {
        if owners.contains_key(&volume.id) {
            continue;
        }
        // A draining node is better than none.
        let up = view.nodes.iter().filter(|(_, node)| node.is_up && (node.takes_volumes || !takes_some));
        let best = up.map(|(node, _)| *node).min_by_key(|node| {
            let copies = view.in_sync_on(*node, volume);
            (copies == 0, load.get(node).copied().unwrap_or_default(), Reverse(copies), *node)
        });
        if let Some(best) = best {
            owners.insert(volume.id, best);
            *load.entry(best).or_default() += 1;
        }
    }
    owners
}

/// Returns the node that tries next to open a volume that `own` could not open: of the live nodes
/// that take volumes, have copies of it and have not tried, the one with most copies, then the
/// first. `None`: no node is left.
pub fn next(volume: &VolumeRecord, view: &View, own: NodeId) -> Option<NodeId> {
    let is_next =
        |node: &NodeId| *node != own && !volume.tried.contains(node) && view.in_sync_on(*node, volume) > 0;
    let up = view.nodes.iter().filter(|(_, node)| node.is_up && node.takes_volumes).map(|(node, _)| *node);
    up.filter(is_next).min_by_key(|node| (Reverse(view.in_sync_on(*node, volume)), *node))
}

/// Tells whether, by the record, every chunk has an in-sync copy beside these disks.
pub fn may_miss(record: &VolumeRecord, disks: impl Iterator<Item = DiskId> + Clone) -> bool {
    let homes = record.homes_of(disks.clone());
    disks.count() < usize::from(record.min_holders)
        || homes.is_some_and(|homes| homes < usize::from(record.min_homes))
}

/// Whether another node could serve a volume of `own` that this one cannot write: of the other live
/// nodes with copies, more than one and most are `unreached` from here, and all data are available
/// without this node's disks.
pub fn is_better_elsewhere(
    volume: &VolumeRecord,
    view: &View,
    own: NodeId,
    unreached: &BTreeSet<NodeId>,
) -> bool {
    let up = view.nodes.iter().filter(|(node, candidate)| **node != own && candidate.is_up);
    let homes: Vec<NodeId> =
        up.map(|(node, _)| *node).filter(|node| view.in_sync_on(*node, volume) > 0).collect();
    let cut_off = homes.iter().filter(|node| unreached.contains(node)).count();
    let own_disks = volume.in_sync.iter().copied().filter(|disk| view.disks.get(disk) == Some(&own));
    cut_off > 1
        && cut_off * 2 > homes.len()
        && may_miss(volume, own_disks)
        && next(volume, view, own).is_some()
}

/// Whether other nodes could serve a volume if `own` died: another live one has copies of it, and
/// all data are available without the disks of `own`.
pub fn is_spared(volume: &VolumeRecord, view: &View, own: NodeId) -> bool {
    let own_disks = volume.in_sync.iter().copied().filter(|disk| view.disks.get(disk) == Some(&own));
    let mut others = view.nodes.iter().filter(|(node, candidate)| **node != own && candidate.is_up);
    may_miss(volume, own_disks)
        && others.any(|(node, _)| view.in_sync_on(*node, volume) > 0)
        && !Planted::NeverSpared.is_planted()
}

/// End of an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The virtual disk serves.
    Well,
    /// Another node has claimed the volume. This is no failure, and changes no record.
    ClaimedElsewhere,
    /// The volume cannot be opened here: see [`pass_on`].
    Failed,
}

/// Judges the end of an opening. `stopped`: the reason, if its virtual disk has stopped; `is_open`:
/// the virtual disk serves, and the file layer on it is open.
pub fn ended(stopped: Option<&SpaceError>, is_open: bool) -> Ended {
    match stopped {
        Some(SpaceError::Fenced) if !Planted::FencedOpeningFails.is_planted() => Ended::ClaimedElsewhere,
        None if is_open => Ended::Well,
        _ => Ended::Failed,
    }
}

/// An opening that failed: its node, and its record.
#[derive(Debug, Clone)]
pub struct Tried {
    pub by: NodeId,
    /// Incarnation of the coordinator that was to have the volume; `None`: the opening ended before
    /// there was one.
    pub incarnation: Option<u128>,
    /// The record with which the node began.
    pub record: VolumeRecord,
    /// Condition of the claim, as the node began with it.
    pub fence: Option<Condition>,
}

impl Tried {
    /// Whether the opening has claimed the volume, and no other node has since.
    fn has_claimed(&self, found: &VolumeRecord) -> bool {
        self.incarnation == Some(found.coordinator)
    }

    /// Whether the record is as it was when the opening began: no node has claimed the volume, and
    /// none has passed it on.
    fn is_unclaimed(&self, found: &VolumeRecord) -> bool {
        let last = |record: &VolumeRecord| (record.owner, record.coordinator, record.epoch);
        last(found) == last(&self.record)
    }
}

/// The record's fate when a node cannot open a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassOn {
    /// The named node tries next; the fence, if any, is a condition of the change.
    To { next: NodeId, record: Box<VolumeRecord>, fence: Option<Condition> },
    /// All nodes have tried: a new round may begin.
    Again { record: Box<VolumeRecord> },
    /// No change, since no other node could open the volume.
    Keep,
    /// No change, since the volume is not this node's any more.
    ClaimedElsewhere,
}

/// Returns the next record when a node could not open a volume and has read its record anew:
/// `found`. Another node, that has not tried yet, tries; if all have, a new round may begin.
///
/// Nodes that may still answer for the volume stay named. The next node too is named as one until
/// it has opened the volume anew: it may be stopped at this moment, with a lease, and die before it
/// learns of its turn.
pub fn pass_on(found: &VolumeRecord, tried: &Tried, view: &View) -> PassOn {
    let is_blind = Planted::PassesOnAnothers.is_planted();
    let has_claimed = tried.has_claimed(found) || is_blind;
    if !has_claimed && !tried.is_unclaimed(found) {
        return PassOn::ClaimedElsewhere;
    }
    let is_ours = found.owner == Some(tried.by);
    let fence = tried.fence.clone().filter(|_| !has_claimed && !is_ours);
    // The owner from which the volume was to be taken may be back.
    let may_be_back = !has_claimed && !is_ours && found.coordinator != 0 && fence.is_none();
    let mut record = Box::new(found.clone());
    if !Planted::PassedOnAtTheSameEpoch.is_planted() {
        record.epoch = found.epoch.next();
    }
    match next(found, view, tried.by) {
        Some(_) if may_be_back => PassOn::Keep,
        Some(next) => {
            record.before = may_answer(found, Planted::NextForgotten.is_planted().then_some(next));
            record.before.retain(|node| *node != tried.by);
            (record.owner, record.coordinator) = (Some(next), 0);
            record.tried.push(tried.by);
            PassOn::To { next, record, fence }
        }
        None if is_ours && !found.tried.is_empty() => {
            record.tried.clear();
            PassOn::Again { record }
        }
        None => PassOn::Keep,
    }
}

/// Notes that a node has released a volume that it held or was opening. The node must read the
/// records anew, and check whether it should have the volume again.
#[derive(Debug, Default)]
pub struct LetGo(Cell<bool>);

impl LetGo {
    pub fn note(&self) {
        self.0.set(!Planted::WithdrawalUnfollowed.is_planted());
    }

    /// Whether a volume was released since the last call.
    pub fn take(&self) -> bool {
        self.0.take()
    }
}

/// Returns the nodes that may still answer for a volume that passes to `to`: its last owner, unless
/// that has released it, and those before.
pub fn may_answer(record: &VolumeRecord, to: Option<NodeId>) -> Vec<NodeId> {
    let from = record.owner.filter(|_| record.coordinator != 0);
    let mut nodes: Vec<NodeId> = record.before.iter().copied().chain(from).collect();
    nodes.retain(|node| Some(*node) != to);
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use records::{Provisioning, Resiliency};
    use types::PoolId;

    fn volume(number: u8, owner: Option<u32>, disks: &[u8]) -> VolumeRecord {
        let (id, pool) = (VolumeId::from_bytes([number; 16]), PoolId::from_bytes([1; 16]));
        let disks = disks.iter().map(|disk| DiskId::from_bytes([*disk; 16])).collect();
        let (two_way, thin) = (Resiliency::TwoWay, Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, format!("v{number}"), two_way, 1 << 30, thin, disks, 0);
        VolumeRecord { owner: owner.map(NodeId), ..record }
    }

    /// Nodes 1 to 3 with a disk of the same number each.
    fn view(up: &[u32], draining: &[u32]) -> View {
        let node = |node: u32| {
            let candidate = Candidate { is_up: up.contains(&node), takes_volumes: !draining.contains(&node) };
            (NodeId(node), candidate)
        };
        let disks = (1..=3).map(|disk| (DiskId::from_bytes([disk; 16]), NodeId(disk.into())));
        View { nodes: (1..=3).map(node).collect(), disks: disks.collect() }
    }

    fn of(volumes: &[VolumeRecord], view: &View) -> Vec<u32> {
        owners(volumes, view).into_values().map(|node| node.0).collect()
    }

    #[test]
    fn an_owner_that_lives_keeps_its_volume_and_those_of_a_dead_one_are_shared_out() {
        let volumes: Vec<_> = [(1, Some(1)), (2, Some(1)), (3, Some(1)), (4, Some(2)), (5, None)]
            .map(|(number, owner)| volume(number, owner, &[1, 2, 3]))
            .into();
        assert_eq!(of(&volumes, &view(&[1, 2, 3], &[])), [1, 1, 1, 2, 3]);
        assert_eq!(of(&volumes, &view(&[2, 3], &[])), [3, 2, 3, 2, 2]);
        assert_eq!(of(&volumes, &view(&[], &[])), [] as [u32; 0]);
    }

    #[test]
    fn a_node_with_copies_comes_first_and_one_that_drains_last() {
        let volumes = [volume(1, Some(1), &[1, 3])];
        assert_eq!(of(&volumes, &view(&[2, 3], &[])), [3]);
        assert_eq!(of(&volumes, &view(&[2, 3], &[3])), [2]);
        assert_eq!(of(&volumes, &view(&[3], &[3])), [3]);
        // Draining alone moves nothing: the draining node hands its volumes over itself.
        assert_eq!(of(&volumes, &view(&[1, 2, 3], &[1])), [1]);
    }

    #[test]
    fn of_nodes_with_copies_each_tries_once() {
        let mut record = volume(1, Some(1), &[1, 2, 3]);
        let view = view(&[1, 2, 3], &[]);
        assert_eq!(next(&record, &view, NodeId(1)), Some(NodeId(2)));
        record.tried = vec![NodeId(1)];
        assert_eq!(next(&record, &view, NodeId(2)), Some(NodeId(3)));
        record.tried.push(NodeId(2));
        assert_eq!(next(&record, &view, NodeId(3)), None);
        record.tried.clear();
        record.in_sync.truncate(2);
        assert_eq!(next(&record, &view, NodeId(2)), Some(NodeId(1)), "one without copies does not try");
        let draining = self::view(&[2, 3], &[3]);
        assert_eq!(next(&volume(1, Some(1), &[1, 2, 3]), &draining, NodeId(2)), None);
    }

    #[test]
    fn a_volume_goes_elsewhere_only_if_most_others_are_unreached_and_have_all_of_it() {
        let record = VolumeRecord { min_holders: 2, ..volume(1, Some(1), &[1, 2, 3]) };
        let all = view(&[1, 2, 3], &[]);
        let is_better = |record: &VolumeRecord, view: &View, unreached: &[u32]| {
            let unreached = unreached.iter().copied().map(NodeId).collect();
            is_better_elsewhere(record, view, NodeId(1), &unreached)
        };
        assert!(is_better(&record, &all, &[2, 3]));
        assert!(!is_better(&record, &all, &[2]), "one bad link: the disk behind it leaves");
        assert!(!is_better(&record, &view(&[1, 2], &[]), &[2, 3]), "the other one is dead");
        assert!(!is_better(&record, &view(&[1, 2, 3], &[2, 3]), &[2, 3]), "nobody takes it");
        let lone = VolumeRecord { min_holders: 1, ..record.clone() };
        assert!(!is_better(&lone, &all, &[2, 3]), "something is on this node alone");
        let tried = VolumeRecord { tried: vec![NodeId(2), NodeId(3)], ..record };
        assert!(!is_better(&tried, &all, &[2, 3]), "they could not open it");
    }

    #[test]
    pub(crate) fn a_node_is_spared_by_a_volume_that_living_ones_have_all_of() {
        let record = VolumeRecord { min_holders: 2, ..volume(1, Some(1), &[1, 2, 3]) };
        let all = view(&[1, 2, 3], &[2, 3]);
        assert!(is_spared(&record, &all, NodeId(1)), "better one that drains than none");
        assert!(!is_spared(&record, &view(&[1], &[]), NodeId(1)), "the others are dead");
        let lone = VolumeRecord { min_holders: 1, ..record.clone() };
        assert!(!is_spared(&lone, &all, NodeId(1)), "something is on this node alone");
        assert!(is_spared(&VolumeRecord { in_sync: record.in_sync[1..].to_vec(), ..lone }, &all, NodeId(1)));
    }

    #[test]
    fn who_let_a_volume_go_answers_nothing_and_all_others_before_may() {
        let mut record = volume(1, Some(1), &[1, 2, 3]);
        record.coordinator = 5;
        assert_eq!(may_answer(&record, Some(NodeId(2))), [NodeId(1)]);
        record.before = vec![NodeId(3), NodeId(2)];
        assert_eq!(may_answer(&record, Some(NodeId(2))), [NodeId(1), NodeId(3)]);
        record.coordinator = 0;
        assert_eq!(may_answer(&record, Some(NodeId(2))), [NodeId(3)]);
    }

    /// Node 2 has claimed a volume of node 1, which may still answer, with the incarnation 7.
    fn claimed() -> (VolumeRecord, Tried) {
        let mut begun = volume(1, Some(1), &[1, 2, 3]);
        begun.coordinator = 5;
        let fence = Some(Condition { key: "node-lease/1".into(), revision: 9 });
        let tried = Tried { by: NodeId(2), incarnation: Some(7), record: begun.clone(), fence };
        let mut record = begun.clone();
        (record.owner, record.coordinator, record.epoch) = (Some(NodeId(2)), 7, begun.epoch.next());
        record.before = vec![NodeId(1)];
        (record, tried)
    }

    #[test]
    pub(crate) fn a_node_that_lets_go_of_a_volume_looks_again_once() {
        let let_go = LetGo::default();
        assert!(!let_go.take());
        let_go.note();
        assert!(let_go.take() && !let_go.take());
    }

    #[test]
    pub(crate) fn a_volume_that_another_node_has_claimed_is_not_passed_on() {
        let (mut record, tried) = claimed();
        (record.owner, record.coordinator, record.epoch) = (Some(NodeId(3)), 11, record.epoch.next());
        let view = view(&[1, 2, 3], &[]);
        assert_eq!(pass_on(&record, &tried, &view), PassOn::ClaimedElsewhere);
        // The same if its former owner has opened or given up the volume again, or this node itself
        // has in another opening.
        (record.owner, record.coordinator) = (Some(NodeId(1)), 12);
        assert_eq!(pass_on(&record, &tried, &view), PassOn::ClaimedElsewhere);
        record.coordinator = 0;
        assert_eq!(pass_on(&record, &tried, &view), PassOn::ClaimedElsewhere);
        (record.owner, record.coordinator) = (Some(NodeId(2)), 13);
        assert_eq!(pass_on(&record, &tried, &view), PassOn::ClaimedElsewhere);
    }

    #[test]
    pub(crate) fn the_next_node_stays_named_among_those_that_may_answer_until_it_has_opened_the_volume() {
        let (record, tried) = claimed();
        let PassOn::To { next, record: passed, fence } = pass_on(&record, &tried, &view(&[1, 2, 3], &[]))
        else {
            panic!("another one tries")
        };
        assert_eq!((next, fence), (NodeId(1), None));
        assert_eq!((passed.owner, passed.coordinator), (Some(NodeId(1)), 0));
        assert_eq!((&passed.before[..], &passed.tried[..]), (&[NodeId(1)][..], &[NodeId(2)][..]));
        assert!(passed.epoch > record.epoch, "whoever has it open hears that it has lost it");
        // The next node dies before it learns of its turn: the third waits for its lease.
        assert_eq!(may_answer(&passed, Some(NodeId(3))), [NodeId(1)]);
        assert_eq!(may_answer(&passed, Some(NodeId(1))), []);
    }

    #[test]
    fn a_volume_that_was_not_claimed_is_passed_on_only_while_the_life_that_died_is_the_last() {
        let (_, tried) = claimed();
        let view = view(&[2, 3], &[]);
        let PassOn::To { next, record, fence } = pass_on(&tried.record, &tried, &view) else {
            panic!("another one tries")
        };
        assert_eq!((next, fence, &record.before[..]), (NodeId(3), tried.fence.clone(), &[NodeId(1)][..]));
        let unfenced = Tried { fence: None, ..tried };
        assert_eq!(pass_on(&unfenced.record, &unfenced, &view), PassOn::Keep);
    }

    #[test]
    fn the_order_in_which_records_are_listed_decides_nothing() {
        let mut volumes: Vec<_> = (1..9).map(|number| volume(number, Some(1), &[1, 2, 3])).collect();
        let first = of(&volumes, &view(&[2, 3], &[]));
        volumes.reverse();
        assert_eq!(of(&volumes, &view(&[2, 3], &[])), first);
    }
}
