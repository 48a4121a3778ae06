//! How a running server finds out about its removal from its cluster, and its work after that.
//!
//! Promises: a server that can read the records sees its removal as soon as they change. If they do not
//! answer, it asks the others every few seconds. Only a record or an answer counts: silence is no
//! removal. From then on the API refuses every request with the reason.

use crate::credentials::Credentials;
use crate::engine::Engine;
use crate::identity::Identity;
use crate::own_etcd::OwnMember;
use crate::waiting::{Waits, look};
use records::{ClusterRecord, NodeRecord, State, Typed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Interval between questions to the other servers while the records do not answer.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Time for which etcd may keep a member of a removed server, and the interval between checks.
const LEAVING_PATIENCE: Duration = Duration::from_secs(30);
const LEAVING_LOOK: Duration = Duration::from_millis(100);

/// This server's knowledge of its own removal.
#[derive(Default)]
pub(crate) struct Removal {
    asked: Mutex<Option<Instant>>,
    words: OnceLock<String>,
}

impl Removal {
    /// Returns the reason to refuse requests; `None`: no removal is known.
    pub fn words(&self) -> Option<String> {
        self.words.get().cloned()
    }

    /// Finds out whether this server was removed. `asks`: asks the other servers if the records do not
    /// answer.
    pub async fn learn(&self, state: &State, credentials: &Credentials, asks: bool) -> bool {
        let (state, node, directory) = (state.clone(), credentials.facts().node, credentials.directory());
        let asks = asks && self.is_due();
        let found = tokio::task::spawn_blocking(move || {
            let identity = Identity::open(directory.parent()?).ok()??;
            let waits = match state.read::<NodeRecord>(&NodeRecord::id_of(node)) {
                Ok(Some(own)) if !own.value.is_member() => {
                    let cluster = ClusterRecord::find(&state).ok().flatten();
                    let unix_s =
                        cluster.and_then(|found| found.value.revoked_unix_s(&own.value.certificate_serial));
                    Waits::Removed { by: "the cluster's record".into(), unix_s }
                }
                Err(_) if asks => look(&identity),
                Ok(_) | Err(_) => return None,
            };
            matches!(waits, Waits::Removed { .. }).then(|| waits.in_words(&identity))
        });
        let Some(words) = found.await.ok().flatten() else { return false };
        tracing::error!("{words}");
        let _ = self.words.set(words);
        true
    }

    /// Whether to ask the others now.
    fn is_due(&self) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if is_due {
            *asked = Some(Instant::now());
        }
        is_due
    }
}

/// Waits, for a bounded time, until etcd has removed this server's member, whose vote that may need as
/// one of two.
pub(crate) async fn leave_etcd(engine: Arc<dyn Engine>) {
    let began = Instant::now();
    while engine.own_member() == OwnMember::Runs && began.elapsed() < LEAVING_PATIENCE {
        tokio::time::sleep(LEAVING_LOOK).await;
    }
}
