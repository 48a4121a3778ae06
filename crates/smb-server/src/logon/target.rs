//! The server that a client intends to log on to: the service principal name in its proof
//! (MsvAvTargetName, MS-NLMP 2.2.2.1).
//!
//! A server that a client connects to can relay the client's messages to this server, and be logged on
//! as that user. The client's proof reveals that: it names the server that the client looked for. A
//! proof without a name does not; only signing keeps others from using such a logon.

use crate::config::Config;
use std::net::IpAddr;

/// Service classes of a file server.
const SERVICES: [&str; 2] = ["cifs", "host"];
/// Characters of a NetBIOS name.
const NETBIOS_CHARACTERS: usize = 15;
/// The domain in which Windows writes IPv6 addresses as names, with `-` for `:` and `s` before the zone.
const IPV6_LITERAL: &str = ".ipv6-literal.net";

/// Whether a logon for the service `target` was meant for this server, which the client reached at `local`.
pub(crate) fn is_ours(config: &Config, local: IpAddr, target: &str) -> bool {
    if config.further_names.iter().any(|name| name == "*") {
        return true;
    }
    let (service, rest) = target.split_once('/').unwrap_or((SERVICES[0], target));
    if !SERVICES.iter().any(|known| known.eq_ignore_ascii_case(service)) {
        return false;
    }
    let host = host_of(rest.split('/').next().unwrap_or_default());
    if host.is_empty() {
        return false;
    }
    if config.further_names.iter().any(|name| name.eq_ignore_ascii_case(host)) {
        return true;
    }
    let local = local.to_canonical();
    if let Some(address) = address_of(host) {
        // A client that uses several networks uses the name that it began with for the server's other
        // addresses too.
        let is_interface = config.interfaces.iter().any(|interface| interface.address == address);
        return address == local || is_interface || address.is_loopback() && local.is_loopback();
    }
    let own = config.server_name.as_str();
    let short = own.split('.').next().unwrap_or_default();
    let netbios: String = short.chars().take(NETBIOS_CHARACTERS).collect();
    [own, short, netbios.as_str()].iter().any(|name| name.eq_ignore_ascii_case(host))
        || local.is_loopback() && host.eq_ignore_ascii_case("localhost")
}

/// Leaves out the port, and the brackets of an IPv6 address.
fn host_of(place: &str) -> &str {
    if let Some((address, _)) = place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match place.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => place,
    }
}

/// Reads a host that is an address.
fn address_of(host: &str) -> Option<IpAddr> {
    let lower = host.to_ascii_lowercase();
    if let Some(literal) = lower.strip_suffix(IPV6_LITERAL) {
        let address = literal.split('s').next().unwrap_or_default().replace('-', ":");
        return address.parse().ok();
    }
    let address: IpAddr = lower.split('%').next().unwrap_or_default().parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::is_ours;
    use crate::config::Config;
    use smb::wire::{InterfaceCapabilities, NetworkInterface};

    fn ours(target: &str, local: &str) -> bool {
        let mut config = Config::new([1; 16], "filer-with-a-long-name.example.com");
        config.further_names =
            vec!["Files".to_owned(), "files.example.com".to_owned(), "192.0.2.9".to_owned()];
        is_ours(&config, local.parse().unwrap(), target)
    }

    #[test]
    fn a_servers_names_addresses_and_further_names_are_its_own() {
        for target in [
            "cifs/filer-with-a-long-name.example.com",
            "CIFS/FILER-WITH-A-LONG-NAME",
            "host/filer-with-a-lo",
            "cifs/files",
            "cifs/files.example.com:445",
            "cifs/10.0.0.1",
            "cifs/10.0.0.1:4455",
            "cifs/192.0.2.9",
            "files",
            "cifs/files/example.com",
        ] {
            assert!(ours(target, "10.0.0.1"), "{target}");
        }
        assert!(ours("cifs/10.0.0.1", "::ffff:10.0.0.1"));
        for target in
            ["cifs/fe80::1%eth0", "cifs/[fe80::1]:445", "cifs/fe80--1s3.ipv6-literal.net", "cifs/fe80::1"]
        {
            assert!(ours(target, "fe80::1"), "{target}");
        }
        assert!(ours("cifs/localhost", "127.0.0.1") && ours("cifs/127.0.0.1", "127.0.0.2"));
    }

    #[test]
    fn others_names_addresses_and_services_are_not() {
        for target in [
            "cifs/other",
            "cifs/filer-with-a-long-name.example.org",
            "http/files",
            "cifs/",
            "cifs/10.0.0.2",
            "cifs/localhost",
            "cifs/127.0.0.1",
            "",
            "cifs/::",
        ] {
            assert!(!ours(target, "10.0.0.1"), "{target}");
        }
    }

    #[test]
    fn each_address_that_the_server_tells_clients_of_is_its_own() {
        let mut config = Config::new([1; 16], "filer");
        let address = "10.9.21.1".parse().unwrap();
        let (index, capabilities, link_speed) = (1, InterfaceCapabilities::empty(), 1);
        config.interfaces = vec![NetworkInterface { index, capabilities, link_speed, address }];
        let reached_at = "10.9.20.1".parse().unwrap();
        assert!(is_ours(&config, reached_at, "cifs/10.9.21.1"));
        assert!(!is_ours(&config, reached_at, "cifs/10.9.22.1"));
    }

    #[test]
    fn an_asterisk_stands_for_any_name() {
        let mut config = Config::new([1; 16], "filer");
        config.further_names = vec!["*".to_owned()];
        assert!(is_ours(&config, "10.0.0.1".parse().unwrap(), "http/anything"));
    }
}
