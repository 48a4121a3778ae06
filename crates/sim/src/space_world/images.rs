//! Older images of disks.

use super::blocks::VOLUME;
use super::nodes::{Image, SimDisk};
use records::VolumeRecord;
use space::block_store::BlockStore;
use types::Epoch;

/// Contents of a disk at one time.
pub(super) struct Held {
    image: Image,
    promised: Epoch,
}

impl Held {
    pub fn of(disk: &SimDisk) -> Self {
        Self { image: disk.medium.image(), promised: promised(disk) }
    }

    /// Restores these contents on the disk, which no replica has open.
    pub fn put(&self, disk: &mut SimDisk) {
        debug_assert!(disk.replica.is_none());
        disk.medium.put(&self.image);
        disk.promised = self.promised;
    }
}

/// Images of all disks, in their order.
#[derive(Default)]
pub(super) struct Images {
    pub taken: Vec<Held>,
    /// Contents that the disks should have, while older images are in the places of all of them.
    pub right: Vec<Held>,
    /// Time until which a node may be expelled for its last crash: others may consider it dead
    /// late, even after its return.
    pub may_expel_until: u64,
}

impl Images {
    /// Whether a disk is an older image already, and no record has decided on it yet: a second one
    /// might have the only other copy.
    pub fn is_any_in_place(record: &VolumeRecord, disks: &[SimDisk]) -> bool {
        let counted = disks.iter().filter(|disk| record.in_sync.contains(&disk.id));
        counted.map(promised).any(|promised| promised < record.promised)
    }

    /// Whether the image taken of the disk is recognizably older: it has promised less than the
    /// record says.
    pub fn is_older(&self, record: &VolumeRecord, disks: &[SimDisk], index: usize) -> bool {
        let taken = self.taken.get(index);
        record.in_sync.contains(&disks[index].id) && taken.is_some_and(|held| held.promised < record.promised)
    }
}

fn promised(disk: &SimDisk) -> Epoch {
    let open = disk.replica.as_ref().map(|replica| replica.store().promised(VOLUME));
    open.unwrap_or(disk.promised)
}
