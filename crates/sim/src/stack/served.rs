//! A volume on a node: opens its virtual disk, then its file system, then serves; after a failure
//! it begins again.

use super::disks::SimStore;
use records::MemoryClient;
use space::coordinator::Phase;
use space::local::{LocalSpace, VolumeHandle};
use std::time::Duration;
use types::{FileTime, Monotonic, VolumeId};
use volume::backend::{Backend, Event};
use volume::fs::{Config, FileSystem, Format};
use volume::service::{Service, ServiceConfig};

/// The virtual disks of a node.
pub(crate) type Space = LocalSpace<SimStore, MemoryClient>;
type Handle = VolumeHandle<SimStore, MemoryClient>;

/// Pauses before a failed volume is opened again.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The wall clock's time at virtual time 0.
const WALL: FileTime = FileTime(133_000_000_000_000_000);

/// Limits that the node sets for its volumes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub cache: Config,
}

enum Stage {
    Waiting {
        at: Monotonic,
    },
    /// The virtual disk is being opened.
    Space(Box<Handle>),
    Service(Box<Service>),
}

pub(crate) struct Served {
    pub id: VolumeId,
    stage: Stage,
    /// Format of a volume that is made anew.
    format: Option<Format>,
    pause: Duration,
    incarnation: u128,
    /// Reasons of the volume's stops, one for each.
    pub failures: Vec<String>,
    pub serves: bool,
    /// Number that grows when the data in memory are dropped.
    pub generation: u64,
    /// Reason of its last stop while it served.
    pub stopped: Option<String>,
}

impl Served {
    pub fn new(id: VolumeId, incarnation: u128, now: Monotonic, format: Option<Format>) -> Self {
        let stage = Stage::Waiting { at: now };
        Self {
            id,
            stage,
            format,
            pause: PAUSE_MIN,
            incarnation,
            failures: Vec::new(),
            serves: false,
            generation: 0,
            stopped: None,
        }
    }

    pub fn service(&mut self) -> Option<&mut Service> {
        match &mut self.stage {
            Stage::Service(service) => Some(service),
            _ => None,
        }
    }

    pub fn turn(
        &mut self,
        space: &Space,
        disks_tried: bool,
        limits: &Limits,
        now: Monotonic,
        index: usize,
        out: &mut Vec<(usize, Event)>,
    ) {
        match &mut self.stage {
            Stage::Waiting { at } => {
                if disks_tried && *at <= now {
                    self.incarnation += 2;
                    self.stage = Stage::Space(Box::new(space.open_volume(self.id, self.incarnation)));
                }
            }
            Stage::Space(_) => match space.phase(self.id) {
                Some(Phase::Opening) => {}
                Some(Phase::Serving) => self.open_files(limits, now),
                other => self.fail(space, now, format!("its virtual disk is {other:?}")),
            },
            Stage::Service(service) => {
                service.handle_timeout(now);
                let mut events = Vec::new();
                service.poll(&mut events);
                out.extend(events.into_iter().map(|event| (index, event)));
                let failure = service.failure().map(ToString::to_string);
                if let Some(why) = failure {
                    self.fail(space, now, why);
                } else if service.is_open() {
                    self.serves = true;
                    (self.format, self.pause) = (None, PAUSE_MIN);
                }
            }
        }
    }

    fn open_files(&mut self, limits: &Limits, now: Monotonic) {
        let waiting = Stage::Waiting { at: now };
        let Stage::Space(disk) = std::mem::replace(&mut self.stage, waiting) else { return };
        let fs = match &self.format {
            Some(format) => FileSystem::format(disk, format, limits.cache),
            None => FileSystem::open(disk, limits.cache),
        };
        let wall = FileTime(WALL.0 + now.0 / 100);
        self.stage = Stage::Service(Box::new(Service::new(fs, ServiceConfig::default(), now, wall)));
    }

    fn fail(&mut self, space: &Space, now: Monotonic, why: String) {
        self.stopped = self.serves.then(|| why.clone());
        self.failures.push(why);
        self.serves = false;
        self.generation += 1;
        self.stage = Stage::Waiting { at: now.after(self.pause) };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        space.forget_volume(self.id);
    }

    pub fn next_timeout(&self) -> Option<Monotonic> {
        match &self.stage {
            Stage::Waiting { at } => Some(*at),
            Stage::Space(_) => None,
            Stage::Service(service) => service.next_timeout(),
        }
    }
}
