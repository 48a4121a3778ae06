//! The search against systems that are curves: their capacity, the growth of their CPU use and latency,
//! their scatter.

use super::*;
use crate::fit::Fit;

/// A system: the most it does, and its CPU use at a load.
struct Curve {
    most: f64,
    cpu: fn(f64) -> f64,
    read_ms: fn(f64) -> f64,
    /// Relative, one for each run in turn.
    noise: &'static [f64],
}

const KNEE: Curve = Curve {
    most: 100_000.0,
    // Flattens from 80 % of the most on.
    cpu: |iops| if iops < 80_000.0 { 5.0 + iops / 2000.0 } else { 45.0 + (iops - 80_000.0) / 400.0 },
    read_ms: |iops| 0.2 / (1.01 - iops / 100_000.0),
    noise: &[0.0],
};

const WORKERS: u64 = 20;
const FREE: Shape = Shape { is_limited: false, targets: 1 };

/// Runs a whole search; `usual`: the load of a profile's own limits.
fn search(curve: &Curve, shape: Shape, usual: f64, limits: Limits) -> (Search, String) {
    let mut search = Search::new(shape, true, WORKERS, limits, Vec::new());
    for run in 0.. {
        let trial = match search.next_step() {
            Step::Run(trial) => trial,
            Step::Done(why) => return (search, why),
        };
        assert_eq!(search.next_step(), Step::Run(trial), "asked twice, the answer is the same");
        let asked = match (trial.run_type, trial.qos) {
            (RunType::Baseline, _) => usual,
            (_, 0) => f64::INFINITY,
            (_, qos) => (qos * WORKERS) as f64,
        };
        let noise = 1.0 + curve.noise[run % curve.noise.len()];
        let iops = asked.min(curve.most) * noise;
        let figures = Figures {
            iops,
            cpu_percent: (curve.cpu)(iops.min(curve.most)),
            read_ms: Some((curve.read_ms)(iops.min(curve.most))),
            write_ms: None,
        };
        search.record(trial, figures);
        assert!(run < RUNS_MAX, "the search does not end");
    }
    unreachable!()
}

fn curve_points(search: &Search) -> Vec<(f64, f64)> {
    let good = search.results().iter().filter(|result| result.run_type == RunType::Default);
    good.map(|result| (result.cpu_percent, result.iops)).collect()
}

#[test]
fn an_unlimited_profile_begins_wide_open_and_halves() {
    let mut search = Search::new(FREE, true, WORKERS, Limits::default(), Vec::new());
    let Step::Run(anchor) = search.next_step() else { panic!() };
    assert_eq!(anchor, Trial { run_type: RunType::Default, qos: 0, is_search: false });
    search.record(anchor, Figures { iops: 100_000.0, cpu_percent: 95.0, ..Figures::default() });
    let Step::Run(half) = search.next_step() else { panic!() };
    assert_eq!(half, Trial { run_type: RunType::Default, qos: 2500, is_search: true });
}

#[test]
fn infill_splits_the_steep_part_of_a_knee_and_ends() {
    let (search, why) = search(&KNEE, FREE, 0.0, Limits::default());
    assert!((5..=20).contains(&search.results().len()), "{} runs: {why}", search.results().len());
    let above = search.results().iter().filter(|result| result.iops > 75_000.0).count();
    assert!(above >= 2, "the knee is looked at: {:?}", search.results());
    let fit = Fit::quadratic(&curve_points(&search)).unwrap();
    assert!(fit.r_squared > 0.9, "{fit:?}");
    assert!(fit.a[2] < 0.0, "the curve flattens: {fit:?}");
}

#[test]
fn noise_under_the_scale_window_does_not_end_the_search_early() {
    let noisy = Curve { noise: &[0.0, 0.012, -0.011, 0.008, -0.014, 0.003], ..KNEE };
    let (search, why) = search(&noisy, FREE, 0.0, Limits::default());
    assert!(search.results().iter().all(|result| result.cutoff != Cutoff::Surge), "{why}");
    assert!((5..=25).contains(&search.results().len()), "{} runs: {why}", search.results().len());
    let fit = Fit::quadratic(&curve_points(&search)).unwrap();
    let half = fit.at(25.0);
    assert!((half - 40_000.0).abs() < 8_000.0, "IOPS at 25 % CPU: {half}");
}

#[test]
fn a_surge_ends_the_search_at_once() {
    let surging = Curve { noise: &[0.0, 0.02], ..KNEE };
    let (search, why) = search(&surging, FREE, 0.0, Limits::default());
    assert_eq!(search.results().len(), 2);
    assert_eq!(search.results()[1].cutoff, Cutoff::Surge);
    assert!(why.contains("surge"), "{why}");
}

