//! Nodes in virtual time, on a network that loses, delays, reorders, repeats and cuts one way.

use super::*;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

const MILLISECOND: Duration = Duration::from_millis(1);

/// A small generator, so that a seed replays.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A volume as the records have it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Volume {
    owner: u32,
    /// Nodes that may have answered for the volume before the owner did.
    before: BTreeSet<u32>,
    /// Revision of the claim.
    revision: u64,
}

/// The records as they were read, which takes its time.
struct Reading {
    term: Option<u64>,
    volumes: BTreeMap<u32, Volume>,
    revision: u64,
    done_at: Monotonic,
}

/// A claim of this process.
struct Claim {
    at: Monotonic,
    revision: u64,
    before: BTreeSet<u32>,
    may_answer: bool,
}

/// A node's process, and its knowledge of the volumes.
struct Process {
    membership: Membership,
    is_stopped: bool,
    inbox: Vec<Vec<u8>>,
    /// The term in which the records were read, and until when answers may be given.
    admitted: (u64, Monotonic),
    known: BTreeMap<u32, Volume>,
    reading: Option<Reading>,
    /// Volumes that it is about to claim, and when: the state takes its time.
    claiming: BTreeMap<u32, Monotonic>,
    claims: BTreeMap<u32, Claim>,
}

impl Process {
    /// Whether it answers from memory for a volume.
    fn answers(&self, node: u32, volume: u32, now: Monotonic) -> bool {
        !self.is_stopped
            && now < self.admitted.1
            && self.known.get(&volume).is_some_and(|known| known.owner == node)
            && self.claims.get(&volume).is_some_and(|claim| claim.may_answer)
    }
}

struct World {
    now: Monotonic,
    random: Random,
    processes: BTreeMap<u32, Process>,
    flying: BTreeMap<(Monotonic, u64), (u32, u32, Vec<u8>)>,
    sent: u64,
    cut: BTreeSet<(u32, u32)>,
    loss_percent: u64,
    /// Nodes claim the volumes of nodes that are down.
    claims: bool,
    /// Nodes hear of changes of the records without asking.
    state_is_heard: bool,
    /// How long reading the records takes at most.
    reading_max: Duration,
    delay_max: Duration,
    next_incarnation: u64,
    /// Each node's volume, by the node that had it first.
    volumes: BTreeMap<u32, Volume>,
    revision: u64,
    /// All datagrams that were ever sent, for replays.
    recorded: Vec<(u32, Vec<u8>)>,
}

fn address(node: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9000 + node as u16)
}

fn options(node: u32, incarnation: u64) -> Options {
    Options {
        me: NodeId(node),
        incarnation: Incarnation(incarnation),
        cluster: 7,
        key: HeartbeatKey::derive(b"secret"),
        timing: Timing::default(),
    }
}

impl World {
    fn new(nodes: u32, seed: u64) -> Self {
        let mut world = Self {
            now: Monotonic(1_000_000_000),
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            processes: BTreeMap::new(),
            flying: BTreeMap::new(),
            sent: 0,
            cut: BTreeSet::new(),
            loss_percent: 0,
            claims: true,
            state_is_heard: true,
            reading_max: MILLISECOND,
            delay_max: MILLISECOND,
            next_incarnation: 1,
            volumes: (1..=nodes)
                .map(|node| (node, Volume { owner: node, before: BTreeSet::new(), revision: 0 }))
                .collect(),
            revision: 0,
            recorded: Vec::new(),
        };
        for node in 1..=nodes {
            world.start(node);
        }
        world
    }

    fn start(&mut self, node: u32) {
        self.next_incarnation += 1;
        let mut membership = Membership::new(options(node, self.next_incarnation), self.now);
        let nodes = self.volumes.keys();
        let members: Vec<Member> =
            nodes.map(|node| Member { node: NodeId(*node), address: address(*node) }).collect();
        membership.set_members(&members, self.now);
        let process = Process {
            membership,
            is_stopped: false,
            inbox: Vec::new(),
            admitted: (0, Monotonic(0)),
            known: BTreeMap::new(),
            reading: None,
            claiming: BTreeMap::new(),
            claims: BTreeMap::new(),
        };
        self.processes.insert(node, process);
    }

    fn owner(&self, volume: u32) -> u32 {
        self.volumes[&volume].owner
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        while self.now < end {
            self.step();
        }
    }

    /// A millisecond.
    fn step(&mut self) {
        self.now = self.now.after(MILLISECOND);
        let arrived: Vec<_> = self.flying.range(..=(self.now, u64::MAX)).map(|(key, _)| *key).collect();
        for key in arrived {
            let (from, to, bytes) = self.flying.remove(&key).unwrap();
            if !self.cut.contains(&(from, to))
                && let Some(process) = self.processes.get_mut(&to)
            {
                process.inbox.push(bytes);
            }
        }
        self.judge();
        let nodes: Vec<u32> = self.processes.keys().copied().collect();
        for node in nodes {
            self.work(node);
            self.judge();
        }
    }

    fn work(&mut self, node: u32) {
        let now = self.now;
        let process = self.processes.get_mut(&node).unwrap();
        if process.is_stopped {
            return;
        }
        process.membership.note_turns(now.0, now);
        for bytes in std::mem::take(&mut process.inbox) {
            let _ = process.membership.receive(&bytes, now);
        }
        let mut out = Vec::new();
        if now >= process.membership.next_timeout() {
            process.membership.poll(now, &mut out);
        }
        self.read(node);
        for (address, bytes) in out {
            let to = u32::from(address.port()) - 9000;
            self.send(node, to, bytes);
        }
        self.take_over(node);
    }

