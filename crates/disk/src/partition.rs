//! The partition table (GPT, UEFI specification 2.10 section 5) that a whole device gets, so that installers and other tools see that it
//! is taken; and the place of our partition in a device.
//!
//! Owns the table of a device that it partitioned: a protective MBR, both copies of header and entries,
//! and one partition of [`PARTITION_TYPE`] that begins at 1 MiB. Promises: bytes that do not parse are
//! no table; a table is found by either of its copies, and a damaged copy is written again from the
//! other one. Never touches a table with anything else in it.

use crate::release::{RELEASE, RELEASE_PAUSE};
use rustix::fs::{FileType, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uuid::{Uuid, uuid};

/// Type of a partition that holds a disk of a pool. Fixed for ever: `packaging/cenote.rules` knows it too.
pub const PARTITION_TYPE: Uuid = uuid!("84b239e1-403a-47d2-8870-db60b85e2331");

/// Begin and end are multiples of it, as every partitioning tool has it.
const ALIGNMENT: u64 = 1 << 20;
const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER_BYTES: usize = 92;
const ENTRIES: u32 = 128;
const ENTRY_BYTES: u32 = 128;
const ARRAY_BYTES: usize = (ENTRIES * ENTRY_BYTES) as usize;
/// Of tables by others: more entries than anybody makes are refused.
const ENTRIES_MAX: u32 = 1024;
const NAME: &str = "cenote";
/// Of the kernel's cache.
const PAGE_BYTES: u64 = 4096;
/// udev makes a partition's node within milliseconds; it may be busy with many disks.
const NODE_WAIT: Duration = Duration::from_secs(5);
const UDEV: &str = "/run/udev/control";
const SYSFS: &str = "/sys/dev/block";

/// Where a partition lies in its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

/// A partition table as far as it concerns our partition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    disk: Uuid,
    partition: Uuid,
    place: Place,
    /// There are other partitions.
    has_others: bool,
}

/// One copy of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TableCopy {
    /// With its header and entries as they are stored.
    Ours(Table, Vec<u8>, Vec<u8>),
    /// Intact, and without a partition of ours.
    Foreign,
    /// The copy cannot be read, or fails its checksums.
    Damaged,
}

/// State of the partition table around one of our partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TableState {
    /// Both copies are intact; or there is no table, or it is not ours to judge.
    #[default]
    Whole,
    /// This copy was damaged, and was written again from the other one.
    Repaired(&'static str),
    /// This copy is damaged, and why it was not written again.
    Damaged(&'static str, String),
}

const FIRST_COPY: &str = "the first copy of the partition table, at the beginning of the device,";
const SECOND_COPY: &str = "the second copy of the partition table, at the end of the device,";

/// Checks the table that our partition at this path is in: a device, an image of one, or the partition
/// itself. If `repair`, a damaged copy is written again from the intact one. Only for a caller that has
/// claimed the disk and found its label on it: then nothing else lies at the places of a table that
/// holds our partition alone.
pub fn look_after_table(path: &Path, repair: bool) -> TableState {
    let Ok(stat) = rustix::fs::stat(path) else { return TableState::Whole };
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let whole = whole_device_of(path).unwrap_or_else(|| path.to_owned());
    let Ok(file) = File::open(&whole) else { return TableState::Whole };
    let Ok(size_bytes) = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)) else {
        return TableState::Whole;
    };
    let blocks_bytes = match is_device {
        true => rustix::fs::ioctl_blksszget(&file).into_iter().collect(),
        false => vec![512, 4096],
    };
    for block_bytes in blocks_bytes {
        let Some((damaged, at, bytes)) = missing_copy(&file, size_bytes, block_bytes) else { continue };
        if !repair {
            return TableState::Damaged(
                damaged,
                "only a server that has the disk open writes it again".to_owned(),
            );
        }
        let written = File::options().write(true).open(&whole).and_then(|file| {
            // The MBR first: without it others would see no table, and the copy would not look damaged any more.
            let writes: Vec<(u64, Vec<u8>)> = [at, 0].into_iter().zip(bytes).collect();
            for (at, bytes) in writes.into_iter().rev() {
                file.write_all_at(&bytes, at)?;
                file.sync_all()?;
            }
            Ok(())
        });
        return match written {
            Ok(()) => TableState::Repaired(damaged),
            Err(error) => TableState::Damaged(damaged, format!("it cannot be written: {error}")),
        };
    }
    TableState::Whole
}

