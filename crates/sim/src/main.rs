//! Runs seeds of the simulator and prints their findings:
//! `sim [--world space|stack|persistent-opens] [--first SEED] [--seeds N | --seconds N] [--threads N] [--stop]`.
//!
//! Without a world all run, for 20, 70 and 10 % of the time; without numbers, 100 seeds of each.
//! Seeds that failed once (crates/sim/kept-seeds.txt) run first. With the feature `planted-bugs`,
//! `sim --planted [NAME] [--quick]` plants each bug that seeds must find (with `--quick` only those
//! that few seeds find) and requires a finding. With a world, it plants every bug in 100 of its
//! seeds.

use sim::{Finding, World};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: sim [--world space|stack|persistent-opens] [--first SEED] [--seeds N | --seconds N] [--threads N] [--stop] \
                     [--planted [NAME] [--quick]]";
/// Failing seeds that are printed in full.
const TOLD_MAX: usize = 20;

#[derive(Debug, Default)]
struct Arguments {
    world: Option<World>,
    first: u64,
    seeds: Option<u64>,
    seconds: Option<u64>,
    threads: usize,
    stop: bool,
    planted: Option<String>,
    quick: bool,
}

impl Arguments {
    fn parse() -> Option<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut parsed = Self { threads, ..Self::default() };
        let mut arguments = std::env::args().skip(1).peekable();
        while let Some(argument) = arguments.next() {
            let mut number = || arguments.next().and_then(|value| value.parse::<u64>().ok());
            match argument.as_str() {
                "--first" => parsed.first = number()?,
                "--seeds" => parsed.seeds = Some(number()?),
                "--seconds" => parsed.seconds = Some(number()?),
                "--threads" => parsed.threads = number()? as usize,
                "--world" => parsed.world = Some(World::from_name(&arguments.next()?)?),
                "--stop" => parsed.stop = true,
                "--quick" => parsed.quick = true,
                "--planted" => {
                    let name = arguments.next_if(|next| !next.starts_with("--"));
                    parsed.planted = Some(name.unwrap_or_default());
                }
                _ => return None,
            }
        }
        Some(parsed)
    }
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(name) = &arguments.planted {
        return plant_each(name, &arguments);
    }
    let (mut passed, mut failed) = run_kept(&arguments);
    for world in World::ALL {
        if arguments.world.is_some_and(|only| only != world) || (failed > 0 && arguments.stop) {
            continue;
        }
        let (well, badly) = run_seeds(world, &arguments);
        passed += well;
        failed += badly;
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(finding: &Finding) {
    let Finding { world, seed, violations, scenario, .. } = finding;
    println!("not ok  {} seed {seed} ({scenario}):", world.name());
    violations.iter().take(8).for_each(|violation| println!("  {violation}"));
    println!("  again: cargo xtask sim --release --world {} --first {seed} --seeds 1", world.name());
}

fn run_kept(arguments: &Arguments) -> (u64, u64) {
    let (mut passed, mut failed) = (0, 0);
    // A caller who requests certain seeds wants no others.
    if arguments.first > 0 {
        return (passed, failed);
    }
    for (world, seed) in sim::kept_seeds() {
        if arguments.world.is_some_and(|only| only != world) {
            continue;
        }
        let finding = world.run(seed);
        match finding.violations.is_empty() {
            true => passed += 1,
            false => {
                failed += 1;
                tell(&finding);
            }
        }
    }
    (passed, failed)
}

/// Runs seeds of one world on all threads. Returns how many passed and failed.
fn run_seeds(world: World, arguments: &Arguments) -> (u64, u64) {
    let share = match (arguments.world, world) {
        (Some(_), _) => 1.0,
        (None, World::Space) => 0.2,
        (None, World::Stack) => 0.7,
        (None, World::PersistentOpens) => 0.1,
    };
    let until = arguments.seconds.map(|seconds| Duration::from_secs_f64(seconds as f64 * share));
    let count = arguments.seeds.unwrap_or(if until.is_some() { u64::MAX } else { 100 });
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let stopped = AtomicBool::new(false);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let late = until.is_some_and(|until| began.elapsed() >= until);
                    if at >= count || late || stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    let finding = world.run(arguments.first.wrapping_add(at));
                    done.fetch_add(1, Ordering::Relaxed);
                    if !finding.violations.is_empty() {
                        stopped.fetch_or(arguments.stop, Ordering::Relaxed);
                        found.lock().expect("no thread panics while it holds it").push(finding);
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panics while it holds it");
    found.sort_by_key(|finding| finding.seed);
    found.iter().take(TOLD_MAX).for_each(tell);
    let (done, failed) = (done.into_inner(), found.len() as u64);
    if failed as usize > TOLD_MAX {
        let seeds: Vec<u64> = found.iter().map(|finding| finding.seed).collect();
        println!("  all that failed: {seeds:?}");
    }
    let took = began.elapsed().as_secs_f32();
    println!(
        "{}      {}: {done} seeds from {}, {failed} with violations, in {took:.1} s: {:.2} seeds a second on {} threads",
        if failed == 0 { "ok" } else { "not ok" },
        world.name(),
        arguments.first,
        done as f32 / took,
        arguments.threads
    );
    (done - failed, failed)
}

#[cfg(feature = "planted-bugs")]
fn plant_each(name: &str, arguments: &Arguments) -> ExitCode {
    use sim::bugs::{Bug, Finder};
    let (mut passed, mut failed) = (0, 0);
    for bug in Bug::all().into_iter().filter(|bug| name.is_empty() || bug.name().contains(name)) {
        let seeds = arguments.seeds.unwrap_or(100);
        let finder = match arguments.world {
            Some(world) => Some(Finder { world, first: 0, seeds }),
            None => bug.finder().filter(|finder| !arguments.quick || finder.is_quick()),
        };
        let Some(finder) = finder else { continue };
        let began = Instant::now();
        let found = find_planted(bug, finder, arguments);
        let (took, name) = (began.elapsed().as_secs_f32(), bug.name());
        let (world, seeds) = (finder.world.name(), finder.seeds);
        match found {
            Some(finding) => {
                passed += 1;
                let what: String =
                    finding.violations.first().map_or("", String::as_str).chars().take(110).collect();
                println!("ok      {name}: {world} seed {} of {seeds}, {took:.1} s: {what}", finding.seed);
            }
            None => {
                failed += 1;
                println!("not ok  {name}: not found by {seeds} seeds of {world} in {took:.1} s");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds with the bug on all threads until one finds it.
#[cfg(feature = "planted-bugs")]
fn find_planted(bug: sim::bugs::Bug, finder: sim::bugs::Finder, arguments: &Arguments) -> Option<Finding> {
    let (next, found) = (AtomicU64::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let is_found = found.lock().expect("no thread panics while it holds it").is_some();
                    if at >= finder.seeds || is_found {
                        return;
                    }
                    let seed = arguments.first.wrapping_add(finder.first).wrapping_add(at);
                    if let Some(finding) = sim::bugs::find(bug, finder.world, seed) {
                        *found.lock().expect("no thread panics while it holds it") = Some(finding);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no thread panics while it holds it")
}

#[cfg(not(feature = "planted-bugs"))]
fn plant_each(_: &str, _: &Arguments) -> ExitCode {
    eprintln!("no bugs can be planted in this build: cargo xtask sim --planted builds one where they can");
    ExitCode::from(2)
}
