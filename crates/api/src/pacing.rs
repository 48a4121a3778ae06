//! Rate limit of one token's changes.
//!
//! Each change leaves an entry in the audit log, which keeps a bounded number of them: the limit keeps
//! a token from pushing out others' entries in a moment. Promises: a token has [`AT_ONCE`] changes
//! immediately, and then one each [`EVERY`]; further ones wait for their turn, and delay no other
//! token. Keeps no clock.

use records::api_tokens::TokenHash;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// More than anybody does by hand, and most programs in one go.
pub(crate) const AT_ONCE: u32 = 200;
/// The log's files, 80 MiB, are full after hours at the earliest.
pub(crate) const EVERY: Duration = Duration::from_millis(50);
/// Number of tokens from which those are forgotten whose changes have all had their turn.
const TOKENS_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(crate) struct Pacing(Mutex<HashMap<TokenHash, Instant>>);

impl Pacing {
    /// Returns the wait of a change that arrives `now`.
    pub fn wait(&self, token: TokenHash, now: Instant) -> Duration {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= TOKENS_MAX {
            turns.retain(|_, next| *next > now);
        }
        // Time when all changes requested so far have had their turn at this pace.
        let next = turns.entry(token).or_insert(now);
        *next = (*next).max(now) + EVERY;
        next.saturating_duration_since(now + EVERY * AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_some_changes_at_once_then_a_pace_and_others_have_their_own() {
        let (pacing, now) = (Pacing::default(), Instant::now());
        let (token, other) = (TokenHash::of(b"one"), TokenHash::of(b"other"));
        for _ in 0..AT_ONCE {
            assert_eq!(pacing.wait(token, now), Duration::ZERO);
        }
        assert_eq!(pacing.wait(token, now), EVERY);
        assert_eq!(pacing.wait(token, now), EVERY * 2);
        assert_eq!(pacing.wait(other, now), Duration::ZERO);
        let later = now + EVERY * (AT_ONCE + 2);
        assert_eq!(pacing.wait(token, later), Duration::ZERO, "what it did not use it has again");
    }
}
