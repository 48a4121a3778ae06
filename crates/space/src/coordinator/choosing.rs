//! Choice of the right copy of a block.
//!
//! A copy that its store returns as intact may still be out of date, if its disk acknowledged a
//! write and lost it. Blocks that prove themselves (class `Append`) carry their order: the highest
//! is the newest. Among blocks with checksums, a never written one is older than a written one,
//! since a discard leaves the block unwritten on all copies. Other intact copies of one block are
//! equal, or differ by a write that was never acknowledged, so any of them is right.

use super::context::Context;
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, Lba, VolumeId};

/// An intact copy of a block.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub data: Buf,
    /// The higher is the newer: the order of a block that proves itself; else 1 if the block was written,
    /// and 0 if not.
    rank: u64,
}

impl Candidate {
    /// Returns zeroes, which prove themselves, for a self-proving block that no copy holds any
    /// more.
    pub fn zeroes() -> Self {
        Self { data: Buf::from(&[0; BLOCK_BYTES][..]), rank: 0 }
    }

    /// Whether the block was ever written.
    pub fn is_written(&self) -> bool {
        self.rank > 0
    }

    /// Whether `other` was written later. Equal bytes have the same age.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.rank < other.rank && self.data != other.data
    }
}

/// Returns the newest copy, the first among equally new ones.
pub(super) fn choose<'a>(copies: impl Iterator<Item = &'a Candidate>) -> Option<&'a Candidate> {
    copies.reduce(|best, next| if best.rank < next.rank { next } else { best })
}

/// The trust in a copy of a region after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Belief {
    /// Copy with the last change of all.
    Newest,
    /// Copy with changes under the last epoch, but without the last change; or with the last change
    /// on a doubtful disk, while a disk that lost nothing has it too.
    Older,
    /// Copy whose last change was under an earlier epoch.
    Behind,
}

/// One copy of a region, block by block. `None`: the block is not intact.
pub(super) struct RegionCopy<'a> {
    pub belief: Belief,
    pub blocks: Vec<Option<&'a Candidate>>,
}

impl<'a> RegionCopy<'a> {
    /// Returns the block, if it was written and is intact.
    fn written_at(&self, at: usize) -> Option<&'a Candidate> {
        self.blocks.get(at).copied().flatten().filter(|found| found.rank > 0)
    }

    fn written(&self) -> usize {
        (0..self.blocks.len()).filter(|at| self.written_at(*at).is_some()).count()
    }

    /// Whether the run of blocks around `at` that only this copy has written, and not `base`, borders on a
    /// block in which the two differ: a write in flight to this copy alone may have made them all.
    fn is_torn_from(&self, base: &Self, at: usize) -> bool {
        let fills = |at: usize| self.written_at(at).is_some() && base.written_at(at).is_none();
        let differs = |at: usize| match (self.written_at(at), base.written_at(at)) {
            (Some(own), Some(bases)) => own.data != bases.data,
            _ => false,
        };
        let before = (0..at).rev().find(|at| !fills(*at));
        let after = (at + 1..=self.blocks.len()).find(|at| !fills(*at));
        before.is_some_and(differs) || after.is_some_and(differs)
    }
}

/// The contents of a region as chosen after a crash.
pub(super) struct Choice {
    /// The blocks that every copy is to hold. `None`: no copy is intact.
    pub blocks: Vec<Option<Candidate>>,
    /// The place of the copy that most blocks are taken from.
    pub base: usize,
}

