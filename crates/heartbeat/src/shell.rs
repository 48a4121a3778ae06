//! [`Membership`] on UDP sockets ([`super::sockets`]), in a thread of its own.
//!
//! Owns the thread, its sockets, and the [`HeartbeatLink`] to other threads. Promises: the data plane waits here
//! for nothing but a lock that is held for a moment; the thread sends heartbeats independently of other
//! threads, and tells peers how long the data plane has made no turn. Requests are bounded: of each
//! kind the last counts, and claims are one a volume.

use super::sockets::Sockets;
use super::urgency::Urgency;
use super::{Event, FormerOwner, HeartbeatKey, Lease, Member, Membership, Offer, Options, Verdict, Ways};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use sys::monotonic_now;
use types::{Monotonic, NodeId, VolumeId};

/// Most events that wait to be taken; beyond, the verdicts tell the rest.
const EVENTS_MAX: usize = 1024;

/// Callbacks of the thread.
pub struct Surroundings {
    /// Turns that the data plane has made.
    pub turns: Box<dyn Fn() -> u64 + Send>,
    /// Makes the data plane turn: to distinguish an idle one from one that hangs, and when it may do
    /// something that it could not before.
    pub poke: Box<dyn Fn() + Send>,
    /// Called when events wait; must not block.
    pub wake: Box<dyn Fn() + Send>,
}

/// The peers as of now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers {
    /// Verdict on each peer.
    pub verdicts: BTreeMap<NodeId, Verdict>,
    /// Those that this node cannot talk to, whether or not a majority holds them dead.
    pub cut_off: BTreeSet<NodeId>,
    /// How often a majority held a process of each peer dead that had not ended.
    pub survived: BTreeMap<NodeId, u64>,
    /// Datagrams that were not taken since the start.
    pub refused: u64,
}

/// Whether this node may answer for volumes, and whom it hears.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Peers that are up.
    pub heard: BTreeSet<NodeId>,
    /// For how long there has been no lease; `None`: there is one.
    pub without_lease_for: Option<Duration>,
}

/// Whether this node falls silent, as one whose data reach nobody ([`Membership::hush`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retreat {
    /// The data plane asks for it.
    pub is_wanted: bool,
    /// The others do without this node.
    pub is_spared: bool,
    /// This node says nothing now.
    pub is_silent: bool,
    /// Servers whose members of the cluster's state are heard to vote.
    pub voting: BTreeSet<NodeId>,
}

/// A volume that this node has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The nodes that may have answered for it until then.
    pub before: Vec<NodeId>,
    /// A moment behind the answer that the claim is committed.
    pub at: Monotonic,
    /// The claim's revision of the cluster's state.
    pub revision: u64,
}

#[derive(Default)]
struct Told {
    peers: Peers,
    is_needed: bool,
    retreat: Retreat,
    lease: Option<Lease>,
    /// When the lease was valid last, or the heartbeats began.
    valid_at: Option<Monotonic>,
    offer: Option<Offer>,
    events: Vec<Event>,
}

/// Requests of other threads to this one.
#[derive(Default)]
struct Wanted {
    members: Option<Vec<Member>>,
    key: Option<HeartbeatKey>,
    resets: BTreeSet<NodeId>,
    applied: u64,
    /// The claims of this node, and whether it may answer for the volume.
    claims: BTreeMap<VolumeId, (Claim, bool)>,
    needs_others: bool,
    ways: Ways,
    /// The data plane wants this node to fall silent.
    retreats: bool,
    /// This node's member of the cluster's state has made way for the silence.
    is_hushed: bool,
    is_stopped: bool,
}

#[derive(Default)]
struct Shared {
    told: Mutex<Told>,
    wanted: Mutex<Wanted>,
    /// Wakes the thread, once there is one.
    ordered: OnceLock<OwnedFd>,
}

/// State shared by the data plane and the heartbeats; there before they begin. Clones share it.
#[derive(Clone, Default)]
pub struct HeartbeatLink(Arc<Shared>);

impl HeartbeatLink {
    /// The last lease that was offered; it may be over.
    pub fn offer(&self) -> Option<Offer> {
        self.told().offer
    }

    /// The peers as of now; none before the heartbeats have begun.
    pub fn peers(&self) -> Peers {
        self.told().peers.clone()
    }

    /// Whether this node may answer, at this moment of its clock; `None` before the heartbeats have begun.
    pub fn standing(&self, now: Monotonic) -> Option<Standing> {
        let told = self.told();
        let valid_at = told.valid_at?;
        let is_valid = told.lease.is_some_and(|lease| lease.is_valid(now));
        let up = told.peers.verdicts.iter().filter(|(_, verdict)| verdict.is_up());
        Some(Standing {
            heard: up.map(|(node, _)| *node).collect(),
            without_lease_for: (!is_valid).then(|| now.since(valid_at)),
        })
    }

    /// See [`Membership::note_applied`].
    pub fn note_applied(&self, revision: u64) {
        self.want(|wanted| wanted.applied = wanted.applied.max(revision));
    }

