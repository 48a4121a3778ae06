//! The data plane's ground: aligned reference-counted buffers, io_uring rings, the per-core loop.
//!
//! Owns memory that payload lives in and the ring that sockets and disks share. Promises: safe to call from
//! `#![forbid(unsafe_code)]` crates. Never knows what disks or protocols mean.

mod buf;
mod child;
mod clock;
mod descriptors;
pub mod driver;
pub mod file_ring;
mod interfaces;
pub mod interrupt;
mod listening;
mod payload;
mod prefetch;
mod priority;
mod receive_window;
mod recycle;
pub mod region;
mod sizes;
mod spans;

pub use buf::{BUFFER_BYTES_MAX, Buf, BufMut};
pub use child::die_with_parent;
pub use clock::monotonic_now;
pub use descriptors::raise_descriptor_limit;
pub use interfaces::{InterfaceAddress, interface_addresses};
pub use listening::{ListenError, listen};
pub use payload::Payload;
pub use prefetch::prefetch;
pub use priority::{ask_for_precedence, ask_for_real_time, give_real_time_up};
pub use receive_window::widen_receive_window;
pub use recycle::{keep_free_memory, populate_memory_ahead, trim_free_memory};
pub use sizes::ALIGN_BYTES;
