//! The limits that an administrator sets, and their defaults.

use std::time::Duration;

/// Limits of the server; each is enforced with the NTSTATUS that MS-SMB2 names.
#[derive(Debug, Clone)]
pub struct Limits {
    pub connections: u32,
    /// Connections of one host.
    pub connections_per_host: u32,
    pub sessions: u32,
    pub opens: u32,
    pub locks_per_open: u32,
    /// Requests in work on one connection; also the most credits it is granted.
    pub requests_per_connection: u32,
    /// Payload being received, written or sent, over all connections.
    pub bytes_in_flight: u64,
    /// RAM for cached reads, buffered writes (D14) and metadata, over all volumes.
    pub cache_bytes: u64,
    /// Timeout of a disk's operation, after which the disk is removed from service.
    pub disk_timeout: Duration,
    /// A disk that stays away longer has its slabs rebuilt onto others.
    pub repair_delay: Duration,
    /// Period in which every block is verified once; zero: never.
    pub scrub_period: Duration,
    /// Bytes a second that a scrub reads at most.
    pub scrub_rate: u64,
    /// Time for which the loop polls before it sleeps, while work keeps coming; zero: not at all.
    pub busy_poll: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            connections_per_host: 1024,
            sessions: 8192,
            opens: 65_536,
            locks_per_open: 4096,
            requests_per_connection: 8192,
            bytes_in_flight: 256 << 20,
            cache_bytes: machine::memory::default_cache_bytes(),
            disk_timeout: Duration::from_secs(5),
            repair_delay: Duration::from_secs(30 * 60),
            scrub_period: Duration::from_secs(14 * 24 * 3600),
            scrub_rate: 32 << 20,
            // The time in which a client on the same machine or a fast network sends its next request:
            // sleeping and waking cost as much.
            busy_poll: Duration::from_micros(30),
        }
    }
}
