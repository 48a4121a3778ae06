//! Runs seeds of the simulator and says what they found: `sim [--first SEED] [--seeds N] [--stop]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut first, mut count, mut stop) = (0_u64, 100_u64, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = |value: Option<String>| value.and_then(|value| value.parse::<u64>().ok());
        match argument.as_str() {
            "--first" => first = number(arguments.next()).unwrap_or(first),
            "--seeds" => count = number(arguments.next()).unwrap_or(count),
            "--stop" => stop = true,
            _ => {
                eprintln!("usage: sim [--first SEED] [--seeds N] [--stop]");
                return ExitCode::from(2);
            }
        }
    }
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
    println!(
        "{count} seeds from {first}: {failed} with violations, in {:.1} s",
        began.elapsed().as_secs_f32()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
