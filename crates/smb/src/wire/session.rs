//! SESSION_SETUP and TREE_CONNECT (MS-SMB2 2.2.5, 2.2.6, 2.2.9, 2.2.10).

use super::{HEADER_BYTES, Put, U16, U32, U64, WireError, part, range, view_at, wide};

/// SESSION_SETUP request flag: bind this connection to an existing session.
pub const SESSION_FLAG_BINDING: u8 = 1;

bitflags::bitflags! {
    /// MS-SMB2 2.2.6 SessionFlags.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SessionFlags: u16 {
        const IS_GUEST = 1;
        const IS_NULL = 2;
        const ENCRYPT_DATA = 4;
        const _ = !0;
    }
}

message! {
    /// MS-SMB2 2.2.5.
    SessionSetupRequest, SessionSetupRequestBody = 25 {
        flags: u8,
        security_mode: u8,
        capabilities: U32,
        channel: U32,
        security_buffer_offset: U16,
        security_buffer_length: U16,
        previous_session_id: U64,
    }
}

impl<'a> SessionSetupRequest<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn security_buffer(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.security_buffer_offset.get().into(), self.security_buffer_length.get().into())
    }
}

/// Appends a SESSION_SETUP request's body.
pub fn write_session_setup_request(out: &mut Vec<u8>, mut body: SessionSetupRequestBody, token: &[u8]) {
    body.security_buffer_offset = U16::new((HEADER_BYTES + size_of_val(&body)) as u16);
    body.security_buffer_length = U16::new(token.len() as u16);
    out.put(&body);
    out.extend_from_slice(token);
}

message! {
    /// MS-SMB2 2.2.6.
    SessionSetupResponse, SessionSetupResponseBody = 9 {
        session_flags: U16,
        security_buffer_offset: U16,
        security_buffer_length: U16,
    }
}

impl<'a> SessionSetupResponse<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn security_buffer(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.security_buffer_offset.get().into(), self.security_buffer_length.get().into())
    }
}

/// Appends a SESSION_SETUP response's body.
pub fn write_session_setup_response(out: &mut Vec<u8>, flags: SessionFlags, token: &[u8]) {
    out.put(&SessionSetupResponseBody {
        session_flags: U16::new(flags.bits()),
        security_buffer_offset: U16::new((HEADER_BYTES + size_of::<SessionSetupResponseBody>()) as u16),
        security_buffer_length: U16::new(token.len() as u16),
        ..Default::default()
    });
    out.extend_from_slice(token);
}

/// TREE_CONNECT request flag of 3.1.1: the buffer starts with extension offsets (MS-SMB2 2.2.9.1).
pub const TREE_CONNECT_FLAG_EXTENSION_PRESENT: u16 = 4;

message! {
    /// MS-SMB2 2.2.9.
    TreeConnectRequest, TreeConnectRequestBody = 9 {
        flags: U16,
        path_offset: U16,
        path_length: U16,
    }
}

impl TreeConnectRequest<'_> {
    /// The path, `\\server\share`.
    ///
    /// # Errors
    /// [`WireError`] if it does not lie within the message or is not UTF-16.
    pub fn path(&self) -> Result<Box<[u16]>, WireError> {
        let mut offset = usize::from(self.path_offset.get());
        if self.flags.get() & TREE_CONNECT_FLAG_EXTENSION_PRESENT != 0 {
            // With the extension, PathOffset counts from the structure's Buffer.
            let buffer = HEADER_BYTES + size_of::<TreeConnectRequestBody>();
            let extension: &U32 = view_at(self.message, buffer)?;
            if extension.get() != 0 && offset < buffer {
                offset += buffer;
            }
        }
        let len = usize::from(self.path_length.get());
        if len != 0 && offset < HEADER_BYTES {
            return Err(WireError::OutOfBounds);
        }
        wide(range(self.message, offset, len)?)
    }
}

/// Appends a TREE_CONNECT request's body.
pub fn write_tree_connect_request(out: &mut Vec<u8>, flags: u16, path: &[u16]) {
    out.put(&TreeConnectRequestBody {
        flags: U16::new(flags),
        path_offset: U16::new((HEADER_BYTES + size_of::<TreeConnectRequestBody>()) as u16),
        path_length: U16::new((path.len() * 2) as u16),
        ..Default::default()
    });
    out.put_wide(path);
}

/// Types of shares (MS-SMB2 2.2.10).
pub const SHARE_TYPE_DISK: u8 = 1;
pub const SHARE_TYPE_PIPE: u8 = 2;
pub const SHARE_TYPE_PRINT: u8 = 3;

bitflags::bitflags! {
    /// MS-SMB2 2.2.10 ShareFlags; the two caching bits are one number.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ShareFlags: u32 {
        const AUTO_CACHING = 0x10;
        const VDO_CACHING = 0x20;
        const NO_CACHING = 0x30;
        const DFS = 0x1;
        const DFS_ROOT = 0x2;
        const RESTRICT_EXCLUSIVE_OPENS = 0x100;
        const FORCE_SHARED_DELETE = 0x200;
        const ALLOW_NAMESPACE_CACHING = 0x400;
        const ACCESS_BASED_DIRECTORY_ENUM = 0x800;
        const FORCE_LEVELII_OPLOCK = 0x1000;
        const ENABLE_HASH_V1 = 0x2000;
        const ENABLE_HASH_V2 = 0x4000;
        const ENCRYPT_DATA = 0x8000;
        const IDENTITY_REMOTING = 0x4_0000;
        const COMPRESS_DATA = 0x10_0000;
        const ISOLATED_TRANSPORT = 0x20_0000;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// MS-SMB2 2.2.10 Capabilities.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ShareCapabilities: u32 {
        const DFS = 0x8;
        const CONTINUOUS_AVAILABILITY = 0x10;
        const SCALEOUT = 0x20;
        const CLUSTER = 0x40;
        const ASYMMETRIC = 0x80;
        const REDIRECT_TO_OWNER = 0x100;
        const _ = !0;
    }
}

message! {
    /// MS-SMB2 2.2.10.
    TreeConnectResponse, TreeConnectResponseBody = 16 {
        share_type: u8,
        reserved: u8,
        share_flags: U32,
        capabilities: U32,
        maximal_access: U32,
    }
}
