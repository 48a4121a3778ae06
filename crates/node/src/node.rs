//! The parts of a node, put together.

use crate::acl_propagation::AclPropagations;
use crate::check::Checks;
use crate::damage::DamageBook;
use crate::damage_kept::{DamageKeeper, DamageSources};
use crate::damage_search::DamageSearch;
use crate::damaged_files::DamagedFiles;
use crate::disk_admin::DiskAdmin;
use crate::disk_files::DiskFiles;
use crate::disk_opening::{DiskOpener, OnLoop};
use crate::disks::Disks;
use crate::draining::Draining;
use crate::erasing::Erasing;
use crate::events::{Events, Told, told};
use crate::job_control::JobControl;
use crate::jobs::Jobs;
use crate::lease_gate::LeaseGate;
use crate::letting_go::LettingGo;
use crate::peers::{ClusterMembership, Peers};
use crate::persisted::PersistedState;
use crate::pool_care::PoolCare;
use crate::pools::Pools;
use crate::promises::Promises;
use crate::record_watch::RecordWatch;
use crate::records::Keeper;
use crate::recovery::Recovery;
use crate::retirement::Retirements;
use crate::retreat::Retreating;
use crate::scrub::{Scrubs, rest_at};
use crate::slow_disks::SlowDisks;
use crate::state::State;
use crate::tasks::{Tasks, until};
use crate::volume_care::VolumeCare;
use crate::volume_opening::VolumeOpener;
use crate::volume_paths::VolumePaths;
use crate::volume_quotas::VolumeQuotas;
use crate::volumes::{Front, Volumes};
use records::Watch;
use space::api::SpaceError;
use space::coordinator::{Event, Phase};
use space::local::LocalEvent;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use sys::driver::Driver;
use types::{DiskId, FileTime, Monotonic, VolumeId};

/// Settings that an administrator chooses for disks and volumes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// RAM for cached reads, buffered writes and metadata, over all volumes.
    pub cache_bytes: u64,
    /// Most opens of one volume by clients.
    pub opens: usize,
    /// Most byte-range locks that one open holds or waits for.
    pub locks_per_open: usize,
    /// Timeout of a disk's operation, after which the disk is taken out.
    pub disk_timeout: Duration,
    /// Absence of a disk after which its slabs are rebuilt on others.
    pub repair_delay: Duration,
    /// Period in which every block is verified once; zero: never.
    pub scrub_period: Duration,
    /// Most bytes that a scrub reads in a second.
    pub scrub_rate: u64,
}

/// Parts from which a node is made.
pub struct Options {
    /// Driver of the loop's I/O; wakes it.
    pub driver: Driver,
    /// Makes a disk of an opened file, which does its I/O through the driver.
    pub on_loop: OnLoop,
    /// Records of the server or cluster.
    pub state: records::State,
    /// Server through which clients reach volumes.
    pub front: Box<dyn Front>,
    /// Settings as configured.
    pub settings: Settings,
    /// Places to search for disks that are not at their recorded paths.
    pub search: Vec<PathBuf>,
    /// This server's name, for administrators who find its disks elsewhere.
    pub host: String,
    /// Set on a node of a cluster; `None` on a single server.
    pub membership: Option<ClusterMembership>,
}

