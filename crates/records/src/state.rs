//! Requests to the cluster's state, and its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// A value and the revision that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The revision of the whole state at which this key was last written; never 0.
    pub revision: u64,
    pub value: Vec<u8>,
}

/// A condition under which a transaction is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub key: String,
    /// The revision the key must still have; 0: the key must not exist.
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put { key: String, value: Vec<u8> },
    Delete { key: String },
}

/// Compare-and-swap of a set of keys: all conditions hold and all changes are applied, or nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    pub conditions: Vec<Condition>,
    pub changes: Vec<Change>,
}

impl Transaction {
    /// Adds the condition that `key` still has `revision` (0: does not exist).
    #[must_use]
    pub fn when(mut self, key: impl Into<String>, revision: u64) -> Self {
        self.conditions.push(Condition { key: key.into(), revision });
        self
    }

    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: Vec<u8>) -> Self {
        self.changes.push(Change::Put { key: key.into(), value });
        self
    }

    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.changes.push(Change::Delete { key: key.into() });
        self
    }

    /// A key that is there if the transaction was applied, unless somebody deleted it since.
    pub fn last_put(&self) -> Option<&str> {
        let mut later = BTreeSet::new();
        self.changes.iter().rev().find_map(|change| match change {
            Change::Put { key, .. } if !later.contains(key) => Some(key.as_str()),
            Change::Put { key, .. } | Change::Delete { key } => {
                later.insert(key);
                None
            }
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Answers `Value`.
    Get { key: String },
    /// Answers `Listed`.
    List { prefix: String },
    /// Answers `Committed`, `Conflict` or `Unknown`.
    Commit(Transaction),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Value(Option<Versioned>),
    /// Entries in key order.
    Listed(Vec<(String, Versioned)>),
    /// Applied and durable; all keys put have this revision.
    Committed {
        revision: u64,
    },
    /// A condition did not hold: nothing was applied.
    Conflict,
    /// No answer could be had. A read: ask again. A commit: it may have been applied, may be applied later, or never.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateCompletion {
    pub token: u64,
    pub answer: Answer,
}

/// The state as a state machine uses it: requests in, completions out, in any order. Nothing blocks.
pub trait ClusterState {
    /// Takes a request; its answer carries `token`.
    fn submit(&mut self, token: u64, request: Request);
    /// Moves the answers that are there into `out`.
    fn poll(&mut self, out: &mut Vec<StateCompletion>);
}

/// Why a blocking operation on the state failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateError {
    /// A condition did not hold: nothing was applied. Read again and decide anew.
    Conflict,
    /// The state did not answer; a commit may or may not have been applied.
    Unknown(String),
    /// The state refused a commit, or never had it: nothing was applied, and nothing will be.
    NotApplied(String),
    /// A record does not parse.
    Malformed { key: String, why: String },
    /// The state's file cannot be opened.
    Open(String),
    /// The disks of the pool of this name have no space for the records: nothing was applied.
    NoRoom(String),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("the record was changed by somebody else meanwhile; try again"),
            Self::Unknown(why) => {
                write!(f, "the cluster state did not answer, the change may or may not be there: {why}")
            }
            Self::NotApplied(why) => {
                write!(f, "the cluster state did not take the change, and nothing was changed: {why}")
            }
            Self::Malformed { key, why } => {
                write!(f, "record {key} of the cluster state does not parse: {why}")
            }
            Self::Open(why) => write!(f, "the cluster state cannot be opened: {why}"),
            Self::NoRoom(pool) => write!(
                f,
                "the disks of pool {pool} have no room for the records of one more: without these an import would lose some. Each disk keeps 256 KiB \
                 of records, some 3,000 users beside a few volumes. Delete users, shares or volumes that nobody needs"
            ),
        }
    }
}

impl std::error::Error for StateError {}

/// Everything in the state as of one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateDump {
    pub revision: u64,
    /// Key and value, in key order.
    pub entries: Vec<(String, Vec<u8>)>,
}

impl StateDump {
    /// The same after a transaction of which the conditions hold.
    #[must_use]
    pub fn after(&self, transaction: &Transaction) -> Self {
        let mut entries: BTreeMap<String, Vec<u8>> = self.entries.iter().cloned().collect();
        for change in &transaction.changes {
            match change {
                Change::Put { key, value } => drop(entries.insert(key.clone(), value.clone())),
                Change::Delete { key } => drop(entries.remove(key)),
            }
        }
        Self { revision: self.revision, entries: entries.into_iter().collect() }
    }
}

/// Place in which an engine keeps the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatePlace {
    /// Nowhere: for tests.
    Memory,
    /// redb's file.
    File(PathBuf),
    /// etcd, reached by these addresses.
    Etcd(Vec<String>),
}

impl fmt::Display for StatePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Etcd(endpoints) => write!(f, "etcd at {}", endpoints.join(", ")),
        }
    }
}

/// Why an engine does not answer, or not as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateTrouble {
    pub place: StatePlace,
    /// The error, and why the last try to get over it failed.
    pub why: String,
    pub since_unix_s: u64,
}
