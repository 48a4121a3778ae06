//! The heartbeats' thread runs before all that the machine does besides: on one that is overloaded a node would else be taken for dead, which
//! lives.
//!
//! It needs a thousandth of a processor. If it ever takes much more, since somebody floods it with datagrams, it runs like others until that is
//! over, so that nobody else starves.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use types::Monotonic;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of a processor's time between two looks: a quarter.
const SHARE_DIVISOR: u32 = 4;

/// Real-time priority of the calling thread, if it may have that.
pub(super) struct Urgency {
    is_granted: bool,
    /// The priority was given up, for as long as the thread takes too much.
    is_paused: bool,
    looked_at: Monotonic,
    used: Duration,
}

impl Urgency {
    /// Asks for it, and says so if it is not to be had.
    pub fn ask(now: Monotonic) -> Self {
        let asked = sys::ask_for_real_time();
        if let Err(error) = &asked {
            tracing::warn!(
                %error,
                "the heartbeats' thread has no real-time priority: while this machine is overloaded the other servers may take this one \
                 for dead (docs/OPERATIONS.md, Hyper-converged machines)"
            );
        }
        Self { is_granted: asked.is_ok(), is_paused: false, looked_at: now, used: Duration::ZERO }
    }

    /// Looks whether the thread takes too much.
    pub fn look(&mut self, now: Monotonic) {
        if !self.is_granted || now.since(self.looked_at) < LOOK_EVERY {
            return;
        }
        let used = thread_time();
        let is_much = is_much(used.saturating_sub(self.used), now.since(self.looked_at));
        (self.used, self.looked_at) = (used, now);
        if is_much && !self.is_paused {
            sys::give_real_time_up();
            tracing::warn!(
                "the heartbeats' thread has so much to do that it runs without real-time priority for now"
            );
            self.is_paused = true;
        } else if !is_much && self.is_paused {
            self.is_paused = sys::ask_for_real_time().is_err();
        }
    }
}

fn is_much(used: Duration, passed: Duration) -> bool {
    used > passed / SHARE_DIVISOR
}

/// The processor's time that the calling thread has taken so far.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_takes_more_than_a_quarter_of_a_processor_is_not_urgent_any_more() {
        let second = Duration::from_secs(1);
        assert!(!is_much(Duration::from_millis(250), second) && is_much(Duration::from_millis(251), second));
        // One that was stopped for a while may have worked all the time since.
        assert!(!is_much(Duration::from_millis(900), 4 * second));
        let mut urgency =
            Urgency { is_granted: true, is_paused: false, looked_at: Monotonic(0), used: Duration::ZERO };
        urgency.look(Monotonic(0).after(second / 2));
        assert_eq!(urgency.looked_at, Monotonic(0), "it looks once a second");
        urgency.look(Monotonic(0).after(Duration::from_secs(3600)));
        assert!(!urgency.is_paused && urgency.used > Duration::ZERO);
    }
}
