//! The daemon's side of this server: reports, and services for others.

use crate::identity::Facts;
use api::audit::Outcome;
use api::cluster::{BusPeer, Carried, Errand};
use api::{Answer, Caller};
use heartbeat::shell::{Retreat, Standing};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use types::NodeId;

/// The rest of this server.
pub trait OwnServer: Send + Sync + 'static {
    /// Names of the pools that it has.
    fn pools(&self) -> Answer<'_, Vec<String>>;
    /// How other servers' disks are reached.
    fn bus(&self) -> Answer<'_, Vec<BusPeer>>;
    /// Returns whether another server lives, if heartbeats tell.
    fn is_up(&self, node: NodeId) -> Option<bool>;
    /// How often a majority took a running process of another server for dead, as heard since this one
    /// started; `None`: unknown.
    fn survived(&self, _node: NodeId) -> Option<u64> {
        None
    }
    /// Returns whether this server may answer for volumes; `None`: there are no other voters, or heartbeats
    /// have not begun.
    fn standing(&self) -> Option<Standing> {
        None
    }
    /// Returns the state of a retreat, which the data plane requests when its data reach nobody.
    fn retreating(&self) -> Retreat {
        Retreat::default()
    }
    /// Lets this server fall silent if that is wanted; or not any more.
    fn hush(&self, _is_hushed: bool) {}
    /// Reports to the others whether this server's member of etcd votes.
    fn note_vote(&self, _votes: bool) {}
    /// Prepares the rest of a single server for becoming the first of a cluster while it serves: until
    /// [`OwnServer::stay`] or [`OwnServer::join`] it records nothing as a single server. Refused during
    /// changes, or if the cluster's port is in use.
    fn ready_to_join(&self) -> Answer<'_, ()>;
    /// Stays a single server after all.
    fn stay(&self);
    /// Makes the rest a part of the cluster, which has the records. Done when others may be admitted.
    fn join(&self, facts: Facts) -> Answer<'_, ()>;
}

/// Carries out requests of the API that other servers hand on.
pub trait ErrandRunner: Send + Sync + 'static {
    /// Executes a request. `peer`: the requesting server of the cluster; `caller`: its caller.
    fn carry_out(
        &self,
        peer: SocketAddr,
        errand: Errand,
        caller: Caller,
    ) -> Pin<Box<dyn Future<Output = Carried> + Send + '_>>;

    /// Writes an entry to the audit log.
    fn audit(&self, peer: SocketAddr, action: &str, target: &str, outcome: Outcome, detail: &str);
}

impl ErrandRunner for api::Errands {
    fn carry_out(
        &self,
        peer: SocketAddr,
        errand: Errand,
        caller: Caller,
    ) -> Pin<Box<dyn Future<Output = Carried> + Send + '_>> {
        Box::pin(self.carry_out(peer, errand, caller))
    }

    fn audit(&self, peer: SocketAddr, action: &str, target: &str, outcome: Outcome, detail: &str) {
        self.audit(peer, action, target, outcome, detail);
    }
}