    /// Takes the lease, and reads the records: once in each term, and when they are heard to have changed.
    fn read(&mut self, node: u32) {
        let now = self.now;
        let process = self.processes.get_mut(&node).unwrap();
        if let Some(reading) = process.reading.take_if(|reading| reading.done_at <= now) {
            process.known = reading.volumes;
            let known = &process.known;
            process.claims.retain(|volume, claim| {
                known.get(volume).is_some_and(|known| known.owner == node)
                    || claim.revision > reading.revision
            });
            process.membership.note_applied(reading.revision, now);
            if let Some(term) = reading.term {
                process.admitted.0 = term;
            }
        }
        let mut term = None;
        if let Some(offer) = process.membership.offer(now) {
            if offer.term == process.admitted.0 {
                process.admitted.1 = process.admitted.1.max(offer.until);
            } else {
                term = Some(offer.term);
            }
        }
        let hears = self.state_is_heard && now.0.is_multiple_of(50_000_000);
        if process.reading.is_none() && (term.is_some() || hears) {
            let takes = MILLISECOND * self.random.below(self.reading_max.as_millis() as u64 + 1) as u32;
            let (volumes, revision) = (self.volumes.clone(), self.revision);
            process.reading = Some(Reading { term, volumes, revision, done_at: now.after(takes) });
        }
        for claim in process.claims.values_mut().filter(|claim| !claim.may_answer) {
            let former = |node: &u32| FormerOwner {
                node: NodeId(*node),
                claimed_at: claim.at,
                claim_revision: claim.revision,
            };
            claim.may_answer =
                claim.before.iter().all(|node| process.membership.may_answer_for(&former(node), now));
        }
        let is_asking = process.claims.values().any(|claim| !claim.may_answer);
        process.membership.ask(is_asking, now);
    }

    /// Claims the volumes of nodes that are down, at once or later, and its own at its start.
    fn take_over(&mut self, node: u32) {
        let patience = MILLISECOND * [0, 0, 300, 1500][self.random.below(4) as usize];
        let process = self.processes.get_mut(&node).unwrap();
        let verdicts = process.membership.verdicts();
        for (volume, known) in &process.known {
            let is_down = verdicts.get(&NodeId(known.owner)).is_some_and(Verdict::is_down);
            let is_own = known.owner == node && !process.claims.contains_key(volume);
            if is_own || (self.claims && is_down) {
                process.claiming.entry(*volume).or_insert(self.now.after(patience));
            }
        }
        let due: Vec<u32> =
            process.claiming.iter().filter(|(_, at)| **at <= self.now).map(|(volume, _)| *volume).collect();
        for volume in due {
            process.claiming.remove(&volume);
            let record = self.volumes.get_mut(&volume).unwrap();
            // By compare-and-swap: a claim of a changed record fails.
            if process.known.get(&volume) != Some(record) {
                continue;
            }
            self.revision += 1;
            if record.owner != node {
                record.before.insert(record.owner);
                record.before.remove(&node);
            }
            (record.owner, record.revision) = (node, self.revision);
            let claim = Claim {
                at: self.now,
                revision: self.revision,
                before: record.before.clone(),
                may_answer: record.before.is_empty(),
            };
            process.claims.insert(volume, claim);
            process.known.insert(volume, record.clone());
        }
    }

    fn send(&mut self, from: u32, to: u32, bytes: Vec<u8>) {
        self.recorded.push((to, bytes.clone()));
        let copies = if self.random.below(20) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.below(100) < self.loss_percent {
                continue;
            }
            let delay = MILLISECOND * self.random.below(self.delay_max.as_millis() as u64 + 1) as u32;
            self.sent += 1;
            self.flying.insert((self.now.after(delay), self.sent), (from, to, bytes.clone()));
        }
    }

    /// Never do two answer for a volume.
    fn judge(&self) {
        for volume in self.volumes.keys() {
            let answer =
                self.processes.iter().filter(|(node, process)| process.answers(**node, *volume, self.now));
            let answer: Vec<u32> = answer.map(|(node, _)| *node).collect();
            assert!(answer.len() < 2, "nodes {answer:?} all answer for volume {volume} at {:?}", self.now);
        }
    }

    fn cut_off(&self, of: u32) -> BTreeSet<NodeId> {
        self.processes[&of].membership.cut_off(self.now)
    }

    fn verdict(&self, of: u32, on: u32) -> Verdict {
        self.processes[&of].membership.verdicts()[&NodeId(on)]
    }

    fn answers(&self, node: u32, volume: u32) -> bool {
        self.processes[&node].answers(node, volume, self.now)
    }

    /// The connections of these nodes to another one are reset.
    fn reset(&mut self, nodes: &[u32], to: u32) {
        let now = self.now;
        for node in nodes.iter().filter(|node| **node != to) {
            self.processes.get_mut(node).unwrap().membership.note_reset(NodeId(to), now);
        }
    }

    fn has_lease(&self, node: u32) -> bool {
        self.processes[&node].membership.lease_valid(self.now)
    }
}

#[test]
fn nodes_that_start_hold_each_other_up_and_have_leases_within_a_second() {
    for nodes in [1, 2, 3, 5, 17] {
        let mut world = World::new(nodes, 1);
        world.run(Duration::from_secs(1));
        for node in 1..=nodes {
            assert!(world.has_lease(node), "node {node} of {nodes}");
            assert!(world.processes[&node].membership.verdicts().values().all(Verdict::is_up));
        }
        let terms: Vec<u64> =
            world.processes.values().map(|process| process.membership.lease().term).collect();
        world.run(Duration::from_secs(10));
        let later: Vec<u64> =
            world.processes.values().map(|process| process.membership.lease().term).collect();
        assert_eq!(terms, later, "nothing happens: terms stay");
    }
}

