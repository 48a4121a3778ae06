//! Prints a run to standard error, for debugging, if `CENOTE_SIM_LOG` is set.

use super::client::Doing;
use std::sync::LazyLock;
use types::{Monotonic, NtStatus};
use volume::backend::Reply;

static WANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("CENOTE_SIM_LOG").is_some());

pub(crate) fn say(now: Monotonic, step: u64, what: impl FnOnce() -> String) {
    if *WANTED {
        eprintln!("{:>12.6} {step:>7} {}", now.0 as f64 / 1e9, what());
    }
}

pub(crate) fn asked(now: Monotonic, step: u64, client: usize, number: u64, doing: &Doing) {
    say(now, step, || format!("client {client} asks {number}: {:?}", doing.what));
}

pub(crate) fn answered(
    now: Monotonic,
    step: u64,
    client: usize,
    number: u64,
    result: &Result<Reply, NtStatus>,
) {
    say(now, step, || {
        let text = format!("{result:?}");
        format!("client {client} is answered {number}: {}", text.chars().take(320).collect::<String>())
    });
}

pub(crate) fn stage(now: Monotonic, step: u64, what: &str) {
    say(now, step, || format!("--- {what}"));
}

pub(crate) fn event(now: Monotonic, step: u64, what: &impl std::fmt::Debug) {
    say(now, step, || format!("    {what:?}"));
}
