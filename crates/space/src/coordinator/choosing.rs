//! Which copy of a block is right.
//!
//! Of copies that the stores give as intact one may still be older than it should be: its disk acknowledged a write and lost it.
//! Blocks that prove themselves (class `Append`) say their order: the highest is the newest. Of blocks with checksums one that was
//! never written is older than one that was: a discard leaves it unwritten on all copies. Otherwise intact copies of one block are
//! equal, or differ by a write that was never acknowledged: any will do.

use super::setting::Setting;
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, Lba, VolumeId};

/// An intact copy of a block.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub data: Buf,
    /// The higher is the newer: the order of a block that proves itself, otherwise 1 of one that was written.
    rank: u64,
}

impl Candidate {
    /// Stands for a block that proves itself and that no copy holds any more. Zeroes prove themselves.
    pub fn zeroes() -> Self {
        Self { data: Buf::from(&[0; BLOCK_BYTES][..]), rank: 0 }
    }

    /// Whether the other one was written later: equal bytes are not told apart.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.rank < other.rank && self.data != other.data
    }
}

/// Returns the newest; the first of those that are equally new.
pub(super) fn choose<'a>(copies: impl Iterator<Item = &'a Candidate>) -> Option<&'a Candidate> {
    copies.reduce(|best, next| if best.rank < next.rank { next } else { best })
}

/// What every copy of a region shall hold after a crash: `copies` in the order in which they are believed, the first `equals` of them
/// equally, but that only the first `newest` had the last change of all.
///
/// - What most of the equally believed have written to a block is right, if there are three: a disk that lost the end of its journal is
///   outvoted, and so is a write that was under way to one. Writes that overlap are never under way together, so this tears none.
/// - The rest is taken from one of them as far as that is intact, since the region is as large as the largest atomic write: from the one
///   that was outvoted at the fewest blocks, of those one that had the last change, and of those that was written at most blocks: of two
///   a disk that lost the end of its journal had an earlier one. What was not written there and was in another
///   one that was not outvoted is taken from that: its own disk lost it.
/// - What none of these has is taken from any that is intact.
pub(super) fn choose_after_crash(
    copies: &[Vec<Option<&Candidate>>],
    equals: usize,
    newest: usize,
) -> Vec<Option<Candidate>> {
    let blocks = copies.first().map_or(0, Vec::len);
    let (first, rest) = copies.split_at(equals.min(copies.len()));
    let votes: Vec<Option<&Candidate>> = (0..blocks).map(|at| vote(first, at)).collect();
    let outvoted = |copy: &[Option<&Candidate>]| {
        let is = |(vote, found): &(&Option<&Candidate>, &Option<&Candidate>)| match (vote, found) {
            (Some(vote), Some(found)) => vote.data != found.data,
            _ => false,
        };
        votes.iter().zip(copy).filter(is).count()
    };
    let written = |copy: &[Option<&Candidate>]| copy.iter().flatten().filter(|found| found.rank > 0).count();
    let mut first: Vec<(usize, bool, &Vec<Option<&Candidate>>)> =
        first.iter().enumerate().map(|(at, copy)| (outvoted(copy), at >= newest, copy)).collect();
    first.sort_by_cached_key(|(outvoted, is_older, copy)| {
        (*outvoted, *is_older, std::cmp::Reverse(written(copy)))
    });
    let block = |at: usize| {
        let right = first.iter().filter(|(outvoted, ..)| *outvoted == 0);
        let intact = first.iter().filter_map(|(.., copy)| copy[at]);
        votes[at]
            .or_else(|| choose(right.filter_map(|(.., copy)| copy[at])))
            .or_else(|| choose(intact))
            .or_else(|| rest.iter().find_map(|copy| copy[at]))
            .cloned()
    };
    (0..blocks).map(block).collect()
}

/// What two of three copies or more have written to a block alike.
fn vote<'a>(copies: &[Vec<Option<&'a Candidate>>], at: usize) -> Option<&'a Candidate> {
    // Two that are equal outvote nobody.
    if copies.len() < 3 {
        return None;
    }
    let mut written: Vec<&Candidate> =
        copies.iter().filter_map(|copy| copy[at]).filter(|found| found.rank > 0).collect();
    while let Some(found) = written.pop() {
        if written.iter().any(|other| other.data == found.data) {
            return Some(found);
        }
    }
    None
}

/// Returns the blocks that a store gave as intact, from `lba` on; none: a block that should prove itself does not.
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

/// Tells whether data that came over the transport is what its checksums say; they are looked at if it came from another node. Only blocks that
/// prove themselves (`append`) come from there without.
pub(super) fn is_intact(
    setting: &Setting,
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
    if !(setting.config.verify_reads || is_far) {
        return true;
    }
    checksums.iter().enumerate().all(|(at, &checksum)| {
        let block = data.slice(at * BLOCK_BYTES, BLOCK_BYTES).contiguous();
        codes::block_matches(setting.volume, Lba(lba + at as u64), &block, checksum)
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

    /// The first byte of each block that is chosen of copies that are equally believed.
    fn chosen(copies: &[&[u8]]) -> Vec<u8> {
        chosen_of(copies, copies.len())
    }

    /// The same, of copies of which the first `newest` had the last change.
    fn chosen_of(copies: &[&[u8]], newest: usize) -> Vec<u8> {
        let copies: Vec<Vec<Candidate>> = copies.iter().map(|bytes| copy(bytes)).collect();
        let seen: Vec<Vec<Option<&Candidate>>> =
            copies.iter().map(|copy| copy.iter().map(Some).collect()).collect();
        choose_after_crash(&seen, seen.len(), newest).iter().flatten().map(|found| found.data[0]).collect()
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
        // Each differs from the others: what each was being written lies on it alone.
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
        // Also if it is written at fewer blocks; what it was never written at its disk may have lost.
        assert_eq!(chosen_of(&[&[2, 0, 0], &[1, 3, 3]], 1), [2, 3, 3]);
        // Two of three are right nevertheless: what was under way to one of them may be the last change.
        assert_eq!(chosen_of(&[&[1, 6], &[2, 5], &[2, 5]], 1), [2, 5]);
    }

    #[test]
    fn a_block_that_is_damaged_says_nothing() {
        let (lost, whole) = (copy(&[1, 3]), copy(&[2, 3]));
        let damaged = vec![Some(&whole[0]), None];
        let copies = [lost.iter().map(Some).collect(), whole.iter().map(Some).collect(), damaged];
        let found: Vec<u8> =
            choose_after_crash(&copies, 3, 3).iter().flatten().map(|found| found.data[0]).collect();
        assert_eq!(found, [2, 3]);
    }

    #[test]
    fn what_one_disk_lost_and_another_has_is_taken_from_that() {
        assert_eq!(chosen(&[&[1, 0], &[1, 2]]), [1, 2]);
        assert_eq!(chosen(&[&[0, 0], &[0, 0], &[0, 3]]), [0, 3]);
    }
}
