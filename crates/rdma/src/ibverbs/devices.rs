//! Lists the RDMA devices, or says why none can be used.

use super::cm::{ConnectionId, EventChannel};
use super::layout::*;
use super::library::{self, Library};
use super::local_addresses;
use super::pair::transport;
use super::resources::Context;
use crate::verbs::Transport;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;

/// One RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kernel's name, such as mlx5_0 or siw0.
    pub name: String,
    pub transport: Transport,
    pub firmware: String,
    pub ports: Vec<Port>,
    /// Addresses of this machine that lead to the device: a listener on one of them is the device's.
    pub addresses: Vec<IpAddr>,
    pub limits: DeviceLimits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub number: u8,
    pub state: PortState,
    pub mtu_bytes: u32,
    /// As the device says; software devices say what they please.
    pub speed_mbps: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortState {
    Down,
    Initializing,
    Armed,
    Active,
    /// Any other number of `enum ibv_port_state`.
    Other(c_int),
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::Initializing => f.write_str("initializing"),
            Self::Armed => f.write_str("armed"),
            Self::Active => f.write_str("active"),
            Self::Other(number) => write!(f, "state {number}"),
        }
    }
}

/// Limits of the device; the provider keeps within them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    pub queue_pairs: u32,
    /// Requests on one queue of a connection.
    pub queue_depth: u32,
    /// Pieces of memory in one request, and in one RDMA Read.
    pub elements: u32,
    pub read_elements: u32,
    /// RDMA Reads of one connection that are served, and that are outstanding, at a time.
    pub inbound_read_depth: u32,
    pub outbound_read_depth: u32,
    pub registrations: u32,
    pub registration_bytes: u64,
}

/// The devices of this machine.
///
/// # Errors
/// Why there is none that can be used, as a sentence for people.
pub fn devices() -> Result<Vec<Device>, String> {
    let library = library::library()?;
    let list = List::new(library)?;
    let mut devices = Vec::new();
    let mut refused = None;
    for device in list.devices() {
        match describe(library, device) {
            Ok(Some(device)) => devices.push(device),
            Ok(None) => {}
            Err(why) => refused = Some(why),
        }
    }
    if devices.is_empty() {
        return Err(refused.unwrap_or_else(none));
    }
    assign_addresses(library, &mut devices)?;
    Ok(devices)
}

/// Why libibverbs finds nothing.
fn none() -> String {
    let names: Vec<String> = std::fs::read_dir("/sys/class/infiniband")
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    if names.is_empty() {
        return "this machine has no RDMA device".into();
    }
    format!(
        "the kernel has {}, but libibverbs cannot use it: is the module ib_uverbs loaded, and its driver installed (Debian: \
         ibverbs-providers)?",
        names.join(", ")
    )
}

/// The library's list of devices.
struct List {
    library: &'static Library,
    first: NonNull<*mut ibv_device>,
    count: usize,
}

impl List {
    fn new(library: &'static Library) -> Result<Self, String> {
        let mut count: c_int = 0;
        // SAFETY: the target is writable.
        let first = unsafe { (library.verbs.ibv_get_device_list)(&mut count) };
        match NonNull::new(first) {
            Some(first) => Ok(Self { library, first, count: usize::try_from(count).unwrap_or(0) }),
            None if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) => Err(none()),
            None => Err(format!("libibverbs lists no devices: {}", io::Error::last_os_error())),
        }
    }

    fn devices(&self) -> impl Iterator<Item = NonNull<ibv_device>> {
        // SAFETY: the list has `count` entries until it is freed.
        let entries = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) };
        entries.iter().copied().filter_map(NonNull::new)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made by ibv_get_device_list, freed once.
        unsafe { (self.library.verbs.ibv_free_device_list)(self.first.as_ptr()) };
    }
}

/// A device of the list, open while its properties are read.
struct Open(&'static Library, NonNull<ibv_context>);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: made by ibv_open_device; nothing was made of it.
        unsafe { (self.0.verbs.ibv_close_device)(self.1.as_ptr()) };
    }
}

