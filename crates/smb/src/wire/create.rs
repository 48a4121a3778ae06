//! CREATE, CLOSE, FLUSH, LOCK and the break messages (MS-SMB2 2.2.13-2.2.18, 2.2.23-2.2.27).

use super::{CreateContexts, Guid, HEADER_BYTES, Put, U16, U32, U64, WireError, part, range, view_at, wide};
use zerocopy::FromBytes;

wire_struct! {
    /// MS-SMB2 2.2.14.1.
    #[derive(Hash)]
    FileId { persistent: U64, volatile: U64, }
}

impl FileId {
    /// In a related request: the file of the request before.
    pub const RELATED: Self = Self { persistent: U64::MAX_VALUE, volatile: U64::MAX_VALUE };
}

/// Oplock levels on the wire (MS-SMB2 2.2.13).
pub const OPLOCK_LEVEL_NONE: u8 = 0;
pub const OPLOCK_LEVEL_II: u8 = 1;
pub const OPLOCK_LEVEL_EXCLUSIVE: u8 = 8;
pub const OPLOCK_LEVEL_BATCH: u8 = 9;
pub const OPLOCK_LEVEL_LEASE: u8 = 0xFF;

/// Create dispositions (MS-SMB2 2.2.13).
pub const FILE_SUPERSEDE: u32 = 0;
pub const FILE_OPEN: u32 = 1;
pub const FILE_CREATE: u32 = 2;
pub const FILE_OPEN_IF: u32 = 3;
pub const FILE_OVERWRITE: u32 = 4;
pub const FILE_OVERWRITE_IF: u32 = 5;

message! {
    /// MS-SMB2 2.2.13.
    CreateRequest, CreateRequestBody = 57 {
        security_flags: u8,
        requested_oplock_level: u8,
        impersonation_level: U32,
        smb_create_flags: U64,
        reserved: U64,
        desired_access: U32,
        file_attributes: U32,
        share_access: U32,
        create_disposition: U32,
        create_options: U32,
        name_offset: U16,
        name_length: U16,
        create_contexts_offset: U32,
        create_contexts_length: U32,
    }
}

impl<'a> CreateRequest<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message or has an odd length.
    pub fn name(&self) -> Result<Box<[u16]>, WireError> {
        wide(part(self.message, self.name_offset.get().into(), self.name_length.get().into())?)
    }

    /// # Errors
    /// [`WireError`] if they do not lie within the message.
    pub fn contexts(&self) -> Result<CreateContexts<'a>, WireError> {
        let bytes = part(self.message, self.create_contexts_offset.get(), self.create_contexts_length.get())?;
        Ok(CreateContexts::new(bytes))
    }
}

/// Appends a CREATE request's body; `contexts` as [`super::CreateContextWriter`] makes them.
pub fn write_create_request(out: &mut Vec<u8>, mut body: CreateRequestBody, name: &[u16], contexts: &[u8]) {
    let start = out.len();
    let name_at = HEADER_BYTES + size_of::<CreateRequestBody>();
    body.name_offset = U16::new(name_at as u16);
    body.name_length = U16::new((name.len() * 2) as u16);
    if !contexts.is_empty() {
        body.create_contexts_offset = U32::new((name_at + name.len() * 2).next_multiple_of(8) as u32);
        body.create_contexts_length = U32::new(contexts.len() as u32);
    }
    out.put(&body);
    out.put_wide(name);
    if contexts.is_empty() {
        // One byte at least follows the fixed part.
        if name.is_empty() {
            out.push(0);
        }
    } else {
        out.pad_from(start, 8);
        out.extend_from_slice(contexts);
    }
}

message! {
    /// MS-SMB2 2.2.14.
    CreateResponse, CreateResponseBody = 89 {
        oplock_level: u8,
        flags: u8,
        create_action: U32,
        creation_time: U64,
        last_access_time: U64,
        last_write_time: U64,
        change_time: U64,
        allocation_size: U64,
        end_of_file: U64,
        file_attributes: U32,
        reserved: U32,
        file_id: FileId,
        create_contexts_offset: U32,
        create_contexts_length: U32,
    }
}

impl<'a> CreateResponse<'a> {
    /// # Errors
    /// [`WireError`] if they do not lie within the message.
    pub fn contexts(&self) -> Result<CreateContexts<'a>, WireError> {
        let bytes = part(self.message, self.create_contexts_offset.get(), self.create_contexts_length.get())?;
        Ok(CreateContexts::new(bytes))
    }
}

