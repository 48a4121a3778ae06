//! Which files have damaged blocks, so that health can name them.
//!
//! Who has a block is found by a walk through the volume's whole tree. So it is looked for in the background, for one disk or volume at a
//! time, a few keys between long rests, anew only if further blocks were damaged, and health tells what was found last. Promises: it takes a
//! few hundredths of the thread's time at most; nobody waits for it.

use super::Plane;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Lba, Monotonic, VolumeId};
use volume::fs::{FsError, OwnedBlocks, OwnerSearch};

/// Keys that are looked at in one go: a tenth of a millisecond. And how long the search rests after.
const STEP_KEYS: usize = 128;
const STEP_REST: Duration = Duration::from_millis(5);
/// Between two searches: this, and ten times as long as the last one took.
const PAUSE: Duration = Duration::from_secs(5);
/// Paths that health tells.
const SHOWN: usize = 3;
/// Blocks that are looked for in one search.
const BLOCKS_MAX: usize = 256;

/// Whose damage: that of a disk's copy, or of all copies.
type Whose = (VolumeId, Option<DiskId>);

/// What was found.
#[derive(Debug)]
struct Found {
    /// The blocks that were looked for.
    blocks: BTreeSet<Lba>,
    /// A few paths, in order, and how many files there are.
    shown: Vec<String>,
    files: usize,
    /// Damaged pages of the tree: what they hold could not be named.
    pages_unreadable: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct DamagedFiles {
    found: BTreeMap<Whose, Found>,
    searching: bool,
    next_at: Monotonic,
}

impl Plane {
    /// Begins the next search, if one is wanted and it is time.
    pub(super) fn name_damaged_files(self: &Rc<Self>) {
        {
            let files = self.damaged_files.borrow();
            if files.searching || self.now() < files.next_at {
                return;
            }
        }
        let wanted = self.damaged_blocks();
        let mut files = self.damaged_files.borrow_mut();
        files.found.retain(|whose, _| wanted.contains_key(whose));
        let due = wanted
            .into_iter()
            .find(|(whose, blocks)| files.found.get(whose).is_none_or(|found| found.blocks != *blocks));
        let Some((whose, blocks)) = due else { return };
        files.searching = true;
        drop(files);
        let plane = self.clone();
        self.storage.tasks.spawn(async move {
            let begun = plane.now();
            let found = plane.find_files(whose.0, blocks).await;
            let mut files = plane.damaged_files.borrow_mut();
            files.searching = false;
            files.next_at = plane.now().after(PAUSE + plane.now().since(begun) * 10);
            if let Some(found) = found {
                files.found.insert(whose, found);
            }
        });
    }

    /// Blocks whose files are wanted, of volumes that are served.
    fn damaged_blocks(&self) -> BTreeMap<Whose, BTreeSet<Lba>> {
        let volumes = self.volumes.borrow();
        let served = |volume: &VolumeId| volumes.get(volume).is_some_and(|entry| entry.served.is_some());
        let of_disks = self
            .storage
            .met_blocks()
            .into_iter()
            .map(|((volume, disk), blocks)| ((volume, Some(disk)), blocks));
        let lost = volumes.keys().map(|&volume| {
            let ranges = self.storage.lost_ranges(volume);
            let blocks = ranges.into_iter().flat_map(|(first, blocks)| (first.0..first.0 + blocks).map(Lba));
            ((volume, None), blocks.take(BLOCKS_MAX).collect::<BTreeSet<Lba>>())
        });
        lost.chain(of_disks).filter(|((volume, _), blocks)| served(volume) && !blocks.is_empty()).collect()
    }

