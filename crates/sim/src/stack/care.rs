//! Actions of an administrator, or of the daemon's schedule: scrubs, checks, moves. Tells when all
//! copies are whole again.

use super::node::{Condition, Node, Slot};
use super::served::Served;
use space::coordinator::{Comparison, Coordinator, Event, Phase};
use space::local::LocalEvent;
use std::collections::VecDeque;
use std::time::Duration;
use types::{DiskId, Lba, Monotonic, VolumeId};

/// Bytes that a disk verifies in one step: the daemon's number.
const SCRUB_BYTES: u64 = 4 << 20;
/// Timeout after which a step is repeated, since the disk was taken out.
const STEP_MAX: Duration = Duration::from_secs(20);

/// A scrub of disks, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    disks: VecDeque<DiskId>,
    asked: Option<Monotonic>,
    pub corrupt: u64,
}

impl Scrub {
    pub fn begin(&mut self, node: &Node) {
        self.disks = node.slots.iter().filter(|slot| slot.store().is_some()).map(|slot| slot.id).collect();
        self.asked = None;
    }

    pub fn is_done(&self) -> bool {
        self.disks.is_empty()
    }

    pub fn drive(&mut self, node: &Node, now: Monotonic) {
        let Some(&disk) = self.disks.front() else { return };
        if node.slot(disk).is_none_or(|slot| slot.store().is_none()) {
            self.disks.pop_front();
            self.asked = None;
        } else if !node.is_reconciled() {
            // Pages torn by a crash are no damage of a disk; an earlier scrub would report them.
        } else if self.asked.is_none_or(|at| now.since(at) > STEP_MAX) {
            node.space.scrub(disk, SCRUB_BYTES);
            self.asked = Some(now);
        }
    }

    pub fn note(&mut self, event: &LocalEvent) {
        if let LocalEvent::Scrubbed { disk, corrupt, finished, .. } = event
            && self.disks.front() == Some(disk)
        {
            self.corrupt += corrupt;
            self.asked = None;
            if *finished {
                self.disks.pop_front();
            }
        }
    }
}

/// A comparison of all copies of all data, region by region.
#[derive(Debug, Default)]
pub(crate) struct Check {
    regions: VecDeque<(VolumeId, Lba)>,
    asked: Option<Monotonic>,
    repair: bool,
    pub found: Comparison,
    /// The first region with a finding.
    pub first: Option<(VolumeId, Lba, Comparison)>,
}

impl Check {
    pub fn begin(&mut self, node: &Node, repair: bool) {
        *self = Self { repair, ..Self::default() };
        for volume in &node.volumes {
            let regions = node.space.with_volume(volume.id, |coordinator| coordinator.mapped_regions());
            self.regions.extend(regions.unwrap_or_default().into_iter().map(|lba| (volume.id, lba)));
        }
    }

    pub fn is_done(&self) -> bool {
        self.regions.is_empty()
    }

    pub fn drive(&mut self, node: &Node, now: Monotonic) {
        let Some(&(volume, lba)) = self.regions.front() else { return };
        let mapped = node.space.with_volume(volume, |coordinator| coordinator.is_mapped(lba));
        if mapped != Some(true) {
            self.regions.pop_front();
            self.asked = None;
        } else if self.asked.is_none_or(|at| now.since(at) > STEP_MAX) {
            node.space.compare(volume, lba);
            self.asked = Some(now);
        }
    }

    pub fn note(&mut self, node: &Node, event: &LocalEvent) {
        let LocalEvent::Volume(volume, Event::Compared { lba, found, .. }) = event else { return };
        if self.regions.front() != Some(&(*volume, *lba)) || found.copies == 0 {
            return;
        }
        self.asked = None;
        self.regions.pop_front();
        if found.differing + found.corrupt + found.lost == 0 {
            return;
        }
        self.first.get_or_insert((*volume, *lba, *found));
        self.found.differing += found.differing;
        self.found.corrupt += found.corrupt;
        self.found.lost += found.lost;
        if self.repair {
            node.space.equalize(*volume, *lba);
        }
    }
}

/// A reason why a copy is not in place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Short {
    /// Index of an absent disk.
    Slot(usize),
    /// Index of a volume that does not serve, or lacks some of its copies.
    Volume(usize),
    Jobs,
}

/// Finds a reason why not all copies are in place.
pub(crate) fn short_of_whole(node: &Node) -> Option<Short> {
    let present = |slot: &Slot| matches!(slot.condition, Condition::Present(_));
    let slot = node.slots.iter().position(|slot| !present(slot)).map(Short::Slot);
    let volume = || node.volumes.iter().position(|volume| !is_volume_whole(node, volume)).map(Short::Volume);
    slot.or_else(volume).or_else(|| (!node.space.jobs().is_empty()).then_some(Short::Jobs))
}

fn is_volume_whole(node: &Node, volume: &Served) -> bool {
    let whole = node.space.with_volume(volume.id, |coordinator| {
        let record = coordinator.record();
        let (_, few) = coordinator.chunk_counts();
        *coordinator.phase() == Phase::Serving
            && record.stale.is_empty()
            && record.building.is_empty()
            && few == 0
            // Until the record says that all copies exist, an opening waits for a disk that does
            // not come back.
            && record.min_holders == record.resiliency.copies()
            && coordinator.is_reconciled()
            && coordinator.jobs().is_empty()
    });
    volume.serves && whole.unwrap_or(true)
}

impl Short {
    pub fn describe(self, node: &Node) -> String {
        match self {
            Self::Slot(index) => {
                let slot = &node.slots[index];
                match &slot.condition {
                    Condition::Opening(_) => format!("disk {} is being opened", slot.id),
                    _ => format!("disk {} is away: {:?}", slot.id, slot.refused),
                }
            }
            Self::Volume(index) if node.volumes[index].serves => {
                let id = node.volumes[index].id;
                let describe = |coordinator: &mut Coordinator| {
                    format!(
                        "volume {id}: {:?}, {} chunks are short of copies, reconciled {}, jobs {:?}, {:?}",
                        coordinator.phase(),
                        coordinator.chunk_counts().1,
                        coordinator.is_reconciled(),
                        coordinator.jobs(),
                        coordinator.record(),
                    )
                };
                node.space.with_volume(id, describe).unwrap_or_default()
            }
            Self::Volume(index) => {
                let volume = &node.volumes[index];
                format!("volume {} does not serve: {:?}", volume.id, volume.failures.last())
            }
            Self::Jobs => format!("jobs: {:?}", node.space.jobs()),
        }
    }
}
