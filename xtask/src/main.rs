//! `cargo xtask NAME`: the project's own chores.
//!
//! `cargo xtask sim [--first SEED] [--seeds N] [--stop]` runs the simulator; `cargo xtask sim --planted [--seeds N]` plants each known
//! bug in turn and requires that the simulator finds it.
//!
//! `cargo xtask soak rdma [--minutes N]` lets clients load a daemon while their connections are killed ([`soak`]).

mod soak;

use std::process::{Command, ExitCode};

/// Features of `cenote-space` that each re-introduce one bug.
const PLANTED: [&str; 12] = [
    "bug-accept-old-epochs",
    "bug-accept-replays",
    "bug-ack-before-cas",
    "bug-ack-first-copy",
    "bug-guess-on-unknown",
    "bug-join-before-drain",
    "bug-no-reconcile",
    "bug-read-stale-copy",
    "bug-resync-skips-region",
    "bug-serve-corrupt",
    "bug-skip-promise",
    "bug-stale-since-too-late",
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("sim") => simulate(arguments.collect()),
        Some("soak") => soak::run(arguments.collect()),
        _ => {
            eprintln!(
                "usage: cargo xtask sim [--planted] [--first SEED] [--seeds N] [--stop]\n       \
                 cargo xtask soak rdma [--minutes N] [--release | --cenote BINARY] [--seed N]"
            );
            ExitCode::from(2)
        }
    }
}

fn simulate(mut arguments: Vec<String>) -> ExitCode {
    let given = arguments.len();
    arguments.retain(|argument| argument != "--planted");
    if arguments.len() == given {
        return if run(None, &arguments) == Some(0) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    arguments.push("--stop".into());
    let missed: Vec<&str> =
        PLANTED.into_iter().filter(|bug| run(Some(bug), &arguments) != Some(FOUND)).collect();
    if missed.is_empty() {
        println!("all {} planted bugs were found", PLANTED.len());
        return ExitCode::SUCCESS;
    }
    println!("not found: {}", missed.join(", "));
    ExitCode::FAILURE
}

/// The simulator's exit code where a seed violates an invariant. A build that fails has another.
const FOUND: i32 = 1;

/// Runs the simulator; its exit code.
fn run(bug: Option<&str>, arguments: &[String]) -> Option<i32> {
    let mut command = Command::new("cargo");
    command.args(["run", "-q", "-p", "cenote-sim", "--example", "sim"]);
    // Debug builds check arithmetic; a little optimisation makes many seeds bearable.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1");
    if let Some(bug) = bug {
        println!("planted: {bug}");
        command.args(["--features", &format!("space/{bug}")]);
    }
    command.arg("--").args(arguments);
    command.status().ok().and_then(|status| status.code())
}
