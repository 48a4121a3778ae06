//! Create contexts (MS-SMB2 2.2.13.2, 2.2.14.2): an iterator over all, and the known ones' structures.

use super::{Guid, Put, U16, U32, U64, WireError, range, view_at};
use zerocopy::IntoBytes;

/// Names of create contexts.
pub const CONTEXT_EXTENDED_ATTRIBUTES: &[u8] = b"ExtA";
/// Security descriptor for a new file (MS-SMB2 2.2.13.2.2).
pub const CONTEXT_SECURITY_DESCRIPTOR: &[u8] = b"SecD";
/// Request for a durable handle, version 1 (MS-SMB2 2.2.13.2.3).
pub const CONTEXT_DURABLE_REQUEST: &[u8] = b"DHnQ";
/// Reconnect of a durable handle, version 1 (MS-SMB2 2.2.13.2.4).
pub const CONTEXT_DURABLE_RECONNECT: &[u8] = b"DHnC";
/// Request for a durable handle, version 2: [`DurableRequestV2`].
pub const CONTEXT_DURABLE_REQUEST_V2: &[u8] = b"DH2Q";
/// Reconnect of a durable handle, version 2: [`DurableReconnectV2`].
pub const CONTEXT_DURABLE_RECONNECT_V2: &[u8] = b"DH2C";
/// Allocation size in bytes for a new file (MS-SMB2 2.2.13.2.6).
pub const CONTEXT_ALLOCATION_SIZE: &[u8] = b"AlSi";
/// Question which access the user may have (MS-SMB2 2.2.13.2.5).
pub const CONTEXT_MAXIMAL_ACCESS: &[u8] = b"MxAc";
/// Time of the snapshot that the path is meant in (MS-SMB2 2.2.13.2.7).
pub const CONTEXT_TIME_WARP: &[u8] = b"TWrp";
/// Question for the file's id and its volume's (MS-SMB2 2.2.13.2.9).
pub const CONTEXT_ON_DISK_ID: &[u8] = b"QFid";
/// Lease: [`Lease`].
pub const CONTEXT_LEASE: &[u8] = b"RqLs";
/// Id of an application on several clients: [`AppInstanceId`].
pub const CONTEXT_APP_INSTANCE_ID: &[u8] =
    b"\x45\xBC\xA6\x6A\xEF\xA7\xF7\x4A\x90\x08\xFA\x46\x2E\x14\x4D\x74";
/// Version of the application's instance: [`AppInstanceVersion`].
pub const CONTEXT_APP_INSTANCE_VERSION: &[u8] =
    b"\xB9\x82\xD0\xB7\x3B\x56\x07\x4F\xA0\x7B\x52\x4A\x81\x16\xA0\x10";

/// Of this server's own: begins a session with a disk on the share of the storage bus.
pub const CONTEXT_BUS_SESSION: &[u8] = b"\x9D\x3A\x61\xC4\x0E\x57\x49\x4B\xA2\x8C\x5B\x1F\x70\xE6\xD3\x48";

/// One create context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateContext<'a> {
    /// Four letters or a GUID of 16 bytes: one of the `CONTEXT_` constants, or unknown.
    pub name: &'a [u8],
    /// Content in the layout of its name; may be empty.
    pub data: &'a [u8],
}

wire_struct! {
    /// Head of each create context.
    CreateContextHead {
        /// Offset of the next context from this head, a multiple of 8; 0 in the last one.
        next: U32,
        /// Offset of the name from this head: 16.
        name_offset: U16,
        /// Bytes of the name: 4 at least.
        name_length: U16,
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
        /// Offset of the data from this head; 0 if there is none.
        data_offset: U16,
        /// Bytes of the data.
        data_length: U32,
    }
}

/// Iterates over create contexts of every name, the unknown ones too.
#[derive(Debug, Clone)]
pub struct CreateContexts<'a> {
    rest: &'a [u8],
}

impl<'a> CreateContexts<'a> {
    /// Begins at the front of `bytes`, the whole list.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self) -> Result<CreateContext<'a>, WireError> {
        let head: &CreateContextHead = view_at(self.rest, 0)?;
        let next = head.next.get() as usize;
        let own = match next {
            0 => self.rest,
            _ if next.is_multiple_of(8) && next >= size_of::<CreateContextHead>() => {
                self.rest.get(..next).ok_or(WireError::OutOfBounds)?
            }
            _ => return Err(WireError::OutOfBounds),
        };
        let name_len = usize::from(head.name_length.get());
        if name_len < 4 {
            return Err(WireError::Value);
        }
        let name = range(own, usize::from(head.name_offset.get()), name_len)?;
        let data = range(own, usize::from(head.data_offset.get()), head.data_length.get() as usize)?;
        self.rest = if next == 0 { &[] } else { &self.rest[next..] };
        Ok(CreateContext { name, data })
    }
}

