//! The headers: SMB2 packet, transform (encrypted), compression (MS-SMB2 2.2.1, 2.2.41, 2.2.42).

use super::{U16, U32, U64, WireError, view_at};
use types::NtStatus;
use zerocopy::FromBytes;

/// Bytes of the SMB2 header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the transform header in front of an encrypted message.
pub const TRANSFORM_HEADER_BYTES: usize = 52;
/// First bytes of each kind of message.
pub const PROTOCOL_SMB1: [u8; 4] = *b"\xFFSMB";
pub const PROTOCOL_SMB2: [u8; 4] = *b"\xFESMB";
pub const PROTOCOL_TRANSFORM: [u8; 4] = *b"\xFDSMB";
pub const PROTOCOL_COMPRESSION: [u8; 4] = *b"\xFCSMB";

/// MS-SMB2 2.2.1.2 Command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Command {
    Negotiate = 0,
    SessionSetup = 1,
    Logoff = 2,
    TreeConnect = 3,
    TreeDisconnect = 4,
    Create = 5,
    Close = 6,
    Flush = 7,
    Read = 8,
    Write = 9,
    Lock = 10,
    Ioctl = 11,
    Cancel = 12,
    Echo = 13,
    QueryDirectory = 14,
    ChangeNotify = 15,
    QueryInfo = 16,
    SetInfo = 17,
    OplockBreak = 18,
}

impl Command {
    /// All of them, by number.
    pub const ALL: [Self; 19] = [
        Self::Negotiate,
        Self::SessionSetup,
        Self::Logoff,
        Self::TreeConnect,
        Self::TreeDisconnect,
        Self::Create,
        Self::Close,
        Self::Flush,
        Self::Read,
        Self::Write,
        Self::Lock,
        Self::Ioctl,
        Self::Cancel,
        Self::Echo,
        Self::QueryDirectory,
        Self::ChangeNotify,
        Self::QueryInfo,
        Self::SetInfo,
        Self::OplockBreak,
    ];

    pub fn from_wire(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// As MS-SMB2 writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Negotiate => "NEGOTIATE",
            Self::SessionSetup => "SESSION_SETUP",
            Self::Logoff => "LOGOFF",
            Self::TreeConnect => "TREE_CONNECT",
            Self::TreeDisconnect => "TREE_DISCONNECT",
            Self::Create => "CREATE",
            Self::Close => "CLOSE",
            Self::Flush => "FLUSH",
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Lock => "LOCK",
            Self::Ioctl => "IOCTL",
            Self::Cancel => "CANCEL",
            Self::Echo => "ECHO",
            Self::QueryDirectory => "QUERY_DIRECTORY",
            Self::ChangeNotify => "CHANGE_NOTIFY",
            Self::QueryInfo => "QUERY_INFO",
            Self::SetInfo => "SET_INFO",
            Self::OplockBreak => "OPLOCK_BREAK",
        }
    }
}

bitflags::bitflags! {
    /// MS-SMB2 2.2.1.2 Flags.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct HeaderFlags: u32 {
        const SERVER_TO_REDIR = 0x1;
        const ASYNC_COMMAND = 0x2;
        const RELATED_OPERATIONS = 0x4;
        const SIGNED = 0x8;
        const PRIORITY_MASK = 0x70;
        const DFS_OPERATIONS = 0x1000_0000;
        const REPLAY_OPERATION = 0x2000_0000;
        const _ = !0;
    }
}

wire_struct! {
    /// MS-SMB2 2.2.1: one structure for its two forms; [`Header::async_id`] joins the halves.
    Header {
        protocol_id: [u8; 4],
        structure_size: U16,
        credit_charge: U16,
        /// Status of a response; ChannelSequence (low half) of a request.
        status: U32,
        command: U16,
        /// CreditRequest or CreditResponse.
        credits: U16,
        flags: U32,
        next_command: U32,
        message_id: U64,
        /// Reserved (often 0xFEFF), or the low half of AsyncId.
        process_id: U32,
        /// TreeId, or the high half of AsyncId.
        tree_id: U32,
        session_id: U64,
        signature: [u8; 16],
    }
}

/// Where the signature lies in the header.
pub const SIGNATURE_RANGE: std::ops::Range<usize> = 48..64;

impl Header {
    /// A header with ProtocolId, StructureSize and Command set.
    pub fn new(command: Command) -> Self {
        Self {
            protocol_id: PROTOCOL_SMB2,
            structure_size: U16::new(HEADER_BYTES as u16),
            command: U16::new(command as u16),
            ..Self::default()
        }
    }

    /// Views the header at the front of `message`.
    ///
    /// # Errors
    /// [`WireError`] if it is cut short or not an SMB2 header.
    pub fn parse(message: &[u8]) -> Result<&Self, WireError> {
        let header: &Self = view_at(message, 0)?;
        if header.protocol_id != PROTOCOL_SMB2 {
            return Err(WireError::Protocol);
        }
        if usize::from(header.structure_size.get()) != HEADER_BYTES {
            return Err(WireError::StructureSize);
        }
        Ok(header)
    }

