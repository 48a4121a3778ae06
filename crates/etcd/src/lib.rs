//! The state of a cluster in etcd.
//!
//! Owns [`EtcdState`]: requests of the state as calls of etcd, on a runtime of their own with one
//! thread; [`process`], which runs etcd; [`members`], which lists its members. Promises: a commit is
//! sent once and never repeated. If no answer comes within the deadline, or the connection is lost, the
//! outcome is [`Answer::Unknown`]; one that was never sent, or that etcd refused for certain, is
//! [`StateError::NotApplied`]. Reads are linearizable, and repeated within the deadline, on other
//! members too. An etcd that is empty, has another cluster, or went back behind a revision that was
//! seen answers nothing. A commit of a server that was removed is not applied, however good its
//! connection still is. Never on the data path.
//!
//! | file | |
//! |---|---|
//! | `carry` | a single server's records move into etcd while the server runs |
//! | `options` | addresses, certificates, deadlines |
//! | `translation` | keys and revisions, requests and answers in etcd's words |
//! | `channels` | the connection, and to which member |
//! | `requests` | a request from its submission to its answer |
//! | `writer` | the condition that the server which writes is still in the cluster |
//! | `watching` | the one watch of all the cluster's keys; dropping old history |
//! | `floor` | the highest revision that was seen, kept over restarts |
//! | `forming` | a cluster's records are written into an etcd that has none |
//! | `members` | members, leader, size, alarms |
//! | `process` | the etcd that the daemon runs |
//! | `rescue` | the records of a member whose majority is lost go into an etcd that is made anew |

#![forbid(unsafe_code)]

mod carry;
mod channels;
mod floor;
mod forming;
pub mod members;
mod options;
pub mod process;
#[allow(clippy::all, missing_docs)]
mod protocol;
mod requests;
pub mod rescue;
mod translation;
mod watching;
mod writer;

pub use carry::{CarryError, Moved, carry};
pub use forming::FormError;
pub use options::{EtcdOptions, TlsIdentity};

use floor::Floor;
use records::clock::unix_now_s;
use records::{
    Answer, BlockingState, Board, EngineState, Request, SharedEngine, State, StateDump, StateError,
    StatePlace, StateTrouble,
};
use requests::Requests;
use std::future::Future;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};
use translation::{Keys, Origin, Translation};

/// An outage shorter than this is an election, and is not reported.
const ELECTION_PATIENCE: Duration = Duration::from_secs(2);

/// A trouble of etcd, and since when there is no answer.
struct Outage {
    since: Instant,
    trouble: StateTrouble,
}

/// State that the tasks of one [`EtcdState`] share.
struct Shared {
    options: Mutex<EtcdOptions>,
    keys: Keys,
    channels: channels::Channels,
    /// Known once the origin was read.
    translation: tokio::sync::watch::Sender<Option<Arc<Translation>>>,
    /// The highest revision that an answer told of.
    seen: AtomicU64,
    /// The revision of etcd at which this process made the cluster, until the watch begins there; 0: it did not.
    formed_at: AtomicI64,
    floor: Option<Floor>,
    /// The revision that the writer's own record had when etcd told last; 0: it was not there, or was not read yet.
    writer_revision: AtomicU64,
    outage: Mutex<Option<Outage>>,
    board: OnceLock<Arc<Board>>,
}

impl Shared {
    fn options(&self) -> MutexGuard<'_, EtcdOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deadline(&self) -> Duration {
        self.options().deadline
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// etcd does not answer as it should.
    fn note_failure(&self, why: &str) {
        tracing::debug!(why, "etcd does not answer");
        let mut outage = self.outage();
        if let Some(outage) = outage.as_mut() {
            outage.trouble.why = why.to_owned();
            return;
        }
        let place = StatePlace::Etcd(self.options().endpoints.clone());
        let trouble = StateTrouble { place, why: why.to_owned(), since_unix_s: unix_now_s() };
        *outage = Some(Outage { since: Instant::now(), trouble });
    }

    /// etcd answers.
    fn note_answer(&self) {
        if let Some(ended) = self.outage().take() {
            let seconds = ended.since.elapsed().as_secs_f32();
            tracing::debug!(seconds, "etcd answers again");
        }
    }

    /// Answers requests from now on: the records are there, revisions begin at this origin, and changes after this revision of etcd.
    fn begin_at(&self, origin: &Origin, revision: i64) {
        let translation = Arc::new(Translation { keys: self.keys.clone(), base: origin.base });
        self.note_revision(translation.revision(revision));
        self.formed_at.store(revision, Ordering::Release);
        self.translation.send_replace(Some(translation));
        self.note_answer();
    }

    /// Takes note of a revision that an answer told.
    fn note_revision(&self, revision: u64) {
        self.seen.fetch_max(revision, Ordering::AcqRel);
    }

