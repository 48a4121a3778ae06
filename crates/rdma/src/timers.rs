//! Deadlines of many connections, of which few ever pass: arming costs nothing while a deadline only moves back.
//!
//! Each connection has at most a few entries in a heap. One that comes up early is put back if the
//! connection's deadline is later by then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use types::Monotonic;

/// The earliest entry of one connection in the heap.
#[derive(Debug, Clone, Copy, Default)]
pub struct Armed(Option<Monotonic>);

#[derive(Debug)]
pub struct Timers<K> {
    heap: BinaryHeap<Reverse<(Monotonic, K)>>,
}

impl<K: Ord + Copy> Default for Timers<K> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

impl<K: Ord + Copy> Timers<K> {
    /// Makes sure that `key` comes up at `deadline` at the latest.
    pub fn arm(&mut self, key: K, armed: &mut Armed, deadline: Option<Monotonic>) {
        let Some(deadline) = deadline else { return };
        if armed.0.is_none_or(|at| deadline < at) {
            armed.0 = Some(deadline);
            self.heap.push(Reverse((deadline, key)));
        }
    }

    /// When the next key comes up: not later than the earliest deadline, perhaps earlier.
    pub fn next(&self) -> Option<Monotonic> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Pops a key that has come up. Its owner calls [`Armed::came_up`], checks its deadline, and arms it
    /// again.
    pub fn pop(&mut self, now: Monotonic) -> Option<(Monotonic, K)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

impl Armed {
    /// Notes that the entry of that time was popped.
    pub fn came_up(&mut self, at: Monotonic) {
        if self.0 == Some(at) {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_moves_back_is_found_again_and_none_is_missed() {
        let mut timers = Timers::default();
        let mut armed = Armed::default();
        timers.arm('a', &mut armed, Some(Monotonic(10)));
        timers.arm('a', &mut armed, Some(Monotonic(30)));
        assert_eq!(timers.heap.len(), 1, "moving back costs nothing");
        assert_eq!(timers.pop(Monotonic(9)), None);
        assert_eq!(timers.pop(Monotonic(10)), Some((Monotonic(10), 'a')));
        armed.came_up(Monotonic(10));
        timers.arm('a', &mut armed, Some(Monotonic(30)));
        assert_eq!(timers.next(), Some(Monotonic(30)));
        timers.arm('a', &mut armed, Some(Monotonic(20)));
        assert_eq!(timers.pop(Monotonic(25)), Some((Monotonic(20), 'a')));
    }
}
