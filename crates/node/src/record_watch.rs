//! Follows other nodes' records, and acts on them: disks that come and go, volumes that are made, move,
//! and lose their node.
//!
//! Promises: this node opens no disk or volume of another node. It withdraws a volume at once that
//! another one has claimed. The volume of a dead node is taken over by the node that the rule names
//! ([`space::takeover`]). Never decides about safety: a claim is a compare-and-swap, and disks
//! refuse old epochs (I2, I3). Idle on a single server.

use crate::damage_kept::DamageKeeper;
use crate::disks::Disks;
use crate::lease_gate::LeaseGate;
use crate::peers::{NodeLife, Peers, Turned};
use crate::pools::Pools;
use crate::records::Keeper;
use crate::recovery::Records;
use crate::state::State;
use crate::tasks::Tasks;
use crate::volume_care::VolumeCare;
use crate::volume_opening::VolumeOpener;
use crate::volumes::Volumes;
use records::{
    Changes, DeletedVolume, DiskDamage, DiskRecord, DiskState, NodeLease, PoolRecord, Record, StateError,
    Stored, Typed, VolumeRecord, Watch,
};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, NodeId, PoolId, Repeated, VolumeId};

/// Pause after a failed read of the records.
const AGAIN: Duration = Duration::from_millis(200);

/// Whether this node may answer for its volumes once it has a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Admission {
    /// The node must first record that it begins, or begins again, and then read which volumes are
    /// still its own.
    #[default]
    Outside,
    UnderWay,
    /// This incarnation of the node is recorded.
    Inside(u64),
}

/// The records at the last reading: a record was removed only if it is in here and no longer in the
/// state. Volumes and pools that this node makes are recorded first, and may not have been read
/// yet.
#[derive(Default)]
struct Seen {
    pools: BTreeSet<PoolId>,
    disks: BTreeSet<DiskId>,
    volumes: BTreeSet<VolumeId>,
    deleted: BTreeSet<VolumeId>,
}

/// Follows the records. Clones share it.
#[derive(Clone)]
pub(crate) struct RecordWatch {
    pub tasks: Rc<Tasks>,
    pub state: State,
    pub disks: Rc<Disks>,
    pub pools: Rc<Pools>,
    pub volumes: Rc<Volumes>,
    pub keeper: Rc<Keeper>,
    pub damage: DamageKeeper,
    pub peers: Rc<Peers>,
    pub opener: VolumeOpener,
    pub care: VolumeCare,
    pub lease_gate: Rc<LeaseGate>,
    /// Empty on a single server.
    watch: Rc<OnceCell<Watch>>,
    /// Whether the records were read once.
    began: Rc<Cell<bool>>,
    /// Whether this process, formerly a single server, already does the removals that the first
    /// reading finds.
    has_begun_removals: Rc<Cell<bool>>,
    wanted: Rc<Cell<bool>>,
    running: Rc<Cell<bool>>,
    seen: Rc<RefCell<Seen>>,
    /// Volumes that were being made when a process ended, this one's predecessor or another node's,
    /// and whether they are being removed.
    unfinished: Rc<RefCell<BTreeMap<VolumeId, bool>>>,
    admission: Rc<Cell<Admission>>,
    /// Failures to read the records, and to record an incarnation.
    unreadable: Rc<Repeated>,
    unrecorded: Rc<Repeated>,
    /// The last change of a volume that was applied.
    applied: Rc<Cell<u64>>,
    is_stopping: Rc<Cell<bool>>,
}

/// Whether the node follows any of these records.
fn concerns(changes: &Changes) -> bool {
    let prefixes = [
        PoolRecord::PREFIX,
        DiskRecord::PREFIX,
        VolumeRecord::PREFIX,
        DeletedVolume::PREFIX,
        NodeLease::PREFIX,
    ];
    changes.started_over
        || changes.keys.keys().any(|key| prefixes.iter().any(|prefix| key.starts_with(prefix)))
}

impl RecordWatch {
    pub fn new(
        parts: &crate::recovery::Recovery,
        keeper: Rc<Keeper>,
        lease_gate: Rc<LeaseGate>,
        watch: Option<Watch>,
    ) -> Self {
        Self {
            tasks: parts.tasks.clone(),
            state: parts.state.clone(),
            disks: parts.disks.clone(),
            pools: parts.pools.clone(),
            volumes: parts.opener.volumes.clone(),
            keeper,
            damage: parts.damage.clone(),
            peers: parts.peers.clone(),
            opener: parts.opener.clone(),
            care: parts.care.clone(),
            lease_gate,
            watch: Rc::new(watch.map_or_else(OnceCell::new, OnceCell::from)),
            began: Rc::default(),
            has_begun_removals: Rc::default(),
            wanted: Rc::default(),
            running: Rc::default(),
            seen: Rc::default(),
            unfinished: Rc::default(),
            admission: Rc::default(),
            unreadable: Rc::default(),
            unrecorded: Rc::default(),
            applied: Rc::default(),
            is_stopping: Rc::default(),
        }
    }

