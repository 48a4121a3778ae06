//! The three messages of NTLM on the wire (MS-NLMP 2.2.1) and the pairs of target information (2.2.2.1).

use super::Flags;
use types::FileTime;

pub(in crate::auth) const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
/// NTLMRevisionCurrent 15, no version of Windows.
const VERSION: [u8; 8] = [10, 0, 0, 0, 0, 0, 0, 15];
/// Where the MIC lies in AUTHENTICATE.
pub(super) const MIC: std::ops::Range<usize> = 72..88;

/// Identifiers of target information (MsvAv...).
pub(super) mod av {
    pub(in crate::auth::ntlm) const END: u16 = 0;
    pub(in crate::auth::ntlm) const NETBIOS_COMPUTER_NAME: u16 = 1;
    pub(in crate::auth::ntlm) const NETBIOS_DOMAIN_NAME: u16 = 2;
    pub(in crate::auth::ntlm) const DNS_COMPUTER_NAME: u16 = 3;
    pub(in crate::auth::ntlm) const DNS_DOMAIN_NAME: u16 = 4;
    pub(in crate::auth::ntlm) const FLAGS: u16 = 6;
    pub(in crate::auth::ntlm) const TIMESTAMP: u16 = 7;
    pub(in crate::auth::ntlm) const TARGET_NAME: u16 = 9;
    /// Bit of FLAGS: the AUTHENTICATE message carries a MIC.
    pub(in crate::auth::ntlm) const FLAG_MIC: u32 = 2;
}

/// Why bytes are not the message that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    bytes.get(at..).and_then(|tail| tail.first_chunk()).map(|b| u16::from_le_bytes(*b)).ok_or(Malformed)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    bytes.get(at..).and_then(|tail| tail.first_chunk()).map(|b| u32::from_le_bytes(*b)).ok_or(Malformed)
}

/// Checks signature and message type.
fn expect_type(message: &[u8], message_type: u32) -> Result<(), Malformed> {
    if message.starts_with(SIGNATURE) && u32_at(message, 8)? == message_type {
        Ok(())
    } else {
        Err(Malformed)
    }
}

/// The bytes that a (length, maximum, offset) field at `at` refers to. An empty field may point anywhere.
fn field(message: &[u8], at: usize) -> Result<&[u8], Malformed> {
    let len = usize::from(u16_at(message, at)?);
    let offset = u32_at(message, at + 4)? as usize;
    if len == 0 {
        return Ok(&[]);
    }
    message.get(offset..).and_then(|tail| tail.get(..len)).ok_or(Malformed)
}

/// NEGOTIATE: only its flags matter.
pub(super) fn parse_negotiate(message: &[u8]) -> Result<Flags, Malformed> {
    expect_type(message, 1)?;
    Ok(Flags::from_bits_retain(u32_at(message, 12)?))
}

pub(super) fn encode_negotiate(flags: Flags) -> Vec<u8> {
    let mut out = Vec::with_capacity(40);
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&1_u32.to_le_bytes());
    out.extend_from_slice(&flags.bits().to_le_bytes());
    // Domain and workstation are not supplied.
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&VERSION);
    out
}

pub(super) struct Challenge<'a> {
    pub(super) flags: Flags,
    pub(super) server_challenge: [u8; 8],
    pub(super) target_info: &'a [u8],
}

pub(super) fn parse_challenge(message: &[u8]) -> Result<Challenge<'_>, Malformed> {
    expect_type(message, 2)?;
    let flags = Flags::from_bits_retain(u32_at(message, 20)?);
    let server_challenge = *message.get(24..).and_then(|tail| tail.first_chunk()).ok_or(Malformed)?;
    let target_info = if flags.contains(Flags::TARGET_INFO) { field(message, 40)? } else { &[] };
    Ok(Challenge { flags, server_challenge, target_info })
}

pub(super) fn encode_challenge(
    flags: Flags,
    server_challenge: [u8; 8],
    target_name: &[u8],
    target_info: &[u8],
) -> Vec<u8> {
    const HEADER_BYTES: usize = 56;
    let mut out = Vec::with_capacity(HEADER_BYTES + target_name.len() + target_info.len());
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&2_u32.to_le_bytes());
    push_field(&mut out, target_name.len(), HEADER_BYTES);
    out.extend_from_slice(&flags.bits().to_le_bytes());
    out.extend_from_slice(&server_challenge);
    out.extend_from_slice(&[0; 8]);
    push_field(&mut out, target_info.len(), HEADER_BYTES + target_name.len());
    out.extend_from_slice(&VERSION);
    out.extend_from_slice(target_name);
    out.extend_from_slice(target_info);
    out
}

/// AUTHENTICATE, its fields as they came.
pub(super) struct Authenticate<'a> {
    pub(super) lm_response: &'a [u8],
    pub(super) nt_response: &'a [u8],
    pub(super) domain: &'a [u8],
    pub(super) user: &'a [u8],
    pub(super) workstation: &'a [u8],
    pub(super) encrypted_session_key: &'a [u8],
    pub(super) flags: Flags,
    /// First byte of any field's content: a MIC can only lie before it.
    pub(super) payload_at: usize,
}

