//! Creation, growth, move and deletion of volumes.

use crate::disks::{Asked, Disks, Freed};
use crate::error::{Done, Error, ErrorKind};
use crate::peers::Peers;
use crate::pools::{PoolSpace, Pools};
use crate::state::State;
use crate::tasks::{Tasks, until};
use crate::volume_opening::VolumeOpener;
use crate::volumes::Volumes;
use records::{
    DeletedVolume, DiskRecord, DiskState, PoolRecord, Provisioning, Record, Resiliency, StateError,
    Transaction, Typed, VolumeRecord,
};
use space::coordinator::Phase;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::size::show_size;
use types::{BLOCK_BYTES, DiskId, NodeId, PoolId, VolumeId};
use uuid::Uuid;
use volume::fs::{Format, FsError};

/// Timeout for recording a change.
const RECORD_PATIENCE: Duration = Duration::from_secs(30);
/// Attempts to update a record that others change at the same time.
const WRITES_MAX: usize = 10;
/// Time for which an administrator waits for the removal of the rest of a volume.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failed deletion of a record.
const REMOVAL_PAUSE: Duration = Duration::from_secs(1);

/// Parameters of a new volume.
#[derive(Debug, Clone)]
pub struct NewVolume {
    /// Name of the volume, unique among all volumes of the records.
    pub name: String,
    /// Pool that the volume's slabs come from.
    pub pool: PoolId,
    /// Number of copies of each chunk.
    pub resiliency: Resiliency,
    /// Whether slabs are taken at once (fixed) or when first written (thin).
    pub provisioning: Provisioning,
    /// Size in bytes, rounded up to whole slabs.
    pub size_bytes: u64,
    /// Fill level, in percent, at which health warns; `None`: by the usual rule.
    pub warn_at_percent: Option<u8>,
}

/// Makes, resizes and deletes volumes.
#[derive(Clone)]
pub struct VolumeCare {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) state: State,
    pub(crate) disks: Rc<Disks>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) opener: VolumeOpener,
    pub(crate) peers: Rc<Peers>,
}

