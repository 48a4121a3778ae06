//! NEGOTIATE and its contexts (MS-SMB2 2.2.3, 2.2.4), and FSCTL_VALIDATE_NEGOTIATE_INFO's structures (2.2.31.4, 2.2.32.6).

use super::{Guid, HEADER_BYTES, Put, U16, U32, U64, WireError, part, range, view_at};

/// MS-SMB2 2.2.3 Dialects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Dialect {
    /// SMB 2.0.2: Windows Vista and Server 2008.
    Smb202 = 0x0202,
    /// SMB 2.1: leases and large MTU (Windows 7).
    Smb210 = 0x0210,
    /// SMB 3.0: multichannel, encryption, persistent handles (Windows 8).
    Smb300 = 0x0300,
    /// SMB 3.0.2: RDMA with remote invalidation (Windows 8.1).
    Smb302 = 0x0302,
    /// SMB 3.1.1: preauthentication integrity, negotiate contexts (Windows 10).
    Smb311 = 0x0311,
}

impl Dialect {
    /// All dialects, in rising order.
    pub const ALL: [Self; 5] = [Self::Smb202, Self::Smb210, Self::Smb300, Self::Smb302, Self::Smb311];

    /// Returns the dialect of this number; `None` if there is none here.
    pub fn from_wire(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| *dialect as u16 == number)
    }

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smb202 => "2.0.2",
            Self::Smb210 => "2.1",
            Self::Smb300 => "3.0",
            Self::Smb302 => "3.0.2",
            Self::Smb311 => "3.1.1",
        }
    }
}

/// Answer to a multi-protocol negotiate that is to be followed by an SMB2 one (MS-SMB2 3.3.5.3.2).
pub const DIALECT_WILDCARD: u16 = 0x02FF;

bitflags::bitflags! {
    /// MS-SMB2 2.2.3 SecurityMode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SecurityMode: u16 {
        /// The sender can sign.
        const SIGNING_ENABLED = 1;
        /// The sender requires signatures.
        const SIGNING_REQUIRED = 2;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// MS-SMB2 2.2.3 Capabilities.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Capabilities: u32 {
        /// DFS is supported.
        const DFS = 1;
        /// Leases are supported (2.1 and later).
        const LEASING = 2;
        /// Messages above 64 KiB, for several credits, are supported (2.1 and later).
        const LARGE_MTU = 4;
        /// Several connections of one session are supported (3.0 and later).
        const MULTI_CHANNEL = 8;
        /// Handles that outlive a failover are supported (3.0 and later).
        const PERSISTENT_HANDLES = 0x10;
        /// Leases on directories are supported (3.0 and later).
        const DIRECTORY_LEASING = 0x20;
        /// Encryption by AES-128-CCM is supported (3.0 and 3.0.2).
        const ENCRYPTION = 0x40;
        /// Notifications from server to client are supported (3.1.1).
        const NOTIFICATIONS = 0x80;
        const _ = !0;
    }
}

/// Types of negotiate contexts (MS-SMB2 2.2.3.1).
pub const CONTEXT_PREAUTH_INTEGRITY: u16 = 1;
/// SMB2_ENCRYPTION_CAPABILITIES: ciphers by preference.
pub const CONTEXT_ENCRYPTION: u16 = 2;
/// SMB2_COMPRESSION_CAPABILITIES: algorithms of compression.
pub const CONTEXT_COMPRESSION: u16 = 3;
/// SMB2_NETNAME_NEGOTIATE_CONTEXT_ID: server name that the client connects to.
pub const CONTEXT_NETNAME: u16 = 5;
/// SMB2_TRANSPORT_CAPABILITIES: whether the transport encrypts already.
pub const CONTEXT_TRANSPORT: u16 = 6;
/// SMB2_RDMA_TRANSFORM_CAPABILITIES: encryption or signing of payload that goes by RDMA.
pub const CONTEXT_RDMA_TRANSFORM: u16 = 7;
/// SMB2_SIGNING_CAPABILITIES: signing algorithms by preference.
pub const CONTEXT_SIGNING: u16 = 8;

