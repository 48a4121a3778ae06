//! Space that the host's file system reserves beneath a disk's file.
//!
//! A disk's file is thin: it allocates space as it is written, and a full host file system refuses
//! that. Clients' data then fail with STATUS_DISK_FULL, as in a full pool. But deletions and
//! checkpoints, which free space again, must continue, and acknowledged writes must be applied. So
//! the host reserves space for the store's own areas, and for slabs of class `Append`, which hold
//! the volumes' journals and trees: within a second after a disk is opened, or such a slab is
//! allocated. The space of a freed slab is released too. Promises: the file's contents stay as they
//! are.

use crate::metered_disk::MeteredDisk;
use disk::{FileWatch, HostRoom, Reserved};
use std::collections::BTreeSet;
use std::path::PathBuf;
use store::Store;
use types::SlabIndex;

/// Space that a full file system must have again before it is no longer reported.
const ROOM_AGAIN_BYTES: u64 = 64 << 20;

/// Space below which a file system beneath a thin file counts as full: the largest write of a
/// client.
const NO_ROOM_BYTES: u64 = 1 << 20;

/// A full host file system, in which a disk's file cannot grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFull {
    /// Mount point of the file system.
    pub mounted_at: PathBuf,
    /// Bytes that the file system had free when it was last checked.
    pub available_bytes: u64,
    /// Unix seconds since which the file system is full.
    pub since_unix_s: u64,
}

/// Space known to be reserved beneath one disk.
#[derive(Debug, Default)]
pub(crate) struct HostFile {
    has_own: bool,
    slabs: BTreeSet<SlabIndex>,
    /// Whether nothing can be reserved, since the disk is a device.
    is_elsewhere: bool,
    /// Writes refused for lack of space, as of the last check.
    refused: u64,
    pub full: Option<HostFull>,
}

/// Space to reserve beneath one disk.
pub(crate) struct Wanted {
    own: Vec<(u64, u64)>,
    slabs: Vec<(SlabIndex, (u64, u64))>,
    /// Slabs that need no reservation any more.
    released: Vec<SlabIndex>,
    refused: u64,
    looks_at_room: bool,
}

/// Result of a reservation.
pub(crate) struct Kept {
    has_own: bool,
    slabs: Vec<SlabIndex>,
    released: Vec<SlabIndex>,
    is_elsewhere: bool,
    lacks_room: bool,
    refused: u64,
    room: Option<HostRoom>,
}

impl HostFile {
    /// Returns the space that is not reserved yet.
    pub fn wanted(&self, store: &Store<MeteredDisk>) -> Wanted {
        let refused = store.health().no_space;
        // Checked once after each opening: the file system may be full although no write was
        // refused yet.
        let is_first = !self.has_own && !self.is_elsewhere;
        let looks_at_room = is_first || refused != self.refused || self.full.is_some();
        let mut wanted =
            Wanted { own: Vec::new(), slabs: Vec::new(), released: Vec::new(), refused, looks_at_room };
        if self.is_elsewhere {
            return wanted;
        }
        if !self.has_own {
            wanted.own.extend(store.own_ranges());
        }
        let appended = store.chunks().into_iter().filter(|chunk| chunk.append).map(|chunk| chunk.slab);
        let appended: BTreeSet<SlabIndex> = appended.collect();
        let new = appended.difference(&self.slabs);
        wanted.slabs.extend(new.map(|slab| (*slab, store.slab_range(*slab))));
        wanted.released.extend(self.slabs.difference(&appended));
        wanted
    }

    /// Notes the result of a reservation.
    pub fn note(&mut self, kept: Kept, path: &str, unix_s: u64) {
        let Kept { has_own, slabs, released, is_elsewhere, lacks_room, refused, room } = kept;
        self.has_own |= has_own;
        self.is_elsewhere |= is_elsewhere;
        self.slabs.extend(slabs);
        for slab in released {
            self.slabs.remove(&slab);
        }
        let is_refused = refused > self.refused;
        self.refused = refused;
        let Some(HostRoom { mounted_at, available_bytes, unbacked_bytes }) = room else { return };
        let is_full = lacks_room
            || is_refused
            || unbacked_bytes > 0 && available_bytes < NO_ROOM_BYTES
            || self.full.is_some() && available_bytes < ROOM_AGAIN_BYTES;
        if is_full && self.full.is_none() {
            let mount = mounted_at.display();
            tracing::error!(path, %mount, available_bytes, "the file system that a disk's file lies in is full");
        }
        let since_unix_s = self.full.as_ref().map_or(unix_s, |full| full.since_unix_s);
        self.full = is_full.then_some(HostFull { mounted_at, available_bytes, since_unix_s });
    }
}