#[test]
fn a_dead_node_is_down_within_seven_hundred_milliseconds_and_at_once_after_a_reset() {
    let mut world = World::new(3, 2);
    world.run(Duration::from_secs(2));
    world.processes.remove(&3);
    world.run(Duration::from_millis(400));
    assert!(!world.verdict(1, 3).is_down());
    world.run(Duration::from_millis(300));
    assert!(world.verdict(1, 3).is_down() && world.verdict(2, 3).is_down());
    assert!(world.has_lease(1) && world.has_lease(2));

    let mut world = World::new(3, 3);
    world.run(Duration::from_secs(2));
    world.processes.remove(&3);
    world.reset(&[1, 2], 3);
    world.run(Duration::from_millis(130));
    let Verdict::Down { lease_ends, .. } = world.verdict(1, 3) else { panic!("{:?}", world.verdict(1, 3)) };
    // The node might live on behind a broken line: its lease is waited out.
    assert!(lease_ends > world.now);
}

#[test]
fn a_line_that_is_reset_again_and_again_costs_a_node_that_lives_nothing() {
    let mut world = World::new(3, 4);
    world.run(Duration::from_secs(2));
    let term = world.processes[&3].membership.lease().term;
    for _ in 0..50 {
        world.reset(&[1, 2], 3);
        world.run(Duration::from_millis(40));
        assert!(world.verdict(1, 3).is_up() && world.verdict(2, 3).is_up() && world.has_lease(3));
    }
    assert_eq!((world.processes[&3].membership.lease().term, world.owner(3)), (term, 3));
}

#[test]
fn a_node_that_only_one_cannot_ask_after_a_reset_keeps_its_volumes() {
    let mut world = World::new(3, 4);
    world.run(Duration::from_secs(2));
    // The faulty line carries nothing, one way or both; the other voter's carries everything.
    for cut in [BTreeSet::from([(3, 1)]), BTreeSet::from([(1, 3)]), BTreeSet::from([(1, 3), (3, 1)])] {
        world.cut = cut;
        for _ in 0..20 {
            world.reset(&[1, 3], 3);
            world.run(Duration::from_millis(50));
            assert!(world.verdict(2, 3).is_up() && !world.verdict(1, 3).is_down());
            assert!(world.answers(3, 3), "one voice is no majority");
        }
        world.cut.clear();
        world.run(Duration::from_secs(1));
    }
    assert_eq!(world.owner(3), 3);
}

#[test]
fn what_was_sent_before_a_reset_does_not_show_that_its_sender_lives() {
    let mut world = World::new(3, 13);
    world.run(Duration::from_secs(2));
    // The last datagrams of the dead process arrive for a while longer.
    world.delay_max = MILLISECOND * 300;
    world.run(Duration::from_millis(290));
    world.processes.remove(&3);
    world.reset(&[1, 2], 3);
    world.delay_max = MILLISECOND;
    world.run(Duration::from_millis(130));
    assert!(world.verdict(1, 3).is_down(), "{:?}", world.verdict(1, 3));
}

#[test]
fn whom_only_one_cannot_hear_is_suspected_by_it_and_keeps_its_volumes() {
    let mut world = World::new(3, 5);
    world.run(Duration::from_secs(2));
    world.cut = BTreeSet::from([(3, 1)]);
    world.run(Duration::from_secs(3));
    assert!(matches!(world.verdict(1, 3), Verdict::Suspect { .. }));
    assert!(world.verdict(2, 3).is_up() && world.has_lease(3));
    assert_eq!(world.owner(3), 3);
}

#[test]
fn of_two_nodes_the_one_that_is_left_can_decide_nothing_and_with_a_witness_it_can() {
    for (nodes, decides) in [(2, false), (3, true)] {
        let mut world = World::new(nodes, 6);
        world.run(Duration::from_secs(2));
        world.processes.remove(&2);
        world.run(Duration::from_secs(2));
        assert_eq!(world.verdict(1, 2).is_down(), decides);
        assert_eq!(world.has_lease(1), decides);
    }
}

#[test]
fn a_node_that_was_stopped_has_no_lease_when_it_goes_on_and_the_new_owner_answers() {
    let mut world = World::new(3, 7);
    world.run(Duration::from_secs(2));
    world.processes.get_mut(&3).unwrap().is_stopped = true;
    world.run(Duration::from_secs(2));
    let owner = world.owner(3);
    assert!(owner != 3 && world.answers(owner, 3));
    world.processes.get_mut(&3).unwrap().is_stopped = false;
    assert!(!world.has_lease(3));
    world.run(Duration::from_secs(1));
    assert!(world.has_lease(3) && world.processes[&3].known[&3].owner == owner);
    assert!(world.answers(owner, 3), "the one that came back acts by the records");
}

#[test]
fn votes_from_before_a_claim_do_not_let_the_claimer_answer() {
    let mut world = World::new(3, 11);
    world.claims = false;
    world.run(Duration::from_secs(2));
    world.processes.get_mut(&3).unwrap().is_stopped = true;
    world.run(Duration::from_secs(2));
    // Node 1 took node 3 for dead with node 2, and has become deaf. The others continue without it.
    world.cut = BTreeSet::from([(2, 1), (3, 1)]);
    world.processes.get_mut(&3).unwrap().is_stopped = false;
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_down() && world.verdict(2, 3).is_up());
    assert!(world.answers(3, 3));
    let claim_revision = world.revision + 1;
    let claim = FormerOwner { node: NodeId(3), claimed_at: world.now, claim_revision };
    world.run(Duration::from_secs(2));
    assert!(!world.processes[&1].membership.may_answer_for(&claim, world.now));
    // Node 3 reads of the claim: now it may.
    world.revision = claim_revision;
    world.cut.clear();
    world.run(Duration::from_secs(1));
    assert!(world.processes[&1].membership.may_answer_for(&claim, world.now));
}

#[test]
fn a_voter_that_starts_anew_grants_no_term_that_it_may_have_refused_before() {
    let mut world = World::new(3, 12);
    world.claims = false;
    world.run(Duration::from_secs(2));
    let term = world.processes[&3].membership.lease().term;
    // Nobody hears node 3, and it hears nobody.
    world.cut = BTreeSet::from([(3, 1), (3, 2), (1, 3), (2, 3)]);
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_down());
    let claim = FormerOwner { node: NodeId(3), claimed_at: world.now, claim_revision: 1 };
    world.run(Duration::from_millis(300));
    assert!(world.processes[&1].membership.may_answer_for(&claim, world.now));
    // The other voter forgets its votes, and hears node 3 again.
    world.start(2);
    world.cut = BTreeSet::from([(3, 1), (1, 3)]);
    for _ in 0..2000 {
        world.step();
        let lease = world.processes[&3].membership.lease();
        assert!(!lease.is_valid(world.now) || lease.term > term);
    }
    assert!(world.has_lease(3));
}

