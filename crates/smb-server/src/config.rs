//! Configuration: the server's name, its demands on clients, its limits.

use smb::wire::{
    CIPHER_AES_128_CCM, CIPHER_AES_128_GCM, CIPHER_AES_256_CCM, CIPHER_AES_256_GCM, Dialect, Guid,
    NetworkInterface,
};
use std::time::Duration;

/// Limits of the resources that clients can take. Each is enforced with the NTSTATUS that MS-SMB2
/// names.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections; the server closes further ones immediately.
    pub connections: usize,
    /// STATUS_INSUFFICIENT_RESOURCES to SESSION_SETUP. Of one user, and of one host, at most half of those that others leave.
    pub sessions: usize,
    /// SESSION_SETUP exchanges in progress; beyond it, the server ends an idle one.
    pub setups: usize,
    /// SESSION_SETUP exchanges in progress of one host: beyond, one of that host ends.
    pub setups_per_host: usize,
    /// SESSION_SETUP exchanges in progress on one connection: beyond, one of them ends.
    pub setups_per_connection: usize,
    /// A SESSION_SETUP exchange that lasts longer ends.
    pub setup_timeout: Duration,
    /// STATUS_INSUFFICIENT_RESOURCES to TREE_CONNECT.
    pub trees_per_session: usize,
    /// STATUS_TOO_MANY_OPENED_FILES to CREATE. A user has no more of them than are free.
    pub opens: usize,
    /// STATUS_TOO_MANY_OPENED_FILES to CREATE.
    pub opens_per_session: usize,
    /// Opens of named pipes: STATUS_TOO_MANY_OPENED_FILES to CREATE.
    pub pipes_per_session: usize,
    /// Locks of one LOCK: beyond, STATUS_INSUFFICIENT_RESOURCES. The volume bounds the locks that an open
    /// holds and waits for.
    pub locks_per_request: usize,
    /// Most credits of one connection, and so most requests in work on it.
    pub credits: u16,
    /// Asynchronous requests of one connection: beyond, STATUS_INSUFFICIENT_RESOURCES.
    pub pending_per_connection: usize,
    /// Requests in work and answers held for one connection: above it nothing more is received from it.
    pub bytes_in_flight_per_connection: usize,
    /// The same over all connections: a host that holds more of it than is free is not received from.
    pub bytes_in_flight: usize,
    /// Bytes held by requests that were answered STATUS_PENDING, and by pipes: a request that would need
    /// more gets STATUS_INSUFFICIENT_RESOURCES. A user holds no more of the total than is free.
    pub parked_bytes: usize,
    /// Bytes of one session among these.
    pub parked_bytes_per_session: usize,
    /// Bytes of one connection among these.
    pub parked_bytes_per_connection: usize,
    /// Create contexts of one CREATE: STATUS_INVALID_PARAMETER. A security descriptor and extended attributes of 64 KiB each fit.
    pub create_context_bytes: usize,
    /// Largest READ, WRITE and other payload; multiples of 64 KiB.
    pub read_bytes: u32,
    /// MaxWriteSize of NEGOTIATE (MS-SMB2 2.2.4), in bytes.
    pub write_bytes: u32,
    /// MaxTransactSize of NEGOTIATE (MS-SMB2 2.2.4), in bytes.
    pub transact_bytes: u32,
    /// Server-side copy (MS-SMB2 3.3.3: ServerSideCopyMax*).
    pub copy_chunks: u32,
    /// Largest chunk in bytes (ServerSideCopyMaxChunkSize).
    pub copy_chunk_bytes: u32,
    /// Largest sum of one request's chunks in bytes (ServerSideCopyMaxDataSize).
    pub copy_total_bytes: u32,
    /// The time after which a connection without a session is closed.
    pub negotiation_timeout: Duration,
    /// The delay of the answer to a failed logon; it doubles with each failure of the same user or host, up to eight times as much.
    pub logon_failure_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            sessions: 8192,
            setups: 4096,
            setups_per_host: 512,
            setups_per_connection: 16,
            setup_timeout: Duration::from_secs(45),
            trees_per_session: 4096,
            opens: 65_536,
            opens_per_session: 16_384,
            pipes_per_session: 128,
            locks_per_request: 4096,
            credits: 8192,
            pending_per_connection: 512,
            bytes_in_flight_per_connection: 64 << 20,
            bytes_in_flight: 256 << 20,
            parked_bytes: 128 << 20,
            parked_bytes_per_session: 32 << 20,
            parked_bytes_per_connection: 16 << 20,
            create_context_bytes: 256 << 10,
            read_bytes: 8 << 20,
            write_bytes: 8 << 20,
            transact_bytes: 8 << 20,
            copy_chunks: 256,
            copy_chunk_bytes: 1 << 20,
            copy_total_bytes: 16 << 20,
            negotiation_timeout: Duration::from_secs(45),
            logon_failure_delay: Duration::from_millis(250),
        }
    }
}

