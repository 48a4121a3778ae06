//! The daemon's parts: control plane, data plane, the channel between them, and the program's own commands.
//!
//! Promises: no other place combines the layers below. Never holds logic of storage or protocol.

#![forbid(unsafe_code)]

mod acl;
pub mod cluster_side;
pub mod config;
pub mod control;
pub mod daemon;
pub mod dataplane;
mod descriptors;
pub mod directory;
pub mod entry;
mod limits;
mod logging;
pub mod logon_lines;
pub mod manager;
pub mod pipe_changes;
pub mod pipe_queue;
pub mod quickstart;
mod quotas;
pub mod rdma_devices;
mod rdma_host;
pub mod recover;
pub mod reload;
mod service_manager;
#[cfg(test)]
mod shown_commands;
pub mod trial;
mod witness;
