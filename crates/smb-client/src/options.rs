//! Options of a client: wishes and demands.

use smb::crypto::{CipherId, SigningAlgorithm};
use smb::wire::{Dialect, Guid};
use smb_transport::client::LinkOptions;
use std::time::Duration;

/// Whether messages are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signing {
    /// Always, even if the server does not require it.
    #[default]
    Required,
    /// If the server requires it.
    IfRequired,
}

/// Whether messages are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Always; a server that cannot is refused.
    Required,
    /// If session or share require it.
    #[default]
    IfRequired,
}

/// Carrier of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// TCP; the port given to the connect call is TCP's.
    #[default]
    Tcp,
    /// SMB Direct or nothing; the port given to the connect call is SMB Direct's.
    Rdma,
    /// TCP, by the port given to the connect call. If the server then offers SMB Direct, and the same
    /// server listens on [`Options::rdma_port`], the session moves there. The client logs on by SMB Direct
    /// only to a server that the one at the given port named.
    Auto,
}

/// Carrier of SMB Direct.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RdmaDevice {
    /// iWARP in software, over TCP.
    #[default]
    Software,
    /// The RDMA device that leads to the server, by libibverbs.
    Any,
    /// The RDMA device of this name, and no other.
    Named(String),
}

impl From<&str> for RdmaDevice {
    /// `software`, `auto`, or the name of a device as `ibv_devices` shows it.
    fn from(text: &str) -> Self {
        match text {
            "software" => Self::Software,
            "auto" => Self::Any,
            name => Self::Named(name.to_owned()),
        }
    }
}

/// Longest READ that comes in its answer by default.
const READ_INLINE_BYTES: u32 = 64 << 10;

/// The port of SMB Direct over iWARP (IANA: smbdirect).
pub const RDMA_PORT: u16 = 5445;

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// Transport of the connections.
    pub transport: Transport,
    /// The port on which [`Transport::Auto`] looks for SMB Direct.
    pub rdma_port: u16,
    /// The carrier of SMB Direct. If a device is named that does not lead to the server, there is no SMB Direct.
    pub rdma_device: RdmaDevice,
    /// Shortest READ that goes by RDMA. A shorter one does too if it does not fit one transfer of the connection and is longer than 4 KiB.
    pub rdma_read_bytes_min: u32,
    /// Shortest WRITE that goes by RDMA. A shorter one does too if it does not fit one transfer of the
    /// connection, or if it is longer than 64 KiB and than the rest of the 32 MiB that may be on their way
    /// in messages.
    pub rdma_write_bytes_min: u32,
    /// Number of connections of the session, all by the same transport, if the server takes more than one (3.0 and later). Work is spread
    /// over them. When one is lost its unanswered requests are asked on another, and the connection is made anew.
    pub channels: usize,
    /// The connections beyond the first go to the addresses that the server lists, by SMB Direct if both
    /// ends have it: at most [`Self::channels`] in all, but at least two.
    pub multichannel: bool,
    /// Time for which a session that has lost all connections is tried to be set up anew. Files opened durably
    /// ([`crate::OpenOptions::durable`]) stay open, and unanswered requests are asked again. Zero: no attempt is made.
    pub reconnect: Duration,
    /// Servers of the same cluster beside the one that is named. A session begins at the first of them that
    /// serves the share, and lost ones are set up anew at any of them ([`Self::reconnect`]).
    pub others: Vec<String>,
    /// FPDUs carry a CRC. If this is off they do only if the server asks for it: off is for loopback, which has no wire.
    pub rdma_crc: bool,
    /// Payload of signed and encrypted sessions goes by RDMA too, signed or encrypted by itself, if the server has RDMA transforms
    /// (3.1.1, MS-SMB2 2.2.43); else in messages.
    pub rdma_transform: bool,
    /// Oldest dialect that is offered.
    pub oldest: Dialect,
    /// Newest dialect that is offered.
    pub newest: Dialect,
    /// Whether messages are signed.
    pub signing: Signing,
    /// Whether messages are encrypted.
    pub encryption: Encryption,
    /// In order of preference.
    pub ciphers: Vec<CipherId>,
    /// In order of preference.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    /// Whether a session as guest, or as nobody, is good enough.
    pub allow_guest: bool,
    /// Credits to ask the server for, in all.
    pub credits: u16,
    /// Names this client to the server, across its connections.
    pub client_guid: Guid,
    /// ServerGuid of the only server that may answer (MS-SMB2 2.2.4): another one gets no logon. It keeps
    /// servers apart that are mistaken for each other; an impostor copies it.
    pub server_guid: Option<Guid>,
    /// A session that this one replaces (MS-SMB2 2.2.5), or zero.
    pub previous_session_id: u64,
    /// Without any byte from the server for this long the connection counts as dead.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            rdma_port: RDMA_PORT,
            rdma_device: RdmaDevice::default(),
            // A registration, and an RDMA Write before the answer, cost more than they save; devices have transfers for 4 KiB.
            rdma_read_bytes_min: READ_INLINE_BYTES + 1,
            // For RDMA the server has to ask for the bytes: a way there and back that 64 KiB are not worth.
            rdma_write_bytes_min: (1 << 20) + 1,
            channels: 1,
            multichannel: false,
            reconnect: Duration::ZERO,
            others: Vec::new(),
            rdma_crc: true,
            rdma_transform: true,
            oldest: Dialect::Smb202,
            newest: Dialect::Smb311,
            signing: Signing::default(),
            encryption: Encryption::default(),
            ciphers: vec![CipherId::Aes128Gcm, CipherId::Aes256Gcm, CipherId::Aes128Ccm, CipherId::Aes256Ccm],
            signing_algorithms: vec![
                SigningAlgorithm::AesGmac,
                SigningAlgorithm::AesCmac,
                SigningAlgorithm::HmacSha256,
            ],
            allow_guest: false,
            credits: 512,
            client_guid: [0; 16],
            server_guid: None,
            previous_session_id: 0,
            timeout: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Gives the settings of a link that has `timeout` to come up.
    pub fn of_link(&self, timeout: Duration) -> LinkOptions {
        let device = match &self.rdma_device {
            RdmaDevice::Named(name) => Some(name.clone()),
            RdmaDevice::Any | RdmaDevice::Software => None,
        };
        LinkOptions { timeout, crc: self.rdma_crc, device }
    }

    /// The dialects to offer, oldest first.
    pub(crate) fn dialects(&self) -> Vec<Dialect> {
        Dialect::ALL.into_iter().filter(|d| (self.oldest..=self.newest).contains(d)).collect()
    }
}
