//! What a client asks for and insists on.

use smb::crypto::{CipherId, SigningAlgorithm};
use smb::wire::{Dialect, Guid};
use smb_transport::client::LinkOptions;
use std::time::Duration;

/// Whether messages are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signing {
    /// Always, whatever the server says.
    #[default]
    Required,
    /// Where the server requires it.
    IfRequired,
}

/// Whether messages are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encryption {
    /// Always; a server that cannot is refused.
    Required,
    /// Where session or share require it.
    #[default]
    IfRequired,
}

/// What carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// TCP; the port given to the connect call is TCP's.
    #[default]
    Tcp,
    /// SMB Direct or nothing; the port given to the connect call is SMB Direct's.
    Rdma,
    /// SMB Direct where the server listens for it on [`Options::rdma_port`], else TCP; the port given to the connect call is TCP's.
    Auto,
}

/// What carries SMB Direct.
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

#[derive(Debug, Clone)]
pub struct Options {
    pub transport: Transport,
    /// Where [`Transport::Auto`] looks for SMB Direct.
    pub rdma_port: u16,
    /// What carries SMB Direct. Where a device is named and does not lead to the server there is no SMB Direct.
    pub rdma_device: RdmaDevice,
    /// READ of so many bytes or more goes by RDMA; a shorter one does too where it does not fit one transfer of the connection, but for 4 KiB
    /// and less.
    pub rdma_read_bytes_min: u32,
    /// WRITE of so many bytes or more goes by RDMA; a shorter one does too where it does not fit one transfer of the connection, or where
    /// it is longer than 64 KiB and 8 MiB of payload are on their way in messages.
    pub rdma_write_bytes_min: u32,
    /// Connections of the session, all by the same transport, where the server takes more than one (3.0 and later). Work is spread over
    /// them; what a lost one had not answered is asked on another, and it is made anew.
    pub channels: usize,
    /// The connections beyond the first go to the addresses that the server tells of, by SMB Direct where both ends have it: up to
    /// [`Self::channels`] in all, two at least.
    pub multichannel: bool,
    /// Where all connections are lost: how long to try to set the session up anew before giving up. Files opened durably
    /// ([`crate::OpenOptions::durable`]) stay open, and what was not answered is asked again. Zero: not at all.
    pub reconnect: Duration,
    /// FPDUs carry a CRC. Without, only where the server asks for it: for loopback, which has no wire.
    pub rdma_crc: bool,
    /// Payload of signed and encrypted sessions goes by RDMA too, signed or encrypted by itself, where the server has RDMA transforms
    /// (3.1.1, MS-SMB2 2.2.43); in messages otherwise.
    pub rdma_transform: bool,
    pub oldest: Dialect,
    pub newest: Dialect,
    pub signing: Signing,
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
            previous_session_id: 0,
            timeout: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Gives the settings of a link that has `timeout` to come up.
    pub(crate) fn of_link(&self, timeout: Duration) -> LinkOptions {
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
