//! Until when the record is known to be ours, if several nodes may open the volume.
//!
//! Invariant: `confirmed_at` is a time at which a request was *sent* whose answer proved the record ours, so that a lease counted from
//! it is over no later than its successor believes.

use super::setting::Setting;
use super::state::StateToken;
use types::Monotonic;

#[derive(Default)]
pub(super) struct Lease {
    confirmed_at: Option<Monotonic>,
    /// The question that was asked last, and when.
    confirming: Option<(StateToken, Monotonic)>,
    /// When that was last asked, whatever became of it.
    asked_at: Option<Monotonic>,
}

impl Lease {
    pub fn is_valid(&self, setting: &Setting) -> bool {
        match (setting.config.lease, self.confirmed_at) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(lease), Some(at)) => setting.now.since(at) < lease,
        }
    }

    /// Notes that an answer to a request sent then proved the record ours.
    pub fn confirm(&mut self, sent_at: Monotonic) {
        self.confirmed_at = self.confirmed_at.max(Some(sent_at));
    }

    /// Says when the record is to be confirmed next.
    pub fn next_timeout(&self, setting: &Setting) -> Option<Monotonic> {
        setting.config.lease.map(|lease| {
            let last = self.asked_at.max(self.confirmed_at);
            last.map_or(setting.now.after(lease / 4), |at| at.after(lease / 4))
        })
    }

    pub fn is_due(&self, setting: &Setting) -> bool {
        let last = self.asked_at.max(self.confirmed_at);
        setting.config.lease.is_some_and(|lease| last.is_none_or(|at| setting.now.since(at) >= lease / 4))
    }

    /// Notes that the record is being read.
    pub fn asked(&mut self, token: StateToken, now: Monotonic) {
        self.confirming = Some((token, now));
        self.asked_at = Some(now);
    }

    /// Returns when this question was asked, if it is the one that is awaited; it is not any more.
    pub fn take_asked(&mut self, token: StateToken) -> Option<Monotonic> {
        let (_, asked_at) = self.confirming.take_if(|(confirming, _)| *confirming == token)?;
        Some(asked_at)
    }
}
