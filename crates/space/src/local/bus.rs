//! The ways to disks: replicas in this process, and the transport to disks of other nodes.
//!
//! Promises: every request gets an answer, at once [`BusError::Unreachable`] if there is no way to the
//! disk. Without other nodes no transport is used.

use crate::message::{BusError, PeerId, Request, Response, Transport, Waiting};
use crate::replica::Replica;
use crate::seam::BlockStore;
use std::collections::{BTreeMap, BTreeSet};
use types::{DiskId, Epoch, VolumeId};

/// The ways to disks.
///
/// Invariant: a disk is among the replicas or among `remote_disks`, not both.
pub(super) struct Bus<S> {
    pub replicas: BTreeMap<DiskId, Replica<S>>,
    /// Carries requests to other nodes.
    pub remote: Option<Box<dyn Transport>>,
    /// Disks of other nodes.
    pub remote_disks: BTreeSet<DiskId>,
    unreachable: Vec<Response>,
    /// Answers for other nodes' coordinators.
    peer_answers: Vec<(PeerId, Response)>,
}

impl<S: BlockStore> Bus<S> {
    pub fn new() -> Self {
        Self {
            replicas: BTreeMap::new(),
            remote: None,
            remote_disks: BTreeSet::new(),
            unreachable: Vec::new(),
            peer_answers: Vec::new(),
        }
    }

    /// Whether this node knows a way to the disk.
    pub fn is_attached(&self, disk: DiskId) -> bool {
        self.replicas.contains_key(&disk) || self.remote_disks.contains(&disk)
    }

    pub fn has_news(&self) -> bool {
        !self.unreachable.is_empty()
            || self.replicas.values().any(Replica::has_news)
            || self.remote.as_ref().is_some_and(|remote| remote.has_news())
    }

    /// Sends a request of a coordinator of this server.
    pub fn send(&mut self, to: DiskId, request: Request) {
        if let Some(replica) = self.replicas.get_mut(&to) {
            return replica.handle(request);
        }
        match &mut self.remote {
            Some(remote) if self.remote_disks.contains(&to) => remote.send(to, request),
            _ => self.unreachable.push(unreachable(to, &request)),
        }
    }

    /// Moves answers to this server's coordinators into `out`.
    pub fn poll(&mut self, out: &mut Vec<Response>) {
        out.append(&mut self.unreachable);
        for replica in self.replicas.values_mut() {
            replica.poll(out);
            replica.poll_peers(&mut self.peer_answers);
        }
        if let Some(remote) = &mut self.remote {
            let before = out.len();
            remote.poll(out);
            debug_assert!(
                out[before..].iter().all(|response| !self.replicas.contains_key(&response.from)),
                "another node answers for a disk of this one"
            );
        }
    }

    /// Moves the news of requests that wait for their way to other nodes into `out`.
    pub fn poll_waiting(&mut self, out: &mut Vec<Waiting>) {
        if let Some(remote) = &mut self.remote {
            remote.poll_waiting(out);
        }
    }

    /// Takes a request of another node's coordinator.
    pub fn handle_peer(&mut self, peer: PeerId, to: DiskId, request: Request) {
        match self.replicas.get_mut(&to) {
            Some(replica) => replica.handle_peer(peer, request),
            None => self.peer_answers.push((peer, unreachable(to, &request))),
        }
    }

    /// Answers a request of another node's coordinator without asking the disk.
    pub fn refuse_peer(&mut self, peer: PeerId, from: DiskId, request: &Request, error: BusError) {
        let Request { volume, session, id, .. } = *request;
        self.peer_answers.push((peer, Response { from, volume, session, id, result: Err(error) }));
    }

    /// Returns the epoch that a disk of this node has promised the volume. `None`: the disk is not here.
    pub fn promised(&self, disk: DiskId, volume: VolumeId) -> Option<Epoch> {
        Some(self.replicas.get(&disk)?.store().promised(volume))
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
        self.replicas.values_mut().for_each(|replica| replica.end_peer(peer));
    }
}

fn unreachable(from: DiskId, request: &Request) -> Response {
    let Request { volume, session, id, .. } = *request;
    Response { from, volume, session, id, result: Err(BusError::Unreachable) }
}
