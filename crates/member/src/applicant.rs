//! This server's description of itself for a cluster.

use crate::admission::{Applicant, EtcdAddresses};
use etcd::process::free_ports;
use records::clock::unix_now_s;
use std::net::{IpAddr, SocketAddr};
use trust::authority::ProvenKey;
use uuid::Uuid;

/// This server's part in a cluster, as configured.
#[derive(Debug, Clone)]
pub struct ClusterKeys {
    /// `server.name`.
    pub name: String,
    /// ServerGuid of the SMB server (MS-SMB2 2.2.4), the same from start to start.
    pub server_guid: Uuid,
    /// `cluster.listen`; `None`: no cluster.
    pub listen: Option<SocketAddr>,
    /// `cluster.addresses`, the preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Addresses and ports of the listeners of the SMB server and of SMB Direct.
    pub smb: Vec<SocketAddr>,
    /// Addresses and ports of SMB Direct's listeners; none: no SMB Direct.
    pub rdma: Vec<SocketAddr>,
    /// Address and port on which the management API listens.
    pub api: SocketAddr,
    /// `cluster.rack`; empty: not named.
    pub rack: String,
    /// `cluster.chassis`; empty: not named.
    pub chassis: String,
    /// Whether the server only votes, without an SMB server.
    pub is_witness: bool,
    /// `cluster.etcd` names an etcd that somebody else runs.
    pub uses_other_etcd: bool,
}

impl ClusterKeys {
    /// # Errors
    /// The missing setting of the configuration.
    pub fn listen(&self) -> Result<SocketAddr, String> {
        self.listen.ok_or_else(|| {
            "this server has no address for a cluster: set cluster.listen to ADDRESS:9447 in its configuration, with an address by \
             which the other servers reach it, and restart it"
                .to_owned()
        })
    }

    /// The addresses at which others reach this server.
    fn reachable(&self, listen: SocketAddr) -> Vec<IpAddr> {
        let mut addresses = self.addresses.clone();
        if !addresses.contains(&listen.ip()) {
            addresses.push(listen.ip());
        }
        addresses
    }

    /// # Errors
    /// The missing setting of the configuration.
    pub fn applicant(&self, key: ProvenKey, etcd: Option<EtcdAddresses>) -> Result<Applicant, String> {
        let listen = self.listen()?;
        let addresses = self.reachable(listen);
        let served = if self.is_witness { &[listen][..] } else { &self.smb };
        let smb = served.iter().find_map(|socket| reached_at(*socket, &addresses)).ok_or_else(|| {
            let listed: Vec<String> = self.smb.iter().map(ToString::to_string).collect();
            format!(
                "clients and other servers have to reach its SMB server at {}, and smb.listen is {}: add that address to it",
                listen.ip(),
                listed.join(", ")
            )
        })?;
        Ok(Applicant {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server_guid: self.server_guid,
            smb,
            rdma: self.rdma.iter().find_map(|socket| reached_at(*socket, &addresses)),
            addresses,
            api: self.api,
            cluster: listen,
            heartbeat: listen,
            etcd,
            rack: self.rack.clone(),
            chassis: self.chassis.clone(),
            is_witness: self.is_witness,
            uses_other_etcd: self.uses_other_etcd,
            unix_s: unix_now_s(),
            key,
        })
    }
}

/// Returns the socket as others reach it; `None`: they do not.
fn reached_at(socket: SocketAddr, addresses: &[IpAddr]) -> Option<SocketAddr> {
    if socket.ip().is_unspecified() {
        let ip = addresses.iter().find(|ip| ip.is_ipv4() == socket.is_ipv4() || socket.is_ipv6())?;
        return Some(SocketAddr::new(*ip, socket.port()));
    }
    addresses.contains(&socket.ip()).then_some(socket)
}

/// The ports of a server's member of etcd, for its clients and for the other members: those behind the cluster's own port, so that a
/// firewall can name them.
pub const ETCD_CLIENT_PORT: u16 = 9448;
pub const ETCD_PEER_PORT: u16 = 9449;

/// Finds ports for a member of etcd at that address: the usual ones, or others if these are in use.
///
/// # Errors
/// Errors of the sockets.
pub fn free_etcd_ports(ip: IpAddr) -> std::io::Result<EtcdAddresses> {
    let is_free = |port| std::net::TcpListener::bind((ip, port)).is_ok();
    let (peer, client) = match is_free(ETCD_PEER_PORT) && is_free(ETCD_CLIENT_PORT) {
        true => (ETCD_PEER_PORT, ETCD_CLIENT_PORT),
        false => {
            let found = free_ports(ip)?;
            tracing::warn!(%ip, peer = found.0, client = found.1, "the usual ports of etcd (9448, 9449) are taken: others are used");
            found
        }
    };
    Ok(EtcdAddresses { peer: SocketAddr::new(ip, peer), client: SocketAddr::new(ip, client) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_listens_on_all_addresses_is_named_by_one_that_others_reach() {
        let addresses: Vec<IpAddr> = vec!["10.1.0.11".parse().unwrap()];
        let at =
            |socket: &str| reached_at(socket.parse().unwrap(), &addresses).map(|found| found.to_string());
        assert_eq!(at("0.0.0.0:445").as_deref(), Some("10.1.0.11:445"));
        assert_eq!(at("[::]:445").as_deref(), Some("10.1.0.11:445"));
        assert_eq!(at("10.1.0.11:4455").as_deref(), Some("10.1.0.11:4455"));
        assert_eq!(at("127.0.0.1:445"), None);
    }

    #[test]
    fn ports_for_etcd_differ() {
        let found = free_etcd_ports("127.0.0.1".parse().unwrap()).unwrap();
        assert_ne!(found.peer, found.client);
    }
}
