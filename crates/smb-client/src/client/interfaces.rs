//! The server's other addresses: asked for, chosen, connected to (MS-SMB2 3.2.4.20.10, FSCTL_QUERY_NETWORK_INTERFACE_INFO).

use super::Client;
use super::connect::Target;
use crate::operation::Request;
use crate::{ClientError, Transport};
use smb::wire::{FileId, InterfaceCapabilities, NetworkInterface, fsctl, parse_network_interfaces};
use std::net::IpAddr;
use types::NtStatus;

/// Room for some four hundred addresses.
const ANSWER_BYTES: u32 = 65536;
/// Further addresses that are tried: a server cannot make its clients knock everywhere.
const ADDRESSES_MAX: usize = 32;

impl Client {
    /// The addresses that the server tells of, with what they can; none where it does not know the question.
    ///
    /// # Errors
    /// [`ClientError`] where the server refuses otherwise, or the connection failed.
    pub fn interfaces(&mut self) -> Result<Vec<NetworkInterface>, ClientError> {
        let tree = self.tree_connect("IPC$")?;
        let request =
            Request::fsctl(tree.id, FileId::RELATED, fsctl::QUERY_NETWORK_INTERFACE_INFO, &[], ANSWER_BYTES);
        let reply = self.call(request.within(tree))?;
        let unknown = [NtStatus::INVALID_DEVICE_REQUEST, NtStatus::NOT_SUPPORTED, NtStatus::FILE_CLOSED];
        let found = if unknown.contains(&reply.status()) {
            Vec::new()
        } else {
            parse_network_interfaces(reply.fsctl_output()?)?
        };
        self.tree_disconnect(tree)?;
        Ok(found)
    }

    /// Connects to the server's other addresses, up to `most` connections in all: by SMB Direct where the options allow it and the server
    /// has it, the fastest first. What cannot be reached is left out, and said in the log.
    ///
    /// # Errors
    /// [`ClientError`] where the server's addresses cannot be asked for.
    pub fn find_channels(&mut self, most: usize) -> Result<(), ClientError> {
        let Some(first) = self.targets.first().copied().filter(|_| self.binding.is_some()) else {
            return Ok(());
        };
        let found = self.interfaces()?;
        let may_rdma = self.options.transport != Transport::Tcp;
        let rdma_port = if first.is_rdma { first.port } else { self.options.rdma_port };
        let chosen = choose(&found, may_rdma, first.is_rdma);
        for (address, is_rdma) in chosen.into_iter().take(ADDRESSES_MAX) {
            // The first connection by SMB Direct may come on top: work goes by it alone then.
            let is_better = is_rdma && !self.is_rdma();
            if self.channels.len() >= most && !is_better {
                break;
            }
            let port = if is_rdma { rdma_port } else { first.port };
            if let Err(error) = self.add_target(Target { is_rdma, port, address: Some(address) }) {
                tracing::info!(server = self.server, %address, is_rdma, %error, "no further connection");
            }
        }
        Ok(())
    }
}

/// The addresses to connect to, and whether by SMB Direct, the best first. `is_rdma`: the session has SMB Direct, and TCP beside it
/// would carry nothing.
fn choose(found: &[NetworkInterface], may_rdma: bool, is_rdma: bool) -> Vec<(IpAddr, bool)> {
    let can_rdma = |one: &NetworkInterface| one.capabilities.contains(InterfaceCapabilities::RDMA);
    let by_rdma = is_rdma || may_rdma && found.iter().any(can_rdma);
    let mut chosen: Vec<&NetworkInterface> = found.iter().filter(|one| !by_rdma || can_rdma(one)).collect();
    chosen.sort_by_key(|one| std::cmp::Reverse(one.link_speed));
    chosen.into_iter().map(|one| (one.address, by_rdma)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(address: &str, capabilities: InterfaceCapabilities, link_speed: u64) -> NetworkInterface {
        let address = address.parse().expect("an address");
        NetworkInterface { index: 1, capabilities, link_speed, address }
    }

    fn chosen(may_rdma: bool, is_rdma: bool) -> Vec<(String, bool)> {
        let found = [
            interface("192.0.2.1", InterfaceCapabilities::empty(), 1_000_000_000),
            interface("192.0.2.2", InterfaceCapabilities::RDMA, 1_000_000_000),
            interface("192.0.2.3", InterfaceCapabilities::RDMA | InterfaceCapabilities::RSS, 25_000_000_000),
        ];
        let named = |(address, by_rdma): (IpAddr, bool)| (address.to_string(), by_rdma);
        choose(&found, may_rdma, is_rdma).into_iter().map(named).collect()
    }

    #[test]
    fn smb_direct_is_preferred_where_both_ends_have_it_and_the_fastest_comes_first() {
        let rdma = [("192.0.2.3".to_owned(), true), ("192.0.2.2".to_owned(), true)];
        assert_eq!(chosen(true, false), rdma);
        assert_eq!(chosen(true, true), rdma);
        let tcp = ["192.0.2.3", "192.0.2.1", "192.0.2.2"].map(|address| (address.to_owned(), false));
        assert_eq!(chosen(false, false), tcp);
        assert!(choose(&[], true, false).is_empty());
    }
}