    /// `None`: the volume is not served any more, or fails.
    async fn find_files(&self, volume: VolumeId, blocks: BTreeSet<Lba>) -> Option<Found> {
        let mut search = OwnerSearch::new(blocks.iter().copied());
        loop {
            // Asked for anew each time, so that nothing of the volume is held while the search rests.
            let served = self.volumes.borrow().get(&volume).and_then(|entry| entry.served.clone())?;
            let step = served.with_mut(|service| search.step(service.file_system_mut(), STEP_KEYS));
            drop(served);
            match step {
                Ok(true) => break,
                Ok(false) | Err(FsError::Miss) if !self.draining.get() => self.rest(STEP_REST).await,
                _ => return None,
            }
        }
        let pages_unreadable = search.pages_unreadable();
        let mut paths: Vec<String> = search.finish().0.iter().filter_map(path_of).collect();
        paths.sort();
        let files = paths.len();
        paths.truncate(SHOWN);
        Some(Found { blocks, shown: paths, files, pages_unreadable })
    }

    /// The files of which a disk's copy (`None`: all copies) of some blocks of a volume is or was damaged, in words.
    pub(super) fn damaged_files_in_words(&self, volume: VolumeId, disk: Option<DiskId>) -> String {
        let files = self.damaged_files.borrow();
        match files.found.get(&(volume, disk)) {
            Some(found) => {
                let more = format!("`cenote volume damage {}`", self.volume_name(volume));
                found.in_words(disk.is_none().then_some(more.as_str()))
            }
            None => "the files are being looked for".to_owned(),
        }
    }

    /// The same of a disk, over all volumes. `None`: no damaged block of it is known.
    pub(super) fn files_damaged_by(&self, disk: DiskId) -> Option<String> {
        let volumes: BTreeSet<VolumeId> = self
            .storage
            .met_blocks()
            .into_iter()
            .filter(|((_, of), _)| *of == disk)
            .map(|((volume, _), _)| volume)
            .collect();
        let words: Vec<String> = volumes
            .into_iter()
            .map(|volume| {
                let name = self.volume_name(volume);
                format!("on volume {name}: {}", self.damaged_files_in_words(volume, Some(disk)))
            })
            .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    fn volume_name(&self, volume: VolumeId) -> String {
        self.volumes
            .borrow()
            .get(&volume)
            .map_or_else(|| volume.to_string(), |entry| entry.record.name.clone())
    }
}

impl Found {
    /// `more`: what lists them all.
    fn in_words(&self, more: Option<&str>) -> String {
        let mut words = match self.files {
            0 => "no file has these blocks (they are the volume's own, or of files that are gone)".to_owned(),
            1 => format!("file {}", self.shown.join(", ")),
            _ => format!("files {}", self.shown.join(", ")),
        };
        if self.files > self.shown.len() {
            words += &format!(" and {} more", self.files - self.shown.len());
            if let Some(more) = more {
                words += &format!(": {more}");
            }
        }
        match self.pages_unreadable {
            0 => words,
            pages => {
                words
                    + &format!(
                        "; {pages} pages of the tree of files cannot be read, so that there may be others"
                    )
            }
        }
    }
}

fn path_of(owned: &OwnedBlocks) -> Option<String> {
    let mut path = String::from_utf16_lossy(owned.path.as_ref()?);
    if !owned.stream.is_empty() {
        path.push(':');
        path.push_str(&String::from_utf16_lossy(&owned.stream));
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_files_are_named_and_the_others_counted() {
        let found = |count: usize, pages_unreadable| Found {
            blocks: BTreeSet::new(),
            shown: (0..count.min(SHOWN)).map(|index| format!(r"plans\{index}")).collect(),
            files: count,
            pages_unreadable,
        };
        assert_eq!(found(1, 0).in_words(Some("more")), r"file plans\0");
        assert_eq!(
            found(5, 0).in_words(Some("`list`")),
            r"files plans\0, plans\1, plans\2 and 2 more: `list`"
        );
        assert_eq!(found(5, 0).in_words(None), r"files plans\0, plans\1, plans\2 and 2 more");
        assert!(
            found(0, 2)
                .in_words(None)
                .ends_with("2 pages of the tree of files cannot be read, so that there may be others")
        );
    }
}
