//! Connections to disks: replicas in this process, and the transport to disks of other nodes.
//!
//! Promises: every request gets an answer; [`BusError::Unreachable`] at once if the disk has no
//! connection. Without other nodes no transport is used.

use super::nodes::Found;
use crate::block_store::BlockStore;
use crate::message::{BusError, PeerId, Request, Response, Transport, Waiting};
use crate::replica::Replica;
use pool::{Disk, PoolView};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{DiskId, Epoch, VolumeId};

/// State of a disk of this server that coordinators do not see in the table of disks.
struct OwnDisk<S> {
    /// `None` if the disk is away.
    replica: Option<Replica<S>>,
    /// Damage found by scrubs that other nodes have yet to fetch.
    found: Found,
}

/// Connections to disks.
///
/// Invariant: a disk has a replica if the table's route to it is [`pool::Route::Local`], and only then.
pub(super) struct Bus<S> {
    /// The table of disks, shared with all coordinators.
    pool: Rc<RefCell<PoolView>>,
    own: BTreeMap<DiskId, OwnDisk<S>>,
    /// Carries requests to other nodes.
    pub remote: Option<Box<dyn Transport>>,
    unreachable: Vec<Response>,
    /// Answers for other nodes' coordinators.
    peer_answers: Vec<(PeerId, Response)>,
}

impl<S: BlockStore> Bus<S> {
    pub fn new(pool: Rc<RefCell<PoolView>>) -> Self {
        Self { pool, own: BTreeMap::new(), remote: None, unreachable: Vec::new(), peer_answers: Vec::new() }
    }

    pub fn attach(&mut self, disk: DiskId, replica: Replica<S>) {
        self.own_mut(disk).replica = Some(replica);
    }

    pub fn detach(&mut self, disk: DiskId) -> Option<Replica<S>> {
        self.own.get_mut(&disk)?.replica.take()
    }

    /// Forgets the disk.
    pub fn remove(&mut self, disk: DiskId) -> Option<Replica<S>> {
        self.own.remove(&disk)?.replica
    }

    fn own_mut(&mut self, disk: DiskId) -> &mut OwnDisk<S> {
        self.own.entry(disk).or_insert_with(|| OwnDisk { replica: None, found: Found::default() })
    }

    pub fn replica(&self, disk: DiskId) -> Option<&Replica<S>> {
        self.own.get(&disk)?.replica.as_ref()
    }

    pub fn replica_mut(&mut self, disk: DiskId) -> Option<&mut Replica<S>> {
        self.own.get_mut(&disk)?.replica.as_mut()
    }

    pub fn replicas(&self) -> impl Iterator<Item = (DiskId, &Replica<S>)> {
        self.own.iter().filter_map(|(disk, own)| Some((*disk, own.replica.as_ref()?)))
    }

    pub fn replicas_mut(&mut self) -> impl Iterator<Item = (DiskId, &mut Replica<S>)> {
        self.own.iter_mut().filter_map(|(disk, own)| Some((*disk, own.replica.as_mut()?)))
    }

    /// Returns the damage that scrubs of the disk found.
    pub fn found(&self, disk: DiskId) -> Option<&Found> {
        self.own.get(&disk).map(|own| &own.found)
    }

    pub fn found_mut(&mut self, disk: DiskId) -> &mut Found {
        &mut self.own_mut(disk).found
    }

    pub fn has_news(&self) -> bool {
        !self.unreachable.is_empty()
            || self.replicas().any(|(_, replica)| replica.has_news())
            || self.remote.as_ref().is_some_and(|remote| remote.has_news())
    }

    /// Sends a request of a coordinator of this server to the disk.
    pub fn send(&mut self, to: DiskId, request: Request) {
        if let Some(replica) = self.replica_mut(to) {
            return replica.handle(request);
        }
        let is_remote = self.pool.borrow().disk(to).is_some_and(Disk::is_remote);
        match &mut self.remote {
            Some(remote) if is_remote => remote.send(to, request),
            _ => self.unreachable.push(unreachable(to, &request)),
        }
    }

    /// Moves answers to this server's coordinators into `out`.
    pub fn poll(&mut self, out: &mut Vec<Response>) {
        out.append(&mut self.unreachable);
        for replica in self.own.values_mut().filter_map(|own| own.replica.as_mut()) {
            replica.poll(out);
            replica.poll_peers(&mut self.peer_answers);
        }
        if let Some(remote) = &mut self.remote {
            let before = out.len();
            remote.poll(out);
            let is_own = |disk| self.own.get(&disk).is_some_and(|own| own.replica.is_some());
            debug_assert!(
                out[before..].iter().all(|response| !is_own(response.from)),
                "another node answers for a disk of this one"
            );
        }
    }

    /// Moves reports on requests that wait for transport to other nodes into `out`.
    pub fn poll_waiting(&mut self, out: &mut Vec<Waiting>) {
        if let Some(remote) = &mut self.remote {
            remote.poll_waiting(out);
        }
    }

    /// Takes a request of another node's coordinator.
    pub fn handle_peer(&mut self, peer: PeerId, to: DiskId, request: Request) {
        match self.replica_mut(to) {
            Some(replica) => replica.handle_peer(peer, request),
            None => self.peer_answers.push((peer, unreachable(to, &request))),
        }
    }

    /// Answers a request of another node's coordinator with an error, without the disk.
    pub fn refuse_peer(&mut self, peer: PeerId, from: DiskId, request: &Request, error: BusError) {
        let Request { volume, session, id, .. } = *request;
        self.peer_answers.push((peer, Response { from, volume, session, id, result: Err(error) }));
    }

    /// Returns the epoch that a disk of this node has promised the volume. `None`: the disk is not here.
    pub fn promised(&self, disk: DiskId, volume: VolumeId) -> Option<Epoch> {
        Some(self.replica(disk)?.store().promised(volume))
    }

    pub fn has_peer_answers(&self) -> bool {
        !self.peer_answers.is_empty()
    }

    /// Takes the answers to other nodes' coordinators.
    pub fn take_peer_answers(&mut self) -> impl Iterator<Item = (PeerId, Response)> {
        self.peer_answers.drain(..)
    }

    pub fn end_peer(&mut self, peer: PeerId) {
        self.peer_answers.retain(|(of, _)| *of != peer);
        self.replicas_mut().for_each(|(_, replica)| replica.end_peer(peer));
    }
}

fn unreachable(from: DiskId, request: &Request) -> Response {
    let Request { volume, session, id, .. } = *request;
    Response { from, volume, session, id, result: Err(BusError::Unreachable) }
}
