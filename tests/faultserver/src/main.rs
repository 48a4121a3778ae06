//! The daemon and the command line with disks that fail on demand.

#![forbid(unsafe_code)]

mod steered;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Nobody takes it for the program that is installed.
    if std::env::args().nth(1).is_some_and(|argument| argument == "--version") {
        println!("cenote {} with fault injection, for tests only", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    cenote::entry::main(steered::steered)
}
