//! Workers in QEMU virtual machines, as VMFleet's are in Hyper-V's: the machine, and its messages with
//! the host.
//!
//! A machine boots a kernel with an initramfs that holds this program and DiskSpd (`image`), whose first process (`guest`) does one
//! process' part of a job as `fleet worker` does it on a host; `host` starts the machines and adds up what they found. Jobs, passwords and
//! answers go through a port of the machine that is a pipe of the host: none is in a file or on a command line.

pub mod guest;
pub mod host;
pub mod image;
mod netlink;