/// Appends a CREATE response's body.
pub fn write_create_response(out: &mut Vec<u8>, mut body: CreateResponseBody, contexts: &[u8]) {
    if !contexts.is_empty() {
        body.create_contexts_offset = U32::new((HEADER_BYTES + size_of_val(&body)) as u32);
        body.create_contexts_length = U32::new(contexts.len() as u32);
    }
    out.put(&body);
    out.extend_from_slice(contexts);
}

/// CLOSE flag: answer the attributes after the close.
pub const CLOSE_FLAG_POSTQUERY_ATTRIB: u16 = 1;

message! {
    /// MS-SMB2 2.2.15.
    CloseRequest, CloseRequestBody = 24 { flags: U16, reserved: U32, file_id: FileId, }
}

message! {
    /// MS-SMB2 2.2.16.
    CloseResponse, CloseResponseBody = 60 {
        flags: U16,
        reserved: U32,
        creation_time: U64,
        last_access_time: U64,
        last_write_time: U64,
        change_time: U64,
        allocation_size: U64,
        end_of_file: U64,
        file_attributes: U32,
    }
}

message! {
    /// MS-SMB2 2.2.17.
    FlushRequest, FlushRequestBody = 24 { reserved1: U16, reserved2: U32, file_id: FileId, }
}

/// Flags of a lock element (MS-SMB2 2.2.26.1).
pub const LOCK_FLAG_SHARED: u32 = 1;
pub const LOCK_FLAG_EXCLUSIVE: u32 = 2;
pub const LOCK_FLAG_UNLOCK: u32 = 4;
pub const LOCK_FLAG_FAIL_IMMEDIATELY: u32 = 0x10;

wire_struct! {
    /// MS-SMB2 2.2.26.1.
    LockElement { offset: U64, length: U64, flags: U32, reserved: U32, }
}

message! {
    /// MS-SMB2 2.2.26.
    LockRequest, LockRequestBody = 48 {
        lock_count: U16,
        /// LockSequenceNumber in the low 4 bits, LockSequenceIndex above.
        lock_sequence: U32,
        file_id: FileId,
    }
}

impl<'a> LockRequest<'a> {
    /// # Errors
    /// [`WireError`] if they do not lie within the message.
    pub fn locks(&self) -> Result<&'a [LockElement], WireError> {
        let count = usize::from(self.lock_count.get());
        let bytes = range(
            self.message,
            HEADER_BYTES + size_of::<LockRequestBody>(),
            count * size_of::<LockElement>(),
        )?;
        <[LockElement]>::ref_from_bytes(bytes).map_err(|_| WireError::Short)
    }
}

/// Appends a LOCK request's body.
pub fn write_lock_request(out: &mut Vec<u8>, mut body: LockRequestBody, locks: &[LockElement]) {
    body.lock_count = U16::new(locks.len() as u16);
    out.put(&body);
    out.put(locks);
}

message! {
    /// MS-SMB2 2.2.23.1, 2.2.24.1, 2.2.25.1: notification, acknowledgment and response have one form.
    OplockBreak, OplockBreakBody = 24 {
        oplock_level: u8,
        reserved: u8,
        reserved2: U32,
        file_id: FileId,
    }
}

/// Lease break flag: the holder must answer.
pub const LEASE_BREAK_ACK_REQUIRED: u32 = 1;

message! {
    /// MS-SMB2 2.2.23.2.
    LeaseBreakNotification, LeaseBreakNotificationBody = 44 {
        new_epoch: U16,
        flags: U32,
        lease_key: Guid,
        current_lease_state: U32,
        new_lease_state: U32,
        break_reason: U32,
        access_mask_hint: U32,
        share_mask_hint: U32,
    }
}

message! {
    /// MS-SMB2 2.2.24.2 and 2.2.25.2: acknowledgment and response have one form.
    LeaseBreak, LeaseBreakBody = 36 {
        reserved: U16,
        flags: U32,
        lease_key: Guid,
        lease_state: U32,
        lease_duration: U64,
    }
}

/// Kind of a client's OPLOCK_BREAK request.
#[derive(Debug, Clone, Copy)]
pub enum BreakAcknowledgment<'a> {
    Oplock(OplockBreak<'a>),
    Lease(LeaseBreak<'a>),
}

impl<'a> BreakAcknowledgment<'a> {
    /// Distinguishes the two by their StructureSize.
    ///
    /// # Errors
    /// [`WireError`] if it is neither.
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let size: &U16 = view_at(message, HEADER_BYTES)?;
        match size.get() {
            OplockBreakBody::STRUCTURE_SIZE => OplockBreak::parse(message).map(Self::Oplock),
            LeaseBreakBody::STRUCTURE_SIZE => LeaseBreak::parse(message).map(Self::Lease),
            _ => Err(WireError::StructureSize),
        }
    }
}
