//! Counting and throttling.

use super::{MS, S, Scene, Simulated, depth, one};
use crate::engine::Failure;
use crate::profile::{Target, Throughput};

#[test]
fn a_millisecond_each_one_deep_is_a_thousand_a_second_of_a_millisecond() {
    let ran = one(depth(1)).run(Simulated::steady(MS));
    let read = &ran.results[0].read;
    assert_eq!((read.operations, read.bytes), (10_000, 40_960_000));
    assert_eq!(read.latency.mean_ms(), Some(1.0));
    assert_eq!(read.latency.std_dev_ms(), Some(0.0));
    for share in [0.0, 0.5, 0.99, 0.999_999, 1.0] {
        assert_eq!(read.latency.percentile_ms(share), Some(1.0));
    }
    assert_eq!(read.intervals.counts, [1000; 10]);
    assert_eq!(read.intervals.iops_std_dev(), 0.0);
    assert_eq!(ran.results[0].write.operations, 0);
}

#[test]
fn ten_milliseconds_each_thirty_two_deep_are_3200_a_second() {
    let ran = one(depth(32)).run(Simulated::steady(10 * MS));
    let read = &ran.results[0].read;
    assert_eq!(read.operations, 32_000);
    assert_eq!(read.latency.mean_ms(), Some(10.0));
    // 10,000 us lie in a bucket of 8 us.
    let median = read.latency.percentile_ms(0.5).expect("has values");
    assert!((median - 10.0).abs() <= 0.01, "{median}");
}

#[test]
fn stalls_are_in_the_percentiles_where_they_belong() {
    let mut count = 0;
    let port = Simulated::new(move |request, _| {
        count += 1;
        (if count % 100 == 0 { S } else { MS }, Ok(request.len_bytes))
    });
    let mut scene = one(depth(1));
    (scene.span.warm_up_s, scene.span.duration_s) = (0, 1099);
    let read = &scene.run(port).results[0].read;
    // A thousand rounds of 99 ms and a second; the last completion is at the end, which is no longer inside.
    assert_eq!(read.operations, 99_999);
    assert_eq!(read.latency.percentile_ms(0.98), Some(1.0));
    assert_eq!(read.latency.percentile_ms(0.99), Some(1.0));
    let slow = read.latency.percentile_ms(0.995).expect("has values");
    assert!((slow - 1000.0).abs() <= 1.0, "{slow}");
    assert_eq!(read.latency.max_ms(), Some(1000.0));
    let mean = read.latency.mean_ms().expect("has values");
    let exact = (99_000.0 + 999.0 * 1000.0) / 99_999.0;
    assert!((mean - exact).abs() < 1e-9, "{mean}");
}

/// Documented in the crate: time runs from the handing over, so that a stall counts once per slot.
#[test]
fn a_stall_counts_once_per_slot() {
    let stall = |request: &crate::engine::Request, now: u64| {
        let until = if (7 * S..8 * S).contains(&now) { 8 * S - now + MS } else { MS };
        (until, Ok(request.len_bytes))
    };
    let read = &one(depth(4)).run(Simulated::new(stall)).results[0].read;
    let slow: u64 = read.latency.entries().filter(|(us, _)| *us > 1000).map(|(_, count)| count).sum();
    assert_eq!(slow, 4);
    assert_eq!(read.operations, 4 * 9_000);
}

#[test]
fn only_what_ends_inside_the_span_is_counted() {
    let mut scene = one(depth(1));
    (scene.span.warm_up_s, scene.span.duration_s, scene.span.cool_down_s) = (1, 1, 3);
    // Ends at 0.6, 1.2, 1.8, 2.4 ...
    let ran = scene.run(Simulated::steady(600 * MS));
    assert_eq!(ran.results[0].read.operations, 2);
    assert_eq!(ran.results[0].read.intervals.counts, [2]);
    assert_eq!(ran.issued.last().map(|(at, _)| *at), Some(4_800 * MS), "the cool-down goes on issuing");
}

#[test]
fn throttles_hold_within_one_percent() {
    for (throughput, a_second) in [
        (Throughput::Iops(1000), 1000.0),
        (Throughput::Iops(333), 333.0),
        (Throughput::Iops(7), 7.0),
        (Throughput::BytesPerMillisecond(4096), 1000.0),
        (Throughput::BytesPerMillisecond(10_000), 10_000_000.0 / 4096.0),
    ] {
        for delay in [MS / 20, MS, 3 * MS] {
            let mut scene = one(Target { throughput: Some(throughput), ..depth(8) });
            scene.span.duration_s = 100;
            let read = &scene.run(Simulated::steady(delay)).results[0].read;
            let share = read.operations as f64 / 100.0 / a_second;
            assert!((share - 1.0).abs() <= 0.01, "{throughput:?} with {delay} ns: {share}");
            assert_eq!(read.latency.mean_ms(), Some(delay as f64 / 1e6), "waiting is no latency");
        }
    }
}

