//! The secrets of all nodes, as they are exchanged for others.
//!
//! When a node leaves, those that stay get other secrets from the records, one a little later than the other. Promises: no node that stays is
//! refused by another one meanwhile; a node that left is refused at once; secrets of before are good for [`OVERLAP`], so that whoever has
//! copied them is out then, with the sessions that he began by them. It holds no clock.

use crate::accounts::Secret;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Monotonic, NodeId};

/// For how long the others take a node by its secret of before.
pub const OVERLAP: Duration = Duration::from_secs(30);
/// A node goes on with its own secret of before for so long, until the others have read of the next one.
pub const SETTLING: Duration = Duration::from_secs(2);

/// By which a node logs on to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusKey {
    /// How often it was exchanged; the account's name has it ([`crate::account_name`]).
    pub generation: u32,
    pub secret: Secret,
}

struct Known {
    current: BusKey,
    /// The one before, and when the present one was read of.
    earlier: Option<(BusKey, Monotonic)>,
}

/// See the module.
#[derive(Default)]
pub struct Rotation {
    known: BTreeMap<NodeId, Known>,
}

impl Rotation {
    /// Takes the keys of all nodes as they are recorded.
    pub fn note(&mut self, recorded: BTreeMap<NodeId, BusKey>, now: Monotonic) {
        self.known.retain(|node, _| recorded.contains_key(node));
        for (node, key) in recorded {
            match self.known.get_mut(&node) {
                Some(known) if known.current == key => {}
                Some(known) => {
                    let before = std::mem::replace(&mut known.current, key);
                    known.earlier = Some((before, now));
                }
                None => {
                    self.known.insert(node, Known { current: key, earlier: None });
                }
            }
        }
    }

    /// By which keys which nodes are let in now.
    pub fn accepted(&self, now: Monotonic) -> Vec<(NodeId, BusKey)> {
        let mut accepted = Vec::new();
        for (node, known) in &self.known {
            let earlier = known.earlier.as_ref().filter(|(_, since)| now.since(*since) < OVERLAP);
            accepted.extend(earlier.map(|(key, _)| (*node, key.clone())));
            accepted.push((*node, known.current.clone()));
        }
        accepted
    }

    /// By which key a node logs on to the others now.
    pub fn shown(&self, node: NodeId, now: Monotonic) -> Option<&BusKey> {
        let known = self.known.get(&node)?;
        let earlier = known.earlier.as_ref().filter(|(_, since)| now.since(*since) < SETTLING);
        Some(earlier.map_or(&known.current, |(key, _)| key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(generation: u32) -> BusKey {
        BusKey { generation, secret: Secret::new([generation as u8; 32]) }
    }

    #[test]
    fn a_secret_is_taken_before_it_is_shown_and_the_one_before_is_taken_while_it_is() {
        let (mut rotation, begun) = (Rotation::default(), Monotonic(0));
        let all = |first, second| BTreeMap::from([(NodeId(1), key(first)), (NodeId(2), key(second))]);
        rotation.note(all(0, 0), begun);
        assert_eq!(rotation.accepted(begun), [(NodeId(1), key(0)), (NodeId(2), key(0))]);
        assert_eq!(rotation.shown(NodeId(1), begun), Some(&key(0)));
        rotation.note(all(1, 0), begun);
        rotation.note(all(1, 0), begun.after(SETTLING / 2));
        let both = [(NodeId(1), key(0)), (NodeId(1), key(1)), (NodeId(2), key(0))];
        assert_eq!(rotation.accepted(begun), both);
        assert_eq!(rotation.shown(NodeId(1), begun), Some(&key(0)));
        let later = begun.after(SETTLING);
        assert_eq!(
            (rotation.accepted(later), rotation.shown(NodeId(1), later)),
            (both.clone().into(), Some(&key(1)))
        );
        assert_eq!(rotation.accepted(begun.after(OVERLAP)), both[1..]);
    }

    #[test]
    fn a_node_that_left_is_let_in_by_nothing() {
        let (mut rotation, begun) = (Rotation::default(), Monotonic(0));
        rotation.note(BTreeMap::from([(NodeId(1), key(0)), (NodeId(2), key(0))]), begun);
        rotation.note(BTreeMap::from([(NodeId(1), key(1))]), begun);
        assert!(rotation.accepted(begun).iter().all(|(node, _)| *node == NodeId(1)));
        assert_eq!(rotation.shown(NodeId(2), begun), None);
    }
}
