//! Connections that carry a session, by the client that made them: whom the server tells of a lease.

use super::keys::ConnectionId;
use smb::wire::Guid;
use std::collections::BTreeSet;

/// By ClientGuid and age. A client may have any number of connections: the oldest is found without looking at the others.
#[derive(Default)]
pub(crate) struct Clients(BTreeSet<(Guid, u64, u64)>);

impl Clients {
    /// Adds a connection that carries a session from now on, or one more. `number` rises from connection to connection.
    pub fn insert(&mut self, client: Guid, number: u64, id: ConnectionId) {
        self.0.insert((client, number, id.0));
    }

    /// Removes a connection that carries none any more, or is about to close.
    pub fn remove(&mut self, client: Guid, number: u64, id: ConnectionId) {
        self.0.remove(&(client, number, id.0));
    }

    /// The client's connections.
    pub fn oldest_first(&self, client: Guid) -> impl Iterator<Item = ConnectionId> {
        self.0.range((client, 0, 0)..=(client, u64::MAX, u64::MAX)).map(|(_, _, id)| ConnectionId(*id))
    }
}
