//! `cargo xtask NAME`: the project's own chores.
fn main() {}
