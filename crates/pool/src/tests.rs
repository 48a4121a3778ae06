use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::{ChunkIndex, DiskId, VolumeId};

const VOLUME: VolumeId = VolumeId::from_bytes([9; 16]);
/// To a disk of a server that is down.
const DOWN: Route = Route::Remote { is_down: true, reported: (0, 0) };

fn id(number: u8) -> DiskId {
    DiskId::from_bytes([number; 16])
}

fn disk(number: u8, slabs: u64, node: &str) -> Disk {
    let domain = FaultDomain { node: node.into(), ..FaultDomain::default() };
    Disk::new(id(number), slabs, domain, Route::Local)
}

/// Places chunks until the pool is full.
fn fill(pool: &mut PoolView, copies: u8, chunks_max: usize) -> Vec<ChunkCopies> {
    let mut chunks = Vec::new();
    while chunks.len() < chunks_max {
        let Ok(holders) = place(pool, copies, &[], &[], Purpose::Write) else { break };
        holders.iter().for_each(|&disk| pool.take(disk));
        let chunk = ChunkIndex(chunks.len() as u32);
        chunks.push(ChunkCopies { volume: VOLUME, chunk, copies, holders });
    }
    chunks
}

fn nodes_of(pool: &PoolView, holders: &[DiskId]) -> BTreeSet<String> {
    holders.iter().filter_map(|&id| pool.disk(id)).map(|disk| disk.domain.node.clone()).collect()
}

/// Whether every usable disk is within 2 % or one slab of its share.
fn even(pool: &PoolView) -> bool {
    let disks: Vec<&Disk> = pool.disks().filter(|disk| disk.is_usable()).collect();
    let total: u64 = disks.iter().map(|disk| disk.total_slabs).sum();
    let used: u64 = disks.iter().map(|disk| disk.used_slabs()).sum();
    disks.iter().all(|disk| {
        let share = disk.total_slabs as f64 * used as f64 / total as f64;
        (disk.used_slabs() as f64 - share).abs() <= (disk.total_slabs as f64 * 0.02).max(1.0) + 1e-9
    })
}

#[test]
fn copies_go_to_different_nodes_where_there_are_enough_nodes() {
    let mut pool = PoolView::new(vec![disk(1, 8, "a"), disk(2, 8, "a"), disk(3, 8, "b"), disk(4, 8, "b")], 0);
    assert_eq!(level(&pool, 2), Some(Level::Node));
    for chunk in fill(&mut pool, 2, 99) {
        assert_eq!(nodes_of(&pool, &chunk.holders).len(), 2);
    }
    assert_eq!(level(&pool, 3), Some(Level::Disk));
    assert_eq!(level(&pool, 5), None);
}

#[test]
fn a_full_node_is_not_replaced_by_a_second_copy_in_the_other() {
    let mut pool = PoolView::new(vec![disk(1, 8, "a"), disk(2, 8, "a"), disk(3, 2, "b")], 0);
    assert_eq!(fill(&mut pool, 2, 99).len(), 2);
    assert_eq!(place(&pool, 2, &[], &[], Purpose::Write), Err(PlaceError::Full));
}

#[test]
fn copies_of_a_three_way_mirror_are_on_three_nodes_or_else_on_both_of_two() {
    for (nodes, disks_each) in [(2_u8, 2_u8), (2, 5), (3, 1), (3, 3), (5, 2)] {
        let disks = (0..nodes * disks_each).map(|at| {
            // Of different sizes, so that the emptiest are often on one node.
            disk(at + 1, 8 + 5 * u64::from(at / disks_each), &format!("node-{}", at / disks_each))
        });
        let mut pool = PoolView::new(disks.collect(), 0);
        let chunks = fill(&mut pool, 3, 8);
        assert_eq!(chunks.len(), 8);
        for chunk in chunks {
            assert_eq!(nodes_of(&pool, &chunk.holders).len(), usize::from(nodes.min(3)), "{chunk:?}");
        }
    }
}