    /// This node stops; `needs_others`: it still needs the disks of others, or the cluster's state.
    pub fn set_needs_others(&self, needs_others: bool) {
        self.want(|wanted| wanted.needs_others = needs_others);
    }

    /// Whether another node that stops needs this one for that.
    pub fn is_needed(&self) -> bool {
        self.told().is_needed
    }

    /// Tells the others whether large messages come through between this node and most of the servers.
    pub fn note_reach(&self, reach_most: bool) {
        if self.wanted().ways.reach_most != reach_most {
            self.want(|wanted| wanted.ways.reach_most = reach_most);
        }
    }

    /// Tells the others whether this server's member of the cluster's state votes.
    pub fn note_vote(&self, votes: bool) {
        if self.wanted().ways.votes != votes {
            self.want(|wanted| wanted.ways.votes = votes);
        }
    }

    /// Wants this node to fall silent, or not any more.
    pub fn retreat(&self, is_wanted: bool) {
        self.want(|wanted| wanted.retreats = is_wanted);
    }

    /// Lets this node fall silent if that is wanted: its member of the cluster's state has made way.
    pub fn hush(&self, is_hushed: bool) {
        self.want(|wanted| wanted.is_hushed = is_hushed);
    }

    /// The state of a retreat, as of now.
    pub fn retreating(&self) -> Retreat {
        let is_wanted = self.wanted().retreats;
        Retreat { is_wanted, ..self.told().retreat.clone() }
    }

    /// All connections to a peer's process were reset.
    pub fn note_reset(&self, node: NodeId) {
        self.want(|wanted| {
            wanted.resets.insert(node);
        });
    }

    /// Whether this node may answer for a volume that it claimed: all who did before have stopped. Until
    /// then, this node asks the former owners, and pokes the data plane when they have.
    pub fn may_answer_for(&self, volume: VolumeId, claim: &Claim) -> bool {
        let mut wanted = self.wanted();
        match wanted.claims.get(&volume) {
            Some((known, may_answer)) if known == claim => *may_answer,
            _ => {
                wanted.claims.insert(volume, (claim.clone(), false));
                drop(wanted);
                self.signal();
                false
            }
        }
    }

