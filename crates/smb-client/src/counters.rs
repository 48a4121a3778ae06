//! Counters of a client, over all its channels.

/// Payload and messages by the way that they took, since the client was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of messages to the server, payload in them included.
    pub sent_bytes: u64,
    /// Bytes of messages from the server, payload in them included.
    pub received_bytes: u64,
    /// Payload of READ that the server placed into this client's memory by RDMA.
    pub rdma_read_bytes: u64,
    /// Payload of WRITE that the server fetched from this client's memory by RDMA.
    pub rdma_written_bytes: u64,
    /// Times that a request waited because SMB2 credits were used up.
    pub smb_credit_stalls: u64,
    /// Times that a message waited because SMB Direct credits were used up.
    pub rdma_credit_stalls: u64,
    /// Connections of the session that died.
    pub channels_lost: u64,
    /// Requests that were asked a second time because their connection died.
    pub requests_repeated: u64,
    /// Sessions that were set up anew after all connections had died.
    pub reconnects: u64,
    /// Connections by SMB Direct.
    pub rdma_connections: u32,
    /// Some SMB Direct connection checks CRCs.
    pub rdma_crc: bool,
}

impl Counters {
    /// Adds what another channel counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.rdma_read_bytes += other.rdma_read_bytes;
        self.rdma_written_bytes += other.rdma_written_bytes;
        self.smb_credit_stalls += other.smb_credit_stalls;
        self.rdma_credit_stalls += other.rdma_credit_stalls;
        self.channels_lost += other.channels_lost;
        self.requests_repeated += other.requests_repeated;
        self.reconnects += other.reconnects;
        self.rdma_connections += other.rdma_connections;
        self.rdma_crc |= other.rdma_crc;
    }
}
