//! The one watch of all the cluster's keys, and dropping old history.
//!
//! A task for as long as the state is used: it learns at which revision the cluster's revisions begin,
//! then follows the changes from the last seen revision, over lost connections and elections. If etcd
//! has dropped that history, listeners start over. It notices outages without being asked.

use super::Shared;
use super::channels::Connection;
use super::protocol as wire;
use super::protocol::kv_client::KvClient;
use super::protocol::watch_client::WatchClient;
use super::requests::{text_of, went_back};
use super::translation::{Origin, Translation, end_of};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::{Response, Status, Streaming};

/// Between tries to reach etcd: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often it is looked whether the nearest member answers again.
const NEAREST_AGAIN: Duration = Duration::from_secs(10);
/// A message of a watch: etcd cuts larger ones into pieces.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Follows the cluster's keys until the runtime ends.
pub(super) async fn attend(shared: Arc<Shared>) {
    let mut watching = Watching { shared, next: 0, compacted: 0, origin: None };
    let mut pause = PAUSE_MIN;
    loop {
        let before = watching.next;
        if let Err(why) = watching.follow().await {
            watching.shared.note_failure(&why);
        }
        pause = if watching.next > before { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::time::sleep(pause).await;
    }
}

struct Watching {
    shared: Arc<Shared>,
    /// The first revision of etcd that was not seen yet; 0: it begins with the newest.
    next: i64,
    /// History up to this revision of etcd was dropped by this process.
    compacted: i64,
    /// The origin that was read first.
    origin: Option<Origin>,
}

impl Watching {
    /// Follows on one connection until it fails.
    async fn follow(&mut self) -> Result<(), String> {
        let patience = self.shared.deadline();
        let connection = in_time(patience, self.shared.channels.connection()).await?;
        let followed = self.follow_on(&connection, patience).await;
        if followed.is_err() {
            self.shared.channels.failed(&connection);
        }
        followed
    }

    async fn follow_on(&mut self, connection: &Connection, patience: Duration) -> Result<(), String> {
        let (origin, translation) = in_time(patience, read_origin(&self.shared, connection)).await?;
        if self.origin.as_ref().is_some_and(|known| *known != origin) {
            // Revisions of two histories do not compare.
            self.shared.translation.send_replace(None);
            return Err("the cluster's records in it were made anew by somebody; it is not used".into());
        }
        self.origin = Some(origin);
        let formed_at = self.shared.formed_at.swap(0, Ordering::AcqRel);
        if self.next == 0 && formed_at > 0 {
            self.next = formed_at + 1;
        }
        self.shared.translation.send_replace(Some(translation.clone()));
        let begun = self.begin(connection, &translation);
        let mut stream =
            in_time(patience, async { begun.await.map_err(|status| text_of(&status)) }).await?.into_inner();
        loop {
            match tokio::time::timeout(NEAREST_AGAIN, stream.message()).await {
                Err(_) => self.shared.channels.prefer_nearest(patience).await,
                Ok(Err(status)) => return Err(text_of(&status)),
                Ok(Ok(None)) => return Err("the watch ended".into()),
                Ok(Ok(Some(message))) => {
                    self.take(&message, &translation)?;
                    self.drop_history(connection).await;
                }
            }
        }
    }

    /// Asks for all changes of the cluster's keys from the next revision on.
    fn begin(
        &self,
        connection: &Connection,
        translation: &Translation,
    ) -> impl Future<Output = Result<Response<Streaming<wire::WatchResponse>>, Status>> + use<> {
        let root = translation.keys.root().as_bytes().to_vec();
        let create = wire::WatchCreateRequest {
            range_end: end_of(&root),
            key: root,
            start_revision: self.next,
            progress_notify: true,
            fragment: true,
        };
        let union = Some(wire::watch_request::RequestUnion::CreateRequest(create));
        // The sending side stays open as long as the watch.
        let requests =
            tokio_stream::once(wire::WatchRequest { request_union: union }).chain(tokio_stream::pending());
        let mut request = tonic::Request::new(requests);
        // The watch ends if this member has no leader: others may have one.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let client = WatchClient::new(connection.channel.clone());
        let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
        async move { client.watch(request).await }
    }

    fn take(&mut self, message: &wire::WatchResponse, translation: &Translation) -> Result<(), String> {
        let shared = self.shared.clone();
        let of_etcd = message.header.as_ref().map_or(0, |header| header.revision);
        if message.canceled {
            if message.compact_revision > 0 {
                // The changes in between are gone.
                self.next = 0;
                return Err(format!("history up to {} was dropped", message.compact_revision));
            }
            return Err(format!("the watch was refused: {}", message.cancel_reason));
        }
        if message.created && of_etcd + 1 < self.next {
            // A watch from a revision that is not there yet would wait in silence. A member that has just started may be behind.
            return Err(went_back(translation.revision(of_etcd), translation.revision(self.next - 1)));
        }
        shared.note_answer();
        if message.created {
            if self.next == 0 {
                self.next = of_etcd + 1;
                if let Some(board) = shared.board.get() {
                    board.start_over();
                }
            }
            return Ok(());
        }
        let last =
            message.events.iter().filter_map(|event| event.kv.as_ref()).map(|kv| kv.mod_revision).max();
        let last = last.unwrap_or(of_etcd);
        shared.note_revision(translation.revision(last));
        if let Some(board) = shared.board.get() {
            let changed = message.events.iter().filter_map(|event| event.kv.as_ref());
            let keys: Vec<String> = changed.filter_map(|kv| translation.keys.name(&kv.key)).collect();
            board.changed(keys.iter().map(String::as_str), translation.revision(last));
        }
        if !message.fragment {
            self.next = self.next.max(last + 1);
        }
        Ok(())
    }

    /// Drops history when there is much of it, and keeps the newest: a plain put makes sure that the last revision is not dropped even if
    /// nobody writes any more.
    async fn drop_history(&mut self, connection: &Connection) {
        let (kept, patience) = {
            let options = self.shared.options();
            (options.kept_revisions, options.deadline)
        };
        let Some(kept) = kept.map(|kept| i64::from(kept.get())) else { return };
        if self.next - self.compacted <= 2 * kept {
            return;
        }
        let mut client = KvClient::new(connection.channel.clone());
        let tick = wire::PutRequest { key: self.shared.keys.tick().into_bytes(), value: Vec::new() };
        let compaction = async {
            let put = client.put(tick).await.map_err(|status| text_of(&status))?.into_inner();
            let newest = put.header.map_or(0, |header| header.revision);
            let revision = newest - kept;
            if revision <= 0 {
                return Err(format!("it has revision {newest}"));
            }
            let request = wire::CompactionRequest { revision, physical: false };
            // Refused if another process dropped more already.
            let answered = client.compact(request).await;
            Ok((revision, answered.err().map(|status| text_of(&status))))
        };
        match in_time(patience, compaction).await {
            Ok((revision, refused)) => {
                self.compacted = revision;
                tracing::debug!(revision, ?refused, "old history of etcd is dropped");
            }
            Err(why) => tracing::debug!(why, "old history of etcd stays for now"),
        }
    }
}

/// Reads where the cluster's revisions begin.
async fn read_origin(shared: &Shared, connection: &Connection) -> Result<(Origin, Arc<Translation>), String> {
    let request = wire::RangeRequest { key: shared.keys.origin().into_bytes(), ..Default::default() };
    let answered = KvClient::new(connection.channel.clone()).range(request).await;
    let answered = answered.map_err(|status| text_of(&status))?.into_inner();
    let Some(found) = answered.kvs.first() else {
        return Err(format!(
            "it has no cluster '{}': it is empty, or another cluster's",
            shared.options().cluster
        ));
    };
    let origin: Origin = serde_json::from_slice(&found.value)
        .map_err(|error| format!("its record {} does not parse: {error}", shared.keys.origin()))?;
    let translation = Arc::new(Translation { keys: shared.keys.clone(), base: origin.base });
    let revision = translation.revision(answered.header.map_or(0, |header| header.revision));
    let floor = shared.seen.load(Ordering::Acquire);
    if revision < floor {
        return Err(went_back(revision, floor));
    }
    shared.note_revision(revision);
    Ok((origin, translation))
}

async fn in_time<T>(patience: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| Err("no answer in time".into()))
}
