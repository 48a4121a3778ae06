//! Recent events of the spaces: for tasks that wait for an answer, and for health.

use space::coordinator::{Comparison, Event};
use space::local::LocalEvent;
use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, VecDeque};
use types::{ChunkIndex, DiskId, Lba, VolumeId};

/// Most events kept.
const EVENTS_MAX: usize = 1024;

/// A step of a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScrubStep {
    pub checked_bytes: u64,
    pub total_bytes: u64,
    pub corrupt: u64,
    /// Whether the scrub has reached the end of the disk.
    pub is_finished: bool,
}

/// A comparison of one region: the result, and the disks.
pub(crate) struct Seen {
    pub found: Comparison,
    /// Disks whose copies are corrupt or older, and the number of their blocks.
    pub wrong: Vec<(DiskId, u64)>,
}

/// An event of a disk in a volume, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told<'a> {
    Left { why: &'a str },
    Joined,
}

/// Returns the disk that left a volume's in-sync copies or came back: each such event is logged,
/// even after a short absence.
pub(crate) fn told(event: &Event) -> Option<(DiskId, Told<'_>)> {
    match event {
        Event::DiskLeft { disk, why, .. } => Some((*disk, Told::Left { why })),
        Event::DiskJoined { disk } => Some((*disk, Told::Joined)),
        _ => None,
    }
}

/// The last events, each with its time in Unix seconds.
///
/// Invariant: at most [`EVENTS_MAX`] are kept, oldest first.
#[derive(Default)]
pub struct Events {
    log: RefCell<VecDeque<(u64, LocalEvent)>>,
    /// Disks brought up to date since the last update of the jobs.
    joined: RefCell<Vec<(VolumeId, DiskId)>>,
}

impl Events {
    pub(crate) fn note(&self, event: LocalEvent, unix_s: u64) {
        if let LocalEvent::Volume(volume, Event::DiskJoined { disk }) = &event {
            self.joined.borrow_mut().push((*volume, *disk));
        }
        let mut log = self.log.borrow_mut();
        if log.len() >= EVENTS_MAX {
            log.pop_front();
        }
        log.push_back((unix_s, event));
    }

    /// Returns the last events with their Unix seconds, oldest first.
    pub fn log(&self) -> Ref<'_, VecDeque<(u64, LocalEvent)>> {
        self.log.borrow()
    }

    /// Returns the volumes for which an older image of the disk was restored, and the time of that,
    /// until the disk is up to date again.
    pub fn gone_back(&self, disk: DiskId) -> BTreeMap<VolumeId, u64> {
        let mut since = BTreeMap::new();
        for (unix_s, event) in self.log.borrow().iter() {
            match event {
                LocalEvent::Volume(volume, Event::WentBack { disk: found, .. }) if *found == disk => {
                    since.entry(*volume).or_insert(*unix_s);
                }
                LocalEvent::Volume(volume, Event::DiskJoined { disk: found }) if *found == disk => {
                    since.remove(volume);
                }
                _ => {}
            }
        }
        since
    }

    pub(crate) fn take_joined(&self) -> Vec<(VolumeId, DiskId)> {
        self.joined.take()
    }

    /// Takes the result of a step of a scrub.
    pub(crate) fn take_scrubbed(&self, disk: DiskId) -> Option<ScrubStep> {
        let mut log = self.log.borrow_mut();
        let at = log.iter().position(
            |(_, event)| matches!(event, LocalEvent::Scrubbed { disk: scrubbed, .. } if *scrubbed == disk),
        )?;
        match log.remove(at) {
            Some((_, LocalEvent::Scrubbed { checked_bytes, total_bytes, corrupt, finished, .. })) => {
                Some(ScrubStep { checked_bytes, total_bytes, corrupt, is_finished: finished })
            }
            _ => None,
        }
    }

    /// Takes the result of a comparison.
    pub(crate) fn take_compared(&self, volume: VolumeId, lba: Lba) -> Option<Seen> {
        let mut log = self.log.borrow_mut();
        let at = log.iter().position(|(_, event)| match event {
            LocalEvent::Volume(id, Event::Compared { lba: seen, .. }) => *id == volume && *seen == lba,
            _ => false,
        })?;
        match log.remove(at) {
            Some((_, LocalEvent::Volume(_, Event::Compared { found, wrong, .. }))) => {
                Some(Seen { found, wrong })
            }
            _ => None,
        }
    }

    /// Finds the volume and chunk of the disk's last fault.
    pub(crate) fn last_fault(&self, disk: DiskId) -> Option<(VolumeId, ChunkIndex)> {
        self.log.borrow().iter().rev().find_map(|(_, event)| match event {
            LocalEvent::Volume(
                volume,
                Event::CorruptRead { disk: of, chunk, .. }
                | Event::LostWrite { disk: of, chunk, .. }
                | Event::Repaired { disk: of, chunk, .. },
            ) if *of == disk => Some((*volume, *chunk)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Epoch;

    #[test]
    fn a_disk_that_is_away_for_some_seconds_is_told_when_it_leaves_and_when_it_is_back() {
        let disk = DiskId::from_bytes([1; 16]);
        let left = Event::DiskLeft { disk, since: Epoch(7), why: "no answer in time".to_owned() };
        assert_eq!(told(&left), Some((disk, Told::Left { why: "no answer in time" })));
        assert_eq!(told(&Event::DiskJoined { disk }), Some((disk, Told::Joined)));
        assert_eq!(told(&Event::RecordChanged), None);
    }
}
