//! Protection domains, registrations, completion channels and queues: each ends with its owner.
//!
//! Promises: memory stays while a device may reach it; if a device does not let go of it, it is never freed.

use super::layout::*;
use super::library::Library;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use sys::{Buf, BufMut, Payload};

/// Turns the result of a call that returns an error number into a `Result`.
pub(super) fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        // Calls of libibverbs answer with the number, those of librdmacm with -1 and errno.
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

/// Turns the result of a call that returns an address into a `Result`.
fn made<T>(address: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(address).ok_or_else(io::Error::last_os_error)
}

/// Makes reads of a descriptor of the libraries answer EAGAIN instead of waiting.
pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// An open device, borrowed from the connection identifier that is bound to it.
#[derive(Clone, Copy)]
pub(super) struct Context(NonNull<ibv_context>);

impl Context {
    /// # Safety
    /// The context stays open longer than everything that is made of it.
    pub unsafe fn new(context: NonNull<ibv_context>) -> Self {
        Self(context)
    }

    pub fn as_ptr(self) -> *mut ibv_context {
        self.0.as_ptr()
    }

    /// Transport by the device's own word.
    pub fn transport_type(self) -> c_int {
        // SAFETY: an open context has a device.
        unsafe { (*(*self.0.as_ptr()).device).transport_type }
    }

    pub fn attributes(self, library: &Library) -> io::Result<ibv_device_attr> {
        // SAFETY: plain integers, for which all bits zero is a value.
        let mut attributes: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open; the target has the size of the headers' structure.
        check(unsafe { (library.verbs.ibv_query_device)(self.as_ptr(), &mut attributes) })?;
        Ok(attributes)
    }

    pub fn port(self, library: &Library, number: u8) -> io::Result<ibv_port_attr> {
        let mut attributes = ibv_port_attr::default();
        // SAFETY: as in `attributes`.
        check(unsafe { (library.verbs.ibv_query_port)(self.as_ptr(), number, &mut attributes) })?;
        Ok(attributes)
    }

    pub fn name(self, library: &Library) -> String {
        // SAFETY: an open context has a device; its name ends with NUL.
        unsafe {
            let name = (library.verbs.ibv_get_device_name)((*self.as_ptr()).device);
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }
}

/// A set of objects that may name each other's memory: one for each connection, so that a peer reaches only memory that is registered for it.
pub(super) struct ProtectionDomain {
    library: &'static Library,
    domain: NonNull<ibv_pd>,
}

impl ProtectionDomain {
    pub fn new(library: &'static Library, context: Context) -> io::Result<Rc<Self>> {
        // SAFETY: the context is open.
        let domain = made(unsafe { (library.verbs.ibv_alloc_pd)(context.as_ptr()) })?;
        Ok(Rc::new(Self { library, domain }))
    }

