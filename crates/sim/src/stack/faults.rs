//! Faults of one disk, on any structure, and their end.

use super::disks::SimDisk;
use super::node::Node;
use super::scenario::Kind;
use crate::random::Random;
use disk::DiskError;
use disk::crash::{CrashDisk, Fault, FaultAction, FaultTarget};
use records::MemoryState;
use std::time::Duration;
use types::DiskId;

const PAGE: u64 = 4096;
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
/// Bytes at either end of a disk that hold label and anchor, and pages of them in use (docs/ON_DISK.md).
const AREA_BYTES: u64 = 1 << 20;
const AREA_PAGES: u64 = 4;

/// Least age of an image. Scenarios in which a disk goes back in time rotate epochs several times
/// within it.
const IMAGE_AGE_MIN: Duration = Duration::from_secs(2);

/// Structures on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Structure {
    Area,
    Tables,
    Journal,
    Metadata,
    Data,
    /// Chunk 0 of a volume, with its superblock and journal.
    VolumeJournal,
}

const STRUCTURES: [Structure; 8] = [
    Structure::Area,
    Structure::Tables,
    Structure::Journal,
    Structure::Metadata,
    Structure::Metadata,
    Structure::Data,
    Structure::Data,
    Structure::VolumeJournal,
];

/// A fault in progress.
pub(crate) struct Striking {
    pub kind: Kind,
    pub disk: DiskId,
    pub structure: Structure,
    /// The disk's earlier contents, for its return to them.
    pub image: Option<CrashDisk>,
    /// Errors of the medium that the disk had returned before, without those of reads that were not
    /// needed.
    pub medium_errors: u64,
}

/// A byte range of a disk.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    len_bytes: u64,
}

impl Place {
    fn pages(offset: u64, pages: u64) -> Self {
        Self { offset, len_bytes: pages * PAGE }
    }

    /// Returns a few pages of it.
    fn few(self, random: &mut Random, pages_max: u64) -> Self {
        let pages = (self.len_bytes / PAGE).max(1);
        let count = random.between(1, pages_max.min(pages));
        Self::pages(self.offset + random.below(pages - count + 1) * PAGE, count)
    }
}

/// Returns all of a structure, as far as it is in use.
fn whole(structure: Structure, disk: &SimDisk, node: Option<&Node>, random: &mut Random) -> Place {
    let layout = &disk.layout;
    let store = node.and_then(|node| node.slot(disk.id)).and_then(|slot| slot.store());
    let chunks = store.map_or_else(Vec::new, |store| store.with(store::Store::chunks));
    let mut slab = |first: bool| {
        let fitting: Vec<u32> =
            chunks.iter().filter(|chunk| !first || chunk.chunk.0 == 0).map(|chunk| chunk.slab.0).collect();
        u64::from(random.pick(&fitting).unwrap_or(0))
    };
    match structure {
        Structure::Area => {
            let at = if random.chance(700) { 0 } else { layout.size_bytes - AREA_BYTES };
            Place::pages(at, AREA_PAGES)
        }
        Structure::Tables => {
            let len_bytes = layout.journal - layout.tables[0];
            Place { offset: layout.tables[random.below(2) as usize], len_bytes }
        }
        Structure::Journal => Place { offset: layout.journal, len_bytes: layout.journal_bytes },
        Structure::Metadata => {
            let pages = u64::from(layout.metadata_pages_per_slab());
            Place::pages(layout.metadata + slab(false) * pages * PAGE, pages)
        }
        Structure::Data | Structure::VolumeJournal => {
            let first = structure == Structure::VolumeJournal;
            Place { offset: layout.slabs + slab(first) * layout.slab_bytes, len_bytes: layout.slab_bytes }
        }
    }
}

/// Makes every disk hang or vanish.
fn send_all_away(disks: &[SimDisk], random: &mut Random) {
    for disk in disks {
        let hangs = random.chance(500);
        disk.control.hangs.set(hangs);
        disk.control.gone.set(!hangs);
    }
}

/// Makes the cluster state lose all requests, or some requests and some answers.
fn send_state_away(state: &MemoryState, random: &mut Random) {
    let mut sometimes = Random::new(random.below(u64::MAX));
    let always = sometimes.chance(500);
    state.set_fault_hook(Some(Box::new(move |_| match sometimes.below(4) {
        0 if !always => records::Fault::AnswerLost,
        1 if !always => records::Fault::None,
        _ => records::Fault::Lost,
    })));
}