/// The disks, pools and volumes of one server.
///
/// A turn of the loop is [`Node::tell_time`], then [`Node::poll`] until nothing moves;
/// [`Node::care`] once a second. Commands are futures of the public parts. They run while
/// [`Node::poll`] runs the task that awaits them.
pub struct Node {
    /// Futures of commands and of maintenance, and the time of the turn.
    pub tasks: Rc<Tasks>,
    /// Recent events, for the log and for health.
    pub events: Rc<Events>,
    /// Recorded disks of this server.
    pub disks: Rc<Disks>,
    /// Recorded pools with their virtual disks.
    pub pools: Rc<Pools>,
    /// Recorded volumes, served and not.
    pub volumes: Rc<Volumes>,
    /// Known damage of disks and volumes.
    pub damage: Rc<DamageBook>,
    /// Storage jobs that run, are stopped, or ended recently.
    pub jobs: Rc<RefCell<Jobs>>,
    /// Updates of the records' copies on the disks.
    pub keeper: Rc<Keeper>,
    /// Files that lost data, by the last search.
    pub damaged_files: Rc<DamagedFiles>,
    /// Keeps known damage in the cluster state.
    pub damage_keeper: DamageKeeper,
    /// Searches for files that lost data.
    pub damage_search: DamageSearch,
    /// Commands on disks, and updates of their records.
    pub disk_admin: DiskAdmin,
    /// Commands on pools.
    pub pool_care: PoolCare,
    /// Commands that make, resize and delete volumes.
    pub volume_care: VolumeCare,
    /// Other nodes with their disks and volumes; empty on a single server.
    pub peers: Rc<Peers>,
    /// Commands that name files by path.
    pub volume_paths: VolumePaths,
    /// Begins propagations of access entries.
    pub acl_propagations: AclPropagations,
    /// Commands on quotas.
    pub volume_quotas: VolumeQuotas,
    /// Lists, stops and resumes jobs.
    pub job_control: JobControl,
    /// Begins checks of volumes.
    pub checks: Checks,
    /// Erases disks that belong to no pool here.
    pub erasing: Erasing,
    disk_files: DiskFiles,
    /// Has disks forget promises that no owner can reach.
    pub promises: Promises,
    pub(crate) slow_disks: SlowDisks,
    retirements: Retirements,
    scrubs: Scrubs,
    recovery: Recovery,
    disk_opener: DiskOpener,
    volume_opener: VolumeOpener,
    pub(crate) record_watch: RecordWatch,
    pub(crate) kept: Rc<PersistedState>,
    pub(crate) lease_gate: Rc<LeaseGate>,
    /// Volumes claimed by another node, to be withdrawn.
    lost: RefCell<Vec<VolumeId>>,
    /// Whether every recorded disk was tried once. Before that no disk gets records, which may turn
    /// out to be too old.
    all_disks_tried: Cell<bool>,
    pub(crate) draining_of_node: Draining,
    letting_go: LettingGo,
    retreating: Retreating,
    /// Whether no new work may begin.
    draining: Cell<bool>,
}

/// Time above the disk's own timeout, so that the disk's error comes first.
const ABOVE_DISK_TIMEOUT: Duration = Duration::from_secs(1);

impl Node {
    /// Makes a node without pools, disks and volumes; later turns add them from the records.
    pub fn new(options: Options, now: Monotonic, wall_clock: FileTime) -> Self {
        let Options { driver, on_loop, state: records, front, settings, search, host, membership } = options;
        let tasks = Rc::new(Tasks::new(driver.waker(), now, wall_clock));
        let lease_gate = LeaseGate::new(membership.as_ref().map(|membership| membership.heartbeats.clone()));
        let peers = Rc::new(Peers::new(membership));
        let is_single = peers.own().is_none();
        let waker = driver.waker();
        let watch = (!is_single).then(|| records.watch_with("", move || waker.wake()));
        let state = State::new(records.clone(), tasks.clone());
        let kept = Rc::new(PersistedState::new(records, is_single));
        let space_config = space::coordinator::Config {
            io_timeout: settings.disk_timeout + ABOVE_DISK_TIMEOUT,
            rebuild_after: settings.repair_delay,
            node: peers.own(),
            lease: peers.lease(),
            ..space::coordinator::Config::default()
        };
        let (opens, locks) = (settings.opens, settings.locks_per_open);
        let shared = Shared {
            events: Rc::default(),
            disks: Rc::new(Disks::new(peers.clone(), settings.disk_timeout, now)),
            pools: Rc::new(Pools::new(kept.clone(), peers.clone(), lease_gate.clone(), space_config, now)),
            volumes: Rc::new(Volumes::new(front, settings.cache_bytes, opens, locks)),
            damage: Rc::default(),
            jobs: Rc::default(),
            keeper: Rc::new(Keeper::new(kept.clone(), host)),
            tasks,
            state,
            peers: peers.clone(),
            lease_gate,
        };
        let search = Rc::new(search);
        let disk_opener = DiskOpener {
            driver,
            on_loop,
            search,
            kept,
            tasks: shared.tasks.clone(),
            disks: shared.disks.clone(),
            pools: shared.pools.clone(),
            peers,
        };
        shared.into_node(disk_opener, &settings, now, watch)
    }

    /// Begins to open everything that is recorded.
    pub fn recover(&self) {
        self.job_control.go_on_counting();
        self.recovery.begin();
    }

