//! Ranges of a stream by place: finds those that meet a given one without examining the others.
//!
//! An AVL tree in the order of the ranges' starts, each node of which knows the furthest end below it.
//! Promises: inserting, removing and checking for any range that meets another take steps in proportion
//! to the logarithm of their number; listing those that meet it, one more for each of them.
//! Deterministic: no hash or random number that a client could guess.

use crate::backend::ByteRange;
use slab::Slab;
use std::cmp::Ordering;

#[cfg(test)]
thread_local! {
    /// Nodes that were examined on this thread.
    pub static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn count_step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// First byte, and the one after the last: beyond 64 bits if the range ends at the largest offset. A range without bytes lies between
/// two bytes, and meets those that hold both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    pub start: u64,
    pub end: u128,
}

impl From<ByteRange> for Interval {
    fn from(range: ByteRange) -> Self {
        Self { start: range.offset, end: u128::from(range.offset) + u128::from(range.len_bytes) }
    }
}

impl Interval {
    /// Returns the length of the range that it was made from.
    pub const fn len_bytes(self) -> u64 {
        (self.end - self.start as u128) as u64
    }

    pub fn meets(self, other: Self) -> bool {
        u128::from(self.start) < other.end && u128::from(other.start) < self.end
    }
}

type NodeIndex = Option<usize>;

#[derive(Debug)]
struct Node<T> {
    key: (Interval, T),
    left: NodeIndex,
    right: NodeIndex,
    height: u8,
    /// The furthest end of this node and those below it.
    end_max: u128,
}

/// A set of ranges, each with a tag: one range may have several tags.
#[derive(Debug)]
pub struct IntervalSet<T> {
    nodes: Slab<Node<T>>,
    root: NodeIndex,
}

impl<T> Default for IntervalSet<T> {
    fn default() -> Self {
        Self { nodes: Slab::new(), root: None }
    }
}

impl<T: Ord + Copy> IntervalSet<T> {
    /// Adds a range that is not there under this tag.
    pub fn insert(&mut self, interval: Interval, tag: T) {
        let (left, right, height, end_max) = (None, None, 1, interval.end);
        let new = self.nodes.insert(Node { key: (interval, tag), left, right, height, end_max });
        self.root = Some(self.insert_below(self.root, new));
    }

    /// Removes a range with this tag.
    pub fn remove(&mut self, interval: Interval, tag: T) {
        self.root = self.remove_below(self.root, &(interval, tag));
        if self.root.is_none() {
            // Gives the memory back.
            self.nodes = Slab::new();
        }
    }

    /// Calls `visit` with the ranges that meet `interval`, by their starts, until it answers false. Whether it never did.
    pub fn each_meeting(&self, interval: Interval, mut visit: impl FnMut(Interval, T) -> bool) -> bool {
        self.visit_below(self.root, interval, &mut visit)
    }

    fn visit_below(
        &self,
        at: NodeIndex,
        interval: Interval,
        visit: &mut impl FnMut(Interval, T) -> bool,
    ) -> bool {
        let Some(at) = at else { return true };
        count_step();
        let node = &self.nodes[at];
        if node.end_max <= u128::from(interval.start) {
            return true;
        }
        if !self.visit_below(node.left, interval, visit) {
            return false;
        }
        let (found, tag) = node.key;
        if u128::from(found.start) >= interval.end {
            return true;
        }
        (!found.meets(interval) || visit(found, tag)) && self.visit_below(node.right, interval, visit)
    }

    fn insert_below(&mut self, at: NodeIndex, new: usize) -> usize {
        let Some(at) = at else { return new };
        count_step();
        assert!(self.nodes[new].key != self.nodes[at].key, "a range is inserted once under one tag");
        if self.nodes[new].key < self.nodes[at].key {
            self.nodes[at].left = Some(self.insert_below(self.nodes[at].left, new));
        } else {
            self.nodes[at].right = Some(self.insert_below(self.nodes[at].right, new));
        }
        self.balance(at)
    }

    fn remove_below(&mut self, at: NodeIndex, key: &(Interval, T)) -> NodeIndex {
        let at = at.expect("a range that is removed is there");
        count_step();
        match key.cmp(&self.nodes[at].key) {
            Ordering::Less => self.nodes[at].left = self.remove_below(self.nodes[at].left, key),
            Ordering::Greater => self.nodes[at].right = self.remove_below(self.nodes[at].right, key),
            Ordering::Equal => {
                let gone = self.nodes.remove(at);
                let (Some(left), Some(right)) = (gone.left, gone.right) else {
                    return gone.left.or(gone.right);
                };
                let (first, rest) = self.take_first(right);
                self.nodes[first].left = Some(left);
                self.nodes[first].right = rest;
                return Some(self.balance(first));
            }
        }
        Some(self.balance(at))
    }

    /// Takes the first node below, and returns it with the rest of the tree.
    fn take_first(&mut self, at: usize) -> (usize, NodeIndex) {
        count_step();
        match self.nodes[at].left {
            None => (at, self.nodes[at].right),
            Some(left) => {
                let (first, rest) = self.take_first(left);
                self.nodes[at].left = rest;
                (first, Some(self.balance(at)))
            }
        }
    }

    fn height(&self, at: NodeIndex) -> u8 {
        at.map_or(0, |at| self.nodes[at].height)
    }

    fn update(&mut self, at: usize) {
        let node = &self.nodes[at];
        let below = [node.left, node.right];
        let height = below.map(|link| self.height(link)).into_iter().max().unwrap_or(0) + 1;
        let ends = below.into_iter().flatten().map(|below| self.nodes[below].end_max);
        let end_max = ends.max().unwrap_or(0).max(node.key.0.end);
        let node = &mut self.nodes[at];
        (node.height, node.end_max) = (height, end_max);
    }

    /// Makes the heights of both sides differ by at most one. Returns the node now in this place.
    fn balance(&mut self, at: usize) -> usize {
        let (left, right) = (self.nodes[at].left, self.nodes[at].right);
        match (left, right) {
            (Some(left), _) if self.height(Some(left)) > self.height(right) + 1 => {
                if self.height(self.nodes[left].left) < self.height(self.nodes[left].right) {
                    self.nodes[at].left = Some(self.lift_right(left));
                }
                self.lift_left(at)
            }
            (_, Some(right)) if self.height(Some(right)) > self.height(left) + 1 => {
                if self.height(self.nodes[right].right) < self.height(self.nodes[right].left) {
                    self.nodes[at].right = Some(self.lift_left(right));
                }
                self.lift_right(at)
            }
            _ => {
                self.update(at);
                at
            }
        }
    }

    /// Rotates: the left child takes this node's place.
    fn lift_left(&mut self, at: usize) -> usize {
        let lifted = self.nodes[at].left.expect("the higher side has a node");
        self.nodes[at].left = self.nodes[lifted].right;
        self.nodes[lifted].right = Some(at);
        self.update(at);
        self.update(lifted);
        lifted
    }

    /// Rotates: the right child takes this node's place.
    fn lift_right(&mut self, at: usize) -> usize {
        let lifted = self.nodes[at].right.expect("the higher side has a node");
        self.nodes[at].right = self.nodes[lifted].left;
        self.nodes[lifted].left = Some(at);
        self.update(at);
        self.update(lifted);
        lifted
    }
}
