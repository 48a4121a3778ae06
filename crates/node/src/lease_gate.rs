//! The right of this node to answer for its volumes at this moment.
//!
//! A volume answers much from memory: its cache, its opens, its names. Another node may have
//! changed all of that if it has claimed the volume, so nothing of a volume leaves the node without
//! a lease ([`heartbeat`]). The clock is read when an answer leaves, after all its content was
//! gathered: even if the process was stopped in between, the answer was true at a moment of the
//! lease. A single server has no lease, and needs none. A server that becomes a node answers
//! without a lease until it has its first, and no other node may join before that.

use heartbeat::Offer;
use heartbeat::shell::{Claim, HeartbeatLink, Retreat};
use space::block_store::BlockStore;
use space::local::LocalSpace;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use types::{Monotonic, VolumeId};

/// The heartbeats, as seen by the node. No method waits.
pub trait Heartbeats {
    /// Reads the clock of leases.
    fn now(&self) -> Monotonic;

    /// Returns the last lease, which may be over.
    fn offer(&self) -> Option<Offer>;

    /// Whether all nodes that may have answered before the claim have stopped. Until then the
    /// heartbeats wake the loop when that may have changed.
    fn may_answer_for(&self, volume: VolumeId, claim: &Claim) -> bool;

    /// Forgets the wait of an opening for this volume, since nothing asks about its claim any more.
    fn forget_claim(&self, volume: VolumeId);

    /// Notes that volumes claimed by other nodes up to this revision of the cluster's state are
    /// withdrawn.
    fn note_applied(&self, revision: u64);

    /// Reports to the other nodes whether large messages get through between this node and most of
    /// the nodes.
    fn note_reach(&self, reach_most: bool);

    /// Makes this node fall silent, like a dead one, or ends that.
    fn retreat(&self, is_wanted: bool);

    /// Returns the state of the retreat.
    fn retreating(&self) -> Retreat;
}

impl Heartbeats for HeartbeatLink {
    fn now(&self) -> Monotonic {
        sys::monotonic_now()
    }

    fn offer(&self) -> Option<Offer> {
        Self::offer(self)
    }

    fn may_answer_for(&self, volume: VolumeId, claim: &Claim) -> bool {
        Self::may_answer_for(self, volume, claim)
    }

    fn forget_claim(&self, volume: VolumeId) {
        Self::forget_claim(self, volume);
    }

    fn note_applied(&self, revision: u64) {
        Self::note_applied(self, revision);
    }

    fn note_reach(&self, reach_most: bool) {
        Self::note_reach(self, reach_most);
    }

    fn retreat(&self, is_wanted: bool) {
        Self::retreat(self, is_wanted);
    }

    fn retreating(&self) -> Retreat {
        Self::retreating(self)
    }
}

/// The node's lease, as far as the node has read the records for it.
///
/// Invariant: `until` is the end of a lease in a term in which the records were read; it never goes
/// back.
pub(crate) struct LeaseGate {
    /// Empty on a single server.
    heartbeats: OnceCell<Rc<dyn Heartbeats>>,
    /// Whether answers need a lease.
    is_bound: Cell<bool>,
    /// The last term in which the records were read; 0: none.
    term: Cell<u64>,
    until: Cell<Monotonic>,
    applied: Cell<u64>,
    /// Volumes whose former owners may still answer.
    asked: RefCell<BTreeSet<VolumeId>>,
}

impl LeaseGate {
    pub fn new(heartbeats: Option<Rc<dyn Heartbeats>>) -> Rc<Self> {
        let is_bound = Cell::new(heartbeats.is_some());
        Rc::new(Self {
            heartbeats: heartbeats.map_or_else(OnceCell::new, OnceCell::from),
            is_bound,
            term: Cell::default(),
            until: Cell::default(),
            applied: Cell::default(),
            asked: RefCell::default(),
        })
    }

    /// Makes a single server, which becomes a node, look for its first lease.
    pub fn begin(&self, heartbeats: Rc<dyn Heartbeats>) {
        let is_first = self.heartbeats.set(heartbeats).is_ok();
        debug_assert!(is_first, "a node has heartbeats already");
    }

    /// Returns the heartbeats of this node; `None` on a single server.
    pub fn heartbeats(&self) -> Option<&dyn Heartbeats> {
        self.heartbeats.get().map(|heartbeats| &**heartbeats)
    }

    /// Makes answers need the lease, if this is the first one. Returns whether it is.
    pub fn bind(&self) -> bool {
        let Some(heartbeats) = self.heartbeats.get() else { return false };
        if self.is_bound.get() || heartbeats.now() >= self.until.get() {
            return false;
        }
        self.is_bound.set(true);
        true
    }

    /// Whether answers need a lease.
    pub fn is_bound(&self) -> bool {
        self.is_bound.get()
    }

    /// Returns the end of the time for answers.
    pub fn until(&self) -> Monotonic {
        self.until.get()
    }

    /// Takes the last lease offered. If it is of a new term, returns that term: the node must read
    /// the records first.
    pub fn take_offer(&self) -> Option<u64> {
        let offer = self.heartbeats.get()?.offer()?;
        if offer.term != self.term.get() {
            return Some(offer.term);
        }
        self.until.set(self.until.get().max(offer.until));
        None
    }

