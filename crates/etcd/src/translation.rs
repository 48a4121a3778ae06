//! Requests and answers of the state in etcd's words.
//!
//! Owns the layout of a cluster's keys in etcd. Promises: a condition compares exactly what the trait says, and a transaction is one
//! transaction of etcd. Does no I/O.
//!
//! # Keys
//!
//! | key | value |
//! |---|---|
//! | `cenote/NAME/origin` | [`Origin`], written last when the cluster's state is made: without it there is no such cluster here |
//! | `cenote/NAME/claim` | while the cluster's state is made: by which process, told by the revision |
//! | `cenote/NAME/tick` | written before history is dropped, so that the last revision is never among it |
//! | `cenote/NAME/record/` + key | the records |
//!
//! # Revisions
//!
//! A record's revision is etcd's `mod_revision` plus the origin's `base`, which is above every revision
//! of the state that the records came from. So a revision read before the move never compares equal
//! after it, and revisions on disks keep rising.

use super::protocol as wire;
use records::{Answer, Change, Transaction, Versioned};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The beginning of a cluster's history in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Added to etcd's revisions.
    pub base: u64,
    /// Tells histories of one name apart.
    pub id: uuid::Uuid,
}

/// A cluster's keys.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    root: String,
    records: String,
}

impl Keys {
    pub fn new(cluster: &str) -> Self {
        let root = format!("cenote/{cluster}/");
        Self { records: format!("{root}record/"), root }
    }

    /// All keys of the cluster begin so.
    pub fn root(&self) -> &str {
        &self.root
    }

    pub fn origin(&self) -> String {
        format!("{}origin", self.root)
    }

    pub fn claim(&self) -> String {
        format!("{}claim", self.root)
    }

    pub fn tick(&self) -> String {
        format!("{}tick", self.root)
    }

    pub fn record(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.records).into_bytes()
    }

    /// The record's key in the state; `None` if it is none.
    pub fn name(&self, key: &[u8]) -> Option<String> {
        let key = key.strip_prefix(self.records.as_bytes())?;
        String::from_utf8(key.to_vec()).ok()
    }
}

/// The end of the range of all keys that begin with `prefix`, as etcd counts.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return end;
        }
    }
    // Everything from the prefix on.
    vec![0]
}

/// A cluster's keys, and where its revisions begin.
#[derive(Debug, Clone)]
pub(crate) struct Translation {
    pub keys: Keys,
    pub base: u64,
}

impl Translation {
    /// The state's revision of one of etcd's.
    pub fn revision(&self, of_etcd: i64) -> u64 {
        self.base + u64::try_from(of_etcd).unwrap_or(0)
    }

    pub fn get(&self, key: &str) -> wire::RangeRequest {
        wire::RangeRequest { key: self.keys.record(key), ..Default::default() }
    }

    /// A page of at most `limit` records from `after` (excluded) on; as of `revision` of etcd, or the newest if it is 0.
    pub fn list(&self, prefix: &str, after: Option<&[u8]>, revision: i64, limit: i64) -> wire::RangeRequest {
        let prefix = self.keys.record(prefix);
        let key = after.map_or_else(|| prefix.clone(), |after| [after, &[0]].concat());
        wire::RangeRequest { key, range_end: end_of(&prefix), limit, revision, ..Default::default() }
    }

    /// `None`: a condition names a revision that no key can have, so nothing can be applied.
    pub fn commit(&self, transaction: &Transaction) -> Option<wire::TxnRequest> {
        let compare: Option<Vec<_>> = transaction
            .conditions
            .iter()
            .map(|condition| self.compare(&condition.key, condition.revision))
            .collect();
        // etcd refuses a key that stands twice in a transaction; the last change counts.
        let mut last: BTreeMap<&str, Option<&Vec<u8>>> = BTreeMap::new();
        for change in &transaction.changes {
            match change {
                Change::Put { key, value } => last.insert(key, Some(value)),
                Change::Delete { key } => last.insert(key, None),
            };
        }
        let success = last.into_iter().map(|(key, value)| {
            let key = self.keys.record(key);
            match value {
                Some(value) => put(key, value.clone()),
                None => delete(wire::DeleteRangeRequest { key, range_end: Vec::new() }),
            }
        });
        Some(wire::TxnRequest { compare: compare?, success: success.collect(), failure: Vec::new() })
    }

    /// etcd's words for the condition that `key` still has `revision`; `None`: no key can have it.
    pub fn compare(&self, key: &str, revision: u64) -> Option<wire::Compare> {
        use wire::compare::{CompareResult, CompareTarget, TargetUnion};
        let (target, union) = if revision == 0 {
            (CompareTarget::Create, TargetUnion::CreateRevision(0))
        } else {
            let of_etcd =
                i64::try_from(revision.checked_sub(self.base)?).ok().filter(|number| *number > 0)?;
            (CompareTarget::Mod, TargetUnion::ModRevision(of_etcd))
        };
        Some(wire::Compare {
            result: CompareResult::Equal.into(),
            target: target.into(),
            key: self.keys.record(key),
            range_end: Vec::new(),
            target_union: Some(union),
        })
    }

    pub fn versioned(&self, found: wire::KeyValue) -> Versioned {
        Versioned { revision: self.revision(found.mod_revision), value: found.value }
    }

    pub fn committed(&self, response: &wire::TxnResponse) -> Answer {
        match (&response.header, response.succeeded) {
            (_, false) => Answer::Conflict,
            (Some(header), true) => Answer::Committed { revision: self.revision(header.revision) },
            (None, true) => Answer::Unknown,
        }
    }
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>) -> wire::RequestOp {
    let request = wire::request_op::Request::RequestPut(wire::PutRequest { key, value });
    wire::RequestOp { request: Some(request) }
}

pub(super) fn delete(range: wire::DeleteRangeRequest) -> wire::RequestOp {
    wire::RequestOp { request: Some(wire::request_op::Request::RequestDeleteRange(range)) }
}
