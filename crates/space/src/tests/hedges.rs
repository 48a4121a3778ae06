//! Late reads that are sent to another copy as well.

use super::nodes::Cluster;
use super::*;
use crate::coordinator::LateReads;

const MILLISECOND: Duration = Duration::from_millis(1);

fn read_of(lba: u64) -> SpaceRequest {
    SpaceRequest::Read { lba: Lba(lba), blocks: 1, copy: None }
}

/// Returns the first byte of a block, and the latency of its read.
fn timed_read(cluster: &mut Cluster, lba: u64) -> (u8, Duration) {
    let (began, token) = (cluster.now, cluster.start(0, read_of(lba)));
    loop {
        match cluster.answer(0, token) {
            Some(Ok(SpaceReply::Data(data))) => {
                return (data.contiguous()[0], cluster.now.since(began));
            }
            Some(other) => panic!("{other:?}"),
            None => cluster.pass(cluster.step),
        }
        assert!(cluster.now.since(began) < Duration::from_secs(30), "no answer");
    }
}

/// Makes a volume of two copies on three nodes, served by the first. Returns first blocks of chunks
/// without a copy on that node.
fn far_copies() -> (Cluster, Vec<u64>) {
    let mut cluster = Cluster::new(3, 1, Resiliency::TwoWay);
    cluster.open(0);
    cluster.pass(Duration::from_secs(1));
    cluster.fill(0, 24);
    let own = cluster.disks_of(0)[0];
    let copies = cluster.nodes[0].space.with_volume(VOLUME, |volume| volume.chunk_copies()).unwrap();
    let far = copies.iter().filter(|copy| copy.holders.len() == 2 && !copy.holders.contains(&own));
    let lbas: Vec<u64> = far.map(|copy| u64::from(copy.chunk.0) * u64::from(CHUNK)).collect();
    assert!(lbas.len() >= 4, "{lbas:?}");
    cluster.step = MILLISECOND;
    (cluster, lbas)
}

/// Does `count` reads one after the other, a millisecond between them; returns the time within which 99
/// of 100 were answered.
fn p99(cluster: &mut Cluster, lbas: &[u64], count: usize) -> Duration {
    let mut times: Vec<Duration> = Vec::new();
    for lba in lbas.iter().cycle().take(count) {
        let (found, taken) = timed_read(cluster, *lba);
        assert_eq!(u64::from(found), lba / u64::from(CHUNK) + 1);
        times.push(taken);
        cluster.pass(MILLISECOND);
    }
    times.sort();
    times[count * 99 / 100 - 1]
}

fn late_reads(cluster: &Cluster) -> LateReads {
    let mut all = LateReads::default();
    cluster.nodes[0].space.late_reads().into_values().for_each(|reads| all += reads);
    all
}

#[test]
fn one_slow_peer_does_not_make_reads_slow() {
    let (mut cluster, lbas) = far_copies();
    p99(&mut cluster, &lbas, 100);
    assert_eq!(late_reads(&cluster), LateReads::default());
    let slow = cluster.disks_of(1)[0];
    cluster.delays.insert(slow, 200 * MILLISECOND);
    let bound = p99(&mut cluster, &lbas, 1000);
    assert!(bound <= 10 * MILLISECOND, "{bound:?}");
    let counts = late_reads(&cluster);
    assert!(counts.hedged >= 3 && counts.won == counts.hedged, "{counts:?}");
    assert!(counts.late <= 10, "it is left alone: {counts:?}");
    // Once the disk is quick again, reads find that and use it.
    cluster.delays.clear();
    cluster.pass(Duration::from_secs(33));
    p99(&mut cluster, &lbas, 100);
    assert_eq!(late_reads(&cluster), counts);
}

#[test]
fn a_cluster_that_is_slow_as_a_whole_is_not_asked_twice() {
    let (mut cluster, lbas) = far_copies();
    p99(&mut cluster, &lbas, 100);
    for node in 1..3 {
        let disk = cluster.disks_of(node)[0];
        cluster.delays.insert(disk, 60 * MILLISECOND);
    }
    p99(&mut cluster, &lbas, 500);
    let counts = late_reads(&cluster);
    assert!(counts.hedged <= 5 + 600 / 50, "{counts:?}");
    // The common latency of all disks becomes the usual one.
    assert!(counts.late < 300, "{counts:?}");
}

#[test]
fn a_disk_that_never_answers_fails_although_others_were_read() {
    let (mut cluster, lbas) = far_copies();
    p99(&mut cluster, &lbas, 100);
    let silent = cluster.disks_of(1)[0];
    cluster.delays.insert(silent, Duration::from_secs(3600));
    p99(&mut cluster, &lbas, 200);
    // The silent disk has one read to answer, and others have none.
    assert_eq!(late_reads(&cluster), LateReads { late: 1, hedged: 1, won: 1 });
    assert!(cluster.record().in_sync.contains(&silent));
    cluster.pass(Config::default().io_timeout);
    assert!(!cluster.record().in_sync.contains(&silent));
}

#[test]
fn a_copy_that_leaves_before_it_answers_is_not_taken() {
    let (mut cluster, lbas) = far_copies();
    let (first, second) = (cluster.disks_of(1)[0], cluster.disks_of(2)[0]);
    p99(&mut cluster, &lbas, 100);
    cluster.delays.extend([(first, 300 * MILLISECOND), (second, 100 * MILLISECOND)]);
    let lba = lbas[0];
    let (began, token) = (cluster.now, cluster.start(0, read_of(lba)));
    cluster.pass(50 * MILLISECOND);
    assert_eq!(late_reads(&cluster).hedged, 1);
    // The disk of the first request is slower, and stays so.
    let asked_first = cluster.nodes[0].space.late_reads().into_iter().find(|(_, counts)| counts.hedged == 1);
    let other = if asked_first.unwrap().0 == first { second } else { first };
    cluster.nodes[0].space.node_down(&[other]);
    while cluster.answer(0, token).is_none() {
        cluster.pass(MILLISECOND);
    }
    let least = if other == second { 300 } else { 100 };
    assert!(cluster.now.since(began) >= least * MILLISECOND);
    assert_eq!(late_reads(&cluster).won, 0);
}