impl VolumeCare {
    fn space_of(&self, volume: VolumeId) -> Done<PoolSpace> {
        if self.volumes.is_elsewhere(volume) {
            let name = self.volumes.name(volume);
            let owner = self.peers.owner(volume).map_or("another one".to_owned(), |node| node.to_string());
            let why = format!("node {owner} has volume {name}: that one has to be asked");
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let space = self.volumes.pool_of(volume).ok().and_then(|pool| self.pools.space(pool));
        space.ok_or_else(|| Error::not_found("volume", volume))
    }

    /// Makes a virtual disk with an empty file layer on it, and serves it.
    ///
    /// The record marks the volume as unfinished until all of it exists: after a failure before
    /// that, or the server's end, nothing of it stays.
    ///
    /// # Errors
    /// The reason why it was not made; see [`ErrorKind`].
    pub async fn create(&self, new: NewVolume) -> Done<VolumeId> {
        if self.peers.drains() {
            let why =
                format!("volume '{}' was not made: this server drains; make it on another one", new.name);
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let slab_bytes = self.pools.slab_bytes(new.pool).ok_or_else(|| Error::not_found("pool", new.pool))?;
        let slab_bytes = slab_bytes.max(1);
        new.warn_at_percent.map_or(Ok(()), check_percent)?;
        let disks = self.members(new.pool, new.resiliency).await?;
        let size_bytes = whole_slabs(new.size_bytes, slab_bytes)?;
        match new.provisioning {
            Provisioning::Fixed => self.pools.promise(new.pool, size_bytes / slab_bytes, new.resiliency)?,
            Provisioning::Thin => self.check_room(new.pool, new.resiliency).await?,
        }
        let (id, pool) = (VolumeId(Uuid::new_v4()), new.pool);
        let mut record = VolumeRecord::new(
            id,
            pool,
            new.name.clone(),
            new.resiliency,
            size_bytes,
            new.provisioning,
            disks,
            self.tasks.unix_seconds(),
        );
        record.is_unfinished = true;
        record.owner = self.peers.own();
        record.warn_at_percent = new.warn_at_percent;
        let format = self.format(id, new.name.clone())?;
        self.record(record.clone()).await?;
        let Err(why) = self.opener.make(record, format).await else { return Ok(id) };
        self.remove_in_time(id, pool).await;
        Err(Error::new(why.kind, format!("volume '{}' was not made: {}", new.name, why.message)))
    }

    /// Checks that the pool has space for the chunks that the smallest volume needs at once.
    async fn check_room(&self, pool: PoolId, resiliency: Resiliency) -> Done<()> {
        let (copies, least) = (resiliency.copies(), u64::from(volume::fs::CHUNKS_MIN));
        self.pools.refresh(pool);
        let available = self.pools.space_for(pool)?.available_chunks(copies);
        if available >= least {
            return Ok(());
        }
        let why = format!(
            "a new volume needs {least} slabs in {copies} copies at once, and the pool has room for {available} beside its reserve: add \
             disks, or delete data"
        );
        Err(Error::new(ErrorKind::NoSpace, why))
    }

    /// Begins to remove a volume that was being made when the server ended.
    pub(crate) fn remove_unfinished(&self, record: VolumeRecord) {
        let why = "a volume was being made when the server ended: what there is of it is removed";
        tracing::warn!(volume = %record.id, name = record.name, why);
        let care = self.clone();
        self.tasks.spawn(async move { care.remove(record.id, record.pool, true).await });
    }

    /// Removes a volume that could not be made. If that takes longer than an administrator waits, it
    /// continues in the background.
    async fn remove_in_time(&self, volume: VolumeId, pool: PoolId) {
        let (care, is_gone) = (self.clone(), Rc::new(Cell::new(false)));
        let gone = is_gone.clone();
        self.tasks.spawn(async move {
            care.remove(volume, pool, false).await;
            gone.set(true);
        });
        let patience = self.tasks.now().after(REMOVAL_PATIENCE);
        self.tasks.until_late(patience, || is_gone.get().then_some(())).await;
    }

    /// Removes all parts of a volume that was never finished.
    ///
    /// `only_unfinished`: unless a node that was wrongly declared dead has finished it meanwhile.
    async fn remove(&self, volume: VolumeId, pool: PoolId, only_unfinished: bool) {
        if let Some(space) = self.pools.space(pool) {
            self.close(volume, &space).await;
        }
        loop {
            match self.forget_record(volume, pool, only_unfinished).await {
                Ok(true) => break,
                Ok(false) => {
                    tracing::info!(%volume, "a volume that was taken for unfinished is finished by now: it stays");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%volume, %error, "the record of a volume that was not made cannot be removed yet");
                    self.tasks.rest(REMOVAL_PAUSE).await;
                }
            }
        }
        self.volumes.forget(volume);
        self.give_slabs_back(volume, pool).freed().await;
    }

    /// Lists the disks of a pool on which a new volume begins: the present ones. Volumes get the
    /// others when they are back, like any disk added to the pool.
    async fn members(&self, pool: PoolId, resiliency: Resiliency) -> Done<Vec<DiskId>> {
        // Disks of a pool that was just imported may still be opened.
        until(|| self.disks.were_all_tried().then_some(())).await;
        let slots = self.disks.slots();
        let others = self.peers.disks();
        let own = slots.values().map(|slot| (&slot.record, slot.is_usable()));
        let is_there =
            |record: &DiskRecord| record.state == DiskState::Healthy && !self.peers.is_down(record.id);
        let others = others.values().map(|record| (record, is_there(record)));
        let of_pool = own.chain(others).filter(|(record, _)| record.pool == pool);
        let all: Vec<(&DiskRecord, bool)> =
            of_pool.filter(|(record, _)| record.state != DiskState::Retired).collect();
        choose_members(&all, resiliency.copies())
    }

    fn format(&self, id: VolumeId, label: String) -> Done<Format> {
        let mut serial = [0; 4];
        getrandom::fill(&mut serial).map_err(|why| Error::io(format!("no random bytes: {why}")))?;
        let root_security = volume::security::volume_root()
            .build()
            .map_err(|status| Error::io(format!("the root's security descriptor: {status:?}")))?;
        Ok(Format {
            id: id.to_bytes(),
            label,
            serial: u32::from_le_bytes(serial),
            now: self.tasks.wall_clock(),
            root_security,
        })
    }

    /// Checks that no other volume has the name, and writes the record.
    async fn record(&self, record: VolumeRecord) -> Done<()> {
        let name = record.name.clone();
        let written = self.state.change(move |state| write_new(state, &record)).await?;
        let why = match written {
            Written::Yes => return Ok(()),
            Written::NameTaken => format!("a volume named {name} exists already"),
            Written::PoolGone => "the pool is being deleted".to_owned(),
            Written::NoRoom => {
                let why = "the pool's disks have no room for the records of one more volume: without these an import would lose it. \
                           Delete volumes, or make it in another pool";
                return Err(Error::new(ErrorKind::NoSpace, why));
            }
        };
        Err(Error::new(ErrorKind::Conflict, why))
    }

    /// Grows the volume to `size_bytes`, rounded up to whole slabs. Clients see the new space at
    /// once.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if it would shrink, or is too large; `NoSpace`; `Unavailable` if the new size is not recorded in time.
    pub async fn resize(&self, volume: VolumeId, size_bytes: u64) -> Done<()> {
        let space = self.space_of(volume)?;
        let record = space.record(volume).ok_or_else(|| Error::not_found("volume", volume))?;
        if size_bytes < record.size_bytes {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("volume {} has {} and can only grow", record.name, show_size(record.size_bytes)),
            ));
        }
        let slab_bytes = self.pools.slab_bytes(record.pool).unwrap_or(1).max(1);
        let size_bytes = whole_slabs(size_bytes, slab_bytes)?;
        if record.provisioning == Provisioning::Fixed {
            let more = (size_bytes - record.size_bytes) / slab_bytes;
            self.pools.promise(record.pool, more, record.resiliency)?;
        }
        space.with_volume(volume, |coordinator| coordinator.resize(size_bytes));
        self.recorded(volume, &space, "the new size", |record| record.size_bytes >= size_bytes).await?;
        let Some(served) = self.volumes.served(volume) else { return Ok(()) };
        match served.with_mut(|service| service.file_system_mut().grow()) {
            // A volume that is being opened reads its full size.
            Ok(()) | Err(FsError::Miss) => Ok(()),
            Err(why) => Err(Error::io(format!("volume {} did not grow: {why}", record.name))),
        }
    }

    /// Sets the fill level, in percent, at which health warns.
    ///
    /// # Errors
    /// `NotFound`; `Invalid`; `Unavailable` if the level is not recorded in time.
    pub async fn set_warning_at(&self, volume: VolumeId, percent: u8) -> Done<()> {
        check_percent(percent)?;
        let space = self.space_of(volume)?;
        self.volumes.served_for(volume)?;
        space.with_volume(volume, |coordinator| coordinator.set_warning_at(percent));
        let is_set = |record: &VolumeRecord| record.warn_at_percent == Some(percent);
        self.recorded(volume, &space, "the new threshold", is_set).await
    }

    /// Waits until the volume's record is as requested.
    async fn recorded(
        &self,
        volume: VolumeId,
        space: &PoolSpace,
        what: &str,
        is_wanted: impl Fn(&VolumeRecord) -> bool,
    ) -> Done<()> {
        let patience = self.tasks.now().after(RECORD_PATIENCE);
        let is_done = || space.record(volume).is_some_and(|record| is_wanted(&record));
        if self.tasks.until_late(patience, || is_done().then_some(())).await.is_some() {
            return Ok(());
        }
        let name = self.volumes.name(volume);
        let why = format!("{what} of volume {name} is not recorded yet; see `cenote health`");
        Err(Error::new(ErrorKind::Unavailable, why))
    }

    /// Deletes the volume. Returns when all present disks have given its slabs back, or earlier if
    /// that takes long.
    ///
    /// One commit deletes the volume's record and adds a note that its slabs remain to be given
    /// back: after a crash, the next start continues with that.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if it is being made or deleted; or the state could not be written, and the volume stays.
    pub async fn delete(&self, volume: VolumeId) -> Done<()> {
        let (space, pool) = (self.space_of(volume)?, self.volumes.pool_of(volume)?);
        if !self.volumes.begin_deletion(volume, self.tasks.now()) {
            let why = format!("volume {} is being made or deleted", self.volumes.name(volume));
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        self.close(volume, &space).await;
        if let Err(why) = self.forget_record(volume, pool, false).await {
            self.volumes.deletion_failed(volume, format!("it could not be deleted: {why}"));
            return Err(why);
        }
        self.volumes.forget(volume);
        let giving_back = self.give_slabs_back(volume, pool);
        let patience = self.tasks.now().after(REMOVAL_PATIENCE);
        self.tasks.until_late(patience, || giving_back.is_done().then_some(())).await;
        Ok(())
    }

    /// Hands the volume over to another node, which opens it as soon as it learns of that. Clients
    /// lose their opens of it here.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` if another node has it, or this is a single server, or the other node
    /// is absent; else the reason why it was not handed over, and stays here.
    pub async fn move_to(&self, volume: VolumeId, node: NodeId) -> Done<()> {
        let (space, pool) = (self.space_of(volume)?, self.volumes.pool_of(volume)?);
        self.volumes.served_for(volume)?;
        if self.peers.own().is_none_or(|own| own == node) || !self.peers.is_up(node) {
            let why = format!("{} is not another server of the cluster that is up", self.peers.name(node));
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let began = self.tasks.now();
        let Some(served) = self.volumes.withdraw(volume, began) else {
            return Err(self.volumes.not_served(volume));
        };
        let deadline = began.after(RECORD_PATIENCE);
        let is_late = || {
            self.tasks.wake_at(deadline);
            self.tasks.now() >= deadline
        };
        let durable = served.make_durable_alone(is_late).await;
        self.volumes.note_stopped(volume, self.tasks.now());
        served.dismount();
        drop(served);
        self.close(volume, &space).await;
        let handed_over = match durable {
            Ok(()) => {
                let own = self.peers.own();
                self.state.change(move |state| hand_over(state, volume, own, node)).await
            }
            Err(status) => Err(Error::io(format!("it could not be made durable: {status:?}"))),
        };
        let name = self.volumes.name(volume);
        match handed_over {
            Ok(false) => {
                self.volumes.note_claimed_elsewhere(volume);
                let why = format!("volume {name} was not handed over: another node has claimed it meanwhile");
                Err(Error::new(ErrorKind::Conflict, why))
            }
            Ok(true) => {
                let ms = self.tasks.now().since(began).as_millis();
                tracing::info!(%volume, name, to = self.peers.name(node), ms, "a volume was handed over");
                self.volumes.note_claimed_elsewhere(volume);
                Ok(())
            }
            Err(why) => {
                let why = Error::new(why.kind, format!("volume {name} was not handed over: {}", why.message));
                self.volumes.note_ended(volume, why.message.clone());
                tracing::error!(%volume, name, %pool, why = why.message, "a volume stays here");
                Err(why)
            }
        }
    }

    /// Takes the volume away from clients, and closes its virtual disk.
    async fn close(&self, volume: VolumeId, space: &PoolSpace) {
        self.volumes.dismount(volume, self.tasks.now());
        space.close_volume(volume);
        until(|| match space.phase(volume) {
            Some(Phase::Opening | Phase::Serving | Phase::Closing) => None,
            _ => Some(()),
        })
        .await;
        space.forget_volume(volume);
    }

    /// Deletes the volume's record, and notes that its slabs are to be given back.
    async fn forget_record(&self, volume: VolumeId, pool: PoolId, only_unfinished: bool) -> Done<bool> {
        self.state.change(move |state| forget_record(state, volume, pool, only_unfinished)).await
    }

    /// Begins to give back the slabs of a deleted volume, and removes the note once no disk of the
    /// pool has any.
    pub(crate) fn give_slabs_back(&self, volume: VolumeId, pool: PoolId) -> GivingBack {
        let (care, giving_back) = (self.clone(), GivingBack::default());
        let done = giving_back.clone();
        self.tasks.spawn(async move {
            let mut asked = Asked::default();
            until(|| {
                let freed = care.disks.free_chunks(volume, pool, &mut asked, care.tasks.now());
                if freed != Freed::No && !done.0.replace(true) {
                    // The freed space is available to others at once.
                    care.pools.refresh(pool);
                }
                (freed == Freed::Everywhere).then_some(())
            })
            .await;
            let own = care.peers.own().map(|_| care.disks.of_pool(pool));
            let removed = care.state.change(move |state| match own {
                Some(own) => note_freed(state, volume, &own),
                None => {
                    let key = DeletedVolume::key_of(&volume.to_string());
                    state.commit(Transaction::default().delete(key)).map(|_| ())
                }
            });
            if let Err(error) = removed.await {
                tracing::warn!(%volume, %error, "the note of a deleted volume stays until the next start");
            }
        });
        giving_back
    }
}

/// Slabs of a deleted volume that are being given back.
#[derive(Clone, Default)]
pub(crate) struct GivingBack(Rc<Cell<bool>>);

impl GivingBack {
    /// Whether no present disk has anything of the volume any more.
    fn is_done(&self) -> bool {
        self.0.get()
    }

    async fn freed(&self) {
        until(|| self.is_done().then_some(())).await;
    }
}

/// Chooses the disks on which a new volume begins, from all that are not about to leave the pool,
/// each with whether it is present.
///
/// Copies are not crowded on the servers that are up: if the pool has a server for each copy, as
/// many must be up now.
fn choose_members(all: &[(&DiskRecord, bool)], copies: u8) -> Done<Vec<DiskId>> {
    let least = usize::from(copies);
    let there = || all.iter().filter(|(_, is_there)| *is_there).map(|(record, _)| *record);
    let servers: BTreeSet<&str> = all.iter().map(|(record, _)| &record.fault_domain.node[..]).collect();
    let up: BTreeSet<&str> = there().map(|record| &record.fault_domain.node[..]).collect();
    if all.len() < least {
        let why = format!("{copies} copies need {copies} disks; the pool has {}", all.len());
        return Err(Error::new(ErrorKind::Invalid, why));
    }
    if servers.len() >= least && up.len() < least {
        let away: Vec<&str> = servers.difference(&up).copied().filter(|name| !name.is_empty()).collect();
        let why = format!(
            "{copies} copies lie on {copies} servers, and none of the pool's disks is there on {}: start the server, or make a volume with fewer copies",
            if away.is_empty() { "this server".to_owned() } else { away.join(", ") }
        );
        return Err(Error::new(ErrorKind::Unavailable, why));
    }
    let disks: Vec<DiskId> = there().map(|record| record.id).collect();
    if disks.len() < least {
        let why = format!(
            "{copies} copies need {copies} disks, and {} of the pool's {} are there: see `cenote disk list`",
            disks.len(),
            all.len()
        );
        return Err(Error::new(ErrorKind::Unavailable, why));
    }
    Ok(disks)
}

/// Deletes a volume's record, and notes that its slabs remain to be given back. `false`: the volume
/// is finished, and stays.
fn forget_record(
    state: &records::State,
    volume: VolumeId,
    pool: PoolId,
    only_unfinished: bool,
) -> Result<bool, StateError> {
    let (key, mut changes) = (VolumeRecord::key_of(&volume.to_string()), Transaction::default());
    if only_unfinished && let Some(found) = state.read::<VolumeRecord>(&volume.to_string())? {
        if !found.value.is_unfinished {
            return Ok(false);
        }
        changes = changes.when(key.clone(), found.revision);
    }
    let note = DeletedVolume { id: volume, pool, freed: Vec::new() };
    state.commit(changes.delete(key).put(note.key(), note.encode())).map(|_| true)
}

/// Records that another node should have a closed volume of `own`. `false`: a third one has claimed
/// it meanwhile, and has it.
fn hand_over(
    state: &records::State,
    volume: VolumeId,
    own: Option<NodeId>,
    node: NodeId,
) -> Result<bool, StateError> {
    let Some(found) = state.read::<VolumeRecord>(&volume.to_string())? else { return Ok(true) };
    if found.value.owner != own {
        return Ok(false);
    }
    let record = VolumeRecord { owner: Some(node), coordinator: 0, ..found.value };
    state.write(&record, found.revision).map(|_| true)
}

/// Notes that these disks have nothing of a deleted volume any more. The last of the pool's disks
/// removes the note.
fn note_freed(state: &records::State, volume: VolumeId, disks: &[DiskId]) -> Result<(), StateError> {
    for _ in 0..WRITES_MAX {
        let Some(found) = state.read::<DeletedVolume>(&volume.to_string())? else { return Ok(()) };
        let mut note = found.value;
        note.freed.extend(disks);
        note.freed.sort_unstable();
        note.freed.dedup();
        let recorded = state.list::<DiskRecord>()?;
        let mut own = recorded.iter().map(|disk| &disk.value).filter(|disk| disk.pool == note.pool);
        let is_last = own.all(|disk| note.freed.contains(&disk.id));
        let written = match is_last {
            true => state.remove::<DeletedVolume>(&volume.to_string(), found.revision),
            false => state.write(&note, found.revision).map(|_| ()),
        };
        match written {
            Err(StateError::Conflict) => {}
            written => return written,
        }
    }
    Err(StateError::Conflict)
}

/// Outcome of writing the record of a new volume.
enum Written {
    Yes,
    NameTaken,
    PoolGone,
    /// The pool's disks have no space for its record.
    NoRoom,
}

/// Writes the record of a new volume, unless its name is taken. The pool's record is written anew with
/// it, unchanged, so that a concurrent deletion of the pool notices.
fn write_new(state: &records::State, record: &VolumeRecord) -> Result<Written, StateError> {
    let same = |other: &str| other.to_lowercase() == record.name.to_lowercase();
    for _ in 0..WRITES_MAX {
        if state.list::<VolumeRecord>()?.iter().any(|other| same(&other.value.name)) {
            return Ok(Written::NameTaken);
        }
        let Some(pool) = state.read::<PoolRecord>(&record.pool.to_string())? else {
            return Ok(Written::PoolGone);
        };
        if !records::image::has_room_for(&state.dump()?, record, store::RECORDS_BYTES_MAX) {
            return Ok(Written::NoRoom);
        }
        let key = pool.value.key();
        let transaction = Transaction::default().when(key.clone(), pool.revision).when(record.key(), 0);
        let transaction = transaction.put(key, pool.value.encode()).put(record.key(), record.encode());
        match state.commit(transaction) {
            Err(StateError::Conflict) => {}
            committed => return committed.map(|_| Written::Yes),
        }
    }
    Err(StateError::Conflict)
}

/// Checks a threshold in percent.
fn check_percent(percent: u8) -> Done<()> {
    match percent {
        1..=100 => Ok(()),
        _ => {
            Err(Error::new(ErrorKind::Invalid, format!("{percent} is not a number of percent from 1 to 100")))
        }
    }
}

/// Rounds the size of a volume up.
fn whole_slabs(size_bytes: u64, slab_bytes: u64) -> Done<u64> {
    if size_bytes == 0 {
        return Err(Error::new(ErrorKind::Invalid, "a volume has a size"));
    }
    let size_bytes = size_bytes.checked_next_multiple_of(slab_bytes);
    let size_bytes = size_bytes.ok_or_else(|| Error::new(ErrorKind::Invalid, "the size is too large"))?;
    let least_bytes = u64::from(volume::fs::CHUNKS_MIN) * slab_bytes;
    if size_bytes < least_bytes {
        let least = show_size(least_bytes);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the smallest volume of this pool has {least}: make it larger"),
        ));
    }
    let slab_blocks = u32::try_from(slab_bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
    let most_bytes = u64::from(volume::fs::chunks_max(slab_blocks)) * slab_bytes;
    if size_bytes > most_bytes {
        let most = show_size(most_bytes);
        let why = format!("the largest volume of this pool has {most}: make it smaller");
        return Err(Error::new(ErrorKind::Invalid, why));
    }
    Ok(size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_another_node_has_claimed_is_not_handed_over() {
        let state = records::State::from(records::MemoryState::new());
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (name, thin) = ("data".to_owned(), Provisioning::Thin);
        let mut record = VolumeRecord::new(id, pool, name, Resiliency::TwoWay, 1 << 30, thin, Vec::new(), 0);
        (record.owner, record.coordinator) = (Some(NodeId(2)), 7);
        state.write(&record, 0).unwrap();
        assert!(!hand_over(&state, id, Some(NodeId(1)), NodeId(3)).unwrap());
        assert_eq!(state.read::<VolumeRecord>(&id.to_string()).unwrap().unwrap().value, record);
        assert!(hand_over(&state, id, Some(NodeId(2)), NodeId(3)).unwrap());
        let handed_over = state.read::<VolumeRecord>(&id.to_string()).unwrap().unwrap().value;
        assert_eq!((handed_over.owner, handed_over.coordinator), (Some(NodeId(3)), 0));
    }

    #[test]
    fn a_volume_that_was_finished_meanwhile_is_not_removed_as_an_unfinished_one() {
        let state = records::State::from(records::MemoryState::new());
        let (id, pool) = (VolumeId::from_bytes([1; 16]), PoolId::from_bytes([2; 16]));
        let (name, thin) = ("data".to_owned(), Provisioning::Thin);
        let record = VolumeRecord::new(id, pool, name, Resiliency::TwoWay, 1 << 30, thin, Vec::new(), 0);
        let is_there = || state.read::<VolumeRecord>(&id.to_string()).unwrap().is_some();
        let revision = state.write(&record, 0).unwrap();
        assert!(!forget_record(&state, id, pool, true).unwrap() && is_there());
        state.write(&VolumeRecord { is_unfinished: true, ..record }, revision).unwrap();
        assert!(forget_record(&state, id, pool, true).unwrap() && !is_there());
    }

    #[test]
    fn new_volumes_begin_on_disks_that_are_there_if_each_copy_has_a_server() {
        let disk = |number: u8, node: &str| DiskRecord {
            id: DiskId::from_bytes([number; 16]),
            pool: PoolId::from_bytes([2; 16]),
            node: None,
            path: String::new(),
            size_bytes: 1 << 30,
            slab_bytes: 1 << 26,
            fault_domain: records::FaultDomain { node: node.to_owned(), ..Default::default() },
            state: DiskState::Healthy,
            since_unix_s: 0,
            scrubbed_unix_s: 0,
        };
        let disks = [disk(1, "a"), disk(2, "a"), disk(3, "b"), disk(4, "c"), disk(5, "c")];
        let choose = |there: &[u8], copies: u8| {
            let is_there = |disk: &DiskRecord| there.contains(&disk.id.to_bytes()[0]);
            let all: Vec<(&DiskRecord, bool)> = disks.iter().map(|disk| (disk, is_there(disk))).collect();
            let chosen = choose_members(&all, copies);
            chosen.map(|disks| disks.iter().map(|disk| disk.to_bytes()[0]).collect::<Vec<_>>())
        };
        assert_eq!(choose(&[1, 2, 3, 4, 5], 3).unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!(choose(&[1, 2, 3], 2).unwrap(), [1, 2, 3]);
        let refused = choose(&[1, 2, 3], 3).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unavailable);
        assert!(refused.message.contains("there on c:"), "{}", refused.message);
        assert_eq!(choose(&[1, 2, 3, 4, 5], 6).unwrap_err().kind, ErrorKind::Invalid);
        let refused = choose(&[1, 2], 2).unwrap_err();
        assert!(refused.message.contains("b, c"), "{}", refused.message);
    }

    #[test]
    fn a_size_is_rounded_up_to_slabs_and_refused_if_it_is_none_too_small_or_too_large() {
        const SLAB: u64 = 64 << 20;
        let least = u64::from(volume::fs::CHUNKS_MIN) * SLAB;
        assert_eq!(whole_slabs(least + 1, SLAB).expect("a size"), least + SLAB);
        assert_eq!(whole_slabs(64 << 40, SLAB).expect("a size"), 64 << 40);
        for refused in [0, 1, least - SLAB, (64 << 40) + 1, u64::MAX] {
            assert_eq!(whole_slabs(refused, SLAB).expect_err("no size").kind, ErrorKind::Invalid);
        }
    }
}
