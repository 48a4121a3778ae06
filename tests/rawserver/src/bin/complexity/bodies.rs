//! Bodies of requests, byte by byte, that a client library would not send.

use smb::wire::{FileId, HEADER_BYTES};
use zerocopy::IntoBytes;

/// Little-endian fields one after the other.
#[derive(Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    pub fn u16(mut self, value: usize) -> Self {
        self.0.extend_from_slice(&(value as u16).to_le_bytes());
        self
    }
    pub fn u32(mut self, value: usize) -> Self {
        self.0.extend_from_slice(&(value as u32).to_le_bytes());
        self
    }
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
    pub fn file(self, file: FileId) -> Self {
        self.bytes(file.as_bytes())
    }
    /// Fills with zeros up to a multiple.
    pub fn aligned(mut self, to: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }
}

pub fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Bytes that look random and are the same in every run.
pub fn seeded(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// NEGOTIATE (2.2.3) with contexts as they are given.
pub fn negotiate(dialects: usize, contexts: usize, context_bytes: &[u8]) -> Vec<u8> {
    let contexts_at = (HEADER_BYTES + 36 + 2 * dialects).next_multiple_of(8);
    let mut body = Body::default().u16(36).u16(dialects).u16(1).u16(0).u32(0).bytes(&[5; 16]);
    body = if contexts > 0 { body.u32(contexts_at).u16(contexts).u16(0) } else { body.u64(0) };
    body.bytes(&0x0311_u16.to_le_bytes().repeat(dialects)).aligned(4).aligned(8).bytes(context_bytes).0
}

/// SESSION_SETUP (2.2.5).
pub fn session_setup(token: &[u8]) -> Vec<u8> {
    let body =
        Body::default().u16(25).u8(0).u8(1).u32(0).u32(0).u16(HEADER_BYTES + 24).u16(token.len()).u64(0);
    body.bytes(token).0
}

/// CREATE (2.2.13) with full access; `name` in UTF-16.
pub fn create(name: &[u8], disposition: usize, options: usize, contexts: &[u8]) -> Vec<u8> {
    let name_at = HEADER_BYTES + 56;
    let contexts_at = (name_at + name.len()).next_multiple_of(8);
    let body = Body::default().u16(57).u8(0).u8(0).u32(2).u64(0).u64(0).u32(0x001F_01FF).u32(0x80).u32(7);
    let body = body.u32(disposition).u32(options).u16(name_at).u16(name.len());
    let body = if contexts.is_empty() { body.u64(0) } else { body.u32(contexts_at).u32(contexts.len()) };
    body.bytes(name).aligned(8).bytes(contexts).u8(0).0
}

/// A create context (2.2.13.2), the last of its list unless `next` says where another begins.
pub fn create_context(name: &[u8; 4], data: &[u8], next: usize) -> Vec<u8> {
    let at = if data.is_empty() { 0 } else { 24 };
    let body = Body::default().u32(next).u16(16).u16(4).u16(0).u16(at).u32(data.len());
    body.bytes(name).u32(0).bytes(data).0
}

/// LOCK (2.2.26): `count` exclusive ranges of one byte from `first` on, every second byte, refused at once.
pub fn lock(file: FileId, first: u64, count: usize) -> Vec<u8> {
    let mut body = Body::default().u16(48).u16(count).u32(0).file(file);
    for nth in 0..count as u64 {
        body = body.u64(first + 2 * nth).u64(1).u32(0x12).u32(0);
    }
    body.0
}

/// READ (2.2.19).
pub fn read(file: FileId, offset: u64, len: usize) -> Vec<u8> {
    Body::default().u16(49).u8(0x50).u8(0).u32(len).u64(offset).file(file).bytes(&[0; 16]).u8(0).0
}

/// WRITE (2.2.21).
pub fn write(file: FileId, offset: u64, data: &[u8]) -> Vec<u8> {
    let body = Body::default().u16(49).u16(HEADER_BYTES + 48).u32(data.len()).u64(offset).file(file);
    body.bytes(&[0; 16]).bytes(data).0
}

/// IOCTL (2.2.31).
pub fn ioctl(file: FileId, code: usize, input: &[u8], answer_bytes: usize) -> Vec<u8> {
    let at = HEADER_BYTES + 56;
    let body = Body::default().u16(57).u16(0).u32(code).file(file).u32(at).u32(input.len()).u32(0);
    body.u32(at).u32(0).u32(answer_bytes).u32(1).u32(0).bytes(input).0
}

/// QUERY_DIRECTORY (2.2.33), FileIdBothDirectoryInformation from the beginning.
pub fn query_directory(file: FileId, pattern: &str, answer_bytes: usize) -> Vec<u8> {
    let pattern = wide(pattern);
    let body = Body::default().u16(33).u8(37).u8(1).u32(0).file(file).u16(HEADER_BYTES + 32);
    body.u16(pattern.len()).u32(answer_bytes).bytes(&pattern).0
}

/// QUERY_INFO (2.2.37).
pub fn query_info(file: FileId, kind: u8, level: u8, input: &[u8], answer_bytes: usize) -> Vec<u8> {
    let body = Body::default().u16(41).u8(kind).u8(level).u32(answer_bytes).u16(HEADER_BYTES + 40).u16(0);
    body.u32(input.len()).u32(7).u32(0).file(file).bytes(input).0
}

/// SET_INFO (2.2.39).
pub fn set_info(file: FileId, kind: u8, level: u8, data: &[u8]) -> Vec<u8> {
    let body = Body::default().u16(33).u8(kind).u8(level).u32(data.len()).u16(HEADER_BYTES + 32).u16(0);
    body.u32(if kind == 3 { 4 } else { 0 }).file(file).bytes(data).0
}

/// FILE_FULL_EA_INFORMATION: attributes with a name of five letters and a value of one byte.
pub fn attributes(count: usize) -> Vec<u8> {
    let mut body = Body::default();
    for nth in 0..count {
        let next = if nth + 1 < count { 16 } else { 0 };
        body = body.u32(next).u8(0).u8(5).u16(1).bytes(format!("{nth:05X}").as_bytes()).u8(0).u8(7).u8(0);
    }
    body.0
}

/// FILE_GET_EA_INFORMATION: the names of those.
pub fn attribute_names(count: usize) -> Vec<u8> {
    let mut body = Body::default();
    for nth in 0..count {
        let next = if nth + 1 < count { 12 } else { 0 };
        body = body.u32(next).u8(5).bytes(format!("{nth:05X}").as_bytes()).u8(0).u8(0);
    }
    body.0
}

/// A self-relative security descriptor whose discretionary list has 2,321 entries, nearly 64 KiB, each of another account.
pub fn security_descriptor() -> Vec<u8> {
    const ENTRY_BYTES: usize = 28;
    let entries = 65_000 / ENTRY_BYTES;
    let owner = Body::default().u8(1).u8(1).bytes(&[0, 0, 0, 0, 0, 5]).u32(18).0;
    let list_at = 20 + owner.len();
    let mut body = Body::default().u8(1).u8(0).u16(0x8004).u32(20).u32(0).u32(0).u32(list_at).bytes(&owner);
    body = body.u8(2).u8(0).u16(8 + entries * ENTRY_BYTES).u16(entries).u16(0);
    for nth in 0..entries {
        body = body.u8(0).u8(3).u16(ENTRY_BYTES).u32(0x001F_01FF);
        body = body.u8(1).u8(3).bytes(&[0, 0, 0, 0, 0, 5]).u32(21).u32(7).u32(nth);
    }
    body.0
}

/// FILE_RENAME_INFORMATION and FILE_LINK_INFORMATION (MS-FSCC 2.4.28.2, 2.4.43.2).
pub fn new_name(name: &str) -> Vec<u8> {
    let name = wide(name);
    Body::default().u64(0).u64(0).u32(name.len()).bytes(&name).0
}

/// A DCE/RPC bind that offers as many presentation contexts as fit.
pub fn rpc_bind(contexts: u8) -> Vec<u8> {
    let srvsvc =
        [0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 0x01, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88];
    let ndr =
        [0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48, 0x60];
    let len = 28 + 44 * usize::from(contexts);
    let body = Body::default().u8(5).u8(0).u8(11).u8(3).u32(0x10).u16(len).u16(0).u32(1);
    let mut body = body.u16(4280).u16(4280).u32(0).u8(contexts).u8(0).u16(0);
    for nth in 0..contexts {
        body = body.u16(usize::from(nth)).u8(1).u8(0).bytes(&srvsvc).u32(3).bytes(&ndr).u32(2);
    }
    body.0
}
