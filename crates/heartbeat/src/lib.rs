//! Liveness of the cluster's nodes, and this node's lease, by heartbeats (D16).
//!
//! Owns the verdicts on peers and the node's lease, as a state machine: time and datagrams in, datagrams and verdicts out. It holds no
//! clock, socket or random source. Promises:
//!
//! - **A verdict is a majority's.** A peer is [`Verdict::Down`] when a majority of the voters hold it dead, this node among them. A node
//!   that only this one cannot hear is [`Verdict::Suspect`].
//! - **A lease excludes another owner's answers.** If a node answers from memory only before the end of a lease that it was offered
//!   ([`Membership::offer`]), of a term in which it has read the records since the first offer, and an owner that took over only when
//!   [`Membership::may_answer_for`] says so, never both answer.
//! - **A replay changes nothing.** A datagram counts once, and one of an earlier process of its sender never.
//! - **Another key loses nobody.** While the key changes ([`Membership::set_key`]), all nodes with
//!   either key hear each other.
//!
//! Safety of data never rests on the lease: epochs and the promises of disks keep two owners apart (I2,
//! I3). The lease bounds how long a node that was declared dead may still answer reads from its memory.
//!
//! # How
//!
//! Every node sends every other a heartbeat each 100 ms. A heartbeat says when the receiver was last
//! heard (the echo), and up to which of its *terms* the sender grants it a lease. A node's lease lasts
//! 500 ms from the moment it *sent* the heartbeat that a majority echoed: only its own clock counts. A
//! voter that has not heard a node for 500 ms, or learns that its connections were reset and gets no
//! answer, holds it dead: it says so in its heartbeats (a *vote*, with the age of its last grant), and
//! never grants that term again. The node then begins a new term: its volumes may have another owner,
//! so it reads the records again once it has a lease in the new term, before it answers by that
//! ([`Lease::term`]). The lease of the term before holds to its end.
//!
//! Why never both answer: let a node have read the records in a term before another one claimed its volume, and let the claimer have a
//! majority's votes from after the claim. Some voter is in that majority and in the one that granted the term. It granted before the claim and
//! condemned after, so its vote tells of a grant no older than its last one in that term, and `may_answer_for` waits that lease out.
//! A node that reads the records after the claim has read of it. One that claims from an owner which
//! had not been let answer itself asks about those before it too: the record names them
//! (`VolumeRecord::before`).
//!
//! A reset alone condemns nobody, since a faulty line, or an attacker who can write into it, may bring
//! it about. The peer is asked by heartbeats that want an answer at once; only one that answers none of
//! them within [`Timing::reset`] is condemned, and down only if a majority saw the same.
//!
//! A process that starts has forgotten which terms it refused, so it grants no term that began before
//! it: it refuses the first term that it hears of each peer. A new process of a peer is believed once
//! it echoes a recent word of this one and the process before has been silent for as long as an echo
//! counts as new, so no clock and no counter must survive a restart: echoes of the process before are
//! older than its silence. Words with stamps that do not follow those before are taken on the same
//! terms, so that a forged one expels nobody for good.
//!
//! A network may carry heartbeats and lose all large messages. A node that is heard so, and whose data
//! reach nobody, keeps what it cannot write. Its data plane may have it fall silent
//! ([`Membership::hush`]), which is a death to the others at the moment of its last word: its leases
//! last from its last words, its last grants are in the others' votes, and the argument above holds
//! word by word. It is silent only as long as the others do without it: a majority of the voters,
//! without this one, is heard and says that its large messages reach most ([`Membership::is_spared`]).
//! Otherwise it speaks at once, since silence would then end the service of more than its own volumes.
//!
//! A way may be cut in one direction only, or between two nodes that others hear. Then no majority
//! holds either of them dead, and requests from one to the other stay unanswered: each finds that it is
//! [cut off](Membership::cut_off) from the other, by silence or as its own words are echoed no more.

#![forbid(unsafe_code)]

mod datagram;
mod dead;
mod keys;
mod lease;
mod peer;
pub mod shell;
mod sockets;
#[cfg(test)]
mod tests;
mod urgency;

