//! A cluster's records are written into an etcd that has none of that name.
//!
//! Promises: nobody takes a half-written state for the cluster's: the origin comes last, in a transaction that compares. Of several that
//! form the same cluster at once one wins; one that was interrupted is begun again from the start.

use super::protocol as wire;
use super::requests::Requests;
use super::translation::{Origin, Translation, delete, end_of, put};
use super::{EtcdState, Shared};
use records::{StateDump, StateError};
use std::sync::Arc;
use std::time::Duration;

/// A transaction of this many records and bytes is below the limits of any etcd (128 operations, 1.5 MiB).
const RECORDS_MAX: usize = 100;
const BYTES_MAX: usize = 512 << 10;
/// Tries to learn the outcome of a last step that was not answered, and the pause between: a minute
/// with the deadlines.
const DECIDING_TRIES: u32 = 30;
const DECIDING_PAUSE: Duration = Duration::from_secs(1);

impl EtcdState {
    /// Whether etcd has the cluster.
    ///
    /// # Errors
    /// [`StateError::Unknown`]: etcd does not answer.
    pub fn is_formed(&self) -> Result<bool, StateError> {
        let shared = self.shared.clone();
        self.wait_for(async move { Ok(origin_of(&shared).await?.is_some()) })
    }

    /// Makes the cluster: all records of `dump`, and revisions that continue from there.
    ///
    /// # Errors
    /// [`FormError`].
    pub fn form(&self, dump: StateDump) -> Result<(), FormError> {
        let shared = self.shared.clone();
        let formed = self.wait_for(async move { Ok(form(shared, &dump).await) });
        formed.unwrap_or_else(|error| Err(FormError::Undecided(error)))
    }
}

async fn origin_of(shared: &Arc<Shared>) -> Result<Option<Origin>, StateError> {
    let key = shared.keys.origin();
    let request = wire::RangeRequest { key: key.clone().into_bytes(), ..Default::default() };
    let requests = Requests::new(shared.clone());
    let found = requests.read(|mut client| {
        let request = request.clone();
        async move { client.range(request).await }
    });
    let Some(found) = found.await?.kvs.into_iter().next() else { return Ok(None) };
    let parsed = serde_json::from_slice(&found.value);
    parsed.map(Some).map_err(|error| StateError::Malformed { key, why: error.to_string() })
}

/// Why a cluster was not formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("etcd has a cluster of this name already, or another process forms it now")]
    Exists,
    /// The cluster does not exist, and this try will not make it; form again.
    #[error(transparent)]
    Failed(StateError),
    /// The cluster may exist, or come to exist.
    #[error("nobody knows whether the cluster was formed: {0}")]
    Undecided(StateError),
}

async fn form(shared: Arc<Shared>, dump: &StateDump) -> Result<(), FormError> {
    let failed = |error| match error {
        StateError::Conflict => FormError::Exists,
        error => FormError::Failed(error),
    };
    let forming = Forming::begin(shared.clone()).await.map_err(failed)?;
    forming.write(dump).await.map_err(failed)?;
    let origin = Origin { base: dump.revision + 1, id: uuid::Uuid::new_v4() };
    let error = match forming.finish(&origin).await {
        Ok(revision) => {
            // Requests do not wait until the watch has found the records by itself.
            shared.begin_at(&origin, revision);
            return Ok(());
        }
        Err(StateError::Unknown(why)) => StateError::Unknown(why),
        Err(error) => return Err(failed(error)),
    };
    // A new claim makes sure that the last step is not applied later.
    for _ in 0..DECIDING_TRIES {
        match Forming::begin(shared.clone()).await {
            Ok(_) => return Err(FormError::Failed(error)),
            Err(StateError::Conflict) => {
                if let Ok(found) = origin_of(&shared).await {
                    if found.as_ref() != Some(&origin) {
                        return Err(FormError::Exists);
                    }
                    // The exact revision is not known; the watch finds it. Until then no revision before the
                    // records is reported.
                    shared.note_revision(origin.base);
                    return Ok(());
                }
            }
            Err(_) => tokio::time::sleep(DECIDING_PAUSE).await,
        }
    }
    Err(FormError::Undecided(error))
}

