//! IOCTL (MS-SMB2 2.2.31, 2.2.32): the envelope; its contents are in `control`.

use super::{FileId, HEADER_BYTES, Put, U16, U32, WireError, part};

/// IOCTL flag: the code is an FSCTL.
pub const IOCTL_IS_FSCTL: u32 = 1;

message! {
    /// MS-SMB2 2.2.31.
    IoctlRequest, IoctlRequestBody = 57 {
        reserved: U16,
        control_code: U32,
        file_id: FileId,
        input_offset: U32,
        input_count: U32,
        max_input_response: U32,
        output_offset: U32,
        output_count: U32,
        max_output_response: U32,
        flags: U32,
        reserved2: U32,
    }
}

impl<'a> IoctlRequest<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn input(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.input_offset.get(), self.input_count.get())
    }
}

/// Appends an IOCTL request's body.
pub fn write_ioctl_request(out: &mut Vec<u8>, mut body: IoctlRequestBody, input: &[u8]) {
    body.input_offset = U32::new((HEADER_BYTES + size_of_val(&body)) as u32);
    body.input_count = U32::new(input.len() as u32);
    out.put(&body);
    out.extend_from_slice(input);
    if input.is_empty() {
        out.push(0);
    }
}

message! {
    /// MS-SMB2 2.2.32.
    IoctlResponse, IoctlResponseBody = 49 {
        reserved: U16,
        control_code: U32,
        file_id: FileId,
        input_offset: U32,
        input_count: U32,
        output_offset: U32,
        output_count: U32,
        flags: U32,
        reserved2: U32,
    }
}

impl<'a> IoctlResponse<'a> {
    /// # Errors
    /// [`WireError`] if it does not lie within the message.
    pub fn output(&self) -> Result<&'a [u8], WireError> {
        part(self.message, self.output_offset.get(), self.output_count.get())
    }
}

/// Appends an IOCTL response's body.
pub fn write_ioctl_response(out: &mut Vec<u8>, control_code: u32, file_id: FileId, output: &[u8]) {
    let at = U32::new((HEADER_BYTES + size_of::<IoctlResponseBody>()) as u32);
    out.put(&IoctlResponseBody {
        control_code: U32::new(control_code),
        file_id,
        input_offset: at,
        output_offset: at,
        output_count: U32::new(output.len() as u32),
        ..Default::default()
    });
    out.extend_from_slice(output);
}
