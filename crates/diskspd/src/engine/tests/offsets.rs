//! Where operations go.

use super::{MS, Scene, Simulated, depth, one};
use crate::engine::Request;
use crate::engine::offsets::{Offsets, TooSmall};
use crate::engine::random::Random;
use crate::profile::{Distribution, Target};
use std::collections::BTreeMap;
use std::sync::Arc;

const UNITS: u64 = 100;

/// Draws from a target of 100 blocks of 4 KiB.
fn draw(target: &Target, count: usize) -> Vec<u64> {
    let mut offsets = Offsets::new(target, UNITS * 4096, 0, 1, &Arc::default()).expect("has room");
    let mut random = Random::new(7, 0);
    (0..count).map(|_| offsets.next(0, &mut random)).collect()
}

fn random() -> Target {
    Target { random_percent: 100, ..depth(1) }
}

fn counts(offsets: &[u64]) -> Vec<u64> {
    let mut counts = vec![0; UNITS as usize];
    for offset in offsets {
        assert_eq!(offset % 4096, 0);
        counts[(offset / 4096) as usize] += 1;
    }
    counts
}

fn chi_square(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum()
}

#[test]
fn random_offsets_are_uniform_by_chi_square() {
    let chi = chi_square(&counts(&draw(&random(), 1_000_000)));
    // 99 degrees of freedom: one in a thousand lies above 148.2, one in a thousand below 60.
    assert!((60.0..148.2).contains(&chi), "{chi}");
}

#[test]
fn pairs_of_random_offsets_are_uniform_too() {
    let offsets = draw(&random(), 1_000_000);
    let mut pairs = vec![0u64; (UNITS * UNITS) as usize];
    for pair in offsets.chunks_exact(2) {
        pairs[(pair[0] / 4096 * UNITS + pair[1] / 4096) as usize] += 1;
    }
    // 9,999 degrees of freedom: mean 9,999, deviation 141.
    let chi = chi_square(&pairs);
    assert!((9_999.0 - 500.0..9_999.0 + 500.0).contains(&chi), "{chi}");
}

#[test]
fn the_same_seed_gives_the_same_offsets_and_threads_differ() {
    assert_eq!(draw(&random(), 100), draw(&random(), 100));
    let of_stream = |stream| {
        let mut random = Random::new(7, stream);
        (0..10).map(|_| random.below(1 << 40)).collect::<Vec<_>>()
    };
    assert_ne!(of_stream(0), of_stream(1));
}

#[test]
fn alignment_and_block_may_differ_and_every_operation_fits() {
    let target = Target { block_bytes: 65_536, stride_bytes: Some(4096), random_percent: 100, ..depth(1) };
    let offsets = draw(&target, 100_000);
    let last = UNITS * 4096 - 65_536;
    assert!(offsets.iter().all(|offset| offset % 4096 == 0 && *offset <= last));
    assert!(offsets.contains(&last) && offsets.contains(&0));
}

#[test]
fn base_and_length_bound_what_is_used() {
    let target = Target { base_offset_bytes: 8192, max_offset_bytes: 8192 + 10 * 4096, ..random() };
    let mut offsets = draw(&target, 10_000);
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets, (0..10).map(|unit| 8192 + unit * 4096).collect::<Vec<_>>());
}

#[test]
fn a_distribution_by_percent_is_kept() {
    let ranges = vec![(90, 10), (0, 10), (5, 20)];
    let target = Target { distribution: Some(Distribution::Percent(ranges)), ..random() };
    let counts = counts(&draw(&target, 1_000_000));
    let share = |from: usize, to: usize| counts[from..to].iter().sum::<u64>() as f64 / 10_000.0;
    assert!((share(0, 10) - 90.0).abs() < 0.2, "{}", share(0, 10));
    assert_eq!(share(10, 20), 0.0, "a gap");
    assert!((share(20, 40) - 5.0).abs() < 0.1, "{}", share(20, 40));
    assert!((share(40, 100) - 5.0).abs() < 0.1, "the rest goes to the rest: {}", share(40, 100));
    assert!((18.0..=73.0).contains(&chi_square(&counts[40..60])), "and is uniform in each range");
}

#[test]
fn a_distribution_by_bytes_is_kept() {
    let ranges = vec![(80, 10 * 4096), (20, 20 * 4096)];
    let target = Target { distribution: Some(Distribution::Absolute(ranges)), ..random() };
    let counts = counts(&draw(&target, 100_000));
    let share = |from: usize, to: usize| counts[from..to].iter().sum::<u64>() as f64 / 1000.0;
    assert!((share(0, 10) - 80.0).abs() < 0.5 && (share(10, 30) - 20.0).abs() < 0.5);
    assert_eq!(share(30, 100), 0.0);
}

#[test]
fn distributions_wider_than_the_target_stay_inside() {
    for ranges in [vec![(50, u64::MAX), (50, u64::MAX)], vec![(1, 1), (99, 1 << 40)], vec![(10, 4096)]] {
        let target = Target { distribution: Some(Distribution::Absolute(ranges)), ..random() };
        assert!(draw(&target, 10_000).iter().all(|offset| *offset < UNITS * 4096));
    }
}