/// A damaged copy of a table in which our partition is alone and whose other copy is intact: which, its first byte, and the bytes that belong
/// there. Behind these bytes those of block 0, if the MBR is lost with the first copy.
fn missing_copy(file: &File, size_bytes: u64, block_bytes: u32) -> Option<(&'static str, u64, Vec<Vec<u8>>)> {
    let block = u64::from(block_bytes);
    let blocks = size_bytes / block;
    let last = blocks.checked_sub(1)?;
    let copy = |at| parse_copy(file, at, last, block_bytes);
    let (is_first, table, header, array) = match (copy(1), copy(last)) {
        (TableCopy::Damaged, TableCopy::Ours(table, header, array)) => (true, table, header, array),
        (TableCopy::Ours(table, header, array), TableCopy::Damaged) => (false, table, header, array),
        _ => return None,
    };
    let array_blocks = (array.len() as u64).div_ceil(block);
    let (own, other, array_at) =
        if is_first { (1, last, 2) } else { (last, 1, last.checked_sub(array_blocks)?) };
    // Whole pages of the kernel's cache are written: none may reach into the partition.
    let Place { offset_bytes, len_bytes } = table.place;
    let begin = (2 + array_blocks) * block;
    let end = (last - array_blocks) * block;
    let is_apart = offset_bytes >= begin.next_multiple_of(PAGE_BYTES)
        && offset_bytes + len_bytes <= end / PAGE_BYTES * PAGE_BYTES;
    // A table for a device of another size is not ours to place anew.
    if table.has_others || !is_apart || u64_at(&header, 32) != own {
        return None;
    }
    let mut header = header;
    header[24..32].copy_from_slice(&own.to_le_bytes());
    header[32..40].copy_from_slice(&other.to_le_bytes());
    header[72..80].copy_from_slice(&array_at.to_le_bytes());
    header[16..20].fill(0);
    let sum = crc(&header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    let (header, array) = (padded(&header, block), padded(&array, array_blocks * block));
    if !is_first {
        return Some((SECOND_COPY, array_at * block, vec![[array, header].concat()]));
    }
    let mut bytes = vec![[header, array].concat()];
    let mut first = vec![0; block as usize];
    if file.read_exact_at(&mut first, 0).is_err() || first.iter().all(|byte| *byte == 0) {
        bytes.push(padded(&encode_mbr(blocks), block));
    }
    Some((FIRST_COPY, block, bytes))
}

/// Our partition in a file or device that has one, by either copy of its table.
pub fn find(file: &File, size_bytes: u64, block_bytes: u32) -> Option<Place> {
    read(file, size_bytes, block_bytes).map(|table| table.place)
}

fn read(file: &File, size_bytes: u64, block_bytes: u32) -> Option<Table> {
    let last = (size_bytes / u64::from(block_bytes)).checked_sub(1)?;
    [1, last].into_iter().find_map(|at| read_copy(file, at, last, block_bytes))
}

fn read_copy(file: &File, at: u64, last: u64, block_bytes: u32) -> Option<Table> {
    match parse_copy(file, at, last, block_bytes) {
        TableCopy::Ours(table, ..) => Some(table),
        TableCopy::Foreign | TableCopy::Damaged => None,
    }
}

fn parse_copy(file: &File, at: u64, last: u64, block_bytes: u32) -> TableCopy {
    let Some((header, array)) = intact_copy(file, at, block_bytes) else { return TableCopy::Damaged };
    match own_table(&header, &array, last, block_bytes) {
        Some(table) => TableCopy::Ours(table, header, array),
        None => TableCopy::Foreign,
    }
}

/// Header and entries of an intact copy.
fn intact_copy(file: &File, at: u64, block_bytes: u32) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut block = vec![0; block_bytes as usize];
    file.read_exact_at(&mut block, at * u64::from(block_bytes)).ok()?;
    let number = |at: usize| u32_at(&block, at);
    let header_bytes = number(12) as usize;
    if !block.starts_with(SIGNATURE) || !(HEADER_BYTES..=block.len()).contains(&header_bytes) {
        return None;
    }
    let mut header = block[..header_bytes].to_vec();
    header[16..20].fill(0);
    let (entries, entry_bytes) = (number(80), number(84));
    let fits = (1..=ENTRIES_MAX).contains(&entries) && matches!(entry_bytes, 128 | 256 | 512);
    if crc(&header) != number(16) || u64_at(&block, 24) != at || !fits {
        return None;
    }
    let mut array = vec![0; (entries * entry_bytes) as usize];
    let array_at = u64_at(&block, 72).checked_mul(u64::from(block_bytes))?;
    file.read_exact_at(&mut array, array_at).ok()?;
    (crc(&array) == number(88)).then(|| (block[..header_bytes].to_vec(), array))
}