#[test]
fn a_disk_may_leave_only_if_its_copies_find_room_apart_from_their_partners() {
    // Each chunk has a copy on the large disk, and the other one on a small disk.
    let mut pool = PoolView::new(vec![disk(1, 12, "a"), disk(2, 4, "b"), disk(3, 4, "c")], 0);
    let chunks = fill(&mut pool, 2, 6);
    assert_eq!(pool.disk(id(1)).unwrap().free_slabs, 6);
    assert_eq!(shortage_without(&pool, &chunks, id(3), &[]), Shortage { copies: 2, slabs: 0 });
    // With room in a third place for some, and then for all.
    for (slabs, copies) in [(1, 1), (2, 0)] {
        let mut disks: Vec<Disk> = pool.disks().cloned().collect();
        disks.push(disk(4, slabs, "d"));
        let pool = PoolView::new(disks, 0);
        assert_eq!(shortage_without(&pool, &chunks, id(3), &[]), Shortage { copies, slabs: 0 });
    }
}

#[test]
fn a_second_disk_does_not_leave_into_the_room_that_the_first_one_needs() {
    let mut pool = PoolView::new((1..=4).map(|at| disk(at, 6, &format!("node-{at}"))).collect(), 0);
    let chunks = fill(&mut pool, 2, 8);
    assert_eq!(shortage_without(&pool, &chunks, id(1), &[]), Shortage::default());
    pool.change(id(1), |disk| disk.is_retired = true);
    assert!(shortage_without(&pool, &chunks, id(2), &[id(1)]).copies > 0, "8 copies, and 4 free slabs");
    // The same of chunks that are not known, by their number; and of slabs that were promised.
    assert_eq!(shortage_without(&pool, &[], id(2), &[id(1)]), Shortage { copies: 0, slabs: 4 });
    pool.change(id(1), |disk| disk.is_retired = false);
    pool.promised_slabs = 4;
    assert_eq!(shortage_without(&pool, &chunks, id(1), &[]), Shortage { copies: 0, slabs: 2 });
}

#[test]
fn room_is_counted_by_nodes_and_not_by_disks() {
    let disks = (1..=3).map(|at| disk(at, 10, "large")).chain([disk(4, 10, "small")]);
    let mut pool = PoolView::new(disks.collect(), 0);
    assert_eq!(pool.available_chunks(2), 10);
    assert_eq!(fill(&mut pool, 2, 99).len(), 10);
}

#[test]
fn copies_are_not_crowded_on_other_nodes_while_one_is_expected_back() {
    let mut disks: Vec<Disk> = (1..=3).map(|at| disk(at, 8, &format!("node-{at}"))).collect();
    disks.push(disk(4, 8, "node-1"));
    disks[2].route = DOWN;
    let pool = PoolView::new(disks.clone(), 0);
    assert_eq!(place(&pool, 1, &[id(1), id(2)], &[], Purpose::Repair), Err(PlaceError::Full));
    // The disk's node will not come back.
    disks[2].is_given_up = true;
    let pool = PoolView::new(disks, 0);
    assert_eq!(place(&pool, 1, &[id(1), id(2)], &[], Purpose::Repair), Ok(vec![id(4)]));
}

#[test]
fn a_node_with_several_disks_has_room_for_one_copy_of_a_chunk() {
    let mut disks: Vec<Disk> =
        (0..6).map(|number| disk(number, 8, ["a", "b", "c"][usize::from(number / 2)])).collect();
    assert_eq!(PoolView::new(disks.clone(), 0).domains_with_room(3, &[]), 3);
    disks[4..].iter_mut().for_each(|disk| disk.route = DOWN);
    let pool = PoolView::new(disks, 0);
    assert_eq!(pool.domains_with_room(3, &[]), 2, "four disks are no third node");
    assert_eq!(pool.domains_with_room(2, &[id(0)]), 2);
    assert_eq!(pool.domains_with_room(2, &[id(0), id(1)]), 1);
    assert_eq!(pool.domains_with_room(7, &[]), 0);
}

