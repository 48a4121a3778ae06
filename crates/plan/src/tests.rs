//! Plans, compared with the published tables, and by administrators' questions.

use super::*;

/// So many nodes with these drives each.
fn nodes(count: u32, drives: &str) -> Request {
    let drives: DriveList = drives.parse().unwrap();
    Request { nodes: Node::equal(count, &drives.0).collect(), ..Request::default() }
}

fn choice_of(plan: &Plan, resiliency: &str) -> PlanChoice {
    plan.choices.iter().find(|choice| choice.resiliency == resiliency).unwrap().clone()
}

#[test]
fn mirrors_are_as_efficient_as_s2d_publishes_it_less_labels_and_checksums() {
    for servers in 2..=16 {
        let plan = crate::plan(&Request { reserve_disks: Some(0), ..nodes(servers, "4x4TiB") }).unwrap();
        let two = choice_of(&plan, "two-way-mirror");
        assert!((49.5..=50.0).contains(&two.efficiency_percent), "{servers}: {two:?}");
        assert_eq!((two.apart_by.as_str(), two.survives_drives), ("node", 1));
        let three = choice_of(&plan, "three-way-mirror");
        assert!((33.0..=33.4).contains(&three.efficiency_percent), "{servers}: {three:?}");
        assert_eq!(three.apart_by, if servers == 2 { "disk" } else { "node" });
    }
}

#[test]
fn what_s2d_has_stands_beside() {
    let of = |request: Request, name: &str| {
        let plan = crate::plan(&request).unwrap();
        plan.s2d.iter().find(|choice| choice.resiliency == name).map(|choice| choice.efficiency_percent)
    };
    assert_eq!(of(nodes(16, "4x4TiB:nvme"), "dual parity"), Some(80.0));
    assert_eq!(of(nodes(16, "4x4TiB:hdd"), "dual parity"), Some(72.7));
    assert_eq!(of(nodes(2, "6x4TiB"), "nested mirror-accelerated parity, 20 % mirror"), Some(36.8));
    assert_eq!(of(nodes(3, "6x4TiB"), "dual parity"), None);
    assert_eq!(of(nodes(20, "6x4TiB"), "two-way mirror"), None);
}

#[test]
fn nodes_survive_as_many_as_data_and_state_allow() {
    let survives =
        |request: Request, resiliency| choice_of(&plan(&request).unwrap(), resiliency).survives_nodes;
    assert_eq!(survives(nodes(1, "4x4TiB"), "two-way-mirror"), 0, "one node");
    assert_eq!(survives(nodes(2, "4x4TiB"), "two-way-mirror"), 0, "without a witness");
    assert_eq!(survives(Request { has_witness: true, ..nodes(2, "4x4TiB") }, "two-way-mirror"), 1);
    assert_eq!(
        survives(Request { has_witness: true, ..nodes(2, "4x4TiB") }, "three-way-mirror"),
        1,
        "each has a copy"
    );
    assert_eq!(survives(nodes(5, "4x4TiB"), "three-way-mirror"), 1, "three nodes keep the state");
}

#[test]
fn racks_keep_copies_apart_if_there_are_enough() {
    let plan = crate::plan(&Request { racks: 2, ..nodes(6, "4x4TiB") }).unwrap();
    assert_eq!(plan.racks, 2);
    assert_eq!(choice_of(&plan, "two-way-mirror").apart_by, "rack");
    assert_eq!(choice_of(&plan, "three-way-mirror").apart_by, "node");
    assert_eq!(
        choice_of(&plan, "two-way-mirror").survives_racks,
        0,
        "two of three keepers of the state are in one"
    );
    let plan = crate::plan(&Request { racks: 3, ..nodes(6, "4x4TiB") }).unwrap();
    assert_eq!(choice_of(&plan, "two-way-mirror").survives_racks, 1);
}

#[test]
fn a_larger_node_strands_what_finds_no_partner_and_a_lost_node_is_the_largest() {
    let uneven = || nodes(2, "2x4TiB").nodes.into_iter().chain(nodes(1, "10x4TiB").nodes).collect();
    let request = Request { nodes: uneven(), reserve_disks: Some(0), ..Request::default() };
    let plan = crate::plan(&request).unwrap();
    let two = choice_of(&plan, "two-way-mirror");
    assert!(two.stranded_bytes > 23 << 40, "{two:?}");
    let plan = crate::plan(&Request { nodes: uneven(), lose_nodes: 1, ..Request::default() }).unwrap();
    assert_eq!((plan.nodes, plan.raw_bytes), (2, 16 << 40));
    let refused = |request: Request| crate::plan(&request).unwrap_err();
    assert_eq!(refused(Request { lose_nodes: 2, ..nodes(2, "2x4TiB") }), Unplannable::NoNodeLeft(2));
    assert_eq!(refused(Request::default()), Unplannable::NoNode);
    let mirror = Request { resiliency: Some(Resiliency::TwoWayMirror), ..nodes(1, "1x4TiB") };
    assert_eq!(refused(mirror), Unplannable::TooFewDrives { copies: 2, drives: 1 });
}

#[test]
fn bounds_name_what_is_scarcest() {
    let bounds = |request: Request| choice_of(&plan(&request).unwrap(), "two-way-mirror").bounds;
    let slow_disks = bounds(Request { network_gbps: 100, ..nodes(4, "4x8TiB:hdd") });
    assert_eq!((slow_disks.read_iops, slow_disks.read_iops_by.as_str()), (2400.0, "drives"));
    let slow_network = bounds(Request { network_gbps: 1, ..nodes(4, "8x4TiB:nvme") });
    assert_eq!(slow_network.read_bytes_by, "network");
    assert_eq!(slow_network.read_bytes_per_s, 5e8);
    assert_eq!(slow_network.write_bytes_per_s, 2.5e8, "each byte goes to another node as well");
    let plain =
        bounds(Request { network_gbps: 100, protection: Protection::Plain, ..nodes(4, "8x4TiB:nvme") });
    assert_eq!(plain.read_iops_by, "processor");
    let signed = bounds(Request { network_gbps: 100, ..nodes(4, "8x4TiB:nvme") });
    assert!(signed.read_iops < plain.read_iops / 2.0);
}

#[test]
fn more_than_can_be_counted_is_refused() {
    let refused = crate::plan(&nodes(64, "1000x1024TiB")).unwrap_err();
    assert_eq!(refused, Unplannable::TooManyDrives(64_000));
    assert_eq!(
        crate::plan(&Request { lose_nodes: 1, ..Request::default() }).unwrap_err(),
        Unplannable::NoNode
    );
    crate::plan(&nodes(16, "1000x1024TiB")).unwrap();
}