    /// Nobody asks about the volume any more.
    pub fn forget_claim(&self, volume: VolumeId) {
        self.wanted().claims.remove(&volume);
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.wanted());
        self.signal();
    }

    fn signal(&self) {
        if let Some(ordered) = self.0.ordered.get() {
            // Fails only if it was not read for 2^64 signals.
            let _ = rustix::io::write(ordered, &1_u64.to_ne_bytes());
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.0.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running heartbeats. Dropping it ends the thread.
pub struct Heartbeats {
    link: HeartbeatLink,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Heartbeats {
    /// Begins to send and to hear on `socket`, which [`super::bind`] has made so that peers can be heard apart from strangers. `members`: `None` until [`Heartbeats::set_members`] names them; there is no lease before.
    ///
    /// # Errors
    /// The socket cannot be used, there is no thread, or the link has one already.
    pub fn start(
        options: Options,
        socket: UdpSocket,
        link: HeartbeatLink,
        members: Option<&[Member]>,
        surroundings: Surroundings,
    ) -> io::Result<Self> {
        let mut sockets = Sockets::new(socket)?;
        let now = monotonic_now();
        let mut membership = Membership::new(options, now);
        if let Some(members) = members {
            membership.set_members(members, now);
            sockets.set_peers(&addresses(members, &membership));
        }
        let interval = membership.options.timing.dead;
        let ordered = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        link.0.ordered.set(ordered).map_err(|_| io::ErrorKind::AlreadyExists)?;
        link.told().valid_at = Some(now);
        let beating = Beating { membership, sockets, link: link.clone(), surroundings, poked: now, interval };
        let thread = std::thread::Builder::new().name("heartbeats".into()).spawn(move || beating.run())?;
        Ok(Self { link, thread: Some(thread) })
    }

    /// The peers as the records have them; see [`Membership::set_members`].
    pub fn set_members(&self, members: Vec<Member>) {
        self.link.want(|wanted| wanted.members = Some(members));
    }

    /// Another key from now on; see [`Membership::set_key`].
    pub fn set_key(&self, key: HeartbeatKey) {
        self.link.want(|wanted| wanted.key = Some(key));
    }

    /// This node's lease; invalid until the first heartbeats were exchanged.
    pub fn lease(&self) -> Lease {
        self.link.told().lease.unwrap_or(Lease { term: 0, valid_until: None })
    }

    /// Returns the verdicts and counters as of now.
    pub fn peers(&self) -> Peers {
        self.link.peers()
    }

    /// Events since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.link.told().events)
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.link.want(|wanted| wanted.is_stopped = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Addresses of the peers.
fn addresses(members: &[Member], membership: &Membership) -> BTreeSet<SocketAddr> {
    let me = membership.options.me;
    members.iter().filter(|member| member.node != me).map(|member| member.address).collect()
}

struct Beating {
    membership: Membership,
    sockets: Sockets,
    link: HeartbeatLink,
    surroundings: Surroundings,
    poked: Monotonic,
    /// Between two pokes of an idle data plane.
    interval: Duration,
}

impl Beating {
    fn run(mut self) {
        let mut urgency = Urgency::ask(monotonic_now());
        loop {
            if !self.obey(monotonic_now()) {
                return;
            }
            self.hear();
            let now = monotonic_now();
            self.ask_data_plane(now);
            let mut out = Vec::new();
            self.membership.poll(now, &mut out);
            for (address, datagram) in out {
                self.sockets.send(address, &datagram);
            }
            self.publish();
            urgency.look(now);
            self.wait();
        }
    }

    fn obey(&mut self, now: Monotonic) -> bool {
        let mut wanted = self.link.wanted();
        if wanted.is_stopped {
            return false;
        }
        if let Some(members) = wanted.members.take() {
            self.membership.set_members(&members, now);
            self.sockets.set_peers(&addresses(&members, &self.membership));
        }
        if let Some(key) = wanted.key.take() {
            self.membership.set_key(key, now);
        }
        for node in std::mem::take(&mut wanted.resets) {
            self.membership.note_reset(node, now);
        }
        self.membership.note_applied(wanted.applied, now);
        self.membership.set_needs_others(wanted.needs_others, now);
        self.membership.note_ways(wanted.ways);
        self.membership.hush(wanted.retreats && wanted.is_hushed, now);
        let is_asking = wanted.claims.values().any(|(_, may_answer)| !may_answer);
        self.membership.ask(is_asking, now);
        true
    }

    fn hear(&mut self) {
        let membership = &mut self.membership;
        self.sockets.hear(monotonic_now(), |datagram| {
            if let Err(why) = membership.receive(datagram, monotonic_now()) {
                tracing::trace!(%why, "a datagram was not taken");
            }
        });
    }

    fn ask_data_plane(&mut self, now: Monotonic) {
        self.membership.note_turns((self.surroundings.turns)(), now);
        if now.since(self.poked) >= self.interval {
            self.poked = now;
            (self.surroundings.poke)();
        }
    }

    fn publish(&mut self) {
        let events = self.membership.take_events();
        for event in &events {
            tracing::debug!(?event, "heartbeats");
        }
        let now = monotonic_now();
        let offer = self.membership.offer(now);
        let has_news = !events.is_empty();
        let mut may_do_more = self.permit(now);
        {
            let mut told = self.link.told();
            if let Some(offer) = offer {
                // One that waits for the lease is told when there is one again; as it grows it is looked at.
                may_do_more |= told.offer.is_none_or(|known| known.term != offer.term || known.until <= now);
                told.offer = Some(offer);
            }
            let (verdicts, cut_off) = (self.membership.verdicts(), self.membership.cut_off(now));
            let (survived, refused) = (self.membership.survived(), self.membership.refused());
            told.peers = Peers { verdicts, cut_off, survived, refused };
            told.is_needed = self.membership.is_needed(now);
            told.retreat = Retreat {
                is_wanted: false,
                is_spared: self.membership.is_spared(now),
                is_silent: self.membership.is_silent(now),
                voting: self.membership.voting(now),
            };
            let lease = self.membership.lease();
            if lease.is_valid(now) {
                told.valid_at = Some(now);
            }
            told.lease = Some(lease);
            told.events.extend(events);
            let overflow = told.events.len().saturating_sub(EVENTS_MAX);
            told.events.drain(..overflow);
        }
        if may_do_more {
            (self.surroundings.poke)();
        }
        if has_news {
            (self.surroundings.wake)();
        }
    }

    /// Checks for which claims all who answered before have stopped; whether there are more of them.
    fn permit(&self, now: Monotonic) -> bool {
        let mut more = false;
        for (claim, may_answer) in self.link.wanted().claims.values_mut().filter(|(_, may)| !may) {
            let former = |node: &NodeId| FormerOwner {
                node: *node,
                claimed_at: claim.at,
                claim_revision: claim.revision,
            };
            let all = claim.before.iter().all(|node| self.membership.may_answer_for(&former(node), now));
            (*may_answer, more) = (all, more | all);
        }
        more
    }

    /// Until a datagram or an order comes, or time has something to say.
    fn wait(&self) {
        let (mut waited, again_at) = self.sockets.waited();
        let until = again_at.into_iter().fold(self.membership.next_timeout(), Monotonic::min);
        let patience = until.since(monotonic_now());
        let timeout =
            Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
        let ordered = self.link.0.ordered.get().expect("it was set at the start");
        waited.push(PollFd::new(ordered, PollFlags::IN));
        // Interrupted: the loop looks anyway.
        let _ = poll(&mut waited, Some(&timeout));
        let mut count = [0; 8];
        let _ = rustix::io::read(ordered, &mut count);
    }
}
