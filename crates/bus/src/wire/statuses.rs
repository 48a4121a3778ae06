//! A node's report of its disks.

use super::{Malformed, list, wire_struct};
use smb::wire::{Put, U32, U64};
use space::local::nodes::{DiskPace, DiskReport};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{DiskId, Lba, VolumeId};

wire_struct! {
    /// An entry of the question: the number of the disk's last finding that the asker has. Disks that are
    /// not named report all.
    CursorOnWire { disk: [u8; 16], cursor: U64, }
}

/// Stands in place of a disk in the question, with [`READS_PACES`]: the asker reads the disks' paces.
/// An older server knows no such disk.
const ASKER: DiskId = DiskId::from_bytes([0; 16]);
const READS_PACES: u64 = 1;

/// Flag in the count of findings: the disk's pace follows them.
const HAS_PACE: u32 = 1 << 31;

/// A question about a node's disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusQuestion {
    /// Number of each disk's last finding that the asker has.
    pub cursors: BTreeMap<DiskId, u64>,
    /// Whether the asker reads the disks' paces.
    pub reads_paces: bool,
}

wire_struct! {
    /// A disk in the answer; its findings follow, and its pace if the asker reads it.
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

wire_struct! {
    /// Means in microseconds, 0: not known.
    PaceOnWire { read: U32, write: U32, flush: U32, rotational: U32, }
}

fn put_pace(out: &mut Vec<u8>, pace: DiskPace) {
    let micros = |mean: Option<Duration>| {
        let known = mean.map(|mean| u32::try_from(mean.as_micros()).unwrap_or(u32::MAX).max(1));
        U32::new(known.unwrap_or(0))
    };
    let [read, write, flush] = pace.means.map(micros);
    out.put(&PaceOnWire { read, write, flush, rotational: U32::new(pace.is_rotational.into()) });
}

fn parse_pace(pace: &PaceOnWire) -> Result<DiskPace, Malformed> {
    let mean = |micros: U32| (micros.get() > 0).then(|| Duration::from_micros(micros.get().into()));
    let is_rotational = match pace.rotational.get() {
        rotational @ (0 | 1) => rotational == 1,
        _ => return Err(Malformed("neither rotational nor not")),
    };
    Ok(DiskPace { is_rotational, means: [pace.read, pace.write, pace.flush].map(mean) })
}

/// Writes the question.
pub fn put_status_request(cursors: &BTreeMap<DiskId, u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity((cursors.len() + 1) * size_of::<CursorOnWire>());
    out.put(&CursorOnWire { disk: ASKER.to_bytes(), cursor: U64::new(READS_PACES) });
    for (disk, cursor) in cursors {
        out.put(&CursorOnWire { disk: disk.to_bytes(), cursor: U64::new(*cursor) });
    }
    out
}

/// Reads the question.
///
/// # Errors
/// [`Malformed`].
pub fn parse_status_request(input: &[u8]) -> Result<StatusQuestion, Malformed> {
    let cursors: &[CursorOnWire] = list(input)?;
    let cursors = cursors.iter().map(|entry| (DiskId::from_bytes(entry.disk), entry.cursor.get()));
    let mut cursors: BTreeMap<DiskId, u64> = cursors.collect();
    let reads_paces = cursors.remove(&ASKER).is_some_and(|reads| reads >= READS_PACES);
    Ok(StatusQuestion { cursors, reads_paces })
}

/// Writes the answer in at most `bytes_max`: findings that do not fit are left for the next question. `None`: not even the disks fit.
pub fn put_status(reports: &[DiskReport], reads_paces: bool, bytes_max: usize) -> Option<Vec<u8>> {
    let pace = |report: &DiskReport| report.pace.filter(|_| reads_paces);
    let paces = reports.iter().filter(|report| pace(report).is_some()).count();
    let fixed = reports.len() * size_of::<DiskOnWire>() + paces * size_of::<PaceOnWire>();
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
            findings: U32::new(told as u32 | if pace(report).is_some() { HAS_PACE } else { 0 }),
        });
        for (volume, lba) in &report.corrupt[..told] {
            out.put(&FindingOnWire { volume: volume.to_bytes(), lba: U64::new(lba.0) });
        }
        pace(report).into_iter().for_each(|pace| put_pace(&mut out, pace));
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
        let (count, has_pace) = (head.findings.get() & !HAS_PACE, head.findings.get() & HAS_PACE != 0);
        let findings_bytes = (count as usize).saturating_mul(size_of::<FindingOnWire>());
        let (findings, rest) =
            rest.split_at_checked(findings_bytes).ok_or(Malformed("fewer findings than it says"))?;
        let findings: &[FindingOnWire] = list(findings)?;
        let pace_bytes = if has_pace { size_of::<PaceOnWire>() } else { 0 };
        let (pace, rest) = rest.split_at_checked(pace_bytes).ok_or(Malformed("a part of a pace"))?;
        let pace = if has_pace { Some(parse_pace(super::only(pace)?)?) } else { None };
        let finding = |found: &FindingOnWire| (VolumeId::from_bytes(found.volume), Lba(found.lba.get()));
        reports.push(DiskReport {
            disk: DiskId::from_bytes(head.disk),
            total_slabs: head.total_slabs.get(),
            free_slabs: head.free_slabs.get(),
            slab_blocks: head.slab_blocks.get(),
            pace,
            corrupt: findings.iter().map(finding).collect(),
            cursor: head.cursor.get(),
        });
        bytes = rest;
    }
    Ok(reports)
}
