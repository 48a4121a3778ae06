//! The addresses of SMB Direct on RDMA devices, by the configuration and the machine's devices.
//!
//! Searches once, when the server starts. Logs missing parts, with the reason; never fails a start.

use rdma::ibverbs::{Listening, try_listen};
use rdma::{Device, Transport};
use std::net::{IpAddr, SocketAddr};

/// MS-SMBD 2.1: over InfiniBand and RoCE, and over iWARP.
const PORT: u16 = 445;
const IWARP_PORT: u16 = 5445;

/// In `smb.rdma_devices`: each address of `smb.listen` that leads to a device.
pub const AUTO: &str = "auto";

/// Addresses to listen on by their devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RdmaDevices {
    /// Addresses and ports that devices serve.
    pub listen: Vec<SocketAddr>,
    /// Why addresses that the configuration names are not listened on.
    pub refused: Vec<String>,
}

impl RdmaDevices {
    /// Finds the addresses. `wanted`: `smb.rdma_devices`; `smb`: the addresses of SMB over TCP, which
    /// "auto" follows, so that SMB Direct is only served beside SMB.
    pub fn find(wanted: &[String], smb: &[SocketAddr]) -> Self {
        let mut found = Self::default();
        for one in wanted {
            if one == AUTO {
                match rdma::devices() {
                    Ok(devices) => found.add(&candidates(&devices, smb)),
                    Err(reason) => tracing::info!("no SMB Direct by RDMA devices: {reason}"),
                }
                continue;
            }
            // The configuration was checked: it is an address.
            let Ok(address) = one.parse() else { continue };
            match try_listen(address) {
                Ok(listening) => found.listen_on(&listening),
                Err(reason) => {
                    tracing::warn!("no SMB Direct by an RDMA device on {address}: {reason}");
                    found.refused.push(reason);
                }
            }
        }
        found
    }

    fn add(&mut self, candidates: &[SocketAddr]) {
        if candidates.is_empty() {
            tracing::info!("no SMB Direct by RDMA devices: no address of smb.listen leads to one");
        }
        for address in candidates {
            match try_listen(*address) {
                Ok(listening) => self.listen_on(&listening),
                Err(reason) => tracing::info!("no SMB Direct by an RDMA device on {address}: {reason}"),
            }
        }
    }

    fn listen_on(&mut self, listening: &Listening) {
        if !self.listen.contains(&listening.address) {
            self.listen.push(listening.address);
        }
    }
}

/// Returns the devices' addresses with SMB over TCP, with the ports that clients try for SMB Direct.
fn candidates(devices: &[Device], smb: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut candidates = Vec::new();
    for device in devices {
        // Over iWARP 445 is the port of SMB over TCP.
        let ports: &[u16] =
            if device.transport == Transport::Iwarp { &[IWARP_PORT] } else { &[PORT, IWARP_PORT] };
        for address in device.addresses.iter().filter(|address| served(smb, **address)) {
            candidates.extend(ports.iter().map(|port| SocketAddr::new(*address, *port)));
        }
    }
    candidates
}

fn served(smb: &[SocketAddr], address: IpAddr) -> bool {
    smb.iter().any(|listener| {
        let own = listener.ip();
        // Listeners on [::] take IPv4 too.
        own == address || own.is_unspecified() && (own.is_ipv6() || address.is_ipv4())
    })
}

/// Names a transport as people write it.
pub(crate) fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Iwarp => "iWARP",
        Transport::RoCe => "RoCE",
        Transport::InfiniBand => "InfiniBand",
    }
}

#[cfg(test)]
pub(crate) fn device_of_test(
    name: &str,
    transport: Transport,
    ports: Vec<rdma::Port>,
    addresses: &[&str],
) -> Device {
    let limits = rdma::DeviceLimits {
        queue_pairs: 1,
        queue_depth: 1,
        elements: 1,
        read_elements: 1,
        inbound_read_depth: 1,
        outbound_read_depth: 1,
        registrations: 1,
        registration_bytes: 1,
    };
    let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
    Device { name: name.to_owned(), transport, firmware: String::new(), ports, addresses, limits }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn device(transport: Transport, addresses: &[&str]) -> Device {
        device_of_test("one", transport, Vec::new(), addresses)
    }

    fn found(devices: &[Device], smb: &[&str]) -> Vec<String> {
        let smb: Vec<SocketAddr> = smb.iter().map(|address| address.parse().expect("an address")).collect();
        candidates(devices, &smb).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_transport_is_served_on_the_ports_where_clients_look_for_it() {
        let devices = [device(Transport::RoCe, &["192.0.2.1"]), device(Transport::Iwarp, &["198.51.100.1"])];
        let all = ["192.0.2.1:445", "192.0.2.1:5445", "198.51.100.1:5445"];
        assert_eq!(found(&devices, &["0.0.0.0:445"]), all);
        assert_eq!(found(&devices, &["[::]:445"]), all);
    }

    #[test]
    fn a_server_on_loopback_is_not_served_to_the_network_by_rdma() {
        let devices = [device(Transport::RoCe, &["192.0.2.1", "2001:db8::1"])];
        assert!(found(&devices, &["127.0.0.1:445"]).is_empty());
        assert_eq!(found(&devices, &["192.0.2.1:445"]), ["192.0.2.1:445", "192.0.2.1:5445"]);
    }

    #[test]
    fn an_address_that_is_named_and_cannot_be_had_is_said() {
        let found = RdmaDevices::find(&["192.0.2.77:445".into()], &[]);
        assert!(found.listen.is_empty());
        assert_eq!(found.refused.len(), 1, "{found:?}");
        assert_eq!(RdmaDevices::find(&[], &[]), RdmaDevices::default());
    }
}
