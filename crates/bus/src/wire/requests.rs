//! Requests.

use super::{BLOCKS_MAX, CHECKSUM_BYTES, Malformed, READ_BLOCK_BYTES, only, wire_struct};
use smb::wire::{Put, U32, U64, fsctl};
use space::message::{ReplicaOperation, SessionId};
use store::api::{Checksums, WriteClass};
use sys::{Buf, Payload};
use types::{BLOCK_BYTES, ChangeNumber, ChunkIndex, Epoch, Lba, VolumeId};

/// Version of these forms. A node with another one is refused when it opens a disk.
const VERSION: u32 = 2;

wire_struct! {
    /// Data of the create context with which a session begins: [`ReplicaOperation::Open`].
    SessionRequest {
        /// Version of these forms; another one than this program's is refused.
        version: U32,
        /// Zero when sent, ignored when read.
        reserved: U32,
        /// Identity of the volume, in the byte order of [`VolumeId::to_bytes`].
        volume: [u8; 16],
        /// Epoch of the coordinator, which the disk promises.
        epoch: U64,
        /// Number of the session; a later one of the volume has a higher one.
        session: U64,
        /// Lowest promise that the disk must have made before.
        least: U64,
        /// Epoch up to which all writes are complete on all copies in sync; 0: none.
        settled: U64,
    }
}

impl SessionRequest {
    /// Returns the volume whose coordinator begins the session.
    pub fn volume(&self) -> VolumeId {
        VolumeId::from_bytes(self.volume)
    }
    /// Returns the epoch that the disk is to promise.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.get())
    }
    /// Returns the number by which the disk tells the coordinator's sessions apart.
    pub fn session(&self) -> SessionId {
        SessionId(self.session.get())
    }
    /// Returns the operation that the disk carries out: always [`ReplicaOperation::Open`].
    pub fn operation(&self) -> ReplicaOperation {
        ReplicaOperation::Open { least: Epoch(self.least.get()), settled: Epoch(self.settled.get()) }
    }
}

/// Writes the request for a session.
pub fn put_session(
    volume: VolumeId,
    epoch: Epoch,
    session: SessionId,
    least: Epoch,
    settled: Epoch,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.put(&SessionRequest {
        version: U32::new(VERSION),
        reserved: U32::new(0),
        volume: volume.to_bytes(),
        epoch: U64::new(epoch.0),
        session: U64::new(session.0),
        least: U64::new(least.0),
        settled: U64::new(settled.0),
    });
    out
}

/// Reads a request for a session.
///
/// # Errors
/// [`Malformed`], also of another version.
pub fn parse_session(bytes: &[u8]) -> Result<SessionRequest, Malformed> {
    let request: &SessionRequest = only(bytes)?;
    if request.version.get() != VERSION {
        return Err(Malformed("another version of the bus"));
    }
    Ok(*request)
}

/// Bytes that a READ of `blocks` requests; `None`: no READ has so many, or so few.
pub fn read_bytes(blocks: u32) -> Option<u32> {
    checked_blocks(blocks.into()).ok().map(|blocks| blocks * READ_BLOCK_BYTES as u32)
}

/// The blocks that a READ requests.
///
/// # Errors
/// [`Malformed`].
pub fn parse_read_range(offset: u64, len_bytes: u64) -> Result<(Lba, u32), Malformed> {
    let blocks = len_bytes / READ_BLOCK_BYTES as u64;
    if !offset.is_multiple_of(BLOCK_BYTES as u64) || !len_bytes.is_multiple_of(READ_BLOCK_BYTES as u64) {
        return Err(Malformed("a READ of parts of blocks"));
    }
    Ok((Lba(offset / BLOCK_BYTES as u64), checked_blocks(blocks)?))
}

fn checked_blocks(blocks: u64) -> Result<u32, Malformed> {
    match u32::try_from(blocks) {
        Ok(blocks) if (1..=BLOCKS_MAX).contains(&blocks) => Ok(blocks),
        _ => Err(Malformed("no blocks, or more than 1 MiB of them")),
    }
}