impl Wanted {
    /// Reserves the space; blocks.
    pub fn reserve(self, watch: &FileWatch) -> Kept {
        let Self { own, slabs, released, refused, looks_at_room } = self;
        let mut kept = Kept {
            has_own: false,
            slabs: Vec::new(),
            released,
            is_elsewhere: false,
            lacks_room: false,
            refused,
            room: None,
        };
        let mut reserve = |(offset, bytes): (u64, u64)| match watch.reserve(offset, bytes) {
            Ok(Reserved::Yes) => true,
            Ok(Reserved::NoRoom) => {
                kept.lacks_room = true;
                false
            }
            Ok(Reserved::NotHere) => {
                kept.is_elsewhere = true;
                false
            }
            // The next attempt is in a second.
            Err(_) => false,
        };
        let has_own = !own.is_empty() && own.into_iter().all(&mut reserve);
        let done: Vec<SlabIndex> =
            slabs.into_iter().filter(|(_, range)| reserve(*range)).map(|(slab, _)| slab).collect();
        (kept.has_own, kept.slabs) = (has_own, done);
        if looks_at_room || kept.lacks_room {
            kept.room = watch.room().ok().flatten();
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::crash::{CrashDisk, CrashOptions};
    use store::{FormatParameters, format};
    use types::{DiskId, PoolId};

    fn kept(refused: u64, lacks_room: bool, available_bytes: u64) -> Kept {
        let room = HostRoom { mounted_at: "/srv".into(), available_bytes, unbacked_bytes: 0 };
        Kept {
            has_own: true,
            slabs: vec![SlabIndex(1)],
            released: Vec::new(),
            is_elsewhere: false,
            lacks_room,
            refused,
            room: Some(room),
        }
    }

    #[test]
    fn a_full_file_system_is_told_from_the_first_refusal_until_it_has_room() {
        let mut host = HostFile::default();
        host.note(kept(0, false, 5), "/srv/a", 1);
        assert_eq!(host.full, None, "little room is no refusal");
        host.note(kept(3, false, 0), "/srv/a", 2);
        let full = |available_bytes, since_unix_s| {
            Some(HostFull { mounted_at: "/srv".into(), available_bytes, since_unix_s })
        };
        assert_eq!(host.full, full(0, 2));
        host.note(kept(3, false, 5), "/srv/a", 3);
        assert_eq!(host.full, full(5, 2));
        host.note(kept(3, false, ROOM_AGAIN_BYTES), "/srv/a", 4);
        assert_eq!(host.full, None);
        host.note(kept(3, true, ROOM_AGAIN_BYTES), "/srv/a", 5);
        assert_eq!(host.full, full(ROOM_AGAIN_BYTES, 5), "a slab of metadata has no room");
    }

    #[test]
    fn a_file_system_that_is_full_already_is_told_only_beneath_a_thin_file() {
        let found = |available_bytes, unbacked_bytes| {
            let mut host = HostFile::default();
            let room = HostRoom { mounted_at: "/srv".into(), available_bytes, unbacked_bytes };
            host.note(Kept { room: Some(room), ..kept(0, false, 0) }, "/srv/a", 1);
            host.full.is_some()
        };
        assert!(found(NO_ROOM_BYTES - 1, 4096));
        assert!(!found(NO_ROOM_BYTES, 4096), "little room is no refusal");
        assert!(!found(0, 0), "the file has all of its space");
    }

    #[test]
    fn the_room_is_looked_at_after_each_opening() {
        let disk = CrashDisk::new(CrashOptions::new(160 << 20));
        let parameters = FormatParameters::new(DiskId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let disk = format(disk, parameters).expect("a blank disk");
        let store =
            Store::open(MeteredDisk::new(Box::new(disk), Default::default())).expect("a formatted disk");
        let mut host = HostFile::default();
        assert!(host.wanted(&store).looks_at_room);
        host.note(kept(0, false, 5), "/srv/a", 1);
        assert!(!host.wanted(&store).looks_at_room, "nothing has changed");
    }
}
