//! The codec reads messages of real clients, and no bytes make it panic.

mod mutation;
mod tolerance;

use super::*;
use zerocopy::IntoBytes;

/// A message: header of `command`, then what `body` appends.
pub(super) fn message(command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Header::new(command).as_bytes().to_vec();
    let mut tail = Vec::new();
    body(&mut tail);
    out.extend_from_slice(&tail);
    out
}

pub(super) fn file_id() -> FileId {
    FileId { persistent: U64::new(0x1122_3344), volatile: U64::new(0x5566_7788) }
}