wire_struct! {
    /// The end of a WRITE's payload.
    WriteTrailer {
        /// Epoch of the coordinator that writes.
        epoch: U64,
        /// Number of 4 KiB blocks at the front of the payload.
        blocks: U32,
        /// As many as blocks, or none.
        checksums: U32,
        /// Number of the change.
        number: U32,
        /// 0: `Overwrite`, 1: `Fresh`, 2: `Append`.
        class: u8,
        /// [`WRITE_MARK`]: keeps other bytes from passing for a trailer.
        mark: [u8; 7],
    }
}

/// The last bytes of every WRITE.
const WRITE_MARK: [u8; 7] = *b"cenote\x01";

/// A write as it came.
#[derive(Debug)]
pub struct BusWrite {
    /// Epoch of the coordinator that writes.
    pub epoch: Epoch,
    /// Number of the change, which together with the epoch makes its stamp.
    pub number: ChangeNumber,
    /// First block of the volume that is written.
    pub lba: Lba,
    /// Class of the write: whether the blocks may hold acknowledged data.
    pub class: WriteClass,
    /// A part of the payload that came, not a copy.
    pub data: Payload,
    /// CRC-64/NVME of each block; empty for class `Append`.
    pub checksums: Checksums,
}

/// The payload of a WRITE: the blocks themselves, and one small buffer behind them. `None`: the blocks are not whole or too many.
pub fn put_write(
    epoch: Epoch,
    number: ChangeNumber,
    class: WriteClass,
    data: &Payload,
    checksums: &[u64],
) -> Option<Payload> {
    let blocks = checked_blocks((data.len() / BLOCK_BYTES) as u64).ok()?;
    if !data.len().is_multiple_of(BLOCK_BYTES)
        || !(checksums.is_empty() || checksums.len() == blocks as usize)
    {
        return None;
    }
    let mut tail = Vec::with_capacity(checksums.len() * CHECKSUM_BYTES + size_of::<WriteTrailer>());
    for checksum in checksums {
        tail.extend_from_slice(&checksum.to_le_bytes());
    }
    tail.put(&WriteTrailer {
        epoch: U64::new(epoch.0),
        blocks: U32::new(blocks),
        checksums: U32::new(checksums.len() as u32),
        number: U32::new(number.0),
        class: match class {
            WriteClass::Overwrite => 0,
            WriteClass::Fresh => 1,
            WriteClass::Append => 2,
        },
        mark: WRITE_MARK,
    });
    let mut payload = data.clone();
    payload.push(Buf::from(&tail[..]));
    Some(payload)
}

/// Reads a WRITE.
///
/// # Errors
/// [`Malformed`].
pub fn parse_write(offset: u64, payload: &Payload) -> Result<BusWrite, Malformed> {
    if !offset.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(Malformed("a WRITE within a block"));
    }
    let trailer_at = payload
        .len()
        .checked_sub(size_of::<WriteTrailer>())
        .ok_or(Malformed("a WRITE without its trailer"))?;
    let tail = payload.slice(trailer_at, size_of::<WriteTrailer>()).contiguous();
    let trailer: &WriteTrailer = only(&tail)?;
    let (blocks, count) =
        (checked_blocks(trailer.blocks.get().into())? as usize, trailer.checksums.get() as usize);
    if trailer.mark != WRITE_MARK {
        return Err(Malformed("a WRITE without its trailer"));
    }
    let class = match trailer.class {
        0 => WriteClass::Overwrite,
        1 => WriteClass::Fresh,
        2 => WriteClass::Append,
        _ => return Err(Malformed("a WRITE of no class")),
    };
    let data_bytes = blocks * BLOCK_BYTES;
    if count != 0 && count != blocks || trailer_at != data_bytes + count * CHECKSUM_BYTES {
        return Err(Malformed("a WRITE of another length than its trailer says"));
    }
    let sums = payload.slice(data_bytes, count * CHECKSUM_BYTES).contiguous();
    Ok(BusWrite {
        epoch: Epoch(trailer.epoch.get()),
        number: ChangeNumber(trailer.number.get()),
        lba: Lba(offset / BLOCK_BYTES as u64),
        class,
        data: payload.slice(0, data_bytes),
        checksums: checksums_of(&sums),
    })
}

/// Parses checksums from bytes whose length is a multiple of theirs.
pub(super) fn checksums_of(bytes: &[u8]) -> Checksums {
    let (sums, rest) = bytes.as_chunks::<CHECKSUM_BYTES>();
    debug_assert!(rest.is_empty(), "a part of a checksum");
    sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect()
}

