//! Opens a recorded disk: its file, its store, its place in the pool's space.
//!
//! Promises: a disk that carries newer records than the state is never used; an older image of a disk is
//! not used if a later copy is found. Nothing here blocks: blocking calls run on helper threads.

use crate::disk_slot::Condition;
use crate::disk_store::DiskStore;
use crate::disks::Disks;
use crate::metered_disk::{Counters, MeteredDisk};
use crate::peers::Peers;
use crate::persisted::PersistedState;
use crate::pools::Pools;
use crate::promises::promised_by_record;
use crate::tasks::{Tasks, until};
use disk::partition::{TableState, look_after_table};
use disk::{Disk, FileDiskOptions, OpenedFile};
use records::image::PoolImage;
use records::import::FoundDisk;
use records::{DiskRecord, DiskState, PoolRecord, Typed, VolumeRecord};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use store::{OpenError, Store, StoreOpening, StoreOptions};
use sys::driver::Driver;
use types::{Epoch, VolumeId};

/// Puts an opened file on the loop, with a timeout for each operation. Test builds add faults.
pub type OnLoop = fn(&Driver, OpenedFile, Duration) -> std::io::Result<Box<dyn Disk>>;

/// Puts an opened file on the loop as it is.
///
/// # Errors
/// None.
pub fn on_loop(driver: &Driver, opened: OpenedFile, _: Duration) -> std::io::Result<Box<dyn Disk>> {
    // The file has its timeout already.
    Ok(Box::new(disk::FileDisk::new(driver, opened)))
}

/// The reason why a disk is not used.
struct Refusal {
    why: String,
    /// Whether the disk's data are damaged for good: it answers, but contradicts itself.
    is_damaged: bool,
    /// Whether the pool's records on a disk are newer than this server's.
    is_ahead: bool,
}

impl Refusal {
    fn ahead(why: String) -> Self {
        Self { why, is_damaged: false, is_ahead: true }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { why, is_damaged: false, is_ahead: false }
    }
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        let is_damaged = matches!(error, OpenError::Damaged { .. } | OpenError::JournalDamaged { .. });
        Self { why: error.to_string(), is_damaged, is_ahead: false }
    }
}

/// An opened store, and the state of the partition table around it.
type Opened = (Store<MeteredDisk>, TableState);

/// Opens disks.
#[derive(Clone)]
pub(crate) struct DiskOpener {
    pub driver: Driver,
    pub on_loop: OnLoop,
    /// Directories to search for disks that have moved.
    pub search: Rc<Vec<PathBuf>>,
    pub tasks: Rc<Tasks>,
    pub disks: Rc<Disks>,
    pub pools: Rc<Pools>,
    pub kept: Rc<PersistedState>,
    pub peers: Rc<Peers>,
}

impl DiskOpener {
    /// Begins to open a disk.
    pub(crate) fn begin(&self, record: DiskRecord) {
        let opener = self.clone();
        self.tasks.spawn(async move { opener.open(record).await });
    }

    async fn open(&self, mut record: DiskRecord) {
        let known = self.disks.slots().get(&record.id).map(|slot| slot.counters.clone());
        // `None`: the disk left its pool meanwhile.
        let Some(counters) = known else { return };
        let mut result = self.open_store(&record, counters.clone()).await;
        let old = match &result {
            Ok(opened) => self.old_image(&record, &opened.0).await,
            Err(_) => None,
        };
        if result.is_err() || old.is_some() {
            match self.find_latest(&record, old).await {
                Ok(Some(path)) if path != record.path => {
                    tracing::warn!(disk = %record.id, from = record.path, to = path, "a disk has another path");
                    record.path = path;
                    // Closed first, since only one party at a time may write a label.
                    drop(result);
                    result = self.open_store(&record, counters).await;
                }
                Ok(_) => {}
                Err(why) => result = Err(why.into()),
            }
        }
        let result = match result {
            Ok(opened) => {
                let refused = self.refuse_newer_records(&record, opened.0.records()).await;
                refused.map(|()| opened)
            }
            failed => failed,
        };
        self.note(&record, result);
    }

