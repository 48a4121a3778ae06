//! Section `[cluster]` of the configuration.
//!
//! Owns its keys and their documentation, and refuses values that make no sense. Never opens anything.

use crate::{ClusterKeys, OtherEtcd};
use api::sections::BadKey;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use uuid::Uuid;

/// This server's part in a present or future cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSection {
    /// `ADDRESS:PORT` of the cluster's port; empty: a single server.
    pub listen: String,
    /// Further addresses of this server, the preferred one first.
    pub addresses: Vec<IpAddr>,
    /// Rack of the server; empty: not named.
    pub rack: String,
    /// Chassis of the server; empty: not named.
    pub chassis: String,
    /// Other servers' disks are reached by SMB Direct if those serve it.
    pub bus_by_rdma: bool,
    /// Connections to each other server's disks, at most 16; 0: by its addresses, at most 4.
    pub bus_channels: u32,
    /// Path of etcd's program; empty: `etcd` in PATH.
    pub etcd_program: PathBuf,
    /// `https://ADDRESS:PORT` of each member of an etcd that somebody else runs; usually none.
    pub etcd: Vec<String>,
    /// File of the authority of that etcd's members, in PEM form.
    pub etcd_ca_file: PathBuf,
    /// File of this server's certificate for that etcd, in PEM form.
    pub etcd_certificate: PathBuf,
    /// File of that certificate's private key, in PEM form.
    pub etcd_key: PathBuf,
}

/// Half of the channels that a session of an SMB server may have: dead ones may remain for a while
/// beside those in use.
const BUS_CHANNELS_MAX: u32 = 16;

/// Every key, as `section.key`, and its help.
pub const DOCUMENTATION: &[(&str, &str)] = &[
    (
        "cluster.listen",
        "Address and port by which the other servers of a cluster reach this one, such as \"10.1.0.11:9447\" (TCP, and UDP for heartbeats); \"\": \
         this is a single server, and nothing listens.",
    ),
    (
        "cluster.addresses",
        "More addresses by which the other servers reach this one, the preferred one first; none: that of cluster.listen.",
    ),
    ("cluster.rack", "The rack it is in, if there are several: copies lie in different ones."),
    ("cluster.chassis", "The chassis it is in, if several servers share one."),
    (
        "cluster.bus_by_rdma",
        "Reach the other servers' disks by SMB Direct (iWARP in software) where they serve it, else by TCP, which costs less of a processor.",
    ),
    (
        "cluster.bus_channels",
        "Connections to each of the other servers' disks, spread over its addresses (those of SMB, or of SMB Direct); 0: one to each address, and four \
         at most.",
    ),
    (
        "cluster.etcd_program",
        "The etcd that keeps the cluster's state on the first three servers; \"\": etcd in PATH (package etcd-server).",
    ),
    (
        "cluster.etcd",
        "An etcd that somebody else runs: https://ADDRESS:PORT of each member, the same on all servers, before the cluster is made; none: the \
         servers run etcd themselves.",
    ),
    ("cluster.etcd_ca_file", "The authority of that etcd's members, in PEM form."),
    ("cluster.etcd_certificate", "A certificate by which they know this server, in PEM form."),
    ("cluster.etcd_key", "Its key in PEM form."),
];

impl ClusterSection {
    /// # Errors
    /// [`BadKey`].
    pub fn check(&self) -> Result<(), BadKey> {
        let bad = |key, why: String| Err(BadKey { key, why });
        if let Err(why) = self.listen_address() {
            return bad("cluster.listen", why);
        }
        if self.bus_channels > BUS_CHANNELS_MAX {
            return bad("cluster.bus_channels", format!("at most {BUS_CHANNELS_MAX}"));
        }
        if let Some(url) = self.etcd.iter().find(|url| !url.starts_with("https://")) {
            return bad("cluster.etcd", format!("{url} is not https://ADDRESS:PORT"));
        }
        for (key, path) in [
            ("cluster.etcd_ca_file", &self.etcd_ca_file),
            ("cluster.etcd_certificate", &self.etcd_certificate),
            ("cluster.etcd_key", &self.etcd_key),
        ] {
            if self.etcd.is_empty() != path.as_os_str().is_empty() {
                let why = "cluster.etcd needs authority, certificate and key, and they are for nothing else";
                return bad(key, why.into());
            }
        }
        Ok(())
    }

    /// Returns this server's address for the others of a cluster; `None`: it is a single server.
    ///
    /// # Errors
    /// Why it is not a valid address.
    pub fn listen_address(&self) -> Result<Option<SocketAddr>, String> {
        let text = &self.listen;
        if text.is_empty() {
            return Ok(None);
        }
        let address: SocketAddr = text.parse().map_err(|_| format!("{text:?} is not ADDRESS:PORT"))?;
        if address.ip().is_unspecified() {
            return Err(
                "it is to be an address by which the other servers reach this one, not all addresses".into(),
            );
        }
        Ok(Some(address))
    }

    /// Returns the foreign etcd, if any.
    pub fn other_etcd(&self) -> OtherEtcd {
        OtherEtcd {
            endpoints: self.etcd.clone(),
            authority: self.etcd_ca_file.clone(),
            certificate: self.etcd_certificate.clone(),
            key: self.etcd_key.clone(),
        }
    }

    /// Makes the section for the cluster side, without the addresses of SMB, which are those of the
    /// listeners. `listen`: of the cluster's port.
    pub fn keys(
        &self,
        name: &str,
        api: SocketAddr,
        listen: Option<SocketAddr>,
        server_guid: Uuid,
    ) -> ClusterKeys {
        ClusterKeys {
            name: name.to_owned(),
            server_guid,
            listen,
            addresses: self.addresses.clone(),
            smb: Vec::new(),
            rdma: Vec::new(),
            api,
            rack: self.rack.clone(),
            chassis: self.chassis.clone(),
            is_witness: false,
            uses_other_etcd: !self.etcd.is_empty(),
        }
    }
}
