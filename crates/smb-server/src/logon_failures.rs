//! What failed logons cost: the more of an account or an address there were, the later the next refusal comes.
//!
//! Promises: opening further connections does not get around it; refusals of one address come one after the other; whoever has
//! the right password does not wait; memory is bounded. Nobody is locked out.

use crate::bounded::Bounded;
use std::net::IpAddr;
use std::time::Duration;
use types::{Monotonic, PeerHost};

/// Failed logons in a row after which the delay grows no more.
const COUNTED_MAX: u32 = 4;
/// Forgotten so long after the last one.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// A refusal does not wait in line longer.
const LINE_MAX: Duration = Duration::from_secs(30);
/// Accounts and addresses remembered.
const ENTRIES_MAX: usize = 8192;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Origin {
    /// By its name in lower case.
    Account(String),
    Host(PeerHost),
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Monotonic,
    /// When the last refusal that waits is due.
    line: Monotonic,
}

pub(crate) struct LogonFailures {
    found: Bounded<Origin, Failures>,
}

impl Default for LogonFailures {
    fn default() -> Self {
        Self { found: Bounded::new(ENTRIES_MAX) }
    }
}

fn account_of(user: Option<&str>) -> Option<Origin> {
    user.filter(|user| !user.is_empty()).map(|user| Origin::Account(user.to_lowercase()))
}

impl LogonFailures {
    /// Counts a failed logon. Answers when to refuse it; `delay` is the first one's.
    pub fn failed(
        &mut self,
        user: Option<&str>,
        address: IpAddr,
        delay: Duration,
        now: Monotonic,
    ) -> Monotonic {
        let mut count = 0;
        let mut line = now;
        let address = Origin::Host(address.into());
        for origin in account_of(user).into_iter().chain([address.clone()]) {
            let known = self.found.get_mut(&origin).filter(|known| now.since(known.last) <= REMEMBERED_FOR);
            let mut failures = known.copied().unwrap_or(Failures { count: 0, last: now, line: now });
            failures.count = (failures.count + 1).min(COUNTED_MAX);
            failures.last = now;
            count = count.max(failures.count);
            line = failures.line;
            self.found.insert(origin, failures);
        }
        // The address was last: its refusals are the ones in line.
        let due = line.max(now).after(delay * 2_u32.pow(count.saturating_sub(1))).min(now.after(LINE_MAX));
        if let Some(failures) = self.found.get_mut(&address) {
            failures.line = due;
        }
        due
    }

    /// Somebody at `address` has proved to be `user`.
    pub fn succeeded(&mut self, user: &str, address: IpAddr) {
        if self.found.is_empty() {
            return;
        }
        for origin in account_of(Some(user)).into_iter().chain([Origin::Host(address.into())]) {
            self.found.remove(&origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LogonFailures;
    use std::net::IpAddr;
    use std::time::Duration;
    use types::Monotonic;

    const DELAY: Duration = Duration::from_millis(250);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn waits(failures: &mut LogonFailures, user: &str, from: &str, now: Monotonic) -> Duration {
        failures.failed(Some(user), address(from), DELAY, now).since(now)
    }

    #[test]
    fn refusals_of_an_account_come_later_each_time_from_wherever() {
        let mut failures = LogonFailures::default();
        let waited: Vec<u128> = (1..7)
            .map(|host| waits(&mut failures, "Anna", &format!("10.0.0.{host}"), Monotonic(1)).as_millis())
            .collect();
        assert_eq!(waited, [250, 500, 1000, 2000, 2000, 2000]);
        assert_eq!(waits(&mut failures, "ANNA", "10.1.0.1", Monotonic(1)).as_millis(), 2000);
        assert_eq!(waits(&mut failures, "bob", "10.2.0.1", Monotonic(1)).as_millis(), 250);
    }

    #[test]
    fn refusals_of_an_address_come_one_after_the_other() {
        let mut failures = LogonFailures::default();
        let mut due = Duration::ZERO;
        for user in 0..20 {
            let next = waits(&mut failures, &format!("user{user}"), "fd00::1", Monotonic(1));
            assert!(next > due || next == Duration::from_secs(30), "{next:?}");
            due = next;
        }
        assert_eq!(due, Duration::from_secs(30));
        assert_eq!(waits(&mut failures, "another", "fd00::2", Monotonic(1)), due, "it is the same network");
        assert_eq!(waits(&mut failures, "third", "fd00:0:0:1::2", Monotonic(1)), DELAY);
    }

    #[test]
    fn a_success_and_ten_minutes_make_all_well() {
        let mut failures = LogonFailures::default();
        let (mut now, from) = (Monotonic(1), "10.0.0.1");
        for _ in 0..5 {
            waits(&mut failures, "anna", from, now);
        }
        failures.succeeded("Anna", address(from));
        assert_eq!(waits(&mut failures, "anna", from, now), DELAY);
        waits(&mut failures, "anna", from, now);
        now = now.after(Duration::from_secs(601));
        assert_eq!(waits(&mut failures, "anna", from, now), DELAY);
    }
}
