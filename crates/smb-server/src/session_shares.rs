//! Who holds the sessions that the server has places for.
//!
//! Promises: there are never more than the bound; a user, and a host, gets one more only if at least as many places are free as it
//! holds already. So one of them takes at most half of all places, two at most three quarters, and others still find one.

use std::collections::HashMap;
use std::hash::Hash;
use types::{PeerHost, Sid};

/// Whom a session is counted against while it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub user: Sid,
    /// Of the connection that the session began on.
    pub host: PeerHost,
}

pub(crate) struct SessionShares {
    free: usize,
    by_user: HashMap<Sid, usize>,
    by_host: HashMap<PeerHost, usize>,
}

impl SessionShares {
    pub fn new(most: usize) -> Self {
        Self { free: most, by_user: HashMap::new(), by_host: HashMap::new() }
    }

    /// Takes a place. False: there is none for this holder.
    #[must_use]
    pub fn take(&mut self, holder: &Holder) -> bool {
        let of_user = self.by_user.get(&holder.user).copied().unwrap_or(0);
        let of_host = self.by_host.get(&holder.host).copied().unwrap_or(0);
        if of_user.max(of_host) >= self.free {
            return false;
        }
        self.free -= 1;
        *self.by_user.entry(holder.user.clone()).or_default() += 1;
        *self.by_host.entry(holder.host).or_default() += 1;
        true
    }

    /// Gives a place back that was taken.
    pub fn give_back(&mut self, holder: &Holder) {
        self.free += 1;
        give_back(&mut self.by_user, &holder.user);
        give_back(&mut self.by_host, &holder.host);
    }
}

fn give_back<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    let count = counts.get_mut(key).expect("what is given back was taken");
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::{Holder, SessionShares};
    use std::net::IpAddr;
    use types::Sid;

    fn holder(user: u32, host: u8) -> Holder {
        let user = Sid::new(5, &[21, 1, 2, 3, user]).unwrap();
        Holder { user, host: IpAddr::from([10, 0, 0, host]).into() }
    }

    fn take_all(shares: &mut SessionShares, who: impl Fn(u8) -> Holder) -> usize {
        (0..=255).take_while(|at| shares.take(&who(*at))).count()
    }

    #[test]
    fn one_user_from_many_hosts_takes_half_and_so_does_one_host_of_many_users() {
        let mut shares = SessionShares::new(100);
        assert_eq!(take_all(&mut shares, |at| holder(1, at)), 50);
        assert_eq!(take_all(&mut shares, |at| holder(100 + u32::from(at), 200)), 25);
        assert!(shares.take(&holder(7, 201)), "another user of another host");
    }

    #[test]
    fn what_is_given_back_can_be_taken_and_nobody_stays_counted() {
        let mut shares = SessionShares::new(4);
        for _ in 0..100 {
            assert_eq!(take_all(&mut shares, |_| holder(1, 1)), 2);
            for _ in 0..2 {
                shares.give_back(&holder(1, 1));
            }
        }
        assert_eq!((shares.free, shares.by_user.len(), shares.by_host.len()), (4, 0, 0));
    }

    #[test]
    fn the_only_place_is_for_whoever_comes_first() {
        let mut shares = SessionShares::new(1);
        assert!(shares.take(&holder(1, 1)));
        assert!(!shares.take(&holder(2, 2)));
    }
}
