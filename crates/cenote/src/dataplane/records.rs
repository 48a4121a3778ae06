//! The copies of the records on the disks (D8), kept up to date.
//!
//! Owns which revision of the cluster state every reachable disk carries. Promises: a coordinator hears that a change of its
//! volume's record was committed only after all disks of the pool that can be reached carry it, so that nothing is ever
//! acknowledged under members that a later import could not learn of; neither does it read a record back before (it reads where the
//! outcome of its change is unknown). A disk that does not take its copy holds that up no longer
//! than a disk may take to answer: it is taken out, or health tells. Never blocks: the state is read on a helper thread.
//!
//! A volume's epoch and what is settled change while writes go on; the disks may have them older ([`PoolImage::says_the_same`]),
//! which costs an import comparisons and no data. They are written every [`LAZY`] at most, and at the end.

use super::storage::Storage;
use super::tasks::{blocking, until};
use cluster::image::PoolImage;
use cluster::{
    Answer, ClusterState, RedbClient, RedbState, Request, StateCompletion, StateDump, StateError, Versioned,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{DiskId, Monotonic, PoolId};

/// What disks may have older is written so often at most.
const LAZY: Duration = Duration::from_secs(60);
/// The state could not be read: it is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// What the disks of a pool are to carry.
struct Copy {
    image: PoolImage,
    /// `None`: it has no room on a disk.
    bytes: Option<Rc<Vec<u8>>>,
    made_at: Monotonic,
}

/// See the module.
pub struct Keeper {
    state: RedbState,
    /// The state's revision when this process began: what it had not seen before then is not its own.
    began_at: u64,
    /// All disks that can be reached carry this revision, but for what they may have older.
    kept: Rc<Cell<u64>>,
    running: Cell<bool>,
    /// A disk came that may carry something else.
    again: Cell<bool>,
    /// What disks may have older is written too.
    exactly: Cell<bool>,
    copies: RefCell<BTreeMap<PoolId, Copy>>,
    /// What is wrong with a pool's copies.
    troubles: RefCell<BTreeMap<PoolId, String>>,
    host: String,
}

impl Keeper {
    pub fn new(state: RedbState) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            began_at: state.revision(),
            state,
            kept: Rc::default(),
            running: Cell::new(false),
            again: Cell::new(true),
            exactly: Cell::new(false),
            copies: RefCell::default(),
            troubles: RefCell::default(),
            host: host.trim().to_owned(),
        }
    }

    /// The state for coordinators.
    ///
    /// # Errors
    /// Where its thread cannot be started.
    pub fn client(&self, wake: impl Fn() + Send + 'static) -> Result<KeptClient, StateError> {
        let inner = self.state.client(wake)?;
        Ok(KeptClient { inner, kept: self.kept.clone(), held: Vec::new(), answers: Vec::new() })
    }

    /// The state's last revision.
    pub fn revision(&self) -> u64 {
        self.state.revision()
    }

    /// What a disk carries is compared with this: the pool as the state has it, under the revision of this process's beginning if the
    /// disk was not here since.
    pub(super) fn own(
        &self,
        pool: PoolId,
        was_here: bool,
    ) -> impl FnOnce() -> Option<PoolImage> + Send + 'static {
        let (state, began_at) = (self.state.clone(), self.began_at);
        move || {
            let mut own = PoolImage::of(&state.dump().ok()?, pool, "", 0)?;
            if !was_here {
                own.header.version.revision = own.header.version.revision.min(began_at);
            }
            Some(own)
        }
    }

    /// A disk came: it is given what the others carry.
    pub fn disk_came(&self) {
        self.again.set(true);
    }

    pub fn forget(&self, pool: PoolId) {
        self.copies.borrow_mut().remove(&pool);
        self.troubles.borrow_mut().remove(&pool);
    }

    /// Why some disks of a pool do not carry what they should.
    pub fn trouble(&self, pool: PoolId) -> Option<String> {
        self.troubles.borrow().get(&pool).cloned()
    }

    /// Whether there is work that nobody does yet; it is the caller's now ([`Storage::keep_records`]).
    pub fn begin(&self) -> bool {
        let due = !self.running.get() && (self.again.get() || self.kept.get() < self.revision());
        if due {
            self.running.set(true);
        }
        due
    }

    /// What the disks of these pools are to carry as of a revision.
    fn renew(&self, dump: &StateDump, pools: &[PoolId], now: Monotonic) {
        let mut copies = self.copies.borrow_mut();
        for &pool in pools {
            let Some(image) = PoolImage::of(dump, pool, &self.host, super::unix_seconds()) else { continue };
            let lazy = !self.exactly.get();
            let stays = copies.get(&pool).is_some_and(|copy| {
                let same = copy.image.says_the_same(&image);
                same && (copy.image.entries == image.entries || (lazy && now.since(copy.made_at) < LAZY))
            });
            if stays {
                continue;
            }
            let bytes = image.encode(store::RECORDS_BYTES_MAX).map(Rc::new);
            if bytes.is_none() {
                let why = "its volumes' records are larger than the 256 KiB that a disk holds";
                tracing::error!(%pool, why, "the pool's disks do not carry its records");
                self.troubles.borrow_mut().insert(pool, why.to_owned());
            }
            copies.insert(pool, Copy { image, bytes, made_at: now });
        }
    }
}