    /// Whether every recorded disk was tried, and every volume serves or cannot.
    pub fn is_recovered(&self) -> bool {
        self.disks.were_all_tried() && !self.volumes.is_any_opening()
    }

    /// Begins a turn: passes the time to all parts.
    pub fn tell_time(&self, now: Monotonic) {
        self.tasks.tell_time(now);
        self.pools.handle_timeout(now, &self.damage);
        if now >= self.disks.next_timeout() {
            let unix_s = self.tasks.unix_seconds();
            let due = self.disks.supervise(&self.pools, &self.damage, now, unix_s);
            due.into_iter().for_each(|disk| self.disk_opener.begin(disk));
        }
    }

    /// Sets the time of day, which an administrator may change.
    pub fn set_wall_clock(&self, now: Monotonic, wall_clock: FileTime) {
        self.tasks.set_wall_clock(now, wall_clock);
        self.volumes.set_wall_clock(now, wall_clock);
    }

    /// Runs all ready work. `true`: there was some.
    pub fn poll(&self) -> bool {
        if !self.all_disks_tried.get() && self.disks.were_all_tried() {
            self.all_disks_tried.set(true);
        }
        if self.all_disks_tried.get() {
            self.keeper.begin(&self.disks, &self.pools, &self.tasks);
        }
        self.record_watch.take_lease();
        self.record_watch.look();
        let mut moved = self.tasks.poll() | self.pools.poll(|event| self.note(event));
        for volume in self.lost.take() {
            self.volume_opener.lose(volume);
        }
        self.record_watch.tell_applied();
        moved |= self.pools.permit();
        moved
    }

    fn note(&self, event: LocalEvent) {
        tracing::debug!(?event);
        let unix_s = self.tasks.unix_seconds();
        if let LocalEvent::Volume(volume, event) = &event {
            self.damage.note(*volume, event, unix_s);
            self.tell(*volume, event);
            if matches!(event, Event::Stopped { why: SpaceError::Fenced }) && self.peers.own().is_some() {
                self.lost.borrow_mut().push(*volume);
            }
        }
        if let LocalEvent::EpochRefused { volume, disk, node, epoch, recorded } = &event {
            let (epoch, recorded) = (epoch.0, recorded.map(|epoch| epoch.0));
            let (node, volume, disk) =
                (self.peers.name(*node), self.volumes.name(*volume), self.disk_name(*disk));
            tracing::warn!(
                volume,
                disk,
                node,
                epoch,
                recorded,
                "a node named an epoch that the volume's record never gave it, and was refused"
            );
        }
        self.events.note(event, unix_s);
    }

    /// Logs changes of a disk in a volume: the disk may be back before anybody reads health.
    fn tell(&self, volume: VolumeId, event: &Event) {
        let Some((disk, told)) = told(event) else { return };
        let (volume, disk) = (self.volumes.name(volume), self.disk_name(disk));
        match told {
            Told::Left { why } => {
                tracing::warn!(
                    volume,
                    disk,
                    why,
                    "a disk misses writes of a volume, and is brought up to date when it is back"
                );
            }
            Told::Joined => tracing::info!(volume, disk, "a disk has every write of a volume again"),
        }
    }

    /// Returns the disk's path, after its server's name if that is another one.
    fn disk_name(&self, disk: DiskId) -> String {
        if let Some(slot) = self.disks.slots().get(&disk) {
            return slot.record.path.clone();
        }
        let others = self.peers.disks();
        let found = others.get(&disk);
        found.map_or_else(|| disk.to_string(), |disk| format!("{}:{}", disk.fault_domain.node, disk.path))
    }

    /// Whether requests wait that only the next poll sends to the disks.
    pub fn has_unsent(&self) -> bool {
        self.pools.has_unsent()
    }

    /// Returns the latest time for the next [`Node::tell_time`].
    pub fn next_timeout(&self) -> Monotonic {
        let others = [self.tasks.next_wake(), self.pools.next_timeout()];
        others.into_iter().flatten().fold(self.disks.next_timeout(), Monotonic::min)
    }

