//! The addresses that this machine's network interfaces have at the moment.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// One address of one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// As in /sys/class/net.
    pub name: String,
    /// The kernel's number of the interface.
    pub index: u32,
    pub address: IpAddr,
    /// Whether the interface and its link are up.
    pub running: bool,
}

/// All IPv4 and IPv6 addresses, in the kernel's order.
///
/// # Errors
/// Lists interfaces and their addresses as getifaddrs(3) reports them.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is a valid place for the pointer to the list; it is only read where the call succeeds.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    while !next.is_null() {
        // SAFETY: each element of the list stays valid and unchanged until freeifaddrs below.
        let entry = unsafe { &*next };
        // SAFETY: as above; the name is a string that ends with zero, the address one of the family it names.
        if let Some(address) = unsafe { address_of(entry.ifa_addr) }
            && !entry.ifa_name.is_null()
        {
            // SAFETY: not null, and ends with zero.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            // SAFETY: as above.
            let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            let needed = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
            found.push(InterfaceAddress {
                name: name.to_string_lossy().into_owned(),
                index,
                address,
                running: entry.ifa_flags & needed == needed,
            });
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// # Safety
/// `address` is null or points to a socket address of the family that it names.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: it is one of AF_INET.
            let v4 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: it is one of AF_INET6.
            let v6 = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::interface_addresses;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn the_loopback_interface_is_found_with_its_number() {
        let found = interface_addresses().unwrap();
        let loopback = found.iter().find(|one| one.address == IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        assert_eq!(loopback.name, "lo");
        assert!(loopback.running && loopback.index != 0);
    }
}
