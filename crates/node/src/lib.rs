//! The life cycle of disks, pools and volumes on one server: opening, supervision, retirement,
//! scrubs, checks, jobs and damage.
//!
//! Owns the state of every recorded disk, pool and volume. Promises: a disk or volume is used only
//! as the records allow. No code here blocks the thread, and time is an argument, so that one turn
//! of the loop has one time. Never speaks a protocol: clients reach volumes through a [`Front`],
//! and the caller shows the parts to administrators. `disk_issues` and `volume_issues` decide which
//! figures are an issue, and its remedy.
//!
//! Parts that own state: [`tasks`], [`events`], [`disks`], [`pools`], [`volumes`], [`damage`],
//! [`jobs`], [`records`]. All other parts work on a few of these, named by their fields.
//! [`disks::Disks`] takes a disk out, `disk_opening` opens it, [`disk_admin`] retires it.
//! `volume_opening` opens a volume and takes it out. [`pool_care`] imports and exports pools.
//! `record_watch` acts on the records of other nodes of a cluster. `lease_gate` decides whether the
//! node may answer. [`Node`] puts them together.

#![forbid(unsafe_code)]

pub mod acl_propagation;
mod backoff;
mod check;
pub mod damage;
mod damage_kept;
pub mod damage_search;
mod damaged_files;
pub mod discovery;
pub mod disk_admin;
mod disk_files;
pub mod disk_issues;
mod disk_opening;
pub mod disk_slot;
mod disk_store;
pub mod disks;
mod draining;
mod erasing;
mod error;
pub mod events;
mod formatting;
mod host_files;
mod job_control;
mod job_numbers;
pub mod jobs;
mod lease_gate;
mod letting_go;
mod metered_disk;
mod node;
mod node_of_cluster;
mod pace;
mod peers;
mod persisted;
pub mod pool_care;
pub mod pools;
mod promise_issues;
mod promises;
pub mod pulse;
mod rebalancing;
mod record_watch;
pub mod records;
mod recovery;
mod retirement;
mod retreat;
mod returning;
mod scrub;
mod served;
mod slow_disks;
mod state;
pub mod tasks;
mod volume_care;
pub mod volume_issues;
mod volume_opening;
mod volume_paths;
mod volume_quotas;
pub mod volumes;

#[cfg(test)]
mod cluster_tests;

pub use acl_propagation::AclPropagations;
pub use check::Checks;
pub use disk_opening::{OnLoop, on_loop};
pub use disk_store::DiskStore;
pub use error::{Done, Error, ErrorKind};
pub use formatting::{NewDisk, has_room_for_volume};
pub use host_files::HostFull;
pub use job_control::JobControl;
pub use lease_gate::Heartbeats;
pub use node::{Node, Options, Settings};
pub use node_of_cluster::adopt_records;
pub use pace::{Asked, Slow};
pub use peers::{ClusterMembership, MakeTransport, NodeLife, Peers, Unreached};
pub use promises::{Beyond, Promises, Recorded};
pub use served::ServedVolume;
pub use volume_care::NewVolume;
pub use volume_paths::Described;
pub use volume_quotas::{QuotaReport, VolumeQuotas};
pub use volumes::Front;