wire_struct! {
    /// Input of the FSCTLs on a session; those that do not need a field have it zero.
    Control {
        epoch: U64,
        lba: U64,
        blocks: U32,
        chunk: U32,
        /// 1: the chunk is of class `Append`.
        flags: U32,
        /// Number of the change.
        number: U32,
    }
}

/// Most bytes of a list in an answer: of chunks, a million.
const LIST_BYTES_MAX: u32 = 8 << 20;

/// The FSCTL of an operation, its input, and most bytes of its answer; `None`: another request carries it.
pub fn control_of(epoch: Epoch, operation: &ReplicaOperation) -> Option<(u32, Vec<u8>, u32)> {
    let mut control = Control { epoch: U64::new(epoch.0), ..Control::default() };
    let (code, answer_bytes) = match operation {
        ReplicaOperation::Open { .. } | ReplicaOperation::Read { .. } | ReplicaOperation::Write { .. } => {
            return None;
        }
        ReplicaOperation::Promise => (fsctl::BUS_PROMISE, 0),
        ReplicaOperation::Chunks => (fsctl::BUS_CHUNKS, LIST_BYTES_MAX),
        ReplicaOperation::Allocate { chunk, append } => {
            (control.chunk, control.flags) = (U32::new(chunk.0), U32::new((*append).into()));
            (fsctl::BUS_ALLOCATE, 0)
        }
        ReplicaOperation::Free { chunk } => {
            control.chunk = U32::new(chunk.0);
            (fsctl::BUS_FREE, 0)
        }
        ReplicaOperation::Discard { lba, blocks, number } => {
            (control.lba, control.blocks) = (U64::new(lba.0), U32::new(*blocks));
            control.number = U32::new(number.0);
            (fsctl::BUS_DISCARD, 0)
        }
        ReplicaOperation::MarkLost { lba, blocks, number } => {
            (control.lba, control.blocks) = (U64::new(lba.0), U32::new(*blocks));
            control.number = U32::new(number.0);
            (fsctl::BUS_MARK_LOST, 0)
        }
        ReplicaOperation::Regions { chunk } => {
            control.chunk = U32::new(chunk.0);
            // A region is 1 MiB of a slab: space for those of a slab of 64 GiB.
            (fsctl::BUS_REGIONS, 1 << 20)
        }
    };
    let mut input = Vec::with_capacity(size_of::<Control>());
    input.put(&control);
    Some((code, input, answer_bytes))
}

/// Reads an FSCTL on a session.
///
/// # Errors
/// [`Malformed`].
pub fn parse_control(code: u32, input: &[u8]) -> Result<(Epoch, ReplicaOperation), Malformed> {
    let control: &Control = only(input)?;
    let chunk = ChunkIndex(control.chunk.get());
    let (lba, blocks) = (Lba(control.lba.get()), control.blocks.get());
    let number = ChangeNumber(control.number.get());
    let operation = match code {
        fsctl::BUS_PROMISE => ReplicaOperation::Promise,
        fsctl::BUS_CHUNKS => ReplicaOperation::Chunks,
        fsctl::BUS_ALLOCATE => match control.flags.get() {
            flags @ (0 | 1) => ReplicaOperation::Allocate { chunk, append: flags == 1 },
            _ => return Err(Malformed("a flag that there is not")),
        },
        fsctl::BUS_FREE => ReplicaOperation::Free { chunk },
        fsctl::BUS_DISCARD => ReplicaOperation::Discard { lba, blocks, number },
        fsctl::BUS_MARK_LOST => ReplicaOperation::MarkLost { lba, blocks, number },
        fsctl::BUS_REGIONS => ReplicaOperation::Regions { chunk },
        _ => return Err(Malformed("an FSCTL that there is not")),
    };
    let has_range = matches!(operation, ReplicaOperation::Discard { .. } | ReplicaOperation::MarkLost { .. });
    if has_range && (blocks == 0 || lba.0.checked_add(blocks.into()).is_none()) {
        return Err(Malformed("a range without a block, or beyond all addresses"));
    }
    Ok((Epoch(control.epoch.get()), operation))
}
