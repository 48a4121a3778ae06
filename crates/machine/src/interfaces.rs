//! The server's network interfaces, as clients learn of them (FSCTL_QUERY_NETWORK_INTERFACE_INFO,
//! MS-SMB2 3.3.5.15.11).
//!
//! Owns the rule for the addresses in that list, their speeds and capabilities. Promises: only
//! addresses by which clients reach a listener of the server; no link-local ones, and loopback only if
//! the server listens on it; a speed only from a link that has one; RSS only if a device has several
//! receive queues; RDMA only if an SMB Direct listener is there. Never changes an interface.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use sys::InterfaceAddress;

/// The kernel's folder of interfaces.
pub const SYSFS: &str = "/sys/class/net";
/// Reported if a link has no speed of its own or does not know it (virtual devices, loopback): so low
/// that clients take any link of known speed first. Not zero: clients divide by it.
const SPEED_UNKNOWN: u64 = 10_000_000;
/// Devices below devices: a VLAN on a bond in a bridge.
const DEPTH_MAX: u32 = 8;

/// An entry of the configuration's `smb.interfaces`: addresses that clients may learn, and facts that
/// override the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceRule {
    matches: Matches,
    speed_mbps: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Matches {
    /// A name, or the beginning of names.
    Name {
        name: String,
        prefix: bool,
    },
    Subnet {
        network: IpAddr,
        bits: u8,
    },
}

impl FromStr for InterfaceRule {
    type Err = String;

    /// `eth0`, `eth*`, `10.1.0.0/16` or `fd00::5`; with `,speed_mbps=N` behind it if the link's speed is to be said.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let which = parts.next().unwrap_or_default();
        let mut speed_mbps = None;
        for part in parts {
            let value = part.strip_prefix("speed_mbps=").and_then(|value| value.parse().ok());
            match value.filter(|value| (1..=10_000_000).contains(value)) {
                Some(value) => speed_mbps = Some(value),
                None => return Err(format!("{part:?} is not speed_mbps=N with N from 1 to 10000000")),
            }
        }
        let (address, bits) = match which.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (which, None),
        };
        let matches = match (address.parse::<IpAddr>(), bits) {
            (Ok(network), bits) => {
                let most = if network.is_ipv4() { 32 } else { 128 };
                let bits = bits.map_or(Ok(most), |bits| bits.parse::<u8>());
                let bits = bits.ok().filter(|bits| *bits <= most);
                let bits = bits.ok_or_else(|| format!("{which:?} has no prefix of 0 to {most} bits"))?;
                Matches::Subnet { network, bits }
            }
            (Err(_), None) => {
                let (name, prefix) = which.strip_suffix('*').map_or((which, false), |name| (name, true));
                let valid = name.len() < 16 && !name.contains(|c: char| c.is_whitespace() || c == '*');
                if !valid || name.is_empty() && !prefix {
                    return Err(format!("{which:?} is neither an interface's name nor a subnet"));
                }
                Matches::Name { name: name.to_owned(), prefix }
            }
            (Err(_), Some(_)) => return Err(format!("{which:?} is not a subnet")),
        };
        Ok(Self { matches, speed_mbps })
    }
}

impl InterfaceRule {
    fn covers(&self, one: &InterfaceAddress) -> bool {
        match &self.matches {
            Matches::Name { name, prefix: true } => one.name.starts_with(name.as_str()),
            Matches::Name { name, prefix: false } => one.name == *name,
            Matches::Subnet { network, bits } => match (network, one.address) {
                (IpAddr::V4(network), IpAddr::V4(address)) => {
                    let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
                    (network.to_bits() ^ address.to_bits()) & mask == 0
                }
                (IpAddr::V6(network), IpAddr::V6(address)) => {
                    let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
                    (network.to_bits() ^ address.to_bits()) & mask == 0
                }
                _ => false,
            },
        }
    }
}

/// The kernel's facts about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Link {
    speed_bits_per_second: Option<u64>,
    receive_queues: usize,
    /// Frames leave the machine through it, as far as can be seen.
    physical: bool,
    bridge: bool,
}

/// An interface that clients learn of, with one of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedInterface {
    /// Index of the interface in the kernel.
    pub index: u32,
    /// The device has several receive queues.
    pub has_rss: bool,
    /// SMB Direct is reached at the address.
    pub has_rdma: bool,
    /// Speed of the link, or the least that clients are shown.
    pub link_bits_per_s: u64,
    /// IPv4 or IPv6 address on which the server listens.
    pub address: IpAddr,
}

