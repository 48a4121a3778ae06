//! The cluster's state: one linearizable history of small records.
//!
//! Owns the [`ClusterState`] trait, its engines ([`RedbState`] on one node, [`etcd::EtcdState`] on more, [`MemoryState`] for tests and the
//! simulator) behind one handle, [`State`], and the typed records of pool, disks, volumes, jobs and health. Promises: a [`Transaction`] is applied whole or not at
//! all, and an answer says which, or that nobody knows ([`Answer::Unknown`]). Never on the data path: a
//! coordinator asks only when the membership of a volume changes.
//!
//! # Key layout
//!
//! Keys are UTF-8 paths. One kind of record owns one first segment; a new kind is a module beside the others that
//! implements [`Record`]. Identities are lower-case hyphenated UUIDs.
//!
//! | prefix | record | module |
//! |---|---|---|
//! | `pool/` + pool id | [`PoolRecord`] | `records` |
//! | `disk/` + disk id | [`DiskRecord`] | `records` |
//! | `deleted-volume/` + volume id | [`DeletedVolume`]: slabs to be given back | `records` |
//! | `node-lease/` + node id | [`NodeLease`]: which life of a node may answer; changed by that node only | `records` |
//! | `volume/` + volume id | [`VolumeRecord`]; changed by the volume's coordinator only | `records` |
//! | `disk-damage/` + disk id | [`DiskDamage`]: damage found on a disk, for people | `records` |
//! | `lost-blocks/` + volume id | [`LostBlocks`]: blocks without an intact copy, as far as known | `records` |
//! | `job/` + job id | [`JobRecord`] | `records` |
//! | `job-numbers/` + node id, or `single` | [`JobNumbers`]: how far a server may have counted its jobs; changed by that server only | `records` |
//! | `health/` + subject | [`HealthRecord`] | `records` |
//! | `user/`, `group/` | accounts | `accounts` |
//! | `share/` | shares | `shares` |
//! | `api-token/` + name | [`api_tokens::ApiToken`]: a token of the management API | `api_tokens` |
//! | `cluster/` | [`ClusterRecord`], if there is one | `nodes` |
//! | `node/` + number | [`NodeRecord`] | `nodes` |
//! | `join-token/` + token id | a token with which a server joins | `member::join_token` |
//! | `moved/state` | in redb only, once a cluster's etcd has the records | `etcd::Moved` |
//! | `settings/` | everything else an administrator sets | `settings` |
//!
//! Values are JSON (serde). Readers ignore fields they do not know, and new fields have defaults, so that an older version
//! of the program can read what a newer one wrote.

#![forbid(unsafe_code)]

mod account_error;
pub mod accounts;
pub mod api_tokens;
mod blocking;
pub mod clock;
mod engine_state;
mod handle;
pub mod hexadecimal;
pub mod image;
pub mod import;
mod memory;
pub mod names;
pub mod nodes;
mod packing;
pub mod recovery;
mod redb_engine;
pub mod replacing;
mod roomy;
pub mod seal;
pub mod settings;
pub mod shares;
mod state;
mod storage;
mod watch;

pub use blocking::{BlockingState, Stored, Typed};
pub use engine_state::{EngineState, SharedEngine};
pub use handle::{State, StateClient};
pub use memory::{Fault, MemoryClient, MemoryState};
pub use nodes::{ClusterRecord, EarlierCertificate, EtcdMember, NodeRecord, NodeState, Sealed};
pub use pool::FaultDomain;
pub use redb_engine::RedbState;
pub use roomy::RoomyState;
pub use state::{
    Answer, Change, ClusterState, Condition, Request, StateCompletion, StateDump, StateError, StatePlace,
    StateTrouble, Transaction, Versioned,
};
pub use storage::{
    DeletedVolume, DiskDamage, DiskRecord, DiskState, Home, JobKind, JobNumbers, LostBlocks, NodeLease,
    PoolRecord, Provisioning, Record, Resiliency, StaleDisk, VolumeRecord, WARN_AT_PERCENT,
};
pub use watch::{Board, Changes, Watch};

#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod tests;