fn own_table(header: &[u8], array: &[u8], last: u64, block_bytes: u32) -> Option<Table> {
    let entry_bytes = u32_at(header, 84) as usize;
    let used = || array.chunks_exact(entry_bytes).filter(|entry| entry[..16] != [0; 16]);
    let ours = used().find(|entry| entry[..16] == PARTITION_TYPE.to_bytes_le())?;
    let (first, end) = (u64_at(ours, 32), u64_at(ours, 40).checked_add(1)?);
    if first == 0 || first >= end || end > last {
        return None;
    }
    let block_bytes = u64::from(block_bytes);
    Some(Table {
        disk: guid_at(header, 56),
        partition: guid_at(ours, 16),
        place: Place { offset_bytes: first * block_bytes, len_bytes: (end - first) * block_bytes },
        has_others: used().count() > 1,
    })
}

/// Whether the path leads to a device that may have partitions of its own: no partition, and no device
/// of the device mapper, on which the kernel searches for none.
pub fn is_whole_device(path: &Path) -> bool {
    sysfs(path).is_some_and(|device| !device.join("partition").exists() && !device.join("dm").exists())
}

/// The node of the device that the partition at this path is on; `None` if it is none.
pub fn whole_device_of(path: &Path) -> Option<PathBuf> {
    let device = sysfs(path)?;
    if !device.join("partition").exists() {
        return None;
    }
    Some(Path::new("/dev").join(device.parent()?.file_name()?))
}

/// The kernel's directory of a block device.
fn sysfs(path: &Path) -> Option<PathBuf> {
    let stat = rustix::fs::stat(path).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return None;
    }
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    Path::new(SYSFS).join(format!("{major}:{minor}")).canonicalize().ok()
}

/// Partitions a whole device that holds nothing, or our own table: then that is written again. Answers the path to use from now on:
/// the partition's, if its node comes, or the device's, in which the partition is found.
///
/// # Errors
/// The device is in use, too small, or has an error.
pub fn create(path: &Path) -> io::Result<PathBuf> {
    let (file, size_bytes, block_bytes) = open_device(path)?;
    write(&file, size_bytes, block_bytes)?;
    // The kernel, told by udev, reads a device's table when the writer has closed the device.
    drop(file);
    Ok(await_node(path).unwrap_or_else(|| path.to_owned()))
}

/// Takes our table off a device, given by its path or our partition's, unless there is something else in it. Answers whether there was
/// one.
///
/// # Errors
/// The device is in use or has an error.
pub fn remove(path: &Path) -> io::Result<bool> {
    if sysfs(path).is_none() {
        return Ok(false);
    }
    let whole = whole_device_of(path).unwrap_or_else(|| path.to_owned());
    let (file, size_bytes, block_bytes) = open_device(&whole)?;
    erase(&file, size_bytes, block_bytes)
}

