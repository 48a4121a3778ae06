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

/// A node's process, and what it believes of its own volume.
struct Process {
    membership: Membership,
    is_stopped: bool,
    inbox: Vec<Vec<u8>>,
    /// It knows that its volume has another owner.
    knows_loss: bool,
    /// Volumes that it is about to claim, by their owner, and when: the state takes its time.
    claiming: BTreeMap<u32, Monotonic>,
    /// Volumes that it claimed, by their former owner.
    claims: BTreeMap<u32, FormerOwner>,
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
    delay_max: Duration,
    next_incarnation: u64,
    /// Owner of each node's volume, and the revision that says so.
    owners: BTreeMap<u32, (u32, u64)>,
    revision: u64,
    /// All that was ever sent, for who replays it.
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
            delay_max: MILLISECOND,
            next_incarnation: 1,
            owners: (1..=nodes).map(|node| (node, (node, 0))).collect(),
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
        let members: Vec<Member> =
            self.owners.keys().map(|node| Member { node: NodeId(*node), address: address(*node) }).collect();
        membership.set_members(&members, self.now);
        let knows_loss = self.owners[&node].0 != node;
        membership.note_applied(self.revision, self.now);
        let process = Process {
            membership,
            is_stopped: false,
            inbox: Vec::new(),
            knows_loss,
            claiming: BTreeMap::new(),
            claims: BTreeMap::new(),
        };
        self.processes.insert(node, process);
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
        // The records: a term is confirmed by reading them while the lease is valid in it.
        if let Some(term) = process.membership.unconfirmed_term(now) {
            process.knows_loss = self.owners[&node].0 != node;
            process.membership.confirm(term, now);
            process.membership.note_applied(self.revision, now);
        }
        if self.state_is_heard && now.0.is_multiple_of(50_000_000) {
            process.knows_loss |= self.owners[&node].0 != node;
            process.membership.note_applied(self.revision, now);
        }
        for (address, bytes) in out {
            let to = u32::from(address.port()) - 9000;
            self.send(node, to, bytes);
        }
        self.take_over(node);
    }

    /// Claims the volumes of nodes that are down, at once or later.
    fn take_over(&mut self, node: u32) {
        if !self.claims {
            return;
        }
        let patience = MILLISECOND * [0, 0, 300, 1500][self.random.below(4) as usize];
        let process = self.processes.get_mut(&node).unwrap();
        for (peer, verdict) in process.membership.verdicts() {
            if verdict.is_down() && self.owners[&peer.0].0 == peer.0 {
                process.claiming.entry(peer.0).or_insert(self.now.after(patience));
            }
        }
        let due: Vec<u32> =
            process.claiming.iter().filter(|(_, at)| **at <= self.now).map(|(peer, _)| *peer).collect();
        for peer in due {
            process.claiming.remove(&peer);
            if self.owners[&peer].0 != peer {
                continue;
            }
            self.revision += 1;
            self.owners.insert(peer, (node, self.revision));
            process.claims.insert(
                peer,
                FormerOwner { node: NodeId(peer), claimed_at: self.now, claim_revision: self.revision },
            );
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

    /// The former owner and the new one never both answer.
    fn judge(&self) {
        for (node, process) in &self.processes {
            for (former, claim) in &process.claims {
                if process.is_stopped || !process.membership.may_answer_for(claim, self.now) {
                    continue;
                }
                let Some(owner) = self.processes.get(former) else { continue };
                let answers = !owner.is_stopped
                    && !owner.knows_loss
                    && owner.membership.may_answer_until().is_some_and(|until| self.now < until);
                assert!(
                    !answers,
                    "node {node} answers for node {former}, which answers too, at {:?}",
                    self.now
                );
            }
        }
    }

    fn verdict(&self, of: u32, on: u32) -> Verdict {
        self.processes[&of].membership.verdicts()[&NodeId(on)]
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
    let now = world.now;
    for node in [1, 2] {
        world.processes.get_mut(&node).unwrap().membership.note_reset(NodeId(3), now);
    }
    world.run(Duration::from_millis(10));
    let Verdict::Down { lease_ends, .. } = world.verdict(1, 3) else { panic!("{:?}", world.verdict(1, 3)) };
    // It might live on behind a broken line: its lease is waited out.
    assert!(lease_ends > world.now);
}

#[test]
fn a_reset_of_a_node_that_lives_costs_it_a_term_and_no_more() {
    let mut world = World::new(3, 4);
    world.run(Duration::from_secs(2));
    let term = world.processes[&3].membership.lease().term;
    let now = world.now;
    world.processes.get_mut(&1).unwrap().membership.note_reset(NodeId(3), now);
    world.run(Duration::from_millis(500));
    assert!(world.verdict(1, 3).is_up() && world.has_lease(3));
    assert_eq!(world.processes[&3].membership.lease().term, term + 1);
    assert_eq!(world.owners[&3].0, 3, "one voice is no majority");
}

#[test]
fn whom_only_one_cannot_hear_is_suspected_by_it_and_keeps_its_volumes() {
    let mut world = World::new(3, 5);
    world.run(Duration::from_secs(2));
    world.cut = BTreeSet::from([(3, 1)]);
    world.run(Duration::from_secs(3));
    assert!(matches!(world.verdict(1, 3), Verdict::Suspect { .. }));
    assert!(world.verdict(2, 3).is_up() && world.has_lease(3));
    assert_eq!(world.owners[&3].0, 3);
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
    let (owner, _) = world.owners[&3];
    assert_ne!(owner, 3);
    let answers = |world: &World| {
        let process = &world.processes[&owner];
        process.membership.may_answer_for(&process.claims[&3], world.now)
    };
    assert!(answers(&world));
    world.processes.get_mut(&3).unwrap().is_stopped = false;
    assert!(!world.has_lease(3));
    world.run(Duration::from_secs(1));
    assert!(world.has_lease(3) && world.processes[&3].knows_loss);
    assert!(answers(&world), "the one that came back acts by the records");
}

#[test]
fn votes_from_before_a_claim_do_not_let_the_claimer_answer() {
    let mut world = World::new(3, 11);
    world.claims = false;
    world.run(Duration::from_secs(2));
    world.processes.get_mut(&3).unwrap().is_stopped = true;
    world.run(Duration::from_secs(2));
    // Node 1 took node 3 for dead with node 2, and has become deaf. The others go on without it.
    world.cut = BTreeSet::from([(2, 1), (3, 1)]);
    world.processes.get_mut(&3).unwrap().is_stopped = false;
    world.run(Duration::from_secs(2));
    assert!(world.verdict(1, 3).is_down() && world.verdict(2, 3).is_up());
    assert!(world.processes[&3].membership.may_answer_until().is_some_and(|until| until > world.now));
    let claim = FormerOwner { node: NodeId(3), claimed_at: world.now, claim_revision: 1 };
    world.run(Duration::from_secs(2));
    assert!(!world.processes[&1].membership.may_answer_for(&claim, world.now));
    // Node 3 reads of the claim: now it may.
    world.revision = 1;
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
    // The other voter forgets what it said, and hears node 3 again.
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
fn a_data_plane_that_hangs_is_a_dead_node() {
    let mut world = World::new(3, 8);
    world.run(Duration::from_secs(1));
    // Its heartbeats go on, its turns do not: the membership is told the same number.
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
            is_confirmed: true,
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
    // One who has the key can make itself heard of, but not end this process.
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
                // It hears nobody.
                4 | 5 => world.cut.extend(others.map(|other| (other, node))),
                // All take it for dead, and it does not hear of it.
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
        takeovers += world.owners.iter().filter(|(node, (owner, _))| *node != owner).count();
        // In peace all is well again.
        world.state_is_heard = true;
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
        for (node, process) in &world.processes {
            for (former, claim) in &process.claims {
                assert!(
                    process.membership.may_answer_for(claim, world.now),
                    "seed {seed}: node {node} for {former}"
                );
            }
        }
    }
    assert!(takeovers > 12, "{takeovers}");
}

#[test]
fn on_sockets_three_nodes_have_leases_and_a_dead_one_is_told_with_a_wake() {
    use super::shell::{Heartbeats, Surroundings};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    let sockets: Vec<std::net::UdpSocket> =
        (0..3).map(|_| std::net::UdpSocket::bind("127.0.26.2:0").unwrap()).collect();
    let members: Vec<Member> = (1..=3)
        .zip(&sockets)
        .map(|(node, socket)| Member { node: NodeId(node), address: socket.local_addr().unwrap() })
        .collect();
    let woken = Arc::new(AtomicU32::new(0));
    let mut nodes: Vec<Heartbeats> = (1..=3)
        .zip(sockets)
        .map(|(node, socket)| {
            let (turns, woken) = (Arc::new(AtomicU64::new(0)), woken.clone());
            let poked = turns.clone();
            let surroundings = Surroundings {
                turns: Box::new(move || turns.load(Ordering::SeqCst)),
                poke: Box::new(move || {
                    poked.fetch_add(1, Ordering::SeqCst);
                }),
                wake: Box::new(move || {
                    woken.fetch_add(1, Ordering::SeqCst);
                }),
                answer_until: Box::new(|_| {}),
            };
            // A machine that is busy with other tests is slow, not dead.
            let timing = Timing {
                suspect: Duration::from_secs(1),
                dead: Duration::from_secs(3),
                lease: Duration::from_secs(3),
                ..Timing::default()
            };
            let options = Options { timing, ..options(node, 100 + u64::from(node)) };
            Heartbeats::start(options, socket, members.clone(), surroundings).unwrap()
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
        for node in &nodes {
            if let Some(term) = node.unconfirmed_term() {
                node.confirm(term);
            }
        }
        let all_up =
            |node: &Heartbeats| node.peers().verdicts.values().filter(|verdict| verdict.is_up()).count() == 2;
        nodes
            .iter()
            .all(|node| all_up(node) && node.may_answer_until().is_some_and(|end| end > sys::monotonic_now()))
    });
    let before = woken.load(Ordering::SeqCst);
    nodes.pop();
    until("the death", &mut || nodes.iter().all(|node| node.peers().verdicts[&NodeId(3)].is_down()));
    assert!(woken.load(Ordering::SeqCst) > before);
    assert!(
        nodes[0].take_events().iter().any(|event| {
            matches!(event, Event::Changed { node: NodeId(3), verdict: Verdict::Down { .. } })
        })
    );
    let claim = FormerOwner { node: NodeId(3), claimed_at: sys::monotonic_now(), claim_revision: 5 };
    until("its lease is over", &mut || nodes[0].may_answer_for(claim));
}