impl Storage {
    /// Brings the disks' copies up to the last revision.
    pub async fn keep_records(self: Rc<Self>) {
        while self.keeper.again.get() || self.keeper.kept.get() < self.keeper.revision() {
            self.keeper.again.set(false);
            let state = self.keeper.state.clone();
            let dump = match blocking(self.driver.waker(), move || state.dump()).await {
                Some(Ok(dump)) => dump,
                failed => {
                    tracing::error!(?failed, "the cluster state cannot be read for the disks' copies");
                    let at = self.now.get().after(AGAIN);
                    until(|| {
                        self.wake_at(at);
                        (self.now.get() >= at).then_some(())
                    })
                    .await;
                    continue;
                }
            };
            let pools: Vec<PoolId> = self.pools.borrow().keys().copied().collect();
            self.keeper.renew(&dump, &pools, self.now.get());
            for pool in pools {
                self.write_copies(pool).await;
            }
            self.keeper.kept.set(dump.revision);
        }
        self.keeper.running.set(false);
    }

    /// Gives a pool's disks what they should carry, and waits until they do or are gone.
    async fn write_copies(&self, pool: PoolId) {
        let bytes = self.keeper.copies.borrow().get(&pool).and_then(|copy| copy.bytes.clone());
        let Some(bytes) = bytes else { return };
        let (Some(space), mut lacking) = (self.space(pool), self.lacking(pool, &bytes)) else { return };
        if lacking.is_empty() {
            return;
        }
        space.keep_records(&bytes);
        let patience = self.now.get().after(self.disk_timeout * 3);
        let late = until(|| {
            let still = self.lacking(pool, &bytes);
            // Disks that came meanwhile have a turn of their own.
            lacking.retain(|disk| still.contains(disk));
            self.wake_at(patience);
            let late = self.now.get() >= patience;
            (lacking.is_empty() || late).then_some(late && !lacking.is_empty())
        })
        .await;
        let mut troubles = self.keeper.troubles.borrow_mut();
        if late {
            let disks: Vec<String> = lacking.iter().map(ToString::to_string).collect();
            let why = format!("{} did not take its copy of the records in time", disks.join(", "));
            tracing::error!(%pool, why);
            troubles.insert(pool, why);
        } else {
            troubles.remove(&pool);
        }
    }

    /// Reachable disks of a pool that carry something else.
    fn lacking(&self, pool: PoolId, bytes: &[u8]) -> BTreeSet<DiskId> {
        let disks = self.disks.borrow();
        let own = disks.values().filter(|slot| slot.record.pool == pool);
        own.filter(|slot| slot.store().is_some_and(|store| store.with(|store| store.records() != bytes)))
            .map(|slot| slot.record.id)
            .collect()
    }

    /// Waits until all reachable disks carry the records exactly as they are, or `give_up` says so.
    pub async fn records_kept(&self, give_up: impl Fn() -> bool) {
        self.keeper.exactly.set(true);
        self.keeper.again.set(true);
        until(|| {
            let done = !self.keeper.running.get()
                && !self.keeper.again.get()
                && self.keeper.kept.get() >= self.keeper.revision();
            (done || give_up()).then_some(())
        })
        .await;
        self.keeper.exactly.set(false);
    }
}

/// The cluster state for coordinators: a commit, and what was read, is answered once the disks carry it.
pub struct KeptClient {
    inner: RedbClient,
    kept: Rc<Cell<u64>>,
    held: Vec<(u64, StateCompletion)>,
    answers: Vec<StateCompletion>,
}

impl ClusterState for KeptClient {
    fn submit(&mut self, token: u64, request: Request) {
        self.inner.submit(token, request);
    }

    fn poll(&mut self, out: &mut Vec<StateCompletion>) {
        self.inner.poll(&mut self.answers);
        for completion in self.answers.drain(..) {
            match &completion.answer {
                Answer::Committed { revision } | Answer::Value(Some(Versioned { revision, .. })) => {
                    self.held.push((*revision, completion));
                }
                _ => out.push(completion),
            }
        }
        let kept = self.kept.get();
        for at in (0..self.held.len()).rev() {
            if self.held[at].0 <= kept {
                out.push(self.held.swap_remove(at).1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Keeper;
    use cluster::{Answer, ClusterState, RedbState, Request, Transaction, Typed};
    use std::time::{Duration, Instant};

    #[test]
    fn a_coordinator_neither_hears_of_nor_reads_back_what_the_disks_do_not_carry_yet() {
        let directory = tempfile::tempdir().unwrap();
        let state = RedbState::open(&directory.path().join("state.redb")).unwrap();
        let revision = state.commit(Transaction::default().put("volume/x", vec![1])).unwrap();
        let keeper = Keeper::new(state);
        let mut client = keeper.client(|| {}).unwrap();
        client.submit(1, Request::Get { key: "volume/x".into() });
        client
            .submit(2, Request::Commit(Transaction::default().when("volume/x", 0).put("volume/x", vec![2])));
        let mut answers = Vec::new();
        let patience = Instant::now() + Duration::from_secs(20);
        while answers.is_empty() {
            assert!(Instant::now() < patience);
            client.poll(&mut answers);
        }
        // In order: the reading was answered before.
        assert_eq!((answers.len(), &answers[0].answer), (1, &Answer::Conflict));
        keeper.kept.set(revision);
        client.poll(&mut answers);
        assert!(matches!(&answers[1].answer, Answer::Value(Some(found)) if found.revision == revision));
    }
}