/// SHA-512, the one hash of MS-SMB2 2.2.3.1.1.
pub const HASH_SHA_512: u16 = 1;

/// Ciphers of MS-SMB2 2.2.3.1.2.
pub const CIPHER_AES_128_CCM: u16 = 1;
/// AES-128-GCM, the fastest with AES instructions.
pub const CIPHER_AES_128_GCM: u16 = 2;
/// AES-256-CCM.
pub const CIPHER_AES_256_CCM: u16 = 3;
/// AES-256-GCM.
pub const CIPHER_AES_256_GCM: u16 = 4;

/// Signing algorithms of MS-SMB2 2.2.3.1.7.
pub const SIGNING_HMAC_SHA256: u16 = 0;
/// AES-CMAC (RFC 4493), of 128 bits.
pub const SIGNING_AES_CMAC: u16 = 1;
/// AES-GMAC (NIST SP 800-38D), of 128 bits.
pub const SIGNING_AES_GMAC: u16 = 2;

message! {
    /// MS-SMB2 2.2.3.
    NegotiateRequest, NegotiateRequestBody = 36 {
        /// Number of dialects behind the structure.
        dialect_count: U16,
        /// [`SecurityMode`] of the client.
        security_mode: U16,
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
        /// [`Capabilities`] of the client; 0 before 3.0.
        capabilities: U32,
        /// Id of the client, the same on all its connections (2.1 and later).
        client_guid: Guid,
        /// 3.1.1; ClientStartTime else.
        negotiate_context_offset: U32,
        /// Number of negotiate contexts (3.1.1).
        negotiate_context_count: U16,
        /// Reserved: sent as 0 and ignored.
        reserved2: U16,
    }
}

impl<'a> NegotiateRequest<'a> {
    /// The dialects offered, as numbers.
    ///
    /// # Errors
    /// [`WireError`] if they do not lie within the message.
    pub fn dialects(&self) -> Result<impl Iterator<Item = u16> + Clone + 'a, WireError> {
        let at = HEADER_BYTES + size_of::<NegotiateRequestBody>();
        numbers(range(self.message, at, usize::from(self.dialect_count.get()) * 2)?)
    }

    /// The contexts; meaningful if 3.1.1 is among the dialects.
    pub fn contexts(&self) -> NegotiateContexts<'a> {
        NegotiateContexts::new(
            self.message,
            self.negotiate_context_offset.get(),
            self.negotiate_context_count.get(),
        )
    }
}

/// Appends a NEGOTIATE request's body; `contexts` come from [`put_context`].
pub fn write_negotiate_request(
    out: &mut Vec<u8>,
    mut body: NegotiateRequestBody,
    dialects: &[u16],
    contexts: &[Vec<u8>],
) {
    body.dialect_count = U16::new(dialects.len() as u16);
    let dialects_end = HEADER_BYTES + size_of::<NegotiateRequestBody>() + dialects.len() * 2;
    if !contexts.is_empty() {
        body.negotiate_context_offset = U32::new(dialects_end.next_multiple_of(8) as u32);
        body.negotiate_context_count = U16::new(contexts.len() as u16);
    }
    let start = out.len();
    out.put(&body);
    out.put_wide(dialects);
    for context in contexts {
        out.pad_from(start, 1);
        let behind_header = out.len() - start + HEADER_BYTES;
        out.resize(out.len() + behind_header.next_multiple_of(8) - behind_header, 0);
        out.extend_from_slice(context);
    }
}

