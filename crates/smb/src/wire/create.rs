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
/// Level II oplock: the client may cache reads, as others may.
pub const OPLOCK_LEVEL_II: u8 = 1;
/// Exclusive oplock: the client may cache reads and writes.
pub const OPLOCK_LEVEL_EXCLUSIVE: u8 = 8;
/// Batch oplock: as exclusive, and the client may delay the close.
pub const OPLOCK_LEVEL_BATCH: u8 = 9;
/// Lease in place of an oplock; its state is in [`CONTEXT_LEASE`](super::CONTEXT_LEASE).
pub const OPLOCK_LEVEL_LEASE: u8 = 0xFF;

/// Create dispositions (MS-SMB2 2.2.13).
pub const FILE_SUPERSEDE: u32 = 0;
/// Opens the file; fails if there is none.
pub const FILE_OPEN: u32 = 1;
/// Creates the file; fails if there is one.
pub const FILE_CREATE: u32 = 2;
/// Opens the file, or creates it if there is none.
pub const FILE_OPEN_IF: u32 = 3;
/// Opens the file and empties it; fails if there is none.
pub const FILE_OVERWRITE: u32 = 4;
/// Opens the file and empties it, or creates it if there is none.
pub const FILE_OVERWRITE_IF: u32 = 5;

message! {
    /// MS-SMB2 2.2.13.
    CreateRequest, CreateRequestBody = 57 {
        /// Reserved: sent as 0 and ignored.
        security_flags: u8,
        /// One of the `OPLOCK_LEVEL_` constants.
        requested_oplock_level: u8,
        /// Impersonation level: 0 (anonymous) to 3 (delegate).
        impersonation_level: U32,
        /// Reserved: sent as 0 and ignored.
        smb_create_flags: U64,
        /// Reserved: sent as 0 and ignored.
        reserved: U64,
        /// Access mask (MS-SMB2 2.2.13.1).
        desired_access: U32,
        /// FILE_ATTRIBUTE_ bits for a new file (MS-FSCC 2.6).
        file_attributes: U32,
        /// FILE_SHARE_READ (1), _WRITE (2) and _DELETE (4): access that others may have.
        share_access: U32,
        /// One of [`FILE_SUPERSEDE`] to [`FILE_OVERWRITE_IF`].
        create_disposition: U32,
        /// FILE_ options, such as FILE_DIRECTORY_FILE (MS-SMB2 2.2.13).
        create_options: U32,
        /// Offset of the name from the header, a multiple of 8.
        name_offset: U16,
        /// Bytes of the name; 0 opens the share's root.
        name_length: U16,
        /// Offset of the create contexts from the header; 0 if there are none.
        create_contexts_offset: U32,
        /// Bytes of all create contexts.
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
        /// Granted oplock: one of the `OPLOCK_LEVEL_` constants.
        oplock_level: u8,
        /// SMB2_CREATE_FLAG_REPARSEPOINT (1): the last part of the path is a reparse point.
        flags: u8,
        /// File was superseded (0), opened (1), created (2) or overwritten (3).
        create_action: U32,
        /// Creation (FILETIME: 100 ns since 1601, MS-DTYP 2.3.3).
        creation_time: U64,
        /// Last read (FILETIME).
        last_access_time: U64,
        /// Last write of data (FILETIME).
        last_write_time: U64,
        /// Last change of data or attributes (FILETIME).
        change_time: U64,
        /// Allocated bytes.
        allocation_size: U64,
        /// Size in bytes.
        end_of_file: U64,
        /// FILE_ATTRIBUTE_ bits (MS-FSCC 2.6).
        file_attributes: U32,
        /// Reserved: sent as 0 and ignored.
        reserved: U32,
        /// Open that the server made, or that it found by a reconnect.
        file_id: FileId,
        /// Offset of the create contexts from the header; 0 if there are none.
        create_contexts_offset: U32,
        /// Bytes of all create contexts.
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
        /// [`CLOSE_FLAG_POSTQUERY_ATTRIB`] if times, sizes and attributes follow.
        flags: U16,
        /// Reserved: sent as 0 and ignored.
        reserved: U32,
        /// Creation (FILETIME: 100 ns since 1601, MS-DTYP 2.3.3).
        creation_time: U64,
        /// Last read (FILETIME).
        last_access_time: U64,
        /// Last write of data (FILETIME).
        last_write_time: U64,
        /// Last change of data or attributes (FILETIME).
        change_time: U64,
        /// Allocated bytes.
        allocation_size: U64,
        /// Size in bytes.
        end_of_file: U64,
        /// FILE_ATTRIBUTE_ bits (MS-FSCC 2.6).
        file_attributes: U32,
    }
}

