//! The storage bus in the data plane of a cluster's node: its disks for the others, and theirs for its pools.
//!
//! Owns the connecting side; the accepting side is a backend of the SMB server. A single server has no bus.

use crate::control::{ClusterCommand, ClusterOptions};
use bus::{BusEvent, LocalDisks, Remote};
use heartbeat::shell::HeartbeatLink;
use node::tasks::{Tasks, until};
use node::{ClusterMembership, Node, Unreached};
use space::coordinator::LateReads;
use space::local::nodes::DiskReport;
use space::message::{PeerId, Request, RequestId, Response};
use std::rc::{Rc, Weak};
use std::time::Duration;
use sys::driver::Driver;
use types::{DiskId, Monotonic, NodeId};

/// Time in which servers that stop together notice each other: each announces it immediately and
/// repeatedly.
const OTHERS_HEARD: Duration = Duration::from_millis(300);
/// Interval between checks whether others still need this server.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The disks of the node, as the others reach them. The node owns the server that has this, and not the other way round.
pub(super) struct NodeDisks(pub Weak<Node>);

impl LocalDisks for NodeDisks {
    fn handle(&mut self, peer: PeerId, from: NodeId, disk: DiskId, request: Request) {
        if let Some(node) = self.0.upgrade() {
            node.handle_remote(peer, from, disk, request);
        }
    }

    fn poll(&mut self, out: &mut Vec<(PeerId, DiskId, Response)>) {
        if let Some(node) = self.0.upgrade() {
            node.poll_remote(out);
        }
    }

    fn take_begun(&mut self) -> Vec<(PeerId, RequestId)> {
        self.0.upgrade().map(|node| node.take_begun()).unwrap_or_default()
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

/// The connecting side.
pub(super) struct Bus {
    remote: Remote,
    heartbeats: HeartbeatLink,
}

impl Bus {
    /// # Errors
    /// If the system has no random bytes.
    pub fn new(driver: &Driver, options: &ClusterOptions, now: Monotonic) -> std::io::Result<Self> {
        let remote = Remote::new(driver, options.bus.clone(), now)?;
        Ok(Self { remote, heartbeats: options.heartbeats.clone() })
    }

    /// Returns the options of a node whose pools reach other nodes' disks by this bus.
    pub fn membership(&self, options: &ClusterOptions) -> ClusterMembership {
        let remote = self.remote.clone();
        let ClusterOptions { node, name, lease, .. } = options;
        let transport = Box::new(move |_| -> Box<dyn space::message::Transport> { Box::new(remote.port()) });
        let heartbeats = Rc::new(self.heartbeats.clone());
        ClusterMembership { node: *node, name: name.clone(), lease: *lease, heartbeats, transport }
    }

    /// Reports the connections to other nodes, and how late their disks were.
    pub fn peers(&self, node: &Node) -> Vec<(bus::PeerStatus, LateReads)> {
        let late = node.late_reads();
        let of = |peer: bus::PeerStatus| {
            let reads = late.get(&peer.node).copied().unwrap_or_default();
            (peer, reads)
        };
        self.remote.peers().into_iter().map(of).collect()
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
            // The plane itself does these, with or without a bus.
            ClusterCommand::ReadyToJoin { .. } | ClusterCommand::Stay | ClusterCommand::Join { .. } => {}
            ClusterCommand::Bus { reply } => {
                // The caller may have stopped waiting.
                let _ = reply.send(self.peers(node));
            }
        }
    }

    /// Follows the records of disks' nodes, and reports nodes out of reach.
    pub fn look(&self, node: &Node) {
        let unreached = self.remote.peers().into_iter().filter_map(|peer| {
            let since = peer.unreached_since?;
            let why = peer.trouble.unwrap_or_else(|| "no answer in time".to_owned());
            Some((peer.node, Unreached { since, address: peer.address, why }))
        });
        node.peers.set_unreached(unreached.collect());
        let disks = node.peers.disks();
        self.remote
            .set_disks(disks.iter().filter_map(|(disk, record)| Some((*disk, record.node?))).collect());
    }

    /// Carries messages between nodes; returns whether something moved.
    pub fn poll(&self, node: &Node, now: Monotonic) -> bool {
        let moved = self.remote.poll(now);
        while let Some(event) = self.remote.poll_event() {
            match event {
                BusEvent::Status { node: from, disks } => {
                    disks.iter().for_each(|report| node.note_report(from, report));
                }
                // The bus itself writes both to the log; heartbeats judge whether a node lives.
                BusEvent::PeerLost { node, was_reset: true, .. } => self.heartbeats.note_reset(node),
                BusEvent::PeerUp { .. } | BusEvent::PeerLost { .. } => {}
            }
        }
        moved
    }

    /// Announces this server's stop to the others, and whether it still needs them for that.
    pub fn announce_stop(&self, needs_others: bool) {
        self.heartbeats.set_needs_others(needs_others);
    }

    /// Waits until no server that stops at the same time needs this one any more: without its disks and the
    /// cluster's state the others could not make their data durable.
    pub async fn await_others(&self, tasks: &Tasks, deadline: Monotonic) {
        self.announce_stop(false);
        let heard = tasks.now().after(OTHERS_HEARD);
        until(|| {
            let now = tasks.now();
            tasks.wake_at(now.after(LOOK_EVERY));
            ((now >= heard && !self.heartbeats.is_needed()) || now >= deadline).then_some(())
        })
        .await;
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.remote.next_timeout()
    }
}
