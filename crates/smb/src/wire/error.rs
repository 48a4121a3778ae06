//! ERROR responses and their details beside the status (MS-SMB2 2.2.2).

use super::{HEADER_BYTES, Put, U16, U32, WireError, range, view_at};
use zerocopy::IntoBytes;

/// SMB2_ERROR_ID_DEFAULT: the data belong to the status of the response.
const ERROR_ID_DEFAULT: u32 = 0;
/// "SYML".
const SYMLINK_ERROR_TAG: u32 = 0x4C4D_5953;
/// IO_REPARSE_TAG_SYMLINK (MS-FSCC 2.1.2.1).
pub const REPARSE_TAG_SYMLINK: u32 = 0xA000_000C;

message! {
    /// MS-SMB2 2.2.2.
    ErrorResponse, ErrorResponseBody = 9 {
        error_context_count: u8,
        reserved: u8,
        byte_count: U32,
    }
}

wire_struct! {
    /// MS-SMB2 2.2.2.1; the data follow.
    ErrorContext {
        error_data_length: U32,
        error_id: U32,
    }
}

wire_struct! {
    /// MS-SMB2 2.2.2.2.1, up to the fields that a symbolic link has in REPARSE_DATA_BUFFER, too. SymLinkLength counts from the field
    /// behind it.
    SymlinkErrorHead {
        symlink_length: U32,
        symlink_error_tag: U32,
        reparse_tag: U32,
        reparse_data_length: U16,
        unparsed_path_length: U16,
    }
}

wire_struct! {
    /// A symbolic link's REPARSE_DATA_BUFFER up to its names (MS-FSCC 2.1.2.4).
    SymlinkReparseHead {
        reparse_tag: U32,
        reparse_data_length: U16,
        reserved: U16,
        substitute_name_offset: U16,
        substitute_name_length: U16,
        print_name_offset: U16,
        print_name_length: U16,
        flags: U32,
    }
}

impl<'a> ErrorResponse<'a> {
    /// Returns the details of the error: those of the first context of the default kind, if there are
    /// contexts.
    ///
    /// # Errors
    /// [`WireError::OutOfBounds`] if a length leads outside.
    pub fn data(&self) -> Result<&'a [u8], WireError> {
        let len = self.byte_count.get() as usize;
        let data = range(self.message, HEADER_BYTES + size_of::<ErrorResponseBody>(), len)?;
        if self.error_context_count == 0 {
            return Ok(data);
        }
        let mut at = 0;
        for _ in 0..self.error_context_count {
            let context: &ErrorContext = view_at(data, at)?;
            let len = context.error_data_length.get() as usize;
            let found = range(data, at + size_of::<ErrorContext>(), len)?;
            if context.error_id.get() == ERROR_ID_DEFAULT {
                return Ok(found);
            }
            at += (size_of::<ErrorContext>() + len).next_multiple_of(8);
        }
        Ok(&[])
    }
}

/// Appends the body of an error response; `data` may be empty.
pub fn write_error(out: &mut Vec<u8>, context_count: u8, data: &[u8]) {
    let body = ErrorResponseBody {
        error_context_count: context_count,
        byte_count: U32::new(data.len() as u32),
        ..Default::default()
    };
    out.extend_from_slice(body.as_bytes());
    // One byte is counted by StructureSize even if there is no data.
    out.extend_from_slice(if data.is_empty() { &[0] } else { data });
}

/// Puts the details of an error into a context, as 3.1.1 wants it.
pub fn error_context(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of::<ErrorContext>() + data.len());
    let len = U32::new(data.len() as u32);
    out.put(&ErrorContext { error_data_length: len, error_id: ERROR_ID_DEFAULT.into() });
    out.extend_from_slice(data);
    out
}

/// Describes the symbolic link that an operation stopped at: its REPARSE_DATA_BUFFER, and the length in
/// bytes of the path behind it.
///
/// # Errors
/// [`WireError`] if that is no symbolic link's buffer.
pub fn symlink_error(reparse: &[u8], unparsed_bytes: u16) -> Result<Vec<u8>, WireError> {
    let head: &SymlinkReparseHead = view_at(reparse, 0)?;
    let names = &reparse[size_of::<SymlinkReparseHead>()..];
    range(names, head.substitute_name_offset.get().into(), head.substitute_name_length.get().into())?;
    range(names, head.print_name_offset.get().into(), head.print_name_length.get().into())?;
    /// Bytes of a REPARSE_DATA_BUFFER before those that ReparseDataLength counts.
    const REPARSE_HEADER_BYTES: usize = 8;
    if head.reparse_tag.get() != REPARSE_TAG_SYMLINK
        || usize::from(head.reparse_data_length.get()) + REPARSE_HEADER_BYTES != reparse.len()
    {
        return Err(WireError::OutOfBounds);
    }
    let mut out = Vec::with_capacity(size_of::<SymlinkErrorHead>() + reparse.len());
    out.put(&SymlinkErrorHead {
        // The tag, and the buffer with UnparsedPathLength in the place of its reserved field.
        symlink_length: (size_of::<U32>() as u32 + reparse.len() as u32).into(),
        symlink_error_tag: SYMLINK_ERROR_TAG.into(),
        reparse_tag: head.reparse_tag,
        reparse_data_length: head.reparse_data_length,
        unparsed_path_length: unparsed_bytes.into(),
    });
    out.extend_from_slice(&reparse[REPARSE_HEADER_BYTES..]);
    Ok(out)
}
