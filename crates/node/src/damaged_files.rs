//! Names of files with damaged blocks, for health.
//!
//! Only a walk through the volume's whole tree finds the file that has a block. So a search runs in
//! the background, for one disk or volume at a time, a few keys between long rests, and again only
//! if further blocks were damaged. Health reports its last findings. Promises: the search takes at
//! most a few hundredths of the thread's time, and nothing waits for it.

use crate::damage::DamageBook;
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Lba, Monotonic, VolumeId};
use volume::fs::{FsError, OwnedBlocks, OwnerSearch};

/// Keys read at once, within a tenth of a millisecond, and the pause after.
const STEP_KEYS: usize = 128;
const STEP_REST: Duration = Duration::from_millis(5);
/// Pause between two searches, to which ten times the duration of the last one is added.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_TIMES: u32 = 10;
/// Paths that health reports.
const SHOWN: usize = 3;
/// Blocks in one search.
const BLOCKS_MAX: usize = 256;

/// A volume, and the disk with the damaged copy; `None`: all copies are damaged.
type Whose = (VolumeId, Option<DiskId>);

/// Findings of a search.
#[derive(Debug)]
struct Found {
    /// Blocks that the search covered.
    blocks: BTreeSet<Lba>,
    /// A few paths, in order.
    shown: Vec<String>,
    /// The number of all files.
    files: usize,
    /// Damaged pages of the tree: files named in them are missing from the findings.
    pages_unreadable: u64,
}

/// The last findings, and the search that runs.
///
/// Invariant: at most one search runs.
pub struct DamagedFiles {
    tasks: Rc<Tasks>,
    damage: Rc<DamageBook>,
    volumes: Rc<Volumes>,
    found: RefCell<BTreeMap<Whose, Found>>,
    searching: Cell<bool>,
    next_at: Cell<Monotonic>,
    /// Whether the search ends because the server drains.
    stopped: Cell<bool>,
}

impl DamagedFiles {
    pub(crate) fn new(tasks: Rc<Tasks>, damage: Rc<DamageBook>, volumes: Rc<Volumes>) -> Self {
        Self {
            tasks,
            damage,
            volumes,
            found: RefCell::default(),
            searching: Cell::default(),
            next_at: Cell::default(),
            stopped: Cell::default(),
        }
    }

    /// Ends the search for good.
    pub(crate) fn stop(&self) {
        self.stopped.set(true);
    }

    /// Begins the next search, if there are blocks to search for and the pause is over.
    pub(crate) fn search_if_due(self: &Rc<Self>) {
        if self.searching.get() || self.tasks.now() < self.next_at.get() {
            return;
        }
        let wanted = self.damaged_blocks();
        let mut found = self.found.borrow_mut();
        found.retain(|whose, _| wanted.contains_key(whose));
        let due = wanted
            .into_iter()
            .find(|(whose, blocks)| found.get(whose).is_none_or(|found| found.blocks != *blocks));
        let Some((whose, blocks)) = due else { return };
        self.searching.set(true);
        let files = self.clone();
        self.tasks.spawn(async move { files.search(whose, blocks).await });
    }

    async fn search(&self, whose: Whose, blocks: BTreeSet<Lba>) {
        let begun = self.tasks.now();
        let found = self.find(whose.0, blocks).await;
        self.searching.set(false);
        let now = self.tasks.now();
        self.next_at.set(now.after(PAUSE + now.since(begun) * PAUSE_TIMES));
        if let Some(found) = found {
            self.found.borrow_mut().insert(whose, found);
        }
    }

    /// Lists blocks to search for, of served volumes.
    fn damaged_blocks(&self) -> BTreeMap<Whose, BTreeSet<Lba>> {
        let of_disks = self.damage.met_blocks().into_iter();
        let of_disks = of_disks.map(|((volume, disk), blocks)| ((volume, Some(disk)), blocks));
        let lost = self.volumes.ids().into_iter().map(|volume| {
            let ranges = self.damage.lost_ranges(volume);
            let blocks = ranges.into_iter().flat_map(|(first, blocks)| (first.0..first.0 + blocks).map(Lba));
            ((volume, None), blocks.take(BLOCKS_MAX).collect::<BTreeSet<Lba>>())
        });
        lost.chain(of_disks)
            .filter(|((volume, _), blocks)| self.volumes.is_served(*volume) && !blocks.is_empty())
            .collect()
    }

    /// Finds the files of some blocks; `None`: the volume is not served any more, or fails.
    async fn find(&self, volume: VolumeId, blocks: BTreeSet<Lba>) -> Option<Found> {
        let mut search = OwnerSearch::new(blocks.iter().copied());
        loop {
            // Requested anew each time, so that the search holds nothing of the volume while it
            // rests.
            let served = self.volumes.served(volume)?;
            let step = served.with_mut(|service| search.step(service.file_system_mut(), STEP_KEYS));
            drop(served);
            match step {
                Ok(true) => break,
                Ok(false) | Err(FsError::Miss) if !self.stopped.get() => self.tasks.rest(STEP_REST).await,
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

    /// Describes the files with damage in a disk's copy (`None`: in all copies) of some blocks of a
    /// volume, past damage included.
    pub fn in_words(&self, volume: VolumeId, disk: Option<DiskId>) -> String {
        match self.found.borrow().get(&(volume, disk)) {
            Some(found) => {
                let more = format!("`cenote volume damage {}`", self.volumes.name(volume));
                found.in_words(disk.is_none().then_some(more.as_str()))
            }
            None => "the files are being looked for".to_owned(),
        }
    }

    /// Describes the files that a disk damaged, over all volumes. `None`: no damaged block of it is
    /// known.
    pub fn of_disk_in_words(&self, disk: DiskId) -> Option<String> {
        let met = self.damage.met_blocks().into_iter().filter(|((_, of), _)| *of == disk);
        let volumes: BTreeSet<VolumeId> = met.map(|((volume, _), _)| volume).collect();
        let words = volumes.into_iter().map(|volume| {
            format!("on volume {}: {}", self.volumes.name(volume), self.in_words(volume, Some(disk)))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

impl Found {
    /// Names a few files; `more`: the command that lists them all.
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
        if self.blocks.len() == BLOCKS_MAX {
            words += &format!("; the first {BLOCKS_MAX} blocks were looked for, more may be of other files");
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

/// Returns the path of a file from the volume's root, with a named stream behind a colon. `None` if
/// no file has the blocks.
pub(crate) fn path_of(owned: &OwnedBlocks) -> Option<String> {
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

    #[test]
    fn files_that_were_not_looked_for_are_not_denied() {
        let found = |blocks| Found {
            blocks: (0..blocks).map(Lba).collect(),
            shown: Vec::new(),
            files: 0,
            pages_unreadable: 0,
        };
        assert!(!found(255).in_words(None).contains("looked for"));
        assert!(
            found(256)
                .in_words(None)
                .ends_with("; the first 256 blocks were looked for, more may be of other files")
        );
    }
}
