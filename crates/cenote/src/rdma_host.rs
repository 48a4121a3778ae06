//! The RDMA of this machine: its interfaces, the kernel's devices, and each one's reason not to serve
//! SMB Direct.
//!
//! Only reads /sys and the list of addresses, and queries libibverbs for its devices.

use crate::rdma_devices::transport_name;
use api::model::{Rdma, RdmaDevice, RdmaInterface, RdmaListener, RdmaState};
use rdma::{Device, PortState};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

const NETWORK: &str = "/sys/class/net";
const DEVICES: &str = "/sys/class/infiniband";

/// Adds the machine's devices and interfaces to the data plane's state, for `rdma list`.
pub fn describe(state: RdmaState) -> Rdma {
    let listeners: Vec<SocketAddr> =
        state.listeners.iter().filter_map(|listener| listener.address.parse().ok()).collect();
    let addresses = match sys::interface_addresses() {
        Ok(addresses) => addresses,
        Err(error) => {
            tracing::warn!(%error, "the network interfaces cannot be listed");
            Vec::new()
        }
    };
    let mut by_name: BTreeMap<String, (bool, Vec<IpAddr>)> = BTreeMap::new();
    for one in addresses {
        let entry = by_name.entry(one.name).or_default();
        entry.0 |= one.running;
        entry.1.push(one.address);
    }
    let interfaces = by_name.into_iter().map(|(name, (running, addresses))| {
        interface(Path::new(NETWORK), name, running, &addresses, &listeners)
    });
    let (devices, no_devices) = devices(Path::new(DEVICES), rdma::devices(), &state.listeners);
    Rdma { interfaces: interfaces.collect(), devices, no_devices, state }
}

/// Merges the kernel's devices and libibverbs' into one list. Also returns why there are none of the
/// latter.
fn devices(
    kernel: &Path,
    usable: Result<Vec<Device>, String>,
    listeners: &[RdmaListener],
) -> (Vec<RdmaDevice>, String) {
    let mut shown: Vec<RdmaDevice> = match std::fs::read_dir(kernel) {
        Ok(entries) => entries.flatten().map(|entry| device(&entry.path())).collect(),
        // Without RDMA in the kernel there is no such directory.
        Err(_) => Vec::new(),
    };
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    let (usable, reason) = match usable {
        Ok(usable) => (usable, String::new()),
        Err(reason) => (Vec::new(), reason),
    };
    for one in &mut shown {
        let Some(device) = usable.iter().find(|device| device.name == one.name) else {
            one.reason = if reason.is_empty() {
                "libibverbs does not list it: is its driver installed (Debian: ibverbs-providers)?".to_owned()
            } else {
                reason.clone()
            };
            continue;
        };
        one.transport = transport_name(device.transport).to_owned();
        one.addresses = device.addresses.iter().map(ToString::to_string).collect();
        one.used = listeners.iter().any(|listener| listener.provider == device.name);
        if !one.used {
            one.reason = why_not(device);
        }
    }
    (shown, reason)
}

/// Why nothing listens by a device that libibverbs can use.
fn why_not(device: &Device) -> String {
    if !device.ports.iter().any(|port| port.state == PortState::Active) {
        let states: Vec<String> = device.ports.iter().map(|port| port.state.to_string()).collect();
        return format!("its port is {}", states.join(", "));
    }
    if device.addresses.is_empty() {
        return "no address of this machine leads to it: give its interface one".to_owned();
    }
    "nothing listened on its addresses at the start: smb.listen or smb.rdma_devices has to name one"
        .to_owned()
}

/// An interface, and why clients do not reach SMB Direct by it.
pub(crate) fn interface(
    network: &Path,
    name: String,
    running: bool,
    addresses: &[IpAddr],
    listeners: &[SocketAddr],
) -> RdmaInterface {
    let reached = |address: &IpAddr| {
        listeners.iter().any(|listener| {
            listener.ip() == *address
                || listener.ip().is_unspecified() && (listener.is_ipv6() || address.is_ipv4())
        })
    };
    let loopback = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
    let reason = if !running {
        "it is down".to_owned()
    } else if listeners.is_empty() {
        "nothing listens for SMB Direct: name an address in smb.rdma_listen".to_owned()
    } else if !addresses.iter().any(reached) {
        let ports: Vec<String> = listeners.iter().map(ToString::to_string).collect();
        format!(
            "no SMB Direct listener on its addresses (there is {}): add one to smb.rdma_listen",
            ports.join(", ")
        )
    } else if loopback {
        "only this machine reaches it".to_owned()
    } else {
        String::new()
    };
    let speed = std::fs::read_to_string(network.join(&name).join("speed")).ok();
    // The kernel reports -1 for a link without a speed.
    let speed_bits_s = speed
        .and_then(|text| text.trim().parse::<u64>().ok())
        .map(|megabits| megabits.saturating_mul(1_000_000));
    RdmaInterface {
        node: None,
        addresses: addresses.iter().map(ToString::to_string).collect(),
        speed_bits_s,
        capable: reason.is_empty(),
        reason,
        name,
    }
}

