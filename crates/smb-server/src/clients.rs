//! Connections that carry a session, by the client that made them: whom the server tells of a lease.

use crate::connection::Connection;
use smb::wire::Guid;
use std::collections::BTreeSet;

/// By ClientGuid and age. A client may have any number of connections: the oldest is found without looking at the others.
#[derive(Default)]
pub(crate) struct Clients(BTreeSet<(Guid, u64, u64)>);

impl Clients {
    /// The connection named `key` carries a session from now on, or one more.
    pub fn insert(&mut self, connection: &Connection, key: u64) {
        self.0.insert((connection.client_guid, connection.number, key));
    }

    /// The connection carries none any more, or is about to close.
    pub fn remove(&mut self, connection: &Connection, key: u64) {
        self.0.remove(&(connection.client_guid, connection.number, key));
    }

    /// The client's connections.
    pub fn oldest_first(&self, client: Guid) -> impl Iterator<Item = u64> {
        self.0.range((client, 0, 0)..=(client, u64::MAX, u64::MAX)).map(|(_, _, key)| *key)
    }
}