/// `Ok(None)`: of a kind that has no connections.
fn describe(library: &'static Library, device: NonNull<ibv_device>) -> Result<Option<Device>, String> {
    // SAFETY: the device is in the list.
    let kind = unsafe { device.as_ref().transport_type };
    if kind != IBV_TRANSPORT_IB && kind != IBV_TRANSPORT_IWARP {
        return Ok(None);
    }
    // SAFETY: as above; the name ends with NUL.
    let name = unsafe { CStr::from_ptr((library.verbs.ibv_get_device_name)(device.as_ptr())) };
    let name = name.to_string_lossy().into_owned();
    let failed = |error: io::Error| format!("the RDMA device {name} cannot be used: {error}");
    // SAFETY: as above.
    let context = unsafe { (library.verbs.ibv_open_device)(device.as_ptr()) };
    let open = Open(library, NonNull::new(context).ok_or_else(|| failed(io::Error::last_os_error()))?);
    // SAFETY: the context is only used below, while `open` lives.
    let context = unsafe { Context::new(open.1) };
    let attributes = context.attributes(library).map_err(failed)?;
    let mut ports = Vec::new();
    for number in 1..=attributes.phys_port_cnt {
        ports.push(port(number, &context.port(library, number).map_err(failed)?));
    }
    let limit = |value: c_int| u32::try_from(value).unwrap_or(0);
    Ok(Some(Device {
        transport: transport(library, context),
        firmware: text(&attributes.fw_ver),
        ports,
        addresses: Vec::new(),
        limits: DeviceLimits {
            queue_pairs: limit(attributes.max_qp),
            queue_depth: limit(attributes.max_qp_wr),
            elements: limit(attributes.max_sge),
            read_elements: limit(attributes.max_sge_rd),
            inbound_read_depth: limit(attributes.max_qp_rd_atom),
            outbound_read_depth: limit(attributes.max_qp_init_rd_atom),
            registrations: limit(attributes.max_mr),
            registration_bytes: attributes.max_mr_size,
        },
        name,
    }))
}

fn text(characters: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn port(number: u8, attributes: &ibv_port_attr) -> Port {
    Port {
        number,
        state: match attributes.state {
            1 => PortState::Down,
            2 => PortState::Initializing,
            3 => PortState::Armed,
            IBV_PORT_ACTIVE => PortState::Active,
            other => PortState::Other(other),
        },
        // IBV_MTU_256 is 1, each further one is twice as long.
        mtu_bytes: match attributes.active_mtu {
            code @ 1..=5 => 128 << code,
            _ => 0,
        },
        speed_mbps: lanes(attributes.active_width) * lane_mbps(attributes.active_speed),
    }
}

/// IBTA volume 1, PortInfo: LinkWidthActive.
fn lanes(width: u8) -> u64 {
    match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

/// IBTA volume 1, PortInfo: LinkSpeedActive and LinkSpeedExtActive, as ibv_query_port folds them.
fn lane_mbps(speed: u8) -> u64 {
    match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    }
}

/// Asks the connection manager where each address of this machine leads.
fn assign_addresses(library: &'static Library, devices: &mut [Device]) -> Result<(), String> {
    let channel = EventChannel::new(library).map_err(|error| {
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        format!(
            "the RDMA connection manager cannot be used ({error}), and so neither {}: is the module rdma_ucm loaded, and \
             /dev/infiniband/rdma_cm open to this user?",
            names.join(", ")
        )
    })?;
    for address in local_addresses() {
        let Ok(mut id) = ConnectionId::new(library, &channel, 0) else { continue };
        if id.bind(SocketAddr::new(address, 0)).is_err() {
            continue;
        }
        let Some(name) = id.context().map(|context| context.name(library)) else { continue };
        if let Some(device) = devices.iter_mut().find(|device| device.name == name) {
            device.addresses.push(address);
        }
    }
    Ok(())
}
