//! SMB Direct beside TCP: the same server and the same sessions, carried by RDMA.
//!
//! Owns which RDMA connection is which connection of the server, and messages that came while the server had too much of their
//! connection in work. Never looks into a message.

use super::smb_direct::trace::Trace;
use super::smb_direct::{Shown, SmbDirect, SmbDirectEvent, SmbDirectLimits};
use super::{Plane, group, rdma_providers};
use crate::control::CommandError;
use api::model::{RdmaActivity, SmbDirectCounters};
use rdma::ibverbs::{IbverbsProvider, Listening};
use rdma::providers::Providers;
use rdma::{QueuePairId, QueuePairMap};
use smallvec::SmallVec;
use smb_server::{ConnectionId as SmbConnection, ConnectionInfo, Outgoing, Transport};
use smbdirect::BufferDescriptor;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use sys::Buf;
use types::{IdentityMap, Monotonic};

/// Messages of one connection that wait for the server, in bytes. A peer is kept short of credits long before; our own client has 32 MiB of
/// payload on its way at most.
const HELD_BYTES_MAX: usize = 40 << 20;

type Server = smb_server::Server<super::ServedVolume, super::ServerDirectory>;

/// Messages of a connection that the server does not want yet.
#[derive(Default)]
struct Held {
    messages: VecDeque<Buf>,
    bytes: usize,
}

/// Whether somebody has logged on to a connection. Who logs off keeps what that gave: the client is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Guest,
    Member,
}

pub(super) struct Direct {
    transport: SmbDirect<Providers>,
    listeners: Vec<SocketAddr>,
    by_peer: QueuePairMap<SmbConnection>,
    by_smb: IdentityMap<SmbConnection, (QueuePairId, Standing)>,
    held: IdentityMap<QueuePairId, Held>,
    /// What came and is not worked off.
    events: Vec<SmbDirectEvent>,
}

impl Direct {
    /// Accepts on these listeners from the loop's next turn on.
    pub fn new(plane: &Plane, listeners: Vec<TcpListener>) -> Result<Self, CommandError> {
        let (provider, listeners) = rdma_providers::open(plane, listeners)?;
        let limits = SmbDirectLimits {
            connections: plane.limits.connections as usize,
            connections_per_host: plane.limits.connections_per_host as usize,
            ..SmbDirectLimits::default()
        };
        Ok(Self {
            transport: SmbDirect::new(provider, smbdirect::Config::default(), limits),
            listeners,
            by_peer: QueuePairMap::default(),
            by_smb: IdentityMap::default(),
            held: IdentityMap::default(),
            events: Vec::new(),
        })
    }

    /// Where the software listens.
    pub fn listeners(&self) -> &[SocketAddr] {
        &self.listeners
    }

    /// Where devices do.
    pub fn device_listeners(&self) -> impl Iterator<Item = &Listening> {
        self.transport.verbs().devices.iter().flat_map(IbverbsProvider::listening)
    }

    /// The RDMA connection that has these addresses.
    pub fn show(&self, peer: SocketAddr, local: SocketAddr) -> Option<Shown> {
        let found = |shown: &Shown| shown.info.peer == peer && shown.info.local == local;
        self.by_peer.iter().filter_map(|(connection, _)| self.transport.show(connection)).find(found)
    }

    pub fn show_all(&self) -> Vec<Shown> {
        self.transport.show_all()
    }

    pub fn counters(&self) -> SmbDirectCounters {
        self.transport.counters()
    }

    pub fn trace(&self, number: u64) -> Option<&Trace> {
        self.transport.trace(number)
    }

    pub fn activity(&self) -> RdmaActivity {
        let activity = self.transport.activity();
        RdmaActivity {
            accepted_connections: activity.accepted_connections,
            active_connections: activity.active_connections,
            completion_queue_errors: activity.completion_queue_errors,
            connection_errors: activity.connection_errors,
            failed_connection_attempts: activity.failed_connection_attempts,
            inbound_bytes: activity.inbound_bytes,
            inbound_frames: activity.inbound_frames,
            initiated_connections: activity.initiated_connections,
            outbound_bytes: activity.outbound_bytes,
            outbound_frames: activity.outbound_frames,
        }
    }

