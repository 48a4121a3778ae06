//! SESSION_SETUP and TREE_CONNECT (MS-SMB2 2.2.5, 2.2.6, 2.2.9, 2.2.10).

use super::{HEADER_BYTES, Put, U16, U32, U64, WireError, part, range, view_at, wide};

/// SESSION_SETUP request flag: bind this connection to an existing session.
pub const SESSION_FLAG_BINDING: u8 = 1;

bitflags::bitflags! {
    /// MS-SMB2 2.2.6 SessionFlags.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SessionFlags: u16 {
        /// The user was logged on as a guest.
        const IS_GUEST = 1;
        /// The user is anonymous.
        const IS_NULL = 2;
        /// The server requires encryption of the session.
        const ENCRYPT_DATA = 4;
        const _ = !0;
    }
}

message! {
    /// MS-SMB2 2.2.5.
    SessionSetupRequest, SessionSetupRequestBody = 25 {
        /// [`SESSION_FLAG_BINDING`], or 0.
        flags: u8,
        /// [`SecurityMode`](super::SecurityMode) of the client, in one byte.
        security_mode: u8,
        /// SMB2_GLOBAL_CAP_DFS (1), or 0.
        capabilities: U32,
        /// Reserved: sent as 0 and ignored.
        channel: U32,
        /// Offset of the security token from the header.
        security_buffer_offset: U16,
        /// Bytes of the security token.
        security_buffer_length: U16,
        /// Session that the client lost and that this one replaces; 0 for none.
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
        /// [`SessionFlags`] bits.
        session_flags: U16,
        /// Offset of the security token from the header.
        security_buffer_offset: U16,
        /// Bytes of the security token.
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
        /// [`TREE_CONNECT_FLAG_EXTENSION_PRESENT`] and others of 3.1.1; 0 before.
        flags: U16,
        /// Offset of the path from the header; of the Buffer with the extension.
        path_offset: U16,
        /// Bytes of the path.
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
/// Named pipes: IPC$.
pub const SHARE_TYPE_PIPE: u8 = 2;
/// Printer.
pub const SHARE_TYPE_PRINT: u8 = 3;

bitflags::bitflags! {
    /// MS-SMB2 2.2.10 ShareFlags; the two caching bits are one number.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ShareFlags: u32 {
        /// Clients may cache files offline on their own.
        const AUTO_CACHING = 0x10;
        /// Clients may cache files offline and run programs from there.
        const VDO_CACHING = 0x20;
        /// Clients must not cache files offline.
        const NO_CACHING = 0x30;
        /// The share is in a DFS namespace.
        const DFS = 0x1;
        /// The share is the root of a DFS namespace.
        const DFS_ROOT = 0x2;
        /// No client may deny others read access by an open.
        const RESTRICT_EXCLUSIVE_OPENS = 0x100;
        /// Every open allows others to delete.
        const FORCE_SHARED_DELETE = 0x200;
        /// Clients may cache directories.
        const ALLOW_NAMESPACE_CACHING = 0x400;
        /// Listings leave out files that the user may not read.
        const ACCESS_BASED_DIRECTORY_ENUM = 0x800;
        /// No oplock above level II is granted.
        const FORCE_LEVELII_OPLOCK = 0x1000;
        /// Hashes of BranchCache, version 1, are supported.
        const ENABLE_HASH_V1 = 0x2000;
        /// Hashes of BranchCache, version 2, are supported.
        const ENABLE_HASH_V2 = 0x4000;
        /// The share requires encryption (3.0 and later).
        const ENCRYPT_DATA = 0x8000;
        /// Tree connects may carry the identity of another user (3.1.1).
        const IDENTITY_REMOTING = 0x4_0000;
        /// Clients should compress data (3.1.1).
        const COMPRESS_DATA = 0x10_0000;
        /// Clients should use a connection of its own for the share (3.1.1).
        const ISOLATED_TRANSPORT = 0x20_0000;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// MS-SMB2 2.2.10 Capabilities.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ShareCapabilities: u32 {
        /// The share is in a DFS namespace.
        const DFS = 0x8;
        /// Persistent handles are granted (3.0 and later).
        const CONTINUOUS_AVAILABILITY = 0x10;
        /// All servers of the cluster offer the share (3.0 and later).
        const SCALEOUT = 0x20;
        /// The share is on a cluster: clients may register with its witness (3.0 and later).
        const CLUSTER = 0x40;
        /// One server owns the share at a time (3.0.2 and later).
        const ASYMMETRIC = 0x80;
        /// Tree connects may be redirected to the owner (3.1.1).
        const REDIRECT_TO_OWNER = 0x100;
        const _ = !0;
    }
}

message! {
    /// MS-SMB2 2.2.10.
    TreeConnectResponse, TreeConnectResponseBody = 16 {
        /// One of the `SHARE_TYPE_` constants.
        share_type: u8,
        /// Reserved: sent as 0 and ignored.
        reserved: u8,
        /// [`ShareFlags`] bits.
        share_flags: U32,
        /// [`ShareCapabilities`] bits.
        capabilities: U32,
        /// Access mask that the user has on the share (MS-SMB2 2.2.13.1).
        maximal_access: U32,
    }
}
