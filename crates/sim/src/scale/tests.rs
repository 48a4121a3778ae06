use super::*;

/// What is promised of the growth from two servers to more.
const GROWTH_MAX: f64 = 1.1;
/// Times are rough, of unoptimised code, and what lies on other servers is checked once more: what is looked at for each disk of the pool is beyond it.
const TIME_GROWTH_MAX: f64 = 1.6;

fn assert_flat(what: &str, most: f64, of: impl Fn(&Measured) -> f64, all: &[Measured]) {
    let least = of(&all[0]);
    for one in all {
        let (nodes, here) = (one.nodes, of(one));
        assert!(here <= least * most, "{what}: {least} with {} servers, {here} with {nodes}", all[0].nodes);
    }
}

#[test]
fn an_operation_and_an_event_cost_with_six_servers_what_they_cost_with_two() {
    let all = [2, 6].map(|nodes| measure(nodes, Effort::QUICK));
    println!("{all:?}");
    assert_flat("requests of a read", GROWTH_MAX, |one| one.read_requests, &all);
    assert_flat("requests of a write", GROWTH_MAX, |one| one.write_requests, &all);
    assert_flat("time of a read", TIME_GROWTH_MAX, |one| one.read_ns, &all);
    assert_flat("time of a write", TIME_GROWTH_MAX, |one| one.write_ns, &all);
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
