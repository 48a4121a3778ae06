//! An address and a default route for a network interface, by rtnetlink(7): the machines have no `ip`.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};
use std::io;
use std::net::Ipv4Addr;

// linux/netlink.h and linux/rtnetlink.h.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_BOOT: u8 = 3;
const RTN_UNICAST: u8 = 1;
const HEADER_BYTES: usize = 16;

/// Gives the interface an address, brings it up, and routes everything that is not near by a gateway.
///
/// # Errors
/// The kernel's error.
pub fn configure(index: u32, address: Ipv4Addr, prefix_length: u8, gateway: Ipv4Addr) -> io::Result<()> {
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let index_bytes = index.to_ne_bytes();
    for (kind, body) in [
        (RTM_NEWADDR, new_address(index_bytes, address, prefix_length)),
        (RTM_NEWLINK, link_up(index_bytes)),
        (RTM_NEWROUTE, default_route(index_bytes, gateway)),
    ] {
        send(&socket, &message(kind, &body), SendFlags::empty())?;
        let mut answer = [0; 1024];
        let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
        acknowledged(answer.get(..length).unwrap_or_default())?;
    }
    Ok(())
}

/// struct nlmsghdr and a body.
fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE).to_ne_bytes());
    // Sequence number and port: one request is under way, of this process.
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

/// struct rtattr with four bytes.
fn attribute(kind: u16, value: [u8; 4]) -> Vec<u8> {
    let mut bytes = 8_u16.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes
}

/// struct ifaddrmsg.
fn new_address(index: [u8; 4], address: Ipv4Addr, prefix_length: u8) -> Vec<u8> {
    let mut body = vec![AF_INET, prefix_length, 0, 0];
    body.extend(index);
    body.extend(attribute(IFA_LOCAL, address.octets()));
    body.extend(attribute(IFA_ADDRESS, address.octets()));
    body
}

/// struct ifinfomsg: family, type, index, flags, and which flags change.
fn link_up(index: [u8; 4]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index);
    body.extend(IFF_UP.to_ne_bytes());
    body.extend(IFF_UP.to_ne_bytes());
    body
}

/// struct rtmsg: no destination is all.
fn default_route(index: [u8; 4], gateway: Ipv4Addr) -> Vec<u8> {
    let mut body = vec![AF_INET, 0, 0, 0, RT_TABLE_MAIN, RTPROT_BOOT, 0, RTN_UNICAST];
    body.extend([0; 4]);
    body.extend(attribute(RTA_GATEWAY, gateway.octets()));
    body.extend(attribute(RTA_OIF, index));
    body
}

/// An answer to a request that asked for one is struct nlmsgerr, with 0 if all is well.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let wrong =
        || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer to a netlink request is none");
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_kernels_sizes() {
        let address = new_address([1, 0, 0, 0], Ipv4Addr::new(10, 0, 2, 15), 24);
        assert_eq!((address.len(), link_up([1, 0, 0, 0]).len()), (8 + 16, 16));
        let route = default_route([1, 0, 0, 0], Ipv4Addr::new(10, 0, 2, 2));
        assert_eq!(route.len(), 12 + 16);
        let message = message(RTM_NEWROUTE, &route);
        assert_eq!(message[..4], 44_u32.to_ne_bytes());
        assert_eq!(message.len(), 44);
    }

    #[test]
    fn an_answer_is_an_error_number() {
        let answer = |code: i32| {
            let mut bytes = message(NLMSG_ERROR, &code.to_ne_bytes());
            bytes.extend([0; 16]);
            acknowledged(&bytes)
        };
        assert!(answer(0).is_ok());
        // ENODEV.
        assert_eq!(answer(-19).unwrap_err().raw_os_error(), Some(19));
        assert!(acknowledged(&[]).is_err() && acknowledged(&message(RTM_NEWADDR, &[0; 4])).is_err());
    }

    #[test]
    fn the_kernel_understands_them() {
        // Only root may do it, and this is an interface that there is not: either way it was read.
        let error = configure(u32::MAX >> 1, Ipv4Addr::new(10, 0, 2, 15), 24, Ipv4Addr::new(10, 0, 2, 2));
        // EPERM, ENODEV.
        assert!(matches!(error.unwrap_err().raw_os_error(), Some(1 | 19)));
    }
}
