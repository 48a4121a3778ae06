//! Opens by owner: those of a session while it lasts, those of a user whether connected or not.
//!
//! Owns indexes, no open. Promises: the end of a session looks at nobody else's opens; a user holds no more opens than are left free for
//! everybody else together, so that no user takes all. An open with a long path counts for several: [`Open::places`].

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
/// Invariant: an open that is connected stands with its session, one whose client is away with its user until it is about to be closed;
/// every open counts with its user and with all. One that outlives the server is with its user in number only while its client is away.
#[derive(Debug, Default)]
pub struct Owners {
    connected: HashMap<SessionId, BTreeSet<OpenId>>,
    users: HashMap<Sid, UserOpens>,
    /// Places of all users.
    count: usize,
}

impl Owners {
    /// Adds a new open, which is connected.
    pub fn opened(&mut self, id: OpenId, open: &Open) {
        self.connected.entry(open.session).or_default().insert(id);
        self.users.entry(open.token.user.clone()).or_default().count += open.places;
        self.count += open.places;
    }

    /// Counts an open whose path has another length for `places` from here on.
    pub fn resized(&mut self, open: &mut Open, places: usize) {
        let before = std::mem::replace(&mut open.places, places);
        self.count = self.count - before + places;
        if let Some(user) = self.users.get_mut(&open.token.user) {
            user.count = user.count - before + places;
        }
    }

    /// Notes that the client of an open is gone: `open` says since when.
    pub fn disconnected(&mut self, id: OpenId, open: &Open) {
        self.leave_session(id, open);
        if let (Some(since), Some(user)) = (away_since(open), self.users.get_mut(&open.token.user)) {
            user.away.insert((since, id));
        }
    }

    /// Notes that an open which was disconnected is about to get a session again.
    pub fn reconnecting(&mut self, id: OpenId, open: &Open, session: SessionId) {
        if let (Some(since), Some(user)) = (away_since(open), self.users.get_mut(&open.token.user)) {
            user.away.remove(&(since, id));
        }
        self.connected.entry(session).or_default().insert(id);
    }

    /// Notes that an open is about to be closed: it cannot give way to another any more.
    pub fn closing(&mut self, id: OpenId, open: &Open) {
        if let (Some(since), Some(user)) = (away_since(open), self.users.get_mut(&open.token.user)) {
            user.away.remove(&(since, id));
        }
    }

    /// Removes an open that is gone.
    pub fn closed(&mut self, id: OpenId, open: &Open) {
        match away_since(open) {
            Some(since) => {
                if let Some(user) = self.users.get_mut(&open.token.user) {
                    user.away.remove(&(since, id));
                }
            }
            None => self.leave_session(id, open),
        }
        self.count -= open.places;
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

    /// Finds the open of this user whose client has been away longest.
    pub fn longest_away(&self, user: &Sid) -> Option<OpenId> {
        self.users.get(user)?.away.first().map(|(_, id)| *id)
    }
}

fn away_since(open: &Open) -> Option<Monotonic> {
    // What was promised to outlive the server gives way to nothing.
    let timeout = open.durable.filter(|_| !open.persistent)?.timeout;
    Some(Monotonic(open.disconnected?.0.saturating_sub(timeout.as_nanos() as u64)))
}