    /// Follows the records from now on, since the single server has become a node. It opened its
    /// disks and volumes when it started, and already does the creations and removals in the
    /// records.
    pub fn begin(&self, watch: Watch) {
        self.began.set(true);
        self.has_begun_removals.set(true);
        let is_first = self.watch.set(watch).is_ok();
        debug_assert!(is_first, "the records are followed already");
    }

    /// Begins to read the records if relevant ones have changed.
    pub fn look(&self) {
        let Some(watch) = self.watch.get() else { return };
        if watch.take().is_some_and(|changes| concerns(&changes)) {
            self.wanted.set(true);
        }
        if self.volumes.take_let_go() {
            self.wanted.set(true);
        }
        if self.running.get() || !self.wanted.replace(false) {
            return;
        }
        self.running.set(true);
        let record_watch = self.clone();
        self.tasks.spawn(async move {
            match record_watch.state.change(Records::read).await {
                Ok(records) => {
                    if let Some(failures) = record_watch.unreadable.note_success() {
                        tracing::info!(failures, "the records of the cluster are read again");
                    }
                    record_watch.follow(records);
                }
                Err(error) => {
                    if record_watch.unreadable.note_failure() {
                        tracing::warn!(%error, "the records of the cluster cannot be read; it is tried again");
                    }
                    record_watch.wanted.set(true);
                    record_watch.tasks.rest(AGAIN).await;
                }
            }
            record_watch.running.set(false);
        });
    }

    /// Returns the recorded incarnation of this node that may answer.
    pub fn incarnation(&self) -> Option<u64> {
        match self.admission.get() {
            Admission::Inside(incarnation) => Some(incarnation),
            Admission::Outside | Admission::UnderWay => None,
        }
    }

    /// Takes the lease. In a new term another node may have claimed this one's volumes, or be about
    /// to. So the node answers only after it has recorded a new incarnation, which makes such
    /// claims fail, and has read which volumes are its own.
    pub fn take_lease(&self) {
        match self.lease_gate.take_offer() {
            None if self.lease_gate.bind() => self.pools.bind(),
            None => self.pools.tell_lease(),
            Some(term) if self.admission.get() != Admission::UnderWay => self.admit(term),
            Some(_) => {}
        }
    }

    /// Reports that all changes so far are applied: volumes claimed by another node are withdrawn.
    pub fn tell_applied(&self) {
        self.lease_gate.note_applied(self.applied.get());
    }

    /// Begins to record a new incarnation of this node, for a lease of this term.
    fn admit(&self, term: u64) {
        let Some(own) = self.peers.own() else { return };
        self.admission.set(Admission::UnderWay);
        let record_watch = self.clone();
        self.tasks.spawn(async move {
            let admitted = record_watch.state.change(move |state| {
                let incarnation = record_life(state, own)?;
                Ok((incarnation, Records::read(state)?))
            });
            match admitted.await {
                Ok((incarnation, records)) => {
                    record_watch.unrecorded.note_success();
                    tracing::info!(node = record_watch.peers.name(own), incarnation, term, "this node answers for its volumes from now on");
                    record_watch.follow(records);
                    record_watch.lease_gate.admit(term);
                    record_watch.admission.set(Admission::Inside(incarnation));
                }
                Err(error) => {
                    if record_watch.unrecorded.note_failure() {
                        tracing::warn!(%error, "that this node is back cannot be recorded yet; it is tried again");
                    }
                    record_watch.tasks.rest(AGAIN).await;
                    record_watch.admission.set(Admission::Outside);
                }
            }
        });
    }

    /// Takes verdicts on nodes.
    pub fn set_nodes(&self, nodes: BTreeMap<NodeId, NodeLife>) {
        let now = self.tasks.now();
        let Turned { down, nodes_down, nodes_up, cut_off, reached_again } = self.peers.set_nodes(nodes, now);
        for node in nodes_down {
            let node = self.peers.name(node);
            tracing::warn!(
                node,
                disks = down.len(),
                "a node is down: its disks leave the volumes that can do without"
            );
        }
        for node in nodes_up {
            let node = self.peers.name(node);
            tracing::info!(node, "a node is back: its disks are brought up to date");
        }
        for node in cut_off {
            let node = self.peers.name(node);
            tracing::warn!(
                node,
                "this node and another one do not hear each other: its disks leave the volumes that can do without"
            );
        }
        for node in reached_again {
            let node = self.peers.name(node);
            tracing::info!(node, "this node and another one hear each other again");
        }
        self.heed_nodes();
        self.take_over();
    }