    /// Runs the maintenance of all parts. Call once a second.
    pub fn care(&self) {
        self.job_control.care();
        if self.draining.get() {
            return;
        }
        if self.all_disks_tried.get() {
            self.pool_care.follow_rule();
        }
        self.pools.keep_reserves(|pool| self.disks.gone(pool));
        self.disk_admin.record_states();
        self.disk_admin.end_retirements();
        self.disk_admin.end_orphans();
        self.draining_of_node.look();
        self.retreating.look();
        self.letting_go.look();
        self.retirements.update();
        self.disk_files.look_if_due();
        self.slow_disks.look_if_due();
        self.volume_opener.end_stopped();
        if !self.retreating.is_under_way() {
            self.volume_opener.retry();
        }
        self.scrubs.begin_if_due();
        self.disks.checkpoint_idle();
        self.disks.probe_quiet();
        if self.all_disks_tried.get() {
            self.promises.forget_if_due();
        }
        self.damage_keeper.write_if_due();
        self.damaged_files.search_if_due();
    }

    /// Begins no new work from now on, since the server drains.
    pub fn stop(&self) {
        self.draining.set(true);
        self.record_watch.stop();
        self.damaged_files.stop();
    }

    /// Hands the volumes of a stopping server over to other nodes, so that their clients wait for
    /// no timeout; gives up at `deadline`.
    pub async fn hand_over(&self, deadline: Monotonic) {
        self.draining_of_node.hand_over_all(deadline).await;
    }

    /// Makes all data durable and leaves the volumes settled; gives up at `deadline`.
    pub async fn close_volumes(&self, deadline: Monotonic) {
        let is_late = || self.tasks.now() >= deadline;
        let volumes = self.volumes.ids();
        for volume in &volumes {
            let Some(served) = self.volumes.served(*volume) else { continue };
            if let Err(why) = served.make_durable(is_late).await {
                tracing::error!(%volume, name = self.volumes.name(*volume), %why, "the volume could not be made durable at the end");
            }
        }
        let spaces = self.pools.spaces();
        for space in &spaces {
            volumes.iter().for_each(|volume| space.close_volume(*volume));
        }
        until(|| {
            let closed = spaces.iter().all(|space| {
                volumes.iter().all(|volume| {
                    matches!(space.phase(*volume), None | Some(Phase::Closed | Phase::Stopped(_)))
                })
            });
            (closed || is_late()).then_some(())
        })
        .await;
        self.damage_keeper.write().await;
        self.keeper.all_kept(&self.disks, is_late).await;
    }
}

/// The parts with state of their own; other parts get some of these.
struct Shared {
    tasks: Rc<Tasks>,
    state: State,
    events: Rc<Events>,
    disks: Rc<Disks>,
    pools: Rc<Pools>,
    volumes: Rc<Volumes>,
    damage: Rc<DamageBook>,
    jobs: Rc<RefCell<Jobs>>,
    keeper: Rc<Keeper>,
    peers: Rc<Peers>,
    lease_gate: Rc<LeaseGate>,
}

impl Shared {
    fn into_node(
        self,
        disk_opener: DiskOpener,
        settings: &Settings,
        now: Monotonic,
        watch: Option<Watch>,
    ) -> Node {
        let damage_keeper = DamageKeeper::new(self.tasks.clone(), self.state.clone(), self.damage_sources());
        let (job_control, volume_opener) = (self.job_control(), self.volume_opener());
        let volume_care = self.volume_care(volume_opener.clone());
        let disk_admin = self.disk_admin(job_control.clone());
        let recovery = self.recovery(damage_keeper.clone(), volume_opener.clone(), volume_care.clone());
        let record_watch = RecordWatch::new(&recovery, self.keeper.clone(), self.lease_gate.clone(), watch);
        let (scrubs, retirements) = (self.scrubs(settings, now), self.retirements());
        let (disk_files, promises) = (self.disk_files(), self.promises());
        let (draining_of_node, letting_go) = (self.draining(volume_care.clone()), self.letting_go());
        let retreating = Retreating::new(volume_opener.clone(), self.lease_gate.clone());
        let Self { tasks, events, disks, pools, volumes, damage, jobs, keeper, peers, lease_gate, .. } = self;
        Node {
            damaged_files: Rc::new(DamagedFiles::new(tasks.clone(), damage.clone(), volumes.clone())),
            damage_search: DamageSearch {
                tasks: tasks.clone(),
                damage: damage.clone(),
                volumes: volumes.clone(),
            },
            volume_paths: VolumePaths { tasks: tasks.clone(), volumes: volumes.clone() },
            volume_quotas: VolumeQuotas { tasks: tasks.clone(), volumes: volumes.clone() },
            acl_propagations: AclPropagations {
                tasks: tasks.clone(),
                volumes: volumes.clone(),
                jobs: jobs.clone(),
            },
            checks: Checks {
                tasks: tasks.clone(),
                events: events.clone(),
                pools: pools.clone(),
                volumes: volumes.clone(),
                jobs: jobs.clone(),
            },
            erasing: Erasing { tasks: tasks.clone(), disks: disks.clone(), pools: pools.clone() },
            slow_disks: SlowDisks::new(tasks.clone(), disks.clone()),
            disk_files,
            promises,
            retirements,
            pool_care: PoolCare { disks: disk_admin.clone(), recovery: recovery.clone() },
            tasks,
            events,
            disks,
            pools,
            volumes,
            damage,
            jobs,
            keeper,
            damage_keeper,
            disk_admin,
            volume_care,
            peers,
            record_watch,
            kept: disk_opener.kept.clone(),
            lease_gate,
            lost: RefCell::default(),
            job_control,
            scrubs,
            recovery,
            disk_opener,
            volume_opener,
            all_disks_tried: Cell::default(),
            draining_of_node,
            letting_go,
            retreating,
            draining: Cell::default(),
        }
    }

