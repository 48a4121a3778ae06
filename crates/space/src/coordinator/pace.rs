//! Speed of background work.
//!
//! Invariant: while the volume is in use, a step is followed by a rest that is a multiple of the time that the step took.

use super::context::Context;
use types::Monotonic;

#[derive(Default)]
pub(super) struct Pace {
    not_before: Monotonic,
    step_began: Option<Monotonic>,
}

impl Pace {
    /// Lets no step begin before this time.
    pub fn delay(&mut self, until: Monotonic) {
        self.not_before = self.not_before.max(until);
    }

    /// Returns the time of the next step, if it must not begin now.
    pub fn rests_until(&self, now: Monotonic) -> Option<Monotonic> {
        (self.not_before > now).then_some(self.not_before)
    }

    pub fn step_begins(&mut self, now: Monotonic) {
        self.step_began = Some(now);
    }

    pub fn step_done(&mut self, volume_is_in_use: bool, context: &Context) {
        if let Some(began) = self.step_began.take()
            && volume_is_in_use
        {
            let rest = context.now.since(began) * context.config.background_rest;
            self.delay(context.now.after(rest));
        }
    }
}