#[test]
fn sequential_offsets_step_and_go_on_at_the_base() {
    let target = Target { base_offset_bytes: 4096, max_offset_bytes: 4096 * 5, ..depth(1) };
    assert_eq!(draw(&target, 6), [4096, 8192, 12_288, 16_384, 4096, 8192]);
    let strided = Target { stride_bytes: Some(10_000), ..depth(1) };
    let offsets = draw(&strided, 41);
    assert_eq!((offsets[1], offsets[39], offsets[40]), (10_000, 390_000, 400_000));
    assert_eq!(draw(&strided, 42)[41], 0);
}

#[test]
fn threads_begin_a_thread_stride_apart() {
    let target = Target { thread_stride_bytes: 40_960, threads: 2, ..depth(1) };
    let mut scene = one(target.clone());
    (scene.thread, scene.size_bytes) = (1, UNITS * 4096);
    let first: Vec<u64> =
        scene.run(Simulated::steady(MS)).issued.iter().take(3).map(|(_, request)| request.offset).collect();
    assert_eq!(first, [40_960, 45_056, 49_152]);
    assert_eq!(
        Offsets::new(&target, UNITS * 4096, 10, 1, &Arc::default()).err(),
        Some(TooSmall),
        "the eleventh thread has no room"
    );
}

/// The seed's line: 64 KiB at a stride of 4 KiB, eight threads, one shared offset.
#[test]
fn interlocked_threads_share_one_sequence() {
    let target = Target {
        block_bytes: 65_536,
        stride_bytes: Some(4096),
        interlocked: true,
        threads: 8,
        request_count: 1,
        ..Target::default()
    };
    let size_bytes = 20 << 20;
    let units = (size_bytes - 65_536) / 4096 + 1;
    let shared = Arc::default();
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    let mut issued = 0;
    for thread in 0..8 {
        let mut scene = Scene { thread, size_bytes, shared: Arc::clone(&shared), ..one(target.clone()) };
        (scene.span.warm_up_s, scene.span.duration_s) = (0, 1 + thread);
        let requests: Vec<Request> =
            scene.run(Simulated::steady(MS)).issued.into_iter().map(|(_, request)| request).collect();
        for pair in requests.windows(2) {
            let step = if pair[0].offset / 4096 + 1 == units { 0 } else { pair[0].offset + 4096 };
            assert_eq!(pair[1].offset, step);
        }
        issued += requests.len() as u64;
        requests.iter().for_each(|request| *all.entry(request.offset).or_default() += 1);
    }
    // Every place was used as often as every other, up to the last round.
    let whole = issued / units;
    assert!(whole >= 7);
    assert!(all.values().all(|count| *count == whole || *count == whole + 1));
    assert_eq!(all.values().sum::<u64>(), issued);
    assert_eq!(all.len() as u64, units);
}

#[test]
fn parallel_operations_each_go_through_the_same_offsets() {
    let target = Target { parallel_async: true, ..depth(3) };
    let issued = one(target).run(Simulated::steady(MS)).issued;
    let of_slot = |slot: u32| {
        issued
            .iter()
            .filter(move |(_, one)| one.slot == slot)
            .map(|(_, one)| one.offset)
            .take(50)
            .collect::<Vec<_>>()
    };
    let expected: Vec<u64> = (0..50).map(|step| step * 4096).collect();
    for slot in 0..3 {
        assert_eq!(of_slot(slot), expected);
    }
}

#[test]
fn a_mix_has_its_share_of_random_ones_and_geometric_runs() {
    let target = Target { random_percent: 20, ..depth(1) };
    let mut scene = one(target);
    (scene.span.warm_up_s, scene.span.duration_s) = (0, 100);
    let issued = scene.run(Simulated::steady(MS)).issued;
    // On 262,144 blocks a random offset hardly ever happens to be the next one.
    let mut runs = vec![0u32];
    for pair in issued.windows(2) {
        if pair[1].1.offset == pair[0].1.offset + 4096 {
            *runs.last_mut().expect("has one") += 1;
        } else {
            runs.push(0);
        }
    }
    let jumps = (runs.len() - 1) as f64 / issued.len() as f64;
    assert!((jumps - 0.20).abs() < 0.005, "{jumps}");
    let share = |length: u32| runs.iter().filter(|run| **run == length).count() as f64 / runs.len() as f64;
    for length in 0..4 {
        let expected = 0.2 * 0.8f64.powi(length as i32);
        assert!((share(length) - expected).abs() < 0.01, "{length}: {}", share(length));
    }
}

#[test]
fn a_target_without_room_for_one_operation_is_too_small() {
    for (base, limit, size) in [(0, 0, 4095), (4096, 0, 4096), (0, 100, 1 << 20), (1 << 30, 0, 1 << 20)] {
        let target = Target { base_offset_bytes: base, max_offset_bytes: limit, ..depth(1) };
        assert_eq!(Offsets::new(&target, size, 0, 1, &Arc::default()).err(), Some(TooSmall));
    }
    assert!(Offsets::new(&depth(1), 4096, 0, 1, &Arc::default()).is_ok());
}
