//! READ and WRITE (MS-SMB2 2.2.19-2.2.22): the hot path, parsed and answered without allocation.

use super::{Command, FileId, HEADER_BYTES, Header, HeaderFlags, Put, U16, U32, U64, WireError, part, range};
use types::NtStatus;
use zerocopy::{FromBytes, IntoBytes};

/// Channels of READ and WRITE.
pub const CHANNEL_NONE: u32 = 0;
/// The peer's memory is described by [`BufferDescriptorV1`]s.
pub const CHANNEL_RDMA_V1: u32 = 1;
/// As the former; the first descriptor's token is to be invalidated by the answer.
pub const CHANNEL_RDMA_V1_INVALIDATE: u32 = 2;
/// The channel information is an SMB2_RDMA_TRANSFORM (MS-SMB2 2.2.43).
pub const CHANNEL_RDMA_TRANSFORM: u32 = 3;

/// READ flag: do not cache on the server.
pub const READ_FLAG_UNBUFFERED: u8 = 1;
/// WRITE flags.
pub const WRITE_FLAG_WRITE_THROUGH: u32 = 1;
/// Bypasses the server's cache (3.0.2 and later).
pub const WRITE_FLAG_UNBUFFERED: u32 = 2;

wire_struct! {
    /// MS-SMB2 2.2.3.1.6: where a peer's memory lies for RDMA.
    BufferDescriptorV1 { offset: U64, token: U32, length: U32, }
}

message! {
    /// MS-SMB2 2.2.19.
    ReadRequest, ReadRequestBody = 49 {
        /// Offset from the header that the client wishes the data at.
        padding: u8,
        /// [`READ_FLAG_UNBUFFERED`], or 0.
        flags: u8,
        /// Bytes to read.
        length: U32,
        /// Byte of the file at which to begin; ignored for pipes.
        offset: U64,
        /// Open to read from.
        file_id: FileId,
        /// Fewest bytes that the read must give; fewer are STATUS_END_OF_FILE.
        minimum_count: U32,
        /// `CHANNEL_` constant: how the data travels (3.0 and later).
        channel: U32,
        /// Bytes that the client will read behind these: a hint.
        remaining_bytes: U32,
        /// Offset of the channel information from the header; 0 if there is none.
        channel_info_offset: U16,
        /// Bytes of the channel information.
        channel_info_length: U16,
    }
}

impl<'a> ReadRequest<'a> {
    /// The RDMA buffer descriptors of [`Self::channel`].
    ///
    /// # Errors
    /// [`WireError`] if they do not lie within the message.
    pub fn channel_info(&self) -> Result<&'a [BufferDescriptorV1], WireError> {
        descriptors(self.message, self.channel_info_offset, self.channel_info_length)
    }
}

fn descriptors(message: &[u8], at: U16, len: U16) -> Result<&[BufferDescriptorV1], WireError> {
    <[BufferDescriptorV1]>::ref_from_bytes(part(message, at.get().into(), len.get().into())?)
        .map_err(|_| WireError::Value)
}

/// Appends a READ request's body; `channel_info` empty if there is no RDMA.
pub fn write_read_request(out: &mut Vec<u8>, mut body: ReadRequestBody, channel_info: &[BufferDescriptorV1]) {
    if !channel_info.is_empty() {
        body.channel_info_offset = U16::new((HEADER_BYTES + size_of_val(&body)) as u16);
        body.channel_info_length = U16::new(size_of_val(channel_info) as u16);
    }
    out.put(&body);
    if channel_info.is_empty() {
        out.push(0);
    }
    out.put(channel_info);
}

message! {
    /// MS-SMB2 2.2.20.
    ReadResponse, ReadResponseBody = 17 {
        /// Offset of the data from the header.
        data_offset: u8,
        /// Reserved: sent as 0 and ignored.
        reserved: u8,
        /// Bytes of data in the message; 0 if they went by RDMA.
        data_length: U32,
        /// Bytes that went by RDMA.
        data_remaining: U32,
        /// [`READ_RESPONSE_RDMA_TRANSFORM`](super::READ_RESPONSE_RDMA_TRANSFORM), or 0 (3.1.1).
        flags: U32,
    }
}

impl<'a> ReadResponse<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn data(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.data_offset.into(), self.data_length.get())
    }
}

/// Where the data of a READ response that this codec builds starts.
pub const READ_RESPONSE_DATA_OFFSET: usize = HEADER_BYTES + size_of::<ReadResponseBody>();

message! {
    /// MS-SMB2 2.2.21.
    WriteRequest, WriteRequestBody = 49 {
        /// Offset of the data from the header.
        data_offset: U16,
        /// Bytes of data in the message; 0 if they go by RDMA.
        length: U32,
        /// Byte of the file at which to begin; ignored for pipes.
        offset: U64,
        /// Open to write to.
        file_id: FileId,
        /// `CHANNEL_` constant: how the data travels (3.0 and later).
        channel: U32,
        /// Bytes that go by RDMA; without a channel, a hint about later writes.
        remaining_bytes: U32,
        /// Offset of the channel information from the header; 0 if there is none.
        channel_info_offset: U16,
        /// Bytes of the channel information.
        channel_info_length: U16,
        /// [`WRITE_FLAG_WRITE_THROUGH`] and [`WRITE_FLAG_UNBUFFERED`].
        flags: U32,
    }
}

