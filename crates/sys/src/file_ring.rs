//! An io_uring of one thread for reading and writing files with a fixed set of buffers: what a load generator needs and no more.
//!
//! Each operation goes by a slot, which owns a buffer for reads and one for writes. No operation allocates or takes a lock:
//! files and buffers are registered once, if the system permits. Safe to call: a slot in flight is refused to its user, and
//! memory that the kernel may still write to is never freed. The daemon's loop, with its sockets and timers, is
//! [`crate::driver`].

use crate::region::Region;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest submission queue of the kernel.
const ENTRIES_MAX: u32 = 32_768;
/// Largest registered buffer of the kernel.
const REGISTERED_BYTES_MAX: usize = 1 << 30;
/// How long a dropped ring waits for the kernel before it leaks what the kernel still holds.
const DROP_WAIT: Duration = Duration::from_secs(5);
const TICK: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// Parameters of a ring.
pub struct FileRingSetup {
    /// Operations name files by their place here.
    pub files: Vec<Arc<OwnedFd>>,
    /// Operations in flight at most.
    pub slots: u32,
    /// Bytes of each slot's buffers.
    pub read_bytes: usize,
    pub write_bytes: usize,
    /// Memory that writes may come from, named by its place here.
    pub sources: Vec<Arc<Region>>,
    pub large_pages: bool,
    /// [`FileRing::wait`] returns at least this often.
    pub tick: Duration,
}

/// Where the bytes of a write come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteFrom {
    /// The slot's own buffer.
    Slot,
    Source {
        index: usize,
        at: usize,
    },
}

/// How the kernel shall do one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileOperation {
    pub slot: u32,
    pub file: u32,
    pub offset: u64,
    pub len_bytes: u32,
    /// As in ioprio_set(2); 0: the thread's.
    pub priority: u16,
    /// RWF_DSYNC; of writes.
    pub is_durable: bool,
}

pub struct FileRing {
    /// Dropped by hand: leaked with the memory where the kernel does not let go.
    ring: ManuallyDrop<IoUring>,
    memory: ManuallyDrop<Region>,
    files: Vec<Arc<OwnedFd>>,
    sources: ManuallyDrop<Vec<Arc<Region>>>,
    read_bytes: usize,
    write_bytes: usize,
    /// Bytes of a slot, from one slot's buffers to the next.
    stride_bytes: usize,
    busy: Vec<bool>,
    in_flight: u32,
    /// Registered buffer of the slots' memory, and of each source.
    slots_buffer: Option<u16>,
    source_buffers: Vec<Option<u16>>,
    files_registered: bool,
    tick: Box<types::Timespec>,
    tick_armed: bool,
}

