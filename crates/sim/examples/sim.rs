//! Runs seeds of the simulator and says what they found: `sim [--first SEED] [--seeds N] [--stop]`. With the feature
//! `planted-bugs`, `sim --planted [NAME] [--seeds N]` plants each known bug in turn and requires that some seed finds it.

use std::process::ExitCode;

const USAGE: &str = "usage: sim [--first SEED] [--seeds N] [--stop] [--planted [NAME]]";

fn main() -> ExitCode {
    let (mut first, mut count, mut stop) = (0_u64, None, false);
    let mut planted = None;
    let mut arguments = std::env::args().skip(1).peekable();
    while let Some(argument) = arguments.next() {
        let number = |value: Option<String>| value.and_then(|value| value.parse::<u64>().ok());
        match argument.as_str() {
            "--first" => first = number(arguments.next()).unwrap_or(first),
            "--seeds" => count = number(arguments.next()).or(count),
            "--stop" => stop = true,
            "--planted" => {
                planted = Some(arguments.next_if(|next| !next.starts_with("--")).unwrap_or_default());
            }
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match planted {
        Some(name) => plant_each(&name, first, count.unwrap_or(sim::SEEDS_TO_FIND)),
        None => run_seeds(first, count.unwrap_or(100), stop),
    }
}

fn run_seeds(first: u64, count: u64, stop: bool) -> ExitCode {
    let mut failed = 0_u64;
    let began = std::time::Instant::now();
    for seed in first..first.saturating_add(count) {
        let report = sim::run(seed);
        if report.violations.is_empty() {
            continue;
        }
        failed += 1;
        println!("seed {seed} ({:?}), after {} steps:", sim::Scenario::of_seed(seed), report.steps);
        report.violations.iter().take(8).for_each(|violation| println!("  {violation}"));
        if stop {
            break;
        }
    }
    let took = began.elapsed().as_secs_f32();
    println!("{count} seeds from {first}: {failed} with violations, in {took:.1} s");
    println!("{} passed, {failed} failed", count - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "planted-bugs")]
fn plant_each(name: &str, first: u64, seeds: u64) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for bug in space::planted::Planted::ALL {
        if !name.is_empty() && format!("{bug:?}") != name {
            continue;
        }
        let began = std::time::Instant::now();
        match sim::find_planted(bug, first, seeds) {
            Some(report) => {
                passed += 1;
                let (took, seed) = (began.elapsed().as_secs_f32(), report.seed);
                let what = report.violations.first().map_or("", String::as_str);
                println!("ok      {bug:?}: seed {seed}, {took:.1} s: {}", &what[..what.len().min(100)]);
            }
            None => {
                failed += 1;
                println!("not ok  {bug:?}: not found by {seeds} seeds from {first}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(feature = "planted-bugs"))]
fn plant_each(_: &str, _: u64, _: u64) -> ExitCode {
    eprintln!("no bugs can be planted in this build: cargo xtask sim --planted builds one where they can");
    ExitCode::from(2)
}
