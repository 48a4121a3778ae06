//! The one SMB1 message that an SMB2 server reads: the multi-protocol NEGOTIATE (MS-SMB 2.2.4.5.1, MS-SMB2 3.3.5.3).

use super::{PROTOCOL_SMB1, WireError, range};

/// SMB_COM_NEGOTIATE.
const COMMAND_NEGOTIATE: u8 = 0x72;
/// Bytes of an SMB1 header.
const HEADER_BYTES: usize = 32;

/// An SMB1 client's offer to continue with SMB2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Smb1Negotiate {
    /// "SMB 2.002".
    pub smb_2_002: bool,
    /// "SMB 2.???".
    pub smb_2_wildcard: bool,
}

impl Smb1Negotiate {
    /// # Errors
    /// [`WireError`] if the message is not an SMB1 NEGOTIATE.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        if !message.starts_with(&PROTOCOL_SMB1) {
            return Err(WireError::Protocol);
        }
        if message.get(4) != Some(&COMMAND_NEGOTIATE) {
            return Err(WireError::Value);
        }
        let word_count = usize::from(*message.get(HEADER_BYTES).ok_or(WireError::Short)?);
        let count_at = HEADER_BYTES + 1 + word_count * 2;
        let [low, high] = *range(message, count_at, 2)? else { return Err(WireError::Short) };
        let mut dialects = range(message, count_at + 2, usize::from(u16::from_le_bytes([low, high])))?;
        let mut found = Self::default();
        // Each dialect: buffer format 2, then a string that ends with zero.
        while let [2, rest @ ..] = dialects {
            let end = rest.iter().position(|byte| *byte == 0).ok_or(WireError::Short)?;
            let (name, tail) = rest.split_at(end);
            match name {
                b"SMB 2.002" => found.smb_2_002 = true,
                b"SMB 2.???" => found.smb_2_wildcard = true,
                _ => {}
            }
            dialects = &tail[1..];
        }
        Ok(found)
    }

    /// A client's SMB1 NEGOTIATE for the named dialects.
    pub fn build(dialects: &[&str]) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES];
        out[..4].copy_from_slice(&PROTOCOL_SMB1);
        out[4] = COMMAND_NEGOTIATE;
        // Flags2: Unicode, NT status, extended security, long names.
        out[10..12].copy_from_slice(&0xC801_u16.to_le_bytes());
        let bytes: Vec<u8> =
            dialects.iter().flat_map(|name| [&[2], name.as_bytes(), &[0]].concat()).collect();
        out.push(0);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(&bytes);
        out
    }
}
