//! Totals that the server counts.

use smb::wire::Command;

/// Totals since the start.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// By [`Command`]'s number.
    pub requests: [u64; Command::ALL.len()],
    /// Requests answered with an error.
    pub errors: u64,
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
    /// Logons whose password was looked at later, because of failures before.
    pub logons_delayed: u64,
    /// Logons whose password was not looked at, because of failures before.
    pub logons_refused: u64,
    /// SESSION_SETUP exchanges that ended because others took their places.
    pub setups_evicted: u64,
    pub opens: u64,
    pub protocol_errors: u64,
    pub bad_signatures: u64,
    pub oplock_breaks: u64,
    pub lease_breaks: u64,
}
