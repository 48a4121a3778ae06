//! A disk in memory with a volatile write cache, that fails on command.
//!
//! Promises: without a fault it does what docs/ON_DISK.md assumes of a disk, and nothing better: a
//! write is durable once a later flush was answered, or at once if the write demands it; `cut_power`
//! may lose, keep or tear any other.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

pub const BLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: usize = 512;
/// Last written blocks that are remembered, for faults that should meet blocks in use.
const RECENT_BLOCKS: usize = 1024;

type Block = Arc<[u8; BLOCK_BYTES as usize]>;
/// Blocks by number; those that are missing are zeroes. Sorted, so that a seed picks the same ones of the same contents.
type Image = BTreeMap<u64, Block>;

/// A request of the file system to a disk. Offsets and lengths are in bytes.
pub enum Request {
    Read { offset: u64, len_bytes: u64 },
    Write { offset: u64, data: Vec<u8>, durable: bool },
    Flush,
    Discard { offset: u64, len_bytes: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
}

/// An errno.
pub type Errno = i32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Fail(Errno),
    /// The write is answered and not done.
    Lose,
    /// The write is acknowledged, and lands so many bytes further on, from the beginning again past the end.
    Misdirect(u64),
    /// Only the first half of the write's sectors is written; it is acknowledged as whole.
    Tear,
}

/// Fate of operations that touch a range.
#[derive(Debug, Clone)]
pub struct Fault {
    /// None: to any.
    pub operation: Option<Operation>,
    pub bytes: Range<u64>,
    /// How often; `None`: until it is cleared.
    pub times: Option<u64>,
    pub action: Action,
}

/// One block's change that no flush has covered yet.
struct Unflushed {
    number: u64,
    before: Option<Block>,
    after: Option<Block>,
}

/// Effect of a power cut on changes that no flush covered.
#[derive(Debug, Clone, Copy)]
enum Fate {
    LoseAll,
    KeepSome,
    TearSome,
}

pub struct Disk {
    size_bytes: u64,
    /// Content that reads find.
    image: Image,
    /// Content that no power cut takes away.
    durable: Image,
    unflushed: Vec<Unflushed>,
    snapshot: Option<Image>,
    faults: Vec<Fault>,
    /// Blocks whose reads fail until they are written.
    unreadable: BTreeSet<u64>,
    /// Blocks that hold other bytes than were written, until they are written.
    rotten: BTreeSet<u64>,
    recent: VecDeque<u64>,
    /// Operations that met a fault, reads of rotten blocks included.
    hits: u64,
}