#[test]
fn a_node_that_is_taken_for_dead_and_lives_is_counted_and_one_that_died_is_not() {
    let mut world = World::new(3, 12);
    world.run(Duration::from_secs(1));
    let survived = |world: &World| world.processes[&1].membership.survived()[&NodeId(3)];
    for times in 1..=2 {
        world.cut = [(1, 3), (3, 1), (2, 3), (3, 2)].into();
        world.run(Duration::from_secs(1));
        assert!(world.verdict(1, 3).is_down());
        world.cut.clear();
        world.run(Duration::from_secs(1));
        assert_eq!((world.verdict(1, 3).is_up(), survived(&world)), (true, times));
    }
    world.processes.remove(&3);
    world.run(Duration::from_secs(1));
    assert!(world.verdict(1, 3).is_down());
    world.start(3);
    world.run(Duration::from_secs(3));
    assert_eq!((world.verdict(1, 3).is_up(), survived(&world)), (true, 2), "that was a death");
}

#[test]
fn a_data_plane_that_hangs_is_a_dead_node() {
    let mut world = World::new(3, 8);
    world.run(Duration::from_secs(1));
    // Node 3's heartbeats continue, its turns do not: the membership always gets the same number.
    let frozen = world.now;
    for _ in 0..8000 {
        world.now = world.now.after(MILLISECOND);
        let now = world.now;
        let arrived: Vec<_> = world.flying.range(..=(now, u64::MAX)).map(|(key, _)| *key).collect();
        for key in arrived {
            let (_, to, bytes) = world.flying.remove(&key).unwrap();
            let _ = world.processes.get_mut(&to).unwrap().membership.receive(&bytes, now);
        }
        for node in 1..=3 {
            let membership = &mut world.processes.get_mut(&node).unwrap().membership;
            membership.note_turns(if node == 3 { frozen.0 } else { now.0 }, now);
            let mut out = Vec::new();
            membership.poll(now, &mut out);
            for (address, bytes) in out {
                world.send(node, u32::from(address.port()) - 9000, bytes);
            }
        }
    }
    assert!(world.verdict(1, 3).is_down() && !world.has_lease(3));
}

#[test]
fn an_old_datagram_changes_nothing_and_one_of_an_earlier_process_neither() {
    let mut world = World::new(3, 9);
    world.run(Duration::from_secs(2));
    let old = world.recorded.clone();
    world.processes.remove(&3);
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_down());
    // Somebody sends everything again that node 3 ever said, as often as he likes.
    for (to, bytes) in &old {
        let now = world.now;
        if let Some(process) = world.processes.get_mut(to) {
            let _ = process.membership.receive(bytes, now);
        }
        world.step();
    }
    assert!(world.verdict(1, 3).is_down() && world.verdict(2, 1).is_up());
    world.start(3);
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_up() && world.has_lease(3));
}

#[test]
fn rubbish_and_strangers_are_refused_and_named() {
    let mut world = World::new(2, 10);
    world.run(Duration::from_secs(1));
    let now = world.now;
    let (_, good) = world.recorded.iter().rev().find(|(to, _)| *to == 1).unwrap().clone();
    let membership = &mut world.processes.get_mut(&1).unwrap().membership;
    let before = membership.verdicts();
    let taken = |membership: &mut Membership, bytes: &[u8]| membership.receive(bytes, now);
    for length in 0..good.len() {
        assert!(taken(membership, &good[..length]).is_err());
    }
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        assert!(taken(membership, &changed).is_err(), "byte {at}");
    }
    assert_eq!(taken(membership, &[0; DATAGRAM_BYTES_MAX + 1]), Err(Refused::Malformed));
    let word = |from, to, cluster: u64, key: &[u8]| {
        let heartbeat = Heartbeat {
            from: NodeId(from),
            to: NodeId(to),
            incarnation: Incarnation(99),
            stamp: u64::MAX,
            term: u64::MAX,
            may_answer: true,
            asks: true,
            needs_others: true,
            ways: Ways { reach_most: true, votes: true },
            turns: 0,
            still: Duration::MAX,
            applied: 0,
            echo: Some(Echo { incarnation: Incarnation(99), stamp: u64::MAX, term: u64::MAX }),
            refused_term: u64::MAX,
            votes: vec![
                Vote { node: NodeId(1), incarnation: Incarnation(0), granted_ago: Duration::MAX };
                VOTES_MAX
            ],
        };
        heartbeat.encode(cluster, &HeartbeatKey::derive(key))
    };
    assert_eq!(taken(membership, &word(2, 1, 8, b"secret")), Err(Refused::OtherCluster));
    assert_eq!(taken(membership, &word(2, 1, 7, b"other")), Err(Refused::Signature));
    assert_eq!(taken(membership, &word(3, 1, 7, b"secret")), Err(Refused::Stranger));
    assert_eq!(taken(membership, &word(2, 3, 7, b"secret")), Err(Refused::Stranger));
    let unsigned = Err(Refused::Stranger);
    assert_eq!(taken(membership, &word(3, 1, 7, b"other")), unsigned, "no signature is looked at");
    // A sender with the key can make itself heard of, but not end this process.
    assert_eq!(taken(membership, &word(2, 1, 7, b"secret")), Ok(()));
    assert_eq!(membership.verdicts(), before);
    assert!(membership.refused() > good.len() as u64);
}

