//! Numbers of sessions of each user and host, within the server's places.
//!
//! Promises: the bound is never exceeded; a user, and a host, holds no more places than are free
//! ([`Budget`]). So one of them takes at most half of all places, and others still find one.

use super::budget::{Budget, HolderId};
use std::hash::Hash;
use types::{PeerHost, Sid};

/// The user and the host that a session is counted against while it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub user: Sid,
    /// Of the connection that the session began on.
    pub host: PeerHost,
}

pub(crate) struct SessionShares {
    users: Budget<Sid>,
    hosts: Budget<PeerHost>,
}

impl SessionShares {
    pub fn new(most: usize) -> Self {
        Self { users: Budget::new(most), hosts: Budget::new(most) }
    }

    /// Takes a place. False: none for this holder.
    #[must_use]
    pub fn take(&mut self, holder: &Holder) -> bool {
        let may_take = self.users.may_take(&holder.user, 1) && self.hosts.may_take(&holder.host, 1);
        if may_take {
            count(&mut self.users, &holder.user, Budget::take);
            count(&mut self.hosts, &holder.host, Budget::take);
        }
        may_take
    }

    /// Returns a place.
    pub fn give_back(&mut self, holder: &Holder) {
        count(&mut self.users, &holder.user, Budget::release);
        count(&mut self.hosts, &holder.host, Budget::release);
    }
}

/// A holder is entered in its budget while it holds something.
fn count<K: Hash + Eq + Clone>(
    budget: &mut Budget<K>,
    key: &K,
    change: impl FnOnce(&mut Budget<K>, HolderId, usize),
) {
    let holder = budget.enter(key);
    change(budget, holder, 1);
    budget.leave(holder);
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
        assert_eq!((shares.users.held(), shares.hosts.held()), (0, 0));
    }

    #[test]
    fn the_only_place_is_for_whoever_comes_first() {
        let mut shares = SessionShares::new(1);
        assert!(shares.take(&holder(1, 1)));
        assert!(!shares.take(&holder(2, 2)));
    }
}
