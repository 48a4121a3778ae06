//! Totals that the server counts.

use smb::wire::Command;

/// Requests whose errors and latencies are counted apart from others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    Read,
    Write,
    /// Everything else.
    Metadata,
}

impl RequestKind {
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Metadata];

    #[inline]
    pub const fn of(command: Command) -> Self {
        match command {
            Command::Read => Self::Read,
            Command::Write => Self::Write,
            _ => Self::Metadata,
        }
    }
}

/// Totals since the start.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// By [`Command`]'s number.
    pub requests: [u64; Command::ALL.len()],
    /// Of these, those of other servers of the cluster, by [`RequestKind`].
    pub requests_of_servers: [u64; RequestKind::ALL.len()],
    /// Requests answered with an error, by [`RequestKind`].
    pub errors: [u64; RequestKind::ALL.len()],
    pub messages_received: u64,
    pub messages_sent: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Payload of READ and WRITE.
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub connections_opened: u64,
    pub connections_refused: u64,
    pub sessions_ended: u64,
    pub logons: u64,
    pub logons_failed: u64,
    /// Logons whose password was checked later, because of failures before.
    pub logons_delayed: u64,
    /// Logons whose password was not checked, because of failures before.
    pub logons_refused: u64,
    /// SESSION_SETUP exchanges that ended because others took their places.
    pub setups_evicted: u64,
    pub opens: u64,
    pub protocol_errors: u64,
    pub bad_signatures: u64,
    pub oplock_breaks: u64,
    pub lease_breaks: u64,
}
