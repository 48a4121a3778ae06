//! The data plane's thread: disks, stores, spaces, volumes and SMB connections on one loop.

pub mod disks;
pub mod smb_direct;
pub mod storage;
pub mod tasks;
pub mod tcp;
pub mod volumes;

/// Seconds since 1970-01-01 00:00 UTC.
pub(crate) fn unix_seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
