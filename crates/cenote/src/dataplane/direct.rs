//! SMB Direct beside TCP: the same server and the same sessions, carried by RDMA.
//!
//! Owns which RDMA connection is which connection of the server. Never looks into a message.

use super::smb_direct::{SmbDirect, SmbDirectEvent, SmbDirectLimits};
use super::{Plane, failed};
use crate::control::CommandError;
use rdma::QueuePairId;
use rdma::iwarp::{IwarpOptions, IwarpProvider};
use smb_server::{ConnectionId as SmbConnection, ConnectionInfo, Outgoing, Transport};
use smbdirect::BufferDescriptor;
use std::collections::HashMap;
use std::net::TcpListener;
use types::Monotonic;

pub(super) struct Direct {
    transport: SmbDirect<IwarpProvider>,
    by_peer: HashMap<QueuePairId, SmbConnection>,
    by_smb: HashMap<SmbConnection, QueuePairId>,
    events: Vec<SmbDirectEvent>,
}

impl Direct {
    /// Accepts on these listeners from the loop's next turn on.
    pub fn new(plane: &Plane, listeners: Vec<TcpListener>) -> Result<Self, CommandError> {
        let random = Box::new(|| {
            let mut bytes = [0; 4];
            // Without random names a peer could guess them: there is nothing to go on with.
            getrandom::fill(&mut bytes).expect("the kernel's random source");
            u32::from_le_bytes(bytes)
        });
        let options =
            IwarpOptions { queue_pairs_max: plane.limits.connections as usize, ..IwarpOptions::default() };
        let mut provider = IwarpProvider::new(&plane.storage.driver, options, random);
        for listener in listeners {
            provider
                .listen(listener)
                .map_err(|error| failed(format!("an SMB Direct listener cannot be served: {error}")))?;
        }
        let transport = SmbDirect::new(provider, smbdirect::Config::default(), SmbDirectLimits::default());
        Ok(Self { transport, by_peer: HashMap::new(), by_smb: HashMap::new(), events: Vec::new() })
    }

    /// Carries what came to the server.
    pub fn hear(&mut self, plane: &Plane, now: Monotonic) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let worked = self.transport.poll(now, &mut events);
        let server = &mut *plane.server.borrow_mut();
        for event in events.drain(..) {
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
                            self.by_smb.insert(smb, connection);
                        }
                        Some(smb) => {
                            server.connection_closed(smb, now);
                            self.transport.close(connection);
                        }
                        None => self.transport.close(connection),
                    }
                }
                SmbDirectEvent::Message { connection, message } => {
                    if let Some(&smb) = self.by_peer.get(&connection) {
                        server.handle_message(smb, message, now);
                    }
                }
                SmbDirectEvent::Read { connection, token, data } => {
                    if let Some(&smb) = self.by_peer.get(&connection) {
                        server.remote_read(smb, token, data, now);
                    }
                }
                SmbDirectEvent::Closed { connection, reason } => {
                    tracing::debug!(%reason, "SMB Direct connection closed");
                    if let Some(smb) = self.by_peer.remove(&connection) {
                        self.by_smb.remove(&smb);
                        server.connection_closed(smb, now);
                    }
                }
            }
        }
        self.events = events;
        worked
    }

    /// Hands out what the server has to say to one connection; `false`: it is not one of these.
    pub fn transmit(
        &mut self,
        smb: SmbConnection,
        mut next: impl FnMut(SmbConnection) -> Option<Outgoing>,
    ) -> bool {
        let Some(&peer) = self.by_smb.get(&smb) else { return false };
        let describe = |one: &smb::wire::BufferDescriptorV1| BufferDescriptor {
            offset: one.offset.get(),
            token: one.token.get(),
            len_bytes: one.length.get(),
        };
        while let Some(outgoing) = next(smb) {
            match outgoing {
                Outgoing::Message { payload, invalidate } => self.transport.send(peer, payload, invalidate),
                Outgoing::RemoteWrite { payload, descriptors } => {
                    let descriptors: Vec<_> = descriptors.iter().map(describe).collect();
                    self.transport.write(peer, &payload, &descriptors);
                }
                Outgoing::RemoteRead { token, len_bytes, descriptors } => {
                    let descriptors: Vec<_> = descriptors.iter().map(describe).collect();
                    self.transport.read(peer, token, len_bytes, &descriptors);
                }
            }
        }
        true
    }

    /// Ends the connection of the server's `smb`.
    pub fn close(&mut self, smb: SmbConnection) {
        if let Some(&peer) = self.by_smb.get(&smb) {
            self.transport.close(peer);
        }
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        self.transport.next_timeout()
    }
}
