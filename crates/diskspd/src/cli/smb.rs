//! The options that DiskSpd does not have: how SMB targets are reached.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SmbTransport {
    #[default]
    Auto,
    Tcp,
    Rdma,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmbOptions {
    pub credentials: Option<String>,
    pub transport: SmbTransport,
    /// SMB Direct by this RDMA device, or by whichever leads to the server (`auto`); in software otherwise.
    pub rdma_device: Option<String>,
    /// Connections per session, 1 to 32.
    pub channels: u8,
    pub sign: bool,
    pub seal: bool,
    /// SMB Direct in software: no CRC if the server does without.
    pub no_crc: bool,
    /// Microseconds for which a thread polls for answers before it sleeps.
    pub busy_poll_us: u64,
}

impl Default for SmbOptions {
    fn default() -> Self {
        Self {
            credentials: None,
            transport: SmbTransport::Auto,
            rdma_device: None,
            channels: 1,
            sign: false,
            seal: false,
            no_crc: false,
            busy_poll_us: 0,
        }
    }
}