#[test]
fn whatever_the_network_does_a_former_owner_and_a_new_one_never_both_answer() {
    let mut takeovers = 0;
    for seed in 1..=24 {
        let nodes = 3 + (seed % 3) as u32;
        let mut world = World::new(nodes, seed);
        world.run(Duration::from_secs(1));
        for _ in 0..30 {
            world.loss_percent = [0, 10, 40][world.random.below(3) as usize];
            world.delay_max = MILLISECOND * [1, 30, 700][world.random.below(3) as usize];
            world.state_is_heard = world.random.below(4) == 0;
            world.reading_max = MILLISECOND * [1, 100, 1500][world.random.below(3) as usize];
            world.cut.clear();
            for _ in 0..world.random.below(4) {
                let (from, to) = (
                    1 + world.random.below(nodes.into()) as u32,
                    1 + world.random.below(nodes.into()) as u32,
                );
                world.cut.insert((from, to));
            }
            let node = 1 + world.random.below(nodes.into()) as u32;
            let others = (1..=nodes).filter(|other| *other != node);
            match world.random.below(8) {
                // The node hears nobody.
                4 | 5 => world.cut.extend(others.map(|other| (other, node))),
                // All take the node for dead, and it does not hear of it.
                6 => {
                    world.cut.extend(others.clone().map(|other| (other, node)));
                    let now = world.now;
                    for other in others {
                        world.processes.get_mut(&other).unwrap().membership.note_reset(NodeId(node), now);
                    }
                }
                0 => world.start(node),
                1 => {
                    let process = world.processes.get_mut(&node).unwrap();
                    process.is_stopped = !process.is_stopped;
                }
                2 => {
                    let (now, other) = (world.now, 1 + world.random.below(nodes.into()) as u32);
                    let process = world.processes.get_mut(&node).unwrap();
                    process.membership.note_reset(NodeId(other), now);
                }
                _ => {}
            }
            let pause = MILLISECOND * (50 + world.random.below(1200) as u32);
            world.run(pause);
        }
        takeovers += world.volumes.iter().filter(|(node, volume)| **node != volume.owner).count();
        // In peace all is well again.
        (world.state_is_heard, world.reading_max) = (true, MILLISECOND);
        (world.loss_percent, world.delay_max) = (0, MILLISECOND);
        world.cut.clear();
        for process in world.processes.values_mut() {
            process.is_stopped = false;
        }
        world.run(Duration::from_secs(4));
        for node in 1..=nodes {
            assert!(world.has_lease(node), "seed {seed}: node {node}");
            assert!(world.processes[&node].membership.verdicts().values().all(Verdict::is_up), "seed {seed}");
        }
        for volume in 1..=nodes {
            assert!(world.answers(world.owner(volume), volume), "seed {seed}: volume {volume}");
        }
    }
    assert!(takeovers > 12, "{takeovers}");
}

