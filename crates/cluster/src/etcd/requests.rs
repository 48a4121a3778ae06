//! A request from its submission to its answer.

use super::Shared;
use super::channels::Connection;
use super::options::reason;
use super::protocol as wire;
use super::protocol::kv_client::KvClient;
use super::translation::Translation;
use crate::{Answer, Request, StateDump, StateError, Transaction, Versioned};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Records that one answer of etcd holds at most.
const PAGE_RECORDS: i64 = 1000;
/// An answer of etcd: a page of records.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Before a read is tried again.
const PAUSE: Duration = Duration::from_millis(50);
/// A member that does not answer a read within this time is left for another one, if there are more.
const READ_PATIENCE: Duration = Duration::from_millis(400);

/// Why a call failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub why: String,
    /// etcd took the call and refused it; asking another member is no use.
    pub is_refusal: bool,
}

impl From<Failure> for StateError {
    fn from(failure: Failure) -> Self {
        Self::Unknown(format!("etcd: {}", failure.why))
    }
}

/// Answers requests of a state.
#[derive(Clone)]
pub(super) struct Requests {
    shared: Arc<Shared>,
    until: Instant,
}

impl Requests {
    /// For one request: its deadline begins now.
    pub fn new(shared: Arc<Shared>) -> Self {
        let until = Instant::now() + shared.deadline();
        Self { shared, until }
    }

    pub async fn answer(&self, request: Request) -> Result<Answer, StateError> {
        let translation = self.translation().await?;
        let floor = self.shared.seen.load(Ordering::Acquire);
        let (answer, revision) = match request {
            Request::Get { key } => {
                let found = self.read(|mut client| {
                    let request = translation.get(&key);
                    async move { client.range(request).await }
                });
                let found = found.await?;
                let revision = revision_of(found.header.as_ref(), &translation);
                let value = found.kvs.into_iter().next().map(|found| translation.versioned(found));
                (Answer::Value(value), revision)
            }
            Request::List { prefix } => {
                let (listed, revision) = self.list(&translation, &prefix).await?;
                (Answer::Listed(listed), revision)
            }
            Request::Commit(transaction) => self.commit(&translation, &transaction).await?,
        };
        self.judge(revision, floor)?;
        Ok(answer)
    }

    pub async fn dump(&self) -> Result<StateDump, StateError> {
        let translation = self.translation().await?;
        let floor = self.shared.seen.load(Ordering::Acquire);
        let (listed, revision) = self.list(&translation, "").await?;
        self.judge(revision, floor)?;
        let entries = listed.into_iter().map(|(key, found)| (key, found.value)).collect();
        Ok(StateDump { revision, entries })
    }

    /// Waits until it is known where the cluster's revisions begin.
    async fn translation(&self) -> Result<Arc<Translation>, StateError> {
        let mut known = self.shared.translation.subscribe();
        let waited = tokio::time::timeout_at(self.until.into(), known.wait_for(Option::is_some)).await;
        match waited {
            Ok(Ok(found)) => Ok(found.clone().expect("it was waited for")),
            _ => {
                let outage = self.shared.outage();
                let why = outage.as_ref().map_or("etcd does not answer", |outage| &outage.trouble.why);
                Err(StateError::Unknown(why.to_owned()))
            }
        }
    }

    /// Refuses an answer of an etcd that has less than was seen before the request.
    fn judge(&self, revision: u64, floor: u64) -> Result<(), StateError> {
        if revision < floor {
            let why = went_back(revision, floor);
            self.shared.note_failure(&why);
            return Err(StateError::Unknown(why));
        }
        self.shared.note_answer();
        self.shared.note_revision(revision);
        Ok(())
    }