#[test]
fn a_throttled_thread_catches_up_for_a_second_at_most() {
    let run = |stall_s: u64| {
        let stall = move |request: &crate::engine::Request, now: u64| {
            let stalled = (6 * S..(6 + stall_s) * S).contains(&now);
            (if stalled { (6 + stall_s) * S - now } else { MS / 10 }, Ok(request.len_bytes))
        };
        let target = Target { throughput: Some(Throughput::Iops(1000)), ..depth(1) };
        one(target).run(Simulated::new(stall)).results[0].read.operations
    };
    assert!((9_990..=10_000).contains(&run(1)), "{}", run(1));
    // Three seconds were lost, of which one is made up for.
    assert!((7_990..=8_010).contains(&run(3)), "{}", run(3));
}

#[test]
fn bursts_and_think_times_alternate() {
    let target = Target { burst_size: 10, think_time_ms: 50, ..depth(1) };
    let ran = one(target).run(Simulated::steady(MS));
    // Ten in 10 ms; the rest of 50 ms runs from the last one's issue.
    let starts: Vec<u64> = ran.issued.iter().take(21).map(|(at, _)| at / MS).collect();
    assert_eq!(starts[..11], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 59]);
    assert_eq!(starts[20], 118);
    let alone = Target { think_time_ms: 20, ..depth(1) };
    assert_eq!(one(alone).run(Simulated::steady(MS)).results[0].read.operations, 500, "a burst of one");
}

#[test]
fn shares_of_writes_and_weights_of_targets_are_kept() {
    let mut scene = Scene::new(vec![
        Target { weight: 1, write_percent: 30, path: "a".into(), ..depth(2) },
        Target { weight: 3, path: "b".into(), ..depth(2) },
    ]);
    (scene.span.thread_count, scene.span.request_count) = (1, 16);
    let ran = scene.run(Simulated::steady(MS));
    let (a, b) = (ran.results[0].total().operations, ran.results[1].total().operations);
    assert_eq!(a + b, 160_000, "all slots are always in use");
    let share = a as f64 / 160_000.0;
    assert!((share - 0.25).abs() < 0.005, "{share}");
    let writes = ran.results[0].write.operations as f64 / a as f64;
    assert!((writes - 0.30).abs() < 0.01, "{writes}");
    assert_eq!(ran.results[1].write.operations, 0);
}

#[test]
fn every_slot_of_every_target_is_kept_busy_without_a_pool() {
    let scene = Scene::new(vec![depth(2), depth(3)]);
    let ran = scene.run(Simulated::steady(MS));
    assert_eq!(ran.results[0].read.operations, 20_000);
    assert_eq!(ran.results[1].read.operations, 30_000);
}

#[test]
fn an_interruption_leaves_what_was_measured_until_then() {
    let mut scene = one(depth(1));
    scene.interrupt_ns = Some(7 * S + MS / 2);
    let ran = scene.run(Simulated::steady(MS));
    assert_eq!(ran.outcome, Ok(()));
    assert_eq!(ran.control.measured_ns(), 2 * S + MS / 2);
    // The completions at 5.000 s to 7.000 s.
    assert_eq!(ran.results[0].read.operations, 2001);
    scene.interrupt_ns = Some(S);
    assert_eq!(scene.run(Simulated::steady(MS)).control.measured_ns(), 0, "before the measurements began");
}

#[test]
fn the_first_failure_ends_the_thread_and_is_named() {
    let mut scene = Scene::new(vec![depth(1), Target { write_percent: 100, ..depth(1) }]);
    scene.thread = 5;
    let port = Simulated::new(|request, now| {
        let fails = request.is_write && now >= 3 * S;
        (MS, if fails { Err(Failure::Errno(28)) } else { Ok(request.len_bytes) })
    });
    let ran = scene.run(port);
    let failure = ran.outcome.expect_err("a write failed");
    assert_eq!(
        (failure.thread, failure.operation, failure.failure),
        (5, Some((1, true)), Failure::Errno(28))
    );
}

#[test]
fn short_transfers_count_what_they_moved() {
    let port = Simulated::new(|_, _| (MS, Ok(1000)));
    let read = &one(depth(1)).run(port).results[0].read;
    assert_eq!(read.bytes, read.operations * 1000);
}
