//! The daemon and the command line in one binary.

#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cenote::cli::run(cenote::cli::args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                anstream::eprintln!("cenote: {}", failure.message);
            }
            ExitCode::from(failure.exit_status)
        }
    }
}