    /// All records below a prefix as of one revision, and that revision.
    pub async fn list(
        &self,
        translation: &Translation,
        prefix: &str,
    ) -> Result<(Vec<(String, Versioned)>, u64), StateError> {
        let mut listed = Vec::new();
        let mut pinned = 0;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let request = translation.list(prefix, after.as_deref(), pinned, PAGE_RECORDS);
            let page = self.read(|mut client| {
                let request = request.clone();
                async move { client.range(request).await }
            });
            let page = page.await?;
            if pinned == 0 {
                pinned = page.header.as_ref().map_or(0, |header| header.revision);
            }
            after = page.kvs.last().map(|found| found.key.clone());
            for found in page.kvs {
                if let Some(key) = translation.keys.name(&found.key) {
                    listed.push((key, translation.versioned(found)));
                }
            }
            if !page.more || after.is_none() {
                return Ok((listed, translation.revision(pinned)));
            }
        }
    }

    /// Sends a transaction once.
    async fn commit(
        &self,
        translation: &Translation,
        transaction: &Transaction,
    ) -> Result<(Answer, u64), StateError> {
        let Some(request) = translation.commit(transaction) else {
            return Ok((Answer::Conflict, self.shared.seen.load(Ordering::Acquire)));
        };
        let answered = self.once(|mut client| async move { client.txn(request).await }).await?;
        let revision = revision_of(answered.header.as_ref(), translation);
        Ok((translation.committed(&answered), revision))
    }

    /// One try, on the connection there is.
    pub async fn once<T, F>(&self, call: impl FnOnce(KvClient<Channel>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.attempt(self.until, call).await
    }

    /// Tries until the deadline, on one member after the other: for what may be repeated.
    pub async fn read<T, F>(&self, call: impl Fn(KvClient<Channel>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        loop {
            let is_alone = self.shared.channels.count() == 1;
            let until = if is_alone { self.until } else { self.until.min(Instant::now() + READ_PATIENCE) };
            match self.attempt(until, &call).await {
                Err(failure) if !failure.is_refusal && Instant::now() + PAUSE < self.until => {
                    tokio::time::sleep(PAUSE).await;
                }
                answered => return answered,
            }
        }
    }

    async fn attempt<T, F>(
        &self,
        until: Instant,
        call: impl FnOnce(KvClient<Channel>) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let late = || Failure { why: "no answer in time".into(), is_refusal: false };
        let answered = match tokio::time::timeout_at(until.into(), self.shared.channels.connection()).await {
            Err(_) => Err(late()),
            Ok(Err(why)) => Err(Failure { why, is_refusal: false }),
            Ok(Ok(connection)) => {
                let client = KvClient::new(connection.channel.clone());
                let client = client.max_decoding_message_size(ANSWER_BYTES_MAX);
                match tokio::time::timeout_at(until.into(), call(client)).await {
                    Ok(Ok(answered)) => Ok(answered.into_inner()),
                    Ok(Err(status)) => Err(self.judge_status(&connection, &status)),
                    Err(_) => {
                        self.shared.channels.failed(&connection);
                        Err(late())
                    }
                }
            }
        };
        if let Err(failure) = &answered {
            self.shared.note_failure(&failure.why);
        }
        answered
    }

    fn judge_status(&self, connection: &Connection, status: &Status) -> Failure {
        let is_refusal = is_refusal(status);
        if !is_refusal {
            self.shared.channels.failed(connection);
        }
        Failure { why: text_of(status), is_refusal }
    }
}

/// Whether etcd understood the call and will say the same again.
pub(super) fn is_refusal(status: &Status) -> bool {
    use Code::{
        FailedPrecondition, InvalidArgument, NotFound, OutOfRange, PermissionDenied, ResourceExhausted,
        Unimplemented,
    };
    matches!(
        status.code(),
        FailedPrecondition
            | InvalidArgument
            | NotFound
            | OutOfRange
            | PermissionDenied
            | ResourceExhausted
            | Unimplemented
    )
}

pub(super) fn text_of(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), reason(source)),
        None => status.message().to_owned(),
    }
}

pub(super) fn went_back(revision: u64, floor: u64) -> String {
    format!(
        "it has revision {revision}, and had {floor} before: it was restored from an old backup, or lost what it had; it is not used"
    )
}

fn revision_of(header: Option<&wire::ResponseHeader>, translation: &Translation) -> u64 {
    translation.revision(header.map_or(0, |header| header.revision))
}