    /// Passes the disks of other nodes that are down to the spaces: by present knowledge, not by
    /// changes.
    fn heed_nodes(&self) {
        for space in self.pools.spaces() {
            space.heed_nodes(|disk| self.peers.is_down(disk));
        }
    }

    /// Applies these records.
    fn follow(&self, records: Records) {
        let Records { pools, disks, volumes, deleted, damage, lost, leases } = records;
        self.peers.set_leases(leases);
        if !self.began.replace(true) {
            let of_own = |damage: &DiskDamage| {
                disks.iter().any(|disk| disk.value.id == damage.disk && self.peers.is_own(&disk.value))
            };
            self.damage.remember(values(damage).into_iter().filter(of_own).collect(), values(lost));
            let unfinished = volumes.iter().filter(|volume| volume.value.is_unfinished);
            self.unfinished.borrow_mut().extend(unfinished.map(|volume| (volume.value.id, false)));
        }
        let last = volumes.iter().map(|volume| volume.revision).max().unwrap_or_default();
        self.applied.set(self.applied.get().max(last));
        let pools: Vec<PoolRecord> = values(pools);
        let disks: Vec<DiskRecord> = values(disks);
        let volumes: Vec<VolumeRecord> = values(volumes);
        let deleted: Vec<DeletedVolume> = values(deleted);
        self.follow_pools(&pools, &disks);
        self.follow_disks(&disks);
        self.follow_volumes(&volumes);
        let has_begun = self.has_begun_removals.replace(false);
        for note in deleted.iter().filter(|_| !has_begun) {
            if !self.seen.borrow().deleted.contains(&note.id) {
                self.care.give_slabs_back(note.id, note.pool);
            }
        }
        self.seen.replace(Seen {
            pools: pools.iter().map(|pool| pool.id).collect(),
            disks: disks.iter().map(|disk| disk.id).collect(),
            volumes: volumes.iter().map(|volume| volume.id).collect(),
            deleted: deleted.iter().map(|note| note.id).collect(),
        });
        self.take_over();
    }

    fn follow_pools(&self, pools: &[PoolRecord], disks: &[DiskRecord]) {
        for pool in pools {
            let disk = disks.iter().find(|disk| disk.pool == pool.id);
            let slab_bytes = disk.map_or(0, |disk| disk.slab_bytes);
            self.pools.note_record(pool);
            if pool.exported || slab_bytes == 0 || self.pools.space(pool.id).is_some() {
                continue;
            }
            tracing::info!(pool = %pool.id, name = pool.name, "another node made a pool");
            if let Err(error) = self.pools.add(pool.clone(), slab_bytes, &self.tasks) {
                tracing::error!(pool = %pool.id, %error, "a pool cannot be opened");
            }
        }
        let gone: Vec<PoolId> = {
            let seen = self.seen.borrow();
            let is_recorded = |id: &PoolId| pools.iter().any(|pool| pool.id == *id);
            seen.pools.iter().copied().filter(|id| !is_recorded(id)).collect()
        };
        for pool in gone.into_iter().filter(|pool| self.pools.space(*pool).is_some()) {
            tracing::info!(%pool, "another node deleted a pool");
            for volume in self.volumes.of_pool(pool) {
                self.volumes.dismount(volume, self.tasks.now());
            }
            self.volumes.forget_of(pool);
            self.disks.remove_of(pool);
            self.pools.remove(pool);
            self.keeper.forget(pool);
        }
    }

    fn follow_disks(&self, disks: &[DiskRecord]) {
        let known = self.peers.disks().clone();
        let gone = self.peers.set_disks(disks);
        for record in disks {
            match self.peers.is_own(record) {
                true => self.follow_own_disk(record, known.contains_key(&record.id)),
                false => self.follow_other_disk(record, known.get(&record.id)),
            }
        }
        self.heed_nodes();
        for record in gone {
            if !disks.iter().any(|disk| disk.id == record.id)
                && let Some(space) = self.pools.space(record.pool)
            {
                drop(space.remove_disk(record.id));
            }
        }
        let removed: Vec<DiskId> = {
            let seen = self.seen.borrow();
            let is_recorded = |id: &DiskId| disks.iter().any(|disk| disk.id == *id);
            seen.disks.iter().copied().filter(|id| !is_recorded(id)).collect()
        };
        for disk in removed {
            let is_busy = self.disks.slots().get(&disk).is_none_or(|slot| slot.busy);
            if !is_busy
                && let Some(slot) = self.disks.remove(disk)
                && let Some(space) = self.pools.space(slot.record.pool)
            {
                drop(space.remove_disk(disk));
            }
        }
    }

