//! Answers of operations that failed.

use super::answers::{parse_chunks, put_chunks};
use super::{Malformed, list, wire_struct};
use disk::DiskError;
use smb::wire::{Put, U32, U64, view_at};
use space::message::BusError;
use store::api::StoreError;
use types::{Epoch, Lba, NtStatus};

wire_struct! {
    /// The head of ErrorData. A list follows for `Corrupt` (of block addresses) and `WentBack` (of chunks).
    Refusal {
        kind: U32,
        /// Kind of a disk's error.
        disk_kind: U32,
        /// The epoch that is promised, or the errno.
        value: U64,
    }
}

const CORRUPT: u32 = 1;
const FENCED: u32 = 2;
const NO_SPACE: u32 = 3;
const NOT_MAPPED: u32 = 4;
const POISONED: u32 = 5;
const DISK: u32 = 6;
const INVALID: u32 = 7;
const NO_SESSION: u32 = 8;
const WENT_BACK: u32 = 9;
const UNREACHABLE: u32 = 10;

/// Replaces the reason, which stays in the other node's log.
const INVALID_THERE: &str = "the disk's node found the request invalid";

/// Numbers of a disk's error on the wire: its kind and its errno.
fn disk_numbers(error: &DiskError) -> (u32, i32) {
    match error {
        DiskError::Medium(errno) => (1, *errno),
        DiskError::Host(errno) => (2, *errno),
        DiskError::Io(errno) => (3, *errno),
        DiskError::TimedOut => (4, 0),
        DiskError::Gone => (5, 0),
        DiskError::Invalid(_) => (6, 0),
        DiskError::NoSpace => (7, 0),
    }
}

fn disk_error(kind: u32, errno: i32) -> Result<DiskError, Malformed> {
    Ok(match kind {
        1 => DiskError::Medium(errno),
        2 => DiskError::Host(errno),
        3 => DiskError::Io(errno),
        4 => DiskError::TimedOut,
        5 => DiskError::Gone,
        6 => DiskError::Invalid(INVALID_THERE),
        7 => DiskError::NoSpace,
        _ => return Err(Malformed("a disk's error that there is not")),
    })
}

/// The status and the ErrorData of an error.
pub fn put_refusal(error: &BusError) -> (NtStatus, Vec<u8>) {
    let (mut disk_kind, mut value) = (0, 0);
    let (kind, status) = match error {
        BusError::Store(StoreError::Corrupt { .. }) => (CORRUPT, NtStatus::CRC_ERROR),
        BusError::Store(StoreError::Fenced { promised }) => {
            value = promised.0;
            (FENCED, NtStatus::REQUEST_OUT_OF_SEQUENCE)
        }
        BusError::Store(StoreError::NoSpace) => (NO_SPACE, NtStatus::DISK_FULL),
        BusError::Store(StoreError::NotMapped) => (NOT_MAPPED, NtStatus::NOT_FOUND),
        BusError::Store(StoreError::Poisoned) => (POISONED, NtStatus::MEDIA_WRITE_PROTECTED),
        BusError::Store(StoreError::Disk(error)) => {
            let (number, errno) = disk_numbers(error);
            // An errno of either sign fits into 32 bits.
            (disk_kind, value) = (number, u64::from(errno as u32));
            (DISK, NtStatus::UNEXPECTED_IO_ERROR)
        }
        BusError::Store(StoreError::Invalid(_)) => (INVALID, NtStatus::INVALID_PARAMETER),
        BusError::NoSession => (NO_SESSION, NtStatus::FILE_CLOSED),
        BusError::WentBack { promised, .. } => {
            value = promised.0;
            (WENT_BACK, NtStatus::VOLUME_DISMOUNTED)
        }
        BusError::Unreachable => (UNREACHABLE, NtStatus::NO_SUCH_DEVICE),
    };
    let mut data = Vec::new();
    data.put(&Refusal { kind: U32::new(kind), disk_kind: U32::new(disk_kind), value: U64::new(value) });
    match error {
        BusError::Store(StoreError::Corrupt { lbas }) => {
            lbas.iter().for_each(|lba| data.put(&U64::new(lba.0)));
        }
        BusError::WentBack { chunks, .. } => put_chunks(&mut data, chunks),
        _ => {}
    }
    (status, data)
}

/// Parses the error of these ErrorData.
///
/// # Errors
/// [`Malformed`].
pub fn parse_refusal(data: &[u8]) -> Result<BusError, Malformed> {
    let head: &Refusal = view_at(data, 0)?;
    let rest = &data[size_of::<Refusal>()..];
    let value = head.value.get();
    let kind = head.kind.get();
    if !matches!(kind, CORRUPT | WENT_BACK) && !rest.is_empty() {
        return Err(Malformed("an error with more than it has"));
    }
    Ok(BusError::Store(match kind {
        CORRUPT => {
            let lbas: &[U64] = list(rest)?;
            StoreError::Corrupt { lbas: lbas.iter().map(|lba| Lba(lba.get())).collect() }
        }
        FENCED => StoreError::Fenced { promised: Epoch(value) },
        NO_SPACE => StoreError::NoSpace,
        NOT_MAPPED => StoreError::NotMapped,
        POISONED => StoreError::Poisoned,
        DISK => StoreError::Disk(disk_error(head.disk_kind.get(), value as u32 as i32)?),
        INVALID => StoreError::Invalid(INVALID_THERE),
        NO_SESSION => return Ok(BusError::NoSession),
        WENT_BACK => {
            return Ok(BusError::WentBack { promised: Epoch(value), chunks: parse_chunks(rest)? });
        }
        UNREACHABLE => return Ok(BusError::Unreachable),
        _ => return Err(Malformed("an error that there is not")),
    }))
}