    /// The header at the front of `message`, to be changed in place.
    pub fn in_place(message: &mut [u8]) -> Option<&mut Self> {
        Self::mut_from_prefix(message).ok().map(|(header, _)| header)
    }

    pub fn command(&self) -> Option<Command> {
        Command::from_wire(self.command.get())
    }

    pub fn flags(&self) -> HeaderFlags {
        HeaderFlags::from_bits_retain(self.flags.get())
    }

    pub fn status(&self) -> NtStatus {
        NtStatus(self.status.get())
    }

    /// MS-SMB2 2.2.1.2 ChannelSequence of a request.
    pub fn channel_sequence(&self) -> u16 {
        self.status.get() as u16
    }

    pub fn is_response(&self) -> bool {
        self.flags().contains(HeaderFlags::SERVER_TO_REDIR)
    }

    pub fn async_id(&self) -> u64 {
        u64::from(self.tree_id.get()) << 32 | u64::from(self.process_id.get())
    }

    pub fn set_async_id(&mut self, async_id: u64) {
        self.process_id = U32::new(async_id as u32);
        self.tree_id = U32::new((async_id >> 32) as u32);
        self.flags = (self.flags() | HeaderFlags::ASYNC_COMMAND).bits().into();
    }
}

/// Splits a compound chain into one message and the rest.
///
/// # Errors
/// [`WireError::OutOfBounds`] if NextCommand is not a multiple of 8, leaves no space for a header, or leads outside.
pub fn split_compound(chain: &[u8]) -> Result<(&[u8], Option<&[u8]>), WireError> {
    let next = Header::parse(chain)?.next_command.get() as usize;
    if next == 0 {
        return Ok((chain, None));
    }
    if !next.is_multiple_of(8) || next < HEADER_BYTES || next.saturating_add(HEADER_BYTES) > chain.len() {
        return Err(WireError::OutOfBounds);
    }
    let (message, rest) = chain.split_at(next);
    Ok((message, Some(rest)))
}

wire_struct! {
    /// MS-SMB2 2.2.41.
    TransformHeader {
        protocol_id: [u8; 4],
        signature: [u8; 16],
        /// 11 bytes for CCM, 12 for GCM, then zeros.
        nonce: [u8; 16],
        original_message_size: U32,
        reserved: U16,
        /// 3.1.1: 1 = encrypted; 3.0: 1 = AES-128-CCM.
        flags: U16,
        session_id: U64,
    }
}

impl TransformHeader {
    /// Bytes that are authenticated but not encrypted: from Nonce on.
    pub const ASSOCIATED_DATA: std::ops::Range<usize> = 20..TRANSFORM_HEADER_BYTES;

    pub fn new(session_id: u64, original_message_size: u32) -> Self {
        Self {
            protocol_id: PROTOCOL_TRANSFORM,
            original_message_size: original_message_size.into(),
            flags: U16::new(1),
            session_id: session_id.into(),
            ..Self::default()
        }
    }

    /// # Errors
    /// [`WireError`] if it is cut short, another protocol, or names a length other than what follows it.
    pub fn parse(message: &[u8]) -> Result<&Self, WireError> {
        let header: &Self = view_at(message, 0)?;
        if header.protocol_id != PROTOCOL_TRANSFORM {
            return Err(WireError::Protocol);
        }
        if header.flags.get() != 1 {
            return Err(WireError::Value);
        }
        let size = header.original_message_size.get() as usize;
        if size < HEADER_BYTES || message.len() - TRANSFORM_HEADER_BYTES != size {
            return Err(WireError::OutOfBounds);
        }
        Ok(header)
    }
}

wire_struct! {
    /// MS-SMB2 2.2.42.1.
    CompressionHeader {
        protocol_id: [u8; 4],
        original_compressed_segment_size: U32,
        compression_algorithm: U16,
        flags: U16,
        /// Offset of the compressed data behind this header, or (chained) length of the first payload.
        offset_or_length: U32,
    }
}

impl CompressionHeader {
    /// # Errors
    /// [`WireError`] if it is cut short or another protocol.
    pub fn parse(message: &[u8]) -> Result<&Self, WireError> {
        let header: &Self = view_at(message, 0)?;
        if header.protocol_id != PROTOCOL_COMPRESSION {
            return Err(WireError::Protocol);
        }
        Ok(header)
    }
}

message! {
    /// The body of the requests and responses that have no content: LOGOFF, TREE_DISCONNECT, ECHO, CANCEL; responses to FLUSH and
    /// LOCK (MS-SMB2 2.2.7, 2.2.8, 2.2.11, 2.2.12, 2.2.18, 2.2.27-2.2.30).
    Empty, EmptyBody = 4 {
        reserved: U16,
    }
}
