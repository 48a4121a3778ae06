//! Adapter from the SMB server to the transports' service: translates the types of both crates.

use super::accounts::ServerDirectory;
use super::bus::NodeDisks;
use crate::control::CommandError;
use crate::limits::Limits;
use bus::{Served, WithNodes};
use node::ServedVolume;
use rdma::providers::Providers;
use smb::wire::BufferDescriptorV1;
use smb_server::{ConnectionId, ConnectionInfo, Server, Transport};
use smb_transport::server::smb_direct::{SmbDirect, SmbDirectLimits};
use smb_transport::server::tcp::{Tcp, TcpLimits};
use smb_transport::server::{Carrier, Descriptors, Origin, Outgoing, Service};
use smbdirect::BufferDescriptor;
use std::net::TcpListener;
use sys::driver::Driver;
use sys::{Buf, Payload};
use types::Monotonic;

/// All connections of the server's clients.
pub(super) type Clients = smb_transport::server::Clients<ConnectionId, Providers>;

/// The SMB server, with the node's volumes and the cluster state's accounts and shares; of a cluster's node, with the storage bus too.
pub(super) type SmbServer = Server<Served<ServedVolume, NodeDisks>, WithNodes<ServerDirectory>>;

/// Accepts by TCP on these listeners, and by SMB Direct as the providers do, from the loop's next turn on.
///
/// # Errors
/// If a listener has no address.
pub(super) fn open(
    driver: &Driver,
    limits: &Limits,
    listeners: Vec<TcpListener>,
    providers: Providers,
) -> Result<Clients, CommandError> {
    let receiving_bytes_max = usize::try_from(limits.bytes_in_flight).unwrap_or(usize::MAX);
    let tcp = TcpLimits {
        connections: limits.connections as usize,
        connections_per_host: limits.connections_per_host as usize,
        receiving_bytes_max,
        ..TcpLimits::default()
    };
    let tcp = Tcp::new(driver, listeners, tcp)
        .map_err(|error| CommandError::io(format!("a listener cannot be served: {error}")))?;
    let direct = SmbDirectLimits {
        connections: limits.connections as usize,
        connections_per_host: limits.connections_per_host as usize,
        receiving_bytes_max,
        ..SmbDirectLimits::default()
    };
    let direct = SmbDirect::new(providers, smbdirect::Config::default(), direct);
    Ok(Clients::new(tcp, direct))
}

/// The server behind the connections.
pub(super) struct Behind<'a>(pub &'a mut SmbServer);

fn describe(descriptors: &[BufferDescriptorV1]) -> Descriptors {
    let one = |wire: &BufferDescriptorV1| BufferDescriptor {
        offset: wire.offset.get(),
        token: wire.token.get(),
        len_bytes: wire.length.get(),
    };
    descriptors.iter().map(one).collect()
}

impl Service for Behind<'_> {
    type Connection = ConnectionId;

    fn connection_opened(&mut self, origin: Origin, now: Monotonic) -> Option<ConnectionId> {
        let transport = match origin.carrier {
            Carrier::Tcp => Transport::Tcp,
            Carrier::SmbDirect => Transport::SmbDirect,
        };
        let Origin { peer, local, .. } = origin;
        self.0.connection_opened(ConnectionInfo { peer, local, transport }, now)
    }

    fn connection_closed(&mut self, connection: ConnectionId, now: Monotonic) {
        self.0.connection_closed(connection, now);
    }

    #[inline]
    fn wants_messages(&self, connection: ConnectionId) -> bool {
        self.0.wants_messages(connection)
    }

    #[inline]
    fn handle_message(&mut self, connection: ConnectionId, message: Buf, now: Monotonic) {
        self.0.handle_message(connection, message, now);
    }

    fn take_remote_read(&mut self, connection: ConnectionId, token: u64, data: Option<Buf>, now: Monotonic) {
        self.0.remote_read(connection, token, data, now);
    }

    fn take_transmitters(&mut self, out: &mut Vec<ConnectionId>) {
        self.0.take_transmitters(out);
    }

    fn take_closing(&mut self, out: &mut Vec<ConnectionId>) {
        self.0.take_closing(out);
    }

    #[inline]
    fn poll_message(&mut self, connection: ConnectionId) -> Option<Payload> {
        self.0.poll_transmit(connection)
    }

    #[inline]
    fn poll_outgoing(&mut self, connection: ConnectionId) -> Option<Outgoing> {
        Some(match self.0.poll_outgoing(connection)? {
            smb_server::Outgoing::Message { payload, invalidate } => {
                Outgoing::Message { payload, invalidate }
            }
            smb_server::Outgoing::RemoteWrite { payload, descriptors } => {
                Outgoing::RemoteWrite { payload, descriptors: describe(&descriptors) }
            }
            smb_server::Outgoing::RemoteRead { token, len_bytes, descriptors } => {
                Outgoing::RemoteRead { token, len_bytes, descriptors: describe(&descriptors) }
            }
        })
    }

    #[inline]
    fn set_unsent(&mut self, connection: ConnectionId, bytes: usize) -> bool {
        self.0.set_unsent(connection, bytes)
    }

    #[inline]
    fn message_bytes_max(&self, connection: ConnectionId) -> usize {
        self.0.message_bytes_max(connection)
    }

    fn user(&self, connection: ConnectionId) -> Option<&str> {
        self.0.user(connection)
    }
}