#[test]
fn several_limited_targets_are_scaled_up_to_a_cutoff_and_halved_to_within_2_percent() {
    let shape = Shape { is_limited: true, targets: 2 };
    let (search, _) = search(&KNEE, shape, 1000.0, Limits::default());
    let results = search.results();
    assert_eq!(results[0].run_type, RunType::Baseline);
    let anchors: Vec<&Measured> =
        results.iter().filter(|result| result.run_type == RunType::AnchorSearch).collect();
    // 1000, five times as much each time: 5000, 25000, 125000, which the system cannot do.
    assert_eq!(anchors[0].qos, 250);
    assert_eq!(anchors[1].qos, 1250);
    assert_eq!((anchors[2].qos, anchors[2].cutoff), (6250, Cutoff::Scale));
    let good = anchors.iter().filter(|result| result.cutoff == Cutoff::No).map(|result| result.iops);
    let best = good.fold(0.0, f64::max);
    assert!(best > 95_000.0, "the anchor is near the most that the system does: {best}");
    assert!(results.iter().any(|result| result.run_type == RunType::Default), "infill follows");
}

#[test]
fn one_limited_target_has_a_baseline_and_is_then_let_go() {
    let shape = Shape { is_limited: true, targets: 1 };
    let (search, _) = search(&KNEE, shape, 1000.0, Limits::default());
    let first: Vec<(RunType, u64)> =
        search.results()[..2].iter().map(|result| (result.run_type, result.qos)).collect();
    assert_eq!(first, [(RunType::Baseline, 0), (RunType::Default, 0)]);
}

#[test]
fn nothing_above_a_cutoff_is_split() {
    let limits = Limits { cpu_percent: Some(40.0), ..Limits::default() };
    let shape = Shape { is_limited: true, targets: 2 };
    let (search, _) = search(&KNEE, shape, 1000.0, limits);
    let good = search.results().iter().filter(|result| result.cutoff == Cutoff::No);
    let best = good.map(|result| result.iops).fold(0.0, f64::max);
    // 40 % of CPU are 70,000.
    assert!((66_000.0..=70_000.0).contains(&best), "{best}");
    let beyond =
        search.results().iter().filter(|result| result.cutoff != Cutoff::No).map(|result| result.iops);
    let lowest_beyond = beyond.fold(f64::INFINITY, f64::min);
    let infill = search.results().iter().filter(|result| result.run_type == RunType::Default);
    for result in infill {
        assert!(result.iops <= lowest_beyond, "{result:?} lies above the cutoff at {lowest_beyond}");
    }
}

#[test]
fn cutoffs_are_looked_for_in_their_order() {
    let limits = Limits { cpu_percent: Some(40.0), read_ms: Some(3.0), write_ms: Some(3.0) };
    let all = Figures { iops: 1.0, cpu_percent: 90.0, read_ms: Some(9.0), write_ms: Some(9.0) };
    let at = |iops, change: fn(&mut Figures)| {
        let mut figures = Figures { iops, ..all };
        change(&mut figures);
        judge(100, 10, figures, limits)
    };
    assert_eq!(at(1016.0, |_| ()), Cutoff::Surge);
    assert_eq!(at(984.0, |_| ()), Cutoff::Scale);
    assert_eq!(at(1014.0, |_| ()), Cutoff::Cpu);
    assert_eq!(at(1000.0, |figures| figures.cpu_percent = 40.0), Cutoff::ReadLatency);
    let write = |figures: &mut Figures| (figures.cpu_percent, figures.read_ms) = (1.0, Some(3.0));
    assert_eq!(at(1000.0, write), Cutoff::WriteLatency);
    let none = |figures: &mut Figures| *figures = Figures { iops: 986.0, ..Figures::default() };
    assert_eq!(at(0.0, none), Cutoff::No);
    assert_eq!(judge(0, 10, Figures::default(), limits), Cutoff::No);
}

#[test]
fn a_search_goes_on_from_the_results_of_another() {
    let (whole, _) = search(&KNEE, FREE, 0.0, Limits::default());
    for kept in 0..whole.results().len() {
        let earlier = whole.results()[..kept].to_vec();
        let mut resumed = Search::new(FREE, true, WORKERS, Limits::default(), earlier);
        let next = whole.results()[kept];
        let Step::Run(trial) = resumed.next_step() else { panic!("it ended after {kept} runs") };
        assert_eq!((trial.run_type, trial.qos), (next.run_type, next.qos), "after {kept} runs");
    }
}

#[test]
fn a_system_without_any_load_ends_the_search() {
    let dead = Curve { most: 0.0, cpu: |_| 3.0, read_ms: |_| 0.0, noise: &[0.0] };
    let (search, why) = search(&dead, FREE, 0.0, Limits::default());
    assert_eq!(search.results().len(), 1, "{why}");
}

#[test]
fn a_single_run_is_not_searched() {
    let mut search = Search::new(FREE, false, 1, Limits::default(), Vec::new());
    let Step::Run(trial) = search.next_step() else { panic!() };
    search.record(trial, Figures { iops: 10.0, ..Figures::default() });
    assert!(matches!(search.next_step(), Step::Done(_)));
}

#[test]
fn words_are_read_as_they_are_written() {
    for (cutoff, word) in CUTOFFS {
        assert_eq!((Cutoff::parse(word), cutoff.to_string().as_str()), (Some(cutoff), word));
    }
    for (run_type, word) in RUN_TYPES {
        assert_eq!((RunType::parse(word), run_type.to_string().as_str()), (Some(run_type), word));
    }
    assert_eq!(Cutoff::parse("cpu"), None);
}
