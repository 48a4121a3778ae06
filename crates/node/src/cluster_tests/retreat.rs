//! A node that all others hear, but whose data reach none, and which gets no answers from the
//! state.

use super::*;

impl Rig {
    /// Loses large messages between node 1 and the others from now on; the state is behind the same
    /// network.
    fn lose_large_of_first(&mut self) {
        for other in [2, 3].map(NodeId) {
            self.cut.extend([(NodeId(1), other), (other, NodeId(1))]);
        }
        let is_commit = |request: &records::Request| matches!(request, records::Request::Commit(_));
        let lose =
            move |request: &records::Request| if is_commit(request) { Fault::Lost } else { Fault::None };
        self.memory.set_fault_hook(Some(Box::new(lose)));
        let since = self.now();
        let unreached = |node| (NodeId(node), Unreached { since, address: None, why: "lost".to_owned() });
        self.of(1).peers.set_unreached([2, 3].map(unreached).into());
        for other in [2, 3] {
            self.of(other).peers.set_unreached(BTreeMap::from([unreached(1)]));
        }
    }

    fn carry_large(&mut self) {
        self.cut.clear();
        for node in 1..=3 {
            self.of(node).peers.set_unreached(BTreeMap::new());
        }
    }

    fn retreat_of_first(&self) -> std::cell::RefMut<'_, Retreat> {
        self.nodes[&NodeId(1)].heart.retreat.borrow_mut()
    }

    fn reaches_most(&self, node: u32) -> bool {
        self.nodes[&NodeId(node)].heart.reaches_most.get()
    }
}

fn three() -> (Rig, PoolId, VolumeId) {
    let (mut rig, pool, volume) = Rig::with_volume(3, Resiliency::ThreeWay);
    rig.until("copies are counted by nodes", |rig| rig.record(volume).min_homes == 3);
    rig.until("the others know of it", |rig| {
        rig.of(2).volumes.is_elsewhere(volume) && rig.of(3).volumes.is_elsewhere(volume)
    });
    rig.until("all say that they reach most", |rig| (1..=3).all(|node| rig.reaches_most(node)));
    (rig, pool, volume)
}

#[test]
fn a_node_whose_data_and_commits_reach_nobody_falls_silent_and_another_one_serves_its_volume() {
    let (mut rig, _, volume) = three();
    rig.retreat_of_first().is_spared = true;
    let began = Instant::now();
    rig.lose_large_of_first();
    rig.until("it wants to fall silent", |rig| rig.retreat_of_first().is_wanted);
    assert!(began.elapsed() >= Duration::from_secs(3), "not for a moment's trouble");
    assert!(!rig.reaches_most(1) && rig.reaches_most(2) && rig.reaches_most(3));
    assert_eq!(rig.servers(volume), [1], "it serves until it is silent");
    // The first node's member of the state has withdrawn: the others commit, and hear it no more.
    rig.retreat_of_first().is_silent = true;
    rig.memory.set_fault_hook(None);
    rig.kill(1);
    rig.until("another node serves it", |rig| matches!(rig.servers(volume)[..], [2 | 3]));
    rig.until("it is withdrawn where it was", |rig| !rig.of(1).volumes.is_served(volume));
    rig.pass(Duration::from_secs(2));
    assert!(!rig.of(1).volumes.is_served(volume), "nothing is opened in silence");
    assert!(rig.retreat_of_first().is_wanted, "its data reach nobody still");

    rig.carry_large();
    let healed = Instant::now();
    rig.until("it speaks again", |rig| !rig.retreat_of_first().is_wanted);
    assert!(healed.elapsed() >= Duration::from_secs(1), "not before that is proven");
    rig.retreat_of_first().is_silent = false;
    rig.revive(1);
    rig.until("all copies are there", |rig| rig.record(volume).stale.is_empty());
    rig.until("it knows where the volume is", |rig| rig.of(1).volumes.is_elsewhere(volume));
    assert!(matches!(rig.servers(volume)[..], [2 | 3]));
}

#[test]
fn a_node_that_the_others_need_keeps_its_volumes_and_one_that_they_need_again_gets_them_back() {
    let (mut rig, _, volume) = three();
    rig.lose_large_of_first();
    rig.pass(Duration::from_secs(6));
    assert!(!rig.retreat_of_first().is_wanted, "the others do not reach each other either");
    rig.retreat_of_first().is_spared = true;
    rig.until("it wants to fall silent", |rig| rig.retreat_of_first().is_wanted);
    rig.retreat_of_first().is_silent = true;
    rig.until("its volume is withdrawn", |rig| rig.servers(volume).is_empty());
    // One of the two others died before they had taken the volume.
    (rig.retreat_of_first().is_spared, rig.retreat_of_first().is_silent) = (false, false);
    rig.until("it is silent no more", |rig| !rig.retreat_of_first().is_wanted);
    rig.memory.set_fault_hook(None);
    rig.carry_large();
    rig.until("it serves its volume again", |rig| rig.servers(volume) == [1]);
}

#[test]
fn a_node_whose_data_reach_nobody_goes_by_the_record_that_it_has_just_written() {
    let (mut rig, _, volume) = three();
    rig.retreat_of_first().is_spared = true;
    // The node has counted the copies, and lost the state before it read its own record back.
    let read = VolumeRecord { min_holders: 1, min_homes: 0, homes: vec![], ..rig.record(volume) };
    rig.of(1).peers.set_volumes(std::iter::once(read));
    rig.lose_large_of_first();
    rig.until("it wants to fall silent", |rig| rig.retreat_of_first().is_wanted);
}

#[test]
fn a_node_with_a_volume_that_nobody_else_has_all_of_does_not_fall_silent() {
    let (mut rig, pool, volume) = three();
    let care = rig.of(1).volume_care.clone();
    let lone = NewVolume { name: "lone".to_owned(), resiliency: Resiliency::Simple, ..two_way(pool) };
    let lone = rig.run(1, async move { care.create(lone).await }).expect("a volume");
    rig.retreat_of_first().is_spared = true;
    rig.lose_large_of_first();
    rig.pass(Duration::from_secs(7));
    assert!(!rig.retreat_of_first().is_wanted);
    assert!(rig.servers(volume) == [1] && rig.servers(lone) == [1]);
}