#[test]
fn on_sockets_three_nodes_have_leases_and_a_dead_one_is_told_with_a_wake() {
    use super::shell::{HeartbeatLink, Heartbeats, Surroundings};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    let sockets: Vec<std::net::UdpSocket> =
        (0..3).map(|_| bind("127.0.26.2:0".parse().unwrap()).unwrap()).collect();
    let members: Vec<Member> = (1..=3)
        .zip(&sockets)
        .map(|(node, socket)| Member { node: NodeId(node), address: socket.local_addr().unwrap() })
        .collect();
    let woken = Arc::new(AtomicU32::new(0));
    let links: Vec<HeartbeatLink> = (0..3).map(|_| HeartbeatLink::default()).collect();
    let pokes: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
    let mut nodes: Vec<Heartbeats> = (1..=3)
        .zip(sockets)
        .map(|(node, socket)| {
            let at = node as usize - 1;
            let (turns, woken, link) = (pokes[at].clone(), woken.clone(), links[at].clone());
            let poked = turns.clone();
            let surroundings = Surroundings {
                turns: Box::new(move || turns.load(Ordering::SeqCst)),
                poke: Box::new(move || {
                    poked.fetch_add(1, Ordering::SeqCst);
                }),
                wake: Box::new(move || {
                    woken.fetch_add(1, Ordering::SeqCst);
                }),
            };
            // A machine that is busy with other tests is slow, not dead.
            let timing = Timing {
                suspect: Duration::from_secs(1),
                dead: Duration::from_secs(3),
                lease: Duration::from_secs(3),
                ..Timing::default()
            };
            let options = Options { timing, ..options(node, 100 + u64::from(node)) };
            Heartbeats::start(options, socket, link, Some(&members), surroundings).unwrap()
        })
        .collect();
    let until = |what: &str, done: &mut dyn FnMut() -> bool| {
        let patience = std::time::Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(std::time::Instant::now() < patience, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("leases", &mut || {
        let all_up =
            |node: &Heartbeats| node.peers().verdicts.values().filter(|verdict| verdict.is_up()).count() == 2;
        let has_lease =
            |link: &HeartbeatLink| link.offer().is_some_and(|offer| offer.until > sys::monotonic_now());
        nodes.iter().all(all_up) && links.iter().all(has_lease)
    });
    let before = woken.load(Ordering::SeqCst);
    nodes.pop();
    until("the death", &mut || nodes.iter().all(|node| node.peers().verdicts[&NodeId(3)].is_down()));
    // The wake follows the news that it is about.
    until("the wake", &mut || woken.load(Ordering::SeqCst) > before);
    assert!(
        nodes[0].take_events().iter().any(|event| {
            matches!(event, Event::Changed { node: NodeId(3), verdict: Verdict::Down { .. } })
        })
    );
    // One of the two that live has read of the claim, the other one has not yet.
    let claim = |before: &[u32]| {
        let before = before.iter().map(|node| NodeId(*node)).collect();
        shell::Claim { before, at: sys::monotonic_now(), revision: 5 }
    };
    let (volume, dead) = (types::VolumeId::from_bytes([1; 16]), claim(&[3]));
    until("the dead one's lease is over", &mut || links[0].may_answer_for(volume, &dead));
    let of_both = claim(&[2, 3]);
    let patience = std::time::Instant::now() + Duration::from_millis(500);
    while std::time::Instant::now() < patience {
        assert!(!links[0].may_answer_for(volume, &of_both), "the other one may answer still");
        std::thread::sleep(Duration::from_millis(5));
    }
    let poked = pokes[0].load(Ordering::SeqCst);
    links[1].note_applied(5);
    until("the other one acts by the claim", &mut || links[0].may_answer_for(volume, &of_both));
    until("the poke", &mut || pokes[0].load(Ordering::SeqCst) > poked);
}

#[test]
fn a_key_that_changes_loses_nobody_and_the_one_before_is_soon_worthless() {
    let mut world = World::new(4, 14);
    world.run(Duration::from_secs(2));
    let terms = |world: &World| -> Vec<u64> {
        world.processes.values().map(|process| process.membership.lease().term).collect()
    };
    let before = terms(&world);
    // The nodes get the key one after the other, the last one long after the first.
    for node in 1..=4 {
        let now = world.now;
        let key = HeartbeatKey::derive(b"another");
        world.processes.get_mut(&node).unwrap().membership.set_key(key, now);
        for _ in 0..3000 {
            world.step();
            for other in world.processes.values() {
                assert!(other.membership.verdicts().values().all(Verdict::is_up), "{:?}", world.now);
                assert!(other.membership.lease_valid(world.now));
            }
        }
    }
    assert_eq!(terms(&world), before);
    // A sender that has only the old key is heard by nobody, although that key's time is not over.
    let now = world.now;
    let forged = heard_by_1(&world, 2, Incarnation(5), u64::MAX);
    let first = &mut world.processes.get_mut(&1).unwrap().membership;
    assert_eq!(
        first.receive(&forged.encode(7, &HeartbeatKey::derive(b"secret")), now),
        Err(Refused::Signature)
    );
    let (count, sent) = (world.recorded.len(), world.sent);
    world.run(Duration::from_secs(1));
    assert!(world.recorded.len() - count <= 11 * 12, "one datagram for each heartbeat again: {sent}");
}

#[test]
fn one_that_never_reads_of_the_other_key_is_out_when_the_time_of_the_old_one_is_over() {
    let mut world = World::new(3, 15);
    world.claims = false;
    world.run(Duration::from_secs(2));
    for node in 1..=2 {
        let now = world.now;
        let key = HeartbeatKey::derive(b"another");
        world.processes.get_mut(&node).unwrap().membership.set_key(key, now);
    }
    world.run(keys::OVERLAP - Duration::from_secs(1));
    assert!(world.verdict(1, 3).is_up() && world.has_lease(3));
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_down() && !world.has_lease(3) && world.has_lease(1));
}

#[test]
fn a_server_that_is_two_keys_behind_is_heard_as_long_as_its_key_is_good() {
    let mut world = World::new(3, 24);
    world.run(Duration::from_secs(2));
    for key in [b"second".as_slice(), b"third"] {
        for node in [1, 2] {
            let now = world.now;
            let key = HeartbeatKey::derive(key);
            world.processes.get_mut(&node).unwrap().membership.set_key(key, now);
        }
        world.run(Duration::from_secs(5));
    }
    assert!(world.verdict(1, 3).is_up() && world.verdict(3, 1).is_up() && world.has_lease(3));
    let now = world.now;
    world.processes.get_mut(&3).unwrap().membership.set_key(HeartbeatKey::derive(b"third"), now);
    world.run(keys::OVERLAP);
    assert!(world.verdict(1, 3).is_up() && world.verdict(3, 1).is_up() && world.has_lease(3));
}

/// A word of `from` that echoes node 1's last word.
fn heard_by_1(world: &World, from: u32, incarnation: Incarnation, stamp: u64) -> Heartbeat {
    let first = &world.processes[&1].membership;
    Heartbeat {
        from: NodeId(from),
        to: NodeId(1),
        incarnation,
        stamp,
        term: 1,
        may_answer: true,
        asks: false,
        needs_others: false,
        ways: Ways::default(),
        turns: 0,
        still: Duration::ZERO,
        applied: 0,
        echo: Some(Echo {
            incarnation: first.options.incarnation,
            stamp: first.last_stamp,
            term: first.term,
        }),
        refused_term: 0,
        votes: Vec::new(),
    }
}

#[test]
fn a_node_that_falls_silent_is_dead_to_the_others_and_silent_only_while_they_do_without_it() {
    let mut world = World::new(3, 21);
    world.run(Duration::from_secs(2));
    let says = |world: &mut World, nodes: &[u32], reach_most: bool| {
        for node in nodes {
            let membership = &mut world.processes.get_mut(node).unwrap().membership;
            membership.note_ways(Ways { reach_most, votes: true });
        }
    };
    let hush = |world: &mut World, is_hushed: bool| {
        let now = world.now;
        world.processes.get_mut(&3).unwrap().membership.hush(is_hushed, now);
    };
    // Large messages reach nobody anywhere: silence would end all service, and is not kept.
    hush(&mut world, true);
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_up() && world.answers(3, 3));
    says(&mut world, &[1, 2], true);
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_down() && world.verdict(2, 3).is_down());
    assert!(!world.answers(3, 3) && !world.has_lease(3), "it answers nothing");
    let heir = world.owner(3);
    assert!(heir != 3 && world.answers(heir, 3));
    let third = &world.processes[&3].membership;
    assert_eq!(third.voting(world.now), BTreeSet::from([NodeId(1), NodeId(2)]));
    assert!(third.is_silent(world.now));
    // One of the two that do without it dies: it speaks again at once.
    let gone = 3 - heir;
    world.processes.remove(&gone);
    world.run(Duration::from_secs(3));
    assert!(!world.processes[&3].membership.is_silent(world.now));
    assert!(world.verdict(heir, 3).is_up() && world.has_lease(3) && world.has_lease(heir));
    world.start(gone);
    world.run(Duration::from_secs(2));
    says(&mut world, &[gone], true);
    world.run(Duration::from_secs(2));
    assert!(world.verdict(heir, 3).is_down(), "it is silent again");
    hush(&mut world, false);
    world.run(Duration::from_secs(2));
    assert!(world.verdict(heir, 3).is_up() && world.has_lease(3));
}

