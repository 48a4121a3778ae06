//! `cargo xtask NAME`: the project's own chores.
//!
//! `cargo xtask sim [--world space|stack|persistent-opens] [--first SEED] [--seeds N | --seconds N] [--stop]` runs the simulator on all cores;
//! `cargo xtask sim --planted [NAME] [--quick]` plants bugs, one after the other, and requires that the simulator finds them. `--release`
//! runs many seeds fast, without checked arithmetic.
//!
//! `cargo xtask tidy [RULE ...]` checks the rules of the house ([`tidy`]).
//!
//! `cargo xtask changed` names the crates that a change touches, as arguments for cargo ([`changed`]).
//!
//! `cargo xtask commits` checks the form of new commits ([`commits`]).
//!
//! `cargo xtask dist` makes the packages ([`dist`]).
//!
//! `cargo xtask protocols` makes the code of etcd's protocol ([`protocols`]).
//!
//! `cargo xtask scale [--out DIR]` counts what two to sixteen servers cost, for docs/SCALE.md ([`scale`]).
//!
//! `cargo xtask soak rdma [--minutes N]` lets clients load a daemon while their connections are killed ([`soak`]).

mod changed;
mod commits;
mod dist;
mod protocols;
mod scale;
mod soak;
mod tidy;

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("sim") => simulate(&arguments.collect::<Vec<_>>()),
        Some("changed") => changed::run(),
        Some("commits") => commits::run(),
        Some("protocols") => protocols::run(),
        Some("tidy") => tidy::run(&arguments.collect::<Vec<_>>()),
        Some("dist") => dist::run(arguments.collect()),
        Some("scale") => scale::run(&arguments.collect::<Vec<_>>()),
        Some("soak") => soak::run(arguments.collect()),
        _ => {
            eprintln!(
                "usage: cargo xtask sim [--planted [NAME] [--quick]] [--world space|stack|persistent-opens] [--first SEED] [--seeds N | --seconds N] [--threads N] \
                 [--stop] [--release]\n       \
                 cargo xtask tidy [RULE ...]\n       \
                 cargo xtask changed\n       \
                 cargo xtask commits\n       \
                 cargo xtask protocols\n       \
                 cargo xtask scale [--out DIR]\n       \
                 cargo xtask soak rdma [--minutes N] [--release] [--cenote BINARY] [--client BINARY] [--seed N]\n       \
                 cargo xtask dist [--binaries DIR] [--out DIR] [--version VERSION] [--only deb|rpm]"
            );
            ExitCode::from(2)
        }
    }
}

/// Runs the simulator. Bugs are compiled in only for planting them: assertions about the product are
/// made of a build without any.
fn simulate(arguments: &[String]) -> ExitCode {
    let mut command = Command::new("cargo");
    command.args(["run", "-q", "-p", "cenote-sim"]);
    if arguments.iter().any(|argument| argument == "--planted") {
        command.args(["--features", "planted-bugs"]);
    }
    let (fast, arguments): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| *argument == "--release");
    command.args(fast);
    match command.arg("--").args(arguments).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