pub use datagram::{
    DATAGRAM_BYTES_MAX, Echo, Heartbeat, HeartbeatKey, Incarnation, Refused, VOTES_MAX, Vote, Ways,
};
pub use dead::Dead;
pub use lease::{Lease, Offer};
pub use sockets::bind;

use keys::Keys;
use peer::{Heard, Judgement, Peer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use types::{Monotonic, NodeId};

/// Times of the protocol; all nodes of a cluster use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two heartbeats.
    pub interval: Duration,
    /// Silence after which a peer is suspected.
    pub suspect: Duration,
    /// Silence after which a peer is held dead.
    pub dead: Duration,
    /// How long a lease lasts from the heartbeat that was echoed.
    pub lease: Duration,
    /// Time without a turn of its data plane after which a node is held dead: it answers heartbeats and
    /// nothing else.
    pub stall: Duration,
    /// Time without an answer after which a peer whose connections were reset, and that was asked, is held
    /// dead.
    pub reset: Duration,
    /// Between two heartbeats that ask for an answer at once.
    pub asking: Duration,
    /// Time after which a node counts as cut off from a peer that was silent, or echoed none of its words.
    pub cut_off: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            suspect: Duration::from_millis(250),
            dead: Duration::from_millis(500),
            lease: Duration::from_millis(500),
            stall: Duration::from_secs(5),
            // Four questions: one lost datagram, or a thread that was late, is no death.
            reset: Duration::from_millis(100),
            asking: Duration::from_millis(25),
            // Longer than a death takes: the copies that are given up are of a node that lives.
            cut_off: Duration::from_secs(1),
        }
    }
}

impl Timing {
    /// The lease by others' reckoning: clocks of two machines run apart by less than one percent, and ages
    /// have milliseconds.
    fn lease_of_others(&self) -> Duration {
        self.lease + self.lease / 100 + Duration::from_millis(2)
    }
}

/// This node's number and incarnation, its cluster, and the timing.
#[derive(Clone)]
pub struct Options {
    /// Number of this node.
    pub me: NodeId,
    /// Another random number for each start; not 0.
    pub incarnation: Incarnation,
    /// Tells clusters apart before a signature is computed.
    pub cluster: u64,
    /// Key that authenticates heartbeats.
    pub key: HeartbeatKey,
    /// Times of the protocol, the same on all nodes.
    pub timing: Timing,
}

/// A peer as the records have it: a node, or the witness. All vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Number of the peer.
    pub node: NodeId,
    /// Address of its UDP socket for heartbeats.
    pub address: SocketAddr,
}

/// Judgement of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The peer is heard, or was until a moment ago.
    Up {
        /// Time of the verdict.
        since: Monotonic,
    },
    /// The peer is silent, or was held dead by fewer than a majority.
    Suspect {
        /// Time of the verdict.
        since: Monotonic,
    },
    /// A majority holds it dead. From `lease_ends` on it answers nothing from memory.
    Down {
        /// Time of the verdict.
        since: Monotonic,
        /// Time by this node's clock after which the peer answers nothing from memory.
        lease_ends: Monotonic,
    },
}

impl Verdict {
    /// Returns whether the peer is up.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }

    /// Returns whether a majority holds the peer dead.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }
}

/// Something to act upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The verdict on a peer changed; a later `lease_ends` of a peer that is down changes nothing.
    Changed { node: NodeId, verdict: Verdict },
    /// A peer's process is another one than before.
    Restarted { node: NodeId },
    /// This node and a peer cannot talk any more, or can again ([`Membership::cut_off`]).
    CutOff { node: NodeId, is_cut_off: bool },
    /// This node was held dead by somebody, or is new to somebody: its lease is of another term from now on.
    NewTerm { term: u64 },
}

/// The owner that lost a volume to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormerOwner {
    /// Number of the node that had the volume.
    pub node: NodeId,
    /// A moment of this node's clock behind the answer that the claim is committed.
    pub claimed_at: Monotonic,
    /// The claim's revision of the cluster's state.
    pub claim_revision: u64,
}