/// One process's try.
struct Forming {
    shared: Arc<Shared>,
    /// The revision of etcd that wrote the claim: every step compares with it.
    claimed: i64,
}

impl Forming {
    async fn begin(shared: Arc<Shared>) -> Result<Self, StateError> {
        let key = shared.keys.claim().into_bytes();
        let request = wire::TxnRequest {
            compare: vec![absent(shared.keys.origin())],
            success: vec![put(key, Vec::new())],
            failure: Vec::new(),
        };
        let answered =
            Requests::new(shared.clone()).once(|mut client| async move { client.txn(request).await }).await?;
        match (answered.succeeded, answered.header) {
            (true, Some(header)) => Ok(Self { shared, claimed: header.revision }),
            (false, _) => Err(StateError::Conflict),
            (true, None) => Err(StateError::Unknown("etcd did not say its revision".into())),
        }
    }

    async fn write(&self, dump: &StateDump) -> Result<(), StateError> {
        let keys = &self.shared.keys;
        let all = keys.record("");
        self.step(vec![delete(wire::DeleteRangeRequest { range_end: end_of(&all), key: all })]).await?;
        let mut ops = Vec::new();
        let mut bytes = 0;
        for (key, value) in &dump.entries {
            if ops.len() == RECORDS_MAX || bytes + value.len() > BYTES_MAX {
                self.step(std::mem::take(&mut ops)).await?;
                bytes = 0;
            }
            bytes += value.len();
            ops.push(put(keys.record(key), value.clone()));
        }
        if !ops.is_empty() {
            self.step(ops).await?;
        }
        self.compare(dump).await
    }

    /// The last step: from then on there is the cluster. Answers etcd's revision of it.
    async fn finish(&self, origin: &Origin) -> Result<i64, StateError> {
        let keys = &self.shared.keys;
        let value = serde_json::to_vec(origin).map_err(|error| StateError::Unknown(error.to_string()))?;
        let claim = wire::DeleteRangeRequest { key: keys.claim().into_bytes(), range_end: Vec::new() };
        self.step(vec![put(keys.origin().into_bytes(), value), delete(claim)]).await
    }

    /// Applies changes if nobody else claimed meanwhile; answers etcd's revision of them.
    async fn step(&self, success: Vec<wire::RequestOp>) -> Result<i64, StateError> {
        use wire::compare::{CompareResult, CompareTarget, TargetUnion};
        let claim = wire::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: self.shared.keys.claim().into_bytes(),
            range_end: Vec::new(),
            target_union: Some(TargetUnion::ModRevision(self.claimed)),
        };
        let request = wire::TxnRequest { compare: vec![claim], success, failure: Vec::new() };
        let requests = Requests::new(self.shared.clone());
        let answered = requests.once(|mut client| async move { client.txn(request).await }).await?;
        match answered.succeeded {
            true => Ok(answered.header.map_or(0, |header| header.revision)),
            false => Err(StateError::Conflict),
        }
    }

    /// Reads everything back.
    async fn compare(&self, dump: &StateDump) -> Result<(), StateError> {
        // Where revisions begin does not matter yet.
        let translation = Translation { keys: self.shared.keys.clone(), base: 0 };
        let (found, _) = Requests::new(self.shared.clone()).list(&translation, "").await?;
        let found = found.iter().map(|(key, found)| (key, &found.value));
        if found.eq(dump.entries.iter().map(|(key, value)| (key, value))) {
            return Ok(());
        }
        Err(StateError::Unknown("etcd does not have what was written into it".into()))
    }
}

fn absent(key: String) -> wire::Compare {
    use wire::compare::{CompareResult, CompareTarget, TargetUnion};
    wire::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.into_bytes(),
        range_end: Vec::new(),
        target_union: Some(TargetUnion::CreateRevision(0)),
    }
}
