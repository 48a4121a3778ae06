//! Connection management: identifiers, their events, and the queue pair of each.
//!
//! Promises: an event is acknowledged as soon as it is read, so that an identifier can always be ended; nothing here waits for a peer.

use super::address;
use super::layout::*;
use super::library::Library;
use super::resources::{CompletionQueue, Context, ProtectionDomain, check, set_nonblocking};
use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;

/// Milliseconds in which an address and a route have to be found.
const RESOLVE_MS: c_int = 2000;
/// How often a device sends again what nobody acknowledged.
const RETRIES: u8 = 7;
/// How often a device sends again what found no receive; 7 would mean for ever.
const RECEIVER_NOT_READY_RETRIES: u8 = 6;

/// Where events of identifiers come out.
pub(super) struct EventChannel {
    library: &'static Library,
    channel: NonNull<rdma_event_channel>,
}

impl EventChannel {
    pub fn new(library: &'static Library) -> io::Result<Rc<Self>> {
        // SAFETY: takes nothing.
        let channel = unsafe { (library.cm.rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { library, channel };
        set_nonblocking(channel.as_fd())?;
        Ok(Rc::new(channel))
    }

    /// The next event; `None` if there is none.
    pub fn next(self: &Rc<Self>) -> io::Result<Option<CmEvent>> {
        let mut event: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: the channel lives as long as this; the target is writable.
        if unsafe { (self.library.cm.rdma_get_cm_event)(self.channel.as_ptr(), &mut event) } != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: a successful call gave an event, which stays until it is acknowledged below.
        let (read, id) = unsafe { (self.read(&*event), (*event).id) };
        // SAFETY: given by rdma_get_cm_event and acknowledged once.
        unsafe { (self.library.cm.rdma_ack_cm_event)(event) };
        let mut read = read;
        if read.kind == RDMA_CM_EVENT_CONNECT_REQUEST
            && let Some(id) = NonNull::new(id)
        {
            // A new identifier, which is the receiver's to end.
            read.request = Some(ConnectionId { library: self.library, id, _channel: self.clone() });
        }
        Ok(Some(read))
    }

    fn read(&self, event: &rdma_cm_event) -> CmEvent {
        let (data, len) = (event.conn.private_data, usize::from(event.conn.private_data_len));
        let private_data = if data.is_null() || len == 0 {
            Vec::new()
        } else {
            // SAFETY: the library says that this many bytes are there until the event is acknowledged.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec()
        };
        CmEvent {
            kind: event.event,
            status: event.status,
            // SAFETY: identifiers of events exist until they are ended, and events of an ended one do not come.
            name: unsafe { event.id.as_ref() }.map_or(0, |id| id.context as u64),
            request: None,
            private_data,
            responder_resources: event.conn.responder_resources,
            initiator_depth: event.conn.initiator_depth,
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which this owns.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: each identifier holds a reference to this, and so is gone; all events were acknowledged.
        unsafe { (self.library.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

/// An event of the connection manager.
pub(super) struct CmEvent {
    /// `RDMA_CM_EVENT_*`.
    pub kind: c_int,
    /// An error number, negative; with REJECTED over InfiniBand and RoCE the reason, positive.
    pub status: c_int,
    /// The name that [`ConnectionId::set_name`] gave; a request carries its listener's.
    pub name: u64,
    /// Of CONNECT_REQUEST.
    pub request: Option<ConnectionId>,
    pub private_data: Vec<u8>,
    /// Reads that the peer wants to have served.
    pub responder_resources: u8,
    /// Reads that the peer serves.
    pub initiator_depth: u8,
}

/// Parameters that are agreed with a peer.
pub(super) struct Parameters<'a> {
    pub private_data: &'a [u8],
    pub responder_resources: u8,
    pub initiator_depth: u8,
}

impl Parameters<'_> {
    fn to_kernel(&self) -> io::Result<rdma_conn_param> {
        let private_data_len =
            u8::try_from(self.private_data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(rdma_conn_param {
            private_data: if private_data_len == 0 { ptr::null() } else { self.private_data.as_ptr().cast() },
            private_data_len,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RECEIVER_NOT_READY_RETRIES,
            srq: 0,
            qp_num: 0,
        })
    }
}

/// A listener, or one end of a connection with or without a queue pair.
pub(super) struct ConnectionId {
    library: &'static Library,
    id: NonNull<rdma_cm_id>,
    /// Outlives the identifier.
    _channel: Rc<EventChannel>,
}

impl ConnectionId {
    pub fn new(library: &'static Library, channel: &Rc<EventChannel>, name: u64) -> io::Result<Self> {
        let mut id: *mut rdma_cm_id = ptr::null_mut();
        let name = name as usize as *mut c_void;
        // SAFETY: the channel lives as long as the identifier; the name is never followed.
        check(unsafe { (library.cm.rdma_create_id)(channel.channel.as_ptr(), &mut id, name, RDMA_PS_TCP) })?;
        let id = NonNull::new(id).ok_or(io::ErrorKind::Other)?;
        Ok(Self { library, id, _channel: channel.clone() })
    }

    /// Sets the name that its events carry from here on.
    pub fn set_name(&mut self, name: u64) {
        // SAFETY: the identifier is alive; the library only hands the field on.
        unsafe { (*self.id.as_ptr()).context = name as usize as *mut c_void };
    }

    /// Binds to a local address, and so to its device.
    ///
    /// # Errors
    /// ENODEV where the address leads to no RDMA device; else as for a socket.
    pub fn bind(&mut self, address: SocketAddr) -> io::Result<()> {
        self.set_option(RDMA_OPTION_ID_REUSEADDR)?;
        if address.is_ipv6() {
            self.set_option(RDMA_OPTION_ID_AFONLY)?;
        }
        let mut address = address::to_kernel(address);
        // SAFETY: the identifier is alive; the address has the size of its family.
        check(unsafe { (self.library.cm.rdma_bind_addr)(self.id.as_ptr(), (&raw mut address).cast()) })?;
        match self.context() {
            Some(_) => Ok(()),
            None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    /// Turns an option of the identifier on.
    fn set_option(&mut self, name: c_int) -> io::Result<()> {
        let mut on: c_int = 1;
        // SAFETY: the identifier is alive; these options take an int.
        check(unsafe {
            (self.library.cm.rdma_set_option)(
                self.id.as_ptr(),
                RDMA_OPTION_ID,
                name,
                (&raw mut on).cast(),
                size_of::<c_int>(),
            )
        })
    }

    pub fn listen(&mut self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier is alive.
        check(unsafe { (self.library.cm.rdma_listen)(self.id.as_ptr(), backlog) })
    }

    /// Asks for the way to an address; ADDR_RESOLVED or ADDR_ERROR follows.
    pub fn resolve_address(&mut self, address: SocketAddr) -> io::Result<()> {
        let mut address = address::to_kernel(address);
        // SAFETY: the identifier is alive; the address has the size of its family.
        check(unsafe {
            (self.library.cm.rdma_resolve_addr)(
                self.id.as_ptr(),
                ptr::null_mut(),
                (&raw mut address).cast(),
                RESOLVE_MS,
            )
        })
    }

    /// ROUTE_RESOLVED or ROUTE_ERROR follows.
    pub fn resolve_route(&mut self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { (self.library.cm.rdma_resolve_route)(self.id.as_ptr(), RESOLVE_MS) })
    }

    /// The device that it is bound to. It stays open while the identifier is alive.
    pub fn context(&self) -> Option<Context> {
        // SAFETY: the identifier is alive. Those who make something of the context end it before the identifier.
        unsafe { NonNull::new(self.id.as_ref().verbs).map(|context| Context::new(context)) }
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive.
        address::from_kernel(unsafe { &self.id.as_ref().addr.src_storage })
    }

    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier is alive.
        address::from_kernel(unsafe { &self.id.as_ref().addr.dst_storage })
    }

    /// # Safety
    /// `queue` and `domain` are of this identifier's device and stay until [`Self::destroy_queue_pair`].
    pub unsafe fn create_queue_pair(
        &mut self,
        domain: &ProtectionDomain,
        queue: &CompletionQueue,
        capacity: ibv_qp_cap,
    ) -> io::Result<()> {
        let mut attributes = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: queue.as_ptr(),
            recv_cq: queue.as_ptr(),
            srq: ptr::null_mut(),
            cap: capacity,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: the identifier is alive; domain and queue are of its device (the caller's promise).
        check(unsafe { (self.library.cm.rdma_create_qp)(self.id.as_ptr(), domain.as_ptr(), &mut attributes) })
    }

    /// Ends the queue pair, if there is one: after this the device touches nothing for it.
    pub fn destroy_queue_pair(&mut self) {
        // SAFETY: the identifier is alive.
        unsafe {
            if !(*self.id.as_ptr()).qp.is_null() {
                (self.library.cm.rdma_destroy_qp)(self.id.as_ptr());
            }
        }
    }

    /// ESTABLISHED, REJECTED, UNREACHABLE or CONNECT_ERROR follows.
    pub fn connect(&mut self, parameters: &Parameters<'_>) -> io::Result<()> {
        let mut parameters = parameters.to_kernel()?;
        // SAFETY: the identifier is alive; the private data is copied.
        check(unsafe { (self.library.cm.rdma_connect)(self.id.as_ptr(), &mut parameters) })
    }

    /// ESTABLISHED or CONNECT_ERROR follows.
    pub fn accept(&mut self, parameters: &Parameters<'_>) -> io::Result<()> {
        let mut parameters = parameters.to_kernel()?;
        // SAFETY: the identifier is alive; the private data is copied.
        check(unsafe { (self.library.cm.rdma_accept)(self.id.as_ptr(), &mut parameters) })
    }

    pub fn reject(&mut self, private_data: &[u8]) -> io::Result<()> {
        let len = u8::try_from(private_data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the identifier is alive; the private data is copied.
        check(unsafe { (self.library.cm.rdma_reject)(self.id.as_ptr(), private_data.as_ptr().cast(), len) })
    }

    /// Disconnects from the peer; DISCONNECTED follows if it answers.
    pub fn disconnect(&mut self) -> io::Result<()> {
        // SAFETY: the identifier is alive.
        check(unsafe { (self.library.cm.rdma_disconnect)(self.id.as_ptr()) })
    }

    fn queue_pair(&self) -> io::Result<NonNull<ibv_qp>> {
        // SAFETY: the identifier is alive.
        NonNull::new(unsafe { self.id.as_ref().qp }).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Hands work to the send queue.
    ///
    /// # Safety
    /// The memory that `elements` name stays, and is used by nobody else, until the work has completed or the queue pair has ended.
    pub unsafe fn post_send(&self, work: &SendWork, elements: &[ibv_sge]) -> io::Result<()> {
        let queue_pair = self.queue_pair()?;
        // siw's library takes the registration that a Send ends from where RDMA's remote key is; others do not look there for a Send.
        let rkey = if work.opcode == IBV_WR_SEND_WITH_INV { work.invalidate } else { work.remote.0 };
        let mut request = ibv_send_wr {
            wr_id: work.id,
            next: ptr::null_mut(),
            sg_list: elements.as_ptr().cast_mut(),
            num_sge: c_int::try_from(elements.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            opcode: work.opcode,
            send_flags: IBV_SEND_SIGNALED as c_uint,
            invalidate_rkey: work.invalidate,
            remote_addr: work.remote.1,
            rkey,
            _rest_of_wr: [0; 5],
            _qp_type: 0,
            _bind_mw_or_tso: [0; 6],
        };
        let mut refused = ptr::null_mut();
        // SAFETY: the queue pair is alive and its context has its driver's functions, as ibv_post_send of the headers presumes; the
        // request and its list are copied by the call; the memory stays (the caller's promise).
        check(unsafe {
            let context = queue_pair.as_ref().context;
            let post = (*context).ops.post_send.ok_or(io::ErrorKind::Unsupported)?;
            post(queue_pair.as_ptr(), &mut request, &mut refused)
        })
    }

    /// Hands memory for one message to the receive queue.
    ///
    /// # Safety
    /// As [`Self::post_send`].
    pub unsafe fn post_receive(&self, id: u64, mut element: ibv_sge) -> io::Result<()> {
        let queue_pair = self.queue_pair()?;
        let mut request = ibv_recv_wr { wr_id: id, next: ptr::null_mut(), sg_list: &mut element, num_sge: 1 };
        let mut refused = ptr::null_mut();
        // SAFETY: as in `post_send`.
        check(unsafe {
            let context = queue_pair.as_ref().context;
            let post = (*context).ops.post_recv.ok_or(io::ErrorKind::Unsupported)?;
            post(queue_pair.as_ptr(), &mut request, &mut refused)
        })
    }
}

/// One request of the send queue.
pub(super) struct SendWork {
    pub id: u64,
    /// `IBV_WR_*`.
    pub opcode: c_int,
    /// The peer's key that a Send ends.
    pub invalidate: u32,
    /// Key and address in the peer's memory.
    pub remote: (u32, u64),
}

impl Drop for ConnectionId {
    fn drop(&mut self) {
        self.destroy_queue_pair();
        // SAFETY: made by the library; it has no queue pair, its events were acknowledged, and this is its only end.
        unsafe { (self.library.cm.rdma_destroy_id)(self.id.as_ptr()) };
    }
}