impl<'a> WriteRequest<'a> {
    /// The bytes that [`Self::channel`] gives a meaning.
    ///
    /// # Errors
    /// [`WireError`] if they do not lie within the message.
    pub fn channel_bytes(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.channel_info_offset.get().into(), self.channel_info_length.get().into())
    }

    /// Where in the message the data lies.
    ///
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn data_range(&self) -> Result<std::ops::Range<usize>, WireError> {
        let (at, len) = (usize::from(self.data_offset.get()), self.length.get() as usize);
        if len == 0 {
            return Ok(0..0);
        }
        if !(HEADER_BYTES..=WRITE_DATA_OFFSET_MAX).contains(&at) {
            return Err(WireError::OutOfBounds);
        }
        range(self.message, at, len).map(|_| at..at + len)
    }

    /// The RDMA buffer descriptors of [`Self::channel`].
    ///
    /// # Errors
    /// [`WireError`] if they do not lie within the message.
    pub fn channel_info(&self) -> Result<&'a [BufferDescriptorV1], WireError> {
        descriptors(self.message, self.channel_info_offset, self.channel_info_length)
    }
}

/// Highest DataOffset of a WRITE request (MS-SMB2 3.3.5.13).
const WRITE_DATA_OFFSET_MAX: usize = 0x100;

/// Where clients put the data of a WRITE request, and this codec does.
pub const WRITE_REQUEST_DATA_OFFSET: usize = HEADER_BYTES + size_of::<WriteRequestBody>();

/// Appends a WRITE request's body up to its data, whose length is `body.length` and which follows at once.
pub fn write_write_request(
    out: &mut Vec<u8>,
    mut body: WriteRequestBody,
    channel_info: &[BufferDescriptorV1],
) {
    if channel_info.is_empty() {
        body.data_offset = U16::new(WRITE_REQUEST_DATA_OFFSET as u16);
    } else {
        body.channel_info_offset = U16::new(WRITE_REQUEST_DATA_OFFSET as u16);
        body.channel_info_length = U16::new(size_of_val(channel_info) as u16);
    }
    out.put(&body);
    out.put(channel_info);
}

message! {
    /// MS-SMB2 2.2.22.
    WriteResponse, WriteResponseBody = 17 {
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
        /// Bytes written.
        count: U32,
        /// Reserved: sent as 0.
        remaining: U32,
        /// Reserved: sent as 0.
        channel_info_offset: U16,
        /// Reserved: sent as 0.
        channel_info_length: U16,
    }
}

/// Fields that a response's header takes from its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTo {
    /// Command of request and response.
    pub command: Command,
    /// MessageId of the request.
    pub message_id: u64,
    /// Session of the request.
    pub session_id: u64,
    /// Tree connect of the request.
    pub tree_id: u32,
    /// Credits that the request took; the response repeats the number.
    pub credit_charge: u16,
    /// Flags that the response repeats: RELATED_OPERATIONS, PRIORITY_MASK, REPLAY_OPERATION.
    pub flags: HeaderFlags,
}

impl ResponseTo {
    /// Returns the response's header with this status; `credits` are granted to the client.
    pub fn header(&self, status: NtStatus, credits: u16) -> Header {
        let mut header = Header::new(self.command);
        header.credit_charge = U16::new(self.credit_charge);
        header.status = U32::new(status.0);
        header.credits = U16::new(credits);
        header.flags = U32::new((self.flags | HeaderFlags::SERVER_TO_REDIR).bits());
        header.message_id = U64::new(self.message_id);
        header.tree_id = U32::new(self.tree_id);
        header.session_id = U64::new(self.session_id);
        header
    }
}

/// Header and body of a READ response, to be followed by `data_length` bytes: one fixed-size array, no allocation.
pub fn read_response_head(header: &Header, data_length: u32) -> [u8; READ_RESPONSE_DATA_OFFSET] {
    let mut out = [0; READ_RESPONSE_DATA_OFFSET];
    let (head, body) = out.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(header.as_bytes());
    let fixed = ReadResponseBody {
        data_offset: READ_RESPONSE_DATA_OFFSET as u8,
        data_length: U32::new(data_length),
        ..Default::default()
    };
    body.copy_from_slice(fixed.as_bytes());
    out
}

/// Bytes of a WRITE response.
pub const WRITE_RESPONSE_BYTES: usize = HEADER_BYTES + size_of::<WriteResponseBody>() + 1;

/// A whole WRITE response, without allocation.
pub fn write_response(header: &Header, count: u32) -> [u8; WRITE_RESPONSE_BYTES] {
    let mut out = [0; WRITE_RESPONSE_BYTES];
    let (head, body) = out.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(header.as_bytes());
    let fixed = WriteResponseBody { count: U32::new(count), ..Default::default() };
    body[..size_of::<WriteResponseBody>()].copy_from_slice(fixed.as_bytes());
    out
}

/// Appends the fixed part of a WRITE request that gives `info` the meaning of its channel, and `info`.
pub fn write_write_request_with_info(out: &mut Vec<u8>, mut body: WriteRequestBody, info: &[u8]) {
    let at = HEADER_BYTES + size_of_val(&body);
    body.channel_info_offset = U16::new(at as u16);
    body.channel_info_length = U16::new(info.len() as u16);
    body.data_offset = U16::new((at + info.len()) as u16);
    out.put(&body);
    out.extend_from_slice(info);
}
