use super::*;

/// Promised bound of the growth from two servers to more.
const GROWTH_MAX: f64 = 1.1;

fn assert_flat(what: &str, of: impl Fn(&Measured) -> f64, all: &[Measured]) {
    let least = of(&all[0]);
    for one in all {
        let (nodes, here) = (one.nodes, of(one));
        assert!(
            here <= least * GROWTH_MAX,
            "{what}: {least} with {} servers, {here} with {nodes}",
            all[0].nodes
        );
    }
}

#[test]
fn an_operation_and_an_event_cost_with_six_servers_what_they_cost_with_two() {
    let all = [2, 6].map(|nodes| measure(nodes, Effort::QUICK));
    println!("{all:?}");
    assert_flat("requests of a read", |one| one.read_requests, &all);
    assert_flat("requests of a write", |one| one.write_requests, &all);
    for one in &all {
        assert_eq!(
            (one.idle_requests, one.idle_changes),
            (0.0, 0.0),
            "servers at rest say nothing but that they live"
        );
        assert_eq!(one.disk_lost_changes, 1.0, "a lost disk is one change of each volume's record");
        assert_eq!(one.node_lost_changes, 1.0, "all disks of a server are one change");
        assert!(one.node_back_changes <= 3.0 && one.takeover_changes <= 3.0, "{one:?}");
    }
}