    /// Carries what came to the server.
    pub fn hear(&mut self, plane: &Plane, now: Monotonic) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let mut worked = self.transport.poll(now, &mut events) | !events.is_empty();
        let server = &mut *plane.server.borrow_mut();
        let group = group::of(&events, |event| match event {
            SmbDirectEvent::Message { connection, .. } => Some(*connection),
            _ => None,
        });
        for event in events.drain(..group) {
            match event {
                SmbDirectEvent::Opened { connection, info } => {
                    let info = ConnectionInfo {
                        peer: info.peer,
                        local: info.local,
                        transport: Transport::SmbDirect,
                    };
                    match server.connection_opened(info, now) {
                        Some(smb) if !plane.draining.get() => {
                            self.by_peer.insert(connection, smb);
                            self.by_smb.insert(smb, (connection, Standing::Guest));
                        }
                        Some(smb) => {
                            server.connection_closed(smb, now);
                            self.transport.close(connection);
                        }
                        None => self.transport.close(connection),
                    }
                }
                SmbDirectEvent::Message { connection, message } => {
                    self.message(server, connection, message, now);
                }
                SmbDirectEvent::Read { connection, token, data } => {
                    if let Some(&smb) = self.by_peer.get(connection) {
                        server.remote_read(smb, token, data, now);
                    }
                }
                SmbDirectEvent::Room { connection } => {
                    if let Some(&smb) = self.by_peer.get(connection) {
                        self.transmit(smb, |smb| server.poll_outgoing(smb));
                    }
                }
                SmbDirectEvent::Closed { connection, reason } => {
                    tracing::debug!(%reason, "SMB Direct connection closed");
                    self.held.remove(&connection);
                    if let Some(smb) = self.by_peer.remove(connection) {
                        self.by_smb.remove(&smb);
                        server.connection_closed(smb, now);
                    }
                }
            }
        }
        self.events = events;
        if !self.held.is_empty() {
            worked |= self.resume(server, now);
        }
        worked
    }

    fn message(&mut self, server: &mut Server, connection: QueuePairId, message: Buf, now: Monotonic) {
        let Some(&smb) = self.by_peer.get(connection) else { return };
        // None is held, as a rule.
        if self.held.is_empty() || !self.held.contains_key(&connection) {
            if server.wants_messages(smb) {
                return server.handle_message(smb, message, now);
            }
            self.transport.throttle(connection, true);
        }
        let held = self.held.entry(connection).or_default();
        held.bytes += message.len();
        held.messages.push_back(message);
        if held.bytes > HELD_BYTES_MAX {
            tracing::debug!(
                "SMB Direct connection closed: it sends more than is worked off, and takes no answers"
            );
            self.held.remove(&connection);
            self.transport.close(connection);
        }
    }

    /// Goes on with connections whose requests the server has worked off; whether there were any.
    fn resume(&mut self, server: &mut Server, now: Monotonic) -> bool {
        let (mut done, mut moved) = (Vec::new(), false);
        for (connection, held) in &mut self.held {
            let Some(&smb) = self.by_peer.get(*connection) else {
                done.push(*connection);
                continue;
            };
            while server.wants_messages(smb)
                && let Some(message) = held.messages.pop_front()
            {
                (held.bytes, moved) = (held.bytes - message.len(), true);
                server.handle_message(smb, message, now);
            }
            if held.messages.is_empty() && server.wants_messages(smb) {
                done.push(*connection);
            }
        }
        for connection in done {
            self.held.remove(&connection);
            self.transport.throttle(connection, false);
            moved = true;
        }
        moved
    }

    /// Hands out what the server has to say to one connection, as far as it takes it; `None`: it is not one of these.
    pub fn transmit(
        &mut self,
        smb: SmbConnection,
        mut next: impl FnMut(SmbConnection) -> Option<Outgoing>,
    ) -> Option<Standing> {
        let &(peer, standing) = self.by_smb.get(&smb)?;
        let describe = |one: &smb::wire::BufferDescriptorV1| BufferDescriptor {
            offset: one.offset.get(),
            token: one.token.get(),
            len_bytes: one.length.get(),
        };
        while self.transport.has_room(peer)
            && let Some(outgoing) = next(smb)
        {
            match outgoing {
                Outgoing::Message { payload, invalidate } => self.transport.send(peer, payload, invalidate),
                Outgoing::RemoteWrite { payload, descriptors } => {
                    let descriptors: SmallVec<[_; 4]> = descriptors.iter().map(describe).collect();
                    self.transport.write(peer, payload, &descriptors);
                }
                Outgoing::RemoteRead { token, len_bytes, descriptors } => {
                    let descriptors: SmallVec<[_; 4]> = descriptors.iter().map(describe).collect();
                    self.transport.read(peer, token, len_bytes, &descriptors);
                }
            }
        }
        self.transport.flush();
        Some(standing)
    }

    /// Somebody has logged on to the server's `smb`.
    pub fn become_member(&mut self, smb: SmbConnection) {
        if let Some((peer, standing)) = self.by_smb.get_mut(&smb) {
            *standing = Standing::Member;
            self.transport.become_member(*peer);
        }
    }

    /// What was handed out leaves; whether there is more to do.
    pub fn put_on_wire(&mut self, now: Monotonic) -> bool {
        if self.transport.wants_poll() {
            self.transport.poll(now, &mut self.events);
        }
        self.transport.wants_poll() || !self.events.is_empty()
    }

    /// Ends the connection of the server's `smb`.
    pub fn close(&mut self, smb: SmbConnection) {
        if let Some(&(peer, _)) = self.by_smb.get(&smb) {
            self.transport.close(peer);
        }
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.transport.next_timeout()
    }
}