#[test]
fn a_pool_that_began_on_one_node_is_spread_over_those_that_join() {
    let disks = (1..=3).map(|at| disk(at, 20, "a")).chain((4..=6).map(|at| disk(at, 20, "b")));
    let mut pool = PoolView::new(disks.collect(), 0);
    let mut chunks: Vec<ChunkCopies> = Vec::new();
    for at in 0..12 {
        let holders = vec![id(1 + at % 3), id(1 + (at + 1) % 3)];
        holders.iter().for_each(|disk| pool.take(*disk));
        chunks.push(ChunkCopies { volume: VOLUME, chunk: ChunkIndex(at.into()), copies: 2, holders });
    }
    for step in rebalance_plan(&pool, &chunks, 99) {
        let chunk = &mut chunks[step.chunk.0 as usize];
        let at = chunk.holders.iter().position(|holder| *holder == step.from).unwrap();
        chunk.holders[at] = step.to;
    }
    assert!(chunks.iter().all(|chunk| nodes_of(&pool, &chunk.holders).len() == 2), "{chunks:?}");
}

#[test]
fn a_move_or_a_surplus_copy_does_not_leave_a_chunk_on_one_node() {
    let disks = (1..=4).map(|at| disk(at, 20, "a")).chain([disk(5, 20, "b")]);
    let mut pool = PoolView::new(disks.collect(), 0);
    // Two nodes for three copies.
    let chunks: Vec<ChunkCopies> = (0..6)
        .map(|at| {
            let holders = vec![id(1), id(2), id(5)];
            holders.iter().for_each(|disk| pool.take(*disk));
            ChunkCopies { volume: VOLUME, chunk: ChunkIndex(at), copies: 3, holders }
        })
        .collect();
    assert!(rebalance_plan(&pool, &chunks, 99).iter().all(|step| step.from != id(5)));
    let four = ChunkCopies { holders: vec![id(1), id(2), id(3), id(5)], ..chunks[0].clone() };
    assert!(surplus(&pool, &four).is_some_and(|given_up| given_up != id(5)));
}

#[test]
fn the_reserve_is_left_to_repair() {
    let mut pool = PoolView::new((1..=4).map(|n| disk(n, 10, "")).collect(), 1);
    assert_eq!(pool.reserve_slabs, 10);
    assert_eq!(pool.available_chunks(2), 15);
    assert_eq!(fill(&mut pool, 2, 99).len(), 15);
    assert_eq!(place(&pool, 2, &[], &[], Purpose::Write), Err(PlaceError::Full));
    assert!(place(&pool, 1, &[id(1)], &[], Purpose::Repair).is_ok());
}

#[test]
fn a_disk_for_each_node_is_kept_for_repair_and_four_at_most() {
    let domains = |nodes: &[&str]| -> Vec<FaultDomain> {
        nodes.iter().map(|node| FaultDomain { node: (*node).into(), ..FaultDomain::default() }).collect()
    };
    assert_eq!(default_reserve_disks(&domains(&["", ""])), 0);
    assert_eq!(default_reserve_disks(&domains(&["", "", ""])), 1);
    assert_eq!(default_reserve_disks(&domains(&["a", "a", "b", "b"])), 2);
    assert_eq!(default_reserve_disks(&domains(&["a", "b", "c", "d", "e", "f", "g"])), 4);
}

#[test]
fn what_fixed_virtual_disks_were_promised_is_not_given_to_thin_ones() {
    let mut pool = PoolView::new((1..=4).map(|n| disk(n, 10, "")).collect(), 0);
    pool.promised_slabs = 20;
    assert_eq!((pool.available_chunks(2), pool.promised_chunks(2)), (10, 20));
    assert_eq!(fill(&mut pool, 2, 99).len(), 10);
    assert_eq!(place(&pool, 2, &[], &[], Purpose::Write), Err(PlaceError::Full));
    assert!(place(&pool, 2, &[], &[], Purpose::Promised).is_ok());
}

