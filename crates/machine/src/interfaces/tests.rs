use super::{InterfaceRule, Interfaces, ListedInterface, SPEED_UNKNOWN};
use std::fs;
use std::path::Path;
use sys::InterfaceAddress;

/// A made-up /sys/class/net.
struct System {
    root: tempfile::TempDir,
    addresses: Vec<InterfaceAddress>,
}

impl System {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), addresses: Vec::new() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn card(&mut self, name: &str, speed: &str, queues: usize, addresses: &[&str]) {
        fs::create_dir_all(self.path(name).join("device")).unwrap();
        fs::write(self.path(name).join("speed"), speed).unwrap();
        for queue in 0..queues {
            fs::create_dir_all(self.path(name).join(format!("queues/rx-{queue}"))).unwrap();
        }
        self.address(name, addresses);
    }

    /// A virtual device over others, that claims a speed.
    fn upper(&mut self, name: &str, mark: &str, below: &[&str], addresses: &[&str]) {
        fs::create_dir_all(self.path(name).join(mark)).unwrap();
        fs::write(self.path(name).join("speed"), "10000\n").unwrap();
        for lower in below {
            fs::create_dir_all(self.path(name).join(format!("lower_{lower}"))).unwrap();
        }
        self.address(name, addresses);
    }

    fn address(&mut self, name: &str, addresses: &[&str]) {
        fs::create_dir_all(self.path(name)).unwrap();
        for address in addresses {
            let index = self.addresses.len() as u32 + 1;
            let address = address.parse().unwrap();
            self.addresses.push(InterfaceAddress { name: name.to_owned(), index, address, running: true });
        }
    }

    fn told(&self, smb: &[&str], rdma: &[&str], rules: &[&str]) -> Vec<ListedInterface> {
        let sockets = |list: &[&str]| list.iter().map(|one| one.parse().unwrap()).collect();
        let interfaces = Interfaces {
            smb: sockets(smb),
            rdma: sockets(rdma),
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            sysfs: Path::new(self.root.path()).to_owned(),
        };
        interfaces.told(&self.addresses)
    }
}

fn addresses(told: &[ListedInterface]) -> Vec<String> {
    told.iter().map(|one| one.address.to_string()).collect()
}

#[test]
fn loopback_and_link_local_addresses_are_not_told() {
    let mut system = System::new();
    system.address("lo", &["127.0.0.1", "::1"]);
    system.card("eth0", "1000\n", 1, &["10.0.0.5", "169.254.3.4", "fd00::5", "fe80::1"]);
    assert_eq!(addresses(&system.told(&["0.0.0.0:445", "[::]:445"], &[], &[])), ["10.0.0.5", "fd00::5"]);
}

#[test]
fn loopback_is_told_where_that_is_what_is_listened_on() {
    let mut system = System::new();
    system.address("lo", &["127.0.0.1", "::1"]);
    system.card("eth0", "1000\n", 1, &["10.0.0.5"]);
    let told = system.told(&["127.0.0.1:4455"], &[], &[]);
    assert_eq!(addresses(&told), ["127.0.0.1"]);
    assert_eq!(told[0].link_bits_per_s, SPEED_UNKNOWN);
    assert!(!told[0].has_rss && !told[0].has_rdma);
}

#[test]
fn speed_and_queues_are_those_of_the_card() {
    let mut system = System::new();
    system.card("eth0", "25000\n", 8, &["10.0.0.5"]);
    system.card("eth1", "-1\n", 1, &["10.0.1.5"]);
    let told = system.told(&["0.0.0.0:445"], &["10.0.1.5:5445"], &[]);
    assert_eq!((told[0].link_bits_per_s, told[0].has_rss, told[0].has_rdma), (25_000_000_000, true, false));
    assert_eq!((told[1].link_bits_per_s, told[1].has_rss, told[1].has_rdma), (SPEED_UNKNOWN, false, true));
}

#[test]
fn a_bridge_is_as_fast_as_its_cards_and_not_as_it_says() {
    let mut system = System::new();
    system.card("eth0", "1000\n", 4, &[]);
    system.upper("tap0", "tun_flags", &[], &[]);
    system.upper("br0", "bridge", &["eth0", "tap0"], &["10.0.0.5"]);
    let told = system.told(&["0.0.0.0:445"], &[], &[]);
    assert_eq!((told[0].link_bits_per_s, told[0].has_rss, told[0].has_rdma), (1_000_000_000, true, false));
}

#[test]
fn a_bridge_of_guests_alone_is_told_only_where_it_is_named() {
    let mut system = System::new();
    system.upper("tap0", "tun_flags", &[], &[]);
    system.upper("virbr0", "bridge", &["tap0"], &["192.168.122.1"]);
    assert!(system.told(&["0.0.0.0:445"], &[], &[]).is_empty());
    for told in
        [system.told(&["0.0.0.0:445"], &[], &["virbr*"]), system.told(&["192.168.122.1:445"], &[], &[])]
    {
        assert_eq!(addresses(&told), ["192.168.122.1"]);
        assert_eq!(told[0].link_bits_per_s, SPEED_UNKNOWN, "what the bridge claims is a guess");
    }
}

#[test]
fn a_vlan_on_a_bond_has_the_speed_of_the_bond() {
    let mut system = System::new();
    system.card("eth0", "4000\n", 2, &[]);
    system.card("eth1", "4000\n", 2, &[]);
    system.upper("bond0", "bonding", &["eth0", "eth1"], &[]);
    system.upper("bond0.7", "vlan", &["bond0"], &["10.7.0.1"]);
    let told = system.told(&["0.0.0.0:445"], &[], &[]);
    assert_eq!(told[0].link_bits_per_s, 10_000_000_000);
}

#[test]
fn rules_choose_by_name_and_subnet_and_may_say_the_speed() {
    let mut system = System::new();
    system.card("eth0", "1000\n", 1, &["10.0.0.5", "fd00:1::5"]);
    system.card("eth1", "-1\n", 1, &["10.1.2.3"]);
    system.card("ib0", "1000\n", 1, &["10.2.0.1"]);
    let told = system.told(&["[::]:445"], &[], &["10.1.0.0/16,speed_mbps=40000", "fd00:1::/64"]);
    assert_eq!(addresses(&told), ["fd00:1::5", "10.1.2.3"]);
    assert_eq!(told[1].link_bits_per_s, 40_000_000_000);
    assert_eq!(addresses(&system.told(&["0.0.0.0:445"], &[], &["ib0"])), ["10.2.0.1"]);
}

#[test]
fn links_that_are_down_are_not_told() {
    let mut system = System::new();
    system.card("eth0", "1000\n", 1, &["10.0.0.5"]);
    system.addresses[0].running = false;
    assert!(system.told(&["0.0.0.0:445"], &[], &[]).is_empty());
}

#[test]
fn devices_that_lie_below_each_other_end() {
    let mut system = System::new();
    system.upper("a", "x", &["b", "b2"], &["10.0.0.5"]);
    system.upper("b", "x", &["a"], &[]);
    system.upper("b2", "x", &["a"], &[]);
    assert_eq!(system.told(&["0.0.0.0:445"], &[], &[]).len(), 1);
}

#[test]
fn rules_that_mean_nothing_are_refused() {
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0/8",
        "eth0,speed=5",
        "eth0,speed_mbps=0",
        "two words",
        "a-name-far-too-long",
    ] {
        assert!(text.parse::<InterfaceRule>().is_err(), "{text:?}");
    }
}
