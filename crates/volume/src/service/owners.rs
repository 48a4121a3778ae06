//! Opens by owner: those of a session while it lasts, those of a user whether connected or not.
//!
//! Owns indexes, no open. Promises: the end of a session examines nobody else's opens; a user holds no
//! more opens than are left free for everybody else together, so that no user takes all. An open with a
//! long path counts for several: [`Open::places`]. Opens that outlast their connections are also
//! bounded over all volumes ([`super::lasting`]).

use super::lasting::{LastingHere, LastingOpens};
use super::open::Open;
use crate::backend::{OpenId, SessionId};
use std::collections::{BTreeSet, HashMap};
use types::{Monotonic, Sid};

#[derive(Debug, Default)]
struct UserOpens {
    count: usize,
    /// Opens whose clients are away, the longest away first.
    away: BTreeSet<(Monotonic, OpenId)>,
}

/// The indexes.
///
/// Invariant: a connected open is listed with its session, a disconnected one with its user until it is
/// about to be closed; every open counts for its user and for all. One that outlives the server is
/// listed with neither while its client is disconnected. `lasting` counts those that outlive the
/// server, and those in a user's `away`.
#[derive(Debug)]
pub struct Owners {
    connected: HashMap<SessionId, BTreeSet<OpenId>>,
    users: HashMap<Sid, UserOpens>,
    /// Places of all users.
    count: usize,
    lasting: LastingHere,
}

impl Owners {
    /// Makes empty indexes; `lasting`: the count of all volumes.
    pub fn new(lasting: LastingOpens) -> Self {
        let lasting = LastingHere::new(lasting);
        Self { connected: HashMap::new(), users: HashMap::new(), count: 0, lasting }
    }

    /// Adds a new, connected open.
    pub fn opened(&mut self, id: OpenId, open: &Open) {
        self.connected.entry(open.session).or_default().insert(id);
        self.users.entry(open.token.user.clone()).or_default().count += open.places;
        self.count += open.places;
        if open.persistent {
            self.lasting.add(&open.token.user, open.places);
        }
    }

    /// Counts an open whose path has another length for `places` from here on.
    pub fn resized(&mut self, id: OpenId, open: &mut Open, places: usize) {
        let before = std::mem::replace(&mut open.places, places);
        self.count = self.count - before + places;
        let Some(user) = self.users.get_mut(&open.token.user) else { return };
        user.count = user.count - before + places;
        if open.persistent || away_since(open).is_some_and(|since| user.away.contains(&(since, id))) {
            self.lasting.remove(&open.token.user, before);
            self.lasting.add(&open.token.user, places);
        }
    }

    /// Notes that the client of an open is disconnected: `open` has the time.
    pub fn disconnected(&mut self, id: OpenId, open: &Open) {
        self.leave_session(id, open);
        if let (Some(since), Some(user)) = (away_since(open), self.users.get_mut(&open.token.user))
            && user.away.insert((since, id))
        {
            self.lasting.add(&open.token.user, open.places);
        }
    }

    /// Takes an open from those that are away, if it is one of them.
    fn leave_away(&mut self, id: OpenId, open: &Open) {
        if let (Some(since), Some(user)) = (away_since(open), self.users.get_mut(&open.token.user))
            && user.away.remove(&(since, id))
        {
            self.lasting.remove(&open.token.user, open.places);
        }
    }

    /// Notes that an open which was disconnected is about to get a session again.
    pub fn reconnecting(&mut self, id: OpenId, open: &Open, session: SessionId) {
        self.leave_away(id, open);
        self.connected.entry(session).or_default().insert(id);
    }

    /// Notes that an open is about to be closed: it cannot give way to another any more.
    pub fn closing(&mut self, id: OpenId, open: &Open) {
        self.leave_away(id, open);
    }

    /// Removes a closed open.
    pub fn closed(&mut self, id: OpenId, open: &Open) {
        match away_since(open) {
            Some(_) => self.leave_away(id, open),
            None => self.leave_session(id, open),
        }
        self.count -= open.places;
        if open.persistent {
            self.lasting.remove(&open.token.user, open.places);
        }
        if let Some(user) = self.users.get_mut(&open.token.user) {
            debug_assert!(
                user.away.iter().all(|(_, away)| *away != id),
                "an open that is gone gives way to no other"
            );
            user.count -= open.places;
            if user.count == 0 {
                self.users.remove(&open.token.user);
            }
        }
    }

    fn leave_session(&mut self, id: OpenId, open: &Open) {
        if let Some(opens) = self.connected.get_mut(&open.session) {
            opens.remove(&id);
            if opens.is_empty() {
                self.connected.remove(&open.session);
            }
        }
    }

    /// Lists the connected opens of a session.
    pub fn of_session(&self, session: SessionId) -> Vec<OpenId> {
        self.connected.get(&session).map(|opens| opens.iter().copied().collect()).unwrap_or_default()
    }

    /// Counts the places of all opens.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Counts the places of a user's opens, connected or not.
    pub fn count_of(&self, user: &Sid) -> usize {
        self.users.get(user).map_or(0, |user| user.count)
    }

    /// Whether a user may have one more open that outlives the server.
    pub fn may_last(&self, user: &Sid) -> bool {
        self.lasting.may_keep(user)
    }

    /// Finds the open to close, of a user with too many of those that outlast their connections.
    pub fn one_too_many(&self, user: &Sid) -> Option<OpenId> {
        self.lasting.keeps_too_much(user).then(|| self.longest_away(user)).flatten()
    }

    /// Finds the open of this user whose client has been away longest.
    pub fn longest_away(&self, user: &Sid) -> Option<OpenId> {
        self.users.get(user)?.away.first().map(|(_, id)| *id)
    }
}

fn away_since(open: &Open) -> Option<Monotonic> {
    // An open that was promised to outlive the server gives way to nothing.
    let timeout = open.durable.filter(|_| !open.persistent)?.timeout;
    Some(Monotonic(open.disconnected?.0.saturating_sub(timeout.as_nanos() as u64)))
}
