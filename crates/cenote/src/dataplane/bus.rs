//! The storage bus in the data plane of a cluster's node: its disks for the others, and theirs for its pools.
//!
//! Owns the connecting side. The accepting side is one of the SMB server's backends, as a volume is. Of a single server there is nothing here.

use crate::control::{ClusterCommand, ClusterOptions};
use bus::{BusEvent, LocalDisks, Remote};
use node::{Membership, Node};
use space::local::nodes::DiskReport;
use space::message::{PeerId, Request, Response};
use std::cell::Cell;
use std::rc::Weak;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::driver::Driver;
use types::{DiskId, Monotonic};

/// The disks of the node, as the others reach them. The node owns the server that has this, and not the other way round.
pub(super) struct NodeDisks(pub Weak<Node>);

impl LocalDisks for NodeDisks {
    fn handle(&mut self, peer: PeerId, disk: DiskId, request: Request) {
        if let Some(node) = self.0.upgrade() {
            node.handle_remote(peer, disk, request);
        }
    }

    fn poll(&mut self, out: &mut Vec<(PeerId, DiskId, Response)>) {
        if let Some(node) = self.0.upgrade() {
            node.poll_remote(out);
        }
    }

    fn end(&mut self, peer: PeerId) {
        if let Some(node) = self.0.upgrade() {
            node.end_peer(peer);
        }
    }

    fn disks(&self) -> Vec<DiskId> {
        let Some(node) = self.0.upgrade() else { return Vec::new() };
        let mut here = Vec::new();
        for entry in node.pools.entries().values() {
            let disks = entry.space.disks();
            let own = disks.iter().filter(|disk| disk.attached && !entry.space.is_remote(disk.disk));
            here.extend(own.map(|disk| disk.disk));
        }
        here
    }

    fn report(&self, disk: DiskId, cursor: u64) -> Option<DiskReport> {
        self.0.upgrade()?.report(disk, cursor)
    }
}

/// The connecting side, and what the heartbeats let this node do.
pub(super) struct Bus {
    remote: Remote,
    lease_until: Arc<AtomicU64>,
    /// The lease that the node took last.
    told: Cell<Monotonic>,
}

impl Bus {
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(driver: &Driver, options: &ClusterOptions, now: Monotonic) -> std::io::Result<Self> {
        let remote = Remote::new(driver, options.bus.clone(), now)?;
        Ok(Self { remote, lease_until: options.lease_until.clone(), told: Cell::new(Monotonic(0)) })
    }

    /// What makes the server a node, whose pools reach other nodes' disks by this bus.
    pub fn membership(&self, options: &ClusterOptions) -> Membership {
        let remote = self.remote.clone();
        let ClusterOptions { node, name, lease, .. } = options;
        let transport = Box::new(move |_| -> Box<dyn space::message::Transport> { Box::new(remote.port()) });
        Membership { node: *node, name: name.clone(), lease: *lease, transport }
    }

    /// How other nodes are reached.
    pub fn peers(&self) -> Vec<bus::PeerStatus> {
        self.remote.peers()
    }

    pub fn command(&self, node: &Node, command: ClusterCommand) {
        match command {
            ClusterCommand::Peers(peers) => self.remote.set_peers(peers),
            ClusterCommand::Nodes(nodes) => {
                for (id, life) in &nodes {
                    self.remote.set_alive(*id, life.is_up);
                }
                node.set_nodes(nodes);
            }
            ClusterCommand::Bus { reply } => {
                // Nobody may be waiting any more.
                let _ = reply.send(self.remote.peers());
            }
        }
    }

    /// Follows the records: whose each disk is.
    pub fn look(&self, node: &Node) {
        let disks = node.neighbours.disks();
        self.remote
            .set_disks(disks.iter().filter_map(|(disk, record)| Some((*disk, record.node?))).collect());
    }

    /// Carries what nodes say to each other; says whether something moved.
    pub fn poll(&self, node: &Node, now: Monotonic) -> bool {
        let lease_until = Monotonic(self.lease_until.load(Ordering::Acquire));
        if lease_until > self.told.get().max(now) {
            // A lease of another term begins behind the end of the last one, but perhaps not behind the beginning of this turn: the node
            // has to see that it had none.
            let now = sys::monotonic_now();
            if self.told.get() <= now {
                node.tell_time(now);
            }
            node.set_lease(lease_until);
            // Until its life is recorded, the node takes none: it is told again.
            if node.incarnation().is_some() {
                self.told.set(lease_until);
            }
        }
        let moved = self.remote.poll(now);
        while let Some(event) = self.remote.poll_event() {
            match event {
                BusEvent::Status { disks, .. } => disks.iter().for_each(|report| node.note_report(report)),
                // The bus itself writes both to the log; heartbeats judge whether a node lives.
                BusEvent::PeerUp { .. } | BusEvent::PeerLost { .. } => {}
            }
        }
        moved
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.remote.next_timeout()
    }
}