pub(super) fn parse_authenticate(message: &[u8]) -> Result<Authenticate<'_>, Malformed> {
    expect_type(message, 3)?;
    let mut payload_at = message.len();
    for at in [12, 20, 28, 36, 44, 52] {
        if u16_at(message, at)? != 0 {
            payload_at = payload_at.min(u32_at(message, at + 4)? as usize);
        }
    }
    Ok(Authenticate {
        lm_response: field(message, 12)?,
        nt_response: field(message, 20)?,
        domain: field(message, 28)?,
        user: field(message, 36)?,
        workstation: field(message, 44)?,
        encrypted_session_key: field(message, 52)?,
        flags: Flags::from_bits_retain(u32_at(message, 60)?),
        payload_at,
    })
}

/// AUTHENTICATE with a MIC of zeros.
pub(super) fn encode_authenticate(fields: &Authenticate<'_>) -> Vec<u8> {
    let contents = [
        fields.lm_response,
        fields.nt_response,
        fields.domain,
        fields.user,
        fields.workstation,
        fields.encrypted_session_key,
    ];
    let mut out = Vec::with_capacity(MIC.end + contents.iter().map(|content| content.len()).sum::<usize>());
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&3_u32.to_le_bytes());
    let mut offset = MIC.end;
    for content in contents {
        push_field(&mut out, content.len(), offset);
        offset += content.len();
    }
    out.extend_from_slice(&fields.flags.bits().to_le_bytes());
    out.extend_from_slice(&VERSION);
    out.extend_from_slice(&[0; 16]);
    contents.iter().for_each(|content| out.extend_from_slice(content));
    out
}

fn push_field(out: &mut Vec<u8>, len: usize, offset: usize) {
    // Contents here are names and responses, far below 64 KiB.
    let len = u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes();
    out.extend_from_slice(&len);
    out.extend_from_slice(&len);
    out.extend_from_slice(&(offset as u32).to_le_bytes());
}

/// NTLMv2_CLIENT_CHALLENGE (MS-NLMP 2.2.2.7).
pub(super) struct ClientBlob<'a> {
    pub(super) time: FileTime,
    pub(super) pairs: Vec<(u16, &'a [u8])>,
}

pub(super) fn parse_blob(blob: &[u8]) -> Result<ClientBlob<'_>, Malformed> {
    if !blob.starts_with(&[1, 1]) {
        return Err(Malformed);
    }
    let time = *blob.get(8..).and_then(|tail| tail.first_chunk()).ok_or(Malformed)?;
    let pairs = parse_pairs(blob.get(28..).ok_or(Malformed)?)?;
    Ok(ClientBlob { time: FileTime(u64::from_le_bytes(time)), pairs })
}

pub(super) fn encode_blob(time: FileTime, client_challenge: [u8; 8], target_info: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + target_info.len());
    out.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&time.0.to_le_bytes());
    out.extend_from_slice(&client_challenge);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(target_info);
    out.extend_from_slice(&[0; 4]);
    out
}

/// The pairs of target information up to its end mark, or to its end where the mark is missing.
pub(super) fn parse_pairs(mut bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, Malformed> {
    let mut pairs = Vec::new();
    while !bytes.is_empty() {
        let id = u16_at(bytes, 0)?;
        let len = usize::from(u16_at(bytes, 2)?);
        if id == av::END {
            break;
        }
        let (value, rest) = bytes.get(4..).and_then(|tail| tail.split_at_checked(len)).ok_or(Malformed)?;
        pairs.push((id, value));
        bytes = rest;
    }
    Ok(pairs)
}

/// Target information with its end mark.
pub(super) fn encode_pairs<'a>(pairs: impl IntoIterator<Item = (u16, &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, value) in pairs.into_iter().chain([(av::END, &[][..])]) {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(value);
    }
    out
}

pub(super) fn value_of<'a>(pairs: &[(u16, &'a [u8])], id: u16) -> Option<&'a [u8]> {
    pairs.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
}

/// Text as the flags say: UTF-16LE, or OEM, of which the ASCII and Latin-1 parts are understood.
pub(super) fn decode_text(bytes: &[u8], flags: Flags) -> Result<Vec<u16>, Malformed> {
    if !flags.contains(Flags::UNICODE) {
        return Ok(bytes.iter().map(|&byte| u16::from(byte)).collect());
    }
    let (units, rest) = bytes.as_chunks::<2>();
    if rest.is_empty() {
        Ok(units.iter().map(|unit| u16::from_le_bytes(*unit)).collect())
    } else {
        Err(Malformed)
    }
}

/// Text for the wire; characters that OEM cannot carry become question marks.
pub(super) fn encode_text(text: &str, flags: Flags) -> Vec<u8> {
    if flags.contains(Flags::UNICODE) {
        return utf16(text);
    }
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

pub(super) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}
