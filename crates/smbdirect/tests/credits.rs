//! Two ends with credits: in any order of events, an end with data gets to send it, and idle ends fall silent.

use smbdirect::credits::Credits;
use std::collections::{HashSet, VecDeque};

/// How an end decides about grants: ours, or what is known of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Rule {
    Ours,
    /// Grants what it has posted as soon as the peer is low, even a single receive.
    Eager,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct End {
    credits: Credits,
    rule: Rule,
    data: u8,
    /// (grants, carries data), on their way to this end.
    inbox: VecDeque<(u16, bool)>,
}

impl End {
    fn new(target_of_peer: u16, receive_max: u16, first_credits: u16, rule: Rule, data: u8) -> Self {
        let mut credits = Credits::new(receive_max);
        credits.set_peer_target(target_of_peer);
        assert!(credits.peer_granted(first_credits));
        Self { credits, rule, data, inbox: VecDeque::new() }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Deliver(usize),
    Post(usize),
    Send(usize),
}

/// Steps that are possible in this state of the two ends.
fn steps(ends: &[End; 2]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (at, end) in ends.iter().enumerate() {
        if !end.inbox.is_empty() {
            steps.push(Step::Deliver(at));
        }
        if end.credits.to_post() > 0 {
            steps.push(Step::Post(at));
        }
        let eager =
            end.rule == Rule::Eager && end.credits.to_post() == 0 && end.credits.receive_credits() <= 1;
        let wants = end.data > 0 || end.credits.owes_grant() || eager && end.credits.owes_grant();
        if wants && end.credits.may_send() {
            steps.push(Step::Send(at));
        }
    }
    steps
}

fn apply(mut ends: [End; 2], step: Step) -> [End; 2] {
    match step {
        Step::Deliver(at) => {
            let (grant, _) = ends[at].inbox.pop_front().expect("a transfer is there");
            assert!(ends[at].credits.received(), "the peer sent without a credit");
            assert!(ends[at].credits.peer_granted(grant));
        }
        Step::Post(at) => {
            let count = ends[at].credits.to_post();
            ends[at].credits.posted(count);
        }
        Step::Send(at) => {
            let grant = ends[at].credits.take();
            let data = ends[at].data > 0;
            ends[at].data -= u8::from(data);
            ends[1 - at].inbox.push_back((grant, data));
        }
    }
    ends
}

/// Explores every order of events from a start.
fn explore(start: [End; 2]) {
    let mut seen = HashSet::from([start.clone()]);
    let mut todo = vec![start];
    while let Some(state) = todo.pop() {
        let next = steps(&state);
        if next.is_empty() {
            assert!(state.iter().all(|end| end.data == 0), "silent with data unsent: {state:?}");
        }
        for step in next {
            let after = apply(state.clone(), step);
            if seen.insert(after.clone()) {
                todo.push(after);
            }
        }
        assert!(seen.len() < 3_000_000, "the ends never fall silent");
    }
}

/// The server's response granted; the client's receives are posted and not granted yet.
fn pair(client_target: u16, server_target: u16, rules: [Rule; 2], data: [u8; 2]) -> [End; 2] {
    let mut server = End::new(client_target, 8, 0, rules[1], data[1]);
    let to_post = server.credits.to_post();
    server.credits.posted(to_post);
    let granted = server.credits.grant();
    [End::new(server_target, 8, granted, rules[0], data[0]), server]
}

#[test]
fn two_ends_with_small_targets_never_deadlock_in_any_order_of_events() {
    for client_target in 1..=4 {
        for server_target in 1..=4 {
            explore(pair(client_target, server_target, [Rule::Ours, Rule::Ours], [3, 3]));
        }
    }
}

#[test]
fn one_sided_traffic_never_deadlocks() {
    for target in 1..=5 {
        explore(pair(target, target, [Rule::Ours, Rule::Ours], [7, 0]));
        explore(pair(target, target, [Rule::Ours, Rule::Ours], [0, 7]));
    }
}

#[test]
fn peers_that_grant_eagerly_do_not_deadlock_with_us() {
    for rules in [[Rule::Ours, Rule::Eager], [Rule::Eager, Rule::Ours]] {
        for target in 1..=4 {
            explore(pair(target, target, rules, [3, 3]));
        }
    }
}

/// Without data, empty transfers die out: from any reachable state the longest run of events is finite and short.
#[test]
fn empty_transfers_die_out() {
    for target in 1..=6 {
        let mut ends = pair(target, target, [Rule::Ours, Rule::Ours], [2, 2]);
        let mut count = 0;
        while let Some(&step) = steps(&ends).last() {
            ends = apply(ends, step);
            count += 1;
            assert!(count < 200, "target {target}: still talking");
        }
    }
}