#[test]
fn what_a_lost_disk_held_is_planned_onto_others_worst_protected_first() {
    let mut pool = PoolView::new((1..=4).map(|n| disk(n, 40, "")).collect(), 0);
    let mut chunks = fill(&mut pool, 2, 40);
    pool.change(id(1), |disk| disk.route = Route::Away);
    for chunk in &mut chunks {
        chunk.holders.retain(|&holder| holder != id(1));
    }
    let lost = chunks.iter().filter(|chunk| chunk.holders.len() == 1).count();
    let (plan, unplaced) = repair_plan(&pool, &chunks);
    assert_eq!((plan.len(), unplaced), (lost, 0));
    for repair in plan {
        let chunk = chunks.iter().find(|chunk| chunk.chunk == repair.chunk).unwrap();
        assert!(repair.to != id(1) && !chunk.holders.contains(&repair.to));
    }
}

#[test]
fn a_retired_disk_is_read_from_and_its_copies_are_made_elsewhere() {
    let mut pool = PoolView::new((1..=3).map(|n| disk(n, 10, "")).collect(), 0);
    pool.change(id(2), |disk| disk.is_retired = true);
    let chunk = ChunkCopies { volume: VOLUME, chunk: ChunkIndex(0), copies: 2, holders: vec![id(1), id(2)] };
    let (plan, _) = repair_plan(&pool, &[chunk]);
    assert_eq!(plan, [Repair { volume: VOLUME, chunk: ChunkIndex(0), to: id(3) }]);
}

#[test]
fn copies_without_room_are_counted() {
    let pool = PoolView::new(vec![disk(1, 4, ""), disk(2, 0, "")], 0);
    let chunk = ChunkCopies { volume: VOLUME, chunk: ChunkIndex(0), copies: 2, holders: vec![id(1)] };
    assert_eq!(repair_plan(&pool, &[chunk]), (vec![], 1));
}

