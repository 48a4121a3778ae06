//! Plans, compared with the published tables, and by administrators' questions.

use super::*;
use crate::args::Cli;

fn plan_of(words: &str) -> Result<Plan, Failure> {
    let words = ["cenote", "plan"].into_iter().chain(words.split_whitespace());
    let cli = Cli::try_parse_from(words).unwrap();
    let args::Command::Plan(options) = cli.command else { panic!() };
    make(&nodes(Vec::new(), &options)?, &options)
}

fn choice_of(plan: &Plan, resiliency: &str) -> PlanChoice {
    plan.choices.iter().find(|choice| choice.resiliency == resiliency).unwrap().clone()
}

#[test]
fn mirrors_are_as_efficient_as_s2d_publishes_it_less_labels_and_checksums() {
    for servers in 2..=16 {
        let plan = plan_of(&format!("--nodes {servers} --drives 4x4TiB --reserve-disks 0")).unwrap();
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
    let of = |words: &str, name: &str| {
        let plan = plan_of(words).unwrap();
        plan.s2d.iter().find(|choice| choice.resiliency == name).map(|choice| choice.efficiency_percent)
    };
    assert_eq!(of("--nodes 16 --drives 4x4TiB:nvme", "dual parity"), Some(80.0));
    assert_eq!(of("--nodes 16 --drives 4x4TiB:hdd", "dual parity"), Some(72.7));
    assert_eq!(of("--nodes 2 --drives 6x4TiB", "nested mirror-accelerated parity, 20 % mirror"), Some(36.8));
    assert_eq!(of("--nodes 3 --drives 6x4TiB", "dual parity"), None);
    assert_eq!(of("--nodes 20 --drives 6x4TiB", "two-way mirror"), None);
}

#[test]
fn nodes_survive_as_many_as_data_and_state_allow() {
    let survives = |words: &str, resiliency| choice_of(&plan_of(words).unwrap(), resiliency).survives_nodes;
    assert_eq!(survives("--drives 4x4TiB", "two-way-mirror"), 0, "one node");
    assert_eq!(survives("--nodes 2 --drives 4x4TiB", "two-way-mirror"), 0, "without a witness");
    assert_eq!(survives("--nodes 2 --drives 4x4TiB --witness", "two-way-mirror"), 1);
    assert_eq!(survives("--nodes 2 --drives 4x4TiB --witness", "three-way-mirror"), 1, "each has a copy");
    assert_eq!(survives("--nodes 5 --drives 4x4TiB", "three-way-mirror"), 1, "three nodes keep the state");
}

#[test]
fn racks_keep_copies_apart_if_there_are_enough() {
    let plan = plan_of("--nodes 6 --drives 4x4TiB --racks 2").unwrap();
    assert_eq!(plan.racks, 2);
    assert_eq!(choice_of(&plan, "two-way-mirror").apart_by, "rack");
    assert_eq!(choice_of(&plan, "three-way-mirror").apart_by, "node");
    assert_eq!(
        choice_of(&plan, "two-way-mirror").survives_racks,
        0,
        "two of three keepers of the state are in one"
    );
    let plan = plan_of("--nodes 6 --drives 4x4TiB --racks 3").unwrap();
    assert_eq!(choice_of(&plan, "two-way-mirror").survives_racks, 1);
}

#[test]
fn a_larger_node_strands_what_finds_no_partner_and_a_lost_node_is_the_largest() {
    let plan = plan_of("--nodes 2 --drives 2x4TiB --node 10x4TiB --reserve-disks 0").unwrap();
    let two = choice_of(&plan, "two-way-mirror");
    assert!(two.stranded_bytes > 23 << 40, "{two:?}");
    let plan = plan_of("--nodes 2 --drives 2x4TiB --node 10x4TiB --lose-nodes 1").unwrap();
    assert_eq!((plan.nodes, plan.raw_bytes), (2, 16 << 40));
    assert!(plan_of("--nodes 2 --drives 2x4TiB --lose-nodes 2").is_err());
    assert!(plan_of("").is_err());
    assert!(plan_of("--drives 1x4TiB --resiliency two-way-mirror").is_err());
}

#[test]
fn bounds_name_what_is_scarcest() {
    let bounds = |words: &str| choice_of(&plan_of(words).unwrap(), "two-way-mirror").bounds;
    let slow_disks = bounds("--nodes 4 --drives 4x8TiB:hdd --network 100");
    assert_eq!((slow_disks.read_iops, slow_disks.read_iops_by.as_str()), (2400.0, "drives"));
    let slow_network = bounds("--nodes 4 --drives 8x4TiB:nvme --network 1");
    assert_eq!(slow_network.read_bytes_by, "network");
    assert_eq!(slow_network.read_bytes_per_s, 5e8);
    assert_eq!(slow_network.write_bytes_per_s, 2.5e8, "each byte goes to another node as well");
    let plain = bounds("--nodes 4 --drives 8x4TiB:nvme --network 100 --protection plain");
    assert_eq!(plain.read_iops_by, "processor");
    let signed = bounds("--nodes 4 --drives 8x4TiB:nvme --network 100");
    assert!(signed.read_iops < plain.read_iops / 2.0);
}

#[test]
fn more_than_can_be_counted_is_refused() {
    for words in ["--nodes 64 --drives 1000x1024TiB", "--lose-nodes 1"] {
        assert!(plan_of(words).is_err(), "{words}");
    }
    plan_of("--nodes 16 --drives 1000x1024TiB").unwrap();
}