    fn damage_sources(&self) -> DamageSources {
        DamageSources {
            damage: self.damage.clone(),
            events: self.events.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
        }
    }

    fn job_control(&self) -> JobControl {
        JobControl {
            tasks: self.tasks.clone(),
            events: self.events.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
            jobs: self.jobs.clone(),
            state: self.state.clone(),
            peers: self.peers.clone(),
        }
    }

    fn volume_opener(&self) -> VolumeOpener {
        VolumeOpener {
            tasks: self.tasks.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
            peers: self.peers.clone(),
            jobs: self.jobs.clone(),
            lease_gate: self.lease_gate.clone(),
            state: self.state.clone(),
        }
    }

    fn draining(&self, care: VolumeCare) -> Draining {
        let (tasks, volumes) = (self.tasks.clone(), self.volumes.clone());
        Draining { tasks, volumes, peers: self.peers.clone(), care, is_running: Rc::default() }
    }

    fn disk_files(&self) -> DiskFiles {
        DiskFiles {
            tasks: self.tasks.clone(),
            disks: self.disks.clone(),
            next_at: Rc::default(),
            is_looking: Rc::default(),
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            tasks: self.tasks.clone(),
            state: self.state.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
            next_at: Rc::default(),
        }
    }

    fn letting_go(&self) -> LettingGo {
        LettingGo {
            tasks: self.tasks.clone(),
            volumes: self.volumes.clone(),
            pools: self.pools.clone(),
            peers: self.peers.clone(),
            state: self.state.clone(),
            is_running: Rc::default(),
        }
    }

    fn volume_care(&self, opener: VolumeOpener) -> VolumeCare {
        VolumeCare {
            tasks: self.tasks.clone(),
            state: self.state.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
            opener,
            peers: self.peers.clone(),
        }
    }

    fn disk_admin(&self, jobs: JobControl) -> DiskAdmin {
        DiskAdmin {
            tasks: self.tasks.clone(),
            state: self.state.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
            keeper: self.keeper.clone(),
            jobs,
            peers: self.peers.clone(),
        }
    }

    fn recovery(&self, damage: DamageKeeper, opener: VolumeOpener, care: VolumeCare) -> Recovery {
        Recovery {
            tasks: self.tasks.clone(),
            state: self.state.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            damage,
            opener,
            care,
            peers: self.peers.clone(),
        }
    }

    fn retirements(&self) -> Retirements {
        Retirements {
            tasks: self.tasks.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
            jobs: self.jobs.clone(),
            blocked_since: Rc::default(),
        }
    }

    fn scrubs(&self, settings: &Settings, started: Monotonic) -> Scrubs {
        Scrubs {
            tasks: self.tasks.clone(),
            state: self.state.clone(),
            events: self.events.clone(),
            disks: self.disks.clone(),
            pools: self.pools.clone(),
            volumes: self.volumes.clone(),
            jobs: self.jobs.clone(),
            started,
            period: settings.scrub_period,
            rest: rest_at(settings.scrub_rate),
        }
    }
}
