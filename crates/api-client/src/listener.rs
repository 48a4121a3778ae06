//! The user who listens at an address of this machine: any user may take a port once its server is gone.
//!
//! Promises: no request with the token leaves for a listener of another user. Looks the listener up in the kernel's table (proc_net(5));
//! never connects.

use crate::failure::Failure;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ROOT: u32 = 0;
/// TCP_LISTEN of the kernel's table.
const LISTENING: &str = "0A";

/// An address of this machine with the users whose server may listen there. An address elsewhere is not
/// checked, since HTTPS, or the network, proves the server.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    trusted: [u32; 3],
}

impl Listener {
    /// Trusts root, the user of this command, and the owner of the token. `None` if the address is not this machine's loopback.
    pub fn of(address: SocketAddr, token_owner: u32) -> Option<Self> {
        let user = rustix::process::geteuid().as_raw();
        address
            .ip()
            .to_canonical()
            .is_loopback()
            .then_some(Self { address, trusted: [ROOT, user, token_owner] })
    }

    /// Demands that the listener's user is trusted. If nobody listens, the connection fails by itself.
    ///
    /// # Errors
    /// The listener's user, or that the kernel's table cannot be read.
    pub fn demand_trusted(&self) -> Result<(), Failure> {
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let text = match std::fs::read_to_string(table) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Failure::new(format!("{table}: {error}"))),
            };
            if let Some(stranger) =
                owners(&text, self.address).into_iter().find(|owner| !self.trusted.contains(owner))
            {
                return Err(Failure::new(format!(
                    "{} is listened at by user id {stranger}, not by the server's user: nothing was sent; the server is not running, \
                     or another program has its port",
                    self.address
                )));
            }
        }
        Ok(())
    }
}

/// Returns the users who listen at `wanted`, or at any address.
fn owners(table: &str, wanted: SocketAddr) -> Vec<u32> {
    let listener = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let is_there =
            u16::from_str_radix(port, 16).ok()? == wanted.port() && words.get(3) == Some(&LISTENING);
        let ip = ip_of(address)?.to_canonical();
        (is_there && (ip.is_unspecified() || ip == wanted.ip().to_canonical()))
            .then(|| words.get(7)?.parse().ok())?
    };
    table.lines().filter_map(listener).collect()
}

/// An address as the kernel prints it: words of four bytes, each in this machine's order.
fn ip_of(text: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for word in text.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_of_another_user_is_refused_and_named() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = here.local_addr().unwrap();
        let user = rustix::process::geteuid().as_raw();
        Listener::of(address, user).unwrap().demand_trusted().unwrap();
        let stranger = Listener { address, trusted: [user + 1, user + 2, user + 3] };
        let refused = stranger.demand_trusted().expect_err("it is nobody's who is trusted").message;
        assert!(refused.contains(&format!("user id {user}")), "{refused}");
        drop(here);
        stranger.demand_trusted().expect("nobody listens");
    }

    #[test]
    fn listeners_at_any_address_and_mapped_ones_count() {
        let line = |address: &str, state: &str| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 9 1 0"
            )
        };
        let wanted: SocketAddr = "127.0.0.1:9445".parse().unwrap();
        let any6 = "0".repeat(32);
        let mapped = format!("0000000000000000{}0100007F", "FFFF0000");
        for address in ["0100007F", "00000000", &any6, &mapped] {
            let table = line(&format!("{address}:24E5"), "0A");
            assert_eq!(owners(&table, wanted), [1000], "{address}");
        }
        for other in [line("0100007F:24E5", "01"), line("0100007F:24E6", "0A"), line("0200007F:24E5", "0A")] {
            assert_eq!(owners(&other, wanted), [0; 0], "{other}");
        }
        assert_eq!(owners("  sl  local_address\n junk\n 0: zz:24E5 x 0A", wanted), [0; 0]);
    }

    #[test]
    fn only_addresses_of_this_machine_are_looked_up() {
        assert!(Listener::of("192.0.2.1:9445".parse().unwrap(), 0).is_none());
        assert!(Listener::of("[::1]:9445".parse().unwrap(), 0).is_some());
    }
}
