//! The daemon and the command line.

#![forbid(unsafe_code)]

use clap::Parser;

fn main() -> std::process::ExitCode {
    match cenote::cli::run(cenote::cli::args::Cli::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            anstream::eprintln!("cenote: {}", failure.message);
            std::process::ExitCode::from(failure.exit_status)
        }
    }
}
