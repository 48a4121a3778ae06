//! `fleet`: reads the command line and does what it says.

#![forbid(unsafe_code)]

fn main() {}