#[test]
fn what_a_read_waits_for_on_this_side_is_not_its_disks_time() {
    let (mut cluster, lbas) = far_copies();
    p99(&mut cluster, &lbas, 100);
    let held = cluster.disks_of(1)[0];
    let ends = cluster.nodes[0].ends.clone();
    ends.borrow_mut().held = Some(held);
    let mut waited = 0;
    for lba in lbas.iter().cycle().take(100) {
        let token = cluster.start(0, read_of(*lba));
        if cluster.answer(0, token).is_none() {
            cluster.pass(50 * MILLISECOND);
            assert!(ends.borrow_mut().let_go());
            waited += 1;
            assert!(cluster.answer(0, token).is_some_and(|answer| answer.is_ok()));
        }
    }
    assert!(waited >= 10, "{waited}");
    assert_eq!(late_reads(&cluster), LateReads::default());
    // A read that waits for longer goes to another copy too, and the disk does not rest for that.
    let mut hedged = 0;
    for lba in lbas.iter().cycle().take(1000) {
        let (_, taken) = timed_read(&mut cluster, *lba);
        assert!(taken <= 101 * MILLISECOND, "{taken:?}");
        hedged += usize::from(ends.borrow_mut().let_go());
        cluster.pass(MILLISECOND);
        if hedged == 5 {
            break;
        }
    }
    assert_eq!(late_reads(&cluster), LateReads { late: 5, hedged: 5, won: 5 });
    ends.borrow_mut().held = None;
    let before = ends.borrow().reads_of(held);
    p99(&mut cluster, &lbas, 100);
    assert!(ends.borrow().reads_of(held) >= before + 10, "it is read from as before");
}

/// Reads until one is late at this disk and gets a good answer from another copy. Returns its first
/// block.
fn read_late_at(cluster: &mut Cluster, disk: DiskId, lbas: &[u64]) -> u64 {
    for lba in lbas {
        let (found, _) = timed_read(cluster, *lba);
        assert_eq!(u64::from(found), lba / u64::from(CHUNK) + 1);
        if late_reads(cluster).won == 1 {
            return *lba;
        }
    }
    panic!("{disk} was never asked first");
}

#[test]
fn a_copy_that_lost_and_tells_of_a_corrupt_block_is_repaired() {
    let (mut cluster, lbas) = far_copies();
    p99(&mut cluster, &lbas, 100);
    let (slow, store) = cluster.nodes[1].stores[0].clone();
    lbas.iter().for_each(|lba| store.corrupt(VOLUME, Lba(*lba)));
    cluster.delays.insert(slow, 200 * MILLISECOND);
    let lba = read_late_at(&mut cluster, slow, &lbas);
    assert!(store.is_corrupt(VOLUME, Lba(lba)));
    cluster.pass(Duration::from_secs(2));
    assert!(!store.is_corrupt(VOLUME, Lba(lba)));
    assert!(cluster.record().in_sync.contains(&slow));
}

#[test]
fn a_copy_that_lost_and_was_given_back_since_is_not_blamed() {
    let (mut cluster, lbas) = far_copies();
    p99(&mut cluster, &lbas, 100);
    let (slow, store) = cluster.nodes[1].stores[0].clone();
    cluster.delays.insert(slow, 500 * MILLISECOND);
    let lba = read_late_at(&mut cluster, slow, &lbas);
    let chunk = types::ChunkIndex((lba / u64::from(CHUNK)) as u32);
    let token = cluster.start(0, SpaceRequest::Discard { lba: Lba(lba), blocks: u64::from(CHUNK) });
    cluster.pass(300 * MILLISECOND);
    assert!(cluster.answer(0, token).is_some_and(|answer| answer.is_ok()));
    assert!(!store.has_chunk(VOLUME, chunk), "its slab is given back before the read arrives");
    cluster.pass(Duration::from_secs(2));
    assert!(cluster.record().in_sync.contains(&slow));
}

#[test]
pub(super) fn a_late_read_is_never_asked_of_a_copy_in_the_making() {
    let mut cluster = Cluster::new(3, 1, Resiliency::ThreeWay);
    cluster.open(0);
    cluster.pass(Duration::from_secs(1));
    cluster.fill(0, 2);
    cluster.kill(2);
    // The disk misses more regions than are copied at once: those have their locks meanwhile.
    let region = u64::from(CHUNK) / 4;
    (0..8).for_each(|at| cluster.write(0, at * region, 77).unwrap());
    // The disk is back, and no missed write arrives.
    cluster.nodes[0].ends.borrow_mut().queues_writes = Some(true);
    cluster.revive(2);
    cluster.pass(Duration::from_secs(3));
    let returning = cluster.disks_of(2)[0];
    assert!(cluster.record().stale.iter().any(|stale| stale.disk == returning));
    cluster.nodes[0].stores[0].1.set_fault(FakeFault::ReadsHang);
    cluster.step = MILLISECOND;
    let (found, taken) = timed_read(&mut cluster, 4 * region);
    assert_eq!(found, 77);
    assert!(taken < 200 * MILLISECOND, "{taken:?}");
    assert_eq!(late_reads(&cluster), LateReads { late: 1, hedged: 1, won: 1 });
}
