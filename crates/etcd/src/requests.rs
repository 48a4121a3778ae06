//! A request from its submission to its answer.

use super::Shared;
use super::channels::Connection;
use super::options::reason;
use super::protocol as wire;
use super::protocol::kv_client::KvClient;
use super::translation::Translation;
use records::{Answer, Request, StateDump, StateError, Transaction, Versioned};
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
    pub fate: Fate,
}

impl From<Failure> for StateError {
    fn from(Failure { why, fate, .. }: Failure) -> Self {
        let why = format!("etcd: {why}");
        if fate == Fate::NotApplied { Self::NotApplied(why) } else { Self::Unknown(why) }
    }
}

/// The effect of a call that failed, as far as the failure tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// None: etcd never had the call, or refused it before it changed anything.
    NotApplied,
    /// etcd is done with the call and may have applied it: the transaction that fills the database is applied and refused.
    Decided,
    /// The transaction may be applied, now or later.
    Unknown,
}

/// etcd's words for a database that has reached its quota.
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
/// Advice for readers of that message.
const NO_SPACE_HELP: &str = "its database has reached its quota, and takes changes again after `etcdctl defrag` and `etcdctl alarm disarm` \
     (`cenote health`, cluster_state_full)";
/// etcd's refusals that have a code which also stands for a lost connection or a timeout.
const NEVER_PROPOSED: [&str; 3] =
    ["etcdserver: no leader", "etcdserver: not capable", "etcdserver: rpc not supported for learner"];

/// Answers requests of a state.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) shared: Arc<Shared>,
    until: Instant,
}

impl Requests {
    /// For one request: its deadline begins now.
    pub fn new(shared: Arc<Shared>) -> Self {
        let until = Instant::now() + shared.deadline();
        Self { shared, until }
    }

