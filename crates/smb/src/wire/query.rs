//! QUERY_DIRECTORY, CHANGE_NOTIFY, QUERY_INFO, SET_INFO (MS-SMB2 2.2.33-2.2.40) and the notify record (MS-FSCC 2.7.1).

use super::{FileId, HEADER_BYTES, Put, U16, U32, WireError, part, range, view_at, wide};

/// QUERY_DIRECTORY flags.
pub const QUERY_DIRECTORY_RESTART_SCANS: u8 = 1;
/// SMB2_RETURN_SINGLE_ENTRY: at most one entry in the answer.
pub const QUERY_DIRECTORY_RETURN_SINGLE_ENTRY: u8 = 2;
/// SMB2_INDEX_SPECIFIED: the enumeration continues at FileIndex.
pub const QUERY_DIRECTORY_INDEX_SPECIFIED: u8 = 4;
/// SMB2_REOPEN: the enumeration starts anew with a new pattern.
pub const QUERY_DIRECTORY_REOPEN: u8 = 0x10;

message! {
    /// MS-SMB2 2.2.33.
    QueryDirectoryRequest, QueryDirectoryRequestBody = 33 {
        /// One of [`class`](super::class) that is a [`DirectoryClass`](super::DirectoryClass).
        file_information_class: u8,
        /// `QUERY_DIRECTORY_` flags.
        flags: u8,
        /// Position to continue at, with [`QUERY_DIRECTORY_INDEX_SPECIFIED`].
        file_index: U32,
        /// Open of the directory.
        file_id: FileId,
        /// Offset of the search pattern from the header.
        file_name_offset: U16,
        /// Bytes of the search pattern.
        file_name_length: U16,
        /// Most bytes of the answer.
        output_buffer_length: U32,
    }
}

impl QueryDirectoryRequest<'_> {
    /// The search pattern.
    ///
    /// # Errors
    /// [`WireError`] if it does not lie within the message or has an odd length.
    pub fn pattern(&self) -> Result<Box<[u16]>, WireError> {
        let bytes =
            part(self.message, self.file_name_offset.get().into(), self.file_name_length.get().into())?;
        wide(bytes)
    }
}

/// Appends a QUERY_DIRECTORY request's body.
pub fn write_query_directory_request(
    out: &mut Vec<u8>,
    mut body: QueryDirectoryRequestBody,
    pattern: &[u16],
) {
    body.file_name_offset = U16::new((HEADER_BYTES + size_of_val(&body)) as u16);
    body.file_name_length = U16::new((pattern.len() * 2) as u16);
    out.put(&body);
    out.put_wide(pattern);
    if pattern.is_empty() {
        out.push(0);
    }
}

message! {
    /// MS-SMB2 2.2.34, 2.2.36, 2.2.38: QUERY_DIRECTORY, CHANGE_NOTIFY and QUERY_INFO answer in one form.
    OutputBufferResponse, OutputBufferResponseBody = 9 {
        /// Offset of the answer from the header.
        output_buffer_offset: U16,
        /// Bytes of the answer.
        output_buffer_length: U32,
    }
}

impl<'a> OutputBufferResponse<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn data(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.output_buffer_offset.get().into(), self.output_buffer_length.get())
    }
}

/// Appends the body of such a response.
pub fn write_output_buffer_response(out: &mut Vec<u8>, data: &[u8]) {
    let at = if data.is_empty() { 0 } else { HEADER_BYTES + size_of::<OutputBufferResponseBody>() };
    out.put(&OutputBufferResponseBody {
        output_buffer_offset: U16::new(at as u16),
        output_buffer_length: U32::new(data.len() as u32),
        ..Default::default()
    });
    out.extend_from_slice(data);
    if data.is_empty() {
        out.push(0);
    }
}

/// CHANGE_NOTIFY flag.
pub const WATCH_TREE: u16 = 1;

message! {
    /// MS-SMB2 2.2.35.
    ChangeNotifyRequest, ChangeNotifyRequestBody = 32 {
        /// [`WATCH_TREE`], or 0.
        flags: U16,
        /// Most bytes of the answer.
        output_buffer_length: U32,
        /// Open of the directory.
        file_id: FileId,
        /// FILE_NOTIFY_CHANGE_ bits (MS-SMB2 2.2.35).
        completion_filter: U32,
        /// Reserved: sent as 0 and ignored.
        reserved: U32,
    }
}

/// Appends one FILE_NOTIFY_INFORMATION (MS-FSCC 2.7.1) to a list whose last record starts at `last`.
pub fn put_notify_record(out: &mut Vec<u8>, last: &mut Option<usize>, action: u32, name: &[u16]) {
    out.pad_from(0, 4);
    let at = out.len();
    if let Some(last) = *last {
        out.patch_u32(last, (at - last) as u32);
    }
    *last = Some(at);
    out.put(&[U32::new(0), U32::new(action), U32::new((name.len() * 2) as u32)]);
    out.put_wide(name);
}

