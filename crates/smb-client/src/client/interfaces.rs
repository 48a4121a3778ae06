//! The server's other addresses: asked for, chosen, connected to (MS-SMB2 3.2.4.20.10, FSCTL_QUERY_NETWORK_INTERFACE_INFO).

use smb::wire::{InterfaceCapabilities, NetworkInterface};
use std::net::IpAddr;

/// Space for some four hundred addresses.
pub(super) const ANSWER_BYTES: u32 = 65536;
/// Further addresses that are tried: a server cannot make its clients knock everywhere.
pub(super) const ADDRESSES_MAX: usize = 32;

/// The addresses to connect to, and whether by SMB Direct, the best first. `is_rdma`: the session has SMB Direct, and TCP beside it
/// would carry nothing.
pub(super) fn choose(found: &[NetworkInterface], may_rdma: bool, is_rdma: bool) -> Vec<(IpAddr, bool)> {
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