impl Striking {
    /// Begins a fault.
    pub fn begin(
        kind: Kind,
        disk: usize,
        disks: &[SimDisk],
        state: &MemoryState,
        node: Option<&Node>,
        random: &mut Random,
    ) -> Self {
        let structure = random.pick(&STRUCTURES).unwrap_or(Structure::Data);
        let victim = &disks[disk];
        let medium = &victim.medium;
        let whole = whole(structure, victim, node, random);
        let few = if structure == Structure::Data { 64 } else { 3 };
        let mut image = None;
        let write =
            |place: Place| FaultTarget::WriteRange { offset: place.offset, len_bytes: place.len_bytes };
        let strike_writes = |random: &mut Random, action| {
            let (skip, times) = (random.below(12), random.between(1, 3));
            medium.inject(Fault { target: write(whole), skip, times, action });
        };
        match kind {
            Kind::Unreadable => {
                for _ in 0..random.between(1, 3) {
                    let place = whole.few(random, few);
                    medium.make_unreadable(place.offset, place.len_bytes);
                }
            }
            Kind::ReadErrors => {
                let Place { offset, len_bytes } =
                    if random.chance(500) { whole } else { whole.few(random, 8) };
                let target = FaultTarget::ReadRange { offset, len_bytes };
                let times = random.pick(&[1, 3, u64::MAX]).unwrap_or(1);
                let errors = [DiskError::Medium(EIO), DiskError::Medium(EIO), DiskError::Host(ENOMEM)];
                let error = errors[random.below(3) as usize].clone();
                let action = FaultAction::Fail(error);
                medium.inject(Fault { target, skip: random.below(3), times, action });
            }
            Kind::WriteErrors => {
                let errors = [DiskError::Medium(EIO), DiskError::Io(EIO), DiskError::Host(ENOMEM)];
                let error = errors[random.below(3) as usize].clone();
                strike_writes(random, FaultAction::Fail(error));
            }
            Kind::LostWrite => strike_writes(random, FaultAction::LoseWrite),
            Kind::TornWrite => strike_writes(random, FaultAction::TearWrite),
            Kind::MisdirectedWrite => {
                let room = (victim.layout.size_bytes - 2 * AREA_BYTES) / PAGE;
                let to_offset = match random.chance(500) {
                    true => whole.offset + random.below(whole.len_bytes / PAGE) * PAGE,
                    false => random.below(room) * PAGE,
                };
                let to_offset = to_offset.min(room * PAGE);
                strike_writes(random, FaultAction::MisdirectWrite { to_offset });
            }
            Kind::Rot => {
                for _ in 0..random.between(1, 3) {
                    let place = whole.few(random, few);
                    medium.rot(place.offset, place.len_bytes);
                }
            }
            Kind::RollBack => image = Some(medium.fork()),
            Kind::NoSpace => {
                medium.limit_allocation(Some(medium.allocated_bytes() + random.below(256 << 10)));
            }
            Kind::Slow => victim.control.latency.set(Duration::from_millis(random.between(5, 60))),
            Kind::Hang => victim.control.hangs.set(true),
            Kind::Gone => victim.control.gone.set(true),
            Kind::AllAway => send_all_away(disks, random),
            Kind::StateAway => send_state_away(state, random),
        }
        let medium_errors = victim.control.medium_errors.get();
        Self { kind, disk: victim.id, structure, image, medium_errors }
    }

    /// Ends the cause of the fault. Its damage stays until it is repaired.
    pub fn end(&self, disks: &[SimDisk], state: &MemoryState) {
        state.set_fault_hook(None);
        for disk in disks {
            disk.control.hangs.set(false);
            disk.control.gone.set(false);
            disk.control.latency.set(Duration::from_micros(80));
            disk.medium.clear_faults();
            disk.medium.limit_allocation(None);
            // Requests that waited through a hang get their answers now.
            disk.control.due.set(Some(disk.control.now.get()));
        }
    }

    /// Returns the image to which the disk goes back, once it is old enough to be recognized
    /// (docs/PROTOCOL.md, "Limits").
    pub fn old_image(&mut self, lasted: Duration) -> Option<CrashDisk> {
        self.image.take_if(|_| lasted >= IMAGE_AGE_MIN)
    }

    /// Returns its duration in milliseconds.
    pub fn lasts_ms(&self, random: &mut Random) -> u64 {
        match self.kind {
            Kind::Hang | Kind::Gone => random.pick(&[300, 3_000, 9_000, 20_000]).unwrap_or(300),
            Kind::AllAway | Kind::StateAway => random.pick(&[300, 4_000, 12_000, 45_000]).unwrap_or(300),
            Kind::RollBack => IMAGE_AGE_MIN.as_millis() as u64 + random.below(3_000),
            // Longer than a disk's timeout.
            Kind::NoSpace => random.pick(&[300, 3_000, 20_000]).unwrap_or(300),
            _ => random.between(200, 3_000),
        }
    }

    /// Whether operations may be refused during the fault, and shortly after.
    pub fn refuses(&self) -> bool {
        matches!(self.kind, Kind::AllAway | Kind::NoSpace)
    }
}
