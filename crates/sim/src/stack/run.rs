//! A run: turns of the world, each followed by its director's decision.

use super::Report;
use super::director::Director;
use super::scenario::Scenario;
use super::world::StackWorld;

/// Turns after which a run that does not end is aborted.
const TURNS_MAX: u64 = 2_000_000;

/// Runs one seed.
pub fn run(seed: u64) -> Report {
    run_scenario(seed, Scenario::of_seed(seed))
}

/// Runs one seed under a given scenario.
pub fn run_scenario(seed: u64, scenario: Scenario) -> Report {
    let mut world = StackWorld::new(seed, scenario);
    let mut director = Director::new(&world);
    let mut turns = 0;
    while world.violations.is_empty() && !director.is_finished() {
        world.turn();
        director.drive(&mut world);
        turns += 1;
        if turns > TURNS_MAX {
            world.violations.push(format!("the run does not end: {}", director.doing()));
        }
    }
    Report {
        seed,
        violations: world.violations,
        trace: world.trace.hash(),
        turns,
        virtual_ms: world.now.0 / 1_000_000,
        coverage: world.coverage,
    }
}