/// See the module.
pub struct Membership {
    options: Options,
    keys: Keys,
    started: Monotonic,
    peers: BTreeMap<NodeId, Peer>,
    /// The peers were named once: before, nobody is known to have no say.
    has_members: bool,
    term: u64,
    /// The last term in which a lease was given out: the node may answer by it.
    offered_term: u64,
    /// The end of the last lease that was given out.
    offered_until: Monotonic,
    /// Answers of former owners are waited for ([`Membership::ask`]).
    is_asking: bool,
    /// This node stops, and is not done ([`Membership::set_needs_others`]).
    needs_others: bool,
    ways: Ways,
    /// This node falls silent while the others do without it ([`Membership::hush`]).
    is_hushed: bool,
    /// Before this, no answer is sent out of turn.
    hurry_after: Monotonic,
    progress: Progress,
    next_send: Monotonic,
    last_stamp: u64,
    applied: u64,
    events: Vec<Event>,
    refused: u64,
}

/// The data plane's life.
struct Progress {
    turns: u64,
    moved: Monotonic,
}

impl Membership {
    /// Makes the state machine; it knows no peers yet, and has no lease.
    pub fn new(options: Options, now: Monotonic) -> Self {
        assert_ne!(options.incarnation.0, 0, "0 is no incarnation");
        Self {
            keys: Keys::new(options.key.clone()),
            options,
            started: now,
            peers: BTreeMap::new(),
            has_members: false,
            term: 1,
            offered_term: 0,
            offered_until: Monotonic(0),
            is_asking: false,
            needs_others: false,
            ways: Ways::default(),
            is_hushed: false,
            hurry_after: now,
            progress: Progress { turns: 0, moved: now },
            next_send: now,
            last_stamp: 0,
            applied: 0,
            events: Vec::new(),
            refused: 0,
        }
    }

    /// The peers as the records have them, without this node. One peer at a time comes or goes, so that majorities of before and
    /// after have a voter in common.
    pub fn set_members(&mut self, members: &[Member], now: Monotonic) {
        self.has_members = true;
        self.peers.retain(|node, _| members.iter().any(|member| member.node == *node));
        for member in members.iter().filter(|member| member.node != self.options.me).take(VOTES_MAX) {
            match self.peers.get_mut(&member.node) {
                Some(peer) => peer.address = member.address,
                None => {
                    self.peers.insert(member.node, Peer::new(member.address, self.keys.number(), now));
                }
            }
        }
        self.judge_all(now);
    }

    /// Another key from now on. Those before are good for [`keys::OVERLAP`], each for peers that were not heard by a later one.
    pub fn set_key(&mut self, key: HeartbeatKey, now: Monotonic) {
        self.keys.replace(key, now);
        self.next_send = now;
    }

    /// Takes the number of turns that the data plane has made.
    pub fn note_turns(&mut self, turns: u64, now: Monotonic) {
        if self.progress.turns != turns {
            self.progress = Progress { turns, moved: now };
        }
    }

    /// All connections to a peer's process were reset: it is dead, unless it answers.
    pub fn note_reset(&mut self, node: NodeId, now: Monotonic) {
        if let Some(peer) = self.peers.get_mut(&node)
            && peer.note_reset(now)
        {
            self.next_send = now;
        }
    }

    /// Whether answers of former owners are waited for: then heartbeats follow each other faster, and ask for answers at once.
    pub fn ask(&mut self, is_asking: bool, now: Monotonic) {
        if is_asking && !self.is_asking {
            self.next_send = now;
        }
        self.is_asking = is_asking;
    }

    /// Whether this node stops and still needs others for that: those that stop as well wait for it.
    pub fn set_needs_others(&mut self, needs_others: bool, now: Monotonic) {
        if std::mem::replace(&mut self.needs_others, needs_others) != needs_others {
            self.next_send = now;
        }
    }

    /// Whether a peer that is heard stops, and still needs others for that.
    pub fn is_needed(&self, now: Monotonic) -> bool {
        self.peers.values().any(|peer| peer.needs_others && !peer.is_silent(now, &self.options.timing))
    }

    /// Takes this node's reach beyond heartbeats, for the others.
    pub fn note_ways(&mut self, ways: Ways) {
        self.ways = ways;
    }