#[test]
fn a_node_that_falls_silent_never_answers_beside_another_one_whenever_it_speaks_again() {
    for seed in 1..60 {
        let mut world = World::new(3 + seed as u32 % 2, seed);
        (world.loss_percent, world.delay_max) = (seed % 7, MILLISECOND * (1 + seed as u32 % 40));
        world.reading_max = MILLISECOND * 200;
        for process in world.processes.values_mut() {
            process.membership.note_ways(Ways { reach_most: true, votes: true });
        }
        world.run(Duration::from_secs(1));
        for _ in 0..8 {
            let pause = MILLISECOND * world.random.below(1500) as u32;
            let (node, is_hushed, now) =
                (1 + world.random.below(2) as u32, world.random.below(2) == 0, world.now);
            world.processes.get_mut(&node).unwrap().membership.hush(is_hushed, now);
            // The world judges after each step.
            world.run(pause);
        }
    }
}

#[test]
fn a_stamp_ahead_of_time_is_refused_and_puts_nobody_out() {
    let mut world = World::new(3, 16);
    world.run(Duration::from_secs(2));
    let (key, now) = (HeartbeatKey::derive(b"secret"), world.now);
    let incarnation = world.processes[&2].membership.options.incarnation;
    let own = world.processes[&2].membership.last_stamp;
    for ahead in [Duration::from_secs(1), Duration::from_secs(3600), Duration::MAX] {
        let ahead = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        let forged = heard_by_1(&world, 2, incarnation, own.saturating_add(ahead)).encode(7, &key);
        let first = &mut world.processes.get_mut(&1).unwrap().membership;
        assert_eq!(first.receive(&forged, now), Err(Refused::Ahead));
    }
    // One that comes while node 2 is silent is not told from it, and costs it no more than a moment.
    world.cut = BTreeSet::from([(2, 1)]);
    world.run(Duration::from_secs(2));
    let forged = heard_by_1(&world, 2, incarnation, u64::MAX).encode(7, &key);
    let now = world.now;
    let first = &mut world.processes.get_mut(&1).unwrap().membership;
    assert_eq!(first.receive(&forged, now), Ok(()));
    world.cut.clear();
    world.run(Duration::from_secs(1));
    assert!(world.verdict(1, 2).is_up() && world.has_lease(2));
}

#[test]
fn what_an_earlier_process_said_just_before_its_end_is_not_believed() {
    let mut world = World::new(3, 17);
    world.run(Duration::from_secs(2));
    // The last words of node 2's process are kept from node 1.
    world.cut = BTreeSet::from([(2, 1)]);
    world.run(Duration::from_millis(90));
    let old = world.processes[&2].membership.options.incarnation;
    let kept: Vec<Vec<u8>> = world
        .recorded
        .iter()
        .rev()
        .filter(|(to, _)| *to == 1)
        .map(|(_, bytes)| bytes.clone())
        .take(8)
        .collect();
    world.cut.clear();
    world.start(2);
    // As often as it is sent again, the process that lives is the one that is known, and only it.
    let (key, new) = (HeartbeatKey::derive(b"secret"), world.processes[&2].membership.options.incarnation);
    let mut restarts = 0;
    for _ in 0..2000 {
        world.step();
        let now = world.now;
        let forged = heard_by_1(&world, 2, old, 1 << 40).encode(7, &key);
        let first = &mut world.processes.get_mut(&1).unwrap().membership;
        for bytes in &kept {
            let _ = first.receive(bytes, now);
        }
        if first.peers[&NodeId(2)].is_of(new) {
            assert_eq!(first.receive(&forged, now), Ok(()), "it is kept, and not believed");
        }
        restarts +=
            first.take_events().iter().filter(|event| matches!(event, Event::Restarted { .. })).count();
    }
    assert_eq!(restarts, 1);
    assert!(world.processes[&1].membership.peers[&NodeId(2)].is_of(new));
    assert!(world.verdict(1, 2).is_up() && world.has_lease(2));
}

#[test]
fn replays_of_earlier_processes_do_not_keep_a_new_one_out() {
    let mut world = World::new(3, 18);
    let mut old = Vec::new();
    for _ in 0..6 {
        world.run(Duration::from_secs(2));
        for (from, receiver) in [(1, 3), (3, 1)] {
            let is_one = |(to, bytes): &&(u32, Vec<u8>)| *to == receiver && bytes[16] == from;
            old.push(world.recorded.iter().rev().find(is_one).unwrap().clone());
        }
        world.start(1);
        world.start(3);
    }
    // Both hear all words of the other one's lives, over and over; one of them begins at varying offsets
    // to the other's heartbeats.
    for offset in 0..10 {
        world.run(MILLISECOND * (2000 + 11 * offset));
        world.start(3);
        for _ in 0..1500 {
            for (to, bytes) in &old {
                let now = world.now;
                let _ = world.processes.get_mut(to).unwrap().membership.receive(bytes, now);
            }
            world.step();
        }
        assert!(world.verdict(3, 1).is_up() && world.verdict(1, 3).is_up(), "{offset}");
    }
}

#[test]
fn who_was_heard_by_a_key_is_not_heard_by_one_before_it_when_there_is_a_third() {
    let mut world = World::new(3, 25);
    world.run(Duration::from_secs(2));
    let is_3_to_1 = |(to, bytes): &&(u32, Vec<u8>)| *to == 1 && bytes[16] == 3;
    let (_, by_first) = world.recorded.iter().rev().find(is_3_to_1).unwrap().clone();
    for key in [b"second".as_slice(), b"third"] {
        for node in [1, 2, 3] {
            let now = world.now;
            world.processes.get_mut(&node).unwrap().membership.set_key(HeartbeatKey::derive(key), now);
        }
        let now = world.now;
        let heard = world.processes.get_mut(&1).unwrap().membership.receive(&by_first, now);
        assert_eq!(matches!(heard, Err(Refused::Signature)), key == b"third", "{heard:?}");
        world.run(Duration::from_secs(1));
    }
}

