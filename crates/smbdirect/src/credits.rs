//! Credits of both directions, and why they cannot deadlock.
//!
//! A credit is one receive that the other end has posted. An end sends only with a credit, and uses its
//! last one only for a message that grants at least one (MS-SMBD 3.1.5.1). Let T be the target that an
//! end keeps its peer at: the number that the peer asks for, but at least [`TARGET_MIN`] and at most
//! its own receives.
//!
//! 1. An end that sees its peer at one credit or fewer, and has two receives posted to grant, owes a grant ([`Credits::owes_grant`]) and
//!    sends an empty transfer if no data is at hand. With T at least three, two receives are there to be posted then. A credit
//!    for it is there too: by the last-credit rule an end holds at least one unless a grant is on its way, and the transfer
//!    grants, so even the last one may be used.
//! 2. So after every exchange both ends hold two credits or more, or a grant is on its way: an end with data to send is never
//!    blocked for good.
//! 3. Empty transfers die out: each lifts the peer to three credits or more and costs its sender one. Answered by another, both ends
//!    stand at two or more, if nothing is owed.
//!
//! `tests/credits.rs` explores every order of events of two ends with small targets, and this code against the grant rules of
//! other implementations.

/// Least target that keeps two ends moving: with fewer, empty transfers answer each other forever, or nobody may use a last credit.
pub const TARGET_MIN: u16 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Credits {
    /// Transfers that we may send.
    send: u16,
    /// Receives that the peer knows of and has not used.
    granted: u16,
    /// Receives posted that the peer does not know of.
    posted: u16,
    /// Most receives of ours.
    receive_max: u16,
    /// Credits that the peer asked for.
    peer_target: u16,
    /// The peer is kept at [`TARGET_MIN`].
    throttled: bool,
}

impl Credits {
    /// `receive_max` receives will be posted at most.
    pub fn new(receive_max: u16) -> Self {
        Self {
            send: 0,
            granted: 0,
            posted: 0,
            receive_max: receive_max.max(TARGET_MIN),
            peer_target: TARGET_MIN,
            throttled: false,
        }
    }

    pub fn send_credits(&self) -> u16 {
        self.send
    }

    pub fn receive_credits(&self) -> u16 {
        self.granted
    }

    pub fn peer_target(&self) -> u16 {
        self.peer_target
    }

    pub fn set_peer_target(&mut self, requested: u16) {
        self.peer_target = requested.clamp(TARGET_MIN, self.receive_max);
    }

    /// Keeps the peer at the least that cannot deadlock, or ends that.
    pub fn throttle(&mut self, throttled: bool) {
        self.throttled = throttled;
    }

    /// Receives that should be posted now.
    pub fn to_post(&self) -> u16 {
        let target = if self.throttled { TARGET_MIN } else { self.peer_target };
        target.saturating_sub(self.granted + self.posted)
    }

    pub fn posted(&mut self, count: u16) {
        self.posted += count;
    }

    /// The peer used a credit; `false` if it had none.
    #[must_use]
    pub fn received(&mut self) -> bool {
        let had = self.granted > 0;
        self.granted = self.granted.saturating_sub(1);
        had
    }

    /// The peer granted; `false` if that is more than any sender can hold.
    #[must_use]
    pub fn peer_granted(&mut self, count: u16) -> bool {
        match self.send.checked_add(count) {
            Some(sum) => {
                self.send = sum;
                true
            }
            None => false,
        }
    }

    /// The peer is about to stall: an empty transfer is worth sending.
    pub fn owes_grant(&self) -> bool {
        self.posted >= 2 && self.granted <= 1
    }

    /// Whether a transfer may leave now.
    pub fn may_send(&self) -> bool {
        self.send > 1 || self.send == 1 && self.posted > 0
    }

    /// Uses a credit for a transfer; gives the credits that it has to grant.
    pub fn take(&mut self) -> u16 {
        debug_assert!(self.may_send());
        self.send = self.send.saturating_sub(1);
        self.grant()
    }

    /// Grants without using a credit: a negotiate response does not take one.
    pub fn grant(&mut self) -> u16 {
        let grant = self.posted;
        self.granted += grant;
        self.posted = 0;
        grant
    }
}