/// As nobody else has it, not even mounted.
fn open_device(path: &Path) -> io::Result<(File, u64, u32)> {
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let until = Instant::now() + RELEASE;
    let file = loop {
        match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
            Err(rustix::io::Errno::BUSY) if Instant::now() < until => {
                std::thread::sleep(RELEASE_PAUSE);
            }
            opened => break opened?,
        }
    };
    let block_bytes = rustix::fs::ioctl_blksszget(&file)?;
    let size_bytes = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
    Ok((File::from(file), size_bytes, block_bytes))
}

fn write(file: &File, size_bytes: u64, block_bytes: u32) -> io::Result<()> {
    let blocks = size_bytes / u64::from(block_bytes);
    let place = largest_place(blocks, block_bytes)
        .ok_or_else(|| io::Error::other("the device is too small for a partition"))?;
    let known = read(file, size_bytes, block_bytes);
    if known.as_ref().is_some_and(|table| table.has_others) {
        return Err(io::Error::other("there are other partitions on the device: give one of them"));
    }
    let table = known.unwrap_or_else(|| Table {
        disk: Uuid::new_v4(),
        partition: Uuid::new_v4(),
        place,
        has_others: false,
    });
    for step in steps(&table, blocks, block_bytes) {
        for (at, bytes) in step {
            file.write_all_at(&bytes, at)?;
        }
        file.sync_all()?;
    }
    Ok(())
}

/// From 1 MiB to the last whole MiB before the second copy.
fn largest_place(blocks: u64, block_bytes: u32) -> Option<Place> {
    let block = u64::from(block_bytes);
    let last_usable = blocks.checked_sub(2 + ARRAY_BYTES as u64 / block)?;
    let end_bytes = (last_usable + 1) * block / ALIGNMENT * ALIGNMENT;
    (end_bytes >= 2 * ALIGNMENT)
        .then_some(Place { offset_bytes: ALIGNMENT, len_bytes: end_bytes - ALIGNMENT })
}

/// Bytes and their places.
type Step = Vec<(u64, Vec<u8>)>;

/// Returns the writes in steps, each durable before the next: the copies of the table, then the MBR
/// that makes others read them.
fn steps(table: &Table, blocks: u64, block_bytes: u32) -> [Step; 2] {
    let block = u64::from(block_bytes);
    let array_blocks = ARRAY_BYTES as u64 / block;
    let usable = (2 + array_blocks, blocks - 2 - array_blocks);
    let array = encode_array(table, block);
    let mut copies = Step::new();
    for (at, other, array_at) in [(blocks - 1, 1, usable.1 + 1), (1, blocks - 1, 2)] {
        let header = encode_header(table, (at, other), usable, array_at, crc(&array));
        copies.push((array_at * block, array.clone()));
        copies.push((at * block, padded(&header, block)));
    }
    [copies, vec![(0, padded(&encode_mbr(blocks), block))]]
}

/// Zeroes over MBR, headers and entries, if the table is ours and holds nothing else.
fn erase(file: &File, size_bytes: u64, block_bytes: u32) -> io::Result<bool> {
    match read(file, size_bytes, block_bytes) {
        Some(table) if !table.has_others => {}
        _ => return Ok(false),
    }
    let block = block_bytes as usize;
    let zeroes = vec![0; ARRAY_BYTES + 2 * block];
    file.write_all_at(&zeroes[block..], size_bytes - (ARRAY_BYTES + block) as u64)?;
    file.write_all_at(&zeroes, 0)?;
    file.sync_all()?;
    Ok(true)
}

fn encode_array(table: &Table, block: u64) -> Vec<u8> {
    let mut array = vec![0; ARRAY_BYTES];
    array[..16].copy_from_slice(&PARTITION_TYPE.to_bytes_le());
    array[16..32].copy_from_slice(&table.partition.to_bytes_le());
    let Place { offset_bytes, len_bytes } = table.place;
    array[32..40].copy_from_slice(&(offset_bytes / block).to_le_bytes());
    array[40..48].copy_from_slice(&((offset_bytes + len_bytes) / block - 1).to_le_bytes());
    for (at, unit) in (56..).step_by(2).zip(NAME.encode_utf16()) {
        array[at..at + 2].copy_from_slice(&unit.to_le_bytes());
    }
    array
}

