//! The copies of the records on the disks (D8), kept up to date.
//!
//! Owns the revision of the cluster state that every reachable disk carries; [`crate::persisted`]
//! makes coordinators wait for it. Promises: a disk that does not take its copy delays commits no
//! longer than its timeout. It is then taken out, or health reports it. Never blocks: the state is
//! read on a helper thread.
//!
//! A volume's epoch and its settled epoch change during writes. The disks' copies of these may be
//! older ([`PoolImage::says_the_same`]): that costs an import comparisons, but no data. They are
//! written at most every [`LAZY`], and at the end.

use crate::disks::Disks;
use crate::persisted::PersistedState;
use crate::pools::Pools;
use crate::tasks::{Tasks, until};
use records::image::PoolImage;
use records::{State, StateDump, StateError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Monotonic, PoolId, Repeated};

/// Pause between two writes of changes that disks may have older.
const LAZY: Duration = Duration::from_secs(60);
/// Pause after a failed read of the state.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause between two rounds in a cluster, where no commit waits for them.
const PAUSE: Duration = Duration::from_secs(2);
/// Number of a disk's timeouts after which a disk without its copy is reported: a write, a flush,
/// and one more.
const PATIENCE_TIMES: u32 = 3;

/// The records for the disks of a pool.
struct Copy {
    image: Arc<PoolImage>,
    /// `None` if they have no space on a disk.
    bytes: Option<Rc<Vec<u8>>>,
    made_at: Monotonic,
}

/// Copies that a helper thread makes of the state.
struct Made {
    revision: u64,
    /// Pools whose disks get a new copy, with their records in bytes, if they have space.
    copies: Vec<(PoolId, PoolImage, Option<Vec<u8>>)>,
}

/// The image on a pool's disks, and whether an older one may stay there.
type Before = (Arc<PoolImage>, bool);

/// Makes new images for the disks of those pools whose image differs from before. For a large pool
/// that may take longer than a turn of the data plane.
fn make(dump: &StateDump, pools: Vec<(PoolId, Option<Before>)>, host: &str, unix_s: u64) -> Made {
    let copies = pools.into_iter().filter_map(|(pool, before)| {
        let image = PoolImage::of(dump, pool, host, unix_s)?;
        let stays = before.is_some_and(|(before, may_be_older)| {
            before.says_the_same(&image) && (may_be_older || before.entries == image.entries)
        });
        if stays {
            return None;
        }
        let bytes = image.encode(store::RECORDS_BYTES_MAX);
        Some((pool, image, bytes))
    });
    Made { revision: dump.revision, copies: copies.collect() }
}

/// Keeps the disks' copies up to date.
///
/// Invariant: at most one round runs; `kept` rises only after a round that began with that
/// revision.
pub struct Keeper {
    kept: Rc<PersistedState>,
    running: Cell<bool>,
    /// Number of disk arrivals when the last round began ([`Disks::arrivals`]); `None` if another
    /// round is needed in any case. A disk that came since may carry other records.
    seen_arrivals: Cell<Option<u64>>,
    /// Whether the disks must have no older records.
    exactly: Cell<bool>,
    copies: RefCell<BTreeMap<PoolId, Copy>>,
    /// Errors of a pool's copies.
    troubles: RefCell<BTreeMap<PoolId, String>>,
    host: String,
}

impl Keeper {
    /// Makes a keeper; `host`: this server's name, for administrators who find the disks elsewhere.
    pub fn new(kept: Rc<PersistedState>, host: String) -> Self {
        Self {
            kept,
            running: Cell::new(false),
            seen_arrivals: Cell::new(None),
            exactly: Cell::new(false),
            copies: RefCell::default(),
            troubles: RefCell::default(),
            host,
        }
    }

    pub(crate) fn forget(&self, pool: PoolId) {
        self.copies.borrow_mut().remove(&pool);
        self.troubles.borrow_mut().remove(&pool);
    }

    /// Whether the pool's records are larger than the space on a disk.
    pub fn lacks_room(&self, pool: PoolId) -> bool {
        self.copies.borrow().get(&pool).is_some_and(|copy| copy.bytes.is_none())
    }

    /// Returns the reason why some disks of a pool do not carry their copy.
    pub fn trouble(&self, pool: PoolId) -> Option<String> {
        self.troubles.borrow().get(&pool).cloned()
    }

    fn is_due(&self, disks: &Disks) -> bool {
        self.seen_arrivals.get() != Some(disks.arrivals()) || !self.kept.is_kept()
    }

    /// Begins to bring the disks' copies up to the last revision, if they are behind and no round runs.
    pub(crate) fn begin(self: &Rc<Self>, disks: &Rc<Disks>, pools: &Rc<Pools>, tasks: &Rc<Tasks>) {
        if self.running.get() || !self.is_due(disks) {
            return;
        }
        self.running.set(true);
        let (disks, pools) = (disks.clone(), pools.clone());
        let round = Round { keeper: self.clone(), disks, pools, tasks: tasks.clone() };
        tasks.spawn(async move { round.run().await });
    }