impl Disk {
    /// A disk of zeroes.
    pub fn new(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            image: Image::new(),
            durable: Image::new(),
            unflushed: Vec::new(),
            snapshot: None,
            faults: Vec::new(),
            unreadable: BTreeSet::new(),
            rotten: BTreeSet::new(),
            recent: VecDeque::new(),
            hits: 0,
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// Performs a request, or the fault's version of it; returns the bytes read.
    ///
    /// # Errors
    /// The errno of a fault.
    pub fn perform(&mut self, request: &Request) -> Result<Vec<u8>, Errno> {
        let (operation, bytes) = match request {
            Request::Read { offset, len_bytes } => (Operation::Read, *offset..offset + len_bytes),
            Request::Write { offset, data, .. } => (Operation::Write, *offset..offset + data.len() as u64),
            Request::Flush => (Operation::Flush, 0..self.size_bytes),
            Request::Discard { offset, len_bytes } => (Operation::Discard, *offset..offset + len_bytes),
        };
        let action = self.meet_fault(operation, &bytes);
        match (request, action) {
            (_, Some(Action::Fail(errno))) => return Err(errno),
            (Request::Read { offset, len_bytes }, _) => return self.read(*offset, *len_bytes),
            (Request::Write { .. }, Some(Action::Lose)) => {}
            (Request::Write { offset, data, durable }, Some(Action::Misdirect(by_bytes))) => {
                let room = self.size_bytes - data.len() as u64 + BLOCK_BYTES;
                self.write((offset + by_bytes) % room, data, *durable);
            }
            (Request::Write { offset, data, durable }, Some(Action::Tear)) => {
                let half = data.len() / 2 / SECTOR_BYTES * SECTOR_BYTES;
                self.write(*offset, &data[..half], *durable);
            }
            (Request::Write { offset, data, durable }, _) => self.write(*offset, data, *durable),
            (Request::Flush, _) => self.flush(),
            (Request::Discard { offset, len_bytes }, _) => self.discard(*offset, *len_bytes),
        }
        Ok(Vec::new())
    }

    fn meet_fault(&mut self, operation: Operation, bytes: &Range<u64>) -> Option<Action> {
        let place = self.faults.iter().position(|fault| {
            fault.operation.is_none_or(|of| of == operation)
                && fault.bytes.start < bytes.end
                && bytes.start < fault.bytes.end
        })?;
        self.hits += 1;
        let fault = &mut self.faults[place];
        let action = fault.action;
        if let Some(times) = &mut fault.times {
            *times -= 1;
            if *times == 0 {
                self.faults.remove(place);
            }
        }
        Some(action)
    }

    fn read(&mut self, offset: u64, len_bytes: u64) -> Result<Vec<u8>, Errno> {
        let end = (offset + len_bytes).min(self.size_bytes);
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        if self.unreadable.range(blocks.clone()).next().is_some() {
            self.hits += 1;
            return Err(libc::EIO);
        }
        if self.rotten.range(blocks).next().is_some() {
            self.hits += 1;
        }
        let mut data = vec![0; end.saturating_sub(offset) as usize];
        for (number, within, place) in pieces(offset, data.len()) {
            if let Some(block) = self.image.get(&number) {
                data[place].copy_from_slice(&block[within]);
            }
        }
        Ok(data)
    }

    fn write(&mut self, offset: u64, data: &[u8], durable: bool) {
        for (number, within, place) in pieces(offset, data.len()) {
            let mut block = self.image.get(&number).map_or([0; BLOCK_BYTES as usize], |block| **block);
            block[within].copy_from_slice(&data[place]);
            self.change(number, Some(Arc::new(block)), durable);
            self.recent.push_back(number);
        }
        let surplus = self.recent.len().saturating_sub(RECENT_BLOCKS);
        self.recent.drain(..surplus);
    }

    /// Whole blocks only: the rest at the edges keeps its bytes, as on real devices.
    fn discard(&mut self, offset: u64, len_bytes: u64) {
        let blocks = offset.div_ceil(BLOCK_BYTES)..(offset + len_bytes) / BLOCK_BYTES;
        let numbers: Vec<u64> = self.image.range(blocks).map(|(&number, _)| number).collect();
        for number in numbers {
            self.change(number, None, false);
        }
    }

    fn change(&mut self, number: u64, after: Option<Block>, durable: bool) {
        self.unreadable.remove(&number);
        self.rotten.remove(&number);
        let before = put(&mut self.image, number, after.clone());
        if durable {
            // Earlier changes of the block cannot come back over it.
            self.unflushed.retain(|change| change.number != number);
            put(&mut self.durable, number, after);
        } else {
            self.unflushed.push(Unflushed { number, before, after });
        }
    }

    fn flush(&mut self) {
        for change in self.unflushed.drain(..) {
            put(&mut self.durable, change.number, change.after);
        }
    }

    /// Cuts the power: writes that no flush covered are lost, kept or torn, in any combination.
    pub fn cut_power(&mut self, random: &mut Random) {
        let fate = [Fate::LoseAll, Fate::KeepSome, Fate::TearSome][random.below(3) as usize];
        for change in std::mem::take(&mut self.unflushed) {
            let torn = matches!(fate, Fate::TearSome) && random.below(4) == 0;
            if matches!(fate, Fate::LoseAll) || (!torn && random.below(2) == 0) {
                continue;
            }
            let after = if torn { torn_block(&change, random) } else { change.after };
            put(&mut self.durable, change.number, after);
        }
        self.image = self.durable.clone();
    }

    pub fn inject(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub fn make_unreadable(&mut self, bytes: Range<u64>) {
        self.unreadable.extend(bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES));
    }

    /// Flips one bit in each block of the range that was ever written.
    pub fn rot(&mut self, bytes: Range<u64>, random: &mut Random) {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        for (&number, block) in self.image.range_mut(blocks) {
            let bit = random.below(BLOCK_BYTES * 8);
            Arc::make_mut(block)[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.durable.insert(number, block.clone());
            self.unflushed.retain(|change| change.number != number);
            self.rotten.insert(number);
        }
    }

    /// The range holds zeroes, as if nothing had ever been written.
    pub fn wipe(&mut self, bytes: Range<u64>) {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let numbers: Vec<u64> = self.image.range(blocks.clone()).map(|(&number, _)| number).collect();
        for number in &numbers {
            self.image.remove(number);
            self.durable.remove(number);
        }
        self.unflushed.retain(|change| !blocks.contains(&change.number));
        self.rotten.extend(numbers);
    }

    /// Keeps the disk's contents, for `go_back`.
    pub fn keep_image(&mut self) {
        self.snapshot = Some(self.image.clone());
    }

    /// Puts the older image back; returns whether there is one.
    pub fn go_back(&mut self) -> bool {
        let Some(image) = self.snapshot.take() else { return false };
        self.unflushed.clear();
        self.durable = image.clone();
        self.image = image;
        self.hits += 1;
        true
    }

    /// Ends faults; damage stays.
    pub fn clear(&mut self) {
        self.faults.clear();
    }

    /// Offsets of blocks in the range that hold something.
    pub fn pick(&self, count: usize, bytes: Range<u64>, random: &mut Random) -> Vec<u64> {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES);
        let written: Vec<u64> = self.image.range(blocks).map(|(&number, _)| number).collect();
        choose(&written, count, random)
    }

    /// Offsets of blocks that were written last.
    pub fn pick_recent(&self, count: usize, random: &mut Random) -> Vec<u64> {
        choose(&self.recent.iter().copied().collect::<Vec<_>>(), count, random)
    }
}

fn choose(blocks: &[u64], count: usize, random: &mut Random) -> Vec<u64> {
    let count = if blocks.is_empty() { 0 } else { count };
    (0..count).map(|_| blocks[random.below(blocks.len() as u64) as usize] * BLOCK_BYTES).collect()
}

/// Some sectors new, the others old.
fn torn_block(change: &Unflushed, random: &mut Random) -> Option<Block> {
    let zeroes = [0; BLOCK_BYTES as usize];
    let mut block = change.before.as_ref().map_or(zeroes, |block| **block);
    let after = change.after.as_ref().map_or(zeroes, |block| **block);
    for start in (0..block.len()).step_by(SECTOR_BYTES) {
        if random.below(2) == 0 {
            block[start..start + SECTOR_BYTES].copy_from_slice(&after[start..start + SECTOR_BYTES]);
        }
    }
    Some(Arc::new(block))
}

fn put(image: &mut Image, number: u64, block: Option<Block>) -> Option<Block> {
    match block {
        Some(block) => image.insert(number, block),
        None => image.remove(&number),
    }
}

/// The blocks of a byte range: number, bytes within the block, bytes within the range.
fn pieces(offset: u64, len_bytes: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let end = offset + len_bytes as u64;
    (offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(move |number| {
        let first = number * BLOCK_BYTES;
        let (from, to) = (offset.max(first), end.min(first + BLOCK_BYTES));
        let within = (from - first) as usize..(to - first) as usize;
        (number, within, (from - offset) as usize..(to - offset) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_BYTES: u64 = 64 * BLOCK_BYTES;

    fn write(disk: &mut Disk, number: u64, byte: u8, durable: bool) {
        let data = vec![byte; BLOCK_BYTES as usize];
        disk.perform(&Request::Write { offset: number * BLOCK_BYTES, data, durable }).unwrap();
    }

    fn read(disk: &mut Disk, number: u64) -> Result<Vec<u8>, Errno> {
        disk.perform(&Request::Read { offset: number * BLOCK_BYTES, len_bytes: BLOCK_BYTES })
    }

    fn first_byte(disk: &mut Disk, number: u64) -> u8 {
        read(disk, number).unwrap()[0]
    }

    fn fault(action: Action, times: Option<u64>) -> Fault {
        Fault { operation: Some(Operation::Write), bytes: 0..DISK_BYTES, times, action }
    }

    #[test]
    fn a_power_cut_takes_only_what_no_flush_covered() {
        let mut lost = 0;
        for seed in 0..50 {
            let mut disk = Disk::new(DISK_BYTES);
            write(&mut disk, 1, 1, false);
            disk.perform(&Request::Flush).unwrap();
            write(&mut disk, 2, 2, true);
            write(&mut disk, 3, 3, false);
            write(&mut disk, 1, 4, false);
            disk.cut_power(&mut Random::new(seed));
            let block = read(&mut disk, 1).unwrap();
            assert!(block.iter().all(|&byte| byte == 1 || byte == 4));
            assert_eq!(first_byte(&mut disk, 2), 2);
            lost += u64::from(first_byte(&mut disk, 3) == 0);
        }
        assert!((10..50).contains(&lost), "{lost} of 50 are lost");
    }

    #[test]
    fn a_durable_write_is_not_undone_by_an_earlier_one_of_the_same_block() {
        for seed in 0..50 {
            let mut disk = Disk::new(DISK_BYTES);
            write(&mut disk, 1, 1, false);
            write(&mut disk, 1, 2, true);
            disk.cut_power(&mut Random::new(seed));
            assert_eq!(first_byte(&mut disk, 1), 2);
        }
    }

    #[test]
    fn a_lost_write_is_answered_and_the_next_one_is_done() {
        let mut disk = Disk::new(DISK_BYTES);
        write(&mut disk, 5, 1, true);
        disk.inject(fault(Action::Lose, Some(1)));
        write(&mut disk, 5, 2, true);
        assert_eq!((first_byte(&mut disk, 5), disk.hits()), (1, 1));
        write(&mut disk, 5, 3, true);
        assert_eq!(first_byte(&mut disk, 5), 3);
    }

    #[test]
    fn a_misdirected_write_changes_another_place_of_the_disk() {
        let mut disk = Disk::new(DISK_BYTES);
        disk.inject(fault(Action::Misdirect(3 * BLOCK_BYTES), Some(1)));
        write(&mut disk, 5, 2, true);
        assert_eq!((first_byte(&mut disk, 5), first_byte(&mut disk, 8)), (0, 2));
        disk.inject(fault(Action::Misdirect(BLOCK_BYTES), Some(1)));
        write(&mut disk, 63, 4, true);
        assert_eq!(first_byte(&mut disk, 0), 4);
    }

    #[test]
    fn an_unreadable_sector_is_read_again_once_it_was_written() {
        let mut disk = Disk::new(DISK_BYTES);
        write(&mut disk, 7, 1, true);
        disk.make_unreadable(7 * BLOCK_BYTES..8 * BLOCK_BYTES);
        assert_eq!(read(&mut disk, 7), Err(libc::EIO));
        write(&mut disk, 7, 2, true);
        assert_eq!(first_byte(&mut disk, 7), 2);
    }

    #[test]
    fn rot_flips_a_bit_and_survives_a_power_cut() {
        let mut disk = Disk::new(DISK_BYTES);
        write(&mut disk, 7, 0xff, false);
        disk.rot(0..DISK_BYTES, &mut Random::new(1));
        disk.cut_power(&mut Random::new(1));
        let ones: u32 = read(&mut disk, 7).unwrap().iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 4096 * 8 - 1);
    }

    #[test]
    fn a_disk_goes_back_to_an_image_once() {
        let mut disk = Disk::new(DISK_BYTES);
        write(&mut disk, 1, 1, true);
        disk.keep_image();
        write(&mut disk, 1, 2, true);
        assert!(disk.go_back());
        assert_eq!(first_byte(&mut disk, 1), 1);
        assert!(!disk.go_back());
    }

    #[test]
    fn bytes_at_any_offset_are_read_as_written() {
        let mut disk = Disk::new(DISK_BYTES);
        let data: Vec<u8> = (0..9000).map(|at| at as u8).collect();
        disk.perform(&Request::Write { offset: 777, data: data.clone(), durable: false }).unwrap();
        assert_eq!(disk.perform(&Request::Read { offset: 777, len_bytes: 9000 }).unwrap(), data);
        disk.perform(&Request::Discard { offset: 4096, len_bytes: 4096 }).unwrap();
        assert_eq!(first_byte(&mut disk, 1), 0);
        assert_eq!(read(&mut disk, 0).unwrap()[777..], data[..4096 - 777]);
    }
}
