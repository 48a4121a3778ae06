//! The party that a resource counts against before a client has logged on.

use std::fmt;
use std::net::IpAddr;

/// One host as the network shows it: an IPv4 address, or of IPv6 the network of 64 bits that one host has as its own.
///
/// An address of IPv4 written as IPv6 (`::ffff:a.b.c.d`) counts as that of IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerHost(IpAddr);

impl From<IpAddr> for PeerHost {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            v4 => v4,
        })
    }
}

impl fmt::Display for PeerHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(network) => write!(formatter, "{network}/64"),
            v4 => v4.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PeerHost;
    use std::net::IpAddr;

    fn host(address: &str) -> PeerHost {
        address.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn a_host_is_an_ipv4_address_or_an_ipv6_network() {
        assert_eq!(host("fd00::1"), host("fd00::2"));
        assert_ne!(host("fd00:0:0:1::1"), host("fd00::1"));
        assert_eq!(host("::ffff:10.0.0.1"), host("10.0.0.1"));
        assert_ne!(host("10.0.0.1"), host("10.0.0.2"));
        assert_eq!(
            (host("10.0.0.1").to_string(), host("fd00::7").to_string()),
            ("10.0.0.1".into(), "fd00::/64".into())
        );
    }
}
