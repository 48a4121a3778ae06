//! Where the blocks of a write-back job go.

use ::types::Lba;

use super::extents::Mapped;
use crate::fs::meta::BlockRun;

/// Longest overwrite that the virtual disk takes as one request, in blocks: 64 KiB.
pub const OVERWRITE_BLOCKS_MAX: u64 = 16;

/// Number of the stream's own blocks, 32 KiB, from which a job takes new ones instead of overwriting
/// them (D6): each byte is then written once to each copy instead of twice (journal, then place), which
/// outweighs the records that publish it. Not for the only job: it waits for fewer durable writes in
/// the journal, and nothing else waits for the disks.
const REDIRECTED_BLOCKS_LEAST: u64 = 8;

/// How a piece of a job becomes valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Blocks that the stream owns: atomically overwritten.
    Owned,
    /// Reserved blocks, to be mapped.
    Reserved,
    /// Blocks that the stream owns and never wrote.
    Unwritten,
}

#[derive(Debug, Clone, Copy)]
pub struct WritePiece {
    pub block: u64,
    pub run: BlockRun,
    pub place: Place,
}

impl WritePiece {
    /// The block behind it.
    pub fn end(&self) -> u64 {
        self.block + u64::from(self.run.blocks)
    }

    /// The parts before and behind a block.
    pub fn split(self, at: u64) -> (Option<Self>, Option<Self>) {
        let before = at.clamp(self.block, self.end()) - self.block;
        let part = |skip: u64, blocks: u64| {
            let run = BlockRun { lba: Lba(self.run.lba.0 + skip), blocks: blocks as u32 };
            (blocks > 0).then_some(Self { block: self.block + skip, run, ..self })
        };
        (part(0, before), part(before, u64::from(self.run.blocks) - before))
    }
}

/// Part of a job's range, before it has its places.
#[derive(Debug)]
pub enum Span {
    /// Blocks from, to, that need new places: together, so that neighbours lie together.
    Homeless(u64, u64),
    Placed(WritePiece),
}

/// Divides a job's range into spans. `room`: unpromised blocks; `alone`: no other data waits to be
/// stored.
pub fn spans(mapping: &[Mapped], room: u64, alone: bool) -> Vec<Span> {
    let owned_blocks: u64 = mapping.iter().filter(|part| part.is_owned()).map(|part| part.blocks).sum();
    let others: u64 =
        mapping.iter().filter(|part| part.extent.is_none_or(|e| e.shared)).map(|p| p.blocks).sum();
    let journaled_max = if alone { OVERWRITE_BLOCKS_MAX } else { REDIRECTED_BLOCKS_LEAST - 1 };
    let in_place = owned_blocks <= journaled_max || room < owned_blocks + others;
    let mut spans = Vec::new();
    // Neighbours that both need a place get one together.
    let mut homeless: Option<(u64, u64)> = None;
    for part in mapping {
        match part.extent {
            Some(extent) if extent.unwritten || (part.is_owned() && in_place) => {
                spans.extend(homeless.take().map(|(start, end)| Span::Homeless(start, end)));
                let place = if extent.unwritten { Place::Unwritten } else { Place::Owned };
                let run = BlockRun { lba: extent.lba, blocks: extent.blocks };
                spans.push(Span::Placed(WritePiece { block: part.block, run, place }));
            }
            _ => homeless = Some((homeless.map_or(part.block, |(start, _)| start), part.end())),
        }
    }
    spans.extend(homeless.map(|(start, end)| Span::Homeless(start, end)));
    spans
}
