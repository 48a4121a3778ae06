use super::*;

/// What is promised of the growth from two servers to more.
const GROWTH_MAX: f64 = 1.1;

fn assert_flat(what: &str, of: impl Fn(&Measured) -> f64, all: &[Measured]) {
    let least = of(&all[0]);
    for one in all {
        assert!(
            of(one) <= least * GROWTH_MAX,
            "{what}: {least} with {} servers, {} with {}",
            all[0].nodes,
            of(one),
            one.nodes
        );
    }
}

#[test]
fn an_operation_and_an_event_cost_the_same_with_two_and_with_eight_servers() {
    let all = [2, 4, 8].map(measure);
    for one in &all {
        println!("{one:?}");
    }
    assert_flat("requests of a read", |one| one.read_requests, &all);
    assert_flat("requests of a write", |one| one.write_requests, &all);
    assert_flat("idle server", |one| one.idle_requests, &all);
}