/// Chooses the blocks that every copy of a region is to hold after a crash. `copies` are in the order
/// of trust.
///
/// - Three or more copies with changes under the last epoch vote on each block. A disk that lost the
///   end of its journal is outvoted, and so is a write in flight to one copy. Overlapping writes are
///   never in flight together, so a vote tears none.
/// - The other blocks come from one of these copies, the base, as far as it is intact, since the region
///   is as large as the largest atomic write. The base is the copy outvoted at the fewest blocks; among
///   those one with the last change; among those the one with the most written blocks. Of two copies,
///   the one on a disk that lost the end of its journal does not have the last change.
/// - A block that is unwritten in the base, and written in another copy that was never outvoted, comes
///   from that copy, because the base's disk lost it; unless that copy is older, and the block seems to
///   be part of a write that the base does not have.
/// - A block that none of these copies has intact comes from any intact copy.
pub(super) fn choose_after_crash(copies: &[RegionCopy<'_>]) -> Choice {
    let blocks = copies.first().map_or(0, |copy| copy.blocks.len());
    let epoch_is_last = |copy: &RegionCopy<'_>| copy.belief != Belief::Behind;
    let any_is_last = copies.iter().any(epoch_is_last);
    let first: Vec<&RegionCopy<'_>> =
        copies.iter().filter(|copy| !any_is_last || epoch_is_last(copy)).collect();
    let votes: Vec<Option<&Candidate>> = (0..blocks).map(|at| vote(&first, at)).collect();
    let outvoted = |copy: &RegionCopy<'_>| {
        let is = |(vote, found): &(&Option<&Candidate>, &Option<&Candidate>)| match (vote, found) {
            (Some(vote), Some(found)) => vote.data != found.data,
            _ => false,
        };
        votes.iter().zip(&copy.blocks).filter(is).count()
    };
    let mut first: Vec<(usize, &RegionCopy<'_>)> =
        first.into_iter().map(|copy| (outvoted(copy), copy)).collect();
    first.sort_by_cached_key(|(outvoted, copy)| (*outvoted, copy.belief, std::cmp::Reverse(copy.written())));
    let Some((_, base)) = first.first() else { return Choice { blocks: Vec::new(), base: 0 } };
    let block = |at: usize| {
        let fits = |(outvoted, copy): &&(usize, &RegionCopy<'_>)| {
            *outvoted == 0 && (copy.belief == base.belief || !copy.is_torn_from(base, at))
        };
        votes[at]
            .or_else(|| choose(first.iter().filter(fits).filter_map(|(_, copy)| copy.blocks[at])))
            .or_else(|| choose(first.iter().filter_map(|(_, copy)| copy.blocks[at])))
            .or_else(|| copies.iter().find_map(|copy| copy.blocks[at]))
            .cloned()
    };
    let place = copies.iter().position(|copy| std::ptr::eq(copy, *base)).unwrap_or_default();
    Choice { blocks: (0..blocks).map(block).collect(), base: place }
}

/// Returns the contents that at least two of three or more copies have written to a block.
fn vote<'a>(copies: &[&RegionCopy<'a>], at: usize) -> Option<&'a Candidate> {
    // Two equal copies outvote nobody.
    if copies.len() < 3 {
        return None;
    }
    let mut written: Vec<&Candidate> =
        copies.iter().filter_map(|copy| copy.blocks[at]).filter(|found| found.rank > 0).collect();
    while let Some(found) = written.pop() {
        if written.iter().any(|other| other.data == found.data) {
            return Some(found);
        }
    }
    None
}

/// Returns the blocks that a store returned as intact, from `lba` on. `None`: a block that should prove
/// itself does not.
pub(super) fn candidates(
    volume: VolumeId,
    append: bool,
    lba: Lba,
    data: &Payload,
    checksums: &[u64],
) -> Vec<Option<Candidate>> {
    let blocks = data.len() / BLOCK_BYTES;
    let candidate = |at: usize| {
        let data = data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous();
        let rank = match checksums.get(at) {
            _ if append => codes::sealed_order(volume, lba.offset(at as u64), &data)?,
            Some(&codes::UNWRITTEN) => 0,
            _ => 1,
        };
        Some(Candidate { data, rank })
    };
    (0..blocks).map(candidate).collect()
}

