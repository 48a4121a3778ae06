//! Bugs that can be planted, of all layers, and the seeds that find them.

use crate::{Finding, World};
use space::planted::Planted as OfSpace;
use store::planted::Planted as OfStore;
use volume::planted::Planted as OfVolume;

/// A bug of one of the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    Space(OfSpace),
    Store(OfStore),
    Volume(OfVolume),
}

/// Seeds that find a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finder {
    pub world: World,
    /// First of the seeds.
    pub first: u64,
    /// Number of consecutive seeds, from the first on, one of which finds the bug.
    pub seeds: u64,
}

impl Finder {
    /// Whether the search takes only seconds.
    pub const fn is_quick(self) -> bool {
        matches!(self.world, World::Space | World::PersistentOpens) || self.seeds <= 40
    }
}

const fn stack(seeds: u64) -> Option<Finder> {
    Some(Finder { world: World::Stack, first: 0, seeds })
}

const fn space_from(first: u64, seeds: u64) -> Option<Finder> {
    Some(Finder { world: World::Space, first, seeds })
}

impl Bug {
    /// Returns all bugs, layer by layer.
    pub fn all() -> Vec<Self> {
        let space = OfSpace::ALL.into_iter().chain(OfSpace::OF_DISKS).map(Self::Space);
        let store = OfStore::ALL.into_iter().map(Self::Store);
        let volume = OfVolume::ALL.into_iter().chain(OfVolume::OF_OPENS).map(Self::Volume);
        space.chain(store).chain(volume).collect()
    }

    /// Returns the bug's name on the command line: `space::NoReconcile`.
    pub fn name(self) -> String {
        match self {
            Self::Space(bug) => format!("space::{bug:?}"),
            Self::Store(bug) => format!("store::{bug:?}"),
            Self::Volume(bug) => format!("volume::{bug:?}"),
        }
    }

    /// Returns the seeds that must find the bug. `None`: a test of its crate finds it. For bugs of
    /// store and of volume, and for those of space that need faults of disks, a test does so in any
    /// case (`planted` in each).
    pub fn finder(self) -> Option<Finder> {
        match self {
            Self::Space(bug) if OfSpace::ALL.contains(&bug) => {
                // The search begins at a seed known to find bugs that otherwise take longest. This
                // seed may change with the simulator.
                let first = match bug {
                    OfSpace::AcceptReplays => 171,
                    OfSpace::AnswerAfterFencing => 334,
                    OfSpace::DeadDisksWaitedFor => 50,
                    OfSpace::FencedOpeningFails => 15,
                    _ => 0,
                };
                space_from(first, 1_000)
            }
            // One of six seeds has a server that lies, and one of twelve a node whose data reach nobody.
            Self::Space(OfSpace::EpochsBelieved) => space_from(8, 60),
            Self::Space(OfSpace::NeverSpared) => space_from(11, 60),
            // One of twelve has a full pool with a disk that is being retired.
            Self::Space(OfSpace::RetiringCountsAsOut | OfSpace::RetiringStaysStale) => space_from(7, 60),
            // One of twelve has older images in the places of all disks.
            Self::Space(OfSpace::OlderImageServed) => space_from(3, 60),
            Self::Space(_) => None,
            Self::Store(bug) => match bug {
                OfStore::AckBeforeDurable
                | OfStore::AnchorBeforeFlush
                | OfStore::FreshBeforeFlush
                | OfStore::PlacedWithoutRecord => stack(30),
                OfStore::ClaimWithoutFlush | OfStore::MediumFailsDisk | OfStore::PlacedUnverified => {
                    stack(150)
                }
                _ => None,
            },
            Self::Volume(bug) if OfVolume::OF_OPENS.contains(&bug) => {
                Some(Finder { world: World::PersistentOpens, first: 0, seeds: 100 })
            }
            Self::Volume(bug) => match bug {
                OfVolume::DeletionNotDurable
                | OfVolume::DescriptorsKept
                | OfVolume::GrowthNotDurable
                | OfVolume::NamesUncharged
                | OfVolume::NoRoomUntold
                | OfVolume::RenameBeforeData => stack(30),
                OfVolume::AllocatorReuseEarly
                | OfVolume::ChunksGivenBackOnce
                | OfVolume::OutageFailsVolume
                | OfVolume::SuperblockBeforePages => stack(150),
                OfVolume::TransactionUnbounded => Some(Finder { world: World::Stack, first: 22, seeds: 150 }),
                // These need trees that exceed memory: tests of volume make them from metadata
                // alone.
                OfVolume::MissStartsOver | OfVolume::PartsWithoutReserve => None,
                _ => None,
            },
        }
    }
}

/// Plants a bug in this thread, in place of any other.
fn plant(bug: Option<Bug>) {
    space::planted::plant(match bug {
        Some(Bug::Space(bug)) => Some(bug),
        _ => None,
    });
    store::planted::plant(match bug {
        Some(Bug::Store(bug)) => Some(bug),
        _ => None,
    });
    volume::planted::plant(match bug {
        Some(Bug::Volume(bug)) => Some(bug),
        _ => None,
    });
}

/// Runs a seed with the bug. A finding counts if the seed finds none without the bug.
pub fn find(bug: Bug, world: World, seed: u64) -> Option<Finding> {
    plant(Some(bug));
    let found = world.run(seed);
    plant(None);
    (!found.violations.is_empty() && world.run(seed).violations.is_empty()).then_some(found)
}