    pub async fn answer(&self, request: Request) -> Result<Answer, StateError> {
        let translation = self.translation().await;
        let translation = translation.map_err(|why| match request {
            Request::Commit(_) => StateError::NotApplied(why),
            Request::Get { .. } | Request::List { .. } => StateError::Unknown(why),
        })?;
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
            Request::Commit(transaction) => self.commit(&translation, &transaction, floor).await?,
        };
        self.judge(revision, floor)?;
        Ok(answer)
    }

    pub async fn dump(&self) -> Result<StateDump, StateError> {
        let translation = self.translation().await.map_err(StateError::Unknown)?;
        let floor = self.shared.seen.load(Ordering::Acquire);
        let (listed, revision) = self.list(&translation, "").await?;
        self.judge(revision, floor)?;
        let entries = listed.into_iter().map(|(key, found)| (key, found.value)).collect();
        Ok(StateDump { revision, entries })
    }

    /// Waits until it is known where the cluster's revisions begin; before that nothing is sent.
    async fn translation(&self) -> Result<Arc<Translation>, String> {
        let mut known = self.shared.translation.subscribe();
        let waited = tokio::time::timeout_at(self.until.into(), known.wait_for(Option::is_some)).await;
        match waited {
            Ok(Ok(found)) => Ok(found.clone().expect("it was waited for")),
            _ => {
                let outage = self.shared.outage();
                let why = outage.as_ref().map_or("etcd does not answer", |outage| &outage.trouble.why);
                Err(why.to_owned())
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

    /// Has a transaction applied at most once. `floor`: the highest revision that was seen before.
    async fn commit(
        &self,
        translation: &Translation,
        transaction: &Transaction,
        floor: u64,
    ) -> Result<(Answer, u64), StateError> {
        let Some(request) = translation.commit(transaction) else {
            return Ok((Answer::Conflict, self.shared.seen.load(Ordering::Acquire)));
        };
        match self.as_writer(translation, request).await? {
            Ok(answered) => {
                let revision = revision_of(answered.header.as_ref(), translation);
                Ok((translation.committed(&answered), revision))
            }
            Err(mut failure) => {
                if failure.fate == Fate::Decided && self.is_absent(translation, transaction, floor).await {
                    failure.fate = Fate::NotApplied;
                }
                Err(failure.into())
            }
        }
    }

    /// Whether a transaction that etcd has decided about was not applied. A record that it puts is then not there, or as old as before; `false` if
    /// nobody knows.
    async fn is_absent(&self, translation: &Translation, transaction: &Transaction, floor: u64) -> bool {
        let Some(key) = transaction.last_put() else { return false };
        let found = self.read(|mut client| {
            let request = translation.get(key);
            async move { client.range(request).await }
        });
        let Ok(found) = found.await else { return false };
        if self.judge(revision_of(found.header.as_ref(), translation), floor).is_err() {
            return false;
        }
        let condition = transaction.conditions.iter().find(|condition| condition.key == key);
        found.kvs.first().is_none_or(|found| {
            let revision = translation.revision(found.mod_revision);
            revision <= floor || condition.is_some_and(|condition| condition.revision == revision)
        })
    }

    /// One try, on the connection there is.
    pub async fn once<T, F>(&self, call: impl FnOnce(KvClient<Channel>) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        self.attempt(self.until, call).await
    }

    /// Tries until the deadline, on one member after the other: only for calls that may be repeated.
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
                // A read changes nothing; its caller hears that it has no answer.
                answered => return answered.map_err(|failure| Failure { fate: Fate::Unknown, ..failure }),
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
        let late = |fate| Failure { why: "no answer in time".into(), is_refusal: false, fate };
        let answered = match tokio::time::timeout_at(until.into(), self.shared.channels.connection()).await {
            // Nothing was sent.
            Err(_) => Err(late(Fate::NotApplied)),
            Ok(Err(why)) => Err(Failure { why, is_refusal: false, fate: Fate::NotApplied }),
            Ok(Ok(connection)) => {
                let client = KvClient::new(connection.channel.clone());
                let client = client.max_decoding_message_size(ANSWER_BYTES_MAX);
                match tokio::time::timeout_at(until.into(), call(client)).await {
                    Ok(Ok(answered)) => Ok(answered.into_inner()),
                    Ok(Err(status)) => Err(self.judge_status(&connection, &status)),
                    Err(_) => {
                        self.shared.channels.failed(&connection);
                        Err(late(Fate::Unknown))
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
        Failure { why: text_of(status), is_refusal, fate: fate_of(status) }
    }
}

/// The effect of a transaction that was answered by an error. Codes are also given by the client itself, to a connection that was lost for one, so
/// that the words count too: those of etcd, or of its gRPC server.
fn fate_of(status: &Status) -> Fate {
    let (code, words) = (status.code(), status.message());
    if words == NO_SPACE {
        return Fate::Decided;
    }
    let is_certain = match code {
        // Too large, or too many in work; no permission; no valid request; a member whose data are corrupt
        // applies nothing.
        Code::ResourceExhausted
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::NotFound
        | Code::DataLoss => {
            words.starts_with("etcdserver: ") || words.starts_with("grpc: received message larger")
        }
        Code::Unavailable => NEVER_PROPOSED.contains(&words),
        _ => false,
    };
    if is_certain { Fate::NotApplied } else { Fate::Unknown }
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
        None if status.message() == NO_SPACE => format!("{NO_SPACE}: {NO_SPACE_HELP}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_certain_if_etcd_says_that_it_changed_nothing_and_no_other_failure_is() {
        for (code, words) in [
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"),
            (Code::InvalidArgument, "etcdserver: request is too large"),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request"),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request"),
            (Code::InvalidArgument, "etcdserver: user name is empty"),
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
            (Code::DataLoss, "etcdserver: corrupt cluster"),
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::Unavailable, "etcdserver: rpc not supported for learner"),
        ] {
            assert_eq!(fate_of(&Status::new(code, words)), Fate::NotApplied, "{words}");
        }
        for (code, words) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure"),
            (Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::Unavailable, "transport is closing"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            (Code::Cancelled, "h2 protocol error: error reading a body from connection"),
            (Code::Unknown, "raft proposal dropped"),
            (Code::Internal, "h2 protocol error: http2 error"),
            // Given by the client: to a connection that the other side ends for calls too many, and to an answer.
            (Code::ResourceExhausted, "h2 protocol error: http2 error"),
            (Code::PermissionDenied, "h2 protocol error: http2 error"),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes",
            ),
        ] {
            assert_eq!(fate_of(&Status::new(code, words)), Fate::Unknown, "{words}");
        }
        assert_eq!(fate_of(&Status::resource_exhausted(NO_SPACE)), Fate::Decided);
    }

    #[test]
    fn a_certain_refusal_says_that_nothing_was_changed_and_an_uncertain_one_does_not() {
        let told = |fate| {
            let failure = Failure { why: "no".into(), is_refusal: true, fate };
            StateError::from(failure).to_string()
        };
        assert!(told(Fate::NotApplied).contains("nothing was changed"));
        for fate in [Fate::Decided, Fate::Unknown] {
            assert!(told(fate).contains("may or may not be there"));
        }
        assert!(text_of(&Status::resource_exhausted(NO_SPACE)).contains("etcdctl alarm disarm"));
    }
}