/// Tells whether data from the transport matches its checksums. Data of this node's disks are checked
/// only with `verify_reads`. From other nodes, only blocks that prove themselves (`append`) come
/// without checksums.
pub(super) fn is_intact(
    context: &Context,
    is_far: bool,
    append: bool,
    lba: u64,
    blocks: u64,
    data: &Payload,
    checksums: &[u64],
) -> bool {
    if data.len() as u64 != blocks * BLOCK_BYTES as u64 {
        return false;
    }
    if checksums.is_empty() {
        return append || !is_far;
    }
    if !(context.config.verify_reads || is_far) {
        return true;
    }
    checksums.iter().enumerate().all(|(at, &checksum)| {
        let block = data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous();
        codes::block_matches(context.volume, Lba(lba + at as u64), &block, checksum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(bytes: &[u8]) -> Vec<Candidate> {
        let block =
            |byte: &u8| Candidate { data: Buf::from(&[*byte; BLOCK_BYTES][..]), rank: u64::from(*byte != 0) };
        bytes.iter().map(block).collect()
    }

    /// Returns the first byte of each block chosen from equally trusted copies.
    fn chosen(copies: &[&[u8]]) -> Vec<u8> {
        chosen_of(copies, copies.len())
    }

    /// As [`chosen`], but only the first `newest` copies had the last change.
    fn chosen_of(copies: &[&[u8]], newest: usize) -> Vec<u8> {
        let copies: Vec<Vec<Candidate>> = copies.iter().map(|bytes| copy(bytes)).collect();
        let mut seen = Vec::new();
        for (at, copy) in copies.iter().enumerate() {
            let belief = if at < newest { Belief::Newest } else { Belief::Older };
            seen.push(RegionCopy { belief, blocks: copy.iter().map(Some).collect() });
        }
        choose_after_crash(&seen).blocks.iter().flatten().map(|found| found.data[0]).collect()
    }

    #[test]
    fn of_three_copies_the_one_that_lost_what_it_had_acknowledged_is_outvoted() {
        for copies in
            [[&[1, 1][..], &[1, 2], &[1, 2]], [&[1, 2], &[1, 1], &[1, 2]], [&[1, 2], &[1, 2], &[1, 1]]]
        {
            assert_eq!(chosen(&copies), [1, 2]);
        }
    }

    #[test]
    fn a_write_that_two_of_three_have_is_kept_whatever_was_under_way_elsewhere() {
        // The first one lost block 0; block 1 was being written, on one copy.
        assert_eq!(chosen(&[&[1, 5], &[2, 5], &[2, 6]]), [2, 5]);
        // All copies differ: each has a write that was in flight to it alone.
        assert_eq!(chosen(&[&[1, 5, 8, 8], &[2, 6, 8, 8], &[2, 5, 9, 9]]), [2, 5, 8, 8]);
    }

    #[test]
    fn a_write_on_one_of_three_is_taken_whole_or_not_at_all() {
        // Over a block that was written before, and one that was not.
        assert_eq!(chosen(&[&[1, 0], &[1, 0], &[2, 2]]), [1, 0]);
        assert_eq!(chosen(&[&[2, 2], &[1, 0], &[1, 0]]), [1, 0]);
        assert_eq!(chosen(&[&[0, 0], &[0, 0], &[2, 2]]), [2, 2]);
    }

    #[test]
    fn of_two_copies_the_one_that_had_the_last_change_is_right() {
        assert_eq!(chosen_of(&[&[2, 5], &[1, 5]], 1), [2, 5]);
        // Even with fewer blocks written. Its disk may have lost the blocks that look unwritten,
        assert_eq!(chosen_of(&[&[2, 7, 0, 0], &[1, 7, 3, 3]], 1), [2, 7, 3, 3]);
        // unless they belong to a write in flight to the older copy alone.
        assert_eq!(chosen_of(&[&[1, 1, 0, 0, 9], &[2, 2, 2, 2, 8]], 1), [1, 1, 0, 0, 9]);
        assert_eq!(chosen_of(&[&[0, 1, 0, 4], &[2, 2, 2, 4]], 1), [0, 1, 0, 4]);
        // Two of three copies outvote even the one with the last change, which may have been in flight to it
        // alone.
        assert_eq!(chosen_of(&[&[1, 6], &[2, 5], &[2, 5]], 1), [2, 5]);
    }

    #[test]
    fn a_block_that_is_damaged_says_nothing() {
        let (lost, whole) = (copy(&[1, 3]), copy(&[2, 3]));
        let damaged = vec![Some(&whole[0]), None];
        let copies = [lost.iter().map(Some).collect(), whole.iter().map(Some).collect(), damaged];
        let copies = copies.map(|blocks| RegionCopy { belief: Belief::Newest, blocks });
        let found: Vec<u8> =
            choose_after_crash(&copies).blocks.iter().flatten().map(|found| found.data[0]).collect();
        assert_eq!(found, [2, 3]);
    }

    #[test]
    fn what_one_disk_lost_and_another_has_is_taken_from_that() {
        assert_eq!(chosen(&[&[1, 0], &[1, 2]]), [1, 2]);
        assert_eq!(chosen(&[&[0, 0], &[0, 0], &[0, 3]]), [0, 3]);
    }
}