impl FileRing {
    /// # Errors
    /// If io_uring is not permitted here, or there is no memory.
    pub fn new(setup: FileRingSetup) -> io::Result<Self> {
        let entries = (setup.slots + 2).next_power_of_two().min(ENTRIES_MAX);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .build(entries)
            .or_else(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => IoUring::new(entries),
                _ => Err(error),
            })?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"));
        }
        let stride_bytes = setup.read_bytes.next_multiple_of(crate::ALIGN_BYTES)
            + setup.write_bytes.next_multiple_of(crate::ALIGN_BYTES);
        let memory_bytes = stride_bytes
            .checked_mul(setup.slots as usize)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let memory = Region::new(memory_bytes, setup.large_pages)?;
        let descriptors: Vec<i32> = setup.files.iter().map(|file| file.as_raw_fd()).collect();
        let files_registered =
            !descriptors.is_empty() && ring.submitter().register_files(&descriptors).is_ok();
        let mut vectors = Vec::new();
        let mut offer = |region: &Region| {
            (region.len() <= REGISTERED_BYTES_MAX && !region.is_empty()).then(|| {
                vectors.push(libc::iovec { iov_base: region.start().cast(), iov_len: region.len() });
                (vectors.len() - 1) as u16
            })
        };
        let mut slots_buffer = offer(&memory);
        let mut source_buffers: Vec<Option<u16>> = setup.sources.iter().map(|source| offer(source)).collect();
        // SAFETY: the regions live as long as the ring: both are fields of this value, and leaked together.
        let registered =
            !vectors.is_empty() && unsafe { ring.submitter().register_buffers(&vectors) }.is_ok();
        if !registered {
            // Over the limit of locked memory, say: operations then name addresses.
            slots_buffer = None;
            source_buffers.fill(None);
        }
        let mut ring = Self {
            ring: ManuallyDrop::new(ring),
            memory: ManuallyDrop::new(memory),
            files: setup.files,
            sources: ManuallyDrop::new(setup.sources),
            read_bytes: setup.read_bytes,
            write_bytes: setup.write_bytes,
            stride_bytes,
            busy: vec![false; setup.slots as usize],
            in_flight: 0,
            slots_buffer,
            source_buffers,
            files_registered,
            tick: Box::new(types::Timespec::from(setup.tick)),
            tick_armed: false,
        };
        ring.arm_tick();
        Ok(ring)
    }

    /// Operations that the kernel has not answered.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn idle(&self, slot: u32) {
        assert!(!self.busy[slot as usize], "slot {slot} is in flight");
    }

    /// The bytes that a write of this slot would write.
    ///
    /// # Panics
    /// When the slot is in flight.
    pub fn write_buffer(&mut self, slot: u32) -> &mut [u8] {
        self.idle(slot);
        let at = slot as usize * self.stride_bytes + self.read_bytes.next_multiple_of(crate::ALIGN_BYTES);
        // SAFETY: within the slot's part of the memory, which the kernel does not use while the slot is idle; `self` is
        // borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().add(at), self.write_bytes) }
    }

    /// The bytes that the slot's last read read.
    ///
    /// # Panics
    /// When the slot is in flight.
    pub fn read_buffer(&mut self, slot: u32) -> &mut [u8] {
        self.idle(slot);
        let at = slot as usize * self.stride_bytes;
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().add(at), self.read_bytes) }
    }

    fn descriptor(&self, file: u32) -> (types::Fd, squeue::Flags) {
        if self.files_registered {
            assert!((file as usize) < self.files.len(), "file {file}");
            (types::Fd(file as i32), squeue::Flags::FIXED_FILE)
        } else {
            (types::Fd(self.files[file as usize].as_raw_fd()), squeue::Flags::empty())
        }
    }

    /// Queues a read into the slot's buffer; [`Self::wait`] hands it to the kernel.
    ///
    /// # Panics
    /// If the slot is in flight, the length over its buffer's or the file unknown.
    pub fn read(&mut self, operation: &FileOperation) {
        self.idle(operation.slot);
        assert!(operation.len_bytes as usize <= self.read_bytes, "a read over its buffer");
        let (fd, flags) = self.descriptor(operation.file);
        let at = operation.slot as usize * self.stride_bytes;
        // SAFETY: within the memory.
        let address = unsafe { self.memory.start().add(at) };
        let entry = match self.slots_buffer {
            Some(buffer) => opcode::ReadFixed::new(fd, address, operation.len_bytes, buffer)
                .offset(operation.offset)
                .ioprio(operation.priority)
                .build(),
            None => opcode::Read::new(fd, address, operation.len_bytes)
                .offset(operation.offset)
                .ioprio(operation.priority)
                .build(),
        };
        self.start(operation.slot, &entry.flags(flags));
    }

    /// Queues a write; [`Self::wait`] hands it to the kernel.
    ///
    /// # Panics
    /// As [`Self::read`], and where the source is too short.
    pub fn write(&mut self, operation: &FileOperation, from: WriteFrom) {
        self.idle(operation.slot);
        let len = operation.len_bytes as usize;
        let (address, buffer) = match from {
            WriteFrom::Slot => {
                assert!(len <= self.write_bytes, "a write over its buffer");
                let at = operation.slot as usize * self.stride_bytes
                    + self.read_bytes.next_multiple_of(crate::ALIGN_BYTES);
                // SAFETY: within the memory.
                (unsafe { self.memory.start().add(at) }, self.slots_buffer)
            }
            WriteFrom::Source { index, at } => {
                let source = &self.sources[index];
                assert!(
                    at.checked_add(len).is_some_and(|end| end <= source.len()),
                    "a write over its source"
                );
                // SAFETY: within the source, as just checked.
                (unsafe { source.start().add(at) }, self.source_buffers[index])
            }
        };
        let (fd, flags) = self.descriptor(operation.file);
        let durable = if operation.is_durable { libc::RWF_DSYNC } else { 0 };
        let entry = match buffer {
            Some(buffer) => opcode::WriteFixed::new(fd, address, operation.len_bytes, buffer)
                .offset(operation.offset)
                .ioprio(operation.priority)
                .rw_flags(durable)
                .build(),
            None => opcode::Write::new(fd, address, operation.len_bytes)
                .offset(operation.offset)
                .ioprio(operation.priority)
                .rw_flags(durable)
                .build(),
        };
        self.start(operation.slot, &entry.flags(flags));
    }

    fn start(&mut self, slot: u32, entry: &squeue::Entry) {
        self.busy[slot as usize] = true;
        self.in_flight += 1;
        self.push(&entry.clone().user_data(u64::from(slot)));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: buffers, descriptors and time that entries name are fields of this value, and leaked rather than freed
        // while the kernel may use them.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // Full: the kernel takes all of it, or is busy with completions, whose queue never overflows for good.
            if self.ring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn arm_tick(&mut self) {
        if !self.tick_armed {
            self.tick_armed = true;
            let entry = opcode::Timeout::new(&raw const *self.tick).build().user_data(TICK);
            self.push(&entry);
        }
    }

    /// Hands what is queued to the kernel, and sleeps until something completes, a tick or `timeout` has passed.
    ///
    /// # Errors
    /// When the kernel refuses to continue with the ring itself; nothing that one operation did.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.arm_tick();
        let is_ready = !self.ring.completion().is_empty();
        let entered = match timeout {
            _ if is_ready => self.ring.submit(),
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let time = types::Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Gives every completion that is there: the slot, and the bytes moved or the error's number.
    pub fn completions(&mut self, mut each: impl FnMut(u32, Result<u32, i32>)) {
        let (busy, in_flight, armed) = (&mut self.busy, &mut self.in_flight, &mut self.tick_armed);
        for entry in self.ring.completion() {
            match entry.user_data() {
                TICK => *armed = false,
                CANCEL => {}
                slot => {
                    if let Some(busy) = busy.get_mut(slot as usize)
                        && std::mem::take(busy)
                    {
                        *in_flight -= 1;
                        let result = u32::try_from(entry.result()).map_err(|_| -entry.result());
                        each(slot as u32, result);
                    }
                }
            }
        }
    }

    /// Asks the kernel to give up what is in flight; each operation still completes.
    pub fn cancel_all(&mut self) {
        for slot in 0..self.busy.len() {
            if self.busy[slot] {
                self.push(&opcode::AsyncCancel::new(slot as u64).build().user_data(CANCEL));
            }
        }
    }
}

impl AsFd for FileRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring, which outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for FileRing {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            self.cancel_all();
        }
        let deadline = Instant::now() + DROP_WAIT;
        while self.in_flight > 0 && Instant::now() < deadline {
            if self.wait(Some(Duration::from_millis(100))).is_err() {
                break;
            }
            self.completions(|_, _| {});
        }
        if self.in_flight == 0 {
            // SAFETY: dropped once, here; the ring first, so that nothing names the memory any more. The kernel copied the
            // tick's time when it took the entry.
            unsafe {
                ManuallyDrop::drop(&mut self.ring);
                ManuallyDrop::drop(&mut self.memory);
                ManuallyDrop::drop(&mut self.sources);
            }
        }
    }
}

#[cfg(test)]
#[path = "file_ring_tests.rs"]
mod tests;