/// The source of interfaces, and the rules for those that clients may learn.
#[derive(Debug, Clone)]
pub struct Interfaces {
    /// Addresses that SMB over TCP listens on.
    pub smb: Vec<SocketAddr>,
    /// Addresses that SMB Direct listens on.
    pub rdma: Vec<SocketAddr>,
    /// None: all.
    pub rules: Vec<InterfaceRule>,
    pub sysfs: PathBuf,
}

impl Interfaces {
    /// Reads the interfaces that clients learn now; none if the system does not report them.
    pub fn read(&self) -> Vec<ListedInterface> {
        match sys::interface_addresses() {
            Ok(addresses) => self.told(&addresses),
            Err(error) => {
                tracing::warn!(%error, "the network interfaces cannot be listed: clients use one connection");
                Vec::new()
            }
        }
    }

    /// Returns the interfaces of these addresses for clients.
    fn told(&self, addresses: &[InterfaceAddress]) -> Vec<ListedInterface> {
        let mut told: Vec<ListedInterface> = Vec::new();
        for one in addresses {
            if !one.running || is_link_local(one.address) || !listens(&self.smb, one.address) {
                continue;
            }
            let rule = self.rules.iter().find(|rule| rule.covers(one));
            if rule.is_none() && !self.rules.is_empty() {
                continue;
            }
            let link = link(&self.sysfs, &one.name, 0);
            // A bridge without a port of its own to the outside leads to this machine's guests alone; an
            // administrator who wants it shown names it.
            let named = rule.is_some() || self.smb.iter().any(|listener| listener.ip() == one.address);
            if link.bridge && !link.physical && !named {
                continue;
            }
            let configured = rule.and_then(|rule| rule.speed_mbps).map(|mbps| mbps * 1_000_000);
            told.push(ListedInterface {
                index: one.index,
                has_rss: link.receive_queues > 1,
                has_rdma: listens(&self.rdma, one.address),
                link_bits_per_s: configured.or(link.speed_bits_per_second).unwrap_or(SPEED_UNKNOWN),
                address: one.address,
            });
        }
        told
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_unspecified(),
    }
}

/// Whether one of the listeners is reached at `address` by others, or, on a loopback address, is meant to be reached there.
fn listens(listeners: &[SocketAddr], address: IpAddr) -> bool {
    listeners.iter().any(|listener| {
        let own = listener.ip();
        own == address
            || own.is_unspecified() && !address.is_loopback() && (own.is_ipv6() || address.is_ipv4())
    })
}

fn link(sysfs: &Path, name: &str, depth: u32) -> Link {
    let device = sysfs.join(name);
    let bridge = device.join("bridge").is_dir();
    let own_speed = || {
        let text = std::fs::read_to_string(device.join("speed")).ok()?;
        text.trim().parse::<u64>().ok().filter(|mbps| *mbps > 0 && *mbps < u64::from(u32::MAX))
    };
    if device.join("device").exists() {
        let receive_queues = entries(&device.join("queues"), "rx-").len();
        let speed_bits_per_second = own_speed().map(|mbps| mbps * 1_000_000);
        return Link { speed_bits_per_second, receive_queues, physical: true, bridge };
    }
    // A virtual device makes its speed and queues up; the devices below it do not.
    let below: Vec<Link> = entries(&device, "lower_")
        .iter()
        .filter(|_| depth < DEPTH_MAX)
        .filter_map(|entry| entry.strip_prefix("lower_"))
        .map(|lower| link(sysfs, lower, depth + 1))
        .filter(|lower| lower.physical)
        .collect();
    let bonded =
        if device.join("bonding").is_dir() { own_speed().map(|mbps| mbps * 1_000_000) } else { None };
    Link {
        speed_bits_per_second: bonded
            .or_else(|| below.iter().filter_map(|lower| lower.speed_bits_per_second).max()),
        receive_queues: below.iter().map(|lower| lower.receive_queues).max().unwrap_or(0),
        physical: !below.is_empty(),
        bridge,
    }
}

/// Names in a directory that begin with `prefix`.
fn entries(directory: &Path, prefix: &str) -> Vec<String> {
    let Ok(found) = std::fs::read_dir(directory) else { return Vec::new() };
    found
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

#[cfg(test)]
mod tests;
