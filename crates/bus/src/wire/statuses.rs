//! What a node tells of its disks.

use super::{Malformed, list, wire_struct};
use smb::wire::{Put, U32, U64};
use space::local::nodes::DiskReport;
use std::collections::BTreeMap;
use types::{DiskId, Lba, VolumeId};

wire_struct! {
    /// An entry of the question: how far the asker has been told of this disk. Of disks that are not named all is told.
    CursorOnWire { disk: [u8; 16], cursor: U64, }
}

wire_struct! {
    /// A disk in the answer; its findings follow.
    DiskOnWire {
        disk: [u8; 16],
        total_slabs: U64,
        free_slabs: U64,
        cursor: U64,
        slab_blocks: U32,
        findings: U32,
    }
}

wire_struct! {
    FindingOnWire { volume: [u8; 16], lba: U64, }
}

/// Writes the question.
pub fn put_status_request(cursors: &BTreeMap<DiskId, u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(cursors.len() * size_of::<CursorOnWire>());
    for (disk, cursor) in cursors {
        out.put(&CursorOnWire { disk: disk.to_bytes(), cursor: U64::new(*cursor) });
    }
    out
}

/// Reads the question.
///
/// # Errors
/// [`Malformed`].
pub fn parse_status_request(input: &[u8]) -> Result<BTreeMap<DiskId, u64>, Malformed> {
    let cursors: &[CursorOnWire] = list(input)?;
    Ok(cursors.iter().map(|entry| (DiskId::from_bytes(entry.disk), entry.cursor.get())).collect())
}

/// Writes the answer in at most `bytes_max`: findings that do not fit are left for the next question. `None`: not even the disks fit.
pub fn put_status(reports: &[DiskReport], bytes_max: usize) -> Option<Vec<u8>> {
    let fixed = reports.len() * size_of::<DiskOnWire>();
    let mut room = bytes_max.checked_sub(fixed)? / size_of::<FindingOnWire>();
    let mut out = Vec::with_capacity(fixed);
    for report in reports {
        let told = report.corrupt.len().min(room);
        room -= told;
        let untold = (report.corrupt.len() - told) as u64;
        out.put(&DiskOnWire {
            disk: report.disk.to_bytes(),
            total_slabs: U64::new(report.total_slabs),
            free_slabs: U64::new(report.free_slabs),
            // Findings are numbered one by one, and the cursor is behind the last.
            cursor: U64::new(report.cursor.saturating_sub(untold)),
            slab_blocks: U32::new(report.slab_blocks),
            findings: U32::new(told as u32),
        });
        for (volume, lba) in &report.corrupt[..told] {
            out.put(&FindingOnWire { volume: volume.to_bytes(), lba: U64::new(lba.0) });
        }
    }
    Some(out)
}

/// Reads the answer.
///
/// # Errors
/// [`Malformed`].
pub fn parse_status(mut bytes: &[u8]) -> Result<Vec<DiskReport>, Malformed> {
    let mut reports = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) =
            bytes.split_at_checked(size_of::<DiskOnWire>()).ok_or(Malformed("a part of a disk"))?;
        let head: &DiskOnWire = super::only(head)?;
        let findings_bytes = (head.findings.get() as usize).saturating_mul(size_of::<FindingOnWire>());
        let (findings, rest) =
            rest.split_at_checked(findings_bytes).ok_or(Malformed("fewer findings than it says"))?;
        let findings: &[FindingOnWire] = list(findings)?;
        let finding = |found: &FindingOnWire| (VolumeId::from_bytes(found.volume), Lba(found.lba.get()));
        reports.push(DiskReport {
            disk: DiskId::from_bytes(head.disk),
            total_slabs: head.total_slabs.get(),
            free_slabs: head.free_slabs.get(),
            slab_blocks: head.slab_blocks.get(),
            corrupt: findings.iter().map(finding).collect(),
            cursor: head.cursor.get(),
        });
        bytes = rest;
    }
    Ok(reports)
}