    /// Has this node say nothing, as one that is dead, for as long as it is spared; or speak again.
    pub fn hush(&mut self, is_hushed: bool, now: Monotonic) {
        if std::mem::replace(&mut self.is_hushed, is_hushed) && !is_hushed {
            self.next_send = now;
        }
    }

    /// Whether the others do without this node: a majority of the voters, of which it is none, is heard and says that large messages reach most.
    pub fn is_spared(&self, now: Monotonic) -> bool {
        let well = self.heard(now).filter(|(_, peer)| peer.ways.reach_most).count();
        well >= majority(self.peers.len() + 1)
    }

    /// Whether this node says nothing now.
    pub fn is_silent(&self, now: Monotonic) -> bool {
        self.is_hushed && self.is_spared(now)
    }

    /// The peers that are heard and say that their member of the cluster's state votes.
    pub fn voting(&self, now: Monotonic) -> BTreeSet<NodeId> {
        self.heard(now).filter(|(_, peer)| peer.ways.votes).map(|(node, _)| *node).collect()
    }

    fn heard(&self, now: Monotonic) -> impl Iterator<Item = (&NodeId, &Peer)> {
        self.peers.iter().filter(move |(_, peer)| peer.was_heard(now, &self.options.timing))
    }

    /// Takes a datagram.
    ///
    /// # Errors
    /// [`Refused`]: nothing has changed.
    pub fn receive(&mut self, datagram: &[u8], now: Monotonic) -> Result<(), Refused> {
        let taken = self.take(datagram, now);
        self.refused += u64::from(taken.is_err());
        taken
    }

    fn take(&mut self, datagram: &[u8], now: Monotonic) -> Result<(), Refused> {
        // A signature costs far more than this check: one is computed only for a possible word of a peer to
        // this node.
        let ends = Heartbeat::ends(datagram).ok_or(Refused::Malformed)?;
        if ends.to != self.options.me || !self.peers.contains_key(&ends.from) {
            return Err(Refused::Stranger);
        }
        let (heartbeat, key) = self.keys.parse(datagram, self.options.cluster, now)?;
        let stamp = self.stamp(now).max(self.last_stamp);
        let (me, incarnation, timing) = (self.options.me, self.options.incarnation, self.options.timing);
        let peer = self.peers.get_mut(&heartbeat.from).ok_or(Refused::Stranger)?;
        if heartbeat.to != me {
            return Err(Refused::Stranger);
        }
        if key < peer.shown_key {
            return Err(Refused::Signature);
        }
        peer.shown_key = key;
        let echo = heartbeat.echo.filter(|echo| echo.incarnation == incarnation && echo.stamp <= stamp);
        let is_fresh = echo.is_some_and(|echo| Duration::from_nanos(stamp - echo.stamp) < timing.dead);
        let echoed = echo.map(|echo| self.started.after(Duration::from_nanos(echo.stamp)));
        let heard = peer.hear(&heartbeat, echoed, is_fresh, now, &timing)?;
        if heard == Heard::Unproven {
            return Ok(());
        }
        if heard == Heard::Restarted {
            self.events.push(Event::Restarted { node: heartbeat.from });
        }
        if let Some(echo) = echo.filter(|echo| echo.term == self.term && heartbeat.refused_term < self.term) {
            peer.granted = peer.granted.max(Some(self.started.after(Duration::from_nanos(echo.stamp))));
        }
        if echo.is_some() && heartbeat.refused_term == self.term {
            self.begin_term(self.term + 1);
        }
        if heard != Heard::Again {
            // The sooner it hears the answer, the sooner it has a lease.
            self.next_send = now;
        }
        if heartbeat.asks {
            // Two that ask each other must not do so as fast as the network carries it.
            self.next_send = self.next_send.min(self.hurry_after.max(now));
        }
        self.judge_all(now);
        Ok(())
    }

    /// Earlier grants belong to the term before.
    fn begin_term(&mut self, term: u64) {
        self.term = term;
        for peer in self.peers.values_mut() {
            peer.granted = None;
        }
        self.events.push(Event::NewTerm { term });
        self.next_send = self.started;
    }