    /// Finds the disk by its label, or a later copy of it than `opened`.
    async fn find_latest(
        &self,
        record: &DiskRecord,
        opened: Option<FoundDisk>,
    ) -> Result<Option<String>, String> {
        let (id, path, search) = (record.id, PathBuf::from(&record.path), self.search.to_vec());
        let find = move || crate::discovery::find(id, &path, &search, opened);
        self.tasks.blocking(find).await.unwrap_or(Ok(None))
    }

    /// Returns a report of an opened disk if it is an older image: it has promised less to some
    /// volume than the volume's record says, which has a promise only after the disk gave it. The
    /// right disk may be nearby.
    async fn old_image(&self, record: &DiskRecord, store: &Store<MeteredDisk>) -> Option<FoundDisk> {
        let promised: BTreeMap<VolumeId, Epoch> = store.promises().into_iter().collect();
        let state = self.kept.state().clone();
        let volumes = self.tasks.blocking(move || state.list::<VolumeRecord>().ok()).await.flatten()?;
        let is_behind = |volume: &VolumeRecord| {
            promised.get(&volume.id).copied().unwrap_or_default() < promised_by_record(volume, record.id)
        };
        volumes.iter().map(|found| &found.value).any(is_behind).then(|| FoundDisk {
            path: record.path.clone(),
            disk: record.id,
            pool: record.pool,
            image: PoolImage::parse(store.records()).map_err(|error| error.to_string()),
            promised,
        })
    }

    async fn open_store(&self, record: &DiskRecord, counters: Rc<Counters>) -> Result<Opened, Refusal> {
        let (path, time_bound) = (record.path.clone(), self.disks.timeout());
        let open =
            move || OpenedFile::open(&path, FileDiskOptions { time_bound, ..FileDiskOptions::default() });
        let opened = self.tasks.blocking(open).await.ok_or_else(|| "no thread to open it on".to_owned())?;
        let opened = opened.map_err(|error| error.to_string())?;
        if let Some(slot) = self.disks.slots_mut().get_mut(&record.id) {
            if let Condition::Opening { has_answered, .. } = &mut slot.condition {
                *has_answered = true;
            }
            (slot.watch, slot.file) = (Some(opened.watch()), Default::default());
            slot.host = Default::default();
        }
        counters.lost.set(false);
        let disk = (self.on_loop)(&self.driver, opened, time_bound).map_err(|error| error.to_string())?;
        // On a node the checksums may come from a space on another node, over a network.
        let verify_writes = self.peers.own().is_some();
        let options = StoreOptions { pool: Some(record.pool), verify_writes, ..StoreOptions::default() };
        let mut opening = StoreOpening::new(MeteredDisk::new(disk, counters), options);
        let store = until(|| opening.poll()).await?;
        if store.label().disk != record.id {
            return Err(format!("another disk of the pool is there: {}", store.label().disk).into());
        }
        Ok((store, self.look_after_table(&record.path).await))
    }

    /// Repairs the partition table around a disk. The disk has our label and is ours alone, so no
    /// other data lie at the place of the table.
    async fn look_after_table(&self, disk: &str) -> TableState {
        let path = PathBuf::from(disk);
        let table = self.tasks.blocking(move || look_after_table(&path, true)).await.unwrap_or_default();
        match &table {
            TableState::Whole => {}
            TableState::Repaired(copy) => {
                tracing::warn!(path = disk, "{copy} was damaged, and was written again")
            }
            TableState::Damaged(copy, why) => tracing::error!(path = disk, "{copy} is damaged: {why}"),
        }
        table
    }