/// `at`: this copy's block and the other one's.
fn encode_header(
    table: &Table,
    at: (u64, u64),
    usable: (u64, u64),
    array_at: u64,
    array_crc: u32,
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(SIGNATURE);
    header[8..12].copy_from_slice(&REVISION.to_le_bytes());
    header[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    for (index, number) in [at.0, at.1, usable.0, usable.1].into_iter().enumerate() {
        header[24 + index * 8..32 + index * 8].copy_from_slice(&number.to_le_bytes());
    }
    header[56..72].copy_from_slice(&table.disk.to_bytes_le());
    header[72..80].copy_from_slice(&array_at.to_le_bytes());
    header[80..84].copy_from_slice(&ENTRIES.to_le_bytes());
    header[84..88].copy_from_slice(&ENTRY_BYTES.to_le_bytes());
    header[88..92].copy_from_slice(&array_crc.to_le_bytes());
    let crc = crc(&header);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    header
}

/// One partition of type 0xEE over the whole device, as far as 32 bits reach (5.2.3).
fn encode_mbr(blocks: u64) -> [u8; 512] {
    let mut mbr = [0; 512];
    let record = &mut mbr[446..462];
    record[1..8].copy_from_slice(&[0x00, 0x02, 0x00, 0xee, 0xff, 0xff, 0xff]);
    record[8..12].copy_from_slice(&1u32.to_le_bytes());
    record[12..16].copy_from_slice(&u32::try_from(blocks - 1).unwrap_or(u32::MAX).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    mbr
}

fn padded(bytes: &[u8], block: u64) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(block as usize, 0);
    padded
}

/// The partition's path: beside a link as udev names it, or its node. `None` if it does not come, or not to us: there is no udev, or it
/// may not.
fn await_node(device: &Path) -> Option<PathBuf> {
    let until = Instant::now() + NODE_WAIT;
    let directory = sysfs(device)?;
    loop {
        if let Some(node) = node_of(device, &directory) {
            return Some(node);
        }
        if !Path::new(UDEV).exists() || Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn node_of(device: &Path, directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?;
    let partition = entries.flatten().find(|entry| entry.path().join("partition").exists())?;
    let node = Path::new("/dev").join(partition.file_name());
    // The kernel's number of it, so that no stale node of another device is taken.
    let number = std::fs::read_to_string(partition.path().join("dev")).ok()?;
    let stat = rustix::fs::stat(&node).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if number.trim() != format!("{major}:{minor}") {
        return None;
    }
    // The kernel makes a node for root alone; udev gives it to its owner a moment later.
    rustix::fs::access(&node, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).ok()?;
    let mut link = device.as_os_str().to_owned();
    link.push("-part1");
    let link = PathBuf::from(link);
    let leads_there =
        link.canonicalize().is_ok_and(|real| node.canonicalize().is_ok_and(|node| node == real));
    // udev makes the links a moment after the node.
    let is_link = device.canonicalize().is_ok_and(|real| real != device);
    match (is_link, leads_there) {
        (true, true) => Some(link),
        (true, false) => None,
        (false, _) => Some(node),
    }
}

/// CRC-32 of ISO-HDLC, as the specification has it.
fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn guid_at(bytes: &[u8], at: usize) -> Uuid {
    let mut guid = [0; 16];
    guid.copy_from_slice(&bytes[at..at + 16]);
    Uuid::from_bytes_le(guid)
}

/// Partitions an image.
#[cfg(test)]
pub(crate) fn write_for_tests(path: &Path, block_bytes: u32) {
    let file = File::options().read(true).write(true).open(path).expect("an image");
    let size_bytes = file.metadata().expect("a size").len();
    write(&file, size_bytes, block_bytes).expect("a table");
}

#[cfg(test)]
mod tests;