impl<'a> Iterator for CreateContexts<'a> {
    type Item = Result<CreateContext<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}

/// Builds a list of create contexts.
#[derive(Debug, Default)]
pub struct CreateContextWriter {
    bytes: Vec<u8>,
    last: Option<usize>,
}

impl CreateContextWriter {
    /// Appends a context; pads the former one to a multiple of 8 bytes (MS-SMB2 2.2.13.2).
    pub fn push(&mut self, name: &[u8], data: &[u8]) {
        self.bytes.pad_from(0, 8);
        let at = self.bytes.len();
        if let Some(last) = self.last {
            self.bytes.patch_u32(last, (at - last) as u32);
        }
        self.last = Some(at);
        let name_at = size_of::<CreateContextHead>();
        let data_at = (name_at + name.len()).next_multiple_of(8);
        self.bytes.put(&CreateContextHead {
            name_offset: U16::new(name_at as u16),
            name_length: U16::new(name.len() as u16),
            data_offset: U16::new(if data.is_empty() { 0 } else { data_at as u16 }),
            data_length: U32::new(data.len() as u32),
            ..Default::default()
        });
        self.bytes.extend_from_slice(name);
        self.bytes.pad_from(at, 8);
        self.bytes.extend_from_slice(data);
    }

    /// Appends a context whose content is a wire structure.
    pub fn push_struct<T: IntoBytes + zerocopy::Immutable>(&mut self, name: &[u8], data: &T) {
        self.push(name, data.as_bytes());
    }

    /// Returns the list; empty if no context was pushed.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

wire_struct! {
    /// MS-SMB2 2.2.13.2.8 and 2.2.14.2.10: lease, version 1.
    LeaseV1 { key: Guid, state: U32, flags: U32, duration: U64, }
}

wire_struct! {
    /// MS-SMB2 2.2.13.2.10 and 2.2.14.2.11: lease, version 2.
    LeaseV2 {
        /// Key by which the client names the lease.
        key: Guid,
        /// SMB2_LEASE_ bits: read (1), handle (2) and write caching (4).
        state: U32,
        /// [`LEASE_FLAG_PARENT_LEASE_KEY_SET`] and, in answers, [`LEASE_FLAG_BREAK_IN_PROGRESS`].
        flags: U32,
        /// Reserved: sent as 0.
        duration: U64,
        /// Key of the lease on the parent directory, if the flag says so.
        parent_key: Guid,
        /// Counter that grows with each change of the state.
        epoch: U16,
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
    }
}

/// Lease flags.
pub const LEASE_FLAG_BREAK_IN_PROGRESS: u32 = 2;
/// Flag of version 2: [`LeaseV2::parent_key`] is valid.
pub const LEASE_FLAG_PARENT_LEASE_KEY_SET: u32 = 4;

/// A lease context: the versions differ by length, never by flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease<'a> {
    /// Version 1, for files: all that 2.1 knows.
    V1(&'a LeaseV1),
    /// Version 2, for directories too: with epoch and parent key.
    V2(&'a LeaseV2),
}

impl<'a> Lease<'a> {
    /// # Errors
    /// [`WireError`] if it is neither 32 nor 52 bytes long.
    pub fn parse(data: &'a [u8]) -> Result<Self, WireError> {
        match data.len() {
            len if len == size_of::<LeaseV1>() => view_at(data, 0).map(Self::V1),
            len if len == size_of::<LeaseV2>() => view_at(data, 0).map(Self::V2),
            _ => Err(WireError::Short),
        }
    }
}

/// Durable handle version 2 flag.
pub const DURABLE_FLAG_PERSISTENT: u32 = 2;

wire_struct! {
    /// MS-SMB2 2.2.13.2.11.
    DurableRequestV2 { timeout_ms: U32, flags: U32, reserved: U64, create_guid: Guid, }
}

wire_struct! {
    /// MS-SMB2 2.2.14.2.12.
    DurableResponseV2 { timeout_ms: U32, flags: U32, }
}

wire_struct! {
    /// MS-SMB2 2.2.13.2.12.
    DurableReconnectV2 { file_id: super::FileId, create_guid: Guid, flags: U32, }
}

wire_struct! {
    /// MS-SMB2 2.2.13.2.13.
    AppInstanceId { structure_size: U16, reserved: U16, id: Guid, }
}

wire_struct! {
    /// MS-SMB2 2.2.13.2.15.
    AppInstanceVersion { structure_size: U16, reserved: U16, padding: U32, high: U64, low: U64, }
}

wire_struct! {
    /// MS-SMB2 2.2.14.2.5.
    MaximalAccessResponse { query_status: U32, maximal_access: U32, }
}

wire_struct! {
    /// MS-SMB2 2.2.14.2.9.
    OnDiskIdResponse { disk_file_id: U64, volume_id: U64, reserved: Guid, }
}