    pub fn as_ptr(&self) -> *mut ibv_pd {
        self.domain.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: made by ibv_alloc_pd; everything made of it holds a reference to this, and so is gone.
        unsafe { (self.library.verbs.ibv_dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// The bytes of a registration.
pub(super) enum Memory {
    Owned(BufMut),
    Shared(Buf),
}

/// Registered memory. Nobody but the device and [`Self::copy_in`] and [`Self::copy_out`] touches the bytes until it ends.
pub(super) struct MemoryRegion {
    library: &'static Library,
    region: NonNull<ibv_mr>,
    address: *mut u8,
    len_bytes: usize,
    memory: ManuallyDrop<Memory>,
    /// Outlives the registration.
    domain: ManuallyDrop<Rc<ProtectionDomain>>,
}

impl MemoryRegion {
    /// Bytes that the device may write.
    pub fn owned(domain: &Rc<ProtectionDomain>, mut bytes: BufMut, access: c_int) -> io::Result<Self> {
        let (address, len_bytes) = (bytes.as_mut_ptr(), bytes.len());
        Self::new(domain, address, len_bytes, Memory::Owned(bytes), access | IBV_ACCESS_LOCAL_WRITE)
    }

    /// Bytes that the device only reads; `access` is without a right to write.
    pub fn shared(domain: &Rc<ProtectionDomain>, bytes: Buf, access: c_int) -> io::Result<Self> {
        let (address, len_bytes) = (bytes.as_ptr().cast_mut(), bytes.len());
        let access = access & IBV_ACCESS_REMOTE_READ;
        Self::new(domain, address, len_bytes, Memory::Shared(bytes), access)
    }

    fn new(
        domain: &Rc<ProtectionDomain>,
        address: *mut u8,
        len_bytes: usize,
        memory: Memory,
        access: c_int,
    ) -> io::Result<Self> {
        let library = domain.library;
        // SAFETY: the bytes are held by `memory` until the registration has ended; if they are shared the device may not write.
        let region = unsafe {
            (library.verbs.ibv_reg_mr)(domain.as_ptr(), address.cast::<c_void>(), len_bytes, access)
        };
        Ok(Self {
            library,
            region: made(region)?,
            address,
            len_bytes,
            memory: ManuallyDrop::new(memory),
            domain: ManuallyDrop::new(domain.clone()),
        })
    }

    pub fn is_writable(&self) -> bool {
        matches!(*self.memory, Memory::Owned(_))
    }

    /// Returns the key by which a peer names the registration.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: made by ibv_reg_mr, and not ended.
        unsafe { self.region.as_ref().rkey }
    }

    /// Returns the key by which the device itself names the registration.
    pub fn local_key(&self) -> u32 {
        // SAFETY: made by ibv_reg_mr, and not ended.
        unsafe { self.region.as_ref().lkey }
    }

    /// Where a peer finds the first byte.
    pub fn remote_address(&self) -> u64 {
        self.address as u64
    }

    /// Part of it, for a work request; `None` if it does not lie within.
    pub fn element(&self, offset: usize, len_bytes: usize) -> Option<ibv_sge> {
        if offset.checked_add(len_bytes)? > self.len_bytes {
            return None;
        }
        Some(ibv_sge {
            addr: (self.address as u64).checked_add(offset as u64)?,
            length: u32::try_from(len_bytes).ok()?,
            lkey: self.local_key(),
        })
    }

    /// Writes `bytes` from `offset` on.
    ///
    /// # Panics
    /// If they do not fit, or the memory is shared.
    ///
    /// # Safety
    /// No work that may touch these bytes is with the device.
    pub unsafe fn copy_in(&self, offset: usize, payload: &Payload) {
        assert!(
            self.is_writable() && offset + payload.len() <= self.len_bytes,
            "bytes outside a registration"
        );
        let mut at = offset;
        for part in payload.parts() {
            // SAFETY: within the allocation (asserted); the address came from a unique buffer that is kept
            // and not read; nobody else touches these bytes (the caller's promise).
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), self.address.add(at), part.len()) };
            at += part.len();
        }
    }

    /// A copy of `len_bytes` from `offset` on.
    ///
    /// # Panics
    /// When they do not lie within.
    ///
    /// # Safety
    /// No work that may touch these bytes is with the device.
    pub unsafe fn copy_out(&self, offset: usize, len_bytes: usize) -> BufMut {
        assert!(offset + len_bytes <= self.len_bytes, "bytes outside a registration");
        let mut copy = BufMut::for_overwrite(len_bytes);
        // SAFETY: within both allocations, which are different; nobody else touches these bytes (the caller's promise).
        unsafe { ptr::copy_nonoverlapping(self.address.add(offset), copy.as_mut_ptr(), len_bytes) };
        copy
    }

    /// Ends the registration; `None` if the device does not let go of the bytes.
    pub fn end(mut self) -> Option<Memory> {
        let memory = self.release();
        std::mem::forget(self);
        memory
    }