    /// Writes down the highest revision seen so far. Blocks.
    fn keep_floor(&self) {
        let seen = self.seen.load(Ordering::Acquire);
        if let Some(Err(error)) = self.floor.as_ref().map(|floor| floor.keep(seen)) {
            tracing::warn!(%error, "the last revision of etcd cannot be written down: an old backup of it might be taken for the newest");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keep_floor();
    }
}

/// Writes down the highest seen revision from time to time.
async fn keep_floor(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(floor::KEEP_EVERY).await;
        let shared = shared.clone();
        // Written on a blocking thread: other requests continue meanwhile.
        let _ = tokio::task::spawn_blocking(move || shared.keep_floor()).await;
    }
}

/// Ends the runtime with the last handle.
struct Runtime {
    handle: tokio::runtime::Handle,
    _end: tokio::sync::oneshot::Sender<()>,
}

/// A cluster's state in etcd. Cloning shares it; any thread may use it, but those of a tokio runtime must not block on it.
#[derive(Clone)]
pub struct EtcdState {
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
}

impl EtcdState {
    /// Begins to use a cluster's etcd; does not wait for it. Until etcd answers, requests are answered Unknown after the deadline.
    ///
    /// # Errors
    /// [`StateError::Open`]: an address, certificate or key is none, or there is no thread.
    pub fn connect(options: EtcdOptions) -> Result<Self, StateError> {
        let channels = channels::Channels::new(&options)?;
        let floor = options.floor_file.as_deref().map(Floor::open).transpose()?;
        let seen = floor.as_ref().map_or(0, Floor::kept).max(options.floor);
        let shared = Arc::new(Shared {
            keys: Keys::new(&options.cluster),
            channels,
            translation: tokio::sync::watch::Sender::new(None),
            seen: AtomicU64::new(seen),
            formed_at: AtomicI64::new(0),
            floor,
            writer_revision: AtomicU64::new(0),
            outage: Mutex::default(),
            board: OnceLock::new(),
            options: Mutex::new(options),
        });
        let runtime = Arc::new(start_runtime()?);
        // The task holds no handle of the runtime, so that the last state's end is the runtime's.
        runtime.handle.spawn(watching::attend(shared.clone()));
        if shared.floor.is_some() {
            runtime.handle.spawn(keep_floor(shared.clone()));
        }
        Ok(Self { shared, runtime })
    }

    /// The cluster's name.
    pub fn cluster(&self) -> String {
        self.shared.options().cluster.clone()
    }

    /// Other addresses and certificates from now on.
    ///
    /// # Errors
    /// As [`EtcdState::connect`]; then nothing is changed.
    pub fn reconfigure(&self, endpoints: Vec<String>, tls: Option<TlsIdentity>) -> Result<(), StateError> {
        let options = EtcdOptions { endpoints, tls, ..self.shared.options().clone() };
        self.shared.channels.replace(&options)?;
        *self.shared.options() = options;
        Ok(())
    }

    /// etcd, if it keeps the records of `state`.
    pub fn of(state: &State) -> Option<Self> {
        state.engine_as()
    }

    /// Runs a call on the runtime and waits for it.
    fn wait_for<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, StateError>> + Send + 'static,
    ) -> Result<T, StateError> {
        let (give, take) = mpsc::channel();
        self.runtime.handle.spawn(async move {
            let _ = give.send(call.await);
        });
        take.recv().unwrap_or_else(|_| Err(StateError::Unknown("the thread for etcd ended".into())))
    }
}

impl BlockingState for EtcdState {
    fn call(&self, request: Request) -> Result<Answer, StateError> {
        let requests = Requests::new(self.shared.clone());
        self.wait_for(async move { requests.answer(request).await })
    }
}

impl EngineState for EtcdState {
    fn revision(&self) -> u64 {
        self.shared.seen.load(Ordering::Acquire)
    }

    /// Why etcd does not answer, if it has not for longer than an election takes.
    fn trouble(&self) -> Option<StateTrouble> {
        let outage = self.shared.outage();
        outage
            .as_ref()
            .filter(|outage| outage.since.elapsed() >= ELECTION_PATIENCE)
            .map(|outage| outage.trouble.clone())
    }

    fn dump(&self) -> Result<StateDump, StateError> {
        let requests = Requests::new(self.shared.clone());
        self.wait_for(async move { requests.dump().await })
    }

    fn shared(&self) -> Option<&dyn SharedEngine> {
        Some(self)
    }
}

impl SharedEngine for EtcdState {
    fn tell(&self, board: Arc<Board>) {
        // A state belongs to one board for life.
        let _ = self.shared.board.set(board);
    }

    fn submit(&self, request: Request, answered: Box<dyn FnOnce(Result<Answer, StateError>) + Send>) {
        let requests = Requests::new(self.shared.clone());
        self.runtime.handle.spawn(async move { answered(requests.answer(request).await) });
    }
}

impl From<EtcdState> for State {
    fn from(etcd: EtcdState) -> Self {
        Self::new(etcd)
    }
}

fn start_runtime() -> Result<Runtime, StateError> {
    let failed = |error: &std::io::Error| StateError::Open(format!("no thread for etcd: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| failed(&error))?;
    let handle = runtime.handle().clone();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::Builder::new()
        .name("cluster-etcd".into())
        .spawn(move || {
            let _ = runtime.block_on(ended);
        })
        .map_err(|error| failed(&error))?;
    Ok(Runtime { handle, _end: end })
}

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