    /// Opens a disk that has come to this node, and applies decisions made on it elsewhere.
    fn follow_own_disk(&self, record: &DiskRecord, was_elsewhere: bool) {
        let Some(space) = self.pools.space(record.pool) else { return };
        if was_elsewhere {
            space.detach_remote_disk(record.id);
        }
        self.disks.add(record.clone(), self.tasks.now(), self.tasks.unix_seconds());
        let is_retired = record.state == DiskState::Retired;
        if let Some(slot) = self.disks.slots_mut().get_mut(&record.id)
            && !slot.busy
            && is_retired != (slot.record.state == DiskState::Retired)
            && is_retired != (slot.recorded.0 == DiskState::Retired)
        {
            slot.record.state = record.state;
            slot.record.since_unix_s = record.since_unix_s;
            slot.recorded.0 = record.state;
            space.set_retired(record.id, is_retired);
        }
    }

    /// Attaches another node's disk. A disk that was this node's is closed: a recovery has left
    /// this node out of the cluster, and an administrator has put the disk into another server
    /// (`crate::returning`).
    fn follow_other_disk(&self, record: &DiskRecord, known: Option<&DiskRecord>) {
        let Some(space) = self.pools.space(record.pool) else { return };
        if self.disks.remove(record.id).is_some() {
            drop(space.detach_disk(record.id));
        }
        let is_retired = record.state == DiskState::Retired;
        if known.is_none_or(|known| (known.state == DiskState::Retired) != is_retired) {
            space.set_retired(record.id, is_retired);
        }
        let is_new = !space.is_remote(record.id);
        let moved = known
            .is_some_and(|known| (known.node, &known.fault_domain) != (record.node, &record.fault_domain));
        if is_new || moved {
            // The disk's node soon reports its free slabs.
            let slabs = record.size_bytes / record.slab_bytes.max(1);
            space.attach_remote_disk(record.id, (slabs, slabs), record.fault_domain.clone());
        }
    }

    fn follow_volumes(&self, volumes: &[VolumeRecord]) {
        self.peers.set_volumes(volumes.iter().cloned());
        for record in volumes {
            if let Some(space) = self.pools.space(record.pool) {
                // If the volume is open here and another node has claimed it, it stops.
                space.note_record(record);
            }
            if !record.is_unfinished {
                self.volumes.note_elsewhere(record);
            }
        }
        let gone: Vec<VolumeId> = {
            let seen = self.seen.borrow();
            let is_recorded = |id: &VolumeId| volumes.iter().any(|volume| volume.id == *id);
            seen.volumes.iter().copied().filter(|id| !is_recorded(id)).collect()
        };
        for volume in gone.into_iter().filter(|volume| self.volumes.is_elsewhere(*volume)) {
            self.volumes.forget(volume);
        }
    }

    /// Takes no volume over from now on, since the server stops.
    pub fn stop(&self) {
        self.is_stopping.set(true);
    }

    /// Opens the volumes that this node should have and does not.
    pub fn take_over(&self) {
        if self.is_stopping.get() {
            return;
        }
        for (id, record) in self.peers.to_have() {
            if !self.volumes.is_elsewhere(id) && self.volumes.entries().contains_key(&id) {
                continue;
            }
            if record.is_unfinished {
                self.remove_unfinished(record);
                continue;
            }
            if let Some(owner) = record.owner.filter(|owner| Some(*owner) != self.peers.own()) {
                let down_ms = self.peers.down_for(owner, self.tasks.now()).map(|down| down.as_millis());
                tracing::warn!(volume = %id, name = record.name, from = self.peers.name(owner), ?down_ms, "a volume is taken over");
            }
            self.opener.open(record);
        }
    }
}

impl RecordWatch {
    /// Removes a volume that no process makes any more. Volumes that this process makes are not
    /// among these.
    fn remove_unfinished(&self, record: VolumeRecord) {
        let mut unfinished = self.unfinished.borrow_mut();
        if record.owner != self.peers.own() {
            unfinished.entry(record.id).or_insert(false);
        }
        if let Some(is_being_removed) = unfinished.get_mut(&record.id)
            && !std::mem::replace(is_being_removed, true)
        {
            self.care.remove_unfinished(record);
        }
    }
}

/// Records that the node begins another incarnation. Returns its number.
fn record_life(state: &records::State, node: NodeId) -> Result<u64, StateError> {
    let found = state.read::<NodeLease>(&node.to_string())?;
    let (revision, before) = found.map_or((0, 0), |found| (found.revision, found.value.incarnation));
    let lease = NodeLease { node, incarnation: before + 1 };
    state.write(&lease, revision).map(|_| lease.incarnation)
}

fn values<R>(stored: Vec<Stored<R>>) -> Vec<R> {
    stored.into_iter().map(|stored| stored.value).collect()
}