    /// Runs once. `None`: the device keeps the memory, which then must not be freed.
    fn release(&mut self) -> Option<Memory> {
        // SAFETY: made by ibv_reg_mr; this is its only end.
        let ended = unsafe { (self.library.verbs.ibv_dereg_mr)(self.region.as_ptr()) } == 0;
        // SAFETY: `release` runs once, and nothing uses the fields after it.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        // SAFETY: as above.
        drop(unsafe { ManuallyDrop::take(&mut self.domain) });
        if ended {
            return Some(memory);
        }
        std::mem::forget(memory);
        None
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.release();
    }
}

/// A queue of completions, and the descriptor that becomes readable when one comes after [`Self::arm`].
pub(super) struct CompletionQueue {
    library: &'static Library,
    channel: NonNull<ibv_comp_channel>,
    queue: NonNull<ibv_cq>,
}

impl CompletionQueue {
    pub fn new(library: &'static Library, context: Context, entries: u32) -> io::Result<Self> {
        // SAFETY: the context is open.
        let channel = made(unsafe { (library.verbs.ibv_create_comp_channel)(context.as_ptr()) })?;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: the context is open, the channel is of this context; vector 0 always exists.
        let queue = made(unsafe {
            (library.verbs.ibv_create_cq)(context.as_ptr(), entries, ptr::null_mut(), channel.as_ptr(), 0)
        });
        match queue {
            Ok(queue) => {
                let queue = Self { library, channel, queue };
                set_nonblocking(queue.as_fd())?;
                Ok(queue)
            }
            Err(error) => {
                // SAFETY: nothing was made of the channel.
                unsafe { (library.verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
                Err(error)
            }
        }
    }

    pub fn as_ptr(&self) -> *mut ibv_cq {
        self.queue.as_ptr()
    }

    /// Takes the notices that wait, and asks for one of the next completion. Earlier completions are to be polled for after this.
    pub fn arm(&self) -> io::Result<()> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let mut notices = 0u32;
        // SAFETY: the channel lives as long as this; the targets are writable.
        while unsafe {
            (self.library.verbs.ibv_get_cq_event)(self.channel.as_ptr(), &mut queue, &mut context)
        } == 0
        {
            notices += 1;
        }
        if notices > 0 {
            // SAFETY: the channel has this queue only, so that the notices were its.
            unsafe { (self.library.verbs.ibv_ack_cq_events)(self.queue.as_ptr(), notices) };
        }
        // SAFETY: the queue's context is open and has its driver's functions, as ibv_req_notify_cq of the headers presumes.
        let result = unsafe {
            let notify =
                (*self.queue.as_ref().context).ops.req_notify_cq.ok_or(io::ErrorKind::Unsupported)?;
            notify(self.queue.as_ptr(), 0)
        };
        check(result)
    }

    /// Moves completions into `out`; how many.
    pub fn poll(&self, out: &mut [ibv_wc]) -> io::Result<usize> {
        let room = c_int::try_from(out.len()).unwrap_or(c_int::MAX);
        // SAFETY: as in `arm`; the driver writes at most `room` entries.
        let count = unsafe {
            let poll = (*self.queue.as_ref().context).ops.poll_cq.ok_or(io::ErrorKind::Unsupported)?;
            poll(self.queue.as_ptr(), room, out.as_mut_ptr())
        };
        usize::try_from(count).map_err(|_| io::Error::other("the completion queue failed"))
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open as long as the channel, which this owns.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs that used it are gone (`Endpoint` drops them first); all notices were acknowledged.
        unsafe {
            (self.library.verbs.ibv_destroy_cq)(self.queue.as_ptr());
            (self.library.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

/// Returns a status's name.
pub(super) fn status_name(library: &Library, status: c_int) -> String {
    // SAFETY: the function answers a static string for every number.
    unsafe { CStr::from_ptr((library.verbs.ibv_wc_status_str)(status)).to_string_lossy().into_owned() }
}