/// FILE_ACTION_* and name of a change.
pub type NotifyRecord = (u32, Box<[u16]>);

/// The FILE_NOTIFY_INFORMATION records of a CHANGE_NOTIFY response.
///
/// # Errors
/// [`WireError`] if the list is cut short.
pub fn parse_notify_records(mut bytes: &[u8]) -> Result<Vec<NotifyRecord>, WireError> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let head: &[U32; 3] = view_at(bytes, 0)?;
        let [next, action, len] = head.map(U32::get);
        records.push((action, wide(range(bytes, 12, len as usize)?)?));
        if next == 0 {
            break;
        }
        if next < 12 {
            return Err(WireError::OutOfBounds);
        }
        bytes = bytes.get(next as usize..).ok_or(WireError::OutOfBounds)?;
    }
    Ok(records)
}

/// InfoType of QUERY_INFO and SET_INFO.
pub const INFO_FILE: u8 = 1;
/// SMB2_0_INFO_FILESYSTEM: classes of [`fs_class`](super::fs_class).
pub const INFO_FILESYSTEM: u8 = 2;
/// SMB2_0_INFO_SECURITY: a security descriptor.
pub const INFO_SECURITY: u8 = 3;
/// SMB2_0_INFO_QUOTA: quotas of users.
pub const INFO_QUOTA: u8 = 4;

/// QUERY_INFO flags, for extended attributes.
pub const SL_RESTART_SCAN: u32 = 1;
/// At most one extended attribute in the answer.
pub const SL_RETURN_SINGLE_ENTRY: u32 = 2;
/// The answer starts at the attribute that the input names by index.
pub const SL_INDEX_SPECIFIED: u32 = 4;

message! {
    /// MS-SMB2 2.2.37.
    QueryInfoRequest, QueryInfoRequestBody = 41 {
        /// One of [`INFO_FILE`], [`INFO_FILESYSTEM`], [`INFO_SECURITY`] and [`INFO_QUOTA`].
        info_type: u8,
        /// Class of `info_type`: one of [`class`](super::class) or [`fs_class`](super::fs_class).
        file_info_class: u8,
        /// Most bytes of the answer.
        output_buffer_length: U32,
        /// Offset of the input from the header.
        input_buffer_offset: U16,
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
        /// Bytes of the input: names of attributes, or a question about quotas.
        input_buffer_length: U32,
        /// SECURITY_INFORMATION bits of a security descriptor (MS-DTYP 2.4.7); else 0.
        additional_information: U32,
        /// [`SL_RESTART_SCAN`] and its neighbours, for extended attributes only.
        flags: U32,
        /// Open of the object.
        file_id: FileId,
    }
}

impl<'a> QueryInfoRequest<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn input(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.input_buffer_offset.get().into(), self.input_buffer_length.get())
    }
}

/// Appends a QUERY_INFO request's body.
pub fn write_query_info_request(out: &mut Vec<u8>, mut body: QueryInfoRequestBody, input: &[u8]) {
    if !input.is_empty() {
        body.input_buffer_offset = U16::new((HEADER_BYTES + size_of_val(&body)) as u16);
        body.input_buffer_length = U32::new(input.len() as u32);
    }
    out.put(&body);
    out.extend_from_slice(input);
    if input.is_empty() {
        out.push(0);
    }
}

message! {
    /// MS-SMB2 2.2.39.
    SetInfoRequest, SetInfoRequestBody = 33 {
        /// One of [`INFO_FILE`], [`INFO_FILESYSTEM`], [`INFO_SECURITY`] and [`INFO_QUOTA`].
        info_type: u8,
        /// Class of `info_type`: one of [`class`](super::class) or [`fs_class`](super::fs_class).
        file_info_class: u8,
        /// Bytes of the information.
        buffer_length: U32,
        /// Offset of the information from the header.
        buffer_offset: U16,
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
        /// SECURITY_INFORMATION bits of a security descriptor (MS-DTYP 2.4.7); else 0.
        additional_information: U32,
        /// Open of the object.
        file_id: FileId,
    }
}

impl<'a> SetInfoRequest<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn buffer(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.buffer_offset.get().into(), self.buffer_length.get())
    }
}

/// Appends a SET_INFO request's body.
pub fn write_set_info_request(out: &mut Vec<u8>, mut body: SetInfoRequestBody, buffer: &[u8]) {
    body.buffer_offset = U16::new((HEADER_BYTES + size_of_val(&body)) as u16);
    body.buffer_length = U32::new(buffer.len() as u32);
    out.put(&body);
    out.extend_from_slice(buffer);
}

message! {
    /// MS-SMB2 2.2.40.
    SetInfoResponse, SetInfoResponseBody = 2 {}
}
