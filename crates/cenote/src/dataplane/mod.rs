//! The data plane's thread: disks, stores, spaces, volumes and SMB connections on one loop.

pub mod tcp;