/// Longest message that can be framed: direct TCP has 24 bits for its length (MS-SMB2 2.1).
const MESSAGE_BYTES_MAX: usize = (1 << 24) - 1;
/// Header, transform and padding around the largest payload of an answer.
const ANSWER_OVERHEAD_BYTES: usize = 64 << 10;

impl Limits {
    /// Longest answer, and longest compound of answers, in bytes.
    pub(crate) fn answer_bytes_max(&self) -> usize {
        let payload = self.read_bytes.max(self.transact_bytes) as usize;
        payload + ANSWER_OVERHEAD_BYTES
    }

    /// Bytes that sessions may take, with their tree connects, their channels and remembered bindings; a
    /// user holds no more of it than is free. Each session has space for about twenty tree connects, if all
    /// users have as many sessions as they may.
    pub(crate) fn session_bytes(&self) -> usize {
        const BYTES_PER_SESSION: usize = 16 << 10;
        const SESSIONS_MIN: usize = 64;
        self.sessions.max(SESSIONS_MIN) * BYTES_PER_SESSION
    }

    /// Answers whether every answer can be framed.
    pub(crate) fn are_possible(&self) -> bool {
        self.answer_bytes_max() + ANSWER_OVERHEAD_BYTES <= MESSAGE_BYTES_MAX
    }
}

/// The server's identity and its demands on clients.
#[derive(Debug, Clone)]
pub struct Config {
    /// ServerGuid of NEGOTIATE (MS-SMB2 2.2.4).
    pub server_guid: Guid,
    /// NetBIOS-style name, as NTLM and srvsvc show it.
    pub server_name: String,
    /// Oldest dialect that the server agrees to.
    pub dialect_min: Dialect,
    /// Newest dialect that the server agrees to.
    pub dialect_max: Dialect,
    /// Requests of every session have to be signed or encrypted.
    pub require_signing: bool,
    /// Names of the server for clients, besides its own name and the connections' addresses; `*`: any.
    pub further_names: Vec<String>,
    /// Also refuse logons meant for another server if signing is required.
    pub refuse_other_names: bool,
    /// Every session is encrypted; clients that cannot are refused.
    pub require_encryption: bool,
    /// Ciphers, most wanted first (MS-SMB2 2.2.3.1.2); none: no encryption.
    pub ciphers: Vec<u16>,
    /// A session may be bound to several connections (SMB2_GLOBAL_CAP_MULTI_CHANNEL).
    pub multichannel: bool,
    /// Interfaces for FSCTL_QUERY_NETWORK_INTERFACE_INFO. If there are none, the FSCTL is not supported.
    pub interfaces: Vec<NetworkInterface>,
    /// Limits of memory and counts that clients can take.
    pub limits: Limits,
}

impl Config {
    /// Every dialect and cipher, no demands.
    pub fn new(server_guid: Guid, server_name: impl Into<String>) -> Self {
        Self {
            server_guid,
            server_name: server_name.into(),
            dialect_min: Dialect::Smb202,
            dialect_max: Dialect::Smb311,
            require_signing: false,
            further_names: Vec::new(),
            refuse_other_names: false,
            require_encryption: false,
            ciphers: vec![CIPHER_AES_128_GCM, CIPHER_AES_256_GCM, CIPHER_AES_128_CCM, CIPHER_AES_256_CCM],
            multichannel: true,
            interfaces: Vec::new(),
            limits: Limits::default(),
        }
    }
}
