//! One disk that was found more than once: a snapshot of it, a clone or a `dd` copy is attached beside it.
//!
//! Promises: the copy that was written last counts, if its records and its promises say so; of others nothing is believed. If they do not say, the import
//! is refused: the pool would be served from a copy that lacks writes, while the disk that has them lies beside it.

use super::{FoundDisk, ImportError};
use std::cmp::Ordering;

/// Leaves one copy of each disk, in the order in which they were found, and notes the others.
///
/// # Errors
/// `Copies`.
pub(super) fn latest<'a>(
    found: impl Iterator<Item = &'a FoundDisk>,
    notes: &mut Vec<String>,
) -> Result<Vec<&'a FoundDisk>, ImportError> {
    let mut kept: Vec<&FoundDisk> = Vec::new();
    for disk in found {
        let Some(known) = kept.iter_mut().find(|known| known.disk == disk.disk) else {
            kept.push(disk);
            continue;
        };
        let (newer, older) = match order(disk, known) {
            Some(Ordering::Greater) => (disk, std::mem::replace(known, disk)),
            Some(Ordering::Less) => (*known, disk),
            Some(Ordering::Equal) if is_exported(disk) => (*known, disk),
            _ => {
                let copies = format!("{}; {}", describe(known), describe(disk));
                return Err(ImportError::Copies { disk: disk.disk, copies });
            }
        };
        notes.push(format!(
            "{} is a copy of the same disk as {}, which counts: it is left as it is",
            describe(older),
            describe(newer)
        ));
    }
    Ok(kept)
}

/// The copy of one disk that was written last; `None`: none was found.
///
/// # Errors
/// The copies in words, if they do not say.
pub fn latest_of(copies: &[FoundDisk]) -> Result<Option<&FoundDisk>, String> {
    match latest(copies.iter(), &mut Vec::new()) {
        Ok(latest) => Ok(latest.first().copied()),
        Err(_) => Err(copies.iter().map(describe).collect::<Vec<_>>().join("; ")),
    }
}

/// The order in which two copies were written; `None`: each has changes that the other one lacks.
/// Owners write the records when disks and volumes change, and begin epochs while they write.
fn order(one: &FoundDisk, other: &FoundDisk) -> Option<Ordering> {
    let version = |disk: &FoundDisk| disk.image.as_ref().ok().map(|image| image.header.version);
    let (is_newer, is_older) = match (version(one), version(other)) {
        (Some(one), Some(other)) => (one > other, one < other),
        // Records that cannot be read tell nothing: that disk may be the one that was written last.
        _ => return None,
    };
    let promised = |disk: &FoundDisk, beside: &FoundDisk| {
        disk.promised
            .iter()
            .any(|(volume, epoch)| beside.promised.get(volume).is_none_or(|other| epoch > other))
    };
    match (is_newer || promised(one, other), is_older || promised(other, one)) {
        (true, false) => Some(Ordering::Greater),
        (false, true) => Some(Ordering::Less),
        (false, false) => Some(Ordering::Equal),
        (true, true) => None,
    }
}

/// Nothing is written to a disk behind the records that say so.
fn is_exported(disk: &FoundDisk) -> bool {
    disk.image.as_ref().is_ok_and(|image| image.header.exported)
}

fn describe(disk: &FoundDisk) -> String {
    match &disk.image {
        Ok(image) => format!("{} ({})", disk.path, image.header.in_words()),
        Err(why) => format!("{} ({why})", disk.path),
    }
}
