//! Whether this node may answer for its volumes, at this very moment.
//!
//! A volume answers much from memory: its cache, its opens, its names. Another node may have changed
//! all of that if it has claimed the volume, so nothing of a volume leaves the node without a lease
//! ([`heartbeat`]). The clock is read when an answer leaves, after all that is in it was
//! gathered: even if the process was stopped in between, the answer was true at a moment of the lease.
//! On a single server there is no lease, and nothing is asked; one that becomes a node answers without
//! until it has its first, and nobody else may join before that.

use heartbeat::Offer;
use heartbeat::shell::{Claim, HeartbeatLink, Retreat};
use space::block_store::BlockStore;
use space::local::LocalSpace;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use types::{Monotonic, VolumeId};

/// The heartbeats as the node uses them. Nothing here waits.
pub trait Heartbeats {
    /// Reads the clock of leases.
    fn now(&self) -> Monotonic;

    /// The last lease; it may be over.
    fn offer(&self) -> Option<Offer>;

    /// Whether all who may have answered before the claim have stopped. Until then the heartbeats wake the
    /// loop when that may have changed.
    fn may_answer_for(&self, volume: VolumeId, claim: &Claim) -> bool;

    /// Forgets the wait of an opening for this volume, whose claim is no longer asked for.
    fn forget_claim(&self, volume: VolumeId);

    /// Volumes that another node had claimed up to this revision of the cluster's state are withdrawn.
    fn note_applied(&self, revision: u64);

    /// Tells the others whether large messages come through between this node and most of the nodes.
    fn note_reach(&self, reach_most: bool);

    /// Wants this node to fall silent, as one that is dead, or not any more.
    fn retreat(&self, is_wanted: bool);

    /// The state of the retreat.
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

/// The node's lease, as far as it has read the records for it.
///
/// Invariants: `until` is the end of a lease of a term in which the records were read; it never goes back.
pub(crate) struct LeaseGate {
    /// None: a single server.
    heartbeats: OnceCell<Rc<dyn Heartbeats>>,
    /// Answers are given by a lease only.
    is_bound: Cell<bool>,
    /// The last term in which the records were read; 0: none.
    term: Cell<u64>,
    until: Cell<Monotonic>,
    applied: Cell<u64>,
    /// Volumes whose former owners are asked about.
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

    /// Has a single server, which becomes a node, look for its first lease.
    pub fn begin(&self, heartbeats: Rc<dyn Heartbeats>) {
        let is_first = self.heartbeats.set(heartbeats).is_ok();
        debug_assert!(is_first, "a node has heartbeats already");
    }

    /// The heartbeats of this node; `None`: a single server has none.
    pub fn heartbeats(&self) -> Option<&dyn Heartbeats> {
        self.heartbeats.get().map(|heartbeats| &**heartbeats)
    }

    /// Lets answers be given by the lease only, if this is the first; whether it is.
    pub fn bind(&self) -> bool {
        let Some(heartbeats) = self.heartbeats.get() else { return false };
        if self.is_bound.get() || heartbeats.now() >= self.until.get() {
            return false;
        }
        self.is_bound.set(true);
        true
    }

    /// Whether answers are given by a lease only.
    pub fn is_bound(&self) -> bool {
        self.is_bound.get()
    }

    /// Until when answers may be given.
    pub fn until(&self) -> Monotonic {
        self.until.get()
    }

    /// Takes the lease as it was offered last. Answers the term for which the records are to be read first, if it is such a one.
    pub fn take_offer(&self) -> Option<u64> {
        let offer = self.heartbeats.get()?.offer()?;
        if offer.term != self.term.get() {
            return Some(offer.term);
        }
        self.until.set(self.until.get().max(offer.until));
        None
    }

    /// The records were read since the lease was offered in this term, and the node acts by them.
    pub fn admit(&self, term: u64) {
        self.term.set(term);
    }

    /// Whether an answer may leave the node that was gathered before this was asked.
    pub fn may_answer(&self) -> bool {
        let Some(heartbeats) = self.heartbeats.get().filter(|_| self.is_bound.get()) else { return true };
        if heartbeats.now() < self.until.get() {
            return true;
        }
        // The lease may have grown since the turn began.
        self.take_offer().is_none() && heartbeats.now() < self.until.get()
    }

    /// Lets openings serve whose volumes nobody else answers for any more; whether there were any.
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

    /// Tells up to which revision of the records nothing of another node's is answered for.
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
        // Grown, over, and grown again in the same term.
        fake.offer.set(Some(Offer { term: 3, until: Monotonic(700) }));
        fake.now.set(600);
        assert!(lease_gate.may_answer());
        fake.now.set(700);
        assert!(!lease_gate.may_answer());
        fake.offer.set(Some(Offer { term: 3, until: Monotonic(1200) }));
        assert!(lease_gate.may_answer());
        // In another term the last lease holds to its end, and the records are read first.
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
