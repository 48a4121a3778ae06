//! Sessions and open files of clients, as the control plane is shown them.

use super::rdma::show_channel;
use crate::rdma_devices::transport_name;
use api::model::{Channel, ClientFigures, OpenFile, Session, ShareFigures};
use rdma::providers::Providers;
use smb_server::{Caching, ConnectionInfo, OpenInfo, SessionInfo, Transport};
use smb_transport::server::smb_direct::SmbDirect;
use smb_transport::server::tcp::Tcp;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use volume::backend::{LeaseState, OplockLevel};
use volume::security::rights;

/// Which connections by TCP sent without a copy.
pub(super) struct Copies {
    lent_bytes: HashMap<(SocketAddr, SocketAddr), u64>,
    never: Option<&'static str>,
}

impl Copies {
    pub(super) fn of(tcp: &Tcp) -> Self {
        Self { lent_bytes: tcp.lent_by_connection(), never: tcp.why_only_copies() }
    }

    fn show(&self, connection: &ConnectionInfo, is_encrypted: bool) -> String {
        let lent_bytes = self.lent_bytes.get(&(connection.peer, connection.local)).copied().unwrap_or(0);
        match self.never {
            _ if lent_bytes > 0 => "yes".to_owned(),
            Some(reason) => format!("no: {reason}"),
            None if is_encrypted => "no: encrypted".to_owned(),
            None => "no: nothing large was read often".to_owned(),
        }
    }
}

/// Shows a session; `wall`: the time since 1970-01-01 00:00 UTC.
pub(super) fn show_session(
    session: SessionInfo,
    direct: &SmbDirect<Providers>,
    copies: &Copies,
    wall: Duration,
) -> Session {
    let channel = |connection: &ConnectionInfo| {
        let shown = match connection.transport {
            Transport::Tcp => None,
            Transport::SmbDirect => direct.find(connection.peer, connection.local),
        };
        Channel {
            client: connection.peer.to_string(),
            server: connection.local.to_string(),
            transport: match (connection.transport, &shown) {
                (Transport::Tcp, _) => "TCP".to_owned(),
                (Transport::SmbDirect, Some(shown)) => transport_name(shown.info.transport).to_owned(),
                (Transport::SmbDirect, None) => "SMB Direct".to_owned(),
            },
            zero_copy: (connection.transport == Transport::Tcp)
                .then(|| copies.show(connection, session.encryption_required)),
            rdma: shown.as_ref().map(show_channel),
        }
    };
    let channels: Vec<Channel> = session.connections.iter().map(channel).collect();
    Session {
        id: session.id,
        server: None,
        client: session.connections.iter().map(|connection| connection.peer.to_string()).collect(),
        user: session.user,
        user_sid: Some(session.user_sid),
        dialect: session.dialect.to_owned(),
        transport: channels.first().map(|channel| channel.transport.clone()).unwrap_or_default(),
        channels,
        signing: if session.signing_required { format!("{:?}", session.signing) } else { String::new() },
        encryption: match session.cipher {
            Some(cipher) if session.encryption_required => format!("{cipher:?}"),
            _ => String::new(),
        },
        shares: session.shares,
        opens: session.opens as u64,
        // Rounded to seconds only at the end: else the beginning would differ from snapshot to snapshot.
        since_unix_s: wall.saturating_sub(session.age).as_secs(),
        idle_s: session.idle_s,
        reads: session.reads,
        writes: session.writes,
        read_bytes: session.read_bytes,
        written_bytes: session.written_bytes,
    }
}

/// Shows the requests to each share.
pub(super) fn show_shares(all: &[smb_server::ShareFigures]) -> Vec<ShareFigures> {
    let of_clients = all.iter().filter(|figures| figures.volume != Some(bus::VOLUME));
    let shown = of_clients.filter_map(|figures| {
        let [reads, writes, others] = figures.requests;
        Some(ShareFigures {
            name: figures.name.clone(),
            volume: figures.volume?,
            reads,
            writes,
            others,
            read_bytes: figures.read_bytes,
            written_bytes: figures.written_bytes,
            latency: figures.latency,
        })
    });
    shown.collect()
}

/// Shows the latencies of each client's requests.
pub(super) fn show_clients<'a>(
    all: impl Iterator<Item = &'a smb_server::ClientFigures>,
) -> Vec<ClientFigures> {
    let shown = all.map(|figures| ClientFigures {
        client: figures.host.map(|host| host.to_string()),
        sessions: figures.sessions,
        latency: figures.latency,
    });
    // The first entry is for clients without a place: usually there are none.
    shown.filter(|client| client.client.is_some() || client.latency.count() > 0).collect()
}

/// Shows an open file.
pub(super) fn show_open(open: OpenInfo) -> OpenFile {
    OpenFile {
        server: None,
        id: open.id,
        session: open.session,
        user: open.user,
        share: open.share,
        path: String::from_utf16_lossy(&open.path),
        access: show_access(open.granted_access),
        locks: 0,
        caching: show_caching(open.caching),
        durable: open.durable,
    }
}

fn show_access(access: u32) -> String {
    let words = [
        (rights::READ_DATA, "read"),
        (rights::WRITE_DATA | rights::APPEND_DATA, "write"),
        (rights::DELETE, "delete"),
        (rights::WRITE_DAC | rights::WRITE_OWNER, "change permissions"),
    ];
    let named: Vec<&str> =
        words.iter().filter(|(bits, _)| access & bits != 0).map(|(_, word)| *word).collect();
    if named.is_empty() { "attributes".to_owned() } else { named.join(", ") }
}

fn show_caching(caching: Caching) -> String {
    match caching {
        Caching::Oplock(OplockLevel::None) => String::new(),
        Caching::Oplock(OplockLevel::LevelII) => "oplock level II".to_owned(),
        Caching::Oplock(OplockLevel::Exclusive) => "oplock exclusive".to_owned(),
        Caching::Oplock(OplockLevel::Batch) => "oplock batch".to_owned(),
        Caching::Lease(state) if state.is_empty() => String::new(),
        Caching::Lease(state) => {
            let letters = [(LeaseState::READ, 'R'), (LeaseState::WRITE, 'W'), (LeaseState::HANDLE, 'H')];
            let held: String =
                letters.iter().filter(|(bit, _)| state.contains(*bit)).map(|(_, letter)| letter).collect();
            format!("lease {held}")
        }
    }
}