#[test]
fn an_even_pool_needs_no_moves() {
    let mut pool = PoolView::new((1..=5).map(|n| disk(n, 100, "")).collect(), 0);
    let chunks = fill(&mut pool, 2, 150);
    assert_eq!(rebalance_plan(&pool, &chunks, 1000), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn disks_fill_evenly_and_copies_stay_apart(
        sizes in prop::collection::vec(50_u64..150, 4..9),
        copies in 1_u8..=3,
        part in 1_u64..=90,
    ) {
        let total: u64 = sizes.iter().sum();
        // No disk is larger than the others can mirror.
        prop_assume!(sizes.iter().all(|&size| size * u64::from(copies) <= total));
        let mut pool = PoolView::new(
            sizes.iter().enumerate().map(|(at, &size)| disk(at as u8 + 1, size, "")).collect(), 0);
        let wanted = total * part / 100 / u64::from(copies);
        let chunks = fill(&mut pool, copies, wanted as usize);
        prop_assert_eq!(chunks.len() as u64, wanted);
        for chunk in &chunks {
            let apart: BTreeSet<DiskId> = chunk.holders.iter().copied().collect();
            prop_assert_eq!(apart.len(), usize::from(copies));
        }
        prop_assert!(even(&pool), "{:?}", pool);
    }

    #[test]
    fn rebalance_moves_no_more_than_the_new_disks_share(
        size in 40_u64..120,
        old in 3_u8..6,
        added in 1_u8..3,
        part in 10_u64..=90,
    ) {
        let mut pool = PoolView::new((1..=old).map(|n| disk(n, size, "")).collect(), 0);
        let wanted = size * u64::from(old) * part / 100 / 2;
        let mut chunks = fill(&mut pool, 2, wanted as usize);
        let mut disks: Vec<Disk> = pool.disks().cloned().collect();
        disks.extend((old + 1..=old + added).map(|n| disk(n, size, "")));
        let mut pool = PoolView::new(disks, 0);
        let used: u64 = pool.disks().map(Disk::used_slabs).sum();
        let plan = rebalance_plan(&pool, &chunks, usize::MAX);
        let share = used as f64 * f64::from(added) / f64::from(old + added);
        prop_assert!(plan.len() as f64 <= share + f64::from(old + added), "{} moves", plan.len());
        let mut holders: BTreeMap<ChunkIndex, &mut Vec<DiskId>> =
            chunks.iter_mut().map(|chunk| (chunk.chunk, &mut chunk.holders)).collect();
        for step in &plan {
            let held = holders.get_mut(&step.chunk).unwrap();
            prop_assert!(!held.contains(&step.to));
            let at = held.iter().position(|&disk| disk == step.from).unwrap();
            held[at] = step.to;
            pool.take(step.to);
            pool.give_back(step.from);
        }
        prop_assert!(even(&pool), "{:?}", pool);
    }
}

#[test]
fn of_too_many_copies_that_on_a_retired_disk_goes_then_that_beside_another_then_that_on_the_fullest() {
    let mut disks = vec![disk(1, 10, "a"), disk(2, 10, "a"), disk(3, 10, "b"), disk(4, 10, "c")];
    let chunk = |holders: &[u8]| ChunkCopies {
        volume: VolumeId::from_bytes([1; 16]),
        chunk: ChunkIndex(0),
        copies: 2,
        holders: holders.iter().map(|number| id(*number)).collect(),
    };
    let mut pool = PoolView::new(disks.clone(), 0);
    assert_eq!(surplus(&pool, &chunk(&[1, 3])), None);
    assert_eq!(surplus(&pool, &chunk(&[1, 2, 3])), Some(id(1)), "two in one node");
    pool.take(id(4));
    assert_eq!(surplus(&pool, &chunk(&[1, 3, 4])), Some(id(4)), "the fullest");
    disks[2].is_retired = true;
    assert_eq!(surplus(&PoolView::new(disks, 0), &chunk(&[1, 2, 3])), Some(id(3)), "retired");
}

#[test]
fn a_disk_of_which_only_decisions_are_known_is_retired_and_not_listed() {
    let mut pool = PoolView::new(vec![disk(1, 8, "a")], 1);
    pool.change(id(2), |disk| disk.is_retired = true);
    assert_eq!((pool.disks().count(), pool.retired().collect::<Vec<_>>()), (1, vec![id(2)]));
    pool.change(id(2), |known| *known = Disk { is_retired: known.is_retired, ..disk(2, 16, "b") });
    assert_eq!((pool.disks().count(), pool.free_slabs(), pool.reserve_slabs), (2, 8, 8));
    pool.change(id(2), |disk| disk.is_retired = false);
    assert_eq!((pool.free_slabs(), pool.reserve_slabs), (24, 16));
    pool.remove(id(2));
    assert_eq!((pool.disks().count(), pool.reserve_slabs), (1, 8));
}

#[test]
fn only_disks_of_other_servers_go_down_with_their_server() {
    let mut pool = PoolView::new(vec![disk(1, 8, "a"), disk(2, 8, "b")], 0);
    assert!(!pool.has_remote() && !pool.set_down(id(1), true));
    pool.change(id(2), |disk| disk.route = Route::Remote { is_down: false, reported: (8, 8) });
    assert!(pool.has_remote() && pool.set_down(id(2), true) && !pool.set_down(id(2), true));
    assert_eq!(pool.free_slabs(), 8);
    assert!(pool.disk(id(2)).is_some_and(Disk::is_expected));
    assert!(!pool.set_down(id(3), true));
}