#[test]
fn words_that_echo_what_was_said_long_ago_do_not_push_out_a_process_that_lives() {
    let mut world = World::new(3, 22);
    let mut old = Vec::new();
    for (from, receiver) in [(1, 3), (3, 1)] {
        for _ in 0..12 {
            world.run(Duration::from_secs(2));
            let is_one = |(to, bytes): &&(u32, Vec<u8>)| *to == receiver && bytes[16] == from;
            old.push(world.recorded.iter().rev().find(is_one).unwrap().clone());
            world.start(from.into());
        }
    }
    for offset in 0..5 {
        world.run(MILLISECOND * (2000 + 17 * offset));
        world.start(3);
        for _ in 0..3000 {
            let now = world.now;
            for (to, bytes) in &old {
                let _ = world.processes.get_mut(to).unwrap().membership.receive(bytes, now);
            }
            world.step();
        }
        assert!(world.verdict(3, 1).is_up() && world.verdict(1, 3).is_up(), "{offset}");
    }
}

#[test]
fn a_process_that_has_not_proved_to_live_is_granted_nothing() {
    let mut world = World::new(3, 23);
    world.run(Duration::from_secs(2));
    world.start(3);
    let new = world.processes[&3].membership.options.incarnation;
    let mut steps = 0;
    while !world.processes[&1].membership.peers[&NodeId(3)].is_of(new) {
        let granted = world.processes[&3].membership.peers[&NodeId(1)].granted;
        assert_eq!(granted, None, "no vote of node 1 would say until when");
        world.step();
        steps += 1;
    }
    assert!(steps > 100, "the process before is held for alive as long as it might be");
    world.run(Duration::from_secs(1));
    assert!(world.verdict(1, 3).is_up() && world.has_lease(3));
}

#[test]
fn two_that_cannot_talk_one_way_know_it_in_a_second_or_so_both_and_it_is_no_death() {
    for cut in [BTreeSet::from([(1, 3)]), BTreeSet::from([(3, 1)]), BTreeSet::from([(1, 3), (3, 1)])] {
        let mut world = World::new(3, 19);
        world.run(Duration::from_secs(2));
        let cut_off = |world: &World, of: u32| world.cut_off(of);
        world.cut = cut;
        world.run(Duration::from_millis(900));
        assert_eq!((cut_off(&world, 1), cut_off(&world, 3)), (BTreeSet::new(), BTreeSet::new()));
        world.run(Duration::from_millis(400));
        assert_eq!(cut_off(&world, 1), BTreeSet::from([NodeId(3)]));
        assert_eq!(cut_off(&world, 3), BTreeSet::from([NodeId(1)]));
        assert_eq!(cut_off(&world, 2), BTreeSet::new());
        assert!(!world.verdict(1, 3).is_down() && !world.verdict(3, 1).is_down());
        world.cut.clear();
        world.run(Duration::from_millis(400));
        for node in 1..=3 {
            assert_eq!(cut_off(&world, node), BTreeSet::new());
        }
    }
}

#[test]
fn a_node_that_hears_nobody_holds_nobody_for_cut_off() {
    let mut world = World::new(3, 21);
    world.run(Duration::from_secs(2));
    // Node 1's words arrive, so that it is up.
    world.cut = BTreeSet::from([(2, 1), (3, 1)]);
    for _ in 0..60 {
        world.run(Duration::from_millis(50));
        assert_eq!(world.cut_off(1), BTreeSet::new());
    }
    assert!(world.verdict(2, 1).is_up() && world.verdict(3, 1).is_up());
    assert_eq!(
        (world.cut_off(2), world.cut_off(3)),
        (BTreeSet::from([NodeId(1)]), BTreeSet::from([NodeId(1)]))
    );
}

#[test]
fn a_node_that_stood_still_for_a_while_is_not_cut_off_when_it_goes_on() {
    let mut world = World::new(3, 20);
    world.run(Duration::from_secs(2));
    world.processes.get_mut(&1).unwrap().is_stopped = true;
    world.run(Duration::from_millis(1700));
    world.processes.get_mut(&1).unwrap().is_stopped = false;
    for _ in 0..500 {
        world.step();
        assert_eq!(world.cut_off(1), BTreeSet::new());
    }
}

#[test]
fn there_is_no_lease_before_it_is_known_who_has_a_say() {
    let now = Monotonic(1);
    let mut membership = Membership::new(options(1, 2), now);
    membership.poll(now, &mut Vec::new());
    assert_eq!(membership.offer(now), None);
    membership.set_members(&[], now);
    assert!(membership.offer(now).is_some());
}

#[test]
fn one_that_stops_is_waited_for_until_it_is_done_or_silent() {
    let mut world = World::new(3, 21);
    world.run(Duration::from_secs(2));
    let needed = |world: &World| -> Vec<bool> {
        world.processes.values().map(|process| process.membership.is_needed(world.now)).collect()
    };
    let stop = |world: &mut World, node: u32, needs_others| {
        let now = world.now;
        world.processes.get_mut(&node).unwrap().membership.set_needs_others(needs_others, now);
        world.run(Duration::from_millis(5));
    };
    stop(&mut world, 2, true);
    assert_eq!(needed(&world), [true, false, true]);
    stop(&mut world, 2, false);
    assert_eq!(needed(&world), [false; 3]);
    stop(&mut world, 2, true);
    world.processes.remove(&2);
    world.run(Duration::from_millis(300));
    assert_eq!(needed(&world), [false; 2]);
}
