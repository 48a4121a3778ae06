//! Search for the files of a volume that lost data, for a command that lists them.
//!
//! Promises: the search runs between other work, a thousand keys at a time. Never reads data.

use crate::damage::{DamageBook, LOST_MAX};
use crate::damaged_files::path_of;
use crate::error::{Done, Error};
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use std::rc::Rc;
use std::time::Duration;
use types::{BLOCK_BYTES, Lba, VolumeId};
use volume::fs::{FsError, OwnedBlocks, OwnerSearch};

/// Keys read at once, and the pause after.
const STEP_KEYS: usize = 1000;
const STEP_REST: Duration = Duration::from_millis(1);
/// Most ranges in a list.
const RANGES_MAX: usize = 10_000;

/// Bytes of a volume without an intact copy, as found so far by reads, scrubs and checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeDamage {
    /// Files, by path.
    pub files: Vec<DamagedFile>,
    /// Damaged bytes outside of files: of structures, or of deleted files.
    pub other_bytes: u64,
    /// Damaged pages of the volume's tree: files named in them are missing from the list.
    pub unreadable_pages: u64,
    /// Whether the list is incomplete.
    pub truncated: bool,
}

/// A file with unreadable bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedFile {
    /// Path from the volume's root, `\` between names; a named stream behind a colon.
    pub path: String,
    /// Unreadable ranges of the file or stream, by rising offset.
    pub ranges: Vec<DamagedRange>,
}

/// Range of a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedRange {
    /// First byte of the range in the file or stream.
    pub offset_bytes: u64,
    /// Bytes of the range.
    pub length_bytes: u64,
}

/// Searches for files that lost data.
#[derive(Clone)]
pub struct DamageSearch {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) damage: Rc<DamageBook>,
    pub(crate) volumes: Rc<Volumes>,
}

impl DamageSearch {
    /// Lists the files of a volume of which some blocks have no intact copy.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` if the volume is not served; `Io` if its structures cannot be read.
    pub async fn list(&self, volume: VolumeId) -> Done<VolumeDamage> {
        let served = self.volumes.served_for(volume)?;
        let ranges = self.damage.lost_ranges(volume);
        let blocks = ranges.iter().flat_map(|(first, blocks)| (first.0..first.0 + blocks).map(Lba));
        let lost: Vec<Lba> = blocks.collect();
        let is_read_only = served.with(|service| service.file_system().read_only().is_some());
        if lost.is_empty() && !is_read_only {
            return Ok(VolumeDamage::default());
        }
        // No more of them are remembered.
        let truncated = lost.len() >= LOST_MAX;
        let mut search = OwnerSearch::new(lost);
        loop {
            match served.with_mut(|service| search.step(service.file_system_mut(), STEP_KEYS)) {
                Ok(true) => break,
                // A volume that was deleted or has stopped gets no missing pages.
                Ok(false) | Err(FsError::Miss) if self.volumes.is_served(volume) => {
                    self.tasks.rest(STEP_REST).await;
                }
                Ok(false) | Err(FsError::Miss) => return Err(self.volumes.not_served(volume)),
                Err(why) => {
                    return Err(Error::io(format!("the volume's structures cannot be read for it: {why}")));
                }
            }
        }
        let unreadable_pages = search.pages_unreadable();
        let (owned, others) = search.finish();
        let listed = listed(owned, others);
        Ok(VolumeDamage { truncated: listed.truncated || truncated, unreadable_pages, ..listed })
    }
}

fn listed(owned: Vec<OwnedBlocks>, others: usize) -> VolumeDamage {
    let block = BLOCK_BYTES as u64;
    let mut damage = VolumeDamage { other_bytes: others as u64 * block, ..VolumeDamage::default() };
    let mut listed = 0;
    for owned in owned {
        let Some(path) = path_of(&owned) else {
            damage.other_bytes += owned.runs.iter().map(|(_, count)| count * block).sum::<u64>();
            continue;
        };
        let room = RANGES_MAX - listed;
        damage.truncated |= owned.runs.len() > room;
        let ranges: Vec<DamagedRange> = owned
            .runs
            .iter()
            .take(room)
            .map(|(first, count)| DamagedRange { offset_bytes: first * block, length_bytes: count * block })
            .collect();
        listed += ranges.len();
        if !ranges.is_empty() {
            damage.files.push(DamagedFile { path, ranges });
        }
    }
    damage.files.sort_by(|one, other| one.path.cmp(&other.path));
    damage
}