    /// Refuses a disk that carries newer records than the cluster state. Such a state was restored
    /// from a copy, or the pool was imported elsewhere meanwhile. Copies that are in sync by the
    /// state no longer are, not even on the pool's other disks. Unless a volume is served already,
    /// the pool is not used from then on: a disk with old data could pass for the newest, and the
    /// newest data be overwritten.
    async fn refuse_newer_records(&self, record: &DiskRecord, carried: &[u8]) -> Result<(), Refusal> {
        let (disk, pool) = (record.id, record.pool);
        let Ok(carried) = PoolImage::parse(carried) else { return Ok(()) };
        let was_here = self.disks.slots().get(&disk).is_some_and(|slot| slot.was_here);
        let own = self.tasks.blocking(self.kept.own(pool, was_here)).await.flatten();
        let own = own.ok_or_else(|| "what the state says of its pool cannot be read".to_owned())?;
        if !carried.is_ahead_of(&own) {
            return self.pools.why_superseded(pool).map_or(Ok(()), |why| Err(Refusal::ahead(why)));
        }
        let name = own.records::<PoolRecord>().ok().and_then(|records| Some(records.first()?.name.clone()));
        let why = format!(
            "{} carries newer records of pool '{}' (by server {}) than this server's state: the state was restored from an \
             old copy, or the pool was imported elsewhere. Stop the server, move state.redb away, start it and import the \
             pool (`cenote pool import`)",
            record.path,
            name.unwrap_or_default(),
            carried.header.host
        );
        if self.pools.space(pool).is_some_and(|space| space.forget_unserved()) {
            self.pools.supersede(pool, &why);
            self.disks.close_all_of(pool, &why, &self.pools, self.tasks.now());
        }
        Err(Refusal::ahead(why))
    }

    fn note(&self, record: &DiskRecord, result: Result<Opened, Refusal>) {
        let attached = result.and_then(|(store, table)| Ok((self.attach(record, store)?, table)));
        let mut slots = self.disks.slots_mut();
        let Some(slot) = slots.get_mut(&record.id) else { return };
        match attached {
            Ok((store, table)) => {
                // Health reports a repair until the server restarts.
                if !matches!((&slot.table, &table), (TableState::Repaired(_), TableState::Whole)) {
                    slot.table = table;
                }
                tracing::info!(disk = %record.id, path = record.path, "disk opened");
                slot.why.clear();
                (slot.is_damaged, slot.is_ahead) = (false, false);
                slot.record.path.clone_from(&record.path);
                slot.fault = DiskState::Missing;
                slot.was_here = true;
                slot.change(Condition::Present(store), self.tasks.unix_seconds());
                self.disks.note_arrival();
            }
            Err(Refusal { why, is_damaged, is_ahead }) => {
                (slot.is_damaged, slot.is_ahead) = (is_damaged, is_ahead);
                if is_damaged {
                    // The disk is present but damaged, so it will not come back whole: rebuild its
                    // chunks on others at once.
                    slot.fault = DiskState::Failed;
                    if let Some(space) = self.pools.space(record.pool) {
                        space.give_up_disk(record.id);
                    }
                }
                if slot.why != why {
                    tracing::error!(disk = %record.id, path = record.path, why, "a disk cannot be opened");
                }
                slot.why = why;
                slot.condition = Condition::Absent { retry_at: slot.openings.ended(self.tasks.now()) };
            }
        }
    }

    fn attach(&self, record: &DiskRecord, store: Store<MeteredDisk>) -> Result<DiskStore, String> {
        let store = DiskStore::new(store);
        let space = self.pools.space(record.pool).ok_or("its pool is not recorded")?;
        if record.state == DiskState::Retired {
            space.set_retired(record.id, true);
        }
        let mut domain = record.fault_domain.clone();
        // The server may have become a node since the record was read.
        self.peers.name_domain(&mut domain);
        if self.peers.own().is_some() {
            store.verify_writes();
        }
        space.attach_disk(record.id, store.clone(), domain).map_err(|error| error.to_string())?;
        Ok(store)
    }
}
