//! The step that records changes of opens that outlive the server.
//!
//! It runs after each try of an operation, before its answer, and nothing is written to the journal in
//! between. So a crash keeps both the operation and its effect on opens, or neither.

use super::cache_state::level_of;
use super::commit::commit;
use super::file_opens::Doomed;
use super::open::{CacheHolder, Open};
use super::open_record::{OpenRecord, StateRecord, StoredCache, TokenDigest};
use super::parts::Parts;
use super::records::Records;
use crate::backend::Reply;
use crate::fs::{OpenStateChanges, OpenStateKey, StreamId};
use crate::planted::Planted;

/// Records an operation's changes, for which it has reserved space before.
pub fn record_changes(parts: &mut Parts<'_>) {
    if !parts.agenda.records.is_empty() && parts.fs.takes_changes() {
        let records = std::mem::take(&mut parts.agenda.records);
        record(parts, records);
    }
}

/// Records changes that time has brought, when the journal has space for them.
pub fn record_some(parts: &mut Parts<'_>) {
    if !parts.agenda.records.is_empty() && parts.fs.ready_to_change_opens().is_ok() {
        let records = parts.agenda.records.take_some();
        record(parts, records);
    }
}

fn record(parts: &mut Parts<'_>, records: Records) {
    let Records { opens, leases, locks, deletions, granted, .. } = records;
    let mut changes = OpenStateChanges::new();
    for id in opens {
        let open = parts.opens.get(id).filter(|open| open.persistent);
        let record = open.and_then(|open| record_of(parts, open));
        changes.push((OpenStateKey::Open(id.0), record.map(|record| record.encode())));
    }
    for (id, interval, shared) in locks {
        let times =
            parts.opens.get(id).map_or(0, |open| parts.locks.times(id, open.stream, interval, shared));
        let (offset, len_bytes) = (interval.start, interval.len_bytes());
        let key = OpenStateKey::Lock { open: id.0, offset, len_bytes, shared };
        changes.push((key, (times > 0).then(|| StateRecord::Lock(times).encode())));
    }
    for (client, key) in leases {
        let record = parts.caching.record_of((client, key));
        let value = record.map(|record| StateRecord::Lease(record).encode());
        changes.push((OpenStateKey::Lease { client, key }, value));
    }
    for ((file, doomed), is_due) in deletions {
        let (key, record) = match doomed {
            Doomed::Link(link) => (
                OpenStateKey::DeletedLink { file, parent: link.parent, name: link.name.clone() },
                StateRecord::DeletedLink(link.name),
            ),
            Doomed::Stream(index) => {
                (OpenStateKey::DeletedStream(StreamId { file, index }), StateRecord::DeletedStream)
            }
        };
        changes.push((key, is_due.then(|| record.encode())));
    }
    changes.retain(|(key, value)| value.is_none() || !is_lost(key));
    parts.fs.keep_open_state(changes);
    for operation in granted {
        commit(parts, operation, Reply::Done, None, None);
    }
}

/// Whether a planted bug loses a record.
fn is_lost(key: &OpenStateKey) -> bool {
    match key {
        OpenStateKey::Open(_) => Planted::OpenRecordLost.is_planted(),
        OpenStateKey::Lock { .. } => Planted::LockRecordLost.is_planted(),
        OpenStateKey::Lease { .. } => Planted::LeaseRecordLost.is_planted(),
        OpenStateKey::DeletedLink { .. } | OpenStateKey::DeletedStream(_) => {
            Planted::DeletionRecordLost.is_planted()
        }
    }
}

/// Returns the record of an open; `None` if it has lost its rights and is about to be closed.
fn record_of(parts: &Parts<'_>, open: &Open) -> Option<StateRecord> {
    let durable = open.durable?;
    let cache = match &open.holder {
        CacheHolder::Lease((_, key)) => StoredCache::Lease(*key),
        holder => StoredCache::Oplock(level_of(parts.caching.state_of(holder))),
    };
    Some(StateRecord::Open(Box::new(OpenRecord {
        stream: open.stream,
        directory: open.directory,
        link: open.link.as_ref().map(|link| (link.parent, link.name.clone())),
        root: open.root.directory(),
        share: open.standing.share().to_owned(),
        user: open.token.user.clone(),
        token: open.token_digest.unwrap_or_else(|| TokenDigest::of(&open.token)),
        client: open.client,
        create_guid: open.create_guid.unwrap_or_default(),
        app_instance: open.app_instance,
        access: open.access,
        share_access: open.share_access,
        options: open.options,
        delete_on_close: open.delete_on_close,
        renamed: open.renamed,
        timeout: durable.timeout,
        action: open.create_action,
        cache,
        parent_key: open.parent_key,
        fixed_times: open.fixed_times,
        sequences: open.sequences.as_ref().map(|sequences| sequences.to_bytes()),
    })))
}