/// Describes a device of the kernel by /sys.
pub(crate) fn device(path: &Path) -> RdmaDevice {
    let read = |file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default().trim().to_owned();
    // "4: RNIC" and "4: ACTIVE": a number and a word.
    let word = |text: String| text.split_once(": ").map(|(_, word)| word.to_owned()).unwrap_or(text);
    let transport = if word(read("node_type")) == "RNIC" {
        "iWARP"
    } else if read("ports/1/link_layer") == "Ethernet" {
        "RoCE"
    } else {
        "InfiniBand"
    };
    let interface = std::fs::read_dir(path.join("device/net"))
        .ok()
        .and_then(|mut entries| entries.next()?.ok())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        // Software devices have no parent; the kernel knows the owner of the port's first address.
        .or_else(|| Some(read("ports/1/gid_attrs/ndevs/0")).filter(|name| !name.is_empty()));
    RdmaDevice {
        node: None,
        name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        transport: transport.to_owned(),
        state: word(read("ports/1/state")),
        interface,
        addresses: Vec::new(),
        used: false,
        reason: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma_devices::device_of_test;

    fn shown(addresses: &[&str], listeners: &[&str], running: bool) -> RdmaInterface {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        let listeners: Vec<SocketAddr> =
            listeners.iter().map(|text| text.parse().expect("an address")).collect();
        interface(Path::new("/nowhere"), "eth0".to_owned(), running, &addresses, &listeners)
    }

    #[test]
    fn an_interface_is_capable_where_a_listener_is_reached_by_it() {
        assert!(shown(&["192.0.2.1"], &["192.0.2.1:5445"], true).capable);
        assert!(shown(&["192.0.2.1", "fe80::1"], &["0.0.0.0:5445"], true).capable);
    }

    #[test]
    fn the_reason_why_not_names_what_to_do() {
        assert_eq!(shown(&["192.0.2.1"], &["192.0.2.1:5445"], false).reason, "it is down");
        assert!(shown(&["192.0.2.1"], &[], true).reason.contains("smb.rdma_listen"));
        assert!(shown(&["192.0.2.1"], &["127.0.0.1:5445"], true).reason.contains("127.0.0.1:5445"));
        assert!(shown(&["2001:db8::1"], &["0.0.0.0:5445"], true).reason.contains("no SMB Direct listener"));
        assert_eq!(shown(&["127.0.0.1"], &["127.0.0.1:5445"], true).reason, "only this machine reaches it");
    }

    fn usable(name: &str, state: PortState, addresses: &[&str]) -> Device {
        let ports = vec![rdma::Port { number: 1, state, mtu_bytes: 4096, speed_mbps: 100_000 }];
        device_of_test(name, rdma::Transport::RoCe, ports, addresses)
    }

    #[test]
    fn each_device_of_the_kernel_is_used_or_says_why_not() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["a_serves", "b_down", "c_bare", "d_silent", "e_unknown"] {
            std::fs::create_dir_all(root.path().join(name)).expect("is made");
        }
        let found = vec![
            usable("a_serves", PortState::Active, &["192.0.2.1"]),
            usable("b_down", PortState::Down, &["192.0.2.2"]),
            usable("c_bare", PortState::Active, &[]),
            usable("d_silent", PortState::Active, &["192.0.2.4"]),
        ];
        let listener = RdmaListener {
            node: None,
            address: "192.0.2.1:445".into(),
            transport: "RoCE".into(),
            provider: "a_serves".into(),
        };
        let (shown, reason) = devices(root.path(), Ok(found), std::slice::from_ref(&listener));
        assert_eq!(reason, "");
        assert_eq!((shown[0].used, shown[0].reason.as_str()), (true, ""));
        assert_eq!(
            (shown[0].transport.as_str(), shown[0].addresses.join(" ").as_str()),
            ("RoCE", "192.0.2.1")
        );
        let why = ["its port is down", "no address", "nothing listened", "does not list it"];
        for (device, why) in shown[1..].iter().zip(why) {
            assert!(!device.used && device.reason.contains(why), "{device:?}");
        }

        let (shown, reason) = devices(root.path(), Err("no libibverbs".into()), &[listener]);
        assert_eq!(reason, "no libibverbs");
        assert!(shown.iter().all(|device| !device.used && device.reason == reason));
    }

    #[test]
    fn a_device_is_read_from_what_the_kernel_shows() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("siw0");
        std::fs::create_dir_all(path.join("ports/1")).expect("is made");
        std::fs::create_dir_all(path.join("device/net/eth1")).expect("is made");
        std::fs::write(path.join("node_type"), "4: RNIC\n").expect("is written");
        std::fs::write(path.join("ports/1/state"), "4: ACTIVE\n").expect("is written");
        let shown = device(&path);
        assert_eq!((shown.name.as_str(), shown.transport.as_str()), ("siw0", "iWARP"));
        assert_eq!((shown.state.as_str(), shown.interface.as_deref()), ("ACTIVE", Some("eth1")));
    }
}