message! {
    /// MS-SMB2 2.2.4.
    NegotiateResponse, NegotiateResponseBody = 65 {
        /// [`SecurityMode`] of the server.
        security_mode: U16,
        /// Number of the chosen [`Dialect`], or [`DIALECT_WILDCARD`].
        dialect_revision: U16,
        /// Number of negotiate contexts (3.1.1).
        negotiate_context_count: U16,
        /// Id of the server.
        server_guid: Guid,
        /// [`Capabilities`] of the server.
        capabilities: U32,
        /// Most bytes of a QUERY_INFO, SET_INFO, IOCTL or QUERY_DIRECTORY buffer.
        max_transact_size: U32,
        /// Most bytes of a READ.
        max_read_size: U32,
        /// Most bytes of a WRITE.
        max_write_size: U32,
        /// Time of the server (FILETIME: 100 ns since 1601, MS-DTYP 2.3.3).
        system_time: U64,
        /// Reserved: sent as 0.
        server_start_time: U64,
        /// Offset of the security token from the header.
        security_buffer_offset: U16,
        /// Bytes of the security token.
        security_buffer_length: U16,
        /// Offset of the first negotiate context from the header (3.1.1).
        negotiate_context_offset: U32,
    }
}

impl<'a> NegotiateResponse<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn security_buffer(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.security_buffer_offset.get().into(), self.security_buffer_length.get().into())
    }

    /// Returns the contexts; meaningful if the dialect is 3.1.1.
    pub fn contexts(&self) -> NegotiateContexts<'a> {
        NegotiateContexts::new(
            self.message,
            self.negotiate_context_offset.get(),
            self.negotiate_context_count.get(),
        )
    }
}

/// Appends a NEGOTIATE response's body.
pub fn write_negotiate_response(
    out: &mut Vec<u8>,
    mut body: NegotiateResponseBody,
    security_buffer: &[u8],
    contexts: &[Vec<u8>],
) {
    let buffer_at = HEADER_BYTES + size_of::<NegotiateResponseBody>();
    body.security_buffer_offset = U16::new(buffer_at as u16);
    body.security_buffer_length = U16::new(security_buffer.len() as u16);
    let buffer_end = buffer_at + security_buffer.len();
    if !contexts.is_empty() {
        body.negotiate_context_offset = U32::new(buffer_end.next_multiple_of(8) as u32);
        body.negotiate_context_count = U16::new(contexts.len() as u16);
    }
    let start = out.len();
    out.put(&body);
    out.extend_from_slice(security_buffer);
    for context in contexts {
        // The header is a multiple of 8 long, so positions behind it align as positions in the message.
        out.pad_from(start, 8);
        out.extend_from_slice(context);
    }
}

/// One negotiate context (MS-SMB2 2.2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiateContext<'a> {
    /// ContextType: one of the `CONTEXT_` constants, or unknown.
    pub context_type: u16,
    /// Content in the layout of its type.
    pub data: &'a [u8],
}

/// Iterates over negotiate contexts of every type, the unknown ones too.
#[derive(Debug, Clone)]
pub struct NegotiateContexts<'a> {
    message: &'a [u8],
    offset: usize,
    left: u16,
}

impl<'a> NegotiateContexts<'a> {
    fn new(message: &'a [u8], offset: u32, count: u16) -> Self {
        Self { message, offset: offset as usize, left: count }
    }
}

wire_struct! {
    /// Head of each negotiate context.
    NegotiateContextHead { context_type: U16, data_length: U16, reserved: U32, }
}

impl<'a> Iterator for NegotiateContexts<'a> {
    type Item = Result<NegotiateContext<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let found = (|| {
            if self.offset < HEADER_BYTES {
                return Err(WireError::OutOfBounds);
            }
            let head: &NegotiateContextHead = view_at(self.message, self.offset)?;
            let data = range(self.message, self.offset + 8, usize::from(head.data_length.get()))?;
            self.offset = (self.offset + 8 + data.len()).next_multiple_of(8);
            Ok(NegotiateContext { context_type: head.context_type.get(), data })
        })();
        if found.is_err() {
            self.left = 0;
        }
        Some(found)
    }
}