    /// Nanoseconds since the start, which stamps count.
    fn stamp(&self, now: Monotonic) -> u64 {
        now.since(self.started).as_nanos() as u64
    }

    /// Gives out the datagrams that are due, and the verdicts that time has changed.
    pub fn poll(&mut self, now: Monotonic, out: &mut Vec<(SocketAddr, Vec<u8>)>) {
        self.judge_all(now);
        if now < self.next_send {
            return;
        }
        let timing = self.options.timing;
        if self.is_silent(now) {
            self.next_send = now.after(timing.interval);
            return;
        }
        let asks = self.is_asking || self.peers.values().any(Peer::is_asked);
        self.next_send = now.after(if asks { timing.asking } else { timing.interval });
        self.hurry_after = now.after(timing.asking / 4);
        // A stamp is used once: after a hurry two sendings may see one time.
        self.last_stamp = self.stamp(now).max(self.last_stamp + 1);
        let sent_at = self.started.after(Duration::from_nanos(self.last_stamp));
        let votes: Vec<Vote> = self.peers.iter().filter_map(|(node, peer)| peer.vote(*node, now)).collect();
        let still = now.since(self.progress.moved);
        let may_answer = self.may_be_answering(now);
        for (node, peer) in &mut self.peers {
            let (echo, refused_term) = peer.echo(now, &timing);
            let heartbeat = Heartbeat {
                from: self.options.me,
                to: *node,
                incarnation: self.options.incarnation,
                stamp: self.last_stamp,
                term: self.term,
                may_answer,
                needs_others: self.needs_others,
                ways: self.ways,
                asks: asks && (self.is_asking || peer.is_asked()),
                turns: self.progress.turns,
                still,
                applied: self.applied,
                echo,
                refused_term,
                votes: votes.clone(),
            };
            let datagrams = self.keys.encode(&heartbeat, self.options.cluster, peer.shown_key, now);
            out.extend(datagrams.into_iter().map(|datagram| (peer.address, datagram)));
            peer.note_sent(sent_at);
        }
    }

    /// When [`Membership::poll`] has something to do next.
    pub fn next_timeout(&self) -> Monotonic {
        self.peers
            .values()
            .filter_map(|peer| peer.next_timeout(&self.options.timing))
            .fold(self.next_send, Monotonic::min)
    }