message! {
    /// MS-SMB2 2.2.17.
    FlushRequest, FlushRequestBody = 24 { reserved1: U16, reserved2: U32, file_id: FileId, }
}

/// Flags of a lock element (MS-SMB2 2.2.26.1).
pub const LOCK_FLAG_SHARED: u32 = 1;
/// Exclusive lock: others neither read nor write the range.
pub const LOCK_FLAG_EXCLUSIVE: u32 = 2;
/// Releases the lock of exactly this range.
pub const LOCK_FLAG_UNLOCK: u32 = 4;
/// Fails the request at once if another lock conflicts, in place of a wait.
pub const LOCK_FLAG_FAIL_IMMEDIATELY: u32 = 0x10;

wire_struct! {
    /// MS-SMB2 2.2.26.1.
    LockElement { offset: U64, length: U64, flags: U32, reserved: U32, }
}

message! {
    /// MS-SMB2 2.2.26.
    LockRequest, LockRequestBody = 48 {
        /// Number of lock elements: 1 at least.
        lock_count: U16,
        /// LockSequenceNumber in the low 4 bits, LockSequenceIndex above.
        lock_sequence: U32,
        /// Open of the file.
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
        /// Level that stays: one of the `OPLOCK_LEVEL_` constants.
        oplock_level: u8,
        /// Reserved: sent as 0 and ignored.
        reserved: u8,
        /// Reserved: sent as 0 and ignored.
        reserved2: U32,
        /// Open that holds the oplock.
        file_id: FileId,
    }
}

/// Lease break flag: the holder must answer.
pub const LEASE_BREAK_ACK_REQUIRED: u32 = 1;

message! {
    /// MS-SMB2 2.2.23.2.
    LeaseBreakNotification, LeaseBreakNotificationBody = 44 {
        /// Epoch of the lease after the break; 0 for leases of version 1.
        new_epoch: U16,
        /// [`LEASE_BREAK_ACK_REQUIRED`].
        flags: U32,
        /// Key by which the client names the lease.
        lease_key: Guid,
        /// State before the break (MS-SMB2 2.2.13.2.8).
        current_lease_state: U32,
        /// State that the client may keep.
        new_lease_state: U32,
        /// Reserved: sent as 0.
        break_reason: U32,
        /// Reserved: sent as 0.
        access_mask_hint: U32,
        /// Reserved: sent as 0.
        share_mask_hint: U32,
    }
}

message! {
    /// MS-SMB2 2.2.24.2 and 2.2.25.2: acknowledgment and response have one form.
    LeaseBreak, LeaseBreakBody = 36 {
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
        /// Reserved: sent as 0 and ignored.
        flags: U32,
        /// Key by which the client names the lease.
        lease_key: Guid,
        /// State that the client keeps, or that the server confirms.
        lease_state: U32,
        /// Reserved: sent as 0.
        lease_duration: U64,
    }
}

/// Kind of a client's OPLOCK_BREAK request.
#[derive(Debug, Clone, Copy)]
pub enum BreakAcknowledgment<'a> {
    /// Acknowledgment of an oplock's break (MS-SMB2 2.2.24.1).
    Oplock(OplockBreak<'a>),
    /// Acknowledgment of a lease's break (MS-SMB2 2.2.24.2).
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
