//! Totals that the server counts.

use smb::wire::Command;

/// Requests whose errors and latencies are counted apart from others'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestKind {
    /// SMB2 READ requests.
    Read,
    /// SMB2 WRITE requests.
    Write,
    /// Everything else.
    Metadata,
}

impl RequestKind {
    /// Every kind, in the order of the arrays that are indexed by kind.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Metadata];

    /// Returns the kind under which requests of `command` are counted.
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
    /// Messages taken from connections; a compound or an encrypted message counts as one.
    pub messages_received: u64,
    /// Messages handed to connections, notifications and compounds counted as one each.
    pub messages_sent: u64,
    /// Bytes of the messages received, without the transport's framing.
    pub bytes_received: u64,
    /// Bytes of the messages sent, without the transport's framing.
    pub bytes_sent: u64,
    /// Payload of READ and WRITE.
    pub read_bytes: u64,
    /// Payload of WRITEs that succeeded, in bytes.
    pub written_bytes: u64,
    /// Connections accepted.
    pub connections_opened: u64,
    /// Connections refused: too many, or the server is draining.
    pub connections_refused: u64,
    /// Sessions that ended, for any reason.
    pub sessions_ended: u64,
    /// Logons that succeeded, those that bind a further channel to a session included.
    pub logons: u64,
    /// Logons that were answered with an error.
    pub logons_failed: u64,
    /// Logons whose password was checked later, because of failures before.
    pub logons_delayed: u64,
    /// Logons whose password was not checked, because of failures before.
    pub logons_refused: u64,
    /// SESSION_SETUP exchanges that ended because others took their places.
    pub setups_evicted: u64,
    /// CREATEs that succeeded.
    pub opens: u64,
    /// Connections closed because the client broke the protocol.
    pub protocol_errors: u64,
    /// Requests whose signature was wrong.
    pub bad_signatures: u64,
    /// OPLOCK_BREAK notifications sent for oplocks (MS-SMB2 2.2.23.1).
    pub oplock_breaks: u64,
    /// OPLOCK_BREAK notifications sent for leases (MS-SMB2 2.2.23.2).
    pub lease_breaks: u64,
}
