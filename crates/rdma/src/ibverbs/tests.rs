//! Tests that need no device: numbers of the headers turned into the words of the interface.

use super::devices::{PortState, port};
use super::endpoint::{Limits, status_of};
use super::layout::*;
use super::pair::refused;
use super::{address, local_addresses};
use crate::verbs::{CloseReason, Status};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

fn attributes() -> ibv_device_attr {
    // SAFETY: plain integers, for which all bits zero is a value.
    unsafe { std::mem::zeroed() }
}

#[test]
fn a_connection_stays_within_what_the_device_allows() {
    // Those of siw.
    let siw = ibv_device_attr {
        max_qp_wr: 32768,
        max_sge: 6,
        max_sge_rd: 1,
        max_cqe: 100 << 10,
        max_qp_rd_atom: 128,
        max_qp_init_rd_atom: 128,
        ..attributes()
    };
    let limits = Limits::new(&siw, (32, 32));
    assert_eq!((limits.elements, limits.inbound_read_depth, limits.outbound_read_depth), (6, 32, 32));

    let small = ibv_device_attr {
        max_qp_wr: 16,
        max_sge: 30,
        max_cqe: 30,
        max_qp_rd_atom: 4,
        max_qp_init_rd_atom: 0,
        ..attributes()
    };
    let limits = Limits::new(&small, (32, 32));
    assert!(limits.send_depth + limits.receive_depth <= 30);
    assert_eq!((limits.elements, limits.inbound_read_depth, limits.outbound_read_depth), (16, 4, 0));

    // A device that says nothing still gets queues of one request.
    let limits = Limits::new(&attributes(), (32, 32));
    assert_eq!((limits.send_depth, limits.receive_depth, limits.elements), (1, 1, 1));
}

#[test]
fn statuses_of_work_keep_their_meaning() {
    assert_eq!(status_of(IBV_WC_SUCCESS), Status::Success);
    assert_eq!(status_of(IBV_WC_WR_FLUSH_ERR), Status::Flushed);
    assert_eq!(status_of(IBV_WC_REM_ACCESS_ERR), Status::RemoteAccess);
    assert_eq!(status_of(IBV_WC_RNR_RETRY_EXC_ERR), Status::RetriesExceeded);
    assert_eq!(status_of(21), Status::Failed(21));
}

#[test]
fn nobody_listening_is_told_from_a_refusal() {
    let nobody = CloseReason::Network(ErrorKind::ConnectionRefused);
    assert_eq!(refused(8), nobody);
    assert_eq!(refused(-libc::ECONNREFUSED), CloseReason::Rejected);
    assert_eq!(refused(28), CloseReason::Rejected);
    assert_eq!(refused(-libc::ECONNRESET), CloseReason::Rejected);
}

#[test]
fn a_port_is_described_in_bytes_and_megabits() {
    let attributes = ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        active_mtu: 5,
        active_width: 2,
        active_speed: 32,
        ..ibv_port_attr::default()
    };
    let port = port(1, &attributes);
    assert_eq!((port.state, port.mtu_bytes, port.speed_mbps), (PortState::Active, 4096, 100_000));
}

#[test]
fn addresses_survive_the_way_through_the_kernels_form() {
    for text in ["192.0.2.7:5445", "[2001:db8::17]:445"] {
        let address: SocketAddr = text.parse().expect("an address");
        assert_eq!(address::from_kernel(&address::to_kernel(address)), Some(address));
    }
}

#[test]
fn loopback_is_among_the_local_addresses() {
    assert!(local_addresses().contains(&IpAddr::from([127, 0, 0, 1])));
}