/// A negotiate context as bytes.
pub fn put_context(context_type: u16, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + data.len());
    out.put(&NegotiateContextHead {
        context_type: U16::new(context_type),
        data_length: U16::new(data.len() as u16),
        reserved: U32::new(0),
    });
    out.extend_from_slice(data);
    out
}

fn numbers(bytes: &[u8]) -> Result<impl Iterator<Item = u16> + Clone + '_, WireError> {
    let (units, _) = bytes.as_chunks::<2>();
    Ok(units.iter().map(|unit| u16::from_le_bytes(*unit)))
}

/// The list of a context that starts with its count: ciphers, signing algorithms.
///
/// # Errors
/// [`WireError`] if the list is cut short. An empty one is taken: it has nothing in common with any other.
pub fn counted_ids(data: &[u8]) -> Result<impl Iterator<Item = u16> + Clone + '_, WireError> {
    let count: &U16 = view_at(data, 0)?;
    numbers(range(data, 2, usize::from(count.get()) * 2)?)
}

/// A counted list of identifiers, as ciphers and signing algorithms are sent.
pub fn put_counted_ids(ids: &[u16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + ids.len() * 2);
    out.put(&U16::new(ids.len() as u16));
    out.put_wide(ids);
    out
}

/// MS-SMB2 2.2.3.1.1: hash algorithms and salt.
#[derive(Debug, Clone, Copy)]
pub struct PreauthIntegrity<'a> {
    hashes: &'a [u8],
    /// Random bytes of the sender: they make hashes of like negotiations differ.
    pub salt: &'a [u8],
}

impl<'a> PreauthIntegrity<'a> {
    /// # Errors
    /// [`WireError`] if it names no hash or is cut short.
    pub fn parse(data: &'a [u8]) -> Result<Self, WireError> {
        let count: &U16 = view_at(data, 0)?;
        let salt_length: &U16 = view_at(data, 2)?;
        if count.get() == 0 {
            return Err(WireError::Value);
        }
        let hashes = range(data, 4, usize::from(count.get()) * 2)?;
        let salt = range(data, 4 + hashes.len(), usize::from(salt_length.get()))?;
        Ok(Self { hashes, salt })
    }

    /// Whether the sender offers this hash, such as [`HASH_SHA_512`].
    pub fn offers(&self, hash: u16) -> bool {
        self.hashes.chunks_exact(2).any(|unit| unit == hash.to_le_bytes())
    }

    /// The context's data for SHA-512 and `salt`.
    pub fn build(salt: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(6 + salt.len());
        out.put_wide(&[1, salt.len() as u16, HASH_SHA_512]);
        out.extend_from_slice(salt);
        out
    }
}

wire_struct! {
    /// MS-SMB2 2.2.31.4, without its dialects.
    ValidateNegotiateRequest {
        /// Capabilities of the NEGOTIATE request.
        capabilities: U32,
        /// ClientGuid of the NEGOTIATE request.
        guid: Guid,
        /// SecurityMode of the NEGOTIATE request.
        security_mode: U16,
        /// Number of dialects behind the structure.
        dialect_count: U16,
    }
}

impl ValidateNegotiateRequest {
    /// The request and the dialects behind it.
    ///
    /// # Errors
    /// [`WireError`] if it is cut short.
    pub fn parse(input: &[u8]) -> Result<(&Self, impl Iterator<Item = u16> + Clone + '_), WireError> {
        let request: &Self = view_at(input, 0)?;
        let dialects = range(input, size_of::<Self>(), usize::from(request.dialect_count.get()) * 2)?;
        Ok((request, numbers(dialects)?))
    }
}

wire_struct! {
    /// MS-SMB2 2.2.32.6.
    ValidateNegotiateResponse {
        /// Capabilities of the NEGOTIATE response.
        capabilities: U32,
        /// ServerGuid of the NEGOTIATE response.
        guid: Guid,
        /// SecurityMode of the NEGOTIATE response.
        security_mode: U16,
        /// Dialect of the NEGOTIATE response.
        dialect: U16,
    }
}
