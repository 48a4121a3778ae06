//! Answers of operations that succeeded.

use super::requests::checksums_of;
use super::{CHECKSUM_BYTES, Malformed, list, only, wire_struct};
use smb::wire::{Put, U32, U64, view_at};
use store::api::{Checksums, ChunkEntry, Regions};
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, ChunkIndex, Epoch, Stamp};

wire_struct! {
    /// Data of the create context of the answer: the session has begun.
    Opened {
        /// Epoch that the disk had promised before.
        promised: U64,
        /// 1: the disk's journal leaves something of the volume in doubt.
        doubtful: U32,
        reserved: U32,
    }
}

/// Writes that a session has begun.
pub fn put_opened(promised: Epoch, doubtful: bool) -> Vec<u8> {
    let mut out = Vec::new();
    out.put(&Opened {
        promised: U64::new(promised.0),
        doubtful: U32::new(doubtful.into()),
        ..Opened::default()
    });
    out
}

/// Parses the disk's promise, and whether something is in doubt.
///
/// # Errors
/// [`Malformed`].
pub fn parse_opened(bytes: &[u8]) -> Result<(Epoch, bool), Malformed> {
    let opened: &Opened = only(bytes)?;
    match opened.doubtful.get() {
        doubtful @ (0 | 1) => Ok((Epoch(opened.promised.get()), doubtful == 1)),
        _ => Err(Malformed("neither doubtful nor not")),
    }
}

/// The payload of a READ's answer: the blocks themselves, and one small buffer behind them.
pub fn put_read(mut data: Payload, checksums: &[u64]) -> Payload {
    let mut sums = Vec::with_capacity(checksums.len() * CHECKSUM_BYTES);
    for checksum in checksums {
        sums.extend_from_slice(&checksum.to_le_bytes());
    }
    data.push(Buf::from(&sums[..]));
    data
}

/// Parses the answer to a READ of `blocks`. The data are a part of `bytes`, not a copy.
///
/// # Errors
/// [`Malformed`].
pub fn parse_read(bytes: &Buf, blocks: u32) -> Result<(Payload, Checksums), Malformed> {
    let data_bytes = blocks as usize * BLOCK_BYTES;
    let sums = bytes.len().checked_sub(data_bytes).ok_or(Malformed("fewer blocks than were asked for"))?;
    if sums != 0 && sums != blocks as usize * CHECKSUM_BYTES {
        return Err(Malformed("neither a checksum for each block nor none"));
    }
    Ok((Payload::from(bytes.slice(..data_bytes)), checksums_of(&bytes[data_bytes..])))
}

wire_struct! {
    /// One chunk of a list.
    ChunkOnWire {
        chunk: U32,
        /// 1: of class `Append`.
        flags: U32,
    }
}

/// Appends a list of chunks.
pub fn put_chunks(out: &mut Vec<u8>, chunks: &[ChunkEntry]) {
    for entry in chunks {
        out.put(&ChunkOnWire { chunk: U32::new(entry.chunk.0), flags: U32::new(entry.append.into()) });
    }
}

/// Reads a list of chunks that fills these bytes.
///
/// # Errors
/// [`Malformed`].
pub fn parse_chunks(bytes: &[u8]) -> Result<Vec<ChunkEntry>, Malformed> {
    let entry = |entry: &ChunkOnWire| match entry.flags.get() {
        flags @ (0 | 1) => Ok(ChunkEntry { chunk: ChunkIndex(entry.chunk.get()), append: flags == 1 }),
        _ => Err(Malformed("a flag that there is not")),
    };
    list(bytes)?.iter().map(entry).collect()
}

wire_struct! {
    /// The head of the answer to a question about regions: the stamps follow, 8 bytes each, and the doubtful regions, 4 bytes each.
    RegionsHead { regions: U32, doubtful: U32, }
}

/// Writes the state of regions.
pub fn put_regions(regions: &Regions) -> Vec<u8> {
    let mut out = Vec::new();
    let (count, doubtful) = (regions.stamps.len() as u32, regions.doubtful.len() as u32);
    out.put(&RegionsHead { regions: U32::new(count), doubtful: U32::new(doubtful) });
    for stamp in &regions.stamps {
        out.put(&U64::new(stamp.word()));
    }
    for region in &regions.doubtful {
        out.put(&U32::new(*region));
    }
    out
}

/// Reads it.
///
/// # Errors
/// [`Malformed`].
pub fn parse_regions(bytes: &[u8]) -> Result<Regions, Malformed> {
    let head: &RegionsHead = view_at(bytes, 0)?;
    let rest = &bytes[size_of::<RegionsHead>()..];
    let stamp_bytes = (head.regions.get() as usize).saturating_mul(size_of::<U64>());
    let (stamps, doubtful) =
        rest.split_at_checked(stamp_bytes).ok_or(Malformed("fewer regions than it says"))?;
    let (stamps, doubtful): (&[U64], &[U32]) = (list(stamps)?, list(doubtful)?);
    if doubtful.len() != head.doubtful.get() as usize
        || doubtful.iter().any(|region| region.get() as usize >= stamps.len())
    {
        return Err(Malformed("doubtful regions that there are not"));
    }
    Ok(Regions {
        stamps: stamps.iter().map(|stamp| Stamp::from_word(stamp.get())).collect(),
        doubtful: doubtful.iter().map(|region| region.get()).collect(),
    })
}