    /// Notes that the records were read since the lease was offered in this term, and that the node
    /// acts on them.
    pub fn admit(&self, term: u64) {
        self.term.set(term);
    }

    /// Whether an answer gathered before this call may leave the node.
    pub fn may_answer(&self) -> bool {
        let Some(heartbeats) = self.heartbeats.get().filter(|_| self.is_bound.get()) else { return true };
        if heartbeats.now() < self.until.get() {
            return true;
        }
        // The lease may have grown since the turn began.
        self.take_offer().is_none() && heartbeats.now() < self.until.get()
    }

    /// Lets openings serve once no other node answers for their volumes any more. Returns whether
    /// there were any.
    pub fn permit<S: BlockStore, C: records::ClusterState>(
        &self,
        spaces: impl Iterator<Item = LocalSpace<S, C>>,
    ) -> bool {
        let Some(heartbeats) = self.heartbeats.get() else { return false };
        let (mut permitted, mut waiting) = (false, BTreeSet::new());
        for space in spaces {
            for (volume, claimed) in space.claimed() {
                let claim = Claim { before: claimed.before, at: claimed.at, revision: claimed.revision };
                if heartbeats.may_answer_for(volume, &claim) {
                    space.permit(volume);
                    permitted = true;
                } else {
                    waiting.insert(volume);
                }
            }
        }
        let asked = self.asked.replace(waiting);
        let waiting = self.asked.borrow();
        asked.iter().filter(|volume| !waiting.contains(volume)).for_each(|volume| {
            heartbeats.forget_claim(*volume);
        });
        permitted
    }

    /// Reports the revision of the records up to which this node has withdrawn the volumes of other
    /// nodes.
    pub fn note_applied(&self, revision: u64) {
        if let Some(heartbeats) = self.heartbeats.get()
            && revision > self.applied.replace(revision)
        {
            heartbeats.note_applied(revision);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heartbeats whose clock advances when it is read.
    #[derive(Default)]
    struct Fake {
        now: Cell<u64>,
        offer: Cell<Option<Offer>>,
    }

    impl Heartbeats for Fake {
        fn now(&self) -> Monotonic {
            Monotonic(self.now.get())
        }
        fn offer(&self) -> Option<Offer> {
            self.offer.get()
        }
        fn may_answer_for(&self, _: VolumeId, _: &Claim) -> bool {
            false
        }
        fn forget_claim(&self, _: VolumeId) {}
        fn note_applied(&self, _: u64) {}
        fn note_reach(&self, _: bool) {}
        fn retreat(&self, _: bool) {}
        fn retreating(&self) -> Retreat {
            Retreat::default()
        }
    }

    #[test]
    fn answers_leave_only_while_a_lease_is_valid_of_a_term_in_which_the_records_were_read() {
        let fake = Rc::new(Fake::default());
        let lease_gate = LeaseGate::new(Some(fake.clone()));
        assert!(!lease_gate.may_answer(), "nothing was offered");
        fake.offer.set(Some(Offer { term: 3, until: Monotonic(500) }));
        assert_eq!(lease_gate.take_offer(), Some(3));
        assert!(!lease_gate.may_answer(), "the records were not read");
        lease_gate.admit(3);
        assert!(lease_gate.may_answer());
        // Extended, over, and extended again in the same term.
        fake.offer.set(Some(Offer { term: 3, until: Monotonic(700) }));
        fake.now.set(600);
        assert!(lease_gate.may_answer());
        fake.now.set(700);
        assert!(!lease_gate.may_answer());
        fake.offer.set(Some(Offer { term: 3, until: Monotonic(1200) }));
        assert!(lease_gate.may_answer());
        // In another term the last lease is valid to its end, and the records are read first.
        fake.offer.set(Some(Offer { term: 4, until: Monotonic(1500) }));
        assert_eq!(lease_gate.take_offer(), Some(4));
        assert!(lease_gate.may_answer());
        fake.now.set(1200);
        assert!(!lease_gate.may_answer());
        lease_gate.admit(4);
        assert!(lease_gate.may_answer());
        assert!(LeaseGate::new(None).may_answer(), "a single server needs no lease");
    }

    #[test]
    fn a_single_server_that_becomes_a_node_answers_until_it_has_its_first_lease_and_then_by_leases_only() {
        let fake = Rc::new(Fake::default());
        let lease_gate = LeaseGate::new(None);
        lease_gate.begin(fake.clone());
        assert!(!lease_gate.bind() && lease_gate.may_answer(), "nothing was offered yet");
        fake.offer.set(Some(Offer { term: 1, until: Monotonic(500) }));
        assert_eq!(lease_gate.take_offer(), Some(1));
        assert!(!lease_gate.bind() && lease_gate.may_answer(), "the records were not read");
        lease_gate.admit(1);
        fake.now.set(500);
        assert_eq!(lease_gate.take_offer(), None);
        assert!(!lease_gate.bind() && lease_gate.may_answer(), "that lease is over already");
        fake.offer.set(Some(Offer { term: 1, until: Monotonic(900) }));
        assert_eq!(lease_gate.take_offer(), None);
        assert!(lease_gate.bind() && lease_gate.is_bound() && !lease_gate.bind());
        assert!(lease_gate.may_answer());
        fake.now.set(900);
        assert!(!lease_gate.may_answer(), "from the first lease on it needs one");
    }
}
