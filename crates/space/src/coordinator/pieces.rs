//! Pieces of a request. Each touches blocks of one region, so that a lock covers one region too.

use super::OVERWRITE_BLOCKS;
use super::context::Geometry;
use super::shared::Shared;
use crate::api::{SpaceError, SpaceRequest};
use store::api::WriteClass;
use types::BLOCK_BYTES;

/// A piece of a request that has not begun: blocks of one region, or one whole chunk to discard.
pub(super) struct Piece {
    pub lba: u64,
    pub blocks: u64,
    pub whole_chunk: bool,
}

/// Returns the first block of the request and the number of blocks.
pub(super) fn range(request: &SpaceRequest) -> (u64, u64) {
    match request {
        SpaceRequest::Read { lba, blocks, .. } => (lba.0, u64::from(*blocks)),
        SpaceRequest::Write { lba, data, .. } => (lba.0, (data.len() / BLOCK_BYTES) as u64),
        SpaceRequest::Discard { lba, blocks } => (lba.0, *blocks),
    }
}

/// Returns the error of a request that must not begin.
pub(super) fn refuse(request: &SpaceRequest, shared: &Shared) -> Option<SpaceError> {
    let (lba, blocks) = range(request);
    if let SpaceRequest::Write { data, class, .. } = request {
        if !data.len().is_multiple_of(BLOCK_BYTES) {
            return Some(SpaceError::Invalid("a write must be of whole blocks"));
        }
        if *class == WriteClass::Overwrite && blocks > OVERWRITE_BLOCKS {
            return Some(SpaceError::Invalid("an overwrite is of 64 KiB at most"));
        }
    }
    // The size is known once the record is read; until then requests wait, and the gate checks them.
    let size = shared.membership.record().size_bytes / BLOCK_BYTES as u64;
    let end = lba.checked_add(blocks);
    if blocks == 0 || end.is_none() || (shared.context.serving() && end > Some(size)) {
        return Some(SpaceError::Invalid("the range is empty or beyond the end of the virtual disk"));
    }
    None
}

/// Cuts a request into pieces of one region each, and a discard of whole chunks into pieces of one
/// chunk each.
pub(super) fn cut(lba: u64, blocks: u64, discards: bool, geometry: Geometry) -> Vec<Piece> {
    let (mut at, end, chunk_blocks) = (lba, lba + blocks, geometry.chunk_blocks);
    let mut pieces = Vec::new();
    while at < end {
        let whole_chunk = discards && at.is_multiple_of(chunk_blocks) && end - at >= chunk_blocks;
        let blocks = if whole_chunk { chunk_blocks } else { geometry.rest_of_region(at).min(end - at) };
        pieces.push(Piece { lba: at, blocks, whole_chunk });
        at += blocks;
    }
    pieces
}
