//! `fleet`: reads the command line and runs its command.

#![forbid(unsafe_code)]

use clap::Parser;
use fleet::args::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    match fleet::commands::main(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("fleet: {failure}");
            ExitCode::from(failure.exit_status)
        }
    }
}
