//! What a node tells of its disks.

use super::{Malformed, only, wire_struct};
use crate::status::DiskStatus;
use smb::wire::{Put, U32, U64, view_at};
use std::collections::BTreeMap;
use types::{DiskId, Lba, VolumeId};

wire_struct! {
    /// Input of `BUS_STATUS`.
    StatusRequest {
        /// The number of the next finding that was not told of; zero: all.
        cursor: U64,
    }
}

wire_struct! {
    /// The head of its answer: disks and findings follow.
    StatusHead { cursor: U64, disks: U32, findings: U32, }
}

wire_struct! {
    DiskOnWire { disk: [u8; 16], total_slabs: U64, free_slabs: U64, slab_blocks: U32, reserved: U32, }
}

wire_struct! {
    FindingOnWire { disk: [u8; 16], volume: [u8; 16], lba: U64, }
}

/// Writes the question.
pub fn put_status_request(cursor: u64) -> Vec<u8> {
    U64::new(cursor).to_bytes().to_vec()
}

/// Reads the question: the cursor.
///
/// # Errors
/// [`Malformed`].
pub fn parse_status_request(input: &[u8]) -> Result<u64, Malformed> {
    Ok(only::<StatusRequest>(input)?.cursor.get())
}

/// Writes the answer, in at most `bytes_max`: findings that do not fit are left for the next question. `first`: the number of the first
/// of the findings. `None`: not even the disks fit.
pub fn put_status<'a>(
    disks: &[DiskStatus],
    first: u64,
    findings: impl Iterator<Item = &'a (DiskId, VolumeId, Lba)>,
    bytes_max: usize,
) -> Option<Vec<u8>> {
    let fixed = size_of::<StatusHead>() + disks.len() * size_of::<DiskOnWire>();
    let room = bytes_max.checked_sub(fixed)? / size_of::<FindingOnWire>();
    let findings: Vec<FindingOnWire> = findings
        .take(room)
        .map(|(disk, volume, lba)| FindingOnWire {
            disk: disk.to_bytes(),
            volume: volume.to_bytes(),
            lba: U64::new(lba.0),
        })
        .collect();
    let mut out = Vec::with_capacity(fixed + findings.len() * size_of::<FindingOnWire>());
    out.put(&StatusHead {
        cursor: U64::new(first + findings.len() as u64),
        disks: U32::new(disks.len() as u32),
        findings: U32::new(findings.len() as u32),
    });
    for status in disks {
        out.put(&DiskOnWire {
            disk: status.disk.to_bytes(),
            total_slabs: U64::new(status.total_slabs),
            free_slabs: U64::new(status.free_slabs),
            slab_blocks: U32::new(status.slab_blocks),
            reserved: U32::new(0),
        });
    }
    out.put(&findings[..]);
    Some(out)
}

/// Reads the answer: the cursor for the next question, and the disks with what was found on each. Findings on a disk that is not listed
/// are left out.
///
/// # Errors
/// [`Malformed`].
pub fn parse_status(bytes: &[u8]) -> Result<(u64, Vec<DiskStatus>), Malformed> {
    let head: &StatusHead = view_at(bytes, 0)?;
    let rest = &bytes[size_of::<StatusHead>()..];
    let disk_bytes = (head.disks.get() as usize).saturating_mul(size_of::<DiskOnWire>());
    let (disks, findings) = rest.split_at_checked(disk_bytes).ok_or(Malformed("fewer disks than it says"))?;
    let (disks, findings): (&[DiskOnWire], &[FindingOnWire]) = (super::list(disks)?, super::list(findings)?);
    if findings.len() != head.findings.get() as usize {
        return Err(Malformed("another number of findings than it says"));
    }
    let mut told: Vec<DiskStatus> = disks
        .iter()
        .map(|disk| DiskStatus {
            disk: DiskId::from_bytes(disk.disk),
            total_slabs: disk.total_slabs.get(),
            free_slabs: disk.free_slabs.get(),
            slab_blocks: disk.slab_blocks.get(),
            corrupt: Vec::new(),
        })
        .collect();
    let places: BTreeMap<DiskId, usize> = told.iter().enumerate().map(|(at, told)| (told.disk, at)).collect();
    for found in findings {
        if let Some(&at) = places.get(&DiskId::from_bytes(found.disk)) {
            told[at].corrupt.push((VolumeId::from_bytes(found.volume), Lba(found.lba.get())));
        }
    }
    Ok((head.cursor.get(), told))
}
