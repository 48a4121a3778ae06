//! The daemon and the command line with disks that fail on demand, for tests.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cenote::entry::main()
}
