//! The daemon and the command line in one binary.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cenote::entry::main(node::on_loop)
}