    /// Returns the images on the disks of these pools.
    fn before(&self, pools: &[PoolId], now: Monotonic) -> Vec<(PoolId, Option<Before>)> {
        let copies = self.copies.borrow();
        let is_lazy = !self.exactly.get();
        let of = |pool: &PoolId| {
            let copy = copies.get(pool);
            let before = copy.map(|copy| (copy.image.clone(), is_lazy && now.since(copy.made_at) < LAZY));
            (*pool, before)
        };
        pools.iter().map(of).collect()
    }

    /// Takes the images for the disks from now on.
    fn renew(&self, made: Made, now: Monotonic) {
        for (pool, image, bytes) in made.copies {
            let bytes = bytes.map(Rc::new);
            if bytes.is_none() {
                let why =
                    "the records of its volumes and disks are larger than the 256 KiB that a disk holds";
                tracing::error!(%pool, why, "the pool's disks do not carry its records");
                self.troubles.borrow_mut().insert(pool, why.to_owned());
            }
            self.copies.borrow_mut().insert(pool, Copy { image: Arc::new(image), bytes, made_at: now });
        }
    }

    /// Waits until all reachable disks carry the records exactly as they are, or `give_up` returns
    /// true.
    pub(crate) async fn all_kept(&self, disks: &Disks, give_up: impl Fn() -> bool) {
        self.exactly.set(true);
        self.seen_arrivals.set(None);
        until(|| {
            let done = !self.running.get() && !self.is_due(disks);
            (done || give_up()).then_some(())
        })
        .await;
        self.exactly.set(false);
    }

    fn state(&self) -> State {
        self.kept.state().clone()
    }
}

/// One round of writing: until the disks carry the last revision.
struct Round {
    keeper: Rc<Keeper>,
    disks: Rc<Disks>,
    pools: Rc<Pools>,
    tasks: Rc<Tasks>,
}

impl Round {
    async fn run(self) {
        let unreadable = Repeated::default();
        while self.keeper.is_due(&self.disks) {
            self.keeper.seen_arrivals.set(Some(self.disks.arrivals()));
            let (state, host) = (self.keeper.state(), self.keeper.host.clone());
            let pools = self.pools.ids();
            let (before, unix_s) = (self.keeper.before(&pools, self.tasks.now()), self.tasks.unix_seconds());
            let making = self.tasks.blocking(move || Ok(make(&state.dump()?, before, &host, unix_s)));
            let mut made = match making.await {
                Some(Ok(made)) => {
                    if let Some(failures) = unreadable.note_success() {
                        tracing::info!(failures, "the cluster state is read again for the disks' copies");
                    }
                    made
                }
                failed => {
                    let failed: Option<StateError> = failed.and_then(Result::err);
                    if unreadable.note_failure() {
                        tracing::error!(?failed, "the cluster state cannot be read for the disks' copies");
                    }
                    self.tasks.rest(AGAIN).await;
                    // This round does not serve disks that arrived meanwhile.
                    self.keeper.seen_arrivals.set(None);
                    continue;
                }
            };
            let revision = made.revision;
            // A pool may have been deleted meanwhile.
            made.copies.retain(|(pool, ..)| self.pools.space(*pool).is_some());
            self.keeper.renew(made, self.tasks.now());
            for pool in pools {
                self.write_copies(pool).await;
            }
            self.keeper.kept.set_kept(revision);
            if !self.keeper.kept.holds() && !self.keeper.exactly.get() {
                self.tasks.rest(PAUSE).await;
            }
        }
        self.keeper.running.set(false);
    }

    /// Writes a pool's disks their copies, and waits until they have them or are gone.
    async fn write_copies(&self, pool: PoolId) {
        let bytes = self.keeper.copies.borrow().get(&pool).and_then(|copy| copy.bytes.clone());
        let Some(bytes) = bytes else { return };
        let (Some(space), mut lacking) = (self.pools.space(pool), self.disks.lacking(pool, &bytes)) else {
            return;
        };
        if lacking.is_empty() {
            return;
        }
        space.keep_records(&bytes);
        let patience = self.tasks.now().after(self.disks.timeout() * PATIENCE_TIMES);
        let in_time = self.tasks.until_late(patience, || {
            let still = self.disks.lacking(pool, &bytes);
            // Disks that came meanwhile get a round of their own.
            lacking.retain(|disk| still.contains(disk));
            lacking.is_empty().then_some(())
        });
        let is_late = in_time.await.is_none();
        let mut troubles = self.keeper.troubles.borrow_mut();
        if is_late {
            let disks: Vec<String> = lacking.iter().map(ToString::to_string).collect();
            let why = format!("{} did not take its copy of the records in time", disks.join(", "));
            tracing::error!(%pool, why);
            troubles.insert(pool, why);
        } else {
            troubles.remove(&pool);
        }
    }
}