    fn judge_all(&mut self, now: Monotonic) {
        for (node, peer) in &mut self.peers {
            if peer.is_found_dead(now, &self.options.timing) {
                self.next_send = now;
            }
            if let Some(is_cut_off) = peer.turns_cut_off(now, &self.options.timing) {
                self.events.push(Event::CutOff { node: *node, is_cut_off });
            }
        }
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            let verdict = self.judge(node, now);
            let peer = self.peers.get_mut(&node).expect("it is among the keys");
            if peer.set_verdict(verdict, now) {
                self.events.push(Event::Changed { node, verdict: peer.verdict() });
            }
        }
    }

    /// The present judgement of a peer.
    fn judge(&self, node: NodeId, now: Monotonic) -> Judgement {
        let peer = &self.peers[&node];
        if !peer.is_condemned() {
            return if peer.is_silent(now, &self.options.timing) {
                Judgement::Suspect
            } else {
                Judgement::Up
            };
        }
        match self.lease_end_of(node, peer, Monotonic(0)) {
            Some(lease_ends) => Judgement::Down { lease_ends },
            None => Judgement::Suspect,
        }
    }

    /// When a peer's lease is over at the latest, by a majority's votes since `since`; `None` if no
    /// majority holds it dead.
    fn lease_end_of(&self, node: NodeId, peer: &Peer, since: Monotonic) -> Option<Monotonic> {
        if !peer.is_condemned() {
            return None;
        }
        // When each voter but the node itself granted it a lease last; none: it may do so now.
        let others = self.peers.iter().filter(|(other, _)| **other != node);
        let grants = std::iter::once(Some(peer.granted_at()))
            .chain(others.map(|(_, other)| other.vote_on(node, peer, since)));
        let grants: Vec<Option<Monotonic>> = grants.collect();
        let voters = grants.len() + 1;
        let dead = grants.iter().filter(|grant| grant.is_some()).count();
        if dead < majority(voters) {
            return None;
        }
        let lease = self.options.timing.lease_of_others();
        let mut ends: Vec<Monotonic> =
            grants.iter().map(|grant| grant.map_or(Monotonic(u64::MAX), |at| at.after(lease))).collect();
        ends.sort_by(|left, right| right.cmp(left));
        // The dead node needed a majority, itself among them.
        Some(ends[majority(voters) - 2])
    }

    /// Whether an owner that took a volume from `before` may answer from now on: the one before answers nothing any more.
    ///
    /// After the claim a majority must have said that it holds the node dead, and its lease must be over; or the node said that it answers
    /// nothing, or that it acts by records that have the claim. A node that is no member (any more) has no say.
    pub fn may_answer_for(&self, before: &FormerOwner, now: Monotonic) -> bool {
        let Some(peer) = self.peers.get(&before.node) else { return true };
        peer.knows(before.claim_revision, before.claimed_at)
            || self.lease_end_of(before.node, peer, before.claimed_at).is_some_and(|end| now >= end)
    }

    /// Up to which revision of the cluster's state this node acts by the records: volumes that have another owner are withdrawn.
    pub fn note_applied(&mut self, revision: u64, now: Monotonic) {
        if revision > self.applied {
            self.applied = revision;
            if self.peers.values().any(|peer| !peer.verdict().is_up()) {
                self.next_send = now;
            }
        }
    }

    /// Offers the lease for volumes, if it is valid: from now on the node may answer by it. If nobody else
    /// votes, the lease is offered bit by bit, since another node may join.
    pub fn offer(&mut self, now: Monotonic) -> Option<Offer> {
        let until = self.lease().valid_until?.min(now.after(self.options.timing.lease));
        if until <= now {
            return None;
        }
        self.offered_term = self.term;
        self.offered_until = self.offered_until.max(until);
        Some(Offer { term: self.term, until })
    }

    /// Whether this node may answer for volumes, or may be about to by records that it reads now.
    fn may_be_answering(&self, now: Monotonic) -> bool {
        self.offered_term == self.term || now < self.offered_until
    }

    /// This node's lease.
    pub fn lease(&self) -> Lease {
        let mut granted: Vec<Monotonic> = self.peers.values().filter_map(|peer| peer.granted).collect();
        granted.sort_by(|left, right| right.cmp(left));
        let valid_until = match majority(self.peers.len() + 1) {
            _ if !self.has_members => None,
            // Nobody else has a say.
            1 => Some(Monotonic(u64::MAX)),
            needed => granted.get(needed - 2).map(|at| at.after(self.options.timing.lease)),
        };
        Lease { term: self.term, valid_until }
    }

    /// Returns whether this node has a lease beyond `now`.
    pub fn lease_valid(&self, now: Monotonic) -> bool {
        self.lease().is_valid(now)
    }

    /// The verdict on each peer.
    pub fn verdicts(&self) -> BTreeMap<NodeId, Verdict> {
        self.peers.iter().map(|(node, peer)| (*node, peer.verdict())).collect()
    }

    /// How often a majority held a process of each peer dead that had not ended, since this one began: it was paused, overloaded or cut off.
    pub fn survived(&self) -> BTreeMap<NodeId, u64> {
        self.peers.iter().map(|(node, peer)| (*node, peer.survived())).collect()
    }

    /// Peers that this node cannot talk to, whether or not a majority holds them dead: requests to them stay
    /// unanswered. Empty without a lease: then it is this node that most others do not hear, and it decides
    /// about nobody's copies.
    pub fn cut_off(&self, now: Monotonic) -> BTreeSet<NodeId> {
        if !self.lease_valid(now) {
            return BTreeSet::new();
        }
        self.peers.iter().filter(|(_, peer)| peer.is_cut_off).map(|(node, _)| *node).collect()
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Datagrams that were not taken.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// The least number of voters that is a majority.
fn majority(voters: usize) -> usize {
    voters / 2 + 1
}
