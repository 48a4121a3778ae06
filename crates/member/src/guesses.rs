//! Limit on a host's wrong tokens.
//!
//! Promises: after [`GUESSES_MAX`] wrong tokens in [`WINDOW`] no token of that host is checked until
//! that time is over; other hosts are not affected; memory is bounded, and so are entries about it in
//! the audit log.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::PeerHost;

/// An administrator mistypes a token a few times. It has 128 random bits: guessing does not find one.
pub const GUESSES_MAX: u32 = 5;
pub const WINDOW: Duration = Duration::from_secs(60);
/// Hosts that are remembered; the one that guessed longest ago is forgotten for another one.
const HOSTS_MAX: usize = 256;
/// Lines in the audit log in [`WINDOW`], of all hosts together.
const LINES_MAX: u32 = 60;

struct Host {
    host: PeerHost,
    began: Instant,
    wrong: u32,
}

#[derive(Default)]
struct Book {
    /// The one that began last at the end.
    hosts: VecDeque<Host>,
    lines: Option<(Instant, u32)>,
}

/// See the module.
#[derive(Default)]
pub struct Guesses(Mutex<Book>);

impl Guesses {
    /// Returns whether a token of this host may be checked.
    pub fn may_ask(&self, host: PeerHost, now: Instant) -> bool {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.hosts.retain(|known| now.duration_since(known.began) < WINDOW);
        !book.hosts.iter().any(|known| known.host == host && known.wrong >= GUESSES_MAX)
    }

    /// The host showed one that is none.
    pub fn note_wrong(&self, host: PeerHost, now: Instant) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = book.hosts.iter_mut().find(|known| known.host == host) {
            known.wrong += 1;
            return;
        }
        if book.hosts.len() == HOSTS_MAX {
            book.hosts.pop_front();
        }
        book.hosts.push_back(Host { host, began: now, wrong: 1 });
    }

    /// Returns whether the logs get an entry for a refused one.
    pub fn may_tell(&self, now: Instant) -> bool {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (began, lines) =
            book.lines.filter(|(began, _)| now.duration_since(*began) < WINDOW).unwrap_or((now, 0));
        book.lines = Some((began, lines.saturating_add(1)));
        lines < LINES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn host(number: u32) -> PeerHost {
        PeerHost::from(IpAddr::from(Ipv4Addr::from(0x0A00_0000 + number)))
    }

    #[test]
    fn a_host_that_guesses_is_not_heard_for_a_while_and_others_are() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for _ in 0..GUESSES_MAX {
            assert!(guesses.may_ask(host(1), now));
            guesses.note_wrong(host(1), now);
        }
        assert!(!guesses.may_ask(host(1), now) && guesses.may_ask(host(2), now));
        assert!(guesses.may_ask(host(1), now + WINDOW));
    }

    #[test]
    fn hosts_and_lines_are_bounded() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        (0..10_000).for_each(|number| guesses.note_wrong(host(number), now));
        assert_eq!(guesses.0.lock().unwrap().hosts.len(), HOSTS_MAX);
        assert_eq!((0..10_000).filter(|_| guesses.may_tell(now)).count(), LINES_MAX as usize);
        assert!(guesses.may_tell(now + WINDOW));
    }
}
